"""A draft: the text for people in an agent's proposal, and what a person has decided about it.

Belongs here: finding and replacing text at the places that a step declares as prose, the hold in which a
draft waits, and the verdict of a person. Does not: which text is used at which level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from detent.dispatch.sentence_marks import claims_of
from detent.engine.outcome import Effect, Receipt, Text
from detent.insight.effect_text import REVIEW
from detent.kernel.plain import digest

if TYPE_CHECKING:
    from detent.dispatch.gate import Side
    from detent.dispatch.plan import Plan
    from detent.engine.step import Step


class DraftVerdict(str, Enum):
    """What became of a draft."""

    APPROVED = "approved"
    EDITED = "edited"
    """A person has changed a claim in it."""
    WORDING = "wording"
    """A person has changed its words, and no claim."""
    HANDLER = "handler"
    """A person has sent the handler's text in its place."""
    UNJUDGED = "unjudged"
    """Nobody has read it; the handler's text was used."""


class DraftFault(str, Enum):
    """Why a person has sent the handler's text in place of a draft."""

    CLAIM = "claim"
    TONE = "tone"
    INCOMPLETE = "incomplete"
    LANGUAGE = "language"
    OTHER = "other"


def texts_of(plan: Plan, side: Side) -> dict[str, str]:
    """The text of a side at each place that is prose; further ones of a place numbered."""
    texts: dict[str, str] = {}
    for place in plan.prose:
        if place.startswith("/"):
            values = [_fields(plan.step, side).get(place[1:])]
        else:
            tool, _, argument = place.rpartition(".")
            values = [effect.args.get(argument) for effect in side.effects if effect.tool == tool]
        for number, value in enumerate(values, 1):
            if isinstance(value, str) and value.strip():
                texts[place if number == 1 else f"{place}#{number}"] = value
    return texts


def with_texts(plan: Plan, side: Side, texts: Mapping[str, str]) -> Side:
    """A side with other text at its places of prose; receipts follow the effects that change by it."""
    step = plan.step
    effects: list[Effect] = []
    renamed: dict[str, str] = {}
    seen: dict[str, int] = {}
    for effect in side.effects:
        number = seen[effect.tool] = seen.get(effect.tool, 0) + 1
        args = dict(effect.args)
        for place in plan.prose:
            tool, _, argument = place.rpartition(".")
            key = place if number == 1 else f"{place}#{number}"
            if not place.startswith("/") and tool == effect.tool and key in texts:
                args[argument] = texts[key]
        effects.append(replace(effect, args=args))
        renamed[effect.identity(step.name)] = effects[-1].identity(step.name)
    fields = {place[1:]: text for place, text in texts.items() if place.startswith("/")}
    changes = _repointed(dict(side.outcome.set), renamed)
    if step.into is not None and isinstance(changes.get(step.into), Mapping):
        changes[step.into] = {**changes[step.into], **fields}
    else:
        changes |= fields
    outcome = side.outcome._replace(
        effects=tuple(effects), set=changes, append=_repointed(dict(side.outcome.append), renamed)
    )
    output = _repointed(side.output, renamed)
    if fields and isinstance(output, Mapping):
        output = {**output, **fields}
    return replace(side, outcome=outcome, output=output, effects=tuple(effects))


def _fields(step: Step, side: Side) -> Mapping[str, Any]:
    changes: Any = side.outcome.set
    if step.into is not None:
        changes = changes.get(step.into)
    return changes if isinstance(changes, Mapping) else {}


def _repointed(value: Any, renamed: Mapping[str, str]) -> Any:
    """A value with the receipts of effects that have other arguments now."""
    if isinstance(value, Receipt):
        return Receipt(renamed.get(value.key, value.key), value.path)
    if isinstance(value, Text):
        return Text(tuple(_repointed(part, renamed) for part in value.parts))
    if isinstance(value, Mapping):
        return {key: _repointed(item, renamed) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_repointed(item, renamed) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Draft:
    """An agent's text at each place of prose, beside the handler's and the facts it was written from."""

    written: Mapping[str, str]
    own: Mapping[str, str]
    """The handler's text."""
    facts: Mapping[str, Any]
    """The step's inputs."""
    language: str | None = None
    problems: Sequence[str] = ()
    """What the hard contract has against a person's edit of it."""
    answers: str = ""
    """The message that it answers."""
    edition: int = 0
    """How often a person has decided on it and was refused."""
    effects: Sequence[Mapping[str, Any]] = ()
    """The effects that hold the text, to check an edit of it."""

    @property
    def hold(self) -> str:
        """Name of the hold in which exactly this draft waits, with these facts beside it."""
        parts = [dict(self.written), dict(self.own), dict(self.facts), self.edition]
        return f"{REVIEW}:{digest(parts, 8)}"

    def to_plain(self) -> dict[str, Any]:
        """As it is kept beside the journal."""
        plain = {
            "draft": dict(self.written), "handler": dict(self.own), "facts": dict(self.facts),
            "language": self.language, "problems": list(self.problems), "answers": self.answers,
            "effects": [dict(effect) for effect in self.effects],
        }  # fmt: skip
        return {name: value for name, value in plain.items() if value}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Draft:
        """Read back what `to_plain` wrote."""
        return cls(
            plain.get("draft") or {}, plain.get("handler") or {}, plain.get("facts") or {},
            plain.get("language"), tuple(plain.get("problems") or ()), str(plain.get("answers") or ""),
            effects=tuple(plain.get("effects") or ()),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Review:
    """A person's decision on a draft, or that there was none in time."""

    verdict: DraftVerdict
    texts: Mapping[str, str]
    """The text to use."""
    because: DraftFault | None = None
    seconds: float | None = None
    """How long the draft was on the screen."""

    @classmethod
    def of(cls, draft: Draft, answer: Any, agents: Mapping[str, str] | None = None) -> Review:
        """The decision that an answer to the hold states; what states none leaves the draft unjudged.

        `agents` is the agent's own text where the draft is a person's edit of it.
        """
        agents = draft.written if agents is None else agents
        said = answer if isinstance(answer, Mapping) else {"verdict": answer}
        kind, texts = said.get("verdict"), said.get("texts")
        seconds = said.get("seconds") if isinstance(said.get("seconds"), int | float) else None
        if kind == "approve":
            return cls(_changed(agents, draft.written), draft.written, None, seconds)
        if kind == "handler" and draft.own:
            because = said.get("because")
            known = because in [fault.value for fault in DraftFault]
            return cls(DraftVerdict.HANDLER, draft.own, DraftFault(because) if known else None, seconds)
        if kind == "edit" and isinstance(texts, Mapping) and set(texts) <= set(draft.written):
            edited = {**draft.written, **{place: str(text) for place, text in texts.items()}}
            return cls(_changed(agents, edited), edited, None, seconds)
        return cls(DraftVerdict.UNJUDGED, draft.own)


def _changed(agents: Mapping[str, str], used: Mapping[str, str]) -> DraftVerdict:
    """What a person has changed in an agent's text."""
    if dict(agents) == dict(used):
        return DraftVerdict.APPROVED
    before, after = (claims_of("\n".join(side.values())) for side in (agents, used))
    return DraftVerdict.WORDING if before == after else DraftVerdict.EDITED
