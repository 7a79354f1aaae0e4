"""Checks before work starts whether the models of agent steps can be asked.

A model that cannot be asked does not stop the work: handlers perform its steps, and the first line of the
output says so. With `require_model: true` in the settings the work does not start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AutonomyLevel
from detent.kernel.errors import IntegrationMissing

if TYPE_CHECKING:
    from detent.dispatch.executor import StepExecutor
    from detent.dispatch.planner import Planner
    from detent.engine.flow import Flow
    from detent.runtime.settings import Settings

PATIENCE = 10.0
"""Seconds a model's server has to accept a connection."""


class ModelUse(NamedTuple):
    """One piece of work a model is meant for."""

    name: str
    """The step, or what else is asked."""
    provider: str | None = None
    """None stands for the default one."""
    model_id: str | None = None
    handled: bool = True
    """Code can do it instead."""


@dataclass(frozen=True, slots=True)
class UnusableModel:
    """A model that cannot be asked, and what it is needed for."""

    provider: str | None
    """None if no model is configured."""
    why: str
    uses: tuple[str, ...]
    """What code does instead."""
    waiting: tuple[str, ...] = ()
    """The steps without a handler."""

    def __str__(self) -> str:
        name = "No model" if self.provider is None else f"The model '{self.provider}'"
        cannot = "can" if self.provider is None else "cannot"
        return f"{name} {cannot} be asked: {self.why.rstrip('.')}."

    @property
    def notice(self) -> str:
        """What is the matter, and who does the work instead."""
        instead = f" Code performs instead: {', '.join(self.uses)}." if self.uses else ""
        waiting = f" Without a handler, and waiting for a person: {', '.join(self.waiting)}."
        return f"{self}{instead}{waiting if self.waiting else ''}"


async def check_models(
    settings: Settings, planner: Planner, uses: Iterable[ModelUse], *, required_by: str | None = None
) -> list[UnusableModel]:
    """The models that cannot be asked, to be told before anything else.

    Raises:
        IntegrationMissing: the settings require the models, or `required_by` names what else does.
    """
    unusable = await unusable_models(planner, uses)
    if settings.get("require_model"):
        required_by = "`require_model: true` in the settings"
    if unusable and required_by is not None:
        raise IntegrationMissing(
            f"{' '.join(map(str, unusable))} It is required by {required_by}, so nothing was begun."
        )
    return unusable


def uses_of(planner: Planner, flows: Iterable[Flow], own: Mapping[str, Any] | None = None) -> list[ModelUse]:
    """The steps of these flows that an agent is asked to perform.

    `own` is the step configuration of a single run.
    """
    if planner.settings.force_deterministic:
        return []
    plans = [planner.plan_for(flow, step, own=own) for flow in flows for step in flow.every_step()]
    return [
        ModelUse(
            plan.step.name,
            plan.config.provider,
            plan.config.model_id,
            not plan.alone and agent_side(plan.step).handled,
        )
        for plan in plans
        if plan.alone
        or (plan.agent and not plan.control and plan.config.autonomy is not AutonomyLevel.OPERATOR)
    ]


async def unusable_models(planner: Planner, uses: Iterable[ModelUse]) -> list[UnusableModel]:
    """The models that cannot be asked now."""
    source = planner.settings.executors
    default = None if source is None else source.default
    made: dict[str, StepExecutor] = {}
    reached: dict[str, str | None] = {}
    names: dict[tuple[str | None, str], dict[str, bool]] = {}
    for use in uses:
        executor = planner.usable_executor(use.provider, use.model_id, made)
        if isinstance(executor, str):
            why: str | None = executor
        else:
            address = getattr(getattr(executor, "model", None), "base_url", None)
            if not isinstance(address, str):
                continue
            if address not in reached:
                reached[address] = await unreachable(address)
            why = reached[address]
        if why is not None:
            names.setdefault((use.provider or default, why), {})[use.name] = use.handled
    return [
        UnusableModel(
            provider, why, tuple(name for name, handled in group.items() if handled),
            tuple(name for name, handled in group.items() if not handled),
        )
        for (provider, why), group in names.items()
    ]  # fmt: skip


async def unreachable(address: str) -> str | None:
    """Why a model's server cannot be reached; None if it accepts a connection.

    Behind a proxy only a request would tell, and none is made.
    """
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if getproxies() and host not in ("localhost", "127.0.0.1", "::1"):
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except OSError as error:  # a time-out is one
        return f"there is no answer at {host}:{port} ({type(error).__name__})"
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None
