"""The timeline of a show: one drawing, as SVG and as PNG. Light to import."""

from __future__ import annotations

from typing import Any


def svg(*args: Any, **options: Any) -> str:
    """The timeline as SVG; takes what `timeline` takes."""
    from detent.apps.choreography.picture.timeline import timeline
    from detent.apps.choreography.picture.vector import to_svg

    return to_svg(timeline(*args, **options))


def png(*args: Any, **options: Any) -> bytes:
    """The timeline as PNG; takes what `timeline` takes. Needs Pillow."""
    from detent.apps.choreography.picture.raster import to_png
    from detent.apps.choreography.picture.timeline import timeline

    return to_png(timeline(*args, **options))
