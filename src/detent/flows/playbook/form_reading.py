"""Reads `form` and `examples` of a step file, and tells everything wrong with them by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from detent.authoring.problem import Problem
from detent.engine.patterns import InvalidPattern, compiled
from detent.flows.playbook import forms
from detent.flows.playbook.instruction import Candidates, FormField, WorkedExample
from detent.kernel.errors import nearest

TYPES = ("string", "integer", "number", "boolean")
BOUNDS = {"minLength": "string", "maxLength": "string", "minimum": "number", "maximum": "number"}
KEYS = ("description", "type", "enum", "candidates", "fills", "optional", *BOUNDS)
BAD_FORM = "P21"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class FrontMatter(Protocol):
    """A step file's front matter, as reading a form needs it."""

    said: dict[str, Any]
    problems: list[Problem]

    def wrong(self, code: str, way: tuple[Any, ...], message: str, line: int | None = None) -> None:
        """Note a problem at a key."""

    def unknown(self, found: Mapping[str, Any], known: Iterable[str], way: tuple[Any, ...]) -> None:
        """Note keys that mean nothing."""

    def text(
        self, way: tuple[Any, ...], inside: Mapping[str, Any] | None = None, number: bool = False
    ) -> str | None:
        """The text at a key."""

    def items(self, way: tuple[Any, ...]) -> list[Any]:
        """The list at a key."""

    def keys_said(self, key: str) -> tuple[str, ...]:
        """The names that a key lists."""


def read_form(reader: FrontMatter) -> tuple[FormField, ...]:
    """The fields of the form; those that cannot be used are told and left out."""
    said = reader.said.get("form")
    if said is None and "form" not in reader.said:
        return ()
    if not isinstance(said, dict) or not said:
        reader.wrong(
            "P06", ("form",), "form has fields, each with a description: {urgent: {type: boolean, …}}."
        )
        return ()
    found = (_field(reader, str(name), value) for name, value in said.items())
    return tuple(field for field in found if field is not None)


def _field(reader: FrontMatter, name: str, said: Any) -> FormField | None:
    way = ("form", name)
    if not _NAME.fullmatch(name):
        reader.wrong(BAD_FORM, way, f"'{name}' cannot name a field: letters, digits and _ do.")
        return None
    if not isinstance(said, dict):
        reader.wrong("P06", way, "a field is a mapping: {description, type}, {description, enum}, ….")
        return None
    before = len(reader.problems)
    reader.unknown(said, KEYS, way)
    description = reader.text((*way, "description"), said)
    if description is None and len(reader.problems) == before:
        reader.wrong("P04", way, f"field '{name}' says with 'description' what it means.")
    meanings = _choices(reader, name, said, way)
    candidates = _candidates(reader, name, said, way)
    fills = said.get("fills")
    if fills is not None and (not isinstance(fills, str) or not all(fills.rpartition(".")[::2])):
        reader.wrong("P06", (*way, "fills"), "fills is `function.argument`, such as send_email.body.")
    if candidates is not None and fills is not None:
        reader.wrong(BAD_FORM, (*way, "fills"), "labels for candidates fill no argument.")
    schema = _schema(reader, said, way, meanings, labels=candidates is not None)
    if len(reader.problems) > before:
        return None
    return FormField(name, description or "", schema, meanings, candidates, fills)


def _choices(reader: FrontMatter, name: str, said: Mapping[str, Any], way: Sequence[str]) -> dict[str, str]:
    """The values of a choice, with what each means."""
    here = (*way, "enum")
    value = said.get("enum")
    if value is None:
        if "enum" in said:
            reader.wrong(BAD_FORM, here, "enum lists at least two choices.")
        return {}
    pairs: list[tuple[Any, Any]] | None = None
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = [(one, "") for one in value]
    fine = pairs is not None and all(
        isinstance(one, str) and one and isinstance(meaning, str | None) for one, meaning in pairs
    )
    if pairs is None or not fine:
        message = "enum is a list of texts, or texts with what each means: {fault: something is broken, …}."
        reader.wrong(BAD_FORM, here, message)
        return {}
    if len({one for one, _ in pairs}) < max(2, len(pairs)):
        reader.wrong(BAD_FORM, here, "enum lists at least two choices, each once.")
    if said.get("type", "string") != "string":
        reader.wrong(BAD_FORM, (*way, "type"), f"field '{name}' is a choice; its type is 'string'.")
    return {one: " ".join((meaning or "").split()) for one, meaning in pairs}


def _candidates(
    reader: FrontMatter, name: str, said: Mapping[str, Any], way: Sequence[str]
) -> Candidates | None:
    """What finds the candidates of a field."""
    here = (*way, "candidates")
    value = said.get("candidates")
    if value is None:
        if "candidates" in said:
            reader.wrong(BAD_FORM, here, "candidates is a registered function, or {pattern, in}.")
        return None
    if "enum" not in said:
        reader.wrong(BAD_FORM, here, f"field '{name}' labels candidates: say with 'enum' as what.")
    if said.get("optional"):
        reader.wrong(
            BAD_FORM, (*way, "optional"), "every candidate gets a label; add a choice such as other."
        )
    if isinstance(value, str) and value.strip():
        return Candidates(function=value.strip())
    if not isinstance(value, dict):
        reader.wrong(BAD_FORM, here, "candidates is a registered function, or {pattern, in}.")
        return None
    reader.unknown(value, ("pattern", "in"), here)
    pattern, within = value.get("pattern"), value.get("in")
    if not isinstance(pattern, str) or not isinstance(within, str) or not pattern or not within:
        message = "candidates by pattern say the pattern and with 'in' the key of the data it looks through."
        reader.wrong(BAD_FORM, here, message)
        return None
    try:
        expression = compiled(pattern)
    except InvalidPattern as error:
        reader.wrong(BAD_FORM, (*here, "pattern"), f"this is no regular expression: {error}.")
        return None
    if expression.fullmatch(""):
        reader.wrong(BAD_FORM, (*here, "pattern"), "the pattern finds nothing at all everywhere.")
        return None
    return Candidates(pattern=pattern, within=within)


def _schema(
    reader: FrontMatter,
    said: Mapping[str, Any],
    way: Sequence[str],
    meanings: Mapping[str, str],
    *,
    labels: bool,
) -> dict[str, Any]:
    """JSON Schema of the field's value, or of one label."""
    kind = said.get("type", "string")
    if kind not in TYPES:
        hint = nearest(kind, TYPES) if isinstance(kind, str) else ""
        reader.wrong(BAD_FORM, (*way, "type"), f"type is one of {', '.join(TYPES)}.{hint}")
        return {}
    optional = said.get("optional", False)
    if not isinstance(optional, bool):
        reader.wrong("P06", (*way, "optional"), "optional is true or false.")
    schema: dict[str, Any] = {"type": [kind, "null"] if optional and not labels else kind}
    if meanings:
        schema["enum"] = [*meanings, *([None] if optional and not labels else [])]
    for bound, of in BOUNDS.items():
        if bound not in said:
            continue
        value = said[bound]
        fits = kind == of or (of == "number" and kind == "integer")
        whole = of == "number" or (type(value) is int and value >= 0)
        if not fits or meanings:
            reader.wrong(BAD_FORM, (*way, bound), f"{bound} is for a {of}.")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not whole:
            reader.wrong("P06", (*way, bound), f"{bound} is a number.")
        else:
            schema[bound] = value
    for low, high in (("minLength", "maxLength"), ("minimum", "maximum")):
        if low in schema and high in schema and schema[low] > schema[high]:
            reader.wrong(BAD_FORM, (*way, high), f"{high} is below {low}: no value fits.")
    return schema


def read_examples(reader: FrontMatter, form: Sequence[FormField]) -> tuple[WorkedExample, ...]:
    """The worked examples; each answer must fit the form."""
    found: list[WorkedExample] = []
    whole = isinstance(reader.said.get("form"), dict) and len(form) == len(reader.said["form"])
    if reader.said.get("examples") is not None and "form" not in reader.said:
        reader.wrong(BAD_FORM, ("examples",), "examples show a form filled in, and there is no form.")
    for index, item in enumerate(reader.items(("examples",))):
        way = ("examples", index)
        if not isinstance(item, dict) or not all(
            isinstance(item.get(key), dict) for key in ("given", "answer")
        ):
            reader.wrong(
                BAD_FORM, way, "an example has `given`, values of the needs, and `answer`, the form."
            )
            continue
        reader.unknown(item, ("given", "answer", "note"), way)
        given, answer = item["given"], item["answer"]
        labelled = [field.name for field in form if field.candidates is not None]
        texts = {
            name: [{"text": text, "near": ""} for text in answer[name]]
            for name in labelled
            if isinstance(answer.get(name), dict)
        }
        if not whole:
            continue  # what the form is has to be clear first
        for problem in forms.facts_of(form, answer, texts)[1]:
            reader.wrong(BAD_FORM, (*way, "answer"), f"the answer does not fit the form: {problem}.")
        known = (*reader.keys_said("needs"), *labelled)
        for key in given:
            if key not in known:
                message = f"'{key}' is none of the step's needs.{nearest(key, known)}"
                reader.wrong(BAD_FORM, (*way, "given", key), message)
        found.append(WorkedExample(given, answer, reader.text((*way, "note"), item) or ""))
    return tuple(found)
