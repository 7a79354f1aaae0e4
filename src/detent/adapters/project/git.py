"""Git through its program, run without prompts, pagers or colours.

Output is parsed only in its NUL-terminated forms, so that every possible file name comes through. Paths are
literal and stay in the project. The files that runs keep in the project are left out everywhere.

A repository can name programs that git runs: hooks, filters, a monitor of files, helpers of a remote. Anybody
who can write to the project can name one, so only what a workflow asks for by name lets them run: a commit
its hooks, a push its helpers. What the user's own configuration names runs everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from detent.adapters.project.programs import Ran, TimedOut, run_program
from detent.adapters.project.sandbox import OWN_FOLDER, READABLE, Sandbox, quoted
from detent.engine.tools import Tool, ToolError

LONGEST_DIFF = 200_000
"""Bytes of a diff that are returned; it is cut at a line."""
LARGEST_ANSWER = 64 * 1024 * 1024
TIMEOUT = 120.0
MOST_COMMITS = 10_000

_ELSEWHERE = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS", "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR", "GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS", "GIT_REFLOG_ACTION", "GIT_QUARANTINE_PATH", "GIT_DEFAULT_HASH", "GIT_CONFIG",
)  # fmt: skip
"""Variables that would make git work in another place or way than the project says."""
_QUIET = {
    "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "PAGER": "cat", "GIT_EDITOR": "true",
    "GIT_ASKPASS": "", "SSH_ASKPASS": "", "GCM_INTERACTIVE": "never",
}  # fmt: skip
_SETTINGS = (
    "core.quotePath=false", "color.ui=false", "diff.noprefix=false", "diff.mnemonicPrefix=false",
    "core.fsmonitor=false", "advice.detachedHead=false",
)  # fmt: skip

_NO_HOOKS = ("core.hooksPath=/dev/null", "log.showSignature=false", "submodule.recurse=false")
_NO_REMOTES = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""Objects that a partial clone lacks would be fetched by programs that the repository names."""
_OPTIONS = {
    "diff": ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"),
    "status": ("--ignore-submodules=dirty",),
}
"""For subcommands that would run a program, or git in a submodule, where other configuration holds."""
_READS_FILES = frozenset({"diff", "ls-files", "restore", "status"})
"""Subcommands that may pass files of the work tree through filters."""
_NAMES_PROGRAMS = r"^(filter|hook)\."
_USERS = frozenset({"system", "global", "command"})
"""Where configuration belongs to the user, and not to the repository."""
_UNKNOWN_OPTION = 129
"""Exit code of git."""

Runs = Literal["nothing", "filters", "everything"]
"""What git may run of the programs that the repository names."""

_SHA = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")
_ADDRESS = re.compile(r"((?<![a-zA-Z0-9+.-])[a-zA-Z][a-zA-Z0-9+.-]*+://)[^/\s'\"]*@")


class Git:
    """The repository a project lies in."""

    def __init__(self, sandbox: Sandbox, environ: Mapping[str, str]) -> None:
        self.sandbox = sandbox
        self._environ = {
            name: value
            for name, value in environ.items()
            if name not in _ELSEWHERE and not name.startswith(("GIT_TRACE", "DETENT_INPUT_"))
        }
        self._environ |= _QUIET
        self._environ.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")

    # -- the program ----------------------------------------------------------------------------------------

    async def ask(
        self,
        *args: str,
        ok: Sequence[int] = (0,),
        stdin: bytes | None = None,
        limit: int = LARGEST_ANSWER,
        changes: bool = False,
        whole: bool = True,
        runs: Runs = "nothing",
    ) -> Ran:
        """What git answers. An exit code outside `ok`, or an answer that is too long, is a `ToolError`."""
        env = self._environ if changes else {**self._environ, "GIT_OPTIONAL_LOCKS": "0"}
        settings = list(_SETTINGS)
        if runs != "everything":
            env = {**env, **_NO_REMOTES}
            settings += _NO_HOOKS
            args = (args[0], *_OPTIONS.get(args[0], ()), *args[1:])
            if runs == "nothing" and (changes or args[0] in _READS_FILES):
                settings += await self._without_programs(env)
        ran = await self._run(settings, args, env, stdin=stdin, head=limit, stop_when_full=not whole)
        if ran.out_cut and not whole:
            return ran
        if ran.code not in ok:
            raise fault(args[0], ran)
        if ran.out_cut:
            raise ToolError("too_large", f"git {args[0]} answers with more than {limit:,} bytes.")
        return ran

    async def _run(
        self, settings: Sequence[str], args: Sequence[str], env: Mapping[str, str], **options: Any
    ) -> Ran:
        argv = ["git", *(part for setting in settings for part in ("-c", setting)), *args]
        try:
            return await run_program(
                argv, cwd=self.sandbox.root, env=env, timeout=TIMEOUT, strays=False, **options
            )
        except TimedOut:
            raise ToolError("timeout", f"git {args[0]} did not end within {TIMEOUT:g} seconds.") from None
        except ToolError as error:
            if error.code == "no_program":
                raise ToolError("no_git", "git is not installed on this machine.") from None
            raise

    async def _without_programs(self, env: Mapping[str, str]) -> list[str]:
        """Settings under which the filters and hooks of the repository's own configuration do not run."""
        question = ("config", "--null", "--get-regexp", _NAMES_PROGRAMS)
        scoped = (*question[:1], "--show-scope", *question[1:])
        ran = await self._run((), scoped, env, head=LARGEST_ANSWER)
        if ran.code == _UNKNOWN_OPTION:  # before 2.26: the user's own do not run either
            ran = await self._run((), question, env, head=LARGEST_ANSWER)
            ran = replace(ran, out=re.sub(rb"[^\0]+\0", rb"local\0\g<0>", ran.out))
        pieces = os.fsdecode(ran.out).split("\0")[:-1]
        users: dict[str, str] = {}
        theirs: dict[str, None] = {}
        for scope, entry in zip(pieces[::2], pieces[1::2], strict=True):
            key, _, value = entry.partition("\n")
            if scope in _USERS:
                users[key] = value
            else:
                theirs[key] = None
        settings = []
        for key in theirs:
            if "=" in key:
                raise ToolError("odd_name", f"the repository's configuration has {quoted(key)}; rename that.")
            neutral = "false" if key.endswith((".required", ".enabled")) else ""
            settings.append(f"{key}={users.get(key, neutral)}")
            if key.startswith("hook."):
                settings.append(f"{key.rpartition('.')[0]}.enabled=false")
        return settings

    async def text(self, *args: str, **options: Any) -> str:
        """A one-line answer."""
        return os.fsdecode((await self.ask(*args, **options)).out).rstrip("\n")

    async def names(self, *args: str) -> list[str]:
        """An answer that is a list of paths from the top of the repository, as paths from the project."""
        raw = (await self.ask(*args)).out
        prefix = await self.prefix()
        return [self._project_path(os.fsdecode(path), prefix) for path in raw.split(b"\0") if path]

    async def prefix(self) -> str:
        """The path from the top of the repository to the project; empty, or with a slash at its end."""
        return await self.text("rev-parse", "--show-prefix")

    @staticmethod
    def _project_path(path: str, prefix: str) -> str:
        if path.startswith(prefix):
            return path[len(prefix) :]
        return os.path.relpath(path, prefix.rstrip("/") or ".").replace(os.sep, "/")

    def specs(self, paths: Sequence[str]) -> list[str]:
        """Paths as arguments for git: literal, inside the project, without the files that runs keep."""
        included = []
        for path in paths:
            # The last part is not followed: to git a link is a file of its own.
            place = self.sandbox.root / path
            if path.strip("./") and not place.is_dir():
                place = self.sandbox.entry(path)
            else:
                place = self.sandbox.inside(path)
                if place != self.sandbox.root and self.sandbox.hidden(place):
                    raise ToolError("protected", f"{quoted(path)} is not for actions.")
            relative = place.relative_to(self.sandbox.root).as_posix()
            included.append(f":(literal){relative}" if relative != "." else ".")
        excluded = [f":(exclude,glob){OWN_FOLDER}/*.db*"]
        own_folder = self.sandbox.root / OWN_FOLDER
        own_files = [*self.sandbox.protected, *(own_folder.iterdir() if own_folder.is_dir() else ())]
        for own_path in dict.fromkeys(own_files):
            inside = own_path.is_relative_to(self.sandbox.root) and own_path != self.sandbox.root
            if inside and own_path not in (own_folder, own_folder / READABLE):
                excluded.append(f":(exclude,literal){self.sandbox.relative(own_path)}")
        return [*included, *excluded]

    async def addable(self, paths: Sequence[str]) -> list[str]:
        """Like `specs`, for `git add`, which refuses to exclude by name what is ignored anyway."""
        specs = self.specs(paths)
        left_out = {
            spec: OWN_FOLDER if "glob" in spec.partition(")")[0] else spec.partition(")")[2]
            for spec in specs
            if spec.startswith(":(exclude")
        }
        names = "\0".join(dict.fromkeys(left_out.values()))
        ran = await self.ask("check-ignore", "-z", "--stdin", stdin=os.fsencode(names), ok=(0, 1))
        ignored = {os.fsdecode(name) for name in ran.out.split(b"\0")}
        return [spec for spec in specs if left_out.get(spec) not in ignored]

    # -- queries --------------------------------------------------------------------------------------------

    async def sha(self, revision: str, kind: str = "commit") -> str | None:
        """The full hash of a revision; None when there is no such revision."""
        if not isinstance(revision, str) or not revision or revision.startswith("-") or "\0" in revision:
            raise ToolError("invalid", f"{quoted(revision)} is no revision.")
        output = await self.text(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{{kind}}}", ok=(0, 1, 128)
        )
        last_line = output.splitlines()[-1] if output else ""
        if _SHA.fullmatch(last_line):
            return last_line
        await self.ask("rev-parse", "--git-dir")  # raises when there is no repository at all
        return None

    async def branch_name(self) -> str | None:
        """The current branch, even without a commit; None when HEAD is detached."""
        return await self.text("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1)) or None

    async def tree_of(self, revision: str) -> str:
        """The tree of a base to compare with; the empty tree for HEAD of a repository without commits."""
        tree = await self.sha(revision, "tree")
        if tree is not None:
            return tree
        if revision == "HEAD":
            return await self.text("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"", changes=True)
        raise ToolError("no_base", f"there is no revision {quoted(revision)} in this repository.")

    async def head(self) -> dict[str, Any]:
        """The current commit and branch; null where there is none."""
        branch = await self.branch_name()
        sha = await self.sha("HEAD")
        return {"sha": sha, "branch": branch, "tree": await self.sha("HEAD", "tree") if sha else None}

    async def status(self) -> dict[str, Any]:
        """Branch, distance from its upstream, and which files are staged, changed and untracked."""
        raw = (
            await self.ask(
                "status",
                "--porcelain=v2",
                "-z",
                "--branch",
                "--untracked-files=all",
                "--",
                *self.specs(["."]),
            )
        ).out
        prefix = await self.prefix()
        info: dict[str, Any] = {"branch": None, "upstream": None, "ahead": 0, "behind": 0}
        lists: dict[str, list[str]] = {"staged": [], "unstaged": [], "untracked": []}
        lines = iter(os.fsdecode(piece) for piece in raw.split(b"\0"))
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "#":
                _header(rest, info)
            elif kind in ("1", "2", "u"):
                before, changed = rest[0], rest[1]
                # The path follows 7, 8 or 9 fields; the next piece after a rename is its old path.
                fields = {"1": 7, "2": 8, "u": 9}[kind]
                path = self._project_path(rest.split(" ", fields)[-1], prefix)
                if kind == "2":
                    next(lines, None)
                if before != "." and kind != "u":
                    lists["staged"].append(path)
                if changed != "." or kind == "u":
                    lists["unstaged"].append(path)
            elif kind == "?":
                lists["untracked"].append(self._project_path(rest, prefix))
        clean = not any(lists.values())
        return {**info, **{name: sorted(paths) for name, paths in lists.items()}, "clean": clean}

    async def diff(
        self, base: str = "HEAD", paths: list[str] | None = None, staged: bool = False
    ) -> dict[str, Any]:
        """The differences from a base, as a diff and as counts per file (null for binary files)."""
        tree = await self.tree_of(base)
        options = ["--cached"] if staged else []
        return await self.compared([*options, tree], paths or ["."])

    async def compared(self, arguments: Sequence[str], paths: Sequence[str] | None) -> dict[str, Any]:
        """Diff and counts for arguments of `git diff`; of all files when no paths are given."""
        path_options = ["--relative", "--", *self.specs(paths)] if paths is not None else ["--"]
        options = ["--no-color", "-M", *arguments, *path_options]
        counts = (await self.ask("diff", "--numstat", "-z", *options)).out
        ran = await self.ask("diff", *options, limit=LONGEST_DIFF, whole=False)
        text = ran.out.decode("utf-8", "replace")
        if ran.out_cut:
            text = text[: text.rfind("\n") + 1]
        return {"diff": text, "files": _counts(counts), "truncated": bool(ran.out_cut)}

    async def log(self, base: str, limit: int = 50) -> dict[str, Any]:
        """Commits since a base, newest first."""
        most = max(0, min(limit, MOST_COMMITS))
        if await self.sha("HEAD") is None:
            return {"commits": []}
        since = await self.sha(base)
        if since is None:
            raise ToolError("no_base", f"there is no commit {quoted(base)} in this repository.")
        ran = await self.ask(
            "log", "-z", f"--max-count={most}", "--no-color", "--format=tformat:%H%x00%an%x00%aI%x00%s",
            f"{since}..HEAD", "--",
        )  # fmt: skip
        parts = ran.out.decode("utf-8", "replace").split("\0")[:-1]
        rows = (parts[at : at + 4] for at in range(0, len(parts) - 3, 4))
        return {
            "commits": [dict(zip(("sha", "author", "date", "subject"), row, strict=True)) for row in rows]
        }


def _header(header: str, info: dict[str, Any]) -> None:
    name, _, value = header.partition(" ")
    if name == "branch.head" and value != "(detached)":
        info["branch"] = value
    elif name == "branch.upstream":
        info["upstream"] = value
    elif name == "branch.ab":
        ahead, behind = value.split(" ")
        info["ahead"], info["behind"] = int(ahead), -int(behind)


def _counts(raw: bytes) -> list[dict[str, Any]]:
    """`git diff --numstat -z`: two counts and a path; a rename has its two paths in pieces of their own."""
    counts = []
    pieces = iter(raw.split(b"\0"))
    for piece in pieces:
        if not piece:
            continue
        added, removed, path = piece.split(b"\t", 2)
        if not path:
            next(pieces)
            path = next(pieces)
        counts.append(
            {
                "path": os.fsdecode(path),
                "added": None if added == b"-" else int(added),
                "removed": None if removed == b"-" else int(removed),
            }
        )
    return counts


_FAULTS: tuple[tuple[str, str, str, bool], ...] = (
    (
        "not a git repository",
        "no_repository",
        "the project is in no git repository; run `git init` there",
        False,
    ),
    (
        "dubious ownership",
        "not_trusted",
        "git does not trust this repository's owner; see safe.directory",
        False,
    ),
    (".lock': File exists", "locked", "another git process is at work in this repository", True),
    ("unable to auto-detect email", "no_identity", "git knows no name and address to commit under", False),
    ("Please tell me who you are", "no_identity", "git knows no name and address to commit under", False),
    ("empty ident name", "no_identity", "git knows no name and address to commit under", False),
    ("did not match any file", "no_file", "a path named is not in the project", False),
    ("are ignored by one of your .gitignore", "ignored", "a path named is ignored by .gitignore", False),
    ("error building trees", "unmerged", "a merge with conflicts is under way; finish it first", False),
    ("Authentication failed", "auth", "the remote refused the credentials", False),
    ("could not read Username", "auth", "the remote asks for a user name, and there is nobody to ask", False),
    ("Permission denied (publickey", "auth", "the remote refused the credentials", False),
    ("Host key verification failed", "auth", "the remote's host key is not known here", False),
    ("Could not resolve host", "unreachable", "the remote cannot be reached", True),
    ("Connection refused", "unreachable", "the remote cannot be reached", True),
    ("Connection timed out", "unreachable", "the remote cannot be reached", True),
    ("Connection reset", "unreachable", "the connection to the remote broke off", True),
    ("does not appear to be a git repository", "no_remote", "there is no repository at the remote", False),
    (
        "would be overwritten by checkout",
        "conflict",
        "changed files stand in the way of the other branch",
        False,
    ),
)
"""Messages of git: the text to look for, our code, its meaning, and whether a retry may help."""


def fault(command: str, ran: Ran) -> ToolError:
    """The error for a failed git command, without URLs that may hold passwords."""
    stderr = ran.err.decode("utf-8", "replace")
    for pattern, code, meaning, transient in _FAULTS:
        if pattern in stderr:
            return ToolError(code, f"{meaning} (git {command}).", transient=transient)
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[0] if lines else "")
    message = _ADDRESS.sub(r"\1***@", first)[:200]
    return ToolError(
        "git_failed", f"git {command} ended with code {ran.code}{f': {message}' if message else ''}."
    )


def query_tools(git: Git) -> list[Tool]:
    """Git's queries."""
    return [
        Tool("git.status", git.status, "query",
             description="Branch, distance from upstream, and which files are staged, changed, untracked."),
        Tool("git.diff", git.diff, "query",
             description="What differs from a base, as a diff and as counts per file."),
        Tool("git.log", git.log, "query", description="Commits since a base, newest first."),
        Tool("git.head", git.head, "query", description="The commit and branch worked on."),
    ]  # fmt: skip
