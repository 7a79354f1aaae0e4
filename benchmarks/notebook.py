"""What the notebook flow costs beside its cells alone, and how its models stand beside others'.

Each table's model is fitted by the flow's recipes, by gradient boosting with its defaults, and by FLAML,
which searches as long as the flow did, within bounds. All three see the same training rows and are scored on
the same hold-out rows, in several splits. A ratio is that of the errors (of AUC and accuracy: of what they
lack to 1), so below 1 the flow is ahead. The noise is the middle 95 % of bootstrap samples of the hold-out
rows, the same rows for all three.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from benchmarks import environment
from benchmarks.notebook_tables import CLI, QUICK, TABLES, Table

PINNED = environment.ROOT / "benchmarks" / "notebook_peers.txt"
HOME = environment.ROOT / ".bench-notebook-venv"
SEEDS = (42, 1, 2)
SAMPLES = 2000
SECONDS = (20, 120)
"""How long FLAML searches at least and at most."""
LIMIT = 3600
FEWEST_ERRORS = 1e-6


class Failed(Exception):
    """A part gave no figures, and why."""


def called(python: Path | str, module: str, script: str, param: Mapping[str, Any]) -> dict[str, Any]:
    """What a script of the benchmarks prints."""
    done = subprocess.run(
        [str(python), "-m", f"benchmarks.{module}", script, "--param", json.dumps(dict(param))],
        cwd=environment.ROOT, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


# -- scores -------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """What everyone says of one hold-out."""

    truth: Any
    labels: Sequence[str]
    predicted: Mapping[str, Any]


def errors(metric: str, truth: Any, predicted: Any, labels: Sequence[str], weights: Any) -> Any:
    """The error in each bootstrap sample; a row of `weights` counts how often it holds each hold-out row."""
    import numpy as np

    total = weights.sum(axis=1)
    if metric == "rmse":
        return np.sqrt(weights @ (truth - predicted) ** 2 / total)
    if metric == "accuracy":
        return weights @ (truth != predicted) / total
    if metric == "log_loss":
        places = np.searchsorted(np.array(labels), truth)
        shares = predicted / predicted.sum(axis=1, keepdims=True)
        return weights @ -np.log(np.clip(shares[np.arange(len(truth)), places], 1e-15, 1)) / total
    return 1 - areas(truth == labels[1], predicted[:, 1], weights)


def areas(positive: Any, chance: Any, weights: Any) -> Any:
    """The area under the curve in each sample: pairs in the right order, ties by half."""
    import numpy as np

    _, level = np.unique(chance, return_inverse=True)
    sums = np.zeros((2, len(weights), level.max() + 1))
    for row, sample in enumerate(weights):
        sums[0, row] = np.bincount(level, sample * ~positive, level.max() + 1)
        sums[1, row] = np.bincount(level, sample * positive, level.max() + 1)
    negatives, positives = sums
    below = np.cumsum(negatives, axis=1) - negatives / 2
    return (positives * below).sum(axis=1) / (positives.sum(axis=1) * negatives.sum(axis=1))


class Comparison(NamedTuple):
    """The flow's error over another's."""

    ratio: float
    lower: float
    upper: float
    by_split: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """Who is ahead by more than noise."""
        return "BEHIND" if self.lower > 1 else "ahead" if self.upper < 1 else "even"

    def __str__(self) -> str:
        spread = (
            f", splits {min(self.by_split):.3f} to {max(self.by_split):.3f}" if len(self.by_split) > 1 else ""
        )
        return f"{self.ratio:.3f} ({self.lower:.3f} to {self.upper:.3f}{spread}) {self.verdict}"


def compared(metric: str, splits: Sequence[Split], other: str, seed: int = 0) -> Comparison:
    """The ratio of errors, a geometric mean over the splits."""
    import numpy as np

    rng = np.random.default_rng(seed)
    logs, points = [], []
    for split in splits:
        rows = len(split.truth)
        samples = rng.multinomial(rows, np.full(rows, 1 / rows), SAMPLES)
        weights = np.vstack([np.ones(rows), samples]).astype(float)
        own, others = (
            np.maximum(
                errors(metric, split.truth, split.predicted[name], split.labels, weights), FEWEST_ERRORS
            )
            for name in ("detent", other)
        )
        ratios = np.log(own / others)
        points.append(float(ratios[0]))
        logs.append(ratios[1:])
    means = np.mean(logs, axis=0)
    lower, upper = np.exp(np.nanpercentile(means, [2.5, 97.5]))
    return Comparison(
        float(np.exp(mean(points))), float(lower), float(upper), tuple(float(np.exp(each)) for each in points)
    )


def scored(metric: str, splits: Sequence[Split], name: str) -> float:
    """The mean score over the splits."""
    import numpy as np

    of_splits = [
        errors(metric, split.truth, split.predicted[name], split.labels, np.ones((1, len(split.truth))))[0]
        for split in splits
    ]
    return float(np.mean(of_splits) if metric in ("rmse", "log_loss") else 1 - np.mean(of_splits))


def measured(table: Table, seed: int, data: Path, python: Path) -> tuple[Split, dict[str, Any]]:
    """Let everyone fit a table once, with one split."""
    import numpy as np

    with tempfile.TemporaryDirectory(dir=environment.scratch()) as name:
        work = Path(name)
        (work / "assets").mkdir()
        csv = work / "assets" / f"{table.name}.csv"
        shutil.copy(data / csv.name, csv)
        common = {"csv": str(csv), "seed": seed, "out": name}
        ours = called(
            sys.executable, "notebook_play", "play",
            {**common, "problem": table.problem, "metric": table.metric, "work": name},
        )  # fmt: skip
        seconds = min(max(SECONDS[0], ours["modelling"]), SECONDS[1])
        theirs = called(
            python, "notebook_peer", "peers",
            {**common, "name": table.name, "rows": str(work / "rows.npz"), "seconds": seconds},
        )  # fmt: skip
        rows = np.load(work / "rows.npz")
        predicted = {"detent": rows["detent"], **{name: np.load(work / f"{name}.npy") for name in theirs}}
        if table.metric == "accuracy":
            predicted = {name: as_labels(values) for name, values in predicted.items()}
        labels = [str(label) for label in rows["labels"]]
        truth = as_labels(rows["truth"]) if labels else rows["truth"]
        return Split(truth, as_labels(labels).tolist(), predicted), {"detent": ours, **theirs}


def as_labels(values: Any) -> Any:
    """Labels as text, equal whether they were read as whole numbers or not."""
    import numpy as np

    return np.array([str(value).removesuffix(".0") for value in values])


def models(names: Sequence[str], seeds: Sequence[int], python: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A line and figures for each table."""
    chosen = [table for table in TABLES if table.name in names]
    with tempfile.TemporaryDirectory(dir=environment.scratch()) as name:
        called(python, "notebook_peer", "tables", {"into": name, "names": [table.name for table in chosen]})
        for table in chosen:
            try:
                results = [measured(table, seed, Path(name), python) for seed in seeds]
            except (Failed, subprocess.TimeoutExpired) as problem:
                yield (
                    f"  {table.name:10} NOT MEASURED: {problem}",
                    {"table": table.name, "problem": str(problem)},
                )
                continue
            splits, details = [split for split, _ in results], [more for _, more in results]
            scores = {each: scored(table.metric, splits, each) for each in ("detent", "boosting", "flaml")}
            beside = {each: compared(table.metric, splits, each) for each in ("boosting", "flaml")}
            shown = "  ".join(f"{score:10.5g}" for score in scores.values())
            seconds = median(each["detent"]["seconds"] for each in details)
            line = (
                f"  {table.name:10}{table.metric:>9}  {shown}   over boosting {beside['boosting']};  "
                f"over FLAML {beside['flaml']};  {seconds:.0f} s"
            )
            figures = {each: {**value._asdict(), "verdict": value.verdict} for each, value in beside.items()}
            about = {"table": table.name, "metric": table.metric, "scores": scores, "details": details}
            yield line, {**about, **figures}


# -- overhead -----------------------------------------------------------------------------------------------


def through_the_command_line(csv: Path, table: Table, folder: Path, *options: str) -> tuple[float, Path]:
    """Run the flow as a user does; the seconds, and the notebook."""
    notebook = folder / "result.ipynb"
    command = [
        sys.executable, "-m", "detent", "run", "notebook", "--problem", table.problem, "--file", str(csv),
        "--out", str(notebook), "--deterministic", *options,
    ]  # fmt: skip
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    if not notebook.exists():
        raise Failed((done.stdout + done.stderr).strip().splitlines()[-1])
    return time.perf_counter() - begin, notebook


def plainly(notebook: Path, folder: Path) -> float:
    """The seconds that the notebook's cells take in a kernel, its start and end included."""
    from jupyter_client.manager import start_new_kernel

    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    shutil.copytree(notebook.parent / f"{notebook.stem}_files" / "assets", folder / "assets")
    begin = time.perf_counter()
    manager, client = start_new_kernel(
        kernel_name="python3", cwd=str(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for cell in cells:
            reply = client.execute_interactive("".join(cell["source"]), output_hook=lambda message: None)
            if reply["content"]["status"] != "ok":
                raise Failed(f"a cell raised {reply['content']['ename']}: {reply['content']['evalue']}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    return time.perf_counter() - begin


def overhead(quick: bool, python: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The flow's time over that of its cells alone, interleaved, and whether its score is the same."""
    table = next(table for table in TABLES if table.name == CLI)
    pairs, whole, score = [], 0.0, {}
    with tempfile.TemporaryDirectory(dir=environment.scratch()) as name:
        data = Path(name)
        called(python, "notebook_peer", "tables", {"into": name, "names": [table.name]})
        csv = data / f"{table.name}.csv"
        for number in range(1 if quick else 3):
            folder = data / str(number)
            (folder / "plain").mkdir(parents=True)
            flow, notebook = through_the_command_line(csv, table, folder, "--no-verify")
            pairs.append((flow, plainly(notebook, folder / "plain")))
            kept = notebook.parent / f"{notebook.stem}_files" / "outputs" / "metrics.json"
            score = json.loads(kept.read_text())["test_performance"]
        if not quick:
            (data / "whole").mkdir()
            whole, _ = through_the_command_line(csv, table, data / "whole")
        split, _ = measured(table, SEEDS[0], data, python)
    ratios = [flow / plain for flow, plain in pairs]
    ratio, cells = median(ratios), median(plain for _, plain in pairs)
    line = (
        f"  {table.name}: without verification {median(flow for flow, _ in pairs):.1f} s, its cells alone "
        f"in a kernel {cells:.1f} s: {ratio:.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    yield line, {"overhead": ratio, "pairs": pairs}
    if whole:
        line = (
            f"  {table.name}: with verification, which executes the cells again, {whole:.1f} s: "
            f"{whole / (2 * cells):.2f} times the cells alone twice"
        )
        yield line, {"overhead_verified": whole / (2 * cells)}
    here = scored(table.metric, [split], "detent")
    same = abs(score[table.metric] - here) <= 1e-9 * abs(here)
    line = (
        f"  {table.name}: hold-out {table.metric} {score[table.metric]:.6g} through the command line, "
        f"{here:.6g} in one process: {'EQUAL' if same else 'DIFFERENT'}"
    )
    yield line, {"equal": same}


def main(
    quick: bool = False, names: Sequence[str] = (), splits: int | None = None, with_overhead: bool = True
) -> list[dict[str, Any]]:
    """Print the figures, and return them."""
    print("\nnotebooks: the flow beside its cells alone, and its models beside others'")
    try:
        python = environment.ensure(PINNED, HOME)
    except (environment.NoPeers, OSError) as problem:
        print(f"  not measured: the others' environment could not be made ({problem})")
        return [{"workload": "notebook", "problem": str(problem)}]
    figures: list[dict[str, Any]] = []

    def show(lines: Iterator[tuple[str, dict[str, Any]]]) -> None:
        try:
            for line, found in lines:
                print(line, flush=True)
                figures.append(found)
        except (Failed, subprocess.TimeoutExpired) as problem:
            print(f"  NOT MEASURED: {problem}")
            figures.append({"problem": str(problem)})

    if with_overhead:
        show(overhead(quick, python))
    print(
        "\nnotebooks: hold-out score of the flow, boosting with its defaults, FLAML; ratio of errors, below "
        "1 the flow is ahead (noise: 95 % of bootstrap samples)"
    )
    names = names or (QUICK if quick else tuple(table.name for table in TABLES))
    show(models(names, SEEDS[: splits or (1 if quick else len(SEEDS))], python))
    behind = [each["table"] for each in figures if each.get("boosting", {}).get("verdict") == "BEHIND"]
    print(
        "  target: not behind boosting with its defaults by more than noise: "
        f"{'MISSED on ' + ', '.join(behind) if behind else 'met'}, "
        f"{sum('boosting' in each for each in figures)} of {len(names)} tables"
    )
    return [{"workload": "notebook", "figures": figures}]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.notebook", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", nargs="+", default=(), choices=[table.name for table in TABLES])
    parser.add_argument("--splits", type=int, choices=range(1, len(SEEDS) + 1))
    parser.add_argument("--no-overhead", action="store_true")
    options = parser.parse_args()
    main(options.quick, options.tables, options.splits, not options.no_overhead)
