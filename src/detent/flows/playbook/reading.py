"""From the bytes of a step file to an `InstructionFile`: front matter, the line of every key, the text below.

Everything wrong with one file by itself is found here; what is wrong between files is for `checking`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.engine.yaml_loader import safe_loader
from detent.flows.playbook.form_reading import read_examples, read_form
from detent.flows.playbook.instruction import (
    ENDS,
    Call,
    Edge,
    EffectDeclaration,
    FunctionDeclaration,
    InstructionFile,
    Variant,
)
from detent.flows.playbook.problems import Problem
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import to_plain
from detent.kernel.yaml_words import BRACES, yaml_trouble

MARKER = "---"
REQUIRED = ("name", "description", "version", "next")
KEYS = (
    *REQUIRED, "aliases", "available_functions", "needs", "outputs", "handler", "call", "effects", "variant",
    "validator", "text_fields", "form", "examples", "conclude", "mode", "autonomy", "timeout_s",
    "max_attempts", "trigger",
)  # fmt: skip
DECLARATIVE = ("call", "effects")
"""What stands in place of a handler; a template's variant alone says nothing that could be done."""
BODY_ARGUMENT = "body"
"""The argument a template fills when nothing else is said."""

_NAME = re.compile(r"[^\W_]+(?:[-_]+[^\W_]+)*")
_VERSION = re.compile(r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)")
_DOTTED = re.compile(r"[^.\s{}]+(?:\.[^.\s{}]+)*")
_SCALARS = (str, int, float, bool, type(None))

Way = tuple[str | int, ...]


class Read(NamedTuple):
    """What reading a file gave."""

    instruction: InstructionFile | None
    """None when not even its front matter could be read."""
    problems: tuple[Problem, ...]
    text: str
    """The whole file, for guessing at what could not be read."""

    def shown(self, path: str) -> Read:
        """The same, with the problems under the name people know the file by."""
        return self._replace(problems=tuple(problem._replace(path=path) for problem in self.problems))


class Document(NamedTuple):
    """A YAML text: its value, and where its parts stand."""

    value: Any
    lines: Mapping[str, int]
    raw: Mapping[str, str]
    """Scalars as written, before YAML took `05` for a number."""


class NotYaml(Exception):
    """A text that is no YAML, with the line YAML names."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


def read_instruction(raw: bytes, path: Path) -> Read:
    """Read a step file."""
    shown = path.as_posix()

    def broken(line: int, code: str, message: str, text: str = "") -> Read:
        return Read(None, (Problem(shown, line, code, message),), text)

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
    try:
        document = read_yaml("\n".join(lines[1:end]), offset=1)
    except NotYaml as error:
        return broken(error.line, "P03", f"is not valid YAML: {error}.", text)
    if document.value is None:
        document = document._replace(value={})
    if not isinstance(document.value, dict):
        return broken(2, "P06", "front matter is a list of `key: value` lines.", text)
    reader = _Reader(shown, document)
    body = "\n".join(lines[end + 1 :])
    found = reader.instruction(path)
    first = next((index for index, line in enumerate(lines[end + 1 :], end + 2) if line.strip()), None)
    if first is None:
        reader.wrong("P09", (), "has no text below its front matter: say what is to be done.", line=end + 1)
    places = {**document.lines, **({"body": first} if first is not None else {})}
    found = replace(
        found,
        body=body.strip(),
        sha256=hashlib.sha256(raw).hexdigest(),
        line_of=MappingProxyType(places),
    )
    return Read(found, tuple(reader.problems), text)


def decoded(raw: bytes) -> str:
    """The text of a file, whatever its line ends; `UnicodeDecodeError` when it is not UTF-8."""
    return raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def read_yaml(text: str, offset: int = 0) -> Document:
    """A YAML text as plain values, with the line of every key and item; `NotYaml` when it is none."""
    value, lines, raw = _read_yaml(text, offset)
    return Document(deepcopy(value), dict(lines), dict(raw))


@lru_cache(maxsize=256)  # the same texts are read over and over: for every mailbox, case, look at a playbook
def _read_yaml(text: str, offset: int) -> Document:
    import yaml

    try:
        loader = safe_loader()(text)
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        raw: dict[str, str] = {}
        value = None
        if node is not None:
            _walk(node, "", lines, raw, offset)
            value = to_plain(loader.construct_document(node))
    except yaml.YAMLError as error:
        line, said = yaml_trouble(error, text)
        raise NotYaml(line + offset, said) from error
    except RecursionError as error:
        raise NotYaml(1 + offset, "brackets stand inside each other too deeply") from error
    except (TypeError, ValueError) as error:
        raise NotYaml(1 + offset, str(error).rstrip(".")) from error
    return Document(value, lines, raw)


def _walk(node: Any, place: str, lines: dict[str, int], raw: dict[str, str], offset: int) -> None:
    """Note the line of every key and item, and every scalar as written."""
    if node.id == "sequence":
        for index, item in enumerate(node.value):
            here = f"{place}.{index}" if place else str(index)
            lines[here] = item.start_mark.line + 1 + offset
            _walk(item, here, lines, raw, offset)
    elif node.id == "mapping":
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            at = key.start_mark.line + 1 + offset
            if key.id != "scalar" or (key.tag != "tag:yaml.org,2002:str" and name != "<<"):
                braces = key.id == "mapping" and value.tag == "tag:yaml.org,2002:null"  # {{name}}, to YAML
                what = BRACES if braces else "a key is text; put it in quotes"
                raise NotYaml(
                    at, what if key.id != "scalar" else f"the key {name} is not text; put it in quotes"
                )
            if name in seen:
                raise NotYaml(at, f"the key '{name}' is said twice")
            seen.add(name)
            here = f"{place}.{name}" if place else name
            lines[here] = at
            _walk(value, here, lines, raw, offset)
    else:
        raw[place] = str(node.value)


class _Reader:
    """Reads the keys of one front matter and gathers what is wrong with them."""

    def __init__(self, shown: str, document: Document) -> None:
        self.shown = shown
        self.said: dict[str, Any] = document.value
        self.document = document
        self.problems: list[Problem] = []

    def wrong(
        self, code: str, way: Way, message: str, line: int | None = None, warning: bool = False
    ) -> None:
        """Note a problem at a key."""
        if line is None:
            places = (".".join(str(part) for part in way[:end]) for end in range(len(way), 0, -1))
            line = next((self.document.lines[place] for place in places if place in self.document.lines), 1)
        self.problems.append(Problem(self.shown, line, code, message, warning))

    # -- the whole ------------------------------------------------------------------------------------------

    def instruction(self, path: Path) -> InstructionFile:
        """Everything the front matter says, as far as it can be used."""
        said = self.said
        self.unknown(said, KEYS, ())
        scenario = "trigger" in said
        for key in REQUIRED:
            if key == "next" and scenario:
                continue
            if key not in said:
                self.wrong("P04", (), f"lacks the required key '{key}'.", line=1)
            elif said[key] is None or said[key] in ("", [], {}):
                self.wrong("P04", (key,), f"'{key}' is required and must not be empty.")
        declarative = any(key in said for key in DECLARATIVE)
        if "handler" in said and declarative:
            other = next(key for key in DECLARATIVE if key in said)
            self.wrong("P06", (other,), f"'{other}' stands in place of a handler; say one of them.")
        form = read_form(self)
        return InstructionFile(
            name=self.name(path.stem),
            description=self.text(("description",)) or "",
            version=self.version(),
            next=self.edges(),
            aliases=self.names(("aliases",)),
            available_functions=self.functions(),
            needs=self.keys(("needs",)),
            outputs=self.keys(("outputs",)),
            handler=self.text(("handler",)),
            call=self.calls(),
            effects=self.effects(),
            variant=self.variants(),
            validator=self.text(("validator",)),
            text_fields=self.text_fields(),
            form=form,
            examples=read_examples(self, form),
            conclude=self.text(("conclude",)),
            mode=self.choice("mode", StepMode),
            autonomy=self.autonomy(),
            timeout_s=self.number("timeout_s"),
            max_attempts=self.count("max_attempts"),
            trigger=said.get("trigger"),
            path=path,
            declarative=declarative,
        )

    # -- single keys ----------------------------------------------------------------------------------------

    def name(self, stem: str) -> str:
        """The step's name, which is the file's."""
        said = self.text(("name",), number=True)
        if not _NAME.fullmatch(stem):
            self.wrong(
                "P07", ("name",), f"a step is named with letters, digits and hyphens, which '{stem}' is not."
            )
        elif "_" in stem:
            self.wrong(
                "W03", ("name",), f"'{stem}' has underscores; '{stem.replace('_', '-')}' is usual.",
                warning=True,
            )  # fmt: skip
        if stem.casefold() in {end.casefold() for end in ENDS}:
            self.wrong("P11", ("name",), f"'{stem}' is the name of an end. Rename the file.")
        if said and said not in (stem, f"step-{stem}"):
            self.wrong("P07", ("name",), f"name is '{said}', but the file is called '{stem}'.")
        return said or stem

    def version(self) -> str:
        """MAJOR.MINOR.PATCH."""
        value = self.said.get("version")
        if value is None or value == "":
            return ""
        if not isinstance(value, str) or not _VERSION.fullmatch(value):
            self.wrong("P08", ("version",), "version is three numbers, such as 1.0.0.")
            return ""
        return value

    def choice(self, key: str, kind: Callable[[str], Any]) -> Any:
        """One of an enumeration's values."""
        value = self.said.get(key)
        if value is None:
            return None
        options = [one.value for one in kind]  # type: ignore[attr-defined]
        if value not in options:
            hint = nearest(value, options) if isinstance(value, str) else ""
            self.wrong("P20", (key,), f"{key} is one of {', '.join(options)}.{hint}")
            return None
        return kind(value)

    def autonomy(self) -> AutonomyLevel | None:
        """The level, which means nothing to a step that says it is deterministic."""
        level: AutonomyLevel | None = self.choice("autonomy", AutonomyLevel)
        deterministic = self.said.get("mode") == StepMode.DETERMINISTIC.value
        if deterministic and level not in (None, AutonomyLevel.OPERATOR):
            self.wrong("P20", ("autonomy",), "autonomy is for agents, but mode is deterministic.")
            return None
        return level

    def number(self, key: str) -> float | None:
        """A number above 0."""
        value = self.said.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            self.wrong("P06", (key,), f"{key} is a number above 0.")
            return None
        return float(value)

    def count(self, key: str) -> int | None:
        """A whole number of 1 or more."""
        value = self.said.get(key)
        if value is None:
            return None
        if type(value) is not int or value < 1:
            self.wrong("P06", (key,), f"{key} is a whole number of 1 or more.")
            return None
        return value

    # -- lists and mappings ---------------------------------------------------------------------------------

    def edges(self) -> tuple[Edge, ...]:
        """The steps that may follow."""
        found: list[Edge] = []
        for index, item in enumerate(self.items(("next",))):
            way: Way = ("next", index)
            if not isinstance(item, dict):
                to = self.text_of(item, way, "a step's name, or {to, when, reason}")
                found += [Edge(to)] if to else []
                continue
            self.unknown(item, ("to", "when", "reason"), way)
            if item.get("to") in (None, ""):
                self.wrong("P04", way, "an item of 'next' says with 'to' which step follows.")
                continue
            to = self.text_of(item["to"], (*way, "to"), "a step's name")
            reason = self.text((*way, "reason"), item)
            if to:
                found.append(Edge(to, self.when(item, way), reason))
        return tuple(found)

    def functions(self) -> tuple[FunctionDeclaration, ...]:
        """The functions it may use."""
        found: list[FunctionDeclaration] = []
        for index, item in enumerate(self.items(("available_functions",))):
            way: Way = ("available_functions", index)
            if not isinstance(item, dict):
                name = self.text_of(item, way, "a function's name, or {name, description, parameters}")
                found += [FunctionDeclaration(name)] if name else []
                continue
            self.unknown(item, ("name", "description", "parameters", "into", "required"), way)
            lacks = [
                key for key in ("name", "description") if not isinstance(item.get(key), str) or not item[key]
            ]
            required = item.get("required", False)
            if not isinstance(required, bool):
                self.wrong("P06", (*way, "required"), "required is true or false.")
                required = False
            if lacks:
                self.wrong("P15", way, f"a function written out has {' and '.join(lacks)}, as text.")
            parameters = item.get("parameters", {"type": "object", "properties": {}})
            if (trouble := _schema_trouble(parameters)) is not None:
                self.wrong("P15", (*way, "parameters"), trouble)
                parameters = {"type": "object", "properties": {}}
            if isinstance(item.get("name"), str) and item["name"]:
                into = self.into(item, way)
                said = item.get("description")
                found.append(FunctionDeclaration(item["name"], said, parameters, into, required))
        return tuple(found)

    def calls(self) -> tuple[Call, ...]:
        """The queries its declarative handler asks."""
        said = self.said.get("call")
        if said is None:
            return ()
        single = isinstance(said, dict)
        found: list[Call] = []
        for index, item in enumerate([said] if single else self.items(("call",))):
            way: Way = ("call",) if single else ("call", index)
            named = (
                [key for key in item if key not in ("into", "when", "else")] if isinstance(item, dict) else []
            )
            if len(named) != 1:
                self.wrong(
                    "P06", way, "a call is one function with its arguments, beside into, when and else."
                )
                continue
            args = self.mapping(item[named[0]], (*way, named[0]), "named arguments")
            into = item.get("into")
            if into in (None, ""):
                self.wrong("P04", way, "a call says with 'into' which key takes the answer.")
                continue
            if not isinstance(into, str) or "." in into:
                self.wrong("P06", (*way, "into"), "into is one key of the data, without dots.")
                continue
            place = ".".join(str(part) for part in way)
            found.append(
                Call(named[0], args, into, self.when(item, way), item.get("else"), "else" in item, place)
            )
        return tuple(found)

    def effects(self) -> tuple[EffectDeclaration, ...]:
        """The effects its declarative handler proposes."""
        said = self.said.get("effects")
        if said is None:
            return ()
        pairs: list[tuple[Way, str, Any]] = []
        if isinstance(said, dict):
            pairs = [(("effects", key), key, value) for key, value in said.items()]
        else:
            for index, item in enumerate(self.items(("effects",))):
                if not isinstance(item, dict) or len(item) != 1:
                    beside = [
                        key for key in ("template", "into", "when") if isinstance(item, dict) and key in item
                    ]
                    inside = (
                        f" '{beside[0]}' stands among them: {{function: {{{beside[0]}: …}}}}."
                        if beside
                        else ""
                    )
                    message = f"an effect is one function with its arguments.{inside}"
                    self.wrong("P06", ("effects", index), message)
                    continue
                ((key, value),) = item.items()
                pairs.append((("effects", index, key), key, value))
        found: list[EffectDeclaration] = []
        for way, function, value in pairs:
            item = self.mapping(value, way, "named arguments, beside template, into and when")
            args = {key: one for key, one in item.items() if key not in ("template", "into", "when")}
            templates = self.templates(item, way)
            into, when, place = (
                self.into(item, way),
                self.when(item, way),
                ".".join(str(part) for part in way),
            )
            found.append(EffectDeclaration(function, args, templates, into, when, place))
        return tuple(found)

    def templates(self, item: Mapping[str, Any], way: Way) -> dict[str, str]:
        """Which arguments come from which template."""
        said, way = item.get("template"), (*way, "template")
        if said is None:
            return {}
        pairs = said if isinstance(said, dict) else {BODY_ARGUMENT: said}
        found: dict[str, str] = {}
        for argument, name in pairs.items():
            here = (*way, argument) if isinstance(said, dict) else way
            text = self.text_of(name, here, "a template's name, or arguments with a template's name each")
            if text:
                found[argument] = text
        return found

    def variants(self) -> tuple[Variant, ...]:
        """The variants of its templates."""
        said = self.said.get("variant")
        if said is None:
            return ()
        found: list[Variant] = []
        for name in self.mapping(said, ("variant",), "variants with a condition each"):
            condition = self.condition(said[name], ("variant", name))
            if condition is not None:
                found.append(Variant(name, condition))
        return tuple(found)

    def text_fields(self) -> Mapping[str, str]:
        """Which protocol output fills which argument."""
        said = self.said.get("text_fields")
        if said is None:
            return {}
        found: dict[str, str] = {}
        for key, target in self.mapping(said, ("text_fields",), "outputs with an argument each").items():
            if not isinstance(target, str) or not all(target.rpartition(".")[::2]):
                self.wrong("P06", ("text_fields", key), "is `function.argument`, such as send_email.body.")
                continue
            found[key.upper()] = target
        return found

    # -- parts ----------------------------------------------------------------------------------------------

    def unknown(self, found: Mapping[str, Any], known: Iterable[str], way: Way) -> None:
        """Note every key nobody knows."""
        known = tuple(known)
        for key in found:
            if key not in known:
                hint = nearest(key, known) or f" Known here: {', '.join(known)}."
                self.wrong("P05", (*way, key), f"unknown key '{key}'.{hint}")

    def text(self, way: Way, inside: Mapping[str, Any] | None = None, number: bool = False) -> str | None:
        """A text, when it is said."""
        value = (self.said if inside is None else inside).get(str(way[-1]))
        if value is None or value == "":
            return None
        if number:
            return self.text_of(value, way, "text")
        if not isinstance(value, str):
            self.wrong("P06", way, f"{way[-1]} is text.")
            return None
        return value.strip()

    def text_of(self, value: Any, way: Way, what: str) -> str | None:
        """A name; one that YAML takes for a number counts as written."""
        if isinstance(value, str) and value.strip():
            return value.strip()
        raw = self.document.raw.get(".".join(str(part) for part in way))
        if type(value) in (int, float) and raw is not None:
            return raw
        self.wrong("P06", way, f"this is {what}.")
        return None

    def items(self, way: Way) -> list[Any]:
        """The items of a list, when it is said."""
        value = self.said.get(str(way[-1]))
        if value is None or value == "":
            return []
        if not isinstance(value, list):
            one = f": [{value}]" if isinstance(value, str) and len(value) <= 60 else ""
            self.wrong("P06", way, f"{way[-1]} is a list{one}.")
            return []
        return value

    def names(self, way: Way) -> tuple[str, ...]:
        """A list of names."""
        found = (self.text_of(item, (*way, index), "a name") for index, item in enumerate(self.items(way)))
        return tuple(name for name in found if name)

    def keys_said(self, key: str) -> tuple[str, ...]:
        """The texts of a list, whatever else is wrong with it."""
        value = self.said.get(key)
        return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()

    def keys(self, way: Way) -> tuple[str, ...]:
        """A list of dotted keys."""
        found: list[str] = []
        for index, item in enumerate(self.items(way)):
            if not isinstance(item, str) or not _DOTTED.fullmatch(item):
                self.wrong("P06", (*way, index), "this is a key of the data, dotted where it is nested.")
            else:
                found.append(item)
        return tuple(dict.fromkeys(found))

    def mapping(self, value: Any, way: Way, what: str) -> dict[str, Any]:
        """A mapping; nothing said is an empty one."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.wrong("P06", way, f"this takes {what}.")
            return {}
        return value

    def into(self, item: Mapping[str, Any], way: Way) -> Mapping[str, str]:
        """Where an answer or receipt goes: a key for the whole, or keys with the way to their part."""
        said = item.get("into")
        if said is None:
            return {}
        if isinstance(said, str) and said and "." not in said:
            return {said: ""}
        if isinstance(said, dict) and all(
            isinstance(part, str) and "." not in key for key, part in said.items()
        ):
            return dict(said)
        self.wrong(
            "P06", (*way, "into"), "into is one key of the data, or keys with a part of the answer each."
        )
        return {}

    def when(self, item: Mapping[str, Any], way: Way) -> Mapping[str, Any] | None:
        """The condition of an item."""
        return self.condition(item["when"], (*way, "when")) if "when" in item else None

    def condition(self, said: Any, way: Way) -> Mapping[str, Any] | None:
        """A condition, or None when it is malformed."""
        if not isinstance(said, dict) or not said:
            self.wrong("P19", way, "a condition is a mapping of dotted keys, such as {status: [open, new]}.")
            return None
        fine = True
        for key, wanted in said.items():
            if not _DOTTED.fullmatch(key):
                self.wrong("P19", (*way, key), f"'{key}' is no dotted key.")
                fine = False
            elif isinstance(wanted, list):
                if not wanted or not all(isinstance(one, _SCALARS) for one in wanted):
                    self.wrong("P19", (*way, key), "a list in a condition has values, and no lists in it.")
                    fine = False
            elif not isinstance(wanted, _SCALARS):
                self.wrong(
                    "P19", (*way, key), "compare with a value, a list of values, `present` or `absent`."
                )
                fine = False
        return said if fine else None


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
