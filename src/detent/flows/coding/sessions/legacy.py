"""Sessions of older programs, which had booleans in place of a state: what they become, and why.

The same content becomes the same session on any machine, apart from the time of the mapping. No JSON object
makes it fail: a value that cannot stay in a field of this format is kept under `migration`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from detent.flows.coding.sessions import file_schema
from detent.flows.coding.sessions.ids import is_session_id, moment_of
from detent.flows.coding.sessions.json_text import Verbatim, to_text, value_text
from detent.flows.coding.sessions.legacy_messages import turns_of
from detent.flows.coding.sessions.record import (
    ASSISTANT,
    RESPONSE,
    SCHEMA,
    STATES,
    TOOL_EXECUTION,
    USER_INPUT,
    VERSION,
    blank,
    iso,
)
from detent.kernel.plain import text_digest

Vocabulary = Literal["completed/processing", "response_flags", "both"]

COMPLETED, PROCESSING = "completed", "processing"
REPLIED, TASK, GUIDANCE, SYNTHESIS = (
    "has_user_response", "task_completed", "awaiting_user_guidance", "has_final_synthesis",
)  # fmt: skip
VOCABULARY_A = (COMPLETED, PROCESSING)
VOCABULARY_B = (REPLIED, TASK, GUIDANCE, SYNTHESIS)
FLAGS = frozenset((*VOCABULARY_A, *VOCABULARY_B))
AMBIGUOUS, STATE_WINS = "ambiguous", "state_wins"
MARKER = "marker_in_transcript"
RENAMED = {"working_directory": "workspace", "current_model": "model"}
LONGEST_SHOWN = 60
"""Characters of a value that is named in a detail."""
MOST_SHOWN = 10

_COMPUTED = frozenset({
    "schema", "schema_version", "session_id", "created_at", "state", "is_complete", "completion", "outcome",
    "messages", "legacy", "migration",
})  # fmt: skip


class Position(NamedTuple):
    """Where flags say that a session is."""

    state: str
    is_complete: bool
    outcome: str | None
    reason: str
    ambiguous: bool = False


class Flags(NamedTuple):
    """The booleans of an older session."""

    found: Mapping[str, Any]
    """As they were found, in their order."""
    values: Mapping[str, bool]
    odd: Sequence[str]
    """Names of those that are neither true nor false."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that the session has; an object without any is read as one that has the newer ones."""
        first = any(name in self.found for name in VOCABULARY_A)
        second = any(name in self.found for name in VOCABULARY_B)
        if first and second:
            return "both"
        return "completed/processing" if first else "response_flags"


class Mapped(NamedTuple):
    """What an older session becomes."""

    record_fields: dict[str, Any]
    """The content of its new file."""
    migration: dict[str, Any]
    """How its state was found; part of the file, and the first entry of its journal."""


def is_session(plain: Mapping[str, Any]) -> bool:
    """Whether an object is a session at all."""
    return "messages" in plain or "session_id" in plain or not FLAGS.isdisjoint(plain)


def map_legacy(
    plain: Mapping[str, Any], now: float, *, name: str = "", repeated: Sequence[Mapping[str, Any]] = ()
) -> Mapped:
    """The session of this format that an older one becomes.

    `name` is the file's name without its suffix, the session's id if its content has none. `repeated` are
    values that its text had several times under one key.
    """
    flags = read_flags(plain)
    details: list[str] = [_odd(flag, flags.found[flag]) for flag in flags.odd]
    fields = _Fields(plain, flags)
    fields.take_over()
    position = _position(plain, flags, fields, details)
    fields.set_place(position)
    fields.set_identity(name, details)
    last_open = position.state == TOOL_EXECUTION
    messages = plain.get("messages")
    turns = turns_of(messages if isinstance(messages, list) else [], last_open=last_open)
    fields.result["messages"] = turns.messages
    if turns.as_found:
        details.append(f"{_count(turns.as_found, 'message')} kept as found")
    if turns.interrupted:
        details.append(f"{_count(turns.interrupted, 'call')} without a result")
    if repeated:
        names = dict.fromkeys(str(item["key"]) for item in repeated)
        details.append(f"repeated keys, of which the last counts: {_listed(names)}")
    if fields.replaced:
        details.append(f"values that do not fit: {_listed(fields.replaced)}")
    if not any(flags.values.values()) and position.reason != STATE_WINS and marker_ends(turns.messages):
        details.append(MARKER)
    migration: dict[str, Any] = {
        "vocabulary": flags.vocabulary, "reason": position.reason, "ambiguous": position.ambiguous,
        "detail": "; ".join(details) or None, "original": dict(flags.found), "mapped_at": iso(now),
    }  # fmt: skip
    if fields.replaced:
        migration["replaced"] = fields.replaced
    if repeated:
        migration["repeated"] = [dict(item) for item in repeated]
    fields.result["migration"] = migration
    return Mapped(fields.result, migration)


# -- flags --------------------------------------------------------------------------------------------------


def read_flags(plain: Mapping[str, Any]) -> Flags:
    """The flags of an object; those of its `legacy`, if it has none itself."""
    found = {name: value for name, value in plain.items() if name in FLAGS}
    inner = plain.get("legacy")
    if not found and isinstance(inner, Mapping):
        found = {name: value for name, value in inner.items() if name in FLAGS}
    read = {name: flag(value) for name, value in found.items()}
    return Flags(
        found,
        {name: bool(value) for name, value in read.items()},
        [name for name, value in read.items() if value is None],
    )


def flag(value: Any) -> bool | None:
    """Whether a value means true or false; None if it means neither."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return None


def position_of(flags: Flags, iteration_count: Any = None) -> Position:
    """Where the flags say that a session is."""
    values = flags.values
    completed, processing = values.get(COMPLETED, False), values.get(PROCESSING, False)
    if flags.vocabulary == "completed/processing":
        return _by_first(completed, processing)
    began = type(iteration_count) is int and iteration_count > 0
    replied, task, guidance, synthesis = (values.get(name, False) for name in VOCABULARY_B)
    position = _by_second(replied, task or completed, guidance, synthesis, processing or began)
    if flags.vocabulary == "both":
        alone = _by_first(completed, processing)
        row_of_none = not (replied or task or completed or guidance or synthesis)
        if alone[:2] != position[:2] and not row_of_none:
            position = position._replace(reason=AMBIGUOUS, ambiguous=True)
    return position


def _by_first(completed: bool, processing: bool) -> Position:
    """What `completed` and `processing` say."""
    if completed:
        reason = AMBIGUOUS if processing else "completed"
        return Position(RESPONSE, True, "completed", reason, processing)
    if processing:
        return Position(ASSISTANT, False, None, "processing")
    return Position(USER_INPUT, False, None, "idle")


def _by_second(replied: bool, task: bool, guidance: bool, synthesis: bool, began: bool) -> Position:
    """What the four flags of a response say; the first row that fits."""
    if task:
        several = guidance or synthesis
        return Position(RESPONSE, True, "completed", AMBIGUOUS if several else "completed", several)
    if guidance:
        return Position(RESPONSE, False, "incomplete", "awaiting_guidance")
    if synthesis:
        return Position(RESPONSE, False, "incomplete", "synthesised")
    if replied or began:
        return Position(ASSISTANT, False, None, "processing")
    return Position(USER_INPUT, False, None, "idle")


def _position(plain: Mapping[str, Any], flags: Flags, fields: _Fields, details: list[str]) -> Position:
    """Where a session is: where its state says, if it has one, else where its flags say."""
    state = plain.get("state")
    if not (isinstance(state, str) and state in STATES):
        if state is not None:
            details.append(f"state is {_shown(state)}, which is no state")
        return position_of(flags, plain.get("iteration_count"))
    done = flags.values.get(COMPLETED, False) or flags.values.get(TASK, False)
    own = plain.get("is_complete")
    complete = state == RESPONSE and (own if isinstance(own, bool) else done)
    outcome = plain.get("outcome")
    if complete:
        outcome = "completed"
    elif outcome == "completed" or not file_schema.fits("outcome", outcome):
        outcome = None
    derived = {COMPLETED: complete, TASK: complete, PROCESSING: state in (ASSISTANT, TOOL_EXECUTION)}
    if any(flags.values.get(name, value) != value for name, value in derived.items()):
        details.append(STATE_WINS)
        return Position(state, complete, outcome, STATE_WINS, True)
    return Position(state, complete, outcome, "state")


def disagrees(plain: Mapping[str, Any]) -> bool:
    """Whether the state of a session of this format contradicts the booleans that it has beside it."""
    if plain.get("migration") is not None:
        return False  # it stands there
    values = read_flags({"legacy": plain.get("legacy")}).values
    complete = plain["is_complete"]
    derived = {COMPLETED: complete, TASK: complete, PROCESSING: plain["state"] in (ASSISTANT, TOOL_EXECUTION)}
    return any(values.get(name, value) != value for name, value in derived.items())


def marker_ends(messages: Sequence[Any]) -> bool:
    """Whether the assistant's last message says that the task is done."""
    from detent.flows.coding.task_completion import judge_reply

    text: str | None = None
    lines: set[str] = set()
    for message in reversed(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            continue
        role, content = message.get("role"), message["content"]
        if role == "tool":
            lines.update(content.splitlines())
        elif role == "assistant" and text is None:
            if message.get("tool_calls"):
                return False
            text = content
        elif role == "user" and text is not None:
            break
    return text is not None and judge_reply(text, tool_lines=lines).completion is not None


# -- fields -------------------------------------------------------------------------------------------------


class _Fields:
    """The content of the new file, built in the order of the old one."""

    def __init__(self, plain: Mapping[str, Any], flags: Flags) -> None:
        self._plain = plain
        self._flags = flags
        self.result: dict[str, Any] = {"schema": SCHEMA, "schema_version": VERSION}
        self.replaced: dict[str, Any] = {}
        """Values that cannot stay where they were."""

    def take_over(self) -> None:
        """Every field in its place: unknown ones as they are, those of this format if they fit."""
        fields = file_schema.top_level()
        for name, value in self._plain.items():
            new_name = RENAMED.get(name, name)
            if new_name != name and (new_name in self._plain or not isinstance(value, str)):
                new_name = name  # nothing but a field like any other
            if name in FLAGS:
                continue
            if new_name not in fields:
                self.result[new_name] = value
            elif name in _COMPUTED:
                self.result.setdefault(name, None)
            elif file_schema.fits(new_name, value):
                self.result[new_name] = value
            else:
                self.replaced[name] = value
                self.result[new_name] = self._fitting(new_name, value)
        for name, value in blank("", None, None, None).items():
            self.result.setdefault(name, value)
        self.result["legacy"] = dict(self._flags.found)
        for name, new in (("schema", SCHEMA), ("schema_version", VERSION)):
            self._replace(name, new)
        inner, messages, migration = (self._plain.get(name) for name in ("legacy", "messages", "migration"))
        if inner is not None and inner != self._flags.found:
            self.replaced["legacy"] = inner
        if messages is not None and not isinstance(messages, list):
            self.replaced["messages"] = messages
        if migration is not None:
            self.replaced["migration"] = migration

    def set_place(self, position: Position) -> None:
        """State, completion and outcome."""
        completion = self._plain.get("completion")
        if not position.is_complete:
            completion = None
        elif completion is None or not file_schema.fits("completion", completion):
            completion = {"line_no": 0, "marker_line": "", "summary": "", "source": "legacy_flag"}
        self._replace("state", position.state)
        self._replace("is_complete", position.is_complete)
        self._replace("completion", completion)
        self._replace("outcome", position.outcome)

    def set_identity(self, name: str, details: list[str]) -> None:
        """Id and time of creation, which do not depend on the machine."""
        given = self._plain.get("session_id")
        if not is_session_id(given):
            if given is not None:
                details.append(f"session_id is {_shown(given)}, which is no session id")
            given = name if is_session_id(name) else text_digest(to_text(self._plain, sort_keys=True), 32)
        self._replace("session_id", given)
        created = self._plain.get("created_at")
        if not isinstance(created, str):
            created = _moment(created) or moment_of(str(given))
        self._replace("created_at", created)

    def _replace(self, name: str, value: Any) -> None:
        """Set a field, and keep what stood there if it was something else."""
        found = self._plain.get(name)
        if found is not None and (type(found) is not type(value) or found != value):
            self.replaced[name] = found
        self.result[name] = value

    @staticmethod
    def _fitting(name: str, value: Any) -> Any:
        """What of a value that does not fit can stay in its field."""
        default = blank("", None, None, None).get(name)
        if isinstance(value, list) and isinstance(default, list):
            return [item for item in value if file_schema.fits(name, [item])]
        return default


def _moment(value: Any) -> str | None:
    """A number of seconds since 1970 as ISO text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return iso(float(value))
    except (OverflowError, OSError, ValueError):
        return None


# -- words --------------------------------------------------------------------------------------------------


def _odd(name: str, value: Any) -> str:
    return f"{name} is {_shown(value)}, which counts as false"


def _shown(value: Any) -> str:
    if isinstance(value, str | int | float | bool | Verbatim) or value is None:
        text = value_text(value)
        return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
    return "an object" if isinstance(value, Mapping) else "a list"


def _listed(names: Mapping[str, Any]) -> str:
    shown = [name if len(name) <= LONGEST_SHOWN else f"{name[: LONGEST_SHOWN - 1]}…" for name in names]
    more = len(shown) - MOST_SHOWN
    return ", ".join(shown[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
