"""The recipes of stages 5, 6 and 7, by step id."""

from __future__ import annotations

from detent.flows.notebook.recipes import modelling
from detent.flows.notebook.recipes.recipe import Recipes

RECIPES: Recipes = {
    "feature_engineering_integration": modelling.feature_engineering_integration,
    "method_integration": modelling.method_integration,
    "model_training_tuning": modelling.model_training_tuning,
}
