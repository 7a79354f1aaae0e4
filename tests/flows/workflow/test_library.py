"""A project's workflows, wired: files become flows with its tools, and runs are found by their inputs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.authoring.problem import DocumentError
from detent.engine.engine import Engine
from detent.flows.workflow import events
from detent.flows.workflow.inputs import InputsError
from detent.flows.workflow.kind import workflows_of
from detent.flows.workflow.library import Workflows
from detent.flows.workflow.preflight import PrerequisitesMissing
from detent.flows.workflow.registry import ValidationStage
from detent.flows.workflow.results import path_taken
from detent.flows.workflow.runs import WorkflowRuns, set_shown
from detent.kernel.errors import ConfigurationError, DefinitionChanged, RunBusy, RunExists
from detent.kernel.status import Status
from detent.runtime.catalog import Catalog
from detent.runtime.settings import read_settings
from tests.engine import answers

PLUGIN = """
from pathlib import Path
from detent import Hold, Migration, tool
from detent.flows.workflow.registry import action

@tool("list.add")
def add(text: str) -> dict:
    with Path(__file__).with_name("log.txt").open("a") as file:
        file.write(text + "\\n")
    return {}

@action("put", intent="Put the text on the list that is kept of texts.", effects=["list.add"])
async def put(ctx, text: str) -> dict:
    ctx.propose("list.add", text=text)
    return {"text": text}

@action("fail", intent="Fail if it is told to, and else do nothing.")
def fail(when: bool) -> dict:
    if when:
        raise ValueError("told to")
    return {}

@action("ask", intent="Ask a person whether it may go on with its work.", holds=True)
async def ask(ctx) -> dict:
    return {"said": ctx.answer("ok")} if ctx.answered("ok") else Hold("ok")
"""
FILE = """
version: "1.0"
name: shop
inputs: {who: {type: string, default: you}, fail: {type: boolean, default: false}}
steps:
  - {name: one, type: python, action: put, kwargs: {text: "one ${{ inputs.who }}"}}
  - {name: spot, type: checkpoint}
  - {name: sure, type: python, action: ask, when: "inputs.who == 'asked'"}
  - name: pick
    type: branch
    options:
      - {step: {name: chosen, type: python, action: put, kwargs: {text: chosen}}}
  - {name: last, type: python, action: fail, kwargs: {when: "${{ inputs.fail }}"}}
"""


class Project:
    """A folder with a plugin and a workflow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "plugin.py").write_text(PLUGIN)
        (folder / "detent.yaml").write_text("plugins: [plugin.py]\n")
        self.file = folder / ".detent" / "workflows" / "shop.yaml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(FILE)
        self.open()

    def open(self) -> None:
        """As a new process would find it."""
        self.settings = read_settings(folder=self.folder, environ={}, headings=lambda said: {})
        self.catalog = Catalog(self.settings)
        self.workflows: Workflows = workflows_of(self.catalog)

    def runs(self, listener=None) -> WorkflowRuns:
        return WorkflowRuns(self.workflows, self.workflows.choose("shop").spec, listener)

    def engine(self) -> Engine:
        engine = Engine(SQLiteStore(self.folder / "store.db"), self.workflows.flows_of(self.runs().spec))
        self.catalog.store = engine.store
        return engine

    def log(self) -> list[str]:
        file = self.folder / "log.txt"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


class TestFiles:
    def test_a_workflow_is_chosen_by_name_or_path(self, project, tmp_path):
        assert project.workflows.choose("shop").file == project.file
        other = tmp_path / "other.yaml"
        other.write_text(FILE.replace("name: shop", "name: other"))
        assert project.workflows.choose("./other.yaml").spec.name == "other"
        with pytest.raises(ConfigurationError, match="Did you mean 'shop'"):
            project.workflows.choose("shpo")

    def test_everything_wrong_with_a_file_is_told_at_once(self, project):
        project.file.write_text(
            FILE.replace("action: fail", "action: fial").replace("inputs.who", "inputs.hwo")
        )
        with pytest.raises(DocumentError) as caught:
            project.workflows.choose("shop")
        assert {problem.code for problem in caught.value.problems} == {"E001", "E007"}

    def test_the_tools_of_plugins_stand_beside_those_of_the_project(self, project):
        names = {tool.name for tool in project.workflows.tools}
        assert {"list.add", "files.write", "git.commit", "shell.run", "validation.stages"} <= names

    def test_a_migration_of_a_plugin_belongs_to_the_flow_it_names(self, project):
        code = 'DETENT_MIGRATIONS = {"shop": {"0123": lambda run: Migration()}, "other": {"4567": None}}\n'
        (project.folder / "plugin.py").write_text(PLUGIN + code)
        project.open()
        flow, *_ = project.workflows.flows_of(project.runs().spec)
        assert list(flow.migrations) == ["0123"]


class TestStages:
    async def run(self, project, *command, timeout=30):
        return await project.workflows._run_stage(ValidationStage("one", "", command, (), timeout))

    async def test_a_stage_says_how_its_command_went(self, project):
        ran = await self.run(project, sys.executable, "-c", "print('fine'); raise SystemExit(3)")
        assert (ran["exit_code"], ran["output"]) == (3, "fine\n")
        assert ran["duration_ms"] > 0

    async def test_a_program_that_is_not_there_is_127(self, project):
        ran = await self.run(project, "no-such-program-at-all")
        assert ran["exit_code"] == 127
        assert "no-such-program-at-all" in ran["output"]

    async def test_of_much_that_was_said_the_end_is_kept(self, project):
        ran = await self.run(project, sys.executable, "-c", "print('x' * 50_000 + 'the end')")
        assert len(ran["output"]) == 20_000
        assert ran["output"].endswith("the end\n")


class TestRuns:
    async def test_inputs_are_made_to_fit_and_tell_runs_apart(self, project):
        runs = project.runs()
        assert runs.prepare({"fail": "yes"}, from_text=True).inputs == {"who": "you", "fail": True}
        assert runs.prepare({}).hash == runs.prepare({"who": "you"}).hash != runs.prepare({"who": "x"}).hash
        with pytest.raises(InputsError):
            runs.prepare({"hwo": "x"})

    async def test_an_unfinished_run_is_found_by_its_inputs(self, project):
        async with project.engine() as engine:
            runs = project.runs()
            asked, other = runs.prepare({"who": "asked"}), runs.prepare({"who": "Ada"})
            run_id = await runs.start(engine, asked)
            assert (await engine.finish(run_id)).status is Status.WAITING
            assert (await runs.look(engine, asked)).row.id == run_id
            assert (await runs.look(engine, other)).row is None
            await answers.release(engine, run_id, "yes")
            await engine.finish(run_id)
            assert (await runs.look(engine, asked)).row is None, "it has ended"

    async def test_of_two_that_begin_at_once_one_begins(self, project):
        async with project.engine() as engine:
            runs = project.runs()
            prepared = runs.prepare({})
            first, second = await runs.look(engine, prepared), await runs.look(engine, prepared)
            run_id = await runs.start(engine, prepared, version=first.version, drive=False)
            with pytest.raises(RunBusy) as caught:
                await runs.start(engine, prepared, version=second.version)
            assert caught.value.run_id == run_id
            assert (await runs.look(engine, prepared)).row.id == run_id

    async def test_one_that_is_just_being_begun_is_waited_for(self, project):
        async with project.engine() as engine:
            runs = project.runs()
            prepared = runs.prepare({})
            mark = {"run": "slow", "at": engine.clock.now()}
            assert await engine.store.set_mark(runs._mark(prepared), mark, 0)
            looking = asyncio.create_task(runs.look(engine, prepared))
            await asyncio.sleep(0)
            await runs.start(engine, prepared, run_id="slow", drive=False)
            assert (await looking).row.id == "slow"

    async def test_one_that_was_never_begun_does_not_stand_in_the_way(self, project):
        async with project.engine() as engine:
            runs = project.runs()
            prepared = runs.prepare({})
            mark = {"run": "dead", "at": engine.clock.now() - 60}
            await engine.store.set_mark(runs._mark(prepared), mark, 0)
            there = await runs.look(engine, prepared)
            assert (there.row, there.announced) == (None, "dead")
            run_id = await runs.start(engine, prepared, run_id=there.announced, version=there.version)
            assert (await engine.finish(run_id)).status is Status.SUCCEEDED
            with pytest.raises(RunExists):  # it was only slow: there is one run all the same
                await runs.start(engine, prepared, run_id="dead")

    async def test_one_that_ended_and_was_not_shown_is_known_until_it_was(self, project):
        async with project.engine() as engine:
            runs = project.runs()
            prepared = runs.prepare({})
            there = await runs.look(engine, prepared)
            run = await engine.finish(await runs.start(engine, prepared, version=there.version))
            assert (await runs.look(engine, prepared)).unseen.id == run.id
            before = engine.clock.now()
            await set_shown(engine, run, True)
            assert (await runs.look(engine, prepared)).unseen is None
            at_once = await runs.look(engine, prepared, asked_at=before)
            assert at_once.unseen.id == run.id, "shown after this command was given"
            assert (await runs.look(engine, prepared, asked_at=engine.clock.now() + 1)).unseen is None

    async def test_a_mark_of_an_earlier_version_is_one_of_a_run_that_was_shown(self, project):
        async with project.engine() as engine:
            runs = project.runs()
            prepared = runs.prepare({})
            await engine.finish(await runs.start(engine, prepared, run_id="old"))
            await engine.store.set_mark(runs._mark(prepared), {"run": "old", "at": engine.clock.now()}, 0)
            there = await runs.look(engine, prepared, asked_at=0.0)
            assert (there.row, there.unseen, there.announced) == (None, None, None)

    async def test_a_changed_file_is_told_with_what_changed(self, project):
        """D-73"""
        async with project.engine() as engine:
            runs = project.runs()
            run_id = await runs.start(engine, runs.prepare({"who": "asked"}))
            await engine.finish(run_id)
        changed = FILE.replace("text: chosen", "text: picked").replace("  - {name: last", "  - {name: end")
        project.file.write_text(changed)
        project.open()
        async with project.engine() as engine:
            runs = project.runs()
            row = (await runs.look(engine, runs.prepare({"who": "asked"}))).row
            with pytest.raises(DefinitionChanged) as caught:
                await runs.unchanged(engine, row)
        assert caught.value.difference == [
            "steps last: removed",
            "steps end: added",
            "steps pick options [0] step kwargs text: chosen → picked",
        ]

    async def test_a_checkpoint_of_the_latest_run_of_the_same_inputs_is_forked(self, project):
        async with project.engine() as engine:
            runs = project.runs()
            prepared = runs.prepare({})
            for name in ("r1", "r2"):
                await engine.finish(await runs.start(engine, prepared, run_id=name))
            await engine.finish(await runs.start(engine, runs.prepare({"who": "x"}), run_id="r3"))
            forked = await runs.fork_from(engine, "spot", prepared, new_id="r4")
            assert (forked.id, forked.of, forked.undone) == ("r4", "r2", ())
            assert (await engine.get("r4")).state == "sure"
            assert (await runs.look(engine, prepared)).row.id == "r4", "it is gone on with like any other"
            assert (await engine.finish("r4")).status is Status.SUCCEEDED
        assert project.log().count("one you") == 2

    def test_a_listener_hears_how_the_check_of_the_file_ended(self, project):
        """D-72: validation comes before the prerequisites."""
        told: list[events.Event] = []
        project.workflows.choose("shop", listener=told.append)
        assert [type(event) for event in told] == [events.ValidationStarted, events.ValidationCompleted]
        assert (told[0].workflow_name, told[1].warnings_count) == ("shop", 0)
        project.file.write_text(FILE.replace("action: put", "action: putt"))
        told.clear()
        with pytest.raises(DocumentError):
            project.workflows.choose("shop", listener=told.append)
        assert [type(event) for event in told] == [events.ValidationStarted, events.ValidationFailed]
        assert {problem.code for problem in told[1].errors} == {"E001"}

    async def test_the_prerequisites_are_told_as_they_are_checked(self, project):
        """D-72"""
        text = FILE.replace("{name: one,", "{name: one, requires: ['path:nowhere', 'path:detent.yaml'],")
        project.file.write_text(text)
        told: list[events.Event] = []
        with pytest.raises(PrerequisitesMissing) as caught:
            await project.runs(told.append).preflight()
        assert caught.value.exit_code == 3
        assert [type(event).__name__ for event in told] == [
            "PreflightStarted", *sorted(type(event).__name__ for event in told[1:-1]), "PreflightCompleted",
        ]  # fmt: skip
        assert (told[-1].passed_count, told[-1].failed_count) in {(1, 1), (0, 2)}

    def test_on_resume_only_the_steps_still_to_run_are_looked_at(self, project):
        runs = project.runs()
        assert runs.still_to_run("ready") == ["one", "spot", "sure", "pick", "last"]
        assert runs.still_to_run("pick") == ["pick", "last"]
        assert runs.still_to_run("rolling_back") == []


async def test_the_path_taken_says_how_each_step_went(project):
    async with project.engine() as engine:
        runs = project.runs()
        run_id = await runs.start(engine, runs.prepare({"fail": True}))
        await engine.finish(run_id)
        assert await path_taken(engine.store, runs.spec, run_id) == {
            "one": "ok", "spot": "ok", "sure": "skipped", "pick": "ok", "pick/chosen": "ok", "last": "failed",
        }  # fmt: skip
        asked = await runs.start(engine, runs.prepare({"who": "asked"}))
        await engine.finish(asked)
        assert (await path_taken(engine.store, runs.spec, asked))["sure"] == "running"
