"""Trials of driving: claims, parking, heartbeats, requests, and finding runs without a driver."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.engine.ports import FORGOTTEN_AFTER, Lease, Store, Taken
from detent.kernel.errors import Fenced, RunBusy
from detent.kernel.status import Status
from detent.testing.store_trials.builders import (
    T0,
    WITHDRAWN,
    Trials,
    commit,
    known,
    new,
    now,
    refused,
    trial,
    worker,
)


class ClaimTrials(Trials):
    """Claiming and releasing runs, and finding the loose ones."""

    @trial
    async def test_a_run_of_a_live_worker_is_busy(self, store: Store) -> None:
        await store.beat(worker("w1"), 10)
        lease = await store.create(new("r1"))
        error = await refused(RunBusy, store.claim("r1", "w2"))
        assert (error.run_id, error.owner) == ("r1", "w1")
        row = await store.row("r1")
        assert (row.epoch, row.owner) == (1, "w1")
        await store.append(commit(lease, 1))  # the refused claim did not harm the driver

    @trial
    async def test_what_is_left_of_a_lease_is_told_by_the_stores_clock(self, store: Store) -> None:
        await store.beat(worker("long"), 1000)
        await store.beat(worker("over"), -5)
        remaining = {known_worker.id: known_worker.left for known_worker in await store.workers()}
        assert 900 < remaining["long"] <= 1000
        assert remaining["over"] <= -5

    @trial
    async def test_a_worker_known_to_be_dead_loses_its_run_at_once(self, store: Store) -> None:
        await store.beat(worker("w1"), 60)
        await store.beat(worker("w3"), 60)
        await store.create(new("r1"))
        await refused(RunBusy, store.claim("r1", "w2", await known(store, "w3")))
        lease = await store.claim("r1", "w2", await known(store, "w3", "w1"))
        assert (lease.epoch, lease.seq, lease.lost) == (2, 1, "w1")
        assert (await store.row("r1")).owner == "w2"

    @trial
    async def test_a_worker_heard_of_since_it_was_taken_for_dead_keeps_its_run(self, store: Store) -> None:
        await store.beat(worker("w1"), -1)
        await store.create(new("r1"))
        dead = await known(store, "w1")
        await store.beat(worker("w1"), 60)
        await refused(RunBusy, store.claim("r1", "w2", dead))

    @trial
    async def test_a_lease_that_ran_out_is_for_the_claimant_to_judge(self, store: Store) -> None:
        await store.beat(worker("w1"), -60)
        await store.create(new("r1"))
        await refused(RunBusy, store.claim("r1", "w2"))
        assert await store.loose() == []

    @trial
    async def test_a_worker_that_never_beat_does_not_hold_a_run(self, store: Store) -> None:
        await store.create(new("r1", worker="stranger"))
        assert (await store.claim("r1", "w2")).lost == "stranger"

    @trial
    async def test_ones_own_run_can_be_claimed_again_and_nothing_was_lost(self, store: Store) -> None:
        await store.beat(worker("w1"), 60)
        first = await store.create(new("r1"))
        again = await store.claim("r1", "w1")
        assert (again.epoch, again.lost) == (2, None)
        await refused(Fenced, store.append(commit(first, 1)))
        await store.append(commit(again, 1))

    @trial
    async def test_a_run_nobody_has_is_claimed_without_loss(self, store: Store) -> None:
        await store.create(new("r1", worker=None))
        lease = await store.claim("r1", "w1")
        assert (lease.epoch, lease.seq, lease.lost) == (2, 1, None)

    @trial
    async def test_of_many_who_claim_one_gets_the_run(self, store: Store) -> None:
        await store.create(new("r1", worker=None))
        names = [f"w{index}" for index in range(16)]
        for name in names:
            await store.beat(worker(name), 60)
        results = await asyncio.gather(*(store.claim("r1", name) for name in names), return_exceptions=True)
        won = [result for result in results if isinstance(result, Lease)]
        assert len(won) == 1
        assert all(isinstance(result, (Lease, RunBusy)) for result in results)
        assert (await store.row("r1")).epoch == won[0].epoch == 2

    @trial
    async def test_parking_frees_the_run_only_while_it_is_ours(self, store: Store) -> None:
        stale = await store.create(new("r1"))
        lease = await store.claim("r1", "w2")
        await store.park(stale)
        assert (await store.row("r1")).owner == "w2"
        await store.park(lease)
        row = await store.row("r1")
        assert (row.owner, row.epoch, row.seq) == (None, 2, 1)
        await store.append(commit(lease, 1))  # the epoch is still the one it holds
        assert (await store.claim("r1", "w3")).lost is None

    @trial
    async def test_a_commit_can_give_the_run_up_in_the_same_breath(self, store: Store) -> None:
        await store.beat(worker("w1"), 60)
        lease = await store.create(new("r1"))
        await store.ask("r1", WITHDRAWN)
        await store.append(commit(lease, 1, state=now(Status.SUCCEEDED, "end"), park=True))
        row = await store.row("r1")
        assert (row.owner, row.asked, row.seq, row.now.status) == (None, None, 2, Status.SUCCEEDED)
        assert (await store.claim("r1", "w2")).lost is None

    @trial
    async def test_a_worker_long_gone_is_forgotten_unless_it_holds_a_run(self, store: Store) -> None:
        lease = await store.create(new("r1", worker="holder"))
        await store.beat(worker("holder"), -FORGOTTEN_AFTER - 60)
        await store.beat(worker("idle"), -FORGOTTEN_AFTER - 60)
        await store.beat(worker("late"), 60 - FORGOTTEN_AFTER)
        await store.beat(worker("w2"), 60)
        assert {known_worker.id for known_worker in await store.workers()} == {"holder", "late", "w2"}
        await store.park(lease)
        await store.beat(worker("w2"), 60)
        assert {known_worker.id for known_worker in await store.workers()} == {"late", "w2"}

    @trial
    async def test_workers_are_those_that_beat_and_did_not_retire(self, store: Store) -> None:
        assert await store.workers() == []
        for name in ("w1", "w2", "w1"):
            await store.beat(worker(name), 60)
        assert sorted(known_worker[:4] for known_worker in await store.workers()) == [
            worker("w1")[:4],
            worker("w2")[:4],
        ]
        await store.retire("w1")
        await store.retire("never there")
        assert [known_worker.id for known_worker in await store.workers()] == ["w2"]

    @trial
    async def test_a_worker_is_told_which_runs_it_holds(self, store: Store) -> None:
        await store.create(new("r1"))
        await store.create(new("r2", worker="w2"))
        await store.create(new("r3", worker=None))
        assert await store.owned("w1") == [("r1", 1)]
        await store.claim("r3", "w1")
        assert sorted(await store.owned("w1")) == [("r1", 1), ("r3", 2)]

    @trial
    async def test_a_retiring_worker_frees_its_runs_and_no_others(self, store: Store) -> None:
        for name in ("w1", "w2"):
            await store.beat(worker(name), 60)
        await store.create(new("r1"))
        await store.create(new("r2"))
        await store.create(new("r3", worker="w2"))
        await store.retire("w1")
        assert [(await store.row(run)).owner for run in ("r1", "r2", "r3")] == [None, None, "w2"]
        assert await store.loose() == ["r1", "r2"]

    @trial
    async def test_requests_reach_the_worker_that_has_the_run(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        await store.create(new("r2"))
        await store.create(new("r3", worker="w2"))
        await store.ask("r1", WITHDRAWN)
        await store.ask("r3", WITHDRAWN)
        assert await store.asked("w1") == [("r1", WITHDRAWN)]
        assert await store.asked("w2") == [("r3", WITHDRAWN)]
        assert await store.asked("w3") == []
        assert (await store.row("r1")).asked == WITHDRAWN
        await store.append(commit(lease, 1))
        assert await store.asked("w1") == [("r1", WITHDRAWN)]  # an append answers no request
        await store.park(lease)
        assert await store.asked("w1") == []
        assert (await store.row("r1")).asked is None

    @trial
    async def test_nothing_is_asked_of_a_run_nobody_drives(self, store: Store) -> None:
        await store.create(new("r1", worker=None))
        await store.ask("r1", WITHDRAWN)
        assert (await store.row("r1")).asked is None

    @trial
    async def test_a_request_outlives_the_worker_that_died_before_reading_it(self, store: Store) -> None:
        await store.create(new("r1"))
        await store.ask("r1", WITHDRAWN)
        await store.claim("r1", "w2")
        assert await store.asked("w2") == [("r1", WITHDRAWN)]

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
        for name in ("alive", "gone"):
            await store.beat(worker(name), 60)
        for name, owner in (
            ("of nobody", None), ("of the alive", "alive"), ("of the gone", "gone"),
            ("of a stranger", "stranger"),
        ):  # fmt: skip
            await store.create(new(name, worker=owner))
        await store.create(new("waiting", worker=None, now=now(Status.WAITING)))
        await store.create(new("ended", worker=None, now=now(Status.SUCCEEDED)))
        assert await store.loose() == ["of nobody", "of a stranger"]
        gone = await known(store, "gone")
        assert await store.loose(gone) == ["of nobody", "of the gone", "of a stranger"]
        assert await store.loose(gone, limit=2) == ["of nobody", "of the gone"]

    @trial
    async def test_runs_are_taken_together_due_ones_first_and_at_most_so_many(self, store: Store) -> None:
        await store.beat(worker("w1"), 60)
        for name in ("old", "new"):
            await store.create(new(name, worker=None))
        for name, wake in (("late", 30.0), ("soon", 10.0), ("not yet", 99.0)):
            await store.create(new(name, now=now(Status.WAITING, wake_at=T0 + wake), worker=None))
        await store.create(new("ended", now=now(Status.FAILED, wake_at=T0), worker=None))
        first = await take(store, "w1", 3)
        assert [(claim.lease.run_id, claim.lease.epoch, claim.lease.lost) for claim in first] == [
            ("soon", 2, None), ("late", 2, None), ("old", 2, None),
        ]  # fmt: skip
        assert [claim.lease.run_id for claim in await take(store, "w1", 3)] == ["new"]
        assert await take(store, "w1", 3) == []
        assert sorted(run_id for run_id, _ in await store.owned("w1")) == ["late", "new", "old", "soon"]

    @trial
    async def test_a_run_is_taken_with_all_it_takes_to_go_on(self, store: Store) -> None:
        await store.beat(worker("w1"), 60)
        lease = await store.create(new("r1"))
        await store.append(commit(lease, 1, fold={"id": "r1", "seq": 2}))
        await store.append(commit(lease, 2))
        await store.append(commit(lease, 3))
        await store.park(lease)
        await store.create(new("r2", worker=None))
        folded, plain = await take(store, "w1", 9)
        assert (folded.flow, folded.fold, folded.lease.seq) == ("flow", {"id": "r1", "seq": 2}, 4)
        assert folded.entries == await store.entries("r1", 2)
        assert (plain.fold, plain.entries) == (None, await store.entries("r2"))
        await store.append(commit(folded.lease, 4))
        await refused(Fenced, store.append(commit(lease, 5)))

    @trial
    async def test_only_wanted_runs_are_taken(self, store: Store) -> None:
        await store.beat(worker("w1"), 60)
        for name in ("a", "b", "c"):
            await store.create(new(name, worker=None))
        await store.create(new("d", flow="other", worker=None))
        await store.create(new("e", worker=None, parent="a"))
        await store.create(new("f", worker=None, parent="nobody"))
        assert await take(store, "w1", 9, flows=[]) == []
        assert [claim.lease.run_id for claim in await take(store, "w1", 9, only=["b", "d"])] == ["b"]
        assert [claim.lease.run_id for claim in await take(store, "w1", 9, skip=["c"])] == ["a", "e"]
        assert [claim.lease.run_id for claim in await take(store, "w1", 9, flows=["flow", "other"])] == [
            "c",
            "d",
        ]

    @trial
    async def test_runs_of_the_dead_are_taken_and_those_of_the_living_are_not(self, store: Store) -> None:
        for name in ("w1", "alive", "gone", "back"):
            await store.beat(worker(name), 60)
        for name, owner in (("a", "alive"), ("g", "gone"), ("b", "back"), ("s", "stranger")):
            await store.create(new(name, worker=owner))
        waiting = now(Status.WAITING, wake_at=T0)
        for name, owner in (("wa", "alive"), ("wg", "gone")):
            await store.create(new(name, worker=owner, now=waiting))
        dead = await known(store, "gone", "back")
        await store.beat(worker("back"), 90)  # a heartbeat since
        taken = await take(store, "w1", 9, dead=dead)
        assert [(claim.lease.run_id, claim.lease.lost) for claim in taken] == [
            ("wg", "gone"), ("g", "gone"), ("s", "stranger"),
        ]  # fmt: skip

    @trial
    async def test_no_run_is_taken_by_two_at_once(self, store: Store) -> None:
        names = [f"w{index}" for index in range(6)]
        for name in names:
            await store.beat(worker(name), 60)
        for index in range(40):
            waits = now(Status.WAITING, wake_at=T0) if index % 2 else now()
            await store.create(new(f"r{index}", worker=None, now=waits))
        taken = await asyncio.gather(*(take(store, name, 4) for name in names for _ in range(3)))
        runs = [claim.lease.run_id for batch in taken for claim in batch]
        assert len(runs) == len(set(runs))
        assert all(len(batch) <= 4 for batch in taken)
        while more := await take(store, "w1", 4):
            runs += [claim.lease.run_id for claim in more]
        assert sorted(runs) == sorted(f"r{index}" for index in range(40))


async def take(store: Store, worker_id: str, limit: int, **rest: Any) -> list[Taken]:
    """Take runs at a time when those of `T0 + 30` are due."""
    return await store.take(worker_id, limit, **{"now": T0 + 30, "flows": ["flow"], **rest})
