"""Recipes played from the top in plain Python, without a kernel."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd

from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.domain.problem_reader import read_problem
from detent.flows.notebook.recipes.data_catalogue import RECIPES as RECIPES
from detent.flows.notebook.recipes.definitions import with_definitions
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe

mpl.use("Agg")

COLLECTION = [
    "data_collection_inventory", "data_structure_discovery", "variable_semantics_analysis",
    "observation_unit_identification", "relevance_assessment", "pcs_hypothesis_formulation",
]  # fmt: skip
INTEGRITY = [
    "dimensional_integrity_check", "value_validity_check", "completeness_restoration",
    "integrity_verification",
]  # fmt: skip
EXPLORATION = ["current_state_assessment", "targeted_inquiry", "insight_extraction", "eda_consolidation"]
METHODOLOGY = ["method_proposal", "training_evaluation_strategy", "methodology_consolidation"]
COMMUNICATION = ["technical_documentation", "executive_summary", "visualization_package"]
BEFORE_MODELS = [*COLLECTION, *INTEGRITY, *EXPLORATION, *METHODOLOGY]

# The expressions of the specification, section 8; T is `target_column`.
ACCEPTANCE = {
    "data_collection_inventory": [
        "len(raw_dataset) > 0",
        "raw_dataset.shape[1] >= 2",
        'data_inventory_checklist["bytes"] == Path(user_submit_files[0]).stat().st_size',
    ],
    "data_structure_discovery": ['set(data_structure_document["dtypes"]) == set(raw_dataset.columns)'],
    "variable_semantics_analysis": [
        "target_column in raw_dataset.columns",
        'task_type in ("regression", "classification")',
    ],
    "observation_unit_identification": ['observation_unit_report["rows"] == len(raw_dataset)'],
    "relevance_assessment": ['len(relevance_report["usable_features"]) >= 1'],
    "pcs_hypothesis_formulation": [
        '{"predictability","computability","stability"} <= set(pcs_hypothesis_framework)',
        "len(data_existence_report) > 0",
    ],
    "dimensional_integrity_check": [
        "df_typed.columns.is_unique",
        "len(df_typed) >= 0.95 * len(raw_dataset.drop_duplicates())",
        "len(dimension_report) > 0",
    ],
    "value_validity_check": [
        "df_typed.isin([np.inf, -np.inf]).sum().sum() == 0",
        "len(validity_report) > 0",
    ],
    "completeness_restoration": [
        "df_cleaned.isnull().sum().sum() == 0",
        "df_typed[target_column].notna().all()",
        "len(processing_pipeline_doc) > 0",
    ],
    "integrity_verification": [
        "df_cleaned[target_column].equals(df_typed.loc[df_cleaned.index, target_column])",
        "len(data_quality_report) > 0 and len(integrity_verification_report) > 0",
    ],
    "current_state_assessment": ["len(distribution_analysis) >= 1"],
    "targeted_inquiry": ["correlation_matrix.shape[0] == correlation_matrix.shape[1]"],
    "insight_extraction": ["len(eda_insights) >= 3"],
    "eda_consolidation": [
        "len(eda_charts) >= 6",
        "all(Path(p).stat().st_size > 1000 for p in eda_charts)",
        "len(eda_summary) > 0 and len(modeling_recommendations) > 0",
    ],
    "method_proposal": ["len(feature_engineering_strategy) > 0", "len(model_method_candidates) >= 3"],
    "training_evaluation_strategy": ['evaluation_framework["thresholds"] == problem_thresholds'],
    "methodology_consolidation": ["len(methodology_document) > 200"],
    "technical_documentation": [
        "len(technical_documentation) > 500",
        'Path("outputs/technical_documentation.md").exists()',
    ],
    "executive_summary": ["len(executive_summary) > 200"],
    "visualization_package": [
        "len(visualization_package) >= 8",
        "all(Path(p).exists() for p in visualization_package)",
    ],
    "stakeholder_guidance": ['Path("outputs/predict.py").exists()', "len(implementation_guide) > 0"],
    "deployment_support": ['"Limitations" in model_card', 'Path("outputs/model_card.md").exists()'],
}


class Notebook:
    """Cells executed in one namespace and one folder."""

    def __init__(self, folder: Path, reading: ProblemReading, **kitchen: Any) -> None:
        self.folder = folder
        self.kitchen = Kitchen(reading, **kitchen)
        self.names: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.printed = ""
        self.warnings: list[str] = []

    def cook(self, *steps: str, iteration: int | None = None) -> Notebook:
        """Execute the recipes of steps, and check what the specification says of each."""
        kitchen = self.kitchen if iteration is None else replace(self.kitchen, iteration=iteration)
        for step in steps:
            self.texts[step] = self.play(RECIPES[step](kitchen), step)
            for criterion in ACCEPTANCE[step]:
                assert bool(self.value(criterion)), f"{step}: {criterion}"
        return self

    def play(self, recipe: Recipe, step: str = "cell", defined: Sequence[str] | None = None) -> str:
        """Execute a recipe's code, and return its text about the results."""
        if defined is not None:
            recipe = with_definitions(recipe, defined, self.kitchen.settings)
        printed = io.StringIO()
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(printed),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            exec(compile(recipe.code, step, "exec"), self.names)
            text = eval(recipe.result.strip(), self.names)
        self.printed += printed.getvalue()
        # Agg has no window; a kernel shows figures.
        self.warnings += [f"{step}: {w.message}" for w in caught if "non-interactive" not in str(w.message)]
        assert isinstance(text, str)
        assert text.strip()
        return text

    def value(self, expression: str) -> Any:
        """The value of an expression in the folder of the notebook."""
        with contextlib.chdir(self.folder):
            return eval(expression, self.names)

    def __getitem__(self, name: str) -> Any:
        return self.names[name]


def without_charts(book: Notebook) -> Notebook:
    """Execute stages 1, 2 and 4, with what stage 3 would have found left empty."""
    book.cook(*COLLECTION, *INTEGRITY)
    book.names.update(modeling_recommendations=[], relation_strength={}, chart_captions={})
    return book.cook(*METHODOLOGY)


def notebook(
    folder: Path,
    table: pd.DataFrame | str,
    problem: str,
    *,
    kitchen: dict[str, Any] | None = None,
    **options: Any,
) -> Notebook:
    """A notebook on a table, whose problem was read as a run reads it."""
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    path = folder / "assets" / "table.csv"
    if isinstance(table, str):
        path.write_text(table, encoding="utf-8")
    else:
        table.to_csv(path, index=False)
    return Notebook(folder, read_problem(problem, [path], **options), **(kitchen or {}))
