"""The kernel of a notebook as the flow uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from detent.adapters.jupyter.cell_result import CellResult, EvalResult, KernelInfo, VariableInfo


class NotebookKernel(Protocol):
    """Executes cells and answers questions about what they have left in memory."""

    @property
    def connection(self) -> Path | None:
        """The file by which another process attaches to the running kernel."""

    async def start(self, *, cwd: Path, env: Mapping[str, str]) -> KernelInfo:
        """Start a kernel in a work folder, with the variables of `env` that are no secrets."""
        ...

    async def attach(self, connection: Path) -> KernelInfo | None:
        """Take over a running kernel; None unless it lives, is idle and no other engine holds it."""
        ...

    async def execute(self, code: str, *, cell_id: str, timeout: float) -> CellResult:
        """Run a cell to its end. After a result with which `is_alive` is False only `restart` helps."""
        ...

    async def evaluate(self, expressions: Mapping[str, str], *, timeout: float) -> Mapping[str, EvalResult]:
        """The values of expressions, each within `timeout` seconds, leaving no trace in the notebook."""
        ...

    async def inspect(self, names: Sequence[str]) -> Mapping[str, VariableInfo]:
        """What is known of variables; nothing is printed or pickled."""
        ...

    async def names(self) -> Mapping[str, str]:
        """The names that cells have defined, each with the type of its value."""
        ...

    async def interrupt(self) -> None:
        """Interrupt the cell that is running; its result then says so."""
        ...

    async def restart(self) -> None:
        """End the kernel and start another one in the same folder."""
        ...

    async def shutdown(self) -> None:
        """End the kernel and remove what it leaves."""
        ...

    def is_alive(self) -> bool:
        """Whether the kernel's process runs."""
        ...
