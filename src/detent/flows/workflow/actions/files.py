"""Actions on files of the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from detent.dispatch.agent_side import Lookup
from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.step_failures import StepFailed
from detent.flows.workflow.registry import action

NO_FILES: list[str] = []


class FileText(TypedDict):
    path: str
    text: str
    bytes: int
    sha256: str


class FileList(TypedDict):
    files: list[str]
    """Paths from the project, sorted."""
    count: int
    """Of all files that fit, those left out included."""
    truncated: bool


class Written(TypedDict):
    path: str
    bytes: int
    """Of the whole file."""
    sha256: str
    replaced: bool
    """There was a file of this name before."""


class Copied(TypedDict):
    source: str
    target: str
    bytes: int


class Deleted(TypedDict):
    path: str
    existed: bool


class Restored(TypedDict):
    path: str | None
    """The first of those named."""
    restored: bool
    """Something was brought back; false when this run had changed nothing there."""


class Replaced(TypedDict):
    path: str
    replacements: int


@action(
    "read_file",
    intent="Read one text file of the project and return its content unchanged.",
    queries=["files.read"],
    output_schema=FileText,
)
async def read_file(
    ctx: StepContext, path: str, encoding: str = "utf-8", max_bytes: int = 1_000_000
) -> FileText:
    """The text of a file, its size and its SHA-256."""
    found: FileText = await ctx.query("files.read", path=path, encoding=encoding, max_bytes=max_bytes)
    return found


@action(
    "list_files",
    intent="List the project files that match a pattern, in a stable order.",
    queries=["files.list"],
    output_schema=FileList,
)
async def list_files(ctx: StepContext, pattern: str = "**/*", root: str = ".", limit: int = 1000) -> FileList:
    """Files below `root` whose path from there fits: `*`, `?`, `[ab]` in a name, `**` for any folders."""
    found: FileList = await ctx.query("files.list", pattern=pattern, root=root, limit=limit)
    return found


@action(
    "write_file",
    intent="Put the given text into the named project file.",
    effects=["files.write"],
    output_schema=Written,
    rollback="restore_file",
)
async def write_file(
    ctx: StepContext, path: str, text: str, if_exists: Literal["replace", "fail", "append"] = "replace"
) -> dict[str, Any]:
    """Write UTF-8 text exactly as given; folders on the way are made."""
    done = ctx.propose("files.write", path=path, text=text, if_exists=if_exists)
    return {"path": path, "bytes": done.bytes, "sha256": done.sha256, "replaced": done.replaced}


def _copied(acts: Sequence[Act]) -> dict[str, Any]:
    """What the receipts of an agent that copied a file say of it."""
    written = [act for act in acts if act.effect.tool == "files.write"]
    if not written:
        return {}
    source = written[-1].effect.args.get("source")
    known = {"target": written[-1].receipt["path"], "bytes": written[-1].receipt["bytes"]}
    return known if source is None else {"source": source, **known}


@action(
    "copy_file",
    intent="Make the target file hold what the source file holds.",
    effects=["files.write"],
    queries=["files.stat"],
    output_schema=Copied,
    rollback="restore_file",
    from_receipts=_copied,
)
async def copy_file(ctx: StepContext, source: str, target: str) -> dict[str, Any]:
    """Copy one file; what the target held is replaced."""
    await _two_files(ctx, source, target)
    done = ctx.propose("files.write", path=target, source=source)
    return {"source": source, "target": target, "bytes": done.bytes}


@action(
    "move_file",
    intent="Give the source file the target name, leaving its content as it is.",
    effects=["files.write", "files.delete"],
    queries=["files.stat"],
    output_schema=Copied,
    rollback="restore_file",
    rounds=2,  # what is removed is named by what the copy's receipt says
    from_receipts=_copied,
)
async def move_file(ctx: StepContext, source: str, target: str) -> dict[str, Any]:
    """Copy, then remove the source if it still holds what was copied: nothing is lost in between."""
    await _two_files(ctx, source, target)
    done = ctx.propose("files.write", path=target, source=source)
    ctx.propose("files.delete", path=source, sha256=done.sha256)
    return {"source": source, "target": target, "bytes": done.bytes}


async def _two_files(ctx: StepContext, source: str, target: str) -> None:
    here, there = await ctx.query("files.stat", path=source), await ctx.query("files.stat", path=target)
    if here["kind"] != "file":
        raise StepFailed(f"There is no file '{source}' in the project.")
    if here["real"] == there["real"]:
        raise StepFailed(f"'{source}' and '{target}' are the same file.")


@action(
    "delete_file",
    intent="Remove the named project file and nothing else.",
    effects=["files.delete"],
    output_schema=Deleted,
)
async def delete_file(ctx: StepContext, path: str, missing_ok: bool = False) -> dict[str, Any]:
    """Remove a file; of a link, the link."""
    done = ctx.propose("files.delete", path=path, missing_ok=missing_ok)
    return {"path": path, "existed": done.existed}


def _restored(acts: Sequence[Act]) -> dict[str, Any]:
    """What the receipts of an agent that restored files say of them."""
    named = [path for act in acts for path in act.effect.args["paths"]]
    return {"path": named[0] if named else None, "restored": any(act.receipt["restored"] for act in acts)}


def _nothing_to_restore(inputs: Mapping[str, Any], lookups: Sequence[Lookup]) -> dict[str, Any] | None:
    """The output where no file is named."""
    named = [inputs.get(name) for name in ("path", "target", "source", "changed_files")]
    return None if any(named) else {"path": None, "restored": False}


@action(
    "restore_file",
    intent="Bring a project file back to the content it had before this run changed it.",
    effects=["files.restore"],
    output_schema=Restored,
    from_receipts=_restored,
    may_abstain=_nothing_to_restore,
)
async def restore_file(
    ctx: StepContext,
    path: str | None = None,
    target: str | None = None,
    source: str | None = None,
    changed_files: list[str] = NO_FILES,
) -> dict[str, Any]:
    """Bring back all files that are named; one that was not there before is removed."""
    named = [one for one in (path, target, source) if one is not None]
    paths = list(dict.fromkeys([*named, *changed_files]))
    if not paths:
        return {"path": None, "restored": False}
    done = ctx.propose("files.restore", paths=paths)
    return {"path": paths[0], "restored": done.restored}


def _nothing_to_replace(inputs: Mapping[str, Any], lookups: Sequence[Lookup]) -> dict[str, Any] | None:
    """The output where the file was looked at and the text is not in it."""
    texts = [
        answer["text"]
        for tool, args, answer in lookups
        if tool == "files.read"
        and args.get("path") == inputs["path"]
        and args.get("encoding", "utf-8") == "utf-8"
    ]
    if inputs.get("regex"):
        absent = any(
            tool == "text.substitute"
            and args.get("text") in texts
            and args.get("pattern") == inputs["find"]
            and answer["count"] == 0
            for tool, args, answer in lookups
        )
    else:
        absent = any(inputs["find"] not in text for text in texts)
    return {"path": inputs["path"], "replacements": 0} if absent else None


@action(
    "replace_text",
    intent=(
        "Replace every stated occurrence of a text in one project file and report how many were replaced."
    ),
    effects=["files.write"],
    queries=["files.read", "text.substitute"],
    output_schema=Replaced,
    rollback="restore_file",
    may_abstain=_nothing_to_replace,
)
async def replace_text(
    ctx: StepContext, path: str, find: str, replace: str, regex: bool = False, count: int = 0
) -> dict[str, Any]:
    """Replace in UTF-8 text; `count` 0 means all. A regular expression that runs away is given up."""
    if not find:
        raise StepFailed("There is nothing to find: `find` is empty.")
    if count < 0:
        raise StepFailed("`count` is 0 for all occurrences, or how many of them.")
    there = await ctx.query("files.read", path=path, max_bytes=5_000_000)
    text = there["text"]
    if regex:
        done = await ctx.query("text.substitute", text=text, pattern=find, replace=replace, count=count)
        fresh, many = done["text"], done["count"]
    else:
        many = text.count(find) if not count else min(text.count(find), count)
        fresh = text.replace(find, replace, count or -1)
    if fresh != text:
        ctx.propose("files.write", path=path, text=fresh, sha256=there["sha256"])
    return {"path": path, "replacements": many}
