"""Searching lines: what matches, how it is shown, what is left out, and how long it may take."""

from __future__ import annotations

import random
import re

import pytest

from detent.flows.coding.tools.catalogue import ToolSettings
from detent.flows.coding.tools.grep import LARGEST, grep
from detent.flows.coding.tools.line_expression import LineExpression, repeats_a_repetition, within_lines
from tests.examples import examples
from tests.flows.coding.tools.bench import Bench


def lines(bench: Bench, pattern: str, **args) -> list[str]:
    """The matching lines, without those around them."""
    text = bench.text("grep", pattern=pattern, context_lines=0, **args)
    return [
        line for line in text.split("\n") if not line.startswith("[") and line not in ("--", "(no matches)")
    ]


def test_matches_come_by_path_and_line_with_the_lines_around_them(bench):
    bench.put("b.txt", "one\nhit\ntwo\n")
    bench.put("a/c.txt", "".join(f"{number}\n" for number in range(1, 21)).replace("5\n", "hit\n"))
    bench.put("a.txt", "hit")
    assert bench.text("grep", pattern="hit").split("\n") == [
        "a.txt:1:hit", "--",
        "a/c.txt-3-3", "a/c.txt-4-4", "a/c.txt:5:hit", "a/c.txt-6-6", "a/c.txt-7-7", "--",
        "a/c.txt-13-13", "a/c.txt-14-14", "a/c.txt:15:1hit", "a/c.txt-16-16", "a/c.txt-17-17", "--",
        "b.txt-1-one", "b.txt:2:hit", "b.txt-3-two",
    ]  # fmt: skip
    assert lines(bench, "hit") == ["a.txt:1:hit", "a/c.txt:5:hit", "a/c.txt:15:1hit", "b.txt:2:hit"]


def test_lines_around_two_matches_are_shown_once(bench):
    bench.put("a", "x\n1\nx\n2\n3\n4\n5\nx\n")
    assert bench.text("grep", pattern="x").split("\n") == [
        "a:1:x", "a-2-1", "a:3:x", "a-4-2", "a-5-3", "a-6-4", "a-7-5", "a:8:x"
    ]  # fmt: skip


CASES = {
    "any case": ({"pattern": "HELLO"}, ["a:1:hello (world)", "a:4:Hello"]),
    "one case": ({"pattern": "Hello", "case_sensitive": True}, ["a:4:Hello"]),
    "plain text": ({"pattern": "(world)", "use_regex": False}, ["a:1:hello (world)"]),
    "plain text is no expression": ({"pattern": "h.llo", "use_regex": False}, []),
    "expression": ({"pattern": r"\(w\w+\)$"}, ["a:1:hello (world)"]),
    "anchored": ({"pattern": r"^\s*x\s*=\s*\d+$"}, ["a:2:  x = 1", "a:6:x=2"]),
    "no match crosses a line": ({"pattern": r"hello[^x]*x"}, []),
    "nor with a class": ({"pattern": r"\)\s+x"}, []),
    "empty lines": ({"pattern": "^$"}, ["a:3:", "a:5:"]),
    "every line": ({"pattern": ""}, None),
    "looking around": ({"pattern": r"(?<=x)=(?=\d)"}, ["a:6:x=2"]),
    "reference": ({"pattern": r"(l)\1o\b"}, ["a:1:hello (world)", "a:4:Hello"]),
    "unicode": ({"pattern": "STRASSE|ä+"}, ["a:7:ää"]),
    "windows line ends": ({"pattern": "Hello$"}, ["a:4:Hello"]),
}


@pytest.mark.parametrize("case", CASES)
def test_lines_are_matched_one_by_one(bench, case):
    bench.put("a", "hello (world)\n  x = 1\n\nHello\r\n\nx=2\nää\n")
    args, expected = CASES[case]
    if expected is None:
        assert bench.code("grep", **args) == "ok"
    else:
        assert lines(bench, **args) == expected


PIECES = [
    "a", "b", "ab", ".", r"\w", r"\s", r"\S", r"\d", r"\b", "^", "$", "|", "(", ")", "(?:", "*", "+", "?",
    "{1,2}", "*?",
    "[ab]", "[^a]", "[a-c]", r"[\w]", "x", " ", "1", r"\.", "[^a b]", "++", r"\W",
]  # fmt: skip


def test_a_text_searched_at_once_has_the_matches_of_its_lines():
    chance = random.Random(5)
    texts = ["a b\nab\n\nb1 x\n\n  a", "\n\n", "a", "ab ab\nb\n.x\na\n"]
    compared = matched = 0
    for _ in range(examples(12_000)):
        pattern = "".join(chance.choices(PIECES, k=chance.randint(1, 6)))
        expression = LineExpression(pattern, case_sensitive=True)
        if not expression.in_one_go or repeats_a_repetition(pattern):
            continue
        try:
            rule = re.compile(pattern)
        except re.error:
            continue
        for text in texts:
            wanted = [
                (number, match.start())
                for number, line in enumerate(text.split("\n"))
                if (match := rule.search(line)) is not None
            ]
            assert list(expression.matches(text, lambda: False)) == wanted, (pattern, text)
            compared += 1
            matched += bool(wanted)
    assert compared > 500
    assert matched > 200


@pytest.mark.parametrize(
    "pattern", [r"\W", "a++b", "(?s)a.b", r"a\nb", "(?<=a)b", "[]a]", "a{", r"\Aa", r"[\s]", "(?i)a"]
)
def test_what_could_cross_a_line_end_is_searched_line_by_line(pattern):
    assert within_lines(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(?:x*)*", "([a-z]+)+y", r"(\w+)*", "(?P<n>a+)+", "(.*)+", "(a{2,})+"]
)
def test_a_repeated_repetition_is_an_error_whatever_the_text(bench, pattern):
    error = bench.error("grep", pattern=pattern)
    assert (error.code, "repeats a repetition" in error.message) == ("invalid_arguments", True)


@pytest.mark.parametrize(
    "pattern", [r"(\w+\s+)+x", r"\((a+)\)+", "(a|b)+", "(ab+)+", "(a+)", r"(?:\d+,)*\d", "(a+)?"]
)
def test_an_honest_repetition_is_none(bench, pattern):
    assert bench.code("grep", pattern=pattern) == "ok"


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(x+x+)+y", r"(.*a){20}b", r"^(?:(a|a)(b|b|)?)+\1?c$"])
def test_a_pattern_that_runs_away_is_an_error_and_not_a_wait(bench, pattern):
    bench.put("a", "a" * 5000 + "x" * 5000 + "!\n")
    error = bench.error("grep", pattern=pattern)
    assert (error.code, "took too long" in error.message) == ("timeout", True)


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "*a", r"\k<x>", "(?P<a>x)(?P<a>", "a" * 20_000, "(((a{99}){99}){99}){99}", "a\nb"]
)
def test_what_is_no_expression_is_an_error_that_says_so(bench, pattern):
    bench.put("a", "a")
    error = bench.error("grep", pattern=pattern)
    assert error.code == "invalid_arguments"
    assert bench.code("grep", pattern="(", use_regex=False) == "ok"


def test_results_stop_at_the_limit(bench):
    for name in "abc":
        bench.put(name, "x\n" * 20)
    assert len(lines(bench, "x", max_results=39)) == 39
    assert bench.run("grep", pattern="x", max_results=59)["truncated"]
    whole = bench.run("grep", pattern="x", max_results=60)
    assert (whole["truncated"], whole["count"]) == (False, 60)
    assert "more matches than 59" in bench.text("grep", pattern="x", max_results=59)


def test_binary_and_large_files_are_left_out_and_counted(bench):
    bench.put("binary", b"hit\0")
    bench.put("late", b"hit\n" * 4000 + b"\0")
    bench.put("large", "hit\n" + "x" * LARGEST)
    bench.put("just", "hit\n" + "x" * (LARGEST - 4))
    bench.put("latin", b"caf\xe9 hit\n")
    assert lines(bench, "hit") == ["just:1:hit", "latin:1:caf\ufffd hit"]
    notes = bench.text("grep", pattern="hit").split("\n")[-1]
    assert "because they are binary: 2." in notes
    assert "because they are larger than 2 MB: 1." in notes


@pytest.mark.parametrize(("args", "files"), [
    ({"include_files": "*.py"}, ["a.py", "src/b.py"]),
    ({"include_files": "*.py,*.md"}, ["a.py", "c.md", "src/b.py"]),
    ({"include_files": ["src/**", "*.md"]}, ["c.md", "src/b.py", "src/d.txt"]),
    ({"include_files": "*.{md,txt}"}, ["c.md", "src/d.txt"]),
    ({"exclude_files": "*.py"}, ["c.md", "src/d.txt"]),
    ({"include_files": "*.py", "exclude_files": "src/*"}, ["a.py"]),
    ({"directory": "src"}, ["src/b.py", "src/d.txt"]),
    ({"directory": "src", "include_files": "b.*"}, ["src/b.py"]),
    ({"directory": "src/b.py"}, ["src/b.py"]),
    ({"denied": ["src/**"]}, ["a.py", "c.md"]),
    ({"denied": ["C.md"]}, ["a.py", "src/b.py", "src/d.txt"]),
])  # fmt: skip
def test_files_are_chosen_by(bench, args, files):
    for file in (
        "a.py",
        "src/b.py",
        "c.md",
        "src/d.txt",
        ".hidden/e.py",
        "ignored/f.py",
        "node_modules/g.py",
        ".git/h",
    ):
        bench.put(file, "hit")
    bench.put(".gitignore", "ignored/\n")
    assert [line.split(":")[0] for line in lines(bench, "hit", **args)] == files


def test_files_with_secrets_are_not_searched_unless_code_says_so(bench):
    for name in (
        ".env",
        "keys/server.pem",
        "id_rsa",
        "aws_credentials.json",
        "valid_ids.py",
        "id/x.py",
        "environment.py",
    ):
        bench.put(name, "hit")
    assert [line.split(":")[0] for line in lines(bench, "hit")] == [
        "environment.py",
        "id/x.py",
        "valid_ids.py",
    ]
    assert "may hold secrets: 3." in bench.text("grep", pattern="hit")
    assert len(lines(bench, "hit", secrets=True)) == 6
    assert lines(bench, "hit", directory=".env") == [".env:1:hit"]


def test_no_link_leads_to_what_would_not_be_searched(bench, tmp_path):
    (tmp_path / "outside.txt").write_text("hit")
    bench.put(".env", "hit")
    bench.put("denied/a", "hit")
    bench.put(".git/config", "hit")
    bench.put("plain", "hit")
    for name, target in {
        "l1": "../outside.txt", "l2": ".env", "l3": "denied/a", "l4": ".git/config", "l5": "plain",
        "l6": "l6",
    }.items():  # fmt: skip
        (bench.root / name).symlink_to(target)
    assert lines(bench, "hit", denied=["denied/**"]) == ["l5:1:hit", "plain:1:hit"]


def test_a_long_line_is_cut_around_its_match(bench):
    bench.put("min.js", "a" * 50_000 + "NEEDLE" + "b" * 50_000)
    (line,) = lines(bench, "needle")
    assert len(line) < 400
    assert "NEEDLE" in line
    assert line.startswith("min.js:1:…a")
    assert line.endswith("b…")
    bench.put("min.js", "NEEDLE" + "b" * 50_000)
    assert lines(bench, "needle")[0].startswith("min.js:1:NEEDLE")


def test_a_search_that_runs_out_of_time_says_so(bench):
    for number in range(20):
        bench.put(f"{number:02}", "hit\n")
    answer = grep(ToolSettings(), workspace=str(bench.root), pattern="hit", seconds=0.0)
    assert answer["truncated"]
    assert "stopped after 0 seconds" in answer["content"]
    bench.put("00", "\n" * 100_000)
    for pattern in ("hit", r"(?<!x)hit", ""):
        answer = grep(ToolSettings(), workspace=str(bench.root), pattern=pattern, directory="00", seconds=0.0)
        assert answer["truncated"] or not answer["count"]


def test_a_folder_or_file_that_is_not_there_is_an_error(bench):
    bench.put("src/a")
    assert bench.code("grep", pattern="x", directory="scr") == "not_found"
    assert "'src'" in bench.error("grep", pattern="x", directory="scr").message


def test_a_path_cannot_be_mistaken_for_a_line(bench):
    bench.put("a:1:fake\nb", "hit")
    assert lines(bench, "hit") == ['"a:1:fake\\nb":1:hit']


def test_a_denied_file_is_not_searched_even_if_it_is_named(bench):
    bench.put("secret/key", "hit")
    for path in ("secret/key", "SECRET/../secret/key"):
        assert bench.code("grep", pattern="hit", directory=path, denied=["secret/**"]) in (
            "denied",
            "not_found",
        )
    assert bench.run("grep", pattern="hit", directory="secret", denied=["secret"])["count"] == 0
