"""What the steps' own code finds, chooses and writes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detent.adapters.mail.message import read_message
from detent.adapters.stores.memory import MemoryStore
from detent.apps.warranty.domain.words import WORDS
from detent.apps.warranty.flow import warranty_flow
from detent.apps.warranty.handlers import Handlers
from detent.apps.warranty.mail_data import MailView, mail_of, pack
from detent.apps.warranty.settings import read
from detent.apps.warranty.wiring import Components
from detent.engine.engine import Engine
from detent.engine.outcome import Outcome
from detent.flows.playbook.instruction import DEGRADED, ENDS, FAILED
from detent.kernel.plain import decode
from tests.apps.warranty.correspondence import (
    ASK,
    CHECK,
    CONFIRM,
    COVERED,
    FIRST,
    LAPSED,
    NOT_FOUND,
    QUICK,
    REDIRECT,
    STEPS,
    TEXTS,
    TICKET,
    UNKNOWN,
    letter,
    mailbox,
    raw,
    text_of,
    usual,
)


@pytest.fixture
def handlers(tmp_path):
    return Handlers(read({}, tmp_path), WORDS)


def facts(handlers: Handlers, mail) -> dict:
    return handlers.facts(MailView.of(mail))[1]


class TestTheFirstStep:
    """2.3, 2.4, 6: what is found in a mail."""

    @pytest.mark.parametrize("language", ["en", "pl"])
    @pytest.mark.parametrize(
        ("kind", "serial", "scope", "missing"),
        [
            ("valid", COVERED, "in_scope", False),
            ("expired", LAPSED, "in_scope", False),
            ("not found", UNKNOWN, "in_scope", False),
            ("no serial", None, "in_scope", False),
            ("neither", None, "in_scope", True),
            ("topic", None, "topic", False),
            ("spam", None, "spam", False),
        ],
    )
    def test_facts(self, handlers, kind, language, serial, scope, missing):
        found = facts(handlers, usual(kind, language))
        assert found["serial_number"] == serial
        assert found["serials"] == ([serial] if serial else [])
        assert found["scope"]["kind"] == scope
        assert found["description_missing"] is missing
        assert found["language"] == language
        assert found["issue_description"]

    def test_a_mail_is_read_once_however_often_it_is_asked_about(self, handlers):
        subject, body = "Printer", "S/N SN48213 broke"
        first, again = (MailView.of(letter(body, subject)) for _ in range(2))
        assert handlers.read(first)[0] is handlers.read(again)[0]
        assert handlers.read(MailView.of(letter("S/N SN77120 broke", subject)))[0].serial_number == "SN77120"

    def test_the_topic_is_named(self, handlers):
        assert facts(handlers, usual("topic"))["scope"] == {"kind": "topic", "topic": "invoice"}

    def test_a_passed_on_mail_is_read_where_nothing_was_added(self, handlers):
        head = "\n---------- Forwarded message ---------\nFrom: Z <z@x.example>\nSubject: x\n\n"
        text = f"{head}S/N {COVERED} broke."
        found = facts(handlers, letter(text, "Fwd: printer"))
        assert found["serial_number"] == COVERED

    def test_the_newest_words_win_and_all_are_listed(self, handlers):
        text = (
            f"The right one is S/N {COVERED}, it is broken.\n\nOn Monday, Z wrote:\n> S/N {LAPSED} is broken"
        )
        found, said = handlers.facts(MailView.of(letter(text)))
        assert (said["serial_number"], said["serials"]) == (COVERED, [COVERED, LAPSED])
        assert found.ambiguous

    async def test_no_word_of_the_mail_stands_in_the_journal(self, tmp_path):
        """Part 10: the description lies beside it."""
        async with mailbox(tmp_path) as box:
            result = await box.process(letter(f"S/N {COVERED}: zebras jam in the feeder.", "Striped trouble"))
            entries = await box.entries(result.run_id)
            text = repr(entries)
            for word in ("zebras", "Striped", "holt-bakery", "Maren"):
                assert word not in text
            (kept,) = [
                e.body.set["issue_description"] for e in entries if e.kind == "moved" and e.body.frm == FIRST
            ]
            assert "zebras jam" in decode(await box.engine.store.blob(kept["$blob"]))
            assert "zebras jam" in (await box.tickets())[0].issue_description


class TestTheTable:
    """2.2: allowed moves, and no others."""

    def test_every_step_has_its_edges_and_the_two_ends(self, tmp_path):

        flow = Components.of(read({}, tmp_path)).flow
        edges = {step: {edge.to for edge in flow.playbook.edges[step]} for step in STEPS}
        assert edges == {
            FIRST: {CHECK, ASK, REDIRECT},
            CHECK: {TICKET, "03c-expired-warranty", NOT_FOUND, REDIRECT},
            TICKET: {CONFIRM},
            NOT_FOUND: {"DONE"},
            "03c-expired-warranty": {"DONE"},
            ASK: {"DONE"},
            REDIRECT: {"DONE"},
            CONFIRM: {"DONE"},
        }
        assert set(flow.steps) == set(STEPS)
        for step in STEPS:
            moves = {move if isinstance(move, str) else move.to for move in flow.machine.moves[step]}
            assert moves == edges[step] | {DEGRADED, FAILED}
        assert flow.machine.start == FIRST
        assert set(flow.machine.ends) == set(ENDS)

    @pytest.mark.parametrize(
        ("serial", "to"), [("", CHECK), ("", TICKET), (COVERED, ASK), (COVERED, CONFIRM), (COVERED, "DONE")]
    )
    async def test_a_handler_that_names_a_closed_edge_fails_the_run(self, tmp_path, serial, to):
        """2.2: conditions bind handlers as well; nobody is written to, nothing is opened."""

        async def wrong(ctx):
            return Outcome(to, set={"serial_number": serial or None})

        components = Components.of(read({"orchestration": {"retry": QUICK}}, tmp_path))
        handlers = Handlers(components.settings, WORDS)
        handlers.handlers = lambda: {**Handlers.handlers(handlers), "extract_serial": wrong}  # type: ignore[method-assign]
        flow = warranty_flow(components.settings, components.tools, handlers=handlers)

        async with Engine(MemoryStore(), [flow]) as engine:
            packed = pack(usual("valid"), "UTC")
            run = await engine.run(flow, packed.data, beside=packed.beside)
        assert run.status.value in ("failed", "degraded")
        assert run.state != "DONE"
        assert not (tmp_path / "mail").exists()


class TestContacts:
    """2.3: the right contact is named."""

    @pytest.mark.parametrize(
        ("text", "contact"),
        [
            ("Could you send us the invoice again?", "billing@northpine.example, +48 22 555 01 10"),
            ("What are your opening hours?", "office@northpine.example"),
        ],
    )
    async def test_by_topic(self, tmp_path, text, contact):
        async with mailbox(tmp_path) as box:
            await box.process(letter(text, "A question"))
            body = text_of(box.reply())
            assert contact in body
            assert ("billing" in body) == ("billing" in contact)

    async def test_without_a_default_the_first_one_stands_in(self, tmp_path):
        said = {"warranty": {"contacts": [{"topic": "invoice", "text": "money@northpine.example"}]}}
        async with mailbox(tmp_path, said) as box:
            await box.process(letter("What are your opening hours?", "A question"))
            assert "money@northpine.example" in text_of(box.reply())

    async def test_numbers_of_the_settings_are_said(self, tmp_path):
        said = {"warranty": {"response_days": 5, "repair_warranty_months": 12}}
        async with mailbox(tmp_path, said) as box:
            await box.process(usual("valid"))
            assert "within 5 working days" in text_of(box.reply())
        async with mailbox(tmp_path / "b", said) as box:
            await box.process(usual("expired"))
            assert "warranty of 12 months" in text_of(box.reply())


class TestSubjects:
    @pytest.mark.parametrize(
        ("subject", "language", "answer"),
        [
            ("Printer", "en", "Re: Printer"),
            ("Re: RE: re: Printer", "en", "Re: Printer"),
            ("Odp: Drukarka", "pl", "Re: Drukarka"),
            ("", "en", "Re: your message"),
            ("", "pl", "Re: Państwa wiadomość"),
        ],
    )
    async def test_are_those_of_5_3(self, tmp_path, subject, language, answer):
        async with mailbox(tmp_path) as box:
            await box.process(letter(TEXTS["no serial", language][1], subject))
            assert box.reply()["Subject"] == answer


class TestTheData:
    def test_a_mail_comes_out_of_a_run_as_it_went_in(self):
        mail = usual("valid", "pl", References="<r@x.example>")
        packed = pack(mail, "Europe/Warsaw")
        email, name = map(decode, packed.beside)
        view = mail_of({"email": email, "sender_name": name})
        assert view == MailView.of(mail)
        assert view.newest == mail.newest
        assert packed.data["mail"]["key"] == mail.key
        assert "email" in packed.data
        assert set(packed.data["email"]) == {"$blob", "size"}
        assert set(packed.data["sender_name"]) == {"$blob", "size"}

    def test_the_day_is_that_of_the_settings_time_zone(self):

        late = read_message(raw("x"), received=datetime(2026, 3, 10, 23, 30, tzinfo=UTC))
        assert pack(late, "UTC").data["mail"]["day"] == "2026-03-10"
        assert pack(late, "Europe/Warsaw").data["mail"]["day"] == "2026-03-11"

    def test_a_purged_mail_is_an_empty_one(self):
        assert mail_of({"email": None}).reply_address == ""
        assert mail_of({}).newest == ""
