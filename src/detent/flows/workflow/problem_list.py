"""Gathers what is wrong with a workflow while it is looked at from several sides."""

from __future__ import annotations

from collections.abc import Iterable

from detent.authoring.document import above
from detent.authoring.names import Nearest
from detent.authoring.problem import Place, Problem
from detent.flows.workflow.spec import StepSpec

_FEW = 12
"""So many names are listed where none is near."""


class Findings:
    """The problems so far, and the names to suggest."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.nearest = Nearest()

    def wrong(
        self, code: str, place: Place, path: str, message: str, suggestions: tuple[str, ...] = ()
    ) -> None:
        """A problem at a place."""
        self.problems.append(Problem(code, message, Place(*place), path, suggestions))

    def at(
        self, step: StepSpec, part: str, code: str, message: str, suggestions: tuple[str, ...] = ()
    ) -> None:
        """A problem with a part of a step."""
        path = f"{step.path}.{part}"
        while part and part not in step.places:
            part = above(part)
        self.wrong(code, step.places.get(part, step.place), path, message, suggestions)

    def unregistered(
        self, step: StepSpec, part: str, code: str, kind: str, name: str, names: Iterable[str]
    ) -> None:
        """A name that stands for nothing."""
        there = sorted(names)
        meant = self.nearest.of(name, there)
        known = "" if meant or len(there) > _FEW else f" There are: {', '.join(there) or 'none'}."
        self.at(step, part, code, f"there is no {kind} '{cut(name)}'.{known}", meant)


def cut(text: str, most: int = 80) -> str:
    """A text as long as a message can bear."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def a(step: StepSpec) -> str:
    """`a loop`, `an agent`."""
    return f"{'an' if step.type.value[0] == 'a' else 'a'} {step.type.value}"
