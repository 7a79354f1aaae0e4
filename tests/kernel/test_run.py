"""What a journal adds up to, for any machine and anything its steps may do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import Budget, Spend
from detent.kernel.entries import (
    KINDS,
    AttemptFailed,
    Body,
    CalledOff,
    ChildEnded,
    Claimed,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Forked,
    Held,
    Migrated,
    Moved,
    Noted,
    Proposed,
    Recorded,
    Released,
    Reopened,
    Started,
    Tagged,
    from_plain,
    to_plain,
)
from detent.kernel.errors import ConfigurationError, DetentError
from detent.kernel.machine import Machine
from detent.kernel.plain import decode, encode
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.engine import answers
from tests.examples import examples

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["a", "b", "c"])

DEEDS = st.one_of(
    st.fixed_dictionaries({"do": st.just("move"), "set": st.dictionaries(KEYS, VALUES, max_size=2)}),
    st.fixed_dictionaries({"do": st.just("append"), "key": KEYS, "items": st.lists(VALUES, max_size=2)}),
    st.fixed_dictionaries({"do": st.just("spend"), "tokens": st.integers(0, 1000), "cost": st.floats(0, 5)}),
    st.fixed_dictionaries({"do": st.just("once"), "value": VALUES, "tokens": st.integers(0, 50)}),
    st.fixed_dictionaries({"do": st.just("note"), "value": VALUES}),
    st.fixed_dictionaries({"do": st.just("tag"), "tag": KEYS}),
    st.fixed_dictionaries({"do": st.just("child"), "key": KEYS}),
    st.fixed_dictionaries({"do": st.just("effects"), "how": st.lists(st.sampled_from(
        ["fine", "fine", "busy", "refused", "lost"]), min_size=1, max_size=3)}),
    st.sampled_from([{"do": name} for name in ("hold", "transient", "definite", "wander", "end", "timer")]),
)  # fmt: skip

WORKING = ("s0", "s1", "s2")


@st.composite
def machines(draw: st.DrawFn) -> Machine[str]:
    """A small machine in which every state can be left for an end."""
    moves: dict[str, list[str]] = {}
    for number, state in enumerate(WORKING):
        further = draw(st.lists(st.sampled_from(WORKING), max_size=3, unique=True))
        chain = [WORKING[number + 1]] if number + 1 < len(WORKING) else ["done"]
        failed = ["failed"] if draw(st.booleans()) else []
        moves[state] = list(dict.fromkeys([*chain, *further, "done", *failed]))
    ends = {"done": Status.SUCCEEDED}
    if any("failed" in row for row in moves.values()):
        ends["failed"] = Status.FAILED
    return Machine("any", start="s0", moves=moves, ends=ends, may_end=draw(st.sets(st.sampled_from(WORKING))))


class Script:
    """Has a step do what was drawn, one deed a call; then it goes to the end."""

    def __init__(self, machine: Machine[str], deeds: list[dict[str, Any]], picks: list[int]) -> None:
        self.machine = machine
        self.deeds = list(deeds)
        self.picks = list(picks)
        self.effects: list[str] = []

    async def __call__(self, ctx: Any) -> Any:
        if ctx.data.get("child"):
            return Outcome(spend=Spend(3))
        if not self.deeds:
            return "done"
        deed = self.deeds.pop(0)
        what = deed["do"]
        row = self.machine.allowed(ctx.state)
        to = row[self.picks.pop() % len(row)] if self.picks else row[0]
        if what == "move":
            return Outcome(to, set=deed["set"])
        if what == "append":
            return Outcome(to, append={deed["key"]: deed["items"]})
        if what == "spend":
            return Outcome(to, spend=Spend(deed["tokens"], 0, deed["cost"]))
        if what == "once":
            value = await ctx.once(
                f"k{len(self.deeds)}", lambda: deed["value"], spend=lambda _: Spend(deed["tokens"])
            )
            return Outcome(to, set={"once": value})
        if what == "note":
            await ctx.note("said", value=deed["value"], spend=Spend(1))
            return None
        if what == "tag":
            await ctx.tag(deed["tag"], remove=["other"])
            return to
        if what == "child":
            child = await ctx.child("any", {"child": True}, key=deed["key"])
            return Outcome(to, set={"child_was": child.status.value})
        if what == "effects":
            self.effects = list(deed["how"])
            return Outcome(
                to, effects=[Effect("do", {"n": n, "left": len(self.deeds)}) for n in range(len(deed["how"]))]
            )
        if what == "hold":
            return Hold(f"h{len(self.deeds)}", question="?")
        if what == "timer":
            return Hold(f"t{len(self.deeds)}", wake_at=1.0, default="past")
        if what == "end":
            return Outcome(end=Status.DEGRADED)
        if what == "wander":
            return "nowhere"
        raise Transient("again") if what == "transient" else ValueError("no")

    def perform(self, n: int, left: int) -> Any:
        how = self.effects.pop(0) if self.effects else "fine"
        if how == "busy":
            raise ToolError("busy", transient=True)
        if how == "refused":
            raise ToolError("refused")
        if how == "lost":
            raise RuntimeError("lost")
        return {"n": n}


class Watched(MemoryStore):
    """A store that also keeps, with every commit, how the driver's own run stands."""

    def __init__(self) -> None:
        super().__init__()
        self.folds: list[tuple[str, int, str]] = []
        self.engine: Engine | None = None

    async def append(self, commit: Any) -> int:
        size = await super().append(commit)
        driver = self.engine.active.driver_of(commit.lease.run_id) if self.engine else None
        if driver is not None and driver.lease.epoch == commit.lease.epoch:
            self.folds.append((driver.run.id, driver.run.seq, encode(driver.run.to_plain())))
        return size


async def _live(
    machine: Machine[str], deeds: list, picks: list[int], budget: Budget | None, given: list
) -> Watched:
    store = Watched()
    script = Script(machine, deeds, picks)
    step = Step("any", script, retry=RetryPolicy(2, 0, 0))
    flow = Flow(
        machine, dict.fromkeys(WORKING, step), tools=[Tool("do", script.perform, retry=RetryPolicy(2, 0, 0))],
        counts=lambda frm, to: frm == to,
    )  # fmt: skip
    async with Engine(store, [flow]) as engine:
        store.engine = engine
        run = await engine.run("any", {"c": []}, run_id="r", budget=budget, tags=["other"])
        for answer in given:
            if run.status is Status.WAITING:
                name = next(iter(run.holds))
                if name.startswith("effect:"):
                    await answers.resolve(engine, "r", answer, receipt={"told": True})
                else:
                    await answers.release(engine, "r", answer)
            elif run.status.is_end and run.status is not Status.SUCCEEDED:
                try:
                    await engine.reopen("r", budget=Budget(steps=1000) if budget else None)
                except DetentError:
                    break
            else:
                break
            run = await engine.finish("r")
        with contextlib.suppress(ConfigurationError):  # it may have stood at an end just there
            await engine.cancel(
                await engine.fork("r", (run.seq + 1) // 2, set={"a": "forked"}, config={"x": 1}, drive=False)
            )
        if not run.status.is_end:
            await engine.cancel("r")
    return store


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _finite(item) for key, item in value.items())
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    return not isinstance(value, float) or math.isfinite(value)


IN_NO_FOLD = {"beside", "touched"}
"""Looked up anew, and taken for set, when a fold is read."""


def fields_of(run: Run) -> dict[str, Any]:
    """Every field a saved fold keeps, read from the run itself and not through what saves it."""
    return {name: getattr(run, name) for name in Run.__slots__ if name not in IN_NO_FOLD}


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    machine=machines(),
    deeds=st.lists(DEEDS, max_size=9),
    picks=st.lists(st.integers(0, 5), max_size=9),
    budget=st.none() | st.builds(Budget, tokens=st.integers(1, 500), steps=st.integers(1, 8)),
    answers=st.lists(st.sampled_from(["happened", "again", "skip"]), max_size=6),
)
def test_a_journal_adds_up_to_the_run_however_it_is_read(machine, deeds, picks, budget, answers):
    """Folded whole, from a saved fold, from written lines, or held live by a driver: it is the same run."""
    store = asyncio.run(_live(machine, deeds, picks, budget, answers))
    live = {(run_id, seq): text for run_id, seq, text in store.folds}
    assert live
    for run_id, kept in store._runs.items():
        entries: list[Entry] = kept.entries
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        whole = Run(run_id)
        saved: list[str] = []
        for entry in entries:
            written = encode(to_plain(entry))
            assert json.loads(written, parse_constant=_refuse) == decode(written)
            assert from_plain(decode(written)) == entry
            whole.apply(from_plain(decode(written)))
            text = encode(whole.to_plain())
            assert _finite(decode(text))
            assert fields_of(Run.from_plain(decode(text))) == fields_of(whole)
            if (run_id, entry.seq) in live:
                assert text == live[(run_id, entry.seq)]
            saved.append(text)
        assert fields_of(Run.fold(run_id, entries)) == fields_of(whole)
        for place in {0, len(entries) // 2, len(entries) - 1}:
            rest = Run.from_plain(decode(saved[place]))
            for entry in entries[place + 1 :]:
                rest.apply(entry)
            assert fields_of(rest) == fields_of(whole)
        assert all(value >= 0 for value in whole.used().values())


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(machine=machines(), deeds=st.lists(DEEDS, max_size=9), picks=st.lists(st.integers(0, 5), max_size=9))
def test_no_run_makes_a_move_its_table_does_not_list(machine, deeds, picks):
    store = asyncio.run(_live(machine, deeds, picks, None, ["again"] * 3))
    for kept in store._runs.values():
        here = None
        for entry in kept.entries:
            if entry.kind == "moved":
                assert machine.allows(entry.body.frm, entry.body.to)
                assert here in (None, entry.body.frm)
                here = entry.body.to
            elif entry.kind in ("started", "reopened"):
                here = entry.body.state


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def test_lines_must_follow_one_another():
    run = Run("r")
    run.apply(Entry(1, 0.0, 1, Started("f", "a", "m", 1, "x")))
    with pytest.raises(ValueError, match="entry 3 cannot follow entry 1"):
        run.apply(Entry(3, 0.0, 1, Noted("n")))


EFFECTS: list[dict[str, Any]] = [{"key": key, "tool": "post", "args": {}} for key in ("a", "b", "c")]
EVERY_KIND: list[Body] = [
    Started(
        "f",
        "s0",
        "m",
        1,
        "x",
        {"n": 1},
        "p",
        Budget(steps=9).to_plain(),
        {"forced": True},
        ["new"],
        {"run": "q", "seq": 3},
    ),
    Forked({"n": 2}, {"from": "q"}, Budget(steps=8).to_plain()),
    Claimed("w2", "w1"),
    Recorded("k", "answer", Spend(1)),
    Noted("remark", {"text": "hm"}, Spend(2)),
    Tagged(["seen"], ["new"]),
    AttemptFailed("one", 1, "Transient", "again", True, 5.0, 0.5, Spend(3)),
    ChildEnded("r/child", Status.SUCCEEDED, Spend(4), 2, 1.0),
    Held("ask", "person", "Go on?", ["yes", "no"], 9.0, "no"),
    Released("ask", "yes", "ada"),
    Proposed("one", {"next": "s1"}, EFFECTS, 0.5, Spend(5)),
    EffectBegun("a", "post", "w2"),
    EffectFailed("a", "post", "busy", "later", 1, 7.0),
    EffectBegun("a", "post", "w2"),
    EffectDone("a", "post", {"number": 3}),
    EffectBegun("b", "post"),
    EffectSkipped("b", "post"),
    EffectBegun("c", "post"),
    EffectFailed("c", "post", "refused", "no"),
    Proposed("one", {}, EFFECTS[:2], round=1, final=False),
    EffectDone("a", "post", {"number": 4}),
    EffectFailed("b", "post", "refused", "no"),
    Held("wait", "timer", wake_at=9.0),
    CalledOff("a mistake", "ada"),
    Moved("s0", "s0", "again", "once more", {"n": 4}, {"log": [1]}, 1.5, Spend(6), iteration=True),
    Migrated(2, "y", "s1", {"n": 5}, "renamed", "m2"),
    Ended(Status.FAILED, "step_failed", "ValueError: no", {"n": 6}, {"log": [2]}, 0.5, Spend(7)),
    Reopened("s1", "ada", "mended", Budget(steps=20).to_plain()),
    Moved("s1", "end", status=Status.FAILED),
    Reopened("s1", "ada"),
]


def test_a_saved_fold_keeps_every_field_through_every_kind_of_entry():
    """I1, I5: at each place of a journal, a run read from a fold is what its whole journal adds up to."""
    assert {body.kind for body in EVERY_KIND} == set(KINDS)
    entries = [Entry(seq, float(seq), 1 + seq // 3, body) for seq, body in enumerate(EVERY_KIND, 1)]
    unset, told = fields_of(Run("r")), set()
    for place in range(1, len(entries) + 1):
        whole = Run.fold("r", entries[:place])
        saved = Run.from_plain(decode(encode(whole.to_plain())))
        assert fields_of(saved) == fields_of(whole), entries[place - 1].kind
        for entry in entries[place:]:
            saved.apply(entry)
        assert fields_of(saved) == fields_of(Run.fold("r", entries)), entries[place - 1].kind
        told |= {name for name, value in fields_of(whole).items() if value != unset[name]}
    assert unset.keys() - told == {"id"}, "a field that is never set is not compared"
