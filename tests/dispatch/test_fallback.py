"""The fallback: the handler's own result, once, on the same inputs, whatever the agent did."""

from __future__ import annotations

import asyncio
import logging

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.autonomy import FallbackReason, StepMode
from detent.dispatch.dispatcher import DispatchSettings, dispatcher_of
from detent.dispatch.execution import Execution
from detent.dispatch.executor import NO_MODEL, Availability
from detent.dispatch.executor_errors import DispatchError
from detent.engine.context import StepContext
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import StepFailed, Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
    LEVELS,
    MAIL,
    QUESTION,
    Form,
    agent,
    deterministic,
    error_of,
    forms,
    moves,
    result_of,
    scripted,
    settings,
    single,
    triage,
)
from tests.engine.conftest import flow_of, journal, kinds, until


def counted():
    """A handler that fills in the form, and a list of its calls."""
    calls = []

    async def work(ctx) -> Form:
        calls.append(ctx.attempt)
        return await triage(ctx)

    return work, calls


class TestOnce:
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize(
        ("replies", "reason", "config"),
        [
            ([{"error": "permanent"}], "exception", {}),
            ([{"error": "crash"}], "exception", {}),
            ([{"error": "transient"}] * 3, "exception", {}),
            ([{"error": "timeout"}] * 3, "timeout", {"timeout": 0.02}),
            ([{"output": {"kind": 1}}] * 3, "schema_violation", {}),
        ],
    )
    async def test_the_handler_runs_once_whatever_max_retries_says(
        self, bench, level, replies, reason, config, heard
    ):
        """D-26, D-27, D-28, D-32, D-46: one handler call, one fallback event, the handler's result."""
        work, calls = counted()
        executor = scripted(*replies)
        said = agent(level, retry_policy=RetryPolicy(3, 0, 0), **config)
        engine = await bench.engine(forms(work, output_schema=KIND_ONLY), dispatch=settings(executor, said))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert calls == [1]
        fallback = heard.one("dispatch.fallback")
        assert (fallback["reason"], fallback["fallback_succeeded"]) == (reason, True)
        assert fallback["step_name"] == "work"
        assert fallback["attempts"] == len(executor.calls)

    async def test_a_timeout_is_told_as_such_and_as_a_fallback(self, quick, heard):
        """D-27: both events name it."""
        executor = scripted({"error": "hang"})
        said = agent(timeout=0.02, retry_policy=RetryPolicy(1))
        engine = await quick.engine(forms(), dispatch=settings(executor, said))
        run = await engine.run("flow", MAIL)
        error = heard.one("executor.step_error")
        assert (error["error_type"], error["will_retry"]) == ("ExecutorTimeoutError", False)
        assert "0.02 s" in error["error"]
        assert heard.one("dispatch.fallback")["reason"] == "timeout"
        result = await result_of(engine, run.id)
        assert (result.agent_error.type, result.agent_called) == ("ExecutorTimeoutError", True)

    async def test_a_violation_is_told_by_place_and_expectation(self, quick, heard):
        """D-28: what was violated is in the log and the journal; what the agent wrote is in neither."""
        executor = scripted({"output": {"kind": ["SENTINEL"]}}, {"output": {"kind": ["SENTINEL"]}})
        engine = await quick.engine(forms(output_schema=KIND_ONLY), dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert "/kind: must be a string" in heard.named("executor.step_error")[-1]["error"]
        assert "SENTINEL" not in str([one.line for one in heard.above_debug()])
        result = await result_of(engine, run.id)
        assert "/kind: must be a string" in result.agent_error.message
        assert "SENTINEL" not in result.agent_error.message

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_missing_executor_is_named_in_a_warning(self, quick, level, heard):
        """D-31: none configured, none that can be had, one of another name."""
        flow = forms()
        silent = ScriptedStepExecutor([{"output": 1}], unavailable="KEY is not set")
        other = ScriptedSource({"claude": scripted({"output": FAULT})})
        for source, provider, why in [
            (None, None, NO_MODEL),
            (ScriptedSource({}), None, NO_MODEL),
            (ScriptedSource({"claude": silent}), "claude", "KEY is not set"),
            (other, "cloude", "There is no executor 'cloude'"),
        ]:
            heard.events.clear()
            engine = await quick.engine(flow, dispatch=settings(source, agent(level, provider=provider)))
            run = await engine.run("flow", MAIL)
            assert run.data == {**MAIL, **FAULT}
            warning = heard.one("dispatch.no_executor")
            assert warning.level == logging.WARNING
            assert (warning["provider"], why in warning["why_not"]) == (provider, True)
            assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.NO_EXECUTOR

    async def test_an_executor_that_cannot_even_say_whether_it_is_available_is_not(self, quick, heard):
        """D-31, D-34: a broken executor is a missing one."""

        class Broken(ScriptedStepExecutor):
            def available(self) -> Availability:
                raise OSError("no such socket")

        engine = await quick.engine(forms(), dispatch=settings(Broken([{"output": 1}]), agent()))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert heard.sequence() == "M no_executor F D"

    async def test_inputs_no_prompt_can_hold_lead_to_the_handler(self, quick, heard):
        """D-34: the handler does not mind what an agent could not be told."""
        flow = forms(inputs=lambda ctx: {"handle": object()})
        executor = scripted({"output": FAULT})
        engine = await quick.engine(flow, dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.data) == (Status.SUCCEEDED, {**MAIL, **FAULT})
        assert executor.calls == []
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.EXCEPTION


async def executed(bench, flow, dispatch, data=None):
    """One execution of the step `work`, outside of a driver's loop, where its error can be looked at."""
    engine = await bench.engine(flow, dispatch=dispatch)
    driver = await engine.active.create(engine.flow(flow.name), data or {}, "alone", None, (), None, {})
    dispatcher = dispatcher_of(engine)
    plan = dispatcher.assign(flow, driver.run)
    return await Execution(
        dispatcher, dispatcher.evidence, driver, plan, StepContext(driver, plan.step, 1)
    ).perform()


class TestBothFail:
    async def test_the_error_names_both_and_comes_from_the_handlers(self, quick, heard):
        """D-30."""

        def work(ctx):
            raise LookupError("no such device")

        executor = scripted({"error": {"type": "permanent", "message": "quota"}})
        with pytest.raises(DispatchError) as caught:
            await executed(quick, forms(work), settings(executor, agent("approver")), MAIL)
        error = caught.value
        assert isinstance(error.__cause__, LookupError)
        assert (error.step_name, error.reason) == ("work", FallbackReason.EXCEPTION)
        assert "quota" in str(error)
        assert "LookupError: no such device" in str(error)
        assert heard.sequence() == "M S R F failed"
        assert heard.one("dispatch.fallback")["fallback_succeeded"] is False
        failed = heard.one("dispatch.failed")
        assert failed.level == logging.ERROR
        assert (failed["reason"], failed["agent_error_type"], failed["handler_error_type"]) == (
            "exception", "ExecutorError", "LookupError",
        )  # fmt: skip

    async def test_nothing_else_is_tried(self, bench):
        """D-30: the run ends as failed, after one attempt of each."""
        calls = []

        def work(ctx):
            calls.append(1)
            raise LookupError("no such device")

        executor = scripted({"error": "permanent"}, {"output": FAULT})
        engine = await bench.engine(forms(work), dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert run.status is Status.FAILED
        assert (await error_of(engine, run.id)).startswith("DispatchError: Step 'work' failed twice.")
        assert (len(calls), len(executor.calls)) == (1, 1)

    @pytest.mark.parametrize("reason", ["operator", "no_executor", "no_intent"])
    async def test_an_agent_that_was_not_called_leaves_the_handlers_own_error(self, quick, reason, heard):
        """1.11: unchanged, with a note that names the reason."""

        def work(ctx):
            raise LookupError("no such device")

        source = None if reason == "no_executor" else scripted({"output": FAULT})
        flow = forms(work, intent="" if reason == "no_intent" else INTENT)
        level = "operator" if reason == "operator" else "approver"
        with pytest.raises(LookupError, match="no such device") as caught:
            await executed(quick, flow, settings(source, agent(level)), MAIL)
        assert reason in caught.value.__notes__[0]
        assert heard.sequence() == f"M {reason}{'_fallback' if reason == 'operator' else ''} F failed"
        assert heard.one("dispatch.fallback")["fallback_succeeded"] is False

    async def test_the_run_then_ends_as_without_an_agent(self, bench):
        """D-34."""

        def work(ctx):
            raise LookupError("no such device")

        flow = forms(work)
        plain = await deterministic(bench, flow, MAIL)
        engine = await bench.engine(flow, dispatch=settings(None, agent()))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.reason, run.error) == (plain.status, plain.reason, plain.error)

    async def test_success_false_fails_the_step_whoever_says_it(self, quick):
        """D-36."""

        def work(ctx):
            return {"success": False, "error": "out of paper"}

        with pytest.raises(StepFailed, match="out of paper"):
            await executed(quick, forms(work, into="print"), DispatchSettings())
        executor = scripted({"output": {"success": False}})
        with pytest.raises(DispatchError) as caught:
            await executed(quick_again(quick), forms(work), settings(executor, agent("approver")))
        assert isinstance(caught.value.__cause__, StepFailed)
        assert caught.value.reason is FallbackReason.EXCEPTION


def quick_again(bench):
    """A bench like this one, with nothing in it yet."""
    return type(bench)(bench.kind, bench.path.parent)


class TestRetryOfTheHandler:
    async def test_a_transient_error_after_a_fallback_retries_the_handler_alone(self, bench):
        """D-32: the step's own retry is the handler's; the agent is not asked again."""
        calls = []

        def work(ctx):
            calls.append(ctx.attempt)
            if len(calls) < 3:
                raise Transient("busy")
            return FAULT

        executor = scripted({"error": "permanent"}, {"output": QUESTION})
        flow = forms(work, retry=RetryPolicy(3, 0, 0))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert calls == [1, 2, 3]
        assert len(executor.calls) == 1
        result = await result_of(engine, run.id)
        assert (result.fallback_reason, result.attempts) == (FallbackReason.EXCEPTION, 1)

    async def test_a_transient_error_in_the_check_retries_the_handler_alone(self, bench):
        """D-32, 1.9: at collaborator the agent's answer is kept for the next attempt."""
        calls = []

        def work(ctx):
            calls.append(ctx.attempt)
            if len(calls) < 2:
                raise Transient("busy")
            return FAULT

        executor = scripted({"output": FAULT})
        flow = forms(work, retry=RetryPolicy(3, 0, 0))
        engine = await bench.engine(flow, dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert (calls, len(executor.calls)) == ([1, 2], 1)
        assert (await result_of(engine, run.id)).mode_used is StepMode.AGENT


class TestQueries:
    @pytest.mark.parametrize("private", [False, True])
    @pytest.mark.parametrize(
        ("level", "reply"),
        [
            ("collaborator", {"output": {"kind": "k1k2"}}),
            ("collaborator", {"output": {"kind": "other"}}),
            ("approver", {"error": "permanent"}),
        ],
    )
    async def test_each_question_is_asked_once_by_whoever_asks_it(self, bench, private, level, reply):
        """D-33: agent and handler share the answers of one execution, also of private tools."""
        asked = []

        def find(key: str) -> str:
            asked.append(key)
            return f"k{key}"

        async def work(ctx):
            return {"kind": await ctx.query("find", key="1") + await ctx.query("find", key="2")}

        flow = single(
            Step("work", work, INTENT, queries=("find",)),
            tools=[Tool("find", find, "query", private=private)],
        )
        calls = [{"tool": "find", "args": {"key": "1"}}, {"tool": "find", "args": {"key": "1"}}]
        executor = scripted({**reply, "calls": calls})
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow", MAIL)
        assert run.data["kind"] == "k1k2"
        assert sorted(asked) == ["1", "2"]
        (move,) = await moves(engine, run.id)
        assert len(move.looked) == 2

    async def test_inputs_are_worked_out_once(self, quick):
        """D-33: the agent, the validator and an opaque call get the same ones."""
        made = []

        def inputs(ctx):
            made.append(1)
            return {"text": ctx.data.text}

        flow = forms(inputs=inputs, validator=lambda inputs, proposal: False)
        executor = scripted({"output": QUESTION})
        engine = await quick.engine(flow, dispatch=settings(executor, agent()))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **FAULT}
        assert made == [1]


class TestCancellation:
    async def test_an_attempt_that_is_stopped_is_no_reason_to_fall_back(self, bench, heard):
        """D-35: the engine stops in the middle of an attempt; the next one goes on from there."""
        work, calls = counted()
        flow = forms(work)
        hanging = scripted({"error": "hang"})
        first = await bench.engine(flow, dispatch=settings(hanging, agent("approver")))
        run_id = await first.start("flow", MAIL)
        await until(lambda: hanging.calls)
        await first.stop(grace=0)
        assert calls == []
        assert not heard.named("dispatch.fallback")
        second = await bench.engine(
            flow, dispatch=settings(scripted({"output": QUESTION}), agent("approver"))
        )
        assert await kinds(second, run_id) == ["started"]
        run = await second.finish(run_id)
        assert (run.status, run.data) == (Status.SUCCEEDED, {**MAIL, **QUESTION})
        assert calls == []

    async def test_an_executor_that_is_cancelled_from_inside_leaves_the_run_to_be_resumed(self, bench, heard):
        """D-35."""
        work, calls = counted()
        executor = scripted({"error": "cancel"}, {"output": QUESTION})
        engine = await bench.engine(forms(work), dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL)
        assert run.data == {**MAIL, **QUESTION}
        assert (calls, len(executor.calls)) == ([], 2)
        assert not heard.named("dispatch.fallback")

    async def test_a_run_that_is_cancelled_falls_back_on_nothing(self, bench, heard):
        """D-35."""
        work, calls = counted()
        hanging = scripted({"error": "hang"})
        engine = await bench.engine(forms(work), dispatch=settings(hanging, agent("approver")))
        run_id = await engine.start("flow", MAIL)
        await until(lambda: hanging.calls)
        await engine.cancel(run_id)
        assert (await engine.finish(run_id)).status is Status.CANCELLED
        assert calls == []
        assert not heard.named("dispatch.fallback")

    async def test_a_kept_answer_is_not_asked_for_again_after_a_stop(self, bench):
        """D-35: stopped in the handler's check, the agent's answer is in the journal."""
        entered = asyncio.Event()

        def make(stuck):
            async def work(ctx):
                if stuck:
                    entered.set()
                    await asyncio.Event().wait()
                return FAULT

            return forms(work)

        first = await bench.engine(
            make(True), dispatch=settings(scripted({"output": FAULT, "usage": {"input_tokens": 7}}), agent())
        )
        run_id = await first.start("flow", MAIL)
        await entered.wait()
        await first.stop(grace=0)
        executor = scripted({"output": QUESTION})
        second = await bench.engine(make(False), dispatch=settings(executor, agent()))
        run = await second.finish(run_id)
        assert executor.calls == []
        assert (await moves(second, run_id))[0].by == "agent"
        assert run.total_spend.tokens == 7


def posting(handler_posts=("good",), *, fails=("bad",)):
    """A flow whose step posts letters, and the list of those that were really posted."""
    posted, tried = [], []

    def post(what: str) -> dict:
        tried.append(what)
        if what in fails:
            raise ToolError("refused", f"will not post {what}")
        posted.append(what)
        return {"number": len(posted)}

    async def work(ctx):
        if ctx.failure is not None:
            return {"kind": "gave up"}
        return Outcome(
            set={"kind": "handler"}, effects=[Effect("post", {"what": one}) for one in handler_posts]
        )

    step = Step("work", work, INTENT, effects=("post",))
    return single(step, tools=[Tool("post", post)]), posted, tried


def proposing(*what):
    return {"calls": [{"tool": "post", "args": {"what": one}} for one in what]}


class TestEffects:
    async def test_an_agents_effect_that_fails_before_any_was_performed_leads_to_the_handler(
        self, bench, heard
    ):
        """1.13: reason exception; what the handler wants is performed."""
        flow, posted, _ = posting()
        executor = scripted({"output": proposing("bad", "more")})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert (run.status, run.data, posted) == (Status.SUCCEEDED, {"kind": "handler"}, ["good"])
        result = await result_of(engine, run.id)
        assert (result.fallback_reason, result.agent_called) == (FallbackReason.EXCEPTION, True)
        assert result.agent_error.type == "ToolError"
        assert len(executor.calls) == 1
        assert heard.sequence() == "M S R F D"

    async def test_an_agents_effect_that_fails_after_another_was_performed_is_a_question(self, bench):
        """1.13: what is done is done, so the handler does not begin anew over it."""
        flow, posted, tried = posting()
        executor = scripted({"output": proposing("first", "bad", "last")})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert (run.status, posted, tried) == (Status.WAITING, ["first"], ["first", "bad"])
        await engine.release(run.id, "fail", hold=run.token("diverged"))
        run = await engine.finish(run.id)
        assert (run.status, posted) == (Status.FAILED, ["first"])
        assert "would not do: 'post'" in await error_of(engine, run.id)

    async def test_a_handler_that_wants_the_same_ends_as_without_an_agent(self, bench):
        """D-34: an agent's try at what nobody can have is no reason for the handler to give up early."""
        flow, posted, _ = posting(("bad",))
        plain = await deterministic(bench, flow)
        executor = scripted({"output": proposing("bad")})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert (run.status, run.data, posted) == (plain.status, plain.data, [])
        assert run.data == {"kind": "gave up"}
        assert len(executor.calls) == 1

    async def test_a_handlers_own_effect_that_fails_after_a_fallback_is_its_own_affair(self, bench):
        """D-32, D-34: it is asked once more and told why; the agent is not asked again."""
        flow, posted, _ = posting(("bad",))
        executor = scripted({"error": "permanent"}, {"output": proposing("good")})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert (run.data, posted, len(executor.calls)) == ({"kind": "gave up"}, [], 1)
        result = await result_of(engine, run.id)
        assert (result.fallback_reason, result.attempts) == (FallbackReason.EXCEPTION, 1)

    @pytest.mark.parametrize("through", ["answer", "toolbox"])
    async def test_a_value_that_a_receipt_holds_is_never_taken_from_the_agent(self, bench, through):
        """1.13: act, then say; and what is said of an effect is what its receipt says."""
        flow, posted, _ = posting()
        claimed = {"output": {"number": 77, "kind": "agent"}}
        if through == "answer":
            replies = [{"output": proposing("x")}, claimed]
        else:
            replies = [{**claimed, "calls": [{"tool": "post", "args": {"what": "x"}}]}]
        engine = await bench.engine(flow, dispatch=settings(scripted(*replies), agent("approver")))
        run = await engine.run("flow")
        assert (run.status, posted) == (Status.SUCCEEDED, ["x"])
        assert run.data == {"number": 1, "kind": "agent"}

    async def test_allowed_tools_narrow_what_may_be_proposed(self, quick, heard):
        """1.2: `[]` means none."""
        flow, posted, _ = posting()
        reply = {"output": {"kind": "agent"}, "calls": [{"tool": "post", "args": {"what": "x"}}]}
        executor = scripted(reply, reply)
        engine = await quick.engine(flow, dispatch=settings(executor, agent("approver", allowed_tools=[])))
        run = await engine.run("flow")
        assert executor.calls[0].tools == ()
        assert "ALLOWED" not in executor.calls[0].prompt
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.SCHEMA_VIOLATION
        assert posted == ["good"]


class TestOpaque:
    @staticmethod
    def flow(**options):
        called = []

        async def work(ctx):
            called.append(ctx.data.text)
            return {"n": len(called)}

        return single(Step("work", work, INTENT, opaque=True, into="receipt", **options)), called

    async def test_it_is_performed_once_through_the_ledger(self, bench):
        """1.13: deterministic."""
        flow, called = self.flow()
        engine = await bench.engine(flow)
        run = await engine.run("flow", MAIL)
        assert (run.data["receipt"], called) == ({"n": 1}, ["it is broken!"])
        assert await kinds(engine, run.id) == [
            "started", "proposed", "effect_begun", "effect_done", "moved",
        ]  # fmt: skip

    @pytest.mark.parametrize("level", LEVELS)
    async def test_it_is_never_run_for_a_check(self, bench, level):
        """1.13: at collaborator the call itself is what is compared."""
        flow, called = self.flow()
        engine = await bench.engine(flow, dispatch=settings(scripted({"output": {"n": 9}}), agent(level)))
        run = await engine.run("flow", MAIL)
        result = await result_of(engine, run.id)
        if level == "collaborator":
            assert result.fallback_reason is FallbackReason.VALIDATION_FAILURE
            assert (run.data["receipt"], len(called)) == ({"n": 1}, 1)
        else:
            assert (run.data["receipt"], called) == ({"n": 9}, [])

    async def test_a_fallback_performs_it_once(self, bench):
        """D-32."""
        flow, called = self.flow()
        engine = await bench.engine(flow, dispatch=settings(scripted({"error": "crash"}), agent()))
        run = await engine.run("flow", MAIL)
        assert (run.data["receipt"], len(called)) == ({"n": 1}, 1)
        effects = [entry for entry in await journal(engine, run.id) if entry.kind == "effect_done"]
        assert len(effects) == 1

    async def test_it_may_declare_effects_for_agents_to_propose(self, bench):
        """1.13: what an agent may propose in its place says nothing about the call itself."""
        posted = []
        called = []

        async def work(ctx):
            called.append(1)
            return {"n": 1}

        flow = single(
            Step("work", work, INTENT, opaque=True, into="receipt", effects=("post",)),
            tools=[Tool("post", lambda what: posted.append(what))],
        )
        run = await deterministic(bench, flow, MAIL)
        assert (run.status, called) == (Status.SUCCEEDED, [1])
        acting = {"output": {"calls": [{"tool": "post", "args": {"what": "x"}}]}}
        executor = scripted(acting, {"output": {"n": 2}})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL)
        assert (run.data["receipt"], posted, called) == ({"n": 2}, ["x"], [1])

    async def test_a_call_that_fails_fails_the_step(self, bench):
        """D-36, 1.13: it says itself that it failed; it is not tried again."""
        called = []

        async def work(ctx):
            called.append(1)
            raise LookupError("no such printer")

        flow = single(Step("work", work, INTENT, opaque=True, into="receipt"))
        for dispatch in (DispatchSettings(), settings(scripted({"error": "crash"}), agent())):
            called.clear()
            engine = await bench.engine(flow, dispatch=dispatch)
            run = await engine.run("flow", MAIL)
            assert (run.status, called) == (Status.FAILED, [1])
            assert "no such printer" in await error_of(engine, run.id)


async def test_a_fallback_is_journaled_with_reason_and_error(bench):
    """1.15."""
    executor = scripted({"error": {"type": "permanent", "message": "quota"}})
    engine = await bench.engine(forms(), dispatch=settings(executor, agent()))
    run = await engine.run("flow", MAIL)
    (move,) = await moves(engine, run.id)
    assert move.by == "handler"
    assert move.detail["fallback_reason"] == "exception"
    assert move.detail["agent_error"] == {"type": "ExecutorError", "message": "quota"}
    assert move.detail["agent_called"] is True


async def test_two_steps_fall_back_each_for_itself(quick):
    """D-32: a fallback of one step says nothing about the next."""
    flow = flow_of(
        {"a": ["b"], "b": ["done"]},
        {"a": Step("a", lambda ctx: {"a": 1}, INTENT), "b": Step("b", lambda ctx: {"b": 1}, INTENT)},
    )
    executor = ScriptedStepExecutor({"a": {"error": "crash"}, "b": {"output": {"b": 1}}})
    engine = await quick.engine(flow, dispatch=settings(executor, steps={"a": agent(), "b": agent()}))
    run = await engine.run("flow")
    assert run.data == {"a": 1, "b": 1}
    assert (await result_of(engine, run.id, "a")).fallback_used
    assert (await result_of(engine, run.id, "b")).mode_used is StepMode.AGENT
