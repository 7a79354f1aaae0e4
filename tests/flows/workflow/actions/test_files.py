"""Actions on files: confinement, safe writing, and bringing back."""

from __future__ import annotations

import os
from typing import Any

import pytest

OUTSIDE = ("../secret.txt", "/etc/passwd", "a/../../secret.txt", "link/secret.txt", "alias.txt")
OURS = (".git/config", ".GIT/config", "sub/.git/hooks/x", ".detent/state/x", ".detent/detent.db", ".detent/x")


def trapped(shop):
    """A project with ways out of it."""
    (shop.folder / "secret.txt").write_text("secret")
    (shop.root / "link").symlink_to(shop.folder)
    (shop.root / "alias.txt").symlink_to(shop.folder / "secret.txt")
    shop.write(".git/config", "[core]")
    shop.write(".detent/state/x", "x")
    shop.write(".detent/detent.db", "x")
    shop.write("a.txt", "a")


WAYS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "PATH"}),
    ("write_file", {"path": "PATH", "text": "x"}),
    ("write_file", {"path": "PATH", "text": "x", "if_exists": "append"}),
    ("copy_file", {"source": "PATH", "target": "b.txt"}),
    ("copy_file", {"source": "a.txt", "target": "PATH"}),
    ("move_file", {"source": "PATH", "target": "b.txt"}),
    ("replace_text", {"path": "PATH", "find": "e", "replace": "f"}),
    ("restore_file", {"path": "PATH"}),
    ("read_table", {"path": "PATH"}),
    (
        "upsert_rows",
        {"database": "PATH", "table": "t", "key": "a", "batch": {"columns": ["a"], "rows": [[1]]}},
    ),
]


class TestConfinement:
    @pytest.mark.parametrize("path", [*OUTSIDE, *OURS])
    @pytest.mark.parametrize(("action", "said"), WAYS, ids=lambda one: one if isinstance(one, str) else "")
    async def test_no_action_reaches_out_of_the_project_or_into_what_is_ours(self, shop, action, said, path):
        """2.9: links are followed before a path is judged."""
        trapped(shop)
        before = _tree(shop.folder)
        done = await shop.run(action, **{k: path if v == "PATH" else v for k, v in said.items()})
        assert not done.ok
        after = _tree(shop.folder)
        kept = {k: v for k, v in after.items() if "/.detent/" not in k}
        assert kept == {k: v for k, v in before.items() if "/.detent/" not in k}
        assert "secret" not in str(done.output or "")

    async def test_removing_a_link_removes_the_link_alone(self, shop):
        trapped(shop)
        done = await shop.run("delete_file", path="alias.txt")
        assert done.ok, done.error
        assert (shop.folder / "secret.txt").read_text() == "secret"
        assert not (shop.root / "alias.txt").is_symlink()

    async def test_a_link_that_was_removed_comes_back_as_a_link(self, shop):
        shop.write("here.txt", "x")
        (shop.root / "near").symlink_to("here.txt")
        await shop.run("delete_file", "r.c", path="near")
        assert (await shop.run("restore_file", "r.d", path="near")).output["restored"]
        assert os.readlink(shop.root / "near") == "here.txt"

    async def test_listing_follows_no_link_out_and_shows_nothing_of_ours(self, shop):
        trapped(shop)
        (shop.root / "loop").symlink_to(shop.root)
        done = await shop.run("list_files")
        assert done.output["files"] == ["a.txt"]
        for pattern in ("../*", "/etc/*"):
            assert not (await shop.run("list_files", pattern=pattern)).ok

    async def test_programs_start_inside_the_project(self, shop):
        trapped(shop)
        for folder in ("..", "link", "/", ".git"):
            assert not (await shop.run("run_command", argv=["true"], cwd=folder)).ok


def _tree(folder):
    return {
        str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        for path in sorted(folder.rglob("*"))
        if "home" not in path.parts
    }


class TestListing:
    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("*", ["a.py", "b.txt"]),
            ("**/*.py", ["a.py", "d/c.py", "d/e/f.py"]),
            ("d/**", ["d/c.py", "d/e/f.py"]),
            ("d/*/f.??", ["d/e/f.py"]),
            ("[ab].*", ["a.py", "b.txt"]),
            ("[!a].*", ["b.txt"]),
            ("**", ["a.py", "b.txt", "d/c.py", "d/e/f.py"]),
            ("*a*a*a*a*a*a*a*a*b", []),
        ],
    )
    async def test_patterns(self, shop, pattern, found):
        for name in ("d/e/f.py", "b.txt", "a.py", "d/c.py"):
            shop.write(name)
        assert (await shop.run("list_files", pattern=pattern)).output["files"] == found

    async def test_a_long_list_is_cut_and_says_so(self, shop):
        for number in range(5):
            shop.write(f"{number}.txt")
        done = await shop.run("list_files", limit=2)
        assert done.output == {"files": ["0.txt", "1.txt"], "count": 5, "truncated": True}

    async def test_a_folder_to_begin_in(self, shop):
        shop.write("d/x.py")
        shop.write("y.py")
        assert (await shop.run("list_files", root="d", pattern="*.py")).output["files"] == ["d/x.py"]


class TestReading:
    async def test_line_ends_and_marks_come_unchanged(self, shop):
        shop.write("a.txt", "\ufeffa\r\nb\rc\n")
        assert (await shop.run("read_file", path="a.txt")).output["text"] == "\ufeffa\r\nb\rc\n"

    async def test_what_is_no_text_or_too_large_is_refused_without_a_word_of_it(self, shop):
        shop.write("a.bin", b"\xff\xfe secret")
        done = await shop.run("read_file", path="a.bin")
        assert "no utf-8 text (byte 0)" in done.error
        assert "secret" not in done.error
        done = await shop.run("read_file", path="a.bin", max_bytes=3)
        assert "9 bytes" in done.error

    async def test_another_encoding(self, shop):
        shop.write("a.txt", "ä".encode("latin-1"))
        assert (await shop.run("read_file", path="a.txt", encoding="latin-1")).output["text"] == "ä"
        assert "no encoding" in (await shop.run("read_file", path="a.txt", encoding="nope")).error


class TestWriting:
    async def test_fail_leaves_what_is_there(self, shop):
        shop.write("a.txt", "old")
        done = await shop.run("write_file", path="a.txt", text="new", if_exists="fail")
        assert "exists" in done.error
        assert shop.read("a.txt") == "old"

    async def test_append_adds(self, shop):
        shop.write("a.txt", "a")
        done = await shop.run("write_file", path="a.txt", text="b", if_exists="append")
        assert (shop.read("a.txt"), done.output["bytes"], done.output["replaced"]) == ("ab", 2, True)
        assert (await shop.run("write_file", path="new.txt", text="b", if_exists="append")).ok
        assert shop.read("new.txt") == "b"

    async def test_rights_stay(self, shop):
        place = shop.write("run.sh", "#!/bin/sh\n")
        place.chmod(0o755)
        await shop.run("write_file", path="run.sh", text="#!/bin/sh\necho\n")
        assert place.stat().st_mode & 0o777 == 0o755
        await shop.run("copy_file", source="run.sh", target="copy.sh")
        assert (shop.root / "copy.sh").stat().st_mode & 0o777 == 0o755

    async def test_nothing_is_left_beside_the_file(self, shop):
        await shop.run("write_file", path="d/a.txt", text="x")
        assert [path.name for path in (shop.root / "d").iterdir()] == ["a.txt"]

    async def test_a_link_inside_is_written_through(self, shop):
        shop.write("real.txt", "old")
        (shop.root / "link.txt").symlink_to("real.txt")
        await shop.run("write_file", "r.a", path="link.txt", text="new")
        assert (shop.root / "link.txt").is_symlink()
        assert shop.read("real.txt") == "new"
        assert (await shop.run("restore_file", "r.b", path="link.txt")).output["restored"]
        assert shop.read("real.txt") == "old"

    async def test_a_file_and_itself_are_neither_copied_nor_moved(self, shop):
        shop.write("a.txt", "a")
        (shop.root / "b.txt").symlink_to("a.txt")
        for target in ("a.txt", "./a.txt", "b.txt"):
            assert "same file" in (await shop.run("move_file", source="a.txt", target=target)).error
        assert shop.read("a.txt") == "a"

    async def test_odd_names(self, shop):
        for name in ("with space", "-dash", "ü", "new\nline", 'quo"te', "per%cent", "...", "~"):
            done = await shop.run("write_file", path=f"d/{name}", text=name)
            assert done.ok, done.error
            assert (shop.root / "d" / name).read_text() == name

    @pytest.mark.parametrize("path", ["", " ", ".", "./", "d", "a\0b", "x" * 300, "a.txt/b"])
    async def test_no_place_for_a_file(self, shop, path):
        shop.write("a.txt")
        (shop.root / "d").mkdir()
        assert not (await shop.run("write_file", path=path, text="x")).ok

    async def test_removing_what_is_not_there(self, shop):
        assert "no_file" in (await shop.run("delete_file", path="a.txt")).error
        assert (await shop.run("delete_file", path="a.txt", missing_ok=True)).output["existed"] is False


class TestReplacing:
    async def test_plain_text_and_counts(self, shop):
        shop.write("a.txt", "a.a.a")
        assert (await shop.run("replace_text", path="a.txt", find=".", replace="-", count=1)).output == {
            "path": "a.txt", "replacements": 1,
        }  # fmt: skip
        assert shop.read("a.txt") == "a-a.a"

    async def test_nothing_found_writes_nothing(self, shop):
        shop.write("a.txt", "a")
        done = await shop.run("replace_text", path="a.txt", find="x", replace="y")
        assert (done.output["replacements"], done.performed) == (0, [])

    async def test_a_pattern_that_runs_away_is_given_up(self, shop):
        """It is matched in another process, so nothing else stands still meanwhile."""
        shop.write("a.txt", "a" * 40 + "!")
        done = await shop.run("replace_text", path="a.txt", find="(a+)+$", replace="", regex=True)
        assert "runaway" in done.error
        assert shop.read("a.txt") == "a" * 40 + "!"

    @pytest.mark.parametrize(
        ("find", "replace", "why"),
        [("(", "", "no regular expression"), ("a", r"\7", "group"), ("", "x", "empty")],
    )
    async def test_what_cannot_be_used(self, shop, find, replace, why):
        shop.write("a.txt", "a")
        done = await shop.run("replace_text", path="a.txt", find=find, replace=replace, regex=True)
        assert why in done.error


class TestBringingBack:
    async def test_the_first_backup_of_a_run_counts(self, shop):
        """The run's child runs included."""
        shop.write("a.txt", "0")
        for number in (1, 2, 3):
            await shop.run("write_file", f"r.loop[{number}]", path="a.txt", text=str(number))
        assert (await shop.run("restore_file", "r", path="a.txt")).output == {
            "path": "a.txt",
            "restored": True,
        }
        assert shop.read("a.txt") == "0"

    async def test_a_file_that_was_not_there_goes_and_its_new_folders_too(self, shop):
        await shop.run("write_file", "r.a", path="new/deep/a.txt", text="x")
        assert (await shop.run("restore_file", "r.b", path="new/deep/a.txt")).output["restored"]
        assert not (shop.root / "new").exists()

    async def test_doing_it_twice_undoes_nobodys_later_work(self, shop):
        shop.write("a.txt", "old")
        await shop.run("write_file", "r.a", path="a.txt", text="new")
        await shop.run("restore_file", "r.b", path="a.txt")
        shop.write("a.txt", "later, by hand")
        assert (await shop.run("restore_file", "r.c", path="a.txt")).output["restored"] is False
        assert shop.read("a.txt") == "later, by hand"

    async def test_another_runs_backups_are_not_touched(self, shop):
        shop.write("a.txt", "old")
        await shop.run("write_file", "r.a", path="a.txt", text="new")
        assert (await shop.run("restore_file", "s", path="a.txt")).output["restored"] is False
        assert shop.read("a.txt") == "new"

    async def test_a_move_is_undone_at_both_ends(self, shop):
        """Bound by name from the step's output: source and target."""
        shop.write("a.txt", "a")
        shop.write("b.txt", "b")
        done = await shop.run("move_file", "r.a", source="a.txt", target="b.txt")
        said = {name: done.output[name] for name in ("source", "target")}
        assert (await shop.run("restore_file", "r.b", **said)).output["restored"]
        assert (shop.read("a.txt"), shop.read("b.txt")) == ("a", "b")

    async def test_nothing_named_is_nothing_to_do(self, shop):
        assert (await shop.run("restore_file")).output == {"path": None, "restored": False}


class TestCrashes:
    """An effect in doubt is settled by looking, whether it had happened or not."""

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize(
        ("action", "said", "tool", "held"),
        [
            ("write_file", {"path": "a.txt", "text": "+", "if_exists": "append"}, "write", {"a.txt": "a+"}),
            ("write_file", {"path": "n.txt", "text": "n", "if_exists": "fail"}, "write", {"n.txt": "n"}),
            ("delete_file", {"path": "a.txt"}, "delete", {"a.txt": None}),
            ("move_file", {"source": "a.txt", "target": "b.txt"}, "write", {"a.txt": None, "b.txt": "a"}),
            ("move_file", {"source": "a.txt", "target": "b.txt"}, "delete", {"a.txt": None, "b.txt": "a"}),
        ],
    )  # fmt: skip
    async def test_of_files(self, workshops, action, said, tool, held, after):
        shop = workshops()
        shop.write("a.txt", "a")
        done = await shop.crashed(action, f"files.{tool}", after, "r.a", **said)
        assert done.ok, done.error
        for path, text in held.items():
            assert (shop.read(path) if (shop.root / path).exists() else None) == text
        expected = await _undisturbed(workshops(), action, said)
        assert done.output == expected

    async def test_after_one_the_backup_is_still_the_first(self, shop):
        shop.write("a.txt", "a")
        await shop.crashed("write_file", "files.write", True, "r.a", path="a.txt", text="b")
        assert (await shop.run("restore_file", "r.x", path="a.txt")).output["restored"]
        assert shop.read("a.txt") == "a"


async def _undisturbed(shop, action, said):
    shop.write("a.txt", "a")
    return (await shop.run(action, **said)).output
