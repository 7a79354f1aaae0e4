"""Outputs of cells as text that any reader shows as it is."""

from __future__ import annotations

import re
from typing import Any

from detent.kernel.plain import writable

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain_text(value: Any) -> str:
    """A text, or a list of its lines as notebook files may hold it, without a terminal's control sequences.

    Of a line that was written over, as progress bars do, the last state is kept.
    """
    text = "".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return writable(_CONTROLS.sub("", text))


def _last_state(line: str) -> str:
    states = [state for state in line.split("\r") if state]
    return states[-1] if states else ""


def traceback_text(output: Any) -> str:
    """The traceback of an error output, or its name and message where there is none."""
    lines = output.get("traceback") or []
    text = "\n".join(plain_text(line) for line in lines)
    return text.strip("\n") or f"{output.get('ename', '')}: {plain_text(output.get('evalue', ''))}"
