"""Whatever is asked of it, in whatever order, over whatever table: the state machine keeps the law."""

import json
import math
from collections import Counter
from enum import Enum
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from detent.engine.state_machine import StateMachine
from detent.kernel.errors import InvalidTransitionError
from detent.kernel.machine import Machine
from detent.kernel.state_history import StateMetrics
from tests.examples import examples


@st.composite
def tables(draw) -> SimpleNamespace:
    """A valid table beside the machine made of it: a way through all working states, ends, extra moves."""
    working = draw(st.integers(1, 5))
    ends = draw(st.integers(1, 3))
    names = [f"w{number}" for number in range(working)] + [f"e{number}" for number in range(ends)]
    states: list[Any] = names
    shape = draw(st.sampled_from(["text", "enum", "text enum"]))
    if shape != "text":
        members = {name.upper(): name for name in names}
        make: Any = Enum  # the functional form, with members only known here
        states = list(make("States", members, type=str) if shape == "text enum" else make("States", members))
    noop = draw(st.booleans())
    moves: dict[Any, list[Any]] = {state: [] for state in states[:working]}
    for here, after in pairwise(states[: working + 1]):
        moves[here].append(after)
    for end in states[working + 1 :]:
        moves[draw(st.sampled_from(states[:working]))].append(end)
    for here, to in draw(
        st.lists(st.tuples(st.sampled_from(states[:working]), st.sampled_from(states)), max_size=8)
    ):
        if to not in moves[here] and not (noop and here == to):
            moves[here].append(to)
    machine = Machine(
        "any",
        start=states[0],
        moves={state: draw(st.permutations(row)) for state, row in moves.items()},
        ends=states[working:],
        self_moves="noop" if noop else "error",
    )
    listed = {(here, to) for here, row in moves.items() for to in row}
    return SimpleNamespace(
        machine=machine, states=states, names=names, ends=set(states[working:]), listed=listed
    )


DURATIONS = st.floats(0, 1e9) | st.integers(0, 10**6)
TOKENS = st.integers(0, 10**9)
CONTEXTS = st.none() | st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=2)
REASONS = st.none() | st.text(max_size=250)


class Law(RuleBasedStateMachine):
    @initialize(
        table=tables(),
        counted=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))),
        most=st.integers(1, 5),
    )
    def begin(self, table, counted, most):
        self.table = table
        self.counted = {
            (table.states[here], table.states[to])
            for here, to in counted
            if here < len(table.states) and to < len(table.states)
        }
        self.ticks = count(1)
        self.object = StateMachine(
            table.machine, max_iterations=most, counts=self.counts, clock=lambda: float(next(self.ticks))
        )
        self.here = table.machine.start
        self.made: list[tuple[Any, Any, float, int]] = []

    def counts(self, here, to):
        return (here, to) in self.counted

    def state(self, number):
        return number % len(self.table.states)

    @rule(
        number=st.integers(0, 7), as_text=st.booleans(), context=CONTEXTS, reason=REASONS, duration=DURATIONS,
        tokens=TOKENS,
    )  # fmt: skip
    def ask_for_a_move(self, number, as_text, context, reason, duration, tokens):
        to = self.table.states[self.state(number)]
        asked = self.table.names[self.state(number)] if as_text else to
        refused: InvalidTransitionError | None = None
        can = self.object.can_transition_to(asked)
        assert can == ((self.here, to) in self.table.listed)
        try:
            moved = self.object.transition(asked, context, reason, duration, tokens)
        except InvalidTransitionError as error:
            refused, moved = error, False
        if refused is not None:
            assert not can
            assert self.here not in self.table.ends
            assert set(refused.valid) == {target for here, target in self.table.listed if here == self.here}
            return
        assert moved == can
        if moved:
            self.made.append((self.here, to, float(duration), tokens))
            self.here = to
            last = self.object.history[-1]
            assert last.context == (context or {})
            assert last.reason == (None if reason is None else reason[:200])
        else:
            assert self.here in self.table.ends or to == self.here

    @rule(name=st.text(max_size=3) | st.none() | st.integers())
    def ask_for_a_state_there_is_not(self, name):
        if name in self.table.names:
            return
        assert not self.object.can_transition_to(name)
        try:
            self.object.transition(name)
        except InvalidTransitionError:
            return
        raise AssertionError("an unknown state was not refused")

    @precondition(lambda self: self.here not in self.table.ends)
    @rule(
        number=st.integers(0, 7),
        bad=st.sampled_from(
            [
                {"duration_seconds": -1.0}, {"duration_seconds": math.nan}, {"duration_seconds": math.inf},
                {"tokens_consumed": -1}, {"context": {"a": object()}}, {"context": {"a": math.inf}},
            ]
        ),
    )  # fmt: skip
    def ask_with_something_wrong(self, number, bad):
        to = self.table.states[self.state(number)]
        try:
            moved = self.object.transition(to, **bad)
        except (InvalidTransitionError, ValueError, TypeError):
            return
        assert not moved

    @rule()
    def reset(self):
        most = self.object.max_iterations
        self.object.reset()
        assert self.object.max_iterations == most
        self.here = self.table.machine.start
        self.made = []

    @rule()
    def write_and_read(self):
        written = json.dumps(self.object.to_dict(), allow_nan=False)
        read = StateMachine.from_dict(
            self.table.machine,
            json.loads(written),
            counts=self.counts,
            clock=lambda: float(next(self.ticks)),
        )
        assert read.history == self.object.history
        assert read.iteration_count == self.object.iteration_count
        assert json.dumps(read.to_dict(), allow_nan=False) == written
        self.object = read  # and go on with the one that was read

    @invariant()
    def only_listed_moves_were_made_one_after_the_other(self):
        history = self.object.get_transition_history()
        assert [(made.from_state, made.to_state) for made in history] == [made[:2] for made in self.made]
        assert {(made.from_state, made.to_state) for made in history} <= self.table.listed
        assert all(one.to_state is other.from_state for one, other in pairwise(history))
        assert not history or history[0].from_state is self.table.machine.start
        assert self.object.current_state is self.here
        assert self.object.is_terminal() == (self.here in self.table.ends)
        assert all(one.timestamp < other.timestamp for one, other in pairwise(history))

    @invariant()
    def metrics_equal_a_naive_recount(self):
        made = self.made
        iterations = sum(self.counts(here, to) for here, to, _, _ in made)
        assert self.object.iteration_count == iterations
        assert self.object.exceeded_max_iterations() == (iterations >= self.object.max_iterations)
        names = dict(zip(self.table.states, self.table.names, strict=True))
        assert self.object.get_total_metrics() == {
            "total_duration_seconds": sum(duration for _, _, duration, _ in made),
            "total_tokens": sum(tokens for *_, tokens in made),
            "total_transitions": len(made),
            "iteration_count": iterations,
            "state_visits": Counter(names[here] for here, *_ in made),
            "current_state": names[self.here],
        }
        everything = self.object.get_all_state_metrics()
        assert list(everything) == [
            state for state in self.table.machine.states if state not in self.table.ends
        ]
        for state in self.table.states:
            durations = [duration for here, _, duration, _ in made if here == state]
            tokens = [spent for here, _, _, spent in made if here == state]
            times = len(durations)
            expected = StateMetrics(
                state, times, sum(durations), sum(tokens), sum(durations) / times, sum(tokens) / times,
                min(durations), max(durations),
            ) if times else StateMetrics(state)  # fmt: skip
            assert self.object.get_state_metrics(state) == expected
            assert everything.get(state, expected) == expected
        patterns = Counter(f"{names[here]} → {names[to]}" for here, to, *_ in made)
        common = patterns.most_common(1)
        assert self.object.get_transition_metrics() == {
            "transition_counts": patterns,
            "most_common_transition": common[0][0] if common else None,
            "most_common_count": common[0][1] if common else 0,
            "unique_transitions": len(patterns),
        }
        self.object.format_metrics_report()


TestLaw = Law.TestCase
TestLaw.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
