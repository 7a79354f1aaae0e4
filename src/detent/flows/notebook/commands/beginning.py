"""What a notebook is to be about, as the command line says it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from detent.flows.notebook.run_view import RunOptions
from detent.flows.notebook.start import Beginning
from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace

PROFILES = ("compact", "full")


def beginning_of(
    workspace: Workspace,
    problem: str | None,
    problem_file: Path | None,
    files: Sequence[Path],
    *,
    target: str | None,
    keep: Sequence[str],
    split: str | None,
    profile: str | None,
    report: bool,
    verify: bool,
    title: str,
) -> Beginning:
    """The beginning of a run.

    Raises:
        ConfigurationError: the problem is given twice or not at all, or an option has no such value.
    """
    from detent.flows.notebook.settings import notebook_settings

    settings = notebook_settings(workspace.settings)
    if (problem is None) == (problem_file is None):
        raise ConfigurationError('Say the problem once: --problem "Predict …", or --problem-file FILE.')
    if problem_file is not None:
        try:
            problem = problem_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{problem_file} cannot be read: {error}.") from None
    chosen = profile or settings.profile
    if chosen not in PROFILES:
        raise ConfigurationError(f"There is no profile '{chosen}'. Profiles: {', '.join(PROFILES)}.")
    asked = split or (None if settings.split == "auto" else settings.split)
    return Beginning(
        problem or "", [file.expanduser() for file in files], work_folder(workspace), target=target,
        split=asked, keep=tuple(keep),
        options=RunOptions(report, verify and settings.verify, chosen, title),
    )  # fmt: skip


def work_folder(workspace: Workspace) -> Path:
    """A folder for one run, beside the store."""
    return workspace.settings.folder / ".detent" / "notebooks" / uuid4().hex[:12]
