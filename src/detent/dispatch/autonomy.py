"""The closed choices of dispatch: who performs a step, how far it is trusted, and why it was not.

Nothing is added to them at run time; journals, settings and reports contain their values.
"""

from __future__ import annotations

from enum import Enum


class AgentRole(str, Enum):
    """The part agents can have in a step; the step itself determines it."""

    OPTIONAL = "optional"
    """The step's mode decides between handler and agent."""
    NONE = "none"
    """Control flow: its code runs in every mode."""
    PREFERRED = "preferred"
    """An agent is asked in every mode; the handler is the fallback."""
    REQUIRED = "required"
    """Only an agent can perform the step: it has no handler."""


class StepMode(str, Enum):
    """Who performs a step."""

    DETERMINISTIC = "deterministic"
    """Its handler: ordinary code."""
    AGENT = "agent"
    """An executor, under an autonomy level, with the handler to fall back on."""


class AutonomyLevel(str, Enum):
    """How far an agent's answer is trusted, from not at all to completely."""

    OPERATOR = "operator"
    """The agent is not asked."""
    COLLABORATOR = "collaborator"
    """The answer counts if the step's own code agrees with it."""
    CONSULTANT = "consultant"
    """The answer counts; oddities in it are reported."""
    APPROVER = "approver"
    """The answer counts."""

    @property
    def rank(self) -> int:
        """0 for the least trusted."""
        return _LEVELS.index(self)

    @property
    def above(self) -> AutonomyLevel | None:
        """The next level up."""
        return _LEVELS[self.rank + 1] if self.rank + 1 < len(_LEVELS) else None

    @property
    def below(self) -> AutonomyLevel | None:
        """The next level down."""
        return _LEVELS[self.rank - 1] if self.rank else None

    # Explicit, since texts would be compared as texts.
    def __lt__(self, other: str) -> bool:
        return self.rank < _rank(other)

    def __le__(self, other: str) -> bool:
        return self.rank <= _rank(other)

    def __gt__(self, other: str) -> bool:
        return self.rank > _rank(other)

    def __ge__(self, other: str) -> bool:
        return self.rank >= _rank(other)


_LEVELS = tuple(AutonomyLevel)


def _rank(other: object) -> int:
    """Refuse a plain text, which Python would compare alphabetically."""
    if not isinstance(other, AutonomyLevel):
        raise TypeError(f"A level of autonomy is compared with another, not with a {type(other).__name__}.")
    return other.rank


class TextReview(str, Enum):
    """Who reads the text that an agent writes for people before it is used."""

    PERSON = "person"


class ProsePolicy(str, Enum):
    """What an approver may do with text for people that nobody has read."""

    FREE = "free"
    """It is used as written, if it keeps the hard contract."""


class FallbackReason(str, Enum):
    """Why the handler's outcome was used although the step is in agent mode."""

    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    SCHEMA_VIOLATION = "schema_violation"
    VALIDATION_FAILURE = "validation_failure"
    NO_EXECUTOR = "no_executor"
    NO_INTENT = "no_intent"
    OPERATOR = "operator"
    BUDGET = "budget"
    PROSE_UNREVIEWED = "prose_unreviewed"
    """The agent's text for people was neither read by a person nor composed of approved sentences."""


class Check(str, Enum):
    """Which check the gate used on an agent's answer."""

    VALIDATOR = "validator"
    """The step's own validator."""
    COMPARE = "compare"
    """The handler, run on the same inputs."""
    CONTRACT = "contract"
    """The soft contract alone."""
    NONE = "none"
