"""Output contracts in workflow files: a JSON Schema, or the dotted path of a class."""

from __future__ import annotations

import importlib
from typing import Any

from detent.kernel.errors import ConfigurationError


def declared(contract: Any, owner: str) -> Any:
    """Return the class or JSON Schema of an output; None if none is declared.

    Raises:
        ConfigurationError: there is no class at the dotted path.
    """
    if not isinstance(contract, str):
        return contract
    module_name, separator, name = contract.partition(":") if ":" in contract else contract.rpartition(".")
    if not separator:
        raise ConfigurationError(
            f"output_schema of {owner}: '{contract}' is not a dotted path such as "
            f"'shop.reports.ImportReport'."
        )
    try:
        target: Any = importlib.import_module(module_name)
        for part in name.split("."):
            target = getattr(target, part)
    except Exception as error:
        raise ConfigurationError(
            f"output_schema of {owner}: '{contract}' cannot be found ({type(error).__name__}: {error})."
        ) from error
    return target
