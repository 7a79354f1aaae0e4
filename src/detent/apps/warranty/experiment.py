"""An experiment with the first step on live mail: the assignment of mails to arms, and the report.

The arm depends on the experiment's name and the thread alone, so an answer in a thread stays in its arm. The
arm is in the run's data, and the report is folded from journals.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from detent.apps.warranty.handlers import ASK
from detent.apps.warranty.settings import Arm, Experiment, WarrantySettings
from detent.apps.warranty.stats import FLOW, count_path, milliseconds, share
from detent.dispatch.autonomy import FallbackReason
from detent.engine.journal_reader import read, rows_of
from detent.engine.ports import RunQuery, RunRow, Store
from detent.evals.compare import TOO_FEW, Gap, newcombe
from detent.flows.playbook.instruction import DONE
from detent.insight.formatting import columns, money
from detent.insight.percentiles import Spread
from detent.insight.visits import visits
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.run import Run
from detent.kernel.run_config import STEPS
from detent.kernel.status import Status

DATA = "experiment"
"""Key of a run's data that holds its arm: `{name, arm}`."""
TAG = "experiment:"
"""Prefix of the tag of an experiment's runs."""


class Assigned(NamedTuple):
    """The arm of a mail and its configuration."""

    arm: str
    strategy: str | None
    data: dict[str, Any]
    config: dict[str, Any]
    tag: str


class Trial:
    """One experiment under way."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def arm_of(self, thread: str) -> str:
        """The arm of a thread: always the same one; arms are distributed by their shares."""
        raw = hashlib.sha256(f"{self.experiment.name}\n{thread}".encode("utf-8", "surrogatepass")).digest()
        at = int.from_bytes(raw[:8], "big") * 100 >> 64
        for name, arm in self.experiment.arms.items():
            if at < arm.share:
                return name
            at -= arm.share
        raise AssertionError("the shares of an experiment add up to 100")

    def assign(self, thread: str, config: Mapping[str, Any] | None = None) -> Assigned:
        """The arm of a thread; step configuration in `config` takes precedence over the arm's."""
        name = self.arm_of(thread)
        arm: Arm = self.experiment.arms[name]
        merged = dict(config or {})
        steps = {**arm.steps, **(merged.get(STEPS) or {})}
        if steps:
            merged[STEPS] = steps
        return Assigned(
            name,
            arm.strategy,
            {DATA: {"name": self.experiment.name, "arm": name}},
            merged,
            f"{TAG}{self.experiment.name}",
        )


def trial_for(settings: WarrantySettings) -> Trial | None:
    """The experiment the settings describe, if there is one."""
    experiment = settings.orchestration.router.experiment
    return Trial(experiment) if experiment is not None else None


# -- the report ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """The figures of the ended runs of one arm."""

    name: str
    runs: int
    done: int
    """Runs that ended in DONE."""
    asked: int
    """Runs in which the customer was asked for the serial number."""
    ends: Mapping[str, int]
    paths: Mapping[str, int]
    fallbacks: Mapping[str, int]
    """Steps in which the handler replaced the agent, by reason."""
    without_executor: int
    """Runs with such a step because no executor was available."""
    p50_ms: float | None
    p95_ms: float | None
    tokens: int
    cost_usd: float
    done_gap: Gap | None = None
    """Share of runs that ended in DONE, minus that of the first arm."""
    asked_gap: Gap | None = None

    @property
    def too_small(self) -> bool:
        """True when there are too few runs for a conclusion."""
        return self.runs < TOO_FEW

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "arm": self.name,
            "runs": self.runs,
            "too_small": self.too_small,
            "done": self.done,
            "asked_for_serial": self.asked,
            "ends": dict(self.ends),
            "paths": dict(self.paths),
            "fallbacks": dict(self.fallbacks),
            "runs_without_executor": self.without_executor,
            "p50_ms": self.p50_ms,
            "p95_ms": self.p95_ms,
            "tokens": self.tokens,
            "cost_usd": self.cost_usd,
            "done_difference": _gap(self.done_gap),
            "asked_difference": _gap(self.asked_gap),
        }


@dataclass(frozen=True, slots=True)
class TrialReport:
    """The arms of an experiment; the first is the baseline."""

    name: str
    arms: tuple[ArmFigures, ...]
    open: int = 0
    """Runs that have not ended or were cancelled; they are not counted."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "experiment": self.name,
            "arms": [arm.to_plain() for arm in self.arms],
            "not_counted": self.open,
        }

    def lines(self) -> list[str]:
        """For people."""
        return _lines(self)


@dataclass(slots=True)
class _Sums:
    runs: int = 0
    done: int = 0
    asked: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)
    without: int = 0
    ms: Spread = field(default_factory=Spread)
    tokens: int = 0
    cost_usd: float = 0.0

    def figures(self, name: str, base: ArmFigures | None) -> ArmFigures:
        return ArmFigures(
            name, self.runs, self.done, self.asked, dict(self.ends.most_common()),
            dict(self.paths.most_common()), dict(self.fallbacks.most_common()), self.without,
            self.ms.at(0.5), self.ms.at(0.95), self.tokens, self.cost_usd,
            newcombe(self.done, self.runs, base.done, base.runs) if base is not None else None,
            newcombe(self.asked, self.runs, base.asked, base.runs) if base is not None else None,
        )  # fmt: skip


async def report(
    store: Store, name: str, experiment: Experiment | None = None, since: float | None = None
) -> TrialReport:
    """The report of an experiment, arm by arm.

    Arms are in the order of the settings, `experiment`, if those still describe it.

    Raises:
        ConfigurationError: there is neither a run nor a setting of this name.
    """
    known = experiment if experiment is not None and experiment.name == name else None
    sums: dict[str, _Sums] = {arm: _Sums() for arm in known.arms} if known is not None else {}
    left, seen = 0, 0
    async for row in rows_of(store, RunQuery(flow=FLOW, tag=f"{TAG}{name}", since=since)):
        seen += 1
        if row.now.status.is_end and row.now.status is not Status.CANCELLED:
            await _add(store, row, sums)
        else:
            left += 1
    if not seen and known is None:
        described = [experiment.name] if experiment is not None else []
        hint = nearest(name, described) or (f" The settings describe '{described[0]}'." if described else "")
        raise ConfigurationError(f"There is no experiment '{name}': no run took part in one.{hint}")
    order = list(sums) if known is not None else sorted(sums)
    figures: list[ArmFigures] = []
    for arm in order:
        figures.append(sums[arm].figures(arm, figures[0] if figures else None))
    return TrialReport(name, tuple(figures), left)


async def _add(store: Store, row: RunRow, sums: dict[str, _Sums]) -> None:
    entries = [entry async for entry in read(store, row.id)]
    run = Run.fold(row.id, entries)
    arm = (run.data.get(DATA) or {}).get("arm") or "none"
    here = sums.setdefault(arm, _Sums())
    steps = visits(entries)
    here.runs += 1
    here.done += row.now.state == DONE
    here.asked += any(visit.step_name == ASK for visit in steps)
    here.ends[row.now.state if row.now.status is not Status.FAILED else "FAILED"] += 1
    count_path(here.paths, steps)
    reasons = [visit.fallback for visit in steps if visit.fallback is not None]
    here.fallbacks.update(reasons)
    here.without += FallbackReason.NO_EXECUTOR.value in reasons
    here.ms.add(run.seconds * 1000)
    here.tokens += run.total_spend.tokens
    here.cost_usd += run.total_spend.cost_usd


def _gap(gap: Gap | None) -> dict[str, float] | None:
    return None if gap is None else gap._asdict()


def _lines(report: TrialReport) -> list[str]:
    rows = [("arm", "runs", "done", "03d", "p50 ms", "p95 ms", "tokens", "cost")]
    for arm in report.arms:
        rows.append(
            (
                arm.name, f"{arm.runs:,}", share(arm.done, arm.runs), share(arm.asked, arm.runs),
                milliseconds(arm.p50_ms), milliseconds(arm.p95_ms), f"{arm.tokens:,}", money(arm.cost_usd),
            )
        )  # fmt: skip
    lines = [f"experiment {report.name}", *columns(rows, frozenset(range(1, 8)))]
    for arm in report.arms:
        if arm.too_small:
            lines.append(f"{arm.name}: too small ({arm.runs} of {TOO_FEW} runs)")
        for title, gap in (("done", arm.done_gap), ("03d", arm.asked_gap)):
            if gap is not None:
                lines.append(f"{arm.name} {title}, difference to {report.arms[0].name}: {gap}")
        for title, counts in (("ends", arm.ends), ("paths", arm.paths), ("fallbacks", arm.fallbacks)):
            if counts:
                each = (f"{name} {number} ({share(number, arm.runs)})" for name, number in counts.items())
                lines.append(f"{arm.name} {title}: {', '.join(each)}")
        if arm.without_executor:
            sentence = f"{arm.without_executor} of {arm.runs} runs had no model to ask (no_executor)"
            lines.append(f"{arm.name}: {sentence}")
    if report.open:
        lines.append(f"not counted: {report.open} under way or cancelled")
    return lines
