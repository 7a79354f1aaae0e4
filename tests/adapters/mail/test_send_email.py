"""`send_email` for anybody's playbook: by an outbox folder and by a real SMTP server."""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes

import pytest

from detent.adapters.mail.outbox import Outbox
from detent.adapters.mail.send_email import EmailSender, send_email_tool
from detent.adapters.mail.server import MailServer
from detent.adapters.mail.smtp import SmtpSender
from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.outcome import Effect, Outcome
from detent.engine.tools import NOT_DONE, ToolError
from detent.kernel.status import Status
from tests.adapters.mail.servers import HOST, smtp_server
from tests.engine.conftest import one_step

SENDER = "Desk <desk@library.example>"
NOW = datetime(2026, 3, 10, 8, 15, tzinfo=UTC)
MAIL = {"to": "ines@reader.example", "subject": "Your loan", "body": "It is due."}


@pytest.fixture
async def sender(tmp_path):
    made = EmailSender(Outbox(tmp_path / "outbox"), SENDER, app="overdue", now=lambda: NOW)
    await made.open()
    return made


def sent(tmp_path):
    return [message_from_bytes(one.read_bytes()) for one in sorted((tmp_path / "outbox").glob("*.eml"))]


async def test_a_mail_lies_in_the_outbox_marked_as_written_by_a_machine(sender, tmp_path):
    receipt = await sender.send(**MAIL, source="run/step")
    (mail,) = sent(tmp_path)
    assert receipt == {"message_id": mail["Message-ID"], "status": "queued"}
    assert (mail["From"], mail["To"], mail["Subject"]) == (SENDER, MAIL["to"], MAIL["subject"])
    assert (mail["Auto-Submitted"], mail["X-Detent-App"]) == ("auto-generated", "overdue")
    assert mail.get_payload().strip() == "It is due."


async def test_an_answer_says_what_it_answers(sender, tmp_path):
    await sender.send(**MAIL, in_reply_to="<a@b.example>")
    (mail,) = sent(tmp_path)
    assert (mail["In-Reply-To"], mail["Auto-Submitted"]) == ("<a@b.example>", "auto-replied")


async def test_the_same_mail_of_a_run_is_one_mail_and_of_another_run_another(sender, tmp_path):
    first = await sender.send(**MAIL, source="a")
    assert await sender.send(**MAIL, source="a") == first
    assert await sender.send(**MAIL, source="b") != first
    assert len(sent(tmp_path)) == 2


async def test_a_probe_finds_the_mail_that_went_out(sender):
    assert await sender.probe(**MAIL, source="a", language="en") is NOT_DONE
    receipt = await sender.send(**MAIL, source="a")
    assert await sender.probe(**MAIL, source="a") == receipt
    assert await sender.probe(**MAIL, source="b") is NOT_DONE


@pytest.mark.parametrize("wrong", [{"to": "nobody"}, {"to": "a@b.example, c@d.example"}, {"body": 7}])
async def test_a_mail_that_cannot_be_sent_certainly_was_not(sender, tmp_path, wrong):
    with pytest.raises(ToolError) as caught:
        await sender.send(**{**MAIL, **wrong})
    assert caught.value.code == "invalid"
    assert not caught.value.transient
    assert sent(tmp_path) == []


async def test_no_value_can_begin_a_header(sender, tmp_path):
    await sender.send(**{**MAIL, "subject": "Hello\r\nBcc: all@reader.example"})
    (mail,) = sent(tmp_path)
    assert mail["Bcc"] is None
    assert mail["Subject"] == "Hello Bcc: all@reader.example"


async def test_who_the_run_is_goes_into_the_mail_without_being_asked(sender, tmp_path):
    """Two runs alike send two mails; one run that proposes it twice sends one."""

    async def work(ctx):
        return Outcome("done", effects=[Effect("send_email", MAIL), Effect("send_email", MAIL)])

    flow = one_step(work, tools=[send_email_tool(sender)])
    async with Engine(MemoryStore(), [flow]) as engine:
        for _ in range(2):
            assert (await engine.run(flow)).status is Status.SUCCEEDED
    assert len(sent(tmp_path)) == 2


def test_agents_say_to_whom_and_what_and_nothing_else(sender):
    tool = send_email_tool(sender)
    assert tool.private
    assert tool.misfits(MAIL) == []
    assert tool.misfits({**MAIL, "source": "another run"})
    assert tool.misfits({**MAIL, "in_reply_to": "<x@y>"})


async def test_a_real_server_takes_it():
    async with smtp_server() as server:
        sink = SmtpSender(MailServer(protocol="SMTP", host=HOST, port=server.port, tls="none", timeout=5))
        sender = EmailSender(sink, SENDER, envelope_from="bounce@library.example", now=lambda: NOW)
        await sender.open()
        receipt = await sender.send(**MAIL, source="a")
        await sender.close()
        (envelope,) = server.taken
        assert receipt["status"] == "sent"
        assert (envelope.mail_from, envelope.rcpt_tos) == ("bounce@library.example", [MAIL["to"]])
