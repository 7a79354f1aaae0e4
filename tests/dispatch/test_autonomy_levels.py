"""The levels of autonomy: what each does with an answer that kept the hard contract."""

from __future__ import annotations

import logging

import pytest

from detent.dispatch.autonomy import AutonomyLevel, Check, FallbackReason, StepMode
from detent.dispatch.equivalence import CompareRules, Discrepancy
from detent.dispatch.proposal import Verdict
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
    LEVELS,
    MAIL,
    QUESTION,
    Form,
    again,
    agent,
    deterministic,
    error_of,
    forms,
    moves,
    notes,
    result_of,
    scripted,
    settings,
    triage,
)
from tests.engine import answers
from tests.engine.conftest import flow_of, kinds, one_step


def counted(handler=triage):
    """A handler, and a list of its calls."""
    calls = []

    async def work(ctx) -> Form:
        calls.append(ctx.attempt)
        return await handler(ctx)

    return work, calls


class TestOperator:
    async def test_the_agent_is_not_asked_and_the_log_says_why(self, bench, heard):
        """D-15."""
        work, calls = counted()
        executor = scripted({"output": QUESTION})
        engine = await bench.engine(forms(work), dispatch=settings(executor, agent("operator")))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert (calls, executor.calls) == ([1], [])
        warning = heard.one("dispatch.operator_fallback")
        assert warning.level == logging.WARNING
        assert "operator requires deterministic mode" in warning["hint"]
        doubtful = heard.named("config.doubtful")
        assert doubtful
        assert {one["code"] for one in doubtful} == {"W002"}
        result = await result_of(engine, run.id)
        assert (result.fallback_reason, result.agent_called) == (FallbackReason.OPERATOR, False)


class TestCollaborator:
    @pytest.mark.parametrize("answer", [FAULT, QUESTION])
    async def test_the_handler_is_run_once_for_the_check_and_never_again(self, bench, answer):
        """D-16, D-17, D-18: equal is accepted; else what the handler said in the check is used."""
        work, calls = counted()
        engine = await bench.engine(forms(work), dispatch=settings(scripted({"output": answer}), agent()))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert calls == [1]
        result = await result_of(engine, run.id)
        assert result.check is Check.COMPARE
        assert result.mode_used is (StepMode.AGENT if answer == FAULT else StepMode.DETERMINISTIC)
        if answer == QUESTION:
            assert result.fallback_reason is FallbackReason.VALIDATION_FAILURE
            assert result.validation_details == (
                Discrepancy("/output/kind", "value"),
                Discrepancy("/output/urgent", "value"),
            )

    async def test_a_rejection_says_what_was_validated_and_how(self, quick, heard):
        """D-47."""
        engine = await quick.engine(forms(), dispatch=settings(scripted({"output": QUESTION}), agent()))
        await engine.run("flow", MAIL)
        verdict = heard.one("dispatch.autonomy_validation")
        assert (verdict["outcome"], verdict["check"], verdict["discrepancies"]) == ("rejected", "compare", 2)
        assert verdict["pointers"] == ["/output/kind", "/output/urgent"]
        assert verdict.level == logging.WARNING
        assert heard.one("dispatch.fallback")["reason"] == "validation_failure"
        assert heard.one("dispatch.agent_completed")["accepted"] is False

    async def test_a_handler_that_fails_in_the_check_fails_as_without_an_agent(self, bench, heard):
        """1.9: nothing was validated, so the handler's own error is the step's."""

        async def work(ctx):
            raise LookupError("no such device")

        flow = forms(work)
        plain = await deterministic(bench, flow, MAIL)
        engine = await bench.engine(flow, dispatch=settings(scripted({"output": FAULT}), agent()))
        heard.events.clear()
        run = await engine.run("flow", MAIL)
        assert (run.status, run.data, run.reason, run.error) == (
            plain.status,
            plain.data,
            plain.reason,
            plain.error,
        )
        assert await error_of(engine, run.id) == "LookupError: no such device"
        assert heard.sequence() == "M S C"

    async def test_handlers_that_name_a_state_can_be_agreed_with(self, bench):
        """D-16: a bare state name is where to go, not an output."""
        flow = one_step(Step("work", lambda ctx: "failed", INTENT), also=("failed",))
        for answer in ({"next_state": "failed"}, {"output": {}, "next_state": "failed"}):
            engine = await bench.engine(flow, dispatch=settings(scripted({"output": answer}), agent()))
            run = await engine.run("flow")
            assert run.state == "failed"
            assert (await result_of(engine, run.id)).mode_used is StepMode.AGENT

    async def test_next_state_and_effects_are_compared_too(self, quick):
        """1.12: the same output, but another way or another effect, is another outcome."""

        async def work(ctx):
            return Outcome("done", set={"n": 1}, effects=[Effect("post", {"what": "a"})])

        performed = []
        tool = Tool("post", lambda what: performed.append(what), idempotent=True)
        flow = flow_of(
            {"work": ["done", "failed"]}, {"work": Step("work", work, INTENT, effects=("post",))},
            tools=[tool],
        )  # fmt: skip
        good = {"output": {"n": 1}, "next_state": "done"}
        for acts, changed, pointer in [
            ("a", {}, None),
            ("a", {"next_state": "failed"}, "/next_state"),
            ("b", {}, "/effects/0/args/what"),
            ("", {}, "/effects"),
            ("a", {"output": {"n": 2}}, "/output/n"),
        ]:
            performed.clear()
            acting = [{"output": {"calls": [{"tool": "post", "args": {"what": acts}}]}}] if acts else []
            executor = scripted(*acting, {"output": {**good, **changed}})
            engine = await quick.engine(flow, dispatch=settings(executor, agent()))
            run = await engine.run("flow")
            result = await result_of(engine, run.id)
            assert (run.state, run.data, performed) == ("done", {"n": 1}, ["a"])
            if pointer is None:
                assert result.mode_used is StepMode.AGENT
            else:
                assert [one.pointer.startswith(pointer) for one in result.validation_details] == [True]

    async def test_what_rightly_varies_may_be_left_out_of_the_comparison(self, quick):
        """1.12: the step's own rules."""

        async def work(ctx):
            return {"names": ["a", "b"], "ms": 17, "text": "one  two"}

        rules = CompareRules(ignore=["/ms"], unordered=["/names"], text="whitespace")
        executor = scripted({"output": {"names": ["b", "a"], "ms": 4, "text": " one two"}})
        engine = await quick.engine(forms(work, compare=rules), dispatch=settings(executor, agent()))
        run = await engine.run("flow")
        assert (await result_of(engine, run.id)).mode_used is StepMode.AGENT
        assert run.data == {"names": ["b", "a"], "ms": 4, "text": " one two"}

    @pytest.mark.parametrize("answer", [FAULT, QUESTION])
    async def test_remarks_and_tags_of_a_compared_handler_are_kept_once(self, bench, answer):
        """D-17: it ran, and the run is to be the same as without the agent, whose outcome it may be."""

        async def work(ctx):
            await ctx.note("seen", by="handler")
            await ctx.tag("checked")
            return await triage(ctx)

        engine = await bench.engine(forms(work), dispatch=settings(scripted({"output": answer}), agent()))
        run = await engine.run("flow", MAIL)
        assert len(await notes(engine, run.id, "seen")) == 1
        assert (await engine.get(run.id)).tags == ["checked"]

    async def test_a_handler_with_children_is_not_run_for_a_check(self, bench):
        """D-17: what cannot be run without consequences is run for real, once."""
        started = []

        def child(ctx):
            started.append(ctx.run_id)
            return {"n": 1}

        async def work(ctx):
            result = await ctx.child("child", {}, key="c")
            return {"kind": "fault", "n": result.data.n}

        flow = forms(work)
        executor = scripted({"output": {"kind": "fault", "n": 1}})
        engine = await bench.engine(
            flow, one_step(child, name="child"), dispatch=settings(executor, agent(), step="flow/work")
        )
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, "kind": "fault", "n": 1}
        assert started == [f"{run.id}.c"]
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.VALIDATION_FAILURE

    async def test_a_hold_of_the_handler_holds_the_run(self, bench):
        """1.9: the handler wants a person; an agent that does not is refused, and agreed with afterwards."""

        async def work(ctx):
            if not ctx.answered():
                return Hold(question="Which?")
            return {"kind": ctx.answer()}

        executor = scripted(again({"kind": "fault"}))
        engine = await bench.engine(forms(work), dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.WAITING
        await answers.release(engine, run.id, "fault")
        run = await engine.finish(run.id)
        assert (run.status, run.data["kind"]) == (Status.SUCCEEDED, "fault")
        assert len(executor.calls) == 1, "what was answered before the wait is not asked for again"


async def later(inputs, proposal):
    return Verdict(proposal.plain["kind"] == "fault", ("/kind is not what the text says",))


def raises(inputs, proposal):
    raise KeyError("nothing")


def is_fault(inputs, proposal):
    return proposal.plain["kind"] == "fault"


class TestValidator:
    @pytest.mark.parametrize(
        ("validator", "accepts", "verdict"),
        [
            (lambda inputs, proposal: Verdict(True), True, None),
            (lambda inputs, proposal: Verdict(False, ["/kind is odd", "so is the rest"]), False,
             ["/kind is odd", "so is the rest"]),
            (lambda inputs, proposal: True, True, None),
            (lambda inputs, proposal: False, False, None),
            (lambda inputs, proposal: (True, ()), True, None),
            (lambda inputs, proposal: (False, "one word"), False, ["one word"]),
            (lambda inputs, proposal: (False, ["a", "b"]), False, ["a", "b"]),
            (lambda inputs, proposal: (False,), False, None),
            (lambda inputs, proposal: None, False, None),
            (later, False, ["/kind is not what the text says"]),
            (raises, False, ["the validator failed: KeyError: 'nothing'"]),
        ],
    )  # fmt: skip
    async def test_a_validator_answers_in_many_ways(self, quick, validator, accepts, verdict):
        """D-16, D-17, D-18: Verdict, truth value, tuple, async; one that raises has passed nothing."""
        work, calls = counted()
        executor = scripted({"output": QUESTION})
        engine = await quick.engine(forms(work, validator=validator), dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **(QUESTION if accepts else FAULT)}
        assert calls == ([] if accepts else [1]), "the handler is run only when it is needed"
        (move,) = await moves(engine, run.id)
        result = await result_of(engine, run.id)
        assert (result.check, result.agent_result_accepted) == (Check.VALIDATOR, accepts)
        assert move.detail.get("verdict") == verdict
        assert bool(result.validation_details) is not accepts

    async def test_a_validator_gets_the_inputs_and_the_typed_proposal(self, quick):
        """D-18: the step's deterministic side judges, on the same inputs."""
        seen = []

        def validator(inputs, proposal):
            seen.append((dict(inputs), proposal))
            return True

        executor = scripted({"output": FAULT})
        flow = forms(validator=validator, inputs=("text",), output_schema=Form)
        engine = await quick.engine(flow, dispatch=settings(executor, agent()))
        await engine.run("flow", {**MAIL, "more": 1})
        ((inputs, proposal),) = seen
        assert inputs == MAIL
        assert proposal.output == Form("fault", True)
        assert proposal.plain == FAULT
        assert (proposal.next, proposal.effects, proposal.reason) == (None, (), None)

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_a_validator_has_nothing_to_say_above_collaborator(self, quick, level):
        """D-19, D-21."""
        executor = scripted({"output": QUESTION})
        flow = forms(validator=raises)
        engine = await quick.engine(flow, dispatch=settings(executor, agent(level)))
        assert (await engine.run("flow", MAIL)).data == {**MAIL, **QUESTION}

    async def test_a_validators_reason_names_the_place_it_begins_with(self, quick, heard):
        """D-47: pointers, not words, reach the log."""

        def validator(inputs, proposal):
            return False, ["/kind: SENTINEL is no kind", "SENTINEL altogether"]

        executor = scripted({"output": QUESTION})
        engine = await quick.engine(forms(validator=validator), dispatch=settings(executor, agent()))
        await engine.run("flow", MAIL)
        assert heard.one("dispatch.autonomy_validation")["pointers"] == ["/kind", ""]
        assert "SENTINEL" not in str([one.line for one in heard.events])


class TestConsultantAndApprover:
    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_the_handler_is_not_called_when_the_agent_succeeds(self, bench, level):
        """D-19, D-21."""
        work, calls = counted()
        executor = scripted({"output": QUESTION})
        engine = await bench.engine(forms(work), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **QUESTION}
        assert calls == []
        result = await result_of(engine, run.id)
        assert result.check is (Check.CONTRACT if level == "consultant" else Check.NONE)
        assert result.handler_duration_ms is None

    @pytest.mark.parametrize(
        ("answer", "details"),
        [
            ({"kind": "fault", "urgent": "very"}, [("/urgent", "type")]),
            ({"urgent": True}, [("", "missing")]),
            ({"kind": "fault", "urgent": True, "more": 1}, [("", "extra")]),
            ({"kind": "fault"}, []),
        ],
    )
    async def test_soft_discrepancies_are_reported_and_the_answer_used(self, quick, answer, details, heard):
        """D-20, D-23."""
        engine = await quick.engine(
            forms(), dispatch=settings(scripted({"output": answer}), agent("consultant"))
        )
        run = await engine.run("flow", MAIL)
        assert run.data["urgent"] == answer.get("urgent", False)
        result = await result_of(engine, run.id)
        assert [(one.pointer, one.kind) for one in result.validation_details] == details
        verdict = heard.one("dispatch.autonomy_validation")
        assert (verdict["outcome"], verdict["discrepancies"]) == ("verified", len(details))
        assert verdict.level == (logging.WARNING if details else logging.INFO)

    async def test_an_approver_reports_nothing(self, quick, heard):
        """D-21, D-23: used as it is when no declared schema is violated."""
        executor = scripted({"output": {"urgent": "very"}})
        engine = await quick.engine(forms(), dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, "urgent": "very"}
        verdict = heard.one("dispatch.autonomy_validation")
        assert (verdict["check"], verdict["discrepancies"], verdict.level) == ("none", 0, logging.INFO)
        assert (await result_of(engine, run.id)).validation_details == ()

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize(
        ("replies", "reason"),
        [
            ([{"output": {"kind": 1}}] * 2, FallbackReason.SCHEMA_VIOLATION),
            ([{"error": "crash"}], FallbackReason.EXCEPTION),
        ],
    )
    async def test_no_level_lets_an_exception_or_a_violation_pass(self, quick, level, replies, reason):
        """D-22, D-23, D-28."""
        flow = forms(output_schema=KIND_ONLY)
        engine = await quick.engine(flow, dispatch=settings(scripted(*replies), agent(level)))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert (await result_of(engine, run.id)).fallback_reason is reason


class TestAdvice:
    async def test_more_trust_than_advised_warns_and_is_obeyed(self, quick, heard):
        """1.13: `max_autonomy` is advice, not a lock."""
        executor = scripted({"output": QUESTION})
        flow = forms(max_autonomy="consultant")
        engine = await quick.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL)
        assert run.data["kind"] == "question"
        assert {one["code"] for one in heard.named("config.doubtful")} == {"W006"}
        (move,) = await moves(engine, run.id)
        assert move.detail["max_autonomy"] == "consultant"

    async def test_levels_are_what_was_resolved_whatever_came_of_it(self, quick):
        """1.11."""
        for level in ("operator", *LEVELS):
            engine = await quick.engine(forms(), dispatch=settings(scripted(), agent(level)))
            run = await engine.run("flow", MAIL)
            assert (await result_of(engine, run.id)).autonomy_level is AutonomyLevel(level)


async def test_a_checked_step_leaves_one_answer_and_one_move(bench):
    """D-16: nothing of the check is in the journal but what came of it."""
    engine = await bench.engine(forms(), dispatch=settings(scripted({"output": FAULT}), agent()))
    run = await engine.run("flow", MAIL)
    assert await kinds(engine, run.id) == ["started", "recorded", "moved"]
