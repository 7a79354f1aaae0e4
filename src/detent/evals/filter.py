"""Selects cases by id, category, tag, step or last result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from detent.evals.case import EvalTestCase
from detent.evals.contracts import Contracts, UnknownStep
from detent.evals.played import Player
from detent.evals.references import stated_path


@dataclass(frozen=True, slots=True)
class Filter:
    """Which cases to play; a condition left out matches every case."""

    scenario: str | None = None
    """Part of the id or of the subject."""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """Cases whose path has one of these steps."""
    failed: Collection[str] | None = None
    """Only these ids, of the cases that failed last time."""

    def __bool__(self) -> bool:
        conditions = self.scenario or self.categories or self.tags or self.steps
        return bool(conditions) or self.failed is not None

    def pick(self, cases: Iterable[EvalTestCase], player: Player) -> list[EvalTestCase]:
        """The selected cases, in their order."""
        tests: list[Callable[[EvalTestCase], bool]] = []
        if self.scenario:
            text = self.scenario.casefold()
            tests.append(lambda case: text in case.scenario_id.casefold() or text in case.subject.casefold())
        if self.categories:
            tests.append(lambda case: case.category in self.categories)
        if self.tags:
            tests.append(lambda case: bool(set(self.tags) & set(case.tags)))
        if self.failed is not None:
            failed = frozenset(self.failed)
            tests.append(lambda case: case.scenario_id in failed)
        if self.steps:
            tests.append(lambda case: self._passes(case, player))
        return [case for case in cases if all(test(case) for test in tests)]

    def _passes(self, case: EvalTestCase, player: Player) -> bool:
        declared = player.contracts(case)
        contracts = Contracts.of(declared) if declared is not None else None
        steps: set[str] = set()
        for step in self.steps:
            try:
                steps.add(contracts.resolve(step) if contracts is not None else step)
            except UnknownStep:
                continue  # another case may have other steps
        return bool(steps & set(stated_path(case, contracts)))
