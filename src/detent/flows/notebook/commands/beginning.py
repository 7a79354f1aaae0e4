"""What a notebook is to be about, as the command line says it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from detent.flows.notebook.delivery import check_places
from detent.flows.notebook.domain.problem import ProblemReading
from detent.flows.notebook.domain.target import TargetUnclear
from detent.flows.notebook.run_view import RunOptions
from detent.flows.notebook.start import Beginning, read
from detent.flows.notebook.work_folder import work_folder
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.ids import check_run_id

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace

PROFILES = ("compact", "full")


@dataclass(frozen=True, slots=True)
class Request:
    """The words of the command line."""

    problem: str | None = None
    problem_file: Path | None = None
    files: Sequence[Path] = ()
    target: str | None = None
    keep: Sequence[str] = ()
    split: str | None = None
    out: Path | None = None
    trace: Path | None = None
    title: str = ""
    profile: str | None = None
    report: bool = True
    verify: bool = True
    run_id: str | None = None


def beginning_of(workspace: Workspace, request: Request, run_id: str) -> Beginning:
    """The beginning of a run; nothing is written.

    Raises:
        ConfigurationError: the problem is given twice or not at all, an option has no such value, or a place
            to write to is none.
    """
    from detent.flows.notebook.settings import notebook_settings

    settings = notebook_settings(workspace.settings)
    profile = request.profile or settings.profile
    if profile not in PROFILES:
        raise ConfigurationError(
            f"There is no profile '{profile}'.{nearest(profile, PROFILES)} Profiles: {', '.join(PROFILES)}."
        )
    work = work_folder(workspace.settings.folder, run_id)
    out = (request.out or Path(f"notebook_{work.name[:8]}")).expanduser().absolute()
    check_places(out)
    if request.trace is not None:
        check_places(request.trace.expanduser() / "states")
    split = request.split or (None if settings.split == "auto" else settings.split)
    return Beginning(
        _problem(request), [file.expanduser() for file in request.files], work, target=request.target,
        split=split, keep=tuple(request.keep), test_size=settings.test_size,
        options=RunOptions(
            request.report, request.verify and settings.verify, profile, request.title, str(out),
            None if request.trace is None else str(request.trace.expanduser().absolute()),
        ),
    )  # fmt: skip


def new_run_id(chosen: str | None) -> str:
    """The id of a new run: the chosen one, or one that no other run has."""
    return os.urandom(8).hex() if chosen is None else check_run_id(chosen)


def _problem(request: Request) -> str:
    if (request.problem is None) == (request.problem_file is None):
        raise ConfigurationError('Say the problem once: --problem "Predict …", or --problem-file FILE.')
    if request.problem_file is None:
        return request.problem or ""
    try:
        return request.problem_file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{request.problem_file} cannot be read: {why}.") from None


def read_or_ask(beginning: Beginning, *, silent: bool) -> tuple[Beginning, ProblemReading]:
    """The problem as it was read; where the target is not clear, a person at a terminal is asked.

    Raises:
        ConfigurationError: the problem cannot be worked on.
    """
    try:
        return beginning, read(beginning)
    except TargetUnclear as unclear:
        if silent or not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise
        beginning = replace(beginning, target=_asked(unclear.candidates))
        return beginning, read(beginning)


def _asked(candidates: Sequence[str]) -> str:
    """The column that a person chooses.

    Raises:
        ConfigurationError: none was chosen.
    """
    from detent.cli.output import clean, say

    say("Which column is to be predicted?")
    for number, name in enumerate(candidates, 1):
        say(f"  {number}  {clean(name)}")
    while True:
        try:
            answer = input("Its number: ").strip()
        except EOFError:
            raise ConfigurationError("No column was chosen. Say which with --target.") from None
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(candidates):
            return candidates[int(answer) - 1]
