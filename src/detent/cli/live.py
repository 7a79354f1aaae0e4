"""Permanent lines and, on a terminal, a live display of the current work below them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, is_terminal, printable, say

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console


class LiveLines:
    """Prints permanent lines above a live display. Without a terminal there are only the lines."""

    def __init__(self) -> None:
        self._console: Console | None = None
        self._status: Any = None

    def __enter__(self) -> Self:
        if is_terminal():
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False)
            self._status = self._console.status("", spinner="dots", spinner_style="cyan")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    @property
    def is_live(self) -> bool:
        """Whether the live display is shown."""
        return self._status is not None

    def show_under_way(self, text: str) -> None:
        """Replace the content of the live display."""
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(clean(text), style="dim"))

    def print(self, line: str) -> None:
        """Print a permanent line; it may be coloured."""
        if self._console is None:
            say(line)
            return
        from rich.text import Text

        self._console.print(Text.from_ansi(printable(line)), no_wrap=True, overflow="ellipsis", crop=True)
