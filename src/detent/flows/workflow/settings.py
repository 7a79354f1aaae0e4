"""The headings of the project file that workflows have: `workflow`, `validation`, `notify`.

Their keys are known here and their values read, every problem with where it stands.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.runtime.settings import Keys, Settings, SettingsError, config_home

workflow: Keys = dict.fromkeys(("max_parallel", "allow_private"))
validation: Keys = {"stages": {"*": dict.fromkeys(("command", "fix_command", "timeout"))}}
notify: Keys = dict.fromkeys(("folder", "webhook_env"))

STAGES = ("format", "lint", "typecheck", "test")
"""Stages that every project has, though perhaps no command for them."""
MAX_PARALLEL = 8
SHORTEST, LONGEST = 30.0, 600.0
"""Seconds a stage may be given."""
FOLDER = "workflows"
"""Where workflow files are: in `.detent` of the project, and beside the user's own settings."""

_STAGE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_HOST = re.compile(r"\[?[\w.:-]+\]?(?:/[0-9]{1,3})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class StageSettings:
    """What the settings say about one stage; None where they say nothing."""

    place: str = ""
    command: tuple[str, ...] | None = None
    fix_command: tuple[str, ...] | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """What the settings say about workflows."""

    max_parallel: int = MAX_PARALLEL
    """Iterations and steps side by side, where a loop has no bound of its own."""
    allow_private: bool | tuple[str, ...] | None = None
    """Hosts, addresses and networks that may be fetched from though they are not public; true: all.

    None: this machine, where a step itself asks for it.
    """
    stages: Mapping[str, StageSettings] = field(default_factory=dict)
    notify_folder: Path | None = None
    """Where notices are written; None: wherever the tool keeps them."""
    notify_webhook_env: str | None = None
    """The variable that holds the address notices are posted to."""

    @classmethod
    def read(cls, settings: Settings) -> WorkflowSettings:
        """The headings, checked; `SettingsError` with all problems."""
        reading = _Reading(settings)
        found = cls(
            reading.max_parallel(), reading.allow_private(), reading.stages(), reading.notify_folder(),
            reading.webhook_env(),
        )  # fmt: skip
        if reading.problems:
            raise SettingsError("The settings", reading.problems)
        return found


def user_workflows(settings: Settings, environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder of the user's own workflows, beside the user's own settings; None for a user without one."""
    environ = os.environ if environ is None else environ
    said = environ.get("DETENT_USER_CONFIG")
    if said:
        return (settings.folder / Path(said).expanduser()).parent / FOLDER
    home = config_home(environ)
    return home / FOLDER if home is not None else None


def project_workflows(settings: Settings) -> Path:
    """The folder of the project's own workflows."""
    return settings.folder / ".detent" / FOLDER


class _Reading:
    """Reads value by value and gathers what is wrong with them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problems: list[str] = []
        self.workflow, self.validation, self.notify = map(
            self._mapping, (("workflow",), ("validation",), ("notify",))
        )

    def max_parallel(self) -> int:
        said = self.workflow.get("max_parallel")
        if said is None:
            return MAX_PARALLEL
        if type(said) is not int or said < 1:
            self._wrong(("workflow", "max_parallel"), "takes a whole number of 1 or more")
            return MAX_PARALLEL
        return said

    def allow_private(self) -> bool | tuple[str, ...] | None:
        said = self.workflow.get("allow_private")
        if said is None or isinstance(said, bool):
            return said
        listed = [said] if isinstance(said, str) else said
        if not isinstance(listed, list) or not all(
            isinstance(one, str) and _HOST.fullmatch(one) for one in listed
        ):
            self._wrong(
                ("workflow", "allow_private"),
                "takes true, false, or a list of hosts, addresses and networks, such as "
                "[localhost, 10.1.0.0/16]",
            )
            return False
        return tuple(listed)

    def stages(self) -> dict[str, StageSettings]:
        said = self._mapping(("validation", "stages"))
        return {str(name): self._stage(str(name), one) for name, one in said.items() if one is not None}

    def _stage(self, name: str, said: Any) -> StageSettings:
        way = ("validation", "stages", name)
        if not _STAGE.fullmatch(name):
            what = "a stage's name is up to 64 small letters, digits, - and _, a letter first"
            self.problems.append(f"{self.settings.place(*way)}: 'validation.stages.{name}': {what}.")
        if not isinstance(said, Mapping):
            self._wrong(way, "takes named values, such as `command: [pytest, -q]`")
            return StageSettings()
        return StageSettings(
            self.settings.place(*way),
            self._command((*way, "command"), said.get("command")),
            self._command((*way, "fix_command"), said.get("fix_command")),
            self._timeout((*way, "timeout"), said.get("timeout")),
        )

    def _command(self, way: tuple[str, ...], said: Any) -> tuple[str, ...] | None:
        """A command as its words; a text is split as a shell would."""
        if said is None:
            return None
        if isinstance(said, str):
            try:
                words = shlex.split(said)
            except ValueError as error:
                self._wrong(way, f"cannot be split into words ({error}); write it as a list")
                return None
        elif isinstance(said, list) and all(isinstance(word, str) for word in said):
            words = said
        else:
            self._wrong(way, "takes a program and its arguments: a list of texts, or one text")
            return None
        if not words or not words[0].strip():
            self._wrong(way, "takes a program and its arguments; it is empty")
            return None
        return tuple(words)

    def _timeout(self, way: tuple[str, ...], said: Any) -> float | None:
        if said is None:
            return None
        number = isinstance(said, int | float) and not isinstance(said, bool)
        if not number or not SHORTEST <= said <= LONGEST:
            self._wrong(way, f"takes seconds from {SHORTEST:g} to {LONGEST:g}")
            return None
        return float(said)

    def notify_folder(self) -> Path | None:
        said = self.notify.get("folder")
        if said is None:
            return None
        if not isinstance(said, str) or not said.strip():
            self._wrong(("notify", "folder"), "takes the path of a folder")
            return None
        return self.settings.base("notify", "folder") / Path(said).expanduser()

    def webhook_env(self) -> str | None:
        said = self.notify.get("webhook_env")
        if said is None:
            return None
        if not isinstance(said, str) or not _VARIABLE.fullmatch(said):
            # What stands there may be the address itself, which is a secret: it is not repeated.
            self._wrong(
                ("notify", "webhook_env"),
                "takes the name of the variable that holds the address, not the address",
            )
            return None
        return said

    def _mapping(self, way: tuple[str, ...]) -> Mapping[str, Any]:
        value = self.settings.get(*way, default={})
        if isinstance(value, Mapping):
            return value
        self._wrong(way, "takes named values")
        return {}

    def _wrong(self, way: tuple[str, ...], what: str) -> None:
        self.problems.append(f"{self.settings.place(*way)}: '{'.'.join(way)}' {what}.")
