"""The overlay `extension-offer`: one new step file, one edge more, no Python."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from detent.apps.warranty.flow import shipped, shipped_overlays
from detent.apps.warranty.processor import StepOrchestrator
from detent.kernel.errors import ConfigurationError, DefinitionChanged
from tests.apps.warranty.correspondence import (
    CHECK,
    COVERED,
    CUSTOMER,
    EXPIRED,
    FIRST,
    PATHS,
    agents,
    letter,
    mailbox,
    text_of,
    usual,
)

OFFER = "03e-offer-extension"
WITH = {"playbook": {"overlays": ["extension-offer"]}}
DEVICES = (
    {"serial": COVERED, "device_name": "Kestrel K200", "manufacturer_end": "2027-05-31"},
    {"serial": "SN30001", "manufacturer_end": "2026-02-28", "extension_until": "2026-03-10"},
    {"serial": "SN30002", "manufacturer_end": "2026-02-28", "extension_until": "2026-03-09"},
    {"serial": "SN77120", "device_name": "Kestrel K100", "manufacturer_end": "2024-11-30"},
)
BROKEN = {
    "en": "Hello, the scanner with serial number {} is broken, please help.",
    "pl": "Dzień dobry, skaner nr seryjny {} nie włącza się. Proszę o naprawę.",
}


def overlay() -> Path:
    return shipped_overlays()["extension-offer"]


class TestPaths:
    @pytest.mark.parametrize(
        ("serial", "language", "with_it", "without"),
        [
            ("SN30001", "en", OFFER, EXPIRED),
            ("SN30001", "pl", OFFER, EXPIRED),
            ("SN30002", "en", EXPIRED, EXPIRED),
            ("SN77120", "en", EXPIRED, EXPIRED),
        ],
    )
    async def test_a_lapsed_device_that_may_be_extended_gets_the_offer(
        self, tmp_path, serial, language, with_it, without
    ):
        """W-60: with the overlay 03e, without it 03c."""
        for name, said, step in (("with", WITH, with_it), ("without", {}, without)):
            async with mailbox(tmp_path / name, said, devices=DEVICES) as box:
                result = await box.orchestrate(letter(BROKEN[language].format(serial)))
                reply = box.reply()
            assert result.completed
            assert result.path == [FIRST, CHECK, step]
            assert reply["To"] == CUSTOMER
            assert reply["Subject"] == "Re: Printer"
            text = text_of(reply)
            assert serial in text
            assert "2026-02-28" in text or "2024-11-30" in text
            assert ("extended" in text or "przedłużyć" in text) is (step == OFFER)
            assert result.context["reply_message_id"] == reply["Message-ID"]

    @pytest.mark.parametrize("kind", sorted(PATHS))
    async def test_every_other_mail_goes_as_before(self, tmp_path, kind):
        """W-60."""
        async with mailbox(tmp_path, WITH) as box:
            assert tuple((await box.orchestrate(usual(kind))).path) == PATHS[kind]

    async def test_an_agent_cannot_offer_it_for_a_device_that_is_too_late(self, tmp_path):
        """W-53."""
        reply = {
            "text": f"NEXT_STEP: {OFFER}",
            "calls": [{"tool": "check_warranty", "args": {"serial_number": "SN30002"}}],
            "repeat": True,
        }
        dispatch, _ = agents({CHECK: [reply]})
        async with mailbox(tmp_path, WITH, devices=DEVICES, dispatch=dispatch) as box:
            result = await box.orchestrate(letter(BROKEN["en"].format("SN30002")))
        assert result.path == [FIRST, CHECK, EXPIRED]

    async def test_an_agent_may_find_better_words_for_the_offer_but_no_other_address(self, tmp_path):
        body = (
            "Hello, thank you for the message. The warranty of SN30001 ended on 2026-02-28. "
            "It can still be extended; please answer this mail."
        )
        dispatch, _ = agents({OFFER: [f"BODY:\n{body}\nNEXT_STEP: DONE"]})
        async with mailbox(tmp_path, WITH, devices=DEVICES, dispatch=dispatch) as box:
            await box.orchestrate(letter(BROKEN["en"].format("SN30001")))
            assert " ".join(text_of(box.reply()).split()) == body
            assert box.reply()["To"] == CUSTOMER


TELL = """---
name: 02b-tell-the-house
description: Tell the office that a covered device is broken.
version: 1.0.0
next:
  - {to: 03a-valid-warranty, reason: told}
available_functions: [send_email]
needs: [serial_number]
outputs: []
effects:
  send_email:
    {to: office@northpine.example, subject: "Covered: {{serial_number}}", template: 02b-tell-the-house}
---
Mail the office.
"""


class TestNoticeToTheHouse:
    async def test_a_mail_to_somebody_else_is_no_answer_to_the_customer(self, tmp_path):
        """A step that mails the office first made the customer's answer count as sent already."""
        added = tmp_path / "house"
        (added / "steps").mkdir(parents=True)
        (added / "templates").mkdir()
        (added / "steps/02b-tell-the-house.md").write_text(TELL)
        for language in ("en", "pl"):
            (added / f"templates/02b-tell-the-house.{language}.txt").write_text(
                "{{serial_number}} is broken.\n"
            )
        check = (shipped() / "steps/02-check-warranty.md").read_text()
        assert check.count("{to: 03a-valid-warranty,") == 1
        (added / "steps/02-check-warranty.md").write_text(
            check.replace("{to: 03a-valid-warranty,", "{to: 02b-tell-the-house,")
        )
        async with mailbox(tmp_path / "box", {"playbook": {"overlays": [str(added)]}}) as box:
            for _ in range(2):  # a second run about the same mail repeats neither
                result = await box.process(usual("valid", ident="<a1@holt-bakery.example>"))
            mails = {mail["To"]: mail for mail in box.sent()}
        assert result.step_sequence == [FIRST, CHECK, "02b-tell-the-house", *PATHS["valid"][2:]]
        assert result.response_sent
        assert sorted(mails) == [CUSTOMER, "office@northpine.example"]
        assert len(box.sent()) == 2
        house = mails["office@northpine.example"]
        assert house["Subject"] == f"Covered: {COVERED}"
        assert (house["In-Reply-To"], house["References"]) == (None, None)


class TestFiles:
    def test_it_is_one_new_step_and_one_edge_more(self):
        """W-60: the diff of the step that is replaced."""
        there = sorted(path.relative_to(overlay()).as_posix() for path in overlay().rglob("*.*"))
        assert there == [
            "steps/02-check-warranty.md", "steps/03e-offer-extension.md",
            "templates/03e-offer-extension.en.txt", "templates/03e-offer-extension.pl.txt",
        ]  # fmt: skip
        before = (shipped() / "steps" / "02-check-warranty.md").read_text().splitlines()
        after = (overlay() / "steps" / "02-check-warranty.md").read_text().splitlines()
        head = after.index("---", 1)
        changed = [
            line for line in difflib.ndiff(before[: before.index("---", 1)], after[:head])
            if line[0] in "+-"
        ]  # fmt: skip
        (edge,) = changed
        assert edge.startswith("+   - {to: 03e-offer-extension, when: {warranty_data.status: expired")
        assert after.index(edge[2:]) < next(
            number for number, line in enumerate(after) if "to: 03c-expired-warranty" in line
        )

    async def test_the_result_has_a_fingerprint_of_its_own(self, tmp_path):
        async with mailbox(tmp_path / "a", WITH) as one, mailbox(tmp_path / "b") as other:
            assert one.components.flow.fingerprint != other.components.flow.fingerprint

    async def test_a_run_is_not_gone_on_with_under_other_files(self, tmp_path):
        from detent.adapters.stores.memory import MemoryStore
        from detent.apps.warranty.mail_data import pack

        store = MemoryStore()
        async with mailbox(tmp_path / "a", WITH, store=store) as one:
            packed = pack(usual("valid"), "UTC", one.components.now())
            run_id = await one.engine.start(
                one.components.flow, packed.data, beside=packed.beside, drive=False
            )
        async with mailbox(tmp_path / "b", store=store) as other:
            assert isinstance(other.orchestrator, StepOrchestrator)
            with pytest.raises(DefinitionChanged, match=r"03e-offer-extension|02-check-warranty"):
                await other.engine.resume(run_id)

    async def test_an_overlay_nobody_knows_is_told_with_the_nearest(self, tmp_path):
        with pytest.raises(ConfigurationError, match="Did you mean 'extension-offer'"):
            async with mailbox(tmp_path, {"playbook": {"overlays": ["extension-ofer"]}}):
                pass
