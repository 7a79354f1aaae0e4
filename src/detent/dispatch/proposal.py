"""What an agent proposes, and what a validator says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from detent.engine.outcome import Effect


class Example(NamedTuple):
    """One worked example, shown to agents before the inputs at hand."""

    inputs: Any
    output: Any
    note: str = ""


class Proposal(NamedTuple):
    """What an agent answered, read and checked against the hard contract."""

    output: Any
    """In the declared types, where the step declares any."""
    next: str | None = None
    effects: tuple[Effect, ...] = ()
    reason: str | None = None
    plain: Any = None
    """The output as plain values."""
    given: Any = None
    """The output as the agent wrote it, with what the declared types leave out."""


class Verdict(NamedTuple):
    """What a validator says of a proposal."""

    ok: bool
    reasons: Sequence[str] = ()


Validator = Callable[[Mapping[str, Any], Proposal], Any]
"""`(inputs, proposal) -> Verdict`, a truth value, or `(ok, reasons)`; sync or async."""
