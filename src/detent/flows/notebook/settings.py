"""The settings of the notebook flow, under `notebook` in the project file.

Does not belong here: what one run adds on the command line (`options`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from detent.authoring.heading import Placed, heading_problems
from detent.authoring.problem import NOWHERE
from detent.flows.notebook.domain.stability import Stability
from detent.runtime.settings import Settings, SettingsError

HEADING = "notebook"

Profile = Literal["compact", "full"]
CodePolicy = Literal["open", "guarded", "strict"]


class NotebookSettings(BaseModel):
    """All settings of the notebook flow."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    max_retries: int = Field(3, ge=1, le=20)
    """Iterations of a behavior, the first included."""
    max_rounds: int = Field(4, ge=1, le=20)
    """Rounds of text and code in an iteration."""
    max_behaviors: int = Field(6, ge=1, le=50)
    """Behaviors of a step, counted since it was entered."""
    max_transitions: int = Field(500, ge=1)
    max_backtracks: int = Field(2, ge=0)
    cell_timeout: float = Field(300.0, gt=0)
    criterion_timeout: float = Field(30.0, gt=0)
    code_policy: CodePolicy = "guarded"
    """What cells written by agents may do."""
    stability_threshold: float = Field(0.1, gt=0)
    stability_required: bool | None = None
    """None: from 200 rows up; below, the figure measures the sample."""
    kernel_memory: float | None = Field(None, gt=0)
    """Gigabytes of address space of the kernel; None: three quarters of the machine's memory."""
    seed: int = Field(42, ge=0)
    test_size: float = Field(0.2, gt=0, lt=1)
    split: str = "auto"
    """auto, shuffled, group:COLUMN or time:COLUMN."""
    jobs: int = Field(2, ge=1)
    verify: bool = True
    """Whether the finished notebook is executed again from top to bottom."""
    profile: Profile = "compact"
    """full: every step is closed by a behavior that checks it."""

    @property
    def stability(self) -> Stability:
        """How much the score may vary."""
        return Stability(self.stability_threshold, self.stability_required)


def notebook_settings(settings: Settings, *, unknown: bool = True) -> NotebookSettings:
    """The settings of the notebook flow in a project; without `unknown`, unknown keys are reported elsewhere.

    Raises:
        SettingsError: lists all problems, each with its place.
    """
    return read(settings.section(HEADING), lambda keys: settings.place(*keys), unknown=unknown)


def read(
    values: Mapping[str, Any], place: Placed = lambda keys: NOWHERE, *, unknown: bool = True
) -> NotebookSettings:
    """Check the values under the heading.

    Raises:
        SettingsError: lists all problems at once.
    """
    try:
        return NotebookSettings.model_validate(dict(values))
    except ValidationError as error:
        problems = list(heading_problems(error, NotebookSettings, HEADING, place, unknown=unknown))
        raise SettingsError("The settings", problems) from error
