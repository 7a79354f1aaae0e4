"""The baseline: the rule of boolean flags, fixed, and the plain loop that is driven by it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

import detent
from detent.adapters.models.executor import ModelStepExecutor
from detent.dispatch.conversation import Message, ModelAnswer, ToolCall
from detent.flows.coding.measure.legacy_rule import PlainLoop, legacy_complete
from detent.flows.coding.measure.scenario import Goal, Scenario, ScriptedCall, ScriptedReply
from detent.flows.coding.measure.script import ScriptedModel

CALL = (ToolCall("1", "list_dir", {}),)


@pytest.mark.parametrize(
    ("text", "calls", "complete"),
    [
        ("hello", (), True),
        ("", (), False),
        (" \n", (), False),
        ("hello", CALL, False),
        ("", CALL, False),
        ("I will write tunacode done: later", CALL, True),
        ("```\nTUNACODE DONE: x\n```", CALL, True),
        ("TUNACODE DONE x", CALL, False),
        ("TUNACODE_TASK_COMPLETE\nmore", CALL, True),
        ("more\nTUNACODE_TASK_COMPLETE", CALL, False),
    ],
)
def test_the_legacy_rule_is_text_without_a_call_or_the_marker_anywhere(
    text: str, calls: tuple[ToolCall, ...], complete: bool
) -> None:
    assert legacy_complete(ModelAnswer(text, calls=calls)) is complete


def test_the_legacy_rule_lives_in_the_measurement_only() -> None:
    root = Path(detent.__file__).parent
    users = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        if "legacy_rule" in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "detent.flows.coding.measure.legacy_rule"
    }
    assert users == {"flows/coding/measure/measurement.py"}


class Listening(ScriptedModel):
    """A scripted model that keeps what it was sent."""

    def next_reply(self, messages: Sequence[Message]) -> ModelAnswer:
        self.sent = list(messages)
        return super().next_reply(messages)


async def _results(workspace: Path, *calls: ScriptedCall, deny: tuple[str, ...] = ()) -> list[str]:
    """The results of some calls in one reply."""
    replies = (ScriptedReply(calls=calls), ScriptedReply("TUNACODE DONE: x"))
    model = Listening(Scenario("s", "", "p", replies, Goal()))
    loop = PlainLoop(ModelStepExecutor(model), workspace, deny=deny)
    assert await loop.run("p", 5) == (True, "TUNACODE DONE: x")
    return [message.content for message in model.sent if message.role == "tool"]


async def test_the_plain_loop_runs_real_tools_in_order(tmp_path: Path) -> None:
    results = await _results(
        tmp_path,
        ScriptedCall("write_file", {"filepath": "a.txt", "content": "one\n"}),
        ScriptedCall("read_file", {"filepath": "a.txt"}),
        ScriptedCall("bash", {"command": "echo two >> a.txt"}),
        ScriptedCall("grep", {"pattern": "two", "directory": "."}),
        ScriptedCall("todo", {"action": "add", "content": "rest"}),
        ScriptedCall("todo", {"action": "list"}),
    )
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"
    assert results[1] == "one\n"
    assert "a.txt:2:two" in results[3]
    assert "rest" in results[5]


async def test_calls_that_fail_are_results_of_the_plain_loop(tmp_path: Path) -> None:
    results = await _results(
        tmp_path,
        ScriptedCall("nonsense", {}),
        ScriptedCall("read_file", {"path": "x"}),
        ScriptedCall("read_file", {"filepath": "../x"}),
        ScriptedCall("write_file", {"filepath": "x", "content": "x"}),
        ScriptedCall("ask", {"question": "x?"}),
        deny=("write_file",),
    )
    codes = [result.partition(":")[0] for result in results]
    assert codes == [
        "ERROR unknown_tool", "ERROR invalid_arguments", "ERROR outside_workspace", "ERROR denied",
        "ERROR denied",
    ]  # fmt: skip
    assert not (tmp_path / "x").exists()


async def test_beside_a_marker_calls_are_not_run(tmp_path: Path) -> None:
    call = ScriptedCall("write_file", {"filepath": "x", "content": "x"})
    model = ScriptedModel(Scenario("s", "", "p", (ScriptedReply("TUNACODE DONE: x", (call,)),), Goal()))
    assert await PlainLoop(ModelStepExecutor(model), tmp_path).run("p", 3) == (True, "TUNACODE DONE: x")
    assert not (tmp_path / "x").exists()
