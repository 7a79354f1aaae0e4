"""Collects the problems of a workflow from several checks."""

from __future__ import annotations

from collections.abc import Iterable

from detent.authoring.document import above
from detent.authoring.names import Nearest
from detent.authoring.problem import Place, Problem
from detent.flows.workflow.spec import StepSpec

_FEW = 12
"""Most names that a message lists if none is similar."""


class Findings:
    """The problems found so far, and the search for similar names."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.nearest = Nearest()

    def wrong(
        self, code: str, place: Place, path: str, message: str, suggestions: tuple[str, ...] = ()
    ) -> None:
        """Add a problem at a place."""
        self.problems.append(Problem(code, message, Place(*place), path, suggestions))

    def at(
        self, step: StepSpec, part: str, code: str, message: str, suggestions: tuple[str, ...] = ()
    ) -> None:
        """Add a problem with a part of a step."""
        path = f"{step.path}.{part}"
        while part and part not in step.places:
            part = above(part)
        self.wrong(code, step.places.get(part, step.place), path, message, suggestions)

    def unregistered(
        self, step: StepSpec, part: str, code: str, kind: str, name: str, names: Iterable[str]
    ) -> None:
        """Add the problem of a name that is not registered."""
        candidates = sorted(names)
        meant = self.nearest.of(name, candidates)
        known = "" if meant or len(candidates) > _FEW else f" There are: {', '.join(candidates) or 'none'}."
        self.at(step, part, code, f"there is no {kind} '{cut(name)}'.{known}", meant)


def cut(text: str, most: int = 80) -> str:
    """Return a text, shortened for a message."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def a(step: StepSpec) -> str:
    """Return the step's type with its article: `a loop`, `an agent`."""
    return f"{'an' if step.type.value[0] == 'a' else 'a'} {step.type.value}"
