"""`send_email`: one answer and at most one redirect per incoming mail, whoever asks and however often."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from detent.adapters.mail.outbox import Outbox
from detent.adapters.mail.sink import MailInDoubt
from detent.apps.warranty.tools.replies import UNDER_WAY, Replies, reply_key, send_email_tool
from detent.engine.tools import NOT_DONE, UNKNOWN, EffectCall, ToolError
from detent.kernel.status import Status
from tests.apps.warranty.correspondence import CUSTOMER, NOW, Slot, mailbox, outbox, usual
from tests.engine import answers

SENDER = "Service <service@northpine.example>"
MAIL = {"to": CUSTOMER, "subject": "Re: Printer", "body": "Hello.", "source": "<a@x.example>"}


def call(run: str = "r1", number: int = 1) -> EffectCall:
    return EffectCall(run, "effect", number)


class Watch:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self):
        return self.now

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
async def watch():
    return Watch()


@pytest.fixture
async def replies(tmp_path, watch):
    made = Replies(tmp_path / "warranty.db", Outbox(tmp_path / "out"), SENDER, now=watch)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def slot(tmp_path):
    return Slot(tmp_path / "slot")


@pytest.fixture
async def blind(tmp_path, watch, slot):
    made = Replies(tmp_path / "warranty.db", slot, SENDER, now=watch)
    await made.open()
    yield made
    await made.close()


class TestOnce:
    async def test_the_same_mail_asked_for_again_is_there(self, replies, tmp_path):
        first = await replies.send(call(), **MAIL)
        assert first["status"] == "queued"
        for run in ("r1", "r2"):
            again = await replies.send(call(run), **{**MAIL, "body": "Other words."})
            assert again == {"message_id": first["message_id"], "status": "existing"}
        (mail,) = outbox(tmp_path / "out")
        assert mail.get_content().strip() == "Hello."

    async def test_kinds_and_incoming_mails_are_told_apart(self, replies, tmp_path):
        await replies.send(call(), **MAIL)
        await replies.send(call(), **MAIL, kind="redirect")
        await replies.send(call(), **{**MAIL, "source": "<b@x.example>"})
        assert len(outbox(tmp_path / "out")) == 3
        assert len({reply_key(s, k) for s in "ab" for k in ("answer", "redirect")}) == 4

    async def test_two_files_of_one_database_answer_once(self, replies, tmp_path, watch):
        """5.3: over processes."""
        other = Replies(tmp_path / "warranty.db", Outbox(tmp_path / "out"), SENDER, now=watch)
        await other.open()
        results = await asyncio.gather(
            *(one.send(call(f"r{n}"), **MAIL) for n, one in enumerate([replies, other] * 4)),
            return_exceptions=True,
        )
        await other.close()
        fine = [one for one in results if isinstance(one, dict)]
        assert len([one for one in fine if one["status"] == "queued"]) == 1
        assert all(isinstance(one, dict) or one.code == "under_way" for one in results)
        assert len(outbox(tmp_path / "out")) == 1

    async def test_another_kind_than_those_there_are_is_refused(self, replies):
        with pytest.raises(ToolError, match="kind must be one of answer, redirect"):
            await replies.send(call(), **MAIL, kind="advertising")

    @pytest.mark.parametrize("to", ["", "nobody", "a@b@c", "x y@z.example", "a@x.example\nBcc: b@x.example"])
    async def test_an_address_that_cannot_be_used_is_refused(self, replies, tmp_path, to):
        with pytest.raises(ToolError, match="invalid"):
            await replies.send(call(), **{**MAIL, "to": to})
        assert outbox(tmp_path / "out") == []

    async def test_mails_to_an_address_are_counted(self, replies, watch):
        for number in range(3):
            await replies.send(call(), **{**MAIL, "source": f"<{number}@x.example>"})
            watch.later(3600)
        assert await replies.sent_to(f" {CUSTOMER.upper()} ", NOW.timestamp()) == 3
        assert await replies.sent_to(CUSTOMER, NOW.timestamp() + 1800) == 2
        assert await replies.sent_to("zoe@other.example", 0) == 0


class TestDoubt:
    async def test_a_refused_mail_may_be_tried_again_by_anybody(self, blind, slot):
        """A `ToolError` says that nothing went out."""
        slot.errors = [ToolError("rejected", "no")]
        with pytest.raises(ToolError):
            await blind.send(call("r1"), **MAIL)
        assert await blind.probe(**MAIL) is NOT_DONE
        assert (await blind.send(call("r2"), **MAIL))["status"] == "sent"

    async def test_what_was_not_begun_did_not_go_out(self, blind):
        """Also where the sink cannot tell: what is begun is written down first."""
        assert await blind.probe(**MAIL) is NOT_DONE

    async def test_what_was_begun_is_for_the_sink_to_tell(self, replies, blind, slot, tmp_path):
        slot.errors = [ConnectionError("gone")]
        with pytest.raises(ConnectionError):
            await blind.send(call(), **MAIL)
        assert await blind.probe(**MAIL) is UNKNOWN
        assert await replies.probe(**MAIL) is NOT_DONE  # the outbox can tell

    async def test_a_mail_the_sink_finds_is_marked(self, replies, tmp_path):
        key = reply_key(MAIL["source"], "answer")
        await replies.send(call(), **MAIL)
        await replies._database.write(lambda db: db.execute("UPDATE replies SET state = 'begun'"))
        assert (await replies.probe(**MAIL))["message_id"] == f"<det-{key[:24]}@northpine.example>"
        assert (await replies.send(call("r2"), **MAIL))["status"] == "existing"

    async def test_another_run_waits_while_the_mail_may_be_under_way(self, blind, slot, watch):
        slot.errors = [ConnectionError("gone")]
        with pytest.raises(ConnectionError):
            await blind.send(call("r1"), **MAIL)
        with pytest.raises(ToolError, match="under_way") as caught:
            await blind.send(call("r2"), **MAIL)
        assert caught.value.transient
        watch.later(UNDER_WAY + 1)
        with pytest.raises(MailInDoubt):
            await blind.send(call("r2"), **MAIL)
        assert len(slot.sent()) == 1

    async def test_a_run_that_is_told_to_send_it_again_does(self, blind, slot, watch):
        """The engine repeats an effect in doubt only when a person says so."""
        slot.errors = [ConnectionError("gone")]
        with pytest.raises(ConnectionError):
            await blind.send(call("r1"), **MAIL)
        assert (await blind.send(call("r1", 2), **MAIL))["status"] == "sent"
        assert len(slot.sent()) == 2

    async def test_so_does_another_run_once_it_was_asked_about(self, blind, slot, watch):
        slot.errors = [ConnectionError("gone")]
        with pytest.raises(ConnectionError):
            await blind.send(call("r1"), **MAIL)
        watch.later(UNDER_WAY + 1)
        with pytest.raises(MailInDoubt):
            await blind.send(call("r2"), **MAIL)
        assert (await blind.send(call("r2", 2), **MAIL))["status"] == "sent"
        assert (await blind.send(call("r1", 2), **MAIL))["status"] == "existing"

    async def test_a_mail_left_behind_is_sent_where_the_sink_is_sure(self, replies, tmp_path, watch):
        await replies._begin(
            reply_key(MAIL["source"], "answer"), "answer", CUSTOMER, "<i@x.example>", "dead:1"
        )
        watch.later(UNDER_WAY + 1)
        assert (await replies.send(call("r2"), **MAIL))["status"] == "queued"
        assert len(outbox(tmp_path / "out")) == 1


class Telling(Slot):
    """A sink that tells when a mail is about to leave, and may die before or after that."""

    tells_leaving = True

    def __init__(self, path) -> None:
        super().__init__(path)
        self.before: list[Exception] = []

    async def send(self, raw, envelope_from, to, *, leaving=None):
        if self.before:
            raise self.before.pop()
        await leaving()
        return await super().send(raw, envelope_from, to)


class TestASinkThatTells:
    """5.5: a doubt is only what was about to leave, not whatever was under way."""

    @pytest.fixture
    async def telling(self, tmp_path):
        return Telling(tmp_path / "slot")

    @pytest.fixture
    async def careful(self, tmp_path, watch, telling):
        made = Replies(tmp_path / "warranty.db", telling, SENDER, now=watch)
        yield made
        await made.close()

    async def test_what_broke_off_before_it_left_is_certainly_not_sent(self, careful, telling, watch):
        telling.before = [ConnectionError("gone")]
        with pytest.raises(ConnectionError):
            await careful.send(call("r1"), **MAIL)
        assert await careful.probe(**MAIL) is NOT_DONE
        with pytest.raises(ToolError, match="under_way"):
            await careful.send(call("r2"), **MAIL)
        watch.later(UNDER_WAY + 1)
        assert (await careful.send(call("r2"), **MAIL))["status"] == "sent"
        assert len(telling.sent()) == 1

    async def test_what_broke_off_after_that_is_in_doubt(self, careful, telling, watch):
        telling.errors = [ConnectionError("gone")]
        with pytest.raises(ConnectionError):
            await careful.send(call("r1"), **MAIL)
        assert await careful.probe(**MAIL) is UNKNOWN
        watch.later(UNDER_WAY + 1)
        with pytest.raises(MailInDoubt):
            await careful.send(call("r2"), **MAIL)
        assert (await careful.send(call("r2", 2), **MAIL))["status"] == "sent"  # a person said so

    async def test_of_two_that_send_it_at_once_one_lets_go_before_it_leaves(
        self, careful, telling, tmp_path, watch
    ):
        """One was stopped for so long that the other took its run over."""
        awake = asyncio.Event()

        class Sleeping(Telling):
            async def send(self, raw, envelope_from, to, *, leaving=None):
                await awake.wait()
                return await super().send(raw, envelope_from, to, leaving=leaving)

        stale = Replies(tmp_path / "warranty.db", Sleeping(tmp_path / "slot"), SENDER, now=watch)
        sending = asyncio.ensure_future(stale.send(call("r1"), **MAIL))
        while await careful._state(reply_key(MAIL["source"], "answer")) is None:
            await asyncio.sleep(0)
        assert await careful.probe(**MAIL) is NOT_DONE
        assert (await careful.send(call("r1"), **MAIL))["status"] == "sent"
        awake.set()
        with pytest.raises(MailInDoubt):
            await sending
        await stale.close()
        assert len(telling.sent()) == 1

    async def test_what_is_refused_may_be_sent_later(self, careful, telling):
        telling.before = [ToolError("refused", "no", transient=True)]
        with pytest.raises(ToolError):
            await careful.send(call("r1"), **MAIL)
        assert (await careful.send(call("r2"), **MAIL))["status"] == "sent"


async def test_a_person_settles_a_mail_in_doubt(tmp_path):
    """W-44, 5.5: with a sink that cannot tell the run holds; `again` sends, `happened` does not."""
    for number, (how, count) in enumerate([("again", 2), ("happened", 1), ("skip", 1)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        slot = Slot(folder / "slot")
        slot.errors = [ConnectionError("gone")]
        async with mailbox(folder, sink=slot) as box:
            result = await box.process(usual("expired"))
            assert (result.status, result.end) == (Status.WAITING, "03c-expired-warranty")
            assert not result.requires_retry()
            run = await box.engine.get(result.run_id)
            (hold,) = run.holds.values()
            assert (hold.why, hold.choices) == ("attention", ["happened", "again", "skip"])
            assert CUSTOMER not in str(hold)
            receipt = {"message_id": "<found@x.example>", "status": "sent"} if how == "happened" else None
            await answers.resolve(box.engine, result.run_id, how, receipt=receipt)
            run = await box.engine.finish(result.run_id)
            assert run.status.is_end
            assert len(slot.sent()) == count


def test_agents_are_told_of_three_arguments_and_no_more(replies):
    """No agent can say which mail is answered, in which thread, or of which kind it is."""
    tool = send_email_tool(replies)
    assert set(tool.schema["properties"]) == {"to", "subject", "body"}
    assert tool.misfits({**MAIL}) != []
    assert tool.private
