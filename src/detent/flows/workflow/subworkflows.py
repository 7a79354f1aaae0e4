"""The workflows that a workflow runs, directly or indirectly; each is looked up once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from detent.authoring.problem import Problem
from detent.flows.workflow.problem_list import Findings, cut
from detent.flows.workflow.search_path import WorkflowNotFound, is_path
from detent.flows.workflow.spec import SubworkflowStep, WorkflowSpec
from detent.kernel.errors import ConfigurationError

Find = Callable[[str], WorkflowSpec | None]
"""Finds the workflow of a name or path; None or `WorkflowNotFound` if there is none."""

DEEPEST = 8
"""Most levels of nested subworkflows."""


class Family:
    """A workflow and its subworkflows."""

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
        """Workflows whose subworkflows have no problem, with their depth."""

    def trouble(self, child: WorkflowSpec) -> str | None:
        """Return the problem of a subworkflow and its descendants: a circle, or too many levels."""
        return self.descend(child, (self.spec,))

    def child(self, of: WorkflowSpec, name: str) -> WorkflowSpec | Problem:
        """Return the workflow that `of` names by a name or path, or the problem with it."""
        reference = name
        if of is not self.spec and is_path(name):
            reference = str(Path(of.place.file).absolute().parent / name)
        key = (of.place.file if is_path(name) else "", name)
        if key in self.children:
            return self.children[key]
        result: WorkflowSpec | Problem
        suggestions: tuple[str, ...] = ()
        try:
            spec = self.find(reference)
            message = f"there is no workflow '{cut(name)}'."
        except WorkflowNotFound as error:
            spec, message, suggestions = None, f"there is no workflow '{cut(name)}'.", error.suggestions
        except ConfigurationError as error:
            first = str(error).split("\n")[0].rstrip(":.")
            spec, message = None, f"workflow '{cut(name)}' cannot be used: {first}."
        if spec is not None:
            result = spec
        else:
            suggestions = suggestions or self.findings.nearest.of(name, self.workflows)
            result = Problem("E005", message, self.spec.place, "", suggestions)
        self.children[key] = result
        return result

    def runs(self, spec: WorkflowSpec) -> Iterator[WorkflowSpec]:
        """Yield the workflows that a workflow runs, as far as they exist."""
        names = dict.fromkeys(
            step.workflow for step in spec.every_step() if isinstance(step, SubworkflowStep) and step.workflow
        )
        for name in names:
            child = self.child(spec, name)
            if not isinstance(child, Problem):
                yield child

    def descend(self, spec: WorkflowSpec, above: tuple[WorkflowSpec, ...]) -> str | None:
        """Return the problem below a workflow. If it is clean at a depth, it is so under every chain of that
        length: a reference back into the chain would be a circle of its own."""
        keys = [_key(ancestor) for ancestor in above]
        if _key(spec) in keys:
            circle = [ancestor.name for ancestor in above[keys.index(_key(spec)) :]]
            return f"subworkflows run in a circle: {' → '.join([*circle, spec.name])}."
        if len(above) > DEEPEST:
            chain = " → ".join(ancestor.name for ancestor in (*above, spec))
            return f"subworkflows may be nested {DEEPEST} deep at most: {chain}."
        if (_key(spec), len(above)) in self.clean:
            return None
        for child in self.runs(spec):
            trouble = self.descend(child, (*above, spec))
            if trouble is not None:
                return trouble
        self.clean.add((_key(spec), len(above)))
        return None

    def below(self, spec: WorkflowSpec) -> Iterator[WorkflowSpec]:
        """Yield a workflow and all its descendants, each once."""
        seen = {_key(self.spec)}
        waiting = [spec]
        while waiting:
            child = waiting.pop()
            if _key(child) not in seen:
                seen.add(_key(child))
                yield child
                waiting.extend(self.runs(child))


def _key(spec: WorkflowSpec) -> tuple[str, str]:
    """Identity of a workflow."""
    return (spec.place.file, spec.name)
