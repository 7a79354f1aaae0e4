"""What a request that was not finished says of itself, from its receipts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from detent.dispatch.executor_errors import MisconfiguredError
from detent.flows.coding.explicit_assistant import NEEDS_MODEL
from detent.flows.coding.grammar import misfit
from detent.flows.coding.nudges import Nudge
from detent.flows.coding.request_data import RequestData
from detent.insight.formatting import count

NOT_RUN = frozenset({
    "denied", "invalid_arguments", "unknown_tool", "too_many_calls", "cancelled", "failed",
})  # fmt: skip
"""Errors of commands that were not run."""
_CHECK = re.compile(r"The task is not done: (.*? ended with \S+)\. ", re.DOTALL)
_NOTE = re.compile(r"\[.*\]")
MOST_FILES, MOST_COMMANDS = 5, 3
LONGEST = 200

REASONS = {
    "unproductive": "reply after reply made no new call and had no marker that counts",
    "max_iterations": "the limit of turns was reached",
    "request_timeout": "the time limit was reached",
    "needs_model": "it takes a model",
    "needs_person": "a step failed",
    "model_failed": "the model gave no usable reply",
    "check_failed": "the check that tells whether it is done keeps failing",
    "context_full": "the conversation is too long for the model; a new request may go on",
}
WAYS_ON = 'Ways on: say "continue", narrow the task, or stop here.'
OTHER_WAYS_ON = {
    "needs_model": "Ways on: set a model with --model or in the settings, or ask for what is understood "
    "without one: detent run coding help.",
    "needs_person": "Ways on: correct the request, or what is in its way, and ask again.",
    "model_failed": 'Ways on: say "continue" once the model answers, or choose another with --model.',
}
"""Ways on where going on at once cannot help, by reason."""
MISCONFIGURED = (
    'Ways on: correct the settings of the model, or choose another with --model; then say "continue".'
)


def incomplete_summary(
    reason: str, data: RequestData, results: Sequence[Mapping[str, Any]], refused: Nudge | None = None
) -> str:
    """What was done and what failed, and how to go on; `refused` is of the check that failed just now."""
    lines = [f"Not finished: {REASONS.get(reason, reason)}."]
    cause = data.current.get("cause") or {}
    if cause.get("message"):
        lines.append(f"Cause: {' '.join(str(cause['message']).split())}")
    if reason == NEEDS_MODEL and (why := misfit(data.prompt)) is not None:
        lines.append(why)
    changed = data.files_changed
    if changed:
        more = f" and {len(changed) - MOST_FILES} more" if len(changed) > MOST_FILES else ""
        lines.append(f"Changed: {', '.join(changed[:MOST_FILES])}{more}.")
    commands = list(_commands_run(data))
    by_tasks = data.commands_run - len(commands)
    if commands:
        shown = "; ".join(command.replace("\n", " ")[:LONGEST] for command in commands[-MOST_COMMANDS:])
        more = f" and {len(commands) - MOST_COMMANDS} before" if len(commands) > MOST_COMMANDS else ""
        lines.append(f"Commands: {shown}{more}. They may have changed more files.")
    elif by_tasks > 0:
        lines.append(f"Tasks have run {count(by_tasks, 'command')}, which may have changed more files.")
    if data.further_effects:
        lines.append(f"Also called: {', '.join(data.further_effects)}. That may have changed more elsewhere.")
    if (failure := _last_failure(data, results, refused)) is not None:
        lines.append(f"Last failure: {failure}")
    if not commands and not data.has_acted:
        lines.append("Nothing was changed.")
    misconfigured = cause.get("error") == MisconfiguredError.__name__
    lines.append(MISCONFIGURED if misconfigured else OTHER_WAYS_ON.get(reason, WAYS_ON))
    return "\n".join(lines)


def _commands_run(data: RequestData) -> Iterator[str]:
    """The commands that were run, or may have been, as they were run."""
    asked: dict[str, Any] = {}
    for turn in data.turns:
        for call in turn.get("tool_calls") or ():
            asked[call["id"]] = call["args"]
        if turn["role"] != "tool" or turn["tool"] != "bash" or turn.get("repeated"):
            continue
        args = asked.get(turn["tool_call_id"])
        if isinstance(args, Mapping) and turn.get("error") not in NOT_RUN:
            yield str({**args, **(turn.get("changed") or {})}.get("command", ""))


def _last_failure(
    data: RequestData, results: Sequence[Mapping[str, Any]], refused: Nudge | None
) -> str | None:
    """The failed check or call that was the last, on one line."""
    if refused is not None:
        return _check_words(refused.content)
    whole = {result["tool_call_id"]: result for result in results}
    for turn in reversed(data.turns):
        if turn["role"] == "nudge" and turn["kind"] == "check_failed":
            return _check_words(str(turn["content"]))
        if turn["role"] == "tool" and not turn["ok"]:
            content = whole.get(turn["tool_call_id"], {}).get("content")
            lines = [line for line in str(content or "").splitlines() if line.strip()] or [
                str(turn.get("error"))
            ]
            # A command's last words, and how it ended; other tools begin with what is wrong.
            told = " ".join(lines[-2:]) if turn["tool"] == "bash" else lines[0]
            return f"{turn['tool']}: {told.strip()[:LONGEST]}"
    return None


def _check_words(nudge: str) -> str:
    """A failed check as its nudge tells of it: the command, its code, the last line of its output."""
    said = _CHECK.match(nudge)
    if said is None:
        return nudge.splitlines()[0][:LONGEST]
    output = [line.strip() for line in nudge[said.end() :].splitlines()]
    last = next((line for line in reversed(output) if line and not _NOTE.fullmatch(line)), "")
    return f"the check {said[1][:LONGEST]}{f': {last[:LONGEST]}' if last else ''}"
