"""The workflows that ship, in real projects: by code alone, and with every python step in agent mode.

Three projects are made alike. In one the actions' handlers are called one by one, in one the workflow is run
with no agent, in one agents do every python step, knowing only their prompts. All three end the same.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.cli.main import run as detent
from detent.dispatch.autonomy import StepMode
from detent.engine.family import family_of
from detent.flows.workflow.spec import PythonStep, WorkflowSpec
from detent.kernel.entries import EffectDone, Moved
from detent.kernel.status import Status
from tests.examples import covering
from tests.flows.workflow.actions.agents import SENSIBLE, Workers
from tests.flows.workflow.actions.workshop import Site, Workshop
from tests.flows.workflow.dispatch.project import Project, Ran

SHIPPED = ("commit-and-push", "data-import", "summarize-changes", "validate-and-fix")
VARIES = ("duration_ms", "timestamp", "output_ms")
"""What rightly differs from run to run."""
ROWS = "id,name,age\n1,Ada,36\n2,Grace,45\n3,Edsger,72\n4,Barbara,oops\n5,Alan,41\n"
RULES = {"age": {"type": "integer"}, "name": {"required": True}}


class Place:
    """A project of its own: a workshop for actions, a project for workflows, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.workshop = Workshop(folder)
        self.root = self.workshop.root
        self.workshop.write(".gitignore", "detent.yaml\n.detent/\nimport/\n*.db\n")
        self.project = Project(self.root, environ=dict(self.workshop.environ))
        (self.root / ".detent").mkdir(exist_ok=True)
        self.project.store = SQLiteStore(self.root / ".detent" / "runs.db")

    def git(self, *args: str) -> str:
        return self.workshop.git(*args)

    def repository(self) -> None:
        """A repository with a remote, one commit behind the files."""
        self.workshop.repository(".gitignore", "src/app.py", "tests/test_app.py")
        self.workshop.write(".gitignore", "detent.yaml\n.detent/\nimport/\n*.db\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "ignore what is ours")
        self.workshop.remote()
        self.workshop.write("src/app.py", "print('hello')\nprint('world')\n")
        self.workshop.write("docs/notes.md", "notes\n")

    def world(self) -> dict[str, Any]:
        """Everything outside that a workflow may have changed."""
        found: dict[str, Any] = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            ours = name.startswith((".git/", ".detent/", "detent.yaml")) or name == ".git"
            if path.is_file() and not ours and path.suffix != ".db":
                found[name] = path.read_bytes()
            if path.suffix == ".db" and not ours:
                found[name] = rows(path)
        if (self.root / ".git").exists():
            found["log"] = self.git("log", "--format=%H %T %s%n%b", "--all")
            found["status"] = self.git("status", "--porcelain")
            bare = self.workshop.folder / "origin.git"
            if bare.exists():
                found["remote"] = self.workshop.git("show-ref", cwd=bare) if any(
                    (bare / "refs" / "heads").iterdir()
                ) else ""  # fmt: skip
        return found


def rows(path: Path) -> list[Any]:
    with sqlite3.connect(path) as link:
        return link.execute("SELECT * FROM people ORDER BY id").fetchall()


@pytest.fixture
async def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[str], Place]]:
    """Projects alike, by name."""
    for name in list(os.environ):
        if name.startswith(("DETENT", "GIT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    made: dict[str, Place] = {}

    def place(name: str) -> Place:
        return made.setdefault(name, Place(tmp_path / name))

    yield place
    for one in made.values():
        await one.project.close()
        await one.workshop.close()


@pytest.fixture
def site() -> Any:
    found = Site({"/people.csv": (200, {"content-type": "text/csv"}, ROWS.encode())})
    yield found
    found.server.shutdown()
    found.server.server_close()


# -- repeating what handlers did ----------------------------------------------------------------------------


def python_steps(spec: WorkflowSpec) -> dict[str, PythonStep]:
    return {step.name: step for step in spec.every_step() if isinstance(step, PythonStep)}


async def truths(ran: Ran, project: Project) -> dict[str, list[dict[str, Any]]]:
    """By step that only decides, a reply for each time it was performed: what its handler said."""
    workflows = project.open()
    steps = python_steps(workflows.choose(ran.run.flow).spec)
    replies: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    assert ran.engine is not None
    async for past in family_of(ran.engine.store, ran.engine.flow, ran.run.id):
        for entry in past.moves:
            assert isinstance(entry.body, Moved)
            result = entry.body.set.get(f"steps/{entry.body.frm}")
            name = (result or {}).get("ran", entry.body.frm)
            if result is None or result["status"] != "ok" or name not in steps:
                continue
            if not workflows.registry.actions.get(steps[name].action).effects:
                replies.setdefault(name, []).append((entry.at, {"output": result["output"]}))
    return {
        name: [reply for _, reply in sorted(said, key=lambda one: one[0])] for name, said in replies.items()
    }


def steady(value: Any) -> Any:
    """A value without what rightly varies."""
    if isinstance(value, Mapping):
        return {key: steady(item) for key, item in value.items() if key not in VARIES}
    return [steady(item) for item in value] if isinstance(value, list) else value


def outputs(ran: Ran) -> dict[str, Any]:
    return {one.path: (one.status, steady(one.output)) for one in ran.result.step_results}


async def effects(ran: Ran) -> list[str]:
    """Tools of the effects of the whole family; calling a handler that acts itself counts as what it did."""
    found: list[tuple[float, str]] = []
    assert ran.engine is not None
    async for past in family_of(ran.engine.store, ran.engine.flow, ran.run.id):
        for entry in await ran.engine.store.entries(past.run.id, 0, 100_000):
            if isinstance(entry.body, EffectDone):
                found.append((entry.at, entry.body.tool))
    return [tool for _, tool in sorted(found) if tool != "call:mark"]  # a checkpoint's file


async def compare(
    places: Callable[[str], Place],
    name: str,
    inputs: Mapping[str, Any],
    prepare: Callable[[Place], None],
    level: str = "collaborator",
    said: Mapping[str, Any] | None = None,
    replace: Mapping[str, list[dict[str, Any]]] | None = None,
) -> tuple[Ran, Ran]:
    """Run a workflow by code, then with every python step in agent mode; both ends are the same."""
    by_code, by_agent = places("code"), places("agent")
    for one in (by_code, by_agent):
        prepare(one)
        one.project.settings(**(said or {}))
    plain = await by_code.project.run(name, inputs, script={"*": [{"error": "crash", "repeat": True}]})
    assert plain.run.status is Status.SUCCEEDED, plain.result.error
    steps = python_steps(by_code.project.open().choose(name).spec)
    # Generators are an agent's by nature; with no model they are written by code.
    assert [call for call in plain.asked if call in steps] == []
    script = {**await truths(plain, by_code.project), **(replace or {})}
    acting = {
        name: SENSIBLE[step.action]
        for name, step in steps.items()
        if step.action in SENSIBLE and name not in script
    }
    by_agent.project.settings(
        **(said or {}),
        steps={f"workflow/{name}/{step}": {"mode": "agent", "autonomy": level} for step in steps},
    )
    executor = Workers({**script, "*": [{"error": "crash", "repeat": True}]}, acting)
    ran = await by_agent.project.run(name, inputs, executor=executor)
    assert ran.run.status is Status.SUCCEEDED, ran.result.error
    performed = {one.name for one in plain.result.step_results if one.status == "ok"}
    inner = {one.path.rpartition("/")[2] for one in plain.result.step_results if one.status == "ok"}
    asked = {step for step in ran.asked if step in steps}
    assert asked == (performed | inner | set(script)) & set(steps)
    assert outputs(ran) == outputs(plain)
    assert steady(ran.result.final_output) == steady(plain.result.final_output)
    assert by_agent.world() == by_code.world()
    return plain, ran


def by_agents(ran: Ran) -> set[str]:
    """Steps whose outcome was the agent's."""
    return {
        move.detail["step"].rpartition("/")[2]
        for move in ran.moves.values()
        if move.detail.get("mode_used") == StepMode.AGENT.value
    }


# -- the four -----------------------------------------------------------------------------------------------


def test_the_four_validate_cleanly(tmp_path, monkeypatch, capsys):
    """D-75: strictly."""
    monkeypatch.chdir(tmp_path)
    # W005 is about a project with no model, which this one is.
    (tmp_path / "detent.yaml").write_text("models: {scripted: {kind: scripted, file: s.yaml}}\n")
    assert detent(["workflow", "validate", *SHIPPED, "--strict"]) == 0, capsys.readouterr().out


class TestCommitAndPush:
    LEVELS = ("collaborator", "consultant", "approver")

    INPUTS: ClassVar = {
        "none": {},
        "message": {"message": "feat: say hello to the world"},
        "local": {"push": False},
    }

    @pytest.mark.parametrize(("name", "level"), covering(INPUTS, LEVELS, together=1))
    async def test_it_ends_the_same_by_code_and_by_agents(self, places, name, level):
        """D-75, SC-001, SC-002: with a real repository and a bare remote."""
        inputs = self.INPUTS[name]
        plain, ran = await compare(places, "commit-and-push", inputs, Place.repository, level)
        assert await effects(ran) == await effects(plain)
        expected = {"stage", "commit"} | ({"push"} if inputs.get("push", True) else set())
        expected |= set() if "message" in inputs else {"message"}
        assert by_agents(ran) == expected
        sha = plain.result.final_output["sha"]
        assert places("agent").git("rev-parse", "HEAD") == sha
        assert (sha in places("agent").world()["remote"]) == inputs.get("push", True)

    async def test_without_agents_it_does_what_its_handlers_do(self, places):
        """D-07: called one by one; and no executor is made."""
        direct, by_code = places("direct"), places("code")
        direct.repository()
        by_code.repository()
        stage = await direct.workshop.run("git_check_and_stage")
        files, diff = stage.output["files"], stage.output["diff"]
        message = await direct.workshop.run("compose_commit_message", files=files, diff=diff)
        commit = await direct.workshop.run("git_commit", message=message.output["message"])
        push = await direct.workshop.run("git_push")
        ran = await by_code.project.run("commit-and-push", script={"*": [{"error": "crash"}]})
        assert ran.source.made == 0
        for step, done in {"stage": stage, "message": message, "commit": commit, "push": push}.items():
            assert ran.output(step) == done.output
        assert by_code.world() == direct.world()

    async def test_with_nothing_to_commit_nothing_is_done(self, places):
        """D-75: skipped steps are asked of nobody."""

        def prepare(place: Place) -> None:
            place.repository()
            place.git("add", "-A")
            place.git("commit", "-q", "-m", "all")

        plain, ran = await compare(places, "commit-and-push", {}, prepare)
        assert plain.result.final_output == {"committed": False, "sha": None}
        assert set(ran.asked) == {"stage"}
        assert by_agents(ran) == {"stage"}

    @pytest.mark.parametrize("fault", [{"error": "crash"}, {"text": "done!"}, {"output": {}}])
    async def test_agents_that_fail_at_every_step_change_nothing(self, places, fault):
        """SC-003."""
        wrong = {step: [{**fault, "repeat": True}] for step in ("stage", "message", "commit", "push")}
        plain, ran = await compare(places, "commit-and-push", {}, Place.repository, replace=wrong)
        assert await effects(ran) == await effects(plain)
        assert by_agents(ran) == set()

    @pytest.mark.parametrize("own_loop", [False, True], ids=["prompted", "own loop"])
    async def test_an_invented_sha_does_not_keep_a_commit_from_being_taken_back(self, places, own_loop):
        """The commit is an agent's at approver, the push is refused: the rollback goes by the receipt."""
        place = places("agent")
        place.repository()
        hook = place.workshop.folder / "origin.git" / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
        before = place.world()
        place.project.settings(steps={"commit": {"mode": "agent", "autonomy": "approver"}})
        call = {"tool": "git.commit", "args": {"message": "feat: say hello"}}
        invented = {"sha": "x", "subject": "feat: say hello", "files": []}
        script = (
            [{"calls": [call], "output": invented}]
            if own_loop
            else [{"output": {"calls": [call]}}, {"output": invented, "repeat": True}]
        )
        inputs = {"message": "feat: say hello"}
        ran = await place.project.run("commit-and-push", inputs, script={"commit": script})
        assert ran.run.status is Status.FAILED
        assert ran.dispatch("commit").mode_used is StepMode.AGENT
        assert len(ran.output("commit")["sha"]) == 40
        assert ran.result.rollback_errors == ()
        assert await effects(ran) == ["git.stage", "git.commit", "git.reset", "git.unstage"]
        assert place.world() == before


class TestDataImport:
    @staticmethod
    def prepare(place: Place) -> None:
        place.workshop.write("people.csv", ROWS)

    INPUTS: ClassVar = {
        "source": "people.csv", "database": "people.db", "table": "people", "key": "id", "rules": RULES,
        "batch": 2,
    }  # fmt: skip

    async def test_it_ends_the_same_by_code_and_by_agents(self, places):
        """D-75: real files, a real database, a loop with checkpoints."""
        inputs = {**self.INPUTS, "rules": {}}
        plain, ran = await compare(places, "data-import", inputs, self.prepare)
        assert await effects(ran) == await effects(plain) == ["db.upsert"] * 3
        assert by_agents(ran) == {"read", "check", "upsert", "tell"}
        assert len(places("agent").world()["people.db"]) == 5
        saved = list((places("agent").root / ".detent" / "checkpoints").rglob("*.json"))
        assert len(saved) == 3

    async def test_it_downloads_where_the_source_is_an_address(self, places, site):
        """D-75: the step inside the branch is an agent's too."""
        inputs = {**self.INPUTS, "source": f"{site.url}/people.csv", "rules": {}}
        said = {"workflow": {"allow_private": ["127.0.0.1"]}}
        plain, ran = await compare(places, "data-import", inputs, lambda place: None, said=said)
        assert await effects(ran) == await effects(plain)
        assert by_agents(ran) == {"download", "read", "check", "upsert", "tell"}

    async def test_without_agents_it_does_what_its_handlers_do(self, places):
        """D-07: and no executor is made."""
        direct, by_code = places("direct"), places("code")
        for one in (direct, by_code):
            self.prepare(one)
        table = await direct.workshop.run("read_table", path="people.csv", batch=2)
        checked = await direct.workshop.run("check_rows", table=table.output["ref"], rules={})
        loaded = [
            await direct.workshop.run(
                "upsert_rows", database="people.db", table="people", key="id", batch=batch
            )
            for batch in checked.output["batches"]
        ]
        inputs = {**self.INPUTS, "rules": {}}
        ran = await by_code.project.run("data-import", inputs, script={"*": [{"error": "crash"}]})
        assert ran.run.status is Status.SUCCEEDED, ran.result.error
        assert ran.source.made == 0
        assert ran.output("read") == table.output
        assert ran.output("check") == checked.output
        assert [iteration[0] for iteration in ran.output("load")] == [one.output for one in loaded]
        assert by_code.world() == direct.world()


class TestSummarizeChanges:
    @staticmethod
    def prepare(place: Place) -> None:
        place.repository()
        place.git("add", "-A")
        place.git("commit", "-q", "-m", "feat: say hello")

    @pytest.mark.parametrize(
        ("output", "level"),
        covering([None, "notes/summary.md"], ["collaborator", "consultant", "approver"], together=1),
    )
    async def test_it_ends_the_same_by_code_and_by_agents(self, places, output, level):
        """D-75: its generator writes the text by code where no model does."""
        inputs = {"output": output} if output else {}
        plain, ran = await compare(places, "summarize-changes", inputs, self.prepare, level)
        assert await effects(ran) == await effects(plain)
        assert by_agents(ran) == {"log", "diff"} | ({"save"} if inputs else set())
        if inputs:
            saved = (places("agent").root / "notes" / "summary.md").read_text()
            assert saved == plain.result.final_output["summary"]

    async def test_without_agents_it_does_what_its_handlers_do(self, places):
        """D-07: the text is the generator's own, and with no model at all nothing is missed."""
        from detent.flows.workflow.generators import change_summary

        direct, by_code = places("direct"), places("code")
        for one in (direct, by_code):
            self.prepare(one)
        log = await direct.workshop.run("git_log", base="HEAD~1")
        diff = await direct.workshop.run("git_diff", base="HEAD~1")
        text = change_summary(log.output["commits"], diff.output["files"])
        ran = await by_code.project.run("summarize-changes")
        assert ran.result.final_output == {"summary": text}
        assert (ran.output("log"), ran.output("diff")) == (log.output, diff.output)


class TestValidateAndFix:
    STAGES: ClassVar = {
        "validation": {
            "stages": {
                "format": {
                    "command": ["sh", "-c", "! grep -q bad code.txt"],
                    "fix_command": ["sh", "-c", "sed -i s/bad/good/ code.txt"],
                },
                "lint": {"command": ["true"]},
            }
        }
    }
    INPUTS: ClassVar = {"stages": ["format", "lint"]}

    @staticmethod
    def prepare(place: Place) -> None:
        place.repository()
        place.workshop.write("code.txt", "bad\n")

    async def test_it_ends_the_same_by_code_and_by_agents(self, places):
        """D-75: an agent names the checks to fix, and the project's commands run."""
        plain, ran = await compare(places, "validate-and-fix", self.INPUTS, self.prepare, said=self.STAGES)
        assert await effects(ran) == await effects(plain) == ["validation.fix", "validation.fix"]
        assert by_agents(ran) == {"fix"}
        assert places("agent").world()["code.txt"] == b"good\n"
        assert ran.output("check")["attempts"] == 2

    async def test_an_agent_may_mend_by_writing_instead(self, places):
        """1.13, 2.9: at a level at which nobody compares, what it asks for is what is done."""
        calls = {"calls": [{"tool": "files.write", "args": {"path": "code.txt", "text": "good\n"}}]}
        script = [{"output": calls}, {"output": {"changed_files": [], "applied": ["format"]}}]
        self.prepare(places("agent"))
        project = places("agent").project
        project.settings(**self.STAGES, steps={"fix": {"mode": "agent", "autonomy": "approver"}})
        ran = await project.run("validate-and-fix", self.INPUTS, script={"fix": script})
        assert ran.run.status is Status.SUCCEEDED, ran.result.error
        assert await effects(ran) == ["files.write"]
        assert places("agent").world()["code.txt"] == b"good\n"

    async def test_without_agents_it_does_what_its_handlers_do(self, places):
        """D-07: and no executor is made."""
        direct, by_code = places("direct"), places("code")
        for one in (direct, by_code):
            self.prepare(one)
            one.project.settings(**self.STAGES)
        direct.workshop.stages = [
            {"name": name, "timeout": 300.0, "fix_command": None, **stage}
            for name, stage in self.STAGES["validation"]["stages"].items()
        ]
        await direct.workshop.run("apply_fixes", stages=["format", "lint"])
        ran = await by_code.project.run("validate-and-fix", self.INPUTS, script={"*": [{"error": "crash"}]})
        assert ran.run.status is Status.SUCCEEDED, ran.result.error
        assert ran.source.made == 0
        assert by_code.world() == direct.world()
