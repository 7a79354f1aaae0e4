"""The notebook as Markdown, with its figures as files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from detent.flows.notebook.exports.cell import NotebookCell, NotebookFacts
from detent.flows.notebook.exports.figure import Figure, figure_of
from detent.flows.notebook.exports.metrics import BASELINE_HEAD, other_rows, score_heads, score_rows
from detent.flows.notebook.exports.plain_text import plain_text, traceback_text
from detent.kernel.plain import writable


@dataclass(frozen=True, slots=True)
class MarkdownNotebook:
    """The text, and the pictures it names."""

    text: str
    figures: Mapping[str, bytes]
    """By their paths from the text's folder."""

    def write(self, path: Path) -> None:
        """Write the text to `path` and the pictures beside it."""
        for name, content in self.figures.items():
            file = path.parent / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        path.write_text(self.text, encoding="utf-8", newline="\n")


def notebook_markdown(
    cells: Sequence[NotebookCell], facts: NotebookFacts, *, figure_folder: str = "notebook_figures"
) -> MarkdownNotebook:
    """The notebook, equal for equal input."""
    writer = _Writer(figure_folder)
    if not (cells and cells[0].cell_type == "markdown" and cells[0].source.lstrip().startswith("# ")):
        writer.parts.append(f"# {_line(facts.title)}")
    heading = len(writer.parts)
    for cell in cells:
        writer.cell(cell)
    writer.parts.insert(heading or 1, _facts(facts))
    if facts.banner:
        writer.parts.insert(heading or 1, writable(facts.banner).strip())
    return MarkdownNotebook("\n\n".join(part for part in writer.parts if part) + "\n", writer.figures)


def _facts(facts: NotebookFacts) -> str:
    state = "verified" if facts.verified else "not verified"
    problem = "\n".join(f"> {line}".rstrip() for line in writable(facts.problem).splitlines())
    rows = score_rows(facts.metrics, facts.limits)
    heads = score_heads(rows)
    scores = _table(
        heads,
        [
            (
                row.name, row.folds, row.held_out, *((row.baseline,) if BASELINE_HEAD in heads else ()),
                row.asked + _MET[row.met],
            )
            for row in rows
        ],
    )  # fmt: skip
    others = _table(("Metric", "Value"), other_rows(facts.metrics))
    return "\n\n".join(part for part in (problem, f"Run `{facts.run_id}`, {state}.", scores, others) if part)


_MET = {None: "", True: ": met", False: ": not met"}


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *([_cell_text(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class _Writer:
    def __init__(self, figure_folder: str) -> None:
        self.parts: list[str] = []
        self.figures: dict[str, bytes] = {}
        self._folder = figure_folder

    def cell(self, cell: NotebookCell) -> None:
        if cell.cell_type == "markdown":
            self.parts.append(writable(cell.source).strip())
            return
        self.parts.append(fenced(writable(cell.source).strip("\n"), "python"))
        for output in cell.outputs:
            match output.get("output_type"):
                case "stream":
                    text = plain_text(output.get("text", ""))
                case "error":
                    text = traceback_text(output)
                case _:
                    text = self._shown(cell, output.get("data") or {})
            if text.strip():
                self.parts.append(fenced(text.strip("\n"), "text"))

    def _shown(self, cell: NotebookCell, data: Mapping[str, Any]) -> str:
        figure = figure_of(data)
        if figure is not None:
            self._figure(cell, figure)
            return ""
        if "text/markdown" in data:
            self.parts.append(plain_text(data["text/markdown"]).strip())
            return ""
        if "text/plain" in data:
            return plain_text(data["text/plain"])
        if "application/json" in data:
            return plain_text(json.dumps(data["application/json"], indent=2, ensure_ascii=False, default=str))
        return ""

    def _figure(self, cell: NotebookCell, figure: Figure) -> None:
        number = len(self.figures) + 1
        path = f"{self._folder}/figure-{number:02d}-{cell.cell_id}.{figure.suffix}"
        self.figures[path] = figure.content
        self.parts.append(f"![Figure {number}]({quote(path)})")


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _line(text: str) -> str:
    return " ".join(writable(text).split())


def _cell_text(text: str) -> str:
    return _line(text).replace("|", "\\|")
