"""Folders of older sessions: what every file would become, and its migration, one file after another.

A migration that is killed goes on where it was, two at once do not meet, and a second one changes nothing.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from detent.adapters.anchored import OpenFolder, open_folder
from detent.adapters.disk import private_folder
from detent.flows.coding.sessions.files import (
    BACKUP,
    file_bytes,
    keep_backup,
    locked,
    replace_file,
    write_new,
)
from detent.flows.coding.sessions.folder import SessionFolder
from detent.flows.coding.sessions.legacy import STATE_WINS, disagrees
from detent.flows.coding.sessions.reading import (
    SUFFIX,
    Content,
    NoSession,
    TooNew,
    Unusable,
    bytes_of,
    content_of,
)
from detent.kernel.errors import ConfigurationError

Kind = Literal["session", "legacy", "no_session", "damaged", "newer", "other"]
"""`session`: of this format. `other`: no JSON file."""
Done = Literal["migrated", "copied", "unchanged", "there", "failed"]
"""`there`: the target exists already, and is not written again."""

KINDS = ("session", "legacy", "no_session", "damaged", "newer", "other")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One file."""

    file: str
    """From the folder, with `/`."""
    kind: Kind
    session_id: str | None = None
    state: str | None = None
    is_complete: bool | None = None
    outcome: str | None = None
    vocabulary: str | None = None
    reason: str | None = None
    ambiguous: bool = False
    detail: str | None = None
    """What else there is to know; of a file that cannot be used, why."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """The booleans as they were found."""
    done: Done | None = None
    """What a migration has done."""
    target: str | None = None
    """The file it has written."""
    backup: str | None = None
    """The name of the kept original, beside it."""

    def to_plain(self) -> dict[str, Any]:
        """As `--json` prints it; what a migration has done only where there was one."""
        plain: dict[str, Any] = {
            "file": self.file, "kind": self.kind, "session_id": self.session_id, "state": self.state,
            "is_complete": self.is_complete, "outcome": self.outcome, "vocabulary": self.vocabulary,
            "reason": self.reason, "ambiguous": self.ambiguous, "detail": self.detail,
            "flags": dict(self.flags),
        }  # fmt: skip
        if self.done is not None:
            plain |= {"done": self.done, "target": self.target, "backup": self.backup}
        return plain


def audit(path: Path | str) -> Iterator[AuditRow]:
    """Every file of a folder and its sub-folders, in the order of their names. Nothing is changed.

    Raises:
        ConfigurationError: there is no such folder.
    """
    root = existing_folder(path)
    now = time.time()
    for file in _files(root):
        yield file if isinstance(file, AuditRow) else _looked_at(root, file, now)[0]


def counts(rows: Iterable[AuditRow]) -> dict[str, Any]:
    """How many files there are of each kind; of older ones, how many were mapped for each reason."""
    rows = list(rows)
    kinds = Counter[str](row.kind for row in rows)
    reasons = Counter(str(row.reason) for row in rows if row.kind == "legacy")
    total: dict[str, Any] = {
        "files": len(rows),
        "by_kind": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
        "by_reason": {
            str(reason): number for reason, number in sorted(reasons.items(), key=lambda item: str(item[0]))
        },
        "ambiguous": sum(row.ambiguous for row in rows),
    }
    if any(row.done for row in rows):
        done = Counter("damaged" if row.kind == "damaged" else row.done for row in rows if row.done)
        total["done"] = dict(sorted(done.items()))
    return total


def existing_folder(path: Path | str) -> Path:
    """The folder of a command line, absolute.

    Raises:
        ConfigurationError: there is none.
    """
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigurationError(f"There is no folder {path}. Name the folder in which the sessions lie.")
    return folder


# -- migration ----------------------------------------------------------------------------------------------


class Migration:
    """The sessions of a folder in the new format: in place, or in another folder."""

    def __init__(
        self, path: Path | str, out: Path | str | None, sessions: SessionFolder, *, flat: bool = False
    ) -> None:
        """`sessions` says how files are written: without which secrets, with or without booleans. `flat`
        leaves out the sub-folders.

        Raises:
            ConfigurationError: there is no such folder, or both are the same.
        """
        self._root = existing_folder(path)
        self._out = None if out is None else Path(out).expanduser().absolute()
        self._sessions = sessions
        self._flat = flat
        if self._out is not None and self._out.resolve() == self._root.resolve():
            raise ConfigurationError(
                f"{out} is the folder of the sessions itself. Leave --out away to migrate in place."
            )

    def run(self) -> Iterator[AuditRow]:
        """Migrate, and give every file with what was done."""
        now = time.time()
        if self._out is None:
            for file in _files(self._root):
                if isinstance(file, AuditRow):
                    yield replace(file, done="unchanged")
                else:
                    yield self._in_place(file, now)
            return
        taken: set[Path] = set()
        later: list[Path] = []
        # Files that are named after their session go first; they keep their names.
        for file in _files(self._root, leave_out=self._out):
            if isinstance(file, AuditRow):
                yield replace(file, done="unchanged")
                continue
            row, content = _looked_at(self._root, file, now)
            if content is None:
                yield replace(row, done="unchanged")
            elif content.record.session_id != file.stem:
                later.append(file)
            elif self._target(file) in taken:
                yield replace(row, done="failed", detail=_also(row, f"another file becomes {file.name}"))
            else:
                taken.add(self._target(file))
                yield self._copied(file, self._target(file), row, content)
        for file in later:
            row, content = _looked_at(self._root, file, now)
            if content is None:
                yield replace(row, done="unchanged")
                continue
            named = self._target(file.with_name(f"{content.record.session_id}{SUFFIX}"))
            target = self._target(file) if named in taken and not self._flat else named
            if target in taken:
                yield replace(row, done="failed", detail=_also(row, f"another file becomes {target.name}"))
                continue
            taken.add(target)
            yield self._copied(file, target, row, content)

    def _target(self, file: Path) -> Path:
        return Path(file.name) if self._flat else file

    def _in_place(self, file: Path, now: float) -> AuditRow:
        """One file, replaced by its new form, with the original beside it."""
        row, content = _looked_at(self._root, file, now)
        if content is None or not content.is_legacy:
            return replace(row, done="unchanged")
        folder_path = (self._root / file).parent
        try:
            with locked(self._root, folder_path) as folder:
                row, content = _looked_at_in(folder, file, now)  # another process may have been faster
                if content is None or not content.is_legacy:
                    return replace(row, done="unchanged")
                backup = keep_backup(folder, file.name, content.raw)
                replace_file(folder, file.name, self._new(content), content)
        except Unusable as error:
            return replace(row, done="failed", detail=_also(row, str(error)))
        except OSError as error:
            return replace(row, done="failed", detail=_also(row, f"cannot be written: {error.strerror}"))
        return replace(row, done="migrated", target=file.as_posix(), backup=backup)

    def _copied(self, file: Path, target: Path, row: AuditRow, content: Content) -> AuditRow:
        """One file in its new form in the other folder, unless something of that name is there."""
        assert self._out is not None
        raw = self._new(content) if content.is_legacy else file_bytes(self._sessions.plain(content.record))
        place = self._out / target
        try:
            private_folder(place.parent)
            with locked(self._out, place.parent) as folder:
                try:
                    folder.stat(place.name)
                    return replace(row, done="there", target=target.as_posix())
                except FileNotFoundError:
                    write_new(folder, place.name, raw)
        except OSError as error:
            return replace(row, done="failed", detail=_also(row, f"cannot be written: {error.strerror}"))
        return replace(row, done="migrated" if content.is_legacy else "copied", target=target.as_posix())

    def _new(self, content: Content) -> bytes:
        return file_bytes(self._sessions.plain(content.record))


def _also(row: AuditRow, detail: str) -> str:
    return detail if row.detail is None else f"{row.detail}; {detail}"


# -- looking ------------------------------------------------------------------------------------------------


def _files(root: Path, leave_out: Path | None = None) -> Iterator[Path | AuditRow]:
    """The files below a folder, relative to it; what is no file, or cannot be listed, as rows.

    Links to folders are not followed.
    """
    unread: list[AuditRow] = []

    def note(error: OSError) -> None:
        place = Path(error.filename).relative_to(root).as_posix()
        unread.append(AuditRow(place, "damaged", detail=f"cannot be read: {error.strerror}"))

    hidden = None if leave_out is None else leave_out.resolve()
    for here, folders, names in os.walk(root, onerror=note):
        folder = Path(here)
        yield from unread
        unread.clear()
        links = [name for name in folders if (folder / name).is_symlink()]
        folders[:] = sorted(
            name
            for name in folders
            if name not in links and (hidden is None or (folder / name).resolve() != hidden)
        )
        for name in sorted([*names, *links]):
            yield (folder / name).relative_to(root)
        for name in folders:
            if name.lower().endswith(SUFFIX):
                yield AuditRow((folder / name).relative_to(root).as_posix(), "damaged", detail="is a folder")
    yield from unread


def _looked_at(root: Path, file: Path, now: float) -> tuple[AuditRow, Content | None]:
    """What a file is, and the session in it."""
    if file.suffix.lower() != SUFFIX:
        is_backup = BACKUP in file.suffixes
        return AuditRow(file.as_posix(), "other", detail="a kept original" if is_backup else None), None
    try:
        with open_folder(root, (root / file).parent) as folder:
            return _looked_at_in(folder, file, now)
    except OSError as error:
        return AuditRow(file.as_posix(), "damaged", detail=f"cannot be read: {error.strerror}"), None


def _looked_at_in(folder: OpenFolder, file: Path, now: float) -> tuple[AuditRow, Content | None]:
    place = file.as_posix()
    try:
        content = content_of(*bytes_of(folder, file.name), file.name, now)
    except NoSession:
        return AuditRow(place, "no_session"), None
    except TooNew as error:
        return AuditRow(place, "newer", detail=str(error)), None
    except Unusable as error:
        return AuditRow(place, "damaged", detail=str(error)), None
    except FileNotFoundError:
        return AuditRow(place, "damaged", detail="is gone"), None
    return _row(place, content), content


def _row(place: str, content: Content) -> AuditRow:
    record = content.record
    found = record.migration if content.is_legacy else None
    row = AuditRow(
        place, "legacy" if content.is_legacy else "session", record.session_id, record.state_value,
        record.is_complete, record.outcome,
    )  # fmt: skip
    if found is not None:
        row = replace(
            row, vocabulary=found["vocabulary"], reason=found["reason"], ambiguous=found["ambiguous"],
            detail=found["detail"], flags=found["original"],
        )  # fmt: skip
    elif disagrees(record.plain):
        row = replace(row, reason=STATE_WINS, ambiguous=True, detail=STATE_WINS)
    if Path(place).stem != record.session_id:
        row = replace(row, detail=_also(row, f"its session is {record.session_id}"))
    return row
