"""What is told while a workflow runs: in order, with the path of whoever it is about, after its commit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.dispatcher import DispatchSettings
from detent.flows.workflow import events
from detent.flows.workflow.registry import Action, Agent
from detent.kernel.budget import Budget
from detent.kernel.entries import Entry
from detent.kernel.run import Run
from detent.kernel.status import Status
from detent.stores import SQLiteStore
from tests.flows.workflow.workshop import INTENT, Ran, Workshop, flow

WHOLE = """
- {name: first, type: python, action: say, kwargs: {message: hello, level: success}}
- {name: passed, type: python, action: give, when: "false"}
- name: each
  type: loop
  for_each: [x, y]
  steps: [{name: inner, type: python, action: put, kwargs: {text: "${{ item }}"}}]
- {name: sub, type: subworkflow, workflow: other}
- name: pick
  type: branch
  options: [{step: {name: chosen, type: python, action: say, kwargs: {message: picked}}}]
- {name: mark, type: checkpoint}
- {name: bad, type: python, action: boom}
"""


def line(event: events.Event) -> str:
    """An event in a few letters."""
    kind = type(event).__name__
    more = ""
    if isinstance(event, events.StepCompleted):
        more = " skipped" if event.skipped else "" if event.success else " failed"
    if isinstance(event, events.LoopIterationStarted):
        more = f" {event.item_label} of {event.total_iterations}"
    return f"{kind} {event.step_path}{more}".rstrip()


def lines(ran: Ran) -> list[str]:
    return [line(event) for event in ran.events]


async def test_events_come_in_the_order_in_which_things_happened(workshop: Workshop) -> None:
    """D-77."""
    workshop.files["other"] = flow(
        "- {name: a, type: python, action: say, kwargs: {message: inside}}", name="other"
    )
    ran = await workshop.run(flow(WHOLE))
    assert lines(ran) == [
        "WorkflowStarted",
        "StepStarted first",
        "StepOutput first",
        "StepCompleted first",
        "StepStarted passed",
        "StepCompleted passed skipped",
        "StepStarted each",
        "LoopIterationStarted each/[0] x of 2",
        "StepStarted each/[0]/inner",
        "StepCompleted each/[0]/inner",
        "LoopIterationCompleted each/[0]",
        "LoopIterationStarted each/[1] y of 2",
        "StepStarted each/[1]/inner",
        "StepCompleted each/[1]/inner",
        "LoopIterationCompleted each/[1]",
        "StepCompleted each",
        "StepStarted sub",
        "WorkflowStarted sub",
        "StepStarted sub/a",
        "StepOutput sub/a",
        "StepCompleted sub/a",
        "WorkflowCompleted sub",
        "StepCompleted sub",
        "StepStarted pick",
        "StepStarted pick/chosen",
        "StepOutput pick/chosen",
        "StepCompleted pick/chosen",
        "StepCompleted pick",
        "StepStarted mark",
        "CheckpointSaved mark",
        "StepCompleted mark",
        "StepStarted bad",
        "StepCompleted bad failed",
        "RollbackStarted each/[1]/inner",
        "RollbackCompleted each/[1]/inner",
        "RollbackStarted each/[0]/inner",
        "RollbackCompleted each/[0]/inner",
        "WorkflowCompleted",
    ]


async def test_events_say_what_they_are_about(workshop: Workshop) -> None:
    """D-77."""
    workshop.files["other"] = flow("- {name: a, type: python, action: give}", name="other")
    ran = await workshop.run(flow(WHOLE))
    found: dict[str, list[Any]] = {}
    for event in ran.events:
        assert dataclasses.is_dataclass(event)
        assert event.timestamp > 1_700_000_000
        assert event.run_id.startswith("r")
        found.setdefault(type(event).__name__, []).append(event)
    started, completed = found["StepStarted"], found["StepCompleted"]
    assert (started[0].step_name, started[0].step_type) == ("first", "python")
    assert (completed[0].step_name, completed[0].step_type, completed[0].success) == ("first", "python", True)
    assert completed[0].duration_ms >= 0
    assert completed[-1].error is not None
    assert "boom" in completed[-1].error
    (iteration, _) = found["LoopIterationStarted"]
    assert (iteration.iteration_index, iteration.parent_step_name, iteration.run_id) == (
        0,
        "each",
        "r.each[0]",
    )
    done = found["LoopIterationCompleted"][0]
    assert (done.iteration_index, done.parent_step_name, done.success, done.error) == (0, "each", True, None)
    said = found["StepOutput"][0]
    assert (said.step_name, said.message, said.level, said.source, said.metadata) == (
        "first", "hello", "success", "first", {"size": 5},
    )  # fmt: skip
    assert found["StepOutput"][1].step_name == "chosen"
    assert found["CheckpointSaved"][0].checkpoint_id == "mark"
    assert found["RollbackStarted"][0].action == "unput"
    whole = found["WorkflowCompleted"][-1]
    assert (whole.workflow_name, whole.success) == ("flow", False)
    assert whole.total_duration_ms > 0


def test_events_cannot_be_changed() -> None:
    event = events.StepStarted(timestamp=1.0, step_name="a", step_type="python")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.step_name = "b"  # type: ignore[misc]


async def test_every_event_can_be_written_as_json(workshop: Workshop) -> None:
    from detent.kernel.plain import decode, encode

    workshop.files["other"] = flow("- {name: a, type: python, action: give}", name="other")
    ran = await workshop.run(flow(WHOLE))
    for event in ran.events:
        plain = decode(encode(event.to_plain()))
        assert plain["event"] == type(event).__name__
        assert {"timestamp", "run_id", "step_path"} <= set(plain)


async def test_an_event_is_told_after_its_entry_is_committed(workshop: Workshop) -> None:
    """D-77: whoever reads the journal when told finds it there."""
    behind: list[tuple[str, int]] = []
    text = flow(WHOLE.replace("- {name: sub, type: subworkflow, workflow: other}\n", ""))
    store = SQLiteStore(workshop.folder / "runs.db")

    class Committed:
        def on_run_entry(self, run: Run, entry: Entry) -> None:
            behind.append((run.id, entry.seq))

    async with workshop.under_way(text, store=store) as engine:
        engine.add_observer(Committed())
        ran = await workshop.finished(engine)
    for run_id, seq in behind:
        assert any(entry.seq == seq for entry in ran.journals[run_id])


async def test_what_a_step_said_before_it_failed_is_told(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("- {name: it, type: python, action: say, kwargs: {message: nearly, level: error, fail: true}}")
    )
    assert lines(ran)[1:4] == ["StepStarted it", "StepOutput it", "StepCompleted it failed"]


@pytest.mark.parametrize("fail", [False, True])
async def test_what_an_opaque_step_says_is_told(workshop: Workshop, fail: bool) -> None:
    def act(ctx: Any) -> dict[str, Any]:
        ctx.emit("working")
        if fail:
            raise ValueError("broken")
        return {}

    workshop.more.append(Action("act", handler=act, intent=INTENT, opaque=True))
    ran = await workshop.run(flow("- {name: it, type: python, action: act}"))
    (said,) = ran.told(events.StepOutput)
    assert (said.message, said.step_name) == ("working", "it")
    assert lines(ran).index("StepOutput it") < lines(ran).index(
        f"StepCompleted it{' failed' if fail else ''}"
    )


async def test_an_iteration_that_fails_is_told_with_its_error(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: each
          type: loop
          for_each: [1]
          steps: [{name: a, type: python, action: boom, kwargs: {say: torn}}]
        """)
    )
    (done,) = ran.told(events.LoopIterationCompleted)
    assert done.success is False
    assert "torn" in (done.error or "")


async def test_what_an_action_keeps_for_itself_is_not_mistaken_for_a_loop_or_branch(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    async def keep(ctx: Any) -> dict[str, Any]:
        return {
            "all": [await ctx.once(key, lambda: 3) for key in ("until/tomorrow", "branch/it", "until/it/x")]
        }

    workshop.more.append(Action("keep", handler=keep, intent=INTENT))
    ran = await workshop.run(flow("- {name: it, type: python, action: keep}"))
    assert lines(ran) == ["WorkflowStarted", "StepStarted it", "StepCompleted it", "WorkflowCompleted"]
    assert "observer.failed" not in caplog.text


async def test_until_tells_its_condition(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - name: again
          type: loop
          until: steps.a.output
          steps: [{name: a, type: python, action: give, kwargs: {value: "${{ index }}"}}]
        """)
    )
    checked = [
        (one.iteration_index, one.condition_met, one.condition_value)
        for one in ran.told(events.LoopConditionChecked)
    ]
    assert checked == [(0, False, 0), (1, True, 1)]
    begun = [
        (one.iteration_index, one.total_iterations, one.item_label)
        for one in ran.told(events.LoopIterationStarted)
    ]
    assert begun == [(0, None, "Item 1"), (1, None, "Item 2")]


async def test_a_run_out_of_budget_is_told_as_ended(workshop: Workshop) -> None:
    text = flow("""
    - {name: a, type: python, action: give}
    - {name: b, type: python, action: give}
    - {name: c, type: python, action: give}
    """)
    ran = await workshop.run(text, budget=Budget(steps=2))
    assert ran.run.status is Status.BUDGET_EXHAUSTED
    last = ran.events[-1]
    assert isinstance(last, events.WorkflowCompleted)
    assert last.success is False


async def test_a_cancelled_run_is_told_as_ended(workshop: Workshop) -> None:
    async with workshop.under_way(
        flow("- {name: a, type: python, action: meet, kwargs: {name: x}}")
    ) as engine:
        await workshop.until_inside("x")
        await engine.cancel("r")
        ran = await workshop.finished(engine)
    assert lines(ran) == ["WorkflowStarted", "StepStarted a", "StepCompleted a failed", "WorkflowCompleted"]


async def test_an_agents_text_is_told_with_the_path_of_its_step(workshop: Workshop) -> None:
    """D-77."""
    workshop.more.append(Agent("writer", instructions="Write something short about the topic."))
    text = flow("""
    - name: each
      type: loop
      for_each: [x]
      steps:
        - name: pick
          type: branch
          options: [{step: {name: write, type: agent, agent: writer, context: {topic: "${{ item }}"}}}]
    """)
    executor = ScriptedStepExecutor({"write": [{"output": {"text": "a b"}, "stream": ["a ", "b"]}]})
    settings = DispatchSettings(executors=ScriptedSource(executor))
    ran = await workshop.run(text, engine={"dispatch": settings})
    assert ran.result.success
    told = ran.told(events.AgentText)
    assert "".join(one.chunk.text for one in told if one.chunk.chunk_type == "output") == "a b"
    assert {(one.step_path, one.step_name, one.run_id) for one in told} == {
        ("each/[0]/pick/write", "write", "r.each[0]")
    }
    assert told[0].to_plain()["event"] == "AgentStreamChunk"


async def test_a_resumed_run_tells_only_what_is_new(workshop: Workshop) -> None:
    text = flow("""
    - {name: a, type: python, action: give}
    - {name: b, type: python, action: meet, kwargs: {name: x}}
    """)
    path = workshop.folder / "runs.db"
    async with workshop.under_way(text, store=SQLiteStore(path)) as engine:
        await workshop.until_inside("x")
        await engine.stop(grace=0)
    workshop.events.clear()
    workshop.door("x").set()
    async with workshop.engine(workshop.spec(text), SQLiteStore(path)) as engine:
        await engine.resume("r")
        ran = await workshop.finished(engine)
    assert lines(ran) == ["StepCompleted b", "WorkflowCompleted"]
