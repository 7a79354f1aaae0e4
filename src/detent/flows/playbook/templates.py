"""Texts with `{{key}}` in them: inserting values, and finding the template for a variant and a language.

A missing value is an error that names the place, never an empty text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from detent.authoring.document import decoded
from detent.flows.playbook.instruction import Variant
from detent.kernel.errors import DetentError, nearest
from detent.kernel.guards import dig, when
from detent.kernel.plain import to_plain

SUFFIX = ".txt"
LANGUAGE = "language"
"""Key of the data that says in which language to write."""

_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_ABSENT = object()

Values = Callable[[str], Any]
"""The value of a dotted key, or `ABSENT`."""
ABSENT = _ABSENT


class TemplateError(DetentError):
    """A text cannot be made: a value for it is missing, or the template itself."""

    def __init__(self, where: str, line: int | None, key: str | None, why: str) -> None:
        self.where = where
        self.line = line
        self.key = key
        place = f"{where}, line {line}" if line is not None else where
        super().__init__(f"{place}: {why}")


class Placeholder(NamedTuple):
    """A `{{key}}` in a text."""

    key: str
    line: int
    alone: bool
    """It is the whole text, so the value stands there as it is and not as text."""


def placeholders(value: Any) -> Iterator[Placeholder]:
    """Every placeholder in a value, in order."""
    if isinstance(value, str):
        for match in _PLACEHOLDER.finditer(value):
            line = value.count("\n", 0, match.start()) + 1
            yield Placeholder(match.group(1), line, match.group() == value.strip())
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from placeholders(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from placeholders(item)


def insert(text: str, values: Values, where: str) -> str:
    """A text with its placeholders filled."""

    def fill(match: re.Match[str]) -> str:
        key, line = match.group(1), text.count("\n", 0, match.start()) + 1
        found = _value(values, key, where, line)
        if hasattr(found, "__plain__") and "$receipt" in found.__plain__():
            raise TemplateError(
                where, line, key, f"'{key}' is known only after the effect is performed, so it stands alone."
            )
        return _text(to_plain(found))

    return _PLACEHOLDER.sub(fill, text)


def filled(value: Any, values: Values, where: str) -> Any:
    """A value with its placeholders filled; one that is a whole text is replaced by the value itself."""
    if isinstance(value, str):
        only = _PLACEHOLDER.fullmatch(value.strip())
        if only is not None:
            found = _value(values, only.group(1), where, 1)
            return found if hasattr(found, "__plain__") and _is_receipt(found) else to_plain(found)
        return insert(value, values, where)
    if isinstance(value, Mapping):
        return {key: filled(item, values, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled(item, values, where) for item in value]
    return value


def values_of(data: Mapping[str, Any]) -> Values:
    """The values of a run's data."""
    return lambda key: dig(data, key, _ABSENT)


def _is_receipt(value: Any) -> bool:
    return "$receipt" in value.__plain__()


def _value(values: Values, key: str, where: str, line: int) -> Any:
    found = values(key) if key else _ABSENT
    if found is _ABSENT or found is None:
        raise TemplateError(where, line, key, f"there is no value for {{{{{key}}}}}.")
    return found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


class Template(NamedTuple):
    """A template file by its three names."""

    base: str
    variant: str | None
    language: str
    path: Path


class TemplateSet:
    """The templates of a playbook's folders, the strongest folder last."""

    def __init__(self, folders: Iterable[Path], language: str = "en") -> None:
        self.language = language
        """Used where the data names none, or one there is no template in."""
        self._files: dict[tuple[str, str | None, str], Template] = {}
        self._texts: dict[Path, str] = {}
        for folder in folders:
            for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
                template = _parsed(path)
                if template is not None:
                    self._files[template[:3]] = template

    def __iter__(self) -> Iterator[Template]:
        return iter(self._files.values())

    def base(self, name: str) -> str | None:
        """The template a name means: its own, or the one step whose number the name is."""
        bases = list(dict.fromkeys(template.base for template in self))
        if name in bases:
            return name
        numbered = [base for base in bases if base.startswith(f"{name}-")]
        return numbered[0] if len(numbered) == 1 else None

    def languages(self) -> tuple[str, ...]:
        """Every language some template is in, the usual one first."""
        found = dict.fromkeys(template.language for template in self)
        return tuple(sorted(found, key=lambda one: (one != self.language, one)))

    def get(self, base: str, variant: str | None, language: str) -> Template | None:
        """The file for exactly this."""
        return self._files.get((base, variant, language))

    def find(self, name: str, variant: str | None, language: str) -> Template:
        """The file to use: in the language wanted or else in the usual one; `TemplateError` without one."""
        base = self.base(name)
        if base is None:
            known = sorted({template.base for template in self})
            there = ", ".join(known) or "none"
            why = f"there is no such template.{nearest(name, known)} Templates: {there}."
            raise TemplateError(f"template {name}", None, None, why)
        for one in (language, self.language):
            found = self.get(base, variant, one)
            if found is not None:
                return found
        parts = ".".join(part for part in (base, variant, language) if part)
        raise TemplateError(f"template {name}", None, None, f"there is no file {parts}{SUFFIX}.")

    def text(self, template: Template) -> str:
        """What a file says, read once."""
        found = self._texts.get(template.path)
        if found is None:
            found = self._texts[template.path] = decoded(template.path.read_bytes()).strip("\n")
        return found

    def render(
        self, name: str, variants: Sequence[Variant], data: Mapping[str, Any], values: Values | None = None
    ) -> str:
        """A template filled from the data, in the variant and language the data asks for."""
        variant = chosen(variants, data)
        language = dig(data, LANGUAGE)
        wanted = language if isinstance(language, str) and language else self.language
        template = self.find(name, variant, wanted)
        return insert(self.text(template), values or values_of(data), f"template {template.path.name}")


def chosen(variants: Sequence[Variant], data: Mapping[str, Any]) -> str | None:
    """The first variant whose condition holds."""
    return next((one.name for one in variants if when(one.when)(data)), None)


def _parsed(path: Path) -> Template | None:
    """`<step>[.<variant>].<language>.txt`."""
    parts = path.name.removesuffix(SUFFIX).split(".")
    if len(parts) == 2:
        return Template(parts[0], None, parts[1], path)
    if len(parts) == 3:
        return Template(parts[0], parts[1], parts[2], path)
    return None
