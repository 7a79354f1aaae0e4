"""Reads a problem: the sentence, the options and the first file, as one value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from detent.flows.notebook.domain.column_kinds import ColumnFacts, column_facts
from detent.flows.notebook.domain.problem import ProblemError, ProblemReading, Split, TableFormat
from detent.flows.notebook.domain.split import SplitChoice, choose_split
from detent.flows.notebook.domain.tables import facts_of, read_format, read_table
from detent.flows.notebook.domain.target import find_target
from detent.flows.notebook.domain.task import find_task
from detent.flows.notebook.domain.thresholds import metrics_named, read_thresholds
from detent.kernel.errors import nearest

if TYPE_CHECKING:
    import pandas as pd

ASSETS = "assets"
"""The folder in a run's work folder that the user's files are copied to."""
SEEN = 200
"""Values of a column that are looked at for signs of a wrong encoding."""
WORD = re.compile(r"[^\s!-/:-@\[-`{-~0-9]+")
NO_LETTER = re.compile(r"[\x80-\x9f]|(?<=[^\W\d_])[¡-©«-±³´¶¸¹»-¿](?=[^\W\d_])")
"""A control character, or a sign between letters: what stands for a letter of another alphabet."""
TOTAL = re.compile(
    r"(?:grand |sub)?totals?:?|sum(?:me|ma|a)?:?|gesamt:?|insgesamt:?|razem:?|ogółem:?", re.IGNORECASE
)


def read_problem(
    problem: str,
    files: Sequence[Path | str],
    *,
    target: str | None = None,
    split: str | None = None,
    keep: Sequence[str] = (),
    test_size: float = 0.2,
) -> ProblemReading:
    """What is to be done, by the sentence, the options and the first of the files.

    Raises:
        ProblemError: the problem cannot be worked on: an unreadable table, a target that is not there or
            not clear (`TargetUnclear`), a threshold against its metric, a task that is neither.
        IntegrationMissing: the package that reads this kind of file is not installed.
    """
    if not problem.strip():
        raise ProblemError("The problem is empty: say what is to be predicted.")
    if not files:
        raise ProblemError("No file is given: a problem needs a table.")
    first = Path(files[0])
    format, table = _table(first, target, split, keep)
    columns = tuple(table.columns)
    thresholds, threshold_warnings = read_thresholds(problem, columns)
    metrics = [mention.metric for mention in metrics_named(problem, columns)]
    choice = find_target(problem, table, option=target, metrics=metrics)
    task = find_task(problem, table[choice.column], thresholds, columns)
    facts = {name: column_facts(table[name]) for name in columns}
    held_out = choose_split(problem, table, choice.column, task, split, test_size, facts=facts)
    left_out = _not_features(facts, choice.column, held_out, _kept(keep, columns))
    if len(left_out) + 1 >= len(columns):
        if format.index_column:
            left_out = {str(table.index.name or "the first column"): "counts the rows", **left_out}
        reasons = "; ".join(f"'{name}' {reason}" for name, reason in left_out.items())
        raise ProblemError(f"No column is left to predict '{choice.column}' from: {reasons}.")
    warnings = [*threshold_warnings, *([choice.warning] if choice.warning else ()), *held_out.warnings]
    if _names_are_numbers(columns):
        warnings.append("All column names are numbers: the first line of the table may be data.")
    if (misread := _misread(format, table)) is not None:
        warnings.append(
            f"The text is no UTF-8 and was read as {format.encoding}, which gives '{misread}'. If that is "
            "wrong, save the table as UTF-8."
        )
    if (last := _total_in_last_row(table)) is not None:
        warnings.append(f"The last row says '{last}'. If it adds up the others, take it out of the table.")
    return ProblemReading(
        problem=problem,
        table=facts_of(table, format, f"{ASSETS}/{first.name}"),
        target=choice.column,
        task=task,
        thresholds=thresholds,
        split=held_out.split,
        groups=held_out.groups,
        dates=held_out.dates,
        not_features=left_out,
        keep=tuple(keep),
        warnings=tuple(warnings),
        other_files=tuple(f"{ASSETS}/{Path(file).name}" for file in files[1:]),
    )


def _table(
    path: Path, target: str | None, split: str | None, keep: Sequence[str]
) -> tuple[TableFormat, pd.DataFrame]:
    """The table; a first column that counts the rows stays a column if an option names it."""
    format = read_format(path)
    table = read_table(path, format)
    named = {target, *keep, (split or "").partition(":")[2]}
    if format.index_column and table.index.name in named - {None}:
        format = replace(format, index_column=False)
        table = read_table(path, format)
    return format, table


def _kept(keep: Sequence[str], columns: Sequence[str]) -> frozenset[str]:
    for name in keep:
        if name not in columns:
            raise ProblemError(f"The table has no column '{name}' to keep.{nearest(name, columns)}")
    return frozenset(keep)


def _not_features(
    facts: Mapping[str, ColumnFacts], target: str, choice: SplitChoice, keep: frozenset[str]
) -> dict[str, str]:
    """The columns that nothing can be predicted from, each with the reason."""
    reasons: dict[str, str] = {}
    for name, column in facts.items():
        if name == target or name in keep:
            continue
        if column.kind == "constant":
            reasons[name] = "has the same value in every row" if column.distinct else "has no value"
        elif column.kind == "id":
            reasons[name] = "is different in every row"
        elif _names_owner(name, choice.split, choice.groups):
            reasons[name] = "names whom a row belongs to, and new rows belong to others"
    return reasons


def _names_owner(name: str, split: Split, groups: Sequence[str]) -> bool:
    return split.kind == "group" and (name == split.column or name in groups)


def _misread(format: TableFormat, table: pd.DataFrame) -> str | None:
    """A word that no Western language has: signs among letters, or letters with accents for the most part."""
    if format.encoding not in ("cp1252", "latin-1"):
        return None
    texts = [name for name in table if table[name].dtype.kind not in "biufcmM"]
    values = (str(value) for name in texts for value in table[name].dropna().unique()[:SEEN])
    for word in WORD.findall("\n".join((*map(str, table.columns), *values))):
        foreign = [letter for letter in word if not letter.isascii()]
        if NO_LETTER.search(word) or (len(word) > 2 and len(foreign) > 0.7 * len(word)):
            return str(word)
    return None


def _total_in_last_row(table: pd.DataFrame) -> str | None:
    """What the last row says, if that is a sum and no other row says the same."""
    for value in table.iloc[-1]:
        if isinstance(value, str) and TOTAL.fullmatch(value.strip()):
            said = sum(table[name].eq(value).sum() for name in table)
            return value.strip() if said == 1 else None
    return None


def _names_are_numbers(columns: Sequence[str]) -> bool:
    """Whether the names are numbers, and not the 0, 1, 2… of a table saved without names."""
    try:
        numbers = [float(name) for name in columns]
    except ValueError:
        return False
    return numbers != [numbers[0] + place for place in range(len(numbers))]
