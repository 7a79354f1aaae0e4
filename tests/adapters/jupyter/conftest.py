"""A real kernel for the tests of a module."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from detent.adapters.jupyter.cell_result import CellResult
from detent.adapters.jupyter.kernel import JupyterKernel, KernelLimits

MEMORY = 3 << 30
GRACE = 2.0


class Notebook:
    """A kernel and its folders."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        limits = KernelLimits(memory=MEMORY, grace=GRACE, inspect=2.0)
        self.kernel = JupyterKernel(folder / "run", limits=limits)

    async def run(self, code: str, timeout: float = 60.0) -> CellResult:
        """Run a cell."""
        return await self.kernel.execute(code, cell_id="abcd1234", timeout=timeout)

    async def text(self, code: str) -> str:
        """What a cell prints or shows."""
        result = await self.run(code)
        assert result.status == "ok", result
        return "".join(output.text for output in result.outputs)

    async def living(self) -> Notebook:
        """The same, with a new kernel where a test has ended the last one."""
        if not self.kernel.is_alive():
            await self.kernel.restart()
        return self


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notebook]:
    """The notebook of a module's tests: each uses names of its own."""
    notebook = Notebook(tmp_path_factory.mktemp("notebook"))
    environment = {**os.environ, "DETENT_TEST_API_KEY": "sk-secret", "OMP_NUM_THREADS": "1", "LC_TIME": "C"}
    await notebook.kernel.start(cwd=notebook.work, env=environment)
    yield notebook
    await notebook.kernel.shutdown()


@pytest_asyncio.fixture(loop_scope="module")
async def notebook(shared: Notebook) -> Notebook:
    """The shared notebook, alive."""
    return await shared.living()
