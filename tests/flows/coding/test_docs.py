"""The pages of the coding assistant: their code runs, their tables are those of the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from detent.coding import CODING, AgentState, CodingSettings, judge_reply
from detent.coding import __all__ as public
from detent.flows.coding.nudges import TEXTS
from detent.flows.coding.summary import REASONS

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {
    name: (DOCS / f"{name}.md").read_text("utf-8")
    for name in ("coding", "coding-completion", "coding-sessions")
}


def test_every_public_name_opens():
    import detent.coding

    assert all(getattr(detent.coding, name) is not None for name in public)


async def test_the_code_of_the_pages_runs(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("x = 1\n")
    names: dict[str, object] = {}
    for page in ("coding", "coding-completion"):
        for code in re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL):
            exec(code, names)
    result = await names["shown"](tmp_path)  # type: ignore[operator]
    assert result.done
    assert "a.py" in result.text
    assert "requests.db" not in result.text


def test_the_drawn_diagram_is_the_table():
    drawing = re.search(r"```mermaid\n(.*?)```", PAGES["coding-completion"], re.DOTALL)
    assert drawing is not None
    edges = set(re.findall(r"(\S+) --> (\S+)", drawing[1]))
    table = {(state.value, to.value) for state in AgentState for to in CODING.allowed(state)}
    assert edges == table | {("[*]", CODING.start.value), *((end.value, "[*]") for end in CODING.may_end)}


def test_the_table_of_moves_is_the_machines():
    rows = re.findall(
        r"^\| (\w+) \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", PAGES["coding-completion"], re.MULTILINE
    )
    states = list(AgentState)
    for name, *cells in rows:
        state = AgentState(name)
        for to, cell in zip(states, cells, strict=True):
            wanted = "stays" if to is state else "yes" if to in CODING.allowed(state) else "error"
            assert cell == wanted, (state, to)
    assert len(rows) == len(states)


@pytest.mark.parametrize(
    ("reply", "counts"),
    [
        ("TUNACODE DONE: fixed", True), ("Text\n   tunacode done: x", True), ("> TUNACODE DONE: x", False),
        ("- TUNACODE DONE: x", False), ("**TUNACODE DONE: x**", False),
        ("I will write TUNACODE DONE: later", False), ("```\nTUNACODE DONE: x\n```", False),
        ("TUNACODE DONE x", False), ("TUNACODE_DONE: x", False), ("TUNACODE  DONE: x", False),
    ],
)  # fmt: skip
def test_the_examples_of_markers_are_judged_as_the_page_says(reply, counts):
    assert (judge_reply(reply).completion is not None) == counts


def test_every_nudge_and_every_reason_is_on_a_page():
    assert [kind for kind in TEXTS if f"`{kind}`" not in PAGES["coding-completion"]] == []
    assert [reason for reason in REASONS if f"`{reason}`" not in PAGES["coding"]] == []


def test_every_setting_is_on_the_page():
    page = PAGES["coding"]
    assert [
        name for name in CodingSettings.model_fields if f"`{name}" not in page and f", `{name}`" not in page
    ] == []


def test_no_page_names_line_numbers():
    for page in PAGES.values():
        assert not re.search(r"\.py:\d+|\bline \d{2,}\b", page)
