"""Replacing a text in a file: exactly it and nothing else, down to the byte."""

from __future__ import annotations

import random
import re

import pytest

from detent.engine.tools import ToolError
from tests.examples import examples

EXACT = {
    # file, target, patch, result
    "in the middle": (b"a b c", "b", "x", b"a x c"),
    "the whole file": (b"a", "a", "b", b"b"),
    "an empty patch removes": (b"a\nb\nc\n", "b\n", "", b"a\nc\n"),
    "to nothing": (b"a\n", "a\n", "", b""),
    "no line end at the end": (b"a\nb", "b", "c", b"a\nc"),
    "a line end is added": (b"a\nb", "b", "b\n", b"a\nb\n"),
    "a byte that is no utf-8": (b"caf\xe9\nold\n\xff\xfe", "old", "new", b"caf\xe9\nnew\n\xff\xfe"),
    "a mark at the beginning": (b"\xef\xbb\xbfa = 1\n", "a = 1", "a = 2", b"\xef\xbb\xbfa = 2\n"),
    "the mark copied, too": (b"\xef\xbb\xbfa\n", "\ufeffa", "\ufeffb", b"\xef\xbb\xbfb\n"),
    "windows lines": (b"a\r\nb\r\n", "a\nb", "c\nd", b"c\r\nd\r\n"),
    "windows lines, copied": (b"a\r\nb\r\n", "a\r\nb\r\n", "c\r\nd\r\n", b"c\r\nd\r\n"),
    "windows lines, more of them": (b"a\r\nb\r\n", "a", "1\n2\n3", b"1\r\n2\r\n3\r\nb\r\n"),
    "windows lines, fewer": (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\n", b"x\r\nc\r\n"),
    "a windows line end alone": (b"a\r\nb\r\n", "a\n", "a", b"ab\r\n"),
    "from a windows line end on": (b"a\r\nb\r\n", "\nb", "\nc", b"a\r\nc\r\n"),
    "unix lines from a windows model": (b"a\nb\nc\n", "a\r\nb", "x\r\ny", b"x\ny\nc\n"),
    "mixed lines, the same number": (b"a\r\nb\nc\r\nd", "a\nb\nc", "x\ny\nz", b"x\r\ny\nz\r\nd"),
    "mixed lines, those that stay": (b"1\n2\r\n3\n4\r\n", "1\n2\n3\n", "1\n3\n", b"1\n3\n4\r\n"),
    "mixed lines, one comes in": (b"1\r\n2\n3\r\n", "1\n2\n3\n", "1\nnew\n2\n3\n", b"1\r\nnew\r\n2\n3\r\n"),
    "mixed lines elsewhere": (b"1\r\n2\nold\n3\r\n", "old", "x\ny", b"1\r\n2\nx\ny\n3\r\n"),
    "the last line takes the ends before it": (b"1\r\nold", "old", "x\ny", b"1\r\nx\r\ny"),
    "one line without an end": (b"old", "old", "x\r\ny\nz", b"x\r\ny\nz"),
    "carriage returns of old": (b"a\rb\rc", "b", "x", b"a\rx\rc"),
    "a carriage return before a windows end": (b"a\r\r\nb\n", "b", "c", b"a\r\r\nc\n"),
    "tabs and spaces": (b"\tif x:  \n\t\treturn\n", "\tif x:  \n", "\tif y:\n", b"\tif y:\n\t\treturn\n"),
    "a sign of patterns": (rb"a.*\1$ b", r".*\1$", r"\2&\g<0>", rb"a\2&\g<0> b"),
    "an accent": ("é e\u0301".encode(), "e\u0301", "x", "é x".encode()),
    "astral": ("😀😁".encode(), "😁", "😂", "😀😂".encode()),
}


@pytest.mark.parametrize("case", EXACT)
def test_everything_but_the_target_stays_to_the_byte(bench, case):
    content, target, patch, expected = EXACT[case]
    place = bench.put("a", content)
    answer = bench.run("update_file", filepath="a", target=target, patch=patch)
    assert place.read_bytes() == expected
    assert (answer["ok"], answer["paths"]) == (True, ["a"])
    assert answer["sha256"] == bench.seen("a")


def test_random_edits_keep_all_other_bytes(bench):
    """Against a plain model: unique markers around the target, and whatever bytes elsewhere."""
    chance = random.Random(9)
    noise = [b"x", b"\n", b"\r\n", b"\r", b"\xe9", b" ", "ä".encode(), b"\t", b"\xef\xbb\xbf"]
    for _ in range(examples(300)):
        before, after = (b"".join(chance.choices(noise, k=chance.randint(0, 12))) for _ in range(2))
        lines = [f"<{number}>" for number in range(chance.randint(1, 4))]
        ends = [chance.choice([b"\n", b"\r\n"]) for _ in lines[1:]]
        old = b"".join(line.encode() + end for line, end in zip(lines, [*ends, b""], strict=True))
        place = bench.put("a", before + old + after)
        target = chance.choice(["\n", "\r\n"]).join(lines)
        kept = [chance.choice([line, f"{line}!"]) for line in lines]
        bench.put("a", before + old + after)
        expected = b"".join(line.encode() + end for line, end in zip(kept, [*ends, b""], strict=True))
        if kept == lines:
            assert bench.on_path("update_file", "a", target=target, patch=target) == "invalid_arguments"
            continue
        bench.run("update_file", filepath="a", target=target, patch="\n".join(kept))
        assert place.read_bytes() == before + expected + after


def test_a_target_that_occurs_twice_is_refused_with_the_lines(bench):
    place = bench.put("a", "x = 1\r\ny\nx = 1\n" + "z\n" * 7 + "x = 1")
    error = bench.error("update_file", filepath="a", target="x = 1", patch="x = 2")
    assert error.code == "not_unique"
    assert "3 times" in error.message
    assert "lines 1, 3, 11" in error.message
    assert place.read_bytes().count(b"x = 1") == 3


@pytest.mark.parametrize(
    ("content", "target"), [("aaa", "aa"), ("abab abab", "abab"), ("\n\n\n", "\n\n"), ("aXaXa", "aXa")]
)
def test_occurrences_that_overlap_are_two(bench, content, target):
    """Counting them as `str.count` does would find one, and replace an arbitrary one of the two."""
    bench.put("a", content)
    assert bench.code("update_file", filepath="a", target=target, patch="") == "not_unique"


def test_every_occurrence_is_replaced_on_request(bench):
    place = bench.put("a", b"x\r\nx\nyx\xff x")
    answer = bench.run("update_file", filepath="a", target="x", patch="xx", replace_all=True)
    assert place.read_bytes() == b"xx\r\nxx\nyxx\xff xx"
    assert "4 occurrences" in answer["content"]
    bench.put("a", b"a\r\nb\na\nb\n")
    bench.run("update_file", filepath="a", target="a\nb\n", patch="1\n2\n", replace_all=True)
    assert place.read_bytes() == b"1\r\n2\n1\n2\n"
    bench.put("a", "aaaa")
    bench.run("update_file", filepath="a", target="aa", patch="b", replace_all=True)
    assert place.read_bytes() == b"bb"
    assert bench.code("update_file", filepath="a", target="none", patch="b", replace_all=True) == "not_found"


def test_an_empty_target_is_refused(bench):
    bench.put("a", "x")
    bench.put("empty", "")
    assert bench.code("update_file", filepath="a", target="", patch="y") == "invalid_arguments"
    assert (
        bench.code("update_file", filepath="empty", target="", patch="y", replace_all=True)
        == "invalid_arguments"
    )
    assert bench.error("update_file", filepath="empty", target="x", patch="y").message.endswith(
        "The file is empty."
    )


def test_a_patch_that_changes_nothing_is_refused(bench):
    bench.put("a", b"a\r\nb")
    assert bench.code("update_file", filepath="a", target="a", patch="a") == "invalid_arguments"
    assert bench.code("update_file", filepath="a", target="a\nb", patch="a\r\nb") == "invalid_arguments"


def test_a_target_that_is_not_there_is_told_with_the_nearest_lines(bench):
    bench.put("a.py", "import os\n\ndef parse(text):\n    return text.split()\n\ndef other():\n    pass\n")
    message = bench.error(
        "update_file", filepath="a.py", target="def prase(text):\n    return 1", patch=""
    ).message
    assert "line 3:\ndef parse(text):\n    return text.split()" in message
    same = bench.error(
        "update_file", filepath="a.py", target="def parse(text):\n  return text.split()", patch=""
    ).message
    assert "other white space" in same
    assert "line 3:\ndef parse(text):\n    return text.split()" in same
    far = bench.error("update_file", filepath="a.py", target="nothing like it at all", patch="").message
    assert "line" not in far.replace("nearest lines", "")
    assert "\ufffd" in bench.error("update_file", filepath="a.py", target="caf\ufffd", patch="").message


def test_a_target_with_line_numbers_or_markers_does_not_match(bench):
    bench.put("a", "x\n")
    for target in ("1: x", "x\n\n", " x", "X", "x\ny"):
        assert bench.code("update_file", filepath="a", target=target, patch="") == "not_found", target


def test_looking_for_similar_lines_takes_no_time(bench):
    bench.put("a", "".join(f"the line number {number} of a long file\n" for number in range(100_000)))
    error = bench.error("update_file", filepath="a", target="the line numbre of a long flie\n" * 3, patch="")
    assert "nearest lines" in error.message
    assert len(error.message) < 5000


def test_a_file_that_changed_is_edited_where_the_target_still_stands(bench):
    bench.put("a", "one\ntwo\n")
    seen = bench.seen("a")
    bench.put("a", "ONE\ntwo\n")
    answer = bench.run("update_file", filepath="a", target="two", patch="2", seen=seen)
    assert (bench.root / "a").read_text() == "ONE\n2\n"
    assert "had changed" in answer["content"]
    assert bench.code("update_file", filepath="a", target="one", patch="1", seen=seen) == "not_found"


@pytest.mark.parametrize("content", [b"a\0b", b"\x7fELF\x01\0a"])
def test_a_binary_file_is_refused(bench, content):
    bench.put("a", content)
    assert bench.code("update_file", filepath="a", target="a", patch="b") == "binary"


def test_sizes_are_limited_before_anything_is_made(bench):
    bench.put("a", "a" * 1_000_000)
    args = {"filepath": "a", "target": "a", "replace_all": True}
    assert bench.code("update_file", **args, patch="b" * 1_000_000) == "too_large"
    bench.put("b", "x" * (10 * 1024 * 1024 + 1))
    assert bench.code("update_file", filepath="b", target="y", patch="") == "too_large"
    bench.put("c", b"\r\n" * 1_000_000 + b"end")
    assert bench.code("update_file", filepath="c", target="end", patch="the\nend") == "ok"
    assert re.fullmatch(rb"(\r\n)+the\r\nend", (bench.root / "c").read_bytes())


def test_the_preview_shows_the_change_in_its_place(bench):
    bench.put("a", "".join(f"{number}\n" for number in range(1, 21)))
    shown = bench.tools["update_file"].preview(
        workspace=str(bench.root), filepath="a", target="10\n11\n", patch="ten\n"
    )
    assert shown.split("\n")[2:] == [
        "@@ -7,8 +7,7 @@", " 7", " 8", " 9", "-10", "-11", "+ten", " 12", " 13", " 14"
    ]  # fmt: skip
    with pytest.raises(ToolError) as error:
        bench.tools["update_file"].preview(workspace=str(bench.root), filepath="a", target="zz", patch="")
    assert error.value.code == "not_found"
