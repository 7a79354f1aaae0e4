"""The command `review sentences`: what an approved draft may add to the sentences agents may choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from detent.cli.options import By, Options, RunId, takes

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.dispatch.sentence_bank import NewSentence, SentenceBank
    from detent.engine.ports import Store

Add = Annotated[
    list[int] | None,
    typer.Option("--add", metavar="N", help="Add the sentence of this number; may be repeated."),
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="NAME", help="At most one sentence of a group is said in a text."),
]


class Offer(NamedTuple):
    """The sentences of one approved draft."""

    run: str
    step: str
    bank: SentenceBank
    data: dict[str, Any]
    """The run's data when the draft was approved."""
    sentences: list[NewSentence]


@takes("json", "project", "log")
async def sentences(
    options: Options, run: RunId, add: Add = None, group: Group = None, by: By = "person"
) -> None:
    """List the new sentences of an approved draft, and add those you name to the step's bank.

    Values of the run become slots; each sentence is shown as it would read with other values. A sentence is
    added for the state of this run and for its language, and for no other.
    """
    workspace = options.workspace()
    async with workspace.store() as store:
        offer = await offered(workspace, store, run)
    added = _add(workspace, offer, add or (), group, by)
    _say(options, offer, added)


async def offer_after_approval(options: Options, run: str, by: str, bank: bool) -> None:
    """After a draft was approved: add its new sentences (`--bank`), or on a terminal ask for each."""
    import sys

    workspace = options.workspace()
    if not bank and not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    from detent.kernel.errors import DetentError

    async with workspace.store() as store:
        try:
            offer = await offered(workspace, store, run)
        except DetentError:
            if bank:
                raise
            return  # the step has no bank
    numbers = [number for number, item in enumerate(offer.sentences, 1) if item.problem is None]
    if not bank:
        from detent.cli.output import clean

        numbers = [
            number
            for number in numbers
            if typer.confirm(
                f"{_shown(offer.sentences[number - 1], clean)}\nAdd it to the bank?", default=False
            )
        ]
    _say(options, offer, _add(workspace, offer, numbers, None, by))


async def offered(workspace: Workspace, store: Store, prefix: str) -> Offer:
    """The sentences of the draft that was approved last in a run.

    Raises:
        RunStateError: no draft was approved, or its text was purged.
        ConfigurationError: the step has no bank.
    """
    from detent.cli.workspace import journal
    from detent.dispatch.agent_side import agent_side
    from detent.dispatch.draft import Draft, DraftVerdict
    from detent.kernel.entries import Moved
    from detent.kernel.errors import ConfigurationError, RunStateError
    from detent.kernel.plain import decode
    from detent.kernel.run import Run

    run_id = await workspace.run_id(store, prefix)
    entries = await journal(store, run_id)
    for index in range(len(entries) - 1, -1, -1):
        body = entries[index].body
        draft = (body.detail or {}).get("draft") if isinstance(body, Moved) else None
        if draft is not None and draft.get("verdict") == DraftVerdict.APPROVED.value:
            break
    else:
        raise RunStateError(f"No draft of run {run_id} was approved as it is. Approve it first.")
    raw = await store.blob(draft["kept"]["$blob"])
    if raw is None:
        raise RunStateError(f"The draft of run {run_id} was purged.")
    before = Run.fold(run_id, entries[:index])
    flow = (await workspace.known(store)).get(before.flow)
    assert isinstance(body, Moved)
    step = None if flow is None else flow.steps.get(body.frm)
    bank = None if step is None else agent_side(step).bank
    if bank is None:
        raise ConfigurationError(f"Step '{body.frm}' has no bank of sentences.")
    kept, data = Draft.from_plain(decode(raw)), dict(before.data)
    text, own = ("\n".join(texts.values()) for texts in (kept.written, kept.own))
    return Offer(run_id, body.frm, bank, data, bank.offered(text, own, data))


def _add(
    workspace: Workspace, offer: Offer, numbers: Any, group: str | None, by: str
) -> list[tuple[int, str, str]]:
    """Add the sentences of these numbers; gives number, id and file of each."""
    from datetime import UTC, datetime

    from detent.kernel.errors import ConfigurationError

    added: list[tuple[int, str, str]] = []
    day = datetime.now(UTC).date().isoformat()
    if wrong := [number for number in numbers if not 1 <= number <= len(offer.sentences)]:
        raise ConfigurationError(
            f"There is no sentence {wrong[0]}; the draft has {len(offer.sentences)} new."
        )
    for number in numbers:
        name, file = offer.bank.add(
            offer.sentences[number - 1], offer.data, workspace.settings.folder, by=by, day=day, group=group
        )
        added.append((number, name, file))
    return added


def _say(options: Options, offer: Offer, added: list[tuple[int, str, str]]) -> None:
    from detent.cli.output import clean, say, say_json

    if options.json:
        items = [item.to_plain() for item in offer.sentences]
        ids = {number: name for number, name, _ in added}
        say_json({
            "run": offer.run, "step": offer.step,
            "sentences": [{**item, "added": ids.get(number)} for number, item in enumerate(items, 1)],
        })  # fmt: skip
        return
    if not offer.sentences:
        say("Every sentence of the draft is approved for this state already.")
    for number, item in enumerate(offer.sentences, 1):
        say(f"{number}. {_shown(item, clean)}")
    for number, name, file in added:
        say(
            f"Sentence {number} is '{name}' in {clean(file)}; programs under way read it at their next start."
        )


def _shown(item: NewSentence, clean: Any) -> str:
    lines = [clean(item.text), *(f"   reads: {clean(reading)}" for reading in item.readings)]
    return "\n".join([*lines, *([f"   not for the bank: {clean(item.problem)}"] if item.problem else [])])
