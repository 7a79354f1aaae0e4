"""Flows are found where they are said to be, and nothing that fails to load is passed over."""

from pathlib import Path

import pytest

from detent.kernel.errors import ConfigurationError, FlowNotFound
from detent.runtime.catalog import Catalog
from detent.runtime.entry_points import EntryPoint, PluginError
from detent.runtime.settings import Settings, read_settings

FLOW = """
from detent import Flow, Machine

def make(name):
    return Flow(Machine(name, start="a", moves={{"a": ["b"]}}, ends=["b"]), {{"a": lambda ctx: "b"}})

{body}
"""


def write(folder: Path, name: str, body: str) -> str:
    (folder / name).write_text(FLOW.format(body=body))
    return name


def catalog(folder: Path, *plugins: str, **values) -> Catalog:
    return Catalog(Settings(folder, values=values), plugins)


def test_a_file_with_one_flow_needs_no_name(tmp_path):
    write(tmp_path, "one.py", 'flow = make("first")')
    found = catalog(tmp_path).pick("one.py")
    assert (found.flow.name, found.place) == ("first", "one.py")


def test_a_file_with_several_flows_lists_the_choices(tmp_path):
    write(tmp_path, "two.py", 'a = make("first")\nb = make("second")')
    with pytest.raises(ConfigurationError, match="name one: two.py:first, two.py:second"):
        catalog(tmp_path).pick("two.py")
    assert catalog(tmp_path).pick("two.py:second").flow.name == "second"
    with pytest.raises(ConfigurationError, match="no flow 'secnd'. Did you mean 'second'"):
        catalog(tmp_path).pick("two.py:secnd")


def test_plugins_are_files_or_modules(tmp_path):
    write(tmp_path, "file_plugin.py", 'a = make("from_file")')
    write(tmp_path, "module_plugin.py", 'a = make("from_module")')
    found = catalog(tmp_path, plugins=["file_plugin.py", "module_plugin"]).all()
    assert {name: one.place for name, one in found.items()} == {
        "from_file": "file_plugin.py",
        "from_module": "module_plugin",
    }


def test_a_file_may_import_its_neighbours(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "neighbour_of_flow.py").write_text("NAME = 'friendly'")
    write(tmp_path / "sub", "flow.py", "from neighbour_of_flow import NAME\nflow = make(NAME)")
    assert catalog(tmp_path).pick("sub/flow.py").flow.name == "friendly"


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("import no_such_module_at_all", 7, "ModuleNotFoundError"),
        ("1 / 0", 7, "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", 7, "SystemExit: 3"),
        ("def (", 7, "SyntaxError"),
        ('Machine("m", start="a", moves={"a": ["z"]}, ends=["b"])', 7, "M07"),
    ],
)
def test_a_file_that_fails_to_load_says_where(tmp_path, body, line, said):
    write(tmp_path, "bad.py", body)
    with pytest.raises(PluginError) as caught:
        catalog(tmp_path).pick("bad.py")
    assert caught.value.line == line
    assert caught.value.file is not None
    assert caught.value.file.endswith("bad.py")
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_plugin_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no module 'no_such_plugin'"):
        catalog(tmp_path, plugins=["no_such_plugin"]).all()
    with pytest.raises(ConfigurationError, match=r"no file gone\.py"):
        catalog(tmp_path, plugins=["gone.py"]).all()


def test_a_name_registered_twice_names_both_places(tmp_path):
    write(tmp_path, "one.py", 'a = make("same")')
    write(tmp_path, "two.py", 'a = make("same")')
    with pytest.raises(ConfigurationError, match=r"one in one\.py, one in two\.py"):
        catalog(tmp_path, "one.py", "two.py").all()


def test_an_unknown_flow_names_the_nearest(tmp_path):
    write(tmp_path, "one.py", 'a = make("warranty")')
    with pytest.raises(FlowNotFound, match="Did you mean 'warranty'"):
        catalog(tmp_path, "one.py").pick("waranty")


def test_a_file_without_flows_says_so(tmp_path):
    write(tmp_path, "none.py", "")
    with pytest.raises(ConfigurationError, match="defines no flow"):
        catalog(tmp_path).pick("none.py")


class Offered(Catalog):
    """A catalog in an installation with these entry points."""

    def __init__(self, folder: Path, *values: tuple[str, str]) -> None:
        super().__init__(Settings(folder))
        self._entry_points = [EntryPoint(name, value, "detent.flows") for name, value in values]


def test_entry_points_give_flows_functions_or_several(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    body = (
        'flow = make("one")\ndef two(): return make("two")\ndef more(): return [make("three"), make("four")]'
    )
    write(tmp_path, "offers_flows.py", body)
    found = Offered(
        tmp_path, ("one", "offers_flows:flow"), ("two", "offers_flows:two"), ("more", "offers_flows:more")
    )
    assert list(found.all()) == ["four", "one", "three", "two"]


def test_only_the_entry_point_asked_for_is_loaded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "good_offer.py", 'flow = make("good")')
    write(tmp_path, "bad_offer.py", "1 / 0")
    offered = Offered(tmp_path, ("good", "good_offer:flow"), ("bad", "bad_offer:flow"))
    assert offered.get("good").flow.name == "good"
    with pytest.raises(PluginError, match="bad_offer:flow cannot be loaded"):
        offered.all()


def test_an_entry_point_that_gives_no_flow_is_an_error(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "odd_offer.py", "flow = 3")
    with pytest.raises(ConfigurationError, match="odd_offer:flow gives no flow, but int"):
        Offered(tmp_path, ("odd", "odd_offer:flow")).all()


def test_a_plugin_may_bring_headings_of_its_own(tmp_path):
    write(
        tmp_path, "with_settings.py", 'a = make("x")\nDETENT_SETTINGS = {"desk": ["language"], "free": None}'
    )
    (tmp_path / "detent.yaml").write_text(
        "plugins: [with_settings.py]\ndesk: {language: en}\nfree: {a: {b: 1}}\n"
    )

    def headings(settings):
        return Catalog(settings).headings()

    assert read_settings(folder=tmp_path, environ={}, headings=headings).get("desk", "language") == "en"
    (tmp_path / "detent.yaml").write_text("plugins: [with_settings.py]\ndesk: {languge: en}\n")
    with pytest.raises(
        ConfigurationError, match="detent.yaml:2:8: unknown key 'desk.languge'. Did you mean 'language'"
    ):
        read_settings(folder=tmp_path, environ={}, headings=headings)


def test_an_applications_flow_is_made_when_it_is_asked_for(tmp_path):
    catalog = Catalog(Settings(tmp_path))
    assert "warranty" not in catalog.all()
    assert len(catalog.get("warranty").flow.steps) == 8
    assert catalog.get("warranty-legacy").flow.name == "warranty-legacy"
    assert catalog.look("warranty-legacy").flow is catalog.get("warranty-legacy").flow


def test_a_retired_way_is_not_made(tmp_path):
    catalog = Catalog(Settings(tmp_path, values={"orchestration": {"legacy_available": False}}))
    assert catalog.look("warranty") is not None
    assert catalog.look("warranty-legacy") is None
