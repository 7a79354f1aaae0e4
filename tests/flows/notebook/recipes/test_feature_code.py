"""How features are prepared inside the pipeline."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.flows.notebook.recipes.model_notebooks import SPLITTING, ModelNotebook, flowers, houses, prepared
from tests.flows.notebook.recipes.tables_of_odd_names import ODD_NAMES


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> ModelNotebook:
    table = houses()
    table["heated"] = table["rooms"] > 3
    folder = tmp_path_factory.mktemp("houses")
    return prepared(folder, table, "price", texts=["notes"]).cook(SPLITTING)


def transformed(notebook: ModelNotebook, rows: pd.DataFrame) -> np.ndarray:
    values: np.ndarray = notebook["feature_pipeline"].transform(rows)
    return values


class TestFitting:
    def test_medians_and_scales_come_from_the_training_rows_alone(self, notebook: ModelNotebook) -> None:
        # 9.2: a median over all rows would carry knowledge of the held-out ones.
        numbers = notebook["feature_pipeline"]["columns"].named_transformers_["numbers"]
        median = numbers.named_steps["simpleimputer"].statistics_[0]
        assert median == notebook["X_train"]["size"].median()
        assert median != notebook["df_typed"]["size"].median()

    def test_a_row_that_lacks_everything_is_prepared(self, notebook: ModelNotebook) -> None:
        rows = notebook["X_test"].head(2).copy()
        for name in rows:
            rows[name] = pd.NaT if name == "built" else None
        rows = rows.astype({"built": "datetime64[ns]"})
        assert np.isfinite(transformed(notebook, rows)).all()

    def test_a_level_never_seen_is_prepared(self, notebook: ModelNotebook) -> None:
        rows = notebook["X_test"].head(3).assign(town="Atlantis")
        assert np.isfinite(transformed(notebook, rows)).all()

    def test_the_order_of_columns_does_not_matter(self, notebook: ModelNotebook) -> None:
        rows = notebook["X_test"]
        assert np.array_equal(transformed(notebook, rows), transformed(notebook, rows[rows.columns[::-1]]))

    def test_a_missing_value_leaves_a_trace(self, notebook: ModelNotebook) -> None:
        row = notebook["X_train"][notebook["X_train"]["size"].isna()].head(1)
        filled = row.assign(size=notebook["X_train"]["size"].median())
        assert not np.array_equal(transformed(notebook, row), transformed(notebook, filled))

    def test_nothing_of_the_notebook_is_in_the_pipeline(self, notebook: ModelNotebook) -> None:
        assert b"__main__" not in pickle.dumps(notebook["feature_pipeline"])


class TestKinds:
    def test_a_date_becomes_year_month_and_weekday(self, notebook: ModelNotebook) -> None:
        parts = notebook["feature_pipeline"]["columns"].named_transformers_
        date = pd.DataFrame({"built": pd.to_datetime(["2011-03-06"])})
        means = {part: parts[part][-1].mean_[0] for part in ("year", "month", "day_of_week")}
        scales = {part: parts[part][-1].scale_[0] for part in means}
        back = {part: parts[part].transform(date)[0, 0] * scales[part] + means[part] for part in means}
        assert back == pytest.approx({"year": 2011, "month": 3, "day_of_week": 6})

    def test_a_time_of_day_adds_the_hour(self, tmp_path: Path) -> None:
        table = houses(60).assign(built=lambda rows: rows["built"] + pd.to_timedelta(rows["rooms"], unit="h"))
        notebook = prepared(tmp_path, table, "price").cook(SPLITTING)
        assert "hour" in notebook["feature_pipeline"]["columns"].named_transformers_

    def test_a_text_becomes_at_most_a_hundred_terms(self, tmp_path: Path) -> None:
        table = houses(60)
        words = np.array([f"word{number}" for number in range(400)])
        rng = np.random.default_rng(1)
        table["notes"] = [" ".join(rng.choice(words, 30)) for _ in range(60)]
        notebook = prepared(tmp_path, table, "price", texts=["notes"]).cook(SPLITTING)
        terms = notebook["feature_pipeline"]["columns"].named_transformers_["words_0"][-1]
        assert len(terms.vocabulary_) == 100

    def test_rare_levels_are_grouped(self, tmp_path: Path) -> None:
        table = houses(90)
        table["agent"] = [f"agent {number}" if number < 40 else "the usual one" for number in range(90)]
        notebook = prepared(tmp_path, table, "price").cook(SPLITTING)
        encoder = notebook["feature_pipeline"]["columns"].named_transformers_["categories"][-1]
        agents = encoder.categories_[
            list(notebook.value('columns_by_kind(X_train)["categories"]')).index("agent")
        ]
        assert len(agents) > 20
        assert notebook["encoded_columns"] < 30

    def test_numbers_planned_as_categories_are_encoded(self, tmp_path: Path) -> None:
        notebook = prepared(tmp_path, houses(60), "price")
        strategy = notebook["feature_engineering_strategy"]
        strategy["numeric"].remove("rooms")
        strategy["categorical"].append("rooms")
        notebook.cook(SPLITTING)
        assert notebook.value('columns_by_kind(X_train)["codes"]') == ["rooms"]

    def test_what_holds_text_is_no_number_whatever_the_plan(self, tmp_path: Path) -> None:
        notebook = prepared(tmp_path, houses(60), "price")
        strategy = notebook["feature_engineering_strategy"]
        strategy["categorical"].remove("town")
        strategy["numeric"].append("town")
        notebook.cook(SPLITTING)
        assert "town" in notebook.value('columns_by_kind(X_train)["categories"]')

    @pytest.mark.parametrize("dtype", ["category", "string", "object", "bool", "boolean", "Int64", "float32"])
    def test_every_type_of_column_is_prepared(self, tmp_path: Path, dtype: str) -> None:
        table = flowers(60)
        numbers = np.arange(60) % 2
        table["extra"] = (
            pd.Series(numbers).astype(dtype)
            if dtype in ("bool", "boolean", "Int64", "float32")
            else pd.Series(np.where(numbers, "x", "y")).astype(dtype)
        )
        if dtype not in ("bool", "float32"):
            table.loc[:9, "extra"] = None
        notebook = prepared(tmp_path, table, "kind").cook(SPLITTING)
        assert np.isfinite(transformed(notebook, notebook["X_test"])).all()


class TestWidth:
    def test_above_five_hundred_columns_the_best_two_hundred_are_kept(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(60, 520))).add_prefix("x")
        table["price"] = table["x7"] * 3 + rng.normal(size=60)
        notebook = prepared(tmp_path, table, "price").cook(SPLITTING)
        assert transformed(notebook, notebook["X_test"]).shape == (12, 200)
        assert notebook["encoded_columns"] == 200
        # The filter is fitted like the rest: it belongs to the pipeline, not to the table.
        assert notebook["X_train"].shape[1] == 520

    def test_below_all_are_kept(self, notebook: ModelNotebook) -> None:
        assert notebook["KEEP_BEST"] is None


class TestNames:
    def test_column_names_are_data(self, tmp_path: Path) -> None:
        # N-111
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(60, len(ODD_NAMES))), columns=ODD_NAMES)
        table["it's"] = rng.choice(["x", "y"], 60)
        table['a"b'] = table["class"] * 2 + rng.normal(size=60)
        notebook = prepared(tmp_path, table, 'a"b', keep=["x\ny"]).cook(SPLITTING)
        assert set(notebook["X_train"].columns) == set(ODD_NAMES) - {'a"b'}
