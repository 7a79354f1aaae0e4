"""The generic verbs behave alike for every kind of definition, applications and flows made by code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Call

ORDERS = """\
version: "1.0"
name: orders
description: Reads a list and writes its items.
inputs:
  source: {type: string, default: "[1, 2]"}
  times: {type: integer, default: 2}
steps:
  - {name: table, type: python, action: parse_json, kwargs: {text: "${{ inputs.source }}"}}
  - name: each
    type: loop
    for_each: "${{ steps.table.output.value }}"
    steps:
      - {name: dump, type: python, action: dump_json, kwargs: {value: "${{ item }}"}}
outputs: {values: "${{ steps.table.output.value }}", times: "${{ inputs.times }}"}
"""


@pytest.fixture
def orders(folder: Path) -> Path:
    """A workflow that is found by its name."""
    file = folder / ".detent/workflows/orders.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(ORDERS)
    return file


@pytest.fixture
def shop(folder: Path, detent: Call) -> Path:
    """A playbook in a folder of the project."""
    assert detent("new", "playbook", "shop").code == 0
    return folder / "shop"


# -- run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["orders", ".detent/workflows/orders.yaml"])
def test_run_gives_a_workflow_its_inputs(orders, detent: Call, target):
    usual = detent("run", target, "--json").json
    assert usual["data"]["result"] == {"values": [1, 2], "times": 2}
    given = detent("run", target, "--data", '{"source": "[7]"}', "--set", "times=3", "--json").json
    assert given["data"]["result"] == {"values": [7], "times": 3}
    same = ("run", "workflow", target, "-i", "source=[7]", "-i", "times=3", "--id", "r9", "--json")
    assert detent(*same).code == 0
    assert detent("show", "r9", "--json").json["tags"] == given["tags"]


def test_run_refuses_inputs_that_do_not_fit_before_anything_starts(orders, detent: Call):
    refused = detent("run", "orders", "--data", '{"sorce": "[7]", "times": "many"}', "--json")
    assert refused.code == 2
    assert "sorce" in refused.err
    assert "times" in refused.err
    several = detent("run", "orders", "--data", '[{"times": 1}, {"times": "many"}]')
    assert several.code == 2
    assert detent("runs", "--json").json["runs"] == []


def test_run_and_steps_list_take_a_playbook_folder_as_the_other_verbs_do(shop, detent: Call):
    ran = detent("run", "shop", "--input", "shop/input.json", "--id", "r1")
    assert (ran.code, ran.err) == (0, "")
    rows = detent("steps", "list", "--flow", "shop", "--json").json
    assert rows[0]["step"] == "shop/01-sort-request"


# -- step ---------------------------------------------------------------------------------------------------


def test_step_gives_a_workflow_its_inputs(orders, detent: Call):
    tried = detent("step", "orders", "table", "--set", 'source="[5]"', "--json")
    assert (tried.code, tried.json["next"]) == (0, "each")
    assert tried.json["changes"]["steps/table"]["output"] == {"value": [5]}
    assert detent("step", "orders", "table", "--set", "sorce=1").code == 2


def test_a_step_in_a_loop_is_tried_on_an_item_that_is_given(orders, detent: Call):
    tried = detent("step", "orders", "dump", "--data", '{"item": 1}', "--json")
    assert tried.json["changes"]["steps/dump"]["output"] == {"text": "1"}
    refused = detent("step", "orders", "each")
    assert refused.code == 2
    assert "loop" in refused.err
    assert "dump" in refused.err


def test_a_step_is_tried_on_results_of_other_steps(folder: Path, detent: Call):
    (folder / "two.yaml").write_text(
        ORDERS.replace("name: each", "name: again").replace(
            "    type: loop\n", "    type: python\n    action: dump_json\n"
        ).partition("    for_each")[0]
        + '    kwargs: {value: "${{ steps.table.output.value }}"}\n'
    )  # fmt: skip
    data = '{"steps": {"table": {"output": {"value": 4}}}}'
    tried = detent("step", "two.yaml", "again", "--data", data, "--json")
    assert tried.json["changes"]["steps/again"]["output"] == {"text": "4"}, tried


@pytest.mark.parametrize("as_json", [True, False])
def test_a_trial_that_fails_exits_with_1_for_every_kind(orders, folder: Path, detent: Call, as_json):
    options = ["--json"] if as_json else []
    failed = detent("step", "orders", "table", "--data", '{"source": "["}', *options)
    assert failed.code == 1
    assert "ToolError" in failed.out or "error" in failed.out
    assert detent("step", "flow.py", "check", "--data", '{"broken": true}', *options).code == 1


def test_internal_states_are_not_offered_as_steps(orders, detent: Call):
    refused = detent("step", "orders", "tabel")
    assert refused.code == 2
    assert "Did you mean 'table'?" in refused.err
    assert "ready" not in refused.err
    assert "rolling_back" not in refused.err


@pytest.mark.parametrize(
    ("target", "beginning", "step"),
    [("shop", "01", "01-sort-request"), ("flow.py", "coll", "collect"), ("orders", "ta", "table"),
     ("warranty", "01", "01-extract-serial")],
)  # fmt: skip
def test_a_step_may_be_named_by_how_it_begins(orders, shop, detent: Call, target, beginning, step):
    tried = detent("step", target, beginning, "--json")
    assert tried.json["step"] == step, tried


# -- check, flows -------------------------------------------------------------------------------------------


def test_check_without_a_target_checks_every_definition(orders, shop, folder: Path, detent: Call):
    bad = ORDERS.replace("orders", "bad").replace("parse_json", "parse_jsn")
    orders.with_name("bad.yaml").write_text(bad)
    (first,) = (folder / "shop").rglob("01-*.md")
    first.write_text(first.read_text().replace("to: 02-answer-now", "to: 02-answer-nw"))
    checked = detent("check", "--json")
    assert checked.code == 2
    assert {row["flow"]: row["ok"] for row in checked.json} == {"shop": False, "bad": False, "orders": True}


def test_check_and_flows_know_the_application_that_a_project_is_set_up_for(
    folder: Path, detent: Call, monkeypatch
):
    assert detent("new", "warranty", "desk").code == 0
    nothing = detent("check")
    assert (nothing.code, "nothing to check" in nothing.out) == (0, True)
    assert "No flows are known here" in detent("flows").out
    monkeypatch.chdir(folder / "desk")
    assert [row["flow"] for row in detent("check", "--json").json] == ["warranty", "warranty-legacy"]
    assert [row["name"] for row in detent("flows", "--json").json] == ["warranty", "warranty-legacy"]


@pytest.mark.parametrize("verb", ["check", "show"])
def test_the_folder_of_an_application_is_recognised(folder: Path, detent: Call, verb):
    assert detent("new", "warranty", "desk").code == 0
    refused = detent(verb, "desk")
    assert refused.code == 2
    assert "detent check warranty" in refused.out + refused.err
    assert "P16" not in refused.out + refused.err


def test_flows_lists_definitions(orders, shop, detent: Call):
    assert [row["name"] for row in detent("flows", "--json").json] == ["orders", "shop"]


@pytest.mark.parametrize("target", ["flow.py", "shop", "orders", None])
def test_check_reports_steps_that_the_settings_configure_and_nothing_has(
    orders, shop, folder: Path, detent: Call, target
):
    (folder / "detent.yaml").write_text("steps: {tabel: {mode: agent}}\n")
    checked = detent("check", *([target] if target else []))
    assert checked.code == 2
    assert checked.out.count("'tabel'") == 1
    assert "Did you mean 'table'" in checked.out


# -- names that mean nothing --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["show", "diagram", "check", "run"])
def test_a_name_that_means_nothing_is_told_with_what_was_looked_for(orders, shop, detent: Call, verb):
    refused = detent(verb, "ordrs")
    said = refused.out + refused.err
    run = "run, " if verb in ("show", "diagram") else ""
    assert refused.code == 2
    assert (
        f"There is no {run}flow, application, playbook, refine or workflow 'ordrs'. Did you mean 'orders'?"
        in said
    )
    assert "Known playbooks: shop." in said


# -- shapes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["orders", "shop", "flow.py", "warranty"])
def test_show_gives_every_definition_in_one_shape(orders, shop, detent: Call, target):
    shown = detent("show", target, "--json").json
    assert {"flow", "description", "place", "steps"} <= shown.keys()
    assert {"step", "mode", "autonomy", "intent"} <= shown["steps"][0].keys()


def test_runs_without_a_store_are_none(folder: Path, detent: Call):
    listed = detent("runs", "--json")
    assert (listed.code, listed.json) == (0, {"runs": [], "next": None})
    assert "There is no store at" in listed.err
    assert not (folder / ".detent").exists()


# -- eval ---------------------------------------------------------------------------------------------------


def test_eval_says_that_a_kind_has_no_evals(orders, detent: Call):
    for target in ("orders", ".detent/workflows/orders.yaml"):
        refused = detent("eval", target)
        assert refused.code == 2
        assert "a workflow has no evals" in refused.err


def test_eval_without_a_target_plays_what_the_project_has(folder: Path, detent: Call):
    nothing = detent("eval")
    assert (nothing.code, nothing.out) == (4, "")
    assert "This project has no evals." in nothing.err
    assert detent("new", "playbook", "shop").code == 0
    played = detent("eval")
    assert played.code == 0, played.err
    assert played.lines[0].startswith("eval shop ")


# -- models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["flow.py", "shop", "orders"])
def test_check_warns_of_a_step_that_has_no_model_to_perform_it(
    orders, shop, folder: Path, detent: Call, target
):
    step = {"flow.py": "collect", "shop": "01-sort-request", "orders": "table"}[target]
    (folder / "detent.yaml").write_text(f"steps: {{{step}: {{mode: agent, autonomy: collaborator}}}}\n")
    checked = detent("check", target)
    assert checked.code == 0
    assert "W005" in checked.out
    assert "no model is configured (write `model: {provider: …}`" in checked.out
    assert "docs/models.md" in checked.out


def test_steps_show_says_that_the_handler_performs_a_step_without_a_model(shop, folder: Path, detent: Call):
    (folder / "detent.yaml").write_text("steps: {01-sort-request: {mode: agent, autonomy: collaborator}}\n")
    assert (
        "its handler, in place of an agent: no model is configured"
        in detent("steps", "show", "01-sort-request").out
    )
    assert detent("run", "shop", "--input", "shop/input.json", "--id", "r1").code == 0
    why = detent("why", "r1").out
    assert "NoExecutor" not in why
    assert "agent said" not in why
    assert "no model is configured" in why


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("logging: {level: LOUD}", "'logging.level' takes one of debug, info, warning, error."),
        ("logging: {format: xml}", "'logging.format' takes one of text, json, console."),
    ],
)
def test_a_wrong_value_of_the_log_is_found_by_every_command(detent, folder, text, problem):
    (folder / "detent.yaml").write_text(text)
    for command in (["check", "flow.py"], ["run", "flow.py"], ["runs"]):
        result = detent(*command)
        assert result.code == 2
        assert f"detent.yaml:1:11: {problem}" in result.err


@pytest.mark.parametrize("command", [("check",), ("workflow", "validate", "orders")])
def test_a_step_that_only_the_settings_know_is_worded_in_one_way(orders, folder: Path, detent: Call, command):
    (folder / "detent.yaml").write_text("steps:\n  tabel: {timeout: 3}\n")
    checked = detent(*command, "--json")
    assert checked.code == 2
    (problem,) = [problem for row in checked.json for problem in row["problems"]]
    assert problem.pop("suggestion")[0] == "table"
    assert problem == {
        "code": "E025", "severity": "error", "message": "there is no step 'tabel'.", "file": "detent.yaml",
        "line": 2, "column": 3, "path": "steps.tabel",
    }  # fmt: skip
    ran = detent("steps", "list")
    assert ran.code == 2
    assert "detent.yaml:2:3: E025 there is no step 'tabel'. Did you mean 'table'" in ran.err


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("pipe.yaml", "pipe.yaml is a pipe or a device, not a file."),
        ("pipe", "pipe is a pipe or a device, not a file."),
        ("pipe.py", "pipe.py is a pipe or a device, not a file."),
        ("/dev/zero", "/dev/zero is a pipe or a device, not a file."),
        ("empty", "empty is an empty folder."),
        ("empty/", "empty/ is an empty folder."),
        ("a" * 5000, "is too long for a name"),
        ("a" * 5000 + ".yaml", "is too long for a name"),
        ("x/" + "a" * 300 + ".py", "is too long for a name"),
    ],
)
@pytest.mark.parametrize("command", ["check", "show", "diagram", "run"])
def test_what_is_no_definition_is_named_as_what_it_is(folder: Path, detent: Call, command, target, sentence):
    (folder / "empty").mkdir()
    for name in ("pipe", "pipe.yaml", "pipe.py"):
        os.mkfifo(folder / name)
    result = detent(command, target)
    assert result.code == 2
    assert sentence in result.out + result.err
    assert len(result.out + result.err) < 1000


def test_one_wrong_target_does_not_hide_the_others(orders, detent: Call):
    checked = detent("check", "a" * 5000, "orders")
    assert checked.code == 2
    assert checked.lines[-1] == "orders: ok, 3 steps"


def test_pipes_among_the_files_of_a_project_hold_no_command_up(orders, shop, folder: Path, detent: Call):
    for place in (".detent/workflows/pipe.yaml", "shop/steps/07-pipe.md", "loose.yaml", "helper.py"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / place)
    assert detent("workflow", "list").code == 0
    assert detent("workflow", "validate", "orders").code == 0
    assert detent("check", "shop").lines == ["shop: ok, 3 steps"]
    assert detent("check").code == 0


def test_check_without_a_name_also_checks_workflow_files_that_lie_in_the_folder(orders, folder, detent: Call):
    (folder / "weekly.yaml").write_text(ORDERS.replace("name: orders", "name: weekly"))
    (folder / "broken.yaml").write_text(ORDERS.replace("action: parse_json", "action: parse_jsn"))
    (folder / "unreadable.yml").write_text(ORDERS + "  - [\n")
    (folder / "compose.yaml").write_text('version: "3"\nservices: {web: {image: x}}\n')
    (folder / "pipeline.yml").write_text("steps:\n  - {script: make}\n")
    checked = detent("check")
    assert checked.code == 2
    assert [line for line in checked.lines if line.startswith("weekly")] == ["weekly: ok, 3 steps"]
    assert any(line.startswith("broken.yaml:8:") for line in checked.lines)
    assert any(line.startswith("unreadable.yml:") for line in checked.lines)
    assert "compose" not in checked.out
    assert "pipeline" not in checked.out
