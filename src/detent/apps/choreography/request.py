"""What one run starts from: the song, the rig, the templates and the rules, as JSON values.

All of it is in the run's data, so that a run that is resumed elsewhere, or after the settings have changed,
ends as it began. Does not belong here: where the results go (`output`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from detent.apps.choreography.audio.analysis import check_libraries, check_wishes, chosen, fingerprint
from detent.apps.choreography.audio.problem import AudioProblem
from detent.apps.choreography.domain.library import Library, check_folder, load_library
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import CHANNEL_NAMES, Features, Stage
from detent.apps.choreography.domain.template import Template
from detent.apps.choreography.domain.vocabulary import Pose
from detent.apps.choreography.output import check_text
from detent.apps.choreography.settings import JobConfig
from detent.apps.choreography.show.fixtures import DEFAULT_RIG, Rig, check_layout, read_fixtures
from detent.authoring.problem import Problem, problems_of
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import SettingsError

if TYPE_CHECKING:
    from detent.runtime.settings import Settings

T = TypeVar("T")


def new_request(
    config: JobConfig,
    song: Path,
    *,
    folder: Path,
    base: Path | None = None,
    layout: Path | None = None,
    media: str | None = None,
    analyser: str = "auto",
    bpm: float | None = None,
    known: Iterable[Problem] = (),
) -> dict[str, Any]:
    """The request for a song. Paths of the settings are relative to `folder`.

    Raises:
        ConfigurationError: lists every problem of the song's path, fixtures, templates, layout and base
            sequence, after those that are `known` already.
        IntegrationMissing: the libraries that read songs are not installed.
    """
    problems = list(known)
    check_libraries()
    _tried(problems, lambda: chosen(analyser))
    _tried(problems, lambda: check_wishes(bpm, config.assumptions.beats_per_bar))
    for path in (song, base, media):
        if path is not None:
            _tried(problems, lambda path=path: check_text(path))  # type: ignore[misc]
    sha256 = _tried(problems, lambda: fingerprint(song))
    rig = _tried(problems, lambda: _rig(config, folder)) or DEFAULT_RIG
    if base is not None:
        _tried(problems, lambda: _check_base(base, rig))
    library = _tried(problems, lambda: _own_library(config, folder)) or load_library()
    if layout is not None:
        _tried(problems, lambda: check_layout(rig, layout))
    if problems:
        raise SettingsError("The inputs", problems)
    shipped = load_library()
    return {
        "audio_path": str(song.resolve()),
        "audio_sha256": sha256,
        "xsq_path": None if base is None else str(base.resolve()),
        "project": config.project_name or song.stem,
        "analyser": analyser,
        "bpm": bpm,
        "beats_per_bar": config.assumptions.beats_per_bar,
        "rig": rig.to_plain(),
        "templates": [template.to_plain() for name, template in library.items() if name not in shipped],
        "poses": {name: [pose.pan, pose.tilt] for name, pose in config.pose_config.all.items()},
        "features": _features(config, rig),
        "channel_defaults": config.channel_defaults.model_dump(),
        "frame_ms": config.frame_ms,
        "notes": config.include_notes_track,
        "media": media,
        "xlights_version": config.xlights_version,
    }


def rig_of(request: Mapping[str, Any]) -> Rig:
    """The heads of a run."""
    return Rig.from_plain(request["rig"])


def stage_of(request: Mapping[str, Any]) -> Stage:
    """What planner, implementer and judge know about the place of a run."""
    own = {row["template_id"]: Template.model_validate(row) for row in request["templates"]}
    return Stage(
        heads=len(request["rig"]["fixtures"]),
        library=Library({**_shipped(), **own}),
        poses={name: Pose(*angles) for name, angles in request["poses"].items()},
        features=Features(**request["features"]),
        channel_defaults=request["channel_defaults"],
        wheels=wheels(rig_of(request)),
    )


def song_of(request: Mapping[str, Any]) -> Song:
    """The song of a run that has been prepared."""
    return Song.of(request["audio"])


@cache
def _shipped() -> Library:
    return load_library()


def _rig(config: JobConfig, folder: Path) -> Rig:
    if config.fixture_config_path is None:
        return DEFAULT_RIG
    return read_fixtures(folder / config.fixture_config_path)


def _features(config: JobConfig, rig: Rig) -> dict[str, bool]:
    """What the show may use: what the settings allow, and at least one head has a channel and choices for."""
    allowed = config.planner_features.model_dump()
    channels = {role for fixture in rig.fixtures for role in fixture.dmx_mapping}
    channels -= {channel for channel, names in wheels(rig).items() if len(names) == 1}
    return {name: use and name.removeprefix("enable_") in channels for name, use in allowed.items()}


def wheels(rig: Rig) -> dict[str, tuple[str, ...]]:
    """The colours and gobos that every head with a map of its own has, or if there are none, that any has.

    A shutter that a map lacks is sent as the usual value, so there all names can be used.
    """
    found: dict[str, tuple[str, ...]] = {}
    for channel in ("color", "gobo"):
        maps = [set(getattr(head.maps, channel)) for head in rig.fixtures if channel in head.dmx_mapping]
        if own := [names for names in maps if names]:
            names = set.intersection(*own) or set.union(*own)
            found[channel] = tuple(name for name in CHANNEL_NAMES[channel] if name in names)
    return found


def _own_library(config: JobConfig, folder: Path) -> Library:
    folders = [folder / name for name in config.template_dirs]
    problems = [problem for path in folders for problem in check_folder(path)]
    if problems:
        raise SettingsError("The templates", problems)
    return load_library(*folders)


def _tried(problems: list[Problem], read: Callable[[], T]) -> T | None:
    """What `read` gives; its problems join the others."""
    try:
        return read()
    except (ConfigurationError, AudioProblem) as error:
        problems.extend(problems_of(error))
        return None


def _check_base(path: Path, rig: Rig) -> None:
    from detent.apps.choreography.show.xsq import Base
    from detent.apps.choreography.show.xsq_reader import sequence_bytes

    try:
        Base(sequence_bytes(path)).check_names(rig)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def project_folder(settings: Settings) -> Path:
    """The folder to which paths of the settings are relative: that of the project file."""
    return settings.file.parent if settings.file is not None else settings.folder
