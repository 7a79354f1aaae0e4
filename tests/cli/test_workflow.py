"""`detent workflow …`: listing, showing, checking, drawing, starting; end to end through the real program."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from detent.flows.workflow import events
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.run_lines import WorkflowLines
from tests.runtime import shop_package

GREET = """\
version: "1.0"
name: greet
description: Says hello.
inputs:
  who: {type: string, default: you, description: Whom to greet.}
steps:
  - {name: say, type: python, action: log_message, kwargs: {message: "hello ${{ inputs.who }}"}}
  - name: each
    type: loop
    for_each: "['a', 'b']"
    steps:
      - {name: keep, type: python, action: write_file, rollback: restore_file,
         kwargs: {path: "out/${{ item }}.txt", text: "hello"}, requires: [git]}
"""
BROKEN = """\
version: "1.0"
name: broken
steps:
  - {name: say, type: python, action: log_mesage, kwargs: {message: hello}}
  - {name: keep, type: python, action: write_file, kwargs: {path: x, text: "${{ steps.sai.output }}"}}
"""
SHIPPED = ["commit-and-push", "data-import", "summarize-changes", "validate-and-fix"]


@pytest.fixture
def put(folder: Path):
    """Write a workflow of the project."""

    def write(text: str, name: str = "greet", under: str = ".detent/workflows") -> Path:
        file = folder / under / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


@pytest.fixture
def user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own workflows."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "xdg"))
    return folder / "xdg" / "detent" / "workflows"


@pytest.fixture
def shop(tmp_path_factory, monkeypatch):
    """A stranger's package, installed."""
    monkeypatch.syspath_prepend(str(shop_package.install(tmp_path_factory.mktemp("site"))))
    yield
    sys.modules.pop("shop_package", None)


# -- list ---------------------------------------------------------------------------------------------------


def test_the_shipped_workflows_are_listed_everywhere(detent):
    """D-78."""
    listed = detent("workflow", "list")
    assert (listed.code, listed.err) == (0, "")
    assert listed.lines[0].split() == ["WORKFLOW", "SOURCE", "FILE", "DESCRIPTION"]
    assert [line.split()[:2] for line in listed.lines[1:]] == [[name, "builtin"] for name in SHIPPED]


def test_a_projects_workflow_hides_the_users_which_hides_the_shipped_one(detent, put, user):
    """D-78: which file is hidden by which."""
    put(GREET.replace("name: greet", "name: commit-and-push"), "mine")
    put(GREET.replace("name: greet", "name: commit-and-push"), "own", str(user))
    found = [one for one in detent("workflow", "list", "--json").json if one["name"] == "commit-and-push"]
    assert [(one["source"], one["hidden_by"]) for one in found] == [
        ("project", None),
        ("user", ".detent/workflows/mine.yaml"),
        ("builtin", ".detent/workflows/mine.yaml"),
    ]
    assert found[0]["file"] == ".detent/workflows/mine.yaml"
    assert "(hidden by .detent/workflows/mine.yaml)" in detent("workflow", "list", "--source", "user").out


@pytest.mark.parametrize(("source", "names"), [("project", ["greet"]), ("user", []), ("builtin", SHIPPED)])
def test_one_source_is_listed_alone(detent, put, user, source, names):
    put(GREET)
    found = yaml.safe_load(detent("workflow", "list", "--source", source, "--format", "yaml").out)
    assert [one["name"] for one in found] == names


def test_an_empty_list_says_how_to_begin(detent, user):
    listed = detent("workflow", "list", "--source", "user")
    assert (listed.code, listed.out) == (
        0,
        "There are no workflows here. Start one: detent workflow new NAME\n",
    )


def test_a_file_that_cannot_be_read_is_listed_with_what_to_do(detent, put):
    put("version: 1.0\nname: [", "odd")
    listed = detent("workflow", "list", "--source", "project")
    assert listed.code == 0
    assert listed.lines[1].split()[0] == "odd"
    assert listed.lines[-1].endswith("See: detent workflow validate .detent/workflows/odd.yaml")
    assert detent("workflow", "list", "--source", "project", "--format", "json").json[0]["problems"]


# -- show ---------------------------------------------------------------------------------------------------


def test_a_workflow_is_shown_with_inputs_and_who_performs_each_step(detent, put):
    """D-78: type, mode, autonomy, layer, effects, rollback."""
    put(GREET)
    shown = detent("workflow", "show", "greet")
    assert (shown.code, shown.err) == (0, "")
    assert "Says hello." in shown.out
    assert ["who", "string", '"you"', "Whom", "to", "greet."] in [line.split() for line in shown.lines]
    rows = {
        line.split()[0]: line.split() for line in shown.lines if line.startswith(("say", "each", "  keep"))
    }
    assert rows["say"] == ["say", "python", "log_message", "deterministic", "operator", "default", "-", "-"]
    assert rows["each"][:4] == ["each", "loop", "-", "-"]
    assert rows["keep"][3:] == ["deterministic", "operator", "default", "files.write", "restore_file"]


def test_the_layer_that_switched_a_step_is_named_with_its_place(detent, folder, put):
    """D-53, D-78: settings switch a step without touching its file."""
    put(GREET)
    (folder / "detent.yaml").write_text(
        "steps:\n  workflow/greet/keep: {mode: agent, autonomy: consultant}\n"
    )
    steps = {one["path"]: one for one in detent("workflow", "show", "greet", "--json").json["steps"]}
    assert list(steps) == ["say", "each", "each/keep"]
    keep = steps["each/keep"]
    assert (keep["mode"], keep["autonomy"]) == ("agent", "consultant")
    assert (keep["layer"], keep["place"]) == ("steps.workflow/greet/keep", "detent.yaml:2:25")
    assert keep["requires"] == ["git"]
    assert steps["say"]["mode"] == "deterministic"
    assert steps["each"]["mode"] is None


def test_a_step_is_named_in_the_environment_as_variables_are_spelled(detent, put, monkeypatch):
    put(GREET.replace("name: say", "name: say-it"))
    monkeypatch.setenv("DETENT__STEPS__SAY_IT__MODE", "agent")
    (first, *_) = detent("workflow", "show", "greet", "--json").json["steps"]
    assert (first["mode"], first["place"]) == ("agent", "DETENT__STEPS__SAY_IT__MODE")


def test_agents_and_generators_are_shown_as_performed_by_agents(detent):
    found = yaml.safe_load(detent("workflow", "show", "summarize-changes", "--format", "yaml").out)
    (summary,) = [one for one in found["steps"] if one["name"] == "summary"]
    assert (summary["type"], summary["mode"], summary["generator"]) == ("generate", "agent", "change_summary")
    assert summary["intent"]


def test_a_configuration_that_does_not_add_up_is_shown_with_its_step(detent, put):
    put(
        GREET.replace(
            "action: log_message,", "action: log_message, config: {mode: agent, allowed_tools: [x.y]},"
        )
    )
    shown = detent("workflow", "show", "greet")
    assert shown.code == 0
    assert "say: inline: allowed_tools names 'x.y', which the step does not declare." in shown.out


# -- validate -----------------------------------------------------------------------------------------------


def test_the_shipped_workflows_are_valid_as_strict_as_can_be(detent):
    """D-75, D-78."""
    checked = detent("workflow", "validate", "--all", "--strict")
    assert (checked.code, checked.err) == (0, "")
    assert [line.split(":")[0] for line in checked.lines] == SHIPPED
    assert all(": ok, " in line for line in checked.lines)


def test_every_problem_is_told_at_once_and_the_exit_code_is_2(detent, put):
    """D-71, D-78: file, line, code, suggestion."""
    put(BROKEN, "broken")
    checked = detent("workflow", "validate", "broken")
    assert checked.code == 2
    assert checked.lines[0].startswith(".detent/workflows/broken.yaml:4:")
    assert "E001" in checked.lines[0]
    assert "Did you mean 'log_message'" in checked.lines[0]
    assert "E007" in checked.lines[1]
    assert checked.lines[-1] == "broken: 2 errors"
    (result,) = detent("workflow", "validate", "broken", "--json").json
    assert (result["flow"], result["ok"]) == ("broken", False)
    assert [one["code"] for one in result["problems"]] == ["E001", "E007"]
    assert result["problems"][0]["suggestion"][0] == "log_message"
    assert result["problems"][0]["line"] == 4


def test_files_and_names_are_checked_side_by_side_and_each_once(detent, put):
    put(GREET)
    put(GREET.replace("name: greet", "name: other"), "elsewhere", "files")
    checked = detent("workflow", "validate", "greet", "files/elsewhere.yaml", ".detent/workflows/greet.yaml")
    assert (checked.code, checked.err) == (0, "")
    assert checked.lines == ["greet: ok, 3 steps", "other: ok, 3 steps"]


def test_a_file_that_is_no_yaml_is_told_with_its_line(detent, put):
    put('version: "1.0"\nname: x\nsteps: [', "odd")
    checked = detent("workflow", "validate", ".detent/workflows/odd.yaml")
    assert checked.code == 2
    assert checked.out.startswith(".detent/workflows/odd.yaml:")


def test_strict_makes_warnings_errors(detent, put):
    """D-78: an unused input is W001."""
    put(GREET.replace("${{ inputs.who }}", "you"))
    lenient = detent("workflow", "validate", "greet")
    assert (lenient.code, lenient.lines[-1]) == (0, "greet: ok, 3 steps, 1 warning")
    assert "W001" in lenient.out
    strict = detent("workflow", "validate", "greet", "--strict")
    assert (strict.code, strict.lines[-1]) == (2, "greet: 1 warning")


def test_settings_about_a_workflow_that_is_not_there_are_an_error(detent, folder, put):
    """D-54, E025."""
    put(GREET)
    (folder / "detent.yaml").write_text("\nsteps: {workflow/gret/say: {mode: agent}}\n")
    checked = detent("workflow", "validate", "greet")
    assert checked.code == 2
    (line,) = [line for line in checked.lines if "E025" in line]
    assert line.startswith("detent.yaml:2:9: E025")
    assert "Did you mean 'workflow/greet/say'?" in line


STRAY = "\nsteps: {sya: {mode: agent}}\n"


@pytest.mark.parametrize("command", [["validate"], ["run", "--dry-run"], ["run"]])
def test_settings_about_a_step_that_no_flow_has_are_an_error(detent, folder, put, command):
    """D-54, E025: by its bare name, wherever a workflow is checked, with the nearest name."""
    put(GREET)
    (folder / "detent.yaml").write_text(STRAY)
    refused = detent("workflow", *command, "greet")
    assert refused.code == 2
    (line,) = [line.strip() for line in [*refused.lines, *refused.err.splitlines()] if "E025" in line]
    assert line.startswith("detent.yaml:2:9: E025 there is no step 'sya'")
    assert "Did you mean 'say'" in line
    assert not (folder / "out").exists()


@pytest.mark.parametrize("key", ["nothing-alike", "nobody/nothing"])
def test_settings_about_a_step_unlike_any_other_say_what_to_do(detent, folder, put, key):
    put(GREET)
    (folder / "detent.yaml").write_text(f"steps: {{{key}: {{mode: agent}}}}\n")
    checked = detent("workflow", "validate", "greet")
    assert checked.code == 2
    assert "list that file under `plugins`" in checked.out


@pytest.mark.parametrize(
    "key",
    [
        "keep",  # in a loop
        "commit",  # of a shipped workflow
        "workflow/commit-and-push/commit",
        "clean",  # of a file beside this one, which nobody listed
        "deep",  # of a file it runs, elsewhere
        "collect",  # of a flow in Python that the settings list
        "onboarding/collect",
        "02-check-warranty",  # of an application that is installed
        "warranty/02-check-warranty",
    ],
)
def test_settings_about_a_step_of_another_flow_are_no_mistake(detent, folder, put, key):
    """D-54: no false alarm, in any of the commands that look at steps."""
    put(GREET, under="flows", name="greet")
    put('version: "1.0"\nname: beside\nsteps: [{name: clean, type: checkpoint}]\n', "beside", "flows")
    put('version: "1.0"\nname: below\nsteps: [{name: deep, type: checkpoint}]\n', "below", "other")
    put(
        'version: "1.0"\nname: top\nsteps: [{name: go, type: subworkflow, workflow: ../other/below.yaml}]\n',
        "top", "flows",
    )  # fmt: skip
    (folder / "detent.yaml").write_text(f"plugins: [flow.py]\nsteps: {{{key}: {{timeout: 30}}}}\n")
    checked = detent("workflow", "validate", "flows/top.yaml", "flows/greet.yaml")
    assert (checked.code, "E025" in checked.out) == (0, False)
    ran = detent("workflow", "run", "flows/top.yaml")
    assert ran.code == 0
    if key not in ("keep", "clean", "deep"):
        assert detent("steps", "list").code == 0


def test_a_step_in_the_environment_is_spelled_as_variables_are(detent, folder, put, monkeypatch):
    put(GREET.replace("name: say", "name: say-it"))
    monkeypatch.setenv("DETENT__STEPS__SAY_IT__TIMEOUT", "30")
    assert detent("workflow", "validate", "greet").code == 0
    monkeypatch.setenv("DETENT__STEPS__SAI_IT__TIMEOUT", "30")
    checked = detent("workflow", "validate", "greet")
    assert checked.code == 2
    assert "E025" in checked.out


def test_two_files_of_one_name_hinder_that_name_alone(detent, folder, put):
    """2.2: the name is refused with both files; every other name works, and so do the files' paths."""
    put(GREET, "one")
    put(GREET, "two")
    put(GREET.replace("name: greet", "name: other"), "other")
    both = (
        "Two project workflows are named 'greet': .detent/workflows/one.yaml and .detent/workflows/two.yaml."
    )
    for command in ("show", "validate", "viz", "run"):
        refused = detent("workflow", command, "greet")
        assert (refused.code, both in refused.err) == (2, True)
        assert detent("workflow", command, "other").code == 0
    assert detent("workflow", "run", ".detent/workflows/two.yaml").code == 0
    assert detent("workflow", "validate", "commit-and-push").code == 0
    listed = detent("workflow", "list", "--source", "project")
    assert listed.code == 0
    assert "(same name as .detent/workflows/two.yaml)" in listed.out
    assert listed.lines[-1].startswith(both)
    found = detent("workflow", "list", "--source", "project", "--format", "json").json
    assert {one["file"].rpartition("/")[2]: [path[-8:] for path in one["rivals"]] for one in found} == {
        "one.yaml": ["two.yaml"],
        "two.yaml": ["one.yaml"],
        "other.yaml": [],
    }
    checked = detent("workflow", "validate", "--all")
    assert checked.code == 2
    clashes = [line for line in checked.lines if "E005" in line]
    assert [line.partition(" ")[0] for line in clashes] == [
        ".detent/workflows/one.yaml:2:7:",
        ".detent/workflows/two.yaml:2:7:",
    ]
    steps = detent("steps", "list")
    assert steps.code == 0
    assert both in steps.err
    assert "workflow/other/say" in steps.out


@pytest.mark.parametrize("words", [[], ["greet", "--all"]])
def test_what_to_check_is_said_in_one_way(detent, put, words):
    put(GREET)
    checked = detent("workflow", "validate", *words)
    assert checked.code == 2
    assert "or pass --all" in checked.err


@pytest.mark.parametrize("command", ["show", "validate", "viz"])
def test_an_unknown_workflow_names_the_nearest(detent, command):
    missing = detent("workflow", command, "comit-and-push")
    assert missing.code == 2
    assert "'commit-and-push'" in missing.err


@pytest.mark.parametrize("command", ["show", "viz"])
def test_a_broken_file_is_refused_with_all_problems(detent, put, command):
    put('version: "2.0"\nname: greet\nsteps: []\nmore: 1')
    refused = detent("workflow", command, "greet")
    assert refused.code == 2
    assert "E023" in refused.err
    assert "E010" in refused.err


def test_settings_that_cannot_be_used_are_told_before_anything_else(detent, folder, put):
    put(GREET)
    (folder / "detent.yaml").write_text("validation: {stages: {test: {timeout: 5}}}\n")
    refused = detent("workflow", "validate", "greet")
    assert refused.code == 2
    assert refused.err == "detent.yaml:1:30: 'validation.stages.test.timeout' takes seconds from 30 to 600.\n"


# -- viz ----------------------------------------------------------------------------------------------------


def test_a_workflow_is_drawn_as_text_or_as_a_flowchart(detent, folder, put):
    """D-78."""
    put(GREET)
    drawn = detent("workflow", "viz", "greet")
    assert (drawn.code, drawn.err) == (0, "")
    assert "└─ each  loop for each of ['a', 'b']" in drawn.lines
    assert "   └─ keep  python write_file" in drawn.lines
    chart = detent("workflow", "viz", "greet", "--format", "mermaid", "--direction", "LR")
    assert "flowchart LR" in chart.lines
    written = detent("workflow", "viz", "greet", "--format", "mermaid", "--output", "greet.mmd")
    assert (written.code, written.out, written.err) == (0, "", "Written to greet.mmd.\n")
    assert (folder / "greet.mmd").read_text().startswith('---\ntitle: "greet"\n---\nflowchart TD\n')
    assert detent("workflow", "viz", "greet", "--output", "no/such/folder.txt").code == 2


def test_the_path_a_run_took_is_marked(detent, folder, put):
    """D-78: skipped, taken, how often, failed, never reached."""
    put(
        """\
version: "1.0"
name: greet
steps:
  - {name: never, type: checkpoint, when: "false"}
  - name: each
    type: loop
    for_each: "['a.txt', 'b.txt', 'gone.txt', 'c.txt']"
    steps: [{name: read, type: python, action: read_file, kwargs: {path: "${{ item }}"}}]
  - {name: after, type: checkpoint}
"""
    )
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text("x")
    ran = detent("workflow", "run", "greet", "--id", "r1", "--quiet")
    assert ran.code == 1
    drawn = detent("workflow", "viz", "greet", "--run", "r1")
    assert (drawn.code, drawn.err) == (0, "")
    for line in (
        "├─ – never  checkpoint",
        "│  └─ ✗ read  python (✓2 ✗1) read_file",
        "└─ · after  checkpoint",
    ):
        assert line in drawn.lines
    assert any(line.startswith("├─ ✗ each   loop (3 iterations) for each of") for line in drawn.lines)
    chart = detent("workflow", "viz", "greet", "--run", "r1", "--format", "mermaid")
    assert "class n1 skipped" in chart.out
    assert "failedFrame" in chart.out


def test_a_run_of_another_workflow_or_none_cannot_be_drawn(detent, put):
    put(GREET)
    put(GREET.replace("name: greet", "name: other"), "other")
    assert detent("workflow", "run", "other", "--id", "r1", "--quiet").code == 0
    refused = detent("workflow", "viz", "greet", "--run", "r1")
    assert refused.code == 2
    assert "Run r1 is a run of 'other', not of 'greet'." in refused.err
    assert detent("workflow", "viz", "greet", "--run", "nobody").code == 2


# -- new ----------------------------------------------------------------------------------------------------


def repository(folder: Path) -> None:
    """Two commits in the working folder, with something to find."""
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run([*git, "init", "-q"], cwd=folder, check=True)
    for text in ("x = 1\n", "x = 2  # TODO more\n"):
        (folder / "found.py").write_text(text)
        subprocess.run([*git, "add", "found.py"], cwd=folder, check=True)
        subprocess.run([*git, "commit", "-q", "-m", "change"], cwd=folder, check=True)


@pytest.mark.parametrize("template", ["linear", "loop", "agent"])
@pytest.mark.parametrize("command", [("workflow", "new"), ("new", "workflow")])
def test_a_starter_is_commented_passes_its_check_and_can_be_drawn(detent, folder, template, command):
    """D-78: every command it names works as it stands."""
    made = detent(*command, "my-own", "--template", template)
    assert (made.code, made.err) == (0, "")
    file = folder / ".detent" / "workflows" / "my-own.yaml"
    text = file.read_text()
    read = read_workflow(text.encode(), "my-own.yaml")
    assert read.spec is not None
    assert read.spec.name == "my-own"
    assert sum(line.lstrip().startswith("#") for line in text.splitlines()) >= 8
    assert template not in {
        word for line in text.splitlines() if "detent workflow" in line for word in line.split()
    }
    commands = [shlex.split(line) for line in made.lines[1:]]
    assert [words[:3] for words in commands] == [
        ["detent", "workflow", verb] for verb in ("validate", "viz", "run")
    ]
    repository(folder)
    for words in commands:
        result = detent(*words[1:])
        assert result.code == 0, result


def test_the_first_starter_is_valid_however_strict(detent):
    detent("workflow", "new", "one")
    detent("workflow", "new", "two", "--template", "loop")
    assert detent("workflow", "validate", "one", "two", "--strict").code == 0


def test_a_starter_never_writes_over_anything(detent, folder, put):
    file = put(GREET, "other")
    there = detent("workflow", "new", "greet")
    assert there.code == 2
    assert ".detent/workflows/other.yaml" in there.err
    assert detent("workflow", "new", "other").code == 2
    assert file.read_text() == GREET
    assert [one.name for one in file.parent.iterdir()] == ["other.yaml"]


def test_a_starter_says_which_shipped_workflow_it_hides(detent):
    made = detent("workflow", "new", "data-import")
    assert made.lines[-1] == "It hides the builtin workflow of the same name."


@pytest.mark.parametrize("name", ["Greet", "1st", "a b", "../x", "", "x" * 65, "ü"])
def test_a_starters_name_is_one_a_workflow_may_have(detent, folder, name):
    refused = detent("workflow", "new", "--", name)
    assert refused.code == 2
    assert "small letters" in refused.err
    assert not (folder / ".detent").exists()


# -- schema, actions ----------------------------------------------------------------------------------------


def test_the_schema_accepts_what_ships_and_refuses_unknown_keys(detent):
    """D-78."""
    import jsonschema

    from detent.flows.workflow.search_path import SHIPPED as FILES

    schema = detent("schema", "workflow").json
    jsonschema.Draft202012Validator.check_schema(schema)
    for file in FILES.glob("*.yaml"):
        jsonschema.validate(yaml.safe_load(file.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**yaml.safe_load(GREET), "more": 1}, schema)


def test_everything_registered_is_listed_with_intent_effects_and_origin(detent):
    """D-76, D-78."""
    listed = detent("workflow", "actions")
    assert (listed.code, listed.err) == (0, "")
    assert listed.lines[0].split() == ["NAME", "KIND", "EFFECTS", "ORIGIN", "INTENT"]
    (line,) = [line for line in listed.lines if line.startswith("write_file ")]
    assert "files.write" in line
    assert line.endswith("Put the given text into the named project file.")
    found = detent("workflow", "actions", "--json").json
    assert found == detent("workflow", "actions", "--format", "json").json
    assert {one["kind"] for one in found} >= {"action", "generator", "prerequisite", "validation stage"}
    assert all(one["intent"] and one["origin"] for one in found)


def test_one_action_is_shown_with_its_parameters_and_schema(detent):
    shown = detent("workflow", "actions", "write_file")
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0].split() == ["write_file", "action"]
    told = {line.split("  ")[0]: line for line in shown.lines[1:]}
    assert 'path, text, if_exists="replace"' in told["parameters"]
    assert "restore_file" in told["rollback"]
    (one,) = yaml.safe_load(detent("workflow", "actions", "write_file", "--format", "yaml").out)
    assert one["output_schema"]["properties"].keys() >= {"path", "bytes", "sha256", "replaced"}


def test_an_unknown_action_names_the_nearest(detent):
    missing = detent("workflow", "actions", "wirte_file")
    assert missing.code == 2
    assert "Did you mean 'write_file'?" in missing.err


# -- what others bring --------------------------------------------------------------------------------------

STRANGER = """\
version: "1.0"
name: stranger
steps:
  - {name: price, type: python, action: shop_price, kwargs: {count: 3}, requires: [shop_open]}
  - {name: refund, type: python, action: shop_refund, kwargs: {order: "7"}}
  - {name: buy, type: agent, agent: shop_buyer, context: {missing: "${{ steps.price.output.total }}"}}
  - {name: sell, type: agent, agent: shop_seller, context: shop_orders}
  - {name: write, type: generate, generator: shop_letter, context: {name: Ada}}
  - {name: check, type: validate, stages: [shop_docs]}
"""


def check_stranger(detent, put) -> list[dict]:
    put(STRANGER, "stranger")
    checked = detent("workflow", "validate", "stranger")
    assert checked.code == 0, checked
    shown = detent("workflow", "show", "stranger", "--format", "json").json
    steps = {one["name"]: one for one in shown["steps"]}
    assert steps["refund"]["effects"] == ["db.upsert"]
    assert steps["refund"]["rollback"] == "shop_price"
    assert steps["write"]["intent"] == "Write a letter to a customer about an order."
    return [
        one
        for one in detent("workflow", "actions", "--format", "json").json
        if one["name"].startswith("shop_")
    ]


def test_what_an_installed_package_brings_is_used_in_a_workflow(detent, put, shop):
    """D-76."""
    found = check_stranger(detent, put)
    assert {one["kind"] for one in found} == {
        "action", "agent", "generator", "context builder", "prerequisite", "validation stage"
    }  # fmt: skip
    assert all(one["origin"].startswith(("shop_package", "shop.stock")) for one in found)


def test_what_a_plugin_brings_is_used_in_a_workflow(detent, folder, put):
    """D-76."""
    (folder / "shop.py").write_text(shop_package.MODULE)
    (folder / "detent.yaml").write_text("plugins: [shop.py]\n")
    found = check_stranger(detent, put)
    assert {one["origin"].partition(":")[0] for one in found} == {"shop.py"}


def test_without_them_the_same_file_is_refused(detent, put):
    put(STRANGER, "stranger")
    checked = detent("workflow", "validate", "stranger", "--format", "json")
    assert checked.code == 2
    codes = {one["code"] for one in checked.json[0]["problems"]}
    assert codes >= {"E001", "E002", "E003", "E004", "E014", "E015"}


def test_a_plugin_that_cannot_be_imported_stops_every_command_that_needs_it(detent, folder, put):
    """D-76: exit code 2, with the file and its line."""
    put(GREET)
    (folder / "broken.py").write_text("x = 1\nimport no_such_module_at_all\n")
    (folder / "detent.yaml").write_text("plugins: [broken.py]\n")
    for words in (("validate", "greet"), ("show", "greet"), ("actions",)):
        refused = detent("workflow", *words)
        assert refused.code == 2
        assert "broken.py, line 2" in refused.err


def test_the_program_shows_no_traceback_in_a_process_of_its_own(spawn, put):
    put(BROKEN, "broken")
    result = spawn("workflow", "validate", "broken", "--format", "json").result()
    assert result.code == 2
    assert len(json.loads(result.out)[0]["problems"]) == 2
    assert result.err == ""


# -- prerequisites ------------------------------------------------------------------------------------------


def test_what_is_missing_is_told_together_before_the_first_step_and_the_exit_code_is_3(detent, folder, put):
    """D-72, D-78: nothing was run, and what to do is said for each."""
    put(
        GREET.replace(
            "action: log_message,", 'action: log_message, requires: ["env:NO_SUCH_KEY", "path:gone.csv"],'
        ).replace("requires: [git]", 'requires: ["command:no-such-program", "env:NO_SUCH_KEY"]')
    )
    refused = detent("workflow", "run", "greet")
    assert refused.code == 3
    for line in (
        "env:NO_SUCH_KEY: NO_SUCH_KEY is not set. Set NO_SUCH_KEY. Needed by: say, each/keep.",
        "path:gone.csv: there is no gone.csv. Make gone.csv. Needed by: say.",
        "Install no-such-program and put it on PATH. Needed by: each/keep.",
    ):
        assert line in refused.out + refused.err
    assert not (folder / "out").exists()


# -- what a newcomer meets ----------------------------------------------------------------------------------

ACTS = """
import sys

from detent.workflow import action


@action("leave", intent="End the whole program in the middle of a step.", blocking=True)
def leave():
    sys.exit(3)


@action("trip", intent="Fail in a way that nobody has foreseen.")
def trip():
    return {}["gone"]
"""


def test_committing_without_pushing_needs_no_remote(detent, folder):
    """D-72: what the inputs pass over is not asked for; what they do not, is."""
    git = partial(subprocess.run, check=True, cwd=folder, capture_output=True)
    git(["git", "init", "-q", "-b", "main"])
    git(["git", "config", "user.name", "N"])
    git(["git", "config", "user.email", "n@example.org"])
    missing = detent("workflow", "run", "commit-and-push")
    assert (missing.code, "git_remote" in missing.err) == (3, True)
    ran = detent("workflow", "run", "commit-and-push", "-i", "push=false")
    assert ran.code == 0, ran.err
    assert b"flow.py" in git(["git", "show", "--stat", "HEAD"]).stdout


@pytest.mark.parametrize(
    ("name", "said"), [("leave", "RuntimeError: it called exit(3)"), ("trip", "KeyError")]
)
def test_an_action_that_misbehaves_fails_its_step_and_nothing_else(detent, folder, put, name, said):
    """No traceback unless it is asked for; then with the line of the action's own file."""
    (folder / "acts.py").write_text(ACTS)
    (folder / "detent.yaml").write_text("plugins: [acts.py]\n")
    put(f'version: "1.0"\nname: odd\nsteps: [{{name: a, type: python, action: {name}}}]\n', "odd")
    failed = detent("workflow", "run", "odd")
    assert failed.code == 1
    assert said in failed.out
    assert "Traceback" not in failed.out + failed.err
    loud = detent("workflow", "run", "odd", "-vv")
    assert 'acts.py", line' in loud.out + loud.err


def test_the_steps_of_a_file_in_the_projects_folder_are_known_by_name(detent, folder, put):
    """As in examples/workflow: nobody listed the file, and the settings speak of its steps."""
    put(GREET, "greet", ".")
    (folder / "detent.yaml").write_text("steps: {keep: {timeout: 30}}\n")
    assert "workflow/greet/keep" in detent("steps", "list").out
    shown = detent("steps", "show", "keep")
    assert (shown.code, "30" in shown.out) == (0, True)


def test_a_private_address_is_fetched_from_once_the_settings_allow_it(detent, folder, put):
    """The error says which setting that is, and the setting it names is enough."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"inside")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        url = f"http://localhost:{server.server_port}/"
        step = f"{{name: get, type: python, action: http_get, kwargs: {{url: '{url}'}}}}"
        put(
            f'version: "1.0"\nname: fetch\nsteps: [{step}]\n'
            'outputs: {t: "${{ steps.get.output.text }}"}\n',
            "fetch",
        )
        assert "inside" in detent("workflow", "run", "fetch").out
        (folder / "detent.yaml").write_text("workflow: {allow_private: false}\n")
        refused = detent("workflow", "run", "fetch")
        assert refused.code == 1
        assert "'localhost' is at 127.0.0.1, a private address" in refused.out
        assert "`workflow.allow_private: [localhost]`" in refused.out
        (folder / "detent.yaml").write_text("workflow: {allow_private: [localhost]}\n")
        ran = detent("workflow", "run", "fetch")
        assert (ran.code, "inside" in ran.out) == (0, True)
    finally:
        server.shutdown()
        server.server_close()


def test_lines_of_a_loop_that_goes_on_name_its_items_and_iterations(capsys):
    """What is heard first of a resumed loop is the end of an iteration that was under way."""
    spec = read_workflow(GREET.encode(), "greet.yaml").spec
    assert spec is not None
    lines = WorkflowLines(spec)

    def done(number: int, step: str = "keep") -> events.StepCompleted:
        return events.StepCompleted(
            timestamp=0, run_id="r", step_path=f"each/[{number}]/{step}", step_name=step, success=True,
            step_type="python", skipped=False, duration_ms=1,
        )  # fmt: skip

    def over(number: int) -> events.LoopIterationCompleted:
        return events.LoopIterationCompleted(
            timestamp=0, run_id="r", step_path=f"each/[{number}]", iteration_index=number,
            parent_step_name="each", success=True,
        )  # fmt: skip

    lines(done(0))
    lines(done(1))
    lines(over(0))
    lines(
        events.LoopIterationStarted(
            timestamp=0, run_id="r", step_path="each/[2]", iteration_index=2, total_iterations=3,
            item_label="third", parent_step_name="each",
        )
    )  # fmt: skip
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "▸ each goes on", "▸ [0] goes on", "✓ keep 1 ms", "▸ [1] goes on", "✓ [1] keep 1 ms", "▸ [2] third",
    ]  # fmt: skip


def test_a_check_that_fails_shows_what_its_command_said_and_what_mends_it(detent, folder, put):
    """The end of it, which is where checks sum up, for each run that failed."""
    code = "print('\\\\n'.join(map(str, range(30)))); raise SystemExit(3)"
    (folder / "detent.yaml").write_text(
        f'validation:\n  stages:\n    test: {{command: [{sys.executable}, -c, "{code}"]}}\n'
    )
    mend = "{name: mend, type: python, action: log_message, kwargs: {message: mending}}"
    check = f"{{name: check, type: validate, stages: [test], retry: 1, on_failure: {mend}}}"
    put(f'version: "1.0"\nname: checked\nsteps: [{check}]\n', "checked")
    failed = detent("workflow", "run", "checked")
    assert failed.code == 1
    said = [" ".join(line.split()) for line in failed.lines]
    assert "▸ [0] before run 2" in said
    at = said.index("│ Stage 'test' failed (exit code 3):")
    assert said[at + 1 : at + 3] == ["│ … 10 more before", "│ 10"]
    assert said[at + 21] == "│ 29"
    assert "│ Stage 'test' failed in run 2 (exit code 3):" in said
    put('version: "1.0"\nname: once\nsteps: [{name: check, type: validate, stages: [test]}]\n', "once")
    assert "did not pass: test failed.\n" in detent("workflow", "run", "once").out


def test_steps_side_by_side_go_on_from_nothing(detent, put):
    """A loop over nothing has no iterations: neither its lines nor its drawing say so."""
    steps = "[{name: one, type: checkpoint}, {name: two, type: checkpoint}]"
    put(f'version: "1.0"\nname: apart\nsteps: [{{name: both, type: loop, steps: {steps}}}]\n', "apart")
    ran = detent("workflow", "run", "apart", "--id", "r1")
    assert ran.code == 0
    assert "goes on" not in ran.out
    assert sum("in parallel" in line for line in ran.lines) == 2
    drawn = detent("workflow", "viz", "apart", "--run", "r1").out
    assert "all in parallel" in drawn
    assert "iteration" not in drawn
