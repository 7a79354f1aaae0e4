"""The tool `update_file`: a text in a file replaced by another one, every other byte untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from detent.adapters.project.sandbox import quoted
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.flows.coding.sessions.redaction import REMOVED
from detent.flows.coding.tools.file_change import (
    LARGEST,
    FileChange,
    FileChanges,
    check_hidden,
    content_of,
    encoded,
    hides_any,
    preview,
    sha256,
    stands_for_secret,
    writable,
)
from detent.flows.coding.tools.spec import SPECS, WRITING, ToolSettings, with_code_arguments
from detent.flows.coding.tools.text_edit import MOST_OCCURRENCES, LineText, Place
from detent.flows.coding.tools.text_form import HEAD, counted, is_binary, shown_name

MOST_LINES = 20
"""Line numbers that are named."""


def plan_update(
    settings: ToolSettings,
    *,
    workspace: str,
    filepath: str,
    target: str,
    patch: str,
    replace_all: bool = False,
    seen: str | None = None,
    decided: Mapping[str, Any] | None = None,
    denied: Sequence[str] = (),
) -> FileChange:
    """The change that replacing a text makes.

    `seen` is the SHA-256 of the content that the session has last read or written there; a file that has
    changed since is not refused, because the target shows what is replaced.

    Raises:
        ToolError: it cannot be made.
    """
    space = settings.workspace(workspace)
    if not target:
        raise ToolError("invalid_arguments", "the target is empty; it must be a part of the file.")
    encoded(target, "target")
    encoded(patch, "patch")
    place = writable(space, filepath, decided, denied)
    before = content_of(space, place, filepath)
    if before is None:
        with space.reading(place, filepath):  # says what is there instead
            raise ToolError("stale", f"{quoted(filepath)} was written meanwhile; read it again.")
    if is_binary(before[:HEAD]):
        raise ToolError("binary", f"{quoted(filepath)} is no text file; it is not changed.")
    text = LineText(before)
    places = text.occurrences(target, MOST_OCCURRENCES + 1, overlapping=not replace_all)
    if not places:
        if REMOVED in target and hides_any(settings.secrets, before):
            raise ToolError("not_found", f"{stands_for_secret(filepath)} Choose a target without it.")
        raise _not_found(filepath, text, target)
    if len(places) > 1 and not replace_all:
        raise _not_unique(filepath, text, places)
    if len(places) > MOST_OCCURRENCES:
        raise ToolError("too_large", f"the target occurs more than {MOST_OCCURRENCES:,} times.")
    if text.replaced_size(len(places), target, patch) > LARGEST:
        raise ToolError("too_large", f"{quoted(filepath)} would become larger than {LARGEST:,} bytes.")
    after = text.replaced(places, target, patch)
    if after == before:
        raise ToolError("invalid_arguments", "target and patch are the same; nothing would change.")
    check_hidden(settings.secrets, before, after, filepath)
    changed = " It had changed since it was last read." if seen not in (None, sha256(before)) else ""
    where = _line_numbers(text, places)
    what = f"{counted(len(places), 'occurrence')} in {shown_name(space.relative(place))}"
    done = f"Replaced {what} ({where}).{changed}"
    return FileChange(space, place, before, after, done)


def _line_numbers(text: LineText, places: Sequence[int]) -> str:
    lines = list(dict.fromkeys(text.line_of(place) for place in places[:MOST_LINES]))
    more = ", …" if len(places) > MOST_LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}{more}"


def _not_unique(name: str, text: LineText, places: Sequence[int]) -> ToolError:
    count = f"more than {MOST_OCCURRENCES:,}" if len(places) > MOST_OCCURRENCES else f"{len(places):,}"
    where = _line_numbers(text, places)
    return ToolError(
        "not_unique",
        f"the target occurs {count} times in {quoted(name)} ({where}). Take in lines around the one you "
        f"mean, or set replace_all.",
    )


def _not_found(name: str, text: LineText, target: str) -> ToolError:
    message = f"the target does not occur in {quoted(name)}."
    places = text.nearest(target)
    if "\ufffd" in target:
        message += " It holds \ufffd, which stands for bytes that are no UTF-8: choose a target without them."
    elif not text.plain:
        message += " The file is empty."
    elif places and places[0].is_same:
        message += " It does with other white space at the beginning or end of lines:"
    elif places:
        message += " The nearest lines:"
    else:
        message += " Read the file and copy the target from it."
    return ToolError("not_found", "\n".join([message, *(_shown(place) for place in places)]))


def _shown(place: Place) -> str:
    lines = "\n".join(place.lines)
    return f"line {place.line}:\n{lines}"


def update_file_tool(settings: ToolSettings) -> Tool:
    """The tool, for the settings of a project."""
    spec, changes = SPECS["update_file"], FileChanges()

    async def perform(
        call: EffectCall,
        *,
        workspace: str,
        filepath: str,
        target: str,
        patch: str,
        replace_all: bool = False,
        seen: str | None = None,
        decided: Mapping[str, Any] | None = None,
        denied: Sequence[str] = (),
    ) -> dict[str, Any]:
        plan = partial(
            plan_update, settings, workspace=workspace, filepath=filepath, target=target, patch=patch,
            replace_all=replace_all,
            seen=seen, decided=decided, denied=denied,
        )  # fmt: skip
        return await changes.perform(call, plan)

    def probe(call: EffectCall, **args: Any) -> Any:
        return changes.probe(call)

    def show(**args: Any) -> str:
        return preview(partial(plan_update, settings, **args))

    return Tool(
        spec.name, perform, "effect", probe=probe, probe_wants_call=True, stop=changes.stop, wants_call=True,
        preview=show, description=spec.description, arguments=with_code_arguments(spec, **WRITING),
    )  # fmt: skip
