"""Every recipe, by the step that it is for."""

from __future__ import annotations

from detent.flows.notebook.recipes import closing, data_catalogue, model_catalogue
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe

CLOSING = "step_validation_report"
"""The artifact of the behavior that closes a step."""


def recipe_for(step_id: str, kitchen: Kitchen, outputs: list[str], criteria: list[str]) -> Recipe | None:
    """The recipe of a behavior; None if the step is not in the catalogue."""
    if CLOSING in outputs:
        return closing.recipe(kitchen, criteria)
    write = data_catalogue.RECIPES.get(step_id) or model_catalogue.RECIPES.get(step_id)
    return None if write is None else write(kitchen)
