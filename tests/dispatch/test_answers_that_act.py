"""Effects asked for in an answer of the dialect's own format, performed in rounds; acts that stand."""

from __future__ import annotations

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.conversation import ToolCall
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.format import JsonDialect
from detent.dispatch.prompt import Prompt
from detent.dispatch.proposal import Proposal
from detent.engine.step import Step
from detent.engine.tools import Tool
from tests.dispatch.samples import INTENT, agent, result_of, scripted, settings, single


class Lines(JsonDialect):
    """An answer is lines; those that begin with `do` are effects, and the others are the answer."""

    def build(self, plan, inputs, *, secrets):
        return Prompt("Write lines.", "Begin.")

    def schema(self, plan):
        return None

    def offers(self, plan, inputs):
        return ()

    def calls(self, plan, answer, inputs, acts=(), *, cut=False):
        if "rubbish" in answer or cut:
            raise OutputSchemaValidationError(plan.step.name, "lines", ["/: cannot be read"])
        lines = [line.removeprefix("do ") for line in answer.splitlines() if line.startswith("do ")]
        return [ToolCall("", "write", {"line": line}) for line in lines] or None

    def answered(self, plan, acts, results):
        return "You wrote " + ", ".join(act.receipt["wrote"] for act in acts)

    def read(self, plan, answer, effects, inputs, acts=()):
        output = {"said": answer or "", "wrote": [act.receipt["wrote"] for act in acts]}
        return Proposal(output, plain=output, given=output)

    def settled(self, plan, acts):
        return bool(acts)


def writing(paper: list[str], **side) -> Step:
    async def by_code(ctx):
        receipt = await ctx.perform("write", line="by code")
        return {"said": "code", "wrote": [receipt["wrote"]]}

    options = {"rounds": 3, "stands": True, "validated": True, **side}
    return Step(
        "work", by_code, INTENT, effects=("write",), inputs=(), validator=lambda inputs, proposal: True,
        agent=AgentSide(dialect=Lines(), names_next=False, **options),
    )  # fmt: skip


def flow_on(paper: list[str], **side):
    def write(line: str) -> dict[str, str]:
        paper.append(line)
        return {"wrote": line}

    return single(writing(paper, **side), tools=[Tool("write", write)])


@pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
class TestAnswersThatAct:
    async def test_effects_are_performed_and_told_before_the_agent_is_asked_again(self, bench, level):
        paper: list[str] = []
        executor = scripted({"output": "do a\ndo b"}, {"output": "do c"}, {"output": "done"})
        engine = await bench.engine(flow_on(paper), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert paper == ["a", "b", "c"]
        assert run.data == {"said": "done", "wrote": ["a", "b", "c"]}
        assert (await result_of(engine, run.id)).mode_used.value == "agent"
        assert "You wrote a, b" in executor.calls[1].prompt

    async def test_acted_out_ends_the_visit_after_a_round(self, bench, level):
        paper: list[str] = []
        executor = scripted({"output": "do stop"}, {"output": "do more"})
        flow = flow_on(paper, acted_out=lambda acts: acts[-1].receipt["wrote"] == "stop")
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (paper, run.data["said"]) == (["stop"], "")

    async def test_a_format_that_cannot_be_read_is_told_once_and_then_code_works(self, bench, level):
        paper: list[str] = []
        executor = scripted({"output": "rubbish"}, {"output": "rubbish"})
        engine = await bench.engine(flow_on(paper), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (paper, run.data["said"]) == (["by code"], "code")
        result = await result_of(engine, run.id)
        assert result.fallback_reason is FallbackReason.SCHEMA_VIOLATION

    async def test_what_was_done_before_a_failure_stands(self, bench, level):
        """Nothing is undone, repeated or asked: what comes after judges it."""
        paper: list[str] = []
        executor = scripted({"output": "do a"}, {"output": "rubbish"}, {"output": "rubbish"})
        engine = await bench.engine(flow_on(paper), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (paper, run.data) == (["a"], {"said": "", "wrote": ["a"]})

    async def test_without_standing_code_does_not_go_on_as_if_nothing_had_happened(self, bench, level):
        paper: list[str] = []
        executor = scripted({"output": "do a"}, {"output": "rubbish"}, {"output": "rubbish"})
        flow = flow_on(paper, stands=False)
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert paper == ["a"]
        assert "diverged" in run.holds
