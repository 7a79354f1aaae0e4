"""Workflows whose processes are to be killed: every effect is a line in a world that any process can read.

Written to be forked by the nursery, which loads this module once for all the processes that die.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from detent.dispatch import dispatcher  # noqa: F401  loaded before workers are forked
from detent.flows.workflow.compile_context import Ports
from detent.flows.workflow.flow import Compiled
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.registry import Registry, ValidationStage, action
from detent.flows.workflow.spec import WorkflowSpec
from detent.testing.crash import CrashPoints
from detent.testing.workload import Planned, Workload
from detent.testing.world import World

KINDS = ("probed", "keyed", "blind")
"""The kinds of tools there are; a run's number says which one it uses."""
ITEMS = 50

LOOP = """
version: "1.0"
name: batch
inputs: {items: {type: array}, kind: {type: string}}
steps:
  - name: each
    type: loop
    for_each: inputs.items
    parallel: true
    steps:
      - name: put
        type: python
        action: put-${{kind}}
        kwargs: {text: "${{ item }}", turn: "${{ index }}"}
"""

WHOLE = """
version: "1.0"
name: whole
inputs: {names: {type: array}, pass: {type: boolean}, fail: {type: boolean}}
steps:
  - {name: first, type: python, action: put-probed, kwargs: {text: first}}
  - name: outer
    type: loop
    for_each: inputs.names
    max_concurrency: 2
    steps:
      - {name: head, type: python, action: put-keyed, kwargs: {text: "head ${{ item }}"}}
      - name: inner
        type: loop
        for_each: "[1, 2]"
        parallel: true
        steps:
          - {name: leaf, type: python, action: put-probed, kwargs: {text: "leaf ${{ index }} ${{ item }}"}}
          - {name: below, type: subworkflow, workflow: part, inputs: {word: "${{ item }}"}}
      - {name: passed, type: python, action: put-keyed, when: "index == 7", kwargs: {text: never}}
  - name: pick
    type: branch
    options:
      - when: "len(steps.outer.output) == 7"
        step: {name: no, type: python, action: put-keyed, kwargs: {text: no}}
      - {step: {name: yes, type: python, action: put-keyed, kwargs: {text: "picked"}}}
  - name: again
    type: loop
    until: steps.look.output.turn >= 2
    steps:
      - name: look
        type: python
        action: put-probed
        kwargs: {text: "look ${{ index }}", turn: "${{ index }}"}
  - name: check
    type: validate
    stages: [works]
    retry: 2
    on_failure: {name: mend, type: python, action: put-keyed, kwargs: {text: mended}}
  - {name: spot, type: checkpoint}
  - {name: last, type: python, action: stumble, kwargs: {fail: "${{ inputs.fail }}"}}
outputs: {outer: "${{ steps.outer.output }}", again: "${{ steps.again.output }}"}
"""

PART = """
version: "1.0"
name: part
inputs: {word: {type: integer}}
steps:
  - {name: one, type: python, action: put-keyed, kwargs: {text: "one ${{ inputs.word }}"}}
  - {name: two, type: python, action: put-probed, kwargs: {text: "two ${{ inputs.word }}"}}
"""


def _put(kind: str) -> Any:
    @action(
        f"put-{kind}", intent="Put the text on the list that everybody reads.", effects=[f"world.{kind}"],
        rollback=f"take-{kind}",
    )  # fmt: skip
    async def put(ctx, text: Any, turn: int = 0) -> dict:
        receipt = ctx.propose(f"world.{kind}", text=str(text), of=ctx.run_id)
        return {"text": text, "turn": turn, "id": receipt.id, "of": ctx.run_id}

    return put


def _take(kind: str) -> Any:
    @action(
        f"take-{kind}", intent="Take the text off the list that everybody reads.", effects=[f"undo.{kind}"]
    )
    async def take(ctx, text: Any, of: str) -> dict:
        ctx.propose(f"undo.{kind}", text=str(text), of=of)
        return {}

    return take


@action("stumble", intent="Fail if that is what is asked of it, else do nothing.")
def stumble(fail: bool) -> dict:
    if fail:
        raise ValueError("it fell")
    return {"stands": True}


PUT_PROBED, PUT_KEYED, PUT_BLIND = (_put(kind) for kind in KINDS)
TAKE_PROBED, TAKE_KEYED, TAKE_BLIND = (_take(kind) for kind in KINDS)


def spec_of(text: str) -> WorkflowSpec:
    """A workflow from its text."""
    spec, problems = read_workflow(text.encode(), "here.yaml")[:2]
    assert spec is not None, [str(problem) for problem in problems]
    return spec


def made(world: World, crash: CrashPoints, spec: WorkflowSpec, others: dict[str, WorkflowSpec]) -> list[Any]:
    """The flows of a workflow on a world."""
    tools = [crash.tool(tool) for tool in [*world.tools(), *world.tools("undo")]]

    async def run_stage(stage: ValidationStage) -> dict[str, Any]:
        mended = any(one.args["text"] == "mended" for one in world.occurrences("world.keyed"))
        return {"exit_code": 0 if mended else 1, "output": "", "duration_ms": 1.0}

    async def save(root: str, checkpoint_id: str, document: Any) -> None:
        await asyncio.sleep(0)

    registry = Registry(sys.modules[__name__], ValidationStage("works", "", ("true",)))
    ports = Ports(Path("."), run_stage, save, max_parallel=8)
    return Compiled(registry, tools, ports, lambda name, of: others[name], {}).flows(spec)


def batch(world: World, crash: CrashPoints) -> Workload:
    """A parallel loop of fifty; the number of the run says with which kind of effect."""
    flows: list[Any] = []
    for kind in KINDS:
        text = LOOP.replace("${{kind}}", kind).replace("name: batch", f"name: batch-{kind}")
        flows += made(world, crash, spec_of(text), {})

    def plan(number: int) -> Planned:
        items = [f"item {index}" for index in range(ITEMS)]
        return Planned(f"batch-{KINDS[number]}", {"inputs": {"items": items, "kind": KINDS[number]}})

    return Workload(flows, plan)


def whole(world: World, crash: CrashPoints) -> Workload:
    """Every way of being inside something; run 1 fails at the end and undoes it all."""
    flows = made(world, crash, spec_of(WHOLE), {"part": spec_of(PART)})
    names = ["a", "b", "c"]
    return Workload(
        flows,
        lambda number: Planned("whole", {"inputs": {"names": names, "pass": True, "fail": number == 1}}),
    )


UNDONE = """
version: "1.0"
name: undone
steps:
  - {name: one, type: python, action: put-blind, kwargs: {text: one}}
  - {name: two, type: python, action: put-blind, kwargs: {text: two}}
  - {name: three, type: python, action: put-blind, kwargs: {text: three}}
  - {name: last, type: python, action: stumble, kwargs: {fail: true}}
"""


def undone(world: World, crash: CrashPoints) -> Workload:
    """Three effects that nobody can ask about, then a failure."""
    return Workload(made(world, crash, spec_of(UNDONE), {}), lambda number: Planned("undone", {"inputs": {}}))
