"""Detent's half of the dispatch workloads: what deciding who performs a step costs, by code and by agent."""

import asyncio
import logging
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from benchmarks.ours import END, check_sync, cycle_flow
from benchmarks.protocol import (
    ANSWER,
    INTENT,
    MESSAGE,
    STATES,
    Param,
    Result,
    agent_steps,
    count_rows,
    database,
    main,
    require,
    succ,
)


@dataclass
class Form:
    """What the agent step states."""

    kind: str
    urgent: bool = False


async def triage(ctx: Any) -> Form:
    """Come to the answer by code, as the agent does by asking."""
    text = ctx.data["text"]
    return Form("fault" if "broken" in text else "question", "!" in text)


def triage_flow() -> Any:
    """One step that an agent may perform, and the end."""
    from detent import Flow, Machine, Move, Status, Step, when

    table = {"triage": [Move(END, when=when({"kind": ["fault", "question"]}))]}
    machine = Machine("mail", start="triage", moves=table, ends={END: Status.SUCCEEDED})
    return Flow(machine, {"triage": Step("triage", triage, INTENT, inputs=("text",), output_schema=Form)})


# -- by code ------------------------------------------------------------------------------------------------


def counting(steps: int) -> Any:
    """The handler of every step of the cycle, which leaves it after a number of steps."""
    from detent import Outcome

    async def work(ctx: Any) -> Any:
        taken = ctx.data["taken"] + 1
        return Outcome(END if taken == steps else succ(ctx.state), set={"taken": taken, "at": time.time()})

    return work


async def bare_handler(steps: int) -> float:
    """Call the handler with nothing around it, going where it says."""
    work = counting(steps)
    ctx = SimpleNamespace(state=STATES[0], data={"taken": 0})
    begin = time.perf_counter()
    while ctx.state != END:
        outcome = await work(ctx)
        ctx.state, ctx.data = outcome.next, outcome.set
    seconds = time.perf_counter() - begin
    require(ctx.data["taken"] == steps, "steps are missing")
    return seconds


async def dispatcher_alone(steps: int) -> float:
    """Do only what dispatch adds to a step: find its plan, and tell of it if anyone listens."""
    from detent.dispatch.dispatcher import Dispatcher
    from detent.engine import logger

    flow, dispatcher = cycle_flow(counting(steps)), Dispatcher()
    runs: list[Any] = [SimpleNamespace(id="r1", config={}, state=state) for state in STATES]
    order = [runs[step % len(runs)] for step in range(steps)]
    require(all(dispatcher.assign(flow, run).plain for run in runs), "a step is not plain")
    begin = time.perf_counter()
    for run in order:
        plan = dispatcher.assign(flow, run)
        if logger.wants(logger.INFO):
            dispatcher.started(plan, run, 0.0)
            dispatcher.completed(plan, run, 0.0, 0.0)
    return time.perf_counter() - begin


async def whole_engine(steps: int) -> float:
    """Take the steps in one run of the whole engine in memory."""
    from detent import Engine
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.stores import MemoryStore

    flow = cycle_flow(counting(steps))
    async with Engine(MemoryStore(), [flow], dispatch=DispatchSettings()) as engine:
        begin = time.perf_counter()
        run = await engine.run("cycle", {"taken": 0})
        seconds = time.perf_counter() - begin
    require(run.steps == steps, "steps are missing")
    return seconds


class Discard(logging.Handler):
    """Counts the records it gets and writes them nowhere."""

    def __init__(self) -> None:
        """Begin at nothing."""
        super().__init__()
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count one."""
        self.seen += 1


def run_code(param: Param) -> Result:
    """Take steps performed by their handlers: `part` says how much of Detent takes part."""
    steps, events = param["steps"], param.get("events")
    discard = Discard()
    if events == "written":
        logger = logging.getLogger("detent")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(discard)
    elif events == "structlog":
        import structlog

        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    parts = {"handler": bare_handler, "dispatcher": dispatcher_alone, "engine": whole_engine}
    seconds = asyncio.run(parts[param.get("part", "engine")](steps))
    require(events != "written" or discard.seen >= 2 * steps, f"only {discard.seen} events were told")
    return {"seconds": seconds, "n": steps, "us": seconds / steps * 1e6}


# -- by agent -----------------------------------------------------------------------------------------------


def run_agent(param: Param) -> Result:
    """Have the step performed by an agent that answers after a while: asked, checked, recorded."""
    from detent import Engine
    from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
    from detent.dispatch.config import StepConfig
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.kernel.entries import Moved
    from detent.stores import MemoryStore, SQLiteStore

    path, runs = database(param), param["runs"]
    durable, level = param.get("store", "sqlite") == "sqlite", param.get("level", "consultant")
    executor = ScriptedStepExecutor([{"output": ANSWER, "delay": param["wait"], "repeat": True}])
    settings = DispatchSettings(
        steps={"triage": StepConfig.read({"mode": "agent", "autonomy": level})},
        executors=ScriptedSource(executor),
    )

    async def everything() -> Result:
        store: Any = SQLiteStore(path) if durable else MemoryStore()
        async with Engine(store, [triage_flow()], concurrency=runs, dispatch=settings) as engine:
            if durable:
                await check_sync(store)
            ended: list[Any] = []

            async def execute(run: int) -> None:
                ended.append(await engine.run("mail", {"text": MESSAGE}))

            result = await agent_steps(execute, param)
            for run in ended:
                require(run.data["kind"] == ANSWER["kind"], "a run ended without its answer")
                bodies = [entry.body for entry in await store.entries(run.id)]
                by = [body.by for body in bodies if isinstance(body, Moved)]
                require(by == ["agent"], "a step was not the agent's")
            return result

    result = asyncio.run(everything())
    require(len(executor.calls) == runs + 1, f"the agent was asked {len(executor.calls)} times")
    if durable:
        # Begun, answered, moved: three entries a run, the one that warms up included. A share of the answers
        # is compared with the handler's as well, and each comparison is noted.
        noted = count_rows(path, "entries", "kind = 'noted'")
        require(count_rows(path, "entries") - noted == 3 * (runs + 1), "entries are missing")
    return result


if __name__ == "__main__":
    main({"code": run_code, "agent": run_agent})
