"""The settings of the warranty mailbox: one checked value; every problem is reported with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, ValidationError, field_validator, model_validator

from detent.adapters.mail import settings as mail
from detent.adapters.mail.settings import Part
from detent.authoring.heading import Placed, heading_problems
from detent.authoring.problem import NOWHERE, Problem
from detent.runtime.settings import SettingsError


class Retry(Part):
    """Waits between attempts, time for each, function calls in one step."""

    min_s: float = Field(1.0, gt=0)
    max_s: float = Field(10.0, gt=0)
    attempt_timeout_s: float = Field(60.0, gt=0)
    function_turns: int = Field(10, ge=1, le=100)


class Rollback(Part):
    """When step mode gives way to legacy mode by itself."""

    enabled: bool = True
    window: int = Field(100, ge=1)
    min_runs: int = Field(20, ge=1)
    threshold_percent: float = Field(5.0, gt=0, lt=100)


class Arm(Part):
    """One side of an experiment."""

    share: int = Field(ge=0, le=100)
    strategy: Literal["default", "heuristic", "llm"] | None = None
    steps: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("steps")
    @classmethod
    def _only_the_first(cls, steps: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if set(steps) - {FIRST_STEP}:
            raise ValueError(f"an arm may set {FIRST_STEP} only")
        return steps


class Experiment(Part):
    """Two or more ways of taking the first step, compared on live mail."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    arms: dict[str, Arm]

    @model_validator(mode="after")
    def _adds_up(self) -> Experiment:
        if len(self.arms) < 2 or sum(arm.share for arm in self.arms.values()) != 100:
            raise ValueError("an experiment has two arms or more, and their shares add up to 100")
        return self


class Router(Part):
    """How a mail finds its first step."""

    strategy: Literal["default", "heuristic", "llm"] = "default"
    min_confidence: float = Field(0.95, ge=0, le=1)
    experiment: Experiment | None = None


class Orchestration(Part):
    """Step mode or legacy mode, and the limits of a run."""

    use_step_orchestrator: bool = True
    max_steps: int = Field(10, ge=1, le=100)
    max_attempts: int = Field(3, ge=1)
    retry: Retry = Retry()
    legacy_available: bool = True
    rollback: Rollback = Rollback()
    router: Router = Router()


class Playbook(Part):
    """Where the step files are. A folder that is there wins over the shipped one."""

    steps_dir: str = "instructions/steps"
    templates_dir: str = "instructions/templates"
    scenarios_dir: str = "instructions/scenarios"
    overlays: list[str] = Field(default_factory=list)
    strict: bool = False


class Agent(Part):
    """The service that watches the mailbox."""

    polling_interval_seconds: float = Field(60.0, ge=10)
    shutdown_timeout_seconds: float = Field(30.0, gt=0)
    max_consecutive_errors: int = Field(10, ge=1)
    max_concurrent_runs: int = Field(4, ge=1)


class Imap(mail.Imap):
    """The mailbox on a server."""

    user_env: str = "WARRANTY_IMAP_USER"
    password_env: str = "WARRANTY_IMAP_PASSWORD"


class Smtp(mail.Smtp):
    """The server that sends."""

    user_env: str = "WARRANTY_SMTP_USER"
    password_env: str = "WARRANTY_SMTP_PASSWORD"


class Mail(mail.MailSettings):
    """Where mail comes from and goes to."""

    from_: str = Field("Service <service@northpine.example>", alias="from")
    imap: Imap = Imap()
    smtp: Smtp = Smtp()


class Breaker(Part):
    """When a broken tool is left alone."""

    failures: int = Field(5, ge=1)
    probe_after_s: float = Field(60.0, gt=0)


class Crm(Part):
    """A customer system over HTTP."""

    base_url: str | None = None
    auth: Literal["none", "basic", "token"] = "token"
    token_path: str = "/token"
    device_path: str = "/devices/{serial}"
    ticket_path: str = "/tickets"
    ticket_by_key_path: str | None = None
    idempotent: bool = False
    fields: dict[str, str] = Field(default_factory=dict)
    user_env: str = "WARRANTY_CRM_USER"
    password_env: str = "WARRANTY_CRM_PASSWORD"
    timeout_s: float = Field(10.0, gt=0)


class Tools(Part):
    """Registry and tickets."""

    registry: Literal["sqlite", "crm"] = "sqlite"
    tickets: Literal["sqlite", "crm"] = "sqlite"
    database: str = "warranty.db"
    breaker: Breaker = Breaker()
    crm: Crm = Crm()

    @model_validator(mode="after")
    def _has_address(self) -> Tools:
        if "crm" in (self.registry, self.tickets) and not self.crm.base_url:
            raise ValueError("a crm needs crm.base_url")
        return self


class Contact(Part):
    """Whom to name for a topic."""

    topic: str
    text: str


class Words(Part):
    """What replies say and how mails are read."""

    default_language: Literal["en", "pl"] = "en"
    timezone: str = "UTC"
    response_days: int = Field(2, ge=1)
    repair_warranty_months: int = Field(6, ge=0)
    reply_to_spam: bool = True
    words: dict[str, list[str] | dict[str, list[str]]] = Field(default_factory=dict)
    contacts: list[Contact] = Field(
        default_factory=lambda: [Contact(topic="default", text="office@northpine.example")], min_length=1
    )

    @field_validator("timezone")
    @classmethod
    def _zone_exists(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"there is no time zone '{name}'") from None
        return name

    def contact(self, topic: str | None = None) -> str:
        """The contact for a topic; the default contact if the topic has none."""
        for contact in self.contacts:
            if contact.topic == topic:
                return contact.text
        return next(
            (contact.text for contact in self.contacts if contact.topic == "default"), self.contacts[0].text
        )


class Privacy(Part):
    """How long texts are kept."""

    keep_bodies_days: float = Field(30.0, ge=0)


class Evals(Part):
    """The project's own cases."""

    test_suite_path: str = "evals/scenarios"
    pass_threshold: float = Field(99.0, gt=0, le=100)
    jobs: int = Field(4, ge=1)


FIRST_STEP = "01-extract-serial"


@dataclass(frozen=True, slots=True)
class WarrantySettings:
    """Everything together."""

    folder: Path
    """The project's folder, from which relative paths start."""
    orchestration: Orchestration
    playbook: Playbook
    agent: Agent
    mail: Mail
    tools: Tools
    warranty: Words
    privacy: Privacy
    eval: Evals

    def path(self, text: str) -> Path:
        """A path in the settings, relative to the project's folder."""
        return self.folder / Path(text).expanduser()


HEADINGS: Mapping[str, type[Part]] = {
    "orchestration": Orchestration,
    "playbook": Playbook,
    "agent": Agent,
    "mail": Mail,
    "tools": Tools,
    "warranty": Words,
    "privacy": Privacy,
    "eval": Evals,
}


def read(values: Mapping[str, Any], folder: Path, place: Placed = lambda keys: NOWHERE) -> WarrantySettings:
    """The application's settings from a project's.

    Raises:
        SettingsError: lists everything wrong.
    """
    parts, problems = _read_headings(values, folder, place)
    if problems:
        raise SettingsError("The settings", problems)
    return WarrantySettings(folder, **parts)


def wrong_values(values: Mapping[str, Any], folder: Path, place: Placed) -> list[Problem]:
    """Problems with the values of known keys, for a caller that already reports unknown keys."""
    return _read_headings(values, folder, place, unknown=False)[1]


def _read_headings(
    values: Mapping[str, Any], folder: Path, place: Placed, *, unknown: bool = True
) -> tuple[dict[str, Any], list[Problem]]:
    """The usable headings, and the problems, in the order of the keys."""
    parts: dict[str, Any] = {}
    problems: list[Problem] = []
    for name in sorted(HEADINGS, key=lambda heading: [*values, heading].index(heading)):
        value = values.get(name)
        try:
            parts[name] = HEADINGS[name].model_validate(value if value is not None else {})
        except ValidationError as error:
            problems += heading_problems(error, HEADINGS[name], name, place, unknown=unknown)
    playbook = parts.get("playbook")
    orchestration = parts.get("orchestration")
    for key in values.get("playbook") or () if playbook is not None else ():
        retired = key == "scenarios_dir" and orchestration is not None and not orchestration.legacy_available
        if (
            key.endswith("_dir")
            and not retired
            and not (folder / getattr(playbook, key)).expanduser().is_dir()
        ):
            message = (
                f"'playbook.{key}': there is no folder '{getattr(playbook, key)}'. Leave the key out to use "
                "what ships; `detent warranty init DIR` copies it for editing."
            )
            problems.append(Problem("", message, place(("playbook", key)), f"playbook.{key}"))
    return parts, problems
