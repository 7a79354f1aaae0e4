"""Slots are whole facts, and nothing that only looks like one."""

from __future__ import annotations

import pytest

from detent.dispatch.prose.contract import findings
from detent.dispatch.prose.fact_kinds import SAMPLES, derived_kind, facts_from, in_words
from detent.dispatch.prose.slots import FactValue, with_slots

FACTS = {
    "serial_number": FactValue("identifier", "PX2-50011"),
    "ticket_id": FactValue("identifier", "TKT-1000"),
    "expires": FactValue("day", "2024-09-30"),
    "response_days": FactValue("working_days", 2),
    "months": FactValue("months", 6),
    "contact": FactValue("contact", "office@northpine.example"),
}


@pytest.mark.parametrize(
    ("language", "text", "slotted"),
    [
        ("en", "We write within 2 working days.", "We write within {{response_days}} working days."),
        ("en", "We write within two business days.", "We write within {{response_days}} business days."),
        ("en", "There are 2 places to find it.", "There are 2 places to find it."),
        ("en", "It is covered for 2 years.", "It is covered for 2 years."),
        ("en", "Ticket TKT-10001 is not yours.", "Ticket TKT-10001 is not yours."),
        ("en", "Your ticket is TKT-1000.", "Your ticket is {{ticket_id}}."),
        ("en", "500 devices were sold.", "500 devices were sold."),
        ("en", "Serial px2 50011 lapsed.", "Serial {{serial_number}} lapsed."),
        ("en", "It ended on 30 September 2024.", "It ended on {{expires}}."),
        ("en", "It ended on the 30th of September 2024.", "It ended on {{expires}}."),
        ("en", "It ended on 30 September 2025.", "It ended on 30 September 2025."),
        ("pl", "Wygasła 30 września 2024.", "Wygasła {{expires}}."),
        ("pl", "Gwarancja 6 miesięcy.", "Gwarancja {{months}} miesięcy."),
        ("en", "Write to office@northpine.example today.", "Write to {{contact}} today."),
        ("en", "Write to office@northpine.example.evil.com.", "Write to office@northpine.example.evil.com."),
    ],
)
def test_only_a_whole_fact_becomes_a_slot(language, text, slotted):
    assert with_slots(text, FACTS, language) == slotted


@pytest.mark.parametrize("language", ["en", "pl", "de"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_value_in_words_is_explained_by_itself(kind, language):
    """What code writes, the contract accepts: otherwise no composed mail would be sent."""
    units = {
        "en": {"working_days": "working days"},
        "pl": {"working_days": "dni roboczych", "days": "dni", "months": "miesięcy", "weeks": "tygodni",
               "years": "lat", "hours": "godzin", "minutes": "minut", "percent": "%"},
        "de": {"working_days": "Werktage", "days": "Tage", "months": "Monate", "weeks": "Wochen",
               "years": "Jahre", "hours": "Stunden", "minutes": "Minuten", "percent": "Prozent"},
    }  # fmt: skip
    for value in SAMPLES[kind]:
        text = in_words(kind, value, language)
        assert text is not None
        unit = units[language].get(kind, kind) if isinstance(value, int) else ""
        assert findings(f"{text} {unit}".strip(), facts_from([(kind, value)], language)) == ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("2024-09-30", "day"), ("PX2-50011", "identifier"), ("T1", "identifier"), ("48213", "identifier"),
        ("a@b.example", "address"), (2, None), ("2", None), ("500", None), ("2026", None), (True, None),
        ("500 EUR", None), ("Refund 500", None), ({"day": "2024-09-30"}, None), (["T1"], None),
    ],
)  # fmt: skip
def test_only_what_explains_itself_alone_is_a_fact_undeclared(value, kind):
    assert derived_kind(value) == kind


def test_a_short_number_explains_nothing_even_where_it_is_called_an_identifier():
    facts = facts_from([("identifier", 2), ("identifier", "500")], "en")
    assert findings("We refund you 500 within the next 2 of them.", facts)


@pytest.mark.parametrize("name", ["Refund 500", "www.evil.example", "a@b.example", "", "A" * 90, "Eve <b>"])
def test_what_is_no_name_is_not_written_as_one(name):
    assert in_words("name", name, "en") is None
