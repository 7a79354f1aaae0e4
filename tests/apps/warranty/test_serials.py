"""The extractor: what it finds in mails as people write them, and that nothing upsets it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from detent.apps.warranty.domain.serials import (
    MOST_KEPT,
    SerialExtraction,
    extract,
    serial_key,
    serial_shaped,
    without_serials,
)
from tests.examples import examples

TEXTS = yaml.safe_load((Path(__file__).parent / "serial_texts.yaml").read_text(encoding="utf-8"))


def part(kind: str, text: str) -> Any:
    return SimpleNamespace(kind=kind, text=text, depth=0)


def newest(text: str) -> list[Any]:
    return [part("newest", text)]


def mail(case: dict[str, Any]) -> list[Any]:
    def texts(kind: str) -> list[Any]:
        said = case.get(kind, [])
        return [part(kind, text) for text in ([said] if isinstance(said, str) else said)]

    return [part("newest", case["text"]), *texts("quoted"), *texts("forwarded")]


def test_the_table_is_large_enough_and_has_no_text_twice():
    """W-51"""
    assert len(TEXTS) >= 120
    assert len({str(case) for case in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: repr(case["text"])[:60])
def test_the_serial_of_a_labelled_text_is_found(case):
    """W-51"""
    found = extract(mail(case), case.get("subject", ""))
    assert found.serial_number == (None if case["serial"] == "none" else case["serial"])
    assert found.extraction_method == ("none" if case["serial"] == "none" else "pattern")
    if "all" in case:
        assert list(found.all_detected_serials) == case["all"]
        assert found.ambiguous is found.multiple_serials_detected is (len(case["all"]) > 1)
    if "in" in case:
        assert found.found_in == case["in"]
    if "sure" in case:
        assert found.confidence == case["sure"]


class TestNothingUpsetsIt:
    """W-51"""

    @given(st.text(), st.text(), st.text())
    @example("SN\x00\ud800", "\U0001d7d9", "ﷺ" * 50)
    @settings(max_examples=examples(300), deadline=None)
    def test_arbitrary_text_is_read_without_an_error(self, first, second, subject):
        found = extract([part("newest", first), part("quoted", second)], subject)
        assert found.extraction_method in ("none", "pattern")
        assert (found.serial_number is None) == (found.confidence == 0.0) == (found.found_in is None)
        serial_shaped(first)
        without_serials(first)

    @given(st.text(alphabet="SsNnerial/.-_|:# \n\t0123456789ABtTo,;+()", max_size=120))
    @settings(max_examples=examples(500), deadline=None)
    def test_a_serial_has_the_form_of_one_and_stands_in_the_text(self, text):
        found = extract(newest(text))
        assert found.extraction_method in ("none", "pattern")
        for serial in found.all_detected_serials:
            assert 5 <= len(serial) <= 20
            assert any(one.isdigit() for one in serial)
            assert serial_key(serial) in serial_key(text)

    @given(st.binary())
    @settings(max_examples=examples(100), deadline=None)
    def test_arbitrary_bytes_read_as_any_charset_are_no_error(self, raw):
        for charset in ("latin-1", "cp1250", "utf-8"):
            assert extract(newest(raw.decode(charset, "replace"))).extraction_method != "error"

    @pytest.mark.parametrize(
        "unit",
        ["-", "SN ", "1-", "a", "a@", "SN\n", "SN|", "serial | a\n", "S/N", "nr.", "www.", ".", "not serial ",
         "SN12345 ", "x\tserial\n", "(", "1 ", "\u0301", " ", "SN: ", "order: ", "A" * 20 + " "],
    )  # fmt: skip
    def test_hostile_repetition_takes_no_more_than_one_reading(self, unit):
        """Reading twice or more often per character would not end within the test's time."""
        text = (unit * (50_000 // len(unit) + 1))[:50_000]
        assert extract(newest(text)).extraction_method != "error"
        serial_shaped(text)

    def test_a_part_that_is_no_part_is_an_error_in_the_result_not_an_exception(self):
        assert extract([object()]).extraction_method == "error"  # type: ignore[list-item]

    def test_no_parts_and_no_subject_are_nothing(self):
        assert extract([]) == SerialExtraction()

    def test_a_pasted_inventory_is_cut_to_a_few(self):
        found = extract(newest("\n".join(f"S/N: AB{number}" for number in range(10000, 11000))))
        assert found.serial_number == "AB10000"
        assert len(found.all_detected_serials) == MOST_KEPT


def test_keys_are_equal_without_case_spaces_and_dashes():
    assert serial_key("lm-77 0412") == serial_key("LM–77–0412") == "LM770412"
    assert serial_key("ＳＮ１２") == "SN12"
    assert serial_key("żółć") == ""


class TestOurOwnTexts:
    """W-49"""

    @pytest.mark.parametrize(
        "text",
        [
            "for example AB12345",
            "such as SN48213",
            "S/N: 12345",
            "look like HV300-1187",
            "serial number: 730155208",
        ],
    )
    def test_an_example_of_a_serial_is_seen(self, text):
        assert serial_shaped(text)

    @pytest.mark.parametrize(
        "text",
        [
            "Your ticket is TKT-10001. Your device is covered until 2027-05-31.",
            "Please send us the serial number. It stands on the rating plate, on the back of the device.",
            "Prosimy o podanie numeru seryjnego; znajduje się na tabliczce znamionowej.",
            "Write to office@northpine.example or call +48 22 123 45 67, Monday to Friday, 8:00-16:00.",
            "Naprawa pogwarancyjna: bezpłatna diagnoza, 6 miesięcy gwarancji, kontakt w ciągu 2 dni.",
        ],
    )
    def test_dates_tickets_and_contacts_are_not(self, text):
        assert serial_shaped(text) == []
        assert extract(newest(text)).serial_number is None


def test_what_is_left_without_serials_has_no_label_either():
    assert without_serials("Proszę o pomoc, nr seryjny HV300-1187").split() == ["Proszę", "o", "pomoc"]
    assert without_serials("serial number: AB12345 is broken").split()[-2:] == ["is", "broken"]
