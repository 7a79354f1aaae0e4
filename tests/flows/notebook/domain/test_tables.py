"""Tables are read by what is in them, and a cell reads the same with the code that is written for it."""

from pathlib import Path

import pandas as pd
import pytest

from detent.flows.notebook.domain.tables import (
    TableError,
    column_names,
    read_format,
    read_table,
    reading_code,
    table_facts,
)
from detent.kernel.errors import ConfigurationError, IntegrationMissing


def write(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_both_ways(path: Path) -> pd.DataFrame:
    """The table as `read_table` gives it, after the cell's code has given the same."""
    facts = table_facts(path, str(path))
    table = read_table(path, facts.format)
    in_cell = eval(reading_code(facts), {"pd": pd})
    pd.testing.assert_frame_equal(table, in_cell)
    assert tuple(table.columns) == facts.columns
    assert len(table) == facts.rows
    return table


class TestSeparators:
    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    def test_each_of_the_four_is_found(self, tmp_path, separator):
        lines = [separator.join(row) for row in (["a", "b", "c"], ["1", "x", "2.5"], ["2", "y", "3.5"])]
        table = read_both_ways(write(tmp_path, "\n".join(lines)))
        assert table["c"].tolist() == [2.5, 3.5]

    def test_commas_in_quoted_fields_are_text(self, tmp_path):
        table = read_both_ways(write(tmp_path, 'name;note\n"a;b";"x, y, z"\nc;"1, 2, 3"\n'))
        assert table["name"].tolist() == ["a;b", "c"]

    def test_decimal_commas_do_not_make_the_comma_the_separator(self, tmp_path):
        table = read_both_ways(write(tmp_path, "x;y\n1,5;2,5\n3,25;4,75\n"))
        assert table["x"].tolist() == [1.5, 3.25]
        assert table["y"].tolist() == [2.5, 4.75]

    def test_more_commas_than_semicolons_in_a_text_column_change_nothing(self, tmp_path):
        rows = "".join(f"{n};a, b, c{', d' * (n % 3)};{n}\n" for n in range(5, 30))
        table = read_both_ways(write(tmp_path, "key;text;value\n" + rows))
        assert list(table.columns) == ["key", "text", "value"]

    def test_a_line_that_names_the_separator_is_skipped(self, tmp_path):
        table = read_both_ways(write(tmp_path, "sep=;\na;b\n1;2\n"))
        assert list(table.columns) == ["a", "b"]

    def test_titles_above_the_column_names_are_skipped(self, tmp_path):
        text = "Sales, all regions\nmade for the board\n\nregion;sales\nnorth;1,5\nsouth;2,5\n"
        table = read_both_ways(write(tmp_path, text))
        assert table.to_dict("list") == {"region": ["north", "south"], "sales": [1.5, 2.5]}

    def test_blanks_after_separators_are_no_part_of_names_or_values(self, tmp_path):
        table = read_both_ways(write(tmp_path, 'a, "b, c" , d\n5, "x, y", z\n2, w, v\n'))
        assert list(table.columns) == ["a", "b, c", "d"]
        assert table["d"].tolist() == ["z", "v"]


class TestEncodings:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
    def test_names_and_values_come_out_as_they_were(self, tmp_path, encoding):
        path = write(tmp_path, "größe,café\n1,naïve\n2,“x”\n".encode(encoding))
        table = read_both_ways(path)
        assert list(table.columns) == ["größe", "café"]
        assert table["café"].tolist() == ["naïve", "“x”"]

    def test_bytes_that_windows_1252_lacks_are_latin_1(self, tmp_path):
        path = write(tmp_path, b"a,b\n\xe9\x81,1\n\xe8,2\n")
        assert read_format(path).encoding == "latin-1"

    def test_a_wrong_byte_far_down_is_seen(self, tmp_path):
        path = write(tmp_path, b"a,b\n" + b"x,1\n" * 400_000 + b"\xe9,2\n")
        assert read_format(path).encoding == "cp1252"
        assert read_both_ways(path)["a"].iloc[-1] == "é"


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "numbers"),
        [
            ("a;n\nx;1.234,56\ny;7,5\n", [1234.56, 7.5]),
            ('a,n\nx,"1,234.56"\ny,"7,500"\n', [1234.56, 7500.0]),
            ("a;n\nx;1,250\ny;950\nz;12,000\n", [1250, 950, 12000]),
            ("a;n\nx;0,850\ny;1,250\n", [0.85, 1.25]),
            ("a\tn\nx\t1,250\ny\t3,000\n", [1250, 3000]),
            ("a;n\nx;1 234,5\ny;2,5\n", [1234.5, 2.5]),
            ("a;n\nx;1'234.5\ny;2.5\n", [1234.5, 2.5]),
            ("a;n\nx;NA\ny;2,5\nz;?\n", None),
            ("a,n\nx,-1.5e3\ny,2\n", [-1500.0, 2.0]),
        ],
    )
    def test_decimal_commas_and_thousands_are_recognised(self, tmp_path, text, numbers):
        table = read_both_ways(write(tmp_path, text))
        if numbers is not None:
            assert table["n"].tolist() == numbers

    def test_dates_with_full_stops_stay_dates_beside_grouped_numbers(self, tmp_path):
        """With `thousands="."`, pandas reads 01.02.2020 as 1022020."""
        table = read_both_ways(write(tmp_path, "day;n\n01.02.2020;1.234,5\n02.03.2021;5.678,5\n"))
        assert table["day"].tolist() == ["01.02.2020", "02.03.2021"]

    def test_lists_of_numbers_are_not_run_together(self, tmp_path):
        table = read_both_ways(write(tmp_path, 'a,tags,n\nx,"1,2","1,500"\ny,"3,4,5","2,500"\n'))
        assert table["tags"].tolist() == ["1,2", "3,4,5"]


class TestColumnNames:
    def test_doubled_and_empty_names_are_told_apart(self, tmp_path):
        table = read_both_ways(write(tmp_path, "a, b,b,b ,,\nx,1,2,3,4,5\ny,2,3,4,5,6\n"))
        assert list(table.columns) == ["a", "b", "b.1", "b.2", "Unnamed: 4", "Unnamed: 5"]

    def test_odd_names_are_data(self, tmp_path):
        names = ['a"b', "it's", "x\ny", "class", "</add-code2run>", "a,b", "ä{x}", "\\n", "#"]
        header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
        row = ",".join(["1"] * len(names))
        table = read_both_ways(write(tmp_path, f"{header}\n{row}\n{row}\n"))
        assert list(table.columns) == names

    def test_odd_names_that_are_set_one_by_one_are_data_too(self, tmp_path):
        text = 'it\'s ,"a""b","x\ny",it\'s\n1,2,3,4\n5,6,7,8\n'
        table = read_both_ways(write(tmp_path, text))
        assert list(table.columns) == ["it's", 'a"b', "x\ny", "it's.1"]

    def test_a_name_made_distinct_does_not_meet_another(self):
        assert column_names(["a", "a", "a.1", " a"]) == ["a", "a.1", "a.1.1", "a.2"]


class TestIndexColumns:
    @pytest.mark.parametrize("name", ["", "Unnamed: 0", "Order", "id"])
    def test_a_running_first_column_is_no_column_of_the_table(self, tmp_path, name):
        rows = "".join(f"{n},{n * 2},{n * 3}\n" for n in range(1, 8))
        table = read_both_ways(write(tmp_path, f"{name},x,y\n{rows}"))
        assert list(table.columns) == ["x", "y"]
        assert table.index[0] == 1

    def test_row_names_without_a_column_name_are_the_index(self, tmp_path):
        table = read_both_ways(write(tmp_path, "mpg,cyl\nMazda,21.0,6\nDatsun,22.8,4\n"))
        assert table.index.tolist() == ["Mazda", "Datsun"]
        assert table["mpg"].tolist() == [21.0, 22.8]

    @pytest.mark.parametrize(
        ("header", "rows"),
        [
            ("year,x,y", "1999,1,2\n2000,3,4\n2001,5,6\n"),
            ("id,x,y", "1,1,2\n2,3,4\n2,5,6\n"),
            ("id,x,y", "1,1,2\n3,3,4\n2,5,6\n"),
            ("x,y", "1,3\n2,5\n3,7\n"),
            (",x,y", "a,1,2\na,3,4\nb,5,6\n"),
        ],
        ids=["years", "doubled", "out of order", "the only feature", "unnamed and doubled"],
    )
    def test_any_other_first_column_stays(self, tmp_path, header, rows):
        assert read_both_ways(write(tmp_path, f"{header}\n{rows}")).shape[1] == len(header.split(","))

    def test_a_separator_at_the_end_of_each_line_shifts_nothing(self, tmp_path):
        """Left alone, pandas takes the first column for the index."""
        table = read_both_ways(write(tmp_path, "a,b,c\nx,2,3,\ny,5,6,\n"))
        assert table.to_dict("list") == {"a": ["x", "y"], "b": [2, 5], "c": [3, 6]}


class TestBrokenFiles:
    @pytest.mark.parametrize(
        ("content", "line"),
        [
            (b"", None),
            (b"\n\n  \n", None),
            (b"a,b,c\n", 1),
            (b"a,b,c\n1,2,3\n4,5,6,7\n8,9,10\n", 3),
            (b"a,b,c\n1,2,3\n\n4,5\n", 4),
            (b'a,b\n1,"x\ny"\n2,3\n4,5,6\n', 5),
            (b"one column\n1\n2\n", None),
            (b"a,b\n1,2\n3,\x00\x01\x02\n", 3),
            (b"\x89PNG\r\n\x1a\n1234567890", None),
            (b"PK\x03\x04 a,b\n1,2\n", None),
            (b'a,b\n1,2\n3,"4\n5,6\n7,8\n', 3),
        ],
        ids=[
            "empty", "blank", "header only", "too long", "too short", "too long below a quoted line end",
            "one column", "binary", "picture", "workbook", "open quote",
        ],
    )  # fmt: skip
    def test_each_is_refused_with_its_line(self, tmp_path, content, line):
        with pytest.raises(TableError) as caught:
            read_format(write(tmp_path, content))
        assert caught.value.line == line
        assert isinstance(caught.value, ConfigurationError)

    def test_a_missing_file_and_an_unknown_kind_are_refused(self, tmp_path):
        with pytest.raises(TableError, match="no such file"):
            read_format(tmp_path / "none.csv")
        with pytest.raises(TableError, match="'.docx'"):
            read_format(write(tmp_path, "a,b\n1,2\n", "table.docx"))


class TestOtherKinds:
    def test_parquet(self, tmp_path):
        frame = pd.DataFrame({" a ": [1, 2], 7: ["x", None]})
        frame.columns = [" a ", "7"]
        frame.to_parquet(tmp_path / "table.parquet")
        assert list(read_both_ways(tmp_path / "table.parquet").columns) == ["a", "7"]

    def test_parquet_that_is_none_is_refused(self, tmp_path):
        with pytest.raises(TableError):
            read_format(write(tmp_path, "a,b\n1,2\n", "table.parquet"))

    def test_lines_of_json(self, tmp_path):
        text = '{"code": "007", "n": 1, "created_at": "x"}\n{"code": "010", "n": null, "created_at": "y"}\n'
        table = read_both_ways(write(tmp_path, text, "table.jsonl"))
        assert table["code"].tolist() == ["007", "010"]

    @pytest.mark.parametrize("second", ['{"a": 1', "[1, 2]", '{"a": [1], "b": 2}', '{"a": {"x": 1}, "b": 2}'])
    def test_a_line_that_is_no_flat_object_is_named(self, tmp_path, second):
        with pytest.raises(TableError) as caught:
            read_format(write(tmp_path, '{"a": 1, "b": 2}\n' + second + "\n", "table.jsonl"))
        assert caught.value.line == 2

    def test_a_workbook_is_read_or_its_reader_is_named(self, tmp_path):
        path = tmp_path / "table.xlsx"
        try:
            pd.DataFrame({"a": [1, 2], " b": ["x", "y"]}).to_excel(path, index=False)
        except ModuleNotFoundError:
            write(tmp_path, b"PK\x03\x04", "table.xlsx")
            with pytest.raises(IntegrationMissing, match="openpyxl"):
                read_format(path)
        else:
            assert list(read_both_ways(path).columns) == ["a", "b"]


def test_the_code_takes_an_expression_for_the_path(tmp_path):
    path = write(tmp_path, "a,b\n1,2\n")
    facts = table_facts(path, "assets/table.csv")
    assert reading_code(facts).startswith("pd.read_csv('assets/table.csv', ")
    names = {"pd": pd, "user_submit_files": [str(path)]}
    assert eval(reading_code(facts, "user_submit_files[0]"), names).shape == (1, 2)
