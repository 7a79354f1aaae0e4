"""Code of a project is imported from its source; what is installed is imported as Python does."""

from __future__ import annotations

import importlib
import sys

import pytest

from detent.authoring.source_imports import import_from_source


@pytest.fixture
def importing(tmp_path, monkeypatch):
    """A project with an environment inside it, both on the import path."""
    installed = tmp_path / "env/site-packages"
    for folder, name in ((tmp_path, "ours_from_source"), (installed, "theirs_as_ever")):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
        (folder / name / "inner.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(installed)])
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    import_from_source(tmp_path)
    return tmp_path


def test_no_compiled_file_is_written_for_a_project(importing):
    importlib.import_module("ours_from_source.inner")
    assert not list(importing.rglob("ours_from_source/**/*.pyc"))


def test_an_environment_inside_a_project_keeps_its_compiled_files(importing):
    importlib.import_module("theirs_as_ever.inner")
    assert len(list(importing.rglob("theirs_as_ever/**/*.pyc"))) == 2
