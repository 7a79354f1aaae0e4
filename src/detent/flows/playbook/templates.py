"""The templates of a playbook: finding the file for a variant and a language, and filling it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from detent.authoring.document import decoded, file_bytes
from detent.authoring.templates import TemplateError, Values, insert, values_of
from detent.flows.playbook.instruction import Variant
from detent.kernel.errors import nearest
from detent.kernel.guards import dig, when

SUFFIX = ".txt"
LANGUAGE = "language"
"""Key of the data that holds the language to write in."""


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
        """The language used if the data names none, or one without a template."""
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
        """The template of a name: the one of exactly that name, or the only one whose step number it is."""
        bases = list(dict.fromkeys(template.base for template in self))
        if name in bases:
            return name
        numbered = [base for base in bases if base.startswith(f"{name}-")]
        return numbered[0] if len(numbered) == 1 else None

    def languages(self) -> tuple[str, ...]:
        """Every language with a template, the usual one first."""
        languages = dict.fromkeys(template.language for template in self)
        return tuple(sorted(languages, key=lambda language: (language != self.language, language)))

    def get(self, base: str, variant: str | None, language: str) -> Template | None:
        """The file of exactly this base, variant and language."""
        return self._files.get((base, variant, language))

    def find(self, name: str, variant: str | None, language: str) -> Template:
        """The file to use, in this language or else in the usual one; `TemplateError` if neither exists."""
        base = self.base(name)
        if base is None:
            known = sorted({template.base for template in self})
            listed = ", ".join(known) or "none"
            why = f"there is no such template.{nearest(name, known)} Templates: {listed}."
            raise TemplateError(f"template {name}", None, None, why)
        for candidate in (language, self.language):
            template = self.get(base, variant, candidate)
            if template is not None:
                return template
        parts = ".".join(part for part in (base, variant, language) if part)
        raise TemplateError(f"template {name}", None, None, f"there is no file {parts}{SUFFIX}.")

    def text(self, template: Template) -> str:
        """The text of a file, read once."""
        text = self._texts.get(template.path)
        if text is None:
            text = self._texts[template.path] = decoded(file_bytes(template.path)).strip("\n")
        return text

    def render(
        self, name: str, variants: Sequence[Variant], data: Mapping[str, Any], values: Values | None = None
    ) -> str:
        """A template filled from the data, in the variant and language that the data selects."""
        variant = chosen(variants, data)
        language = dig(data, LANGUAGE)
        chosen_language = language if isinstance(language, str) and language else self.language
        template = self.find(name, variant, chosen_language)
        return insert(self.text(template), values or values_of(data), f"template {template.path.name}")


def chosen(variants: Sequence[Variant], data: Mapping[str, Any]) -> str | None:
    """The first variant whose condition holds."""
    return next((variant.name for variant in variants if when(variant.when)(data)), None)


def _parsed(path: Path) -> Template | None:
    """`<step>[.<variant>].<language>.txt`."""
    parts = path.name.removesuffix(SUFFIX).split(".")
    if len(parts) == 2:
        return Template(parts[0], None, parts[1], path)
    if len(parts) == 3:
        return Template(parts[0], parts[1], parts[2], path)
    return None
