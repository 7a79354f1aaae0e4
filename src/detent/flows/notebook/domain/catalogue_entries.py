"""The entries of the catalogue: the stages of a data-science project, their steps, and what each must show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepEntry:
    """A step of the catalogue."""

    id: str
    title: str
    task: str
    """What is done, in one sentence."""
    agent: str
    artifacts: Mapping[str, str]
    acceptance: tuple[str, ...]
    needs: tuple[str, ...]
    pcs: tuple[str, str, str]
    """What predictability, computability and stability mean for it."""


@dataclass(frozen=True, slots=True)
class StageEntry:
    """A stage of the catalogue."""

    id: str
    title: str
    goal: str
    artifacts: tuple[str, ...]
    """Names, all of which its steps produce."""
    acceptance: tuple[str, ...]
    needs: tuple[str, ...]
    steps: tuple[StepEntry, ...]


_USER = ("user_problem", "user_submit_files")

EXISTENCE = StageEntry(
    "data_existence_establishment",
    "Data existence",
    "Establish what data there are, what each column means, and what is to be predicted from what",
    ("data_existence_report", "data_structure_document", "variable_analysis_report",
     "pcs_hypothesis_framework"),
    ("len(raw_dataset) > 0", "raw_dataset.shape[1] >= 2"),
    _USER,
    (
        StepEntry(
            "data_collection_inventory", "Data collection and inventory",
            "Read the user's file as it is, and record its size, checksum and shape.", "Define",
            {"raw_dataset": "the table as it was read", "data_inventory_checklist": "files, bytes, checksums"},
            ('data_inventory_checklist["bytes"] == Path(user_submit_files[0]).stat().st_size',),
            _USER,
            ("The rows that are read are those on which every later claim rests.",
             "The file's checksum is recorded, so that another run can tell whether it reads the same.",
             "Nothing is changed while reading; types are decided later, in the open."),
        ),
        StepEntry(
            "data_structure_discovery", "Structure of the data",
            "Describe the table's columns: types, memory, missing and distinct values.", "Define",
            {"data_structure_document": "types and counts of every column"},
            ('set(data_structure_document["dtypes"]) == set(raw_dataset.columns)',),
            ("raw_dataset",),
            ("Columns that are nearly empty or nearly unique cannot carry over to new rows.",
             "Every figure is counted from the table, none is estimated.",
             "Types are read from all rows, not from the first few."),
        ),
        StepEntry(
            "variable_semantics_analysis", "Meaning of the columns",
            "Tell numbers, categories, dates, texts and ids apart, and name the target and the task.",
            "Define",
            {"variable_analysis_report": "kind of every column", "target_column": "name of the target",
             "task_type": "regression or classification"},
            ("target_column in raw_dataset.columns", 'task_type in ("regression", "classification")'),
            ("raw_dataset", "data_structure_document"),
            ("The target is what will be unknown for new rows.",
             "The kind of a column follows from rules that are written down.",
             "A few odd values must not change the kind of a column."),
        ),
        StepEntry(
            "observation_unit_identification", "Unit of observation",
            "Find out what one row stands for: keys, doubled rows, repeating groups.", "Define",
            {"observation_unit_report": "rows, keys and doubled rows"},
            ('observation_unit_report["rows"] == len(raw_dataset)',),
            ("raw_dataset", "variable_analysis_report"),
            ("Rows that belong together must not stand on both sides of a split.",
             "Keys are found by counting.",
             "Equal rows without a key may be different observations, and are kept."),
        ),
        StepEntry(
            "relevance_assessment", "Relevance of the columns",
            "Choose the columns that may serve as features, and read the thresholds of the problem.",
            "Define",
            {"relevance_report": "usable and excluded columns, dates, groups",
             "problem_thresholds": "the thresholds as data"},
            ('len(relevance_report["usable_features"]) >= 1',),
            ("raw_dataset", "variable_analysis_report", "target_column"),
            ("A feature counts only if it will be known when a prediction is made.",
             "Each excluded column has its reason.",
             "The choice does not look at how well a column predicts."),
        ),
        StepEntry(
            "pcs_hypothesis_formulation", "What will be checked",
            "Write down how predictability, computability and stability will be checked.", "PCS",
            {"pcs_hypothesis_framework": "the three checks",
             "data_existence_report": "what is known of the data"},
            ('{"predictability", "computability", "stability"} <= set(pcs_hypothesis_framework)',),
            ("relevance_report", "problem_thresholds", "observation_unit_report"),
            ("The model is judged on rows that are held out and looked at once.",
             "Seeds, versions and checksums are recorded.",
             "The result is judged under perturbations of the data."),
        ),
    ),
)  # fmt: skip

INTEGRITY = StageEntry(
    "data_integrity_assurance",
    "Data integrity",
    "Bring the table into types and values that can be relied on, without inventing any for modelling",
    ("df_cleaned", "data_quality_report", "processing_pipeline_doc", "integrity_verification_report"),
    ("df_cleaned.isnull().sum().sum() == 0",),
    ("raw_dataset", "variable_analysis_report", "target_column", "relevance_report"),
    (
        StepEntry(
            "dimensional_integrity_check", "Rows and columns",
            "Give every column its type; drop doubled observations and constant columns.", "Explore",
            {"df_typed": "the table with types, nothing filled in", "dimension_report": "what was dropped"},
            ("df_typed.columns.is_unique",
             "len(df_typed) >= 0.95 * len(raw_dataset.drop_duplicates())"),
            ("raw_dataset", "variable_analysis_report", "target_column", "relevance_report"),
            ("Only rows that are the same observation are dropped.",
             "Numbers and dates in text are read by rules that are kept for new rows.",
             "The rules are learned from whole columns."),
        ),
        StepEntry(
            "value_validity_check", "Values",
            "Turn infinities and codes for missing values into missing values; unify spellings.", "Validate",
            {"validity_report": "what was changed, column by column"},
            ("df_typed.isin([np.inf, -np.inf]).sum().sum() == 0",),
            ("df_typed", "dimension_report"),
            ("The same changes are made to new rows.",
             "Every change is counted.",
             "A spelling is unified only where the values differ in nothing else."),
        ),
        StepEntry(
            "completeness_restoration", "Missing values",
            "Drop rows without a target; fill the rest in a copy that serves exploration alone.", "Explore",
            {"df_cleaned": "the table without missing values, for exploration",
             "processing_pipeline_doc": "what was done, in order"},
            ("df_cleaned.isnull().sum().sum() == 0", "df_typed[target_column].notna().all()"),
            ("df_typed", "target_column", "validity_report"),
            ("Filled values never reach the model: its pipeline fills by training rows.",
             "Medians and most frequent values are taken from the whole column.",
             "How much was filled is reported, because it limits what exploration can say."),
        ),
        StepEntry(
            "integrity_verification", "Check of the cleaning",
            "Compare the tables before and after, and check that the target is untouched.", "Validate",
            {"data_quality_report": "quality before and after",
             "integrity_verification_report": "checks and their results"},
            ("df_cleaned[target_column].equals(df_typed.loc[df_cleaned.index, target_column])",),
            ("raw_dataset", "df_typed", "df_cleaned", "target_column"),
            ("The target that is learned is the one that was given.",
             "The checks are computed from the tables, not from notes.",
             "Rows keep their index, so that every row can be traced to the file."),
        ),
    ),
)  # fmt: skip

EXPLORATION = StageEntry(
    "exploratory_data_analysis",
    "Exploration",
    "Look at the data: the target, the features, how they hang together, what stands out",
    ("eda_summary", "correlation_matrix", "distribution_analysis", "modeling_recommendations"),
    ("len(eda_charts) >= 6",),
    ("df_cleaned", "df_typed", "target_column", "task_type", "relevance_report"),
    (
        StepEntry(
            "current_state_assessment", "Distributions",
            "Draw the target, the missing values and the features.", "Explore",
            {"distribution_analysis": "figures of every column"},
            ("len(distribution_analysis) >= 1",),
            ("df_cleaned", "df_typed", "target_column", "task_type"),
            ("Rare values will be rarer still in new data.",
             "Charts are drawn from seeded samples where the table is large.",
             "Quantiles are shown beside means."),
        ),
        StepEntry(
            "targeted_inquiry", "Relations",
            "Measure how the features hang together, and which go with the target.", "Explore",
            {"correlation_matrix": "strength of the relations"},
            ("correlation_matrix.shape[0] == correlation_matrix.shape[1]",),
            ("df_cleaned", "target_column", "distribution_analysis"),
            ("A relation in the sample is no promise; it is tested on held-out rows.",
             "Rank correlations and Cramer's V are used, which no scale changes.",
             "Outliers are counted, because they can make a relation."),
        ),
        StepEntry(
            "insight_extraction", "Insights",
            "Put into sentences what the figures show.", "Explore",
            {"eda_insights": "sentences with figures"},
            ("len(eda_insights) >= 3",),
            ("correlation_matrix", "distribution_analysis"),
            ("An insight names the figure it rests on.",
             "Sentences are written from the computed values.",
             "What holds only for a few rows is not an insight."),
        ),
        StepEntry(
            "eda_consolidation", "Summary of the exploration",
            "Sum up, recommend, and list the charts.", "Report",
            {"eda_summary": "the exploration in a text",
             "modeling_recommendations": "what modelling should heed",
             "eda_charts": "paths of the charts"},
            ("all(Path(p).stat().st_size > 1000 for p in eda_charts)",),
            ("eda_insights", "distribution_analysis", "correlation_matrix"),
            ("Recommendations are hypotheses that the folds will test.",
             "All charts are files beside the notebook.",
             "Recommendations follow from more than one figure."),
        ),
    ),
)  # fmt: skip

METHODOLOGY = StageEntry(
    "methodology_strategy_formulation",
    "Method",
    "Decide how features are made, which models compete, and how they are judged, before any is trained",
    ("feature_engineering_strategy", "model_method_candidates", "evaluation_framework",
     "methodology_document"),
    ("len(model_method_candidates) >= 3",),
    ("df_typed", "target_column", "task_type", "relevance_report", "problem_thresholds",
     "modeling_recommendations"),
    (
        StepEntry(
            "method_proposal", "Features and candidates",
            "Give every kind of column its treatment, and name at least three models.", "Model",
            {"feature_engineering_strategy": "treatment of each kind of column",
             "model_method_candidates": "models and why"},
            ("len(feature_engineering_strategy) > 0",),
            ("df_typed", "relevance_report", "task_type"),
            ("Candidates differ in kind, so that no assumption decides alone.",
             "The treatment is data that later cells read.",
             "A simple model is always among the candidates."),
        ),
        StepEntry(
            "training_evaluation_strategy", "Evaluation",
            "Fix the metric, the split, the folds, the baseline and the thresholds.", "Evaluate",
            {"evaluation_framework": "how models are judged"},
            ('evaluation_framework["thresholds"] == problem_thresholds',),
            ("df_typed", "target_column", "task_type", "problem_thresholds", "relevance_report"),
            ("The split imitates how new rows will come.",
             "Seed and split are chosen once and never searched.",
             "The baseline shows what no model at all would reach."),
        ),
        StepEntry(
            "methodology_consolidation", "The method in one text",
            "Write the method down.", "Report",
            {"methodology_document": "the method"},
            ("len(methodology_document) > 200",),
            ("feature_engineering_strategy", "model_method_candidates", "evaluation_framework"),
            ("What is decided here is not changed after the hold-out was seen.",
             "The text is written from the decisions, so that it cannot differ from them.",
             "The document names what would change the conclusion."),
        ),
    ),
)  # fmt: skip

MODELLING = StageEntry(
    "model_implementation_execution",
    "Modelling",
    "Split the rows, build features, compare the candidates by cross-validation, and train the best",
    ("feature_pipeline", "trained_models", "final_model", "training_history", "best_params",
     "models/model.pkl"),
    ('not leakage_report["leaks"]',),
    ("df_typed", "target_column", "task_type", "relevance_report", "feature_engineering_strategy",
     "model_method_candidates", "evaluation_framework", "problem_thresholds"),
    (
        StepEntry(
            "feature_engineering_integration", "Split and features",
            "Hold rows out, build the features in a pipeline, and look for leaks.", "Model",
            {"feature_pipeline": "what makes features of rows", "X_train": "features of the training rows",
             "X_test": "features of the rows held out", "y_train": "target of the training rows",
             "y_test": "target of the rows held out", "leakage_report": "checks and removed columns"},
            ("set(X_train.index).isdisjoint(X_test.index)", "target_column not in X_train.columns"),
            ("df_typed", "target_column", "task_type", "relevance_report", "feature_engineering_strategy",
             "evaluation_framework"),
            ("The rows held out are not looked at again before the evaluation.",
             "The split is drawn once, with the seed of the framework.",
             "Everything that is fitted is fitted on training rows, inside the pipeline."),
        ),
        StepEntry(
            "method_integration", "Comparison of candidates",
            "Cross-validate every candidate and the baseline.", "Model",
            {"trained_models": "candidates with their scores", "training_history": "scores fold by fold"},
            ("len(trained_models) >= 3",),
            ("X_train", "y_train", "feature_pipeline", "model_method_candidates", "evaluation_framework"),
            ("Scores are means over folds of rows the model has not seen.",
             "All candidates see the same folds.",
             "The spread over the folds is kept beside the mean."),
        ),
        StepEntry(
            "model_training_tuning", "Tuning and final training",
            "Search the settings of the best candidates, fit the best on all training rows, and store it.",
            "Model",
            {"final_model": "the model", "best_params": "its settings", "cv_metrics": "scores in the folds",
             "reload_check": "whether the stored model predicts the same",
             "models/model.pkl": "the stored model"},
            ('(joblib.load("models/model.pkl").predict(X_train.head(50)) == '
             "final_model.predict(X_train.head(50))).all()",),
            ("trained_models", "training_history", "X_train", "y_train", "evaluation_framework"),
            ("The thresholds are judged on folds first.",
             "The search is seeded, and its size follows from the table.",
             "The stored model is loaded again and must predict the same."),
        ),
    ),
)  # fmt: skip

PREDICTABILITY = StageEntry(
    "predictability_validation",
    "Predictability",
    "Judge the model on rows it never saw, once, and ask where it will hold",
    ("cv_scores", "test_performance", "temporal_validation_report", "domain_generalization_report",
     "business_impact_report"),
    ('test_performance["n"] == len(y_test)',),
    ("final_model", "X_train", "X_test", "y_train", "y_test", "evaluation_framework", "cv_metrics"),
    (
        StepEntry(
            "cross_validation_assessment", "Cross-validation",
            "Cross-validate the final model, fold by fold.", "Evaluate",
            {"cv_scores": "the score of each fold"},
            ('len(cv_scores) == evaluation_framework["folds"]',),
            ("final_model", "X_train", "y_train", "evaluation_framework"),
            ("The spread over folds tells how much a new sample may differ.",
             "The folds are those of the framework.",
             "One bad fold is reported, not averaged away."),
        ),
        StepEntry(
            "holdout_evaluation", "Hold-out",
            "Predict the rows held out, and score them.", "Evaluate",
            {"test_performance": "scores on the rows held out"},
            ('test_performance["n"] == len(y_test)',),
            ("final_model", "X_test", "y_test", "evaluation_framework", "cv_scores"),
            ("This is the figure that new rows should show.",
             "Looks at the hold-out are counted; the first one counts most.",
             "The score comes with its 95 % interval."),
        ),
        StepEntry(
            "temporal_validation", "Over time",
            "Where there is a date, train on the past and test on what came last.", "Validate",
            {"temporal_validation_report": "scores over time, or why not"},
            ('temporal_validation_report["applicable"] == bool(relevance_report["dates"])',),
            ("final_model", "X_train", "y_train", "relevance_report"),
            ("A model that only knows its own years fails in the next.",
             "Dates decide the order, never the rows' position.",
             "The result is compared with the shuffled one."),
        ),
        StepEntry(
            "domain_generalization", "Over groups",
            "Where there are groups, leave one out at a time.", "Validate",
            {"domain_generalization_report": "scores by group, or why not"},
            ('domain_generalization_report["applicable"] == bool(relevance_report["groups"])',),
            ("final_model", "X_train", "y_train", "relevance_report"),
            ("A new group may differ from all that were seen.",
             "Every group is left out once.",
             "The worst group is named."),
        ),
        StepEntry(
            "business_impact_assessment", "What the error means",
            "State the error in the target's own units, beside the baseline's.", "Report",
            {"business_impact_report": "the error in words and figures"},
            ('business_impact_report["beats_baseline"]',),
            ("test_performance", "cv_scores", "evaluation_framework"),
            ("The gain over the baseline is what using the model is worth.",
             "Figures are those of the hold-out.",
             "The gain is stated with its uncertainty."),
        ),
    ),
)  # fmt: skip

STABILITY = StageEntry(
    "stability_assessment",
    "Stability",
    "Ask whether the result survives small changes of data, settings and choices",
    ("perturbation_test_results", "sensitivity_analysis_report", "stability_metrics",
     "stability_certification", "improvement_recommendations"),
    (),
    ("final_model", "X_train", "y_train", "best_params", "evaluation_framework", "test_performance"),
    (
        StepEntry(
            "data_perturbation_testing", "Perturbed data",
            "Refit on perturbed training rows, and score each refit on the same rows.", "PCS",
            {"perturbation_test_results": "scores of at least ten refits"},
            ("len(perturbation_test_results) >= 10",),
            ("final_model", "X_train", "y_train", "evaluation_framework"),
            ("Perturbed scores show how far a new sample may move the result.",
             "Each perturbation has its seed.",
             "All refits are scored on the same quarter of the training rows."),
        ),
        StepEntry(
            "parameter_sensitivity", "Sensitivity to settings",
            "Change the main settings one at a time.", "PCS",
            {"sensitivity_analysis_report": "scores by setting"},
            ("len(sensitivity_analysis_report) >= 1",),
            ("final_model", "X_train", "y_train", "best_params"),
            ("A result that needs one exact setting will not hold.",
             "The same folds judge every setting.",
             "Settings are changed by fixed factors."),
        ),
        StepEntry(
            "multi_variation_analysis", "Other choices",
            "Change imputation and scaling, and measure the variation.", "PCS",
            {"stability_metrics": "the variation of the score"},
            (),
            ("perturbation_test_results", "sensitivity_analysis_report", "X_train", "y_train"),
            ("Reasonable choices should lead to like results.",
             "The coefficient of variation is computed from the refits.",
             "It is compared with the threshold of the settings."),
        ),
        StepEntry(
            "stability_consolidation", "Verdict on stability",
            "Say whether the result is stable, and what would make it more so.", "Report",
            {"stability_certification": "the verdict", "improvement_recommendations": "what could be better"},
            ('"certified" in stability_certification',),
            ("stability_metrics", "perturbation_test_results", "sensitivity_analysis_report"),
            ("The verdict says for which rows it holds.",
             "It follows from the figures by a fixed rule.",
             "What was not measured is said."),
        ),
    ),
)  # fmt: skip

COMMUNICATION = StageEntry(
    "results_communication",
    "Communication",
    "Say what was found, to those who decide and to those who use it",
    ("technical_documentation", "executive_summary", "visualization_package", "implementation_guide",
     "model_card"),
    ("all(Path(p).exists() for p in visualization_package)",),
    ("test_performance", "stability_metrics", "methodology_document", "eda_summary", "leakage_report",
     "problem_thresholds"),
    (
        StepEntry(
            "technical_documentation", "Documentation",
            "Document method, data and results.", "Report",
            {"technical_documentation": "the documentation",
             "outputs/technical_documentation.md": "the same as a file"},
            ("len(technical_documentation) > 500",),
            ("methodology_document", "test_performance", "stability_metrics"),
            ("It says where the model may be used.", "It names seeds, versions and checksums.",
             "It reports the spread beside every score."),
        ),
        StepEntry(
            "executive_summary", "Summary",
            "Say on one page what was reached, thresholds included.", "Report",
            {"executive_summary": "one page"},
            ("len(executive_summary) > 200",),
            ("test_performance", "problem_thresholds"),
            ("Met and not met are said first.", "Every figure is the kernel's.",
             "A threshold inside the interval is called undecided."),
        ),
        StepEntry(
            "visualization_package", "Figures",
            "Collect all figures with captions.", "Report",
            {"visualization_package": "paths and captions of all figures"},
            ("len(visualization_package) >= 8",),
            ("eda_charts", "test_performance"),
            ("Figures of the evaluation are among them.", "All are files beside the notebook.",
             "Captions say what a figure does not show."),
        ),
        StepEntry(
            "stakeholder_guidance", "Guide",
            "Explain how to use the model, and write the script that predicts.", "Report",
            {"implementation_guide": "how to use it", "outputs/predict.py": "the script"},
            ('Path("outputs/predict.py").exists()',),
            ("final_model", "relevance_report"),
            ("New rows pass the same steps as the training rows.", "The script needs public packages only.",
             "Unknown categories and missing values do not stop it."),
        ),
        StepEntry(
            "deployment_support", "Model card",
            "Write the model card.", "Report",
            {"model_card": "the card", "outputs/model_card.md": "the same as a file"},
            ('"Limitations" in model_card',),
            ("technical_documentation", "test_performance", "stability_metrics", "leakage_report"),
            ("The card says for whom the model is not made.", "It names data, seed and versions.",
             "It reports the PCS figures."),
        ),
    ),
)  # fmt: skip

STAGES: tuple[StageEntry, ...] = (
    EXISTENCE, INTEGRITY, EXPLORATION, METHODOLOGY, MODELLING, PREDICTABILITY, STABILITY, COMMUNICATION
)  # fmt: skip
"""All stages, in order."""
