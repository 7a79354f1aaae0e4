"""The language of a mail, and which of its lines are only politeness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.apps.warranty.domain.language import (
    language_of,
    without_greeting,
    without_notices,
    without_signature,
)
from tests.examples import examples


def newest(text: str) -> list[Any]:
    return [SimpleNamespace(kind="newest", text=text)]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The printer is broken, please help", "en"),
        ("Drukarka nie działa, proszę o pomoc", "pl"),
        ("drukarka nie dziala, prosze o pomoc", "pl"),
        ("nr seryjny LM-77-0412", "pl"),
        ("serial number AB12345", "en"),
        ("S/N DR-90214-C, thanks", "en"),
        ("Drukarka SN48213 zepsuta, gwarancja?", "pl"),
        ("Żółw", "pl"),
        ("SN48213", "en"),
        ("", "en"),
        ("My scale shows too much.\n\nPozdrawiam serdecznie\nJagna Wrzos\nSklep na rogu, ul. Długa 5", "en"),
        ("My scale shows too much.\n-- \nJagna Wrzos, Sklep przy rynku, nie odpisuj na ten adres", "en"),
        ("Waga zawyża wynik.\n\nBest regards\nthe team of the shop", "pl"),
    ],
)
def test_the_language_is_that_of_the_words(text, language):
    assert language_of(newest(text)) == language


def test_without_any_sign_the_default_decides():
    assert language_of(newest("SN48213"), default="pl") == "pl"
    assert language_of([], default="pl") == "pl"


def test_a_tie_is_broken_by_a_polish_letter():
    assert language_of(newest("please proszę")) == "pl"
    assert language_of(newest("please prosze")) == "en"


def test_quoted_text_does_not_count():
    quoted = SimpleNamespace(kind="quoted", text="Dzień dobry, proszę o numer seryjny, nie ma go")
    assert language_of([*newest("It is on the back"), quoted]) == "en"


def test_where_the_newest_part_is_empty_subject_and_forwarded_part_speak():
    assert language_of(newest(" "), "Proszę o pomoc") == "pl"
    forwarded = SimpleNamespace(kind="forwarded", text="Drukarka nie działa")
    assert language_of([*newest(""), forwarded], "Fwd:") == "pl"


@given(st.text())
@settings(max_examples=examples(200), deadline=None)
def test_any_text_has_a_language(text):
    assert language_of(newest(text)) in ("en", "pl")
    without_greeting(text)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Hello,\nit broke", "it broke"),
        ("Hello Anna, it broke", "it broke"),
        ("Dzień dobry,\nnie działa", "nie działa"),
        ("Dzień dobry\nnie działa", "nie działa"),
        ("Szanowni Państwo, nie działa", "nie działa"),
        ("Dear Sir or Madam,\nit broke", "it broke"),
        ("It broke", "It broke"),
        ("History repeats", "History repeats"),
        ("Hi my till broke", "my till broke"),
        ("", ""),
    ],
)
def test_a_greeting_is_taken_off(text, left):
    assert without_greeting(text).strip() == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It broke.\n\nRegards\nJo Brown", "It broke."),
        ("It broke.\nThanks!\nJo", "It broke."),
        ("It broke.\n--\nJo Brown\nlong motto of the shop", "It broke."),
        ("Nie działa.\nZ poważaniem,\nJan Nowak\ntel. 600700800", "Nie działa."),
        ("It broke.\n\nJo Brown", "It broke."),
        ("Thanks for your help, but it broke again", "Thanks for your help, but it broke again"),
        ("Jo Brown", "Jo Brown"),
    ],
)  # fmt: skip
def test_a_signature_is_taken_off(text, left):
    assert without_signature(text).strip() == left


NOTICE = (
    "This message is confidential and intended only for the addressee. If you have received it in error, "
    "please delete it."
)
KLAUZULA = (
    "Administratorem Państwa danych osobowych jest Klon. Dane są przetwarzane zgodnie z RODO w celu kontaktu."
)


def test_a_notice_below_a_mail_is_not_its_language():
    assert language_of(newest(f"Drukarka nie drukuje.\n\n{NOTICE}")) == "pl"
    assert language_of(newest(f"The printer is dead.\n\n{KLAUZULA}")) == "en"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"It broke.\n\n{NOTICE}\n\nJo", "It broke. Jo"),
        (f"Nie działa.\n\n{KLAUZULA}", "Nie działa."),
        ("The display says: message confidential.", "The display says: message confidential."),
        ("Wiadomość na ekranie: adresat nieznany. " * 3, "Wiadomość na ekranie: adresat nieznany. " * 3),
    ],
)
def test_notices_are_taken_off_and_nothing_else(text, left):
    assert " ".join(without_notices(text).split()) == left.strip()
