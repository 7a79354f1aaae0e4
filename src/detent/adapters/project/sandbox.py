"""The sandbox of a project's folder: where a path leads, what is not for actions, writing all or nothing.

Links are followed before a path is judged, so that none leads out; what is then read or written is reached
through open folders, so that a link put there meanwhile leads nowhere. Git's own files, and what runs keep
for themselves, are neither read nor written.
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
"""The one part of our own folder that may be looked at: it is the project's, and under version control."""
PIECE = 1024 * 1024
"""Bytes read at a time."""
LONGEST = 4000
"""Characters of a path."""
CONFIGURES = "configures or runs Detent itself; only a person may change it"

_PASSING = frozenset({errno.ENOSPC, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})


class Sandbox:
    """The folder actions and functions work in.

    `state` is where backups, spools, notices and effect notes are kept; `protected` are further files and
    folders that are not for actions, such as the store; `guarded` are those that are not for agents. With
    `beside`, a file is written beside its place before it gets its name, and `state` stays untouched.
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
        named = [Path(one).resolve() for one in protected]
        # A database is also the files SQLite keeps beside it.
        more = [one.with_name(one.name + end) for one in named for end in ("-wal", "-shm", "-journal")]
        self.protected = (self.state, *named, *more)
        self.guarded = guarded
        self._beside = beside

    # -- where paths lead -----------------------------------------------------------------------------------

    def readable(self, said: str) -> Path:
        """The file a path means, for reading; a `ToolError` when there is none or it is not for actions."""
        path = self.inside(said)
        if self.hidden(path):
            raise ToolError(
                "protected", f"{quoted(said)} is not for actions: git's files, or what runs keep."
            )
        if not path.is_file():
            what = "a folder" if path.is_dir() else "not there"
            raise ToolError("no_file", f"{quoted(said)} is {what}; a file of the project is needed.")
        return path

    def writable(self, said: str) -> Path:
        """Where a path leads, for writing; a `ToolError` when nothing may be written there."""
        return self._checked(self.inside(said), said)

    def check_writer(self, call: EffectCall, *places: Path) -> None:
        """Raise a `ToolError` where an agent wants to change what configures Detent."""
        for place in places:
            if call.by == "agent" and place in self.guarded:
                raise ToolError("protected", f"{quoted(self.relative(place))} {CONFIGURES}.")

    def refusing(self, *names: str) -> Callable[[Mapping[str, Any]], Iterator[str]]:
        """Says which of the named arguments, paths or lists of them, are never an agent's to write."""

        def refused(args: Mapping[str, Any]) -> Iterator[str]:
            for name in names:
                said = args.get(name)
                for path in said if isinstance(said, list) else [said]:
                    if isinstance(path, str) and self._guards(path):
                        yield f"/{name}: {CONFIGURES}"

        return refused

    def _guards(self, said: str) -> bool:
        try:
            path = self._joined(said)
            # The name itself as well as what it leads to: a link may be replaced or written through.
            return any(
                place in self.guarded or (place.is_relative_to(self.root) and self._ours(place))
                for place in (path.resolve(), path.parent.resolve() / path.name)
            )
        except (OSError, RuntimeError, ValueError, ToolError):
            return False  # no usable path, which the tool itself says

    def _ours(self, path: Path) -> bool:
        """Git's own, ours, or what runs keep: not for actions to change."""
        return self.hidden(path) or folded(path.relative_to(self.root))[:1] == (OWN_FOLDER,)

    def entry(self, said: str) -> Path:
        """The name itself, a link in its last part not followed: for removing it."""
        path = self._joined(said)
        if path.name in ("", ".", ".."):
            return self.writable(said)
        try:
            path = path.parent.resolve() / path.name
        except (OSError, RuntimeError):
            raise ToolError("invalid", f"{quoted(said)} is no usable path.") from None
        if not path.is_relative_to(self.root):
            raise _outside(said)
        return self._checked(path, said)

    def folder(self, said: str) -> Path:
        """A folder of the project."""
        path = self.inside(said)
        if self.hidden(path):
            raise ToolError("protected", f"{quoted(said)} is not for actions.")
        if not path.is_dir():
            raise ToolError("no_folder", f"there is no folder {quoted(said)} in the project.")
        return path

    def inside(self, said: str) -> Path:
        """Where a path leads with links followed; a `ToolError` when that is not in the project."""
        try:
            path = self._joined(said).resolve()
        except (OSError, RuntimeError, ValueError):  # too long, links in a circle
            raise ToolError("invalid", f"{quoted(said)} is no usable path.") from None
        if not path.is_relative_to(self.root):
            raise _outside(said)
        return path

    def hidden(self, path: Path) -> bool:
        """Git's own, or ours: not for actions to see."""
        parts = folded(path.relative_to(self.root))
        if ".git" in parts:
            return True
        if parts[:1] == (OWN_FOLDER,):
            return len(parts) > 1 and parts[1] != READABLE
        return any(path.is_relative_to(one) for one in self.protected)

    def relative(self, path: Path) -> str:
        """A path as actions name it."""
        return path.relative_to(self.root).as_posix()

    def _joined(self, said: str) -> Path:
        if not isinstance(said, str) or not said.strip() or "\0" in said or len(said) > LONGEST:
            raise ToolError("invalid", "a path is a text that is not empty, without null characters.")
        return self.root / said

    def _checked(self, path: Path, said: str) -> Path:
        try:
            path.lstat()
        except FileNotFoundError:
            pass
        except OSError as error:  # a name too long, a file where a folder should be
            raise ToolError("invalid", f"{quoted(said)} is no usable path ({error.strerror}).") from None
        if path == self.root:
            raise ToolError("outside", f"{quoted(said)} is the project itself, no file of it.")
        if self._ours(path):
            raise ToolError(
                "protected", f"{quoted(said)} is not for actions to change: git's files, or what runs keep."
            )
        if path.is_dir() and not path.is_symlink():
            raise ToolError("folder", f"{quoted(said)} is a folder.")
        return path

    # -- reading and writing --------------------------------------------------------------------------------

    def folder_of(self, place: Path, make: bool = False) -> AbstractContextManager[OpenFolder]:
        """The folder of a place, open: nothing that becomes a link meanwhile leads out of the project."""
        root = next((one for one in (self.root, self.state) if place.is_relative_to(one)), place.parent)
        ours = place.is_relative_to(self.state) or root == place.parent
        return open_folder(root, place.parent, make=(PRIVATE_FOLDER if ours else 0o777) if make else None)

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

    def content(self, place: Path, most: int, said: str) -> bytes:
        """A file's bytes; a `ToolError` when there are more than `most`."""
        try:
            with self.reading(place) as file:
                raw = file.read(most + 1)
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise ToolError("not_read", f"{quoted(said)} cannot be read ({error.strerror}).") from error
        if len(raw) > most:
            raise ToolError(
                "too_large", f"{quoted(said)} has {size:,} bytes; at most {most:,} are read here."
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
        """Have a file written: whole under its name, or not at all. `mode` None keeps what is there.

        Without `replace`, False says that the name was taken and nothing has changed.
        """
        try:
            with self.folder_of(place, make=True) as folder:
                if mode is None:
                    with contextlib.suppress(FileNotFoundError):
                        mode = stat.S_IMODE(_no_link(folder.stat(place.name), place).st_mode)
                with self._spare(folder) as (spare, name):
                    with spare.create(name) as file:
                        write(file)
                        file.flush()
                        if mode is not None:
                            os.chmod(file.fileno() if os.chmod in os.supports_fd else spare.path / name, mode)
                        os.fsync(file.fileno())
                    if replace:
                        spare.move(name, folder, place.name)
                    elif not _named(spare, name, folder, place.name):
                        return False
                with contextlib.suppress(OSError):  # it is there, whether or not its folder can be synced
                    folder.sync()
                return True
        except OSError as error:
            raise ToolError(
                "not_written", f"{quoted(place.name)} cannot be written ({error.strerror}).",
                transient=error.errno in _PASSING,
            ) from error  # fmt: skip

    def put(self, place: Path, raw: bytes, mode: int | None = None, *, replace: bool = True) -> bool:
        """Write these bytes, as `write` does."""

        def write(file: BinaryIO) -> None:
            file.write(raw)

        return self.write(place, write, mode, replace=replace)

    def keep(self, place: Path, raw: bytes) -> None:
        """Write one of our own files, whole or not at all."""
        self.put(place, raw, PRIVATE_FILE)

    def remove(self, place: Path, missing_ok: bool = False) -> None:
        """Remove a file, or a link itself."""
        try:
            with self.folder_of(place) as folder:
                folder.remove(place.name, missing_ok)
        except FileNotFoundError:  # its folder, as far as it may be missing
            if not missing_ok:
                raise

    @contextlib.contextmanager
    def _spare(self, folder: OpenFolder) -> Iterator[tuple[OpenFolder, str]]:
        """Where a file is written before it gets its name: among our own, where the same disk holds both."""
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


def _named(spare: OpenFolder, name: str, folder: OpenFolder, wanted: str) -> bool:
    """Give a finished file its name; False when the name is taken."""
    try:
        spare.link(name, folder, wanted)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with contextlib.suppress(FileNotFoundError):
            folder.stat(wanted)
            return False
        spare.move(name, folder, wanted)
    return True


def _no_link(found: os.stat_result, place: Path) -> os.stat_result:
    """What was found, unless it has become a link since its path was checked."""
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(place))
    return found


@contextlib.contextmanager
def certain(said: str) -> Iterator[None]:
    """Files are changed last of all and at once; what goes wrong before that has changed nothing."""
    try:
        yield
    except OSError as error:
        raise ToolError(
            "not_done",
            f"{quoted(said)} cannot be worked on ({error.strerror}).",
            transient=error.errno in _PASSING,
        ) from error


def quoted(said: object) -> str:
    """A path for a message: short and on one line."""
    shown = "".join(char if char.isprintable() else "?" for char in str(said))
    return f"'{shown if len(shown) <= 120 else shown[:119] + '…'}'"


def _outside(said: str) -> ToolError:
    return ToolError("outside", f"{quoted(said)} lies outside the project folder.")
