"""The headings of the project file for workflows: `workflow`, `validation`, `notify`.

This module declares their keys and reads their values; every problem names its place.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.authoring.problem import Problem
from detent.runtime.settings import Keys, Settings, SettingsError, config_home

workflow: Keys = dict.fromkeys(("max_parallel", "allow_private"))
validation: Keys = {"stages": {"*": dict.fromkeys(("command", "fix_command", "timeout"))}}
notify: Keys = dict.fromkeys(("folder", "webhook_env"))

MAX_PARALLEL = 8
SHORTEST, LONGEST = 30.0, 600.0
"""Limits of a stage's timeout, in seconds."""
FOLDER = "workflows"
"""Folder of workflow files, in `.detent` of the project and beside the user's own settings."""

_STAGE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_HOST = re.compile(r"\[?[\w.:-]+\]?(?:/[0-9]{1,3})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class StageSettings:
    """Settings of one stage; None if a key is not set."""

    place: str = ""
    command: tuple[str, ...] | None = None
    fix_command: tuple[str, ...] | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """Settings of workflows."""

    max_parallel: int = MAX_PARALLEL
    """Most parallel iterations and steps of a loop without a bound of its own."""
    allow_private: bool | tuple[str, ...] | None = None
    """Hosts, addresses and networks that may be fetched from although they are not public; true: all.

    None: only this machine, and only if a step itself asks for it.
    """
    stages: Mapping[str, StageSettings] = field(default_factory=dict)
    notify_folder: Path | None = None
    """Folder for notices; None: the default of the tool."""
    notify_webhook_env: str | None = None
    """Environment variable that holds the address to which notices are posted."""

    @classmethod
    def read(cls, settings: Settings) -> WorkflowSettings:
        """Read and check the headings.

        Raises:
            SettingsError: some values are wrong; it lists all of them.
        """
        reading = _Reading(settings)
        workflow_settings = cls(
            reading.max_parallel(), reading.allow_private(), reading.stages(), reading.notify_folder(),
            reading.webhook_env(),
        )  # fmt: skip
        if reading.problems:
            raise SettingsError("The settings", reading.problems)
        return workflow_settings


def user_workflows(settings: Settings, environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder of the user's own workflows, beside the user's settings; None if there is none."""
    environ = os.environ if environ is None else environ
    config_file = environ.get("DETENT_USER_CONFIG")
    if config_file:
        return (settings.folder / Path(config_file).expanduser()).parent / FOLDER
    home = config_home(environ)
    return home / FOLDER if home is not None else None


def project_workflows(settings: Settings) -> Path:
    """Return the folder of the project's own workflows."""
    return settings.folder / ".detent" / FOLDER


class _Reading:
    """Reads the values one by one and collects their problems."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problems: list[Problem] = []
        self.workflow, self.validation, self.notify = map(
            self._mapping, (("workflow",), ("validation",), ("notify",))
        )

    def max_parallel(self) -> int:
        value = self.workflow.get("max_parallel")
        if value is None:
            return MAX_PARALLEL
        if type(value) is not int or value < 1:
            self._wrong(("workflow", "max_parallel"), "takes a whole number of 1 or more")
            return MAX_PARALLEL
        return value

    def allow_private(self) -> bool | tuple[str, ...] | None:
        value = self.workflow.get("allow_private")
        if value is None or isinstance(value, bool):
            return value
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(
            isinstance(host, str) and _HOST.fullmatch(host) for host in listed
        ):
            self._wrong(
                ("workflow", "allow_private"),
                "takes true, false, or a list of hosts, addresses and networks, such as "
                "[localhost, 10.1.0.0/16]",
            )
            return False
        return tuple(listed)

    def stages(self) -> dict[str, StageSettings]:
        stages = self._mapping(("validation", "stages"))
        return {
            str(name): self._stage(str(name), stage) for name, stage in stages.items() if stage is not None
        }

    def _stage(self, name: str, value: Mapping[str, Any]) -> StageSettings:
        keys = ("validation", "stages", name)
        if not _STAGE.fullmatch(name):
            rule = "a stage's name is up to 64 small letters, digits, - and _, a letter first"
            self.problems.append(self.settings.problem(keys, f"'validation.stages.{name}': {rule}."))
        return StageSettings(
            str(self.settings.place(*keys)),
            self._command((*keys, "command"), value.get("command")),
            self._command((*keys, "fix_command"), value.get("fix_command")),
            self._timeout((*keys, "timeout"), value.get("timeout")),
        )

    def _command(self, keys: tuple[str, ...], value: Any) -> tuple[str, ...] | None:
        """A command as a list of words; a text is split like in a shell."""
        if value is None:
            return None
        if isinstance(value, str):
            try:
                words = shlex.split(value)
            except ValueError as error:
                self._wrong(keys, f"cannot be split into words ({error}); write it as a list")
                return None
        elif isinstance(value, list) and all(isinstance(word, str) for word in value):
            words = value
        else:
            self._wrong(keys, "takes a program and its arguments: a list of texts, or one text")
            return None
        if not words or not words[0].strip():
            self._wrong(keys, "takes a program and its arguments; it is empty")
            return None
        return tuple(words)

    def _timeout(self, keys: tuple[str, ...], value: Any) -> float | None:
        if value is None:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not SHORTEST <= value <= LONGEST:
            self._wrong(keys, f"takes seconds from {SHORTEST:g} to {LONGEST:g}")
            return None
        return float(value)

    def notify_folder(self) -> Path | None:
        value = self.notify.get("folder")
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self._wrong(("notify", "folder"), "takes the path of a folder")
            return None
        return self.settings.base("notify", "folder") / Path(value).expanduser()

    def webhook_env(self) -> str | None:
        value = self.notify.get("webhook_env")
        if value is None:
            return None
        if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
            # The value may be the address itself, which is a secret: do not repeat it.
            self._wrong(
                ("notify", "webhook_env"),
                "takes the name of the variable that holds the address, not the address",
            )
            return None
        return value

    def _mapping(self, keys: tuple[str, ...]) -> Mapping[str, Any]:
        value = self.settings.get(*keys, default={})
        if isinstance(value, Mapping):
            return value
        self._wrong(keys, "takes named values")
        return {}

    def _wrong(self, keys: tuple[str, ...], problem: str) -> None:
        self.problems.append(self.settings.problem(keys, f"'{'.'.join(keys)}' {problem}."))
