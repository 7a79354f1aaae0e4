"""Output contracts as workflow files say them: a JSON Schema, or the dotted path of a class."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from detent.kernel.errors import ConfigurationError


def declared(said: Any, where: str) -> Any:
    """The class or JSON Schema of an output; None where none is declared."""
    if said is None or isinstance(said, Mapping) or not isinstance(said, str):
        return said
    module_name, separator, name = said.partition(":") if ":" in said else said.rpartition(".")
    if not separator:
        raise ConfigurationError(
            f"output_schema of {where}: '{said}' is no dotted path such as 'shop.reports.ImportReport'."
        )
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigurationError(
            f"output_schema of {where}: '{said}' cannot be found ({type(error).__name__}: {error})."
        ) from error
    return found
