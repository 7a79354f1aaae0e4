"""Ways through the table, taken by parts that really plan, write and judge."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from detent.engine.outcome import Effect
from detent.engine.tools import Tool, ToolError
from detent.flows.refine import decisions
from detent.flows.refine.evaluation import CategoryScore, Evaluation, Issue, Rubric, ValidationReport
from detent.flows.refine.loop import refine_loop
from detent.flows.refine.part import Part, Rejected, show_progress
from detent.flows.refine.result import result_of
from detent.flows.refine.run import refine
from detent.kernel.entries import EffectBegun, Moved
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import encode
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.engine.conftest import journal
from tests.flows.refine.samples import RUBRIC, WORDS, Writer, reasons, refined, states

STRAIGHT = ["initialized", "planning", "validating", "implementing", "judging", "succeeded"]


class TestWaysThroughTheTable:
    async def test_a_passing_plan_goes_straight_through(self, bench):
        """R-18, R-26: without reasons and without tokens."""
        engine = await bench.engine(Writer().flow())
        result = await refined(engine)
        assert await states(engine, result.run_id) == STRAIGHT
        assert await reasons(engine, result.run_id) == [None] * 5
        assert (result.status, result.final_state, result.iterations) == ("success", "succeeded", 1)
        assert result.implementation == {"text": "calm loud bright dark"}
        assert result.attempts[0].executors == dict.fromkeys(
            ("plan", "validate", "implement", "judge"), "code"
        )

    async def test_errors_lead_back_to_planning_with_text_and_structure(self, bench):
        """R-20"""
        writer = Writer(plans=[["nois"], WORDS])
        engine = await bench.engine(writer.flow())
        result = await refined(engine)
        assert (await states(engine, result.run_id))[1:5] == [
            "planning", "validating", "planning", "validating"
        ]  # fmt: skip
        assert (await reasons(engine, result.run_id))[2] == "Validation failed, retrying with feedback"
        _, (_, (feedback,), previous) = [call for call in writer.asked if call[0] == "plan"][1]
        assert (feedback.type, feedback.iteration) == ("validation_failure", 1)
        assert feedback.content == "- [error] word, section \"nois\": unknown word 'nois'"
        assert feedback.metadata["issues"][0]["rule"] == "word"
        assert (previous.plan, previous.implementation) == ({"words": ["nois"]}, None)
        assert (result.status, result.iterations, result.best_iteration) == ("success", 2, 2)

    async def test_a_soft_failure_refines_the_same_plan(self, bench):
        """R-21: the implementer gets the feedback and the previous attempt, the planner is not asked."""
        writer = Writer(times=[2, 1])
        engine = await bench.engine(writer.flow())
        result = await refined(engine)
        assert (await states(engine, result.run_id))[4:] == [
            "judging", "implementing", "judging", "succeeded"
        ]  # fmt: skip
        assert (await reasons(engine, result.run_id))[4] == "Soft failure, refining implementation"
        assert writer.count("plan") == 1
        (_, first), (_, second) = [call for call in writer.asked if call[0] == "implement"]
        assert first[2:] == ([], None)
        (feedback,) = second[2]
        assert feedback.type == "judge_soft_failure"
        assert feedback.metadata["failing"][0]["weaknesses"] == [
            {"section": "calm", "text": "words are repeated"}
        ]
        assert second[3].implementation["text"].startswith("calm calm")
        assert [attempt.refined for attempt in result.attempts] == [False, True]
        assert result.attempts[1].plan == {"words": WORDS}

    async def test_a_hard_failure_plans_anew(self, bench):
        """R-21"""
        writer = Writer(plans=[WORDS[:1], WORDS])
        engine = await bench.engine(writer.flow())
        result = await refined(engine)
        assert (await reasons(engine, result.run_id))[4] == "Hard failure, replanning"
        _, (_, (feedback,), previous) = [call for call in writer.asked if call[0] == "plan"][1]
        assert (feedback.type, previous.evaluation.overall_score) == ("judge_hard_failure", 62.5)
        assert result.status == "success"

    async def test_soft_feedback_is_forgotten_with_its_plan(self, bench):
        """A replan clears it: the next implementer sees nothing of the old plan."""
        writer = Writer(plans=[WORDS, WORDS], times=[2, 2, 1])
        engine = await bench.engine(writer.flow(max_iterations=4))
        result = await refined(engine)
        assert (await reasons(engine, result.run_id))[6] == "Hard failure, replanning"  # it gained nothing
        last = [call for name, call in writer.asked if name == "implement"][-1]
        assert last[2:] == ([], None)
        assert result.status == "success"

    @pytest.mark.parametrize(
        ("writer", "plans", "implementations"),
        [
            (Writer(plans=[["x"]]), 3, 0),
            (Writer(times=[4, 3, 2]), 1, 3),
            (Writer(plans=[["x"], WORDS], times=[4, 3]), 2, 2),
        ],
        ids=["never valid", "never good", "both"],
    )
    async def test_three_attempts_are_all(self, quick, writer, plans, implementations):
        """R-24: in any mixture, and each that has an implementation is judged."""
        engine = await quick.engine(writer.flow())
        result = await refined(engine)
        assert (result.status, result.final_state, result.reason) == (
            "incomplete", "failed", "max_iterations"
        )  # fmt: skip
        assert (writer.count("plan"), writer.count("implement")) == (plans, implementations)
        assert writer.count("judge") == implementations
        assert result.iterations == len(result.attempts) == 3

    async def test_the_best_attempt_is_returned_and_not_the_last(self, bench):
        """R-25, R-64"""
        engine = await bench.engine(Writer(times=[2, 6, 9]).flow())
        result = await refined(engine)
        assert (result.status, result.best_iteration) == ("incomplete", 1)
        assert result.implementation["text"].split().count("calm") == 2
        assert result.evaluation.overall_score == result.attempts[0].evaluation.overall_score

    async def test_a_request_of_another_size_and_numbers_of_its_own(self, quick):
        """One run may have settings apart; wrong ones are rejected, with the nearest name."""
        writer = Writer(times=[4])
        engine = await quick.engine(writer.flow())
        run_id = await engine.start("words", {"request": WORDS, "settings": {"max_iterations": 1}})
        await engine.finish(run_id)
        assert (await result_of(engine, run_id)).iterations == 1
        run = await engine.run("words", {"request": WORDS, "settings": {"max_iteration": 1}})
        assert (run.state, run.reason) == ("failed", "Input rejected: settings")
        assert "max_iterations" in run.error


class TestAPassIsComputed:
    """R-23"""

    @pytest.mark.parametrize(
        ("evaluation", "passes"),
        [
            (Evaluation(95, (CategoryScore("a", 40), CategoryScore("b", 40)), claimed_pass=True), False),
            (Evaluation(0, (CategoryScore("a", 100), CategoryScore("b", 59))), False),
            (Evaluation(0, (CategoryScore("a", 79), CategoryScore("b", 60))), False),
            (Evaluation(0, (CategoryScore("a", 80), CategoryScore("b", 60))), True),
            (Evaluation(70), True),
            (Evaluation(69.9, claimed_pass=True), False),
            (Evaluation(99, automatic_failures=("broken",)), False),
        ],
    )
    async def test_whatever_the_judge_claims(self, quick, evaluation, passes):
        parts = {**Writer().parts(), "judge": lambda *_: evaluation}
        result = await refine(WORDS, **parts, max_iterations=1)
        assert (result.status == "success") is passes
        if evaluation.category_scores and evaluation.claimed_pass:
            assert (result.evaluation.overall_score, result.evaluation.claimed_score) == (40, 95)
            plain = result.to_plain()["evaluation"]
            assert (plain["pass_threshold"], plain["claimed_pass"]) == (False, True)

    async def test_automatic_failures_are_found_by_code(self, quick):
        """Whatever the judge says about them."""
        writer = Writer(plans=[["calm", "LOUD", "bright", "dark"]])
        result = await refine(WORDS, **writer.parts(), rubric=RUBRIC, max_iterations=1)
        assert result.evaluation.automatic_failures == ("shouting",)
        assert result.status == "incomplete"

    @pytest.mark.parametrize(
        "scores", [{}, {"choice": 90}, {"choice": 90, "writing": 90, "beauty": 90}], ids=str
    )
    async def test_scores_of_other_categories_are_no_evaluation(self, quick, scores):
        """Missing or unknown ones fail the judge; a rubric may depend on the request."""
        given = Evaluation(90, tuple(CategoryScore(name, score) for name, score in scores.items()))
        parts = {**Writer().parts(), "judge": lambda *_: given}
        result = await refine(WORDS, **parts, rubric=lambda request: RUBRIC if request == WORDS else Rubric())
        assert (result.status, result.reason) == ("failed", "Judging failed")

    @pytest.mark.parametrize("score", [-1, 101, float("nan"), True, "90"])
    def test_a_score_is_a_number_from_0_to_100(self, score):
        with pytest.raises(ValueError, match="from 0 to 100"):
            CategoryScore("a", score)


def broken(*_: Any) -> Any:
    raise LookupError("no idea")


def quits(*_: Any) -> Any:
    raise SystemExit(3)


PARTS = {
    "planner": decisions.PLAN_FAILED,
    "validator": decisions.VALIDATOR_FAILED,
    "implementer": decisions.IMPLEMENTATION_FAILED,
    "judge": decisions.JUDGE_FAILED,
}


class TestPartsThatFail:
    @pytest.mark.parametrize("fails", [broken, quits], ids=["raises", "exits"])
    @pytest.mark.parametrize("part", PARTS)
    async def test_each_ends_the_run_with_its_reason(self, bench, part, fails):
        """R-19"""
        engine = await bench.engine(Writer().flow(**{part: fails}))
        result = await refined(engine)
        assert (result.status, result.final_state, result.reason) == ("failed", "failed", PARTS[part])
        assert ("no idea" if fails is broken else "exit(3)") in result.error
        assert [entry.kind for entry in await journal(engine, result.run_id)].count("attempt_failed") == 0

    @pytest.mark.parametrize(
        ("part", "given", "expected"),
        [
            ("validator", None, "a ValidationReport"),
            ("validator", [], None),
            ("validator", [None], "a ValidationReport"),
            ("validator", [Issue("error", "r", "m")], "a ValidationReport"),
            ("validator", {"issues": []}, "a ValidationReport"),
            ("judge", True, "an Evaluation"),
            ("judge", None, "an Evaluation"),
            ("judge", 95, "an Evaluation"),
            ("planner", None, "a value"),
            ("planner", object(), "a JSON value"),
            ("implementer", None, "a value"),
            ("implementer", {"x": float("nan")}, "a JSON value"),
        ],
    )
    async def test_another_type_is_a_failure_that_names_part_and_type(self, quick, part, given, expected):
        """R-64: and never "no errors"; an empty list of reports has none."""
        engine = await quick.engine(Writer().flow(**{part: lambda *_: given}))
        result = await refined(engine)
        if expected is None:
            assert result.status == "success"
            return
        assert (result.status, result.reason) == ("failed", PARTS[part])
        assert f"The part '{part}' gave" in result.error
        assert expected in result.error

    async def test_several_reports_count_together_in_order(self, quick):
        issues = [Issue("warning", "w", "first"), Issue("info", "i", "second")]
        engine = await quick.engine(
            Writer().flow(validator=lambda *_: [ValidationReport((issue,)) for issue in issues])
        )
        result = await refined(engine)
        assert [issue.message for issue in result.attempts[0].validation.issues] == ["first", "second"]
        assert result.warnings == ("first",)

    async def test_one_that_fails_for_now_is_tried_again(self, quick):
        """Under its retry policy; the failed attempt is in the journal."""
        tries: list[int] = []

        def planner(request, feedback, previous):
            tries.append(1)
            if len(tries) < 3:
                raise ConnectionError("away")
            return {"words": WORDS}

        part = Part(planner, retry=RetryPolicy(3, 0, 0))
        engine = await quick.engine(Writer().flow(planner=part))
        result = await refined(engine)
        assert (result.status, len(tries)) == ("success", 3)

    async def test_one_that_takes_too_long_has_failed(self, quick):
        async def planner(request, feedback, previous):
            await asyncio.Event().wait()

        engine = await quick.engine(Writer().flow(planner=Part(planner, timeout=0.01)))
        result = await refined(engine)
        assert (result.status, result.reason) == ("failed", "Plan generation failed")

    @pytest.mark.parametrize("part", [3, None, "plan"])
    def test_what_is_no_function_is_refused_at_once(self, part):
        with pytest.raises(ConfigurationError, match="planner"):
            Writer().flow(planner=part)

    @pytest.mark.parametrize(
        "wrong",
        [{"max_iterations": 0}, {"max_iterations": True}, {"pass_threshold": 101}, {"category_pass": "60"}],
    )
    def test_numbers_out_of_range_are_refused_at_once(self, wrong):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Writer().flow(**wrong)


class TestAnybodysFunctions:
    async def test_blocking_and_async_functions_run_through_refine(self, quick):
        """R-39: without a store, a class or an engine."""
        result = await refine(WORDS, **Writer().parts())
        assert (result.status, result.plan) == ("success", {"words": WORDS})

    async def test_a_function_that_blocks_loses_no_lease_and_is_not_run_twice(self, durable):
        """R-64: other runs go on meanwhile, and the lease is kept."""
        other_ended, calls = threading.Event(), []

        def planner(request, feedback, previous):
            calls.append(1)
            assert other_ended.wait(20), "the event loop was blocked"
            return {"words": WORDS}

        slow = Writer().flow(planner=Part(planner, blocking=True))
        engine = await durable.engine(slow, lease=0.3)
        run_id = await engine.start("words", {"request": WORDS})
        result = await refine(WORDS, **Writer().parts(), name="other")
        assert result.status == "success"
        await asyncio.sleep(0.7)  # more than twice the lease
        other_ended.set()
        run = await engine.finish(run_id)
        assert (run.status, calls, run.epoch) == (Status.SUCCEEDED, [1], 1)

    async def test_a_finished_run_gives_its_result_again(self, bench):
        """Without a call of any part; another request under its name is refused."""
        first = Writer(times=[2, 1])
        store = bench.store()
        result = await refine(WORDS, **first.parts(), rubric=RUBRIC, store=store, run_id="r1")
        second = Writer()
        again = await refine(WORDS, **second.parts(), rubric=RUBRIC, store=bench.store(), run_id="r1")
        assert second.asked == []
        assert again.to_plain() == result.to_plain()
        with pytest.raises(ConfigurationError, match="another request"):
            await refine(WORDS[:1], **second.parts(), store=bench.store(), run_id="r1")

    async def test_parts_cannot_scribble_in_the_run(self, quick):
        """They have copies."""

        def scribbles(request, plan):
            request.clear()
            plan["words"] = ["scribbled"]
            return ValidationReport()

        result = await refine(WORDS, **{**Writer().parts(), "validator": scribbles}, rubric=RUBRIC)
        assert (result.plan, result.request) == ({"words": WORDS}, WORDS)


class TestPreparing:
    async def test_a_large_request_is_kept_beside_the_journal(self, bench):
        """Every part gets the whole of it, and no entry holds it."""
        long = [*WORDS, "x" * 300_000]
        seen: list[int] = []

        def preparer(request):
            show_progress(1, 2, "reading")
            return long

        def validator(request, plan):
            seen.append(len(request[-1]))
            return ValidationReport()

        class Watcher:
            shown: list[Any] = []  # noqa: RUF012

            def on_progress(self, run_id, flow, step, progress):
                self.shown.append((step, progress.done, progress.text))

        watcher = Watcher()
        flow = Writer(times=[2, 1]).flow(preparer=preparer, validator=validator)
        engine = await bench.engine(flow, observers=[watcher])
        result = await refined(engine)
        assert seen == [300_000]
        assert watcher.shown == [("prepare", 1, "reading")]
        entries = await journal(engine, result.run_id)
        assert max(len(encode(_plain(entry))) for entry in entries) < 5_000
        assert result.request == WORDS

    @pytest.mark.parametrize("error", [Rejected("unreadable", "no such file: a.mp3"), OSError("disk")])
    async def test_a_request_that_is_rejected_ends_the_run_with_its_code(self, bench, error):
        def preparer(request):
            raise error

        engine = await bench.engine(Writer().flow(preparer=preparer))
        result = await refined(engine)
        code = "unreadable" if isinstance(error, Rejected) else "OSError"
        assert (result.status, result.reason) == ("failed", f"Input rejected: {code}")
        assert str(error) in result.error
        assert await states(engine, result.run_id) == ["initialized", "failed"]

    async def test_a_run_without_a_request_says_what_is_missing(self, quick):
        engine = await quick.engine(Writer().flow())
        run = await engine.run("words", {"requst": WORDS})
        assert (run.reason, "request" in run.error) == ("Input rejected: no_request", True)

    async def test_a_request_that_was_purged_ends_the_run(self, quick):
        """It says so, in place of planning for nothing."""
        engine = await quick.engine(Writer().flow(preparer=lambda request: request))
        run_id = await engine.start("words", {"request": WORDS}, drive=False)
        run = await engine.finish(run_id, stop_at="planning")
        await engine.store.purge(run_id)
        run = await engine.finish(run_id)
        assert (run.reason, "purged" in run.error) == ("Plan generation failed", True)


def _plain(entry: Any) -> Any:
    body = entry.body
    return {"set": dict(body.set), "append": dict(body.append)} if isinstance(body, Moved) else {}


class TestFilesAtTheEnd:
    def flow(self, writer: Writer, written: list[str], fails: list[str], **options: Any):
        def write(path: str, text: str) -> dict[str, str]:
            if path in fails:
                raise ToolError("disk_full", f"no room for {path}")
            written.append(path)
            return {"path": path}

        def finisher(result):
            return [
                Effect("write", {"path": name, "text": f"{result.status} {result.best_iteration}"})
                for name in ("show.txt", "result.json")
            ]

        return writer.flow(finisher=finisher, tools=[Tool("write", write)], **options)

    @pytest.mark.parametrize(
        ("writer", "options", "status"),
        [
            (Writer(), {}, "success"),
            (Writer(plans=[["x"]]), {}, "incomplete"),
            (Writer(), {"judge": broken}, "failed"),
            (Writer(), {"preparer": broken}, "failed"),
        ],
        ids=["success", "incomplete", "failed", "rejected"],
    )
    async def test_they_are_written_once_whatever_the_end(self, bench, writer, options, status):
        written: list[str] = []
        engine = await bench.engine(self.flow(writer, written, [], **options))
        result = await refined(engine)
        assert (result.status, written) == (status, ["show.txt", "result.json"])
        assert result.files == ("show.txt", "result.json")

    async def test_a_cancelled_run_writes_its_best_attempt(self, bench):
        begun = asyncio.Event()
        contents: list[str] = []

        async def judge(request, plan, implementation):
            begun.set()
            await asyncio.Event().wait()

        def finisher(result):
            yield Effect("write", {"text": f"{result.status} {result.implementation}"})

        tools = [Tool("write", lambda text: contents.append(text))]
        engine = await bench.engine(Writer().flow(judge=judge, finisher=finisher, tools=tools))
        run_id = await engine.start("words", {"request": WORDS})
        await begun.wait()
        await engine.cancel(run_id)
        await engine.finish(run_id)
        result = await result_of(engine, run_id)
        assert (result.status, result.run_status) == ("incomplete", Status.CANCELLED)
        assert contents == ["incomplete {'text': 'calm loud bright dark'}"]

    async def test_a_full_disk_leaves_an_open_run_that_says_which_file(self, bench):
        """Resumed, it writes what is missing and repeats nothing."""
        written: list[str] = []
        fails = ["result.json"]
        writer = Writer()
        engine = await bench.engine(self.flow(writer, written, fails))
        run_id = await engine.start("words", {"request": WORDS})
        run = await engine.finish(run_id)
        result = await result_of(engine, run_id)
        assert (result.status, run.status, "result.json" in result.error) == (
            "incomplete", Status.WAITING, True
        ), result.error  # fmt: skip
        fails.clear()
        await engine.resolve(run_id, "again", hold=run.token())
        await engine.finish(run_id)
        assert (await result_of(engine, run_id)).status == "success"
        assert written == ["show.txt", "result.json"]
        assert writer.count("plan") == 1
        begun = [entry for entry in await journal(engine, run_id) if isinstance(entry.body, EffectBegun)]
        assert len({entry.body.key for entry in begun}) == 2


class TestTheReport:
    async def test_it_is_logged_once_at_the_end(self, durable, heard):
        """R-27: not again when the run is looked at or its result asked for again."""
        engine = await durable.engine(Writer(times=[2, 1]).flow())
        result = await refined(engine)
        await result_of(engine, result.run_id)
        report = heard.one("refine.completed")["report"]
        assert report == result.metrics["report"]
        assert "Final State: succeeded\nIterations: 2 / 3" in report
        assert result.metrics["totals"]["iteration_count"] == 2


class TestThePlainLoop:
    """R-38"""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: (Writer(), {}),
            lambda: (Writer(plans=[["x"], WORDS[:1], WORDS], times=[1]), {}),
            lambda: (Writer(times=[2, 2, 1]), {"max_iterations": 4}),
            lambda: (Writer(times=[4, 3, 2]), {}),
            lambda: (Writer(plans=[["x"]]), {"max_iterations": 1}),
            lambda: (Writer(plans=[[]]), {}),
            lambda: (Writer(), {"judge": broken}),
            lambda: (Writer(), {"preparer": broken}),
            lambda: (Writer(), {"planner": lambda *_: None}),
        ],
    )
    async def test_it_comes_to_the_same_as_the_flow(self, make):
        results = []
        for function in (refine, refine_loop):
            writer, options = make()
            arguments = {**writer.parts(), "rubric": RUBRIC, **options}
            results.append((await function(WORDS, **arguments), writer))
        (run, one), (loop, other) = results
        for name in ("status", "final_state", "reason", "error", "iterations", "best_iteration", "plan",
                     "implementation", "evaluation", "warnings"):  # fmt: skip
            assert getattr(run, name) == getattr(loop, name), name
        assert [name for name, _ in one.asked] == [name for name, _ in other.asked]
        transitions = [result.metrics["transitions"] for result in (run, loop)]
        assert transitions[0] == transitions[1]
        executors = [[dict(attempt.executors) for attempt in result.attempts] for result in (run, loop)]
        assert executors[0] == executors[1]
