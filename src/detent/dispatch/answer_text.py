"""Reading an agent's text: the JSON value in it, or the text itself where a text is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

DEEPEST = 64
"""Most levels of nested lists and mappings in an answer."""
_FENCES = ("```", "~~~")
_DEEP = "the answer is nested too deeply"


def parse_answer(text: str, *, text_allowed: bool) -> Any:
    """The whole text as JSON; else its last fenced JSON block; else, where allowed, the text itself.

    Raises:
        ValueError: the text is none of these; the message never repeats it.
    """
    try:
        return _value(text)
    except ValueError as error:
        why = error
    for block in reversed(list(_fenced(text))):
        try:
            return _value(block)
        except ValueError:
            continue
    if text_allowed:
        return text
    raise ValueError(str(why)) from None


def _value(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise ValueError("the answer is empty") from None
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"the answer is not one JSON value ({place})") from None
    except RecursionError:
        raise ValueError(_DEEP) from None
    if too_deep(value):
        raise ValueError(_DEEP)
    return value


def too_deep(value: Any) -> bool:
    """Whether a value has more levels than recursive code can safely walk."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for container in level
            if isinstance(container, dict | list | tuple)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"the answer holds {name}, which is no JSON number")


def _fenced(text: str) -> Iterator[str]:
    """The contents of closed fences labelled `json`, or not labelled."""
    fence, is_json, lines = "", False, list[str]()
    for line in text.splitlines():
        bare = line.strip()
        if fence:
            if bare.startswith(fence) and not bare.strip(fence[0]):
                if is_json:
                    yield "\n".join(lines)
                fence, lines = "", []
            else:
                lines.append(line)
        elif bare.startswith(_FENCES):
            mark = bare[0]
            info = bare.lstrip(mark)
            fence = mark * (len(bare) - len(info))
            is_json = info.strip().lower() in ("", "json")
