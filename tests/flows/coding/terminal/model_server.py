"""A model behind HTTP that answers by a rule, in a thread of its own; for other processes, too."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.adapters.models.server import USAGE, Line, Server, delta, event


@dataclass
class Written:
    """One reply: pieces of text, then calls."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    ending: str = "whole"
    """"whole", "dies" in the middle, or "waits" behind the text until the gate is opened."""


@dataclass(frozen=True)
class Asked:
    """What a request to the model is about."""

    prompt: str
    """The last line of the last prompt."""
    turn: int
    """How many replies there were since."""
    again: int
    """How often this very request had come before."""
    results: tuple[str, ...]
    """Results of tools since the prompt."""


Rule = Callable[[Asked], Written]
NUDGES = ("You ", "Your ", "No tool", "The task is not done")
"""Beginnings of messages that are no prompts."""


@dataclass
class ModelServer:
    """Answers every request by one rule; to be used as a context manager."""

    rule: Rule
    gate: threading.Event = field(default_factory=threading.Event)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Self:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = Server(refuses=lambda body: self._reply(body))
        async with server:
            self.url = server.url
            self._ready.set()
            await self._over.wait()

    def _reply(self, body: Any) -> Callable[[Line], Any]:
        asked = self._read(body["messages"])
        self.asked.append(asked)
        written = self.rule(asked)

        async def send(line: Line) -> None:
            await line.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
            for piece in written.text.splitlines(keepends=True):
                await line.chunk(delta(content=piece))
            if written.ending == "dies":
                line.die()
                return
            while written.ending == "waits" and not self.gate.is_set():
                await asyncio.sleep(0.02)
            calls = [
                {
                    "index": number, "id": "call_0", "type": "function",
                    "function": {"name": tool, "arguments": json.dumps(args)},
                }
                for number, (tool, args) in enumerate(written.calls)
            ]  # fmt: skip
            if calls:
                await line.chunk(delta(tool_calls=calls))
            await line.chunk(delta(finish="tool_calls" if calls else "stop"))
            await line.chunk(event({"model": "served-1", "choices": [], "usage": USAGE}))
            await line.chunk(event("[DONE]"))
            await line.chunk(b"")

        return send

    def _read(self, messages: list[dict[str, Any]]) -> Asked:
        place = max(
            number
            for number, message in enumerate(messages)
            if message["role"] == "user" and not str(message["content"]).startswith(NUDGES)
        )
        prompt = str(messages[place]["content"])
        for number in range(place + 1, len(messages)):  # one behind results is sent with the last of them
            _, blank, behind = str(messages[number]["content"]).rpartition("\n\n")
            if messages[number]["role"] == "tool" and blank and not behind.startswith(NUDGES):
                place, prompt = number, behind
        prompt = prompt.strip().splitlines()[-1]
        since = messages[place + 1 :]
        turn = sum(message["role"] == "assistant" for message in since)
        results = tuple(str(message["content"]) for message in since if message["role"] == "tool")
        again = sum((asked.prompt, asked.turn) == (prompt, turn) for asked in self.asked)
        return Asked(prompt, turn, again, results)

    @property
    def settings(self) -> str:
        """The entry `models` of a project file in which this model is `house`."""
        options = f"kind: vllm, base_url: '{self.url}/v1', model_id: served-1, native_tools: true"
        return f"models:\n  house: {{{options}}}\n"


def says(text: str = "", *calls: tuple[str, Mapping[str, Any]], ending: str = "whole") -> Written:
    """A reply."""
    return Written(text, calls, ending)
