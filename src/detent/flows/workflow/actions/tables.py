"""Actions on tables: read from files, checked row by row, put into SQLite and taken out again.

Rows lie beside the journal, in batches; what goes from step to step are references to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from detent.engine.context import StepContext
from detent.engine.step_failures import StepFailed
from detent.flows.workflow.domain.row_rules import Rule, read_rules
from detent.flows.workflow.registry import action

Reference = dict[str, Any]
"""`{"$blob": …, "size": …}`."""

MOST_TOLD = 200
"""Problems told of one table; the rest are counted."""
LARGEST_BATCH = 10_000


class Table(TypedDict):
    ref: Reference
    columns: list[str]
    rows: int
    """Those that cannot be read included."""
    batches: int


class RowProblem(TypedDict):
    row: int
    """Line of the file."""
    column: str | None
    problem: str


class CheckedRows(TypedDict):
    accepted: int
    rejected: int
    problems: list[RowProblem]
    """The first of them."""
    batches: list[Reference]


class Upserted(TypedDict):
    inserted: int
    updated: int


class RestoredRows(TypedDict):
    restored: int
    removed: int


@action(
    "read_table",
    intent="Read a CSV, TSV, JSON Lines or Parquet file as rows with named columns.",
    queries=["table.read"],
    output_schema=Table,
)
async def read_table(
    ctx: StepContext,
    path: str,
    format: Literal["auto", "csv", "tsv", "jsonl", "parquet"] = "auto",
    batch: int = 500,
) -> dict[str, Any]:
    """Rows in batches of so many. Rows that do not fit the header are kept as such, with their line."""
    if not 1 <= batch <= LARGEST_BATCH:
        raise StepFailed(f"`batch` is 1 to {LARGEST_BATCH} rows.")
    found = await ctx.query("table.read", path=path, format=format)
    columns, rows, lines = found["columns"], found["rows"], found["lines"]
    kept = [
        _keep(ctx, {"columns": columns, "rows": rows[at : at + batch], "lines": lines[at : at + batch]})
        for at in range(0, len(rows), batch)
    ]
    whole = {"columns": columns, "size": batch, "batches": kept, "bad": found["bad"]}
    total = len(rows) + len(found["bad"])
    return {"ref": _keep(ctx, whole), "columns": columns, "rows": total, "batches": len(kept)}


@action(
    "check_rows",
    intent="Separate the rows that satisfy the rules from those that do not, and say why each was refused.",
    queries=["text.test"],
    output_schema=CheckedRows,
)
async def check_rows(
    ctx: StepContext, table: Reference, rules: dict[str, Any], max_rejects: float = 0.1
) -> dict[str, Any]:
    """Check each row by rules per column, and fail when more than a share of them is refused.

    Rules are written `column: {rule: value, …}`, or `column: type` for short:

    - `required: true`: there is a value, and a text is not empty
    - `type`: text, integer, number, boolean, date (2030-01-31) or datetime (ISO 8601)
    - `min`, `max`: bounds of a number, a date, or the length of a text
    - `pattern`: a regular expression that fits the whole text
    - `enum`: a list of the values there may be
    - `unique: true`: no earlier row has the same value

    A value that is missing breaks `required` only. A text that a rule says is a number is read as one.
    """
    if not 0 <= max_rejects <= 1:
        raise StepFailed("`max_rejects` is a share of the rows, from 0 to 1.")
    whole = await _kept(ctx, table)
    columns: list[str] = whole["columns"]
    try:
        checks = read_rules(rules, columns)
    except ValueError as error:
        raise StepFailed(str(error)) from None
    problems: list[RowProblem] = [
        {"row": one["row"], "column": None, "problem": one["problem"]} for one in whole["bad"]
    ]
    rejected, accepted = len(whole["bad"]), []
    for reference in whole["batches"]:
        part = await _kept(ctx, reference)
        fits = [await _patterns(ctx, check, part["rows"], columns) for check in checks]
        for at, (written, line) in enumerate(zip(part["rows"], part["lines"], strict=True)):
            row, wrong = list(written), []
            for check, patterns in zip(checks, fits, strict=True):
                place = columns.index(check.column)
                row[place] = check.read(row[place])
                if (said := check.problem(row[place], patterns[at])) is not None:
                    wrong.append((check.column, said))
            if not wrong:
                accepted.append((row, line))
                continue
            rejected += 1
            problems += [{"row": line, "column": column, "problem": said} for column, said in wrong]
    total = rejected + len(accepted)
    if total and rejected / total > max_rejects:
        first = "; ".join(
            f"row {one['row']}: {one['column'] or 'it'} {one['problem']}" for one in problems[:5]
        )
        raise StepFailed(
            f"{rejected} of {total} rows are refused, more than a share of {max_rejects:g}. First: {first}."
        )
    size = whole["size"]
    batches = []
    for start in range(0, len(accepted), size):
        chosen = accepted[start : start + size]
        rows, lines = [row for row, _ in chosen], [line for _, line in chosen]
        batches.append(_keep(ctx, {"columns": columns, "rows": rows, "lines": lines}))
    return {
        "accepted": len(accepted), "rejected": rejected, "problems": problems[:MOST_TOLD], "batches": batches,
    }  # fmt: skip


async def _patterns(
    ctx: StepContext, check: Rule, rows: Sequence[Sequence[Any]], columns: Sequence[str]
) -> list[bool]:
    """Of each row, whether its text fits the rule's pattern."""
    if check.pattern is None:
        return [True] * len(rows)
    place = columns.index(check.column)
    texts = [row[place] if isinstance(row[place], str) else json.dumps(row[place]) for row in rows]
    found = await ctx.query("text.test", texts=texts, pattern=rf"\A(?:{check.pattern})\Z")
    fits: list[bool] = found["fits"]
    return fits


@action(
    "upsert_rows",
    intent=("Make the table hold the given rows, one per key, inserting new keys and updating known ones."),
    effects=["db.upsert"],
    output_schema=Upserted,
)
async def upsert_rows(
    ctx: StepContext, database: str, table: str, key: str, batch: Reference
) -> dict[str, Any]:
    """Load one batch into a table of a SQLite file of the project; a table that is not there is made."""
    done = ctx.propose("db.upsert", database=database, table=table, key=key, batch=dict(batch))
    return {"inserted": done.inserted, "updated": done.updated}


@action(
    "restore_rows",
    intent="Bring the rows of one imported batch back to what they were before.",
    effects=["db.restore"],
    output_schema=RestoredRows,
)
async def restore_rows(
    ctx: StepContext, database: str, table: str, key: str, batch: Reference
) -> dict[str, Any]:
    """Undo the loading of one batch by this run."""
    done = ctx.propose("db.restore", database=database, table=table, key=key, batch=dict(batch))
    return {"restored": done.restored, "removed": done.removed}


def _keep(ctx: StepContext, value: Any) -> Reference:
    return ctx.keep(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


async def _kept(ctx: StepContext, reference: Any) -> dict[str, Any]:
    if not isinstance(reference, Mapping) or not isinstance(reference.get("$blob"), str):
        raise StepFailed("A table is named by the `ref` that read_table gives.")
    raw = await ctx.kept(reference)
    if raw is None:
        raise StepFailed("The rows are no longer kept; read the table again.")
    value: dict[str, Any] = json.loads(raw)
    return value
