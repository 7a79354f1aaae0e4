"""How the cells of an iteration ran: errors, warnings, and what a retry is told about them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from detent.adapters.jupyter.cell_result import CellResult

LAST_LINES = 20
"""Lines of a traceback that a retry is shown."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class ExecutionQuality:
    """Errors and warnings of the executed cells."""

    code_execution: Literal["success", "failed", "partial"]
    """Partial if some cells ran and one did not."""
    errors: tuple[str, ...] = ()
    """One line for each cell that did not end well."""
    warnings: tuple[str, ...] = ()
    """Lines of the standard error that hold `Warning:`."""
    traceback: tuple[str, ...] = ()
    """The last lines of the last error's traceback."""

    @property
    def errors_found(self) -> str:
        """The errors, with their number."""
        return _counted(self.errors)

    @property
    def warnings_found(self) -> str:
        """The warnings, with their number."""
        return _counted(self.warnings)


def measure_execution(results: Sequence[CellResult]) -> ExecutionQuality:
    """How the cells of an iteration ran."""
    failed = [result for result in results if result.status != "ok"]
    warnings = tuple(
        line.strip()
        for result in results
        for output in result.outputs
        if output.output_type == "stream" and output.name == "stderr"
        for line in output.text.splitlines()
        if "Warning:" in line
    )
    if not failed:
        return ExecutionQuality("success", warnings=warnings)
    return ExecutionQuality(
        "failed" if len(failed) == len(results) else "partial",
        tuple(result.error or result.status for result in failed),
        warnings,
        _traceback(failed[-1]),
    )


def _traceback(result: CellResult) -> tuple[str, ...]:
    lines = [
        line
        for output in result.outputs
        if output.output_type == "error"
        for part in output.traceback
        for line in _COLOUR.sub("", part).splitlines()
    ]
    return tuple(lines[-LAST_LINES:])


def output_texts(result: CellResult) -> tuple[str, ...]:
    """The text of every output of a cell in order; of an error its summary."""
    texts = []
    for output in result.outputs:
        if output.output_type == "error":
            texts.append(f"{output.ename}: {output.evalue}")
        elif output.text:
            texts.append(output.text)
    if result.status in ("timeout", "died", "interrupted") and result.error and result.error not in texts:
        texts.append(result.error)
    return tuple(texts)


def _counted(lines: Sequence[str]) -> str:
    return f"{len(lines)}: {'; '.join(dict.fromkeys(lines))}" if lines else ""
