"""A run that asks a model in every way there is, and the model server it asks: for processes to be killed in.

The server listens on a loopback port in the test's own process; those who die speak real HTTP with it. What
it answers follows from the request alone, so that every process gets the same answer to the same question.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import httpx2  # noqa: F401  loaded once, before workers are forked
import jsonschema  # noqa: F401
import pydantic.json_schema  # noqa: F401

from detent.adapters.models import openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.prices import PriceTable
from detent.dispatch import execution, shadow  # noqa: F401
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.dispatch.executor import StepExecutor
from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.flow import Flow
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.budget import Budget
from detent.kernel.machine import Machine
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from detent.testing.workload import Planned, Workload
from detent.testing.world import World
from tests.adapters.models.server import Line, event

ADDRESS = "model-address"
"""File beside the world in which the server says where it listens."""
KEY = "DETENT_TEST_MODEL_KEY"
os.environ.setdefault(KEY, "a-key-nobody-may-find-in-a-journal")
MODEL = "oracle-1"
PRICES = PriceTable({MODEL: {"input": 2.0, "output": 10.0}})

# -- the run ------------------------------------------------------------------------------------------------

INTENTS = {
    "gather": "Find out which device the customer has and how often it was repaired.",
    "judge": "Say whether the warranty covers the device.",
    "settle": "Order the spare part and book the visit with the order's number.",
    "guess": "Guess how long the repair will take.",
    "count": "Count the letters of the serial number.",
    "advise": "Write one sentence of advice for the customer.",
}


@dataclass(frozen=True)
class Found:
    device: str
    repairs: int


@dataclass(frozen=True)
class Cover:
    covered: bool
    why: str


@dataclass(frozen=True)
class Settled:
    order: str
    visit: str


@dataclass(frozen=True)
class Guess:
    days: int


@dataclass(frozen=True)
class Count:
    letters: int


@dataclass(frozen=True)
class Advice:
    advice: str


EFFECTS = ("world.probed", "world.keyed")
SERIAL = {
    "type": "object",
    "properties": {"serial": {"type": "string"}},
    "required": ["serial"],
    "additionalProperties": False,
}
ORDER = {
    "type": "object",
    "properties": {"part": {"type": "string"}},
    "required": ["part"],
    "additionalProperties": False,
}
VISIT = {
    "type": "object",
    "properties": {"order": {"type": "string"}},
    "required": ["order"],
    "additionalProperties": False,
}


class Models:
    """Executors that ask the test's server."""

    default = "oracle"

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    def make(self, provider: str) -> StepExecutor:
        """One per run."""
        options = {
            "base_url": self._base_url, "model_id": MODEL, "api_key_env": KEY, "native_tools": True
        }  # fmt: skip
        return ModelStepExecutor(openai.connect(options, prices=PRICES))

    async def close(self) -> None:
        """Connections die with whoever asks."""


def journey(world: World, crash: CrashPoints) -> Workload:
    """Six steps: a tool loop, a comparison, two effects, a server that is down, a shadow of each kind."""

    def asked(name: str, serial: str) -> dict[str, Any]:
        world.pay(name, serial)
        return {"device": f"kettle {serial}"} if name == "world.device" else {"repairs": 2}

    def looks(name: str) -> Tool:
        return Tool(name, lambda serial: asked(name, serial), "query", arguments=SERIAL)

    probed, keyed, _ = world.tools()
    tools = [
        looks("world.device"),
        looks("world.history"),
        crash.tool(replace(probed, arguments=ORDER)),
        crash.tool(replace(keyed, arguments=VISIT)),
    ]

    async def gather(ctx: StepContext) -> Found:
        device = await ctx.query("world.device", serial=ctx.data.serial)
        history = await ctx.query("world.history", serial=ctx.data.serial)
        return Found(device["device"], history["repairs"])

    async def judge(ctx: StepContext) -> Cover:
        return Cover(ctx.data.repairs < 3, f"{ctx.data.repairs} repairs so far")

    async def settle(ctx: StepContext) -> Outcome:
        order = ctx.propose("world.probed", part="a slow heater")
        visit = ctx.propose("world.keyed", order=order.id)
        return Outcome(set={"settled": {"order": order.id, "visit": visit.id}})

    async def guess(ctx: StepContext) -> Guess:
        return Guess(3)

    async def count(ctx: StepContext) -> Count:
        return Count(len(ctx.data.serial))

    async def advise(ctx: StepContext) -> Advice:
        return Advice("Keep it dry.")

    def settled(acts: Sequence[Act]) -> dict[str, Any]:
        return {"order": acts[0].receipt["id"], "visit": acts[1].receipt["id"]} if len(acts) == 2 else {}

    def step(handler: Any, **options: Any) -> Step:
        name = handler.__name__
        return Step(name, handler, INTENTS[name], **{"effects": (), "queries": (), **options})

    steps = {
        "gather": step(gather, output_schema=Found, queries=("world.device", "world.history")),
        "judge": step(judge, output_schema=Cover),
        "settle": step(
            settle,
            into="settled",
            output_schema=Settled,
            effects=EFFECTS,
            agent=AgentSide(rounds=2, from_receipts=settled),
        ),
        "guess": step(guess, output_schema=Guess),
        "count": step(count, output_schema=Count),
        "advise": step(advise, output_schema=Advice),
    }
    order = [*steps, "done"]
    moves = {state: [after] for state, after in pairwise(order)}
    flow = Flow(
        Machine("journey", start="gather", moves=moves, ends={"done": Status.SUCCEEDED}), steps, tools=tools
    )
    agent = {"mode": "agent"}
    quick = RetryPolicy(max_attempts=3, wait_min=0.001, wait_max=0.002)
    settings = DispatchSettings(
        evidence=EvidenceRules(audit=ByLevel(0.0, 0.0), recheck=0),  # which visits are audited is drawn
        steps={
            "gather": StepConfig.read({**agent, "autonomy": "approver"}),
            "judge": StepConfig.read({**agent, "autonomy": "collaborator"}),
            "settle": StepConfig.read({**agent, "autonomy": "approver"}),
            "guess": StepConfig(mode="agent", autonomy="approver", retry_policy=quick),  # type: ignore[arg-type]
            "count": StepConfig.read({"shadow": 1}),
            "advise": StepConfig.read({**agent, "autonomy": "consultant", "shadow": 1}),
        },
        executors=Models((world.path.parent / ADDRESS).read_text()),
    )
    budgets = (None, Budget(tokens=LEAN), Budget(tokens=THIN))
    return Workload(
        [flow], lambda number: Planned("journey", {"serial": "KX-7"}, budgets[number]), dispatch=settings
    )


LEAN = 8000
"""Tokens for two turns of the first step's tool loop, and not for its answer."""
THIN = 11000
"""Tokens that run out with the first step's answer."""


# -- the model ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A request as it came."""

    hash: str
    step: str
    body: dict[str, Any]
    authorized: bool

    @property
    def tokens(self) -> tuple[int, int]:
        """What answering it costs: much the same for all, equal for none."""
        drawn = int(self.hash[:4], 16)  # (LEAN and THIN count on 4100 to 5100 for each)
        return 4000 + drawn % 900, 100 + drawn % 90

    @classmethod
    def read(cls, raw: bytes, authorized: bool) -> Question:
        """From the body of a request."""
        body = json.loads(raw)
        system = body["messages"][0]["content"]
        (step,) = [name for name, intent in INTENTS.items() if intent in system]
        return cls(hashlib.sha256(raw).hexdigest(), step, body, authorized)


Doing = Callable[[], Awaitable[None]]


class Oracle:
    """The server. It counts every request, and can be told to wait before, amid or after an answer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.asked: list[Question] = []
        self.sent: list[Question] = []
        """Those whose answer was sent to its last byte."""
        self.hung_up = asyncio.Event()
        self._at: dict[tuple[int, str], Doing] = {}

    def at(self, number: int, when: str, do: Doing) -> None:
        """At the request of this number (1 for the first), `before`, `amid` or `after` answering it, do."""
        self._at[number, when] = do

    def counts(self) -> Counter[str]:
        """How often each request came."""
        return Counter(question.hash for question in self.asked)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        (self._folder / ADDRESS).write_text(f"http://127.0.0.1:{port}/v1")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            assert head.startswith("POST /v1/chat/completions ")
            length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
            assert length is not None
            raw = await reader.readexactly(int(length[1]))
            question = Question.read(raw, f"Bearer {os.environ[KEY]}" in head)
            self.asked.append(question)
            leaving = asyncio.ensure_future(reader.read())
            answering = asyncio.ensure_future(self._answer(question, len(self.asked), Line(reader, writer)))
            await asyncio.wait({leaving, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
                self.hung_up.set()
            leaving.cancel()
            await asyncio.gather(leaving, answering, return_exceptions=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, question: Question, number: int, line: Line) -> None:
        await self._do(number, "before")
        with contextlib.suppress(ConnectionError):
            if question.step == "guess":
                await line.head(503, {"content-length": "0"})
            else:
                await line.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
                first, *rest = pieces(question)
                await line.chunk(event(first))
                await self._do(number, "amid")
                for piece in rest:
                    await line.chunk(event(piece))
                await line.chunk(event("[DONE]"))
                await line.chunk(b"")
            self.sent.append(question)
        await self._do(number, "after")

    async def _do(self, number: int, when: str) -> None:
        if (do := self._at.get((number, when))) is not None:
            await do()


def pieces(question: Question) -> list[dict[str, Any]]:
    """The answer to a question, as a stream."""
    said = reply(question)
    taken, given = question.tokens
    usage = {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}

    def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {"model": MODEL, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    if isinstance(said, str):
        half = len(said) // 2
        deltas = [piece({"content": said[:half]}), piece({"content": said[half:]}, "stop")]
    else:
        name, arguments = said
        wire = next(
            tool["function"]["name"]
            for tool in question.body["tools"]
            if re.sub(r"\W", "_", name) == tool["function"]["name"]
        )
        text = json.dumps(arguments)
        start = {"index": 0, "id": f"c-{question.hash[:6]}", "type": "function"}
        deltas = [
            piece({"tool_calls": [{**start, "function": {"name": wire, "arguments": text[:5]}}]}),
            piece({"tool_calls": [{"index": 0, "function": {"arguments": text[5:]}}]}, "tool_calls"),
        ]
    return [*deltas, {"model": MODEL, "choices": [], "usage": usage}]


def reply(question: Question) -> str | tuple[str, dict[str, Any]]:
    """What the model says: a text, or the tool it calls and its arguments."""
    messages = question.body["messages"]
    results = [json.loads(one["content"]) for one in messages if one["role"] == "tool"]
    prompt = next(one["content"] for one in messages if one["role"] == "user")
    inputs = json.JSONDecoder().raw_decode(prompt.removeprefix("INPUTS\n"))[0]
    if question.step == "gather":
        if len(results) < 2:
            return ("world.history" if results else "world.device"), {"serial": inputs["serial"]}
        return json.dumps({"device": results[0]["device"], "repairs": results[1]["repairs"]})
    if question.step == "judge":
        if not any(one["content"].startswith("PROBLEMS\n") for one in messages if one["role"] == "user"):
            return json.dumps({"covered": "certainly"})
        return json.dumps({"covered": True, "why": f"{inputs['repairs']} repairs so far"})
    if question.step == "settle":
        if not results:
            return "world.probed", {"part": "a fast heater"}
        return "world.keyed", {"order": results[0]["id"]}
    if question.step == "count":
        return json.dumps({"letters": len(inputs["serial"])})
    return json.dumps({"advice": "Call before you come."})


def effects_of(world: World) -> list[tuple[str, dict[str, Any]]]:
    """What was done in the world, in order."""
    return [(one.what, one.args) for one in world.occurrences() if one.what in EFFECTS]
