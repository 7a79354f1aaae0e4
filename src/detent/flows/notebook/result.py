"""The result of a run as plain values: how it ended, what was reached, where the files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detent.flows.notebook.delivery import places
from detent.flows.notebook.finished import metrics_of, scores_of
from detent.flows.notebook.history import position
from detent.flows.notebook.run_view import VERIFIED, WHY_FAILED, NotebookRun
from detent.kernel.run import Run


def result_of(run: Run) -> dict[str, Any]:
    """The result of a run, ended or not."""
    view = NotebookRun(run.data)
    document = position(run)
    verified = run.data.get(VERIFIED)
    return {
        "run_id": run.id,
        "status": run.status.value,
        "state": document.fsm.state.value,
        "reason": run.data.get(WHY_FAILED) or run.reason,
        "target": view.reading.target,
        "task": view.reading.task,
        "thresholds": [str(threshold) for threshold in view.reading.thresholds],
        "locked": dict(view.state.ledger.locked),
        "missed": dict(view.state.ledger.missed),
        "location": document.location.model_dump(mode="json"),
        "metrics": metrics_of(view).to_plain(),
        "scores": scores_of(view),
        "verified": None if verified is None else bool(verified.get("passed")),
        "cells": len(view.live),
        "work": str(view.work),
        "notebook": None if view.options.out is None else str(places(Path(view.options.out)).notebook),
    }
