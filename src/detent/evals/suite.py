"""A suite: cases and what plays them. Offered by packages under the entry point group `detent.evals`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detent.evals.playing import Player

GROUP = "detent.evals"
"""Entry points whose value is an `EvalSuite`, or a function that gives one."""


@dataclass(frozen=True, slots=True)
class EvalSuite:
    """A named set of cases and the player for them."""

    name: str
    player: Callable[[Any, Path], Player]
    """`(settings, folder of the cases) -> player`."""
    folder: Path | None = None
    """The cases that ship with it, from the working folder if relative; None: only the project's own."""
    ignore: tuple[str, ...] = ()
    """Names of YAML files among the cases that are none."""
    claim: Callable[[Path], EvalSuite | None] | None = None
    """Given a folder somebody wants judged, the suite for it; None when it is not of this kind."""
