"""Code cells and their outputs as HTML made of our own tags and escaped text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from detent.flows.notebook.exports.cell import NotebookCell
from detent.flows.notebook.exports.figure import figure_of
from detent.flows.notebook.exports.html_table import plain_table
from detent.flows.notebook.exports.markdown_html import MarkdownRenderer
from detent.flows.notebook.exports.plain_text import plain_text, traceback_text
from detent.kernel.plain import writable

LONGEST_OPEN = 24
"""Lines of a cell that are shown at once; a longer one is folded, so that results stay in view."""
MOST_HIGHLIGHTED = 100_000
"""Characters of a cell that are coloured; a longer one is data rather than code."""


class CellRenderer:
    """Renders the code cells of one page; figures are numbered through."""

    def __init__(self, markdown: MarkdownRenderer) -> None:
        self._markdown = markdown
        self._figures = 0
        self.step = ""
        """Heading of the step that is being rendered, which figures are named by."""

    def render(self, cell: NotebookCell) -> str:
        """A code cell with its outputs."""
        count = "" if cell.execution_count is None else str(cell.execution_count)
        outputs = "".join(self._outputs(cell))
        outputs = f'<div class="outputs">{outputs}</div>' if outputs else ""
        code = f"<pre><code>{highlighted(cell.source)}</code></pre>"
        lines = cell.source.strip("\n").count("\n") + 1
        if lines > LONGEST_OPEN:
            code = f'<details class="more"><summary>Code, {lines} lines</summary>{code}</details>'
        return (
            f'<section class="cell" id="cell-{escape(cell.cell_id)}">'
            f'<div class="code"><span class="count" aria-hidden="true">{count}</span>{code}</div>'
            f"{outputs}</section>\n"
        )

    def _outputs(self, cell: NotebookCell) -> Iterator[str]:
        for output in cell.outputs:
            match output.get("output_type"):
                case "stream":
                    kind = "stderr" if output.get("name") == "stderr" else "stdout"
                    text = plain_text(output.get("text", "")).rstrip("\n")
                    if text:
                        yield _preformatted(kind, text)
                case "error":
                    yield _preformatted("error", traceback_text(output))
                case _:
                    yield self._shown(output.get("data") or {})

    def _shown(self, data: Mapping[str, Any]) -> str:
        """A result in the richest form that is safe."""
        figure = figure_of(data)
        if figure is not None:
            self._figures += 1
            name = f"Figure {self._figures}" + (f": {self.step}" if self.step else "")
            return f'<figure><img src="{figure.address}" alt="{escape(name)}"></figure>'
        if "text/html" in data:
            table = plain_table(plain_text(data["text/html"]))
            if table is not None:
                return f'<div class="wide" tabindex="0">{table}</div>'
        if "text/markdown" in data:
            return f'<div class="text">{self._markdown.render(plain_text(data["text/markdown"])).html}</div>'
        if "text/plain" in data:
            return _preformatted("result", plain_text(data["text/plain"]))
        if "application/json" in data:
            text = json.dumps(data["application/json"], indent=2, ensure_ascii=False, default=str)
            return _preformatted("result", plain_text(text))
        return ""


def highlighted(source: str) -> str:
    """Python source with a class for each kind of token."""
    source = writable(source).strip("\n")
    if len(source) > MOST_HIGHLIGHTED:
        return escape(source)
    from pygments import highlight  # type: ignore[import-untyped]
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
    from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

    lexer = PythonLexer(stripnl=False, ensurenl=False)
    return str(highlight(source, lexer, HtmlFormatter(nowrap=True)))


def _preformatted(kind: str, text: str) -> str:
    return f'<pre class="{kind}">{escape(text)}</pre>'
