"""The table of a coding request, and the state machine that moves by it.

Belongs here: the moves, and when a request is complete. Whether a reply completes it is judged by
`task_completion`. Nothing here needs an engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Self

from detent.engine.state_machine import StateMachine
from detent.flows.coding.agent_state import AgentState
from detent.flows.coding.reply_text import has_own_words
from detent.flows.coding.task_completion import Completion, judge_reply
from detent.flows.coding.written_calls import TOOL_NAMES
from detent.kernel.entries import Ended, Entry, Moved
from detent.kernel.errors import InvalidTransitionError
from detent.kernel.machine import Machine
from detent.kernel.state_history import RestoreError

_S = AgentState

CODING: Machine[AgentState] = Machine(
    name="coding",
    version=1,
    start=_S.USER_INPUT,
    moves={
        _S.USER_INPUT: [_S.ASSISTANT],
        _S.ASSISTANT: [_S.TOOL_EXECUTION, _S.RESPONSE],
        _S.TOOL_EXECUTION: [_S.RESPONSE],
        _S.RESPONSE: [_S.ASSISTANT],
    },
    may_end={_S.RESPONSE},
    self_moves="noop",
)
"""Every move of a request; the flow and the state machine both go by it."""

MAX_ITERATIONS = 40
"""Turns of the assistant in a request, unless it says otherwise."""
COMPLETE = "the request is complete; start a new one"


def starts_turn(from_state: AgentState, to_state: AgentState) -> bool:
    """True when a move starts a turn of the assistant: these are counted as iterations."""
    return to_state is _S.ASSISTANT


class _Noted(NamedTuple):
    """A reply's text, kept until the request is in RESPONSE."""

    text: str
    tool_lines: Collection[str]


class AgentStateMachine(StateMachine[AgentState]):
    """The state machine of one coding request: the house's object over `CODING`, with its completion.

    Only RESPONSE can be complete, and a complete request makes no further move. One driver moves it; readers
    need no lock.
    """

    __slots__ = ("_completion", "_has_text", "_known_tools", "_noted", "_replies")

    title = "Coding"

    def __init__(
        self,
        *,
        max_iterations: int = MAX_ITERATIONS,
        known_tools: Collection[str] = TOOL_NAMES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(CODING, max_iterations=max_iterations, counts=starts_turn, clock=clock)
        self._known_tools = known_tools
        self._completion: Completion | None = None
        self._noted: _Noted | None = None
        self._replies = 0
        self._has_text = False

    # -- where it stands ------------------------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """The state it is in."""
        return self._state

    @property
    def current_state(self) -> AgentState:
        """The state it is in. Assigning is for tests and for restoring: it records nothing, and a request
        that is put into another state is not complete.
        """
        return self._state

    @current_state.setter
    def current_state(self, state: AgentState | str) -> None:
        target = self.machine.state(state)
        if target is not self._state:
            self._noted = self._completion = None
            self._state = target

    @property
    def completion(self) -> Completion | None:
        """What completed the request."""
        return self._completion if self._state is _S.RESPONSE else None

    @property
    def is_complete(self) -> bool:
        """True in RESPONSE once something has completed the request."""
        return self._state is _S.RESPONSE and self._completion is not None

    @property
    def is_processing(self) -> bool:
        """True while the assistant or its tools are at work."""
        return self._state is _S.ASSISTANT or self._state is _S.TOOL_EXECUTION

    @property
    def has_text(self) -> bool:
        """True once the assistant has replied to this request with words of its own."""
        return self._has_text

    @property
    def replies(self) -> int:
        """Replies noted and resets made, ever: a figure that changes with each."""
        return self._replies

    def can_transition_to(self, state: AgentState | str) -> bool:
        """True when `transition_to` would not raise; so it is for the state it is in."""
        target = self._find(state)
        return target is not None and (target is self._state or target in self.valid_next_states())

    def valid_next_states(self, state: AgentState | str | None = None) -> list[AgentState]:
        """The states that may follow `state`, or the present one; none once the request is complete."""
        if self.is_complete:
            return []
        return list(self.machine.allowed(self._state if state is None else self.machine.state(state)))

    # -- moving ---------------------------------------------------------------------------------------------

    def transition_to(self, to: AgentState | str, reason: str | None = None) -> bool:
        """Move; False, with nothing recorded, when it is there already.

        Raises:
            InvalidTransitionError: the request is complete, or the table does not list the move. Nothing
                has changed.
        """
        return self.transition(to, reason=reason)

    def transition(
        self,
        to_state: AgentState | str,
        context: Mapping[str, Any] | None = None,
        reason: str | None = None,
        duration_seconds: float = 0.0,
        tokens_consumed: int = 0,
    ) -> bool:
        """`transition_to`, recording what the state being left has cost."""
        target, here = self._find(to_state), self._state
        if target is here:
            return False
        if self.is_complete:
            raise InvalidTransitionError(here, to_state if target is None else target, [], COMPLETE)
        noted = self._noted
        completion = self._judged(noted) if noted is not None and target is _S.RESPONSE else None
        super().transition(to_state, context, reason, duration_seconds, tokens_consumed)
        if target is not _S.ASSISTANT:
            self._noted = None
        self._completion = completion
        return True

    def note_output(self, text: str, tool_lines: Collection[str] = ()) -> None:
        """Take the assistant's own text of this turn, whole; a second one takes the place of the first.

        It is judged in RESPONSE: now, or when the request comes there from ASSISTANT. Tools that run first
        make it void. `tool_lines` are the lines of this request's tool results: a marker that repeats one
        does not count.
        """
        self._replies += 1
        self._has_text = self._has_text or has_own_words(text)
        noted = _Noted(text, tool_lines)
        if self._state is not _S.RESPONSE:
            self._noted = noted if self._state is not _S.TOOL_EXECUTION else None
        elif self._completion is None:
            self._completion = self._judged(noted)

    def complete(self, completion: Completion) -> None:
        """Complete the request by something else than a reply. A complete one keeps what completed it.

        Raises:
            InvalidTransitionError: it is not in RESPONSE, and so cannot be complete.
        """
        if self._state is not _S.RESPONSE:
            raise InvalidTransitionError(
                self._state, "complete", self.valid_next_states(), "Only RESPONSE can be complete."
            )
        if self._completion is None:
            self._completion = completion

    def clear_completion(self) -> None:
        """Take the completion back; the state stays."""
        self._completion = None

    def reset(self) -> None:
        """Back to USER_INPUT for a new prompt: no completion, no history, no iterations."""
        self._completion = self._noted = None
        self._has_text = False
        self._replies += 1
        super().reset()

    def _judged(self, noted: _Noted) -> Completion | None:
        return judge_reply(noted.text, tool_lines=noted.tool_lines, known_tools=self._known_tools).completion

    # -- written form ---------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The whole object as JSON values. A text that is still to be judged is not part of it."""
        plain = super().to_dict()
        # The state as it was written: to a reader it may be another one by now.
        completion = self._completion if plain["current_state"] == _S.RESPONSE.value else None
        plain["completion"] = None if completion is None else completion._asdict()
        plain["has_text"] = self._has_text
        return plain

    # Both bring the table with them, so neither takes one.

    @classmethod
    def from_dict(  # type: ignore[override]
        cls,
        plain: Mapping[str, Any],
        *,
        known_tools: Collection[str] = TOOL_NAMES,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Read back what `to_dict` wrote; `RestoreError` names the field that is wrong."""
        restored = cls(known_tools=known_tools, clock=clock)
        restored._restore(plain)
        return restored

    @classmethod
    def from_journal(  # type: ignore[override]
        cls,
        entries: Iterable[Entry],
        *,
        max_iterations: int = MAX_ITERATIONS,
        known_tools: Collection[str] = TOOL_NAMES,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """What the journal of a request's run adds up to, seen as this object."""
        folded = cls(max_iterations=max_iterations, known_tools=known_tools, clock=clock)
        folded._fold(entries)
        return folded

    def _restore(self, plain: Mapping[str, Any]) -> None:
        super()._restore(plain)
        self._take_completion(plain.get("completion"))
        has_text = plain.get("has_text", False)
        if not isinstance(has_text, bool):
            raise RestoreError("has_text", f"is {has_text!r}; it must be true or false.")
        self._has_text = has_text

    def _fold(self, entries: Iterable[Entry]) -> None:
        entries = list(entries)
        super()._fold(entries)
        completion: Any = None
        for entry in entries:
            match entry.body:
                case Moved(set=changes, append=additions) | Ended(set=changes, append=additions):
                    completion = changes.get("completion", completion)
                    self._has_text = self._has_text or any(
                        turn.get("role") == "assistant" and has_own_words(turn.get("content"))
                        for turn in additions.get("turns", ())
                    )
        self._take_completion(completion)

    def _take_completion(self, plain: Any) -> None:
        """Take a completion as it was kept, if it fits the state."""
        if plain is None:
            return
        try:
            completion = Completion.from_plain(plain)
        except ValueError as error:
            raise RestoreError("completion", str(error)) from error
        if self._state is not _S.RESPONSE:
            raise RestoreError(
                "completion",
                f"stands beside the state '{self._state.value}'; only 'response' can be complete.",
            )
        self._completion = completion
