"""Starting the process of a kernel, in a session of its own so that it survives the engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from detent.adapters.jupyter.connection import KernelFiles
from detent.adapters.jupyter.environment import kernel_environment
from detent.adapters.jupyter.errors import KernelNotStarted
from detent.engine.host import born, this_host

NEEDED = ("ipykernel", "jupyter_client", "zmq")
LOG_LINES = 10
LOG_LENGTH = 100_000


def require_libraries() -> None:
    """Check that kernels can be started here.

    Raises:
        KernelNotStarted: a library is missing; the message has the line that installs it.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise KernelNotStarted(
            f"Notebooks need {', '.join(missing)}, which is not installed. "
            f"Get it with: pip install 'detent[notebook]'"
        )
    if sys.platform == "win32":
        raise KernelNotStarted("Notebooks need a Unix system: on Windows run Detent in WSL.")


def launch(
    files: KernelFiles,
    *,
    cwd: Path,
    env: Mapping[str, str],
    lifetime: float,
    memory: int,
    log: IO[bytes],
) -> tuple[KernelFiles, subprocess.Popen[bytes]]:
    """Start the launcher, and with it the kernel; what it says while it starts goes to `log`.

    Raises:
        KernelNotStarted: the work folder or Python cannot be used.
    """
    command = [
        sys.executable, "-P", "-m", "detent.adapters.jupyter.kernel_process",
        str(files.kernel_connection), str(files.lock), str(lifetime), str(memory),
    ]  # fmt: skip
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=kernel_environment(env, files.folder / "settings"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise KernelNotStarted(f"The kernel cannot be started in {cwd}: {error}") from error
    started = replace(files, pid=process.pid, born=born(process.pid) or 0.0, host=this_host(), cwd=cwd)
    return started, process


def last_words(log: IO[bytes]) -> str:
    """The end of what the kernel said while it started."""
    log.seek(0)
    lines = log.read(LOG_LENGTH).decode("utf-8", "replace").strip().splitlines()
    return "\n".join(lines[-LOG_LINES:]) or "(nothing)"
