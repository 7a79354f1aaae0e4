"""Agents at every level: better words, perhaps; another customer, device, branch or address, never."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from detent.apps.warranty.flow import shipped
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.kernel.status import Status
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
    STEPS,
    TEXTS,
    TICKET,
    UNKNOWN,
    agents,
    letter,
    mailbox,
    text_of,
    usual,
    without_forms,
)
from tests.examples import covering

LEVELS = ("collaborator", "consultant", "approver")
END = "\nNEXT_STEP: DONE"

BODIES = {
    (NOT_FOUND, "en"): f"Hello, {UNKNOWN} is not in our registry. Could you please check it or send a photo?",
    (
        NOT_FOUND,
        "pl",
    ): f"Dzień dobry, nie ma {UNKNOWN} w naszym rejestrze. Prosimy o sprawdzenie lub zdjęcie.",
    (
        EXPIRED,
        "en",
    ): f"Hello, the warranty of {LAPSED} ended on 2024-11-30. We can repair it for you at a price.",
    (EXPIRED, "pl"): f"Dzień dobry, gwarancja na {LAPSED} wygasła 2024-11-30. Możemy naprawić za opłatą.",
    (ASK, "en"): "Hello, please send us the serial number of your device. It is on the plate at the back.",
    (ASK, "pl"): "Dzień dobry, prosimy o numer seryjny urządzenia. Jest na tabliczce z tyłu urządzenia.",
    (
        REDIRECT,
        "en",
    ): "Hello, we are not able to help you with this. Please write to office@northpine.example",
    (REDIRECT, "pl"): "Dzień dobry, nie możemy w tym pomóc. Prosimy pisać na adres office@northpine.example",
    (
        CONFIRM,
        "en",
    ): "Hello, it is covered until 2027-05-31 and the ticket is TKT-10001. We will be in touch.",
    (CONFIRM, "pl"): "Dzień dobry, urządzenie jest na gwarancji do 2027-05-31, zgłoszenie to TKT-10001.",
}
KINDS = {NOT_FOUND: "not found", EXPIRED: "expired", ASK: "no serial", REDIRECT: "topic", CONFIRM: "valid"}
MAILS = tuple(KINDS)


def send(body: str, to: str = CUSTOMER, subject: str | None = None, **more: Any) -> dict[str, Any]:
    return {"tool": "send_email", "args": {"to": to, "subject": subject, "body": body, **more}}


def ticket(**args: Any) -> dict[str, Any]:
    usual_ones = {"serial_number": COVERED, "customer_email": CUSTOMER, "issue_description": "It is broken."}
    return {"tool": "create_ticket", "args": {**usual_ones, **args}}


RIGHT: dict[str, Any] = {
    FIRST: f"SERIAL: {COVERED}\nNEXT_STEP: {CHECK}",
    CHECK: {
        "calls": [{"tool": "check_warranty", "args": {"serial_number": COVERED}}],
        "text": f"NEXT_STEP: {TICKET}",
    },
    TICKET: {"calls": [ticket(category="warranty-repair", priority="normal", warranty_status="valid",
                              subject=f"Kestrel K200: {COVERED}")], "text": f"NEXT_STEP: {CONFIRM}"},
    **{step: f"BODY: {BODIES[step, 'en']}{END}" for step in MAILS},
}  # fmt: skip
"""What a good agent says in each step."""


def kind_of(step: str) -> str:
    return KINDS.get(step, "valid")


async def one(folder, step: str, *replies: Any, level: str = "approver", mail=None, said=None, **fields: Any):
    """One mail, one step of it an agent's: the result, the step's visit, mails, tickets, the executor.

    Replies that call functions with effects are for step files without forms, which offer such functions.
    """
    dispatch, executor = agents({step: replies}, level, **fields)
    if step != CHECK and any(isinstance(reply, dict) and reply.get("calls") for reply in replies):
        without_forms(folder)
    async with mailbox(folder, said, dispatch=dispatch) as box:
        result = await box.process(mail or usual(kind_of(step)))
        (visit,) = [one for one in await box.visits(result.run_id) if one.step_name == step]
        return (
            result,
            visit,
            [(m["To"], m["Subject"], text_of(m)) for m in box.sent()],
            await box.tickets(),
            executor,
        )


async def by_code(folder, mail) -> tuple:
    """What ordinary code makes of a mail."""
    async with mailbox(folder) as box:
        result = await box.process(mail)
        sent = [(m["To"], m["Subject"], text_of(m)) for m in box.sent()]
        return tuple(result.step_sequence), result.end, sent, [t.subject for t in await box.tickets()]


FAULTS = {
    "error: timeout": ("timeout", 3),
    "error: transient": ("exception", 3),
    "error: permanent": ("exception", 1),
    "error: schema": ("schema_violation", 2),
    "text: I would rather not say.": ("schema_violation", 2),
    "text: NEXT_STEP: 99-nowhere": ("schema_violation", 2),
    "text: NEXT_STEP: graceful-degradation": ("schema_violation", 2),
}
"""What an agent says or does; why it falls back, and how often it was asked."""


class TestEachStepCanBeAnAgents:
    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize("level", LEVELS)
    async def test_by_one_field(self, tmp_path, step, level):
        """W-52: `mode: agent`, and the path and the end are those of the handler."""
        result, visit, sent, tickets, _ = await one(tmp_path, step, RIGHT[step], level=level)
        unread = level == "consultant" and step in MAILS
        assert (visit.mode, visit.fallback) == (
            ("deterministic", "prose_unreviewed") if unread else ("agent", None)
        )
        assert tuple(result.step_sequence) == PATHS[kind_of(step)]
        assert result.end == "DONE"
        assert len(sent) == 1
        assert sent[0][0] == CUSTOMER
        assert len(tickets) == (1 if kind_of(step) == "valid" else 0)

    @pytest.mark.parametrize(("step", "language"), BODIES)
    async def test_its_words_are_sent(self, tmp_path, step, language):
        mail = usual(KINDS[step], language)
        _, visit, sent, _, _ = await one(tmp_path, step, f"BODY: {BODIES[step, language]}{END}", mail=mail)
        assert visit.mode == "agent"
        assert sent[0][2].strip() == BODIES[step, language]
        assert sent[0][1] == f"Re: {mail.subject}"

    @pytest.mark.parametrize(("step", "fault"), covering(STEPS, FAULTS, together=1))
    async def test_each_fallback_leads_where_the_handler_leads(self, tmp_path, step, fault):
        """W-52, W-36, W-38: the handler's outcome, whatever went wrong with the agent."""
        kind, _, words = fault.partition(": ")
        reason, asked = FAULTS[fault]
        mail = usual(kind_of(step), ident="<a@x.example>")
        limit = {"timeout": 0.05} if reason == "timeout" else {}
        result, visit, sent, tickets, executor = await one(
            tmp_path / "a", step, *[{kind: words}] * 3, mail=mail, **limit
        )
        assert (visit.mode, visit.fallback) == ("deterministic", reason)
        assert len(executor.calls) == asked
        code = await by_code(tmp_path / "b", mail)
        assert (tuple(result.step_sequence), result.end, sent, [t.subject for t in tickets]) == code

    @pytest.mark.parametrize("step", STEPS)
    async def test_so_does_an_executor_that_is_not_there(self, tmp_path, step):
        """W-52: no_executor; and operator."""

        layer = StepConfig.read({"mode": "agent", "autonomy": "approver"})
        for number, dispatch in enumerate(
            [
                DispatchSettings(steps={step: layer}),
                DispatchSettings(steps={step: StepConfig.read({"mode": "agent", "autonomy": "operator"})}),
            ]
        ):
            async with mailbox(tmp_path / str(number), dispatch=dispatch) as box:
                result = await box.process(usual(kind_of(step)))
                assert tuple(result.step_sequence) == PATHS[kind_of(step)]
                assert result.end == "DONE"

    async def test_a_whole_path_of_agents(self, tmp_path):
        """W-17: in function mode and in text mode, the same path and the same effects."""
        words = {step: RIGHT[step] for step in (FIRST, CHECK, TICKET)}
        in_text = {FIRST: RIGHT[FIRST], CHECK: f"NEXT_STEP: {TICKET}", TICKET: f"NEXT_STEP: {CONFIRM}"}
        body = BODIES[CONFIRM, "en"]
        calls = {"calls": [send(body, subject="Re: Label printer")], "text": "NEXT_STEP: DONE"}
        ways = [
            ({**words, CONFIRM: calls}, {}),
            ({**in_text, CONFIRM: f"BODY: {body}{END}"}, {"allowed_tools": []}),
            ({**in_text, CHECK: RIGHT[CHECK], CONFIRM: f"BODY: {body}{END}"}, {}),
        ]
        seen = []
        for number, (replies, fields) in enumerate(ways):
            dispatch, executor = agents({step: [said] for step, said in replies.items()}, **fields)
            async with mailbox(without_forms(tmp_path / str(number)), dispatch=dispatch) as box:
                result = await box.process(usual("valid", ident="<a@x.example>"))
                visits = await box.visits(result.run_id)
                assert [one.mode for one in visits] == ["agent"] * 4
                assert bool(executor.calls[1].tools) == (fields == {})
                facts = [(t.serial_number, t.customer_email, t.subject) for t in await box.tickets()]
                sent = [(m["To"], m["Subject"], text_of(m)) for m in box.sent()]
                seen.append((result.step_sequence, result.end, facts, sent, box.faults.calls))
        assert seen[0] == seen[1] == seen[2]
        assert seen[0][4] == ["check_warranty", "create_ticket", "send_email"]


class TestTheFirstStepsContract:
    @pytest.mark.parametrize(
        ("reply", "why"),
        [
            (f"NEXT_STEP: {CHECK}", "no serial with 02"),
            (f"SERIAL: none\nNEXT_STEP: {CHECK}", "no serial with 02"),
            (f"SERIAL: {COVERED}\nNEXT_STEP: {ASK}", "a serial with 03d"),
            (f"SERIAL: SN50001\nNEXT_STEP: {CHECK}", "not in the mail"),
            (f"SERIAL: SN4821\nNEXT_STEP: {CHECK}", "a piece of it"),
            (f"SERIAL: stopped\nNEXT_STEP: {CHECK}", "no serial's shape"),
            (f"SERIAL: 2026-03-10\nNEXT_STEP: {CHECK}", "a day"),
            (f"SERIAL: {COVERED}\nSERIAL: SN50001\nNEXT_STEP: {CHECK}", "two"),
            (f"SERIAL: {COVERED}\nNEXT_STEP: {TICKET}", "not allowed here"),
            (f"SERIAL: {COVERED}\nNEXT_STEP: DONE", "not allowed here"),
            (f"SERIAL: {COVERED}\nNEXT_STEP: {CHECK}\nNEXT_STEP: {ASK}", "two"),
        ],
    )
    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_reply_that_breaks_it_is_asked_for_again_and_then_decided_by_code(
        self, tmp_path, reply, why, level
    ):
        """W-36, W-53."""
        mail = letter(f"{TEXTS['valid', 'en'][1]} Bought on 2026-03-10.", "Label printer")
        result, visit, _, _, executor = await one(tmp_path, FIRST, reply, reply, level=level, mail=mail)
        assert visit.fallback == "schema_violation", why
        assert len(executor.calls) == 2
        assert "PROBLEMS" in executor.calls[1].prompt
        assert tuple(result.step_sequence) == PATHS["valid"]
        assert result.serial_number == COVERED

    async def test_a_better_second_reply_counts(self, tmp_path):
        result, visit, _, _, _ = await one(tmp_path, FIRST, f"NEXT_STEP: {CHECK}", RIGHT[FIRST])
        assert (visit.mode, result.serial_number) == ("agent", COVERED)

    @pytest.mark.parametrize("said", ["sn48213", "SN-48213", "`SN48213`", "SN48213."])
    async def test_the_same_number_in_other_signs_is_the_same(self, tmp_path, said):
        """2.3: compared without case, spaces and hyphens."""
        _, visit, sent, tickets, _ = await one(tmp_path, FIRST, f"SERIAL: {said}\nNEXT_STEP: {CHECK}")
        assert visit.mode == "agent"
        assert len(sent) == len(tickets) == 1

    @pytest.mark.parametrize(
        ("level", "path"),
        [
            ("collaborator", PATHS["valid"]),
            ("consultant", (FIRST, REDIRECT)),
            ("approver", (FIRST, REDIRECT)),
        ],
    )
    async def test_a_device_in_need_is_not_sent_away_by_a_collaborator(self, tmp_path, level, path):
        """2.3: the validator; and NEXT_STEP 04 makes the scope a topic."""
        result, visit, sent, _, _ = await one(tmp_path, FIRST, f"NEXT_STEP: {REDIRECT}", level=level)
        assert tuple(result.step_sequence) == path
        assert visit.fallback == ("validation_failure" if level == "collaborator" else None)
        kind = visit.data["scope"]["kind"]
        assert kind == ("in_scope" if level == "collaborator" else "topic")
        if level != "collaborator":
            assert "we cannot help you with this from here" in sent[0][2]

    @pytest.mark.parametrize(
        ("level", "fallback"),
        [("collaborator", "validation_failure"), ("consultant", None), ("approver", None)],
    )
    async def test_a_collaborator_finds_what_code_finds(self, tmp_path, level, fallback):
        """2.3: none included. A trusted agent may say that what looks like a serial number is none."""
        result, visit, _, _, _ = await one(tmp_path, FIRST, f"NEXT_STEP: {ASK}", level=level)
        assert visit.fallback == fallback
        assert tuple(result.step_sequence) == (PATHS["valid"] if fallback else (FIRST, ASK))

    async def test_of_several_a_collaborator_may_choose(self, tmp_path):
        text = f"Hello, we have S/N {LAPSED} and S/N {COVERED}. It is the second that is broken."
        result, visit, sent, _, _ = await one(
            tmp_path, FIRST, RIGHT[FIRST], level="collaborator", mail=letter(text)
        )
        assert (visit.mode, result.serial_number) == ("agent", COVERED)
        assert result.flags == ["ambiguous_serial"]
        assert COVERED in sent[0][2]

    async def test_advertising_an_agent_takes_for_a_customer_is_answered_as_a_customers(self, tmp_path):
        """The scope follows the decision."""
        said = {"warranty": {"reply_to_spam": False}}
        _, visit, sent, _, _ = await one(tmp_path, FIRST, f"NEXT_STEP: {ASK}", mail=usual("spam"), said=said)
        assert visit.data["scope"] == {"kind": "in_scope", "topic": None}
        assert "serial number" in sent[0][2]

    async def test_its_description_goes_into_the_ticket_and_not_into_the_journal(self, tmp_path):
        dispatch, _ = agents(
            {FIRST: [f"SERIAL: {COVERED}\nDESCRIPTION: zebras \x07 jam\nNEXT_STEP: {CHECK}"]}
        )
        async with mailbox(tmp_path, dispatch=dispatch) as box:
            result = await box.process(usual("valid"))
            assert (await box.tickets())[0].issue_description == "zebras  jam"
            assert "zebras" not in repr(await box.entries(result.run_id))

    async def test_without_one_code_describes_the_fault(self, tmp_path):
        _, _, _, tickets, _ = await one(tmp_path, FIRST, RIGHT[FIRST])
        assert "stopped working" in tickets[0].issue_description

    async def test_it_is_given_the_mail_and_nothing_else(self, tmp_path):
        """W-03."""
        *_, executor = await one(tmp_path, FIRST, RIGHT[FIRST])
        (call,) = executor.calls
        assert re.findall(r"^(\w+)\n<<<", call.prompt, re.MULTILINE) == ["email", "numbers"]
        assert "stopped working" in call.prompt
        assert call.tools == ()


NEEDS = {
    CHECK: ["serial_number"],
    TICKET: ["serial_number", "email.reply_address", "issue_description", "warranty_data"],
    NOT_FOUND: ["email.reply_address", "email.subject", "serial_number", "language"],
    EXPIRED: [
        "email.reply_address", "email.subject", "serial_number", "warranty_data.expires",
        "repair_warranty_months", "language",
    ],
    ASK: ["email.reply_address", "email.subject", "description_missing", "language"],
    REDIRECT: ["email.reply_address", "email.subject", "contact", "language", "scope"],
    CONFIRM: [
        "email.reply_address", "email.subject", "serial_number", "ticket_id", "warranty_data.expires",
        "response_days", "language",
    ],
}  # fmt: skip


@pytest.mark.parametrize("step", NEEDS)
async def test_a_later_step_is_given_exactly_its_needs(tmp_path, step):
    """W-03, W-16: system message = the step's text and the block; user message = the needs."""
    *_, executor = await one(tmp_path, step, RIGHT[step])
    (call,) = executor.calls
    shown = re.findall(r"^([\w.]+)(?:\n<<<|: \")", call.prompt, re.MULTILINE)
    assert [key for key in shown if key != "body_draft"] == NEEDS[step]
    assert ("body_draft" in shown) == (step in MAILS)

    text = (shipped() / "steps" / f"{step}.md").read_text(encoding="utf-8")
    assert call.instructions.startswith(text.split("---\n", 2)[2].strip())


class TestTheRegistrysBranch:
    @pytest.mark.parametrize("to", [EXPIRED, NOT_FOUND, REDIRECT, CONFIRM, "DONE"])
    @pytest.mark.parametrize("level", LEVELS)
    async def test_no_agent_passes_an_edge_whose_condition_is_false(self, tmp_path, to, level):
        """W-53: a covered device takes the covered branch."""
        said = {"calls": RIGHT[CHECK]["calls"], "text": f"NEXT_STEP: {to}"}
        result, visit, _, tickets, _ = await one(tmp_path, CHECK, said, said, level=level)
        assert visit.fallback == "schema_violation"
        assert tuple(result.step_sequence) == PATHS["valid"]
        assert len(tickets) == 1

    @pytest.mark.parametrize("kind", ["expired", "not found"])
    async def test_no_agent_opens_a_ticket_for_a_device_that_is_not_covered(self, tmp_path, kind):
        """W-53."""
        serial = {"expired": LAPSED, "not found": UNKNOWN}[kind]
        said = {
            "calls": [{"tool": "check_warranty", "args": {"serial_number": serial}}],
            "text": f"NEXT_STEP: {TICKET}",
        }
        result, visit, _, tickets, _ = await one(tmp_path, CHECK, said, said, mail=usual(kind))
        assert visit.fallback == "schema_violation"
        assert tuple(result.step_sequence) == PATHS[kind]
        assert tickets == []

    @pytest.mark.parametrize("kind", ["expired", "not found"])
    async def test_nor_by_asking_about_another_device(self, tmp_path, kind):
        """W-53: the covered neighbour's number gets nobody a ticket."""
        said = {
            "calls": [{"tool": "check_warranty", "args": {"serial_number": COVERED}}],
            "text": f"NEXT_STEP: {TICKET}",
        }
        result, visit, _, tickets, _ = await one(tmp_path, CHECK, said, said, mail=usual(kind))
        assert visit.fallback == "schema_violation"
        assert tuple(result.step_sequence) == PATHS[kind]
        assert result.warranty_status == {"expired": "expired", "not found": "not_found"}[kind]
        assert tickets == []

    async def test_asking_twice_about_the_same_is_asking_once(self, tmp_path):
        calls = [{"tool": "check_warranty", "args": {"serial_number": one}} for one in (COVERED, COVERED)]
        said = {"calls": calls, "text": f"NEXT_STEP: {TICKET}"}
        dispatch, _ = agents({CHECK: [said]})
        async with mailbox(tmp_path, dispatch=dispatch) as box:
            await box.process(usual("valid"))
            assert box.faults.calls.count("check_warranty") == 1


@pytest.mark.parametrize("forms", [True, False])
async def test_an_agent_that_never_asks_the_registry_does_not_pass(tmp_path, forms):
    """2.3: check_warranty is called; a right guess is a guess."""
    if not forms:
        without_forms(tmp_path)
    guess = json.dumps({"status": "valid"}) if forms else f"NEXT_STEP: {TICKET}"
    result, visit, _, _, executor = await one(tmp_path, CHECK, guess, guess)
    assert visit.fallback == "schema_violation"
    assert "check_warranty was not called" in executor.calls[1].prompt
    assert tuple(result.step_sequence) == PATHS["valid"]


class TestTheTicket:
    @pytest.mark.parametrize(
        "calls",
        [
            [ticket(serial_number="SN50001")],
            [ticket(customer_email="zoe@other.example")],
            [ticket(customer_email=f"{CUSTOMER}, zoe@other.example")],
            [ticket(), ticket(issue_description="Something else.")],
            [ticket(), ticket(serial_number="SN50001")],
            [ticket(), send("Hello, this is a mail in a step that writes to nobody at all.", subject="x")],
        ],
    )
    @pytest.mark.parametrize("level", LEVELS)
    async def test_is_one_for_this_device_and_this_customer(self, tmp_path, calls, level):
        """W-53."""
        said = {"calls": calls, "text": f"NEXT_STEP: {CONFIRM}"}
        result, visit, sent, tickets, _ = await one(tmp_path, TICKET, said, said, level=level)
        assert visit.fallback in ("schema_violation", "validation_failure") or len(calls) == 2
        assert [(t.serial_number, t.customer_email) for t in tickets] == [(COVERED, CUSTOMER)]
        assert (result.end, len(sent)) == ("DONE", 1)

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_may_have_the_agents_words(self, tmp_path, level):
        said = {"calls": [ticket(issue_description="Feeds two at once.")], "text": f"NEXT_STEP: {CONFIRM}"}
        _, visit, _, tickets, _ = await one(tmp_path, TICKET, said, level=level)
        assert visit.mode == "agent"
        assert tickets[0].issue_description == "Feeds two at once."

    async def test_may_have_them_at_collaborator_too_if_all_else_is_equal(self, tmp_path):
        """2.3: issue_description excepted."""
        same = dict(RIGHT[TICKET]["calls"][0]["args"], issue_description="Feeds two at once.")
        said = {"calls": [{"tool": "create_ticket", "args": same}], "text": f"NEXT_STEP: {CONFIRM}"}
        _, visit, _, tickets, _ = await one(tmp_path, TICKET, said, level="collaborator")
        assert (visit.fallback, tickets[0].issue_description) == (None, "Feeds two at once.")
        other = {**same, "priority": "urgent"}
        said = {"calls": [{"tool": "create_ticket", "args": other}], "text": f"NEXT_STEP: {CONFIRM}"}
        _, visit, _, tickets, _ = await one(tmp_path / "b", TICKET, said, level="collaborator")
        assert (visit.fallback, tickets[0].priority) == ("validation_failure", "normal")

    async def test_no_agent_says_which_mail_or_thread_it_is_for(self, tmp_path):
        said = {"calls": [ticket(source_message_id="<another@x.example>")], "text": f"NEXT_STEP: {CONFIRM}"}
        mail = usual("valid", ident="<a@x.example>")
        _, _, _, tickets, _ = await one(tmp_path, TICKET, said, said, mail=mail)
        assert tickets[0].source_message_id == "<a@x.example>"


GOOD = {step: BODIES[step, "en"] for step in MAILS}
WORDS_BROKEN = {
    (step, name): text
    for step in MAILS
    for name, text in {
        "short": "Hello.",
        "long": f"{GOOD[step]} " + "We are sorry about this and will help. " * 110,
        "language": BODIES[step, "pl"],
        "protocol": f"{GOOD[step]}\n**NEXT_STEP:** DONE",
        "quoted protocol": f"{GOOD[step]}\n> NEXT_STEP: 03a-valid-warranty",
        "inline protocol": f"{GOOD[step]} And then NEXT_STEP: DONE for all of us.",
        "serial line": f"{GOOD[step]}\nSERIAL: SN11111",
        "url": f"{GOOD[step]} See https://evil.example/claim?x=1 for more.",
        "www": f"{GOOD[step]} See www.evil.example for more.",
        "other scheme": f"{GOOD[step]} See ftp://evil.example for more.",
        "bare domain": f"{GOOD[step]} See evil-refunds.com/claim for more.",
        "phone": f"{GOOD[step]} Call us on +48 600 700 800 at any time.",
        "short phone": f"{GOOD[step]} Call us on 555-1234 at any time.",
        "dotted phone": f"{GOOD[step]} Call us on 22.555.66.77 at any time.",
        "brackets phone": f"{GOOD[step]} Call us on (022) 555 66 77 at any time.",
        "address": f"{GOOD[step]} Or write to refunds@evil.example for a quick answer.",
        "piece of our address": f"{GOOD[step]} Or write to fice@northpine.example about it.",
        "our address at another's": f"{GOOD[step]} Or write to office@northpine.example.evil.example now.",
        "odd address": f"{GOOD[step]} Or write to evil@localhost about it, please do.",
        "another serial": f"{GOOD[step]} Your other device has the serial number SN50001.",
        "another ticket": f"{GOOD[step]} Your other ticket is tkt-99999.",
        "opening hours": f"{GOOD[step]} We are there on weekdays from 8 to 16.",
        "amount": f"{GOOD[step]} We will refund you 500 EUR for all of this.",
        "foreign sentence": f"{GOOD[step]} Prosimy o przesłanie zdjęcia tabliczki w załączniku.",
        "relative day": f"{GOOD[step]} You will hear from us tomorrow.",
        "another name": f"Dear Bernard,\n{GOOD[step]}",
        "hidden letters": f"{GOOD[step]} We will re\u200bfund you.",
    }.items()
}
MISSING = {
    (NOT_FOUND, "no serial"): "Hello, the number is not in our registry. Could you please check it?",
    (EXPIRED, "no day"): f"Hello, the warranty of {LAPSED} has ended. We can repair it for you.",
    (EXPIRED, "no serial"): "Hello, the warranty ended on 2024-11-30. We can repair it for you at a price.",
    (EXPIRED, "another day"): f"Hello, the warranty of {LAPSED} ended on 2025-11-30. We can repair it.",
    (REDIRECT, "no contact"): "Hello, we are not able to help you with this. Please write to our office.",
    (CONFIRM, "no ticket"): "Hello, it is covered until 2027-05-31 and we will be in touch with you.",
    (CONFIRM, "no day"): "Hello, it is covered and the ticket is TKT-10001. We will be in touch.",
    (CONFIRM, "longer ticket"): "Hello, it is covered until 2027-05-31. The ticket is TKT-100011.",
    (CONFIRM, "two tickets"): "Hello, covered until 2027-05-31. The ticket is TKT-10001 or TKT-10002.",
    (ASK, "an example"): "Hello, please send us the serial number, it looks like AB12-3456, on the plate.",
}


class TestTheMailContract:
    @pytest.mark.parametrize(("step", "flaw"), [*covering(rows=WORDS_BROKEN, together=1), *MISSING])
    async def test_a_body_that_breaks_it_is_never_sent(self, tmp_path, step, flaw):
        """W-53, 2.3: at approver, in function mode, where nothing but the contract stands between."""
        body = {**WORDS_BROKEN, **MISSING}[step, flaw]
        mail = usual(KINDS[step])
        said = {"calls": [send(body, subject=f"Re: {mail.subject}")], "text": "NEXT_STEP: DONE"}
        result, visit, sent, _, executor = await one(tmp_path, step, said, said, mail=mail)
        assert visit.fallback == "schema_violation"
        assert "PROBLEMS" in executor.calls[1].prompt
        assert body not in executor.calls[1].prompt.partition("PROBLEMS")[2]
        assert (result.end, len(sent)) == ("DONE", 1)
        assert body.strip() not in sent[0][2]

    @pytest.mark.parametrize("step", MAILS)
    async def test_a_body_that_keeps_it_is_sent(self, tmp_path, step):
        mail = usual(KINDS[step])
        said = {"calls": [send(GOOD[step], subject=f"Re: {mail.subject}")], "text": "NEXT_STEP: DONE"}
        _, visit, sent, _, _ = await one(tmp_path, step, said, mail=mail)
        assert visit.mode == "agent"
        assert sent == [(CUSTOMER, f"Re: {mail.subject}", sent[0][2])]
        assert sent[0][2].strip() == GOOD[step]

    @pytest.mark.parametrize("step", MAILS)
    @pytest.mark.parametrize(
        "more",
        [
            "You wrote to us from maren@holt-bakery.example.",
            "Or write to billing@northpine.example, +48 22 555 01 10.",
            "We look after devices that need service.",
        ],
    )
    async def test_the_customers_own_and_our_contacts_may_stand_in_it(self, tmp_path, step, more):
        mail = usual(KINDS[step])
        _, visit, _, _, _ = await one(tmp_path, step, f"BODY: {GOOD[step]} {more}{END}", mail=mail)
        assert visit.mode == "agent"

    @pytest.mark.parametrize(
        ("argument", "step", "level"),
        covering(
            [
                ("to", "zoe@other.example"),
                ("to", f"{CUSTOMER}, zoe@other.example"),
                ("to", f"Maren <{CUSTOMER}>"),
                ("to", "service@northpine.example"),
                ("subject", "Re: something else"),
                ("subject", "You have won"),
                ("kind", "redirect"),
                ("source", "<another@x.example>"),
                ("cc", "zoe@other.example"),
            ],
            MAILS,
            LEVELS,
            together=1,
        ),
    )
    async def test_no_agent_writes_to_anybody_else_or_about_something_else(
        self, tmp_path, argument, step, level
    ):
        """W-53."""
        mail = usual(KINDS[step])
        call = send(GOOD[step], **{"subject": f"Re: {mail.subject}", **dict([argument])})
        said = {"calls": [call], "text": "NEXT_STEP: DONE"}
        _, visit, sent, _, _ = await one(tmp_path, step, said, said, mail=mail, level=level)
        assert visit.fallback == "schema_violation"
        assert [(to, subject) for to, subject, _ in sent] == [(CUSTOMER, f"Re: {mail.subject}")]

    @pytest.mark.parametrize("step", MAILS)
    async def test_one_mail_and_not_two(self, tmp_path, step):
        mail = usual(KINDS[step])
        two = [send(GOOD[step] + more, subject=f"Re: {mail.subject}") for more in ("", " Goodbye.")]
        said = {"calls": two, "text": "NEXT_STEP: DONE"}
        _, visit, sent, _, _ = await one(tmp_path, step, said, said, mail=mail)
        assert visit.fallback == "schema_violation"
        assert len(sent) == 1

    @pytest.mark.parametrize("step", [NOT_FOUND, EXPIRED, ASK, CONFIRM])
    async def test_no_customer_is_left_without_an_answer(self, tmp_path, step):
        """Also where advertising gets none."""
        said = {"warranty": {"reply_to_spam": False}}
        _, visit, sent, _, _ = await one(tmp_path, step, "NEXT_STEP: DONE", "NEXT_STEP: DONE", said=said)
        assert visit.fallback == "schema_violation"
        assert len(sent) == 1

    async def test_advertising_that_gets_none_gets_none_from_an_agent_either(self, tmp_path):
        said = {"warranty": {"reply_to_spam": False}}
        mail = usual("spam")
        call = {"calls": [send(GOOD[REDIRECT], subject=f"Re: {mail.subject}")], "text": "NEXT_STEP: DONE"}
        result, _, sent, _, _ = await one(tmp_path, REDIRECT, call, call, mail=mail, said=said)
        assert (result.end, sent) == ("DONE", [])

    async def test_of_several_serials_the_one_used_is_named(self, tmp_path):
        """6.2."""
        mail = letter(f"Hello, S/N {COVERED} is broken. We also have S/N SN50001.")
        body = f"BODY: {GOOD[CONFIRM]}{END}"
        _, visit, _, _, _ = await one(tmp_path, CONFIRM, body, body, mail=mail)
        assert visit.fallback == "schema_violation"
        body = f"BODY: {GOOD[CONFIRM]} It is {COVERED}.{END}"
        _, visit, sent, _, _ = await one(tmp_path / "b", CONFIRM, body, mail=mail)
        assert visit.mode == "agent"
        assert COVERED in sent[0][2]


class TestNobodyDecides:
    async def test_an_invalid_route_without_a_handler_ends_degraded_with_one_redirect(self, tmp_path):
        """W-37: never DONE."""

        folder = without_forms(tmp_path) / "instructions"
        step = folder / "steps" / f"{ASK}.md"
        step.write_text(
            step.read_text(encoding="utf-8").replace("handler: answer_by_mail\n", ""), encoding="utf-8"
        )
        dispatch, executor = agents({ASK: ["NEXT_STEP: 02-check-warranty"] * 3})
        async with mailbox(tmp_path, dispatch=dispatch, agents=[ASK]) as box:
            result = await box.process(usual("no serial"))
            assert (result.status, result.end) == (Status.DEGRADED, "graceful-degradation")
            assert result.reason == "invalid_route"
            assert len(executor.calls) == 2
            assert "could not handle it automatically" in text_of(box.reply())

    async def test_a_model_that_times_out_without_a_handler_fails_the_run(self, tmp_path):
        """W-38: three attempts, then FAILED; nobody is written to."""

        folder = without_forms(tmp_path) / "instructions"
        step = folder / "steps" / f"{ASK}.md"
        step.write_text(
            step.read_text(encoding="utf-8").replace("handler: answer_by_mail\n", ""), encoding="utf-8"
        )
        dispatch, executor = agents({ASK: [{"error": "timeout"}] * 3}, timeout=0.05)
        async with mailbox(tmp_path, dispatch=dispatch, agents=[ASK]) as box:
            result = await box.process(usual("no serial"))
            assert (result.status, result.end, result.reason) == (Status.FAILED, "FAILED", "step_failed")
            assert result.requires_retry()
            assert len(executor.calls) == 3
            assert box.sent() == []


async def test_a_step_of_somebody_elses_may_not_write_to_a_third_person_either(tmp_path):
    """4.8: the mail contract holds in steps an overlay adds."""
    folder = tmp_path / "more" / "steps"
    folder.mkdir(parents=True)
    (folder / "03d-request-serial.md").write_text(
        "---\nname: 03d-request-serial\ndescription: Ask.\nversion: 1.0.0\n"
        "next: [{to: 03f-thanks}]\nneeds: [email.subject]\ncall: []\n---\nAsk.\n"
    )
    (folder / "03f-thanks.md").write_text(
        "---\nname: 03f-thanks\ndescription: Thank.\nversion: 1.0.0\nnext: [DONE]\n"
        "available_functions: [send_email]\nneeds: [email.subject]\nhandler: answer_by_mail\n---\nThank.\n"
    )
    templates = tmp_path / "more" / "templates"
    templates.mkdir()
    (templates / "03f-thanks.en.txt").write_text("Hello, thank you for the mail. We will write to you soon.")
    (templates / "03f-thanks.pl.txt").write_text("Dzień dobry, dziękujemy.")
    body = "Hello, thank you for the mail. We will write to you as soon as we can."
    dispatch, _ = agents({"03f-thanks": [
        {"calls": [send(body, to="zoe@other.example", subject="Re: Printer")], "text": "NEXT_STEP: DONE"}
    ] * 2})  # fmt: skip
    async with mailbox(tmp_path, {"playbook": {"overlays": ["more"]}}, dispatch=dispatch) as box:
        result = await box.process(usual("no serial"))
        assert result.step_sequence[-1] == "03f-thanks"
        assert box.reply()["To"] == CUSTOMER
