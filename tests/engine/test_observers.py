"""Observers: told after the commit, in order, and unable to harm a run."""

from __future__ import annotations

import json
import logging

import pytest

from detent.engine.engine import Engine
from detent.engine.observers import JsonLines, MetricsLogger, Observers, StateMachineObserver
from detent.engine.outcome import Hold, Outcome
from detent.kernel.budget import Spend
from detent.kernel.entries import from_plain
from detent.kernel.state_history import StateTransition
from detent.kernel.status import Status
from tests.engine import answers
from tests.engine.conftest import flow_of, journal, one_step

FLOW_MOVES = {"a": ["b"], "b": ["done"]}


def flow():
    return flow_of(
        FLOW_MOVES, {"a": lambda ctx: Outcome(spend=Spend(3, 2), reason="so"), "b": lambda ctx: None}
    )


class Watcher:
    """Writes down what it is told."""

    def __init__(self, told=None, name="w"):
        self.told = told if told is not None else []
        self.name = name

    def on_state_transition(self, transition):
        self.told.append((self.name, "transition", transition))

    def on_metrics_update(self, metrics):
        self.told.append((self.name, "metrics", metrics))


class TestSeedProtocol:
    async def test_each_transition_once_in_order_then_the_metrics(self, bench):
        """R-35: observers get each transition once, in order, after commit, followed by a metrics update."""
        watcher = Watcher()
        engine = await bench.engine(flow(), observers=[watcher])
        await engine.run("flow")
        assert [kind for _, kind, _ in watcher.told] == ["transition", "metrics"] * 2
        first = watcher.told[0][2]
        assert isinstance(first, StateTransition)
        assert (first.from_state, first.to_state, first.reason, first.tokens_consumed) == ("a", "b", "so", 5)
        metrics = watcher.told[3][2]
        assert metrics["total_transitions"] == 2
        assert metrics["total_tokens"] == 5
        assert metrics["state_visits"] == {"a": 1, "b": 1}
        assert metrics["current_state"] == "done"
        assert set(metrics) == {
            "total_duration_seconds", "total_tokens", "total_transitions", "iteration_count", "state_visits",
            "current_state",
        }  # fmt: skip

    async def test_a_raising_observer_harms_neither_the_run_nor_the_others(self, bench, caplog):
        """R-36: a raising observer is logged, the run and the other observers are unharmed."""

        class Broken:
            def on_state_transition(self, transition):
                raise RuntimeError("no")

            def on_metrics_update(self, metrics):
                raise RuntimeError("no")

            def on_entry(self, run_id, flow, entry):
                raise RuntimeError("no")

        watcher = Watcher()
        engine = await bench.engine(flow(), observers=[Broken(), watcher])
        run = await engine.run("flow")
        assert run.status is Status.SUCCEEDED
        assert len(watcher.told) == 4
        failed = [
            record.getMessage() for record in caplog.records if "observer.failed" in record.getMessage()
        ]
        assert len(failed) == 3 + 2 * 2
        assert "observer=Broken" in failed[0]

    async def test_for_each_transition_all_observers_in_order_of_adding(self, quick):
        told = []
        engine = await quick.engine(flow(), observers=[Watcher(told, "one")])
        engine.add_observer(Watcher(told, "two"))
        await engine.run("flow")
        assert [(name, kind) for name, kind, _ in told[:4]] == [
            ("one", "transition"), ("one", "metrics"), ("two", "transition"), ("two", "metrics"),
        ]  # fmt: skip

    def test_the_protocol_can_be_asked_for(self):
        assert isinstance(Watcher(), StateMachineObserver)
        assert not isinstance(object(), StateMachineObserver)


class TestAfterCommit:
    async def test_what_is_told_is_committed(self, bench):
        """Another reader of the store sees the entry by the time an observer is told of it."""
        seen = []

        class Reader:
            def on_entry(self, run_id, flow, entry):
                seen.append((entry.seq, len(stored)))

        stored = []

        class Told:
            def __init__(self, inner):
                self._inner = inner

            def __getattr__(self, name):
                return getattr(self._inner, name)

            async def create(self, new):
                lease = await self._inner.create(new)
                stored.extend(new.entries)
                return lease

            async def append(self, commit):
                size = await self._inner.append(commit)
                stored.extend(commit.entries)
                return size

        async with Engine(Told(bench.store()), [flow()], observers=[Reader()]) as engine:
            await engine.run("flow")
        assert seen == [(1, 1), (2, 2), (3, 3)]

    async def test_entries_already_committed_are_not_told_again_on_resume(self, bench):
        first, second = Watcher(), Watcher()
        waits = flow_of(
            FLOW_MOVES, {"a": lambda ctx: None, "b": lambda ctx: None if ctx.answered() else Hold()}
        )
        engine = await bench.engine(waits, observers=[first])
        run = await engine.run("flow")
        await engine.stop()
        other = await bench.engine(waits, observers=[second])
        await answers.release(other, run.id, 1)
        await other.finish(run.id)
        moves = [
            [(told.from_state, told.to_state) for _, kind, told in watcher.told if kind == "transition"]
            for watcher in (first, second)
        ]
        assert moves == [[("a", "b")], [("b", "done")]]

    async def test_every_entry_is_told_with_its_run(self, bench):
        told = []

        class Everything:
            def on_entry(self, run_id, flow, entry):
                told.append((run_id, flow, entry.seq))

        engine = await bench.engine(flow(), observers=[Everything()])
        await engine.run("flow", run_id="r1")
        assert told == [("r1", "flow", 1), ("r1", "flow", 2), ("r1", "flow", 3)]


class TestShipped:
    async def test_the_metrics_logger_says_one_line_a_transition(self, quick, caplog):
        caplog.set_level(logging.INFO, "detent")
        engine = await quick.engine(flow(), observers=[MetricsLogger()])
        await engine.run("flow")
        lines = [
            record.getMessage() for record in caplog.records if "transition.metrics" in record.getMessage()
        ]
        assert len(lines) == 2
        assert "frm=a to=b" in lines[0]
        assert "tokens=5" in lines[0]

    async def test_json_lines_can_be_read_back_as_the_journal(self, quick, tmp_path):
        observer = JsonLines(tmp_path / "lines.jsonl")
        engine = await quick.engine(flow(), observers=[observer])
        run = await engine.run("flow", {"text": "zwölf"})
        observer.close()
        rows = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text("utf-8").splitlines()]
        assert [(row["run"], row["flow"]) for row in rows] == [(run.id, "flow")] * 3
        assert [from_plain(row["entry"]) for row in rows] == await journal(engine, run.id)

    def test_something_that_observes_nothing_is_refused(self):
        with pytest.raises(TypeError, match="observes nothing"):
            Observers([object()])

    async def test_a_flow_without_observers_tells_nobody(self, quick):
        engine = await quick.engine(one_step(lambda ctx: None))
        assert not engine.active.observers
