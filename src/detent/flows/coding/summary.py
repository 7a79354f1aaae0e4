"""What a request that was not finished says of itself, from its receipts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detent.flows.coding.request_data import RequestData

MOST_FILES, MOST_COMMANDS = 5, 3
LONGEST = 200

REASONS = {
    "unproductive": "the assistant neither called a tool nor marked the task as finished",
    "max_iterations": "the limit of turns was reached",
    "request_timeout": "the time limit was reached",
    "needs_model": "it takes a model",
    "needs_person": "a step failed",
    "model_failed": "the model gave no usable reply",
    "check_failed": "the check that tells whether it is done keeps failing",
    "context_full": "the conversation is too long for the model; a new request may go on",
}
WAYS_ON = 'Ways on: say "continue", narrow the task, or stop here.'


def incomplete_summary(reason: str, data: RequestData, results: Sequence[Mapping[str, Any]]) -> str:
    """What was done and what failed, and how to go on."""
    lines = [f"Not finished: {REASONS.get(reason, reason)}."]
    changed = data.files_changed
    if changed:
        more = f" and {len(changed) - MOST_FILES} more" if len(changed) > MOST_FILES else ""
        lines.append(f"Changed: {', '.join(changed[:MOST_FILES])}{more}.")
    commands = [
        str(call["args"].get("command", "")) if isinstance(call["args"], Mapping) else ""
        for turn in data.turns if turn["role"] == "assistant"
        for call in turn.get("tool_calls") or () if call["tool"] == "bash"
    ]  # fmt: skip
    if commands:
        shown = "; ".join(command.replace("\n", " ")[:LONGEST] for command in commands[-MOST_COMMANDS:])
        more = f" and {len(commands) - MOST_COMMANDS} before" if len(commands) > MOST_COMMANDS else ""
        lines.append(f"Commands: {shown}{more}. They may have changed more files.")
    failed = next((result for result in reversed(results) if not result["ok"]), None)
    if failed is not None:
        first = str(failed["content"]).strip().splitlines()[:1]
        lines.append(
            f"Last failure: {failed['tool']}: {first[0][:LONGEST] if first else failed.get('error')}"
        )
    if not changed and not commands:
        lines.append("Nothing was changed.")
    return "\n".join([*lines, WAYS_ON])
