"""The tool `write_file`: a new file, or the whole of one that was read before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from detent.adapters.project.sandbox import quoted
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.flows.coding.tools.file_change import (
    FileChange,
    FileChanges,
    check_hidden,
    content_of,
    encoded,
    preview,
    sha256,
    writable,
)
from detent.flows.coding.tools.spec import SPECS, WRITING, ToolSettings, with_code_arguments
from detent.flows.coding.tools.text_form import counted, shown_name

LARGEST = 1024 * 1024
"""Bytes of a text that is written."""


def plan_write(
    settings: ToolSettings,
    *,
    workspace: str,
    filepath: str,
    content: str,
    overwrite: bool = False,
    seen: str | None = None,
    decided: Mapping[str, Any] | None = None,
    denied: Sequence[str] = (),
) -> FileChange:
    """The change that writing a file makes.

    `seen` is the SHA-256 of the content that the session has last read or written there.

    Raises:
        ToolError: it may not be made.
    """
    space = settings.workspace(workspace)
    raw = encoded(content, "content")
    if len(raw) > LARGEST:
        raise ToolError("too_large", f"a file has at most {LARGEST:,} bytes, not {len(raw):,}.")
    place = writable(space, filepath, decided, denied)
    before = content_of(space, place, filepath)
    done = "Wrote" if before is None else "Replaced"
    change = FileChange(
        space,
        place,
        before,
        raw,
        f"{done} {shown_name(space.relative(place))} ({counted(_lines(raw), 'line')}).",
    )
    if before is None:
        return change
    check_hidden(settings.secrets, before, raw, filepath)
    if not overwrite:
        raise ToolError(
            "exists",
            f"{quoted(filepath)} exists. Change a part of it with update_file, or read it and set overwrite.",
        )
    if seen != sha256(before) and before != raw:
        why = "has not been read" if seen is None else "has changed since it was read"
        raise ToolError("stale", f"{quoted(filepath)} {why}; read it before it is replaced.")
    return change


def _lines(raw: bytes) -> int:
    return raw.count(b"\n") + (not raw.endswith(b"\n") if raw else 0)


def write_file_tool(settings: ToolSettings) -> Tool:
    """The tool, for the settings of a project."""
    spec, changes = SPECS["write_file"], FileChanges()

    async def perform(
        call: EffectCall,
        *,
        workspace: str,
        filepath: str,
        content: str,
        overwrite: bool = False,
        seen: str | None = None,
        decided: Mapping[str, Any] | None = None,
        denied: Sequence[str] = (),
    ) -> dict[str, Any]:
        plan = partial(
            plan_write, settings, workspace=workspace, filepath=filepath, content=content,
            overwrite=overwrite, seen=seen, decided=decided, denied=denied,
        )  # fmt: skip
        return await changes.perform(call, plan)

    def probe(call: EffectCall, **args: Any) -> Any:
        return changes.probe(call)

    def show(**args: Any) -> str:
        return preview(partial(plan_write, settings, **args))

    return Tool(
        spec.name, perform, "effect", probe=probe, probe_wants_call=True, stop=changes.stop, wants_call=True,
        preview=show, description=spec.description, arguments=with_code_arguments(spec, **WRITING),
    )  # fmt: skip
