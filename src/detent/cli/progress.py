"""Progress of runs: a line for each step of one run, or counts and a rate for many."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from detent.cli.live import LiveLines
from detent.cli.output import STATUS_COLOURS, clean, cut, is_terminal, paint, printable, say, status, width
from detent.insight.agent_text import fallback_words, performer_words
from detent.insight.effect_text import REVIEW, answer_text, skipped_text
from detent.insight.formatting import span
from detent.kernel.entries import AT_END_FAILED, CONFIRM, AttemptFailed, Held

if TYPE_CHECKING:
    from rich.console import RenderableType

    from detent.dispatch.executor import AgentStreamChunk
    from detent.kernel.entries import Entry
    from detent.kernel.machine import Machine


MISMATCH = "CassetteMismatch"
"""Name of the error for a request that differs from a recording."""


class StepLines(LiveLines):
    """Prints a line for every committed step of one run; on a terminal also the step in progress."""

    def __init__(self, run_id: str | None = None, machine: Machine[Any] | None = None) -> None:
        super().__init__()
        self.run_id = run_id
        """The run to show; None shows the first run that is observed."""
        self._widest = (
            max((width(machine.named(state)) for state in machine.states), default=0) if machine else 12
        )
        self._writing = ("", "")
        self.failure: str | None = None
        """The error of the last failed attempt that was shown."""
        self.asked: list[str] = []
        """Questions that were shown."""

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Show an entry of the run, if it has a line."""
        if self.run_id is None:
            self.run_id = run_id
        if run_id != self.run_id:
            return
        line = step_line(entry, self._widest)
        if line is not None:
            self.print(line)
            if isinstance(entry.body, AttemptFailed):
                self.failure = failure_text(entry.body)
            elif isinstance(entry.body, Held):
                self.asked.append(entry.body.question)
        doing = under_way(entry)
        if doing is not None:
            self.show_under_way(doing)

    def on_stream(self, run_id: str, flow: str, step: str, chunk: AgentStreamChunk) -> None:
        """Show the end of an agent's streamed text beside the step in progress."""
        if not self.is_live or (self.run_id is not None and run_id != self.run_id):
            return
        if step != self._writing[0] or chunk.chunk_type == "thinking":
            self._writing = (step, "")
        self._writing = (step, (self._writing[1] + chunk.text)[-400:])
        shown = " ".join(clean(self._writing[1]).split())[-60:]
        self.show_under_way(f"{step}  {shown}")


def under_way(entry: Entry) -> str | None:
    """The state being worked on after an entry; empty when there is none, None when nothing changed."""
    body: Any = entry.body
    kind = entry.kind
    if kind == "started" or kind == "migrated" or kind == "reopened":
        return str(body.state)
    if kind == "moved":
        return "" if body.status is not None else str(body.to)
    return "" if kind in ("held", "ended") else None


def step_line(entry: Entry, widest: int = 12) -> str | None:
    """An entry in one line; None for entries that progress leaves out."""
    body: Any = entry.body
    kind = entry.kind
    if kind == "moved":
        to = clean(body.to)
        end = body.status.value if body.status is not None else ""
        return _line(
            body.frm,
            "→",
            status(end, to) if end else to,
            width(to),
            span(body.duration),
            " · ".join(part for part in (performed_by(body), *further_by(body), body.reason) if part),
            widest,
        )
    if kind == "noted" and body.topic == "autonomy.demoted":
        message = f"{body.body['step']} goes down to {body.body['level']}: {body.body['why']}"
        return _line("", "↓", "", 0, "", message, widest)
    if kind == "noted" and body.topic == AT_END_FAILED:
        return _line("", "✗", "", 0, "", f"nothing was performed at its end: {body.body['error']}", widest)
    if kind == "attempt_failed":
        again = "" if body.retry_at is None else f"; again in {span(max(0.0, body.retry_at - entry.at))}"
        text = failure_text(body)
        if body.error == MISMATCH:  # printed as a whole at the end
            text = text.partition("\n")[0]
        message = f"attempt {body.attempt}: {text}{again}"
        return _line(body.step, "✗", "", 0, span(body.duration), message, widest)
    if kind == "effect_failed" and body.retry_at is not None:
        message = (
            f"{body.tool}: {body.message or body.code}; again in {span(max(0.0, body.retry_at - entry.at))}"
        )
        return _line("", "✗", "", 0, "", message, widest)
    if kind == "effect_skipped" and body.instead is None:
        return _line("", "·", "", 0, "", f"{body.tool} {skipped_text(body)}", widest)
    if kind == "held" and body.why not in ("children",):
        message = body.question or f"waits for {body.why} '{body.name}'"
        return _line("", "…", "", 0, "", message, widest)
    if kind == "called_off":
        return _line("", "·", "", 0, "", f"{body.by} called it off; its step is settled first", widest)
    if kind == "released" and body.name.startswith("effect:"):
        return _line("", "·", "", 0, "", f"{body.by} settled the effect: {body.answer}", widest)
    if kind == "released" and body.name.startswith(f"{REVIEW}:"):
        return _line("", "·", "", 0, "", f"{body.by} has decided on the draft", widest)
    if kind == "released" and body.name != "children":
        name = "" if body.name.startswith(f"{CONFIRM}:") else f" '{body.name}'"
        message = f"{body.by} answered{name}" + (
            "" if body.answer is None else f": {answer_text(body.answer)}"
        )
        return _line("", "·", "", 0, "", message, widest)
    if kind == "claimed":
        return _line("", "·", "", 0, "", "taken over from a worker that died", widest)
    if kind == "ended":
        ended = body.status.value
        reason = body.reason if body.reason and body.reason != ended else ""
        return _line("", "■", status(ended), width(ended), "", reason, widest)
    return None


def failure_text(body: Any) -> str:
    """The error of a failed attempt, formatted like a run's error."""
    return f"{body.error}: {body.message}" if body.message else str(body.error)


def performed_by(body: Any) -> str:
    """Who performed a step; empty for an ordinary handler's step."""
    detail = {**body.detail, "mode_used": "agent"} if body.by == "agent" else body.detail
    return performer_words(detail, body.spend.tokens)


def further_by(body: Any) -> list[str]:
    """Who performed the further steps of a visit, where agents were to."""
    told = []
    for record in body.detail.get("then", ()):
        name = str(record.get("step")).rpartition("/")[2]
        if record.get("fallback_used"):
            told.append(f"then {name} by the handler, not the agent: {fallback_words(record)}")
        elif record.get("mode_used") == "agent":
            told.append(f"then {name} by the agent ({record.get('autonomy_level', '')})")
    return told


def _line(frm: str, sign: str, to: str, to_width: int, took: str, message: str, widest: int) -> str:
    start = clean(frm)
    start += " " * (widest - width(start))
    mark = paint(sign, {"✗": "red", "…": "yellow", "↓": "yellow"}.get(sign), dim=sign in "→·")
    gap = " " * (widest - to_width)
    return f"  {start} {mark} {to}{gap}  {took:>9}  {paint(clean(message), dim=True)}".rstrip()


class BatchProgress:
    """Counts of many runs by status and state, with a rate."""

    EVERY = 2.0
    """Seconds between lines without a terminal."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.ended: Counter[str] = Counter()
        """Runs by the status they ended or wait with."""
        self.states: Counter[str] = Counter()
        """Runs under way by state."""
        self.steps = 0
        self._where: dict[str, str] = {}
        self._began = time.monotonic()
        self._said = self._began
        self._live: Any = None

    def __enter__(self) -> BatchProgress:
        if is_terminal():
            from rich.live import Live

            self._live = Live(get_renderable=self._render, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Count an entry. Children are part of their parents and not counted."""
        if "." in run_id and run_id not in self._where:
            return
        doing = under_way(entry)
        if entry.kind == "moved":
            self.steps += 1
        if doing is not None:
            before = self._where.pop(run_id, None)
            if before is not None:
                self.states[before] -= 1
            if doing:
                self._where[run_id] = doing
                self.states[doing] += 1
        if self._live is None and time.monotonic() - self._said >= self.EVERY:
            self._said = time.monotonic()
            say(self.line())

    def done(self, status: str) -> None:
        """Count a run that ended or waits."""
        self.ended[status] += 1

    def counts(self) -> str:
        """Counts by status, coloured."""
        shown = [name for name in STATUS_COLOURS if self.ended[name]]
        return ", ".join(status(name, f"{self.ended[name]:,} {name.replace('_', ' ')}") for name in shown)

    def line(self) -> str:
        """All counts in one line."""
        through = sum(self.ended.values())
        rate = through / self.seconds if self.seconds else 0.0
        parts = [f"{through:,} of {self.total:,}", self.counts(), f"{rate:,.0f} runs/s" if rate >= 10 else ""]
        return " · ".join(part for part in parts if part)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        through = sum(self.ended.values())
        head = Table.grid(padding=(0, 2))
        head.add_row(ProgressBar(self.total, through, width=40), Text.from_ansi(printable(self.line())))
        busy = [(state, number) for state, number in Counter(dict(self.states)).most_common(6) if number > 0]
        where = ", ".join(f"{clean(state)} {number:,}" for state, number in busy)
        return Group(head, Text(cut(f"under way: {where}" if where else "", 98), style="dim"))
