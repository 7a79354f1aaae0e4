"""Drawings of a workflow file: a text tree for terminals, a Mermaid flowchart for pages.

Both can show the status of each step in a run. Texts from the file are shortened and escaped, so that neither
a terminal nor Mermaid interprets them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from detent.cli.output import cut
from detent.cli.output import width as width_of
from detent.flows.workflow.preflight import of_the_file
from detent.flows.workflow.spec import (
    AgentStep,
    BranchStep,
    CheckpointStep,
    GenerateStep,
    InputSpec,
    LoopStep,
    Option,
    PythonStep,
    StepSpec,
    SubworkflowStep,
    ValidateStep,
    WorkflowSpec,
    every,
)
from detent.flows.workflow.step_type import StepType
from detent.insight.diagram.mermaid import Flowchart, Start
from detent.insight.diagram.text_tree import Row, tree_lines
from detent.insight.diagram.text_width import clean
from detent.insight.formatting import count

Direction = Literal["TD", "LR"]
Path = Mapping[str, Any]
"""Status of each step of a run, by its path, such as `load/[0]/upsert`."""

WIDTH = 100
"""Columns of a text drawing."""
DEEPEST = 12
"""Levels that are drawn; deeper steps are only counted."""
NAMES = 28
"""Columns up to which names beside each other are aligned."""
TITLE = 72
"""Characters of a Mermaid subgraph's title."""

OK, SKIPPED, FAILED, RUNNING = "ok", "skipped", "failed", "running"
SIGNS = {OK: "✓", SKIPPED: "–", FAILED: "✗", RUNNING: "▶"}
_NOT_REACHED = "·"
_MEANS = {
    "ok": OK, "succeeded": OK, "completed": OK, "taken": OK, "skipped": SKIPPED, "failed": FAILED,
    "error": FAILED, "cancelled": FAILED, "degraded": FAILED, "budget_exhausted": FAILED,
}  # fmt: skip
_ITERATION = re.compile(r"\[\d+\]")


# -- status of the steps ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Marks:
    """Statuses of a run, added up for each step of the file."""

    of_run: bool = False
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """How often each step reached each status."""
    iterations: dict[str, set[str]] = field(default_factory=dict)
    """Paths of the iterations begun, by loop."""

    @classmethod
    def of(cls, path: Path | None) -> _Marks:
        marks = cls(path is not None)
        for where, outcome in (path or {}).items():
            parts = where.split("/")
            for at, part in enumerate(parts):
                if _ITERATION.fullmatch(part):
                    loop = of_the_file("/".join(parts[:at]))
                    marks.iterations.setdefault(loop, set()).add("/".join(parts[: at + 1]))
            if not _ITERATION.fullmatch(parts[-1]):
                status = _MEANS.get(str(getattr(outcome, "value", outcome)), RUNNING)
                marks.counts.setdefault(of_the_file(where), Counter())[status] += 1
        return marks

    def status(self, path: str) -> str | None:
        """Overall status of a step; None if the run never reached it."""
        counts = self.counts.get(path, Counter())
        return next((status for status in (FAILED, RUNNING, OK, SKIPPED) if counts[status]), None)

    def sign(self, path: str) -> str:
        return SIGNS.get(self.status(path) or "", _NOT_REACHED)

    def tally(self, path: str, loop: bool) -> str:
        """Counts beside a step: its iterations, or how often it reached each status."""
        if loop and path in self.iterations:
            return count(len(self.iterations[path]), "iteration")
        counts = self.counts.get(path, Counter())
        if counts.total() < 2:
            return ""
        return " ".join(f"{SIGNS[status]}{counts[status]}" for status in SIGNS if counts[status])


# -- in words -----------------------------------------------------------------------------------------------


def _in_one_line(value: Any) -> str:
    """A value of the file on one line; an expression without its brackets."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    lone = re.fullmatch(r"\s*\$\{\{((?:(?!\$\{\{|\}\}).)*)\}\}\s*", text, re.S)
    return clean(lone.group(1) if lone else text)


def _condition(value: Any) -> str:
    """A condition on one line."""
    return ("always" if value else "never") if isinstance(value, bool) else _in_one_line(value)


def _subject(step: StepSpec) -> str:
    """What a step calls, runs or repeats, to be shown beside its kind."""
    match step:
        case PythonStep():
            return clean(step.action)
        case AgentStep():
            return clean(step.agent)
        case GenerateStep():
            return clean(step.generator)
        case SubworkflowStep():
            return clean(step.workflow)
        case ValidateStep():
            return _stages(step)
        case LoopStep():
            return _iteration(step)
        case CheckpointStep():
            named = "" if step.checkpoint_id is None else clean(str(step.checkpoint_id))
            return "" if named == step.name else named
    return ""


def _stages(step: ValidateStep) -> str:
    listed = isinstance(step.stages, list | tuple)
    text = ", ".join(_in_one_line(stage) for stage in step.stages) if listed else _in_one_line(step.stages)
    return text if step.must_pass else f"{text} (may fail)"


def _iteration(step: LoopStep) -> str:
    """How a loop iterates."""
    if step.until is not None:
        return f"until {_condition(step.until)}, {_bound(step)}"
    if not step.has_for_each:
        return "all in parallel"
    if step.bounded_by_settings:
        beside = ", in parallel"
    else:
        beside = f", {step.max_concurrency} at a time" if step.max_concurrency > 1 else ""
    return f"for each of {_in_one_line(step.for_each)}{beside}"


def _bound(step: LoopStep) -> str:
    """How many passes an `until` loop makes at most."""
    after = "go on" if step.on_exhausted == "continue" else "fail"
    return f"at most {step.max_iterations} passes, then {after}"


def _retries(step: ValidateStep) -> str:
    """How often a failed validation is retried."""
    retry = step.retry if step.retry is not None else (3 if step.on_failure is not None else 0)
    return f"up to {_in_one_line(retry)} times"


def _notes(step: StepSpec) -> list[str]:
    """Further keys of a step: condition, retries, prerequisites and rollback."""
    rollback = getattr(step, "rollback", None)
    notes = [f"when {_condition(step.when)}"] if step.when is not None else []
    if isinstance(step, ValidateStep) and step.on_failure is None and step.retry not in (None, 0):
        notes.append(f"again {_retries(step)}")
    if step.requires:
        notes.append(f"requires {clean(', '.join(step.requires))}")
    if rollback:
        notes.append(f"rollback {clean(rollback)}")
    return notes


def _count(steps: Iterable[StepSpec]) -> int:
    """Number of steps, nested ones included."""
    return sum(1 for _ in every(steps))


# -- text ---------------------------------------------------------------------------------------------------


def ascii(spec: WorkflowSpec, path: Path | None = None, *, width: int = WIDTH) -> str:
    """Draw the workflow as a text tree: one line per step, in order, nested steps indented."""
    marks = _Marks.of(path)
    inside = _count(spec.steps) - len(spec.steps)
    lines = [f"{spec.name}  {count(len(spec.steps), 'step')}{f', {inside} more inside' if inside else ''}"]
    if spec.description:
        lines.append(f"│ {clean(spec.description)}")
    if spec.inputs:
        lines.append(f"│ inputs: {', '.join(map(_input, spec.inputs.values()))}")
    if len(lines) > 1:
        lines.append("│")
    lines += tree_lines(_rows(spec.steps, "", marks, 1))
    if spec.outputs:
        lines.append(f"outputs: {clean(', '.join(spec.outputs))}")
    if marks.of_run:
        words = {OK: "taken", SKIPPED: "skipped", FAILED: "failed", RUNNING: "under way"}
        legend = [f"{SIGNS[status]} {word}" for status, word in words.items()]
        lines += ["", "   ".join([*legend, f"{_NOT_REACHED} not reached"])]
    return "\n".join(cut(line, width) for line in lines) + "\n"


def _input(spec: InputSpec) -> str:
    text = f"{spec.name} = {_in_one_line(spec.default)}" if spec.has_default else spec.name
    text += "?" if not spec.required and not spec.has_default else ""
    return f"{text} (secret)" if spec.secret else text


def _rows(steps: Sequence[StepSpec], prefix: str, marks: _Marks, depth: int) -> list[Row]:
    if depth > DEEPEST:
        return [Row(f"… {_count(steps)} more steps, not drawn")]
    room = min(NAMES, max(width_of(step.name) for step in steps))
    return [_row(step, prefix + step.name, marks, depth, room) for step in steps]


def _row(step: StepSpec, path: str, marks: _Marks, depth: int, room: int) -> Row:
    name = step.name + " " * (room - width_of(step.name))
    sign = f"{marks.sign(path)} " if marks.of_run else ""
    tally = marks.tally(path, isinstance(step, LoopStep) and not step.apart)
    subject = _subject(step)
    kind = " ".join(filter(None, (step.type.value, f"({tally})" if tally else "", subject)))
    text = f"{sign}{name}  {kind}"
    inside = f"{path}/"
    below: list[Row] = []
    match step:
        case LoopStep():
            below = _rows(step.steps, inside, marks, depth + 1)
        case ValidateStep(on_failure=StepSpec() as mending):
            below = [Row(f"on failure, {_retries(step)}", (), _rows([mending], inside, marks, depth + 1))]
        case BranchStep():
            below = [_option(option, at, inside, marks, depth) for at, option in enumerate(step.options)]
            if step.options and step.options[-1].when is not None:
                below.append(Row("else nothing"))
    return Row(text, _notes(step), below)


def _option(option: Option, at: int, prefix: str, marks: _Marks, depth: int) -> Row:
    word = "else" if option.when is None else f"{'else if' if at else 'if'} {_condition(option.when)}"
    return Row(word, (), _rows([option.step], prefix, marks, depth + 1))


# -- Mermaid ------------------------------------------------------------------------------------------------


_TERMINAL = ("([", "])")
_SHAPES: Mapping[StepType, tuple[str, str]] = {
    StepType.PYTHON: ("[", "]"),
    StepType.AGENT: ("(", ")"),
    StepType.GENERATE: ("(", ")"),
    StepType.VALIDATE: ("{{", "}}"),
    StepType.SUBWORKFLOW: ("[[", "]]"),
    StepType.BRANCH: ("{", "}"),
    StepType.CHECKPOINT: ("[(", ")]"),
}
SOMETIMES = "sometimes"
"""Mermaid class of steps that a condition may skip."""
FRAME = "Frame"
"""Suffix of the Mermaid classes of loops."""
_STYLES = {
    SOMETIMES: "stroke-dasharray:5 4",
    OK: "fill:#dcfce7,stroke:#16a34a,color:#111827",
    SKIPPED: "fill:#f3f4f6,stroke:#9ca3af,color:#6b7280",
    FAILED: "fill:#fee2e2,stroke:#dc2626,color:#111827",
    RUNNING: "fill:#dbeafe,stroke:#2563eb,color:#111827",
    OK + FRAME: "stroke:#16a34a,stroke-width:3px",
    SKIPPED + FRAME: "stroke:#9ca3af,stroke-width:3px,color:#6b7280",
    FAILED + FRAME: "stroke:#dc2626,stroke-width:3px",
    RUNNING + FRAME: "stroke:#2563eb,stroke-width:3px",
}


def mermaid(spec: WorkflowSpec, direction: Direction = "TD", path: Path | None = None) -> str:
    """Draw the workflow as a Mermaid flowchart: a frame per loop, a diamond per branch."""
    drawing = _Drawing(_Marks.of(path), Flowchart(spec.name, direction, _STYLES))
    chart = drawing.chart
    begin = chart.node([spec.name], _TERMINAL, node="begin")
    _, starts = drawing.sequence(spec.steps, "", [Start(begin)], 1)
    chart.join(starts, chart.node(["succeeded"], _TERMINAL, node="finish"))
    return str(chart)


_Drawn = tuple[str, Sequence[Start]]
"""The first node of drawn steps, and the starts of the arrows to the next step."""


class _Drawing:
    """Adds the steps of a workflow to a flowchart."""

    def __init__(self, marks: _Marks, chart: Flowchart) -> None:
        self.marks = marks
        self.chart = chart

    def sequence(self, steps: Sequence[StepSpec], prefix: str, starts: Sequence[Start], depth: int) -> _Drawn:
        """Draw steps in sequence."""
        if depth > DEEPEST:
            rest = self.chart.node([f"… {_count(steps)} more steps, not drawn"])
            self.chart.join(starts, rest)
            return rest, [Start(rest)]
        first: list[str] = []
        for step in steps:
            draw = self._loop if isinstance(step, LoopStep) else self._step
            node, starts = draw(step, prefix + step.name, starts, depth)  # type: ignore[arg-type]
            first.append(node)
        return first[0], starts

    def _step(self, step: StepSpec, path: str, starts: Sequence[Start], depth: int) -> _Drawn:
        subject = _subject(step)
        kind = f"{step.type.value}: {subject}" if subject else step.type.value
        node = self.chart.node([self._title(step, path), kind, *_notes(step)], _SHAPES[step.type])
        self._mark(node, step, path)
        self.chart.join(starts, node)
        match step:
            case BranchStep():
                return node, self._branch(step, node, path, depth)
            case ValidateStep(on_failure=StepSpec() as mending):
                again = f"again, {_retries(step)}"
                can_return = _can_return([mending])
                failed = Start(node, "fails" if can_return else f"fails; {again}")
                _, back = self.sequence([mending], f"{path}/", [failed], depth + 1)
                if can_return:
                    self.chart.join([Start(end.node, end.label or again) for end in back], node, "-.->")
                return node, [Start(node, "passes" if step.must_pass else "goes on")]
        return node, [Start(node)]

    def _branch(self, step: BranchStep, node: str, path: str, depth: int) -> Sequence[Start]:
        starts: list[Start] = []
        for option in step.options:
            label = "else" if option.when is None else _condition(option.when)
            _, after = self.sequence([option.step], f"{path}/", [Start(node, label)], depth + 1)
            starts += after
        if not step.options or step.options[-1].when is not None:
            starts.append(Start(node, "else"))
        return starts

    def _loop(self, step: LoopStep, path: str, starts: Sequence[Start], depth: int) -> _Drawn:
        """A frame around the loop's body; arrows connect to the frame, or Mermaid would lay it out badly."""
        chart = self.chart
        frame = chart.frame()
        self._mark(frame, step, path)
        chart.join(starts, frame)
        course = _iteration(step) if step.until is None else _bound(step)  # the condition has a diamond
        with chart.inside(frame, cut(" · ".join([self._title(step, path), course, *_notes(step)]), TITLE)):
            if step.apart:
                for inner in step.steps:
                    self.sequence([inner], f"{path}/", [], depth + 1)
                return frame, [Start(frame)]
            first, ends = self.sequence(step.steps, f"{path}/", [], depth + 1)
            if step.until is not None:
                can_return = _can_return(step.steps)
                again = [] if can_return else ["else again"]
                condition = chart.node([f"until {_condition(step.until)}", *again], ("{", "}"))
                chart.join(ends, condition)
                if can_return:
                    chart.join([Start(condition, "not yet")], first, "-.->")
        return frame, [Start(frame)]

    def _title(self, step: StepSpec, path: str) -> str:
        tally = self.marks.tally(path, isinstance(step, LoopStep) and not step.apart)
        sign = f"{self.marks.sign(path)} " if self.marks.of_run else ""
        return f"{sign}{step.name}{f' ({tally})' if tally else ''}"

    def _mark(self, node: str, step: StepSpec, path: str) -> None:
        status = self.marks.status(path)
        if status is not None:
            self.chart.mark(node, f"{status}{FRAME}" if isinstance(step, LoopStep) else status)
        elif step.when is not None:
            self.chart.mark(node, SOMETIMES)


def _can_return(steps: Iterable[StepSpec]) -> bool:
    """Whether an arrow may lead back over these steps; Mermaid lays it out badly around a frame."""
    return not any(isinstance(step, LoopStep) for step in every(steps))
