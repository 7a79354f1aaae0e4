"""The recipes of stage 1's first half: the table is read, and its structure described."""

from __future__ import annotations

from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.domain.tables import reading_code
from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.column_typing import COLUMN_KINDS, DATES_IN_TEXT, NUMBERS_IN_TEXT
from detent.flows.notebook.recipes.definitions import MARKDOWN
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- data_collection_inventory ------------------------------------------------------------------------------


def data_collection_inventory(kitchen: Kitchen) -> Recipe:
    """Read the table, and take stock of the files."""
    reading = kitchen.problem
    slots = {
        "NEEDS": ", ".join(_packages(reading)),
        "SEED": literal(kitchen.settings.seed),
        "PROBLEM": literal(reading.problem),
        "FILES": literal([reading.table.file, *reading.other_files]),
        "READ": _reading(kitchen),
        "FORMAT": literal(reading.table.format.kind),
    }
    return Recipe(
        lead=(
            "First the tools and the data. Everything random in this notebook starts from one seed, and "
            "the versions of the libraries are printed, so that the results can be reached again. The "
            "table is read as it is; nothing in it is changed yet. Size and SHA-256 of each file say "
            "which data the results belong to."
        ),
        code=cell(fill(_IMPORTS, slots), MARKDOWN, fill(_INVENTORY, slots)),
        result=_INVENTORY_RESULT,
    )


def _reading(kitchen: Kitchen) -> str:
    """The table as its format was recognised; in a retry, whatever else can be read from it."""
    known = f"raw_dataset = {reading_code(kitchen.problem.table, 'user_submit_files[0]')}"
    if kitchen.iteration == 1:
        return known
    more = ', on_bad_lines="warn"' if kitchen.iteration > 2 else ""
    return fill(_SECOND_READING, {"KNOWN": known, "MORE": more})


def _packages(reading: ProblemReading) -> list[str]:
    more = {"parquet": ["pyarrow"], "xlsx": ["openpyxl"]}.get(reading.table.format.kind, [])
    return sorted(["joblib", "matplotlib", "numpy", "pandas", "scikit-learn", *more])


_IMPORTS = r"""
# This notebook needs the packages <<NEEDS>>.
import hashlib
import platform
import re
import warnings
from pathlib import Path

import joblib
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn

RANDOM_STATE = <<SEED>>
np.random.seed(RANDOM_STATE)
library_versions = {
    "python": platform.python_version(),
    **{module.__name__: module.__version__ for module in (joblib, matplotlib, np, pd, sklearn)},
}
print(", ".join(f"{name} {version}" for name, version in library_versions.items()))

user_problem = <<PROBLEM>>
user_submit_files = <<FILES>>
"""

_INVENTORY = r'''
def found(file):
    """Where a data file is: in the folder it was given in, beside this notebook, or in its folder of files."""
    name = Path(file).name
    for path in (Path(file), Path("assets") / name, Path(name)):
        if path.is_file():
            return path.as_posix()
    beside = sorted(path / "assets" / name for path in Path().glob("*_files"))
    beside = [path for path in beside if path.is_file()]
    if len({path.read_bytes() for path in beside}) > 1:
        raise FileNotFoundError(
            f"There are several data files {name!r}: {', '.join(path.as_posix() for path in beside)}. "
            "Put the right one into the folder 'assets' beside this notebook."
        )
    if not beside:
        raise FileNotFoundError(
            f"The data file {name!r} is missing. Put it into the folder 'assets' or beside this notebook."
        )
    return beside[0].as_posix()


def sha256_of(file):
    """The fingerprint of a file's bytes."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


user_submit_files = [found(file) for file in user_submit_files]
<<READ>>

data_inventory_checklist = {
    "file": Path(user_submit_files[0]).name,
    "format": <<FORMAT>>,
    "bytes": Path(user_submit_files[0]).stat().st_size,
    "sha256": sha256_of(user_submit_files[0]),
    "rows": len(raw_dataset),
    "columns": raw_dataset.shape[1],
    "missing_cells": int(raw_dataset.isna().sum().sum()),
    "other_files": {
        Path(file).name: {"bytes": Path(file).stat().st_size, "sha256": sha256_of(file)}
        for file in user_submit_files[1:]
    },
}
for entry, value in data_inventory_checklist.items():
    print(f"{entry:>14}  {value}")
'''

_INVENTORY_RESULT = r"""
(
    f"The file {code_name(data_inventory_checklist['file'])} has "
    f"{data_inventory_checklist['bytes']:,} bytes and "
    f"holds a table of **{len(raw_dataset):,} rows and {raw_dataset.shape[1]:,} columns**, in which "
    f"{data_inventory_checklist['missing_cells']:,} of {raw_dataset.size:,} cells are empty. "
    + (
        f"{counted(len(data_inventory_checklist['other_files']), 'more file')} came with it; only "
        "the first is analysed."
        if data_inventory_checklist["other_files"]
        else "It is the only file."
    )
)
"""

_SECOND_READING = r'''
def table_by_its_looks(file):
    """A text table whose encoding and separator are found by trying."""
    for encoding in ("utf-8-sig", "cp1252", "latin-1"):
        try:
            table = pd.read_csv(file, sep=None, engine="python", encoding=encoding<<MORE>>)
        except (UnicodeDecodeError, ValueError):
            continue
        if table.shape[1] > 1:
            table.columns = table.columns.astype(str).str.strip()
            return table.loc[:, ~table.columns.duplicated()]
    raise ValueError(f"{file} is no table with two columns or more")


try:
    <<KNOWN>>
    if raw_dataset.shape[1] < 2:
        raise ValueError("a single column was read")
except (UnicodeError, ValueError) as error:
    print(f"The first reading failed ({error}): encoding and separator are tried.")
    raw_dataset = table_by_its_looks(user_submit_files[0])
'''


# -- data_structure_discovery -------------------------------------------------------------------------------


def data_structure_discovery(kitchen: Kitchen) -> Recipe:
    """Describe types, distinct values and gaps."""
    slots = {
        "DISTINCT": attempted(
            kitchen, "raw_dataset[name].nunique()", "raw_dataset[name].astype(str).nunique()"
        ),
        "ROWS": literal({1: 5, 2: 3}.get(kitchen.iteration, 1)),
    }
    return Recipe(
        lead=(
            "What is in the table? For each column the type that pandas gave it, how many distinct "
            "values it has, how many are missing, and one of its values. A type at this point only says "
            "how the file was read: numbers and dates may still stand in text."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_STRUCTURE, slots)),
        result=_STRUCTURE_RESULT,
    )


_STRUCTURE = r"""
structure = pd.DataFrame(
    {
        "type": raw_dataset.dtypes.astype(str),
        "distinct": [<<DISTINCT>> for name in raw_dataset.columns],
        "missing": raw_dataset.isna().sum(),
        "example": [
            str(next(iter(raw_dataset[name].dropna()), ""))[:40] for name in raw_dataset.columns
        ],
    }
)
data_structure_document = {
    "rows": len(raw_dataset),
    "columns": raw_dataset.shape[1],
    "dtypes": structure["type"].to_dict(),
    "distinct": structure["distinct"].astype(int).to_dict(),
    "missing": structure["missing"].astype(int).to_dict(),
    "memory_bytes": int(raw_dataset.memory_usage(index=False).sum()),
}
print(raw_dataset.head(<<ROWS>>).to_string(max_cols=12, max_colwidth=24))
memory = data_structure_document["memory_bytes"]
print(f"\n{f'{memory / 1e6:,.1f} MB' if memory >= 1e6 else f'{memory / 1e3:,.1f} kB'} in memory\n")
structure
"""

_STRUCTURE_RESULT = r"""
(
    f"The {len(structure):,} columns have these types: "
    + ", ".join(
        f"{n:,} {kind}" for kind, n in structure["type"].value_counts().sort_index().items()
    )
    + ". "
    + (
        f"{counted(int((structure['missing'] > 0).sum()), 'column')} with gaps; the largest share is "
        f"{structure['missing'].max() / len(raw_dataset):.1%}, in {code_name(structure['missing'].idxmax())}."
        if structure["missing"].any()
        else "No cell is empty."
    )
    + (
        f" Columns with a single value: {listing(structure.index[structure['distinct'] <= 1])}."
        if (structure["distinct"] <= 1).any()
        else ""
    )
)
"""


# -- variable_semantics_analysis ----------------------------------------------------------------------------


def variable_semantics_analysis(kitchen: Kitchen) -> Recipe:
    """Say what each column holds, and what is to be predicted."""
    reading = kitchen.problem
    comma = reading.table.format.decimal == ","
    kind = "column_kind(name, raw_dataset[name], DECIMAL, DAY_FIRST)"
    slots = {
        "TARGET": literal(reading.target),
        "TASK": literal(reading.task),
        "DECIMAL": literal("," if comma else "."),
        "DAY_FIRST": literal(comma),
        "DATES": literal(list(reading.dates)),
        "KIND": attempted(kitchen, kind, '("categorical", "it could not be told apart")'),
    }
    return Recipe(
        lead=_semantics_lead(reading),
        code=cell(
            NUMBERS_IN_TEXT,
            DATES_IN_TEXT,
            COLUMN_KINDS,
            ATTEMPT if kitchen.iteration > 1 else "",
            fill(_SEMANTICS, slots),
        ),
        result=_SEMANTICS_RESULT,
    )


def _semantics_lead(reading: ProblemReading) -> str:
    warnings = "".join(f"\n- {warning}" for warning in reading.warnings)
    return (
        "A column's type says little about its meaning: a number may be a quantity or merely number "
        "the rows, and "
        "a text may hold an amount such as `$12,500`, a date, one of a few categories, or prose. The "
        "functions "
        "below look at the values themselves and give every column a kind: numeric, categorical, "
        "datetime, text, "
        f"id or constant. The problem asks for a {reading.task}."
        + (f"\n\nReading the problem left these remarks:\n{warnings}" if warnings else "")
    )


_SEMANTICS = r"""
target_column = <<TARGET>>
task_type = <<TASK>>
DECIMAL, DAY_FIRST = <<DECIMAL>>, <<DAY_FIRST>>  # how this table writes numbers, and 3/4/2020
expected_dates = <<DATES>>

if target_column not in raw_dataset.columns:
    raise KeyError(
        f"The table has no column {target_column!r}. It has: {list(raw_dataset.columns)[:20]}"
    )
if raw_dataset[target_column].nunique() < 2:
    raise ValueError(
        f"{target_column!r} has fewer than two distinct values: there is nothing to predict."
    )

variable_analysis_report = {}
for name in raw_dataset.columns:
    kind, why = <<KIND>>
    if name in expected_dates and kind in ("categorical", "text", "id"):
        if date_rule(raw_dataset[name].dropna(), DAY_FIRST, share=0.5):
            kind, why = "datetime", "most of its texts are dates"
    if name == target_column:
        kind = "numeric" if task_type == "regression" else "categorical"
        why = f"it is the target of the {task_type}"
    variable_analysis_report[name] = {
        "kind": kind,
        "why": why,
        "distinct": int(comparable(raw_dataset[name].dropna()).nunique()),
        "missing": int(raw_dataset[name].isna().sum()),
    }
pd.DataFrame.from_dict(variable_analysis_report, orient="index")
"""

_SEMANTICS_RESULT = r"""
(
    f"The target is {code_name(target_column)}: a {task_type} with "
    f"{variable_analysis_report[target_column]['distinct']:,} distinct values, "
    f"{variable_analysis_report[target_column]['missing']:,} of them missing in the table. By kind:\n\n"
    + "\n".join(
        f"- {kind}: {listing(names)}"
        for kind in ("numeric", "categorical", "datetime", "text", "id", "constant")
        for names in [[n for n, entry in variable_analysis_report.items() if entry["kind"] == kind]]
        if names
    )
)
"""
