"""Mermaid text: state diagrams of tables, and flowcharts built node by node.

Ids are generated and labels escaped, so that any name can be drawn.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from detent.insight.diagram.path_marks import Marks
from detent.insight.diagram.text_width import clean
from detent.insight.table import Edge, Table

STATE_LABEL = " -_.,/+=×✓()[]"
"""Characters beside letters and digits that a state diagram shows as they are."""
NODE_LABEL = " ,✓✗–▶·…"
"""The same for the nodes of a flowchart, whose labels Mermaid reads as Markdown."""
LINE, MOST_LINES = 24, 6
"""Characters in a line of a node's label, and its lines."""


def heading(title: str, kind: str) -> list[str]:
    """The first lines of a diagram."""
    shown = clean(title).replace('"', "'").replace("\\", "/")
    return ["---", f'title: "{shown}"', "---", kind]


def escaped(text: str, shown: str = NODE_LABEL) -> str:
    """A text that Mermaid does not interpret: all but letters, digits and `shown` becomes entity codes."""
    return "".join(
        character if character.isalnum() or character in shown else f"#{ord(character)};"
        for character in clean(text)
    )


# -- state diagrams -----------------------------------------------------------------------------------------


def state_diagram(table: Table, marks: Marks) -> str:
    """A table as a Mermaid state diagram; visited states and moves carry their count, as `×2`."""
    ids = {name: f"s{number}" for number, name in enumerate(table.states)}
    lines = heading(f"{table.name} v{table.version}", "stateDiagram-v2")
    for name, state in ids.items():
        times = marks.visits.get(name, 0)
        shown = f"{name} ×{times}" if times > 1 else name
        lines.append(f'    state "{escaped(shown, STATE_LABEL)}" as {state}')
    lines.append(f"    [*] --> {ids[table.start]}")
    counted: Counter[tuple[str, str]] = Counter()
    for edge in table.edges:
        times = marks.taken.get((edge.frm, edge.to), 0)
        counted[edge.frm, edge.to] += 1
        # Of several moves between two states a path does not tell which was taken: the first is marked.
        text = _edge_text(edge, times if counted[edge.frm, edge.to] == 1 else 0)
        lines.append(f"    {ids[edge.frm]} --> {ids[edge.to]}" + (f" : {text}" if text else ""))
    for end, status in table.ends.items():
        lines.append(
            f"    {ids[end]} --> [*]" + (f" : {escaped(status, STATE_LABEL)}" if status != end else "")
        )
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
    text = escaped(" ".join(part for part in parts if part), STATE_LABEL)
    if times:
        text = f"{text} ×{times}".strip() if times > 1 else f"{text} ✓".strip()
    return text


# -- flowcharts ---------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """Start of an arrow: a node, and the arrow's label."""

    node: str
    label: str = ""


class Flowchart:
    """A Mermaid flowchart being built; each added node gets an id."""

    def __init__(self, title: str, direction: str, styles: Mapping[str, str]) -> None:
        """`styles` holds the Mermaid style of every class that nodes may be marked with."""
        self._head = heading(title, f"flowchart {direction}")
        self._direction = "TB" if direction == "TD" else direction
        self._styles = styles
        self._lines: list[str] = []
        self._arrows: list[str] = []
        self._marked: dict[str, list[str]] = {}
        self._indent = 1
        self._made = 0

    def node(
        self, parts: Sequence[str], shape: tuple[str, str] = ("[", "]"), *, node: str | None = None
    ) -> str:
        """Add a node and return its id; each part starts a new line of its label."""
        node = self._fresh("n") if node is None else node
        text = "<br/>".join(_wrapped(part) for part in parts)
        self._line(f'{node}{shape[0]}"{text}"{shape[1]}')
        return node

    def frame(self) -> str:
        """Return the id of a new frame, whose nodes are added inside `inside`."""
        return self._fresh("loop")

    @contextmanager
    def inside(self, frame: str, title: str) -> Iterator[None]:
        """Draw a frame around the nodes added meanwhile."""
        self._line(f'subgraph {frame}["{escaped(title)}"]')
        self._indent += 1
        self._line(f"direction {self._direction}")
        yield
        self._indent -= 1
        self._line("end")

    def join(self, starts: Iterable[Start], node: str, arrow: str = "-->") -> None:
        """Add the arrows that lead to a node."""
        for start in starts:
            label = f'|"{_wrapped(start.label)}"|' if start.label else ""
            self._arrows.append(f"    {start.node} {arrow}{label} {node}")

    def mark(self, node: str, name: str) -> None:
        """Give a node or frame one of the styles."""
        self._marked.setdefault(name, []).append(node)

    def __str__(self) -> str:
        classes: list[str] = []
        for name, nodes in self._marked.items():
            classes.append(f"    classDef {name} {self._styles[name]}")
            classes.append(f"    class {','.join(nodes)} {name}")
        return "\n".join([*self._head, *self._lines, *self._arrows, *classes]) + "\n"

    def _fresh(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)


def _wrapped(text: str) -> str:
    """A label wrapped into short lines, cut if it is too long."""
    lines = textwrap.wrap(text, LINE, max_lines=MOST_LINES, placeholder="…", break_on_hyphens=False)
    return "<br/>".join(escaped(line) for line in lines)
