"""Git's queries run nothing that the repository has configured, and what its user has configured."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent.adapters.project.backups import Backups
from detent.adapters.project.effect_notes import EffectNotes
from detent.adapters.project.git import Git
from detent.adapters.project.git_changes import GitChanges
from detent.adapters.project.sandbox import Sandbox
from detent.engine.tools import EffectCall, ToolError

HOOKS = (
    "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-index-change",
    "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman",
)  # fmt: skip


class Repository:
    """A repository with two commits and a program that leaves a mark when it is run."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.mark = folder / "mark"
        self.program = folder / "program"
        self.program.write_text(f"#!/bin/sh\necho run >> {self.mark}\ncat\n")
        self.program.chmod(0o755)
        self.user_config = folder / "gitconfig"
        self.environ = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self.user_config), "GIT_AUTHOR_NAME": "A", "GIT_COMMITTER_NAME": "A",
            "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_EMAIL": "a@example.org",
        }  # fmt: skip
        self.git("init", "-q", "-b", "main")
        self.write("a.txt", "one\n")
        self.commit("first")
        self.write("a.txt", "two\n")
        self.commit("second")
        sandbox = Sandbox(self.root, self.root / ".detent")
        self.tools = Git(sandbox, self.environ)
        self.changes = GitChanges(self.tools, EffectNotes(sandbox), Backups(sandbox))

    def git(self, *args: str, check: bool = True, cwd: Path | None = None, stdin: bytes = b"") -> str:
        """Run git as a person would."""
        ran = subprocess.run(
            ["git", *args],
            cwd=cwd or self.root,
            env=self.environ,
            input=stdin,
            capture_output=True,
            check=check,
        )
        return ran.stdout.decode().strip()

    def write(self, name: str, text: str) -> None:
        place = self.root / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def config(self, key: str, value: str = "") -> None:
        self.git("config", key, value or str(self.program))

    def was_run(self) -> bool:
        """Whether the program has been run since this was last asked."""
        found = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return found

    async def query(self) -> None:
        """Every query, and what prepares a change; git may refuse one where something is missing."""
        tools, changes = self.tools, self.changes
        os.utime(self.root / "a.txt", (1, 1))  # git has to look into it
        asked: list[Callable[[], Awaitable[Any]]] = [
            tools.status, tools.diff, lambda: tools.diff(staged=True), lambda: tools.diff("HEAD~1"),
            lambda: tools.log("HEAD~1"), tools.head, tools.branch_name,
            lambda: tools.names("diff", "--name-only", "-z", "HEAD"),
            lambda: tools.names("ls-files", "-z", "--modified", "--others"),
            lambda: tools.ask("log", "-1", "--format=%B", "HEAD"),
            lambda: tools.ask("write-tree", changes=True),
            lambda: changes.stage(EffectCall("run", "stage", 1), []),
            lambda: changes.unstage(EffectCall("run", "unstage", 1), ["."]),
            lambda: changes.branch(EffectCall("run", "branch", 1), "other", switch=False),
        ]  # fmt: skip
        for ask in asked:
            with contextlib.suppress(ToolError):
                await ask()


class Trap(NamedTuple):
    """A way to have git run a program."""

    lay: Callable[[Repository], None]
    provoke: tuple[str, ...]
    """What a person would call, and git would run the program."""


def hooks(repository: Repository) -> None:
    for name in HOOKS:
        place = repository.root / ".git" / "hooks" / name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(repository.program.read_bytes().replace(b"\ncat\n", b"\n"))
        place.chmod(0o755)


def hooks_elsewhere(repository: Repository) -> None:
    hooks(repository)
    (repository.root / ".git" / "hooks").rename(repository.root / ".git" / "others")
    repository.config("core.hooksPath", ".git/others")


def file_monitor(repository: Repository) -> None:
    repository.config("core.fsmonitor")


def clean_filter(repository: Repository) -> None:
    repository.write(".gitattributes", "*.txt filter=trap diff=trap\n")
    repository.config("filter.trap.clean")
    repository.config("filter.trap.required", "true")


def filter_process(repository: Repository) -> None:
    (repository.root / ".git" / "info").mkdir(exist_ok=True)
    (repository.root / ".git" / "info" / "attributes").write_text("*.txt filter=trap\n")
    repository.config("filter.trap.process")


def included_filter(repository: Repository) -> None:
    repository.write(".gitattributes", "*.txt filter=trap\n")
    repository.write("settings", f'[filter "trap"]\n\tclean = {repository.program}\n')
    repository.config("include.path", "../settings")


def filter_of_a_worktree(repository: Repository) -> None:
    repository.write(".gitattributes", "*.txt filter=trap\n")
    repository.config("extensions.worktreeConfig", "true")
    repository.git("config", "--worktree", "filter.trap.clean", str(repository.program))


def external_diff(repository: Repository) -> None:
    repository.config("diff.external")


def diff_driver(repository: Repository) -> None:
    repository.write(".gitattributes", "*.txt diff=trap\n")
    repository.config("diff.trap.command")


def text_conversion(repository: Repository) -> None:
    repository.write(".gitattributes", "*.txt diff=trap\n")
    repository.config("diff.trap.textconv")


def signature(repository: Repository) -> None:
    body = repository.git("cat-file", "commit", "HEAD")
    head, _, message = body.partition("\n\n")
    signed = (
        f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n{message}\n"
    )
    sha = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=signed.encode())
    repository.git("update-ref", "HEAD", sha)
    repository.config("log.showSignature", "true")
    repository.config("gpg.program")


def submodule(repository: Repository) -> None:
    inner = repository.root / "inner"
    inner.mkdir()
    repository.git("init", "-q", cwd=inner)
    (inner / "b.txt").write_text("b\n")
    repository.git("add", "-A", cwd=inner)
    repository.git("commit", "-q", "-m", "inner", cwd=inner)
    repository.git("-c", "advice.addEmbeddedRepo=false", "add", "inner")
    (inner / ".gitattributes").write_text("*.txt filter=trap\n")
    repository.git("config", "filter.trap.clean", str(repository.program), cwd=inner)
    os.utime(inner / "b.txt", (1, 1))


def missing_object(repository: Repository) -> None:
    """As in a partial clone, whose objects are fetched when they are needed."""
    sha = repository.git("rev-parse", "HEAD:a.txt")
    (repository.root / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
    repository.write("a.txt", "three\n")
    repository.config("core.repositoryFormatVersion", "1")
    repository.config("extensions.partialClone", "origin")
    repository.config("remote.origin.promisor", "true")
    repository.config("remote.origin.url", str(repository.root))
    repository.config("remote.origin.uploadpack", f"echo run >> {repository.mark}; true")


TRAPS = {
    "hooks": Trap(hooks, ("update-ref", "refs/heads/third", "HEAD")),
    "hooks elsewhere": Trap(hooks_elsewhere, ("update-ref", "refs/heads/third", "HEAD")),
    "file monitor": Trap(file_monitor, ("status",)),
    "clean filter": Trap(clean_filter, ("status",)),
    "filter process": Trap(filter_process, ("status",)),
    "included filter": Trap(included_filter, ("diff",)),
    "filter of a worktree": Trap(filter_of_a_worktree, ("status",)),
    "external diff": Trap(external_diff, ("diff", "HEAD~1")),
    "diff driver": Trap(diff_driver, ("diff", "HEAD~1")),
    "text conversion": Trap(text_conversion, ("diff", "HEAD~1")),
    "signature": Trap(signature, ("log", "-1")),
    "submodule": Trap(submodule, ("status",)),
    "missing object": Trap(missing_object, ("diff",)),
}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.parametrize("name", TRAPS)
async def test_no_query_runs_what_the_repository_names(repository, name):
    trap = TRAPS[name]
    trap.lay(repository)
    repository.was_run()
    await repository.query()
    assert not repository.was_run()
    os.utime(repository.root / "a.txt", (2, 2))
    repository.git(*trap.provoke, check=False)
    assert repository.was_run(), "the trap is none"


async def test_all_traps_together_change_no_answer(repository):
    """But for a file that a filter of the repository would show as unchanged."""
    repository.write("b.txt", "b\n")
    before = await repository.tools.status()
    for name in ("file monitor", "external diff", "text conversion", "signature"):
        TRAPS[name].lay(repository)
    (repository.root / ".gitattributes").unlink()
    assert await repository.tools.status() == before
    assert "+two" in (await repository.tools.diff("HEAD~1"))["diff"]
    assert not repository.was_run()


async def test_a_filter_of_the_users_own_configuration_is_run(repository):
    """Git LFS is one: without it every large file would look changed. The repository cannot replace it."""
    repository.git("config", "--file", str(repository.user_config), "filter.upper.clean", "tr a-z A-Z")
    repository.write(".gitattributes", "*.txt filter=upper\n")
    repository.write("a.txt", "abc\n")
    repository.commit("in capitals")
    assert repository.git("cat-file", "blob", "HEAD:a.txt") == "ABC"
    repository.config("filter.upper.clean")
    repository.config("filter.upper.required", "true")
    os.utime(repository.root / "a.txt", (1, 1))
    assert (await repository.tools.status())["clean"]
    assert not repository.was_run()


async def test_a_filter_whose_name_cannot_be_passed_on_is_refused(repository):
    """`-c filter.a=b.clean=` would set something else."""
    repository.write(".gitattributes", "*.txt filter=a=b\n")
    repository.config("filter.a=b.clean")
    os.utime(repository.root / "a.txt", (1, 1))
    with pytest.raises(ToolError) as caught:
        await repository.tools.status()
    assert caught.value.code == "odd_name"
    assert not repository.was_run()
    repository.git("status")
    assert repository.was_run()


async def test_what_a_workflow_stages_goes_through_the_filters_and_past_the_hooks(repository):
    """A file of an encrypted repository must not be staged as it is."""
    repository.write(".gitattributes", "*.txt filter=upper\n")
    repository.config("filter.upper.clean", "tr a-z A-Z")
    hooks(repository)
    repository.write("a.txt", "abc\n")
    call = EffectCall("run", "key", 1)
    await repository.changes.stage(call, ["a.txt"])
    assert not repository.was_run()
    assert repository.git("cat-file", "blob", ":a.txt") == "ABC"
    (repository.root / ".git" / "hooks" / "reference-transaction").unlink()
    await repository.changes.commit(call, "third")
    assert repository.was_run(), "hooks have their say about a commit"


async def test_a_query_fetches_nothing(repository):
    """A partial clone names the program that fetches; an object it lacks is an error."""
    missing_object(repository)
    with pytest.raises(ToolError) as caught:
        await repository.tools.diff()
    assert caught.value.code == "git_failed"
