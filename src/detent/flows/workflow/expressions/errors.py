"""Errors of expressions: a text that is no expression, or an expression without a value."""

from __future__ import annotations

from collections.abc import Sequence

from detent.kernel.errors import ConfigurationError, DetentError

_SHOWN = 80


class ExpressionError(ConfigurationError):
    """A text is no expression: it does not parse, calls an unknown function, or is too long or too deep."""

    def __init__(self, message: str, position: int, text: str = "") -> None:
        self.message = message
        self.position = position
        """Offset of the mistake in the text."""
        self.text = text
        self.path: tuple[str | int, ...] = ()
        """Path of the text in the value around it; empty if the text is the whole value."""
        super().__init__(message)

    def __str__(self) -> str:
        of = f" of '{_around(self.text, self.position)}'" if self.text.strip() else ""
        return f"{_path_prefix(self.path)}{self.message} (character {self.position + 1}{of})"


class EvaluationError(DetentError):
    """An expression has no value: a name or index is missing, or its values cannot be combined."""

    def __init__(self, message: str, position: int, names: Sequence[str] = (), expression: str = "") -> None:
        self.message = message
        self.position = position
        """Offset of the failed part in the text."""
        self.names = tuple(names)
        """The names that could have been read."""
        self.expression = expression
        self.path: tuple[str | int, ...] = ()
        """Path of the text in the value around it; empty if the text is the whole value."""
        super().__init__(message)

    def __str__(self) -> str:
        of = f" (in '{_around(self.expression, 0)}')" if self.expression else ""
        return f"{_path_prefix(self.path)}{self.message}{of}"


def _path_prefix(path: tuple[str | int, ...]) -> str:
    """The path before a message, as `args[0].path: `."""
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"{parts.removeprefix('.')}: " if parts else ""


def _around(text: str, position: int) -> str:
    """The text; of a long one, the part around a position."""
    start = max(0, min(position - _SHOWN // 2, len(text) - _SHOWN))
    before, after = "…" if start else "", "…" if start + _SHOWN < len(text) else ""
    shown = "".join(char if char.isprintable() else " " for char in text[start : start + _SHOWN])
    return f"{before}{shown}{after}"
