"""Trials of derived rows and offloaded values: the ledger, counted moves, tags, blobs, marks."""

from __future__ import annotations

import asyncio

from detent.engine.offloaded import blob_of
from detent.engine.ports import MarkChange, RunQuery, Store
from detent.kernel.errors import Fenced, MarkMoved, RunExists, RunNotFound, StoreError
from detent.kernel.status import Status
from detent.testing.store_trials.builders import (
    T0,
    Trials,
    blob,
    commit,
    edge,
    everything,
    line,
    new,
    now,
    refused,
    sums,
    trial,
)


class BesideTrials(Trials):
    """Everything that becomes durable with a commit, and marks."""

    @trial
    async def test_the_ledger_keeps_the_latest_standing_of_each_effect(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        other = await store.create(new("r2"))
        await store.append(commit(lease, 1, ledger=(line("a", "begun", 2),)))
        await store.append(commit(lease, 2, ledger=(line("a", "done", 3), line("b", "begun", 3))))
        await store.append(commit(lease, 3, ledger=(line("b", "begun", 4), line("b", "failed", 5))))
        await store.append(commit(other, 1, ledger=(line("a", "skipped", 2),)))
        assert await store.effect("r1", "a") == line("a", "done", 3)
        assert await store.effect("r1", "b") == line("b", "failed", 5)
        assert await store.effect("r1", "c") is None
        assert await store.effects("r1") == [line("a", "done", 3), line("b", "failed", 5)]
        assert await store.effects("r2") == [line("a", "skipped", 2)]

    @trial
    async def test_effects_come_in_order_of_their_last_entry(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        await store.append(commit(lease, 1, ledger=(line("z", "done", 2), line("m", "done", 4))))
        await store.append(commit(lease, 2, ledger=(line("a", "done", 3), line("z", "done", 9))))
        assert [item.key for item in await store.effects("r1")] == ["a", "m", "z"]

    @trial
    async def test_tags_are_put_on_and_taken_off_in_order(self, store: Store) -> None:
        lease = await store.create(new("r1", tags=("a", "a")))
        await store.append(commit(lease, 1, tags=(("b", True), ("b", True), ("a", False), ("never", False))))
        assert (await store.row("r1")).tags == ("b",)
        await store.append(commit(lease, 2, tags=(("c", True), ("c", False), ("b", False), ("b", True))))
        assert (await store.row("r1")).tags == ("b",)

    @trial
    async def test_moves_add_up_by_flow_and_day(self, store: Store) -> None:
        first = await store.create(new("r1"))
        second = await store.create(new("r2", flow="other"))
        await store.append(commit(first, 1, edges=(edge(1, day=1), edge(2, day=1), edge(4, day=1, to="c"))))
        await store.append(commit(first, 2, edges=(edge(8, day=2),)))
        await store.append(commit(second, 1, edges=(edge(16, flow="other", day=2),)))
        all_of_it = sums([edge(1), edge(2), edge(8), edge(4, to="c")])
        assert sums(await store.edges("flow")) == all_of_it
        assert sums(await store.edges("flow", since_day=1)) == all_of_it
        assert sums(await store.edges("flow", since_day=2)) == sums([edge(8)])
        assert await store.edges("flow", since_day=3) == []
        assert sums(await store.edges("other")) == sums([edge(16)])
        assert await store.edges("nosuch") == []
        assert {item.flow for item in await store.edges("flow")} == {"flow"}

    @trial
    async def test_moves_of_many_appends_at_once_add_up(self, store: Store) -> None:
        leases = [await store.create(new(f"r{index}")) for index in range(60)]
        given = [edge(1 + index % 5, to="bc"[index % 2], day=1 + index % 3) for index in range(60)]
        await asyncio.gather(
            *(
                store.append(commit(lease, 1, edges=(item,)))
                for lease, item in zip(leases, given, strict=True)
            )
        )
        assert sums(await store.edges("flow")) == sums(given)

    @trial
    async def test_a_run_may_bring_blobs_along_when_it_is_made(self, store: Store) -> None:
        """A mail, say, that the first step reads."""
        mail = blob(b"from somebody")
        await store.create(new("r1", blobs=(mail, mail)))
        await store.create(new("r2", blobs=(mail,)))
        assert await store.blob(mail.hash) == b"from somebody"
        await store.purge("r1")
        assert await store.blob(mail.hash) == b"from somebody"
        await store.purge("r2")
        assert await store.blob(mail.hash) is None

    @trial
    async def test_a_blob_stays_as_long_as_a_run_refers_to_it(self, store: Store) -> None:
        shared, own = blob(b"shared \x00\xff"), blob(b"")
        first = await store.create(new("r1"))
        second = await store.create(new("r2"))
        await store.append(commit(first, 1, blobs=(shared, own, shared)))
        await store.append(commit(second, 1, blobs=(shared,)))
        assert await store.blob(shared.hash) == b"shared \x00\xff"
        assert await store.blob(own.hash) == b""
        assert await store.purge("r1") == 1
        assert await store.blob(own.hash) is None
        assert await store.blob(shared.hash) == b"shared \x00\xff"
        assert await store.purge("r2") == 1
        assert await store.blob(shared.hash) is None
        assert await store.purge("r2") == 0
        assert await store.blob("never there") is None

    @trial
    async def test_a_purged_run_can_still_be_read(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        await store.append(commit(lease, 1, blobs=(blob(b"x"),), ledger=(line("k"),), fold={"seq": 2}))
        entries, row = await store.entries("r1"), await store.row("r1")
        await store.purge("r1")
        assert await store.entries("r1") == entries
        assert await store.row("r1") == row
        assert await store.effects("r1") == [line("k")]
        assert await store.saved_fold("r1") == {"seq": 2}
        await store.append(commit(lease, 2, blobs=(blob(b"x"),)))  # it can be written again
        assert await store.blob(blob(b"x").hash) == b"x"

    @trial
    async def test_purging_by_time_takes_only_runs_that_ended_before(self, store: Store) -> None:
        cases = {
            "ended long ago": (Status.SUCCEEDED, T0), "failed long ago": (Status.FAILED, T0),
            "ended lately": (Status.SUCCEEDED, T0 + 100), "running since long": (Status.RUNNING, T0),
            "waiting since long": (Status.WAITING, T0),
        }  # fmt: skip
        for name, (status, at) in cases.items():
            lease = await store.create(new(name))
            state = now(status, at=at)
            await store.append(commit(lease, 1, blobs=(blob(name.encode()), blob(b"all")), state=state))
        assert await store.purge(before=T0 + 100) == 2
        for name in cases:
            body = await store.blob(blob(name.encode()).hash)
            assert body == (None if name.endswith("ed long ago") else name.encode()), name
        assert await store.blob(blob(b"all").hash) == b"all"

    @trial
    async def test_purging_by_time_leaves_what_belongs_to_a_run_that_has_not_ended(
        self, store: Store
    ) -> None:
        """It may have to undo what the runs below it did."""
        roots = {"open-1.2": Status.WAITING, "over": Status.FAILED, "open-1": Status.FAILED}
        for root, status in roots.items():
            child = f"{root}.a[0]"
            for run_id, parent in ((root, None), (child, root), (f"{child}.b", child)):
                lease = await store.create(new(run_id, parent=parent))
                state = now(status if parent is None else Status.SUCCEEDED, at=T0)
                await store.append(commit(lease, 1, blobs=(blob(run_id.encode()),), state=state))
        assert await store.purge(before=T0 + 100) == 6
        for kept in (b"open-1.2", b"open-1.2.a[0]", b"open-1.2.a[0].b"):
            assert await store.blob(blob(kept).hash) == kept
        assert await store.blob(blob(b"over.a[0]").hash) is None
        assert await store.purge("open-1.2.a[0]") == 1

    @trial
    async def test_a_store_that_is_whole_finds_nothing_wrong_with_itself(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        await store.append(commit(lease, 1, blobs=(blob_of(b"kept"), blob_of(b""))))
        assert await store.integrity() == []
        await store.purge("r1")
        assert await store.integrity() == []

    @trial
    async def test_a_purge_must_say_of_what(self, store: Store) -> None:
        await refused(StoreError, store.purge())

    @trial
    async def test_a_fork_refers_to_the_blobs_of_its_origin(self, store: Store) -> None:
        origin = await store.create(new("r1"))
        kept, later = blob(b"kept"), blob(b"later")
        await store.append(commit(origin, 1, blobs=(kept,)))
        await store.create(new("fork", blobs_of="r1"))
        await store.append(commit(origin, 2, blobs=(later,)))
        await store.create(new("fork of nothing", blobs_of="nosuch"))
        assert await store.purge("r1") == 1
        assert await store.blob(kept.hash) == b"kept"
        assert await store.blob(later.hash) is None
        assert await store.purge("fork") == 1
        assert await store.blob(kept.hash) is None

    @trial
    async def test_large_blobs_are_kept_whole(self, store: Store) -> None:
        bodies = [b"x" * 65536, b"x" * 65537, bytes(range(256)) * 4096 * 3]
        lease = await store.create(new("r1"))
        await store.append(commit(lease, 1, blobs=tuple(map(blob, bodies))))
        for body in bodies:
            assert await store.blob(blob(body).hash) == body

    @trial
    async def test_a_mark_is_set_only_by_who_knows_its_version(self, store: Store) -> None:
        assert await store.mark("m") == (None, 0)
        assert not await store.set_mark("m", "too early", 1)
        assert await store.mark("m") == (None, 0)
        assert await store.set_mark("m", {"n": [1, "é\x00", None]}, 0)
        assert await store.mark("m") == ({"n": [1, "é\x00", None]}, 1)
        assert not await store.set_mark("m", "again", 0)
        assert await store.set_mark("m", None, 1)
        assert await store.mark("m") == (None, 2)
        assert not await store.set_mark("m", "stale", 1)
        assert not await store.set_mark("m", "from the future", 3)
        assert await store.mark("m") == (None, 2)

    @trial
    async def test_of_many_setters_exactly_one_wins_each_version(self, store: Store) -> None:
        wins: dict[int, list[str]] = {}

        async def setter(name: str) -> None:
            while True:
                _, version = await store.mark("m")
                if version >= 12:
                    return
                if await store.set_mark("m", name, version):
                    wins.setdefault(version + 1, []).append(name)

        await asyncio.gather(*(setter(f"s{index}") for index in range(8)))
        assert {version: len(names) for version, names in wins.items()} == dict.fromkeys(range(1, 13), 1)
        assert await store.mark("m") == (wins[12][0], 12)

    @trial
    async def test_a_run_is_created_with_its_mark_or_not_at_all(self, store: Store) -> None:
        await store.create(new("r1", mark=MarkChange("m", "r1", 0)))
        assert await store.mark("m") == ("r1", 1)
        for expected in (0, 2):
            error = await refused(MarkMoved, store.create(new("r2", mark=MarkChange("m", "r2", expected))))
            assert error.key == "m"
        await refused(RunNotFound, store.row("r2"))
        await refused(RunExists, store.create(new("r1", mark=MarkChange("m", "another r1", 1))))
        assert await store.mark("m") == ("r1", 1)
        await store.create(new("r2", alone=True, mark=MarkChange("m", "r2", 1)))
        assert await store.mark("m") == ("r2", 2)

    @trial
    async def test_entries_are_written_with_their_mark_or_not_at_all(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        before = await everything(store, "r1")
        await refused(MarkMoved, store.append(commit(lease, 1, marks=(MarkChange("m", "r1", 1),))))
        assert (await everything(store, "r1"), await store.mark("m")) == (before, (None, 0))
        await refused(Fenced, store.append(commit(lease, 7, marks=(MarkChange("m", "r1", 0),))))
        assert await store.mark("m") == (None, 0)
        await store.append(commit(lease, 1, marks=(MarkChange("m", "r1", 0),)))
        assert ((await store.row("r1")).seq, await store.mark("m")) == (2, ("r1", 1))

    @trial
    async def test_entries_are_written_with_all_their_marks_or_with_none(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        before = await everything(store, "r1")
        wrong = (MarkChange("a", 1, 0), MarkChange("b", 2, 3), MarkChange("c", 3, 0))
        error = await refused(MarkMoved, store.append(commit(lease, 1, marks=wrong)))
        assert (error.key, await everything(store, "r1"), await store.marks("")) == ("b", before, {})
        await store.append(commit(lease, 1, marks=(MarkChange("b", 2, 0), MarkChange("a", 1, 0))))
        assert await store.marks("") == {"a": 1, "b": 2}

    @trial
    async def test_a_mark_is_removed_with_entries_if_it_has_not_moved(self, store: Store) -> None:
        lease = await store.create(new("r1"))
        await store.append(commit(lease, 1, marks=(MarkChange("m", "r1", 0), MarkChange("n", "r1", 0))))
        gone = MarkChange("m", None, 2, remove=True)
        await refused(MarkMoved, store.append(commit(lease, 2, marks=(gone,))))
        assert await store.marks("") == {"m": "r1", "n": "r1"}
        await store.append(commit(lease, 2, marks=(gone._replace(expected=1),)))
        assert (await store.marks(""), await store.mark("m")) == ({"n": "r1"}, (None, 0))
        await store.append(commit(lease, 3, marks=(MarkChange("m", "again", 0),)))
        assert await store.mark("m") == ("again", 1)

    @trial
    async def test_of_many_runs_created_with_one_mark_one_is_there(self, store: Store) -> None:
        """The refused ones share transactions with others, which are written."""
        tries = [store.create(new(f"r{n}", mark=MarkChange("m", f"r{n}", 0))) for n in range(10)]
        others = [store.create(new(f"o{n}")) for n in range(10)]
        mixed = [work for pair in zip(tries, others, strict=True) for work in pair]
        results = await asyncio.gather(*mixed, return_exceptions=True)
        assert sum(isinstance(result, MarkMoved) for result in results[::2]) == 9
        assert not [result for result in results[1::2] if isinstance(result, BaseException)]
        rows = (await store.rows(RunQuery())).rows
        holder, _ = await store.mark("m")
        assert {row.id for row in rows} == {holder, *(f"o{n}" for n in range(10))}

    @trial
    async def test_marks_are_listed_by_how_they_begin(self, store: Store) -> None:
        for key in ("b:2", "b:1", "a:1", "b", "bé"):
            assert await store.set_mark(key, key.upper(), 0)
        assert await store.marks("b:") == {"b:1": "B:1", "b:2": "B:2"}
        assert list(await store.marks("b:")) == ["b:1", "b:2"]
        assert set(await store.marks("")) == {"b:2", "b:1", "a:1", "b", "bé"}
        assert await store.marks("x") == {}
