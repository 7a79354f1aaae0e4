"""The files that workflow files name by their paths: subworkflows and prompts, there or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from detent.authoring.document import read_document
from detent.runtime.project_files import LONGEST_NAME, files_below, resolved


def named_by(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Paths that the workflow files below a folder name, and those that these name in turn."""
    left = [file for file in files_below(folder) if file.suffix in suffixes]
    seen = set(left)
    found: dict[Path, None] = {}
    while left:
        for path in _named_in(left.pop(), suffixes):
            found[path] = None
            if path not in seen and path.suffix in suffixes and path.is_file():
                left.append(path)
            seen.add(path)
    return list(found)


def _named_in(workflow: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files that a workflow file names, with paths that start from its folder."""
    try:
        left = [read_document(workflow.read_bytes(), workflow.name).value]
    except OSError:
        return []  # nothing runs of a file that cannot be read
    found: list[Path] = []
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, Mapping):
            left += value.values()
            for key in ("workflow", "prompt_file"):
                name = value.get(key)
                if not isinstance(name, str) or len(name) >= LONGEST_NAME or "\0" in name:
                    continue
                if key == "prompt_file" or "/" in name or "\\" in name or name.endswith(tuple(suffixes)):
                    found.append(resolved(workflow.parent / Path(name).expanduser()))
    return found
