"""The page about evals shows code that works."""

from __future__ import annotations

import re
from pathlib import Path

from detent.cli.main import run

PAGE = Path(__file__).parents[2] / "docs" / "evals.md"

CASE = """\
scenario_id: hello
description: d
category: c
input: {data: {name: Ada}}
expected_output: {expected_steps: [{step_name: greet, output_contains: [hello ada]}], status: succeeded}
"""


def test_the_suite_of_the_page_can_be_played(tmp_path, monkeypatch, capsys):
    code = next(
        code
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "EvalSuite" in code
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.py").write_text(code)
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "hello.yaml").write_text(CASE)
    assert run(["eval", "suite.py", "--eval-dir", "cases"]) == 0
    assert "1 / 1 passed" in capsys.readouterr().out


def test_the_case_of_the_page_is_a_case():
    from detent.evals.reading import read_case
    from tests.evals.lending import LendingPlayer

    text = next(
        code
        for code in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "scenario_id" in code
    )
    case, problems = read_case(text, LendingPlayer(), stem="lend_001")
    assert problems == []
    assert case is not None
    assert case.path_comment == "path: 01 -> 02 -> 03a"
