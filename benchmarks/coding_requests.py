"""Requests to the coding assistant with scripted models: by the flow as people run it, and by a plain loop.

Both have the same tools, workspace and replies. The plain loop is that of the measurement: booleans, no
states, no journal.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.protocol import require

if TYPE_CHECKING:
    from detent.dispatch.conversation import ModelAnswer
    from detent.engine.engine import Engine
    from detent.engine.ports import Store
    from detent.flows.coding.flow import CodingFlow
    from detent.flows.coding.measure.scenario import Scenario
    from detent.flows.coding.result import CodingResult

PARITY = ("S01", "S02", "S12", "S15", "S18", "S22", "S26", "S30")
"""The scenarios that end at the same reply under both rules."""
MANY = 10_000
"""A limit of turns that no session here reaches."""

Seen = Callable[[int], None]
"""Is called before each reply, with its number."""


def scenarios_of(names: Sequence[str]) -> list[Scenario]:
    """Scenarios that ship with Detent, by their names."""
    from detent.flows.coding.measure.scenario_files import read_scenarios
    from detent.flows.coding.measure.suite import SHIPPED

    by_name = {scenario.id: scenario for scenario in read_scenarios(SHIPPED)}
    return [by_name[name] for name in names]


# -- models -------------------------------------------------------------------------------------------------


class _Model:
    """What every scripted model has."""

    model_id = "script"
    native_tools = True

    def available(self) -> Any:
        """Always."""
        from detent.dispatch.executor import Availability

        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        """It costs nothing."""
        return True

    async def close(self) -> None:
        """Nothing to close."""


class ScenarioModel(_Model):
    """Gives the replies of scenarios, each after a wait.

    Which reply is due is read off the conversation, so that a request that is resumed gets the right one.
    """

    def __init__(self, scenarios: Sequence[Scenario], wait: float = 0.0) -> None:
        self._scenarios = {scenario.prompt: scenario for scenario in scenarios}
        self._wait = wait

    async def complete(self, request: Any, on_text: Any = None) -> ModelAnswer:
        """The next reply."""
        from detent.flows.coding.measure.script import prompt_of, written

        if self._wait:
            await asyncio.sleep(self._wait)
        prompt = prompt_of(request.messages, list(self._scenarios))
        require(prompt is not None, "a conversation begins with no prompt of a scenario")
        replies = self._scenarios[str(prompt)].replies
        given = sum(message.role == "assistant" for message in request.messages)
        return written(replies[min(given, len(replies) - 1)], "native")


class ReadingModel(_Model):
    """Reads twenty lines of a file at each turn, the next ones every time, and then is done.

    In a session of requests of one turn each it only answers.
    """

    TEXT = "I look at the next part of the file, as it may be defined there. " * 2

    def __init__(self, turns: int, *, by_request: bool, seen: Seen = lambda number: None) -> None:
        self._turns = turns
        self._by_request = by_request
        self._seen = seen
        self.given = 0

    async def complete(self, request: Any, on_text: Any = None) -> ModelAnswer:
        """The next reply."""
        from detent.dispatch.conversation import ModelAnswer, ToolCall
        from detent.dispatch.usage import UsageMetadata

        self.given += 1
        self._seen(self.given)
        if self._by_request:
            return ModelAnswer(f"TUNACODE DONE: {self.TEXT}", UsageMetadata(), "script")
        at = (self.given - 1) % (self._turns + 1)
        if at == self._turns:
            return ModelAnswer("TUNACODE DONE: read it", UsageMetadata(), "script")
        lines = {"filepath": NOTES, "start_line": at + 1, "max_lines": 20}
        call = ToolCall("call_0", "read_file", lines)
        return ModelAnswer(self.TEXT, UsageMetadata(), "script", "stop", (call,))


NOTES = "notes.txt"
LINES = 1_100
"""As many as a session of 1,000 turns reads."""


def write_notes(workspace: Path) -> None:
    """The file that is read: lines of one length, so that every turn has equally much to say."""
    (workspace / NOTES).write_text(
        "".join(f"line {number:06} of the notes, as they are\n" for number in range(MANY))
    )


# -- the flow -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _One:
    """A source with one executor."""

    executor: Any
    default = "scripted"

    def make(self, provider: str) -> Any:
        """The executor."""
        return self.executor

    async def close(self) -> None:
        """Nothing to close."""


@dataclass
class Flowing:
    """An open engine with the coding flow, its assistant a scripted model."""

    engine: Engine
    flow: CodingFlow
    workspace: Path

    async def ask(self, prompt: str, *, session: str | None = None, deny: Sequence[str] = ()) -> CodingResult:
        """A request, to its end."""
        from detent.flows.coding.result import result_of

        run_id = await self.begin(prompt, session=session, deny=deny)
        await self.engine.finish(run_id)
        return await result_of(self.engine, run_id)

    async def begin(self, prompt: str, *, session: str | None = None, deny: Sequence[str] = ()) -> str:
        """Start a request."""
        from detent.flows.coding.options import RequestOptions
        from detent.flows.coding.request import start_request

        options = RequestOptions.of(
            self.flow.coding_settings, deny=tuple(deny), yes=True, on_confirm="deny", max_iterations=MANY
        )
        writer = self.flow.writer
        started = await start_request(
            self.engine, prompt, workspace=self.workspace, options=options, session=session,
            folder=None if writer is None else writer.folder,
        )  # fmt: skip
        return started.run_id


@asynccontextmanager
async def flowing(
    model: Any, folder: Path, workspace: Path, store: Store | None = None
) -> AsyncIterator[Flowing]:
    """The flow as `detent chat` runs it: SQLite at full sync and session files, unless a store is given."""
    from detent.adapters.models.executor import ModelStepExecutor
    from detent.adapters.stores.sqlite import SQLiteStore
    from detent.dispatch.autonomy import StepMode
    from detent.dispatch.config import StepConfig
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.engine.engine import Engine
    from detent.flows.coding.flow import CodingFlow
    from detent.flows.coding.sessions.folder import SessionFolder
    from detent.flows.coding.sessions.writer import SessionWriter
    from detent.flows.coding.settings import CodingSettings

    writer = None
    if store is None:
        store, writer = SQLiteStore(folder / "store.db"), SessionWriter(SessionFolder(folder / "sessions"))
    flow = CodingFlow(CodingSettings(request_timeout_s=86_400.0), writer=writer)
    dispatch = DispatchSettings(
        steps={"coding/assistant": StepConfig(mode=StepMode.AGENT)}, executors=_One(ModelStepExecutor(model))
    )
    async with Engine(store, [flow], dispatch=dispatch) as engine:
        yield Flowing(engine, flow, workspace)
        if writer is not None:
            await writer.flush()


# -- parity scenarios ---------------------------------------------------------------------------------------


def furnished(scenarios: Sequence[Scenario], folder: Path) -> Mapping[str, Path]:
    """A workspace for each scenario."""
    workspaces = {}
    for scenario in scenarios:
        workspaces[scenario.id] = workspace = Path(tempfile.mkdtemp(prefix=scenario.id, dir=folder))
        scenario.furnish(workspace)
    return workspaces


def check_end(scenario: Scenario, workspace: Path, replies: int | None, text: str) -> None:
    """Stop unless a scenario ended as it must, at its last reply."""
    require(replies == len(scenario.replies), f"{scenario.id} ended after {replies} replies")
    require(scenario.goal.holds(workspace, [text]), f"{scenario.id} ended without reaching its goal")


async def by_flow(scenarios: Sequence[Scenario], folder: Path, wait: float) -> float:
    """Seconds from the prompts to the results, by the flow on SQLite, each scenario a session of its own."""
    seconds, workspaces = 0.0, furnished(scenarios, folder)
    async with flowing(ScenarioModel(scenarios, wait), folder, folder) as desk:
        for scenario in scenarios:
            desk.workspace = workspaces[scenario.id]
            begin = time.perf_counter()
            result = await desk.ask(scenario.prompt, deny=scenario.deny)
            seconds += time.perf_counter() - begin
            require(result.done, f"{scenario.id} ended as {result.outcome}: {result.reason}")
            check_end(scenario, desk.workspace, result.iterations, result.text)
    return seconds


async def by_loop(
    scenarios: Sequence[Scenario], folder: Path, wait: float, complete: Callable[[], Any] | None = None
) -> float:
    """The same by the plain loop; `complete` makes the rule of completion of a request."""
    from detent.adapters.models.executor import ModelStepExecutor
    from detent.flows.coding.measure.legacy_rule import PlainLoop, legacy_complete

    seconds, workspaces = 0.0, furnished(scenarios, folder)
    executor = ModelStepExecutor(ScenarioModel(scenarios, wait))
    for scenario in scenarios:
        workspace = workspaces[scenario.id]
        begin = time.perf_counter()
        rule = legacy_complete if complete is None else complete()
        counted = _Counted(rule)
        done, text = await PlainLoop(executor, workspace, counted, scenario.deny).run(scenario.prompt, 40)
        seconds += time.perf_counter() - begin
        check_end(scenario, workspace, counted.replies if done else None, text)
    return seconds


class _Counted:
    """A rule of completion that counts the replies it has seen."""

    def __init__(self, rule: Callable[[Any], bool]) -> None:
        self._rule = rule
        self.replies = 0

    def __call__(self, reply: Any) -> bool:
        self.replies += 1
        return self._rule(reply)


# -- a driver on booleans -----------------------------------------------------------------------------------


@dataclass
class OldFlags:
    """The booleans as older code kept them."""

    is_processing: bool = False
    has_user_response: bool = False
    task_completed: bool = False
    awaiting_user_guidance: bool = False
    has_final_synthesis: bool = False


class BooleanRule:
    """Drives a request by booleans alone, under the legacy rule."""

    def __init__(self) -> None:
        self.flags = OldFlags()

    def __call__(self, reply: Any) -> bool:
        from detent.flows.coding.measure.legacy_rule import legacy_complete

        flags = self.flags
        flags.is_processing = True
        flags.has_user_response = flags.has_user_response or bool(reply.text.strip())
        if legacy_complete(reply):
            flags.task_completed, flags.is_processing = True, False
        return flags.task_completed and not flags.awaiting_user_guidance


class MachineRule:
    """Drives the same request by the state machine; the compatibility layer serves the code that reads and
    writes booleans."""

    def __init__(self) -> None:
        from detent.flows.coding.response_state import ResponseState
        from detent.flows.coding.state_transition import AgentStateMachine

        self.machine = AgentStateMachine()
        self.flags = ResponseState(self.machine)

    def __call__(self, reply: Any) -> bool:
        from detent.flows.coding.agent_state import AgentState

        machine, flags = self.machine, self.flags
        machine.transition_to(AgentState.ASSISTANT)
        machine.note_output(reply.text)
        if reply.calls:
            machine.transition_to(AgentState.TOOL_EXECUTION)
        machine.transition_to(AgentState.RESPONSE)
        require(not flags.is_processing, "a request in RESPONSE is called under way")
        flags.has_user_response = flags.has_user_response or bool(reply.text.strip())
        if flags.is_complete:
            flags.task_completed = True
        return flags.task_completed and not flags.awaiting_user_guidance
