"""Scenarios are read from files, and every mistake in them is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detent.authoring.problem import DocumentError
from detent.flows.coding.measure.scenario import FileGoal, Goal, ScriptedCall, ScriptedReply
from detent.flows.coding.measure.scenario_files import read_scenarios
from detent.flows.coding.tools.spec import SPECS, problems
from detent.kernel.errors import ConfigurationError
from tests.flows.coding.measure.samples import COMPLETED_AT, LIES, shipped, write_scenario

WHOLE = """
    input:
      prompt: Do it.
      files: {src/a.py: "x = 1\\n"}
      replies:
        - I will.
        - text: Now.
          calls:
            - {tool: read_file, args: {filepath: src/a.py}}
            - {tool: nonsense}
        - {text: cut, finish: length}
        - "TUNACODE DONE: did it"
      tasks: {Help.: [ok]}
      deny: write_file
      goal: {files: {src/a.py: {contains: [x, "1"], excludes: y}, b: null, c: z}, answer: [did, it]}
      check: "true"
"""


def test_a_scenario_is_read_with_all_it_may_have(tmp_path: Path) -> None:
    write_scenario(tmp_path, "mine", WHOLE)
    (scenario,) = read_scenarios(tmp_path)
    assert (scenario.id, scenario.prompt, scenario.check) == ("mine", "Do it.", "true")
    assert scenario.files == {"src/a.py": "x = 1\n"}
    assert scenario.replies == (
        ScriptedReply("I will."),
        ScriptedReply(
            "Now.", (ScriptedCall("read_file", {"filepath": "src/a.py"}), ScriptedCall("nonsense", {}))
        ),
        ScriptedReply("cut", finish="length"),
        ScriptedReply("TUNACODE DONE: did it"),
    )
    assert scenario.tasks == {"Help.": (ScriptedReply("ok"),)}
    assert scenario.deny == ("write_file",)
    assert scenario.goal == Goal(
        {"src/a.py": FileGoal(("x", "1"), ("y",)), "b": FileGoal(absent=True), "c": FileGoal(("z",))},
        ("did", "it"),
    )


def test_scenarios_may_be_json_and_lie_in_subfolders(tmp_path: Path) -> None:
    case = {
        "scenario_id": "two", "description": "d", "category": "c", "expected_output": {"status": "succeeded"},
        "input": {"prompt": "p", "replies": ["r"], "goal": {"answer": "r"}},
    }  # fmt: skip
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "two.json").write_text(json.dumps(case, indent=4))
    write_scenario(tmp_path, "one", "input: {prompt: p, replies: [r], goal: {answer: r}}\n")
    assert [scenario.id for scenario in read_scenarios(tmp_path)] == ["one", "two"]


MISTAKES = {
    "prompt: 1, replies: [r], goal: {answer: r}": "prompt",
    "replies: [r], goal: {answer: r}": "'input.prompt' is missing",
    "prompt: p, goal: {answer: r}": "'input.replies' is missing",
    "prompt: p, replies: [], goal: {answer: r}": "'input.replies' is missing",
    "prompt: p, replies: [r]": "'input.goal' is missing",
    "prompt: p, replies: [r], goal: {}": "'input.goal' is missing",
    "prompt: p, replies: [r], goal: {answer: 1}": "Put it in quotes",
    "prompt: p, replies: [r], goal: {answers: r}": "answer",
    "prompt: p, replies: [r], goal: {files: [a]}": "a mapping of paths",
    "prompt: p, replies: [r], goal: {files: {a: {contain: b}}}": "contains",
    "prompt: p, replies: [r], goal: {files: {../a: b}}": "within the workspace",
    "prompt: p, replies: [r], goal: {answer: r}, files: {/etc/x: b}": "within the workspace",
    "prompt: p, replies: [r], goal: {answer: r}, files: {a: 1}": "a file must be text",
    "prompt: p, replies: [1], goal: {answer: r}": "a reply is a text",
    "prompt: p, replies: [{txt: r}], goal: {answer: r}": "text",
    "prompt: p, replies: [{text: 1}], goal: {answer: r}": "Put it in quotes",
    "prompt: p, replies: [{finish: long}], goal: {answer: r}": "stop or length",
    "prompt: p, replies: [{calls: r}], goal: {answer: r}": "a list of mappings",
    "prompt: p, replies: [{calls: [read_file]}], goal: {answer: r}": "a mapping of tool and args",
    "prompt: p, replies: [{calls: [{tool: x, arg: {}}]}], goal: {answer: r}": "args",
    "prompt: p, replies: [{calls: [{tool: x, args: [1]}]}], goal: {answer: r}": "a mapping of arguments",
    "prompt: p, replies: [r], goal: {answer: r}, tasks: {a: b}": "a list",
    "prompt: p, replies: [r], goal: {answer: r}, deny: [1]": "must be text",
    "prompt: p, replies: [r], goal: {answer: r}, chek: x": "check",
}


def test_every_mistake_is_told_with_its_place(tmp_path: Path) -> None:
    for number, (body, words) in enumerate(MISTAKES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_scenario(folder, "mine", f"input: {{{body}}}\n")
        with pytest.raises(DocumentError) as caught:
            read_scenarios(folder)
        assert words in str(caught.value), body
        assert "mine.yaml:" in str(caught.value), body


def test_all_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write_scenario(tmp_path, "a", "input: {prompt: p, replies: [1, 2], goal: {answer: r}}\n")
    write_scenario(tmp_path, "b", "input: {prompt: p}\n")
    (tmp_path / "c.yaml").write_text("[")
    with pytest.raises(DocumentError) as caught:
        read_scenarios(tmp_path)
    text = str(caught.value)
    assert all(name in text for name in ("a.yaml", "b.yaml", "c.yaml"))


def test_a_folder_without_scenarios_is_an_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigurationError):
            read_scenarios(folder)


# -- those that ship ----------------------------------------------------------------------------------------


def test_thirty_two_scenarios_ship() -> None:
    assert list(shipped()) == [f"S{number:02}" for number in range(1, 33)]
    assert set(COMPLETED_AT) == set(shipped())


def test_a_shipped_scenario_calls_real_tools_as_they_are_called() -> None:
    for scenario in shipped().values():
        for reply in scenario.replies:
            for call in reply.calls:
                assert problems(SPECS[call.tool], call.args) == [], scenario.id


def test_a_scenario_that_changes_files_has_a_check() -> None:
    for scenario in shipped().values():
        changes = any(not goal.absent for goal in scenario.goal.files.values())
        assert (scenario.check is not None) == changes, scenario.id


def test_the_lies_go_on_to_a_true_end() -> None:
    for name in LIES:
        *_, work, end = shipped()[name].replies
        assert work.calls
        assert not end.calls
        assert end.text.startswith("TUNACODE DONE:")


def test_no_goal_is_reached_before_anything_was_said(tmp_path: Path) -> None:
    for scenario in shipped().values():
        workspace = tmp_path / scenario.id
        workspace.mkdir()
        scenario.furnish(workspace)
        assert not scenario.goal.holds(workspace, []), scenario.id


def test_a_goal_is_about_files_and_the_answer_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one two\xff")
    cases = [
        (Goal({"a": FileGoal(("one", "two"))}), True),
        (Goal({"a": FileGoal(("one", "three"))}), False),
        (Goal({"a": FileGoal(("one",), ("two",))}), False),
        (Goal({"a": FileGoal(absent=True)}), False),
        (Goal({"b": FileGoal(absent=True)}), True),
        (Goal({"b": FileGoal(("x",))}), False),
        (Goal({"b": FileGoal((), ("x",))}), False),
        (Goal(answer=("PORT", "8080")), True),
        (Goal(answer=("9090",)), False),
        (Goal({"a": FileGoal(("one",))}, ("9090",)), False),
    ]
    for goal, holds in cases:
        assert goal.holds(tmp_path, ["The port", "is 8080."]) is holds
