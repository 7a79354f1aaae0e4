"""Loop steps: every iteration is a child run, so that an interrupted loop resumes where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.engine.child import Child
from detent.engine.context import StepContext
from detent.engine.offloaded import Beside
from detent.engine.step import Step
from detent.flows.workflow.compile_context import CompileContext, Position
from detent.flows.workflow.errors import LoopExhausted, LoopStepExecutionError, WorkflowError
from detent.flows.workflow.expressions import Prepared, condition
from detent.flows.workflow.expressions.values import described
from detent.flows.workflow.run_data import INDEX, ITEM, STEP, TOTAL, error_of, handed_down, key_of, scope_of
from detent.flows.workflow.spec import LoopStep
from detent.flows.workflow.steps.common import child_config, control, resolved
from detent.kernel.plain import to_plain
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.flows.workflow.child_flows import Body

MOST_ITEMS = 10_000


def loop_step(position: Position, home: CompileContext, bodies: Sequence[Body]) -> Step:
    """Return the flow's step for a loop. `bodies`: one for all its steps, or one for each parallel step."""
    spec = position.spec
    assert isinstance(spec, LoopStep)
    limit_given = spec.max_concurrency > 1 and not spec.parallel
    limit = home.ports.max_parallel if spec.bounded_by_settings and not limit_given else spec.max_concurrency
    if spec.has_for_each:
        handler = _each(spec, bodies[0], condition(spec.for_each), limit)
    elif spec.until is not None:
        handler = _until(spec, bodies[0], condition(spec.until))
    else:
        handler = _parallel(spec, bodies, limit)
    return control(position, home, handler)


def _each(spec: LoopStep, body: Body, items_of: Prepared, limit: int) -> Callable[[StepContext], Any]:
    async def handler(ctx: StepContext) -> list[list[Any]]:
        # Recorded, so that a resumed loop sees the same items.
        items = await ctx.once(f"items/{spec.name}", lambda: _items(spec, resolved(items_of, ctx)))
        down, beside = _down(ctx, body)
        children = await ctx.children(
            [
                (f"{spec.name}[{index}]", {**down, ITEM: item, INDEX: index, TOTAL: len(items)})
                for index, item in enumerate(items)
            ],
            flow=body.flow, limit=limit, stop_on_failure=True, config=_child_config(ctx, spec, [body]),
            beside=beside,
        )  # fmt: skip
        _check(spec, children, len(items))
        return [outputs(child, body.steps) for child in children]

    return handler


def _until(spec: LoopStep, body: Body, until: Prepared) -> Callable[[StepContext], Any]:
    async def handler(ctx: StepContext) -> list[list[Any]]:
        results: list[list[Any]] = []
        down, beside = _down(ctx, body)
        for index in range(spec.max_iterations):
            (child,) = await ctx.children(
                [(f"{spec.name}[{index}]", {**down, INDEX: index})],
                flow=body.flow, config=_child_config(ctx, spec, [body]), beside=beside,
            )  # fmt: skip
            _check(spec, [child], index + 1, first=index)
            results.append(outputs(child, body.steps))
            met, _ = await ctx.once(f"until/{spec.name}/{index}", partial(_until_met, until, ctx, child))
            if met:
                return results
        if spec.on_exhausted == "fail":
            raise LoopExhausted(spec.name, spec.max_iterations)
        return results

    return handler


def _parallel(spec: LoopStep, bodies: Sequence[Body], limit: int) -> Callable[[StepContext], Any]:
    async def handler(ctx: StepContext) -> list[list[Any]]:
        down = {f"{spec.name}[{index}]": _down(ctx, body) for index, body in enumerate(bodies)}
        children = await ctx.children(
            [(key, down[key][0], body.flow) for key, body in zip(down, bodies, strict=True)],
            limit=limit, stop_on_failure=True, config=_child_config(ctx, spec, bodies),
            beside={key: beside for key, (_, beside) in down.items()},
        )  # fmt: skip
        _check(spec, children, len(bodies))
        return [[outputs(child, body.steps)[0] for child, body in zip(children, bodies, strict=True)]]

    return handler


def _items(spec: LoopStep, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise WorkflowError(
            f"Loop '{spec.name}': `for_each` gives {described(value)}; it must give a list of items."
        )
    if len(value) > MOST_ITEMS:
        raise WorkflowError(
            f"Loop '{spec.name}': `for_each` gives {len(value):,} items; at most {MOST_ITEMS:,} are allowed. "
            f"Put several into one item."
        )
    plain: list[Any] = to_plain(value)
    return plain


def _until_met(until: Prepared, ctx: StepContext, child: Child) -> list[Any]:
    """Evaluate `until`, which sees the scope of the loop and the results of this pass."""
    pass_results = {
        key: value for key, value in to_plain(child.data).items() if key.startswith(STEP) or key == INDEX
    }
    value = until.resolve(scope_of({**ctx.values, **pass_results}))
    return [bool(value), to_plain(value)]


def _down(ctx: StepContext, body: Body) -> tuple[dict[str, Any], Beside]:
    return handed_down(ctx.values, body.inputs, body.outer)


def _child_config(
    ctx: StepContext, spec: LoopStep, bodies: Sequence[Body]
) -> Callable[[str], Mapping[str, Any]]:
    """The configurations of the child runs, by key; with several bodies, each child run has its own."""
    path = ctx.step_path

    def config(key: str) -> Mapping[str, Any]:
        number = key[len(spec.name) :]
        body = bodies[int(number[1:-1]) if len(bodies) > 1 else 0]
        return child_config(ctx, f"{path}/{number}", body.names)

    return config


def _check(spec: LoopStep, children: Sequence[Child], total: int, first: int = 0) -> None:
    """Raise if iterations failed, or never began because another one failed."""
    bad = [child for child in children if not child.ok]
    if not bad:
        return
    failed = [child for child in bad if child.status is not Status.CANCELLED] or bad
    indices = [int(child.key[len(spec.name) + 1 : -1]) for child in failed]
    raise LoopStepExecutionError(spec.name, indices, total, error_of(failed[0]))


def outputs(child: Child, steps: Sequence[str]) -> list[Any]:
    """Return the outputs of the steps of one iteration, in the order of the file."""
    return [to_plain(child.data[key_of(step)]["output"]) for step in steps]
