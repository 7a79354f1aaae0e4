"""Draws a layout as SVG: boxes, wires, labels and, if there is one, the path of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise

from detent.insight.diagram.path_marks import Marks
from detent.insight.diagram.shapes import Box, Label, Layout, Point, Wire
from detent.insight.diagram.text_width import clean, width
from detent.insight.table import Edge, Table
from detent.kernel.plain import digest

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
CORNER = 7.0

_LIGHT = {
    "paper": "#ffffff", "ink": "#1c2430", "soft": "#5b6675", "box": "#f5f7fa", "line": "#8a95a5",
    "wire": "#8a95a5", "seen": "#e3edff", "path": "#2160d4", "on": "#ffffff",
    "succeeded": "#e2f5e8 #1f7f43", "failed": "#fde8e7 #c0362c", "degraded": "#fdf1d6 #946200",
    "budget_exhausted": "#f3e9fd #7b3fc4", "cancelled": "#eceff3 #5b6675",
    "to-failed": "#dba5a0", "to-degraded": "#d8bd82", "to-budget_exhausted": "#c6abe4",
    "to-cancelled": "#b7bfca",
}  # fmt: skip
_DARK = {
    "paper": "#12161d", "ink": "#e6ebf2", "soft": "#9aa6b6", "box": "#1d232d", "line": "#66728a",
    "wire": "#77839a", "seen": "#1a2f57", "path": "#7aa7ff", "on": "#0f1520",
    "succeeded": "#12301f #56c882", "failed": "#3a1917 #f0837a", "degraded": "#352808 #e0b04a",
    "budget_exhausted": "#2b1b40 #bf93f2", "cancelled": "#262d38 #9aa6b6",
    "to-failed": "#84504c", "to-degraded": "#7a6433", "to-budget_exhausted": "#664f83",
    "to-cancelled": "#535e70",
}  # fmt: skip
STATUSES = ("succeeded", "failed", "degraded", "budget_exhausted", "cancelled")


def draw(table: Table, layout: Layout, marks: Marks) -> str:
    """The finished SVG."""
    heading, words = _heading(table, marks)
    wide = max(layout.width, width(heading, 15) + 48, width(words, 11.5) + 48)
    body = "\n".join(_body(table, layout, marks, heading, words))
    tag = f"dt-{digest([body, table.name], 8)}"
    size = f'width="{_n(wide)}" height="{_n(layout.height)}" viewBox="0 0 {_n(wide)} {_n(layout.height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" class="dt" '
        f'aria-labelledby="{tag}-title {tag}-desc">\n'
        f'<title id="{tag}-title">{_text(heading)}</title>\n'
        f'<desc id="{tag}-desc">{_text(_description(table, marks))}</desc>\n'
        f"<style>\n{_style()}\n</style>\n"
        f'<rect class="dt-paper" width="100%" height="100%"/>\n'
        f"{body}\n</svg>\n"
    )


def _style() -> str:
    base = (
        f".dt text{{font-family:{FONT};font-size:13px}}\n"
        ".dt .dt-h{font-size:15px;font-weight:600}.dt .dt-sub{font-size:11.5px}"
        ".dt .dt-label text{font-size:10.5px}.dt .dt-count text{font-size:10px;font-weight:700}\n"
        ".dt .dt-wire path{fill:none;stroke-width:1.3;stroke-linejoin:round}"
        ".dt .dt-wire .dt-tip{stroke:none}"
        ".dt .dt-taken path{stroke-width:2.3}.dt .dt-box{stroke-width:1.3}"
        ".dt .dt-visited .dt-box{stroke-width:1.8}.dt .dt-inner,.dt .dt-ring{fill:none}"
        ".dt .dt-ring{stroke-width:2.6}.dt .dt-name{font-weight:500}.dt .dt-visited .dt-name{font-weight:600}"
    )
    dark = _colours(_DARK)
    return f"{base}\n{_colours(_LIGHT)}\n@media (prefers-color-scheme:dark){{\n{dark}\n}}"


def _colours(c: dict[str, str]) -> str:
    rules = [
        f".dt .dt-paper,.dt .dt-label rect{{fill:{c['paper']}}}",
        f".dt text{{fill:{c['ink']}}}.dt .dt-sub,.dt .dt-label text{{fill:{c['soft']}}}",
        f".dt .dt-box{{fill:{c['box']};stroke:{c['line']}}}.dt .dt-may{{fill:none;stroke:{c['soft']}}}",
        f".dt .dt-wire path{{stroke:{c['wire']}}}.dt .dt-wire .dt-tip{{fill:{c['wire']}}}",
    ]
    for status in STATUSES:
        fill, stroke = c[status].split()
        rules.append(
            f".dt .dt-{status} .dt-box{{fill:{fill};stroke:{stroke}}}"
            f".dt .dt-{status} .dt-inner{{stroke:{stroke}}}"
            f".dt .dt-{status} text{{fill:{stroke}}}"
        )
        if f"to-{status}" in c:
            tint = c[f"to-{status}"]
            rules.append(
                f".dt .dt-to-{status} path{{stroke:{tint}}}.dt .dt-to-{status} .dt-tip{{fill:{tint}}}"
            )
    rules += [
        f".dt .dt-mark{{fill:{c['ink']}}}.dt .dt-start path{{stroke:{c['ink']}}}"
        f".dt .dt-start .dt-tip{{fill:{c['ink']}}}",
        f".dt .dt-work.dt-visited .dt-box{{fill:{c['seen']};stroke:{c['path']}}}",
        f".dt .dt-ring{{stroke:{c['path']}}}",
        f".dt .dt-taken path{{stroke:{c['path']}}}.dt .dt-taken .dt-tip{{fill:{c['path']}}}",
        f".dt .dt-count rect{{fill:{c['path']};stroke:{c['paper']};stroke-width:1.5}}"
        f".dt .dt-count text{{fill:{c['on']}}}",
    ]
    return "\n".join(rules)


# -- words --------------------------------------------------------------------------------------------------


def _heading(table: Table, marks: Marks) -> tuple[str, str]:
    pairs = len({(edge.frm, edge.to) for edge in table.edges})
    words = f"{len(table.states)} states · {pairs} moves"
    if marks:
        steps = sum(marks.taken.values())
        words += f" · {steps} taken"
        if marks.current is not None:
            words += f" · {'ended in' if marks.current in table.ends else 'now in'} {clean(marks.current)}"
    return clean(f"{table.name} v{table.version}"), words


def _description(table: Table, marks: Marks) -> str:
    ends = ", ".join(f"{end} ({status})" if end != status else end for end, status in table.ends.items())
    text = f"State machine {table.name}, starting in {table.start}." + (f" Ends: {ends}." if ends else "")
    if marks.current is not None:
        text += f" The run marked here is in {marks.current}."
    return text


def _edge_words(edges: Sequence[Edge], times: int) -> str:
    first = edges[0]
    phrases = []
    for edge in edges:
        parts = [
            f"on {edge.event}" if edge.event else "",
            f"when {edge.condition}" if edge.condition else "",
            f"({edge.reason})" if edge.reason else "",
        ]
        if any(parts):
            phrases.append(" ".join(part for part in parts if part))
    text = f"{first.frm} → {first.to}" + (f": {'; '.join(phrases)}" if phrases else "")
    return text + (f", taken {_times(times)}" if times else "")


def _times(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


# -- shapes -------------------------------------------------------------------------------------------------


def _body(table: Table, layout: Layout, marks: Marks, heading: str, words: str) -> Iterator[str]:
    yield f'<text class="dt-h" x="24" y="34">{_text(heading)}</text>'
    yield f'<text class="dt-sub" x="24" y="52">{_text(words)}</text>'
    start = next(box for box in layout.boxes if box.name == table.start)
    yield from _start(layout.mark, start)
    by_pair: dict[tuple[str, str], list[Edge]] = {}
    for edge in table.edges:
        by_pair.setdefault((edge.frm, edge.to), []).append(edge)

    def rank(wire: Wire) -> tuple[bool, bool]:
        return ((wire.frm, wire.to) in marks.taken, wire.kind != "hub")

    # The ring lies under the wires, so that it hides no arrowhead; then shared lanes; the path on top.
    yield from (_rect("dt-ring", box, 4.5, 13) for box in layout.boxes if box.name == marks.current)
    for wire in sorted(layout.wires, key=rank):
        yield _wire(wire, table, by_pair[wire.frm, wire.to], marks.taken.get((wire.frm, wire.to), 0))
    for wire in layout.wires:
        if wire.label is not None:
            yield _label(wire.label)
    for box in layout.boxes:
        yield _box(box, table, marks)
    yield from _counts(layout, marks)


def _start(mark: Point, box: Box) -> Iterator[str]:
    x, y = mark
    yield f'<g class="dt-wire dt-start"><circle class="dt-mark" cx="{_n(x)}" cy="{_n(y)}" r="5"/>'
    yield f'<path d="M{_n(x)} {_n(y)}V{_n(box.y - 7)}"/>{_tip((x, y), (x, box.y))}</g>'


def _box(box: Box, table: Table, marks: Marks) -> str:
    status = table.ends.get(box.name)
    visits = marks.visits.get(box.name, 0)
    classes = [
        "dt-state",
        f"dt-{status}" if status in STATUSES else "dt-work" if status is None else "dt-end",
    ]
    if visits:
        classes.append("dt-visited")
    words = box.name + (f", an end: {status}" if status is not None else "")
    words += ", a run may end here" if box.name in table.may_end else ""
    words += f", visited {_times(visits)}" if visits else ""
    words += ", the run is here" if box.name == marks.current else ""
    parts = [f'<g class="{" ".join(classes)}"><title>{_text(words)}</title>']
    parts.append(_rect("dt-box", box, 0, 9))
    if status is not None:
        parts.append(_rect("dt-inner", box, -3.5, 6))
    if box.name in table.may_end:
        x, y = _n(box.x + 11), _n(box.bottom - 10)
        parts.append(f'<circle class="dt-may" cx="{x}" cy="{y}" r="4.5"/>')
        parts.append(f'<circle class="dt-may" cx="{x}" cy="{y}" r="2"/>')
    first = box.cy - 17.0 * (len(box.lines) - 1) / 2 + 4.6
    for number, line in enumerate(box.lines):
        parts.append(
            f'<text class="dt-name" text-anchor="middle" x="{_n(box.cx)}" y="{_n(first + 17.0 * number)}">'
            f"{_text(line)}</text>"
        )
    return "".join(parts) + "</g>"


def _rect(name: str, box: Box, grow: float, radius: float) -> str:
    return (
        f'<rect class="{name}" x="{_n(box.x - grow)}" y="{_n(box.y - grow)}" '
        f'width="{_n(box.w + 2 * grow)}" height="{_n(box.h + 2 * grow)}" rx="{_n(radius)}"/>'
    )


def _wire(wire: Wire, table: Table, edges: Sequence[Edge], times: int) -> str:
    classes = ["dt-wire", f"dt-{wire.kind}"]
    if wire.kind == "hub":
        classes.append(f"dt-to-{table.ends[wire.to]}")
    if times:
        classes.append("dt-taken")
    points = wire.points
    tip = _tip(points[-2], points[-1])
    if wire.kind == "self":
        (a, b), (c, d), (e, f), _ = points
        g, h = _short(points[-2], points[-1], 6.0)
        line = f"M{_n(a)} {_n(b)}C{_n(c)} {_n(d)} {_n(e)} {_n(f)} {_n(g)} {_n(h)}"
    else:
        reached = (*points[:-1], _short(points[-2], points[-1], 6.0))
        line = _curves(reached) if wire.kind == "forward" else _corners(reached)
    name = f"<title>{_text(_edge_words(edges, times))}</title>"
    return f'<g class="{" ".join(classes)}">{name}<path d="{line}"/>{tip}</g>'


def _curves(points: Sequence[Point]) -> str:
    """Straight down where x stays; where it changes, a curve that leaves and arrives straight down."""
    x, y = points[0]
    line = f"M{_n(x)} {_n(y)}"
    for to_x, to_y in points[1:]:
        if abs(to_x - x) < 0.05:
            line += f"V{_n(to_y)}"
        else:
            bend = (to_y - y) * 0.55
            line += f"C{_n(x)} {_n(y + bend)} {_n(to_x)} {_n(to_y - bend)} {_n(to_x)} {_n(to_y)}"
        x, y = to_x, to_y
    return line


def _corners(points: Sequence[Point]) -> str:
    """Straight lines with round corners."""
    line = f"M{_n(points[0][0])} {_n(points[0][1])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(CORNER, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        (ax, ay), (bx, by) = _short(before, corner, radius), _short(after, corner, radius)
        line += f"L{_n(ax)} {_n(ay)}Q{_n(corner[0])} {_n(corner[1])} {_n(bx)} {_n(by)}"
    return f"{line}L{_n(points[-1][0])} {_n(points[-1][1])}"


def _short(frm: Point, to: Point, by: float) -> Point:
    """The point `by` pixels before `to` on the line from `frm`."""
    far = math.dist(frm, to)
    if far <= by:
        return frm
    share = by / far
    return to[0] + (frm[0] - to[0]) * share, to[1] + (frm[1] - to[1]) * share


def _tip(frm: Point, to: Point) -> str:
    """An arrowhead at `to`, coming from `frm`."""
    far = math.dist(frm, to) or 1.0
    dx, dy = (to[0] - frm[0]) / far, (to[1] - frm[1]) / far
    back = (to[0] - dx * 8.5, to[1] - dy * 8.5)
    ends = [(back[0] - dy * 3.7, back[1] + dx * 3.7), (back[0] + dy * 3.7, back[1] - dx * 3.7)]
    return f'<path class="dt-tip" d="M{_n(to[0])} {_n(to[1])}' + "".join(
        f"L{_n(x)} {_n(y)}" for x, y in ends
    ) + 'Z"/>'  # fmt: skip


def _label(label: Label) -> str:
    x = label.x + label.w / 2 if label.anchor == "middle" else label.x + 2
    place = f'<rect x="{_n(label.x)}" y="{_n(label.y)}" width="{_n(label.w)}" height="{_n(label.h)}" rx="3"/>'
    lines = "".join(
        f'<text text-anchor="{label.anchor}" x="{_n(x)}" y="{_n(label.y + 12.0 + 13.5 * number)}">'
        f"{_text(line)}</text>"
        for number, line in enumerate(label.lines)
    )
    return f'<g class="dt-label">{place}{lines}</g>'


# -- counts -------------------------------------------------------------------------------------------------

Area = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def _counts(layout: Layout, marks: Marks) -> Iterator[str]:
    """Counts beside states and moves that occurred more than once, placed where they hide nothing."""
    taken: list[Area] = [(box.x - 3, box.y - 3, box.right + 3, box.bottom + 3) for box in layout.boxes]
    for wire in layout.wires:
        if wire.label is not None:
            label = wire.label
            taken.append((label.x, label.y, label.x + label.w, label.y + label.h))
    loops = {wire.frm for wire in layout.wires if wire.kind == "self"}
    for box in layout.boxes:
        times = marks.visits.get(box.name, 0)
        if times > 1:
            text = f"×{times}"
            wide = width(text, 10) + 9
            x = box.x + wide / 2 + 4 if box.name in loops else box.right - wide / 2 - 4
            yield _pill(text, x, box.y, wide)
            taken.append((x - wide / 2, box.y - 8, x + wide / 2, box.y + 8))
    for wire in layout.wires:
        times = marks.taken.get((wire.frm, wire.to), 0)
        if times > 1:
            text = f"×{times}"
            wide = width(text, 10) + 9
            x, y = _free_spot(wire, wide, taken)
            taken.append((x - wide / 2, y - 8, x + wide / 2, y + 8))
            yield _pill(text, x, y, wide)


def _free_spot(wire: Wire, wide: float, taken: Iterable[Area]) -> Point:
    spots = _along(wire)
    middle = len(spots) // 2
    for spot in sorted(range(len(spots)), key=lambda at: abs(at - middle)):
        x, y = spots[spot]
        area = (x - wide / 2, y - 8, x + wide / 2, y + 8)
        if not any(
            area[0] < other[2] and area[2] > other[0] and area[1] < other[3] and area[3] > other[1]
            for other in taken
        ):
            return x, y
    return spots[middle]


def _along(wire: Wire) -> list[Point]:
    """Points along a wire, evenly over its parts."""
    if wire.kind == "self":
        a, b, c, d = wire.points
        return [_bezier(a, b, c, d, step / 12) for step in range(1, 12)]
    spots: list[Point] = []
    for (ax, ay), (bx, by) in pairwise(wire.points):
        steps = max(2, int(math.dist((ax, ay), (bx, by)) / 8))
        bend = (by - ay) * 0.55
        for step in range(steps):
            share = step / steps
            if wire.kind == "forward" and ax != bx:
                spots.append(_bezier((ax, ay), (ax, ay + bend), (bx, by - bend), (bx, by), share))
            else:
                spots.append((ax + (bx - ax) * share, ay + (by - ay) * share))
    return spots


def _bezier(a: Point, b: Point, c: Point, d: Point, t: float) -> Point:
    u = 1 - t
    k = (u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t)
    return (
        k[0] * a[0] + k[1] * b[0] + k[2] * c[0] + k[3] * d[0],
        k[0] * a[1] + k[1] * b[1] + k[2] * c[1] + k[3] * d[1],
    )


def _pill(text: str, x: float, y: float, wide: float) -> str:
    return (
        f'<g class="dt-count"><rect x="{_n(x - wide / 2)}" y="{_n(y - 7.5)}" width="{_n(wide)}" height="15" '
        f'rx="7.5"/><text text-anchor="middle" x="{_n(x)}" y="{_n(y + 3.6)}">{_text(text)}</text></g>'
    )


def _n(number: float) -> str:
    """A coordinate to a tenth of a pixel, without needless digits."""
    text = f"{number:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _text(text: str) -> str:
    return escape(clean(text), quote=True)
