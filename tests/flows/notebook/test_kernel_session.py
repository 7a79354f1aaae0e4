"""The kernel of a run: at the right place before each round, whatever it held before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from detent.flows.notebook.cells import cell_id
from detent.flows.notebook.flow import jupyter_kernel
from detent.flows.notebook.kernel.rounds import RoundSpec
from detent.flows.notebook.kernel.session import CodeCell, KernelOptions, KernelSession
from detent.flows.notebook.settings import NotebookSettings


@asynccontextmanager
async def session_in(work: Path, known: dict[str, list[str]] | None = None) -> AsyncIterator[KernelSession]:
    """A session on a kernel of its own, which knows the code of earlier attempts."""
    work.mkdir(exist_ok=True)
    kernel = jupyter_kernel(NotebookSettings())(work, 1)
    session = KernelSession(kernel, work, KernelOptions())
    for attempt, codes in (known or {}).items():
        session.learn(
            attempt, [CodeCell(cell_id(attempt, 1, at, code), code) for at, code in enumerate(codes)]
        )
    await session.begin()
    try:
        yield session
    finally:
        await kernel.shutdown()


def round_of(
    *codes: str, iteration: int = 1, number: int = 1, base: tuple[str, ...] = (), **more
) -> RoundSpec:
    """A round of code cells of the behavior `b`."""
    cells = [{"kind": "add_code", "text": code} for code in codes]
    return RoundSpec(cells, "b", iteration, number, base, **more)


async def test_a_session_comes_to_the_accepted_cells_and_to_nothing_else(tmp_path):
    """N-95, N-108: one kernel through a round, a retry, an accepted attempt, and another process."""
    async with session_in(tmp_path / "work") as session:
        first = await session.run(
            round_of("n = 1\nopen('a.txt', 'w').write('x')", names=("n", "./a.txt"), criteria=("n == 1",))
        )
        assert first["measured"]["variables"]["n"]["json"] == 1
        assert first["measured"]["files"]["./a.txt"]["written"] is True
        assert first["measured"]["criteria"]["n == 1"]["passed"] is True

        again = await session.run(round_of("n = n + 1\nprint(n)", number=2, names=("n",)))
        assert again["cells"][0]["texts"] == ["2\n"]

        retry = await session.run(round_of("print('n' in globals())", iteration=2, names=("n", "./a.txt")))
        assert retry["cells"][0]["texts"] == ["False\n"]
        assert retry["measured"]["variables"]["n"]["exists"] is False
        assert retry["measured"]["files"]["./a.txt"]["exists"] is False

        kept = await session.run(round_of("n = 10\n1 / 0", "n = 11", iteration=3))
        assert kept["raised"] is True
        assert [cell["status"] for cell in kept["cells"]] == ["error"]  # nothing behind a cell that raised
        assert kept["cells"][0]["traceback"][-1] == "ZeroDivisionError: division by zero"

        based = await session.run(RoundSpec(
            [{"kind": "add_code", "text": "print(n)"}], "c", 1, 1, ("b#1",), ("n",)
        ))  # fmt: skip
        assert based["cells"][0]["texts"] == ["2\n"]

    known = {"b#1": ["n = 1", "n = n + 1"]}
    async with session_in(tmp_path / "work", known) as later:
        told = await later.run(round_of("print(n)", iteration=2, base=("b#1",)))
        assert told["cells"][0]["texts"] == ["2\n"]


async def test_an_attempt_that_is_gone_on_with_knows_which_files_it_has_written(tmp_path):
    """After a crash the rounds of the attempt are executed again: their files count as its own."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "before.txt").write_text("x")
    code = "open('mine.txt', 'w').write('x')"
    async with session_in(work) as session:
        await session.run(round_of(code))
    async with session_in(work, {"b#1": [code]}) as session:
        told = await session.run(round_of("pass", number=2, names=("./before.txt", "./mine.txt")))
    assert told["measured"]["files"]["./mine.txt"]["written"] is True
    assert told["measured"]["files"]["./before.txt"]["written"] is False
