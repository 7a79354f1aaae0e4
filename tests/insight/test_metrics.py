"""Figures are the kernel's, from a machine or from the description a store keeps, and always JSON."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.engine.state_machine import StateMachine
from detent.flows.refine.state_machine import REFINE, OrchestrationStateMachine
from detent.insight.metrics import flow_metrics, run_metrics
from detent.insight.table import machine_of
from detent.kernel.budget import Spend
from detent.kernel.entries import Entry, Moved, Started
from detent.kernel.machine import Machine
from tests.insight.samples import CLAIM, claims, entries, journal


def refined() -> list[Entry]:
    """The history behind the report in the specification."""
    hops = [
        ("initialized", "planning", 0.0, 0, False), ("planning", "validating", 4.2, 1200, True),
        ("validating", "planning", 0.01, 0, False), ("planning", "validating", 3.8, 1100, True),
        ("validating", "implementing", 0.01, 0, False), ("implementing", "judging", 6.0, 2400, False),
        ("judging", "succeeded", 2.0, 900, False),
    ]  # fmt: skip
    return entries(
        Started("refine", "initialized", "refine", 1, REFINE.fingerprint),
        *(
            Moved(frm, to, duration=seconds, spend=Spend(tokens, 0, 0.5), iteration=counted)
            for frm, to, seconds, tokens, counted in hops
        ),
    )


def strict(plain: Any) -> Any:
    """Through JSON and back, infinities refused."""
    return json.loads(json.dumps(plain, allow_nan=False))


def test_the_report_is_the_one_the_state_machine_writes_without_the_limit_no_journal_names():
    made = OrchestrationStateMachine.from_journal(refined())
    metrics = run_metrics(REFINE, refined(), title="Orchestration")
    assert metrics.report == made.format_metrics_report().replace("Iterations: 2 / 3", "Iterations: 2")
    assert metrics.report.startswith(
        "=== Orchestration Metrics Report ===\n\nFinal State: succeeded\nIterations: 2\n"
    )


def test_a_stored_description_gives_the_same_figures_as_the_machine():
    assert run_metrics(strict(REFINE.describe()), refined()) == run_metrics(REFINE, refined())


def test_a_machine_read_from_its_description_has_the_same_fingerprint_and_order():
    machines: tuple[Machine[Any], ...] = (REFINE, CLAIM)
    for machine in machines:
        again = machine_of(strict(machine.describe()))
        assert again.fingerprint == machine.fingerprint
        assert [again.named(state) for state in again.states] == [
            machine.named(state) for state in machine.states
        ]


def test_every_state_that_is_no_end_is_listed_in_table_order_unvisited_ones_with_no_minimum():
    metrics = run_metrics(REFINE, refined()[:2])
    assert [figures.state for figures in metrics.states] == [
        "initialized", "planning", "validating", "implementing", "judging",
    ]  # fmt: skip
    assert metrics.states[0].visits == 1
    assert metrics.states[1].fastest is None
    assert strict(metrics.to_plain())["states"][1]["min_duration_seconds"] is None


def test_states_carry_what_they_cost():
    metrics = run_metrics(REFINE, refined())
    planning = metrics.states[1]
    assert (planning.visits, planning.tokens, planning.cost_usd) == (2, 2300, 1.0)
    assert planning.avg_seconds == pytest.approx(4.0)
    assert metrics.cost_usd == pytest.approx(3.5)


async def test_a_real_run_adds_up():
    lines, store = await journal(claims(flaky=True), {"serial": "A1"})
    metrics = run_metrics(CLAIM, lines)
    assert metrics.status == "succeeded"
    assert metrics.totals["state_visits"] == {"look-up": 1, "approve": 1, "pay": 1}
    assert metrics.failed_attempts == 1
    assert metrics.effects == 1
    assert metrics.tokens == 130
    made: StateMachine[Any] = StateMachine.from_journal(CLAIM, lines)
    assert metrics.report == made.format_metrics_report().replace("Iterations: 0 / 3\n", "")
    strict(metrics.to_plain())

    flow = flow_metrics(await store.edges("claim"))
    assert flow.moves == 3
    assert {figures.state: figures.visits for figures in flow.states} == {
        "look-up": 1,
        "approve": 1,
        "pay": 1,
    }
    assert flow.tokens == 130
    assert flow.seconds == pytest.approx(metrics.totals["total_duration_seconds"])


def test_the_report_of_a_run_leaves_out_iterations_and_tokens_that_it_has_none_of():
    started = Started("claim", "look-up", "claim", 1, CLAIM.fingerprint)
    report = run_metrics(CLAIM, entries(started, Moved("look-up", "approve", duration=1.0))).report
    assert "Slowest State: look-up" in report
    assert "Iterations" not in report
    assert "Highest Token State" not in report


@dataclass(frozen=True)
class Counted:
    """A counted move, as a store gives it."""

    flow: str
    day: int
    frm: str
    to: str
    count: int
    seconds: float
    fastest: float
    slowest: float
    tokens: int
    cost_usd: float


def test_counted_moves_of_many_days_are_added_up_per_state_and_per_move():
    metrics = flow_metrics(
        [
            Counted("claim", 20000, "a", "b", 2, 4.0, 1.0, 3.0, 100, 0.5),
            Counted("claim", 20001, "a", "b", 1, 8.0, 8.0, 8.0, 50, 0.25),
            Counted("claim", 20001, "a", "c", 1, 0.5, 0.5, 0.5, 0, 0.0),
            Counted("claim", 20001, "b", "c", 4, 40.0, 9.0, 11.0, 10, 0.0),
        ]
    )
    a, b = metrics.states
    assert (a.visits, a.seconds, a.fastest, a.slowest, a.tokens, a.cost_usd) == (4, 12.5, 0.5, 8.0, 150, 0.75)
    assert [(made.name, made.count) for made in metrics.transitions] == [
        ("b → c", 4),
        ("a → b", 3),
        ("a → c", 1),
    ]
    assert metrics.slowest_state == b
    assert metrics.highest_token_state == a
    assert "Most Common: b → c (4x)" in metrics.report
    assert "Slowest State: b" in metrics.report
    assert strict(metrics.to_plain())["first_day"] == "2024-10-04"


def test_no_moves_make_an_empty_report_and_no_bottleneck():
    metrics = flow_metrics([])
    assert metrics.report.endswith("--- States ---")
    assert strict(metrics.to_plain())["bottlenecks"] == {"slowest_state": None, "highest_token_state": None}


def test_figures_of_two_flows_are_not_mixed():
    rows = [Counted(flow, 1, "a", "b", 1, 1.0, 1.0, 1.0, 0, 0.0) for flow in ("one", "two")]
    with pytest.raises(ValueError, match="one, two"):
        flow_metrics(rows)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.floats(0, 1.7e308)), max_size=6))
def test_however_large_the_figures_json_holds_them(rows):
    counted = [
        Counted("f", 1, frm, to, 1, seconds, seconds, seconds, 1, seconds) for frm, to, seconds in rows
    ]
    strict(flow_metrics(counted).to_plain())
