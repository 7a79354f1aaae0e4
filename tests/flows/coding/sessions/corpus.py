"""Older sessions of every sort, made on demand: what there is, and what must become of it.

The expectations are written down here a second time, row by row, and know nothing of the code under test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

A = ("completed", "processing")
B = ("has_user_response", "task_completed", "awaiting_user_guidance", "has_final_synthesis")
TRUE = (True, 1, "true", "True", "TRUE", 1.0)
FALSE = (False, 0, "false", "False", "fAlSe", None, 0.0)
ODD: tuple[Any, ...] = (2, -1, "yes", "1", "", [], {}, [True], {"value": True}, 0.5, " true", "on", 10**30)

ROWS = (
    # R T G S, any where it is None
    ((None, True, False, False), ("response", True, "completed", "completed")),
    ((None, True, None, None), ("response", True, "completed", "ambiguous")),
    ((None, False, True, None), ("response", False, "incomplete", "awaiting_guidance")),
    ((None, False, False, True), ("response", False, "incomplete", "synthesised")),
    ((True, False, False, False), ("assistant", False, None, "processing")),
    ((False, False, False, False), ("user_input", False, None, "idle")),
)


class Expected(NamedTuple):
    """Where an older session is."""

    state: str
    is_complete: bool
    outcome: str | None
    reason: str


def by_first(completed: bool, processing: bool) -> Expected:
    """Vocabulary A, as the seed fixes it."""
    if completed:
        return Expected("response", True, "completed", "ambiguous" if processing else "completed")
    if processing:
        return Expected("assistant", False, None, "processing")
    return Expected("user_input", False, None, "idle")


def by_second(flags: tuple[bool, bool, bool, bool]) -> Expected:
    """Vocabulary B: the first row that fits."""
    for row, result in ROWS:
        if all(cell is None or cell == flag for cell, flag in zip(row, flags, strict=True)):
            return Expected(*result)
    raise AssertionError("the table has no hole")


def by_both(completed: bool, processing: bool, flags: tuple[bool, bool, bool, bool]) -> Expected:
    """Both vocabularies in one file."""
    merged = (flags[0], flags[1] or completed, flags[2], flags[3])
    result = by_second(merged)
    if not any(merged):
        return by_first(False, processing)
    return (
        result if by_first(completed, processing)[:2] == result[:2] else result._replace(reason="ambiguous")
    )


# -- messages -----------------------------------------------------------------------------------------------

PLAIN = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "fix it", "timestamp": "2025-01-02T03:04:05Z"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_0", "type": "function",
         "function": {"name": "read_file", "arguments": '{"filepath": "a.py"}'}},
        {"id": "call_0", "type": "function", "function": {"name": "grep", "arguments": "not json"}},
    ]},
    {"role": "tool", "tool_call_id": "call_0", "content": "print(1)"},
    {"role": "tool", "tool_call_id": "call_0", "content": "no match"},
    {"role": "assistant", "content": "It is fixed."},
]  # fmt: skip
TYPED = [
    {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "data": "AAAA"}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "list_dir", "input": {"directory": "."}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.py"}]},
        {"type": "text", "text": "go on"},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "Nothing to do."}]},
]  # fmt: skip
PARTS = [
    {"kind": "request", "parts": [
        {"part_kind": "system-prompt", "content": "You are helpful."},
        {"part_kind": "user-prompt", "content": "list it", "timestamp": "2025-01-02T03:04:05Z"},
    ]},
    {"kind": "response", "model_name": "m", "parts": [
        {"part_kind": "text", "content": "I list."},
        {"part_kind": "tool-call", "tool_name": "list_dir", "args": {"directory": "."}, "tool_call_id": "p1"},
        {"part_kind": "tool-call", "tool_name": "glob", "args": '{"pattern": "*"}', "tool_call_id": "p2"},
    ]},
    {"kind": "request", "parts": [
        {"part_kind": "tool-return", "tool_name": "list_dir", "content": "a.py", "tool_call_id": "p1"},
        {"part_kind": "retry-prompt", "tool_name": "glob", "content": [{"msg": "bad"}], "tool_call_id": "p2"},
    ]},
    {"kind": "response", "parts": [{"part_kind": "text", "content": "a.py"}]},
]  # fmt: skip
STRANGE: list[Any] = [
    None, 17, "text", [], {}, {"role": 5, "content": "x"}, {"role": "oracle", "content": "x"},
    {"role": "user", "content": 5}, {"role": "user"}, {"role": "tool", "content": {"a": 1}},
    {"kind": "request", "parts": "x"}, {"kind": "request", "parts": [1]}, {"kind": "response", "parts": []},
    {"kind": "other", "parts": []}, {"role": "user", "content": [1, 2]},
]  # fmt: skip
SHAPES: Mapping[str, list[Any]] = {
    "plain": PLAIN,
    "typed": TYPED,
    "parts": PARTS,
    "strange": STRANGE,
    "none": [],
}


OURS = [
    {"role": "assistant", "content": "z", "tool_calls": [{"id": "t1c1", "tool": "glob", "args": {}}]},
    {"role": "tool", "tool_call_id": "t1c1", "tool": "glob", "ok": True, "content": "y"},
    {"role": "nudge", "content": "n", "kind": "empty"},
]
_KEYS = (
    "role", "content", "kind", "parts", "tool_calls", "tool_call_id", "tool", "name", "ok", "error",
    "truncated", "part_kind", "tool_name", "args", "type", "text", "id", "function", "duration_ms",
    "is_error", "input", "provider_id", "role_as_found", "content_as_found", "tool_use_id", "arguments",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 7, 3.5, "", [], {}, "user", "assistant", "tool", "request", "response", "text",
    "tool-call", "tool-return", "call_0", "p1", "t1c1", ["in a list"], {"a": "in an object"},
    [{"type": "text", "text": "typed text"}], [{"type": "tool_result", "content": "typed result"}],
)  # fmt: skip


def changed_messages(random: Random) -> list[Any]:
    """Messages of all shapes, side by side, with a few things wrong anywhere in them."""
    every = [*PLAIN, *TYPED, *PARTS, *STRANGE, *OURS]
    messages = [deepcopy(random.choice(every)) for _ in range(random.randint(1, 5))]
    for number in range(random.randint(0, 4)):
        spot = random.choice(_spots(messages))
        value = deepcopy(random.choice([*_VALUES, f"unlike any other {number}"]))
        if isinstance(spot, dict):
            spot[random.choice(_KEYS)] = value
        elif spot:
            spot[random.randrange(len(spot))] = value
    return messages


def _spots(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [spot for item in inner for spot in _spots(item)]
    return [value, *found] if isinstance(value, dict | list) else []


# -- files --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A file of the corpus."""

    name: str
    kind: str
    """As an audit calls it."""
    expected: Expected | None = None
    original: dict[str, Any] | None = None


def combinations() -> Iterator[tuple[dict[str, bool], Expected]]:
    """All flags of either vocabulary and of both, with what must become of them."""
    for first in product((False, True), repeat=2):
        yield dict(zip(A, first, strict=True)), by_first(*first)
    both = (False, True)
    for second in product(both, both, both, both):
        yield dict(zip(B, second, strict=True)), by_second(second)
    for completed, processing in product(both, both):
        for second in product(both, both, both, both):
            flags = dict(zip((*A, *B), (completed, processing, *second), strict=True))
            yield flags, by_both(completed, processing, second)


def spelled(flags: Mapping[str, bool], random: Random) -> dict[str, Any]:
    """The same flags as other programs have written them; false ones may be absent, but for one of each
    vocabulary."""
    result: dict[str, Any] = {}
    for name, value in flags.items():
        kept = name in (A[0], B[0])
        if value or kept or random.random() < 0.7:
            result[name] = random.choice(TRUE if value else FALSE)
    return result


def session_id(number: int) -> str:
    """An id, of each of the forms that there are."""
    forms = (
        f"2025-01-02_03-04-{number % 60:02}_fix-it_{number:06x}",
        f"2025-01-02_03-04-{number % 60:02}_fix_it_{number:08x}",
        f"{number:08x}-0000-4000-8000-{number:012x}",
    )
    return forms[number % len(forms)]


def legacy_sessions(count: int, seed: int = 1) -> Iterator[Made]:
    """That many older sessions: every combination in turn, in every shape of messages, oddly spelled."""
    random = Random(seed)
    every = list(combinations())
    shapes = list(SHAPES.values())
    for number in range(count):
        flags, expected = every[number % len(every)]
        plain: dict[str, Any] = {
            "session_id": session_id(number),
            "custom": {"kept": [number, {"deep": None}]},
        }
        plain |= spelled(flags, random)
        plain["messages"] = shapes[(number + number // len(every)) % len(shapes)]
        plain["working_directory"] = f"/home/u/{number}"
        plain["yolo"] = True
        items = list(plain.items())
        random.shuffle(items)
        yield Made(f"{session_id(number)}.json", "legacy", expected, dict(items))


DAMAGED: Mapping[str, bytes] = {
    "empty": b"", "blank": b" \n", "cut": b'{"session_id": "abcdef01", "messages": [{"role": "us',
    "list": b"[]", "text": b'"x"', "number": b"5", "null": b"null", "nan": b'{"messages": [], "cost": NaN}',
    "infinity": b'{"messages": [], "cost": -Infinity}', "latin": b'{"session_id": "abcdef02", "x": "\xe9"}',
    "binary": bytes(range(256)), "two": b'{"messages": []} {"messages": []}',
    "deep": b'{"messages": [' + b"[" * 5000 + b"]" * 5000 + b"]}",
    "deep_objects": b'{"messages": [], "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "comma": b'{"messages": [],}', "comment": b'{"messages": [] /* none */}',
}  # fmt: skip
NO_SESSION: Mapping[str, bytes] = {
    "settings": b'{"theme": "dark"}', "nothing": b"{}", "state_only": b'{"state": "assistant"}',
}  # fmt: skip
WELL_FORMED: Mapping[str, bytes] = {
    "bom": b'\xef\xbb\xbf{"session_id": "abcdef03", "completed": true}',
    "utf16": '{"session_id": "abcdef04", "completed": true}'.encode("utf-16"),
    "repeated": b'{"session_id": "abcdef05", "completed": false, "completed": true}',
    "numbers": b'{"session_id": "abcdef06", "completed": true, "big": 1e400, "long": ' + b"7" * 5000
    + b', "fine": 0.1000000000000000055511151231257827}',
    "surrogate": b'{"session_id": "abcdef07", "completed": true, "x": "\\ud800"}',
    "nested": b'{"session_id": "abcdef08", "completed": true, "x": ' + b"[" * 150 + b"]" * 150 + b"}",
    "fields": json.dumps({
        "session_id": "abcdef09", "completed": True, "schema": 1, "schema_version": [], "created_at": 5,
        "updated_at": {}, "workspace": 7, "model": [], "is_complete": "?", "completion": 1, "outcome": "?",
        "outcome_reason": 1, "checked": 0, "hold": 1, "counters": [], "run_ids": "x",
        "todos": [1, {"id": "1"}], "messages": "x",
        "files_changed": [1, "a"], "usage": 5, "legacy": 5, "migration": 5, "summary": 5,
    }).encode(),
}  # fmt: skip
"""JSON objects that are odd, and completed sessions none the less."""


def special_files(folder: Path, huge: int = 20_000_000) -> Iterator[Made]:
    """Write what else lies in such folders, in the folder and below it."""
    for name, raw in DAMAGED.items():
        (folder / f"{name}.json").write_bytes(raw)
        yield Made(f"{name}.json", "damaged")
    for name, raw in NO_SESSION.items():
        (folder / f"{name}.json").write_bytes(raw)
        yield Made(f"{name}.json", "no_session")
    below = folder / "below" / "further"
    below.mkdir(parents=True)
    done = Expected("response", True, "completed", "completed")
    for name, raw in WELL_FORMED.items():
        file = below / f"{name}.json"
        file.write_bytes(raw)
        yield Made(f"below/further/{name}.json", "legacy", done)
    (folder / "notes.txt").write_text("completed: true")
    yield Made("notes.txt", "other")
    newer = {"schema": "detent.coding.session", "schema_version": 2, "position": "anywhere"}
    (folder / "newer.json").write_text(json.dumps(newer))
    yield Made("newer.json", "newer")
    (folder / "folder.json").mkdir()
    yield Made("folder.json", "damaged")
    (folder / "link.json").symlink_to(below / "bom.json")
    yield Made("link.json", "damaged")
    (folder / "nowhere.json").symlink_to(folder / "gone")
    yield Made("nowhere.json", "damaged")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    yield Made("loop.json", "damaged")
    (folder / "round").symlink_to(folder)
    yield Made("round", "other")
    os.mkfifo(folder / "pipe.json")
    yield Made("pipe.json", "damaged")
    (folder / "UPPER.JSON").write_bytes(b'{"session_id": "abcdef0a", "completed": true}')
    yield Made("UPPER.JSON", "legacy", done)
    if huge:
        text = "a line of a very long session\n" * (huge // 30)
        plain = {"session_id": "abcdef0b", "completed": True, "messages": [{"role": "user", "content": text}]}
        (folder / "abcdef0b.json").write_text(json.dumps(plain))
        yield Made("abcdef0b.json", "legacy", done)


def write_corpus(folder: Path, count: int, huge: int = 20_000_000) -> list[Made]:
    """A folder of that many files, half of the older sessions in sub-folders."""
    folder.mkdir(parents=True, exist_ok=True)
    special = list(special_files(folder, huge))
    made = []
    for number, item in enumerate(legacy_sessions(count - len(special))):
        place = Path("old") / str(number % 7) if number % 2 else Path()
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / item.name).write_text(json.dumps(item.original))
        made.append(Made((place / item.name).as_posix(), item.kind, item.expected, item.original))
    return [*special, *made]


def tree(folder: Path) -> dict[str, Any]:
    """Everything in a folder: bytes and modification times of files, targets of links."""
    found: dict[str, Any] = {}
    for here, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(here) / name
            status = path.lstat()
            content: Any = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes(), status.st_mtime_ns, status.st_ino
            found[path.relative_to(folder).as_posix()] = content
    return found
