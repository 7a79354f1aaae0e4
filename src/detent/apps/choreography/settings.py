"""The settings of the light-show choreographer, under `choreography` in the project file.

Does not belong here: what one run adds on the command line (`request`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from detent.apps.choreography.domain.vocabulary import CHANNEL_DEFAULTS, COLOURS, GOBOS, POSES, SHUTTERS, Pose
from detent.authoring.heading import Placed, heading_problems
from detent.authoring.problem import NOWHERE
from detent.kernel.errors import nearest
from detent.runtime.settings import Settings, SettingsError

HEADING = "choreography"


class Part(BaseModel):
    """A heading, or something below one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Assumptions(Part):
    """What is known about songs and need not be measured."""

    beats_per_bar: Literal[3, 4] | None = None


class Angles(Part):
    """A pose, in degrees."""

    pan: float
    tilt: float


class Poses(Part):
    """Poses of the project: new ones, and other angles for those that ship."""

    custom_poses: dict[str, Angles] = Field(default_factory=dict)
    pose_overrides: dict[str, Angles] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Poses:
        for name in self.pose_overrides:
            if name not in POSES:
                raise ValueError(_unknown("pose to override", name, POSES))
        for name in self.custom_poses:
            if name in POSES:
                raise ValueError(f"'{name}' ships with Detent; put it under pose_overrides to change it")
        return self

    @property
    def all(self) -> dict[str, Pose]:
        """Every pose by name."""
        own = {**self.pose_overrides, **self.custom_poses}
        return {**POSES, **{name: Pose(angles.pan, angles.tilt) for name, angles in own.items()}}


class Features(Part):
    """What the show may use. A disabled feature has its default everywhere."""

    enable_shutter: bool = True
    enable_color: bool = True
    enable_gobo: bool = True


class ChannelDefaults(Part):
    """What the light looks like where nothing else is planned."""

    shutter: str = CHANNEL_DEFAULTS["shutter"]
    color: str = CHANNEL_DEFAULTS["color"]
    gobo: str = CHANNEL_DEFAULTS["gobo"]

    @model_validator(mode="after")
    def _known(self) -> ChannelDefaults:
        for name, value, known in (
            ("shutter", self.shutter, SHUTTERS),
            ("color", self.color, COLOURS),
            ("gobo", self.gobo, GOBOS),
        ):
            if value not in known:
                raise ValueError(_unknown(name, value, known))
        return self


class AgentSettings(Part):
    """How often a show is attempted, what passes, and what it may cost."""

    max_iterations: int = Field(3, ge=1)
    success_threshold: float = Field(70, ge=0, le=100)
    use_state_machine: bool = True
    """False: a plain loop, without journal and resume."""
    token_budget: int = Field(75_000, ge=1)
    enforce_token_budget: bool = True
    token_buffer_pct: float = Field(0.2, ge=0)


class JobConfig(Part):
    """All settings of the choreographer."""

    project_name: str | None = Field(None, min_length=1)
    """The song's file name where there is none."""
    output_dir: str = "."
    assumptions: Assumptions = Assumptions()
    fixture_config_path: str | None = None
    """The default rig of four heads where there is none."""
    template_dirs: list[str] = Field(default_factory=list)
    include_notes_track: bool = True
    pose_config: Poses = Poses()
    planner_features: Features = Features()
    channel_defaults: ChannelDefaults = ChannelDefaults()
    agent: AgentSettings = AgentSettings()
    frame_ms: Literal[20, 25, 50] = 25
    xlights_version: str = Field("2024.19", min_length=1)


def job_config(settings: Settings, *, unknown: bool = True) -> JobConfig:
    """The choreographer's settings in a project; without `unknown`, unknown keys are reported elsewhere.

    Raises:
        SettingsError: lists all problems, each with its place.
    """
    return read(settings.section(HEADING), lambda keys: settings.place(*keys), unknown=unknown)


def files_named(settings: Settings) -> JobConfig:
    """The rig, the templates and the name in settings that are wrong otherwise; all else as it ships."""
    own = settings.get(HEADING, default={})
    values = own if isinstance(own, Mapping) else {}
    kept: dict[str, Any] = {}
    for key in ("fixture_config_path", "template_dirs", "project_name"):
        try:
            JobConfig.model_validate({key: values.get(key)})
        except ValidationError:
            continue
        kept[key] = values.get(key)
    return JobConfig.model_validate(kept)


def read(
    values: Mapping[str, Any], place: Placed = lambda keys: NOWHERE, *, unknown: bool = True
) -> JobConfig:
    """Check the values under the heading; without `unknown`, unknown keys are reported elsewhere.

    Raises:
        SettingsError: lists all problems at once.
    """
    try:
        return JobConfig.model_validate(dict(values))
    except ValidationError as error:
        problems = list(heading_problems(error, JobConfig, HEADING, place, unknown=unknown))
        raise SettingsError("The settings", problems) from error


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    """What is wrong with a name; the full stop is added where it is printed."""
    names = list(known)
    hint = nearest(name, names) or f" Known: {', '.join(names)}"
    return f"there is no {what} '{name}'.{hint}".rstrip(".")
