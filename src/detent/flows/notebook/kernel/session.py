"""The kernel of a run as its cells see it: at the right place before each round, and looked at after it.

A kernel is derived state. What it has to hold follows from the journal: the accepted attempts, and the rounds
of the current one. If it holds anything else, it is restarted and the cells are executed again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.adapters.jupyter.cell_result import CellResult
from detent.engine import logger
from detent.engine.tools import ToolError
from detent.flows.notebook.cells import FOREIGN, all_cells, attempt_name, cell_id
from detent.flows.notebook.kernel.rounds import RoundSpec
from detent.flows.notebook.measuring.criteria import compared_side
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.adapters.jupyter.port import NotebookKernel
    from detent.engine.run_resources import Opening

OUTPUTS = ".detent/outputs"
"""Folder below the work folder in which outputs wait until the journal has taken them."""
POSITION = ".detent/position.json"
"""File that says what the kernel holds, so that a later process can tell whether to go on with it."""
REPLAYING = "replaying cells"
"""What is shown while a new kernel executes what the run has accepted."""
BEGUN = ".detent/begun.json"
"""File that says which attempt is under way, and which files there were before it."""
LONGEST_TEXT = 2000
"""Characters of an output that stand in a receipt; the whole is kept beside."""
TRACEBACK_LINES = 20
"""Last lines of a traceback that stand in a receipt."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ACTIONS = "notebook.actions"
"""The effect that performs a round."""


class CodeCell(NamedTuple):
    """A code cell that the kernel executes."""

    id: str
    code: str


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """How cells are executed."""

    cell_timeout: float = 300.0
    criterion_timeout: float = 30.0


class KernelSession:
    """One kernel, and the cells that it holds."""

    def __init__(self, kernel: NotebookKernel, work: Path, options: KernelOptions) -> None:
        self.kernel = kernel
        self.work = work
        self.options = options
        self._progress: Callable[..., None] = _unseen
        self._executed: list[str] = []
        """Ids of the cells that the kernel holds, in order."""
        self._attempts: dict[str, list[CodeCell]] = {}
        """Code cells of every attempt, by its name."""
        self._files: dict[str, tuple[int, int]] = {}
        """Files of the work folder when the current attempt began, with size and time."""
        self._attempt = ""

    def watch(self, progress: Callable[..., None]) -> None:
        """Show how far a round is."""
        self._progress = progress

    # -- where it stands ------------------------------------------------------------------------------------

    def learn(self, attempt: str, cells: Sequence[CodeCell]) -> None:
        """Note cells that the run has executed."""
        known = self._attempts.setdefault(attempt, [])
        known += [cell for cell in cells if cell not in known]

    async def begin(self) -> None:
        """Start a kernel, or take over the one that an earlier process has left at a known place."""
        position = self._read_position()
        connection = position.get("connection")
        known = Path(connection) if connection and position.get("open") is None else None
        if known is not None and await self.kernel.attach(known) is not None:
            self._executed = list(position.get("executed", ()))
            logger.info("notebook.kernel_attached", cells=len(self._executed))
            return
        await self.kernel.start(cwd=self.work, env=dict(os.environ))
        self._executed = []
        self._write_position(None)

    async def come_to(self, base: Sequence[str], attempt: str) -> None:
        """Have the kernel hold the accepted attempts and what this one has executed so far, nothing else."""
        wanted = [cell for name in (*base, attempt) for cell in self._attempts.get(name, ())]
        ids = [cell.id for cell in wanted]
        begun = _read(self.work / BEGUN)
        if not self.kernel.is_alive() or ids[: len(self._executed)] != self._executed:
            if self._executed:
                logger.info("notebook.kernel_restarted", cells=len(ids))
            await self.kernel.restart()
            self._executed = []
        if begun and begun["attempt"] not in (attempt, *base):
            self._remove_written(set(begun["files"]))
        own = len(self._attempts.get(attempt, ()))
        shared = wanted[len(self._executed) : len(wanted) - own]
        await self._replay(shared)
        if attempt != self._attempt:
            self._begin_attempt(attempt, begun, replayed=bool(shared))
        await self._replay(wanted[len(self._executed) :])

    def _begin_attempt(self, attempt: str, begun: Mapping[str, Any], *, replayed: bool) -> None:
        """Note the files that are there before an attempt writes any, also for a process that takes over."""
        self._attempt, self._files = attempt, self._snapshot()
        names = list(self._files)
        if begun and begun["attempt"] == attempt:
            names = list(begun["files"])
            if not replayed:  # the kernel was taken over, and the files are as the attempt has left them
                self._files = {path: (facts[0], facts[1]) for path, facts in begun["files"].items()}
        file = self.work / BEGUN
        file.parent.mkdir(parents=True, exist_ok=True)
        files = {path: self._files.get(path, (-1, -1)) for path in names}
        _write(file, {"attempt": attempt, "files": files})

    def _remove_written(self, before: set[str]) -> None:
        """Remove what a dropped attempt has written beside the files that were there before."""
        for path in self._snapshot().keys() - before:
            (self.work / path).unlink(missing_ok=True)

    async def _replay(self, cells: Sequence[CodeCell], *, again: bool = False) -> None:
        for number, cell in enumerate(cells):
            self._progress(number, len(cells), REPLAYING)
            result = await self._execute(cell, self.options.cell_timeout * 2)
            if result.status != "ok" and cell in self._attempts.get(attempt_name(FOREIGN, 1), ()):
                raise ToolError(f"A cell that the run began with cannot be executed: {result.error}")
            if result.status == "died":
                # A cell that was accepted has run before: its death now is the machine's fault.
                if again:
                    raise ChildProcessError("the kernel died twice while accepted cells were replayed")
                await self.kernel.restart()
                self._executed = []
                whole = [cell for cell in self._all_known() if cell.id in {c.id for c in cells}]
                await self._replay(whole, again=True)
                return

    def _all_known(self) -> list[CodeCell]:
        return [cell for cells in self._attempts.values() for cell in cells]

    async def _execute(self, cell: CodeCell, timeout: float) -> CellResult:
        self._write_position(cell.id)
        result = await self.kernel.execute(cell.code, cell_id=cell.id, timeout=timeout)
        self._executed.append(cell.id)
        logger.info(
            "notebook.cell_completed", cell=cell.id, status=result.status, ms=round(result.duration_ms),
            error=(result.error or "").partition(":")[0] or None,
        )  # fmt: skip
        if logger.wants(logger.DEBUG):
            texts = [text for output in result.outputs if (text := _text_of(asdict(output)))]
            logger.debug(
                "notebook.cell_text", cell=cell.id, source=cell.code, output="".join(texts)[:LONGEST_TEXT]
            )
        if result.status in ("ok", "error", "timeout", "interrupted") and self.kernel.is_alive():
            self._write_position(None)
        return result

    # -- a round --------------------------------------------------------------------------------------------

    async def run(self, spec: RoundSpec) -> dict[str, Any]:
        """Execute the code of a round and look at what it has made: the receipt of its effect."""
        attempt = attempt_name(spec.behavior, spec.iteration)
        await self.come_to(spec.base, attempt)
        cells: list[dict[str, Any]] = []
        failed = died = False
        codes = [action for action in spec.actions if action["kind"] == "add_code"]
        for position, action in enumerate(spec.actions):
            if action["kind"] != "add_code" or failed:
                continue
            self._progress(len(cells), len(codes), f"cell {position + 1}")
            cell = CodeCell(cell_id(attempt, spec.round, position, action["text"]), action["text"])
            result = await self._execute(cell, self.options.cell_timeout)
            self.learn(attempt, [cell])
            cells.append(self._told(position, cell, result))
            failed = result.status != "ok"
            died = result.status == "died" or not self.kernel.is_alive()
        return {
            "cells": cells,
            "raised": failed,
            "died": died,
            "measured": {} if died else await self.measure(spec),
        }

    def _told(self, position: int, cell: CodeCell, result: CellResult) -> dict[str, Any]:
        outputs = [to_plain(asdict(output)) for output in result.outputs]
        texts = [text for output in outputs if (text := _text_of(output))]
        return {
            "at": position,
            "id": cell.id,
            "status": result.status,
            "error": result.error,
            "count": result.execution_count,
            "texts": [text[:LONGEST_TEXT] for text in texts],
            "traceback": [line for output in outputs for line in _traceback_of(output)][-TRACEBACK_LINES:],
            "outputs": self._put(outputs) if outputs else None,
            "warnings": sum(text.count("Warning:") for text in map(_stderr_of, outputs)),
            "ms": round(result.duration_ms, 1),
        }

    def _put(self, outputs: list[dict[str, Any]]) -> str:
        """Write outputs to a file of their own; its name is their digest."""
        body = json.dumps(outputs, ensure_ascii=False).encode("utf-8", "surrogatepass")
        name = sha256(body).hexdigest()
        folder = self.work / OUTPUTS
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.json"
        if not file.exists():
            part = folder / f".{name}.part"
            part.write_bytes(body)
            part.replace(file)
        return name

    # -- looking --------------------------------------------------------------------------------------------

    async def measure(self, spec: RoundSpec) -> dict[str, Any]:
        """What there is: variables, files, criteria, and the figures of the flow's own probes."""
        names = [name for name in spec.names if "/" not in name]
        paths = [name for name in spec.names if "/" in name]
        found = await self.kernel.inspect(names)
        criteria = await self.kernel.evaluate(
            {str(number): text for number, text in enumerate(spec.criteria)},
            timeout=self.options.criterion_timeout,
        )
        figures = await self._figures(
            text for number, text in enumerate(spec.criteria)
            if criteria[str(number)].error is None and not criteria[str(number)].truth
        )  # fmt: skip
        probes = await self.kernel.evaluate(dict(spec.probes), timeout=self.options.cell_timeout)
        written = self._written()
        for number, text in enumerate(spec.criteria):
            passed = criteria[str(number)].error is None and criteria[str(number)].truth
            logger.info("notebook.criterion_measured", criterion=text, passed=passed)
        return {
            "variables": {name: to_plain(asdict(info)) for name, info in found.items()},
            "files": {path: self._file(path, written) for path in paths},
            "criteria": {
                text: {
                    "passed": criteria[str(number)].error is None and criteria[str(number)].truth,
                    "value": (criteria[str(number)].error or criteria[str(number)].value_repr)[:500],
                    "error": criteria[str(number)].error is not None,
                    "figure": figures.get(text, ""),
                }
                for number, text in enumerate(spec.criteria)
            },
            "probes": {
                name: {"value": result.json, "text": result.text, "error": result.error}
                for name, result in probes.items()
            },
            "names": dict(await self.kernel.names()),
        }

    async def _figures(self, failed: Iterable[str]) -> dict[str, str]:
        """What criteria compare that were missed, by their texts: the figure that a person asks for."""
        compared = {text: side for text in failed if (side := compared_side(text)) is not None}
        if not compared:
            return {}
        sides = {str(number): side for number, side in enumerate(compared.values())}
        values = await self.kernel.evaluate(sides, timeout=self.options.criterion_timeout)
        found = zip(compared, (values[number] for number in sides), strict=True)
        return {text: value.value_repr[:100] for text, value in found if value.error is None}

    def _snapshot(self) -> dict[str, tuple[int, int]]:
        """Every file of the work folder, with size and time."""
        files: dict[str, tuple[int, int]] = {}
        for folder, folders, names in os.walk(self.work):
            folders[:] = [name for name in folders if name != ".detent"]
            for name in names:
                path = Path(folder) / name
                try:
                    facts = path.stat()
                except OSError:  # it went meanwhile
                    continue
                files[path.relative_to(self.work).as_posix()] = (facts.st_size, facts.st_mtime_ns)
        return files

    def _written(self) -> set[str]:
        """Files that were written since the attempt began."""
        return {path for path, facts in self._snapshot().items() if self._files.get(path) != facts}

    def _file(self, name: str, written: set[str]) -> dict[str, Any]:
        path = self.work / name
        if path.is_dir():
            inside = [item for item in path.rglob("*") if item.is_file() and item.stat().st_size > 0]
            prefix = name.rstrip("/") + "/"
            return {
                "exists": True, "size": len(inside),
                "written": any(item.startswith(prefix) for item in written),
            }  # fmt: skip
        exists = path.is_file()
        return {
            "exists": exists, "size": path.stat().st_size if exists else 0,
            "written": path.relative_to(self.work).as_posix() in written,
        }  # fmt: skip

    # -- the position ---------------------------------------------------------------------------------------

    def _read_position(self) -> dict[str, Any]:
        return _read(self.work / POSITION)

    def _write_position(self, under_way: str | None) -> None:
        """Say what the kernel holds. With a cell under way it is in doubt, and never taken over."""
        file = self.work / POSITION
        file.parent.mkdir(parents=True, exist_ok=True)
        connection = self.kernel.connection
        _write(file, {
            "connection": None if connection is None else str(connection),
            "executed": self._executed,
            "open": under_way,
        })  # fmt: skip


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(file: Path, value: Mapping[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(file)


def _text_of(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    return str(output.get("text") or "")


def _traceback_of(output: Mapping[str, Any]) -> list[str]:
    return COLOURS.sub("", "\n".join(output.get("traceback") or ())).splitlines()


def _stderr_of(output: Mapping[str, Any]) -> str:
    return str(output.get("text") or "") if output.get("name") == "stderr" else ""


def opener(make: Callable[[Path, int], NotebookKernel], options: KernelOptions) -> Callable[[Opening], Any]:
    """How the kernel of a run is opened: `make` gives one for a work folder and an epoch."""

    @asynccontextmanager
    async def open_session(opening: Opening) -> AsyncIterator[KernelSession]:
        work = Path(str(opening.data["work"]))
        kernel = make(work, opening.epoch)
        session = KernelSession(kernel, work, options)
        for act in await opening.performed():
            args = act.effect.args
            attempt = attempt_name(str(args["behavior"]), int(args["iteration"]))
            texts = {cell["at"]: cell["id"] for cell in act.receipt["cells"]}
            session.learn(attempt, [CodeCell(texts[at], args["actions"][at]["text"]) for at in sorted(texts)])
        session.learn(attempt_name(FOREIGN, 1), [
            CodeCell(cell.id, cell.source) for cell in all_cells(opening.data)
            if cell.behavior == FOREIGN and cell.is_code
        ])  # fmt: skip
        await session.begin()
        try:
            yield session
        finally:
            await kernel.shutdown()

    return open_session


def _unseen(done: float | None = None, of: float | None = None, text: str = "") -> None:
    """Progress that nobody watches."""
