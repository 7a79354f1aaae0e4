"""Listing folders: names, kinds and sizes, sorted."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def folder(bench):
    bench.put("b.txt", "12345")
    bench.put("a/inner.txt")
    bench.put(".hidden", "1")
    bench.put(".git/config")
    bench.put(".detent/detent.db")
    (bench.root / "inside").symlink_to("b.txt")
    (bench.root / "outside").symlink_to("/etc/passwd")
    (bench.root / "broken").symlink_to("nowhere")
    os.mkfifo(bench.root / "pipe")
    return bench


def test_entries_have_kind_size_and_name_in_order(folder):
    lines = [line.split(maxsplit=2) for line in folder.text("list_dir").splitlines()]
    assert lines[:-1] == [
        ["folder", "-", "a/"], ["file", "5", "b.txt"], ["link", "-", "broken -> nowhere"],
        ["link", "-", "inside -> b.txt"], ["link", "-", "outside -> (outside the workspace)"],
        ["other", "-", "pipe"],
    ]  # fmt: skip
    assert folder.text("list_dir").endswith("begin with a dot: 1.]")


def test_what_is_protected_is_never_listed(folder):
    shown = folder.text("list_dir", show_hidden=True)
    assert ".hidden" in shown
    assert ".git" not in shown
    assert ".detent" not in shown


def test_the_first_entries_of_many_are_listed_and_the_rest_counted(bench):
    for number in range(30):
        bench.put(f"{number:02}")
    answer = bench.run("list_dir", max_entries=10)
    assert [line.split()[-1] for line in answer["content"].splitlines()[:-1]] == [
        f"{n:02}" for n in range(10)
    ]
    assert "The first 10 of 30 entries" in answer["content"]
    assert answer["truncated"]
    assert not bench.run("list_dir", max_entries=30)["truncated"]


def test_a_name_cannot_be_mistaken_for_two(bench):
    bench.put("a\nfile          9 fake")
    bench.put("b\udce9")
    bench.put(" c")
    lines = bench.text("list_dir").splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines] == [
        '" c"', '"a\\nfile          9 fake"', '"b\\udce9"'
    ]  # fmt: skip
    bench.text("list_dir").encode()


def test_an_empty_folder_and_a_file_are_told_apart(bench):
    (bench.root / "empty").mkdir()
    bench.put("file")
    assert bench.text("list_dir", directory="empty") == "(no entries)"
    assert bench.code("list_dir", directory="file") == "invalid_arguments"
    assert bench.code("list_dir", directory="nothing") == "not_found"


def test_a_rule_that_denies_paths_is_heeded(folder):
    assert "5 b.txt" not in folder.text("list_dir", denied=["B.txt"])
    assert folder.text("list_dir", directory="a", denied=["a/**"]) == "(no entries)"
