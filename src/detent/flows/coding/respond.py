"""The step `respond`: results or an answer are looked at; only here may a request end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.engine.tools import ToolError
from detent.flows.coding import nudges
from detent.flows.coding.check_parts import parts_of
from detent.flows.coding.completion_check import suspicions
from detent.flows.coding.conversation import text_of
from detent.flows.coding.explicit_assistant import added_results
from detent.flows.coding.nudges import Nudge
from detent.flows.coding.reply import ToolResult
from detent.flows.coding.reply_text import enclosed_parts
from detent.flows.coding.request_data import Message, RequestData
from detent.flows.coding.request_time import REQUEST_TIMEOUT, seconds_left, seconds_left_at_visit
from detent.flows.coding.response_state import AgentState
from detent.flows.coding.settings import CodingSettings
from detent.flows.coding.summary import incomplete_summary
from detent.flows.coding.task_completion import Completion, JudgedReply, judge_reply, own_text
from detent.flows.coding.tools.spec import DEFAULT_TIMEOUT
from detent.kernel.plain import LONGEST_KEPT
from detent.kernel.status import Status

CHECK = "done_check"
"""The effect that runs the command of `done_when`."""
CUT_OFF = ("length", "filter")
"""Why a model stopped in the middle of a reply."""
MOST_REFUSED = 3
"""Failed checks in a row, without a successful effect between, that end a request."""
NEAR = 0.8
"""Share of the turns after which the assistant is told how many are left."""
NO_TIME = "No time is left for it."
LONGEST_SUMMARY = 2000
"""Characters of a summary that is kept beside the reply."""


class Checked(NamedTuple):
    """What the command of `done_when` said."""

    state: str
    """`passed`, `skipped`, `none` or `failed`."""
    code: Any = None
    output: str = ""


class Respond:
    """Decides whether a request is complete, incomplete, or goes on."""

    def __init__(self, settings: CodingSettings, known_tools: frozenset[str]) -> None:
        self._settings = settings
        self._known_tools = known_tools

    async def handle(self, ctx: StepContext) -> Outcome:
        """The end, or another turn with at most one nudge."""
        data = RequestData(ctx.values)
        turn, counters = data.current, data.counters
        message = data.last_reply
        text = await text_of(message.get("content"), ctx.kept)
        called = bool(message.get("tool_calls")) and not self._only_ran(data)
        judged = await self._judged(ctx, data, text) if not called else JudgedReply(None, text, None, False)
        refused: Nudge | None = None
        if judged.completion is not None:
            outcome, refused = await self._accepted(ctx, data, judged, counters)
            if outcome is not None:
                return outcome
        if (give_up := turn.get("give_up")) is not None:
            return await self._incomplete(ctx, data, str(give_up), counters, text)
        productive = bool(message.get("tool_calls")) and bool(turn.get("made", 1))
        failed = refused is not None and refused.kind == "check_failed"
        # A marker that its check refused was accepted before: such refusals have a limit of their own.
        counters["unproductive"] = 0 if productive or failed else counters["unproductive"] + 1
        reason = self._limit(ctx, data, counters)
        if reason is not None:
            return await self._incomplete(ctx, data, reason, counters, text)
        nudge = refused or self._nudge(data, judged, text, called, counters)
        turns = [] if nudge is None else [{"role": "nudge", "kind": nudge.kind, "content": nudge.content}]
        return Outcome(
            AgentState.ASSISTANT,
            set={
                "counters": counters, "turn": {"last": turn["last"]} if "last" in turn else {},
                **({"check_failures": self._failures(data)} if failed else {}),
            },
            append={"turns": turns} if turns else {},
            reason=nudge.kind if nudge is not None else "goes on",
        )  # fmt: skip

    # -- markers --------------------------------------------------------------------------------------------

    @staticmethod
    def _only_ran(data: RequestData) -> bool:
        """Whether all calls of the last reply ran on the provider's side, so that its text may complete."""
        ran = {message["tool_call_id"] for message in data.current.get("ran") or ()}
        return all(call.id in ran for call in data.open_calls)

    async def _judged(self, ctx: StepContext, data: RequestData, text: str) -> JudgedReply:
        judged = judge_reply(text, known_tools=self._known_tools)
        if judged.completion is None:
            return judged
        if data.current.get("finish") in CUT_OFF:  # nobody knows what would have followed the marker
            return judged._replace(completion=None, refused="the reply was cut off")
        # Only a marker that would count is held against what tools have said: that takes reading it all.
        told = [await text_of(result.get("content"), ctx.kept) for result in data.results()]
        return judge_reply(text, known_tools=self._known_tools, tool_lines=told) if told else judged

    async def _accepted(
        self, ctx: StepContext, data: RequestData, judged: JudgedReply, counters: dict[str, int]
    ) -> tuple[Outcome | None, Nudge | None]:
        """The completed request, or why its marker is refused."""
        completion = judged.completion
        assert completion is not None
        doubts = suspicions(completion.summary, judged.shown, list(data.results()), data.todos)
        counters["suspicious"] += bool(doubts)
        by_handler = data.last_reply.get("by") == "handler"
        if doubts and data.options.strict and not by_handler:
            return None, nudges.marker_refused(doubts[0])
        checked = await self._check(ctx, data)
        if checked.state == "failed":
            counters["refused"] += 1
            await ctx.verdict(AgentState.ASSISTANT, False, "its check failed")
            if self._failures(data) >= MOST_REFUSED:
                outcome = await self._incomplete(ctx, data, "check_failed", counters, judged.shown, checked)
                return outcome, None
            return None, check_refusal(data, checked)
        if checked.state == "passed":
            await ctx.verdict(AgentState.ASSISTANT, True, "its check passed")
        return await self._complete(ctx, data, judged, completion, checked, counters), None

    @staticmethod
    def _failures(data: RequestData) -> int:
        """Failed checks in a row, this one included, with no successful effect between."""
        return data.check_failures + 1

    async def _check(self, ctx: StepContext, data: RequestData) -> Checked:
        """Run the command that tells whether the request is really done."""
        options = data.options
        if options.done_when is None:
            return Checked("none")
        only_read = data.last_reply.get("by") == "handler"
        if not data.has_acted and (only_read or options.check_when == "changed"):
            return Checked("skipped")
        left = seconds_left_at_visit(ctx, self._settings)
        if left <= 0:
            return Checked("failed", "timeout", NO_TIME)
        within: dict[str, Any] = {"timeout": left} if left < DEFAULT_TIMEOUT else {}
        try:
            receipt = await self._fresh(
                ctx, confirm=None, workspace=data.workspace, command=options.done_when, **within
            )
        except ToolError as error:
            return Checked("failed", error.code, error.message)
        if receipt.get("ok"):
            return Checked("passed", 0)
        code = receipt.get("exit_code")
        return Checked(
            "failed", receipt.get("error") if code is None else code, str(receipt.get("content", ""))
        )

    @staticmethod
    async def _fresh(ctx: StepContext, **args: Any) -> Mapping[str, Any]:
        """The result of the check, run by whoever drives the request now.

        One from before an interruption tells nothing of the files as they are now, so the check is run again.
        """
        receipt: Mapping[str, Any] = await ctx.perform(CHECK, **args)
        repeats = 0
        while not ctx.settled_now:
            repeats += 1
            receipt = await ctx.perform(CHECK, effect_key=f"again {repeats}", **args)
        return receipt

    # -- ends -----------------------------------------------------------------------------------------------

    async def _complete(
        self,
        ctx: StepContext,
        data: RequestData,
        judged: JudgedReply,
        completion: Completion,
        checked: Checked,
        counters: dict[str, int],
    ) -> Outcome:
        text = own_text(judged.shown)
        summary = completion.summary[:LONGEST_SUMMARY]
        completion = completion._replace(
            summary=summary, marker_line=completion.marker_line[:LONGEST_SUMMARY]
        )
        if data.last_reply.get("by") == "handler":
            results = [
                ToolResult.from_plain({**result, "content": await text_of(result.get("content"), ctx.kept)})
                for result in data.results()
            ]
            added = added_results(data.prompt, results)
            text = f"{text}\n\n{added}".strip() if added else text
        parts = parts_of(data.options.done_when or "")
        by_files = [path for path in data.files_changed if parts.has(path)]
        edited = list(dict.fromkeys([*by_files, *data.tests_changed])) if checked.state == "passed" else []
        changes: dict[str, Any] = {
            "counters": counters, "outcome": "completed", "outcome_reason": None, "checked": checked.state,
            "completion": completion._asdict(), "text": self._kept(ctx, text), "summary": summary,
        }  # fmt: skip
        if edited:
            changes["tests_edited"] = edited
        return Outcome(end=Status.SUCCEEDED, set=changes, reason=summary[:200] or "the request is complete")

    async def _incomplete(
        self,
        ctx: StepContext,
        data: RequestData,
        reason: str,
        counters: dict[str, int],
        text: str,
        checked: Checked | None = None,
    ) -> Outcome:
        by_handler = data.last_reply.get("by") == "handler"
        results = await self._whole(ctx, list(data.results())[-50:])
        refused = None if checked is None else check_refusal(data, checked)
        summary = incomplete_summary(reason, data, results, refused)
        own = text if by_handler and reason in ("needs_model", "needs_person") else ""
        if own and (added := added_results(data.prompt, [ToolResult.from_plain(line) for line in results])):
            own = f"{own}\n\n{added}"
        return Outcome(
            end=Status.FAILED,
            set={
                "counters": counters, "outcome": "incomplete", "outcome_reason": reason,
                "checked": "failed" if checked is not None else "none",
                "text": self._kept(ctx, own or summary), "summary": summary,
            },
            reason=reason,
        )  # fmt: skip

    @staticmethod
    async def _whole(ctx: StepContext, results: Sequence[Message]) -> list[dict[str, Any]]:
        return [{**result, "content": await text_of(result.get("content"), ctx.kept)} for result in results]

    @staticmethod
    def _kept(ctx: StepContext, text: str) -> Any:
        return text if len(text) <= LONGEST_KEPT else ctx.keep(text)

    # -- going on -------------------------------------------------------------------------------------------

    def _limit(self, ctx: StepContext, data: RequestData, counters: Mapping[str, int]) -> str | None:
        """The limit that ends the request."""
        if counters["unproductive"] >= self._settings.unproductive_limit:
            return "unproductive"
        if counters["iterations"] >= data.options.max_iterations:
            return "max_iterations"
        if seconds_left(ctx, self._settings) <= 0:
            return REQUEST_TIMEOUT
        return None

    def _nudge(
        self, data: RequestData, judged: JudgedReply, text: str, called: bool, counters: Mapping[str, int]
    ) -> Nudge | None:
        """The first nudge that fits."""
        turn, settings = data.current, self._settings
        if turn.get("premature"):
            return nudges.premature_marker()
        if not called and judged.refused is not None:
            return nudges.marker_refused(judged.refused)
        if (repeated := turn.get("repeated")) is not None:
            return nudges.repeated_call(str(repeated["tool"]), int(repeated["n"]))
        if turn.get("finish") == "length" or (not called and _looks_cut(text)):
            return nudges.truncated()
        if not called and not text.strip():
            return nudges.empty(data.prompt, [str(result["tool"]) for result in data.results()])
        if not called:
            return nudges.no_marker(counters["unproductive"], settings.unproductive_limit)
        if counters["iterations"] == math.ceil(NEAR * data.options.max_iterations):
            return nudges.limit_near(data.options.max_iterations - counters["iterations"])
        return None


def check_refusal(data: RequestData, checked: Checked) -> Nudge:
    """What the assistant is told of a failed check."""
    return nudges.check_failed(data.options.done_when or "", checked.code, checked.output)


def _looks_cut(text: str) -> bool:
    """Whether a reply ends in the middle."""
    if text.rstrip().endswith(("…", "...")):
        return True
    return any(part.kind == "fence" and not part.closed for part in enclosed_parts(text))
