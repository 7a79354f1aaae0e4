"""Checkpoint files: what a run leaves for people and other programs, written whole or not at all.

The journal is the checkpoint of a run; no run reads these files.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from detent.flows.refine.state_machine import OrchestrationStateMachine
from detent.kernel.errors import DetentError
from detent.kernel.plain import to_plain
from detent.kernel.state_history import RestoreError


class CheckpointType(str, Enum):
    """What a checkpoint file holds."""

    AUDIO = "audio"
    SEQUENCE = "sequence"
    RAW = "raw"
    """The plan."""
    IMPLEMENTATION = "implementation"
    EVALUATION = "evaluation"
    FINAL = "final"
    STATE_MACHINE = "state_machine"


_BESIDE_PLANS = (CheckpointType.AUDIO, CheckpointType.SEQUENCE)


class CheckpointError(DetentError):
    """A checkpoint file cannot be read, or must not be replaced."""

    def __init__(self, file: Path, field: str, problem: str) -> None:
        self.file = file
        self.field = field
        self.problem = problem
        super().__init__(f"{file}: {field}: {problem}")


class CheckpointManager:
    """The checkpoint files of one project in a folder."""

    def __init__(self, output_dir: str | Path, project: str) -> None:
        self.output_dir = Path(output_dir)
        self.project = project
        if not project or Path(project).name != project:
            raise ValueError(f"project is {project!r}; it must be a name without a folder.")

    def path(self, kind: CheckpointType | str) -> Path:
        """The file of a type."""
        kind = CheckpointType(kind)
        folder = self.output_dir / "checkpoints"
        folder = folder if kind in _BESIDE_PLANS else folder / "plans"
        return folder / f"{self.project}_{kind.value}.json"

    def write_checkpoint(self, kind: CheckpointType | str, data: Any) -> Path:
        """Write a file in one piece; returns its path.

        Raises:
            CheckpointError: the present file cannot be read, and would be lost.
            TypeError: the data cannot be JSON.
        """
        path = self.path(kind)
        text = json.dumps(to_plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if path.exists():
            _read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
        return path

    def read_checkpoint(self, kind: CheckpointType | str) -> dict[str, Any] | None:
        """What a file holds; None if there is none.

        Raises:
            CheckpointError: the file cannot be read.
        """
        path = self.path(kind)
        return _read(path) if path.exists() else None

    def save_state_machine(self, machine: OrchestrationStateMachine) -> Path:
        """Write a state machine with its history."""
        return self.write_checkpoint(CheckpointType.STATE_MACHINE, machine.to_dict())

    def load_state_machine(self) -> OrchestrationStateMachine | None:
        """The state machine as it was saved; None if none was.

        Raises:
            CheckpointError: the file is damaged, or of another table.
        """
        plain = self.read_checkpoint(CheckpointType.STATE_MACHINE)
        if plain is None:
            return None
        try:
            return OrchestrationStateMachine.from_dict(plain)
        except RestoreError as error:
            path = self.path(CheckpointType.STATE_MACHINE)
            raise CheckpointError(path, error.field, error.problem) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(path, "(file)", f"cannot be read: {error.strerror}.") from error
    except ValueError as error:
        problem = f"is not JSON ({error}). Move it away, or delete it."
        raise CheckpointError(path, "(file)", problem) from error
    if not isinstance(value, Mapping):
        raise CheckpointError(path, "(top)", "a JSON object is needed.")
    return dict(value)


def _replace(path: Path, text: str) -> None:
    """Write a file beside its place, sync it, and move it there."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
