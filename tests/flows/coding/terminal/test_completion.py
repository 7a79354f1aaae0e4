"""Completions in the prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.flows.coding.terminal.completion import Completion


@pytest.fixture
def completion(tmp_path: Path) -> Completion:
    for name in ("src/app.py", "src/a pp.txt", "style.py", ".env", ".git/config", "odd\x1b[2J.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return Completion(
        ["state", "sessions", "resume"], {"resume": lambda: ["last", "2026-a", "2026-b"]}, tmp_path
    )


@pytest.mark.parametrize(
    ("before", "word", "found"),
    [
        ("", "/s", ["/sessions ", "/state "]),
        ("", "/x", []),
        ("/resume ", "", ["last ", "2026-a ", "2026-b "]),
        ("/resume ", "2026", ["2026-a ", "2026-b "]),
        ("/resume last ", "st", ["style.py "]),
        ("show ", "s", ["src/", "style.py "]),
        ("show ", "src/a", ['"src/a pp.txt" ', "src/app.py "]),
        ("show ", '"src/ap', ['"src/app.py" ']),
        ("show ", ".e", [".env "]),
        ("show ", ".g", []),
        ("show ", "odd", []),
        ("show ", "no/such/", []),
        ("see ", "/s", None),
    ],
)
def test_a_word_is_completed_by_where_it_stands(
    completion: Completion, before: str, word: str, found: list[str] | None
) -> None:
    matches = completion(word, before)
    if found is None:  # a path from the root, as the machine has it
        assert all(match.startswith("/s") for match in matches)
    else:
        assert matches == found
