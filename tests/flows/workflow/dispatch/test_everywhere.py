"""One dispatcher for every flow, one switch for every run of a family, and every effect once."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import pytest

from detent.adapters.mail.message import read_message
from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.domain.coverage import device_of
from detent.apps.warranty.mailbox import warranty_settings
from detent.apps.warranty.processor import EmailProcessor, StepOrchestrator
from detent.apps.warranty.router import StepRouter
from detent.apps.warranty.wiring import Components
from detent.authoring.problem import DocumentError
from detent.cli.main import run as detent
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.executor import Availability, ExecutorResult
from detent.engine.context import StepContext
from detent.engine.engine import Engine
from detent.engine.family import family_of
from detent.engine.flow import Flow
from detent.engine.tools import NOT_DONE, Tool
from detent.flows.workflow.compile_context import Ports
from detent.flows.workflow.flow import Compiled
from detent.flows.workflow.inputs import InputsError
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.registry import Action, Registry
from detent.kernel.entries import Started
from detent.kernel.errors import StoreUnavailable
from detent.kernel.status import Status
from detent.runtime.dispatch_settings import dispatch_settings
from detent.testing.crash import CrashPoint, CrashPoints
from tests.dispatch.samples import UNAUDITED, capture
from tests.examples import ALL
from tests.flows.workflow.dispatch.project import Project

ROOT = Path(__file__).parents[4]

# -- every flow ---------------------------------------------------------------------------------------------

PLAIN = '''
from detent import Flow, Machine, Status

CALLS = []
plain = Flow(Machine("plain", start="sort", moves={"sort": ["done"]}, ends={"done": Status.SUCCEEDED}))


@plain.step("sort")
async def sort(ctx) -> dict[str, list[int]]:
    """Put the numbers that were given into their order."""
    return {"numbers": sorted(ctx.data["numbers"])}
'''
LETTER = (
    b"From: Maren <maren@holt-bakery.example>\r\nSubject: Label printer\r\nMessage-ID: <a1@holt.example>\r\n"
    b"\r\nHello, is printer SN48213 still covered? It feeds two labels at once.\r\n"
)
SWITCHED = {
    "plain/sort": "plain",
    "01-find-loan": "playbook",
    "02-check-warranty": "warranty",
    "workflow/one/work": "workflow",
}


@pytest.mark.parametrize("agents", [True, False])
async def test_settings_switch_one_step_of_each_flow_to_an_agent(project: Project, agents: bool) -> None:
    """D-12: plain, playbook, warranty and workflow, through one component; every run ends as without it."""
    project.plugin(PLAIN, "plain")
    shutil.copytree(ROOT / "examples" / "playbook", project.folder / "loans")
    project.workflow(
        "name: one\nsteps:\n  - {name: work, type: python, action: greet, kwargs: {name: Ada}}\n"
    )
    first = sorted(one.stem for one in (project.folder / "loans" / "steps").glob("*.md"))[0]
    keys = [first if key == "01-find-loan" else key for key in SWITCHED]
    project.settings(
        **({"steps": {key: {"mode": "agent", "max_retries": 0} for key in keys}} if agents else {})
    )
    workflows = project.open()
    catalog = project.catalog
    components = Components.of(
        warranty_settings(workflows.settings), now=lambda: datetime(2026, 3, 10, tzinfo=UTC)
    )
    device = {"serial": "SN48213", "device_name": "Kestrel K200", "manufacturer_end": "2027-05-31"}
    await components.registry.add([device_of(device)])  # type: ignore[attr-defined]
    playbook = catalog.pick("loans/").flow
    flows: list[Flow] = [
        catalog.get("plain").flow, playbook, components.flow,
        *workflows.flows_of(workflows.choose("one").spec),
    ]  # fmt: skip
    executor = ScriptedStepExecutor({"*": [{"error": "crash", "repeat": True}]})
    read = dispatch_settings(workflows.settings, flows, complete=False, environ={})
    dispatch = replace(read, executors=ScriptedSource(executor))
    with capture() as heard:
        async with Engine(MemoryStore(), flows, dispatch=dispatch) as engine:
            sorted_run = await engine.run("plain", {"numbers": [3, 1, 2]})
            given = json.loads((project.folder / "loans" / "input.json").read_text())
            book = await engine.run(playbook.name, given)
            router = StepRouter(components.handlers, components.settings.orchestration.router)
            mail = read_message(LETTER, received=datetime(2026, 3, 10, tzinfo=UTC))
            answered = await EmailProcessor(StepOrchestrator(components, engine, router)).process_email(mail)
            flow = await engine.run("one", {"inputs": {}})
    assert sorted_run.data["numbers"] == [1, 2, 3]
    assert book.status is Status.SUCCEEDED
    assert answered.success
    assert flow.data["steps/work"]["output"]["text"] == "Good day, Ada."
    told = heard.named("dispatch.fallback")
    if agents:
        assert [one["step_name"] for one in told] == ["sort", first, "02-check-warranty", "work"]
        assert {one["reason"] for one in told} == {"exception"}
        assert [call.step_name for call in executor.calls] == [one["step_name"] for one in told]
    else:
        assert (told, executor.calls) == ([], [])


# -- one switch for the whole family ------------------------------------------------------------------------

BELOW = """
name: below
steps:
  - {name: deep, type: python, action: charge, kwargs: {what: deep}}
"""
MIXED = """
name: mixed
inputs: {n: {type: integer, default: 2}INPUT}
steps:
  - {name: top, type: python, action: greet, kwargs: {name: Ada}}
  - {name: each, type: loop, for_each: "['a', 'b']", parallel: true, steps: [
      {name: inner, type: python, action: charge, kwargs: {what: "${{ item }}"}}]}
  - {name: pick, type: branch, options: [
      {step: {name: opt, type: python, action: lodge, kwargs: {guest: Ada}}}]}
  - {name: check, type: validate, stages: [flaky], retry: 1,
     on_failure: {name: fix, type: python, action: charge, kwargs: {what: fix}}}
  - {name: child, type: subworkflow, workflow: below}
  - {name: words, type: generate, generator: change_summary, context: {commits: [], files: []}}
"""
PERFORMED = {"top", "inner", "opt", "fix", "deep", "words"}
FORMS = {
    "the command line": {"deterministic": True},
    "the environment": {"environ": "TrUe"},
    "an input": {"inputs": {"force_deterministic": True}, "declared": True},
    "an input, as text": {"inputs": {"force_deterministic": "YES"}, "declared": True},
    "an input the file does not declare": {"inputs": {"force_deterministic": "1"}},
    "the call": {"forced": True},
}


def mixed(project: Project, declared: bool = False, more: str = "") -> None:
    project.workflow(BELOW)
    said = ", force_deterministic: {type: boolean, default: false}" if declared else ""
    project.workflow(MIXED.replace("INPUT", said) + more)
    (project.folder / "failed-once").unlink(missing_ok=True)
    command = ["sh", "-c", "test -f failed-once || { touch failed-once; exit 1; }"]
    project.settings(
        validation={"stages": {"flaky": {"command": command}}},
        steps={name: {"mode": "agent", "autonomy": "approver"} for name in PERFORMED - {"words"}},
    )


@pytest.mark.parametrize("form", FORMS)
async def test_agents_are_switched_off_for_every_step_of_a_mixed_run_and_its_children(project, form):
    """D-60, 1.14: in any of the four forms; `forced` is true in children and in the journals' first lines."""
    said = dict(FORMS[form])
    mixed(project, said.pop("declared", False))
    if "environ" in said:
        project.environ = {"DETENT_FORCE_DETERMINISTIC": said.pop("environ")}
    ran = await project.run("mixed", said.pop("inputs", {}), script={"*": [{"error": "crash"}]}, **said)
    assert ran.run.status is Status.SUCCEEDED, ran.result.error
    assert (ran.asked, ran.source.made) == ([], 0)
    chosen = [one for one in ran.heard.named("dispatch.mode_selected") if one["step_name"] in PERFORMED]
    assert {one["step_name"] for one in chosen} == PERFORMED
    assert {(one["forced"], one["mode"]) for one in chosen} == {(True, "deterministic")}
    results = {one.path: one.dispatch for one in ran.result.step_results if one.name in PERFORMED}
    for path, dispatch in results.items():
        assert dispatch["forced"] is True, path
        assert "fallback_used" not in dispatch
    assert ran.heard.named("dispatch.fallback") == []
    async for past in family_of(ran.engine.store, ran.engine.flow, ran.run.id):
        (entry,) = await ran.engine.store.entries(past.run.id, 0, 1)
        assert isinstance(entry.body, Started)
        assert entry.body.config["force_deterministic"] is True
    assert sorted(project.acts.POSTED) == ["a", "b", "deep", "fix"]


@pytest.mark.parametrize("said", ["false", "0", "No", False, None])
async def test_a_switch_that_says_no_switches_nothing(project, said):
    """1.14."""
    mixed(project)
    ran = await project.run(
        "mixed", {"force_deterministic": said}, script={"*": [{"error": "crash", "repeat": True}]}
    )
    assert set(ran.asked) == PERFORMED
    assert not any(one["forced"] for one in ran.heard.named("dispatch.mode_selected"))


async def test_a_switch_that_says_neither_is_refused(project):
    """1.14, D-64."""
    mixed(project)
    with pytest.raises(InputsError, match="force_deterministic.*true, 1 or yes"):
        await project.run("mixed", {"force_deterministic": "perhaps"})


async def test_a_subworkflow_alone_can_be_switched_off_by_its_input(project):
    """1.14: the input of a child is the child's."""
    project.workflow(
        "name: below\ninputs: {force_deterministic: {type: boolean, default: false}}\n" + BELOW[13:]
    )
    project.workflow(
        "name: above\nsteps:\n  - {name: top, type: python, action: echo}\n"
        "  - {name: child, type: subworkflow, workflow: below, inputs: {force_deterministic: true}}\n"
    )
    project.settings(steps={name: {"mode": "agent", "max_retries": 0} for name in ("top", "deep")})
    ran = await project.run("above", script={"*": [{"error": "crash", "repeat": True}]})
    assert ran.run.status is Status.SUCCEEDED
    assert ran.asked == ["top"]
    assert ran.heard.one("dispatch.mode_selected", "deep")["forced"] is True


@pytest.mark.parametrize("form", FORMS)
def test_a_step_that_only_agents_can_do_is_refused_before_anything_runs(project, form, monkeypatch, capsys):
    """E022: also below a loop; through the program, in any of the forms."""
    project.plugin(
        "from detent.workflow import agent\n"
        '@agent("poet", instructions="You write verse.")\ndef poet(context):\n    return "Write."\n',
        "poets",
    )
    said = dict(FORMS[form])
    more = (
        '  - {name: again, type: loop, for_each: "[1]", steps: [{name: verse, type: agent, agent: poet}]}\n'
    )
    mixed(project, said.pop("declared", False), more)
    monkeypatch.chdir(project.folder)
    if "environ" in said:
        monkeypatch.setenv("DETENT_FORCE_DETERMINISTIC", said["environ"])
    words = ["--deterministic"] if said.get("deterministic") or said.get("forced") else []
    for key, value in said.get("inputs", {}).items():
        words += ["-i", f"{key}={value}"]
    assert detent(["workflow", "run", "mixed", *words]) == 2
    assert "E022" in capsys.readouterr().err
    assert not (project.folder / "failed-once").exists()
    with pytest.raises(DocumentError, match="E022"):
        project.open().choose("mixed", forced=True)


async def test_the_switch_is_kept_when_the_run_is_taken_up_again(project):
    """1.14: by an engine that knows nothing of it, children included."""
    mixed(project)
    workflows = project.open()
    spec = workflows.choose("mixed").spec
    executor = ScriptedStepExecutor({"*": [{"error": "crash", "repeat": True}]})
    store = MemoryStore()
    dispatch = project.dispatch(workflows, spec, ScriptedSource(executor))
    first = Engine(store, workflows.flows_of(spec), dispatch=dispatch)
    await first.open()
    await first.start("mixed", {"inputs": {"n": 1}}, run_id="r", force_deterministic=True, drive=False)
    await first.stop(grace=0)
    async with Engine(store, workflows.flows_of(spec), dispatch=dispatch) as second:
        await second.resume("r")
        run = await second.finish("r")
    assert run.status is Status.SUCCEEDED
    assert executor.calls == []


# -- every effect once --------------------------------------------------------------------------------------


class Parrot:
    """An executor that asks for what the handler would, from the inputs in its prompt; or for something else.

    Prompted, it answers each prompt with calls or facts; otherwise it acts in the middle of its own work. It
    never knows the number that the ledger gave.
    """

    def __init__(self, lies: bool = False, prompted: bool = True) -> None:
        self.lies = lies
        self.prompted = prompted
        self.asked = 0

    async def execute(self, *, prompt: Any, toolbox: Any = None, **_: Any) -> ExecutorResult:
        self.asked += 1
        inputs = json.JSONDecoder().raw_decode(str(prompt).partition("INPUTS\n")[2])[0]
        what = inputs["what"] + ("?" if self.lies else "")
        if self.prompted and "\n\nRESULTS\n" not in str(prompt):
            return ExecutorResult({"calls": [{"tool": "ledger.post", "args": {"what": what}}]})
        if not self.prompted:
            await toolbox.call("ledger.post", {"what": what})
        return ExecutorResult({"what": what, "number": 99})

    def available(self) -> Availability:
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        return True


class Ledger:
    """What was posted, in an outside that outlives engines."""

    def __init__(self) -> None:
        self.posted: list[str] = []

    def tool(self) -> Tool:
        def post(what: str) -> dict[str, Any]:
            self.posted.append(what)
            return {"number": 1}

        def probe(what: str) -> Any:
            return {"number": 1} if what in self.posted else NOT_DONE

        return Tool("ledger.post", post, probe=probe)


class Charged(TypedDict):
    what: str
    number: int


async def charge(ctx: StepContext, what: str) -> dict[str, Any]:
    return {"what": what, "number": ctx.propose("ledger.post", what=what).number}


async def never(*_: Any) -> Any:
    raise AssertionError("not used here")


FAMILY = """
version: "1.0"
name: family
steps:
  - {name: top, type: python, action: charge, kwargs: {what: top}}
  - {name: each, type: loop, for_each: "['a', 'b']", steps: [
      {name: inner, type: python, action: charge, kwargs: {what: "${{ item }}"}}]}
  - {name: pick, type: branch, options: [
      {step: {name: opt, type: python, action: charge, kwargs: {what: opt}}}]}
  - {name: child, type: subworkflow, workflow: below}
"""
POSTS = ["top", "a", "b", "opt", "deep"]


def family(points: CrashPoints, ledger: Ledger) -> list[Flow]:
    texts = {"family": FAMILY, "below": 'version: "1.0"' + BELOW}
    specs = {name: read_workflow(text.encode(), f"{name}.yaml").spec for name, text in texts.items()}
    registry = Registry(
        Action(
            "charge", handler=charge, intent="Put what is owed into the ledger.", effects=("ledger.post",),
            output_schema=Charged,
        )
    )  # fmt: skip
    tools = [points.tool(ledger.tool())]
    made = Compiled(registry, tools, Ports(Path("."), never, never), lambda name, of: specs[name], {})  # type: ignore[arg-type,return-value]
    assert specs["family"] is not None
    return made.flows(specs["family"])


def settings(level: str, lies: bool, prompted: bool = True) -> DispatchSettings:
    config = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel(level), max_retries=0)
    names: Mapping[str, StepConfig] = dict.fromkeys(("top", "inner", "opt", "deep"), config)
    return DispatchSettings(
        steps=names, executors=ScriptedSource({"parrot": Parrot(lies, prompted)}), evidence=UNAUDITED
    )


@pytest.mark.parametrize(
    ("level", "lies", "prompted"),
    [
        ("operator", False, True),
        ("collaborator", False, True),
        ("collaborator", True, True),
        ("consultant", False, False),
        ("approver", False, True),
    ],
)
@pytest.mark.parametrize("what", ["commit", "effect"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_run_that_dies_at_any_point_performs_each_effect_once(level, lies, prompted, what, when):
    """D-59, SC-003: at every level, in loops, branches and subworkflows, at every commit and every effect.

    Without `make test-all` at one commit in five.
    """
    stride = 1 if ALL or what == "effect" else 5
    number = 1 - stride
    while True:
        number += stride
        ledger, inner, dead = Ledger(), MemoryStore(), asyncio.Event()

        def die(point: CrashPoint, dead: asyncio.Event = dead) -> None:
            dead.set()
            raise StoreUnavailable("the machine is gone")

        points = CrashPoints([CrashPoint(number, when, what)], strike=die)  # type: ignore[arg-type]
        engine = Engine(
            Grave(points.store(inner), dead), family(points, ledger), dispatch=settings(level, lies, prompted)
        )
        await engine.open()
        await _over(engine, dead)
        survived = not dead.is_set()
        dead.set()
        await engine.stop(grace=0)
        async with Engine(
            inner, family(CrashPoints(), ledger), dispatch=settings(level, lies, prompted)
        ) as second:
            if not await inner.find("r", 1):
                assert number == 1
                continue
            if not (await inner.row("r")).now.status.is_end:
                await second.resume("r")
            run = await second.finish("r")
        assert run.status is Status.SUCCEEDED, (number, run.reason, run.error)
        assert sorted(ledger.posted) == sorted(POSTS), number
        assert run.data["steps/top"]["output"] == {"what": "top", "number": 1}
        if survived:
            break
    assert number > (len(POSTS) if what == "effect" else 3 * len(POSTS))


async def _over(engine: Engine, dead: asyncio.Event) -> None:
    """Until the run has ended, or the machine is gone."""
    try:
        await engine.start("family", {"inputs": {}}, run_id="r")
    except StoreUnavailable:
        return
    gone = asyncio.ensure_future(dead.wait())
    done = asyncio.ensure_future(engine.finish("r"))
    await asyncio.wait([gone, done], return_when=asyncio.FIRST_COMPLETED)
    for one in (gone, done):
        one.cancel()
    await asyncio.gather(gone, done, return_exceptions=True)


class Grave:
    """A store that takes nothing any more once its machine is gone."""

    def __init__(self, inner: Any, dead: asyncio.Event) -> None:
        self._inner, self._dead = inner, dead

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in ("append", "create", "set_mark"):
            return method

        async def write(*args: Any) -> Any:
            if self._dead.is_set():
                raise StoreUnavailable("the machine is gone")
            return await method(*args)

        return write
