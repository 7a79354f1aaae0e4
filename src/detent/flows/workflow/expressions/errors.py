"""What can go wrong with an expression: it does not read as one, or a value it asks for is not there."""

from __future__ import annotations

from collections.abc import Sequence

from detent.kernel.errors import ConfigurationError, DetentError

_SHOWN = 80


class ExpressionError(ConfigurationError):
    """A text is no expression: it does not parse, calls an unknown function, is too long or too deep."""

    def __init__(self, message: str, position: int, text: str = "") -> None:
        self.message = message
        self.position = position
        """Offset of the trouble in the text that was read."""
        self.text = text
        self.path: tuple[str | int, ...] = ()
        """Where the text stands in the value it is a part of; empty for a text of its own."""
        super().__init__(message)

    def __str__(self) -> str:
        of = f" of '{_around(self.text, self.position)}'" if self.text.strip() else ""
        return f"{_told(self.path)}{self.message} (character {self.position + 1}{of})"


class EvaluationError(DetentError):
    """An expression cannot be given a value: a name or index is missing, or values do not go together."""

    def __init__(self, message: str, position: int, names: Sequence[str] = (), expression: str = "") -> None:
        self.message = message
        self.position = position
        """Offset of the part that failed, in the text that was read."""
        self.names = tuple(names)
        """What would have been there to read."""
        self.expression = expression
        self.path: tuple[str | int, ...] = ()
        """Where the text stands in the value it is a part of; empty for a text of its own."""
        super().__init__(message)

    def __str__(self) -> str:
        of = f" (in '{_around(self.expression, 0)}')" if self.expression else ""
        return f"{_told(self.path)}{self.message}{of}"


def _told(path: tuple[str | int, ...]) -> str:
    """`args[0].path: `, or nothing."""
    words = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"{words.removeprefix('.')}: " if words else ""


def _around(text: str, position: int) -> str:
    """The text, or the part of a long one in which the trouble stands."""
    start = max(0, min(position - _SHOWN // 2, len(text) - _SHOWN))
    before, after = "…" if start else "", "…" if start + _SHOWN < len(text) else ""
    shown = "".join(char if char.isprintable() else " " for char in text[start : start + _SHOWN])
    return f"{before}{shown}{after}"
