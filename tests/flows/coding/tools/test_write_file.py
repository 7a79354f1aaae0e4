"""Writing files: new ones, replaced ones, what is refused, and that nothing is ever half done."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat

import pytest

from detent.engine.tools import EffectCall, ToolError
from detent.flows.coding.tools.write_file import LARGEST
from tests.flows.coding.tools.bench import Bench


def test_a_new_file_gets_its_folders_and_exactly_its_text(bench):
    text = "a\r\nb\n\ufeff\x00\x1bä\n\nlast"
    answer = bench.run("write_file", filepath="new/deep/a.txt", content=text)
    assert (bench.root / "new/deep/a.txt").read_bytes() == text.encode()
    assert answer == {
        "content": "Wrote new/deep/a.txt (5 lines).",
        "ok": True, "truncated": False, "paths": ["new/deep/a.txt"],
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }  # fmt: skip
    assert stat.S_IMODE((bench.root / "new/deep/a.txt").stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_an_existing_file_is_not_replaced_unless_asked(bench):
    bench.put("a", "old")
    error = bench.error("write_file", filepath="a", content="new")
    assert (error.code, "update_file" in error.message) == ("exists", True)
    assert bench.code("write_file", filepath="a", content="new", seen=bench.seen("a")) == "exists"
    assert (bench.root / "a").read_text() == "old"


def test_a_file_is_replaced_only_as_it_was_seen(bench):
    place = bench.put("a", "old")
    assert bench.code("write_file", filepath="a", content="new", overwrite=True) == "stale"
    seen = bench.seen("a")
    place.write_text("changed by someone")
    error = bench.error("write_file", filepath="a", content="new", overwrite=True, seen=seen)
    assert (error.code, "changed since" in error.message) == ("stale", True)
    assert place.read_text() == "changed by someone"
    answer = bench.run("write_file", filepath="a", content="new", overwrite=True, seen=bench.seen("a"))
    assert (place.read_text(), answer["paths"]) == ("new", ["a"])
    again = bench.run("write_file", filepath="a", content="newer", overwrite=True, seen=answer["sha256"])
    assert (place.read_text(), again["ok"]) == ("newer", True)


def test_what_was_seen_and_is_gone_is_written_anew(bench):
    place = bench.put("a", "old")
    seen = bench.seen("a")
    place.unlink()
    assert bench.code("write_file", filepath="a", content="new", overwrite=True, seen=seen) == "ok"


def test_writing_what_is_there_already_changes_nothing(bench):
    place = bench.put("a", "same")
    before = place.stat()
    answer = bench.run("write_file", filepath="a", content="same", overwrite=True)
    assert (answer["ok"], answer["paths"]) == (True, [])
    assert (place.stat().st_ino, place.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(("tool", "args"), [
    ("write_file", {"content": "new", "overwrite": True}),
    ("update_file", {"target": "old", "patch": "new"}),
])  # fmt: skip
@pytest.mark.parametrize("theirs", ["old and more", None])
def test_what_changes_at_the_last_moment_is_not_overwritten(bench, tool, args, theirs):
    """The intent is journaled between the look at the file and the write: others may write meanwhile."""
    place = bench.put("a", "old")

    async def begun(**facts):
        assert facts["before"] == hashlib.sha256(b"old").hexdigest()
        assert facts["after"] == hashlib.sha256(b"new").hexdigest()
        place.unlink() if theirs is None else place.write_text(theirs)

    call = EffectCall("r", "k", 1, begun=begun)
    args = {"workspace": str(bench.root), "filepath": "a", **args, "seen": bench.seen("a")}
    with pytest.raises(ToolError) as caught:
        asyncio.run(bench.tools[tool].perform(call, **args))
    assert caught.value.code == "stale"
    assert (place.read_text() if place.exists() else None) == theirs


def test_a_file_that_appears_at_the_last_moment_is_not_overwritten(bench):
    async def begun(**facts):
        assert facts["before"] is None
        bench.put("a", "theirs")

    args = {"workspace": str(bench.root), "filepath": "a", "content": "ours"}
    with pytest.raises(ToolError) as caught:
        asyncio.run(bench.tools["write_file"].perform(EffectCall("r", "k", 1, begun=begun), **args))
    assert caught.value.code == "exists"
    assert (bench.root / "a").read_text() == "theirs"


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o444, 0o640])
def test_a_replaced_file_keeps_its_mode(bench, mode):
    bench.put("a", "old", mode)
    seen = bench.seen("a")
    bench.run("write_file", filepath="a", content="new", overwrite=True, seen=seen)
    assert stat.S_IMODE((bench.root / "a").stat().st_mode) == mode
    bench.run("update_file", filepath="a", target="new", patch="newer")
    assert stat.S_IMODE((bench.root / "a").stat().st_mode) == mode


@pytest.mark.parametrize("tool", ["write_file", "update_file"])
def test_a_write_replaces_the_name_and_not_what_another_name_stands_for(bench, tmp_path, tool):
    """A hard link to a file outside must not carry a write out of the workspace."""
    outside = tmp_path / "outside.txt"
    outside.write_text("theirs")
    os.link(outside, bench.root / "a")
    if tool == "write_file":
        bench.run(tool, filepath="a", content="ours", overwrite=True, seen=bench.seen("a"))
    else:
        bench.run(tool, filepath="a", target="theirs", patch="ours")
    assert (outside.read_text(), (bench.root / "a").read_text()) == ("theirs", "ours")


@pytest.mark.parametrize("tool", ["write_file", "update_file"])
def test_a_link_is_written_through_and_stays_a_link(bench, tool):
    bench.put("real/a", "old")
    (bench.root / "link").symlink_to("real/a")
    if tool == "write_file":
        answer = bench.run(tool, filepath="link", content="new", overwrite=True, seen=bench.seen("link"))
    else:
        answer = bench.run(tool, filepath="link", target="old", patch="new")
    assert (bench.root / "link").is_symlink()
    assert (bench.root / "real/a").read_text() == "new"
    assert answer["paths"] == ["real/a"]


def test_a_link_to_nothing_is_written_where_it_leads(bench):
    (bench.root / "link").symlink_to("real/a")
    assert bench.run("write_file", filepath="link", content="new")["paths"] == ["real/a"]
    assert (bench.root / "link").is_symlink()


def test_sizes_are_limited_in_bytes(bench):
    assert bench.code("write_file", filepath="just", content="ä" * (LARGEST // 2)) == "ok"
    assert bench.code("write_file", filepath="more", content="ä" * (LARGEST // 2) + "x") == "too_large"
    assert not (bench.root / "more").exists()


def test_half_a_character_is_refused(bench):
    assert bench.code("write_file", filepath="a", content="\ud800") == "invalid_arguments"
    bench.put("a", "x")
    assert bench.code("update_file", filepath="a", target="\ud800", patch="") == "invalid_arguments"
    assert bench.code("update_file", filepath="a", target="x", patch="\udcff") == "invalid_arguments"


@pytest.mark.parametrize("path", [".", "folder", "a/below", "folder/", "x" * 300, "a\0b", " ", "y" * 5000])
def test_what_can_be_no_file_is_refused_and_nothing_is_made(bench, path):
    bench.put("a", "file")
    (bench.root / "folder").mkdir()
    before = bench.snapshot()
    assert bench.on_path("write_file", path) == "invalid_arguments"
    assert bench.snapshot() == before


def test_nothing_is_left_beside_a_written_file(bench):
    bench.run("write_file", filepath="a", content="1")
    bench.run("write_file", filepath="a", content="2", overwrite=True, seen=bench.seen("a"))
    assert os.listdir(bench.root) == ["a"]


def test_a_folder_that_cannot_be_written_is_a_failure_that_changed_nothing(bench):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    bench.put("locked/a", "old")
    (bench.root / "locked").chmod(0o500)
    assert bench.code("write_file", filepath="locked/b", content="x") == "failed"


def test_the_preview_names_both_contents_and_shows_the_change(bench):
    tool = bench.tools["write_file"]
    args = {"workspace": str(bench.root), "filepath": "a.txt", "overwrite": True}
    new = tool.preview(**args, content="1\n2\n")
    assert new.startswith("--- a.txt (does not exist)\n+++ a.txt (sha256 ")
    assert new.endswith("@@ -0,0 +1,2 @@\n+1\n+2")
    bench.put("a.txt", "1\n3")
    seen = bench.seen("a.txt")
    changed = tool.preview(**args, content="1\n2\n", seen=seen)
    assert changed.split("\n")[2:] == ["@@ -1,2 +1,2 @@", " 1", "-3", "\\ No newline at end of file", "+2"]
    bench.put("a.txt", "1\n4")
    later = tool.preview(**args, content="1\n2\n", seen=bench.seen("a.txt"))
    assert later != changed
    for cannot, code in (({}, "stale"), ({"filepath": "../x"}, "outside_workspace")):
        with pytest.raises(ToolError) as error:
            tool.preview(**{**args, "content": "1\n2\n", **cannot})
        assert error.value.code == code


def test_a_yes_for_a_long_change_is_not_one_for_another(bench):
    """What is shown ends somewhere; the hashes at its top tell the contents apart all the same."""
    tool, long = bench.tools["write_file"], "line\n" * 20_000
    shown = [
        tool.preview(workspace=str(bench.root), filepath="a", content=long + end)[:20_000]
        for end in ("yes", "no!")
    ]
    assert shown[0] != shown[1]
    assert len(shown[0].split("\n")) < 500


def test_the_diff_of_large_files_is_made_in_time(bench):
    old = "".join(f"{number * 7919 % 10007}\n" for number in range(30_000))
    new = "".join(f"{number * 104729 % 10007}\n" for number in range(30_000))
    bench.put("a", old)
    shown = bench.tools["write_file"].preview(
        workspace=str(bench.root), filepath="a", content=new, overwrite=True, seen=bench.seen("a")
    )
    assert "more lines" in shown


def test_the_state_folder_of_detent_serves_for_files_under_way(tmp_path):
    bench = Bench(tmp_path / "ws")
    (bench.root / ".detent").mkdir()
    bench.run("write_file", filepath="src/a", content="1")
    assert os.listdir(bench.root / ".detent") == ["tmp"]
    assert os.listdir(bench.root / ".detent/tmp") == []


def test_the_preview_of_a_file_that_is_no_text_does_not_show_its_bytes(bench):
    bench.put("a", b"\x7fELF\0\1\2")
    shown = bench.tools["write_file"].preview(
        workspace=str(bench.root), filepath="a", content="x\n", overwrite=True,
        seen=hashlib.sha256(b"\x7fELF\0\1\2").hexdigest(),
    )  # fmt: skip
    assert shown.split("\n")[2:] == ["(what is there is no text: 7 bytes)", "@@ -0,0 +1 @@", "+x"]


@pytest.mark.parametrize("name", ["a\nb", "c\udcff", "d\x1b[2J", " e "])
def test_a_name_that_no_line_can_hold_is_written_and_told_safely(bench, name):
    answer = bench.run("write_file", filepath=name, content="x")
    assert answer["paths"] == [name]
    answer["content"].encode()
    assert answer["content"].isprintable()
    changed = bench.run("update_file", filepath=name, target="x", patch="y")
    assert changed["content"].isprintable()
    shown = bench.tools["update_file"].preview(
        workspace=str(bench.root), filepath=name, target="y", patch="z"
    )
    assert shown.split("\n")[0].isprintable()
