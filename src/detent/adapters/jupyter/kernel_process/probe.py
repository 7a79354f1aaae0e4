"""What the engine asks the kernel: the values of expressions and what is known of variables.

Nothing is printed, and the namespace of the notebook is only read.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import reprlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from detent.adapters.jupyter.kernel_process.fingerprint import fingerprint
from detent.adapters.jupyter.kernel_process.output_limit import MIB, shortened, writable
from detent.adapters.jupyter.kernel_process.plain_value import numpy_scalar, plain_text

LONGEST_REPR = 500
LONGEST_JSON = 2000
"""Characters of JSON text up to which a variable's value is told as it is."""
LONGEST_VALUE = MIB
"""Characters of an expression's JSON or text that are told."""

KNOWN = {
    "os": ("os", None),
    "math": ("math", None),
    "json": ("json", None),
    "Path": ("pathlib", "Path"),
    "np": ("numpy", None),
    "pd": ("pandas", None),
    "joblib": ("joblib", None),
}
"""Names that expressions may use though no cell imports them: module and attribute."""


class Probe:
    """Reads the namespace of a notebook."""

    def __init__(self, namespace: dict[str, Any], hidden: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._hidden = hidden
        """What the shell itself has put there."""

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question of the engine."""
        match question.get("ask"):
            case "evaluate":
                return self.evaluate(str(question["expression"]))
            case "inspect":
                return self.inspect(str(question["name"]))
            case "names":
                return {"names": self.names()}
            case _:
                return {"pid": os.getpid(), "versions": library_versions()}

    def evaluate(self, expression: str) -> dict[str, Any]:
        """The value of an expression, or the error it raised."""
        try:
            tree = ast.parse(expression.strip(), "<expression>", "eval")
            scope = {**self._known_names(tree), **self._namespace}
            value = eval(compile(tree, "<expression>", "eval"), scope)
            python = numpy_scalar(value)
            text = plain_text(value, LONGEST_VALUE)
            return {
                "value_repr": _repr(value),
                "truth": python is True,
                "json": None if text is None else json.loads(text),
                "text": writable(str.__str__(value))[:LONGEST_VALUE]
                if issubclass(type(value), str)
                else None,
            }
        except BaseException as error:  # a KeyboardInterrupt is the engine's time limit
            return {"error": error_line(error)}

    def _known_names(self, tree: ast.AST) -> dict[str, Any]:
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        known: dict[str, Any] = {}
        for name in named & KNOWN.keys() - self._namespace.keys():
            module, attribute = KNOWN[name]
            found = importlib.import_module(module)
            known[name] = getattr(found, attribute) if attribute else found
        return known

    def inspect(self, name: str) -> dict[str, Any]:
        """What is known of a variable; what cannot be read of it is left out."""
        if not self._defined(name):
            return {"exists": False}
        value = self._namespace[name]
        facts: dict[str, Any] = {"exists": True, "is_none": value is None, "type": _type_name(value)}
        readers = {"shape": _shape, "size": _size, "repr": _repr, "json": _json, "content": _content}
        for fact, read in readers.items():
            try:
                facts[fact] = read(value)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):  # the engine's time limit
                    break
        return facts

    def names(self) -> dict[str, str]:
        """The names that cells have defined, each with the type of its value."""
        return {
            name: _type_name(value)
            for name, value in list(self._namespace.items())
            if isinstance(name, str) and not name.startswith("_") and self._defined(name)
        }

    def _defined(self, name: str) -> bool:
        """Whether cells have defined a name: what the shell put there itself does not count."""
        if name not in self._namespace:
            return False
        return name not in self._hidden or self._hidden[name] is not self._namespace[name]


def error_line(error: BaseException) -> str:
    """An error in one line."""
    try:
        message = writable(str(error)).strip()
    except BaseException:
        message = ""
    first = message.splitlines()[0] if message else ""
    return shortened(f"{type(error).__name__}: {first}" if first else type(error).__name__, 500)


def _type_name(value: Any) -> str:
    try:
        return shortened(str(type(value).__name__), 100)
    except BaseException:  # a metaclass may raise anything
        return "object"


def _library(value: Any) -> str:
    module = type(value).__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def _shape(value: Any) -> list[int] | None:
    if isinstance(value, type | ModuleType):
        return None
    shape = getattr(value, "shape", None)
    if type(shape) is tuple and all(type(side) is int for side in shape):
        return list(shape)
    return None


_CONTAINERS: tuple[type, ...] = (str, bytes, bytearray, list, tuple, dict, set, frozenset)


def _size(value: Any) -> int | None:
    """Length or rows; 0 of an empty table, whatever a subclass of a container says of itself."""
    shape = _shape(value)
    if shape:
        return 0 if 0 in shape else shape[0]
    if shape == []:
        return 1
    for kind in _CONTAINERS:
        if issubclass(type(value), kind):
            return int(kind.__len__(value))  # type: ignore[attr-defined]
    if isinstance(value, type | ModuleType):
        return None
    length = len(value)
    return length if type(length) is int else None


class _Bounded(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = 20
        self.maxstring = self.maxlong = self.maxother = LONGEST_REPR


def _repr(value: Any) -> str:
    """The form a value shows of itself, cut; of a long container only the first items are asked."""
    try:
        short = plain_text(value, LONGEST_REPR) is not None
        library = _library(value)
        text = repr(value) if short or library in ("numpy", "pandas") else _Bounded().repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        text = f"<{_type_name(value)} whose repr raises {type(error).__name__}>"
    return shortened(writable(text), LONGEST_REPR)


def _json(value: Any) -> Any:
    text = plain_text(value, LONGEST_JSON)
    return None if text is None else json.loads(text)


def _content(value: Any) -> dict[str, Any] | None:
    found = fingerprint(value)
    return None if found is None else {"sha256": found.sha256, "comparison": found.comparison}


def library_versions() -> dict[str, str]:
    """Versions of the packages a notebook of this kind works with, as far as they are installed."""
    from importlib import metadata

    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


PACKAGES = (
    "ipykernel", "joblib", "lightgbm", "matplotlib", "numpy", "pandas", "pyarrow", "scikit-learn", "scipy",
    "seaborn", "statsmodels", "xgboost",
)  # fmt: skip
