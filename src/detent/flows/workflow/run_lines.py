"""Shows a workflow as it runs: a line for every step, indented where it stands inside another.

Long loops are shown by how far they have come; what fails is always shown, with its whole path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, columns, cut, paint, say, width
from detent.engine.children import HALTED
from detent.flows.workflow import events
from detent.flows.workflow.spec import LoopStep
from detent.insight.formatting import count, money, span

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.flows.workflow.spec import StepSpec, WorkflowSpec
    from detent.kernel.run import Run

MOST_ITERATIONS = 20
"""Iterations of one loop that are shown one by one; of more, how far it has come, and what failed."""
MOST_UNDONE = 20
"""Rollbacks that are shown one by one, where they go well."""
MOST_REMARKS = 20
"""Remarks of the iterations of a long loop that are shown."""
TELL_EVERY = 10
"""How often a long loop says how far it has come."""
MOST_WAITS = 5
"""Questions that are shown where a run waits for several answers."""
WIDEST = 40
CONTAINERS = ("loop", "subworkflow", "branch", "validate")
COLOURS = {"warning": "yellow", "error": "red", "success": "green"}


class WorkflowLines:
    """Prints what a listener is told of one run."""

    def __init__(self, spec: WorkflowSpec) -> None:
        self._column = min(WIDEST, max(_widths(spec.steps), default=8)) + 4
        self._loops: dict[str, _Loop] = {}
        self._checks = {step.name for step in spec.every_step() if step.type.value == "validate"}
        """Steps whose helpers are run before each further run."""
        self._apart = {step.name for step in spec.every_step() if isinstance(step, LoopStep) and step.apart}
        """Loops whose steps run side by side, each once."""
        self._headed: set[str] = set()
        """Paths of containers that have a line of their own."""
        self._saved: dict[str, str] = {}
        """Ids of checkpoints by the paths of their steps."""
        self._undone = 0

    def __call__(self, event: events.Event) -> None:
        """Show one event, if people want to see it."""
        method = getattr(self, f"_{type(event).__name__}", None)
        if method is not None:
            method(event)

    # -- steps --------------------------------------------------------------------------------------------

    def _StepStarted(self, event: events.StepStarted) -> None:
        if event.step_type in CONTAINERS and self._wanted(event.step_path):
            self._heading(event.step_path, event.step_name, event.step_type)

    def _StepCompleted(self, event: events.StepCompleted) -> None:
        wanted = self._wanted(event.step_path)
        if event.success and not wanted:
            return
        name = event.step_name if wanted else event.step_path
        path = event.step_path if wanted else event.step_path.partition("/[")[0] + "/"
        if event.skipped:
            self._line(path, paint("–", dim=True), name, "skipped")
        elif event.success:
            saved = self._saved.pop(event.step_path, None)
            said = f"saved as '{clean(saved)}'" if saved is not None else span(event.duration_ms / 1000)
            self._line(path, paint("✓", "green"), name, said)
        elif event.error == HALTED:
            if wanted:
                self._line(path, paint("–", dim=True), name, "not begun: another one failed")
        else:
            self._line(path, paint("✗", "red"), name, clean(event.error or ""))

    def _StepOutput(self, event: events.StepOutput) -> None:
        path = event.step_path
        if not self._wanted(path):
            loop = self._long(path)
            if loop is None or event.level not in ("warning", "error") or loop.remarks >= MOST_REMARKS:
                return
            loop.remarks += 1
        for line in event.message.splitlines() or [""]:
            self._line(f"{path}/", paint("│", COLOURS.get(event.level, "cyan")), clean(line), "")

    def _CheckpointSaved(self, event: events.CheckpointSaved) -> None:
        self._saved[event.step_path] = event.checkpoint_id

    # -- loops --------------------------------------------------------------------------------------------

    def _LoopIterationStarted(self, event: events.LoopIterationStarted) -> None:
        path = event.step_path.rpartition("/")[0]
        loop = self._loops.setdefault(path, _Loop(event.total_iterations))
        if loop.total is None:  # an iteration that was resumed was heard of first
            loop.total = event.total_iterations
        loop.begun += 1
        loop.come_under_way(event.iteration_index)
        if self._wanted(event.step_path):
            label = f"pass {event.iteration_index + 1}" if loop.total is None else clean(event.item_label)
            self._heading(event.step_path, f"[{event.iteration_index}]", label)

    def _LoopIterationCompleted(self, event: events.LoopIterationCompleted) -> None:
        path = event.step_path.rpartition("/")[0]
        loop = self._loops.setdefault(path, _Loop(None))
        loop.under_way.discard(event.iteration_index)
        come = loop.come_to(event.iteration_index + 1)
        if come is not None and self._wanted(path):
            self._line(f"{path}/", paint("·", dim=True), come, "")

    def _LoopConditionChecked(self, event: events.LoopConditionChecked) -> None:
        if self._wanted(f"{event.step_path}/[]"):
            met = "holds" if event.condition_met else "does not hold yet"
            self._line(f"{event.step_path}/[]", paint("·", dim=True), "until", met)

    # -- rolling back -------------------------------------------------------------------------------------

    def _RollbackCompleted(self, event: events.RollbackCompleted) -> None:
        path, action = clean(event.step_path or event.step_name), clean(event.action)
        if not self._undone:
            say(f"  {paint('rolling back', 'yellow')}")
        self._undone += 1
        if not event.success:
            self._line("/", paint("✗", "red"), f"{path}: {action}: {clean(event.error or '')}", "")
        elif self._undone <= MOST_UNDONE:
            self._line("/", paint("↶", "yellow"), f"{path}: {action}", "")

    def _WorkflowCompleted(self, event: events.WorkflowCompleted) -> None:
        if not event.step_path and self._undone > MOST_UNDONE:
            self._line("/", paint("…", dim=True), f"{count(self._undone, 'step')} rolled back in all", "")

    # -- lines --------------------------------------------------------------------------------------------

    def _long(self, path: str) -> _Loop | None:
        """The long loop that a path stands in, if it does."""
        parts = path.split("/")
        for depth, part in enumerate(parts):
            if part.startswith("["):
                loop = self._loops.get("/".join(parts[:depth]))
                if loop is not None and loop.long:
                    return loop
        return None

    def _wanted(self, path: str) -> bool:
        """Whether a path is shown: those inside a long loop are not."""
        return self._long(path) is None

    def _heading(self, path: str, name: str, said: str) -> None:
        """A container's own line; those around it that have none, since it was resumed, get theirs first."""
        self._line(path, paint("▸", "cyan"), name, said)
        self._headed.add(path)

    def _line(self, path: str, sign: str, name: str, said: str) -> None:
        parts = path.split("/")
        around = parts[:-1] if parts[-1] else parts[:-2]  # what a step says stands below the step itself
        for depth in range(1, len(around) + 1):
            above = "/".join(parts[:depth])
            if above and above not in self._headed:
                self._headed.add(above)
                self._heading(above, parts[depth - 1], self._again(parts[:depth]))
        shown = f"{self._which(parts)}{name}"
        indent = "  " * len(parts)
        text = f"{indent}{sign} {shown}"
        if said:
            gap = self._column - width(f"{indent}{shown}") + 2
            text += f"{' ' * max(2, gap)}{said}"
        room = columns()
        say(text if room is None else cut(text, room + len(sign) - 1))

    def _again(self, parts: Sequence[str]) -> str:
        """What is said of a container whose beginning was not heard of."""
        number = parts[-1].strip("[]")
        if len(parts) < 2 or not parts[-1].startswith("[") or not number.isdigit():
            return "goes on"
        if parts[-2] in self._checks:  # what mends has no beginning of its own
            return f"before run {int(number) + 2}"
        self._loops.setdefault("/".join(parts[:-1]), _Loop(None)).come_under_way(int(number))
        return "side by side" if parts[-2] in self._apart else "goes on"

    def _which(self, parts: Sequence[str]) -> str:
        """The iteration a line is about, where several are under way side by side."""
        for depth in range(len(parts) - 2, 0, -1):
            if parts[depth].startswith("["):
                loop = self._loops.get("/".join(parts[:depth]))
                return f"{parts[depth]} " if loop is not None and loop.crowded else ""
        return ""


class _Loop:
    """How far a loop has come."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.begun = 0
        self.remarks = 0
        self.under_way: set[int] = set()
        self.crowded = False
        """Several of its iterations were under way side by side."""
        self._told = 0

    def come_under_way(self, number: int) -> None:
        """An iteration has begun, or goes on."""
        self.under_way.add(number)
        self.crowded = self.crowded or len(self.under_way) > 1

    @property
    def long(self) -> bool:
        """Too long to be shown one by one."""
        return (self.total or self.begun) > MOST_ITERATIONS

    def come_to(self, number: int) -> str | None:
        """What to say of a long loop that has come to an iteration; None where that was said just now."""
        if not self.long:
            return None
        step = max(1, (self.total or MOST_ITERATIONS * TELL_EVERY) // TELL_EVERY)
        if number // step <= self._told:
            return None
        self._told = number // step
        return f"{number:,} of {self.total:,}" if self.total else f"{number:,} passes"


def _widths(steps: Sequence[StepSpec], depth: int = 1) -> Iterator[int]:
    """Columns that the names of steps take, as far in as they stand."""
    for step in steps:
        yield 2 * depth + len(step.name)
        inside = 2 if step.type.value == "loop" else 1
        yield from _widths(list(step.inner), depth + inside)


async def tell_ending(workspace: Workspace, engine: Engine, run: Run) -> None:
    """Print how a run stands, what it gave or waits for, and what can be done about it."""
    from detent.cli import run_status
    from detent.cli.output import status
    from detent.flows.workflow.scope import RESULT
    from detent.kernel.status import Status

    if run.status is Status.WAITING:
        await _tell_waits(workspace, engine, run)
        return
    facts = [status(run.status.value, run.status.value.replace("_", " "))]
    if run.status.is_end:
        facts.append(span(max(0.0, run.updated_at - run.created_at)))
    spent = run.total_spend
    facts += [count(spent.tokens, "token")] if spent.tokens else []
    facts += [money(spent.cost_usd)] if spent.cost_usd else []
    say(" · ".join(facts))
    if run.status is Status.SUCCEEDED:
        for line in result_lines(run.data.get(RESULT)):
            say(line)
    elif run.status.is_end and (run.error or run.reason):
        say(f"  {clean(run.error or run.reason)}")
    for command in run_status.next_commands(workspace, run, reopen=False):
        say(f"  {command}")


async def _tell_waits(workspace: Workspace, engine: Engine, run: Run) -> None:
    """Print what a run, or a run below it, waits for, and how to answer."""
    from detent.cli import run_status
    from detent.cli.output import local

    waits = [run]
    shown = 0
    while waits:
        one = waits.pop(0)
        below = [held for held in one.holds.values() if held.why == "children"]
        waits += [await engine.get(child) for held in below for child in held.about.get("runs", ())]
        own = {name: held for name, held in one.holds.items() if held.why != "children"}
        shown += len(own)
        if not own or shown > MOST_WAITS:
            continue
        for name, held in own.items():
            until = f" until {local(held.wake_at)}" if held.wake_at is not None else ""
            said = f": {clean(held.question)}" if held.question else f" for {held.why} '{clean(name)}'{until}"
            say(f"{paint('waiting', 'yellow')}{said}")
        for command in run_status.next_commands(workspace, one, reopen=False):
            say(f"  {command}")
    if shown > MOST_WAITS:
        say(f"  … and more: {workspace.command('runs', '--status', 'waiting')}")
    elif not shown:
        say(paint("waiting", "yellow"))


def result_lines(output: Any) -> list[str]:
    """What a finished workflow gave, for people."""
    from detent.kernel.plain import encode

    if output is None:
        return []
    if isinstance(output, dict):
        widest = max((len(key) for key in output), default=0)
        return [f"  {clean(key.ljust(widest))}  {_said(value)}" for key, value in output.items()]
    return [f"  {_said(output)}" if isinstance(output, str) else f"  {cut(clean(encode(output)), 400)}"]


def _said(value: Any) -> str:
    from detent.kernel.plain import encode

    return cut(clean(value if isinstance(value, str) else encode(value)), 200)
