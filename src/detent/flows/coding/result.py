"""The result of a request, for whoever asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from detent.flows.coding.conversation import text_of
from detent.flows.coding.request_data import RequestData
from detent.insight.formatting import money
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.kernel.run import Run


@dataclass(frozen=True, slots=True)
class CodingResult:
    """How a request ended, or what it waits for."""

    outcome: str
    """completed, incomplete, budget_exhausted, waiting, cancelled, failed, or interrupted."""
    reason: str | None
    text: str
    """The reply without the marker; of a request that is not finished, a summary of what was done."""
    summary: str
    checked: str
    """Whether a command confirmed that it is done: passed, skipped, none or failed."""
    state: str
    iterations: int
    tool_calls: int
    premature_count: int
    """Markers beside tool calls."""
    refused_count: int
    """Markers that the check refused."""
    usage: Mapping[str, Any]
    session_id: str | None
    run_id: str
    files_changed: tuple[str, ...]
    commands_run: int = 0
    tests_edited: tuple[str, ...] = ()
    """Changed files that look like tests, where a check passed: it proves less then."""

    over_budget: str | None = None
    """The limit of its budget that it has passed, by its last reply, say: `100 tokens`."""

    @property
    def done(self) -> bool:
        """Whether the request was completed."""
        return self.outcome == "completed"

    def to_plain(self) -> dict[str, Any]:
        """For `--json`."""
        plain = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


async def result_of(engine: Engine, run_id: str) -> CodingResult:
    """The result of a run as it stands."""
    run = await engine.get(run_id)

    async def kept(reference: Mapping[str, Any]) -> bytes | None:
        return await engine.store.blob(reference["$blob"])

    text = await text_of(run.data.get("text"), kept)
    return read_result(run, text)


def read_result(run: Run, text: str) -> CodingResult:
    """The result that a run's data hold."""
    data = RequestData(run.data)
    outcome, reason = _outcome(run)
    spend = run.total_spend
    usage = {name: getattr(spend, name) for name in ("input_tokens", "output_tokens", "cost_usd")}
    return CodingResult(
        outcome, reason, text, str(run.data.get("summary") or ""), str(run.data.get("checked") or "none"),
        run.state, data.counter("iterations"), data.counter("tool_calls"), data.counter("premature"),
        data.counter("refused"),
        usage,
        data.session, run.id, tuple(data.files_changed), data.commands_run,
        tuple(run.data.get("tests_edited") or ()), _over_budget(run),
    )  # fmt: skip


def _over_budget(run: Run) -> str | None:
    """The limit that a run has passed, in words."""
    used = run.used()
    limit = None if run.budget is None else run.budget.exceeded(used)
    if limit is None or used[limit] == (allowed := getattr(run.budget, limit)):
        return None
    return money(allowed) if limit == "cost_usd" else f"{allowed:,} {limit}"


def _outcome(run: Run) -> tuple[str, str | None]:
    """The outcome in the words of requests, and why."""
    if run.status is Status.RUNNING:
        return "interrupted", None
    if run.status is Status.WAITING:
        hold = next(iter(run.holds.values()), None)
        return "waiting", None if hold is None else hold.why
    if run.status is Status.BUDGET_EXHAUSTED:
        return "budget_exhausted", run.reason
    if run.status is Status.CANCELLED:
        return "cancelled", run.reason
    own = run.data.get("outcome")
    if own in ("completed", "incomplete"):
        return own, run.data.get("outcome_reason")
    return "failed", run.error or run.reason
