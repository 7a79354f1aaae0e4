"""Plays cases on an engine, each on its own store, and folds the journal into a `Played`.

It plays any flow of any application. What differs between them is a `Subject`: the contracts of its steps,
how a case becomes a flow with something to do, and the artifacts a run leaves. Which store, which scripted
agent and which kind of recording are used is decided where the player is put together (`Parts`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from detent.dispatch.autonomy import StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.executor import ExecutorSource, StepExecutor
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.journal_reader import read
from detent.engine.ports import Store, Tape, TapeError
from detent.engine.tools import Tool
from detent.evals.answers import AnswerRecord, Fate
from detent.evals.artifacts import Artifacts
from detent.evals.case import STEP, EvalTestCase
from detent.evals.contracts import Contracts, UnknownStep
from detent.evals.plans import Answered, Plans, script_of
from detent.evals.played import Intake, Played, PlayedStep, PlayFailed, PlayOptions
from detent.evals.reading import INPUT_KEYS
from detent.insight.visits import AgentAnswer, FunctionCall, StepVisit, blobs_of, visits
from detent.kernel.entries import Entry
from detent.kernel.errors import ConfigurationError, DefinitionError, DetentError
from detent.kernel.plain import canonical, decode
from detent.kernel.run import Run
from detent.kernel.status import Status

SCRIPTED = "case"
"""Provider of the steps whose replies are in the case."""
GIVEN_TO_AN_AGENT = StepConfig.read({"mode": "agent", "autonomy": "approver"}, where="agent_replies")
"""How a step with scripted replies is performed unless the case configures it."""


# -- the subject --------------------------------------------------------------------------------------------


class Setup(NamedTuple):
    """What a session is made with."""

    folder: Path
    """The case's own folder; deleted after the play."""
    mode: str
    arm: str | None
    wrap: Callable[[Tool], Tool]
    """Wraps a tool so that it gives the planned faults and answers."""
    agents: tuple[str, ...]
    """Steps that agents perform."""


class Delivered(NamedTuple):
    """The result of delivering a case."""

    run: Run | None
    """None when intake decided that nothing runs."""
    intake: Intake | None = None
    ms: float | None = None
    """How long it took; None has the player measure it."""


class Session:
    """One case, ready to be played: its flow and input. By default the run starts with `input.data`."""

    def __init__(self, flow: Flow, case: EvalTestCase, tools: Sequence[Tool] | None = None) -> None:
        self.flow = flow
        self.case = case
        self.tools = list(flow.tools) if tools is None else tools

    async def deliver(self, engine: Engine) -> Delivered:
        """Start the run of the case and wait for its end."""
        data, start = self.case.input.get("data") or {}, self.case.input.get("start_step")
        # The same id each time: keys of effects depend on it, and recordings must fit.
        run_id = f"eval-{self.case.scenario_id}"
        return Delivered(await engine.run(self.flow, data, at=start, run_id=run_id))

    def text(self, visit: StepVisit) -> str:
        """The output of a step, in the form that cases check."""
        lines = [f"{key.upper()}: {value}" for key, value in visit.changes.items() if isinstance(value, str)]
        lines += [f"CALL: {call.function_name} {canonical(call.arguments)}" for call in visit.calls]
        return "\n".join([*lines, f"NEXT_STEP: {visit.next_step}"])

    def own_calls(self, visit: StepVisit) -> Sequence[FunctionCall]:
        """The calls that are checked as the step's own."""
        return visit.calls

    async def finished(self, played: Played, engine: Engine, run: Run | None) -> Played:
        """The result, with what only the application can add, such as artifacts."""
        return played


class Subject(Protocol):
    """A flow or an application whose cases are played.

    May also have: `orchestrators` (modes other than `step`), `usual_orchestrator`, `artifacts` (kinds of
    artifacts), `arms`, `arm_steps(arm)` (who performs which step in an arm), `answered` (planned answers in
    the functions' own form) and `planned(case)` (the case with its plans in the standard form).
    """

    @property
    def flow(self) -> str:
        """Name of the flow under test."""
        ...

    @property
    def input_keys(self) -> Mapping[str, type]:
        """Keys of `input` beyond the standard ones, each with its type."""
        ...

    def contracts(self, case: EvalTestCase) -> Contracts:
        """How the steps of this case may follow each other."""
        ...

    def session(self, case: EvalTestCase, setup: Setup) -> Session:
        """Prepare a case to be played."""
        ...


# -- what it is played with ---------------------------------------------------------------------------------


class CaseTape(Tape, Protocol):
    """A tape for one play."""

    @property
    def mismatches(self) -> Sequence[TapeError]:
        """Requests that are not on the tape."""
        ...

    def close(self) -> None:
        """Finish it."""
        ...


class Parts(Protocol):
    """The concrete things plays are made of."""

    def store(self) -> Store:
        """A new, empty store."""
        ...

    def script(self, replies: Mapping[str, Any]) -> StepExecutor:
        """An agent that gives these replies; `DefinitionError` for a script that is wrong."""
        ...

    def recorder(self, path: Path) -> CaseTape:
        """A tape that writes a recording and replaces an existing one."""
        ...

    def playback(self, path: Path) -> CaseTape:
        """A tape that answers from a recording."""
        ...


@dataclass(frozen=True, slots=True)
class _Agents:
    """The executors of one case: its script beside the project's own."""

    script: StepExecutor | None
    project: ExecutorSource | None

    @property
    def default(self) -> str | None:
        """The project's own provider."""
        return self.project.default if self.project is not None else None

    def make(self, provider: str) -> StepExecutor:
        """The script for its provider, otherwise the project's executor."""
        if provider == SCRIPTED and self.script is not None:
            return self.script
        if self.project is None:
            raise ConfigurationError(f"There is no executor '{provider}'.")
        return self.project.make(provider)

    async def close(self) -> None:
        """The project's models are shared by all cases; the player closes them."""


# -- the player ---------------------------------------------------------------------------------------------


class FlowPlayer:
    """Plays the cases of one subject."""

    def __init__(
        self,
        subject: Subject,
        parts: Parts,
        *,
        dispatch: DispatchSettings | None = None,
        suite: str | None = None,
    ) -> None:
        """`dispatch` configures which agents perform which steps; `suite` is its name in commands.

        Raises:
            ConfigurationError: a step is performed by a model whose id is not pinned.
        """
        self.subject = subject
        self.dispatch = dispatch or DispatchSettings()
        self.input_keys = {**INPUT_KEYS, **subject.input_keys}
        self.orchestrators: tuple[str, ...] = (STEP, *getattr(subject, "orchestrators", ()))
        self.usual_orchestrator: str = getattr(subject, "usual_orchestrator", STEP)
        self.artifacts: Sequence[Artifacts] = tuple(getattr(subject, "artifacts", ()))
        self.arms: Sequence[str] = tuple(getattr(subject, "arms", ()))
        self._parts = parts
        self._suite = suite or subject.flow
        self._check_models()

    def _check_models(self) -> None:
        for name, step in self.dispatch.steps.items():
            by_model = step.mode is StepMode.AGENT and self.dispatch.executors is not None
            provider = step.provider or self.dispatch.model.provider
            if by_model and provider is not None and self._model_of(step) is None:
                raise ConfigurationError(
                    f"Step '{name}' asks a model of provider '{provider}', and nothing says which. Cases are "
                    f"played with a pinned one: say model.model_id, or steps.{name}.model_id."
                )

    def _model_of(self, step: StepConfig) -> str | None:
        """The model that a step asks: its own, the usual one, or that of its provider's entry."""
        provider = step.provider or self.dispatch.model.provider
        entry = getattr(self.dispatch.executors, "provider", None)  # a source of the tests' own has none
        usual = None if provider is None or entry is None else entry(provider).model_id
        return step.model_id or self.dispatch.model.model_id or usual

    @property
    def model(self) -> str | None:
        """Id of the model in use; None when no step is performed by a model."""
        ids = [self._model_of(step) for step in self.dispatch.steps.values() if step.mode is StepMode.AGENT]
        return ", ".join(dict.fromkeys(model_id for model_id in ids if model_id is not None)) or None

    def contracts(self, case: EvalTestCase) -> Contracts:
        """How the steps of a case may follow each other."""
        return self.subject.contracts(case)

    async def close(self) -> None:
        """Close the project's models."""
        if self.dispatch.executors is not None:
            await self.dispatch.executors.close()

    async def play(self, case: EvalTestCase, *, orchestrator: str, options: PlayOptions) -> Played:
        """Play a case once.

        Raises:
            PlayFailed: the case cannot be played as it is written.
        """
        try:
            tape = self._tape(case, options)
            with (
                closing(tape) if tape is not None else nullcontext(),
                tempfile.TemporaryDirectory(prefix="detent-case-") as folder,
            ):
                played = await self._play(case, Path(folder), orchestrator, options.arm, tape)
            if tape is not None and tape.mismatches:
                raise tape.mismatches[0]
        except TapeError as error:
            raise self._mismatch_error(error, options) from error
        except PlayFailed:
            raise
        except DetentError as error:
            raise PlayFailed(str(error)) from error
        return played

    async def _play(
        self, case: EvalTestCase, folder: Path, mode: str, arm: str | None, tape: CaseTape | None
    ) -> Played:
        contracts = self.contracts(case)
        planned = getattr(self.subject, "planned", None)
        answered: Answered | None = getattr(self.subject, "answered", None)
        plans = Plans(planned(case) if planned is not None else case, answered)
        dispatch = self._dispatch(case, contracts, arm)
        setup = Setup(folder, mode, arm, plans.around, self._agents(dispatch))
        session = self.subject.session(case, setup)
        plans.check([tool.name for tool in session.tools])
        async with Engine(self._parts.store(), [session.flow], dispatch=dispatch, tape=tape) as engine:
            began = time.perf_counter()
            run, intake, ms = await session.deliver(engine)
            ms = (time.perf_counter() - began) * 1000 if ms is None else ms
            played = Played(intake=intake, ms=ms)
            if run is not None:
                scripted = {_step(contracts, name) for name in case.input.get("agent_replies") or ()}
                played = await fold(engine.store, run, session, contracts, scripted)
                played = replace(played, intake=intake, ms=ms)
            return await session.finished(played, engine, run)

    # -- who performs the steps -----------------------------------------------------------------------------

    def _dispatch(self, case: EvalTestCase, contracts: Contracts, arm: str | None) -> DispatchSettings:
        """Who performs the steps: the case's configuration over the arm's over the project's."""
        steps = dict(self.dispatch.steps)
        of_arm: Mapping[str, Any] = getattr(self.subject, "arm_steps", lambda arm: {})(arm) if arm else {}
        # A case with its own steps need not have the step that an arm configures.
        of_arm = {name: config for name, config in of_arm.items() if name in contracts.steps}
        own = {_step(contracts, name): config for name, config in (case.input.get("steps") or {}).items()}
        for name, config in (*of_arm.items(), *own.items()):
            steps[f"{self.subject.flow}/{name}"] = StepConfig.read(config, where=f"input.steps.{name}")
        replies = case.input.get("agent_replies") or {}
        script = {_step(contracts, name): step_replies for name, step_replies in script_of(replies).items()}
        for name in script:
            key = f"{self.subject.flow}/{name}"
            steps[key] = replace(steps.get(key) or steps.get(name) or GIVEN_TO_AN_AGENT, provider=SCRIPTED)
        agents = _Agents(self._script(script), self.dispatch.executors)
        return replace(self.dispatch, steps=steps, executors=agents)

    def _script(self, replies: Mapping[str, Any]) -> StepExecutor | None:
        try:
            return self._parts.script(replies) if replies else None
        except DefinitionError as error:
            raise PlayFailed(f"input.agent_replies: {' '.join(map(str, error.problems))}") from None

    def _agents(self, dispatch: DispatchSettings) -> tuple[str, ...]:
        named = [(name.rpartition("/"), config) for name, config in dispatch.steps.items()]
        return tuple(
            dict.fromkeys(
                step
                for (flow, _, step), config in named
                if config.mode is StepMode.AGENT and flow in ("", self.subject.flow)
            )
        )

    # -- recordings -----------------------------------------------------------------------------------------

    def _tape(self, case: EvalTestCase, options: PlayOptions) -> CaseTape | None:
        name = case.scenario_id if options.arm is None else f"{case.scenario_id}.{options.arm}"
        own = f"{name}.{options.repeat}.jsonl" if options.repeat > 1 else f"{name}.jsonl"
        if options.record is not None:
            return self._parts.recorder(options.record / own)
        if options.replay is None:
            return None
        recordings = [file for file in (own, f"{name}.jsonl") if (options.replay / file).is_file()]
        if not recordings:
            raise PlayFailed(f"There is no recording {name}.jsonl.", hint=self._record_hint(options))
        try:
            return self._parts.playback(options.replay / recordings[0])
        except ConfigurationError as error:
            raise PlayFailed(str(error), hint=self._record_hint(options)) from None

    def _mismatch_error(self, error: TapeError, options: PlayOptions) -> PlayFailed:
        path, mismatch = getattr(error, "path", None), getattr(error, "what", str(error))
        message = f"{path.name}: {mismatch}" if isinstance(path, Path) else mismatch
        return PlayFailed(
            message, step_name=getattr(error, "step", None) or None, hint=self._record_hint(options)
        )

    def _record_hint(self, options: PlayOptions) -> str:
        folder = options.replay or options.record
        return (
            f"if what is asked has changed, record it anew with the same model: detent eval {self._suite} "
            f"--record {folder.name if folder is not None else 'DIR'}"
        )


# -- what happened ------------------------------------------------------------------------------------------


async def fold(
    store: Store, run: Run, session: Session, contracts: Contracts, scripted: Collection[str] = ()
) -> Played:
    """Fold the journal of a run into a `Played`. The answers of `scripted` steps are the case's own."""
    entries = [entry async for entry in read(store, run.id)]
    needs = {name: step.needs for name, step in contracts.steps.items()}
    step_visits = visits(entries, needs=needs, blobs=await blobs_of(store, entries))
    steps = tuple([await _played_step(store, visit, session, scripted) for visit in step_visits])
    used = steps[-1].step_name if steps and run.status is Status.SUCCEEDED else "error"
    flags = run.data.get("flags")
    return Played(
        steps=steps,
        calls=tuple(call for visit in step_visits for call in visit.calls),
        status=run.status.value,
        end=run.state if run.state in contracts.ends | contracts.always else None,
        reason=run.reason,
        flags=tuple(map(str, flags)) if isinstance(flags, list) else (),
        context=await _loaded(store, run.data),
        start_data=await _loaded(store, _start(entries)),
        scenario_used=f"steps:{used}",
        spend=run.total_spend,
        run_id=run.id,
    )


async def _played_step(
    store: Store, visit: StepVisit, session: Session, scripted: Collection[str]
) -> PlayedStep:
    visit = replace(visit, changes=await _loaded(store, visit.changes))
    ended = visit.next_step.startswith("(")  # the run ended in this step
    return PlayedStep(
        visit.step_name,
        visit.input_data,
        session.text(visit),
        await _loaded(store, visit.data),
        None if ended else visit.next_step,
        visit.reason,
        visit.mode,
        visit.fallback,
        tuple(session.own_calls(visit)),
        tuple(_record(answer, answer.step_name in scripted) for answer in visit.answers),
    )


def _record(answer: AgentAnswer, scripted: bool) -> AnswerRecord:
    if answer.kept:
        fate = Fate.KEPT
    elif not answer.asked:
        fate = Fate.NOT_ASKED
    else:
        fate = Fate.FAILED if answer.fallback is None else Fate.REPLACED
    return AnswerRecord(answer.step_name, fate, answer.fallback, scripted)


async def _loaded(store: Store, data: Mapping[str, Any]) -> dict[str, Any]:
    """Data with offloaded values loaded."""
    whole: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and set(value) == {"$blob", "size"}:
            raw = await store.blob(value["$blob"])
            whole[key] = None if raw is None else decode(raw)
        else:
            whole[key] = value
    return whole


def _start(entries: Sequence[Entry]) -> dict[str, Any]:
    """The data at the first step."""
    run = Run("")
    run.apply(entries[0])
    return dict(run.data)


def _step(contracts: Contracts, name: str) -> str:
    try:
        return contracts.resolve(name)
    except UnknownStep as error:
        raise PlayFailed(str(error)) from None
