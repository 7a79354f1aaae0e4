"""The state of a request as booleans, for code that was written for them.

The machine decides; these are read from it, and setting one makes legal moves or a mark. There is no second
completion flag.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from detent.flows.coding.agent_state import AgentState as AgentState
from detent.flows.coding.reply_text import has_own_words
from detent.flows.coding.state_transition import CODING, AgentStateMachine
from detent.flows.coding.task_completion import Completion
from detent.kernel.state_history import RestoreError

COMPAT = "compat"
"""Reason of the moves made by setting `task_completed`."""
ASK = "ask-"
"""What the name of a hold begins with that asks a person for guidance."""

_WAYS = {
    AgentState.USER_INPUT: (AgentState.ASSISTANT, AgentState.RESPONSE),
    AgentState.ASSISTANT: (AgentState.RESPONSE,),
    AgentState.TOOL_EXECUTION: (AgentState.RESPONSE,),
    AgentState.RESPONSE: (),
}
"""The moves from each state to RESPONSE."""

_warned: set[str] = set()


def warn_again() -> None:
    """Let every setter warn once more in this process. For tests."""
    _warned.clear()


class ResponseState:
    """A machine in memory, or a run, as the booleans that older code reads and writes.

    Over a machine, a value that is set is read back until the next reply or reset; each setter warns once per
    process. Over a run (`of_run`) setters raise AttributeError.
    """

    __slots__ = ("_facts",)

    _facts: _OfMachine | _OfRun

    def __init__(
        self,
        machine: AgentStateMachine | None = None,
        *,
        has_user_response: bool | None = None,
        task_completed: bool | None = None,
        awaiting_user_guidance: bool | None = None,
        has_final_synthesis: bool | None = None,
    ) -> None:
        self._facts = facts = _OfMachine(AgentStateMachine() if machine is None else machine)
        for name, value in (
            ("task_completed", task_completed),
            ("has_user_response", has_user_response),
            ("awaiting_user_guidance", awaiting_user_guidance),
            ("has_final_synthesis", has_final_synthesis),
        ):
            if value is not None:
                facts.set(name, bool(value))

    @classmethod
    def of_run(
        cls,
        data: Mapping[str, Any],
        *,
        state: AgentState | str | None = None,
        holds: Collection[str] = (),
    ) -> ResponseState:
        """A view of a run's data, to read only.

        `state` is where the run stands, `holds` are the names of its open holds. A run whose state is not
        given stands where `data["state"]` says, or else where its turns have led; after tools that is
        RESPONSE.

        Raises:
            RestoreError: the data has a completion, and the state is not RESPONSE.
        """
        view = cls.__new__(cls)
        view._facts = _OfRun(data, None if state is None else CODING.state(state), holds)
        return view

    def __repr__(self) -> str:
        flags = ", ".join(name for name, value in self.to_flags().items() if value)
        return f"<{type(self).__name__} in {self.state.value!r}: {flags or 'no flag set'}>"

    def to_flags(self) -> dict[str, bool]:
        """All of them, by the names of both older vocabularies."""
        return {
            "completed": self.is_complete,
            "processing": self.is_processing,
            "task_completed": self.task_completed,
            "has_user_response": self.has_user_response,
            "awaiting_user_guidance": self.awaiting_user_guidance,
            "has_final_synthesis": self.has_final_synthesis,
        }

    @property
    def state(self) -> AgentState:
        """Where the request stands."""
        return self._facts.state

    @property
    def is_complete(self) -> bool:
        """Whether the request is complete."""
        return self._facts.is_complete

    completed = is_complete

    @property
    def is_processing(self) -> bool:
        """Whether the assistant or its tools are at work."""
        return self._facts.state in (AgentState.ASSISTANT, AgentState.TOOL_EXECUTION)

    processing = is_processing

    @property
    def task_completed(self) -> bool:
        """Whether the request is complete.

        Setting True goes to RESPONSE by legal moves and completes the request; setting False takes its
        completion back and leaves it in its state.
        """
        return self._facts.is_complete

    @task_completed.setter
    def task_completed(self, value: bool) -> None:
        self._set("task_completed", value)

    @property
    def has_user_response(self) -> bool:
        """Whether the assistant has replied to this request with words of its own."""
        return self._facts.has_user_response

    @has_user_response.setter
    def has_user_response(self, value: bool) -> None:
        self._set("has_user_response", value)

    @property
    def awaiting_user_guidance(self) -> bool:
        """Whether the last outcome is incomplete, or the assistant's question to a person is open."""
        return self._facts.awaiting_user_guidance

    @awaiting_user_guidance.setter
    def awaiting_user_guidance(self, value: bool) -> None:
        self._set("awaiting_user_guidance", value)

    @property
    def has_final_synthesis(self) -> bool:
        """Whether a summary was synthesised, as for a request that ends incomplete."""
        return self._facts.has_final_synthesis

    @has_final_synthesis.setter
    def has_final_synthesis(self, value: bool) -> None:
        self._set("has_final_synthesis", value)

    def _set(self, name: str, value: bool) -> None:
        facts = self._facts
        if isinstance(facts, _OfRun):
            raise AttributeError(
                f"'{name}' of a run can only be read: its journal says what was done. Start a new request."
            )
        if name not in _warned:
            _warned.add(name)
            warnings.warn(
                f"Setting ResponseState.{name} is deprecated; the state machine decides. "
                f"Use AgentStateMachine.transition_to and note_output.",
                DeprecationWarning,
                stacklevel=3,
            )
        facts.set(name, bool(value))


class _OfMachine:
    """The booleans over a machine, with the marks that were set since its last reply or reset."""

    __slots__ = ("_machine", "_marked_at", "_marks")

    def __init__(self, machine: AgentStateMachine) -> None:
        self._machine = machine
        self._marks: dict[str, bool] = {}
        self._marked_at = machine.replies

    @property
    def state(self) -> AgentState:
        return self._machine.state

    @property
    def is_complete(self) -> bool:
        return self._machine.is_complete

    @property
    def has_user_response(self) -> bool:
        return self._marked("has_user_response", self._machine.has_text)

    @property
    def awaiting_user_guidance(self) -> bool:
        return self._marked("awaiting_user_guidance", False)  # a machine in memory has no outcome and no hold

    @property
    def has_final_synthesis(self) -> bool:
        return self._marked("has_final_synthesis", False)

    def _marked(self, name: str, derived: bool) -> bool:
        return self._marks.get(name, derived) if self._marked_at == self._machine.replies else derived

    def set(self, name: str, value: bool) -> None:
        machine = self._machine
        if name == "task_completed":
            if value:
                for state in _WAYS[machine.state]:
                    machine.transition_to(state, COMPAT)
                machine.complete(Completion(0, "", "", "setter"))
            else:
                machine.clear_completion()
            return
        if self._marked_at != machine.replies:
            self._marks, self._marked_at = {}, machine.replies
        self._marks[name] = value


class _OfRun:
    """The booleans over a run's data."""

    __slots__ = ("_data", "_holds", "_state")

    def __init__(self, data: Mapping[str, Any], state: AgentState | None, holds: Collection[str]) -> None:
        self._data = data
        self._holds = holds
        self._state = state
        if data.get("completion") is not None and self.state is not AgentState.RESPONSE:
            raise RestoreError(
                "completion",
                f"stands beside the state '{self.state.value}'; only 'response' can be complete.",
            )

    @property
    def state(self) -> AgentState:
        if self._state is not None:
            return self._state
        written = self._data.get("state")
        return CODING.state(written) if written is not None else _state_after(self._data)

    @property
    def is_complete(self) -> bool:
        return self._data.get("completion") is not None and self.state is AgentState.RESPONSE

    @property
    def has_user_response(self) -> bool:
        return any(
            turn.get("role") == "assistant" and has_own_words(turn.get("content"))
            for turn in self._data.get("turns") or ()
        )

    @property
    def awaiting_user_guidance(self) -> bool:
        return self._data.get("outcome") == "incomplete" or any(name.startswith(ASK) for name in self._holds)

    @property
    def has_final_synthesis(self) -> bool:
        # The summary of a completed request is the assistant's own.
        return self._data.get("outcome") not in (None, "completed") and bool(self._data.get("summary"))


def _state_after(data: Mapping[str, Any]) -> AgentState:
    """Where a request stands as far as its data shows."""
    turns = data.get("turns") or ()
    if data.get("completion") is not None or data.get("outcome") is not None:
        return AgentState.RESPONSE
    if not turns:
        return AgentState.USER_INPUT
    last = turns[-1]
    match last.get("role"):
        case "assistant":
            return AgentState.TOOL_EXECUTION if last.get("tool_calls") else AgentState.RESPONSE
        case "tool":
            return AgentState.RESPONSE
    return AgentState.ASSISTANT
