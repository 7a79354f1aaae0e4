"""Changing one file as an effect: planned, shown, performed once, and settled by its content after a crash.

The hashes of the old and the new content are journaled before the file is written. Afterwards the file's own
hash tells whether it was: a file with neither content is left to a person.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from detent.adapters.project.sandbox import quoted
from detent.engine.calls import in_thread
from detent.engine.tools import NOT_DONE, UNKNOWN, EffectCall, ToolError
from detent.flows.coding.sessions.redaction import REMOVED, Redaction
from detent.flows.coding.tools.path_pattern import denied_patterns
from detent.flows.coding.tools.text_form import HEAD, counted, is_binary, shown_name
from detent.flows.coding.workspace import Workspace, codes

LARGEST = 10 * 1024 * 1024
"""Bytes of the largest file that is changed or replaced."""
MOST_COMPARED = 2_000_000
"""Pairs of lines that a diff may compare; beyond, old and new lines are shown one after the other."""
MOST_SHOWN = 400
"""Lines of a diff."""
REMEMBERED = 1000
"""Effects under way whose facts are kept in memory."""
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")
"""How the sandbox names a file that is being written."""


@dataclass(frozen=True)
class FileChange:
    """A file with its content before and after."""

    workspace: Workspace
    place: Path
    before: bytes | None
    """None: there is no such file."""
    after: bytes
    done: str
    """What has been done, for the assistant."""

    @property
    def path(self) -> str:
        """The file, relative to the workspace."""
        return self.workspace.relative(self.place)

    def facts(self) -> dict[str, Any]:
        """What the journal keeps of it before it is performed."""
        before = None if self.before is None else sha256(self.before)
        return {
            "workspace": str(self.workspace.root), "path": self.path, "before": before,
            "after": sha256(self.after), "size": len(self.after),
        }  # fmt: skip

    def receipt(self) -> dict[str, Any]:
        """What the tool returns once it is performed."""
        if self.before == self.after:
            return _receipt(f"{shown_name(self.path)} already has this content.", [], sha256(self.after))
        return _receipt(self.done, [self.path], sha256(self.after))

    def perform(self) -> None:
        """Write the file, if it is still as it was."""
        current = content_of(self.workspace, self.place, self.path)
        if current is not None and self.before is None:
            raise self._exists()
        if current != self.before:
            raise ToolError("stale", f"{quoted(self.path)} was changed meanwhile; read it again.")
        with codes():
            written = self.workspace.sandbox.put(self.place, self.after, replace=self.before is not None)
        if not written:
            raise self._exists()

    def _exists(self) -> ToolError:
        return ToolError("exists", f"{quoted(self.path)} exists by now; read it first.")

    def diff(self) -> str:
        """The change for a person: a unified diff that names the contents by their hashes."""
        facts = self.facts()
        old = _hash_shown(facts["before"]) if self.before is not None else "does not exist"
        head = [
            f"--- {quoted(self.path)[1:-1]} ({old})",
            f"+++ {quoted(self.path)[1:-1]} ({_hash_shown(facts['after'])})",
        ]
        before = self.before or b""
        if is_binary(before[:HEAD]):
            before, head = b"", [*head, f"(what is there is no text: {len(before):,} bytes)"]
        body = _diff(_lines(before), _lines(self.after))
        if len(body) > MOST_SHOWN:
            body = [*body[:MOST_SHOWN], f"… {counted(len(body) - MOST_SHOWN, 'more line')}"]
        return "\n".join([*head, *body])


class FileChanges:
    """The changes that a tool has under way."""

    def __init__(self) -> None:
        self._facts: OrderedDict[tuple[str, str], Mapping[str, Any]] = OrderedDict()

    async def perform(self, call: EffectCall, plan: Callable[[], FileChange]) -> dict[str, Any]:
        """Plan a change, journal its hashes, and make it."""
        try:
            change: FileChange = await in_thread(plan)
        except OSError as error:  # nothing has been done yet
            raise ToolError("failed", f"The file cannot be looked at ({error.strerror}).") from None
        if change.before != change.after:
            facts = change.facts()
            await call.begun(**facts)
            self._remember(call, facts)
            await in_thread(change.perform)
        return change.receipt()

    def stop(self, call: EffectCall) -> None:
        """Note what an earlier call, in a worker that died, has journaled, and remove what it left."""
        self._remember(call, call.intent)
        if "path" in call.intent:
            with contextlib.suppress(OSError, ToolError):
                _remove_temporary(Workspace.at(call.intent["workspace"]), call.intent)

    def probe(self, call: EffectCall) -> Any:
        """Whether the change was made, told by the content of the file."""
        facts = call.intent or self._facts.get((call.run_id, call.key)) or {}
        if "after" not in facts:
            return NOT_DONE  # the hashes are journaled before anything is written
        workspace = Workspace.at(facts["workspace"])
        try:
            place = workspace.resolve(facts["path"])
            current = content_of(workspace, place, facts["path"])
        except ToolError:
            return UNKNOWN
        now = None if current is None else sha256(current)
        if now is not None and now == facts["after"]:
            return _receipt(f"{shown_name(facts['path'])} was written.", [facts["path"]], now)
        return NOT_DONE if now == facts["before"] else UNKNOWN

    def _remember(self, call: EffectCall, facts: Mapping[str, Any]) -> None:
        self._facts[call.run_id, call.key] = facts
        while len(self._facts) > REMEMBERED:
            self._facts.popitem(last=False)


def preview(plan: Callable[[], FileChange]) -> str:
    """The diff of a change.

    Raises:
        ToolError: it cannot be made.
    """
    return plan().diff()


def writable(
    workspace: Workspace, name: str, decided: Mapping[str, Any] | None, denied: Sequence[str]
) -> Path:
    """The place that a change of a file goes to, if the rules let it be written.

    They were asked about the call as it was made; a person may have changed its path since.

    Raises:
        ToolError: as `Workspace.writable` and `check_decided`; `protected`.
    """
    place = workspace.writable(name)
    workspace.check_decided(place, name, decided)
    paths = (workspace.relative(place), workspace.spelled(name))
    if any(pattern.matches_above(path) for pattern in denied_patterns(denied) for path in paths):
        raise ToolError("protected", f"a rule denies writing {quoted(name)}.")
    return place


def check_hidden(secrets: frozenset[str], before: bytes | None, after: bytes, name: str) -> None:
    """Refuse to write over a secret what stands for it in results.

    Raises:
        ToolError: `invalid_arguments`.
    """
    mark = REMOVED.encode()
    if before is not None and after.count(mark) > before.count(mark) and hides_any(secrets, before):
        raise ToolError("invalid_arguments", f"{stands_for_secret(name)} Change the parts around it.")


def hides_any(secrets: frozenset[str], raw: bytes) -> bool:
    """Whether a file is shown without some of its parts."""
    text = raw.decode("utf-8", "replace")
    return Redaction(secrets).text(text) != text


def stands_for_secret(name: str) -> str:
    """What is said of a text with the words that stand for a secret."""
    return f"{REMOVED} stands for a secret that the file holds, so {quoted(name)} is not changed."


def content_of(workspace: Workspace, place: Path, name: str) -> bytes | None:
    """The content of a file; None if there is none.

    Raises:
        ToolError: it is no regular file, too large, or cannot be read.
    """
    try:
        with workspace.reading(place, name) as file:
            raw = file.read(LARGEST + 1)
    except ToolError as error:
        if error.code == "not_found":
            return None
        raise
    if len(raw) > LARGEST:
        raise ToolError("too_large", f"{quoted(name)} has more than {LARGEST:,} bytes; it is not changed.")
    return raw


def encoded(text: str, what: str) -> bytes:
    """A text as bytes; a `ToolError` if it holds half a character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError(
            "invalid_arguments", f"the {what} holds half a character, which UTF-8 has no place for."
        ) from None


def sha256(raw: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(raw).hexdigest()


def _receipt(text: str, paths: list[str], sha256: str) -> dict[str, Any]:
    return {"content": text, "ok": True, "truncated": False, "paths": paths, "sha256": sha256}


def _hash_shown(sha256: str) -> str:
    return f"sha256 {sha256[:16]}"


def _lines(raw: bytes) -> list[str]:
    """Lines for a diff, without their ends; a missing one is spelled out as `diff` does."""
    if not raw:
        return []
    lines = raw.decode("utf-8", "replace").split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines


def _diff(old: list[str], new: list[str]) -> list[str]:
    """The lines of a unified diff, without its head."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    lead = max(0, start - 3)
    old_part, new_part = old[lead : len(old) - max(0, end - 3)], new[lead : len(new) - max(0, end - 3)]
    if len(old_part) * len(new_part) <= MOST_COMPARED:
        lines = list(unified_diff(old_part, new_part, lineterm=""))[2:]
        return [_moved(line, lead) for line in lines]
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    place = f"@@ -{start + 1},{len(middle_old)} +{start + 1},{len(middle_new)} @@"
    return [place, *(f"-{line}" for line in middle_old), *(f"+{line}" for line in middle_new)]


_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def _moved(line: str, lead: int) -> str:
    """A line of a diff of two parts, with its line numbers in the files."""
    hunk = _HUNK.fullmatch(line)
    if hunk is None or not lead:
        return line
    old, old_count, new, new_count = hunk.groups("")
    return f"@@ -{int(old) + lead}{old_count} +{int(new) + lead}{new_count} @@"


def _remove_temporary(workspace: Workspace, facts: Mapping[str, Any]) -> None:
    """Remove the file that an interrupted write may have left next to its target."""
    place = workspace.resolve(facts["path"])
    names = [entry.name for entry in workspace.entries(place.parent, facts["path"]) if entry.kind == "file"]
    with workspace.sandbox.folder_of(place) as folder:
        for name in names:
            if _TEMPORARY.fullmatch(name):
                status = folder.stat(name)
                if stat.S_ISREG(status.st_mode) and status.st_size <= int(facts["size"]):
                    folder.remove(name, missing_ok=True)
