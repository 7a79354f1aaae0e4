"""What holds for every text and every tree, not only for those somebody thought of."""

from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from detent.flows.workflow.expressions import (
    MAX_DEPTH,
    EvaluationError,
    ExpressionError,
    Prepared,
    Scope,
    Template,
    condition,
    parse,
    prepared,
)
from detent.flows.workflow.expressions.tree import (
    Call,
    Chain,
    Choice,
    Comparison,
    Constant,
    Items,
    Not,
    Path,
    Root,
    written,
)
from tests.examples import examples
from tests.flows.workflow.expressions.corpus import ACCEPTED, FAILING, REFUSED, SCOPE
from tests.flows.workflow.expressions.test_evaluation import Trap, exactly


def attempted(something: Callable[[], Any]) -> Any:
    """What comes out, be it a value or an error of ours; any other error is a failed test."""
    try:
        return something()
    except (ExpressionError, EvaluationError) as error:
        return error


# --- any text ----------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["inputs", "steps", "item", "index", "output", "status", "and", "or", "not", "in", "if", "else", "true",
     "false", "null", "len", "lower", "upper", "default", "json", "name", "map", "list", "stage", "_x", "a",
     "__class__", ".", "[", "]", "(", ")", ",", "==", "!=", "<", "<=", ">", ">=", "'", '"', "'a'", '"b"',
     "\\", "0", "1", "-1", "2.5", "-", " ", "  ", "\n", "${{", "}}", "$", "{", "}", "$${{", "é", "\x00",
     "lambda", "for", "`", "%s", "{0.__class__}"]
)  # fmt: skip
SOUP = st.lists(WORDS, max_size=25).map("".join) | st.lists(WORDS, max_size=25).map(" ".join)
VALID = [text for text, *_ in ACCEPTED + FAILING + REFUSED if len(text) < 100]


@st.composite
def bruised(draw):
    """An expression of the corpus with a piece taken out, doubled or replaced."""
    text = draw(st.sampled_from(VALID))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, len(text)))
    return text[:start] + draw(st.sampled_from(["", text[start:end] * 2]) | st.text(max_size=3)) + text[end:]


@given(st.text() | SOUP | bruised())
@example("(" * 1999)
@example("not " * 499)
@example("[" * 32 + "]" * 32)
@example("item" + ".a" * 990)
@example("item" + "[0]" * 660)
@example("1 if 1 else " * 166)
@settings(max_examples=examples(300))
def test_no_text_makes_any_error_but_ours(text):
    """D-62"""
    outcome = attempted(lambda: parse(text).evaluate(SCOPE))
    if isinstance(outcome, ExpressionError | EvaluationError):
        assert 0 <= outcome.position <= len(text)
        assert str(outcome)
    else:
        assert not callable(outcome)


@given(st.text() | SOUP | SOUP.map(lambda soup: f"a ${{{{{soup}}}}} b"))
@settings(max_examples=examples(300))
def test_no_template_makes_any_error_but_ours(text):
    """D-62"""
    for read in (Template.parse, prepared, condition):
        outcome = attempted(lambda read=read: read(text))
        if isinstance(outcome, Template):
            outcome = attempted(lambda template=outcome: template.evaluate(SCOPE))
        elif isinstance(outcome, Prepared):
            outcome = attempted(lambda ready=outcome: ready.resolve(SCOPE))
        if isinstance(outcome, ExpressionError | EvaluationError):
            assert 0 <= outcome.position <= len(text)


@given(st.text())
def test_a_text_without_braces_stays_what_it_is(text):
    """D-63"""
    if "${{" not in text:
        assert Template.parse(text).evaluate(SCOPE) == text


@given(st.text())
def test_every_text_can_be_written_with_the_escape(text):
    """D-63: an escape in place of every `${{` gives the text back, where no dollar stands before it."""
    if "$${{" not in text:
        escaped = text.replace("${{", "$${{")
        template = Template.parse(escaped)
        assert template.is_plain
        assert prepared(escaped).resolve(SCOPE) == text


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_what_an_expression_gives_is_never_resolved_again(value):
    """D-63"""
    scope = Scope({"x": value}, {}, ["${{ inputs.x }}", value])
    assert exactly(prepared({"a": ["${{ inputs.x }}"], "b": "${{ item }}"}).resolve(scope)) == exactly(
        {"a": [value], "b": ["${{ inputs.x }}", value]}
    )


@given(PLAIN, PLAIN)
def test_equality_is_that_of_json_with_one_kind_of_number(left, right):
    """D-62"""

    def named(value: Any) -> Any:
        if isinstance(value, bool):
            return ("boolean", value)
        if isinstance(value, list):
            return ("list", [named(one) for one in value])
        if isinstance(value, dict):
            return ("mapping", {key: named(one) for key, one in value.items()})
        return value

    scope = Scope({"a": left, "b": right}, {})
    assert parse("inputs.a == inputs.b").evaluate(scope) is (named(left) == named(right))
    assert parse("inputs.a != inputs.b").evaluate(scope) is (named(left) != named(right))
    assert parse("inputs.a in [0, inputs.b]").evaluate(scope) is (named(left) in [0, named(right)])
    assert parse("inputs.a == inputs.a").evaluate(scope) is True


# --- any tree ----------------------------------------------------------------------------------------

TEXTS = st.text(max_size=4) | st.sampled_from(["a", "b c", "name", "\\", "'", '"', "}}", "${{", "\n\t", "if"])
KEYS = TEXTS.filter(lambda key: not key.startswith("_"))
CONSTANTS = st.builds(
    Constant,
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
)
ROOTS = st.one_of(
    st.builds(Root, st.just("inputs"), KEYS | st.sampled_from(list(SCOPE.inputs))),
    st.builds(
        Root,
        st.just("steps"),
        KEYS | st.sampled_from(list(SCOPE.steps)),
        st.sampled_from(["output", "status"]),
    ),
    st.builds(Root, st.sampled_from(["item", "index"])),
)
SIGNS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")


def _path(base: Any, keys: list[Any]) -> Any:
    if isinstance(base, Path):
        base, keys = base.base, [*base.keys, *keys]
    return Path(base, tuple(keys), (0,) * len(keys))


def _chain(word: Any, operands: list[Any]) -> Any:
    return Chain(word, tuple(operands))


def _grown(inner: Any) -> Any:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        st.builds(Items, st.lists(inner, max_size=3).map(tuple)),
        st.builds(_path, inner, st.lists(KEYS | st.integers(-3, 3), min_size=1, max_size=3)),
        st.builds(lambda name, one: Call(name, (one,)), st.sampled_from(["len", "lower", "upper"]), inner),
        st.builds(lambda one, other: Call("default", (one, other)), inner, inner),
        st.builds(Not, inner),
        st.builds(_chain, st.sampled_from(["and", "or"]), several),
        st.builds(Comparison, st.sampled_from(SIGNS), inner, inner),
        st.builds(Choice, inner, inner, inner),
    )


TREES = st.recursive(CONSTANTS | ROOTS, _grown, max_leaves=10)


@given(TREES)
@settings(max_examples=examples(300))
def test_a_tree_that_is_written_and_read_is_the_same_tree(tree):
    """D-62"""
    text = written(tree)
    read = attempted(lambda: parse(text))
    if isinstance(read, ExpressionError):  # deeper than the limit
        assert "at most" in read.message
        assert len(text) > 2000 or sum(map(text.count, ("(", "[", "not ", "else "))) > MAX_DEPTH
        return
    assert read.tree == tree
    assert written(read.tree) == text


class Gone(Exception):
    """The reference says: a reference leads nowhere."""


class Unfit(Exception):
    """The reference says: values do not go together."""


def meant(node: Any, scope: Scope) -> Any:
    """What a tree means, said as plainly as possible and with no thought of speed."""
    match node:
        case Constant(value):
            return value
        case Items(items):
            return [meant(one, scope) for one in items]
        case Root("inputs", name):
            return look(scope.inputs, name)
        case Root("steps", name, part):
            return look(look(scope.steps, name), part)
        case Root(name):
            return getattr(scope, name)
        case Path(base, keys):
            value = meant(base, scope)
            for key in keys:
                value = look(value, key)
            return value
        case Call("default", (first, second)):
            try:
                value = meant(first, scope)
            except Gone:
                value = None
            return meant(second, scope) if value is None else value
        case Call("len", (one,)):
            return len(kept(meant(one, scope), str, list, dict))
        case Call("lower", (one,)):
            return kept(meant(one, scope), str).lower()
        case Call("upper", (one,)):
            return kept(meant(one, scope), str).upper()
        case Not(operand):
            return not meant(operand, scope)
        case Chain(word, operands):
            for operand in operands:
                value = meant(operand, scope)
                if bool(value) == (word == "or"):
                    return value
            return value
        case Choice(value, asked, otherwise):
            return meant(value if meant(asked, scope) else otherwise, scope)
        case Comparison(sign, left, right):
            return compared(sign, meant(left, scope), meant(right, scope))
    raise AssertionError(node)


def look(value: Any, key: Any) -> Any:
    if value is None:
        raise Gone
    if hasattr(value, "__dataclass_fields__") and isinstance(key, str):
        value = {name: getattr(value, name) for name in value.__dataclass_fields__ if name[0] != "_"}
    if isinstance(value, dict) and isinstance(key, str):
        if key not in value:
            raise Gone
        return value[key]
    if isinstance(value, list) and isinstance(key, int):
        if not -len(value) <= key < len(value):
            raise Gone
        return value[key]
    raise Unfit


def kept(value: Any, *types: type) -> Any:
    if not isinstance(value, types):
        raise Unfit
    return value


def family(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def equal(left: Any, right: Any) -> bool:
    if family(left) != family(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(equal(*pair) for pair in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return left == right


def compared(sign: str, left: Any, right: Any) -> bool:
    if sign in ("==", "!="):
        return equal(left, right) == (sign == "==")
    if sign in ("in", "not in"):
        if isinstance(right, str):
            found = kept(left, str) in right
        else:
            found = any(equal(left, one) for one in kept(right, list, dict))
        return found == (sign == "in")
    if family(left) != family(right) or not isinstance(left, int | float | str | list):
        raise Unfit
    if isinstance(left, list):
        for one, other in zip(left, right, strict=False):
            if not equal(one, other):
                return compared(sign, one, other)
        left, right = len(left), len(right)
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]


@given(TREES)
@settings(max_examples=examples(300))
def test_evaluation_is_what_the_plain_reading_means(tree):
    """D-62"""
    found = attempted(lambda: parse(written(tree)).evaluate(SCOPE))
    if isinstance(found, ExpressionError):
        return  # deeper than the limit
    try:
        wanted = meant(tree, SCOPE)
    except (Gone, Unfit):
        assert isinstance(found, EvaluationError)
    else:
        assert exactly(found) == exactly(wanted)


TRAPPED = Scope(
    {name: Trap() for name in SCOPE.inputs},
    {name: {"output": Trap(), "status": Trap()} for name in SCOPE.steps},
    Trap(),
    [Trap(), {"a": Trap()}],
)


@given(TREES)
@settings(max_examples=examples(200))
def test_no_tree_reads_anything_of_an_object(tree):
    """D-62: reading a trap raises, and only `EvaluationError` may come out."""
    attempted(lambda: parse(written(tree)).evaluate(TRAPPED))
