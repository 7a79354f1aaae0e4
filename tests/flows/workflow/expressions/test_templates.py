"""Texts with expressions in them."""

import pytest

from detent.flows.workflow.expressions import EvaluationError, Expression, ExpressionError, Scope, Template
from tests.flows.workflow.expressions.corpus import SCOPE

TEXTS = [
    ("", ""),
    ("plain", "plain"),
    ("$", "$"),
    ("$$", "$$"),
    ("${", "${"),
    ("${ {", "${ {"),
    ("}} {{ }}", "}} {{ }}"),
    ("{{ inputs.name }}", "{{ inputs.name }}"),
    ("${{ inputs.name }}", "Ada"),
    ("${{inputs.name}}", "Ada"),
    ("${{\n  inputs.name\n}}", "Ada"),
    ("${{ inputs.count }}", 3),
    ("${{ inputs.yes }}", True),
    ("${{ inputs.nothing }}", None),
    ("${{ inputs.list }}", [1, 2, 3]),
    ("${{ inputs.list[0] }}", 1),
    ("${{ item }}", {"id": 7, "tags": ["x", "y"]}),
    ("a ${{ inputs.name }}", "a Ada"),
    ("${{ inputs.name }} b", "Ada b"),
    ("a${{ inputs.name }}b${{ inputs.count }}c", "aAdab3c"),
    ("${{ inputs.name }}${{ inputs.count }}", "Ada3"),
    ("${{ inputs.nothing }}${{ inputs.nothing }}", ""),
    ("[${{ inputs.nothing }}]", "[]"),
    ("${{ inputs.yes }}/${{ inputs.no }}", "true/false"),
    ("${{ 1 }} ${{ 1.0 }} ${{ 0.5 }} ${{ -2 }}", "1 1.0 0.5 -2"),
    ("${{ 100000000000000000000000.0 }}!", "1e+23!"),
    ("files: ${{ steps.stage.output.files }}", 'files: ["a.py","b.py"]'),
    ("map: ${{ inputs.map.b }}", 'map: {"c":[10,20]}'),
    ("record: ${{ steps.report.output }}", 'record: {"title":"Title","rows":[7,8]}'),
    ("${{ [1, 'ü', null, true] }}.", '[1,"ü",null,true].'),
    ("import-${{ index }}", "import-2"),
    # space around a lone expression is text
    (" ${{ inputs.count }}", " 3"),
    ("${{ inputs.count }}\n", "3\n"),
    ("${{ inputs.list }} ", "[1,2,3] "),
    # the escape
    ("$${{ inputs.name }}", "${{ inputs.name }}"),
    ("$${{", "${{"),
    ("$$${{ x", "$${{ x"),
    ("a $${{ b }} ${{ inputs.name }}", "a ${{ b }} Ada"),
    ("${{ inputs.name }}$${{ b }}", "Ada${{ b }}"),
    ("$${{$${{", "${{${{"),
    ("${{ '$' }}${{ inputs.count }}", "$3"),
    # what closes and what does not
    ("${{ '}}' }}", "}}"),
    ('${{ "}}" }} }}', "}} }}"),
    ("${{ 'it\\'s }}' }}!", "it's }}!"),
    ("${{ inputs.name }}}", "Ada}"),
    ("${{ '${{ x }}' }}", "${{ x }}"),
    ("${{ inputs.name }} isn't", "Ada isn't"),
    # values are data
    ("${{ inputs.text }}", "a ${{ inputs.name }} b"),
    ("<${{ inputs.text }}>", "<a ${{ inputs.name }} b>"),
]

WRONG = [
    ("${{", 0, "'${{' is not closed"),
    ("${{ inputs.name", 0, "'${{' is not closed"),
    ("${{ inputs.name }", 0, "'${{' is not closed"),
    ("${{ inputs.name } }", 0, "'${{' is not closed"),
    ("text ${{ inputs.name", 5, "A literal '${{' is '$${{'"),
    ("${{ inputs.name }} ${{", 19, "'${{' is not closed"),
    ("${{ }}", 4, "An expression is missing"),
    ("${{}}", 3, "An expression is missing"),
    ("a ${{ foo }}", 6, "There is no 'foo'"),
    ("${{ 1 }}${{ 1 + 1 }}", 14, "There is no arithmetic"),
    ("${{ 'open }}", 4, "is not closed"),
    ("${{ 'a' 'b' }}", 8, "not expected here"),
    ("${{ ${{ item }} }}", 4, "no other '${{'"),
    ("${{ item } }}", 9, "ends with '}}'"),
    ("${{ 'a\\d' }}", 6, "There is no escape"),
    ("€€ ${{ item._x }}", 12, "cannot be read"),
    ("${{ " + "1 and " * 400 + "1 }}", 4, "at most 2000 characters"),
]


@pytest.mark.parametrize(("text", "value"), TEXTS, ids=[repr(text) for text, _ in TEXTS])
def test_a_text_is_filled(text, value):
    """D-63"""
    found = Template.parse(text).evaluate(SCOPE)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(("text", "position", "words"), WRONG, ids=[repr(text[:30]) for text, *_ in WRONG])
def test_a_wrong_text_is_refused_with_the_place_in_the_whole(text, position, words):
    with pytest.raises(ExpressionError) as refused:
        Template.parse(text)
    assert words in refused.value.message
    assert refused.value.position == position


def test_a_template_knows_whether_it_is_plain_or_one_expression():
    for text in ("", "a", "$${{ a }}"):
        assert Template.parse(text).is_plain
        assert Template.parse(text).lone is None
    lone = Template.parse("${{ inputs.a }}")
    assert isinstance(lone.lone, Expression)
    assert (lone.lone.text, lone.is_plain) == ("inputs.a", False)
    for text in (" ${{ inputs.a }}", "${{ inputs.a }}${{ inputs.b }}", "$${{ ${{ inputs.a }}"):
        assert Template.parse(text).lone is None
        assert not Template.parse(text).is_plain


def test_references_stand_at_their_offsets_in_the_whole_text():
    text = "x ${{ inputs.a }} y ${{ default(steps.b.output, item) }}"
    references = Template.parse(text).references
    assert [(one.root, one.name, one.guarded) for one in references] == [
        ("inputs", "a", False), ("steps", "b", True), ("item", None, False),
    ]  # fmt: skip
    assert [text[one.position :].startswith(one.root) for one in references] == [True] * 3


def test_an_error_names_the_expression_and_its_offset():
    with pytest.raises(EvaluationError) as failed:
        Template.parse("a ${{ inputs.name }} ${{ item.nope }}").evaluate(SCOPE)
    assert failed.value.expression == "item.nope"
    assert failed.value.position == len("a ${{ inputs.name }} ${{ item")


def test_what_has_no_text_cannot_be_put_into_one():
    with pytest.raises(
        EvaluationError, match="holds a value of type object, which cannot be written as text"
    ) as failed:
        Template.parse("a ${{ item }}").evaluate(Scope({}, {}, object()))
    assert failed.value.expression == "item"


def test_a_text_may_be_long_and_hold_many_expressions():
    text = "${{ inputs.count }} and " * 5000
    assert Template.parse(text).evaluate(SCOPE) == "3 and " * 5000
    assert Template.parse("x" * 500_000).is_plain
