"""The registry of devices, and its query: `check_warranty`.

The embedded registry is a SQLite file, filled from CSV. Another source of the same answers, such as a CRM,
can replace it.
"""

from __future__ import annotations

import asyncio
import csv
import io
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from detent.apps.warranty.domain.coverage import Device, coverage, device_of, read_date
from detent.apps.warranty.domain.serials import serial_key
from detent.apps.warranty.tools.database import BUSY_TIMEOUT, Database, DatabaseError
from detent.engine.tools import Tool, ToolError
from detent.kernel.errors import ConfigurationError, DefinitionError, nearest
from detent.kernel.policy import USUAL, BreakerPolicy, RetryPolicy

if TYPE_CHECKING:
    from detent.engine.context import StepContext

COLUMNS = (
    "serial", "device_name", "customer_ref", "service_contract_end", "manufacturer_end", "extension_until",
)  # fmt: skip
BREAKER = BreakerPolicy(failures=5, cooldown=60.0)

Given = Callable[["StepContext"], Mapping[str, Any]]
"""Reads arguments from the run that no agent can set."""

_FIND = f"SELECT {', '.join(COLUMNS)} FROM devices WHERE serial_key = ?"
_PUT = f"""
INSERT INTO devices (serial_key, {", ".join(COLUMNS)}) VALUES (?, {", ".join("?" * len(COLUMNS))})
ON CONFLICT (serial_key) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in COLUMNS)}
"""


class WarrantySource(Protocol):
    """A system that knows whether a device is covered."""

    async def find(self, serial: str, on: date) -> dict[str, Any]:
        """The answer of `check_warranty` for a day.

        Raises:
            ToolError: the lookup failed.
        """


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0


class _Row(NamedTuple):
    line: int
    device: Device


class Registry:
    """The embedded registry."""

    def __init__(self, path: Path, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.path = Path(path)
        self._database = Database(self.path, "devices", busy_timeout)

    async def close(self) -> None:
        """Close the file."""
        await self._database.close()

    async def find(self, serial: str, on: date) -> dict[str, Any]:
        """The cover of a device on a day."""
        try:
            device = await self.show(serial)
        except DatabaseError as error:
            raise ToolError(error.code, error.message, transient=error.transient) from error
        return coverage(device, on, serial)

    async def show(self, serial: str) -> Device | None:
        """The device with this serial number, also tried with a leading SN added or removed."""
        return await self._database.read(lambda connection: _lookup(connection, serial))

    async def add(self, devices: Iterable[Device]) -> Imported:
        """Add devices, replacing those with the same key."""
        every = list(devices)
        return await self._database.write(lambda connection: _put(connection, every))

    async def import_csv(self, file: Path) -> Imported:
        """Add the devices of a CSV file; none of them if the file has problems.

        Raises:
            DefinitionError: lists every problem of the file.
        """
        rows = await asyncio.to_thread(read_csv, Path(file))
        return await self.add(row.device for row in rows)

    async def count(self) -> int:
        """Number of registered devices."""
        ((number,),) = await self._database.rows("SELECT count(*) FROM devices")
        return int(number)


def keys_to_try(serial: str) -> tuple[str, tuple[str, ...]]:
    """The key of a serial number, and the keys to try if it is unknown: a leading SN added, or removed."""
    key = serial_key(serial)
    if not key:
        return "", ()
    return key, tuple(other for other in (f"SN{key}", key[2:] if key.startswith("SN") else "") if other)


def _lookup(connection: sqlite3.Connection, serial: str) -> Device | None:
    key, others = keys_to_try(serial)
    row = connection.execute(_FIND, (key,)).fetchone()
    if row is None:
        rows = [
            match for other in others if (match := connection.execute(_FIND, (other,)).fetchone()) is not None
        ]
        row = rows[0] if len(rows) == 1 else None
    return device_of(dict(row)) if row is not None else None


def _put(connection: sqlite3.Connection, devices: Sequence[Device]) -> Imported:
    added = changed = 0
    for device in devices:
        key = serial_key(device.serial)
        ends = (device.service_contract_end, device.manufacturer_end, device.extension_until)
        values = (
            device.serial, device.device_name, device.customer_ref,
            *(end.isoformat() if end is not None else None for end in ends),
        )  # fmt: skip
        current = connection.execute(_FIND, (key,)).fetchone()
        if current is not None and tuple(current) == values:
            continue
        added, changed = (added + 1, changed) if current is None else (added, changed + 1)
        connection.execute(_PUT, (key, *values))
    return Imported(added, changed, len(devices) - added - changed)


# -- CSV ----------------------------------------------------------------------------------------------------


def read_csv(file: Path) -> list[_Row]:
    """The devices of a CSV file with their lines.

    Raises:
        ConfigurationError: the file cannot be read.
        DefinitionError: lists every problem of the file.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(
            f"{file}:{line}: is not UTF-8. Save it as UTF-8 and import it again."
        ) from None
    problems: list[str] = []
    rows = list(_rows(text, file, problems))
    lines: dict[str, _Row] = {}
    for row in rows:
        first = lines.setdefault(serial_key(row.device.serial), row)
        if first is not row:
            problems.append(
                f"{file}:{row.line}: the serial '{row.device.serial}' names the same device as "
                f"'{first.device.serial}' in line {first.line}."
            )
    if problems:
        raise DefinitionError(str(file), problems)
    return rows


def _rows(text: str, file: Path, problems: list[str]) -> Iterator[_Row]:
    first = text.partition("\n")[0]
    sign = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True)
    line = 1
    try:
        head = [name.strip().lower() for name in next(reader, [])]
        if not _good_head(head, file, problems):
            return
        line = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) > len(head):
                    problems.append(f"{file}:{line}: has {len(cells)} cells, the first line has {len(head)}.")
                else:
                    record = dict(zip(head, (cell.strip() for cell in cells), strict=False))
                    if (device := _device(record, f"{file}:{line}", problems)) is not None:
                        yield _Row(line, device)
            line = reader.line_num + 1
    except csv.Error as error:
        problems.append(f"{file}:{line}: is not CSV ({error}).")


def _good_head(head: Sequence[str], file: Path, problems: list[str]) -> bool:
    before = len(problems)
    for name in dict.fromkeys(head):
        if name not in COLUMNS:
            hint = nearest(name, COLUMNS) or f" Columns: {', '.join(COLUMNS)}."
            problems.append(f"{file}:1: there is no column '{name}'.{hint}")
        elif head.count(name) > 1:
            problems.append(f"{file}:1: the column '{name}' appears {head.count(name)} times.")
    if "serial" not in head:
        problems.append(f"{file}:1: the column 'serial' is missing. The first line names the columns.")
    return len(problems) == before


def _device(record: dict[str, str], where: str, problems: list[str]) -> Device | None:
    before = len(problems)
    if not serial_key(record.get("serial", "")):
        problems.append(f"{where}: the serial is missing, or has neither letters nor digits.")
    for name in COLUMNS[3:]:
        try:
            read_date(record.get(name))
        except ValueError:
            problems.append(f"{where}: {name} is no date. Write it as YYYY-MM-DD.")
    return device_of(record) if len(problems) == before else None


# -- the tool -----------------------------------------------------------------------------------------------


def check_warranty_tool(
    source: WarrantySource,
    *,
    today: Callable[[], date] = date.today,
    given: Given | None = None,
    retry: RetryPolicy = USUAL,
    breaker: BreakerPolicy | None = BREAKER,
) -> Tool:
    """The query `check_warranty(serial_number)`.

    The day that counts is the day the mail was received. `given` reads it from the run:
    `{"received": "2026-03-10"}`. No agent can set it, because the tool does not publish that argument.
    Without it, `today` decides.
    """

    async def check_warranty(serial_number: str, received: str | None = None) -> dict[str, Any]:
        try:
            on = read_date(received) or today()
        except ValueError:
            raise ConfigurationError("check_warranty: `received` must be a day, YYYY-MM-DD.") from None
        return await source.find(serial_number, on)

    return Tool(
        "check_warranty",
        check_warranty,
        "query",
        given=given,
        retry=retry,
        breaker=breaker,
        description="Look a serial number up: whether the device is covered, by what, and until when.",
        arguments={
            "type": "object",
            "properties": {
                "serial_number": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 100,
                    "description": "The serial number as printed in the mail.",
                }
            },
            "required": ["serial_number"],
            "additionalProperties": False,
        },
    )
