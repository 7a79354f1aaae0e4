"""Asks a model one question about a mail, outside any step."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.executor import DISPATCH_AGENT, ExecutorResult, ExecutorSource
from detent.engine.engine import Engine


def executors_of(engine: Engine) -> ExecutorSource | None:
    """The executors in the engine's settings; None without a default executor, or when agents are off."""
    settings = dispatcher_of(engine).settings
    if settings.force_deterministic or settings.executors is None or settings.executors.default is None:
        return None
    return settings.executors


class ModelQuestion:
    """A question to the default executor."""

    name: str
    """Name of the question, as executors know steps."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer; None for a text."""
    config = StepConfig(temperature=0.0)

    def __init__(self, executors: ExecutorSource, timeout: float = 60.0) -> None:
        self.executors = executors
        self.timeout = timeout

    async def answer(self, prompt: str, instructions: str) -> ExecutorResult | None:
        """The answer; None when there is no model to ask. Errors of the executor are raised."""
        if self.executors.default is None:
            return None
        executor = self.executors.make(self.executors.default)
        try:
            if not executor.available().ok:
                return None
            async with asyncio.timeout(self.timeout):
                return await executor.execute(
                    step_name=self.name, agent_name=DISPATCH_AGENT, prompt=prompt, instructions=instructions,
                    allowed_tools=[], output_schema=self.schema, config=self.config,
                )  # fmt: skip
        finally:
            close = getattr(executor, "close", None)
            if close is not None:
                await close()
