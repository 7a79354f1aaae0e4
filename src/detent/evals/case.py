"""A case: what goes in, and what is expected to come of it.

Values only. How a case file is read is in `reading`; how expectations are checked is in `expect`,
`transitions`, `outcome` and `artifacts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from detent.authoring.document import above
from detent.authoring.problem import Place

STEP = "step"
"""The mode in which a case is played step by step. A player may have further ones, without steps."""


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
"""Nothing is expected here; where null is an expectation of its own, this is the other thing."""


@dataclass(frozen=True, slots=True)
class ExpectedStepExecution:
    """What is expected of one step, at its place in the path."""

    step_name: str
    """Id, alias, or a beginning that only one step has."""
    output_contains: tuple[str, ...] = ()
    output_excludes: tuple[str, ...] = ()
    function_call: str | tuple[str, ...] | Unsaid | None = UNSAID
    """The functions it calls, in order; None: it calls none."""
    function_args: Mapping[str, Any] | None = None
    """Arguments of its call; with several functions, arguments by function name."""
    data: Mapping[str, Any] | None = None
    """Context after the step."""
    next_step: str | None = None
    mode: str | None = None
    fallback: str | bool | Unsaid | None = UNSAID
    """Reason of its fallback, True for any reason, None or False for no fallback."""


@dataclass(frozen=True, slots=True)
class ExpectedFunctionCall:
    """What is expected of one call, at its place among all calls."""

    function_name: str
    arguments: Mapping[str, Any] | None = None
    """By the listed keys."""
    arguments_contain: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Texts that stand in an argument."""
    result_contains: Mapping[str, Any] | None = None
    """By the listed keys."""
    body_contains: tuple[str, ...] = ()
    """Texts that stand in the argument `body`."""


@dataclass(frozen=True, slots=True)
class ExpectedFallback:
    """A step that is expected to fall back on its handler."""

    step: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ExpectedIntake:
    """What is expected to be decided about the input before any step runs."""

    decision: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """Everything a case may expect. None expects nothing; an empty list expects that there is none."""

    expected_steps: tuple[ExpectedStepExecution, ...] | None = None
    expected_function_calls: tuple[ExpectedFunctionCall, ...] | None = None
    scenario_instruction_used: str | None = None
    processing_time_ms: float | None = None
    """Upper bound."""
    status: str | None = None
    end: str | None = None
    reason: str | None = None
    flags: tuple[str, ...] | None = None
    """Flags the run has, perhaps among others; empty: it has none."""
    context: Mapping[str, Any] | None = None
    """Context at the end, by the listed keys."""
    fallbacks: tuple[ExpectedFallback, ...] | None = None
    forbidden_steps: tuple[str, ...] | None = None
    forbidden_calls: tuple[str, ...] | None = None
    allow_missing: tuple[str, ...] = ()
    """Keys a step may need and not find; a permission, no expectation."""
    intake: ExpectedIntake | None = None
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    """What is expected of the artifacts, by the keys their application offers."""
    modes: Mapping[str, ExpectedOutput] = field(default_factory=dict)
    """What differs in a mode other than `step`."""

    def under(self, mode: str) -> ExpectedOutput:
        """What is expected in a mode."""
        other = self.modes.get(mode)
        if other is None:
            return self
        changes = {
            one.name: value
            for one in fields(ExpectedOutput)
            if one.name not in ("modes", "allow_missing", "artifacts")
            and (value := getattr(other, one.name)) is not None
        }
        return replace(self, **changes, artifacts={**self.artifacts, **other.artifacts})


@dataclass(frozen=True, slots=True)
class EvalTestCase:
    """One case."""

    scenario_id: str
    description: str
    category: str
    input: Mapping[str, Any] = field(default_factory=dict)
    """Plain values; what they mean is for the player to know."""
    expected_output: ExpectedOutput = field(default_factory=ExpectedOutput)
    created: str | None = None
    tags: tuple[str, ...] = ()
    orchestrators: tuple[str, ...] = ()
    """Modes the case holds for; empty: all."""
    required: bool = False
    """Must pass whatever the threshold."""
    deprecated: str | None = None
    """Why it no longer counts; it is still run and shown."""
    file: str = ""
    """Path of its file, as people see it."""
    path_comment: str = ""
    """The first comment of its file, which states the path."""
    places: Mapping[str, Place] = field(default_factory=dict, compare=False, repr=False)
    """Where every key and item of the file stands, by its path: `expected_output.expected_steps[0]`."""
    source: Path | None = field(default=None, compare=False, repr=False)
    """Its file; paths in the input start from the folder of it."""

    def place(self, path: str) -> Place:
        """Where a key stands or, where that is not known, what it stands in."""
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
        """Subject of the message in the input, where there is one, for finding the case."""
        messages = [value for value in self.input.values() if isinstance(value, Mapping)]
        found = [message["subject"] for message in messages if isinstance(message.get("subject"), str)]
        return found[0] if found else ""
