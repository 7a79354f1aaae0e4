"""The commands `review` and `review list|show|approve|edit|handler|withdraw`: people decide about drafts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import By, Options, takes
from detent.cli.review_sentences import offer_after_approval, sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detent.cli.workspace import Workspace
    from detent.dispatch.draft import Draft
    from detent.dispatch.draft_planting import ReadPlant
    from detent.dispatch.draft_queue import QueuedDraft

review = typer.Typer(help="Read and decide on what agents wrote for people.")

DraftId = Annotated[
    str, typer.Argument(metavar="DRAFT", help="Name of a draft in the queue, or its beginning.")
]


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter("Say a number of seconds.")
    return seconds


Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", metavar="N", min=0, help="How long the draft was on the screen.", callback=_finite
    ),
]


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    review.callback(invoke_without_command=True)(session)
    for command in (list_, show, approve, edit, handler, sentences, withdraw):
        review.command(name=command.__name__.rstrip("_"))(command)
    app.add_typer(review, name="review", rich_help_panel="Act on runs")


# -- the queue ----------------------------------------------------------------------------------------------


@takes("json", "store", "config")
async def list_(options: Options) -> None:
    """List the drafts that wait for a person, oldest first; planted ones are among them."""
    from detent.cli.output import brief, clean, say, say_json, table
    from detent.cli.review_screen import HINT, entry_of

    waiting = await _queue(options.workspace(looks=True))
    if options.json:
        say_json({"drafts": [entry_of(queued) for queued in waiting]})
    elif not waiting:
        say("No drafts wait for a person.")
    else:
        table(
            ("DRAFT", "STEP", "SINCE", "UNTIL"),
            [
                (each.id, clean(each.step), brief(each.since), brief(each.until) if each.until else "")
                for each in waiting
            ],
        )
        say("")
        say(HINT)


async def _queue(workspace: Workspace) -> list[QueuedDraft]:
    import time

    from detent.dispatch.draft_queue import queue
    from detent.kernel.errors import StoreMissing

    try:
        async with workspace.store() as store:
            return await queue(store, time.time())
    except StoreMissing:
        return []


async def _found(workspace: Workspace, name: str) -> tuple[QueuedDraft, Draft, ReadPlant | None]:
    """The draft that waits under a name.

    Raises:
        RunStateError: none does, or its text was purged.
    """
    import time

    from detent.dispatch.draft_queue import answered, find, read_draft

    async with workspace.store() as store:
        queued = await find(store, name, time.time())
        if queued is None:
            raise answered(name)
        draft, plant = await read_draft(store, queued)
    return queued, draft, plant


@takes("json", "store", "config")
async def show(options: Options, draft: DraftId) -> None:
    """Show a draft with the message it answers, the facts and the handler's text.

    A sentence is known (the handler writes it too), supported (only words of the facts and of the handler's
    text) or NEW. Phrases that may commit us to something are named; they decide nothing.
    """
    from detent.cli.output import say, say_json
    from detent.cli.review_screen import screen_plain, show_screen

    queued, text, _ = await _found(options.workspace(looks=True), draft)
    if options.json:
        say_json(screen_plain(queued, text))
        return
    show_screen(queued, text)
    for verb in ("approve", "edit", "handler"):
        say(f"  detent review {verb} {queued.id}")


# -- verdicts -----------------------------------------------------------------------------------------------


@takes("detach", "json", "quiet", "project", "log")
async def approve(
    options: Options,
    draft: DraftId,
    by: By = "person",
    seconds: Seconds = None,
    bank: Annotated[
        bool, typer.Option("--bank", help="Add its new sentences to those agents may choose.")
    ] = False,
) -> int:
    """Use a draft as it is; on a terminal, its new sentences are then offered for the step's bank."""
    queued, _, _ = await _found(options.workspace(), draft)
    code = await _decide(options, queued.id, {"verdict": "approve", "seconds": seconds}, by)
    if queued.run:
        await offer_after_approval(options, queued.run, by, bank)
    return code


@takes("detach", "json", "quiet", "project", "log")
async def edit(
    options: Options,
    draft: DraftId,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="The text to use; without it, $EDITOR opens."),
    ] = None,
    by: By = "person",
    seconds: Seconds = None,
) -> int:
    """Use another text in the draft's place; one that breaks the hard contract is refused."""
    from detent.kernel.errors import ConfigurationError

    workspace = options.workspace()
    queued, shown, _ = await _found(workspace, draft)
    if file is None:
        text = _edited(shown)
    else:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--file {file} cannot be read: {error}.") from None
    answer = {"verdict": "edit", "texts": {next(iter(shown.written)): text}, "seconds": seconds}
    return await _decide(options, queued.id, answer, by)


def _edited(draft: Draft) -> str:
    """The text of a draft after a person has edited it in $EDITOR."""
    import os
    import sys

    from click import edit as open_editor

    from detent.kernel.errors import ConfigurationError

    if not (sys.stdin.isatty() and (os.environ.get("VISUAL") or os.environ.get("EDITOR"))):
        raise ConfigurationError("Give the text to use with --file FILE, or set $EDITOR on a terminal.")
    text = next(iter(draft.written.values()))
    return open_editor(text) or text


@takes("detach", "json", "quiet", "project", "log")
async def handler(
    options: Options,
    draft: DraftId,
    because: Annotated[
        str | None,
        typer.Option("--because", metavar="KIND", help="claim, tone, incomplete, language or other."),
    ] = None,
    by: By = "person",
    seconds: Seconds = None,
) -> int:
    """Use the handler's text in the draft's place."""
    return await _decide(
        options, draft, {"verdict": "handler", "because": _fault(because), "seconds": seconds}, by
    )


def _fault(because: str | None) -> str | None:
    from detent.dispatch.draft import DraftFault
    from detent.kernel.errors import ConfigurationError, nearest

    kinds = [fault.value for fault in DraftFault]
    if because is not None and because not in kinds:
        raise ConfigurationError(
            f"--because takes {', '.join(kinds[:-1])} or {kinds[-1]}, not '{because}'."
            f"{nearest(because, kinds)}"
        )
    return because


_DONE = {"approve": "approved", "edit": "edited", "handler": "sent as the handler writes it"}


async def _decide(options: Options, name: str, answer: dict[str, Any], by: str) -> int:
    """Give a person's verdict on a draft; what was planted is named, and nothing of it is sent."""
    from detent.cli.output import clean, say, say_json
    from detent.cli.resume import see_through
    from detent.dispatch.draft_queue import answered, judge_plant
    from detent.kernel.errors import HoldNotOpen, RunStateError

    workspace = options.workspace()
    queued, draft, plant = await _found(workspace, name)
    if answer["verdict"] == "handler" and not draft.own:
        raise RunStateError(f"There is no handler's text for draft {queued.id}. Approve or edit it.")
    plain = {key: value for key, value in answer.items() if value is not None}
    if answer["verdict"] == "edit":
        await _check_edit(options, queued, draft, answer["texts"])
    if plant is not None:
        caught = plant.is_caught_by(plain)
        async with workspace.store() as store:
            planted, noticed = await judge_plant(store, queued, by, caught)
        if options.json:
            told = {"sort": plant.sort, "before": plant.before, "after": plant.after, "caught": caught}
            say_json({"id": queued.id, "planted": told})
            return 0
        say(clean(f"Draft {queued.id} was planted ({plant.sort}): {plant.what}. Nothing was sent."))
        say(clean(f"You {'noticed' if caught else 'missed'} it. {by}: {noticed} of {planted} noticed."))
        return 0

    async def act(engine: Any, run_id: str) -> None:
        try:
            await engine.release(run_id, plain, hold=queued.hold, by=by, drive=not options.detach)
        except HoldNotOpen:  # answered meanwhile, or its time is over
            raise answered(queued.id) from None

    code = await see_through(workspace, queued.run, act, options, done=_DONE[answer["verdict"]])
    return max(code, await _waits_again(workspace, queued)) if answer["verdict"] == "edit" else code


async def _check_edit(options: Options, queued: QueuedDraft, draft: Draft, texts: dict[str, str]) -> None:
    """Check a person's text, in a real and in a planted draft alike.

    Raises:
        RunStateError: the text is empty or breaks the hard contract; the draft waits as before.
    """
    from detent.cli.resume import know_run
    from detent.dispatch.draft_edits import edit_problems
    from detent.kernel.errors import RunStateError

    problems: Sequence[str] = ()
    if not all(text.strip() for text in texts.values()):
        problems = ("the text is empty.",)
    else:
        workspace = options.workspace()
        run = queued.run or (queued.planted.run if queued.planted is not None else "")
        async with workspace.engine(deterministic=options.deterministic) as engine:
            await know_run(workspace, engine, run)
            problems = await edit_problems(engine, run, draft, {**draft.written, **texts})
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise RunStateError(f"The text cannot be used, and draft {queued.id} waits as before:{lines}")


async def _waits_again(workspace: Workspace, queued: QueuedDraft) -> int:
    """The exit code after an edit: 1, and the reason on the screen, if the run did not use it after all."""
    from detent.cli.output import clean, warn
    from detent.dispatch.draft_queue import read_draft

    for each in await _queue(workspace):
        if each.run == queued.run:
            async with workspace.store() as store:
                draft, _ = await read_draft(store, each)
            for problem in draft.problems:
                warn(clean(problem))
            return 1 if draft.problems else 0
    return 0


@takes("json", "store", "config")
async def withdraw(
    options: Options,
    draft: Annotated[str, typer.Argument(metavar="DRAFT", help="A planted draft that was approved.")],
    by: By = "person",
) -> None:
    """Call a planted claim right that another person approved: it counts for nobody."""
    from detent.cli.output import clean, say, say_json
    from detent.dispatch import draft_queue

    async with options.workspace().store() as store:
        missed = await draft_queue.withdraw(store, draft, by)
    if options.json:
        say_json({"id": missed.id, "sort": missed.sort, "approved_by": missed.by, "withdrawn_by": by})
    else:
        say(
            clean(
                f"The claim of draft {missed.id} ({missed.sort}) is withdrawn; {missed.by} did not miss it."
            )
        )


# -- one after another --------------------------------------------------------------------------------------


@takes("detach", "quiet", "project", "log")
async def session(options: Options, context: typer.Context, by: By = "person") -> int:
    """Read and decide on what agents wrote for people.

    Without a command, the drafts are shown one after another, and how long each was on the screen is kept:
    a approves, e edits, h sends the handler's text (h claim: and says why), s skips, q ends.
    """
    import sys
    import time

    from detent.cli.output import say, warn
    from detent.cli.review_screen import HINT, show_screen
    from detent.kernel.errors import ConfigurationError, RunStateError

    if context.invoked_subcommand is not None:
        return 0
    workspace, skipped, code = options.workspace(), set[str](), 0
    said_hint = False
    while True:
        waiting = [queued for queued in await _queue(workspace) if queued.id not in skipped]
        if not waiting:
            say("No drafts wait for a person." if not skipped else "No other drafts wait for a person.")
            return code
        if not said_hint:
            say(HINT)
            said_hint = True
        say("")
        try:
            queued, draft, _ = await _found(workspace, waiting[0].id)
        except RunStateError as error:  # answered by another person meanwhile, or purged
            warn(str(error))
            skipped.add(waiting[0].id)
            continue
        show_screen(queued, draft)
        began = time.monotonic()
        while True:
            print("[a]pprove [e]dit [h]andler [s]kip [q]uit: ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            key, _, because = line.strip().partition(" ")
            if not line or key == "q":
                return code
            if key == "s":
                skipped.add(queued.id)
                break
            try:
                answer = _answer(key, because.strip() or None, draft)
            except ConfigurationError as error:
                warn(str(error))
                continue
            if answer is None:
                continue
            answer["seconds"] = round(time.monotonic() - began, 1)
            try:
                code = max(code, await _decide(options, queued.id, answer, by))
                if queued.run and answer["verdict"] == "approve":
                    await offer_after_approval(options, queued.run, by, bank=False)
            except RunStateError as error:
                warn(str(error))
            break


def _answer(key: str, because: str | None, draft: Draft) -> dict[str, Any] | None:
    """The verdict that a key stands for; None for one that has no meaning."""
    if key == "a":
        return {"verdict": "approve"}
    if key == "h":
        return {"verdict": "handler", "because": _fault(because)}
    if key == "e":
        return {"verdict": "edit", "texts": {next(iter(draft.written)): _edited(draft)}}
    return None
