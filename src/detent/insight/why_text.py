"""The decisions of a run as text, one block each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from detent.insight.agent_text import fallback_words, level_words, verdict_words
from detent.insight.decisions import Alternative, Decision, Performed
from detent.insight.effect_text import REVIEW, answer_text, call_text, calls_of
from detent.insight.formatting import cost, count, short, span, value
from detent.kernel.entries import CONFIRM


def render(decisions: Iterable[Decision]) -> str:
    """The decisions as text, one block each. An effect shown with its move has no block of its own."""
    listed = list(decisions)
    shown = {
        (effect.key, effect.how)
        for decision in listed
        if decision.kind in ("move", "end")
        for effect in decision.effects
    }
    blocks = [
        "\n".join(_block(decision))
        for decision in listed
        if decision.kind != "effect" or (decision.effects[0].key, decision.effects[0].how) not in shown
    ]
    return "\n\n".join(blocks)


UNASKED = ("no_executor", "no_intent", "operator")
"""Reasons of a fallback for which no agent was asked."""
LONGEST = 2000
"""Most characters shown of an error or a validator's reason."""
MOST_CHILDREN = 10
"""Most children listed for one decision; of more, only unsuccessful ones are listed, at most this many."""


def _some(children: Sequence[str]) -> list[str]:
    """The children to show: all of a few; of many, the unsuccessful ones and the total."""
    if len(children) <= MOST_CHILDREN:
        return list(children)
    bad = [child for child in children if not child.endswith(": succeeded")]
    shown = bad[:MOST_CHILDREN] or list(children[:3])
    return [*shown, f"… {len(children):,} in all, {len(bad):,} of them did not succeed"]


def _block(decision: Decision) -> list[str]:
    lines = [f"{decision.seq}  {_headline(decision)}"]

    def say(label: str, text: str) -> None:
        lines.append(f"     {label:<13}{text}")

    if decision.reason and decision.kind not in ("fallback", "hold"):
        say("because", short(decision.reason, 200))
    if decision.question:
        say("asked", short(decision.question, 200))
    if decision.kind == "hold" and (about := _about(decision)):
        say("about", about)
    if decision.kind not in ("fallback", "effect", "verdict"):
        say("decided by", _maker(decision))
        for record in (decision.detail or {}).get("then", ()):
            say("then", _further(record))
            if record.get("fallback_used"):
                for label, text in _replaced(record):
                    say(label, text)
                if error := record.get("agent_error"):
                    say("agent error", short(error_text(error), LONGEST))
            elif "output" in (agent := record.get("agent") or {}):
                say("it answered", value(agent["output"], 160))
    if decision.kind == "verdict":
        say("judged by", _person(decision.by))
    if decision.kind == "fallback":
        for label, text in _replaced(decision.detail or {}):
            say(label, text)
    for failure in decision.failures:
        heard = "no agent" if decision.reason in UNASKED else "agent error"
        if decision.kind == "fallback":
            say(heard, short(failure, LONGEST))
        else:
            say("failed first", short(failure, LONGEST))
    for look in decision.looked:
        say("looked at", f"{call_text(look.tool, look.args)} → {value(look.answer, 100)}")
    for change in decision.changed:
        if change.before == change.after and not change.added and change.before is not None:
            continue
        if change.added:
            say("added", f"{change.key} + {value(change.after, 100)}")
        else:
            was = f" (was {value(change.before, 40)})" if change.before is not None else ""
            say("set", f"{change.key} = {value(change.after, 100)}{was}")
    for effect in decision.effects:
        say("effect", _effect_line(effect, decision.by))
    for child in _some(decision.children):
        say("child", child)
    if decision.kind == "hold" and not decision.answered:
        if decision.alternatives:
            choices = ", ".join(choice.to for choice in decision.alternatives)
            lines.append(f"     open question, choices: {choices}")
        return lines
    for other in decision.alternatives:
        say("instead of", _alternative_line(other, decision))
    return lines


def _further(record: Mapping[str, Any]) -> str:
    """Who performed a further step of the visit."""
    if record.get("fallback_used"):
        by = f"the handler, not the agent: {fallback_words(record)}"
    elif record.get("mode_used") == "agent":
        by = f"the agent ({level_words(record)})"
    else:
        by = "the handler"
    return f"{record.get('step')}, by {by}"


def _about(decision: Decision) -> str:
    """The effect that a hold is about, if it is about one."""
    detail = decision.detail or {}
    return call_text(str(detail["tool"]), detail.get("args"), 200) if "tool" in detail else ""


def _replaced(detail: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The agent that was replaced, its last word, and where that differed or why it was rejected."""
    agent = detail.get("agent") or {}
    if agent:
        level = level_words(detail)
        yield "agent", ", ".join(str(part) for part in (agent.get("model_id"), level) if part)
    elif "lowered" in detail:
        yield "level", level_words(detail)
    calls = calls_of(agent)
    for tool, args in calls:
        yield "it asked for", call_text(tool, args)
    if agent.get("output") is not None and not calls:
        yield "it answered", value(agent["output"], 160)
    places = [str(at.get("pointer") or "the whole") for at in detail.get("validation_details") or ()]
    if places == ["the whole"] and detail.get("did_not_act"):
        yield "differed in", "that it did not act, and the handler does"
    elif places:
        more = detail.get("more_details", 0) + max(0, len(places) - 8)
        yield "differed at", ", ".join(places[:8]) + (f" and {more} more" if more else "")
    for reason in detail.get("verdict") or ():
        yield "refused for", short(str(reason), LONGEST)


def error_text(error: Any) -> str:
    """An agent's error from a dispatch record."""
    if isinstance(error, Mapping) and "type" in error:
        return f"{error['type']}: {error['message']}" if error.get("message") else str(error["type"])
    return error if isinstance(error, str) else value(error, 200)


def _gate(decision: Decision) -> str:
    """The check that an agent's answer had to pass, if known."""
    checks = {
        "compare": "the handler gave the same result", "validator": "passed by the step's validator",
        "contract": "checked against its contract only", "none": "accepted as it was",
    }  # fmt: skip
    detail = decision.detail or {}
    level, check = level_words(detail), detail.get("check")
    if decision.by == "agent" and (read := _draft_words(detail.get("draft") or {})):
        return f"{level}: {read}"
    return f"{level}: {checks[check]}" if decision.by == "agent" and level and check in checks else ""


_DRAFTS = {
    "approved": "draft approved", "edited": "draft used with other claims", "wording": "draft reworded",
    "handler": "the handler's text used in place of the draft",
    "unjudged": "the handler's text used, for nobody has read the draft",
}  # fmt: skip


def _draft_words(draft: Mapping[str, Any]) -> str:
    """What became of an agent's text for people, who decided and how long they looked at it."""
    words = _DRAFTS.get(str(draft.get("verdict")), "")
    if words and draft.get("by"):
        words += f" by {draft['by']}"
    if words and draft.get("because"):
        words += f" ({draft['because']})"
    if words and draft.get("seconds") is not None:
        words += f", {span(draft['seconds'])} on the screen"
    return words


def _headline(decision: Decision) -> str:
    if decision.kind == "hold":
        if (decision.detail or {}).get("tool") and decision.reason == f"waits for {CONFIRM}":
            return f"{decision.state}  waits for a person's word"
        return f"{decision.state}  {decision.reason} '{decision.to}'"
    if decision.kind == "fallback":
        how = "fell back to the handler" if decision.to else "the agent was stopped after it had acted"
        return f"{decision.state}  {how}: {fallback_words(decision.detail or {'reason': decision.reason})}"
    if decision.kind == "verdict":
        return f"{decision.state}  {verdict_words({**(decision.detail or {}), 'why': None})}"
    if decision.kind == "effect":
        return f"{decision.state}  effect {decision.to}"
    if decision.kind in ("cancellation", "migration", "fork", "reopening"):
        return f"{decision.state}  {decision.kind}" + (f" → {decision.to}" if decision.to else "")
    text = f"{decision.state} → {decision.to}" if decision.to is not None else decision.state
    if decision.event:
        text += f" on {decision.event}"
    return text + (f"  (run {decision.status})" if decision.status else "")


def _maker(decision: Decision) -> str:
    if decision.kind == "hold":
        if not decision.answered:
            return "nobody yet"
        told = decision.answer is not None and decision.reason != f"waits for {REVIEW}"
        answer = f": {answer_text(decision.answer)}" if told else ""
        return f"{decision.by}{answer}, after {span(decision.duration)}"
    gate = _gate(decision)
    parts = [f"{decision.by} ({gate})" if gate else decision.by]
    if decision.attempts > 1:
        parts.append(count(decision.attempts, "attempt"))
    if decision.kind in ("move", "end"):
        parts.append(span(decision.duration))
    parts.append(cost(decision.spend))
    return ", ".join(part for part in parts if part)


def _effect_line(effect: Performed, by: str) -> str:
    text = f"{call_text(effect.tool, effect.args)} {_fate(effect)}"
    if effect.receipt is not None:
        text += f"{':' if effect.how == 'told' else ' →'} {value(effect.receipt, 80)}"
    if effect.proposed_by in ("agent", "handler") and by in ("agent", "handler") and effect.proposed_by != by:
        text += f"; asked for by the {effect.proposed_by}"
    if effect.asked is not None:
        text += f"; edited by {_person(effect.by)}, from {value(effect.asked, 80)}"
    failures = effect.failures[:-1] if effect.how == "failed" else effect.failures
    if failures:
        text += f"; {count(len(failures), 'failure')} first: {short(failures[-1], 80)}"
    return text


def _fate(effect: Performed) -> str:
    """What became of an effect: `performed`, `denied by Ann: not today`, `failed: busy`."""
    if effect.how == "told":
        return "confirmed by a person"
    reason = effect.failures[-1] if effect.how == "failed" and effect.failures else effect.reason
    by = f" by {_person(effect.by)}" if effect.how in ("denied", "skipped") and effect.by != "engine" else ""
    return effect.how + by + (f": {short(reason, 100)}" if reason else "")


def _person(by: str | None) -> str:
    return "a person" if by in (None, "person") else str(by)


def _alternative_line(other: Alternative, decision: Decision) -> str:
    text = other.to
    if other.event:
        text += f" on {other.event}"
    if other.when:
        text += f" when {short(other.when, 80)}"
        if other.held is not None:
            text += " (held too)" if other.held else " (did not hold)"
    return text
