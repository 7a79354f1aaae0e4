"""Tables in files: CSV, TSV, JSON Lines and Parquet as rows with named columns and typed values.

Rows that do not fit the header, or are no rows at all, are reported with their line, never guessed at.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import date
from datetime import time as clock_time
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from detent.adapters.project.sandbox import Sandbox, quoted
from detent.engine.tools import Tool, ToolError

Format = Literal["auto", "csv", "tsv", "jsonl", "parquet"]

LARGEST_FILE = 64 * 1024 * 1024
LARGEST_UNPACKED = 256 * 1024 * 1024
"""For a file that packs its values."""
PARQUET_BATCH = 1024
"""Rows unpacked at a time."""
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

    def __init__(self, sandbox: Sandbox, unpacked: int = LARGEST_UNPACKED) -> None:
        self._sandbox = sandbox
        self._unpacked = unpacked

    def read(self, path: str, format: Format = "auto") -> dict[str, Any]:
        """The rows of a table: columns, rows (lists of values), lines (of each row), and bad rows."""
        file = self._sandbox.readable(path)
        raw = self._sandbox.content(file, LARGEST_FILE, path)
        kind = _format_of(file, raw) if format == "auto" else format
        if kind == "parquet":
            return _parquet(raw, path, self._unpacked)
        text = _text(raw, path)
        return _json_lines(text, path) if kind == "jsonl" else _separated(text, kind, path)


def _format_of(file: Path, raw: bytes) -> Format:
    format = _ENDINGS.get(file.suffix.lower())
    if format is not None:
        return format
    if raw.startswith(b"PAR1"):
        return "parquet"
    start = raw[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{"):
        return "jsonl"
    return "tsv" if b"\t" in start.split(b"\n")[0] else "csv"


def _text(raw: bytes, path: str) -> str:
    is_utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolError("not_text", f"{quoted(path)} is no UTF-8 text (byte {error.start}).") from None


def _separated(text: str, kind: str, path: str) -> dict[str, Any]:
    first_line = text.lstrip("\r\n").split("\n", 1)[0]
    # Where a comma separates decimals, a semicolon separates columns.
    delimiter = "\t" if kind == "tsv" else ";" if ";" in first_line and "," not in first_line else ","
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
            _check_rows(len(rows) + len(bad), path)
    except csv.Error:
        raise ToolError("malformed", f"{quoted(path)} cannot be read from line {before + 1} on: a quote that "
                        f"is not closed, or a value that is too long.") from None  # fmt: skip
    if columns is None:
        raise ToolError("empty", f"{quoted(path)} holds no header, so it is no table.")
    for column in range(len(columns)):
        read = _column_type([row[column] for row in rows])
        for row in rows:
            row[column] = None if row[column] == "" else read(row[column])
    return {"columns": columns, "rows": rows, "lines": lines, "bad": bad}


def _columns(names: Iterable[str], path: str) -> list[str]:
    columns = [name.strip() or f"column_{index}" for index, name in enumerate(names, 1)]
    duplicates = (
        sorted({name for name in columns if columns.count(name) > 1}) if len(columns) <= MOST_COLUMNS else []
    )
    if len(columns) > MOST_COLUMNS:
        raise ToolError("too_large", f"{quoted(path)} has more than {MOST_COLUMNS} columns.")
    if duplicates:
        raise ToolError("malformed", f"{quoted(path)} has two columns named {quoted(duplicates[0])}.")
    return columns


def _column_type(values: list[str]) -> Callable[[str], Any]:
    """The type of a column's texts: numbers or truth values only where all of them are.

    Digits that begin with a zero (a postcode, an article number) are texts.
    """
    present = [value for value in values if value != ""]
    if not present:
        return str
    if all(_WHOLE.fullmatch(value) for value in present):
        return int
    if all(_BROKEN.fullmatch(value) for value in present):
        return float
    if all(value.lower() in _TRUTH for value in present):
        return lambda value: _TRUTH[value.lower()]
    return str


def _json_lines(text: str, path: str) -> dict[str, Any]:
    columns: dict[str, int] = {}
    objects: list[dict[str, Any]] = []
    lines: list[int] = []
    bad: list[dict[str, Any]] = []
    for line, line_text in enumerate(text.split("\n"), 1):
        if not line_text.strip():
            continue
        try:
            value = json.loads(line_text, parse_constant=_no_number)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            for name in value:
                columns.setdefault(name, len(columns))
            objects.append(value)
            lines.append(line)
        else:
            bad.append({"row": line, "problem": "is no JSON object"})
        _check_rows(len(objects) + len(bad), path)
    if not objects and not bad:
        raise ToolError("empty", f"{quoted(path)} holds no rows.")
    if len(columns) > MOST_COLUMNS:
        raise ToolError("too_large", f"{quoted(path)} has more than {MOST_COLUMNS} columns.")
    rows = [[row.get(name) for name in columns] for row in objects]
    return {"columns": list(columns), "rows": rows, "lines": lines, "bad": bad}


def _no_number(_: str) -> Any:
    raise ValueError("no JSON value")


def _parquet(raw: bytes, path: str, most: int) -> dict[str, Any]:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ToolError(
            "no_parquet",
            "Parquet files need pyarrow: pip install 'detent[parquet]', or give CSV or JSON Lines.",
        ) from None
    columns: list[str] = []
    values: list[tuple[Any, ...]] = []
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(raw))
        # A small file may hold much, so it is measured before it is unpacked, and again meanwhile.
        _check_rows(file.metadata.num_rows, path)
        columns, size = _columns(file.schema_arrow.names, path), 0
        for batch in file.iter_batches(PARQUET_BATCH):
            parts = [_readable(column, pyarrow) for column in batch.columns]
            size += sum(part.nbytes for part in parts)
            if size > most:
                raise ToolError("too_large", f"{quoted(path)} holds more than {most:,} bytes when unpacked.")
            values += zip(*(part.to_pylist() for part in parts), strict=True)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError):
        raise ToolError("malformed", f"{quoted(path)} is no Parquet file that can be read.") from None
    rows: list[list[Any]] = []
    lines: list[int] = []
    bad: list[dict[str, Any]] = []
    for line, row_values in enumerate(values, 1):
        row = [_plain(value) for value in row_values]
        if any(_has_infinity(value) for value in row):
            bad.append({"row": line, "problem": "holds a number that is infinite"})
        else:
            rows.append(row)
            lines.append(line)
    return {"columns": columns, "rows": rows, "lines": lines, "bad": bad}


def _readable(column: Any, pyarrow: Any) -> Any:
    """A column in a form that can be measured and converted: dictionary values written out, and times finer
    than Python's as texts, so that nothing is lost."""
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    fine = pyarrow.types.is_timestamp(column.type) or pyarrow.types.is_time(column.type)
    return column.cast(pyarrow.string()) if fine and column.type.unit == "ns" else column


def _plain(value: Any) -> Any:
    """A value as JSON can hold it, at any depth."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return None if value != value else value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, date | clock_time):  # a datetime is also a date
        return value.isoformat()
    return str(value)


def _has_infinity(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_infinity(item) for item in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and math.isinf(value)


def _check_rows(rows: int, path: str) -> None:
    if rows > MOST_ROWS:
        raise ToolError("too_large", f"{quoted(path)} has more than {MOST_ROWS:,} rows.")


def table_tools(tables: Tables) -> list[Tool]:
    """The tools for tables."""
    return [
        # The step keeps the rows in batches; the journal needs no second copy.
        Tool("table.read", tables.read, "query", blocking=True, private=True,
             description="The rows of a CSV, TSV, JSON Lines or Parquet file."),
    ]  # fmt: skip
