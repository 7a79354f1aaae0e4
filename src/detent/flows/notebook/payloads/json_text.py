"""JSON in an answer: one value, an array, or one object per line, with prose and fences around."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from detent.dispatch.answer_text import too_deep
from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.payload_error import CHARACTER, CUT, LIMIT
from detent.flows.notebook.payloads.xml_text import FORBIDDEN, SPACE

START = re.compile(r"^[ \t]*(?:data:[ \t]*)?(?=\{\s*[\"}]|\[\s*[\[{\]])", re.MULTILINE)
"""Where a line begins with an object or an array of objects."""

_BETWEEN = re.compile(r"[\s,;]*(?:data:[ \t]*)?")


def values_in(text: str, findings: Findings) -> list[Any]:
    """All objects and arrays of a text, in order. Text around them is dropped (R1).

    One that does not end is refused: what it was is not known.
    """
    decoder = json.JSONDecoder(strict=False, parse_constant=_no_number)
    values: list[Any] = []
    position = 0
    while (start := START.search(text, position)) is not None:
        if text[position : start.start()].strip(f"{SPACE},;"):
            findings.rules.add("R1")
        position = start.end()
        while position < len(text) and text[position] in "{[":
            try:
                value, position = decoder.raw_decode(text, position)
            except RecursionError:
                findings.refuse(LIMIT, "the JSON is nested too deeply", "", _line(text, position))
                return values
            except ValueError as error:
                line = getattr(error, "lineno", _line(text, position))
                findings.refuse(CUT, "a JSON value is not whole", f"/{len(values)}", line)
                return values
            values.append(value)
            between = _BETWEEN.match(text, position)
            position = between.end() if between else position
    if text[position:].strip(f"{SPACE},;"):
        findings.rules.add("R1")
    if any(too_deep(value) for value in values):
        findings.refuse(LIMIT, "the JSON is nested too deeply", "")
    return values


def normalised(value: Any, findings: Findings, path: str = "") -> Any:
    """A JSON value whose texts have line ends and outer white space as XML would give them."""
    if isinstance(value, str):
        if FORBIDDEN.search(value):
            findings.refuse(CHARACTER, "holds a control character or half a character", path or "/")
        return value.replace("\r\n", "\n").replace("\r", "\n")
    if isinstance(value, dict):
        return {key: normalised(item, findings, f"{path}/{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [normalised(item, findings, f"{path}/{index}") for index, item in enumerate(value)]
    return value


def trimmed(value: Any) -> Any:
    """A JSON value whose texts have no outer white space."""
    if isinstance(value, str):
        return value.strip(SPACE)
    if isinstance(value, dict):
        return {key: trimmed(item) for key, item in value.items()}
    return [trimmed(item) for item in value] if isinstance(value, list) else value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
