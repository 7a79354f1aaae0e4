"""Which files are tests, and which of them a command has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.flows.coding.options import RequestOptions
from detent.flows.coding.test_files import TestFiles, changed, is_part_of_check, is_test_file
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, says

TESTS = [
    "test_a.py", "tests/a.py", "pkg/tests/data/x.json", "a_test.go", "a_test.py", "conftest.py", "pytest.ini",
    "tox.ini", "src/__tests__/a.js", "a.spec.ts", "a.test.tsx", "a.cy.js", "e2e/x.ts", "cypress/login.js",
    "jest.config.js", "vitest.config.mts", "spec/a_spec.rb", "a_spec.rb", "spec/helper.rb", ".rspec",
    "src/test/java/A.java", "ATest.java", "UserIT.java", "TestA.java", "ATests.cs",
    "Tests/A.cs", "App.Tests/A.cs",
    "ATestCase.php", "phpunit.xml", "ASpec.scala", "testing/x.py", "Test/a.hs", "a-test.js",
    "src/androidTest/A.kt", "test/a.exs", "a_tests.rs", "test-a.R",
]  # fmt: skip
OTHERS = [
    "a.py", "src/contest.py", "latest.py", "attest/a.go", "protest_a.py", "specification.md", "inspect.py",
    "src/spectrum/a.py", "Makefile", "testimony.txt", "AUDIT.md", "EDIT.txt", "respect.js",
    "greatest/hits.py", "src/fastest.rs", "docs/special.md", "Commit.java",
]  # fmt: skip


@pytest.mark.parametrize("path", TESTS)
def test_a_usual_path_of_tests_is_known(path):
    assert is_test_file(path)


@pytest.mark.parametrize("path", OTHERS)
def test_another_path_is_none(path):
    assert not is_test_file(path)


def test_changes_are_told_by_content(tmp_path: Path):
    for path in (
        "tests/a.py",
        "tests/b.py",
        "tests/c.py",
        "src/d.py",
        "node_modules/x/test/e.js",
        ".x/test_f.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("1")
    files = TestFiles()
    before = files.contents(tmp_path)
    assert sorted(before) == ["tests/a.py", "tests/b.py", "tests/c.py"]
    (tmp_path / "tests/a.py").write_text("1")
    (tmp_path / "tests/b.py").write_text("2")
    (tmp_path / "tests/c.py").unlink()
    (tmp_path / "src/test_new.py").write_text("")
    (tmp_path / "src/d.py").write_text("2")
    assert changed(before, files.contents(tmp_path)) == ["src/test_new.py", "tests/b.py", "tests/c.py"]


@pytest.mark.parametrize(
    ("path", "check", "is_part"),
    [
        ("Makefile", "make test", True), ("sub/Makefile", "make -C sub test", True),
        ("Makefile", "CI=1 make test", True), ("Makefile", "pytest -q", False),
        ("package.json", "npm test", True), ("package.json", "make test", False),
        ("pyproject.toml", "python -m pytest -q", True), ("pyproject.toml", "make test", False),
        ("check.sh", "./check.sh", True), ("ci/check.sh", "bash ci/check.sh --fast", True),
        ("other.sh", "./check.sh", False), ("src/a.py", "make test", False),
        ("tests/a.py", "make 'test", True),
    ],
)  # fmt: skip
def test_what_a_check_runs_is_a_part_of_it(path: str, check: str, is_part: bool):
    assert is_part_of_check(path, check) is is_part


async def test_a_check_that_was_made_to_pass_is_named_as_such(tmp_path: Path):
    """Whether by a file tool or by a command; a script that the check does not run is none of it."""
    (tmp_path / "Makefile").write_text("test:\n\tfalse\n")
    edit = ("update_file", {"filepath": "Makefile", "target": "false", "patch": "true"})
    by_command = ("bash", {"command": "printf 'test:\\n\\ttrue\\n' > Makefile; echo x > other.sh"})
    for call in (edit, by_command):
        (tmp_path / "Makefile").write_text("test:\n\tfalse\n")
        async with Desk(tmp_path, ScriptedModel([says("", call), DONE])) as desk:
            result = await desk.ask("make it pass", RequestOptions(yes=True, done_when="make test"))
        assert (result.checked, result.tests_edited) == ("passed", ("Makefile",))


@pytest.mark.parametrize("check", ["test -e tests/test_a.py", None])
async def test_tests_that_a_command_has_changed_are_named_where_a_check_passed(tmp_path: Path, check):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_a(): assert broken()\n")
    command = "echo 'def test_a(): pass' > tests/test_a.py; echo x > a.py"
    model = ScriptedModel(
        [says("", ("bash", {"command": command})), says("", ("bash", {"command": "ls"})), DONE]
    )
    async with Desk(tmp_path, model) as desk:
        result = await desk.ask("make the tests pass", RequestOptions(yes=True, done_when=check))
    assert result.done
    assert result.tests_edited == (("tests/test_a.py",) if check else ())
    assert result.files_changed == ()


async def test_tests_that_a_sub_task_has_changed_through_a_command_are_named(tmp_path: Path):
    task = ("task", {"description": "fix", "prompt": "fix it", "profile": "worker"})
    edit = ("bash", {"command": "mkdir test; echo x > test/a.js"})
    model = ScriptedModel([says("", task), says("", edit), DONE, DONE])
    async with Desk(tmp_path, model) as desk:
        result = await desk.ask("go", RequestOptions(yes=True, done_when="true"))
    assert result.tests_edited == ("test/a.js",)
