"""A playbook's folder: the places of its files, and its manifest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from detent.authoring.document import path_of, read_document
from detent.authoring.model import AtLeast, ModelReader, Pattern, Written
from detent.authoring.problem import NOWHERE, Place, Problem
from detent.kernel.errors import ConfigurationError

MANIFEST = "playbook.yaml"
INSTRUCTIONS = "instructions"
MAX_STEPS = 10
MOST_STEPS = 1000
MAIL_TOOL = "send_email"
"""The function that sends the redirect, where the manifest names only a template."""

_OUTPUT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class PlaybookFolder:
    """The places of a playbook's files."""

    root: Path
    steps: Path
    templates: Path

    @classmethod
    def at(
        cls, folder: str | Path, *, steps: str | Path | None = None, templates: str | Path | None = None
    ) -> PlaybookFolder:
        """The playbook in a folder: `instructions/steps`, `steps`, or the files right in it."""
        path = Path(folder).expanduser()
        root = next(
            (root for root in (path / INSTRUCTIONS, path) if (root / "steps").is_dir()), path
        ).absolute()
        beside = root / "steps"
        return cls(
            root,
            Path(steps).absolute() if steps is not None else beside if beside.is_dir() else root,
            Path(templates).absolute() if templates is not None else root / "templates",
        )

    @property
    def sentences(self) -> Path:
        """The folder of approved sentences."""
        return self.root / "sentences"

    @property
    def name(self) -> str:
        """The playbook's name if its manifest has none."""
        root = self.root.resolve()
        return (root.parent if root.name == INSTRUCTIONS else root).name or "playbook"

    def shown(self, path: Path) -> str:
        """A file's path for display, relative to the folder that contains the playbook."""
        for base in (self.root.parent, self.root):
            if path.is_relative_to(base):
                return path.relative_to(base).as_posix()
        return path.as_posix()

    def step_files(self) -> list[Path]:
        """Its step files, by name."""
        if not self.steps.is_dir():
            return []
        return sorted(
            (
                path
                for path in self.steps.glob("*.md")
                if path.is_file() and path.stem.upper() not in _NO_STEPS
            ),
            key=lambda path: path.name,
        )


_NO_STEPS = frozenset({"README", "WORKFLOW"})
"""Stems of files among the steps that are not step files."""


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of an agent's reply, beyond the usual ones, that sets a value."""

    key: str
    """Beginning of the line: `NUMBER`."""
    sets: str
    """Key of the data."""
    takes: str = "line"
    """`token`: the first word; `line`: the rest of the line."""
    absent: str = "null"
    """Value if an agent leaves the line out: `null`, or the one the step's own code finds (`handler`)."""


_Text = Annotated[str, Pattern(r"\S")]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `playbook.yaml`."""

    # fmt: off
    name: Annotated[str, Written("text", "What the playbook is called; left out: as its folder.", _Text)]
    version: Annotated[int, AtLeast(1), Written("a whole number from 1",
        "The version of the playbook; runs of another one are not continued.")] = 1
    start: Annotated[str | None, Written("the name of a step",
        "The step that runs begin with; left out: the first by name.", _Text)] = None
    max_steps: Annotated[int, AtLeast(1), Written(f"a whole number from 1 up to {MOST_STEPS}",
        "Steps of a run, at most.", schema={"maximum": MOST_STEPS})] = MAX_STEPS
    input: Annotated[Mapping[str, Any] | None, Written("a JSON Schema",
        "The JSON Schema of what runs start from.", dict)] = None
    tools: Annotated[tuple[str, ...], Written("a list of modules, such as [package.module]",
        "Modules whose functions steps may use.", list[_Text] | _Text)] = ()
    handlers: Annotated[tuple[str, ...], Written("a list of modules, such as [package.module]",
        "Modules with the code of steps.", list[_Text] | _Text)] = ()
    redirect: Annotated[Mapping[str, Any] | None, Written(
        "a template's name, or one function with its arguments",
        "The effect proposed when a run is degraded.", _Text | dict)] = None
    protocol: Annotated[tuple[OutputLine, ...], Written(
        "a mapping of output lines to keys: {NUMBER: order_number}",
        "Lines of an agent's reply, beyond the usual ones, that set a value.", dict)] = ()
    arguments: Annotated[Mapping[str, Mapping[str, Any]], Written(
        "a mapping of functions to named arguments",
        "Per function, arguments that effects give it unless they say otherwise.", dict)] = field(
        default_factory=dict)
    language: Annotated[str | None, Written("text", "The language of templates.", _Text)] = None
    # fmt: on
    place: Callable[[str], Place] = field(default=lambda key: NOWHERE, compare=False)
    """Place of a key in the file."""


def read_manifest(folder: PlaybookFolder) -> tuple[Manifest, list[Problem]]:
    """The manifest of a folder, and its problems; without a file, the defaults."""
    path = folder.root / MANIFEST
    shown = folder.shown(path)
    usual = Manifest(folder.name)
    if not path.is_file():
        return usual, []
    document = read_document(path.read_bytes(), shown, code="P03", was_yaml_1_1=True)
    usual = replace(usual, place=lambda key: Place(shown, 1))
    if document.errors:
        return usual, list(document.problems)
    if document.value is not None and not isinstance(document.value, dict):
        return usual, [Problem("P06", "a manifest is a list of `key: value` lines.", Place(shown, 1))]
    reader = _Reader(document, "P06", unknown="P05")
    return reader.manifest(usual), [*document.problems, *reader.problems]


class _Reader(ModelReader):
    """Reads a manifest and collects its problems."""

    def manifest(self, usual: Manifest) -> Manifest:
        content = dict(self.document.value or {})
        for key in ("name", "start", "language"):
            if type(content.get(key)) in (int, float):
                content[key] = self.document.bare(key)  # a name that YAML takes for a number
        values = self.fields(Manifest, content, "", "a manifest")
        if values.get("max_steps", 1) > MOST_STEPS:
            del values["max_steps"]
            self.wrong("P06", "max_steps", f"'max_steps' is a whole number from 1 up to {MOST_STEPS}.")
        for key in ("tools", "handlers"):
            names = values.get(key, ())
            values[key] = (names,) if isinstance(names, str) else tuple(names)
        self.input(values)
        self.redirect(values)
        values["protocol"] = self.protocol(values.get("protocol", {}))
        if not all(isinstance(arguments, dict) for arguments in values.get("arguments", {}).values()):
            del values["arguments"]
            self.wrong("P06", "arguments", "'arguments' is a mapping of functions to named arguments.")
        return Manifest(**{"name": usual.name, **values}, place=self.document.mark)

    def input(self, values: dict[str, Any]) -> None:
        from detent.engine.schemas import check_schema

        try:
            check_schema(values.get("input") or {})
        except ConfigurationError as error:
            del values["input"]
            self.wrong("P15", "input", str(error))

    def redirect(self, values: dict[str, Any]) -> None:
        redirect = values.get("redirect")
        if isinstance(redirect, str):
            values["redirect"] = {MAIL_TOOL: {"template": redirect}}
        elif redirect is not None and (
            len(redirect) != 1 or not all(isinstance(arguments, dict) for arguments in redirect.values())
        ):
            del values["redirect"]
            message = "'redirect' is a template's name, or one function with its arguments."
            self.wrong("P06", "redirect", message)

    def protocol(self, declared: Mapping[str, Any]) -> tuple[OutputLine, ...]:
        lines: list[OutputLine] = []
        for key, value in declared.items():
            line = output_line(key, value)
            if isinstance(line, str):
                self.wrong("P06", path_of("protocol", key), line)
            else:
                lines.append(line)
        return tuple(lines)


def output_line(key: str, written: Any) -> OutputLine | str:
    """An output line from a manifest or an application, or the problem with it."""
    if isinstance(written, OutputLine):
        return written
    if not _OUTPUT.fullmatch(key) or key.upper() in ("NEXT_STEP", "REASON", "BODY", "CALL", "RESULT"):
        return f"'{key}' cannot begin an output line."
    if isinstance(written, str) and written:
        return OutputLine(key.upper(), written)
    if not isinstance(written, Mapping) or not isinstance(written.get("sets"), str):
        return "an output line sets a key: `NUMBER: order_number`, or {sets, takes, absent}."
    if unknown := [name for name in written if name not in ("sets", "takes", "absent")]:
        return f"unknown key '{unknown[0]}'. Known here: sets, takes, absent."
    takes, absent = written.get("takes", "line"), written.get("absent") or "null"
    if takes not in ("token", "line") or absent not in ("null", "handler"):
        return "takes is token or line; absent is null or handler."
    return OutputLine(key.upper(), written["sets"], takes, absent)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `playbook.yaml`, for editors; `$defs/step` is that of the front matter of steps,
    `$defs/sentences` that of files of approved sentences."""
    from detent.authoring import model
    from detent.flows.playbook import reading, sentences

    dialect = "https://json-schema.org/draft/2020-12/schema"
    schema = {"$schema": dialect, "title": "Detent playbook", **model.json_schema(Manifest)}
    return {**schema, "$defs": {"step": reading.json_schema(), "sentences": sentences.json_schema()}}
