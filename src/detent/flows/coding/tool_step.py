"""The step `tools`: every call of the last reply gets one result, in order.

Neighbouring queries run side by side; an effect waits for what comes before it, and what comes after sees the
world it left. A failing call does not stop the others, and nothing raises into the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from detent.engine.child import Child
from detent.engine.context import StepContext
from detent.engine.outcome import Hold, Outcome
from detent.engine.ports import TapeError
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from detent.flows.coding import permission
from detent.flows.coding.conversation import text_of
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.permission import Grant, Rules
from detent.flows.coding.permission_patterns import COMMAND, PATH_OF
from detent.flows.coding.registry import PROFILES, WORKER, ToolRegistry
from detent.flows.coding.reply import CodingCall, ToolResult
from detent.flows.coding.request_data import FILE_TOOLS, RequestData, tool_message
from detent.flows.coding.request_time import seconds_left_at_visit
from detent.flows.coding.response_state import AgentState
from detent.flows.coding.settings import CodingSettings
from detent.flows.coding.settled_calls import changed_arguments, told_result, with_changes
from detent.flows.coding.tools import todo
from detent.flows.coding.tools.spec import DEFAULT_TIMEOUT, SPECS
from detent.insight.formatting import count
from detent.kernel.entries import DENIED, Recorded
from detent.kernel.errors import Fenced, StoreUnavailable
from detent.kernel.plain import LONGEST_KEPT, canonical, digest, to_plain
from detent.kernel.run_config import STEPS

CODES = frozenset({
    "outside_workspace", "protected", "not_found", "exists", "stale", "not_unique", "too_large", "binary",
    "denied", "timeout", "nonzero_exit", "invalid_arguments", "unknown_tool", "too_many_calls", "depth_limit",
    "cancelled", "interrupted", "failed",
})  # fmt: skip
ASK = "ask"
BOUND = frozenset({"read_file", "grep", *FILE_TOOLS})
"""Tools on a file that must be the one the rules were asked about."""
LONGEST_RESULT = 110_000
"""Characters of one result; what tools give is shorter."""
NO_TIME = "The time of the request is used up; this was not run."
NOBODY = "nobody is there to be asked"


class _Asked(Exception):
    """The run waits for a person's answer."""

    def __init__(self, hold: Hold) -> None:
        self.hold = hold


@dataclass(frozen=True, slots=True)
class Last:
    """The last call of a request, to recognise one that is made again and again."""

    key: str = ""
    result: str = ""
    times: int = 0
    """How often in a row it was made with this result."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Last:
        """As the run keeps it."""
        return cls(str(plain.get("key", "")), str(plain.get("result", "")), int(plain.get("times", 0)))

    def to_plain(self) -> dict[str, Any]:
        """As the run keeps it."""
        return {"key": self.key, "result": self.result, "times": self.times}


@dataclass(slots=True)
class Progress:
    """What the calls of one reply have changed so far."""

    seen: dict[str, str]
    todos: list[dict[str, Any]]
    files_changed: list[str]
    last: Last
    before: ToolResult | None = None
    """The result of the last call, if it was made in this visit."""
    commands_run: int = 0
    command_seconds: float = 0.0
    """Time that commands of this reply took, as their receipts say."""
    tests_changed: list[str] = field(default_factory=list)
    """Files of tests, and others that the check runs, that commands changed."""
    further_effects: list[str] = field(default_factory=list)
    """Tools besides the flow's own whose effects were performed."""
    repeated: dict[str, Any] | None = None
    effects: int = 0
    """Effects that succeeded."""
    made: int = 0
    """Calls that were no repeats."""
    answers: list[bool] = field(default_factory=list)
    """What people have said to calls."""


class ToolStep:
    """Performs the calls of replies."""

    def __init__(
        self,
        settings: CodingSettings,
        registry: ToolRegistry,
        flow_name: str,
        granted: Callable[[str], Collection[Grant]],
        hide: Callable[[str], str],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._flow_name = flow_name
        self._granted = granted
        """Gives what a person has allowed a session for as long as this program runs."""
        self._hide = hide
        """Takes secrets out of a text."""

    async def handle(self, ctx: StepContext) -> Outcome | Hold:
        """Answer every call of the last reply."""
        data = RequestData(ctx.values)
        ran = data.current.get("ran") or []
        progress = Progress(
            dict(data.seen), [dict(item) for item in data.todos], data.files_changed,
            Last.of(data.current.get("last") or {}), commands_run=data.commands_run,
            tests_changed=data.tests_changed, further_effects=data.further_effects,
        )  # fmt: skip
        visit = _ToolVisit(self, ctx, data, data.options, progress)
        skip = {message["tool_call_id"] for message in ran}
        try:
            results = await visit.answer([call for call in data.open_calls if call.id not in skip])
        except _Asked as asked:
            return asked.hold
        if progress.answers:
            right = all(progress.answers)
            why = "a person agreed to its calls" if right else "a person refused a call"
            await self._judge(ctx, right, why)
        messages = [dict(message) for message in ran]
        messages += [self._message(ctx, result) for result in results]
        turn = {
            **data.current, "last": progress.last.to_plain(), "repeated": progress.repeated,
            "made": progress.made,
        }  # fmt: skip
        changes: dict[str, Any] = {"turn": turn}
        if repeats := sum(result.repeated for result in results):
            changes["counters"] = {**data.counters, "tool_calls": data.counter("tool_calls") - repeats}
        if progress.effects and ctx.values.get("check_failures"):
            changes["check_failures"] = 0
        for name in (
            "seen", "todos", "files_changed", "tests_changed", "further_effects", "commands_run",
        ):  # fmt: skip
            if (value := getattr(progress, name)) != to_plain(getattr(data, name)):
                changes[name] = value
        failed = sum(not result.ok for result in results)
        reason = count(len(messages), "result") + (f", {failed} failed" if failed else "")
        return Outcome(AgentState.RESPONSE, set=changes, append={"turns": messages}, reason=reason)

    @staticmethod
    async def _judge(ctx: StepContext, right: bool, why: str) -> None:
        await ctx.verdict(AgentState.ASSISTANT, right, why)

    def _message(self, ctx: StepContext, result: ToolResult) -> dict[str, Any]:
        message = tool_message(result)
        text = self._hide(result.content[:LONGEST_RESULT])
        message["content"] = text if len(text) <= LONGEST_KEPT else ctx.keep(text)
        return message


class _Judged(NamedTuple):
    """What the rules say to a call, and what code adds to its arguments."""

    verdict: str
    why: str
    code: str
    """Of the error, if it is not made."""
    supplied: dict[str, Any]


@dataclass(slots=True)
class _ToolVisit:
    """The calls of one reply."""

    step: ToolStep
    ctx: StepContext
    data: RequestData
    options: RequestOptions
    progress: Progress

    async def answer(self, calls: Sequence[CodingCall]) -> list[ToolResult]:
        """One result for each call, in order."""
        most, cut = self.step._settings.max_tool_calls_per_turn, self.data.current.get("finish") == "length"
        results: list[ToolResult] = []
        segment: list[CodingCall] = []
        kind: str | None = None
        for number, call in enumerate(calls):
            repeated = self._is_repeat(call, segment)
            refused = (
                None if repeated else self._refusal(call, number >= most, cut and number == len(calls) - 1)
            )
            of_kind = None if repeated or refused is not None else self._side_by_side(call)
            if of_kind is None or of_kind != kind:
                results += await self._run(segment, kind)
                segment, kind = [], of_kind
            if repeated:
                results.append(await self._repeated(call))
            elif refused is not None:
                results.append(self._note(call, refused))
            elif of_kind is None:
                results.append(self._note(call, await self._one(call)))
            else:
                segment.append(call)
        return results + await self._run(segment, kind)

    def _side_by_side(self, call: CodingCall) -> str | None:
        """Calls of the same kind of work that may run at the same time; None: by itself."""
        spec = self.step._registry.spec(call.tool)
        if spec is not None and spec.kind == "query":
            return "query"
        if call.tool == "task" and isinstance(call.args, Mapping):
            profile = PROFILES.get(str(call.args.get("profile") or "analyzer"))
            return "task" if profile not in (None, WORKER) else None
        return None

    def _refusal(self, call: CodingCall, too_many: bool, cut: bool) -> tuple[str, str] | None:
        if too_many:
            most = self.step._settings.max_tool_calls_per_turn
            return "too_many_calls", f"Only {most} calls of one reply are carried out. Make it again."
        if cut:
            return "invalid_arguments", "The reply was cut off in this call. Make it again."
        return self.step._registry.refusal(call.tool, call.args, self.options)

    async def _run(self, calls: Sequence[CodingCall], kind: str | None) -> list[ToolResult]:
        """Calls that may run side by side."""
        if not calls:
            return []
        if kind == "task":
            told = await self._tasks(calls)
        else:
            gate = asyncio.Semaphore(self.step._settings.max_parallel)
            judged = await self._judged(calls)

            async def look(call: CodingCall, judged: _Judged) -> ToolResult | tuple[str, str]:
                async with gate:
                    return await self._look(call, judged)

            looks = [asyncio.ensure_future(look(*pair)) for pair in zip(calls, judged, strict=True)]
            try:
                told = list(await asyncio.gather(*looks))
            finally:
                for task in looks:
                    task.cancel()
        return [self._note(call, result) for call, result in zip(calls, told, strict=True)]

    async def _one(self, call: CodingCall) -> ToolResult | tuple[str, str]:
        """A call by itself."""
        if call.tool == "task":
            return (await self._tasks([call]))[0]
        if call.tool == ASK:
            return self._ask(call)
        if call.tool == "todo":
            return self._todo(call)
        return await self._effect(call)

    # -- repeats --------------------------------------------------------------------------------------------

    def _is_repeat(self, call: CodingCall, before: Sequence[CodingCall]) -> bool:
        """Whether this is the same call once more, after enough equal ones with equal results.

        `before` are queries whose results are not known yet: equal ones made side by side give the same.
        """
        last, key = self.progress.last, _key_of(call)
        times = last.times if last.key == key else 0
        for other in before:
            times = times + 1 if _key_of(other) == key else 0
        return times >= self.step._settings.repeat_limit - 1

    async def _repeated(self, call: CodingCall) -> ToolResult:
        """The result of the call before, for a call that is not made again."""
        progress, last = self.progress, self.progress.last
        progress.last = Last(last.key, last.result, last.times + 1)
        progress.repeated = {"tool": call.tool, "n": progress.last.times}
        before = progress.before
        if before is None:
            message = next(turn for turn in reversed(self.data.turns) if turn["role"] == "tool")
            before = ToolResult.from_plain(
                {**message, "content": await text_of(message.get("content"), self.ctx.kept)}
            )
        return replace(before, tool_call_id=call.id, tool=call.tool, duration_ms=0.0, repeated=True)

    def _note(self, call: CodingCall, result: ToolResult | tuple[str, str]) -> ToolResult:
        """Remember a result as the last one."""
        if isinstance(result, tuple):
            code, text = result
            result = ToolResult(call.id, call.tool, False, text, code if code in CODES else "failed")
        key, progress = _key_of(call), self.progress
        told = digest([result.ok, result.error, result.content], 16)
        same = progress.last.key == key and progress.last.result == told
        progress.last = Last(key, told, progress.last.times + 1 if same else 1)
        progress.before = result
        progress.made += 1
        return result

    # -- calls ----------------------------------------------------------------------------------------------

    @property
    def _rules(self) -> Rules:
        options, protected = self.options, tuple(self.step._settings.protect)
        return Rules(options.allow, options.deny, options.yes, options.read_only, protected)

    async def _judged(self, calls: Sequence[CodingCall]) -> list[_Judged]:
        """What the rules say to calls, the same at every pass through the step.

        It depends on files that later effects of the reply, and other programs, change.
        """
        name = f"judged-{calls[0].id}"
        found = self.ctx.run.records.get(name)
        if found is None:
            found = [self._judge(call)._asdict() for call in calls]
            is_held = self._side_by_side(calls[0]) is not None  # a question about a query is a hold by itself
            if is_held and any(judged["verdict"] == "ask" for judged in found):
                await self.ctx.once(name, lambda: found)
            else:
                # Journaled with the next effect: without one, nothing rests on it.
                self.ctx.with_round = [*self.ctx.with_round, Recorded(name, to_plain(found))]
        return [_Judged(**judged) for judged in found]

    def _judge(self, call: CodingCall) -> _Judged:
        granted = self.step._granted(self.data.session or self.ctx.run_id)
        spec = self.step._registry.spec(call.tool)
        assert spec is not None  # an unknown tool was refused
        rules = self._rules
        decision = permission.decide(
            rules, call.tool, call.args, workspace=self.data.workspace, kind=spec.kind, granted=granted
        )
        supplied: dict[str, Any] = {}
        if call.tool not in self.step._registry.further:
            supplied["workspace"] = self.data.workspace
            if denied := permission.excluded(rules, call.tool):
                supplied["denied"] = denied
        if call.tool in BOUND:
            path = str(call.args.get(PATH_OF[call.tool], "."))
            supplied["decided"] = {"path": path, "place": decision.place}
        if call.tool in FILE_TOOLS:
            supplied["seen"] = self.progress.seen.get(decision.place or "")
        if call.tool == "bash" and (check := self.options.watched_check):
            supplied["watch"] = check
        if call.tool == "grep":
            supplied["secrets"] = self.options.yes
        if call.tool == COMMAND and (left := self._seconds_left()) < call.args.get(
            "timeout", DEFAULT_TIMEOUT
        ):
            supplied["timeout"] = left
        return _Judged(decision.verdict, decision.why, decision.code, supplied)

    def _seconds_left(self) -> float:
        """What is left of the request's time for the next call, told by the journal alone."""
        at_visit = seconds_left_at_visit(self.ctx, self.step._settings)
        return round(at_visit - self.progress.command_seconds, 1)

    async def _look(self, call: CodingCall, judged: _Judged) -> ToolResult | tuple[str, str]:
        if judged.verdict in ("deny", "refuse"):
            return judged.code, judged.why
        if judged.verdict == "ask" and (no := self._asked_before(call, judged.why)) is not None:
            return no
        args = {**call.args, **judged.supplied}
        began = self.ctx.clock.elapsed()
        try:
            answer = await self.ctx.look(call.tool, args)
        except (ToolError, Transient) as error:
            return _failure(error)
        except (Fenced, StoreUnavailable, TapeError):
            raise
        except Exception as error:
            return "failed", f"The tool failed: {type(error).__name__}: {error}"[:2000]
        milliseconds = round((self.ctx.clock.elapsed() - began) * 1000, 3)
        if isinstance(answer, Mapping) and "sha256" in answer and "path" in answer:
            self.progress.seen[str(answer["path"])] = str(answer["sha256"])
        text, truncated = _told(answer)
        count = answer.get("count") if call.tool in SPECS and isinstance(answer, Mapping) else None
        return ToolResult(
            call.id, call.tool, True, text, truncated=truncated, duration_ms=milliseconds, count=count
        )

    def _asked_before(self, call: CodingCall, why: str) -> tuple[str, str] | None:
        """Ask a person before a query; None once the answer is yes.

        A query is no effect, so that the question is a hold of the step's own.
        """
        name = f"confirm-{call.id}"
        if not self.ctx.answered(name):
            if self.options.on_confirm == "deny":
                return "denied", f"{why}; {NOBODY}"
            about = {"tool": call.tool, "args": to_plain(call.args), "why": why}
            raise _Asked(
                Hold(name, "confirm", permission.question(call.tool, call.args), ("yes", "no"), about=about)
            )
        yes, words = _answer(self.ctx.answer(name))
        self.progress.answers.append(yes)
        return None if yes else ("denied", words)

    async def _effect(self, call: CodingCall) -> ToolResult | tuple[str, str]:
        (judged,) = await self._judged([call])
        if judged.verdict in ("deny", "refuse"):
            return judged.code, judged.why
        question = permission.question(call.tool, call.args) if judged.verdict == "ask" else None
        if question is not None and self.options.on_confirm == "deny":
            return "denied", f"{judged.why}; {NOBODY}"
        if call.tool == COMMAND and self._seconds_left() <= 0:
            return "timeout", NO_TIME
        args = {**call.args, **judged.supplied}
        try:
            receipt = await self.ctx.perform(call.tool, confirm=question, **args)
        except ToolError as error:
            if error.code == DENIED and "code" not in self.ctx.last_settled:  # no tool's own error
                self.progress.answers.append(False)
                return DENIED, _no(error.message if error.message != error.code else "")
            return _failure(error)
        if question is not None:
            self.progress.answers.append(True)
        how = self.ctx.last_settled
        changed = changed_arguments(self.ctx.tools, call, how)
        if (told := told_result(call, how)) is not None:
            return with_changes(self._told(call, told, changed), changed)
        return with_changes(self._performed(call, receipt), changed)

    def _told(self, call: CodingCall, told: ToolResult, changed: Mapping[str, Any]) -> ToolResult:
        """Count an effect that was done, or may have been, as a person says."""
        progress = self.progress
        if call.tool in FILE_TOOLS:
            path = str({**call.args, **changed}.get("filepath", ""))
            if told.ok and path not in progress.files_changed:
                progress.files_changed.append(path)
        elif call.tool in self.step._registry.further:
            self._note_further([call.tool])
        else:
            progress.commands_run += 1
        progress.effects += told.ok
        return told

    def _performed(self, call: CodingCall, receipt: Any) -> ToolResult:
        if not isinstance(receipt, Mapping) or call.tool in self.step._registry.further:
            self.progress.effects += 1
            self._note_further([call.tool])
            text, truncated = _told(receipt)
            return ToolResult(call.id, call.tool, True, text, truncated=truncated)
        paths = [str(path) for path in receipt.get("paths") or ()]
        if call.tool in FILE_TOOLS:
            for path in paths:
                if "sha256" in receipt:
                    self.progress.seen[path] = str(receipt["sha256"])
                if path not in self.progress.files_changed:
                    self.progress.files_changed.append(path)
        else:
            self.progress.commands_run += 1
            self.progress.command_seconds += float(receipt.get("seconds") or 0.0)
            self._note_tests(receipt.get("tests_changed"))
        self.progress.effects += bool(receipt.get("ok", True))
        return ToolResult(
            call.id, call.tool, bool(receipt.get("ok", True)), str(receipt.get("content", "")),
            receipt.get("error"), bool(receipt.get("truncated")),
            float(receipt.get("seconds") or 0.0) * 1000,
        )  # fmt: skip

    def _note_further(self, tools: Any) -> None:
        noted = self.progress.further_effects
        noted += [str(tool) for tool in tools or () if tool not in noted]

    def _note_tests(self, paths: Any) -> None:
        noted = self.progress.tests_changed
        noted += [str(path) for path in paths or () if path not in noted]

    def _todo(self, call: CodingCall) -> ToolResult | tuple[str, str]:
        try:
            self.progress.todos, text = todo.todo(self.progress.todos, call.args)
        except ToolError as error:
            return _failure(error)
        return ToolResult(call.id, call.tool, True, text)

    def _ask(self, call: CodingCall) -> ToolResult | tuple[str, str]:
        name = f"{ASK}-{call.id}"
        if not self.ctx.answered(name):
            if self.options.on_confirm == "deny":
                return "denied", f"There is no answer: {NOBODY}. Decide yourself, or say what you would need."
            choices = [str(choice) for choice in call.args.get("choices") or ()]
            # Choices are shown, not enforced: the answer is the person's own.
            about = {"choices": choices} if choices else {}
            raise _Asked(Hold(name, ASK, str(call.args.get("question", "")), about=about))
        answer = self.ctx.answer(name)
        return ToolResult(
            call.id, call.tool, True, answer if isinstance(answer, str) else canonical(to_plain(answer))
        )

    # -- sub-runs -------------------------------------------------------------------------------------------

    async def _tasks(self, calls: Sequence[CodingCall]) -> list[ToolResult | tuple[str, str]]:
        """Sub-runs of the same machine, which know their prompt only."""
        settings, results = self.step._settings, dict[str, ToolResult | tuple[str, str]]()
        items: list[tuple[str, Any]] = []
        for call in calls:
            profile = PROFILES.get(str(call.args.get("profile") or "analyzer"))
            if profile is None:
                known = ", ".join(PROFILES)
                results[call.id] = (
                    "invalid_arguments",
                    f"There is no profile '{call.args['profile']}'. Known: {known}.",
                )
            elif self.options.depth >= settings.max_task_depth:
                results[call.id] = (
                    "depth_limit",
                    f"Tasks cannot be nested deeper than {settings.max_task_depth}.",
                )
            else:
                most = int(call.args.get("max_iterations") or settings.task_max_iterations)
                options = self.options.for_task(
                    profile, min(most, settings.max_iterations), max(0.0, self._seconds_left())
                )
                prompt = str(call.args["prompt"])
                items.append((
                    f"task-{call.id}",
                    {"prompt": prompt, "workspace": self.data.workspace, "options": options.to_plain()},
                ))  # fmt: skip
        children = (
            await self.ctx.children(
                items, flow=self.step._flow_name, limit=settings.max_parallel, config=self._own_steps
            )
            if items
            else []
        )
        by_key = {child.key: child for child in children}
        for call in calls:
            if call.id not in results:
                results[call.id] = self._of_child(call, by_key[f"task-{call.id}"])
        return [results[call.id] for call in calls]

    @property
    def _own_steps(self) -> dict[str, Any]:
        """The request's own configuration of its steps, which tasks have too."""
        return {STEPS: to_plain(own)} if (own := self.ctx.config.get(STEPS)) else {}

    def _of_child(self, call: CodingCall, child: Child) -> ToolResult:
        data = child.data
        text = str(data.get("text") or data.get("summary") or child.reason or child.status.value)
        for path in data.get("files_changed") or ():
            if path not in self.progress.files_changed:
                self.progress.files_changed.append(str(path))
        self.progress.commands_run += int(data.get("commands_run") or 0)
        self._note_tests(data.get("tests_changed"))
        self._note_further(data.get("further_effects"))
        if not child.ok:
            text = f"Not finished ({data.get('outcome_reason') or child.reason}). {text}"
        return ToolResult(call.id, call.tool, child.ok, text, None if child.ok else "failed")


def _key_of(call: CodingCall) -> str:
    return digest([call.tool, to_plain(call.args)], 16)


def _told(answer: Any) -> tuple[str, bool]:
    """What a tool gave back, as text for the assistant."""
    if isinstance(answer, Mapping) and isinstance(answer.get("content"), str):
        return answer["content"], bool(answer.get("truncated"))
    return (answer if isinstance(answer, str) else canonical(to_plain(answer))), False


def _failure(error: ToolError | Transient) -> tuple[str, str]:
    if isinstance(error, ToolError):
        return error.code, error.message
    cause = error.__cause__
    return (cause.code, cause.message) if isinstance(cause, ToolError) else ("failed", str(error))


def _answer(answer: Any) -> tuple[bool, str]:
    """A person's answer to a question about a query."""
    if isinstance(answer, Mapping):
        return False, _no(str(answer.get("no") or ""))
    return str(answer).strip().lower() in ("yes", "y"), _no()


def _no(reason: str = "") -> str:
    """That a person has refused a call, and the reason in the person's own words, if there is one."""
    reason = reason.strip()
    if not reason:
        return "A person said no."
    return f"A person said no: {reason}{'' if reason[-1] in '.!?…' else '.'}"
