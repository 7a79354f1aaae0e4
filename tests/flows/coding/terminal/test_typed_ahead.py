"""What is typed while a request runs."""

from __future__ import annotations

import pytest

from detent.flows.coding.terminal.typed_ahead import as_typed


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("show a.py", "show a.py"),
        ("shw\x7fow", "show"),
        ("ab\x08\x08\x08c", "c"),
        ("\x7f\x7f", ""),
        ("wrong\x15right", "right"),
        ("one\rtwo wrong\x15two", "one\ntwo"),
        ("\x1b[200~one\r\ntwo\x1b[201~\r", "one\ntwo\n"),
        ("up\x1b[A\x1bOB\x1b[1;5C down\x1b", "up down"),
        ("tab\there\x00\x04", "tab\there"),
        ("日本\x7f", "日"),
    ],
)
def test_keys_become_the_text_they_have_written(keys: str, text: str) -> None:
    assert as_typed(keys) == text
