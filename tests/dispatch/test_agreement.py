"""Agent against handler, added up from journals."""

import math
import random
import statistics

import pytest

from detent.dispatch.agreement import EXACT, Agreement, Series, agreement
from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import Demotion
from detent.kernel.entries import (
    EffectBegun,
    EffectDone,
    EffectFailed,
    Ended,
    Entry,
    Forked,
    Migrated,
    Moved,
    Noted,
    Proposed,
    Started,
)
from detent.kernel.status import Status
from tests.insight.samples import entries

STEP = "claim/judge"
SERIES = {"model_id": "m1", "prompt": "p1", "handler": "h1", "check": "c1", "sampling": "s1"}


def record(**more):
    """What dispatch leaves of an agent's answer that equalled the handler's."""
    plain = {
        "step": STEP, "mode_used": "agent", "autonomy_level": "collaborator", "agent_called": True,
        "agent_result_accepted": True, "check": "compare", "series": SERIES,
    }  # fmt: skip
    return {key: value for key, value in {**plain, **more}.items() if value is not None}


def fallback(reason, **more):
    """What dispatch leaves when the handler's outcome was used."""
    asked = reason not in ("operator", "no_intent", "no_executor", "budget")
    check = "compare" if reason == "validation_failure" else None
    plain = {
        "mode_used": "deterministic", "fallback_used": True, "fallback_reason": reason,
        "agent_called": asked or None, "agent_result_accepted": None, "check": check,
    }  # fmt: skip
    return record(**{**plain, **more})


def shadow(outcome, **more):
    """The remark a shadow leaves."""
    return Noted("shadow", {"step": STEP, "side": "agent", "outcome": outcome, "series": SERIES, **more})


def moved(detail, frm="judge", to="judge"):
    return Moved(frm, to, detail=detail)


def started(**more):
    return Started("claim", "judge", "claim", 1, "f" * 16, **more)


def one(*bodies, **options):
    """The figures of a single run with a single series."""
    (figures,) = agreement([("r1", entries(started(), *bodies))], **options)
    return figures


# -- the figures --------------------------------------------------------------------------------------------


def test_the_figures_of_mixed_runs_to_the_last_digit():
    """D-49: every figure of the table, worked out by hand from three journals."""
    first = entries(
        started(),
        moved(record(agent_duration_ms=100.5, handler_duration_ms=2.25, spend={"cost_usd": 0.1})),
        moved(record(agent_duration_ms=250, handler_duration_ms=4, spend={"cost_usd": 0.2})),
        moved({}),  # a plain step leaves nothing
        moved(
            fallback(
                "validation_failure", agent_duration_ms=300, handler_duration_ms=6,
                spend={"input_tokens": 5, "cost_usd": 0.3},
                validation_details=[
                    {"pointer": "/amount", "kind": "value"}, {"pointer": "/to", "kind": "type"},
                ],
                more_details=3,
            )
        ),
        Ended(Status.SUCCEEDED, detail=fallback("timeout", agent_duration_ms=5000, handler_duration_ms=1)),
        start=1000.0,
    )  # fmt: skip
    second = entries(
        started(),
        moved(fallback("no_executor")),
        moved(fallback("budget")),
        moved(fallback("exception", agent_duration_ms=7.5, handler_duration_ms=3, spend={"cost_usd": 0.05})),
        moved(fallback("schema_violation", agent_duration_ms=400)),
        moved(record(autonomy_level="consultant", check="contract", agent_duration_ms=120,
                     validation_details=[{"pointer": "/x", "kind": "extra"}])),
        moved(record(autonomy_level="consultant", check="contract", agent_duration_ms=130)),
        shadow("differed", side="handler", pointers=["/next"], duration_ms=9, other_ms=130),
        moved(record(check="validator", agent_duration_ms=90)),
        start=2000.0,
    )  # fmt: skip
    third = entries(
        started(),
        moved({}),
        shadow("agreed", duration_ms=110, other_ms=5, cost_usd=0.4),
        shadow("failed", reason="timeout", duration_ms=6000, other_ms=7, cost_usd=0.7),
        shadow("failed", reason="budget"),
        shadow("failed", side="handler", reason="exception", duration_ms=1),
        Noted("other", {"step": STEP, "outcome": "agreed"}),
        start=3000.0,
    )
    figures = agreement([("r1", first), ("r2", second), ("r3", third)])
    assert len(figures) == 1
    got = figures[0]
    assert got.series == Series(STEP, "m1", "p1", "h1", "c1", "s1")
    # agreed: two by comparison, one by the validator, one shadow. differed: one rejected, one shadow.
    # not usable: timeout, exception, schema violation, and the shadow that timed out.
    assert (got.n, got.agreed, got.differed, got.soft) == (6, 4, 2, 1)
    assert got.unusable == {"misconfigured": 1, "outage": 3, "refused": 1}
    # agent: 7.5 90 100.5 110 120 | 130 250 300 400 5000 6000 is eleven values, the sixth is 130
    assert got.agent_ms == 130.0
    # handler: 1 2.25 3 4 | 5 | 6 7 9 is eight values: between the fourth and the fifth
    assert got.handler_ms == 4.5
    # asked: 4 in the first run, 5 in the second, 2 shadows; 0.1 + 0.2 + 0.3 + 0.05 + 0.4 + 0.7 spent
    assert got.executions == 11
    assert got.cost_usd == statistics.mean([0.1, 0.2, 0.3, 0.05, 0.4, 0.7] + [0.0] * 5)
    assert got.fallbacks == {
        "budget": 1, "exception": 1, "no_executor": 1, "schema_violation": 1, "timeout": 1,
        "validation_failure": 1,
    }  # fmt: skip
    assert got.shadow_failures == {"budget": 1, "exception": 1, "timeout": 1}
    assert got.now is AutonomyLevel.OPERATOR  # as the latest shadow beside a plain step says
    assert (got.could_be, got.why_not) == (None, "stay: 0 judged, 20 wanted")
    assert (got.first_at, got.last_at) == (1002.0, 3006.0)
    assert [(one.run, one.entry, one.what, one.pointers, one.more) for one in got.differences] == [
        ("r3", 4, "timeout", (), 0),
        ("r2", 8, "differed", ("/next",), 0),
        ("r2", 5, "schema_violation", (), 0),
        ("r2", 4, "exception", (), 0),
        ("r1", 6, "timeout", (), 0),
        ("r1", 5, "differed", ("/amount", "/to"), 3),
    ]


def test_the_figures_do_not_depend_on_the_order_of_the_journals():
    draw = random.Random(7)
    kinds = [record(spend={"cost_usd": 0.1}), fallback("validation_failure"), fallback("timeout"), record()]
    journals = []
    for number in range(40):
        bodies = [moved(draw.choice(kinds)) for _ in range(5)]
        journals.append((f"r{number:02}", entries(started(), *bodies, start=draw.random() * 100)))
    first = [figures.to_plain() for figures in agreement(journals)]
    for _ in range(3):
        draw.shuffle(journals)
        assert [figures.to_plain() for figures in agreement(journals)] == first


def test_nothing_compared_gives_no_share():
    figures = one(moved(record(check="none", autonomy_level="approver")))
    assert (figures.n, figures.kinds[0].at_most) == (0, None)
    assert (figures.executions, figures.cost_usd) == (1, 0.0)
    assert figures.why_not == "stay: no level is higher"


# -- what is counted once -----------------------------------------------------------------------------------


def test_an_outcome_with_effects_is_counted_once():
    said = record()
    figures = one(
        Proposed("judge", {"next": "pay"}, [{"key": "k", "tool": "bank.pay"}], detail=said),
        EffectBegun("k", "bank.pay"),
        EffectDone("k", "bank.pay"),
        moved(said),
    )
    assert (figures.n, figures.executions) == (1, 1)


def test_a_proposal_still_being_performed_is_not_counted_yet():
    open_visit = entries(started(), Proposed("judge", {}, [], detail=record()))
    assert agreement([("r1", open_visit)]) == []


@pytest.mark.parametrize(
    "end",
    [
        Ended(Status.CANCELLED, by="person"),
        Ended(Status.FAILED, error="ToolError: no"),
        Moved("judge", "failed", status=Status.FAILED, by="engine", detail={"error": "ToolError: no"}),
    ],
)
def test_a_proposal_counts_when_the_run_ended_some_other_way(end):
    figures = one(Proposed("judge", {}, [], detail=fallback("timeout")), end)
    assert (figures.n, figures.unusable) == (0, {"outage": 1})
    assert figures.differences[0].entry == 2


def test_of_two_proposals_of_one_visit_the_last_counts():
    """The agent's effect failed for good, so the handler's outcome was used: one execution, one failure."""
    second = fallback("exception")
    figures = one(
        Proposed("judge", {}, [{"key": "k", "tool": "bank.pay"}], detail=record()),
        EffectBegun("k", "bank.pay"),
        EffectFailed("k", "bank.pay", "refused", "no such account"),
        Proposed("judge", {}, [], detail=second),
        moved(second),
    )
    assert (figures.n, figures.unusable) == (0, {"outage": 1})


def test_a_visit_given_up_by_a_migration_is_not_counted():
    bodies = [Proposed("judge", {}, [], detail=record()), Migrated(2, "e" * 16, "other"), moved({})]
    assert agreement([("r1", entries(started(), *bodies))]) == []


def test_what_a_fork_copied_is_counted_where_it_happened():
    said = record()
    own = [moved(record()), shadow("agreed"), Proposed("judge", {}, [], detail=said)]
    original = entries(started(), *own, moved(said))
    copy = entries(started(forked_from={"run": "r1", "seq": 4}), *own, Forked(), moved(said), moved(record()))
    (figures,) = agreement([("r1", original), ("r2", copy)])
    assert (figures.n, figures.agreed) == (4, 4)  # three in the original, one of the fork's own


def test_detail_of_other_origin_says_nothing():
    odd = [{"error": "x"}, {"step": "claim/judge"}, {"mode_used": "agent"}, {"step": 7, "mode_used": "agent"}]
    assert agreement([("r1", entries(started(), *[moved(detail) for detail in odd]))]) == []


def test_damaged_figures_do_not_break_the_report():
    figures = one(
        moved(record(agent_duration_ms="fast", validation_details=["x"], autonomy_level="boss")),
        moved(record(agent_duration_ms=float("nan"), handler_duration_ms=-1, spend="much")),
        moved(record(agent_duration_ms=True, spend={"cost_usd": float("inf")})),
    )
    assert (figures.n, figures.agreed, figures.executions) == (3, 3, 3)
    assert (figures.agent_ms, figures.handler_ms, figures.cost_usd) == (None, None, 0.0)
    (odd,) = agreement([("r1", entries(started(), moved(record(series="s", autonomy_level="boss"))))])
    assert (odd.series, odd.now) == (Series(STEP), None)


# -- series -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["model_id", "prompt", "handler", "check", "sampling"])
def test_a_changed_fingerprint_opens_a_new_series(changed):
    fresh = {**SERIES, changed: "new"}
    figures = agreement(
        [
            ("r1", entries(started(), *[moved(record())] * 3, start=1000.0)),
            (
                "r2",
                entries(started(), moved(record(series=fresh, autonomy_level="consultant")), start=5000.0),
            ),
        ]
    )
    assert [(one.newest, one.n, one.now.value) for one in figures] == [
        (True, 1, "consultant"),
        (False, 3, "collaborator"),
    ]
    assert figures[0].series.fingerprints == fresh


def test_not_asking_says_nothing_about_a_model_and_is_told_with_the_newest_series():
    without = {**SERIES, "model_id": None}  # no executor, so no model
    figures = agreement(
        [
            ("r1", entries(started(), moved(record()), start=1000.0)),
            ("r2", entries(started(), moved(fallback("no_executor", series=without)), start=5000.0)),
            ("r3", entries(started(), shadow("failed", reason="budget", series=without), start=6000.0)),
        ]
    )
    assert [(one.newest, one.n, one.executions) for one in figures] == [(True, 1, 1)]
    assert figures[0].series.fingerprints == SERIES
    assert (figures[0].fallbacks, figures[0].shadow_failures) == ({"no_executor": 1}, {"budget": 1})
    assert figures[0].last_at == 6002.0


def test_a_step_whose_agent_was_never_asked_is_told_all_the_same():
    figures = one(moved(fallback("operator", autonomy_level=None)), moved(fallback("no_intent")))
    assert (figures.n, figures.executions, figures.cost_usd) == (0, 0, None)
    assert figures.fallbacks == {"no_intent": 1, "operator": 1}
    assert figures.now is AutonomyLevel.COLLABORATOR
    assert one(moved(fallback("operator", autonomy_level=None))).now is AutonomyLevel.OPERATOR


def test_a_plain_step_leaves_no_series():
    plain = {"step": STEP, "mode_used": "deterministic", "series": SERIES, "handler_duration_ms": 3.0}
    assert agreement([("r1", entries(started(), moved(plain)))]) == []


def test_steps_are_told_apart_and_come_in_order():
    bodies = [moved(record(step="z/last")), moved(record(step="a/first")), moved(record())]
    figures = agreement([("r1", entries(started(), *bodies))])
    assert [one.step for one in figures] == ["a/first", STEP, "z/last"]


def test_a_demotion_is_what_holds_now():
    held = Demotion(AutonomyLevel.OPERATOR, AutonomyLevel.COLLABORATOR, "3 of the last 20 failed hard")
    figures = one(*[moved(record())] * 100, demotions={STEP: held})
    assert (figures.now, figures.demotion) == (AutonomyLevel.OPERATOR, held)
    mild = Demotion(AutonomyLevel.CONSULTANT)
    assert one(moved(record()), demotions={STEP: mild}).now is AutonomyLevel.COLLABORATOR


def test_a_forced_run_says_nothing_about_the_level():
    forced = {"step": STEP, "mode_used": "deterministic", "forced": True, "series": SERIES}
    figures = one(moved(record()), moved(forced))
    assert (figures.now, figures.executions) == (AutonomyLevel.COLLABORATOR, 1)


def test_since_looks_at_when_it_happened_not_at_when_the_run_began():
    journal = entries(started(), moved(fallback("timeout")), moved(record()), shadow("agreed"), start=100.0)
    figures = one(*[entry.body for entry in journal[1:]], since=1_000_003.0)
    assert (figures.n, figures.unusable) == (2, {})


def test_only_wanted_steps_are_added_up():
    made = Agreement(wanted=lambda step: step.startswith("a/"))
    journal = made.journal("r1")
    for entry in entries(started(), moved(record(step="a/first")), moved(record())):
        journal.add(entry)
    assert made.steps == ["a/first"]


# -- size ---------------------------------------------------------------------------------------------------


def test_what_is_kept_does_not_grow_with_the_number_of_runs():
    made = Agreement()
    draw = random.Random(3)
    values = []
    for number in range(EXACT + 3000):
        values.append(draw.uniform(1.0, 9000.0))
        detail = fallback("validation_failure", agent_duration_ms=values[-1])
        made.journal(f"r{number}").add(Entry(2, float(number), 1, moved(detail)))
    (sums,) = made._series.values()
    assert len(sums._differences) == 10
    assert len(sums.agent_ms._values) <= 9000
    (figures,) = made.figures()
    assert math.isclose(figures.agent_ms, statistics.median(values), rel_tol=0.005)


def test_a_median_is_exact_for_as_many_values_as_are_kept():
    values = [float(number * 7919 % 4001) + 0.125 for number in range(4001)]
    figures = one(*[moved(record(agent_duration_ms=value)) for value in values])
    assert figures.agent_ms == statistics.median(values)


class TestOneVisitAgreesOnce:
    """A shadow and a later verdict may find the same visit right; that is one observation."""

    VISIT = 2
    """Number of the entry that ended the visit."""

    def later(self, right):
        plain = {"step": STEP, "series": SERIES, "autonomy_level": "approver"}
        body = {"entry": self.VISIT, "right": right, "performed_by": "agent", "record": plain}
        return Noted("evidence.verdict", body)

    def visit(self):
        return moved(record(check=None, autonomy_level="approver"))

    def test_a_shadow_that_agreed_then_a_right_verdict(self):
        """And the other way round, as when the shadow is made up for by a replay."""
        notes = shadow("agreed", side="handler"), self.later(True)
        for order in (notes, notes[::-1]):
            figures = one(self.visit(), *order)
            assert (figures.n, figures.agreed) == (1, 1)

    def test_a_later_wrong_counts_beside_it(self):
        """The code was wrong as well."""
        figures = one(self.visit(), shadow("agreed", side="handler"), self.later(False))
        assert (figures.n, figures.agreed, figures.differed) == (2, 1, 1)

    def test_each_visit_has_its_own(self):
        """The shadow after the second visit is not about the first."""
        figures = one(self.visit(), self.later(True), self.visit(), shadow("agreed", side="handler"))
        assert (figures.n, figures.agreed) == (2, 2)

    def test_shadows_of_code_are_not_thinned_out(self):
        """A step that no agent performs has a verdict for each shadow."""
        figures = one(*[body for _ in range(3) for body in (moved({}), shadow("agreed"))])
        assert (figures.n, figures.agreed) == (3, 3)
