"""A whole run by code on a table of classes. `test_flow` has the same for numbers, with more to say."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pytest

from detent.flows.notebook.delivery import deliver
from detent.flows.notebook.result import result_of
from detent.flows.notebook.run_view import RunOptions
from detent.flows.notebook.start import Beginning, start_notebook
from detent.kernel.status import Status
from tests.flows.notebook.samples import running


def write_flowers(file: Path) -> Path:
    """Ninety flowers of three kinds that overlap somewhat."""
    numbers = random.Random(4)
    with file.open("w", newline="", encoding="utf-8") as table:
        writer = csv.writer(table)
        writer.writerow(["petal", "stem", "soil", "kind"])
        for _ in range(90):
            place = numbers.randrange(3)
            petal, stem = place + numbers.gauss(0, 0.35), numbers.gauss(20, 4)
            soil = numbers.choice(["clay", "sand"])
            writer.writerow([round(petal, 2), round(stem, 1), soil, ("aster", "iris", "rose")[place]])
    return file


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_table_of_classes_ends_complete_with_model_charts_and_card(tmp_path):
    """N-92."""
    begun = Beginning(
        "Classify the kind of flower; accuracy of at least 60%", [write_flowers(tmp_path / "flowers.csv")],
        tmp_path / "work", options=RunOptions(),
    )  # fmt: skip
    async with running(tmp_path) as engine:
        run = await engine.finish(await start_notebook(engine, begun))
        await deliver(engine.store, run, tmp_path / "out")
    assert (run.status, run.state) == (Status.SUCCEEDED, "WORKFLOW_COMPLETE"), result_of(run)
    result = result_of(run)
    assert (result["target"], result["task"], result["verified"]) == ("kind", "classification", True)
    assert result["locked"]
    assert all(result["locked"].values())
    out = tmp_path / "out"
    assert (out / "models" / "model.pkl").stat().st_size > 0
    assert len(list((out / "outputs" / "eda").glob("*.png"))) >= 6
    assert "Limitations" in (out / "outputs" / "model_card.md").read_text(encoding="utf-8")
    metrics = json.loads((out / "outputs" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["test_performance"]["accuracy"] >= 0.6
