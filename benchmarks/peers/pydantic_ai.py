"""The peer ``pydantic-ai``: an agent with a structured answer, by itself or inside a DBOS workflow."""

import asyncio
from typing import Any

from dbos import DBOS
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from benchmarks.peers.dbos import FEW, TABLE, launched
from benchmarks.protocol import (
    ANSWER,
    INTENT,
    MESSAGE,
    Param,
    Result,
    agent_steps,
    asked,
    count_rows,
    database,
    main,
    require,
)


class Form(BaseModel):
    """What the agent states."""

    kind: str
    urgent: bool


def run_agent(param: Param) -> Result:
    """Have the agent answer; `durable` records every request to the model in DBOS's database."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, await asked(param["wait"]))])

    durable = bool(param.get("durable"))
    more: dict[str, Any] = {"capabilities": [DBOSDurability()]} if durable else {}
    agent = Agent(FunctionModel(answer), output_type=Form, instructions=INTENT, name="triage", **more)

    async def execute(run: int) -> None:
        done = await agent.run(MESSAGE)
        require(done.output == Form(**ANSWER), "a run ended without its answer")

    if not durable:
        return asyncio.run(agent_steps(execute, param))

    @DBOS.workflow(name="triage_mail")
    async def workflow(run: int) -> None:
        await execute(run)

    path = database(param)
    with launched(path, **({"max_executor_threads": FEW} if param.get("together") else {})):
        result = asyncio.run(agent_steps(workflow, param))
    require(count_rows(path, TABLE) >= param["runs"] + 1, "recorded steps are missing")
    return result


if __name__ == "__main__":
    main({"agent": run_agent})
