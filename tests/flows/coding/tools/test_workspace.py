"""No file tool gets out of the workspace or at what is protected, however a path is spelled or swapped."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.guarded import Guarded
from detent.engine.tools import ToolError
from detent.flows.coding.tools.catalogue import ToolSettings
from detent.flows.coding.workspace import Workspace
from tests.examples import ALL, covering, examples
from tests.flows.coding.tools.bench import FILE_ARGUMENTS, PATH, Bench

TOOLS = tuple(FILE_ARGUMENTS)
SECRET = "not for you"


@pytest.fixture
def house(tmp_path: Path, monkeypatch) -> Bench:
    """A workspace in a home folder, with everything around it that paths could lead to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    bench = Bench(tmp_path / "ws")
    for path in ("../outside/secret.txt", ".git/config", ".detent/detent.db", "sub/.git", "sub/.detent/x"):
        bench.put(path, SECRET)
    bench.put("src/a.txt", "a")
    for name, target in {
        "out": "../outside", "out.txt": "../outside/secret.txt",
        "abs": str(tmp_path / "outside"), "git": ".git",
        "config": ".git/config", "db": ".detent/detent.db", "loop": "loop", "two": "one", "one": "two",
        "chain": "src/up/outside", "src/up": "../..", "in": "src", "in.txt": "src/a.txt", "self": ".",
    }.items():  # fmt: skip
        (bench.root / name).symlink_to(target)
    return bench


OUTSIDE = [
    "..", "../outside/secret.txt", "src/../../outside/secret.txt", "/etc/passwd", "/", "~",
    "~/outside/secret.txt",
    "out/secret.txt", "out.txt", "out", "abs/secret.txt", "chain/secret.txt", "src/up/outside/secret.txt",
    "self/../..",
    "src/./.././../outside/secret.txt", "//etc/passwd", "/proc/self/root/etc/passwd", "/dev/null",
    "out/new/file.txt",
    "self/self/self/../../outside/secret.txt", "in/../../outside/secret.txt",
]  # fmt: skip
PROTECTED = [
    ".git/config", ".git", ".GIT/config", ".Git", ".git./config", ".git /config", "src/../.git/config",
    "git/config",
    "config", "self/.git/config", ".detent/detent.db", ".detent", ".DETENT/x", "db", "sub/.git",
    "sub/.detent/x",
    ".g\u200cit/config", "src/.git/hooks/new", ".detent/workflows/x.yaml", "~/ws/.git/config",
    "\uff0egit/config",
]  # fmt: skip
UNUSABLE = [
    "loop", "one", "loop/../out/secret.txt", "loop/../git/config", "loop/../out", "one/../config",
    "src/../two/..//out", "loop/x", "a\0b", " ", "x" * 5000, "\ud800",
    "x" * 300, f"src/{'x' * 300}", f"{'x' * 300}/a", f"src/../{'x' * 300}/a", "é" * 200,
]  # fmt: skip
INSIDE = [
    "src/a.txt", "./src/a.txt", "src/../src/a.txt", "in/a.txt", "in.txt", "self/src/a.txt", "~/ws/src/a.txt",
    "../ws/src/a.txt", "src//a.txt", "self/self/in/./a.txt", "{root}/src/a.txt", "{root}/../ws/in.txt",
    "src/up/ws/src/a.txt",
]  # fmt: skip


def test_no_path_leads_any_tool_out_of_the_workspace(house):
    before = house.snapshot()
    for path in OUTSIDE:
        for tool in TOOLS:
            assert house.on_path(tool, path) == "outside_workspace", (tool, path)
    assert house.snapshot() == before


def test_git_and_detent_are_neither_read_listed_searched_nor_written(house):
    before = house.snapshot()
    for path in PROTECTED:
        for tool in TOOLS:
            assert house.on_path(tool, path) == "protected", (tool, path)
    assert house.snapshot() == before


def test_what_is_no_usable_path_is_refused(house):
    before = house.snapshot()
    for path in UNUSABLE:
        for tool in TOOLS:
            assert house.on_path(tool, path) in ("invalid_arguments", "not_found", "failed"), (
                tool,
                path[:20],
            )
    assert house.snapshot() == before


@pytest.mark.parametrize("path", INSIDE)
def test_a_path_that_ends_inside_is_accepted_however_it_gets_there(house, path):
    path = path.format(root=house.root)
    assert house.run("read_file", filepath=path) == {
        "content": "a", "truncated": False, "count": 1, "path": "src/a.txt",
        "sha256": house.seen("src/a.txt"),
    }  # fmt: skip
    assert house.run("update_file", filepath=path, target="a", patch="b")["paths"] == ["src/a.txt"]
    answer = house.run("write_file", filepath=path, content="c", overwrite=True, seen=house.seen(path))
    assert answer["paths"] == ["src/a.txt"]
    assert "src/a.txt:1:c" in house.text("grep", pattern="c", directory=path)


def test_a_workspace_behind_a_link_is_the_folder_itself(house, tmp_path):
    (tmp_path / "alias").symlink_to("ws")
    alias = Bench(tmp_path / "alias")
    assert alias.run("read_file", filepath=f"{tmp_path}/alias/src/a.txt")["path"] == "src/a.txt"
    assert alias.run("read_file", filepath=f"{tmp_path}/ws/src/a.txt")["path"] == "src/a.txt"


def test_a_search_finds_nothing_outside_and_nothing_protected(house):
    every = {"include_hidden": True, "exclude_dirs": [], "use_gitignore": False}
    for directory in (".", "self", "src/..", str(house.root)):
        assert house.text("glob", pattern="**/*", directory=directory, **every).split("\n") == [
            "in.txt",
            "src/a.txt",
        ]
        assert house.run("grep", pattern=SECRET, directory=directory)["count"] == 0
        shown = house.text("list_dir", directory=directory, show_hidden=True)
        assert ".git" not in shown.replace("git -> (outside", "").replace("config -> (outside", "")


def git_folder(bench: Any, name: str, *parts: str) -> None:
    """A folder as git keeps a repository in: of that layout, whatever its name."""
    for part in parts or ("HEAD", "config", "objects/info/x", "refs/heads/main", "hooks/x.sample"):
        bench.put(f"{name}/{part}", "git\n")


GIT_FOLDERS = [".bare", "meta", "sub/repo.git", "data/worktrees/main"]


@pytest.mark.parametrize("name", GIT_FOLDERS)
def test_a_folder_in_which_git_keeps_a_repository_is_protected_whatever_it_is_called(bench, name):
    git_folder(bench, name)
    bench.put("src/a.py", "git\n")
    (bench.root / "link").symlink_to(name)
    before = bench.snapshot()
    for path in (name, f"{name}/config", f"{name}/hooks/post-checkout", f"{name}/new/x", "link/HEAD"):
        for tool in TOOLS:
            assert bench.on_path(tool, path) == "protected", (tool, path)
    assert bench.snapshot() == before
    every = {"include_hidden": True, "exclude_dirs": [], "use_gitignore": False}
    assert bench.text("glob", pattern="**/*", **every).split("\n") == ["src/a.py"]
    assert bench.text("grep", pattern="git", include_files="**/*").startswith("src/a.py:1:git")
    parent, _, last = name.rpartition("/")
    assert last not in bench.text("list_dir", directory=parent or ".", show_hidden=True).replace(
        "link ->", ""
    )


def test_a_worktrees_own_part_of_a_repository_is_protected_where_it_stands_alone(bench):
    git_folder(bench, "tree", "HEAD", "commondir", "gitdir")
    assert bench.code("read_file", filepath="tree/commondir") == "protected"


@pytest.mark.parametrize("last", ["HEAD", "objects/x", "refs/heads/x", "HEAD/x"])
@pytest.mark.parametrize("folder", ["", "deep/repo/"])
def test_no_file_tool_makes_a_folder_one_in_which_git_would_look_for_its_settings(bench, folder, last):
    bench.put(f"{folder}config", "[core]\n\tfsmonitor = touch pwned\n")
    first = last.split("/")[0]
    for part in ("HEAD", "objects/y", "refs/y"):
        if part.split("/")[0] != first:
            bench.put(f"{folder}{part}", "")
    assert bench.code("write_file", filepath=folder + last, content="x") == "protected"
    assert bench.code("write_file", filepath=f"{folder}{last.lower()}", content="x") == "protected"
    assert bench.code("write_file", filepath=f"{folder}other", content="x") == "ok"


@pytest.mark.parametrize("last", ["HEAD", "commondir"])
def test_nor_one_that_points_to_a_repository(bench, last):
    bench.put({"HEAD": "tree/commondir", "commondir": "tree/HEAD"}[last], "x")
    assert bench.code("write_file", filepath=f"tree/{last}", content="../.git") == "protected"


def test_a_folder_that_only_has_such_names_is_no_repository(bench):
    for path in ("app/objects/a.py", "app/refs/b.py", "web/HEAD", "web/objects.py", "HEAD", "refs/x"):
        bench.put(path, "a")
        assert bench.code("update_file", filepath=path, target="a", patch="b") == "ok"


def test_a_worktree_whose_git_file_points_into_the_workspace_protects_that_folder(bench):
    bench.put(".git", "gitdir: ./.bare/worktrees/x\n")
    bench.put(".bare/worktrees/x/config", SECRET)
    bench.put("a", "x")
    assert bench.code("read_file", filepath=".git") == "protected"
    assert bench.code("read_file", filepath=".bare/worktrees/x/config") == "protected"
    assert SECRET not in bench.text("glob", pattern="config", include_hidden=True)
    (bench.root / ".git").unlink()
    bench.put("data/config", SECRET)
    (bench.root / ".git").symlink_to("data")
    assert bench.code("read_file", filepath="data/config") == "protected"
    assert "data" not in bench.text("list_dir")


@pytest.mark.parametrize(
    "settings",
    ["store: runs/detent.db\n", "store: sqlite:runs/detent.db?x=1\n", "store:\n  url: runs/detent.db\n"],
)
def test_the_store_and_its_sessions_are_protected_wherever_they_are(bench, settings):
    bench.put("detent.yaml", settings)
    bench.put("runs/notes.txt", "x")
    for name in ("detent.db", "detent.db-wal", "sessions/s.json", "DETENT.DB"):
        bench.put(f"runs/{name}", SECRET)
        for tool in TOOLS:
            assert bench.on_path(tool, f"runs/{name}") == "protected", (tool, name)
    assert bench.text("list_dir", directory="runs").split() == ["file", "1", "notes.txt"]
    assert bench.run("grep", pattern=SECRET)["count"] == 0


def test_a_store_that_the_environment_names_is_protected(bench, monkeypatch):
    bench.put("elsewhere.db", SECRET)
    assert bench.code("read_file", filepath="elsewhere.db") == "ok"
    monkeypatch.setenv("DETENT__STORE", "elsewhere.db")
    assert bench.code("read_file", filepath="elsewhere.db") == "protected"


def test_a_second_name_of_the_store_is_protected_too(tmp_path):
    store = tmp_path / "elsewhere.db"
    store.write_text(SECRET)
    bench = Bench(tmp_path / "ws", ToolSettings(protected=(store,)))
    os.link(store, bench.root / "copy")
    assert bench.code("read_file", filepath="copy") == "protected"
    assert bench.run("grep", pattern=SECRET)["count"] == 0


def test_settings_that_cannot_be_read_protect_nothing_less(bench):
    bench.put("detent.yaml", "store: [\n  : nonsense")
    assert bench.code("read_file", filepath=".git/x") == "protected"
    assert Workspace.at(str(bench.root)).configures("detent.yaml")
    bench.put("detent.yaml", "store: 5\nunknown: {}\n")
    assert bench.code("list_dir") == "ok"
    assert Workspace.at(str(bench.root)).configures("detent.yaml")


def test_a_workspace_that_is_not_there_is_an_error(tmp_path):
    bench = Bench(tmp_path / "ws")
    for root in (str(tmp_path / "gone"), "relative", "", str(bench.put("file"))):
        with pytest.raises(ToolError) as caught:
            Workspace.at(root)
        assert caught.value.code == "not_found"


def test_a_file_whose_name_begins_with_a_tilde_is_a_file(bench):
    bench.put("~$a.docx", "x")
    assert bench.text("read_file", filepath="~$a.docx") == "x"
    assert bench.run("write_file", filepath="~root/x", content="x")["paths"] == ["~root/x"]


def test_random_paths_are_resolved_as_the_system_resolves_them(house):
    """What is accepted is what the system itself would open, inside; what it opens outside is refused."""
    chance = random.Random(1)
    parts = [
        ".",
        "..",
        "",
        "src",
        "in",
        "self",
        "out",
        "chain",
        "src/up",
        "a.txt",
        "new",
        "ws",
        ".git",
        "git",
        "~",
        "loop",
    ]
    space, root = Workspace.at(str(house.root)), os.path.realpath(house.root)
    codes = Counter()
    for _ in range(examples(4000)):
        start = chance.choice(["", "", "", "/", f"{root}/", "~/"])
        path = start + "/".join(chance.choices(parts, k=chance.randint(1, 6)))
        from_home = path == "~" or path.startswith("~/")
        real = os.path.realpath(Path(root, os.path.expanduser(path) if from_home else path))
        inside = real == root or real.startswith(f"{root}/")
        is_hidden = bool({".git", ".detent"} & set(os.path.relpath(real, root).split("/")))
        place, code = None, "ok"
        try:
            place = space.resolve(path)
        except ToolError as error:
            code = error.code
        codes[code] += 1
        if code != "invalid_arguments":  # through links in a circle, or empty
            expected = "outside_workspace" if not inside else "protected" if is_hidden else "ok"
            assert code == expected, path
        assert place is None or str(place) == real, path
    assert min(codes[code] for code in ("ok", "protected", "outside_workspace", "invalid_arguments")) > 5


# -- races --------------------------------------------------------------------------------------------------

SWAPPER = """
import os, sys
inside, outside, stop = sys.argv[1:]
print("ready", flush=True)
while not os.path.exists(stop):
    os.rename(inside, inside + ".real")
    os.symlink(outside, inside)
    os.unlink(inside)
    os.rename(inside + ".real", inside)
"""


@contextlib.contextmanager
def swapping(inside: Path, outside: Path, stop: Path):
    """A process that replaces a path by a link to another one, and back, as fast as it can."""
    process = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(inside), str(outside), str(stop)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        stop.touch()
        process.communicate()


@pytest.mark.parametrize("component", ["a", "a/b", "a/b/c.txt"])
def test_no_link_that_is_swapped_in_meanwhile_leads_out(tmp_path, component):
    bench, outside = Bench(tmp_path / "ws"), tmp_path / "outside"
    for top in (bench.root / "a/b", outside / "b"):
        top.mkdir(parents=True)
    bench.put("a/b/c.txt", "inside")
    for place in (outside / "b/c.txt", outside / "c.txt"):
        place.write_text(SECRET)
    target = outside if component != "a/b/c.txt" else outside / "c.txt"
    codes = set()
    with swapping(bench.root / component, target, tmp_path / "stop"):
        for number in range(1500 if ALL else 60):
            for tool in TOOLS:
                path = "a/b" if tool in PATH else "a/b/c.txt"
                args = {PATH.get(tool, "filepath"): path, **FILE_ARGUMENTS[tool]}
                if tool == "update_file":
                    args |= {"target": "i", "patch": "i" * (number % 3)}
                with contextlib.suppress(ToolError):
                    answer = bench.run(tool, **args)
                    assert SECRET not in answer["content"], tool
                codes.add(bench.on_path(tool, "a/b" if tool in PATH else f"a/b/new{number % 7}.txt"))
    assert (outside / "b/c.txt").read_text() == (outside / "c.txt").read_text() == SECRET
    assert sorted(str(path.relative_to(outside)) for path in outside.rglob("*")) == ["b", "b/c.txt", "c.txt"]
    assert "ok" in codes


PIPER = """
import os, sys
file, stop = sys.argv[1:]
os.mkfifo(file + ".pipe")
print("ready", flush=True)
while not os.path.exists(stop):
    os.rename(file, file + ".real")
    os.rename(file + ".pipe", file)
    os.rename(file, file + ".pipe")
    os.rename(file + ".real", file)
"""


def test_a_pipe_that_is_swapped_in_meanwhile_blocks_nothing(bench, tmp_path):
    """Opened as usual, a pipe that nobody writes to would hold the call for ever."""
    place = bench.put("a", "inside")
    command = [sys.executable, "-c", PIPER, str(place), str(tmp_path / "stop")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    codes = [bench.code("read_file", filepath="a") for _ in range(8000 if ALL else 2000)]
    (tmp_path / "stop").touch()
    process.communicate()
    assert {"ok", "invalid_arguments"} >= set(codes) - {"not_found"}


def test_threads_that_read_and_write_one_file_never_see_half_of_it(bench):
    bench.put("a", "0" * 50_000)
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            text = bench.text("read_file", filepath="a")
            if len(text) != 50_000 or len(set(text)) != 1:
                wrong.append(text[:50])

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    for number in range(25):
        bench.run(
            "write_file",
            filepath="a",
            content=str(number % 10) * 50_000,
            overwrite=True,
            seen=bench.seen("a"),
        )
    done.set()
    for thread in readers:
        thread.join()
    assert wrong == []


def test_of_two_writers_one_learns_that_the_file_has_changed(bench):
    bench.put("a", "old")
    seen = bench.seen("a")
    codes: list[str] = []
    barrier = threading.Barrier(4)

    def write(number: int) -> None:
        barrier.wait()
        codes.append(bench.code("write_file", filepath="new", content=str(number)))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert sorted(codes) == ["exists", "exists", "exists", "ok"]
    assert bench.code("write_file", filepath="a", content="1", overwrite=True, seen=seen) == "ok"
    assert bench.code("write_file", filepath="a", content="2", overwrite=True, seen=seen) == "stale"


# -- what configures Detent ---------------------------------------------------------------------------------


def configures(bench: Bench, path: str) -> bool:
    return Workspace.at(str(bench.root)).configures(path)


def test_what_configures_detent_is_known_however_it_is_spelled(bench):
    bench.put("detent.yaml", "plugins: [lib/plugin.py]\n")
    bench.put("lib/plugin.py", "import helper\n")
    bench.put("lib/helper.py", "x = 1\n")
    bench.put("src/a.py")
    bench.put("real.yaml")
    (bench.root / "config.yaml").symlink_to("real.yaml")
    (bench.root / "link").symlink_to("lib")
    for path in (
        "detent.yaml", "./detent.yaml", "Detent.YAML", "src/../detent.yaml", f"{bench.root}/detent.yaml",
        "config.yaml",
        "playbooks/new/step.md", "evals/case.yaml", "lib/plugin.py", "lib/helper.py", "link/helper.py",
        "src/__pycache__/a.cpython-311.pyc",
    ):  # fmt: skip
        assert configures(bench, path), path
    for path in ("src/a.py", "lib/other.txt", "README.md", "src/detent.py", "../detent.yaml", ".git/config"):
        assert not configures(bench, path), path
    os.link(bench.root / "lib/plugin.py", bench.root / "src/copy.py")
    assert configures(bench, "src/copy.py")


def test_projects_inside_and_around_a_workspace_count(tmp_path):
    outer = Bench(tmp_path / "outer")
    outer.put("detent.yaml", "plugins: [ws/tools.py]\n")
    outer.put("ws/tools.py")
    outer.put("ws/nested/detent.yaml", "plugins: [own.py]\n")
    outer.put("ws/nested/own.py")
    bench = Bench(tmp_path / "outer/ws")
    assert configures(bench, "tools.py")
    assert configures(bench, "nested/own.py")
    assert configures(bench, "nested/detent.yaml")
    assert configures(bench, "somewhere/new/detent.yaml")
    assert not configures(bench, "nested/src/a.py")
    assert not configures(bench, "own.py")


def test_files_that_code_names_configure_detent_too(tmp_path):
    root = tmp_path / "ws"
    bench = Bench(root)
    guarded = Guarded(lambda: [root / "prompts"])
    assert Workspace.at(str(root), guarded=guarded).configures("prompts/x.md")
    assert not configures(bench, "prompts/x.md")


@pytest.mark.parametrize(("tool", "path"), covering(TOOLS, ("../x", ".git/x", "loop")))
def test_every_refusal_names_the_path(house, tool, path):
    with pytest.raises(ToolError) as caught:
        house.run(tool, **{PATH.get(tool, "filepath"): path, **FILE_ARGUMENTS[tool]})
    assert path in caught.value.message
