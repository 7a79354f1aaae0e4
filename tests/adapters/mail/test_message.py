"""A mail as a value: read from any bytes, shown without a word of it."""

from __future__ import annotations

import contextlib
import email
import email.policy
import hashlib
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from detent.adapters.mail.headers import Headers, addresses, decoded, message_ids, usable_address
from detent.adapters.mail.message import Attachment, EmailMessage, Unreadable, read_message
from detent.adapters.mail.parts import Part
from tests.examples import examples

MAILS = Path(__file__).parent / "mails"
ALL = sorted(path.stem for path in MAILS.glob("*.eml"))
UNREADABLE = {
    "empty": "not_a_message",
    "prose": "not_a_message",
    "encrypted_smime": "encrypted",
    "encrypted_pgp": "encrypted",
    "encrypted_inline": "encrypted",
}


def raw(name: str) -> bytes:
    return (MAILS / f"{name}.eml").read_bytes()


def mail(name: str, **options) -> EmailMessage:
    return read_message(raw(name), **options)


def made(head: str = "", body: str = "x", **options) -> EmailMessage:
    return read_message(f"From: maren@holt-bakery.example\n{head}\n{body}".encode(), **options)


def kinds(message: EmailMessage) -> list[tuple[str, int]]:
    return [(part.kind, part.depth) for part in message.parts]


class TestReading:
    def test_a_plain_mail_is_read(self):
        message = mail("plain_en")
        assert message.message_id == "<a1@holt-bakery.example>"
        assert message.from_address == message.reply_address == "maren@holt-bakery.example"
        assert message.subject == "Label printer"
        assert message.body.startswith("Hello,\n\nour label printer SN48213 feeds two labels at once.\n")
        assert message.parts == (Part("newest", message.body, 0),)
        assert message.newest == message.body
        assert message.attachments == ()
        assert message.flags == ()

    def test_a_space_before_a_colon_does_not_make_a_sender_a_mailbox_line(self):
        """Old programs write "From : x"; a mailbox's own line has an address and a date behind "From"."""
        head = b"From : Maren <maren@holt-bakery.example>\r\nSubject : Printer\r\n\r\nx"
        for before in (b"", b"From maren@holt-bakery.example Tue Mar 10 08:15:00 2026\r\n"):
            message = read_message(before + head)
            assert message.from_address == "maren@holt-bakery.example"
            assert message.subject == "Printer"

    def test_a_declared_charset_is_used_for_text_and_subject(self):
        message = mail("plain_pl_iso8859_2")
        assert message.subject == "Skaner nie łączy się"
        assert "Skaner nie łączy się z kasą, nr seryjny LM-77-0412.\nŹle świeci" in message.body
        assert message.flags == ()

    def test_a_charset_that_was_declared_wrongly_is_guessed_and_flagged(self):
        message = mail("charset_wrong")
        assert message.body == "Waga zawyża wynik, proszę o pomoc. Świeci się błąd."
        assert message.flags == ("charset_guessed",)

    def test_a_charset_that_was_not_declared_is_guessed_and_flagged(self):
        message = mail("charset_missing")
        assert message.body == "Waga zawyża wynik, źle waży i gaśnie."
        assert message.flags == ("charset_guessed",)

    def test_html_is_read_where_there_is_no_plain_text(self):
        text = mail("html_table").body
        assert "Device | Serial number\nKestrel K200 | SN48213" in text
        assert "It feeds two labels & jams." in text
        assert not re.search("SN(00001|99999|88888|77777)|Not this|color", text)

    def test_of_two_forms_of_a_text_the_plain_one_is_read(self):
        message = mail("gmail_reply")
        assert message.newest == "It is SN48213, sorry."
        assert kinds(message) == [("newest", 0), ("quoted", 1), ("quoted", 2)]
        assert "epilogue" not in message.body
        assert "multi-part" not in message.body

    def test_html_is_read_where_the_plain_form_is_empty(self):
        message = made(
            "Content-Type: multipart/alternative; boundary=b\n",
            "--b\nContent-Type: text/plain\n\n \n--b\nContent-Type: text/html\n\n<p>hello</p>\n--b--\n",
        )
        assert message.body == "hello"

    def test_all_texts_of_a_mixed_mail_are_read_in_order(self):
        message = made(
            "Content-Type: multipart/mixed; boundary=b\n",
            "--b\nContent-Type: text/html\n\n<p>one</p>\n--b\nContent-Type: text/plain\n\ntwo\n--b--\n",
        )
        assert message.body == "one\n\ntwo"

    def test_flowed_lines_are_joined(self):
        message = mail("flowed")
        assert message.parts[0].text == "Our printer SN48213 feeds two labels at once.\n\n-- \nMaren"
        assert message.parts[1] == Part("quoted", "an older line that goes on", 1)

    def test_outlook_marks_its_quote_only_where_it_begins(self):
        message = mail("outlook_reply")
        assert message.newest == "Numer seryjny: 730155208"
        assert kinds(message) == [("newest", 0), ("quoted", 1), ("quoted", 2)]
        assert message.parts[2].text == "Kasa nie działa."

    def test_each_mail_of_a_thread_is_a_part_of_its_own(self):
        message = mail("thread_pl")
        assert kinds(message) == [("newest", 0), ("quoted", 1), ("quoted", 2), ("quoted", 3)]
        assert "4096-BRK-18" in message.parts[2].text

    def test_an_attached_message_is_read_one_level_deep(self):
        message = mail("forwarded_attached")
        assert message.newest == "Please look at the attached mail."
        assert message.parts[1:] == (Part("forwarded", "till SN60077\n\nThe till is dead.", 1),)
        assert "SN11111" not in "".join(part.text for part in message.parts)
        assert "till is dead" not in message.body

    def test_attachments_are_listed_by_name_type_and_size(self):
        assert mail("photo_attached").attachments == (
            Attachment("tabliczka znamionowa ż.jpg", "image/jpeg", 10),
        )
        pdf = mail("forwarded_attached").attachments[1]
        assert pdf == Attachment("invoice.pdf", "application/pdf", 9)

    def test_the_text_of_a_signed_mail_is_read(self):
        message = mail("signed")
        assert message.body == "Signed text, S/N DR-90214-C."
        assert [one.type for one in message.attachments] == ["application/pkcs7-signature"]

    def test_a_mail_of_headers_only_has_an_empty_newest_part(self):
        assert mail("headers_only").parts == (Part("newest", "", 0),)

    def test_a_long_text_is_cut_and_flagged(self):
        message = made(body="SN48213 is broken\n" + "log line 123456789\n" * 16_000)
        assert message.flags == ("text_cut",)
        assert len(message.body) <= 200_000
        assert message.body.split()[-1] in ("log", "line", "123456789")

    def test_a_mailbox_file_s_first_line_and_byte_order_mark_are_passed_over(self):
        assert mail("mailbox_line").body == "body"

    @pytest.mark.parametrize(
        "name",
        [
            *("plain_en", "plain_pl_iso8859_2", "gmail_reply", "thread_pl", "forwarded_attached", "signed"),
            *("photo_attached", "bounce", "list", "quotes_an_autoreply", "no_end", "headers_only"),
        ],
    )
    def test_a_mail_says_what_the_standard_library_finds_in_it(self, name):
        message = mail(name)
        theirs = email.message_from_bytes(raw(name), policy=email.policy.default)
        assert message.subject == theirs["Subject"]
        plain = theirs.get_body(preferencelist=("plain",))
        assert plain is not None
        assert message.body.split() == plain.get_content().split()
        if theirs.is_multipart() and theirs.get_content_type() != "multipart/alternative":
            names = [part.get_filename() or "" for part in theirs.iter_attachments()]
            assert [one.name for one in message.attachments] == [name.rpartition("/")[2] for name in names]


class TestIdentity:
    def test_the_hash_is_of_the_bytes_as_they_came(self):
        message = mail("plain_en")
        assert message.sha256 == hashlib.sha256(raw("plain_en")).hexdigest()
        assert message.size == len(raw("plain_en"))

    def test_the_key_is_of_the_message_id_or_else_of_the_bytes(self):
        assert mail("plain_en").key == hashlib.sha256(b"<a1@holt-bakery.example>").hexdigest()[:12]
        nameless = made()
        assert nameless.message_id is None
        assert nameless.key == nameless.sha256[:12]
        assert nameless.thread_root == f"sha256:{nameless.sha256}"

    def test_the_first_of_the_references_is_the_root_of_the_thread(self):
        message = mail("gmail_reply")
        assert message.thread_root == "<a1@holt-bakery.example>"
        assert len(message.references) == 2

    def test_without_references_the_parent_is_the_root_and_without_one_the_mail_itself(self):
        assert made("In-Reply-To: <p@x.example>\nMessage-ID: <o@x.example>\n").thread_root == "<p@x.example>"
        assert made("In-Reply-To: <p@x.example>\n").references == ("<p@x.example>",)
        assert made("Message-ID: <o@x.example>\n").thread_root == "<o@x.example>"

    @pytest.mark.parametrize(
        ("value", "ids"),
        [
            ("<a@b> <c@d>", ("<a@b>", "<c@d>")),
            ("a@b", ("<a@b>",)),
            ("< a@b >", ("<a@b>",)),
            ("", ()),
            ("<>", ()),
            ("Maren's mail of Monday", ()),
            ("Maren's mail of Monday <a@b>", ("<a@b>",)),
            ("<" + "a" * 2000 + "@b>", ()),
        ],
    )
    def test_message_ids_are_found_in_what_programs_write(self, value, ids):
        assert message_ids(value) == ids

    def test_its_text_forms_show_no_word_of_it(self):
        """W-35: what is logged by accident gives nothing away."""
        message = mail("forwarded_attached")
        shown = f"{message} {message!r} {message.parts} {message.headers} {message.attachments} {[message]}"
        assert message.key in shown
        for secret in ("maren", "Holt", "till", "SN60077", "invoice", "attached mail", "a8@"):
            assert secret not in shown

    def test_it_is_a_value(self):
        assert mail("plain_en") == mail("plain_en")
        assert hash(mail("plain_en")) == hash(mail("plain_en"))
        with pytest.raises(AttributeError):
            mail("plain_en").subject = "another"  # type: ignore[misc]


class TestReceived:
    AT = datetime(2026, 3, 10, 12, tzinfo=timezone(timedelta(hours=1)))

    def test_the_word_of_the_deliverer_comes_first(self):
        message = mail("plain_en", received=self.AT, fallback=datetime(2020, 1, 1, tzinfo=UTC))
        assert message.received_at == self.AT
        assert message.received_at.tzinfo is UTC

    def test_then_the_topmost_received_header(self):
        assert mail("plain_en").received_at == datetime(2026, 3, 10, 8, 15, 4, tzinfo=UTC)

    def test_then_the_fallback_and_never_the_senders_date(self):
        assert made("Date: Tue, 10 Mar 2026 09:15:04 +0100\n", fallback=self.AT).received_at == self.AT
        assert made("Date: Tue, 10 Mar 2026 09:15:04 +0100\n").received_at is None

    @pytest.mark.parametrize(
        "value",
        [
            "by x",
            "by x; yesterday",
            "by x; Tue, 99 Mar 2026 09:15:04 +0100",
            "x; 1 Jan 0000 00:00:00 +9999",
            ";",
        ],
    )
    def test_a_received_header_without_a_date_says_nothing(self, value):
        second = "Received: by y; Tue, 10 Mar 2026 09:15:04 +0100\n"
        assert made(f"Received: {value}\n{second}", fallback=self.AT).received_at == self.AT

    def test_a_time_without_zone_is_a_mistake_of_the_caller(self):
        with pytest.raises(ValueError, match="time zone"):
            mail("plain_en", received=datetime(2026, 3, 10))


class TestHeaders:
    def test_names_are_read_in_any_case_and_values_decoded(self):
        headers = mail("plain_pl_iso8859_2").headers
        assert headers["SUBJECT"] == headers["subject"] == "Skaner nie łączy się"
        assert headers.raw("subject")[0].startswith("=?ISO-8859-2?")
        assert "X-Not-There" not in headers
        assert headers.get("X-Not-There") is None

    def test_of_several_with_one_name_the_first_counts_and_all_are_there(self):
        message = mail("duplicate_headers")
        assert message.subject == "one"
        assert message.headers.all("Subject") == ("one", "two")
        assert message.message_id == "<c8@x.example>"
        assert list(message.headers).count("Subject") == 1
        assert message.body == "<b>x</b>"

    def test_they_cannot_be_changed(self):
        with pytest.raises(TypeError):
            mail("plain_en").headers["Subject"] = "another"  # type: ignore[index]

    def test_folded_lines_are_one_value(self):
        message = mail("folded_garbage")
        assert message.subject == "a b c"
        assert message.message_id == "<c9@x.example>"
        assert message.body == "no colon here\nTo: nobody\n\nbody"

    def test_bytes_that_are_no_ascii_are_guessed(self):
        assert mail("eight_bit_headers").subject == "Ważne: błąd wagi"

    def test_a_character_cut_in_two_by_encoded_words_is_whole_again(self):
        assert mail("rfc2047_oddities").subject.startswith("żółw")

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("=?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
            ("=?utf-8?q?a?= b =?utf-8?q?c?=", "a b c"),
            ("=?nonsense?q?=C5=BC?=", "ż"),
            ("=?utf-8?b?!!!?=", ""),
            ("=?utf-8?q?=ZZ?=", "=ZZ"),
            ("=?utf-8?q?open", "=?utf-8?q?open"),
            ("=?utf-8*pl?q?=C5=BC?=", "ż"),
            ("a=?utf-8?q?b?=c", "abc"),
        ],
    )
    def test_encoded_words_are_read_as_far_as_they_can_be(self, value, text):
        assert decoded(value) == text

    @given(st.text())
    def test_no_value_gives_a_line_break(self, text):
        value = decoded(f"{text}=?utf-8?q?=0D=0ABcc:_x?=")
        assert len(value.splitlines()) <= 1

    def test_headers_beyond_all_measure_are_cut(self):
        message = made("X-Long: " + "a" * 400_000 + "\nSubject: late\n", "body")
        assert message.flags == ("headers_cut",)
        assert message.body == "body"
        assert message.from_address == "maren@holt-bakery.example"


class TestAddresses:
    @pytest.mark.parametrize(
        ("value", "found"),
        [
            ("maren@holt-bakery.example", "maren@holt-bakery.example"),
            ("Maren Holt <Maren@Holt-Bakery.EXAMPLE>", "Maren@holt-bakery.example"),
            ('"Holt, Maren" <maren@holt-bakery.example>', "maren@holt-bakery.example"),
            ("Holt, Maren <maren@holt-bakery.example>", "maren@holt-bakery.example"),
            ("maren@holt-bakery.example (Maren (Holt))", "maren@holt-bakery.example"),
            ("other@x.example <maren@holt-bakery.example>", "maren@holt-bakery.example"),
            ("=?utf-8?q?a=40evil=2Eexample=2C?= <maren@holt-bakery.example>", "maren@holt-bakery.example"),
            ('"maren"@holt-bakery.example', "maren@holt-bakery.example"),
            ('"maren holt"@holt-bakery.example', '"maren holt"@holt-bakery.example'),
            ("bakers: maren@holt-bakery.example;", "maren@holt-bakery.example"),
            ("biuro@żółw.example", "biuro@xn--w-uga1v8h.example"),
            ("o'neil+serial@x.example", "o'neil+serial@x.example"),
        ],
    )
    def test_an_address_is_found_in_what_programs_write(self, value, found):
        assert addresses(value) == (found,)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "maren",
            "@x.example",
            "maren@",
            "maren@localhost",
            "maren@[192.0.2.1]",
            "maren@x..example",
            "maren@-x.example",
            ".maren@x.example",
            "ma ren@x.example",
            "maren@x.example\r\nBcc: a@x.example",
            "maren\n@x.example",
            '"ma\r\nren"@x.example',
            '"a@b"@x.example',
            "a@b@x.example",
            "=?utf-8?q?maren?=@x.example",
            "@relay.example:maren@x.example",
            "bożena@x.example",
            "a" * 65 + "@x.example",
            "a@" + "x" * 300 + ".example",
            "a@" + "ż" * 70 + ".example",
            "a@x.example, b@x.example",
            "<a@x.example>",
            "maren@x.example\x00",
        ],
    )
    def test_anything_else_is_no_address(self, text):
        assert usable_address(text) is None

    @pytest.mark.parametrize(
        ("value", "count"),
        [
            ("a@x.example, b@x.example", 2),
            ("us: a@x.example, b@x.example;", 2),
            ("undisclosed-recipients:;", 0),
            ("<a@x.example> <b@x.example>", 1),
            ("nobody", 0),
            ("<", 0),
            ('"never closed a@x.example', 1),
            ("(never closed a@x.example", 0),
        ],
    )
    def test_addresses_are_counted(self, value, count):
        assert len(addresses(value)) == count

    @given(st.text(alphabet='ab.@<>()",:;\\ \t\r\n=?[]ż', max_size=40))
    def test_no_value_gives_an_address_with_anything_but_an_address_in_it(self, value):
        for one in addresses(value):
            assert one is None or re.fullmatch(r'[\w"\'. =?-]+@[a-z0-9.-]+', one, re.ASCII)

    def test_an_answer_goes_to_the_reply_address_if_it_is_a_single_one(self):
        assert made("Reply-To: desk@holt-bakery.example\n").reply_address == "desk@holt-bakery.example"

    @pytest.mark.parametrize(
        "value",
        ["a@x.example, b@x.example", "nobody", "a@[1.2.3.4]", "", "us: a@x.example, b@x.example;", "<>"],
    )
    def test_else_it_goes_to_the_sender(self, value):
        assert made(f"Reply-To: {value}\n").reply_address == "maren@holt-bakery.example"

    def test_two_reply_addresses_in_two_headers_are_several(self):
        assert mail("duplicate_headers").reply_address == "first@holt-bakery.example"

    def test_a_mail_from_nobody_has_no_addresses(self):
        message = read_message(b"Subject: x\n\nx")
        assert message.from_address is None
        assert message.reply_address is None

    def test_an_encoded_name_is_never_taken_for_an_address(self):
        assert mail("idn").reply_address == "biuro@xn--w-uga1v8h.example"

    def test_a_folded_address_brings_no_line_break(self):
        message = read_message(b"From: maren@holt-bakery.example\r\n \r\n\tBcc: x@y.example\r\n\r\n")
        assert message.from_address is None or not re.search(r"\s", message.from_address)


class TestUnreadable:
    @pytest.mark.parametrize(("name", "reason"), UNREADABLE.items())
    def test_it_says_why(self, name, reason):
        with pytest.raises(Unreadable) as caught:
            mail(name)
        assert caught.value.reason == reason
        assert reason in str(caught.value)

    def test_a_mail_over_the_limit_is_not_read(self):
        data = raw("plain_en")
        with pytest.raises(Unreadable) as caught:
            read_message(data, limit=len(data) - 1)
        assert caught.value.reason == "too_large"
        assert caught.value.size == len(data)
        assert read_message(data, limit=len(data)).size == len(data)

    def test_a_readable_text_beside_an_encrypted_part_is_read(self):
        message = made(
            "Content-Type: multipart/mixed; boundary=b\n",
            "--b\n\nhello\n--b\nContent-Type: application/pkcs7-mime\n\nMIIB\n--b--\n",
        )
        assert message.body == "hello"

    def test_an_encrypted_part_with_nothing_to_read_beside_it_is_not(self):
        with pytest.raises(Unreadable) as caught:
            made(
                "Content-Type: multipart/mixed; boundary=b\n",
                "--b\n\n \n--b\nContent-Type: application/pgp-encrypted\n\nVersion: 1\n--b--\n",
            )
        assert caught.value.reason == "encrypted"


def nested(depth: int, fill: str = "at the bottom") -> bytes:
    opened = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(depth))
    return f"From: maren@holt-bakery.example\n{opened}\n{fill}".encode()


class TestNasty:
    def test_text_under_a_wrong_boundary_is_not_lost(self):
        message = mail("bad_boundary")
        assert "Still here SN48213" in message.body
        assert message.flags == ("structure_broken",)

    def test_a_part_that_breaks_off_is_read_to_its_end(self):
        message = mail("no_end")
        assert message.body == "Cut off SN48213"
        assert message.flags == ("structure_broken",)

    def test_control_characters_are_left_out(self):
        message = mail("nul_bytes")
        assert message.subject == "a b c"
        assert message.body == "SN48213 is[31m broken"

    def test_an_unknown_charset_is_guessed(self):
        message = mail("unknown_charset")
        assert message.subject == "Hello!"
        assert message.body == "Zażółć"
        assert message.flags == ("charset_guessed",)

    def test_an_unknown_encoding_is_taken_for_none(self):
        message = mail("bogus_encoding")
        assert message.body == "Plain after all"
        assert message.flags == ("encoding_unknown",)

    def test_odd_parts_are_taken_for_text(self):
        assert mail("odd_parts").body == "No headers here\n\nstrange type\n\nhtml too"

    def test_parts_are_read_to_a_depth(self):
        assert read_message(nested(40)).body == "at the bottom"
        deep = read_message(nested(200))
        assert deep.body == ""
        assert deep.flags == ("structure_broken",)

    @pytest.mark.parametrize(
        "data",
        [
            nested(5000),
            nested(49, "\n" * 2_000_000),
            b"From: a@x.example\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\n" * 400_000,
            b"From: a@x.example\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b" * 700_000,
            b"From: " + b"(" * 200_000 + b"a@x.example\n\n",
            b"From: " + b"a@x.example, " * 20_000 + b"\n\n",
            b"From: " + b'"' * 200_000 + b"\n\n",
            b"Subject: " + b"=?utf-8?q?a" * 20_000 + b"\n\n",
            b"Subject: " + b"=?utf-8?q?a?= " * 15_000 + b"\n\n",
            b"Subject: x\nContent-Type: text/plain" + b"; a*0*=b" * 30_000 + b"\n\nx",
            b"Subject: x\nContent-Type: text/plain; " + b"(" * 100_000 + b"\n\nx",
            b"Subject: x\nContent-Type: " + b"a" * 100_000 + b"\n\nx",
            b"Subject: x\nReferences: " + b"<a@b>" * 40_000 + b"\n\n",
            b"Subject: x\nReferences: " + b"<a" * 100_000 + b"\n\n",
            b"To: x\n" + b"a:b\n" * 500_000,
            b"Subject: x\n" + b" \n" * 1_000_000,
            b"Subject: x\n\n" + b"\r" * 2_000_000,
            b"Subject: x\n\n" + b">" * 2_000_000,
            b"Subject: x\n\n" + b"On 1 x\n" * 100_000,
            b"Subject: x\n\n" + b"From: x\n" * 100_000,
            b"Subject: x\nContent-Transfer-Encoding: base64\n\n" + b"A=" * 1_000_000,
            b"Subject: x\nContent-Type: text/html\n\n" + b"<a b='" * 300_000,
            b"Subject: x\nContent-Type: text/plain; format=flowed\n\n" + b"> a \n" * 300_000,
        ],
        ids=lambda data: repr(data[-30:]),
    )
    def test_large_hostile_mails_are_read_in_time_that_grows_with_their_size(self, data):
        """Each takes minutes where time grows with the square; the test's own time limit is the measure."""
        assert read_message(data).size == len(data)

    @pytest.mark.parametrize("name", ALL)
    def test_a_mail_cut_off_anywhere_is_still_read(self, name):
        data = raw(name)
        for end in range(0, len(data), 7):
            self._read(data[:end])

    @pytest.mark.parametrize("name", ALL)
    @given(data=st.data())
    @settings(max_examples=examples(40), deadline=None)
    def test_a_mail_with_bytes_changed_is_still_read(self, name, data):
        changed = bytearray(raw(name))
        for _ in range(data.draw(st.integers(0, 8))):
            place = data.draw(st.integers(0, len(changed)))
            changed[place : place + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
        self._read(bytes(changed))

    @given(st.binary(max_size=500))
    @example(b"\x00")
    @example(b"From: \xff\xfe\nSubject: =?utf-7?q?+2AA-?=\n\n")
    @settings(max_examples=examples(500), deadline=None)
    def test_any_bytes_are_read_or_refused(self, data):
        self._read(data)
        self._read(b"From: maren@holt-bakery.example\n" + data)
        self._read(b"Subject: x\nContent-Type: text/html\n\n" + data)
        self._read(b"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n" + data)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(
                    [
                        "From",
                        "Reply-To",
                        "Subject",
                        "Content-Type",
                        "Content-Disposition",
                        "Received",
                        "References",
                        "Message-ID",
                        "Content-Transfer-Encoding",
                    ]
                ),
                st.text(
                    alphabet="ab/;=*0'\"%41?<>@,:()[]\\ \t\r\nżéß\x00\u2028\ud800utf-78qb_",
                    max_size=60,
                ),
            ),
            max_size=6,
        ),
        st.sampled_from(["text/plain", "multipart/mixed; boundary=b", "message/rfc822", "text/html"]),
    )
    @settings(max_examples=examples(500), deadline=None)
    def test_any_headers_are_read(self, fields, kind):
        head = "".join(f"{name}: {value}\n" for name, value in fields).encode("utf-8", "surrogatepass")
        self._read(
            b"To: service@northpine.example\n" + head + f"Content-Type: {kind}\n\n--b\n".encode() + head
        )

    def _read(self, data: bytes) -> None:
        try:
            message = read_message(data)
        except Unreadable:
            return
        assert message.parts[0].kind == "newest"
        assert isinstance(message.headers, Headers)
        for name in message.headers:
            assert not re.search(r"[\r\n\x00]", "".join(message.headers.all(name)))
        for text in (
            message.subject,
            message.body,
            message.message_id or "",
            *(p.text for p in message.parts),
        ):
            text.encode()
            assert "\x00" not in text
        for one in message.attachments:
            one.name.encode()
            assert "/" not in one.name
        assert message.reply_address is None or usable_address(message.reply_address) == message.reply_address


HEAD = b"From: a@b.example\r\nTo: c@d.example\r\nSubject: x\r\n"
MANY = 200_000


@pytest.mark.parametrize(
    "raw",
    [
        b"x" * MANY + b"\r\n" + HEAD + b"\r\nhi",
        HEAD + b"Content-Type: text/html\r\n\r\n<p style='font-size:" + b"0" * MANY + b"!'>hi</p>",
        HEAD + b"Content-Type: text/html\r\n\r\n" + b"<a" * MANY,
        HEAD + b"\r\n" + b" " * MANY + b"x",
        HEAD + b"\r\n" + b"-" * MANY,
        HEAD.replace(b"Subject: x", b"Subject: " + b"=?utf-8?q?" * (MANY // 10)) + b"\r\nhi",
    ],
    ids=["header", "style", "tags", "spaces", "dashes", "words"],
)
def test_a_mail_made_to_keep_a_reader_busy_is_read_like_any_other(raw):
    """Where work grows with the square of the length, this takes minutes."""
    with contextlib.suppress(Unreadable):
        assert read_message(raw).subject is not None
