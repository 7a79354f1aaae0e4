"""The workflows that a workflow runs, and those they run in turn: each looked up once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from detent.authoring.problem import Problem
from detent.flows.workflow.problem_list import Findings, cut
from detent.flows.workflow.shelf import WorkflowNotFound, is_path
from detent.flows.workflow.spec import SubworkflowStep, WorkflowSpec
from detent.kernel.errors import ConfigurationError

Find = Callable[[str], WorkflowSpec | None]
"""Gives the workflow of a name or path; None or `WorkflowNotFound` when there is none."""

DEEPEST = 8
"""Subworkflows below a workflow, inside each other."""


class Family:
    """A workflow and what it runs."""

    def __init__(
        self, spec: WorkflowSpec, find: Find, findings: Findings, workflows: tuple[str, ...]
    ) -> None:
        self.spec = spec
        self.find = find
        self.findings = findings
        self.workflows = workflows
        """Names to suggest."""
        self.children: dict[tuple[str, str], WorkflowSpec | Problem] = {}
        self.clean: set[tuple[tuple[str, str], int]] = set()
        """Workflows below which nothing is wrong, and how deep they stood."""

    def trouble(self, child: WorkflowSpec) -> str | None:
        """What is wrong with a subworkflow and those below it: a circle, or too many inside each other."""
        return self.descend(child, (self.spec,))

    def child(self, of: WorkflowSpec, name: str) -> WorkflowSpec | Problem:
        """The workflow that `of` means by a name or path, or why there is none."""
        asked = name
        if of is not self.spec and is_path(name):
            asked = str(Path(of.place.file).absolute().parent / name)
        key = (of.place.file if is_path(name) else "", name)
        if key in self.children:
            return self.children[key]
        found: WorkflowSpec | Problem
        suggestions: tuple[str, ...] = ()
        try:
            there = self.find(asked)
            message = f"there is no workflow '{cut(name)}'."
        except WorkflowNotFound as error:
            there, message, suggestions = None, f"there is no workflow '{cut(name)}'.", error.suggestions
        except ConfigurationError as error:
            first = str(error).split("\n")[0].rstrip(":.")
            there, message = None, f"workflow '{cut(name)}' cannot be used: {first}."
        if there is not None:
            found = there
        else:
            suggestions = suggestions or self.findings.nearest.of(name, self.workflows)
            found = Problem("E005", message, self.spec.place, "", suggestions)
        self.children[key] = found
        return found

    def runs(self, spec: WorkflowSpec) -> Iterator[WorkflowSpec]:
        """The workflows a workflow runs, as far as they are there."""
        names = dict.fromkeys(
            step.workflow for step in spec.every_step() if isinstance(step, SubworkflowStep) and step.workflow
        )
        for name in names:
            child = self.child(spec, name)
            if not isinstance(child, Problem):
                yield child

    def descend(self, spec: WorkflowSpec, above: tuple[WorkflowSpec, ...]) -> str | None:
        """What was found clean at a depth is so under every chain of that length: a way back into the chain
        would be a circle of its own."""
        keys = [_key(one) for one in above]
        if _key(spec) in keys:
            circle = [one.name for one in above[keys.index(_key(spec)) :]]
            return f"subworkflows run in a circle: {' → '.join([*circle, spec.name])}."
        if len(above) > DEEPEST:
            chain = " → ".join(one.name for one in (*above, spec))
            return f"subworkflows stand inside each other {DEEPEST} deep at most: {chain}."
        if (_key(spec), len(above)) in self.clean:
            return None
        for child in self.runs(spec):
            trouble = self.descend(child, (*above, spec))
            if trouble is not None:
                return trouble
        self.clean.add((_key(spec), len(above)))
        return None

    def below(self, spec: WorkflowSpec) -> Iterator[WorkflowSpec]:
        """A workflow and all it runs, each once."""
        seen = {_key(self.spec)}
        waiting = [spec]
        while waiting:
            one = waiting.pop()
            if _key(one) not in seen:
                seen.add(_key(one))
                yield one
                waiting.extend(self.runs(one))


def _key(spec: WorkflowSpec) -> tuple[str, str]:
    """What tells workflows apart."""
    return (spec.place.file, spec.name)
