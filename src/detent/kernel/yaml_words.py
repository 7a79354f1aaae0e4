"""Says in plain words what a YAML parser complains about, and on which line to look.

Parsers name tokens; people see quotes, brackets and columns. Nothing is parsed here.
"""

from __future__ import annotations

import re
from typing import Any

_QUOTES = "stands in quotes"
_HINTS: tuple[tuple[str, str], ...] = (
    (r"'\\t'", "YAML is indented with spaces, never with tabs"),
    (r"mapping values", f"A text with ': ' in it {_QUOTES}, and the keys of one mapping in one column"),
    (r"expected <block end>", "Keys of one mapping, and items of one list, begin in the same column"),
    (r"expected ',' or", "A bracket is not closed, or a comma is missing"),
    (r"expected the node content", "A value is missing, or a bracket is not closed"),
    (r"could not find expected ':'", "A key is followed by a colon and a space"),
    (r"cannot start any token", f"A text that begins with this character {_QUOTES}"),
    (r"alphabetic or numeric|undefined alias", f"A text that begins with * or & {_QUOTES}"),
    (r"unexpected end of stream", "A quotation mark is not closed"),
)
BRACES = "a text with {{…}} in it " + _QUOTES


def yaml_trouble(error: Exception, text: str) -> tuple[int, str]:
    """Line, from 1, and words for what a parser raised about a text; the words end without a full stop."""
    said = (
        getattr(error, "problem", None) or getattr(error, "context", None) or getattr(error, "reason", None)
    )
    said = " ".join(str(said or error).split()).rstrip(".")
    line = min(_line(error, text), text.count("\n")) + 1
    rows = text.split("\n")
    hint = next((one for pattern, one in _HINTS if re.search(pattern, said)), "")
    if "unhashable" in said and "{{" in rows[line - 1]:
        hint = BRACES[0].upper() + BRACES[1:]
    return line, f"{said}. {hint}" if hint else said


def _line(error: Exception, text: str) -> int:
    """The line to look at, from 0: what was never closed is mended where it begins."""
    mark: Any = getattr(error, "problem_mark", None)
    begun: Any = getattr(error, "context_mark", None)
    open_still = re.search(r"end of stream|<stream end>", str(getattr(error, "problem", "") or ""))
    if begun is not None and (mark is None or open_still):
        mark = begun
    if mark is not None:
        return int(mark.line)
    return text[: getattr(error, "position", 0)].count("\n")  # a character YAML does not allow
