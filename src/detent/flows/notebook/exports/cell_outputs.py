"""Outputs of the kernel in the form of nbformat 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from detent.adapters.jupyter.cell_result import Output
from detent.kernel.plain import writable


def notebook_outputs(outputs: Iterable[Output]) -> tuple[Mapping[str, Any], ...]:
    """The outputs of a cell as a notebook file holds them."""
    return tuple(notebook_output(output) for output in outputs)


def notebook_output(output: Output) -> dict[str, Any]:
    """One output as a notebook file holds it."""
    match output.output_type:
        case "stream":
            return {"output_type": "stream", "name": output.name or "stdout", "text": writable(output.text)}
        case "error":
            return {
                "output_type": "error",
                "ename": output.ename or "",
                "evalue": output.evalue or "",
                "traceback": list(output.traceback),
            }
    shown: dict[str, Any] = {
        "output_type": output.output_type,
        "data": dict(output.data) or {"text/plain": output.text},
        "metadata": dict(output.metadata),
    }
    if output.output_type == "execute_result":
        shown["execution_count"] = output.execution_count
    return shown
