"""A mailbox full of mails made by chance: nothing breaks, nobody is answered wrongly or twice, none is lost.

`DETENT_TEST_HOSTILE_SEEDS=50` makes fifty such mailboxes instead of a few.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from detent.adapters.mail.message import Unreadable, read_message
from tests.apps.warranty.hostile import COVERED, Hostile, Maker
from tests.apps.warranty.mailroom import Room

SEEDS = int(os.environ.get("DETENT_TEST_HOSTILE_SEEDS", "4"))
MAILS = 100
ENDS = {"succeeded", "degraded", "ignored", "duplicate", "held", "unreadable"}
MOST = 5
"""Answers to one address in a day."""

EXHAUSTIVE = [pytest.param(seed, True, marks=pytest.mark.exhaustive) for seed in range(1, SEEDS)]


def test_they_are_many_and_of_every_kind():
    made = [one for seed in range(4) for one in Maker(seed).make(MAILS)]
    assert len({one.raw for one in made}) == len(made) >= 300
    assert sum(one.silent for one in made) > 80
    assert sum(one.plain for one in made) > 150
    assert made[:MAILS] == Maker(0).make(MAILS)


@pytest.mark.parametrize(("seed", "steps"), [(0, True), *EXHAUSTIVE, (SEEDS, False)])
async def test_whatever_comes_in_is_handled_or_on_the_attention_list(tmp_path, seed, steps):
    """W-01, W-47, W-48, W-49, W-50, I9"""
    room = Room(tmp_path, orchestration={"use_step_orchestrator": steps})
    made = {room.put(one.raw, f"{one.number:04}.eml").name: one for one in Maker(seed).make(MAILS)}
    told = await room.once()
    assert {one.what for one in told} <= ENDS, Counter((one.what, one.reason) for one in told)
    assert len(told) == len(made)

    # None is lost: each is marked, or there with a reason and a place to look at.
    assert room.processed() | room.waiting() == set(made)
    matters = await room.attention()
    assert {matter.place.rpartition("/")[2] for matter in matters} == room.waiting()
    assert all(matter.reason for matter in matters)

    # Nobody is answered who must not be, or twice, or who did not write.
    replies = room.replies()
    to = Counter(reply.headers["To"] for reply in replies)
    assert len(replies) == sum(one.what in ("succeeded", "degraded") for one in told)
    for address in to:
        assert address.endswith("@people.example"), address
        assert not address.startswith("silent"), address
    assert all(count == 1 or (address.startswith("often") and count <= MOST) for address, count in to.items())
    answered = [reply.headers["In-Reply-To"] for reply in replies if "In-Reply-To" in reply.headers]
    assert len(answered) == len(set(answered))
    for reply in replies:
        assert not {"Cc", "Bcc"} & set(reply.headers)
        assert "evil" not in reply.headers["To"]
        assert "NEXT_STEP" not in reply.body
    for ticket in await room.tickets():
        assert ticket.serial_number in COVERED
        assert not ticket.customer_email.startswith("silent")

    # Whoever wrote plainly is answered.
    for address, count in _answerable(made.values()).items():
        assert to[address] >= min(count, MOST), address

    # And once more adds nothing.
    assert await room.once() == []
    assert len(room.replies()) == len(replies)


def _answerable(made: Iterable[Hostile]) -> Counter[str | None]:
    """How many plain mails each sender wrote whose id is theirs alone: of several with one id one is run."""
    ids = {one: _id(one) for one in made}
    known = Counter(ids.values())
    return Counter(one.sender for one, ident in ids.items() if one.plain and known[ident] == 1)


def _id(one: Hostile) -> str:
    try:
        mail = read_message(one.raw)
    except Unreadable:
        return ""
    return mail.message_id or mail.sha256
