"""Plain-text tables and verdicts, and the same as JSON."""

from typing import Any

from benchmarks.plan import OURS, Medians, Undecided, Workload
from benchmarks.runner import Outcome


def medians_of(outcomes: dict[str, Outcome]) -> Medians:
    """Return the medians of those who finished every repeat."""
    return {
        name: outcome.medians() for name, outcome in outcomes.items() if not outcome.problem and outcome.runs
    }


def verdicts(workload: Workload, medians: Medians, quick: bool) -> list[dict[str, Any]]:
    """Judge each target in words: met, missed, or why it was not judged."""
    judged: list[dict[str, Any]] = []
    for target in workload.targets:
        try:
            met, measured = target.check(medians)
        except Undecided as reason:
            judged.append({"target": target.words, "verdict": "NOT JUDGED", "measured": str(reason)})
            continue
        note = f"{measured} (quick sizes, indicative only)" if quick and not workload.full_only else measured
        judged.append({"target": target.words, "verdict": "MET" if met else "MISSED", "measured": note})
    return judged


def ratio(value: float, base: Medians, name: str | None) -> str:
    """Show a time as a multiple of someone's, or a dash where there is none."""
    if name is None or name not in base or base[name]["seconds"] <= 0:
        return "-"
    return f"{value / base[name]['seconds']:.2f}x"


def row(workload: Workload, name: str, outcome: Outcome, medians: Medians) -> list[str]:
    """Build the row of one contestant that finished."""
    own = medians[name]
    spread = [run["seconds"] for run in outcome.runs]
    cells = [name, f"{own['seconds']:.4f}", f"{min(spread):.4f}-{max(spread):.4f}"]
    if workload.rate:
        cells.append(f"{own['n'] / own['seconds']:,.0f}")
    cells.append(ratio(own["seconds"], medians, OURS))
    if workload.floor:
        cells.append(ratio(own["seconds"], medians, workload.floor))
    return cells + [column.cell(name, medians) for column in workload.columns]


def table(workload: Workload, outcomes: dict[str, Outcome], medians: Medians) -> str:
    """Lay out one workload as text, those without a figure included."""
    heading = ["", "median s", "range s"]
    heading += [workload.rate] if workload.rate else []
    heading += ["time/detent"]
    heading += [f"time/{workload.floor}"] if workload.floor else []
    heading += [column.heading for column in workload.columns]
    rows = [heading]
    rows += [row(workload, name, outcome, medians) for name, outcome in outcomes.items() if name in medians]
    widths = [max(len(cells[index]) for cells in rows) for index in range(len(heading))]
    lines = []
    for cells in rows:
        first = cells[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        lines.append("  ".join(["  " + first, *rest]).rstrip())
    lines.insert(1, "  " + "-" * (sum(widths) + 2 * (len(widths) - 1)))
    lines += [f"  {name}: {outcome.problem}" for name, outcome in outcomes.items() if outcome.problem]
    lines += [f"  not taking part: {reason}" for reason in workload.absent]
    return "\n".join(lines)


def scale_growth(results: dict[str, Medians]) -> str | None:
    """Say how the answers of the scale workload grew from the small store to the large one."""
    small = results.get("scale-small", {}).get(OURS)
    large = results.get("scale-large", {}).get(OURS)
    if not small or not large:
        return None
    keys = [key for key in small if key not in ("seconds", "n") and small[key] > 0]
    times = large["n"] / small["n"]
    parts = ", ".join(f"{key} {large[key] / small[key]:.1f}x" for key in keys)
    return f"growth from {small['n']:,.0f} to {large['n']:,.0f} runs ({times:.0f}x): {parts}"
