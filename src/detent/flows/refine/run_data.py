"""What a run's data say about its attempts: one fold for steps, ends and results.

Belongs here: the keys of the data and their reading. Does not belong here: decisions, and the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.flows.refine.attempt import Attempt
from detent.flows.refine.decisions import Decision, RefineSettings
from detent.flows.refine.evaluation import Evaluation, ValidationReport
from detent.flows.refine.feedback import Feedback
from detent.kernel.plain import to_plain

REQUEST = "request"
PREPARED = "prepared"
"""Refers to the prepared request, which is kept outside the journal."""
SETTINGS = "settings"
PLAN, VALIDATION, IMPLEMENTATION, EVALUATION = "plan", "validation", "implementation", "evaluation"
"""Of the attempt under way; values of an earlier one stay until they are replaced."""
ATTEMPTS, FEEDBACK = "attempts", "feedback"
"""Lists: the attempts that did not pass, and what they have taught."""
MADE = "made"
"""List: which part of which attempt was made by whom."""


class RunData:
    """The data of one run, read."""

    def __init__(self, data: Mapping[str, Any], settings: RefineSettings) -> None:
        self._data = data
        self._settings = settings

    @property
    def settings(self) -> RefineSettings:
        """The settings the run began with."""
        return self._settings.changed(self._data.get(SETTINGS) or {})

    @property
    def number(self) -> int:
        """Number of the attempt under way, from 1."""
        return len(self._data.get(ATTEMPTS) or ()) + 1

    @property
    def is_last(self) -> bool:
        """Whether no attempt may follow this one."""
        return self.number >= self.settings.max_iterations

    @property
    def feedback(self) -> list[Feedback]:
        """All feedback, oldest first."""
        return [Feedback.from_plain(to_plain(piece)) for piece in self._data.get(FEEDBACK) or ()]

    @property
    def refined(self) -> bool:
        """Whether the attempt under way refines the implementation of the one before it."""
        feedback = list(self._data.get(FEEDBACK) or ())
        return bool(feedback) and feedback[-1]["type"] == "judge_soft_failure"

    def made(self, number: int) -> dict[str, Mapping[str, Any]]:
        """What was made in an attempt, by the name of the step."""
        rows = self._data.get(MADE) or ()
        return {row["part"]: row for row in rows if row["attempt"] == number}

    def has(self, part: str) -> bool:
        """Whether a step of the attempt under way is done."""
        return part in self.made(self.number)

    @property
    def closed(self) -> list[Attempt]:
        """The attempts that did not pass and were followed by another."""
        attempts: list[Attempt] = []
        for row in self._data.get(ATTEMPTS) or ():
            plain = to_plain(row)
            if plain["refined"]:
                earlier = attempts[-1]
                plain |= {PLAN: to_plain(earlier.plan)}
                if plain[VALIDATION] is None and earlier.validation is not None:
                    plain |= {VALIDATION: earlier.validation.to_plain()}
            attempts.append(Attempt.from_plain(plain))
        return attempts

    def current(self) -> Attempt | None:
        """The attempt under way, if it has a plan or an implementation yet."""
        made, data = self.made(self.number), self._data
        if not made:
            return None
        validation = data.get(VALIDATION) if self.refined or "validate" in made else None
        evaluation = data.get(EVALUATION) if "judge" in made else None
        return Attempt(
            self.number,
            to_plain(data.get(PLAN)),
            None if validation is None else ValidationReport.from_plain(validation),
            to_plain(data[IMPLEMENTATION]) if "implement" in made else None,
            None if evaluation is None else Evaluation.from_plain(to_plain(evaluation)),
            self._tokens(self.number) - self._tokens(self.number - 1),
            0.0,
            {part: row["by"] for part, row in made.items()},
            self.refined,
        )

    def attempts(self) -> list[Attempt]:
        """All attempts made so far."""
        current = self.current()
        return [*self.closed, *([] if current is None else [current])]

    def _tokens(self, number: int) -> int:
        rows = self._data.get(MADE) or ()
        return max((row["tokens"] for row in rows if row["attempt"] <= number), default=0)

    def row(self, part: str, by: str, tokens: int) -> dict[str, Any]:
        """The note that a part of the attempt under way was made; `tokens` is the sum the run has used."""
        return {"attempt": self.number, "part": part, "by": by, "tokens": tokens}


def closing(attempt: Attempt, decision: Decision, settings: RefineSettings) -> dict[str, list[Any]]:
    """What is added to the data when an attempt is followed by another."""
    if decision.feedback is None:
        return {}
    plain = attempt.to_plain(settings.pass_threshold, settings.category_pass)
    if attempt.refined:  # the plan stands in an earlier attempt
        plain |= {PLAN: None, VALIDATION: None}
    return {ATTEMPTS: [plain], FEEDBACK: [decision.feedback.to_plain()]}
