"""The notebook as one page that needs no network and runs no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote

from detent.flows.notebook.exports.cell import NotebookCell, NotebookFacts
from detent.flows.notebook.exports.figure import picture_file
from detent.flows.notebook.exports.html_cells import CellRenderer
from detent.flows.notebook.exports.markdown_html import Heading, MarkdownRenderer, Picture, contents_list
from detent.flows.notebook.exports.metrics import BASELINE_HEAD, ScoreRow, other_rows, score_heads, score_rows
from detent.kernel.plain import writable

LARGEST_PICTURE = 5 * 1024 * 1024


def notebook_page(cells: Sequence[NotebookCell], facts: NotebookFacts, *, folder: Path | None = None) -> str:
    """The page, equal for equal input. Pictures that text cells name are taken from `folder`."""
    markdown = MarkdownRenderer(_pictures(folder))
    code = CellRenderer(markdown)
    headings: list[Heading] = []
    parts: list[str] = []
    for place, cell in enumerate(cells):
        if cell.cell_type == "code":
            parts.append(code.render(cell))
            continue
        text = markdown.render(cell.source, skip_title=facts.title if place == 0 else None)
        headings.extend(text.headings)
        if text.headings:
            code.step = text.headings[-1].text
        if text.html.strip():
            parts.append(f'<div class="text" id="cell-{escape(cell.cell_id)}">{text.html}</div>\n')
    contents = contents_list(headings)
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; img-src data:; "
        f"base-uri 'none'; form-action 'none'"
    )
    title = escape(writable(facts.title))
    banner = (
        f'<div class="banner" role="note">{markdown.render(facts.banner).html}</div>' if facts.banner else ""
    )
    side = f'<nav class="side" aria-label="Contents">{contents}</nav>' if contents else ""
    top = f'<details class="top"><summary>Contents</summary>{contents}</details>' if contents else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=False)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n{side}\n<main>\n"
        f"<header><h1>{title}</h1>{_facts(facts)}</header>\n{banner}\n{top}\n{''.join(parts)}</main>\n"
        f"</body>\n</html>\n"
    )


def _facts(facts: NotebookFacts) -> str:
    verified = (
        '<span class="mark good">verified</span>'
        if facts.verified
        else '<span class="mark">not verified</span>'
    )
    return (
        f'<p class="problem">{escape(writable(facts.problem))}</p>'
        f'<p class="run">Run {escape(facts.run_id)} {verified}</p>'
        f"{_scores(score_rows(facts.metrics, facts.limits))}{_figures(other_rows(facts.metrics))}"
    )


def _scores(rows: Sequence[ScoreRow]) -> str:
    if not rows:
        return ""
    names = score_heads(rows)
    known = BASELINE_HEAD in names
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th><td>{escape(row.folds)}</td>'
        f"<td>{escape(row.held_out)}</td>{f'<td>{escape(row.baseline)}</td>' if known else ''}"
        f"<td>{escape(row.asked)}{_MARKS[row.met]}</td></tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0"><table class="metrics"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


_MARKS = {
    None: "",
    True: ' <span class="mark good">met</span>',
    False: ' <span class="mark">not met</span>',
}


def _figures(rows: Sequence[tuple[str, str]]) -> str:
    """What else was measured, folded."""
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows
    )
    return (
        '<details class="more"><summary>What else was measured</summary>'
        f'<div class="wide" tabindex="0"><table class="metrics">{body}</table></div></details>'
    )


def _pictures(folder: Path | None) -> Picture:
    """Where the pictures of text cells are found."""

    def address(path: str) -> str | None:
        if folder is None or ":" in path or path.startswith(("/", "\\")):
            return None
        root = folder.resolve()
        file = (root / unquote(path)).resolve()
        try:
            if not file.is_relative_to(root) or not file.is_file() or file.stat().st_size > LARGEST_PICTURE:
                return None
            figure = picture_file(file.name, file.read_bytes())
        except (OSError, ValueError):
            return None
        return None if figure is None else figure.address

    return address
