"""What the mailbox's checks are worth: wrong forms made from the right ones of real mails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detent.apps.warranty.project import demo_registry
from tests.apps.warranty.mailroom import mail
from tests.cli.conftest import detent, folder

__all__ = ["detent", "folder"]

PROJECT = """
warranty:
  mail: {inbox: mail/inbox, outbox: mail/outbox}
  orchestration: {retry: {min_s: 0.001, max_s: 0.001}}
  privacy: {keep_bodies_days: 90}
"""
COVERED, LAPSED = ("SN30517", "WZ-55-0931", "BRK-7741-A", "TL-90020"), "PX2-40118"
FAULTS = (
    "feeds two labels at once since Monday",
    "does not switch on any more",
    "began to smoke when we plugged it in",
    "shows error E-{number}4 and stops",
)


def bodies() -> list[str]:
    """Mails of every sort: covered, lapsed, unknown, without a number, about something else, advertising."""
    written: list[str] = []
    for number in range(10):
        serial, fault = COVERED[number % 4], FAULTS[number % 4].format(number=number)
        written.append(
            f"Hello, our device with the serial number {serial} {fault}. We bought it with order "
            f"8820{number}734, my telephone is 601 555 01{number}."
        )
        written.append(
            f"Dzień dobry, urządzenie nr seryjny {serial} jest zepsute, zamówienie ZK/447{number}/26."
        )
    for number in range(5):
        written.append(f"The kiosk, order 771{number}0045, S/N {LAPSED}, stays dark. Is it under warranty?")
        written.append(f"Our scanner, serial number QQ-70{number}1-B, is broken. Invoice 5510{number}22.")
        written.append(
            f"Our till screen stays blank since the power cut, we ordered it with 9004{number}118."
        )
        written.append(f"What are your opening hours? I have an invoice 3120{number}77 to pay.")
    written += ["You have won the lottery! Claim your prize and a cheap loan now, code 99120044."] * 2
    return written


@pytest.fixture
def desk(folder: Path, detent: Any) -> Path:
    """A project whose mailbox has answered more than forty mails by code."""
    inbox = folder / "mail/inbox"
    inbox.mkdir(parents=True)
    (folder / "mail/outbox").mkdir()
    (folder / "detent.yaml").write_text(PROJECT)
    for number, body in enumerate(bodies()):
        (inbox / f"{number:03}.eml").write_bytes(mail(number, body, Subject="A device"))
    assert detent("warranty", "registry", "import", str(demo_registry())).code == 0
    done = detent("run", "warranty", "--once")
    assert done.code == 0, done
    return folder


@pytest.fixture
def powers(desk: Path, detent: Any) -> dict[str, Any]:
    """The measured power by step, each with its sorts by name."""
    measured = detent("autonomy", "power", "--planted", "60", "--json")
    assert measured.code == 0, measured
    assert "invalid_route" not in measured.err  # a planted error is no event
    return {
        each["step"].rpartition("/")[2]: {**each, "sorts": {sort["sort"]: sort for sort in each["sorts"]}}
        for each in json.loads(measured.out)
    }


def test_errors_in_a_form_are_put_to_the_check_of_every_step(powers):
    first = powers["01-extract-serial"]
    assert first["visits"] == len(bodies())
    assert first["unusable"] == {}
    # Another candidate as the serial number, the right one as an order: always caught.
    assert first["sorts"]["another label"]["share"] == 1.0
    assert first["sorts"]["values exchanged"]["share"] == 1.0
    # What the mail is about decides where it goes.
    assert first["sorts"]["another choice"]["share"] == 1.0
    assert first["lowest"]["share"] == 1.0
    assert first["harmless"]
    # A dangerous fault taken for a harmless one, and the other way round.
    ticket = powers["03a-valid-warranty"]
    assert ticket["sorts"]["another choice"]["share"] == 1.0
    assert ticket["sorts"]["another choice"]["planted"] == ticket["visits"] == 20


def test_what_cannot_be_measured_says_why(powers):
    """What the registry answered is held by the contract; text is judged by people."""
    status = powers["02-check-warranty"]
    assert status["visits"] == 30
    assert status["sorts"]["another choice"]["not_measurable"] == "the contract refuses all of them"
    text = powers["04-out-of-scope"]["sorts"]["another value"]
    assert text["not_measurable"] == "it is text for people, which only a person judges"
    assert text["prose"] > 0
    for step, power in powers.items():
        for name, sort in power["sorts"].items():
            assert sort["share"] is not None or sort["not_measurable"], (step, name)
