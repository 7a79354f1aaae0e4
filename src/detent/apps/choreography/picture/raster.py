"""A drawing as PNG, with Pillow's own font: no display and no fonts of the system are needed."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from detent.apps.choreography.picture.drawing import Area, Drawing, Lines, Rectangle, Shape

SCALE = 2
"""Drawn larger, then made smaller, so that slanting lines are smooth."""


def to_png(drawing: Drawing) -> bytes:
    """The bytes of a PNG file."""
    image = Image.new("RGB", (drawing.width * SCALE, drawing.height * SCALE), "#FFFFFF")
    canvas = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        _draw(canvas, shape)
    smaller = image.resize((drawing.width, drawing.height), Image.Resampling.LANCZOS)
    output = io.BytesIO()
    smaller.save(output, "PNG", optimize=True)
    return output.getvalue()


def _draw(canvas: Any, shape: Shape) -> None:
    if isinstance(shape, Rectangle):
        corners = [shape.x, shape.y, shape.x + shape.width, shape.y + shape.height]
        box = [round(value * SCALE) for value in corners]
        # Pillow's lower right corner is inside.
        box[2:] = [max(box[0], box[2] - 1), max(box[1], box[3] - 1)]
        width = round(shape.stroke_width * SCALE) if shape.stroke else 0
        canvas.rectangle(box, fill=shape.fill, outline=shape.stroke, width=width)
    elif isinstance(shape, Lines):
        width = max(1, round(shape.width * SCALE))
        for segment in shape.segments:
            canvas.line([(x * SCALE, y * SCALE) for x, y in segment], fill=shape.stroke, width=width)
    elif isinstance(shape, Area):
        canvas.polygon([(x * SCALE, y * SCALE) for x, y in shape.points], fill=shape.fill)
    else:
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
        canvas.text(
            (shape.x * SCALE, shape.y * SCALE), shape.text, fill=shape.fill, anchor=anchor,
            font=font(shape.size * SCALE), stroke_width=1 if shape.bold else 0, stroke_fill=shape.fill,
        )  # fmt: skip


@cache
def font(size: float) -> Any:
    """Pillow's own font in a size."""
    return ImageFont.load_default(size)
