"""What judged visits add up to: one body of evidence for one level, lost by wrong answers only."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.evidence import ByLevel, EvidenceRules, Power, Verdict
from detent.dispatch.standing import (
    KINDS,
    OTHER,
    Consequence,
    InputFilter,
    Observation,
    Standing,
    next_level,
)
from tests.examples import examples

RULES = EvidenceRules()
STRONG = Power(10_000, 10_000, "value")
OPERATOR, COLLABORATOR = AutonomyLevel.OPERATOR, AutonomyLevel.COLLABORATOR
CONSULTANT, APPROVER = AutonomyLevel.CONSULTANT, AutonomyLevel.APPROVER
VERDICTS = {
    "a": Verdict.AGREED, "d": Verdict.DIFFERED, "r": Verdict.REFUSED, "o": Verdict.OUTAGE,
    "m": Verdict.MISCONFIGURED, "u": Verdict.UNCHECKED,
}  # fmt: skip
DAY = 86_400.0


def observed(
    letters: str, level: AutonomyLevel = COLLABORATOR, *, start: int = 0, same: bool = False, **more: object
) -> list[Observation]:
    """Visits with these verdicts, a hundred a day, each with inputs of its own unless they are the same."""
    seen = []
    for number, letter in enumerate(letters, start):
        inputs = 0 if same else random.Random(number).getrandbits(64)
        at = number / 100 * DAY
        seen.append(Observation(VERDICTS[letter], level, at, inputs=f"{inputs:016x}", **more))  # type: ignore[arg-type]
    return seen


def fold(
    seen: Iterable[Observation], standing: Standing | None = None, rules: EvidenceRules = RULES
) -> tuple[Standing, list[Consequence]]:
    standing, consequences = standing or Standing(), []
    for each in seen:
        standing, consequence = standing.after(each, rules, STRONG)
        if consequence is not None:
            consequences.append(consequence)
    return standing, consequences


def could_be(
    standing: Standing, level: AutonomyLevel, power: Power | None = STRONG, **more: object
) -> object:
    above, why = next_level(RULES, level, standing, power, **more)  # type: ignore[arg-type]
    return above if above is not None else why


class TestRaising:
    def test_enough_clean_visits_of_several_days_justify_the_next_level(self) -> None:
        standing, _ = fold(observed("a" * 400))
        assert could_be(standing, COLLABORATOR) is CONSULTANT

    def test_the_same_evidence_does_not_carry_the_level_after_it(self) -> None:
        """The rule before this one went on from 73 visits to approver, with no further visit."""
        standing, _ = fold(observed("a" * 2000))
        assert could_be(standing, COLLABORATOR) is CONSULTANT
        assert could_be(standing, CONSULTANT) == "stay: nothing was judged at consultant yet"
        standing, _ = fold(observed("a" * 500, CONSULTANT, start=2000), standing)
        assert could_be(standing, CONSULTANT) is APPROVER
        assert standing.tally().n == 500

    @pytest.mark.parametrize(
        ("letters", "power", "why"),
        [
            ("a" * 400, None, "stay: no power measured"),
            ("a" * 400, Power(120, 0), "stay: the check refuses nothing"),
            ("a" * 400, Power(200, 100, "move"), "stay: power 0.50 (move), 0.90 wanted"),
            ("a" * 40, STRONG, "stay: at most 9.1%, 2.0% wanted"),
            ("a" * 400 + "o" * 40, STRONG, "stay: 20% of the last 200 answers could not be used"),
        ],
    )
    def test_the_first_condition_that_is_not_met_is_named(
        self, letters: str, power: Power | None, why: str
    ) -> None:
        standing, _ = fold(observed(letters))
        assert could_be(standing, COLLABORATOR, power) == why

    def test_evidence_of_one_day_is_not_enough(self) -> None:
        standing, _ = fold(Observation(Verdict.AGREED, COLLABORATOR, 5.0, inputs="") for _ in range(400))
        assert could_be(standing, COLLABORATOR) == "stay: evidence of 1 days, 3 wanted"

    def test_replayed_visits_need_live_ones_beside_them(self) -> None:
        standing, _ = fold(observed("a" * 400, replayed=True))
        assert could_be(standing, COLLABORATOR) == "stay: 0 live verdicts beside the replayed, 20 wanted"
        standing, _ = fold(observed("a" * 20, start=400), standing)
        assert could_be(standing, COLLABORATOR) is CONSULTANT

    def test_three_demotions_in_ninety_days_end_the_proposals(self) -> None:
        standing, _ = fold(observed("a" * 400))
        assert could_be(standing, COLLABORATOR, demotions=3) == "stay: lowered 3 times in 90 days"

    def test_what_a_step_advises_caps_what_it_could_be(self) -> None:
        standing, _ = fold(observed("a" * 400))
        assert could_be(standing, COLLABORATOR, cap=COLLABORATOR) == "stay: capped at collaborator"

    def test_one_easy_input_a_thousand_times_is_one_point(self) -> None:
        standing, _ = fold(observed("a" * 1000, same=True))
        assert (standing.tally().n, standing.tally().judged) == (1, 1000)
        assert fold(observed("d" * 3, same=True))[0].tally().n == 3  # errors count each time

    def test_an_agent_that_has_turned_bad_is_not_proposed_for_its_past(self) -> None:
        standing, _ = fold(observed("a" * 5000))
        assert could_be(standing, COLLABORATOR) is CONSULTANT
        standing, _ = fold(observed("ddd", start=5000), standing)
        assert could_be(standing, COLLABORATOR) == "stay: errors have become more frequent"

    def test_the_figure_rises_after_errors(self) -> None:
        good, _ = fold(observed("a" * 400))
        worse, _ = fold(observed("dd", start=400), good)
        assert worse.tally().at_most(RULES, STRONG) > good.tally().at_most(RULES, STRONG)


class TestOnlyWrongAnswersCostTrust:
    @pytest.mark.parametrize("letter", ["o", "m", "u"])
    @pytest.mark.parametrize("level", [COLLABORATOR, CONSULTANT, APPROVER])
    def test_a_dead_or_misconfigured_model_earns_and_loses_nothing(
        self, letter: str, level: AutonomyLevel
    ) -> None:
        standing, consequences = fold(observed(letter * 500, level))
        assert (standing.tally().n, standing.tally().judged, consequences) == (0, 0, [])

    @pytest.mark.parametrize("level", [CONSULTANT, APPROVER])
    def test_refused_answers_never_lower_a_trusted_agent(self, level: AutonomyLevel) -> None:
        standing, consequences = fold(observed("r" * 500, level))
        assert (standing.tally().n, consequences) == (0, [])

    @pytest.mark.parametrize("level", [CONSULTANT, APPROVER])
    def test_wrong_answers_lower_it_and_everything_begins_anew(self, level: AutonomyLevel) -> None:
        standing, _ = fold(observed("a" * 1000, level))
        standing, consequences = fold(observed("d" * 4, level, start=1000), standing)
        assert [consequence.what for consequence in consequences] == ["lower"]
        assert (standing.tally().n, standing.attempt) == (0, 2)
        standing, _ = fold(observed("a" * 16, COLLABORATOR, start=1004), standing)
        assert could_be(standing, COLLABORATOR) == "stay: at most 21.1%, 2.0% wanted"

    def test_at_collaborator_an_alarm_empties_the_evidence_and_lowers_nothing(self) -> None:
        standing, consequences = fold(observed("a" * 1000 + "dddd"))
        assert [consequence.what for consequence in consequences] == ["drift"]
        assert (standing.tally().n, standing.attempt) == (0, 1)

    def test_an_alarm_gives_a_bad_agent_no_further_chance(self) -> None:
        """What spoke against it is kept; emptied each time, 3 % wrong would be raised by luck at last."""
        standing, consequences = fold(observed("aaaaaaaaad" * 30))
        assert [consequence.what for consequence in consequences][:1] == ["drift"]
        assert standing.tally().wrong == 30
        standing, _ = fold(observed("a" * 200, start=300), standing)
        assert could_be(standing, COLLABORATOR) != CONSULTANT

    def test_right_answers_given_at_once_come_to_the_same(self) -> None:
        right = Observation(Verdict.AGREED, COLLABORATOR, 0.0)
        one_by_one, _ = fold([right] * 250)
        at_once, consequence = Standing().after(right, RULES, STRONG, times=250)
        assert consequence is None
        assert at_once.answers == one_by_one.answers
        assert at_once.tally()._replace(detector=one_by_one.tally().detector) == one_by_one.tally()
        assert at_once.tally().detector.numbers == pytest.approx(one_by_one.tally().detector.numbers)
        with pytest.raises(ValueError, match="Only right answers"):
            Standing().after(Observation(Verdict.DIFFERED, COLLABORATOR, 0.0), RULES, STRONG, times=2)

    def test_collaborator_is_given_up_when_more_than_half_are_replaced(self) -> None:
        """Money for nothing, and no matter of trust; 25 of 50 is not more than half."""
        assert [each.what for each in fold(observed("ad" * 40))[1] if each.what == "lower"] == []
        _, consequences = fold(observed("dda" * 20))
        assert "lower" in [consequence.what for consequence in consequences]
        _, consequences = fold(observed("oa" * 60))  # an outage is no answer
        assert consequences == []

    def test_lowering_can_be_switched_off_and_ends_at_the_floor(self) -> None:
        for rules in (EvidenceRules(demote=False), EvidenceRules(floor=CONSULTANT)):
            _, consequences = fold(observed("d" * 50, CONSULTANT), rules=rules)
            assert consequences == []


class TestKinds:
    def test_a_rare_kind_is_not_drowned_by_a_common_one(self) -> None:
        standing, _ = fold(observed("a" * 900, kind="common"))
        standing, _ = fold(observed("ddd", start=900, kind="rare"), standing)
        assert could_be(standing, COLLABORATOR, kind="common") is CONSULTANT
        assert standing.tally("rare").wrong == 3
        assert standing.tally("common").wrong == 0

    def test_free_text_as_a_kind_ends_in_one_kind(self) -> None:
        seen = [
            Observation(Verdict.AGREED, COLLABORATOR, 1.0, kind=f"kind {number}") for number in range(100)
        ]
        standing, _ = fold(seen)
        assert len(standing.kinds) == KINDS + 1
        assert standing.tally(OTHER).n == 100 - KINDS

    def test_an_alarm_about_one_kind_costs_that_kind_its_level(self) -> None:
        standing, _ = fold(observed("a" * 500, CONSULTANT, kind="common"))
        standing, consequences = fold(observed("d" * 5, CONSULTANT, start=500, kind="rare"), standing)
        assert [consequence.what for consequence in consequences] == ["kind"]
        assert (standing.tally("rare").n, standing.tally("common").n) == (0, 500)


class TestDurably:
    def test_the_tolerance_cannot_follow_the_arrow(self) -> None:
        standing, _ = fold(observed("a" * 150))
        looser = EvidenceRules(tolerate=ByLevel(0.05, 0.01))
        standing, consequence = standing.after(observed("a", start=150)[0], looser, STRONG)
        assert consequence == Consequence("tolerance", "tolerate was changed from 0.02 to 0.05")
        assert (standing.tally().n, standing.attempt) == (1, 2)

    @given(st.text("aaaaadrou", max_size=80), st.sampled_from([COLLABORATOR, CONSULTANT]))
    @settings(max_examples=examples(100))
    def test_a_process_that_ends_after_each_visit_comes_to_the_same_standing(
        self, letters: str, level: AutonomyLevel
    ) -> None:
        whole, consequences = fold(observed(letters, level))
        standing, others = Standing(), []
        for seen in observed(letters, level):
            standing, consequence = Standing.from_plain(standing.to_plain()).after(seen, RULES, STRONG)
            others += [consequence] if consequence is not None else []
        assert (standing, others) == (whole, consequences)

    def test_marks_of_the_version_before_start_at_nothing(self) -> None:
        old = {"n": 73, "agreed": 73, "recent": "a" * 50, "asked": "a" * 50}
        assert Standing.from_plain(old) == Standing() == Standing.from_plain(None)

    @given(st.lists(st.integers(0, 2**64 - 1), max_size=200))
    @settings(max_examples=examples(50))
    def test_the_filter_of_inputs_forgets_none(self, numbers: list[int]) -> None:
        seen = InputFilter()
        for number in numbers:
            seen = seen.plus(f"{number:016x}")
        again = InputFilter.from_plain(seen.to_plain())
        assert again == seen
        assert all(again.has(f"{number:016x}") for number in numbers)
