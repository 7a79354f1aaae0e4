"""The commands `review list|show|approve|edit|handler`: what people decide about agents' drafts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import By, Options, RunId, takes
from detent.cli.review_sentences import offer_after_approval, sentences

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.dispatch.draft import Draft
    from detent.engine.ports import Store
    from detent.kernel.entries import Held
    from detent.kernel.run import Run

review = typer.Typer(
    help="Read and decide on what agents wrote for people.",
    no_args_is_help=True,
)


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (list_, show, approve, edit, handler, sentences):
        review.command(name=command.__name__.rstrip("_"))(command)
    app.add_typer(review, name="review", rich_help_panel="Act on runs")


@takes("json", "store", "config")
async def list_(options: Options) -> None:
    """List the drafts that wait for a person, oldest first."""
    from detent.cli.output import brief, clean, say, say_json, table
    from detent.engine.journal_reader import load
    from detent.engine.ports import RunQuery
    from detent.kernel.errors import StoreMissing
    from detent.kernel.status import Status

    waiting: list[dict[str, Any]] = []
    before: int | None = None
    try:
        async with options.workspace(looks=True).store() as store:
            while True:
                query = RunQuery(
                    status=(Status.WAITING,), before=before, limit=1000, tolerant=True
                )  # fmt: skip
                page = await store.rows(query)
                for row in page.rows:
                    run = await load(store, row.id)
                    waiting += [_entry(run, held) for held in _drafts(run)]
                if (before := page.next) is None:
                    break
    except StoreMissing:
        pass
    waiting.reverse()
    if options.json:
        say_json({"drafts": waiting})
    elif not waiting:
        say("No drafts wait for a person.")
    else:
        table(
            ("RUN", "STEP", "UNTIL"),
            [
                (item["run"], clean(item["step"]), brief(item["until"]) if item["until"] else "")
                for item in waiting
            ],
        )


def _entry(run: Run, held: Held) -> dict[str, Any]:
    return {
        "run": run.id, "step": str(held.about.get("step")), "hold": run.token(held.name),
        "until": held.wake_at,
    }  # fmt: skip


def _drafts(run: Run) -> list[Held]:
    from detent.dispatch.draft import REVIEW

    return [held for held in run.holds.values() if held.why == REVIEW and "kept" in held.about]


async def _waiting(workspace: Workspace, store: Store, prefix: str) -> tuple[Run, Held, Draft]:
    """The draft of a run that waits for a person.

    Raises:
        RunStateError: no draft of the run waits, or its text was purged.
    """
    from detent.dispatch.draft import Draft
    from detent.engine.journal_reader import load
    from detent.kernel.errors import RunStateError
    from detent.kernel.plain import decode

    run = await load(store, await workspace.run_id(store, prefix))
    drafts = _drafts(run)
    if not drafts:
        raise RunStateError(f"Run {run.id} has no draft that waits for a person. See: detent review list")
    (held,) = drafts[:1]
    raw = await store.blob(held.about["kept"]["$blob"])
    if raw is None:
        raise RunStateError(
            f"The draft of run {run.id} was purged. Send the handler's text: detent review handler {run.id}"
        )
    return run, held, Draft.from_plain(decode(raw))


@takes("json", "store", "config")
async def show(options: Options, run: RunId) -> None:
    """Show a draft by sentence beside the facts it was written from and the handler's text.

    A sentence is known (the handler writes it too), supported (only words of the facts and of the handler's
    text) or NEW. Phrases that may commit us to something are named; they decide nothing.
    """
    from detent.cli.output import clean, paint, say, say_json
    from detent.dispatch.sentence_marks import SentenceMark, marked

    workspace = options.workspace(looks=True)
    async with workspace.store() as store:
        found, held, draft = await _waiting(workspace, store, run)
    by_place = {
        place: marked(text, draft.own.get(place, ""), draft.facts) for place, text in draft.written.items()
    }
    if options.json:
        marks = {place: [item.to_plain() for item in items] for place, items in by_place.items()}
        say_json({**_entry(found, held), **draft.to_plain(), "sentences": marks})
        return
    say(paint(f"{found.id} {held.about.get('step')}", bold=True))
    say("")
    say("FACTS")
    for key, value in draft.facts.items():
        say(f"  {clean(key)}: {_one_line(value)}")
    for problem in draft.problems:
        say(f"REFUSED: {clean(problem)}")
    for place, items in by_place.items():
        say("")
        say(f"DRAFT {clean(place)}")
        for item in items:
            mark = item.mark.value.upper() if item.mark is SentenceMark.NEW else item.mark.value
            phrases = f"   [{', '.join(map(clean, item.phrases))}]" if item.phrases else ""
            say(f"  {mark:<9} {clean(item.text)}{phrases}")
        say("")
        say(f"HANDLER {clean(place)}")
        for line in draft.own.get(place, "(the handler writes no text here)").splitlines():
            say(f"  {clean(line)}")
    say("")
    for verb in ("approve", "edit", "handler"):
        say(f"  detent review {verb} {found.id}")


def _one_line(value: Any) -> str:
    from detent.cli.output import clean
    from detent.kernel.plain import encode

    text = value if isinstance(value, str) else encode(value)
    return clean(" ".join(text.split()))


Seconds = Annotated[
    float | None, typer.Option("--seconds", metavar="N", min=0, help="How long the draft was on the screen.")
]


@takes("detach", "json", "quiet", "project", "log")
async def approve(
    options: Options,
    run: RunId,
    by: By = "person",
    seconds: Seconds = None,
    bank: Annotated[
        bool, typer.Option("--bank", help="Add its new sentences to those agents may choose.")
    ] = False,
) -> int:
    """Use a draft as it is; on a terminal, its new sentences are then offered for the step's bank."""
    code = await _decide(options, run, {"verdict": "approve", "seconds": seconds}, by, "approved")
    await offer_after_approval(options, run, by, bank)
    return code


@takes("detach", "json", "quiet", "project", "log")
async def edit(
    options: Options,
    run: RunId,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="The text to use; without it, $EDITOR opens."),
    ] = None,
    by: By = "person",
    seconds: Seconds = None,
) -> int:
    """Use another text in the draft's place; one that breaks the hard contract waits again."""
    import os
    import sys

    from click import edit as open_editor

    from detent.kernel.errors import ConfigurationError

    workspace = options.workspace()
    async with workspace.store() as store:
        found, _, draft = await _waiting(workspace, store, run)
    place = next(iter(draft.written))
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--file {file} cannot be read: {error}.") from None
    elif sys.stdin.isatty() and (os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        text = open_editor(draft.written[place]) or draft.written[place]
    else:
        raise ConfigurationError("Give the text to use with --file FILE, or set $EDITOR on a terminal.")
    answer = {"verdict": "edit", "texts": {place: text}, "seconds": seconds}
    return await _decide(options, found.id, answer, by, "edited")


@takes("detach", "json", "quiet", "project", "log")
async def handler(
    options: Options,
    run: RunId,
    because: Annotated[
        str | None,
        typer.Option("--because", metavar="KIND", help="claim, tone, incomplete, language or other."),
    ] = None,
    by: By = "person",
    seconds: Seconds = None,
) -> int:
    """Use the handler's text in the draft's place."""
    from detent.dispatch.draft import DraftFault
    from detent.kernel.errors import ConfigurationError, nearest

    kinds = [fault.value for fault in DraftFault]
    if because is not None and because not in kinds:
        raise ConfigurationError(
            f"--because takes {', '.join(kinds[:-1])} or {kinds[-1]}, not '{because}'."
            f"{nearest(because, kinds)}"
        )
    answer = {"verdict": "handler", "because": because, "seconds": seconds}
    return await _decide(options, run, answer, by, "sent as the handler writes it")


async def _decide(options: Options, run: str, answer: dict[str, Any], by: str, done: str) -> int:
    from detent.cli.resume import see_through
    from detent.kernel.errors import HoldNotOpen, RunStateError

    workspace = options.workspace()
    async with workspace.store() as store:
        found, held, draft = await _waiting(workspace, store, run)
    if answer["verdict"] == "handler" and not draft.own:
        raise RunStateError(f"The step of run {found.id} has no handler's text. Approve or edit the draft.")
    token = found.token(held.name)
    plain = {key: value for key, value in answer.items() if value is not None}

    async def act(engine: Any, run_id: str) -> None:
        try:
            await engine.release(run_id, plain, hold=token, by=by, drive=not options.detach)
        except HoldNotOpen as error:
            raise RunStateError(error.why) from None

    return await see_through(workspace, found.id, act, options, done=done)
