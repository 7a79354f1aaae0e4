"""A request as it is shown while it runs, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from detent.dispatch.conversation import ModelAnswer
from detent.dispatch.executor import AgentStreamChunk, ReplyRequest
from detent.dispatch.executor_errors import ExecutorError
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.terminal.display import DISCARDED, THOUGHT, RequestDisplay
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, says


@dataclass
class StreamingModel(ScriptedModel):
    """Writes its replies piece by piece; of one that breaks off, the pieces given for it."""

    broken: dict[int, str] = field(default_factory=dict)
    """What was written of a reply that failed, by its number."""
    size: int = 5
    asked: int = 0

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        number, self.asked = self.asked, self.asked + 1
        assert request.event_callback is not None
        await request.event_callback(AgentStreamChunk("dispatch", "", "thinking"))
        if number in self.broken:
            await self._write(request, self.broken[number])
            raise ExecutorError("The line is cut.", transient=True)
        answer = await super().reply(request)
        await request.event_callback(AgentStreamChunk("dispatch", "a hidden thought", "thinking"))
        await self._write(request, answer.text)
        return answer

    async def _write(self, request: ReplyRequest, text: str) -> None:
        assert request.event_callback is not None
        for place in range(0, len(text), self.size):
            await request.event_callback(AgentStreamChunk("dispatch", text[place : place + self.size]))


@contextmanager
def _display(desk: Desk) -> Iterator[RequestDisplay]:
    display = RequestDisplay(desk.flow.name)
    desk.engine.add_observer(display)
    with display:
        yield display


async def _shown(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    model: ScriptedModel | None,
    prompt: str = "do it",
    options: RequestOptions | None = None,
    **settings: object,
) -> list[str]:
    async with Desk(folder, model, settings=settings) as desk:
        with _display(desk):
            await desk.ask(prompt, options)
    out = capsys.readouterr()
    assert out.err == ""
    return [line for line in out.out.splitlines() if line]


async def test_states_turns_text_and_calls_are_shown_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    edit = ("update_file", {"filepath": "a.py", "target": "two", "patch": "2"})
    missing = ("read_file", {"filepath": "no.py"})
    model = StreamingModel([
        says("I look first.\n", ("read_file", {"filepath": "a.py"}), edit, missing),
        says("Fine:\n\n```\nTUNACODE DONE: no\n```\nTUNACODE DONE: 2 it is"),
    ])  # fmt: skip
    assert await _shown(capsys, tmp_path, model) == [
        "  user_input → assistant  turn 1/40",
        "I look first.",
        "  · read_file a.py",
        "  ✓ update_file a.py  Replaced 1 occurrence in a.py (line 2).",
        "  ✗ read_file no.py  not_found: there is no 'no.py' in the workspace. Did you mean 'a.py'?",
        "  → tool_execution → response → assistant  turn 2/40",
        "Fine:",
        "```",
        "TUNACODE DONE: no",
        "```",
        "  → response",
    ]


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_reply_is_shown_alike_streamed_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    replies = [
        says("<think>\nTUNACODE DONE: x\n</think>\nNot yet.\n> TUNACODE DONE: y"),
        says("Ends.\nTUNACODE DONE: z"),
    ]
    streamed = await _shown(capsys, tmp_path, StreamingModel(list(replies), size=size))
    whole = await _shown(capsys, tmp_path, ScriptedModel(list(replies)))
    assert streamed == whole
    assert "Not yet." in streamed
    assert not any("TUNACODE DONE: x" in line or "TUNACODE DONE: z" in line for line in streamed)
    assert [line for line in streamed if line.startswith("  Your TUNACODE DONE: does not count")]


async def test_text_of_a_reply_that_breaks_off_is_marked_as_discarded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = StreamingModel([says("Whole.\nTUNACODE DONE: x")], broken={0: "Half a\nrep"})
    lines = await _shown(capsys, tmp_path, model)
    assert lines[1:4] == ["Half a", f"  {DISCARDED}", "Whole."]
    assert not any(line == "rep" for line in lines)


async def test_text_of_a_model_that_keeps_failing_is_discarded_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = StreamingModel([], broken=dict.fromkeys(range(10), "Half\na"))
    lines = await _shown(capsys, tmp_path, model, max_retries=1)
    assert lines.count("Half") == lines.count(f"  {DISCARDED}") == 2
    assert not any("The line is cut" in line for line in lines)  # the request's end says it


async def test_text_that_turns_out_to_be_thinking_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = await _shown(capsys, tmp_path, StreamingModel([says("I plan.\n</think>\nTUNACODE DONE: x")]))
    assert lines[1:3] == ["I plan.", f"  {THOUGHT}"]


async def test_no_control_sequence_of_a_model_or_a_tool_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\u202ered\rover\x9b1m"
    command = ("bash", {"command": "printf '\\033[2Jdone\\033]0;x\\007\\r\\n'; exit 3"})
    unknown = ("no\x1b[2J\ntool", {"x": hostile})
    model = StreamingModel([says(f"{hostile}\n", command, unknown), says(f"TUNACODE DONE: {hostile}")])
    lines = await _shown(capsys, tmp_path, model)
    assert all(line.isprintable() for line in lines), lines
    assert not any("owned" in line for line in lines if not line.startswith("  ✗ no"))
    assert "over" in lines  # what follows a carriage return hides nothing
    assert any(line.startswith("  ✗ bash printf") and "exit code 3: done" in line for line in lines)


async def test_a_failed_checks_last_lines_are_shown_as_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = "seq -f 'line %g' 1 30; exit 2"
    lines = await _shown(capsys, tmp_path, StreamingModel([DONE, DONE, DONE]), done_when=check)
    start = next(number for number, line in enumerate(lines) if "The task is not done" in line)
    assert lines[start + 1] == "  …"
    assert lines[start + 2 : start + 12] == [*(f"  line {n}" for n in range(22, 31)), "  [exit code 2]"]


async def test_a_sub_run_is_shown_below_its_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ("task", {"description": "look around", "prompt": "look"})
    (tmp_path / "a.py").touch()
    model = StreamingModel([says("", task), says("Hidden.", ("list_dir", {})), DONE, DONE])
    lines = await _shown(capsys, tmp_path, model)
    assert [line for line in lines if line.startswith("    task: ")][:2] == [
        "    task: user_input → assistant  turn 1/10",
        "    task: ✓ list_dir .  1 entry",
    ]
    assert any(line.startswith("  ✓ task look around (analyzer)") for line in lines)
    assert "Hidden." not in lines


async def test_a_denied_call_is_shown_with_the_persons_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = StreamingModel([says("", ("bash", {"command": "rm -rf x"})), DONE])
    async with Desk(tmp_path, model) as desk:
        with _display(desk):
            started = await desk.start("do it", RequestOptions())
            run = await desk.engine.finish(started.run_id)
            (hold,) = run.holds.values()
            await desk.engine.release(run.id, {"no": "too much"}, hold=run.token(hold.name))
            await desk.engine.finish(run.id)
    assert "  ✗ bash rm -rf x  denied: too much" in capsys.readouterr().out
