"""Notebooks that went through stages 5 to 7, made once for all modules that look at them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.flows.notebook.recipes.model_notebooks import (
    MODELLING,
    PREDICTABILITY,
    SPLITTING,
    STABILITY,
    ModelNotebook,
    flowers,
    houses,
    prepared,
)


def to_the_end(notebook: ModelNotebook, linear: str) -> ModelNotebook:
    """All kinds of models are compared; the quick ones are searched, with four settings."""
    notebook.cook(*MODELLING[:2])
    folds = notebook["candidate_folds"]
    notebook.names.update(
        SEARCH_WORK=0,
        candidate_folds={name: folds[name] for name in (linear, "HistGradientBoosting with defaults")},
    )
    return notebook.cook(MODELLING[2], *PREDICTABILITY, *STABILITY)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> ModelNotebook:
    """Numbers predicted from numbers, categories, dates and texts, with gaps; all of stages 5 to 7."""
    folder = tmp_path_factory.mktemp("homes")
    notebook = prepared(folder, houses(), "price", texts=["notes"], dates=["built"], groups=["town"])
    return to_the_end(notebook, "Ridge")


@pytest.fixture(scope="session")
def blooms(tmp_path_factory: pytest.TempPathFactory) -> ModelNotebook:
    """Three classes; all of stages 5 to 7."""
    table = flowers().drop_duplicates(ignore_index=True)  # equal rows would be dealt into folds together
    notebook = prepared(tmp_path_factory.mktemp("blooms"), table, "kind", groups=["soil"])
    return to_the_end(notebook, "LogisticRegression")


@pytest.fixture(scope="session")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> ModelNotebook:
    """Two numbers with gaps and wild values, so that medians and scales differ by rows; the candidates alone."""
    rng = np.random.default_rng(11)
    table = pd.DataFrame({"a": rng.standard_t(1.2, 80), "b": rng.normal(5, 2, 80)})
    table["y"] = 10 + 3 * np.tanh(table["a"]) + table["b"] + rng.normal(0, 0.7, 80)
    table.loc[rng.choice(80, 25, replace=False), "a"] = np.nan
    table.loc[rng.choice(80, 20, replace=False), "b"] = np.nan
    notebook = prepared(tmp_path_factory.mktemp("gaps"), table, "y")
    return notebook.cook(SPLITTING, "method_integration")
