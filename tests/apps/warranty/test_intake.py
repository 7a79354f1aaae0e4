"""What becomes of a mail that comes in, before any step is taken."""

import asyncio
import time
from datetime import timedelta

import pytest
import structlog

from detent.apps.warranty.intake_records import DAY, Rate, Record, Records, key_in, run_id_of
from detent.apps.warranty.settings import read
from detent.apps.warranty.tools.replies import address_hash
from detent.kernel.errors import ConfigurationError
from tests.apps.warranty.mailroom import NO_SERIAL, Room, mail, whats

BOUNCE = b"""From: MAILER-DAEMON@mx.example\r
To: service@northpine.example\r
Subject: Undelivered Mail Returned to Sender\r
Message-ID: <b1@mx.example>\r
Content-Type: multipart/report; report-type=delivery-status; boundary=b\r
\r
--b\r
\r
It could not be delivered.\r
--b--\r
"""

IGNORED = [
    ("own_mail", mail(**{"X-Detent-App": "warranty"})),
    ("own_mail", mail(Message_ID="<det-0123456789abcdef01234567@northpine.example>")),
    ("own_mail", mail(From="Service <service@northpine.example>")),
    ("auto_submitted", mail(**{"Auto-Submitted": "auto-replied"})),
    ("auto_submitted", mail(**{"X-Autoreply": "yes"})),
    ("auto_submitted", mail(**{"X-Auto-Response-Suppress": "All"})),
    ("auto_submitted", mail(Subject="Automatic reply: away")),
    ("auto_submitted", mail(Subject="Autoodpowiedź: urlop")),
    ("bounce", BOUNCE),
    ("bounce", mail(**{"Return-Path": "<>"})),
    ("bounce", mail(From="postmaster@mx.example")),
    ("list", mail(**{"List-Id": "<news.holt-bakery.example>"})),
    ("list", mail(Precedence="bulk")),
    ("no_reply_address", mail(From="noreply@holt-bakery.example")),
    ("spam_flagged", mail(**{"X-Spam-Flag": "YES"})),
]


@pytest.mark.parametrize(("reason", "raw"), IGNORED)
async def test_mail_that_nobody_waits_for_an_answer_to_is_ignored_and_marked(tmp_path, reason, raw):
    """W-47"""
    room = Room(tmp_path)
    room.put(raw, "x.eml")
    assert whats(await room.once()) == [("ignored", reason)]
    assert room.processed() == {"x.eml"}
    assert room.replies() == []
    assert await room.tickets() == []
    assert await room.attention() == []


@pytest.mark.parametrize(
    ("reason", "raw"),
    [
        ("not_a_message", b"\x00\x01 nothing of a mail \xff"),
        ("encrypted", mail(body="-----BEGIN PGP MESSAGE-----\n\nabc\n-----END PGP MESSAGE-----")),
        ("too_large", mail(body="x" * 30_000)),
    ],
)
async def test_mail_that_cannot_be_read_stays_and_is_told_once(tmp_path, reason, raw):
    room = Room(tmp_path, mail={"max_size_mb": 0.02})
    room.put(raw, "x.eml")
    assert whats(await room.once()) == [("unreadable", reason)]
    assert await room.once() == []
    assert room.waiting() == {"x.eml"}
    (matter,) = await room.attention()
    assert (matter.what, matter.reason, matter.command) == ("unreadable", reason, ())
    assert matter.place == str(room.inbox / "x.eml")


async def test_of_two_mails_that_cannot_be_read_each_is_told_and_listed(tmp_path):
    """Though they have the same bytes: both lie there for somebody to look at."""
    room = Room(tmp_path)
    for name in ("a.eml", "b.eml"):
        room.put(b"\x00\x01 nothing of a mail", name)
    assert whats(await room.once()) == [("unreadable", "not_a_message")] * 2
    assert await room.once() == []
    assert sorted(matter.place for matter in await room.attention()) == [
        str(room.inbox / n) for n in ("a.eml", "b.eml")
    ]
    (room.inbox / "a.eml").unlink()
    await room.once()
    (matter,) = await room.attention()
    assert matter.place == str(room.inbox / "b.eml")


async def test_mail_of_ones_own_list_is_answered_to_whoever_wrote_it(tmp_path):
    posted = {
        "List-Id": "Desk <desk.lists.northpine.example>", "Precedence": "list",
        "List-Post": "<mailto:desk@lists.northpine.example>", "Reply-To": "desk@lists.northpine.example",
    }  # fmt: skip
    room = Room(tmp_path, mail={"own_lists": ["desk.lists.northpine.example"]})
    room.put(mail(1, **posted), "own.eml")
    room.put(mail(2, **{**posted, "List-Id": "<news.other.example>"}), "other.eml")
    assert whats(await room.once()) == [("ignored", "list"), ("succeeded", "mail sent")]
    (reply,) = room.replies()
    assert reply.headers["To"] == "maren1@holt-bakery.example"
    # The list sends the answer to everybody on it, this mailbox among them; it is known by its header.
    room.put(room.outbox.joinpath(next(iter(room.outbox.iterdir())).name).read_bytes(), "back.eml")
    assert whats(await room.once()) == [("ignored", "own_mail")]


@pytest.mark.parametrize(
    "said", ["desk@lists.northpine.example", "<desk.lists.northpine.example>", "desk", ""]
)
def test_a_lists_id_is_no_address(tmp_path, said):
    with pytest.raises(ConfigurationError, match=r"'mail.own_lists': a list's id looks like"):
        read({"mail": {"own_lists": [said]}}, tmp_path)


async def test_a_mail_delivered_twice_is_run_and_answered_once(tmp_path):
    """W-48"""
    room = Room(tmp_path)
    room.put(mail(), "a.eml")
    room.put(mail(), "b.eml")
    assert whats(await room.once()) == [("duplicate", None), ("succeeded", "mail sent")]
    assert len(room.replies()) == 1
    room.put(mail(), "c.eml")
    assert whats(await room.once()) == [("duplicate", None)]
    assert len(room.replies()) == 1
    assert room.processed() == {"a.eml", "b.eml", "c.eml"}


async def test_a_copy_with_other_bytes_is_warned_about(tmp_path):
    room = Room(tmp_path)
    room.put(mail(), "a.eml")
    await room.once()
    room.put(mail(body=NO_SERIAL), "b.eml")
    with structlog.testing.capture_logs() as lines:
        assert whats(await room.once()) == [("duplicate", "changed")]
    (line,) = [line for line in lines if line["event"] == "mail.duplicate"]
    assert line["log_level"] == "warning"


async def test_a_mail_without_an_id_is_known_by_its_bytes(tmp_path):
    room = Room(tmp_path)
    raw = mail(Message_ID="")
    room.put(raw, "a.eml")
    room.put(raw, "b.eml")
    room.put(mail(Message_ID="", body=NO_SERIAL), "c.eml")
    told = await room.once()
    assert sorted(one.what for one in told) == ["duplicate", "succeeded", "succeeded"]


async def test_a_follow_up_in_the_thread_gets_the_ticket_that_is_there(tmp_path):
    """W-48"""
    room = Room(tmp_path)
    room.put(mail(1))
    await room.once()
    more = mail(2, From="Maren Holt <maren1@holt-bakery.example>", References="<m1@holt-bakery.example>")
    room.put(more)
    (told,) = await room.once()
    assert told.result.ticket_id == "TKT-10001"
    receipts = [call.result for call in told.result.function_calls if call.function_name == "create_ticket"]
    assert receipts[0]["status"] == "existing"
    assert len(await room.tickets()) == 1
    assert len(room.replies()) == 2


async def test_a_sender_who_gets_too_many_answers_is_held_until_a_person_says_so(tmp_path):
    room = Room(tmp_path, mail={"max_replies_per_sender_per_day": 2})
    for number in range(4):
        room.put(mail(number, From="loop@holt-bakery.example"))
    told = await room.once()
    assert sorted(one.what for one in told) == ["held", "held", "succeeded", "succeeded"]
    assert len(room.replies()) == 2
    assert len(room.waiting()) == 2
    assert await room.once() == []
    first, _ = await room.attention()
    assert (first.what, first.reason, first.command) == (
        "held",
        "rate",
        ("warranty", "retry", first.mail_key),
    )
    async with room.open() as service:
        (record,) = await room.box.records.by_key(first.mail_key)
        told = await service.retry(record)
    assert told.what == "succeeded"
    assert len(room.replies()) == 3
    room.later += timedelta(days=2)
    room.put(mail(9, From="loop@holt-bakery.example"))
    assert [one.what for one in await room.once()] == ["succeeded"]


async def test_a_mail_that_was_only_moved_is_not_taken_for_a_copy(tmp_path):
    room = Room(tmp_path)
    room.outbox.parent.mkdir(exist_ok=True)
    file = room.put(mail(), "a.eml")
    await refused(room)
    file.rename(room.inbox / "other-name.eml")
    room.later += 16 * MINUTE
    assert whats(await room.once()) == [("succeeded", "mail sent")]
    assert room.processed() == {"other-name.eml"}
    assert len(room.replies()) == 1


async def test_a_failed_mail_that_a_person_takes_away_is_left_alone(tmp_path):
    room = Room(tmp_path)
    file = room.put(mail(), "a.eml")
    await refused(room)
    assert len(await room.attention()) == 1
    file.rename(tmp_path / "mine.eml")
    room.later += 16 * MINUTE
    assert await room.once() == []
    assert await room.attention() == []


async def test_a_copy_that_comes_while_the_first_stands_failed_is_only_a_copy(tmp_path):
    room = Room(tmp_path)
    room.put(mail(), "a.eml")
    await refused(room)
    room.put(mail(), "b.eml")
    assert whats(await room.once()) == [("duplicate", None)]
    assert room.waiting() == {"a.eml"}


MINUTE = timedelta(minutes=1)


async def refused(room: Room) -> None:
    """Have the outbox refuse everything for one look."""
    async with room.open() as service:
        room.outbox.rmdir()
        room.outbox.write_text("in the way")
        await service.once()
        room.outbox.unlink()
        room.outbox.mkdir()


# -- records ------------------------------------------------------------------------------------------------


def record(id: str, **more) -> Record:
    said = {"decision": "run", "address_hash": "a", "reply_key": id, "runs": 1}
    return Record(id, id[:12], "s", "here", id, **{**said, **more})


async def records_beside_replies(tmp_path) -> list[Records]:
    from detent.adapters.mail.outbox import Outbox
    from detent.apps.warranty.tools.replies import Replies

    replies = Replies(tmp_path / "w.db", Outbox(tmp_path), "s@northpine.example")
    assert await replies.sent_to("x@y.example", 0.0) == 0
    return [Records(tmp_path / "w.db", time.time) for _ in range(4)]


async def test_of_many_processes_that_write_a_mail_down_one_does(tmp_path):
    several = await records_beside_replies(tmp_path)
    done = await asyncio.gather(*(one.add(record("m1")) for one in several for _ in range(5)))
    assert sorted(fresh for _, fresh in done).count(True) == 1


async def test_answers_under_way_count_whoever_began_them(tmp_path):
    several = await records_beside_replies(tmp_path)
    rate = Rate(5, time.time() - DAY)
    done = await asyncio.gather(
        *(one.add(record(f"m{n}-{k}"), rate) for n, one in enumerate(several) for k in range(5))
    )
    decisions = [made.decision for made, _ in done]
    assert decisions.count("run") == 5
    assert decisions.count("held") == 15


async def test_one_more_run_is_begun_by_one_process(tmp_path):
    several = await records_beside_replies(tmp_path)
    first, _ = await several[0].add(record("m1"))
    done = await asyncio.gather(*(one.again(first, whole=False, orchestrator="step") for one in several))
    (won,) = [one for one in done if one is not None]
    assert (won.runs, won.run_id, won.earlier) == (2, "w-m1-2", "w-m1-1")


def test_a_run_is_named_after_its_mail():
    assert run_id_of("0123456789ab", 2) == "w-0123456789ab-2"
    assert key_in("w-0123456789ab-2") == "0123456789ab"
    assert key_in("4be1c73b5ba78d00") is None


def test_addresses_are_counted_whatever_their_case():
    assert address_hash(" Maren@Holt.example") == address_hash("maren@holt.EXAMPLE")
