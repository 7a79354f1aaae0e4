"""The flow with another judge of replies, for seeing what each clause of the marker's law is worth."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.flows.coding.assistant import Assistant
from detent.flows.coding.conversation import text_of
from detent.flows.coding.flow import CodingFlow
from detent.flows.coding.measure.machine_rule import MachineRule
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.respond import Respond
from detent.flows.coding.response_state import AgentState
from detent.flows.coding.settings import CodingSettings
from detent.flows.coding.task_completion import JudgedReply, judge_reply

Judge = Callable[..., JudgedReply]
"""As `judge_reply`."""


def rule_with(judge: Judge) -> MachineRule:
    """The machine's rule with another judge."""

    def make_flow(settings: CodingSettings) -> CodingFlow:
        flow = CodingFlow(settings)
        names = flow.registry.names
        assistant, respond = (flow.step_for(state) for state in ("assistant", "response"))
        conclude = _Assistant(settings, names).conclude
        flow.replace(AgentState.ASSISTANT, replace(assistant, conclude=conclude))
        flow.replace(AgentState.RESPONSE, replace(respond, handler=_Respond(settings, names, judge).handle))
        return flow

    return MachineRule(make_flow=make_flow)


class _Assistant(Assistant):
    """Keeps the text that stands beside calls as it was written."""

    def conclude(self, ctx: StepContext, said: Any) -> Outcome:
        outcome = super().conclude(ctx, said)
        text = said["text"] if isinstance(said, Mapping) else said.text
        return outcome._replace(set={**outcome.set, "turn": {**outcome.set["turn"], "written": text}})


class _Respond(Respond):
    """Asks the other judge, also about replies with calls."""

    def __init__(self, settings: CodingSettings, known_tools: frozenset[str], judge: Judge) -> None:
        super().__init__(settings, known_tools)
        self._judge = judge

    async def handle(self, ctx: StepContext) -> Outcome:
        data = RequestData(ctx.values)
        if data.open_calls:
            judged = await self._judged(ctx, data, data.current["written"])
            if judged.completion is not None:
                outcome, _ = await self._accepted(ctx, data, judged, data.counters)
                assert outcome is not None
                return outcome
        return await super().handle(ctx)

    async def _judged(self, ctx: StepContext, data: RequestData, text: str) -> JudgedReply:
        lines: set[str] = set()
        for result in data.results():
            lines.update((await text_of(result.get("content"), ctx.kept)).splitlines())
        return self._judge(text, calls=data.open_calls, tool_lines=lines, known_tools=self._known_tools)


# -- judges with one clause switched off --------------------------------------------------------------------


def anywhere_in_a_line(text: str, **facts: Any) -> JudgedReply:
    """The marker need not stand at the start of its line."""
    return judge_reply(re.sub(r"(?i)(?<=[^\n])(?=tunacode done:)", "\n", text), **facts)


def also_in_fences(text: str, **facts: Any) -> JudgedReply:
    """Fenced code is text like any other."""
    return judge_reply(re.sub(r"(?m)^\s*(```|~~~).*$", "", text), **facts)


def also_in_thinking(text: str, **facts: Any) -> JudgedReply:
    """Thinking is text like any other."""
    return judge_reply(re.sub(r"</?think>", "", text), **facts)


def also_echoes(text: str, **facts: Any) -> JudgedReply:
    """A repeated line of a result counts."""
    return judge_reply(text, **{**facts, "tool_lines": ()})


def also_beside_calls(text: str, **facts: Any) -> JudgedReply:
    """A reply may have calls, made or written out."""
    return judge_reply(text, tool_lines=facts["tool_lines"])


def never(text: str, **facts: Any) -> JudgedReply:
    """Nothing counts."""
    return JudgedReply(None, text, None, False)
