"""Which lines are commands of a conversation, and no prompt or answer."""

from __future__ import annotations

NAMES = frozenset({
    "help", "state", "history", "tools", "allow", "todo", "sessions", "resume", "export", "quit",
})  # fmt: skip


def is_command(text: str) -> bool:
    """Whether a line is meant as a command: one word after the slash, which is no path."""
    if not text.startswith("/") or "\n" in text.strip():
        return False
    word = text[1:].split(maxsplit=1)[0] if text[1:].strip() else ""
    return text[1:2] != " " and word.replace("-", "").isalpha() if word else True


def is_known_command(text: str) -> bool:
    """Whether a line is one of the commands, and nothing else that begins with a slash."""
    return is_command(text) and text[1:].partition(" ")[0].strip().lower() in NAMES
