"""How the values of one DMX channel during one effect are written for xLights, and evaluated again.

xLights evaluates frame j of N at x = j / (N - 1). A custom curve has points on a grid of 200 steps of x with
straight lines between them, so up to 101 frames can be met exactly, jumps included. In longer effects the
frame behind a jump may fall between two points, and a steep corner at 0 or 255 may be off by a few values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRID = 200
"""Steps of x in a curve."""
TOLERANCE = 0.45
"""DMX by which a frame may be off: rounded or cut to a whole number, it is then off by one at most."""
STEEPEST = 8.0
"""DMX between two frames that no movement makes: more is a jump, if it is also twice what is around it."""

Values = NDArray[np.float64]
Points = list[tuple[int, float]]
"""Places on the grid and DMX values."""


def frame_places(frames: int) -> Values:
    """The x at which xLights evaluates each frame of an effect."""
    return np.arange(frames) / (frames - 1) if frames > 1 else np.zeros(1)


def described(values: NDArray[np.float32] | Values, channel: int) -> tuple[int, str]:
    """A slider's value, and a curve's text: one of the two is always 0 or empty."""
    return _described(np.asarray(values, dtype=np.float32).tobytes(), channel)


@lru_cache(maxsize=4096)
def _described(packed: bytes, channel: int) -> tuple[int, str]:
    values = np.frombuffer(packed, dtype=np.float32).astype(np.float64)
    whole = np.rint(values)
    if np.all(whole == whole[0]):
        return int(whole[0]), ""
    head = f"Active=TRUE|Id=ID_VALUECURVE_DMX{channel}|Type="
    first, last = round(values[0], 2), round(values[-1], 2)
    if np.abs(first + (last - first) * frame_places(len(values)) - values).max() <= TOLERANCE:
        return 0, f"{head}Ramp|Min=0.00|Max=255.00|P1={first:.2f}|P2={last:.2f}|RV=TRUE|"
    points = ";".join(f"{place / GRID:.3f}:{value / 255:.4f}" for place, value in thinned(values))
    return 0, f"{head}Custom|Min=0.00|Max=255.00|RV=TRUE|Values={points}|"


def thinned(values: Values) -> Points:
    """The points of a curve through the values: as few as keep every frame within the tolerance."""
    grid, steps = gridded(values)
    places = frame_places(len(values)) * GRID
    below = np.minimum(np.floor(places + 1e-9).astype(int), GRID - 1)
    best = np.abs(np.interp(places, np.arange(GRID + 1), grid) - values)
    kept = np.zeros(GRID + 1, dtype=bool)
    kept[[0, *steps, *(step + 1 for step in steps), GRID]] = True
    while True:
        knots = np.flatnonzero(kept)
        error = np.abs(np.interp(places, knots, grid[knots]) - values)
        # A frame at a jump that the whole grid misses asks for its own points, and then no more.
        open_frames = (error > np.maximum(TOLERANCE, best + 1e-6)) & ~(kept[below] & kept[below + 1])
        if not open_frames.any():
            return [(int(knot), float(grid[knot])) for knot in knots]
        # Between each two points, the frame that is off most asks for the nearer of its own.
        frames = np.flatnonzero(open_frames)
        frames = frames[np.argsort(-error[frames], kind="stable")]
        _, worst = np.unique(np.searchsorted(knots, places[frames], side="right"), return_index=True)
        for frame in frames[worst]:
            near, far = below[frame], below[frame] + 1
            if places[frame] - near > 0.5:
                near, far = far, near
            kept[far if kept[near] else near] = True


def gridded(values: Values) -> tuple[Values, list[int]]:
    """A value for each point of the grid such that straight lines between them meet the frames.

    With it, the points behind which a jump is made: within one step.
    """
    places = frame_places(len(values)) * GRID
    grid = np.empty(GRID + 1)
    start, first_point = 0, 0
    steps: list[int] = []
    for jump in [*np.flatnonzero(jumps(values)), len(values) - 1]:
        after = int(jump) + 1
        last_point = GRID
        if after < len(values):  # the frame before the jump is met; the one behind it, if there is room
            last_point = int(np.ceil(places[jump] - 1e-9))
            steps.append(last_point)
        grid[first_point : last_point + 1] = _segment(
            places[start:after], values[start:after], first_point, last_point
        )
        start, first_point = after, last_point + 1
    return np.round(np.clip(grid, 0, 255) / 255, 4) * 255, steps


def _segment(places: Values, values: Values, first_point: int, last_point: int) -> Values:
    """Grid values for frames without a jump."""
    points = np.arange(first_point, last_point + 1)
    grid = np.interp(points, places, values)
    inside = (places >= first_point) & (places <= last_point)
    places, values = places[inside], values[inside]
    if len(points) < 2 or not len(places):
        return grid
    error = values - np.interp(places, points, grid)
    if np.abs(error).max() < TOLERANCE / 4:
        return grid
    # Straight lines between points cut the corners at frames; the smallest correction puts them back.
    below = np.minimum(np.floor(places + 1e-9).astype(int) - first_point, len(points) - 2)
    share = places - first_point - below
    rows = np.arange(len(places))
    weights = np.zeros((len(places), len(points)))
    weights[rows, below], weights[rows, below + 1] = 1 - share, share
    normal = weights @ weights.T + 1e-6 * np.eye(len(places))
    grid = np.clip(grid + weights.T @ np.linalg.solve(normal, error), 0, 255)
    # Where that would leave the range of DMX, a frame that has both its points for itself holds them level.
    used = np.bincount(np.concatenate([below, below + 1]), minlength=len(points))
    missed = np.abs(values - np.interp(places, points, grid)) > TOLERANCE / 4
    alone = missed & (used[below] == 1) & (used[below + 1] == 1)
    grid[below[alone]] = grid[below[alone] + 1] = values[alone]
    return grid


def jumps(values: Values) -> NDArray[np.bool_]:
    """For each frame but the last, whether the value jumps to the next."""
    steps = np.abs(np.diff(values))
    around = np.minimum(np.append(steps[1:], 0), np.insert(steps[:-1], 0, 0)) if len(steps) else steps
    return np.asarray((steps > STEEPEST) & (steps > 2 * around))


# -- evaluating ---------------------------------------------------------------------------------------------

_FIELDS = re.compile(r"([A-Za-z0-9]+)=([^|]*)\|")


def evaluated(curve: str, frames: int) -> Values:
    """The DMX values of a curve at each frame, not rounded.

    Raises:
        ValueError: the text is not a curve that we write.
    """
    if not re.fullmatch(r"(?:[A-Za-z0-9]+=[^|]*\|)+", curve):
        raise ValueError("a curve is a list of 'name=value|'")
    fields = dict(_FIELDS.findall(curve))
    places = frame_places(frames)
    if fields.get("Active") != "TRUE" or fields.get("RV") != "TRUE":
        raise ValueError("a curve needs 'Active=TRUE' and 'RV=TRUE'")
    if (fields.get("Min"), fields.get("Max")) != ("0.00", "255.00"):
        raise ValueError("a curve needs 'Min=0.00' and 'Max=255.00'")
    if fields.get("Type") == "Ramp":
        first, last = float(fields["P1"]), float(fields["P2"])
        return first + (last - first) * places
    if fields.get("Type") != "Custom":
        raise ValueError(f"curves of the type '{fields.get('Type', '')}' are not read")
    x, y = _points(fields.get("Values", ""))
    return np.interp(places, x, y) * 255


def _points(text: str) -> tuple[Sequence[float], Sequence[float]]:
    pairs: list[Any] = [tuple(map(float, pair.split(":"))) for pair in text.split(";")]
    if any(len(pair) != 2 or not 0 <= pair[1] <= 1 for pair in pairs):
        raise ValueError("points are 'x:y', y from 0 to 1")
    x, y = zip(*pairs, strict=True)
    if x[0] != 0 or x[-1] != 1 or any(after <= before for before, after in pairwise(x)):
        raise ValueError("x must rise from 0.000 to 1.000")
    return x, y
