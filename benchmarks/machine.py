"""Facts about the machine and the programs, without which figures mean little."""

import os
import platform
import sqlite3
import sys
from pathlib import Path
from typing import Any

from benchmarks import environment

MEASURED = (
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "apache-burr",
    "dbos",
    "pydantic-graph",
    "pydantic-ai-slim",
    "python-statemachine",
    "transitions",
)


def load() -> float | None:
    """Return the load average of the last minute, where the system knows it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def facts(peers: Path | None) -> dict[str, Any]:
    """Return cores, Python, SQLite and the versions of everyone measured."""
    own = environment.versions(Path(sys.executable))
    theirs = environment.versions(peers) if peers else {}
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": load(),
        "versions": {name: own.get(name) for name in ("detent", "pydantic", "typer")},
        "peers": {name: theirs.get(name) for name in MEASURED} if peers else {},
    }
