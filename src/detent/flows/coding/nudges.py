"""Nudges: what the assistant is told with its next request when a reply did not bring the request further."""

from __future__ import annotations

from typing import NamedTuple

TEXTS = {
    "premature_marker": "You wrote TUNACODE DONE: beside tool calls. They have been run. Write it only in a "
    "reply without tool calls, when nothing is left to do.",
    "check_failed": "The task is not done: {command} ended with {code}. {output}",
    "marker_refused": "Your TUNACODE DONE: does not count: {why}. Finish with a line of its own that starts "
    "with it.",
    "repeated_call": "You made the same {tool} call {n} times. Its result does not change. Try something "
    "else.",
    "truncated": "Your reply was cut off. Continue from where it stopped.",
    "empty": 'Your reply was empty. The task: "{task}". Last tools: {tools}. Call one or finish with '
    "TUNACODE DONE:",
    "no_marker": "No tool was called and the task is not marked finished ({n} of {limit}). Call a tool, or "
    "finish with a line starting TUNACODE DONE: and a short summary.",
    "limit_near": "{left} turns are left. Finish, or say plainly what remains.",
}
"""The kinds in order of precedence: of several that fit, the first is sent."""

LONGEST_TASK = 200
LONGEST_OUTPUT = 1000


class Nudge(NamedTuple):
    """One nudge."""

    kind: str
    content: str


def premature_marker() -> Nudge:
    """The marker came beside tool calls."""
    return Nudge("premature_marker", TEXTS["premature_marker"])


def check_failed(command: str, code: object, output: str) -> Nudge:
    """The command that tells whether the request is done says no."""
    text = TEXTS["check_failed"].format(command=command, code=code, output=output[-LONGEST_OUTPUT:])
    return Nudge("check_failed", text)


def marker_refused(why: str) -> Nudge:
    """The marker's words do not count."""
    return Nudge("marker_refused", TEXTS["marker_refused"].format(why=why.rstrip(".")))


def repeated_call(tool: str, n: int) -> Nudge:
    """The same call was made again and again."""
    return Nudge("repeated_call", TEXTS["repeated_call"].format(tool=tool, n=n))


def truncated() -> Nudge:
    """The reply was cut off."""
    return Nudge("truncated", TEXTS["truncated"])


def empty(task: str, tools: list[str]) -> Nudge:
    """The reply has neither text nor calls."""
    text = TEXTS["empty"].format(task=task[:LONGEST_TASK], tools=", ".join(tools[-3:]) or "none")
    return Nudge("empty", text)


def no_marker(n: int, limit: int) -> Nudge:
    """The reply has text, no call and no marker."""
    return Nudge("no_marker", TEXTS["no_marker"].format(n=n, limit=limit))


def limit_near(left: int) -> Nudge:
    """Most turns are used."""
    return Nudge("limit_near", TEXTS["limit_near"].format(left=left))
