"""The handler of a step without Python code: makes queries, chooses the first edge that holds, proposes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from detent.authoring.templates import ABSENT, Values, filled, values_of
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome, Receipt
from detent.flows.playbook.functions import look_up
from detent.flows.playbook.instruction import DEGRADED, Edge, EffectDeclaration, InstructionFile, Variant
from detent.flows.playbook.templates import TemplateSet
from detent.kernel.guards import when
from detent.kernel.plain import digest, to_plain

NO_EDGE = "no_edge"

Arguments = Callable[[StepContext], Mapping[str, Any]]
"""Returns the default arguments of an effect."""

Further = Mapping[str, Callable[[Mapping[str, Any]], Any]]
"""Further values that texts may insert besides the data, by name, each computed from the data."""


class EffectWriter:
    """Makes effects of declarations: default arguments, templates, declared arguments."""

    def __init__(
        self,
        templates: TemplateSet,
        arguments: Mapping[str, Mapping[str, Any] | Arguments],
        further: Further | None = None,
    ) -> None:
        self.templates = templates
        self.arguments = arguments
        self.further = further or {}

    def values(self, data: Mapping[str, Any]) -> Values:
        """The values that texts may insert: the run's data first, then the further values."""
        own, further = values_of(data), self.further

        def value(key: str) -> Any:
            own_value = own(key)
            return (
                further[key](data)
                if (own_value is ABSENT or own_value is None) and key in further
                else own_value
            )

        return value

    def args(
        self,
        ctx: StepContext,
        declared: EffectDeclaration,
        variants: tuple[Variant, ...],
        data: Mapping[str, Any],
        receipts: Mapping[str, Receipt],
        where: str,
    ) -> dict[str, Any]:
        """The arguments of one effect."""
        values = with_receipts(self.values(data), receipts)
        usual = self.arguments.get(declared.function, {})
        args: dict[str, Any] = dict(usual(ctx)) if callable(usual) else filled(usual, values, where)
        for argument, name in declared.templates.items():
            args[argument] = self.templates.render(name, variants, data, values)
        args.update(filled(dict(declared.args), values, where))
        return args


class DeclaredHandler:
    """Does what a step file's `call`, `next` and `effects` say."""

    def __init__(self, step: InstructionFile, edges: tuple[Edge, ...], writer: EffectWriter) -> None:
        self.step = step
        self.edges = edges
        """With canonical targets."""
        self.writer = writer
        self._mark = digest(
            to_plain(
                [[query.args, query.into, query.function, query.when, query.otherwise] for query in step.call]
            )
            + to_plain(
                [
                    [effect.args, effect.into, effect.function, effect.when, effect.templates]
                    for effect in step.effects
                ]
            ),
            12,
        )

    def __repr__(self) -> str:
        # Changes with what the file says: evidence about an agent is kept by it.
        return f"DeclaredHandler({self.step.id}, {self._mark})"

    async def __call__(self, ctx: StepContext) -> Outcome:
        changes = await self.called(ctx)
        data: Mapping[str, Any] = ChainMap(changes, ctx.data)  # type: ignore[arg-type]
        edge = first_edge(self.edges, data)
        if edge is None:
            return Outcome(DEGRADED, set=changes, reason=NO_EDGE)
        receipts: dict[str, Receipt] = {}
        for declared in self.step.effects:
            if declared.when is not None and not when(declared.when)(data):
                continue
            where = f"step {self.step.id}, {declared.path}"
            args = self.writer.args(ctx, declared, self.step.variant, data, receipts, where)
            receipt = receipts[declared.function] = ctx.propose(declared.function, **args)
            changes |= received(declared.into, receipt)
        return Outcome(edge.to, set=changes)

    async def called(self, ctx: StepContext) -> dict[str, Any]:
        """The answers of its calls, by the keys that take them."""
        changes: dict[str, Any] = {}
        data: Mapping[str, Any] = ChainMap(changes, ctx.data)  # type: ignore[arg-type]
        for call in self.step.call:
            where = f"step {self.step.id}, {call.path}"
            if call.when is None or when(call.when)(data):
                args = filled(dict(call.args), values_of(data), where)
                changes[call.into] = await look_up(ctx, call.function, **args)
            elif call.has_otherwise:
                changes[call.into] = filled(call.otherwise, values_of(data), where)
        return changes


def first_edge(edges: tuple[Edge, ...], data: Mapping[str, Any]) -> Edge | None:
    """The first edge whose condition holds."""
    return next((edge for edge in edges if edge.when is None or when(edge.when)(data)), None)


def received(into: Mapping[str, str], receipt: Receipt) -> dict[str, Any]:
    """The data a receipt gives, known once the effect is performed."""
    return {key: Receipt(receipt.key, path) for key, path in into.items()}


def with_receipts(values: Values, receipts: Mapping[str, Receipt]) -> Values:
    """Values in which `function.part` means the receipt of an effect proposed before."""

    def value(key: str) -> Any:
        function, _, part = key.partition(".")
        for name in (function, *(name for name in receipts if key.startswith(f"{name}."))):
            if name in receipts:
                part = key[len(name) :].lstrip(".")
                return Receipt(receipts[name].key, part)
        return values(key)

    return value
