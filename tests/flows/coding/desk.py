"""A workspace, an engine and a scripted model, for tests of requests.

The model knows only what it is sent. It is reached through the executor port; tests over HTTP are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.conversation import Message, ModelAnswer, ToolCall
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.executor import Availability, ReplyRequest
from detent.dispatch.usage import UsageMetadata
from detent.engine.engine import Engine
from detent.flows.coding.flow import CodingFlow
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.request import Started, start_request
from detent.flows.coding.result import CodingResult, result_of
from detent.flows.coding.settings import CodingSettings

YES = RequestOptions(yes=True)
Reply = ModelAnswer | Exception | Callable[[ReplyRequest], ModelAnswer]


def says(text: str, *calls: tuple[str, Any], **more: Any) -> ModelAnswer:
    """A reply of a model whose server gives every call the same id."""
    made = tuple(ToolCall("call_0", name, args) for name, args in calls)
    usage = UsageMetadata(input_tokens=10, output_tokens=2)
    return ModelAnswer(text, usage=usage, calls=made, **more)


DONE = says("TUNACODE DONE: done")


@dataclass
class ScriptedModel:
    """Gives its replies in order, whatever it is asked; the last one for ever if it repeats."""

    replies: list[Reply]
    requests: list[list[Message]] = field(default_factory=list)
    tools: list[list[str]] = field(default_factory=list)
    context_tokens: int | None = None
    repeats: bool = False

    def available(self) -> Availability:
        return Availability(True)

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        self.requests.append(list(request.messages))
        self.tools.append([tool.name for tool in request.tools])
        reply = self.replies[0] if self.repeats and len(self.replies) == 1 else self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    @property
    def nudges(self) -> list[str]:
        """What it was told behind its last reply, or the results of it, by request."""
        last = [messages[-1] for messages in self.requests[1:]]
        return [message.content for message in last if message.role == "user"]


@dataclass
class Source:
    """The scripted model as the provider of an engine."""

    model: ScriptedModel
    default = "scripted"

    def make(self, provider: str) -> Any:
        return self.model

    async def close(self) -> None:
        """Nothing to release."""


def by_model(model: ScriptedModel, level: str = "collaborator", **options: Any) -> DispatchSettings:
    """Settings that hand the assistant to a model."""
    config = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel(level))
    return DispatchSettings(steps={"coding/assistant": config}, executors=Source(model), **options)


@dataclass
class Desk:
    """One workspace with one engine at work in it."""

    workspace: Path
    model: ScriptedModel | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    store: Any = field(default_factory=MemoryStore)
    level: str = "collaborator"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the engine."""
    flow_options: Mapping[str, Any] = field(default_factory=dict)

    counters: Mapping[str, int] = field(default_factory=dict)
    """The figures of the last request."""

    def __post_init__(self) -> None:
        self.flow = CodingFlow(
            CodingSettings.model_validate({"sandbox": False, **self.settings}), **self.flow_options
        )
        dispatch = None if self.model is None else by_model(self.model, self.level)
        self.engine = Engine(self.store, [self.flow], dispatch=dispatch, **self.options)

    async def __aenter__(self) -> Desk:
        await self.engine.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.engine.__aexit__(*error)

    async def start(self, prompt: str, options: RequestOptions | None = None, **more: Any) -> Started:
        """Start a request."""
        if options is None:
            options = RequestOptions.of(self.flow.coding_settings, yes=True)
        return await start_request(self.engine, prompt, workspace=self.workspace, options=options, **more)

    async def ask(self, prompt: str, options: RequestOptions | None = None, **more: Any) -> CodingResult:
        """Start a request and see how it stops."""
        started = await self.start(prompt, options, **more)
        await self.engine.finish(started.run_id)
        self.counters = (await self.engine.get(started.run_id)).data.get("counters", {})
        return await self.result(started.run_id)

    async def result(self, run_id: str) -> CodingResult:
        return await result_of(self.engine, run_id)

    async def turns(self, run_id: str) -> list[Mapping[str, Any]]:
        """The messages of a request."""
        return list((await self.engine.get(run_id)).data["turns"])

    async def states(self, run_id: str) -> list[str]:
        """The states that a request has passed."""
        from detent.engine.journal_reader import read
        from detent.kernel.entries import Moved

        moves = [entry.body async for entry in read(self.store, run_id) if isinstance(entry.body, Moved)]
        return [moves[0].frm, *(move.to for move in moves)] if moves else []

    def write(self, **files: str) -> None:
        """Put files into the workspace; `_` in a name stands for a dot."""
        for name, text in files.items():
            (self.workspace / name.replace("_", ".")).write_text(text)

    def read(self, name: str) -> str:
        return (self.workspace / name).read_text()


def results(turns: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool, str | None]]:
    """Tool, success and error of each result."""
    return [(turn["tool"], turn["ok"], turn.get("error")) for turn in turns if turn["role"] == "tool"]


def nudged(turns: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kinds of nudges, in order."""
    return [turn["kind"] for turn in turns if turn["role"] == "nudge"]
