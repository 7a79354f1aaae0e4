"""Checks the prerequisites of all steps, in parallel, before a run begins."""

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
from detent.flows.workflow.search_path import is_path
from detent.flows.workflow.spec import StepSpec, SubworkflowStep, WorkflowSpec
from detent.flows.workflow.subworkflows import DEEPEST, Find
from detent.kernel.errors import IntegrationMissing, nearest

PATIENCE = 5.0
"""Seconds one check may take."""
SIDE_BY_SIDE = 32
"""Most checks that run at once."""
LONGEST_MESSAGE = 300


class Checked(NamedTuple):
    """Result of one check."""

    name: str
    """As named in `requires`, argument included: `command:jq`."""
    display_name: str
    ok: bool
    message: str
    remediation: str
    """How to fix it; empty if the check passed."""
    duration_ms: float
    affected_steps: tuple[str, ...]
    """Paths of the steps that need it."""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.message or 'ok'}"
        many = len(self.affected_steps)
        steps = f" Needed by: {_join(self.affected_steps)}." if many else ""
        return f"{self.name}: {self.message.rstrip('.')}. {self.remediation}{steps}"


class PrerequisitesMissing(IntegrationMissing):
    """Prerequisites of steps are missing; all of them are listed at once."""

    def __init__(self, workflow: str, failed: Sequence[Checked]) -> None:
        self.workflow = workflow
        self.failed = tuple(failed)
        lines = "\n".join(f"  {check}" for check in self.failed)
        subject = "one prerequisite is" if len(self.failed) == 1 else f"{len(self.failed)} prerequisites are"
        super().__init__(f"Workflow '{workflow}' cannot begin: {subject} missing.\n{lines}")


def _join(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# -- prerequisites of steps ---------------------------------------------------------------------------------


def required_by(
    spec: WorkflowSpec,
    steps: Iterable[str] | None = None,
    *,
    find: Find | None = None,
    without: Iterable[str] = (),
) -> dict[str, tuple[str, ...]]:
    """Return each prerequisite with the paths of the steps that need it, in the order of the file.

    `steps` selects steps by name or path and `without` excludes some, both with the steps inside them. `find`
    reads the files of subworkflows, whose steps are included.
    """
    left_out = frozenset(without)
    selected = None if steps is None else {of_the_file(path) for path in steps}
    needed: dict[str, dict[str, None]] = {}
    for path, step, called, *_ in walk(spec, find):
        if (selected is None or not selected.isdisjoint(called)) and left_out.isdisjoint(called):
            for name in step.requires:
                needed.setdefault(name, {})[path] = None
    return {name: tuple(needing) for name, needing in needed.items()}


def of_the_file(path: str) -> str:
    """Return a step's path without iterations: `load/[2]/upsert` becomes `load/upsert`."""
    return re.sub(r"(^|/)\[\d+\](?=/|$)", "", path)


class Placed(NamedTuple):
    """A step and its position."""

    path: str
    step: StepSpec
    called: frozenset[str]
    """Names and paths that select it: its own, and those of the steps around it."""
    of: WorkflowSpec
    """The file it is in."""
    depth: int
    """Number of steps around it."""


def walk(spec: WorkflowSpec, find: Find | None) -> Iterator[Placed]:
    """Yield every step a run may reach, in the order of the file; with `find`, those of subworkflows too."""
    waiting: list[tuple[StepSpec, str, frozenset[str], tuple[WorkflowSpec, ...]]] = [
        (step, "", frozenset(), (spec,)) for step in reversed(spec.steps)
    ]
    while waiting:
        step, prefix, around, files = waiting.pop()
        path = prefix + step.name
        # A name is unique in its own file only; steps of other files are selected by path.
        called = around | ({path, step.name} if len(files) == 1 else {path})
        yield Placed(path, step, called, files[-1], path.count("/"))
        inner = [(inner_step, f"{path}/", called, files) for inner_step in step.inner]
        if isinstance(step, SubworkflowStep) and find is not None and len(files) <= DEEPEST:
            child = find(_from_first_file(step.workflow, files))
            if child is not None and all(child.name != file.name for file in files):
                inner += [(inner_step, f"{path}/", called, (*files, child)) for inner_step in child.steps]
        waiting.extend(reversed(inner))


def _from_first_file(workflow: str, files: tuple[WorkflowSpec, ...]) -> str:
    """A workflow as the first file would name it: a path in another file starts from that file's folder."""
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
    """Check the prerequisites of all or some steps in parallel; return them in the order of the file."""
    places = asyncio.Semaphore(SIDE_BY_SIDE)

    async def check(name: str, needing: tuple[str, ...]) -> Checked:
        async with places:
            return await _check(name, needing, registry, timeout)

    needed = required_by(spec, steps, find=find, without=without)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(check(name, needing)) for name, needing in needed.items()]
    return [task.result() for task in tasks]


async def _check(name: str, needing: tuple[str, ...], registry: Registry, timeout: float) -> Checked:
    began = time.perf_counter()

    def result(ok: bool, message: str, display_name: str, remediation: str) -> Checked:
        spent = (time.perf_counter() - began) * 1000
        return Checked(name, display_name, ok, message, "" if ok else remediation, spent, needing)

    lookup = named(name, registry)
    if isinstance(lookup, str):
        return result(False, lookup, name, "Correct `requires`, or register it with @prerequisite.")
    prerequisite, argument = lookup
    title = " ".join(filter(None, (prerequisite.display_name or prerequisite.name, argument)))
    remediation = prerequisite.remediation.replace("{argument}", argument or "")
    try:
        async with asyncio.timeout(timeout) as limit:
            ok, message = _read_answer(
                await _call(prerequisite.check, () if argument is None else (argument,))
            )
    except Exception as error:
        text = " ".join(str(error).split())
        if isinstance(error, TimeoutError) and limit.expired():
            ok, message = False, f"the check did not answer within {timeout:g} s"
        else:
            ok, message = False, f"the check failed with {type(error).__name__}{f': {text}' if text else ''}"
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return result(ok, message, title, remediation)


def named(name: str, registry: Registry) -> tuple[Prerequisite, str | None] | str:
    """Return the prerequisite of a name, with its argument; or the reason why there is none."""
    exact = registry.prerequisites.find(name)
    if exact is not None:
        if exact.takes_argument:
            return f"it needs an argument: {name}:NAME"
        return exact, None
    kind, colon, argument = name.partition(":")
    prerequisite = registry.prerequisites.find(kind) if colon else None
    if prerequisite is None:
        return f"there is no prerequisite '{name}'.{nearest(name, registry.prerequisites.names)}"
    if not prerequisite.takes_argument:
        return f"'{kind}' takes no argument"
    return (prerequisite, argument) if argument.strip() else f"it needs an argument: {kind}:NAME"


def _read_answer(answer: Any) -> tuple[bool, str]:
    """Read the answer of a check: a boolean, or a boolean and a message."""
    if isinstance(answer, bool):
        return answer, "" if answer else "it is not there"
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], bool):
        ok, message = answer
        text = "" if message is None else " ".join(str(message).split())
        return ok, text or ("" if ok else "it is not there")
    raise TypeError(f"a check answers true or false, or that and a message, not {type(answer).__name__}")


async def _call(check: Callable[..., Any], arguments: tuple[str, ...]) -> Any:
    """Call a check, async or not, without blocking the other checks."""
    if inspect.iscoroutinefunction(check):
        return await check(*arguments)
    answer = await _call_in_thread(check, arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def _call_in_thread(function: Callable[..., Any], arguments: tuple[str, ...]) -> Any:
    """Call a function that may hang: its thread is then abandoned and ends with the program."""
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
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=work, name="detent-prerequisite", daemon=True).start()
    value, error = await answered
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(f"it raised {type(error).__name__}")
    return value
