"""How rows are held out and dealt into folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from tests.flows.notebook.recipes.model_notebooks import SPLITTING, ModelNotebook, flowers, houses, prepared


def numbers(rows: int, seed: int = 0, **columns: object) -> pd.DataFrame:
    """A table of two numbers and a target that follows one of them."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows)} | columns)
    table["y"] = 3 * table["a"] + rng.normal(size=rows)
    return table


def split(folder: Path, table: pd.DataFrame, target: str = "y", **options: object) -> ModelNotebook:
    return prepared(folder, table, target, **options).cook(SPLITTING)  # type: ignore[arg-type]


class TestShuffled:
    def test_the_rows_are_those_that_scikit_learn_draws_by_the_seed(self, tmp_path: Path) -> None:
        table = numbers(101)
        notebook = split(tmp_path, table)
        train, test = train_test_split(table.index, test_size=0.2, random_state=42)
        assert list(notebook["X_train"].index) == list(train)
        assert list(notebook["X_test"].index) == list(test)

    def test_the_values_are_those_of_the_typed_table(self, tmp_path: Path) -> None:
        notebook = split(tmp_path, houses(), "price", texts=["notes"])
        for part in ("X_train", "X_test"):
            rows = notebook[part]
            assert rows.equals(notebook["df_typed"].loc[rows.index, rows.columns])

    def test_two_notebooks_draw_the_same_rows(self, tmp_path: Path) -> None:
        one, other = (split(tmp_path, flowers(), "kind") for _ in range(2))
        assert one["X_test"].equals(other["X_test"])


class TestClasses:
    def test_each_part_has_its_share_of_every_class(self, tmp_path: Path) -> None:
        table = numbers(200)
        table["y"] = np.where(np.arange(200) % 10 == 0, "rare", "common")
        notebook = split(tmp_path, table)
        assert notebook["y_test"].value_counts().to_dict() == {"common": 36, "rare": 4}

    def test_a_class_with_one_row_stays_among_the_training_rows_and_is_reported(self, tmp_path: Path) -> None:
        # N-113
        table = flowers()
        table.loc[5, "kind"] = "tulip"
        notebook = split(tmp_path, table, "kind")
        assert 5 in notebook["X_train"].index
        assert "1 class with a single row" in notebook.texts[SPLITTING]
        folds = notebook.value("folds_of(y_train, 3)")
        labels = notebook["y_train"].to_numpy()
        assert all("tulip" in labels[train] and "tulip" not in labels[valid] for train, valid in folds)

    def test_many_small_classes_leave_the_share_as_it_is(self, tmp_path: Path) -> None:
        table = numbers(60)
        table["y"] = [f"class {number // 2}" for number in range(60)]
        notebook = split(tmp_path, table)
        assert 9 <= len(notebook["X_test"]) <= 15
        assert set(notebook["y_test"]) <= set(notebook["y_train"])

    @pytest.mark.parametrize("labels", [(0, 1), (True, False), ("x", "y")])
    def test_labels_keep_their_type(self, tmp_path: Path, labels: tuple[Any, Any]) -> None:
        table = numbers(60)
        table["y"] = np.where(table["a"] + 2 * table["b"].abs() > 1, *labels)
        notebook = split(tmp_path, table)
        assert set(notebook["y_train"].tolist()) == set(labels)


class TestEqualRows:
    def test_they_stay_on_one_side_and_are_reported(self, tmp_path: Path) -> None:
        # Without a key they may be different observations: a plain split would put many on both sides.
        table = pd.concat([numbers(60)] * 2, ignore_index=True)
        notebook = split(tmp_path, table)
        identity = table.apply(tuple, axis=1)
        train, test = (set(identity[notebook[part].index]) for part in ("X_train", "X_test"))
        assert train.isdisjoint(test)
        assert len(notebook["X_test"]) == 24
        assert "60 rows equal an earlier one" in notebook.texts[SPLITTING]

    def test_no_fold_has_one_on_each_side(self, tmp_path: Path) -> None:
        notebook = split(tmp_path, pd.concat([numbers(60)] * 2, ignore_index=True))
        identity = notebook["X_train"].apply(tuple, axis=1).to_numpy()
        for train, valid in notebook.value("folds_of(y_train, 5)"):
            assert set(identity[train]).isdisjoint(identity[valid])

    def test_of_a_coarse_table_rows_with_the_same_features_stay_together(self, tmp_path: Path) -> None:
        # Parted by class, every held-out row would have its opposite among the training rows.
        rng = np.random.default_rng(1)
        table = pd.DataFrame({"a": rng.integers(0, 6, 400), "b": rng.integers(0, 5, 400)})
        table["y"] = np.where(rng.random(400) < 0.2 + 0.1 * table["a"], "yes", "no")
        notebook = split(tmp_path, table)
        pairs = table[["a", "b"]].apply(tuple, axis=1)
        assert set(pairs[notebook["X_train"].index]).isdisjoint(pairs[notebook["X_test"].index])
        assert abs(len(notebook["X_test"]) / 400 - 0.2) < 0.05

    def test_a_handful_of_distinct_rows_is_drawn_row_by_row_and_said_to_be(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(1)
        table = pd.DataFrame({"a": rng.integers(0, 3, 200), "b": rng.integers(0, 2, 200)})
        table["y"] = np.where(rng.random(200) < 0.3 + 0.2 * table["a"], "yes", "no")
        notebook = split(tmp_path, table)
        assert len(notebook["X_test"]) == 40
        assert "too few are distinct" in notebook.texts[SPLITTING]
        assert not notebook["leakage_report"]["leaks"]


class TestGroups:
    def clinics(self, rows: int = 240, groups: int = 30) -> pd.DataFrame:
        clinic = np.random.default_rng(2).integers(0, groups, rows)
        return numbers(rows, clinic=[f"clinic {number}" for number in clinic])

    def test_no_group_is_on_both_sides(self, tmp_path: Path) -> None:
        # N-113
        table = self.clinics()
        notebook = split(tmp_path, table, split=("group", "clinic"))
        train, test = (set(table.loc[notebook[part].index, "clinic"]) for part in ("X_train", "X_test"))
        assert train.isdisjoint(test)
        assert abs(len(notebook["X_test"]) / len(table) - 0.2) < 0.05

    def test_the_column_that_names_them_is_no_feature(self, tmp_path: Path) -> None:
        notebook = split(tmp_path, self.clinics(), split=("group", "clinic"))
        assert list(notebook["X_train"].columns) == ["a", "b"]

    def test_folds_keep_groups_together(self, tmp_path: Path) -> None:
        notebook = split(tmp_path, self.clinics(), split=("group", "clinic"))
        clinic = notebook["df_typed"].loc[notebook["X_train"].index, "clinic"].to_numpy()
        for train, valid in notebook.value("folds_of(y_train, 5)"):
            assert set(clinic[train]).isdisjoint(clinic[valid])

    def test_few_uneven_groups_come_near_to_the_share(self, tmp_path: Path) -> None:
        table = numbers(200, clinic=np.repeat(["a", "b", "c", "d", "e"], [70, 50, 40, 25, 15]))
        notebook = split(tmp_path, table, split=("group", "clinic"), folds=4)
        assert 0.1 <= len(notebook["X_test"]) / 200 <= 0.3
        assert len(notebook.value("folds_of(y_train, 4)")) == 4

    def test_a_class_of_a_single_group_stays_where_it_can_be_learned(self, tmp_path: Path) -> None:
        table = self.clinics()
        table["y"] = np.where(table["clinic"] == "clinic 3", "rare", np.where(table["a"] > 0, "up", "down"))
        notebook = split(tmp_path, table, split=("group", "clinic"))
        assert "rare" in set(notebook["y_train"])

    def test_rows_without_a_group_are_groups_of_their_own(self, tmp_path: Path) -> None:
        table = self.clinics()
        table.loc[:40, "clinic"] = None
        notebook = split(tmp_path, table, split=("group", "clinic"))
        assert abs(len(notebook["X_test"]) / len(table) - 0.2) < 0.05


class TestTime:
    def days(self, rows: int = 100) -> pd.DataFrame:
        table = numbers(rows, when=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(rows), unit="D"))
        return table.sample(frac=1, random_state=1)

    def test_the_latest_rows_are_held_out(self, tmp_path: Path) -> None:
        table = self.days()
        notebook = split(tmp_path, table, split=("time", "when"))
        assert len(notebook["X_test"]) == 20
        assert notebook["X_train"]["when"].max() < notebook["X_test"]["when"].min()

    def test_folds_train_on_the_past_alone(self, tmp_path: Path) -> None:
        notebook = split(tmp_path, self.days(), split=("time", "when"))
        when = notebook["X_train"]["when"].to_numpy()
        folds = notebook.value("folds_of(y_train, 5)")
        assert all(when[train].max() < when[valid].min() for train, valid in folds)

    def test_rows_of_one_moment_stay_on_one_side(self, tmp_path: Path) -> None:
        table = numbers(120, year=np.repeat(np.arange(2000, 2020), 6))
        notebook = split(tmp_path, table, split=("time", "year"))
        assert set(notebook["X_test"]["year"]) == {2016, 2017, 2018, 2019}

    def test_few_moments_are_cut_through_rather_than_missing_the_share(self, tmp_path: Path) -> None:
        table = numbers(100, year=np.repeat([2020, 2021], [50, 50]))
        notebook = split(tmp_path, table, split=("time", "year"))
        assert len(notebook["X_test"]) == 20
        assert not notebook["leakage_report"]["leaks"]

    def test_rows_without_a_date_count_as_early(self, tmp_path: Path) -> None:
        table = self.days()
        table.iloc[:5, table.columns.get_loc("when")] = pd.NaT
        notebook = split(tmp_path, table, split=("time", "when"))
        assert set(table.index[:5]) <= set(notebook["X_train"].index)
