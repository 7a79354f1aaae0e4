"""Texts to customers: every form is explained by a fact of the run, in every usual wording."""

from __future__ import annotations

from decimal import Decimal

import pytest

from detent.dispatch.prose.contract import LANGUAGES, findings
from detent.dispatch.prose.facts import Amount, Facts
from detent.dispatch.prose.finding import MEANING
from detent.dispatch.prose.names import is_name
from tests.dispatch.prose.drafts import Draft, base, drafts, facts_in

SITUATIONS = ("covered", "expired", "not_found", "no_serial", "redirect", "unavailable")
DEVELOP = drafts("develop", "wrong")


@pytest.mark.parametrize("draft", drafts("develop", "right"), ids=lambda draft: draft.name)
def test_a_right_draft_is_not_refused(draft):
    assert draft.findings() == ()


@pytest.mark.parametrize("draft", DEVELOP, ids=lambda draft: draft.name)
def test_a_wrong_draft_is_refused_by_its_own_layer_alone(draft):
    assert {finding.layer for finding in draft.findings()} == draft.layers


@pytest.mark.parametrize("layer", MEANING)
def test_each_layer_refuses_a_draft_that_no_other_refuses(layer):
    assert any(draft.layers == {layer} for draft in DEVELOP)


@pytest.mark.parametrize("language", ["en", "pl", "de"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_text_a_wrong_claim_is_added_to_is_right(situation, language):
    """Else the claim would not be what is refused."""
    assert Draft("base", situation, language, base(situation, language), frozenset()).findings() == ()


def test_both_figures_of_the_blind_drafts(capsys):
    """None of them was used to write the checks; author of both is the same."""
    right, wrong = drafts("blind", "right"), drafts("blind", "wrong")
    refused = [draft.name for draft in right if draft.findings()]
    passed = [draft.name for draft in wrong if not draft.findings()]
    other = [draft.name for draft in wrong if not draft.layers & {found.layer for found in draft.findings()}]
    with capsys.disabled():
        print(
            f"\nblind drafts: wrong caught {len(wrong) - len(passed)} of {len(wrong)}, "
            f"right refused {len(refused)} of {len(right)}"
        )
    assert len(right) + len(wrong) >= (len(drafts("develop", "right")) + len(DEVELOP)) // 2 - 3
    assert passed == []
    assert other == []
    assert len(refused) <= len(right) // 10


def test_a_finding_holds_nothing_of_the_text():
    text = base("covered", "en", "We refund you 500 EUR, says Zebediah.")
    shown = " ".join(map(str, findings(text, facts_in("covered", "en"))))
    assert shown
    assert "500" not in shown
    assert "Zebediah" not in shown
    assert "line 5" in shown


def test_an_amount_is_explained_by_a_fact_only():
    facts = Facts("en", amounts=(Amount(Decimal("149.90"), "EUR"),))
    assert findings("The repair will cost you 149.90 EUR, as we agreed.", facts) == ()
    assert findings("The repair will cost you 149.95 EUR, as we agreed.", facts) != ()
    assert findings("The repair will cost you 149.90 EUR, as we agreed.", Facts("en")) != ()


def test_a_sentence_of_the_template_is_a_fact_as_a_whole_only():
    facts = Facts("en", sentences=("Our hotline is open from 8 to 16. Call 555-0199.",))
    assert findings("Our hotline is open from 8 to 16.", facts) == ()
    assert findings("Our hotline is open from 8 to 17.", facts) != ()
    assert findings("Our hotline, which is open from 8 to 16, is there.", facts) != ()


def test_a_customer_may_have_the_name_of_a_month():
    facts = Facts("en", names=("June Carter",))
    assert findings("Dear June,\nthank you for your message.", facts) == ()
    assert findings("Dear June,\nyou will hear from us in June.", facts) != ()


@pytest.mark.parametrize("name", ["Anna Kowalska", "J. R. O'Neill", "Ruiz-Hall", "Łukasz Żak"])
def test_what_may_be_a_name_is_one(name):
    assert is_name(name, LANGUAGES.values())


@pytest.mark.parametrize(
    "name", ["You Get Five Hundred Euros", "Full Refund Was Approved", "Call Us Now", "Anna 500", "", "1"]
)
def test_a_claim_in_place_of_a_name_is_none(name):
    """Anybody may call themselves anything, and a composed mail greets them by it."""
    assert not is_name(name, LANGUAGES.values())
