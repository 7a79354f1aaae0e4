"""The effect `send_email`: one mail to one address, through an outbox folder or SMTP.

A mail is identified by its run, step, recipient and text: the same mail has the same Message-ID at every
attempt, so it can be found when in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Any

from detent.adapters.mail.reply import message_id_for, reply
from detent.adapters.mail.sink import MailSink
from detent.engine.context import StepContext
from detent.engine.tools import Tool, ToolError
from detent.kernel.plain import digest


def arguments(
    address: str = "One address.", subject: str = "The subject.", longest: int = 100_000
) -> dict[str, Any]:
    """The arguments the tool publishes; the others come from step files or from the run."""
    return {
        "type": "object",
        "properties": {
            "to": {"type": "string", "minLength": 3, "maxLength": 320, "description": address},
            "subject": {"type": "string", "maxLength": 400, "description": subject},
            "body": {"type": "string", "minLength": 1, "maxLength": longest, "description": "The text."},
        },
        "required": ["to", "subject", "body"],
        "additionalProperties": False,
    }


PROSE = ("body", "subject")
"""The arguments that are text for people."""
_REPLIED = b"\r\nAuto-Submitted: auto-replied\r\n"
_GENERATED = b"\r\nAuto-Submitted: auto-generated\r\n"


class EmailSender:
    """Sends mails through a sink. Open while runs that send are under way."""

    def __init__(
        self,
        sink: MailSink,
        sender: str,
        *,
        app: str = "playbook",
        envelope_from: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.sink = sink
        self.sender = sender
        self.app = app
        self.envelope_from = envelope_from or parseaddr(sender)[1]
        self._now = now

    async def open(self) -> None:
        """Make sure that mail can be sent."""
        await self.sink.open()

    async def close(self) -> None:
        """Close the sink."""
        await self.sink.close()

    async def send(
        self,
        to: str,
        subject: str,
        body: str,
        language: str | None = None,
        in_reply_to: str | None = None,
        references: Iterable[str] = (),
        source: str = "",
    ) -> dict[str, Any]:
        """Send one mail."""
        for name, value in (("to", to), ("subject", subject), ("body", body)):
            if not isinstance(value, str):
                raise ToolError("invalid", f"send_email: {name} is text.")
        key = mail_key(source, to, subject, body)
        raw = self.message(key, to, subject, body, language, in_reply_to, references)
        if in_reply_to is None:
            raw = raw.replace(_REPLIED, _GENERATED, 1)  # it is no reply, but still written by a machine
        return dict(await self.sink.send(raw, self.envelope_from, [to.strip()]))

    async def probe(self, to: str, subject: str, body: str, source: str = "", **_: Any) -> Any:
        """The outcome of a mail that is in doubt."""
        return await self.sink.probe(self.message_id(mail_key(source, to, subject, body)))

    def message(
        self,
        key: str,
        to: str,
        subject: str,
        body: str,
        language: str | None = None,
        in_reply_to: str | None = None,
        references: Iterable[str] = (),
    ) -> bytes:
        """The mail as it is sent.

        Raises:
            ToolError: it cannot be sent to anyone as it is.
        """
        try:
            return reply(
                sender=self.sender, to=to, subject=subject, body=body, key=key, date=self._now(),
                app=self.app, in_reply_to=in_reply_to, references=references, language=language,
            )  # fmt: skip
        except ValueError as error:
            raise ToolError("invalid", f"send_email: {error}") from error

    def message_id(self, key: str) -> str:
        """The Message-ID of the mail with a key."""
        return message_id_for(key, parseaddr(self.sender)[1].rpartition("@")[2])


def mail_key(source: str, to: str, subject: str, body: str) -> str:
    """The key that identifies a mail."""
    return digest([source, to, subject, body])


def run_gives(ctx: StepContext) -> Mapping[str, Any]:
    """The arguments the run itself gives: the sender of the mail."""
    return {"source": f"{ctx.run_id}/{ctx.step.name}"}


def send_email_tool(sender: EmailSender) -> Tool:
    """The effect `send_email`."""
    return Tool(
        "send_email", sender.send, "effect", probe=sender.probe, private=True, given=run_gives,
        description="Send one mail to one address.", arguments=arguments(), prose=PROSE,
    )  # fmt: skip
