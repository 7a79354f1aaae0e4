"""What is an expression and what is none."""

import pytest

from detent.flows.workflow.expressions import ExpressionError, Reference, parse
from detent.flows.workflow.expressions.tree import written
from detent.kernel.errors import ConfigurationError
from tests.flows.workflow.expressions.corpus import ACCEPTED, FAILING, REFUSED


def short(text):
    return text if len(text) <= 40 else f"{text[:20]}…{len(text)}"


@pytest.mark.parametrize("text", [text for text, *_ in ACCEPTED + FAILING], ids=short)
def test_an_expression_is_read_and_written_the_same(text):
    """D-62"""
    tree = parse(text).tree
    assert parse(written(tree)).tree == tree


@pytest.mark.parametrize(("text", "position", "words"), REFUSED, ids=[short(one) for one, *_ in REFUSED])
def test_what_is_no_expression_is_refused_with_its_place(text, position, words):
    """D-62"""
    with pytest.raises(ExpressionError) as refused:
        parse(text)
    assert words in refused.value.message
    assert refused.value.position == position
    assert f"character {position + 1}" in str(refused.value)
    assert len(str(refused.value)) < 400


def test_the_corpus_is_large_enough_and_says_nothing_twice():
    """D-62"""
    assert len(ACCEPTED) + len(REFUSED) >= 400
    assert len({text for text, _ in ACCEPTED}) == len(ACCEPTED)
    assert len({text for text, *_ in REFUSED}) == len(REFUSED)
    assert not {text for text, _ in ACCEPTED} & {text for text, *_ in REFUSED}


def test_a_text_that_is_no_expression_is_a_configuration_error():
    with pytest.raises(ConfigurationError):
        parse("1 +")


def test_a_long_text_is_shown_around_the_trouble():
    with pytest.raises(ExpressionError) as refused:
        parse("1 or " * 100 + "?")
    assert str(refused.value).endswith("1 or 1 or ?')")
    assert "…" in str(refused.value)


def test_references_are_listed_in_order_with_their_places():
    expression = parse("inputs.a and steps['b-c'].output.d[0] or [item, index]")
    assert expression.references == (
        Reference("inputs", "a", False, 0),
        Reference("steps", "b-c", False, 13),
        Reference("item", None, False, 42),
        Reference("index", None, False, 48),
    )


def test_references_inside_the_first_argument_of_default_are_guarded():
    references = parse(
        "default(len(inputs.a), inputs.b) or default(default(inputs.c, inputs.d), inputs.e)"
    ).references
    assert [(one.name, one.guarded) for one in references] == [
        ("a", True), ("b", False), ("c", True), ("d", True), ("e", False),
    ]  # fmt: skip


def test_an_expression_knows_its_text_without_the_space_around_it():
    assert parse("  inputs.a \n").text == "inputs.a"
    assert parse("  inputs.a \n").references[0].position == 2


def test_equal_texts_are_equal_expressions():
    assert parse("inputs.a") == parse(" inputs.a ")
    assert parse("inputs.a") != parse("inputs.b")
