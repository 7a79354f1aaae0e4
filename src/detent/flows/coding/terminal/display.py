"""A request as it runs: the states it passes, the assistant's text, its calls and what comes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.cli.live import LiveLines
from detent.cli.output import clean, columns, cut, paint, printable, say, width
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.terminal.call_text import call_line, result_note
from detent.flows.coding.terminal.plain_text import one_line, text_lines
from detent.flows.coding.terminal.reply_stream import ReplyStream
from detent.insight.formatting import span
from detent.kernel.entries import (
    AttemptFailed,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Held,
    Moved,
)
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.dispatch.executor import AgentStreamChunk
    from detent.kernel.entries import Entry
    from detent.kernel.run import Run

ASSISTANT, TOOLS, RESPONSE = "assistant", "tool_execution", "response"
DISCARDED = "(the text above was broken off and is discarded)"
THOUGHT = "(the text above was thinking)"
BESIDE = 5
"""Columns beside what is under way: the spinner, blanks, the cursor."""
MOST_NUDGE_LINES = 12
DONE, FAILED, BEGUN = "✓", "✗", "·"


class RequestDisplay(LiveLines):
    """Observes requests: prints lines that stay and, on a terminal, shows below them what is under way.

    Of runs below a request, only calls and states are shown.
    """

    def __init__(self, flow: str) -> None:
        super().__init__()
        self._flow = flow
        self.failure: str | None = None
        """The error of the last failed attempt that was shown."""
        self.asked: list[str] = []
        """Questions that were shown; the display itself shows none."""
        self._stream = ReplyStream()
        self._passed: dict[str, list[str]] = {}
        """States entered since the last line about states, by run."""
        self._calls: dict[str, _Calls] = {}
        """The calls under way, by run."""
        self._turn = self._doing = ""

    # -- text as it is written ------------------------------------------------------------------------------

    def on_run_stream(self, run: Run, step: str, chunk: AgentStreamChunk) -> None:
        """Show lines of a reply as soon as they are whole, and on a terminal the beginning of the next."""
        if run.flow != self._flow or run.parent is not None:
            return
        if chunk.chunk_type != "output":
            if not chunk.text and self._stream.begun:  # the model is asked again
                self.discard()
            return
        for line in self._stream.feed(chunk.text):
            self._say_text(line)
        self._note_thinking()
        self._show_current()

    def discard(self) -> None:
        """What was shown of a reply that has not ended is no part of the conversation."""
        stream, self._stream = self._stream, ReplyStream()
        if stream.shown:
            self.print_whole(paint(f"  {DISCARDED}", "yellow"))

    def _note_thinking(self) -> None:
        if self._stream.thought_aloud:
            self._stream.thought_aloud = False
            self.print_whole(paint(f"  {THOUGHT}", dim=True))

    def join(self, run: Run) -> None:
        """Begin with a request in the middle of its work."""
        data = RequestData(run.data)
        self._turn = f"turn {max(1, data.counter('iterations'))}/{data.options.max_iterations}"
        if run.state == TOOLS:
            self._calls[run.id] = _Calls(data)
            call = self._calls[run.id].next_effect(run)
            self._show_current(run.state if call is None else call_line(call.tool, call.args))
        else:
            self._show_current(run.state)

    # -- what is committed ----------------------------------------------------------------------------------

    def on_run_entry(self, run: Run, entry: Entry) -> None:
        """Show an entry of a request, or of a run below one."""
        if run.flow != self._flow:
            return
        body = entry.body
        if isinstance(body, Moved):
            self._moved(run, body)
        elif isinstance(body, AttemptFailed):
            self._attempt_failed(run, entry, body)
        elif isinstance(body, EffectBegun):
            self._effect_begun(run)
        elif isinstance(body, EffectDone | EffectSkipped) or (
            isinstance(body, EffectFailed) and body.retry_at is None
        ):
            self._effect_over(run, body)
        elif isinstance(body, Held | Ended):
            self._stopped(run, body)

    def _stopped(self, run: Run, body: Held | Ended) -> None:
        if run.parent is not None:
            return
        self.discard()
        if isinstance(body, Ended) and body.status is Status.CANCELLED:
            self._passed.pop(run.id, None)
        elif isinstance(body, Ended):
            self._say_states(run, ended=True)
        self._show_current("")

    def _moved(self, run: Run, move: Moved) -> None:
        turns = move.append.get("turns") or ()
        if move.frm == ASSISTANT:
            self._replied(run, move, turns)
        elif move.frm == TOOLS:
            self._answered(run, turns)
        for message in turns:
            if message["role"] == "nudge":
                self._say_nudge(str(message["content"]))
        passed = self._passed.setdefault(run.id, [])
        passed.append(move.to)
        if move.to == ASSISTANT:
            self._say_states(run)
        elif move.to == TOOLS:
            self._calls[run.id] = _Calls(RequestData(run.data))
        self._show_current(move.to)

    def _say_nudge(self, content: str) -> None:
        """A nudge; of a long one, such as a check's output, the beginning and the last lines."""
        lines = [line for line in text_lines(content) if line.strip()]
        if len(lines) > MOST_NUDGE_LINES:
            lines = [lines[0], "…", *lines[2 - MOST_NUDGE_LINES :]]
        for line in lines:
            self.print_whole(paint(f"  {line}", dim=True))

    def _say_states(self, run: Run, *, ended: bool = False) -> None:
        """A line about the states passed, and the turn that begins."""
        data = RequestData(run.data)
        passed = self._passed.pop(run.id, [])
        turn = f"turn {data.counter('iterations') + 1}/{data.options.max_iterations}"
        self._turn = "" if ended else turn
        start = "" if data.counter("iterations") else "user_input "
        if passed:
            line = f"{_indent(run)}{start}→ {' → '.join(passed)}  {self._turn}"
            self.print_whole(paint(line.rstrip(), dim=True))

    def _attempt_failed(self, run: Run, entry: Entry, body: AttemptFailed) -> None:
        if run.parent is None:
            self.discard()
        self.failure = f"{body.error}: {body.message}" if body.message else body.error
        again = "" if body.retry_at is None else f"; again in {span(max(0.0, body.retry_at - entry.at))}"
        self.print_whole(f"{_indent(run)}{paint(FAILED, 'red')} {clean(self.failure)}{again}")

    def _replied(self, run: Run, move: Moved, turns: Sequence[Mapping[str, Any]]) -> None:
        """The reply is whole: the rest of its text, or all of it if it was not streamed."""
        if run.parent is not None:
            return
        message = next((turn for turn in turns if turn["role"] == "assistant"), None)
        by_model = message is not None and message.get("by") != "handler"
        if not by_model and self._stream.begun:
            self.discard()
        if message is None:
            return
        content = message.get("content")
        if by_model and self._stream.begun:
            for line in self._stream.end():
                self._say_text(line)
            self._note_thinking()
        elif by_model and isinstance(content, str):
            for line in _shown_lines(content):
                self._say_text(line)
        self._stream = ReplyStream()
        if not by_model and "gave_up" not in message and (why := _fallback(move.detail)):
            self.print_whole(paint(f"  {clean(why)}", "yellow"))

    # -- calls ----------------------------------------------------------------------------------------------

    def _effect_begun(self, run: Run) -> None:
        calls = self._calls.get(run.id)
        if calls is None:
            return
        call = calls.next_effect(run)
        if call is not None:
            self._say_before(run, calls, call)
            self._show_current(call_line(call.tool, call.args))

    def _say_before(self, run: Run, calls: _Calls, call: Any) -> None:
        """Calls before this one are over, though what came of them is told later."""
        for earlier in calls.before(call):
            self._say_call(run, BEGUN, call_line(earlier.tool, earlier.args), "")

    def _effect_over(self, run: Run, body: EffectDone | EffectSkipped | EffectFailed) -> None:
        calls = self._calls.get(run.id)
        call = calls.next_effect(run, body.key) if calls is not None else None
        if calls is None or call is None:
            return
        self._say_before(run, calls, call)
        calls.told(call)
        self._say_call(run, *_outcome(call, body))

    def _answered(self, run: Run, turns: Sequence[Mapping[str, Any]]) -> None:
        """All calls of a reply have results."""
        calls = self._calls.pop(run.id, None) or _Calls(RequestData(run.data))
        results = {message["tool_call_id"]: message for message in turns if message["role"] == "tool"}
        for call in calls.all:
            message = results.get(call.id)
            if message is None or (calls.is_told(call) and (message["ok"] or not calls.is_open(call))):
                continue
            sign = DONE if message["ok"] else FAILED
            sign = BEGUN if message.get("repeated") else sign
            self._say_call(run, sign, call_line(call.tool, call.args), result_note(message))

    def _say_call(self, run: Run, sign: str, call: str, note: str) -> None:
        colour = {DONE: "green", FAILED: "red"}.get(sign)
        told = f"  {paint(clean(note), dim=True)}" if note else ""
        self.print_whole(f"{_indent(run)}{paint(sign, colour, dim=sign == BEGUN)} {clean(call)}{told}")

    # -- printing -------------------------------------------------------------------------------------------

    def _show_current(self, doing: str | None = None) -> None:
        """On a terminal: the state or call under way, or the line of text being written."""
        if doing is not None:
            self._doing = doing
        state = "  ".join(filter(None, (self._doing, self._turn)))
        line = clean(one_line(self._stream.unfinished))
        room = (columns() or 80) - width(state) - BESIDE
        while line and width(line) > room:  # what was written last is what is read
            line = line[max(1, (width(line) - room) // 2) :]
        self.show_under_way(cut(f"{state}  {line}".strip(), (columns() or 80) - BESIDE))

    def _say_text(self, text: str) -> None:
        for line in text_lines(text.replace("\r", "\n")):  # nothing is written over
            self.print_whole(line)

    def print_whole(self, line: str) -> None:
        """Print a line that stays; a long one goes on in the next row."""
        if self._console is None:
            say(line)
            return
        from rich.text import Text

        self._console.print(Text.from_ansi(printable(line)), soft_wrap=True)


class _Calls:
    """The calls of one reply, and which of them have been told of."""

    def __init__(self, data: RequestData) -> None:
        self.all = data.open_calls
        self._told: dict[str, bool] = {}
        """Calls that have a line, and whether what came of them is open."""

    def next_effect(self, run: Run, key: str | None = None) -> Any:
        """The call that the effect now under way, or that of a key, is of; None if it is of none."""
        proposal = run.proposal
        wanted = key or run.begun
        item = next((item for item in proposal.effects if item["key"] == wanted), None) if proposal else None
        item = item or (run.settled.get(key) if key is not None else None)
        tool = None if item is None else item["tool"]
        return next((call for call in self.all if call.tool == tool and call.id not in self._told), None)

    def before(self, call: Any) -> list[Any]:
        """The calls before one that have no line yet."""
        place = self.all.index(call)
        earlier = [other for other in self.all[:place] if other.id not in self._told]
        for other in earlier:
            self._told[other.id] = True
        return earlier

    def told(self, call: Any) -> None:
        self._told[call.id] = False

    def is_told(self, call: Any) -> bool:
        return call.id in self._told

    def is_open(self, call: Any) -> bool:
        return self._told.get(call.id, False)


def _outcome(call: Any, body: EffectDone | EffectSkipped | EffectFailed) -> tuple[str, str, str]:
    """Sign, call and note of an effect that is over."""
    told = call_line(call.tool, call.args)
    if isinstance(body, EffectDone):
        receipt = body.receipt if isinstance(body.receipt, Mapping) else {"content": body.receipt}
        ok = bool(receipt.get("ok", True))
        message = {
            "tool": call.tool, "ok": ok, "content": receipt.get("content"), "error": receipt.get("error"),
            "truncated": receipt.get("truncated"), "duration_ms": body.duration * 1000,
        }  # fmt: skip
        note = "a person said that it happened" if body.how == "told" else result_note(message)
        return (DONE if ok else FAILED), told, note
    if isinstance(body, EffectSkipped):
        return FAILED, told, body.why or "a person skipped it"
    return FAILED, told, f"{body.code}: {one_line(body.message)}"


def _shown_lines(text: str) -> list[str]:
    """The lines of a whole reply: without thinking and the marker's line."""
    stream = ReplyStream()
    return [*stream.feed(text), *stream.end()]


def _fallback(detail: Mapping[str, Any]) -> str:
    """Why the model did not give this reply, if one was to."""
    from detent.insight.agent_text import fallback_words

    if not detail.get("fallback_used"):
        return ""
    cause = (detail.get("agent_error") or {}).get("message") or fallback_words(detail)
    return f"No model took part: {one_line(str(cause))}"


def _indent(run: Run) -> str:
    return "  " if run.parent is None else "    task: "
