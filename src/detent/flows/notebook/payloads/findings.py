"""What is found while a payload is read: problems, soft discrepancies, rules of repair, and places."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from detent.authoring.problem import Problem
from detent.flows.notebook.payloads.payload_error import VALUE, problem, quoted
from detent.kernel.errors import nearest

MOST_FLAGS = 100

_SEPARATORS = re.compile(r"[\s-]+")
_PARENT = re.compile(r"(?:\.\w+|\[\d+\])\Z")


@dataclass(slots=True)
class Findings:
    """Collects what is found in one payload."""

    problems: list[Problem] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)
    details: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Element path and line of parts of the value, such as `stages[2]`."""

    def refuse(self, code: str, message: str, path: str, line: int = 0) -> None:
        """Add a problem at an element path."""
        self.problems.append(problem(code, message, path, line))

    def refuse_part(self, code: str, message: str, part: str) -> None:
        """Add a problem of a part of the value, at the place it was read from."""
        name = part
        while name and name not in self.places and _PARENT.search(name):
            name = _PARENT.sub("", name)
        path, line = self.places.get(name, (part, 0))
        self.refuse(code, message, path, line)

    def flag(self, text: str) -> None:
        """Add a soft discrepancy."""
        if len(self.flags) < MOST_FLAGS and text not in self.flags:
            self.flags.append(text)

    def choice(self, text: str, allowed: tuple[str, ...], path: str, line: int) -> str:
        """One of the allowed words; another case is normalised (R10), anything else is a problem."""
        if text in allowed:
            return text
        plain = _SEPARATORS.sub("_", text.strip()).lower()
        for word in allowed:
            if word.lower() == plain:
                if text.strip() != word:
                    self.rules.add("R10")
                return word
        listed = ", ".join(allowed)
        self.refuse(VALUE, f"{quoted(text)} is none of: {listed}.{nearest(text, allowed)}", path, line)
        return allowed[0]
