"""The recipes of stages 5, 6 and 7, by step."""

from __future__ import annotations

from detent.flows.notebook.recipes import (
    impact,
    modelling,
    stability,
    stability_verdict,
    tuning,
    validation,
)
from detent.flows.notebook.recipes.recipe import Recipes

RECIPES: Recipes = {
    write.__name__: write
    for write in (
        modelling.feature_engineering_integration,
        modelling.method_integration,
        tuning.model_training_tuning,
        validation.cross_validation_assessment,
        validation.holdout_evaluation,
        validation.temporal_validation,
        validation.domain_generalization,
        impact.business_impact_assessment,
        stability.data_perturbation_testing,
        stability.parameter_sensitivity,
        stability_verdict.multi_variation_analysis,
        stability_verdict.stability_consolidation,
    )
}
