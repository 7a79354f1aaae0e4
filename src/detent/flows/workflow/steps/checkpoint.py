"""Checkpoint steps: name a point to fork from, and save a file with the results so far."""

from __future__ import annotations

import time
from typing import Any

from detent.engine.context import StepContext
from detent.engine.step import Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.errors import WorkflowError
from detent.flows.workflow.expressions import prepared
from detent.flows.workflow.run_data import HASH, INPUTS, OK, Results
from detent.flows.workflow.spec import CheckpointStep
from detent.flows.workflow.steps.common import control, resolved
from detent.kernel.ids import ROOT, guessed_root
from detent.kernel.plain import encode, to_plain

LONGEST_ID = 200


def checkpoint_step(position: Position, home: CompileContext) -> Step:
    """Return the flow's step for a checkpoint. Writing the file twice has the same effect as once."""
    spec = position.spec
    assert isinstance(spec, CheckpointStep)
    named = prepared(spec.checkpoint_id if spec.checkpoint_id is not None else spec.name)

    async def inputs(ctx: StepContext) -> dict[str, Any]:
        value = resolved(named, ctx)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise WorkflowError(f"Checkpoint '{spec.name}': its id must be text or a number.")
        checkpoint_id = value if isinstance(value, str) else encode(value)
        if not checkpoint_id.strip() or len(checkpoint_id) > LONGEST_ID:
            raise WorkflowError(f"Checkpoint '{spec.name}': its id must have 1 to {LONGEST_ID} characters.")
        return {"checkpoint_id": checkpoint_id}

    async def handler(ctx: StepContext) -> dict[str, Any]:
        checkpoint_id = (await ctx.inputs())["checkpoint_id"]
        now = ctx.now()
        results = Results(ctx.values)
        document = {
            "checkpoint_id": checkpoint_id,
            "workflow_name": home.definition,
            "inputs_hash": ctx.values.get(HASH) or home.hash_of(ctx.values.get(INPUTS) or {}),
            "step_results": [
                {"name": name, "output": to_plain(results[name]["output"])}
                for name in results
                if results[name]["status"] == OK
            ],
            "saved_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "run_id": ctx.run_id,
        }
        root = ctx.config.get(ROOT) or guessed_root(ctx.run_id)
        await home.ports.save_checkpoint(root, checkpoint_id, document)
        return {"saved": True, "checkpoint_id": checkpoint_id, "timestamp": now}

    return control(position, home, handler, inputs=inputs, opaque=True, repeatable=True)
