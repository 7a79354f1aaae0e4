"""Words for a change: of what kind it is, where, and what it does, from paths and counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from detent.flows.workflow.domain.diffs import FileChange

MOST_LINES = 50
"""Files told in a body; the rest are counted."""
GROWTH = 0.7
"""Share of added lines from which on a change is taken for something new."""

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
    """The type: by the paths where they are all of one kind, else by how much came and how much went."""
    kinds = {_place_kind(one.path) for one in changes}
    if len(kinds) == 1 and (only := kinds.pop()) is not None:
        return only
    code = [one for one in changes if _place_kind(one.path) is None] or list(changes)
    added, removed = (sum(getattr(one, name) or 0 for one in code) for name in ("added", "removed"))
    if added + removed == 0:
        return "feat" if any(one.change == "added" for one in code) else "fix"
    return "feat" if added / (added + removed) >= GROWTH else "fix"


def _place_kind(path: str) -> str | None:
    where = PurePosixPath(path.lower())
    name, folders = where.name, set(where.parts[:-1])
    stem = where.stem
    if (
        folders & _TEST_PLACES
        or stem.startswith("test_")
        or stem.endswith(("_test", ".test", ".spec", "_spec"))
    ):
        return "test"
    if name in _BUILD_NAMES or folders & _BUILD_PLACES or name.startswith(("dockerfile.", "requirements-")):
        return "build"
    if folders & _DOC_PLACES or where.suffix in _DOCS or stem in ("license", "changelog", "readme"):
        return "docs"
    return None


def scope_of(changes: Sequence[FileChange]) -> str:
    """The folder all files have in common, by its own name; nothing at the top of the project."""
    folders = [PurePosixPath(one.path).parts[:-1] for one in changes]
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
    """What was done, in at most so many characters."""
    for said in _summaries(changes):
        if len(said) <= room:
            return said
    return said[: room - 1] + "…"


def _summaries(changes: Sequence[FileChange]) -> list[str]:
    """Ways to say it, the most telling first."""
    if len(changes) == 1:
        return _of_one(changes[0])
    verbs = {one.change for one in changes}
    verb = _VERBS[verbs.pop()] if len(verbs) == 1 else "update"
    names = list(dict.fromkeys(PurePosixPath(one.path).name for one in changes))
    brought = [name for one in changes for name in one.brings if _place_kind(one.path) is None]
    said = []
    if verb == "update" and brought:
        said.append(f"add {_listed(brought[:3])}" + (" and more" if len(brought) > 3 else ""))
    if len(names) <= 3:
        said.append(f"{verb} {_listed(names)}")
    folder = scope_of(changes)
    said.append(f"{verb} {len(changes)} files" + (f" in {folder}" if folder else ""))
    return [*said, f"{verb} {len(changes)} files"]


def _of_one(one: FileChange) -> list[str]:
    name = PurePosixPath(one.path).name
    said = []
    if one.change == "renamed" and one.old_path is not None:
        old = PurePosixPath(one.old_path).name
        said.append(
            f"rename {old} to {name}" if old != name else f"move {name} to {PurePosixPath(one.path).parent}"
        )
    elif one.change == "changed" and one.brings:
        said.append(f"add {_listed(one.brings[:3])} to {name}")
    elif one.change == "changed" and one.takes:
        said.append(f"remove {_listed(one.takes[:3])} from {name}")
    return [*said, f"{_VERBS[one.change]} {name}", f"{_VERBS[one.change]} a file"]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def body_of(changes: Sequence[FileChange]) -> str:
    """One line per file with its counts."""
    lines = [f"- {_told(one)}" for one in changes[:MOST_LINES]]
    if len(changes) > MOST_LINES:
        lines.append(f"- and {len(changes) - MOST_LINES} more files")
    return "\n".join(lines)


def _told(one: FileChange) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in one.path)
    notes = []
    if one.change == "renamed" and one.old_path is not None:
        notes.append("renamed from " + "".join(char if char.isprintable() else "?" for char in one.old_path))
    elif one.change != "changed":
        notes.append("new" if one.change == "added" else "removed")
    if one.binary:
        notes.append("binary")
    elif one.added is not None and one.removed is not None:
        notes.append(f"+{one.added} -{one.removed}")
    return f"{shown} ({', '.join(notes)})" if notes else shown
