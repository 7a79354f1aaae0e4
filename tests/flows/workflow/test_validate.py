"""Validate steps: stages in order, mended and run again while they fail, never passed by doing nothing."""

from __future__ import annotations

import pytest

from detent.flows.workflow.events import LoopIterationStarted, StepOutput
from detent.kernel.entries import Held
from detent.kernel.status import Status
from detent.stores import SQLiteStore
from detent.testing.clock import HandClock
from tests.flows.workflow.workshop import Workshop, flow


def check(more: str) -> str:
    return flow(f"- {{name: check, type: validate, {more}}}")


# -- stages -------------------------------------------------------------------------------------------------


async def test_stages_that_pass_give_success(workshop: Workshop) -> None:
    """D-61, D-70."""
    ran = await workshop.run(check("stages: [good, flaky]"))
    assert ran.step("check").output == {
        "success": True,
        "stages": ["good", "flaky"],
        "stage_results": [
            {"name": "good", "status": "passed", "exit_code": 0, "output": "good says 0", "duration_ms": 1.0},
            {
                "name": "flaky",
                "status": "passed",
                "exit_code": 0,
                "output": "flaky says 0",
                "duration_ms": 1.0,
            },
        ],
        "attempts": 1,
    }
    assert workshop.stages_run == ["good", "flaky"]


async def test_after_a_failure_the_rest_are_not_run(workshop: Workshop) -> None:
    """D-70."""
    ran = await workshop.run(check("stages: [good, bad, flaky, idle], must_pass: false"))
    output = ran.step("check").output
    assert [one["status"] for one in output["stage_results"]] == ["passed", "failed", "not_run", "not_run"]
    assert workshop.stages_run == ["good", "bad"]
    assert (output["success"], output["attempts"]) == (False, 1)


async def test_stages_that_fail_fail_the_step(workshop: Workshop) -> None:
    """D-61, D-70."""
    ran = await workshop.run(check("stages: [bad]"))
    assert ran.run.status is Status.FAILED
    error = ran.step("check").error or ""
    assert "bad failed" in error
    assert workshop.stages_run == ["bad"]


async def test_where_it_need_not_pass_the_run_goes_on_with_what_failed(workshop: Workshop) -> None:
    """D-61, D-70."""
    ran = await workshop.run(
        flow("""
        - {name: check, type: validate, stages: [bad], must_pass: false}
        - {name: after, type: python, action: give, kwargs: {value: "${{ steps.check.output.success }}"}}
        """)
    )
    assert ran.result.success
    assert ran.step("check").status == "ok"
    assert ran.result.final_output is False


async def test_a_stage_without_a_command_is_skipped_with_a_warning(workshop: Workshop) -> None:
    """D-70."""
    ran = await workshop.run(check("stages: [idle, good]"))
    assert [one["status"] for one in ran.step("check").output["stage_results"]] == ["skipped", "passed"]
    (told,) = ran.told(StepOutput)
    assert (told.level, told.step_name, told.step_path) == ("warning", "check", "check")
    assert "'idle'" in told.message


@pytest.mark.parametrize("stages", ["[idle]", "'${{ inputs.none }}'"])
async def test_it_never_passes_when_nothing_was_validated(workshop: Workshop, stages: str) -> None:
    """D-70: and the warnings are told all the same."""
    head = "inputs: {none: {type: array, default: []}}"
    ran = await workshop.run(flow(f"- {{name: check, type: validate, stages: {stages}}}", head))
    assert "nothing was validated" in (ran.step("check").error or "")
    assert [one.level for one in ran.told(StepOutput)] == (["warning"] if "idle" in stages else [])
    text = flow(f"- {{name: check, type: validate, stages: {stages}, must_pass: false}}", head)
    ran = await workshop.run(text)
    assert ran.step("check").output["success"] is False


async def test_stages_may_be_an_expression(workshop: Workshop) -> None:
    for said in ("inputs.which", "${{ inputs.which }}"):
        text = flow(f"- {{name: check, type: validate, stages: '{said}'}}", "inputs: {which: {type: array}}")
        ran = await workshop.run(text, {"which": ["flaky", "good"]})
        assert ran.step("check").output["stages"] == ["flaky", "good"]


@pytest.mark.parametrize("which", [["good", "nowhere"], "good", [1], None])
async def test_stages_that_are_no_list_of_known_names_fail_the_step(
    workshop: Workshop, which: object
) -> None:
    text = flow("- {name: check, type: validate, stages: inputs.o.which}", "inputs: {o: {type: object}}")
    ran = await workshop.run(text, {"o": {"which": which}})
    assert ran.step("check").status == "failed"
    assert workshop.stages_run == []


async def test_a_stage_named_twice_is_run_twice(workshop: Workshop) -> None:
    workshop.stage_codes["flaky"] = [0, 1]
    ran = await workshop.run(check("stages: [flaky, good, flaky], must_pass: false"))
    assert [one["status"] for one in ran.step("check").output["stage_results"]] == [
        "passed", "passed", "failed",
    ]  # fmt: skip


# -- mending ------------------------------------------------------------------------------------------------

MEND = "on_failure: {name: mend, type: python, action: put, kwargs: {text: mended}}"


async def test_on_failure_is_called_before_each_run_after_the_first(workshop: Workshop) -> None:
    """D-70."""
    workshop.stage_codes["flaky"] = [1, 1, 0]
    ran = await workshop.run(check(f"stages: [good, flaky], {MEND}"))
    output = ran.step("check").output
    assert (output["success"], output["attempts"]) == (True, 3)
    assert workshop.stages_run == ["good", "flaky"] * 3
    assert ran.effects == [("put", "mended")] * 2
    assert set(ran.journals) == {"r", "r.check[0]", "r.check[1]"}
    assert [one.path for one in ran.result.step_results] == [
        "check/[0]/mend", "check/[1]/mend", "check",
    ]  # fmt: skip


async def test_with_on_failure_three_more_runs_are_made_where_the_file_does_not_say(
    workshop: Workshop,
) -> None:
    """D-70."""
    ran = await workshop.run(check(f"stages: [bad], {MEND}"))
    assert len(workshop.stages_run) == 4
    assert "after 4 runs" in (ran.step("check").error or "")
    assert ran.effects == [("put", "mended")] * 3 + [("take", "mended")] * 3


@pytest.mark.parametrize(
    ("retry", "runs"), [("inputs.zero", 1), ("1", 2), ("'${{ inputs.n }}'", 3), ("inputs.n", 3)]
)
async def test_retry_says_how_many_more_runs_are_made(workshop: Workshop, retry: str, runs: int) -> None:
    text = flow(
        f"- {{name: check, type: validate, stages: [bad], must_pass: false, retry: {retry}, {MEND}}}",
        "inputs: {n: {type: integer, default: 2}, zero: {type: integer, default: 0}}",
    )
    ran = await workshop.run(text)
    assert ran.step("check").output["attempts"] == runs
    assert len(workshop.stages_run) == runs


@pytest.mark.parametrize("value", [-1, True, "two", 1.5])
async def test_a_retry_that_is_no_number_of_runs_fails_the_step(workshop: Workshop, value: object) -> None:
    text = flow(
        f"- {{name: check, type: validate, stages: [bad], retry: inputs.o.n, {MEND}}}",
        "inputs: {o: {type: object}}",
    )
    ran = await workshop.run(text, {"o": {"n": value}})
    assert "retry" in (ran.step("check").error or "")
    assert workshop.stages_run == []


async def test_stages_that_pass_at_once_need_no_mending(workshop: Workshop) -> None:
    ran = await workshop.run(check(f"stages: [good], {MEND}"))
    assert ran.step("check").output["attempts"] == 1
    assert ran.effects == []


async def test_mending_that_fails_fails_the_step(workshop: Workshop) -> None:
    ran = await workshop.run(
        check("stages: [bad], on_failure: {name: mend, type: python, action: boom, kwargs: {say: no glue}}")
    )
    assert "no glue" in (ran.step("check").error or "")
    assert workshop.stages_run == ["bad"]


async def test_mending_may_be_passed_over_and_sees_what_is_around_it(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: each
          type: loop
          for_each: [x, y]
          steps:
            - {name: before, type: python, action: give, kwargs: {value: "b${{ item }}"}}
            - name: check
              type: validate
              stages: [bad]
              retry: 1
              must_pass: false
              on_failure:
                name: mend
                type: python
                action: put
                when: item == 'y'
                kwargs: {text: "${{ steps.before.output }}${{ index }}"}
        """)
    )
    assert ran.result.success
    assert ran.effects == [("put", "by1")]
    assert ran.step("each/[0]/check/[0]/mend").status == "skipped"
    # Mending is no iteration of the loop it stands in.
    assert [one.step_path for one in ran.told(LoopIterationStarted)] == ["each/[0]", "each/[1]"]


# -- waiting ------------------------------------------------------------------------------------------------


async def test_without_on_failure_it_waits_a_second_doubling_to_sixty(workshop: Workshop) -> None:
    """D-70: as holds, which outlive the process."""
    clock = HandClock()
    waits: list[float] = []
    async with workshop.under_way(
        check("stages: [bad], retry: 8, must_pass: false"), engine={"clock": clock}
    ) as engine:
        for _ in range(8):
            await clock.settle()
            run = await engine.get("r")
            assert run.status is Status.WAITING
            (held,) = run.holds.values()
            assert held.wake_at is not None
            waits.append(held.wake_at - clock.now())
            await clock.turn(waits[-1])
        await clock.settle()
        ran = await workshop.finished(engine)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert ran.step("check").output["attempts"] == 9
    assert len(workshop.stages_run) == 9
    assert len([entry for entry in ran.journals["r"] if isinstance(entry.body, Held)]) == 8


async def test_a_wait_ends_when_stages_pass(workshop: Workshop) -> None:
    workshop.stage_codes["flaky"] = [1, 0]
    clock = HandClock()
    async with workshop.under_way(
        check("stages: [good, flaky], retry: 5"), engine={"clock": clock}
    ) as engine:
        await clock.turn(1)
        ran = await workshop.finished(engine)
    assert ran.step("check").output["attempts"] == 2
    assert workshop.stages_run == ["good", "flaky"] * 2


async def test_a_run_put_down_while_it_waits_runs_no_stage_again_that_it_has_run(workshop: Workshop) -> None:
    workshop.stage_codes["flaky"] = [1, 0]
    text, path = check("stages: [good, flaky], retry: 1"), workshop.folder / "runs.db"
    clock = HandClock(breath=0.05)
    async with workshop.under_way(text, store=SQLiteStore(path), engine={"clock": clock}) as engine:
        while (await engine.get("r")).status is not Status.WAITING:
            await clock.settle()
    assert workshop.stages_run == ["good", "flaky"]
    later = HandClock(clock.now() + 5, breath=0.05)
    async with workshop.engine(workshop.spec(text), SQLiteStore(path), clock=later) as engine:
        await engine.resume_all()
        ran = await workshop.finished(engine)
    assert ran.result.success
    assert workshop.stages_run == ["good", "flaky"] * 2


async def test_without_retry_and_on_failure_there_is_one_run(workshop: Workshop) -> None:
    await workshop.run(check("stages: [bad]"))
    assert workshop.stages_run == ["bad"]
