"""Stage 2, second half: missing values, and the check that the data came through."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.recipes.data_catalogue import RECIPES
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, INTEGRITY, Notebook, notebook

DIMENSION, VALIDITY, COMPLETENESS, VERIFICATION = INTEGRITY


def cleaned(folder, table, problem, **options) -> Notebook:
    return notebook(folder, table, problem, **options).cook(*COLLECTION, *INTEGRITY)


class TestMissingValues:
    def test_the_copy_is_filled_and_the_table_for_models_is_not(self, tmp_path):
        table = tables.customers()
        table.loc[::4, "calls"] = None
        table.loc[::5, "plan"] = None
        table.loc[::6, "since"] = None
        book = cleaned(tmp_path, table, "Predict churn")
        typed, filled = book["df_typed"], book["df_cleaned"]
        assert typed["calls"].isna().sum() == 40
        assert typed["plan"].isna().sum() == 32
        assert filled.notna().all().all()
        assert (filled.loc[typed["calls"].isna(), "calls"] == typed["calls"].median()).all()
        assert (filled.loc[typed["plan"].isna(), "plan"] == typed["plan"].mode()[0]).all()
        assert filled.index.equals(typed.index)
        gaps = int(typed.isna().sum().sum())
        assert f"`df_typed` still has {gaps} missing cells" in book.texts[COMPLETENESS]

    def test_rows_without_target_are_dropped_and_counted(self, tmp_path):
        table = tables.customers()
        table.loc[10:29, "churn"] = None
        book = cleaned(tmp_path, table, "Predict churn")
        assert len(book["df_typed"]) == 140
        assert book["processing_pipeline_doc"]["rows_without_target"] == 20
        assert "20 rows; 140 rows remain" in book.texts[COMPLETENESS]

    def test_labels_that_a_gap_made_floats_are_whole_again(self, tmp_path):
        table = tables.customers()
        table["churn"] = (table["churn"] == "yes").astype(float)
        table.loc[3, "churn"] = np.nan
        book = cleaned(tmp_path, table, "Predict churn")
        assert book["task_type"] == "classification"
        assert sorted(book["df_typed"]["churn"].unique().tolist()) == [0, 1]
        assert book["df_typed"]["churn"].dtype == "int64"

    def test_classes_that_are_halves_become_names(self, tmp_path):
        # scikit-learn takes no fractions for classes.
        table = tables.customers().assign(rating=np.tile([1.5, 2.0, 2.5, 3.0], 40))
        book = cleaned(tmp_path, table, "Classify the rating")
        assert sorted(book["df_typed"]["rating"].unique()) == ["1.5", "2.0", "2.5", "3.0"]

    def test_true_and_false_with_a_gap_stay_true_and_false(self, tmp_path):
        table = tables.customers()
        table["churn"] = (table["churn"] == "yes").astype(object)
        table.loc[3, "churn"] = None
        assert cleaned(tmp_path, table, "Predict churn")["df_typed"]["churn"].dtype == bool

    def test_a_column_known_only_where_the_target_is_not_goes(self, tmp_path):
        table = tables.houses().assign(note=pd.Series([1.0, 2.0, 3.0]))
        table.loc[:2, "price"] = np.nan
        book = cleaned(tmp_path, table, "Predict price")
        assert "note" not in book["df_typed"].columns
        assert book["processing_pipeline_doc"]["columns_without_values"] == ["note"]

    def test_a_table_of_which_nothing_is_left_is_an_error_that_says_so(self, tmp_path):
        table = pd.DataFrame({"x": np.tile([np.inf, -np.inf], 20), "y": np.tile(["a", "b"], 20)})
        with pytest.raises(ValueError, match="Nothing is left to predict 'y' from"):
            cleaned(tmp_path, table, "Predict y")

    def test_the_rules_are_plain_data_for_the_script(self, tmp_path):
        table = tables.houses()
        table["sold"] = pd.date_range("2020-01-28", periods=120).strftime("%d.%m.%Y")
        table["price"] = [f"${value:,.0f}" for value in table["price"]]
        rules = cleaned(tmp_path, table, "Predict price")["processing_pipeline_doc"]["rules"]
        assert json.loads(json.dumps(rules)) == rules
        assert rules["kinds"] == {
            "size": "numeric", "rooms": "numeric", "town": "categorical", "age": "numeric",
            "price": "numeric",
            "sold": "datetime",
        }  # fmt: skip
        assert rules["dates"]["sold"]["format"] == "%d.%m.%Y"
        assert rules["numbers"]["price"]["decimal"] == "."


class TestVerification:
    def test_all_checks_hold_on_a_messy_table(self, tmp_path):
        table = tables.customers()
        table.loc[::4, "calls"] = None
        table.loc[3, "spent"] = np.inf
        table.loc[5, "churn"] = None
        book = cleaned(tmp_path, table, "Predict churn")
        report = book["integrity_verification_report"]
        assert all(report.values())
        assert f"{len(report)} of {len(report)} checks hold" in book.texts[VERIFICATION]
        quality = book["data_quality_report"]
        assert quality["raw_dataset"]["rows"] == 160
        assert quality["df_typed"]["missing cells"] == int(book["df_typed"].isna().sum().sum())

    @pytest.mark.parametrize(
        ("damage", "check"),
        [
            ("df_typed.loc[df_typed.index[0], 'price'] += 1", "the target is as it was read"),
            ("df_cleaned.loc[df_cleaned.index[0], 'size'] += 1", "only gaps were filled"),
            ("df_cleaned.loc[df_cleaned.index[0], 'size'] = None", "the copy has no gap"),
            ("df_typed = df_typed.iloc[1:]; df_cleaned = df_cleaned.iloc[1:]", "rows are accounted for"),
            ("df_typed.loc[df_typed.index[0], 'size'] = np.inf", "no value is infinite"),
        ],
    )
    def test_each_check_sees_its_damage(self, tmp_path, damage, check):
        book = cleaned(tmp_path, tables.houses(), "Predict price")
        exec(damage, book.names)
        text = book.play(RECIPES[VERIFICATION](book.kitchen), VERIFICATION)
        assert book["integrity_verification_report"][check] is False
        assert check in text
