"""Which effects that an agent had performed are those that the step's own code would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.equivalence import CompareRules, Discrepancy, canonical_value, differences
from detent.engine.acts import Act
from detent.engine.outcome import Effect, Outcome, Receipt, Text
from detent.engine.placeholders import written
from detent.kernel.placeholders import LITERAL, STAND_IN, TEXT, fill, receipts_in
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.engine.context import StepContext
    from detent.engine.step import Step


@dataclass(frozen=True, slots=True)
class Match:
    """The handler's effects beside those that were performed."""

    receipts: Mapping[str, Any]
    """Receipts of the handler's effects that were performed, by the identity of the effect."""
    rest: tuple[Effect, ...]
    """The handler's effects that were not performed, in order."""
    foreign: tuple[Act, ...]
    """Effects that were performed and are none of the handler's."""

    def filled(self, step: Step, outcome: Outcome) -> Outcome:
        """The handler's outcome with the receipts that are known, proposing the rest of its effects."""
        renamed: dict[str, str] = {}
        """Identities of the effects whose arguments change when receipts are filled in."""
        left: list[Effect] = []
        for effect in self.rest:
            args = _part_filled(written(dict(effect.args)), self.receipts, renamed)
            left.append(Effect(effect.tool, args, effect.key))
            renamed[effect.identity(step.name)] = left[-1].identity(step.name)
        return outcome._replace(
            set=_part_filled(written(dict(outcome.set)), self.receipts, renamed),
            append=_part_filled(written(dict(outcome.append)), self.receipts, renamed),
            effects=tuple(left),
        )

    def value(self, value: Any) -> Any:
        """A value of the handler's with the receipts that are known."""
        return _part_filled(written(value), self.receipts, {})


def match(
    ctx: StepContext, step: Step, effects: Sequence[Effect], acts: Sequence[Act], *, ordered: bool = False
) -> Match:
    """Find, for each of the handler's effects, the performed effect that is equal to it.

    `ordered` finds only performed effects that are the beginning of the handler's.
    """
    left = [act for act in acts if act.happened]
    receipts: dict[str, Any] = {}
    rest: list[Effect] = []
    for position, effect in enumerate(effects):
        wanted = normal(ctx, effect, receipts)
        candidates = left[:1] if ordered and not rest else [] if ordered else left
        hit = next(
            (
                act
                for act in candidates
                if wanted is not None
                and not effect_differences(step, [wanted], [normal(ctx, act.asked or act.effect)], position)
            ),
            None,
        )
        if hit is None:
            rest.append(effect)
        else:
            left.remove(hit)
            receipts[effect.identity(step.name)] = hit.receipt
    return Match(receipts, tuple(rest), tuple(left))


def normal(ctx: StepContext, effect: Effect, receipts: Mapping[str, Any] | None = None) -> Effect | None:
    """An effect with its defaults and the receipts it is made from filled in; None while one is unknown."""
    args = written(dict(effect.args))
    if not receipts_in(args) <= set(receipts or ()):
        return None
    args = fill(args, receipts or {})
    if effect.tool not in ctx.tools:
        return Effect(effect.tool, args)
    tool = ctx.tools[effect.tool]
    return Effect(effect.tool, tool.normal(tool.whole(ctx, args)))


def _part_filled(value: Any, receipts: Mapping[str, Any], renamed: Mapping[str, str]) -> Any:
    """A written value with the known receipts filled in and the others as they were."""
    if isinstance(value, dict):
        if LITERAL in value:
            return {name: _part_filled(item, receipts, renamed) for name, item in value[LITERAL].items()}
        if STAND_IN in value:
            key, _, path = str(value[STAND_IN]).partition(".")
            return fill(value, receipts) if key in receipts else Receipt(renamed.get(key, key), path)
        if TEXT in value:
            if receipts_in(value) <= set(receipts):
                return fill(value, receipts)
            return Text(tuple(_part_filled(part, receipts, renamed) for part in value[TEXT]))
        return {name: _part_filled(item, receipts, renamed) for name, item in value.items()}
    return [_part_filled(item, receipts, renamed) for item in value] if isinstance(value, list) else value


BESIDE_OUTPUT = ("/effects", "/append", "/next_state")
"""Where a rule's pointer does not mean a place in the output."""


def placed_rules(step: Step) -> CompareRules:
    """The step's rules, with pointers into the document of a whole side."""
    rules: CompareRules = step.compare or CompareRules()
    return CompareRules(
        tuple(_placed(pointer) for pointer in rules.ignore),
        tuple(_placed(pointer) for pointer in rules.unordered),
        rules.float_rel_tol,
        rules.text,
    )


def _placed(pointer: str) -> str:
    return pointer if pointer.startswith(BESIDE_OUTPUT) else f"/output{pointer}"


def effect_differences(
    step: Step, left: Sequence[Effect | None], right: Sequence[Effect | None], position: int = 0
) -> tuple[Discrepancy, ...]:
    """Where two lists of normal effects differ, by the step's rules; the first one stands at `position`."""
    before = [None] * position
    one, other = (
        {"effects": [*before, *(effect_document(effect) for effect in side)]} for side in (left, right)
    )
    # What may vary in an output by a little may not in an effect: only named places may.
    rules = replace(placed_rules(step), float_rel_tol=0.0, text="exact")
    return differences(one, other, rules)[0]


def effect_document(effect: Effect | None) -> Any:
    """An effect as it is compared."""
    if effect is None:
        return None
    return {"tool": effect.tool, "args": canonical_value(to_plain(effect.args))}
