"""Trials of stores that outlive the process and are shared: reopening, two store objects on one database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from detent.engine.ports import RunQuery, Store
from detent.kernel.entries import Noted
from detent.kernel.errors import Fenced, RunBusy, RunExists
from detent.kernel.status import Status
from detent.testing.store_trials.builders import (
    T0,
    WITHDRAWN,
    Trials,
    blob,
    commit,
    edge,
    everything,
    known,
    line,
    new,
    now,
    refused,
    sums,
    trial,
    worker,
)


class LastingTrials(Trials):
    """The promises a durable store adds."""

    async def open_again(self, store: Store) -> Store:
        """A second store object over the same database, opened; `store` may be closed by then."""
        raise NotImplementedError("Give the suite `open_again`: another store object over the same database.")

    @contextlib.asynccontextmanager
    async def _again(self, store: Store) -> AsyncIterator[Store]:
        other = await self.open_again(store)
        try:
            yield other
        finally:
            await other.close()

    @trial
    async def test_everything_is_there_after_reopening(self, store: Store) -> None:
        lease = await store.create(new("r1", tags=("t",), data={"é": ["🙂"]}))
        kept = blob(b"kept")
        await store.append(
            commit(
                lease, 1, fold={"seq": 2}, ledger=(line("k", "done"),), edges=(edge(3),), blobs=(kept,),
                state=now(Status.WAITING, wake_at=T0 + 5, waits=[{"name": "h"}]), tags=(("u", True),),
            )
        )  # fmt: skip
        await store.beat(worker("w1"), 60)
        await store.ask("r1", WITHDRAWN)
        await store.set_mark("m", {"v": 1}, 0)
        before = await everything(store, "r1")
        await store.close()
        async with self._again(store) as again:
            assert await everything(again, "r1") == before
            assert await again.blob(kept.hash) == b"kept"
            assert [known_worker[:4] for known_worker in await again.workers()] == [worker("w1")[:4]]
            assert await again.asked("w1") == [("r1", WITHDRAWN)]
            assert await again.mark("m") == ({"v": 1}, 1)
            assert await again.definition("f1") == {"name": "m"}
            assert await again.due(T0 + 5) == ["r1"]
            await again.append(commit(lease, 2))  # a lease outlives the store object it came from
            assert (await again.row("r1")).seq == 3

    @trial
    async def test_a_store_can_be_opened_again_after_closing(self, store: Store) -> None:
        await store.create(new("r1"))
        await store.close()
        await store.open()
        await store.open()
        assert (await store.row("r1")).seq == 1
        await store.create(new("r2"))

    @trial
    async def test_two_stores_on_one_database_see_each_other_at_once(self, store: Store) -> None:
        async with self._again(store) as other:
            lease = await store.create(new("r1"))
            assert await everything(other, "r1") == await everything(store, "r1")
            await store.append(commit(lease, 1, edges=(edge(),), tags=(("t", True),)))
            assert await everything(other, "r1") == await everything(store, "r1")
            assert [row.id for row in (await other.rows(RunQuery(tag="t"))).rows] == ["r1"]
            await other.append(commit(lease, 2, edges=(edge(),)))
            assert (await store.row("r1")).seq == 3
            assert sums(await store.edges("flow")) == sums([edge(), edge()])
            await refused(RunExists, other.create(new("r1")))
            await other.set_mark("m", 1, 0)
            assert not await store.set_mark("m", 2, 0)

    @trial
    async def test_a_claim_in_one_store_fences_the_driver_in_the_other(self, store: Store) -> None:
        async with self._again(store) as other:
            await store.beat(worker("w1"), 10)
            stale = await store.create(new("r1"))
            await refused(RunBusy, other.claim("r1", "w2"))
            taken = await other.claim("r1", "w2", await known(other, "w1"))
            assert taken.lost == "w1"
            await refused(Fenced, store.append(commit(stale, 1, edges=(edge(),))))
            await other.append(commit(taken, 1))
            await store.park(stale)
            assert (await store.row("r1")).owner == "w2"
            assert await store.edges("flow") == []

    @trial
    async def test_of_two_stores_that_append_at_once_one_succeeds_each_time(self, store: Store) -> None:
        async with self._again(store) as other:
            lease = await store.create(new("r1"))
            for seq in range(1, 16):
                results = await asyncio.gather(
                    store.append(commit(lease, seq, Noted("one"))),
                    other.append(commit(lease, seq, Noted("other"))),
                    return_exceptions=True,
                )
                assert sorted(type(result).__name__ for result in results) == ["Fenced", "int"]
                (entry,) = await store.entries("r1", after=seq)
                assert entry.body == Noted("one" if results[0] == 0 else "other")

    @trial
    async def test_appends_through_two_stores_at_once_all_land_and_add_up(self, store: Store) -> None:
        async with self._again(store) as other:

            async def drive(through: Store, name: str) -> None:
                lease = await through.create(new(name))
                for seq in range(1, 6):
                    shared = (blob(f"shared {seq}".encode()), blob(b"all"))
                    given = edge(1, to=f"s{seq}")
                    await through.append(commit(lease, seq, edges=(given, edge()), blobs=shared))

            names = [f"r{index}" for index in range(40)]
            await asyncio.gather(
                *(drive((store, other)[index % 2], name) for index, name in enumerate(names))
            )
            assert {(await store.row(name)).seq for name in names} == {6}
            expected = sums([edge()] * 200 + [edge(1, to=f"s{seq}") for seq in range(1, 6)] * 40)
            assert sums(await store.edges("flow")) == expected == sums(await other.edges("flow"))

    @trial
    async def test_marks_set_through_two_stores_have_one_winner_each_version(self, store: Store) -> None:
        async with self._again(store) as other:
            wins: list[int] = []

            async def setter(through: Store) -> None:
                while True:
                    _, version = await through.mark("m")
                    if version >= 10:
                        return
                    if await through.set_mark("m", version, version):
                        wins.append(version + 1)

            await asyncio.gather(*(setter(through) for through in (store, other) * 3))
            assert sorted(wins) == list(range(1, 11))

    @trial
    async def test_of_two_stores_that_claim_at_once_one_succeeds(self, store: Store) -> None:
        async with self._again(store) as other:
            for name in ("w1", "w2"):
                await store.beat(worker(name), 60)
            for index in range(10):
                await store.create(new(f"r{index}", worker=None))
                results = await asyncio.gather(
                    store.claim(f"r{index}", "w1"),
                    other.claim(f"r{index}", "w2"),
                    return_exceptions=True,
                )
                assert sorted(type(result).__name__ for result in results) == ["Lease", "RunBusy"]

    @trial
    async def test_purging_while_others_keep_blobs_loses_none_in_use(self, store: Store) -> None:
        async with self._again(store) as other:
            ended = await store.create(new("ended"))
            body = blob(b"wanted by all")
            await store.append(commit(ended, 1, blobs=(body,), state=now(Status.SUCCEEDED)))

            async def keep(index: int) -> None:
                lease = await store.create(new(f"r{index}"))
                await store.append(commit(lease, 1, blobs=(body,)))
                assert await store.blob(body.hash) == b"wanted by all"

            async def purge() -> None:
                for index in range(10):
                    await other.purge(before=T0 + 1)
                    await other.purge(f"r{index}" if index < 0 else "ended")

            await asyncio.gather(purge(), *(keep(index) for index in range(20)))
            assert await store.blob(body.hash) == b"wanted by all"
