"""Whether a plain function can only compute: then it cannot wait for anything, whatever it is given.

Read from its code: it may refer to plain values, to functions that compute, to Detent's own values and to a
few modules of the standard library, and to nothing else. A function that refers to a client, a lock, a file,
or to something nobody knows may wait.
"""

from __future__ import annotations

import builtins
import dis
import enum
import inspect
import types
from collections.abc import Callable
from typing import Any

MODULES = frozenset(
    {
        "cmath", "datetime", "decimal", "fractions", "itertools", "math", "operator", "random", "statistics",
        "string", "time", "uuid",
    }
)  # fmt: skip
WAITS = frozenset(
    {
        "acquire", "communicate", "connect", "join", "open", "poll", "put", "read", "recv", "result",
        "select", "send", "sleep", "wait", "write",
    }
)  # fmt: skip
"""Names of attributes that may wait, whatever they belong to."""
ACTS = frozenset(
    {
        "__import__", "breakpoint", "compile", "eval", "exec", "exit", "help", "input", "open", "print",
        "quit",
    }
)  # fmt: skip
"""Built-in functions that do more than compute."""
PLAIN = (str, bytes, int, float, complex, bool, type(None), enum.Enum, range, slice)
DEEPEST = 8
MOST_ITEMS = 1000


def only_computes(function: Callable[..., Any]) -> bool:
    """Whether a plain function certainly waits for nothing."""
    return isinstance(function, types.FunctionType) and _computes(function, set(), 0)


def _computes(function: types.FunctionType, seen: set[types.CodeType], depth: int) -> bool:
    code = function.__code__
    if code in seen:
        return True
    if depth > DEEPEST or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return False
    seen.add(code)
    names, fine = _names(code)
    if not fine:
        return False
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # not there yet
        return False
    missing = object()
    globals_used = [
        function.__globals__.get(name, getattr(builtins, name, missing)) for name in sorted(names)
    ]
    values = [
        *cells,
        *globals_used,
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
    ]
    return all(_harmless(value, seen, depth) for value in values)


def _names(code: types.CodeType) -> tuple[set[str], bool]:
    """Global names a code refers to, those of functions inside it too; False where it may wait by itself."""
    names: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("IMPORT_NAME", "STORE_GLOBAL", "BEFORE_WITH", "SETUP_WITH"):
            return names, False
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(str(instruction.argval))
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and str(instruction.argval) in WAITS:
            return names, False
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more, fine = _names(inner)
            if not fine:
                return names, False
            names |= more
    return names, True


def _harmless(value: Any, seen: set[types.CodeType], depth: int) -> bool:
    if isinstance(value, PLAIN):
        return True
    if isinstance(value, types.ModuleType):
        return value.__name__ in MODULES
    if isinstance(value, types.FunctionType):
        return _computes(value, seen, depth + 1)
    if isinstance(value, types.BuiltinFunctionType):
        return value.__module__ in MODULES or (value.__module__ == "builtins" and value.__name__ not in ACTS)
    if isinstance(value, type):
        ours = value.__module__.partition(".")[0] in ("builtins", "detent", "enum", "decimal", "datetime")
        return ours or issubclass(value, (enum.Enum, BaseException))
    if type(value) in (list, tuple, set, frozenset, dict):
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
        return (
            len(items) <= 1000 and depth < DEEPEST and all(_harmless(item, seen, depth + 1) for item in items)
        )
    return False
