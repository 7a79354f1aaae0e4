"""What a reviewer sees of a draft: the message, the facts, the draft by sentence, and the handler's text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detent.dispatch.draft import Draft
    from detent.dispatch.draft_queue import QueuedDraft
    from detent.dispatch.sentence_marks import MarkedSentence

HINT = "Some drafts are planted to see how much is noticed. They are never sent; a verdict discloses them."


def entry_of(queued: QueuedDraft) -> dict[str, Any]:
    """A draft of the queue as JSON values."""
    from detent.cli.output import iso

    # Whole seconds: fractions would tell planted drafts from real ones.
    until = None if queued.until is None else iso(round(queued.until))
    return {"id": queued.id, "step": queued.step, "since": iso(round(queued.since)), "until": until}


def screen_plain(queued: QueuedDraft, draft: Draft, known: Iterable[str] = ()) -> dict[str, Any]:
    """The screen as JSON values."""
    marks = {
        place: [item.to_plain() for item in items] for place, items in _marks(draft, tuple(known)).items()
    }
    differences = {place: differences_of(draft, place) for place in draft.written}
    shown = {name: value for name, value in draft.to_plain().items() if name != "effects"}
    return {**entry_of(queued), **shown, "sentences": marks, "differences": differences}


def _marks(draft: Draft, known: Iterable[str]) -> dict[str, list[MarkedSentence]]:
    from detent.dispatch.sentence_marks import marked

    return {
        place: marked(text, draft.own.get(place, ""), draft.facts, known)
        for place, text in draft.written.items()
    }


def differences_of(draft: Draft, place: str) -> list[str]:
    """Where the draft departs from the handler's text, by whole sentences: `+` only here, `-` only there."""
    from detent.dispatch.sentence_marks import sentences

    own, written = sentences(draft.own.get(place, "")), sentences(draft.written[place])
    lines: list[str] = []
    for what, start, end, first, last in SequenceMatcher(None, own, written, autojunk=False).get_opcodes():
        if what != "equal":
            lines += [f"- {sentence}" for sentence in own[start:end]]
            lines += [f"+ {sentence}" for sentence in written[first:last]]
    return lines


def facts_of(draft: Draft) -> dict[str, str]:
    """The facts as lines of a table; the handler's text is shown in its own place."""
    own = {" ".join(text.split()) for text in draft.own.values()}
    lines = {key: _one_line(value) for key, value in _flat(draft.facts)}
    return {key: line for key, line in lines.items() if line and line not in own}


def _flat(value: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, item in value.items():
        pairs += _flat(item, f"{above}{key}.") if isinstance(item, Mapping) else [(f"{above}{key}", item)]
    return pairs


def _one_line(value: Any) -> str:
    from detent.kernel.plain import encode

    text = value if isinstance(value, str) else "" if value is None else encode(value)
    return " ".join(text.split())


def show_screen(queued: QueuedDraft, draft: Draft, known: Iterable[str] = ()) -> None:
    """Print what a person needs to decide, top to bottom."""
    from detent.cli.output import brief, clean, fields, paint, say
    from detent.dispatch.sentence_marks import SentenceMark

    until = f", until {brief(queued.until)}" if queued.until is not None else ""
    say(paint(f"Draft {queued.id}  {clean(queued.step)}  since {brief(queued.since)}{until}", bold=True))
    if draft.answers:
        _heading("MESSAGE")
        _text(draft.answers)
    _heading("FACTS")
    fields((clean(key), clean(line)) for key, line in facts_of(draft).items())
    for problem in draft.problems:
        say(f"REFUSED: {clean(problem)}")
    for place, items in _marks(draft, known).items():
        _heading(f"DRAFT {clean(place)}")
        for item in items:
            new = item.mark is SentenceMark.NEW
            phrases = f"   [{', '.join(map(clean, item.phrases))}]" if item.phrases else ""
            line = f"  {item.mark.value.upper() if new else item.mark.value:<9} {clean(item.text)}"
            known_one = item.mark is SentenceMark.KNOWN
            say(paint(line, "yellow" if new else None, dim=known_one) + paint(phrases, bold=True))
        _heading(f"DIFFERENCES {clean(place)}")
        for line in differences_of(draft, place) or ["none"]:
            say(f"  {clean(line)}")
        _heading(f"HANDLER {clean(place)}")
        _text(draft.own.get(place, "(the handler writes no text here)"))
    say("")


def _heading(text: str) -> None:
    from detent.cli.output import say

    say("")
    say(text)


def _text(text: str) -> None:
    from detent.cli.output import clean, say

    for line in text.splitlines():
        say(f"  {clean(line)}".rstrip())
