"""The folder an assistant works in: which file a path stands for, and opening it without being led elsewhere.

Every path of a tool goes through here, to the project's one sandbox. Errors have the codes that an assistant
is told; a path that is refused is refused in the same way by every tool.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from detent.adapters.anchored import OpenFolder
from detent.adapters.guarded import NOTHING, Guarded, folded
from detent.adapters.project.sandbox import OWN_FOLDER, Sandbox, quoted
from detent.engine.tools import ToolError
from detent.flows.coding.project_guard import guards, is_settings_file, stores
from detent.kernel.errors import SIMILAR, DetentError

GIT = ".git"
GIT_LAYOUTS = (frozenset({"head", "objects", "refs"}), frozenset({"head", "commondir"}))
"""Names by which git takes a folder for one of its own, in small letters: a repository, a worktree's part."""
LONGEST_LINK = 4096
"""Bytes read of a `.git` file, which only names a folder."""
MOST_COMPARED = 2000
"""Names of a folder that a name which is not there is compared with."""

EntryKind = Literal["file", "folder", "link", "other"]

_CODES = {
    "outside": "outside_workspace", "protected": "protected", "invalid": "invalid_arguments",
    "no_file": "not_found", "no_folder": "not_found", "folder": "invalid_arguments",
    "too_large": "too_large",
}  # fmt: skip
"""Codes of the sandbox as an assistant is told them; the others are failures of the machine."""
_KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
_SPECIAL = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"))
_WAITS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
"""Opening a pipe that nobody writes to would never return."""


class Entry(NamedTuple):
    """A name in a folder."""

    name: str
    kind: EntryKind


class Workspace:
    """A folder, and what tools may see and change of it."""

    def __init__(
        self,
        root: Path,
        *,
        protected: Iterable[Path] = (),
        guarded: Guarded = NOTHING,
        state: Path | None = None,
    ) -> None:
        own = root / OWN_FOLDER
        beside = state is None and not own.is_dir()
        self.sandbox = Sandbox(root, state or own, (*protected, *stores(root)), guarded, beside=beside)
        self.root = self.sandbox.root
        self._folded = folded(self.root)
        self._hidden = [folded(path) for path in (*self.sandbox.protected, *_git_folders(self.root))]

    @classmethod
    def at(
        cls,
        root: str,
        *,
        protected: Iterable[Path] = (),
        guarded: Guarded = NOTHING,
        state: Path | None = None,
    ) -> Workspace:
        """The workspace in a folder. Cheap: what is protected is looked up anew each time.

        Raises:
            ToolError: there is no such folder.
        """
        path = Path(root)
        if not path.is_absolute() or not path.is_dir():
            raise ToolError("not_found", f"the workspace {quoted(root)} is no folder that exists.")
        return cls(path, protected=protected, guarded=guarded, state=state)

    # -- paths ----------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> Path:
        """The place a path stands for, links followed, whether or not there is anything.

        Raises:
            ToolError: `outside_workspace`, `protected` or `invalid_arguments`.
        """
        with codes():
            try:
                place = self.sandbox.inside(_expanded(name))
            except ToolError as error:
                if error.code != "outside":
                    raise
                raise ToolError(
                    "outside", f"{quoted(name)} leads out of the workspace {self.root}."
                ) from None
        with possible(name):
            # After links in a circle the system leaves the rest of a path as it is, further links included.
            if os.path.realpath(place) != str(place):
                raise ToolError("invalid_arguments", f"{quoted(name)} leads through links in a circle.")
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                place.lstat()
        if self.hides(place):
            raise ToolError(
                "protected", f"{quoted(name)} is not for tools: it belongs to git, or to Detent itself."
            )
        return place

    def relative_name(self, name: str) -> str:
        """The place a path stands for, as a path relative to the workspace; raises as `resolve` does."""
        return self.relative(self.resolve(name))

    def spelled(self, name: str) -> str:
        """A path as it is spelled, relative to the workspace, with no link followed."""
        return os.path.relpath(self.root / _expanded(name), self.root)

    def relative(self, place: Path) -> str:
        """A resolved place as a path relative to the workspace."""
        return self.sandbox.relative(place)

    def hides(self, place: Path) -> bool:
        """Whether a resolved place is one that tools neither see nor change."""
        if self._hides_by_path(place):
            return True
        folders = (place, *place.parents)
        return any(_is_git_folder(folder) for folder in folders if folder.is_relative_to(self.root))

    def _hides_by_path(self, place: Path) -> bool:
        inside = folded(place.relative_to(self.root))
        if GIT in inside or OWN_FOLDER in inside:
            return True
        parts = self._folded + inside
        return any(parts[: len(hidden)] == hidden for hidden in self._hidden)

    def folder(self, name: str) -> Path:
        """The folder a path stands for.

        Raises:
            ToolError: as `resolve`; `not_found`; `invalid_arguments` if it is a file.
        """
        place = self.resolve(name)
        with possible(name):
            if place.is_dir():
                return place
        if not os.path.lexists(place):
            raise self._not_found(place, name)
        raise ToolError("invalid_arguments", f"{quoted(name)} is a file, not a folder.")

    def writable(self, name: str) -> Path:
        """The place a path stands for, if a file may be written there.

        Raises:
            ToolError: as `resolve`; `invalid_arguments` if there is something else than a regular file.
        """
        place = self.resolve(name)
        if place == self.root:
            raise ToolError("invalid_arguments", f"{quoted(name)} is the workspace itself, no file of it.")
        with codes():
            self.sandbox.writable(str(place))
        if self._completes_git_folder(place):
            raise ToolError("protected", f"{quoted(name)} would make its folder one of git's own.")
        try:
            status = place.lstat()
        except FileNotFoundError:
            return place
        except OSError as error:
            raise failed(name, error) from None
        _regular(status, name)
        return place

    def _completes_git_folder(self, place: Path) -> bool:
        """Whether a file of this name would make git take a folder above it for one of its own."""
        for folder in place.parents:
            if not folder.is_relative_to(self.root):
                return False
            (first,) = folded(Path(place.relative_to(folder).parts[0]))
            if any(first in layout and _has_all(folder, layout - {first}) for layout in GIT_LAYOUTS):
                return True
        return False

    def configures(self, name: str, place: Path | None = None) -> bool:
        """Whether a path, or the place it leads to, configures Detent, such as settings and plugins."""
        try:
            place = place or self.resolve(name)
        except ToolError:
            return False  # the tool itself refuses it
        entry = self.root / _expanded(name)
        entry = entry.parent.resolve() / entry.name  # a link of this name, which leads to the place
        found = (self.sandbox.guarded, *guards(self.root, place))
        return any(is_settings_file(path) or any(path in guard for guard in found) for path in {place, entry})

    def check_decided(self, place: Path, name: str, decided: Mapping[str, Any] | None) -> None:
        """Refuse a place that is not the one a decision was made for: a link may have changed since.

        Raises:
            ToolError: `stale`.
        """
        if decided is None or decided["path"] != name:  # a person has put another path in its place
            return
        if decided["place"] != self.relative(place):
            raise ToolError(
                "stale", f"{quoted(name)} leads elsewhere than when the call was judged; nothing was done."
            )

    # -- reading --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reading(self, place: Path, name: str) -> Iterator[BinaryIO]:
        """A regular file, open for reading.

        Raises:
            ToolError: `not_found`, `invalid_arguments` if it is no regular file, `failed`.
        """
        if place == self.root:
            raise _no_file(name, "a folder; list_dir lists it")
        try:
            with self.sandbox.folder_of(place) as folder, self.opened(folder, place.name, name) as file:
                yield file
        except OSError as error:
            raise self.not_opened(place, name, error) from None

    @contextlib.contextmanager
    def opened(self, folder: OpenFolder, entry: str, name: str) -> Iterator[BinaryIO]:
        """A regular file of an open folder, open for reading; `OSError` or `ToolError` if it is none."""
        _regular(folder.stat(entry), name)  # opening a device may do something
        with os.fdopen(folder.open(entry, os.O_RDONLY | _WAITS), "rb") as file:
            status = os.fstat(file.fileno())
            _regular(status, name)
            if status.st_nlink > 1 and self._is_hidden_file(status):
                raise ToolError("protected", f"{quoted(name)} is a second name of a file that is protected.")
            yield file

    def entries(self, place: Path, name: str) -> list[Entry]:
        """What is in a folder, in no order, without what is hidden from tools."""
        with self.scanning(place, name) as found:
            return [
                Entry(entry.name, kind_of(entry)) for entry in found if not self.hides_entry(place, entry)
            ]

    @contextlib.contextmanager
    def scanning(self, place: Path, name: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        """A folder, open for listing; also what is hidden is in it."""
        try:
            with self.sandbox.folder_of(place / "x") as folder, scan(folder) as found:
                yield found
        except OSError as error:
            raise self.not_opened(place, name, error) from None

    def hides_entry(self, folder: Path, entry: os.DirEntry[str]) -> bool:
        """Whether an entry of a folder that tools see is hidden from them."""
        name = entry.name
        plain = name.rstrip(". ").lower() if name.isascii() else folded(Path(name))[0]
        if plain in (GIT, OWN_FOLDER):
            return True
        if self._hidden_below and self._hides_by_path(folder / name):
            return True
        return entry.is_dir(follow_symlinks=False) and _is_git_folder(folder / name)

    @cached_property
    def _hidden_below(self) -> bool:
        """Whether something in the workspace is hidden by its path and not by its name."""
        depth = len(self._folded)
        return any(
            hidden[:depth] == self._folded and not {GIT, OWN_FOLDER}.intersection(hidden[depth:])
            for hidden in self._hidden
        )

    def _is_hidden_file(self, status: os.stat_result) -> bool:
        for path in self.sandbox.protected:
            with contextlib.suppress(OSError):
                if os.path.samestat(status, path.stat()):
                    return True
        return False

    def not_opened(self, place: Path, name: str, error: OSError) -> ToolError:
        """The error for a file or folder that the machine does not open."""
        if isinstance(error, FileNotFoundError):
            return self._not_found(place, name)
        if isinstance(error, NotADirectoryError) and not any(path.is_symlink() for path in place.parents):
            return self._not_found(place, name)
        return failed(name, error)

    def _not_found(self, place: Path, name: str) -> ToolError:
        """The error for a path where nothing is, with the nearest name there is."""
        text = f"there is no {quoted(name)} in the workspace."
        folder = place.parent
        while not folder.is_dir() and folder != self.root:
            folder = folder.parent
        if not folder.is_relative_to(self.root):
            return ToolError("not_found", text)
        missing = folder / place.relative_to(folder).parts[0]
        if place.parent != folder:
            is_there = os.path.lexists(missing)
            shown = quoted(self.relative(missing))
            text += f" {shown} is a file." if is_there else f" There is no folder {shown}."
            if is_there:
                return ToolError("not_found", text)
        with contextlib.suppress(DetentError, OSError):
            names = [entry.name for entry in islice(self.entries(folder, name), MOST_COMPARED)]
            for similar in get_close_matches(missing.name, names, n=1, cutoff=SIMILAR):
                text += f" Did you mean {quoted(self.relative(folder / similar))}?"
        return ToolError("not_found", text)


def _is_git_folder(folder: Path) -> bool:
    """Whether git would take a folder for one in which it keeps a repository, by the names in it."""
    return any(_has_all(folder, layout) for layout in GIT_LAYOUTS)


def _has_all(folder: Path, names: Iterable[str]) -> bool:
    return all(os.path.lexists(folder / ("HEAD" if name == "head" else name)) for name in sorted(names))


def _expanded(name: str) -> str:
    """A path in which `~` stands for the home folder; `~name` is the name of a file."""
    is_home = isinstance(name, str) and (name == "~" or name.startswith("~/"))
    return os.path.expanduser(name) if is_home else name


def kind_of(entry: os.DirEntry[str]) -> EntryKind:
    """What an entry is; links are not followed."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@contextlib.contextmanager
def scan(folder: OpenFolder) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries of an open folder."""
    if os.scandir not in os.supports_fd:
        with os.scandir(folder.path) as entries:
            yield entries
        return
    handle = folder.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(handle) as entries:
            yield entries
    finally:
        os.close(handle)


@contextlib.contextmanager
def codes() -> Iterator[None]:
    """Errors of the sandbox with the codes that an assistant is told."""
    try:
        yield
    except ToolError as error:
        code = _CODES.get(error.code, "failed")
        raise ToolError(code, error.message, transient=error.transient) from None


@contextlib.contextmanager
def possible(name: str) -> Iterator[None]:
    """What the machine refuses of a path as an error of the tool, which has done nothing yet."""
    try:
        yield
    except OSError as error:
        raise failed(name, error) from None


def failed(name: str, error: OSError) -> ToolError:
    """The error for what the machine refuses."""
    if error.errno == errno.ENAMETOOLONG:
        return ToolError("invalid_arguments", f"{quoted(name)} is too long for the name of a file.")
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL):
        return ToolError(
            "outside_workspace",
            f"{quoted(name)} was replaced by a link meanwhile; nothing was done. Try again.",
        )
    return ToolError(
        "failed", f"{quoted(name)} cannot be worked on ({error.strerror or type(error).__name__})."
    )


def _regular(status: os.stat_result, name: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise _no_file(name, "a folder; list_dir lists it")
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    kind = next((words for test, words in _SPECIAL if test(status.st_mode)), "a device")
    raise _no_file(name, f"{kind}; only regular files are read and written")


def _no_file(name: str, what: str) -> ToolError:
    return ToolError("invalid_arguments", f"{quoted(name)} is {what}.")


def _git_folders(root: Path) -> list[Path]:
    """Where git keeps the workspace's repository if `.git` only points there: a worktree, a link."""
    pointer = root / GIT
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        if pointer.is_symlink():
            return [pointer.resolve()]
        if pointer.is_file():
            with pointer.open("rb") as file:
                line = os.fsdecode(file.read(LONGEST_LINK).partition(b"\n")[0])
            if line.startswith("gitdir:"):
                return [(root / line.removeprefix("gitdir:").strip()).resolve()]
    return []
