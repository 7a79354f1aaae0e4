"""What a payload adds to the notebook's summary, where no notebook is at hand to look at."""

from __future__ import annotations

from collections.abc import Sequence

from detent.flows.notebook.payloads.values import Action
from detent.flows.notebook.state.document import NotebookSummary

CELL_KINDS = frozenset({"add_section", "add_text", "add_code"})
"""Actions that add a cell; titles and headings change the one that is there."""


def written_actions(actions: Sequence[Action]) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """The actions of a round that are carried out, and those that are skipped.

    Text after the last code is skipped: its author has not seen the output. A round without code has seen it.
    """
    codes = [index for index, action in enumerate(actions) if action.kind == "add_code"]
    if not codes:
        return tuple(actions), ()
    end = codes[-1] + 1
    late = actions[end:]
    written = (*actions[:end], *(action for action in late if action.kind not in CELL_KINDS))
    return written, tuple(action for action in late if action.kind in CELL_KINDS)


def with_heading(summary: NotebookSummary, cells: int = 1, title: str | None = None) -> NotebookSummary:
    """The summary after heading cells are added."""
    return summary.model_copy(
        update={
            "cell_count": summary.cell_count + cells,
            "last_cell_type": "markdown",
            "title": title or summary.title,
        }
    )


def with_actions(
    summary: NotebookSummary, actions: Sequence[Action], outputs: Sequence[Sequence[str]]
) -> NotebookSummary:
    """The summary after a round; `outputs` holds the texts of each code cell that was executed."""
    written, _ = written_actions(actions)
    cells = [action for action in written if action.kind in CELL_KINDS]
    titles = [action.text for action in written if action.kind == "update_title"]
    changes: dict[str, object] = {"cell_count": summary.cell_count + len(cells)}
    if cells:
        changes["last_cell_type"] = "code" if cells[-1].kind == "add_code" else "markdown"
    if titles:
        changes["title"] = titles[-1]
    if outputs:
        changes["last_output"] = "".join(outputs[-1])
    return summary.model_copy(update=changes)
