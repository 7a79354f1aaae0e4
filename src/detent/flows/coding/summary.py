"""What a request that was not finished says of itself, from its receipts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from detent.dispatch.executor_errors import MisconfiguredError
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
OTHER_WAYS_ON = {
    "needs_model": 'Ways on: set a model with --model or in the settings, or ask for what "help" lists.',
    "needs_person": "Ways on: correct the request, or what is in its way, and ask again.",
    "model_failed": 'Ways on: say "continue" once the model answers, or choose another with --model.',
}
"""Ways on where going on at once cannot help, by reason."""
MISCONFIGURED = (
    'Ways on: correct the settings of the model, or choose another with --model; then say "continue".'
)
TESTS = (
    "tests/*",
    "*/tests/*",
    "test_*",
    "*/test_*",
    "*_test.*",
    "*.test.*",
    "*.spec.*",
    "conftest.py",
    "*/conftest.py",
)


def incomplete_summary(reason: str, data: RequestData, results: Sequence[Mapping[str, Any]]) -> str:
    """What was done and what failed, and how to go on."""
    lines = [f"Not finished: {REASONS.get(reason, reason)}."]
    cause = data.current.get("cause") or {}
    if cause.get("message"):
        lines.append(f"Cause: {' '.join(str(cause['message']).split())}")
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
    misconfigured = cause.get("error") == MisconfiguredError.__name__
    lines.append(MISCONFIGURED if misconfigured else OTHER_WAYS_ON.get(reason, WAYS_ON))
    return "\n".join(lines)


def edited_tests(files: Sequence[str]) -> list[str]:
    """Changed files that look like tests: a check they take part in proves less."""
    return [
        file for file in files
        if any(fnmatch(file, pattern) or fnmatch(PurePosixPath(file).name, pattern) for pattern in TESTS)
    ]  # fmt: skip
