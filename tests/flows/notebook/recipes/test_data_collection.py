"""Stage 1, first half: the table is read and described."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace

import pytest

from detent.flows.notebook.domain.problem import ProblemReading, TableFacts, TableFormat
from detent.flows.notebook.recipes.data_collection import variable_semantics_analysis
from detent.flows.notebook.recipes.recipe import Kitchen
from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, Notebook, notebook

INVENTORY, STRUCTURE, SEMANTICS = COLLECTION[:3]


class TestInventory:
    def test_the_inventory_names_the_bytes_that_were_read(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price").cook(INVENTORY)
        content = (tmp_path / "assets" / "table.csv").read_bytes()
        inventory = book["data_inventory_checklist"]
        assert inventory["bytes"] == len(content)
        assert inventory["sha256"] == hashlib.sha256(content).hexdigest()
        assert (inventory["rows"], inventory["columns"]) == (120, 5)
        assert f"{len(content):,} bytes" in book.texts[INVENTORY]
        assert "**120 rows and 5 columns**" in book.texts[INVENTORY]

    def test_both_inputs_of_the_user_are_assigned(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price").cook(INVENTORY)
        assert book["user_problem"] == "Predict price"
        assert book["user_submit_files"] == ["assets/table.csv"]

    def test_the_first_cell_seeds_and_names_packages_and_versions(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price", kitchen={}).cook(INVENTORY)
        assert book["RANDOM_STATE"] == 42
        assert {"python", "numpy", "pandas", "sklearn", "joblib", "matplotlib"} == set(
            book["library_versions"]
        )
        assert f"pandas {book['pd'].__version__}" in book.printed

    def test_the_data_may_lie_beside_the_notebook(self, tmp_path):
        """N-109: the notebook runs where assets were not copied along."""
        book = notebook(tmp_path, tables.houses(), "Predict price")
        shutil.move(tmp_path / "assets" / "table.csv", tmp_path / "table.csv")
        book.cook(INVENTORY)
        assert book["user_submit_files"] == ["table.csv"]

    def test_the_data_may_lie_in_the_folder_that_is_delivered_with_the_notebook(self, tmp_path):
        """N-109: `houses.ipynb` opens what is in `houses_files`, wherever both are copied to."""
        book = notebook(tmp_path, tables.houses(), "Predict price")
        (tmp_path / "houses_files").mkdir()
        shutil.move(tmp_path / "assets", tmp_path / "houses_files" / "assets")
        book.cook(INVENTORY)
        assert book["user_submit_files"] == ["houses_files/assets/table.csv"]

    def test_of_two_delivered_files_that_differ_none_is_taken(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price")
        shutil.move(tmp_path / "assets", tmp_path / "old_files" / "assets")
        shutil.copytree(tmp_path / "old_files", tmp_path / "new_files")
        same = notebook(tmp_path / "same", tables.houses(), "Predict price")
        shutil.copytree(tmp_path / "old_files", tmp_path / "same" / "old_files")
        shutil.move(tmp_path / "same" / "assets", tmp_path / "same" / "new_files" / "assets")
        assert same.cook(INVENTORY)["user_submit_files"] == ["new_files/assets/table.csv"]
        with (tmp_path / "new_files" / "assets" / "table.csv").open("a") as table:
            table.write("1,2,3,4,5\n")
        with pytest.raises(FileNotFoundError, match="several"):
            book.cook(INVENTORY)

    def test_a_missing_file_is_named(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price")
        (tmp_path / "assets" / "table.csv").unlink()
        with pytest.raises(FileNotFoundError, match="table.csv"):
            book.cook(INVENTORY)

    def test_other_files_are_listed(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price")
        (tmp_path / "assets" / "more.csv").write_text("a,b\n1,2\n")
        reading = replace(book.kitchen.problem, other_files=("assets/more.csv",))
        more = Notebook(tmp_path, reading).cook(INVENTORY)
        assert more["data_inventory_checklist"]["other_files"]["more.csv"]["bytes"] == 8

    def test_the_table_of_the_user_stays_as_it_is(self, tmp_path):
        """N-109: byte for byte."""
        book = notebook(tmp_path, tables.customers(), "Predict churn")
        before = (tmp_path / "assets" / "table.csv").read_bytes()
        book.cook(*COLLECTION)
        assert (tmp_path / "assets" / "table.csv").read_bytes() == before

    def test_german_numbers_are_read(self, tmp_path):
        rows = "".join(f"{1000 + n};{n},5;{n % 3}\n" for n in range(40))
        book = notebook(tmp_path, "preis;größe;zone\n" + rows, "Predict preis", target="preis").cook(
            *COLLECTION
        )
        assert book["raw_dataset"]["größe"].dtype == "float64"
        assert book["raw_dataset"]["größe"].max() == 39.5


class TestSecondReading:
    """Iterations 2 and 3 read what the first reading could not."""

    @pytest.mark.parametrize("iteration", [2, 3])
    def test_a_wrong_separator_and_encoding_are_mended(self, tmp_path, iteration):
        (tmp_path / "table.csv").write_bytes("ä;price\n1;2\n3;4\n".encode("cp1252"))
        facts = TableFacts("table.csv", TableFormat("csv", "utf-8", ","), 2, ("ä", "price"))
        book = Notebook(tmp_path, ProblemReading("Predict price", facts, "price", "regression"))
        with pytest.raises((AssertionError, UnicodeDecodeError)):
            book.cook(INVENTORY)
        book.cook(INVENTORY, iteration=iteration)
        assert list(book["raw_dataset"].columns) == ["ä", "price"]
        assert book["raw_dataset"]["price"].tolist() == [2, 4]

    @pytest.mark.parametrize("iteration", [2, 3])
    def test_a_good_first_reading_is_kept(self, tmp_path, iteration):
        table = tables.houses()
        book = notebook(tmp_path, table, "Predict price").cook(INVENTORY, iteration=iteration)
        assert book["raw_dataset"].equals(table)


class TestStructure:
    def test_types_distinct_and_missing_values_are_counted(self, tmp_path):
        table = tables.houses()
        table.loc[:5, "age"] = None
        book = notebook(tmp_path, table, "Predict price").cook(INVENTORY, STRUCTURE)
        document = book["data_structure_document"]
        assert document["missing"]["age"] == 6
        assert document["distinct"]["town"] == 3
        assert document["dtypes"]["age"] == "float64"
        assert "1 column with gaps" in book.texts[STRUCTURE]
        assert "5.0%, in `age`" in book.texts[STRUCTURE]


class TestSemantics:
    def test_the_target_and_the_kinds_are_known(self, tmp_path):
        book = notebook(tmp_path, tables.customers(), "Predict churn").cook(*COLLECTION[:3])
        assert (book["target_column"], book["task_type"]) == ("churn", "classification")
        kinds = {name: entry["kind"] for name, entry in book["variable_analysis_report"].items()}
        assert kinds == {
            "calls": "numeric", "plan": "categorical", "since": "datetime", "spent": "numeric",
            "churn": "categorical",
        }  # fmt: skip
        assert "2 distinct values" in book.texts[SEMANTICS]

    def test_a_target_that_is_not_there_is_an_error_that_names_the_columns(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price").cook(INVENTORY)
        book.names["raw_dataset"] = book["raw_dataset"].drop(columns="price")
        with pytest.raises(KeyError, match="size"):
            book.cook(SEMANTICS)

    def test_a_target_with_one_value_is_an_error(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price").cook(INVENTORY)
        book.names["raw_dataset"] = book["raw_dataset"].assign(price=1)
        with pytest.raises(ValueError, match="price"):
            book.cook(SEMANTICS)

    def test_remarks_of_the_reading_are_passed_on(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price")
        reading = replace(book.kitchen.problem, warnings=("No limit was read for R2.",))
        assert "No limit was read for R2." in variable_semantics_analysis(Kitchen(reading)).lead
