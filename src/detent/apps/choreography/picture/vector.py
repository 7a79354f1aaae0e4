"""A drawing as SVG: equal drawings give equal bytes."""

from __future__ import annotations

from detent.apps.choreography.picture.drawing import Area, Drawing, Lines, Point, Rectangle, Shape
from detent.apps.choreography.show.xml_tree import element


def to_svg(drawing: Drawing) -> str:
    """The text of an SVG file."""
    size = [("width", drawing.width), ("height", drawing.height)]
    rows = [
        element("title", [("id", "title")], text=drawing.title, depth=1),
        element("desc", [("id", "desc")], text=drawing.description, depth=1),
        element("rect", [*size, ("fill", "#FFFFFF")], depth=1),
        *map(_shape, drawing.shapes),
    ]
    pairs = [
        ("xmlns", "http://www.w3.org/2000/svg"), *size, ("viewBox", f"0 0 {drawing.width} {drawing.height}"),
        ("role", "img"), ("aria-labelledby", "title desc"),
        ("font-family", "Helvetica, Arial, 'Liberation Sans', sans-serif"),
    ]  # fmt: skip
    return element("svg", pairs, rows) + "\n"


def _shape(shape: Shape) -> str:
    if isinstance(shape, Rectangle):
        pairs: list[tuple[str, object]] = [
            ("x", _number(shape.x)), ("y", _number(shape.y)), ("width", _number(shape.width)),
            ("height", _number(shape.height)), ("fill", shape.fill or "none"),
        ]  # fmt: skip
        if shape.stroke:
            pairs += [("stroke", shape.stroke), ("stroke-width", _number(shape.stroke_width))]
        return element("rect", pairs, depth=1)
    if isinstance(shape, Lines):
        path = "".join(f"M{_point(start)}L{_point(end)}" for start, end in shape.segments)
        return element(
            "path", [("d", path), ("stroke", shape.stroke), ("stroke-width", _number(shape.width))], depth=1
        )
    if isinstance(shape, Area):
        points = " ".join(map(_point, shape.points))
        return element("polygon", [("points", points), ("fill", shape.fill)], depth=1)
    pairs = [
        ("x", _number(shape.x)), ("y", _number(shape.y)), ("font-size", _number(shape.size)),
        ("fill", shape.fill), ("text-anchor", shape.anchor),
    ]  # fmt: skip
    if shape.bold:
        pairs.append(("font-weight", "bold"))
    return element("text", pairs, text=shape.text, depth=1)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _point(point: Point) -> str:
    return f"{_number(point[0])},{_number(point[1])}"
