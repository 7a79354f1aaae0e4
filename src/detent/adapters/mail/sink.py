"""The port for outgoing mail: sent once, and found again by its Message-ID when in doubt.

`send` and `probe` keep the engine's contract for effects: a `ToolError` means that the mail certainly did not
go out, any other exception that it may have.
"""

from __future__ import annotations

import email.policy
from collections.abc import Awaitable, Callable, Sequence
from email.parser import BytesHeaderParser
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from detent.engine.tools import ToolError
from detent.kernel.errors import DetentError

_HEADERS = BytesHeaderParser(policy=email.policy.compat32)


class Receipt(TypedDict):
    """The ledger's record of a mail that went out."""

    message_id: str
    status: Literal["sent", "queued"]


class MailInDoubt(DetentError):
    """It is not known whether the mail went out."""


Leaving: TypeAlias = Callable[[], Awaitable[None]]
"""Awaited just before the mail is final: an exception it raises keeps the mail from going out."""


class MailSink(Protocol):
    """A sink for mails.

    A sink whose `tells_leaving` is True accepts `leaving` in `send`; until that has been awaited the mail
    certainly did not go out, whatever happens to the process.
    """

    async def open(self) -> None:
        """Make sure that mails can be sent; the error says what to check."""

    async def close(self) -> None:
        """Release it. It can be opened again."""

    async def send(self, raw: bytes, envelope_from: str, to: Sequence[str]) -> Receipt:
        """Send one mail that carries its own Message-ID: to all of `to`, or to nobody."""

    async def probe(self, message_id: str) -> Any:
        """The receipt if the mail went out, NOT_DONE if it certainly did not, else UNKNOWN."""

    def describe(self) -> str:
        """The sink's name for messages, without secrets."""


def message_id_of(raw: bytes) -> str:
    """The Message-ID of one of our mails; a `ToolError` when it has none to be found by."""
    text = str(_HEADERS.parsebytes(raw).get("Message-ID", "")).strip()
    if not (text.startswith("<") and text.endswith(">") and text.isascii() and text.isprintable()):
        raise ToolError(
            "no_message_id", "The mail has no usable Message-ID header, so it could not be found again."
        )
    return text
