"""Questions to a person: what is shown, and what counts as an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.engine.confirmation import LONGEST_SHOWN
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.terminal.questions import (
    Answer,
    Question,
    chosen_answer,
    open_questions,
    question_lines,
    read_answer,
)
from tests.flows.coding.desk import DONE, Desk, ScriptedModel, says

ASKING = RequestOptions()

YES = ("y", "Y", "yes", "Yes", "YES", "  yes \t")
ALWAYS = ("a", "A", "always", "ALWAYS")
NO = {
    "n": "", "N": "", "no": "", "No ": "", "no use tabs": "use tabs", "n, use tabs": "use tabs",
    "NO: Use tabs": "Use tabs", "no - later": "later", "n\nuse tabs": "use tabs", "no yes": "yes",
}  # fmt: skip
NEITHER = (
    "", " ", "maybe", "yess", "yes please", "yes!", "ye", "ok", "sure", "j", "ja", "1", "true", "now",
    "nothing", "not yet", "never", "all", "alway", "allow", "y n", "y/a/n", "\uff59", "\uff59\uff45\uff53",
    "\u0443es", "y\x00", "yes\u200b", "да", "/yes",
)  # fmt: skip


def test_only_the_words_for_yes_are_a_yes() -> None:
    assert [read_answer(text) for text in YES] == [Answer("yes")] * len(YES)
    assert [read_answer(text) for text in ALWAYS] == [Answer("always")] * len(ALWAYS)
    assert {text: read_answer(text) for text in NEITHER} == dict.fromkeys(NEITHER)


def test_a_no_may_have_a_reason() -> None:
    for text, reason in NO.items():
        assert read_answer(text) == Answer("no", reason), text
    assert read_answer("no").plain == "no"  # type: ignore[union-attr]
    assert read_answer("n, use tabs").plain == {"no": "use tabs"}  # type: ignore[union-attr]
    assert read_answer("a").plain == "yes"  # type: ignore[union-attr]


async def test_a_number_chooses_an_answer_only_if_there_are_as_many(tmp_path: Path) -> None:
    asked = ("ask", {"question": "Which?", "choices": ["left", "right"]})
    async with Desk(tmp_path, ScriptedModel([says("", asked)])) as desk:
        result = await desk.ask("go", ASKING)
        (question,) = await open_questions(desk.engine, await desk.engine.get(result.run_id))
    assert chosen_answer(question, "2") == "right"
    assert chosen_answer(question, "LEFT ") == "left"
    assert chosen_answer(question, "straight on") == "straight on"
    for text in ("3", "0", ""):
        with pytest.raises(ValueError, match="left, right"):
            chosen_answer(question, text)


async def _asked(folder: Path, *calls: tuple[str, Any], text: str = "") -> tuple[list[str], Question]:
    """The lines of the question that a reply with these calls leads to."""
    model = ScriptedModel([says(text, *calls), DONE])
    async with Desk(folder, model) as desk:
        started = await desk.start("do it", ASKING)
        run = await desk.engine.finish(started.run_id)
        (question,) = await open_questions(desk.engine, run)
        return list(question_lines(question)), question


async def test_a_change_is_asked_about_with_its_diff_and_the_assistants_words(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    change = {"filepath": "a.py", "target": "two", "patch": "2"}
    lines, question = await _asked(
        tmp_path, ("update_file", change), text="I use figures.\n<think>why</think>"
    )
    assert question.kind == "confirm"
    assert lines[0].startswith("? Change 'a.py'")
    assert lines[1].split(":", 1)[1].strip() == "I use figures."
    assert [line for line in lines if line.startswith(("  -two", "  +2"))] == ["  -two", "  +2"]
    assert not any("why" in line for line in lines)


async def test_of_a_long_diff_forty_lines_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    new = {"filepath": "a.py", "content": "".join(f"line {number}\n" for number in range(100))}
    lines, _ = await _asked(tmp_path, ("write_file", new))
    diff = lines[next(number for number, line in enumerate(lines) if line.startswith("  ---")) :]
    assert len(diff) == 41
    assert diff[-1] == "  … 63 lines more (+63 -0)"


async def test_a_diff_that_was_cut_is_said_to_be(tmp_path: Path) -> None:
    new = {"filepath": "a.py", "content": "x" * LONGEST_SHOWN * 2}
    lines, _ = await _asked(tmp_path, ("write_file", new))
    assert lines[-1].strip().startswith("This is not all of it")


async def test_a_command_is_shown_exactly_with_its_folder_and_variables(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    command = "echo one \\\n  && rm x\nin /\nwith A=1" + " y" * 2000
    lines, _ = await _asked(tmp_path, ("bash", {"command": command, "cwd": "sub", "env": {"B": "2\n3"}}))
    start = lines.index("  $ echo one \\")
    assert lines[start + 1 : start + 3] == ["  |   && rm x", "  | in /"]
    assert lines[start + 3] == "  | with A=1" + " y" * 2000
    assert lines[start + 4 :] == [f"  in {tmp_path} : sub", "  with B=2\n3"]


async def test_control_and_bidi_characters_are_escaped_everywhere(tmp_path: Path) -> None:
    nasty = "\x1b[2J\u202egnp\x07\u2066\x9b"
    lines, _ = await _asked(tmp_path, ("bash", {"command": f"echo {nasty}"}), text=f"Why: {nasty}")
    more, _ = await _asked(
        tmp_path, ("write_file", {"filepath": "n.txt", "content": f"{nasty}\n"}), text=f"> {nasty}"
    )
    for line in (*lines, *more):
        assert line.isprintable(), line
    assert sum("\\x1b[2J\\x202egnp\\x07\\x2066\\x9b" in line for line in (*lines, *more)) >= 3


async def test_a_call_with_arguments_too_long_to_show_is_said_to_be_so(tmp_path: Path) -> None:
    lines, question = await _asked(tmp_path, ("bash", {"command": "echo " + "x" * 90_000}))
    assert question.call is None or any("x" * 90_000 in line for line in lines)
    assert question.call is not None or any("too long" in line or "not all of it" in line for line in lines)


async def test_a_question_of_the_assistant_is_shown_with_its_choices(tmp_path: Path) -> None:
    lines, question = await _asked(
        tmp_path, ("ask", {"question": "Which\x1b[2J?", "choices": ["red", "blue"]})
    )
    assert (question.kind, question.choices) == ("ask", ["red", "blue"])
    assert lines == ["? Which\\x1b[2J?", "  1. red", "  2. blue"]


async def test_the_question_of_a_task_is_found_below_its_request(tmp_path: Path) -> None:
    task = ("task", {"description": "sub", "prompt": "run it", "profile": "worker"})
    model = ScriptedModel([says("", task), says("", ("bash", {"command": "true"})), DONE, DONE])
    async with Desk(tmp_path, model) as desk:
        started = await desk.start("do it", ASKING)
        run = await desk.engine.finish(started.run_id)
        (question,) = await open_questions(desk.engine, run)
        assert question.run.parent == run.id
        assert question.root is run
        assert next(question_lines(question)).endswith("(a task of the request asks)")
