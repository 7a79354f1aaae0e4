"""The settings of the coding flow, under `coding` in the project file.

Does not belong here: what one request adds on the command line (`options`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from detent.authoring.heading import Placed, heading_problems
from detent.authoring.problem import NOWHERE
from detent.dispatch.config import StepConfig
from detent.runtime.settings import Settings, SettingsError

HEADING = "coding"
ASSISTANT = (HEADING, "steps", "assistant")
CONTEXT_TOKENS = 32_000
"""Tokens that a request may have where neither the model nor the settings say."""


class Part(BaseModel):
    """A heading, or something below one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Check(Part):
    """The command that tells whether a request is really done."""

    command: str = Field(min_length=1)
    when: Literal["always", "changed"] = "always"
    """`changed`: only if something was changed, or a command run."""


def _check(value: Any) -> Any:
    if value is not None and not isinstance(value, str | Mapping | Check):
        raise ValueError("say a command, or {command: …, when: always | changed}")
    return {"command": value} if isinstance(value, str) else value


class ToolRules(Part):
    """Which calls need no question, and which are refused."""

    allow: list[str] = Field(default_factory=list)
    deny: list[str] = Field(default_factory=list)


class Steps(Part):
    """Configuration of the steps, as under `steps`."""

    assistant: dict[str, Any] | None = None


class CodingSettings(Part):
    """All settings of the coding flow."""

    steps: Steps = Steps()
    tools: ToolRules = ToolRules()
    done_when: Annotated[Check | None, BeforeValidator(_check)] = None
    strict_completion: bool = False
    protect: list[str] = Field(default_factory=list)
    """Paths that no file tool may change, such as `tests/**`."""
    test_command: str | None = Field(None, min_length=1)
    """What "run the tests" means without a model; found by itself where there is none."""
    max_iterations: int = Field(40, ge=1, le=10_000)
    unproductive_limit: int = Field(3, ge=1)
    repeat_limit: int = Field(3, ge=2)
    max_tool_calls_per_turn: int = Field(20, ge=1)
    model_timeout_s: float = Field(120.0, gt=0)
    request_timeout_s: float = Field(1800.0, gt=0)
    max_retries: int = Field(2, ge=0, le=20)
    max_parallel: int = Field(8, ge=1, le=64)
    max_task_depth: int = Field(3, ge=0, le=10)
    task_max_iterations: int = Field(10, ge=1)
    context_tokens: int | None = Field(None, ge=1000)
    network: bool = False
    """Whether commands reach the network, where they run in a sandbox."""
    sandbox: bool | None = None
    """None: where one is available. True: commands are refused where none is. False: never."""
    pass_env: list[str] = Field(default_factory=list)
    """Names of environment variables that commands see besides the usual ones."""
    skills: list[str] = Field(default_factory=list)
    """Folders of skills, each a folder with a SKILL.md."""
    instructions: str | None = Field(None, min_length=1)
    """Added to the assistant's instructions."""
    write_legacy_flags: bool = True
    """Whether session files also have the booleans that older programs read."""


def assistant_config(settings: Settings, own: CodingSettings) -> StepConfig | None:
    """Who performs the assistant, as the settings of a project say.

    Raises:
        ConfigurationError: lists all problems, each with its place.
    """
    if own.steps.assistant is None:
        return None

    def where(name: str) -> str:
        return f"{settings.place(*ASSISTANT, name)}: {'.'.join(ASSISTANT)}"

    folder = settings.base(*ASSISTANT, "prompt_file").absolute()
    return StepConfig.read(own.steps.assistant, where=where, folder=folder, read_text=_read_text)


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def coding_settings(settings: Settings, *, unknown: bool = True) -> CodingSettings:
    """The settings of the coding flow in a project; without `unknown`, unknown keys are reported elsewhere.

    Raises:
        SettingsError: lists all problems, each with its place.
    """
    return read(settings.section(HEADING), lambda keys: settings.place(*keys), unknown=unknown)


def read(
    values: Mapping[str, Any], place: Placed = lambda keys: NOWHERE, *, unknown: bool = True
) -> CodingSettings:
    """Check the values under the heading.

    Raises:
        SettingsError: lists all problems at once.
    """
    try:
        return CodingSettings.model_validate(dict(values))
    except ValidationError as error:
        problems = list(heading_problems(error, CodingSettings, HEADING, place, unknown=unknown))
        raise SettingsError("The settings", problems) from error
