"""Which files are tests."""

from __future__ import annotations

import pytest

from detent.flows.coding.test_files import is_test_file

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
