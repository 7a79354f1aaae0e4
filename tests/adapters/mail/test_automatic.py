"""Which mails are never answered, and which only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.adapters.mail.automatic_mail import ignore_reason
from detent.adapters.mail.message import EmailMessage, read_message

MAILS = Path(__file__).parent / "mails"
OWN = ["Service <Service@northpine.example>", "help@northpine.example"]
PERSON = "From: Maren Holt <maren@holt-bakery.example>\n"


def mail(name: str) -> EmailMessage:
    return read_message((MAILS / f"{name}.eml").read_bytes())


def reason(head: str, sender: str = PERSON, body: str = "x", **options) -> str | None:
    return ignore_reason(read_message(f"{sender}{head}\n\n{body}".encode()), OWN, **options)


class TestReasons:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("own_loop", "own_mail"),
            ("autoreply", "auto_submitted"),
            ("bounce", "bounce"),
            ("list", "list"),
            ("no_reply", "no_reply_address"),
            ("spam", "spam_flagged"),
        ],
    )
    def test_each_reason_has_a_mail(self, name, expected):
        """W-47"""
        assert ignore_reason(mail(name), OWN) == expected

    @pytest.mark.parametrize(
        "name",
        [
            "plain_en",
            "gmail_reply",
            "thread_pl",
            "forwarded_attached",
            "quotes_an_autoreply",
            "idn",
            "signed",
        ],
    )
    def test_a_persons_mail_is_answered(self, name):
        assert ignore_reason(mail(name), OWN) is None

    def test_the_first_reason_in_order_counts(self):
        head = (
            "X-Spam-Flag: YES\nList-Id: <l>\nReturn-Path: <>\nAuto-Submitted: auto-replied\nX-Detent-App: w\n"
        )
        expected = ["own_mail", "auto_submitted", "bounce", "list", "spam_flagged"]
        lines = head.splitlines()
        assert [reason("\n".join(lines[: len(lines) - n])) for n in range(5)] == expected


class TestOwnMail:
    @pytest.mark.parametrize(
        "head",
        [
            "X-Detent-App: warranty",
            "x-detent-app: ",
            "Message-ID: <det-0123456789abcdef01234567@northpine.example>",
            "X-Loop: service@northpine.example",
            "From: Service <SERVICE@northpine.example>",
        ],
    )
    def test_our_marks_are_known(self, head):
        assert reason(head) == "own_mail"

    def test_our_addresses_are_known_in_any_spelling(self):
        assert reason("", 'From: "Help, desk" <HELP@NorthPine.example>\n') == "own_mail"

    def test_an_id_of_another_domain_is_not_ours_when_we_know_our_own(self):
        head = "Message-ID: <det-0123456789abcdef01234567@other.example>"
        assert reason(head) == "own_mail"
        assert reason(head, own_domain="northpine.example") is None

    @pytest.mark.parametrize(
        "head",
        [
            "Message-ID: <det-1@northpine.example>",
            "Message-ID: <x-det-0123456789abcdef01234567@northpine.example>",
            "In-Reply-To: <det-0123456789abcdef01234567@northpine.example>",
            "References: <det-0123456789abcdef01234567@northpine.example>",
            "To: service@northpine.example",
            "X-Loop: other@forwarder.example",
            "Sender: assistant@holt-bakery.example",
        ],
    )
    def test_an_answer_to_us_is_not_our_own(self, head):
        assert reason(head, own_domain="northpine.example") is None


class TestAutoSubmitted:
    @pytest.mark.parametrize(
        "head",
        [
            "Auto-Submitted: auto-replied",
            "Auto-Submitted: auto-generated; owner-email=x@y.example",
            "Auto-Submitted: AUTO-REPLIED (vacation)",
            "X-Autoreply: yes",
            "X-Autorespond: yes",
            "X-Autoresponder: z",
            "X-Auto-Response-Suppress: All",
            "X-Auto-Response-Suppress: DR, OOF, AutoReply",
            "Precedence: auto_reply",
            "X-POST-MessageClass: 9; Autoresponder",
            "Subject: Automatic reply: Label printer",
            "Subject: Auto-Reply: x",
            "Subject: Out of office",
            "Subject: Out of Office Re: x",
            "Subject: OUT OF THE OFFICE AutoReply: x",
            "Subject: Autoodpowiedź: x",
            "Subject: =?utf-8?q?Automatyczna_odpowied=C5=BA=3A_x?=",
            "Subject: Odpowiedź automatyczna: x",
            "Subject: Nieobecność",
            "Subject: Nieobecność w biurze: Jan",
            "Subject: Abwesenheitsnotiz: x",
            "Subject: Réponse automatique : x",
            "Subject: Resposta automática: x",
            "Subject: Automatiskt svar: x",
            "Subject: 自動回覆: x",
            "Subject: Away from office until Monday",
            "Subject: I'm on vacation until Monday",
            "Subject: Będę nieobecna w dniach 3-7 marca",
            "Subject: Urlop do 20.03.2026",
            "Subject: [Auto-Reply] x",
            "Subject: Dziękujemy za zgłoszenie",
            "X-Vacation: yes",
            "X-Mailer: vacation 1.2",
            "Delivered-To: Autoresponder",
            "Content-Type: text/calendar; charset=utf-8; method=REPLY",
        ],
    )
    def test_machines_are_known(self, head):
        assert reason(head) == "auto_submitted"

    @pytest.mark.parametrize(
        "head",
        [
            "Auto-Submitted: no",
            "Auto-Submitted: No; x=y",
            "Auto-Submitted:",
            "X-Autoreply: no",
            "X-Auto-Response-Suppress: OOF",
            "X-Auto-Response-Suppress: DR, RN, NRN",
            "X-Auto-Response-Suppress: none",
            "Feedback-ID: 1:2:3:x",
            "X-Mailer: Automatic Mailer",
            "X-Loop: other@forwarder.example",
            "Subject: Re: Automatic reply: Label printer",
            "Subject: ODP: Autoodpowiedź: x",
            "Subject: Automatic reply to every scan is broken",
            "Subject: Out of office printer jams",
            "Subject: Nieobecność serwisanta w umówionym terminie",
            "Subject: Auto: klimatyzacja",
            "Subject: Automatyczna brama nie działa",
            "Subject: Urlopowa recepcja",
            "Subject: I am afraid it is away for good",
            "Subject: Jestem na miejscu do 16",
            "Subject: Accepted: what you said about the printer",
            "Subject: Re: Dziękujemy za zgłoszenie",
            "Delivered-To: autoresponder-desk@northpine.example",
            "X-Mailer: Vacation Rentals Mailer",
        ],
    )
    def test_people_are_not_taken_for_them(self, head):
        assert reason(head) is None

    def test_an_automatic_reply_quoted_in_the_text_is_no_sign(self):
        body = "Auto-Submitted: auto-replied\nSubject: Automatic reply: x\nReturn-Path: <>\nList-Id: <x>"
        assert reason("Subject: what is this?", body=body) is None


class TestBounce:
    @pytest.mark.parametrize(
        "head",
        [
            "Return-Path: <>",
            "Return-Path:",
            "Content-Type: multipart/report; report-type=delivery-status; boundary=x",
            "Content-Type: Multipart/Report; report-type=disposition-notification; boundary=x",
            "Content-Type: message/delivery-status",
            "X-Failed-Recipients: a@x.example",
            "Subject: Undeliverable: Re: Label printer",
            "Subject: Undelivered Mail Returned to Sender",
            "Subject: Delivery Status Notification (Failure)",
            "Subject: Mail delivery failed: returning message to sender",
            "Subject: failure notice",
            "Subject: Niedostarczalne: x",
            "Subject: Permanent Delivery Failure",
            "Subject: DELIVERY FAILURE: User x not listed",
            "Subject: Warning: message 1abcDE-0001fG-2H delayed 24 hours",
            "Subject: Mail System Error - Returned Mail",
            "Subject: Your message could not be delivered",
            "Subject: Nie udało się dostarczyć wiadomości",
            "Subject: Zwrot wiadomości",
            "Subject: Read: Re: Label printer",
            "Subject: Nie przeczytano: Odp: Drukarka",
            "Subject: Return receipt (displayed) - x",
        ],
    )
    def test_reports_are_known(self, head):
        assert reason(head) == "bounce"

    @pytest.mark.parametrize(
        "sender",
        [
            "MAILER-DAEMON@mx1",
            "Mail Delivery System <MAILER-DAEMON@mx1.example>",
            "Mail Delivery Subsystem <mailer-daemon@mx1.example>",
            "postmaster@fenn.example",
            '"Postmaster" <Postmaster@fenn.example>',
            "MAILER-DAEMON (Mail Delivery System)",
            "<MAILER-DAEMON>",
            "MDaemon@fenn.example",
            "Outlook <MicrosoftExchange329e71ec88ae4615bbc36ab6ce41109e@fenn.example>",
        ],
    )
    def test_daemons_are_known_by_name_even_without_a_usable_address(self, sender):
        assert reason("", f"From: {sender}\n") == "bounce"

    @pytest.mark.parametrize(
        "head",
        [
            "Return-Path: <maren@holt-bakery.example>",
            "Subject: Failure notice on the display",
            "Subject: Niedostarczona przesyłka",
            "Subject: Delivery failure of the paper tray",
            "Subject: Delivery delayed again",
            "Subject: Read: the display is blank",
            "Subject: Zwrot drukarki",
            "Subject: Re: Undeliverable: x",
            "Content-Type: multipart/mixed; boundary=report",
        ],
    )
    def test_people_are_not_taken_for_them(self, head):
        assert reason(head) is None

    def test_a_name_is_not_an_address(self):
        assert reason("", "From: postmaster of the bakery <maren@holt-bakery.example>\n") is None
        assert reason("", "From: Max Daemon <daemon@holt-bakery.example>\n") is None


class TestList:
    @pytest.mark.parametrize(
        "head",
        [
            "List-Id: <news.list.example>",
            "List-Unsubscribe: <https://list.example/u>",
            "Precedence: bulk",
            "Precedence: List",
            "Precedence: junk",
            "Mailing-List: contact x@list.example",
        ],
    )
    def test_lists_are_known(self, head):
        assert reason(head) == "list"

    @pytest.mark.parametrize(
        "head", ["Precedence: first-class", "Precedence: normal", "Feedback-ID: a:b:c:d"]
    )
    def test_people_are_not_taken_for_them(self, head):
        assert reason(head) is None


class TestNoReplyAddress:
    @pytest.mark.parametrize(
        "address",
        [
            *("noreply@x.example", "no-reply@x.example", "No_Reply@x.example", "no.reply@x.example"),
            *(
                "donotreply@x.example",
                "do-not-reply@x.example",
                "shop-noreply@x.example",
                "noreply+1@x.example",
            ),
            *("nie-odpowiadaj@x.example", "noreply2@x.example", "undisclosed-recipients:;", "nobody"),
            *("maren@localhost", "service@northpine.example", ""),
        ],
    )
    def test_nobody_can_be_answered_there(self, address):
        assert reason("", f"From: {address}\n") in ("no_reply_address", "own_mail")
        assert reason("Reply-To: x", f"From: {address}\n") in ("no_reply_address", "own_mail")

    def test_an_answer_to_ourselves_is_none(self):
        assert reason("Reply-To: help@northpine.example") == "no_reply_address"

    def test_a_form_that_names_its_writer_is_answered(self):
        assert reason("Reply-To: maren@holt-bakery.example", "From: Form <noreply@x.example>\n") is None

    @pytest.mark.parametrize("local", ["noreen", "replyto", "nora.reply", "maren.noreplyson", "reply"])
    def test_names_that_only_look_like_it_are_people(self, local):
        assert reason("", f"From: {local}@x.example\n") is None


class TestSpam:
    @pytest.mark.parametrize(
        "head", ["X-Spam-Flag: YES", "X-Spam-Flag: yes", "X-Spam-Status: Yes, score=12.3"]
    )
    def test_what_a_filter_marked_is_known(self, head):
        assert reason(head) == "spam_flagged"

    @pytest.mark.parametrize("head", ["X-Spam-Flag: NO", "X-Spam-Status: No, score=-1", "X-Spam-Score: 12"])
    def test_what_it_let_pass_is_not(self, head):
        assert reason(head) is None


class TestOwnLists:
    """A mailbox may itself be on a mailing list, and that list's mail is for it."""

    LIST = "service.lists.northpine.example"
    POSTED = (
        'List-Id: "Service desk" <Service.Lists.NorthPine.example>\nPrecedence: list\n'
        "List-Post: <mailto:desk@lists.northpine.example>\nList-Unsubscribe: <https://lists.example/u>\n"
    )

    def test_what_people_write_there_is_answered(self):
        assert reason(self.POSTED) == "list"
        assert reason(self.POSTED, own_lists=[self.LIST]) is None
        assert reason(self.POSTED, own_lists=["other.lists.northpine.example"]) == "list"

    @pytest.mark.parametrize(
        "value",
        [
            "<service.lists.northpine.example>",
            "service.lists.northpine.example",
            "=?utf-8?q?Desk?= <service.lists.northpine.example> (x)",
        ],
    )
    def test_its_id_is_read_in_every_form(self, value):
        assert reason(f"List-Id: {value}\n", own_lists=[self.LIST]) is None

    @pytest.mark.parametrize(
        "value",
        [
            "<service.lists.northpine.example.evil.example>",
            "service.lists.northpine.example <other.example>",
            "",
        ],
    )
    def test_what_only_resembles_it_is_another_list(self, value):
        assert reason(f"List-Id: {value}\n", own_lists=[self.LIST]) == "list"

    @pytest.mark.parametrize(
        ("head", "why"),
        [
            ("List-Id: <news.other.example>\n", "list"),
            ("Auto-Submitted: auto-generated\n", "auto_submitted"),
            ("Return-Path: <>\n", "bounce"),
            ("X-Detent-App: warranty\n", "own_mail"),
            ("X-Spam-Flag: YES\n", "spam_flagged"),
            ("X-Precedence: bulk\n", "list"),
        ],
    )
    def test_every_other_reason_still_counts(self, head, why):
        assert reason(self.POSTED + head, own_lists=[self.LIST]) == why

    def test_an_answer_goes_to_the_writer_and_never_to_the_list(self):
        head = f"{PERSON}{self.POSTED}Reply-To: Desk <Desk@lists.northpine.example>\n"
        mail = read_message(f"{head}\n\nx".encode())
        assert mail.reply_address == "maren@holt-bakery.example"
        assert ignore_reason(mail, OWN, own_lists=[self.LIST]) is None
        both = read_message(head.replace("Reply-To: ", "Reply-To: maren@home.example, ").encode() + b"\n\nx")
        assert both.reply_address == "maren@home.example"
        assert ignore_reason(both, OWN, own_lists=[self.LIST]) is None

    def test_what_the_list_itself_writes_is_not_answered(self):
        sender = "From: Maren Holt via Desk <desk@lists.northpine.example>\n"
        assert reason(self.POSTED, sender=sender, own_lists=[self.LIST]) == "no_reply_address"
        wanted = f"{self.POSTED}Reply-To: maren@holt-bakery.example\n"
        assert reason(wanted, sender=sender, own_lists=[self.LIST]) is None
