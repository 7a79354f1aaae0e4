"""`detent coding measure` prints the figures for people and programs, and says when they are not enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from detent.flows.coding.commands.measure import live_model, measure
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import read_settings
from tests.flows.coding.measure.samples import write_scenario

GOOD = """
    input:
      prompt: Set x to 2.
      files: {a.py: "x = 1\\n"}
      replies:
        - I will do that.
        - calls: [{tool: update_file, args: {filepath: a.py, target: x = 1, patch: x = 2}}]
        - "TUNACODE DONE: x is 2"
      goal: {files: {a.py: x = 2}}
      check: grep -q 'x = 2' a.py
"""
LIE = """
    input:
      prompt: Set y to 2.
      files: {a.py: "y = 1\\n"}
      replies: ["TUNACODE DONE: y is 2"]
      goal: {files: {a.py: y = 2}}
      check: grep -q 'y = 2' a.py
"""


def _run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    app = typer.Typer()
    app.command()(measure)
    code = app(list(args), standalone_mode=False)
    return code or 0, capsys.readouterr().out


def _json(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    code, out = _run(capsys, "--json", *args)
    plain: dict[str, Any] = json.loads(out)
    return {**plain, "code": code}


def test_scenarios_of_the_users_own_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_scenario(tmp_path, "good", GOOD)
    plain = _json(capsys, "--scenarios", str(tmp_path))
    assert plain["code"] == 0
    assert (plain["reduction"], plain["true_ends"]) == (1.0, 1)
    assert plain["premature"] == {"legacy": 1, "machine": 0}
    assert plain["held_back"] == {"legacy": 0, "machine": 0}
    assert set(plain["styles"]) == {"native", "written", "reasoning"}
    (scenario,) = plain["scenarios"]
    assert scenario["id"] == "good"
    assert scenario["legacy"] == {
        "completed_at": 1, "replies": 1, "premature": True, "held_back": False, "reason": None,
    }  # fmt: skip
    assert (scenario["machine"]["completed_at"], scenario["machine"]["premature"]) == (3, False)


def test_too_many_premature_ends_exit_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_scenario(tmp_path, "good", GOOD)
    write_scenario(tmp_path, "lie", LIE)
    plain = _json(capsys, "--scenarios", str(tmp_path))
    assert (plain["code"], plain["reduction"]) == (1, 0.5)
    plain = _json(capsys, "--scenarios", str(tmp_path), "--done-when")
    assert (plain["code"], plain["reduction"], plain["done_when"]) == (0, 1.0, True)


def test_people_see_each_scenario_and_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_scenario(tmp_path, "good", GOOD)
    write_scenario(tmp_path, "lie", LIE)
    code, out = _run(capsys, "--scenarios", str(tmp_path), "--strict")
    assert code == 1
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "good premature 1 3 mine" in lines
    assert "lie premature 1 premature 1 mine" in lines
    assert "written 2 1 50 % 0 0" in lines
    assert any("less than the 60 %" in line for line in lines)


def test_without_a_model_there_is_nothing_live(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no model is configured"):
        live_model(read_settings(folder=tmp_path, environ={}))


def test_the_projects_model_is_the_live_one(tmp_path: Path) -> None:
    (tmp_path / "detent.yaml").write_text(
        "model: {provider: mine, model_id: m-1}\n"
        "models: {mine: {kind: vllm, base_url: 'http://127.0.0.1:9/v1'}}\n"
    )
    assert live_model(read_settings(folder=tmp_path, environ={})).model_id == "m-1"
