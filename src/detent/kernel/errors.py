"""Everything that can be refused, as exceptions whose facts are attributes.

An error says where we are, what would have been right and what to do. `exit_code` is what the command line
ends with when the error reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from detent.kernel.caller import calling_line

SIMILAR = 0.6
"""Similarity, from 0 to 1, from which a name is suggested in place of an unknown one."""


def name_of(state: Any) -> str:
    """The text a state goes by in journals, tables and messages."""
    value = getattr(state, "value", state)
    return value if isinstance(value, str) else str(value)


def nearest(name: str, names: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest of `names`, or nothing."""
    close = get_close_matches(name, list(names), n=1, cutoff=SIMILAR)
    return f" Did you mean '{close[0]}'?" if close else ""


class DetentError(Exception):
    """Base of every error Detent raises on purpose."""

    exit_code = 1


class ConfigurationError(DetentError):
    """Something the user wrote cannot be used as it stands."""

    exit_code = 2


class InvalidValue(ConfigurationError, TypeError, ValueError):
    """A value of a wrong type, or out of range, was made or given back by a handler, tool or caller."""

    def __init__(self, message: str, where: str | None = None) -> None:
        self.where = calling_line() if where is None else where
        """`file:line` of the code that made the value, where that is known."""
        super().__init__(f"{message} ({self.where})" if self.where else message)


class NestedTooDeeply(InvalidValue):
    """A value has more levels than anything could read back, or contains itself."""


class IntegrationMissing(DetentError):
    """A component needed at start-up is not there."""

    exit_code = 3


class InvalidTransitionError(DetentError):
    """A move the table does not list was asked for; nothing changed."""

    def __init__(self, from_state: Any, to_state: Any, valid: Sequence[Any], why: str = "") -> None:
        self.from_state = from_state
        self.to_state = to_state
        self.valid = list(valid)
        self.why = why
        names = [name_of(state) for state in self.valid]
        text = f"Invalid transition: {name_of(from_state)} → {name_of(to_state)}. Valid transitions: {names}"
        super().__init__(f"{text}. {why}" if why else text)


class GuardRefusedError(InvalidTransitionError):
    """The table lists the move, but the condition on it does not hold on the run's data."""


class DefinitionError(ConfigurationError):
    """A definition is wrong; all problems are listed at once."""

    def __init__(self, subject: str, problems: Sequence[Any]) -> None:
        self.subject = subject
        self.problems = list(problems)
        count = len(self.problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{subject} has {count} problem{'s' if count != 1 else ''}:\n{lines}")


class DefinitionChanged(ConfigurationError):
    """A run was started under another definition than the one at hand."""

    def __init__(self, run_id: str, flow: str, difference: Sequence[str], fingerprint: str = "") -> None:
        self.run_id = run_id
        self.flow = flow
        self.difference = list(difference)
        self.fingerprint = fingerprint
        """Of the definition it was started under."""
        lines = "\n".join(f"  {line}" for line in self.difference)
        super().__init__(
            f"Run {run_id} was started under another definition of '{flow}':\n{lines}\n"
            f"Give the flow a migration from the old version, or cancel the run and start a new one."
        )


class ReplayedRun(ConfigurationError):
    """A run cannot go on: its answers came from a recording, and nothing it did was performed."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"Run {run_id} is the replay of a recording: nothing that its journal calls done was performed, "
            f"so it cannot go on. Cancel it (detent cancel {run_id}) and start a new run."
        )


class BudgetExceededError(DetentError):
    """Something was asked for that the budget no longer covers."""

    def __init__(self, limit: str, allowed: float, spent: float) -> None:
        self.limit = limit
        self.allowed = allowed
        self.spent = spent
        super().__init__(f"The {limit} budget is used up: {spent:g} of {allowed:g}.")


class StoreError(DetentError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be opened, read or written at all."""

    exit_code = 2


class StoreMissing(StoreUnavailable):
    """There is no store yet, and none was to be made."""


class StoreClosed(StoreUnavailable):
    """The store is not open, or not any more."""


class StoreTooNew(StoreUnavailable):
    """The store was written by a newer Detent."""


class StoreReadOnly(StoreUnavailable):
    """The store can be looked at, not changed."""


class StoreDamaged(StoreUnavailable):
    """What the store's file holds cannot be read as a store."""


class StoreLost(StoreUnavailable):
    """The store's files were taken away or replaced, and something is left of it."""


class RunNotFound(StoreError):
    """No run goes by this id."""

    exit_code = 2

    def __init__(self, run_id: str, hint: str = "") -> None:
        self.run_id = run_id
        super().__init__(f"There is no run '{run_id}' in this store.{hint}")


class RunDamaged(StoreError):
    """What the store holds of a run cannot be read."""

    def __init__(self, run_id: str, what: str) -> None:
        self.run_id = run_id
        self.what = what
        """A clause about the run, without a full stop."""
        super().__init__(
            f"Run {run_id} is damaged in the store: {what}. `detent store check` says more, and "
            f"docs/stores.md what to do."
        )


class RunExists(StoreError):
    """A run of this id is already there."""

    exit_code = 2

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"Run '{run_id}' already exists. To see it: detent show {run_id}. A new run needs another id."
        )


class MarkMoved(StoreError):
    """A mark that was to be set in a transaction has another version than expected; nothing was written."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"The mark '{key}' was set by another process meanwhile; nothing was written.")


class RunBusy(StoreError):
    """Another driver is alive and holds the run."""

    def __init__(self, run_id: str, owner: str) -> None:
        self.run_id = run_id
        self.owner = owner
        super().__init__(f"Run {run_id} is being driven by worker {owner}, which is alive.")


class Fenced(StoreError):
    """The run was taken over: its epoch or sequence moved, so this append was refused."""

    def __init__(self, run_id: str, epoch: int, expected_seq: int) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.expected_seq = expected_seq
        super().__init__(
            f"Run {run_id} moved on without this driver (held epoch {epoch}, expected entry {expected_seq}). "
            f"Nothing was written."
        )


class RunStateError(DetentError):
    """The run is not in a condition in which this can be done."""

    exit_code = 2


class KeyTaken(RunStateError):
    """Another open run has the key of which only one run may be open."""

    def __init__(self, key: str, run_id: str) -> None:
        self.key = key
        self.run_id = run_id
        """The open run."""
        super().__init__(
            f"Run {run_id} is still open under '{key}', and only one may be. Finish it with "
            f"`detent resume {run_id}`, or end it with `detent cancel {run_id}`."
        )


class HoldNotOpen(RunStateError):
    """An answer that meets no open question: answered, replaced or timed out meanwhile, or never asked."""

    def __init__(self, run_id: str, hold: str, why: str, now: str, tokens: Sequence[str] = ()) -> None:
        self.run_id = run_id
        self.hold = hold
        """What the answer was for."""
        self.why = why
        """What became of that question."""
        self.now = now
        """What the run asks now, or how it stands."""
        self.open = list(tokens)
        """Tokens of the holds that can be answered now."""
        how = f" Answer it with hold='{self.open[0]}'." if len(self.open) == 1 else ""
        super().__init__(f"{why} {now}{how}")


class FlowNotFound(ConfigurationError):
    """No flow goes by this name."""

    def __init__(self, name: str, known: Mapping[str, Iterable[str]], hint: str = "") -> None:
        """`known` are the names of everything that was looked for, by what it is: `{"flow": […]}`."""
        names = {noun: sorted(group) for noun, group in known.items()}
        self.name = name
        self.known = sorted({one for group in names.values() for one in group})
        *nouns, last = names
        sought = f"{', '.join(nouns)} or {last}" if nouns else last
        listed = "".join(f" Known {noun}s: {', '.join(group)}." for noun, group in names.items() if group)
        none = " No flow is registered." if not listed else ""
        super().__init__(f"There is no {sought} '{name}'.{nearest(name, self.known)}{listed}{none}{hint}")
