"""The answers of single steps and of single scenarios; nothing is performed."""

from __future__ import annotations

import pytest

from detent.adapters.mail.message import read_message
from detent.apps.warranty.responses import ResponseGenerator
from detent.apps.warranty.settings import read
from detent.kernel.errors import ConfigurationError
from tests.apps.warranty.mailroom import COVERED, NO_SERIAL, Room, mail

LAPSED = "Hello, our kiosk with the serial number PX2-55910 restarts by itself every few minutes."


async def test_one_step_answers_alone_and_nothing_is_performed(tmp_path):
    """W-65, W-16"""
    room = Room(tmp_path)
    async with room.open():
        pass
    generator = ResponseGenerator(read({}, tmp_path))
    first = await generator.generate_step_response("01", read_message(mail()))
    assert (first.step_name, first.next_step) == ("01-extract-serial", "02-check-warranty")
    assert "SERIAL: SN48213" in first.response_text
    assert not first.is_done()
    second = await generator.generate_step_response(
        "check-warranty", read_message(mail()), {"serial_number": "PX2-55910"}
    )
    assert second.next_step == "03c-expired-warranty"
    assert [call.function_name for call in second.function_calls] == ["check_warranty"]
    data = {"serial_number": "PX2-55910", "warranty_data": {"expires": "2024-09-30"}, "language": "en"}
    third = await generator.generate_step_response("03c", read_message(mail()), data)
    assert third.is_done()
    (call,) = third.function_calls
    assert call.arguments["to"] == "maren1@holt-bakery.example"
    assert "2024-09-30" in call.arguments["body"]
    assert room.replies() == []
    with pytest.raises(ConfigurationError, match="has no step '09-fly'"):
        await generator.generate_step_response("09-fly", read_message(mail()))


async def generator_in(tmp_path, **values) -> ResponseGenerator:
    room = Room(tmp_path)
    async with room.open():
        pass
    return ResponseGenerator(read(values, tmp_path))


@pytest.mark.parametrize(
    ("scenario", "body", "answered", "end", "functions", "words"),
    [
        ("valid-warranty", COVERED, "valid-warranty", "DONE",
         ["check_warranty", "create_ticket", "send_email"], "SN48213 is covered until 2027-05-31"),
        ("valid-warranty", LAPSED, "invalid-warranty", "DONE",
         ["check_warranty", "send_email"], "ended on 2024-09-30"),
        ("invalid-warranty", LAPSED, "invalid-warranty", "DONE",
         ["check_warranty", "send_email"], "ended on 2024-09-30"),
        ("invalid-warranty", NO_SERIAL, "missing-info", "DONE", ["send_email"], "serial number"),
        ("missing-info", NO_SERIAL, "missing-info", "DONE", ["send_email"], "serial number"),
        ("out-of-scope", "When are you open?", "out-of-scope", "DONE", ["send_email"], "office"),
        ("graceful-degradation", COVERED, "graceful-degradation", "graceful-degradation", ["send_email"],
         "Hello"),
    ],
)  # fmt: skip
async def test_a_scenario_is_answered_in_one_go_and_nothing_is_performed(
    tmp_path, scenario, body, answered, end, functions, words
):
    """W-16: what legacy mode would write, for a scenario that is given."""
    generator = await generator_in(tmp_path)
    response = await generator.generate_response(scenario, read_message(mail(body=body)))
    assert (response.next_step, response.is_done()) == (end, end == "DONE")
    assert response.metadata["scenario"] == answered
    assert [call.function_name for call in response.function_calls] == functions
    assert words in response.response_text
    assert response.function_calls[-1].arguments["body"] == response.response_text
    assert response.function_calls[-1].arguments["to"] == "maren1@holt-bakery.example"
    room = Room(tmp_path)
    assert (room.replies(), await room.tickets()) == ([], [])


async def test_a_scenario_is_answered_from_the_data_that_are_given(tmp_path):
    """As the caller has looked it up: the registry is not asked again."""
    generator = await generator_in(tmp_path)
    given = {"serial_number": "ZZ-1", "warranty_data": {"status": "expired", "expires": "2020-01-31"}}
    response = await generator.generate_response("invalid-warranty", read_message(mail()), given)
    assert [call.function_name for call in response.function_calls] == ["send_email"]
    assert "ZZ-1" in response.response_text
    assert "2020-01-31" in response.response_text
    unchecked = await generator.generate_response(
        "valid-warranty", read_message(mail()), {"warranty_data": {"error": {"code": "timeout"}}}
    )
    assert unchecked.metadata["flags"] == ["warranty_check_failed"]
    assert unchecked.next_step == "graceful-degradation"


async def test_steps_and_scenarios_are_answered_by_the_same_generator(tmp_path):
    generator = await generator_in(tmp_path)
    message = read_message(mail())
    step = await generator.generate_step_response("01", message)
    scenario = await generator.generate_response("valid-warranty", message)
    assert (step.next_step, scenario.next_step) == ("02-check-warranty", "DONE")


async def test_a_scenario_that_is_not_there_is_named_with_those_that_are(tmp_path):
    generator = await generator_in(tmp_path)
    with pytest.raises(ConfigurationError, match=r"'valid-waranty'.*Did you mean 'valid-warranty'"):
        await generator.generate_response("valid-waranty", read_message(mail()))
    retired = await generator_in(tmp_path, orchestration={"legacy_available": False})
    with pytest.raises(ConfigurationError, match="legacy mode is retired"):
        await retired.generate_response("valid-warranty", read_message(mail()))
