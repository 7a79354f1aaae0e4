"""Columns that give the target away, and rows that stand on both sides: found, named, taken out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.preprocessing import StandardScaler

from detent.flows.notebook.domain.leak_checks import check_leaks
from tests.flows.notebook.recipes.model_notebooks import SPLITTING, ModelNotebook, flowers, houses, prepared


def split(folder: Path, table: pd.DataFrame, target: str, **options: object) -> ModelNotebook:
    notebook = prepared(folder, table, target, **options)  # type: ignore[arg-type]
    notebook.play(SPLITTING)
    return notebook


def probe(notebook: ModelNotebook) -> list[dict[str, object]]:
    """What the flow's own probe finds on what the cell left."""
    reading = notebook.kitchen.problem
    found = check_leaks(
        notebook.names,
        task=reading.task,
        target=reading.target,
        kind=notebook["split"]["kind"],
        keep=list(reading.keep),
    )
    leaks: list[dict[str, object]] = found["leaks"]
    return leaks


COPIES: dict[str, Callable[[pd.Series], object]] = {
    "copy": lambda y: y,
    "logarithm": np.log,
    "thousands": lambda y: (y / 1000).round(0),
    "rounded": lambda y: y.round(-3),
    "falling": lambda y: -y,
    "cube": lambda y: y**3,
    "with gaps": lambda y: y.where(np.arange(len(y)) % 3 > 0),
    "with a little noise": lambda y: y * (1 + 0.001 * np.sin(np.arange(len(y)))),
    "as text": lambda y: y.map(lambda value: f"{value:.0f} EUR"),
}


class TestCopiesOfNumbers:
    # N-84
    @pytest.mark.parametrize("how", COPIES)
    def test_a_copy_is_taken_out_with_its_reason(self, tmp_path: Path, how: str) -> None:
        table = houses(rows=60)
        table["leak"] = COPIES[how](table["price"])
        notebook = split(tmp_path, table, "price")
        assert set(notebook["leakage_report"]["removed"]) == {"leak"}
        assert "leak" not in notebook["X_train"]
        assert "leak" not in notebook["X_test"]
        assert notebook["leakage_report"]["leaks"] == []
        assert "`leak`" in notebook.texts[SPLITTING]

    def test_a_date_that_tells_the_target_is_taken_out(self, tmp_path: Path) -> None:
        table = houses(rows=60)
        table["leak"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(table["price"], unit="h")
        assert "leak" in split(tmp_path, table, "price")["leakage_report"]["removed"]

    def test_the_best_honest_column_stays(self, tmp_path: Path) -> None:
        table = houses(rows=60)
        table["near"] = table["price"] + np.random.default_rng(0).normal(0, 12_000, 60)
        assert split(tmp_path, table, "price")["leakage_report"]["removed"] == {}

    def test_a_single_extreme_target_makes_no_leak(self, tmp_path: Path) -> None:
        # One huge value at the end of a column: R² of a step is near 1, and the column says nothing of the rest.
        table = houses(rows=60).drop(columns=["size", "town"])
        table.loc[7, "price"], table.loc[7, "rooms"] = 1e9, 40
        assert split(tmp_path, table, "price")["leakage_report"]["removed"] == {}

    def test_keep_overrules(self, tmp_path: Path) -> None:
        table = houses(rows=60).assign(leak=lambda rows: rows["price"] / 1000)
        notebook = split(tmp_path, table, "price", keep=["leak"])
        assert "leak" in notebook["X_train"]
        assert notebook["leakage_report"]["removed"] == {}
        assert notebook["leakage_report"]["leaks"] == []
        assert "Kept as asked" in notebook.texts[SPLITTING]

    def test_the_only_feature_stays_and_is_a_leak(self, tmp_path: Path) -> None:
        table = houses(rows=60)[["price"]].assign(copy=lambda rows: rows["price"] * 2)
        assert len(split(tmp_path, table, "price")["leakage_report"]["leaks"]) == 1


class TestCopiesOfClasses:
    @pytest.mark.parametrize(
        "words",
        [
            {"aster": "A", "iris": "B", "rose": "C"},
            {"aster": "Die Aster", "iris": "Die Iris", "rose": "Die Rose"},
            {"aster": 10.0, "iris": 20.0, "rose": 30.0},
            {"aster": 3.0, "iris": 1.0, "rose": 2.0},
        ],
    )
    def test_labels_in_other_words_are_taken_out(self, tmp_path: Path, words: dict[str, object]) -> None:
        # N-84
        table = flowers().assign(leak=lambda rows: rows["kind"].map(words))
        notebook = split(tmp_path, table, "kind")
        assert set(notebook["leakage_report"]["removed"]) == {"leak"}

    @pytest.mark.parametrize("rising", [1, -1])
    def test_a_number_that_separates_all_classes_is_taken_out(self, tmp_path: Path, rising: int) -> None:
        rng = np.random.default_rng(0)
        place = {"aster": 0, "iris": 1, "rose": 2}
        table = flowers().assign(
            leak=lambda rows: rising * rows["kind"].map(place) + rng.uniform(0, 0.9, len(rows))
        )
        assert set(split(tmp_path, table, "kind")["leakage_report"]["removed"]) == {"leak"}

    def test_a_number_that_separates_one_class_of_three_stays(self, tmp_path: Path) -> None:
        table = flowers().assign(petal=lambda rows: rows["petal"] - 20 * (rows["kind"] == "aster"))
        assert split(tmp_path, table, "kind")["leakage_report"]["removed"] == {}

    def test_two_rows_of_a_rare_class_make_no_leak(self, tmp_path: Path) -> None:
        # Some number has them both on one side by chance.
        rng = np.random.default_rng(5)
        table = pd.DataFrame(rng.normal(size=(60, 40))).add_prefix("x")
        table["kind"] = ["rare" if row in (4, 9) else "common" for row in range(60)]
        assert split(tmp_path, table, "kind")["leakage_report"]["removed"] == {}


class TestCombinations:
    # N-113
    def sales(self, rows: int = 80) -> pd.DataFrame:
        rng = np.random.default_rng(3)
        day, night = rng.gamma(3, 40, rows).round(2), rng.gamma(2, 15, rows).round(2)
        return pd.DataFrame(
            {
                "day_sales": day,
                "night_sales": night,
                "staff": rng.integers(2, 9, rows),
                "rain": rng.normal(size=rows),
            }
        ).assign(sales=day + night)

    def test_the_two_columns_that_add_up_are_named_and_taken_out(self, tmp_path: Path) -> None:
        notebook = split(tmp_path, self.sales(), "sales")
        assert set(notebook["removed"]) == {"day_sales", "night_sales"}
        assert "night_sales" in notebook["removed"]["day_sales"]
        assert list(notebook["X_train"].columns) == ["staff", "rain"]

    def test_they_are_found_where_values_are_missing(self, tmp_path: Path) -> None:
        table = self.sales()
        table.loc[table.index % 9 == 0, "day_sales"] = np.nan
        assert set(split(tmp_path, table, "sales")["removed"]) == {"day_sales", "night_sales"}

    def test_of_five_columns_that_add_up_all_five_are_named_and_no_more(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(4)
        table = pd.DataFrame(rng.normal(size=(90, 8)), columns=list("abcdefgh"))
        table["total"] = table[list("abcde")] @ np.array([1.0, 2.0, -1.0, 0.5, 3.0])
        assert set(split(tmp_path, table, "total")["removed"]) == set("abcde")

    def test_they_are_found_among_more_columns_than_rows(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(4)
        table = pd.DataFrame(rng.normal(size=(60, 150))).add_prefix("x")
        table["total"] = table["x3"] - table["x77"] + 2 * table["x120"]
        assert {"x3", "x77", "x120"} <= set(split(tmp_path, table, "total")["removed"])

    def test_factors_of_the_target_are_taken_out(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(4)
        table = pd.DataFrame(
            {"pieces": rng.integers(1, 50, 90), "each": rng.uniform(1, 9, 90), "rain": rng.normal(size=90)}
        )
        table["sum"] = table["pieces"] * table["each"]
        assert set(split(tmp_path, table, "sum")["removed"]) == {"pieces", "each"}

    def test_classes_by_a_sum_over_a_limit_are_parted_by_its_columns(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(4)
        table = pd.DataFrame(
            {
                "maths": rng.integers(0, 100, 300),
                "art": rng.integers(0, 100, 300),
                "age": rng.normal(size=300),
            }
        )
        table["passed"] = np.where(table["maths"] + table["art"] >= 100, "yes", "no")
        assert set(split(tmp_path, table, "passed")["removed"]) == {"maths", "art"}

    def test_indicators_of_the_classes_are_taken_out(self, tmp_path: Path) -> None:
        table = flowers(kinds=("aster", "iris", "lily", "rose"))
        table["is_a"], table["is_ai"] = table["kind"] == "aster", table["kind"].isin(["aster", "iris"])
        table["is_r"] = table["kind"] == "rose"
        removed = set(split(tmp_path, table, "kind")["removed"])
        assert removed & {"is_a", "is_ai", "is_r"}
        assert removed <= {"is_a", "is_ai", "is_r"}

    def test_keep_leaves_the_part_that_is_wanted(self, tmp_path: Path) -> None:
        notebook = split(tmp_path, self.sales(), "sales", keep=["day_sales"])
        assert set(notebook["removed"]) == {"night_sales"}
        assert "day_sales" in notebook["X_train"]


class TestPlantedBesideTheSplit:
    """What another author's cell may have done before the checks run again."""

    def planted(self, folder: Path) -> ModelNotebook:
        return split(folder, houses(), "price", texts=["notes"])

    def leaks(self, notebook: ModelNotebook) -> list[str]:
        found: list[str] = notebook.value("leaks_of_the_split(X_train, X_test)")
        return found

    def test_an_honest_split_has_none(self, tmp_path: Path) -> None:
        assert self.leaks(self.planted(tmp_path)) == []

    def test_rows_doubled_across_the_split(self, tmp_path: Path) -> None:
        # N-84
        notebook = split(tmp_path, pd.concat([houses()] * 2, ignore_index=True), "price", texts=["notes"])
        rows = pd.concat([notebook["X_train"], notebook["X_test"]]).sort_index()
        notebook.names.update(X_train=rows.iloc[:120], X_test=rows.iloc[120:])
        assert "equal a training row" in " ".join(self.leaks(notebook))

    def test_a_scaler_fitted_on_all_rows(self, tmp_path: Path) -> None:
        # N-84
        notebook = self.planted(tmp_path)
        everything = pd.concat([notebook["X_train"], notebook["X_test"]])
        everything["rooms"] = StandardScaler().fit_transform(everything[["rooms"]])[:, 0]
        for part in ("X_train", "X_test"):
            notebook.names[part] = everything.loc[notebook[part].index]
        assert "'rooms' was changed before the split" in " ".join(self.leaks(notebook))

    def test_a_scaled_column_under_a_new_name(self, tmp_path: Path) -> None:
        notebook = self.planted(tmp_path)
        everything = pd.concat([notebook["X_train"], notebook["X_test"]])
        everything["rooms_scaled"] = StandardScaler().fit_transform(everything[["rooms"]])[:, 0]
        for part in ("X_train", "X_test"):
            notebook.names[part] = everything.loc[notebook[part].index]
        assert "'rooms_scaled' was changed before the split" in " ".join(self.leaks(notebook))

    def test_rows_on_both_sides(self, tmp_path: Path) -> None:
        notebook = self.planted(tmp_path)
        notebook.names["X_train"] = pd.concat([notebook["X_train"], notebook["X_test"].head(3)])
        assert self.leaks(notebook)[0].startswith("3 rows")

    def test_the_target_among_the_features(self, tmp_path: Path) -> None:
        notebook = self.planted(tmp_path)
        for part in ("X_train", "X_test"):
            notebook.names[part] = notebook[part].assign(price=notebook["df_typed"]["price"])
        assert "the target 'price' is among the features" in self.leaks(notebook)

    def test_groups_on_both_sides(self, tmp_path: Path) -> None:
        table = houses().assign(owner=np.arange(90) // 3)
        notebook = split(tmp_path, table, "price", split=("group", "owner"))
        rows = pd.concat([notebook["X_train"], notebook["X_test"]]).sort_index()
        notebook.names.update(X_train=rows.iloc[::2], X_test=rows.iloc[1::2])
        assert "groups of 'owner' stand on both sides" in " ".join(self.leaks(notebook))


class TestAgainstTheProbe:
    """What the cell leaves is clean by the flow's own probe, on honest tables as on planted ones."""

    @pytest.mark.parametrize("how", COPIES)
    def test_nothing_is_left_of_a_copy(self, tmp_path: Path, how: str) -> None:
        table = houses(rows=60)
        table["leak"] = COPIES[how](table["price"])
        assert probe(split(tmp_path, table, "price", texts=["notes"])) == []

    def test_codes_of_the_classes_in_texts_are_left_nowhere(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        place = {"aster": 0, "iris": 10, "rose": 20}
        table = flowers().assign(
            leak=lambda rows: (rows["kind"].map(place) + rng.integers(0, 5, len(rows))).map("code-{}".format)
        )
        notebook = split(tmp_path, table, "kind")
        assert set(notebook["removed"]) == {"leak"}
        assert probe(notebook) == []

    @pytest.mark.parametrize("name", ["diabetes", "wine", "breast_cancer", "iris"])
    def test_honest_tables_lose_no_column(self, tmp_path: Path, name: str) -> None:
        table = getattr(datasets, f"load_{name}")(as_frame=True).frame
        notebook = split(tmp_path, table, "target")
        assert notebook["removed"] == {}
        assert notebook["leakage_report"]["leaks"] == []
        assert probe(notebook) == []
