"""Small classes are weighted where they count, and not where each row counts alike: there weights only cost."""

from __future__ import annotations

import numpy as np
import pytest

from tests.flows.notebook.recipes.model_notebooks import MODELLING, flowers, prepared


@pytest.mark.parametrize(
    ("limits", "weights"),
    [
        ([("log_loss", "<", 10.0)], None),
        ([("accuracy", ">", 0.1), ("recall", ">", 0.1)], "balanced"),
        ([], "balanced"),
    ],
)
def test_the_metrics_decide_on_weights(tmp_path, limits, weights):
    table = flowers(80)
    table["kind"] = np.where(np.arange(80) % 9 == 0, "rose", np.where(table["petal"] > 1, "iris", "aster"))
    book = prepared(tmp_path, table, "kind", limits=limits, folds=2).cook(*MODELLING[:2])
    linear = book["candidates"]["LogisticRegression"].get_params()["model__class_weight"]
    assert (book["CLASS_WEIGHT"], linear) == (weights, weights)
