"""Patterns of paths: what they match, and that no pattern takes long."""

from __future__ import annotations

import glob
import os
import random

import pytest

from detent.engine.tools import ToolError
from detent.flows.coding.tools.path_pattern import PathPattern, alternatives, path_patterns, split_at_commas
from tests.examples import examples

MATCHES = {
    "*.py": (["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.PY", "a.py/b"]),
    "src/*.py": (["src/a.py"], ["src/x/a.py", "a.py", "x/src/a.py"]),
    "./a.py": (["a.py"], ["x/a.py"]),
    "src/**/*.py": (["src/a.py", "src/x/y/a.py"], ["a.py", "srcx/a.py"]),
    "src/**": (["src/a", "src/x/y"], ["src", "srcx/a"]),
    "**/t/*": (["t/a", "x/t/a"], ["t", "x/t/y/a"]),
    "**": (["a", "x/y"], []),
    "a**b": (["ab", "axxb"], ["a/b"]),
    "a?c": (["abc", "aéc"], ["ac", "a/c"]),
    "[ab]c": (["ac", "x/bc"], ["cc"]),
    "[!a]c": (["bc"], ["ac", "c"]),
    "[]x]": (["]", "x"], ["["]),
    "[a": (["[a"], ["a"]),
    r"\*": (["*"], ["a"]),
    "a[/]b": ([], ["a/b"]),
    "x/**/y/**/z": (["x/y/z", "x/1/y/2/3/z"], ["x/z", "y/z"]),
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_pattern_matches_what_it_says(pattern):
    yes, no = MATCHES[pattern]
    rule = PathPattern(pattern)
    assert [path for path in yes + no if rule.matches(path)] == yes
    assert all(rule.may_match_below(path.rpartition("/")[0]) for path in yes)


def test_random_patterns_match_what_the_shell_matches(tmp_path):
    chance = random.Random(3)
    names = ["a", "b", "ab", "a.b", "ba", "x"]
    for _ in range(60):
        folders = chance.choices(names, k=chance.randint(0, 3))
        place = tmp_path.joinpath(*folders)
        if all(not parent.is_file() for parent in [place, *place.parents]):
            place.mkdir(parents=True, exist_ok=True)
            if not (file := place / chance.choice(names)).exists():
                file.touch()
    paths = [
        os.path.relpath(os.path.join(top, name), tmp_path)
        for top, _, files in os.walk(tmp_path)
        for name in files
    ]
    pieces = ["a", "b", "*", "?", "/", "[ab]", "[!a]", ".", "x"]
    found = 0
    for _ in range(examples(2000)):
        parts = [
            "".join(chance.choices([p for p in pieces if p != "/"], k=chance.randint(1, 3))) for _ in range(3)
        ]
        parts = [chance.choice([part, part, "**"]) for part in parts[: chance.randint(2, 3)]]
        if parts[-1] == "**" or "." in parts or ".." in parts:
            continue
        pattern = "/".join(parts)
        expected = {
            path for path in glob.glob(pattern, root_dir=tmp_path, recursive=True, include_hidden=True)
            if (tmp_path / path).is_file()
        }  # fmt: skip
        rule = PathPattern(pattern, anchored=True)
        assert {path for path in paths if rule.matches(path)} == expected, pattern
        for path in expected:
            assert rule.may_match_below(os.path.dirname(path)), pattern
        found += len(expected)
    assert found > 100


def test_a_folder_in_which_nothing_can_match_is_not_entered():
    rule = PathPattern("src/*/x.py")
    assert [rule.may_match_below(folder) for folder in ("", "src", "src/a", "src/a/b", "lib")] == [
        True, True, True, False, False
    ]  # fmt: skip
    assert PathPattern("*.py").may_match_below("any/where")


def test_braces_stand_for_alternatives():
    assert alternatives("*.{js,ts}") == ["*.js", "*.ts"]
    assert alternatives("{a,b{c,d}}/{e,}") == ["a/e", "a/", "bc/e", "bc/", "bd/e", "bd/"]
    assert alternatives("{a}") == ["{a}"]
    assert alternatives("{a,b") == ["{a,b"]
    assert alternatives(r"\{a,b}") == [r"\{a,b}"]
    with pytest.raises(ToolError):
        alternatives("{a,b}" * 20)


def test_several_patterns_stand_between_commas():
    assert split_at_commas("*.py, {a,b}.c ,,[,]") == ["*.py", "{a,b}.c", "[,]"]
    assert [rule.text for rule in path_patterns("*.{py,pyi},Makefile")] == ["*.py", "*.pyi", "Makefile"]
    assert [rule.text for rule in path_patterns(["a,b"])] == ["a,b"]


@pytest.mark.parametrize(
    "pattern", ["*a" * 100 + "b", "**/a/" * 100 + "b", "a**" * 500 + "/b", "[!a]*" * 200 + "/", "?*" * 99]
)
def test_no_pattern_takes_long(pattern):
    """One that backtracks would take longer than the test may."""
    rule = PathPattern(pattern)
    path = "/".join(["a"] * 60 + ["a" * 250])
    assert not any(rule.matches(path) for _ in range(10)) or pattern.startswith("?")
    rule.may_match_below(path)
