"""Whatever mail comes in: nothing breaks, nobody is answered who must not be, nobody twice."""

from __future__ import annotations

import logging
import re

import pytest

from detent.adapters.mail.automatic_mail import ignore_reason
from detent.adapters.mail.message import EmailMessage, Unreadable, read_message
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.domain.serials import extract, serial_key
from detent.apps.warranty.mail_data import TextPart
from detent.kernel.status import Status
from tests.apps.warranty.correspondence import NOW, PATHS, mailbox, text_of
from tests.apps.warranty.strangers import Stranger, everybody
from tests.examples import ALL

EVERYBODY = everybody()
OWN = ("service@northpine.example",)
ENDS = {Status.SUCCEEDED: "DONE", Status.DEGRADED: "graceful-degradation", Status.FAILED: "FAILED"}
PATH_SET = set(PATHS.values())


def let_in(one: Stranger) -> tuple[EmailMessage | None, str | None]:
    """The mail if it is answered, else why not."""
    try:
        mail = read_message(one.raw, received=NOW)
    except Unreadable as error:
        return None, error.reason
    return mail, ignore_reason(mail, OWN, "northpine.example")


def test_there_are_many_and_no_two_are_called_the_same():
    assert len(EVERYBODY) >= 300
    assert len({one.name for one in EVERYBODY}) == len(EVERYBODY)


@pytest.mark.parametrize(
    "one", [one for one in EVERYBODY if one.silent is not None], ids=lambda one: one.name
)
def test_who_is_answered_and_who_is_not(one):
    """W-47: machines, bounces, lists, ourselves and what cannot be read are not; people are."""
    _, why = let_in(one)
    assert (why is not None) == one.silent, why


async def test_every_mail_ends_and_is_answered_at_most_once(tmp_path, caplog):
    """W-01, W-35, W-49: a reason for every end, and no word of a mail in the log.

    One mail in four; the whole pile with `make test-all`.
    """
    pile = EVERYBODY[:: 1 if ALL else 4]
    store = MemoryStore()
    answered: dict[str, Stranger] = {}
    with caplog.at_level(logging.INFO, "detent"):
        async with mailbox(tmp_path, store=store) as box:
            for one in pile:
                mail, why = let_in(one)
                if mail is None or why is not None:
                    continue
                result = await box.process(mail)
                fresh = box.fresh()
                assert result.status in ENDS, (one.name, result)
                assert result.end == ENDS[result.status], one.name
                assert result.reason or result.error_message, one.name
                assert tuple(result.step_sequence) in PATH_SET, (one.name, result.step_sequence)
                # Several of them share a Message-ID or all their bytes, and get one answer between them.
                known = (mail.message_id or mail.sha256) in answered
                assert len(fresh) == (0 if known or result.status is Status.FAILED else 1), (one.name, result)
                assert result.status is Status.SUCCEEDED, (one.name, result.reason, result.error_message)
                answered[mail.message_id or mail.sha256] = one
                for reply in fresh:
                    self_check(one, mail, reply)
            tickets = await box.tickets()
    assert len(answered) > len(pile) / 2
    assert {ticket.serial_number.upper().replace("-", "") for ticket in tickets} <= {
        "SN48213",
        "SN50001",
        "48213",
    }
    said = "\n".join(caplog.messages)
    for word in ("strangers.example", "Strange", "SN48213", "Drukarka", "lottery", "broken"):
        assert not re.search(rf"\b{word}\b", said), word


def self_check(one: Stranger, mail: EmailMessage, reply) -> None:
    """A mail of ours: to whom it must go, and nothing of a stranger's in its headers."""
    assert reply["To"] == mail.reply_address, one.name
    assert not {"cc", "bcc"} & {name.lower() for name in reply}, one.name
    assert reply["Auto-Submitted"] == "auto-replied"
    assert "\n" not in reply["Subject"]
    assert len(reply["Subject"]) <= 200
    assert len(str(reply["References"] or "").split()) <= 20
    shown = extract([TextPart("newest", text_of(reply))]).all_detected_serials
    own = {serial_key(found) for found in extract(mail.parts, mail.subject).all_detected_serials}
    assert {serial_key(found) for found in shown} <= own, one.name
    assert ignore_reason(read_message(bytes(reply)), OWN) == "own_mail"
    assert "NEXT_STEP" not in text_of(reply)


async def test_the_same_pile_again_adds_nothing(tmp_path):
    """5.3: nobody is answered twice, however often a mail is run."""
    pile = [mail for mail, why in map(let_in, EVERYBODY[::5]) if mail is not None and why is None]
    async with mailbox(tmp_path) as box:
        for mail in pile:
            await box.process(mail)
        there = {reply["Message-ID"] for reply in box.sent()}
        tickets = len(await box.tickets())
        for mail in pile:
            await box.process(mail)
        assert {reply["Message-ID"] for reply in box.sent()} == there
        assert len(await box.tickets()) == tickets
