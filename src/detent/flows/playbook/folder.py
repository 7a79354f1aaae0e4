"""A playbook's folder: where its files are, and what its manifest says about all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from detent.authoring.document import Document, path_of, read_document
from detent.authoring.problem import NOWHERE, Place, Problem
from detent.kernel.errors import ConfigurationError, nearest

MANIFEST = "playbook.yaml"
INSTRUCTIONS = "instructions"
MAX_STEPS = 10
MOST_STEPS = 1000
MAIL_TOOL = "send_email"
"""The function that sends the redirect, where the manifest names only a template."""
KEYS = (
    "name", "version", "start", "max_steps", "input", "tools", "handlers", "redirect", "protocol",
    "arguments", "language",
)  # fmt: skip

_OUTPUT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class PlaybookFolder:
    """Where a playbook's files are."""

    root: Path
    steps: Path
    templates: Path

    @classmethod
    def at(
        cls, folder: str | Path, *, steps: str | Path | None = None, templates: str | Path | None = None
    ) -> PlaybookFolder:
        """The playbook in a folder: `instructions/steps`, `steps`, or the files right in it."""
        given = Path(folder).expanduser()
        root = next(
            (root for root in (given / INSTRUCTIONS, given) if (root / "steps").is_dir()), given
        ).absolute()
        beside = root / "steps"
        return cls(
            root,
            Path(steps).absolute() if steps is not None else beside if beside.is_dir() else root,
            Path(templates).absolute() if templates is not None else root / "templates",
        )

    @property
    def name(self) -> str:
        """What the playbook is called when its manifest does not say."""
        root = self.root.resolve()
        return (root.parent if root.name == INSTRUCTIONS else root).name or "playbook"

    def shown(self, path: Path) -> str:
        """A file as people are told about it: from the folder the playbook stands in."""
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
"""Files that may stand among the steps and are none."""


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of an agent's reply, beyond the usual ones, that sets a value."""

    key: str
    """As the line begins: `NUMBER`."""
    sets: str
    """Key of the data."""
    takes: str = "line"
    """`token`: the first word; `line`: the rest of the line."""
    absent: str = "null"
    """What counts when an agent does not say it: `null`, or what the step's own code finds (`handler`)."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `playbook.yaml` says."""

    name: str
    version: int = 1
    start: str | None = None
    max_steps: int = MAX_STEPS
    input: Mapping[str, Any] | None = None
    """JSON Schema of what runs start from."""
    tools: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    redirect: Mapping[str, Any] | None = None
    """The effect proposed when a run is degraded: `{function: arguments}`."""
    protocol: tuple[OutputLine, ...] = ()
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Per function, arguments that effects give it unless they say otherwise."""
    language: str | None = None
    place: Callable[[str], Place] = field(default=lambda key: NOWHERE, compare=False)
    """Where a key stands in the file."""


def read_manifest(folder: PlaybookFolder) -> tuple[Manifest, list[Problem]]:
    """The manifest of a folder, and what is wrong with it; without one, the defaults."""
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
    reading = _Reading(document)
    return reading.manifest(usual), [*document.problems, *reading.problems]


class _Reading:
    """Reads the keys of a manifest and gathers what is wrong with them."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.said: dict[str, Any] = document.value or {}
        self.problems: list[Problem] = []

    def wrong(self, code: str, path: str, message: str) -> None:
        self.problems.append(Problem(code, message, self.document.mark(path), path))

    def manifest(self, usual: Manifest) -> Manifest:
        for key in self.said:
            if key not in KEYS:
                hint = nearest(key, KEYS) or f" Known here: {', '.join(KEYS)}."
                self.wrong("P05", key, f"unknown key '{key}'.{hint}")
        return Manifest(
            name=self.text("name") or usual.name,
            version=self.count("version", 1, None),
            start=self.text("start"),
            max_steps=self.count("max_steps", MAX_STEPS, MOST_STEPS),
            input=self.schema(),
            tools=self.modules("tools"),
            handlers=self.modules("handlers"),
            redirect=self.redirect(),
            protocol=self.protocol(),
            arguments=self.arguments(),
            language=self.text("language"),
            place=self.document.mark,
        )

    def text(self, key: str) -> str | None:
        value = self.said.get(key)
        if type(value) in (int, float):
            return self.document.bare(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        self.wrong("P06", key, f"{key} is text.")
        return None

    def count(self, key: str, default: int, most: int | None) -> int:
        value = self.said.get(key, default)
        if type(value) is not int or value < 1 or (most is not None and value > most):
            up_to = f" up to {most}" if most is not None else ""
            self.wrong("P06", key, f"{key} is a whole number from 1{up_to}.")
            return default
        return value

    def schema(self) -> Mapping[str, Any] | None:
        from detent.engine.schemas import check_schema

        value = self.said.get("input")
        if value is None:
            return None
        if not isinstance(value, dict):
            self.wrong("P06", "input", "input is a JSON Schema.")
            return None
        try:
            check_schema(value)
        except ConfigurationError as error:
            self.wrong("P15", "input", str(error))
            return None
        return value

    def modules(self, key: str) -> tuple[str, ...]:
        value = self.said.get(key, [])
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(one, str) and one for one in names):
            self.wrong("P06", key, f"{key} is a list of modules, such as [package.module].")
            return ()
        return tuple(names)

    def redirect(self) -> Mapping[str, Any] | None:
        value = self.said.get("redirect")
        if value is None:
            return None
        if isinstance(value, str) and value:
            return {MAIL_TOOL: {"template": value}}
        if (
            isinstance(value, dict)
            and len(value) == 1
            and all(isinstance(one, dict) for one in value.values())
        ):
            return value
        self.wrong("P06", "redirect", "redirect is a template's name, or one function with its arguments.")
        return None

    def protocol(self) -> tuple[OutputLine, ...]:
        value = self.said.get("protocol", {})
        if not isinstance(value, dict):
            self.wrong("P06", "protocol", "protocol maps output lines to keys: {NUMBER: order_number}.")
            return ()
        found: list[OutputLine] = []
        for key, said in value.items():
            line = output_line(key, said)
            if isinstance(line, str):
                self.wrong("P06", path_of("protocol", key), line)
            else:
                found.append(line)
        return tuple(found)

    def arguments(self) -> Mapping[str, Mapping[str, Any]]:
        value = self.said.get("arguments", {})
        if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
            self.wrong("P06", "arguments", "arguments maps functions to named arguments.")
            return {}
        return value


def output_line(key: str, said: Any) -> OutputLine | str:
    """An output line as a manifest or an application writes it, or what is wrong with it."""
    if isinstance(said, OutputLine):
        return said
    if not _OUTPUT.fullmatch(key) or key.upper() in ("NEXT_STEP", "REASON", "BODY", "CALL", "RESULT"):
        return f"'{key}' cannot begin an output line."
    if isinstance(said, str) and said:
        return OutputLine(key.upper(), said)
    if not isinstance(said, Mapping) or not isinstance(said.get("sets"), str):
        return "an output line sets a key: `NUMBER: order_number`, or {sets, takes, absent}."
    if unknown := [one for one in said if one not in ("sets", "takes", "absent")]:
        return f"unknown key '{unknown[0]}'. Known here: sets, takes, absent."
    takes, absent = said.get("takes", "line"), said.get("absent") or "null"
    if takes not in ("token", "line") or absent not in ("null", "handler"):
        return "takes is token or line; absent is null or handler."
    return OutputLine(key.upper(), said["sets"], takes, absent)
