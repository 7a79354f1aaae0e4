"""Payloads that lead from each example of the state JSON to the next."""

from detent.flows.notebook.payloads.values import (
    Action,
    Actions,
    ArtifactJudged,
    BehaviorPlan,
    BehaviorReflection,
    CriterionJudged,
    Named,
    PcsTexts,
    PlannedStage,
    PlannedStep,
    StagePlan,
    StepPlan,
    Tracking,
)
from detent.flows.notebook.state.apply_transition import read_results

PRODUCED = ("data_inventory_checklist", "raw_dataset")


def _stage(stage_id: str, title: str, *artifacts: str) -> PlannedStage:
    return PlannedStage(
        stage_id, title, f"{title}. Acceptance: rows.", tuple(Named(name) for name in artifacts)
    )


def _step(step_id: str, title: str, *artifacts: str) -> PlannedStep:
    texts = PcsTexts("the source is known", "paths are recorded", "a second read gives the same")
    return PlannedStep(
        step_id, title, f"{title}. Acceptance: rows.", tuple(Named(name) for name in artifacts), texts
    )


PAYLOADS = (
    StagePlan(
        (
            _stage("data_existence_establishment", "Data Existence Establishment", "data_existence_report"),
            _stage("data_integrity_assurance", "Data Integrity Assurance", "df_cleaned"),
            _stage("exploratory_data_analysis", "Exploratory Data Analysis", "eda_summary"),
            _stage("methodology_strategy_formulation", "Methodology", "methodology_document"),
            _stage("model_implementation_execution", "Model Implementation", "final_model"),
            _stage("predictability_validation", "Predictability Validation", "test_performance"),
        ),
        focus="RMSE < 25000, R² > 0.85",
        title="House prices",
    ),
    StepPlan(
        (
            _step("data_collection_inventory", "Data Collection and Initial Inventory", *PRODUCED),
            _step("data_structure_discovery", "Data Structure Discovery", "data_structure_document"),
            _step("variable_semantics_analysis", "Variable Semantics", "variable_analysis_report"),
            _step("observation_unit_identification", "Observation Unit", "observation_unit_report"),
            _step("pcs_hypothesis_formulation", "PCS Hypotheses", "pcs_hypothesis_framework"),
        ),
    ),
    BehaviorPlan(
        "data_collection_inventory_b1",
        "data_collection_inventory",
        "behavior_2_initial_inventory_and_access_check",
        "Perform initial inventory of the submitted file.",
        tuple(Named(name) for name in PRODUCED),
        ("len(raw_dataset) > 0",),
        (Named("user_submit_files", "the paths"),),
    ),
    Actions((Action("add_text", "## Inventory"), Action("add_code", "raw_dataset = pd.read_csv(path)"))),
    BehaviorReflection(
        True,
        tuple(ArtifactJudged(name, "complete") for name in PRODUCED),
        (CriterionJudged("len(raw_dataset) > 0", "passed"),),
        "success",
        "achieved",
        "STEP_COMPLETED",
        "Both artifacts are there.",
        Tracking(PRODUCED),
    ),
)
RESULTS = read_results(
    {
        "outputs": [["数据集成功加载！数据形状：(2930, 82)\n"]],
        "variables": {
            "raw_dataset": "housing dataframe",
            "data_inventory_checklist": "Inventory report for ./assets/housing.csv",
        },
    }
)
