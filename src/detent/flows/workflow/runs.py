"""Runs of a workflow: found by their inputs, started, forked from a checkpoint, or limited to one step."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from detent.engine import claims
from detent.engine.fork import UNDONE
from detent.engine.journal_reader import read
from detent.engine.offloaded import looked_beside
from detent.engine.ports import RunQuery, RunRow
from detent.flows.workflow import events
from detent.flows.workflow.inputs import FORCED, coerce, switched_off
from detent.flows.workflow.preflight import Checked, PrerequisitesMissing, check_prerequisites, required_by
from detent.flows.workflow.run_data import (
    BESIDE,
    HASH,
    INDEX,
    INPUTS,
    ITEM,
    OUTER,
    SECRETS,
    key_of,
)
from detent.flows.workflow.secrets import hash_of, marked, marks_for
from detent.flows.workflow.single_step import only, results_in, step_named
from detent.flows.workflow.spec import ROLLING_BACK, START, WorkflowSpec
from detent.flows.workflow.static_types import passed_over
from detent.flows.workflow.step_type import StepType
from detent.kernel.entries import Moved
from detent.kernel.errors import ConfigurationError, RunBusy, RunNotFound, nearest
from detent.kernel.ids import check_run_id
from detent.kernel.status import Status
from detent.runtime.plugs import RunStart

if TYPE_CHECKING:
    from pathlib import Path

    from detent.adapters.project.checkpoints import Checkpoints
    from detent.engine.engine import Engine
    from detent.flows.workflow.registry import Registry
    from detent.flows.workflow.search_path import WorkflowShelf
    from detent.kernel.budget import Budget
    from detent.kernel.run import Run

OPEN = (Status.RUNNING, Status.WAITING)
TAG = "inputs:"
"""Prefix of the tag by which runs with the same inputs are found."""
BEGUN = "workflow/begun/"
"""Prefix of the marks that let only one of two processes begin a run with the same inputs.

A mark names the latest run with these inputs, which may not exist yet, and the time of the mark. `shown`
holds host and time at which a command has shown the status of that run; it is null while a command drives it.
"""
SHOWN = "shown"
MOST_NAMED = 20
"""Most checkpoints that an error names."""
PATIENCE = 5.0
"""Seconds a process has to begin a run it has announced, before another process begins it."""


class Prepared(NamedTuple):
    """Inputs that fit the declaration, and the hash that identifies their runs."""

    inputs: Mapping[str, Any]
    """A secret is written as `{"$secret": name}`."""
    hash: str
    forced: bool = False
    """Whether agents are switched off for the run."""


class Standing(NamedTuple):
    """State of the runs with the same inputs."""

    row: RunRow | None
    """The latest run that has not ended."""
    version: int
    """Version of the mark; a process that begins another run sets the mark under this version."""
    announced: str | None = None
    """Id of a run that a process announced but did not begin: the next run must take this id."""
    unseen: RunRow | None = None
    """The latest run, if it has ended and its command could not show the result."""


class Forked(NamedTuple):
    """A run forked from a checkpoint of another run."""

    id: str
    of: str
    """The run it was forked from."""
    undone: tuple[str, ...]
    """Paths of steps done in the new run that the other run has rolled back since."""
    partly_undone: frozenset[str] = frozenset()
    """Paths of steps of which the other run has rolled back only a part."""


def mark_of(flow: str, hash: str) -> str:
    """Return the key of the mark for runs of a workflow with the same inputs."""
    return f"{BEGUN}{flow}/{hash}"


async def set_shown(engine: Engine, run: Run, shown: bool) -> None:
    """Record whether a command has shown the status of a run; `shown` is false while a command drives it.

    A run that ended unseen because its command was killed is shown by the next such command, not run again.
    """
    hash = run.data.get(HASH)
    if run.parent is not None or not isinstance(hash, str):
        return
    key = mark_of(run.flow, hash)
    mark, version = await engine.store.mark(key)
    if not shown:
        if mark is None or mark["run"] != run.id or mark.get(SHOWN, True) is not None:
            await engine.store.set_mark(key, {"run": run.id, "at": engine.clock.now(), SHOWN: None}, version)
    elif mark is not None and mark["run"] == run.id:
        receipt = {"host": engine.active.leases.me.host, "at": engine.clock.now()}
        await engine.store.set_mark(key, {**mark, SHOWN: receipt}, version)


def _unseen(mark: Mapping[str, Any], engine: Engine, asked_at: float | None) -> bool:
    receipt = mark.get(SHOWN, {})  # absent in marks of earlier versions
    if receipt is None:
        return True
    same_host = receipt.get("host") == engine.active.leases.me.host
    return asked_at is not None and same_host and bool(receipt["at"] >= asked_at)


class WorkflowFiles(Protocol):
    """What runs need of the workflow files of a project."""

    @property
    def registry(self) -> Registry:
        """The registry of everything the files may name."""

    @property
    def shelf(self) -> WorkflowShelf:
        """The shelf of workflow files."""

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoint files of the project."""

    def base(self, spec: WorkflowSpec) -> Path:
        """Return the folder from which paths in a file start."""


class WorkflowRuns:
    """Starts and finds runs of one workflow."""

    def __init__(
        self,
        workflows: WorkflowFiles,
        spec: WorkflowSpec,
        listener: events.Listener | None = None,
    ) -> None:
        self.workflows = workflows
        self.spec = spec
        self._tell = partial(events.tell, listener)

    # -- before a run ---------------------------------------------------------------------------------------

    def prepare(self, supplied: Mapping[str, Any], *, from_text: bool = False) -> Prepared:
        """Coerce inputs to their declared types.

        Raises:
            InputsError: some inputs do not fit; it lists all of them.
        """
        run_options = (
            {FORCED: supplied[FORCED]} if FORCED in supplied and FORCED not in self.spec.inputs else {}
        )
        inputs = coerce(
            self.spec.inputs, {name: value for name, value in supplied.items() if name not in run_options},
            from_text=from_text,
        )  # fmt: skip
        return Prepared(inputs, hash_of(self.spec.inputs, inputs), switched_off(run_options or inputs))

    async def preflight(
        self, steps: Iterable[str] | None = None, inputs: Mapping[str, Any] | None = None
    ) -> list[Checked]:
        """Check the prerequisites of the steps; if `inputs` are given, without the steps they skip.

        Raises:
            PrerequisitesMissing: some prerequisites are missing; it lists all of them.
        """
        workflows, spec = self.workflows, self.spec
        find = workflows.shelf.finder(workflows.base(spec))
        names = None if steps is None else list(steps)
        without = passed_over(spec, inputs) if inputs is not None else set()
        required = tuple(required_by(spec, names, find=find, without=without))
        self._tell(events.PreflightStarted, prerequisites=required)
        began = time.perf_counter()
        checked = await check_prerequisites(spec, workflows.registry, names, find=find, without=without)
        for check in checked:
            facts: dict[str, Any] = {
                "name": check.name, "display_name": check.display_name, "duration_ms": check.duration_ms,
                "message": check.message,
            }  # fmt: skip
            if check.ok:
                self._tell(events.PreflightCheckPassed, **facts)
            else:
                self._tell(
                    events.PreflightCheckFailed, **facts, remediation=check.remediation,
                    affected_steps=check.affected_steps,
                )  # fmt: skip
        failed = [check for check in checked if not check.ok]
        self._tell(
            events.PreflightCompleted, success=not failed, passed_count=len(checked) - len(failed),
            failed_count=len(failed), total_duration_ms=(time.perf_counter() - began) * 1000,
        )  # fmt: skip
        if failed:
            raise PrerequisitesMissing(spec.name, failed)
        return checked

    # -- finding --------------------------------------------------------------------------------------------

    async def look(self, engine: Engine, prepared: Prepared, asked_at: float | None = None) -> Standing:
        """Return the state of the runs with the same inputs; wait for one that another process is beginning.

        `asked_at` is the time at which the command was given: a run that another command on this host has
        shown since then counts as unseen, because both commands were given at once.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            # Read the mark first: its version changes if a run begins after this read.
            mark, version = await engine.store.mark(self._mark(prepared))
            row = await self.unfinished(engine, prepared)
            if row is not None or mark is None:
                return Standing(row, version)
            try:
                latest = await engine.store.row(str(mark["run"]))
            except RunNotFound:
                if engine.clock.now() - mark["at"] > PATIENCE or time.monotonic() > deadline:
                    return Standing(None, version, announced=str(mark["run"]))
                await asyncio.sleep(0.05)
                continue
            if latest.flow != self.spec.name or f"{TAG}{prepared.hash}" not in latest.tags:
                return Standing(None, version)  # announced under the id of another run
            if not latest.now.status.is_end:
                return Standing(latest, version)  # begun since the query above
            return Standing(None, version, unseen=latest if _unseen(mark, engine, asked_at) else None)

    def _mark(self, prepared: Prepared) -> str:
        return mark_of(self.spec.name, prepared.hash)

    async def unchanged(self, engine: Engine, row: RunRow) -> None:
        """Check that a run can continue under the current file.

        Raises:
            DefinitionChanged: the run was begun under another file, and there is no migration for it.
        """
        await claims.migration(engine.active, await engine.get(row.id), engine.flow(row.flow))

    async def unfinished(self, engine: Engine, prepared: Prepared) -> RunRow | None:
        """Return the latest run of the same workflow and inputs that has not ended."""
        page = await engine.store.rows(
            RunQuery(flow=self.spec.name, status=OPEN, tag=f"{TAG}{prepared.hash}", roots_only=True, limit=1)
        )
        return page.rows[0] if page.rows else None

    def still_to_run(self, state: str) -> list[str]:
        """Return the names of the steps that a run in this state has yet to do."""
        names = [step.name for step in self.spec.steps]
        if state == START:
            return names
        return names[names.index(state) :] if state in names else []

    # -- starting -------------------------------------------------------------------------------------------

    async def start(
        self,
        engine: Engine,
        prepared: Prepared,
        *,
        run_id: str | None = None,
        tags: Iterable[str] = (),
        budget: Budget | None = None,
        deterministic: bool = False,
        config: Mapping[str, Any] | None = None,
        drive: bool = True,
        version: int | None = None,
    ) -> str:
        """Begin a run.

        With the `version` of a `Standing`, the run is announced before it begins, and only if no other run
        with these inputs has been announced since. If this process is slow, another one begins the same run.

        Raises:
            RunBusy: another process has announced a run with these inputs.
            RunExists: another process has begun this run.
        """
        run_id = os.urandom(8).hex() if run_id is None else check_run_id(run_id)
        if version is not None:
            mine = {"run": run_id, "at": engine.clock.now(), SHOWN: None}
            if not await engine.store.set_mark(self._mark(prepared), mine, version):
                mark, _ = await engine.store.mark(self._mark(prepared))
                raise RunBusy(str(mark["run"]), "another process")
        begin = self.run_start(prepared)
        return await engine.start(
            self.spec.name, begin.data, run_id=run_id, tags=[*tags, *begin.tags], budget=budget,
            force_deterministic=deterministic or begin.deterministic, config=config, drive=drive,
        )  # fmt: skip

    def run_start(self, prepared: Prepared) -> RunStart:
        """Return what a run with these inputs starts with."""
        marks = marks_for(self.spec.inputs)
        data: dict[str, Any] = {INPUTS: marked(prepared.inputs, marks), HASH: prepared.hash}
        data |= {SECRETS: marks} if marks else {}
        return RunStart(data, (f"{TAG}{prepared.hash}",), prepared.forced)

    def shadowing(self, selection: str) -> dict[str, Any]:
        """Return the run configuration that shadows steps: comma-separated names, or `all`.

        Raises:
            ConfigurationError: the workflow has no step of a name.
        """
        kinds = {step.name: step.type for step in self.spec.every_step()}
        named = [name.strip() for name in selection.split(",") if name.strip()]
        names = list(kinds) if selection == "all" else named
        for name in names:
            if name not in kinds:
                raise ConfigurationError(
                    f"Workflow '{self.spec.name}' has no step '{name}' to shadow.{nearest(name, kinds)}"
                )
        return {"steps": {name: {"shadow": True} for name in names if kinds[name] is StepType.PYTHON}}

    async def fork_from(
        self, engine: Engine, checkpoint_id: str, prepared: Prepared, *, new_id: str | None = None
    ) -> Forked:
        """Fork a new run from a checkpoint of the latest run with the same inputs.

        Raises:
            ConfigurationError: there is no such checkpoint, or it was saved with other inputs.
        """
        other_inputs = False
        documents = self.workflows.checkpoints.all()
        for document in documents:
            if document.get("checkpoint_id") != checkpoint_id:
                continue
            run_id = str(document.get("run_id"))
            root = await self._root(engine, run_id)
            if root is None or root.flow != self.spec.name:
                continue
            if root.data.get(HASH) != prepared.hash:
                other_inputs = True
                continue
            seq = await self._saved_at(engine, run_id, checkpoint_id)
            if seq is not None:
                return await self._fork(engine, root, (run_id, seq), new_id)
        if other_inputs:
            raise ConfigurationError(
                f"Checkpoint '{checkpoint_id}' of '{self.spec.name}' was saved with other inputs. "
                f"Give the inputs of that run, or start without --from."
            )
        saved: dict[str, None] = {}
        for document in documents:
            root = await self._root(engine, str(document.get("run_id")))
            if root is not None and root.flow == self.spec.name:
                saved[str(document.get("checkpoint_id"))] = None
        listing = (
            f" Saved: {', '.join(list(saved)[:MOST_NAMED])}{', …' if len(saved) > MOST_NAMED else ''}."
            if saved
            else " None was saved yet."
        )
        meant = nearest(checkpoint_id, saved)
        raise ConfigurationError(
            f"Workflow '{self.spec.name}' has no checkpoint '{checkpoint_id}'.{meant}{listing}"
        )

    async def _fork(self, engine: Engine, root: Run, at: tuple[str, int], new_id: str | None) -> Forked:
        """Fork a run and its child runs; the new run knows which of its steps the old one rolled back."""
        new_run = await engine.fork_family(root.id, at, new_id=new_id, drive=False)
        undone = tuple((await engine.get(new_run)).data.get(UNDONE) or ())
        partly = await engine.flow(root.flow).partly_undone_by(engine.store, root.id)
        return Forked(new_run, root.id, undone, partly)

    async def _root(self, engine: Engine, run_id: str) -> Run | None:
        """The topmost ancestor of a run; None if a run of the family is gone."""
        try:
            run = await engine.get(run_id)
            while run.parent is not None:
                run = await engine.get(run.parent)
        except RunNotFound:
            return None
        return run

    async def _saved_at(self, engine: Engine, run_id: str, checkpoint_id: str) -> int | None:
        """Sequence number of the entry with which a run left a checkpoint's step."""
        try:
            async for entry in read(engine.store, run_id):
                body = entry.body
                if isinstance(body, Moved) and body.frm != ROLLING_BACK:
                    result = body.set.get(key_of(body.frm))
                    output = result.get("output") if result else None
                    if isinstance(output, dict) and output.get("checkpoint_id") == checkpoint_id:
                        return entry.seq
        except RunNotFound:
            return None
        return None

    # -- one step -------------------------------------------------------------------------------------------

    def alone(self, step: str) -> WorkflowSpec:
        """Return the workflow that consists of one step of this one."""
        return only(self.spec, step_named(self.spec, step))

    async def data_for(self, engine: Engine, prepared: Prepared, from_run: str | None) -> dict[str, Any]:
        """Return the data of a single-step run: the inputs, and the results of the steps of another run.

        If that run is an iteration of a loop, such as `RUN.each[0]`, its item is included.

        Raises:
            ConfigurationError: the other run is not one of this workflow.
        """
        data = dict(self.run_start(prepared).data)
        if from_run is None:
            return data
        other = await engine.get(from_run)
        if other.flow.partition(".")[0] != self.spec.name:
            raise ConfigurationError(
                f"Run {from_run} is one of '{other.flow}', not of workflow '{self.spec.name}'."
            )
        values = {**other.data, **await looked_beside(BESIDE, other, engine.store.blob)}
        iteration = {name: values[name] for name in (ITEM, INDEX) if name in values}
        return {**data, **iteration, OUTER: results_in(values)}
