"""Diagrams of a table: Mermaid text and self-contained SVG, optionally with a run's path marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from detent.insight.diagram.layout import layout
from detent.insight.diagram.path_marks import Marks
from detent.insight.diagram.svg import draw
from detent.insight.diagram.text_width import clean
from detent.insight.table import Edge, Source, Table
from detent.kernel.entries import Entry, Migrated, Moved, Reopened, Started
from detent.kernel.errors import name_of


class Path(NamedTuple):
    """The path of a run through its table."""

    moves: tuple[tuple[str, str], ...]
    """From and to, in order."""
    current: str | None = None
    """The run's current state."""


PathLike = Path | tuple[Sequence[tuple[Any, Any]], Any]


def path_of(entries: Iterable[Entry]) -> Path:
    """The path recorded in a journal."""
    moves: list[tuple[str, str]] = []
    current: str | None = None
    for entry in entries:
        body = entry.body
        if isinstance(body, Moved):
            moves.append((body.frm, body.to))
            current = body.to
        elif isinstance(body, Started | Reopened | Migrated):
            current = body.state
    return Path(tuple(moves), current)


def svg(description: Source, path: PathLike | None = None) -> str:
    """The table as an SVG of its own: no scripts, no fonts, nothing fetched. Equal input, equal bytes."""
    table = Table.of(description)
    return draw(table, layout(table), _marks(table, path))


def mermaid(description: Source, path: PathLike | None = None) -> str:
    """The table as a Mermaid state diagram.

    States get ids of our own, so any name will do. Visited states and moves carry how often, as `×2`.
    """
    table = Table.of(description)
    marks = _marks(table, path)
    ids = {name: f"s{number}" for number, name in enumerate(table.states)}
    title = clean(f"{table.name} v{table.version}").replace('"', "'").replace("\\", "/")
    lines = ["---", f'title: "{title}"', "---", "stateDiagram-v2"]
    for name, state in ids.items():
        times = marks.visits.get(name, 0)
        shown = f"{name} ×{times}" if times > 1 else name
        lines.append(f'    state "{_escaped(shown)}" as {state}')
    lines.append(f"    [*] --> {ids[table.start]}")
    counted: Counter[tuple[str, str]] = Counter()
    for edge in table.edges:
        times = marks.taken.get((edge.frm, edge.to), 0)
        counted[edge.frm, edge.to] += 1
        # Of several moves between two states a path does not tell which was taken: the first is marked.
        text = _edge_text(edge, times if counted[edge.frm, edge.to] == 1 else 0)
        lines.append(f"    {ids[edge.frm]} --> {ids[edge.to]}" + (f" : {text}" if text else ""))
    for end, status in table.ends.items():
        lines.append(f"    {ids[end]} --> [*]" + (f" : {_escaped(status)}" if status != end else ""))
    for state in table.states:
        if state in table.may_end:
            lines.append(f"    {ids[state]} --> [*] : may end")
    visited = [ids[name] for name in table.states if name in marks.visits and name != marks.current]
    if visited or marks.current is not None:
        lines.append("    classDef visited fill:#dbeafe,stroke:#2563eb,color:#111827")
        lines.append("    classDef current fill:#2563eb,stroke:#1e3a8a,color:#ffffff,stroke-width:3px")
    if visited:
        lines.append(f"    class {','.join(visited)} visited")
    if marks.current is not None:
        lines.append(f"    class {ids[marks.current]} current")
    return "\n".join(lines) + "\n"


def _edge_text(edge: Edge, times: int) -> str:
    parts = [edge.event or "", f"[{edge.condition}]" if edge.condition else ""]
    if not any(parts) and edge.reason:
        parts.append(edge.reason)
    text = _escaped(" ".join(part for part in parts if part))
    if times:
        text = f"{text} ×{times}".strip() if times > 1 else f"{text} ✓".strip()
    return text


def _escaped(text: str) -> str:
    """Text escaped for Mermaid: its special characters become entity codes."""
    return "".join(
        character if character.isalnum() or character in " -_.,/+=×✓()[]" else f"#{ord(character)};"
        for character in clean(text)
    )


def _marks(table: Table, path: PathLike | None) -> Marks:
    if path is None:
        return Marks()
    moves, current = path
    pairs = [(name_of(frm), name_of(to)) for frm, to in moves]
    return Marks.of(table, pairs, None if current is None else name_of(current))
