"""Transitions of requests as they are made: as JSON, a line each, with the result last; and in the log."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from detent.cli.output import iso
from detent.engine import logger
from detent.flows.coding.request_data import RequestData
from detent.kernel.control_characters import json_shown
from detent.kernel.entries import Moved

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.flows.coding.result import CodingResult
    from detent.kernel.entries import Entry
    from detent.kernel.run import Run


class TransitionLog:
    """Observes requests and the runs below them: logs every transition, for `--log-level debug`."""

    def __init__(self, flow: str) -> None:
        self._flow = flow

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Log a transition."""
        move = entry.body
        if run.flow == self._flow and isinstance(move, Moved):
            logger.debug(
                "request.moved", run_id=run.id, frm=move.frm, to=move.to, reason=move.reason,
                turn=RequestData(run.data).counter("iterations"), duration_s=round(move.duration, 3),
            )  # fmt: skip


class TransitionLines(AbstractContextManager["TransitionLines"]):
    """Observes requests and the runs below them: prints an object for each transition."""

    def __init__(self, flow: str) -> None:
        self._flow = flow

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open."""

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Print a transition."""
        move = entry.body
        if run.flow != self._flow or not isinstance(move, Moved):
            return
        say_line({
            "event": "transition", "run_id": run.id, "session_id": RequestData(run.data).session,
            "at": iso(entry.at), "from_state": move.frm, "to_state": move.to,
            "reason": move.reason, "turn": RequestData(run.data).counter("iterations"),
            "duration_seconds": round(move.duration, 6), "tokens_consumed": move.spend.tokens,
        })  # fmt: skip


async def result_object(engine: Engine, result: CodingResult) -> dict[str, Any]:
    """The result as the last line; of a request that waits, with its questions and their tokens."""
    from detent.cli.run_status import holds_plain
    from detent.flows.coding.terminal.questions import open_questions

    plain = {"event": "result", **result.to_plain()}
    if result.outcome == "waiting":
        questions = await open_questions(engine, await engine.get(result.run_id))
        runs = {question.run.id: question.run for question in questions}
        plain["holds"] = [{"run_id": run.id, **hold} for run in runs.values() for hold in holds_plain(run)]
    return plain


def say_line(value: Any) -> None:
    """Print a value as JSON on one line."""
    print(json_shown(json.dumps(value, ensure_ascii=False, allow_nan=False)), flush=True)
