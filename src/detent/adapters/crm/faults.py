"""Failures of a request to a CRM, by the one thing that matters: whether it may have been carried out."""

from __future__ import annotations

from typing import Literal

from detent.kernel.errors import DetentError

Code = Literal["timeout", "connection", "auth", "server", "bad_response"]


class CrmFault(DetentError):
    """A request without a usable answer. The message is ours: host, status, sizes; nothing from the CRM."""

    def __init__(self, code: Code, message: str, *, transient: bool = False, sent: bool = False) -> None:
        self.code = code
        self.message = message
        self.transient = transient
        self.sent = sent
        """Whether the CRM may have acted on it."""
        super().__init__(f"{code}: {message}")
