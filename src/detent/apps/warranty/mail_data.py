"""A mail in a run: its text is offloaded, so that it can be purged; the rest is in the run's data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from detent.adapters.mail.message import EmailMessage
from detent.dispatch.prose.contract import LANGUAGES
from detent.dispatch.prose.names import is_name
from detent.engine.context import StepContext
from detent.engine.offloaded import kept_beside
from detent.kernel.plain import encode


class TextPart(NamedTuple):
    """A piece of the mail's text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class MailView:
    """What a step sees of the mail it answers."""

    message_id: str | None
    from_address: str | None
    reply_address: str
    subject: str
    parts: tuple[TextPart, ...]
    references: tuple[str, ...]
    thread_root: str
    from_name: str = ""
    """The customer's name in `From`."""

    @classmethod
    def of(cls, mail: EmailMessage) -> MailView:
        """The view of a mail that has no run yet."""
        return cls(
            mail.message_id,
            mail.from_address,
            mail.reply_address or "",
            mail.subject,
            tuple(TextPart(part.kind, part.text) for part in mail.parts),
            mail.references,
            mail.thread_root,
            mail.from_name,
        )

    @property
    def newest(self) -> str:
        """The newest text; of a mail that only forwards another one, the forwarded text."""
        newest = next((part.text for part in self.parts if part.kind == "newest"), "")
        if newest.strip():
            return newest
        return next((part.text for part in self.parts if part.kind == "forwarded"), "")

    @property
    def text(self) -> str:
        """Subject and all parts."""
        return "\n".join([self.subject, *(part.text for part in self.parts)])


class Packed(NamedTuple):
    """A mail ready to start a run with."""

    data: dict[str, Any]
    beside: tuple[bytes, ...]


def pack(mail: EmailMessage, zone: str, now: datetime | None = None) -> Packed:
    """The data a run about this mail starts with."""
    received = mail.received_at or now or datetime.now(UTC)
    words = encode(
        {
            "message_id": mail.message_id,
            "from_address": mail.from_address,
            "reply_address": mail.reply_address,
            "subject": mail.subject,
            "parts": [{"kind": part.kind, "text": part.text} for part in mail.parts],
            "attachments": [
                {"name": attachment.name, "type": attachment.type, "size": attachment.size}
                for attachment in mail.attachments
            ],
            "references": list(mail.references),
            "thread_root": mail.thread_root,
        }
    ).encode("utf-8", "surrogatepass")
    name = encode(mail.from_name).encode("utf-8", "surrogatepass")
    data = {
        "email": kept_beside(words),
        # Apart from the mail, because agents are asked with the mail and need no name.
        "sender_name": kept_beside(name),
        "mail": {
            "key": mail.key,
            "sha256": mail.sha256,
            "received": received.astimezone(UTC).isoformat(),
            "day": received.astimezone(ZoneInfo(zone)).date().isoformat(),
        },
        "flags": list(mail.flags),
    }
    return Packed(data, (words, name))


def mail_of(data: Mapping[str, Any]) -> MailView:
    """The mail in a run's unfolded data."""
    email = data.get("email") or {}
    return MailView(
        email.get("message_id"),
        email.get("from_address"),
        email.get("reply_address") or "",
        email.get("subject") or "",
        tuple(TextPart(part["kind"], part["text"]) for part in email.get("parts") or ()),
        tuple(email.get("references") or ()),
        email.get("thread_root") or "",
        str(data.get("sender_name") or ""),
    )


def received_day(ctx: StepContext) -> Mapping[str, Any]:
    """The day that counts for the warranty: the day the mail was received."""
    return {"received": (ctx.data.get("mail") or {}).get("day")}


def with_flags(ctx: StepContext, flags: Iterable[str]) -> dict[str, list[str]]:
    """Flags the run does not have yet, each once."""
    present = set(ctx.data.get("flags") or ())
    return {"flags": [flag for flag in dict.fromkeys(flags) if flag not in present]}


def customer_name(mail: MailView) -> str | None:
    """The sender's name as far as it can be one; anybody may call themselves "Full Refund Approved"."""
    return mail.from_name if mail.from_name and is_name(mail.from_name, LANGUAGES.values()) else None
