"""The notebook as a file of nbformat 4.5."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from detent.flows.notebook.exports.cell import NotebookCell, NotebookFacts
from detent.kernel.errors import IntegrationMissing, InvalidValue
from detent.kernel.plain import writable

BANNER_ID = "banner00"


def notebook_file(cells: Sequence[NotebookCell], facts: NotebookFacts) -> bytes:
    """The text of a `.ipynb` file, equal for equal input.

    Raises:
        IntegrationMissing: nbformat is not installed.
        InvalidValue: two cells have the same id.
        nbformat.ValidationError: a cell's id or output is not what the format allows.
    """
    try:
        import nbformat
    except ImportError as error:
        raise IntegrationMissing("A notebook file needs nbformat: pip install 'detent[notebook]'.") from error
    library: Any = nbformat
    document = library.from_dict(notebook_document(cells, facts))
    library.validate(document)
    return f"{library.writes(document, version=library.NO_CONVERT).rstrip()}\n".encode()


def notebook_document(cells: Sequence[NotebookCell], facts: NotebookFacts) -> dict[str, Any]:
    """The notebook as plain values.

    Raises:
        InvalidValue: two cells have the same id.
    """
    banner = [_banner(facts.banner)] if facts.banner else []
    written = [*banner, *(_cell(cell) for cell in cells)]
    doubled = sorted(name for name, count in Counter(cell["id"] for cell in written).items() if count > 1)
    if doubled:
        raise InvalidValue(
            f"Cells of a notebook have ids of their own, and these stand there twice: {doubled}."
        )
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "detent": {
                "run_id": facts.run_id,
                "flow_version": facts.flow_version,
                "problem": writable(facts.problem),
                "verified": facts.verified,
                "metrics": finite(facts.metrics),
            },
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {
                "file_extension": ".py",
                "mimetype": "text/x-python",
                "name": "python",
                "version": facts.python,
            },
            "title": writable(facts.title),
        },
        "cells": written,
    }


def _banner(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": BANNER_ID, "metadata": {}, "source": writable(text)}


def _cell(cell: NotebookCell) -> dict[str, Any]:
    written = {
        "cell_type": cell.cell_type,
        "id": cell.cell_id,
        "metadata": finite(cell.metadata),
        "source": writable(cell.source),
    }
    if cell.cell_type == "code":
        written["execution_count"] = cell.execution_count
        written["outputs"] = [finite(output) for output in cell.outputs]
    return written


def finite(value: Any) -> Any:
    """A plain copy of a value in which numbers that JSON cannot hold are null."""
    if isinstance(value, Mapping):
        return {writable(str(key)): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return writable(value) if isinstance(value, str) else value
