"""Agents in place of parts: what they are asked, how they are checked, and whose the last attempt is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.adapters.models import openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.dispatch.autonomy import FallbackReason
from detent.flows.refine.evaluation import Category, CategoryScore, Evaluation, Rubric
from detent.flows.refine.part import Part
from tests.adapters.models.server import Server, said
from tests.dispatch.samples import again, agent, moves, scripted, settings
from tests.dispatch.samples import result_of as dispatched
from tests.engine.conftest import journal
from tests.flows.refine.samples import PLAN_SCHEMA, RUBRIC, WORDS, Writer, refined

GOOD, POOR, INVALID = {"words": WORDS}, {"words": WORDS[:1]}, {"words": ["noise"]}
STATES = {"plan": "planning", "validate": "validating", "implement": "implementing", "judge": "judging"}


def scores(choice: float, writing: float) -> dict[str, Any]:
    rows = [("choice", choice), ("writing", writing)]
    return {
        "category_scores": [{"category": name, "score": score, "reasoning": "so"} for name, score in rows]
    }


async def by_whom(engine: Any, run_id: str, step: str) -> list[str]:
    return [move.by for move in await moves(engine, run_id, STATES[step])]


class TestOneStepAtATime:
    """R-40"""

    @pytest.mark.parametrize(
        ("step", "right"),
        [
            ("plan", GOOD),
            ("validate", {"issues": []}),
            ("implement", {"text": "dark bright loud calm"}),
            ("judge", scores(95, 90)),
        ],
    )
    async def test_each_is_asked_for_its_fact_alone_and_used_if_right(self, bench, step, right):
        """R-58: nothing in the prompt asks for a state, an effect or a verdict."""
        executor = scripted({"output": right}, step=step)
        dispatch = settings(executor, agent("collaborator"), step=step)
        engine = await bench.engine(Writer().flow(), dispatch=dispatch)
        result = await refined(engine)
        assert result.status == "success"
        assert result.attempts[0].executors == {
            **dict.fromkeys(STATES, "code"), step: "agent"
        }  # fmt: skip
        (call,) = executor.calls
        asked = f"{call.instructions}{call.prompt}{call.output_schema}"
        for word in ("next_state", "succeeded", "implementing", "pass_threshold", "effect"):
            assert word not in asked

    @pytest.mark.parametrize(
        ("step", "wrong"),
        [
            ("plan", INVALID),
            ("plan", POOR),
            ("implement", {"text": "calm calm calm calm loud"}),
            ("implement", {"text": ""}),
            ("judge", scores(40, 90)),
            ("judge", scores(75, 75)),
            ("judge", {**scores(59, 100), "overall_score": 99, "pass_threshold": True}),
        ],
        ids=str,
    )
    async def test_a_wrong_answer_is_replaced_by_the_handlers(self, bench, step, wrong):
        """R-58: with a reason in the journal; a text that is short but without a fault passes no check."""
        dispatch = settings(scripted(again(wrong), step=step), agent("collaborator"), step=step)

        def judge(request, plan, implementation):
            written = implementation["text"].split()
            missing = 100 * len(set(written)) / len(request)
            return Evaluation(category_scores=(
                CategoryScore("choice", 100 * len(plan["words"]) / len(request)),
                CategoryScore("writing", missing - 12 * (len(written) - len(set(written)))),
            ))  # fmt: skip

        engine = await bench.engine(Writer().flow(judge=judge), dispatch=dispatch)
        result = await refined(engine)
        assert (result.status, await by_whom(engine, result.run_id, step)) == ("success", ["handler"])
        record = await dispatched(engine, result.run_id, STATES[step])
        assert record.fallback_reason is FallbackReason.VALIDATION_FAILURE

    async def test_a_report_that_misses_an_error_is_replaced(self, quick):
        """And one that finds it in other words, with more, is used, joined to what code finds."""
        found = {"issues": [
            {"severity": "error", "rule": "word", "section_name": "noise", "message": "never heard of it"},
            {"severity": "info", "rule": "style", "message": "dull"},
        ]}  # fmt: skip
        executor = scripted(
            {"output": {"issues": []}}, {"output": found}, {"output": {"issues": []}}, step="validate"
        )
        dispatch = settings(executor, agent("collaborator", max_retries=0), step="validate")
        writer = Writer(plans=[["noise"], ["noise"], WORDS])
        engine = await quick.engine(writer.flow(max_iterations=4), dispatch=dispatch)
        result = await refined(engine)
        assert await by_whom(engine, result.run_id, "validate") == ["handler", "agent", "agent"]
        second = result.attempts[1].validation
        assert [(issue.rule, issue.message) for issue in second.issues] == [
            ("word", "unknown word 'noise'"), ("style", "dull")
        ]  # fmt: skip

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_an_agent_cannot_let_an_invalid_plan_through(self, quick, level):
        """Errors are found by code in every mode."""
        executor = scripted(again({"issues": []}), step="validate")
        dispatch = settings(executor, agent(level), step="validate")
        writer = Writer(plans=[["noise"]])
        engine = await quick.engine(writer.flow(max_iterations=2), dispatch=dispatch)
        result = await refined(engine)
        assert (result.reason, writer.count("implement")) == ("max_iterations", 0)

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_an_agent_cannot_overlook_an_automatic_failure(self, quick, level):
        """R-23: joined by code, whatever it claims."""
        answer = {**scores(95, 95), "overall_score": 100, "pass_threshold": True}
        dispatch = settings(scripted(again(answer), step="judge"), agent(level), step="judge")
        writer = Writer(plans=[["calm", "LOUD", "bright", "dark"]])
        engine = await quick.engine(writer.flow(max_iterations=1), dispatch=dispatch)
        result = await refined(engine)
        assert (result.status, result.evaluation.automatic_failures) == ("incomplete", ("shouting",))
        assert (result.evaluation.claimed_pass, result.evaluation.claimed_score) == (True, 100)

    @pytest.mark.parametrize(
        "answer",
        [
            {"category_scores": []},
            scores(95, 101),
            {"category_scores": [*scores(95, 95)["category_scores"][:1]] * 2},
            {"category_scores": [{"category": "beauty", "score": 90, "reasoning": ""}] * 2},
            {**scores(95, 95), "automatic_failures": ["made_up"]},
            {"passes": True},
        ],
        ids=["none", "101", "one twice", "unknown", "made-up code", "a verdict"],
    )
    async def test_an_evaluation_that_breaks_its_schema_is_none(self, quick, answer):
        """At any level it is asked again, then the handler judges."""
        executor = scripted(again(answer), step="judge")
        dispatch = settings(executor, agent("approver"), step="judge")
        engine = await quick.engine(Writer().flow(), dispatch=dispatch)
        result = await refined(engine)
        assert (result.status, result.attempts[0].executors["judge"]) == ("success", "code")
        assert len(executor.calls) == 2

    async def test_the_schema_may_depend_on_the_request(self, quick):
        """Of plans by a function, of evaluations by a rubric for each request."""
        writer = Writer()
        schema = {"type": "object", "required": ["words"], "properties": {"words": {}}}

        def of_request(request):
            words = {"type": "array", "items": {"enum": request}}
            return {**schema, "properties": {"words": words}}

        def rubric(request):
            return Rubric((Category("choice", "plan"), Category("writing", "implementation")))

        executor = scripted({"output": INVALID}, {"output": GOOD}, step="plan")
        dispatch = settings(executor, agent("approver"), step="plan")
        flow = writer.flow(planner=Part(writer.planner, output_schema=of_request), rubric=rubric)
        engine = await quick.engine(flow, dispatch=dispatch)
        result = await refined(engine)
        assert (result.status, result.attempts[0].executors["plan"]) == ("success", "agent")
        assert [json.dumps(WORDS)[1:-1] in json.dumps(call.output_schema) for call in executor.calls] == [
            True
        ] * 2
        assert "$schema" not in executor.calls[0].prompt

    async def test_a_brief_stands_in_place_of_the_request(self, quick, heard):
        """With the feedback beside it; one that is too long is told."""
        writer = Writer()
        part = Part(
            writer.planner, output_schema=PLAN_SCHEMA,
            brief=lambda request, feedback, previous: {"count": len(request), "pad": "x" * 13_000},
        )  # fmt: skip
        executor = scripted({"output": POOR}, {"output": GOOD}, step="plan")
        dispatch = settings(executor, agent("approver"), step="plan")
        engine = await quick.engine(writer.flow(planner=part), dispatch=dispatch)
        result = await refined(engine)
        assert result.status == "success"
        first, second = (call.prompt for call in executor.calls)
        assert '"count": 4' in first
        assert "bright" not in first
        assert "# Feedback from earlier attempts" in second
        assert "## Attempt 1, judged too weak, to be planned anew" in second
        assert heard.named("refine.brief_long")


class TestTheLastAttemptIsCodes:
    """R-59"""

    @pytest.mark.parametrize("answer", [INVALID, POOR, "no JSON at all"], ids=["invalid", "poor", "prose"])
    @pytest.mark.parametrize(
        ("level", "status"),
        [("collaborator", "success"), ("consultant", "success"), ("approver", "incomplete")],
    )
    async def test_a_planner_that_always_errs(self, bench, level, status, answer):
        """It ends no worse than code below approver. (Prose is no plan at any level.)"""
        dispatch = settings(scripted(again(answer), step="plan"), agent(level), step="plan")
        engine = await bench.engine(Writer().flow(), dispatch=dispatch)
        result = await refined(engine)
        assert result.status == ("success" if isinstance(answer, str) else status)
        if level == "consultant" and not isinstance(answer, str):
            assert [attempt.executors["plan"] for attempt in result.attempts] == ["agent", "agent", "code"]
            last = (await moves(engine, result.run_id, "planning"))[-1]
            assert last.detail["lowered"] == {"was": "consultant", "why": "the last attempt is code's"}

    @pytest.mark.parametrize(("level", "status"), [("consultant", "success"), ("approver", "incomplete")])
    async def test_an_implementer_that_always_errs(self, bench, level, status):
        """Its plan was code's, so the last attempt refines."""
        wrong = {"text": " ".join(WORDS * 5)}
        better = {"text": " ".join(WORDS * 2)}
        executor = scripted({"output": wrong}, again(better), step="implement")
        dispatch = settings(executor, agent(level), step="implement")
        engine = await bench.engine(Writer().flow(), dispatch=dispatch)
        result = await refined(engine)
        assert result.status == status
        assert [attempt.refined for attempt in result.attempts] == [False, True, True]

    async def test_it_begins_at_planning_where_the_plan_was_an_agents(self, bench):
        """A soft failure before the last attempt is escalated: the handlers' attempt is theirs throughout."""
        executor = scripted(again(GOOD), step="plan")
        dispatch = settings(executor, agent("consultant"), step="plan")
        writer = Writer(times=[4, 3, 1])
        engine = await bench.engine(writer.flow(), dispatch=dispatch)
        result = await refined(engine)
        reasons = [attempt.executors.get("plan") for attempt in result.attempts]
        assert reasons == ["agent", None, "code"]
        hard = [entry.body for entry in await journal(engine, result.run_id) if entry.kind == "moved"][6]
        assert hard.reason == "Hard failure, replanning"
        (feedback,) = hard.append["feedback"]
        assert feedback["metadata"]["escalated"] is True
        assert result.status == "success"

    async def test_with_one_attempt_the_agent_has_it(self, quick):
        """There is no last one to give to code."""
        dispatch = settings(scripted(again(POOR), step="plan"), agent("consultant"), step="plan")
        engine = await quick.engine(Writer().flow(max_iterations=1), dispatch=dispatch)
        assert (await refined(engine)).attempts[0].executors["plan"] == "agent"


class PromptReader:
    """A model that knows only what it is sent over HTTP; wrong every other time."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def reply(self, server: Server) -> Any:
        async def answering(line: Any) -> None:
            messages = server.asked[-1].body["messages"]
            text = "\n".join(str(message["content"]) for message in messages)
            self.prompts.append(text)
            inputs = json.JSONDecoder().raw_decode(text, text.rindex("INPUTS\n") + 7)[0]
            words = inputs["request"]
            plan = {"words": words if len(self.prompts) % 2 == 0 else [*words[:-1], "noise"]}
            await said(json.dumps(plan))(line)

        return answering


class TestAModelOverHttp:
    @pytest.mark.parametrize("level", ["collaborator", "consultant"])
    async def test_it_plans_from_the_prompt_alone_wrong_as_often_as_right(self, quick, level):
        """R-58, R-60: the good plan is kept, the bad one replaced or planned anew; tokens are counted."""
        reader = PromptReader()
        async with Server() as server:
            server.replies = [reader.reply(server)] * 8
            options = {"base_url": f"{server.url}/v1", "model_id": "m-1"}
            executor = ModelStepExecutor(openai.connect(options, kind="vllm"))
            dispatch = settings(executor, agent(level, max_retries=0), step="plan")
            engine = await quick.engine(Writer().flow(), dispatch=dispatch)
            results = [await refined(engine) for _ in range(2)]
        planned = [[attempt.executors["plan"] for attempt in result.attempts] for result in results]
        assert [result.status for result in results] == ["success", "success"]
        if level == "collaborator":
            assert planned == [["code"], ["agent"]]
        else:
            assert planned == [["agent", "agent"], ["agent", "agent"]]
            assert "unknown word 'noise'" in reader.prompts[1]
        assert all(result.tokens_used > 0 for result in results)
        (row,) = [row for row in results[0].budget_report["stage_usage"] if row["stage"] == "plan"]
        assert row["total_tokens"] == results[0].tokens_used


def test_the_rubric_of_the_samples_has_both_owners():
    """What the escalations above rest on."""
    assert {category.owner for category in RUBRIC.categories} == {"plan", "implementation"}
