"""Turns what stands on a command line into values: data, settings of one key, times, budgets."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.kernel.budget import Budget
    from detent.runtime.settings import Settings

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def read_text(source: str, option: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{option}: {source} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{option}: {source} is not UTF-8 text (byte {error.start}).") from None


def read_json(text: str, option: str, first_line: int = 1) -> Any:
    """A JSON text's value; what is wrong with it is told with its position."""

    def refuse(name: str) -> Any:
        raise ConfigurationError(f"{option}: {name} is no JSON value.")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        raise ConfigurationError(
            f"{option} is not valid JSON: {error.msg} at line {line}, column {error.colno}."
        ) from None


def read_data(said: str | None) -> Any:
    """The value of --data: JSON itself, @file, or - for standard input."""
    if said is None:
        return {}
    if said == "-":
        return read_json(read_text("-", "--data"), "--data -")
    if said.startswith("@"):
        return read_json(read_text(said[1:], "--data"), f"--data {said}")
    return read_json(said, "--data")


def read_batch(source: str) -> list[Any]:
    """The items of a batch file: a JSON list, or one JSON value a line."""
    text = read_text(source, "--batch")
    if text.lstrip().startswith("["):
        return list(read_json(text, f"--batch {source}"))
    return [
        read_json(line, f"--batch {source}", number)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]


def read_answer(said: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(said)
    except ValueError:
        return said


def read_sets(said: list[str] | None) -> dict[str, Any]:
    """The values of --set."""
    found: dict[str, Any] = {}
    for item in said or ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--set takes KEY=VALUE, not '{item}'.")
        found[key.strip()] = read_answer(value)
    return found


def read_time(said: str | None, option: str) -> float | None:
    """A moment: so long ago (`7d`, `12h`, `30m`), or a date, or a date and time, local unless it says."""
    if said is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?[smhdw]", said):
        return time.time() - float(said[:-1]) * _UNITS[said[-1]]
    try:
        return datetime.fromisoformat(said).timestamp()
    except ValueError:
        raise ConfigurationError(
            f"{option} takes an age such as 30m, 12h or 7d, or a date such as 2026-01-31 or "
            f"2026-01-31T08:00, not '{said}'."
        ) from None


def read_budget(
    tokens: int | None,
    usd: float | None,
    steps: int | None,
    seconds: float | None,
    settings: Settings | None = None,
) -> Budget | None:
    """The budget the command line states, laid over the project's; None when neither says anything."""
    from detent.kernel.budget import Budget

    stated = {"tokens": tokens, "cost_usd": usd, "steps": steps, "seconds": seconds}
    plain = {**(settings.section("budget") if settings else {})}
    plain.update({name: value for name, value in stated.items() if value is not None})
    return Budget.from_plain({name: value for name, value in plain.items() if value is not None})


def read_object(said: str, option: str) -> Any:
    """The value of a JSON or YAML file; JSON itself, @file and - for standard input will do, too."""
    if said.lstrip().startswith(("{", "[")):
        return read_json(said, option)
    source = said.removeprefix("@")
    text = read_text(source, option)
    if Path(source).suffix.lower() not in (".yaml", ".yml"):
        return read_json(text, f"{option} {source}")
    from detent.authoring.document import read_value

    return read_value(text, f"{option} {source}")
