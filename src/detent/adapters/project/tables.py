"""Tables in files: CSV, TSV, JSON Lines and Parquet as rows with named columns and typed values.

Rows that do not fit the header, or are no rows at all, are not guessed at: they are told with their line.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from detent.adapters.project.ground import Project, content, told
from detent.engine.tools import Tool, ToolError

Format = Literal["auto", "csv", "tsv", "jsonl", "parquet"]

LARGEST_FILE = 64 * 1024 * 1024
MOST_ROWS = 500_000
MOST_COLUMNS = 2000
LARGEST_FIELD = 1024 * 1024

_ENDINGS: dict[str, Format] = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_BROKEN = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][-+]?[0-9]{1,2})?")
_TRUTH = {"true": True, "false": False}


class Tables:
    """Tables in the files of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def read(self, path: str, format: Format = "auto") -> dict[str, Any]:
        """The rows of a table: columns, rows (lists of values), lines (of each row), and bad rows."""
        place = self._project.readable(path)
        raw = content(place, LARGEST_FILE, path)
        kind = _guessed(place, raw) if format == "auto" else format
        if kind == "parquet":
            return _parquet(raw, path)
        text = _text(raw, path)
        return _json_lines(text, path) if kind == "jsonl" else _separated(text, kind, path)


def _guessed(place: Path, raw: bytes) -> Format:
    found = _ENDINGS.get(place.suffix.lower())
    if found is not None:
        return found
    if raw.startswith(b"PAR1"):
        return "parquet"
    start = raw[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{"):
        return "jsonl"
    return "tsv" if b"\t" in start.split(b"\n")[0] else "csv"


def _text(raw: bytes, path: str) -> str:
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if wide else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolError("not_text", f"{told(path)} is no UTF-8 text (byte {error.start}).") from None


def _separated(text: str, kind: str, path: str) -> dict[str, Any]:
    first = text.lstrip("\r\n").split("\n", 1)[0]
    # Where a comma separates decimals, a semicolon separates columns.
    delimiter = "\t" if kind == "tsv" else ";" if ";" in first and "," not in first else ","
    csv.field_size_limit(LARGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    rows: list[list[Any]] = []
    lines: list[int] = []
    bad: list[dict[str, Any]] = []
    before = 0
    try:
        for record in reader:
            line, before = before + 1, reader.line_num
            if not record:
                continue
            if columns is None:
                columns = _columns(record, path)
            elif len(record) != len(columns):
                bad.append({"row": line, "problem": f"has {len(record)} values for {len(columns)} columns"})
            else:
                rows.append(list(record))
                lines.append(line)
            _bounded(len(rows) + len(bad), path)
    except csv.Error:
        raise ToolError("malformed", f"{told(path)} cannot be read from line {before + 1} on: a quote that "
                        f"is not closed, or a value that is too long.") from None  # fmt: skip
    if columns is None:
        raise ToolError("empty", f"{told(path)} holds no header, so it is no table.")
    for at in range(len(columns)):
        read = _reading([row[at] for row in rows])
        for row in rows:
            row[at] = None if row[at] == "" else read(row[at])
    return {"columns": columns, "rows": rows, "lines": lines, "bad": bad}


def _columns(said: Iterable[str], path: str) -> list[str]:
    columns = [name.strip() or f"column_{at}" for at, name in enumerate(said, 1)]
    twice = (
        sorted({name for name in columns if columns.count(name) > 1}) if len(columns) <= MOST_COLUMNS else []
    )
    if len(columns) > MOST_COLUMNS:
        raise ToolError("too_large", f"{told(path)} has more than {MOST_COLUMNS} columns.")
    if twice:
        raise ToolError("malformed", f"{told(path)} has two columns named {told(twice[0])}.")
    return columns


def _reading(values: list[str]) -> Callable[[str], Any]:
    """How the texts of a column are to be read: as numbers or truth values only where all of them are.

    Digits that begin with a zero (a postcode, an article) are texts.
    """
    there = [value for value in values if value != ""]
    if not there:
        return str
    if all(_WHOLE.fullmatch(value) for value in there):
        return int
    if all(_BROKEN.fullmatch(value) for value in there):
        return float
    if all(value.lower() in _TRUTH for value in there):
        return lambda value: _TRUTH[value.lower()]
    return str


def _json_lines(text: str, path: str) -> dict[str, Any]:
    columns: dict[str, int] = {}
    found: list[dict[str, Any]] = []
    lines: list[int] = []
    bad: list[dict[str, Any]] = []
    for line, said in enumerate(text.split("\n"), 1):
        if not said.strip():
            continue
        try:
            value = json.loads(said, parse_constant=_no_number)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            for name in value:
                columns.setdefault(name, len(columns))
            found.append(value)
            lines.append(line)
        else:
            bad.append({"row": line, "problem": "is no JSON object"})
        _bounded(len(found) + len(bad), path)
    if not found and not bad:
        raise ToolError("empty", f"{told(path)} holds no rows.")
    if len(columns) > MOST_COLUMNS:
        raise ToolError("too_large", f"{told(path)} has more than {MOST_COLUMNS} columns.")
    rows = [[row.get(name) for name in columns] for row in found]
    return {"columns": list(columns), "rows": rows, "lines": lines, "bad": bad}


def _no_number(_: str) -> Any:
    raise ValueError("no JSON value")


def _parquet(raw: bytes, path: str) -> dict[str, Any]:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ToolError(
            "no_parquet", "Parquet files need pyarrow: pip install pyarrow, or give CSV or JSON Lines."
        ) from None
    try:
        table = parquet.read_table(pyarrow.BufferReader(raw))
    except (pyarrow.ArrowException, OSError):
        raise ToolError("malformed", f"{told(path)} is no Parquet file that can be read.") from None
    _bounded(table.num_rows, path)
    columns = _columns(table.column_names, path)
    rows = [[_plain(row[name]) for name in table.column_names] for row in table.to_pylist()]
    return {"columns": columns, "rows": rows, "lines": list(range(1, len(rows) + 1)), "bad": []}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str | int | float | bool | dict | list) or value is None:
        return value
    return str(value)


def _bounded(rows: int, path: str) -> None:
    if rows > MOST_ROWS:
        raise ToolError("too_large", f"{told(path)} has more than {MOST_ROWS:,} rows.")


def table_tools(tables: Tables) -> list[Tool]:
    """The tools for tables."""
    return [
        # What it reads is kept by the step, in batches; a second copy in the journal would be the same again.
        Tool("table.read", tables.read, "query", blocking=True, private=True,
             description="The rows of a CSV, TSV, JSON Lines or Parquet file."),
    ]  # fmt: skip
