"""What stands beneath a field is told to whoever fills it in."""

from dataclasses import dataclass
from typing import TypedDict

from pydantic import BaseModel, Field

from detent.engine.schemas import schema_of


@dataclass
class Base:
    place: str
    """Where it
    stands."""


@dataclass
class Letter(Base):
    about: str
    """What it is about."""
    pages: int = 1


class Model(BaseModel):
    told: str = Field(description="Said by the field itself.")
    """Said beneath."""
    other: int
    """The other one."""


class Form(TypedDict):
    name: str
    """The name."""


def said(what):
    return {name: part.get("description") for name, part in schema_of(what)["properties"].items()}


def test_the_words_beneath_a_field_describe_it_inherited_ones_included():
    assert said(Letter) == {"place": "Where it stands.", "about": "What it is about.", "pages": None}


def test_a_field_that_describes_itself_keeps_its_own_words():
    assert said(Model) == {"told": "Said by the field itself.", "other": "The other one."}


def test_typed_dicts_are_described_too():
    assert said(Form) == {"name": "The name."}


def test_a_class_without_source_has_no_words():
    made = dataclass(type("Made", (), {"__annotations__": {"x": int}}))
    assert said(made) == {"x": None}
