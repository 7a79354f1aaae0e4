"""A call and what came of it, a line each."""

from __future__ import annotations

from typing import Any

import pytest

from detent.flows.coding.terminal.call_text import call_line, result_note

CALLS: list[tuple[str, Any, str]] = [
    ("read_file", {"filepath": "a.py"}, "read_file a.py"),
    ("read_file", {"filepath": "a.py", "start_line": 10, "max_lines": 5}, "read_file a.py lines 10-14"),
    ("read_file", {"filepath": "a.py", "start_line": 10}, "read_file a.py from line 10"),
    ("grep", {"pattern": "x|y", "directory": "src"}, "grep x|y in src"),
    ("grep", {"pattern": "x"}, "grep x"),
    ("list_dir", {}, "list_dir ."),
    ("bash", {"command": "make\n  test", "cwd": "sub"}, "bash make test (in sub)"),
    ("task", {"description": "look", "prompt": "p"}, "task look (analyzer)"),
    ("todo", {"action": "update", "todo_id": "2"}, "todo update 2"),
    ("ask", {"question": "Which?"}, "ask Which?"),
    ("issues.search", {"q": "x"}, 'issues.search {"q":"x"}'),
    ("bash", "not an object", "bash not an object"),
    ("read_file", {"filepath": {"odd": 1}}, 'read_file {"odd":1}'),
    ("bash", {"command": "\x1b[2Jls \x1b]0;t\x07-la"}, "bash ls -la"),
    ("write_file", {"filepath": "a.py", "content": "x"}, "write_file a.py"),
]


@pytest.mark.parametrize(("tool", "args", "shown"), CALLS)
def test_a_call_is_told_by_what_it_is_about(tool: str, args: Any, shown: str) -> None:
    assert call_line(tool, args) == shown


def test_a_long_call_is_shortened() -> None:
    assert len(call_line("bash", {"command": "word " * 1000})) < 120


RESULTS: list[tuple[dict[str, Any], str]] = [
    ({"tool": "read_file", "ok": True, "content": "a\nb\n\n"}, "3 lines"),
    ({"tool": "read_file", "ok": True, "content": "a\n\nb\n[note]", "count": 3}, "3 lines"),
    ({"tool": "list_dir", "ok": True, "content": "file 1 a\n[note]", "count": 1}, "1 entry"),
    ({"tool": "grep", "ok": True, "content": "(no matches)\n[note]", "count": 0}, "0 matches"),
    (
        {"tool": "read_file", "ok": True, "content": {"$blob": "x"}, "count": 2000, "truncated": True},
        "2,000 lines · cut",
    ),
    (
        {"tool": "bash", "ok": True, "content": "x", "repeated": True},
        "not made again: it would give the same result",
    ),
    ({"tool": "read_file", "ok": True, "content": "a\n", "truncated": True}, "1 line · cut"),
    ({"tool": "bash", "ok": True, "content": "....\n12 passed\n[exit code 0]"}, "12 passed"),
    ({"tool": "bash", "ok": True, "content": "[exit code 0]", "duration_ms": 1500}, "1.50 s"),
    (
        {"tool": "bash", "ok": False, "error": "nonzero_exit", "content": "1 failed\n[exit code 2]"},
        "exit code 2: 1 failed",
    ),
    ({"tool": "bash", "ok": False, "error": "timeout", "content": ""}, "timeout"),
    (
        {"tool": "update_file", "ok": False, "error": "not_found", "content": "no such text\nnear: x"},
        "not_found: no such text",
    ),
    ({"tool": "bash", "ok": True, "content": "\x1b[32m3 passed\x1b[0m\r\n[exit code 0]"}, "3 passed"),
    (
        {"tool": "read_file", "ok": True, "content": {"$blob": "x", "size": 9000}},
        "<9,000 bytes outside the journal>",
    ),
    ({"tool": "bash", "ok": True, "content": None}, ""),
]


@pytest.mark.parametrize(("message", "note"), RESULTS)
def test_a_result_is_told_in_a_few_words(message: dict[str, Any], note: str) -> None:
    assert result_note(message) == note
