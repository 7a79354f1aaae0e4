"""How a child run ended, as its parent's step gets to know it."""

from __future__ import annotations

from typing import NamedTuple

from detent.kernel.status import Status
from detent.kernel.view import View


class Child(NamedTuple):
    """How a child run ended."""

    key: str
    id: str
    status: Status
    state: str
    data: View
    reason: str | None
    error: str | None

    @property
    def ok(self) -> bool:
        """True when it succeeded."""
        return self.status is Status.SUCCEEDED
