"""The command `workflow run`: checks a file, then runs it, or goes on with an unfinished run of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli import options
from detent.cli.starting import PATIENCE

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import Tape
    from detent.flows.workflow import events
    from detent.kernel.budget import Budget
    from detent.kernel.run import Run
    from detent.runtime.workflow_runs import Prepared, WorkflowRuns
    from detent.runtime.workflows import Chosen


def run(
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
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Tag the run. May be repeated.")] = None,
    id_: Annotated[str | None, typer.Option("--id", metavar="ID", help="Id of a new run.")] = None,
    detach: options.Detach = False,
    deterministic: options.Deterministic = False,
    record: options.Record = None,
    replay: options.Replay = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_steps: options.BudgetSteps = None,
    budget_seconds: options.BudgetSeconds = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    plugin: options.Plugins = None,
    store: options.Store = None,
    config: options.Config = None,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> int:
    """Run a workflow, or go on with an unfinished run of the same inputs.

    Everything is checked before the first step: the file, the inputs, what the steps need. A run that was
    stopped or killed goes on after its last finished step; none is done twice.
    """
    from detent.cli.taping import tape
    from detent.cli.values import read_budget
    from detent.cli.workspace import Workspace, run_async
    from detent.kernel.errors import ConfigurationError

    ways = (("--restart", restart), ("--from", from_), ("--step", step))
    exclusive = [said for said, given in ways if given]
    if len(exclusive) > 1:
        raise ConfigurationError(f"{' and '.join(exclusive)} cannot be said together.")
    if from_run is not None and step is None:
        raise ConfigurationError("--from-run says where the step of --step gets other steps' outputs from.")
    workspace = Workspace(store, config, plugin)
    workspace.log(verbose, log_level)
    budget = read_budget(budget_tokens, budget_usd, budget_steps, budget_seconds, workspace.settings)
    job = _Job(workspace, name, deterministic=deterministic, json=json, quiet=quiet, budget=budget)
    job.given = _inputs(input_, input_file)
    job.tags, job.run_id, job.detach, job.shadow = list(tag or ()), id_, detach, shadow
    if dry_run:
        return run_async(job.dry())
    with tape(record, replay, json=json) as job.tape:
        if step is not None:
            code = run_async(job.alone(step, from_run))
        else:
            code = run_async(job.whole(restart=restart, from_=from_))
        return max(code, 1) if getattr(job.tape, "mismatches", ()) else code


def _inputs(said: list[str] | None, file: str | None) -> dict[str, Any]:
    """What `--input-file` and `-i` give; the latter is stronger."""
    from detent.cli.playbook import read_object
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
        self.tags: list[str] = []
        self.run_id: str | None = None
        self.shadow: str | None = None
        self.detach = False
        self.tape: Tape | None = None
        self._lines: Any = None
        self.under_way: list[str] = []

    # -- before ---------------------------------------------------------------------------------------------

    def _listen(self, event: events.Event) -> None:
        if self._lines is not None:
            self._lines(event)

    def _chosen(self) -> tuple[Chosen, WorkflowRuns, Prepared]:
        """The workflow, checked, and its inputs."""
        from detent.cli.output import warn
        from detent.cli.workflow_lines import WorkflowLines
        from detent.runtime.workflow_runs import WorkflowRuns

        workflows = self.workspace.catalog.workflows
        chosen = workflows.choose(self.name, forced=self.deterministic)
        for problem in chosen.warnings:
            if not self.silent:
                warn(str(problem))
        if not self.silent:
            self._lines = WorkflowLines(chosen.spec)
        runs = WorkflowRuns(workflows, chosen.spec, self._listen)
        return chosen, runs, runs.prepare(self.given, from_text=True)

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
        from detent.cli.workflow_show import described
        from detent.insight.words import count
        from detent.kernel.plain import encode

        chosen, runs, prepared = self._chosen()
        checked = await runs.preflight()
        workflows = self.workspace.catalog.workflows
        workflows.flows(chosen.spec)  # what cannot be made of it is told now
        plan = described(
            chosen.spec, str(chosen.file), self.workspace.settings, workflows.registry,
            forced=self.deterministic,
        )["steps"]  # fmt: skip
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
            [one["path"], one["type"], one["mode"] or "", one["autonomy"] or "", one["layer"] or "",
             ", ".join(one["effects"]), one["rollback"] or ""]
            for one in plan
        ]  # fmt: skip
        table(["step", "type", "mode", "autonomy", "layer", "effects", "rollback"], rows)
        say("Nothing was run.")
        return 0

    # -- running --------------------------------------------------------------------------------------------

    async def whole(self, *, restart: bool, from_: str | None) -> int:
        """Run the workflow, or go on with it."""
        from detent.cli.output import paint, say
        from detent.kernel.errors import ConfigurationError, DefinitionChanged

        chosen, runs, prepared = self._chosen()
        async with self._engine(chosen) as engine:
            row = None if from_ is not None else await runs.unfinished(engine, prepared)
            steps = None if row is None or restart else runs.still_to_run(row.now.state)
            await runs.preflight(steps)
            if from_ is not None:
                run_id, how = await runs.fork_from(engine, from_, prepared), f"from checkpoint '{from_}'"
            elif row is not None and not restart:
                run_id, how = row.id, "goes on"
            else:
                if row is not None:
                    await engine.cancel(row.id, reason="restarted")
                run_id = await runs.start(
                    engine, prepared, run_id=self.run_id, tags=self.tags, budget=self.budget,
                    deterministic=self.deterministic, drive=False,
                    config=runs.shadowing(self.shadow) if self.shadow else None,
                )  # fmt: skip
                how = ""
            if not self.silent and not self.detach:
                say(f"{paint(chosen.spec.name, bold=True)} {run_id}{f'  ({how})' if how else ''}")
            if self.detach:
                say(run_id)
                return 0
            try:
                return await self._see_through(engine, run_id)
            except DefinitionChanged as error:
                command = self.workspace.command("workflow", "run", self.name, "--restart")
                raise ConfigurationError(f"{error}\nOr begin anew: {command}") from None

    async def alone(self, said: str, from_run: str | None) -> int:
        """Run one step."""
        from detent.cli.output import paint, say

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
            if not self.silent:
                name = paint(chosen.spec.name, bold=True)
                say(f"{name} {run_id}  (step '{spec.steps[0].name}' alone)")
            return await self._see_through(engine, run_id)

    def _engine(self, chosen: Chosen) -> Any:
        return _opened(self, chosen)

    async def _see_through(self, engine: Engine, run_id: str) -> int:
        """Drive a run until it ends or waits, and tell how it stands."""
        from detent.cli import standing
        from detent.cli.output import say, say_json
        from detent.cli.signals import INTERRUPTED, graceful, until_stopped
        from detent.cli.workflow_lines import result_lines
        from detent.flows.workflow.results import workflow_result
        from detent.kernel.status import Status

        command = self.workspace.command("resume", run_id)
        with graceful(lambda: f"Go on with: {command}") as stop:
            await until_stopped(engine, stop, _finished(engine, run_id), engine.runs_under_way)
        found: Run = await engine.get(run_id)
        if self.json:
            result = await workflow_result(engine, run_id)
            say_json(result.to_plain())
        elif not self.silent:
            if found.status is Status.WAITING:
                say("waiting")
            standing.tell(self.workspace, found, reopen=False)
            if found.status is Status.SUCCEEDED:
                for line in result_lines(await workflow_result(engine, run_id)):
                    say(line)
        else:
            say(run_id)
        if stop.asked.is_set() and not found.status.is_end:
            from detent.cli.output import warn

            warn(f"Stopped. The run is kept and can go on: {command}")
            return INTERRUPTED
        return standing.exit_code(found.status)


async def _finished(engine: Engine, run_id: str) -> Run:
    from detent.kernel.status import Status

    row = await engine.store.row(run_id)
    if row.now.status is Status.RUNNING:
        await engine.resume(run_id)
    return await engine.finish(run_id, patience=PATIENCE)


class _opened:
    """The engine with the flows of one workflow, and a listener on them."""

    def __init__(self, job: _Job, chosen: Chosen) -> None:
        self.job = job
        self.chosen = chosen

    async def __aenter__(self) -> Engine:
        from contextlib import AsyncExitStack

        from detent.flows.workflow.events import Telling
        from detent.runtime.wiring import engine_for

        job = self.job
        catalog = job.workspace.catalog
        flows = catalog.workflows.flows(self.chosen.spec)
        known = {flow.name: flow for flow in flows}
        engine = engine_for(
            job.workspace.settings, flows, observers=[Telling(job._listen, known)], create=True,
            deterministic=job.deterministic, tape=job.tape, agents=catalog.agents(),
        )  # fmt: skip
        catalog.store = engine.store
        self._stack = AsyncExitStack()
        opened = await self._stack.enter_async_context(engine)
        place = job._place(self.chosen)
        if place is not None:
            await job.workspace.remember_place(opened.store, self.chosen.spec.name.partition(".")[0], place)
        return opened

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()
