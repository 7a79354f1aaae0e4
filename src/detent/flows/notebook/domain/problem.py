"""A problem as it was read: the task, the target, the thresholds, and the table it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from detent.kernel.errors import ConfigurationError

Task = Literal["regression", "classification"]
MetricName = Literal[
    "rmse", "mse", "mae", "mape", "r2", "accuracy", "balanced_accuracy", "f1", "auc", "precision", "recall",
    "log_loss",
]  # fmt: skip
Comparison = Literal["<", "<=", ">", ">="]


class ProblemError(ConfigurationError):
    """The sentence, the options or the table cannot be worked with as they stand."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit that the user sets on a score."""

    metric: MetricName
    comparison: Comparison
    value: float
    text: str = ""
    """The words it was read from."""

    def met_by(self, score: float) -> bool:
        """Whether a score keeps it."""
        match self.comparison:
            case "<":
                return score < self.value
            case "<=":
                return score <= self.value
            case ">":
                return score > self.value
            case ">=":
                return score >= self.value

    def __str__(self) -> str:
        return f"{self.metric.upper()} {self.comparison} {self.value:.12g}"


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How a text table is read; what a format does not have is None."""

    kind: Literal["csv", "parquet", "jsonl", "xlsx"]
    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    index_column: bool = False
    """The first column only numbers or names the rows."""
    skip_lines: int = 0
    """Lines above the line of column names."""
    trailing_separator: bool = False
    """Lines of data end with a separator that the line of column names does not have."""
    header: Literal["plain", "trimmed", "renamed"] = "plain"
    """Column names as pandas reads them, after `str.strip`, or set one by one."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is known of the table before the notebook reads it; recipes size their work by it."""

    file: str
    """The path that a cell opens, such as `assets/ames.csv`."""
    format: TableFormat
    rows: int
    columns: tuple[str, ...]
    """Column names as pandas gives them in the notebook, trimmed, doubled ones told apart."""


@dataclass(frozen=True, slots=True)
class Split:
    """How rows are held out."""

    kind: Literal["shuffled", "stratified", "group", "time"]
    column: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ProblemReading:
    """All that was read from the sentence, the options and the first file."""

    problem: str
    table: TableFacts
    target: str
    task: Task
    thresholds: tuple[Threshold, ...] = ()
    split: Split = Split("shuffled")
    groups: tuple[str, ...] = ()
    """Columns whose values repeat and name whom a row belongs to."""
    dates: tuple[str, ...] = ()
    not_features: Mapping[str, str] = field(default_factory=dict)
    """Columns left out of the features for a reason that is known beforehand (ids, constants), with it."""
    keep: tuple[str, ...] = ()
    """Columns that a person wants kept, leak or not."""
    warnings: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()
