"""The forms of the step files: what an agent states about a mail, and where that leads."""

from __future__ import annotations

from typing import Any

import pytest

from detent.apps.warranty.domain.numbers import numbers_in
from detent.apps.warranty.handlers import LONGEST_SHOWN, letter
from detent.apps.warranty.mail_data import TextPart
from tests.apps.warranty.correspondence import (
    ASK,
    CHECK,
    CONFIRM,
    COVERED,
    CUSTOMER,
    EXPIRED,
    FIRST,
    LAPSED,
    NOT_FOUND,
    PATHS,
    REDIRECT,
    TEXTS,
    TICKET,
    agents,
    mailbox,
    text_of,
    usual,
)
from tests.apps.warranty.correspondence import letter as a_letter

LEVELS = ("collaborator", "consultant", "approver")
DEVICE = {"about": "device", "numbers": {COVERED: "serial"}}
GOOD = {
    NOT_FOUND: "Hello, SN99999 is not in our registry. Could you please check it or send a photo?",
    EXPIRED: f"Hello, the warranty of {LAPSED} ended on 2024-11-30. We can repair it for you at a price.",
    ASK: "Hello, please send us the serial number of your device. It is on the plate at the back.",
    REDIRECT: "Hello, we are not able to help you with this. Please write to office@northpine.example",
    CONFIRM: "Hello, it is covered until 2027-05-31 and the ticket is TKT-10001. We will be in touch.",
}
KINDS = {NOT_FOUND: "not found", EXPIRED: "expired", ASK: "no serial", REDIRECT: "topic", CONFIRM: "valid"}


def asking(serial: str, status: str) -> dict[str, Any]:
    """An agent in 02 that asks and states."""
    return {
        "calls": [{"tool": "check_warranty", "args": {"serial_number": serial}}],
        "output": {"status": status},
    }


async def one(folder, step: str, *answers: Any, mail: Any, level: str = "approver", **fields: Any):
    """One mail, one step of it an agent's: the result, the step's visit, the box, what it was asked."""
    told = [answer if "output" in answer else {"output": answer} for answer in answers]
    dispatch, executor = agents({step: told}, level, **fields)
    async with mailbox(folder, dispatch=dispatch) as box:
        result = await box.process(mail)
        (visit,) = [one for one in await box.visits(result.run_id) if one.step_name == step]
        return result, visit, [(m["To"], text_of(m).strip()) for m in box.sent()], executor.calls, box


class TestTheFirstStep:
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize(
        ("kind", "form"),
        [
            ("valid", DEVICE),
            ("no serial", {"about": "device"}),
            ("neither", {"about": "device"}),
            ("topic", {"about": "administration"}),
            ("spam", {"about": "advertising"}),
        ],
    )
    async def test_facts_lead_where_code_leads(self, tmp_path, kind, form, level):
        """I10, W-52."""
        result, visit, *_ = await one(tmp_path, FIRST, form, mail=usual(kind), level=level)
        assert (visit.mode, visit.fallback) == ("agent", None)
        assert tuple(result.step_sequence) == PATHS[kind]

    async def test_a_serial_number_does_not_keep_another_matter_here(self, tmp_path):
        """The conditions look at both: what it is about, and what it names."""
        mail = a_letter(f"Hello, please send me the invoice for the printer, S/N {COVERED}.", "Invoice")
        form = {"about": "administration", "numbers": {COVERED: "serial"}}
        result, visit, *_ = await one(tmp_path, FIRST, form, mail=mail)
        assert tuple(result.step_sequence) == (FIRST, REDIRECT)
        assert visit.data["serial_number"] == COVERED
        assert visit.data["scope"]["kind"] == "topic"

    async def test_of_several_the_first_one_labelled_counts(self, tmp_path):
        mail = a_letter(
            f"Order AB-20817. Our printers, S/N {LAPSED} and S/N {COVERED}: the second is broken."
        )
        form = {"about": "device", "numbers": {"AB-20817": "order", LAPSED: "other", COVERED: "serial"}}
        result, visit, *_ = await one(tmp_path, FIRST, form, mail=mail)
        assert (visit.mode, result.serial_number) == ("agent", COVERED)
        assert result.flags == ["ambiguous_serial"]

    @pytest.mark.parametrize(
        "form",
        [
            {"about": "device", "numbers": {}},
            {"about": "device"},
            {"about": "device", "numbers": {COVERED: "serial", "SN50001": "serial"}},
            {"about": "device", "numbers": {COVERED: "stolen"}},
            {"about": "weather", "numbers": {COVERED: "serial"}},
        ],
    )
    async def test_no_serial_number_can_be_invented_or_left_out(self, tmp_path, form):
        """W-53: after two wrong forms code decides."""
        result, visit, _, calls, _ = await one(tmp_path, FIRST, form, form, mail=usual("valid"))
        assert visit.fallback == "schema_violation"
        assert "SN50001" not in calls[1].prompt.partition("PROBLEMS")[2]
        assert tuple(result.step_sequence) == PATHS["valid"]

    @pytest.mark.parametrize(
        "form",
        [
            {"about": "administration", "numbers": {COVERED: "serial"}},
            {"about": "device", "numbers": {COVERED: "other"}},
        ],
    )
    async def test_a_collaborator_finds_what_code_finds(self, tmp_path, form):
        """2.3: the validator."""
        _, visit, *_ = await one(tmp_path, FIRST, form, mail=usual("valid"), level="collaborator")
        assert visit.fallback == "validation_failure"

    async def test_it_reads_a_mail_and_not_its_headers(self, tmp_path):
        *_, calls, _ = await one(tmp_path, FIRST, DEVICE, mail=usual("valid"))
        subject, body = TEXTS["valid", "en"]
        assert f"Subject: {subject}\n\n{body}\n" in calls[0].prompt
        assert CUSTOMER not in calls[0].prompt
        assert f'- {COVERED}: "' in calls[0].prompt


class TestTheRegistry:
    @pytest.mark.parametrize(
        ("kind", "serial", "status"),
        [("valid", COVERED, "valid"), ("expired", LAPSED, "expired"), ("not found", "SN99999", "not_found")],
    )
    async def test_its_answer_is_the_fact(self, tmp_path, kind, serial, status):
        result, visit, *_ = await one(tmp_path, CHECK, asking(serial, status), mail=usual(kind))
        assert (visit.mode, visit.fallback) == ("agent", None)
        assert tuple(result.step_sequence) == PATHS[kind]

    @pytest.mark.parametrize("status", ["valid", "not_found", "error", "no_serial"])
    async def test_an_agent_cannot_state_another(self, tmp_path, status):
        """W-53: an expired device is expired."""
        wrong = asking(LAPSED, status)
        result, visit, *_ = await one(tmp_path, CHECK, wrong, wrong, mail=usual("expired"))
        assert visit.fallback == "schema_violation"
        assert tuple(result.step_sequence) == PATHS["expired"]

    async def test_without_functions_it_is_asked_first_and_shown(self, tmp_path):
        form = {"status": "expired"}
        _, visit, _, calls, box = await one(tmp_path, CHECK, form, mail=usual("expired"), allowed_tools=[])
        assert visit.mode == "agent"
        assert "status: expired" in calls[0].prompt
        assert box.faults.calls.count("check_warranty") == 1


class TestTheTicket:
    async def test_has_the_priority_that_was_stated_and_all_else_from_code(self, tmp_path):
        dispatch, executor = agents({TICKET: [{"output": {"priority": "high"}}]})
        async with mailbox(tmp_path, dispatch=dispatch) as box:
            await box.process(usual("valid"))
            (ticket,) = await box.tickets()
        assert (ticket.priority, ticket.serial_number, ticket.customer_email) == ("high", COVERED, CUSTOMER)
        assert executor.calls[0].tools == ()

    async def test_a_collaborator_sees_no_danger_where_there_is_none(self, tmp_path):
        _, visit, *_ = await one(
            tmp_path, TICKET, {"priority": "high"}, mail=usual("valid"), level="collaborator"
        )
        assert visit.fallback == "validation_failure"


class TestTheMails:
    @pytest.mark.parametrize("step", GOOD)
    async def test_words_are_the_agents_and_all_else_is_codes(self, tmp_path, step):
        _, visit, sent, calls, _ = await one(tmp_path, step, {"body": GOOD[step]}, mail=usual(KINDS[step]))
        assert (visit.mode, sent) == ("agent", [(CUSTOMER, GOOD[step])])
        assert 'language: "English"' in calls[0].prompt
        assert "body_draft\n<<<" in calls[0].prompt
        assert calls[0].tools == ()

    async def test_it_is_told_the_language_and_the_contact(self, tmp_path):
        """04 in Polish, about an invoice: whom to name, and how."""
        body = (
            "Dzień dobry, nie możemy w tym pomóc. Prosimy pisać: billing@northpine.example, +48 22 555 01 10"
        )
        mail = usual("topic", "pl")
        _, visit, sent, calls, _ = await one(tmp_path, REDIRECT, {"body": body}, mail=mail)
        assert 'language: "Polish"' in calls[0].prompt
        assert 'contact: "billing@northpine.example, +48 22 555 01 10"' in calls[0].prompt
        assert (visit.mode, sent) == ("agent", [(CUSTOMER, body)])

    @pytest.mark.parametrize(
        "more", ["[Your Name]", "Regards, [Twoje imię]", "Dear {{name}}", "<customer name>"]
    )
    @pytest.mark.parametrize("step", GOOD)
    async def test_nothing_is_left_to_be_filled_in(self, tmp_path, step, more):
        said = {"body": f"{GOOD[step]} {more}"}
        _, visit, sent, _, _ = await one(tmp_path, step, said, said, mail=usual(KINDS[step]))
        assert visit.fallback == "schema_violation"
        assert more not in sent[0][1]


def parts(**texts: str) -> list[TextPart]:
    return [TextPart(kind, text) for kind, text in texts.items()]


def test_numbers_come_in_the_order_in_which_they_count():
    found = numbers_in(
        parts(
            newest="Order ZX-558812 of 2026-03-01, about 200 zł.\nS/N: KX7-20931",
            quoted="It is kx7 20931? No: KX7-20931. Or AB/1234/C.",
        ),
        "Re: 4711-XY",
    )
    assert [one.text for one in found] == ["ZX-558812", "KX7-20931", "4711-XY", "20931", "AB/1234/C"]
    assert found[1].near == "ZX-558812 of 2026-03-01, about 200 zł. S/N: KX7-20931"


def test_addresses_and_links_are_no_numbers_and_are_not_shown():
    found = numbers_in(parts(newest="Write to anna.12345@home.example or www.x12345.example about SN12345."))
    assert [tuple(one) for one in found] == [("SN12345", "Write to … or … about SN12345.")]


def test_a_long_mail_is_shown_from_its_beginning():
    email = {
        "subject": "Log",
        "parts": [{"kind": "newest", "text": "x " * 9000}, {"kind": "quoted", "text": "y"}],
    }
    shown = letter(email)
    assert shown.startswith("Subject: Log\n\nx x x")
    assert len(shown) < LONGEST_SHOWN + 100
    assert shown.endswith("…\n\nQuoted below:\ny")
