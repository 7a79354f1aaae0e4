"""Every built-in action by its handler, by an agent that does the same, and by one that lies (D-74)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from detent.dispatch.autonomy import FallbackReason, StepMode
from tests.examples import one_in
from tests.flows.workflow.actions.agents import SENSIBLE, PromptedAgent
from tests.flows.workflow.actions.workshop import REGISTRY, WHEN, Done, Site, Workshop, fits

Prepare = Callable[[Workshop, Site], Awaitable[dict[str, Any]]]
Check = Callable[[Workshop, Any], None]


@dataclass
class Case:
    """How an action is tried."""

    action: str
    prepare: Prepare
    check: Check
    effects: tuple[str, ...] = ()
    """Tools performed."""
    varies: tuple[str, ...] = ()
    """Fields of the output that differ from run to run."""
    run_id: str = "r1"


PAGES = {
    "/a.json": (200, {"content-type": "application/json"}, b'{"n": 1}'),
    "/data.csv": (200, {"content-type": "text/csv"}, b"id,name\n1,ann\n2,bob\n"),
}
ROWS = "id,name,age\n1,ann,30\n2,bob,\n3,cleo,x1\n"


def values(**said: Any) -> Prepare:
    async def prepare(shop: Workshop, site: Site) -> dict[str, Any]:
        return said

    return prepare


def with_files(files: dict[str, str], **said: Any) -> Prepare:
    async def prepare(shop: Workshop, site: Site) -> dict[str, Any]:
        for name, text in files.items():
            shop.write(name, text)
        return said

    return prepare


def with_git(*files: str, changed: dict[str, str] | None = None, **said: Any) -> Prepare:
    async def prepare(shop: Workshop, site: Site) -> dict[str, Any]:
        shop.repository(*files)
        for name, text in (changed or {}).items():
            shop.write(name, text)
        return said

    return prepare


async def written_before(shop: Workshop, site: Site) -> dict[str, Any]:
    shop.write("a.txt", "old")
    assert (await shop.run("write_file", "r1.a", path="a.txt", text="new")).ok
    return {"path": "a.txt"}


async def staged_before(shop: Workshop, site: Site) -> dict[str, Any]:
    shop.repository()
    shop.write("mine.txt", "x")
    shop.git("add", "mine.txt")
    shop.write("b.txt", "y")
    assert (await shop.run("git_stage", "r1.a", paths=["b.txt"])).ok
    return {}


async def staged_by_hand(shop: Workshop, site: Site) -> dict[str, Any]:
    shop.repository()
    shop.write("b.txt", "y\n")
    shop.git("add", "b.txt")
    return {"message": "feat: b\n\nwhy"}


async def committed_before(shop: Workshop, site: Site) -> dict[str, Any]:
    said = await staged_by_hand(shop, site)
    done = await shop.run("git_commit", "r1.a", **said)
    return {"sha": done.output["sha"]}


async def two_commits(shop: Workshop, site: Site) -> dict[str, Any]:
    shop.repository()
    shop.write("b.txt", "y")
    shop.git("add", "-A")
    shop.git("commit", "-q", "-m", "second")
    return {"base": "HEAD~1"}


async def pushable(shop: Workshop, site: Site) -> dict[str, Any]:
    shop.repository()
    shop.remote()
    return {}


async def fetched(shop: Workshop, site: Site) -> dict[str, Any]:
    return {"url": f"{site.url}/a.json"}


async def downloaded(shop: Workshop, site: Site) -> dict[str, Any]:
    return {"url": f"{site.url}/data.csv", "path": "in/data.csv"}


async def table_read(shop: Workshop, site: Site) -> dict[str, Any]:
    shop.write("t.csv", ROWS)
    done = await shop.run("read_table", "r1.t", path="t.csv", batch=2)
    rules = {"name": {"required": True, "pattern": "[a-z]+"}, "id": {"type": "integer", "unique": True}}
    return {"table": done.output["ref"], "rules": rules}


async def batch_checked(shop: Workshop, site: Site) -> dict[str, Any]:
    said = await table_read(shop, site)
    done = await shop.run("check_rows", "r1.c", **said)
    return {"database": "d.db", "table": "people", "key": "id", "batch": done.output["batches"][0]}


async def batch_loaded(shop: Workshop, site: Site) -> dict[str, Any]:
    said = await batch_checked(shop, site)
    assert (await shop.run("upsert_rows", "r1.u", **said)).ok
    return said


STAGES = (
    {"name": "format", "command": ["true"], "fix_command": ["sh", "-c", "echo mended > a.txt"]},
    {"name": "test", "command": ["sh", "-c", "echo fine"], "fix_command": None},
)


async def checkable(shop: Workshop, site: Site) -> dict[str, Any]:
    shop.stages = list(STAGES)
    shop.write("a.txt", "hello")
    return {"stages": ["format", "test"]}


def validated(shop: Workshop, output: Any) -> None:
    assert output["success"]
    said = [(one["name"], one["status"], one["output"]) for one in output["stage_results"]]
    assert said == [("format", "passed", ""), ("test", "passed", "fine")]


def same(**expected: Any) -> Check:
    def check(shop: Workshop, output: Any) -> None:
        assert {name: output[name] for name in expected} == expected

    return check


def holds(path: str, text: str | None, **expected: Any) -> Check:
    def check(shop: Workshop, output: Any) -> None:
        same(**expected)(shop, output)
        if text is None:
            assert not (shop.root / path).exists()
        else:
            assert shop.read(path) == text

    return check


def moved(shop: Workshop, output: Any) -> None:
    assert output == {"source": "a.txt", "target": "b/c.txt", "bytes": 5}
    assert not (shop.root / "a.txt").exists()
    assert shop.read("b/c.txt") == "hello"


def staged(*files: str) -> Check:
    def check(shop: Workshop, output: Any) -> None:
        assert shop.git("diff", "--cached", "--name-only").split("\n") == list(files)

    return check


def committed(shop: Workshop, output: Any) -> None:
    assert output["sha"] == shop.git("rev-parse", "HEAD")
    assert (output["subject"], output["files"]) == ("feat: b", ["b.txt"])
    assert shop.git("rev-list", "--count", "HEAD") == "2"


def uncommitted(shop: Workshop, output: Any) -> None:
    assert output["head"] == shop.git("rev-parse", "HEAD")
    assert shop.git("rev-list", "--count", "HEAD") == "1"
    assert shop.git("diff", "--cached", "--name-only") == "b.txt"


def pushed(shop: Workshop, output: Any) -> None:
    assert output == {"remote": "origin", "branch": "main", "sha": shop.git("rev-parse", "HEAD")}
    assert shop.git("rev-parse", "main", cwd=shop.folder / "origin.git") == output["sha"]
    assert shop.git("rev-parse", "--abbrev-ref", "main@{upstream}") == "origin/main"


def people(*rows: tuple[Any, ...]) -> Check:
    def check(shop: Workshop, output: Any) -> None:
        with sqlite3.connect(shop.root / "d.db") as link:
            there = link.execute("SELECT name FROM sqlite_master WHERE name = 'people'").fetchall()
            found = link.execute("SELECT id, name, age FROM people ORDER BY id").fetchall() if there else []
        link.close()
        assert found == list(rows)

    return check


def logged(shop: Workshop, output: Any) -> None:
    (one,) = output["commits"]
    assert one == {
        "sha": shop.git("rev-parse", "HEAD"), "author": "A", "date": WHEN, "subject": "second",
    }  # fmt: skip


def notified(shop: Workshop, output: Any) -> None:
    assert len(list((shop.state / "notices").glob("*.json"))) == 1
    assert output["channel"] == "file"


def message(shop: Workshop, output: Any) -> None:
    assert output["subject"] == "feat: add a.py"
    assert output["message"] == f"{output['subject']}\n\n{output['body']}"


DIFF = "diff --git a/a.py b/a.py\nnew file mode 100644\n--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+hello\n"
A = {"a.txt": "hello"}

CASES = [
    Case("read_file", with_files(A, path="a.txt"), same(path="a.txt", text="hello", bytes=5)),
    Case("list_files", with_files({"b/x.py": "", "a.py": "", "c.txt": ""}, pattern="**/*.py"),
         same(files=["a.py", "b/x.py"], count=2, truncated=False)),
    Case("write_file", values(path="n/a.txt", text="hé"), holds("n/a.txt", "hé", bytes=3, replaced=False),
         ("files.write",)),
    Case("copy_file", with_files(A, source="a.txt", target="b.txt"), holds("b.txt", "hello", bytes=5),
         ("files.write",)),
    Case("move_file", with_files(A, source="a.txt", target="b/c.txt"), moved,
         ("files.write", "files.delete")),
    Case("delete_file", with_files(A, path="a.txt"), holds("a.txt", None, existed=True), ("files.delete",)),
    Case("restore_file", written_before, holds("a.txt", "old", restored=True), ("files.restore",),
         run_id="r1.b"),
    Case("replace_text", with_files({"a.txt": "a1 a2"}, path="a.txt", find=r"a(\d)", replace=r"b\1",
                                    regex=True),
         holds("a.txt", "b1 b2", replacements=2), ("files.write",)),
    Case("extract_text", values(text="a1 b22", pattern=r"[a-z](\d+)", group=1),
         same(matches=["1", "22"], first="1")),
    Case("render_template", values(template="{{ who.name }}: {{ n }}", values={"who": {"name": "x"}, "n": 2}),
         same(text="x: 2")),
    Case("parse_json", values(text='{"a": [1, null]}'), same(value={"a": [1, None]})),
    Case("dump_json", values(value={"a": 1}), same(text='{\n  "a": 1\n}')),
    Case("parse_yaml", values(text="a: yes\nb: 0o17\n"), same(value={"a": "yes", "b": 15})),
    Case("dump_yaml", values(value={"a": "0o17"}), same(text="a: '0o17'\n")),
    Case("check_schema", values(value={"a": "x"}, schema={"properties": {"a": {"type": "integer"}}}),
         same(valid=False, problems=["/a: must be an integer"])),
    Case("http_get", fetched, same(status=200, json={"n": 1}, text='{"n": 1}'), varies=("headers",)),
    Case("http_download", downloaded, holds("in/data.csv", "id,name\n1,ann\n2,bob\n", bytes=20),
         ("files.write",)),
    Case("run_command", values(argv=["sh", "-c", "echo hi > o.txt; echo out"]),
         holds("o.txt", "hi\n", exit_code=0, stdout="out\n", stderr=""), ("shell.run",), ("duration_ms",)),
    Case("run_validation", checkable, validated, ("validation.run", "validation.run"), ("stage_results",)),
    Case("apply_fixes", checkable, holds("a.txt", "mended\n", changed_files=["a.txt"], applied=["format"]),
         ("validation.fix", "validation.fix")),
    Case("git_status", with_git(changed={"n.txt": "x"}),
         same(branch="main", untracked=["n.txt"], clean=False)),
    Case("git_diff", with_git(changed={"README.md": "x\ny\n"}),
         same(files=[{"path": "README.md", "added": 2, "removed": 1}], truncated=False)),
    Case("git_log", two_commits, logged),
    Case("git_check_and_stage", with_git(changed={"n.txt": "x"}), staged("n.txt"), ("git.stage",)),
    Case("git_stage", with_git(changed={"n.txt": "x", "m.txt": "y"}, paths=["n.txt"]), staged("n.txt"),
         ("git.stage",)),
    Case("git_unstage", staged_before, staged("mine.txt"), ("git.unstage",), run_id="r1.b"),
    Case("git_commit", staged_by_hand, committed, ("git.commit",)),
    Case("git_uncommit", committed_before, uncommitted, ("git.reset",), run_id="r1.b"),
    Case("git_push", pushable, pushed, ("git.push",)),
    Case("git_branch", with_git(name="topic"), same(branch="topic", created=True), ("git.branch",)),
    Case("compose_commit_message", values(files=["a.py"], diff=DIFF), message),
    Case("read_table", with_files({"t.csv": ROWS}, path="t.csv", batch=2),
         same(columns=["id", "name", "age"], rows=3, batches=2)),
    Case("check_rows", table_read, same(accepted=3, rejected=0, problems=[]), run_id="r1.c"),
    Case("upsert_rows", batch_checked, people((1, "ann", "30"), (2, "bob", None)), ("db.upsert",),
         run_id="r1.u"),
    Case("restore_rows", batch_loaded, people(), ("db.restore",), run_id="r1.v"),
    Case("log_message", values(message="hello"), same(logged=True)),
    Case("notify", values(message="done", title="t"), notified, ("notify.send",), ("delivered_at",)),
]  # fmt: skip
APART = {"sleep", "ask_person"}
"""Waiting: tried elsewhere."""

each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.action)


def without(done: Done, case: Case) -> dict[str, Any]:
    return {name: value for name, value in done.output.items() if name not in case.varies}


def test_every_action_is_tried():
    """D-74."""
    assert {case.action for case in CASES} | APART == set(REGISTRY.actions.names)
    assert len(REGISTRY.actions) >= 20


@each
async def test_the_handler_does_what_the_action_is_for(case, workshops, sites):
    """D-74."""
    shop, site = workshops(), sites(PAGES)
    done = await shop.run(case.action, case.run_id, **await case.prepare(shop, site))
    assert done.ok, done.error
    assert fits(case.action, done.output) == []
    case.check(shop, done.output)
    assert done.performed == [(tool, "performed") for tool in case.effects]


@each
async def test_an_agent_that_does_the_same_is_accepted(case, workshops, sites):
    """D-74, D-16: with the same output and the same effects, which it calls for knowing only the prompt."""
    site = sites(PAGES)
    first, shop = workshops(), workshops()
    told = await first.run(case.action, case.run_id, **await case.prepare(first, site))
    assert told.ok, told.error
    said = await case.prepare(shop, site)
    agent = PromptedAgent(SENSIBLE[case.action]) if case.effects else {"output": told.output}
    done = await shop.run(case.action, case.run_id, agent, **said)
    assert done.ok, done.error
    assert done.dispatch.agent_result_accepted, done.dispatch
    assert done.dispatch.mode_used is StepMode.AGENT
    assert without(done, case) == without(told, case)
    assert done.performed == [(tool, "performed") for tool in case.effects]
    case.check(shop, done.output)


@pytest.mark.parametrize("case", one_in(5, CASES), ids=lambda case: case.action)
async def test_one_that_lies_is_not_believed(case, workshops, sites):
    """D-17: the outcome and the effects are the handler's."""
    site = sites(PAGES)
    first, shop = workshops(), workshops()
    told = await first.run(case.action, case.run_id, **await case.prepare(first, site))
    said = await case.prepare(shop, site)
    done = await shop.run(case.action, case.run_id, first.lie(told), **said)
    assert done.ok, done.error
    # An agent that says of itself that it failed is not even compared.
    failed = case.action == "run_validation"
    reason = FallbackReason.EXCEPTION if failed else FallbackReason.VALIDATION_FAILURE
    assert done.dispatch.fallback_reason is reason
    assert without(done, case) == without(told, case)
    assert done.performed == [(tool, "performed") for tool in case.effects]
    case.check(shop, done.output)
