"""Servers that refuse what others accept: the order and ids of messages, open calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.adapters.models import openai
from detent.adapters.models.model import ModelRequest
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.conversation import Message
from detent.engine.engine import Engine
from detent.kernel.errors import StoreUnavailable
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.adapters.models import strict
from tests.adapters.models.server import Server, said
from tests.adapters.models.test_acting_over_http import (
    DONE,
    Silence,
    calling,
    committing,
    finished,
    model,
    started_and_stopped,
)
from tests.dispatch.samples import agent, settings
from tests.dispatch.test_acting import World, running
from tests.dispatch.test_acting_crashes import Mill, gone, milling


class TestNotes:
    """A question behind results stands where every server accepts it."""

    async def test_what_is_missing_is_asked_for_behind_the_results(self):
        commits: list[str] = []
        replies = [calling(("git_commit", {"message": "Fix it"})), said('{"summary": "It is fixed."}')]
        async with Server(*replies, refuses=strict.mistral) as server:
            run, _ = await finished(committing(commits), model(server))
        assert (run.data, server.refused) == ({"sha": "real", "summary": "It is fixed."}, 0)
        last = server.asked[1].body["messages"][-1]
        assert last["role"] == "tool"
        result, blank, question = last["content"].partition("\n\nMISSING\n")
        assert (json.loads(result), bool(blank)) == ({"sha": "real", "branch": "main"}, True)
        assert '"summary"' in question

    async def test_problems_of_an_answer_are_told_in_a_message_of_their_own(self):
        replies = [
            calling(("read", {})),
            said('{"exit_code": "none"}'),
            said('{"exit_code": 0, "stdout": ""}'),
        ]
        flow = running(World(), side=AgentSide(rounds=1, may_abstain=True))
        async with Server(*replies, refuses=strict.mistral) as server:
            run, _ = await finished(flow, model(server))
        assert (run.data, server.refused) == ({"exit_code": 0, "stdout": ""}, 0)
        assert server.asked[2].body["messages"][-1]["role"] == "user"

    async def test_two_questions_in_a_row_are_one(self):
        async with Server(said("yes"), refuses=strict.mistral) as server:
            made = openai.connect({"base_url": f"{server.url}/v1", "model_id": "m"}, kind="vllm")
            await made.complete(_request(Message("user", "One."), Message("user", "Two.")))
        assert server.asked[0].body["messages"] == [{"role": "user", "content": "One.\n\nTwo."}]


def _request(*messages: Message) -> Any:
    return ModelRequest(messages)


# -- interrupted --------------------------------------------------------------------------------------------


RYE: tuple[str, Any] = ("grind", {"what": "rye"})
OATS: tuple[str, Any] = ("grind", {"what": "oats"})
LOOK: tuple[str, Any] = ("look", {})


def turns() -> list[Any]:
    """Queries, effects and refused calls, alone and mixed, and a conclusion."""
    return [
        calling(LOOK, RYE, ("deploy", {})),
        calling(OATS),
        calling(LOOK),
        calling(RYE, RYE),
        said('{"number": 99, "remark": "fine"}'),
    ]


class TestInterrupted:
    """After an interruption in any gap, a strict server accepts what it is sent next."""

    async def test_killed_at_every_commit(self):
        counted = CrashPoints()
        store = counted.store(MemoryStore())
        async with Server(*turns(), refuses=strict.mistral) as server:
            dispatch = settings(model(server), agent("approver"))
            async with Engine(store, [milling(Mill("probed"))], dispatch=dispatch) as engine:
                quiet = await engine.run("flow", {}, run_id="r1")
        bodies = [asked.body for asked in server.asked]
        assert (quiet.status, server.refused, len(bodies)) == (Status.SUCCEEDED, 0, 5)
        for number in range(2, counted.commits + 1):
            for when in ("before", "after"):
                await self._killed(CrashPoint(number, when), bodies)  # type: ignore[arg-type]

    async def _killed(self, point: CrashPoint, bodies: list[Any]) -> None:
        mill, store = Mill("probed"), MemoryStore()
        replies = {json.dumps(body): reply for body, reply in zip(bodies, turns(), strict=True)}
        # The same request is given the same reply, however often it is made.
        async with Server(
            refuses=lambda body: strict.mistral(body) or replies.get(json.dumps(body))
        ) as server:
            points = CrashPoints([point], strike=gone)
            with pytest.raises(StoreUnavailable):
                dispatch = settings(model(server), agent("approver"))
                async with Engine(points.store(store), [milling(mill)], dispatch=dispatch) as engine:
                    await engine.run("flow", {}, run_id="r1")
            before = len(server.asked)
            run, _ = await finished(milling(mill), model(server), store=store)
            assert (run.status, mill.ground) == (Status.SUCCEEDED, ["rye", "oats", "rye", "rye"]), point
            assert all(asked.body in bodies for asked in server.asked), point
            assert len(server.asked) - before <= len(bodies), point

    @pytest.mark.parametrize("number", range(5))
    async def test_stopped_while_the_model_is_silent(self, number):
        mill, store, silence = Mill("probed"), MemoryStore(), Silence()
        replies = turns()
        replies.insert(number, silence)
        async with Server(*replies, refuses=strict.mistral) as server:
            await started_and_stopped(milling(mill), model(server), store, silence)
            run, _ = await finished(milling(mill), model(server), store=store)
        assert (run.status, server.refused) == (Status.SUCCEEDED, 0)
        assert mill.ground == ["rye", "oats", "rye", "rye"]
        assert server.asked[number].body == server.asked[number + 1].body

    @pytest.mark.parametrize("answer_", ["no", "yes"])
    async def test_a_person_decides_in_the_middle(self, answer_):
        """Each call has its result, also one that a person has denied."""
        world, store = World(), MemoryStore()
        flow = running(world, side=AgentSide(rounds=5, confirm=lambda effect: "Really?"))
        replies = [
            calling(("read", {}), ("write", {"text": "a"})),
            calling(("read", {})),
            said(json.dumps(DONE)),
        ]
        async with Server(*replies, refuses=strict.mistral) as server:
            dispatch = settings(model(server), agent("approver"))
            async with Engine(store, [flow], dispatch=dispatch) as engine:
                run = await engine.run("flow", {}, run_id="r1")
                assert run.status is Status.WAITING
                (name,) = run.holds
                hold = run.token(name)
            async with Engine(store, [flow], dispatch=dispatch) as engine:
                await engine.release("r1", answer_, hold=hold)
                run = await engine.finish("r1")
        assert (server.refused, "write a" in world.ran) == (0, answer_ == "yes")
        assert len(server.asked) >= 3
        assert strict.calls_answered(server.asked[-1].body) is None
