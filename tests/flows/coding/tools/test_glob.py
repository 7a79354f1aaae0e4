"""Finding files: which, in what order, how many, and how long it may take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detent.flows.coding.tools.catalogue import ToolSettings
from detent.flows.coding.tools.glob import glob
from tests.flows.coding.tools.bench import Bench

FILES = [
    "README.md", "src/a.py", "src/b.PY", "src/deep/c.py", "src-old/d.py", "src.py", "tests/test_a.py",
    ".hidden.py",
    ".github/ci.py", "node_modules/m.py", "x/__pycache__/p.py", ".venv/v.py", ".git/g.py", ".detent/d.py",
]  # fmt: skip


@pytest.fixture
def tree(bench):
    for file in FILES:
        bench.put(file, file)
    return bench


def found(bench: Bench, pattern: str, **args) -> list[str]:
    text = bench.text("glob", pattern=pattern, **args)
    return (
        []
        if text.startswith("(no matches)")
        else [line for line in text.split("\n") if not line.startswith("[")]
    )


def test_a_pattern_without_a_slash_matches_at_any_depth_in_the_order_of_paths(tree):
    assert found(tree, "*.py") == ["src-old/d.py", "src.py", "src/a.py", "src/deep/c.py", "tests/test_a.py"]


CASES = {
    "anchored": ({"pattern": "src/*.py"}, ["src/a.py"]),
    "any folders": ({"pattern": "src/**/*.py"}, ["src/a.py", "src/deep/c.py"]),
    "from a folder": ({"pattern": "*.py", "directory": "src"}, ["src/a.py", "src/deep/c.py"]),
    "anchored from a folder": ({"pattern": "deep/*.py", "directory": "src"}, ["src/deep/c.py"]),
    "here only": ({"pattern": "*.py", "recursive": False}, ["src.py"]),
    "here only, from a folder": ({"pattern": "*", "directory": "src", "recursive": False}, ["src/a.py",
    "src/b.PY"]),
    "no folders between": ({"pattern": "src/**/*.py", "recursive": False}, ["src/deep/c.py"]),
    "any case": ({"pattern": "SRC/*.py", "case_sensitive": False}, ["src/a.py", "src/b.PY"]),
    "braces": ({"pattern": "*.{md,PY}"}, ["README.md", "src/b.PY"]),
    "hidden": ({"pattern": ".h*", "include_hidden": True}, [".hidden.py"]),
    "hidden folders": ({"pattern": "*.py", "directory": ".github"}, [".github/ci.py"]),
    "excluded": ({"pattern": "*.py", "exclude_dirs": ["src", "te*"]}, ["node_modules/m.py", "src-old/d.py",
    "src.py", "x/__pycache__/p.py"]),
    "folders": ({"pattern": "s*/"}, ["src-old/", "src/"]),
    "dots": ({"pattern": "../src/./a.py", "directory": "tests"}, ["src/a.py"]),
    "literal": ({"pattern": "src/a.py"}, ["src/a.py"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_files_are_found_by(tree, case):
    args, expected = CASES[case]
    assert found(tree, **args) == expected


def test_an_absolute_pattern_is_one_of_the_workspace_or_refused(tree):
    assert found(tree, f"{tree.root}/src/*.py") == ["src/a.py"]
    assert found(tree, f"{tree.root}/src/a.py") == ["src/a.py"]
    for pattern in ("/etc/*.conf", "../*", "src/../../*", "~/*", "/*"):
        assert tree.code("glob", pattern=pattern) == "outside_workspace", pattern
    for pattern in (f"{tree.root}/.git/*", ".git/../.detent/**/../*", ".."):
        assert tree.code("glob", pattern=pattern) in (
            "protected",
            "invalid_arguments",
            "outside_workspace",
        ), pattern


@pytest.mark.parametrize("pattern", [".", "/", "./", "*/../x", "{a,b}" * 30])
def test_a_pattern_that_means_nothing_is_refused(tree, pattern):
    assert tree.code("glob", pattern=pattern) in ("invalid_arguments", "outside_workspace")


def test_git_and_detent_are_never_found(tree):
    for pattern in ("*", "**/*", ".git/*", ".detent/*", "[.]git/*"):
        paths = found(tree, pattern, include_hidden=True, exclude_dirs=[], use_gitignore=False)
        assert not [path for path in paths if ".git/" in path or ".detent" in path], pattern
    for folder in (".git", ".detent", "src/../.GIT"):
        assert tree.code("glob", pattern="*", directory=folder) in ("protected", "not_found"), folder


def test_results_are_cut_at_the_limit_and_never_one_off(bench):
    for number in range(10):
        bench.put(f"{number}.txt")
    for sort_by in ("name", "modified", "size"):
        nine = bench.run("glob", pattern="*", max_results=9, sort_by=sort_by)
        assert (nine["count"], nine["truncated"]) == (9, True)
        assert "more than 9 matches" in nine["content"]
        ten = bench.run("glob", pattern="*", max_results=10, sort_by=sort_by)
        assert (ten["count"], ten["truncated"]) == (10, False)


def test_files_are_sorted_newest_first_and_largest_first(bench):
    for name, size, age in (("a", 1, 30), ("b", 3, 10), ("c/d", 2, 20), ("e", 3, 40)):
        place = bench.put(name, "x" * size)
        os.utime(place, (1e9 - age, 1e9 - age))
    assert found(bench, "*", sort_by="modified") == ["b", "c/d", "a", "e"]
    assert found(bench, "*", sort_by="size") == ["b", "e", "c/d", "a"]
    assert found(bench, "*", sort_by="size", max_results=2) == ["b", "e"]


def test_links_are_found_where_they_lead_to_a_file_inside_and_folders_behind_them_are_not_entered(
    bench, tmp_path
):
    bench.put("real/a.txt")
    (tmp_path / "outside.txt").touch()
    bench.put(".git/b.txt")
    for name, target in {
        "in.txt": "real/a.txt", "out.txt": "../outside.txt", "git.txt": ".git/b.txt", "gone.txt": "nowhere",
        "loop.txt": "loop.txt", "folder": "real", "up": "..",
    }.items():  # fmt: skip
        (bench.root / name).symlink_to(target)
    assert found(bench, "*.txt") == ["in.txt", "real/a.txt"]
    assert found(bench, "*.txt", directory="folder") == ["real/a.txt"]
    assert bench.code("glob", pattern="*", directory="up") == "outside_workspace"


def test_what_a_rule_denies_is_left_out(tree):
    assert found(tree, "*.py", denied=["src/**", "TESTS"]) == ["src-old/d.py", "src.py"]


def test_names_are_shown_so_that_each_is_one_line(bench):
    for name in ("a\nb.txt", "c\udcff.txt", "d\x1b[2J.txt"):
        bench.put(name)
    assert found(bench, "*.txt") == ['"a\\nb.txt"', '"c\\udcff.txt"', '"d\\u001b[2J.txt"']
    assert bench.code("read_file", filepath="c\udcff.txt") == "ok"


def test_a_search_that_runs_out_of_time_says_so_and_gives_what_it_has(bench):
    for number in range(300):
        (bench.root / f"{number}").touch()
    answer = glob(ToolSettings(), workspace=str(bench.root), pattern="*", seconds=0.0)
    assert answer["truncated"]
    assert "stopped after 0 seconds" in answer["content"]


def test_a_tree_without_end_is_left_at_some_depth(bench):
    here, name = os.getcwd(), "d" * 200
    os.chdir(bench.root)
    try:
        for _ in range(220):
            os.mkdir(name)
            os.chdir(name)
        Path("bottom").touch()
    finally:
        os.chdir(here)
    bench.put("top")
    answer = bench.text("glob", pattern="*")
    assert answer.split("\n")[0] == "top"
    assert "cannot be read: 1" in answer


def test_a_search_that_starts_below_a_denied_folder_finds_nothing(tree):
    assert found(tree, "*.py", directory="src/deep", denied=["src"]) == []
    assert found(tree, "src/deep/../deep/*.py", denied=["SRC"]) == []


def test_many_patterns_and_hostile_rules_do_not_stop_the_clock(bench):
    bench.put(".gitignore", "".join(f"{number}{'/**/a' * 25}/**/b\n" for number in range(2000)))
    for number in range(300):
        (bench.root / f"{number}").touch()
    many = "{" + ",".join(f"*{letter}*x" for letter in "abcdefghijklmnop") + "}"
    args = {"workspace": str(bench.root), "pattern": many, "directory": "."}
    assert glob(ToolSettings(), **args, seconds=0.0)["truncated"]
    assert glob(ToolSettings(), **args)["count"] == 0
    assert bench.code("grep", pattern="x", include_files="a," * 500) == "invalid_arguments"
