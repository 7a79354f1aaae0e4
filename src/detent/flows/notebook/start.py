"""A run's beginning: the problem is read, the files are copied, and the run is started."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.flows.notebook.domain.problem_reader import read_problem
from detent.flows.notebook.run_view import OPTIONS, PROBLEM, READING, WORK, RunOptions
from detent.flows.notebook.state.deltas import to_data
from detent.flows.notebook.state.document import StateDocument
from detent.flows.notebook.state.ledger import RunState
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.notebook.domain.problem import ProblemReading

FLOW = "notebook"
ASSETS = "assets"


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a notebook is to be about."""

    problem: str
    files: Sequence[Path]
    work: Path
    """The folder in which the kernel works; it belongs to this run alone."""
    target: str | None = None
    split: str | None = None
    keep: tuple[str, ...] = ()
    test_size: float = 0.2
    options: RunOptions = field(default_factory=RunOptions)


def read(beginning: Beginning) -> ProblemReading:
    """Read the problem and its first file.

    Raises:
        ConfigurationError: a file is missing, or the problem cannot be read.
    """
    if not beginning.problem.strip():
        raise ConfigurationError('The problem is empty. Say what is to be predicted: --problem "…".')
    if not beginning.files:
        raise ConfigurationError("A notebook needs a data file: --file DATA.csv.")
    for file in beginning.files:
        if not file.is_file():
            raise ConfigurationError(f"There is no file {file}.")
    names = [file.name for file in beginning.files]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ConfigurationError(f"Two files are named {', '.join(sorted(doubled))}; rename one.")
    return read_problem(
        beginning.problem, list(beginning.files), target=beginning.target, split=beginning.split,
        keep=beginning.keep, test_size=beginning.test_size,
    )  # fmt: skip


def prepared(beginning: Beginning, reading: ProblemReading) -> dict[str, Any]:
    """The data that a run starts with; the files are copied into the work folder, where cells open them."""
    assets = beginning.work / ASSETS
    assets.mkdir(parents=True, exist_ok=True)
    for file in beginning.files:
        shutil.copyfile(file, assets / file.name)
    paths = [f"{ASSETS}/{file.name}" for file in beginning.files]
    document = StateDocument()
    document = document.changed(variables={"user_problem": beginning.problem, "user_submit_files": paths})
    return {
        **to_data(None, RunState(document)).set,
        PROBLEM: beginning.problem,
        READING: to_plain(asdict(reading)),
        WORK: str(beginning.work.resolve()),
        OPTIONS: asdict(beginning.options),
    }


async def start_notebook(
    engine: Engine, beginning: Beginning, *, budget: Budget | None = None, drive: bool = True
) -> str:
    """Start a notebook; the id of its run.

    Raises:
        ConfigurationError: a file is missing, or the problem cannot be read.
    """
    reading = read(beginning)
    most = engine.flow(FLOW).budget
    limits = budget if most is None or most.steps is None else limited(budget, most.steps)
    return await engine.start(FLOW, prepared(beginning, reading), budget=limits, drive=drive)


def limited(budget: Budget | None, transitions: int) -> Budget:
    """A budget under which a run makes so many transitions at most; they are steps of the engine."""
    budget = budget or Budget()
    return replace(budget, steps=min(transitions, budget.steps or transitions))
