"""The command `run`: start one run or many, and drive them."""

from __future__ import annotations

import json as json_text
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from detent.cli.options import NewId, Options, Set, Tags, takes
from detent.runtime.plugs import kinds, plug_named

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import Tape
    from detent.kernel.budget import Budget
    from detent.kernel.run import Run
    from detent.runtime.catalog import Found
    from detent.runtime.plugs import RunStart


class FlowOrPlug(TyperCommand):
    """The command `run`; hands over to a kind's or an application's own `run` if the first word names it."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the command line."""
        named = next((word for word in args if not word.startswith("-")), None)
        plug = None if named is None else plug_named(named)
        if named is None or plug is None or plug.run is None:
            return super().make_context(info_name, args, parent, **extra)
        from typer.main import get_command

        own = typer.Typer(add_completion=False, rich_markup_mode=None)
        own.command(context_settings={"help_option_names": ["-h", "--help"]})(plug.load(plug.run))
        rest = [*args]
        rest.remove(named)
        return get_command(own).make_context(f"{info_name} {named}", rest, parent, **extra)


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command(cls=FlowOrPlug, rich_help_panel="Start work")(run)


@takes("run")
def run(
    options: Options,
    flow: Annotated[
        str,
        typer.Argument(metavar="FLOW", help="A flow's name, file.py, file.py:name, or a kind of flow."),
    ],
    target: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="After a kind: which of its definitions to run.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="JSON", help="What to start from: JSON, @file, or - for stdin."),
    ] = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="FILE", help="What to start from: a JSON or YAML file.")
    ] = None,
    set_: Set = None,
    tag: Tags = None,
    id_: NewId = None,
    many: Annotated[
        int | None, typer.Option("--many", metavar="N", min=1, help="Start N identical runs.")
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="FILE", help="One run per item of a JSON list, or per line of JSON."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", min=1, help="Runs driven at the same time.")
    ] = None,
) -> int:
    """Start a run, or many, and wait for them.

    A run that waits for a person is left waiting, with the command that releases it. Ctrl-C finishes the step
    under way; the run can be resumed.
    """
    from detent.cli.record import check_options, exit_code, tape
    from detent.cli.values import read_batch, read_budget, read_data, read_object, read_sets
    from detent.cli.workspace import run_async
    from detent.kernel.errors import ConfigurationError, nearest
    from detent.runtime.plugs import plugs

    check_options(options)
    plug = plug_named(flow)
    if plug is not None and plug.run is not None:
        raise ConfigurationError(f"Name the application first, its options after it: detent run {flow} …")
    kind = next((plugged for plugged in kinds() if plugged is plug), None)
    if kind is not None and target is None:
        raise ConfigurationError(f"Say which {flow} to run: detent run {flow} PATH --input FILE")
    if kind is None and target is not None:
        named = ", ".join(plugged.name for plugged in kinds())
        meant = nearest(flow, [plugged.name for plugged in plugs()])
        raise ConfigurationError(
            f"Only a kind of flow takes a path after it ({named}): detent run KIND PATH.{meant}"
        )
    if input_ is not None:
        if data is not None:
            raise ConfigurationError("--input and --data both give the data to start from; use one of them.")
        data = json_text.dumps(read_object(input_, "--input"))
    if batch is not None and (many is not None or data is not None):
        raise ConfigurationError("--batch says what each run starts from; leave out --data and --many.")
    start = read_data(data) if batch is None else read_batch(batch)
    changes = read_sets(set_)
    items = start if isinstance(start, list) else [start] * (many or 1)
    several = isinstance(start, list) or many is not None
    if isinstance(start, list) and many is not None:
        raise ConfigurationError("--data with a list starts one run per item; leave out --many.")
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            which = f"Item {number}" if several else "--data"
            raise ConfigurationError(f"{which} is {_kind(item)}; a run starts from a JSON object.")
    items = [{**item, **changes} for item in items]
    workspace = options.workspace()
    budget = read_budget(options, workspace.settings)
    word = flow if kind is None else str(target)
    source = workspace.pick(word, workspace.definition(word, kind))
    source.flow.check()
    job = _Job(options, workspace, source, items, list(tag or ()), id_, budget, concurrency)
    with tape(options, workspace.settings, [source.flow.name], json=options.json) as job.tape:
        return exit_code(job.tape, run_async(job.many() if several else job.one()))


def _kind(value: Any) -> str:
    names = {"list": "a list", "str": "text", "int": "a number", "float": "a number", "bool": "true or false"}
    return "null" if value is None else names.get(type(value).__name__, "no object")


@dataclass
class _Job:
    """One invocation of `run`."""

    options: Options
    workspace: Workspace
    source: Found
    items: list[dict[str, Any]]
    tags: list[str]
    run_id: str | None
    budget: Budget | None
    concurrency: int | None
    tape: Tape | None = None
    started: list[str] = field(default_factory=list)

    @property
    def silent(self) -> bool:
        return self.options.json or self.options.quiet

    async def _starts(self) -> list[RunStart]:
        """What each run starts with; raises before anything is begun where the data do not fit."""
        return [await self.workspace.run_start(self.source.flow, item) for item in self.items]

    async def _start(self, engine: Engine, begin: RunStart, run_id: str | None) -> str:
        started_id = await engine.start(
            self.source.flow,
            begin.data,
            run_id=run_id,
            tags=[*self.tags, *begin.tags],
            budget=self.budget,
            force_deterministic=self.options.deterministic or begin.deterministic,
            drive=not self.options.detach,
        )
        self.started.append(started_id)
        return started_id

    def _engine(self, observers: list[Any]) -> Any:
        return self.workspace.engine(
            observers=observers, concurrency=self.concurrency, create=True, complete=True, tape=self.tape
        )

    async def _check_models(self, engine: Engine) -> None:
        from detent.cli import unused_agents

        forced = self.options.deterministic
        await unused_agents.check(self.workspace.settings, engine, [self.source.flow], forced=forced)

    async def one(self) -> int:
        """Start one run and drive it."""
        from detent.cli.drive import drive
        from detent.cli.output import paint, say

        flow = self.source.flow
        (start,) = await self._starts()
        async with self._engine([]) as engine:
            await self._check_models(engine)
            await self.workspace.remember(engine.store, self.source)

            async def begin() -> str:
                run_id = await self._start(engine, start, self.run_id)
                if not (self.silent or self.options.detach):
                    say(f"{paint(flow.name, bold=True)} {run_id}")
                return run_id

            return await drive(self.workspace, engine, begin, self.options, flow=flow.name)

    async def many(self) -> int:
        """Start many runs and drive them all."""
        from detent.cli import run_status
        from detent.cli.drive import drive_many
        from detent.cli.output import say, say_json
        from detent.cli.progress import BatchProgress
        from detent.cli.signals import INTERRUPTED

        progress = None if self.silent or self.options.detach else BatchProgress(len(self.items))
        again = self.workspace.command("resume", "--all")
        starts = await self._starts()
        async with self._engine([progress] if progress else []) as engine:
            await self._check_models(engine)
            await self.workspace.remember(engine.store, self.source)
            results, stopped = await drive_many(
                engine, self._begun(engine, starts), [], again=again, progress=progress
            )
            rows = [await engine.store.row(run_id) for run_id in self.started] if stopped else []
        unfinished = [row for row in rows if not row.now.status.is_end]
        if self.options.json:
            say_json([run_status.run_plain(result) for result in results])
        elif progress is None:
            for run_id in self.started:
                say(run_id)
        else:
            say(progress.line())
            self._attention(results)
        if stopped and (unfinished or len(self.started) < len(self.items)):
            self._stopped(len(unfinished), again)
            return INTERRUPTED
        return max((run_status.exit_code(result.status) for result in results), default=0)

    async def _begun(self, engine: Engine, starts: list[RunStart]) -> AsyncIterator[str]:
        """Start every run durably and return those this process drives."""
        digits = len(str(len(starts)))
        for number, start in enumerate(starts, 1):
            if engine.active.stopping:
                return
            run_id = await self._start(
                engine, start, f"{self.run_id}-{number:0{digits}d}" if self.run_id else None
            )
            if not self.options.detach:
                yield run_id

    def _attention(self, results: list[Run]) -> None:
        """List the runs that did not succeed."""
        from detent.cli.output import clean, say, status
        from detent.kernel.status import Status

        odd = [result for result in results if result.status is not Status.SUCCEEDED]
        for result in odd[:5]:
            why = result.error or result.reason or next((h.question for h in result.holds.values()), "")
            say(f"  {result.id}  {status(result.status.value)}  {clean(why)}".rstrip())
        if len(odd) > 5:
            listing = self.workspace.command("runs", "--flow", self.source.flow.name)
            say(f"  … {len(odd) - 5:,} more: {listing}")

    def _stopped(self, unfinished: int, again: str) -> None:
        from detent.cli.output import warn
        from detent.insight.formatting import count

        left = len(self.items) - len(self.started)
        never = f" {count(left, 'run')} {'was' if left == 1 else 'were'} not started." if left else ""
        kept = f" {count(unfinished, 'run')} can go on: {again}"
        warn(f"Stopped.{'' if self.workspace.forgets else kept}{never}")
