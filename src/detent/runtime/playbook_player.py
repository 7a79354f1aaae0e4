"""Plays the cases beside a playbook: real queries, real steps, and nothing that leaves the machine.

Files are written to a folder that is thrown away, mail goes to an outbox in it, and any other effect is noted
and not performed. A case may answer for a function (`mock_function_responses`), plan its failures, give a
step to a scripted agent, or begin in the middle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from detent.adapters.cassette import CassetteMismatch, Player, Recorder
from detent.adapters.mail.outbox import Outbox
from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.engine.dispatch_settings import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.tools import NOT_DONE, EffectCall, Tool
from detent.evals.case import EvalTestCase
from detent.evals.plans import Plans, script_of
from detent.evals.playing import (
    Contracts,
    Played,
    PlayedCall,
    PlayedStep,
    PlayFailed,
    PlayOptions,
    StepContract,
    StepEdge,
)
from detent.evals.suite import GROUP, EvalSuite
from detent.flows.playbook.checking import redirect_of
from detent.flows.playbook.flow import PlaybookFlow
from detent.flows.playbook.folder import PlaybookFolder, read_manifest
from detent.flows.playbook.history import response_text
from detent.flows.playbook.instruction import DEGRADED, ENDS, FAILED
from detent.flows.playbook.playbook import Playbook, read_playbook
from detent.insight.visits import FunctionCall, StepVisit, blobs_of, visits
from detent.kernel.errors import ConfigurationError, DetentError
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.runtime.dispatching import dispatch_settings
from detent.runtime.mcp import mcp_servers
from detent.runtime.playbooks import home_of, is_playbook, playbook_of
from detent.runtime.settings import Settings

SUITE = "playbook"
CASES = "evals"
"""The folder beside a playbook's files that holds its cases."""
AT_ONCE = RetryPolicy(3, 0.0, 0.0)
"""Attempts as ever, without the waits between them."""

SAFE = ("send_email", "write_file")
"""Effects that are performed, in a folder of their own, when they are the general ones."""


class PlaybookPlayer:
    """Plays cases of one playbook, each on an engine of its own."""

    input_keys = (
        "data", "mock_function_responses", "failures", "start_step", "steps", "agent_replies", "overlays",
    )  # fmt: skip

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self._playbooks: dict[tuple[str, ...], Playbook] = {}
        asked = settings.get("model", "provider") not in (None, "none")
        self.model = (settings.get("model", "id") or settings.get("model", "model_id")) if asked else None
        self._flow(Path(), ())  # what is wrong with the files is told before any case is read

    def contracts(self, case: EvalTestCase) -> Contracts:
        """What the step files declare."""
        playbook = self._playbook(self._overlays(case))
        return Contracts(
            {
                step.id: StepContract(
                    step.id,
                    tuple(StepEdge(edge.to, edge.when, edge.reason) for edge in playbook.edges[step.id]),
                    step.needs,
                    tuple(one.name for one in step.available_functions),
                    step.names,
                )
                for step in playbook.steps.values()
            },
            frozenset(ENDS),
            frozenset({DEGRADED, FAILED}),
            playbook.manifest.max_steps,
        )

    async def play(self, case: EvalTestCase, *, orchestrator: str, options: PlayOptions) -> Played:
        """Play a case."""
        with tempfile.TemporaryDirectory(prefix="detent-eval-") as folder:
            return await _Play(self, case, options, Path(folder)).played()

    def _overlays(self, case: EvalTestCase) -> tuple[str, ...]:
        """The overlays a case lays over the playbook: folders beside its files."""
        said = case.input.get("overlays") or ()
        home = home_of(self.folder)
        for name in said:
            if not isinstance(name, str) or not (home / name).is_dir():
                raise ConfigurationError(f"there is no overlay folder '{name}' beside the playbook.")
        return tuple(str(home / name) for name in said)

    def _playbook(self, overlays: tuple[str, ...]) -> Playbook:
        found = self._playbooks.get(overlays)
        if found is None:
            found = self._playbooks[overlays] = read_playbook(self.folder, overlays=overlays)[0]
        return found

    def _flow(
        self,
        write: Path,
        overlays: Sequence[str],
        wrap: Callable[[Tool], Tool] | None = None,
        agents: Sequence[str] = (),
    ) -> PlaybookFlow:
        # Made anew for each case: cases are played side by side, and each closes what it opened.
        servers = mcp_servers(self.settings) if self.settings.get("mcp") is not None else {}
        flow = playbook_of(
            self.settings, self.folder, wrap=wrap, overlays=overlays, agents=agents, write=write,
            sink=Outbox(write / "outbox"), retry=AT_ONCE,
            tools=[tool for server in servers.values() for tool in server.tools],
        )  # fmt: skip
        used = {name for step in flow.steps.values() for name in step.queries or ()}
        flow.needs += [
            server for server in servers.values() if any(tool.name in used for tool in server.tools)
        ]
        return flow


class _Play:
    """One case under way."""

    def __init__(
        self, player: PlaybookPlayer, case: EvalTestCase, options: PlayOptions, folder: Path
    ) -> None:
        self.player = player
        self.case = case
        self.options = options
        self.folder = folder
        said = case.input
        self.plans = Plans(case)
        self.steps: dict[str, Any] = dict(said.get("steps") or {})
        self.replies: dict[str, Any] = dict(said.get("agent_replies") or {})

    async def played(self) -> Played:
        overlays = self.player._overlays(self.case)
        names = self.player._playbook(overlays).aliases
        self.steps = {names.get(str(key).casefold(), key): said for key, said in self.steps.items()}
        self.replies = {names.get(str(key).casefold(), key): said for key, said in self.replies.items()}
        for step in self.replies:
            self.steps.setdefault(step, {"mode": "agent", "autonomy": "approver"})
        agents = [name for name, said in self.steps.items() if dict(said or {}).get("mode") == "agent"]
        try:
            flow = self.player._flow(self.folder, overlays, self._around, agents)
            self.plans.check([tool.name for tool in flow.tools])
            return await self._run(flow, self._dispatch(flow))
        except DetentError as error:
            if isinstance(error, PlayFailed):
                raise
            raise PlayFailed(str(error)) from error

    # -- who performs ---------------------------------------------------------------------------------------

    def _dispatch(self, flow: PlaybookFlow) -> DispatchSettings:
        """Who performs which step: as the settings say, and over them the case."""
        settings = self.player.settings
        values = {**settings.values, "steps": {**settings.section("steps"), **self.steps}}
        dispatch = dispatch_settings(replace(settings, values=values), [flow], complete=False)
        if not self.replies:
            return dispatch
        script = ScriptedStepExecutor(script_of(self.replies))
        return replace(dispatch, executors=ScriptedSource(script))

    # -- functions ------------------------------------------------------------------------------------------

    def _around(self, tool: Tool) -> Tool:
        """A function as a case has it: with planned failures and answers, and without consequences."""
        if tool.kind == "effect" and not _is_safe(tool):
            tool = replace(tool, perform=_noting(tool), probe=tool.probe and _not_done)
        return self.plans.around(replace(tool, retry=AT_ONCE, breaker=None))

    # -- what happened --------------------------------------------------------------------------------------

    async def _run(self, flow: PlaybookFlow, dispatch: DispatchSettings) -> Played:
        data = self.case.input.get("data") or {}
        start = self.case.input.get("start_step")
        if start is not None:  # any data will do for a tail
            flow.playbook = replace(flow.playbook, manifest=replace(flow.playbook.manifest, input=None))
        tape = self._tape()
        try:
            async with Engine(MemoryStore(), [flow], dispatch=dispatch, tape=tape) as engine:
                # The same id each time: what a mail is known by depends on it, and recordings must fit.
                run = await engine.run(flow, data, at=start, run_id=f"eval-{self.case.scenario_id}")
                entries = await engine.store.entries(run.id, 0, 100_000)
                blobs = await blobs_of(engine.store, entries)
        except CassetteMismatch as error:
            raise PlayFailed(str(error), step_name=error.step or None) from error
        finally:
            if tape is not None:
                tape.close()
        if mismatches := getattr(tape, "mismatches", ()):
            raise PlayFailed(str(mismatches[0]), step_name=mismatches[0].step or None)
        done = visits(entries, needs=flow.playbook.needs, blobs=blobs)
        return _played(flow.playbook, done, run, dict(data))

    def _tape(self) -> Player | Recorder | None:
        if self.options.record is None and self.options.replay is None:
            return None
        name = f"{self.case.scenario_id}.jsonl"
        if self.options.record is not None:
            self.options.record.mkdir(parents=True, exist_ok=True)
            return Recorder(self.options.record / name, overwrite=True)
        file = Path(str(self.options.replay)) / name
        if not file.is_file():
            raise PlayFailed(f"There is no recording {name}.", hint="record it with --record")
        return Player(file)


def _noting(tool: Tool) -> Callable[..., Any]:
    """In place of an effect: says that it was noted."""

    @wraps(tool.perform)
    async def perform(*first: Any, **args: Any) -> Any:
        key = first[0].idempotency_key if first and isinstance(first[0], EffectCall) else None
        return {"status": "noted"} if key is None else {"status": "noted", "key": key}

    return perform


async def _not_done(**_: Any) -> Any:
    return NOT_DONE


def _is_safe(tool: Tool) -> bool:
    """True for the general effects: they stay in the folder they were given."""
    module = getattr(tool.perform, "__module__", "")
    return tool.name in SAFE and str(module).startswith("detent.adapters.general.")


def _played(playbook: Playbook, done: Sequence[StepVisit], run: Run, start: dict[str, Any]) -> Played:
    """What a run came to, as the harness wants it told."""
    redirect = redirect_of(playbook.manifest)
    steps = tuple(_step(playbook, visit, redirect.function if redirect else None) for visit in done)
    calls = tuple(_call(one) for visit in done for one in visit.calls)
    sent = tuple(dict(one.arguments) for one in calls if one.function_name == "send_email" and one.success)
    flags = run.data.get("flags")
    return Played(
        steps=steps,
        calls=calls,
        status=run.status.value,
        end=run.state,
        reason=run.reason,
        flags=tuple(map(str, flags)) if isinstance(flags, list) else (),
        context=dict(run.data),
        start_data=start,
        emails_sent=sent,
        scenario_used=f"steps:{done[-1].step_name}" if done else None,
        spend=run.total_spend,
        run_id=run.id,
    )


def _step(playbook: Playbook, visit: StepVisit, redirect: str | None) -> PlayedStep:
    """One step. What a degraded run leaves behind is the playbook's call, not the step's."""
    step = playbook.steps.get(visit.step_name)
    declared = {one.name for one in step.available_functions} if step is not None else set()
    own = [
        one
        for one in visit.calls
        if not (visit.next_step == DEGRADED and one.function_name == redirect and redirect not in declared)
    ]
    ended = visit.next_step.startswith("(")
    return PlayedStep(
        visit.step_name,
        visit.input_data,
        response_text(visit, playbook),
        visit.data,
        None if ended else visit.next_step,
        visit.reason,
        visit.mode,
        visit.fallback,
        tuple(_call(one) for one in own),
    )


def _call(one: FunctionCall) -> PlayedCall:
    args = one.arguments if isinstance(one.arguments, Mapping) else {}
    args = {key: value for key, value in args.items() if key != "source"} if one.kind == "effect" else args
    return PlayedCall(
        one.function_name, args, one.result, one.success, one.error_message, one.step_name, one.kind
    )


# -- the suite ----------------------------------------------------------------------------------------------


def claim(folder: Path) -> EvalSuite | None:
    """The suite of a playbook's folder: its cases are in `evals/` beside its files.

    A playbook that an installed suite of its own name judges is left to that.
    """
    if not folder.is_dir() or not is_playbook(folder):
        return None
    from detent.runtime.installed import offered

    place = PlaybookFolder.at(folder)
    name = read_manifest(place)[0].name
    if name != SUITE and name in {point.name for point in offered(GROUP)}:
        return None
    return EvalSuite(
        name, lambda settings, cases: PlaybookPlayer(settings, folder), (home_of(folder) / CASES).resolve()
    )


def _needs_a_folder(settings: Any, cases: Path) -> Any:
    raise ConfigurationError("Name the playbook whose cases are meant: detent eval DIR")


suite = EvalSuite(SUITE, _needs_a_folder, claim=claim)
