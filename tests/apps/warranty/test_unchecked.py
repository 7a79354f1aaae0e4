"""Mails that were answered while the registry was away, listed for the people who look after them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.unchecked import Unchecked, unchecked
from detent.cli.main import run
from detent.engine.tools import NOT_DONE, ToolError
from tests.apps.warranty.mailroom import NO_SERIAL, Room, mail

OTHER = "Hello, the till with the serial number LM-77-0412 does not start any more since Monday."


class AwayRegistry(Registry):
    """A registry that does not answer."""

    async def find(self, *_: Any, **__: Any) -> Any:
        raise ToolError("timeout", "no answer", transient=True)


@pytest.fixture
def room(tmp_path) -> Room:
    return Room(tmp_path)


async def outage(room: Room, *mails: bytes, **values: Any) -> list[str]:
    """The runs of mails that come in while the registry is away."""
    for raw in mails:
        room.put(raw)
    told = await room.once(registry=AwayRegistry(room.folder / "warranty.db"), **values)
    return [one.run_id for one in told if one.run_id]


async def listed(room: Room, since: float | None = None, until: float | None = None) -> list[Unchecked]:
    async with room.open():
        return await unchecked(room.box.engine.store, since, until)


async def test_the_mails_of_an_outage_are_listed_and_no_others(room):
    room.put(mail(1))
    await room.once()
    runs = await outage(room, mail(2), mail(3, OTHER), mail(4, NO_SERIAL))
    mails = await listed(room)
    assert {one.run_id for one in mails} < set(runs)
    assert {one.serial_number for one in mails} == {"SN48213", "LM-77-0412"}
    assert {one.code for one in mails} <= {"timeout", "breaker_open"}
    for one in mails:
        assert one.run_id == f"w-{one.mail_key}-1"
        assert one.answered_at <= time.time()
    assert [one.answered_at for one in mails] == sorted(one.answered_at for one in mails)


async def test_a_device_that_was_checked_since_is_marked_as_such(room):
    """The customer wrote again: nobody has to look after that one."""
    await outage(room, mail(2))
    room.put(mail(5))
    (later,) = await room.once()
    await outage(room, mail(3, OTHER))
    checked = {one.serial_number: one.checked_in for one in await listed(room)}
    assert checked == {"SN48213": later.run_id, "LM-77-0412": None}


async def test_a_check_before_the_outage_does_not_count(room):
    room.put(mail(1))
    await room.once()
    await outage(room, mail(2))
    (one,) = await listed(room)
    assert one.checked_in is None


async def test_only_the_runs_of_the_given_time_are_listed(room):
    await outage(room, mail(2))
    middle = time.time()
    await outage(room, mail(3, OTHER))
    assert [one.serial_number for one in await listed(room, since=middle)] == ["LM-77-0412"]
    assert [one.serial_number for one in await listed(room, until=middle)] == ["SN48213"]
    assert await listed(room, since=time.time() + 60) == []


async def test_legacy_mode_is_listed_too(tmp_path):
    room = Room(tmp_path, orchestration={"use_step_orchestrator": False})
    (run_id,) = await outage(room, mail(2, "Hello, is our printer SN48213 still under warranty? It jams."))
    (one,) = await listed(room)
    assert (one.run_id, one.serial_number, one.code) == (run_id, "SN48213", "timeout")


async def test_a_mail_that_an_agent_wrote_is_listed_too(tmp_path):
    reply = "Hello,\n\nwe could not check the warranty of SN48213. Please write to office@northpine.example."
    script = {"04-out-of-scope": [{"text": f"BODY: {reply}\nNEXT_STEP: DONE"}] * 3}
    (tmp_path / "script.yaml").write_text(json.dumps(script))
    room = Room(
        tmp_path, steps={"04-out-of-scope": {"mode": "agent", "autonomy": "approver"}},
        model={"provider": "played"},
        models={"played": {"kind": "scripted", "file": str(tmp_path / "script.yaml")}},
    )  # fmt: skip
    (run_id,) = await outage(room, mail(2))
    assert [one.run_id for one in await listed(room)] == [run_id]
    async with room.open():
        result = await room.box.processor.result("step", await room.box.engine.get(run_id))
    assert result.flags == ["warranty_check_failed"]


async def test_a_mail_whose_run_failed_is_not_answered_and_not_listed(room):
    runs = await outage(room, mail(2), sink=_Refusing())
    assert len(runs) == 1
    assert await listed(room) == []


class _Refusing:
    """A mail server that refuses everything."""

    def describe(self) -> str:
        return "a server that refuses"

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def send(self, *_: Any, **__: Any) -> Any:
        raise ToolError("refused", "no", transient=False)

    async def probe(self, message_id: str) -> Any:
        return NOT_DONE


# -- the command --------------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(("warranty", "unchecked", *args))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def at_home(room, monkeypatch):
    monkeypatch.chdir(room.folder)
    monkeypatch.setenv("DETENT_TRUST", "all")
    monkeypatch.setenv("NO_COLOR", "1")
    (room.folder / "config.yaml").write_text("store: detent.db\nwarranty: {mail: {inbox: mail/inbox}}\n")
    return room


async def lived_through(room: Room) -> None:
    await outage(room, mail(2))
    room.put(mail(5))
    await room.once()
    await outage(room, mail(3, OTHER))


def test_the_command_lists_them_with_what_to_do_next(at_home, capsys):
    asyncio.run(lived_through(at_home))
    code, out, err = command(capsys)
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["MAIL", "ANSWERED", "SERIAL", "WHY", "RUN", "CHECKED", "SINCE"]
    assert any("SN48213" in row and "yes, in w-" in row for row in rows)
    assert any("LM-77-0412" in row and row.endswith("no") for row in rows)
    assert rows[-2].startswith("The mail and what happened to it: detent show w-")
    assert rows[-1] == "What the registry says now: detent warranty registry show LM-77-0412"
    code, out, _ = command(capsys, "--json", "--since", "1h")
    plain = json.loads(out)
    assert [sorted(one) for one in plain] == [
        ["answered_at", "checked_in", "code", "mail", "run", "serial_number"]
    ] * 2
    code, out, _ = command(capsys, "--until", "1h")
    assert (code, out) == (0, "No mail was answered without a check.\n")


def test_without_any_run_there_is_nothing_to_list(at_home, capsys):
    before = sorted(at_home.folder.rglob("*"))
    assert command(capsys) == (0, "No mail was answered without a check.\n", "")
    assert command(capsys, "--json") == (0, "[]\n", "")
    assert sorted(at_home.folder.rglob("*")) == before


def test_a_time_that_is_none_is_refused(at_home, capsys):
    code, _, err = command(capsys, "--since", "yesterday")
    assert code == 2
    assert "--since takes an age such as 30m" in err
