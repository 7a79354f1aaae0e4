"""Reads the user's table, and writes the code with which a cell reads the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.flows.notebook.domain.problem import ProblemError, TableFacts, TableFormat
from detent.flows.notebook.domain.table_text import TableTextError, find_text_format
from detent.kernel.errors import IntegrationMissing

if TYPE_CHECKING:
    import pandas as pd

KINDS = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", ".data": "csv", ".dat": "csv", "": "csv",
    ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}  # fmt: skip
READERS = {"parquet": ("pyarrow", "fastparquet"), "xlsx": ("openpyxl", "python_calamine")}
"""Packages of which one is needed."""
SIGNATURES = (
    (b"PAR1", "a Parquet file"), (b"PK\x03\x04", "a zip archive or a workbook"), (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"), (b"\x1f\x8b", "a gzip archive"), (b"\xd0\xcf\x11\xe0", "an old Excel file"),
    (b"SQLite format 3", "a SQLite database"),
)  # fmt: skip


class TableError(ProblemError):
    """A table cannot be read."""

    def __init__(self, path: Path, why: str, line: int | None = None) -> None:
        self.path = path
        self.line = line
        place = f"{path.name}:{line}" if line is not None else path.name
        super().__init__(f"{place}: {why}")


def read_format(path: Path | str) -> TableFormat:
    """How the table in a file is written.

    Raises:
        TableError: it is missing, of no known kind, empty, binary, or its lines do not fit one another.
        IntegrationMissing: the package that reads this kind is not installed.
    """
    path = Path(path)
    kind = KINDS.get(path.suffix.lower())
    if not path.is_file():
        raise TableError(path, "there is no such file")
    if kind is None:
        readable = ", ".join(sorted(suffix for suffix in KINDS if suffix))
        raise TableError(path, f"a table is read from {readable}, not from '{path.suffix}'")
    if path.stat().st_size == 0:
        raise TableError(path, "the file is empty")
    match kind:
        case "csv":
            return _text_format(path)
        case "parquet":
            return _binary_format(path, TableFormat("parquet"))
        case "jsonl":
            return _binary_format(path, TableFormat("jsonl", encoding="utf-8"))
        case _:
            return _binary_format(path, TableFormat("xlsx"))


def read_table(path: Path | str, format: TableFormat) -> pd.DataFrame:
    """The table in a file, read as the notebook reads it.

    Raises:
        TableError: it cannot be read in this format.
        IntegrationMissing: the package that reads this kind is not installed.
    """
    path = Path(path)
    frame = _read(path, format)
    names = column_names(frame.columns)
    if list(frame.columns) != names:
        frame = frame.set_axis(names, axis=1)
    return frame


def table_facts(path: Path | str, shown_as: str) -> TableFacts:
    """What is known of the table in a file that a cell opens as `shown_as`.

    Raises:
        TableError: it cannot be read.
        IntegrationMissing: the package that reads this kind is not installed.
    """
    format = read_format(path)
    return facts_of(read_table(path, format), format, shown_as)


def facts_of(table: pd.DataFrame, format: TableFormat, shown_as: str) -> TableFacts:
    """What is known of a table that was read."""
    return TableFacts(file=shown_as, format=format, rows=len(table), columns=tuple(table.columns))


def reading_code(facts: TableFacts, path: str | None = None) -> str:
    """The expression with which a cell reads the table; `path` is an expression for where the file is."""
    call = f"{_function(facts.format)}({repr(facts.file) if path is None else path}"
    columns = len(facts.columns) + facts.format.index_column
    for name, value in _arguments(facts.format).items():
        call += f", {name}={value!r}"
    if facts.format.trailing_separator:
        call += f", usecols=range({columns})"
    call += ")"
    match facts.format.header:
        case "plain":
            return call
        case "trimmed":
            return f"{call}.rename(columns=str.strip)"
        case "renamed":
            return f"{call}.set_axis({list(facts.columns)!r}, axis=1)"


def column_names(columns: Sequence[Any]) -> list[str]:
    """Names as the notebook has them: text, trimmed, never empty, each once."""
    names: list[str] = []
    taken: set[str] = set()
    for place, column in enumerate(columns):
        name = str(column).strip() or f"Unnamed: {place}"
        distinct, number = name, 0
        while distinct in taken:
            number += 1
            distinct = f"{name}.{number}"
        taken.add(distinct)
        names.append(distinct)
    return names


# -- reading ------------------------------------------------------------------------------------------------


def _function(format: TableFormat) -> str:
    return {
        "csv": "pd.read_csv",
        "parquet": "pd.read_parquet",
        "jsonl": "pd.read_json",
        "xlsx": "pd.read_excel",
    }[format.kind]


def _arguments(format: TableFormat) -> dict[str, Any]:
    """What is given to pandas' reader, in this order."""
    if format.kind == "jsonl":
        # Left alone, pandas makes numbers of codes such as "007".
        return {"lines": True, "dtype": False, "encoding": format.encoding}
    if format.kind != "csv":
        return {}
    arguments: dict[str, Any] = {"sep": format.separator, "encoding": format.encoding}
    if format.decimal not in (None, "."):
        arguments["decimal"] = format.decimal
    if format.thousands is not None:
        arguments["thousands"] = format.thousands
    if format.skip_lines:
        arguments["skiprows"] = format.skip_lines
    if format.index_column:
        arguments["index_col"] = 0
    return arguments | {"skipinitialspace": True, "low_memory": False}


def _read(path: Path, format: TableFormat) -> pd.DataFrame:
    """The table with the column names as pandas gives them."""
    import pandas as pd

    _need_reader(path, format.kind)
    arguments = _arguments(format)
    if format.trailing_separator:
        arguments["usecols"] = range(_header_width(path, arguments))
    try:
        frame = getattr(pd, _function(format).removeprefix("pd."))(path, **arguments)
    except (ValueError, OSError, OverflowError, pd.errors.ParserError) as error:
        raise TableError(path, f"pandas cannot read it: {error}") from error
    except Exception as error:
        # Readers of binary formats raise errors of their own packages.
        if format.kind in ("csv", "jsonl"):
            raise
        raise TableError(path, f"it is no readable {format.kind} file: {error}") from error
    assert isinstance(frame, pd.DataFrame)
    return frame


def _header_width(path: Path, arguments: dict[str, Any]) -> int:
    import pandas as pd

    without_index = {name: value for name, value in arguments.items() if name != "index_col"}
    return len(pd.read_csv(path, nrows=0, **without_index).columns)


def _need_reader(path: Path, kind: str) -> None:
    packages = READERS.get(kind, ())
    if packages and not any(find_spec(package) for package in packages):
        raise IntegrationMissing(
            f"{path.name}: reading .{kind} files needs the package {packages[0]}, which is not installed. "
            f"Install it, or save the table as CSV."
        )


# -- formats ------------------------------------------------------------------------------------------------


def _text_format(path: Path) -> TableFormat:
    with path.open("rb") as file:
        start = file.read(16)
    for signature, description in SIGNATURES:
        if start.startswith(signature):
            raise TableError(path, f"this is {description}, not a text table")
    try:
        written = find_text_format(str(path))
    except TableTextError as error:
        raise TableError(path, str(error).removeprefix(f"line {error.line}: "), error.line) from error
    format = TableFormat(
        kind="csv",
        encoding=written.encoding,
        separator=written.separator,
        decimal=written.decimal,
        thousands=written.thousands,
        index_column=written.index_column,
        skip_lines=written.skip_lines,
        trailing_separator=written.trailing_separator,
    )
    import pandas as pd

    arguments = _arguments(format)
    if format.trailing_separator:
        arguments["usecols"] = range(_header_width(path, arguments))
    # One row beside the names: without any, pandas does not see that the first column names the rows.
    head = pd.read_csv(path, nrows=1, **arguments)
    return replace(format, header=_header(head.columns))


def _header(columns: Sequence[Any]) -> Any:
    """How the names that pandas reads become those of the notebook."""
    names = column_names(columns)
    if list(columns) == names:
        return "plain"
    if all(isinstance(column, str) for column in columns) and [name.strip() for name in columns] == names:
        return "trimmed"
    return "renamed"


def _binary_format(path: Path, format: TableFormat) -> TableFormat:
    """The format of a file that says itself how it is read, once it has been."""
    if format.kind == "jsonl":
        _check_lines_of_json(path)
    frame = _read(path, format)
    if frame.shape[1] < 2:
        raise TableError(path, f"it has {frame.shape[1]} column(s); a target and a feature are needed")
    if not len(frame):
        raise TableError(path, "it has column names and no row")
    if not frame.index.is_unique:
        raise TableError(path, "its index names several rows alike; save it without the index")
    for name, column in frame.items():
        if column.dtype == object and any(
            hasattr(value, "__len__") and not isinstance(value, str | bytes) for value in column.head(100)
        ):
            raise TableError(path, f"'{name}' holds several values; a table has one value per field")
    return replace(format, header=_header(frame.columns))


def _check_lines_of_json(path: Path) -> None:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    _check_line_of_json(path, line, number)
    except UnicodeDecodeError as error:
        raise TableError(path, "it is not written in UTF-8") from error


def _check_line_of_json(path: Path, line: str, number: int) -> None:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise TableError(path, f"this is no JSON: {error}", number) from error
    if not isinstance(record, dict):
        raise TableError(path, "each line must be one object, {…}", number)
    for name, value in record.items():
        if isinstance(value, dict | list):
            raise TableError(path, f"'{name}' holds several values; a table has one value per field", number)
