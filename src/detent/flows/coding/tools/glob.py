"""The tool `glob`: files of a workspace whose paths match a pattern."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from detent.engine.tools import Tool, ToolError
from detent.flows.coding.tools.path_pattern import PathPattern, alternatives, denied_patterns
from detent.flows.coding.tools.spec import DENIED, EXCLUDED, SPECS, ToolSettings, with_code_arguments
from detent.flows.coding.tools.text_form import counted, shown_name, with_notes
from detent.flows.coding.tools.tree import Deadline, Group, Search
from detent.flows.coding.workspace import Entry, Workspace

SECONDS = 10.0
_WILD = frozenset("*?[{")

SortBy = Literal["name", "modified", "size"]


class _Match(NamedTuple):
    order: float
    path: str


def glob(
    settings: ToolSettings,
    *,
    workspace: str,
    pattern: str,
    directory: str = ".",
    recursive: bool = True,
    include_hidden: bool = False,
    exclude_dirs: Sequence[str] = EXCLUDED,
    max_results: int = 500,
    sort_by: SortBy = "name",
    case_sensitive: bool = True,
    use_gitignore: bool = True,
    denied: Sequence[str] = (),
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """The files below a folder that match, as paths relative to the workspace."""
    deadline = Deadline(seconds)
    space = settings.workspace(workspace)
    directory, pattern = _split(pattern, directory)
    start = space.folder(directory)
    if not pattern.strip("/.") or ".." in pattern.split("/"):
        raise ToolError("invalid_arguments", "a pattern names files, such as *.py; no .. after a wildcard.")
    if not recursive:
        pattern = "./" + re.sub(r"\*{2,}", "*", pattern)
    wanted = [PathPattern(text, case_sensitive=case_sensitive) for text in alternatives(pattern)]
    search = Search(
        space,
        deadline,
        hidden=include_hidden,
        use_gitignore=use_gitignore,
        exclude=tuple(PathPattern(name) for name in exclude_dirs),
        denied=denied_patterns(denied),
        may_enter=lambda folder: any(rule.may_match_below(folder) for rule in wanted),
        with_folders=pattern.endswith("/"),
    )
    found = _matches(search, start, wanted, sort_by, folders=pattern.endswith("/"))
    most = int(max_results)
    if sort_by == "name":
        matches = list(islice(found, most + 1))
    else:
        matches = heapq.nsmallest(most + 1, found)
    more = len(matches) > most
    matches = matches[:most]
    notes = [f"There are more than {counted(most, 'match')}."] if more else []
    text = "\n".join(shown_name(match.path) for match in matches) or "(no matches)"
    return {
        "content": with_notes(text, [*notes, *search.notes()]),
        "truncated": more or deadline.passed,
        "count": len(matches),
    }


def _split(pattern: str, directory: str) -> tuple[str, str]:
    """The folder to search and the pattern below it: a pattern may begin with a path that leads elsewhere."""
    parts = pattern.split("/")
    if not (pattern.startswith(("/", "~/")) or ".." in parts):
        return directory, pattern
    fixed = next((n for n, part in enumerate(parts) if _WILD.intersection(part)), len(parts) - 1)
    fixed = min(fixed, len(parts) - 1)
    head, rest = "/".join(parts[:fixed]), "/".join(parts[fixed:])
    if pattern.startswith("/"):
        head = head or "/"
    elif not pattern.startswith("~/"):
        head = f"{directory}/{head}"
    return head, f"./{rest}" if fixed else rest


def _matches(
    search: Search, start: Path, wanted: Sequence[PathPattern], sort_by: SortBy, *, folders: bool
) -> Iterator[_Match]:
    top = search.workspace.relative(start)
    skip = 0 if top == "." else len(top) + 1
    for group in search.walk(start):
        for entry in group.entries:
            if search.deadline.over():
                return
            path = group.prefix + entry.name
            if (entry.kind == "folder") is not folders:
                continue
            if not any(rule.matches(path[skip:]) for rule in wanted):
                continue
            if entry.kind == "link" and not leads_to_file(search.workspace, group.folder / entry.name):
                continue
            yield _Match(_order(group, entry, sort_by), f"{path}/" if folders else path)


def leads_to_file(space: Workspace, link: Path) -> bool:
    """Whether a link leads to a file that tools may read."""
    try:
        target = link.resolve()
    except (OSError, RuntimeError):
        return False
    return target.is_relative_to(space.root) and not space.hides(target) and target.is_file()


def _order(group: Group, entry: Entry, sort_by: SortBy) -> float:
    """What matches are sorted by, before their path: newest first, largest first."""
    if sort_by == "name":
        return 0
    try:
        status = os.stat(group.folder / entry.name, follow_symlinks=False)
    except OSError:
        return 0
    return -status.st_mtime if sort_by == "modified" else -status.st_size


def glob_tool(settings: ToolSettings) -> Tool:
    """The tool, for the settings of a project."""
    spec = SPECS["glob"]
    return Tool(
        spec.name, partial(glob, settings), "query", blocking=True, description=spec.description,
        arguments=with_code_arguments(spec, denied=DENIED),
    )  # fmt: skip
