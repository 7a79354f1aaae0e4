"""The text of cells: values written into code, cells put together, and how a table is read."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pprint import pformat

from detent.flows.notebook.domain.problem import TableFacts

_SLOT = re.compile(r"<<([A-Z][A-Z_]*)>>")


def literal(value: object, *, indent: int = 0) -> str:
    """Write a plain value as Python code, over several lines if one is too short.

    Column names, problem texts and paths enter code this way and no other.
    """
    text = pformat(value, width=108 - indent, sort_dicts=False)
    return text.replace("\n", "\n" + " " * indent)


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


def reading_code(facts: TableFacts) -> str:
    """Write code that reads the table of `user_submit_files[0]` into `raw_dataset`."""
    form = facts.format
    match form.kind:
        case "csv":
            options = {
                "sep": form.separator or ",",
                "encoding": form.encoding or "utf-8",
                "decimal": form.decimal or ".",
                "thousands": form.thousands,
                "index_col": 0 if form.index_column else None,
            }
            given = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
            read = f"pd.read_csv(user_submit_files[0]{given}, low_memory=False)"
        case "jsonl":
            read = "pd.read_json(user_submit_files[0], lines=True)"
        case "parquet":
            read = "pd.read_parquet(user_submit_files[0])"
        case "xlsx":
            read = "pd.read_excel(user_submit_files[0])"
    return fill(_READING, {"READ": read})


_READING = """
raw_dataset = <<READ>>.reset_index(drop=True)
# Names without blanks around them; a name that comes again gets a number.
names, seen = [], {}
for name in raw_dataset.columns:
    name = str(name).strip()
    seen[name] = seen.get(name, -1) + 1
    names.append(f"{name}.{seen[name]}" if seen[name] else name)
raw_dataset.columns = names
"""
