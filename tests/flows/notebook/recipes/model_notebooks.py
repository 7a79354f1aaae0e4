"""Notebooks that stand right before stage 5: what stages 1 to 4 leave behind, on small tables made for a test."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from detent.flows.notebook.domain.problem import ProblemReading, Split, TableFacts, TableFormat
from detent.flows.notebook.domain.problem_reader import read_problem
from detent.flows.notebook.recipes import chart_code, column_typing, data_catalogue, definitions
from detent.flows.notebook.recipes.model_catalogue import RECIPES
from detent.flows.notebook.recipes.recipe import Kitchen

mpl.use("Agg")

BEFORE = (
    "data_collection_inventory", "data_structure_discovery", "variable_semantics_analysis",
    "observation_unit_identification", "relevance_assessment", "dimensional_integrity_check",
    "value_validity_check", "completeness_restoration", "method_proposal", "training_evaluation_strategy",
)  # fmt: skip
"""Steps of stages 1 to 4 that leave what later stages need."""
SPLITTING = "feature_engineering_integration"
MODELLING = (SPLITTING, "method_integration", "model_training_tuning")
PREDICTABILITY = (
    "cross_validation_assessment", "holdout_evaluation", "temporal_validation", "domain_generalization",
    "business_impact_assessment",
)  # fmt: skip
STABILITY = (
    "data_perturbation_testing", "parameter_sensitivity", "multi_variation_analysis", "stability_consolidation",
)  # fmt: skip

# The expressions of the specification, section 8, without the user's thresholds.
ACCEPTANCE = {
    SPLITTING: [
        "set(X_train.index).isdisjoint(X_test.index)",
        "target_column not in X_train.columns",
        "len(feature_pipeline) > 0",
    ],
    "method_integration": ["len(trained_models) >= 3", "len(training_history) >= 3"],
    "model_training_tuning": [
        '(joblib.load("models/model.pkl").predict(X_train.head(50)) == final_model.predict(X_train.head(50))).all()',
        "len(best_params) > 0",
        'reload_check["equal"]',
    ],
    "cross_validation_assessment": ['len(cv_scores) == evaluation_framework["folds"]'],
    "holdout_evaluation": ['test_performance["n"] == len(y_test)'],
    "temporal_validation": ['temporal_validation_report["applicable"] == bool(relevance_report["dates"])'],
    "domain_generalization": [
        'domain_generalization_report["applicable"] == bool(relevance_report["groups"])'
    ],
    "business_impact_assessment": ['business_impact_report["beats_baseline"]'],
    "data_perturbation_testing": ["len(perturbation_test_results) >= 10"],
    "parameter_sensitivity": ["len(sensitivity_analysis_report) >= 1"],
    "multi_variation_analysis": ['stability_metrics["variation_coefficient"] >= 0'],
    "stability_consolidation": ['"certified" in stability_certification'],
}


class ModelNotebook:
    """Cells of stages 5 to 7, executed in one namespace and one folder."""

    def __init__(self, folder: Path, names: dict[str, Any], kitchen: Kitchen) -> None:
        self.folder = folder
        self.names = names
        self.kitchen = kitchen
        self.texts: dict[str, str] = {}
        self.printed = ""
        self.warnings: list[str] = []

    def cook(self, *steps: str, **kitchen: Any) -> ModelNotebook:
        """Execute the recipes of steps, and check what the specification says of each."""
        for step in steps:
            self.play(step, **kitchen)
            for criterion in ACCEPTANCE[step]:
                assert self.value(criterion) in (True, np.True_), f"{step}: {criterion}"
        return self

    def play(self, step: str, **kitchen: Any) -> str:
        """Execute one recipe, and return its text about the results."""
        recipe = {**data_catalogue.RECIPES, **RECIPES}[step](replace(self.kitchen, **kitchen))
        self.run(recipe.code, step)
        text = self.value(recipe.result.strip())
        assert isinstance(text, str)
        assert text.strip()
        self.texts[step] = text
        return text

    def run(self, code: str, name: str = "cell") -> None:
        """Execute code as a cell."""
        printed = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(printed),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            exec(compile(code, name, "exec"), self.names)
        self.printed += printed.getvalue()
        # Agg has no window; a kernel shows figures.
        self.warnings += [f"{name}: {w.message}" for w in caught if "non-interactive" not in str(w.message)]

    def value(self, expression: str) -> Any:
        """The value of an expression in the folder of the notebook."""
        with contextlib.chdir(self.folder):
            return eval(expression, self.names)

    def branch(self, folder: Path, *candidates: str) -> ModelNotebook:
        """A copy to go on with, whose functions see its own variables; with some of the candidates alone."""
        other = ModelNotebook(folder, {}, self.kitchen)
        for name, value in self.names.items():
            if isinstance(value, FunctionType) and value.__globals__ is self.names:
                value = FunctionType(
                    value.__code__, other.names, value.__name__, value.__defaults__, value.__closure__
                )
            other.names[name] = value
        if candidates:
            for kept in ("candidates", "candidate_folds", "trained_models"):
                other.names[kept] = {name: self.names[kept][name] for name in candidates}
        return other

    def __getitem__(self, name: str) -> Any:
        return self.names[name]


def prepared(
    folder: Path,
    table: pd.DataFrame,
    target: str,
    *,
    split: tuple[str, str | None] = ("shuffled", None),
    groups: Sequence[str] = (),
    dates: Sequence[str] = (),
    texts: Sequence[str] = (),
    left_out: Mapping[str, str] | None = None,
    limits: Sequence[tuple[str, str, float]] = (),
    folds: int | None = None,
    log_target: bool | None = None,
    keep: Sequence[str] = (),
    **kitchen: Any,
) -> ModelNotebook:
    """A notebook whose table is read, typed and planned for, as stages 1 to 4 leave it."""
    regression = pd.api.types.is_float_dtype(table[target])
    task = "regression" if regression else "classification"
    left_out = dict(left_out or {})
    typed = table[table[target].notna()]
    kinds = _kinds(typed, [target, *left_out], texts)
    primary = limits[0][0] if limits else ("rmse" if regression else "balanced_accuracy")
    higher = primary not in ("rmse", "mse", "mae", "mape", "log_loss")
    thresholds: list[dict[str, Any]] = [
        {"metric": metric, "comparison": comparison, "value": value} for metric, comparison, value in limits
    ] or [{"metric": primary, "comparison": ">" if higher else "<", "value": "baseline"}]
    if split[0] == "shuffled" and not regression:
        split = ("stratified", None)
    names: dict[str, Any] = {
        "__name__": "__main__",
        "RANDOM_STATE": 42,
        "raw_dataset": table,
        "df_typed": typed,
        "target_column": target,
        "task_type": task,
        "problem_thresholds": thresholds,
        "relevance_report": {
            "usable_features": [name for columns in kinds.values() for name in columns],
            "excluded": left_out,
            "dates": list(dates),
            "groups": list(groups),
        },
        "processing_pipeline_doc": {"rules": _rules(typed, kinds)},
        "feature_engineering_strategy": {
            **kinds,
            "left_out": left_out,
            "log_target": regression if log_target is None else log_target,
        },
        "evaluation_framework": {
            "primary_metric": primary,
            "higher_is_better": higher,
            "folds": folds or (3 if len(typed) < 100 else 5),
            "split": {"kind": split[0], "column": split[1]},
            "test_size": 0.2,
            "seed": 42,
            "baseline": "mean" if regression else "most_frequent",
            "thresholds": thresholds,
        },
    }
    reading = ProblemReading(
        problem=f"predict {target}",
        table=TableFacts("assets/table.csv", TableFormat("csv", "utf-8", ",", "."), len(table), tuple(table)),
        target=target,
        task=task,  # type: ignore[arg-type]
        split=Split(*split),  # type: ignore[arg-type]
        groups=tuple(groups),
        dates=tuple(dates),
        keep=tuple(keep),
    )
    notebook = ModelNotebook(folder, names, Kitchen(reading, **kitchen))
    notebook.run(_EARLIER_CELLS)
    return notebook


def from_file(
    folder: Path, content: str | bytes, problem: str, name: str = "table.csv", **options: Any
) -> ModelNotebook:
    """A notebook whose file was read, typed and planned for by the recipes of stages 1 to 4."""
    path = folder / "assets" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    notebook = ModelNotebook(
        folder, {"__name__": "__main__"}, Kitchen(read_problem(problem, [path], **options))
    )
    for step in BEFORE:
        notebook.play(step)
    notebook.run(chart_code.CHARTS)
    return notebook


_EARLIER_CELLS = "\n".join(
    (
        "import re\nfrom pathlib import Path\nimport joblib\nimport matplotlib\nimport matplotlib.pyplot as plt",
        "import numpy as np\nimport pandas as pd",
        definitions.MARKDOWN,
        column_typing.NUMBERS_IN_TEXT,
        column_typing.DATES_IN_TEXT,
        column_typing.COLUMN_KINDS,
        column_typing.TYPED_TABLE,
        column_typing.VALID_VALUES,
        chart_code.CHARTS,
    )
)


def _kinds(table: pd.DataFrame, out: Sequence[str], texts: Sequence[str]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {"numeric": [], "categorical": [], "datetime": [], "text": []}
    for name in table.columns:
        if name in out:
            continue
        if name in texts:
            kinds["text"].append(name)
        elif pd.api.types.is_datetime64_any_dtype(table[name]):
            kinds["datetime"].append(name)
        elif pd.api.types.is_numeric_dtype(table[name]) and not pd.api.types.is_bool_dtype(table[name]):
            kinds["numeric"].append(name)
        else:
            kinds["categorical"].append(name)
    return kinds


def _rules(table: pd.DataFrame, kinds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "kinds": {name: kind for kind, columns in kinds.items() for name in columns},
        "numbers": {},
        "dates": {},
        "sentinels": {},
        "spelling": {},
    }


# -- tables -------------------------------------------------------------------------------------------------


def houses(rows: int = 90, seed: int = 3) -> pd.DataFrame:
    """Houses with numbers, gaps, a category, a date and a text; the price follows size and town."""
    rng = np.random.default_rng(seed)
    size = rng.normal(100, 20, rows).round(1)
    town = rng.choice(["Bern", "Oslo", "Rome"], rows, p=[0.5, 0.3, 0.2])
    words = np.array(["bright", "dark", "quiet", "noisy", "old", "new"])
    table = pd.DataFrame(
        {
            "size": size,
            "rooms": rng.integers(1, 8, rows),
            "town": town,
            "built": pd.Timestamp("2001-01-01") + pd.to_timedelta(rng.integers(0, 7000, rows), unit="D"),
            "notes": [" ".join(rng.choice(words, 7)) for _ in range(rows)],
            "price": (size * 2000 + (town == "Rome") * 60_000 + rng.normal(0, 8000, rows)).round(0),
        }
    )
    table.loc[rng.choice(rows, rows // 10, replace=False), "size"] = np.nan
    table.loc[rng.choice(rows, rows // 15, replace=False), "town"] = None
    return table


def flowers(rows: int = 90, seed: int = 4, kinds: Sequence[str] = ("aster", "iris", "rose")) -> pd.DataFrame:
    """Flowers of several kinds that overlap somewhat."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(list(kinds), rows)
    place = np.array([list(kinds).index(name) for name in kind])
    return pd.DataFrame(
        {
            "petal": (place + rng.normal(0, 0.5, rows)).round(2),
            "stem": rng.normal(20, 4, rows).round(1),
            "soil": rng.choice(["clay", "sand"], rows),
            "kind": kind,
        }
    )
