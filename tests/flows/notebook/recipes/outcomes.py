"""What stages 5 to 7 leave behind, in short: a small model, its scores, and two charts."""

from __future__ import annotations

from typing import Any

from tests.flows.notebook.recipes.notebooks import Notebook

MODEL = """
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import cross_val_predict, train_test_split

numeric = feature_engineering_strategy["numeric"]
X_train, X_test, y_train, y_test = train_test_split(
    df_typed[numeric].fillna(0), df_typed[target_column], test_size=0.2, random_state=RANDOM_STATE
)


def scores(true, predicted):
    if task_type == "regression":
        return {
            "rmse": float(root_mean_squared_error(true, predicted)), "r2": float(r2_score(true, predicted)),
            "mae": float(mean_absolute_error(true, predicted)), "n": len(true),
        }
    return {
        "accuracy": float(accuracy_score(true, predicted)),
        "balanced_accuracy": float(balanced_accuracy_score(true, predicted)), "n": len(true),
    }


final_model = (Ridge() if task_type == "regression" else LogisticRegression(max_iter=2000)).fit(X_train,
y_train)
dummy = DummyRegressor(strategy="median") if task_type == "regression" else DummyClassifier()
cv_metrics = scores(y_train, cross_val_predict(final_model, X_train, y_train, cv=3))
baseline_metrics = scores(y_train, cross_val_predict(dummy, X_train, y_train, cv=3))
primary = evaluation_framework["primary_metric"]
test_performance = scores(y_test, final_model.predict(X_test))
width = 0.1 * abs(test_performance[primary])
holdout_looks = 1
holdout_interval = {primary: (test_performance[primary] - width, test_performance[primary] + width)}
baseline_performance = scores(y_test, dummy.fit(X_train, y_train).predict(X_test))
leakage_report = {"leaks": [], "removed": {"price_in_thousands": "explains the target alone"}, "checks": []}
best_params = {"model": type(final_model).__name__, "alpha": 1.0}
stability_metrics = {"variation_coefficient": 0.034}
stability_certification = {"certified": True}
improvement_recommendations = ["Collect more rows of small towns."]
business_impact_report = {"beats_baseline": True}
import matplotlib.pyplot as plt
for name in ("evaluation/predicted_and_actual", "stability/refits"):
    path = Path("outputs") / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axis = plt.subplots()
    axis.plot([1, 2], [1, 2])
    figure.savefig(path)
    plt.close(figure)
"""


def add_outcome(notebook: Notebook, **changes: Any) -> Notebook:
    """Leave what stages 5 to 7 would; `changes` replace keys of variables by name."""
    notebook.value(f"exec({MODEL!r}, globals())")
    for name, keys in changes.items():
        notebook.names[name].update(keys)
    return notebook
