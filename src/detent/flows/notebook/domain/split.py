"""Chooses how rows are held out: at random, by class, by group or by time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detent.flows.notebook.domain.column_kinds import ColumnFacts, column_facts
from detent.flows.notebook.domain.column_names import find_mentions, name_words
from detent.flows.notebook.domain.groups import (
    Group,
    columns_with_constants,
    find_groups,
    repeats,
    share_is_possible,
)
from detent.flows.notebook.domain.problem import ProblemError, Split, Task
from detent.kernel.errors import nearest

if TYPE_CHECKING:
    import pandas as pd

PERIODS = (
    r"(?:rows?|dates?|days?|weeks?|months?|quarters?|seasons?|years?|periods?|data|records?|observations?)"
)
LATER = re.compile(
    rf"\b(?:later|future|newer|more recent|subsequent|upcoming)\s+(?:\w+\s+)?{PERIODS}\b"
    r"|\bcoming\s+(?:days|weeks|months|quarters|seasons|years|periods)\b|\bout[- ]of[- ]time\b"
    r"|\b(?:train|fit|learn)\w*\s+on\s+(?:the\s+)?(?:past|older|earlier)\b"
    r"|\b(?:test|check|score|evaluat)\w*\s+on\s+(?:the\s+)?(?:future|latest|most recent|newest|later)\b",
    re.IGNORECASE,
)
NOT_BEFORE = re.compile(r"\b(?:not|no|never|without)\s+(?:\w+\s+){0,3}$", re.IGNORECASE)
TIME_NAMES = frozenset(("year", "date", "day", "month", "week", "time", "timestamp", "period"))


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """How rows are held out, and what was seen on the way."""

    split: Split
    groups: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def choose_split(
    problem: str,
    table: pd.DataFrame,
    target: str,
    task: Task,
    option: str | None = None,
    test_size: float = 0.2,
    *,
    facts: Mapping[str, ColumnFacts] | None = None,
) -> SplitChoice:
    """How rows are held out: as `option` says (`shuffled`, `group:COL`, `time:COL`), else by the rules.

    `facts` of the columns are found if they are not given.

    Raises:
        ProblemError: the option is none, or names a column by which rows cannot be held out.
    """
    if facts is None:
        facts = {name: column_facts(table[name]) for name in table.columns}
    dates = tuple(name for name in table.columns if name != target and facts[name].kind == "datetime")
    groups = find_groups(problem, table, target)
    names = tuple(group.column for group in groups)
    even = Split("stratified" if task == "classification" else "shuffled")
    if option not in (None, "auto"):
        assert option is not None
        split = _from_option(option, table, target, even, test_size)
        if split.kind == "group" and split.column is not None:
            names = tuple(dict.fromkeys((split.column, *names)))
        return SplitChoice(split, names, dates)
    warnings: list[str] = []
    later = LATER.search(problem)
    if later is not None and not NOT_BEFORE.search(problem[: later.start()]):
        column = _time_column(problem, table, target, dates)
        if column is not None:
            why = f"the problem asks about '{later[0]}'"
            return SplitChoice(Split("time", column, why), names, dates, _parted(table, column, groups))
        warnings.append(f"The problem asks about '{later[0]}', but no column holds dates to split by.")
    split = _by_group(table, groups, test_size, warnings) or even
    if split.kind != "group":
        warnings += _possible_groups(table, target)
    return SplitChoice(split, names, dates, tuple(warnings))


def _from_option(option: str, table: pd.DataFrame, target: str, even: Split, test_size: float) -> Split:
    if option == "shuffled":
        return Split(even.kind, None, "--split says so")
    kind, colon, column = option.partition(":")
    if kind not in ("group", "time") or not colon or not column:
        raise ProblemError(f"--split is 'shuffled', 'group:COL' or 'time:COL', not '{option}'.")
    if column not in table.columns:
        raise ProblemError(f"The table has no column '{column}' to split by.{nearest(column, table.columns)}")
    if column == target:
        raise ProblemError(f"'{column}' is the target; rows are not held out by what is to be predicted.")
    if kind == "time":
        if column_facts(table[column]).kind not in ("datetime", "numeric", "id"):
            raise ProblemError(
                f"'{column}' holds neither dates nor numbers, so no row is later than another."
            )
        return Split("time", column, "--split says so")
    if table[column].nunique() < 2:
        raise ProblemError(f"'{column}' has fewer than two groups.")
    if not share_is_possible(table[column], test_size):
        raise ProblemError(
            f"No groups of '{column}' hold {test_size:.0%} of the rows, give or take 10 points: "
            f"its {table[column].nunique()} groups are too large."
        )
    return Split("group", column, "--split says so")


def _by_group(
    table: pd.DataFrame, groups: Sequence[Group], test_size: float, warnings: list[str]
) -> Split | None:
    """The split by the first group that leaves a fair hold-out."""
    for group in groups:
        if not share_is_possible(table[group.column], test_size):
            count = table[group.column].nunique()
            warnings.append(
                f"{group.why}, but its {count} groups are too large to hold {test_size:.0%} of the rows out: "
                f"rows of one group stand on both sides, so the score holds for these groups only."
            )
            continue
        warnings += _parted(table, group.column, groups)
        return Split("group", group.column, group.why)
    return None


def _parted(table: pd.DataFrame, column: str, groups: Sequence[Group]) -> tuple[str, ...]:
    """Warnings of groups whose rows a split by another column parts."""
    warnings = []
    for group in groups:
        if group.column == column:
            continue
        pairs = table[[group.column, column]].dropna().drop_duplicates()
        if not pairs[group.column].is_unique:
            warnings.append(f"Rows of one '{group.column}' stand on both sides of the split by '{column}'.")
    return tuple(warnings)


def _possible_groups(table: pd.DataFrame, target: str) -> list[str]:
    """What may be a group though no name says so."""
    warnings = []
    for column, constant in columns_with_constants(table, target).items():
        shown = ", ".join(map(repr, constant[:3])) + (
            f" and {len(constant) - 3} more" if len(constant) > 3 else ""
        )
        warnings.append(
            f"Rows with equal '{column}' agree in {shown}. If new rows come from another '{column}', "
            f"the shuffled split says too much: use --split group:{column}."
        )
    return warnings


def _time_column(problem: str, table: pd.DataFrame, target: str, dates: Sequence[str]) -> str | None:
    """The column that tells which rows are later."""
    mentioned = [mention.column for mention in find_mentions(problem, dates)]
    if dates:
        return (*mentioned, *dates)[0]
    for column in table.columns:
        named = set(name_words(str(column))) & TIME_NAMES
        if column != target and named and column_facts(table[column]).kind == "numeric":
            return str(column) if repeats(table[column]) else None
    return None
