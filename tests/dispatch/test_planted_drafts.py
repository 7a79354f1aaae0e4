"""Claims planted in drafts, and what is counted of them."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.draft import Draft
from detent.dispatch.draft_planting import ReadPlant, change_plants, plants_mark
from detent.dispatch.draft_plants import BURST, DraftPlants, Source, judged_by, power_behind
from detent.dispatch.draft_queue import QueuedDraft, judge_plant, queue
from detent.dispatch.evidence import EvidenceRules, Power
from detent.dispatch.planted_drafts import LANGUAGES, DraftSort, planted_claims
from detent.dispatch.sentence_marks import sentences
from detent.kernel.errors import ConfigurationError, RunStateError
from tests.examples import examples

EXPIRED = """Hello,

thank you for your message. The warranty of your device PX2-55910 ended on 2024-09-30, so we cannot repair it free of charge.

We will gladly repair it all the same: the diagnosis is free, and you get a quote before anything is done.

Kind regards
Service desk"""  # noqa: E501
COVERED = """Hello,

your device SN48213 is under warranty until 2027-05-31. You pay nothing for the repair, it is free of charge.

Kind regards
Service desk"""
FACTS = {"serial_number": "PX2-55910", "expires": "2024-09-30", "bought": "2022-09-30", "language": "en"}


def sorts_of(text: str, own: str = "", language: str | None = "en") -> dict[DraftSort, list[str]]:
    made: dict[DraftSort, list[str]] = {}
    for claim in planted_claims(text, own or text, FACTS, language):
        made.setdefault(claim.sort, []).append(claim.after)
    return made


class TestClaims:
    def test_one_sentence_is_wrong_and_every_other_stays(self):
        for claim in planted_claims(EXPIRED, EXPIRED, FACTS, "en"):
            before, after = sentences(EXPIRED), sentences(claim.text)
            assert [sentence for sentence in after if sentence not in before] == [claim.after]
            assert [sentence for sentence in before if sentence not in after] == [claim.before] * bool(
                claim.before
            )

    def test_a_claim_stands_in_the_text_and_not_below_the_signature(self):
        for claim in planted_claims(EXPIRED, EXPIRED, FACTS, "en"):
            assert claim.text.endswith("Kind regards\nService desk")

    def test_what_the_handler_says_itself_is_no_error(self):
        assert DraftSort.FREE in sorts_of(EXPIRED)
        assert DraftSort.FREE not in sorts_of(COVERED)

    def test_a_negation_is_dropped(self):
        (wrong,) = sorts_of(EXPIRED)[DraftSort.NEGATION]
        assert "so we can repair it free of charge" in wrong

    def test_another_fact_of_the_run_takes_the_place_of_one(self):
        assert any("ended on 2022-09-30" in wrong for wrong in sorts_of(EXPIRED)[DraftSort.ANOTHER_FACT])

    def test_digits_are_swapped(self):
        assert any("PX2-55901" in wrong for wrong in sorts_of(EXPIRED)[DraftSort.NEAR_MISS])

    def test_another_person_is_greeted(self):
        text = EXPIRED.replace("Hello,", "Dear Maren Holt,")
        assert sorts_of(text)[DraftSort.ANOTHER_NAME] == ["Dear Marta Lindqvist,"]

    @pytest.mark.parametrize("language", sorted(LANGUAGES))
    def test_every_sort_of_meaning_is_there_in_every_language(self, language):
        assert set(sorts_of("Dobrze. Gut. Good.", "-", language)) == set(LANGUAGES[language].claims)

    def test_in_a_language_without_words_only_facts_are_changed(self):
        assert set(sorts_of(EXPIRED, language="sv")) == {DraftSort.ANOTHER_FACT, DraftSort.NEAR_MISS}


RULES = EvidenceRules()
SORTS = ("money promised", "cause named")


def planted(count: int, **figures: tuple[int, int]) -> DraftPlants:
    """So many planted drafts that wait, and what reviewers have judged: planted, caught."""
    plants = DraftPlants(figures={by: {SORTS[0]: pair} for by, pair in figures.items()})
    for number in range(count):
        plants = plants.with_source(Source(f"run{number}", f"text{number}", SORTS), {})
    for number in range(count):
        plants = plants.after_arrival(
            f"hold{number}", float(number), RULES, [0.0] * 3, [f"a{number}", f"b{number}"], "f/s", None
        )
    return plants


class TestPlanting:
    def test_nothing_is_planted_before_a_draft_was_approved(self):
        plants = DraftPlants().after_arrival("h", 1.0, RULES, [0.0] * 3, ["a", "b"], "f/s", None)
        assert (plants.waiting, plants.owed) == ({}, 1)
        plants = plants.with_source(Source("r", "t", SORTS), {}).with_source(Source("r", "u", SORTS), {})
        plants = plants.after_arrival("i", 2.0, RULES, [0.0] * 3, ["a", "b"], "f/s", None)
        assert (len(plants.waiting), plants.owed) == (2, 0)

    def test_a_draft_arrives_once_however_often_its_visit_is_resumed(self):
        plants = planted(3)
        again = plants.after_arrival("hold2", 9.0, RULES, [0.0] * 3, ["x", "y"], "f/s", None)
        assert again == plants

    def test_one_in_two_at_first_and_one_in_ten_later(self):
        assert DraftPlants().share(RULES) == 0.5
        assert planted(0, anna=(39, 39)).share(RULES) == 0.5
        assert planted(0, anna=(40, 40)).share(RULES) == 0.1
        later = planted(0, anna=(40, 40)).with_source(Source("r", "t", SORTS), {})
        unlucky, lucky = ([chance, 0.5, 0.5] for chance in (0.12, 0.11))
        assert not later.after_arrival("h", 1.0, RULES, unlucky, ["a", "b"], "f/s", None).waiting
        assert later.after_arrival("h", 1.0, RULES, lucky, ["a", "b"], "f/s", None).waiting

    @pytest.mark.parametrize("apart", [1.0, 600.0])
    def test_neither_order_nor_gaps_tell_a_planted_draft(self, apart):
        """None has a time before it was there, and the gaps are those of drafts in a row."""
        rng, waits = random.Random(7), []
        plants = DraftPlants()
        for number in range(400):
            now = number * apart
            plants = plants.with_source(Source("r", f"t{number}", SORTS), {})
            chances, ids = [rng.random() for _ in range(3)], [f"a{number}", f"b{number}"]
            plants = plants.after_arrival(f"h{number}", now, RULES, chances, ids, "f/s", None)
            for name, plant in plants.waiting.items():
                waits.append(plant.since - now)
                plants = plants.without(name)
        assert len(waits) >= 399
        assert min(waits) >= 0
        assert max(waits) <= (apart if apart > BURST else 0)
        if apart > BURST:
            assert 0.3 < sum(wait < apart / 2 for wait in waits) / len(waits) < 0.7

    async def test_one_is_shown_from_its_time_until_its_time_is_over(self):
        store = MemoryStore()
        plants = DraftPlants(owed=1, times=(0.0,)).with_source(Source("r", "t", SORTS), {})
        plants = plants.after_arrival("h", 1000.0, RULES, [0.9, 0.5, 0.5], ["a", "b"], "f/s", 60.0)
        await change_plants(store, plants_mark("f/s", "check"), lambda _: plants)
        shown = [len(await queue(store, now)) for now in (1000.0, 1500.0, 1559.0, 1561.0)]
        assert shown == [0, 1, 1, 0]

    @pytest.mark.parametrize(
        ("before", "after", "edited", "caught"),
        [
            ("", "We will pay you back what it cost.", "We will pay you back what it cost!", False),
            ("", "We will pay you back what it cost.", "We will gladly pay you back what it cost.", False),
            ("", "We will pay you back what it cost.", "Thank you for your message.", True),
            ("It ended on 2024-09-30.", "It ended on 2024-09-13.", "It came to an end on 2024-09-13.", False),
            ("It ended on 2024-09-30.", "It ended on 2024-09-13.", "It ended on 2024-09-30.", True),
            ("We cannot do it.", "We can do it.", "Yes, we can do it.", False),
            ("We cannot do it.", "We can do it.", "We cannot do it.", True),
        ],
    )
    def test_an_edit_has_noticed_a_claim_only_if_it_holds_it_no_more(self, before, after, edited, caught):
        draft = Draft({"m.text": f"Hello. {after}"}, {"m.text": "Hello."}, {})
        plant = ReadPlant(draft, SORTS[0], before, after)
        answer = {"verdict": "edit", "texts": {"m.text": f"Hello. {edited}"}}
        assert plant.is_caught_by(answer) == caught

    def test_two_planted_from_one_draft_never_wait_together(self):
        plants = DraftPlants(owed=9).with_source(Source("r", "t", SORTS), {})
        plants = plants.after_arrival("h", 1.0, RULES, [0.9, 0, 0], ["a", "b"], "f/s", None)
        assert len(plants.waiting) == 1

    def test_no_text_is_planted_twice(self):
        plants = DraftPlants().with_source(Source("r", "t", SORTS), {})
        numbers = []
        for hold in range(5):
            plants = plants.after_arrival(str(hold), 1.0, RULES, [0.0] * 3, ["a", "b"], "f/s", None)
            for name, plant in plants.waiting.items():
                numbers.append(plant.number)
                plants = plants.answered(name, "anna", True)
        assert sorted(numbers) == [0, 1]

    def test_a_planted_draft_is_over_when_nobody_reads_it_in_time(self):
        plants = DraftPlants(owed=1).with_source(Source("r", "t", SORTS), {})
        plants = plants.after_arrival("h", 100.0, RULES, [0.0] * 3, ["a", "b"], "f/s", 60.0)
        assert len(plants.waiting) == 1
        later = plants.after_arrival("i", 1000.0, RULES, [0.99] * 3, ["c", "d"], "f/s", 60.0)
        assert "a" not in later.waiting
        assert not later.figures

    def test_more_than_half_of_the_queue_is_never_planted(self):
        with pytest.raises(ConfigurationError, match="plant_first"):
            EvidenceRules(plant_first=0.6)

    @settings(max_examples=examples(100))
    @given(
        st.lists(
            st.tuples(st.sampled_from(["arrive", "approve", "catch", "miss"]), st.floats(0, 0.99)),
            max_size=60,
        )
    )
    def test_the_mark_reads_back_and_counts_every_verdict_once(self, events):
        plants, verdicts = DraftPlants(), 0
        for number, (event, chance) in enumerate(events):
            if event == "approve":
                plants = plants.with_source(Source(f"r{number}", f"t{number}", SORTS), {"near miss": 2})
            elif event == "arrive":
                ids = [f"a{number}", f"b{number}"]
                plants = plants.after_arrival(f"h{number}", number, RULES, [chance] * 3, ids, "f/s", None)
            elif plants.waiting:
                plants = plants.answered(next(iter(plants.waiting)), "anna", event == "catch")
                verdicts += 1
            assert DraftPlants.from_plain(plants.to_plain()) == plants
        assert plants.reviewer("anna")[0] == verdicts


class TestPower:
    def test_forty_of_forty_by_one_person(self):
        power = planted(0, anna=(40, 40)).power({"anna": 40})
        assert power is not None
        assert (power.planted, power.caught) == (40, 40)
        assert power.low(RULES) == pytest.approx(0.87, abs=0.01)

    def test_two_persons_count_together_as_far_as_both_were_shown_planted_drafts(self):
        both = planted(0, anna=(20, 20), bo=(20, 20))
        assert both.power({"anna": 20, "bo": 20}) == Power(40, 40, "", "anna", 1.0)
        lopsided = planted(0, anna=(39, 39), bo=(1, 1)).power({"anna": 1, "bo": 39})
        assert lopsided is not None
        assert lopsided.planted == 1

    def test_a_person_without_planted_drafts_has_none(self):
        assert planted(0, anna=(40, 40)).power({"anna": 39, "bo": 1}) is None

    def test_a_careless_person_is_named_beside_a_careful_one(self):
        power = planted(0, anna=(30, 30), leo=(10, 0)).power({"anna": 30, "leo": 10})
        assert power is not None
        assert (power.reviewer, power.least, power.planted, power.caught) == ("leo", 0.0, 40, 30)

    def test_a_blind_spot_is_not_hidden_by_the_other_sorts(self):
        plants = DraftPlants(figures={"anna": {SORTS[0]: (38, 38), SORTS[1]: (2, 0)}})
        power = plants.power({"anna": 40})
        assert power is not None
        assert (power.sort, power.least) == (SORTS[1], 0.0)

    def test_a_sort_of_which_most_were_withdrawn_is_not_measured(self):
        plants = DraftPlants(figures={"anna": {SORTS[0]: (5, 5), SORTS[1]: (1, 0)}}, withdrawn={SORTS[1]: 2})
        assert plants.power({"anna": 9}) == Power(5, 5, "", "anna", 1.0)

    def test_the_weakest_of_several_checks_counts_and_an_unknown_one_spoils_all(self):
        anna, code = planted(0, anna=(40, 40)), Power(200, 190, "near miss")
        assert power_behind({"comparison": 9, "person/anna": 9}, code, anna) == code
        assert power_behind({"comparison": 9, "person/anna": 9}, None, anna) is None
        assert power_behind({"comparison": 9, "person/anna": 9}, code, None) is None
        assert power_behind({"comparison": 9}, code, anna) == code
        assert power_behind({}, code, None) == code

    def test_the_report_names_the_persons(self):
        assert (
            judged_by({"comparison": 3, "person/anna": 2, "person/bo": 1}) == "comparison, person (anna, bo)"
        )


class TestVerdicts:
    MARK = plants_mark("f/s", "check")

    async def queued(self, store: MemoryStore) -> QueuedDraft:
        plants = planted(1)
        await change_plants(store, self.MARK, lambda _: plants)
        (plant,) = plants.waiting.values()
        return QueuedDraft(plant.id, plant.place, plant.since, plant.until, planted=plant, mark=self.MARK)

    async def test_of_many_verdicts_at_once_one_counts(self):
        store = MemoryStore()
        draft = await self.queued(store)
        verdicts = [judge_plant(store, draft, f"reviewer{number}", True) for number in range(20)]
        answers = await asyncio.gather(*verdicts, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, RunStateError)]
        assert len(refused) == 19
        plants = DraftPlants.from_plain((await store.mark(self.MARK))[0])
        assert sum(plants.reviewer(by)[0] for by in plants.figures) == 1
        assert not plants.waiting

    async def test_a_verdict_that_was_not_written_leaves_the_draft_waiting(self):
        """Killed at the write: the draft is still in the queue, and nothing is counted."""

        class Dying(MemoryStore):
            async def set_mark(self, key, value, expected):
                if value["figures"]:
                    raise ConnectionError
                return await super().set_mark(key, value, expected)

        store = Dying()
        draft = await self.queued(store)
        with pytest.raises(ConnectionError):
            await judge_plant(store, draft, "anna", True)
        plants = DraftPlants.from_plain((await store.mark(self.MARK))[0])
        assert list(plants.waiting) == [draft.id]
        assert not plants.figures
