"""What installed packages offer is read once, and again as soon as one is installed."""

import ast
import os
import sys
import tomllib
from importlib.metadata import Distribution, entry_points
from pathlib import Path
from zipfile import ZipFile

from detent.runtime.entry_points import EntryPoint, offered, shown_point


def install(folder, name, points):
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


def by_python(group):
    """What Python itself finds."""
    return [(point.name, point.value, point.group) for point in entry_points(group=group)]


def by_us(group, name=None):
    return [(point.name, point.value, point.group) for point in offered(group, name)]


def test_it_is_what_python_itself_finds():
    for group in ("detent.kinds", "detent.apps", "detent.executors", "console_scripts", "detent.nothing"):
        assert by_us(group) == by_python(group)
    assert [point[0] for point in by_us("detent.executors", "scripted")] == ["scripted"]
    assert by_us("detent.executors", "nobody") == []


ODD = (
    "# nothing = before:it\n\n[console_scripts]\nshelf=shelf:main\n\n [detent.shelf] \n"
    "book = shelf . books : first [extra]\n# paper = shelf:paper\nat=os:path.join\n"
)


def test_of_packages_with_the_same_name_the_first_counts(tmp_path, monkeypatch):
    install(tmp_path / "late", "a-Shelf.b", "[detent.shelf]\nold = shelf:old\n")
    install(tmp_path / "early", "A_shelf-b", ODD)
    (tmp_path / "late" / "loose.egg-info").write_text("Name: loose\n")
    (tmp_path / "late" / "bare-2.dist-info").mkdir()
    for folder in ("late", "missing", "early"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    for group in ("detent.shelf", "console_scripts"):
        assert by_us(group) == by_python(group)


def test_packages_in_archives_are_found(tmp_path, monkeypatch):
    archive = tmp_path / "shelf.zip"
    with ZipFile(archive, "w") as file:
        file.writestr("shelf-1.dist-info/METADATA", "Name: shelf\n")
        file.writestr("shelf-1.dist-info/entry_points.txt", "[detent.shelf]\nbook = shelf:book\n")
    monkeypatch.syspath_prepend(archive)
    assert by_us("detent.shelf") == by_python("detent.shelf") == [("book", "shelf:book", "detent.shelf")]


def test_packages_are_found_as_an_import_hook_finds_them(tmp_path, monkeypatch):
    install(tmp_path, "shelf", "[detent.shelf]\nbook = shelf:book\n")

    class Hook:
        find_spec = staticmethod(lambda *args: None)

        @staticmethod
        def find_distributions(context):
            return [Distribution.at(tmp_path / "shelf-1.0.dist-info")]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook])
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    assert by_us("detent.shelf") == by_python("detent.shelf") == [("book", "shelf:book", "detent.shelf")]


def test_what_an_entry_point_names_is_loaded(tmp_path):
    install(tmp_path, "tall-shelf", "")
    info = tmp_path / "tall-shelf-1.0.dist-info"
    assert EntryPoint("at", "os:path.join [extra]", "detent.shelf").load() is os.path.join
    assert EntryPoint("at", "os", "detent.shelf").load() is os
    assert shown_point(EntryPoint("at", "os:path", "detent.shelf", info)) == "os:path of tall-shelf"
    assert shown_point(EntryPoint("at", "os:path", "detent.shelf")) == "os:path"


def test_a_package_installed_meanwhile_is_seen(tmp_path, monkeypatch):
    assert offered("detent.shelf") == []
    install(tmp_path / "new", "shelf", "[detent.shelf]\nbook = shelf:book\n")
    monkeypatch.syspath_prepend(tmp_path / "new")
    assert [point.value for point in offered("detent.shelf")] == ["shelf:book"]
    install(tmp_path / "new", "second", "[detent.shelf]\npaper = second:paper\n")
    assert {point.name for point in offered("detent.shelf")} == {"book", "paper"}


def test_a_package_taken_away_is_gone():
    assert offered("detent.shelf") == []


def test_what_was_given_may_be_changed_by_whoever_got_it():
    offered("detent.executors").clear()
    assert offered("detent.executors") != []


ROOT = Path(__file__).parents[2]
BELOW = ("kernel", "engine", "insight", "dispatch", "authoring", "evals", "runtime", "testing", "cli")


def names_and_texts(path):
    """What a module says in code: its names, and its texts as wholes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for field in ("id", "attr", "arg", "name", "value"):
            if isinstance(text := getattr(node, field, None), str):
                yield text


def test_nothing_below_names_a_kind_or_an_application_that_ships():
    """A plug is one object and one line in pyproject.toml: no room below has a branch for it."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    shipped = {*points["detent.kinds"], *points["detent.apps"]}
    assert len(shipped) >= 5
    for room in BELOW:
        for path in (ROOT / "src/detent" / room).rglob("*.py"):
            named = shipped.intersection(names_and_texts(path))
            assert not named, f"{path}: {named}"
