"""`steps list`, `steps show`, and agents switched on and off from the command line."""

from __future__ import annotations

import json

import pytest

SETTINGS = """\
plugins: [flow.py]
models:
  big: {kind: ollama, model_id: m-1}
steps:
  welcome:
    mode: agent
    timeout: 20
  onboarding/check:
    shadow: 0.5
model: {temperature: 0.25}
"""

OTHER = """
from detent import Flow, Machine, Outcome, Status, query, tool
from detent.engine.step import Step


@query("desk.look")
async def look(name: str) -> str:
    return name


@tool("desk.write")
async def write(text: str) -> str:
    return text


async def handler(ctx) -> dict[str, int]:
    return {"n": 1}


second = Flow(
    Machine("second", start="welcome", moves={"welcome": ["over"]}, ends={"over": Status.SUCCEEDED}),
    {
        "welcome": Step(
            "welcome",
            handler,
            "Greet whoever comes in by name.",
            queries=("desk.look",),
            effects=("desk.write",),
            output_schema={"type": "object", "required": ["n"]},
            max_autonomy="consultant",
            config={"mode": "agent", "autonomy": "approver", "allowed_tools": ["desk.look"]},
        )
    },
    tools=[look, write],
)
"""


@pytest.fixture
def settings(folder):
    """A project file in the working folder."""

    def write(text: str = SETTINGS) -> None:
        (folder / "detent.yaml").write_text(text)

    write()
    return write


def test_every_step_is_listed_with_who_performs_it(detent, settings):
    lines = detent("steps", "list").lines
    assert lines[0].split() == ["STEP", "MODE", "AUTONOMY", "MODEL", "INTENT"]
    rows = {line.split()[0]: line.split(maxsplit=4)[1:] for line in lines[1:] if line.startswith("onb")}
    assert rows["onboarding/collect"] == ["deterministic", "operator", "-", "Read the form."]
    assert rows["onboarding/welcome"] == ["agent", "collaborator", "big/m-1", "Send the welcome mail."]
    assert rows["onboarding/check"] == ["deterministic", "operator", "big/m-1", "Look at the amount."]


def test_the_list_can_be_of_one_flow_and_json(detent, folder):
    (folder / "other.py").write_text(OTHER)
    assert {row["step"] for row in detent("steps", "list", "--flow", "other.py", "--json").json} == {
        "second/welcome"
    }
    assert detent("steps", "list", "--flow", "gone").code == 2


def test_a_step_is_shown_with_every_field_and_the_line_that_says_it(detent, settings):
    """D-53"""
    found = detent("steps", "show", "welcome")
    assert found.code == 0
    fields = {line.split()[0]: line.split(maxsplit=2)[1:] for line in found.lines if line}
    assert fields["mode"] == ["agent", "steps.welcome (detent.yaml:6:5)"]
    assert fields["timeout"] == ["20.0", "steps.welcome (detent.yaml:7:5)"]
    assert fields["temperature"] == ["0.25", "model (detent.yaml:10:9)"]
    assert fields["autonomy"] == ["collaborator", "default"]
    assert fields["next"] == ["done"]
    assert found.lines[-1] == (
        "Have its handler perform it: in detent.yaml, steps: {onboarding/welcome: {mode: deterministic}}"
    )


def test_a_step_is_shown_as_json_with_tools_contract_and_warnings(detent, folder):
    (folder / "other.py").write_text(OTHER)
    found = detent("steps", "show", "second/welcome", "--plugin", "other.py", "--json").json
    assert (found["queries"], found["effects"]) == (["desk.look"], ["desk.write"])
    assert found["next"] == ["over"]
    assert found["output"] == {"type": "object", "required": ["n"]}
    assert found["config"]["allowed_tools"] == {"value": ["desk.look"], "layer": "inline", "place": None}
    assert [warning["code"] for warning in found["warnings"]] == ["W006"]
    assert "the step's own configuration says its mode" in found["switch"]
    assert set(found["config"]) >= {"mode", "autonomy", "provider", "model_id", "shadow", "budget"}


def test_an_ambiguous_name_lists_the_qualified_ones(detent, folder):
    (folder / "other.py").write_text(OTHER)
    plugins = ("--plugin", "flow.py", "--plugin", "other.py")
    found = detent("steps", "show", "welcome", *plugins)
    assert found.code == 2
    assert "Several flows have a step 'welcome': onboarding/welcome, second/welcome." in found.err
    assert detent("steps", "show", "second/welcome", *plugins).code == 0


def test_an_unknown_step_names_the_nearest(detent, settings):
    """D-54"""
    found = detent("steps", "show", "welcom")
    assert (found.code, found.out) == (2, "")
    assert "There is no step 'welcom'. Did you mean 'welcome'?" in found.err


def test_settings_that_cannot_be_are_all_told_by_every_command_that_uses_them(detent, settings, folder):
    """D-52"""
    settings("plugins: [flow.py]\nsteps:\n  welcom: {mode: agent}\n  check: {mode: agnt, timeout: 0}\n")
    for command in (("steps", "show", "check"), ("steps", "list"), ("run", "onboarding", "-q")):
        found = detent(*command)
        assert found.code == 2
        assert "there is no step 'welcom'. Did you mean 'welcome'?" in found.err
        assert "detent.yaml:4:11: steps.check: mode is 'agnt'" in found.err
        assert "detent.yaml:4:23: steps.check: timeout is 0" in found.err
    assert not (folder / ".detent").exists()


def test_what_a_stronger_layer_drops_is_shown(detent, settings):
    settings(
        "plugins: [flow.py]\nsteps:\n  welcome: {mode: agent, autonomy: approver, prompt_suffix: Be kind.}\n"
        "  onboarding/welcome: {mode: deterministic}\n"
    )
    found = detent("steps", "show", "welcome")
    assert "Dropped, as a stronger layer says deterministic: autonomy, prompt_suffix." in found.lines
    assert found.lines[-1].startswith("Have an agent perform it: in detent.yaml, steps:")


def test_the_environment_switches_agents_off_and_says_so(detent, settings, monkeypatch):
    """D-60"""
    monkeypatch.setenv("DETENT_FORCE_DETERMINISTIC", "Yes")
    rows = detent("steps", "list", "--json").json
    assert {(row["mode"], row["forced"]) for row in rows if row["step"].startswith("onboarding/")} == {
        ("deterministic", True)
    }
    assert "DETENT_FORCE_DETERMINISTIC" in detent("steps", "show", "welcome").lines[-1]


AGENT = """\
plugins: [flow.py]
models: {script: {kind: scripted, file: answers.yaml}}
steps: {collect: {mode: agent, autonomy: approver}}
"""


@pytest.fixture
def answers(folder, settings):
    """Answers of an agent for the first step."""
    settings(AGENT)
    (folder / "answers.yaml").write_text("collect: [{output: {name: Grace}}]\n")


def data(detent, *options: str):
    return detent("run", "onboarding", "--json", *options).json["data"]


def test_settings_alone_give_a_step_to_an_agent(detent, answers, folder):
    """D-05"""
    before = (folder / "flow.py").read_bytes()
    assert data(detent)["name"] == "Grace"
    assert (folder / "flow.py").read_bytes() == before


def test_a_run_can_be_started_without_agents(detent, answers, monkeypatch):
    """D-60"""
    assert data(detent, "--deterministic")["name"] == "Ada"
    monkeypatch.setenv("DETENT_FORCE_DETERMINISTIC", "1")
    assert data(detent)["name"] == "Ada"


def test_a_run_started_without_agents_stays_so_when_it_is_resumed(detent, answers):
    """D-60"""
    run = detent("run", "onboarding", "--json", "--deterministic", "--detach").json["id"]
    assert detent("resume", run, "--json").json["data"]["name"] == "Ada"
    other = detent("run", "onboarding", "--json", "--detach").json["id"]
    assert detent("resume", other, "--json", "--deterministic").json["data"]["name"] == "Ada"


def test_a_flow_found_again_by_its_file_is_configured_as_well(detent, settings, folder):
    """A step of a flow that only a file on the command line brings."""
    settings(AGENT.replace("plugins: [flow.py]\n", ""))
    (folder / "answers.yaml").write_text("collect: [{output: {name: Grace}}]\n")
    run = detent("run", "flow.py", "--json", "--detach").json["id"]
    found = detent("resume", run, "--json")
    assert found.json["data"]["name"] == "Grace"


@pytest.mark.parametrize("key", ["01-sort-request", "requests/01-sort-request"])
def test_a_playbooks_step_in_the_settings_hinders_no_other_command(detent, folder, key):
    detent("playbook", "new", "requests")
    detent("workflow", "new", "report")
    (folder / "detent.yaml").write_text(f"steps:\n  {key}: {{mode: agent}}\n")
    listed = {row["step"]: row for row in json.loads(detent("steps", "list", "--json").out)}
    assert listed["requests/01-sort-request"]["mode"] == "agent"
    assert {"workflow/report/find", "warranty/01-extract-serial"} <= listed.keys()
    for command in (
        ["workflow", "run", "report"], ["workflow", "validate", "report"], ["check", "warranty"],
        ["run", "playbook", "requests", "--input", "requests/input.json"],
        ["steps", "show", "requests/01-sort-request"], ["steps", "show", "warranty/01-extract-serial"],
    ):  # fmt: skip
        result = detent(*command)
        assert result.code == 0, (command, result.err)


def test_a_misspelt_step_of_a_playbook_is_named(detent, folder):
    detent("playbook", "new", "requests")
    (folder / "detent.yaml").write_text("steps:\n  requests/01-sort-reqest: {mode: agent}\n")
    result = detent("steps", "list")
    assert result.code == 2
    assert "Did you mean 'requests/01-sort-request', " in result.err
