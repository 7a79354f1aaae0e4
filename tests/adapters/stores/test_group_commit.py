"""The shared writer survives whatever its database does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.adapters.stores.group_commit import GroupCommit
from detent.kernel.errors import RunNotFound, StoreUnavailable


class Shaky:
    """A database whose verbs fail on request."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.begun = 0

    def _maybe(self, verb: str) -> None:
        if verb in self.failing:
            raise OSError(verb)

    def begin(self) -> list[Any]:
        self.begun += 1
        self._maybe("begin")
        return []

    def commit(self, batch: Any) -> None:
        self._maybe("commit")

    def rollback(self) -> None:
        self._maybe("rollback")

    def translate(self, error: Exception) -> Exception:
        return StoreUnavailable(f"No: {error}.")

    def close(self) -> None:
        self._maybe("close")


async def test_when_no_transaction_can_be_begun_all_are_refused_after_one_try() -> None:
    database = Shaky("begin")
    writer = GroupCommit(database, "t")
    results = await asyncio.gather(*(writer.write(lambda _: 1) for _ in range(50)), return_exceptions=True)
    assert {str(result) for result in results} == {"No: begin."}
    assert database.begun < 50
    await writer.close()


async def test_a_failing_rollback_does_not_silence_the_writer() -> None:
    database = Shaky("commit", "rollback")
    writer = GroupCommit(database, "t")
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(writer.write(lambda _: 1), 5)
    database.failing.clear()
    assert await asyncio.wait_for(writer.write(lambda _: 2), 5) == 2
    await writer.close()


async def test_a_refusal_and_a_mistake_leave_the_others_alone() -> None:
    writer = GroupCommit(Shaky(), "t")

    def refuse(_: Any) -> None:
        raise RunNotFound("r")

    def stumble(_: Any) -> None:
        raise ValueError("mistake")

    results = await asyncio.gather(
        writer.write(lambda _: 1), writer.write(refuse), writer.write(stumble), writer.write(lambda _: 2),
        return_exceptions=True,
    )  # fmt: skip
    assert (results[0], results[3]) == (1, 2)
    assert isinstance(results[1], RunNotFound)
    assert isinstance(results[2], StoreUnavailable)
    await writer.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        writer.write(lambda _: 1)


def test_a_caller_whose_loop_is_gone_does_not_stop_the_writer() -> None:
    async def start() -> GroupCommit:
        writer = GroupCommit(Shaky(), "t")
        import time

        writer.write(lambda _: time.sleep(0.2))
        return writer

    writer = asyncio.run(start())  # the loop closes while the write is under way

    async def go_on() -> int:
        result = await asyncio.wait_for(writer.write(lambda _: 3), 5)
        await writer.close()
        return result

    assert asyncio.run(go_on()) == 3
