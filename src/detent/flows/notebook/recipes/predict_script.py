"""The text of `outputs/predict.py`: the saved model applied to a new table, with public packages alone."""

from __future__ import annotations

from detent.flows.notebook.recipes.recipe import Kitchen
from detent.flows.notebook.recipes.typing_code import APPLYING

_HEAD = '''
"""Predict {subject} for the rows of a new table.

    python predict.py NEW [OUT]

NEW is a csv, tsv, jsonl, parquet or xlsx file with the columns that the model was trained on, in any order; the target
may be missing. OUT is a csv file with one row per row of NEW, in its order; without OUT it is printed.
The script reads ../models/model.pkl and ../models/typing.json, seen from its own folder.
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
    """The text of a file: by its mark, else UTF-8, Windows-1252, Latin-1."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            pass
    return content.decode("latin-1")


def separator_of(text, needed):
    """The separator under which the header names most of the needed columns."""
    best, most = ",", -1
    for separator in ",;\t|":
        lines = csv.reader(io.StringIO(text.lstrip(), newline=""), delimiter=separator)
        names = [name.strip() for name in next(lines, [])]
        matches = len(set(names) & needed) * 1000 + len(names)
        if matches > most:
            best, most = separator, matches
    return best


def read_table(path, needed):
    """The new table; the columns of text tables are still text."""
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        table = pd.read_parquet(path)
    elif suffix in (".jsonl", ".ndjson"):
        table = pd.read_json(io.StringIO(decoded(path.read_bytes())), lines=True, dtype=False, convert_dates=False)
    elif suffix in (".xlsx", ".xls"):
        table = pd.read_excel(path)
    else:
        text = decoded(path.read_bytes())
        if not text.strip():
            raise SystemExit(f"{path} is empty.")
        table = pd.read_csv(io.StringIO(text), sep=separator_of(text, needed), dtype=str)
    names = []
    for name in (str(column).strip() for column in table.columns):
        number, free = 0, name
        while free in names:
            number += 1
            free = f"{name}.{number}"
        names.append(free)
    return table.set_axis(names, axis="columns").reset_index(drop=True)


def decimal_of(columns):
    """The decimal sign of columns of numbers that are written as text."""
    commas = points = 0
    for values in columns:
        known = values.dropna().astype(str).str.strip()
        commas += known.str.fullmatch(r"[-+]?\d*,\d+").sum() - known.str.fullmatch(r"[-+]?\d{1,3}(,\d{3})+").sum()
        commas += known.str.fullmatch(r"[-+]?\d{1,3}(\.\d{3})+,\d+").sum()
        points += known.str.fullmatch(r"[-+]?\d*\.\d+([eE][-+]?\d+)?").sum()
    return "," if commas > points else "."


def features_of(table, rules):
    """The columns that the model needs, typed as it knows them."""
    missing = [rule["column"] for rule in rules if rule["column"] not in table.columns]
    if missing:
        raise SystemExit("The table lacks " + ", ".join(map(repr, missing)) + ", which the model needs.")
    plain_numbers = [rule["column"] for rule in rules if rule["kind"] == "number" and rule["plain_numbers"]]
    decimal = decimal_of(table[column] for column in plain_numbers if not pd.api.types.is_numeric_dtype(table[column]))
    typed = {}
    for rule in rules:
        if rule["column"] in plain_numbers:
            rule = {**rule, "decimal": decimal}
        typed[rule["column"]] = typed_column(table[rule["column"]], rule)
    return pd.DataFrame(typed, index=table.index)


def main(arguments):
    if len(arguments) not in (1, 2):
        raise SystemExit(__doc__)
    rules = json.loads((MODELS / "typing.json").read_text(encoding="utf-8"))["columns"]
    model = joblib.load(MODELS / "model.pkl")
    features = features_of(read_table(Path(arguments[0]), {rule["column"] for rule in rules}), rules)
    labels = list(getattr(model, "classes_", [])) if hasattr(model, "predict_proba") else []
    predictions = pd.DataFrame({"prediction": model.predict(features) if len(features) else []}, index=features.index)
    if labels:
        chances = model.predict_proba(features) if len(features) else np.empty((0, len(labels)))
        for number, label in enumerate(labels):
            predictions[f"probability_{label}"] = chances[:, number]
    if len(arguments) == 2:
        predictions.to_csv(arguments[1], index=False)
        print(f"{len(predictions)} predictions in {arguments[1]}", file=sys.stderr)
    else:
        predictions.to_csv(sys.stdout, index=False)


if __name__ == "__main__":
    main(sys.argv[1:])
'''


def predict_script(kitchen: Kitchen) -> str:
    """The script as text; it stands in `outputs/`, beside `models/`."""
    # The name is data: escaped, it cannot end the docstring.
    subject = ascii(kitchen.problem.target).replace("\\", "\\\\").replace('"', '\\"')
    head = _HEAD.strip().replace("{subject}", subject)
    return f"{head}\n\n\n{APPLYING}\n\n\n{_BODY.strip()}\n"
