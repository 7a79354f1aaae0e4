"""Every recipe, by the step that it is for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from detent.flows.notebook.domain.catalogue_data import catalogue
from detent.flows.notebook.recipes import closing, data_catalogue, model_catalogue
from detent.flows.notebook.recipes.definitions import with_definitions
from detent.flows.notebook.recipes.preparation import missing_names, with_preparation
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe, Recipes

CLOSING = "step_validation_report"
"""The artifact of the behavior that closes a step."""
_ALL: Recipes = {**data_catalogue.RECIPES, **model_catalogue.RECIPES}
RECIPES: Recipes = {step.id: _ALL[step.id] for stage in catalogue() for step in stage.steps}
"""Every recipe of a working behavior, in the order of the steps."""


def recipe_for(
    step_id: str, kitchen: Kitchen, outputs: Sequence[str], criteria: list[str], defined: Collection[str]
) -> Recipe | None:
    """The recipe of a behavior; None if the step is not in the catalogue.

    `defined` are the names that the accepted cells define. What a recipe counts on and an agent's cells have
    not defined stands before its code.
    """
    if CLOSING in outputs:
        recipe = closing.recipe(kitchen, criteria)
    elif step_id in RECIPES:
        recipe = RECIPES[step_id](kitchen)
    else:
        return None
    if not missing_names(recipe, defined):
        return recipe
    recipe = with_preparation(recipe, list(_codes_before(step_id, kitchen)), defined)
    return with_definitions(recipe, defined, kitchen.settings)


def _codes_before(step_id: str, kitchen: Kitchen) -> Iterator[str]:
    """The code of every step before one, as a first iteration has it."""
    for step, write in RECIPES.items():
        if step == step_id:
            return
        yield write(replace(kitchen, iteration=1)).code
