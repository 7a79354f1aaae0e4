"""Language, names, numbers in words and codes are closed worlds: what nobody knows is refused."""

from __future__ import annotations

import pytest

from detent.dispatch.prose.contract import findings
from detent.dispatch.prose.facts import Facts
from tests.dispatch.prose.drafts import Draft, base, drafts, facts_in


def layers(language: str, sentence: str) -> set[str]:
    """The layers that refuse a sentence in the middle of a right text."""
    text = base("covered", language, sentence)
    return {found.layer for found in Draft("added", "covered", language, text, frozenset()).findings()}


@pytest.mark.parametrize(
    "text",
    [
        "Hyvä vastaanottaja,\n\nSN30517 korjataan takuun puitteissa ja palautetaan. Numero on TKT-10001.",
        "Kedves Maren!\n\nA SN30517 javítása garanciális, és kollégánk keresni fogja. Jegy: TKT-10001.",
        "Kallis klient,\n\nSN30517 parandatakse garantii korras ning saadetakse. Number on TKT-10001.",
        "Annwyl gwsmer,\n\nmae SN30517 dan warant a byddwn yn cysylltu. Rhif y tocyn yw TKT-10001.",
    ],
    ids=["Finnish", "Hungarian", "Estonian", "Welsh"],
)
@pytest.mark.parametrize("language", ["en", "pl", "de"])
def test_a_text_in_a_language_that_nobody_knows_is_refused(language, text):
    assert "language" in {found.layer for found in findings(text, facts_in("covered", language))}


@pytest.mark.parametrize("language", ["en", "pl", "de"])
@pytest.mark.parametrize(
    "sentence",
    [
        "Brzy se vám ozve náš technik.", "Vi hör av oss snart igen.", "Vă vom contacta în curând.",
        "Laite palautetaan teille korjattuna.", "Bedankt.", "Grazie tante.", "Tusen takk.", "Díky moc!",
    ],
)  # fmt: skip
def test_a_foreign_sentence_is_refused_however_short(language, sentence):
    assert "language" in layers(language, sentence)


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "We met Eleanor about it."), ("en", "Bring it to our branch in Norwich."),
        ("en", "Dana Whitfield looks after it."), ("en", "Your contact: Ruben."),
        ("en", "I am Oscar, by the way."),
        ("en", "It was given to Priya today."), ("en", "Nora"), ("en", "Ask Theo P. about it."),
        ("pl", "Sprawą zajmie się Bożena."), ("pl", "Irena Dudek prowadzi tę sprawę."),
        ("pl", "Prosimy przywieźć je na ul. Leśną."), ("pl", "Nasz oddział jest w Gdyni."),
    ],
)  # fmt: skip
def test_a_capitalised_word_inside_a_sentence_is_explained(language, sentence):
    assert "names" in layers(language, sentence)


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "Our Customer Service will help. The Support Team knows your device."),
        ("en", "It is the Kestrel K200 of Maren Holt. I'm glad to help you."),
        ("en", "The Warranty Department answers in English and Polish."),
        ("pl", "Nasz Dział Serwisu odezwie się do Państwa. Życzymy Pani miłego dnia."),
        ("de", "Der Techniker sieht sich das Gerät und die Anzeige genau an."),
    ],
)
def test_words_that_mails_write_with_a_capital_letter_name_nobody(language, sentence):
    assert layers(language, sentence) == set()


def test_a_word_of_the_steps_own_text_is_known():
    text = "Hello,\n\nplease write to our Bureau about it.\n\nThank you for your message."
    assert findings(text, Facts("en")) != ()
    assert findings(text, Facts("en", sentences=("The Bureau is open.",))) == ()


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "The bill is fifteen."), ("en", "We ask for sixty-five."),
        ("en", "That makes three thousand."),
        ("en", "The fee is halved for you."), ("en", "You pay two thirds of the price."),
        ("en", "Your cover is doubled."), ("en", "Hold the button for five seconds."),
        ("en", "Dozens of them were sold."),
        ("pl", "Opłata to trzydzieści."), ("pl", "Zapłacą Państwo połowę ceny."),
        ("pl", "Potrajamy gwarancję."),
        ("pl", "Proszę odczekać pięć sekund."),
        ("de", "Die Gebühr ist achtzehn."), ("de", "Sie zahlen nur die Hälfte."),
        ("de", "Die Garantie wird verdoppelt."),
        ("de", "Warten Sie bitte zehn Sekunden."),
    ],
)  # fmt: skip
def test_a_number_in_words_is_explained_with_or_without_a_unit(language, sentence):
    assert "number_words" in layers(language, sentence)


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "There are two places to look, and one of them is at the back."),
        ("en", "A hand with the label helps, and both halves of it fit."),
        ("pl", "Są dwa miejsca, w których można go szukać."),
        ("de", "Es gibt zwei Stellen, an denen sie steht."),
    ],
)
def test_a_small_number_is_a_figure_of_speech(language, sentence):
    assert layers(language, sentence) == set()


@pytest.mark.parametrize(
    ("language", "sentence", "layer"),
    [
        ("pl", "Odezwiemy się popołudniu.", "days"), ("pl", "Zadzwonimy po obiedzie.", "days"),
        ("pl", "Oddamy je zimą.", "days"), ("en", "We call you at lunch.", "days"),
        ("en", "It is back this winter.", "days"), ("de", "Wir rufen Sie abends an.", "days"),
        ("en", "It costs two grand.", "money"), ("pl", "To kosztuje trzy dychy.", "money"),
        ("pl", "To będzie tysiak.", "money"), ("de", "Das kostet einen Tausender.", "money"),
        ("en", "Say JUMBO to us.", "links"), ("en", "Its number is MCMX.", "links"),
        ("en", "Read h e l p now.", "links"), ("en", "See www of ours.", "links"),
        ("pl", "Piszcie na biuro małpa firma kropka pl.", "links"),
        ("en", "See northpine/shop for it.", "links"),
    ],
)  # fmt: skip
def test_what_has_a_form_is_found_in_other_clothes(language, sentence, layer):
    assert layer in layers(language, sentence)


@pytest.mark.parametrize("blank", ["\u2800", "\ufffc", "\u3164", "\U0001d159", "\u2423"])
def test_letters_that_look_blank_are_refused(blank):
    assert layers("en", f"Thank{blank}you.") == {"letters"}


@pytest.mark.parametrize("sign", ["😀", "✓", "→", "°", "•", "–", "…"])
def test_signs_and_pictures_that_mails_have_are_not(sign):
    assert "letters" not in layers("en", f"Thank you {sign} for it.")


def test_right_drafts_are_refused_for_none_of_it():
    refused = [
        draft.name for part in ("develop", "blind") for draft in drafts(part, "right") if draft.findings()
    ]
    assert refused == []
