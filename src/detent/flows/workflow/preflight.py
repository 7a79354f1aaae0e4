"""What must be there before a run begins: every prerequisite of every step, checked side by side."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from detent.flows.workflow.registry import Prerequisite, Registry
from detent.flows.workflow.shelf import is_path
from detent.flows.workflow.spec import StepSpec, SubworkflowStep, WorkflowSpec
from detent.kernel.errors import IntegrationMissing, nearest

PATIENCE = 5.0
"""Seconds one check may take."""
DEEPEST = 8
"""How deep workflows may start each other."""
SIDE_BY_SIDE = 32
"""Checks under way at once."""
LONGEST_MESSAGE = 300

Find = Callable[[str], WorkflowSpec | None]
"""Gives the workflow a subworkflow step names, as its file says it."""


class Checked(NamedTuple):
    """What became of one check."""

    name: str
    """As the steps say it, argument included: `command:jq`."""
    display_name: str
    ok: bool
    message: str
    remediation: str
    """What a person can do about it; told only where it failed."""
    duration_ms: float
    affected_steps: tuple[str, ...]
    """Paths of the steps that need it."""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.message or 'ok'}"
        many = len(self.affected_steps)
        steps = f" Needed by: {_listed(self.affected_steps)}." if many else ""
        return f"{self.name}: {self.message.rstrip('.')}. {self.remediation}{steps}"


class PrerequisitesMissing(IntegrationMissing):
    """Something that steps need is not there; all of it is listed at once."""

    def __init__(self, workflow: str, failed: Sequence[Checked]) -> None:
        self.workflow = workflow
        self.failed = tuple(failed)
        lines = "\n".join(f"  {one}" for one in self.failed)
        what = "one prerequisite is" if len(self.failed) == 1 else f"{len(self.failed)} prerequisites are"
        super().__init__(f"Workflow '{workflow}' cannot begin: {what} missing.\n{lines}")


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# -- who needs what -----------------------------------------------------------------------------------------


def required_by(
    spec: WorkflowSpec,
    steps: Iterable[str] | None = None,
    *,
    find: Find | None = None,
    without: Iterable[str] = (),
) -> dict[str, tuple[str, ...]]:
    """Each prerequisite with the paths of the steps that need it, in the order of the file.

    `steps` keeps to some of them, by name or path, `without` leaves some out; what stands inside one counts
    with it. `find` reads the files of subworkflows, whose steps are counted too.
    """
    left_out = frozenset(without)
    wanted = None if steps is None else {of_the_file(path) for path in steps}
    found: dict[str, dict[str, None]] = {}
    for path, step, called, *_ in walk(spec, find):
        if (wanted is None or not wanted.isdisjoint(called)) and left_out.isdisjoint(called):
            for name in step.requires:
                found.setdefault(name, {})[path] = None
    return {name: tuple(needing) for name, needing in found.items()}


def of_the_file(path: str) -> str:
    """A step's path without the iterations of a run: `load/[2]/upsert` is `load/upsert`."""
    return re.sub(r"(^|/)\[\d+\](?=/|$)", "", path)


class Placed(NamedTuple):
    """A step and where it stands."""

    path: str
    step: StepSpec
    called: frozenset[str]
    """What it may be called: its own name, and those of what it stands in."""
    of: WorkflowSpec
    """The file it is in."""
    depth: int
    """How many steps it stands in."""


def walk(spec: WorkflowSpec, find: Find | None) -> Iterator[Placed]:
    """Every step that a run may come to, in the order of the file; with `find`, those of subworkflows too."""
    waiting: list[tuple[StepSpec, str, frozenset[str], tuple[WorkflowSpec, ...]]] = [
        (step, "", frozenset(), (spec,)) for step in reversed(spec.steps)
    ]
    while waiting:
        step, prefix, around, files = waiting.pop()
        path = prefix + step.name
        # A name is unique in its file; of other files only paths are.
        called = around | ({path, step.name} if len(files) == 1 else {path})
        yield Placed(path, step, called, files[-1], path.count("/"))
        inner = [(one, f"{path}/", called, files) for one in step.inner]
        if isinstance(step, SubworkflowStep) and find is not None and len(files) <= DEEPEST:
            child = find(_asked(step.workflow, files))
            if child is not None and all(child.name != one.name for one in files):
                inner += [(one, f"{path}/", called, (*files, child)) for one in child.steps]
        waiting.extend(reversed(inner))


def _asked(workflow: str, files: tuple[WorkflowSpec, ...]) -> str:
    """A workflow as the first file would say it: a path in another file starts from that one's folder."""
    if len(files) == 1 or not is_path(workflow):
        return workflow
    return str(Path(files[-1].place.file).absolute().parent / workflow)


# -- checking -----------------------------------------------------------------------------------------------


async def check_prerequisites(
    spec: WorkflowSpec,
    registry: Registry,
    steps: Iterable[str] | None = None,
    *,
    find: Find | None = None,
    without: Iterable[str] = (),
    timeout: float = PATIENCE,
) -> list[Checked]:
    """Check everything the steps need, or that some of them need, side by side; in the order of the file."""
    places = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(name: str, needing: tuple[str, ...]) -> Checked:
        async with places:
            return await _checked(name, needing, registry, timeout)

    needed = required_by(spec, steps, find=find, without=without)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(name, needing)) for name, needing in needed.items()]
    return [task.result() for task in tasks]


async def _checked(name: str, needing: tuple[str, ...], registry: Registry, timeout: float) -> Checked:
    began = time.perf_counter()

    def told(ok: bool, message: str, display_name: str, remediation: str) -> Checked:
        spent = (time.perf_counter() - began) * 1000
        return Checked(name, display_name, ok, message, "" if ok else remediation, spent, needing)

    found = named(name, registry)
    if isinstance(found, str):
        return told(False, found, name, "Correct `requires`, or register it with @prerequisite.")
    prerequisite, argument = found
    shown = " ".join(filter(None, (prerequisite.display_name or prerequisite.name, argument)))
    remediation = prerequisite.remediation.replace("{argument}", argument or "")
    try:
        async with asyncio.timeout(timeout) as limit:
            ok, message = _read(await _ask(prerequisite.check, () if argument is None else (argument,)))
    except Exception as error:
        said = " ".join(str(error).split())
        if isinstance(error, TimeoutError) and limit.expired():
            ok, message = False, f"the check did not answer within {timeout:g} s"
        else:
            ok, message = False, f"the check failed with {type(error).__name__}{f': {said}' if said else ''}"
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return told(ok, message, shown, remediation)


def named(name: str, registry: Registry) -> tuple[Prerequisite, str | None] | str:
    """The prerequisite a step means, with its argument; or why there is none."""
    exact = registry.prerequisites.find(name)
    if exact is not None:
        if exact.takes_argument:
            return f"it needs to be told which: {name}:NAME"
        return exact, None
    kind, colon, argument = name.partition(":")
    found = registry.prerequisites.find(kind) if colon else None
    if found is None:
        return f"there is no prerequisite '{name}'.{nearest(name, registry.prerequisites.names)}"
    if not found.takes_argument:
        return f"'{kind}' takes no argument"
    return (found, argument) if argument.strip() else f"it needs to be told which: {kind}:NAME"


def _read(answer: Any) -> tuple[bool, str]:
    """What a check answered: a truth value, or that and a message."""
    if isinstance(answer, bool):
        return answer, "" if answer else "it is not there"
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], bool):
        ok, message = answer
        said = "" if message is None else " ".join(str(message).split())
        return ok, said or ("" if ok else "it is not there")
    raise TypeError(f"a check answers true or false, or that and a message, not {type(answer).__name__}")


async def _ask(check: Callable[..., Any], arguments: tuple[str, ...]) -> Any:
    """Call a check, whatever kind of function it is; one that waits keeps no other from being asked."""
    if inspect.iscoroutinefunction(check):
        return await check(*arguments)
    answer = await _in_a_thread(check, arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def _in_a_thread(function: Callable[..., Any], arguments: tuple[str, ...]) -> Any:
    """Call a function that may hang: its thread is left behind when it does, and ends with the program."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: tuple[Any, BaseException | None]) -> None:
        if not answered.done():
            answered.set_result(result)

    def work() -> None:
        result: tuple[Any, BaseException | None]
        try:
            result = context.run(function, *arguments), None
        except BaseException as error:
            result = None, error
        # Nobody waits any more once the loop is closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, name="detent-prerequisite", daemon=True).start()
    value, error = await answered
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(f"it raised {type(error).__name__}")
    return value
