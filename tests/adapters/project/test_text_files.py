"""`write_file`: whole files below the project folder, once, and nothing else."""

from __future__ import annotations

import threading

import pytest

from detent.adapters.project.text_files import LARGEST, TextFiles, write_file_tool
from detent.engine.tools import NOT_DONE, UNKNOWN, ToolError


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "steps").mkdir(parents=True)
    return folder


@pytest.fixture
def files(project):
    return TextFiles(project, protected=[project / "steps", project / "detent.yaml"])


def refused(work, code):
    with pytest.raises(ToolError) as caught:
        work()
    assert caught.value.code == code, str(caught.value)
    return caught.value.message


def test_a_file_is_written_whole_with_what_leads_to_it(project, files):
    receipt = files.write("letters/2026/a.txt", "Zażółć")
    assert receipt["path"] == "letters/2026/a.txt"
    assert receipt["status"] == "written"
    assert (project / receipt["path"]).read_text(encoding="utf-8") == "Zażółć\n"
    assert receipt["size"] == (project / receipt["path"]).stat().st_size
    assert [one.name for one in (project / "letters/2026").iterdir()] == ["a.txt"]
    assert not (project / ".detent").exists()


def test_the_same_text_again_changes_nothing(project, files):
    first = files.write("a.txt", "hello")
    before = (project / "a.txt").stat()
    again = files.write("a.txt", "hello\n")
    assert again == {**first, "status": "existing"}
    assert (project / "a.txt").stat().st_mtime_ns == before.st_mtime_ns


def test_another_text_needs_leave_to_replace(project, files):
    files.write("a.txt", "hello")
    assert "replace: true" in refused(lambda: files.write("a.txt", "other"), "exists")
    assert (project / "a.txt").read_text() == "hello\n"
    assert files.write("a.txt", "other", replace=True)["status"] == "written"
    assert (project / "a.txt").read_text() == "other\n"


def test_agents_cannot_say_that_a_file_may_be_replaced(files):
    tool = write_file_tool(files)
    assert tool.misfits({"path": "a.txt", "body": "x"}) == []
    assert tool.misfits({"path": "a.txt", "body": "x", "replace": True})
    tool.check({"path": "a.txt", "body": "x", "replace": True})  # a step file may


def test_a_probe_knows_whether_it_happened(project, files):
    assert files.probe("a.txt", "hello") is NOT_DONE
    receipt = files.write("a.txt", "hello")
    assert files.probe("a.txt", "hello") == {**receipt, "status": "existing"}
    assert files.probe("a.txt", "other") is NOT_DONE
    assert files.probe("a.txt", "other", replace=True) is UNKNOWN
    tool = write_file_tool(files)
    assert tool.idempotent
    assert tool.probe is not None


@pytest.mark.parametrize(
    "path",
    [
        "../a.txt",
        "x/../../a.txt",
        "out/a.txt",
        "link.txt",
        "broken.txt",
        "/tmp/x-detent.txt",
        ".",
        "steps/..",
    ],
)
def test_nothing_outside_the_project_is_written(project, files, path):
    outside = project.parent / "outside.txt"
    outside.write_text("untouched")
    (project / "out").symlink_to(project.parent)
    (project / "link.txt").symlink_to(outside)
    (project / "broken.txt").symlink_to(project.parent / "nowhere.txt")
    refused(lambda: files.write(path, "x", replace=True), "outside")
    assert sorted(one.name for one in project.parent.iterdir()) == ["outside.txt", "project"]
    assert outside.read_text() == "untouched"


@pytest.mark.parametrize(
    "path",
    ["steps/01-a.md", "detent.yaml", ".env", ".git/hooks/x", "a/.hidden", "inner/steps/../../steps/x.md"],
)
def test_settings_steps_and_hidden_files_are_not_written(project, files, path):
    refused(lambda: files.write(path, "x", replace=True), "protected")
    assert not (project / "detent.yaml").exists()


def test_a_folder_is_no_file(project, files):
    (project / "letters").mkdir()
    refused(lambda: files.write("letters", "x"), "folder")
    files.write("a.txt", "x")
    refused(lambda: files.write("a.txt/b.txt", "x"), "not_written")


@pytest.mark.parametrize(("path", "body"), [("", "x"), ("a\0b", "x"), ("a.txt", None), (None, "x")])
def test_what_is_no_path_or_no_text_is_refused(files, path, body):
    refused(lambda: files.write(path, body), "invalid")


def test_a_text_that_is_too_large_is_refused(files):
    refused(lambda: files.write("a.txt", "x" * (LARGEST + 1)), "too_large")


def test_a_folder_that_cannot_be_written_is_a_clear_failure(project, files):
    """A name longer than any file system takes cannot be written by anybody, whatever rights they have."""
    message = refused(lambda: files.write(f"out/{'x' * 300}.txt", "x"), "not_written")
    assert "too long" in message


def test_of_many_who_write_at_once_one_text_is_there_whole(project, files):
    """Whoever comes second with another text is refused; nobody sees half a file."""
    results: list[str] = []

    def write(text: str) -> None:
        try:
            results.append(files.write("a.txt", text * 5000)["status"])
        except ToolError as error:
            results.append(error.code)

    threads = [threading.Thread(target=write, args=(text,)) for text in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["exists"] * 7 + ["written"]
    text = (project / "a.txt").read_text()
    assert len(text) == 5001
    assert len(set(text)) == 2
    assert [one.name for one in project.iterdir() if one.is_file()] == ["a.txt"]
