"""What `.gitignore` files name is left out exactly where git leaves it out."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from detent.flows.coding.tools.gitignore import IgnoreFile
from tests.examples import examples
from tests.flows.coding.tools.bench import Bench

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="compares with git itself")
QUIET = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
}
NAMES = [
    "a",
    "b",
    "ab",
    "abc",
    "a.c",
    "b.c",
    "A",
    "a b",
    "[a]",
    "x*",
    "-",
    "foo",
    "b ",
    "#a",
    "!a",
    "a\\",
    ".a",
    "é",
]
PIECES = [
    "a", "b", "c", "*", "?", "**", "/", "/", ".c", "[ab]", "[!a]", "[^a]", "[a-c]", "[]a]", "[[:alpha:]]",
    "\\*", "\\a",
    " ", "\\ ", "foo", "#", "!", "[a", "]", "\\", "[c-a]", "[\\]a]", ".", "é", "[z-]", "***", "-",
]  # fmt: skip


def by_git(root: Path) -> list[str]:
    """The files that git would add."""
    repository = root.parent / "repository"
    env = {**QUIET, "GIT_DIR": str(repository), "GIT_WORK_TREE": str(root)}
    if not repository.exists():
        subprocess.run(["git", "init", "-q"], check=True, env=env)
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, env=env)
    return sorted(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)


def by_glob(bench: Bench) -> list[str]:
    text = bench.text("glob", pattern="*", include_hidden=True, exclude_dirs=[], max_results=10_000)
    lines = [line for line in text.split("\n") if not line.startswith("[Left out because")]
    return sorted(
        json.loads(line) if line.startswith('"') else line for line in lines if line != "(no matches)"
    )


CASES = {
    "names": ("*.log\nbuild/\n/top\n", ["a.log", "x/b.log", "build/x", "x/build/y", "top", "x/top", "keep"]),
    "negated": ("*.txt\n!keep.txt\n", ["a.txt", "keep.txt", "x/keep.txt"]),
    "not below an ignored folder": ("x/\n!x/keep\n", ["x/keep", "keep"]),
    "the files of a folder but one": ("x/*\n!x/keep\n", ["x/keep", "x/a", "x/y/keep"]),
    "anchored by a slash inside": ("x/y.c\n", ["x/y.c", "z/x/y.c", "y.c"]),
    "any folders": (
        "**/a.c\nx/**/b.c\nz/**\n",
        ["a.c", "q/r/a.c", "x/b.c", "x/1/2/b.c", "b.c", "z/1", "q/z/1"],
    ),
    "spaces and signs": ("a \nb\\ \n\\#c\n\\!d\n# e\n", ["a", "a ", "b ", "b", "#c", "!d", "e", "# e"]),
    "windows lines and a mark": ("\ufeff*.o\r\nq\r\n", ["a.o", "q", "r"]),
    "case": ("*.O\n", ["a.o", "b.O"]),
    "hidden": (".*\n!.gitignore\n", [".x", "y/.z", "y/w"]),
    "everything": ("*\n!*/\n!*.c\n", ["a.c", "x/b.c", "x/b.o", "d"]),
    "broken": ("[\n\\\n/\n!\n//\na//b\n./c\n../d\n", ["[", "a/b", "c", "d"]),
    "folders only": ("foo/\n", ["foo", "x/foo/y"]),
}


@needs_git
@pytest.mark.parametrize("case", CASES)
def test_rules_mean_what_they_mean_to_git(bench, case):
    text, files = CASES[case]
    bench.put(".gitignore", text)
    for file in files:
        bench.put(file)
    assert by_glob(bench) == by_git(bench.root)


@needs_git
def test_rules_further_inside_come_on_top(bench):
    for file in ("a.c", "x/a.c", "x/b.c", "x/y/a.c", "x/y/b.c", "x/z/a.c"):
        bench.put(file)
    bench.put(".gitignore", "a.c\n")
    bench.put("x/.gitignore", "!a.c\n/b.c\n")
    bench.put("x/y/.gitignore", "*\n")
    assert by_glob(bench) == by_git(bench.root)
    assert bench.text("glob", pattern="*.c", directory="x/y").startswith("(no matches)")
    assert bench.text("glob", pattern="*.c", directory="x").split("\n")[:2] == ["x/a.c", "x/z/a.c"]


@needs_git
def test_random_rules_mean_what_they_mean_to_git(tmp_path):
    chance = random.Random(7)
    for number in range(examples(200)):
        bench = Bench(tmp_path / str(number))
        folders = ["", *(f"{chance.choice(NAMES)}/" for _ in range(2))]
        folders += [f"{folder}{chance.choice(NAMES)}/" for folder in folders[1:]]
        for folder in folders:
            for name in chance.sample(NAMES, 6):
                place = bench.root / (folder + name)
                if not place.exists() and all(
                    parent.is_dir() or not parent.exists() for parent in place.parents
                ):
                    bench.put(folder + name)
        written = ""
        for folder in dict.fromkeys(["", chance.choice(folders)]):
            if (bench.root / folder).is_dir():
                lines = [
                    "".join(chance.choices(PIECES, k=chance.randint(1, 5)))
                    for _ in range(chance.randint(1, 5))
                ]
                lines = [
                    chance.choice(["", "", "!", "/"]) + line + chance.choice(["", "", "/"]) for line in lines
                ]
                bench.put(f"{folder}.gitignore", "\n".join(lines))
                written += f"{folder}: {lines}\n"
        assert by_glob(bench) == by_git(bench.root), written


def test_hostile_rules_take_no_time():
    """A rule that backtracks would take longer than the test may."""
    texts = [
        "*a" * 60 + "*b",
        "**/a/" * 40 + "z",
        " " * 500_000 + "x",
        "[" * 4000,
        "[[:" * 1300,
        "a\\ " * 999,
        "[]" * 2000,
    ]
    rules = IgnoreFile("\n".join(texts).encode())
    path = "/".join(["a"] * 100) + "/" + "a" * 250
    assert all(rules.verdict(path, False) is None for _ in range(20))


def test_a_search_can_do_without_the_rules(bench):
    bench.put(".gitignore", "*.o\n")
    bench.put("a.o")
    assert bench.text("glob", pattern="*.o").endswith("[Left out because of .gitignore: 1.]")
    assert bench.text("glob", pattern="*.o", use_gitignore=False) == "a.o"


def test_a_link_to_rules_elsewhere_is_not_followed(bench, tmp_path):
    (tmp_path / "elsewhere").write_text("*.o\n")
    (bench.root / ".gitignore").symlink_to(tmp_path / "elsewhere")
    bench.put("a.o")
    assert bench.text("glob", pattern="*.o") == "a.o"
