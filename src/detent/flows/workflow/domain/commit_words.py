"""Words for commit messages, from paths and counts: the type, scope and summary of a change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from detent.flows.workflow.domain.diffs import FileChange

MOST_LINES = 50
"""Most files listed in a body; the rest are counted."""
GROWTH = 0.7
"""Share of added lines above which a change counts as a feature."""

_DOCS = frozenset({".md", ".rst", ".adoc", ".txt"})
_TEST_PLACES = frozenset({"test", "tests", "testing", "spec", "specs", "__tests__", "e2e"})
_DOC_PLACES = frozenset({"doc", "docs", "documentation"})
_BUILD_PLACES = frozenset({".github", ".gitlab", ".circleci", ".ci", "docker"})
_BUILD_NAMES = frozenset({
    "makefile", "dockerfile", "jenkinsfile", "justfile", "pyproject.toml", "setup.py", "setup.cfg",
    "tox.ini", "noxfile.py", "package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml",
    "poetry.lock", "uv.lock", "cargo.toml", "cargo.lock", "go.mod", "go.sum", "pom.xml", "build.gradle",
    "cmakelists.txt", "gemfile", "gemfile.lock", "requirements.txt", "constraints.txt", ".gitlab-ci.yml",
    ".pre-commit-config.yaml", ".gitignore", ".gitattributes", ".dockerignore", ".editorconfig",
})  # fmt: skip
_ROOTS = frozenset({"src", "lib", "source", "packages", "app"})
_VERBS = {"added": "add", "changed": "update", "removed": "remove", "renamed": "rename"}


def kind_of(changes: Sequence[FileChange]) -> str:
    """Return the type of a commit: by the paths if all are of one kind, otherwise by the lines changed."""
    kinds = {_place_kind(change.path) for change in changes}
    if len(kinds) == 1 and (only := kinds.pop()) is not None:
        return only
    code = [change for change in changes if _place_kind(change.path) is None] or list(changes)
    added, removed = (sum(getattr(change, name) or 0 for change in code) for name in ("added", "removed"))
    if added + removed == 0:
        return "feat" if any(change.change == "added" for change in code) else "fix"
    return "feat" if added / (added + removed) >= GROWTH else "fix"


def _place_kind(path: str) -> str | None:
    location = PurePosixPath(path.lower())
    name, folders = location.name, set(location.parts[:-1])
    stem = location.stem
    if (
        folders & _TEST_PLACES
        or stem.startswith("test_")
        or stem.endswith(("_test", ".test", ".spec", "_spec"))
    ):
        return "test"
    if name in _BUILD_NAMES or folders & _BUILD_PLACES or name.startswith(("dockerfile.", "requirements-")):
        return "build"
    if folders & _DOC_PLACES or location.suffix in _DOCS or stem in ("license", "changelog", "readme"):
        return "docs"
    return None


def scope_of(changes: Sequence[FileChange]) -> str:
    """Return the name of the folder that contains all files; empty for the top of the project."""
    folders = [PurePosixPath(change.path).parts[:-1] for change in changes]
    shared: list[str] = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) != 1:
            break
        shared.append(parts[0])
    while shared and shared[-1].lower() in _ROOTS:
        shared.pop()
    scope = re.sub(r"[^\w.+-]", "-", shared[-1]) if shared else ""
    return scope if len(scope) <= 24 else ""


def summary_of(changes: Sequence[FileChange], room: int) -> str:
    """Return a summary of at most `room` characters."""
    for summary in _summaries(changes):
        if len(summary) <= room:
            return summary
    return summary[: room - 1] + "…"


def _summaries(changes: Sequence[FileChange]) -> list[str]:
    """Ways to say it, the most telling first."""
    if len(changes) == 1:
        return _of_one(changes[0])
    verbs = {change.change for change in changes}
    verb = _VERBS[verbs.pop()] if len(verbs) == 1 else "update"
    names = list(dict.fromkeys(PurePosixPath(change.path).name for change in changes))
    brought = [name for change in changes for name in change.brings if _place_kind(change.path) is None]
    summaries = []
    if verb == "update" and brought:
        summaries.append(f"add {_listed(brought[:3])}" + (" and more" if len(brought) > 3 else ""))
    if len(names) <= 3:
        summaries.append(f"{verb} {_listed(names)}")
    folder = scope_of(changes)
    summaries.append(f"{verb} {len(changes)} files" + (f" in {folder}" if folder else ""))
    return [*summaries, f"{verb} {len(changes)} files"]


def _of_one(change: FileChange) -> list[str]:
    name = PurePosixPath(change.path).name
    summaries = []
    if change.change == "renamed" and change.old_path is not None:
        old = PurePosixPath(change.old_path).name
        summaries.append(
            f"rename {old} to {name}"
            if old != name
            else f"move {name} to {PurePosixPath(change.path).parent}"
        )
    elif change.change == "changed" and change.brings:
        summaries.append(f"add {_listed(change.brings[:3])} to {name}")
    elif change.change == "changed" and change.takes:
        summaries.append(f"remove {_listed(change.takes[:3])} from {name}")
    return [*summaries, f"{_VERBS[change.change]} {name}", f"{_VERBS[change.change]} a file"]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def body_of(changes: Sequence[FileChange]) -> str:
    """Return a body with one line per file and its counts."""
    lines = [f"- {_file_line(change)}" for change in changes[:MOST_LINES]]
    if len(changes) > MOST_LINES:
        lines.append(f"- and {len(changes) - MOST_LINES} more files")
    return "\n".join(lines)


def _file_line(change: FileChange) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in change.path)
    notes = []
    if change.change == "renamed" and change.old_path is not None:
        notes.append(
            "renamed from " + "".join(char if char.isprintable() else "?" for char in change.old_path)
        )
    elif change.change != "changed":
        notes.append("new" if change.change == "added" else "removed")
    if change.binary:
        notes.append("binary")
    elif change.added is not None and change.removed is not None:
        notes.append(f"+{change.added} -{change.removed}")
    return f"{shown} ({', '.join(notes)})" if notes else shown
