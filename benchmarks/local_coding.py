"""Twenty small tasks for a local model: done, honestly not done, and falsely done.

By hand, because it takes a model file and most of an hour: ``python -m benchmarks.local_coding``. A task
is done when the request ends as completed and the task's check passes, and falsely done when it ends as
completed and the check fails. The check is the benchmark's own; with ``--done-when`` the request has it
too.
"""

import argparse
import asyncio
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from detent.flows.coding.flow import CodingFlow
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.request import start_request
from detent.flows.coding.result import result_of
from detent.flows.coding.settings import CodingSettings
from detent.runtime.settings import read_settings
from detent.runtime.wiring import engine_for


@dataclass(frozen=True)
class Task:
    """One task."""

    prompt: str
    check: str
    """Python that fails unless it is done."""
    files: Mapping[str, str] = field(default_factory=dict)


def read_tasks() -> list[Task]:
    """The tasks, in order."""
    file = Path(__file__).with_name("local_coding_tasks.yaml")
    return [Task(**entry) for entry in yaml.safe_load(file.read_text(encoding="utf-8"))]


async def main() -> None:
    """Run the tasks and print what came of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_coding", description=__doc__)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--done-when", action="store_true", help="give each request its check")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of tasks, from 1")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="detent-coding-"))
    (home / "detent.yaml").write_text(
        f"model: {{provider: small}}\nmodels: {{small: {{kind: local, model_id: {given.model}}}}}\n"
        "steps: {coding/assistant: {mode: agent, max_tokens: 700}}\n"
    )
    settings = read_settings(folder=home)
    flow = CodingFlow(CodingSettings(max_iterations=given.turns, model_timeout_s=300, max_retries=0))
    # One folder for all, so that the beginning of every request is the same and stays in the model's cache.
    workspace = home / "work"
    rows: list[dict[str, Any]] = []
    async with engine_for(settings, [flow], store=None) as engine:
        for number, task in enumerate(read_tasks(), 1):
            if given.only and number not in given.only:
                continue
            shutil.rmtree(workspace, ignore_errors=True)
            workspace.mkdir()
            for name, text in task.files.items():
                (workspace / name).write_text(text)
            check = shlex.join([sys.executable, "-c", task.check])
            began = time.monotonic()
            options = RequestOptions(
                yes=True,
                on_confirm="deny",
                max_iterations=given.turns,
                done_when=check if given.done_when else None,
            )
            started = await start_request(engine, task.prompt, workspace=workspace, options=options)
            await engine.finish(started.run_id)
            result = await result_of(engine, started.run_id)
            passed = (
                subprocess.run(
                    [sys.executable, "-c", task.check], cwd=workspace, capture_output=True
                ).returncode
                == 0
            )
            verdict = ("done" if passed else "falsely done") if result.done else "not done"
            rows.append({
                "task": number, "verdict": verdict, "reason": result.reason, "turns": result.iterations,
                "seconds": round(time.monotonic() - began), "prompt": task.prompt, "really": passed,
            })  # fmt: skip
            took = f"{result.iterations:2} turns  {rows[-1]['seconds']:4} s"
            print(f"{number:2}  {verdict:12}  {took}  {result.reason or '':14}  {task.prompt}", flush=True)
    counts = Counter(row["verdict"] for row in rows)
    print(
        f"{given.model}: "
        + ", ".join(f"{counts[name]} {name}" for name in ("done", "not done", "falsely done"))
    )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
