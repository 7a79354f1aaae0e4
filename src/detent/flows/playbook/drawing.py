"""Drawings of playbooks: the table as the step files have it, and a page around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.flows.playbook.table import machine_of
from detent.runtime.plugs import Drawing, draw_machine

if TYPE_CHECKING:
    from detent.flows.playbook.playbook import Playbook

PAGE = "WORKFLOW.md"
"""Name of the page among a playbook's files."""


def draw_playbook(playbook: Playbook, drawing: Drawing) -> str:
    """Draw a playbook, optionally on a page with the purpose of each step."""
    drawn = draw_machine(drawn_table(playbook), drawing._replace(page=False))
    return page_of(playbook, drawn) if drawing.page else drawn


def drawn_table(playbook: Playbook) -> dict[str, Any]:
    """The table of a playbook without the ends that every step may move to."""
    manifest, edges = playbook.manifest, playbook.edges
    table = machine_of(manifest.name, manifest.version, playbook.start, edges).describe()
    table["moves"] = {
        state: [move for move in row if any(move["to"] == edge.to for edge in edges.get(state, ()))]
        for state, row in table["moves"].items()
    }
    reached = {move["to"] for row in table["moves"].values() for move in row}
    table["ends"] = {end: status for end, status in table["ends"].items() if end in reached}
    table["states"] = [state for state in table["states"] if state in table["moves"] or state in reached]
    return table


def page_of(playbook: Playbook, drawn: str) -> str:
    """A page with the drawing and the purpose of each step."""
    rows = [f"| `{step.id}` | {step.description} |" for step in playbook.steps.values()]
    return "\n".join(
        [
            f"# {playbook.manifest.name}",
            "",
            "Drawn from the step files by `detent playbook diagram`.",
            "",
            "```mermaid",
            drawn.rstrip("\n"),
            "```",
            "",
            "| Step | What it is for |",
            "|---|---|",
            *rows,
            "",
            "Every step may also be led to `graceful-degradation` and `FAILED`.",
            "",
        ]
    )
