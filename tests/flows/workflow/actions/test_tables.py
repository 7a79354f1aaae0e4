"""Actions on tables: odd files, rules, and rows in and out of SQLite."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module

import pytest

from detent.adapters.project.sandbox import Sandbox
from detent.adapters.project.tables import Tables
from detent.engine.tools import ToolError
from detent.flows.workflow.domain.row_rules import Rule

pa = import_module("pyarrow")


def put_parquet(path, columns, **options):
    """A real Parquet file."""
    import_module("pyarrow.parquet").write_table(pa.table(columns), path, **options)


async def rows_of(shop, path, **said):
    """The rows read_table keeps."""
    done = await shop.run("read_table", path=path, **said)
    assert done.ok, done.error
    whole = json.loads(await shop.store.blob(done.output["ref"]["$blob"]))
    rows = []
    for one in whole["batches"]:
        rows += json.loads(await shop.store.blob(one["$blob"]))["rows"]
    return done.output, rows, whole["bad"]


class TestReading:
    @pytest.mark.parametrize(
        ("name", "raw", "columns", "rows"),
        [
            ("a.csv", "a,b\n1,x\n", ["a", "b"], [[1, "x"]]),
            ("a.csv", "\ufeffa,b\r\n1,x\r\n", ["a", "b"], [[1, "x"]]),
            ("a.csv", 'a,b\n"1,5","x\ny"\n"q""q",z\n', ["a", "b"], [["1,5", "x\ny"], ['q"q', "z"]]),
            ("a.csv", "a;b\n1,5;x\n", ["a", "b"], [["1,5", "x"]]),
            ("a.tsv", "a\tb\n1\tx,y\n", ["a", "b"], [[1, "x,y"]]),
            ("a.csv", "zip,n,f,t,e\n01234,1,1.5,true,\n99999,-2,2,FALSE,\n", ["zip", "n", "f", "t", "e"],
             [["01234", 1, 1.5, True, None], ["99999", -2, 2.0, False, None]]),
            ("a.csv", "a,\n1,2\n\n", ["a", "column_2"], [[1, 2]]),
            ("a.jsonl", '{"a": 1}\n\n{"b": [1], "a": null}\n', ["a", "b"], [[1, None], [None, [1]]]),
            ("a.dat", '{"a": 1}\n', ["a"], [[1]]),
            ("a.dat", "a\tb\n1\t2\n", ["a", "b"], [[1, 2]]),
            ("a.dat", "a,b\n1,2\n", ["a", "b"], [[1, 2]]),
            ("a.csv", "a,b\n", ["a", "b"], []),
        ],
    )  # fmt: skip
    async def test_typed_values_under_named_columns(self, shop, name, raw, columns, rows):
        shop.write(name, raw)
        said, found, bad = await rows_of(shop, name)
        assert (said["columns"], found, bad) == (columns, rows, [])

    async def test_utf_16(self, shop):
        shop.write("a.csv", "a,b\nä,1\n".encode("utf-16"))
        assert (await rows_of(shop, "a.csv"))[1] == [["ä", 1]]

    async def test_rows_that_do_not_fit_are_told_with_their_line(self, shop):
        shop.write("a.csv", 'a,b\n1,"x\ny"\n1\n1,2,3\n4,5\n')
        said, rows, bad = await rows_of(shop, "a.csv")
        assert said["rows"] == 4
        assert rows == [[1, "x\ny"], [4, "5"]]
        assert bad == [
            {"row": 4, "problem": "has 1 values for 2 columns"},
            {"row": 5, "problem": "has 3 values for 2 columns"},
        ]
        shop.write("a.jsonl", '{"a": 1}\n[1]\nnope\n{"a": NaN}\n')
        assert [one["row"] for one in (await rows_of(shop, "a.jsonl"))[2]] == [2, 3, 4]

    @pytest.mark.parametrize(
        ("name", "raw"),
        [("a.csv", ""), ("a.csv", "a,a\n1,2\n"), ("a.csv", 'a,b\n"1,2\n'), ("a.csv", b"a,b\n\xff,1\n"),
         ("a.jsonl", ""), ("a.parquet", "PAR1 not really")],
    )  # fmt: skip
    async def test_what_is_no_table(self, shop, name, raw):
        shop.write(name, raw)
        assert not (await shop.run("read_table", path=name)).ok

    async def test_a_parquet_file_is_read_whatever_types_its_columns_have(self, shop):
        """Dates and times are ISO texts, bytes hexadecimal, what is no number null; nested values stay so."""
        when = datetime(2030, 1, 31, 12, 30, tzinfo=UTC)
        put_parquet(
            shop.root / "a.parquet",
            {
                "id": pa.array([1, 2, 2**40], pa.int64()),
                "name": pa.array(["ann", "b\u00f6b", None]),
                "kind": pa.array(["x", "x", "y"]).dictionary_encode(),
                "price": pa.array([1.5, float("nan"), None]),
                "exact": pa.array([Decimal("1.10"), None, Decimal("-0.05")], pa.decimal128(10, 2)),
                "ok": pa.array([True, False, None]),
                "day": pa.array([when.date(), None, None]),
                "at": pa.array([when, None, None], pa.timestamp("us", "UTC")),
                "fine": pa.array([1_000_000_001, None, None], pa.timestamp("ns")),
                "raw": pa.array([b"\x00\xff", None, None]),
                "tags": pa.array([[when.date()], [], None], pa.list_(pa.date32())),
                "more": pa.array([{"n": 1, "b": b"\x01"}, None, None]),
            },
        )
        said, rows, bad = await rows_of(shop, "a.parquet", batch=2)
        assert (said["rows"], said["batches"], bad) == (3, 2, [])
        assert dict(zip(said["columns"], rows[0], strict=True)) == {
            "id": 1, "name": "ann", "kind": "x", "price": 1.5, "exact": "1.10", "ok": True,
            "day": "2030-01-31", "at": "2030-01-31T12:30:00+00:00", "fine": "1970-01-01 00:00:01.000000001",
            "raw": "00ff", "tags": ["2030-01-31"], "more": {"n": 1, "b": "01"},
        }  # fmt: skip
        assert rows[1][:6] == [2, "b\u00f6b", "x", None, None, False]
        assert rows[2][0] == 2**40

    async def test_a_parquet_file_goes_through_the_rules_into_a_database_and_back(self, shop):
        """By its content, whatever it is called; rows told by their number."""
        columns = {"id": [1, 2, 3], "born": [date(2001, 2, 3), date(1999, 1, 1), None]}
        put_parquet(shop.root / "people.dat", columns)
        table = (await shop.run("read_table", path="people.dat")).output["ref"]
        rules = {"born": {"required": True, "type": "date", "min": "2000-01-01"}}
        done = await shop.run("check_rows", table=table, rules=rules, max_rejects=1)
        assert [(one["row"], one["problem"]) for one in done.output["problems"]] == [
            (2, "is below min"),
            (3, "is missing"),
        ]
        where = {"database": "p.db", "table": "people", "key": "id", "batch": done.output["batches"][0]}
        loaded = await shop.run("upsert_rows", "r", **where)
        assert loaded.output == {"inserted": 1, "updated": 0}
        with closing(sqlite3.connect(shop.root / "p.db")) as db:
            assert db.execute("select * from people").fetchall() == [(1, "2001-02-03")]

    async def test_a_parquet_file_is_bounded_before_it_is_unpacked(self, shop):
        """A few bytes may hold millions of rows."""
        put_parquet(shop.root / "many.parquet", {"n": pa.array([7]).take(pa.array([0] * 500_001))})
        assert (shop.root / "many.parquet").stat().st_size < 10_000
        assert "500,000 rows" in (await shop.run("read_table", path="many.parquet")).error

    async def test_a_parquet_file_is_bounded_while_it_is_unpacked(self, shop):
        """One long text, written once and meant a thousand times."""
        wide = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), ["x" * 10_000])
        put_parquet(shop.root / "wide.parquet", {"t": wide})
        assert (shop.root / "wide.parquet").stat().st_size < 20_000
        tables = Tables(Sandbox(shop.root, shop.state), unpacked=5_000_000)
        with pytest.raises(ToolError, match="holds more than 5,000,000 bytes"):
            tables.read("wide.parquet")

    async def test_an_infinite_number_is_told_with_its_row(self, shop):
        put_parquet(shop.root / "a.parquet", {"n": [1.0, float("inf")], "l": [[1.0], [2.0]]})
        _, rows, bad = await rows_of(shop, "a.parquet")
        assert rows == [[1.0, [1.0]]]
        assert bad == [{"row": 2, "problem": "holds a number that is infinite"}]

    @pytest.mark.parametrize("cut", [4, 20, 200])
    async def test_a_parquet_file_that_was_cut_off_is_told(self, shop, cut):
        put_parquet(shop.root / "a.parquet", {"n": list(range(100))})
        shop.write("b.parquet", (shop.root / "a.parquet").read_bytes()[:cut])
        assert "is no Parquet file that can be read" in (await shop.run("read_table", path="b.parquet")).error

    async def test_without_pyarrow_it_is_said_what_to_install(self, shop, monkeypatch):
        put_parquet(shop.root / "a.parquet", {"n": [1]})
        monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
        assert "pip install 'detent[parquet]'" in (await shop.run("read_table", path="a.parquet")).error

    async def test_batches(self, shop):
        shop.write("a.csv", "a\n" + "".join(f"{n}\n" for n in range(7)))
        assert (await shop.run("read_table", path="a.csv", batch=3)).output["batches"] == 3
        assert not (await shop.run("read_table", path="a.csv", batch=0)).ok


async def checked(shop, rules, text="a,b\n1,x\n2,y\n", **said):
    shop.write("t.csv", text)
    table = (await shop.run("read_table", path="t.csv", batch=2)).output["ref"]
    return await shop.run("check_rows", table=table, rules=rules, **said)


class TestChecking:
    @pytest.mark.parametrize(
        ("rules", "text", "problem"),
        [
            ({"a": {"required": True}}, "a,b\n,1\n", "is missing"),
            ({"a": "integer"}, "a,b\nx,1\n", "is no integer"),
            ({"a": {"type": "date"}}, "a,b\n2030-02-31,1\n", "is no date"),
            ({"a": {"type": "datetime"}}, "a,b\n2030-02-01,1\n", "is no datetime"),
            ({"a": {"min": 2}}, "a,b\n1,1\n", "is below min"),
            ({"a": {"max": 2}}, "a,b\n3,1\n", "is above max"),
            ({"a": {"max": 2}}, "a,b\nlong,1\n", "is above max"),
            ({"a": {"min": "2030-01-01"}}, "a,b\n2029-12-31,1\n", "is below min"),
            ({"a": {"pattern": "[a-z]+"}}, "a,b\nab1,1\n", "does not fit the pattern"),
            ({"a": {"enum": ["x", "y"]}}, "a,b\nz,1\n", "is not one of the allowed values"),
        ],
    )
    async def test_each_rule_refuses(self, shop, rules, text, problem):
        done = await checked(shop, rules, text, max_rejects=1)
        assert done.ok, done.error
        assert done.output["problems"] == [{"row": 2, "column": "a", "problem": problem}]
        assert (done.output["accepted"], done.output["rejected"], done.output["batches"]) == (0, 1, [])

    async def test_a_rule_for_no_column_names_the_nearest(self, shop):
        done = await checked(shop, {"nme": "text"}, "name,b\n1,2\n")
        assert done.error.endswith("there is no column 'nme' (did you mean 'name'?).")

    async def test_one_bad_cell_refuses_its_row_and_no_other(self, shop):
        text = "a,b\n1,0.10\n2,x\n3, 12.5\n4,7\n"
        done = await checked(shop, {"b": {"type": "number", "min": 0}}, text, max_rejects=0.5)
        assert done.output["problems"] == [{"row": 3, "column": "b", "problem": "is no number"}]
        kept = [json.loads(await shop.store.blob(one["$blob"])) for one in done.output["batches"]]
        assert [row for part in kept for row in part["rows"]] == [[1, 0.1], [3, 12.5], [4, 7]]

    @pytest.mark.parametrize(
        ("rule", "said", "read"),
        [
            ("integer", "+7", 7), ("integer", "7.0", "7.0"), ("number", "1e3", 1000.0), ("text", 7, "7"),
            ("number", "1e999", "1e999"), ("number", "0x1f", "0x1f"), ("boolean", "TRUE", True),
            ("boolean", "yes", "yes"), ("date", "2030-01-31", "2030-01-31"), ("number", None, None),
            ("number", " ", " "), (None, "7", "7"),
        ],
    )  # fmt: skip
    def test_a_text_is_read_as_the_rule_says(self, rule, said, read):
        got = Rule("a", type=rule).read(said)
        assert (got, type(got)) == (read, type(read))

    async def test_unique_refuses_the_later_one_over_batches(self, shop):
        done = await checked(shop, {"b": {"unique": True}}, "a,b\n1,x\n2,y\n3,x\n4,\n5,\n", max_rejects=1)
        assert done.output["problems"] == [{"row": 4, "column": "b", "problem": "is there twice"}]
        assert done.output["accepted"] == 4

    async def test_too_many_refused_fail_the_step_without_a_word_of_the_values(self, shop):
        done = await checked(shop, {"b": "integer"}, "a,b\n1,secret\n2,secret\n")
        assert "2 of 2 rows are refused" in done.error
        assert "secret" not in done.error

    async def test_rows_that_could_not_be_read_count(self, shop):
        done = await checked(shop, {}, "a,b\n1,2\n3\n", max_rejects=0.5)
        assert (done.output["accepted"], done.output["rejected"]) == (1, 1)
        assert done.output["problems"][0]["column"] is None
        assert not (await checked(shop, {}, "a,b\n1,2\n3\n", max_rejects=0.4)).ok

    async def test_an_empty_table_is_fine(self, shop):
        done = await checked(shop, {}, "a,b\n")
        assert done.output == {"accepted": 0, "rejected": 0, "problems": [], "batches": []}

    @pytest.mark.parametrize(
        "rules", [{"c": "text"}, {"a": {"requird": True}}, {"a": "txt"}, {"a": {"required": "yes"}}, {"a": 3},
                  {"a": {"enum": "x"}}, {"a": {"min": []}}, {"a": {"pattern": "("}}]
    )  # fmt: skip
    async def test_rules_that_are_none(self, shop, rules):
        assert not (await checked(shop, rules)).ok

    @pytest.mark.exhaustive
    async def test_a_pattern_that_runs_away(self, shop):
        assert "runaway" in (await checked(shop, {"a": {"pattern": "(a+)+"}}, f"a\n{'a' * 50}!\n")).error

    async def test_a_reference_to_nothing(self, shop):
        gone = {"$blob": "0" * 64, "size": 1}
        assert "no longer kept" in (await shop.run("check_rows", table=gone, rules={})).error


def batch(columns, *rows):
    return {"columns": columns, "rows": [list(row) for row in rows]}


class Base:
    """A SQLite file."""

    def __init__(self, shop):
        self.place = shop.root / "d.db"

    def do(self, sql, *values):
        with closing(sqlite3.connect(self.place)) as link, link:
            return link.execute(sql, values).fetchall()


class TestRows:
    async def load(self, shop, run_id, said, action="upsert_rows", table="t", key="id"):
        return await shop.run(action, run_id, database="d.db", table=table, key=key, batch=said)

    async def test_new_keys_are_inserted_known_ones_updated(self, shop):
        base = Base(shop)
        base.do("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, kept BLOB)")
        base.do("INSERT INTO t VALUES (1, 'old', x'00ff')")
        said = batch(["id", "name"], [1, "new"], [2, "two"], [2, "too"])
        done = await self.load(shop, "r.a", said)
        assert done.output == {"inserted": 1, "updated": 1}, done.error
        assert base.do("SELECT * FROM t ORDER BY id") == [(1, "new", b"\x00\xff"), (2, "too", None)]
        done = await self.load(shop, "r.b", said, "restore_rows")
        assert done.output == {"restored": 1, "removed": 1}
        assert base.do("SELECT * FROM t") == [(1, "old", b"\x00\xff")]

    async def test_values_of_every_kind_come_back_exactly(self, shop):
        base = Base(shop)
        base.do("CREATE TABLE t (id, v)")
        kept = [(1, b"\xff\x00"), (2, float("inf")), (3, None), (4, 0.1), (5, "ü'\"\n"), (6, 2**60), (7, "")]
        for row in kept:
            base.do("INSERT INTO t VALUES (?, ?)", *row)
        said = batch(["id", "v"], *([n, "x"] for n in range(1, 8)))
        await self.load(shop, "r.a", said)
        assert await self.load(shop, "r.b", said, "restore_rows")
        assert base.do("SELECT id, v FROM t ORDER BY id") == kept

    async def test_loading_again_changes_nothing(self, shop):
        """Idempotent by run and batch."""
        said = batch(["id", "n"], [1, 1])
        assert (await self.load(shop, "r.a", said)).output == {"inserted": 1, "updated": 0}
        Base(shop).do("UPDATE t SET n = 99")
        assert (await self.load(shop, "r.b", said)).output == {"inserted": 1, "updated": 0}
        assert Base(shop).do("SELECT n FROM t") == [(99,)]

    @pytest.mark.parametrize("after", [False, True])
    async def test_one_in_doubt(self, shop, after):
        said = batch(["id"], [1], [2])
        done = await shop.crashed(
            "upsert_rows", "db.upsert", after, "r.a", database="d.db", table="t", key="id", batch=said
        )
        assert done.output == {"inserted": 2, "updated": 0}
        assert Base(shop).do("SELECT id FROM t") == [(1,), (2,)]
        done = await shop.crashed(
            "restore_rows", "db.restore", after, "r.b", database="d.db", table="t", key="id", batch=said
        )
        assert done.output == {"restored": 0, "removed": 2}

    async def test_several_batches_undone_backwards_leave_what_was_there(self, shop):
        one, two = batch(["id", "n"], [1, 1], [2, 1]), batch(["id", "n"], [2, 2], [3, 2])
        await self.load(shop, "r.load[0].a", one)
        await self.load(shop, "r.load[1].a", two)
        await self.load(shop, "r.x", two, "restore_rows")
        assert Base(shop).do("SELECT id, n FROM t ORDER BY id") == [(1, 1), (2, 1)]
        await self.load(shop, "r.y", one, "restore_rows")
        assert Base(shop).do("SELECT name FROM sqlite_master WHERE name = 't'") == []
        assert (await self.load(shop, "r.z", one, "restore_rows")).output == {"restored": 0, "removed": 2}
        assert (await self.load(shop, "other", two, "restore_rows")).output == {"restored": 0, "removed": 0}

    async def test_names_are_quoted(self, shop):
        said = batch(["id", 'we"ird; DROP TABLE x', "ü ö"], [1, "a", "b"])
        assert (await self.load(shop, "r.a", said, table='ta"ble; --')).ok
        assert Base(shop).do('SELECT * FROM "ta""ble; --"') == [(1, "a", "b")]

    @pytest.mark.parametrize(
        ("table", "key", "said"),
        [
            ("sqlite_master", "id", batch(["id"], [1])),
            ("detent_undo", "id", batch(["id"], [1])),
            ("", "id", batch(["id"], [1])),
            ("t", "nope", batch(["id"], [1])),
            ("t", "id", batch(["id"], [None])),
            ("t", "id", batch(["id", "a"], [1])),
            ("t", "id", {"rows": []}),
            ("t", "id", batch(["id"], [2**70])),
            ("t", "id", {"$blob": "0" * 64, "size": 1}),
            ("a\nb", "id", batch(["id"], [1])),
        ],
    )
    async def test_what_cannot_be_loaded_loads_nothing(self, shop, table, key, said):
        done = await self.load(shop, "r.a", said, table=table, key=key)
        assert not done.ok
        if (shop.root / "d.db").exists():
            assert Base(shop).do("SELECT count(*) FROM sqlite_master WHERE name IN ('t', 'sqlite_x')") == [
                (0,)
            ]

    async def test_a_bad_row_undoes_the_whole_batch(self, shop):
        base = Base(shop)
        base.do("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER CHECK (n < 10))")
        assert not (await self.load(shop, "r.a", batch(["id", "n"], [1, 1], [2, 99]))).ok
        assert base.do("SELECT * FROM t") == []

    async def test_a_column_that_is_not_there_and_a_key_that_is_there_twice(self, shop):
        base = Base(shop)
        base.do("CREATE TABLE t (id, n)")
        base.do("INSERT INTO t VALUES (1, 1), (1, 2)")
        assert "no_column" in (await self.load(shop, "r.a", batch(["id", "x"], [1, 1]))).error
        assert "not_unique" in (await self.load(shop, "r.b", batch(["id", "n"], [1, 1]))).error

    async def test_a_file_that_is_no_database_is_left_alone(self, shop):
        shop.write("d.db", "not a database, but text of some length" * 50)
        assert "database" in (await self.load(shop, "r.a", batch(["id"], [1]))).error
        assert shop.read("d.db").startswith("not a database")

    async def test_several_columns_as_key(self, shop):
        said = batch(["a", "b", "n"], [1, 1, "x"], [1, 2, "y"])
        assert (await self.load(shop, "r.a", said, key=["a", "b"])).output == {"inserted": 2, "updated": 0}
