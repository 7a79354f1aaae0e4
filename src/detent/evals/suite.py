"""A suite: cases and what plays them. Offered by packages under the entry point group `detent.evals`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.evals.played import Player

if TYPE_CHECKING:
    from detent.evals.player import Subject

GROUP = "detent.evals"
"""Entry points whose value is an `EvalSuite`, or a function that gives one."""


@dataclass(frozen=True, slots=True)
class EvalSuite:
    """A named set of cases and what plays them: a subject for the shipped player, or a player of its own."""

    name: str
    player: Callable[[Any, Path], Player] | None = None
    """`(settings, folder of the cases) -> player`, for what is no flow."""
    folder: Path | None = None
    """The cases that ship with it, from the working folder if relative; None: only the project's own."""
    ignore: tuple[str, ...] = ()
    """Names of YAML files among the cases that are none."""
    claim: Callable[[Path], EvalSuite | None] | None = None
    """Given a folder to be judged, the suite for it; None when it is not of this kind."""
    subject: Callable[[Any, Path], Subject] | None = None
    """`(settings, folder of the cases) -> subject`."""
