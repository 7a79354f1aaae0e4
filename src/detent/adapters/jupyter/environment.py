"""The environment and the memory a kernel gets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

SHARE = 0.75
"""Of the machine's memory for a kernel, unless told otherwise."""

_NAMES = frozenset(
    {
        "CONDA_PREFIX", "DYLD_LIBRARY_PATH", "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME",
        "LOKY_MAX_CPU_COUNT", "MALLOC_ARENA_MAX", "MPLCONFIGDIR", "PATH", "PYTHONPATH", "SHELL", "SYSTEMROOT",
        "TEMP", "TMP", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
    }
)  # fmt: skip
_PREFIXES = ("BLIS_", "GOTO_NUM_", "KMP_", "LC_", "MKL_", "NUMEXPR_", "OMP_", "OPENBLAS_", "VECLIB_")
"""Numbers of threads and the like."""


def kernel_environment(environment: Mapping[str, str], settings_folder: Path) -> dict[str, str]:
    """The variables of `environment` that a notebook may see: known ones only, so that no key is among them.

    IPython looks for its settings in `settings_folder`, not in the user's: a start-up file there would run in
    every notebook.
    """
    kept = {
        name: value for name, value in environment.items() if name in _NAMES or name.startswith(_PREFIXES)
    }
    return {
        **kept,
        "IPYTHONDIR": str(settings_folder),
        "JUPYTER_CONFIG_DIR": str(settings_folder),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
    }


def kernel_memory() -> int:
    """Bytes of address space for a kernel: a share of the machine's memory, or of the container's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(total * SHARE)
