"""A failure: one expectation that was not met, and the message about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from detent.evals.likeness import told
from detent.insight.formatting import short

GROUPS: Mapping[str, tuple[str, ...]] = {
    "routing": (
        "step_missing", "step_extra", "step_wrong", "next_step", "undeclared_step", "condition", "needs",
        "no_end", "max_steps", "forbidden_step", "unknown_step",
    ),
    "function calls": (
        "function_call", "function_args", "undeclared_function", "calls", "call_arguments", "call_result",
        "call_failed", "forbidden_call",
    ),
    "content": ("output", "data", "context"),
    "status": (
        "status", "end", "reason", "flags", "fallback", "mode", "intake", "scenario", "unstable",
    ),
    "time": ("time",),
    "not played": ("crash", "play", "file", "reference"),
}  # fmt: skip
"""Kinds of failure by the heading they are shown under, in the order of the headings."""
ARTIFACTS = "artifacts"
"""The heading of every other kind: failures about artifacts, and an application's own kinds."""
GROUP_OF: Mapping[str, str] = {kind: group for group, kinds in GROUPS.items() for kind in kinds}

HINTS: Mapping[str, str] = {
    "step_missing": "the path ends early or leaps over it",
    "step_extra": "no expectation stands at this place",
    "step_wrong": "look at what the step before it decided",
    "next_step": "look at the step's output and the conditions on its edges",
    "undeclared_step": "declare the edge, or correct what chose it",
    "condition": "the data of that moment forbids this edge",
    "needs": "let an earlier step set it, or list it under allow_missing",
    "no_end": "the last step must lead to an end",
    "max_steps": "look for steps that send to each other",
    "forbidden_step": "the case forbids this step",
    "unknown_step": "the step is in no definition this case is played with",
    "function_call": "calls of this step, in order",
    "function_args": "only the listed arguments are compared",
    "undeclared_function": "declare the function in the step, or move the call",
    "calls": "all calls of the run, in order",
    "call_arguments": "only the listed arguments are compared",
    "call_result": "only the listed keys are compared",
    "call_failed": "plan it under input.failures if it should fail",
    "forbidden_call": "the case forbids this function",
    "output": "see the step's output with --verbose",
    "data": "context after the step, by the listed keys",
    "context": "context at the end, by the listed keys",
    "status": "the run's own reason says more",
    "end": "the last step of the path decided it",
    "reason": "reason of the run, as its journal has it",
    "flags": "flags the run was given on its way",
    "fallback": "why the handler decided in the agent's place",
    "mode": "steps.<id>.mode in the case or the settings",
    "intake": "decided before any step ran",
    "scenario": "what the run was processed with",
    "unstable": "equal plays must leave equal traces",
    "crash": "the player raised; the case was not judged any further",
    "play": "the case could not be played as it is written",
    "file": "correct the file; nothing of it was played",
    "reference": "a case names steps by id, alias or a unique beginning",
    "time": "upper bound, in milliseconds",
}
"""What to look at, used where a failure has no hint of its own."""


@dataclass(frozen=True, slots=True)
class StepFailure:
    """One expectation that was not met."""

    scenario_id: str
    position: int | None
    """Place in the path, from 1; None when the failure does not concern one step."""
    step_name: str | None
    kind: str
    expected: Any
    actual: Any
    hint: str = ""
    lines: tuple[str, ...] = ()
    """Lines shown below the failure: both paths, with a caret under the first difference."""

    def __post_init__(self) -> None:
        if not self.hint:
            object.__setattr__(self, "hint", HINTS.get(self.kind, ""))

    @property
    def group(self) -> str:
        """The heading it is shown under."""
        return GROUP_OF.get(self.kind, ARTIFACTS)

    @property
    def sentence(self) -> str:
        """Expected and actual value on one line, without the hint."""
        place = f"step {self.position}" if self.position is not None else ""
        if self.step_name and self.kind not in _NAMED_BY_VALUES:
            place = f"{place} {self.step_name}" if place else self.step_name
        subject = "" if self.kind in _NAMED_BY_VALUES else _WORDS.get(self.kind, self.kind.replace("_", " "))
        begin = ", ".join(part for part in (place, subject) if part)
        return f"{begin}: expected {_brief(self.expected)}, got {_brief(self.actual)}"

    def __str__(self) -> str:
        first = f"{self.sentence}   ({self.hint})" if self.hint else self.sentence
        return "\n".join([first, *self.lines])

    def of(self, scenario_id: str) -> StepFailure:
        """The same failure, with the id of a case."""
        return replace(self, scenario_id=scenario_id)

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "lines": list(self.lines)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> StepFailure:
        """Read back what `to_plain` wrote."""
        return cls(**{**plain, "lines": tuple(plain["lines"])})


def _brief(value: Any) -> str:
    """A value on one line, cut when it is long."""
    return short(told(value), 160) or "nothing"


_NAMED_BY_VALUES = frozenset({"step_missing", "step_extra", "step_wrong"})
"""Kinds whose expected and actual values are the names of steps."""
_WORDS: Mapping[str, str] = {
    "calls": "calls",
    "next_step": "next step",
    "condition": "condition of the edge taken",
    "undeclared_step": "next step",
    "no_end": "end of the path",
    "max_steps": "steps",
    "time": "ms",
    "crash": "player",
    "play": "play",
    "scenario": "scenario used",
    "unstable": "trace",
}
