"""What a run came to, as its journals tell it: each step, and the whole."""

from __future__ import annotations

from typing import Any

import pytest

from detent.flows.workflow.errors import RollbackError
from detent.flows.workflow.results import StepResult, WorkflowResult, path_taken
from detent.kernel.plain import decode, encode
from detent.kernel.status import Status
from tests.flows.workflow.workshop import Workshop, flow


def test_a_failure_has_an_error_and_nothing_else_has_one() -> None:
    """D-61."""
    failed = StepResult("a", "python", "a", "failed", error="ValueError: no")
    assert not failed.success
    assert StepResult("a", "python", "a", "ok").success
    assert StepResult("a", "python", "a", "skipped").success
    for status, error in (("failed", None), ("failed", ""), ("ok", "no"), ("skipped", "no")):
        with pytest.raises(ValueError, match="a failure has an error"):
            StepResult("a", "python", "a", status, error=error)  # type: ignore[arg-type]


def test_a_workflow_succeeded_only_at_its_good_end() -> None:
    for status in Status:
        assert WorkflowResult("flow", "r", status, (), 0.0).success is (status is Status.SUCCEEDED)


def test_results_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        StepResult("a", "python", "a", "ok").output = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        WorkflowResult("flow", "r", Status.FAILED, (), 0.0).status = Status.SUCCEEDED  # type: ignore[misc]


async def test_a_result_says_everything_about_a_run(workshop: Workshop) -> None:
    """D-61."""
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: stick, kwargs: {text: a}}
        - name: each
          type: loop
          for_each: [x]
          steps: [{name: b, type: python, action: put, kwargs: {text: "${{ item }}"}}]
        - {name: c, type: python, action: give, when: "false"}
        - {name: bad, type: python, action: boom, kwargs: {say: torn}}
        - {name: never, type: python, action: give}
        """)
    )
    result = ran.result
    assert (result.workflow_name, result.run_id, result.status) == ("flow", "r", Status.FAILED)
    assert [(one.name, one.step_type, one.path, one.status) for one in result.step_results] == [
        ("a", "python", "a", "ok"),
        ("b", "python", "each/[0]/b", "ok"),
        ("each", "loop", "each", "ok"),
        ("c", "python", "c", "skipped"),
        ("bad", "python", "bad", "failed"),
    ]
    assert result.final_output is None
    assert "torn" in (result.error or "")
    assert [type(one) for one in result.rollback_errors] == [RollbackError]
    assert result.total_duration_ms > 0
    plain = decode(encode(result.to_plain()))
    assert plain["success"] is False
    assert plain["rollback_errors"][0]["step_name"] == "a"
    assert plain["step_results"][4]["error"] == result.step_results[4].error
    assert set(plain["step_results"][0]) == {
        "name", "step_type", "path", "status", "success", "output", "duration_ms", "error", "dispatch",
    }  # fmt: skip


async def test_each_kind_of_step_says_what_it_is(workshop: Workshop) -> None:
    """D-61."""
    workshop.files["other"] = flow("- {name: inside, type: python, action: give}", name="other")
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: give}
        - {name: b, type: validate, stages: [good]}
        - {name: c, type: subworkflow, workflow: other}
        - {name: d, type: branch, options: [{when: "false", step: {name: d1, type: python, action: give}}]}
        - {name: e, type: loop, for_each: [1], steps: [{name: e1, type: python, action: give}]}
        - {name: f, type: checkpoint}
        """)
    )
    kinds = {one.path: one.step_type for one in ran.result.step_results if "/" not in one.path}
    assert kinds == {
        "a": "python", "b": "validate", "c": "subworkflow", "d": "branch", "e": "loop", "f": "checkpoint",
    }  # fmt: skip


async def test_a_run_under_way_has_a_result_as_far_as_it_is(workshop: Workshop) -> None:
    from detent.flows.workflow.results import workflow_result

    async with workshop.under_way(
        flow("""
        - {name: a, type: python, action: give, kwargs: {value: 1}}
        - name: each
          type: loop
          for_each: [x]
          steps:
            - {name: b, type: python, action: give, kwargs: {value: 2}}
            - {name: c, type: python, action: meet, kwargs: {name: x}}
        """)
    ) as engine:
        await workshop.until_inside("x")
        result = await workflow_result(engine, "r")
        workshop.door("x").set()
    assert result.status is Status.RUNNING
    assert [(one.path, one.output) for one in result.step_results] == [("a", 1), ("each/[0]/b", 2)]


async def test_times_of_steps_are_those_of_the_engines_clock(workshop: Workshop) -> None:
    from detent.testing.clock import HandClock

    clock = HandClock()
    async with workshop.under_way(
        flow("- {name: a, type: python, action: meet, kwargs: {name: x}}"), engine={"clock": clock}
    ) as engine:
        await workshop.until_inside("x")
        await clock.turn(2.5)
        workshop.door("x").set()
        ran = await workshop.finished(engine)
    assert ran.step("a").duration_ms == 2500.0
    assert ran.result.total_duration_ms == 2500.0


async def test_who_performed_a_step_stands_in_its_result(workshop: Workshop) -> None:
    ran: Any = await workshop.run(flow("- {name: a, type: python, action: give}"), force_deterministic=True)
    assert ran.step("a").dispatch["mode_used"] == "deterministic"
    assert ran.step("a").dispatch["forced"] is True


async def test_the_path_of_a_run_goes_through_branches_inside_branches(workshop: Workshop) -> None:
    spec = workshop.spec(
        flow("""
        - name: outer
          type: branch
          options:
            - step:
                name: inner
                type: branch
                options: [{step: {name: leaf, type: python, action: give}}]
        - name: second
          type: branch
          options: [{step: {name: never, type: python, action: give, when: "false"}}]
        """)
    )
    async with workshop.under_way(spec) as engine:
        await engine.finish("r")
        statuses = await path_taken(engine.store, spec, "r")
    assert statuses == {
        "outer": "ok", "outer/inner": "ok", "outer/inner/leaf": "ok", "second": "ok",
        "second/never": "skipped",
    }  # fmt: skip
