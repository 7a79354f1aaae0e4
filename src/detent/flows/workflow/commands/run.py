"""The command `workflow run`: checks a file, then runs it, or goes on with an unfinished run of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import NewId, Options, Tags, takes
from detent.flows.workflow.kind import KIND, workflows_of

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import RunRow, Tape
    from detent.flows.workflow import events
    from detent.flows.workflow.library import Chosen, Workflows
    from detent.flows.workflow.runs import Prepared, Standing, WorkflowRuns
    from detent.flows.workflow.spec import WorkflowSpec
    from detent.kernel.budget import Budget
    from detent.kernel.errors import ConfigurationError, DefinitionChanged, DetentError
    from detent.kernel.run import Run

UNSEEN = "has ended"
LETTING_GO = 2.0
"""Seconds to wait for another process to release a run, in case it is stopping."""


@takes("run")
def run(
    options: Options,
    name: Annotated[
        str, typer.Argument(metavar="NAME_OR_FILE", help="A workflow's name, or the path of its file.")
    ],
    input_: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="K=V", help="An input. May be repeated.")
    ] = None,
    input_file: Annotated[
        str | None, typer.Option("--input-file", metavar="FILE", help="Inputs from JSON or YAML.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print the plan; do nothing.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Cancel an unfinished run of the same inputs and start over.")
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="CHECKPOINT", help="Begin a new run where a checkpoint was saved."),
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="NAME|NUMBER", help="Run this step alone.")
    ] = None,
    from_run: Annotated[
        str | None,
        typer.Option("--from-run", metavar="RUN", help="With --step: take other steps' outputs from RUN."),
    ] = None,
    shadow: Annotated[
        str | None,
        typer.Option("--shadow", metavar="STEPS", help="Steps an agent does beside, or: all."),
    ] = None,
    tag: Tags = None,
    id_: NewId = None,
) -> int:
    """Run a workflow, or go on with an unfinished run of it.

    A run of the same inputs that was stopped or killed goes on after its last finished step; none is done
    twice. Everything is checked before the first step: the file, the inputs, what the steps need.
    """
    from detent.cli.invocation import asked_at
    from detent.cli.record import check_options
    from detent.cli.values import read_budget
    from detent.cli.workspace import run_async
    from detent.kernel.errors import ConfigurationError

    modes = (("--restart", restart), ("--from", from_), ("--step", step))
    exclusive = [option for option, value in modes if value]
    if len(exclusive) > 1:
        raise ConfigurationError(f"{' and '.join(exclusive)} cannot be combined.")
    if from_run is not None and step is None:
        raise ConfigurationError("--from-run says where the step of --step gets other steps' outputs from.")
    check_options(options, dry_run=dry_run)
    if (options.record or options.replay) is not None:
        for option, value in (("--from", from_), ("--from-run", from_run)):
            if value is not None:
                raise ConfigurationError(
                    f"{option} begins in the middle of another run; --record and --replay take a whole one."
                )
    workspace = options.workspace()
    budget = read_budget(options, workspace.settings)
    job = _Job(options, workspace, name, _inputs(input_, input_file), budget, list(tag or ()), id_, shadow)
    job.words = [*(["--input-file", input_file] if input_file else []), *_repeated("-i", input_)]
    job.asked_at = asked_at()
    if dry_run:
        return run_async(job.dry())
    if step is not None:
        return run_async(job.alone(step, from_run))
    return run_async(job.whole(restart=restart, from_=from_))


def _repeated(option: str, values: list[str] | None) -> list[str]:
    """An option with its values, for a command that is shown."""
    return [word for value in values or () for word in (option, value)]


def _inputs(pairs: list[str] | None, file: str | None) -> dict[str, Any]:
    """The inputs of `--input-file` and `-i`; the latter take precedence."""
    from detent.cli.values import read_object
    from detent.kernel.errors import ConfigurationError

    inputs: dict[str, Any] = {}
    if file is not None:
        content = read_object(file, "--input-file")
        if content is not None and not isinstance(content, dict):
            raise ConfigurationError(f"{file} holds no inputs: it must give names to values.")
        inputs = dict(content or {})
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"-i takes NAME=VALUE, not '{pair}'.")
        inputs[key.strip()] = value
    return inputs


def hiding(workflows: Workflows, chosen: Chosen) -> list[str]:
    """Notes on shipped workflows that other files replace in this run."""
    used = {getattr(step, "workflow", None) for step in chosen.spec.every_step()}
    return [
        f"Note: the workflow '{listed.name}' is {workflows.shown(file)}, in place of the one that ships."
        for listed in workflows.shelf.all()
        if listed.source == "builtin" and (file := listed.hidden_by) is not None
        if file == chosen.file or listed.name in used
    ]


@dataclass
class _Job:
    """One invocation of the command."""

    options: Options
    workspace: Workspace
    name: str
    inputs: dict[str, Any]
    """The inputs."""
    budget: Budget | None
    tags: list[str]
    run_id: str | None
    shadow: str | None
    words: list[str] = field(default_factory=list)
    """The inputs as the command line has them, for commands that are shown."""
    asked_at: float = 0.0
    """Time at which the command was invoked."""
    tape: Tape | None = None
    _lines: Any = None

    def __post_init__(self) -> None:
        self.deterministic = self.options.deterministic
        self.silent = self.options.json or self.options.quiet

    # -- before ---------------------------------------------------------------------------------------------

    def _listen(self, event: events.Event) -> None:
        if self._lines is not None:
            self._lines(event)

    def _chosen(self) -> tuple[Chosen, WorkflowRuns, Prepared]:
        """The workflow, checked, and its inputs."""
        from detent.authoring.problem import DocumentError
        from detent.cli.output import clean, warn
        from detent.flows.workflow.run_lines import WorkflowLines
        from detent.flows.workflow.runs import WorkflowRuns

        workflows = workflows_of(self.workspace.catalog)
        chosen = workflows.choose(self.name, forced=self.deterministic, listener=self._listen)
        beside = workflows.settings_problems([chosen.spec])
        if beside:
            raise DocumentError("What the settings say about steps", beside)
        for problem in chosen.warnings:
            if not self.silent:
                warn(str(problem))
        for note in [*hiding(workflows, chosen), *workflows.stand_ins([chosen.spec])]:
            warn(clean(note))  # even with --quiet: another file runs than the name suggests
        if not self.silent:
            self._lines = WorkflowLines(chosen.spec)
        runs = WorkflowRuns(workflows, chosen.spec, self._listen)
        prepared = runs.prepare(self.inputs, from_text=True)
        if prepared.forced and not self.deterministic:
            self.deterministic = True
            workflows.choose(self.name, forced=True)  # reports steps that cannot run without agents
        return chosen, runs, prepared

    def _place(self, chosen: Chosen) -> str | None:
        """The path, relative to the project's folder, of a file that was named by its path."""
        from detent.flows.workflow.search_path import is_path

        if not is_path(self.name):
            return None
        folder = self.workspace.settings.folder.resolve()
        file = chosen.file.resolve()
        return f"./{file.relative_to(folder)}" if file.is_relative_to(folder) else str(file)

    async def dry(self) -> int:
        """Check everything and print the plan."""
        from detent.cli.output import clean, cut, say, say_json, table
        from detent.flows.workflow.description import planned
        from detent.insight.formatting import count
        from detent.kernel.plain import encode

        chosen, runs, prepared = self._chosen()
        checked = await runs.preflight(inputs=prepared.inputs)
        workflows = workflows_of(self.workspace.catalog)
        workflows.flows_of(chosen.spec)  # reports steps that cannot be compiled
        plan = planned(
            chosen.spec, self.workspace.settings, workflows.registry,
            workflows.shelf.finder(workflows.base(chosen.spec)), forced=self.deterministic,
        )  # fmt: skip
        inputs = {
            key: "***" if isinstance(value, dict) and "$secret" in value else value
            for key, value in prepared.inputs.items()
        }
        if self.options.json:
            say_json(
                {
                    "workflow": chosen.spec.name, "inputs": inputs, "inputs_hash": prepared.hash,
                    "prerequisites": [step._asdict() for step in checked], "plan": plan,
                }
            )  # fmt: skip
            return 0
        needs = count(len(checked), "prerequisite")
        say(f"{chosen.spec.name}: the file, {count(len(inputs), 'input')} and {needs} are in order.")
        for key, value in inputs.items():
            say(f"  {key} = {cut(clean(encode(value)), 100)}")
        rows = [
            ["  " * step["depth"] + step["name"], step["type"], step["mode"] or "", step["autonomy"] or "",
             step["layer"] or "", ", ".join(step["effects"]), step["rollback"] or ""]
            for step in plan
        ]  # fmt: skip
        table(["step", "type", "mode", "autonomy", "layer", "effects", "rollback"], rows)
        say("Nothing was run.")
        return 0

    # -- running --------------------------------------------------------------------------------------------

    async def whole(self, *, restart: bool, from_: str | None) -> int:
        """Run the workflow, or resume an unfinished run of it."""
        from detent.cli.record import exit_code

        chosen, runs, prepared = self._chosen()
        with self._taped(chosen.spec.name):
            code = await self._whole(chosen, runs, prepared, restart=restart, from_=from_)
        return exit_code(self.tape, code)

    async def _whole(
        self, chosen: Chosen, runs: WorkflowRuns, prepared: Prepared, *, restart: bool, from_: str | None
    ) -> int:
        from detent.cli.output import say
        from detent.kernel.errors import DefinitionChanged, RunBusy

        async with _opened(self, chosen) as engine:
            try:
                while (taken := await self._taken(engine, runs, prepared, restart, from_)) is None:
                    restart = False  # another process has started one meanwhile
                run_id, how = taken
                if how == UNSEEN:
                    return await self._show_unseen(engine, chosen.spec.name, run_id)
                if self.options.detach:
                    say(run_id)
                    await self._set_shown(engine, run_id)
                    return 0
                self._head(chosen.spec.name, run_id, how)
                return await self._see_through(engine, run_id)
            except DefinitionChanged as error:
                raise self._changed(error) from None
            except RunBusy as error:
                raise self._busy(error.run_id) from None

    async def _taken(
        self, engine: Engine, runs: WorkflowRuns, prepared: Prepared, restart: bool, from_: str | None
    ) -> tuple[str, str] | None:
        """The run of this command, and how it was chosen; None if the search has to be repeated."""
        standing = await runs.look(engine, prepared, self.asked_at)
        row = None if from_ is not None else standing.row
        going_on = None if restart else row
        unseen = None if restart or from_ is not None else standing.unseen
        if self.options.record is not None and (earlier := unseen or going_on) is not None:
            raise self._not_from_its_beginning(earlier)
        if unseen is not None and self.run_id in (None, unseen.id):
            return unseen.id, UNSEEN
        if going_on is not None:
            if self.run_id not in (None, going_on.id):
                raise self._unfinished(going_on)
            await runs.unchanged(engine, going_on)
        left = None if going_on is None else runs.still_to_run(going_on.now.state)
        await runs.preflight(left, prepared.inputs)
        if from_ is not None:
            return await self._forked(engine, runs, prepared, from_)
        if going_on is not None:
            await _free(engine, going_on.id)
            return going_on.id, f"continuing in '{going_on.now.state}'"
        if row is not None:
            await self._cancelled(engine, row.id)
        begun = await self._begun(engine, runs, prepared, standing)
        return None if begun is None else (begun, "")

    async def _begun(
        self, engine: Engine, runs: WorkflowRuns, prepared: Prepared, standing: Standing
    ) -> str | None:
        """A new run; None if another process has started one of the same inputs meanwhile."""
        from detent.kernel.errors import RunBusy, RunExists

        run_id = standing.announced or self.run_id
        try:
            return await runs.start(
                engine, prepared, run_id=run_id, tags=self.tags, budget=self.budget,
                deterministic=self.deterministic, drive=False, version=standing.version,
                config=runs.shadowing(self.shadow) if self.shadow else None,
            )  # fmt: skip
        except RunBusy:
            return None
        except RunExists as error:
            row = (await runs.look(engine, prepared)).row
            if row is None or row.id != error.run_id:
                raise  # the id belongs to another run
            return None

    async def _show_unseen(self, engine: Engine, name: str, run_id: str) -> int:
        """Print the result of a run whose command was killed before printing it."""
        from detent.cli.drive import tell
        from detent.cli.output import say, say_json, warn
        from detent.cli.run_status import exit_code

        warn(
            f"Run {run_id} of the same workflow and inputs has ended, and how was not shown yet: nothing is "
            f"done again. The same command once more begins a new run."
        )
        self._head(name, run_id, UNSEEN)
        run = await engine.get(run_id)
        if self.options.json:
            say_json(await _result(engine, run))
        elif self.silent:
            say(run_id)
        else:
            await tell(self.workspace, engine, run, KIND)
        await self._set_shown(engine, run_id)
        return exit_code(run.status)

    async def _set_shown(self, engine: Engine, run_id: str, shown: bool = True) -> None:
        from detent.flows.workflow.runs import set_shown

        await set_shown(engine, await engine.get(run_id), shown)

    async def _forked(
        self, engine: Engine, runs: WorkflowRuns, prepared: Prepared, checkpoint_id: str
    ) -> tuple[str, str]:
        """A new run from a checkpoint, and a remark about its origin."""
        from detent.cli.run_status import warn_of_undone

        forked = await runs.fork_from(engine, checkpoint_id, prepared, new_id=self.run_id)
        warn_of_undone(forked.of, forked.undone, forked.partly_undone)
        return forked.id, f"from checkpoint '{checkpoint_id}' of {forked.of}"

    async def _cancelled(self, engine: Engine, run_id: str) -> None:
        """Cancel the unfinished run, without rollback, before another is started."""
        from detent.cli.output import say

        lines, self._lines = self._lines, None
        await engine.cancel(run_id, reason="restarted")
        self._lines = lines
        if not self.silent:
            say(f"Cancelled the unfinished run {run_id}.")

    def _head(self, name: str, run_id: str, how: str) -> None:
        from detent.cli.output import clean, paint, say

        if not self.silent:
            say(f"{paint(name, bold=True)} {run_id}{f'  ({clean(how)})' if how else ''}")

    def _changed(self, error: DefinitionChanged) -> ConfigurationError:
        """The error for a run that was started before its file was changed, with the commands that help."""
        from detent.kernel.errors import ConfigurationError

        lines = "\n".join(f"  {line}" for line in error.difference)
        again = self.workspace.command("workflow", "run", self.name, *self.words, "--restart")
        return ConfigurationError(
            f"Run {error.run_id} of '{error.flow}' was begun before its file was changed:\n{lines}\n"
            f"To go on with it, put the file back as it was, or register a migration from "
            f"'{error.fingerprint}'.\nTo start over: {again}"
        )

    def _unfinished(self, row: RunRow) -> ConfigurationError:
        """The error for `--id` while another run of the same inputs has not ended."""
        from detent.kernel.errors import ConfigurationError

        same = ("workflow", "run", self.name, *self.words)
        return ConfigurationError(
            f"Run {row.id} of the same workflow and inputs has not ended (it is {row.now.status.value} in "
            f"'{row.now.state}'), so '{self.run_id}' was not begun.\n"
            f"To go on with {row.id}: {self.workspace.command(*same)}\n"
            f"To cancel it and begin another: "
            f"{self.workspace.command(*same, '--restart', '--id', str(self.run_id))}\n"
            f"A concurrent run needs other inputs."
        )

    def _not_from_its_beginning(self, row: RunRow) -> ConfigurationError:
        """The error for `--record` while this command would go on with an earlier run, or show its result."""
        from detent.kernel.errors import ConfigurationError

        same = ("workflow", "run", self.name, *self.words)
        status = row.now.status
        state = "has ended, and how was not shown yet" if status.is_end else f"has not ended ({status.value})"
        return ConfigurationError(
            f"Run {row.id} of the same workflow and inputs {state}; a recording begins with a new run.\n"
            f"To go on with {row.id}: {self.workspace.command(*same)}\n"
            f"To begin another: {self.workspace.command(*same, '--restart', '--record')} "
            f"{self.options.record}"
        )

    @contextmanager
    def _taped(self, flow: str) -> Iterator[None]:
        """A context in which `tape` is the tape that the command line requests."""
        from detent.cli.record import tape

        with tape(self.options, self.workspace.settings, [flow], json=self.options.json) as self.tape:
            yield

    def _busy(self, run_id: str) -> DetentError:
        """The error for a run that another process drives."""
        from detent.kernel.errors import DetentError

        watch = self.workspace.command("show", run_id, "--follow")
        return DetentError(
            f"Run {run_id} of the same workflow and inputs is under way in another process; it was left "
            f"alone.\nTo watch it: {watch}\nA concurrent run needs other inputs."
        )

    async def alone(self, step: str, from_run: str | None) -> int:
        """Run one step."""
        from detent.cli.record import exit_code

        chosen, runs, prepared = self._chosen()
        spec = runs.alone(step)
        with self._taped(spec.name):
            code = await self._alone(chosen, runs, prepared, spec, from_run)
        return exit_code(self.tape, code)

    async def _alone(
        self,
        chosen: Chosen,
        runs: WorkflowRuns,
        prepared: Prepared,
        spec: WorkflowSpec,
        from_run: str | None,
    ) -> int:
        async with _opened(self, chosen._replace(spec=spec)) as engine:
            await runs.preflight([spec.steps[0].name])
            other = await self.workspace.run_id(engine.store, from_run) if from_run is not None else None
            data = await runs.data_for(engine, prepared, other)
            run_id = await engine.start(
                spec.name, data, run_id=self.run_id, tags=self.tags, budget=self.budget,
                force_deterministic=self.deterministic, drive=False,
            )  # fmt: skip
            self._head(chosen.spec.name, run_id, f"step '{spec.steps[0].name}' alone")
            return await self._see_through(engine, run_id)

    async def _see_through(self, engine: Engine, run_id: str) -> int:
        """Drive a run until it ends or waits and print its status; `RunBusy` if another process has it."""
        from contextlib import nullcontext

        from detent.cli.drive import drive
        from detent.kernel.errors import RunStateError
        from detent.kernel.status import Status

        async def begin() -> str:
            row = await engine.store.row(run_id)
            if row.now.status is Status.RUNNING:
                try:
                    await engine.resume(run_id)
                except RunStateError:  # another process has driven it to its end meanwhile
                    return run_id
            await self._set_shown(engine, run_id, False)
            return run_id

        code = await drive(
            self.workspace, engine, begin, replace(self.options, detach=False),
            flow=(await engine.store.row(run_id)).flow, run_id=run_id, kind=KIND,
            lines=self._lines or nullcontext(),
            plain=_result,
        )  # fmt: skip
        await self._set_shown(engine, run_id)
        return code


async def _result(engine: Engine, run: Run) -> Any:
    from detent.flows.workflow.results import workflow_result

    return (await workflow_result(engine, run.id)).to_plain()


async def _free(engine: Engine, run_id: str) -> None:
    """Wait for another process to release a run; `RunBusy` if it does not."""
    import asyncio
    import time

    from detent.kernel.errors import RunBusy

    deadline = time.monotonic() + LETTING_GO
    while (owner := (await engine.store.row(run_id)).owner) is not None:
        if any(worker.id == owner for worker in await engine.active.leases.dead()):
            return
        if time.monotonic() > deadline:
            raise RunBusy(run_id, owner)
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _opened(job: _Job, chosen: Chosen) -> AsyncIterator[Engine]:
    """The engine with the flows of one workflow, and a listener on them."""
    from detent.cli import unused_agents
    from detent.flows.workflow.events import EventObserver
    from detent.runtime.wiring import engine_for

    workspace, catalog = job.workspace, job.workspace.catalog
    flows = workflows_of(catalog).flows_of(chosen.spec)
    known = {flow.name: flow for flow in flows}
    engine = engine_for(
        workspace.settings, flows, observers=[EventObserver(job._listen, known)], create=True,
        deterministic=job.deterministic, tape=job.tape, agents=catalog.agents(),
    )  # fmt: skip
    catalog.store = engine.store
    with unused_agents.telling(workspace.command, engine):
        async with engine:
            await unused_agents.check(workspace.settings, engine, flows, forced=job.deterministic)
            place = job._place(chosen)
            if place is not None:
                workspace.trust.name(chosen.file)
                await workspace.remember_place(engine.store, chosen.spec.name.partition(".")[0], place)
            yield engine
