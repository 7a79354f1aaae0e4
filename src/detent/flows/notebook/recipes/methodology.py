"""The recipes of stage 4: how features are treated, which models are tried, and how they are judged."""

# What later stages read of these variables, with their exact keys:
#
# relevance_report (stage 1)     {"usable_features": [column], "excluded": {column: reason}, "dates": [column],
#                                 "groups": [column]}
# problem_thresholds (stage 1)   [{"metric": "rmse", "comparison": "<", "value": 25000.0}, ...]; without a threshold
#                                 [{"metric": primary metric, "comparison": ">" or "<", "value": "baseline"}]
# processing_pipeline_doc (2)    {"steps": [...], "rules": {...}}: the rules are those of typing_code.py, plain JSON
# feature_engineering_strategy   {"numeric": [column], "categorical": [column], "datetime": [column], "text": [column],
#                                 "left_out": {column: reason}, "log_target": bool}
# model_method_candidates        [{"name": "Ridge", "family": "linear", "why": sentence}, ...]; names: Ridge,
#                                 LogisticRegression, RandomForest, HistGradientBoosting, LightGBM, XGBoost
# evaluation_framework           {"primary_metric": "rmse", "balanced_accuracy" or the first threshold's metric,
#                                 "higher_is_better": bool, "folds": int,
#                                 "split": {"kind": "shuffled" | "stratified" | "group" | "time", "column": str | None},
#                                 "test_size": float, "seed": int, "baseline": "median" | "most_frequent",
#                                 "thresholds": problem_thresholds}
