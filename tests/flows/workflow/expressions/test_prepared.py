"""Values of a file with expressions inside them."""

import pytest

from detent.flows.workflow.expressions import EvaluationError, ExpressionError, Scope, condition, prepared
from tests.flows.workflow.expressions.corpus import SCOPE
from tests.flows.workflow.expressions.test_evaluation import exactly


def test_expressions_resolve_in_nested_maps_and_lists():
    """D-63"""
    value = {
        "files": "${{ steps.stage.output.files }}",
        "deep": [{"a": ["${{ inputs.count }}", "n=${{ inputs.count }}"]}, 1, None, True, 1.5],
        "plain": "text",
    }
    assert exactly(prepared(value).resolve(SCOPE)) == exactly(
        {
            "files": ["a.py", "b.py"],
            "deep": [{"a": [3, "n=3"]}, 1, None, True, 1.5],
            "plain": "text",
        }
    )


def test_keys_are_not_resolved():
    """D-63"""
    assert prepared({"${{ inputs.name }}": 1}).resolve(SCOPE) == {"${{ inputs.name }}": 1}
    assert prepared({"${{ nonsense": 1}).constant


def test_a_value_is_resolved_once():
    """D-63"""
    scope = Scope({"a": "${{ inputs.b }}", "b": "never"}, {}, {"x": ["${{ inputs.b }}"]})
    assert prepared(["${{ inputs.a }}", "<${{ inputs.a }}>", "${{ item }}"]).resolve(scope) == [
        "${{ inputs.b }}", "<${{ inputs.b }}>", {"x": ["${{ inputs.b }}"]},
    ]  # fmt: skip


def test_a_value_without_expressions_is_constant():
    for value in (1, None, "text", [], {}, {"a": [1, "b"]}, "$${{ a }}", ("a",)):
        assert prepared(value).constant
        assert prepared(value).references == ()
    for value in ("${{ 1 }}", ["a ${{ inputs.b }}"], {"a": {"b": "${{ item }}"}}):
        assert not prepared(value).constant


def test_the_escape_counts_in_constant_values_too():
    assert prepared(["$${{ a }}"]).resolve(SCOPE) == ["${{ a }}"]


def test_each_resolution_makes_new_lists_and_mappings():
    ready = prepared({"a": [1, {"b": []}]})
    first = ready.resolve(SCOPE)
    first["a"][1]["b"].append("changed")
    first["a"].append("changed")
    assert ready.resolve(SCOPE) == {"a": [1, {"b": []}]}


def test_a_prepared_value_does_not_follow_later_changes_of_the_file():
    value = {"a": ["${{ inputs.count }}"]}
    ready = prepared(value)
    value["a"].append("later")
    assert ready.resolve(SCOPE) == {"a": [3]}


def test_references_of_all_texts_are_listed():
    ready = prepared(
        {"a": "${{ inputs.x }}", "b": ["${{ default(steps.y.output, item) }}", "and ${{ index }}"]}
    )
    assert [(one.root, one.name, one.guarded) for one in ready.references] == [
        ("inputs", "x", False), ("steps", "y", True), ("item", None, False), ("index", None, False),
    ]  # fmt: skip


def test_a_wrong_text_inside_a_value_is_refused_with_its_path():
    with pytest.raises(ExpressionError) as refused:
        prepared({"kwargs": {"files": ["fine", {"x y": "${{ oops }}"}]}})
    assert refused.value.path == ("kwargs", "files", 1, "x y")
    assert refused.value.position == 4
    assert str(refused.value).startswith("kwargs.files[1].x y: There is no 'oops'")


def test_a_failed_resolution_tells_its_path():
    """D-63"""
    with pytest.raises(EvaluationError) as failed:
        prepared({"kwargs": ["fine", {"path": "${{ inputs.zzz }}"}]}).resolve(SCOPE)
    assert failed.value.path == ("kwargs", 1, "path")
    assert str(failed.value).startswith("kwargs[1].path: There is no input 'zzz'.")


def test_a_value_nested_too_deeply_is_refused():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ExpressionError, match="nested at most 200 deep"):
        prepared(value)


@pytest.mark.parametrize(
    "text",
    ["inputs.count == 3", "${{ inputs.count == 3 }}", "  inputs.count == 3\n", "${{inputs.count==3}}",
     "\n ${{ inputs.count == 3 }} \n"],
)  # fmt: skip
def test_a_condition_is_written_with_or_without_the_braces(text):
    """D-63"""
    ready = condition(text)
    assert ready.resolve(SCOPE) is True
    assert [one.name for one in ready.references] == ["count"]
    assert text.startswith("inputs.count", ready.references[0].position)


def test_a_condition_that_is_no_text_stands_for_itself():
    for value in (True, False, None, 3, [1, "format"], {"a": 1}):
        assert condition(value).resolve(SCOPE) == value
        assert condition(value).constant
    assert condition(["lint", "${{ inputs.name }}"]).resolve(SCOPE) == ["lint", "Ada"]


def test_a_condition_may_speak_of_the_braces_in_quotes():
    assert condition("'${{' in inputs.text").resolve(SCOPE) is True
    assert condition("${{ '${{' in inputs.text }}").resolve(SCOPE) is True


def test_a_literal_condition_is_an_expression_not_a_text():
    assert condition("false").resolve(SCOPE) is False
    assert condition("'false'").resolve(SCOPE) == "false"


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "An expression is missing"),
        ("${{ }}", 4, "An expression is missing"),
        ("  ${{ foo }}", 6, "There is no 'foo'"),
        ("  foo", 2, "There is no 'foo'"),
        (" ${{ inputs.a }} and ${{ inputs.b }}", 1, "put all of it into one pair"),
        ("${{ inputs.a }} == 1", 0, "put all of it into one pair"),
        ("not ${{ inputs.a }}", 4, "no other '${{'"),
        ("$${{ inputs.a }}", 0, "no other '${{'"),
        ("${{ inputs.a", 0, "is not closed"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_place(text, position, words):
    with pytest.raises(ExpressionError) as refused:
        condition(text)
    assert words in refused.value.message
    assert refused.value.position == position


def test_an_error_in_a_condition_is_an_error_not_false():
    """D-63: whoever asks for `when` hears of it."""
    with pytest.raises(EvaluationError):
        condition("steps.skipped.output.sha").resolve(SCOPE)
