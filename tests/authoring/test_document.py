"""YAML of workflow files: the core schema of 1.2, places, and files that mean harm. D-61, 2.2."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from detent.authoring import document
from detent.authoring.document import (
    DEEPEST,
    MOST_BYTES,
    MOST_VALUES,
    Written,
    above,
    below,
    read_document,
)
from detent.authoring.problem import Place


def read(text: str | bytes) -> document.Document:
    return read_document(text if isinstance(text, bytes) else text.encode(), "f.yaml")


def only(text: str | bytes) -> tuple[int, int, str]:
    """The one problem of a text: line, column, words."""
    (problem,) = read(text).problems
    assert problem.code == "E010"
    assert problem.place.file == "f.yaml"
    return problem.place.line, problem.place.column, problem.message


# -- the core schema ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("Yes", "Yes"), ("y", "y"),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("FALSE", False), ("tRUE", "tRUE"),
        ("null", None), ("Null", None), ("~", None), ("", None), ("nUll", "nUll"),
        ("12", 12), ("012", 12), ("+12", 12), ("-7", -7), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"),
        ("1_000", "1_000"), ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("0o8", "0o8"), ("-0x1", "-0x1"),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-2", -0.015), ("1.2.3", "1.2.3"),
        ("2024-01-31", "2024-01-31"), ("2024-01-31T10:00:00Z", "2024-01-31T10:00:00Z"),
        ("=", "="), ("+", "+"), (".", "."), ("-x", "-x"), ("1 2", "1 2"), ("1e", "1e"), (".inf.", ".inf."),
        ("'12'", "12"), ('"true"', "true"), ("'~'", "~"), ("'it''s'", "it's"), ('"a\\tb\\u00e9"', "a\tbé"),
    ],
)  # fmt: skip
def test_a_scalar_is_what_yaml_1_2_says(written: str, value: Any) -> None:
    """Texts such as yes, 1_000, 1:30 and dates stay texts; 012 is twelve. 2.2."""
    found = read(f"a: {written}\n")
    assert found.problems == ()
    assert found.value == {"a": value}
    assert type(found.value["a"]) is type(value)


@pytest.mark.parametrize("written", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e999", "-1e400"])
def test_numbers_are_finite(written: str) -> None:
    line, column, message = only(f"a: {written}")
    assert (line, column) == (1, 4)
    assert "quotes" in message


@pytest.mark.parametrize("written", ["9" * 5000, "0x" + "f" * 5000, "1." + "0" * 5000])
def test_a_number_of_thousands_of_digits_is_refused_in_words(written: str) -> None:
    assert "100 digits" in only(f"a: {written}")[2]


def test_an_empty_file_has_no_value_and_no_problem() -> None:
    for text in ("", "\n\n", "# only a comment\n", "---\n", "---\n...\n"):
        assert read(text)[0::3] == (None, ())


def test_a_byte_order_mark_and_any_line_ends_are_fine() -> None:
    assert read(b"\xef\xbb\xbfa: 1\r\nb: 2\rc: 3\n").value == {"a": 1, "b": 2, "c": 3}
    assert read(b"\xef\xbb\xbfa: 1\r\nb: [\r\n").problems[0].place.line >= 2


def test_a_directive_and_an_end_of_document_are_fine() -> None:
    assert read("%YAML 1.2\n---\na: 1\n...\n").value == {"a": 1}


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "'a' is defined twice here; the first is on line 1"),
        ("a: {b: 1, b: 2}", 1, 11, "'b' is defined twice"),
        ("a: 1\n'a': 2\n", 2, 1, "defined twice"),
        ("1: x", 1, 1, "The key 1 is not text"),
        ("true: x", 1, 1, "The key true is not text"),
        ("~: x", 1, 1, "The key null is not text"),
        ("1.5: x", 1, 1, "The key 1.5 is not text"),
        ("? [a, b]\n: x", 1, 3, "this is a list"),
        ("? {a: b}\n: x", 1, 3, "this is a mapping"),
        ("a: 1\n<<: {b: 2}", 2, 1, "no merge key"),
        ("a: &x {b: 1}\nc: {<<: *x}", 2, 5, "no merge key"),
        ("a: !!str 12", 1, 4, "The tag '!!str'"),
        ("a: !custom {b: 1}", 1, 4, "The tag '!custom'"),
        ("a: ! 12", 1, 4, "The tag '!'"),
        ("!!python/object/apply:os.system ['true']", 1, 1, "The tag '!!python/object/apply:os.system'"),
        ("a: !!python/name:os.system", 1, 4, "The tag '!!python/name:os.system'"),
        ("a: !!binary aGk=", 1, 4, "The tag '!!binary'"),
        ("!!set {a, b}", 1, 1, "The tag '!!set'"),
        ("a: 1\n---\nb: 2\n", 2, 1, "one document"),
        ("a: 1\n...\n---\nb: 2\n", 3, 1, "one document"),
        ("a: *nobody", 1, 4, "no anchor '&nobody'"),
        ("a: &a [1, *a]", 1, 11, "contains this alias"),
        ("a: &a {b: *a}", 1, 11, "contains this alias"),
        ("a:\n\tb: 1\n", 2, 1, "never with tabs"),
        ("a: b: c", 1, 5, "belongs in quotes"),
        ("a: [1, 2", 1, 9, "not valid YAML"),
        ("a: 'open", 1, 4, "not valid YAML"),
        ("a: @x", 1, 4, "not valid YAML"),
        ("%YAML 2.0\n---\na: 1", 1, 1, "not valid YAML"),
        ("a: x\x00y", 1, 5, "U+0000"),
        ("a: x\x07y", 1, 5, "U+0007"),
        ("a: 1 # fine\u2028b: 2", 1, 12, "U+2028"),
        ("a: 1\nb: x\x85y", 2, 5, "U+0085"),
    ],
)  # fmt: skip
def test_what_surprises_or_harms_is_refused_where_it_stands(
    text: str, line: int, column: int, says: str
) -> None:
    """Tags, keys said twice, keys that are no text, several documents, tabs, control characters. 2.2."""
    found = only(text)
    assert says in found[2]
    if "not valid YAML" not in found[2] or "tabs" in says:  # where the parser stops differs by a character
        assert found[:2] == (line, column)
    else:
        assert found[0] == line


def test_several_mistakes_are_told_at_once() -> None:
    found = read("a: 1\na: 2\n1: 3\nb: !x 4\n<<: 5\nc: .nan\n").problems
    assert [problem.place.line for problem in found] == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\xff\xfea\x00:\x00", "UTF-16"),
        (b"\xfe\xff\x00a", "UTF-16"),
        (b"a: 1\nb: caf\xe9\n", "not UTF-8 text (byte 11)"),
        (b"\x80", "not UTF-8"),
        (b"a: \xed\xa0\x80", "not UTF-8"),
    ],
)
def test_a_file_that_is_not_utf_8_is_refused(raw: bytes, says: str) -> None:
    assert says in only(raw)[2]


def test_the_place_of_a_wrong_byte_is_told() -> None:
    assert only(b"a: 1\nb: caf\xe9\n")[:2] == (2, 7)


def test_half_a_character_is_refused() -> None:
    assert read('a: "\\ud800"').problems
    assert read('a: "\\U0001f600"').value == {"a": "\U0001f600"}


# -- limits -------------------------------------------------------------------------------------------------


def test_a_file_over_one_mebibyte_is_not_even_looked_at() -> None:
    line, column, message = only(b"\xff" * (MOST_BYTES + 1))
    assert (line, column) == (1, 1)
    assert "1,048,576 bytes at most" in message
    assert read(b"#" * MOST_BYTES).problems == ()


def test_ten_thousand_values_are_the_most() -> None:
    """The list is one, each item is one; keys count for nothing."""
    assert len(read("[" + "a," * (MOST_VALUES - 1) + "]").value) == MOST_VALUES - 1
    assert "more than 10000 values" in only("[" + "a," * MOST_VALUES + "]")[2]
    most = (MOST_VALUES - 1) // 1
    assert read("\n".join(f"k{i}: 1" for i in range(most))).problems == ()
    assert only("\n".join(f"k{i}: 1" for i in range(most + 1)))[0] == most + 1


def test_aliases_count_as_what_they_stand_for() -> None:
    anchor = "a: &a [" + "x," * 99 + "]\n"  # a hundred values
    fits = anchor + "b: [" + "*a," * 98 + "]\n"
    assert read(fits).problems == ()
    assert len(read(fits).value["b"]) == 98
    assert "aliases written out" in only(anchor + "b: [" + "*a," * 99 + "]\n")[2]


def test_exponential_laughs_are_refused_without_being_written_out() -> None:
    names = "abcdefghijklmnopqrstuvwxyz"
    lines = ["a: &a [lol, lol]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in pairwise(names)]
    line, _, message = only("\n".join(lines))
    assert line == 5
    assert "more than 10000 values" in message


def test_quadratic_laughs_are_refused() -> None:
    text = "a: &a '" + "x" * 500_000 + "'\nb: [" + "*a," * 10_000 + "]"
    assert "more than 10000 values" in only(text)[2]


def test_laughs_in_keys_are_refused() -> None:
    text = "a: &a [" + "x," * 200 + "]\n" + "".join(f"? [*a, {i}]\n: 1\n" for i in range(60))
    assert "more than 10000 values" in read(text).problems[-1].message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_in_words(opening: str) -> None:
    text = opening * 50_000
    message = read(text).problems[-1].message
    assert f"{DEEPEST} levels" in message


def test_nesting_up_to_the_limit_is_fine() -> None:
    assert read("[" * DEEPEST + "]" * DEEPEST).problems == ()
    assert f"{DEEPEST} levels" in only("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))[2]


def test_depth_made_of_aliases_is_depth() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 100)]
    line, _, message = only("\n".join(lines))
    assert "levels" in message
    assert line == DEEPEST


def test_a_file_of_ten_thousand_steps_is_refused_by_its_size_in_words() -> None:
    text = "steps:\n" + "".join(f"- {{name: s{i}, type: checkpoint}}\n" for i in range(10_000))
    line, _, message = only(text)
    assert "subworkflows" in message
    assert line == 3334  # three values a step


# -- aliases and places -------------------------------------------------------------------------------------


def test_small_aliases_are_written_out_and_shared_by_nobody() -> None:
    found = read("a: &x {p: [1]}\nb: *x\nc: [*x]\n")
    assert found.value == {"a": {"p": [1]}, "b": {"p": [1]}, "c": [{"p": [1]}]}
    found.value["a"]["p"].append(2)
    assert found.value["b"] == {"p": [1]}


def test_an_alias_may_be_a_key() -> None:
    assert read("a: &x name\n*x : 1\n").value == {"a": "name", "name": 1}


def test_every_value_and_every_key_has_a_place() -> None:
    found = read("a:\n  b: [1, {c d: 2}]\n'x.y': 3\n")
    assert {path: (place.line, place.column) for path, place in found.places.items()} == {
        "": (1, 1), "a": (2, 3), "a.b": (2, 6), "a.b[0]": (2, 7), "a.b[1]": (2, 10),
        "a.b[1]['c d']": (2, 16), "['x.y']": (3, 8),
    }  # fmt: skip
    assert {path: (place.line, place.column) for path, place in found.keys.items()} == {
        "a": (1, 1), "a.b": (2, 3), "a.b[1]['c d']": (2, 11), "['x.y']": (3, 1),
    }  # fmt: skip
    assert found.place("a.b[1].missing") == ("f.yaml", 2, 10)
    assert found.place("nowhere") == ("f.yaml", 1, 1)


def test_an_alias_stands_where_it_is_used_and_its_parts_where_they_are_written() -> None:
    found = read("a: &x\n  p: 1\nb: *x\n")
    assert found.places["b"][1:] == (3, 4)
    assert found.places["b.p"][1:] == (2, 6)


def test_paths_go_down_and_up() -> None:
    assert below("", "a") == "a"
    assert below("a", 0) == "a[0]"
    assert below("a[0]", "b-c_d") == "a[0].b-c_d"
    assert below("a", "x.y") == "a['x.y']"
    assert above("a[0].b") == "a[0]"
    assert above("a['x.y']") == "a"
    assert above("a") == ""


@pytest.mark.parametrize(
    ("text", "path", "offset", "at"),
    [
        ("a: plain text", "a", 6, (1, 10)),
        ("a:   'it''s here'", "a", 5, (1, 13)),
        ('a: "x\\ty\\u0041z"', "a", 4, (1, 15)),
        ('a: "x\\x41y"', "a", 2, (1, 10)),
        ("a: &name  value", "a", 2, (1, 13)),
        ("a: [b, 'c d']", "a[1]", 2, (1, 11)),
        ("a: |\n  one\n  two\n", "a", 5, (3, 4)),
        ("a: |-\n\n    one\n      two\n", "a", 7, (4, 7)),
        ("a: >-\n  one two\n  three\n", "a", 9, (3, 3)),
        ("a: >\n  one\n\n  two\n", "a", 5, (4, 3)),
        ("a: one\n  two\n  three\n", "a", 9, (3, 3)),
        ('a: "one\n  two"\n', "a", 0, (1, 4)),
        ("a: x", "a", 99, (1, 5)),
    ],
)
def test_a_character_of_a_text_has_a_place(text: str, path: str, offset: int, at: tuple[int, int]) -> None:
    """Exactly for texts of one line and literal blocks, the line for folded ones."""
    written = read(text).places[path]
    assert isinstance(written, Written)
    place = written.inside(offset)
    assert place == Place("f.yaml", *at)
