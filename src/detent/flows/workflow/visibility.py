"""Which steps an expression can refer to from its position, and why it cannot see the others.

A step sees the steps that finished before it in the same body, and those that the body's owner sees. So it
sees no later step, no step that runs in parallel with it, no step of another option, and no step inside a
loop, branch or `on_failure` that it is not part of; from outside, their owner's name refers to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from detent.flows.workflow.spec import BranchStep, LoopStep, StepSpec, ValidateStep

Kind = Literal["body", "apart", "option", "on_failure"]
"""Kind of container: steps in sequence, parallel steps, options of a branch, or an `on_failure`."""


@dataclass(frozen=True, slots=True)
class Site:
    """Position of an expression: the body, the number of steps before it, and the enclosing positions."""

    container: str
    """Path of the step whose body it is; '' for the workflow."""
    number: int
    """Number of finished steps in the container."""
    item: bool = False
    """Whether `item` is bound."""
    bound: bool = False
    """Whether `index` is bound."""
    up: Site | None = None
    itself: StepSpec | None = None
    """The step the expression belongs to."""

    def around(self) -> Iterator[Site]:
        """This position and the enclosing ones, innermost first."""
        site: Site | None = self
        while site is not None:
            yield site
            site = site.up


class Hidden(NamedTuple):
    """Reason why a step cannot be seen."""

    why: str
    instead: tuple[str, ...] = ()
    """The step to refer to instead."""


class _Home(NamedTuple):
    container: str
    kind: Kind
    number: int
    owner: StepSpec | None


class Visibility:
    """The steps of a workflow, and which of them see each other."""

    def __init__(self, steps: tuple[StepSpec, ...]) -> None:
        self.steps: dict[str, StepSpec] = {}
        """Steps by name, those in bodies included."""
        self._homes: dict[str, _Home] = {}
        self._place(steps, "", "body", None)

    def _place(self, steps: tuple[StepSpec, ...], container: str, kind: Kind, owner: StepSpec | None) -> None:
        for number, step in enumerate(steps):
            self._homes[step.path] = _Home(container, kind, number, owner)
            if step.name:
                self.steps.setdefault(step.name, step)
            if step.inner:
                self._place(step.inner, step.path, _kind_inside(step), step)

    def hidden(self, step: StepSpec, site: Site) -> Hidden | None:
        """Return why a step cannot be seen from a position; None if it can."""
        name = step.name
        home = self._homes[step.path]
        if site.itself is not None and site.itself.path == step.path:
            return Hidden(f"step '{name}' refers to itself; it has no output yet.")
        for enclosing in site.around():
            if enclosing.itself is not None and enclosing.itself.path == step.path:
                return Hidden(f"step '{name}' contains this one and has no output yet.")
            if enclosing.container != home.container:
                continue
            if home.kind == "body" and home.number < enclosing.number:
                return None
            if home.kind == "apart":
                return Hidden(f"step '{name}' runs in parallel with this one, so neither sees the other.")
            if home.kind == "option":
                return Hidden(f"step '{name}' is another option of the same branch; only one of them runs.")
            return Hidden(f"step '{name}' comes later. Refer to steps before this one.")
        owner = home.owner
        if owner is None:  # impossible: the top level encloses every position
            return Hidden(f"step '{name}' cannot be seen from here.")
        position = {
            "body": f"is inside the loop '{owner.name}', once per iteration",
            "apart": f"is inside the loop '{owner.name}'",
            "option": f"is an option of the branch '{owner.name}' and may not run",
            "on_failure": f"is the 'on_failure' of '{owner.name}' and may not run",
        }[home.kind]
        if self.hidden(owner, site) is not None:
            return Hidden(f"step '{name}' {position}, and cannot be seen from here.")
        return Hidden(f"step '{name}' {position}. Use the output of '{owner.name}'.", (owner.name,))


def _kind_inside(step: StepSpec) -> Kind:
    """The kind of container that a step is."""
    if isinstance(step, BranchStep):
        return "option"
    if isinstance(step, ValidateStep):
        return "on_failure"
    return "apart" if isinstance(step, LoopStep) and step.apart else "body"
