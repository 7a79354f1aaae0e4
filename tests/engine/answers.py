"""Answers whatever one run asks at the moment, for tests in which there is no doubt about the question."""

from __future__ import annotations

from typing import Any

from detent.engine.engine import Engine


async def release(engine: Engine, run_id: str, answer: Any = None, **options: Any) -> None:
    """Answer the only open hold of a run."""
    await engine.release(run_id, answer, hold=(await engine.get(run_id)).token(), **options)


async def resolve(engine: Engine, run_id: str, how: str, **options: Any) -> None:
    """Settle the only effect of a run that is in doubt."""
    await engine.resolve(run_id, how, hold=(await engine.get(run_id)).token(), **options)
