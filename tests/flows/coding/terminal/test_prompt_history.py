"""The history of prompts on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from detent.flows.coding.sessions.redaction import Redaction
from detent.flows.coding.terminal.prompt_history import LONGEST, MOST, PromptHistory


def test_prompts_come_back_as_they_were_typed(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    history = PromptHistory(folder)
    texts = ["show a.py", "two\nlines", "naïve 日本 \u2028 \\n", "/state"]
    for text in texts:
        history.add(text)
    assert PromptHistory(folder).read() == texts


def test_the_history_is_private_and_holds_no_known_secret(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    history = PromptHistory(folder, Redaction(["s3cret-value"]).text)
    history.add("use s3cret-value here")
    assert history.path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert b"s3cret" not in history.path.read_bytes()
    history.path.chmod(0o644)
    history.add("again")
    assert history.path.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_read_or_written_is_left_out(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path)
    history.add("one")
    with history.path.open("ab") as file:
        file.write(b'{"odd": 1}\n\xff\xfe\n"cut off\n')
    history.add("two")
    assert history.read() == ["one", "two"]
    history.add("x" * (LONGEST + 1))
    history.add("  \n")
    assert history.read() == ["one", "two"]
    blocked = PromptHistory(tmp_path / "history" / "below a file")
    blocked.add("lost")
    assert blocked.read() == []


def test_a_long_history_is_shortened_to_its_latest_part(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path)
    history.path.write_text("".join(f'"{number}"\n' for number in range(2 * MOST + 5)))
    assert history.read()[-1] == str(2 * MOST + 4)
    assert len(history.path.read_text().splitlines()) == MOST
    assert os.listdir(tmp_path) == ["history"]
