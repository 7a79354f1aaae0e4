"""What installed packages offer is read once, and again as soon as one is installed."""

from importlib.metadata import entry_points

from detent.runtime.entry_points import offered


def install(folder, name, points):
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


def test_it_is_what_python_itself_finds():
    for group in ("detent.kinds", "detent.apps", "detent.executors", "detent.nothing"):
        assert offered(group) == list(entry_points(group=group))
    assert offered("detent.executors", "scripted") == list(
        entry_points(group="detent.executors", name="scripted")
    )
    assert offered("detent.executors", "nobody") == []


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
