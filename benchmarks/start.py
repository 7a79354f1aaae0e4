"""Measures how long a fresh interpreter takes to import a module or to print a program's help."""

import subprocess
import sys
import time

from benchmarks.protocol import Param, Result, main


def once(arguments: list[str]) -> float:
    """Run a fresh interpreter once and return its wall time."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    seconds = time.perf_counter() - begin
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SystemExit(lines[-1].replace(sys.executable, "python"))
    return seconds


def import_time(module: str, times: int) -> Result:
    """Return the best time of importing a module, less the best time of a bare interpreter."""
    bare, full = [], []
    once(["-c", f"import {module}"])
    for _ in range(times):
        bare.append(once(["-c", "pass"]))
        full.append(once(["-c", f"import {module}"]))
    return {"seconds": max(min(full) - min(bare), 0.0), "n": times}


def help_time(module: str, times: int) -> Result:
    """Return the best time of ``python -m MODULE --help``, interpreter included."""
    arguments = ["-m", module, "--help"]
    once(arguments)
    return {"seconds": min(once(arguments) for _ in range(times)), "n": times}


def run_start(param: Param) -> Result:
    """Measure the import of pydantic."""
    return import_time("pydantic", param["times"])


def run_help(param: Param) -> Result:
    """Measure the help of the bare typer program."""
    return help_time("benchmarks.bare_typer", param["times"])


if __name__ == "__main__":
    main({"start": run_start, "help": run_help})
