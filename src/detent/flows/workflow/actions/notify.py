"""Actions that tell people something: in the run's record, or outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from detent.engine.context import StepContext
from detent.engine.step_failures import StepFailed
from detent.flows.workflow.registry import action
from detent.kernel.errors import nearest

LEVELS = ("info", "success", "warning", "error")


def _level(said: Any) -> str:
    """A level there is."""
    if said not in LEVELS:
        raise StepFailed(
            f"There is no level '{said}'.{nearest(str(said), LEVELS)} Levels: {', '.join(LEVELS)}."
        )
    return str(said)


def _message(inputs: Mapping[str, Any]) -> tuple[str, str]:
    """What is left in the record, whoever performs the step."""
    return str(inputs["message"]), _level(inputs.get("level", "info"))


class Logged(TypedDict):
    logged: bool


class Notified(TypedDict):
    channel: Literal["file", "webhook"]
    delivered_at: str


@action(
    "log_message",
    intent="Leave one message in the run's record for the people who read it.",
    output_schema=Logged,
    tells=_message,
)
async def log_message(message: str, level: str = "info") -> Logged:
    """Leave a message: info, success, warning or error."""
    _level(level)
    return {"logged": True}


@action(
    "notify",
    intent="Tell the people concerned, once, what happened.",
    effects=["notify.send"],
    output_schema=Notified,
    max_autonomy="consultant",
)
async def notify(
    ctx: StepContext, message: str, title: str = "", channel: Literal["file", "webhook"] = "file"
) -> dict[str, Any]:
    """Leave a notice in a file of its own, or send it to the web hook of the settings."""
    done = ctx.propose("notify.send", message=message, title=title, channel=channel)
    return {"channel": channel, "delivered_at": done.delivered_at}
