"""Every kind of journal line can be written and read back."""

from dataclasses import MISSING, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.kernel.budget import Spend
from detent.kernel.entries import (
    KINDS,
    Body,
    Entry,
    Moved,
    Noted,
    body_from_plain,
    body_to_plain,
    from_plain,
    to_plain,
)
from detent.kernel.plain import decode, encode
from detent.kernel.status import Status

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLAIN = st.dictionaries(st.text(max_size=5), ANY, max_size=3)
TEXT = st.text(max_size=10)
BY_TYPE = {
    "str": TEXT,
    "str | None": st.none() | TEXT,
    "int": st.integers(0, 10**12),
    "float": FLOATS,
    "float | None": st.none() | FLOATS,
    "bool": st.booleans(),
    "Any": ANY,
    "Plain": PLAIN,
    "Mapping[str, Any]": PLAIN,
    "Sequence[Plain]": st.lists(PLAIN, max_size=3),
    "Plain | None": st.none() | PLAIN,
    "list[str]": st.lists(TEXT, max_size=3),
    "list[Plain]": st.lists(PLAIN, max_size=3),
    "Status": st.sampled_from(Status),
    "Status | None": st.none() | st.sampled_from(Status),
    "Spend": st.builds(Spend, st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0, 1e6)),
}


def layout(cls):
    """Name, type and default of every field, for dataclasses and named tuples alike."""
    if issubclass(cls, tuple):
        return [
            (
                name,
                getattr(cls.__annotations__[name], "__forward_arg__", cls.__annotations__[name]),
                cls._field_defaults.get(name, MISSING),
            )
            for name in cls._fields
        ]
    return [
        (
            field.name,
            str(field.type),
            field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field in fields(cls)
    ]


def bodies(cls: type[Body]) -> st.SearchStrategy:
    """Bodies of one kind, each optional field said or left out."""
    required: dict[str, st.SearchStrategy] = {}
    optional: dict[str, st.SearchStrategy] = {}
    for name, type_, default in layout(cls):
        (required if default is MISSING else optional)[name] = BY_TYPE[type_]
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: cls(**values))


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data(), seq=st.integers(1, 10**9), at=FLOATS, epoch=st.integers(0, 10**6))
def test_a_line_of_every_kind_survives_being_written_as_json_and_read(kind, data, seq, at, epoch):
    entry = Entry(seq, at, epoch, data.draw(bodies(KINDS[kind])))
    read = from_plain(decode(encode(to_plain(entry))))
    assert read == entry
    assert read.kind == kind
    assert type(read.body) is KINDS[kind]


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
def test_what_is_written_are_plain_values_and_nothing_that_goes_without_saying(kind, data):
    body = data.draw(bodies(KINDS[kind]))
    plain = body_to_plain(body)
    encode(plain)
    assert body_from_plain(kind, plain) == body
    assert body_to_plain(body_from_plain(kind, plain)) == plain
    for name, _, default in layout(type(body)):
        if name not in plain:
            assert getattr(body, name) == default


def test_a_bare_move_costs_only_what_it_says():
    assert body_to_plain(Moved("a", "b")) == {"frm": "a", "to": "b"}


def test_spend_and_status_are_written_as_plain_values():
    body = Moved("a", "b", spend=Spend(1, 2, 0.5), status=Status.FAILED)
    assert body_to_plain(body) == {
        "frm": "a",
        "to": "b",
        "spend": {"input_tokens": 1, "output_tokens": 2, "cost_usd": 0.5},
        "status": "failed",
    }


def test_a_kind_from_a_newer_version_is_refused():
    with pytest.raises(ValueError, match="teleported"):
        body_from_plain("teleported", {})


@pytest.mark.parametrize(
    "plain",
    [
        {"frm": "a", "to": "b", "colour": "red"},
        {"frm": "a"},
        {"frm": "a", "to": "b", "spend": {"shells": 3}},
        {"frm": "a", "to": "b", "status": "glorious"},
        {"frm": "a", "to": "b", "spend": {"input_tokens": -1}},
    ],
)
def test_a_line_that_cannot_be_understood_raises_value_error(plain):
    with pytest.raises(ValueError):
        body_from_plain("moved", plain)


def test_reading_a_line_leaves_what_was_read_alone():
    plain = {"seq": 1, "at": 2.0, "epoch": 3, "kind": "noted", "topic": "t", "spend": {"input_tokens": 1}}
    before = dict(plain)
    assert from_plain(plain) == Entry(1, 2.0, 3, Noted("t", spend=Spend(1)))
    assert plain == before


def test_bodies_cannot_be_changed():
    with pytest.raises(AttributeError):
        Moved("a", "b").to = "c"  # type: ignore[misc]


def test_no_body_has_a_field_that_the_line_itself_needs():
    for cls in KINDS.values():
        assert not {"seq", "at", "epoch", "kind"} & {name for name, _, _ in layout(cls)}
