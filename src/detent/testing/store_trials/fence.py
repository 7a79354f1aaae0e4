"""Trials of invariant I2: nothing is written unless epoch and sequence are what the driver believes."""

from __future__ import annotations

import asyncio

from detent.engine.ports import Store
from detent.kernel.entries import Noted
from detent.kernel.errors import Fenced, RunExists, RunNotFound
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
    move,
    new,
    now,
    refused,
    sums,
    trial,
    worker,
)


class FenceTrials(Trials):
    """Creating runs and appending to them."""

    @trial
    async def test_a_new_run_can_be_read_back(self, store: Store) -> None:
        given = new("r1", tags=("y", "x"), data={"n": 1}, parent="p", ledger=(line("k", "done", 1),))
        lease = await store.create(given)
        assert (lease.run_id, lease.epoch, lease.seq, lease.lost) == ("r1", 1, 1, None)
        row = await store.row("r1")
        assert (row.id, row.flow, row.machine, row.parent) == ("r1", "flow", "m", "p")
        assert (row.created_at, row.seq, row.epoch, row.owner, row.asked) == (T0, 1, 1, "w1", None)
        assert sorted(row.tags) == ["x", "y"]
        assert row.now == given.now
        assert await store.entries("r1") == list(given.entries)
        assert await store.definition("f1") == {"name": "m"}
        assert await store.effects("r1") == [line("k", "done", 1)]
        assert await store.saved_fold("r1") is None

    @trial
    async def test_an_id_can_be_taken_only_once(self, store: Store) -> None:
        await store.create(new("r1", data={"first": True}))
        before = await everything(store, "r1")
        error = await refused(
            RunExists, store.create(new("r1", data={"first": False}, tags=("t",), flow="other"))
        )
        assert error.run_id == "r1"
        assert await everything(store, "r1") == before

    @trial
    async def test_of_many_who_make_the_same_run_one_succeeds(self, store: Store) -> None:
        tries = [store.create(new("r1", worker=f"w{index}")) for index in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(result, RunExists) for result in results) == 19
        made = [index for index, result in enumerate(results) if not isinstance(result, BaseException)]
        assert (await store.row("r1")).owner == f"w{made[0]}"
        assert len(await store.entries("r1")) == 1

    @trial
    async def test_a_run_nobody_made_is_not_found(self, store: Store) -> None:
        for work in (
            store.row("no"), store.entries("no"), store.saved_fold("no"), store.effects("no"),
            store.effect("no", "k"), store.claim("no", "w1"), store.ask("no", WITHDRAWN),
            store.purge("no"),
        ):  # fmt: skip
            assert (await refused(RunNotFound, work)).run_id == "no"

    @trial
    async def test_an_append_changes_everything_together(self, store: Store) -> None:
        lease = await store.create(new("r1", tags=("old",)))
        state = now(
            Status.RUNNING, "b", at=T0 + 1, steps=1, tokens=7, cost_usd=0.5, reason="why", error="E: x",
            waits=[{"name": "h", "why": "person", "question": "?", "choices": ["y"], "wake_at": None}],
        )  # fmt: skip
        kept = blob(b"body")
        entries = (move(2, reason="why"), move(3, frm="b", to="c"))
        size = await store.append(
            commit(
                lease, 1, *entries, state=state, ledger=(line("k", "done", 3),), edges=(edge(),),
                tags=(("new", True), ("old", False)), fold={"seq": 3}, blobs=(kept,),
                definition={"name": "again"},
            )
        )  # fmt: skip
        assert size > 0
        row = await store.row("r1")
        assert (row.seq, row.epoch, row.owner) == (3, 1, "w1")
        assert row.tags == ("new",)
        assert row.now == state
        assert (await store.entries("r1"))[1:] == list(entries)
        assert await store.saved_fold("r1") == {"seq": 3}
        assert await store.effect("r1", "k") == line("k", "done", 3)
        assert sums(await store.edges("flow")) == sums([edge()])
        assert await store.blob(kept.hash) == b"body"

    @trial
    async def test_without_a_fold_an_append_reports_no_size(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        assert await store.append(commit(lease, 1)) == 0

    async def _refused_whole(self, store: Store, run_id: str, after: int, epoch: int) -> None:
        """Append with this fence and everything an append can have; nothing of it may be there afterwards."""
        before = await everything(store, run_id)
        lease = (await store.claim(run_id, "w1"))._replace(epoch=epoch)
        before["row"] = before["row"]._replace(epoch=before["row"].epoch + 1, owner="w1")
        kept = blob(f"{run_id} {after} {epoch}".encode())
        wrong = commit(
            lease, after, state=now(Status.FAILED, "z", fingerprint="f-wrong"), park=True,
            ledger=(line("wrong"),), edges=(edge(),), tags=(("wrong", True), ("right", False)),
            fold={"wrong": True}, blobs=(kept,), definition={"wrong": True},
        )  # fmt: skip
        error = await refused(Fenced, store.append(wrong))
        assert (error.run_id, error.epoch, error.expected_seq) == (run_id, epoch, after)
        assert await everything(store, run_id) == before
        assert await store.blob(kept.hash) is None
        assert await store.definition("f-wrong") is None

    async def _run_with_a_past(self, store: Store) -> None:
        lease = await store.create(new("r1", tags=("right",)))
        await store.append(commit(lease, 1, fold={"seq": 2}, ledger=(line("k"),), edges=(edge(),)))
        await store.append(commit(lease, 2))

    @trial
    async def test_a_stale_epoch_at_the_right_entry_writes_nothing(self, store: Store) -> None:
        await self._run_with_a_past(store)  # stands at entry 3; the claim below makes epoch 2
        await self._refused_whole(store, "r1", after=3, epoch=1)

    @trial
    async def test_an_epoch_from_the_future_writes_nothing(self, store: Store) -> None:
        await self._run_with_a_past(store)
        await self._refused_whole(store, "r1", after=3, epoch=3)

    @trial
    async def test_the_right_epoch_at_an_earlier_entry_writes_nothing(self, store: Store) -> None:
        await self._run_with_a_past(store)
        await self._refused_whole(store, "r1", after=2, epoch=2)

    @trial
    async def test_the_right_epoch_at_a_later_entry_writes_nothing(self, store: Store) -> None:
        await self._run_with_a_past(store)
        await self._refused_whole(store, "r1", after=4, epoch=2)

    @trial
    async def test_a_paused_driver_is_fenced_even_when_it_writes_first(self, store: Store) -> None:
        await store.beat(worker("w1"), -1)
        paused = await store.create(new("r1"))
        rightful = await store.claim(
            "r1", "w2", await known(store, "w1")
        )  # its lease ran out while it was paused
        assert rightful.epoch == paused.epoch + 1
        # The paused one wakes up and gets there first: the same entry, its own old epoch.
        await refused(Fenced, store.append(commit(paused, 1, move(2, to="stale"))))
        await store.append(commit(rightful, 1, move(2, epoch=2, to="rightful")))
        (_, second) = await store.entries("r1")
        assert second == move(2, epoch=2, to="rightful")
        await refused(Fenced, store.append(commit(paused, 2, move(3, to="stale"))))
        assert (await store.row("r1")).seq == 2

    @trial
    async def test_whoever_takes_over_while_appends_go_on_the_journal_stays_one_line(
        self, store: Store
    ) -> None:
        """Drivers take a run from each other again and again; every accepted line must be in the journal."""
        await store.create(new("r1", worker=None))
        accepted: list[tuple[int, int]] = []

        async def drive(name: str) -> None:
            for _ in range(6):
                lease = await store.claim("r1", name)  # the store knows none of them
                seq = lease.seq
                for _ in range(5):
                    try:
                        await store.append(commit(lease, seq, Noted(name)))
                    except Fenced:
                        break
                    seq += 1
                    accepted.append((seq, lease.epoch))

        await asyncio.gather(*(drive(name) for name in "xyz"))
        entries = await store.entries("r1")
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert [entry.epoch for entry in entries] == sorted(entry.epoch for entry in entries)
        assert sorted(accepted) == [(entry.seq, entry.epoch) for entry in entries[1:]]

    @trial
    async def test_of_many_appends_for_the_same_entry_one_succeeds(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        tries = [store.append(commit(lease, 1, Noted(f"n{index}"), edges=(edge(),))) for index in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        won = [index for index, result in enumerate(results) if result == 0]
        assert len(won) == 1
        assert sum(isinstance(result, Fenced) for result in results) == 19
        (_, second) = await store.entries("r1")
        assert second.body == Noted(f"n{won[0]}")
        assert sums(await store.edges("flow")) == sums([edge()])
