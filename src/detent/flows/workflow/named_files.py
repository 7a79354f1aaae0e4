"""The files that workflow files name by path: subworkflows and prompts, existing or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from detent.authoring.document import file_bytes, read_document
from detent.runtime.project_files import LONGEST_NAME, files_below, resolved


def named_by(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the paths that workflow files below a folder name, and the paths those files name in turn."""
    waiting = [file for file in files_below(folder) if file.suffix in suffixes]
    seen = set(waiting)
    paths: dict[Path, None] = {}
    while waiting:
        for path in _named_in(waiting.pop(), suffixes):
            paths[path] = None
            if path not in seen and path.suffix in suffixes and path.is_file():
                waiting.append(path)
            seen.add(path)
    return list(paths)


def _named_in(workflow: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files that a workflow file names; relative paths start from its folder."""
    try:
        waiting = [read_document(file_bytes(workflow), workflow.name).value]
    except OSError:
        return []  # an unreadable file cannot run
    paths: list[Path] = []
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
            for key in ("workflow", "prompt_file"):
                name = value.get(key)
                if not isinstance(name, str) or len(name) >= LONGEST_NAME or "\0" in name:
                    continue
                if key == "prompt_file" or "/" in name or "\\" in name or name.endswith(tuple(suffixes)):
                    paths.append(resolved(workflow.parent / Path(name).expanduser()))
    return paths
