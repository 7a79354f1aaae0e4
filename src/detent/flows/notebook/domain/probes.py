"""What the flow asks the kernel to find out whether a notebook's scores are true.

Each probe is one Python expression whose value is plain JSON. It is evaluated silently in the kernel, imports
public packages only, prints nothing and leaves neither names nor the state of random generators changed.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from detent.flows.notebook.domain import fold_scores, hold_out_check, leak_checks, scores
from detent.flows.notebook.domain.metric_words import LOWER_IS_BETTER
from detent.flows.notebook.domain.problem import MetricName, ProblemReading, Threshold

RUN = """
def run_quietly(function, names, arguments):
    import contextlib
    import io
    import random
    import warnings

    import numpy

    def plain(value):
        if isinstance(value, dict):
            return {str(name): plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, numpy.generic):
            value = value.item()
        if isinstance(value, float) and not numpy.isfinite(value):
            return None
        return value

    states = random.getstate(), numpy.random.get_state()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return plain(function(names, **arguments))
    except KeyError as error:
        return {"error": f"{error} is not in the kernel, or not in its table"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that keeps a score from being what it is called."""

    check: str
    text: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What a probe found."""

    scores: Mapping[str, float | None]
    findings: tuple[Finding, ...] = ()
    baseline: Mapping[str, float | None] | None = None
    """Scores of a model that knows no feature, in the same folds."""
    rows: int = 0
    error: str | None = None
    """Why the probe could not be run to its end."""

    @property
    def is_sound(self) -> bool:
        """Whether the scores may be judged."""
        return self.error is None and not self.findings


@dataclass(frozen=True, slots=True)
class Verdict:
    """A locked threshold, or the rule that stands for one, against what was measured."""

    metric: MetricName
    rule: str
    measured: float | None
    met: bool


def fingerprint_probe(name: str = "raw_dataset") -> str:
    """The expression whose value is a digest of a table in the kernel."""
    return _expression(
        (scores, hold_out_check), "(lambda names, name: fingerprint_of(names[name]))", {"name": name}
    )


def hold_out_probe(reading: ProblemReading, *, test_size: float = 0.2, fingerprint: str | None = None) -> str:
    """The expression that scores the hold-out again and checks that it is one.

    `fingerprint` is the value of `fingerprint_probe` when `raw_dataset` was first produced.
    """
    return _expression(
        (scores, hold_out_check),
        "check_hold_out",
        {
            "task": reading.task,
            "target": reading.target,
            "kind": reading.split.kind,
            "column": reading.split.column,
            "test_size": test_size,
            "metrics": sorted({threshold.metric for threshold in reading.thresholds}),
            "fingerprint": fingerprint,
        },
    )


def folds_probe(reading: ProblemReading, *, seed: int = 42) -> str:
    """The expression that cross-validates a clone of `final_model` on the training rows."""
    return _expression(
        (scores, fold_scores),
        "check_folds",
        {
            "task": reading.task,
            "target": reading.target,
            "kind": reading.split.kind,
            "column": reading.split.column,
            "seed": seed,
        },
    )


def leaks_probe(reading: ProblemReading) -> str:
    """The expression that looks for leaks again."""
    return _expression(
        (scores, hold_out_check, leak_checks),
        "check_leaks",
        {
            "task": reading.task,
            "target": reading.target,
            "kind": reading.split.kind,
            "keep": list(reading.keep),
        },
    )


def read_measured(value: Any) -> Measured:
    """What a probe's value says; a value that is none of a probe's is an error."""
    if not isinstance(value, Mapping):
        return Measured({}, error=f"the probe gave {type(value).__name__}, not a dictionary")
    if "error" in value:
        return Measured({}, error=str(value["error"]))
    findings = tuple(
        Finding(str(item["check"]), str(item["text"]), tuple(item.get("columns", ())))
        for item in (*value.get("findings", ()), *value.get("leaks", ()))
    )
    return Measured(
        scores=dict(value.get("scores", {})),
        findings=findings,
        baseline=dict(value["baseline"]) if "baseline" in value else None,
        rows=int(value.get("n", 0)),
    )


def primary_metric(reading: ProblemReading) -> MetricName:
    """The metric by which models are compared: the first with a threshold, else the task's own."""
    if reading.thresholds:
        return reading.thresholds[0].metric
    return "rmse" if reading.task == "regression" else "balanced_accuracy"


def verdicts(reading: ProblemReading, measured: Measured) -> tuple[Verdict, ...]:
    """Each locked threshold against measured scores; without any, the rule that the baseline is beaten."""
    if reading.thresholds:
        return tuple(_verdict(threshold, measured) for threshold in reading.thresholds)
    if measured.baseline is None:
        return ()
    metric = primary_metric(reading)
    score, baseline = measured.scores.get(metric), measured.baseline.get(metric)
    lower = metric in LOWER_IS_BETTER
    beats = score is not None and baseline is not None and (score < baseline if lower else score > baseline)
    return (Verdict(metric, f"{metric} better than the baseline's", score, measured.is_sound and beats),)


def _verdict(threshold: Threshold, measured: Measured) -> Verdict:
    score = measured.scores.get(threshold.metric)
    met = measured.is_sound and score is not None and threshold.met_by(score)
    return Verdict(threshold.metric, str(threshold), score, met)


# -- source -------------------------------------------------------------------------------------------------


def _expression(modules: Sequence[ModuleType], function: str, arguments: Mapping[str, Any]) -> str:
    """An expression that runs a function of some modules in a scope of its own."""
    source = "from __future__ import annotations\n" + RUN + "".join(map(_source, modules))
    call = f"{function}, names, {dict(arguments)!r}"
    return (
        f"(lambda names, scope: (exec({source!r}, scope), "
        f"eval({'run_quietly(' + call + ')'!r}, scope | {{'names': names}}))[1])"
        "(globals(), {'__name__': 'probe'})"
    )


@cache
def _source(module: ModuleType) -> str:
    """A module's source without its imports of Detent: those modules stand before it."""
    text = inspect.getsource(module)
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("detent", "__future__"):
            for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[line] = ""
    return "\n".join(lines) + "\n"
