"""SMTP against a real server: sent, certainly not sent, or in doubt, and how doubt is settled."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from detent.adapters.mail.imap import ImapMailbox, ImapSent
from detent.adapters.mail.server import MailServer, MailUnavailable
from detent.adapters.mail.sink import MailInDoubt
from detent.adapters.mail.smtp import SmtpSender
from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.outcome import Outcome
from detent.engine.tools import NOT_DONE, UNKNOWN, Tool, ToolError
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.adapters.mail.servers import (
    HOST,
    PASSWORD,
    USER,
    authority_file,
    imap_server,
    mail,
    relay,
    smtp_server,
)
from tests.engine.conftest import one_step

# Of the test server: here a login is wanted so that there is one to refuse.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH:UserWarning")

OURS = "<det-0123456789abcdef01234567@northpine.example>"
FROM, TO = "service@northpine.example", ["maren@holt-bakery.example"]
LONG = f"{'x' * 70}\r\n" * 5000
SENT = {"message_id": OURS, "status": "sent"}


def reach(port, **options):
    return MailServer(
        **{"protocol": "SMTP", "host": HOST, "port": port, "tls": "none", "timeout": 5, **options}
    )


def mailbox_at(port):
    return MailServer(protocol="IMAP", host=HOST, port=port, tls="none", user=USER, password=PASSWORD)


def reply(body="It is covered.", **headers):
    return mail("re", body, **{"Message_ID": OURS, **headers})


@pytest.fixture
async def server():
    async with smtp_server() as server:
        yield server


@pytest.fixture
async def sender(server):
    return SmtpSender(reach(server.port))


@pytest.fixture
async def imap():
    async with imap_server() as imap:
        await imap.add_folder("Sent")
        yield imap


class TestLeaving:
    """Between the mail and its dot somebody may write down that it leaves, or object."""

    async def test_it_is_told_when_all_but_the_dot_is_said(self, server, sender):
        told = []

        async def leaving() -> None:
            told.append(len(server.taken))

        assert await sender.send(reply(), FROM, TO, leaving=leaving) == SENT
        assert (told, len(server.taken)) == ([0], 1)

    @pytest.mark.parametrize("objection", [ToolError("no", "not now"), MailInDoubt("taken over"), KeyError()])
    async def test_an_objection_keeps_it_here(self, server, sender, objection):
        async def leaving() -> None:
            raise objection

        with pytest.raises(type(objection)):
            await sender.send(reply(), FROM, TO, leaving=leaving)
        assert await sender.send(reply("Another."), FROM, TO) == SENT
        (envelope,) = server.taken
        assert b"Another." in envelope.original_content

    async def test_many_may_leave_at_once_however_few_threads_the_loop_has(self, server, sender):
        """Whoever writes down that a mail leaves needs a thread for it."""
        with ThreadPoolExecutor(1) as only:
            asyncio.get_running_loop().set_default_executor(only)

            async def leaving() -> None:
                await asyncio.to_thread(lambda: None)

            mails = [reply(Message_ID=f"<det-{n:024}@northpine.example>") for n in range(20)]
            await asyncio.gather(*(sender.send(one, FROM, TO, leaving=leaving) for one in mails))
        assert len(server.taken) == 20
        await sender.close()

    async def test_nobody_is_asked_where_the_server_refuses_before(self, server, sender):
        server.answers["RCPT"] = "550 no such user"

        async def leaving() -> None:
            raise AssertionError

        with pytest.raises(ToolError, match="recipient"):
            await sender.send(reply(), FROM, TO, leaving=leaving)

    async def test_a_sending_left_alone_meanwhile_does_not_leave(self, server, sender):
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def leaving() -> None:
            asked.set()
            await go_on.wait()

        sending = asyncio.ensure_future(sender.send(reply(), FROM, TO, leaving=leaving))
        await asked.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        go_on.set()
        assert await sender.probe(OURS) is NOT_DONE
        assert server.taken == []


class TestSending:
    async def test_a_mail_arrives_as_it_was_handed_over(self, server, sender):
        assert await sender.send(reply(), FROM, TO) == SENT
        (envelope,) = server.taken
        assert (envelope.mail_from, envelope.rcpt_tos) == (FROM, TO)
        assert envelope.original_content == reply()

    @pytest.mark.parametrize(
        "body",
        [".", "..\r\n.\r\nQUIT\r\n.", "a\r\n.\r\nMAIL FROM:<x@y.example>\r\n", "zażółć gęślą jaźń", LONG],
    )
    async def test_no_body_can_end_the_mail_early(self, server, sender, body):
        await sender.send(reply(body), FROM, TO)
        assert [envelope.original_content for envelope in server.taken] == [reply(body)]

    async def test_line_ends_are_made_those_of_mail(self, server, sender):
        await sender.send(reply().replace(b"\r\n", b"\n").rstrip(), FROM, TO)
        assert server.taken[0].original_content == reply()

    async def test_several_recipients_get_one_mail(self, server, sender):
        await sender.send(reply(), FROM, ["a@x.example", "b@x.example"])
        assert server.taken[0].rcpt_tos == ["a@x.example", "b@x.example"]

    async def test_the_empty_sender_is_possible(self, server, sender):
        await sender.send(reply(), "", TO)
        assert server.taken[0].mail_from == "<>"

    async def test_addresses_of_other_letters_are_sent_where_the_server_takes_them(self, server, sender):
        await sender.send(reply(), FROM, ["łucja@północ.example"])
        assert server.taken[0].rcpt_tos == ["łucja@północ.example"]

    async def test_many_mails_at_once(self, server, sender):
        ids = [f"<det-{number:024x}@northpine.example>" for number in range(30)]
        await asyncio.gather(*(sender.send(reply(Message_ID=one), FROM, TO) for one in ids))
        assert len(server.taken) == 30

    @pytest.mark.parametrize("tls", ["implicit", "starttls"])
    async def test_over_tls_and_with_a_login(self, tls, tmp_path):
        async with smtp_server(tls=tls, login=True) as server:
            ca_file = authority_file(tmp_path)
            sender = SmtpSender(reach(server.port, tls=tls, user=USER, password=PASSWORD, ca_file=ca_file))
            await sender.open()
            assert await sender.send(reply(), FROM, TO) == SENT
            assert server.logins == [USER, USER]
            await sender.close()

    async def test_a_password_of_other_letters_gets_in(self, tmp_path):
        async with smtp_server(tls="implicit", login=True, password="zażółć") as server:
            ca_file = authority_file(tmp_path)
            sender = SmtpSender(
                reach(server.port, tls="implicit", user=USER, password="zażółć", ca_file=ca_file)
            )
            assert await sender.send(reply(), FROM, TO) == SENT


class TestCertainlyNotSent:
    @pytest.mark.parametrize(
        ("at", "answer", "code", "transient"),
        [
            ("MAIL", "451 4.3.0 later", "sender_refused", True),
            ("MAIL", "550 5.7.1 not you", "sender_refused", False),
            ("RCPT", "450 4.2.1 busy", "recipient_refused", True),
            ("RCPT", "450 4.7.1 greylisted", "recipient_refused", True),
            ("RCPT", "421 4.3.2 going down", "delivery_refused", True),
            ("RCPT", "550 5.1.1 nobody here", "recipient_refused", False),
            ("RCPT", "550 nobody here", "recipient_refused", False),
            ("RCPT", "554 5.7.1 relaying denied", "delivery_refused", False),
            ("DATA", "452 4.3.1 no room", "message_refused", True),
            ("DATA", "554 5.7.1 spam", "message_refused", False),
        ],
    )
    async def test_a_refusal_says_whether_it_is_for_good(self, server, sender, at, answer, code, transient):
        server.answers[at] = answer
        with pytest.raises(ToolError) as caught:
            await sender.send(reply(), FROM, TO)
        assert (caught.value.code, caught.value.transient) == (code, transient)
        assert caught.value.of_call is (code == "recipient_refused")
        assert answer[:3] in caught.value.message
        assert server.taken == []

    async def test_one_refused_recipient_means_that_nobody_gets_the_mail(self, server, sender):
        server.answers["RCPT"] = "550 5.1.1 nobody here"
        with pytest.raises(ToolError):
            await sender.send(reply(), FROM, ["good@x.example", "bad@x.example"])
        assert server.taken == []

    async def test_a_refusal_names_no_address_and_no_words_of_the_server(self, server, sender):
        server.answers["RCPT"] = "550 5.1.1 <maren@holt-bakery.example> is unknown"
        with pytest.raises(ToolError) as caught:
            await sender.send(reply(), FROM, TO)
        assert "maren" not in str(caught.value)

    async def test_a_server_that_is_not_there(self):
        async with smtp_server() as gone:
            port = gone.port
        with pytest.raises(ToolError) as caught:
            await SmtpSender(reach(port)).send(reply(), FROM, TO)
        assert (caught.value.code, caught.value.transient) == ("connection", True)

    async def test_a_mail_larger_than_the_server_takes(self):
        async with smtp_server(size=1000) as server:
            with pytest.raises(ToolError) as caught:
                await SmtpSender(reach(server.port)).send(reply("x" * 2000), FROM, TO)
            assert (caught.value.code, caught.value.transient) == ("too_large", False)
            assert "1000" in caught.value.message

    async def test_an_address_the_server_has_no_letters_for(self):
        async with smtp_server(utf8=False) as server:
            with pytest.raises(ToolError) as caught:
                await SmtpSender(reach(server.port)).send(reply(), FROM, ["łucja@x.example"])
            assert caught.value.code == "not_supported"

    @pytest.mark.parametrize(
        "to", [[], ["nobody"], ["a@x.example\r\nRCPT TO:<b@x.example>"], ["<a@x.example>"]]
    )
    async def test_what_is_no_address_is_not_tried(self, server, sender, to):
        with pytest.raises(ToolError) as caught:
            await sender.send(reply(), FROM, to)
        assert (caught.value.code, caught.value.transient) == ("bad_address", False)
        assert server.taken == []

    async def test_a_mail_without_message_id_is_not_tried(self, server, sender):
        with pytest.raises(ToolError) as caught:
            await sender.send(b"Subject: x\r\n\r\nbody\r\n", FROM, TO)
        assert caught.value.code == "no_message_id"
        assert server.taken == []

    @pytest.mark.parametrize("before", [b"ehlo", b"mail", b"rcpt", b"DATA\r\n"])
    async def test_a_line_cut_before_the_mail_itself(self, server, before):
        async with relay(server.port) as line:
            line.cut_up = lambda piece: b"" if piece.lower().startswith(before.lower()) else None
            with pytest.raises(ToolError) as caught:
                await SmtpSender(reach(line.port)).send(reply(), FROM, TO)
            assert (caught.value.code, caught.value.transient, line.cuts) == ("connection", True, 1)
        assert server.taken == []

    async def test_a_line_cut_in_the_middle_of_the_mail(self, server):
        """Without the final dot no server delivers: the mail may be sent again."""
        async with relay(server.port) as line:
            line.cut_up = lambda piece: piece[:100] if b"Subject:" in piece else None
            with pytest.raises((ToolError, MailInDoubt)) as caught:
                # So large that the client is still writing when the line goes.
                await SmtpSender(reach(line.port)).send(reply(LONG * 60), FROM, TO)
            assert isinstance(caught.value, ToolError)
            assert (caught.value.code, caught.value.transient) == ("connection", True)
        assert server.taken == []


class TestTrust:
    @pytest.mark.parametrize("tls", ["implicit", "starttls"])
    async def test_a_certificate_nobody_vouches_for_is_refused(self, tls):
        async with smtp_server(tls=tls) as server:
            sender = SmtpSender(reach(server.port, tls=tls))
            with pytest.raises(MailUnavailable) as caught:
                await sender.open()
            assert (caught.value.kind, caught.value.exit_code) == ("tls", 3)
            with pytest.raises(ToolError) as refused:
                await sender.send(reply(), FROM, TO)
            assert (refused.value.code, refused.value.transient) == ("tls", False)
            assert server.taken == []

    @pytest.mark.parametrize("tls", ["implicit", "starttls"])
    async def test_a_certificate_for_another_name_is_refused(self, tls, tmp_path):
        async with smtp_server(tls=tls, names=("smtp.other.example",)) as server:
            with pytest.raises(MailUnavailable) as caught:
                await SmtpSender(reach(server.port, tls=tls, ca_file=authority_file(tmp_path))).open()
            assert caught.value.kind == "tls"

    async def test_a_server_without_starttls_gets_neither_password_nor_mail(self, server):
        async with relay(server.port) as line:
            told = []
            line.cut_up = lambda piece: told.append(piece)
            sender = SmtpSender(reach(line.port, tls="starttls", user=USER, password=PASSWORD))
            with pytest.raises(MailUnavailable) as caught:
                await sender.open()
            assert caught.value.kind == "tls"
            with pytest.raises(ToolError):
                await sender.send(reply(), FROM, TO)
            assert all(piece.lower().startswith((b"ehlo", b"quit")) for piece in told)

    async def test_a_wrong_password_is_told_without_any_password(self, tmp_path, caplog):
        caplog.set_level(logging.DEBUG)
        async with smtp_server(tls="implicit", login=True) as server:
            ca_file = authority_file(tmp_path)
            sender = SmtpSender(
                reach(server.port, tls="implicit", user=USER, password="wrong horse", ca_file=ca_file)
            )
            with pytest.raises(MailUnavailable) as caught:
                await sender.open()
            assert (caught.value.kind, caught.value.exit_code) == ("login", 3)
            assert "check user name and password" in str(caught.value)
            with pytest.raises(ToolError) as refused:
                await sender.send(reply(), FROM, TO)
            assert (refused.value.code, refused.value.transient) == ("auth", False)
            ours = [
                record.getMessage() for record in caplog.records if not record.name.startswith("mail.log")
            ]
            assert "wrong horse" not in "".join(
                [str(caught.value), str(refused.value), repr(sender.server), *ours]
            )

    async def test_a_server_that_is_not_there_is_told_with_its_host(self):
        with pytest.raises(MailUnavailable) as caught:
            await SmtpSender(reach(465, host="nowhere.invalid", tls="implicit")).open()
        assert (caught.value.kind, caught.value.host) == ("unreachable", "nowhere.invalid")

    async def test_tls_on_a_port_without_it_says_what_to_check(self, server):
        with pytest.raises(MailUnavailable) as caught:
            await SmtpSender(reach(server.port, tls="implicit")).open()
        assert caught.value.kind == "tls"


class TestDoubt:
    """W-44, transport: the server has the mail and the client saw a disconnect."""

    async def test_a_server_that_vanishes_after_taking_the_mail_leaves_doubt(self, server, sender):
        server.vanish_after_taking = True
        with pytest.raises(MailInDoubt):
            await sender.send(reply(), FROM, TO)
        assert len(server.taken) == 1
        assert await sender.probe(OURS) is UNKNOWN

    async def test_an_answer_that_is_lost_on_its_way_leaves_doubt(self, server):
        async with relay(server.port) as line:
            line.cut_down = lambda piece: b"" if piece.startswith(b"250 2.0.0 taken") else None
            with pytest.raises(MailInDoubt):
                await SmtpSender(reach(line.port)).send(reply(), FROM, TO)
        assert len(server.taken) == 1

    async def test_a_server_that_does_not_answer_in_time_leaves_doubt(self, server):
        server.released = asyncio.Event()
        with pytest.raises(MailInDoubt):
            await SmtpSender(reach(server.port, timeout=0.3)).send(reply(), FROM, TO)
        server.released.set()

    async def test_an_answer_that_means_nothing_leaves_doubt(self, server, sender):
        server.answers["DATA"] = "354 go on"
        with pytest.raises(MailInDoubt):
            await sender.send(reply(), FROM, TO)

    async def test_our_copy_proves_that_the_mail_went_out(self, server, imap):
        sender = SmtpSender(reach(server.port), sent=ImapSent(mailbox_at(imap.port), "Sent"))
        await sender.open()
        assert await sender.send(reply(), FROM, TO) == SENT
        assert await imap.bodies("Sent") == [reply()]
        assert await sender.probe(OURS) == SENT
        await sender.close()

    async def test_a_missing_copy_of_ours_proves_nothing(self, server, imap):
        sender = SmtpSender(reach(server.port), sent=ImapSent(mailbox_at(imap.port), "Sent"))
        await sender.open()
        server.vanish_after_taking = True
        with pytest.raises(MailInDoubt):
            await sender.send(reply(), FROM, TO)
        assert await sender.probe(OURS) is UNKNOWN
        await sender.close()

    @pytest.mark.parametrize(("files_it", "answer"), [(True, SENT), (False, NOT_DONE)])
    async def test_the_copy_of_the_server_decides_both_ways(self, server, imap, files_it, answer):
        sent = ImapSent(mailbox_at(imap.port), "Sent")
        sender = SmtpSender(reach(server.port), sent=sent, copies="servers", settle=0)
        await sender.open()
        server.vanish_after_taking = True
        if files_it:
            server.deliver = lambda raw: imap.deliver(raw, "Sent")
        with pytest.raises(MailInDoubt):
            await sender.send(reply(), FROM, TO)
        assert await sender.probe(OURS) == answer
        assert len(await imap.bodies("Sent")) == (1 if files_it else 0)
        await sender.close()

    async def test_a_copy_that_cannot_be_kept_does_not_unsend_the_mail(self, server, imap):
        sender = SmtpSender(reach(server.port), sent=ImapSent(mailbox_at(imap.port), "Sent"))
        await sender.open()
        await imap.stop()
        assert await sender.send(reply(), FROM, TO) == SENT
        assert len(server.taken) == 1
        await imap.start(None)
        await sender.close()

    async def test_a_sent_folder_that_is_not_there_is_told_at_once(self, server, imap):
        with pytest.raises(MailUnavailable) as caught:
            await SmtpSender(reach(server.port), sent=ImapSent(mailbox_at(imap.port), "Send")).open()
        assert caught.value.kind == "folder"
        assert "Did you mean 'Sent'?" in str(caught.value)

    async def test_a_sending_left_alone_after_the_dot_is_asked_how_it_ended(self, server, sender):
        """A tool's timeout may end the wait, not the thread: its end is the answer."""
        server.released = asyncio.Event()
        sending = asyncio.create_task(sender.send(reply(), FROM, TO))
        await server.reached.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        probing = asyncio.create_task(sender.probe(OURS))
        await asyncio.sleep(0)
        assert not probing.done()
        server.released.set()
        assert await probing == SENT
        assert await sender.probe(OURS) == SENT
        assert len(server.taken) == 1

    async def test_a_sending_left_alone_before_the_dot_goes_no_further(self, server):
        """However slow the line is: what was given up is not sent behind our back."""
        async with relay(server.port) as line:
            sender = SmtpSender(reach(line.port))
            asked = asyncio.Event()
            line.cut_up = lambda piece: asked.set() if piece.startswith(b"DATA") else None
            line.hold = asyncio.Event()
            line.hold.set()
            sending = asyncio.create_task(sender.send(reply(), FROM, TO))
            await asked.wait()
            line.hold.clear()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            line.hold.set()
            assert await sender.probe(OURS) is NOT_DONE
        assert server.taken == []


class TestInTheEngine:
    """What the ledger makes of the three ends (W-44)."""

    async def run(self, sender):
        async def send(to):
            return await sender.send(reply(), FROM, [to])

        async def probe(to):
            return await sender.probe(OURS)

        tool = Tool("send_email", send, probe=probe, retry=RetryPolicy(3, 0, 0), timeout=30)
        flow = one_step(
            lambda ctx: Outcome(set={"receipt": ctx.propose("send_email", to=TO[0])}), tools=[tool]
        )
        async with Engine(MemoryStore(), [flow]) as engine:
            return await engine.run("flow")

    async def test_a_doubt_the_sent_folder_settles_ends_with_one_mail(self, server, imap):
        sent = ImapSent(mailbox_at(imap.port), "Sent")
        sender = SmtpSender(reach(server.port), sent=sent, copies="servers", settle=0)
        await sender.open()
        server.vanish_after_taking = True
        server.deliver = lambda raw: imap.deliver(raw, "Sent")
        run = await self.run(sender)
        assert (run.status, run.data) == (Status.SUCCEEDED, {"receipt": SENT})
        assert len(server.taken) == 1
        await sender.close()

    async def test_a_doubt_nobody_can_settle_waits_for_a_person(self, server, sender):
        server.vanish_after_taking = True
        run = await self.run(sender)
        assert run.status is Status.WAITING
        assert len(server.taken) == 1

    async def test_a_line_lost_before_the_mail_is_simply_tried_again(self, server):
        async with relay(server.port) as line:
            line.cut_up = lambda piece: b"" if piece.startswith(b"rcpt") else None
            run = await self.run(SmtpSender(reach(line.port)))
            assert (run.status, line.cuts) == (Status.SUCCEEDED, 1)
        assert len(server.taken) == 1


async def test_the_whole_loop(server, imap):
    """W-46: a customer's mail comes in, our reply goes out and is found; only then the mail is marked."""
    inbox = ImapMailbox(mailbox_at(imap.port))
    sender = SmtpSender(reach(server.port), sent=ImapSent(mailbox_at(imap.port), "Sent"))
    await inbox.open()
    await sender.open()
    server.deliver = imap.deliver
    customer = SmtpSender(reach(server.port))
    assert await inbox.list() == ()
    waiting = asyncio.create_task(inbox.wait(3600))
    await customer.send(mail(1), "maren@holt-bakery.example", ["service@northpine.example"])
    await waiting
    (ref,) = await inbox.list()
    arrival = await inbox.fetch(ref)
    assert arrival.raw == mail(1)
    server.deliver = None
    receipt = await sender.send(reply(In_Reply_To="<m1@holt-bakery.example>"), FROM, TO)
    uid = int(ref.partition("/")[2])
    assert await imap.flags(uid) == set()
    assert await sender.probe(receipt["message_id"]) == receipt
    assert await inbox.find_message_id("Sent", OURS)
    await inbox.mark_processed(ref)
    assert await imap.flags(uid) == {b"\\Seen"}
    assert await inbox.list() == ()
    assert server.taken[-1].original_content == reply(In_Reply_To="<m1@holt-bakery.example>")
    await inbox.close()
    await sender.close()
