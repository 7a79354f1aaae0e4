"""Which steps an expression can see from where it stands, and why not the others.

A step sees those that have finished before it in the same body, and what the body's owner sees. So it sees no
later step, no neighbour of a loop whose steps run side by side, no step of another option, and nothing inside
a loop, branch or `on_failure` it does not stand in; outside, those go by their owner's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from detent.flows.workflow.spec import BranchStep, LoopStep, StepSpec, ValidateStep

Kind = Literal["body", "apart", "option", "on_failure"]
"""What a step stands in: steps that follow one another, or run side by side; one of several; a helper."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where an expression stands: how far into which body, and what that body is in."""

    container: str
    """Path of the step whose body it is; '' for the workflow."""
    number: int
    """So many steps of the container are finished."""
    item: bool = False
    """`item` is bound."""
    bound: bool = False
    """`index` is bound."""
    up: Site | None = None
    itself: StepSpec | None = None
    """The step the expression belongs to."""

    def around(self) -> Iterator[Site]:
        """This one and those around it."""
        here: Site | None = self
        while here is not None:
            yield here
            here = here.up


class Hidden(NamedTuple):
    """Why a step cannot be seen."""

    why: str
    instead: tuple[str, ...] = ()
    """The step to refer to in its place."""


class _Home(NamedTuple):
    container: str
    kind: Kind
    number: int
    owner: StepSpec | None


class Visibility:
    """The steps of a workflow, and who sees whom."""

    def __init__(self, steps: tuple[StepSpec, ...]) -> None:
        self.steps: dict[str, StepSpec] = {}
        """By name, bodies included."""
        self._homes: dict[str, _Home] = {}
        self._place(steps, "", "body", None)

    def _place(self, steps: tuple[StepSpec, ...], container: str, kind: Kind, owner: StepSpec | None) -> None:
        for number, step in enumerate(steps):
            self._homes[step.path] = _Home(container, kind, number, owner)
            if step.name:
                self.steps.setdefault(step.name, step)
            if step.inner:
                self._place(step.inner, step.path, _inside(step), step)

    def hidden(self, step: StepSpec, site: Site) -> Hidden | None:
        """Why a step cannot be seen from a place; None when it can."""
        name = step.name
        home = self._homes[step.path]
        if site.itself is not None and site.itself.path == step.path:
            return Hidden(f"step '{name}' refers to itself, which has given nothing yet.")
        for here in site.around():
            if here.itself is not None and here.itself.path == step.path:
                return Hidden(f"step '{name}' is what this stands in; it has given nothing yet.")
            if here.container != home.container:
                continue
            if home.kind == "body" and home.number < here.number:
                return None
            if home.kind == "apart":
                return Hidden(f"step '{name}' runs side by side with this one, so neither sees the other.")
            if home.kind == "option":
                return Hidden(f"step '{name}' is another option of the same branch; only one of them runs.")
            return Hidden(f"step '{name}' comes later. Refer to steps before this one.")
        owner = home.owner
        if owner is None:  # cannot be: the workflow's own steps are around everything
            return Hidden(f"step '{name}' cannot be seen from here.")
        what = {
            "body": f"is inside the loop '{owner.name}', once per iteration",
            "apart": f"is inside the loop '{owner.name}'",
            "option": f"is an option of the branch '{owner.name}' and may not run",
            "on_failure": f"is the 'on_failure' of '{owner.name}' and may not run",
        }[home.kind]
        if self.hidden(owner, site) is not None:
            return Hidden(f"step '{name}' {what}, and cannot be seen from here.")
        return Hidden(f"step '{name}' {what}. Use the output of '{owner.name}'.", (owner.name,))


def _inside(step: StepSpec) -> Kind:
    """How the steps inside a step stand to each other."""
    if isinstance(step, BranchStep):
        return "option"
    if isinstance(step, ValidateStep):
        return "on_failure"
    side_by_side = isinstance(step, LoopStep) and not step.has_for_each and step.until is None
    return "apart" if side_by_side else "body"
