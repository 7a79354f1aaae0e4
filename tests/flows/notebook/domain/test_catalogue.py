"""The catalogue plans every problem: N-19 to N-21, N-24 to N-27, N-96."""

import ast
import builtins
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from detent.flows.notebook.domain.catalogue import (
    arrange,
    closing_criteria,
    criteria_of_stage,
    criteria_of_step,
    locked_criteria,
    plan_stages,
    plan_steps,
    problem_thresholds,
    producer_of,
    stage_of_step,
)
from detent.flows.notebook.domain.catalogue_data import USER_INPUTS, VALIDATION_REPORT, catalogue, find_step
from detent.flows.notebook.domain.problem import TableFacts, TableFormat, Threshold
from detent.flows.notebook.domain.stability import Stability
from detent.kernel.errors import ConfigurationError
from tests.flows.notebook.domain.made_notebook import RMSE, number_table, reading_of

R2 = Threshold("r2", ">", 0.85)
WITH = reading_of(thresholds=[RMSE, R2])
WITHOUT = reading_of()
STEPS = [step for stage in catalogue() for step in stage.steps]
KNOWN = {"os", "math", "json", "Path", "np", "pd", "joblib"}

CONTRACT = {
    "data_existence_establishment": (
        "data_existence_report data_structure_document variable_analysis_report pcs_hypothesis_framework",
        "data_collection_inventory data_structure_discovery variable_semantics_analysis"
        " observation_unit_identification relevance_assessment pcs_hypothesis_formulation",
    ),
    "data_integrity_assurance": (
        "df_cleaned data_quality_report processing_pipeline_doc integrity_verification_report",
        "dimensional_integrity_check value_validity_check completeness_restoration integrity_verification",
    ),
    "exploratory_data_analysis": (
        "eda_summary correlation_matrix distribution_analysis modeling_recommendations",
        "current_state_assessment targeted_inquiry insight_extraction eda_consolidation",
    ),
    "methodology_strategy_formulation": (
        "feature_engineering_strategy model_method_candidates evaluation_framework methodology_document",
        "method_proposal training_evaluation_strategy methodology_consolidation",
    ),
    "model_implementation_execution": (
        "feature_pipeline trained_models final_model training_history best_params models/model.pkl",
        "feature_engineering_integration method_integration model_training_tuning",
    ),
    "predictability_validation": (
        "cv_scores test_performance temporal_validation_report domain_generalization_report"
        " business_impact_report",
        "cross_validation_assessment holdout_evaluation temporal_validation domain_generalization"
        " business_impact_assessment",
    ),
    "stability_assessment": (
        "perturbation_test_results sensitivity_analysis_report stability_metrics stability_certification"
        " improvement_recommendations",
        "data_perturbation_testing parameter_sensitivity multi_variation_analysis stability_consolidation",
    ),
    "results_communication": (
        "technical_documentation executive_summary visualization_package implementation_guide model_card",
        "technical_documentation executive_summary visualization_package stakeholder_guidance"
        " deployment_support",
    ),
}


class TestContract:
    def test_stages_steps_and_stage_artifacts_are_those_of_the_contract(self):
        assert {
            stage.id: (" ".join(stage.artifacts), " ".join(step.id for step in stage.steps))
            for stage in catalogue()
        } == CONTRACT
        assert len(STEPS) == 34

    def test_every_stage_artifact_is_made_by_one_of_its_steps(self):
        for stage in catalogue():
            made = {artifact.name for step in stage.steps for artifact in step.artifacts}
            assert set(stage.artifacts) <= made, stage.id

    def test_every_text_is_there_and_no_two_considerations_are_alike(self):
        considerations = [
            text
            for step in STEPS
            for text in (step.pcs.predictability, step.pcs.computability, step.pcs.stability)
        ]
        assert len(set(considerations)) == len(considerations) == 3 * 34
        for step in STEPS:
            texts = [step.title, step.goal, step.task, *(artifact.text for artifact in step.artifacts)]
            assert all(text.strip() for text in texts), step.id
        assert all(len(text) > 30 for text in considerations)

    def test_agents_are_those_that_prompts_know(self):
        agents = {step.agent for step in STEPS}
        assert agents <= {"Define", "Explore", "Validate", "Model", "Evaluate", "PCS", "Report"}

    def test_what_a_step_requires_was_produced_before(self):
        produced = set(USER_INPUTS)
        for step in STEPS:
            assert step.requires, step.id
            assert set(step.requires) <= produced, step.id
            produced |= {artifact.name for artifact in step.artifacts}

    def test_what_a_stage_requires_is_an_artifact_of_an_earlier_stage(self):
        produced = set(USER_INPUTS)
        for stage in catalogue():
            assert set(stage.requires) <= produced, stage.id
            produced |= set(stage.artifacts)

    def test_every_artifact_has_one_producer(self):
        names = [artifact.name for step in STEPS for artifact in step.artifacts]
        assert len(set(names)) == len(names)
        assert producer_of("final_model") == "model_training_tuning"
        assert producer_of("models/model.pkl") == "model_training_tuning"
        assert stage_of_step("model_training_tuning") == "model_implementation_execution"
        assert producer_of("something") is stage_of_step("somewhere") is None


class TestStagePlans:
    def test_the_report_is_left_out_when_it_is_not_wanted(self):
        assert len(plan_stages(WITH).stages) == 8
        plan = plan_stages(WITH, report=False)
        assert len(plan.stages) == 7
        assert plan.stages[-1].id == "stability_assessment"

    def test_only_the_report_is_optional(self):
        assert [stage.id for stage in plan_stages(WITH).stages if stage.optional] == ["results_communication"]

    def test_goals_name_artifacts_and_acceptance(self):
        for stage in plan_stages(WITHOUT).stages:
            artifacts = ", ".join(artifact.name for artifact in stage.verified_artifacts)
            assert f"Artifacts: {artifacts}. Acceptance: " in stage.goal
            assert all(artifact.text for artifact in (*stage.verified_artifacts, *stage.required_variables))

    def test_thresholds_stand_in_the_focus_and_where_they_are_judged(self):
        """N-21."""
        plan = plan_stages(WITH)
        goals = {stage.id: stage.goal for stage in plan.stages}
        assert plan.focus.startswith("RMSE < 40; R2 > 0.85")
        assert 'cv_metrics["rmse"] < 40.0; cv_metrics["r2"] > 0.85' in goals["model_implementation_execution"]
        assert 'test_performance["rmse"] < 40.0; test_performance["r2"]' in goals["predictability_validation"]
        others = [goal for id, goal in goals.items() if id not in ("model_implementation_execution",
                                                                  "predictability_validation")]  # fmt: skip
        assert not any("rmse" in goal for goal in others)

    def test_without_thresholds_the_baseline_is_the_limit(self):
        assert locked_criteria(WITHOUT, "cv_metrics") == ('cv_metrics["rmse"] < training_history[0]["rmse"]',)
        assert locked_criteria(WITHOUT, "test_performance") == ()
        classes = reading_of("classification")
        assert "balanced_accuracy" in locked_criteria(classes, "cv_metrics")[0]
        assert problem_thresholds(classes) == [
            {"metric": "balanced_accuracy", "comparison": ">", "value": "baseline"}
        ]
        assert "better than the baseline" in plan_stages(WITHOUT).focus

    def test_large_limits_keep_all_their_digits(self):
        reading = reading_of(thresholds=[Threshold("mse", "<", 1234567.25)])
        assert locked_criteria(reading, "cv_metrics") == ('cv_metrics["mse"] < 1234567.25',)
        assert "MSE < 1234567.25" in plan_stages(reading).focus


class TestStepPlans:
    @pytest.mark.parametrize("stage_id", CONTRACT)
    @pytest.mark.parametrize("profile", ["compact", "full"])
    def test_each_stage_has_three_to_seven_steps_that_make_its_artifacts(self, stage_id, profile):
        """N-24, N-25."""
        steps = plan_steps(stage_id, WITH, profile).steps
        made = {artifact.name for step in steps for artifact in step.verified_artifacts}
        assert 3 <= len(steps) <= 7
        assert set(CONTRACT[stage_id][0].split()) <= made
        for step in steps:
            assert "Acceptance: " in step.goal
            assert step.required_variables
            assert step.pcs_considerations.predictability

    def test_the_last_step_ends_with_a_report_in_full_every_one(self):
        def reports(profile):
            plans = [plan_steps(stage_id, WITH, profile) for stage_id in CONTRACT]
            return sum(
                step.verified_artifacts[-1].name == VALIDATION_REPORT for plan in plans for step in plan.steps
            )

        assert (reports("compact"), reports("full")) == (8, 34)

    def test_thresholds_are_in_the_focus_of_the_stages_that_judge_them(self):
        assert "RMSE < 40" in plan_steps("predictability_validation", WITH).focus
        assert "RMSE" not in plan_steps("exploratory_data_analysis", WITH).focus

    def test_an_unknown_stage_is_refused(self):
        with pytest.raises(ConfigurationError):
            plan_steps("cleaning", WITH)

    def test_stability_is_required_of_tables_that_are_large_enough(self):
        small = TableFacts("assets/t.csv", TableFormat("csv"), 199, ("a", "price"))
        reading = WITH.__class__(problem="", table=small, target="price", task="regression")
        assert criteria_of_stage("stability_assessment", WITH) == (
            'stability_metrics["variation_coefficient"] < 0.1',
        )
        (criterion,) = criteria_of_stage("stability_assessment", WITH, stability=Stability(0.05))
        assert criterion.endswith("< 0.05")
        assert criteria_of_stage("stability_assessment", reading)[0].endswith(">= 0")
        asked_for, waived = Stability(required=True), Stability(required=False)
        assert criteria_of_stage("stability_assessment", reading, stability=asked_for)[0].endswith("< 0.1")
        assert criteria_of_stage("stability_assessment", WITH, stability=waived)[0].endswith(">= 0")


class TestBehaviors:
    def test_the_first_behavior_makes_everything_but_the_report(self):
        """N-27, N-30."""
        plan = arrange("holdout_evaluation", 1, {"test_performance"}, WITH)
        assert (plan.behavior_id, plan.agent) == ("holdout_evaluation_b1", "Evaluate")
        assert [output.name for output in plan.outputs] == ["test_performance"]
        assert plan.acceptance == (
            'test_performance["rmse"] < 40.0',
            'test_performance["r2"] > 0.85',
            'test_performance["n"] == len(y_test)',
        )
        assert {named.name for named in plan.inputs} == set(find_step("holdout_evaluation").requires)
        assert not plan.effects

    def test_a_further_behavior_makes_what_is_missing(self):
        plan = arrange("model_training_tuning", 3, {"best_params", VALIDATION_REPORT}, WITH)
        assert [output.name for output in plan.outputs] == ["best_params"]
        assert plan.effects

    def test_a_stage_s_last_step_is_closed_by_its_criteria(self):
        plan = arrange("integrity_verification", 2, {VALIDATION_REPORT}, WITH)
        assert (plan.agent, plan.task) == ("PCS", "validation_and_acceptance")
        assert [output.name for output in plan.outputs] == [VALIDATION_REPORT]
        assert plan.acceptance[0] == "df_cleaned.isnull().sum().sum() == 0"
        assert plan.acceptance[1] == f"len({VALIDATION_REPORT}) >= 1"

    def test_in_full_every_step_is_closed_by_its_own(self):
        plan = arrange("method_integration", 2, {VALIDATION_REPORT}, WITH, "full")
        assert plan.acceptance == ("len(trained_models) >= 3", f"len({VALIDATION_REPORT}) >= 1")
        criteria = closing_criteria("model_training_tuning", WITH, "full")
        assert criteria[:2] == locked_criteria(WITH, "cv_metrics")
        assert len(criteria) == 4

    def test_nothing_missing_and_nothing_to_close_repeats_the_step(self):
        plan = arrange("method_integration", 2, set(), WITH)
        assert {output.name for output in plan.outputs} == {"trained_models", "training_history"}

    def test_an_unknown_step_is_refused(self):
        with pytest.raises(ConfigurationError):
            arrange("cleaning", 1, set(), WITH)


# -- each criterion has a wrong value on which it fails (N-96) ----------------------------------------------


def names_in(criterion):
    tree = ast.parse(criterion, mode="eval")
    bound = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return used - bound - set(dir(builtins)) - KNOWN


def all_criteria():
    criteria = {}
    for stage in catalogue():
        for step in stage.steps:
            criteria.update(dict.fromkeys(criteria_of_step(step.id, WITH), step.id))
        criteria.update(dict.fromkeys(criteria_of_stage(stage.id, WITH), stage.steps[-1].id))
    criteria.update(dict.fromkeys(locked_criteria(WITHOUT, "cv_metrics"), "model_training_tuning"))
    return criteria


def test_criteria_use_only_what_exists_when_they_are_judged():
    produced = set(USER_INPUTS)
    by_step = {}
    for step in STEPS:
        produced |= {artifact.name for artifact in step.artifacts}
        by_step[step.id] = set(produced)
    for criterion, step_id in all_criteria().items():
        assert len(criterion) <= 500
        assert names_in(criterion) <= by_step[step_id], criterion
        assert names_in(criterion) or 'Path("' in criterion, criterion


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    (folder / "models").mkdir()
    (folder / "outputs").mkdir()
    (folder / "t.csv").write_text("a,price\n1,2\n")
    (folder / "chart.png").write_bytes(b"x" * 2000)
    (folder / "blank.png").write_bytes(b"x")
    (folder / "outputs/predict.py").write_text("pass")
    return folder


@pytest.fixture
def good(folder, monkeypatch):
    """Values with which every criterion passes."""
    monkeypatch.chdir(folder)
    table = number_table(60)
    features, target = table[["a", "b"]], table["price"]
    model = Ridge().fit(features[:40], target[:40])
    joblib.dump(model, "models/model.pkl")
    figures = {"rmse": 30.0, "r2": 0.9}
    return {
        "np": np, "pd": pd, "joblib": joblib, "Path": Path,
        "user_submit_files": ["t.csv"],
        "raw_dataset": table, "df_typed": table, "df_cleaned": table, "target_column": "price",
        "task_type": "regression",
        "data_inventory_checklist": {"bytes": 12},
        "data_structure_document": {"dtypes": dict.fromkeys(table.columns, "float64")},
        "observation_unit_report": {"rows": 60},
        "relevance_report": {"usable_features": ["a"], "dates": [], "groups": []},
        "pcs_hypothesis_framework": dict.fromkeys(("predictability", "computability", "stability"), "x"),
        "distribution_analysis": {"a": 1},
        "correlation_matrix": table.corr(),
        "eda_insights": ["x", "y", "z"],
        "eda_charts": ["chart.png"] * 6,
        "feature_engineering_strategy": {"numeric": ["a"]},
        "model_method_candidates": ["x", "y", "z"],
        "problem_thresholds": [], "evaluation_framework": {"thresholds": [], "folds": 5},
        "methodology_document": "x" * 300,
        "X_train": features[:40], "X_test": features[40:], "y_test": target[40:],
        "leakage_report": {"leaks": []},
        "trained_models": {"x": 1, "y": 2, "z": 3},
        "training_history": [{"rmse": 60.0}],
        "final_model": model, "cv_metrics": dict(figures),
        "cv_scores": [1.0] * 5, "test_performance": {**figures, "n": 20},
        "temporal_validation_report": {"applicable": False},
        "domain_generalization_report": {"applicable": False},
        "business_impact_report": {"beats_baseline": True},
        "perturbation_test_results": [1.0] * 10, "sensitivity_analysis_report": {"alpha": [1.0]},
        "stability_metrics": {"variation_coefficient": 0.02}, "stability_certification": {"certified": True},
        "technical_documentation": "x" * 600, "executive_summary": "x" * 300,
        "visualization_package": dict.fromkeys([f"./{'./' * n}chart.png" for n in range(8)], "x"),
        "model_card": "# Limitations",
    }  # fmt: skip


RELOADED = (
    '(joblib.load("models/model.pkl").predict(X_train.head(50)) == '
    "final_model.predict(X_train.head(50))).all()"
)
INFINITE = pd.DataFrame({"a": [np.inf, 1.0], "price": [1.0, 2.0]})
GAPS = pd.DataFrame({"a": [1.0, None], "price": [None, 2.0]})
WRONG = {
    "len(raw_dataset) > 0": {"raw_dataset": pd.DataFrame(columns=["a", "b"])},
    "raw_dataset.shape[1] >= 2": {"raw_dataset": pd.DataFrame({"a": [1]})},
    'data_inventory_checklist["bytes"] == Path(user_submit_files[0]).stat().st_size': {
        "data_inventory_checklist": {"bytes": 13}
    },
    'set(data_structure_document["dtypes"]) == set(raw_dataset.columns)': {
        "data_structure_document": {"dtypes": {"a": "float64"}}
    },
    "target_column in raw_dataset.columns": {"target_column": "cost"},
    'task_type in ("regression", "classification")': {"task_type": "clustering"},
    'observation_unit_report["rows"] == len(raw_dataset)': {"observation_unit_report": {"rows": 59}},
    'len(relevance_report["usable_features"]) >= 1': {"relevance_report": {"usable_features": []}},
    '{"predictability", "computability", "stability"} <= set(pcs_hypothesis_framework)': {
        "pcs_hypothesis_framework": {"predictability": "x", "stability": "x"}
    },
    "df_cleaned.isnull().sum().sum() == 0": {"df_cleaned": GAPS},
    "df_typed.columns.is_unique": {"df_typed": pd.DataFrame([[1, 2]], columns=["a", "a"])},
    "len(df_typed) >= 0.95 * len(raw_dataset.drop_duplicates())": {"df_typed": number_table(6)},
    "df_typed.isin([np.inf, -np.inf]).sum().sum() == 0": {"df_typed": INFINITE},
    "df_typed[target_column].notna().all()": {"df_typed": GAPS},
    "df_cleaned[target_column].equals(df_typed.loc[df_cleaned.index, target_column])": {
        "df_cleaned": number_table(60) * 1.01
    },
    "len(eda_charts) >= 6": {"eda_charts": ["chart.png"] * 5},
    "len(distribution_analysis) >= 1": {"distribution_analysis": {}},
    "correlation_matrix.shape[0] == correlation_matrix.shape[1]": {"correlation_matrix": number_table(2)},
    "len(eda_insights) >= 3": {"eda_insights": ["x", "y"]},
    "all(Path(p).stat().st_size > 1000 for p in eda_charts)": {"eda_charts": ["chart.png", "blank.png"]},
    "len(model_method_candidates) >= 3": {"model_method_candidates": ["x"]},
    "len(feature_engineering_strategy) > 0": {"feature_engineering_strategy": {}},
    'evaluation_framework["thresholds"] == problem_thresholds': {"problem_thresholds": [{"metric": "rmse"}]},
    "len(methodology_document) > 200": {"methodology_document": "short"},
    'cv_metrics["rmse"] < 40.0': {"cv_metrics": {"rmse": 40.0}},
    'cv_metrics["r2"] > 0.85': {"cv_metrics": {"r2": 0.85}},
    'cv_metrics["rmse"] < training_history[0]["rmse"]': {"training_history": [{"rmse": 30.0}]},
    'not leakage_report["leaks"]': {"leakage_report": {"leaks": ["a copy"]}},
    "set(X_train.index).isdisjoint(X_test.index)": {"X_test": number_table(60)[["a", "b"]]},
    "target_column not in X_train.columns": {"X_train": number_table(60)},
    "len(trained_models) >= 3": {"trained_models": {"x": 1}},
    RELOADED: {"final_model": Ridge().fit(number_table(60)[["a", "b"]], number_table(60)["c"])},
    'len(cv_scores) == evaluation_framework["folds"]': {"cv_scores": [1.0] * 4},
    'test_performance["rmse"] < 40.0': {"test_performance": {"rmse": 41.0}},
    'test_performance["r2"] > 0.85': {"test_performance": {"r2": float("nan")}},
    'test_performance["n"] == len(y_test)': {"test_performance": {"n": 60}},
    'temporal_validation_report["applicable"] == bool(relevance_report["dates"])': {
        "temporal_validation_report": {"applicable": True}
    },
    'domain_generalization_report["applicable"] == bool(relevance_report["groups"])': {
        "relevance_report": {"groups": ["clinic"]}
    },
    'business_impact_report["beats_baseline"]': {"business_impact_report": {"beats_baseline": False}},
    'stability_metrics["variation_coefficient"] < 0.1': {"stability_metrics": {"variation_coefficient": 0.1}},
    "len(perturbation_test_results) >= 10": {"perturbation_test_results": [1.0] * 9},
    "len(sensitivity_analysis_report) >= 1": {"sensitivity_analysis_report": {}},
    '"certified" in stability_certification': {"stability_certification": {"verdict": "fine"}},
    "all(Path(p).exists() for p in visualization_package)": {"visualization_package": {"none.png": "x"}},
    "len(technical_documentation) > 500": {"technical_documentation": "short"},
    "len(executive_summary) > 200": {"executive_summary": "short"},
    "len(visualization_package) >= 8": {"visualization_package": {"chart.png": "x"}},
    'Path("outputs/predict.py").exists()': "outputs/predict.py",
    '"Limitations" in model_card': {"model_card": "# All is well"},
}


def test_a_wrong_value_is_known_for_every_criterion():
    assert set(all_criteria()) == set(WRONG)


def holds(criterion, names):
    value = eval(criterion, dict(names))
    assert isinstance(value, bool | np.bool_), criterion
    return bool(value)


@pytest.mark.parametrize("criterion", WRONG)
def test_a_criterion_passes_on_good_values_and_fails_on_a_wrong_one(good, criterion, tmp_path, monkeypatch):
    assert holds(criterion, good)
    wrong = WRONG[criterion]
    if isinstance(wrong, str):
        monkeypatch.chdir(tmp_path)
        assert not holds(criterion, good)
    else:
        assert not holds(criterion, good | wrong)
