"""Workflow files found by name and by path. 2.2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detent.authoring.problem import DocumentError
from detent.dispatch.executor import NO_MODEL
from detent.flows.workflow.checks import check_read
from detent.flows.workflow.project_registry import registry_for
from detent.flows.workflow.search_path import SHIPPED, WorkflowNotFound, WorkflowShelf, is_path
from detent.flows.workflow.spec import SubworkflowStep
from detent.flows.workflow.step_modes import CheckSettings
from detent.kernel.errors import ConfigurationError
from detent.runtime.catalog import Catalog
from detent.runtime.settings import read_settings
from tests.flows.workflow.files import registry


def put(folder: Path, file: str, name: str, description: str = "", steps: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text(
        f'version: "1.0"\nname: {name}\ndescription: {description or file}\nsteps:\n'
        f"{steps or '  - {name: a, type: checkpoint}'}\n"
    )
    return path


@pytest.fixture
def shelf(tmp_path: Path) -> WorkflowShelf:
    return WorkflowShelf(tmp_path / "project", tmp_path / "user", tmp_path / "builtin")


def test_the_shipped_workflows_are_there_with_nothing_else() -> None:
    listed = WorkflowShelf(None, None).all()
    assert [(one.name, one.source, one.hidden_by, one.problems) for one in listed] == [
        (name, "builtin", None, ())
        for name in ("commit-and-push", "data-import", "summarize-changes", "validate-and-fix")
    ]
    assert all(one.description for one in listed)
    assert all(one.file.parent == SHIPPED for one in listed)


def test_the_project_comes_before_the_user_before_what_is_shipped(
    tmp_path: Path, shelf: WorkflowShelf
) -> None:
    mine = put(tmp_path / "project", "one.yaml", "shared")
    theirs = put(tmp_path / "user", "two.yml", "shared")
    shipped = put(tmp_path / "builtin", "three.yaml", "shared")
    other = put(tmp_path / "builtin", "four.yaml", "other")
    assert [(one.name, one.file, one.source, one.hidden_by) for one in shelf.all()] == [
        ("shared", mine, "project", None), ("shared", theirs, "user", mine),
        ("other", other, "builtin", None), ("shared", shipped, "builtin", mine),
    ]  # fmt: skip
    assert shelf.find("shared", tmp_path) == mine
    mine.unlink()
    assert shelf.find("shared", tmp_path) == theirs
    theirs.unlink()
    assert shelf.find("shared", tmp_path) == shipped
    assert shelf.names() == ["other", "shared"]


def test_a_workflow_goes_by_its_key_and_not_by_its_file(tmp_path: Path, shelf: WorkflowShelf) -> None:
    path = put(tmp_path / "project", "file.yaml", "called-otherwise")
    assert shelf.find("called-otherwise", tmp_path) == path
    with pytest.raises(WorkflowNotFound):
        shelf.find("file", tmp_path)


def test_two_of_one_name_on_one_level_are_an_error_that_names_both(
    tmp_path: Path, shelf: WorkflowShelf
) -> None:
    one, two = put(tmp_path / "project", "a.yaml", "same"), put(tmp_path / "project", "b.yml", "same")
    with pytest.raises(ConfigurationError) as caught:
        shelf.find("same", tmp_path)
    assert str(one) in str(caught.value)
    assert str(two) in str(caught.value)


def test_two_of_one_name_stand_in_nobody_elses_way(tmp_path: Path, shelf: WorkflowShelf) -> None:
    """Other names are found, a name above hides the two, and each is found at its path."""
    one, two = put(tmp_path / "user", "a.yaml", "same"), put(tmp_path / "user", "b.yml", "same")
    other = put(tmp_path / "user", "c.yaml", "other")
    below = put(tmp_path / "builtin", "d.yaml", "same")
    assert shelf.find("other", tmp_path) == other
    assert shelf.find(str(two), tmp_path) == two
    assert shelf.names() == ["same", "other"]
    with pytest.raises(ConfigurationError, match="Two user workflows"):
        shelf.find("same", tmp_path)
    mine = put(tmp_path / "project", "mine.yaml", "same")
    assert shelf.find("same", tmp_path) == mine
    assert {listed.file: (listed.hidden_by, listed.rivals) for listed in shelf.all()} == {
        mine: (None, ()), one: (mine, (two,)), two: (mine, (one,)), other: (None, ()), below: (mine, ()),
    }  # fmt: skip


def test_a_file_that_runs_a_name_two_files_have_is_told_of_both(tmp_path: Path, shelf: WorkflowShelf) -> None:
    """E005."""
    put(tmp_path / "project", "a.yaml", "same")
    put(tmp_path / "project", "b.yaml", "same")
    top = put(
        tmp_path / "project", "top.yaml", "top", steps="  - {name: x, type: subworkflow, workflow: same}"
    )
    (found,) = check_read(shelf.load(top), registry(), find=shelf.finder(top.parent))
    assert found.code == "E005"
    assert "a.yaml and " in found.message
    assert "b.yaml" in found.message


def test_an_unknown_name_comes_with_the_nearest(tmp_path: Path, shelf: WorkflowShelf) -> None:
    put(tmp_path / "project", "a.yaml", "commit-and-push")
    put(tmp_path / "user", "b.yaml", "commit-only")
    with pytest.raises(WorkflowNotFound) as caught:
        shelf.find("comit-and-push", tmp_path)
    assert caught.value.suggestions[0] == "commit-and-push"
    assert "Did you mean 'commit-and-push'" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "path"),
    [("name", False), ("a-b", False), ("a.yaml", True), ("a.yml", True), ("./a", True), ("a/b", True)],
)
def test_a_path_has_a_slash_or_ends_like_one(text: str, path: bool) -> None:
    assert is_path(text) is path


def test_a_path_is_taken_anywhere_a_name_is(tmp_path: Path, shelf: WorkflowShelf) -> None:
    path = put(tmp_path / "elsewhere", "x.yaml", "something")
    assert shelf.find("elsewhere/x.yaml", tmp_path) == path
    assert shelf.find("x.yaml", tmp_path / "elsewhere") == path
    assert shelf.find(str(path), Path("/")) == path
    with pytest.raises(WorkflowNotFound) as caught:
        shelf.find("./y.yaml", tmp_path / "elsewhere")
    assert "x.yaml" in caught.value.suggestions


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path, shelf: WorkflowShelf) -> None:
    path = put(tmp_path / "project", "a.yaml", "one")
    first = shelf.load(path)
    assert shelf.load(path) is first
    put(tmp_path / "project", "a.yaml", "another")
    changed = shelf.load(path)
    assert changed.spec is not None
    assert changed.spec.name == "another"
    os.utime(path, ns=(1, 1))
    assert shelf.load(path) is not changed


def test_a_prompt_file_that_changes_is_seen(tmp_path: Path, shelf: WorkflowShelf) -> None:
    step = "  - {name: a, type: python, action: log, config: {mode: agent, prompt_file: p.md}}"
    path = put(tmp_path / "project", "a.yaml", "one", steps=step)
    assert [one.code for one in shelf.load(path).problems] == ["E020"]
    for text in ("First.", "Second."):
        (tmp_path / "project" / "p.md").write_text(text)
        spec = shelf.load(path).spec
        assert spec is not None
        assert spec.steps[0].config.prompt_text == text


def test_a_broken_file_is_listed_with_its_problems(tmp_path: Path, shelf: WorkflowShelf) -> None:
    put(tmp_path / "project", "good.yaml", "good")
    bad = tmp_path / "project" / "bad.yaml"
    bad.write_text("name: [")
    half = tmp_path / "project" / "half.yaml"
    half.write_text('version: "1.0"\nname: half\ndescription: Some.\nsteps: [{name: a}]\n')
    (tmp_path / "project" / "notes.txt").write_text("not a workflow")
    (tmp_path / "project" / "folder.yaml").mkdir()
    listed = {one.name: one for one in shelf.all()}
    assert set(listed) == {"good", "bad", "half"}
    assert listed["bad"].problems[0].code == "E010"
    assert listed["half"].description == "Some."
    assert shelf.find("good", tmp_path).name == "good.yaml"
    with pytest.raises(DocumentError) as caught:
        shelf.spec("half", tmp_path)
    assert "half.yaml" in str(caught.value)
    assert caught.value.problems[0].path == "steps[0].type"


def test_a_file_that_cannot_be_opened_is_a_problem_and_no_crash(tmp_path: Path, shelf: WorkflowShelf) -> None:
    (problem,) = shelf.load(tmp_path / "gone.yaml").problems
    assert "cannot be read" in problem.message


def test_a_huge_file_is_not_read_whole(tmp_path: Path, shelf: WorkflowShelf) -> None:
    path = tmp_path / "project" / "huge.yaml"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    (problem,) = shelf.load(path).problems
    assert "1,048,576 bytes at most" in problem.message


def test_workflows_find_each_other_by_name_and_by_path(tmp_path: Path, shelf: WorkflowShelf) -> None:
    """A relative path starts from the file that says it, however deep."""
    folder = tmp_path / "project"
    top = put(
        folder, "top.yaml", "top",
        steps="  - {name: a, type: subworkflow, workflow: inner/one.yaml}\n"
              "  - {name: b, type: subworkflow, workflow: helper}",
    )  # fmt: skip
    put(folder / "inner", "one.yaml", "one", steps="  - {name: a, type: subworkflow, workflow: ./two.yaml}")
    put(folder / "inner", "two.yaml", "two", steps="  - {name: a, type: subworkflow, workflow: ../top.yaml}")
    put(tmp_path / "user", "helper.yaml", "helper")
    found = check_read(shelf.load(top), registry(), find=shelf.finder(folder))
    assert [(one.code, one.path) for one in found] == [("E008", "steps[0].workflow")]
    assert "top → one → two → top" in found[0].message
    spec = shelf.spec("top", tmp_path)
    assert isinstance(spec.steps[0], SubworkflowStep)


# -- the shipped ones ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_workflow_validates_cleanly_with_what_ships_and_no_executor(
    path: Path, tmp_path: Path
) -> None:
    """D-75: no error and no warning, with no model anywhere."""
    (tmp_path / "detent.yaml").write_text("")
    settings = read_settings(folder=tmp_path, environ={})
    registered = registry_for(settings, Catalog(settings), environ={})
    shelf = WorkflowShelf(None)
    found = check_read(
        shelf.load(path),
        registered,
        find=shelf.finder(path.parent),
        settings=CheckSettings(no_model=lambda: NO_MODEL),
    )
    assert found == []
