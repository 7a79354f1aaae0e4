"""Trials of who may drive: claims, parking, beats, requests, and finding what nobody drives."""

from __future__ import annotations

import asyncio

from detent.engine.ports import FORGOTTEN_AFTER, Lease, Store
from detent.kernel.errors import Fenced, RunBusy
from detent.kernel.status import Status
from detent.testing.store_trials.craft import T0, Trials, commit, new, now, refused, trial, worker


class ClaimTrials(Trials):
    """Taking runs, giving them up, and finding the loose ones."""

    @trial
    async def test_a_run_of_a_live_worker_is_busy(self, store: Store) -> None:
        await store.beat(worker("w1", T0 + 10))
        lease = await store.create(new("r1"))
        error = await refused(RunBusy, store.claim("r1", "w2", T0))
        assert (error.run_id, error.owner) == ("r1", "w1")
        row = await store.row("r1")
        assert (row.epoch, row.owner) == (1, "w1")
        await store.append(commit(lease, 1))  # the refused claim did not harm the driver

    @trial
    async def test_a_beat_is_good_up_to_and_including_its_time(self, store: Store) -> None:
        await store.beat(worker("w1", T0 + 10))
        await store.create(new("r1"))
        await refused(RunBusy, store.claim("r1", "w2", T0 + 10))
        lease = await store.claim("r1", "w2", T0 + 10.5)
        assert (lease.epoch, lease.seq, lease.lost) == (2, 1, "w1")
        assert (await store.row("r1")).owner == "w2"

    @trial
    async def test_a_worker_known_to_be_dead_loses_its_run_at_once(self, store: Store) -> None:
        await store.beat(worker("w1"))
        await store.create(new("r1"))
        await refused(RunBusy, store.claim("r1", "w2", T0, dead={"w3"}))
        assert (await store.claim("r1", "w2", T0, dead={"w3", "w1"})).lost == "w1"

    @trial
    async def test_a_worker_that_never_beat_does_not_hold_a_run(self, store: Store) -> None:
        await store.create(new("r1", worker="stranger"))
        assert (await store.claim("r1", "w2", T0)).lost == "stranger"

    @trial
    async def test_ones_own_run_can_be_claimed_again_and_nothing_was_lost(self, store: Store) -> None:
        await store.beat(worker("w1"))
        first = await store.create(new("r1"))
        again = await store.claim("r1", "w1", T0)
        assert (again.epoch, again.lost) == (2, None)
        await refused(Fenced, store.append(commit(first, 1)))
        await store.append(commit(again, 1))

    @trial
    async def test_a_run_nobody_has_is_claimed_without_loss(self, store: Store) -> None:
        await store.create(new("r1", worker=None))
        lease = await store.claim("r1", "w1", T0)
        assert (lease.epoch, lease.seq, lease.lost) == (2, 1, None)

    @trial
    async def test_of_many_who_claim_one_gets_the_run(self, store: Store) -> None:
        await store.create(new("r1", worker=None))
        names = [f"w{index}" for index in range(16)]
        for name in names:
            await store.beat(worker(name))
        results = await asyncio.gather(
            *(store.claim("r1", name, T0) for name in names), return_exceptions=True
        )
        won = [result for result in results if isinstance(result, Lease)]
        assert len(won) == 1
        assert all(isinstance(result, (Lease, RunBusy)) for result in results)
        assert (await store.row("r1")).epoch == won[0].epoch == 2

    @trial
    async def test_parking_frees_the_run_only_while_it_is_ours(self, store: Store) -> None:
        stale = await store.create(new("r1"))
        lease = await store.claim("r1", "w2", T0)
        await store.park(stale)
        assert (await store.row("r1")).owner == "w2"
        await store.park(lease)
        row = await store.row("r1")
        assert (row.owner, row.epoch, row.seq) == (None, 2, 1)
        await store.append(commit(lease, 1))  # the epoch is still the one it holds
        assert (await store.claim("r1", "w3", T0)).lost is None

    @trial
    async def test_a_commit_can_give_the_run_up_in_the_same_breath(self, store: Store) -> None:
        await store.beat(worker("w1"))
        lease = await store.create(new("r1"))
        await store.ask("r1", "cancel")
        await store.append(commit(lease, 1, state=now(Status.SUCCEEDED, "end"), park=True))
        row = await store.row("r1")
        assert (row.owner, row.asked, row.seq, row.now.status) == (None, None, 2, Status.SUCCEEDED)
        assert (await store.claim("r1", "w2", T0)).lost is None

    @trial
    async def test_a_worker_long_dead_is_forgotten_but_its_runs_still_name_it(self, store: Store) -> None:
        await store.beat(worker("old", T0))
        await store.create(new("r1", worker="old"))
        await store.beat(worker("w2", T0 + FORGOTTEN_AFTER - 1))
        assert {one.id for one in await store.workers()} == {"old", "w2"}
        await store.beat(worker("w2", T0 + FORGOTTEN_AFTER + 1))
        assert {one.id for one in await store.workers()} == {"w2"}
        assert await store.loose(T0 + FORGOTTEN_AFTER) == ["r1"]
        assert (await store.claim("r1", "w2", T0 + FORGOTTEN_AFTER)).lost == "old"

    @trial
    async def test_workers_are_those_that_beat_and_did_not_retire(self, store: Store) -> None:
        assert await store.workers() == []
        await store.beat(worker("w1", T0))
        await store.beat(worker("w2", T0 + 1))
        await store.beat(worker("w1", T0 + 7))
        assert sorted(await store.workers()) == [worker("w1", T0 + 7), worker("w2", T0 + 1)]
        await store.retire("w1")
        await store.retire("never there")
        assert await store.workers() == [worker("w2", T0 + 1)]

    @trial
    async def test_a_retiring_worker_frees_its_runs_and_no_others(self, store: Store) -> None:
        for name in ("w1", "w2"):
            await store.beat(worker(name))
        await store.create(new("r1"))
        await store.create(new("r2"))
        await store.create(new("r3", worker="w2"))
        await store.retire("w1")
        assert [(await store.row(run)).owner for run in ("r1", "r2", "r3")] == [None, None, "w2"]
        assert await store.loose(T0) == ["r1", "r2"]

    @trial
    async def test_requests_reach_the_worker_that_has_the_run(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        await store.create(new("r2"))
        await store.create(new("r3", worker="w2"))
        await store.ask("r1", "cancel")
        await store.ask("r3", "cancel")
        assert await store.asked("w1") == [("r1", "cancel")]
        assert await store.asked("w2") == [("r3", "cancel")]
        assert await store.asked("w3") == []
        assert (await store.row("r1")).asked == "cancel"
        await store.append(commit(lease, 1))
        assert await store.asked("w1") == [("r1", "cancel")]  # an append answers no request
        await store.park(lease)
        assert await store.asked("w1") == []
        assert (await store.row("r1")).asked is None

    @trial
    async def test_nothing_is_asked_of_a_run_nobody_drives(self, store: Store) -> None:
        await store.create(new("r1", worker=None))
        await store.ask("r1", "cancel")
        assert (await store.row("r1")).asked is None

    @trial
    async def test_a_request_outlives_the_worker_that_died_before_reading_it(self, store: Store) -> None:
        await store.create(new("r1"))
        await store.ask("r1", "cancel")
        await store.claim("r1", "w2", T0)
        assert await store.asked("w2") == [("r1", "cancel")]

    @trial
    async def test_due_runs_come_earliest_first_and_no_more_than_asked_for(self, store: Store) -> None:
        times = {"late": 30.0, "soon": 10.0, "sooner": 5.0, "not yet": 99.0, "also soon": 10.0}
        for name, wake in times.items():
            await store.create(new(name, now=now(Status.WAITING, wake_at=T0 + wake), worker=None))
        await store.create(new("for a person", now=now(Status.WAITING), worker=None))
        await store.create(new("running", now=now(Status.RUNNING, wake_at=T0), worker=None))
        await store.create(new("ended", now=now(Status.FAILED, wake_at=T0), worker=None))
        assert await store.due(T0 + 30) == ["sooner", "soon", "also soon", "late"]
        assert await store.due(T0 + 30, limit=2) == ["sooner", "soon"]
        assert await store.due(T0 + 9.5) == ["sooner"]
        assert await store.due(T0) == []

    @trial
    async def test_a_run_is_due_no_longer_once_it_goes_on(self, store: Store) -> None:
        lease = await store.create(new("r1", now=now(Status.WAITING, wake_at=T0)))
        assert await store.due(T0) == ["r1"]
        await store.append(commit(lease, 1, state=now(Status.RUNNING)))
        assert await store.due(T0) == []
        await store.append(commit(lease, 2, state=now(Status.WAITING, wake_at=T0 + 5)))
        assert await store.due(T0 + 5) == ["r1"]

    @trial
    async def test_loose_runs_are_those_running_that_nobody_alive_drives(self, store: Store) -> None:
        await store.beat(worker("alive", T0 + 60))
        await store.beat(worker("silent", T0 - 1))
        await store.beat(worker("gone", T0 + 60))
        for name, owner in (
            ("of nobody", None), ("of the alive", "alive"), ("of the silent", "silent"),
            ("of the gone", "gone"), ("of a stranger", "stranger"),
        ):  # fmt: skip
            await store.create(new(name, worker=owner))
        await store.create(new("waiting", worker=None, now=now(Status.WAITING)))
        await store.create(new("ended", worker=None, now=now(Status.SUCCEEDED)))
        assert await store.loose(T0) == ["of nobody", "of the silent", "of a stranger"]
        assert await store.loose(T0, {"gone"}) == [
            "of nobody",
            "of the silent",
            "of the gone",
            "of a stranger",
        ]
        assert await store.loose(T0, {"gone"}, limit=2) == ["of nobody", "of the silent"]
        await store.beat(worker("silent", T0))
        assert await store.loose(T0) == ["of nobody", "of a stranger"]
