"""The generic verbs behave alike for every kind of definition, applications and flows made by code."""

from __future__ import annotations

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
    same = ("run", "workflow", target, "-i", "source=[7]", "-i", "times=3", "--json")
    assert detent("show", detent(*same).json["run"], "--json").json["tags"] == given["tags"]


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
