"""What settings call the steps of workflows, wherever these stand; and commands that list and count them."""

from __future__ import annotations

import json

import pytest

from detent.authoring.problem import DocumentError
from detent.cli.main import run as detent
from detent.dispatch.autonomy import StepMode
from detent.dispatch.dispatcher import Dispatcher, DispatchSettings
from detent.kernel.status import Status
from tests.examples import covering
from tests.flows.workflow.dispatch.project import Project

BELOW = """
name: below
steps:
  - {name: deep, type: python, action: echo, kwargs: {value: deep}}
  - {name: deeper, type: loop, for_each: "[1]", steps: [
      {name: deepest, type: python, action: echo, kwargs: {value: deepest}}]}
"""
NAMES = """
name: names
steps:
  - {name: top, type: python, action: echo, kwargs: {value: top}}
  - name: each
    type: loop
    for_each: "[1, 2]"
    steps:
      - {name: inner, type: python, action: echo, kwargs: {value: inner}}
      - name: turn
        type: branch
        options: [{step: {name: turned, type: python, action: echo, kwargs: {value: turned}}}]
  - name: pick
    type: branch
    options:
      - {when: "false", step: {name: never, type: python, action: echo, kwargs: {value: never}}}
      - step:
          name: nest
          type: branch
          options: [{step: {name: opt, type: python, action: echo, kwargs: {value: opt}}}]
  - {name: check, type: validate, stages: [flaky], retry: 1,
     on_failure: {name: fix, type: python, action: echo, kwargs: {value: fix}}}
  - {name: both, type: loop, steps: [
      {name: left, type: python, action: echo, kwargs: {value: left}},
      {name: right, type: python, action: echo, kwargs: {value: right}}]}
  - {name: child, type: subworkflow, workflow: below}
"""
PATHS = {
    "top": ["top"],
    "inner": ["each/[0]/inner", "each/[1]/inner"],
    "turned": ["each/[0]/turn/turned", "each/[1]/turn/turned"],
    "opt": ["pick/nest/opt"],
    "fix": ["check/[0]/fix"],
    "left": ["both/[0]/left"],
    "right": ["both/[1]/right"],
    "deep": ["child/deep"],
    "deepest": ["child/deeper/[0]/deepest"],
}
"""Step paths at which each step is performed."""


def qualified(step: str) -> str:
    return f"workflow/{'below' if step.startswith('deep') else 'names'}/{step}"


def replies(step):
    return {step: [{"output": {"value": step}, "repeat": True}], "*": [{"error": "crash", "repeat": True}]}


@pytest.fixture
def names(project: Project) -> Project:
    project.workflow(BELOW)
    project.workflow(NAMES)
    return project


def flaky(project: Project, **said) -> None:
    """Settings in which the stage fails once in each run."""
    mark = project.folder / "failed-once"
    mark.unlink(missing_ok=True)
    command = ["sh", "-c", "test -f failed-once || { touch failed-once; exit 1; }"]
    project.settings(validation={"stages": {"flaky": {"command": command}}}, **said)


@pytest.mark.parametrize(("step", "form"), covering(PATHS, ["bare", "qualified"], together=1))
async def test_one_entry_in_the_settings_switches_one_step_wherever_it_stands(names, step, form):
    """1.3, D-05, SC-002: in loops, branches, behind on_failure, in subworkflows."""
    key = step if form == "bare" else qualified(step)
    flaky(names, steps={key: {"mode": "agent"}})
    ran = await names.run("names", script=replies(step))
    assert ran.run.status is Status.SUCCEEDED, ran.result.error
    assert ran.asked == [step] * len(PATHS[step])
    told = [one["step_path"] for one in ran.heard.named("dispatch.agent_completed")]
    assert sorted(told) == PATHS[step]
    for one in ran.heard.named("dispatch.agent_completed"):
        assert one["accepted"] is True
    chosen = [one for one in ran.heard.named("dispatch.mode_selected") if one["step_name"] == step]
    assert {one["source"] for one in chosen} == {f"steps.{key}"}


@pytest.mark.parametrize("step", PATHS)
async def test_a_qualified_entry_beats_a_bare_one_field_by_field(names, step):
    """1.3.5."""
    flaky(
        names,
        steps={
            step: {"mode": "agent", "autonomy": "approver", "temperature": 0.5},
            qualified(step): {"autonomy": "consultant"},
        },
    )
    ran = await names.run("names", script=replies(step))
    gate = ran.heard.named("dispatch.autonomy_validation")
    assert {one["check"] for one in gate} == {"contract"}
    assert {call.config.temperature for call in ran.executor.calls} == {0.5}


@pytest.mark.parametrize("step", ["top", "inner", "turned", "opt", "fix", "left", "deep", "deepest"])
async def test_what_a_run_says_about_its_steps_reaches_them_wherever_they_stand(names, step):
    """A run's own configuration, stronger than the settings, in both forms."""
    flaky(names, steps={step: {"mode": "deterministic"}})
    for key in (step, qualified(step)):
        (names.folder / "failed-once").unlink(missing_ok=True)
        ran = await names.run("names", script=replies(step), config={"steps": {key: {"mode": "agent"}}})
        assert ran.asked == [step] * len(PATHS[step])


async def test_a_bare_name_applies_to_every_step_so_named(names):
    """1.3.5: in two files."""
    names.workflow(BELOW.replace("{name: deep,", "{name: top,"))
    flaky(names, steps={"top": {"mode": "agent"}})
    ran = await names.run("names", script=replies("top"))
    assert ran.asked == ["top", "top"]


@pytest.mark.parametrize("key", ["workflow/names/inmer", "workflow/below/depp"])
async def test_a_qualified_name_that_names_nothing_is_refused_with_the_nearest(names, key):
    """D-54, E025: in the file itself, and in one it runs."""
    flaky(names, steps={key: {"mode": "agent"}})
    with pytest.raises(DocumentError, match=r"E025(?s:.*)" + ("inner" if "names" in key else "deep")):
        await names.run("names" if "names" in key else "below")


# -- commands -----------------------------------------------------------------------------------------------


@pytest.fixture
def call(names, monkeypatch, capsys):
    """The program, in the project's folder."""
    monkeypatch.chdir(names.folder)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*args):
        code = detent(list(args))
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    return run


class TestSteps:
    def test_steps_list_has_every_step_of_every_workflow_with_intent_mode_and_autonomy(self, names, call):
        """1.1: those inside loops, branches, on_failure and subworkflows too."""
        flaky(names, steps={"inner": {"mode": "agent"}, "workflow/below/deepest": {"mode": "agent"}})
        rows = {row["step"]: row for row in json.loads(call("steps", "list", "--json"))}
        for step in [*PATHS, "never"]:
            row = rows[qualified(step)]
            assert row["intent"] == "Give back what was given to it, just as it is."
            agent = step in ("inner", "deepest")
            assert (row["mode"], row["autonomy"]) == (
                ("agent", "collaborator") if agent else ("deterministic", "operator")
            )
        assert "workflow/commit-and-push/push" in rows
        assert not [name for name in rows if name.endswith(("/ready", "/rolling_back", "/undo", "/each"))]

    @pytest.mark.parametrize("said", ["names", ".detent/workflows/names.yaml"])
    def test_the_list_can_be_of_one_workflow(self, names, call, said):
        """By name or file; what it runs comes with it."""
        flaky(names)
        rows = json.loads(call("steps", "list", "--flow", said, "--json"))
        assert {row["step"] for row in rows} == {qualified(step) for step in [*PATHS, "never"]}

    @pytest.mark.parametrize("said", ["deepest", "workflow/below/deepest"])
    def test_steps_show_tells_which_line_says_so(self, names, call, said):
        """D-53: by either name."""
        flaky(names, steps={"workflow/below/deepest": {"mode": "agent"}})
        out = call("steps", "show", said)
        assert out.startswith("workflow/below/deepest\n")
        assert "steps.workflow/below/deepest (detent.yaml:" in out
        assert "steps: {workflow/below/deepest: {mode: deterministic}}" in out

    def test_steps_of_an_agent_and_a_generator_say_that_no_mode_changes_them(self, names, call):
        """1.7."""
        names.settings(models={"scripted": {"kind": "scripted", "file": "s.yaml"}})
        out = call("steps", "show", "workflow/summarize-changes/summary")
        assert "by nature" in out
        rows = json.loads(call("steps", "list", "--json"))
        (row,) = [row for row in rows if row["step"] == "workflow/summarize-changes/summary"]
        assert (row["mode"], row["autonomy"], row["provider"]) == ("agent", None, "scripted")

    def test_a_broken_workflow_is_pointed_out_and_the_others_are_listed(self, names, monkeypatch, capsys):
        """Nothing is passed over in silence."""
        monkeypatch.chdir(names.folder)
        flaky(names)
        names.workflow("name: broken\nsteps:\n  - {name: x, type: python, action: ecco}\n")
        assert detent(["steps", "list"]) == 0
        said = capsys.readouterr()
        assert "E001" in said.err
        assert "workflow/names/top" in said.out

    def test_a_step_that_waits_says_what_for_and_that_no_agent_can(self, names, call):
        """2.9: listed with its intent, which nobody is told."""
        names.workflow(
            "name: pause\nsteps:\n  - {name: nap, type: python, action: sleep, kwargs: {seconds: 0}}\n"
        )
        flaky(names, steps={"nap": {"mode": "agent"}})
        rows = {row["step"]: row for row in json.loads(call("steps", "list", "--json"))}
        assert rows["workflow/pause/nap"]["intent"] == "Wait for the given time before going on."

    def test_every_step_that_ships_can_be_told_to_an_agent(self, names):
        """D-75: whatever its handler says it returns, there is a contract and there are instructions."""
        workflows = names.open()
        dispatcher = Dispatcher(DispatchSettings())
        told = 0
        for name in ("commit-and-push", "data-import", "summarize-changes", "validate-and-fix"):
            for flow in workflows.flows_of(workflows.choose(name).spec):
                for step in flow.every_step():
                    if step.metadata.get("type") == "python":
                        plan = dispatcher.plan_for(flow, step)
                        assert plan.contract.output is not None
                        assert step.intent in plan.instructions
                        told += 1
        assert told == 13


class TestAgreement:
    def test_stats_agreement_counts_steps_inside_loops_and_subworkflows(self, names, call):
        """D-49: of the workflow that was named, whichever runs they were performed in."""
        script = {
            "top": [{"output": {"value": "top"}, "repeat": True}],
            "inner": [{"output": {"value": "inner"}}, {"output": {"value": "other"}}],
            "turned": [{"error": "crash", "repeat": True}],
            "fix": [{"output": {"value": "fix"}, "repeat": True}],
            "deepest": [{"output": {"value": "deepest"}, "repeat": True}],
        }
        (names.folder / "script.yaml").write_text(json.dumps(script))
        flaky(
            names,
            models={"scripted": {"kind": "scripted", "file": "script.yaml"}},
            steps={step: {"mode": "agent"} for step in script},
        )
        call("workflow", "run", "names", "-q")
        found = json.loads(call("stats", "agreement", "--workflow", "names", "--format", "json"))
        rows = {row["step"]: row for row in found["steps"]}
        unusable = {name: sum(row["unusable"].values()) for name, row in rows.items()}
        assert {name: (row["n"], row["agreed"], unusable[name]) for name, row in rows.items()} == {
            "workflow/names/top": (1, 1, 0),
            "workflow/names/inner": (2, 1, 0),
            "workflow/names/turned": (0, 0, 2),
            "workflow/names/fix": (1, 1, 0),
        }
        found = json.loads(call("stats", "agreement", "--workflow", "below", "--format", "json"))
        assert [row["step"] for row in found["steps"]] == ["workflow/below/deepest"]
        found = json.loads(call("stats", "agreement", "inner", "--format", "json"))
        assert [row["step"] for row in found["steps"]] == ["workflow/names/inner"]

    def test_a_shadowed_step_inside_a_loop_is_counted_and_changes_nothing(self, names, call):
        """D-50: `--shadow` names steps wherever they stand."""
        (names.folder / "script.yaml").write_text(
            json.dumps({"*": [{"output": {"value": "x"}, "repeat": True}]})
        )
        flaky(names, models={"scripted": {"kind": "scripted", "file": "script.yaml"}})
        plain = json.loads(call("workflow", "run", "names", "--json"))
        (names.folder / "failed-once").unlink()
        ran = json.loads(call("workflow", "run", "names", "--json", "--shadow", "inner,fix,opt"))
        outputs = [{one["path"]: one["output"] for one in result["step_results"]} for result in (plain, ran)]
        for output in outputs:
            for key in [key for key in output if key.startswith(("check", "mark"))]:
                del output[key]
        assert outputs[0] == outputs[1]
        found = json.loads(call("stats", "agreement", "--workflow", "names", "--format", "json"))
        assert {row["step"]: row["n"] for row in found["steps"]} == {
            "workflow/names/inner": 2, "workflow/names/fix": 1, "workflow/names/opt": 1,
        }  # fmt: skip


async def test_the_evidence_about_a_step_is_about_its_own_code(names):
    """1.17: the handler's fingerprint is the action's or the generator's, not that of what calls it."""
    names.plugin(
        "from detent.workflow import generator\n"
        '@generator("a", intent="Write the first of the two texts.")\ndef a() -> str:\n    return "a"\n'
        '@generator("b", intent="Write the second of the two texts.")\ndef b() -> str:\n    return "bb"\n',
        "writers",
    )
    names.workflow(
        "name: two\nsteps:\n  - {name: one, type: generate, generator: a}\n"
        "  - {name: two, type: generate, generator: b}\n"
        "  - {name: three, type: python, action: echo}\n"
    )
    names.settings(steps={"three": {"mode": "agent"}})
    ran = await names.run("two", script={"*": [{"error": "crash", "repeat": True}]})
    prints = [ran.moves[step].detail["series"]["handler"] for step in ("one", "two", "three")]
    assert len(set(prints)) == 3
    assert ran.dispatch("three").mode_used is StepMode.DETERMINISTIC
