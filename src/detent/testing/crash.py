"""Crashes on demand: the process kills or stops itself at a chosen commit or effect.

A kill is SIGKILL, so nothing is flushed, closed or logged. A stop is SIGSTOP: another process has to send
SIGCONT, by which time the run may have been taken over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast

from detent.engine.calls import call
from detent.engine.ports import Store
from detent.engine.tools import Tool

WRITES = frozenset({"create", "append", "claim", "park"})
"""The calls that count as commits: everything that changes a run."""


class CrashPoint(NamedTuple):
    """Where to crash."""

    number: int
    """1 for the first commit or effect of this process."""
    when: Literal["before", "after"] = "after"
    what: Literal["commit", "effect"] = "commit"
    how: Literal["kill", "stop"] = "kill"

    @classmethod
    def parse(cls, text: str) -> CrashPoint:
        """Read `kill-before-commit-3`."""
        how, when, what, number = text.split("-")
        return cls(int(number), when, what, how)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.how}-{self.when}-{self.what}-{self.number}"


def strike(point: CrashPoint) -> None:
    """End or stop this process at once."""
    os.kill(os.getpid(), signal.SIGKILL if point.how == "kill" else signal.SIGSTOP)


class CrashPoints:
    """Counts the commits and effects of this process and crashes at the chosen ones."""

    def __init__(
        self, points: Iterable[CrashPoint] = (), *, strike: Callable[[CrashPoint], None] = strike
    ) -> None:
        self._points: dict[tuple[str, str, int], CrashPoint] = {
            (point.what, point.when, point.number): point for point in points
        }
        self._strike = strike
        self.commits = 0
        """Commits begun so far."""
        self.effects = 0

    def store(self, inner: Store) -> Store:
        """The same store, with its commits counted."""
        return cast(Store, _Counting(inner, self))

    def tool(self, inner: Tool) -> Tool:
        """The same tool, with its calls counted; queries are left as they are."""
        if inner.kind != "effect":
            return inner

        async def perform(*args: Any, **kwargs: Any) -> Any:
            self.effects += 1
            number = self.effects
            self.reached("effect", "before", number)
            result = await call(inner.perform, inner.off_loop, *args, **kwargs)
            self.reached("effect", "after", number)
            return result

        return replace(inner, perform=perform, in_front_of=inner.in_front_of or inner.perform)

    def reached(self, what: str, when: str, number: int) -> None:
        """Crash if this is one of the points."""
        point = self._points.get((what, when, number))
        if point is not None:
            self._strike(point)


class _Counting:
    """A store whose commits are counted."""

    def __init__(self, inner: Store, points: CrashPoints) -> None:
        self._inner = inner
        self._points = points

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return self._counted(method) if name in WRITES else method

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def write(*args: Any) -> Any:
            points = self._points
            points.commits += 1
            number = points.commits
            points.reached("commit", "before", number)
            result = await method(*args)
            points.reached("commit", "after", number)
            return result

        return write
