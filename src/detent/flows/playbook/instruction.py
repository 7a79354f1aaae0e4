"""One step file, read: what its front matter says, and the text below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.dispatch.autonomy import AutonomyLevel, StepMode

DONE = "DONE"
DEGRADED = "graceful-degradation"
FAILED = "FAILED"
ENDS = (DONE, DEGRADED, FAILED)
"""Where runs stop. Every step may be led to the last two by the engine and by handlers."""

_NUMBER = re.compile(r"\d+[a-z]?-(?=.)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Edge:
    """One step that may follow."""

    to: str
    """As written: an id, an alias, or an end."""
    when: Mapping[str, Any] | None = None
    """Condition on the data after the step; None always holds."""
    reason: str | None = None
    """Label told for the move."""


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """A function the step may use."""

    name: str
    description: str | None = None
    """What an agent is told about it; None takes the tool's own words."""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of the arguments an agent may give; None takes the tool's own."""
    into: Mapping[str, str] = field(default_factory=dict)
    """Keys of the data that take its answer, each with the dotted way into it ("" for the whole)."""
    required: bool = False
    """An agent that is offered it must call it before it answers."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where code finds what an agent is to label."""

    function: str | None = None
    """A registered function that finds them."""
    pattern: str | None = None
    """Or a regular expression."""
    within: str | None = None
    """The key of the data the expression looks through."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One fact that an agent states."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON Schema of its value or, where there are candidates, of the label each of them gets."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """Per choice, what it means."""
    candidates: Candidates | None = None
    fills: str | None = None
    """`function.argument` of the step's own effects that takes it; None makes it data."""


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A form filled in, shown to agents before the inputs at hand."""

    given: Mapping[str, Any]
    answer: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A query the declarative handler asks."""

    function: str
    args: Mapping[str, Any]
    into: str
    """Key of the data that takes the answer."""
    when: Mapping[str, Any] | None = None
    """Asked only while this holds."""
    otherwise: Any = None
    """Stored instead when it is not asked."""
    has_otherwise: bool = False
    place: str = field(default="", compare=False)
    """Where it stands in the front matter, for messages."""


@dataclass(frozen=True, slots=True)
class EffectDeclaration:
    """An effect the declarative handler proposes."""

    function: str
    args: Mapping[str, Any] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    """Arguments that are filled from a template, by the template's name."""
    into: Mapping[str, str] = field(default_factory=dict)
    """Keys of the data that take its receipt, each with the dotted way into it ("" for the whole)."""
    when: Mapping[str, Any] | None = None
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Variant:
    """A template's variant and when it is used."""

    name: str
    when: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """A step file: every key of its front matter, and its body."""

    name: str
    """As written: the stem of the file, or `step-` and the stem."""
    description: str
    version: str
    next: tuple[Edge, ...] = ()
    aliases: tuple[str, ...] = ()
    """Further names, as written; see `names` for all of them."""
    available_functions: tuple[FunctionDeclaration, ...] = ()
    needs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    handler: str | None = None
    call: tuple[Call, ...] = ()
    effects: tuple[EffectDeclaration, ...] = ()
    variant: tuple[Variant, ...] = ()
    validator: str | None = None
    text_fields: Mapping[str, str] = field(default_factory=dict)
    """Protocol output to `function.argument`."""
    form: tuple[FormField, ...] = ()
    """What an agent states in place of naming a step."""
    examples: tuple[WorkedExample, ...] = ()
    conclude: str | None = None
    """Function that makes data of what an agent states."""
    mode: StepMode | None = None
    autonomy: AutonomyLevel | None = None
    timeout_s: float | None = None
    max_attempts: int | None = None
    trigger: Any = None
    """Of scenario files."""
    body: str = ""
    path: Path = field(default_factory=Path)
    sha256: str = ""
    """Of the file's bytes."""
    line_of: Mapping[str, int] = field(default_factory=dict)
    """Line of every key, nested ones dotted: `next`, `next.0`, `next.0.when`."""
    declarative: bool = False
    """It says `call`, `effects` or `variant`, so it needs no other handler."""

    @property
    def id(self) -> str:
        """The canonical name: the file's stem."""
        return self.path.stem or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Everything it goes by: id, the id without its number, the name as written, aliases."""
        return tuple(dict.fromkeys((self.id, short_name(self.id), self.name, *self.aliases)))

    def line(self, *way: str | int) -> int:
        """Line of a key or, where that is not known, of what it stands in."""
        for end in range(len(way), 0, -1):
            found = self.line_of.get(".".join(str(part) for part in way[:end]))
            if found is not None:
                return found
        return 1

    def function(self, name: str) -> FunctionDeclaration | None:
        """The declaration of a function."""
        return next((one for one in self.available_functions if one.name == name), None)

    def values(self) -> Iterator[tuple[tuple[str | int, ...], Any]]:
        """Everything written in it into which `{{key}}` inserts values, with its place."""
        for index, edge in enumerate(self.next):
            if edge.reason is not None:
                yield ("next", index, "reason"), edge.reason
        for call in self.call:
            yield (call.place,), [call.args, call.otherwise]
        for effect in self.effects:
            yield (effect.place,), effect.args


def short_name(stem: str) -> str:
    """A step's id without its number: `look-it-up` for `02-look-it-up`."""
    return _NUMBER.sub("", stem, count=1) if _NUMBER.match(stem) else stem


def folded(name: str) -> str:
    """A name as names are compared: without case."""
    return name.strip().casefold()
