"""Expectations about the artifacts of a run: mails, tickets, files or anything else its application makes.

An application declares its kinds of artifacts (`Artifacts`) and the keys of `expected_output` that describe
them. The player returns the artifacts in `Played.artifacts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detent.evals.likeness import differences, stands_in, told

Failed = Callable[[str, Any, Any, str], None]
"""Takes the kind of a failure, the expected value, the actual value and a hint."""
NONE = "none"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """One kind of artifact, and the keys that describe it; a key that is None is not offered."""

    kind: str
    """Key in `Played.artifacts`."""
    noun: str
    """Name of one artifact in messages: `mail`, `ticket`."""
    exists: str | None = None
    """Takes true or false: there is at least one, or none."""
    contains: str | None = None
    """Texts that one of them contains."""
    excludes: str | None = None
    """Texts that none of them contains."""
    fields: str | None = None
    """Fields of one of them; only the listed keys are compared."""
    text: str = "body"
    """The field that is searched for texts."""

    @property
    def keys(self) -> Mapping[str, type]:
        """The keys it offers, with the types of their values; a tuple is a text or a list of texts."""
        pairs = ((self.exists, bool), (self.contains, tuple), (self.excludes, tuple), (self.fields, dict))
        return {key: kind for key, kind in pairs if key}

    def check(
        self, expected: Mapping[str, Any], left: Mapping[str, Sequence[Mapping[str, Any]]], failed: Failed
    ) -> None:
        """Compare the artifacts of a play, by kind, with what a case expects of them."""
        artifacts = left.get(self.kind, ())
        some = expected.get(self.exists or "")
        if self.exists and some is not None and some != bool(artifacts):
            presence = f"a {self.noun}" if some else f"no {self.noun}"
            hint = "look at the calls and at what the last step proposed"
            failed(self.exists, presence, len(artifacts) or NONE, hint)
        texts = [str(artifact.get(self.text, "")) for artifact in artifacts]
        kind, shown = (self.contains or "").removesuffix("_contains"), "\n\n".join(texts)
        hint = "see the whole text with --detailed"
        for part in expected.get(self.contains or "") or ():
            if not any(stands_in(part, text) for text in texts):
                failed(kind, f"a {self.noun} with '{part}'", shown if texts else f"no {self.noun}", hint)
        for part in expected.get(self.excludes or "") or ():
            if any(stands_in(part, text) for text in texts):
                failed(kind, f"no {self.noun} with '{part}'", shown, hint)
        if self.fields and (fields := expected.get(self.fields)) is not None:
            self._fields(self.fields, fields, artifacts, failed)

    def _fields(
        self, key: str, expected: Mapping[str, Any], artifacts: Iterable[Mapping[str, Any]], failed: Failed
    ) -> None:
        hint = "only the listed fields are compared"
        by_artifact = [list(differences(expected, artifact)) for artifact in artifacts]
        if not by_artifact:
            failed(key, told(expected), f"no {self.noun}", hint)
            return
        # Report the last of those with the fewest differences.
        for where, value, actual, more in min(reversed(by_artifact), key=len):
            failed(key, f"{where} = {told(value)}", told(actual), more or hint)
