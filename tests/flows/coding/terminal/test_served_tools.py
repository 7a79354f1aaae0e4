"""Requests with a real MCP server of the settings: its tools are offered, asked about, and called."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.cli.main import run
from tests.flows.coding.terminal.model_server import Asked, ModelServer, Written, says

SERVER = Path(__file__).parents[4] / "examples" / "mcp" / "server.py"
ADD = ("handbook_add_page", {"title": "kettles", "text": "Kettles are covered for a year."})
"""On the wire a name holds no dot."""
SEARCH = ("handbook_search", {"words": "lamps"})


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A model and a handbook of the settings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text(SERVER.read_text())
    with ModelServer(lambda asked: says("TUNACODE DONE: yes")) as server:
        handbook = (
            f"mcp:\n  handbook:\n    command: ['{sys.executable}', server.py]\n"
            "    queries: [search]\n    effects: [add_page]\n"
        )
        coding = "coding: {sandbox: false, max_retries: 0, steps: {assistant: {mode: agent}}}\n"
        settings = f"{coding}model: {{provider: house}}\n{server.settings}{handbook}"
        (tmp_path / "detent.yaml").write_text(settings)
        yield server


def test_a_query_of_a_server_is_answered_and_an_effect_waits_for_a_yes(model, tmp_path, capsys) -> None:
    def rule(asked: Asked) -> Written:
        return [says("", SEARCH, ADD), says("TUNACODE DONE: added")][min(asked.turn, 1)]

    model.rule = rule
    assert run(["run", "coding", "--json", "add a page"]) == 0
    waiting = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (waiting["outcome"], (tmp_path / "handbook.txt").exists()) == ("waiting", False)
    (hold,) = waiting["holds"]
    assert re.match(r"Call handbook\.add_page with ", hold["question"])
    assert run(["release", waiting["run_id"], "yes", "--hold", hold["token"]]) == 0
    assert (tmp_path / "handbook.txt").read_text() == "kettles\tKettles are covered for a year.\n"
    assert model.asked[-1].results == (
        '{"pages":["Lamps are covered for two years."]}',
        '{"id":"kettles"}',
    )


def test_a_rule_may_name_a_tool_of_a_server_and_a_reading_request_is_not_offered_its_effects(
    model, tmp_path, capsys
) -> None:
    model.rule = lambda asked: [says("", ADD), says("TUNACODE DONE: added")][min(asked.turn, 1)]
    assert run(["run", "coding", "--read-only", "--yes", "add a page"]) == 0
    assert model.asked[-1].results[0].startswith("ERROR unknown_tool")
    assert not (tmp_path / "handbook.txt").exists()
    assert run(["run", "coding", "--allow", "handbook.add_page", "add one more"]) == 0
    assert (tmp_path / "handbook.txt").exists()
