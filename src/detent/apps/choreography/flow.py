"""The flow of a show: the refine flow with the choreographer's parts, and its files at every end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from detent.apps.choreography import parts
from detent.apps.choreography.export import finisher, opened, write_tool
from detent.apps.choreography.settings import JobConfig
from detent.flows.refine.flow import RefineFlow, refine_flow
from detent.kernel.budget import Budget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from detent.engine.ports import Store
    from detent.runtime.settings import Settings

NAME = "choreography"


def show_flow(config: JobConfig, settings: Settings, store: Store | None = None) -> RefineFlow:
    """The flow of a show.

    Its files are made from the journal, which is read from `store`, or from the one that the settings name.
    """

    @asynccontextmanager
    async def named() -> AsyncIterator[Store]:
        from detent.runtime.wiring import store_for

        own = store_for(settings, create=False)
        await own.open()
        try:
            yield own
        finally:
            await own.close()

    agent = config.agent
    return refine_flow(
        NAME,
        preparer=parts.PREPARER,
        planner=parts.PLANNER,
        validator=parts.VALIDATOR,
        implementer=parts.IMPLEMENTER,
        judge=parts.JUDGE,
        rubric=parts.rubric_of,
        max_iterations=agent.max_iterations,
        pass_threshold=agent.success_threshold,
        budget=Budget(tokens=agent.token_budget, enforce=agent.enforce_token_budget),
        finisher=finisher,
        tools=[write_tool(named if store is None else lambda: opened(store))],
        description="A song in, an xLights sequence for DMX moving heads out.",
    )
