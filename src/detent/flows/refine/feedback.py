"""What earlier attempts have taught: text for agents, structure for code.

Belongs here: one piece of feedback, who sees which, its caps and its text. Does not belong here: when there
is feedback (`decisions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

FeedbackType = Literal["validation_failure", "judge_soft_failure", "judge_hard_failure"]
TYPES: tuple[FeedbackType, ...] = get_args(FeedbackType)
MOST_KEPT = 25
"""Pieces of feedback that anybody is given: the newest."""
MOST_TOKENS = 2000
"""Tokens of the rendered text."""
CHARACTERS_PER_TOKEN = 4
CUT = " …[cut]"
TITLE = "# Feedback from earlier attempts"

_HEADINGS = {
    "validation_failure": "validation failure",
    "judge_soft_failure": "judged too weak, to be refined",
    "judge_hard_failure": "judged too weak, to be planned anew",
}


@dataclass(frozen=True, slots=True)
class Feedback:
    """Why one attempt was not good enough."""

    type: FeedbackType
    content: str
    """For agents."""
    iteration: int
    """Number of the attempt it is about, from 1."""
    timestamp: float = 0.0
    priority: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """For code: `issues` as in a validation report, `failing` as `{category, score, weaknesses: [{text,
    section, template}]}`, `automatic_failures` by code, `escalated`."""

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise ValueError(f"type is {self.type!r}; it must be one of {', '.join(TYPES)}.")

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "type": self.type,
            "content": self.content,
            "iteration": self.iteration,
            "timestamp": self.timestamp,
            "priority": self.priority,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Feedback:
        """Read back what `to_plain` wrote."""
        return cls(**plain)


def for_planner(feedback: Iterable[Feedback]) -> list[Feedback]:
    """What the planner sees: validation and hard failures, oldest first, at most 25."""
    return [piece for piece in feedback if piece.type != "judge_soft_failure"][-MOST_KEPT:]


def for_implementer(feedback: Iterable[Feedback]) -> list[Feedback]:
    """What the implementer sees: soft failures of the current plan, oldest first, at most 25."""
    current: list[Feedback] = []
    for piece in feedback:
        current = [*current, piece] if piece.type == "judge_soft_failure" else []
    return current[-MOST_KEPT:]


def render(feedback: Sequence[Feedback], most_tokens: int = MOST_TOKENS) -> str:
    """The text for agents, oldest to newest, at most 2000 tokens; empty without feedback.

    The oldest pieces are dropped first; the newest never is, but may be cut.
    """
    blocks = [
        f"## Attempt {piece.iteration}, {_HEADINGS[piece.type]}\n{piece.content}".rstrip()
        for piece in feedback[-MOST_KEPT:]
    ]
    if not blocks:
        return ""
    room = most_tokens * CHARACTERS_PER_TOKEN
    while len(text := "\n".join([TITLE, *blocks])) > room and len(blocks) > 1:
        del blocks[0]
    return text if len(text) <= room else f"{text[: room - len(CUT)]}{CUT}"
