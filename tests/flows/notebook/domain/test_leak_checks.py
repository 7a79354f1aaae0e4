"""N-84: each planted leak is found, and honest columns are left in peace."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from detent.flows.notebook.domain.probes import leaks_probe
from detent.flows.notebook.domain.problem import Split
from tests.flows.notebook.domain.made_notebook import (
    class_table,
    measured,
    notebook,
    number_table,
    reading_of,
)


def leaks(names, task="regression", **about):
    """What the probe finds: by check, the columns."""
    found = measured(leaks_probe(reading_of(task, **about)), names)
    assert found.error is None
    return {finding.check: finding.columns for finding in found.findings}


def with_column(make, task="regression", table=None):
    """A notebook whose table has one more column, `leak`."""
    table = number_table() if table is None else table
    table.insert(0, "leak", make(table["price"]))
    return notebook(table, task, columns=["leak", "a", "b", "c"], model=_Any())


class _Any:
    """A model that takes whatever there is; leaks are looked for in the rows, not in the model."""

    def fit(self, rows, truth):
        self.answer = truth.iloc[0]
        return self

    def predict(self, rows):
        return np.full(len(rows), self.answer)


NUMBER_LEAKS = {
    "copy": lambda y: y,
    "rounded": lambda y: y.round(-1),
    "logarithm": np.log,
    "thousands": lambda y: y / 1000,
    "falling": lambda y: 5000 - y**2,
    "with gaps": lambda y: y.where(np.arange(len(y)) % 3 > 0),
    "as text": lambda y: y.map("${:,.0f}".format),
    "with noise": lambda y: y + np.random.default_rng(0).normal(0, 1.5, len(y)),
}
HONEST = {
    "noise": lambda y: np.random.default_rng(0).normal(size=len(y)),
    "related": lambda y: y + np.random.default_rng(0).normal(0, 15, len(y)),
    "halves": lambda y: (y > y.median()).astype(int),
    "id": lambda y: np.arange(len(y)),
    "hardly known": lambda y: y.where(np.arange(len(y)) < 5),
    "words": lambda y: [f"word {n}" for n in range(len(y))],
}


class TestNumbers:
    @pytest.mark.parametrize("make", NUMBER_LEAKS.values(), ids=NUMBER_LEAKS)
    def test_a_column_that_is_the_target_in_disguise(self, make):
        assert leaks(with_column(make)) == {"copy": ("leak",)}

    @pytest.mark.parametrize("make", HONEST.values(), ids=HONEST)
    def test_a_column_that_is_not(self, make):
        assert leaks(with_column(make)) == {}

    def test_one_extreme_target_makes_no_curve(self):
        table = number_table()
        table.loc[0, ["price", "a"]] = 1e7, 1e5
        assert leaks(notebook(table)) == {}

    def test_a_column_to_keep_is_kept(self):
        assert leaks(with_column(lambda y: y / 1000), keep=["leak"]) == {}

    def test_the_target_itself(self):
        table = number_table()
        names = notebook(table, columns=["a", "price"])
        assert leaks(names) == {"target": ("price",)}


class TestClasses:
    @pytest.mark.parametrize(
        ("labels", "check"),
        [
            ({"low": "cheap", "middle": "fair", "high": "dear"}, "labels"),
            ({"low": 7, "middle": 3, "high": 5}, "labels"),
            ({"low": 0, "middle": 10, "high": 20}, "separation"),
        ],
    )
    def test_its_labels_in_other_words_or_numbers(self, labels, check):
        def make(y):
            codes = y.map(labels)
            return codes if check == "labels" else codes + np.random.default_rng(0).random(len(y))

        assert leaks(with_column(make, "classification", class_table()), "classification") == {
            check: ("leak",)
        }

    def test_labels_with_a_few_words_mixed_up_are_honest(self):
        def make(y):
            words = y.map({"low": "cheap", "middle": "fair", "high": "dear"})
            return words.where(np.arange(len(y)) % 25 > 0, "fair")

        assert leaks(with_column(make, "classification", class_table()), "classification") == {}


class TestCombinations:
    def test_columns_that_add_up(self):
        """Alone they give R² 0.94 and 0.5: day_sales + night_sales = sales."""
        choice = np.random.default_rng(0)
        table = pd.DataFrame({"day": choice.normal(100, 30, 300), "night": choice.normal(40, 25, 300)})
        table["other"] = choice.normal(size=300)
        table["price"] = table["day"] + table["night"]
        assert leaks(notebook(table)) == {"combination": ("day", "night")}

    def test_twelve_months_that_make_a_year(self):
        choice = np.random.default_rng(0)
        table = pd.DataFrame({f"m{n}": choice.gamma(2, 50, 300) for n in range(12)})
        table["noise"] = choice.normal(size=300)
        table["price"] = table.sum(axis=1) - table["noise"]
        assert set(leaks(notebook(table))["combination"]) == {f"m{n}" for n in range(12)}

    def test_in_more_columns_than_rows(self):
        choice = np.random.default_rng(0)
        table = pd.DataFrame(choice.normal(size=(120, 200))).add_prefix("x")
        table["price"] = table["x3"] * 5 - table["x150"] * 2
        assert set(leaks(notebook(table))["combination"]) == {"x3", "x150"}

    def test_a_line_that_parts_the_classes(self):
        choice = np.random.default_rng(0)
        table = pd.DataFrame(choice.normal(100, 30, (300, 3)), columns=["balance", "limit", "age"])
        table["price"] = np.where(table["balance"] > table["limit"], "over", "within")
        assert set(leaks(notebook(table, "classification"), "classification")["combination"]) == {
            "balance", "limit",
        }  # fmt: skip

    def test_a_strong_relation_with_noise_is_honest(self):
        choice = np.random.default_rng(0)
        table = pd.DataFrame(choice.normal(size=(300, 3)), columns=list("abc"))
        table["price"] = table.sum(axis=1) + choice.normal(0, 0.05, 300)
        assert leaks(notebook(table)) == {}


class TestRows:
    def test_doubled_rows_across_the_split(self):
        table = pd.concat([number_table(150)] * 2, ignore_index=True)
        assert "doubled rows" in leaks(notebook(table))

    def test_doubled_rows_on_one_side(self):
        table = pd.concat([number_table(150)] * 2, ignore_index=True)
        test = table.index[table.index % 150 < 30]
        assert leaks(notebook(table, train=table.index.difference(test), test=test)) == {}

    def test_different_observations_with_keys_of_their_own(self):
        table = pd.concat([number_table(150)] * 2, ignore_index=True)
        table["key"] = np.arange(300) * 7
        assert leaks(notebook(table, columns=["a", "b", "c"])) == {}

    def test_a_table_too_coarse_to_tell_rows_apart(self):
        choice = np.random.default_rng(0)
        table = pd.DataFrame(choice.integers(0, 2, (300, 2)), columns=["a", "b"])
        table["price"] = choice.integers(0, 2, 300)
        assert leaks(notebook(table, "classification"), "classification") == {}

    def test_rows_on_both_sides(self):
        names = notebook(number_table())
        names["X_test"] = pd.concat([names["X_test"], names["X_train"].head(3)])
        assert "shared rows" in leaks(names)

    def test_equal_rows_of_different_groups_are_honest(self):
        table = pd.concat([number_table(150)] * 2, ignore_index=True)
        assert leaks(notebook(table), split=Split("group", "a")) == {}


class TestPreparation:
    @pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=["standard", "range"])
    @pytest.mark.parametrize("where", ["features", "df_typed"])
    def test_a_scaler_fitted_on_all_rows(self, scaler, where):
        table = number_table()
        names = notebook(table)
        scaled = pd.DataFrame(scaler.fit_transform(table[["a", "b", "c"]]), columns=["a", "b", "c"])
        names["X_train"], names["X_test"] = (
            scaled.loc[names["X_train"].index],
            scaled.loc[names["X_test"].index],
        )
        if where == "df_typed":
            names["df_typed"] = scaled.assign(price=table["price"])
        assert "fitted on all rows" in leaks(names)

    def test_a_scaler_fitted_on_all_rows_under_new_names(self):
        table = number_table()
        names = notebook(table)
        scaled = pd.DataFrame(
            StandardScaler().fit_transform(table[["a", "b"]]), columns=["a_scaled", "b_scaled"]
        )
        for part in ("X_train", "X_test"):
            names[part] = names[part].join(scaled).drop(columns=["a", "b"])
        assert leaks(names)["fitted on all rows"] in (("a_scaled",), ("b_scaled",))

    def test_gaps_filled_by_all_rows(self):
        table = number_table()
        table.loc[::7, "a"] = np.nan
        names = notebook(table)
        for part in ("X_train", "X_test"):
            names[part] = names[part].assign(a=names[part]["a"].fillna(table["a"].median()))
        assert leaks(names) == {"fitted on all rows": ("a",)}

    def test_a_part_of_the_model_that_has_seen_all_rows(self):
        table = number_table()
        model = TransformedTargetRegressor(
            make_pipeline(ColumnTransformer([("scale", StandardScaler(), ["a", "b"])]), Ridge())
        )
        names = notebook(table, model=model)
        assert leaks(names) == {}
        model.fit(table[["a", "b", "c"]], table["price"])
        assert leaks(names) == {"fitted on all rows": ()}

    def test_what_only_the_training_rows_show_is_honest(self):
        table = number_table()
        table.loc[::7, "a"] = np.nan
        names = notebook(table)
        own = names["X_train"]["a"].median()
        scaler = StandardScaler().fit(names["X_train"][["b"]])
        for part in ("X_train", "X_test"):
            names[part] = names[part].assign(
                a=names[part]["a"].fillna(own), b=scaler.transform(names[part][["b"]])[:, 0]
            )
        assert leaks(names) == {}

    def test_logarithms_and_scaled_columns_of_the_user_s_own_table_are_honest(self):
        table = number_table()
        table["b"] = (table["b"] - table["b"].mean()) / table["b"].std()
        names = notebook(table)
        for part in ("X_train", "X_test"):
            names[part] = names[part].assign(a=np.log1p(names[part]["a"]))
        assert leaks(names) == {}


@pytest.mark.parametrize(
    ("load", "task"),
    [
        (load_diabetes, "regression"),
        (load_wine, "classification"),
        (load_breast_cancer, "classification"),
        (load_iris, "classification"),
    ],
)
def test_well_known_tables_have_no_leak(load, task):
    data = load(as_frame=True)
    table = data.data.assign(price=data.target)
    table = table.drop_duplicates(ignore_index=True)
    assert leaks(notebook(table, task), task) == {}
