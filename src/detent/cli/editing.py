"""Changes single values in a settings file and leaves every other character of it alone.

A person wrote the file: comments, order and spacing stay. What cannot be changed safely is
refused, and nothing is written unless the result reads back as the old settings with the wanted change.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from detent.authoring.document import MOST_BYTES, read_document
from detent.kernel.errors import ConfigurationError

Change = tuple[tuple[str, ...], str]
"""The path of keys that leads to a value, and the value: a plain word."""


class CannotEdit(ConfigurationError):
    """The text has a shape in which the change cannot be made safely; it was left as it is."""


def changed(text: str, changes: Iterable[Change]) -> str:
    """The text with these values set, or `CannotEdit`."""
    for path, value in changes:
        text = _checked(text, _put(text, path, value), path, value)
    return text


def write(file: Path, old: bytes | None, new: str) -> None:
    """Replace the file's text atomically; refuse if the file was changed in the meantime."""
    place = file.resolve()
    beside = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        if (place.read_bytes() if place.exists() else None) != old:
            raise ConfigurationError(f"{file.name} was changed by another process meanwhile. Try again.")
        try:
            with beside.open("wb") as stream:
                stream.write(new.encode("utf-8"))
                stream.flush()
                os.fsync(stream.fileno())
            if old is not None:
                shutil.copymode(place, beside)
            os.replace(beside, place)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{file.name} cannot be written: {error.strerror}.") from None


# -- one change ---------------------------------------------------------------------------------------------


def _put(text: str, path: tuple[str, ...], value: str) -> str:
    node = _compose(text)
    if node is None:
        return _after(text, len(text), _block(path, value, 0))
    for depth, key in enumerate(path):
        if node.id != "mapping":
            raise CannotEdit(f"'{'.'.join(path[:depth])}' holds no named values")
        match = next((pair for pair in node.value if pair[0].value == key), None)
        if match is None:
            return _inserted(text, node, path[depth:], value)
        name, below = match
        if below.start_mark.index < name.end_mark.index:
            raise CannotEdit(f"'{'.'.join(path[: depth + 1])}' is an alias of another place")
        if depth == len(path) - 1:
            return _replaced(text, below, value)
        if below.id == "scalar" and below.start_mark.index == below.end_mark.index and not node.flow_style:
            lines = _block(path[depth + 1 :], value, name.start_mark.column + 2)
            return _after(text, name.end_mark.index, lines)
        node = below
    raise CannotEdit("no key was named")


def _replaced(text: str, node: Any, value: str) -> str:
    """Replace a scalar with another word."""
    start, end = node.start_mark, node.end_mark
    if node.id != "scalar" or start.line != end.line:
        raise CannotEdit("the value there is more than a word")
    return text[: start.index] + (" " if start.index == end.index else "") + value + text[end.index :]


def _inserted(text: str, node: Any, path: tuple[str, ...], value: str) -> str:
    """Add an entry at the end of a mapping, in the mapping's own style."""
    if node.flow_style:
        if not node.value:
            at, comma = node.end_mark.index - 1, ""
        else:
            at, comma = _last(node)[-1].end_mark.index, ", "
        return text[:at] + comma + _inline(path, value) + text[at:]
    column = node.value[0][0].start_mark.column
    return _after(text, _end(node), _block(path, value, column))


def _last(node: Any) -> Any:
    """The last pair of a mapping."""
    name, below = node.value[-1]
    if below.start_mark.index < name.end_mark.index:
        raise CannotEdit("the last entry there is an alias of another place")
    return name, below


def _end(node: Any) -> int:
    """Offset at which a value ends, without the comments after it."""
    if node.value and node.id in ("mapping", "sequence") and not node.flow_style:
        if node.id == "sequence":
            return _end(node.value[-1])
        name, below = node.value[-1]
        alias = below.start_mark.index < name.end_mark.index
        return int(name.end_mark.index) if alias else _end(below)
    end = node.end_mark
    # A block of text ends where the next line begins.
    return int(end.index) - (1 if end.column == 0 and end.line > node.start_mark.line else 0)


def _after(text: str, index: int, added: list[str]) -> str:
    """Insert lines after the line that holds an offset, with the file's own line endings."""
    newline = "\r\n" if "\r\n" in text else "\n"
    at = text.find("\n", index) + 1
    before, rest = (text[:at], text[at:]) if at else (text, "")
    if before and not before.endswith("\n"):
        before += newline
    return before + "".join(line + newline for line in added) + rest


def _block(path: tuple[str, ...], value: str, column: int) -> list[str]:
    lines = [f"{' ' * (column + 2 * depth)}{_key(key)}:" for depth, key in enumerate(path)]
    lines[-1] += f" {value}"
    return lines


def _inline(path: tuple[str, ...], value: str) -> str:
    text = value
    for key in reversed(path[1:]):
        text = f"{{{_key(key)}: {text}}}"
    return f"{_key(path[0])}: {text}"


def _key(name: str) -> str:
    """A key in YAML: unquoted where that is safe."""
    import json

    import yaml

    plain = re.fullmatch(r"[A-Za-z_][\w./-]*", name) and yaml.safe_load(name) == name
    return name if plain else json.dumps(name)


# -- checking -----------------------------------------------------------------------------------------------


def _checked(old: str, new: str, path: tuple[str, ...], value: str) -> str:
    """The new text, verified to differ from the old one by this change and nothing else."""
    expected = copy.deepcopy(_load(old) or {})
    inner = expected
    for key in path[:-1]:
        if inner.get(key) is None:
            inner[key] = {}
        inner = inner[key]
    inner[path[-1]] = value
    if repr(_load(new)) != repr(expected):
        raise CannotEdit("its layout leaves no safe place for the change")
    return new


def _compose(text: str) -> Any:
    import yaml

    if len(text) > MOST_BYTES:
        raise CannotEdit("it is too large")
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise CannotEdit("it is not valid YAML") from None


def _load(text: str) -> Any:
    document = read_document(text, "the settings", keys_as_written=True)
    if document.errors:
        raise CannotEdit("its layout leaves no safe place for the change")
    return document.value
