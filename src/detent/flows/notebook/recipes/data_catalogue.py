"""The recipes of stages 1 to 4 and 8, by step."""

from __future__ import annotations

from dataclasses import replace

from detent.flows.notebook.recipes import (
    communication,
    data_collection,
    data_completeness,
    data_integrity,
    data_relevance,
    deployment,
    exploration,
    insights,
    methodology,
)
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe, Recipes, Write


def _with_remark(write: Write) -> Write:
    """The same recipe; that it is a retry is said in its text."""

    def with_remark(kitchen: Kitchen) -> Recipe:
        recipe = write(kitchen)
        if kitchen.iteration == 1:
            return recipe
        return replace(recipe, lead=f"{recipe.lead}\n\n{REMARKS.get(kitchen.iteration, REMARKS[3])}")

    return with_remark


REMARKS = {
    2: "This is written for the second time, with substitutes where the first attempt could not go on; "
    "each one that is used is printed.",
    3: "This is written in its most cautious form: what cannot be treated is left as it is or substituted, "
    "and each such case is printed.",
}

RECIPES: Recipes = {
    write.__name__: _with_remark(write)
    for write in (
        data_collection.data_collection_inventory,
        data_collection.data_structure_discovery,
        data_collection.variable_semantics_analysis,
        data_relevance.observation_unit_identification,
        data_relevance.relevance_assessment,
        data_relevance.pcs_hypothesis_formulation,
        data_integrity.dimensional_integrity_check,
        data_integrity.value_validity_check,
        data_completeness.completeness_restoration,
        data_completeness.integrity_verification,
        exploration.current_state_assessment,
        exploration.targeted_inquiry,
        insights.insight_extraction,
        insights.eda_consolidation,
        methodology.method_proposal,
        methodology.training_evaluation_strategy,
        methodology.methodology_consolidation,
        communication.technical_documentation,
        communication.executive_summary,
        communication.visualization_package,
        deployment.stakeholder_guidance,
        deployment.deployment_support,
    )
}
