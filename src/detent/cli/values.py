"""Parsing of command-line values: data, single keys, times, budgets."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.cli.options import Options
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
    """Parse JSON; an error names the position."""

    def refuse(name: str) -> Any:
        raise ConfigurationError(f"{option}: {name} is no JSON value.")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        raise ConfigurationError(
            f"{option} is not valid JSON: {error.msg} at line {line}, column {error.colno}."
        ) from None


def read_data(text: str | None) -> Any:
    """The value of --data: JSON itself, @file, or - for standard input."""
    if text is None:
        return {}
    if text == "-":
        return read_json(read_text("-", "--data"), "--data -")
    if text.startswith("@"):
        return read_json(read_text(text[1:], "--data"), f"--data {text}")
    return read_json(text, "--data")


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


def read_answer(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_sets(items: list[str] | None) -> dict[str, Any]:
    """The values of --set."""
    values: dict[str, Any] = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"--set takes KEY=VALUE, not '{item}'.")
        values[key.strip()] = read_answer(value)
    return values


def read_time(text: str | None, option: str) -> float | None:
    """A point in time: an age (`7d`, `12h`, `30m`), a date, or a date and time, local without a time zone."""
    if text is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?[smhdw]", text):
        return time.time() - float(text[:-1]) * _UNITS[text[-1]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ConfigurationError(
            f"{option} takes an age such as 30m, 12h or 7d, or a date such as 2026-01-31 or "
            f"2026-01-31T08:00, not '{text}'."
        ) from None


def read_budget(options: Options, settings: Settings | None = None) -> Budget | None:
    """The budget of the command line merged over the project's; None when neither sets one."""
    from detent.kernel.budget import Budget

    plain = {**(settings.section("budget") if settings else {})}
    limits = {"tokens": "tokens", "cost_usd": "usd", "steps": "steps", "seconds": "seconds"}
    for limit, option in limits.items():
        value = getattr(options, f"budget_{option}")
        if value is not None and not value > 0:
            raise ConfigurationError(f"--budget-{option} takes a number above 0, not {value:g}.")
        if value is not None:
            plain[limit] = value
    return Budget.from_plain({name: value for name, value in plain.items() if value is not None})


def read_object(value: str, option: str) -> Any:
    """The value of a JSON or YAML file; literal JSON, @file and - for standard input also work."""
    if value.lstrip().startswith(("{", "[")):
        return read_json(value, option)
    source = value.removeprefix("@")
    text = read_text(source, option)
    if Path(source).suffix.lower() not in (".yaml", ".yml"):
        return read_json(text, f"{option} {source}")
    from detent.authoring.document import read_value

    return read_value(text, f"{option} {source}")


def read_step_settings(
    modes: Iterable[str] | None, levels: Iterable[str] | None, *, example: str, scope: str = ""
) -> dict[tuple[str, ...], Any]:
    """The settings that `--mode` and `--autonomy` change, as STEP=VALUE; `scope` begins the names."""
    changes: dict[tuple[str, ...], Any] = {}
    for option, key, values in (("--mode", "mode", modes), ("--autonomy", "autonomy", levels)):
        for text in values or ():
            step, equals, value = text.partition("=")
            if not equals or not step or not value:
                raise ConfigurationError(f"{option} takes STEP=VALUE, such as {example}=agent.")
            changes["steps", f"{scope}{step}", key] = value
    return changes
