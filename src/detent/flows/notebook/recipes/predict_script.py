"""The text of `outputs/predict.py`: the saved model applied to a new table, with public packages alone."""

from __future__ import annotations

import ast

from detent.flows.notebook.recipes.code_text import cell
from detent.flows.notebook.recipes.column_typing import (
    COLUMN_KINDS,
    DATES_IN_TEXT,
    NUMBERS_IN_TEXT,
    TYPED_TABLE,
    VALID_VALUES,
)
from detent.flows.notebook.recipes.recipe import Kitchen
from detent.flows.notebook.recipes.typing_code import READ_AGAIN


def predict_script(kitchen: Kitchen) -> str:
    """The script as text. It stands in `outputs/`, beside `models/`, and runs from any folder."""
    # The name is data: escaped, it cannot end the docstring.
    target = ascii(kitchen.problem.target).replace("\\", "\\\\").replace('"', '\\"')
    head = _HEAD.replace("<<TARGET>>", target, 1)
    shared = "\n".join((NUMBERS_IN_TEXT, DATES_IN_TEXT, COLUMN_KINDS, TYPED_TABLE, VALID_VALUES, READ_AGAIN))
    return cell(head, _needed(shared, _BODY), _BODY) + "\n"


def _needed(shared: str, body: str) -> str:
    """The definitions of `shared` that `body` uses, directly or through another."""
    statements = ast.parse(shared).body
    wanted = _names_read(ast.parse(body))
    chosen: list[ast.stmt] = []
    for statement in reversed(statements):  # a definition uses nothing but definitions above it
        if _names_bound(statement) & wanted:
            chosen.insert(0, statement)
            wanted |= _names_read(statement)
    sources = [ast.get_source_segment(shared, statement) or "" for statement in chosen]
    constants = [source for source, statement in zip(sources, chosen, strict=True) if _is_constant(statement)]
    functions = [
        source for source, statement in zip(sources, chosen, strict=True) if not _is_constant(statement)
    ]
    return cell("\n".join(constants), *functions)


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AugAssign)


def _names_bound(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AugAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
    return set()


def _names_read(tree: ast.AST) -> set[str]:
    return {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


_HEAD = '''
"""Predict <<TARGET>> for the rows of a new table.

    python predict.py NEW [OUT]

NEW is a csv, tsv, jsonl, parquet or xlsx file with the columns that the model was trained on, in any order;
other columns, the target among them, are ignored. OUT is a csv file with one row for each row of NEW, in its
order; without OUT the predictions are printed. The model is read from ../models, seen from this file.
"""

import csv
import io
import json
import re
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd

MODELS = Path(__file__).resolve().parent.parent / "models"
'''

_BODY = r'''
def decoded(content):
    """The text of a file: by its mark, else UTF-8, Windows-1252 or Latin-1."""
    if content.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return content.decode("utf-32")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return content.decode("latin-1")


def separator_and_header(text, needed):
    """The separator, and the number of lines above the column names: where most needed names are found."""
    best, most = (",", 0), -1
    for separator in ",;\t|":
        records = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
        begin = 0
        for _, record in zip(range(30), records):
            names = [name.strip() for name in record]
            rank = 1000 * len(needed.intersection(names)) + (len(names) if begin == 0 else 0)
            if rank > most:
                best, most = (separator, begin), rank
            begin = records.line_num
    return best


def read_text_table(text, needed):
    """A text table, its values still text, and its separator."""
    separator, above = separator_and_header(text, needed)
    body = io.StringIO("".join(list(io.StringIO(text, newline=""))[above:]), newline="")
    records = csv.reader(body, delimiter=separator, skipinitialspace=True)
    width, following = len(next(records, [])), [record for _, record in zip(range(50), records) if record]
    # A separator at the end of each line adds an empty field; names of the rows add one in front.
    trailing = bool(following) and all(
        len(record) == width + 1 and not record[-1].strip() for record in following
    )
    body.seek(0)
    table = pd.read_csv(
        body, sep=separator, dtype=str, skipinitialspace=True, index_col=False if trailing else None
    )
    return table, separator


def read_table(path, needed):
    """The new table, with the column names that the notebook would give it, and its separator."""
    suffix, separator = path.suffix.lower(), ","
    if suffix in (".parquet", ".pq"):
        table = pd.read_parquet(path)
    elif suffix in (".jsonl", ".ndjson"):
        table = pd.read_json(
            io.StringIO(decoded(path.read_bytes())), lines=True, dtype=False, convert_dates=False
        )
    elif suffix in (".xlsx", ".xlsm"):
        table = pd.read_excel(path)
    else:
        text = decoded(path.read_bytes())
        if not text.strip():
            raise SystemExit(f"{path} is empty.")
        table, separator = read_text_table(text, needed)
    names = []
    for place, column in enumerate(table.columns):
        name = str(column).strip() or f"Unnamed: {place}"
        number, free = 0, name
        while free in names:
            number += 1
            free = f"{name}.{number}"
        names.append(free)
    return table.set_axis(names, axis="columns").reset_index(drop=True), separator


def decimal_of(columns, separator):
    """The decimal mark of columns of plain numbers that are written as text."""
    commas = points = grouped = 0
    for values in columns:
        texts = values.dropna().astype(str).str.strip()
        grouped += texts.str.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+").sum()
        commas += texts.str.fullmatch(r"[-+]?(\d*|\d{1,3}(\.\d{3})+),\d+").sum()
        points += texts.str.fullmatch(r"[-+]?\d*\.\d+([eE][-+]?\d+)?").sum()
    # 1,234 is a thousand, or a number with three decimals in files that part their columns by semicolons.
    return "," if commas - (0 if separator == ";" else grouped) > points else "."


def unknown_cells(table, features, saved):
    """What the model has not learned: by column, its cells as a mask, and words for them."""
    known = saved.get("known", {})
    ranges, levels = known.get("ranges", {}), known.get("levels", {})
    for name in features.columns:
        values, first = features[name], table[name]
        told = first.notna() & ~first.astype(str).str.strip().str.casefold().isin(NO_VALUE)
        dates = pd.api.types.is_datetime64_any_dtype(values)
        if dates or name in ranges:
            meant = saved["rules"].get("sentinels", {}).get(name, [])  # numbers that stand for no value
            lost = told & values.isna() & ~pd.to_numeric(first, errors="coerce").isin(meant)
            how = "are not written as in the table that the model knows" if dates else "cannot be read"
            yield (
                name,
                lost,
                f"of {int(told.sum()):,} {'dates' if dates else 'numbers'} in {name!r} {how}, "
                "and count as missing",
            )
        if name in ranges:
            low, high = ranges[name]
            outside = values.notna() & ~values.astype(float).between(low, high)
            words = f"of {int(values.notna().sum()):,} numbers in {name!r} lie outside {low:g} to {high:g}"
            yield name, outside, f"{words}, the range that the model was trained on"
        if name in levels:
            new = values.notna() & ~values.astype(str).isin(levels[name])
            words = f"of {int(values.notna().sum()):,} values in {name!r} are categories"
            yield name, new, f"{words} that the model was not trained on"


def tell_unknown(path, table, features, saved):
    """Say on stderr what the model has not learned, for its predictions there are guesses."""
    rows = pd.Series(False, index=features.index)
    for name, cells, words in unknown_cells(table, features, saved):
        if cells.any():
            example = str(table.loc[cells, name].iloc[0])
            print(f"{path}: {int(cells.sum()):,} {words}, such as {example!r}.", file=sys.stderr)
            rows |= cells
    if rows.any():
        count = f"{int(rows.sum()):,} of {len(rows):,} rows"
        print(f"{path}: {count} hold such values; do not rely on their predictions.", file=sys.stderr)


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        print(__doc__.strip())
        return
    if len(arguments) not in (1, 2):
        raise SystemExit(__doc__)
    path = Path(arguments[0])
    if not path.is_file():
        raise SystemExit(f"There is no file {path}.")
    saved = json.loads((MODELS / "typing.json").read_text(encoding="utf-8"))
    model = joblib.load(MODELS / "model.pkl")

    table, separator = read_table(path, set(saved["columns"]))
    missing = [name for name in saved["columns"] if name not in table.columns]
    if missing:
        raise SystemExit(f"{path} lacks the column {', '.join(map(repr, missing))}, which the model needs.")
    plain = [name for name, form in saved["forms"].items() if form == "number" and not is_number(table[name])]
    features = typed_again(table, saved, decimal_of([table[name] for name in plain], separator))

    tell_unknown(path, table, features, saved)
    labels = list(model.classes_) if hasattr(model, "predict_proba") else []
    result = pd.DataFrame({"prediction": model.predict(features) if len(features) else []})
    chances = model.predict_proba(features) if labels and len(features) else np.empty((0, len(labels)))
    for number, label in enumerate(labels):
        result[f"probability_{label}"] = chances[:, number]
    result.to_csv(arguments[1] if len(arguments) == 2 else sys.stdout, index=False)


if __name__ == "__main__":
    main(sys.argv[1:])
'''
