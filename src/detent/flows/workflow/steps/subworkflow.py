"""Subworkflow steps: another workflow file, run as a child run."""

from __future__ import annotations

from typing import Any

from detent.engine.context import StepContext
from detent.engine.offloaded import set_aside
from detent.engine.step import Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.errors import SubworkflowError
from detent.flows.workflow.expressions import prepared
from detent.flows.workflow.inputs import coerce, switched_off
from detent.flows.workflow.run_data import INPUTS, RESULT, SECRETS, error_of
from detent.flows.workflow.secrets import marked, marks_for
from detent.flows.workflow.spec import SubworkflowStep
from detent.flows.workflow.steps.common import child_config, control, resolved
from detent.kernel.plain import to_plain
from detent.kernel.run_config import FORCE


def subworkflow_step(position: Position, home: CompileContext, names: frozenset[str]) -> Step:
    """Return the flow's step for a subworkflow; `names` are the names of the child's steps."""
    spec = position.spec
    assert isinstance(spec, SubworkflowStep)
    child_home = home.find(spec.workflow)
    child_spec = child_home.spec
    inputs_of = prepared(dict(spec.inputs))

    async def handler(ctx: StepContext) -> Any:
        marks = dict(ctx.values.get(SECRETS) or {})
        values = to_plain(resolved(inputs_of, ctx))
        # A secret that is passed on keeps its mark; a secret that the child declares gets a new one.
        handed = {name: values.pop(name) for name in list(values) if _is_mark(values[name], marks)}
        declared = {
            name: declaration for name, declaration in child_spec.inputs.items() if name not in handed
        }
        own_secrets = {
            name: declaration
            for name, declaration in declared.items()
            if declaration.secret and name not in marks
        }
        if own_secrets:
            marks |= await ctx.once(f"marks/{spec.name}", lambda: marks_for(own_secrets))
        inputs = marked(coerce(declared, values, environ=home.environ), marks)
        data, beside = set_aside(
            {INPUTS: {**inputs, **handed}, **({SECRETS: marks} if marks else {})}, INPUTS
        )
        config = child_config(ctx, ctx.step_path, names)
        if switched_off(inputs):
            config[FORCE] = True
        child = await ctx.child(child_spec.name, data, key=spec.name, beside=beside, config=config)
        if not child.ok:
            raise SubworkflowError(spec.name, child_spec.name, child.status.value, error_of(child))
        return to_plain(child.data.get(RESULT))

    return control(position, home, handler)


def _is_mark(value: Any, marks: dict[str, str]) -> bool:
    return isinstance(value, str) and value in marks.values()
