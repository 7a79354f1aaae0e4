"""Reads step files: front matter, the line of every key, the body.

The format is declared in `instruction`; this module checks its keys against each other, `checks` the files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from detent.authoring import model
from detent.authoring.document import below, decoded, read_document
from detent.authoring.model import keys_of
from detent.authoring.problem import Place, Problem
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.prose.fact_kinds import KINDS
from detent.flows.playbook.form_reading import FormReader
from detent.flows.playbook.instruction import (
    BAD_PROSE,
    DOTTED,
    ENDS,
    Call,
    Edge,
    EffectDeclaration,
    FunctionDeclaration,
    InstructionFile,
    Variant,
    WorkedExample,
    WrittenField,
)
from detent.kernel.errors import ConfigurationError, nearest

MARKER = "---"
REQUIRED = ("name", "description", "version", "next")
KEYS = keys_of(InstructionFile)
DECLARATIVE = ("call", "effects")
"""Keys that replace a handler; a template's variant alone declares no work."""
BODY_ARGUMENT = "body"
"""The argument a template fills by default."""

_MAY_BE_EMPTY = (
    *REQUIRED, "aliases", "available_functions", "needs", "outputs", "handler", "call", "effects",
    "validator", "examples", "conclude", "filled_by",
)  # fmt: skip
"""Keys for which an empty text counts as left out."""
_NAME = re.compile(r"[^\W_]+(?:[-_]+[^\W_]+)*")
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


class Read(NamedTuple):
    """The result of reading a file."""

    instruction: InstructionFile | None
    """None if its front matter could not be read."""
    problems: tuple[Problem, ...]
    text: str
    """The whole file, for guessing the targets of an unreadable step."""

    def shown(self, path: str) -> Read:
        """The same, with the problems under the file's path for display."""
        return self._replace(
            problems=tuple(
                problem._replace(place=problem.place._replace(file=path)) for problem in self.problems
            )
        )


def read_instruction(raw: bytes, path: Path) -> Read:
    """Read a step file."""
    shown = path.as_posix()

    def broken(line: int, code: str, message: str, text: str = "") -> Read:
        return Read(None, (Problem(code, message, Place(shown, line)),), text)

    try:
        text = decoded(raw)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        return broken(line, "P03", f"is not UTF-8 text (byte {error.start}). Save the file as UTF-8.")
    lines = text.split("\n")
    if not text.strip():
        return broken(1, "P02", "is empty. A step file begins with front matter between two lines '---'.")
    if lines[0].rstrip() != MARKER:
        return broken(1, "P02", "has no front matter: its first line must be '---'.", text)
    end = next((index for index, line in enumerate(lines) if index and line.rstrip() == MARKER), None)
    if end is None:
        return broken(1, "P02", "has front matter that is not closed: a line '---' must follow it.", text)
    # The first marker begins a YAML document, so lines are counted as in the file.
    document = read_document("\n".join(lines[:end]), shown, code="P03", was_yaml_1_1=True)
    if document.errors:
        return Read(None, document.problems, text)
    if document.value is not None and not isinstance(document.value, dict):
        return broken(2, "P06", "front matter is a list of `key: value` lines.", text)
    document = document._replace(places={**document.places, "": Place(shown, 1)})
    reader = _Reader(document, "P06", unknown="P05", missing="P04")
    body = "\n".join(lines[end + 1 :])
    step = reader.instruction(document.value or {}, path)
    first = next((index for index, line in enumerate(lines[end + 1 :], end + 2) if line.strip()), None)
    places = {**document.places, **document.keys}
    if first is None:
        message = "has no text below its front matter: say what is to be done."
        reader.wrong("P09", "", message, place=Place(shown, end + 1))
    else:
        places["body"] = Place(shown, first)
    step = replace(
        step, body=body.strip(), sha256=hashlib.sha256(raw).hexdigest(), places=MappingProxyType(places)
    )
    return Read(step, (*document.problems, *reader.problems), text)


class _Reader(FormReader):
    """Reads the front matter of one step file."""

    def instruction(self, content: dict[str, Any], path: Path) -> InstructionFile:
        """The whole front matter, as far as it is usable."""
        scenario = "trigger" in content
        content = {
            key: None
            if (value == "" and key in _MAY_BE_EMPTY) or (key in REQUIRED and value in ([], {}))
            else value
            for key, value in content.items()
        }
        if scenario and content.get("next") is None:
            content["next"] = []
        if "name" in content:
            content["name"] = self.spelled(content["name"], "name")
        if isinstance(content.get("aliases"), list):
            content["aliases"] = [
                self.spelled(alias, f"aliases[{index}]") for index, alias in enumerate(content["aliases"])
            ]
        values = self.fields(InstructionFile, content, "", "a step file")
        declarative = any(key in content for key in DECLARATIVE)
        if "handler" in content and declarative:
            other = next(key for key in DECLARATIVE if key in content)
            self.wrong("P06", other, f"'{other}' replaces a handler; use one of them.")
        values["name"] = self.name(values.get("name", "").strip(), path.stem)
        values["next"] = self.items(values, "next", self.edge)
        values["available_functions"] = self.items(values, "available_functions", self.function)
        if isinstance(call := values.get("call"), dict):
            single = self.call(call, "call")
            values["call"] = (single,) if single is not None else ()
        else:
            values["call"] = self.items(values, "call", self.call)
        values["effects"] = self.effects(values.get("effects", ()))
        values["variant"] = self.variants(values.get("variant", {}))
        values["text_fields"] = self.text_fields(values.get("text_fields", {}))
        if "prose" in values:
            values["prose"] = tuple(values["prose"])
        values["facts"] = self.facts(values.get("facts", {}))
        values["form"] = self.form(values.get("form"))
        values["examples"] = self.examples(values, values["form"])
        for key in ("needs", "outputs"):
            values[key] = tuple(dict.fromkeys(values.get(key, ())))
        values["aliases"] = tuple(alias.strip() for alias in values.get("aliases", ()))
        for key in ("description", "handler", "validator", "conclude", "filled_by"):
            if key in values:
                values[key] = values[key].strip()
        values["mode"] = StepMode(values["mode"]) if "mode" in values else None
        values["autonomy"] = self.autonomy(values)
        return InstructionFile(
            **{"description": "", "version": "", **values}, path=path, declarative=declarative
        )

    def name(self, name: str, stem: str) -> str:
        """The step's name, which is the file's."""
        if not _NAME.fullmatch(stem):
            self.wrong(
                "P07", "name", f"a step is named with letters, digits and hyphens, which '{stem}' is not."
            )
        elif "_" in stem:
            message = f"'{stem}' has underscores; '{stem.replace('_', '-')}' is usual."
            self.wrong("W03", "name", message)
        if stem.casefold() in {end.casefold() for end in ENDS}:
            self.wrong("P11", "name", f"'{stem}' is the name of an end. Rename the file.")
        if name and name not in (stem, f"step-{stem}"):
            self.wrong("P07", "name", f"name is '{name}', but the file is called '{stem}'.")
        return name or stem

    def autonomy(self, values: Mapping[str, Any]) -> AutonomyLevel | None:
        """The level; a deterministic step has none."""
        level = AutonomyLevel(values["autonomy"]) if "autonomy" in values else None
        if values["mode"] is StepMode.DETERMINISTIC and level not in (None, AutonomyLevel.OPERATOR):
            self.wrong("P20", "autonomy", "autonomy is for agents, but mode is deterministic.")
            return None
        return level

    # -- lists and mappings ---------------------------------------------------------------------------------

    def edge(self, written: Any, path: str) -> Edge | None:
        """One step that may follow."""
        if isinstance(written, dict):
            written = {**written, "to": self.spelled(written.get("to") or None, f"{path}.to")}
        item = self.item(Edge, self.spelled(written, path), path, "an item of 'next'", "to")
        if item is None or "to" not in item:
            return None
        if not item["to"].strip():
            self.wrong("P06", path, "an item of 'next' names a step.")
            return None
        return Edge(item["to"].strip(), self.when(item, path), (item.get("reason") or "").strip() or None)

    def function(self, written: Any, path: str) -> FunctionDeclaration | None:
        """One function that the step may use."""
        item = self.item(FunctionDeclaration, self.spelled(written, path), path, "a function", "name")
        if item is None:
            return None
        if not isinstance(written, dict):
            if not item["name"].strip():
                self.wrong("P06", path, "this is a function's name, or {name, description, parameters}.")
                return None
            return FunctionDeclaration(item["name"].strip())
        lacks = [
            key for key in ("name", "description") if not isinstance(item.get(key), str) or not item[key]
        ]
        if lacks:
            self.wrong("P15", path, f"a function written out has {' and '.join(lacks)}, as text.")
        parameters = written.get("parameters", _NO_PARAMETERS)
        if (trouble := _schema_trouble(parameters)) is not None:
            self.wrong("P15", f"{path}.parameters", trouble)
            parameters = _NO_PARAMETERS
        if "name" in lacks:
            return None
        into, required = self.into(item, path), item.get("required", False)
        return FunctionDeclaration(item["name"], item.get("description"), parameters, into, required)

    def call(self, written: Any, path: str) -> Call | None:
        """One query of the declarative handler."""
        functions = (
            [key for key in written if key not in ("into", "when", "else")]
            if isinstance(written, dict)
            else []
        )
        if len(functions) != 1:
            self.wrong("P06", path, "a call is one function with its arguments, beside into, when and else.")
            return None
        function, into = functions[0], written.get("into")
        args = self.mapping(written[function], below(path, function), "named arguments")
        if into in (None, ""):
            self.wrong("P04", path, "a call says with 'into' which key takes the answer.")
            return None
        if not isinstance(into, str) or "." in into:
            self.wrong("P06", f"{path}.into", "into is one key of the data, without dots.")
            return None
        return Call(
            function, args, into, self.when(written, path), written.get("else"), "else" in written, path
        )

    def effects(self, written: Any) -> tuple[EffectDeclaration, ...]:
        """The effects of the declarative handler."""
        if isinstance(written, dict):
            return tuple(self.effect(key, value, below("effects", key)) for key, value in written.items())
        effects: list[EffectDeclaration] = []
        for index, item in enumerate(written):
            path = f"effects[{index}]"
            if isinstance(item, dict) and len(item) == 1:
                ((function, value),) = item.items()
                effects.append(self.effect(function, value, below(path, function)))
                continue
            keys = item if isinstance(item, dict) else ()
            misplaced = next((key for key in ("template", "into", "when") if key in keys), None)
            inside = (
                f" '{misplaced}' stands among them: {{function: {{{misplaced}: …}}}}." if misplaced else ""
            )
            self.wrong("P06", path, f"an effect is one function with its arguments.{inside}")
        return tuple(effects)

    def effect(self, function: str, written: Any, path: str) -> EffectDeclaration:
        """One effect."""
        item = self.mapping(written, path, "named arguments, beside template, into and when")
        args = {key: value for key, value in item.items() if key not in ("template", "into", "when")}
        templates = self.templates(item, f"{path}.template")
        return EffectDeclaration(
            function, args, templates, self.into(item, path), self.when(item, path), path
        )

    def templates(self, item: Mapping[str, Any], path: str) -> dict[str, str]:
        """Which arguments come from which template."""
        written = item.get("template")
        by_argument = (
            written if isinstance(written, dict) else {} if written is None else {BODY_ARGUMENT: written}
        )
        templates: dict[str, str] = {}
        for argument, value in by_argument.items():
            place = below(path, argument) if isinstance(written, dict) else path
            name = self.spelled(value, place)
            if isinstance(name, str) and name.strip():
                templates[argument] = name.strip()
            else:
                message = "this is a template's name, or arguments with a template's name each."
                self.wrong("P06", place, message)
        return templates

    def variants(self, written: Mapping[str, Any]) -> tuple[Variant, ...]:
        """The variants of its templates."""
        conditions = {name: self.condition(written[name], below("variant", name)) for name in written}
        return tuple(Variant(name, when) for name, when in conditions.items() if when is not None)

    def text_fields(self, written: Mapping[str, Any]) -> Mapping[str, str]:
        """Which protocol output fills which argument."""
        targets: dict[str, str] = {}
        for key, target in written.items():
            if isinstance(target, str) and all(target.rpartition(".")[::2]):
                targets[key.upper()] = target
            else:
                self.wrong(
                    "P06", below("text_fields", key), "is `function.argument`, such as send_email.body."
                )
        return targets

    def facts(self, written: Mapping[str, Any]) -> Mapping[str, str]:
        """The kinds of its facts."""
        kinds: dict[str, str] = {}
        for key, kind in written.items():
            if not re.fullmatch(DOTTED, key):
                self.wrong(BAD_PROSE, below("facts", key), f"'{key}' is no dotted key.")
            elif kind not in KINDS:
                message = f"a fact is one of: {', '.join(KINDS)}.{nearest(str(kind), KINDS)}"
                self.wrong(BAD_PROSE, below("facts", key), message)
            else:
                kinds[key] = kind
        return kinds

    # -- parts ----------------------------------------------------------------------------------------------

    def spelled(self, value: Any, path: str) -> Any:
        """A name as it is spelled in the file, if YAML reads it as a number."""
        bare = self.document.bare(path) if type(value) in (int, float) else None
        return value if bare is None else bare

    def mapping(self, value: Any, path: str, expected: str) -> dict[str, Any]:
        """A mapping; without a value, an empty one."""
        if value is None or isinstance(value, dict):
            return value or {}
        self.wrong("P06", path, f"this takes {expected}.")
        return {}

    def into(self, item: Mapping[str, Any], path: str) -> Mapping[str, str]:
        """Where an answer or receipt goes: a key for the whole, or keys with the path to their part."""
        into = item.get("into")
        if into is None:
            return {}
        if isinstance(into, str) and into and "." not in into:
            return {into: ""}
        if isinstance(into, dict) and all(
            isinstance(part, str) and "." not in key for key, part in into.items()
        ):
            return dict(into)
        message = "into is one key of the data, or keys with a part of the answer each."
        self.wrong("P06", f"{path}.into", message)
        return {}


def _schema_trouble(schema: Any) -> str | None:
    """What is wrong with the parameters of a function."""
    if not isinstance(schema, dict):
        return "parameters is a JSON Schema of an object."
    if schema.get("type", "object") != "object":
        return "parameters describes an object: its type is 'object'."
    from detent.engine.schemas import check_schema

    try:
        check_schema(schema)
    except ConfigurationError as error:
        return str(error)
    return None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the front matter of step files, for editors."""
    schema = model.json_schema(InstructionFile)
    keys = schema["properties"]
    name = {"type": ["string", "number"]}
    keys["next"]["items"] = {"anyOf": [name, model.json_schema(Edge)]}
    for key, items in (
        ("available_functions", {"anyOf": [name, model.json_schema(FunctionDeclaration)]}),
        ("examples", model.json_schema(WorkedExample)),
    ):
        keys[key]["anyOf"][0]["items"] = items
    keys["form"]["anyOf"][0]["additionalProperties"] = model.json_schema(WrittenField)
    keys["facts"]["anyOf"][0]["additionalProperties"] = {"enum": list(KINDS)}
    return {"title": "Detent step file", **schema}
