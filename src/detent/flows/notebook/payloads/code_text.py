"""Code as it comes in payloads: its indentation, its escapes, and whether it is Python."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from detent.flows.notebook.payloads.xml_text import (
    CDATA_START,
    SPACE,
    decoded,
    is_character_data,
    segments,
    unescaped,
)

RESOLVED = "R5"
"""Rule named where code parses only after its entities were resolved."""
UNFENCED = "R1"
"""Rule named where code parses only without the fences around it."""

_BLANK_LINES = re.compile(r"\A(?:[ \t]*\n)+")
_FENCED = re.compile(r"\A\s*```[ \t]*(?:python|py|ipython)?[ \t]*\n(.*)\n[ \t]*```\s*\Z", re.DOTALL)
_HALF_OPEN = re.compile(r"\A\s*<!\[CDATA\[|\]\]>\s*\Z")
_MAGIC = re.compile(r"^([ \t]*)(?:[%!].*|[\w.]+\?{1,2})$", re.MULTILINE)
_MAGIC_VALUE = re.compile(r"^([ \t]*[\w, \t]+=[ \t]*)[%!].*$", re.MULTILINE)
_CELL_MAGIC = re.compile(r"\A%%(\w+).*")
_PYTHON_CELLS = frozenset({"time", "timeit", "capture", "prun"})
"""Cell magics whose cell is Python."""
_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def tidied(code: str) -> str:
    """Code without its common indentation and without the blank lines around it."""
    code = _BLANK_LINES.sub("", code).rstrip(SPACE)
    lines = code.split("\n")
    margin = _indentation(lines[0])
    for line in lines[1:]:
        if not margin:
            return code
        while line.strip() and not line.startswith(margin):
            margin = margin[:-1]
    return "\n".join(line[len(margin) :] for line in lines)


def syntax_problem(code: str) -> str | None:
    """Why code is not Python as a notebook runs it, with the line in the code; None if it is."""
    found = _python_problem(code)
    if found is None or not any(mark in code for mark in "%!?"):
        return found
    magic = _CELL_MAGIC.match(code)
    if magic and magic[1] not in _PYTHON_CELLS:
        return None
    plain = _CELL_MAGIC.sub("pass", code)
    plain = _MAGIC_VALUE.sub(r"\g<1>None", _MAGIC.sub(r"\1pass", plain))
    return None if _python_problem(plain) is None else found


def ends_in_comment(code: str) -> bool:
    """Whether code that parses ends within a comment, so that more of it may have followed on the line."""
    return "#" in code.rsplit("\n", 1)[-1] and syntax_problem(code + ")") is None


def code_of(raw: str) -> tuple[str, str | None]:
    """The code that an element's body stands for, tidied, and the rule of repair that this took.

    A body that is XML text is resolved as such. Any other was written without a thought of XML and is taken
    as it is. Of other ways to read it, the first that gives Python is taken: entities resolved once more, the
    fences around it dropped, a first line that stands beside the tag.
    """
    if is_character_data(raw):
        bodies = [decoded(raw)]
    else:
        bodies = [raw]
        if CDATA_START in raw:
            bodies.append("".join(text for text, _ in segments(raw)))
        if _HALF_OPEN.search(raw):
            bodies.append(_HALF_OPEN.sub("", raw))
    return python_of(*bodies)


def python_of(*bodies: str) -> tuple[str, str | None]:
    """The first reading of code that is Python, tidied, with its rule; else the first reading there is."""
    first = tidied(bodies[0])
    if syntax_problem(first) is None:
        return first, None
    for code, rule in _readings(bodies):
        if syntax_problem(code) is None:
            return code, rule
    return first, None


def _readings(bodies: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    for body in bodies:
        yield tidied(body), None
        if "&" in body:
            yield tidied(unescaped(body)), RESOLVED
        if fenced := _FENCED.match(body):
            yield tidied(fenced[1]), UNFENCED
        start, newline, rest = body.strip().partition("\n")
        if newline:
            yield f"{start}\n{tidied(rest)}", None


def _python_problem(code: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(code, "<cell>", "exec", flags=_FLAGS)
        except SyntaxError as error:
            return f"{error.msg} (line {error.lineno or 1} of the code)"
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            return f"it cannot be parsed ({type(error).__name__})"
    return None


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]
