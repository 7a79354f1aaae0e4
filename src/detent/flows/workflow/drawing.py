"""Drawings of a workflow file: a text tree for terminals, a Mermaid flowchart for pages.

Both can show the status of each step in a run. Texts from the file are shortened and escaped, so that neither
a terminal nor Mermaid interprets them.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

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
)
from detent.flows.workflow.step_type import StepType
from detent.insight.diagram.text_width import clean

Direction = Literal["TD", "LR"]
Path = Mapping[str, Any]
"""Status of each step of a run, by its path, such as `load/[0]/upsert`."""

WIDTH = 100
"""Columns of a text drawing."""
DEEPEST = 12
"""Levels that are drawn; deeper steps are only counted."""
NAMES = 28
"""Columns up to which names beside each other are aligned."""
LABEL, LABEL_LINES = 24, 6
"""Characters in a line of a Mermaid label, and its lines."""
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

    given: bool = False
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
            many = len(self.iterations[path])
            return f"{many} iteration{'s' * (many != 1)}"
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
        return "all side by side"
    if step.bounded_by_settings:
        beside = ", side by side"
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
    number, waiting = 0, list(steps)
    while waiting:
        step = waiting.pop()
        number += 1
        waiting.extend(step.inner)
    return number


# -- text ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """One line of the tree, the notes under it and its child rows."""

    text: str
    notes: Sequence[str] = ()
    below: Sequence[_Row] = ()


def ascii(spec: WorkflowSpec, path: Path | None = None, *, width: int = WIDTH) -> str:
    """Draw the workflow as a text tree: one line per step, in order, nested steps indented."""
    marks = _Marks.of(path)
    inside = _count(spec.steps) - len(spec.steps)
    steps = f"{len(spec.steps)} step{'s' * (len(spec.steps) != 1)}"
    lines = [f"{spec.name}  {steps}{f', {inside} more inside' if inside else ''}"]
    if spec.description:
        lines.append(f"│ {clean(spec.description)}")
    if spec.inputs:
        lines.append(f"│ inputs: {', '.join(map(_input, spec.inputs.values()))}")
    if len(lines) > 1:
        lines.append("│")
    lines += _tree(_rows(spec.steps, "", marks, 1), "")
    if spec.outputs:
        lines.append(f"outputs: {clean(', '.join(spec.outputs))}")
    if marks.given:
        words = {OK: "taken", SKIPPED: "skipped", FAILED: "failed", RUNNING: "under way"}
        legend = [f"{SIGNS[status]} {word}" for status, word in words.items()]
        lines += ["", "   ".join([*legend, f"{_NOT_REACHED} not reached"])]
    return "\n".join(_fitted(line, width) for line in lines) + "\n"


def _input(spec: InputSpec) -> str:
    text = f"{spec.name} = {_in_one_line(spec.default)}" if spec.has_default else spec.name
    text += "?" if not spec.required and not spec.has_default else ""
    return f"{text} (secret)" if spec.secret else text


def _rows(steps: Sequence[StepSpec], prefix: str, marks: _Marks, depth: int) -> list[_Row]:
    if depth > DEEPEST:
        return [_Row(f"… {_count(steps)} more steps, not drawn")]
    room = min(NAMES, max(_columns(step.name) for step in steps))
    return [_row(step, prefix + step.name, marks, depth, room) for step in steps]


def _row(step: StepSpec, path: str, marks: _Marks, depth: int, room: int) -> _Row:
    name = step.name + " " * (room - _columns(step.name))
    sign = f"{marks.sign(path)} " if marks.given else ""
    tally = marks.tally(path, isinstance(step, LoopStep) and not step.apart)
    subject = _subject(step)
    kind = " ".join(filter(None, (step.type.value, f"({tally})" if tally else "", subject)))
    text = f"{sign}{name}  {kind}"
    inside = f"{path}/"
    below: list[_Row] = []
    match step:
        case LoopStep():
            below = _rows(step.steps, inside, marks, depth + 1)
        case ValidateStep(on_failure=StepSpec() as mending):
            below = [_Row(f"on failure, {_retries(step)}", (), _rows([mending], inside, marks, depth + 1))]
        case BranchStep():
            below = [_option(option, at, inside, marks, depth) for at, option in enumerate(step.options)]
            if step.options and step.options[-1].when is not None:
                below.append(_Row("else nothing"))
    return _Row(text, _notes(step), below)


def _option(option: Option, at: int, prefix: str, marks: _Marks, depth: int) -> _Row:
    word = "else" if option.when is None else f"{'else if' if at else 'if'} {_condition(option.when)}"
    return _Row(word, (), _rows([option.step], prefix, marks, depth + 1))


def _tree(rows: Sequence[_Row], lead: str) -> list[str]:
    lines: list[str] = []
    for number, row in enumerate(rows, 1):
        last = number == len(rows)
        lines.append(f"{lead}{'└─' if last else '├─'} {row.text}")
        below = f"{lead}{'  ' if last else '│ '} "
        lines += [f"{below}{'│ ' if row.below else '  '}  {note}" for note in row.notes]
        lines += _tree(row.below, below)
    return lines


def _columns(text: str) -> int:
    """Columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _fitted(text: str, width: int) -> str:
    """A line cut to `width` columns."""
    if _columns(text) <= width:
        return text
    used, characters = 0, []
    for character in text:
        used += _columns(character)
        if used >= width:
            break
        characters.append(character)
    return "".join(characters) + "…"


# -- Mermaid ------------------------------------------------------------------------------------------------


class _Way(NamedTuple):
    """Start node of an arrow, and its label."""

    node: str
    label: str = ""


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
    """Draw the workflow as a Mermaid flowchart: a frame per loop, a diamond per branch, generated ids."""
    chart = _Chart(_Marks.of(path), "TB" if direction == "TD" else direction)
    chart.node("begin", [spec.name], "([", "])")
    _, ways = chart.sequence(spec.steps, "", [_Way("begin")], 1)
    chart.node("finish", ["succeeded"], "([", "])")
    chart.join(ways, "finish")
    title = clean(spec.name).replace('"', "'").replace("\\", "/")
    head = ["---", f'title: "{title}"', "---", f"flowchart {direction}"]
    return "\n".join([*head, *chart.lines, *chart.arrows, *chart.styles()]) + "\n"


class _Chart:
    """A flowchart being built."""

    def __init__(self, marks: _Marks, direction: str) -> None:
        self.marks = marks
        self.direction = direction
        self.lines: list[str] = []
        self.arrows: list[str] = []
        self.classes: dict[str, list[str]] = {}
        self.indent = 1
        self.made = 0

    # -- steps ----------------------------------------------------------------------------------------------

    def sequence(
        self, steps: Sequence[StepSpec], prefix: str, ways: Sequence[_Way], depth: int
    ) -> tuple[str, Sequence[_Way]]:
        """Draw steps in sequence; return the first node and the starts of the arrows to the next step."""
        if depth > DEEPEST:
            rest = self._fresh("n")
            self.node(rest, [f"… {_count(steps)} more steps, not drawn"], "[", "]")
            self.join(ways, rest)
            return rest, [_Way(rest)]
        entries: list[str] = []
        for step in steps:
            entry, ways = self._step(step, prefix + step.name, ways, depth)
            entries.append(entry)
        return entries[0], ways

    def _step(
        self, step: StepSpec, path: str, ways: Sequence[_Way], depth: int
    ) -> tuple[str, Sequence[_Way]]:
        if isinstance(step, LoopStep):
            return self._loop(step, path, ways, depth)
        node = self._fresh("n")
        subject = _subject(step)
        kind = f"{step.type.value}: {subject}" if subject else step.type.value
        self.node(node, [self._title(step, path), kind, *_notes(step)], *_SHAPES[step.type])
        self._classify(node, step, path)
        self.join(ways, node)
        match step:
            case BranchStep():
                return node, self._branch(step, node, path, depth)
            case ValidateStep(on_failure=StepSpec() as mending):
                again = f"again, {_retries(step)}"
                can_return = _can_return([mending])
                failed = _Way(node, "fails" if can_return else f"fails; {again}")
                _, back = self.sequence([mending], f"{path}/", [failed], depth + 1)
                if can_return:
                    self.join([_Way(end.node, end.label or again) for end in back], node, "-.->")
                return node, [_Way(node, "passes" if step.must_pass else "goes on")]
        return node, [_Way(node)]

    def _branch(self, step: BranchStep, node: str, path: str, depth: int) -> Sequence[_Way]:
        ways: list[_Way] = []
        for option in step.options:
            label = "else" if option.when is None else _condition(option.when)
            _, after = self.sequence([option.step], f"{path}/", [_Way(node, label)], depth + 1)
            ways += after
        if not step.options or step.options[-1].when is not None:
            ways.append(_Way(node, "else"))
        return ways

    def _loop(
        self, step: LoopStep, path: str, ways: Sequence[_Way], depth: int
    ) -> tuple[str, Sequence[_Way]]:
        """A frame around the loop's body; arrows connect to the frame, or Mermaid would lay it out badly."""
        frame = self._fresh("loop")
        self._classify(frame, step, path)
        self.join(ways, frame)
        course = _iteration(step) if step.until is None else _bound(step)  # the condition has a diamond
        title = " · ".join([self._title(step, path), course, *_notes(step)])
        self._line(f'subgraph {frame}["{_escaped(_fitted(title, TITLE))}"]')
        self.indent += 1
        self._line(f"direction {self.direction}")
        if step.until is None and not step.has_for_each:
            for inner in step.steps:
                self.sequence([inner], f"{path}/", [], depth + 1)
        else:
            first, ends = self.sequence(step.steps, f"{path}/", [], depth + 1)
            if step.until is not None:
                condition = self._fresh("n")
                can_return = _can_return(step.steps)
                self.node(
                    condition,
                    [f"until {_condition(step.until)}", *([] if can_return else ["else again"])],
                    "{",
                    "}",
                )
                self.join(ends, condition)
                if can_return:
                    self.join([_Way(condition, "not yet")], first, "-.->")
        self.indent -= 1
        self._line("end")
        return frame, [_Way(frame)]

    def _title(self, step: StepSpec, path: str) -> str:
        tally = self.marks.tally(path, isinstance(step, LoopStep) and not step.apart)
        sign = f"{self.marks.sign(path)} " if self.marks.given else ""
        return f"{sign}{step.name}{f' ({tally})' if tally else ''}"

    # -- text -----------------------------------------------------------------------------------------------

    def node(self, node: str, parts: Sequence[str], opened: str, closed: str) -> None:
        """Add a node; each part starts a new line of its label."""
        text = "<br/>".join(_wrapped(part) for part in parts)
        self._line(f'{node}{opened}"{text}"{closed}')

    def join(self, ways: Iterable[_Way], node: str, arrow: str = "-->") -> None:
        """Add the arrows that lead to a node."""
        for start in ways:
            label = f'|"{_wrapped(start.label)}"|' if start.label else ""
            self.arrows.append(f"    {start.node} {arrow}{label} {node}")

    def styles(self) -> list[str]:
        """Mermaid style definitions of the marked nodes."""
        lines: list[str] = []
        for name, nodes in self.classes.items():
            lines.append(f"    classDef {name} {_STYLES[name]}")
            lines.append(f"    class {','.join(nodes)} {name}")
        return lines

    def _classify(self, node: str, step: StepSpec, path: str) -> None:
        status = self.marks.status(path)
        if status is not None:
            kind = f"{status}{FRAME}" if isinstance(step, LoopStep) else status
            self.classes.setdefault(kind, []).append(node)
        elif step.when is not None:
            self.classes.setdefault(SOMETIMES, []).append(node)

    def _fresh(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)


def _can_return(steps: Iterable[StepSpec]) -> bool:
    """Whether an arrow may lead back over these steps; Mermaid lays it out badly around a frame."""
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if isinstance(step, LoopStep):
            return False
        waiting.extend(step.inner)
    return True


def _wrapped(text: str) -> str:
    """A label text wrapped into short lines, cut if it is too long."""
    lines = textwrap.wrap(text, LABEL, max_lines=LABEL_LINES, placeholder="…", break_on_hyphens=False)
    return "<br/>".join(_escaped(line) for line in lines)


def _escaped(text: str) -> str:
    """A text that neither Mermaid nor Markdown interprets: special characters become entity codes."""
    return "".join(
        character if character.isalnum() or character in " ,✓✗–▶·…" else f"#{ord(character)};"
        for character in clean(text)
    )
