"""What agents of a private step say lies beside the journal, and can be purged."""

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool
from detent.kernel import entries as journal
from detent.kernel.plain import encode
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.dispatch.samples import FAULT, INTENT, MAIL, Form, agent, forms, scripted, settings, single

WORDS = "the customer lives in Larch Lane"


async def text_of(engine, run_id):
    return encode([journal.to_plain(entry) for entry in await engine.store.entries(run_id)])


async def test_the_answer_is_not_in_the_journal_and_the_run_goes_as_ever(bench):
    for private in (False, True):
        executor = scripted({"output": {**FAULT, "aside": WORDS}, "usage": {"input_tokens": 3}})
        flow = forms(agent=AgentSide(private=private), conclude=lambda ctx, output: {"kind": output.kind})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow", MAIL)
        assert (run.status, run.data["kind"]) == (Status.SUCCEEDED, "fault")
        assert run.total_spend.input_tokens == 3
        assert (WORDS in await text_of(engine, run.id)) is not private


async def test_an_answer_beside_the_journal_is_not_paid_for_again(durable):
    """The handler fails once in the comparison; the second attempt finds the agent's answer."""
    tries = []

    async def flaky(ctx) -> Form:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise Transient("not now")
        return Form("fault", True)

    executor = scripted({"output": FAULT})
    flow = forms(flaky, agent=AgentSide(private=True), retry=RetryPolicy(2, 0, 0))
    engine = await durable.engine(flow, dispatch=settings(executor, agent("collaborator")))
    run = await engine.run("flow", MAIL)
    assert run.status is Status.SUCCEEDED
    assert (tries, len(executor.calls)) == ([1, 2], 1)
    await engine.store.purge(run.id)
    assert (await engine.get(run.id)).data["kind"] == "fault"


@pytest.mark.parametrize("through", ["calls", "toolbox"])
async def test_calls_of_a_private_tool_are_kept_outside_the_journal(bench, through):
    """Whichever way an agent calls it; after a crash they are read from there."""
    sent = []

    def send(text: str) -> dict[str, int]:
        sent.append(text)
        return {"number": len(sent)}

    async def work(ctx):
        return {"number": ctx.propose("send", text="nothing").number}

    schema = {"type": "object", "required": ["number"], "properties": {"number": {"type": "integer"}}}
    step = Step("work", work, INTENT, effects=("send",), inputs=(), output_schema=schema)
    call = {"tool": "send", "args": {"text": "SENTINEL"}}
    by_itself = {"output": {"number": 0}, "calls": [call]}
    reply = {"output": {"calls": [call]}} if through == "calls" else by_itself
    flow = single(step, tools=[Tool("send", send, private=True)])
    engine = await bench.engine(flow, dispatch=settings(scripted(reply), agent("approver")))
    run = await engine.run("flow")
    assert (sent, run.data) == (["SENTINEL"], {"number": 1})
    entries = await engine.store.entries(run.id, 0, 100)
    assert "SENTINEL" not in str([entry.body for entry in entries])
