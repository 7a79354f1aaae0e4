"""Rolling back: what a failed or cancelled workflow did is undone, last thing first, each once."""

from __future__ import annotations

from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.flows.workflow.errors import RollbackError
from detent.flows.workflow.events import RollbackCompleted, RollbackStarted, WorkflowCompleted
from detent.flows.workflow.registry import Action, Agent, ContextBuilder
from detent.kernel.status import Status
from detent.stores import SQLiteStore
from detent.testing.clock import HandClock
from detent.tools import Tool
from tests.engine.conftest import until
from tests.flows.workflow.workshop import INTENT, Ran, Workshop, flow

EVERYWHERE = """
- {name: first, type: python, action: put, kwargs: {text: first}}
- name: each
  type: loop
  for_each: [x, y]
  steps:
    - {name: one, type: python, action: put, kwargs: {text: "one ${{ item }}"}}
    - name: again
      type: loop
      until: index == 1
      steps: [{name: deep, type: python, action: put, kwargs: {text: "deep ${{ index }}"}}]
    - {name: two, type: python, action: put, kwargs: {text: "two ${{ item }}"}}
- {name: sub, type: subworkflow, workflow: other}
- name: pick
  type: branch
  options: [{step: {name: chosen, type: python, action: put, kwargs: {text: chosen}}}]
- name: check
  type: validate
  stages: [flaky]
  on_failure: {name: mend, type: python, action: put, kwargs: {text: mend}}
- {name: last, type: python, action: put, kwargs: {text: last}}
- {name: bad, type: python, action: boom}
"""
OTHER = """
- {name: inner, type: python, action: put, kwargs: {text: inner}}
- {name: more, type: python, action: put, kwargs: {text: more}}
"""


def undone(ran: Ran) -> list[Any]:
    return [text for what, text in ran.effects if what == "take"]


def done(ran: Ran) -> list[Any]:
    return [text for what, text in ran.effects if what == "put"]


class Backwards(HandClock):
    """A clock that is set back again and again."""

    def now(self) -> float:
        self._now -= 1.0
        return self._now


@pytest.mark.parametrize("clock", [None, HandClock, Backwards], ids=["real", "standing still", "set back"])
async def test_everything_is_undone_in_reverse_order_of_completion_wherever_it_stood(
    workshop: Workshop, clock: Any
) -> None:
    """D-69: whatever the clock says."""
    workshop.files["other"] = flow(OTHER, name="other")
    workshop.stage_codes["flaky"] = [1, 0]
    options = {} if clock is None else {"engine": {"clock": clock()}}
    ran = await workshop.run(flow(EVERYWHERE), **options)
    assert done(ran) == [
        "first", "one x", "deep 0", "deep 1", "two x", "one y", "deep 0", "deep 1", "two y", "inner", "more",
        "chosen", "mend", "last",
    ]  # fmt: skip
    assert undone(ran) == done(ran)[::-1]
    assert ran.run.status is Status.FAILED
    assert ran.result.rollback_errors == ()
    completed = [
        one.output["text"] for one in ran.result.step_results if one.step_type == "python" and one.output
    ]
    assert completed == done(ran)


async def test_what_ran_side_by_side_is_undone_in_reverse_order_of_completion(workshop: Workshop) -> None:
    """D-69."""

    async def slow(ctx: Any, name: str) -> dict[str, Any]:
        await workshop.door(name).wait()
        workshop.door(after[name]).set()
        return {"text": name}

    after = {"c": "a", "a": "b", "b": "end"}
    workshop.more.append(Action("slow", handler=slow, intent=INTENT, rollback="unput"))
    workshop.door("c").set()
    ran = await workshop.run(
        flow("""
        - name: each
          type: loop
          for_each: [a, b, c]
          parallel: true
          steps: [{name: one, type: python, action: slow, kwargs: {name: "${{ item }}"}}]
        - {name: bad, type: python, action: boom}
        """)
    )
    assert undone(ran) == ["b", "a", "c"]


async def test_neither_the_failed_step_nor_one_passed_over_nor_one_without_a_rollback_is_undone(
    workshop: Workshop,
) -> None:
    def torn(text: str) -> dict[str, Any]:
        return {"success": False, "error": "torn"}

    workshop.more.append(Action("torn", handler=torn, intent=INTENT, rollback="unput"))
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: put, when: "false", kwargs: {text: a}}
        - {name: b, type: python, action: echo, kwargs: {value: b}}
        - {name: c, type: python, action: put, kwargs: {text: c}}
        - {name: d, type: python, action: torn, kwargs: {text: d}}
        """)
    )
    assert undone(ran) == ["c"]


async def test_a_run_that_succeeds_undoes_nothing(workshop: Workshop) -> None:
    ran = await workshop.run(flow("- {name: a, type: python, action: put, kwargs: {text: a}}"))
    assert ran.told(RollbackStarted, RollbackCompleted) == []
    assert list(ran.journals) == ["r"]


async def test_a_rollback_that_fails_is_told_and_the_next_one_runs(workshop: Workshop) -> None:
    """D-69: best effort."""
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: put, kwargs: {text: a}}
        - {name: b, type: python, action: stick, kwargs: {text: b}}
        - {name: c, type: python, action: put, kwargs: {text: c}}
        - {name: bad, type: python, action: boom}
        """)
    )
    assert undone(ran) == ["c", "a"]
    (error,) = ran.result.rollback_errors
    assert isinstance(error, RollbackError)
    assert error.step_name == "b"
    assert "b cannot be taken off" in error.error
    assert "boom" in (ran.result.error or "")
    told = [
        (type(one).__name__, one.step_name, one.action)
        for one in ran.told(RollbackStarted, RollbackCompleted)
    ]
    assert told == [
        ("RollbackStarted", "c", "unput"), ("RollbackCompleted", "c", "unput"),
        ("RollbackStarted", "b", "unstick"), ("RollbackCompleted", "b", "unstick"),
        ("RollbackStarted", "a", "unput"), ("RollbackCompleted", "a", "unput"),
    ]  # fmt: skip
    completed = {one.step_name: (one.success, one.error) for one in ran.told(RollbackCompleted)}
    assert completed["a"] == completed["c"] == (True, None)
    assert completed["b"][0] is False
    assert "cannot be taken off" in (completed["b"][1] or "")
    assert isinstance(ran.events[-1], WorkflowCompleted)
    assert ran.events[-1].success is False


async def test_a_rollback_that_says_success_false_is_an_error_too(workshop: Workshop) -> None:
    workshop.more.append(Action("no", handler=lambda: {"success": False, "error": "will not"}, intent=INTENT))
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: give, rollback: "no"}
        - {name: bad, type: python, action: boom}
        """)
    )
    (error,) = ran.result.rollback_errors
    assert "will not" in error.error


async def test_its_parameters_are_bound_from_the_output_then_from_what_the_step_was_given(
    workshop: Workshop,
) -> None:
    seen: list[Any] = []

    def make(name: str, size: int = 1, colour: str = "red") -> dict[str, Any]:
        return {"name": f"made {name}", "id": 7}

    def unmake(
        ctx: Any, id: int, name: str, size: int = 0, colour: str = "none", shape: str = "round"
    ) -> None:
        seen.append((id, name, size, colour, shape))

    workshop.more += [
        Action("make", handler=make, intent=INTENT, rollback="unmake"),
        Action("unmake", handler=unmake, intent=INTENT),
    ]
    await workshop.run(
        flow(
            """
            - {name: a, type: python, action: make, args: ["${{ inputs.n }}", 5]}
            - name: each
              type: loop
              for_each: [x]
              steps: [{name: b, type: python, action: make, kwargs: {name: n, colour: "${{ item }}"}}]
            - {name: bad, type: python, action: boom}
            """,
            "inputs: {n: {type: string, default: given}}",
        )
    )
    assert seen == [(7, "made n", 0, "x", "round"), (7, "made given", 5, "none", "round")]


async def test_a_rollback_that_lacks_a_parameter_is_an_error_of_its_own(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - {name: first, type: python, action: put, kwargs: {text: first}}
        - {name: a, type: python, action: echo, rollback: unput, kwargs: {value: 1}}
        - {name: bad, type: python, action: boom}
        """)
    )
    assert undone(ran) == ["first"]
    (error,) = ran.result.rollback_errors
    assert error.step_name == "a"
    assert "text" in error.error


async def test_a_step_may_name_another_rollback_than_its_action(workshop: Workshop) -> None:
    seen: list[str] = []

    def own(text: str) -> None:
        seen.append(text)

    workshop.more.append(Action("own", handler=own, intent=INTENT))
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: put, rollback: own, kwargs: {text: a}}
        - {name: bad, type: python, action: boom}
        """)
    )
    assert (seen, undone(ran)) == (["a"], [])


async def test_loops_may_be_named_after_rollbacks(workshop: Workshop) -> None:
    """Their runs and flows are not mistaken for those that undo."""
    ran = await workshop.run(
        flow("""
        - name: rollback
          type: loop
          for_each: [x]
          steps: [{name: a, type: python, action: put, kwargs: {text: a}}]
        - name: rollback-unput
          type: loop
          for_each: [x]
          steps: [{name: b, type: python, action: put, kwargs: {text: b}}]
        - {name: bad, type: python, action: boom}
        """)
    )
    assert undone(ran) == ["b", "a"]


@pytest.mark.parametrize("context", ["{text: given, more: 1}", "builder"])
async def test_what_an_agent_did_is_undone_with_what_it_was_given(workshop: Workshop, context: str) -> None:
    """D-69: also where a context builder gave it."""
    built: list[str] = []

    def build(ctx: Any) -> dict[str, Any]:
        built.append(ctx.step_path)
        return {"text": "given", "more": 1}

    workshop.more += [
        Agent("writer", instructions="Write something short about the topic."),
        ContextBuilder("builder", build=build),
    ]
    executor = ScriptedStepExecutor({"write": [{"output": {"words": 3}}]})
    ran = await workshop.run(
        flow(f"""
        - {{name: write, type: agent, agent: writer, context: {context}, rollback: unput}}
        - {{name: bad, type: python, action: boom}}
        """),
        engine={"dispatch": DispatchSettings(executors=ScriptedSource(executor))},
    )
    assert ran.step("write").output == {"words": 3}
    assert undone(ran) == ["given"]
    assert len(built) == (1 if context == "builder" else 0)


# -- steps that acted and never ended ------------------------------------------------------------------------


def putting(workshop: Workshop, last: Any) -> str:
    """A file whose step puts two texts on the shelf, one after the other, and then does something else."""

    async def put_two(ctx: Any) -> dict[str, Any]:
        for text in ("one", "two"):
            await ctx.perform("shelf.put", text=text)
        await last()
        return {"text": "two"}

    workshop.more.append(
        Action("put_two", handler=put_two, intent=INTENT, effects=("shelf.put",), rollback="unput")
    )
    return flow("""
    - {name: first, type: python, action: put, kwargs: {text: first}}
    - {name: both, type: python, action: put_two}
    """)


async def test_a_step_that_acted_and_failed_is_undone_effect_by_effect(workshop: Workshop) -> None:
    """1.13: its visit never moved, but what it did was done."""

    async def fail() -> None:
        raise ValueError("the shelf is full")

    ran = await workshop.run(putting(workshop, fail))
    assert ran.run.status is Status.FAILED
    assert done(ran) == ["first", "one", "two"]
    assert undone(ran) == ["two", "one", "first"]


async def test_a_run_cancelled_between_two_effects_of_a_step_undoes_them(workshop: Workshop) -> None:
    """1.13: nothing of it is left standing."""

    async def wait() -> None:
        await workshop.door("wait").wait()

    async with workshop.under_way(putting(workshop, wait)) as engine:
        await until(lambda: ("put", "two") in workshop.effects)
        await engine.cancel("r", undo=True)
        ran = await workshop.finished(engine)
    assert ran.run.status is Status.CANCELLED
    assert undone(ran) == ["two", "one", "first"]


async def test_an_agent_that_did_what_code_would_not_fails_the_step_and_is_undone(workshop: Workshop) -> None:
    """1.13: in a flow that can undo, nobody need be asked."""
    calls = {"calls": [{"tool": "shelf.put", "args": {"text": "something else"}}]}
    executor = ScriptedStepExecutor({"second": [{"output": calls}, {"error": "permanent"}]})
    steps = {"second": StepConfig.read({"mode": "agent", "autonomy": "approver"})}
    ran = await workshop.run(
        flow("""
        - {name: first, type: python, action: put, kwargs: {text: first}}
        - {name: second, type: python, action: put, kwargs: {text: second},
           output_schema: {type: object, required: [text, why]}}
        """),
        engine={"dispatch": DispatchSettings(steps=steps, executors=ScriptedSource(executor))},
    )
    assert ran.run.status is Status.FAILED
    assert done(ran) == ["first", "something else"]
    assert undone(ran) == ["something else", "first"]


# -- cancelling and interrupting ----------------------------------------------------------------------------

LONG = """
- {name: a, type: python, action: put, kwargs: {text: a}}
- name: each
  type: loop
  for_each: [x, y]
  steps:
    - {name: b, type: python, action: put, kwargs: {text: "${{ item }}"}}
    - {name: wait, type: python, action: meet, kwargs: {name: "${{ item }}"}}
"""


async def test_a_cancelled_run_undoes_what_it_did_when_asked_to(workshop: Workshop) -> None:
    """D-69."""
    async with workshop.under_way(flow(LONG)) as engine:
        workshop.door("x").set()
        await workshop.until_inside("y")
        await engine.cancel("r", undo=True, reason="wrong week", by="eve")
        ran = await workshop.finished(engine)
    assert ran.run.status is Status.CANCELLED
    assert undone(ran) == ["y", "x", "a"]
    assert ran.run.reason == "wrong week"
    assert ran.events[-1].__class__ is WorkflowCompleted


async def test_effects_under_way_when_it_is_cancelled_are_finished_and_undone_too(workshop: Workshop) -> None:
    """D-69: none is cut off, in whatever iteration; no other step is begun."""
    under_way: list[str] = []

    async def slow(text: str) -> dict[str, Any]:
        under_way.append(text)
        await workshop.door("slow").wait()
        workshop.effects.append(("put", text))
        return {"number": 1}

    async def put(ctx: Any, text: str) -> dict[str, Any]:
        return {"text": text, "number": ctx.propose("slow.put", text=text).number}

    workshop.tools.append(Tool("slow.put", slow))
    workshop.more.append(Action("slow", handler=put, intent=INTENT, effects=("slow.put",), rollback="unput"))
    file = flow("""
    - {name: first, type: python, action: put, kwargs: {text: first}}
    - name: each
      type: loop
      for_each: [x, y, z]
      max_concurrency: 2
      steps:
        - {name: one, type: python, action: slow, kwargs: {text: "${{ item }}"}}
        - {name: two, type: python, action: put, kwargs: {text: "two ${{ item }}"}}
    """)
    async with workshop.under_way(file) as engine:
        await until(lambda: len(under_way) == 2)
        await engine.cancel("r", undo=True)
        workshop.door("slow").set()
        ran = await workshop.finished(engine)
    assert ran.run.status is Status.CANCELLED
    assert done(ran) == ["first", "x", "y"]
    assert undone(ran) == ["y", "x", "first"]


async def test_a_cancelled_run_undoes_nothing_otherwise(workshop: Workshop) -> None:
    async with workshop.under_way(flow(LONG)) as engine:
        await workshop.until_inside("x")
        await engine.cancel("r")
        ran = await workshop.finished(engine)
    assert ran.run.status is Status.CANCELLED
    assert undone(ran) == []


async def test_an_interrupted_run_undoes_nothing_and_goes_on_later(workshop: Workshop) -> None:
    path = workshop.folder / "runs.db"
    async with workshop.under_way(flow(LONG), store=SQLiteStore(path)) as engine:
        await workshop.until_inside("x")
        await engine.stop(grace=0)
    assert ("take", "x") not in workshop.effects
    workshop.door("x").set()
    workshop.door("y").set()
    async with workshop.engine(workshop.spec(flow(LONG)), SQLiteStore(path)) as engine:
        await engine.resume("r")
        ran = await workshop.finished(engine)
    assert ran.result.success
    assert done(ran) == ["a", "x", "y"]
    assert undone(ran) == []


async def test_a_rollback_that_is_interrupted_goes_on_with_the_remaining_ones(workshop: Workshop) -> None:
    """D-69: none runs twice."""

    async def unmeet(ctx: Any, text: str) -> dict[str, Any]:
        workshop.arrivals.append(text)
        async with workshop.arrived:
            workshop.inside.add(text)
            workshop.arrived.notify_all()
        await workshop.door(text).wait()
        ctx.propose("shelf.take", text=text)
        return {}

    workshop.more.append(Action("unmeet", handler=unmeet, intent=INTENT, effects=("shelf.take",)))
    text = flow("""
    - {name: a, type: python, action: put, rollback: unmeet, kwargs: {text: a}}
    - {name: b, type: python, action: put, rollback: unmeet, kwargs: {text: b}}
    - {name: c, type: python, action: put, rollback: unmeet, kwargs: {text: c}}
    - {name: bad, type: python, action: boom}
    """)
    path = workshop.folder / "runs.db"
    workshop.door("c").set()
    async with workshop.under_way(text, store=SQLiteStore(path)) as engine:
        await workshop.until_inside("b")
        await engine.stop(grace=0)
    assert workshop.effects[3:] == [("take", "c")]
    workshop.door("b").set()
    workshop.door("a").set()
    async with workshop.engine(workshop.spec(text), SQLiteStore(path)) as engine:
        await engine.resume("r")
        ran = await workshop.finished(engine)
    assert ran.run.status is Status.FAILED
    assert undone(ran) == ["c", "b", "a"]
    assert len([one for one in workshop.called if one[0] == "boom"]) == 1


async def test_a_run_that_fails_after_a_resume_undoes_what_was_done_before_it(workshop: Workshop) -> None:
    """D-69."""
    text = flow(LONG + "- {name: bad, type: python, action: boom}\n")
    path = workshop.folder / "runs.db"
    async with workshop.under_way(text, store=SQLiteStore(path)) as engine:
        await workshop.until_inside("x")
        await engine.stop(grace=0)
    workshop.door("x").set()
    workshop.door("y").set()
    async with workshop.engine(workshop.spec(text), SQLiteStore(path)) as engine:
        await engine.resume("r")
        ran = await workshop.finished(engine)
    assert undone(ran) == ["y", "x", "a"]
