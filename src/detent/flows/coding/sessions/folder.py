"""The folder of session files: written whole or not at all, private, and never over something unreadable."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.adapters.anchored import OpenFolder, open_folder
from detent.adapters.disk import keep_private, private_folder
from detent.flows.coding.sessions.files import BACKUP, file_bytes, keep_backup, locked, replace_file
from detent.flows.coding.sessions.ids import check_session_id, is_beginning, is_session_id
from detent.flows.coding.sessions.reading import (
    SUFFIX,
    Content,
    FileState,
    NoSession,
    TooNew,
    Unusable,
    bytes_of,
    content_of,
    state_of,
)
from detent.flows.coding.sessions.record import SessionRecord, SessionTooNew, iso
from detent.flows.coding.sessions.redaction import Redaction
from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.runtime.settings import Settings

FOLDER = "sessions"
STATE = ".detent"
"""Folder of a project's state, where the store is no file."""
LAST = "last"
"""In place of an id: the newest session of a workspace."""


class SessionNotFound(ConfigurationError):
    """There is no session of this id."""

    def __init__(self, session_id: str, folder: Path) -> None:
        self.session_id = session_id
        super().__init__(
            f"There is no session '{session_id}' in {folder}. List them with: detent sessions list"
        )


class SessionDamaged(ConfigurationError):
    """The file of a session cannot be used, and is not overwritten."""

    def __init__(self, file: Path, problem: str) -> None:
        self.file = file
        self.problem = problem
        """A clause about the file, without a full stop."""
        super().__init__(
            f"The session file {file} {problem}. It stays as it is; move it away, or put back a good copy."
        )


class ListedSession(NamedTuple):
    """One file of the folder, in a listing."""

    id: str
    file: str
    """Its name."""
    state: str | None = None
    is_complete: bool = False
    outcome: str | None = None
    prompt: str = ""
    """What it began with."""
    turns: int = 0
    """Replies of the assistant."""
    created_at: str | None = None
    changed: str | None = None
    files_changed: tuple[str, ...] = ()
    workspace: str | None = None
    is_legacy: bool = False
    in_store_only: bool = False
    """Its file is not there, only its journals."""
    problem: str | None = None
    """Why it cannot be used, a clause about the file; None if it can."""

    def to_plain(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**self._asdict(), "files_changed": list(self.files_changed)}


class SessionFolder:
    """The sessions of a store."""

    def __init__(
        self, path: Path | str, *, secrets: Iterable[str] = (), write_legacy_flags: bool = True
    ) -> None:
        """Values in `secrets` reach no file; `write_legacy_flags` keeps older programs working."""
        self.path = Path(path)
        self.redaction = Redaction(secrets)
        self.write_legacy_flags = write_legacy_flags
        self._known: dict[str, FileState] = {}
        """Files that were usable, by their id, as they were then."""

    def file(self, session_id: str) -> Path:
        """The file of a session.

        Raises:
            ConfigurationError: the id is none.
        """
        return self.path / f"{check_session_id(session_id)}{SUFFIX}"

    def has(self, session_id: str) -> bool:
        """Whether a session has a file, usable or not."""
        return os.path.lexists(self.file(session_id))

    # -- one ------------------------------------------------------------------------------------------------

    def load(self, session_id: str) -> SessionRecord | None:
        """A session, also one of an older format; None if there is none.

        Raises:
            SessionDamaged: its file cannot be used.
            SessionTooNew: its file was written by a newer version.
            ConfigurationError: the id is none, or the folder cannot be read.
        """
        file = self.file(session_id)
        try:
            with open_folder(self.path, self.path) as folder:
                content = _content(folder, file.name)
        except (FileNotFoundError, NotADirectoryError):
            other = self._under_another_name(session_id)
            return None if other is None else other.record
        except TooNew as error:
            raise SessionTooNew(error.version, file) from None
        except Unusable as error:
            raise SessionDamaged(file, str(error)) from None
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from None
        self._note(session_id, content)
        return content.record

    def _under_another_name(self, session_id: str) -> Content | None:
        """A session in a file that is not named after it; the first of several."""
        files = sorted(self._files(), key=lambda entry: entry.name)
        if not files:
            return None
        with open_folder(self.path, self.path) as folder:
            for entry in files:
                with contextlib.suppress(Unusable, FileNotFoundError):
                    content = _content(folder, entry.name, any_name=True)
                    if content.record.session_id == session_id:
                        return content
        return None

    def existing(self, session_id: str) -> SessionRecord:
        """A session that must be there.

        Raises:
            SessionNotFound: there is none; and what `load` raises.
        """
        record = self.load(session_id)
        if record is None:
            raise SessionNotFound(session_id, self.path)
        return record

    def plain(self, record: SessionRecord) -> dict[str, Any]:
        """What is written of a session: without secrets."""
        return self.redaction.session(record.view(legacy_flags=self.write_legacy_flags))

    def save(self, record: SessionRecord, now: float | None = None) -> Path:
        """Write a session, and return its file. A file of an older format that it replaces is kept as `.bak`.

        Raises:
            SessionDamaged: there is a file of this name that cannot be used; it is not overwritten.
            OSError: the file cannot be written; the one that was there is as it was.
        """
        file = self.file(record.session_id)
        plain = self.plain(record)
        plain["updated_at"] = iso(time.time() if now is None else now)
        private_folder(self.path)
        keep_private(self.path)
        with locked(self.path, self.path) as folder:
            try:
                before = self._before(folder, file.name, record.session_id)
                if before is not None and before.is_legacy:
                    keep_backup(folder, file.name, before.raw)
                replace_file(folder, file.name, file_bytes(plain), before)
            except TooNew as error:
                raise SessionTooNew(error.version, file) from None
            except Unusable as error:
                raise SessionDamaged(file, str(error)) from None
            self._known[record.session_id] = state_of(folder.stat(file.name))
        return file

    def _before(self, folder: OpenFolder, name: str, session_id: str) -> Content | None:
        """What is about to be replaced; None if there is nothing, or what was read or written here."""
        try:
            known = self._known.get(session_id) == state_of(folder.stat(name))
            return None if known else _content(folder, name)
        except FileNotFoundError:
            return None

    def _note(self, session_id: str, content: Content) -> None:
        """Remember that a file need not be read before it is replaced."""
        if not content.is_legacy:  # that one is kept before it is replaced
            self._known[session_id] = content.status

    def delete(self, session_id: str) -> Sequence[Path]:
        """Remove the file of a session, usable or not; returns kept originals that are still there.

        Raises:
            SessionNotFound: there is none.
        """
        file = self.file(session_id)
        try:
            with locked(self.path, self.path) as folder:
                folder.remove(file.name)
                with contextlib.suppress(OSError):
                    folder.sync()
        except (FileNotFoundError, NotADirectoryError):
            raise SessionNotFound(session_id, self.path) from None
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be removed: {error.strerror}.") from None
        self._known.pop(session_id, None)
        return sorted(self.path.glob(f"{file.name}{BACKUP}*"))

    # -- many -----------------------------------------------------------------------------------------------

    def list(self) -> Sequence[ListedSession]:
        """Every session file, the one that changed last first; those that cannot be used stand last."""
        return newest_first(self._listed())

    def last(self, workspace: Path | str) -> str | None:
        """The id of a workspace's newest session; None if it has none."""
        here = _resolved(workspace)
        return next(
            (
                item.id
                for item in self.list()
                if item.problem is None and item.workspace is not None and _resolved(item.workspace) == here
            ),
            None,
        )

    def find(self, text: str, workspace: Path | str | None = None) -> str:
        """The id that a command line means: an id, a unique beginning of one, or `last`.

        Raises:
            SessionNotFound: no session is meant.
            ConfigurationError: several are, or the text is no id.
        """
        if text == LAST and workspace is not None:
            found = self.last(workspace)
            if found is None:
                raise ConfigurationError(f"There is no session of the workspace {workspace} in {self.path}.")
            return found
        if is_session_id(text) and self.has(text):
            return text
        known = [file.name.removesuffix(SUFFIX) for file in self._files()]
        matches = sorted(name for name in known if text and name.startswith(text) and is_session_id(name))
        if not matches and text:
            ids = {item.id for item in self._listed() if item.problem is None}
            matches = sorted(name for name in ids if name.startswith(text))
        if len(matches) == 1:
            return matches[0]
        if matches:
            shown = ", ".join(matches[:5]) + (", …" if len(matches) > 5 else "")
            raise ConfigurationError(f"'{text}' is the beginning of several sessions: {shown}.")
        raise SessionNotFound(text if is_beginning(text) else check_session_id(text), self.path)

    def _files(self) -> Sequence[os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as entries:
                return [entry for entry in entries if entry.name.endswith(SUFFIX) and entry.name[0] != "."]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise ConfigurationError(f"The folder {self.path} cannot be read: {error.strerror}.") from None

    def _listed(self) -> Iterator[ListedSession]:
        files = self._files()
        if not files:
            return
        taken = {entry.name.removesuffix(SUFFIX) for entry in files}
        with open_folder(self.path, self.path) as folder:
            for entry in sorted(files, key=lambda entry: entry.name):
                item = self._item(folder, entry.name, taken)
                if item is not None:
                    taken.add(item.id)
                    yield item

    def _item(self, folder: OpenFolder, name: str, taken: Collection[str]) -> ListedSession | None:
        """A file in a listing; None if it is gone, or holds something else than a session.

        `taken` are the sessions that other files hold, or are named after.
        """
        stem = name.removesuffix(SUFFIX)
        try:
            content = _content(folder, name, any_name=True)
            if content.record.session_id in taken:
                _check_name(content, name)
        except (FileNotFoundError, NoSession):
            return None
        except Unusable as error:
            return ListedSession(stem, name, problem=str(error))
        return self.listed(content.record, name, is_legacy=content.is_legacy)

    def listed(
        self, record: SessionRecord, name: str, *, is_legacy: bool = False, in_store_only: bool = False
    ) -> ListedSession:
        """A session in a listing."""
        return ListedSession(
            record.session_id, name, record.state_value, record.is_complete, record.outcome,
            self.redaction.text(record.prompt), record.assistant_turns, record.created_at,
            record.updated_at or record.created_at, tuple(self.redaction.value(record.files_changed)),
            self.redaction.value(record.workspace), is_legacy, in_store_only,
        )  # fmt: skip


def newest_first(items: Iterable[ListedSession]) -> Sequence[ListedSession]:
    """Sessions in the order of listings: the one that changed last first, unusable files last."""
    by_id = sorted(items, key=lambda item: item.id)
    return sorted(by_id, key=lambda item: (item.problem is None, _seconds(item)), reverse=True)


def sessions_folder(settings: Settings) -> Path:
    """The folder of the session files: beside the store, or among the project's state if that is no file."""
    from detent.runtime.store_url import store_url
    from detent.runtime.wiring import SCHEMES, make_store

    url = store_url(settings)
    scheme = url.partition(":")[0].lower()
    if scheme in SCHEMES and scheme != "sqlite":
        return settings.folder / STATE / FOLDER
    store = make_store(url, None, settings.base("store"), create=False)
    path = getattr(store, "path", None)
    return (Path(path).absolute().parent if path is not None else settings.folder / STATE) / FOLDER


# -- files --------------------------------------------------------------------------------------------------


def _content(folder: OpenFolder, name: str, *, any_name: bool = False) -> Content:
    content = content_of(*bytes_of(folder, name), name, time.time())
    if not any_name:
        _check_name(content, name)
    return content


def _check_name(content: Content, name: str) -> None:
    own = content.record.session_id
    if own != name.removesuffix(SUFFIX):
        raise Unusable(f"holds the session {own}; name it {own}{SUFFIX}")


def _seconds(item: ListedSession) -> float:
    """When a session changed last, for the order of listings."""
    try:
        moment = datetime.fromisoformat(item.changed or "")
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _resolved(path: Path | str) -> str:
    try:
        return str(Path(path).expanduser().resolve())
    except (OSError, RuntimeError, ValueError):
        return str(path)
