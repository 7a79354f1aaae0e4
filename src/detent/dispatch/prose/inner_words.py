"""Inner words: placeholders, protocol lines and names of the program that no customer should read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_INNER = re.compile(
    r"\[[^\W\d_][^\]\n]{0,40}\](?!\()|\{\{?[^\W\d_]|<<<|>>>|```|(?<![\w@.])[^\W\d_]+(?:_[^\W_]+)+(?![\w@])"
)


def inner(text: str, words: Iterable[str]) -> Iterator[int]:
    """The offsets of inner words."""
    yield from (match.start() for match in _INNER.finditer(text))
    for word in words:
        shown = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])", re.IGNORECASE)
        yield from (match.start() for match in shown.finditer(text))
