"""Trials with many runs at once: writes may share transactions, but a failure of one affects no other."""

from __future__ import annotations

import asyncio

from detent.engine.ports import RunQuery, Store
from detent.kernel.entries import Noted
from detent.kernel.errors import Fenced, StoreError
from detent.testing.store_trials.builders import (
    WITHDRAWN,
    Trials,
    blob,
    commit,
    edge,
    line,
    new,
    refused,
    sums,
    trial,
)


class CrowdTrials(Trials):
    """Concurrency within one process."""

    @trial
    async def test_appends_of_many_runs_at_once_all_land(self, store: Store) -> None:
        async def drive(name: str) -> None:
            lease = await store.create(new(name))
            for seq in range(1, 6):
                await store.append(commit(lease, seq, Noted(name, {"seq": seq}), edges=(edge(),)))

        names = [f"r{index:03}" for index in range(200)]
        await asyncio.gather(*(drive(name) for name in names))
        for name in names[::17]:
            entries = await store.entries(name)
            assert [entry.body for entry in entries[1:]] == [Noted(name, {"seq": seq}) for seq in range(1, 6)]
        rows = (await store.rows(RunQuery(limit=1000))).rows
        assert {(row.id, row.seq) for row in rows} == {(name, 6) for name in names}
        assert len({row.number for row in rows}) == 200
        assert sums(await store.edges("flow")) == sums([edge()] * 1000)

    @trial
    async def test_a_fenced_append_among_others_spoils_none_of_them(self, store: Store) -> None:
        leases = [await store.create(new(f"r{index:02}")) for index in range(40)]
        for lease in leases[::3]:
            await store.claim(lease.run_id, "w1")
        results = await asyncio.gather(
            *(
                store.append(
                    commit(
                        lease, 1, edges=(edge(),), ledger=(line("k"),), blobs=(blob(lease.run_id.encode()),)
                    )
                )
                for lease in leases
            ),
            return_exceptions=True,
        )
        for index, (lease, result) in enumerate(zip(leases, results, strict=True)):
            stale = index % 3 == 0
            assert isinstance(result, Fenced) == stale, result
            assert (await store.row(lease.run_id)).seq == (1 if stale else 2)
            assert await store.effects(lease.run_id) == ([] if stale else [line("k")])
            assert (await store.blob(blob(lease.run_id.encode()).hash) is None) == stale
        assert sums(await store.edges("flow")) == sums([edge()] * 26)

    @trial
    async def test_a_write_that_cannot_be_made_spoils_none_of_the_others(self, store: Store) -> None:
        leases = [await store.create(new(f"r{index:02}")) for index in range(20)]

        async def append(index: int) -> None:
            if index == 7:
                await store.append(commit(leases[7], 1, Noted("n", {"not plain": object()})))
            else:
                await store.append(commit(leases[index], 1, edges=(edge(),)))

        results = await asyncio.gather(*(append(index) for index in range(20)), return_exceptions=True)
        assert [index for index, result in enumerate(results) if result is not None] in ([7], [])
        others = [lease for index, lease in enumerate(leases) if index != 7]
        assert [(await store.row(lease.run_id)).seq for lease in others] == [2] * 19

    @trial
    async def test_creations_claims_and_appends_can_be_mixed(self, store: Store) -> None:
        leases = [await store.create(new(f"old{index}")) for index in range(15)]
        await asyncio.gather(
            *(store.create(new(f"new{index}", blobs_of="old0", tags=("t",))) for index in range(15)),
            *(store.append(commit(lease, 1, blobs=(blob(b"b"),), fold={"n": 1})) for lease in leases),
            *(store.set_mark(f"m{index}", index, 0) for index in range(15)),
            *(store.ask(f"old{index}", WITHDRAWN) for index in range(15)),
            *(store.rows(RunQuery()) for _ in range(5)),
            *(store.entries(f"old{index}") for index in range(15)),
        )
        assert len((await store.rows(RunQuery(tag="t"))).rows) == 15
        assert len(await store.marks("m")) == 15
        assert len(await store.asked("w1")) == 15
        assert {(await store.row(f"old{index}")).seq for index in range(15)} == {2}

    @trial
    async def test_a_caller_that_gives_up_does_not_disturb_the_others(self, store: Store) -> None:
        leases = [await store.create(new(f"r{index}")) for index in range(10)]
        tasks = [asyncio.ensure_future(store.append(commit(lease, 1))) for lease in leases]
        await asyncio.sleep(0)
        tasks[3].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [result for index, result in enumerate(results) if index != 3] == [0] * 9
        assert (await store.row("r3")).seq in (1, 2)  # whole or not at all
        assert len(await store.entries("r3")) == (await store.row("r3")).seq

    @trial
    async def test_closing_finishes_what_was_accepted(self, store: Store) -> None:
        leases = [await store.create(new(f"r{index}")) for index in range(30)]
        tasks = [asyncio.ensure_future(store.append(commit(lease, 1))) for lease in leases]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*tasks) == [0] * 30
        await store.close()  # again does no harm


class ClosingTrials(Trials):
    """A closed store."""

    @trial
    async def test_a_closed_store_refuses_in_one_sentence(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        await store.close()
        for work in (
            store.create(new("r2")),
            store.append(commit(lease, 1)),
            store.row("r1"),
            store.workers(),
        ):
            assert str(await refused(StoreError, work)).endswith(".")
