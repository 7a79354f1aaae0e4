"""Patterns of paths: `*`, `?`, `[a-z]`, `**` and `{a,b}`, matched in a time that no pattern can drive up.

A pattern without `/` is matched against the name, at any depth; one with `/` against the whole path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from detent.engine.tools import ToolError

MOST_ALTERNATIVES = 200
"""Patterns that one with braces may stand for."""
ANY_FOLDERS = "**"

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "digit": "0-9", "lower": "a-z", "upper": "A-Z",
    "space": r" \t\n\r\f\v",
    "xdigit": "0-9a-fA-F", "punct": r"!-/:-@\[-`{-~", "blank": r" \t",
}  # fmt: skip
_NOTHING = "(?!)"


class PathPattern:
    """One pattern of relative paths, with `/` between their parts."""

    def __init__(
        self,
        pattern: str,
        *,
        case_sensitive: bool = True,
        anchored: bool | None = None,
        strict: bool = False,
    ) -> None:
        self.text = pattern
        parts = [part for part in _parts(pattern) if part not in ("", ".")]
        parts = [ANY_FOLDERS if len(part) > 1 and not part.strip("*") else part for part in parts]
        self.anchored = "/" in pattern.rstrip("/") if anchored is None else anchored
        """Whether it is matched from the beginning of the path."""
        if not self.anchored:
            parts = [ANY_FOLDERS, *parts]
        if parts[-1:] == [ANY_FOLDERS]:
            parts.append("*")  # everything below, but not the folder itself
        pairs = zip(parts, [*parts[1:], ""], strict=True)
        parts = [part for part, following in pairs if not part == following == ANY_FOLDERS]
        flags = 0 if case_sensitive else re.IGNORECASE
        self.expression = _expression(parts, strict)
        """One regular expression for the whole path; None where matching it could take long."""
        self.name_expression = _segment(parts[-1], strict) + r"\Z" if parts else _NOTHING
        """A regular expression for the last part of the path."""
        self._whole = None if self.expression is None else re.compile(self.expression, flags | re.DOTALL)
        self._parts = [
            None if part == ANY_FOLDERS else re.compile(_segment(part, strict) + r"\Z", flags | re.DOTALL)
            for part in parts
        ]

    def matches(self, path: str) -> bool:
        """Whether a path matches."""
        if self._whole is not None:
            return self._whole.match(path) is not None
        return self._end in self._walk(path.split("/"))

    def matches_above(self, path: str) -> bool:
        """Whether a path or one of the folders above it matches."""
        parts = path.split("/")
        return any(self.matches("/".join(parts[:count])) for count in range(1, len(parts) + 1))

    def may_match_below(self, folder: str) -> bool:
        """Whether a path below a folder could match."""
        return any(position < self._end for position in self._walk(folder.split("/") if folder else []))

    @property
    def _end(self) -> int:
        return len(self._parts)

    def _walk(self, parts: Sequence[str]) -> set[int]:
        """How many parts of the pattern may be used up after these parts of a path."""
        positions = self._skipped({0})
        for part in parts:
            after: set[int] = set()
            for position in positions:
                if position == self._end:
                    continue
                rule = self._parts[position]
                if rule is None:
                    after.add(position)
                elif rule.match(part):
                    after.add(position + 1)
            positions = self._skipped(after)
        return positions

    def _skipped(self, positions: set[int]) -> set[int]:
        """With the positions reached where `**` stands for no folder at all."""
        for position in list(positions):
            while position < self._end and self._parts[position] is None:
                position += 1
                positions.add(position)
        return positions


def _parts(pattern: str) -> list[str]:
    """The parts of a pattern between slashes; one in a class separates nothing."""
    parts, start, position = [], 0, 0
    while position < len(pattern):
        char = pattern[position]
        position += 1
        if char == "\\":
            position += 1
        elif char == "[":
            position = _class_end(pattern, position) or position
        elif char == "/":
            parts.append(pattern[start : position - 1])
            start = position
    return [*parts, pattern[start:]]


def _expression(parts: Sequence[str], strict: bool) -> str | None:
    """A regular expression for whole paths; None with two `**`, whose ways to match multiply."""
    if parts.count(ANY_FOLDERS) > 1:
        return None
    text = ""
    for number, part in enumerate(parts):
        if part == ANY_FOLDERS:
            text += "(?:[^/]+/)*"
        else:
            text += _segment(part, strict) + ("/" if number < len(parts) - 1 else "")
    return f"{text or _NOTHING}\\Z"


def _segment(part: str, strict: bool) -> str:
    """A regular expression for one name. If `strict`, a class that is not closed matches nothing.

    What stands between two `*` is matched where it first occurs, which loses no match and leaves nothing to
    try again.
    """
    pieces: list[str] = [""]
    position = 0
    while position < len(part):
        char = part[position]
        position += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[" and (end := _class_end(part, position)):
            pieces[-1] += _class(part[position:end])
            position = end + 1
        elif char == "\\":
            pieces[-1] += re.escape(part[position]) if position < len(part) else _NOTHING
            position += 1
        elif char == "[" and strict:
            return _NOTHING
        else:
            pieces[-1] += re.escape(char)
    first, *others = pieces
    if not others:
        return first
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1] if piece)
    return f"{first}{middle}[^/]*{others[-1]}"


def _class_end(part: str, position: int) -> int:
    """Where a class that begins here ends; 0 if it does not."""
    if part.find("]", position) < 0:
        return 0
    if part[position : position + 1] in ("!", "^"):
        position += 1
    if part[position : position + 1] == "]":
        position += 1
    while position < len(part):
        if part[position] == "\\":
            position += 2
        elif part[position] == "[" and part[position + 1 : position + 2] == ":":
            end = part.find(":]", position + 2)
            position = end + 2 if end > 0 else position + 1
        elif part[position] == "]":
            return position
        else:
            position += 1
    return 0


def _class(text: str) -> str:
    """A regular expression for a class, whose text is given without its brackets."""
    negated = text[:1] in ("!", "^")
    ranges, position = "", int(negated)
    chars: list[str] = []
    while position < len(text):
        if text.startswith("[:", position) and (end := text.find(":]", position + 2)) > 0:
            ranges += _CLASSES.get(text[position + 2 : end], "")
            position = end + 2
            continue
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
        low, position = text[position], position + 1
        if text.startswith("-", position) and position + 1 < len(text):
            position += 1
            if text[position] == "\\" and position + 1 < len(text):
                position += 1
            high, position = text[position], position + 1
            if low > high:  # git looks at the first character before it sees a range
                chars.append(low)
            else:
                ranges += f"{re.escape(low)}-{re.escape(high)}"
        else:
            chars.append(low)
    inner = ranges + "".join(re.escape(char) for char in chars)
    if not inner:
        return "[^/]" if negated else _NOTHING
    return f"(?!/)[{'^' if negated else ''}{inner}]"


def alternatives(pattern: str) -> list[str]:
    """The patterns that one with braces stands for, such as `*.{js,ts}`.

    Raises:
        ToolError: they are too many.
    """
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop()
        braces = _first_braces(text)
        if braces is None:
            done.append(text)
        else:
            start, end, choices = braces
            todo += [text[:start] + choice + text[end + 1 :] for choice in reversed(choices)]
        if len(done) + len(todo) > MOST_ALTERNATIVES:
            raise ToolError(
                "invalid_arguments",
                f"the pattern stands for more than {MOST_ALTERNATIVES}; use fewer braces.",
            )
    return done


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    """The first braces that enclose a comma: where they begin and end, and what they enclose."""
    opened: list[tuple[int, list[int]]] = []
    found: list[tuple[int, int, list[int]]] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif char == "{":
            opened.append((position, []))
        elif char == "," and opened:
            opened[-1][1].append(position)
        elif char == "}" and opened:
            start, commas = opened.pop()
            if commas:
                found.append((start, position, commas))
        position += 1
    if not found:
        return None
    start, end, commas = min(found)
    edges = [start, *commas, end]
    return start, end, [text[left + 1 : right] for left, right in pairwise(edges)]


def path_patterns(patterns: str | Iterable[str], *, case_sensitive: bool = True) -> tuple[PathPattern, ...]:
    """Several patterns: a list, or a text with commas between them."""
    texts = split_at_commas(patterns) if isinstance(patterns, str) else patterns
    rules: list[PathPattern] = []
    for pattern in texts:
        if pattern.strip("/. "):
            rules += [PathPattern(text, case_sensitive=case_sensitive) for text in alternatives(pattern)]
        if len(rules) > MOST_ALTERNATIVES:
            raise ToolError("invalid_arguments", f"there are more than {MOST_ALTERNATIVES} patterns.")
    return tuple(rules)


def denied_patterns(patterns: Iterable[str]) -> tuple[PathPattern, ...]:
    """Patterns of paths that are denied: in any case, because a file system may not tell cases apart."""
    return tuple(PathPattern(pattern, case_sensitive=False) for pattern in patterns)


def split_at_commas(text: str) -> list[str]:
    """The parts of a text with commas between them; commas in braces and brackets belong to a part."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "{[") - (char in "}]")
        if char == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]
