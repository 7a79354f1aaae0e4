"""The fingerprint of a value by its content, and what tells equal values apart from nearly equal ones.

Nothing is pickled and nothing is called that a class of the notebook defines: a value of another type than
those below has no fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detent.adapters.jupyter.kernel_process.plain_value import NotPlain, plain

DEEPEST = 50
MOST_ITEMS = 1_000_000
"""Python objects that are looked at one by one; columns of numbers and texts count as one."""
MOST_VALUES = 256
"""Floats that are kept as they are; of more there are weighted sums."""
GROUPS = 32
"""Sums of at most so many groups of floats: a frame's columns are summed each for itself up to here."""
WEIGHTS = (0.6180339887498949, 0.4142135623730951)

_LEAVES = {
    "builtins": {"complex", "range", "bytes", "bytearray"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "pathlib": {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"},
    "uuid": {"UUID"},
    "numpy": {"datetime64", "timedelta64", "complex64", "complex128", "bytes_"},
    "pandas": {"Timestamp", "Timedelta", "Period", "Interval", "NaTType", "NAType"},
}
"""Types whose text is their value, by the first part of their module's name."""


class NoFingerprint(Exception):
    """A value whose content cannot be told from its type alone."""


@dataclass(frozen=True)
class Fingerprint:
    """A value by its content."""

    sha256: str
    comparison: Mapping[str, Any]
    """`structure`, a digest of all but the finite floats; and these: `values` in order, or where there are
    many of them `sums` by group: count, sum of absolute values, two weighted sums."""


def fingerprint(value: Any) -> Fingerprint | None:
    """The fingerprint of a value, None if it has none."""
    writer = _Writer()
    try:
        writer.value(value, 0)
        exact = _json_digest(value) or writer.exact.hexdigest()
        return Fingerprint(exact, {"structure": writer.structure.hexdigest(), **writer.floats()})
    except (NoFingerprint, RecursionError):
        return None


def _json_digest(value: Any) -> str | None:
    """SHA-256 of the canonical JSON of a plain value."""
    try:
        text = json.dumps(
            plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except (NotPlain, ValueError, RecursionError):
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Writer:
    """Feeds a value to two digests, one without the finite floats, which it collects."""

    def __init__(self) -> None:
        self.exact = hashlib.sha256()
        self.structure = hashlib.sha256()
        self._chunks: list[Sequence[float]] = []
        """Finite floats in order: lists of single ones, arrays of columns."""
        self._singles: list[float] = []
        self._items = 0

    # --- what is found ---

    def value(self, value: Any, depth: int) -> None:
        self._items += 1
        if depth > DEEPEST or self._items > MOST_ITEMS:
            raise NoFingerprint
        kind = type(value)
        if value is None or kind is bool or kind is int:
            self._both("scalar", repr(value) if value is None or kind is bool else hex(value))
        elif kind is str:
            self._both("text", value)
        elif kind is float:
            self._float(value)
        elif issubclass(kind, dict):
            self._mapping(value, depth)
        elif issubclass(kind, list | tuple):
            base: Any = list if issubclass(kind, list) else tuple
            self._both("list", str(base.__len__(value)))
            for item in base.__iter__(value):
                self.value(item, depth + 1)
        elif issubclass(kind, set | frozenset):
            self._both("set", "\n".join(sorted(_digest_of(item, depth + 1) for item in _members(value))))
        elif not (self._numpy(value, depth) or self._pandas(value, depth) or self._scipy(value, depth)):
            self._leaf(value)

    def _mapping(self, value: Any, depth: int) -> None:
        items = list(dict.items(value))
        if all(type(key) is str for key, _ in items):
            items.sort(key=lambda item: item[0])
        self._both("dict", str(len(items)))
        for key, item in items:
            self.value(key, depth + 1)
            self.value(item, depth + 1)

    def _leaf(self, value: Any) -> None:
        kind = type(value)
        if kind.__name__ not in _LEAVES.get(kind.__module__.partition(".")[0], ()):
            raise NoFingerprint
        self._both(kind.__name__, str(value))

    def _numpy(self, value: Any, depth: int) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return False
        kind = type(value)
        if issubclass(kind, numpy.bool_ | numpy.integer | numpy.floating | numpy.str_):
            python = value.item()
            if type(python) is kind:  # a long double
                self._both("scalar", str(value))
            else:
                self.value(python, depth)
            return True
        if not issubclass(kind, numpy.ndarray):
            return False
        if issubclass(kind, numpy.ma.MaskedArray):
            self._array(numpy.ma.getmaskarray(value), depth)
            value = numpy.ma.filled(value, 0)
        self._array(numpy.asarray(value), depth)
        return True

    def _array(self, array: Any, depth: int) -> None:
        import numpy

        self._both("array", f"{array.shape}{array.dtype.str}")
        letter = array.dtype.kind
        if array.dtype.fields:
            for name in array.dtype.names:
                self._array(array[name], depth)
        elif letter == "O":
            self._objects(array.ravel().tolist(), depth)
        elif letter == "c":
            self._array(numpy.stack([array.real, array.imag]), depth)
        elif letter == "f":
            self._float_array(array)
        elif letter in "biuMmUST":
            plain_array = array.astype(object) if letter == "T" else array
            if letter == "T":
                self._objects(plain_array.ravel().tolist(), depth)
            else:
                self._bytes(numpy.ascontiguousarray(array).tobytes())
        else:
            raise NoFingerprint

    def _float_array(self, array: Any) -> None:
        import numpy

        numbers = numpy.ascontiguousarray(array).ravel()
        finite = numpy.isfinite(numbers)
        if finite.all():
            self._both("finite", "all")
        else:
            self._bytes(numpy.packbits(finite).tobytes())
            strange = numbers[~finite]
            # 0 not a number, 1 and -1 the infinities: the bits of NaN differ, its meaning does not.
            self._bytes(numpy.where(numpy.isnan(strange), 0, numpy.sign(strange)).astype("i1").tobytes())
            numbers = numbers[finite]
        self.exact.update(numbers.tobytes())
        self._take(numbers.astype("f8"))

    def _objects(self, items: list[Any], depth: int) -> None:
        try:
            joined = "\x1f".join(items)  # all texts: the usual column
        except TypeError:
            for item in items:
                self.value(item, depth + 1)
        else:
            self._both("lengths", ",".join(map(str, map(len, items))))
            self._both("texts", joined)

    def _pandas(self, value: Any, depth: int) -> bool:
        pandas = sys.modules.get("pandas")
        if pandas is None or not hasattr(pandas, "DataFrame"):
            return False
        kind = type(value)
        if issubclass(kind, pandas.DataFrame):
            self._both("frame", f"{value.shape}")
            self._index(value.columns, depth)
            self._index(value.index, depth)
            for position in range(value.shape[1]):  # by position: names may be doubled
                self._column(value.iloc[:, position].array, depth)
        elif issubclass(kind, pandas.Series):
            self._both("series", f"{len(value)}")
            self.value(value.name, depth + 1)
            self._index(value.index, depth)
            self._column(value.array, depth)
        elif issubclass(kind, pandas.Index):
            self._index(value, depth)
        elif issubclass(kind, pandas.api.extensions.ExtensionArray):
            self._column(value, depth)
        else:
            return False
        return True

    def _index(self, index: Any, depth: int) -> None:
        import pandas

        self._both("index", str(index.nlevels))
        for name in index.names:
            self.value(name, depth + 1)
        if isinstance(index, pandas.MultiIndex):
            for level in range(index.nlevels):
                self._column(index.get_level_values(level).array, depth)
        else:
            self._column(index.array, depth)

    def _column(self, array: Any, depth: int) -> None:
        import numpy
        import pandas

        dtype = array.dtype
        self._both("dtype", str(dtype))
        if isinstance(dtype, numpy.dtype):
            self._array(numpy.asarray(array), depth)
        elif isinstance(array, pandas.Categorical):
            self._both("ordered", str(array.ordered))
            self._column(array.categories.array, depth)
            self._array(numpy.asarray(array.codes), depth)
        elif hasattr(array, "asi8"):  # dates with a zone, periods
            self._array(array.asi8, depth)
        else:
            missing = numpy.asarray(array.isna())
            self._array(missing, depth)
            if pandas.api.types.is_float_dtype(dtype):
                self._array(array.to_numpy(dtype="f8", na_value=0.0), depth)
            else:
                objects = numpy.asarray(array, dtype=object)
                objects = numpy.where(missing, "", objects) if missing.any() else objects
                self._objects(objects.tolist(), depth)

    def _scipy(self, value: Any, depth: int) -> bool:
        sparse = sys.modules.get("scipy.sparse")
        if sparse is None or not sparse.issparse(value):
            return False
        matrix = value.tocsr().copy()
        matrix.sum_duplicates()
        self._both("sparse", f"{matrix.shape}")
        for part in (matrix.indptr, matrix.indices, matrix.data):
            self._array(part, depth)
        return True

    # --- where it goes ---

    def _both(self, tag: str, text: str) -> None:
        self._bytes(tag.encode() + b":" + text.encode("utf-8", "surrogatepass"))

    def _bytes(self, data: bytes) -> None:
        for digest in (self.exact, self.structure):
            digest.update(struct.pack(">Q", len(data)))  # no two sequences of parts look alike
            digest.update(data)

    def _float(self, number: float) -> None:
        if math.isfinite(number):
            self._both("float", "")
            self.exact.update(struct.pack(">d", number))
            self._singles.append(number)
        else:
            self._both("float", str(number))

    def _take(self, numbers: Any) -> None:
        self._flush()
        if len(numbers):
            self._chunks.append(numbers)

    def _flush(self) -> None:
        if self._singles:
            self._chunks.append(self._singles)
            self._singles = []

    def floats(self) -> dict[str, Any]:
        """The finite floats, or sums of them."""
        self._flush()
        if sum(map(len, self._chunks)) <= MOST_VALUES:
            return {"values": [float(number) for chunk in self._chunks for number in chunk]}
        groups: list[list[float]] = [[0.0] * 4 for _ in range(min(GROUPS, len(self._chunks)))]
        for position, chunk in enumerate(self._chunks):
            group = groups[position % GROUPS]
            for place, part in enumerate(_sums(chunk)):
                group[place] += part
        # Sums of numbers near the largest there are may be infinite, which JSON cannot hold.
        return {"sums": [[part if math.isfinite(part) else None for part in group] for group in groups]}


def _sums(chunk: Sequence[float]) -> tuple[float, float, float, float]:
    """Count, sum of absolute values, and two sums with weights that depend on the place."""
    if isinstance(chunk, list):
        places = range(1, len(chunk) + 1)
        first, second = (
            math.fsum(
                number * (place * weight % 1.0 + 0.5) for place, number in zip(places, chunk, strict=True)
            )
            if all(abs(number) < 1e290 for number in chunk)
            else math.inf
            for weight in WEIGHTS
        )
        return float(len(chunk)), sum(map(abs, chunk)), first, second
    import numpy

    with numpy.errstate(all="ignore"):
        numbers = numpy.asarray(chunk)
        place_of = numpy.arange(1, len(numbers) + 1, dtype="f8")
        weighted = [float((numbers * (place_of * weight % 1.0 + 0.5)).sum()) for weight in WEIGHTS]
        return float(len(numbers)), float(numpy.abs(numbers).sum()), weighted[0], weighted[1]


def _members(value: Any) -> Iterable[Any]:
    return set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)


def _digest_of(value: Any, depth: int) -> str:
    writer = _Writer()
    writer.value(value, depth)
    return writer.exact.hexdigest()
