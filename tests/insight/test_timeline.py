"""Every entry has its line: when, how long, who, what."""

import json

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.tools import Tool
from detent.insight.formatting import span
from detent.insight.timeline import render, timeline
from detent.kernel.entries import KINDS, Ended, Held, Moved, Started
from detent.kernel.status import Status
from tests.engine.conftest import one_step
from tests.insight.samples import claims, entries, every_kind, journal


def said(lines, kind):
    return [line.what for line in lines if line.kind == kind]


def test_every_kind_of_entry_has_its_words():
    journal_lines = every_kind()
    lines = timeline(journal_lines)
    assert {line.kind for line in lines} == set(KINDS)
    assert [line.seq for line in lines] == [entry.seq for entry in journal_lines]
    assert all(line.what and line.who for line in lines)
    json.dumps([line.to_plain() for line in lines], allow_nan=False)


def test_the_words_of_each_kind():
    lines = timeline(every_kind())
    words = {line.kind: line.what for line in lines[:-1]}
    assert words["claimed"] == "worker worker-2 took over from worker-1"
    assert words["attempt_failed"] == "attempt 1 at 'look-up' failed: TimeoutError: too slow; again in 2.00 s"
    assert words["held"] == "waits for a person ('approval'): Pay? [yes / no], at most 1 d 00 h"
    assert words["released"] == "wait 'approval' answered: yes, after 1.00 s"
    assert words["moved"] == "look-up → approve on go: covered (attempt 2; 12 tokens)"
    assert words["effect_done"] == 'bank.pay had happened: found by asking → {"receipt":7}'
    assert words["effect_failed"] == "bank.pay failed, attempt 1: busy: later; again in 1.00 s"
    assert words["child_ended"] == "child r1.check ended succeeded (3 steps; 8 tokens)"
    assert words["reopened"] == "reopened in 'approve': needed after all"
    assert words["called_off"] == "called off, to be undone once its step is settled: not needed"


async def test_a_real_run_reads_as_a_story():
    lines, _ = await journal(claims(flaky=True), {"serial": "A1"})
    told = timeline(lines)
    assert said(told, "attempt_failed")[0].startswith(
        "attempt 1 at 'look-up' failed: Transient: registry away"
    )
    assert said(told, "effect_done") == ['bank.pay performed → {"receipt":7}']
    assert said(told, "moved")[-1].endswith("(run succeeded)")
    released = next(line for line in told if line.kind == "released")
    assert released.duration is not None
    assert released.who == "person"


def test_a_hold_says_whether_it_still_waits_or_was_never_answered():
    held = Held("approval", "person", "Pay?")
    start = Started("claim", "look-up", "claim", 1, "f" * 16)
    assert timeline(entries(start, held))[1].what.endswith("still waiting")
    ended = Ended(Status.CANCELLED, by="person")
    assert timeline(entries(start, held, ended))[1].what.endswith("never answered")


def test_the_columns_are_aligned_and_hold_one_line_per_entry():
    journal_lines = entries(
        Started("claim", "a", "claim", 1, "f" * 16),
        *(Moved("a", "a", reason="two\nlines", duration=number * 100.0) for number in range(12)),
    )
    rows = render(timeline(journal_lines)).split("\n")
    assert len(rows) == 13
    assert len({row.index("a → a") for row in rows[1:]}) == 1
    assert render([]) == ""


def test_spans_are_said_in_at_most_two_units():
    spoken = [span(seconds) for seconds in (0, 0.0123, 0.9999, 4.2, 59.999, 125, 11_520, 187_200, -2)]
    assert spoken == [
        "0 ms", "12 ms", "1.00 s", "4.20 s", "1 m 00 s", "2 m 05 s", "3 h 12 m", "2 d 04 h", "-2.00 s",
    ]  # fmt: skip


async def test_rounds_are_numbered_and_what_they_rest_on_is_named():
    async def work(ctx):
        await ctx.query("look")
        await ctx.perform("act")
        await ctx.perform("act")

    flow = one_step(work, tools=[Tool("act", lambda: {"ok": True}), Tool("look", lambda: 1, "query")])
    async with Engine(MemoryStore(), [flow]) as engine:
        run = await engine.run("flow")
        lines = [line.what for line in timeline(await engine.store.entries(run.id))]
    assert "'work' asked in round 1 for 1 effect: act (looked at look)" in lines
    assert "'work' asked in round 2 for 1 effect: act" in lines
    assert lines.count("a query's answer kept for the rounds to come") == 1
