"""No word of a customer stands in the log at INFO or above, whatever happens to the mail."""

import json
from pathlib import Path

import pytest
import yaml

from detent.runtime import logging
from detent.runtime.settings import Settings
from tests.apps.warranty.mailroom import Room, mail
from tests.apps.warranty.test_service import OutOfOrder, RefusingDesk, failed_once

PEOPLE = {
    1: ("Ottilie Marchbank", "ottilie@marchbank-florist.example", "Etikettendrucker zickt",
        "Good morning, the SN48213 on our counter is dead since Tuesday evening and Gwendolyn needs it."),
    2: ("Bożydar Wierzba", "bozydar@wierzba-warzywa.example", "Czytnik kodow padl",
        "Dzień dobry, czytnik przestał działać po burzy. Nr seryjny: LM-77-0412. Bożydar Wierzba"),
    3: ("Cosmo Penhaligon", "cosmo@penhaligon-pictures.example", "Kiosk trouble in foyer",
        "The foyer kiosk with serial number PX2-55910 restarts whenever Rosalind touches its glass."),
    4: ("Lubomir Szczawik", "lubomir@szczawik.example", "Prosba pilna",
        "Kasa gaśnie co kwadrans, klienci czekają, a ja nie wiem co począć z kolejką przy ladzie."),
    5: ("Philippa Quayle", "philippa@quayle.example", "Easter visit",
        "Dear team, what are your opening hours on Easter Monday, and may I bring my spaniel along?"),
    6: ("Ignatius Thorne", "ignatius@thorne.example", "Unregistered gadget",
        "My scanner is broken. S/N: QQ-00000-Z9. Ignatius Thorne, Lower Wharf Lane, telephone 5550 1442."),
}  # fmt: skip
SERIALS = ("SN48213", "LM-77-0412", "PX2-55910", "QQ-00000-Z9")


def letter(number: int, suffix: str = "", **headers: str) -> bytes:
    name, address, subject, body = PEOPLE[number]
    return mail(
        f"{number}{suffix}", body,
        From=f'"{name}" <{address}>', Subject=subject,
        Message_ID=f"<{number}{suffix}.unmistakable@{address.partition('@')[2]}>", **headers,
    )  # fmt: skip


def log_to(folder: Path, level: str) -> Path:
    said = {"level": level, "format": "json", "file": f"{level}.jsonl"}
    logging.configure(Settings(folder, values={"logging": said}))
    return folder / f"{level}.jsonl"


def leaks(text: str) -> list[str]:
    """What of the customers a log holds."""
    found: list[str] = []
    folded = text.casefold()
    for name, address, subject, body in PEOPLE.values():
        words = [*name.split(), address, address.partition("@")[2], *subject.split()]
        found += [word for word in words if len(word) > 3 and word.casefold() in folded]
        pieces = {body[at : at + 12] for at in range(len(body) - 11)}
        found += [piece for piece in pieces if piece.casefold() in folded]
    found += [serial for serial in SERIALS if serial.casefold() in folded]
    found += ["unmistakable"] if "unmistakable" in text else []
    return found


@pytest.fixture
def eventful(tmp_path):
    """A mailbox to which everything happens that can happen to one."""

    async def live(level: str) -> str:
        file = log_to(tmp_path, level)
        room = Room(tmp_path, mail={"max_replies_per_sender_per_day": 3, "max_size_mb": 0.05})
        for number in PEOPLE:
            room.put(letter(number))
        room.put(letter(1))  # a copy
        room.put(letter(1).replace(b"Gwendolyn", b"Guinevere"))  # and one with other words
        room.put(letter(3, "auto", **{"Auto-Submitted": "auto-replied"}))
        room.put(b"\x00 Ottilie Marchbank")
        room.put(letter(6, "large") + b"x" * 60_000)
        for copy in range(4):
            room.put(letter(5, f"again{copy}"))  # too many for one address
        await room.once()
        room.put(letter(2, "degraded"))
        await room.once(tickets=RefusingDesk(tmp_path / "warranty.db"))
        room.put(letter(4, "failed"))
        await failed_once(room)
        return file.read_text(encoding="utf-8")

    return live


async def test_the_log_at_info_holds_no_word_of_a_customer(eventful):
    """W-35"""
    text = await eventful("info")
    events = {json.loads(line)["event"] for line in text.splitlines()}
    assert events >= {
        "step.transition", "step.completed", "step.output", "mail.completed", "function.called",
        "function.failed", "run.failed", "run.degraded", "router.decided", "mail.ignored", "mail.duplicate",
        "mail.held", "mail.unreadable", "intake.polled",
    }  # fmt: skip
    assert leaks(text) == []


async def test_the_serial_number_is_told_at_debug(eventful):
    """W-35"""
    text = await eventful("debug")
    messages = {json.loads(line).get("message") for line in text.splitlines()}
    assert "Step output: NEXT_STEP=02-check-warranty, SERIAL=SN48213" in messages
    above = [line for line in text.splitlines() if json.loads(line)["level"] != "debug"]
    assert leaks("\n".join(above)) == []


async def test_what_a_model_says_stays_out_of_the_log(tmp_path):
    """W-35"""
    file = log_to(tmp_path, "info")
    said = "REASON: Ottilie Marchbank writes about SN48213\nSERIAL: SN48213\nNEXT_STEP: 02-check-warranty"
    wrong = "NEXT_STEP: ask-Ottilie-Marchbank-about-SN48213"
    script = {
        "01-extract-serial": [
            {"output": said, "match": {"contains": "Gwendolyn"}},
            {"output": wrong, "match": {"contains": "czytnik"}, "repeat": True},
        ]
    }
    (tmp_path / "script.yaml").write_text(yaml.safe_dump(script))
    room = Room(
        tmp_path,
        models={"scripted": {"kind": "scripted", "file": str(tmp_path / "script.yaml")}},
        model={"provider": "scripted"},
        steps={"01-extract-serial": {"mode": "agent", "autonomy": "consultant"}},
    )
    room.put(letter(1))
    room.put(letter(2))
    assert [told.what for told in await room.once()] == ["succeeded", "succeeded"]
    text = file.read_text(encoding="utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    moves = [one for one in events if one["event"] == "step.transition"]
    assert {one["mode"] for one in moves} == {"agent", "deterministic"}
    (fallback,) = [one for one in events if one["event"] == "step.fallback"]
    assert (fallback["step"], fallback["reason"]) == ("01-extract-serial", "schema_violation")
    assert leaks(text) == []


def test_the_net_would_catch_them():
    assert leaks("a run about SN48213") == ["SN48213"]
    assert leaks('{"x": "counter is dead since"}') != []
    assert leaks("mail to OTTILIE@marchbank-florist.example") != []


def test_journals_hold_no_word_of_a_mail(tmp_path):
    """Texts lie beside the journal, where they can be dropped."""
    import asyncio

    async def live() -> str:
        room = Room(tmp_path)
        for number in PEOPLE:
            room.put(letter(number))
        with_trouble = letter(4, "failed")
        await room.once()
        room.put(with_trouble)
        async with room.open() as service:
            with OutOfOrder(room):
                await service.once()
            from detent.engine.journal_reader import read
            from detent.engine.ports import RunQuery
            from detent.kernel.entries import to_plain
            from detent.kernel.plain import encode

            store = room.box.engine.store
            rows = (await store.rows(RunQuery(limit=50))).rows
            lines = [encode(to_plain(entry)) for row in rows async for entry in read(store, row.id)]
        return "\n".join(lines)

    text = asyncio.run(live())
    assert [leak for leak in leaks(text) if leak not in SERIALS] == []
