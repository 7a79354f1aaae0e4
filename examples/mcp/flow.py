"""A question is looked up in a handbook behind an MCP server; a missing answer becomes a new page.

`handbook.search` is a query and `handbook.add_page` an effect, as `detent.yaml` declares, and each step names
the tools it may use. Nothing here knows where the server is or how it is reached.
"""

import asyncio
import sys

from detent import Flow, Machine, Outcome, Status

MOVES = {"look_up": ["answered", "write"], "write": ["written", "refused"]}
ENDS = {"answered": Status.SUCCEEDED, "written": Status.SUCCEEDED, "refused": Status.FAILED}

handbook = Flow(Machine("handbook", start="look_up", moves=MOVES, ends=ENDS))


@handbook.step("look_up", intent="Find what the handbook says about the topic.", queries=("handbook.search",))
async def look_up(ctx):
    found = await ctx.query("handbook.search", words=ctx.data["topic"])
    if found["pages"]:
        return Outcome("answered", set={"answer": found["pages"][0]}, reason="the handbook has it")
    return Outcome("write", reason="the handbook has nothing")


@handbook.step("write", intent="Add a page that asks for an answer.", effects=("handbook.add_page",))
async def write(ctx):
    if ctx.failure is not None:  # the tool refused, so nothing was done
        return Outcome("refused", reason="the page could not be added")
    topic = ctx.data["topic"]
    page = ctx.propose("handbook.add_page", title=topic, text=f"Somebody asked about {topic}.")
    return Outcome("written", set={"page": page["id"]}, reason="a new page")


async def main(topic):
    from detent import Engine
    from detent.runtime.mcp import mcp_for
    from detent.runtime.settings import read_settings
    from detent.stores import MemoryStore

    mcp_for(read_settings(), [handbook])  # attached to the flow; opened and closed by the engine
    async with Engine(MemoryStore(), [handbook]) as engine:
        run = await engine.run("handbook", {"topic": topic})
        print(run.state, run.data)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "lamps"))
