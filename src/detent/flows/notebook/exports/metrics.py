"""Metrics as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from detent.kernel.plain import writable


def metric_rows(metrics: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and values; of metrics inside others the names are joined."""
    rows: list[tuple[str, str]] = []
    for name, value in metrics.items():
        label = f"{prefix}{writable(str(name))}"
        if isinstance(value, Mapping):
            rows.extend(metric_rows(value, f"{label} · "))
        else:
            rows.append((label, metric_text(value)))
    return rows


def metric_text(value: Any) -> str:
    """A metric as people read it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(metric_text, value))
    return writable(str(value))
