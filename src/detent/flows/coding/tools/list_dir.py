"""The tool `list_dir`: the names in a folder, with kind and size, sorted."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from detent.engine.tools import Tool
from detent.flows.coding.tools.path_pattern import denied_patterns
from detent.flows.coding.tools.spec import DENIED, SPECS, ToolSettings, with_code_arguments
from detent.flows.coding.tools.text_form import counted, shown_name, with_notes
from detent.flows.coding.workspace import Workspace, kind_of


class _Line(NamedTuple):
    name: str
    kind: str
    size: int | None


def list_dir(
    settings: ToolSettings,
    *,
    workspace: str,
    directory: str = ".",
    max_entries: int = 200,
    show_hidden: bool = False,
    denied: Sequence[str] = (),
) -> dict[str, Any]:
    """The entries of a folder, sorted by name."""
    space = settings.workspace(workspace)
    folder = space.folder(directory)
    patterns = denied_patterns(denied)
    prefix = "" if folder == space.root else f"{space.relative(folder)}/"
    total = hidden = 0

    def lines() -> Iterator[_Line]:
        nonlocal total, hidden
        with space.scanning(folder, directory) as entries:
            for entry in entries:
                if space.hides_entry(folder, entry):
                    continue
                if any(pattern.matches_above(prefix + entry.name) for pattern in patterns):
                    continue
                if entry.name.startswith(".") and not show_hidden:
                    hidden += 1
                    continue
                total += 1
                size = None
                kind = kind_of(entry)
                if kind == "file":
                    with contextlib.suppress(OSError):  # it is gone by now
                        size = entry.stat(follow_symlinks=False).st_size
                yield _Line(entry.name, kind, size)

    shown = heapq.nsmallest(int(max_entries), lines())
    notes = []
    if total > len(shown):
        notes.append(f"The first {len(shown):,} of {counted(total, 'entry')} are shown.")
    if hidden:
        notes.append(f"Not shown, because their names begin with a dot: {hidden:,}.")
    text = "\n".join(_text(line, space, folder) for line in shown) or "(no entries)"
    return {"content": with_notes(text, notes), "truncated": total > len(shown), "count": total}


def _text(line: _Line, space: Workspace, folder: Path) -> str:
    """One line: kind, size, name; where a link leads, if that is inside."""
    size = "-" if line.size is None else str(line.size)
    name = shown_name(line.name + ("/" if line.kind == "folder" else ""))
    text = f"{line.kind:6} {size:>10} {name}"
    if line.kind == "link":
        with contextlib.suppress(OSError, RuntimeError):
            target = (folder / line.name).resolve()
            inside = target.is_relative_to(space.root) and not space.hides(target)
            text += f" -> {shown_name(space.relative(target))}" if inside else " -> (outside the workspace)"
    return text


def list_dir_tool(settings: ToolSettings) -> Tool:
    """The tool, for the settings of a project."""
    spec = SPECS["list_dir"]
    return Tool(
        spec.name, partial(list_dir, settings), "query", blocking=True, description=spec.description,
        arguments=with_code_arguments(spec, denied=DENIED),
    )  # fmt: skip
