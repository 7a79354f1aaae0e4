"""Drawings of workflows: legible as text, well-formed as Mermaid, whatever the file says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.authoring.problem import Place
from detent.flows.workflow.drawing import ascii, mermaid
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.search_path import SHIPPED
from detent.flows.workflow.spec import (
    BranchStep,
    CheckpointStep,
    LoopStep,
    Option,
    PythonStep,
    StepSpec,
    ValidateStep,
    WorkflowSpec,
)

EVERYTHING = r"""
version: "1.0"
name: everything
description: Every kind of step there is.
inputs:
  paths: {type: array}
  mood: {type: string, required: false}
  n: {type: integer, default: 3}
  key: {type: string, secret: true}
steps:
  - name: end
    type: python
    action: subgraph
    when: "inputs.mood == 'end'"
    requires: [git, "command:jq"]
    rollback: restore_file
  - name: outer
    type: loop
    for_each: "${{ inputs.paths }}"
    parallel: true
    steps:
      - {name: look, type: agent, agent: reviewer, context: {a: 1}}
      - name: inner
        type: loop
        until: steps.try.output.ok
        max_iterations: 7
        on_exhausted: continue
        steps:
          - {name: try, type: python, action: run_command}
          - name: choose
            type: branch
            options:
              - {when: "index > 1", step: {name: good, type: checkpoint}}
              - {when: "index > 2", step: {name: sub, type: subworkflow, workflow: data-import}}
              - step:
                  name: together
                  type: loop
                  steps: [{name: one, type: python, action: a}, {name: two, type: python, action: b}]
  - name: check
    type: validate
    stages: [format, lint]
    retry: "${{ inputs.n }}"
    must_pass: false
    on_failure: {name: fix, type: python, action: apply_fixes}
  - {name: write, type: generate, generator: change_summary, when: "${{ inputs.mood }}"}
  - name: narrow
    type: loop
    for_each: "[1, 2, 3]"
    max_concurrency: 3
    steps: [{name: alone, type: checkpoint, checkpoint_id: "at-${{ index }}"}]
  - {name: last, type: validate, stages: inputs.paths, retry: 2}
outputs: {a: "${{ steps.write.output }}", b: "${{ inputs.n }}"}
"""
PATH = {
    "end": "skipped",
    "outer": "failed",
    "outer/[0]/look": "ok",
    "outer/[1]/look": "ok",
    "outer/[0]/inner": "ok",
    "outer/[1]/inner": "failed",
    "outer/[0]/inner/[0]/try": "ok",
    "outer/[0]/inner/[1]/try": "ok",
    "outer/[1]/inner/[0]/try": "failed",
    "outer/[1]/inner/[0]": "failed",
    "outer/[0]/inner/[1]/choose": "ok",
    "outer/[0]/inner/[1]/choose/good": "ok",
}
HERE = Place("x.yaml", 1)


def spec_of(text: str) -> WorkflowSpec:
    read = read_workflow(text.encode(), "x.yaml", folder=Path("."))
    assert read.spec is not None, read.problems
    return read.spec


def made(*steps: StepSpec, **more) -> WorkflowSpec:
    return WorkflowSpec("made", steps, HERE, **more)


def python(name: str, **more) -> PythonStep:
    return PythonStep(name, HERE, f"steps.{name}", **{"action": "act", **more})


# -- text ---------------------------------------------------------------------------------------------------


def test_every_kind_of_step_is_told_in_one_tree():
    """D-78: loops, branches, validation, subworkflows, conditions, rollbacks, prerequisites."""
    assert ascii(spec_of(EVERYTHING)) == (
        """\
everything  6 steps, 11 more inside
│ Every kind of step there is.
│ inputs: paths, mood?, n = 3, key (secret)
│
├─ end     python subgraph
│      when inputs.mood == 'end'
│      requires git, command:jq
│      rollback restore_file
├─ outer   loop for each of inputs.paths, in parallel
│  ├─ look   agent reviewer
│  └─ inner  loop until steps.try.output.ok, at most 7 passes, then go on
│     ├─ try     python run_command
│     └─ choose  branch
│        ├─ if index > 1
│        │  └─ good  checkpoint
│        ├─ else if index > 2
│        │  └─ sub  subworkflow data-import
│        └─ else
│           └─ together  loop all in parallel
│              ├─ one  python a
│              └─ two  python b
├─ check   validate format, lint (may fail)
│  └─ on failure, up to inputs.n times
│     └─ fix  python apply_fixes
├─ write   generate change_summary
│      when inputs.mood
├─ narrow  loop for each of [1, 2, 3], 3 at a time
│  └─ alone  checkpoint at-${{ index }}
└─ last    validate inputs.paths
       again up to 2 times
outputs: a, b
"""
    )


def test_a_runs_path_is_marked_with_what_became_of_each_step_and_how_often():
    """D-78: `viz --run`."""
    drawn = ascii(spec_of(EVERYTHING), PATH)
    for line in (
        "├─ – end     python subgraph",
        "├─ ✗ outer   loop (2 iterations) for each of inputs.paths, in parallel",
        "│  ├─ ✓ look   agent (✓2) reviewer",
        "│  └─ ✗ inner  loop (3 iterations) until steps.try.output.ok, at most 7 passes, then go on",
        "│     ├─ ✗ try     python (✓2 ✗1) run_command",
        "│     └─ ✓ choose  branch",
        "│        │  └─ ✓ good  checkpoint",
        "│        │  └─ · sub  subworkflow data-import",
        "├─ · check   validate format, lint (may fail)",
        "✓ taken   – skipped   ✗ failed   ▶ under way   · not reached",
    ):
        assert line in drawn.splitlines()


def test_a_run_that_began_and_did_nothing_yet_reached_nothing():
    drawn = ascii(made(python("a")), {})
    assert "└─ · a  python act" in drawn
    assert "└─ ▶ a  python act" in ascii(made(python("a")), {"a": "waiting"})


def test_wide_texts_are_cut_to_the_columns_there_are():
    condition = " and ".join(f"inputs.a{number} == 'value'" for number in range(20))
    wide = made(python("a", when=condition), python("b", when="inputs.日本 == '日本語の長いテキスト' " * 9))
    for width in (40, 100):
        lines = ascii(wide, width=width).splitlines()
        assert sum(line.endswith("…") for line in lines) == 2
        assert all(len(line) <= width for line in lines)
    assert len(condition) > 200


def test_what_a_terminal_would_obey_is_not_drawn():
    drawn = ascii(made(python("a", action="x\x1b[31m\nred\u202e", when="inputs.a == '\n\t'")))
    assert "\x1b" not in drawn
    assert "\u202e" not in drawn
    assert len(drawn.splitlines()) == 3


def test_what_stands_too_deep_is_counted():
    step: StepSpec = python("leaf")
    for number in range(300):
        step = LoopStep(f"l{number}", HERE, "steps", steps=(step,))
    drawn = ascii(made(step), width=200)
    assert "… 289 more steps, not drawn" in drawn
    assert "289 more steps" in mermaid(made(step))


# -- Mermaid ------------------------------------------------------------------------------------------------

LABEL = r'"(?:[^"\W]|_|[ ,✓✗–▶·…]|#\d+;|<br/>)*"'
ID = r"(?:begin|finish|n\d+|loop\d+)"
OPENED = r"(?:\(\[|\[\[|\[\(|\{\{|\[|\(|\{)"
CLOSED = r"(?:\]\)|\]\]|\)\]|\}\}|\]|\)|\})"
LINES = re.compile(
    r"\s+(?:"
    + "|".join(
        (
            rf"{ID}{OPENED}{LABEL}{CLOSED}",
            rf"subgraph {ID}\[{LABEL}\]",
            r"direction (?:TB|LR)",
            r"end",
            rf"{ID} (?:-->|-\.->)(?:\|{LABEL}\|)? {ID}",
            r"classDef [a-zA-Z]+ [-a-zA-Z0-9:#, ]+",
            rf"class {ID}(?:,{ID})* [a-zA-Z]+",
        )
    )
    + ")"
)


def checked(text: str) -> str:
    """The text, if every line is one that Mermaid knows, frames are closed, and arrows join what is there."""
    head, rest = text.split("flowchart ", 1)
    assert re.fullmatch(r'---\ntitle: "[^"\\\n]*"\n---\n', head)
    direction, *lines = rest.rstrip("\n").split("\n")
    assert direction in ("TD", "LR")
    declared: list[str] = []
    depth = 0
    for line in lines:
        assert LINES.fullmatch(line), line
        word = line.split()[0]
        if word == "subgraph":
            depth += 1
            declared.append(line.split()[1].split("[")[0])
        elif word == "end":
            depth -= 1
            assert depth >= 0
        elif (node := re.match(rf"\s+({ID}){OPENED}", line)) is not None:
            declared.append(node.group(1))
        elif (arrow := re.match(rf"\s+({ID}) -.*> ({ID})$", line)) is not None or (
            arrow := re.match(rf"\s+({ID}) -\S+\|.*\| ({ID})$", line)
        ) is not None:
            assert arrow.group(1) in declared
            assert arrow.group(2) in declared
    assert depth == 0
    assert len(declared) == len(set(declared))
    return text


def arrows(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "->" in line]


def test_loops_are_frames_branches_are_diamonds_and_the_rest_boxes():
    """D-78."""
    drawn = checked(mermaid(spec_of(EVERYTHING)))
    for line in (
        "flowchart TD",
        'begin(["everything"])',
        'subgraph loop2["outer · for each of inputs#46;paths, in parallel"]',
        'subgraph loop4["inner · at most 7 passes, then go on"]',
        'n6{"choose<br/>branch"}',
        'n7[("good<br/>checkpoint")]',
        'n8[["sub<br/>subworkflow#58; data#45;import"]]',
        'n12{"until<br/>steps#46;try#46;output#46;ok<br/>else again"}',
        'n14["fix<br/>python#58; apply#95;fixes"]',
        'finish(["succeeded"])',
    ):
        assert line in [one.strip() for one in drawn.splitlines()]
    assert 'n6 -->|"index #62; 1"| n7' in arrows(drawn)
    assert 'n6 -->|"else"| loop9' in arrows(drawn)
    assert 'n14 -.->|"again, up to inputs#46;n<br/>times"| n13' in arrows(drawn)
    assert "n3 --> loop4" in arrows(drawn)
    assert checked(mermaid(spec_of(EVERYTHING), "LR")).count("direction LR") == 4


def test_a_branch_without_else_goes_on_past_its_options():
    branch = BranchStep("b", HERE, "steps[0]", options=(Option(python("x"), "inputs.a"),))
    assert arrows(checked(mermaid(made(branch, python("y"))))) == [
        "begin --> n1",
        'n1 -->|"inputs#46;a"| n2',
        "n2 --> n3",
        'n1 -->|"else"| n3',
        "n3 --> finish",
    ]


def test_a_loop_with_a_condition_leads_back_where_nothing_is_in_the_way():
    plain = LoopStep("l", HERE, "steps[0]", steps=(python("a"), python("b")), until="steps.b.output")
    assert 'n4 -.->|"not yet"| n2' in arrows(checked(mermaid(made(plain))))
    nested = LoopStep("m", HERE, "steps[0]", steps=(plain,), until="steps.l.output")
    assert 'else again"}' in checked(mermaid(made(nested)))


def test_mending_that_loops_is_not_led_back_from():
    loop = LoopStep("l", HERE, "", steps=(python("a"),), for_each=[1])
    step = ValidateStep("v", HERE, "", stages=("test",), on_failure=loop)
    assert 'n1 -->|"fails#59; again, up to 3<br/>times"| loop2' in arrows(checked(mermaid(made(step))))


def test_steps_side_by_side_have_no_arrows_between_them():
    loop = LoopStep("l", HERE, "", steps=(python("a"), python("b")))
    assert arrows(checked(mermaid(made(loop)))) == ["begin --> loop1", "loop1 --> finish"]


def test_a_runs_path_colours_what_it_reached():
    drawn = checked(mermaid(spec_of(EVERYTHING), "TD", PATH))
    assert 'n1["– end<br/>' in drawn
    assert "class n1 skipped" in drawn
    assert "class loop2,loop4 failedFrame" in drawn
    assert "class n5 failed" in drawn
    assert "class n3,n6,n7 ok" in drawn
    assert "class n15 sometimes" in drawn  # not reached, and skipped at times


@pytest.mark.parametrize(
    "text",
    [
        'say "hello" [now] {then} (after) | end',
        "end",
        "subgraph x",
        "a --> b; c -.-> d",
        "1. first",
        "- item",
        "`**bold**`",
        "#35; &amp; <script>alert(1)</script>",
        "%% comment\n%%{init: {}}%%",
        "日本語 ünïcode \U0001f600 \u202e",
        " and ".join(f"inputs.n{number} == '{number}'" for number in range(12)),
        "x" * 200,
        "\\",
        "",
    ],
)
def test_no_text_of_the_file_means_anything_to_mermaid(text):
    """D-78."""
    branch = BranchStep("b", HERE, "", options=(Option(python("x", action=text), text),))
    loop = LoopStep("l", HERE, "", steps=(branch,), for_each=text, when=text)
    until = LoopStep("u", HERE, "", steps=(CheckpointStep("c", HERE, "", checkpoint_id=text),), until=text)
    spec = made(loop, until, python("y", when=text, requires=(text,), rollback=text), description=text)
    checked(mermaid(spec, "LR", {"l": text}))
    ascii(spec, {"l": text})


@given(st.text(max_size=60), st.text(max_size=300))
def test_whatever_a_file_says_the_drawing_is_well_formed(one, two):
    branch = BranchStep("b", HERE, "", options=(Option(python("x", action=one), two),))
    step = ValidateStep("v", HERE, "", stages=(one, two), retry=two, on_failure=python("m", when=two))
    checked(mermaid(made(branch, step)))
    assert all(len(line) <= 100 for line in ascii(made(branch, step)).splitlines())


def test_the_shipped_workflows_are_drawn():
    for file in sorted(SHIPPED.glob("*.yaml")):
        spec = spec_of(file.read_text(encoding="utf-8"))
        for direction in ("TD", "LR"):
            checked(mermaid(spec, direction))
        assert ascii(spec).startswith(spec.name)
