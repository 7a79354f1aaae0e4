"""Every way a mail can take through the steps, without a model, in both languages."""

from __future__ import annotations

import asyncio
import logging
import shutil
from datetime import datetime

import pytest

from detent.adapters.mail.message import read_message
from detent.adapters.mail.reply import message_id_for
from detent.adapters.stores.sqlite import SQLiteStore
from detent.apps.warranty.domain.language import language_of
from detent.apps.warranty.domain.serials import extract, serial_shaped
from detent.apps.warranty.flow import shipped
from detent.apps.warranty.mail_data import TextPart, pack
from detent.apps.warranty.tools.replies import reply_key
from detent.engine.engine import Engine
from detent.engine.tools import ToolError
from detent.flows.playbook.flow import MAX_STEPS
from detent.kernel.errors import DetentError
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
    TEXTS,
    TICKET,
    UNKNOWN,
    letter,
    mailbox,
    outbox,
    raw,
    text_of,
    usual,
)

TIMEOUT = ToolError("timeout", "no answer", transient=True)
REFUSED = ToolError("rejected", "the service said no")

SAYS = {
    ("valid", "en"): [COVERED, "2027-05-31", "TKT-10001", "2 working days"],
    ("valid", "pl"): [COVERED, "2027-05-31", "TKT-10001", "2 dni roboczych"],
    ("expired", "en"): [LAPSED, "2024-11-30", "diagnosis is free", "quote", "6 months"],
    ("expired", "pl"): [LAPSED, "2024-11-30", "diagnoza jest bezpłatna", "wycenę", "6 mies."],
    ("not found", "en"): [UNKNOWN, "not find", "photo"],
    ("not found", "pl"): [UNKNOWN, "Nie znaleźliśmy", "zdjęcie"],
    ("no serial", "en"): ["serial number", "rating plate"],
    ("no serial", "pl"): ["numeru seryjnego", "tabliczce znamionowej"],
    ("neither", "en"): ["two things", "what is wrong"],
    ("neither", "pl"): ["dwóch informacji", "opisu usterki"],
    ("topic", "en"): ["billing@northpine.example, +48 22 555 01 10"],
    ("topic", "pl"): ["billing@northpine.example, +48 22 555 01 10"],
    ("spam", "en"): ["does not handle other mail", "office@northpine.example"],
    ("spam", "pl"): ["nie zajmuje się", "office@northpine.example"],
}


@pytest.mark.parametrize(("kind", "language"), TEXTS)
async def test_a_mail_takes_its_path_and_gets_one_answer(tmp_path, kind, language):
    """W-01, W-06, W-49: the path of 2.2, DONE, one mail, in the customer's language, saying what it must."""
    async with mailbox(tmp_path) as box:
        result = await box.process(usual(kind, language))
        assert tuple(result.step_sequence) == PATHS[kind]
        assert (result.status, result.end, result.success) == (Status.SUCCEEDED, "DONE", True)
        assert result.scenario_used == f"steps:{PATHS[kind][-1]}"
        assert result.response_sent
        assert not result.requires_retry()
        mail = box.reply()
        body = text_of(mail)
        for words in SAYS[kind, language]:
            assert words in body
        assert language_of([TextPart("newest", body)], "", "en" if language == "pl" else "pl") == language
        assert len(await box.tickets()) == (1 if kind == "valid" else 0)
        assert result.ticket_created == (kind == "valid")


@pytest.mark.parametrize(("kind", "language"), TEXTS)
async def test_an_answer_has_its_headers_and_shows_no_serial_but_the_customers(tmp_path, kind, language):
    """W-49, 5.3."""
    mail = usual(kind, language, ident="<a1@holt-bakery.example>", References="<r1@x.example> <r2@x.example>")
    async with mailbox(tmp_path) as box:
        await box.process(mail)
        reply = box.reply()
        assert reply["To"] == CUSTOMER
        assert reply["From"] == "Service <service@northpine.example>"
        assert reply["Subject"] == f"Re: {mail.subject}"
        key = reply_key("<a1@holt-bakery.example>", "answer")
        assert (
            reply["Message-ID"]
            == message_id_for(key, "northpine.example")
            == f"<det-{key[:24]}@northpine.example>"
        )
        assert reply["In-Reply-To"] == "<a1@holt-bakery.example>"
        assert reply["References"].split() == ["<r1@x.example>", "<r2@x.example>", "<a1@holt-bakery.example>"]
        assert (reply["Auto-Submitted"], reply["X-Auto-Response-Suppress"]) == ("auto-replied", "All")
        assert reply["X-Detent-App"] == "warranty"
        assert reply.get_content_type() == "text/plain"
        assert reply["Date"]
        assert not {"cc", "bcc"} & {name.lower() for name in reply}
        body = text_of(reply)
        own = extract(mail.parts, mail.subject).serial_number
        assert set(extract([TextPart("newest", body)]).all_detected_serials) <= {own}
        assert mail.newest.strip() not in body


def test_no_template_holds_anything_a_reader_would_take_for_a_serial_number():
    """W-49."""

    texts = sorted((shipped() / "templates").glob("*.txt"))
    assert len(texts) >= 22
    for path in texts:
        assert serial_shaped(path.read_text(encoding="utf-8")) == [], path.name


class TestTheRegistryFails:
    @pytest.mark.parametrize("language", ["en", "pl"])
    async def test_three_times_leads_to_the_redirect_and_a_flag(self, tmp_path, language):
        """W-40: tried three times, then 02 takes its edge to 04, and the answer names the serial."""
        async with mailbox(tmp_path, faults={"check_warranty": [TIMEOUT] * 3}) as box:
            result = await box.process(usual("valid", language))
            assert tuple(result.step_sequence) == (FIRST, CHECK, REDIRECT)
            assert (result.end, result.flags) == ("DONE", ["warranty_check_failed"])
            assert box.faults.calls.count("check_warranty") == 3
            assert COVERED in text_of(box.reply())
            assert "office@northpine.example" in text_of(box.reply())
            assert await box.tickets() == []

    async def test_twice_repeats_only_that_step(self, tmp_path):
        """W-61: the first step is not done again, and nothing is sent or opened twice."""
        async with mailbox(tmp_path, faults={"check_warranty": [TIMEOUT, TIMEOUT, None]}) as box:
            result = await box.process(usual("valid"))
            assert tuple(result.step_sequence) == PATHS["valid"]
            assert [visit.attempts for visit in await box.visits(result.run_id)] == [1, 3, 1, 1]
            assert box.faults.calls == ["check_warranty"] * 3 + ["create_ticket", "send_email"]
            assert len(box.sent()) == len(await box.tickets()) == 1

    async def test_for_good_is_not_tried_again(self, tmp_path):
        """4.6: authentication and the like are not retried."""
        async with mailbox(tmp_path, faults={"check_warranty": [ToolError("auth", "401")] * 3}) as box:
            result = await box.process(usual("valid"))
            assert tuple(result.step_sequence) == (FIRST, CHECK, REDIRECT)
            assert box.faults.calls.count("check_warranty") == 1


class TestTheTicketFails:
    @pytest.mark.parametrize("language", ["en", "pl"])
    async def test_a_refused_ticket_is_never_confirmed(self, tmp_path, language):
        """W-41: degraded, one redirect mail, no confirmation."""
        async with mailbox(tmp_path, faults={"create_ticket": [REFUSED]}) as box:
            result = await box.process(usual("valid", language, ident="<t1@x.example>"))
            assert (result.status, result.end) == (Status.DEGRADED, "graceful-degradation")
            assert (result.reason, result.failed_step) == ("ticket_failed", TICKET)
            assert (result.success, result.requires_retry()) == (False, False)
            assert tuple(result.step_sequence) == (FIRST, CHECK, TICKET)
            reply = box.reply()
            assert reply["Message-ID"] == message_id_for(
                reply_key("<t1@x.example>", "redirect"), "northpine.example"
            )
            assert (reply["To"], reply["Subject"]) == (CUSTOMER, f"Re: {TEXTS['valid', language][0]}")
            assert "office@northpine.example" in text_of(reply)
            assert "TKT" not in text_of(reply)
            assert await box.tickets() == []

    async def test_a_transient_refusal_is_tried_three_times(self, tmp_path):
        """4.7."""
        async with mailbox(tmp_path, faults={"create_ticket": [TIMEOUT, TIMEOUT, None]}) as box:
            result = await box.process(usual("valid"))
            assert result.success
            (call,) = [one for one in result.function_calls if one.function_name == "create_ticket"]
            assert (call.attempts, call.success) == (3, True)
        async with mailbox(tmp_path / "two", faults={"create_ticket": [TIMEOUT] * 3}) as box:
            result = await box.process(usual("valid"))
            assert (result.end, result.reason) == ("graceful-degradation", "ticket_failed")

    async def test_with_the_mail_refused_too_the_run_is_degraded_all_the_same(self, tmp_path):
        async with mailbox(tmp_path, faults={"create_ticket": [REFUSED], "send_email": [REFUSED]}) as box:
            result = await box.process(usual("valid"))
            assert (result.end, result.reason) == ("graceful-degradation", "ticket_failed")
            assert box.sent() == []


@pytest.mark.parametrize("kind", ["valid", "expired", "not found", "no serial", "topic"])
async def test_a_refused_mail_fails_the_run(tmp_path, kind):
    """W-41: FAILED, send_failed, never DONE; what was done before stays done."""
    async with mailbox(tmp_path, faults={"send_email": [REFUSED]}) as box:
        result = await box.process(usual(kind))
        assert (result.status, result.end, result.reason) == (Status.FAILED, "FAILED", "send_failed")
        assert result.failed_step == PATHS[kind][-1]
        assert result.requires_retry()
        assert not result.response_sent
        assert result.scenario_used == "steps:error"
        assert box.sent() == []
        assert len(await box.tickets()) == (1 if kind == "valid" else 0)


class TestASerialIsMissing:
    async def test_the_check_warns_and_goes_on(self, tmp_path, caplog):
        """W-42: 02 without a serial asks nobody and leads to 03b, whose answer asks for one."""
        async with mailbox(tmp_path) as box:
            data, beside = _packed(box, letter("Hello, it is broken, please help us with it."))
            with caplog.at_level(logging.WARNING, "detent"):
                run_id = await box.engine.start(box.components.flow, data, at=CHECK, beside=beside)
                run = await box.engine.finish(run_id)
            assert [one.step_name for one in await box.visits(run_id)] == [CHECK, NOT_FOUND]
            assert (run.state, run.data["warranty_data"]) == ("DONE", {"status": "no_serial"})
            assert box.faults.calls == ["send_email"]
            assert "could not find one" in text_of(box.reply())
            missing = [line for line in caplog.messages if "step.context_missing" in line]
            assert any(f"step={CHECK} key=serial_number" in line for line in missing)

    @pytest.mark.parametrize("step", [NOT_FOUND, ASK, REDIRECT])
    async def test_a_mail_step_by_itself_writes_without_one(self, tmp_path, step):
        """W-42, W-65."""
        async with mailbox(tmp_path) as box:
            data, beside = _packed(box, letter("Hello, it is broken, please help us with it."))
            run = await box.engine.run(
                box.components.flow, {**data, "language": "en"}, at=step, beside=beside
            )
            assert run.state == "DONE"
            assert len(box.sent()) == 1

    async def test_a_failed_check_without_one_is_told_without_one(self, tmp_path):
        async with mailbox(tmp_path) as box:
            data, beside = _packed(box, letter("Hello, it is broken."))
            data |= {"warranty_data": {"error": {"code": "timeout"}}, "language": "en"}
            run = await box.engine.run(box.components.flow, data, at=REDIRECT, beside=beside)
            assert (run.state, run.data["flags"]) == ("DONE", ["warranty_check_failed"])
            assert "could not check the warranty of your device just now" in text_of(box.reply())


def _packed(box, mail):

    return pack(mail, box.settings.warranty.timezone)


class TestSpam:
    async def test_is_not_answered_where_the_settings_say_so(self, tmp_path):
        async with mailbox(tmp_path, {"warranty": {"reply_to_spam": False}}) as box:
            result = await box.process(usual("spam"))
            assert tuple(result.step_sequence) == (FIRST, REDIRECT)
            assert (result.end, result.reason) == ("DONE", "spam, not answered")
            assert not result.response_sent
            assert box.sent() == []

    @pytest.mark.parametrize("kind", ["topic", "no serial", "expired"])
    async def test_other_mail_still_is(self, tmp_path, kind):
        async with mailbox(tmp_path, {"warranty": {"reply_to_spam": False}}) as box:
            assert (await box.process(usual(kind))).response_sent
            assert len(box.sent()) == 1

    async def test_a_failed_check_is_told_whatever_the_scope_says(self, tmp_path):
        async with mailbox(tmp_path, {"warranty": {"reply_to_spam": False}}) as box:
            data, beside = _packed(box, letter("Hello, it is broken."))
            data |= {
                "warranty_data": {"error": {"code": "timeout"}}, "serial_number": COVERED,
                "scope": {"kind": "spam", "topic": None},
            }  # fmt: skip
            await box.engine.run(box.components.flow, data, at=REDIRECT, beside=beside)
            assert COVERED in text_of(box.reply())


class TestSeveralSerials:
    @pytest.mark.parametrize(
        ("first", "path"), [(COVERED, "valid"), (LAPSED, "expired"), (UNKNOWN, "not found")]
    )
    @pytest.mark.parametrize("language", ["en", "pl"])
    async def test_the_run_is_flagged_and_the_reply_names_the_one_used(self, tmp_path, first, path, language):
        """6.2."""
        text = {
            "en": f"Hello, the device S/N {first} is broken. We also have S/N SN50001, which works.",
            "pl": f"Dzień dobry, urządzenie nr seryjny {first} nie działa. Mamy też nr seryjny SN50001.",
        }[language]
        async with mailbox(tmp_path) as box:
            result = await box.process(letter(text, "Two devices"))
            assert tuple(result.step_sequence) == PATHS[path]
            assert result.flags == ["ambiguous_serial"]
            assert result.serial_number == first
            assert first in text_of(box.reply())
            assert "SN50001" not in text_of(box.reply())

    @pytest.mark.parametrize("language", ["en", "pl"])
    async def test_also_when_the_check_failed(self, tmp_path, language):
        """6.2, W-40."""
        text = {
            "en": f"Hello, the device S/N {COVERED} is broken. We also have S/N SN50001, which works.",
            "pl": f"Dzień dobry, urządzenie nr seryjny {COVERED} nie działa. Mamy też nr seryjny SN50001.",
        }[language]
        async with mailbox(tmp_path, faults={"check_warranty": [TIMEOUT] * 3}) as box:
            result = await box.process(letter(text, "Two devices"))
            assert result.flags == ["ambiguous_serial", "warranty_check_failed"]
            assert COVERED in text_of(box.reply())


class TestOneAnswer:
    async def test_a_mail_that_is_run_twice_is_answered_once(self, tmp_path):
        """W-48, 5.3: over all runs, by the incoming Message-ID."""
        async with mailbox(tmp_path) as box:
            mail = usual("expired", ident="<same@x.example>")
            first, second = await box.process(mail), await box.process(mail)
            assert first.run_id != second.run_id
            assert len(box.sent()) == 1
            (call,) = [one for one in second.function_calls if one.function_name == "send_email"]
            assert call.result["status"] == "existing"
            assert second.success

    async def test_also_when_the_second_run_would_say_something_else(self, tmp_path):
        async with mailbox(tmp_path) as box:
            await box.process(letter("Hello, it is broken.", ident="<same@x.example>"))
            await box.process(usual("valid", ident="<same@x.example>"))
            assert len(box.sent()) == 1

    async def test_an_answer_and_a_redirect_are_two(self, tmp_path):
        """5.3: one answer and at most one redirect."""
        async with mailbox(tmp_path, faults={"create_ticket": [REFUSED, REFUSED, None]}) as box:
            mail = usual("valid", ident="<same@x.example>")
            results = [await box.process(mail) for _ in range(4)]
            assert [one.end for one in results] == ["graceful-degradation"] * 2 + ["DONE"] * 2
            assert len(box.sent()) == 2
            assert len(await box.tickets()) == 1

    async def test_a_mail_without_an_id_is_known_by_its_bytes(self, tmp_path):
        async with mailbox(tmp_path) as box:
            mail = letter("Hello, our printer is broken.", ident="")
            assert mail.message_id is None
            await box.process(mail)
            await box.process(mail)
            assert len(box.sent()) == 1
            assert "In-Reply-To" not in box.reply()

    async def test_a_follow_up_in_the_thread_gets_the_ticket_there_is(self, tmp_path):
        """W-48."""
        async with mailbox(tmp_path) as box:
            first = await box.process(usual("valid", ident="<t1@x.example>"))
            follow_up = usual("valid", "pl", ident="<t2@x.example>", References="<t1@x.example>")
            second = await box.process(follow_up)
            assert second.ticket_id == first.ticket_id
            (call,) = [one for one in second.function_calls if one.function_name == "create_ticket"]
            assert call.result["status"] == "existing"
            assert len(await box.tickets()) == 1
            assert len(box.sent()) == 2

    @pytest.mark.parametrize("other", [{"sender": "zoe@other.example"}, {"References": ""}])
    async def test_another_customer_or_thread_gets_another(self, tmp_path, other):
        async with mailbox(tmp_path) as box:
            await box.process(usual("valid", ident="<t1@x.example>"))
            await box.process(
                usual("valid", ident="<t2@x.example>", **{"References": "<t1@x.example>", **other})
            )
            assert len(await box.tickets()) == 2


async def test_danger_makes_a_ticket_urgent_enough(tmp_path):
    """5.2: priority high on a safety word."""
    async with mailbox(tmp_path) as box:
        await box.process(letter(f"Hello, smoke comes out of the printer, S/N {COVERED}."))
        await box.process(usual("valid"))
        assert sorted(one.priority for one in await box.tickets()) == ["high", "normal"]


@pytest.mark.parametrize(("language", "text"), [("en", "No description given."), ("pl", "Brak opisu.")])
async def test_a_missing_description_never_stops_the_check(tmp_path, language, text):
    """2.4, 5.2: a serial number alone is enough, and the ticket says that nothing was said."""
    greeting = {"en": "Hello,\nserial number", "pl": "Dzień dobry,\nnr seryjny"}[language]
    async with mailbox(tmp_path) as box:
        result = await box.process(letter(f"{greeting} {COVERED}", "S"))
        assert tuple(result.step_sequence) == PATHS["valid"]
        (ticket,) = await box.tickets()
        assert ticket.issue_description == text
        assert (ticket.serial_number, ticket.customer_email) == (COVERED, CUSTOMER)
        assert (ticket.subject, ticket.category) == (f"Kestrel K200: {COVERED}", "warranty-repair")


@pytest.mark.parametrize(("day", "path"), [("2027-05-31", "valid"), ("2027-06-01", "expired")])
async def test_the_day_the_mail_was_received_decides(tmp_path, day, path):
    """5.1: not the sender's Date, not today."""

    body = TEXTS["valid", "en"][1]
    mail = read_message(
        raw(body, Date="Mon, 1 Jan 2001 10:00:00 +0000"),
        received=datetime.fromisoformat(f"{day}T12:00:00+00:00"),
    )
    async with mailbox(tmp_path) as box:
        assert tuple((await box.process(mail)).step_sequence) == PATHS[path]


async def test_a_run_makes_no_more_steps_than_it_may(tmp_path):
    """W-07: with a limit of three, the fourth step is not begun, and the path says where it stopped."""
    async with mailbox(tmp_path, {"orchestration": {"max_steps": 3}}) as box:
        result = await box.process(usual("valid"))
        assert (result.status, result.end, result.reason) == (Status.FAILED, "FAILED", MAX_STEPS)
        assert tuple(result.step_sequence) == (FIRST, CHECK, TICKET)
        assert box.sent() == []
    async with mailbox(tmp_path / "four", {"orchestration": {"max_steps": 4}}) as box:
        assert (await box.process(usual("valid"))).end == "DONE"


async def test_a_missing_step_file_ends_degraded_with_one_redirect(tmp_path, caplog):
    """W-39: in library use without the check."""

    folder = tmp_path / "instructions"
    shutil.copytree(shipped(), folder)
    (folder / "steps" / f"{EXPIRED}.md").unlink()
    async with mailbox(tmp_path, check=False) as box:
        with caplog.at_level(logging.ERROR, "detent"):
            result = await box.process(usual("expired"))
        assert (result.status, result.end) == (Status.DEGRADED, "graceful-degradation")
        assert result.reason == "step_not_found"
        assert any("step.missing_file" in line and EXPIRED in line for line in caplog.messages)
        assert "could not handle it automatically" in text_of(box.reply())


async def test_history_and_result_are_the_same_after_the_process_ended(tmp_path):
    """W-05: one tuple per step, folded from the journal."""
    store = tmp_path / "store.db"
    async with mailbox(tmp_path, store=SQLiteStore(store)) as box:
        mail = usual("valid")
        result = await box.orchestrate(mail)
        assert result.path == list(PATHS["valid"])
        assert box.orchestrator.history == result.step_history
        assert [len(one) for one in result.step_history] == [4] * 4
        assert [one[3] for one in result.step_history] == [*PATHS["valid"][1:], "DONE"]
        assert result.step_history[0][1] == {"email": {"$hash": result.step_history[0][1]["email"]["$hash"]}}
        assert result.step_history[1][1] == {"serial_number": COVERED}
        assert result.step_history[2][2]["ticket_id"] == "TKT-10001"
        assert (result.completed, result.total_steps, result.final_step) == (True, 4, CONFIRM)
        lines = result.final_output.splitlines()
        assert lines[0] == "REASON: mail sent"
        assert lines[1].startswith("CALL: send_email {")
        assert "BODY: Hello," in lines
        assert lines[-1] == "NEXT_STEP: DONE"
    async with mailbox(tmp_path, store=SQLiteStore(store), devices=()) as box:
        again = await box.orchestrator.result(await box.engine.get(result.run_id))
        assert again == result


async def test_the_steps_of_the_journal_are_those_of_the_files(tmp_path):
    """W-02: a run is about the fingerprint it was started with; other files refuse it."""

    store = tmp_path / "store.db"
    async with mailbox(tmp_path, store=SQLiteStore(store)) as box:
        data, beside = _packed(box, usual("valid"))
        run_id = await box.engine.start(box.components.flow, data, beside=beside, drive=False)
    folder = tmp_path / "instructions"
    shutil.copytree(shipped(), folder)
    step = folder / "steps" / f"{CHECK}.md"
    step.write_text(step.read_text(encoding="utf-8").replace("You check", "You look into"), encoding="utf-8")
    async with mailbox(tmp_path, store=SQLiteStore(store), devices=()) as box:
        with pytest.raises(DetentError, match=CHECK):
            await box.engine.resume(run_id)


async def test_many_mails_at_once_come_to_the_same_as_one_by_one(tmp_path):
    """Part 11: paths, tickets and replies are the same."""

    async def everything(folder, at_once):
        mails = [
            usual(kind, language, ident=f"<{kind.replace(' ', '')}-{language}-{n}@x.example>")
            for kind, language in TEXTS
            for n in range(3)
        ]
        async with mailbox(folder) as box:
            if at_once:
                results = await asyncio.gather(*(box.process(mail) for mail in mails))
            else:
                results = [await box.process(mail) for mail in mails]
            paths = [tuple(one.step_sequence) for one in results]
            sent = sorted((mail["In-Reply-To"], mail["Subject"]) for mail in box.sent())
            return paths, sent, sorted(one.source_message_id for one in await box.tickets())

    assert await everything(tmp_path / "a", True) == await everything(tmp_path / "b", False)


async def test_a_run_that_was_left_half_way_ends_as_any_other(tmp_path):
    """W-05, W-61: what was done is not done again."""
    store = tmp_path / "store.db"
    async with mailbox(tmp_path, store=SQLiteStore(store)) as box:
        data, beside = _packed(box, usual("valid"))
        run_id = await box.engine.start(box.components.flow, data, beside=beside, drive=False)
    async with mailbox(tmp_path, store=SQLiteStore(store), devices=()) as box:
        await box.engine.resume_all()
        run = await box.engine.finish(run_id)
        assert run.state == "DONE"
        assert [one.step_name for one in await box.visits(run_id)] == list(PATHS["valid"])
        assert len(box.sent()) == 1


async def test_a_failed_run_goes_on_at_its_failing_step(tmp_path):
    """W-61: a fork at the failing step keeps data and receipts; the ticket is not opened again."""
    async with mailbox(tmp_path, faults={"send_email": [REFUSED]}) as box:
        failed = await box.process(usual("valid"))
        entries = await box.entries(failed.run_id)
        moved = [entry.seq for entry in entries if entry.kind == "moved" and entry.body.to == CONFIRM]
        fork = await box.engine.fork(failed.run_id, moved[-1])
        run = await box.engine.finish(fork)
        assert run.state == "DONE"
        assert box.faults.calls.count("check_warranty") == box.faults.calls.count("create_ticket") == 1
        assert len(box.sent()) == len(await box.tickets()) == 1


async def test_two_processes_answer_a_mail_once(tmp_path):
    """5.3: over processes: another engine, store and connection on the same database and outbox."""
    mail = usual("expired", ident="<same@x.example>")
    async with mailbox(tmp_path) as one, mailbox(tmp_path, devices=()) as two:
        assert isinstance(two.engine, Engine)
        await one.process(mail)
        result = await two.process(mail)
        assert result.success
    assert len(outbox(tmp_path / "mail" / "outbox")) == 1
