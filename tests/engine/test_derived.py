"""What stores derive from entries says what the journal says."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from detent.adapters.stores.memory import MemoryStore
from detent.engine import claims
from detent.engine.derived import LEDGER_STATE, derived, row_of
from detent.engine.ports import Commit, NewRun
from detent.kernel.budget import Spend
from detent.kernel.entries import (
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Held,
    Moved,
    Noted,
    Released,
    Started,
    Tagged,
)
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.engine.conftest import one_step
from tests.examples import examples

TAGS = st.lists(st.sampled_from("abc"), max_size=3)
KEYS = st.sampled_from(["k1", "k2"])
TIMES = st.none() | st.floats(0, 1e6)
BODIES = st.one_of(
    st.tuples(st.sampled_from("st"), st.integers(0, 5), st.integers(0, 9)).map(
        lambda drawn: Moved("s", drawn[0], duration=float(drawn[1]), spend=Spend(drawn[2]))
    ),
    st.builds(Tagged, TAGS, TAGS),
    st.builds(Noted, st.just("note"), st.just({})),
    st.builds(EffectBegun, KEYS, st.just("tool")),
    st.builds(EffectDone, KEYS, st.just("tool")),
    st.builds(EffectSkipped, KEYS, st.just("tool")),
    st.builds(EffectFailed, KEYS, st.just("tool"), st.just("Error"), st.just("no"), st.just(1), st.none()),
    st.builds(Held, st.sampled_from(["h1", "h2"]), st.just("timer"), wake_at=TIMES),
    st.builds(Released, st.sampled_from(["h1", "h2"]), st.none(), st.just("clock")),
    st.builds(Ended, st.just(Status.FAILED), st.just("over")),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.lists(BODIES, min_size=1, max_size=4), max_size=6))
def test_what_is_derived_commit_by_commit_equals_the_fold_of_the_whole_journal(commits):
    asyncio.run(_committed(commits))


async def _committed(commits):
    store = MemoryStore()
    entries = [Entry(1, 86400.0, 1, Started("flow", "s", "m", 1, "f" * 16, tags=["a"]))]
    run = Run.fold("r", entries)
    lease = await store.create(
        NewRun("r", "flow", "m", None, tuple(entries), row_of(run), tuple(run.tags), None)
    )
    for number, bodies in enumerate(commits):
        more = []
        for body in bodies:
            entry = Entry(run.seq + 1, 86400.0 * (number + 1), 1, body)
            more.append(entry)
            run.apply(entry)
        row, ledger, edges, tags = derived(run, more)
        await store.append(
            Commit(lease, len(entries), tuple(more), row, ledger=ledger, edges=edges, tags=tags)
        )
        entries += more
    whole = Run.fold("r", entries)
    row = await store.row("r")
    assert row.now == row_of(whole)
    assert row.tags == tuple(sorted(whole.tags))
    standing = {
        entry.body.key: (LEDGER_STATE[type(entry.body)], entry.seq)
        for entry in entries
        if type(entry.body) in LEDGER_STATE
    }
    assert {line.key: (line.state, line.seq) for line in await store.effects("r")} == standing
    moves = [entry.body for entry in entries if type(entry.body) is Moved]
    counted = await store.edges("flow")
    assert sum(edge.count for edge in counted) == len(moves)
    assert sum(edge.seconds for edge in counted) == sum(move.duration for move in moves)
    assert sum(edge.tokens for edge in counted) == sum(move.spend.tokens for move in moves)


async def test_two_tags_written_in_one_commit_are_both_listed(bench):
    """An agent's path writes everything a step said in one commit."""
    engine = await bench.engine(one_step(lambda ctx: None))
    run_id = await engine.start("flow", drive=False)
    async with claims.claimed(engine.active, run_id) as driver:
        await driver.commit(Tagged(["first"], []), Tagged(["second"], []))
    assert (await engine.store.row(run_id)).tags == ("first", "second")
    assert (await engine.get(run_id)).tags == ["first", "second"]
