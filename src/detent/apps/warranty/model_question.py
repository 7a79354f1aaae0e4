"""Asks a model one question about a mail, outside any step."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import dispatcher_of
from detent.dispatch.executor import DISPATCH_AGENT, ExecutorResult, ExecutorSource
from detent.dispatch.usage import UsageMetadata
from detent.engine.engine import Engine
from detent.engine.ports import Tape, TapeCall
from detent.kernel.plain import to_plain


def executors_of(engine: Engine) -> ExecutorSource | None:
    """The executors in the engine's settings; None without a default executor, or when agents are off."""
    settings = dispatcher_of(engine).settings
    if settings.force_deterministic or settings.executors is None or settings.executors.default is None:
        return None
    return settings.executors


class ModelQuestion:
    """A question to the default executor. Like the steps of a run, it is recorded and replayed."""

    name: str
    """Name of the question, as executors know steps."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer; None for a text."""
    config = StepConfig(temperature=0.0)

    def __init__(self, executors: ExecutorSource, timeout: float = 60.0, tape: Tape | None = None) -> None:
        self.executors = executors
        self.timeout = timeout
        self.tape = tape

    async def answer(self, prompt: str, instructions: str) -> ExecutorResult | None:
        """The answer; None when there is no model to ask. Errors of the executor are raised."""
        provider = self.executors.default
        if provider is None:
            return None
        if self.tape is None:
            return await self._ask(provider, prompt, instructions)

        async def ask() -> Any:
            result = await self._ask(provider, prompt, instructions)
            return None if result is None else _plain(result)

        request = {"instructions": instructions, "prompt": prompt, "schema": self.schema}
        plain = await self.tape.through(TapeCall("agent", "", self.name, provider, request), ask)
        return None if plain is None else _result(plain)

    async def _ask(self, provider: str, prompt: str, instructions: str) -> ExecutorResult | None:
        executor = self.executors.make(provider)
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


def _plain(result: ExecutorResult) -> dict[str, Any]:
    usage = result.usage.to_plain() if result.usage is not None else None
    return {"output": to_plain(result.output), "success": result.success, "usage": usage}


def _result(plain: dict[str, Any]) -> ExecutorResult:
    return ExecutorResult(plain["output"], plain["success"], UsageMetadata.from_plain(plain["usage"]))
