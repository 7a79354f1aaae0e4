"""Which code of a project runs, and which change of it ends its trust."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.untrusted import HELPERS, PLAYBOOK, STEP, WORKFLOW, foreign, stranger

__all__ = ["foreign", "stranger"]


def test_a_file_named_on_the_command_line_runs_where_no_settings_lie_beside_it(folder, detent, monkeypatch):
    monkeypatch.delenv("DETENT_TRUST")
    assert detent("run", "flow.py").code == 0


def test_a_file_named_on_the_command_line_does_not_make_the_settings_beside_it_trusted(stranger, detent):
    said = detent("run", "flow.py")
    assert said.code == 2
    assert not (stranger / "MARKER").exists()


def test_code_that_a_strangers_store_names_is_not_loaded(folder, detent, monkeypatch):
    run_id = detent("run", "flow.py", "--json").json["id"]
    flow = (folder / "flow.py").read_text()
    (folder / "flow.py").write_text(f'{flow}\nPath("MARKER").write_text("executed")\n')
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(folder / "nobody"))
    for command in (("resume", "--all"), ("show", run_id), ("autonomy", "report"), ("runs",)):
        detent(*command)
        assert not (folder / "MARKER").exists()


ASKING = """
version: "1.0"
name: asking
steps:
  - {name: ask, type: python, action: ask_person, kwargs: {question: "Go on?"}}
  - {name: act, type: python, action: run_command, kwargs: {argv: [touch, MARKER]}}
"""


def answered(folder, detent) -> None:
    """Answer the run of the workflow in sub/asking.yaml, and have what is due resumed."""
    (hold,) = detent("show", "asked", "--json").json["holds"]
    detent("release", "asked", "yes", "--hold", hold["token"])
    detent("resume", "--all")


def test_a_workflow_that_a_strangers_store_names_is_not_run(folder, detent, monkeypatch):
    (folder / "sub").mkdir()
    (folder / "sub/asking.yaml").write_text(ASKING)
    detent("workflow", "run", "sub/asking.yaml", "--id", "asked")
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(folder.parent / f"{folder.name}-nobody"))
    answered(folder, detent)
    assert not (folder / "MARKER").exists()


def test_a_workflow_file_that_was_named_once_is_found_again(folder, detent, monkeypatch):
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(folder.parent / f"{folder.name}-config"))
    (folder / "sub").mkdir()
    (folder / "sub/asking.yaml").write_text(ASKING)
    detent("workflow", "run", "sub/asking.yaml", "--id", "asked")
    answered(folder, detent)
    assert (folder / "MARKER").exists()


def test_a_file_that_was_named_once_is_found_again(folder, detent, token, monkeypatch):
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(folder.parent / f"{folder.name}-config"))
    waiting = detent("run", "flow.py", "--data", json.dumps({"amount": 500}), "--json").json["id"]
    (hold,) = detent("show", waiting, "--json").json["holds"]
    assert detent("release", waiting, "yes", "--hold", hold["token"]).code == 0


def test_a_module_beside_a_plugin_never_stands_in_for_an_installed_one(folder, detent):
    (folder / "detent.yaml").write_text("plugins: [flow.py]\n")
    (folder / "colorsys.py").write_text(HELPERS)
    (folder / "pydantic_core.py").write_text(HELPERS)
    import sys

    code = "import sys; from detent.cli.main import run; run(['flows']); import colorsys, pydantic_core"
    subprocess.run([sys.executable, "-P", "-c", code], cwd=folder, check=True, capture_output=True)
    assert not (folder / "MARKER").exists()


def test_a_project_file_that_replaces_something_shipped_is_named_when_it_runs(stranger, detent):
    file = stranger / ".detent/workflows/summarize-changes.yaml"
    file.write_text(WORKFLOW.replace("greet", "summarize-changes"))
    detent("trust", "--yes")
    said = detent("workflow", "run", "summarize-changes", "--quiet")
    assert said.code == 0
    assert (
        "Note: the workflow 'summarize-changes' is .detent/workflows/summarize-changes.yaml, "
        "in place of the one that ships." in said.err
    )
    assert "Note: the action 'write_file' is the project's own (shop_plugin.py:" in said.err


def test_the_modules_of_a_playbook_run_once_its_folder_is_trusted(stranger, detent, monkeypatch):
    book = stranger.parent / f"{stranger.name}-book"
    (book / "steps").mkdir(parents=True)
    (book / "playbook.yaml").write_text(PLAYBOOK.replace("desk_tools", "book_tools"))
    (book / "steps/01-begin.md").write_text(STEP)
    (book / "book_tools.py").write_text(HELPERS)
    monkeypatch.chdir(stranger.parent)
    marker = stranger.parent / "MARKER"
    marker.unlink(missing_ok=True)
    for command in (("playbook", "check"), ("run", "playbook"), ("eval",)):
        said = detent(*command, f"./{book.name}")
        assert "module 'book_tools' is not loaded: the playbook is not trusted" in said.out + said.err
        assert not marker.exists()
    assert detent("trust", str(book), "--yes").code == 0
    detent("playbook", "check", f"./{book.name}")
    assert marker.exists()
    marker.unlink()


EVIL = 'from pathlib import Path\nPath("MARKER").write_text("executed")\n'


CALM = """
version: "1.0"
name: NAME
steps:
  - {name: a, type: python, action: log_message, kwargs: {message: hi}}
"""


CALLING = """
version: "1.0"
name: caller
steps:
  - {name: s, type: subworkflow, workflow: ../../lib/below.yaml}
  - {name: t, type: python, action: log_message, kwargs: {message: hi},
     config: {mode: agent, prompt_file: ../../prompts/t.md}}
"""


PROJECT = {
    "detent.yaml": """
plugins: [./plug.py, pack]
validation:
  stages:
    lint: {command: "sh './my check.sh'"}
    types: {command: [python3, -m, mycheck]}
""",
    "plug.py": "import helper\ntry:\n    import spare\nexcept ImportError:\n    pass\n",
    "helper.py": "",
    "pack/__init__.py": "from .sub import a\n",
    "pack/sub/__init__.py": "",
    "pack/sub/a.py": "from .. import other\n",
    "pack/other.py": "",
    "pack/unread.py": "",
    "my check.sh": "true",
    "mycheck.py": "import checks_of_ours\n",
    "checks_of_ours.py": "",
    ".detent/workflows/caller.yaml": CALLING,
    "lib/below.yaml": CALM.replace("NAME", "below"),
    "prompts/t.md": "Say it kindly.",
    "hidden/playbook.yaml": "name: hidden\n",
}


@pytest.fixture
def cloned(folder, monkeypatch):
    """A project with code and configuration in many places, trusted as it is."""
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(folder.parent / f"{folder.name}-config"))
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "playbooks").mkdir()
    (folder / "playbooks/linked").symlink_to("../hidden")
    return folder


@pytest.mark.parametrize(
    "file",
    [
        *(name for name in PROJECT if name != "detent.yaml"),
        "helper/__init__.py", "spare.py", "spare/__init__.py", "helper.abi3.so", "pack/new.py", "pack/a.so",
    ],
)  # fmt: skip
def test_a_change_of_what_runs_or_configures_is_noticed(cloned, detent, file):
    assert detent("trust", "--yes").code == 0
    assert detent("trust", "--show", "--json").json["state"] == "trusted"
    (cloned / file).parent.mkdir(exist_ok=True)
    with (cloned / file).open("a") as stream:
        stream.write("# more\n")
    facts = detent("trust", "--show", "--json").json
    assert (facts["state"], facts["changed"]) == ("changed", [file])


def compiled(folder: Path, target: str) -> None:
    """Put a compiled file there whose source nobody sees."""
    (folder / "evil.py").write_text(EVIL)
    py_compile.compile(
        str(folder / "evil.py"), cfile=str(folder / target),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip
    (folder / "evil.py").unlink()


@pytest.mark.parametrize("module", ["plug", "helper", "pack/__init__", "pack/other"])
def test_compiled_files_of_a_project_never_stand_in_for_its_code(cloned, spawn, detent, module):
    place, _, name = module.rpartition("/")
    compiled(cloned, f"{place or '.'}/__pycache__/{name}.{sys.implementation.cache_tag}.pyc")
    assert detent("trust", "--yes").code == 0
    said = spawn("flows").result()
    assert said.code == 0, said.err
    assert not (cloned / "MARKER").exists()


def test_a_compiled_file_without_a_source_is_not_imported(cloned, spawn, detent):
    compiled(cloned, "spare.pyc")
    assert detent("trust", "--yes").code == 0
    assert spawn("flows").result().code == 0
    assert not (cloned / "MARKER").exists()


def test_a_folder_with_too_many_files_is_not_trusted_by_its_content(cloned, detent):
    from detent.runtime.project_files import MOST_FILES

    (cloned / "playbooks/many").mkdir()
    for number in range(MOST_FILES + 1):
        os.symlink("nowhere", cloned / "playbooks/many" / str(number))
    said = detent("trust", "--yes")
    assert said.code == 2
    assert "too many to trust by their content" in said.err
    assert detent("trust", "--show", "--json").json["state"] == "untrusted"
