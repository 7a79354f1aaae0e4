"""Functions that cells of several steps use, and the cell that brings in what the notebook lacks."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import replace

from detent.flows.notebook.recipes.chart_code import CHARTS, RELATIONS
from detent.flows.notebook.recipes.code_text import cell
from detent.flows.notebook.recipes.column_typing import (
    COLUMN_KINDS,
    CONSTANT_COLUMNS,
    DATES_IN_TEXT,
    NUMBERS_IN_TEXT,
    ROW_KEYS,
    TYPED_TABLE,
    VALID_VALUES,
)
from detent.flows.notebook.recipes.recipe import Recipe, RecipeSettings
from detent.flows.notebook.recipes.verdict_code import MEASURED

MARKDOWN = r'''
def code_name(name):
    """A column name as Markdown shows it, whatever is in it."""
    return "`" + (" ".join(str(name).replace("`", "'").split()) or "(empty)") + "`"


def listing(names, limit=8):
    """Some names in one line."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(code_name(name) for name in names[:limit]) + more or "none"


def counted(number, noun, nouns=None):
    """A number with its noun: 1 row, 2 rows."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
'''

COLUMN_GROUPS = r'''
def column_groups(table, left_out=()):
    """The columns of a typed table as numbers, dates, free text and categories."""
    kinds = {"numeric": [], "datetime": [], "text": [], "categorical": []}
    for name in table.columns:
        values = table[name].dropna()
        if name in left_out:
            continue
        if pd.api.types.is_bool_dtype(values):
            kinds["categorical"].append(name)
        elif pd.api.types.is_numeric_dtype(values):
            kinds["numeric"].append(name)
        elif pd.api.types.is_datetime64_any_dtype(values):
            kinds["datetime"].append(name)
        elif len(values) and values.head(2000).astype(str).str.split().str.len().mean() > 5:
            kinds["text"].append(name)
        else:
            kinds["categorical"].append(name)
    return kinds
'''

_IMPORTS = (
    "import hashlib",
    "import platform",
    "import re",
    "import warnings",
    "from pathlib import Path",
    "import joblib",
    "import matplotlib",
    "import matplotlib.pyplot as plt",
    "import numpy as np",
    "import pandas as pd",
    "import sklearn",
)
_FUNCTIONS = (
    MARKDOWN,
    NUMBERS_IN_TEXT,
    DATES_IN_TEXT,
    COLUMN_KINDS,
    ROW_KEYS,
    CONSTANT_COLUMNS,
    TYPED_TABLE,
    VALID_VALUES,
    COLUMN_GROUPS,
    CHARTS,
    RELATIONS,
    MEASURED,
)


def with_definitions(recipe: Recipe, defined: Collection[str], settings: RecipeSettings) -> Recipe:
    """Put before a recipe's code what it uses and the notebook lacks, such as an import.

    A recipe counts on what the recipes before it defined. Where another author wrote those cells, it may be
    missing. `defined` are the names that the accepted cells define.
    """
    blocks = [*_IMPORTS, f"RANDOM_STATE = {settings.seed}", *_FUNCTIONS]
    missing = set(_used(recipe.code) | _used(recipe.result)) - _bound(recipe.code) - set(defined)
    chosen: list[str] = []
    for block in reversed(blocks):  # a block uses nothing but blocks above it
        if missing & _top_level(block):
            chosen.insert(0, block)
            missing |= _used(block) - set(defined)
    imports = "\n".join(block for block in chosen if block in _IMPORTS or block.startswith("RANDOM_STATE"))
    functions = [block for block in chosen if block in _FUNCTIONS]
    return replace(recipe, code=cell(imports, *functions, recipe.code)) if chosen else recipe


def _used(code: str) -> set[str]:
    """Names that code reads, builtins apart."""
    return {
        node.id
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    } - set(dir(builtins))


def _bound(code: str) -> set[str]:
    """Names that code defines anywhere in it."""
    return set(_names(ast.walk(ast.parse(code))))


def _top_level(code: str) -> set[str]:
    return set(_names(iter(ast.parse(code).body))) | {
        name.id
        for statement in ast.parse(code).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


def _names(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name):
                yield name
