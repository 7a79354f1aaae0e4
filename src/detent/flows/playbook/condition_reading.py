"""Reads conditions on the data, in whatever file of a playbook they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from detent.authoring.document import below
from detent.authoring.model import ModelReader
from detent.flows.playbook.instruction import DOTTED

_SCALARS = (str, int, float, bool, type(None))


class ConditionReader(ModelReader):
    """Reads a file that has conditions."""

    at_keys = True

    def when(self, item: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
        """The condition of an item."""
        return self.condition(item["when"], f"{path}.when") if "when" in item else None

    def condition(self, written: Any, path: str) -> Mapping[str, Any] | None:
        """A condition; None if it is malformed."""
        if not isinstance(written, dict) or not written:
            self.wrong("P19", path, "a condition is a mapping of dotted keys, such as {status: [open, new]}.")
            return None
        before = len(self.problems)
        for key, expected in written.items():
            values = expected if isinstance(expected, list) else [expected]
            if not re.fullmatch(DOTTED, key):
                self.wrong("P19", below(path, key), f"'{key}' is no dotted key.")
            elif not values or not all(isinstance(value, _SCALARS) for value in values):
                message = "compare with a value, a list of values, `present` or `absent`."
                self.wrong("P19", below(path, key), message)
        return written if len(self.problems) == before else None
