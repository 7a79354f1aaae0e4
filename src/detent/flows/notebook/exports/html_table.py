"""Tables of HTML outputs, rebuilt from their cells' texts: nothing of the output's own markup is kept."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

_SECTIONS = ("thead", "tbody", "tfoot")
_CELLS = ("td", "th")
_SPANS = ("colspan", "rowspan")
_UNSEEN = frozenset(
    {"head", "iframe", "math", "noscript", "object", "script", "style", "svg", "template", "title"}
)
WIDEST_SPAN = 1000


def plain_table(markup: str) -> str | None:
    """The tables of an HTML output and the texts between them; None if there is no table in it."""
    reader = _TableReader()
    reader.feed(markup)
    reader.close()
    return reader.result() if reader.tables else None


class _TableReader(HTMLParser):
    """Writes tables anew from allowed tags, every one closed, with texts escaped."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables = 0
        self._written: list[str] = []
        self._open: list[str] = []
        """Tags of the table that is being written, the innermost last."""
        self._inner = 0
        """How many tables inside a cell are open."""
        self._unseen: list[str] = []
        self._between: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._unseen or tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag == "table" and not self._open:
            self._end_text()
            self.tables += 1
            self._start("table")
        elif tag == "table":  # of a table inside a cell the texts are kept
            self._inner += 1
        elif not self._open or self._inner:
            return
        elif tag in _SECTIONS or tag == "caption":
            self._close_down_to("table")
            self._start(tag)
        elif tag == "tr":
            self._close_down_to("table", *_SECTIONS)
            self._start(tag)
        elif tag in _CELLS:
            if "tr" not in self._open:
                self._close_down_to("table", *_SECTIONS)
                self._start("tr")
            self._close_down_to("tr")
            self._start(tag, _spans(attrs))
        elif tag == "br" and self._open[-1] in _CELLS:
            self._written.append("<br>")

    def handle_endtag(self, tag: str) -> None:
        if self._unseen:
            if tag in self._unseen:
                while self._unseen.pop() != tag:
                    pass
        elif self._inner:
            self._inner -= tag == "table"
        elif tag in self._open:
            while self._end() != tag:
                pass

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _UNSEEN:
            self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if not self._open:
            self._between.append(data)
        elif self._open[-1] in (*_CELLS, "caption"):
            self._written.append(escape(data))

    def result(self) -> str:
        """What was written, with all tags closed."""
        while self._open:
            self._end()
        self._end_text()
        return "".join(self._written)

    def _start(self, tag: str, attributes: str = "") -> None:
        self._open.append(tag)
        self._written.append(f"<{tag}{attributes}>")

    def _end(self) -> str:
        tag = self._open.pop()
        self._written.append(f"</{tag}>")
        return tag

    def _close_down_to(self, *tags: str) -> None:
        while self._open and self._open[-1] not in tags:
            self._end()

    def _end_text(self) -> None:
        text = " ".join("".join(self._between).split())
        self._between = []
        if text:
            self._written.append(f"<p>{escape(text)}</p>")


def _spans(attributes: list[tuple[str, str | None]]) -> str:
    kept = ""
    for name, value in attributes:
        if (
            name in _SPANS
            and value
            and value.isascii()
            and value.isdigit()
            and 1 < int(value[:6]) <= WIDEST_SPAN
        ):
            kept += f' {name}="{int(value[:6])}"'
    return kept
