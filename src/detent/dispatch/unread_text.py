"""Text for people in effects that an agent asks for before it answers, beside what the handler would write.

Such an effect is performed with the handler's text, or with one that a person has read; where the operator
has said so, with any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from detent.dispatch.agent_tools import FATAL
from detent.dispatch.matching import match, normal
from detent.engine.trial_context import CannotCheck, TrialPaused

if TYPE_CHECKING:
    from detent.dispatch.own_code import OwnCode
    from detent.dispatch.plan import Plan
    from detent.engine.acts import Act
    from detent.engine.outcome import Effect

QUESTION = "May this text be sent?"


class UnreadText(BaseException):
    """An agent was about to send text that nobody has read; no executor may swallow it."""

    def __init__(self, written: dict[str, str], own: dict[str, str]) -> None:
        self.written = written
        """The agent's text, by place."""
        self.own = own
        """The handler's, as far as it has any."""
        super().__init__("nobody has read the text")


class InOwnWords(NamedTuple):
    """Effects of an agent, with the handler's text for people in place of other text."""

    acts: tuple[Act, ...]
    effects: tuple[Effect, ...]
    unread: tuple[Effect, ...]
    """Those of the agent's effects that have text which the handler would not write."""
    written: dict[str, str]
    own: dict[str, str]


async def in_own_words(
    plan: Plan, code: OwnCode, acts: Sequence[Act], effects: Sequence[Effect]
) -> InOwnWords:
    """Put the handler's text into what was performed and is coming: that of its effect of the same tool and
    number.
    """
    places: dict[str, list[str]] = {}
    for place in plan.prose:
        tool, _, argument = place.rpartition(".")
        if tool:
            places.setdefault(tool, []).append(argument)
    if not any(effect.tool in places for effect in (*(act.effect for act in acts), *effects)):
        return InOwnWords(tuple(acts), tuple(effects), (), {}, {})
    handlers = await _handlers(code, acts)
    counts: dict[str, int] = {}
    written: dict[str, str] = {}
    own: dict[str, str] = {}

    def in_words(effect: Effect) -> tuple[Effect, bool]:
        number = counts[effect.tool] = counts.get(effect.tool, 0) + 1
        same = [other for other in handlers if other.tool == effect.tool][number - 1 : number]
        args, unread = dict(effect.args), False
        for argument in places.get(effect.tool, ()):
            text = effect.args.get(argument)
            if not isinstance(text, str) or not text.strip():
                continue
            place = f"{effect.tool}.{argument}" + (f"#{number}" if number > 1 else "")
            if same and isinstance(wanted := same[0].args.get(argument), str):
                args[argument] = own[place] = wanted
            if own.get(place) != text:
                written[place], unread = text, True
        return replace(effect, args=args), unread

    before: list[Act] = []
    for act in acts:
        effect = act.asked or act.effect
        before.append(act._replace(effect=in_words(effect)[0], asked=None) if act.happened else act)
    written.clear()
    coming = [in_words(effect) for effect in effects]
    unread = tuple(effect for effect, (_, is_unread) in zip(effects, coming, strict=True) if is_unread)
    own = {place: text for place, text in own.items() if place in written}
    return InOwnWords(tuple(before), tuple(effect for effect, _ in coming), unread, written, own)


async def _handlers(code: OwnCode, acts: Sequence[Act]) -> list[Effect]:
    """The handler's effects, as far as they are known now."""
    try:
        rehearsed = await code.rehearse()
    except (CannotCheck, TrialPaused):
        return []
    except FATAL:
        raise
    except Exception:  # it fails again where its failure counts
        return []
    receipts = match(code.ctx, code.step, rehearsed.effects, acts).receipts
    return [normal(code.ctx, effect, receipts) or effect for effect in rehearsed.effects]
