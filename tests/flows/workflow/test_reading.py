"""From the bytes of a workflow file to its values: every key, every kind of step. D-61, D-42."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.authoring.names import Nearest
from detent.authoring.problem import in_order
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.spec import (
    RESERVED,
    AgentStep,
    BranchStep,
    CheckpointStep,
    GenerateStep,
    LoopStep,
    PythonStep,
    SubworkflowStep,
    ValidateStep,
)
from detent.flows.workflow.step_type import StepType
from tests.flows.workflow.files import read, spec_of, text_of

WHOLE = """
version: "1.0"
name: whole-thing2
description: All there is.
inputs:
  plain: {type: string}
  count: {type: integer, default: 3, description: How many.}
  maybe: {type: float, required: false}
  color: {type: string, default: red, enum: [red, blue]}
  token: {type: string, secret: true}
  things: {type: array, default: []}
  more: {type: object, default: {a: 1}}
  go: {type: boolean, default: false}
steps:
  - name: first
    type: python
    description: Does it.
    when: inputs.go
    requires: [git, "env:HOME"]
    config: {mode: agent, autonomy: consultant, timeout: 5}
    metadata: {owner: [somebody]}
    action: ship
    args: ["${{ inputs.plain }}", 2]
    kwargs: {speed: fast, extra: {deep: ["${{ inputs.count }}"]}}
    rollback: ship_back
    output_schema: shop.orders.Report
  - {name: ask, type: agent, agent: reviewer, context: {first: "${{ steps.first.output }}"},
     rollback: ship_back, output_schema: {type: object}}
  - {name: tell, type: generate, generator: summary, context: changed_files}
  - name: check
    type: validate
    stages: [lint, docs]
    retry: 2
    must_pass: false
    on_failure: {name: mend, type: python, action: ship}
  - {name: child, type: subworkflow, workflow: ./other.yaml, inputs: {a: 1}}
  - name: way
    type: branch
    options:
      - {when: true, step: {name: left, type: checkpoint}}
      - step: {name: right, type: checkpoint, checkpoint_id: "at-${{ inputs.count }}"}
  - {name: each, type: loop, for_each: inputs.things, max_concurrency: 4,
     steps: [{name: one, type: checkpoint}]}
  - {name: again, type: loop, until: "${{ index }}", max_iterations: 5, on_exhausted: continue,
     steps: [{name: two, type: checkpoint}]}
  - {name: beside, type: loop, parallel: true, max_concurrency: 0, steps: [{name: three, type: checkpoint}]}
outputs: {all: "${{ steps.each.output }}"}
metadata: {anything: {goes: [1, null]}}
"""


def test_a_file_that_says_everything_is_read_as_it_stands() -> None:
    """D-61."""
    spec = spec_of(WHOLE)
    assert (spec.name, spec.version, spec.description) == ("whole-thing2", "1.0", "All there is.")
    assert spec.metadata == {"anything": {"goes": [1, None]}}
    assert spec.outputs == {"all": "${{ steps.each.output }}"}
    count, maybe, color, token = (spec.inputs[name] for name in ("count", "maybe", "color", "token"))
    assert (count.type, count.required, count.has_default, count.default) == ("integer", False, True, 3)
    assert count.description == "How many."
    assert (maybe.required, maybe.has_default) == (False, False)
    assert (color.enum, color.default) == (("red", "blue"), "red")
    assert (token.secret, token.required) == (True, True)
    assert spec.inputs["plain"].required

    first, ask, tell, check, child, way, each, again, beside = spec.steps
    assert isinstance(first, PythonStep)
    assert (first.action, first.args, first.rollback) == ("ship", ("${{ inputs.plain }}", 2), "ship_back")
    assert first.kwargs == {"speed": "fast", "extra": {"deep": ["${{ inputs.count }}"]}}
    assert (first.when, first.requires) == ("inputs.go", ("git", "env:HOME"))
    assert (first.config.mode, first.config.autonomy) == (StepMode.AGENT, AutonomyLevel.CONSULTANT)
    assert first.config.timeout == 5
    assert (first.metadata, first.output_schema) == ({"owner": ["somebody"]}, "shop.orders.Report")
    assert isinstance(ask, AgentStep)
    assert (ask.agent, ask.output_schema, ask.rollback) == ("reviewer", {"type": "object"}, "ship_back")
    assert isinstance(tell, GenerateStep)
    assert (tell.generator, tell.context) == ("summary", "changed_files")
    assert isinstance(check, ValidateStep)
    assert (check.stages, check.retry, check.must_pass) == (("lint", "docs"), 2, False)
    assert check.on_failure is not None
    assert check.on_failure.name == "mend"
    assert isinstance(child, SubworkflowStep)
    assert (child.workflow, child.inputs) == ("./other.yaml", {"a": 1})
    assert isinstance(way, BranchStep)
    assert [(option.when, option.step.name) for option in way.options] == [(True, "left"), (None, "right")]
    assert isinstance(each, LoopStep)
    assert (each.for_each, each.has_for_each, each.max_concurrency) == ("inputs.things", True, 4)
    assert isinstance(again, LoopStep)
    assert (again.until, again.max_iterations, again.on_exhausted) == ("${{ index }}", 5, "continue")
    assert isinstance(beside, LoopStep)
    assert (beside.parallel, beside.has_for_each, beside.until) == (True, False, None)
    right = way.options[1].step
    assert isinstance(right, CheckpointStep)
    assert right.checkpoint_id == "at-${{ inputs.count }}"
    assert {step.type for step in spec.every_step()} == set(StepType)


def test_what_is_left_out_has_the_usual_value() -> None:
    spec = spec_of(
        text_of("""
        - {name: a, type: python, action: x}
        - {name: b, type: validate, stages: inputs.s}
        - {name: c, type: loop, steps: [{name: d, type: checkpoint}]}
        """)
    )
    python, validate, loop = spec.steps
    assert isinstance(python, PythonStep)
    assert (python.args, python.kwargs, python.when, python.requires, python.rollback) == (
        (),
        {},
        None,
        (),
        None,
    )
    assert isinstance(validate, ValidateStep)
    assert (validate.retry, validate.on_failure, validate.must_pass) == (None, None, True)
    assert isinstance(loop, LoopStep)
    assert (loop.max_concurrency, loop.max_iterations, loop.on_exhausted, loop.parallel) == (
        1,
        30,
        "fail",
        False,
    )
    assert (spec.inputs, spec.outputs, spec.metadata, spec.description) == ({}, None, {}, "")


def test_a_key_without_a_value_is_a_key_left_out() -> None:
    head = "description:\ninputs:\noutputs:\nmetadata:\n"
    spec = spec_of(
        text_of(
            """
            - {name: a, type: python, action: x, kwargs: , args: , when: , config: , requires: , rollback: ~}
            - {name: b, type: loop, for_each: , until: null, steps: [{name: c, type: checkpoint}]}
            """,
            head,
        )
    )
    assert spec.outputs is None
    assert isinstance(spec.steps[1], LoopStep)
    assert not spec.steps[1].has_for_each


def test_every_part_knows_where_it_stands() -> None:
    spec = spec_of(
        text_of(
            """\
            - name: a
              type: python
              action: ship
              kwargs:
                order: x
                labels: [one, two]
            - name: b
              type: branch
              options:
                - when: inputs.n
                  step:
                    name: c
                    type: checkpoint
            """,
            "inputs:\n  n:\n    type: integer\n    default: 1\noutputs: {sum: 3}\n",
        )
    )
    a, b = spec.steps
    assert (a.path, b.path, b.inner[0].path) == ("steps[0]", "steps[1]", "steps[1].options[0].step")
    assert a.place[:2] == ("flow.yaml", 9)
    assert a.at("action")[1:] == (11, 11)
    assert a.at("kwargs.order")[1:] == (13, 12)
    assert a.at("kwargs.labels[1]")[1:] == (14, 19)
    assert a.at("nothing") == a.place
    assert b.at("options[0].when")[1:] == (18, 13)
    assert b.inner[0].place[1:] == (20, 15)
    assert spec.places["inputs.n.default"][1:] == (6, 14)
    assert spec.places["outputs.sum"][1:] == (7, 16)


def test_the_source_is_the_file_as_plain_values() -> None:
    spec = spec_of(text_of("- {name: a, type: checkpoint}\n"))
    assert spec.source == {"version": "1.0", "name": "flow", "steps": [{"name": "a", "type": "checkpoint"}]}


# -- refusing -----------------------------------------------------------------------------------------------

STEP = "{name: a, type: checkpoint}"


def loop(keys: str) -> str:
    """A loop with some keys and a body."""
    return f"{{name: a, type: loop, {keys} steps: [{{name: b, type: checkpoint}}]}}"


@pytest.mark.parametrize(
    ("text", "code", "path", "says"),
    [
        ("", "E010", "", "empty"),
        ("- a\n", "E010", "", "mapping"),
        ("just text", "E010", "", "mapping"),
        (f"name: a\nsteps: [{STEP}]", "E010", "version", "needs 'version'"),
        (f"version: 1.0\nname: a\nsteps: [{STEP}]", "E010", "version", "with the quotes"),
        (f"version: '2.0'\nname: a\nsteps: [{STEP}]", "E023", "version", "not supported"),
        (f"version: '1'\nname: a\nsteps: [{STEP}]", "E023", "version", "not supported"),
        (f"version: '1.0'\nsteps: [{STEP}]", "E010", "name", "needs 'name'"),
        (f"version: '1.0'\nname: A\nsteps: [{STEP}]", "E010", "name", "small letters"),
        (f"version: '1.0'\nname: a_b\nsteps: [{STEP}]", "E010", "name", "small letters"),
        (f"version: '1.0'\nname: '{'a' * 65}'\nsteps: [{STEP}]", "E010", "name", "64"),
        (f"version: '1.0'\nname: \"a\\n\"\nsteps: [{STEP}]", "E010", "name", "small letters"),
        (f"version: '1.0'\nname: 12\nsteps: [{STEP}]", "E010", "name", "this is a number"),
        ("version: '1.0'\nname: a", "E010", "steps", "needs 'steps'"),
        ("version: '1.0'\nname: a\nsteps: {}", "E010", "steps", "a list of steps"),
        ("version: '1.0'\nname: a\nsteps: []", "E026", "steps", "no steps"),
    ],
)  # fmt: skip
def test_a_file_without_its_bones_is_refused(text: str, code: str, path: str, says: str) -> None:
    """D-61."""
    found = read(text)
    assert found.spec is None
    (problem,) = found.problems
    assert (problem.code, problem.path) == (code, path)
    assert says in problem.message


@pytest.mark.parametrize(
    ("head", "code", "path", "says"),
    [
        ("descripton: x\n", "E010", "descripton", "is not a key of a workflow"),
        ("description: [x]\n", "E010", "description", "a list"),
        ("metadata: x\n", "E010", "metadata", "a mapping"),
        ("outputs: [x]\n", "E010", "outputs", "a mapping"),
        ("inputs: [x]\n", "E010", "inputs", "a mapping"),
        ("inputs: {n: string}\n", "E010", "inputs.n", "such as `{type: string}`"),
        ("inputs: {n: {}}\n", "E010", "inputs.n.type", "needs 'type'"),
        ("inputs: {n: {type: text}}\n", "E010", "inputs.n.type", "'string'"),
        ("inputs: {N: {type: string}}\n", "E010", "inputs.N", "small letters"),
        ("inputs: {a-b: {type: string}}\n", "E010", "inputs.a-b", "small letters"),
        ("inputs: {n: {type: string, requird: true}}\n", "E010", "inputs.n.requird", "not a key of an input"),
        ("inputs: {n: {type: string, required: 1}}\n", "E010", "inputs.n.required", "true or false"),
        ("inputs: {n: {type: string, enum: x}}\n", "E010", "inputs.n.enum", "a list"),
        ("inputs: {n: {type: string, enum: []}}\n", "E010", "inputs.n.enum", "no value would be right"),
        ("inputs: {n: {type: string, secret: yes}}\n", "E010", "inputs.n.secret", "true or false"),
        ("inputs: {n: {type: string, secret: true, default: x}}\n", "E010", "inputs.n.default", "environ"),
        ("inputs: {n: {type: string, required: true, default: x}}\n", "E012", "inputs.n.default", "never"),
        ("inputs: {n: {type: string, required: true, default: }}\n", "E012", "inputs.n.default", "never"),
    ],
)  # fmt: skip
def test_a_key_of_the_file_of_the_wrong_kind_is_refused(head: str, code: str, path: str, says: str) -> None:
    """D-61."""
    (problem,) = read(text_of(f"- {STEP}\n", head)).problems
    assert (problem.code, problem.path) == (code, path)
    assert says in problem.message


@pytest.mark.parametrize(
    ("step", "code", "part", "says"),
    [
        ("text", "E010", "", "a step must be a mapping"),
        ("{type: checkpoint}", "E010", ".name", "needs 'name'"),
        ("{name: a}", "E010", ".type", "needs 'type'"),
        ("{name: a, type: pyton}", "E010", ".type", "'python'"),
        ("{name: a, type: 3}", "E010", ".type", "'python'"),
        ("{name: A, type: checkpoint}", "E010", ".name", "small letters"),
        ("{name: 1a, type: checkpoint}", "E010", ".name", "small letters"),
        ("{name: a b, type: checkpoint}", "E010", ".name", "small letters"),
        ("{name: a, type: checkpoint, action: x}", "E010", ".action", "is not a key of a checkpoint step"),
        ("{name: a, type: checkpoint, checkpoint_id: 5}", "E010", ".checkpoint_id", "must be text"),
        ("{name: a, type: checkpoint, when: 5}", "E010", ".when", "an expression"),
        ("{name: a, type: checkpoint, when: [x]}", "E010", ".when", "an expression"),
        ("{name: a, type: checkpoint, requires: git}", "E010", ".requires", "a list"),
        ("{name: a, type: checkpoint, requires: [3]}", "E010", ".requires[0]", "a number"),
        ("{name: a, type: checkpoint, metadata: x}", "E010", ".metadata", "a mapping"),
        ("{name: a, type: checkpoint, config: x}", "E010", ".config", "a mapping"),
        ("{name: a, type: python}", "E010", ".action", "needs 'action'"),
        ("{name: a, type: python, action: [x]}", "E010", ".action", "a list"),
        ("{name: a, type: python, action: ''}", "E010", ".action", "empty"),
        ("{name: a, type: python, action: x, args: y}", "E010", ".args", "a list"),
        ("{name: a, type: python, action: x, kwargs: [y]}", "E010", ".kwargs", "a mapping"),
        ("{name: a, type: python, action: x, rollback: {}}", "E010", ".rollback", "the name of an action"),
        ("{name: a, type: python, action: x, output_schema: nodots}", "E010", ".output_schema", "a class"),
        ("{name: a, type: python, action: x, output_schema: {type: 5}}", "E010", ".output_schema", "JSON"),
        ("{name: a, type: agent}", "E010", ".agent", "needs 'agent'"),
        ("{name: a, type: agent, agent: x, context: [y]}", "E010", ".context", "a mapping"),
        ("{name: a, type: agent, agent: x, context: '${{ y }}'}", "E010", ".context", "not one text"),
        ("{name: a, type: agent, agent: x, kwargs: {}}", "E010", ".kwargs", "not a key of an agent step"),
        ("{name: a, type: generate}", "E010", ".generator", "needs 'generator'"),
        ("{name: a, type: generate, generator: x, output_schema: {}}", "E010", ".output_schema", "not a key"),
        ("{name: a, type: validate}", "E010", ".stages", "needs 'stages'"),
        ("{name: a, type: validate, stages: 3}", "E010", ".stages", "a list of stages"),
        ("{name: a, type: validate, stages: []}", "E026", ".stages", "nothing would ever be validated"),
        ("{name: a, type: validate, stages: [3]}", "E010", ".stages[0]", "a number"),
        ("{name: a, type: validate, stages: ' '}", "E010", ".stages", "empty"),
        ("{name: a, type: validate, stages: x, retry: -1}", "E010", ".retry", "0 or more"),
        ("{name: a, type: validate, stages: x, retry: true}", "E010", ".retry", "a boolean"),
        ("{name: a, type: validate, stages: x, must_pass: 1}", "E010", ".must_pass", "true or false"),
        ("{name: a, type: validate, stages: x, on_failure: [y]}", "E010", ".on_failure", "a mapping"),
        ("{name: a, type: subworkflow}", "E010", ".workflow", "needs 'workflow'"),
        ("{name: a, type: subworkflow, workflow: x, inputs: [y]}", "E010", ".inputs", "a mapping"),
        ("{name: a, type: branch}", "E010", ".options", "needs 'options'"),
        ("{name: a, type: branch, options: []}", "E026", ".options", "no options"),
        ("{name: a, type: branch, options: {}}", "E010", ".options", "a list"),
        ("{name: a, type: branch, options: [x]}", "E010", ".options[0]", "`{when, step}`"),
        ("{name: a, type: branch, options: [{when: x}]}", "E010", ".options[0].step", "needs 'step'"),
        ("{name: a, type: branch, options: [{wen: x, step: {name: b, type: checkpoint}}]}", "E010",
         ".options[0].wen", "not a key of an option"),
        ("{name: a, type: loop}", "E010", ".steps", "needs 'steps'"),
        ("{name: a, type: loop, steps: []}", "E026", ".steps", "no steps"),
        (loop("for_each: 3, "), "E010", ".for_each", "a list"),
        (loop("for_each: {}, "), "E010", ".for_each", "a list"),
        (loop("for_each: [], "), "E026", ".for_each", "never"),
        (loop("until: 3, "), "E010", ".until", "expression"),
        (loop("parallel: 3, "), "E010", ".parallel", "true"),
        (loop("max_concurrency: -1, "), "E010", ".max_concurrency", "0 or more"),
        (loop("max_iterations: 0, "), "E010", ".max_iterations", "1 or more"),
        (loop("max_iterations: 1.5, "), "E010", ".max_iterations", "a whole number"),
        (loop("on_exhausted: stop, "), "E010", ".on_exhausted", "'fail' or 'continue'"),
    ],
)  # fmt: skip
def test_a_key_of_a_step_of_the_wrong_kind_is_refused(step: str, code: str, part: str, says: str) -> None:
    """D-61: each step type's keys have a refusing test."""
    found = read(text_of(f"- {step}\n"))
    assert found.spec is None
    (problem,) = found.problems
    assert (problem.code, problem.path) == (code, f"steps[0]{part}")
    assert says in problem.message
    assert problem.place[:2] == ("flow.yaml", 4)


@pytest.mark.parametrize("name", RESERVED)
def test_the_names_of_states_every_workflow_has_are_no_names_of_steps(name: str) -> None:
    (problem,) = read(text_of(f"- {{name: {name}, type: checkpoint}}\n")).problems
    assert (problem.code, problem.path) == ("E009", "steps[0].name")


def test_names_are_unique_in_the_whole_file_bodies_included() -> None:
    found = read(
        text_of("""\
        - {name: a, type: checkpoint}
        - name: b
          type: loop
          steps:
            - {name: a, type: checkpoint}
            - name: c
              type: branch
              options: [{step: {name: b, type: checkpoint}}]
        """)
    ).problems
    assert [(one.code, one.path, one.place.line) for one in found] == [
        ("E009", "steps[1].steps[0].name", 8), ("E009", "steps[1].steps[1].options[0].step.name", 11),
    ]  # fmt: skip
    assert "line 4" in found[0].message


def test_all_problems_are_told_at_once_and_the_rest_is_kept() -> None:
    """Never only the first."""
    found = read(
        """
        version: "3.0"
        name: Bad Name
        tpyo: 1
        inputs: {n: {type: strin}}
        steps:
          - {name: a, type: pyton}
          - {name: a, type: python, acton: x}
          - {name: b, type: loop, for_each: x, until: y, steps: []}
          - {name: c, type: checkpoint, config: {mode: agnt, temperature: 3}}
        """
    )
    assert [(one.code, one.path) for one in in_order(found.problems)] == [
        ("E023", "version"), ("E010", "name"), ("E010", "tpyo"), ("E010", "inputs.n.type"),
        ("E010", "steps[0].type"), ("E010", "steps[1].action"), ("E009", "steps[1].name"),
        ("E010", "steps[1].acton"), ("E011", "steps[2].until"), ("E026", "steps[2].steps"),
        ("E020", "steps[3].config.mode"), ("E020", "steps[3].config.temperature"),
    ]  # fmt: skip
    assert found.spec is None
    assert found.partial is not None
    assert [step.name for step in found.partial.steps] == ["a", "a", "b", "c"]
    suggested = {one.path: one.suggestions for one in found.problems}
    assert suggested["steps[0].type"] == ("python",)
    assert suggested["steps[1].acton"][0] == "action"
    assert suggested["steps[3].config.mode"] == ("agent",)


def test_a_merge_key_is_no_key() -> None:
    (problem,) = read(text_of("- {name: a, type: checkpoint, <<: {when: true}}\n")).problems
    assert "merge" in problem.message
    (problem,) = read(text_of("- {name: a, type: checkpoint, '<<': {when: true}}\n")).problems
    assert problem.path == "steps[0]['<<']"


# -- configuration of steps ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "part", "says"),
    [
        ("{mode: agnt}", "mode", "deterministic or agent"),
        ("{modes: agent}", "modes", "is not a key"),
        ("{temperature: 2}", "temperature", "0.0 to 1.0"),
        ("{mode: deterministic, autonomy: approver}", "autonomy", "for agents"),
        ("{mode: deterministic, prompt_suffix: x}", "prompt_suffix", "for agents"),
        ("{mode: agent, prompt_suffix: x, prompt_file: y.md}", "prompt_suffix", "two ways"),
        ("{mode: agent, prompt_file: y.md}", "prompt_file", "cannot be read"),
        ("{max_retries: 1, retry_policy: {max_attempts: 2}}", "max_retries", "two ways"),
        ("{budget: {tokens: -1}}", "budget.tokens", "above 0"),
    ],
)
def test_a_bad_configuration_is_told_where_it_stands(
    tmp_path: Path, config: str, part: str, says: str
) -> None:
    """E020, with file, line and column of the field. D-52, D-61."""
    if "y.md" in config and "suffix" in config:
        (tmp_path / "y.md").write_text("More.")
    text = text_of(f"- name: a\n  type: python\n  action: x\n  config: {config}\n")
    found = read_workflow(text.encode(), "flow.yaml", folder=tmp_path).problems
    assert [one.code for one in found] == ["E020"]
    assert found[0].path == f"steps[0].config.{part}"
    assert found[0].place.line == 7
    assert found[0].place.column > 10
    assert says in found[0].message


def test_all_fields_of_a_configuration_are_judged_at_once() -> None:
    text = text_of("""\
    - name: a
      type: python
      action: x
      config:
        mode: agent
        temprature: 0.5
        max_tokens: 0
        shadow: 7
    """)
    found = read(text).problems
    assert [(one.path.rpartition(".")[2], one.place[1:]) for one in found] == [
        ("temprature", (9, 5)), ("max_tokens", (10, 17)), ("shadow", (11, 13)),
    ]  # fmt: skip
    assert found[0].suggestions[0] == "temperature"
    assert "Did you mean" not in found[0].message


def test_a_prompt_file_is_found_beside_the_workflow_file(tmp_path: Path) -> None:
    """D-42."""
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "more.md").write_text("Be brief.", encoding="utf-8")
    text = text_of("- {name: a, type: python, action: x, config: {mode: agent, prompt_file: more.md}}\n")
    found = read_workflow(text.encode(), str(folder / "flow.yaml"))
    assert found.spec is not None
    assert found.spec.steps[0].config.prompt_text == "Be brief."
    (problem,) = read_workflow(text.encode(), str(tmp_path / "flow.yaml")).problems
    assert (problem.code, problem.path) == ("E020", "steps[0].config.prompt_file")


@pytest.mark.parametrize("kind", ["folder", "large", "latin"])
def test_a_prompt_file_is_a_text_of_some_size(tmp_path: Path, kind: str) -> None:
    """D-42: a missing or unusable file is an error at load."""
    path = tmp_path / "more.md"
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * 70_000 if kind == "large" else b"\xe9")
    text = text_of("- {name: a, type: python, action: x, config: {mode: agent, prompt_file: more.md}}\n")
    (problem,) = read_workflow(text.encode(), "flow.yaml", folder=tmp_path).problems
    assert problem.code == "E020"


def test_the_old_name_of_config_is_read_with_a_warning() -> None:
    text = text_of("- {name: a, type: python, action: x, executor_config: {mode: agent}}\n")
    with pytest.warns(DeprecationWarning, match="executor_config"):
        spec = spec_of(text)
    assert spec.steps[0].config.mode is StepMode.AGENT


def test_both_names_of_config_are_an_error() -> None:
    text = text_of(
        "- {name: a, type: python, action: x, config: {timeout: 1}, executor_config: {timeout: 2}}\n"
    )
    (problem,) = read(text).problems
    assert (problem.code, problem.path) == ("E020", "steps[0].executor_config")


# -- many, and strange --------------------------------------------------------------------------------------


def test_a_file_of_three_thousand_steps_is_read_whole() -> None:
    text = text_of("".join(f"- {{name: s{i}, type: checkpoint}}\n" for i in range(3000)))
    spec = spec_of(text)
    assert len(spec.steps) == 3000
    assert spec.steps[-1].place.line == 3003


def test_a_file_of_mistakes_is_told_in_full_with_help_for_the_first() -> None:
    text = text_of("".join(f"- {{name: s{i}, type: checkpoint, chekpoint_id: x}}\n" for i in range(2000)))
    found = read(text).problems
    assert len(found) == 2000
    assert found[0].suggestions == ("checkpoint_id",)


def test_help_is_at_most_five_names_best_first_and_ends_some_time() -> None:
    nearest = Nearest()
    names = [f"step-{i}" for i in range(50)]
    assert nearest.of("step-7", names)[0] == "step-7"
    assert len(nearest.of("step-7", names)) == 5
    assert nearest.of("x" * 1000, names) == ()
    for _ in range(2000):
        nearest.of("step-x", names)
    assert nearest.of("step-7", names) == ()


@pytest.mark.parametrize("depth", [3, 25])
def test_loops_may_stand_in_loops(depth: int) -> None:
    body: Any = "{name: inner, type: checkpoint}"
    for level in range(depth):
        body = f"{{name: l{level}, type: loop, steps: [{body}]}}"
    spec = spec_of(text_of(f"- {body}\n"))
    assert len(list(spec.every_step())) == depth + 1


def test_loops_in_loops_without_end_are_refused_in_words() -> None:
    body = "{name: a, type: loop, steps: [" * 5000
    (problem,) = read(text_of(f"- {body}\n")).problems
    assert "levels deep" in problem.message


def test_nothing_in_a_file_is_ever_run(tmp_path: Path) -> None:
    """No tag, no class named by a dotted path, no expression is evaluated by reading."""
    mark = tmp_path / "mark"
    text = text_of(f"""\
    - name: a
      type: python
      action: "__import__('os').system('touch {mark}')"
      output_schema: os.system
      when: "__import__('os').system('touch {mark}')"
      kwargs: {{x: "${{{{ __import__('os').system('touch {mark}') }}}}"}}
    """)
    read(text)
    read(f'!!python/object/apply:os.system ["touch {mark}"]')
    assert not mark.exists()
