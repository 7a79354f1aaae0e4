"""Explains the errors of the YAML parser in plain words.

Parsers name tokens; people see quotes, brackets and columns. Nothing is parsed here.
"""

from __future__ import annotations

import re
from typing import Any

_QUOTES = "belongs in quotes"
_HINTS: tuple[tuple[str, str], ...] = (
    (r"\\t|tab character", "YAML is indented with spaces, never with tabs"),
    (r"mapping values", f"A text with ': ' in it {_QUOTES}, and the keys of one mapping in one column"),
    (r"expected <block end>|expected key|expected '-'",
     "Keys of one mapping, and items of one list, begin in the same column"),
    (r"expected ',' or", "A bracket is not closed, or a comma is missing"),
    (r"expected (the )?node content", "A value is missing, or a bracket is not closed"),
    (r"could not find expected ':'", "A key is followed by a colon and a space"),
    (r"cannot start any token", f"A text that begins with this character {_QUOTES}"),
    (r"alphabetic or numeric|undefined alias", f"A text that begins with * or & {_QUOTES}"),
    (r"unexpected end of stream", "A quotation mark is not closed"),
)  # fmt: skip
BRACES = f"A text with {{{{…}}}} in it {_QUOTES}"


def yaml_trouble(error: Exception, text: str) -> tuple[Any, str]:
    """Return the mark to show, None if the parser gives none, and a message without a full stop."""
    message = getattr(error, "problem", None) or getattr(error, "context", None) or error
    message = " ".join(str(message).split()).rstrip(".")
    mark, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    rows = text.split("\n")
    rest = ["".join(rows[mark.line : mark.line + 1])[mark.column :], *rows[mark.line + 1 :]] if mark else []
    if begun is not None and not any(row.strip() for row in rest):
        mark = begun  # an unclosed construct is fixed where it begins
    row = rows[mark.line] if mark is not None and mark.line < len(rows) else ""
    indented_with_tabs = "\t" in row[: len(row) - len(row.lstrip())]
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, message)), "")
    hint = _HINTS[0][1] if indented_with_tabs else hint
    return mark, f"{message}. {hint}" if hint else message
