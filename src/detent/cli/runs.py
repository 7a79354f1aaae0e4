"""Commands that list and show runs: `runs`, `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import Options, Since, takes

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.ports import RunRow, Store
    from detent.kernel.entries import Entry
    from detent.kernel.run import Run

SECTION = "Look at runs"
WHOLE = 200
"""Longest timeline, in entries, that `show` prints whole."""
TAIL = 40
"""Entries it prints from the end of a longer timeline."""


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (runs, show):
        app.command(rich_help_panel=SECTION)(command)


# -- many ---------------------------------------------------------------------------------------------------


@takes("json", "store", "config")
async def runs(
    options: Options,
    flow: Annotated[
        str | None, typer.Option("--flow", metavar="NAME", help="Only runs of this flow.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only runs in this status. May be repeated."),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Started before.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=10000, help="List at most N runs.")
    ] = 20,
    page: Annotated[
        int | None, typer.Option("--page", metavar="CURSOR", help="Where the last page ended.")
    ] = None,
    roots: Annotated[bool, typer.Option("--roots", help="Leave out runs started by other runs.")] = False,
) -> None:
    """List runs, newest first."""
    from detent.cli import run_status
    from detent.cli.output import brief, clean, say, say_json, table, warn
    from detent.cli.values import read_time
    from detent.engine.ports import Page, RunQuery
    from detent.kernel.errors import StoreMissing

    query = RunQuery(
        flow,
        _statuses(status),
        tag,
        read_time(since, "--since"),
        read_time(until, "--until"),
        None,
        roots,
        page,
        limit,
        tolerant=True,
    )
    words = ["runs"]
    for option, value in (("--flow", flow), ("--tag", tag), ("--since", since), ("--until", until)):
        words += [option, value] if value is not None else []
    for name in status or ():
        words += ["--status", name]
    words += ["--limit", str(limit), *(["--roots"] if roots else [])]
    workspace = options.workspace(looks=True)
    undriven: set[str] = set()
    try:
        async with workspace.store() as store:
            listed = await store.rows(query)
            undriven = await run_status.undriven(store, listed.rows)
    except StoreMissing as error:  # as in a store that has no runs yet
        warn(clean(str(error)))
        listed = Page([], None)
    for damaged in listed.damaged:
        warn(clean(str(damaged)))
    if options.json:
        say_json(
            {
                "runs": [run_status.row_plain(row) for row in listed.rows], "next": listed.next,
                **({"damaged": [error.run_id for error in listed.damaged]} if listed.damaged else {}),
            }
        )  # fmt: skip
        return
    if not listed.rows:
        say("No runs." if query.before is None else "No more runs.")
        return
    table(
        ("RUN", "FLOW", "STATUS", "STATE", "STEPS", "STARTED", "WHY"),
        [
            (
                row.id, row.flow, row.now.status.value, row.now.state, f"{row.now.steps:,}",
                brief(row.created_at),
                f"no worker drives it: detent resume {row.id}" if row.id in undriven else _status_reason(row),
            )
            for row in listed.rows
        ],
        right=(4,),
    )  # fmt: skip
    if listed.next is not None:
        warn(f"More: {workspace.command(*words, '--page', str(listed.next))}")


def _statuses(values: list[str] | None) -> list[Any]:
    from detent.kernel.errors import ConfigurationError, nearest
    from detent.kernel.status import Status

    known = [status.value for status in Status]
    names = [part.strip() for item in values or () for part in item.split(",") if part.strip()]
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"There is no status '{name}'.{nearest(name, known)} Known: {', '.join(known)}."
            )
    return [Status(name) for name in names]


def _status_reason(row: RunRow) -> str:
    """The reason for a run's status, as listings show it."""
    waits = row.now.waits or ()
    question = next((wait["question"] or f"waits for {wait['why']}" for wait in waits), "")
    return str(question or row.now.error or row.now.reason or "")


# -- one ----------------------------------------------------------------------------------------------------


@takes("format", "json", "project")
async def show(
    options: Options,
    target: Annotated[
        str, typer.Argument(metavar="RUN|FLOW", help="A run's id or a prefix of it, a flow, or a file.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new entries until the run ends.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Print the whole timeline, however long.")] = False,
) -> None:
    """Show a run and what happened in it, or a definition.

    Of a run also what it waits for and how to answer, its data, and effects in doubt; of a definition who
    performs each step.
    """
    from detent.cli.definitions import show_definition
    from detent.kernel.errors import FlowNotFound, RunNotFound, StoreUnavailable
    from detent.runtime.catalog import is_path

    workspace = options.workspace(looks=True)
    path = target.partition(":")[0]
    place = workspace.settings.folder / path
    # A folder that merely has the name of a run says nothing: only a path or a definition goes first.
    if place.exists() and (is_path(path) or workspace.catalog.is_definition(place)):
        show_definition(options, workspace, target)
        return
    try:
        async with workspace.store() as store:
            run_id = await workspace.run_id(store, target)
            await _show_run(workspace, store, run_id, options, follow, all_)
    except (RunNotFound, StoreUnavailable) as error:
        if follow:
            raise
        try:
            show_definition(options, workspace, target)
        except FlowNotFound:
            raise workspace.nothing_found(target, error) from None


async def _show_run(
    workspace: Workspace, store: Store, run_id: str, options: Options, follow: bool, whole: bool
) -> None:
    from detent.cli import run_status
    from detent.cli.output import iso, say_plain
    from detent.engine.journal_reader import load
    from detent.insight.timeline import timeline

    plainly = not options.as_table
    run = await load(store, run_id)
    entries = await _entries_to_show(store, run, whole or plainly)
    ledger = await store.effects(run_id)
    row = await store.row(run_id)
    if plainly and not follow:
        plain = run_status.run_plain(run)
        plain["owner"] = row.owner
        plain["effects"] = [{"key": line.key, "tool": line.tool, "state": line.state} for line in ledger]
        plain["timeline"] = [{**line.to_plain(), "at": iso(line.at)} for line in timeline(entries)]
        plain["commands"] = run_status.next_commands(workspace, run)
        say_plain(plain, options.format)
        return
    if not plainly:
        driven = row.id not in await run_status.undriven(store, [row])
        _print_run(workspace, run, entries, ledger, row.owner, driven)
    if follow:
        await _follow(store, run, plainly)


async def _entries_to_show(store: Store, run: Run, whole: bool) -> list[Entry]:
    """The entries to show: all of a short journal, the first and the last entries of a long one."""
    if whole or run.seq <= WHOLE:
        from detent.cli.workspace import journal

        return await journal(store, run.id)
    return [*await store.entries(run.id, 0, 1), *await store.entries(run.id, run.seq - TAIL, TAIL)]


def _print_run(
    workspace: Workspace, run: Run, entries: list[Entry], ledger: Any, owner: str | None, driven: bool
) -> None:
    from detent.cli import run_status
    from detent.cli.output import clean, fields, fit, local, paint, say
    from detent.insight import timeline
    from detent.insight.effect_text import is_confirmation
    from detent.insight.formatting import count

    forked = run.forked_from
    fields(
        [
            ("run", paint(run.id, bold=True)),
            ("flow", f"{clean(run.flow)} (version {run.version})"),
            ("status", run_status.summary(run)),
            ("because", clean(run.reason if run.reason and run.reason != run.status.value else "")),
            ("error", clean(run.error or "")),
            ("started", local(run.created_at)),
            ("changed", local(run.updated_at)),
            ("tags", clean(", ".join(run.tags))),
            ("parent", run.parent or ""),
            ("forked", f"from {forked['run']} after entry {forked['seq']}" if forked else ""),
            ("budget", _budget(run)),
            ("driven by", f"worker {owner}{'' if driven else ', which has stopped'}" if owner else ""),
        ]
    )
    for hold in run.holds.values():
        say()
        confirms = is_confirmation(hold)
        name = "a person's word" if confirms else f"{hold.why}: {clean(hold.name)}"
        say(paint(f"waits for {name}", "yellow"))
        if hold.question:
            say(f"  {clean(hold.question)}")
        for line in run_status.effect_lines(hold):
            say(f"  {line}")
        for key, value in hold.about.items():
            if not ("tool" in hold.about and key in ("tool", "args", "shown", "error")):
                say(f"  {key}: {_value(value)}")
        if hold.wake_at is not None:
            say(f"  the clock answers at {local(hold.wake_at)}")
    commands = run_status.next_commands(workspace, run)
    if commands and not (run.status.value == "running" and driven):
        say()
        for command in commands:
            say(f"  {command}")
    doubts = [line for line in ledger if line.state == "begun"]
    if doubts and not run.holds:
        say()
        for line in doubts:
            say(f"effect in doubt: {line.tool} ({line.key})")
    if run.data:
        say()
        say(paint("data", bold=True))
        for key, value in run.data.items():
            say(f"  {clean(key)}: {_value(value)}")
    say()
    say(paint("timeline", bold=True))
    lines = timeline.timeline(entries)
    shown = timeline.render(lines).splitlines()
    if len(entries) < run.seq:
        hidden = run.seq - len(entries)
        shown.insert(1, f"   … {count(hidden, 'entry')} between; --all shows them")
    for line in shown:
        fit(f"  {line}")


def _value(value: Any) -> str:
    """A value in one line, shortened for people."""
    from detent.insight.formatting import value as in_words

    return in_words(value, 200)


def _budget(run: Run) -> str:
    """The amount used of each limit that was set."""
    if run.budget is None:
        return ""
    used = run.used()
    parts = [
        f"{name.replace('_', ' ')} {used[name]:g} of {limit:g}"
        for name, limit in run.budget.to_plain().items()
        if name != "enforce"
    ]
    return ", ".join(parts) + ("" if run.budget.enforce else " (advisory)")


async def _follow(store: Store, run: Run, json: bool) -> None:
    """Print entries as any process commits them, until the run ends."""
    from detent.cli.output import fit, say
    from detent.engine.engine import Engine
    from detent.insight import timeline
    from detent.kernel.entries import to_plain
    from detent.kernel.plain import encode

    first = await store.entries(run.id, 0, 1)
    async for entry in Engine(store).follow(run.id, 0 if json else run.seq):
        if json:
            say(encode(to_plain(entry)))
        else:
            fit(f"  {timeline.render(timeline.timeline([*first, entry])[1:])}")
