"""What a model is sent of a session: everything, until it does not fit; never a call without its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.compaction import SHARE
from detent.dispatch.message_sizes import size
from detent.flows.coding.conversation import Conversations
from tests.flows.coding.desk import DONE, YES, Desk, ScriptedModel, says


class Strict(ScriptedModel):
    """Refuses what providers refuse: open calls, results of unknown calls, repeated ids."""

    async def reply(self, request: Any) -> Any:
        open_calls: list[str] = []
        seen: set[str] = set()
        for message in request.messages:
            if message.role == "tool":
                assert message.answers in open_calls
                open_calls.remove(message.answers)
                continue
            assert not open_calls, f"{open_calls} have no result"
            open_calls = [call.id for call in message.calls]
            assert seen.isdisjoint(open_calls)
            seen.update(open_calls)
        assert not open_calls
        return await super().reply(request)


def reading(turns: int, first: int = 1) -> list[Any]:
    return [
        says(f"I read {n}.", ("read_file", {"filepath": "a.py", "max_lines": n}))
        for n in range(first, first + turns)
    ]


async def test_a_session_ten_times_the_window_goes_on(tmp_path: Path):
    (tmp_path / "a.py").write_text("".join(f"line {number}\n" for number in range(400)))
    tokens = 5000
    script = [reply for request in range(4) for reply in (*reading(30, 50 + 30 * request), DONE)]
    model = Strict(script)
    async with Desk(tmp_path, model, settings={"context_tokens": tokens, "max_iterations": 50}) as desk:
        session = None
        for number in range(4):
            result = await desk.ask(f"request {number}: read it", YES, session=session)
            session = result.session_id
            assert result.done
        whole = await Conversations().of(await _context(desk, result.run_id), "system")
    assert size(whole.messages) > 10 * tokens * SHARE
    assert all(size(messages) <= tokens * SHARE for messages in model.requests)
    for number in range(4):
        of_request = model.requests[number * 31 : (number + 1) * 31]
        assert all(any(m.content == f"request {number}: read it" for m in request) for request in of_request)
    notes = [
        message
        for message in model.requests[-1]
        if "turns of this conversation are left out" in message.content
    ]
    assert len(notes) == 1


async def _context(desk: Desk, run_id: str) -> Any:
    """What conversations need of a step's context, for a run that has ended."""

    class Context:
        pass

    context, run = Context(), await desk.engine.get(run_id)
    context.run_id, context.values = run_id, run.data  # type: ignore[attr-defined]
    context.other = desk.engine.get  # type: ignore[attr-defined]

    async def kept(reference: Any) -> bytes | None:
        return await desk.store.blob(reference["$blob"])

    context.kept = kept  # type: ignore[attr-defined]
    return context


async def test_another_process_goes_on_where_the_session_stands(tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.py").write_text("x\n")
    store = tmp_path / "detent.db"
    first = Desk(work, Strict([*reading(1), DONE, says("TUNACODE DONE: third")]), store=SQLiteStore(store))
    second = Desk(work, Strict([says("TUNACODE DONE: second")]), store=SQLiteStore(store))
    async with first, second:
        session = (await first.ask("one", YES)).session_id
        await second.ask("two", YES, session=session)
        await first.ask("three", YES, session=session)
    assert first.model is not None
    (last,) = first.model.requests[2:]
    told = [(message.role, message.content) for message in last[1:]]
    assert told == [
        ("user", "one"), ("assistant", "I read 1."), ("tool", "x\n"), ("assistant", "TUNACODE DONE: done"),
        ("user", "two"), ("assistant", "TUNACODE DONE: second"), ("user", "three"),
    ]  # fmt: skip


async def test_long_replies_and_results_are_sent_whole(tmp_path: Path):
    (tmp_path / "a.py").write_text("y" * 50_000 + "\n")
    text = "I think. " * 2000
    model = Strict([says(text, ("read_file", {"filepath": "a.py"})), DONE])
    async with Desk(tmp_path, model, settings={"context_tokens": 200_000}) as desk:
        result = await desk.ask("p" * 9000, YES)
        journaled = (await desk.engine.get(result.run_id)).data["turns"]
    user, assistant, tool = model.requests[1][1:]
    assert (user.content, assistant.content) == ("p" * 9000, text)
    assert tool.content.startswith("y" * 50_000)
    assert all("$blob" in turn["content"] for turn in journaled[:3])
