"""Models of file formats, declared once: typed fields, used to read files and to build their JSON Schema.

A model is a dataclass. Its fields marked `Written` are keys of the file; the reader sets the others. pydantic
checks the types and writes the schema. It is imported, and the checking model built, when the first file is
read, so that declaring a model costs nothing at start-up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from detent.authoring.document import Document, below
from detent.authoring.names import Nearest
from detent.authoring.problem import Place, Problem, either

_OF_A_TYPE = ("_type", "_parsing", "is_instance_of", "int_from_float")
"""Suffixes of pydantic's codes for a value of the wrong type; other codes concern its size or pattern."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """In an annotated type: the text matches a regular expression somewhere."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "pattern": self.pattern}


@dataclasses.dataclass(frozen=True, slots=True)
class AtLeast:
    """In an annotated type: the smallest number."""

    least: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "ge": self.least}


@dataclasses.dataclass(frozen=True, slots=True)
class Above:
    """In an annotated type: the number is greater."""

    bound: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "gt": self.bound}


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """In the annotation of a dataclass field: the field is a key of the file.

    A key without a value is a key left out.
    """

    what: str
    """Completes the sentence "'key' is …"."""
    about: str
    """Description shown by editors."""
    type: Any = None
    """The type in the file, if it differs from the type of the field."""
    required: bool = False
    otherwise: str = ""
    """The message about a text that does not match its pattern."""
    code: str = ""
    """Code of a wrong value, if it differs from the code of the format."""
    schema: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Additions to the JSON Schema that pydantic does not check."""


def keys_of(model: Any) -> tuple[str, ...]:
    """Return the keys a file may have, in the order of the model."""
    return tuple(_fields(model))


@cache
def _fields(model: Any) -> dict[str, tuple[Any, Written]]:
    """The fields that are keys of the file: the type in the file, and the description."""
    fields: dict[str, tuple[Any, Written]] = {}
    for name, hint in get_type_hints(model, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        facts = next((mark for mark in marks if isinstance(mark, Written)), None)
        if facts is not None:
            constraints = tuple(mark for mark in marks if mark is not facts)
            kind = facts.type or hint.__origin__
            fields[name] = (Annotated[(kind, *constraints)] if constraints else kind, facts)
    return fields


@cache
def _checked(model: Any) -> Any:
    """The pydantic model that checks a mapping of the file."""
    import pydantic

    fields: dict[str, Any] = {}
    for name, (kind, facts) in _fields(model).items():
        default = ... if facts.required else None
        about = pydantic.Field(default, description=facts.about)
        fields[name] = (kind if facts.required else kind | None, about)
    config = pydantic.ConfigDict(extra="forbid", strict=True)
    return pydantic.create_model(model.__name__, __config__=config, __doc__=model.__doc__, **fields)


def json_schema(model: Any) -> dict[str, Any]:
    """Return the JSON Schema of a model."""
    schema: dict[str, Any] = _checked(model).model_json_schema()
    del schema["title"]
    for name, (_, facts) in _fields(model).items():
        part = schema["properties"][name]
        part.pop("title", None)
        part.pop("default", None)
        if "$ref" in facts.schema and not facts.required:
            part["anyOf"] = [facts.schema, {"type": "null"}]
        else:
            part |= facts.schema
    return schema


class ModelReader:
    """Reads the mappings of one document into the fields of models, and collects their problems."""

    at_keys = False
    """Whether problems are placed at the key of a value, not at the value."""

    def __init__(
        self, document: Document, code: str, unknown: str | None = None, missing: str | None = None
    ) -> None:
        self.document = document
        self.code = code
        """Code of a value that does not fit its model."""
        self.unknown = unknown or code
        """Code of a key that the model does not have."""
        self.missing = missing or code
        """Code of a required key without a value."""
        self.problems: list[Problem] = []
        self.nearest = Nearest()

    def wrong(
        self,
        code: str,
        path: str,
        message: str,
        suggestions: tuple[str, ...] = (),
        place: Place | None = None,
    ) -> None:
        """Note a problem."""
        if place is None:
            place = self.document.mark(path) if self.at_keys else self.document.place(path)
        self.problems.append(Problem(code, message, Place(*place), path, suggestions))

    def fields(
        self, model: Any, value: Mapping[str, Any], path: str, of: str, beside: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the usable fields of a mapping, by name; all others are problems.

        The usable items of a list are kept.
        `of` names the mapping in messages; the keys in `beside` are read by the caller.
        """
        import pydantic

        facts = _fields(model)
        given = {key: item for key, item in value.items() if key not in beside}
        left_out = {key for key, item in given.items() if item is None and key in facts}
        bad: dict[str, set[Any]] = {key: set() for key in left_out}
        try:
            _checked(model).model_validate({key: given[key] for key in given if key not in left_out})
        except pydantic.ValidationError as error:
            for key, inside, kinds in _by_place(error, given):
                bad.setdefault(key, set()).add(inside[0] if inside else None)
                self._problem(facts, given, key, inside, kinds, path, of, beside)
        usable = {key: item for key, item in given.items() if key in facts and key not in bad}
        for key, parts in bad.items():
            items = given.get(key) if parts and None not in parts else None
            kept = [item for index, item in enumerate(items or ()) if index not in parts]
            if isinstance(items, list) and kept:
                usable[key] = kept
        return usable

    def item(
        self, model: Any, value: Any, path: str, of: str, short: str | None = None
    ) -> dict[str, Any] | None:
        """Return the usable fields of an item of a list; None if it is of no use.

        A text is short for a mapping with the key `short` alone.
        """
        if isinstance(value, Mapping):
            return self.fields(model, value, path, of)
        if isinstance(value, str) and short is not None:
            return {short: value}
        what = "a mapping" if short is None else "text or a mapping"
        hint = "" if short is None else self.quoted(value, path)
        self.wrong(self.code, path, f"{of} must be {what}, but this is {kind_of(value)}.{hint}")
        return None

    def quoted(self, value: Any, path: str) -> str:
        """The hint to put a number in quotes, as a text is expected."""
        bare = self.document.bare(path) if type(value) in (int, float) else None
        return "" if bare is None else f' Write it as "{bare}".'

    def _problem(
        self,
        facts: Mapping[str, tuple[Any, Written]],
        given: Mapping[str, Any],
        key: str,
        inside: tuple[str | int, ...],
        kinds: list[str],
        path: str,
        of: str,
        beside: tuple[str, ...],
    ) -> None:
        key_path = below(path, key)
        if key not in facts:
            known = (*facts, *beside)
            meant = self.nearest.of(key, known)
            names = "" if meant else f" Known here: {', '.join(known)}."
            message = f"'{key[:60]}' is not a key of {of}.{names}"
            self.wrong(self.unknown, key_path, message, meant, self.document.key_place(key_path))
            return
        kind, words = facts[key]
        expected = words.what
        if given.get(key) is None:
            self.wrong(self.missing, key_path, f"{of} needs '{key}': {expected}.")
            return
        bad, code = given[key], words.code or self.code
        for part in inside:
            bad, key_path = bad[part], below(key_path, part)
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        if choices:
            self.wrong(code, key_path, f"'{key}' must be {either(choices)}.", self.nearest.of(bad, choices))
        elif isinstance(bad, str) and not bad.strip():
            self.wrong(code, key_path, f"'{key}' must be {expected}, but the text is empty.")
        elif all(kind.endswith(_OF_A_TYPE) for kind in kinds):
            hint = self.quoted(bad, key_path) if "string_type" in kinds else ""
            if "list_type" in kinds and isinstance(bad, str) and len(bad) <= 60:
                hint = f" Write it as [{bad}]."
            self.wrong(code, key_path, f"'{key}' must be {expected}, but this is {kind_of(bad)}.{hint}")
        else:
            self.wrong(code, key_path, words.otherwise or f"'{key}' must be {expected}.")


def _by_place(error: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str | int, ...], list[str]]]:
    """pydantic's errors by key and path inside its value; of the alternatives of a union, the deepest one."""
    by_place: dict[tuple[Any, ...], list[str]] = {}
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        value: Any = given
        location: list[str | int] = []
        for part in detail["loc"]:
            inside = isinstance(value, Mapping) and part in value
            if location and not isinstance(part, int) and not inside:
                continue  # names the alternative of a union
            location.append(part)
            value = value.get(part) if isinstance(value, Mapping) else value[part]
        by_place.setdefault(tuple(location), []).append(detail["type"])
    for place, kinds in by_place.items():
        if not any(other != place and other[: len(place)] == place for other in by_place):
            yield place[0], place[1:], kinds


def kind_of(value: Any) -> str:
    """Return the kind of a wrong value, without the value."""
    kinds = ((bool, "a boolean"), (int, "a number"), (float, "a number"), (str, "text"),
             (list, "a list"), (dict, "a mapping"))  # fmt: skip
    return next((name for kind, name in kinds if isinstance(value, kind)), "nothing")
