"""Prints a workflow as it runs: a line for every step, nested steps indented.

Long loops are shown by their progress; failures are always shown, with their whole path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

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
"""Most iterations of a loop that are shown one by one; of a longer loop, only progress and failures."""
MOST_UNDONE = 20
"""Most successful rollbacks that are shown one by one."""
MOST_REMARKS = 20
"""Most warnings and errors shown from the iterations of a long loop."""
TELL_EVERY = 10
"""How many times a long loop shows its progress."""
MOST_WAITS = 5
"""Most questions that are shown if a run waits for several answers."""
WIDEST = 40
CONTAINERS = ("loop", "subworkflow", "branch", "validate")
COLOURS = {"warning": "yellow", "error": "red", "success": "green"}


class WorkflowLines:
    """Listener that prints the events of one run."""

    def __init__(self, spec: WorkflowSpec) -> None:
        self._column = min(WIDEST, max(_widths(spec.steps), default=8)) + 4
        self._loops: dict[str, _Loop] = {}
        self._checks = {step.name for step in spec.every_step() if step.type.value == "validate"}
        """Validate steps: their `on_failure` runs before each retry."""
        self._apart = {step.name for step in spec.every_step() if isinstance(step, LoopStep) and step.apart}
        """Loops whose steps run in parallel, each once."""
        self._headed: set[str] = set()
        """Paths of containers whose own line has been printed."""
        self._saved: dict[str, str] = {}
        """Ids of checkpoints by the paths of their steps."""
        self._undone = 0
        self.failure: str | None = None
        """The error of the last failed step that was shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be ended: every line is printed at once."""

    def __call__(self, event: events.Event) -> None:
        """Print one event, if there is a line for it."""
        method = getattr(self, f"_{type(event).__name__}", None)
        if method is not None:
            method(event)

    # -- steps --------------------------------------------------------------------------------------------

    def _StepStarted(self, event: events.StepStarted) -> None:
        if event.step_type in CONTAINERS and self._is_shown(event.step_path):
            self._heading(event.step_path, event.step_name, event.step_type)

    def _StepCompleted(self, event: events.StepCompleted) -> None:
        shown = self._is_shown(event.step_path)
        if event.success and not shown:
            return
        name = event.step_name if shown else event.step_path
        path = event.step_path if shown else event.step_path.partition("/[")[0] + "/"
        if event.skipped:
            self._line(path, paint("–", dim=True), name, "skipped")
        elif event.success:
            saved = self._saved.pop(event.step_path, None)
            note = f"saved as '{clean(saved)}'" if saved is not None else span(event.duration_ms / 1000)
            if event.performed_by:
                note += f" · {clean(event.performed_by)}"
            self._line(path, paint("✓", "green"), name, note)
        elif event.error == HALTED.reason:
            if shown:
                self._line(path, paint("–", dim=True), name, "not begun: another one failed")
        else:
            self._line(path, paint("✗", "red"), name, clean(event.error or ""))
            self.failure = event.error

    def _StepOutput(self, event: events.StepOutput) -> None:
        path = event.step_path
        if not self._is_shown(path):
            loop = self._long_loop(path)
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
        if loop.total is None:  # the first event was that of a resumed iteration
            loop.total = event.total_iterations
        loop.begun += 1
        loop.come_under_way(event.iteration_index)
        if self._is_shown(event.step_path):
            label = f"pass {event.iteration_index + 1}" if loop.total is None else clean(event.item_label)
            self._heading(event.step_path, f"[{event.iteration_index}]", label)

    def _LoopIterationCompleted(self, event: events.LoopIterationCompleted) -> None:
        path = event.step_path.rpartition("/")[0]
        loop = self._loops.setdefault(path, _Loop(None))
        come = loop.end(event.iteration_index)
        if come is not None and self._is_shown(path):
            self._line(f"{path}/", paint("·", dim=True), come, "")

    def _LoopConditionChecked(self, event: events.LoopConditionChecked) -> None:
        if self._is_shown(f"{event.step_path}/[]"):
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

    def _long_loop(self, path: str) -> _Loop | None:
        """The long loop around a path, if any."""
        parts = path.split("/")
        for depth, part in enumerate(parts):
            if part.startswith("["):
                loop = self._loops.get("/".join(parts[:depth]))
                if loop is not None and loop.long:
                    return loop
        return None

    def _is_shown(self, path: str) -> bool:
        """Whether a path is shown; paths inside a long loop are not."""
        return self._long_loop(path) is None

    def _heading(self, path: str, name: str, note: str) -> None:
        """Print a container's own line; containers around it get theirs first if the run was resumed."""
        self._line(path, paint("▸", "cyan"), name, note)
        self._headed.add(path)

    def _line(self, path: str, sign: str, name: str, note: str) -> None:
        parts = path.split("/")
        around = parts[:-1] if parts[-1] else parts[:-2]  # a step's output is printed under the step
        for depth in range(1, len(around) + 1):
            above = "/".join(parts[:depth])
            if above and above not in self._headed:
                self._headed.add(above)
                self._heading(above, parts[depth - 1], self._resumed_label(parts[:depth]))
        title = f"{self._iteration_prefix(parts)}{name}"
        indent = "  " * len(parts)
        text = f"{indent}{sign} {title}"
        if note:
            gap = self._column - width(f"{indent}{title}") + 2
            text += f"{' ' * max(2, gap)}{note}"
        room = columns()
        say(text if room is None else cut(text, room + len(sign) - 1))

    def _resumed_label(self, parts: Sequence[str]) -> str:
        """Note beside a container whose start event was not seen."""
        number = parts[-1].strip("[]")
        if len(parts) < 2 or not parts[-1].startswith("[") or not number.isdigit():
            return "goes on"
        if parts[-2] in self._checks:  # `on_failure` has no start event
            return f"before run {int(number) + 2}"
        self._loops.setdefault("/".join(parts[:-1]), _Loop(None)).come_under_way(int(number))
        return "in parallel" if parts[-2] in self._apart else "goes on"

    def _iteration_prefix(self, parts: Sequence[str]) -> str:
        """The iteration of a line, if several run in parallel."""
        for depth in range(len(parts) - 2, 0, -1):
            if parts[depth].startswith("["):
                loop = self._loops.get("/".join(parts[:depth]))
                return f"{parts[depth]} " if loop is not None and loop.crowded else ""
        return ""


class _Loop:
    """Progress of a loop."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.begun = 0
        self.remarks = 0
        self.under_way: set[int] = set()
        self.crowded = False
        """Whether several of its iterations ran in parallel."""
        self._reached = 0
        """How many iterations have begun, those before a resume included."""
        self._told = 0

    def come_under_way(self, number: int) -> None:
        """Note that an iteration began or was resumed."""
        self.under_way.add(number)
        self._reached = max(self._reached, number + 1)
        self.crowded = self.crowded or len(self.under_way) > 1

    @property
    def long(self) -> bool:
        """Whether it is too long to show its iterations one by one."""
        return (self.total or self.begun) > MOST_ITERATIONS

    def end(self, number: int) -> str | None:
        """Note that an iteration ended; the progress of a long loop, None if it was shown just before.

        Parallel iterations end in any order, so what counts is how many are through, not which one is.
        """
        self.under_way.discard(number)
        self._reached = max(self._reached, number + 1)
        if not self.long:
            return None
        through = self._reached - len(self.under_way)
        step = max(1, (self.total or MOST_ITERATIONS * TELL_EVERY) // TELL_EVERY)
        if through // step <= self._told:
            return None
        self._told = through // step
        return f"{through:,} of {self.total:,}" if self.total else f"{through:,} passes"


def _widths(steps: Sequence[StepSpec], depth: int = 1) -> Iterator[int]:
    """Columns that the names of steps take, indentation included."""
    for step in steps:
        yield 2 * depth + len(step.name)
        inside = 2 if step.type.value == "loop" else 1
        yield from _widths(list(step.inner), depth + inside)


async def tell_ending(workspace: Workspace, engine: Engine, run: Run, told: str | None = None) -> None:
    """Print the status of a run, its result or what it waits for, and the commands to continue.

    An error that was already `told` is not repeated.
    """
    from detent.cli import run_status
    from detent.cli.output import status
    from detent.flows.workflow.run_data import RESULT
    from detent.kernel.status import Status

    if run.status is Status.WAITING:
        await _print_waits(workspace, engine, run)
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
    elif run.status.is_end and (why := run.error or run.reason) and why != told:
        say(f"  {clean(why)}")
    for command in run_status.next_commands(workspace, run, reopen=False):
        say(f"  {command}")


async def _print_waits(workspace: Workspace, engine: Engine, run: Run) -> None:
    """Print what a run or its child runs wait for, and how to answer."""
    from detent.cli import run_status
    from detent.cli.output import local

    waits = [run]
    shown = 0
    while waits:
        waiting = waits.pop(0)
        below = [held for held in waiting.holds.values() if held.why == "children"]
        waits += [await engine.get(child) for held in below for child in held.about.get("runs", ())]
        holds = {name: held for name, held in waiting.holds.items() if held.why != "children"}
        shown += len(holds)
        if not holds or shown > MOST_WAITS:
            continue
        for name, held in holds.items():
            until = f" until {local(held.wake_at)}" if held.wake_at is not None else ""
            subject = (
                f": {clean(held.question)}" if held.question else f" for {held.why} '{clean(name)}'{until}"
            )
            say(f"{paint('waiting', 'yellow')}{subject}")
            for line in run_status.effect_lines(held):
                say(f"  {line}")
        for command in run_status.next_commands(workspace, waiting, reopen=False):
            say(f"  {command}")
    if shown > MOST_WAITS:
        say(f"  … and more: {workspace.command('runs', '--status', 'waiting')}")
    elif not shown:
        say(paint("waiting", "yellow"))


def result_lines(output: Any) -> list[str]:
    """Return the lines that show the result of a finished workflow."""
    from detent.kernel.plain import encode

    if output is None:
        return []
    if isinstance(output, dict):
        widest = max((len(key) for key in output), default=0)
        return [f"  {clean(key.ljust(widest))}  {_format(value)}" for key, value in output.items()]
    return [f"  {_format(output)}" if isinstance(output, str) else f"  {cut(clean(encode(output)), 400)}"]


def _format(value: Any) -> str:
    from detent.kernel.plain import encode

    return cut(clean(value if isinstance(value, str) else encode(value)), 200)
