"""The runner: order, repetition, thresholds, and players that misbehave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from detent.authoring.problem import Place, Problem
from detent.evals.case import EvalTestCase, ExpectedOutput
from detent.evals.contracts import Contracts, StepContract, StepEdge
from detent.evals.filter import Filter
from detent.evals.played import Played, PlayedStep, PlayOptions
from detent.evals.reading import BrokenFile
from detent.evals.runner import EvalRunner
from detent.evals.trace import first_difference, trace_of
from detent.insight.visits import FunctionCall
from detent.kernel.errors import ConfigurationError
from tests.evals.lending import CHECK, LendingPlayer

LIKE_LEND = """
scenario_id: {name}
description: d
category: c
{more}
input: {{data: {{request: 'Please lend me "Dune"', {data}}}}}
expected_output: {{status: {status}}}
"""


def text(name: str, *, status: str = "succeeded", data: str = "", more: str = "") -> str:
    return LIKE_LEND.format(name=name, status=status, data=data, more=more)


async def test_the_suite_of_the_desk_passes(cases):
    """W-23, W-55: five repetitions without a model are identical."""
    told = []
    runner = EvalRunner(LendingPlayer(), suite="lending", repeat=5, deterministic=True, jobs=3)
    report = await runner.run(cases(), tell=told.append)
    assert report.ok
    assert (report.counted, report.passed, report.pass_rate) == (20, 20, 100.0)
    assert report.unstable == ()
    assert tuple(told) == report.cases
    assert [case.repeat for case in report.cases[:5]] == [1, 2, 3, 4, 5]


async def test_a_case_that_crashes_its_player_fails_alone_and_names_the_exception(cases):
    more = {"aa_boom": text("aa_boom", data="explode: true")}
    report = await EvalRunner(LendingPlayer(), threshold=50).run(cases(**more))
    first, *rest = report.cases
    assert (first.scenario_id, first.passed) == ("aa_boom", False)
    (failure,) = first.failures
    assert (failure.kind, failure.actual) == ("crash", "RuntimeError: the desk collapsed")
    assert all(case.passed for case in rest)
    assert report.ok


async def test_a_player_that_cannot_play_a_case_says_at_which_step(cases):
    """W-58: a miss fails the case and names the step and the first difference."""
    more = {"miss": text("miss", data="unplayable: true")}
    report = await EvalRunner(LendingPlayer()).run(cases(**more))
    (failure,) = next(case for case in report.cases if case.scenario_id == "miss").failures
    assert (failure.kind, failure.step_name, failure.actual) == ("play", CHECK, "no recorded answer")
    assert failure.hint == "first difference: prompt"


class Odd:
    """A player that gives whatever it is told to."""

    input_keys = ()

    def __init__(self, *plays, contracts=None):
        self.plays = list(plays)
        self.rules = contracts
        self.given: list[PlayOptions] = []

    def contracts(self, case):
        return self.rules

    async def play(self, case, *, orchestrator, options):
        self.given.append(options)
        play = self.plays.pop(0)
        if isinstance(play, BaseException):
            raise play
        return play


def case(name: str = "x", **said) -> EvalTestCase:
    expected = said.pop("expected", ExpectedOutput(status="succeeded"))
    return EvalTestCase(name, "d", "c", expected_output=expected, **said)


DONE = Played(status="succeeded", ms=1.0)


NO_STEP: Any = None


@pytest.mark.parametrize("play", ["nonsense", None, SystemExit(3), Played(steps=(NO_STEP,), ms=1.0)])
async def test_whatever_a_player_gives_the_suite_goes_on(play):
    report = await EvalRunner(Odd(play, DONE)).run([case("a"), case("b")])
    assert [one.passed for one in report.cases] == [False, True]
    assert report.cases[0].failures[0].kind == "crash"


async def test_a_play_that_went_wrong_fails_whatever_the_run_came_to():
    report = await EvalRunner(Odd(replace(DONE, error="no recording"))).run([case()])
    assert [one.kind for one in report.cases[0].failures] == ["play"]


async def test_steps_a_case_names_wrongly_are_failures_when_nobody_checked_before():
    rules = {"01-a": StepContract("01-a", (StepEdge("DONE"),))}
    expected = ExpectedOutput(forbidden_steps=("02",))
    report = await EvalRunner(Odd(DONE, contracts=rules)).run([case(expected=expected)])
    assert [one.kind for one in report.cases[0].failures] == ["reference"]


async def test_results_come_in_case_order_whatever_finishes_first():
    class Slow(Odd):
        """Each case waits for the one after it."""

        def __init__(self, count):
            super().__init__()
            self.done = [asyncio.Event() for _ in range(count + 1)]
            self.done[count].set()
            self.order = []

        async def play(self, case, *, orchestrator, options):
            number = int(case.scenario_id)
            await self.done[number + 1].wait()
            self.order.append(number)
            self.done[number].set()
            return DONE

    player, told = Slow(4), []
    report = await EvalRunner(player, jobs=4).run([case(str(n)) for n in range(4)], tell=told.append)
    assert player.order == [3, 2, 1, 0]
    assert (
        [one.scenario_id for one in told] == [one.scenario_id for one in report.cases] == ["0", "1", "2", "3"]
    )


async def test_no_more_cases_are_played_at_a_time_than_there_are_jobs():
    class Counting(Odd):
        now = most = 0

        async def play(self, case, *, orchestrator, options):
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now -= 1
            return DONE

    player = Counting()
    await EvalRunner(player, jobs=2, repeat=3).run([case(str(n)) for n in range(5)])
    assert player.most == 2


async def test_a_suite_that_is_stopped_leaves_nothing_running():
    started = asyncio.Event()

    class Stuck(Odd):
        begun = ended = 0

        async def play(self, case, *, orchestrator, options):
            self.begun += 1
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1

    player = Stuck()
    running = asyncio.create_task(EvalRunner(player, jobs=2).run([case("a"), case("b"), case("c")]))
    await started.wait()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert player.ended == player.begun >= 1


# -- what counts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "ok"), [(1, True), (2, False)])
async def test_the_threshold_decides(bad, ok):
    """W-57."""
    plays = [Played(status="failed", ms=1.0)] * bad + [DONE] * (100 - bad)
    report = await EvalRunner(Odd(*plays)).run([case(str(n)) for n in range(100)])
    assert report.pass_rate == 100 - bad
    assert report.ok is ok


async def test_a_required_case_must_pass_whatever_the_threshold():
    """W-57."""
    plays = [DONE] * 99 + [Played(status="failed", ms=1.0)]
    cases = [*(case(str(n)) for n in range(99)), case("must", required=True)]
    report = await EvalRunner(Odd(*plays)).run(cases)
    assert report.pass_rate == 99.0
    assert report.required_failed == ("must",)
    assert not report.ok


async def test_a_deprecated_case_is_played_and_shown_and_not_counted():
    plays = [Played(status="failed", ms=1.0), DONE]
    report = await EvalRunner(Odd(*plays)).run([case("old", deprecated="gone"), case("new")])
    assert (report.counted, report.passed, report.ok) == (1, 1, True)
    assert [one.passed for one in report.cases] == [False, True]


async def test_a_report_without_a_counted_case_is_not_ok():
    """W-57."""
    assert not (await EvalRunner(Odd()).run([])).ok
    assert not (await EvalRunner(Odd(DONE)).run([case(deprecated="gone")])).ok


async def test_a_broken_file_counts_as_failed():
    broken = BrokenFile("b.yaml", "b", (Problem("", "unknown key 'x'.", Place("b.yaml", 3)),))
    report = await EvalRunner(Odd(DONE)).run([case()], broken=[broken])
    assert (report.counted, report.passed, report.ok) == (2, 1, False)
    assert report.cases[0].failures[0].actual == "b.yaml:3:1: unknown key 'x'."


async def test_a_case_is_played_only_in_the_modes_it_holds_for(cases):
    report = await EvalRunner(LendingPlayer()).run(cases(), orchestrator="both")
    assert report.ok
    modes = {(one.scenario_id, one.orchestrator) for one in report.cases}
    assert ("lend_001", "legacy") in modes
    assert ("shelf_timeout_001", "step") in modes
    assert ("shelf_timeout_001", "legacy") not in modes
    legacy = next(one for one in report.cases if one.label == "lend_001 [legacy]")
    assert legacy.not_applicable == ("expected_steps", "transitions")


async def test_a_mode_the_player_does_not_know_is_refused():
    with pytest.raises(ConfigurationError, match="cannot be played in legacy mode. It has: step"):
        await EvalRunner(Odd()).run([], orchestrator="legacy")


@pytest.mark.parametrize("wrong", [{"threshold": 0}, {"threshold": 101}, {"jobs": 0}, {"repeat": 0}])
def test_senseless_numbers_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        EvalRunner(Odd(), **wrong)


async def test_options_and_arms_reach_the_player(tmp_path):
    player = Odd(DONE, DONE, DONE, DONE)
    runner = EvalRunner(player, options=PlayOptions(replay=tmp_path), arms=["a", "b"], repeat=2)
    report = await runner.run([case()])
    assert [(one.arm, one.repeat, one.replay) for one in player.given] == [
        ("a", 1, tmp_path), ("a", 2, tmp_path), ("b", 1, tmp_path), ("b", 2, tmp_path),
    ]  # fmt: skip
    assert [one.label for one in report.cases] == ["x [a]", "x [a, #2]", "x [b]", "x [b, #2]"]


# -- traces -------------------------------------------------------------------------------------------------


def played(text: str = "hello", **more) -> Played:
    step = PlayedStep("01-a", output_text=text, next_step="DONE")
    return Played(steps=(step,), status="succeeded", **{"ms": 1.0, **more})


async def test_a_case_with_two_traces_is_unstable_and_fails_only_when_asked():
    """W-55."""
    plays = [played(), played("goodbye"), played()]
    report = await EvalRunner(Odd(*plays), repeat=3).run([case()])
    assert report.unstable == ("x",)
    assert report.ok
    report = await EvalRunner(Odd(*plays), repeat=3, deterministic=True, threshold=10).run([case()])
    assert not report.ok
    assert [one.passed for one in report.cases] == [True, False, True]
    (failure,) = report.cases[1].failures
    assert (failure.kind, failure.step_name, failure.position) == ("unstable", "01-a", 1)
    assert (failure.expected, failure.actual) == ("said hello", "said goodbye")


async def test_a_case_that_crashes_once_is_unstable():
    report = await EvalRunner(Odd(played(), RuntimeError("no")), repeat=2).run([case()])
    assert report.unstable == ("x",)


@pytest.mark.parametrize(
    "other",
    [
        played(ms=99.0),
        played("hello", run_id="r2"),
        played("hello at 2026-03-10T08:15:01Z"),
        played("hello 0f3c9a1b22d4"),
        played("hello <a.b@c.example>"),
        played("hello 12.5 ms"),
    ],
)
def test_times_and_ids_are_no_part_of_a_trace(other):
    same = {
        "hello": "hello",
        "hello at 2026-03-10T08:15:01Z": "hello at 2027-01-01T00:00:00Z",
        "hello 0f3c9a1b22d4": "hello a1b2c3d4e5f6",
        "hello <a.b@c.example>": "hello <x@y.example>",
        "hello 12.5 ms": "hello 7 ms",
    }[other.steps[0].output_text]
    assert trace_of(other) == trace_of(played(same, run_id="r1"))


@pytest.mark.parametrize(
    "other",
    [
        played("hallo"),
        played(flags=("f",)),
        played(end="DONE"),
        played(calls=(FunctionCall("f", {}),)),
        played(calls=(FunctionCall("f", {"x": 1}),)),
        played(artifacts={"letters": ({"to": "a", "body": "b"},)}),
        played(artifacts={"slips": ({"ticket_id": "TKT-1"},)}),
        played("covered until 2027-05-31"),
        replace(played(), steps=(replace(played().steps[0], reason="why"),)),
        replace(played(), steps=(replace(played().steps[0], fallback="timeout"),)),
    ],
)
def test_everything_else_is(other):
    assert trace_of(other) != trace_of(played())
    place, one, another = first_difference(trace_of(played()), trace_of(other))
    assert place
    assert one != another


def test_fields_of_calls_that_are_times_or_ids_are_left_out():
    one = FunctionCall(
        "f", {"x": 1}, {"ticket_id": "T-1", "created_at": "now", "message_id": "m1", "took_ms": 3}
    )
    two = FunctionCall(
        "f", {"x": 1}, {"ticket_id": "T-1", "created_at": "then", "message_id": "m2", "took_ms": 4}
    )
    three = FunctionCall("f", {"x": 1}, {"ticket_id": "T-2"})
    assert trace_of(Played(calls=(one,))) == trace_of(Played(calls=(two,)))
    assert trace_of(Played(calls=(one,))) != trace_of(Played(calls=(three,)))


# -- picking ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Filter(), ["lend_001", "lent_out_001", "no_title_001", "shelf_timeout_001"]),
        (Filter(scenario="LEN"), ["lend_001", "lent_out_001"]),
        (Filter(categories=("waiting",)), ["lent_out_001", "no_title_001"]),
        (Filter(tags=("faults", "en")), ["lend_001", "shelf_timeout_001"]),
        (Filter(steps=("02",)), ["lend_001", "lent_out_001", "shelf_timeout_001"]),
        (Filter(steps=("04", "ask-title")), ["no_title_001", "shelf_timeout_001"]),
        (Filter(steps=("99",)), []),
        (Filter(failed=("lend_001",)), ["lend_001"]),
        (Filter(failed=()), []),
        (Filter(scenario="le", categories=("waiting",)), ["lent_out_001", "no_title_001"]),
    ],
)
def test_cases_are_picked(cases, player, wanted, ids):
    assert [one.scenario_id for one in wanted.pick(cases(), player)] == ids


def test_a_case_is_found_by_its_subject():
    mail = case("x", input={"email": {"subject": "Label printer"}})
    assert Filter(scenario="printer").pick([mail, case("y")], Odd()) == [mail]


def test_contracts_may_come_as_a_bare_mapping():
    rules = Contracts.of({"a": StepContract("a", (StepEdge("b"), StepEdge("END"))), "b": StepContract("b")})
    assert rules.ends == {"END"}
