"""The script that predicts, run as a user runs it: in its own process, from another folder."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mean_squared_error

from detent.flows.notebook.recipes.predict_script import predict_script
from tests.flows.notebook.recipes.model_notebooks import (
    MODELLING,
    ModelNotebook,
    flowers,
    from_file,
    houses,
    prepared,
)
from tests.flows.notebook.recipes.tables_of_odd_names import ODD_NAMES


def with_script(notebook: ModelNotebook) -> Path:
    """The script, written where the notebook's last stage writes it."""
    path = notebook.folder / "outputs" / "predict.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(predict_script(notebook.kitchen), encoding="utf-8")
    return path


def run(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The script in a process of its own, run from the root folder."""
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)


def predict(script: Path, table: pd.DataFrame | str | bytes, name: str = "new.csv") -> pd.DataFrame:
    """The predictions for a new table, by the script's own code in this process."""
    new, out = script.parent / name, script.parent / "out.csv"
    if isinstance(table, pd.DataFrame):
        table.to_csv(new, index=False)
    else:
        new.write_bytes(table.encode() if isinstance(table, str) else table)
    runpy.run_path(str(script), run_name="predict")["main"]([str(new), str(out)])
    return pd.read_csv(out)


def cars(rows: int, seed: int = 0, decimal: str = ".") -> pd.DataFrame:
    """Used cars as people write them: units, dates by day, spellings, and words for no value."""
    rng = np.random.default_rng(seed)
    km, power = rng.integers(5, 250, rows) * 1000, rng.uniform(40, 200, rows).round(1)
    fuel = rng.choice(
        ["Diesel", "diesel", "Petrol", " PETROL", "Electric"], rows, p=[0.3, 0.1, 0.3, 0.2, 0.1]
    )
    first = pd.Timestamp("2005-01-01") + pd.to_timedelta(rng.integers(0, 6000, rows), unit="D")
    clean = pd.Series(fuel).str.strip().str.casefold()
    price = 20_000 - 0.05 * km + 60 * power + 3000 * (clean == "electric") + rng.normal(0, 800, rows)
    return pd.DataFrame(
        {
            "mileage": [f"{value:,} km" if value % 3000 else "n/a" for value in km],
            "power": [str(value).replace(".", decimal) for value in power],
            "fuel": fuel,
            "registered": first.strftime("%d.%m.%Y"),
            "serial": [f"X{number:05d}" for number in rng.permutation(rows)],
            "price": price.round(0),
        }
    )


@pytest.fixture(scope="module")
def garage(tmp_path_factory: pytest.TempPathFactory) -> ModelNotebook:
    notebook = from_file(
        tmp_path_factory.mktemp("garage"),
        cars(110).to_csv(index=False),
        "Predict price of used cars, RMSE below 5000",
    )
    notebook.cook(*MODELLING)
    with_script(notebook)
    return notebook


@pytest.fixture(scope="module")
def script(garage: ModelNotebook) -> Path:
    return garage.folder / "outputs" / "predict.py"


class TestRegression:
    # N-110
    def test_rows_never_seen_score_as_the_hold_out_does(self, garage: ModelNotebook, script: Path) -> None:
        # In a fresh process: the model holds nothing of the notebook.
        new = cars(300, seed=1)
        new.to_csv(script.parent / "unseen.csv", index=False)
        result = run(script, script.parent / "unseen.csv", script.parent / "unseen_out.csv")
        assert result.returncode == 0, result.stderr
        predictions = pd.read_csv(script.parent / "unseen_out.csv")
        held_out = garage.value("all_scores(final_model, X_test, y_test)")["rmse"]
        assert len(predictions) == 300
        error = mean_squared_error(new["price"], predictions["prediction"]) ** 0.5
        assert 0.5 * held_out < error < 2 * held_out
        assert error < 0.6 * new["price"].std()

    def test_the_training_table_gets_the_models_own_predictions(
        self, garage: ModelNotebook, script: Path
    ) -> None:
        predictions = predict(script, (garage.folder / "assets" / "table.csv").read_bytes())
        rows = garage["df_typed"][list(garage["X_train"].columns)]
        assert np.allclose(predictions["prediction"], garage["final_model"].predict(rows), rtol=1e-9)

    def test_every_column_is_typed_in_a_new_table_as_it_was(self, garage: ModelNotebook) -> None:
        assert garage["reload_check"]["typing_agrees"] == 1.0

    def test_order_target_and_left_out_columns_do_not_matter(self, script: Path) -> None:
        new = cars(20, seed=2)
        whole = predict(script, new)
        turned = predict(script, new[["fuel", "registered", "power", "mileage"]])
        assert list(whole["prediction"]) == list(turned["prediction"])

    def test_rows_stay_in_their_order_and_none_is_dropped(self, script: Path) -> None:
        new = cars(20, seed=2)
        new.loc[[3, 4], ["mileage", "power", "fuel", "registered"]] = ["?", "", None, "soon"]
        new = pd.concat([new, new.head(1)], ignore_index=True)
        predictions = predict(script, new)
        assert len(predictions) == 21
        assert predictions["prediction"].notna().all()
        assert predictions["prediction"][0] == predictions["prediction"][20]

    def test_dates_that_cannot_be_read_are_told(self, script: Path, capsys) -> None:
        """They go in as missing; a person who sends another format must hear of it."""
        new = cars(20, seed=2)
        predict(script, new)
        assert "dates" not in capsys.readouterr().err
        new.loc[:4, "registered"] = "2020-05-17T00:00"
        new.loc[5, "registered"] = "n/a"
        predict(script, new)
        assert "5 of 19 dates in 'registered'" in capsys.readouterr().err

    def test_what_the_model_has_not_learned_is_told_by_column_and_count(
        self, garage: ModelNotebook, script: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        learned = garage["X_train"]["power"]
        new = pd.concat([cars(1, seed=3)] * 10, ignore_index=True)
        new["power"], new["mileage"] = str(learned.median()), "30,000 km"
        predict(script, new)
        assert capsys.readouterr().err == ""
        new.loc[:1, "power"] = "9000"
        new.loc[1:2, "mileage"] = "many"
        new.loc[3, "mileage"] = "n/a"  # no value, which the model knows
        new.loc[4:6, "fuel"] = "Hydrogen"
        predict(script, new)
        told = capsys.readouterr().err
        assert f"2 of 10 numbers in 'power' lie outside {learned.min():g} to {learned.max():g}" in told
        assert "2 of 9 numbers in 'mileage' cannot be read, and count as missing, such as 'many'" in told
        assert "3 of 10 values in 'fuel' are categories that the model was not trained on" in told
        assert "6 of 10 rows hold such values" in told
        assert len(told.splitlines()) == 4

    def test_help_says_how_it_is_used(self, script: Path) -> None:
        result = run(script, "--help")
        assert result.returncode == 0
        assert "python predict.py NEW [OUT]" in result.stdout
        assert result.stderr == ""

    def test_spelling_and_unknown_levels(self, script: Path) -> None:
        new = pd.concat([cars(1, seed=3)] * 3, ignore_index=True)
        new["fuel"] = ["Diesel", " DIESEL ", "Hydrogen"]
        predictions = predict(script, new)["prediction"]
        assert predictions[0] == predictions[1]

    @pytest.mark.parametrize(
        ("separator", "decimal", "encoding"),
        [
            (";", ",", "cp1252"),
            ("\t", ".", "utf-16"),
            (";", ".", "utf-32"),
            ("|", ".", "utf-8-sig"),
            (";", ".", "utf-8"),
        ],
    )
    def test_a_new_table_may_be_written_otherwise(
        self, script: Path, separator: str, decimal: str, encoding: str
    ) -> None:
        plain = predict(script, cars(20, seed=4))
        new = cars(20, seed=4, decimal=decimal).assign(owner="Jürgen")
        written = predict(script, new.to_csv(index=False, sep=separator).encode(encoding))
        assert list(written["prediction"]) == list(plain["prediction"])

    def test_lines_above_the_column_names_and_separators_at_the_end(self, script: Path) -> None:
        new = cars(5, seed=4)
        lines = new.to_csv(index=False, sep=";").splitlines()
        text = "\n".join(["Cars of May", "", lines[0], *(f"{line};" for line in lines[1:])])
        assert list(predict(script, text)["prediction"]) == list(predict(script, new)["prediction"])

    def test_jsonl(self, script: Path) -> None:
        new = cars(5, seed=4)
        written = predict(script, new.to_json(orient="records", lines=True), "new.jsonl")
        assert list(written["prediction"]) == list(predict(script, new)["prediction"])

    def test_a_missing_column_is_named_and_nothing_is_written(self, script: Path) -> None:
        new, out = script.parent / "lacking.csv", script.parent / "nothing.csv"
        cars(3).drop(columns=["power", "fuel"]).to_csv(new, index=False)
        result = run(script, new, out)
        assert result.returncode != 0
        assert "'power', 'fuel'" in result.stderr
        assert not out.exists()

    def test_without_a_file_to_write_the_predictions_are_printed(
        self, script: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        new = script.parent / "three.csv"
        cars(3).to_csv(new, index=False)
        runpy.run_path(str(script), run_name="predict")["main"]([str(new)])
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "prediction"
        assert len(lines) == 4

    def test_a_table_without_rows(self, script: Path) -> None:
        assert len(predict(script, cars(3).head(0))) == 0

    def test_how_it_is_used_is_said(self, script: Path) -> None:
        with pytest.raises(SystemExit, match=r"NEW \[OUT\]"):
            runpy.run_path(str(script), run_name="predict")["main"]([])


class TestClasses:
    def test_a_probability_for_each_label_and_the_labels_themselves(self, tmp_path: Path) -> None:
        # N-110
        table = flowers()
        notebook = prepared(tmp_path, table, "kind").cook(*MODELLING)
        new = flowers(200, seed=9)
        predictions = predict(with_script(notebook), new)
        labels = ["aster", "iris", "rose"]
        assert list(predictions.columns) == ["prediction", *(f"probability_{label}" for label in labels)]
        assert np.allclose(predictions.iloc[:, 1:].sum(axis=1), 1)
        assert set(predictions["prediction"]) <= set(labels)
        assert (predictions["prediction"] == new["kind"]).mean() > 0.5

    def test_labels_that_are_numbers(self, tmp_path: Path) -> None:
        table = flowers(60).assign(kind=lambda rows: rows["kind"].map({"aster": 0, "iris": 1, "rose": 2}))
        notebook = prepared(tmp_path, table, "kind").cook(*MODELLING)
        predictions = predict(with_script(notebook), table)
        assert list(predictions.columns)[1:] == ["probability_0", "probability_1", "probability_2"]
        assert set(predictions["prediction"]) <= {0, 1, 2}


class TestText:
    def test_no_name_can_break_out_of_the_script(self, tmp_path: Path) -> None:
        # N-111
        rng = np.random.default_rng(0)
        table = pd.DataFrame(rng.normal(size=(60, len(ODD_NAMES))), columns=ODD_NAMES).rename(
            columns={"": "blank"}
        )
        target = 'say """ and \\ and \n here'
        table[target] = table["class"] * 2 + rng.normal(size=60)
        notebook = prepared(tmp_path, table, target).cook(*MODELLING)
        predictions = predict(with_script(notebook), table.drop(columns=target))
        assert np.allclose(predictions["prediction"], notebook["final_model"].predict(table), rtol=1e-9)

    def test_it_needs_public_packages_only(self, garage: ModelNotebook) -> None:
        text = predict_script(garage.kitchen)
        assert "detent" not in text.lower()
        compile(text, "predict.py", "exec")

    def test_the_saved_rules_are_plain_json(self, garage: ModelNotebook) -> None:
        saved = json.loads((garage.folder / "models" / "typing.json").read_text(encoding="utf-8"))
        assert saved["columns"] == list(garage["X_train"].columns)
        assert set(saved["forms"]) == set(saved["columns"])


def test_a_table_typed_without_rules_is_typed_again_by_what_is_seen(tmp_path: Path) -> None:
    # Another author's cells may have typed the table, and kept no rules.
    rng = np.random.default_rng(0)
    raw = houses(70)
    raw["size"] = [f"{value:.1f} m²" if pd.notna(value) else "?" for value in raw["size"]]
    raw["built"] = raw["built"].dt.strftime("%d.%m.%Y")
    raw["town"] = [f" {town}" if rng.random() < 0.3 and town else town for town in raw["town"]]
    notebook = prepared(tmp_path, houses(70), "price")
    notebook.names.update(raw_dataset=raw, processing_pipeline_doc="typed by hand")
    notebook.cook(*MODELLING)
    assert notebook["reload_check"]["typing_agrees"] == 1.0
    predictions = predict(with_script(notebook), raw)
    expected = notebook["final_model"].predict(notebook["df_typed"])
    assert np.allclose(predictions["prediction"], expected, rtol=1e-9)
