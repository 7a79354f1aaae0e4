"""Detects the scenario of a mail: by rules; if they are unsure, by a model or by the serial number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from detent.apps.warranty.domain.scope import scope_of
from detent.apps.warranty.domain.serials import extract
from detent.apps.warranty.domain.words import STARTING, Words, found, spaced
from detent.apps.warranty.mail_data import MailView
from detent.kernel.budget import NOTHING, Spend

VALID, INVALID, MISSING, OUT, DEGRADED = (
    "valid-warranty", "invalid-warranty", "missing-info", "out-of-scope", "graceful-degradation"
)  # fmt: skip
SCENARIOS = (VALID, INVALID, MISSING, OUT, DEGRADED)
CHOICES = (VALID, MISSING, OUT)
"""Scenarios that can be detected; the others follow from the registry's answer or from a failure."""

CERTAIN = 0.8
"""Confidence from which the rules alone decide."""
ASKED = 0.85
UNSURE = 0.5
SHORT = 20
"""A mail with fewer characters is too short to judge."""
NAMED = ("warrant", "guarant", "gwaranc")
"""Stems of the words warranty and guarantee, in the languages of the mailbox."""

Method = Literal["heuristic", "llm", "fallback"]


@dataclass(frozen=True, slots=True)
class ScenarioDetectionResult:
    """The detected scenario of a mail."""

    scenario_name: str
    confidence: float
    is_warranty_inquiry: bool
    detected_intent: str
    """`spam`, `too_short`, `warranty_with_serial`, `warranty_without_serial`, `unclear`."""
    detection_method: Method
    ambiguous: bool = False

    def to_plain(self) -> dict[str, Any]:
        """As plain values, for the run's data."""
        return asdict(self)


class Answer(NamedTuple):
    """A model's answer about a mail."""

    scenario: Any
    spend: Spend = NOTHING


Ask = Callable[[MailView], Awaitable[Answer | None]]
"""Asks a model for the scenario of a mail; None without a model, an error if the request failed."""


def by_rules(mail: MailView, words: Words = STARTING) -> ScenarioDetectionResult:
    """The scenario by the rules, in their order."""
    hits = scope_of(mail.subject, mail.parts, words).hits
    if hits.get("spam_strong") or hits.get("spam_weak"):
        return _result(OUT, 0.85, "spam")
    if len(mail.newest.strip()) < SHORT:
        return _result(OUT, 0.6, "too_short", ambiguous=True)
    if found(NAMED, spaced(f"{mail.subject}\n{mail.newest}")):
        if has_serial(mail):
            return _result(VALID, 0.85, "warranty_with_serial")
        return _result(MISSING, 0.9, "warranty_without_serial")
    return _result(VALID, UNSURE, "unclear", ambiguous=True)


def without_asking(mail: MailView, rules: ScenarioDetectionResult) -> ScenarioDetectionResult:
    """The scenario of an unsure mail without a model: its serial number decides."""
    name = VALID if has_serial(mail) else MISSING
    return replace(rules, scenario_name=name, is_warranty_inquiry=True, detection_method="fallback")


def from_answer(rules: ScenarioDetectionResult, answer: Any) -> ScenarioDetectionResult:
    """The scenario by a model's answer; an answer other than one of the three degrades the run."""
    name = scenario_in(answer)
    if name is None:
        return ScenarioDetectionResult(DEGRADED, UNSURE, False, rules.detected_intent, "llm", True)
    return ScenarioDetectionResult(name, ASKED, name != OUT, rules.detected_intent, "llm")


def scenario_in(answer: Any) -> str | None:
    """The scenario an answer names; None if it is not one of the three."""
    name = answer.strip().strip("`'\". ").casefold() if isinstance(answer, str) else None
    return name if name in CHOICES else None


def has_serial(mail: MailView) -> bool:
    """Whether the mail names a serial number."""
    return extract(mail.parts, mail.subject).serial_number is not None


def _result(name: str, confidence: float, intent: str, *, ambiguous: bool = False) -> ScenarioDetectionResult:
    return ScenarioDetectionResult(name, confidence, name != OUT, intent, "heuristic", ambiguous)
