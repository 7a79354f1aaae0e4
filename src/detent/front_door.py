"""How a module shows names that are loaded from elsewhere when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def opened(module: str, name: str, where: Mapping[str, str]) -> Any:
    """The value of a name that `module` shows; `where` says which module holds it."""
    try:
        holder = where[name]
    except KeyError:
        raise AttributeError(f"{module} has no '{name}'. It has: {', '.join(where)}.") from None
    value = getattr(import_module(holder), name)
    setattr(sys.modules[module], name, value)
    return value
