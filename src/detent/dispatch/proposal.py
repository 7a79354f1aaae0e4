"""An agent's proposal, and a validator's verdict on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine.acts import Act
from detent.engine.outcome import Effect
from detent.engine.trial_context import CannotCheck

if TYPE_CHECKING:
    from detent.engine.rehearsal import Rehearsal


class Example(NamedTuple):
    """One worked example, shown to agents before the inputs at hand."""

    inputs: Any
    output: Any
    note: str = ""


async def _no_rehearsal(state: Any, data: Mapping[str, Any] | None = None) -> Rehearsal:
    """Outside a visit there is nothing to rehearse on."""
    raise CannotCheck(f"'{state}' can be rehearsed only while a run is being dispatched.")


class Proposal(NamedTuple):
    """An agent's answer, read and checked against the hard contract."""

    output: Any
    """In the declared types, if the step declares any."""
    next: str | None = None
    effects: tuple[Effect, ...] = ()
    reason: str | None = None
    plain: Any = None
    """The output as plain values."""
    given: Any = None
    """The output as the agent wrote it, with the parts that the declared types leave out."""
    acts: tuple[Act, ...] = ()
    """Effects performed in this visit before the proposal, with their receipts."""
    round: int = 1
    """How often the agent has acted in this visit, this time included."""
    final: bool = True
    """The visit ends with it; otherwise only `effects` are proposed, and the agent goes on with receipts."""
    composed: tuple[str, ...] | None = None
    """The approved sentences of which code composes its text for people; None: the agent wrote the text."""
    rehearse: Callable[..., Awaitable[Rehearsal]] = _no_rehearsal
    """For validators: `await proposal.rehearse(state, {key: value})` gives what the handler of any state of
    the flow would decide with these values in the run's data; nothing is performed."""


class Verdict(NamedTuple):
    """A validator's verdict on a proposal."""

    ok: bool
    reasons: Sequence[str] = ()


Validator = Callable[[Mapping[str, Any], Proposal], Any]
"""`(inputs, proposal) -> Verdict`, a truth value, or `(ok, reasons)`; sync or async."""
