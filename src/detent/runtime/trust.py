"""Trusted projects: recorded outside the project, by the content of its files.

Code of a project from elsewhere is not executed until a person has reviewed it. `detent trust` records the
digest of every file that configures Detent or is executed; a change makes the project untrusted again. A
folder may be trusted by its path alone, for people who write the project themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from detent.kernel.errors import ConfigurationError
from detent.runtime.project_files import MOST_FILES, ProjectFiles, files_below
from detent.runtime.settings import FILES, Settings, SettingsError, config_home, read_settings

VARIABLE = "DETENT_TRUST"
"""Environment variable for machines that run known projects only, such as CI and containers: `all`."""
FILE = "trust.json"
"""Name of the trust file in the user's configuration folder."""
MOST_NAMED = 5
"""Most files that a message names."""

State = Literal["nothing", "trusted", "untrusted", "changed", "suspended"]
"""`nothing`: the folder holds no file that requires trust."""


class Untrusted(ConfigurationError):
    """The project's files may not be executed: no person has trusted their present content."""

    def __init__(
        self, root: Path, state: State, changed: list[str], target: str = "", reason: str = ""
    ) -> None:
        self.root, self.state, self.changed = root, state, changed
        command = f"detent trust {target}".rstrip()
        if state == "changed":
            explanation = f"The project in {root} has changed since it was trusted: {_first_names(changed)}."
            command = f"{command} (a project of your own: detent trust --always {target}".rstrip() + ")"
        elif state == "suspended":
            explanation = f"The project in {root} is not trusted any more: {reason}."
        else:
            explanation = (
                f"The project in {root} is not trusted: nothing of it runs before you have looked at it."
            )
        super().__init__(f"{explanation} To look and trust: {command}")


class StoreOutside(ConfigurationError):
    """The store is not opened: an untrusted project chose it, and it is not in the project's folder."""

    def __init__(self, place: str, trust: Trust) -> None:
        self.place, self.root = place, trust.root
        super().__init__(
            f"The store {place} is outside the project in {trust.root}, which {trust.why_not}, so it is not "
            f"opened. Name the store yourself (--store), or trust the project: "
            f"detent trust {trust.target}".rstrip()
        )


class TrustFile:
    """The user's private record of trusted folders, of files they named, and of hosts allowed for keys."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        home = config_home(environ)
        self.path = home / FILE if home is not None else None

    def read(self) -> dict[str, Any]:
        """The record; `ConfigurationError` if the file is damaged or belongs to another user."""
        if self.path is None:
            return {}
        try:
            with self.path.open("rb") as file:
                owner = os.fstat(file.fileno()).st_uid
                record = json.loads(file.read())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{self.path} cannot be read: {_cause(error)}. Remove it.") from None
        if hasattr(os, "getuid") and owner not in (os.getuid(), 0):
            raise ConfigurationError(f"{self.path} belongs to another user and is not used. Remove it.")
        if not isinstance(record, dict):
            raise ConfigurationError(f"{self.path} holds no record of trusted projects. Remove it.")
        return record

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """Change the record; the changes are saved when the block ends."""
        if self.path is None:
            raise ConfigurationError(
                "There is no folder to remember trusted projects in: set HOME or DETENT_CONFIG_HOME."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self.path.with_name(f"{FILE}.lock")):
                record = self.read()
                yield record
                self._write(record)
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be written: {_cause(error)}.") from None

    def _write(self, record: Mapping[str, Any]) -> None:
        assert self.path is not None
        temporary = self.path.with_name(f".{FILE}.{secrets.token_hex(4)}.tmp")
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(record, file, indent=1, sort_keys=True)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Exclude other processes, on systems that can lock files."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Trust:
    """The state of trust in one project."""

    files: ProjectFiles
    environ: Mapping[str, str]
    config: Path | None = None
    """The settings file, if commands must name it."""
    beside: Trust | None = None
    """The working folder, if the settings belong to another folder: its definitions are used, too."""
    partly: bool = False
    """Only some of the files that the folder was trusted with are compared."""

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str] | None = None) -> Trust:
        """The trust in the project that these settings belong to."""
        environ = os.environ if environ is None else environ
        files, file = ProjectFiles(settings, environ), settings.file
        elsewhere = files.root != settings.folder.resolve()
        named = file is not None and (elsewhere or file.name not in FILES)
        beside = cls.of_folder(settings.folder, environ) if elsewhere else None
        return cls(files, environ, file if named else None, beside)

    @classmethod
    def of_folder(cls, folder: Path, environ: Mapping[str, str]) -> Trust:
        """The trust in the definitions of a folder; settings that lie there are not used."""
        return cls(ProjectFiles(Settings(folder), environ), environ, partly=True)

    @property
    def root(self) -> Path:
        """The project's folder."""
        return self.files.root

    @property
    def everything(self) -> bool:
        """The environment declares every project on this machine trusted."""
        value = self.environ.get(VARIABLE, "").strip().lower()
        if value not in ("", "all"):
            raise ConfigurationError(f"{VARIABLE} takes 'all' and nothing else.")
        return value == "all"

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The entry of the project's folder in the user's file."""
        record: Mapping[str, Any] = _folders(TrustFile(self.environ).read()).get(str(self.root), {})
        return record

    @cached_property
    def state(self) -> State:
        """Whether the project may run."""
        if self.record.get("suspended"):
            return "suspended"
        if self.everything:
            return "trusted"
        if self.always:
            return "trusted"
        if "files" in self.record and not self.crowded:
            return "changed" if self.changed else "trusted"
        return "nothing" if self.files.nothing else "untrusted"

    @cached_property
    def always(self) -> bool:
        """The folder, or one above it, is trusted by its path."""
        folders = _folders(TrustFile(self.environ).read())
        return any(folders.get(str(folder), {}).get("always") for folder in (self.root, *self.root.parents))

    @cached_property
    def changed(self) -> list[str]:
        """Files that have changed since the project was trusted."""
        then, now = self.record.get("files") or {}, self.files.digests
        return _different({name: then[name] for name in now if name in then} if self.partly else then, now)

    @property
    def crowded(self) -> list[Path]:
        """Folders with too many files for the project to be trusted by its content."""
        return self.files.crowded if self.files.files else []

    @property
    def ok(self) -> bool:
        """Code of the project may be executed."""
        own = self.state in ("nothing", "trusted")
        return own and (self.beside is None or self.beside.ok)

    def require(self) -> None:
        """Raise `Untrusted` unless the project may run."""
        if self.state not in ("nothing", "trusted"):
            changed = self.changed if self.state == "changed" else []
            reason = str(self.record.get("suspended") or "")
            raise Untrusted(self.root, self.state, changed, self.target, reason)
        if self.beside is not None:
            self.beside.require()

    @property
    def target(self) -> str:
        """The project as arguments of `detent trust`; nothing for the working folder."""
        return (
            f"--config {shlex.quote(str(self.config))}"
            if self.config is not None
            else _folder_argument(self.root)
        )

    @property
    def why_not(self) -> str:
        """Why the project may not run, as the end of a sentence about it."""
        return "has changed since it was trusted" if self.state == "changed" else "is not trusted"

    @property
    def left_out(self) -> str | None:
        """One line for read-only commands: the parts they did not load, and how to trust the project."""
        if self.ok or not (self.files.plugins or self.files.programs):
            return None
        parts = [f"plugins ({', '.join(self.files.plugins)})"] if self.files.plugins else []
        parts += [f"programs ({', '.join(self.files.programs)})"] if self.files.programs else []
        return (
            f"This project {self.why_not}, so its {' and '.join(parts)} are left out. "
            f"To look and trust: detent trust {self.target}".rstrip()
        )

    # -- what people decide ---------------------------------------------------------------------------------

    def grant(self, *, always: bool = False) -> None:
        """Record that a person trusts the project: its present content, or with `always` its folder.

        Raises:
            ConfigurationError: a file has changed since `files.digests` was read for the person to review.
        """
        if not always and self.crowded:
            raise ConfigurationError(
                f"{self.crowded[0]} has more than {MOST_FILES:,} files, too many to trust by their content. "
                f"A project of your own: detent trust --always {self.target}".rstrip()
            )
        seen = {} if always else self.files.digests
        if not always and (changed := _different(seen, self.files.again().digests)):
            raise ConfigurationError(
                f"Nothing was changed: {_first_names(changed)} changed while you looked. Look again: "
                f"detent trust {self.target}".rstrip()
            )
        with TrustFile(self.environ).changing() as record:
            entry: dict[str, Any] = {"at": time.time()}
            entry |= {"always": True} if always else {"files": dict(seen)}
            named = _folders(record).get(str(self.root), {}).get("named")
            record.setdefault("folders", {})[str(self.root)] = entry | ({"named": named} if named else {})

    def revoke(self) -> bool:
        """Remove the project from the record; False if it was not in it."""
        with TrustFile(self.environ).changing() as record:
            return record.setdefault("folders", {}).pop(str(self.root), None) is not None

    def suspend(self, reason: str) -> None:
        """Suspend the trust in the project, of any form, until a person trusts it again."""
        with TrustFile(self.environ).changing() as record:
            record.setdefault("folders", {}).setdefault(str(self.root), {})["suspended"] = reason

    def name(self, file: Path) -> None:
        """Record that a person ran this Python file or definition by naming it."""
        if self.everything or self.was_named(file):
            return
        # Where nothing can be recorded, the file has to be named again.
        with contextlib.suppress(ConfigurationError), TrustFile(self.environ).changing() as record:
            entry = record.setdefault("folders", {}).setdefault(str(self.root), {})
            entry["named"] = sorted({*entry.get("named", ()), str(file.resolve())})

    def was_named(self, file: Path) -> bool:
        """Whether a file or folder that a run was started from may be loaded again: a person named it, or
        trusts it."""
        file = file.resolve()
        if self.everything or self.always or str(file) in self.record.get("named", ()):
            return True
        trusted = set(self.files.files.values()) if self.ok else set()
        parts = files_below(file) if file.is_dir() else [file]
        return bool(parts) and trusted.issuperset(parts)


@contextlib.contextmanager
def trusted_as_made(folder: Path, config: str | None = None) -> Iterator[None]:
    """Keep the project in a folder trusted while a person's own command writes files of it.

    A project that was not trusted before is not trusted afterwards either.
    """
    was = Trust.of(settings_to_look_at(folder, config)).ok
    yield
    after = Trust.of(settings_to_look_at(folder, config))
    if was and not after.ok:
        with contextlib.suppress(ConfigurationError):  # where nothing can be recorded, the user is asked
            after.grant()


def settings_to_look_at(folder: Path | None, config: str | None = None) -> Settings:
    """The settings of a project as far as they can be read without executing anything of it."""
    try:
        return read_settings(
            config, folder=folder, headings=lambda settings: dict.fromkeys(map(str, settings.values))
        )
    except SettingsError as error:
        if error.settings is None:
            raise
        return error.settings  # other commands report the problems


def _different(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


def _folders(record: Mapping[str, Any]) -> Mapping[str, Any]:
    folders = record.get("folders")
    return folders if isinstance(folders, Mapping) else {}


def _folder_argument(root: Path) -> str:
    """A folder as an argument of a command; empty for the working folder."""
    with contextlib.suppress(OSError):
        if root == Path.cwd().resolve():
            return ""
    return shlex.quote(str(root))


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is damaged"
