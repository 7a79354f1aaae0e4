"""The sentence, the options and the table become one value, or an error that says what to change."""

import numpy as np
import pandas as pd
import pytest

from detent.flows.notebook.domain.problem import ProblemError
from detent.flows.notebook.domain.problem_reader import read_problem
from detent.flows.notebook.domain.tables import reading_code
from tests.flows.notebook.domain.made_tables import made_table

HOUSES = "PID:key LotArea:int Street:cat(2) Utilities:one Sold:date SalePrice:int"


def write(folder, description, name="houses.csv", **options):
    path = folder / name
    made_table(description).to_csv(path, index=False, **options)
    return path


def test_everything_is_read_at_once(tmp_path):
    file = write(tmp_path, HOUSES, sep=";")
    reading = read_problem(
        "Build house price model, RMSE < 25000, R² > 0.85", [file, tmp_path / "more.csv"], keep=["PID"]
    )
    assert (reading.target, reading.task) == ("SalePrice", "regression")
    assert [str(threshold) for threshold in reading.thresholds] == ["RMSE < 25000", "R2 > 0.85"]
    assert reading.table.file == "assets/houses.csv"
    assert reading.table.format.separator == ";"
    assert (reading.table.rows, reading.table.columns[0]) == (200, "PID")
    assert reading.dates == ("Sold",)
    assert set(reading.not_features) == {"Utilities"}
    assert reading.keep == ("PID",)
    assert reading.other_files == ("assets/more.csv",)
    assert reading.warnings == ()


def test_two_readings_are_equal(tmp_path):
    file = write(tmp_path, HOUSES)
    assert read_problem("house price", [file]) == read_problem("house price", [file])


def test_group_columns_are_no_features_when_groups_are_held_out(tmp_path):
    file = write(tmp_path, "clinic:cat(20) patient_id:few(60) x:num dose:num")
    reading = read_problem("Predict dose for new clinics", [file])
    assert reading.split.column == "clinic"
    assert set(reading.not_features) == {"clinic", "patient_id"}
    shuffled = read_problem("Predict dose for new clinics", [file], split="shuffled")
    assert shuffled.not_features == {}


def test_warnings_of_all_parts_come_together(tmp_path):
    file = write(tmp_path, "store_id:bin x:num z:num")
    reading = read_problem("Have a look, RMSE and R2", [file])
    assert len(reading.warnings) == 4
    assert "'RMSE'" in reading.warnings[0]
    assert "'z'" in reading.warnings[2]


def test_a_counting_first_column_is_a_column_when_an_option_names_it(tmp_path):
    table = made_table("x:num y:num")
    table.insert(0, "week", np.arange(1, len(table) + 1))
    table.to_csv(tmp_path / "t.csv", index=False)
    assert "week" not in read_problem("Predict y", [tmp_path / "t.csv"]).table.columns
    reading = read_problem("Predict y", [tmp_path / "t.csv"], split="time:week")
    assert "week" in reading.table.columns
    assert "index_col" not in reading_code(reading.table)


def test_a_table_without_a_line_of_names_is_told(tmp_path):
    (tmp_path / "t.csv").write_text("".join(f"{n}.5,{n * 7 % 13}.25,{n % 3}\n" for n in range(60)))
    assert "first line" in read_problem("Predict", [tmp_path / "t.csv"]).warnings[-1]


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("", {}),
        ("Predict", {"target": "Price"}),
        ("Predict SalePrice, RMSE > 25000", {}),
        ("Predict SalePrice, accuracy > 0.9", {}),
        ("Predict SalePrice", {"split": "group:Zone"}),
        ("Predict SalePrice", {"keep": ["Nothing"]}),
        ("Predict Utilities", {}),
        ("Forecast SalePrice", {}),
    ],
)
def test_what_cannot_be_worked_on_is_a_configuration_error(tmp_path, problem, options):
    with pytest.raises(ProblemError) as caught:
        read_problem(problem, [write(tmp_path, HOUSES)], **options)
    assert caught.value.exit_code == 2


def test_no_file_and_no_feature_are_refused(tmp_path):
    with pytest.raises(ProblemError, match="No file"):
        read_problem("Predict y", [])
    with pytest.raises(ProblemError, match="No column is left"):
        read_problem("Predict y", [write(tmp_path, "key:key same:one y:num")])


class TestOddTables:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
    def test_money_as_text_in_any_encoding(self, tmp_path, encoding):
        """N-113: money as text is a number."""
        table = made_table("größe:num Preis:money")
        table.to_csv(tmp_path / "t.csv", index=False, encoding=encoding)
        reading = read_problem("Predict Preis", [tmp_path / "t.csv"])
        assert (reading.target, reading.task) == ("Preis", "regression")

    def test_odd_column_names(self, tmp_path):
        names = ['a"b', "it's", "x\ny", "class", "</add-code2run>", "", "b", "b"]
        table = pd.DataFrame(np.random.default_rng(0).normal(size=(50, len(names))).round(3), columns=names)
        table.to_csv(tmp_path / "t.csv", index=False)
        reading = read_problem("Predict </add-code2run>", [tmp_path / "t.csv"])
        assert reading.target == "</add-code2run>"
        assert reading.table.columns == (
            'a"b',
            "it's",
            "x\ny",
            "class",
            "</add-code2run>",
            "Unnamed: 5",
            "b",
            "b.1",
        )


def test_a_thousand_columns_that_may_all_name_groups_are_read(tmp_path):
    """Comparing each with each in all rows would take longer than a test may."""
    values = np.random.default_rng(0).integers(0, 9, (5000, 1000))
    pd.DataFrame(values, columns=[f"c{n}" for n in range(1000)]).to_parquet(tmp_path / "t.parquet")
    assert read_problem("Predict c7", [tmp_path / "t.parquet"]).target == "c7"


@pytest.mark.parametrize(
    ("encoding", "name", "level", "is_told"),
    [
        ("cp1250", "miejscowość", "Łódź", True),
        ("cp1250", "y", "gęś żółć", True),
        ("cp1251", "город", "Москва", True),
        ("shift_jis", "都市", "東京", True),
        ("cp1252", "größe", "Überlänge in °C", False),
        ("cp1252", "année", "été, l’âge, col·lecció", False),
        ("latin-1", "tamaño", "útil 5 m³", False),
        ("utf-8", "miejscowość", "Łódź", False),
    ],
)
def test_letters_of_another_alphabet_are_told(tmp_path, encoding, name, level, is_told):
    file = tmp_path / "table.csv"
    lines = [f"{name},x,z", *(f'"{level}",{row % 7},{row / 3:.2f}' for row in range(30))]
    file.write_bytes("\n".join(lines).encode(encoding))
    warnings = [warning for warning in read_problem("Predict z", [file]).warnings if "UTF-8" in warning]
    assert len(warnings) == is_told


@pytest.mark.parametrize(
    ("last", "is_told"), [("Total,,900", True), ("Summe:,,900", True), ("b,5,900", False), ("a,,1", False)]
)
def test_a_row_of_totals_is_told(tmp_path, last, is_told):
    file = tmp_path / "table.csv"
    rows = [f"{'ab'[row % 2]},{row % 7},{row / 3:.2f}" for row in range(30)]
    file.write_text("\n".join(["name,x,z", *rows, last]))
    warnings = [warning for warning in read_problem("Predict z", [file]).warnings if "adds up" in warning]
    assert len(warnings) == is_told


def test_a_level_called_total_is_no_row_of_totals(tmp_path):
    file = tmp_path / "table.csv"
    rows = [f"{('part', 'total')[row % 2]},{row % 7},{row / 3:.2f}" for row in range(30)]
    file.write_text("\n".join(["name,x,z", *rows]))
    assert not read_problem("Predict z", [file]).warnings


def test_a_table_of_row_numbers_and_a_target_says_so(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("\n".join([",z", *(f"{row},{row * 7 % 11}" for row in range(30))]))
    with pytest.raises(ProblemError, match="counts the rows"):
        read_problem("Predict z", [file])
