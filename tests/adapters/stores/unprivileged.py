"""Processes that heed the permissions of files, also where the tests are run by root."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def heed_permissions() -> None:
    """Give up root's leave to read and write everything; from the next `exec` on."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "root's leave cannot be given up")


def python(*args: str, cwd: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that heeds the permissions of files."""
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, capture_output=True, text=True, timeout=60,
        preexec_fn=heed_permissions, check=False, **options,
    )  # fmt: skip
