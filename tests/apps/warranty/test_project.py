"""A project folder of one's own."""

import pytest

from detent.apps.warranty.app import APP
from detent.apps.warranty.mailbox import office_for, warranty_settings
from detent.apps.warranty.project import demo_registry, make_demo, shipped_folder
from detent.apps.warranty.tools.registry import read_csv
from detent.cli.new import begin
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import read_settings
from tests.apps.warranty.mailroom import Room, mail


def make_project(folder):
    """Make a project as `detent new warranty` does."""
    begin(APP, str(folder))


def test_everything_that_can_be_edited_is_copied(tmp_path):
    folder = tmp_path / "desk"
    make_project(folder)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"config.yaml", "registry.csv", "instructions/playbook.yaml"} <= files
    for kind in ("steps", "templates", "scenarios"):
        shipped = {path.name for path in (shipped_folder("instructions") / kind).iterdir()}
        assert shipped == {path.name for path in (folder / "instructions" / kind).iterdir()}
    assert not any("__pycache__" in name or name.endswith(".py") for name in files)


def test_the_settings_file_that_comes_with_it_can_be_used(tmp_path):
    folder = tmp_path / "desk"
    make_project(folder)
    settings = read_settings(folder=folder, environ={}, headings=_headings)
    own = warranty_settings(settings)
    assert own == warranty_settings(read_settings(folder=folder, environ={}, headings=_headings))
    assert own.folder == folder
    assert len(office_for(settings, environ={}).flow.steps) == 8


def _headings(settings):
    from detent.runtime.catalog import Catalog

    return Catalog(settings).headings()


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="not empty"):
        make_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


async def test_a_projects_own_texts_win_over_the_shipped_ones(tmp_path):
    folder = tmp_path / "desk"
    make_project(folder)
    template = folder / "instructions/templates/03d-request-serial.en.txt"
    template.write_text("Which serial number has your device? Please look at the plate on its back side.")
    room = Room(folder)
    room.put(mail(body="Hello, our till screen stays blank since the power cut of last night."))
    (told,) = await room.once()
    assert told.what == "succeeded"
    (reply,) = room.replies()
    assert reply.body.startswith("Which serial number has your device?")


def test_the_sample_mails_are_six_or_more_and_nobodys(tmp_path):
    mails = make_demo(tmp_path)
    assert len(mails) >= 6
    for file in mails:
        words = file.read_text().replace("<", " ").replace(">", " ").split()
        assert all(word.rstrip(".,;").endswith(".example") for word in words if "@" in word), file.name
    assert len(read_csv(demo_registry())) >= 3
