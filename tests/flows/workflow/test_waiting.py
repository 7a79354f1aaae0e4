"""Workflows that wait for a person or the clock, wherever the waiting step stands."""

from __future__ import annotations

from typing import Any

import pytest

from detent.engine.outcome import Hold
from detent.flows.workflow.registry import Action
from detent.kernel.status import Status
from detent.testing.clock import HandClock
from tests.engine import answers
from tests.flows.workflow.workshop import INTENT, Workshop, flow

APPROVE = "name: ok, type: python, action: approve"
YES = {"answer": "yes"}


@pytest.fixture
def desk(workshop: Workshop) -> Workshop:
    """A workshop in which somebody can be asked."""

    def approve(ctx: Any, about: str = "") -> Any:
        if not ctx.answered("approve"):
            return Hold("approve", question=f"May {about} go on?", choices=("yes", "no"))
        return {"answer": ctx.answer("approve")}

    workshop.more.append(Action("approve", handler=approve, intent=INTENT, holds=True))
    return workshop


@pytest.mark.parametrize(
    ("step", "child", "output"),
    [
        (f"{{{APPROVE}}}", "r", YES),
        (f"{{name: pick, type: branch, options: [{{step: {{{APPROVE}}}}}]}}", "r", YES),
        (f"{{name: each, type: loop, for_each: [1], steps: [{{{APPROVE}}}]}}", "r.each[0]", [[YES]]),
        (f"{{name: both, type: loop, steps: [{{{APPROVE}}}]}}", "r.both[0]", [[YES]]),
        ("{name: sub, type: subworkflow, workflow: other}", "r.sub", YES),
    ],
    ids=["itself", "branch", "loop", "side by side", "subworkflow"],
)  # fmt: skip
async def test_a_workflow_waits_for_a_person_wherever_the_step_stands(
    desk: Workshop, step: str, child: str, output: Any
) -> None:
    desk.files["other"] = flow(f"- {{{APPROVE}}}", name="other")
    text = flow(f"- {{name: a, type: python, action: put, kwargs: {{text: a}}}}\n- {step}\n")
    async with desk.under_way(text) as engine:
        ran = await desk.finished(engine)
        assert ran.run.status is Status.WAITING
        await answers.release(engine, child, "yes")
        ran = await desk.finished(engine)
    assert ran.result.success
    assert ran.result.final_output == output
    assert desk.called == [("put", "a")]  # nothing was done twice


async def test_an_iteration_that_waits_is_given_up_when_another_fails(desk: Workshop) -> None:
    ran = await desk.run(
        flow("""
        - name: each
          type: loop
          for_each: [x, y]
          parallel: true
          steps:
            - {name: a, type: python, action: put, kwargs: {text: "${{ item }}"}}
            - {name: bad, type: python, action: boom, when: item == 'y'}
            - {name: ok, type: python, action: approve}
        """)
    )
    assert ran.run.status is Status.FAILED
    assert "1 of 2 iterations failed ([1])" in (ran.step("each").error or "")
    assert sorted(text for what, text in ran.effects if what == "take") == ["x", "y"]


async def test_a_run_that_waits_can_be_cancelled_and_undone(desk: Workshop) -> None:
    text = flow(f"""
    - {{name: a, type: python, action: put, kwargs: {{text: a}}}}
    - name: each
      type: loop
      for_each: [1]
      steps:
        - {{name: b, type: python, action: put, kwargs: {{text: b}}}}
        - {{{APPROVE}}}
    """)
    async with desk.under_way(text) as engine:
        assert (await engine.finish("r")).status is Status.WAITING
        await engine.cancel("r", undo=True)
        ran = await desk.finished(engine)
        assert (await engine.get("r.each[0]")).status is Status.CANCELLED
    assert ran.run.status is Status.CANCELLED
    assert [text for what, text in ran.effects if what == "take"] == ["b", "a"]


async def test_a_rollback_may_wait_for_a_person(desk: Workshop) -> None:
    text = flow("""
    - {name: a, type: python, action: put, kwargs: {text: a}}
    - {name: b, type: python, action: put, rollback: approve, kwargs: {text: b}}
    - {name: bad, type: python, action: boom}
    """)
    async with desk.under_way(text) as engine:
        assert (await engine.finish("r")).status is Status.WAITING
        await answers.release(engine, "r.rolling_back[0]", "yes")
        ran = await desk.finished(engine)
    assert ran.run.status is Status.FAILED
    assert ran.effects == [("put", "a"), ("put", "b"), ("take", "a")]


async def test_a_validation_in_a_loop_waits_between_its_runs(workshop: Workshop) -> None:
    workshop.stage_codes["flaky"] = [1, 1, 0]
    clock = HandClock()
    text = flow("""
    - name: each
      type: loop
      for_each: [x]
      steps: [{name: check, type: validate, stages: [flaky], retry: 5}]
    """)
    async with workshop.under_way(text, engine={"clock": clock}) as engine:
        await clock.turn(1)
        await clock.turn(2)
        await clock.settle()
        ran = await workshop.finished(engine)
    assert ran.step("each/[0]/check").output["attempts"] == 3


async def test_an_effect_in_doubt_inside_a_loop_waits_for_a_person(workshop: Workshop) -> None:
    from detent.tools import Tool

    tries: list[str] = []

    def lose(text: str) -> dict[str, Any]:
        tries.append(text)
        raise RuntimeError("the line is dead")

    async def post(ctx: Any, text: str) -> dict[str, Any]:
        return {"id": ctx.propose("post.send", text=text).id}

    workshop.tools.append(Tool("post.send", lose))
    workshop.more.append(Action("post", handler=post, intent=INTENT, effects=("post.send",)))
    text = flow("""
    - name: each
      type: loop
      for_each: [x]
      steps: [{name: send, type: python, action: post, kwargs: {text: "${{ item }}"}}]
    """)
    async with workshop.under_way(text) as engine:
        assert (await engine.finish("r")).status is Status.WAITING
        await answers.resolve(engine, "r.each[0]", "happened", receipt={"id": 7})
        ran = await workshop.finished(engine)
    assert ran.result.final_output == [[{"id": 7}]]
    assert tries == ["x"]


async def test_loops_need_no_more_than_one_place_to_work_in(workshop: Workshop) -> None:
    """An engine that works at one run at a time finishes loops in loops in subworkflows."""
    workshop.files["other"] = flow(
        """
        - name: each
          type: loop
          for_each: [1, 2]
          parallel: true
          steps:
            - name: inner
              type: loop
              steps:
                - {name: a, type: python, action: put, kwargs: {text: a}}
                - {name: b, type: python, action: put, kwargs: {text: b}}
        """,
        name="other",
    )
    ran = await workshop.run(
        flow("- {name: sub, type: subworkflow, workflow: other}"), engine={"concurrency": 1}
    )
    assert ran.result.success
    assert len(ran.effects) == 4


async def test_what_a_step_that_ran_out_of_time_left_under_way_is_ended_before_it_is_undone(
    workshop: Workshop,
) -> None:
    """D-69."""
    text = flow("""
    - {name: a, type: python, action: put, kwargs: {text: a}}
    - name: each
      type: loop
      for_each: [x, y]
      parallel: true
      config: {timeout: 0.05}
      steps:
        - {name: b, type: python, action: put, kwargs: {text: "${{ item }}"}}
        - {name: wait, type: python, action: meet, kwargs: {name: "${{ item }}"}}
        - {name: c, type: python, action: put, kwargs: {text: "late ${{ item }}"}}
    """)
    async with workshop.under_way(text) as engine:
        ran = await workshop.finished(engine)
        workshop.door("x").set()
        workshop.door("y").set()
        for child in ("r.each[0]", "r.each[1]"):
            assert (await engine.finish(child)).status is Status.CANCELLED
    assert ran.run.status is Status.FAILED
    assert "no answer within 0.05 s" in (ran.result.error or "")
    assert sorted(text for what, text in workshop.effects if what == "put") == ["a", "x", "y"]
    assert [text for what, text in workshop.effects if what == "take"][-1] == "a"
    assert len(workshop.effects) == 6
