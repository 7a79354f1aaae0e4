"""Rows in SQLite files: upserted by key in one transaction, and restored exactly.

The former values of rows are kept in a table of the same file, written in the same transaction as the change.
A batch is identified by its run and its content, so loading it again changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from detent.adapters.project.sandbox import Sandbox, certain, quoted
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.kernel.plain import digest

Blobs = Callable[[str], Awaitable[bytes | None]]

BUSY = 30.0
"""Seconds to wait for another process."""
LONGEST_NAME = 128

# One line per batch of a run: its state.
BATCHES = """CREATE TABLE IF NOT EXISTS detent_batches (
    run TEXT NOT NULL, target TEXT NOT NULL, batch TEXT NOT NULL, state TEXT NOT NULL,
    created INTEGER NOT NULL, first INTEGER NOT NULL, second INTEGER NOT NULL,
    PRIMARY KEY (run, target, batch)) WITHOUT ROWID"""
# One line per row a batch changed: its key and its former values; NULL where the row did not exist.
UNDO = """CREATE TABLE IF NOT EXISTS detent_undo (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, target TEXT NOT NULL, batch TEXT NOT NULL,
    key TEXT NOT NULL, before TEXT)"""
UNDO_INDEX = "CREATE INDEX IF NOT EXISTS detent_undo_batch ON detent_undo (run, target, batch)"
FIND_BATCH = (
    "SELECT state, created, first, second FROM detent_batches WHERE run = ? AND target = ? AND batch = ?"
)
PUT_BATCH = "INSERT OR REPLACE INTO detent_batches VALUES (?, ?, ?, ?, ?, ?, ?)"
PUT_UNDO = "INSERT INTO detent_undo (run, target, batch, key, before) VALUES (?, ?, ?, ?, ?)"
FIND_UNDO = (
    "SELECT id, key, before FROM detent_undo WHERE run = ? AND target = ? AND batch = ? ORDER BY id DESC"
)
DROP_UNDO = "DELETE FROM detent_undo WHERE run = ? AND target = ? AND batch = ?"
HAS_TABLE = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"


class Rows:
    """The rows of SQLite files in a project. `blobs` gives the values steps have offloaded."""

    def __init__(self, sandbox: Sandbox, blobs: Blobs | None = None) -> None:
        self.sandbox = sandbox
        self._blobs = blobs

    async def upsert(
        self, call: EffectCall, database: str, table: str, key: str | list[str], batch: dict[str, Any]
    ) -> dict[str, Any]:
        """Make a table hold the rows of a batch, one per key."""
        file = self.sandbox.writable(database)
        self.sandbox.check_writer(call, file)
        name, columns, rows = await self._batch(batch)
        keys = _keys(key, columns)
        run = call.root
        _identifier(table, "table")
        for column in columns:
            _identifier(column, "column")

        def work(link: sqlite3.Connection) -> dict[str, Any]:
            loaded = link.execute(FIND_BATCH, (run, table, name)).fetchone()
            if loaded is not None and loaded[0] == "loaded":
                return {"inserted": loaded[2], "updated": loaded[3]}
            created = _prepared(link, table, columns, keys, rows)
            inserted, updated = _load(link, (run, table, name), columns, keys, rows)
            link.execute(PUT_BATCH, (run, table, name, "loaded", created, inserted, updated))
            return {"inserted": inserted, "updated": updated}

        with certain(database), self.sandbox.folder_of(file, make=True):
            pass
        return await asyncio.to_thread(_transact, file, database, work)

    async def restore(
        self, call: EffectCall, database: str, table: str, key: str | list[str], batch: dict[str, Any]
    ) -> dict[str, Any]:
        """Bring the rows of one batch of this run back to their former values."""
        file = self.sandbox.writable(database)
        self.sandbox.check_writer(call, file)
        name = _name_of(batch)
        run = call.root
        _identifier(table, "table")
        if not file.is_file():
            return {"restored": 0, "removed": 0}

        def work(link: sqlite3.Connection) -> dict[str, Any]:
            loaded = link.execute(FIND_BATCH, (run, table, name)).fetchone()
            if loaded is None:
                return {"restored": 0, "removed": 0}
            if loaded[0] == "restored":
                return {"restored": loaded[2], "removed": loaded[3]}
            restored, removed = _undo(link, (run, table, name))
            sql_table = _sql_name(table)
            if loaded[1] and link.execute(f"SELECT 1 FROM {sql_table} LIMIT 1").fetchone() is None:
                link.execute(f"DROP TABLE {sql_table}")
            link.execute(PUT_BATCH, (run, table, name, "restored", loaded[1], restored, removed))
            return {"restored": restored, "removed": removed}

        return await asyncio.to_thread(_transact, file, database, work)

    async def _batch(self, batch: Mapping[str, Any]) -> tuple[str, list[str], list[list[Any]]]:
        """Identity, columns and rows of a batch, which may be offloaded."""
        name, value = _name_of(batch), dict(batch)
        if "$blob" in batch:
            raw = await self._blobs(str(batch["$blob"])) if self._blobs is not None else None
            if raw is None:
                raise ToolError("gone", "the batch is not kept (any more); read the table again.")
            value = json.loads(raw)
        columns, rows = value.get("columns"), value.get("rows")
        if not isinstance(columns, list) or not isinstance(rows, list) or not columns:
            raise ToolError("invalid", "a batch has columns and rows.")
        if any(not isinstance(row, list) or len(row) != len(columns) for row in rows):
            raise ToolError("invalid", "each row of a batch has a value for each column.")
        return name, columns, rows


def _name_of(batch: Mapping[str, Any]) -> str:
    blob = batch.get("$blob")
    return str(blob) if blob is not None else digest(dict(batch))


def _transact(file: Path, path: str, work: Callable[[sqlite3.Connection], dict[str, Any]]) -> dict[str, Any]:
    """Do something in one transaction, under an exclusive lock."""
    try:
        with closing(sqlite3.connect(file, timeout=BUSY, isolation_level=None)) as link:
            _check_place(link, file, path)
            link.execute("BEGIN IMMEDIATE")
            try:
                for statement in (BATCHES, UNDO, UNDO_INDEX):
                    link.execute(statement)
                result = work(link)
            except BaseException:
                link.execute("ROLLBACK")
                raise
            link.execute("COMMIT")
            return result
    except sqlite3.OperationalError as error:
        busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        raise ToolError(
            "busy" if busy else "database", f"{quoted(path)} {_meaning(error)}.", transient=busy
        ) from error
    except (sqlite3.DatabaseError, OverflowError) as error:
        raise ToolError("database", f"{quoted(path)} {_meaning(error)}.") from error


def _check_place(link: sqlite3.Connection, file: Path, path: str) -> None:
    """Raise a `ToolError` when SQLite followed a link that was created since the path was checked."""
    opened = link.execute("PRAGMA database_list").fetchone()[2]
    if Path(opened) != file or Path(opened).is_symlink():
        raise ToolError("outside", f"{quoted(path)} was replaced by a link; nothing was written.")


def _meaning(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    known = {
        "SQLITE_BUSY": "is in use by another process for too long",
        "SQLITE_LOCKED": "is in use by another process for too long",
        "SQLITE_NOTADB": "is no SQLite file",
        "SQLITE_READONLY": "is read-only",
        "SQLITE_CANTOPEN": "cannot be opened",
        "OverflowError": "cannot hold a whole number that large",
    }
    return known.get(name, f"refused the rows ({name})")


def _identifier(name: Any, kind: str) -> None:
    bad_length = not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME
    if bad_length or any(not char.isprintable() for char in name):
        raise ToolError("invalid", f"a {kind} has a name of 1 to {LONGEST_NAME} printable characters.")
    if kind == "table" and name.lower().startswith(("sqlite_", "detent_")):
        raise ToolError("protected", f"{quoted(name)} is no table for actions.")


def _sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _keys(columns_of_key: str | list[str], columns: Sequence[str]) -> list[str]:
    keys = [columns_of_key] if isinstance(columns_of_key, str) else list(columns_of_key)
    missing = [key for key in keys if key not in columns]
    if not keys or missing:
        names = ", ".join(columns[:20])
        raise ToolError(
            "invalid", f"the key {quoted(', '.join(missing) or 'nothing')} is no column; there is: {names}."
        )
    return keys


def _prepared(
    link: sqlite3.Connection, table: str, columns: list[str], keys: list[str], rows: list[list[Any]]
) -> int:
    """Make sure the table exists and has the columns; 1 when it was created now."""
    if link.execute(HAS_TABLE, (table,)).fetchone() is not None:
        existing = {row[1].lower() for row in link.execute(f"PRAGMA table_info({_sql_name(table)})")}
        missing = [column for column in columns if column.lower() not in existing]
        if missing:
            raise ToolError("no_column", f"table {quoted(table)} has no column {quoted(missing[0])}.")
        return 0
    types = [_column_type([row[at] for row in rows]) for at in range(len(columns))]
    parts = [f"{_sql_name(column)} {type_}" for column, type_ in zip(columns, types, strict=True)]
    parts.append(f"PRIMARY KEY ({', '.join(_sql_name(key) for key in keys)})")
    link.execute(f"CREATE TABLE {_sql_name(table)} ({', '.join(parts)})")
    return 1


def _column_type(values: list[Any]) -> str:
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, int) for value in present):
        return "INTEGER"
    if present and all(isinstance(value, int | float) for value in present):
        return "REAL"
    return "TEXT" if any(isinstance(value, str) for value in present) else ""


def _load(
    link: sqlite3.Connection, batch_key: tuple[str, str, str], columns: list[str], keys: list[str],
    rows: list[list[Any]],
) -> tuple[int, int]:  # fmt: skip
    sql_table = _sql_name(batch_key[1])
    key_positions = [columns.index(column) for column in keys]
    other_positions = [index for index in range(len(columns)) if index not in key_positions]
    where = " AND ".join(f"{_sql_name(column)} = ?" for column in keys)
    column_list = ", ".join(_sql_name(column) for column in columns)
    find = f"SELECT {column_list} FROM {sql_table} WHERE {where} LIMIT 2"
    put = f"INSERT INTO {sql_table} ({column_list}) VALUES ({', '.join('?' * len(columns))})"
    changes = ", ".join(f"{_sql_name(columns[column])} = ?" for column in other_positions)
    change = f"UPDATE {sql_table} SET {changes} WHERE {where}"
    # One row per key: the last of a batch counts.
    chosen: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        stored = [_stored(value) for value in row]
        key_values = tuple(stored[column] for column in key_positions)
        if any(part is None for part in key_values):
            raise ToolError("no_key", "a row of the batch has no value in its key column.")
        chosen[key_values] = stored
    inserted = updated = 0
    for key_values, row in chosen.items():
        existing = link.execute(find, key_values).fetchall()
        if len(existing) > 1:
            raise ToolError("not_unique", f"table {quoted(batch_key[1])} holds several rows under one key.")
        key = json.dumps({column: _packed(part) for column, part in zip(keys, key_values, strict=True)})
        if not existing:
            link.execute(put, row)
            link.execute(PUT_UNDO, (*batch_key, key, None))
            inserted += 1
            continue
        updated += 1
        before = {columns[column]: _packed(existing[0][column]) for column in other_positions}
        if other_positions:
            link.execute(change, [*(row[column] for column in other_positions), *key_values])
        link.execute(PUT_UNDO, (*batch_key, key, json.dumps(before)))
    return inserted, updated


def _undo(link: sqlite3.Connection, batch_key: tuple[str, str, str]) -> tuple[int, int]:
    sql_table = _sql_name(batch_key[1])
    restored = removed = 0
    if link.execute(HAS_TABLE, (batch_key[1],)).fetchone() is None:
        link.execute(DROP_UNDO, batch_key)
        return 0, 0
    for _, key_json, before in link.execute(FIND_UNDO, batch_key).fetchall():
        key = {name: _unpacked(value) for name, value in json.loads(key_json).items()}
        where = " AND ".join(f"{_sql_name(column)} = ?" for column in key)
        if before is None:
            removed += link.execute(f"DELETE FROM {sql_table} WHERE {where}", list(key.values())).rowcount
            continue
        values = {name: _unpacked(value) for name, value in json.loads(before).items()}
        if values:
            setting = ", ".join(f"{_sql_name(column)} = ?" for column in values)
            link.execute(f"UPDATE {sql_table} SET {setting} WHERE {where}", [*values.values(), *key.values()])
        restored += 1
    link.execute(DROP_UNDO, batch_key)
    return restored, removed


def _stored(value: Any) -> Any:
    """A value in the form SQLite keeps; nested values as JSON."""
    if isinstance(value, bool):
        return int(value)
    return (
        value
        if value is None or isinstance(value, str | int | float)
        else json.dumps(value, ensure_ascii=False)
    )


def _packed(value: Any) -> Any:
    """The value of a column as JSON that reads back exactly."""
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$real": repr(value)}
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["$bytes"]) if "$bytes" in value else float(value["$real"])
    return value


def row_tools(rows: Rows) -> list[Tool]:
    """The tools for rows."""
    return [
        Tool("db.upsert", rows.upsert, idempotent=True, wants_call=True,
             refuses=rows.sandbox.refusing("database"),
             description="Make a table of a SQLite file hold the rows of a batch, one per key. The receipt "
             "says inserted, updated."),
        Tool("db.restore", rows.restore, idempotent=True, wants_call=True,
             refuses=rows.sandbox.refusing("database"),
             description="Bring the rows of one batch back to what they were. Receipt: restored, removed."),
    ]  # fmt: skip
