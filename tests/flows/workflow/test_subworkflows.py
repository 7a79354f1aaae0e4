"""Subworkflows: another file as a child run, with inputs, a result, and everything told with its path."""

from __future__ import annotations

from typing import Any

import pytest

from detent.flows.workflow.events import StepCompleted, WorkflowCompleted, WorkflowStarted
from detent.kernel.entries import Started
from detent.kernel.status import Status
from tests.flows.workflow.workshop import Workshop, flow

OTHER = """
- {name: a, type: python, action: put, kwargs: {text: "${{ inputs.text }}"}}
- {name: b, type: python, action: give, kwargs: {value: ["${{ inputs.times }}", "${{ inputs.maybe }}"]}}
"""
TAKES = """
inputs:
  text: {type: string}
  times: {type: integer, default: 2}
  maybe: {type: string, required: false}
"""


@pytest.fixture
def other(workshop: Workshop) -> Workshop:
    workshop.files["other"] = flow(OTHER, TAKES, "other")
    return workshop


async def test_a_subworkflow_gives_what_its_file_gives(other: Workshop) -> None:
    """D-61."""
    ran = await other.run(
        flow(
            """
            - name: sub
              type: subworkflow
              workflow: other
              inputs: {text: "x${{ inputs.n }}", times: "${{ inputs.n }}"}
            - {name: after, type: python, action: give, kwargs: {value: "${{ steps.sub.output[0] }}"}}
            """,
            "inputs: {n: {type: integer}}",
        ),
        {"n": 7},
    )
    assert ran.step("sub").output == [7, None]
    assert ran.result.final_output == 7
    assert ran.effects == [("put", "x7")]
    assert set(ran.journals) == {"r", "r.sub"}
    (started,) = [entry.body for entry in ran.journals["r.sub"] if isinstance(entry.body, Started)]
    assert (started.parent, started.data["inputs"]) == ("r", {"text": "x7", "times": 7, "maybe": None})
    assert started.machine == "other"


async def test_the_outputs_of_the_child_are_its_result(workshop: Workshop) -> None:
    workshop.files["other"] = flow(
        "- {name: a, type: python, action: give, kwargs: {value: 3}}",
        'outputs: {three: "${{ steps.a.output }}"}',
        "other",
    )
    ran = await workshop.run(flow("- {name: sub, type: subworkflow, workflow: other}"))
    assert ran.result.final_output == {"three": 3}


async def test_inputs_that_do_not_fit_fail_the_step_with_all_of_them(other: Workshop) -> None:
    """D-61."""
    ran = await other.run(
        flow(
            """
            - name: sub
              type: subworkflow
              workflow: other
              inputs: {text: "${{ inputs.x }}", times: "${{ inputs.y }}"}
            """,
            "inputs: {x: {type: integer}, y: {type: string}}",
        ),
        {"x": 5, "y": "many"},
    )
    error = ran.step("sub").error or ""
    assert "text" in error
    assert "times" in error
    assert list(ran.journals) == ["r"]


async def test_a_child_that_fails_fails_the_step_and_its_doings_are_undone_once_by_the_root(
    workshop: Workshop,
) -> None:
    """D-69."""
    workshop.files["other"] = flow(
        """
        - {name: a, type: python, action: put, kwargs: {text: inner}}
        - {name: b, type: python, action: boom, kwargs: {say: no good}}
        """,
        name="other",
    )
    ran = await workshop.run(
        flow("""
        - {name: first, type: python, action: put, kwargs: {text: outer}}
        - {name: sub, type: subworkflow, workflow: other}
        """)
    )
    error = ran.step("sub").error or ""
    assert "SubworkflowError" in error
    assert "'other'" in error
    assert "no good" in error
    assert ran.effects == [("put", "outer"), ("put", "inner"), ("take", "inner"), ("take", "outer")]
    states = {run_id: [e.body for e in entries][-1].status for run_id, entries in ran.journals.items()}
    assert states["r.sub"] is Status.FAILED


async def test_what_a_child_did_is_undone_when_the_parent_fails_later(other: Workshop) -> None:
    ran = await other.run(
        flow("""
        - {name: sub, type: subworkflow, workflow: other, inputs: {text: inner}}
        - {name: bad, type: python, action: boom}
        """)
    )
    assert ran.effects == [("put", "inner"), ("take", "inner")]


async def test_the_same_file_may_be_run_by_many_steps_and_in_loops(other: Workshop) -> None:
    ran = await other.run(
        flow("""
        - {name: one, type: subworkflow, workflow: other, inputs: {text: one}}
        - name: each
          type: loop
          for_each: [x, y]
          steps: [{name: two, type: subworkflow, workflow: other, inputs: {text: "${{ item }}"}}]
        """)
    )
    assert ran.effects == [("put", "one"), ("put", "x"), ("put", "y")]
    assert set(ran.journals) == {"r", "r.one", "r.each[0]", "r.each[0].two", "r.each[1]", "r.each[1].two"}
    assert ran.step("each/[1]/two/a").output["text"] == "y"


async def test_eight_files_deep_is_allowed(workshop: Workshop) -> None:
    for depth in range(1, 8):
        workshop.files[f"w{depth}"] = flow(
            f"- {{name: s{depth}, type: subworkflow, workflow: w{depth + 1}}}", name=f"w{depth}"
        )
    workshop.files["w8"] = flow("- {name: end, type: python, action: give, kwargs: {value: deep}}", name="w8")
    ran = await workshop.run(flow("- {name: s0, type: subworkflow, workflow: w1}"))
    assert ran.result.final_output == "deep"
    assert ran.step("s0/s1/s2/s3/s4/s5/s6/s7/end").status == "ok"


async def test_events_of_a_child_carry_the_path_of_the_step_that_ran_it(other: Workshop) -> None:
    """D-77."""
    ran = await other.run(flow("- {name: sub, type: subworkflow, workflow: other, inputs: {text: x}}"))
    begun = [(one.workflow_name, one.step_path, one.run_id) for one in ran.told(WorkflowStarted)]
    assert begun == [("flow", "", "r"), ("other", "sub", "r.sub")]
    ended = [(one.workflow_name, one.step_path, one.success) for one in ran.told(WorkflowCompleted)]
    assert ended == [("other", "sub", True), ("flow", "", True)]
    assert [one.step_path for one in ran.told(StepCompleted)] == ["sub/a", "sub/b", "sub"]


async def test_a_child_sees_neither_steps_nor_items_of_its_parent(workshop: Workshop) -> None:
    workshop.files["other"] = flow("- {name: a, type: python, action: give}", name="other")
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: give, kwargs: {value: secretly}}
        - name: each
          type: loop
          for_each: [1]
          steps: [{name: sub, type: subworkflow, workflow: other}]
        """)
    )
    data: Any = ran.journals["r.each[0].sub"][0].body.data
    assert data == {"inputs": {}}


async def test_a_step_of_a_child_may_go_by_the_name_of_one_of_its_parent(workshop: Workshop) -> None:
    workshop.files["other"] = flow(
        "- {name: a, type: python, action: put, kwargs: {text: child}}", name="other"
    )
    ran = await workshop.run(
        flow("""
        - {name: sub, type: subworkflow, workflow: other}
        - {name: a, type: python, action: put, kwargs: {text: parent}}
        - {name: bad, type: python, action: boom}
        """)
    )
    assert ran.effects[2:] == [("take", "parent"), ("take", "child")]
