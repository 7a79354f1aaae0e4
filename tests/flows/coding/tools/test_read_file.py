"""Reading files: raw text, in parts, within bounded memory."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap

import pytest

from detent.flows.coding.tools.read_file import LARGEST
from tests.examples import covering


def test_a_file_is_read_as_it_is(bench):
    text = "\ufeffdef f():\r\n\treturn 'ä'\n\n  # end\r\nlast"
    bench.put("a.py", text)
    answer = bench.run("read_file", filepath="a.py")
    assert answer["content"] == text
    assert answer["truncated"] is False
    assert answer["path"] == "a.py"
    assert answer["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_an_empty_file_has_an_empty_text(bench):
    bench.put("empty", b"")
    answer = bench.run("read_file", filepath="empty")
    assert (answer["content"], answer["truncated"]) == ("", False)


@pytest.mark.parametrize(
    ("end", "start", "most"), covering(("", "\n", "\r\n"), (1, 2, 5, 10), (1, 3, 9, 10, 2000))
)
def test_the_lines_that_are_asked_for_are_read(bench, end, start, most):
    lines = [f"line {number}\n" for number in range(1, 10)] + [f"line 10{end}"]
    bench.put("a.txt", "".join(lines).encode())
    answer = bench.run("read_file", filepath="a.txt", start_line=start, max_lines=most)
    wanted = "".join(lines[start - 1 : start - 1 + most])
    is_more = start - 1 + most < 10
    assert answer["truncated"] is is_more
    assert answer["content"].startswith(wanted)
    note = answer["content"][len(wanted) :]
    assert (f"start_line={start + most}.]" in note and "the file has 10" in note) if is_more else note == ""


def test_going_on_where_the_note_says_gives_the_whole_file(bench):
    text = "".join(f"{number:05} {'x' * (number % 300)}\n" for number in range(3000)) + "end"
    bench.put("long.txt", text)
    parts, start = [], 1
    while True:
        answer = bench.run("read_file", filepath="long.txt", start_line=start)
        body, _, note = (
            answer["content"].rpartition("[") if answer["truncated"] else (answer["content"], "", "")
        )
        assert len(body.encode()) <= LARGEST
        parts.append(body)
        if not answer["truncated"]:
            break
        start = int(note.split("start_line=")[1].rstrip(".]"))
    assert "".join(parts) == text
    assert len(parts) > 3


def test_a_line_too_long_is_cut_between_characters_and_said_to_be(bench):
    bench.put("one.txt", "a" + "ä" * LARGEST)
    answer = bench.run("read_file", filepath="one.txt")
    body, _, note = answer["content"].partition("\n[")
    assert set(body) == {"a", "ä"}
    assert len(body.encode()) <= LARGEST
    assert answer["truncated"]
    assert "Line 1 is longer" in note
    assert "start_line" not in note
    bench.put("two.txt", "short\n" + "x" * (LARGEST + 1) + "\nlast\n")
    assert bench.text("read_file", filepath="two.txt").startswith("short\n[Line 1 is shown; the file has 3.")
    long = bench.text("read_file", filepath="two.txt", start_line=2)
    assert long.startswith("x" * LARGEST + "\n[Line 2 is longer")
    assert "start_line=3.]" in long


@pytest.mark.parametrize("line", ["x" * 99 + "\n", "x" * (LARGEST // 2 - 1) + "\n"])
def test_what_just_fits_is_whole_and_one_byte_more_is_not(bench, line):
    text = line * (LARGEST // len(line))
    bench.put("just", text)
    assert bench.run("read_file", filepath="just")["content"] == text
    bench.put("more", text + "y")
    answer = bench.run("read_file", filepath="more")
    assert (answer["truncated"], answer["content"].startswith(text + "[Lines 1 to")) == (True, True)
    bench.put("longer", text[:-1] + "y\n")
    assert bench.run("read_file", filepath="longer")["truncated"]


def test_bytes_that_are_no_utf_8_are_replaced_and_said_to_be(bench):
    bench.put("latin.txt", "caf\ufffd ".encode() + b"caf\xe9\n")
    answer = bench.text("read_file", filepath="latin.txt")
    assert answer.startswith("caf\ufffd caf\ufffd\n[")
    assert "no UTF-8 are shown as \ufffd: 1." in answer


@pytest.mark.parametrize(
    "content",
    [b"\x7fELF\0\1", b"text\n" * 5 + b"\0", "text".encode("utf-16"), bytes(range(1, 32)) * 9,
     b"abcdefgh\n" * 1500 + b"\0" + b"a\n"],
)  # fmt: skip
def test_a_binary_file_is_refused(bench, content):
    bench.put("x", content)
    assert bench.code("read_file", filepath="x") == "binary"


@pytest.mark.parametrize(
    "content", [b"caf\xe9\n" * 99, b"\x1b[31mred\x1b[0m\n", b"page\f\nbell\x07 in a long line\n"]
)
def test_a_text_with_odd_bytes_is_no_binary_file(bench, content):
    bench.put("x", content)
    assert bench.code("read_file", filepath="x") == "ok"


def test_a_line_beyond_the_end_is_an_error_that_says_where_the_end_is(bench):
    bench.put("a", "1\n2\n3")
    assert bench.text("read_file", filepath="a", start_line=3) == "3"
    error = bench.error("read_file", filepath="a", start_line=4)
    assert (error.code, "3 lines" in error.message) == ("invalid_arguments", True)


def test_what_is_not_there_is_told_with_the_nearest_name(bench):
    bench.put("src/parser.py")
    assert "'src/parser.py'" in bench.error("read_file", filepath="src/parsre.py").message
    assert "no folder 'scr'" in bench.error("read_file", filepath="scr/parser.py").message
    assert bench.error("read_file", filepath="src/parser.py/x").code == "not_found"
    assert ".git" not in bench.error("read_file", filepath="gitt").message


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "device"])
def test_only_regular_files_are_read_and_nothing_blocks(bench, kind):
    place = bench.root / "x"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "socket":
        os.mknod(place, 0o140600)
    else:
        try:
            os.mknod(place, 0o020600, os.makedev(1, 5))  # /dev/zero, which never ends
        except OSError:
            pytest.skip("only root makes devices")
    for tool in ("read_file", "write_file", "update_file"):
        assert bench.on_path(tool, "x") == "invalid_arguments"
    assert bench.code("grep", pattern="x") == "ok"
    assert bench.code("list_dir") == "ok"


HUGE = """
import resource, sys
from pathlib import Path
from detent.engine.tools import ToolError
from tests.flows.coding.tools.bench import Bench
bench = Bench(Path(sys.argv[1]))
bench.run("read_file", filepath="small")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    answer = bench.run("read_file", filepath="huge", **eval(sys.argv[2]))
    print(answer["truncated"], answer["content"][:5], "sha256" in answer)
except ToolError as error:
    print(error.code)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(("head", "args", "said"), [
    (b"", {}, "binary"),
    (b"text\n" * 30_000, {}, "True text\n False"),
    (b"text\n" * 30_000, {"start_line": 29_999}, "binary"),
])  # fmt: skip
def test_a_file_of_two_gigabytes_is_read_in_little_memory(bench, head, args, said):
    bench.put("small", "x")
    with bench.put("huge", head).open("r+b") as file:
        file.truncate(2 * 1024**3)
    script = textwrap.dedent(HUGE)
    ran = subprocess.run(
        [sys.executable, "-c", script, str(bench.root), repr(args)], capture_output=True, text=True
    )
    *lines, grown = ran.stdout.split("\n")[:-1]
    assert ("\n".join(lines), ran.stderr) == (said, "")
    assert int(grown) < 20
