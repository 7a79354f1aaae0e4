"""The mail that answers a mail: its headers, its text, and nothing anybody smuggled in."""

from __future__ import annotations

import email
import email.policy
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.adapters.mail.automatic_mail import ignore_reason
from detent.adapters.mail.message import read_message
from detent.adapters.mail.reply import message_id_for, reply, reply_subject
from detent.adapters.mail.sink import message_id_of

KEY = "0123456789abcdef" * 4
DATE = datetime(2026, 3, 10, 9, 15, tzinfo=timezone(timedelta(hours=1)))
GIVEN = {
    "sender": "Serwis Północ <service@northpine.example>",
    "to": "maren@holt-bakery.example",
    "subject": "Re: Drukarka nie działa",
    "body": "Dzień dobry,\n\nurządzenie jest objęte gwarancją.\n",
    "key": KEY,
    "date": DATE,
    "app": "warranty",
    "in_reply_to": "<a1@holt-bakery.example>",
    "references": ("<a0@holt-bakery.example>",),
}


NAMES = [
    *("From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "Auto-Submitted"),
    *(
        "X-Auto-Response-Suppress",
        "X-Detent-App",
        "MIME-Version",
        "Content-Type",
        "Content-Transfer-Encoding",
    ),
]


def made(**changes) -> bytes:
    return reply(**{**GIVEN, **changes})


def parsed(**changes) -> email.message.EmailMessage:
    return email.message_from_bytes(made(**changes), policy=email.policy.default)


def text(message: email.message.EmailMessage) -> str:
    return message.get_content().replace("\r\n", "\n")


class TestHeaders:
    def test_a_reply_has_the_headers_it_needs(self):
        """W-49"""
        message = parsed()
        assert message["From"] == "Serwis Północ <service@northpine.example>"
        assert message["To"] == "maren@holt-bakery.example"
        assert message["Subject"] == "Re: Drukarka nie działa"
        assert message["Date"] == "Tue, 10 Mar 2026 09:15:00 +0100"
        assert message["Message-ID"] == "<det-0123456789abcdef01234567@northpine.example>"
        assert message["In-Reply-To"] == "<a1@holt-bakery.example>"
        assert message["References"].split() == ["<a0@holt-bakery.example>", "<a1@holt-bakery.example>"]
        assert message["Auto-Submitted"] == "auto-replied"
        assert message["X-Auto-Response-Suppress"] == "All"
        assert message["X-Detent-App"] == "warranty"
        assert message.get_content_type() == "text/plain"
        assert message.get_content_charset() == "utf-8"
        assert text(message) == GIVEN["body"]
        assert not message.defects

    def test_the_same_arguments_give_the_same_bytes(self):
        assert made() == made()
        assert made(key="another") != made()

    def test_it_is_ascii_with_network_line_ends(self):
        data = made()
        assert data.isascii()
        assert not re.search(rb"(?<!\r)\n|\r(?!\n)", data)
        assert data.endswith(b"\r\n")

    def test_no_line_is_longer_than_lines_may_be(self):
        data = made(
            subject="Re: " + "żółw " * 39,
            body="słowo " * 500,
            references=[f"<{n}@x.example>" for n in range(40)],
        )
        assert max(map(len, data.split(b"\r\n"))) <= 78

    def test_long_message_ids_stay_whole(self):
        long = "<" + "a" * 300 + "@holt-bakery.example>"
        message = parsed(in_reply_to=long)
        assert message["In-Reply-To"].strip() == long
        assert message["References"].split()[-1] == long

    def test_the_last_twenty_references_are_named(self):
        references = [f"<{n}@x.example>" for n in range(40)]
        assert parsed(references=references)["References"].split() == [
            *references[-19:],
            GIVEN["in_reply_to"],
        ]

    def test_a_mail_that_answers_none_names_none(self):
        message = parsed(in_reply_to=None, references=())
        assert message["In-Reply-To"] is None
        assert message["References"] is None

    def test_the_id_comes_from_the_key(self):
        assert message_id_for(KEY, "Firm.example") == "<det-0123456789abcdef01234567@firm.example>"
        assert re.fullmatch(
            r"<det-[0-9a-f]{24}@firm\.example>", message_id_for("answer/<a@b>", "firm.example")
        )
        assert message_id_for("a", "firm.example") != message_id_for("b", "firm.example")
        assert message_id_of(made(domain="firm.example")) == message_id_for(KEY, "firm.example")
        with pytest.raises(ValueError, match="domain"):
            message_id_for(KEY, "firm.example>\r\nBcc: x")

    def test_a_name_of_the_sender_is_quoted_or_encoded(self):
        assert parsed(sender="Service, North <s@x.example>")["From"].addresses[0].addr_spec == "s@x.example"
        assert parsed(sender="s@x.example")["From"] == "s@x.example"
        assert (
            parsed(sender='"Service; North" <s@x.example>')["From"].addresses[0].display_name
            == "Service; North"
        )

    def test_our_own_reply_is_known_when_it_comes_back(self):
        message = read_message(made(), received=datetime(2026, 3, 10, tzinfo=UTC))
        assert ignore_reason(message, ["service@northpine.example"]) == "own_mail"
        assert ignore_reason(message, []) == "own_mail"
        assert message.thread_root == "<a0@holt-bakery.example>"
        assert message.body == GIVEN["body"].strip()


class TestRefused:
    @pytest.mark.parametrize(
        "to", ["", "nobody", "a@x.example, b@x.example", "a@x.example\r\nBcc: b@x.example", "A <a@x.example>"]
    )
    def test_a_mail_goes_to_exactly_one_address(self, to):
        with pytest.raises(ValueError, match="address"):
            made(to=to)

    @pytest.mark.parametrize("sender", ["", "Service", "a@x.example, b@x.example"])
    def test_a_mail_comes_from_exactly_one_address(self, sender):
        with pytest.raises(ValueError, match="sender"):
            made(sender=sender)

    def test_a_date_needs_a_zone(self):
        with pytest.raises(ValueError, match="time zone"):
            made(date=datetime(2026, 3, 10))

    @pytest.mark.parametrize(
        "bad", ["", "a@b", "<a b>", "<a>\r\nBcc: x", "<ż@b>", "<" + "a" * 1000 + ">", "<>"]
    )
    def test_ids_that_cannot_stand_in_a_header_are_left_out(self, bad):
        message = parsed(in_reply_to=bad, references=[bad, "<good@x.example>"])
        assert message["In-Reply-To"] is None
        assert message["References"] == "<good@x.example>"

    @given(
        st.text(alphabet="a:ż\r\n \t\x00\x0b\x85\u2028=?_", max_size=300) | st.text(),
        st.text(alphabet="a \r\n<>:", max_size=20),
        st.text(max_size=20),
    )
    def test_nothing_can_begin_a_header(self, subject, ident, app):
        message = parsed(subject=subject, references=[ident, f"<{ident}>"], app=app)
        assert list(message.keys()) == NAMES
        assert message["To"] == GIVEN["to"]
        assert text(message) == GIVEN["body"]


class TestBody:
    @given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=300), st.integers(0, 3))
    def test_the_text_arrives_as_it_was_written(self, words, ends):
        body = words + "\n" * ends
        assert text(parsed(body=body)) == body.rstrip("\n") + "\n"

    @pytest.mark.parametrize(
        "body", ["From here on", ".", ".dot\n..", "x" * 500, "trailing \nspace", "żółw", "\n\nx"]
    )
    def test_lines_that_servers_change_are_protected(self, body):
        data = made(body=body)
        assert not re.search(rb"(?m)^(From |\.)", data.split(b"\r\n\r\n", 1)[1])
        assert text(parsed(body=body)) == body + "\n"

    def test_plain_ascii_stays_readable(self):
        assert b"\r\n\r\nHello,\r\nthanks.\r\n" in made(body="Hello,\nthanks.")


class TestSubject:
    @pytest.mark.parametrize(
        ("original", "language", "expected"),
        [
            ("Printer", "en", "Re: Printer"),
            ("Re: Printer", "en", "Re: Printer"),
            ("RE: re: Re[2]: Printer", "en", "Re: Printer"),
            ("Odp: Waga", "pl", "Re: Waga"),
            ("Fwd: Printer", "en", "Re: Fwd: Printer"),
            ("Refund", "en", "Re: Refund"),
            ("a\r\nBcc: x@y.example", "en", "Re: a Bcc: x@y.example"),
            ("", "en", "Re: your message"),
            ("", "pl", "Re: Państwa wiadomość"),
            ("  \n", "de", "Re: your message"),
            ("Re: ", "pl", "Re: Państwa wiadomość"),
        ],
    )
    def test_it_is_the_original_after_one_re(self, original, language, expected):
        assert reply_subject(original, language) == expected

    @given(st.text(max_size=400))
    def test_it_is_one_line_of_at_most_200_characters(self, original):
        subject = reply_subject(original)
        assert len(subject) <= 200
        assert len(subject.splitlines()) == 1
        assert subject.startswith("Re: ")
        assert reply_subject(subject) == subject
