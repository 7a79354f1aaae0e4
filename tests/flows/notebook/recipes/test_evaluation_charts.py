"""The charts of stages 6 and 7: drawn, titled, with both axes named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from tests.flows.notebook.recipes.model_notebooks import ModelNotebook

pytestmark = pytest.mark.timeout(600)  # the notebooks take minutes where the machine is busy


def drawn(notebook: ModelNotebook, folder: Path, call: str, **names: Any) -> Any:
    """The figure that a call draws, caught before it is saved."""
    other, figures = notebook.branch(folder), list[Any]()
    other.names.update(save_chart=lambda figure, *_: figures.append(figure), **names)
    other.value(call)
    (figure,) = figures
    plt.close(figure)
    return figure


class TestFiles:
    # N-92: each is looked at.
    @pytest.mark.parametrize(
        "name", ["evaluation/folds", "evaluation/holdout", "stability/sensitivity", "stability/refits"]
    )
    def test_they_are_there_and_not_blank(
        self, homes: ModelNotebook, blooms: ModelNotebook, name: str
    ) -> None:
        for notebook in (homes, blooms):
            picture = plt.imread(notebook.folder / "outputs" / f"{name}.png")[::2, ::2, :3]
            shades = np.unique((255 * picture).round().astype(int) @ np.array([1, 256, 65536]))
            assert len(shades) > 20
            assert (picture.min(axis=2) < 0.95).mean() > 0.01

    def test_no_cell_warns(self, homes: ModelNotebook, blooms: ModelNotebook) -> None:
        assert homes.warnings == []
        assert blooms.warnings == []


class TestFolds:
    def test_a_bar_for_each_and_a_line_for_the_limit(self, homes: ModelNotebook, tmp_path: Path) -> None:
        limits = [{"metric": "rmse", "comparison": "<", "value": 9000.0}]
        figure = drawn(homes, tmp_path, "draw_folds(fold_scores)", problem_thresholds=limits)
        (axis,) = figure.axes
        assert [bar.get_height() for bar in axis.patches] == homes["cv_scores"]
        lines = {line.get_label(): line.get_ydata()[0] for line in axis.lines}
        assert lines["limit < 9000"] == 9000.0
        assert lines["baseline"] == homes["baseline_metrics"]["rmse"]
        assert axis.get_title()
        assert axis.get_xlabel()
        assert axis.get_ylabel() == "rmse"


class TestHoldOut:
    def test_each_held_out_row_is_a_point(self, homes: ModelNotebook, tmp_path: Path) -> None:
        figure = drawn(homes, tmp_path, "draw_holdout(y_test, predicted)")
        points = figure.axes[0].collections[0].get_offsets()
        assert np.array_equal(points, np.column_stack([homes["y_test"], homes["predicted"]]))
        assert all(axis.get_title() and axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)

    def test_the_table_of_classes_counts_the_held_out_rows(
        self, blooms: ModelNotebook, tmp_path: Path
    ) -> None:
        figure = drawn(blooms, tmp_path, "draw_holdout(y_test, predicted)")
        left, right = figure.axes[:2]
        counts = pd.crosstab(blooms["y_test"].to_numpy(), blooms["predicted"]).to_numpy()
        assert [int(text.get_text()) for text in left.texts] == counts.ravel().tolist()
        found = [bar.get_width() for bar in right.patches]
        assert found == pytest.approx(np.diag(counts) / counts.sum(axis=1))
        assert all(axis.get_title() and axis.get_xlabel() and axis.get_ylabel() for axis in (left, right))

    def test_of_many_classes_the_most_frequent_are_shown(self, blooms: ModelNotebook, tmp_path: Path) -> None:
        labels = [f"class {number:02}" for number in range(40)]
        names = {"LABELS": labels, "many": pd.Series(labels * 3 + labels[:12] * 2)}
        figure = drawn(blooms, tmp_path, "draw_holdout(many, many)", **names)
        assert len(figure.axes[1].patches) == 12
