"""Plays cases and judges the results. A player that raises fails its case; the suite goes on to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from detent.evals.case import STEP, EvalTestCase, ExpectedOutput
from detent.evals.contracts import Contracts
from detent.evals.expect import NONE, validate_function_calls, validate_step_sequence
from detent.evals.failure import StepFailure
from detent.evals.outcome import MULTI_STEP, validate_outcome, validate_time
from detent.evals.plans import OK, listed
from detent.evals.played import (
    Played,
    Player,
    PlayFailed,
    PlayOptions,
    artifacts_of,
    model_of,
    orchestrators_of,
)
from detent.evals.reading import BrokenFile
from detent.evals.references import resolve
from detent.evals.report import THRESHOLD, CaseResult, EvalReport, StepRecord
from detent.evals.trace import Trace, first_difference, trace_of
from detent.evals.transitions import validate_step_transitions
from detent.kernel.errors import ConfigurationError

BOTH = "both"
UNREADABLE = "unreadable"
"""Category and status of a file that is not a case."""
Listener = Callable[[CaseResult], None]
"""Called with each result, in the order of the cases."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One case in one mode and arm."""

    case: EvalTestCase
    orchestrator: str
    arm: str | None


@dataclass(frozen=True, slots=True)
class _Play:
    """One repetition of a task, judged."""

    result: CaseResult
    trace: Trace | None


class EvalRunner:
    """Plays cases with one player and judges them."""

    def __init__(
        self,
        player: Player,
        *,
        suite: str = "suite",
        threshold: float = THRESHOLD,
        jobs: int = 1,
        repeat: int = 1,
        deterministic: bool = False,
        options: PlayOptions | None = None,
        arms: Sequence[str] = (),
        min_kept: float | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        if not 0 < threshold <= 100:
            raise ConfigurationError(f"The threshold is {threshold:g}; it must be above 0 and at most 100.")
        if min_kept is not None and not 0 < min_kept <= 1:
            raise ConfigurationError(f"min_kept is {min_kept:g}; it must be above 0 and at most 1.")
        for name, number in (("jobs", jobs), ("repeat", repeat)):
            if number < 1:
                raise ConfigurationError(f"{name} is {number}; at least 1 is needed.")
        self.player = player
        self.suite = suite
        self.threshold = threshold
        self.jobs = jobs
        self.repeat = repeat
        self.deterministic = deterministic
        self.options = options or PlayOptions()
        self.arms = tuple(dict.fromkeys(arms))
        self.min_kept = min_kept
        self._now = now or (lambda: datetime.now(UTC))

    # -- playing --------------------------------------------------------------------------------------------

    async def run(
        self,
        cases: Iterable[EvalTestCase],
        *,
        orchestrator: str = STEP,
        broken: Iterable[BrokenFile] = (),
        tell: Listener | None = None,
    ) -> EvalReport:
        """Play the cases and judge them. `broken` files count as failed; results come in case order."""
        started = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        modes = self._modes(orchestrator)
        selected = list(cases)
        tasks = [
            _Task(case, mode, arm)
            for arm in (self.arms or (None,))
            for mode in modes
            for case in cases_in(selected, mode)
        ]
        results: list[CaseResult] = []
        unstable: list[str] = []
        say = tell or (lambda result: None)
        for file in broken:
            results.append(_broken(file, modes[0]))
            say(results[-1])
        slots = asyncio.Semaphore(self.jobs)
        under_way = [
            [asyncio.create_task(self._play(task, number, slots)) for number in range(1, self.repeat + 1)]
            for task in tasks
        ]
        try:
            for task, repeats in zip(tasks, under_way, strict=True):
                plays = [await play for play in repeats]
                judged, differing = self._compare_repetitions(plays)
                if differing:
                    unstable.append(task.case.scenario_id)
                for result in judged:
                    results.append(result)
                    say(result)
        finally:
            left = [play for repeats in under_way for play in repeats if not play.done()]
            for play in left:
                play.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        return EvalReport(
            self.suite, started, orchestrator, model_of(self.player), self.threshold, tuple(results),
            tuple(dict.fromkeys(unstable)), self.deterministic, self.arms, self.min_kept,
        )  # fmt: skip

    def _modes(self, orchestrator: str) -> tuple[str, ...]:
        known = orchestrators_of(self.player)
        if orchestrator == BOTH:
            return known
        if orchestrator not in known:
            raise ConfigurationError(
                f"Suite '{self.suite}' cannot be played in {orchestrator} mode. It has: {', '.join(known)}."
            )
        return (orchestrator,)

    async def _play(self, task: _Task, number: int, slots: asyncio.Semaphore) -> _Play:
        """Play a case once and judge it; every error is a failure of this case."""
        case, mode = task.case, task.orchestrator
        async with slots:
            options = replace(self.options, arm=task.arm, repeat=number)
            begun = time.perf_counter()
            try:
                played = await self.player.play(case, orchestrator=mode, options=options)
                if not isinstance(played, Played):
                    raise TypeError(f"the player gave a {type(played).__name__}, not what was played")
            except (Exception, SystemExit) as error:
                ms = (time.perf_counter() - begun) * 1000
                return _Play(_result(task, number, Played(ms=ms), [_error_failure(case, error)]), None)
        if played.ms is None:
            played = replace(played, ms=(time.perf_counter() - begun) * 1000)
        try:
            failures = self.validate_output(case, played, orchestrator=mode)
            trace = trace_of(played)
            return _Play(_result(task, number, played, failures), trace)
        except Exception as error:  # the player's result cannot be read
            return _Play(_result(task, number, Played(ms=played.ms), [_error_failure(case, error)]), None)

    def _compare_repetitions(self, plays: Sequence[_Play]) -> tuple[list[CaseResult], bool]:
        """The results of one case's repetitions. If they must be equal, those unlike the first fail."""
        first = next((play.trace for play in plays if play.trace is not None), None)
        results: list[CaseResult] = []
        differing = False
        for play in plays:
            result = play.result
            if first is not None and play.trace is not None and play.trace != first:
                differing = True
                if self.deterministic:
                    result = replace(
                        result,
                        passed=False,
                        failures=(*result.failures, _unstable_failure(result, first, play.trace)),
                    )
            elif play.trace is None and first is not None:
                differing = True  # it crashed in some repetitions only
            results.append(result)
        return results, differing

    # -- judging --------------------------------------------------------------------------------------------

    def validate_output(
        self, case: EvalTestCase, played: Played, *, orchestrator: str = STEP
    ) -> list[StepFailure]:
        """Every expectation that was not met: sequence, transitions, calls, older fields, time."""
        expected = case.expected_output.under(orchestrator)
        name = case.scenario_id
        failures: list[StepFailure] = []
        contracts: Contracts | None = None
        if orchestrator == STEP:
            declared = self.player.contracts(case)
            contracts = Contracts.of(declared) if declared is not None else None
        if contracts is not None:
            case, wrong = resolve(case, contracts)
            expected = case.expected_output
            failures += [
                StepFailure(
                    name, None, None, "reference", "a step", problem.message, f"line {problem.place.line}"
                )
                for problem in wrong
            ]
        if played.error is not None:
            failures.append(StepFailure(name, None, None, "play", "the case as it is written", played.error))
        if orchestrator == STEP:
            failures += validate_step_sequence(
                expected.expected_steps,
                (*played.skipped, *played.steps),
                scenario_id=name,
                contracts=contracts,
            )[1]
            if contracts is not None:
                failures += validate_step_transitions(
                    (*played.skipped, *played.steps), played.context, contracts=contracts, scenario_id=name,
                    allow_missing=expected.allow_missing, start_data=played.start_data, end=played.end,
                )[1]  # fmt: skip
                failures += _unexpected_end(name, expected, played, contracts)
        failures += validate_function_calls(
            expected.expected_function_calls, played.calls, scenario_id=name,
            planned=planned_failures(case), forbidden=expected.forbidden_calls or (),
        )[1]  # fmt: skip
        failures += validate_outcome(
            expected, played, scenario_id=name, contracts=contracts, steps=orchestrator == STEP,
            artifacts=artifacts_of(self.player),
        )[1]  # fmt: skip
        failures += validate_time(expected.processing_time_ms, played.ms, scenario_id=name)[1]
        return failures


def _unexpected_end(
    name: str, expected: ExpectedOutput, played: Played, contracts: Contracts
) -> list[StepFailure]:
    """A failure for a run that the engine ended, when the case has no expectation about the end."""
    stated = any(value is not None for value in (expected.status, expected.end, expected.reason))
    if stated or not played.steps or played.end not in contracts.always:
        return []
    last = played.steps[-1]
    contract = contracts.steps.get(last.step_name)
    if contract is not None and last.next_step in [edge.to for edge in contract.edges]:
        return []
    hint = f"expect its status, end or reason if it should; reason: {played.reason or NONE}"
    return [StepFailure(name, len(played.steps), last.step_name, "end", "a declared end", played.end, hint)]


def cases_in(cases: Iterable[EvalTestCase], mode: str) -> list[EvalTestCase]:
    """The cases that hold for a mode."""
    return [case for case in cases if case.holds_for(mode)]


def planned_failures(case: EvalTestCase) -> frozenset[str]:
    """Functions that a case makes fail: by `failures`, or by a mocked answer that is an error."""
    failures = case.input.get("failures") or {}
    planned = {function for function, words in failures.items() if any(word != OK for word in listed(words))}
    for function, answers in (case.input.get("mock_function_responses") or {}).items():
        if any(isinstance(answer, Mapping) and answer.get("error") for answer in listed(answers)):
            planned.add(function)
    return frozenset(planned)


def _result(task: _Task, number: int, played: Played, failures: Sequence[StepFailure]) -> CaseResult:
    case = task.case
    return CaseResult(
        case.scenario_id,
        case.category,
        case.file,
        not failures,
        round(played.ms or 0.0, 3),
        tuple(step.step_name for step in played.steps),
        played.status,
        played.end,
        tuple(call.function_name for call in played.calls),
        played.spend,
        tuple(failures),
        number,
        task.orchestrator,
        task.arm,
        case.required,
        case.deprecated,
        _not_applicable(case, task.orchestrator),
        tuple(
            StepRecord(
                step.step_name, step.output_text, step.next_step, step.reason, step.mode, step.fallback
            )
            for step in played.steps
        ),
        played.run_id,
        played.answers,
        tuple(step.step_name for step in played.skipped),
    )


def _not_applicable(case: EvalTestCase, mode: str) -> tuple[str, ...]:
    """The step checks, in a mode without steps."""
    if mode == STEP:
        return ()
    expected = case.expected_output.under(mode)
    left = [
        name
        for name in ("expected_steps", "forbidden_steps", "fallbacks")
        if getattr(expected, name) is not None
    ]
    if expected.scenario_instruction_used == MULTI_STEP:
        left.append("scenario_instruction_used")
    return (*left, "transitions")


def _error_failure(case: EvalTestCase, error: BaseException) -> StepFailure:
    text = " ".join(str(error).split())
    if isinstance(error, PlayFailed):
        expected = "the case as it is written"
        return StepFailure(case.scenario_id, None, error.step_name, "play", expected, text, error.hint)
    sentence = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return StepFailure(case.scenario_id, None, None, "crash", "what was played", sentence)


def _unstable_failure(result: CaseResult, first: Trace, other: Trace) -> StepFailure:
    place, line, another = first_difference(first, other)
    position: Any = result.path.index(place) + 1 if place in result.path else None
    step = place if position is not None else None
    hint = f"differs at {place} from the first of its repetitions"
    return StepFailure(result.scenario_id, position, step, "unstable", line, another, hint)


def _broken(file: BrokenFile, mode: str) -> CaseResult:
    failures = tuple(
        StepFailure(file.scenario_id, None, None, "file", "a case", str(problem)) for problem in file.problems
    )
    return CaseResult(
        file.scenario_id,
        UNREADABLE,
        file.file,
        False,
        status=UNREADABLE,
        failures=failures,
        orchestrator=mode,
    )
