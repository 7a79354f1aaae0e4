"""The files of a show, written at every end of its run: each whole or not at all, and only where it differs.

Writing them is one effect of the run. It may be repeated: after a kill the files that are missing or differ
are written, and the others are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from errno import ENOTDIR
from hashlib import sha256
from os import strerror
from pathlib import Path
from tempfile import TemporaryFile
from threading import get_ident
from typing import Any, NamedTuple

from detent.adapters.disk import sync_folder
from detent.apps.choreography.show.xsq_reader import is_ours, sequence_bytes
from detent.kernel.errors import ConfigurationError

LONGEST_NAME = 200
"""Bytes of a project's name: names of files are at most 255, and it begins them."""


_WRITTEN = (
    "*_detent_mh.xsq", "audio.json", "plan.json", "implementation.json", "evaluation.json", "result.json",
    "metrics.txt", "timeline.svg", "timeline.png", "checkpoints/*.json", "checkpoints/plans/*.json",
)  # fmt: skip
"""Names of the files of shows, in their folder."""


def check_text(path: str | Path) -> None:
    """Raise `ConfigurationError` if a path has bytes that are no text: no file of a show could name it."""
    whole = str(path.absolute()) if isinstance(path, Path) else path
    try:
        whole.encode()
    except UnicodeEncodeError as error:
        shown = whole.encode(errors="backslashreplace").decode()
        raise ConfigurationError(f"{shown} is not valid UTF-8, and so cannot be kept; rename it.") from error


def check_writable(place: Path) -> None:
    """Raise `ConfigurationError` if a file cannot be written to a place, before hours are spent on it.

    Nothing is left behind: folders that do not exist yet are not created, but tried one level above.
    """
    if place.is_dir():
        raise ConfigurationError(f"{place} is a folder; name a file with --out.")
    folder = next(above for above in place.absolute().parents if above.exists())
    try:
        if not folder.is_dir():
            raise NotADirectoryError(ENOTDIR, strerror(ENOTDIR))
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"Nothing can be written to {place.parent}: {error.strerror} ({folder}). Choose another --out."
        ) from error


def check_name(project: str) -> None:
    """Raise `ConfigurationError` if a project cannot give files and folders its name."""
    if project in (".", "..") or any(char in "/\\" or not char.isprintable() for char in project):
        raise ConfigurationError(f"{project!r} cannot be the name of a folder; choose one with --project.")
    if len(project.encode()) > LONGEST_NAME:
        raise ConfigurationError(f"The name '{project[:20]}…' is too long; choose one with --project.")


class Output(NamedTuple):
    """Where the files of a show go."""

    folder: Path
    sequence: Path
    picture: bool = True
    force: bool = False
    """Whether a sequence that is not ours may be overwritten."""

    @classmethod
    def of(cls, project: str, out: Path, *, picture: bool = True, force: bool = False) -> Output:
        """The places for `--out`: a folder, or a file that ends in .xsq."""
        if out.suffix.lower() == ".xsq":
            return cls(out.with_suffix(""), out, picture, force)
        folder = out / project
        return cls(folder, folder / f"{project}_detent_mh.xsq", picture, force)

    def check(self, own: str | None = None) -> None:
        """Raise `ConfigurationError` if a show cannot be there, or must not overwrite a sequence."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{self.folder} is a file; the show needs a folder of this name.")
        self.check_sequence(own)

    def check_sequence(self, own: str | None = None) -> None:
        """Raise `ConfigurationError` if a sequence is there that must not be overwritten.

        `own` is the SHA-256 of one that the run has written before. One that a show was added to bears the
        mark of its maker, not ours.
        """
        if self.sequence.is_dir():
            raise ConfigurationError(f"{self.sequence} is a folder; name a file with --out.")
        if self.force or not self.sequence.exists():
            return
        try:
            content = sequence_bytes(self.sequence)
        except OSError as error:
            raise ConfigurationError(f"{self.sequence} cannot be read: {error.strerror}.") from error
        if sha256(content).hexdigest() != own and not is_ours(content):
            raise ConfigurationError(
                f"{self.sequence} was not made by Detent, or was added to since. Write elsewhere with --out, "
                f"add the show to it with --xsq, or overwrite it with --force."
            )

    def check_place(self) -> None:
        """Raise `ConfigurationError` if nothing can be written there."""
        check_text(self.sequence)
        check_writable(self.folder / "any")
        check_writable(self.sequence)

    def of_shows(self) -> Iterator[Path]:
        """The files in the folder that this show or an earlier one has written, under whatever name."""
        for pattern in _WRITTEN:
            yield from sorted(self.folder.glob(pattern))

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "folder": str(self.folder.resolve()),
            "sequence": str(self.sequence.resolve()),
            "picture": self.picture,
            "force": self.force,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Output:
        """Read back what `to_plain` wrote."""
        return cls(Path(plain["folder"]), Path(plain["sequence"]), plain["picture"], plain["force"])


def write_file(path: Path, content: bytes) -> None:
    """Replace a file at once: a reader, or a kill, finds the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".detent-{os.getpid()}-{get_ident()}.part")  # runs may share a folder
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
