"""The format of step files, and the values a file is read into: its front matter, and the text below it.

Each key is declared once, with its type, its wording in messages and its description for editors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from detent.authoring.document import above, path_of
from detent.authoring.model import Above, AtLeast, Pattern, Written
from detent.authoring.problem import Place
from detent.dispatch.autonomy import AutonomyLevel, StepMode

DONE = "DONE"
DEGRADED = "graceful-degradation"
FAILED = "FAILED"
ENDS = (DONE, DEGRADED, FAILED)
"""Where runs stop. Every step may be led to the last two by the engine and by handlers."""

DOTTED = r"^[^.\s{}]+(?:\.[^.\s{}]+)*$"
"""A key of the data, dotted where it is nested."""
BAD_FORM = "P21"
BAD_PROSE = "P22"
"""Code of problems with facts and approved sentences."""
_NUMBER = re.compile(r"\d+[a-z]?-(?=.)", re.IGNORECASE)


_Text = Annotated[str, Pattern(r"\S")]
_Target = Annotated[str, Pattern(r"^[\s\S]+\.[^.]+$")]
"""`function.argument`."""
_Version = Annotated[str, Pattern(r"^(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)$")]
_TARGET = "`function.argument`, such as send_email.body"
_KEYS = Written("a list of keys of the data, dotted where they are nested", "",
    list[Annotated[str, Pattern(DOTTED)]])  # fmt: skip
_CONDITION = "a mapping of dotted keys, such as {status: [open, new]}"
_INTO = "one key of the data, or keys with a part of the answer each"
_FLAG = "true or false"
_NAME = {"type": ["string", "number"]}
"""A name that YAML reads as a number is used as it is spelled."""
_Mode: TypeAlias = Literal[tuple(mode.value for mode in StepMode)]  # type: ignore[valid-type]
_Level: TypeAlias = Literal[tuple(level.value for level in AutonomyLevel)]  # type: ignore[valid-type]

# A field is a row of a table: key, type, words.
# fmt: off


@dataclass(frozen=True, slots=True)
class Edge:
    """One step that may follow."""

    to: Annotated[str, Written("the step that follows", "An id, an alias, or an end.", _Text, required=True,
        schema=_NAME)]
    when: Annotated[Mapping[str, Any] | None, Written(_CONDITION,
        "Condition on the data after the step; left out: it always holds.", Any)] = None
    reason: Annotated[str | None, Written("text", "Reason shown for the move.", str)] = None


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """A function the step may use."""

    name: Annotated[str, Written("text", "The function.", Any, schema={"type": "string"})]
    description: Annotated[str | None, Written("text",
        "What an agent is told about it; a function named alone has the tool's own description.", Any,
        schema={"type": "string"})] = None
    parameters: Annotated[Mapping[str, Any] | None, Written("a JSON Schema of an object",
        "The arguments an agent may give; a function named alone has the tool's own.", Any,
        schema={"type": "object"})] = None
    into: Annotated[Mapping[str, str], Written(_INTO,
        "Keys of the data that take its answer, each with the dotted path into it.", Any)] = field(
        default_factory=dict)
    required: Annotated[bool, Written(_FLAG,
        "Whether an agent that is offered it must call it before it answers.")] = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """How code finds the candidates that an agent is to label."""

    function: str | None = None
    """A registered function that finds them."""
    pattern: str | None = None
    """Or a regular expression."""
    within: str | None = None
    """The key of the data that the expression searches."""


@dataclass(frozen=True, slots=True)
class WrittenField:
    """A field of a form, as a file states it."""

    description: Annotated[str, Written("text", "What the field means.", required=True)]
    type: Annotated[Literal["string", "integer", "number", "boolean"], Written("", "Type of its value.",
        code=BAD_FORM)] = "string"
    enum: Annotated[Any, Written("a list of texts, or a mapping of texts to their meanings",
        "The choices, with what each means.", code=BAD_FORM)] = None
    candidates: Annotated[Any, Written("a registered function, or {pattern, in}",
        "What finds the candidates to label.", code=BAD_FORM)] = None
    fills: Annotated[str | None, Written(_TARGET, "The argument of the step's own effects that takes it.",
        _Target)] = None
    optional: Annotated[bool, Written(_FLAG, "Whether the value may be null.")] = False
    minLength: Annotated[int | None, AtLeast(0), Written("a number", "For a text.", int)] = None
    maxLength: Annotated[int | None, AtLeast(0), Written("a number", "For a text.", int)] = None
    minimum: Annotated[float | None, Written("a number", "For a number.", float)] = None
    maximum: Annotated[float | None, Written("a number", "For a number.", float)] = None


@dataclass(frozen=True, slots=True)
class FormField:
    """One fact that an agent states."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON Schema of its value or, where there are candidates, of the label each of them gets."""
    meanings: Mapping[str, str] = field(default_factory=dict)
    """The meaning of each choice."""
    candidates: Candidates | None = None
    fills: str | None = None
    """The `function.argument` of the step's own effects that takes the value; None: it becomes data."""


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A form filled in, shown to agents before the inputs at hand."""

    given: Annotated[Mapping[str, Any], Written("a mapping", "Values of the needs.", dict)]
    answer: Annotated[Mapping[str, Any], Written("a mapping", "The form, filled in.", dict)]
    note: Annotated[str, Written("text", "Why the answer is right.")] = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A query of the declarative handler."""

    function: str
    args: Mapping[str, Any]
    into: str
    """Key of the data that takes the answer."""
    when: Mapping[str, Any] | None = None
    """Condition under which the query is made."""
    otherwise: Any = None
    """Value stored if the query is not made."""
    has_otherwise: bool = False
    path: str = field(default="", compare=False)
    """Its path in the front matter, for messages."""


@dataclass(frozen=True, slots=True)
class EffectDeclaration:
    """An effect the declarative handler proposes."""

    function: str
    args: Mapping[str, Any] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    """Arguments that are filled from a template, by the template's name."""
    into: Mapping[str, str] = field(default_factory=dict)
    """Keys of the data that take its receipt, each with the dotted path into it ("" for the whole)."""
    when: Mapping[str, Any] | None = None
    path: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Variant:
    """A template's variant and when it is used."""

    name: str
    when: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """A step file: every key of its front matter, and its body."""

    name: Annotated[str, Written("text", "The file's name without its suffix.", _Text,
        required=True, schema=_NAME)]
    """As written: the stem of the file, or `step-` and the stem."""
    description: Annotated[str, Written("text", "What the step does.", required=True)]
    version: Annotated[str, Written("three numbers, such as 1.0.0", "The version of the file.", _Version,
        required=True, code="P08")]
    next: Annotated[tuple[Edge, ...], Written("a list of steps, each a name or {to, when, reason}",
        "The steps that may follow; the first whose condition holds is taken.", list, required=True)] = ()
    aliases: Annotated[tuple[str, ...], Written("a list of names", "Further names.", list[_Text])] = ()
    """As written; see `names` for all names."""
    available_functions: Annotated[tuple[FunctionDeclaration, ...], Written(
        "a list of functions, each a name or {name, description, parameters}",
        "The functions it may use.", list)] = ()
    needs: Annotated[tuple[str, ...], replace(_KEYS, about="Keys of the data it reads.")] = ()
    outputs: Annotated[tuple[str, ...], replace(_KEYS, about="Keys of the data it sets.")] = ()
    handler: Annotated[str | None, Written("text", "The function that performs it.", str)] = None
    call: Annotated[tuple[Call, ...], Written("a function with its arguments, or a list of such",
        "Queries asked before the move is chosen, in place of a handler.", dict | list)] = ()
    effects: Annotated[tuple[EffectDeclaration, ...], Written("functions with their arguments",
        "Effects proposed with the move, in place of a handler.", dict | list)] = ()
    variant: Annotated[tuple[Variant, ...], Written("a mapping of variants to conditions",
        "Variants of its templates.", dict)] = ()
    validator: Annotated[str | None, Written("text", "The function that checks an agent's outcome.",
        str)] = None
    text_fields: Annotated[Mapping[str, str], Written("a mapping of outputs to arguments",
        "Which argument takes which line of an agent's reply.", dict)] = field(default_factory=dict)
    """Protocol output to `function.argument`."""
    prose: Annotated[tuple[str, ...] | None, Written("a list of arguments, such as send_email.body",
        "Arguments of effects that are text for people; left out: those of `text_fields` and of free "
        "texts in the form.", list[_Target])] = None
    facts: Annotated[Mapping[str, str], Written("a mapping of keys to kinds: {ticket_id: identifier}",
        "What its text for people may state, and its approved sentences may insert: keys of the data, each "
        "with its kind.", dict)] = field(default_factory=dict)
    form: Annotated[tuple[FormField, ...], Written(
        "a mapping of fields: {urgent: {type: boolean, description: …}}",
        "What an agent states in place of naming a step.", dict)] = ()
    examples: Annotated[tuple[WorkedExample, ...], Written("a list of `{given, answer}`",
        "The form filled in, shown to agents.", list)] = ()
    conclude: Annotated[str | None, Written("text",
        "The function that makes data of what an agent states.", str)] = None
    filled_by: Annotated[str | None, Written("text",
        "The function that fills in the form as code decided, to measure the check.", str)] = None
    mode: Annotated[StepMode | None, Written("", "Who performs it.", _Mode, code="P20")] = None
    autonomy: Annotated[AutonomyLevel | None, Written("", "What an agent's answer has to pass.", _Level,
        code="P20")] = None
    timeout_s: Annotated[float | None, Above(0), Written("a number above 0", "Seconds of one attempt.",
        float)] = None
    max_attempts: Annotated[int | None, AtLeast(1), Written("a whole number of 1 or more", "Attempts.",
        int)] = None
    trigger: Annotated[Any, Written("a value", "Of scenario files.")] = None
    # fmt: on
    body: str = ""
    path: Path = field(default_factory=Path)
    sha256: str = ""
    """Of the file's bytes."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Place of every key and item, by its path: `next`, `next[0]`, `next[0].when`, `body`."""
    declarative: bool = False
    """Whether it has `call` or `effects`, so that it needs no handler."""

    @property
    def id(self) -> str:
        """The canonical name: the file's stem."""
        return self.path.stem or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """All its names: id, the id without its number, the name as written, aliases."""
        return tuple(dict.fromkeys((self.id, short_name(self.id), self.name, *self.aliases)))

    def place(self, path: str) -> Place:
        """Place of a key or, if that is not known, of the nearest key above it."""
        while path and path not in self.places:
            path = above(path)
        return self.places[path] if path else Place(self.path.as_posix(), 1)

    def function(self, name: str) -> FunctionDeclaration | None:
        """The declaration of a function."""
        return next((declared for declared in self.available_functions if declared.name == name), None)

    def values(self) -> Iterator[tuple[str, Any]]:
        """Every value in which `{{key}}` is replaced, with its path."""
        for index, edge in enumerate(self.next):
            if edge.reason is not None:
                yield path_of("next", index, "reason"), edge.reason
        for call in self.call:
            yield call.path, [call.args, call.otherwise]
        for effect in self.effects:
            yield effect.path, effect.args


def short_name(stem: str) -> str:
    """A step's id without its number: `look-it-up` for `02-look-it-up`."""
    return _NUMBER.sub("", stem, count=1) if _NUMBER.match(stem) else stem


def folded(name: str) -> str:
    """A name folded for comparison: without case."""
    return name.strip().casefold()
