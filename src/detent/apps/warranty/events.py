"""Logs the events of a mail: each has a name, fields and a fixed text, and no text of the customer.

An observer logs what is in journals; queries, whose times journals do not hold, are logged when made.
The values themselves are logged at DEBUG only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

from detent.apps.warranty.intake_records import key_in
from detent.apps.warranty.results import ProcessingResult
from detent.engine import logger
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.tools import Tool, ToolError
from detent.kernel.entries import (
    AttemptFailed,
    Claimed,
    EffectDone,
    EffectFailed,
    Ended,
    Entry,
    Moved,
    Proposed,
    Started,
)
from detent.kernel.status import Status

LEGACY = "warranty-legacy"
"""Name of the flow of legacy mode."""

_CODE = re.compile(r"[a-z][a-z0-9_]*(?:-[a-z0-9_]+)*")
_FAILURE = re.compile(r"[\w.-]+ failed: \w+")


def short(step: str) -> str:
    """The number of a step, as shown in paths."""
    head, hyphen, _ = step.partition("-")
    return head if hyphen and head[:1].isdigit() else step


def path_of(steps: list[str]) -> str:
    """The steps of a mail in one line."""
    return " → ".join(short(step) for step in steps)


def orchestrator_of(flow: str) -> str:
    """The mode of a flow's runs: step or legacy."""
    return "legacy" if flow == LEGACY else "step"


def tell_events(engine: Engine, *flows: Flow) -> None:
    """Log the events of the runs of these flows from now on."""
    engine.add_observer(MailEvents(engine, flows))
    for flow in flows:
        flow.tells = False


class MailEvents:
    """Logs committed entries."""

    def __init__(self, engine: Engine, flows: tuple[Flow, ...]) -> None:
        self._engine = engine
        self._labels = {flow.name: labels_of(flow) for flow in flows}
        self._at: dict[str, str] = {}
        """The step each run is in."""
        self._tried: dict[tuple[str, str], int] = {}
        """Failed attempts at effects so far."""

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Log an entry."""
        if flow not in self._labels or not logger.wants(logger.ERROR):
            return
        with logger.about(**facts_of(run_id, flow)):
            body = entry.body
            if isinstance(body, Started):
                self._at[run_id] = body.state
            elif isinstance(body, Claimed):
                self._at[run_id] = self._state(run_id)
            elif isinstance(body, Proposed):
                self._at[run_id] = body.step
            elif isinstance(body, Moved):
                self._moved(flow, body)
                self._at[run_id] = body.to
            elif isinstance(body, AttemptFailed):
                self._attempt(body)
            elif isinstance(body, EffectDone):
                self._done(run_id, body)
            elif isinstance(body, EffectFailed):
                self._failed(run_id, body)
            elif isinstance(body, Ended):
                self._ended(body.status, self._at.get(run_id, ""), _plain(body.reason))
            if isinstance(body, Ended) or (isinstance(body, Moved) and body.status is not None):
                self._at.pop(run_id, None)

    def _moved(self, flow: str, body: Moved) -> None:
        label = self._labels[flow].get((body.frm, body.to))
        reason = _plain(body.reason, label)
        mode = "agent" if body.by == "agent" else "deterministic"
        if body.detail.get("fallback_used"):
            logger.warning("step.fallback", step=body.frm, reason=_plain(body.detail.get("fallback_reason")))
        logger.info(
            "step.transition", from_step=body.frm, to_step=body.to, reason=reason, mode=mode,
            message=f"Step transition: {body.frm} → {body.to} (reason: {reason or 'none'})",
        )  # fmt: skip
        ms = round(body.duration * 1000)
        logger.info(
            "step.completed", step=body.frm, ms=ms, mode=mode, attempts=body.attempt,
            tokens=body.spend.tokens, message=f"Step completed: {body.frm} ({ms}ms)",
        )  # fmt: skip
        self._output(body)
        if body.status is not None:
            self._ended(body.status, body.frm, reason)

    def _output(self, body: Moved) -> None:
        facts: dict[str, Any] = {"next_step": body.to}
        text = f"Step output: NEXT_STEP={body.to}"
        values = dict(facts)
        shown = text
        if "serial_number" in body.set:
            serial = body.set["serial_number"]
            facts["serial"], values["serial"] = "found" if serial else "none", serial or "none"
            text, shown = f"{text}, SERIAL={facts['serial']}", f"{shown}, SERIAL={values['serial']}"
        if body.set.get("ticket_id"):
            ticket = str(body.set["ticket_id"])
            facts["ticket_id"] = values["ticket_id"] = ticket
            text, shown = f"{text}, TICKET_ID={ticket}", f"{shown}, TICKET_ID={ticket}"
        logger.info("step.output", **facts, message=text)
        logger.debug("step.output", **values, message=shown)

    def _attempt(self, body: AttemptFailed) -> None:
        if body.retry_at is not None:
            logger.warning("step.retried", step=body.step, attempt=body.attempt, reason=_plain(body.error))

    def _done(self, run_id: str, body: EffectDone) -> None:
        attempts = self._tried.pop((run_id, body.key), 0) + 1
        if body.how != "reused":
            function_called(body.tool, "effect", self._step(run_id), body.duration * 1000, attempts)

    def _failed(self, run_id: str, body: EffectFailed) -> None:
        if body.retry_at is not None:
            self._tried[run_id, body.key] = body.attempts
            return
        self._tried.pop((run_id, body.key), None)
        function_failed(body.tool, "effect", self._step(run_id), None, body.attempts, body.code)

    def _ended(self, status: Status, step: str, reason: str | None) -> None:
        if status is Status.DEGRADED:
            logger.error("run.degraded", step=step, reason=reason)
        elif status not in (Status.SUCCEEDED, Status.CANCELLED):
            logger.error("run.failed", step=step, reason=reason)

    def _step(self, run_id: str) -> str:
        return self._at.get(run_id) or self._state(run_id)

    def _state(self, run_id: str) -> str:
        driver = self._engine.active.driver_of(run_id)
        return driver.run.state if driver is not None else ""


def facts_of(run_id: str, flow: str) -> dict[str, Any]:
    """The fields of every line about a run."""
    facts: dict[str, Any] = {"run_id": run_id, "orchestrator": orchestrator_of(flow)}
    key = key_in(run_id)
    return facts if key is None else {**facts, "mail_key": key}


def mail_completed(result: ProcessingResult) -> None:
    """Log the end of a mail's run."""
    steps = result.step_sequence
    logger.info(
        "mail.completed", mail_key=result.email_id, run_id=result.run_id, orchestrator=result.orchestrator,
        steps=len(steps), path=steps, status=result.status.value, end=result.end,
        ms=round(result.processing_time_ms), flags=result.flags,
        message=f"Email processing complete: {len(steps)} steps executed: "
        f"[{', '.join(short(step) for step in steps)}]",
    )  # fmt: skip


def function_called(name: str, kind: str, step: str, ms: float, attempts: int) -> None:
    """Log a function that returned."""
    logger.info(
        "function.called", function=name, kind=kind, step=step, ms=round(ms), attempts=attempts,
        message=f"Function called: {name} ({round(ms)}ms)",
    )  # fmt: skip


def function_failed(name: str, kind: str, step: str, ms: float | None, attempts: int, code: str) -> None:
    """Log a function that failed."""
    took = {} if ms is None else {"ms": round(ms)}
    logger.error(
        "function.failed", function=name, kind=kind, step=step, **took, attempts=attempts, code=_plain(code),
        message=f"Function failed: {name} ({_plain(code)})",
    )  # fmt: skip


# -- queries ------------------------------------------------------------------------------------------------


class _Caller(NamedTuple):
    """The step that makes a query."""

    facts: Mapping[str, Any]
    step: str
    attempt: int


_caller: ContextVar[_Caller | None] = ContextVar("warranty_asking", default=None)


def told(tool: Tool) -> Tool:
    """The tool; a query also logs how long its answers took. Effects are logged from journals."""
    if tool.kind != "query":
        return tool

    def given(ctx: StepContext) -> Mapping[str, Any]:
        # Called right before the query, in its task or in a parent of that task.
        _caller.set(_Caller(facts_of(ctx.run_id, ctx.flow), ctx.step.name, ctx.attempt))
        return tool.given(ctx) if tool.given is not None else {}

    async def perform(**args: Any) -> Any:
        asking = _caller.get()
        began = time.perf_counter()
        try:
            answer = await call(tool.perform, tool.off_loop, **args)
        except Exception as error:
            code = error.code if isinstance(error, ToolError) else type(error).__name__
            _log(
                asking, lambda step, tries: function_failed(tool.name, "query", step, _ms(began), tries, code)
            )
            raise
        _log(asking, lambda step, tries: function_called(tool.name, "query", step, _ms(began), tries))
        return answer

    return replace(tool, perform=perform, given=given, arguments=tool.schema, blocking=False)


def _log(asking: _Caller | None, say: Callable[[str, int], None]) -> None:
    if asking is None:
        say("", 1)
        return
    with logger.about(**asking.facts):
        say(asking.step, asking.attempt)


def _ms(began: float) -> float:
    return (time.perf_counter() - began) * 1000


# -- reasons ------------------------------------------------------------------------------------------------


def labels_of(flow: Flow) -> dict[tuple[str, str], str]:
    """The label of every edge, from the step files."""
    machine = flow.machine
    labels: dict[tuple[str, str], str] = {}
    for state in machine.states:
        for move in machine.moves.get(state, ()):
            if move.reason is not None:
                labels.setdefault((machine.named(state), machine.named(move.to)), move.reason)
    return labels


def _plain(reason: Any, label: str | None = None) -> str | None:
    """A reason if it is an edge's label or a code; the label or `other` for any other text."""
    if reason is None:
        return label
    text = str(reason)
    if text == label or _CODE.fullmatch(text) or _FAILURE.fullmatch(text):
        return text
    if re.fullmatch(r"[A-Za-z_]\w*", text):  # the name of a kind of error
        return text
    return label if label is not None else "other"
