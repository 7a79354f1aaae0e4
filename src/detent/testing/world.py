"""An outside world with real effects: each of them is a line in a file that any process can read.

Its tools come in the three kinds there are: one that can be probed, one that is idempotent by key, one that
is neither. Each can be made to fail before or after doing its work, or to hang. An occurrence, once written,
has happened, whatever happens to the process that caused it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from detent.engine.tools import NOT_DONE, EffectCall, Tool, ToolError
from detent.kernel.plain import canonical, digest
from detent.kernel.policy import RetryPolicy

Trouble = Literal["refuse", "before", "after", "hang", "hang_after"]
"""refuse: say it did not happen; before, after: break off before or after doing it; hang: never answer."""

QUICK = RetryPolicy(max_attempts=5, wait_min=0.01, wait_max=0.05)


class Occurrence(NamedTuple):
    """Something that happened."""

    what: str
    """Name of the tool, or of what was paid for."""
    key: str
    """The idempotency key of the call."""
    args: dict[str, Any]
    receipt: Any
    pid: int


class WorldTrouble(ConnectionError):
    """The connection broke: the caller cannot know whether it happened."""


class World:
    """A file of occurrences, with the tools that make them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._read_to = 0
        self._turn = threading.RLock()
        """Plain functions are called in threads."""
        self._lines: list[Occurrence] = []
        self._by_key: dict[tuple[str, str], list[Occurrence]] = {}
        self._trouble: dict[tuple[str, int], Trouble] = {}

    def close(self) -> None:
        """Close the file; the occurrences stay."""
        os.close(self._fd)

    def trouble(self, what: str, attempt: int, how: Trouble) -> None:
        """Make the attempt of this number at every effect of a tool go wrong."""
        self._trouble[what, attempt] = how

    # -- occurrences ----------------------------------------------------------------------------------------

    def occurrences(self, what: str | None = None, key: str | None = None) -> list[Occurrence]:
        """Everything that happened so far, in any process, in order."""
        with self._turn:
            self._read()
            if what is not None and key is not None:
                return list(self._by_key.get((what, key), ()))
            return [
                occurrence
                for occurrence in self._lines
                if (what is None or occurrence.what == what) and (key is None or occurrence.key == key)
            ]

    def count(self, what: str | None = None, key: str | None = None) -> int:
        """How often it happened."""
        return len(self.occurrences(what, key))

    def _read(self) -> None:
        """Read the complete lines that were added since the last call."""
        size = os.fstat(self._fd).st_size
        if size <= self._read_to:
            return
        text = os.pread(self._fd, size - self._read_to, self._read_to)
        lines = text[: text.rfind(b"\n") + 1]
        self._read_to += len(lines)
        for line in lines.splitlines():
            occurrence = Occurrence(**json.loads(line))
            self._lines.append(occurrence)
            self._by_key.setdefault((occurrence.what, occurrence.key), []).append(occurrence)

    def _write(self, what: str, key: str, args: Mapping[str, Any], receipt: Any) -> None:
        line = {"what": what, "key": key, "args": dict(args), "receipt": receipt, "pid": os.getpid()}
        os.write(
            self._fd, (json.dumps(line, ensure_ascii=False) + "\n").encode()
        )  # one write: all or nothing

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold an exclusive lock; a process that dies releases it."""
        with self._turn:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    # -- making things happen -------------------------------------------------------------------------------

    def pay(self, what: str, key: str) -> dict[str, Any]:
        """Something that costs each time it is asked for; the answer has the number of times so far."""
        with self._exclusive():
            receipt = {"answer": digest([what, key], 8), "time": self.count(what, key) + 1}
            self._write(what, key, {}, receipt)
            return receipt

    async def paying(self, what: str, key: str) -> dict[str, Any]:
        """Like `pay`, on the event loop: a worker that stops itself between two turns is never within it."""
        return self.pay(what, key)

    def tools(self, name: str = "world", **options: Any) -> list[Tool]:
        """One tool of each kind: `world.probed`, `world.keyed` (idempotent) and `world.blind` (neither)."""
        options = {"retry": QUICK, "wants_call": True, **options}
        probed, keyed, blind = f"{name}.probed", f"{name}.keyed", f"{name}.blind"
        return [
            Tool(probed, self._performing(probed), probe=self._probing(probed), **options),
            Tool(keyed, self._performing(keyed, once=True), idempotent=True, **options),
            Tool(blind, self._performing(blind), **options),
        ]

    def waiting_tools(self, name: str = "waiting", **options: Any) -> list[Tool]:
        """Tools that wait for `seconds` before they do something.

        `waiting.plain` and `waiting.blind` wait in a plain function, `waiting.awaiting` on the event
        loop. All but the blind one can be probed.
        """
        options = {"retry": QUICK, "wants_call": True, **options}
        plain, blind, awaiting = f"{name}.plain", f"{name}.blind", f"{name}.awaiting"

        def blocking(what: str) -> Any:
            def perform(call: EffectCall, run: str, seconds: float) -> dict[str, Any]:
                time.sleep(seconds)
                return self._do(what, call.idempotency_key, {"run": run, "seconds": seconds}, False)

            return perform

        async def awaits(call: EffectCall, run: str, seconds: float) -> dict[str, Any]:
            await asyncio.sleep(seconds)
            return self._do(awaiting, call.idempotency_key, {"run": run, "seconds": seconds}, False)

        return [
            Tool(plain, blocking(plain), probe=self._probing(plain), **options),
            Tool(blind, blocking(blind), **options),
            Tool(awaiting, awaits, probe=self._probing(awaiting), **options),
        ]

    def query(self) -> Tool:
        """A query about the world that always has the same answer: `world.look(about)`."""

        def look(about: str) -> dict[str, str]:
            return {"about": about, "seen": digest(about, 8)}

        return Tool("world.look", look, "query")

    def _performing(self, what: str, once: bool = False) -> Any:
        async def perform(call: EffectCall, **args: Any) -> dict[str, Any]:
            how = self._trouble.get((what, call.attempt))
            if how == "refuse":
                raise ToolError("refused", "the world is busy", transient=True)
            if how == "before":
                raise WorldTrouble("lost before it was done")
            if how == "hang":
                await asyncio.Event().wait()
            receipt = self._do(what, call.idempotency_key, args, once)
            if how == "after":
                raise WorldTrouble("lost after it was done")
            if how == "hang_after":
                await asyncio.Event().wait()
            return receipt

        return perform

    def _do(self, what: str, key: str, args: dict[str, Any], once: bool) -> dict[str, Any]:
        receipt = {"id": digest([what, key], 12)}
        if not once:
            self._write(what, key, args, receipt)
            return receipt
        with self._exclusive():
            earlier = self.occurrences(what, key)
            if not earlier:
                self._write(what, key, args, receipt)
        return receipt

    def _probing(self, what: str) -> Any:
        def probe(**args: Any) -> Any:
            """Whether it was done with these arguments: its receipt, or NOT_DONE."""
            arguments = canonical(args)
            for occurrence in self.occurrences(what):
                if canonical(occurrence.args) == arguments:
                    return occurrence.receipt
            return NOT_DONE

        return probe
