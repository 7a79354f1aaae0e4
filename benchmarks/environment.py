"""Makes the peers' own virtual environment from the pinned list, with pip or uv."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINNED = ROOT / "benchmarks" / "peers.txt"
HOME = ROOT / ".bench-venv"


class NoPeers(Exception):
    """The peers' environment could not be made, and why."""


def interpreter(home: Path = HOME) -> Path:
    """Return the path of the peers' interpreter."""
    return home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def scratch() -> Path:
    """Return a folder for databases, on the same disk as the repository and never in memory."""
    folder = HOME / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    return folder


def ensure(pinned: Path = PINNED, home: Path = HOME) -> Path:
    """Make an environment if it is missing or older than its pinned list, and return its interpreter."""
    wanted = hashlib.sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()
    stamp, python = home / "peers.sha256", interpreter(home)
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python
    print(f"Setting up the peers' environment in {home.name} ...", file=sys.stderr, flush=True)
    run([sys.executable, "-m", "venv", "--clear", str(home)])
    (home / ".gitignore").write_text("*\n")
    uv = shutil.which("uv")
    if uv:
        run([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(pinned)])
    else:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "install", "--quiet", "-r", str(pinned)])
    stamp.write_text(wanted)
    return python


def run(command: list[str]) -> None:
    """Run a command, or say in one line why it failed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NoPeers(lines[-1])


def versions(python: Path) -> dict[str, str]:
    """Return the versions installed next to an interpreter."""
    code = (
        "import json; from importlib.metadata import distributions as d; "
        "print(json.dumps({x.metadata['Name']: x.version for x in d()}))"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    if done.returncode:
        return {}
    return dict(sorted(json.loads(done.stdout).items()))
