"""The peer ``pydantic-graph``: a graph engine in memory."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from pydantic_graph import BaseNode, End, GraphBuilder, GraphRunContext

from benchmarks.protocol import Param, Result, main, require


@dataclass
class Data:
    """What a run carries: how far it is, and the moves it made."""

    limit: int
    history: list[tuple[str, float]] = field(default_factory=list)

    def record(self, state: str) -> bool:
        """Record a step and say whether the run goes on."""
        self.history.append((state, time.time()))
        return len(self.history) < self.limit


@dataclass
class Draft(BaseNode[Data, None, int]):
    """First state of the cycle."""

    async def run(self, ctx: GraphRunContext[Data]) -> Review | End[int]:
        """Go on to review."""
        return Review() if ctx.state.record("draft") else End(len(ctx.state.history))


@dataclass
class Review(BaseNode[Data, None, int]):
    """Second state of the cycle."""

    async def run(self, ctx: GraphRunContext[Data]) -> Approve | End[int]:
        """Go on to approve."""
        return Approve() if ctx.state.record("review") else End(len(ctx.state.history))


@dataclass
class Approve(BaseNode[Data, None, int]):
    """Third state of the cycle."""

    async def run(self, ctx: GraphRunContext[Data]) -> Publish | End[int]:
        """Go on to publish."""
        return Publish() if ctx.state.record("approve") else End(len(ctx.state.history))


@dataclass
class Publish(BaseNode[Data, None, int]):
    """Fourth state of the cycle."""

    async def run(self, ctx: GraphRunContext[Data]) -> Draft | End[int]:
        """Go back to draft."""
        return Draft() if ctx.state.record("publish") else End(len(ctx.state.history))


def run_engine(param: Param) -> Result:
    """Take all steps in one run of the graph."""
    builder = GraphBuilder(state_type=Data, input_type=Draft, output_type=int)
    builder.add(builder.edge_from(builder.start_node).to(Draft))
    builder.add(*(builder.node(node) for node in (Draft, Review, Approve, Publish)))
    graph = builder.build()

    async def go() -> float:
        begin = time.perf_counter()
        done = await graph.run(state=Data(param["steps"]), inputs=Draft())
        seconds = time.perf_counter() - begin
        require(done == param["steps"], f"{done} steps ran")
        return seconds

    return {"seconds": asyncio.run(go()), "n": param["steps"]}


if __name__ == "__main__":
    main({"engine": run_engine})
