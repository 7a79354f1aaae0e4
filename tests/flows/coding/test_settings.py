"""The settings of the assistant: problems are said with their place, permissions before they are trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detent.cli.main import run

MODEL = "models: {house: {kind: vllm, base_url: 'http://127.0.0.1:9/v1', model_id: m}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "coding:\n  steps: {assistant: {mode: agnt}}\n",
            "detent.yaml:2:23: coding.steps.assistant: mode is 'agnt'; it takes deterministic or agent. "
            "Did you mean 'agent'?",
        ),
        (
            "coding:\n  tools:\n    allow: ['bsh:x']\n",
            "detent.yaml:3:5: 'bsh:x' is no rule: there is no",
        ),
        ("coding:\n  tools:\n    deny: ['todo:x']\n", "detent.yaml:3:5: 'todo:x' is no rule"),
        ("coding:\n  skills: [nowhere]\n", "detent.yaml:2:3: There is no folder "),
        (
            "coding:\n  done_when: 3\n",
            "detent.yaml:2:3: 'coding.done_when': say a command, or {command: …, when: always | changed}.",
        ),
        ("coding:\n  done_when: ''\n", "detent.yaml:2:3: 'coding.done_when.command' should not be empty."),
        ("coding:\n  protect: x\n", "detent.yaml:2:3: 'coding.protect' should be a list."),
        ("coding:\n  network: 1\n", "detent.yaml:2:3: 'coding.network' should be true or false."),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_in_plain_words(folder, capsys, text, told):
    (folder / "detent.yaml").write_text(text)
    assert run(["run", "coding", "list"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(told)
    assert "Value error" not in said


def test_a_rule_of_the_command_line_has_no_place(folder, capsys):
    assert run(["run", "coding", "--allow", "bsh", "list"]) == 2
    assert capsys.readouterr().err.startswith("'bsh' is no rule")


def test_who_set_the_mode_of_the_assistant_is_shown_by_file_and_line(folder, capsys):
    (folder / "detent.yaml").write_text(f"coding:\n  steps: {{assistant: {{mode: agent}}}}\n{MODEL}")
    assert run(["steps", "show", "coding/assistant"]) == 0
    assert "coding.steps.assistant (detent.yaml:2:23)" in capsys.readouterr().out


def test_one_step_can_be_tried_or_says_what_it_lacks(folder, capsys):
    assert run(["step", "coding", "assistant", "--data", "{}"]) == 1
    assert "A coding request needs a folder to work in" in capsys.readouterr().out
    data = json.dumps({"prompt": "list", "workspace": str(folder)})
    assert run(["step", "coding", "assistant", "--data", data]) == 0
    assert "calls list_dir" in capsys.readouterr().out


def test_a_prompt_file_of_the_assistant_is_read_from_beside_the_settings(folder, capsys):
    (folder / "detent.yaml").write_text("coding:\n  steps: {assistant: {prompt_file: nowhere.md}}\n")
    assert run(["run", "coding", "list"]) == 2
    assert "nowhere.md cannot be read" in capsys.readouterr().err


def test_an_untrusted_project_shows_what_it_lets_the_assistant_do_and_where_files_go(folder, capsys):
    rules = "tools: {allow: ['write_file:src/**', 'bash:make test']}, network: true, pass_env: [TOKEN]"
    (folder / "detent.yaml").write_text(f"coding: {{{rules}}}\n{MODEL}")
    assert run(["trust", "--show"]) == 0
    said = capsys.readouterr().out
    assert "    coding.tools.allow: write_file:src/**, bash:make test\n" in said
    assert "    coding.network: true\n" in said
    assert "    coding.pass_env: TOKEN\n" in said
    assert "127.0.0.1:9/v1  (models.house.base_url)\n" in said
