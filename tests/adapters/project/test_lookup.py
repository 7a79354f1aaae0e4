"""`lookup`: rows of real files, read once, and never from outside the project."""

from __future__ import annotations

import os
import sqlite3

import pytest

from detent.adapters.project.lookup import LookupTables, lookup_tool
from detent.adapters.project.text_files import TextFiles
from detent.engine.tools import ToolError

CSV = "number,title,days\nL-1,Tides,12\nL-2,Moss,3\n17, Salt ,0\nL-4,Moss\n"
YAML = """
"4711": {name: Ines, since: 2020-01-31}
4712: {name: Otto}
rates: {spring: [{code: a, price: 3}, {code: b, price: 4.0}]}
"""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "loans.csv").write_text(CSV)
    (folder / "members.yaml").write_text(YAML)
    with sqlite3.connect(folder / "shelf.db") as connection:
        connection.execute("CREATE TABLE books (code INTEGER, title TEXT, mark)")
        connection.execute("INSERT INTO books VALUES (7, 'Tides', 9), (8, 'Moss', 'x'), (9, 'Moss', '9')")
        connection.execute('CREATE VIEW "late ones" AS SELECT * FROM books WHERE code > 7')
    connection.close()
    return folder


@pytest.fixture
def tables(project):
    return LookupTables(TextFiles(project))


def refused(tables, code, **args):
    with pytest.raises(ToolError) as caught:
        tables.lookup(**args)
    assert caught.value.code == code, str(caught.value)
    assert not caught.value.transient
    return caught.value.message


def test_a_row_of_a_csv_file_is_found_by_its_key(tables):
    row = tables.lookup("loans.csv", "L-1", "number")
    assert row == {"number": "L-1", "title": "Tides", "days": "12"}
    assert tables.lookup("loans.csv", "L-9", "number") is None
    assert tables.lookup("loans.csv", "", "number") is None
    assert tables.lookup("loans.csv", None, "number") is None


def test_values_are_compared_as_text(tables):
    assert tables.lookup("loans.csv", 17, "number")["title"] == "Salt"
    assert tables.lookup("loans.csv", 17.0, "number")["title"] == "Salt"
    assert tables.lookup("members.yaml", 4712)["name"] == "Otto"
    assert tables.lookup("members.yaml", "4711") == {"name": "Ines", "since": "2020-01-31"}


def test_several_rows_are_given_only_when_asked_for(tables):
    assert "many: true" in refused(tables, "not_unique", table="loans.csv", value="Moss", key="title")
    rows = tables.lookup("loans.csv", "Moss", "title", many=True)
    assert [row["number"] for row in rows] == ["L-2", "L-4"]
    assert rows[1]["days"] == ""
    assert tables.lookup("loans.csv", "nothing", "title", many=True) == []


def test_a_part_of_a_yaml_file_is_a_table_of_its_own(tables):
    assert tables.lookup("members.yaml", "b", "code", "rates.spring") == {"code": "b", "price": 4.0}
    assert tables.lookup("members.yaml", 4, "price", "rates.spring")["code"] == "b"
    assert "nothing at 'rates.sprint'. Did you mean 'spring'?" in refused(
        tables, "no_part", table="members.yaml", value="b", key="code", part="rates.sprint"
    )
    refused(tables, "no_key", table="members.yaml", value="b", part="rates.spring")


def test_json_is_a_table_too(project, tables):
    (project / "x.json").write_text('[{"id": 1, "ok": true}]')
    assert tables.lookup("x.json", "true", "ok") == {"id": 1, "ok": True}


def test_a_database_is_asked(tables):
    assert tables.lookup("shelf.db", "7", "code", "books") == {"code": 7, "title": "Tides", "mark": 9}
    assert tables.lookup("shelf.db", 8, "code", "late ones")["title"] == "Moss"
    assert len(tables.lookup("shelf.db", 9, "mark", "books", many=True)) == 2
    assert tables.lookup("shelf.db", "nobody", "title", "books") is None


def test_a_database_says_what_it_has(tables):
    assert "books, late ones" in refused(tables, "no_part", table="shelf.db", value=1, key="code")
    assert "Did you mean 'books'?" in refused(
        tables, "no_part", table="shelf.db", value=1, key="code", part="book"
    )
    assert "Columns: code, title, mark." in refused(
        tables, "no_column", table="shelf.db", value=1, key="kode", part="books"
    )
    refused(tables, "no_key", table="shelf.db", value=1, part="books")


def test_what_looks_like_sql_is_a_name_like_any_other(project, tables):
    hostile = 'code" = 1 OR 1=1 --'
    refused(tables, "no_column", table="shelf.db", value=1, key=hostile, part="books")
    refused(tables, "no_part", table="shelf.db", value=1, key="code", part="books; DROP TABLE books")
    assert tables.lookup("shelf.db", "7' OR '1'='1", "title", "books") is None


def test_a_file_that_is_no_database_is_said_to_be_none(project, tables):
    (project / "no.db").write_text("this is no database at all, whatever its name says")
    refused(tables, "database", table="no.db", value=1, key="code")


def test_a_file_is_read_once_and_again_when_it_changed(project, tables):
    for _ in range(5):
        tables.lookup("loans.csv", "L-1", "number")
        tables.lookup("loans.csv", "Tides", "title")
    assert tables.reads == 1
    (project / "loans.csv").write_text(CSV.replace("Tides", "Waves"))
    os.utime(project / "loans.csv", ns=(1, 1))
    assert tables.lookup("loans.csv", "L-1", "number")["title"] == "Waves"
    assert tables.reads == 2


def test_a_row_that_was_handed_out_is_nobody_elses(tables):
    tables.lookup("loans.csv", "L-1", "number")["title"] = "changed"
    assert tables.lookup("loans.csv", "L-1", "number")["title"] == "Tides"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names its columns"),
        ("a,a\n1,2\n", "a name of its own"),
        ("a,,b\n1,2,3\n", "a name of its own"),
        ("a,b\n1,2,3\n", "line 2: 3 values for 2 columns"),
        ('a,b\n"1,2\n', "line 2"),
    ],
)
def test_a_csv_file_that_makes_no_sense_is_said_to_make_none(project, tables, text, said):
    (project / "bad.csv").write_text(text)
    assert said in refused(tables, "no_table", table="bad.csv", value="1", key="a")


def test_semicolons_tabs_and_a_byte_order_mark_are_fine(project, tables):
    (project / "a.csv").write_bytes(b"\xef\xbb\xbfa;b\n1;2,5\n")
    (project / "b.tsv").write_text("a\tb\n1\tx\n")
    assert tables.lookup("a.csv", 1, "a") == {"a": "1", "b": "2,5"}
    assert tables.lookup("b.tsv", 1, "a")["b"] == "x"


def test_broken_files_are_told_with_their_place(project, tables):
    (project / "x.yaml").write_text("a: [1,\n")
    (project / "x.json").write_text("{\n")
    (project / "x.csv").write_bytes(b"a,b\n\xff,1\n")
    (project / "x.txt").write_text("a")
    (project / "list.yaml").write_text("[1, 2]")
    assert "not valid YAML" in refused(tables, "no_table", table="x.yaml", value=1)
    assert "line 2: not valid JSON" in refused(tables, "no_table", table="x.json", value=1)
    assert "byte 4" in refused(tables, "not_text", table="x.csv", value=1, key="a")
    assert "ends in .csv" in refused(tables, "no_table", table="x.txt", value=1)
    assert "neither a list of rows" in refused(tables, "no_table", table="list.yaml", value=1, key="a")
    refused(tables, "no_key", table="loans.csv", value=1)
    refused(tables, "no_part", table="loans.csv", value=1, key="number", part="x")
    refused(tables, "no_file", table="nothing.csv", value=1, key="a")
    refused(tables, "no_column", table="loans.csv", value=1, key="nummber")


@pytest.mark.parametrize("value", [["L-1"], {"a": 1}])
def test_only_one_value_can_be_looked_for(tables, value):
    refused(tables, "invalid", table="loans.csv", value=value, key="number")


@pytest.mark.parametrize("path", ["../secret.csv", "a/../../secret.csv", "link.csv", "out/secret.csv"])
def test_nothing_outside_the_project_is_read(project, tables, path):
    outside = project.parent / "secret.csv"
    outside.write_text("a\n1\n")
    (project / "link.csv").symlink_to(outside)
    (project / "out").symlink_to(project.parent)
    assert "outside" in refused(tables, "outside", table=path, value=1, key="a")
    refused(tables, "outside", table=str(outside), value=1, key="a")


@pytest.mark.parametrize("path", ["", "   ", "a\0b.csv", "x" * 5000 + ".csv"])
def test_a_path_that_is_none_is_refused(tables, path):
    with pytest.raises(ToolError):
        tables.lookup(path, 1, "a")


def test_files_beside_the_playbook_go_before_those_of_the_project(project, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "loans.csv").write_text("number,title\nL-1,Ours\n")
    tables = LookupTables(TextFiles(project, (home, project)))
    assert tables.lookup("loans.csv", "L-1", "number")["title"] == "Ours"
    assert tables.lookup("members.yaml", 4712)["name"] == "Otto"


def test_an_agents_question_is_held_to_the_published_arguments(tables):
    tool = lookup_tool(tables)
    assert tool.kind == "query"
    assert tool.misfits({"table": "loans.csv", "key": "number", "value": "L-1"}) == []
    assert tool.misfits({"table": "loans.csv", "value": "L-1", "where": "1=1"})
    assert tool.misfits({"value": ["a"]})
