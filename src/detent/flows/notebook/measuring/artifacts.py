"""Artifacts: which of them were really produced, by what is found in the kernel and on disk.

A name that is there counts only if an executed cell assigned it, or wrote it, in the time that is judged:
what an earlier stage or a superseded step left behind proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.flows.notebook.measuring.criteria import Criterion
from detent.flows.notebook.state.facts import ArtifactFact


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What is known of a file or folder in the work folder."""

    exists: bool
    size: int = 0
    """Bytes; of a folder, those of the files in it."""
    modified_ns: int = 0
    """When it was last written; of a folder, the latest of its files."""
    is_folder: bool = False


def is_file(name: str) -> bool:
    """Whether an artifact is a file or folder; else it is a variable."""
    return "/" in name


def written_files(before: Mapping[str, FileInfo], after: Mapping[str, FileInfo]) -> frozenset[str]:
    """The files and folders that were written between two looks at them."""
    return frozenset(
        name
        for name, info in after.items()
        if info.exists and (name not in before or not before[name].exists or before[name] != info)
    )


def classify(
    name: str,
    found: VariableInfo | FileInfo | None,
    *,
    assigned: bool,
    failed: Iterable[Criterion] = (),
) -> ArtifactFact:
    """An artifact as it was found; `failed` are the criteria that did not pass.

    It is complete if it was assigned in the time that is judged, exists, is neither None nor empty, and no
    criterion that names it failed.
    """
    if found is None or not found.exists:
        return ArtifactFact(name, "missing", "absent")
    if not assigned:
        return ArtifactFact(name, "missing", "stale")
    if isinstance(found, VariableInfo) and found.is_none:
        return ArtifactFact(name, "incomplete", "none")
    if found.size == 0:  # None: a value without a length, such as a number
        return ArtifactFact(name, "incomplete", "empty")
    if any(criterion.mentions(name) for criterion in failed):
        return ArtifactFact(name, "incomplete", "criterion")
    return ArtifactFact(name, "complete")


def classify_all(
    names: Iterable[str],
    variables: Mapping[str, VariableInfo],
    files: Mapping[str, FileInfo],
    *,
    assigned: Collection[str],
    failed: Iterable[Criterion] = (),
) -> tuple[ArtifactFact, ...]:
    """Artifacts as they were found; `assigned` are the names assigned and the files written in the time that
    is judged.
    """
    failed = tuple(failed)
    return tuple(
        classify(
            name,
            files.get(name) if is_file(name) else variables.get(name),
            assigned=name in assigned,
            failed=failed,
        )
        for name in names
    )
