"""The sandbox of a project's folder: resolving paths, protecting files from actions, atomic writes.

Links are followed before a path is judged, so that none leads out; files are then read and written through
open folders, so that a link created meanwhile leads nowhere. Git's own files and the files that runs keep for
themselves are neither read nor written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from detent.adapters.anchored import OpenFolder, open_folder
from detent.adapters.disk import PRIVATE_FILE, PRIVATE_FOLDER
from detent.adapters.guarded import NOTHING, Guarded, folded
from detent.engine.tools import EffectCall, ToolError

OWN_FOLDER = ".detent"
READABLE = "workflows"
"""The one part of our own folder that may be read: it belongs to the project and is under version control."""
PIECE = 1024 * 1024
"""Bytes read at a time."""
LONGEST = 4000
"""Characters of a path."""
CONFIGURES = "configures or runs Detent itself; only a person may change it"

_PASSING = frozenset({errno.ENOSPC, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


class Sandbox:
    """The folder that actions and functions work in.

    `state` holds backups, spools, notices and effect notes; `protected` are further files and folders that
    actions may not touch, such as the store; `guarded` are those that agents may not touch. With `beside`,
    a file is written next to its target before it is renamed, and `state` stays untouched.
    """

    def __init__(
        self,
        root: Path,
        state: Path,
        protected: Iterable[Path] = (),
        guarded: Guarded = NOTHING,
        *,
        beside: bool = False,
    ) -> None:
        self.root = Path(root).resolve()
        self.state = Path(state).resolve()
        named = [Path(path).resolve() for path in protected]
        # A database includes the files SQLite keeps next to it.
        more = [path.with_name(path.name + end) for path in named for end in ("-wal", "-shm", "-journal")]
        self.protected = (self.state, *named, *more)
        self.guarded = guarded
        self._beside = beside

    # -- resolving paths ------------------------------------------------------------------------------------

    def readable(self, name: str) -> Path:
        """The file at a path, for reading; a `ToolError` when there is none or actions may not read it."""
        path = self.inside(name)
        if self.hidden(path):
            raise ToolError(
                "protected", f"{quoted(name)} is not for actions: git's files, or what runs keep."
            )
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "not there"
            raise ToolError("no_file", f"{quoted(name)} is {kind}; a file of the project is needed.")
        return path

    def writable(self, name: str) -> Path:
        """The resolved path, for writing; a `ToolError` when nothing may be written there."""
        return self._checked(self.inside(name), name)

    def check_writer(self, call: EffectCall, *places: Path) -> None:
        """Raise a `ToolError` when an agent wants to change a file that configures Detent."""
        for place in places:
            if call.by == "agent" and place in self.guarded:
                raise ToolError("protected", f"{quoted(self.relative(place))} {CONFIGURES}.")

    def refusing(self, *names: str) -> Callable[[Mapping[str, Any]], Iterator[str]]:
        """A check that names the arguments, among these paths or lists of paths, that no agent may write."""

        def refused(args: Mapping[str, Any]) -> Iterator[str]:
            for name in names:
                value = args.get(name)
                for path in value if isinstance(value, list) else [value]:
                    if isinstance(path, str) and self._is_guarded(path):
                        yield f"/{name}: {CONFIGURES}"

        return refused

    def _is_guarded(self, name: str) -> bool:
        try:
            path = self._joined(name)
            # The name itself as well as its target: a link may be replaced or written through.
            return any(
                candidate in self.guarded
                or (candidate.is_relative_to(self.root) and self._is_ours(candidate))
                for candidate in (path.resolve(), path.parent.resolve() / path.name)
            )
        except (OSError, RuntimeError, ValueError, ToolError):
            return False  # not a usable path, which the tool itself reports

    def _is_ours(self, path: Path) -> bool:
        """Whether it is one of git's files or ours, which actions may not change."""
        return self.hidden(path) or folded(path.relative_to(self.root))[:1] == (OWN_FOLDER,)

    def entry(self, name: str) -> Path:
        """The path with a link in its last part not followed: for removing it."""
        path = self._joined(name)
        if path.name in ("", ".", ".."):
            return self.writable(name)
        try:
            path = path.parent.resolve() / path.name
        except (OSError, RuntimeError):
            raise ToolError("invalid", f"{quoted(name)} is no usable path.") from None
        if not path.is_relative_to(self.root):
            raise _outside(name)
        return self._checked(path, name)

    def folder(self, name: str) -> Path:
        """A folder of the project."""
        path = self.inside(name)
        if self.hidden(path):
            raise ToolError("protected", f"{quoted(name)} is not for actions.")
        if not path.is_dir():
            raise ToolError("no_folder", f"there is no folder {quoted(name)} in the project.")
        return path

    def inside(self, name: str) -> Path:
        """The path with links followed; a `ToolError` when it leads out of the project."""
        try:
            path = self._joined(name).resolve()
            # Behind links in a circle the rest of a path is left as it is written, links and all.
            if os.path.realpath(path) != str(path):
                raise RuntimeError
        except (OSError, RuntimeError, ValueError):  # too long, links in a circle
            raise ToolError("invalid", f"{quoted(name)} is no usable path.") from None
        if not path.is_relative_to(self.root):
            raise _outside(name)
        return path

    def hidden(self, path: Path) -> bool:
        """Whether it is one of git's files or ours, which actions may not see."""
        parts = folded(path.relative_to(self.root))
        if ".git" in parts:
            return True
        if parts[:1] == (OWN_FOLDER,):
            return len(parts) > 1 and parts[1] != READABLE
        return any(path.is_relative_to(folder) for folder in self.protected)

    def relative(self, path: Path) -> str:
        """A path in the form actions use."""
        return path.relative_to(self.root).as_posix()

    def _joined(self, name: str) -> Path:
        if not isinstance(name, str) or not name.strip() or "\0" in name or len(name) > LONGEST:
            raise ToolError("invalid", "a path is a text that is not empty, without null characters.")
        return self.root / name

    def _checked(self, path: Path, name: str) -> Path:
        try:
            path.lstat()
        except FileNotFoundError:
            pass
        except OSError as error:  # a name too long, a file where a folder should be
            raise ToolError("invalid", f"{quoted(name)} is no usable path ({error.strerror}).") from None
        if path == self.root:
            raise ToolError("outside", f"{quoted(name)} is the project itself, no file of it.")
        if self._is_ours(path):
            raise ToolError(
                "protected", f"{quoted(name)} is not for actions to change: git's files, or what runs keep."
            )
        if path.is_dir() and not path.is_symlink():
            raise ToolError("folder", f"{quoted(name)} is a folder.")
        return path

    # -- reading and writing --------------------------------------------------------------------------------

    def folder_of(self, place: Path, make: bool = False) -> AbstractContextManager[OpenFolder]:
        """The folder of a file, open: a link created meanwhile cannot lead out of the project."""
        root = next(
            (folder for folder in (self.root, self.state) if place.is_relative_to(folder)), place.parent
        )
        is_ours = place.is_relative_to(self.state) or root == place.parent
        return open_folder(root, place.parent, make=(PRIVATE_FOLDER if is_ours else 0o777) if make else None)

    @contextlib.contextmanager
    def reading(self, place: Path) -> Iterator[BinaryIO]:
        """A file, open for reading."""
        with self.folder_of(place) as folder, folder.read(place.name) as file:
            yield file

    def fingerprint(self, place: Path) -> tuple[int, str]:
        """Size and SHA-256 of a file; a `ToolError` when it cannot be read."""
        digest, size = hashlib.sha256(), 0
        try:
            with self.reading(place) as file:
                while piece := file.read(PIECE):
                    digest.update(piece)
                    size += len(piece)
        except OSError as error:
            raise ToolError("not_read", f"{quoted(place.name)} cannot be read ({error.strerror}).") from error
        return size, digest.hexdigest()

    def content(self, place: Path, most: int, name: str) -> bytes:
        """A file's bytes; a `ToolError` when there are more than `most`."""
        try:
            with self.reading(place) as file:
                raw = file.read(most + 1)
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise ToolError("not_read", f"{quoted(name)} cannot be read ({error.strerror}).") from error
        if len(raw) > most:
            raise ToolError(
                "too_large", f"{quoted(name)} has {size:,} bytes; at most {most:,} are read here."
            )
        return raw

    def write(
        self,
        place: Path,
        write: Callable[[BinaryIO], None],
        mode: int | None = None,
        *,
        replace: bool = True,
    ) -> bool:
        """Write a file completely under its name, or not at all. `mode` None keeps that of an existing file.

        Without `replace`, False means that the name was taken and nothing has changed.
        """
        try:
            with self.folder_of(place, make=True) as folder:
                if mode is None:
                    with contextlib.suppress(FileNotFoundError):
                        mode = stat.S_IMODE(_refuse_link(folder.stat(place.name), place).st_mode)
                with self._temporary(folder) as (spare, name):
                    with spare.create(name) as file:
                        write(file)
                        file.flush()
                        if mode is not None:
                            os.chmod(file.fileno() if os.chmod in os.supports_fd else spare.path / name, mode)
                        os.fsync(file.fileno())
                    if replace:
                        spare.move(name, folder, place.name)
                    elif not _linked_as(spare, name, folder, place.name):
                        return False
                with contextlib.suppress(OSError):  # the file exists whether or not its folder can be synced
                    folder.sync()
                return True
        except OSError as error:
            raise ToolError(
                "not_written", f"{quoted(place.name)} cannot be written ({error.strerror}).",
                transient=error.errno in _PASSING,
            ) from error  # fmt: skip

    def put(self, place: Path, raw: bytes, mode: int | None = None, *, replace: bool = True) -> bool:
        """Write these bytes as `write` does."""

        def write(file: BinaryIO) -> None:
            file.write(raw)

        return self.write(place, write, mode, replace=replace)

    def keep(self, place: Path, raw: bytes) -> None:
        """Write one of our own files atomically."""
        self.put(place, raw, PRIVATE_FILE)

    def remove(self, place: Path, missing_ok: bool = False) -> None:
        """Remove a file, or a link itself."""
        try:
            with self.folder_of(place) as folder:
                folder.remove(place.name, missing_ok)
        except FileNotFoundError:  # the folder itself is missing
            if not missing_ok:
                raise

    @contextlib.contextmanager
    def _temporary(self, folder: OpenFolder) -> Iterator[tuple[OpenFolder, str]]:
        """A temporary file: in our own folder if that is on the same disk, else next to the target."""
        name = f"{secrets.token_hex(8)}.tmp"
        own_place = self.folder_of(self.state / "tmp" / name, make=True)
        with contextlib.nullcontext() if self._beside else own_place as own:
            same = own is not None and own.stat(".").st_dev == folder.stat(".").st_dev
            spare, used = (own, name) if own is not None and same else (folder, f".{name}")
            try:
                yield spare, used
            finally:
                with contextlib.suppress(OSError):
                    spare.remove(used, missing_ok=True)


def _linked_as(spare: OpenFolder, name: str, folder: OpenFolder, final_name: str) -> bool:
    """Give a finished file its name; False when the name is taken."""
    try:
        spare.link(name, folder, final_name)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with contextlib.suppress(FileNotFoundError):
            folder.stat(final_name)
            return False
        spare.move(name, folder, final_name)
    return True


def _refuse_link(status: os.stat_result, place: Path) -> os.stat_result:
    """The status, unless the file has become a link since its path was checked."""
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
    return status


@contextlib.contextmanager
def certain(name: str) -> Iterator[None]:
    """Turn an `OSError` into a `ToolError`: files are changed last and atomically, so nothing has changed."""
    try:
        yield
    except OSError as error:
        raise ToolError(
            "not_done",
            f"{quoted(name)} cannot be worked on ({error.strerror}).",
            transient=error.errno in _PASSING,
        ) from error


def quoted(value: object) -> str:
    """A path for a message: short and on one line."""
    text = "".join(char if char.isprintable() else "?" for char in str(value))
    return f"'{text if len(text) <= 120 else text[:119] + '…'}'"


def _outside(name: str) -> ToolError:
    return ToolError("outside", f"{quoted(name)} lies outside the project folder.")
