"""Actions on the project's repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from detent.dispatch.agent_side import Lookup
from detent.engine.context import StepContext
from detent.flows.workflow.registry import action

EVERYWHERE: list[str] = ["."]
NO_PATHS: list[str] = []


class Status(TypedDict):
    branch: str | None
    """Null when HEAD stands on no branch."""
    ahead: int
    behind: int
    staged: list[str]
    unstaged: list[str]
    untracked: list[str]
    clean: bool


class FileCounts(TypedDict):
    path: str
    added: int | None
    """Null for files that are no text."""
    removed: int | None


class Diff(TypedDict):
    diff: str
    files: list[FileCounts]
    truncated: bool


class Commit(TypedDict):
    sha: str
    author: str
    date: str
    subject: str


class Log(TypedDict):
    commits: list[Commit]


class Checked(TypedDict):
    has_changes: bool
    files: list[str]
    diff: str


class Staged(TypedDict):
    files: list[str]


class Committed(TypedDict):
    sha: str
    subject: str
    files: list[str]


class Uncommitted(TypedDict):
    head: str | None
    """Null when it was the first commit."""


class Pushed(TypedDict):
    remote: str
    branch: str
    sha: str


class Branch(TypedDict):
    branch: str
    created: bool


@action(
    "git_status",
    intent="Report the branch and which files are staged, changed or untracked.",
    queries=["git.status"],
    output_schema=Status,
)
async def git_status(ctx: StepContext) -> dict[str, Any]:
    """The state of the work tree; `ahead` and `behind` are 0 where there is no upstream."""
    found = await ctx.query("git.status")
    return {name: found[name] for name in Status.__annotations__}


@action(
    "git_diff",
    intent="Show what changed against a base, as a diff and as counts per file.",
    queries=["git.diff"],
    output_schema=Diff,
)
async def git_diff(ctx: StepContext, base: str = "HEAD", paths: list[str] = NO_PATHS) -> Diff:
    """The work tree against a base; untracked files are no part of it."""
    found: Diff = await ctx.query("git.diff", base=base, paths=list(paths))
    return found


@action(
    "git_log",
    intent="List the commits made since a base, newest first.",
    queries=["git.log"],
    output_schema=Log,
)
async def git_log(ctx: StepContext, base: str, limit: int = 50) -> Log:
    """Commits reachable from HEAD and not from the base."""
    found: Log = await ctx.query("git.log", base=base, limit=limit)
    return found


def _nothing_to_stage(inputs: Mapping[str, Any], lookups: Sequence[Lookup]) -> dict[str, Any] | None:
    """The output where the work tree was looked at and is clean."""
    clean = any(tool == "git.status" and answer["clean"] for tool, _, answer in lookups)
    return {"has_changes": False, "files": [], "diff": ""} if clean else None


@action(
    "git_check_and_stage",
    intent="Find out whether there is anything to commit and stage it.",
    effects=["git.stage"],
    queries=["git.status"],
    output_schema=Checked,
    rollback="git_unstage",
    may_abstain=_nothing_to_stage,
)
async def git_check_and_stage(ctx: StepContext, paths: list[str] = EVERYWHERE) -> dict[str, Any]:
    """Stage what changed at the paths (everywhere in the project); what was staged before counts too."""
    found = await ctx.query("git.status")
    if found["clean"]:
        return {"has_changes": False, "files": [], "diff": ""}
    done = ctx.propose("git.stage", paths=list(paths))
    return {"has_changes": done.has_changes, "files": done.files, "diff": done.diff}


@action(
    "git_stage",
    intent="Put the named changes into the index.",
    effects=["git.stage"],
    output_schema=Staged,
)
async def git_stage(ctx: StepContext, paths: list[str]) -> dict[str, Any]:
    """Stage what changed at the paths; gives all that is staged then."""
    done = ctx.propose("git.stage", paths=list(paths))
    return {"files": done.files}


@action(
    "git_unstage",
    intent="Take the changes staged by this run out of the index, leaving the files alone.",
    effects=["git.unstage"],
    output_schema=Staged,
)
async def git_unstage(ctx: StepContext, paths: list[str] = NO_PATHS) -> dict[str, Any]:
    """Bring the index back to what it was before this run staged; what others staged before stays."""
    done = ctx.propose("git.unstage", paths=list(paths))
    return {"files": done.files}


@action(
    "git_commit",
    intent="Record the staged changes as one commit with the given message.",
    effects=["git.commit"],
    output_schema=Committed,
)
async def git_commit(ctx: StepContext, message: str, allow_empty: bool = False) -> dict[str, Any]:
    """Commit the index; the repository's hooks have their say."""
    done = ctx.propose("git.commit", message=message, allow_empty=allow_empty)
    return {"sha": done.sha, "subject": done.subject, "files": done.files}


@action(
    "git_uncommit",
    intent="Undo this run's own unpushed commit while keeping its changes staged.",
    effects=["git.reset"],
    output_schema=Uncommitted,
)
async def git_uncommit(ctx: StepContext, sha: str) -> dict[str, Any]:
    """Take a commit of this run back; one that is published, or not the last, is left alone."""
    done = ctx.propose("git.reset", sha=sha)
    return {"head": done.head}


@action(
    "git_push",
    intent="Publish the current branch's commits to its remote without rewriting history there.",
    effects=["git.push"],
    output_schema=Pushed,
    max_autonomy="consultant",
)
async def git_push(
    ctx: StepContext, remote: str = "origin", branch: str | None = None, set_upstream: bool = True
) -> dict[str, Any]:
    """Push without force; the upstream is set where the branch has none."""
    done = ctx.propose("git.push", remote=remote, branch=branch, set_upstream=set_upstream)
    return {"remote": remote, "branch": done.branch, "sha": done.sha}


@action(
    "git_branch",
    intent="Make sure a branch of the given name exists and, if asked, work on it.",
    effects=["git.branch"],
    output_schema=Branch,
)
async def git_branch(
    ctx: StepContext, name: str, base: str | None = None, switch: bool = True, exist_ok: bool = True
) -> dict[str, Any]:
    """Make a branch at a base (HEAD), unless it is there."""
    done = ctx.propose("git.branch", name=name, base=base, switch=switch, exist_ok=exist_ok)
    return {"branch": name, "created": done.created}
