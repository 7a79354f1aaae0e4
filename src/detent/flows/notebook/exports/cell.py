"""A cell of a finished notebook, and the facts a notebook is exported with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell as it is exported."""

    cell_id: str
    cell_type: Literal["code", "markdown"]
    source: str
    outputs: tuple[Mapping[str, Any], ...] = ()
    """In the form of nbformat 4."""
    execution_count: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold of the user, and whether the score on the rows held out keeps it."""

    metric: str
    asked: str
    """As `< 25000`."""
    met: bool | None = None
    """None without such a score."""


@dataclass(frozen=True, slots=True)
class NotebookFacts:
    """What is said of the notebook as a whole."""

    title: str
    run_id: str
    problem: str
    flow_version: str = "1"
    verified: bool = False
    """Whether the clean re-execution gave equal results."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Plain values by name."""
    limits: tuple[Limit, ...] = ()
    banner: str | None = None
    """Markdown for the top of a notebook that is not a complete one: failed, cancelled, unfinished."""
    python: str = "3"
    """Version of the kernel's Python."""
