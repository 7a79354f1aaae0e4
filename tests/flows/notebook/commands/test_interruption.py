"""Ctrl-C in the middle of a cell, and two programs on one run. N-88, N-99."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.flows.notebook.commands.conftest import PROBLEM, Project

SETTINGS = """
model: {provider: script}
models:
  script: {kind: scripted, file: script.yaml}
steps: {notebook/action_generator: {mode: agent}}
"""
CELL = """
import time
from pathlib import Path
raw_dataset = 1
data_inventory_checklist = {"bytes": 0}
Path("running").touch()
while not Path("go").exists():
    time.sleep(0.01)
"""


def until(file: Path, program: subprocess.Popen[str]) -> None:
    while not file.exists():
        assert program.poll() is None, program.communicate()
        time.sleep(0.02)


def test_ctrl_c_in_a_cell_closes_the_kernel_and_leaves_a_run_that_goes_on(project: Project):
    (project.folder / "detent.yaml").write_text(SETTINGS)
    answer = f"<actions><add-text>A look.</add-text><add-code2run>{CELL}</add-code2run></actions>"
    (project.folder / "script.yaml").write_text(json.dumps({"*": [{"text": answer}] * 3}))
    command = [sys.executable, "-m", "detent", "run", "notebook", "--problem", PROBLEM]
    work = project.folder / ".detent/notebooks/held"
    with subprocess.Popen(
        [*command, "--file", "houses.csv", "--id", "held", "--out", "held.ipynb"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=project.folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as program:  # fmt: skip
        until(work / "running", program)
        busy = project.detent("notebook", "resume", "held", "-q")
        assert busy.code != 0
        assert "held" in busy.err
        stopping = project.detent("notebook", "resume", "held", "-q", "--transitions", "1")
        assert (stopping.code, stopping.err) == (busy.code, busy.err)
        program.send_signal(signal.SIGINT)
        (work / "go").touch()
        printed, _ = program.communicate(timeout=60)
    assert program.returncode == 130, printed
    assert "detent resume held" in printed
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(work) not in listed
    assert "Not finished" in (project.folder / "held.ipynb").read_text()
    on = project.detent("notebook", "resume", "held", "--deterministic", "--transitions", "1", "-q")
    assert on.code == 0, on
