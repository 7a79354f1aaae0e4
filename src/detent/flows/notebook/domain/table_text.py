"""How a text table is written: its encoding, separator, number marks and line of column names.

Needs nothing but the standard library, so a script made for a user may carry this source as it stands.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

SEPARATORS = (",", ";", "\t", "|")
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
NOT_IN_1252 = b"\x81\x8d\x8f\x90\x9d"
CONTROL_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\x1a\x1b")
CHUNK = 1 << 20
SAMPLE_LINES = 200
"""Records that the separator is found from."""
SAMPLE_ROWS = 3000
SAMPLE_CELLS = 100_000
LONGEST_FIELD = 2**31 - 1

NO_VALUE = frozenset(
    ("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>", "?", "-", "--", "unknown", "missing")
)
"""Texts that stand for a missing value, in lower case."""

CONVENTIONS: tuple[tuple[str, str | None], ...] = (
    (".", None), (",", None), (".", ","), (",", "."), (".", " "), (",", " "), (".", "'"), (",", "'"),
    (".", "\N{NO-BREAK SPACE}"), (",", "\N{NO-BREAK SPACE}"), (".", "’"),
)  # fmt: skip
"""Decimal mark and thousands mark, the usual ones first."""


class TableTextError(ValueError):
    """A file is no text table; `line` is where that shows, if it shows in one place."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message if line is None else f"line {line}: {message}")


@dataclass(frozen=True, slots=True)
class TextFormat:
    """All that is needed to read a text table."""

    encoding: str
    separator: str
    decimal: str
    thousands: str | None
    skip_lines: int
    header: tuple[str, ...]
    """Column names as they are written, the index column's among them."""
    index_column: bool
    trailing_separator: bool


def find_text_format(path: str) -> TextFormat:
    """How the text table at `path` is written.

    Raises:
        TableTextError: it is empty, binary, has no data, one column, or lines of different lengths.
    """
    encoding = find_encoding(path)
    with open(path, encoding=encoding, newline="") as file:
        first = [line for _, line in zip(range(2000), file, strict=False)]
    if not any(line.strip() for line in first):
        raise TableTextError("the file is empty")
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        separator, skipped = _separator(first)
        scan = _scan(path, encoding, separator, skipped)
    finally:
        csv.field_size_limit(limit)
    decimal, thousands = find_number_marks(scan.sample, separator)
    return TextFormat(
        encoding=encoding,
        separator=separator,
        decimal=decimal,
        thousands=thousands,
        skip_lines=skipped,
        header=scan.header,
        index_column=scan.index_column,
        trailing_separator=scan.trailing,
    )


def find_encoding(path: str) -> str:
    """The encoding of a text file: by its mark, else UTF-8, Windows-1252 or Latin-1, never the machine's.

    Raises:
        TableTextError: the file holds bytes that no text has.
    """
    utf8 = codecs.getincrementaldecoder("utf-8")()
    is_utf8 = is_1252 = True
    lines = 1
    with open(path, "rb") as file:
        start = file.read(4)
        for mark, encoding in MARKS:
            if start.startswith(mark):
                return encoding
        file.seek(0)
        while chunk := file.read(CHUNK):
            if len(chunk.translate(None, CONTROL_BYTES)) != len(chunk):
                place = next(index for index, byte in enumerate(chunk) if byte in CONTROL_BYTES)
                line = lines + chunk[:place].count(b"\n")
                raise TableTextError(f"the byte 0x{chunk[place]:02x} is no text; is this a table?", line)
            lines += chunk.count(b"\n")
            if is_utf8:
                try:
                    utf8.decode(chunk)
                except UnicodeDecodeError:
                    is_utf8 = False
            if is_1252:
                is_1252 = len(chunk.translate(None, NOT_IN_1252)) == len(chunk)
    if is_utf8:
        try:
            utf8.decode(b"", final=True)
        except UnicodeDecodeError:
            is_utf8 = False
    return "utf-8" if is_utf8 else "cp1252" if is_1252 else "latin-1"


# -- separator and line of column names ---------------------------------------------------------------------


def _separator(lines: list[str]) -> tuple[str, int]:
    """The separator, and how many lines stand above the column names."""
    named = re.fullmatch(r'"?sep=(.)"?\s*', lines[0], re.IGNORECASE)
    if named and named[1] in SEPARATORS:
        return named[1], 1
    best: tuple[float, int, str, int] | None = None
    for separator in SEPARATORS:
        records = _sample_records(lines, separator)
        counts = [len(record) for _, record in records]
        many = [count for count in counts if count > 1]
        if not many:
            continue
        usual = max(sorted(set(many), reverse=True), key=many.count)
        start = _header_place(records, usual)
        below = counts[start:]
        score = sum(count == usual for count in below) / len(below)
        # A decimal comma parts `1,5;2,5` as well, but then numbers stand where column names should.
        score -= 0.5 * _has_number(records[start][1]) + 0.25 * (start > 0)
        skipped = records[start][0]
        if best is None or (score, usual) > best[:2]:
            best = (score, usual, separator, skipped)
    if best is None:
        raise TableTextError("no comma, semicolon, tab or bar parts it into two columns or more")
    return best[2], best[3]


def _sample_records(lines: list[str], separator: str) -> list[tuple[int, list[str]]]:
    """The first records that are not blank, each with the number of lines above it."""
    records = []
    for above, record in _records(iter(lines), separator):
        records.append((above, record))
        if len(records) == SAMPLE_LINES:
            break
    return records


def _records(lines: Iterator[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """Records that are not blank, each with the number of lines above it."""
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    above = 0
    for record in reader:
        if len(record) > 1 or (record and record[0].strip()):
            yield above, record
        above = reader.line_num


def _header_place(records: list[tuple[int, list[str]]], usual: int) -> int:
    """Which record holds the column names: the first, unless titles or remarks stand above."""
    start = next(index for index, (_, record) in enumerate(records) if len(record) == usual)
    if start == 0 or start > 20:
        return 0
    above = records[start - 1][1]
    # One name too few is no title: the first column names the rows, or each line ends with a separator.
    if len(above) == usual - 1 > 1 and _has_number(records[start][1]) and not _has_number(above):
        return start - 1
    return start


def _has_number(record: list[str]) -> bool:
    return any(re.fullmatch(r"[-+]?[\d.,]*\d", field.strip()) for field in record)


# -- the whole file -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scan:
    header: tuple[str, ...]
    sample: list[list[str]]
    index_column: bool
    trailing: bool


def _scan(path: str, encoding: str, separator: str, skipped: int) -> _Scan:
    """Read every record once: lengths, whether the first column counts the rows, and a sample."""
    with open(path, encoding=encoding, newline="") as file:
        for _ in range(skipped):
            file.readline()
        records = _records(iter(file), separator)
        above, names = next(records, (0, []))
        header = [name.strip() for name in names]
        width = len(header)
        sample: list[list[str]] = []
        first_values: set[str] = set()
        first_is_unique = True
        running: int | None = None
        rows = short = trailing = long = 0
        where_short = where_long = (0, 0)
        step = 1
        for above, record in records:
            size = len(record)
            if size == width + 1:
                if record[-1].strip():
                    long += 1
                else:
                    trailing += 1
                where_long = where_long if long + trailing > 1 else (above, size)
            elif size != width:
                short += 1
                where_short = where_short if short > 1 else (above, size)
                if size > width:
                    raise _ragged(skipped + above, size, width)
            first = record[0].strip()
            if first_is_unique:
                first_is_unique = bool(first) and first not in first_values
                first_values.add(first)
            running = _next_number(first, rows, running)
            if rows % step == 0:
                sample.append(record)
                if len(sample) == SAMPLE_ROWS:
                    sample, step = sample[::2], step * 2
            rows += 1
    _check_last_quote(path, encoding, separator, skipped + above)
    if not rows:
        raise TableTextError("there is a line of column names and no row below it", skipped + 1)
    if short:
        raise _ragged(skipped + where_short[0], where_short[1], width)
    row_names = long > 0 and long + trailing == rows
    if long and not row_names:
        raise _ragged(skipped + where_long[0], where_long[1], width)
    unnamed = not header[0] or header[0].lower() == "unnamed: 0"
    counts_rows = running is not None and width > 2
    return _Scan(
        header=("", *header) if row_names else tuple(header),
        sample=sample,
        index_column=first_is_unique and (row_names or unnamed or counts_rows),
        trailing=trailing > 0 and not row_names,
    )


def _check_last_quote(path: str, encoding: str, separator: str, above: int) -> None:
    """Check that the last record, which begins below so many lines, ends where its last quote does."""
    with open(path, encoding=encoding, newline="") as file:
        rest = (line for number, line in enumerate(file) if number >= above)
        try:
            for _ in csv.reader(rest, delimiter=separator, skipinitialspace=True, strict=True):
                pass
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise TableTextError("a quote is opened and never closed", above + 1) from error


def _ragged(above: int, size: int, width: int) -> TableTextError:
    return TableTextError(f"{size} fields, where the line of column names has {width}", above + 1)


def _next_number(text: str, row: int, running: int | None) -> int | None:
    """The number that the first column has counted to, or None if it does not count from 0 or 1 on."""
    if row == 0:
        return int(text) if text in ("0", "1") else None
    return running + 1 if running is not None and text == str(running + 1) else None


# -- numbers ------------------------------------------------------------------------------------------------


def find_number_marks(rows: list[list[str]], separator: str) -> tuple[str, str | None]:
    """The decimal mark and the thousands mark that make most columns numbers, and harm none."""
    columns = _number_columns(rows)
    best: tuple[str, str | None] = CONVENTIONS[0]
    best_count = -1
    for decimal, thousands in CONVENTIONS:
        pattern = _number_pattern(decimal, thousands)
        numbers = 0
        for values in columns:
            matches = sum(pattern.fullmatch(value) is not None for value in values)
            if matches >= 0.98 * len(values):
                numbers += 1
            elif thousands is not None and _mangled(values, decimal, thousands):
                numbers = -1
                break
        if numbers > best_count:
            best, best_count = (decimal, thousands), numbers
        if numbers == len(columns):
            break
    if best == (",", None) and separator != ";" and _only_groups(columns):
        return ".", ","
    if best == (",", None) and separator == ";" and _groups_beside_small_numbers(columns):
        return ".", ","
    return best


def _number_columns(rows: list[list[str]]) -> list[list[str]]:
    """By column, the values of a sample, where they have digits."""
    width = min((len(row) for row in rows), default=0)
    step = 1 + len(rows) * width // SAMPLE_CELLS
    columns = []
    for place in range(width):
        values = [value for row in rows[::step] if (value := row[place].strip()).lower() not in NO_VALUE]
        if any(character.isdigit() for value in values[:20] for character in value):
            columns.append(values)
    return columns


def _number_pattern(decimal: str, thousands: str | None) -> re.Pattern[str]:
    point = re.escape(decimal)
    whole = r"\d+"
    if thousands is not None:
        whole = rf"(?:[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|\d+)"
    return re.compile(rf"[-+]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?")


def _mangled(values: list[str], decimal: str, thousands: str) -> bool:
    """Whether pandas would read texts such as `01.02.2020` as numbers, by dropping the mark."""
    pattern = re.compile(r"[-+]?\d+(?:\.\d*)?")
    harmed = 0
    for value in values:
        if thousands in value and pattern.fullmatch(value.replace(thousands, "").replace(decimal, ".")):
            harmed += 1
    return harmed > 0.02 * len(values)


GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")


def _only_groups(columns: list[list[str]]) -> bool:
    """Whether every comma in the numbers stands before exactly three digits."""
    with_comma = [value for values in columns for value in values if re.fullmatch(r"[-+]?[\d,]+", value)]
    with_comma = [value for value in with_comma if "," in value]
    return bool(with_comma) and all(GROUPED.fullmatch(value) for value in with_comma)


def _groups_beside_small_numbers(columns: list[list[str]]) -> bool:
    """Whether `950` stands in one column with `1,250`, and no other comma is a decimal mark."""
    if not _only_groups(columns):
        return False
    for values in columns:
        commas = sum("," in value for value in values)
        if commas and any(re.fullmatch(r"[-+]?\d{2,3}", value) for value in values):
            return True
    return False
