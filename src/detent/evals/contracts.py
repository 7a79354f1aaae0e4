"""Contracts: which steps of a definition may follow which, under what condition, with which functions.

A player provides them, so that moves can be checked even where no case spells them out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from detent.kernel.errors import DetentError, nearest
from detent.kernel.guards import Guard, when
from detent.kernel.plain import decode


@dataclass(frozen=True, slots=True)
class StepEdge:
    """One declared edge out of a step."""

    to: str
    when: Mapping[str, Any] | Guard | None = None
    """Condition on the data after the step."""
    reason: str | None = None

    def holds(self, data: Mapping[str, Any]) -> bool:
        """True when the edge may be taken on this data."""
        if self.when is None:
            return True
        return (self.when if isinstance(self.when, Guard) else when(self.when))(data)

    @property
    def keys(self) -> tuple[str, ...]:
        """The dotted keys its condition reads, if the condition is written as data."""
        if not isinstance(self.when, Guard):
            return tuple(self.when or ())
        try:
            condition = decode(self.when.name)
        except ValueError:
            return ()
        return tuple(condition) if isinstance(condition, dict) else ()


@dataclass(frozen=True, slots=True)
class StepContract:
    """What one step may do."""

    name: str
    edges: tuple[StepEdge, ...] = ()
    needs: tuple[str, ...] = ()
    """Dotted keys it requires."""
    functions: tuple[str, ...] | None = None
    """Functions it may call; None: any."""
    aliases: tuple[str, ...] = ()


class DeclaredEdge(Protocol):
    """An edge of a definition."""

    @property
    def to(self) -> str: ...
    @property
    def when(self) -> Mapping[str, Any] | Guard | None: ...
    @property
    def reason(self) -> str | None: ...


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


class DeclaredStep(Protocol):
    """A step of a definition."""

    @property
    def needs(self) -> Sequence[str]: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def available_functions(self) -> Sequence[Named]: ...


class UnknownStep(DetentError):
    """A reference matches no step, or several."""


@dataclass(frozen=True, slots=True)
class Contracts:
    """The steps of one definition and how they may follow each other."""

    steps: Mapping[str, StepContract]
    ends: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    """Ends that may follow every step without being declared: a run can fail anywhere."""
    max_steps: int | None = 10

    @classmethod
    def of(cls, rules: Contracts | Mapping[str, StepContract]) -> Contracts:
        """Contracts from a bare mapping: a target that is not a step is an end."""
        if isinstance(rules, Contracts):
            return rules
        targets = {edge.to for contract in rules.values() for edge in contract.edges}
        return cls(rules, frozenset(targets - set(rules)))

    @classmethod
    def declared(
        cls,
        steps: Mapping[str, DeclaredStep],
        edges: Mapping[str, Sequence[DeclaredEdge]],
        *,
        ends: Collection[str],
        always: Collection[str] = (),
        max_steps: int | None = 10,
        given: Collection[str] = (),
    ) -> Contracts:
        """Contracts from a definition's own steps and edges. `given` lists needs that are always met."""
        return cls(
            {
                name: StepContract(
                    name,
                    tuple(StepEdge(edge.to, edge.when, edge.reason) for edge in edges[name]),
                    tuple(key for key in step.needs if key not in given),
                    tuple(function.name for function in step.available_functions),
                    tuple(step.names),
                )
                for name, step in steps.items()
            },
            frozenset(ends),
            frozenset(always),
            max_steps,
        )

    def resolve(self, reference: str) -> str:
        """The step or end a reference means: its id, an alias, or a beginning that only one step has.

        Raises:
            UnknownStep: it matches no step, or several.
        """
        folded = reference.casefold()
        ends = sorted(self.ends | self.always)
        for name in [*self.steps, *ends]:
            if name.casefold() == folded:
                return name
        named = [
            name
            for name, contract in self.steps.items()
            if folded in (alias.casefold() for alias in contract.aliases)
        ]
        begun = [name for name in self.steps if folded and name.casefold().startswith(folded)]
        candidates = named or begun
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise UnknownStep(f"'{reference}' may mean {' or '.join(candidates)}; write more of it.")
        aliases = [alias for contract in self.steps.values() for alias in contract.aliases]
        known = ", ".join(self.steps) or "none"
        raise UnknownStep(
            f"there is no step '{reference}'.{nearest(reference, [*self.steps, *aliases, *ends])} "
            f"Steps: {known}."
        )
