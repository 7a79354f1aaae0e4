"""Long values that bodies and subworkflows are handed: kept once, however often they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.replay import replay
from detent.engine.offloaded import SHORT
from detent.flows.workflow.events import WorkflowStarted
from detent.flows.workflow.registry import Action
from detent.flows.workflow.run_data import BESIDE
from detent.kernel.status import Status
from detent.stores import SQLiteStore
from tests.flows.workflow.workshop import INTENT, Workshop, flow

LONG = "long " * 40_000
MANY = 100
HEAD = "inputs: {items: {type: array, default: [a, b]}, text: {type: string}}"


@pytest.fixture(autouse=True)
def measuring(workshop: Workshop) -> None:
    def measure(text: Any, item: Any = None) -> dict[str, Any]:
        return {"length": len(text), "item": item}

    workshop.more.append(Action("measure", handler=measure, intent=INTENT))


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("store.db*"))


LOOP = """
- name: each
  type: loop
  for_each: inputs.items
  parallel: true
  steps:
"""
BODIES = {
    "input": '    - {name: one, type: python, action: measure, kwargs: {text: "${{ inputs.text }}"}}',
    "result": '    - {name: one, type: python, action: measure, kwargs: {text: "${{ steps.first.output }}"}}',
    "deeper": """
    - name: again
      type: loop
      for_each: [1]
      steps: [{name: one, type: python, action: measure, kwargs: {text: "${{ inputs.text }}"}}]
""",
    "subworkflow": """
    - {name: sub, type: subworkflow, workflow: other, inputs: {said: "${{ inputs.text }}"}}
""",
}


@pytest.mark.parametrize("body", BODIES)
async def test_a_loop_of_many_writes_a_long_value_once(workshop: Workshop, tmp_path: Path, body: str) -> None:
    first = '- {name: first, type: python, action: give, kwargs: {value: "${{ inputs.text }}"}}'
    workshop.files["other"] = flow(
        """
        - {name: one, type: python, action: measure, kwargs: {text: "${{ inputs.said }}"}}
        """,
        "inputs: {said: {type: string}}\noutputs: {short: '${{ len(inputs.said) }}'}",
        name="other",
    )
    items = [f"i{number}" for number in range(MANY)]
    ran = await workshop.run(
        flow(first + LOOP + BODIES[body], HEAD), {"items": items, "text": LONG},
        store=SQLiteStore(tmp_path / "store.db"),
    )  # fmt: skip
    assert ran.run.status is Status.SUCCEEDED, ran.result.error
    lengths = {"deeper": [[{"length": len(LONG), "item": None}]], "subworkflow": {"short": len(LONG)}}
    expected = lengths.get(body, {"length": len(LONG), "item": None})
    assert ran.run.data["steps/each"]["output"] == [[expected]] * MANY
    assert size(tmp_path) < 12 * len(LONG), (
        "the input, the first result, the blob; some of it twice in the log"
    )
    if body == "subworkflow":
        started = [event for event in ran.told(WorkflowStarted) if event.workflow_name == "other"]
        assert {len(event.inputs["said"]) for event in started} == {len(LONG)}


async def test_a_short_value_stands_in_the_journal(workshop: Workshop) -> None:
    ran = await workshop.run(flow(LOOP + BODIES["input"], HEAD), {"text": "x" * (SHORT - 2)})
    (started, *_) = ran.journals["r.each[0]"]
    assert BESIDE not in started.body.data
    assert len(started.body.data["inputs"]["text"]) == SHORT - 2


async def test_an_input_that_looks_like_a_reference_stays_what_it_is(workshop: Workshop) -> None:
    """I9: what comes from outside refers to nothing."""
    head = "inputs: {text: {type: object}}"
    steps = """
    - name: each
      type: loop
      for_each: [1]
      steps: [{name: one, type: python, action: give, kwargs: {value: "${{ inputs.text }}"}}]
    """
    given = {"$blob": "0" * 64, "size": 3}
    ran = await workshop.run(flow(steps, head), {"text": given})
    assert ran.run.data["steps/each"]["output"] == [[given]]


HELD_UP = """
    - name: each
      type: loop
      for_each: [1]
      steps:
        - {name: wait, type: python, action: meet, kwargs: {name: door}}
        - {name: one, type: python, action: measure, kwargs: {text: "${{ inputs.text }}"}}
    """
"""A body that waits before it reads."""


async def test_a_killed_body_reads_it_again_when_it_goes_on(workshop: Workshop, tmp_path: Path) -> None:
    spec = workshop.spec(flow(HELD_UP, HEAD))
    store = tmp_path / "store.db"
    async with workshop.under_way(spec, {"text": LONG}, store=SQLiteStore(store)) as engine:
        await workshop.until_inside("door")
        await engine.stop(grace=0)
    workshop.door("door").set()
    async with workshop.engine(spec, SQLiteStore(store)) as engine:
        ran = await workshop.finished(engine)
    assert ran.step("each/[0]/one").output == {"length": len(LONG), "item": None}


async def test_a_rollback_is_told_it(workshop: Workshop) -> None:
    async def put(ctx: Any, text: str) -> dict[str, Any]:
        ctx.propose("shelf.put", text=text[:4])
        return {}

    told: list[int] = []

    def unput(text: str) -> dict[str, Any]:
        told.append(len(text))
        return {}

    workshop.more += [
        Action("put_long", handler=put, intent=INTENT, effects=("shelf.put",), rollback="unput_long"),
        Action("unput_long", handler=unput, intent=INTENT),
    ]
    steps = """
    - name: each
      type: loop
      for_each: inputs.items
      steps: [{name: one, type: python, action: put_long, kwargs: {text: "${{ inputs.text }}"}}]
    - {name: bad, type: python, action: boom}
    """
    ran = await workshop.run(flow(steps, HEAD), {"text": LONG})
    assert (ran.run.status, told, ran.result.rollback_errors) == (Status.FAILED, [len(LONG)] * 2, ())


async def test_a_fork_reads_it_too(workshop: Workshop) -> None:
    steps = """
    - name: each
      type: loop
      for_each: [1]
      steps:
        - {name: one, type: python, action: measure, kwargs: {text: "${{ inputs.text }}"}}
        - {name: two, type: python, action: measure, kwargs: {text: "${{ inputs.text }}"}}
    """
    async with workshop.under_way(flow(steps, HEAD), {"text": LONG}) as engine:
        await engine.finish("r")
        entries = await engine.store.entries("r.each[0]")
        at = next(entry.seq for entry in entries if entry.kind == "moved")
        new = await engine.fork_family("r", ("r.each[0]", at), new_id="f")
        await engine.store.purge("r.each[0]")
        run = await engine.finish(new)
        assert run.data["steps/each"]["output"][0][1] == {"length": len(LONG), "item": None}


async def test_one_that_was_purged_is_asked_for_in_plain_words(workshop: Workshop, tmp_path: Path) -> None:
    spec = workshop.spec(flow(HELD_UP, HEAD))
    async with workshop.under_way(spec, {"text": LONG}, store=SQLiteStore(tmp_path / "store.db")) as engine:
        await workshop.until_inside("door")
        await engine.store.purge("r.each[0]")
        await engine.stop(grace=0)
    async with workshop.engine(spec, SQLiteStore(tmp_path / "store.db")) as engine:
        ran = await workshop.finished(engine)
    assert "'text' of its inputs was purged. Start a new run." in str(ran.result.error)


async def test_until_sees_what_the_loop_sees(workshop: Workshop) -> None:
    """Also what no step of the body reads."""
    steps = """
    - {name: most, type: python, action: give, kwargs: {value: 2}}
    - name: again
      type: loop
      until: steps.look.output.value >= steps.most.output and len(inputs.text) > 5
      steps: [{name: look, type: python, action: echo, kwargs: {value: "${{ index }}"}}]
    """
    ran = await workshop.run(flow(steps, HEAD), {"text": LONG})
    assert ran.run.status is Status.SUCCEEDED, ran.result.error
    assert len(ran.run.data["steps/again"]["output"]) == 3


async def test_a_replay_of_a_past_step_sees_it(workshop: Workshop) -> None:
    answers = {"one": [{"output": {"length": len(LONG), "item": None}}]}
    dispatch = DispatchSettings(executors=ScriptedSource(ScriptedStepExecutor(answers)))
    steps = """
    - name: each
      type: loop
      for_each: [1]
      steps: [{name: one, type: python, action: measure, kwargs: {text: "${{ inputs.text }}"}}]
    """
    async with workshop.under_way(flow(steps, HEAD), {"text": LONG}, engine={"dispatch": dispatch}) as engine:
        await engine.finish("r")
        (note,) = [note async for note in replay(engine, "r.each[0]", keep=False)]
    assert note["outcome"] == "agreed", note
