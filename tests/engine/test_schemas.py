"""Schemas of types and calls, reading values into declared types, and telling what is wrong."""

import enum
import functools
import math
import subprocess
import sys
import typing
import warnings
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict
from uuid import UUID

import jsonschema
import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from detent.engine import schemas
from detent.engine.schemas import (
    MOST_TOLD,
    check_schema,
    hints_of,
    misfits,
    read,
    returns_of,
    schema_of,
    schema_of_call,
    strictly,
)
from detent.kernel.errors import ConfigurationError
from detent.kernel.view import view
from tests.examples import examples


class Cover(enum.Enum):
    FULL = "full"
    NONE = "none"


class Line(TypedDict):
    """One line of a ticket."""

    sku: str
    count: int
    note: NotRequired[str]


class Address(TypedDict, total=False):
    street: Required[str]
    zip: str


class Tree(TypedDict):
    name: str
    children: "list[Tree]"


@dataclass
class Person:
    name: str
    address: Address | None = None


@dataclass(frozen=True)
class Ticket:
    serial: str
    cover: Cover
    until: date
    opened: datetime
    attachment: Path
    price: float
    lines: list[Line] = field(default_factory=list)
    owner: Person | None = None
    kind: Literal["repair", "swap"] = "repair"

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError(f"SENTINEL {self.price}")


@dataclass
class Plain:
    serial: str
    amount: float
    near: Optional["Plain"] = None


class Model(pydantic.BaseModel):
    serial: Annotated[str, pydantic.Field(min_length=2, pattern="^[A-Z]+$")]
    count: Annotated[int, pydantic.Field(gt=0, le=10, multiple_of=2)] = 2


class Closed(pydantic.BaseModel, extra="forbid"):
    a: int


class NewStyle(typing_extensions.TypedDict):
    line: Line
    person: Person


TICKET = {
    "serial": "AB",
    "cover": "full",
    "until": "2025-01-31",
    "opened": "2024-01-31T10:00:00Z",
    "attachment": "mail/1.eml",
    "price": 12,
    "lines": [{"sku": "x", "count": 1}, {"sku": "y", "count": 2, "note": "fragile"}],
    "owner": {"name": "Ada", "address": {"street": "Main"}},
}


# -- reading ------------------------------------------------------------------------------------------------


def test_a_plain_value_is_read_into_the_declared_types():
    """D-03: expressions read an agent's output as they read the handler's."""
    ticket, problems = read(TICKET, Ticket)
    assert problems == []
    assert ticket == Ticket(
        "AB", Cover.FULL, date(2025, 1, 31), datetime(2024, 1, 31, 10, tzinfo=UTC), Path("mail/1.eml"), 12.0,
        [{"sku": "x", "count": 1}, {"sku": "y", "count": 2, "note": "fragile"}],
        Person("Ada", {"street": "Main"}), "repair",
    )  # fmt: skip
    assert type(ticket) is Ticket
    assert type(ticket.owner) is Person
    assert type(ticket.price) is float


@pytest.mark.parametrize(
    ("value", "what", "expected"),
    [
        ("full", Cover, Cover.FULL),
        ("swap", Literal["repair", "swap"], "swap"),
        (None, Optional[int], None),  # noqa: UP045
        (3, int | None, 3),
        (3, int | str, 3),
        ("3", int | str, "3"),
        (3, float, 3.0),
        ("a/b", Path, Path("a/b")),
        ("2024-01-31", date, date(2024, 1, 31)),
        ("1.50", Decimal, Decimal("1.50")),
        ("00000000-0000-0000-0000-000000000001", UUID, UUID(int=1)),
        (["b", "a", "a"], set[str], {"a", "b"}),
        ([1, "x"], tuple[int, str], (1, "x")),
        ({"a": {"sku": "x", "count": 1}}, dict[str, Line], {"a": {"sku": "x", "count": 1}}),
        ([{"sku": "x", "count": 1}], typing.List[Line], [{"sku": "x", "count": 1}]),  # noqa: UP006
        ([{"street": "x"}], deque[Address], deque([{"street": "x"}])),
        ({"name": "a"}, Person, Person("a")),
        ({"name": "a"}, Person | Line, Person("a")),
        ({"name": "a"}, Annotated[Person, "about a person"], Person("a")),
        ({"street": "x"}, Address, {"street": "x"}),
        ({"name": "a", "children": [{"name": "b", "children": []}]}, Tree,
         {"name": "a", "children": [{"name": "b", "children": []}]}),
        ({"line": {"sku": "x", "count": 1}, "person": {"name": "a"}}, NewStyle,
         {"line": {"sku": "x", "count": 1}, "person": Person("a")}),
        ({"serial": "a", "amount": 1, "near": {"serial": "b", "amount": 2}}, Plain,
         Plain("a", 1.0, Plain("b", 2.0))),
        ({"serial": "AB"}, Model, Model(serial="AB")),
        ({"any": [1, None]}, Any, {"any": [1, None]}),
        ({"a": 1}, {"type": "object"}, {"a": 1}),
    ],
)  # fmt: skip
def test_each_kind_of_type_is_read(value, what, expected):
    got, problems = read(value, what)
    assert problems == []
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("value", "what", "place"),
    [
        ("3", int, "/"),
        ("3.5", float, "/"),
        (3, str, "/"),
        (1, bool, "/"),
        ("true", bool, "/"),
        (1.5, int, "/"),
        (True, int, "/"),
        ("FULL", Cover, "/"),
        ("other", Literal["repair", "swap"], "/"),
        ("yesterday", date, "/"),
        ({"sku": "x", "count": "1"}, Line, "/count"),
        ({"zip": "1"}, Address, "/"),
        ([{"sku": "x", "count": 1}, {"sku": "x"}], list[Line], "/1"),
        ({"name": "a", "address": {"street": 3}}, Person, "/address/street"),
        ({"name": "a", "children": [{"name": "b", "children": [{"name": 3, "children": []}]}]}, Tree,
         "/children/0/children/0/name"),
        ({"a/b": {"~": "x"}}, dict[str, dict[str, int]], "/a~1b/~0"),
        ({"a": 1, "b": 2}, Closed, "/"),
        (math.nan, float, "/"),
        ({"a": object()}, dict[str, Any], "/"),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_type_is_named_by_its_place(value, what, place):
    got, problems = read(value, what)
    assert got is None
    assert [line.partition(": ")[0] for line in problems] == [place]


def test_keys_nobody_asked_for_are_no_problem_under_a_class():
    """D-23: they are soft; a JSON Schema says for itself."""
    value = {"sku": "x", "count": 1, "colour": "red"}
    assert misfits(value, Line) == []
    assert misfits({"name": "a", "age": 3}, Person) == []
    assert misfits({**TICKET, "more": 1}, Ticket) == []
    assert misfits(value, {"type": "object", "properties": {"sku": {}}}) == []
    assert misfits(value, strictly(schema_of(Line))) == [
        "/: has unexpected keys (expected: sku, count, note)"
    ]


def test_what_several_alternatives_expect_is_one_line():
    assert misfits({"x": "no"}, dict[str, int | None]) == ["/x: must be a valid integer"]
    [line] = misfits({"x": "no"}, dict[str, int | float | bool])
    assert line == "/x: must be a valid integer or a valid number or a valid boolean"
    schema = {"properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}
    assert misfits({"x": "no"}, schema) == ["/x: must be an integer or null"]


def test_what_several_rules_expect_is_a_line_each():
    assert misfits("x", {"type": "integer", "enum": [1]}) == ["/: must be an integer", "/: must be one of 1"]


def test_a_missing_key_is_told_by_name():
    assert misfits({"sku": "x"}, Line) == ["/: missing: count"]
    assert misfits({}, schema_of(Line)) == ["/: missing: sku, count"]
    assert misfits({"a": {}}, dict[str, Line]) == ["/a: missing: sku", "/a: missing: count"]


def test_a_view_of_a_runs_data_is_read_as_the_data():
    assert misfits(view({"sku": "x", "count": 1}), schema_of(Line)) == []
    assert read(view({"sku": "x", "count": 1}), Line) == ({"sku": "x", "count": 1}, [])


# -- TypedDicts of typing -----------------------------------------------------------------------------------


def test_a_typed_dict_keeps_its_optional_keys_its_words_and_its_name():
    schema = schema_of(list[Line])
    assert schema["items"] == {"$ref": "#/$defs/Line"}
    line = schema["$defs"]["Line"]
    assert line["required"] == ["sku", "count"]
    assert line["description"] == "One line of a ticket."
    assert schema_of(Address)["required"] == ["street"]


def test_a_typed_dict_written_under_postponed_annotations_keeps_its_optional_keys(tmp_path, monkeypatch):
    """There, `__required_keys__` alone does not tell."""
    (tmp_path / "late_types.py").write_text(
        "from __future__ import annotations\n"
        "from typing import NotRequired, TypedDict\n"
        "class Late(TypedDict):\n"
        "    a: int\n"
        "    b: NotRequired[Late]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import late_types  # type: ignore[import-not-found]

    assert read({"a": 1, "b": {"a": 2}}, late_types.Late) == ({"a": 1, "b": {"a": 2}}, [])
    assert misfits({"a": 1, "b": {}}, late_types.Late) == ["/b: missing: a"]


def test_a_dataclass_that_holds_typed_dicts_keeps_its_own_rules():
    assert misfits({**TICKET, "price": -1}, Ticket) == ["/: breaks value error"]
    required = schema_of(Ticket)["required"]
    assert required == ["serial", "cover", "until", "opened", "attachment", "price"]


def test_a_type_that_holds_none_is_left_alone():
    from detent.engine.typed_dicts import readable

    for what in (Plain, Model, int, list[Plain], Literal["a"], Annotated[int, {"un": "hashable"}], None):
        assert readable(what) is what


def test_nothing_of_the_users_is_changed():
    before = (dict(Line.__annotations__), dict(Ticket.__annotations__), Line.__required_keys__)
    read(TICKET, Ticket)
    assert (dict(Line.__annotations__), dict(Ticket.__annotations__), Line.__required_keys__) == before


# -- messages -----------------------------------------------------------------------------------------------

SENTINEL = "S3NT1NEL"


def fussy(value: str) -> str:
    raise PydanticCustomError("fussy_rule", "not {value}", {"value": value})


def asserting(value: str) -> str:
    raise AssertionError(f"not {value}")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


BROKEN_TYPES: list[Any] = [
    int, float, bool, None,
    list[str], dict[str, int], set[int], tuple[int, int], date, datetime, UUID, Decimal,
    Cover, Literal["a", "b"], int | bool, Line, Person, Ticket, Model, Closed,
    pydantic.HttpUrl, pydantic.Json, pydantic.IPvAnyAddress, pydantic.PastDate, pydantic.Base64Bytes,
    typing.Pattern, bytes | None, list[Line] | Line,
    Annotated[str, pydantic.Field(max_length=3)], Annotated[str, pydantic.Field(min_length=99)],
    Annotated[str, pydantic.Field(pattern="^x$")],
    Annotated[str, pydantic.AfterValidator(fussy)], Annotated[str, pydantic.AfterValidator(asserting)],
    Annotated[str, pydantic.AfterValidator(int)],
    Annotated[Cat | Dog, pydantic.Field(discriminator="kind")],
]  # fmt: skip
BROKEN_SCHEMAS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": ["integer", "null"]},
    {"enum": ["a", "b"]},
    {"const": "a"},
    {"pattern": "^x$"},
    {"maxLength": 3},
    {"minLength": 99},
    {"not": {"type": "string"}},
    {"anyOf": [{"type": "integer"}, {"enum": [1]}]},
    {"oneOf": [{"type": "string"}, {"minLength": 1}]},
    {"allOf": [{"maxLength": 1}]},
    {"if": {"type": "string"}, "then": {"const": "x"}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
    {"type": "string", "maxLength": 1, "pattern": "x", "const": ""},
    False,  # type: ignore[list-item]
]
BROKEN_OBJECTS: list[dict[str, Any]] = [
    {"required": ["b", "c"]},
    {"additionalProperties": False},
    {"properties": {"b": {}}, "unevaluatedProperties": False},
    {"propertyNames": {"maxLength": 3}},
    {"propertyNames": {"pattern": "^x"}},
    {"propertyNames": {"enum": ["x"]}},
    {"maxProperties": 0},
    {"minProperties": 5},
    {"dependentRequired": {SENTINEL: ["b"]}},
    {"dependentSchemas": {SENTINEL: {"required": ["b"]}}},
    {"patternProperties": {"^S": False}},
]
BROKEN_LISTS: list[dict[str, Any]] = [
    {"items": {"type": "integer"}},
    {"prefixItems": [{"type": "integer"}]},
    {"maxItems": 0},
    {"minItems": 9},
    {"uniqueItems": True},
    {"contains": {"type": "integer"}},
    {"items": False},
    {"unevaluatedItems": False},
]


@pytest.mark.parametrize("what", BROKEN_TYPES)
def test_no_message_about_a_type_tells_what_was_there(what):
    """D-51"""
    problems = misfits(SENTINEL, what)
    problems += misfits([{"deep": SENTINEL}], list[dict[str, what]])
    problems += misfits({"kind": SENTINEL}, what)
    assert problems
    assert SENTINEL not in str(problems)
    assert all(line.startswith("/") for line in problems)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        *((SENTINEL, schema) for schema in BROKEN_SCHEMAS),
        *(({SENTINEL: SENTINEL}, schema) for schema in BROKEN_OBJECTS),
        *(([SENTINEL, SENTINEL], schema) for schema in BROKEN_LISTS),
    ],
)
def test_no_message_about_a_schema_tells_what_was_there(value, schema):
    """D-51: a pointer may name a key, nothing names a value."""
    nested = {"type": "object", "properties": {"deep": schema}}
    if isinstance(schema, dict) and "$defs" in schema:
        nested["$defs"] = schema["$defs"]
    problems = misfits({"deep": value}, nested)
    assert problems
    told = [line.removeprefix(f"/deep/{SENTINEL}") for line in problems]
    assert SENTINEL not in str(told)
    assert all(line.startswith("/deep" if schema is not False else "/") for line in problems)


def test_an_invalid_date_does_not_quote_itself():
    for text in ("2024-13-01", "SENTINEL", "2024-01-01 SENTINEL"):
        assert misfits(text, date) == misfits("no", date)
        assert "valid date" in misfits(text, date)[0]


@pytest.mark.parametrize("what", [list[int], {"items": {"type": "integer"}}])
def test_only_so_many_problems_are_told(what):
    problems = misfits(["x"] * 99, what)
    assert len(problems) == MOST_TOLD == 20
    assert [line.partition(":")[0] for line in problems] == [f"/{index}" for index in range(20)]


def test_only_so_many_choices_are_told():
    [line] = misfits("x", {"enum": list(range(50))})
    assert line.endswith("18, 19 and 30 more")


def test_an_alternative_that_nearly_fits_is_told():
    schema = {
        "anyOf": [
            {"properties": {"tool": {"const": "mail"}, "to": {"type": "string"}}, "required": ["tool", "to"]},
            {"type": "null"},
        ]
    }
    [line] = misfits({"tool": "mail", "to": 3}, schema)
    assert line == "/: fits no alternative (nearest: /to: must be a string)"
    [line] = misfits(3, {"oneOf": [{"type": "integer"}, {"type": "number"}]})
    assert line == "/: fits more than one alternative"


def test_problems_come_in_the_order_of_the_value_s_places():
    schema = {"properties": {"b": {"type": "integer"}, "a": {"items": {"type": "integer"}}}}
    problems = misfits({"b": "x", "a": [1, "x", *[1] * 8, "x"]}, schema)
    assert [line.partition(":")[0] for line in problems] == ["/a/1", "/a/10", "/b"]


# -- schemas themselves -------------------------------------------------------------------------------------


def test_a_schema_is_its_own_schema():
    schema = {"type": "string"}
    assert schema_of(schema) is schema


def test_titles_pydantic_adds_are_left_out_and_titles_people_mean_are_kept():
    @dataclass
    class Book:
        title: str
        years: dict[str, int] = field(default_factory=dict)

    class Shelf(pydantic.BaseModel):
        books: list[Book]
        first: dict[str, str] = {"title": "kept"}
        config: Annotated[dict[str, str], pydantic.Field(examples=[{"title": "kept"}])] = {}

    schema = schema_of(Shelf)
    assert "title" not in schema
    assert "title" in schema["$defs"]["Book"]["properties"]
    assert "title" not in schema["$defs"]["Book"]["properties"]["title"]
    assert schema["properties"]["first"]["default"] == {"title": "kept"}
    assert schema["properties"]["config"]["examples"] == [{"title": "kept"}]


def test_the_schema_of_a_type_fits_the_values_it_reads():
    schema = schema_of(Ticket)
    check_schema(schema)
    assert misfits(TICKET, schema) == []
    assert misfits({**TICKET, "cover": "half"}, schema) == ["/cover: must be one of full, none"]


class Unknown:
    """Pydantic has no idea."""


@dataclass
class Lost:
    inner: "NoSuchName"  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("what", [Unknown, list[Unknown], Lost, typing.Callable[[], int]])
def test_a_type_that_cannot_be_a_contract_is_a_mistake_of_configuration(what):
    with pytest.raises(ConfigurationError, match="cannot serve as a contract"):
        schema_of(what)


def test_an_unresolved_name_in_a_contract_is_told():
    with pytest.raises(ConfigurationError, match="Lost cannot serve as a contract: name 'NoSuchName'"):
        read({}, Lost)


def test_a_contract_need_not_be_hashable():
    what = Annotated[int, {"un": "hashable"}]
    assert schema_of(what)["type"] == "integer"
    assert read(3, what) == (3, [])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "text"}, "(at /type)"),
        ({"properties": {"a": {"type": 3}}}, "(at /properties/a/type)"),
        ({"required": "a"}, "(at /required)"),
        ({"minLength": -1}, "(at /minLength)"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "refers to '#/$defs/b'"),
        ({"$ref": "https://example.invalid/schema.json"}, "refers to 'https://example.invalid/schema.json'"),
        ({"default": math.nan}, "This is no JSON Schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": 3}, "(at /items)"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema, message):
    with pytest.raises(ConfigurationError) as refused:
        check_schema(schema)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"$ref": {"type": "string"}, "a": {"$ref": "#/properties/$ref"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]},
        {"examples": [{"$ref": "no reference, a value"}]},
        MappingProxyType({"properties": MappingProxyType({"a": MappingProxyType({"type": "string"})})}),
    ],
)
def test_a_schema_that_is_one_is_taken(schema):
    check_schema(schema)
    assert misfits({}, schema) == []


def test_a_schema_says_which_draft_it_is_written_in():
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert misfits(["x"], old) == ["/0: must be an integer"]


def test_a_reference_to_an_address_is_never_fetched():
    """I9: what a schema from outside names is not followed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigurationError, match="refers to 'http://127.0.0.1:9/x.json'"):
            misfits({}, {"$ref": "http://127.0.0.1:9/x.json"})


def test_two_schemas_never_share_a_validator():
    for number in range(schemas._MOST_VALIDATORS + 50):
        assert misfits(number, {"const": number}) == []
        assert misfits(number, {"const": -1}) != []
    assert len(schemas._validators) <= schemas._MOST_VALIDATORS


# -- strictly -----------------------------------------------------------------------------------------------


def test_strictly_closes_every_object_that_names_its_properties():
    schema = {
        "properties": {
            "properties": {"type": "object", "properties": {"a": {}}},
            "open": {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
            "free": {"type": "object"},
            "list": {"items": {"anyOf": [{"properties": {}}, {"type": "null"}]}},
            "ref": {"$ref": "#/$defs/part"},
        },
        "default": {"properties": {"a": 1}},
        "$defs": {"part": {"properties": {"b": {"$ref": "#/$defs/part"}}}},
    }
    before = repr(schema)
    strict = strictly(schema)
    assert strict["additionalProperties"] is False
    assert strict["properties"]["properties"]["additionalProperties"] is False
    assert "additionalProperties" not in strict["properties"]
    assert strict["properties"]["open"]["additionalProperties"] == {"type": "integer"}
    assert "additionalProperties" not in strict["properties"]["free"]
    assert strict["properties"]["list"]["items"]["anyOf"][0]["additionalProperties"] is False
    assert strict["$defs"]["part"]["additionalProperties"] is False
    assert strict["default"] == {"properties": {"a": 1}}
    assert repr(schema) == before


def test_strictly_leaves_room_where_an_object_is_put_together_from_parts():
    schema = {
        "allOf": [{"$ref": "#/$defs/named"}, {"properties": {"age": {"properties": {"years": {}}}}}],
        "$defs": {"named": {"properties": {"name": {}}}, "alone": {"properties": {"x": {}}}},
    }
    strict = strictly(schema)
    assert misfits({"name": "a", "age": {"years": 3}}, strict) == []
    assert misfits({"name": "a", "age": {"months": 3}}, strict) != []
    assert strict["$defs"]["alone"]["additionalProperties"] is False
    beside = {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]}
    assert misfits({"a": 1, "b": 2}, strictly(beside)) == []
    when = {"properties": {"a": {}}, "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}
    assert misfits({"a": 1, "b": 2}, strictly(when)) == []


@pytest.mark.parametrize("what", [Ticket, Line, Person, Plain, Model, Tree, NewStyle])
def test_strictly_takes_what_the_type_takes_and_nothing_beside(what):
    strict = strictly(schema_of(what))
    check_schema(strict)
    assert strictly(strict) == strict
    assert any("unexpected keys" in line for line in misfits({SENTINEL: 1}, strict))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["sku", "count", "note", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(JSON)
def test_a_class_and_its_schema_agree(value):
    fits = not misfits(value, Line)
    assert fits is (not misfits(value, schema_of(Line))) or _whole_float(value)


def _whole_float(value: Any) -> bool:
    """JSON Schema takes 1.0 for an integer; a Python class does not."""
    return isinstance(value, dict) and isinstance(value.get("count"), float)


KEYS = st.sampled_from(["sku", "count", "note", "x"])
SCHEMAS = st.recursive(
    st.just({})
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])}
    )
    | st.fixed_dictionaries({"type": st.sampled_from(["string", "integer"]), "title": st.just("T")})
    | st.fixed_dictionaries({"enum": st.lists(st.sampled_from(["", "0", 0, 1, True, None]), min_size=1)})
    | st.fixed_dictionaries({"type": st.just("string"), "enum": st.just(["", "0"])})
    | st.fixed_dictionaries({"type": st.just("integer"), "minimum": st.just(0)}),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(KEYS, inner, max_size=3)},
            optional={
                "required": st.lists(KEYS, max_size=2, unique=True),
                "additionalProperties": st.booleans() | inner,
            },
        )
    ),
    max_leaves=4,
)


@settings(max_examples=examples(2000))
@given(JSON, SCHEMAS)
def test_a_value_fits_where_jsonschema_says_so(value, schema):
    """Values that fit common schemas are told without a validator; the verdict is the validator's."""
    assert (not misfits(value, schema)) is jsonschema.Draft202012Validator(schema).is_valid(value)


# -- calls --------------------------------------------------------------------------------------------------


def send(call: Any, to: str, lines: list[Line], *, copies: int = 1, cover: Cover = Cover.FULL) -> Line:
    """Nothing is sent."""
    raise NotImplementedError


def test_the_schema_of_a_call_names_its_arguments():
    schema = schema_of_call(send, skip=1)
    check_schema(schema)
    assert schema["required"] == ["to", "lines"]
    assert list(schema["properties"]) == ["to", "lines", "copies", "cover"]
    assert schema["additionalProperties"] is False
    assert misfits({"to": "a", "lines": [{"sku": "x", "count": 1}]}, schema) == []
    assert misfits({"to": "a", "lines": [{"sku": "x"}], "cc": 1}, schema) == [
        "/: has unexpected keys (expected: to, lines, copies, cover)",
        "/lines/0: missing: count",
    ]


def test_a_call_that_takes_anything_says_so():
    def loose(model_config: str, **more: Any) -> None: ...

    schema = schema_of_call(loose)
    assert misfits({"model_config": "x", "y": 1}, schema) == []
    assert misfits({"model_config": 1}, schema) == ["/model_config: must be a string"]
    assert schema_of_call(dict.fromkeys)["type"] == "object"


def test_a_default_json_cannot_hold_is_no_trouble():
    marker = object()

    def odd(a: int = 1, b: Any = marker) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(schema_of_call(odd)["properties"]) == ["a", "b"]


def test_an_argument_json_cannot_hold_is_a_mistake_of_configuration():
    def odd(a: Unknown) -> None: ...

    with pytest.raises(ConfigurationError, match="The arguments of .*odd have no JSON Schema"):
        schema_of_call(odd)


class Sender:
    def __call__(self, to: str) -> Person:
        raise NotImplementedError

    async def send(self, to: str, times: int = 1) -> list[Person]:
        raise NotImplementedError


def test_any_callable_tells_its_annotations():
    assert hints_of(Sender()) == {"to": str, "return": Person}
    assert hints_of(functools.partial(Sender().send, "a"))["times"] is int
    assert returns_of(Sender().send) == list[Person]
    assert returns_of(send) is Line
    assert list(schema_of_call(Sender().send)["properties"]) == ["to", "times"]


def test_one_bad_annotation_does_not_hide_the_others():
    def odd(a: "int", b: "NoSuchName") -> "str": ...  # type: ignore[name-defined, empty-body]  # noqa: F821

    assert hints_of(odd) == {"a": int, "return": str}


def test_a_function_that_says_nothing_useful_returns_nothing():
    def nothing(): ...
    def none() -> None: ...
    def anything() -> Any: ...

    assert returns_of(nothing) is returns_of(none) is returns_of(anything) is None


def test_schemas_bring_no_heavy_library_before_they_are_used():
    code = (
        "import sys; import detent.engine.schemas; "
        "print([name for name in ('pydantic', 'jsonschema', 'referencing') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- schemas and values that would keep a checker busy for ever ---------------------------------------------

RUNAWAY = [
    ({"type": "string", "pattern": "^(a|a)*$"}, "a" * 60 + "!"),
    ({"type": "string", "pattern": "^(a|aa)+$"}, "a" * 80 + "!"),
    ({"patternProperties": {"^(a|a)*$": {"type": "string"}}}, {"a" * 60 + "!": 1}),
    ({"patternProperties": {"^(a|a)*$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
    ({"patternProperties": {"^(a|a)*$": {}}, "unevaluatedProperties": False}, {"a" * 60 + "!": 1}),
    ({"propertyNames": {"pattern": "^(a|a)*$"}}, {"a" * 60 + "!": 1}),
    ({"items": {"anyOf": [{"pattern": "^(a|a)*$"}, {"type": "integer"}]}}, ["a" * 60 + "!"] * 1000),
    ({"not": {"pattern": "^(a|a)*$"}}, "a" * 60 + "!"),
]


@pytest.mark.parametrize(("schema", "value"), RUNAWAY)
def test_a_value_on_which_a_pattern_runs_away_does_not_fit(schema, value):
    """With a matcher that cannot be stopped, this test would not end."""
    check_schema(schema)
    (problem,) = misfits(value, schema)
    assert "took too long" in problem
    assert "aaaa" not in problem


def test_a_pattern_that_python_s_matcher_chokes_on_is_simply_matched():
    assert misfits("a" * 500 + "!", {"pattern": "^(a+)+$"}) == ["/: breaks pattern ^(a+)+$"]


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"pattern": "^(?!.*secret).+$"}, "nothing here", True),
        ({"pattern": r"^(\w)\1$"}, "żż", True),
        ({"pattern": r"^\p{Lu}"}, "Łódź", True),
        ({"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}, {"xa": "b"}, True),
        ({"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}, {"x-a": 1}, False),
        ({"patternProperties": {"^x-": True}, "additionalProperties": {"type": "null"}}, {"y": None}, True),
        ({"patternProperties": {"^x-": True}, "additionalProperties": {"type": "null"}}, {"y": 1}, False),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"a": 1}, True),
        ({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, {"b": 1}, False),
        ({"patternProperties": {"^x": {}}, "unevaluatedProperties": False}, {"xa": 1}, True),
        (
            {
                "$defs": {"base": {"properties": {"a": {}}}},
                "$ref": "#/$defs/base",
                "if": {"required": ["a"], "properties": {"a": {"const": 1}}},
                "then": {"properties": {"b": {}}},
                "else": {"properties": {"c": {}}},
                "unevaluatedProperties": {"type": "null"},
            },
            {"a": 1, "b": 2, "z": None},
            True,
        ),
        ({"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}],
          "unevaluatedProperties": False}, {"b": 1}, True),
        ({"uniqueItems": True}, [1, True, "1", None, [1], {"a": 1}, {"a": True}], True),
        ({"uniqueItems": True}, [1, 1.0], False),
        ({"uniqueItems": True}, [{"a": [1, 2]}, {"a": [1.0, 2]}], False),
        ({"multipleOf": 0.5}, 7.5, True),
        ({"multipleOf": 0.5}, 7.3, False),
        ({"multipleOf": 3}, 10**400, False),
        ({"multipleOf": 2.5}, 10**400, True),
        ({"multipleOf": 0.01}, 1e308, False),
    ],
)  # fmt: skip
def test_bounded_keywords_mean_what_json_schema_says(schema, value, fits):
    check_schema(schema)
    assert (misfits(value, schema) == []) is fits


def doubling(levels: int) -> dict[str, Any]:
    """Each level refers to the next twice: as many steps as two to the power of the levels."""
    defs: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(levels)
    }
    return {"$defs": {**defs, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def test_a_schema_whose_alternatives_multiply_is_given_up():
    check_schema(doubling(60))
    (problem,) = misfits(1, doubling(60))
    assert "takes too long to check" in problem


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_that_refers_to_itself_for_the_same_value_is_refused(schema):
    with pytest.raises(ConfigurationError, match="without end"):
        check_schema(schema)
    assert misfits({"x": 1}, schema) != []


def test_a_schema_may_refer_to_itself_for_what_is_inside():
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    check_schema(tree)
    assert misfits({"left": {"right": {}}}, tree) == []
    assert misfits({"left": {"right": 1}}, tree) == ["/left/right: must be an object"]


def test_a_value_deeper_than_python_can_walk_does_not_fit():
    deep: Any = {}
    for _ in range(100_000):
        deep = {"in": deep}
    (problem,) = misfits(deep, {"properties": {"in": {"$ref": "#"}}})
    assert "nested too deeply" in problem


def test_many_items_are_compared_without_comparing_each_with_each():
    """A hundred thousand mappings, each with each, would be five thousand million comparisons."""
    assert misfits([{"n": n} for n in range(100_000)], {"uniqueItems": True}) == []


@pytest.mark.parametrize(
    "pattern", ["(", "(?:a{65535}){65535}", "(?:(?:){9999}){99999}", "(" * 3000 + ")" * 3000]
)
@pytest.mark.parametrize("word", ["pattern", "patternProperties"])
def test_a_pattern_that_cannot_be_used_is_refused_with_its_schema(word, pattern):
    schema = {"pattern": pattern} if word == "pattern" else {"patternProperties": {pattern: True}}
    with pytest.raises(ConfigurationError, match="cannot be used"):
        check_schema(schema)
