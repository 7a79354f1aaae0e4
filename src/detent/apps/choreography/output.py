"""The files of a show, written at every end of its run: each whole or not at all, and only where it differs.

Writing them is one effect of the run. It may be repeated: after a kill the files that are missing or differ
are written, and the others are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from detent.adapters.disk import sync_folder
from detent.apps.choreography.show.xsq_reader import is_ours
from detent.kernel.errors import ConfigurationError


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

    def check(self) -> None:
        """Raise `ConfigurationError` if a sequence is there that must not be overwritten."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{self.folder} is a file; the show needs a folder of this name.")
        if self.sequence.is_dir():
            raise ConfigurationError(f"{self.sequence} is a folder; name a file with --out.")
        if self.sequence.exists() and not self.force and not is_ours(self.sequence.read_bytes()):
            raise ConfigurationError(
                f"{self.sequence} was not made by Detent. Write elsewhere with --out, or overwrite it "
                f"with --force."
            )

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


def write_files(files: Iterable[tuple[Path, bytes]]) -> list[str]:
    """Write files that are missing or differ; the paths of all of them.

    Raises:
        OSError: a file cannot be written; those before it are whole.
    """
    paths: list[str] = []
    for path, content in files:
        if not path.is_file() or path.read_bytes() != content:
            write_file(path, content)
        paths.append(str(path))
    return paths


def write_file(path: Path, content: bytes) -> None:
    """Replace a file at once: a reader, or a kill, finds the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
