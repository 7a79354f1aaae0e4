"""The command `workflow run`: checks a file, then runs it, or goes on with an unfinished run of it."""

from __future__ import annotations

from pathlib import Path
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
    from detent.kernel.budget import Budget
    from detent.kernel.errors import ConfigurationError, DefinitionChanged, DetentError
    from detent.kernel.run import Run

UNSEEN = "has ended"
LETTING_GO = 2.0
"""Seconds that another process has to let go of a run, should it just be stopping."""


@takes(
    "detach",
    "deterministic",
    "record",
    "replay",
    "budget",
    "json",
    "quiet",
    "plugin",
    "store",
    "config",
    "log",
)
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
        bool, typer.Option("--restart", help="Cancel an unfinished run of the same inputs and begin anew.")
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
    from detent.cli.record import tape
    from detent.cli.values import read_budget
    from detent.cli.workspace import run_async
    from detent.kernel.errors import ConfigurationError

    ways = (("--restart", restart), ("--from", from_), ("--step", step))
    exclusive = [said for said, given in ways if given]
    if len(exclusive) > 1:
        raise ConfigurationError(f"{' and '.join(exclusive)} cannot be said together.")
    if from_run is not None and step is None:
        raise ConfigurationError("--from-run says where the step of --step gets other steps' outputs from.")
    workspace = options.workspace()
    budget = read_budget(options, workspace.settings)
    job = _Job(
        workspace,
        name,
        deterministic=options.deterministic,
        json=options.json,
        quiet=options.quiet,
        budget=budget,
    )
    job.given = _inputs(input_, input_file)
    job.said = [*(["--input-file", input_file] if input_file else []), *_repeated("-i", input_)]
    job.tags, job.run_id, job.detach, job.shadow = list(tag or ()), id_, options.detach, shadow
    job.asked_at = asked_at()
    if dry_run:
        return run_async(job.dry())
    with tape(options.record, options.replay, json=options.json) as job.tape:
        if step is not None:
            code = run_async(job.alone(step, from_run))
        else:
            code = run_async(job.whole(restart=restart, from_=from_))
        return max(code, 1) if getattr(job.tape, "mismatches", ()) else code


def _repeated(option: str, values: list[str] | None) -> list[str]:
    """An option as it was said, for a command to show."""
    return [word for value in values or () for word in (option, value)]


def _inputs(said: list[str] | None, file: str | None) -> dict[str, Any]:
    """What `--input-file` and `-i` give; the latter is stronger."""
    from detent.cli.values import read_object
    from detent.kernel.errors import ConfigurationError

    given: dict[str, Any] = {}
    if file is not None:
        found = read_object(file, "--input-file")
        if found is not None and not isinstance(found, dict):
            raise ConfigurationError(f"{file} holds no inputs: it must give names to values.")
        given = dict(found or {})
    for one in said or ():
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"-i takes NAME=VALUE, not '{one}'.")
        given[key.strip()] = value
    return given


def hiding(workflows: Workflows, chosen: Chosen) -> list[str]:
    """Which shipped workflows are replaced by other files in this run."""
    used = {getattr(step, "workflow", None) for step in chosen.spec.every_step()}
    folder = workflows.settings.folder

    def shown(file: Path) -> str:
        return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else str(file)

    return [
        f"Note: the workflow '{one.name}' is {shown(one.hidden_by)}, in place of the one that ships."
        for one in workflows.shelf.all()
        if one.source == "builtin" and one.hidden_by is not None
        if one.hidden_by == chosen.file or one.name in used
    ]


class _Job:
    """One call of the command."""

    def __init__(
        self,
        workspace: Workspace,
        name: str,
        *,
        deterministic: bool,
        json: bool,
        quiet: bool,
        budget: Budget | None,
    ) -> None:
        self.workspace = workspace
        self.name = name
        self.deterministic = deterministic
        self.json = json
        self.silent = json or quiet
        self.budget = budget
        self.given: dict[str, Any] = {}
        self.said: list[str] = []
        """How the inputs were said, for commands that are shown."""
        self.tags: list[str] = []
        self.run_id: str | None = None
        self.shadow: str | None = None
        self.detach = False
        self.asked_at = 0.0
        """When the command was given."""
        self.tape: Tape | None = None
        self._lines: Any = None

    # -- before ---------------------------------------------------------------------------------------------

    def _listen(self, event: events.Event) -> None:
        if self._lines is not None:
            self._lines(event)

    def _chosen(self) -> tuple[Chosen, WorkflowRuns, Prepared]:
        """The workflow, checked, and its inputs."""
        from detent.authoring.problem import DocumentError
        from detent.cli.output import clean, warn
        from detent.flows.workflow.project_registry import settings_problems
        from detent.flows.workflow.run_lines import WorkflowLines
        from detent.flows.workflow.runs import WorkflowRuns

        workflows = workflows_of(self.workspace.catalog)
        chosen = workflows.choose(self.name, forced=self.deterministic)
        beside = settings_problems(self.workspace.settings, workflows.project, workflows.shelf, [chosen.spec])
        if beside:
            raise DocumentError("What the settings say about steps", beside)
        for problem in chosen.warnings:
            if not self.silent:
                warn(str(problem))
        for note in [*hiding(workflows, chosen), *workflows.stand_ins([chosen.spec])]:
            warn(clean(note))  # also where little is printed: what runs is not what its name says
        if not self.silent:
            self._lines = WorkflowLines(chosen.spec)
        runs = WorkflowRuns(workflows, chosen.spec, self._listen)
        prepared = runs.prepare(self.given, from_text=True)
        if prepared.forced and not self.deterministic:
            self.deterministic = True
            workflows.choose(self.name, forced=True)  # what cannot run without agents is told now
        return chosen, runs, prepared

    def _place(self, chosen: Chosen) -> str | None:
        """The path of a file that was named by its path, from the project's folder."""
        from detent.flows.workflow.shelf import is_path

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
        workflows.flows_of(chosen.spec)  # what cannot be made of it is told now
        plan = planned(
            chosen.spec, self.workspace.settings, workflows.registry,
            workflows.shelf.finder(workflows.base(chosen.spec)), forced=self.deterministic,
        )  # fmt: skip
        inputs = {
            key: "***" if isinstance(value, dict) and "$secret" in value else value
            for key, value in prepared.inputs.items()
        }
        if self.json:
            say_json(
                {
                    "workflow": chosen.spec.name, "inputs": inputs, "inputs_hash": prepared.hash,
                    "prerequisites": [one._asdict() for one in checked], "plan": plan,
                }
            )  # fmt: skip
            return 0
        needs = count(len(checked), "prerequisite")
        say(f"{chosen.spec.name}: the file, {count(len(inputs), 'input')} and {needs} are in order.")
        for key, value in inputs.items():
            say(f"  {key} = {cut(clean(encode(value)), 100)}")
        rows = [
            ["  " * one["depth"] + one["name"], one["type"], one["mode"] or "", one["autonomy"] or "",
             one["layer"] or "", ", ".join(one["effects"]), one["rollback"] or ""]
            for one in plan
        ]  # fmt: skip
        table(["step", "type", "mode", "autonomy", "layer", "effects", "rollback"], rows)
        say("Nothing was run.")
        return 0

    # -- running --------------------------------------------------------------------------------------------

    async def whole(self, *, restart: bool, from_: str | None) -> int:
        """Run the workflow, or go on with it."""
        from detent.cli.output import say
        from detent.kernel.errors import DefinitionChanged, RunBusy

        chosen, runs, prepared = self._chosen()
        async with self._engine(chosen) as engine:
            try:
                while (taken := await self._taken(engine, runs, prepared, restart, from_)) is None:
                    restart = False  # another process has begun one this very moment
                run_id, how = taken
                if how == UNSEEN:
                    return await self._show_unseen(engine, chosen.spec.name, run_id)
                if self.detach:
                    say(run_id)
                    await self._shown(engine, run_id)
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
        """The run that this command is about, and how it came to it; None when it has to look again."""
        there = await runs.look(engine, prepared, self.asked_at)
        row = None if from_ is not None else there.row
        going_on = None if restart else row
        unseen = None if restart or from_ is not None else there.unseen
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
            return going_on.id, f"goes on in '{going_on.now.state}'"
        if row is not None:
            await self._cancelled(engine, row.id)
        begun = await self._begun(engine, runs, prepared, there)
        return None if begun is None else (begun, "")

    async def _begun(
        self, engine: Engine, runs: WorkflowRuns, prepared: Prepared, there: Standing
    ) -> str | None:
        """A new run; None when another process has begun one of the same inputs meanwhile."""
        from detent.kernel.errors import RunBusy, RunExists

        run_id = there.announced or self.run_id
        try:
            return await runs.start(
                engine, prepared, run_id=run_id, tags=self.tags, budget=self.budget,
                deterministic=self.deterministic, drive=False, version=there.version,
                config=runs.shadowing(self.shadow) if self.shadow else None,
            )  # fmt: skip
        except RunBusy:
            return None
        except RunExists as error:
            row = (await runs.look(engine, prepared)).row
            if row is None or row.id != error.run_id:
                raise  # an id that another run has had before
            return None

    async def _show_unseen(self, engine: Engine, name: str, run_id: str) -> int:
        """Tell how a run ended whose command was killed before it could."""
        from detent.cli.drive import tell
        from detent.cli.output import say, say_json, warn
        from detent.cli.run_status import exit_code

        warn(
            f"Run {run_id} of the same workflow and inputs has ended, and how was not shown yet: nothing is "
            f"done again. The same command once more begins a new run."
        )
        self._head(name, run_id, UNSEEN)
        found = await engine.get(run_id)
        if self.json:
            say_json(await _result(engine, found))
        elif self.silent:
            say(run_id)
        else:
            await tell(self.workspace, engine, found, KIND)
        await self._shown(engine, run_id)
        return exit_code(found.status)

    async def _shown(self, engine: Engine, run_id: str, shown: bool = True) -> None:
        from detent.flows.workflow.runs import set_shown

        await set_shown(engine, await engine.get(run_id), shown)

    async def _forked(
        self, engine: Engine, runs: WorkflowRuns, prepared: Prepared, checkpoint_id: str
    ) -> tuple[str, str]:
        """A new run from a checkpoint, and what to say of it."""
        from detent.cli.run_status import warn_of_undone

        forked = await runs.fork_from(engine, checkpoint_id, prepared, new_id=self.run_id)
        warn_of_undone(forked.of, forked.undone)
        return forked.id, f"from checkpoint '{checkpoint_id}' of {forked.of}"

    async def _cancelled(self, engine: Engine, run_id: str) -> None:
        """End the unfinished run before another is begun; nothing it did is undone."""
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
        """What to do about a run that was begun before its file was changed."""
        from detent.kernel.errors import ConfigurationError

        lines = "\n".join(f"  {line}" for line in error.difference)
        again = self.workspace.command("workflow", "run", self.name, *self.said, "--restart")
        return ConfigurationError(
            f"Run {error.run_id} of '{error.flow}' was begun before its file was changed:\n{lines}\n"
            f"To go on with it, put the file back as it was, or register a migration from "
            f"'{error.fingerprint}'.\nTo begin anew: {again}"
        )

    def _unfinished(self, row: RunRow) -> ConfigurationError:
        """What to do where `--id` asks for another run while one of the same inputs has not ended."""
        from detent.kernel.errors import ConfigurationError

        same = ("workflow", "run", self.name, *self.said)
        return ConfigurationError(
            f"Run {row.id} of the same workflow and inputs has not ended (it is {row.now.status.value} in "
            f"'{row.now.state}'), so '{self.run_id}' was not begun.\n"
            f"To go on with {row.id}: {self.workspace.command(*same)}\n"
            f"To cancel it and begin another: "
            f"{self.workspace.command(*same, '--restart', '--id', str(self.run_id))}\n"
            f"A run beside it needs other inputs."
        )

    def _busy(self, run_id: str) -> DetentError:
        """What to do about a run that somebody else is at."""
        from detent.kernel.errors import DetentError

        watch = self.workspace.command("show", run_id, "--follow")
        return DetentError(
            f"Run {run_id} of the same workflow and inputs is under way in another process; it was left "
            f"alone.\nTo watch it: {watch}\nA run beside it needs other inputs."
        )

    async def alone(self, said: str, from_run: str | None) -> int:
        """Run one step."""
        chosen, runs, prepared = self._chosen()
        spec = runs.alone(said)
        async with self._engine(chosen._replace(spec=spec)) as engine:
            await runs.preflight([spec.steps[0].name])
            other = await self.workspace.run_id(engine.store, from_run) if from_run is not None else None
            data = await runs.data_for(engine, prepared, other)
            run_id = await engine.start(
                spec.name, data, run_id=self.run_id, tags=self.tags, budget=self.budget,
                force_deterministic=self.deterministic, drive=False,
            )  # fmt: skip
            self._head(chosen.spec.name, run_id, f"step '{spec.steps[0].name}' alone")
            return await self._see_through(engine, run_id)

    def _engine(self, chosen: Chosen) -> Any:
        return _opened(self, chosen)

    async def _see_through(self, engine: Engine, run_id: str) -> int:
        """Drive a run until it ends or waits, and tell how it stands; `RunBusy` when somebody else has it."""
        from contextlib import nullcontext

        from detent.cli.drive import drive
        from detent.kernel.errors import RunStateError
        from detent.kernel.status import Status

        async def begin() -> str:
            row = await engine.store.row(run_id)
            if row.now.status is Status.RUNNING:
                try:
                    await engine.resume(run_id)
                except RunStateError:  # it has ended meanwhile, driven by another process
                    return run_id
            await self._shown(engine, run_id, False)
            return run_id

        code = await drive(
            self.workspace, engine, begin, flow=(await engine.store.row(run_id)).flow, run_id=run_id,
            json=self.json, quiet=self.silent, kind=KIND, lines=nullcontext(), plain=_result,
        )  # fmt: skip
        await self._shown(engine, run_id)
        return code


async def _result(engine: Engine, run: Run) -> Any:
    from detent.flows.workflow.results import workflow_result

    return (await workflow_result(engine, run.id)).to_plain()


async def _free(engine: Engine, run_id: str) -> None:
    """Wait for whoever is just letting go of a run; `RunBusy` when they do not."""
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


class _opened:
    """The engine with the flows of one workflow, and a listener on them."""

    def __init__(self, job: _Job, chosen: Chosen) -> None:
        self.job = job
        self.chosen = chosen

    async def __aenter__(self) -> Engine:
        from contextlib import AsyncExitStack

        from detent.flows.workflow.events import EventObserver
        from detent.runtime.wiring import engine_for

        job = self.job
        catalog = job.workspace.catalog
        flows = workflows_of(catalog).flows_of(self.chosen.spec)
        known = {flow.name: flow for flow in flows}
        engine = engine_for(
            job.workspace.settings, flows, observers=[EventObserver(job._listen, known)], create=True,
            deterministic=job.deterministic, tape=job.tape, agents=catalog.agents(),
        )  # fmt: skip
        catalog.store = engine.store
        self._stack = AsyncExitStack()
        opened = await self._stack.enter_async_context(engine)
        place = job._place(self.chosen)
        if place is not None:
            job.workspace.trust.name(self.chosen.file)
            await job.workspace.remember_place(opened.store, self.chosen.spec.name.partition(".")[0], place)
        return opened

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()
