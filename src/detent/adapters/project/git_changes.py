"""What runs may change in a repository: the index, their own commits, branches, and a remote's history by
adding to it.

Before each change a tool notes its starting point; called again after a crash it checks whether the change
was made. A run undoes only what it did itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from detent.adapters.project.backups import Backups
from detent.adapters.project.effect_notes import EffectNotes, read_json
from detent.adapters.project.git import Git, fault
from detent.adapters.project.programs import Ran
from detent.adapters.project.sandbox import quoted
from detent.engine.tools import NOT_DONE, EffectCall, Tool, ToolError

MOST_LOOKED_AT = 50
"""Commits searched for one of ours."""


class InDoubt(Exception):
    """Something changed meanwhile, and it is not known whether an earlier attempt did it."""


class GitChanges:
    """Changes to one repository."""

    def __init__(self, git: Git, notes: EffectNotes, backups: Backups) -> None:
        self.git = git
        self._notes = notes
        self._backups = backups

    # -- the index ------------------------------------------------------------------------------------------

    async def stage(self, call: EffectCall, paths: list[str]) -> dict[str, Any]:
        """Add the changes at the named paths to the index; returns what is staged then."""
        place = self._index_note(call)
        if read_json(place) is None:
            self._keep(place, {"tree": await self.git.text("write-tree", changes=True)})
        if paths:
            await self.git.ask(
                "add", "--all", "--", *await self.git.addable(paths), changes=True, runs="filters"
            )
        return await self._staged()

    async def unstage(self, call: EffectCall, paths: list[str]) -> dict[str, Any]:
        """Bring the index back to its state before this run staged anything; the files are left alone."""
        place, note = self._index_note(call), self._notes.get(call)
        before = note or read_json(place)
        if before is None:
            self._backups.check(call.root, "the index")
            return {"files": []}
        tree = before["tree"]
        if note is None:
            out = await self.git.names("diff", "--cached", "--name-only", "-z", "--no-renames", tree, "--",
                                       *self.git.specs(paths or ["."]))  # fmt: skip
            note = {"tree": tree, "files": sorted(out)}
            self._notes.put(call, note)
        if note["files"]:
            where = self.git.specs(paths or ["."])
            await self.git.ask("restore", f"--source={tree}", "--staged", "--", *where, changes=True)
        if not paths or "." in paths:
            # Used up: what is staged from here on is not this run's.
            self.git.sandbox.remove(place, missing_ok=True)
        return {"files": note["files"]}

    async def _staged(self) -> dict[str, Any]:
        tree = await self.git.tree_of("HEAD")
        files = await self.git.names("diff", "--cached", "--name-only", "-z", "-M", tree, "--")
        comparison = await self.git.compared(["--cached", tree], None)
        return {
            "files": sorted(files),
            "has_changes": bool(files),
            "diff": comparison["diff"],
            "truncated": comparison["truncated"],
        }

    # -- commits --------------------------------------------------------------------------------------------

    async def commit(self, call: EffectCall, message: str, allow_empty: bool = False) -> dict[str, Any]:
        """Record what is staged as one commit."""
        try:
            raw = message.encode()
        except UnicodeEncodeError:
            raise ToolError("invalid", "the message holds half a character.") from None
        clean = (await self.git.ask("stripspace", stdin=raw)).out
        if not clean.strip() or b"\0" in clean:
            raise ToolError("invalid", "a commit needs a message.")
        note = self._notes.get(call)
        if note is not None and (commit_sha := await self._earlier_commit(note)) is not None:
            return await self._receipt(call, commit_sha, note["parent"])
        head = await self.git.sha("HEAD")
        tree = await self.git.text("write-tree", changes=True)
        if tree == await self.git.tree_of("HEAD") and not allow_empty:
            raise ToolError("nothing_staged", "nothing is staged, so there is nothing to commit.")
        note = {"parent": head, "tree": tree, "message": clean.decode()}
        self._notes.put(call, note)
        empty = ["--allow-empty"] if allow_empty else []
        ran = await self.git.ask(
            "commit", "--quiet", "--cleanup=whitespace", "-F", "-", *empty, stdin=raw, changes=True,
            ok=range(256), runs="everything",
        )  # fmt: skip
        commit_sha = await self.git.sha("HEAD")
        if commit_sha is None or commit_sha == head:
            raise _not_committed(ran)
        return await self._receipt(call, commit_sha, head)

    async def _earlier_commit(self, note: dict[str, Any]) -> str | None:
        """The commit made by an earlier attempt, if any: the same parent, tree and message."""
        parent, head = note["parent"], await self.git.sha("HEAD")
        if head == parent:
            return None
        since = f"{parent}..HEAD" if parent else "HEAD"
        lines = await self.git.text("rev-list", "--parents", f"--max-count={MOST_LOOKED_AT}", since)
        same_parent = False
        for line in lines.splitlines():
            sha, *parents = line.split()
            if (parents[0] if parents else None) != parent:
                continue
            same_parent = True
            same_tree = await self.git.sha(sha, "tree") == note["tree"]
            message = (await self.git.ask("log", "-1", "--format=%B", sha)).out
            if same_tree and message.decode("utf-8", "replace").strip() == note["message"].strip():
                return sha
        if same_parent:
            raise InDoubt("A commit stands where ours would, but with other content (a hook's doing?).")
        return None

    async def _receipt(self, call: EffectCall, sha: str, parent: str | None) -> dict[str, Any]:
        place = self._commits_note(call)
        noted = read_json(place) or {"commits": []}
        if sha not in noted["commits"]:
            self._keep(place, {"commits": [*noted["commits"], sha]})
        subject = await self.git.text("log", "-1", "--format=%s", sha)
        base = parent or await self.git.text(
            "hash-object", "-t", "tree", "-w", "--stdin", stdin=b"", changes=True
        )
        files = await self.git.names("diff", "--name-only", "-z", "-M", base, sha, "--")
        return {"sha": sha, "subject": subject, "files": sorted(files)}

    async def reset(self, call: EffectCall, sha: str) -> dict[str, Any]:
        """Take back this run's own last commit, unless it is published; its changes stay staged."""
        note, head = self._notes.get(call), await self.git.sha("HEAD")
        if note is not None and head == note["parent"]:
            return {"head": head}
        if sha not in (read_json(self._commits_note(call)) or {"commits": []})["commits"]:
            raise ToolError("not_ours", f"{quoted(sha)} is no commit of this run; it is left alone.")
        if head != sha:
            raise ToolError(
                "not_head", f"{quoted(sha)} is not the last commit of the branch; it is left alone."
            )
        published = await self.git.text(
            "for-each-ref", "--contains", sha, "--format=%(refname)", "refs/remotes"
        )
        if published:
            raise ToolError("pushed", f"{quoted(sha)} is published; undoing it would rewrite history there.")
        parent = await self.git.sha(f"{sha}^")
        self._notes.put(call, {"parent": parent})
        if parent is not None:
            await self.git.ask("reset", "--quiet", "--soft", parent, changes=True)
        else:
            await self.git.ask("update-ref", "-d", "HEAD", sha, changes=True)
        return {"head": parent}

    # -- the remote -----------------------------------------------------------------------------------------

    async def push(
        self, remote: str = "origin", branch: str | None = None, set_upstream: bool = True
    ) -> dict[str, Any]:
        """Publish the commits of a branch, by default the current one; never rewrites history."""
        name, sha = await self._published(remote, branch)
        upstream = await self.git.text("config", "--get", f"branch.{name}.remote", ok=(0, 1))
        wants = ["--set-upstream"] if set_upstream and not upstream else []
        ran = await self.git.ask(
            "push", "--porcelain", "--no-force", *wants, remote, f"refs/heads/{name}:refs/heads/{name}",
            changes=True, ok=range(256), runs="everything",
        )  # fmt: skip
        if ran.code != 0:
            raise _not_pushed(ran, remote, name)
        return {"remote": remote, "branch": name, "sha": sha}

    async def pushed(
        self, remote: str = "origin", branch: str | None = None, set_upstream: bool = True
    ) -> Any:
        """Whether the remote's branch is at the same commit as ours."""
        name, sha = await self._published(remote, branch)
        output = await self.git.text(
            "ls-remote", "--exit-code", remote, f"refs/heads/{name}", ok=(0, 2), runs="everything"
        )
        remote_sha = output.split("\t")[0] if output else None
        return {"remote": remote, "branch": name, "sha": sha} if remote_sha == sha else NOT_DONE

    async def _published(self, remote: str, branch: str | None) -> tuple[str, str]:
        """The branch to publish and its commit."""
        remotes = (await self.git.text("remote")).split("\n")
        if remote not in remotes or not remote:
            names = ", ".join(known for known in remotes if known) or "none"
            raise ToolError("no_remote", f"there is no remote {quoted(remote)}; there is: {names}.")
        name = branch or await self.git.branch_name()
        if name is None:
            raise ToolError("detached", "no branch is worked on, so say which one to publish.")
        sha = await self.git.sha(f"refs/heads/{name}")
        if sha is None:
            raise ToolError("no_branch", f"there is no branch {quoted(name)} with a commit.")
        return name, sha

    # -- branches -------------------------------------------------------------------------------------------

    async def branch(
        self, call: EffectCall, name: str, base: str | None = None, switch: bool = True, exist_ok: bool = True
    ) -> dict[str, Any]:
        """Create a branch unless it exists, and switch to it if asked."""
        if not name or name.startswith("-") or "\0" in name:
            raise ToolError("invalid", f"{quoted(name)} is no name for a branch.")
        valid = await self.git.ask("check-ref-format", f"refs/heads/{name}", ok=(0, 1))
        if valid.code != 0 or name == "HEAD":
            raise ToolError("invalid", f"{quoted(name)} is no name for a branch.")
        current, head = await self.git.branch_name(), await self.git.sha("HEAD")
        unborn = current == name and head is None
        exists = unborn or await self.git.sha(f"refs/heads/{name}") is not None
        note = self._notes.get(call)
        if exists and note is None and not exist_ok:
            raise ToolError("exists", f"there is a branch {quoted(name)} already.")
        created = note["created"] if note is not None else not exists
        self._notes.put(call, {"created": created})
        if not exists:
            start = await self._start(base, head)
            if switch:
                await self._check_brought(call, *start)
                await self._switch("--create", name, *start)
            elif head is None and not start:
                raise ToolError("no_commits", "a branch beside the current one needs a commit to start from.")
            else:
                await self.git.ask("branch", "--no-track", name, *start, changes=True)
        elif switch and current != name:
            await self._check_brought(call, f"refs/heads/{name}")
            await self._switch("--no-guess", name)
        return {"branch": name, "created": created}

    async def _switch(self, *args: str) -> None:
        await self.git.ask("switch", "--quiet", *args, changes=True, runs="everything")

    async def _check_brought(self, call: EffectCall, target: str = "") -> None:
        """Raise a `ToolError` when an agent would bring in other versions of files that configure Detent."""
        if call.by != "agent" or not target:
            return
        sandbox = self.git.sandbox
        names = await self.git.names("diff", "--name-only", "-z", "--no-renames", "HEAD", target, "--")
        sandbox.check_writer(call, *(sandbox.root / name for name in names if not name.startswith("../")))

    async def _start(self, base: str | None, head: str | None) -> list[str]:
        if base is None:
            return []
        sha = await self.git.sha(base)
        if sha is None:
            raise ToolError("no_base", f"there is no commit {quoted(base)} to start from.")
        return [sha]

    # -- notes ----------------------------------------------------------------------------------------------

    def _index_note(self, call: EffectCall) -> Path:
        return self._backups.folder(call.root) / "index.git"

    def _commits_note(self, call: EffectCall) -> Path:
        return self._backups.folder(call.root) / "commits.git"

    def _keep(self, place: Path, note: dict[str, Any]) -> None:
        self.git.sandbox.keep(place, json.dumps(note).encode())


def _not_committed(ran: Ran) -> ToolError:
    output = ran.err + ran.out
    if b"nothing to commit" in output or b"no changes added" in output:
        return ToolError("nothing_staged", "nothing is staged, so there is nothing to commit.")
    error = fault("commit", ran)
    if error.code == "git_failed":
        return ToolError("not_committed", f"{error.message} A hook may have refused it.")
    return error


def _not_pushed(ran: Ran, remote: str, name: str) -> ToolError:
    output = ran.out.decode("utf-8", "replace") + ran.err.decode("utf-8", "replace")
    if "[rejected]" in output and any(
        reason in output for reason in ("non-fast-forward", "fetch first", "stale info")
    ):
        return ToolError(
            "non_fast_forward", f"'{remote}' has commits on {quoted(name)} that are not here. Fetch and "
            f"integrate them first; history there is never rewritten.",
        )  # fmt: skip
    if "[remote rejected]" in output:
        return ToolError("remote_rejected", f"'{remote}' refused the commits (a hook or a protected branch).")
    return fault("push", ran)


def change_tools(changes: GitChanges) -> list[Tool]:
    """Git's effects."""
    return [
        Tool("git.stage", changes.stage, idempotent=True, wants_call=True,
             description="Put what changed at the named paths into the index. The receipt says files, "
             "has_changes, diff, truncated."),
        Tool("git.unstage", changes.unstage, idempotent=True, wants_call=True,
             description="Bring the index back to what it was before this run staged. Receipt: files."),
        Tool("git.commit", changes.commit, idempotent=True, wants_call=True,
             description="Record what is staged as one commit. The receipt says sha, subject, files."),
        Tool("git.reset", changes.reset, idempotent=True, wants_call=True,
             description="Take this run's own unpublished last commit back. The receipt says head."),
        Tool("git.push", changes.push, probe=changes.pushed, idempotent=True,
             description="Publish a branch's commits to a remote. The receipt says remote, branch, sha."),
        Tool("git.branch", changes.branch, idempotent=True, wants_call=True,
             description="Make a branch unless it is there, and work on it. Receipt: branch, created."),
    ]  # fmt: skip
