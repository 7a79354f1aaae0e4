"""Expectations about what a run left behind: mails, tickets, files, whatever its application makes.

An application declares the kinds it leaves (`Artifacts`) and under which keys of `expected_output` a case
speaks of them. The player hands them over in `Played.artifacts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detent.evals.likeness import differences, stands_in, told

Failed = Callable[[str, Any, Any, str], None]
"""Takes the kind of a failure, what was expected, what came and a hint."""
NONE = "none"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """One kind of artifact, and the keys that speak of it; a key that is None is not offered."""

    kind: str
    """Key in `Played.artifacts`."""
    noun: str
    """One of them, in messages: `mail`, `ticket`."""
    exists: str | None = None
    """Takes true or false: at least one is there, or none."""
    contains: str | None = None
    """Texts that stand in one of them."""
    excludes: str | None = None
    """Texts that stand in none of them."""
    fields: str | None = None
    """Fields of one of them, by the listed keys."""
    text: str = "body"
    """The field in which texts are looked for."""

    @property
    def keys(self) -> Mapping[str, type]:
        """The keys it offers, with the types of their values; a tuple is a text or a list of texts."""
        pairs = ((self.exists, bool), (self.contains, tuple), (self.excludes, tuple), (self.fields, dict))
        return {key: kind for key, kind in pairs if key}

    def check(
        self, expected: Mapping[str, Any], left: Mapping[str, Sequence[Mapping[str, Any]]], failed: Failed
    ) -> None:
        """Hold the artifacts a play left, by kind, against what a case expects of them."""
        there = left.get(self.kind, ())
        some = expected.get(self.exists or "")
        if self.exists and some is not None and some != bool(there):
            wanted = f"a {self.noun}" if some else f"no {self.noun}"
            hint = "look at the calls and at what the last step proposed"
            failed(self.exists, wanted, len(there) or NONE, hint)
        texts = [str(one.get(self.text, "")) for one in there]
        kind, shown = (self.contains or "").removesuffix("_contains"), "\n\n".join(texts)
        hint = "see the whole text with --detailed"
        for wanted in expected.get(self.contains or "") or ():
            if not any(stands_in(wanted, text) for text in texts):
                failed(kind, f"a {self.noun} with '{wanted}'", shown if texts else f"no {self.noun}", hint)
        for wanted in expected.get(self.excludes or "") or ():
            if any(stands_in(wanted, text) for text in texts):
                failed(kind, f"no {self.noun} with '{wanted}'", shown, hint)
        if self.fields and (fields := expected.get(self.fields)) is not None:
            self._fields(self.fields, fields, there, failed)

    def _fields(
        self, key: str, expected: Mapping[str, Any], there: Iterable[Mapping[str, Any]], failed: Failed
    ) -> None:
        hint = "only the listed fields are compared"
        found = [list(differences(expected, one)) for one in there]
        if not found:
            failed(key, told(expected), f"no {self.noun}", hint)
            return
        # The last one that comes nearest is the one to report.
        for where, wanted, actual, more in min(reversed(found), key=len):
            failed(key, f"{where} = {told(wanted)}", told(actual), more or hint)
