"""Scope: what is served here, what is not, and whether a mail says what is wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.apps.warranty.domain.scope import (
    LONGEST_DESCRIPTION,
    description_missing,
    issue_description,
    scope_of,
)
from detent.apps.warranty.domain.words import STARTING, WORDS, fold, found, spaced
from detent.kernel.errors import DefinitionError
from tests.examples import examples


def parts(newest: str, forwarded: str | None = None) -> list[Any]:
    made = [SimpleNamespace(kind="newest", text=newest)]
    return made if forwarded is None else [*made, SimpleNamespace(kind="forwarded", text=forwarded)]


class TestWords:
    def test_case_accents_and_forms_of_letters_do_not_matter(self):
        assert fold("Błąd ŻÓŁĆ ﬁx") == "blad zolc fix"
        assert spaced("nie\u00a0  DZIAŁA\n") == "nie dziala"

    def test_an_entry_is_the_beginning_of_a_word(self):
        assert found(("defect",), spaced("a defective unit")) == ("defect",)
        assert found(("defect",), spaced("undefective")) == ()

    def test_an_entry_may_be_a_phrase_over_any_space(self):
        assert found(("not work",), spaced("does not\n   working")) == ("not work",)

    def test_an_entry_with_an_equals_sign_is_a_whole_word(self):
        assert found(WORDS.fault, spaced("Regards, James")) == ()
        assert found(WORDS.fault, spaced("a paper jam.")) == ("=jam",)
        assert found(WORDS.fault, spaced("a deadline")) == ()

    def test_an_apostrophe_may_be_bent_or_missing(self):
        for text in ("it doesn't print", "it doesn’t print", "it doesnt print"):
            assert found(WORDS.fault, spaced(text)) == ("doesn't",)

    def test_settings_add_to_a_list(self):
        words = WORDS.extended(
            {"fault": ["kaput"], "topic": {"training": ["course"], "invoice": ["rachunk"]}}
        )
        assert scope_of("", parts("it is kaput"), words).hits == {"fault": ("kaput",)}
        assert scope_of("", parts("a course please"), words).topic == "training"
        assert scope_of("", parts("proszę o rachunki"), words).topic == "invoice"
        assert WORDS.fault[-1] != "kaput"

    def test_topics_may_be_given_as_a_plain_list(self):
        assert scope_of("", parts("leasing?"), WORDS.extended({"topic": ["leasing"]})).topic == "leasing"

    def test_every_wrong_setting_is_named_at_once(self):
        with pytest.raises(DefinitionError) as caught:
            WORDS.extended({"fualt": ["x"], "safety": "smoke", "topic": {"a": [""]}, "warranty": [3]})
        text = str(caught.value)
        assert len(caught.value.problems) == 4
        assert "Did you mean 'fault'?" in text
        assert "warranty.words.safety: must be a list of words" in text


class TestScope:
    @pytest.mark.parametrize(
        ("subject", "text", "kind", "topic"),
        [
            ("", "", "in_scope", None),
            ("Pomoc", "", "in_scope", None),
            ("", "What are your opening hours?", "topic", "opening-hours"),
            ("Godziny otwarcia", "", "topic", "opening-hours"),
            ("Kopia faktury", "Proszę o kopię faktury za drukarkę SN48213", "topic", "invoice"),
            ("Faktura", "drukarka nie działa, faktura w załączniku", "in_scope", None),
            ("Invoice", "my repair under warranty", "in_scope", None),
            ("Delivery", "smoke comes out of it", "in_scope", None),
            ("You have won!", "The lottery has picked you", "spam", None),
            ("", "Wygrałeś! Odbierz nagrodę", "spam", None),
            ("", "casino printer is broken", "in_scope", None),
            ("", "Limited offer, unsubscribe below", "spam", None),
            ("", "click here to unsubscribe", "spam", None),
            ("", "Please unsubscribe me", "in_scope", None),
            ("", "We moved to Seoul, unsubscribe", "in_scope", None),
            ("", "I want to buy a scanner", "topic", "sales"),
            ("", "Chcę kupić skaner", "topic", "sales"),
            ("", "Hasło do konta", "topic", "password"),
        ],
    )  # fmt: skip
    def test_what_a_mail_is_about(self, subject, text, kind, topic):
        scope = scope_of(subject, parts(text))
        assert (scope.kind, scope.topic) == (kind, topic)

    def test_two_weak_words_of_one_topic_tell_it_unless_a_serial_number_is_there(self):
        words = WORDS.extended({"topic_weak": {"rent": ["festival", "three days"]}})
        assert scope_of("", parts("for a festival"), words).kind == "in_scope"
        assert scope_of("", parts("three days, for a festival"), words).topic == "rent"
        assert scope_of("", parts("three days at a festival, S/N SN48213"), words).kind == "in_scope"
        assert scope_of("", parts("for a festival and festivals"), words).kind == "in_scope"

    @pytest.mark.parametrize(
        ("complaint", "device"),
        [
            ("The invoice does not show our VAT number.", "The till does not show the invoice."),
            ("There is a problem with my order status.", "There is a problem with the printer I ordered."),
            ("The delivery is stuck in customs.", "Since delivery, paper gets stuck in the printer."),
            ("The price list cannot be opened.", "The scale on your price list cannot be zeroed."),
            ("Mam problem z zamówieniem.", "Mam problem z drukarką z ostatniej dostawy."),
            ("Stary cennik nie da się otworzyć.", "Kasa z cennika: szuflada nie da się zamknąć."),
        ],
    )  # fmt: skip
    def test_a_complaint_is_a_fault_only_where_a_device_is_named(self, complaint, device):
        assert scope_of("", parts(complaint)).kind == "topic"
        assert scope_of("", parts(device)).kind == "in_scope"
        assert scope_of("", parts(complaint), STARTING).kind == "topic"

    def test_what_only_a_signature_says_sends_nobody_away(self):
        signed = "The lid squeezes my hand.\n\nRegards\nAda\nInvoice and delivery desk"
        assert scope_of("", parts(signed)).kind == "in_scope"
        assert scope_of("", parts("-- \nInvoice desk")).topic == "invoice"

    def test_a_notice_about_confidentiality_is_no_fault(self):
        notice = (
            "This e-mail is confidential. If you have received it in error, notify the sender and delete it."
        )
        assert scope_of("", parts(f"What are your opening hours?\n\n{notice}")).topic == "opening-hours"

    def test_legacy_mode_keeps_the_lists_it_began_with(self):
        assert not STARTING.topic_weak
        assert scope_of("", parts("do you sell paper?")).topic == "sales"
        assert scope_of("", parts("do you sell paper?"), STARTING).kind == "in_scope"

    def test_the_forwarded_part_is_read_when_the_newest_is_empty(self):
        assert scope_of("", parts(" \n", "what are your opening hours")).kind == "topic"
        assert scope_of("", parts("see below", "what are your opening hours")).kind == "in_scope"

    def test_the_hits_of_each_list_are_told(self):
        hits = scope_of("Gwarancja", parts("drukarka nie działa, dym")).hits
        assert hits == {"fault": ("nie dziala",), "safety": ("dym",), "warranty": ("gwaranc",)}

    def test_quoted_text_is_nobodys_topic(self):
        quoted = SimpleNamespace(kind="quoted", text="your invoice")
        assert scope_of("", [*parts("thanks"), quoted]).kind == "in_scope"

    @given(st.text(), st.text())
    @settings(max_examples=examples(200), deadline=None)
    def test_any_text_has_a_scope(self, subject, text):
        assert scope_of(subject, parts(text)).kind in ("in_scope", "spam", "topic")
        assert description_missing(subject, parts(text)) in (True, False)
        assert 0 < len(issue_description(text)) <= LONGEST_DESCRIPTION


class TestDescription:
    @pytest.mark.parametrize(
        ("subject", "text"),
        [
            ("", ""),
            ("Pomoc", ""),
            ("Warranty", "S/N DR-90214-C, thanks"),
            ("", "My device: SN60077."),
            ("Gwarancja", "Dzień dobry,\nProszę o pilną pomoc, nr seryjny HV300-1187\n\nPozdrawiam\nLudwik"),
            ("", "Proszę o pilną pomoc, nr seryjny HV300-1187\nLudwik Sarna"),
            ("", "nr seryjny 4471\n\nZofia Miedza"),
            ("Re: Printer", "Hello,\nserial number AB12345\n-- \nHolt Bakery, Mill Lane, all kinds of bread"),
            ("", "Hello there,\n\nSN48213\n\nKind regards,\nMaren Holt\nHolt Bakery\n12 Mill Lane"),
        ],
    )  # fmt: skip
    def test_a_greeting_a_serial_and_a_name_describe_nothing(self, subject, text):
        assert description_missing(subject, parts(text))

    @pytest.mark.parametrize(
        ("subject", "text"),
        [
            ("", "SN48213 leaks"),
            ("Printer broken", "SN48213"),
            ("", "SN48213, smoke!"),
            ("", "It feeds two labels at once, SN48213"),
            ("Printer prints every label two times", "SN48213"),
            ("", "Thanks for the quick help with the other one, now this prints nothing"),
            ("", "Hello, my scale shows too much weight since Monday"),
        ],
    )
    def test_a_fault_or_a_few_words_describe_it(self, subject, text):
        assert not description_missing(subject, parts(text))

    def test_a_ticket_gets_clean_text(self):
        assert issue_description("a\x00b\u202e\tc\r\n\n\n\n d \x1b[0m") == "ab c\n\n d [0m"

    def test_a_ticket_gets_no_more_than_it_holds(self):
        long = issue_description("x" * 5000)
        assert len(long) == LONGEST_DESCRIPTION
        assert long.endswith("…")
        assert issue_description(long) == long

    def test_a_ticket_without_description_says_so_in_the_customers_language(self):
        assert issue_description(" \n\x00") == issue_description("", "fr") == "No description given."
        assert issue_description("", "pl") == "Brak opisu."


@pytest.mark.parametrize(
    "text", ["smoke", "it sparks", "czuć dym", "pali się", "burning smell", "porażenie prądem"]
)
def test_danger_is_seen(text):
    assert "safety" in scope_of("", parts(text)).hits
    assert "safety" in scope_of(text, parts("")).hits


def test_a_plain_fault_is_no_danger():
    assert "safety" not in scope_of("", parts("the screen is blank")).hits
