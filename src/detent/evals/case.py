"""The format of case files, and the values a file is read into: an input and the expectations of its run.

Each key of a file is declared once, with its type, its wording in messages and its description for editors.
Expectations are checked in `expect`, `transitions`, `outcome` and `artifacts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final

from detent.authoring.document import above
from detent.authoring.model import Above, Pattern, Written
from detent.authoring.problem import Place

STEP = "step"
"""The mode in which a case is played step by step. A player may have further modes, without steps."""


class Unsaid:
    """The type of `UNSAID`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSAID"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNSAID"


UNSAID: Final = Unsaid()
"""Nothing is expected here; used where null is itself an expectation."""


TEXT = "a text"
TEXTS = "a text or a list of texts"
MAPPING = "a mapping"
FLAG = "true or false"
Texts = list[str | None] | str
"""In a file, a text stands for a list of one item; an item without a value is dropped."""
_Required = Annotated[str, Pattern(r"[\s\S]")]
_STEP_NAME = "the id, an alias or the beginning of the id of a step"

# A field is a row of a table: key, type, words.
# fmt: off


@dataclass(frozen=True, slots=True)
class ExpectedStepExecution:
    """What is expected of one step, at its position in the path."""

    step_name: Annotated[str, Written(_STEP_NAME, "Id, alias, or a beginning that only one step has.",
        _Required, required=True)]
    output_contains: Annotated[tuple[str, ...], Written(TEXTS, "Texts in its output.", Texts)] = ()
    output_excludes: Annotated[tuple[str, ...], Written(TEXTS, "Texts not in its output.", Texts)] = ()
    function_call: Annotated[str | tuple[str, ...] | Unsaid | None, Written(TEXTS,
        "The functions it calls, in order; null: it calls none.", Texts)] = UNSAID
    function_args: Annotated[Mapping[str, Any] | None, Written(MAPPING,
        "Arguments of its call; with several functions, arguments by function name.", dict)] = None
    data: Annotated[Mapping[str, Any] | None, Written(MAPPING, "Context after the step.", dict)] = None
    next_step: Annotated[str | None, Written(_STEP_NAME, "The step it leads to.", str)] = None
    mode: Annotated[str | None, Written(TEXT, "Who performs it: handler or agent.", str)] = None
    fallback: Annotated[str | bool | Unsaid | None, Written("the reason of a fallback, or true or false",
        "Reason of its fallback; true: any reason; null or false: it does not fall back.",
        str | bool)] = UNSAID


@dataclass(frozen=True, slots=True)
class ExpectedFunctionCall:
    """What is expected of one call, at its position among all calls."""

    function_name: Annotated[str, Written("the name of a function", "The function.", _Required,
        required=True)]
    arguments: Annotated[Mapping[str, Any] | None, Written(MAPPING,
        "Its arguments; only the listed ones are compared.", dict)] = None
    arguments_contain: Annotated[Mapping[str, tuple[str, ...]], Written(
        "a mapping of arguments to texts", "Texts in an argument.", dict[str, Texts | None])] = field(
        default_factory=dict)
    result_contains: Annotated[Mapping[str, Any] | None, Written(MAPPING,
        "Its result; only the listed keys are compared.", dict)] = None
    body_contains: Annotated[tuple[str, ...], Written(TEXTS, "Texts in the argument `body`.", Texts)] = ()


@dataclass(frozen=True, slots=True)
class ExpectedFallback:
    """A step that is expected to fall back on its handler."""

    step: Annotated[str, Written(_STEP_NAME, "The step.", _Required, required=True)]
    reason: Annotated[str | None, Written(TEXT, "The reason.", str)] = None


@dataclass(frozen=True, slots=True)
class ExpectedIntake:
    """What is expected to be decided about the input before any step runs."""

    decision: Annotated[str, Written(TEXT, "The decision.", _Required, required=True)]
    reason: Annotated[str | None, Written(TEXT, "The reason.", str)] = None


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """Everything a case may expect. None means no expectation; an empty list expects that there is none."""

    expected_steps: Annotated[tuple[ExpectedStepExecution, ...] | None, Written("a list of steps",
        "The path: names of steps, or mappings of what is expected of each.", list)] = None
    expected_function_calls: Annotated[tuple[ExpectedFunctionCall, ...] | None, Written("a list of calls",
        "All calls, in order: names of functions, or mappings.", list)] = None
    scenario_instruction_used: Annotated[str | None, Written(TEXT, "The instruction used.", str)] = None
    processing_time_ms: Annotated[float | None, Written("a number above 0", "Upper bound.",
        Annotated[float, Above(0)])] = None
    status: Annotated[str | None, Written(TEXT, "Status of the run.", str)] = None
    end: Annotated[str | None, Written(TEXT, "The state in which the run ends.", str)] = None
    reason: Annotated[str | None, Written(TEXT, "Why it ends there.", str)] = None
    flags: Annotated[tuple[str, ...] | None, Written(TEXTS,
        "Flags the run has, perhaps among others; empty: it has none.", Texts)] = None
    context: Annotated[Mapping[str, Any] | None, Written(MAPPING,
        "Context at the end; only the listed keys are compared.", dict)] = None
    fallbacks: Annotated[tuple[ExpectedFallback, ...] | None, Written("a list of `{step, reason}`",
        "Steps that fall back on their handlers.", list)] = None
    forbidden_steps: Annotated[tuple[str, ...] | None, Written("a list of steps",
        "Steps that must not run.", list[str])] = None
    forbidden_calls: Annotated[tuple[str, ...] | None, Written(TEXTS,
        "Functions that must not be called.", Texts)] = None
    allow_missing: Annotated[tuple[str, ...], Written(TEXTS,
        "Keys a step may need and not find; a permission, not an expectation.", Texts)] = ()
    intake: Annotated[ExpectedIntake | None, Written("a mapping `{decision, reason}`",
        "What is decided about the input before any step runs.", dict)] = None
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    """Expectations about the artifacts, by the keys their application offers."""
    modes: Mapping[str, ExpectedOutput] = field(default_factory=dict)
    """Expectations that differ in a mode other than `step`."""

    def under(self, mode: str) -> ExpectedOutput:
        """The expectations in a mode."""
        other = self.modes.get(mode)
        if other is None:
            return self
        changes = {
            key.name: value
            for key in fields(ExpectedOutput)
            if key.name not in ("modes", "allow_missing", "artifacts")
            and (value := getattr(other, key.name)) is not None
        }
        return replace(self, **changes, artifacts={**self.artifacts, **other.artifacts})


@dataclass(frozen=True, slots=True)
class EvalTestCase:
    """One case."""

    scenario_id: Annotated[str, Written(TEXT, "The name of the file without its suffix.", _Required,
        required=True)]
    description: Annotated[str, Written(TEXT, "What the case is about.", _Required, required=True)]
    category: Annotated[str, Written(TEXT, "The group of cases it belongs to.", _Required, required=True)]
    input: Annotated[Mapping[str, Any], Written(MAPPING,
        "What the run is given; its meaning is the player's.", dict)] = field(default_factory=dict)
    expected_output: Annotated[ExpectedOutput, Written(MAPPING, "What is expected of the run.",
        dict)] = field(default_factory=ExpectedOutput)
    created: Annotated[str | None, Written(TEXT, "When it was written.", str)] = None
    tags: Annotated[tuple[str, ...], Written(TEXTS, "Words to select it by.", Texts)] = ()
    orchestrators: Annotated[tuple[str, ...], Written(TEXTS,
        "Modes the case holds for; left out: all.", Texts)] = ()
    required: Annotated[bool, Written(FLAG, "Whether it must pass whatever the threshold.")] = False
    deprecated: Annotated[str | None, Written(TEXT,
        "Why it no longer counts; it is still run and shown.", str)] = None
    # fmt: on
    file: str = ""
    """Path of its file, as shown to people."""
    path_comment: str = ""
    """The first comment of its file, which states the path."""
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    """The place of every key and item in the file, by its path: `expected_output.expected_steps[0]`."""
    source: Path | None = field(default=None, compare=False, repr=False)
    """Its file; paths in the input are relative to its folder."""

    def place(self, path: str) -> Place:
        """The place of a key or, if that is unknown, of its parent."""
        while path and path not in self.places:
            path = above(path)
        return Place(*self.places.get(path, Place(self.file, 1)))

    @property
    def expected_steps(self) -> list[ExpectedStepExecution] | None:
        """The path, or None when the case expects none."""
        steps = self.expected_output.expected_steps
        return None if steps is None else list(steps)

    def holds_for(self, mode: str) -> bool:
        """True when the case is played in a mode."""
        return not self.orchestrators or mode in self.orchestrators

    @property
    def subject(self) -> str:
        """Subject of the message in the input, if there is one, to search by."""
        messages = [value for value in self.input.values() if isinstance(value, Mapping)]
        subjects = [message["subject"] for message in messages if isinstance(message.get("subject"), str)]
        return subjects[0] if subjects else ""
