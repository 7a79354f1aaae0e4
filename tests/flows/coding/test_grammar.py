"""Requests without a model are understood as a whole, or not at all."""

from __future__ import annotations

import sys
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.flows.coding import grammar
from detent.flows.coding.grammar import (
    Find,
    Help,
    ListFolder,
    Replace,
    RunTests,
    Search,
    Show,
    parse_request,
)
from tests.examples import examples

ONE_STEP = {
    # show
    "show x.py": Show("x.py"),
    "show file": Show("file"),
    "show the": Show("the"),
    "show me": Show("me"),
    "show me the file": Show("file"),
    "show the file file": Show("file"),
    "show me file": Show("file"),
    "show then": Show("then"),
    "read the file src/a.py lines 3-10": Show("src/a.py", 3, 10),
    "cat a lines 3 - 10": Show("a", 3, 10),
    "open a lines 3 to 10": Show("a", 3, 10),
    "print a LINES 3 TO 3": Show("a", 3, 3),
    "print lines": Show("lines"),
    "show lines lines 1-2": Show("lines", 1, 2),
    "show file lines 1- 2": Show("file", 1, 2),
    "cat ../x": Show("../x"),
    # list
    "list": ListFolder(),
    "ls": ListFolder(),
    "list files": ListFolder(),
    "list the files": ListFolder(),
    "list the files in src": ListFolder("src"),
    "list in src": ListFolder("src"),
    "ls src": ListFolder("src"),
    "list files src": ListFolder("src"),
    "list in": ListFolder("in"),
    "list the": ListFolder("the"),
    "list files files": ListFolder("files"),
    "ls .": ListFolder("."),
    "ls ..": ListFolder(".."),
    "ls src/.": ListFolder("src/."),
    "list in .": ListFolder("."),
    # find
    "find x.py": Find("x.py"),
    "find files": Find("files"),
    "find files named": Find("named"),
    "find files named *.py": Find("*.py"),
    "find files named x in src": Find("x", "src"),
    "find files x src": Find("x", "src"),
    "find files in src": Find("files", "src"),
    "find in in in": Find("in", "in"),
    "find named x": Find("named", "x"),
    # search
    "grep print": Search("print"),
    "grep grep": Search("grep"),
    "grep in": Search("in"),
    "grep in in in": Search("in", "in"),
    "grep then in a.sh": Search("then", "a.sh"),
    "search for": Search("for"),
    "search for for": Search("for"),
    "search TODO in src": Search("TODO", "src"),
    "where is main?": Search("main"),
    "where is is": Search("is"),
    "grep it's": Search("it's"),
    'grep f("a","b")': Search('f("a","b")'),
    "grep ^(a+)+$|{x}<y>&!": Search("^(a+)+$|{x}<y>&"),
    "grep #": Search("#"),
    "grep !": Search("!"),
    # replace
    "replace a with b in x": Replace("a", "b", "x"),
    "change a to b in x": Replace("a", "b", "x"),
    "replace a by b in x everywhere": Replace("a", "b", "x", everywhere=True),
    "replace a with b in everywhere": Replace("a", "b", "everywhere"),
    "replace with with with in in": Replace("with", "with", "in"),
    "change to to to in to everywhere": Replace("to", "to", "to", everywhere=True),
    "replace x==1 with x==2 in a.py": Replace("x==1", "x==2", "a.py"),
    'replace a with "" in x': Replace("a", "", "x"),
    # the rest
    "run tests": RunTests(),
    "run the tests": RunTests(),
    "help": Help(),
    "what can you do": Help(),
}


def test_every_form_is_read_as_its_step() -> None:
    for text, step in ONE_STEP.items():
        assert parse_request(text) == [step], text


def test_keywords_count_in_any_case_and_texts_keep_theirs() -> None:
    for text, step in {
        "SHOW Me The FILE A.Py LINES 1 TO 2": Show("A.Py", 1, 2),
        "LIST THE FILES IN Src": ListFolder("Src"),
        "Find Files NAMED X In Y": Find("X", "Y"),
        "Where IS Main IN Src": Search("Main", "Src"),
        "REPLACE A WITH B IN X EVERYWHERE": Replace("A", "B", "X", everywhere=True),
        "Run The Tests": RunTests(),
        "WHAT can You DO": Help(),
    }.items():
        assert parse_request(text) == [step], text


def test_politeness_and_a_final_mark_change_nothing() -> None:
    for (text, step), polite, mark in product(
        ONE_STEP.items(), ("", "please ", "Can you ", "COULD YOU "), ("", ".", "?", "!", " ?", " !")
    ):
        if mark and text[-1] in ".?!":  # a full stop more would belong to the text
            continue
        assert parse_request(f"  {polite}{text}{mark}\n") == [step], (polite, text, mark)


def test_only_one_politeness_and_one_final_mark_fit() -> None:
    for text in (
        "please can you list",
        "please please list",
        "please, list",
        "please",
        "can you",
        "list tests ? !",
    ):
        assert parse_request(text) is None, text
    assert parse_request("show x.py?!") == [Show("x.py?")]


def test_all_quote_styles_hold_blanks_keywords_separators_and_one_another() -> None:
    for opening, closing in ('""', "''", "``", "“”", "‘’"):
        for content in (
            "a b", "then", "x; y", "in", "lines 1-2", "a then show b", "a\nb", "täglich ✓", "show", " ", "?",
            ".", "C:\\dir\\", "a.", "what?",
        ):  # fmt: skip
            quoted = f"{opening}{content}{closing}"
            assert parse_request(f"show {quoted}") == [Show(content)]
            assert parse_request(f"grep {quoted} in {quoted}!") == [Search(content, content)]
            assert parse_request(f"replace {quoted} with {quoted} in {quoted} everywhere.") == [
                Replace(content, content, content, everywhere=True)
            ]
            assert parse_request(f"show {quoted};list") == [Show(content), ListFolder()]
    assert parse_request("""grep '"a" `b` “c”' in "it's" """) == [Search('"a" `b` “c”', "it's")]


def test_a_quoted_word_is_no_keyword() -> None:
    for text in (
        '"show" x', "run 'the' tests", '"help"', "replace a `with` b in x", "replace a with b “in” x",
        "show a 'then' show b", "grep x 'in' y", "show a ';' list", "'please' list",
    ):  # fmt: skip
        assert parse_request(text) is None, text


def test_a_quotation_that_is_not_closed_or_goes_on_fits_nothing() -> None:
    for text in (
        'grep "a', "grep 'a", "grep `a", "grep “a", 'grep "a"b', "grep 'it's'", 'show "a b"c', 'grep ""b""',
        "grep '", 'replace "a with b in x; show "', "grep “a\"",
    ):  # fmt: skip
        assert parse_request(text) is None, text


def test_only_a_replacement_may_be_empty() -> None:
    for text in (
        'show ""', "list ''", "find ``", 'find x in ""', "grep “”", 'grep x in ""', 'replace "" with a in x',
        'replace a with b in ""',
    ):  # fmt: skip
        assert parse_request(text) is None, text
    assert parse_request("replace a with '' in x everywhere") == [Replace("a", "", "x", everywhere=True)]


def test_steps_are_separated_by_then_semicolons_and_line_ends() -> None:
    steps = [Show("a"), ListFolder("b"), RunTests()]
    for first, second in product(
        (" then ", ";", " ; ", "\n", " THEN ", "\r\n", "\n\n \n", ";\n", "\nthen ", " then\n"), repeat=2
    ):
        assert parse_request(f"show a{first}list b{second}run tests") == steps, (first, second)
    for text in (
        "show a and list b", "show a, list b", "show a then then list b", "show a;; list b", "show a list b",
        "show a; then list b", "; show a", "then show a", "show a;", "show a then", "show a && list b",
        "show a then list b and", "show a | list b", "show a; frobnicate",
    ):  # fmt: skip
        assert parse_request(text) is None, text


def test_a_name_and_a_separator_are_told_apart_by_what_fits() -> None:
    assert parse_request("find files named x.py in src then show x.py") == [Find("x.py", "src"), Show("x.py")]
    assert parse_request("list then list") == [ListFolder(), ListFolder()]
    assert parse_request("find x then list") == [Find("x"), ListFolder()]
    assert parse_request("show then then show then") == [Show("then"), Show("then")]
    assert parse_request("grep then then grep in then list in") == [
        Search("then"), Search("in"), ListFolder("in"),
    ]  # fmt: skip
    assert parse_request('replace "a; b" with "c then d" in x.py') == [Replace("a; b", "c then d", "x.py")]


def test_five_steps_fit_and_a_sixth_does_not() -> None:
    longest = 'replace "a" with "b" in "c" everywhere'
    for separator in (" then ", ";", "\n"):
        assert parse_request(separator.join(["show a lines 1 - 2"] * 5)) == [Show("a", 1, 2)] * 5
        assert (
            parse_request(f"can you {separator.join([longest] * 5)} ?")
            == [Replace("a", "b", "c", everywhere=True)] * 5
        )
        assert parse_request(separator.join(["list"] * 6)) is None
    assert parse_request("\n".join(["show me the file a lines 1 - 2"] * 5)) is not None


def test_sentences_that_almost_fit_are_not_understood() -> None:
    for text in (
        "", " ", ".", "?", "show", "find", "grep", "search", "where is", "replace a with b", "run",
        "run test", "replace a in x", "replace a b in x", "replace a with b in x.py nowhere",
        "replace a with b in x y",
        "show a b", "show x.py and y.py", "show x.py lines", "show x.py lines 3", "show x.py lines 3-",
        "show x.py lines 0-3", "show x.py lines 9-3", "show x.py lines a-b", "show x.py lines 1-2-3",
        "show x.py lines '1-2'", "show x.py lines 1-99999999999999999999", "show x.py lines ١-٢",
        "show x.py line 3", "list the src", "list files of src", "list all files", "find all files named x",
        "find a b c", "search for a b", "grep a b in c", "grep a in", "where is the parser", "where's main",
        "run the tests in src", "run the tests and fix them", "run all tests", "help me", "help x",
        "what can you do for me", "delete x.py", "write x.py", "fix the tests", "show x.py please",
        "don't show x.py", "do not run tests", "rm -rf /", "please do not replace a with b in x",
        "replace a with b in x unless it breaks", "run tests --no-cov", "shows x.py", "show\tme the file",
    ):  # fmt: skip
        expected = [Show("file")] if text == "show\tme the file" else None
        assert parse_request(text) == expected, text


def test_paths_of_every_system_and_language_are_kept_as_they_are() -> None:
    for path in (
        "C:\\Users\\me\\x.py", "src\\a.py", "\\\\server\\share", "./a/../b", "~/x", "-rf", "--help", "ä/ö.py",
        "数据/主.py", "🙂.txt", "a&b|c$d", "pages/[id].tsx", "x\x00y", "a,b:c", "%2e%2e", "e\u0301",
        "\u202egpj.exe", "a’b", "x=y", "\ud800",
    ):  # fmt: skip
        assert parse_request(f"show {path}") == [Show(path)]
        assert parse_request(f"replace a with b in {path}; list {path}") == [
            Replace("a", "b", path), ListFolder(path)
        ]  # fmt: skip
        assert parse_request(f'list "{path} x"') == [ListFolder(f"{path} x")]


@pytest.mark.parametrize("blank", ["\t", "\u00a0", "\u3000", "\f", "  \t "])
def test_blanks_of_all_sorts_stand_between_words(blank: str) -> None:
    assert parse_request(blank.join(["replace", "a", "with", "b", "in", "x"])) == [Replace("a", "b", "x")]


WORDS = st.sampled_from([
    "list", "then", ";", "show", "file", "the", "me", "lines", "3-10", "3",
    "-", "10", "to", "in", "files", "find", "named", "grep", "for", "replace", "with", "everywhere", "run",
    "tests", "help", "please", ".", "?", "!", '"', "'", "`", "“", "”", "‘", "’", "what", "can", "you", "do",
    "x.py", "a;b", "\n", "'a b'", '"then"',
])  # fmt: skip
TEXTS = st.one_of(
    st.text(), st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=12).map("".join)
)


@given(
    st.one_of(
        st.text(), st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=12).map("".join)
    )
)
@settings(max_examples=examples(2000))
def test_reading_never_raises_and_finds_at_most_five_steps(text: str) -> None:
    steps = parse_request(text)
    assert steps is None or 1 <= len(steps) <= 5
    assert parse_request(text) == steps


STEPS = st.sampled_from(list(ONE_STEP.items())).filter(lambda pair: pair[0][-1] not in ".?!")


@given(st.lists(STEPS, min_size=1, max_size=5), st.sampled_from(["; ", "\n"]))
@settings(max_examples=examples(600))
def test_steps_in_a_row_are_read_as_each_alone(pairs: list[tuple[str, object]], separator: str) -> None:
    text = separator.join(text for text, _ in pairs)
    assert parse_request(text) == [step for _, step in pairs]


def test_the_work_grows_no_faster_than_the_text() -> None:
    """Counted, not timed: function calls of the reader."""
    for piece in (
        "then ", "show ", "; ", "\n", '"', '"a" ', "“", "list then ", "find files named ", "in ", "a",
        "grep \"", "replace with ", "lines 3 - ", "? ", " ", "'a'", "show then then ",
    ):  # fmt: skip
        few, many = (_work(piece * times) for times in (40, 4000))
        assert many <= max(2 * few, 30_000), piece


def _work(text: str) -> int:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        grammar.parse_request(text)
    finally:
        sys.setprofile(before)
    return calls
