"""A session as its file has it: a view of the mapping that refuses what cannot be.

Whatever else stands in the file, at any level, stays where it is. Values are never changed in place:
`changed` gives another record.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from detent.flows.coding.sessions import file_schema
from detent.flows.coding.sessions.redaction import LEGACY_FLAGS
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import copied

if TYPE_CHECKING:
    from pathlib import Path

    from detent.flows.coding.response_state import AgentState
    from detent.flows.coding.task_completion import Completion

SCHEMA: Final = "detent.coding.session"
VERSION: Final = 1
USER_INPUT, ASSISTANT, TOOL_EXECUTION, RESPONSE = "user_input", "assistant", "tool_execution", "response"
STATES = (USER_INPUT, ASSISTANT, TOOL_EXECUTION, RESPONSE)
ROLES = ("user", "assistant", "tool", "nudge")
COUNTERS = ("iterations", "unproductive", "premature", "refused", "suspicious", "tool_calls")
FIGURES = ("input_tokens", "output_tokens", "cost_usd")
ASKED_BY_MODEL = "ask"
"""How the names of holds begin in which the assistant asks a person."""

_MOVES = frozenset({"state", "is_complete", "completion", "outcome", "hold", "messages", "run_ids"})
"""Fields that say where the session is: when one of them changes, the booleans follow."""
_ADDED_UP = frozenset({"counters", "usage"})
"""Fields whose unknown parts stay when the known ones change."""


class SessionInvalid(ConfigurationError):
    """A session cannot be as something says it is."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        """One clause each."""
        super().__init__(f"This is no session: {'; '.join(self.problems)}.")


class SessionTooNew(ConfigurationError):
    """A session was written by a newer Detent."""

    def __init__(self, version: Any, file: Path | None = None) -> None:
        self.version = version
        self.file = file
        self.shown = f"{version:g}" if abs(version) < 10**9 else "unknown"
        subject = "This session" if file is None else f"The session file {file}"
        super().__init__(
            f"{subject} was written by a newer Detent (schema_version {self.shown}; this one reads up to "
            f"{VERSION}). Update Detent to go on with it."
        )


class SessionRecord:
    """One session."""

    __slots__ = ("_moved", "_plain")

    def __init__(self, plain: dict[str, Any], *, moved: bool = False, checked: Container[int] = ()) -> None:
        """See `from_plain`. Nobody else changes `plain` from now on; `moved` says that the booleans in it are
        out of date, `checked` which of its messages are known to be right (by `id()`)."""
        is_of_this_format(plain)
        if problems := file_schema.problems_of(plain, checked):
            raise SessionInvalid(problems)
        self._plain = plain
        self._moved = moved

    @classmethod
    def new(
        cls, session_id: str, now: float, *, workspace: str | None, model: str | None = None
    ) -> SessionRecord:
        """A session in which nothing has been asked yet."""
        return cls(blank(session_id, iso(now), workspace, model), moved=True)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> SessionRecord:
        """A session as its file has it.

        Raises:
            SessionTooNew: it was written by a newer version.
            SessionInvalid: a field holds something else than it may, or state and completion contradict
                each other.
        """
        return cls(copied(dict(plain)))

    def to_plain(self, *, legacy_flags: bool = True) -> dict[str, Any]:
        """The content of the file: as it was read, but for what has changed since.

        The booleans of older programs are written anew once the session has moved; without `legacy_flags`
        they are left out.
        """
        plain: dict[str, Any] = copied(self.view(legacy_flags=legacy_flags))
        return plain

    def view(self, *, legacy_flags: bool = True) -> dict[str, Any]:
        """As `to_plain`, only for reading: what is in it belongs to the record."""
        plain = dict(self._plain)
        if not legacy_flags:
            plain.pop("legacy", None)
        elif self._moved:
            plain["legacy"] = self.legacy_flags()
        return plain

    def changed(self, **fields: Any) -> SessionRecord:
        """The same session with other values in fields of its own.

        Raises:
            SessionInvalid: that cannot be.
            TypeError: there is no such field.
        """
        unknown = fields.keys() - file_schema.top_level().keys()
        if unknown:
            raise TypeError(f"A session has no field {', '.join(sorted(unknown))}.")
        plain = dict(self._plain)
        known = {id(message) for message in self._plain["messages"]}
        for name, value in fields.items():
            before = plain.get(name)
            if name in _ADDED_UP and isinstance(before, Mapping) and isinstance(value, Mapping):
                value = {**before, **value}
            if name == "messages" and isinstance(value, list):
                plain[name] = [item if id(item) in known else copied(item) for item in value]
            else:
                plain[name] = copied(value)
        moved = any(plain[name] != self._plain.get(name) for name in fields.keys() & _MOVES)
        return SessionRecord(plain, moved=self._moved or moved, checked=known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionRecord) and self.to_plain() == other.to_plain()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"SessionRecord({self.session_id}: {self.state_value}{', complete' if self.is_complete else ''})"
        )

    # -- where it is ----------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """Its id."""
        return str(self._plain["session_id"])

    @property
    def state_value(self) -> str:
        """The state of its last request, as the file has it."""
        return str(self._plain["state"])

    @property
    def state(self) -> AgentState:
        """The state of its last request."""
        from detent.flows.coding.response_state import AgentState

        return AgentState(self.state_value)

    @property
    def is_complete(self) -> bool:
        """Whether its last request is complete."""
        return bool(self._plain["is_complete"])

    @property
    def completion(self) -> Completion | None:
        """The line that completed its last request."""
        found = self._plain.get("completion")
        if found is None:
            return None
        from detent.flows.coding.task_completion import Completion

        return Completion(found["line_no"], found["marker_line"], found["summary"], found["source"])

    @property
    def outcome(self) -> str | None:
        """How its last request ended; None: it is under way or interrupted, or there is none."""
        return self._plain.get("outcome")

    @property
    def outcome_reason(self) -> str | None:
        """Why it ended so."""
        return self._plain.get("outcome_reason")

    @property
    def summary(self) -> str | None:
        """Of a request that was not finished: what was done."""
        return self._plain.get("summary")

    @property
    def checked(self) -> str:
        """What the command of `done_when` said: passed, skipped or none."""
        return str(self._plain.get("checked") or "none")

    @property
    def hold(self) -> Mapping[str, Any] | None:
        """The question that it waits for."""
        return self._plain.get("hold")

    # -- what it holds --------------------------------------------------------------------------------------

    @property
    def created_at(self) -> str | None:
        """When it began."""
        return self._plain.get("created_at")

    @property
    def updated_at(self) -> str | None:
        """When it was last written."""
        return self._plain.get("updated_at")

    @property
    def workspace(self) -> str | None:
        """The folder that its tools work in."""
        return self._plain.get("workspace")

    @property
    def model(self) -> str | None:
        """The model it was last held with."""
        return self._plain.get("model")

    @property
    def counters(self) -> dict[str, int]:
        """The figures of its last request."""
        found = self._plain.get("counters") or {}
        return {name: int(found.get(name, 0)) for name in COUNTERS}

    @property
    def usage(self) -> dict[str, float]:
        """Tokens and money that all its requests have used."""
        return figures(self._plain.get("usage"))

    @property
    def usage_before_last(self) -> dict[str, float]:
        """The same without its last run."""
        return figures((self._plain.get("usage") or {}).get("before_last"))

    @property
    def run_ids(self) -> list[str]:
        """Its runs, one for each request, the first one first."""
        return list(self._plain.get("run_ids") or ())

    @property
    def todos(self) -> list[dict[str, Any]]:
        """Its list of things to do."""
        return [dict(item) for item in self._plain.get("todos") or ()]

    @property
    def files_changed(self) -> list[str]:
        """Files that its file tools have changed."""
        return list(self._plain.get("files_changed") or ())

    @property
    def messages(self) -> list[Any]:
        """Everything that stands among its messages, also what is no turn; only for reading."""
        return list(self._plain["messages"])

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The messages that can be sent to a model: well-formed ones of the four roles, every result behind
        the call it answers."""
        turns: list[dict[str, Any]] = []
        open_calls: set[str] = set()
        for message in self._plain["messages"]:
            role = message.get("role") if isinstance(message, Mapping) else None
            if role not in ROLES or not file_schema.is_message(role, message):
                continue
            if role == "tool":
                if message["tool_call_id"] not in open_calls:
                    continue
                open_calls.discard(message["tool_call_id"])
            elif role == "assistant":
                open_calls = {call["id"] for call in message.get("tool_calls") or ()}
            turns.append(message)
        return turns

    @property
    def prompt(self) -> str:
        """What it began with."""
        return next((str(turn["content"]) for turn in self.turns if turn["role"] == "user"), "")

    @property
    def assistant_turns(self) -> int:
        """Replies of the assistant."""
        return sum(turn["role"] == "assistant" for turn in self.turns)

    @property
    def migration(self) -> Mapping[str, Any] | None:
        """How its state was found, if its file had booleans only."""
        return self._plain.get("migration")

    @property
    def plain(self) -> Mapping[str, Any]:
        """The content as it is; only for reading."""
        return self._plain

    def legacy_flags(self) -> dict[str, bool]:
        """The booleans of older programs, derived from where the session is."""
        hold = self.hold or {}
        asked = self.outcome == "waiting" and str(hold.get("name", "")).startswith(ASKED_BY_MODEL)
        incomplete = self.outcome == "incomplete"
        values = (
            self.is_complete, self.state_value in (ASSISTANT, TOOL_EXECUTION), self.is_complete,
            self._has_reply(), incomplete or asked, incomplete and bool(self.summary),
        )  # fmt: skip
        return dict(zip(LEGACY_FLAGS, values, strict=True))

    def _has_reply(self) -> bool:
        """Whether the assistant has said something since the last prompt."""
        for turn in reversed(self.turns):
            if turn["role"] == "user":
                break
            if turn["role"] == "assistant" and turn["content"].strip():
                return True
        return False


def blank(session_id: str, at: str | None, workspace: str | None, model: str | None) -> dict[str, Any]:
    """The fields of a session in which nothing has been asked yet, in the order in which files have them."""
    return {
        "schema": SCHEMA, "schema_version": VERSION, "session_id": session_id, "created_at": at,
        "updated_at": at, "workspace": workspace, "model": model, "state": USER_INPUT, "is_complete": False,
        "completion": None, "outcome": None, "outcome_reason": None, "checked": "none", "hold": None,
        "counters": dict.fromkeys(COUNTERS, 0), "run_ids": [], "todos": [], "messages": [],
        "files_changed": [],
        "usage": {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0},
        "legacy": dict.fromkeys(LEGACY_FLAGS, False), "migration": None,
    }  # fmt: skip


def is_of_this_format(plain: Mapping[str, Any]) -> bool:
    """Whether a file's content is a session of this format rather than of an older one.

    Raises:
        SessionTooNew: it is one of a newer format.
    """
    if plain.get("schema") != SCHEMA:
        return False
    version = plain.get("schema_version")
    if isinstance(version, int | float) and version > VERSION:
        raise SessionTooNew(version)
    return "state" in plain


def figures(found: Any) -> dict[str, float]:
    """Tokens and money, zero where nothing is said."""
    found = found if isinstance(found, Mapping) else {}
    return {name: (float if name == "cost_usd" else int)(found.get(name, 0)) for name in FIGURES}


def iso(at: float) -> str:
    """A moment as files have it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
