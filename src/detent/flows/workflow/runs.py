"""Runs of workflows: found again by their inputs, begun anew, forked from a checkpoint, or of one step."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.engine import claims
from detent.engine.fork import UNDONE
from detent.engine.journal_reader import read
from detent.engine.offloaded import looked_beside
from detent.engine.ports import RunQuery, RunRow
from detent.flows.workflow import events
from detent.flows.workflow.inputs import FORCED, coerce, switched_off
from detent.flows.workflow.preflight import Checked, PrerequisitesMissing, check_prerequisites, required_by
from detent.flows.workflow.scope import (
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
from detent.kernel.entries import Moved
from detent.kernel.errors import ConfigurationError, RunBusy, RunNotFound, nearest
from detent.kernel.ids import check_run_id
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.workflow.library import Workflows
    from detent.kernel.budget import Budget
    from detent.kernel.run import Run

OPEN = (Status.RUNNING, Status.WAITING)
TAG = "inputs:"
"""Begins the tag by which runs of the same inputs are found."""
BEGUN = "workflow/begun/"
"""Begins the marks by which only one of two processes begins a run of the same inputs.

A mark names the latest run of the inputs, which may not be there yet, and since when. `shown` says where and
when a command has shown how that run stands; it is null while a command sees the run through.
"""
SHOWN = "shown"
MOST_NAMED = 20
"""Checkpoints that an error names."""
PATIENCE = 5.0
"""Seconds that a process which has announced a run has for beginning it; then another one begins it."""


class Prepared(NamedTuple):
    """Inputs that fit, and what tells their runs apart."""

    inputs: Mapping[str, Any]
    """Secrets stand as `{"$secret": name}`."""
    hash: str
    forced: bool = False
    """Agents are kept out of the run."""


class Standing(NamedTuple):
    """What there is of runs of the same inputs."""

    row: RunRow | None
    """The latest one that has not ended."""
    version: int
    """Of the mark that whoever begins another one sets."""
    announced: str | None = None
    """The id of one that a process meant to begin and has not: begin that one, and no other."""
    unseen: RunRow | None = None
    """The latest one, if it has ended and the command that ran it could not show how."""


class Forked(NamedTuple):
    """A run that begins where another one saved a checkpoint."""

    id: str
    of: str
    """The run it was forked from."""
    undone: tuple[str, ...]
    """Paths of steps that it has done, and that the other run has undone since."""


def mark_of(flow: str, hash: str) -> str:
    """The mark of the runs of a workflow with the same inputs."""
    return f"{BEGUN}{flow}/{hash}"


async def set_shown(engine: Engine, run: Run, shown: bool) -> None:
    """Keep whether a command has shown how a run stands, or is about to see it through and then will.

    A run that ended unseen, for its command was killed, is shown by the same command instead of done again.
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
        seen = {"host": engine.active.leases.me.host, "at": engine.clock.now()}
        await engine.store.set_mark(key, {**mark, SHOWN: seen}, version)


def _unseen(mark: Mapping[str, Any], engine: Engine, asked_at: float | None) -> bool:
    shown = mark.get(SHOWN, {})  # absent in marks of earlier versions
    if shown is None:
        return True
    same_host = shown.get("host") == engine.active.leases.me.host
    return asked_at is not None and same_host and bool(shown["at"] >= asked_at)


class WorkflowRuns:
    """Starts and finds runs of one workflow."""

    def __init__(
        self,
        workflows: Workflows,
        spec: WorkflowSpec,
        listener: Callable[[events.Event], None] | None = None,
    ) -> None:
        self.workflows = workflows
        self.spec = spec
        self._listener = listener

    def tell(self, kind: type[events.Event], **facts: Any) -> None:
        """Tell the listener something that happened before there is a run."""
        if self._listener is not None:
            self._listener(kind(timestamp=time.time(), **facts))

    # -- before a run ---------------------------------------------------------------------------------------

    def prepare(self, given: Mapping[str, Any], *, from_text: bool = False) -> Prepared:
        """Inputs made to fit; `InputsError` with all that do not."""
        own = {FORCED: given[FORCED]} if FORCED in given and FORCED not in self.spec.inputs else {}
        inputs = coerce(
            self.spec.inputs, {name: value for name, value in given.items() if name not in own},
            from_text=from_text,
        )  # fmt: skip
        return Prepared(inputs, hash_of(self.spec.inputs, inputs), switched_off(own or inputs))

    async def preflight(
        self, steps: Iterable[str] | None = None, inputs: Mapping[str, Any] | None = None
    ) -> list[Checked]:
        """Check what the steps need; `PrerequisitesMissing` with all that is not there.

        Where the `inputs` are known, steps that they have passed over need nothing.
        """
        workflows, spec = self.workflows, self.spec
        find = workflows.shelf.finder(workflows.base(spec))
        wanted = None if steps is None else list(steps)
        without = passed_over(spec, inputs) if inputs is not None else set()
        names = tuple(required_by(spec, wanted, find=find, without=without))
        self.tell(events.PreflightStarted, prerequisites=names)
        began = time.perf_counter()
        checked = await check_prerequisites(spec, workflows.registry, wanted, find=find, without=without)
        for one in checked:
            facts: dict[str, Any] = {
                "name": one.name, "display_name": one.display_name, "duration_ms": one.duration_ms,
                "message": one.message,
            }  # fmt: skip
            if one.ok:
                self.tell(events.PreflightCheckPassed, **facts)
            else:
                self.tell(
                    events.PreflightCheckFailed, **facts, remediation=one.remediation,
                    affected_steps=one.affected_steps,
                )  # fmt: skip
        failed = [one for one in checked if not one.ok]
        self.tell(
            events.PreflightCompleted, success=not failed, passed_count=len(checked) - len(failed),
            failed_count=len(failed), total_duration_ms=(time.perf_counter() - began) * 1000,
        )  # fmt: skip
        if failed:
            raise PrerequisitesMissing(spec.name, failed)
        return checked

    # -- finding --------------------------------------------------------------------------------------------

    async def look(self, engine: Engine, prepared: Prepared, asked_at: float | None = None) -> Standing:
        """What there is of runs of the same inputs; one that is just being begun elsewhere is waited for.

        With `asked_at`, the time at which a command was given: a run that another command on this host has
        shown since then counts as unseen, for both were given at once.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            # The mark first: whoever begins a run after it was read finds its version moved.
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
                return Standing(None, version)  # announced under an id that another run has
            if not latest.now.status.is_end:
                return Standing(latest, version)  # begun since it was looked for
            return Standing(None, version, unseen=latest if _unseen(mark, engine, asked_at) else None)

    def _mark(self, prepared: Prepared) -> str:
        return mark_of(self.spec.name, prepared.hash)

    async def unchanged(self, engine: Engine, row: RunRow) -> None:
        """Raise `DefinitionChanged` when a run was begun under another file, and nothing carries it over."""
        await claims.migration(engine.active, await engine.get(row.id), engine.flow(row.flow))

    async def unfinished(self, engine: Engine, prepared: Prepared) -> RunRow | None:
        """The latest run of the same workflow and inputs that has not ended."""
        page = await engine.store.rows(
            RunQuery(flow=self.spec.name, status=OPEN, tag=f"{TAG}{prepared.hash}", roots_only=True, limit=1)
        )
        return page.rows[0] if page.rows else None

    def still_to_run(self, state: str) -> list[str]:
        """The steps that a run in a state has yet to do."""
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

        With the `version` of a standing only if nobody has begun one of these inputs since; else `RunBusy`.
        The run is announced before it is begun. Should this process be slow, another one begins the same run:
        then it is `RunExists` here.
        """
        run_id = os.urandom(8).hex() if run_id is None else check_run_id(run_id)
        if version is not None:
            mine = {"run": run_id, "at": engine.clock.now(), SHOWN: None}
            if not await engine.store.set_mark(self._mark(prepared), mine, version):
                mark, _ = await engine.store.mark(self._mark(prepared))
                raise RunBusy(str(mark["run"]), "another process")
        return await engine.start(
            self.spec.name, self._data(prepared), run_id=run_id, tags=[*tags, f"{TAG}{prepared.hash}"],
            budget=budget, force_deterministic=deterministic or prepared.forced, config=config, drive=drive,
        )  # fmt: skip

    def _data(self, prepared: Prepared) -> dict[str, Any]:
        marks = marks_for(self.spec.inputs)
        data: dict[str, Any] = {INPUTS: marked(prepared.inputs, marks), HASH: prepared.hash}
        return {**data, SECRETS: marks} if marks else data

    def shadowing(self, said: str) -> dict[str, Any]:
        """The run's own configuration that has steps shadowed: their names with commas, or `all`."""
        from detent.flows.workflow.child_flows import every

        known = [step.name for step in every(self.spec.steps)]
        wanted = known if said == "all" else [one.strip() for one in said.split(",") if one.strip()]
        for name in wanted:
            if name not in known:
                raise ConfigurationError(
                    f"Workflow '{self.spec.name}' has no step '{name}' to shadow.{nearest(name, known)}"
                )
        kinds = {step.name: step.type.value for step in every(self.spec.steps)}
        return {"steps": {name: {"shadow": True} for name in wanted if kinds[name] == "python"}}

    async def fork_from(
        self, engine: Engine, checkpoint_id: str, prepared: Prepared, *, new_id: str | None = None
    ) -> Forked:
        """A new run from where the latest one of the same inputs saved a checkpoint."""
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
                return await self._forked(engine, root, (run_id, seq), new_id)
        if other_inputs:
            raise ConfigurationError(
                f"Checkpoint '{checkpoint_id}' of '{self.spec.name}' was saved with other inputs. "
                f"Give the inputs of that run, or start without --from."
            )
        seen: dict[str, None] = {}
        for document in documents:
            root = await self._root(engine, str(document.get("run_id")))
            if root is not None and root.flow == self.spec.name:
                seen[str(document.get("checkpoint_id"))] = None
        there = (
            f" Saved: {', '.join(list(seen)[:MOST_NAMED])}{', …' if len(seen) > MOST_NAMED else ''}."
            if seen
            else " None was saved yet."
        )
        meant = nearest(checkpoint_id, seen)
        raise ConfigurationError(
            f"Workflow '{self.spec.name}' has no checkpoint '{checkpoint_id}'.{meant}{there}"
        )

    async def _forked(self, engine: Engine, root: Run, at: tuple[str, int], new_id: str | None) -> Forked:
        """Fork a family; what the old run undid of what the new one has done is known to that."""
        made = await engine.fork_family(root.id, at, new_id=new_id, drive=False)
        return Forked(made, root.id, tuple((await engine.get(made)).data.get(UNDONE) or ()))

    async def _root(self, engine: Engine, run_id: str) -> Run | None:
        """The run at the top of a run's family."""
        try:
            run = await engine.get(run_id)
            while run.parent is not None:
                run = await engine.get(run.parent)
        except RunNotFound:
            return None
        return run

    async def _saved_at(self, engine: Engine, run_id: str, checkpoint_id: str) -> int | None:
        """The entry with which a run left a checkpoint's step."""
        try:
            async for entry in read(engine.store, run_id):
                body = entry.body
                if isinstance(body, Moved) and body.frm != ROLLING_BACK:
                    said = body.set.get(key_of(body.frm))
                    output = said.get("output") if said else None
                    if isinstance(output, dict) and output.get("checkpoint_id") == checkpoint_id:
                        return entry.seq
        except RunNotFound:
            return None
        return None

    # -- one step -------------------------------------------------------------------------------------------

    def alone(self, said: str) -> WorkflowSpec:
        """The workflow of one step of this one."""
        return only(self.spec, step_named(self.spec, said))

    async def data_for(self, engine: Engine, prepared: Prepared, from_run: str | None) -> dict[str, Any]:
        """What one step is run on: the inputs, and what steps of another run gave.

        Where that is an iteration of a loop, such as `RUN.each[0]`, also its item.
        """
        data = self._data(prepared)
        if from_run is None:
            return data
        other = await engine.get(from_run)
        if other.flow.partition(".")[0] != self.spec.name:
            raise ConfigurationError(
                f"Run {from_run} is one of '{other.flow}', not of workflow '{self.spec.name}'."
            )
        there = {**other.data, **await looked_beside(BESIDE, other, engine.store.blob)}
        found = {name: there[name] for name in (ITEM, INDEX) if name in there}
        return {**data, **found, OUTER: results_in(there)}
