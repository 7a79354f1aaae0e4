"""One show to be made: the request, the places of its files, the limits, and who performs which step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent.apps.choreography.domain.song_file import check_song
from detent.apps.choreography.output import Output, check_name
from detent.apps.choreography.request import new_request, project_folder
from detent.apps.choreography.settings import HEADING, JobConfig, files_named, job_config
from detent.authoring.document import file_bytes
from detent.authoring.problem import Problem, problems_of
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Job:
    """A checked job: nothing has begun, and nothing about it is wrong."""

    config: JobConfig
    settings: Settings
    """With the values of the command line."""
    request: Mapping[str, Any]
    output: Output

    @classmethod
    def of(
        cls,
        settings: Settings,
        song: Path,
        *,
        changes: Mapping[tuple[str, ...], Any] | None = None,
        known: Sequence[Problem] = (),
        out: Path | None = None,
        force: bool = False,
        picture: bool = True,
        **wishes: Any,
    ) -> Job:
        """The job for a song; `changes` are settings of the choreographer, `wishes` go to `new_request`.

        `known` problems of the settings, unknown keys among them, are listed with those that are found here.

        Raises:
            ConfigurationError: settings, song, rig, templates or places cannot be used; all problems at once.
            IntegrationMissing: the libraries that read songs are not installed.
        """
        settings = settings.over({(HEADING, *keys): value for keys, value in (changes or {}).items()})
        problems = list(known)
        try:
            config = job_config(settings, unknown=not known)
        except ConfigurationError as error:
            problems += getattr(error, "problems", None) or ([] if known else problems_of(error))
            config = files_named(settings)
        folder = project_folder(settings)
        project = config.project_name or song.stem
        place = folder / config.output_dir if out is None else out
        output = Output.of(project, place, picture=picture, force=force)
        try:
            check_name(project)
            output.check()
            output.check_place()
        except ConfigurationError as error:
            problems += problems_of(error)
        request = new_request(config, song, folder=folder, known=problems, **wishes)
        return cls(config, settings, request, output)

    @property
    def budget(self) -> Budget:
        """What agents may use."""
        agent = self.config.agent
        return Budget(tokens=agent.token_budget, enforce=agent.enforce_token_budget)

    @property
    def data(self) -> dict[str, Any]:
        """What the run starts from. It keeps its limits, whatever the settings are when it is resumed."""
        agent = self.config.agent
        limits = {
            "max_iterations": agent.max_iterations,
            "pass_threshold": agent.success_threshold,
            "token_buffer_pct": agent.token_buffer_pct,
        }
        return {"request": {**self.request, "output": self.output.to_plain()}, "settings": limits}


def request_for(
    settings: Settings,
    audio: Path,
    *,
    fixtures: Path | None = None,
    templates: Sequence[Path] | None = None,
    **wishes: Any,
) -> dict[str, Any]:
    """A prepared request outside a run: for a song, or for an `audio.json` that it was measured as.

    `wishes` go to `new_request`.

    Raises:
        ConfigurationError: a file cannot be used.
        AudioProblem: the song cannot be measured.
    """
    from detent.apps.choreography.songs import analysed

    config = job_config(
        settings.over({(HEADING, *keys): value for keys, value in files_given(fixtures, templates).items()})
    )
    request = new_request(config, audio, folder=project_folder(settings), **wishes)
    if audio.suffix.lower() != ".json":
        measured = analysed(request)
    else:
        measured = read_analysis(audio)
        request["audio_path"] = measured["audio_path"]
        request["project"] = config.project_name or Path(measured["audio_path"]).stem
    return {**request, "audio_sha256": measured["audio_sha256"], "audio": measured}


def files_given(fixtures: Path | None, templates: Sequence[Path] | None) -> dict[tuple[str, ...], Any]:
    """Settings for the rig and the templates of a command line; those of the project where there are none."""
    changes: dict[tuple[str, ...], Any] = {}
    if fixtures is not None:
        changes["fixture_config_path",] = str(fixtures.resolve())
    if templates:
        changes["template_dirs",] = [str(folder.resolve()) for folder in templates]
    return changes


def read_analysis(path: Path) -> dict[str, Any]:
    """An `audio.json`.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        audio = json.loads(file_bytes(path))
        check_song(audio)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(
            f"{path} is not the analysis of a song: {reason}\n"
            f"Make one with: detent choreography analyze SONG --out audio.json"
        ) from error
    return dict(audio)
