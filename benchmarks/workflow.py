"""Workflow files: what a step of one costs beside a step of a flow in Python, and what expressions cost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.ours import END, check_store, check_sync
from benchmarks.protocol import Param, Result, database, main, require

EXPRESSIONS = (
    "steps.fetch.output.rows[3]",
    "inputs.push and steps.fetch.output.has_changes",
    "default(steps.fetch.output.missing, inputs.name)",
    "len(steps.fetch.output.rows) > 3 and 'urgent' in inputs.tags",
    "lower(inputs.name) == 'holt' or not inputs.push",
)
PYTHON = (
    "steps['fetch']['output']['rows'][3]",
    "inputs['push'] and steps['fetch']['output']['has_changes']",
    "steps['fetch']['output'].get('missing') or inputs['name']",
    "len(steps['fetch']['output']['rows']) > 3 and 'urgent' in inputs['tags']",
    "inputs['name'].lower() == 'holt' or not inputs['push']",
)
"""The same in Python, compiled ahead: the floor nobody who evaluates a tree can reach."""
INPUTS = {"push": True, "name": "Holt", "tags": ["urgent", "paid"]}
STEPS = {"fetch": {"output": {"rows": [1, 2, 3, 4], "has_changes": True}, "status": "ok"}}

Run = Callable[[], Awaitable[Any]]


def text(steps: int) -> str:
    """A file of so many steps, each reading what the one before it gave."""
    lines = ['version: "1.0"', "name: line", "inputs: {first: {type: integer, default: 0}}", "steps:"]
    for number in range(steps):
        before = f"steps.s{number - 1}.output.value" if number else "inputs.first"
        value = f"'${{{{ {before} }}}}'"
        lines.append(f"  - {{name: s{number}, type: python, action: pass_on, kwargs: {{value: {value}}}}}")
    return "\n".join(lines) + "\n"


def loop_text() -> str:
    """A file with a loop over its items, one step each."""
    return "\n".join(
        (
            'version: "1.0"', "name: each", "inputs: {items: {type: array}}", "steps:", "  - name: all",
            "    type: loop", "    for_each: inputs.items", "    parallel: true", "    steps:",
            "      - {name: one, type: python, action: pass_on, kwargs: {value: '${{ item }}'}}", "",
        )
    )  # fmt: skip


def registry() -> Any:
    """One action that does nothing."""
    from detent.flows.workflow.registry import Registry, action

    @action("pass_on", intent="Hand on what was given without a change.")
    async def pass_on(value: int) -> dict[str, int]:
        return {"value": value}

    module = ModuleType("bench_actions")
    module.pass_on = pass_on  # type: ignore[attr-defined]
    return Registry(module)


def compiled(source: str) -> tuple[Any, list[Any]]:
    """The workflow of a file and its flows."""
    from detent.flows.workflow.compile_context import Ports
    from detent.flows.workflow.flow import Compiled
    from detent.flows.workflow.reading import read_workflow

    read = read_workflow(source.encode(), "bench.yaml")
    require(read.spec is not None, "; ".join(str(problem) for problem in read.problems[:3]))

    async def never(*_: Any) -> Any:
        raise AssertionError

    made = Compiled(registry(), [], Ports(Path("."), never, never), lambda name, of: read.spec)
    return read.spec, made.flows(read.spec)


def line_flow(steps: int) -> Any:
    """The same steps as a flow written in Python: each sets a key of its own."""
    from detent import Flow, Machine, Outcome, Status, StepContext

    states = [f"s{number}" for number in range(steps)]

    def handler(number: int) -> Any:
        async def pass_on(ctx: StepContext) -> Outcome:
            before = ctx.values[f"steps/s{number - 1}"]["output"]["value"] if number else 0
            return Outcome(set={f"steps/s{number}": {"output": {"value": before}, "status": "ok"}})

        return pass_on

    moves = {state: [following] for state, following in zip(states, [*states[1:], END], strict=True)}
    machine = Machine("plain", start=states[0], moves=moves, ends={END: Status.SUCCEEDED})
    return Flow(machine, {state: handler(number) for number, state in enumerate(states)})


def run_steps(param: Param) -> Result:
    """One run of many steps, each committed at full sync (or in memory)."""

    async def work() -> Result:
        from detent import Engine
        from detent.adapters.stores.sqlite import SQLiteStore
        from detent.stores import MemoryStore

        store: Any = MemoryStore() if param.get("memory") else SQLiteStore(database(param))
        steps = param["steps"]
        if param["way"] == "plain":
            name, flows, data = "plain", [line_flow(steps)], {}
        else:
            _, flows = compiled(text(steps))
            name, data = "line", {"inputs": {"first": 0}}
        async with Engine(store, flows) as engine:
            if not param.get("memory"):
                await check_sync(store)
            begin = time.perf_counter()
            run = await engine.run(name, data)
            seconds = time.perf_counter() - begin
        require(run.status.value == "succeeded", f"the run {run.status.value}: {run.error}")
        if not param.get("memory"):
            check_store(database(param), run.seq)
        return {"seconds": seconds, "n": steps, "us": seconds / steps * 1e6}

    return asyncio.run(work())


def run_loop(param: Param) -> Result:
    """A parallel loop: every iteration is a child run, committed at full sync."""

    async def work() -> Result:
        from detent import Engine, Flow, Machine, Outcome, Status, StepContext
        from detent.adapters.stores.sqlite import SQLiteStore

        items = list(range(param["items"]))
        if param["way"] == "plain":
            ends = {END: Status.SUCCEEDED}

            async def one(ctx: StepContext) -> Outcome:
                return Outcome(set={"value": ctx.values["item"]})

            async def every(ctx: StepContext) -> Outcome:
                children = await ctx.children(
                    [(f"all[{index}]", {"item": item}) for index, item in enumerate(items)],
                    flow="one",
                    limit=8,
                )
                return Outcome(set={"values": [child.data["value"] for child in children]})

            flows: list[Any] = [
                Flow(Machine("each", start="all", moves={"all": [END]}, ends=ends), {"all": every}),
                Flow(Machine("one", start="do", moves={"do": [END]}, ends=ends), {"do": one}),
            ]
            data: dict[str, Any] = {}
        else:
            _, flows = compiled(loop_text())
            data = {"inputs": {"items": items}}
        async with Engine(SQLiteStore(database(param)), flows) as engine:
            begin = time.perf_counter()
            run = await engine.run("each", data)
            seconds = time.perf_counter() - begin
        require(run.status.value == "succeeded", f"the run {run.status.value}: {run.error}")
        return {"seconds": seconds, "n": len(items), "us": seconds / len(items) * 1e6}

    return asyncio.run(work())


def run_expressions(param: Param) -> Result:
    """Expressions evaluated over and over, parsed once."""
    rounds = param["rounds"]
    if param["way"] == "python":
        made = [compile(one, "expression", "eval") for one in PYTHON]
        names = {"inputs": INPUTS, "steps": STEPS}
        begin = time.perf_counter()
        for _ in range(rounds):
            for code in made:
                eval(code, {"__builtins__": {"len": len}}, names)
        seconds = time.perf_counter() - begin
    else:
        from detent.flows.workflow.expressions import Scope, parse

        read = [parse(one) for one in EXPRESSIONS]
        scope = Scope(INPUTS, STEPS)
        begin = time.perf_counter()
        for _ in range(rounds):
            for expression in read:
                expression.evaluate(scope)
        seconds = time.perf_counter() - begin
    count = rounds * len(EXPRESSIONS)
    return {"seconds": seconds, "n": count, "us": seconds / count * 1e6}


def run_reading(param: Param) -> Result:
    """A file read, checked and made into flows; a third of its size beside it."""
    from detent.flows.workflow.checks import check_read
    from detent.flows.workflow.reading import read_workflow

    shelf = registry()

    def once(steps: int) -> float:
        source = text(steps).encode()
        begin = time.perf_counter()
        read = read_workflow(source, "bench.yaml")
        require(read.spec is not None, "; ".join(str(problem) for problem in read.problems[:3]))
        found = check_read(read, shelf, lambda name: None)
        require(not found, "; ".join(str(problem) for problem in found[:3]))
        return time.perf_counter() - begin

    small, whole = once(param["steps"] // 3), once(param["steps"])
    return {
        "seconds": whole,
        "n": param["steps"],
        "us": whole / param["steps"] * 1e6,
        "growth": whole / small / 3,
    }


if __name__ == "__main__":
    main({"steps": run_steps, "loop": run_loop, "expressions": run_expressions, "reading": run_reading})
