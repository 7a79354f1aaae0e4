"""The query `lookup`: the row of a CSV, YAML, JSON or SQLite file that has a value under a key.

A text file is read again only when it has changed; a database is queried each time. Values are compared as
text: the number 17 matches `17`, whichever side has which.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from detent.adapters.project.text_files import TextFiles
from detent.authoring.document import read_value
from detent.engine.tools import Tool, ToolError
from detent.kernel.errors import ConfigurationError, nearest

LARGEST = 50 * 1024 * 1024
"""Bytes of the largest text file that is read."""
MOST_ROWS = 1000
"""Rows returned at most when several are asked for."""
KEPT = 16
"""Number of files kept in memory."""
BUSY = 5.0
"""Seconds to wait for a locked database."""

TEXT = {".csv": "csv", ".tsv": "csv", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
DATABASES = (".db", ".sqlite", ".sqlite3")

ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "table": {"type": "string", "minLength": 1, "description": "A CSV, YAML, JSON or SQLite file."},
        "key": {"type": "string", "description": "The column to look in."},
        "value": {"type": ["string", "number", "boolean"], "description": "What must stand there."},
        "part": {"type": "string", "description": "The database's table, or the dotted way to the rows."},
        "many": {"type": "boolean", "description": "Give every row that fits, as a list."},
    },
    "required": ["table", "value"],
    "additionalProperties": False,
}

Rows = dict[str, list[Any]]
"""Rows by the text of their key."""


class _Stamp(NamedTuple):
    """Changes whenever the file does."""

    modified: int
    size: int
    inode: int


@dataclass(slots=True)
class _Kept:
    """A file in memory."""

    stamp: _Stamp
    content: Any
    """A list of rows, or a mapping from a value to its row."""
    columns: tuple[str, ...] | None = None
    """Column names, where the file itself has them."""
    indexes: dict[tuple[str, str | None], Rows] = field(default_factory=dict)


class LookupTables:
    """Looks rows up in the files of a project."""

    def __init__(self, files: TextFiles) -> None:
        self.files = files
        self.reads = 0
        """Number of files read so far; an unchanged file is not read again."""
        self._kept: dict[Path, _Kept] = {}
        self._lock = threading.Lock()

    def lookup(
        self, table: str, value: Any, key: str | None = None, part: str | None = None, many: bool = False
    ) -> Any:
        """The row whose `key` is `value`, or None; with `many`, every such row.

        Without `key` a YAML or JSON file is taken as a mapping, and `value` is looked up among its keys.
        """
        text = _search_text(value)
        file = self.files.find(table)
        suffix = file.suffix.lower()
        if suffix in DATABASES:
            rows = _from_database(file, table, key, text, value, part)
        elif suffix in TEXT:
            rows = self._from_text(file, TEXT[suffix], table, key, text, part)
        else:
            suffixes = ", ".join([*TEXT, *DATABASES])
            raise ToolError(
                "no_table", f"'{table}' is no table: that is a file whose name ends in {suffixes}."
            )
        if many:
            return rows[:MOST_ROWS]
        if len(rows) > 1:
            raise ToolError(
                "not_unique",
                f"'{table}' has several rows with this value under '{key}'. Say `many: true` to get all.",
            )
        return rows[0] if rows else None

    # -- text files -----------------------------------------------------------------------------------------

    def _from_text(
        self, file: Path, kind: str, table: str, key: str | None, text: str, part: str | None
    ) -> list[Any]:
        if kind == "csv" and key is None:
            raise ToolError("no_key", f"'{table}' has columns; say which one to look in with `key`.")
        if kind == "csv" and part is not None:
            raise ToolError("no_part", f"'{table}' has one table; leave `part` out.")
        with self._lock:
            cached = self._read(file, kind, table)
            index = cached.indexes.get((part or "", key))
            if index is None:
                index = cached.indexes[part or "", key] = _indexed(cached, table, key, part)
            rows = index.get(text, []) if text else []
            return [dict(row) if isinstance(row, dict) else row for row in rows]

    def _read(self, file: Path, kind: str, table: str) -> _Kept:
        try:
            status = file.stat()
            stamp = _Stamp(status.st_mtime_ns, status.st_size, status.st_ino)
            cached = self._kept.get(file)
            if cached is not None and cached.stamp == stamp:
                return cached
            if stamp.size > LARGEST:
                raise ToolError("too_large", f"'{table}' has more than {LARGEST:,} bytes; use a database.")
            text = file.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise ToolError("not_read", f"'{table}' cannot be read ({error.strerror}).") from error
        except UnicodeDecodeError as error:
            raise ToolError("not_text", f"'{table}' is not UTF-8 text (byte {error.start}).") from error
        self.reads += 1
        if kind == "csv":
            columns, rows = _csv(text, table)
            cached = _Kept(stamp, rows, columns)
        else:
            cached = _Kept(stamp, _structured(text, kind, table))
        self._kept.pop(file, None)
        self._kept[file] = cached
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return cached


def lookup_tool(tables: LookupTables) -> Tool:
    """The query `lookup`."""
    return Tool(
        "lookup", tables.lookup, "query", blocking=True, arguments=ARGUMENTS,
        description="Look up the row of a table that has a value under a key.",
    )  # fmt: skip


def _search_text(value: Any) -> str:
    if isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, str)):
        raise ToolError("invalid", "the value to look for is one text or number.")
    return _text(value)


def _text(value: Any) -> str:
    """A value in the form in which it is compared."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _csv(text: str, table: str) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Columns and rows of a CSV text; every value is text."""
    first_line = text.partition("\n")[0]
    delimiter = max((",", ";", "\t"), key=first_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [head.strip() for head in next(reader, [])]
        if not any(header):
            raise ToolError("no_table", f"'{table}' has no first line that names its columns.")
        if "" in header or len(set(header)) < len(header):
            raise ToolError("no_table", f"'{table}': every column needs a name of its own in the first line.")
        rows: list[dict[str, str]] = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(header):
                raise ToolError(
                    "no_table",
                    f"'{table}', line {reader.line_num}: {len(cells)} values for {len(header)} columns.",
                )
            values = [cell.strip() for cell in cells] + [""] * (len(header) - len(cells))
            rows.append(dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise ToolError("no_table", f"'{table}', line {reader.line_num}: {error}.") from error
    return tuple(header), rows


def _structured(text: str, kind: str, table: str) -> Any:
    if kind == "json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 1)
            raise ToolError("no_table", f"'{table}', line {line}: not valid JSON.") from error
    try:
        return read_value(text, f"'{table}'")
    except ConfigurationError as error:
        raise ToolError("no_table", str(error)) from error


def _indexed(cached: _Kept, table: str, key: str | None, part: str | None) -> Rows:
    """The rows of a file by the text of a key."""
    content = cached.content
    for name in part.split(".") if part else ():
        if not isinstance(content, dict) or name not in content:
            hint = nearest(name, content if isinstance(content, dict) else ())
            raise ToolError("no_part", f"'{table}' has nothing at '{part}'.{hint}")
        content = content[name]
    where = f"'{table}'" + (f" at '{part}'" if part else "")
    if key is None:
        if not isinstance(content, dict):
            raise ToolError("no_key", f"{where} is a list of rows; say which key to look under with `key`.")
        return {name: [item] for name, item in content.items()}
    rows = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ToolError("no_table", f"{where} is neither a list of rows nor a mapping to rows.")
    columns = cached.columns or tuple(dict.fromkeys(name for row in rows for name in row))
    if key not in columns and (rows or cached.columns):
        raise _no_column(where, key, columns)
    index: Rows = {}
    for row in rows:
        if (text := _text(row.get(key))) and not isinstance(row.get(key), dict | list):
            index.setdefault(text, []).append(row)
    return index


def _no_column(where: str, key: str, columns: Sequence[str]) -> ToolError:
    names = ", ".join(list(columns)[:20]) or "none"
    return ToolError("no_column", f"{where} has no column '{key}'.{nearest(key, columns)} Columns: {names}.")


# -- databases ----------------------------------------------------------------------------------------------


def _from_database(
    file: Path, table: str, key: str | None, text: str, value: Any, part: str | None
) -> list[Any]:
    if key is None:
        raise ToolError("no_key", f"'{table}' has columns; say which one to look in with `key`.")
    try:
        address = f"file:{quote(str(file))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY)) as connection:
            connection.execute("PRAGMA query_only = ON")
            name = _table(connection, table, part)
            columns = [row[1] for row in connection.execute(f"PRAGMA table_xinfo({_quoted(name)})")]
            if key not in columns:
                raise _no_column(f"'{table}', table '{name}',", key, columns)
            # Both forms: a column without a type compares numbers with numbers and texts with texts.
            number = value if isinstance(value, int | float) else _number(text)
            query = f"SELECT * FROM {_quoted(name)} WHERE {_quoted(key)} = ? OR {_quoted(key)} = ? LIMIT ?"
            cursor = connection.execute(query, (text, number, MOST_ROWS))
            header = [column[0] for column in cursor.description]
            rows = cursor.fetchall() if text else []
    except sqlite3.OperationalError as error:
        transient = "locked" in str(error) or "busy" in str(error)
        raise ToolError("database", f"'{table}': {error}.", transient=transient) from error
    except sqlite3.Error as error:
        raise ToolError("database", f"'{table}': {error}.") from error
    records = [dict(zip(header, row, strict=True)) for row in rows]
    for row in records:
        if binary := [name for name, item in row.items() if isinstance(item, bytes)]:
            raise ToolError("binary", f"'{table}', table '{name}': column '{binary[0]}' holds bytes.")
    return records


def _table(connection: sqlite3.Connection, table: str, part: str | None) -> str:
    """The named table; the only one where none is named."""
    tables = [
        str(name)
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
            "ORDER BY name"
        )
    ]
    if part is None and len(tables) == 1:
        return tables[0]
    if part in tables:
        return str(part)
    names = ", ".join(tables) or "none"
    if part is None:
        raise ToolError("no_part", f"'{table}' has several tables; name one with `part`: {names}.")
    raise ToolError("no_part", f"'{table}' has no table '{part}'.{nearest(part, tables)} Tables: {names}.")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _number(text: str) -> int | float | None:
    for type_ in (int, float):
        try:
            return type_(text)
        except ValueError:
            continue
    return None
