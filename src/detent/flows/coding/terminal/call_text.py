"""A tool call and what came of it, a line each, for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from detent.flows.coding.terminal.plain_text import one_line, text_lines
from detent.flows.coding.tools.text_form import counted
from detent.insight.formatting import count, short, span, value

LONGEST_CALL = 100
LONGEST_RESULT = 80
WORTH_SAYING = 0.1
"""Seconds from which on it is said how long a call took."""
FAILED_ALL_THE_SAME = ("nonzero_exit", "timeout", "interrupted")
"""Errors of commands that ran; their output says more than the error."""
_FILE_TOOLS = ("read_file", "write_file", "update_file")
_COUNTED = {"read_file": "line", "list_dir": "entry", "glob": "match", "grep": "match"}
"""What each query counts."""
_NOTE = re.compile(r"\[(?:exit code (-?\d+)|It was )[^\]]*\]\Z")
"""What the tool `bash` says at the end of its result."""


def call_line(tool: str, args: Any) -> str:
    """A call: the tool and what it is about."""
    about = _about(tool, args) if isinstance(args, Mapping) else str(args)
    return f"{one_line(tool)[:60]} {short(one_line(about), LONGEST_CALL)}".rstrip()


def _about(tool: str, args: Mapping[str, Any]) -> str:
    def arg(name: str, usual: str = "") -> str:
        found = args.get(name, usual)
        return found if isinstance(found, str) else value(found)

    if tool in _FILE_TOOLS:
        lines = ""
        if tool == "read_file" and ("start_line" in args or "max_lines" in args):
            first, most = args.get("start_line", 1), args.get("max_lines")
            whole = isinstance(first, int) and isinstance(most, int)
            lines = f" lines {first}-{first + most - 1}" if whole else f" from line {value(first)}"
        return arg("filepath") + lines
    if tool in ("grep", "glob"):
        where = arg("directory", ".")
        return arg("pattern") + (f" in {where}" if where != "." else "")
    if tool == "bash":
        where = arg("cwd", ".")
        return arg("command") + (f" (in {where})" if where != "." else "")
    if tool == "list_dir":
        return arg("directory", ".")
    if tool == "task":
        return f"{arg('description')} ({arg('profile', 'analyzer')})"
    if tool == "ask":
        return arg("question")
    if tool == "todo":
        return f"{arg('action')} {arg('content') or arg('todo_id')}"
    return value(args, LONGEST_CALL) if args else ""


def result_note(message: Mapping[str, Any]) -> str:
    """What came of a call, in a few words; `message` is the one a session keeps of it."""
    tool, content = str(message.get("tool")), message.get("content")
    seconds = float(message.get("duration_ms") or 0) / 1000
    if content is None:  # a person said that it happened
        words = ""
    elif message.get("repeated"):
        words = "not made again: it would give the same result"
    elif message.get("ok") and (noun := _COUNTED.get(tool)) and isinstance(message.get("count"), int):
        words = counted(message["count"], noun)
    elif isinstance(content, Mapping):  # kept outside the journal
        words = value(content) if message.get("ok") else str(message.get("error") or "failed")
    elif message.get("ok"):
        words = _found(tool, str(content or ""))
    else:
        words = _went_wrong(str(message.get("error") or "failed"), str(content or ""))
    took = span(seconds) if seconds >= WORTH_SAYING else ""
    cut = "cut" if message.get("truncated") else ""
    return " · ".join(filter(None, (short(words, LONGEST_RESULT), cut, took)))


def _found(tool: str, content: str) -> str:
    if tool == "bash":
        return _last_words(content)
    if tool in _COUNTED:  # of an older session
        return count(len(content.splitlines()), "line")
    return _first_words(content)


def _went_wrong(error: str, content: str) -> str:
    if error in FAILED_ALL_THE_SAME:
        note = _NOTE.search(content)
        code = f"exit code {note[1]}" if note is not None and note[1] is not None else error
        words = _last_words(content)
        return f"{code}: {words}" if words else code
    words = _first_words(content)
    return f"{error}: {words}" if words else error


def _first_words(content: str) -> str:
    return next((line.strip() for line in text_lines(content[:10_000]) if line.strip()), "")


def _last_words(content: str) -> str:
    """The last line of a command's output."""
    lines = text_lines(_NOTE.sub("", content)[-10_000:])
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
