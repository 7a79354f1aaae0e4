"""Runs the contestants of a workload in processes of their own, interleaved, and takes medians."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import environment
from benchmarks.plan import Contestant, Workload

LIMIT = 300
"""Seconds after which a contestant's process is given up."""

SURROUNDINGS = {"LANGSMITH_TRACING": "false", "PYTHONDONTWRITEBYTECODE": ""}
"""No tracing over the network, and compiled modules kept so that imports are warm for everyone."""


@dataclass
class Outcome:
    """What one contestant did in one workload: its runs, or why there are none."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None

    def medians(self) -> dict[str, float]:
        """Return the median of every figure over the repeats."""
        return {key: median(run[key] for run in self.runs) for key in self.runs[0]}


def run_workload(
    workload: Workload, quick: bool, repeats: int, peers: Path | None, why_no_peers: str
) -> dict[str, Outcome]:
    """Run every contestant once per repeat, starting with another one each time."""
    param = workload.quick if quick else workload.full
    outcomes = {contestant.name: Outcome() for contestant in workload.contestants}
    for repeat in range(workload.repeats or repeats):
        turn = repeat % len(workload.contestants)
        for contestant in (*workload.contestants[turn:], *workload.contestants[:turn]):
            outcome = outcomes[contestant.name]
            if outcome.problem:
                continue
            if contestant.peer and peers is None:
                outcome.problem = f"missing: {why_no_peers}"
                continue
            run_once(contestant, workload.script, param, peers, outcome)
    return outcomes


def run_once(
    contestant: Contestant, script: str, param: dict[str, Any], peers: Path | None, outcome: Outcome
) -> None:
    """Run a contestant once in a fresh folder and note its figures or its failure."""
    python = str(peers) if contestant.peer else sys.executable
    folder = tempfile.mkdtemp(dir=environment.scratch())
    body = json.dumps({**param, **contestant.extra, "folder": folder})
    if hasattr(os, "sync"):
        os.sync()  # what the one before left to be written must not slow this one
    command = [python, "-m", contestant.module, script, "--param", body]
    try:
        done = subprocess.run(
            command,
            cwd=environment.ROOT,
            env={**os.environ, **SURROUNDINGS},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        outcome.problem = f"failed: took longer than {LIMIT} s"
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        outcome.problem = f"failed: {lines[-1]}"
        return
    try:
        outcome.runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
    except (IndexError, ValueError):
        outcome.problem = "failed: printed no result"
