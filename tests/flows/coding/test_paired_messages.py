"""Sessions that go on from their file alone: whatever is in it, a provider takes what it is sent."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from detent.flows.coding.paired_messages import paired
from detent.flows.coding.sessions.folder import SessionFolder
from detent.flows.coding.wiring import messages_of
from tests.examples import examples
from tests.flows.coding.desk import DONE, YES, Desk, says
from tests.flows.coding.test_conversation import Strict

SESSION = "2026-03-02_09-15-00_fix-parser_9f2c11"
USER = {"role": "user", "content": "hi"}


def reply(*ids: Any, tool: Any = "read_file", args: Any = None) -> dict[str, Any]:
    calls = [{"id": given, "tool": tool, "args": {} if args is None else args} for given in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def result(given: Any, content: Any = "A") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": given, "tool": "read_file", "ok": True, "content": content}


def shape(messages: list[Any]) -> list[str]:
    """Roles with ids, or the text."""
    return [
        f"{turn['tool_call_id']}={turn['content']}" if turn["role"] == "tool"
        else ",".join(call["id"] for call in turn.get("tool_calls", ())) or turn["content"]
        for turn in paired(messages)
    ]  # fmt: skip


LOST = "The session was put down before this call had a result."
STRAY = "[A result of read_file, whose call is not known:]\nA"


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, reply("a", "b"), result("a"), result("b", "B")], ["hi", "t1c1,t1c2", "t1c1=A", "t1c2=B"]),
        ([reply("a", "b"), result("b", "B"), result("a")], ["t1c1,t1c2", "t1c1=A", "t1c2=B"]),
        ([reply("a", "b")], ["t1c1,t1c2", f"t1c1={LOST}", f"t1c2={LOST}"]),
        ([reply("a", "b"), result("b"), USER], ["t1c1,t1c2", f"t1c1={LOST}", "t1c2=A", "hi"]),
        ([reply("a"), USER, result("a")], ["t1c1", "t1c1=A", "hi"]),
        ([result("a"), reply("a")], [STRAY, "t1c1", f"t1c1={LOST}"]),
        ([reply("a"), result("a"), result("a")], ["t1c1", "t1c1=A", STRAY]),
        ([reply("c", "c"), result("c"), result("c", "B")], ["t1c1,t1c2", "t1c1=A", "t1c2=B"]),
        ([reply("c"), result("c"), reply("c"), result("c")], ["t1c1", "t1c1=A", "t2c1", "t2c1=A"]),
        ([reply(""), result("")], ["t1c1", "t1c1=A"]),
        ([reply("q" * 200), result("q" * 200)], ["t1c1", "t1c1=A"]),
        ([reply(None, 5), result(5), result(None)], ["t1c1,t1c2", "t1c1=A", "t1c2=A"]),
        ([["x"], "y", None, USER, {"role": "moon"}, {}], ["hi"]),
        ([{"role": "user", "content": "\ud800 x"}], ["\\ud800 x"]),
        ([{"role": "user", "content": [{"a": 1}]}], ['[{"a": 1}]']),
        ([{"role": "user", "content": {"$blob": "x", "size": 1}}], ['{"$blob": "x", "size": 1}']),
        ([{"role": "assistant", "content": "a", "tool_calls": ["x", 5]}], ["a"]),
        ([{"role": "assistant", "content": "a", "tool_calls": {"id": "x"}}], ["a"]),
    ],
)
def test_each_call_has_one_result_right_behind_it(messages, expected):
    assert shape(messages) == expected


@pytest.mark.parametrize("as_found", [True, False])
async def test_such_a_session_goes_on(tmp_path: Path, as_found):
    chance = random.Random(5)
    ids = ["a", "b", "", "q" * 200, None, 7, "t1c1"]
    kinds = [
        lambda: USER, lambda: ["no message"], lambda: {"role": "user", "content": "\udfff"},
        lambda: reply(*chance.sample(ids, 2), tool=chance.choice(["bash", "", "b; rm", 5])),
        lambda: result(chance.choice(ids)), lambda: result(chance.choice(ids), None),
        lambda: reply(chance.choice(ids), args=chance.choice(["text", 5, {"filepath": "\ud800"}, []])),
    ]  # fmt: skip
    store = tmp_path / "runs" / "sessions"
    store.mkdir(parents=True, mode=0o700)
    folder = SessionFolder(store)
    (tmp_path / "work").mkdir()
    for _ in range(examples(20)):
        messages = [chance.choice(kinds)() for _ in range(chance.randrange(1, 12))]
        plain: dict[str, Any] = {"session_id": SESSION, "completed": True, "messages": messages}
        (store / f"{SESSION}.json").write_text(json.dumps(plain))
        loaded = folder.load(SESSION)
        assert loaded is not None
        model = Strict([says("", ("list_dir", {})), DONE])
        found = messages if as_found else messages_of(folder, SESSION)
        options = {"from_file": partial(lambda found, session: found, found)}
        async with Desk(tmp_path / "work", model, flow_options=options) as desk:
            ended = await desk.ask("go on", YES, session=SESSION, folder=folder)
        assert ended.done
        json.dumps([message.to_plain() for message in model.requests[-1]], ensure_ascii=False).encode()
        assert all(0 < len(call.id) <= 64 for message in model.requests[-1] for call in message.calls)
