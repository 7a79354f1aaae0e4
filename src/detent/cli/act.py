"""Commands that answer, change or end a run: `release`, `resolve`, `reopen`, `cancel`, `fork`, `purge`."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import By, NewId, Older, Options, Reason, RunId, Set, takes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.kernel.errors import DetentError


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (release, resolve, reopen, cancel, fork, purge):
        app.command(rich_help_panel="Act on runs")(command)


Hold = Annotated[
    str,
    typer.Option(
        "--hold", metavar="TOKEN", help="The question that is answered, such as approval@17; see 'show'."
    ),
]


@takes("detach", "json", "quiet", "project", "log")
async def release(
    options: Options,
    run: RunId,
    answer: Annotated[
        str | None,
        typer.Argument(
            metavar="[ANSWER]",
            help="The answer: JSON where it is JSON, else text. To an effect that needs your word: yes, no, "
            """'{"no": "why"}', or '{"edit": {"argument": value}}' to perform it with other arguments.""",
        ),
    ] = None,
    hold: Hold = "",
    by: By = "person",
) -> int:
    """Answer the question a run waits on, and drive the run.

    An effect that needs your word is shown with its arguments by `show`. yes performs it as shown, no leaves
    it out and tells the step; an edit changes the arguments it names and keeps the others.

    On a terminal, without an answer and --hold, the open question is shown and the answer asked for.
    """
    from detent.cli.resume import see_through
    from detent.cli.values import read_answer
    from detent.insight.effect_text import REVIEW
    from detent.kernel.errors import RunStateError
    from detent.kernel.hold_token import HoldToken

    workspace = options.workspace()
    if not hold and answer is None:
        hold, answer = (await _ask_person(workspace, run, doubt=False)) or (hold, answer)

    async def act(engine: Engine, run_id: str) -> None:
        value = None if answer is None else read_answer(answer)
        token = HoldToken.read(hold) if hold else None
        holds = (await engine.get(run_id)).holds
        held = holds.get(token.name) if token is not None else None
        meant = list(holds.values()) if held is None else [held]
        if meant and all(each.why == REVIEW for each in meant):
            show = workspace.command("review", "list")
            raise RunStateError(f"Run {run_id} waits until a person has read its draft: {show}")
        if held is not None and answer in held.choices:  # a choice that looks like JSON is still the choice
            value = answer
        async with _explained(workspace, engine, run_id):
            await engine.release(run_id, value, hold=hold, by=by, drive=not options.detach)

    return await see_through(workspace, run, act, options, done="released")


@takes("detach", "json", "quiet", "project", "log")
async def resolve(
    options: Options,
    run: RunId,
    how: Annotated[str | None, typer.Argument(metavar="[HOW]", help="happened, again or skip.")] = None,
    hold: Hold = "",
    receipt: Annotated[
        str | None, typer.Option("--receipt", metavar="JSON", help="What its tool would have given back.")
    ] = None,
    by: By = "person",
) -> int:
    """Settle an effect in doubt.

    happened: it was performed; give what its tool gave back with --receipt where the step uses that. again:
    it was not; perform it. skip: the run goes on as if it had been performed and had given nothing back. On a
    terminal, without HOW and --hold, the effect is shown and the answer asked for.
    """
    from detent.cli.resume import see_through
    from detent.cli.values import read_json
    from detent.engine.commands import UNSAID

    receipt_value = UNSAID if receipt is None else read_json(receipt, "--receipt")
    workspace = options.workspace()
    if not hold and how is None:
        hold, how = (await _ask_person(workspace, run, doubt=True)) or (hold, how)

    async def act(engine: Engine, run_id: str) -> None:
        if how is None:
            raise await _missing_answer(workspace, engine, run_id)
        async with _explained(workspace, engine, run_id):
            await engine.resolve(
                run_id, how, hold=hold, receipt=receipt_value, by=by, drive=not options.detach
            )

    return await see_through(workspace, run, act, options, done="settled")


async def _ask_person(workspace: Workspace, run_prefix: str, *, doubt: bool) -> tuple[str, str] | None:
    """Show a person at a terminal the open question and read the answer: its token and the text.

    None without a terminal, or unless exactly one question is open.
    """
    import sys

    from detent.cli.output import clean, say
    from detent.cli.run_status import effect_lines
    from detent.engine.journal_reader import load
    from detent.insight.effect_text import REVIEW, is_confirmation

    if not sys.stdin.isatty():
        return None
    async with workspace.store() as store:
        run = await load(store, await workspace.run_id(store, run_prefix))
    open_holds = [
        hold
        for name, hold in run.holds.items()
        if hold.why not in ("children", REVIEW) and name.startswith("effect:") == doubt
    ]
    if len(open_holds) != 1:
        return None
    (hold,) = open_holds
    say(clean(hold.question or f"waits for {hold.why}: {hold.name}"))
    for line in effect_lines(hold):
        say(f"  {line}")
    choices = clean(" / ".join(hold.choices)) or "answer"
    if is_confirmation(hold):
        choices = 'yes / no / {"no": "why"} / {"edit": {"argument": value}}'
    print(f"{choices}: ", end="", flush=True)
    answer = sys.stdin.readline()
    if not answer.strip():
        return None
    return run.token(hold.name), answer.strip()


async def _missing_answer(workspace: Workspace, engine: Engine, run_id: str) -> DetentError:
    """The error for `resolve` without an answer, with the commands that settle the effect in doubt."""
    from detent.cli import run_status
    from detent.kernel.errors import ConfigurationError, RunStateError

    run = await engine.get(run_id)
    if not any(name.startswith("effect:") for name in run.holds):
        return RunStateError(f"Run {run_id} has no effect in doubt.")
    lines = "".join(f"\n  {command}" for command in run_status.next_commands(workspace, run))
    return ConfigurationError(f"Say what became of the effect in doubt: happened, again or skip.{lines}")


@asynccontextmanager
async def _explained(workspace: Workspace, engine: Engine, run_id: str) -> AsyncIterator[None]:
    """Explain that the answered question is not open, and print the commands for the ones that are."""
    from detent.cli import run_status
    from detent.kernel.errors import HoldNotOpen, RunStateError

    try:
        yield
    except HoldNotOpen as error:
        run = await engine.get(run_id)
        commands = run_status.next_commands(workspace, run, reopen=False) if error.open else []
        lines = "".join(f"\n  {command}" for command in commands)
        raise RunStateError(f"{error.why} {error.now}{lines}") from None


@takes("detach", "budget", "json", "quiet", "project", "log")
async def reopen(options: Options, run: RunId, reason: Reason = "", by: By = "person") -> int:
    """Reopen a run that failed or ran out of budget."""
    from detent.cli.resume import see_through
    from detent.cli.values import read_budget

    workspace = options.workspace()
    budget = read_budget(options)

    async def act(engine: Engine, run_id: str) -> None:
        await engine.reopen(run_id, budget=budget, reason=reason, by=by, drive=not options.detach)

    return await see_through(workspace, run, act, options, done="reopened")


@takes("json", "quiet", "project")
async def cancel(
    options: Options,
    run: RunId,
    reason: Reason = "cancelled",
    by: By = "person",
    rollback: Annotated[
        bool, typer.Option("--rollback", help="First undo what its steps did, in reverse order.")
    ] = False,
) -> int:
    """End a run and everything it started."""
    from detent.cli.resume import see_through
    from detent.kernel.status import Status

    workspace = options.workspace()
    if not rollback:
        await _cancel(workspace, run, reason, by, options.json)
        return 0
    ended: list[Status] = []

    async def act(engine: Engine, run_id: str) -> None:
        await engine.cancel(run_id, reason=reason, by=by, undo=True)
        ended.append((await engine.finish(run_id)).status)

    code = await see_through(workspace, run, act, options)
    return 0 if ended == [Status.CANCELLED] else code


async def _cancel(workspace: Workspace, run: str, reason: str, by: str, json: bool) -> None:
    from detent.cli import run_status
    from detent.cli.output import say, say_json
    from detent.runtime.wiring import engine_for

    # No flows are needed to end a run, so a broken one cannot keep it alive.
    async with engine_for(workspace.settings, create=False) as engine:
        run_id = await workspace.run_id(engine.store, run)
        await _know_its_end(workspace, engine, run_id)
        await engine.cancel(run_id, reason=reason, by=by)
        result = await engine.get(run_id)
        if engine.flows and not result.status.is_end:
            result = await engine.finish(run_id)
        if (kind := workspace.catalog.display_of(result.flow)) is not None:
            await kind.deliver(engine, result)
    if json:
        say_json(run_status.run_plain(result))
    else:
        say(f"{run_id} {run_status.summary(result)}")
        for command in run_status.next_commands(workspace, result, reopen=False):
            say(f"  {command}")


async def _know_its_end(workspace: Workspace, engine: Engine, run_id: str) -> None:
    """Add the run's flow to the engine if it has effects performed at the end; a warning if it is broken."""
    from detent.cli.output import warn
    from detent.kernel.errors import DetentError

    row = await engine.store.row(run_id)
    try:
        flow = (await workspace.known(engine.store)).get(row.flow)
    except DetentError as error:
        warn(f"Cancelled without the effects that '{row.flow}' may perform at the end: {error}")
        return
    if flow is not None and flow.at_end is not None and flow.fingerprint == row.now.fingerprint:
        engine.add_flow(flow)


@takes("detach", "budget", "json", "quiet", "project", "log")
async def fork(
    options: Options,
    run: RunId,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="N|STATE", help="Keep the first N entries, or up to a state."),
    ] = None,
    set_: Set = None,
    id_: NewId = None,
    by: By = "person",
) -> int:
    """Start a new run from the first part of another."""
    from detent.cli.resume import see_through
    from detent.cli.run_status import warn_of_undone
    from detent.cli.values import read_budget, read_sets
    from detent.engine.fork import UNDONE

    workspace = options.workspace()
    changes = read_sets(set_)
    budget = read_budget(options)

    new_id = id_ or os.urandom(8).hex()

    async def act(engine: Engine, run_id: str) -> None:
        entry = None if at is None else await _entry_at(engine, run_id, at)
        await engine.fork(run_id, entry, set=changes, budget=budget, new_id=new_id, by=by, drive=False)
        partly = await engine.flow((await engine.store.row(run_id)).flow).partly_undone_by(
            engine.store, run_id
        )
        warn_of_undone(run_id, (await engine.get(new_id)).data.get(UNDONE) or (), partly)
        if not options.detach:
            await engine.resume(new_id)

    return await see_through(workspace, run, act, options, done="forked", new_id=new_id)


async def _entry_at(engine: Engine, run_id: str, position: str) -> int:
    """Number of the entry to fork at: the number given, or the last entry into the named state."""
    from detent.engine.journal_reader import read
    from detent.kernel.errors import ConfigurationError, nearest

    if position.lstrip("-").isdigit():
        return int(position)
    machine = engine.flow((await engine.store.row(run_id)).flow).machine
    names = [machine.named(state) for state in machine.states]
    if position not in names:
        raise ConfigurationError(
            f"Machine '{machine.name}' has no state '{position}'.{nearest(position, names)} "
            f"States: {', '.join(names)}."
        )
    seq = None
    async for entry in read(engine.store, run_id):
        body: Any = entry.body
        if (entry.kind == "moved" and body.to == position) or (
            entry.kind == "started" and body.state == position
        ):
            seq = entry.seq
    if seq is None:
        raise ConfigurationError(f"Run {run_id} was never in '{position}'.")
    return seq


@takes("json", "store", "config")
async def purge(
    options: Options,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run whose values are dropped.")
    ] = None,
    older: Older = None,
) -> None:
    """Drop values kept beside journals, and files kept for runs.

    Large or private values go, and files kept for runs; the runs stay readable.
    """
    from detent.cli.output import say, say_json
    from detent.cli.values import read_time
    from detent.insight.formatting import count
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.plugs import plugs

    if (run is None) == (older is None):
        raise ConfigurationError("Say which run's values to drop, or --older AGE.")
    workspace = options.workspace()
    before = read_time(older, "--older")
    async with workspace.store() as store:
        run_id = None if run is None else await workspace.run_id(store, run)
        dropped = await store.purge(run_id, before)
        purged = [await plug.purge(workspace.settings, store, run_id, before) for plug in plugs()]
    number = sum(result.files for result in purged)
    still_needed = [line for result in purged for line in result.kept]
    if options.json:
        say_json({"dropped": dropped, "files": number, "kept": still_needed})
        return
    files = f", {count(number, 'file')}" if number else ""
    say(f"{count(dropped, 'value')}{files} dropped.")
    for line in still_needed:
        say(f"Files are kept for {line}.")
