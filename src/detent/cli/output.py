"""Output: plain aligned lines, a little colour on a terminal, JSON on request."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from detent.kernel.control_characters import json_shown, shown
from detent.kernel.errors import ConfigurationError

STATUS_COLOURS = {
    "running": typer.colors.CYAN,
    "waiting": typer.colors.YELLOW,
    "succeeded": typer.colors.GREEN,
    "failed": typer.colors.RED,
    "degraded": typer.colors.YELLOW,
    "budget_exhausted": typer.colors.MAGENTA,
    "cancelled": typer.colors.BRIGHT_BLACK,
}


def is_terminal() -> bool:
    """True when a person reads standard output on a terminal that can move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def say(text: str = "") -> None:
    """Print a line. Control characters in it are shown; only `paint` colours."""
    print(printable(text), flush=True)


def warn(text: str) -> None:
    """Print a line for people to standard error. Control characters in it are shown; only `paint` colours."""
    # One write, so that a message of a signal handler begins a line of its own.
    print(f"{printable(text)}\n", end="", file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json_shown(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)), flush=True)


def say_plain(value: Any, format: str) -> None:
    """Print a value as YAML where that is the format, else as JSON."""
    if format != "yaml":
        say_json(value)
        return
    import yaml

    say(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100).rstrip("\n"))


_STYLES: list[str] = [typer.style("", reset=True)]
_FIRST_STYLE = 0xF0000 + int.from_bytes(os.urandom(2)) % 0xFF00
"""Styles stand in a text as private characters, different ones in every process.

So an escape sequence in a text from outside is never taken for one of ours.
"""


def paint(text: str, colour: str | None = None, *, bold: bool = False, dim: bool = False) -> str:
    """Coloured text on a terminal, once it is printed; plain text elsewhere."""
    if not is_terminal() or not text:
        return text
    style = typer.style("", fg=colour, bold=bold or None, dim=dim or None, reset=False)
    if style not in _STYLES:
        _STYLES.append(style)
    return f"{chr(_FIRST_STYLE + _STYLES.index(style))}{text}{chr(_FIRST_STYLE)}"


def printable(text: str) -> str:
    """Text ready for printing: coloured where `paint` marked it, other control characters escaped."""
    if text.isprintable():
        return text
    return "".join(_STYLES[ord(char) - _FIRST_STYLE] if _is_style(char) else shown(char) for char in text)


def _is_style(char: str) -> bool:
    return 0 <= ord(char) - _FIRST_STYLE < len(_STYLES)


def status(value: str, text: str | None = None) -> str:
    """A status in its colour."""
    return paint(text or value, STATUS_COLOURS.get(value))


def clean(text: Any) -> str:
    """Untrusted text made safe for a terminal: one line, control characters escaped."""
    plain = str(text)
    if plain.isprintable():
        return plain
    plain = " ".join(plain.split())
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in plain)


def width(text: str) -> int:
    """Width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len("".join(char for char in text if not _is_style(char)))


def cut(text: str, columns: int) -> str:
    """Text shortened to a number of columns."""
    if width(text) <= columns:
        return text
    head = ""
    for char in text:
        if width(head + char) > columns - 1:
            break
        head += char
    painted = any(_is_style(char) for char in head)
    return f"{head}…{chr(_FIRST_STYLE) if painted else ''}"


def columns() -> int | None:
    """Width of the terminal; None without a terminal, where lines are not cut."""
    return shutil.get_terminal_size((100, 24)).columns if is_terminal() else None


def fit(line: str) -> None:
    """Print a line, cut to the terminal."""
    room = columns()
    say(cut(line, room) if room is not None else line)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> None:
    """Print aligned columns; the last is cut to the terminal. A cell that is a status is coloured."""
    cells = [[clean(cell) for cell in row] for row in rows]
    shown = [list(heads), *cells]
    widths = [max(width(row[index]) for row in shown) for index in range(len(heads))]
    room = columns()
    on_right = set(right)
    for number, row in enumerate(shown):
        parts: list[str] = []
        used = 0
        for index, cell in enumerate(row):
            last = index == len(row) - 1
            if last and room is not None:
                cell = cut(cell, max(8, room - used))
            gap = " " * (widths[index] - width(cell))
            painted = (
                paint(cell, bold=True) if number == 0 else status(cell) if cell in STATUS_COLOURS else cell
            )
            parts.append(gap + painted if index in on_right else painted + ("" if last else gap))
            used += widths[index] + 2
        say("  ".join(parts).rstrip())


def fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, aligned."""
    lines = [(name, value) for name, value in pairs if value]
    widest = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        say(f"{paint(name.ljust(widest), dim=True)}  {value}")


def say_page(
    title: str,
    pairs: Iterable[tuple[str, str]] = (),
    tables: Iterable[tuple[Sequence[str], Iterable[Sequence[str]]]] = (),
    remarks: Iterable[str] = (),
) -> None:
    """Print one thing in full: title, names and values, tables, remarks."""
    say(paint(title, bold=True))
    fields((name, clean(value)) for name, value in pairs)
    for heads, rows in tables:
        say()
        table(heads, rows)
    for number, remark in enumerate(remarks):
        if not number:
            say()
        say(paint(clean(remark), "yellow"))


def write(text: str, output: Path | None) -> None:
    """Write text to a file, or to standard output."""
    if output is None:
        say(text.rstrip("\n"))
        return
    write_file(output, text if text.endswith("\n") else text + "\n")
    warn(f"Written to {output}.")


def write_file(file: Path, text: str) -> None:
    """Write text to a file, or raise `ConfigurationError` with the reason."""
    try:
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}.") from None


def local(at: float | None) -> str:
    """A moment in local time, for people."""
    return "" if at is None else datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def brief(at: float) -> str:
    """A moment in local time, for listings; the year only when it is not this one."""
    moment = datetime.fromtimestamp(at)
    return moment.strftime("%m-%d %H:%M:%S" if moment.year == datetime.now().year else "%Y-%m-%d %H:%M")


def iso(at: float | None) -> str | None:
    """A moment in ISO form and UTC, for programs."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def size(value: int) -> str:
    """Bytes for people."""
    amount = float(value)
    for unit in ("bytes", "KB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""
