"""The port mail goes out by: sent once, and found again by its Message-ID when there is doubt.

`send` and `probe` keep the engine's contract for effects: a `ToolError` says that the mail certainly did not
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
    """What the ledger keeps of a mail that went out."""

    message_id: str
    status: Literal["sent", "queued"]


class MailInDoubt(DetentError):
    """Nobody can tell from here whether the mail went out."""


Leaving: TypeAlias = Callable[[], Awaitable[None]]
"""Awaited when everything but the last word is said: what it raises keeps the mail from going out."""


class MailSink(Protocol):
    """Where mails go.

    A sink whose `tells_leaving` is True takes a `leaving` with `send`, and until that was awaited the mail
    certainly did not go out, whatever became of the process.
    """

    async def open(self) -> None:
        """Make sure that mails can be handed over; an error that says what to check otherwise."""

    async def close(self) -> None:
        """Let go of it. It can be opened again."""

    async def send(self, raw: bytes, envelope_from: str, to: Sequence[str]) -> Receipt:
        """Hand over one mail that carries its own Message-ID: to all of `to`, or to nobody."""

    async def probe(self, message_id: str) -> Any:
        """The receipt if the mail went out, NOT_DONE if it certainly did not, else UNKNOWN."""

    def describe(self) -> str:
        """The sink in words for people, without secrets."""


def message_id_of(raw: bytes) -> str:
    """The Message-ID a mail of ours carries; a `ToolError` when it has none to be found again by."""
    found = str(_HEADERS.parsebytes(raw).get("Message-ID", "")).strip()
    if not (found.startswith("<") and found.endswith(">") and found.isascii() and found.isprintable()):
        raise ToolError(
            "no_message_id", "The mail has no usable Message-ID header, so it could not be found again."
        )
    return found
