"""Observers of a refinement: told in order, after the commit, and harmless."""

from __future__ import annotations

import json

from detent.flows.refine.observers import MetricsLogger, StateMachineObserver, TransitionLines
from detent.flows.refine.result import state_machine_of
from detent.flows.refine.run import refine
from tests.flows.refine.samples import RUBRIC, WORDS, Writer, refined


class Watcher:
    def __init__(self, log, name):
        self.log = log
        self.name = name

    def on_state_transition(self, transition):
        self.log.append((self.name, transition.to_state.value, transition.context))

    def on_metrics_update(self, metrics):
        self.log.append((self.name, metrics["current_state"], metrics["total_transitions"]))


class Breaks:
    def on_state_transition(self, transition):
        raise ValueError("broken")

    def on_metrics_update(self, metrics):
        raise SystemExit(1)


async def test_each_transition_is_told_once_in_order_with_its_totals():
    """R-35: for each observer in the order of adding; nothing is told again of a finished run."""
    log = []
    watchers = [Watcher(log, "a"), Watcher(log, "b")]
    assert all(isinstance(watcher, StateMachineObserver) for watcher in watchers)
    await refine(WORDS, **Writer().parts(), observers=watchers)
    states = ["planning", "validating", "implementing", "judging", "succeeded"]
    assert [(name, state) for name, state, _ in log] == [
        (name, state) for state in states for name in "aabb"
    ]  # fmt: skip
    assert [value for name, _, value in log if name == "a"][1::2] == [1, 2, 3, 4, 5]


async def test_a_raising_observer_harms_neither_the_run_nor_the_others(heard):
    """R-36"""
    log = []
    result = await refine(WORDS, **Writer().parts(), observers=[Breaks(), Watcher(log, "a")])
    assert (result.status, len(log)) == ("success", 10)
    failed = heard.named("observer.failed")
    assert len(failed) == 10
    assert failed[0]["observer"] == "Breaks"


async def test_the_context_is_what_the_move_sets(bench):
    """R-65: `plan` and `evaluation`, for observers and for the fold alike."""
    log = []
    engine = await bench.engine(Writer().flow(), observers=[Watcher(log, "a")])
    result = await refined(engine)
    contexts = {state: context for _, state, context in log[::2]}
    assert contexts["validating"] == {"plan": {"words": WORDS}}
    assert contexts["succeeded"]["evaluation"]["overall_score"] == 100
    folded = await state_machine_of(engine, result.run_id)
    assert [move.context for move in folded.history] == [context for _, _, context in log[::2]]
    assert folded.is_terminal()


async def test_loggers_write_one_line_for_each_transition(heard, tmp_path):
    """R-65, R-33"""
    lines = TransitionLines(tmp_path / "moves.jsonl")
    writer = Writer(times=[2, 1])
    await refine(WORDS, **writer.parts(), rubric=RUBRIC, observers=[MetricsLogger(), lines])
    rows = [
        json.loads(line, parse_constant=int) for line in (tmp_path / "moves.jsonl").read_text().splitlines()
    ]
    assert [row["to_state"] for row in rows][-2:] == ["judging", "succeeded"]
    assert len(rows) == len(heard.named("transition.metrics")) == 7
    assert set(rows[0]) == {
        "from_state", "to_state", "timestamp", "reason", "context", "duration_seconds", "tokens_consumed"
    }  # fmt: skip
