"""What is new, what is quoted, what is forwarded; every line in one place."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.adapters.mail.parts import Part, says_forwarded, split, without_greeting, without_signature
from tests.examples import examples


def parts(text: str, **options) -> list[tuple[str, int, str]]:
    return [(part.kind, part.depth, part.text) for part in split(text, **options)]


INTROS = [
    "On Tue, 10 Mar 2026 at 09:15, Maren Holt <maren@holt-bakery.example> wrote:",
    "On Tue, 10 Mar 2026 at 09:15, Maren Holt <maren@holt-bakery.example>\nwrote:",
    "On 10/03/2026 09:15, Maren Holt wrote:",
    "W dniu 2026-03-10 o 09:15, Olgierd Pater pisze:",
    "W dniu 10.03.2026 o 09:15, Olgierd Pater napisał(a):",
    "W dniu wtorek, 10 marca 2026 Olgierd Pater <olgierd@klon.example>\nnapisał:",
    "wt., 10 mar 2026 o 09:15 Olgierd Pater <olgierd@klon.example> napisał(a):",
    "Dnia 10 marca 2026 09:15 Olgierd Pater <olgierd@klon.example> napisał(a):",
    "Wiadomość napisana przez Olgierd Pater <olgierd@klon.example> w dniu 10.03.2026, o godz. 09:15:",
    "Am 10.03.2026 um 09:15 schrieb Maren Holt:",
    "Le mar. 10 mars 2026 à 09:15, Maren Holt a écrit :",
    "2026-03-10 9:15 GMT+01:00 Maren Holt <maren@holt-bakery.example>:",
]
BLOCKS = [
    "From: Maren Holt\nSent: Tuesday, 10 March 2026 09:15\nTo: Service\nSubject: Printer",
    "*From:* Maren Holt\n*Sent:* Tuesday\n*To:* Service\n*Subject:* Printer",
    "Od: Olgierd Pater\nWysłano: wtorek, 10 marca 2026\nDo: Serwis\nTemat: Waga",
    "Od: Olgierd Pater\nData: wtorek, 10 marca 2026\nDo: Serwis\nDW: Ktoś\nTemat: Waga",
    "________________________________\nFrom: Maren Holt\nSent: Tuesday\nTo: Service\nSubject: Printer",
    "-----Original Message-----\nFrom: Maren Holt\nSent: Tuesday\nTo: Service\nSubject: Printer",
    "-----Original Message-----",
    "-----Wiadomość oryginalna-----\nOd: Olgierd Pater\nWysłano: wtorek\nDo: Serwis\nTemat: Waga",
    "Von: Maren Holt\nGesendet: Dienstag\nAn: Service\nBetreff: Drucker",
    "From: Maren Holt <maren@x.example>\nDate: Tuesday\nTo: A <a@x.example>,\n  B <b@x.example>\nSubject: x",
]
FORWARDS = [
    "---------- Forwarded message ---------\nFrom: Maren\nDate: Tuesday\nSubject: x\nTo: y",
    "-------- Forwarded Message --------\nSubject: x\nDate: Tuesday\nFrom: Maren\nTo: y",
    "Begin forwarded message:\n\nFrom: Maren\nSubject: x\nDate: Tuesday\nTo: y",
    "---------- Wiadomość przekazana ----------\nOd: Olgierd\nData: wtorek\nTemat: x\nDo: y",
    "-------- Treść przekazanej wiadomości --------\nTemat: x\nData: wtorek\nNadawca: Olgierd\nAdresat: y",
    "Początek przekazywanej wiadomości:\n\nOd: Olgierd\nTemat: x\nData: wtorek\nDo: y",
    "----- Forwarded by Olgierd Pater/Klon on 10.03.2026 09:15 -----",
]


class TestQuoted:
    def test_a_text_with_nothing_older_in_it_is_all_new(self):
        assert split("one\n\ntwo") == (Part("newest", "one\n\ntwo", 0),)
        assert split("") == (Part("newest", "", 0),)

    @pytest.mark.parametrize("intro", INTROS)
    def test_lines_with_marks_are_quoted_with_the_line_that_introduces_them(self, intro):
        assert parts(f"new\n\n{intro}\n\n> old\n> older\n") == [
            ("newest", 0, "new"),
            ("quoted", 1, f"{intro}\n\nold\nolder"),
        ]

    @pytest.mark.parametrize("intro", INTROS + BLOCKS)
    def test_after_the_line_that_introduces_it_a_mail_without_marks_is_quoted(self, intro):
        assert parts(f"new\n\n{intro}\n\nold\n") == [("newest", 0, "new"), ("quoted", 1, f"{intro}\n\nold")]

    def test_an_answer_below_or_between_quotes_is_new(self):
        text = "On 10 Mar 2026 X wrote:\n> one\n\nanswer one\n\n> two\n\nanswer two"
        assert parts(text) == [
            ("newest", 0, "answer one\n\nanswer two"),
            ("quoted", 1, "On 10 Mar 2026 X wrote:\none\n\ntwo"),
        ]

    def test_older_mails_lie_deeper(self):
        text = "new\n> one\n>> two\n> > > three\n\n-----Original Message-----\nfour\n> five"
        assert parts(text) == [
            ("newest", 0, "new"),
            ("quoted", 1, "one\n\n-----Original Message-----\nfour"),
            ("quoted", 2, "two\n\nfive"),
            ("quoted", 3, "three"),
        ]

    def test_mails_below_each_other_lie_one_deeper_each(self):
        text = "new\n" + "\n".join(f"{block}\n\nmail {n}" for n, block in enumerate(BLOCKS[:4], 1))
        assert [(depth, text.split("\n")[-1]) for _, depth, text in parts(text)] == [
            (0, "new"),
            *((n, f"mail {n}") for n in range(1, 5)),
        ]

    def test_an_introduction_inside_a_quote_does_not_reach_beyond_it(self):
        text = "> one\n> On 9 Mar 2026 X wrote:\n> two\n\nnew"
        assert parts(text) == [
            ("newest", 0, "new"),
            ("quoted", 1, "one"),
            ("quoted", 2, "On 9 Mar 2026 X wrote:\ntwo"),
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "On the label somebody wrote:\nSN48213",
            "From: Maren\nSubject: our printer\n\nIt is broken.",
            "From: the bakery\nTo: the shop",
            "Am I right that it is covered?",
            "Do: nothing\nData: 10.03.2026",
            "5 > 3 and 3 < 5",
            "--\nMaren",
            "----------\nnot a mail\n----------",
            "Forwarded by my colleague Tobin",
            "On 10 Mar 2026 it stopped.\nNobody wrote: why?",
        ],
    )
    def test_what_only_looks_like_an_older_mail_is_new(self, text):
        assert parts(text) == [("newest", 0, text)]


class TestForwarded:
    @pytest.mark.parametrize("opening", FORWARDS)
    def test_a_forwarded_mail_says_so(self, opening):
        assert parts(f"see below\n\n{opening}\n\nSN1\n> older") == [
            ("newest", 0, "see below"),
            ("forwarded", 1, f"{opening}\n\nSN1"),
            ("forwarded", 2, "older"),
        ]

    @pytest.mark.parametrize("opening", INTROS + BLOCKS)
    def test_or_the_subject_says_it(self, opening):
        assert parts(f"see below\n\n{opening}\n\nSN1", forwarded=True) == [
            ("newest", 0, "see below"),
            ("forwarded", 1, f"{opening}\n\nSN1"),
        ]

    def test_a_forwarded_mail_with_marks_ends_with_them(self):
        assert parts("Begin forwarded message:\n\n> From: X\n> Date: Y\n> To: Z\n>\n> SN1\n\ncomment") == [
            ("newest", 0, "comment"),
            ("forwarded", 1, "Begin forwarded message:\n\nFrom: X\nDate: Y\nTo: Z\n\nSN1"),
        ]

    def test_a_forwarded_mail_in_a_quote_is_forwarded(self):
        text = "> ---------- Forwarded message ---------\n> From: X\n>\n> SN1\n\nnew"
        assert [(kind, depth) for kind, depth, _ in parts(text)] == [("newest", 0), ("forwarded", 1)]

    @pytest.mark.parametrize("subject", ["Fwd: x", "FW: x", "PD: x", "pd:x", "WG: x", "[Fwd: x]", " Fw : x"])
    def test_subjects_of_forwarded_mails(self, subject):
        assert says_forwarded(subject)

    @pytest.mark.parametrize("subject", ["Re: Fwd: x", "Forward gear", "", "PDF: x", "fw update fails"])
    def test_other_subjects(self, subject):
        assert not says_forwarded(subject)


lines = st.one_of(
    st.sampled_from(["", " ", ">", "> ", "-- ", "--", *INTROS, *BLOCKS, *FORWARDS]),
    st.text(alphabet="> -:abFOn1wrote\t", max_size=20),
    st.builds("{} {}".format, st.sampled_from([">", ">>", "> >"]), st.sampled_from([*INTROS, *BLOCKS, "x"])),
)


class TestNothingIsLost:
    @given(st.lists(lines, max_size=25).map("\n".join), st.booleans())
    @settings(max_examples=examples(600))
    def test_every_line_is_in_exactly_one_part(self, text, forwarded):
        found = split(text, forwarded=forwarded)
        assert said("\n".join(part.text for part in found)) == said(text)

    @given(st.lists(lines, max_size=25).map("\n".join), st.booleans())
    def test_there_is_one_part_of_each_kind_and_depth_newest_first(self, text, forwarded):
        found = split(text, forwarded=forwarded)
        order = [(("newest", "quoted", "forwarded").index(part.kind), part.depth) for part in found]
        assert order[0] == (0, 0)
        assert order == sorted(set(order))
        assert all(part.text for part in found[1:])

    def test_a_part_shows_no_word(self):
        assert repr(Part("quoted", "SN48213", 2)) == "Part(quoted, depth 2, 7 characters)"


def said(text: str) -> Counter[str]:
    """The lines that say something, whatever marks stand before them."""
    stripped = (line.lstrip("> \t").strip() for line in text.split("\n"))
    return Counter(line for line in stripped if line)


class TestSignatures:
    @pytest.mark.parametrize(
        "signature",
        [
            "-- \nMaren Holt\nHolt Bakery",
            "--\nMaren Holt",
            "Kind regards,\nMaren Holt\nHolt Bakery\n+48 600 100 200\nmaren@holt-bakery.example",
            "Best regards",
            "Thanks, Maren",
            "Thank you in advance!\nMaren",
            "Yours sincerely\n\nMaren Holt",
            "Pozdrawiam\nOlgierd Pater",
            "Pozdrawiam, Olgierd",
            "Z poważaniem\nOlgierd Pater\nDelikatesy Pod Klonem\nul. Klonowa 1",
            "Z góry dziękuję\nOlgierd",
            "Dziękuję\nPozdrawiam serdecznie\nJagna",
            "Sent from my iPhone",
            "Wysłano z telefonu Samsung",
            "Regards\nMaren\n\nSent from my iPhone",
            "-- \n" + "a long disclaimer\n" * 40,
        ],
    )
    def test_it_is_taken_off(self, signature):
        assert without_signature(f"The till is dead.\n\n{signature}\n") == "The till is dead."

    @pytest.mark.parametrize(
        "text",
        [
            "S/N DR-90214-C, thanks",
            "Thanks for the printer\nIt is broken",
            "Regards to the team. The till is dead.",
            "Thanks\n" + "\n".join(f"line {n} of a long description" for n in range(12)),
            "Thanks\n" + "This line is far too long to be a part of anybody's signature, is it not?",
            "Dziękuję za szybką odpowiedź",
            "Best before 2026",
            "a -- b",
        ],
    )
    def test_text_is_not(self, text):
        assert without_signature(text) == text

    @given(st.text())
    def test_what_is_left_is_the_beginning(self, text):
        assert text.startswith(without_signature(text))


class TestGreetings:
    @pytest.mark.parametrize(
        ("text", "rest"),
        [
            ("Hello,\n\nit is broken", "it is broken"),
            ("Hi Maren and team!\nit is broken", "it is broken"),
            ("Dear Sir or Madam, my till is dead", "my till is dead"),
            ("Good morning\nx", "x"),
            ("Hello my scanner stopped", "my scanner stopped"),
            ("Dzień dobry, skaner nie działa", "skaner nie działa"),
            ("Dzien dobry!\nskaner", "skaner"),
            ("Szanowni Państwo,\nproszę o pomoc", "proszę o pomoc"),
            ("Szanowna Pani Anno,\n\nproszę", "proszę"),
            ("Witam serdecznie\nx", "x"),
            ("Witam,", ""),
            ("Hello", ""),
        ],
    )
    def test_it_is_taken_off_and_the_rest_of_the_line_stays(self, text, rest):
        assert without_greeting(text) == rest

    @pytest.mark.parametrize(
        "text", ["History of the till", "The till says Hello", "", "Dearly beloved", "SN1"]
    )
    def test_text_is_not(self, text):
        assert without_greeting(text) == text

    @given(st.text())
    def test_what_is_left_is_the_end(self, text):
        assert text.endswith(without_greeting(text))
