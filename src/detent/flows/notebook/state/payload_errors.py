"""What a payload can lack when it is applied to a state."""

from __future__ import annotations

from typing import Any

from detent.kernel.errors import ConfigurationError


class PayloadMissing(ConfigurationError):
    """A move needs a payload that was not given."""

    def __init__(self, row: str, payload: type[Any]) -> None:
        self.row = row
        self.payload = payload.__name__
        super().__init__(f"Row {row} of the notebook's table needs a payload of type {self.payload}.")


class PayloadMismatch(ConfigurationError):
    """A payload does not fit the state it is applied to."""
