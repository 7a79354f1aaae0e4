"""Watches the replies of a request as a rule of completion gets them: when was its goal reached?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from detent.dispatch.conversation import ModelAnswer
from detent.dispatch.executor import ReplyRequest
from detent.flows.coding.measure.scenario import Scenario
from detent.flows.coding.measure.script import prompt_of
from detent.flows.coding.reply_text import own_text


class RuleRun(NamedTuple):
    """How a scenario went under a rule."""

    completed_at: int | None
    """The reply at which the rule called it complete; None: never."""
    replies: int
    premature: bool
    """It was called complete, and the goal was not reached."""
    held_back: bool
    """The goal was reached at a reply of text alone, and it was not called complete there."""
    reason: str | None = None
    """Why it was not completed."""


@dataclass
class Watch:
    """What is seen of one play."""

    scenario: Scenario
    workspace: Path
    texts: list[str] = field(default_factory=list)
    """The replies so far."""
    reached: list[bool] = field(default_factory=list)
    """For each reply, whether it is text alone and the goal is reached with it."""

    def see(self, answer: ModelAnswer) -> None:
        """Take notice of a reply."""
        self.texts.append(own_text(answer.text))
        alone = bool(answer.text.strip()) and not answer.calls
        self.reached.append(alone and self.goal_holds())

    def goal_holds(self) -> bool:
        """Whether the goal is reached now."""
        return self.scenario.goal.holds(self.workspace, self.texts)

    def result(self, completed: bool, reason: str | None = None) -> RuleRun:
        """What came of it, after its end."""
        replies = len(self.texts)
        earlier = self.reached[:-1] if completed else self.reached
        return RuleRun(
            replies if completed else None, replies, completed and not self.goal_holds(), any(earlier), reason
        )


class WatchedExecutor:
    """An executor whose replies to the scenario's own prompt are watched; those of sub-tasks are not."""

    def __init__(self, executor: Any, watch: Watch) -> None:
        self._executor = executor
        self._watch = watch

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        """The executor's reply."""
        answer: ModelAnswer = await self._executor.reply(request)
        scenario = self._watch.scenario
        prompts: Sequence[str] = (*scenario.tasks, scenario.prompt)
        if prompt_of(request.messages, prompts) == scenario.prompt:
            self._watch.see(answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)
