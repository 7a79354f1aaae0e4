"""A recorded executor gives an agent's earlier answers again, failures and tool calls included."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.adapters.cassette import Recorder
from detent.adapters.models.recorded import RecordedAnswer, RecordedStepExecutor
from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agent_tools import AgentTools, declared_tools
from detent.dispatch.autonomy import AutonomyLevel, FallbackReason, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.conversation import Opaque
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.executor import ConversationExecutor, ReplyRequest, StepExecutor, converses
from detent.dispatch.executor_errors import ExecutorError, ExecutorTimeoutError, OutputSchemaValidationError
from detent.dispatch.usage import UsageMetadata
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.ports import TapeCall
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.entries import Entry, Migrated, Moved, Noted, Recorded, Reopened, Started
from detent.kernel.errors import ConfigurationError
from detent.kernel.machine import Machine
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from tests.adapters.models.server import Server
from tests.adapters.models.server import said as server_said
from tests.adapters.models.talk import Heard, call, whole
from tests.adapters.models.test_acting_over_http import DONE, calling, finished, model
from tests.dispatch.test_acting import World, running


async def ask(executor: StepExecutor, step: str = "work", **more: Any) -> Any:
    return await executor.execute(step_name=step, agent_name="dispatch", prompt="do it", **more)


def journal(*bodies: Any) -> list[Entry]:
    started = Started("flow", "first", "machine", 1, "f")
    return [Entry(seq, 0.0, 1, body) for seq, body in enumerate((started, *bodies), 1)]


def said(output: Any, attempt: int = 1, **more: Any) -> Recorded:
    return Recorded(f"agent/{attempt}/abc", {"request": "abc", "output": output, **more})


def failed(**error: Any) -> RecordedStepExecutor:
    value = {"error": error, "usage": {"input_tokens": 2}, "ms": 1500.0}
    return RecordedStepExecutor([RecordedAnswer("work", "entry 1", value)])


async def test_answers_are_given_in_order_to_the_step_whose_state_the_run_was_in():
    executor = RecordedStepExecutor.from_entries(
        journal(
            said("a1"),
            Noted("aside"),
            Recorded("turn/xyz", {"text": "not an answer of its own"}),
            Recorded("shadow/1/abc", {"output": "nor this"}),
            Moved("first", "second"),
            said("b1"),
            Moved("second", "first"),
            said("a2"),
            Migrated(2, "g", "third"),
            said("c1"),
            Reopened("second"),
            said("b2"),
        )
    )
    assert executor.left() == {"first": 2, "second": 2, "third": 1}
    for step, output in [
        ("first", "a1"),
        ("second", "b1"),
        ("second", "b2"),
        ("first", "a2"),
        ("third", "c1"),
    ]:
        assert (await ask(executor, step)).output == output
    assert executor.left() == {}
    with pytest.raises(ExecutorError, match="left for step 'first': there were 2") as caught:
        await ask(executor, "first")
    assert not caught.value.transient


async def test_steps_may_be_called_otherwise_than_their_states():
    executor = RecordedStepExecutor.from_entries(journal(said(1)), {"first": "judge"})
    with pytest.raises(ExecutorError, match="No answer is recorded for step 'first'.*judge"):
        await ask(executor, "first")
    assert (await ask(executor, "judge")).output == 1


async def test_an_answer_tells_what_it_cost_when_it_was_given():
    executor = RecordedStepExecutor.from_entries(
        journal(
            said({"a": [1]}, usage={"input_tokens": 3, "total_cost_usd": 0.5}, model_id="m", ms=2.0),
            said(2, usage={"input_tokens": 1}, turns={"input_tokens": 10, "output_tokens": 5}),
            said(3, turns={"output_tokens": 5}),
            said(4, success=False),
        )
    )
    first = await ask(executor, "first")
    assert (first.output, first.success, first.model_id) == ({"a": [1]}, True, "m")
    assert first.usage == UsageMetadata(3, total_cost_usd=0.5)
    assert (await ask(executor, "first")).usage == UsageMetadata(11, 5)
    assert (await ask(executor, "first")).usage == UsageMetadata(0, 5)
    last = await ask(executor, "first")
    assert (last.success, last.usage) == (False, None)


def test_it_can_always_be_asked_and_costs_nothing():
    executor = RecordedStepExecutor([])
    assert isinstance(executor, StepExecutor)
    assert executor.available().ok
    assert executor.priced("anything")


async def test_a_failed_attempt_fails_again_and_the_next_one_answers():
    error = {"type": "ExecutorError", "message": "busy", "reason": "exception", "transient": True}
    executor = RecordedStepExecutor.from_entries(
        journal(Recorded("agent/1/abc", {"error": {**error, "retry_after": 3.0}}), said("fine", attempt=2))
    )
    with pytest.raises(ExecutorError, match="busy") as caught:
        await ask(executor, "first")
    assert (caught.value.transient, caught.value.retry_after) == (True, 3.0)
    assert (await ask(executor, "first")).output == "fine"


async def test_a_timeout_is_a_timeout_again():
    with pytest.raises(ExecutorTimeoutError) as caught:
        await ask(failed(type="ExecutorTimeoutError", message="too slow", reason="timeout", transient=True))
    error = caught.value
    assert (str(error), error.timeout, error.transient) == ("too slow", 1.5, True)
    assert (error.usage, error.reason) == (UsageMetadata(2), FallbackReason.TIMEOUT)


async def test_a_broken_contract_is_broken_again_in_the_same_places():
    executor = failed(
        type="OutputSchemaValidationError",
        message="does not fit",
        reason="schema_violation",
        problems=["/a: missing: b"],
    )
    with pytest.raises(OutputSchemaValidationError, match="does not fit") as caught:
        await ask(executor)
    assert caught.value.validation_errors == ("/a: missing: b",)
    assert caught.value.usage == UsageMetadata(2)


@pytest.mark.parametrize(
    ("kind", "reason"), [("RuntimeError", "exception"), ("BudgetExhaustedError", "budget")]
)
async def test_somebody_elses_exception_keeps_its_name_and_reason(kind, reason):
    with pytest.raises(ExecutorError, match="broke") as caught:
        await ask(failed(type=kind, message="broke", reason=reason))
    assert type(caught.value).__name__ == kind
    assert (caught.value.reason.value, caught.value.transient) == (reason, False)


@pytest.mark.parametrize(
    "value", [None, {}, {"output": 1, "error": {}}, {"error": "x"}, {"error": {"reason": "?"}}]
)
def test_what_is_no_agents_answer_is_refused_with_its_place(value):
    with pytest.raises(ConfigurationError, match="^entry 2: "):
        RecordedStepExecutor.from_entries(journal(Recorded("agent/1/abc", value)))


@pytest.mark.parametrize("part", ["acted", "proposed"])
async def test_recorded_effects_are_called_for_again_through_the_toolbox(part):
    """An executor never performs an effect: D-59. Older journals call the effects `proposed`."""
    calls = [{"tool": "mail.send", "args": {"to": "a"}}, {"tool": "mail.send", "args": {"to": "a"}}]
    performed: list[str] = []
    called: list[Effect] = []
    executor = RecordedStepExecutor.from_entries(journal(said("done", **{part: calls})))

    async def act(effect: Effect) -> Any:
        called.append(effect)

    async def handler(ctx: Any) -> Outcome:
        toolbox = AgentTools(ctx, declared_tools(ctx.step, ctx.tools, None), act)
        await ask(executor, "first", toolbox=toolbox)
        return Outcome("done")

    def send(to: str) -> None:
        performed.append(to)

    machine: Machine[str] = Machine("one", start="work", moves={"work": ["done"]}, ends=["done"])
    flow = Flow(
        machine, {"work": Step("work", handler, effects=("mail.send",))}, tools=[Tool("mail.send", send)]
    )
    async with Engine(MemoryStore(), [flow]) as engine:
        run = await engine.run("one")
    assert run.error is None
    assert called == [Effect("mail.send", {"to": "a"})] * 2
    assert performed == []


async def test_a_reply_that_called_tools_calls_them_again():
    calls = [{"tool": "mail.send", "args": {"to": "a"}}]
    executor = RecordedStepExecutor.from_entries(journal(said("", calls=calls)))
    assert (await ask(executor, "first")).output == {"calls": calls}


async def run_notify(executor: StepExecutor, sent: list[str]) -> tuple[Run, list[Entry]]:
    """A run whose only step an agent performs."""

    async def handler(ctx: Any) -> dict[str, str]:
        return {"kind": "question"}

    def send(to: str) -> None:
        sent.append(to)

    by_agent = StepConfig(
        mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER, retry_policy=RetryPolicy(3, 0, 0)
    )
    step = Step("notify", handler, "Tell whoever needs to know.", effects=("mail.send",), config=by_agent)
    machine: Machine[str] = Machine("one", start="work", moves={"work": ["done"]}, ends=["done"])
    flow = Flow(machine, {"work": step}, tools=[Tool("mail.send", send)])
    dispatch = DispatchSettings(executors=ScriptedSource(executor))
    async with Engine(MemoryStore(), [flow], dispatch=dispatch) as engine:
        run = await engine.run("one")
        return run, await engine.store.entries(run.id)


async def test_a_journal_replayed_ends_where_the_run_ended():
    script = [
        {"error": {"type": "rate_limit", "retry_after": 0}, "usage": {"input_tokens": 1}},
        {"text": "no JSON", "usage": {"input_tokens": 2}},
        {
            "output": {"kind": "fault"},
            "calls": [{"tool": "mail.send", "args": {"to": "a"}}],
            "usage": {"input_tokens": 4, "cost_usd": 0.25},
        },
    ]
    sent: list[str] = []
    scripted = ScriptedStepExecutor({"notify": script})
    first, entries = await run_notify(scripted, sent)
    assert (first.error, first.data, sent) == (None, {"kind": "fault"}, ["a"])
    assert len(scripted.calls) == 3
    recorded = RecordedStepExecutor.from_entries(entries, {"work": "notify"})
    assert recorded.left() == {"notify": 3}
    second, _ = await run_notify(recorded, sent)
    assert (second.status, second.data, second.spend) == (first.status, first.data, first.spend)
    assert recorded.left() == {}
    assert sent == ["a", "a"]


async def test_effects_without_tools_are_an_error():
    executor = RecordedStepExecutor.from_entries(journal(said(1, proposed=[{"tool": "x", "args": {}}])))
    with pytest.raises(ExecutorError, match="entry 2.*no tools were given"):
        await ask(executor, "first")


async def test_a_cassette_holds_answers_too(tmp_path):
    path = tmp_path / "run.cassette"
    values: list[Any] = [
        {"output": 1},
        {"record": {"output": 2, "usage": {"input_tokens": 1}}, "made": {}, "looked": []},
        {"error": {"type": "ExecutorError", "message": "no", "reason": "exception"}},
    ]
    with Recorder(path) as recorder:
        for value in values:

            async def work(value: Any = value) -> Any:
                return value

            await recorder.through(TapeCall("agent", "", "judge", "m", {}), work)
        await recorder.through(TapeCall("query", "", "judge", "look", {}), work)

        async def broken() -> Any:
            raise RuntimeError("kaput")

        with pytest.raises(RuntimeError):
            await recorder.through(TapeCall("agent", ".child", "judge", "m", {}), broken)
    executor = RecordedStepExecutor.from_cassette(path)
    assert executor.left() == {"judge": 4}
    assert (await ask(executor, "judge")).output == 1
    second = await ask(executor, "judge")
    assert (second.output, second.usage) == (2, UsageMetadata(1))
    for message in ("no", "kaput"):
        with pytest.raises(ExecutorError, match=message):
            await ask(executor, "judge")


class TestMessages:
    """Recorded messages of an agent that was talked to are given as it wrote them."""

    CALLS = ({"tool": "read", "args": {"path": "a"}}, {"tool": "bash", "args": '{"command": '})
    OPAQUE = ("anthropic", "m", '{"signature": "x"}')

    def executor(self, *answers: Recorded) -> RecordedStepExecutor:
        return RecordedStepExecutor.from_entries(journal(*answers))

    async def test_text_beside_calls_and_calls_that_cannot_be_read_are_there(self):
        opaque = dict(zip(("provider", "model", "data"), self.OPAQUE, strict=True))
        usage = {"input_tokens": 3}
        executor = self.executor(
            said("I look.", calls=[*self.CALLS], opaque=opaque, model_id="m", usage=usage),
            said("Half", 2, cut=True),
            said("Done.", 3),
            said("I will not.", 4, finish="filter"),
        )
        assert isinstance(executor, ConversationExecutor)
        heard = Heard()
        first, cut, last, withheld = [await executor.reply(request(heard)) for _ in range(4)]
        assert (first.text, first.finish, first.model_id) == ("I look.", "tool", "m")
        assert [(call.name, call.arguments) for call in first.calls] == [
            ("read", {"path": "a"}),
            ("bash", '{"command": '),
        ]
        assert (first.opaque, first.usage) == (Opaque(*self.OPAQUE), UsageMetadata(3))
        assert (cut.text, cut.finish, cut.calls) == ("Half", "length", ())
        assert (last.text, last.finish, last.usage) == ("Done.", "stop", UsageMetadata())
        assert (withheld.text, withheld.finish) == ("I will not.", "filter")
        assert [text for text, _ in heard.chunks] == ["I look.", "Half", "Done.", "I will not."]
        assert executor.left() == {}

    async def test_a_failure_is_raised_again_and_the_next_message_follows(self):
        error = {"type": "ExecutorError", "message": "gone", "transient": True}
        failure = Recorded("agent/1/abc", {"error": error, "usage": {"input_tokens": 2}})
        executor = self.executor(failure, said("Done.", 2))
        assert isinstance(executor, ConversationExecutor)
        with pytest.raises(ExecutorError, match="gone") as caught:
            await executor.reply(request())
        assert caught.value.transient
        assert (await executor.reply(request())).text == "Done."
        with pytest.raises(ExecutorError, match="left for step 'first'"):
            await executor.reply(request())

    @pytest.mark.parametrize(
        "answer",
        [
            said({"fault": True}),
            said("x", acted=[{"tool": "write", "args": {}}]),
            said("x", looked=[{"tool": "read", "args": {}, "answer": 1}]),
            said("x", success=False),
        ],
    )
    def test_an_agent_with_a_loop_of_its_own_is_no_partner_in_a_conversation(self, answer):
        """What it carried out itself has to be carried out again."""
        assert not converses(self.executor(said("Hello."), answer))
        assert not converses(self.executor())

    async def test_a_run_with_a_model_ends_the_same_again(self, tmp_path):
        """From the journal and from a cassette, through the whole of dispatch."""
        replies = [
            calling(("read", {}), ("run", "{")),
            whole({"content": "I run it.", "tool_calls": [call("run", '{"command": "make test"}')]}),
            server_said(json.dumps(DONE)),
        ]
        tape = tmp_path / "tape.yaml"
        world, ends = World(), []
        async with Server(*replies) as server:
            with Recorder(tape) as recorder:
                flow = running(world, side=AgentSide(rounds=3))
                first, entries = await finished(flow, model(server), tape=recorder)
        for executor in (
            RecordedStepExecutor.from_entries(entries),
            RecordedStepExecutor.from_cassette(tape),
        ):
            assert converses(executor)
            again = World()
            run, journal_ = await finished(running(again, side=AgentSide(rounds=3)), executor)
            assert executor.left() == {}
            assert again.ran == world.ran
            recorded = [entry.body.value for entry in journal_ if isinstance(entry.body, Recorded)]
            ends.append((run.data, run.spend, [(one.get("output"), one.get("calls")) for one in recorded]))
        recorded = [entry.body.value for entry in entries if isinstance(entry.body, Recorded)]
        was = (first.data, first.spend, [(one.get("output"), one.get("calls")) for one in recorded])
        assert ends == [was, was]


def request(heard: Heard | None = None) -> ReplyRequest:
    return ReplyRequest("first", "dispatch", (), event_callback=heard, takes_calls=True)
