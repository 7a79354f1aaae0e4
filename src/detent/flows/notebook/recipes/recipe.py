"""A recipe: what the deterministic generator writes for one behavior of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from detent.flows.notebook.domain.problem import ProblemReading

VARIANTS = 3
"""Variants of a recipe; further iterations write the last one again."""


@dataclass(frozen=True, slots=True)
class RecipeSettings:
    """The settings that generated code depends on."""

    seed: int = 42
    test_size: float = 0.2
    jobs: int = 2
    stability_threshold: float = 0.1
    cell_timeout: float = 300.0


@dataclass(frozen=True, slots=True)
class Kitchen:
    """What a recipe is written from."""

    problem: ProblemReading
    settings: RecipeSettings = RecipeSettings()
    iteration: int = 1
    """1 standard, 2 wider or with the measured cause handled, 3 ensemble or most cautious. A run that comes
    back to a step goes on behind what it tried there."""
    backtracks: int = 0
    """How often the run has gone back for a better model, after a look at the hold-out."""
    missed: Mapping[str, str] = field(default_factory=dict)
    """Criteria without which the run has gone on, beside the thresholds, with what was measured."""
    ran_out: int = 0
    """How many attempts at this step ended because time or memory ran out."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A text cell, a code cell, and an expression for the text about the results."""

    lead: str
    """Markdown: what is done and why."""
    code: str
    """One cell. Its last lines print what a reader wants to see."""
    result: str
    """A Python expression that gives the Markdown about the results, evaluated silently in the kernel after
    the cell: its figures are the kernel's."""


Write: TypeAlias = Callable[[Kitchen], Recipe]
Recipes: TypeAlias = Mapping[str, Write]
"""By step id."""
