"""A suite: cases and their player. Packages offer suites under the entry point group `detent.evals`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.evals.played import Player

if TYPE_CHECKING:
    from detent.evals.player import Subject

GROUP = "detent.evals"
"""Entry points whose value is an `EvalSuite`, or a function that returns one."""


@dataclass(frozen=True, slots=True)
class EvalSuite:
    """A named set of cases with either a subject for the shipped player or its own player."""

    name: str
    player: Callable[[Any, Path], Player] | None = None
    """`(settings, folder of the cases) -> player`, where the subject is not a flow."""
    folder: Path | None = None
    """The cases that ship with it, relative to the working folder; None: only the project's own."""
    ignore: tuple[str, ...] = ()
    """Names of YAML files in the folder that are not cases."""
    claim: Callable[[Path], EvalSuite | None] | None = None
    """Takes a folder and returns the suite for it; None when the folder is of another kind."""
    subject: Callable[[Any, Path], Subject] | None = None
    """`(settings, folder of the cases) -> subject`."""
