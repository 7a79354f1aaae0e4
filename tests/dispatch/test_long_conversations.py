"""A conversation of many turns: what a turn costs does not grow with those before it."""

from __future__ import annotations

from detent.adapters.models.scripted import ScriptedSource
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.conversation import ModelAnswer, ToolCall
from detent.dispatch.executor import Availability, ReplyRequest
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.entries import Recorded
from detent.kernel.plain import encode
from detent.kernel.status import Status
from tests.dispatch.samples import INTENT, agent, settings, single
from tests.engine.conftest import journal

TURNS = 300
NUMBER = {"type": "object", "required": ["number"], "properties": {"number": {"type": "integer"}}}


class Talkative:
    """Calls a tool in every reply, under one and the same id, until it has nothing more to say."""

    def __init__(self) -> None:
        self.replies = 0
        self.handed: list[int] = []

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        self.replies += 1
        self.handed.append(len(request.messages))
        ids = [call.id for message in request.messages for call in message.calls]
        results = [message.answers for message in request.messages if message.role == "tool"]
        assert ids == results, "every call has its result, in order"
        assert len(set(ids)) == len(ids)
        if self.replies > TURNS:
            return ModelAnswer('{"number": 0}')
        call = ToolCall("call_0", "note", {"text": f"{self.replies} {'x' * 200}"})
        return ModelAnswer("I go on.", calls=(call,))

    def available(self) -> Availability:
        return Availability(True)


async def test_each_turn_is_written_once_and_costs_the_same(bench):
    noted = []

    def note(text: str) -> dict[str, int]:
        noted.append(text)
        return {"number": len(noted)}

    async def work(ctx):
        return {"number": 0}

    step = Step(
        "work", work, INTENT, effects=("note",), inputs=(), output_schema=NUMBER,
        agent=AgentSide(rounds=TURNS + 1),
    )  # fmt: skip
    flow = single(step, tools=[Tool("note", note, blocking=False)])
    talker = Talkative()
    engine = await bench.engine(flow, dispatch=settings(ScriptedSource(talker), agent("approver")))  # type: ignore[arg-type]
    commits = []
    append = engine.store.append

    async def counting(commit):
        commits.append(sum(len(encode(str(entry.body))) for entry in commit.entries))
        return await append(commit)

    engine.store.append = counting
    run = await engine.run("flow")
    assert (run.status, run.data, len(noted)) == (Status.SUCCEEDED, {"number": TURNS}, TURNS)
    assert len(commits) <= 2 * TURNS + 2
    early, late = commits[20:120], commits[-120:-20]
    assert sum(late) <= 1.05 * sum(early), "bytes a turn stay flat"
    replies = [entry.body for entry in await journal(engine, run.id) if isinstance(entry.body, Recorded)]
    assert len(replies) == TURNS + 1
    assert talker.handed == [2 + 2 * turn for turn in range(TURNS + 1)]
