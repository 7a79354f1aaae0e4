"""The text of cells: values written into code, cells put together, and how a table is read."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pprint import pformat

from detent.flows.notebook.domain.problem import TableFacts

_SLOT = re.compile(r"<<([A-Z][A-Z_]*)>>")


def literal(value: object) -> str:
    """Write a plain value as Python code, over several lines if one is too short.

    Column names, problem texts and paths enter code this way and no other.
    """
    return pformat(value, width=100, sort_dicts=False)


def fill(template: str, slots: Mapping[str, str]) -> str:
    """Put code into the `<<SLOTS>>` of a template.

    What is put in is not searched for slots again, so a column may be named like one.

    Raises:
        KeyError: the template has a slot that is not given.
    """
    return cell(_SLOT.sub(lambda slot: slots[slot[1]], template))


def cell(*parts: str) -> str:
    """Join pieces of code, two empty lines between them."""
    return "\n\n\n".join(textwrap.dedent(part).strip("\n") for part in parts if part.strip())


def reading_code(facts: TableFacts, path: str | None = None) -> str:
    """Write the expression with which a cell reads a table; `path` is an expression for where the file is."""
    form = facts.format
    file = repr(facts.file) if path is None else path
    match form.kind:
        case "csv":
            options = {
                "sep": form.separator,
                "encoding": form.encoding,
                "decimal": form.decimal,
                "thousands": form.thousands,
                "index_col": 0 if form.index_column else None,
            }
            given = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
            return f"pd.read_csv({file}{given}, low_memory=False).rename(columns=str.strip)"
        case "jsonl":
            return f"pd.read_json({file}, lines=True).rename(columns=str)"
        case "parquet":
            return f"pd.read_parquet({file}).rename(columns=str)"
        case "xlsx":
            return f"pd.read_excel({file}).rename(columns=str)"
