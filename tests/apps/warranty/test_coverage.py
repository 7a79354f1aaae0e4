"""The rule of cover, and the shapes in which others state it."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.apps.warranty.domain.coverage import (
    Device,
    coverage,
    describes_device,
    device_of,
    normalised,
    read_date,
)

DAY = date(2026, 3, 10)
NAMES = st.sampled_from(["status", "error", "expires", "serial", "coverage", "code"])
BEFORE, AFTER = date(2026, 3, 9), date(2026, 3, 11)
KEYS = {
    "status", "serial_number", "device_name", "warranty_type", "expires", "customer_ref",
    "extension_available",
}  # fmt: skip


def told(device: Device | None) -> tuple[str, str | None, str | None]:
    result = coverage(device, DAY)
    assert set(result) == KEYS
    return result["status"], result["warranty_type"], result["expires"]


class TestTheRule:
    """W-43"""

    def test_a_contract_that_runs_covers(self):
        assert told(Device("A", service_contract_end=AFTER)) == ("valid", "service_contract", "2026-03-11")

    def test_a_manufacturers_warranty_that_runs_covers(self):
        assert told(Device("A", manufacturer_end=AFTER)) == ("valid", "manufacturer", "2026-03-11")

    def test_a_contract_wins_over_a_longer_warranty(self):
        device = Device("A", service_contract_end=DAY, manufacturer_end=date(2030, 1, 1))
        assert told(device) == ("valid", "service_contract", "2026-03-10")

    def test_a_lapsed_contract_leaves_the_warranty(self):
        device = Device("A", service_contract_end=BEFORE, manufacturer_end=AFTER)
        assert told(device) == ("valid", "manufacturer", "2026-03-11")

    def test_the_last_day_is_covered_and_the_day_after_is_not(self):
        assert told(Device("A", manufacturer_end=DAY))[0] == "valid"
        assert told(Device("A", manufacturer_end=BEFORE)) == ("expired", "manufacturer", "2026-03-09")

    def test_of_two_lapsed_dates_the_later_is_told(self):
        device = Device("A", service_contract_end=date(2020, 1, 1), manufacturer_end=date(2024, 9, 30))
        assert told(device) == ("expired", "manufacturer", "2024-09-30")
        both = Device("A", service_contract_end=BEFORE, manufacturer_end=BEFORE)
        assert told(both) == ("expired", "service_contract", "2026-03-09")

    def test_a_device_without_dates_is_as_good_as_unknown(self):
        assert told(Device("A", "Kestrel")) == ("not_found", None, None)

    def test_an_unknown_device_is_not_found_and_named_as_it_was_asked_for(self):
        assert told(None) == ("not_found", None, None)
        assert coverage(None, DAY, "QQ-0")["serial_number"] == "QQ-0"

    def test_an_extension_may_be_bought_to_its_last_day(self):
        for end, open_ in ((AFTER, True), (DAY, True), (BEFORE, False), (None, False)):
            device = Device("A", manufacturer_end=BEFORE, extension_until=end)
            assert coverage(device, DAY)["extension_available"] is open_

    dates = st.none() | st.dates()

    @given(dates, dates, st.dates())
    def test_valid_means_a_date_that_is_not_past(self, contract, maker, on):
        result = coverage(Device("A", service_contract_end=contract, manufacturer_end=maker), on)
        known = [one for one in (contract, maker) if one is not None]
        if result["status"] == "valid":
            assert date.fromisoformat(result["expires"]) in known
            assert date.fromisoformat(result["expires"]) >= on
        elif result["status"] == "expired":
            assert date.fromisoformat(result["expires"]) == max(known) < on
        else:
            assert not known


class TestOtherShapes:
    """W-43"""

    def test_our_own_shape_stays_as_it_is(self):
        ours = coverage(Device("SN1", "Kestrel", "c-1", AFTER), DAY)
        assert normalised(ours) == ours

    def test_other_names_are_read(self):
        answer = {
            "status": "valid",
            "serial": "SN48213",
            "expiration_date": "2027-05-31",
            "coverage": "manufacturer",
        }
        result = normalised(answer)
        assert set(result) == KEYS
        assert (result["serial_number"], result["expires"]) == ("SN48213", "2027-05-31")
        assert result["warranty_type"] == "manufacturer"

    def test_our_name_wins_over_another(self):
        answer = {"status": "expired", "expires": "2024-01-01", "expiration_date": "2030-01-01"}
        assert normalised(answer)["expires"] == "2024-01-01"

    @pytest.mark.parametrize("error", ["Device not found", "device not found."])
    def test_a_text_that_says_not_found_is_an_answer(self, error):
        result = normalised({"error": error, "serial": "QQ-0"})
        assert (result["status"], result["serial_number"]) == ("not_found", "QQ-0")

    def test_any_other_text_is_a_failure_of_the_server(self):
        assert normalised({"error": "on fire"}) == {
            "error": {"code": "server", "message": "on fire", "transient": True}
        }

    def test_a_failure_in_our_shape_stays_one(self):
        error = {"code": "timeout", "message": "no answer", "transient": True}
        assert normalised({"error": error}) == {"error": error}
        assert normalised({"error": {"code": "auth"}})["error"]["transient"] is False

    @pytest.mark.parametrize(
        "answer",
        [
            *(None, [], "valid", 3, {}, {"status": "maybe"}, {"status": None}),
            *({"status": "valid", "expires": value} for value in ("soon", 20270531, "2027-13-01")),
        ],
    )
    def test_what_cannot_be_read_is_a_bad_response(self, answer):
        assert normalised(answer)["error"]["code"] == "bad_response"

    def test_dates_may_carry_a_time_or_be_dates(self):
        assert normalised({"status": "valid", "expires": "2027-05-31T00:00:00Z"})["expires"] == "2027-05-31"
        assert normalised({"status": "valid", "expires": date(2027, 5, 31)})["expires"] == "2027-05-31"
        assert read_date(datetime(2027, 5, 31, 12)) == date(2027, 5, 31)

    leaves = st.none() | st.booleans() | st.floats() | st.text()
    answers = st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=8
    )

    @given(answers)
    def test_no_answer_upsets_it(self, answer):
        assert set(normalised(answer)) in (KEYS, {"error"})


class TestRecords:
    def test_a_record_with_dates_is_a_device(self):
        device = device_of({"serial_number": "SN1", "manufacturer_end": "2027-05-31", "device_name": ""})
        assert device == Device("SN1", manufacturer_end=date(2027, 5, 31))
        assert describes_device({"manufacturer_end": None})
        assert not describes_device({"status": "valid"})

    def test_a_record_that_cannot_be_one_says_which_field(self):
        with pytest.raises(ValueError, match="serial_number is missing"):
            device_of({})
        with pytest.raises(ValueError, match="manufacturer_end is no date"):
            device_of({"serial": "SN1", "manufacturer_end": "31.05.2027"})
