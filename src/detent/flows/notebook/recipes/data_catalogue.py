"""The recipes of stages 1 to 4 and 8, by step."""

from __future__ import annotations

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
from detent.flows.notebook.recipes.recipe import Recipes

RECIPES: Recipes = {
    write.__name__: write
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
