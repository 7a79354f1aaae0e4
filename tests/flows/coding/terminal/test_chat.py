"""`detent chat` on a terminal and behind a pipe: real processes, real keys."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.cli.main import run
from tests.flows.coding.terminal.model_server import Asked, ModelServer, Written, says
from tests.flows.coding.terminal.pseudo_terminal import CTRL_C, CTRL_D, Terminal

pytestmark = pytest.mark.slow

SETTINGS = "coding: {sandbox: false, max_retries: 1}\n"
PROMPT = "\n> "
ASKED = "y/a/n> "
INTERRUPTED = "interrupted  "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "detent.yaml").write_text(SETTINGS)
    (tmp_path / "a.py").write_text("x = 1\n")
    return tmp_path


@pytest.fixture
def served(folder: Path) -> Iterator[ModelServer]:
    """A model that is `house` in the settings."""
    with ModelServer(_rule) as server:
        (folder / "detent.yaml").write_text(SETTINGS + server.settings)
        yield server


def _rule(asked: Asked) -> Written:
    """The model that most tests talk to; what it does is in the prompt."""
    word = asked.prompt.split()[0]
    if asked.turn and word in ("run", "edit", "wait"):
        return says("TUNACODE DONE: it is done")
    return {
        "think": says("<think>\nsecret\n</think>\nI think.\nTUNACODE DONE: thought"),
        "wait": says("I begin.\n", ending="waits" if not asked.again else "whole"),
        "break": says("Half a\nreply\n", ending="dies") if asked.again < 1 else says("TUNACODE DONE: whole"),
        "run": says("I run it.\n", ("bash", {"command": "echo begun > begun; sleep 60; echo over > over"})),
        "edit": says("I edit.\n", ("update_file", {"filepath": "a.py", "target": "1", "patch": "2"})),
        "attack": says("\x1b[2J\x1b]0;owned\x07hi\u202e\nTUNACODE DONE: \x1b[?1049hdone"),
    }.get(word, says(f"TUNACODE DONE: heard {len(asked.prompt)} characters"))


def _objects(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    run([*words, "--json"])
    return json.loads(capsys.readouterr().out)


def _chat(folder: Path, *words: str, **more: Any) -> Terminal:
    terminal = Terminal(folder, "chat", *words, **more)
    terminal.until(PROMPT)
    return terminal


# -- questions ----------------------------------------------------------------------------------------------


def test_a_question_is_asked_until_it_is_answered_and_holds_for_what_was_shown(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "b.py").write_text("x = 1\n")
    with _chat(folder) as chat:
        shown = chat.line("replace 1 with 2 in a.py", ASKED)
        assert "-x = 1\n  +x = 2" in shown
        for word in ("", "maybe", "yess", "ja", "please yes"):
            chat.line(word, "anything else is asked again.")
        chat.paste("y\ny", "y")
        chat.line("", "anything else is asked again.")
        chat.line("no, I prefer 1", "a step failed", PROMPT)
        assert (folder / "a.py").read_text() == "x = 1\n"
        chat.line("replace 1 with 2 in a.py", ASKED)
        chat.line("YES", "done (unchecked)", PROMPT)
        assert (folder / "a.py").read_text() == "x = 2\n"
        chat.line("replace 2 with 3 in a.py", ASKED)
        chat.line("Always", PROMPT)
        chat.line("replace 3 with 4 in a.py", PROMPT)  # in this folder, nothing is asked any more
        assert (folder / "a.py").read_text() == "x = 4\n"
        chat.line("replace 1 with 2 in sub/b.py", ASKED)  # in another folder it is
        chat.keys(CTRL_D, PROMPT)  # it stays open
        refused = chat.line("show a.py", PROMPT)
        assert "waits for an answer" in refused
        assert re.search(r"detent release \w+ yes --hold confirm:", refused)
        chat.line("continue", ASKED)
        chat.line("y", "done (unchecked)")
        assert (folder / "sub" / "b.py").read_text() == "x = 2\n"
        chat.until(PROMPT)
        chat.keys(CTRL_D)
        assert chat.ended() == 0


def test_keys_pressed_before_a_question_answer_nothing(folder: Path, served: ModelServer) -> None:
    command = ("bash", {"command": "echo ran > ran"})
    served.rule = lambda asked: (
        says("TUNACODE DONE: well") if asked.turn else says("Wait.\n", command, ending="waits")
    )
    with _chat(folder, "--model", "house") as chat:
        chat.line("go", "Wait.")
        chat.keys("y\ryes\ra\r")
        served.gate.set()
        chat.until(ASKED)
        shown = chat.line("n", PROMPT)  # the first answer that is read
        assert "✗ bash echo ran" in shown
        assert ASKED not in shown
        assert not (folder / "ran").exists()


def test_commands_at_a_question_are_no_answers_and_it_is_said_how_to_leave(
    folder: Path, served: ModelServer
) -> None:
    with _chat(folder, "--model", "house") as chat:
        shown = chat.line("edit it", ASKED)
        assert "this tool in this very folder, until the program ends" in shown
        for command in ("/help", "/quit", "/state"):
            chat.line(command, "Ctrl-C leaves the question open", ASKED)
        chat.line("y", "it is done", PROMPT)
        chat.line("/allow", "Nothing is allowed without a question", PROMPT)
        chat.line("run it", "exactly this, until the program ends", ASKED)
        chat.line("a")
        while not (folder / "begun").exists():
            time.sleep(0.02)
        chat.keys(CTRL_C, PROMPT)
        chat.line("/allow", "always bash echo begun > begun", "(until this program ends)", PROMPT)


# -- Ctrl-C -------------------------------------------------------------------------------------------------


def test_ctrl_c_drops_a_models_reply_and_continue_asks_again(
    folder: Path, served: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with _chat(folder, "--model", "house") as chat:
        chat.line("wait for it", "I begin.")
        chat.keys("next prom")
        shown = chat.keys(CTRL_C, "> next prom")  # what was typed is the beginning of the next prompt
        assert INTERRUPTED in shown
        assert "(the text above was broken off and is discarded)" in shown
        (row,) = _objects(capsys, "runs")["runs"]
        assert row["status"] == "running"
        chat.keys("\x15")
        chat.line("Continue.", "it is done  2 turns", PROMPT)
        assert [asked.again for asked in served.asked if asked.prompt == "wait for it"][:2] == [0, 1]
        (row,) = _objects(capsys, "runs")["runs"]
        assert row["status"] == "succeeded"


def test_ctrl_c_ends_a_running_command_and_another_prompt_gives_the_request_up(
    folder: Path, served: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with _chat(folder, "--model", "house", "--yes") as chat:
        chat.line("run it", "I run it.")
        while not (folder / "begun").exists():
            time.sleep(0.02)
        shown = chat.keys(CTRL_C, PROMPT)
        assert INTERRUPTED in shown
        assert "interrupted" in next(line for line in shown.splitlines() if "✗ bash" in line)
        assert not (folder / "over").exists()
        chat.line("four", "heard 4 characters", PROMPT)
        rows = _objects(capsys, "runs")["runs"]
        assert [row["status"] for row in rows] == ["succeeded", "cancelled"]
        chat.keys(CTRL_D)
        assert chat.ended() == 0
    session = _objects(capsys, "sessions", "show", "last")
    calls = [call["id"] for turn in session["messages"] for call in turn.get("tool_calls") or ()]
    results = [turn["tool_call_id"] for turn in session["messages"] if turn["role"] == "tool"]
    assert calls == results == ["t1c1"]  # every call has its result


def test_ctrl_c_at_a_question_leaves_it_open(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house") as chat:
        chat.line("edit it", ASKED)
        chat.keys(CTRL_C, "Or answer it here", PROMPT)
        chat.line("continue", ASKED)
        chat.line("y", "it is done", PROMPT)
        assert (folder / "a.py").read_text() == "x = 2\n"


def test_ctrl_c_twice_leaves_at_once_and_the_request_can_be_resumed(
    folder: Path, served: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with _chat(folder, "--model", "house") as chat:
        chat.line("wait for it", "I begin.")
        chat.keys(CTRL_C, "once more leaves at once")
        chat.keys(CTRL_C)
        assert chat.ended() == 130
    (row,) = _objects(capsys, "runs")["runs"]
    assert row["status"] == "running"
    served.rule = lambda asked: says("TUNACODE DONE: at last")
    with _chat(folder, "--model", "house", "--resume", "last") as chat:
        shown = chat.until("goes on with it here", PROMPT)
        assert INTERRUPTED in shown
        assert "> wait for it" in shown
        chat.line("continue", "at last", PROMPT)


def test_ctrl_c_at_the_prompt_clears_the_line_and_leaves_the_second_time(folder: Path) -> None:
    with _chat(folder) as chat:
        chat.keys("show a.p", "show a.p")
        chat.keys(CTRL_C, "once more", PROMPT)
        chat.keys("list f", "list f")
        chat.keys(CTRL_C, "once more", PROMPT)  # what was typed is cleared; that leaves nobody out
        chat.line("list files", "done (unchecked)", PROMPT)
        chat.keys(CTRL_C, "once more", PROMPT)
        chat.keys(CTRL_C)
        assert chat.ended() == 130
    with _chat(folder) as chat:
        chat.send(signal.SIGTERM)
        assert chat.ended() == 143


def test_ctrl_c_in_a_single_request_ends_with_130_and_says_how_to_go_on(
    folder: Path, served: ModelServer
) -> None:
    with Terminal(folder, "run", "coding", "--model", "house", "wait for it") as terminal:
        terminal.until("I begin.")
        terminal.keys(CTRL_C)
        assert terminal.ended() == 130
        assert re.search(r"Go on with: detent resume \w+", terminal.text)
    with Terminal(folder, "run", "coding", "--model", "house", "edit it") as terminal:
        terminal.until(ASKED)
        terminal.keys(CTRL_C)
        assert terminal.ended() == 130
        assert re.search(r"detent release \w+ yes", terminal.text)


def test_ctrl_c_after_an_interrupted_request_clears_the_line_first(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house") as chat:
        chat.line("wait for it", "I begin.")
        chat.keys(CTRL_C, INTERRUPTED, PROMPT)
        chat.keys("abc", "abc")
        chat.keys(CTRL_C, "once more", PROMPT)
        chat.line("four", "The request before it is cancelled", "heard 4 characters", PROMPT)
        chat.line("wait more", "I begin.")
        chat.keys(CTRL_C, INTERRUPTED, PROMPT)
        chat.keys(CTRL_C, "Come back with: detent chat --resume")  # the second of two, however late it comes
        assert chat.ended() == 130


# -- pastes, sizes, colours ---------------------------------------------------------------------------------


def test_a_paste_of_many_lines_is_one_prompt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"line {number} of what was pasted" for number in range(10_000)]
    with _chat(folder) as chat:
        chat.paste("\n".join(lines), "line 9999")
        chat.line("", "[10,000 lines]", "not finished", PROMPT)
        chat.paste("show a.py\nlist files", "list files")
        chat.line("", "2 tools")
    rows = _objects(capsys, "runs")["runs"]
    prompts = [_objects(capsys, "show", row["id"])["data"]["prompt"] for row in rows]
    assert prompts == ["show a.py\nlist files", "\n".join(lines)]


def test_a_paste_while_a_request_runs_is_the_beginning_of_the_next_prompt(
    folder: Path, served: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with _chat(folder, "--model", "house") as chat:
        chat.line("wait for it", "I begin.")
        chat.paste("one\ntwo\nthree")
        served.gate.set()
        chat.until("three")
        assert len(_objects(capsys, "runs")["runs"]) == 1
        chat.line("", "heard 5 characters")  # of the last line


def test_the_window_may_change_its_size_at_any_time(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house", columns=200) as chat:
        for columns, rows in ((20, 5), (1, 1), (400, 100), (60, 20)):
            chat.resize(columns, rows)
            chat.keys("x", "x")
        chat.keys("\x15")
        chat.line("wait for it", "I begin.")
        for columns, rows in ((20, 5), (1, 1), (80, 24)):
            chat.resize(columns, rows)
        served.gate.set()
        chat.until("done (unchecked)", PROMPT)
        chat.line("hello", "heard 5 characters")


def test_without_colour_there_are_only_lines(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house", env={"NO_COLOR": "1"}, columns=40) as chat:
        chat.line("think of it", "done (unchecked): thought")
        chat.until(PROMPT)
        chat.line("edit it", ASKED)
        chat.line("y", "it is done")
        chat.until(PROMPT)
        sequences = set(re.findall(rb"\x1b\[[0-?]*[ -/]*[@-~]", chat.raw))
    assert not {sequence for sequence in sequences if sequence.endswith((b"m", b"J", b"H", b"l", b"h"))} - {
        b"\x1b[?2004h", b"\x1b[?2004l"  # only pastes are told from keys
    }  # fmt: skip


def test_nothing_that_a_model_writes_steers_the_terminal(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house", env={"NO_COLOR": ""}) as chat:
        chat.line("attack it", PROMPT)
        assert "hi\\x202e" in chat.text
        for harmful in (b"\x1b]", b"\x1b[2J", b"\x1b[?1049h", b"\x07", "\u202e".encode()):
            assert harmful not in chat.raw, harmful


def test_thinking_is_not_shown_and_a_broken_reply_is_marked(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house") as chat:
        shown = chat.line("think of it", "done (unchecked): thought")
        assert "I think." in shown
        assert "secret" not in as_seen(shown)
        assert "TUNACODE" not in as_seen(shown)
        chat.until(PROMPT)
        shown = chat.line("break it", "done (unchecked): whole")
        assert shown.index("Half a") < shown.index("(the text above was broken off and is discarded)")


def as_seen(text: str) -> str:
    """What is printed, without what the keys have written."""
    return text.partition("\n")[2]


# -- two terminals ------------------------------------------------------------------------------------------


def test_a_second_terminal_follows_live_and_its_prompt_is_refused(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house") as first:
        first.line("hello", "heard 5", PROMPT)
        first.line("wait for it", "I begin.")
        with Terminal(folder, "chat", "--model", "house", "--resume", "last") as second:
            shown = second.until("Following it")
            assert f"is being worked on by process {first.pid}" in shown
            second.keys(CTRL_C, PROMPT)
            refused = second.line("me too", "Following it")
            assert "The prompt was not taken." in refused
            served.gate.set()
            second.until("turn 2/40", "it is done", PROMPT)
            first.until("turn 2/40", PROMPT)
            second.line("edit it", ASKED)
            first.until("> edit it", "I edit.", "+x = 2", "It is asked there")
            first.keys(CTRL_C, "Not followed any longer", PROMPT)
            waiting = first.line("and I", PROMPT)
            assert "waits for an answer" in waiting
            first.line("continue", ASKED)
            first.line("y", "it is done", PROMPT)
            second.until("It was answered elsewhere", "it is done", PROMPT)
            second.line("four", "heard 4", PROMPT)
            first.until("> four", "heard 4", PROMPT)
            first.line("sixsix", "heard 6", PROMPT)
    prompts = [asked.prompt for asked in served.asked]
    assert "me too" not in prompts
    assert "and I" not in prompts


def test_a_terminal_that_is_idle_shows_what_another_one_does(folder: Path, served: ModelServer) -> None:
    with _chat(folder, "--model", "house", "--yes") as first:
        first.line("hello", "heard 5", PROMPT)
        with Terminal(folder, "chat", "--model", "house", "--resume", "last") as second:
            second.until("heard 5", PROMPT)
            first.line("edit it", "it is done", PROMPT)
            shown = second.until("> edit it", "I edit.", "✓ update_file a.py", "it is done", PROMPT)
            assert shown.count("I edit.") == 1
            first.line("four", "heard 4", PROMPT)
            second.until("> four", "heard 4", PROMPT)
            second.line("sixsix", "heard 6", PROMPT)  # and the other way round
            shown = first.until("> sixsix", "heard 6", PROMPT)
            assert "> four" not in shown.partition("> sixsix")[2]
            first.keys("half a pro", "half a pro")  # who types is not disturbed
            second.line("seven77", "heard 7", PROMPT)
            first.keys("mpt!", "mpt!")
            assert "> seven77" not in first.text
            first.keys("\x15")
            first.line("", "> seven77", "heard 7", PROMPT)


def test_a_terminal_that_joins_a_request_under_way_shows_what_it_has_done_and_its_reply_when_it_is_whole(
    folder: Path, served: ModelServer
) -> None:
    served.rule = lambda asked: (
        says("Now I read on.\nTUNACODE DONE: read", ending="waits")
        if asked.turn
        else says("I look first.\n", ("read_file", {"filepath": "a.py"}))
    )
    with _chat(folder, "--model", "house") as first:
        first.line("go", "Now I read on.")
        with Terminal(folder, "chat", "--model", "house", "--resume", "last") as second:
            second.until("Following it", "> go", "I look first.", "✓ read_file a.py", "turn 2/40")
            assert "Now I read on." not in second.text
            served.gate.set()
            second.until("Now I read on.", "done (unchecked): read", PROMPT)
            first.until("done (unchecked): read", PROMPT)


def test_a_terminal_that_follows_says_so_when_a_request_is_interrupted_and_shows_what_comes_then(
    folder: Path, served: ModelServer
) -> None:
    with _chat(folder, "--model", "house") as first:
        first.line("wait for it", "I begin.")
        with Terminal(folder, "chat", "--model", "house", "--resume", "last") as second:
            second.until("Following it", "> wait for it")
            second.keys("typed mean")
            first.keys(CTRL_C, INTERRUPTED, PROMPT)
            shown = second.until(INTERRUPTED, "> typed mean")  # what was typed meanwhile is the next prompt's
            assert '"continue" goes on with it here; another prompt cancels it.' in shown
            second.keys("\x15")
            first.line("edit it", "The request before it is cancelled", ASKED)
            second.line("", "cancelled", "> edit it", "I edit.", "+x = 2", "It is asked there")
            first.line("y", "it is done", PROMPT)
            second.until("it is done", PROMPT)


def test_a_question_that_is_answered_elsewhere_is_left_and_the_next_one_asked_here(
    folder: Path, served: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    edits = [("update_file", {"filepath": "a.py", "target": str(at), "patch": str(at + 1)}) for at in (1, 2)]
    served.rule = lambda asked: (
        says("I edit.\n", edits[asked.turn]) if asked.turn < 2 else says("TUNACODE DONE: both")
    )
    agent = "model: {provider: house}\ncoding: {sandbox: false, steps: {assistant: {mode: agent}}}\n"
    (folder / "detent.yaml").write_text(agent + served.settings)
    with _chat(folder) as chat:
        chat.line("go", ASKED)
        (row,) = _objects(capsys, "runs")["runs"]
        command = [sys.executable, "-m", "detent", "release", row["id"], "yes"]
        command += ["--hold", _objects(capsys, "show", row["id"])["holds"][0]["token"]]
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        shown = chat.until("It was answered elsewhere", "+x = 3", ASKED)
        assert "It is asked there" not in shown
        chat.line("y", "both", PROMPT)
        assert (folder / "a.py").read_text() == "x = 3\n"


# -- what stays ---------------------------------------------------------------------------------------------


def test_history_and_completion_are_there_for_the_next_conversation(folder: Path) -> None:
    with _chat(folder) as chat:
        chat.line("show a.py", "done (unchecked)", PROMPT)
        chat.keys(CTRL_D)
        assert chat.ended() == 0
    with _chat(folder) as chat:
        chat.keys("\x1b[A", "show a.py")  # the key for the line before
        chat.line("", "done (unchecked)")
        chat.until(PROMPT)
        chat.keys("/hi\t", "/history ")
        chat.line("", "showed a.py", PROMPT)
        chat.keys("show a\t", "show a.py")
        chat.line("", "done (unchecked)")
    history = folder / ".detent" / "sessions" / "history"
    assert history.stat().st_mode & 0o777 == 0o600


def test_the_commands_of_a_conversation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with _chat(folder) as chat:
        chat.line("/help", "/export FILE", PROMPT)
        chat.line("/state", "it begins with the first prompt", PROMPT)
        chat.line("/history", "Nothing has been said yet", PROMPT)
        chat.line("list files", "1 tool", PROMPT)
        chat.line("/state", "response, complete", PROMPT)
        chat.line("/history", "listed the workspace", PROMPT)
        chat.line("/tools", "asks, unless allowed", PROMPT)
        chat.line("/todo", "Nothing is on the list", PROMPT)
        chat.line("/allow nonsense:x", "no tool 'nonsense'", PROMPT)
        chat.line("/allow update_file:*.py", PROMPT)
        chat.line("replace 1 with 2 in a.py", "done (unchecked)", PROMPT)
        chat.line("/allow", "allow  update_file:*.py", PROMPT)
        session = _objects(capsys, "sessions", "list")[0]["id"]
        assert session in chat.line("/sessions", PROMPT)
        chat.line("/export out.json", "Written to out.json", PROMPT)
        chat.line("/export out.json", "exists already", PROMPT)
        assert json.loads((folder / "out.json").read_text())["session_id"] == session
        assert (folder / "out.json").stat().st_mode & 0o777 == 0o600
        chat.line("/hlep", "Did you mean /help?", PROMPT)
        chat.line("/resume 2026-01-01_00-00-00_x_000000", "no session", PROMPT)
        assert f"Session {session}" in chat.line("/resume last", PROMPT)
        chat.line("/quit")
        assert chat.ended() == 0


# -- a pipe -------------------------------------------------------------------------------------------------


def _piped(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "detent", "chat", *words], cwd=folder, input=text, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_pipe_gives_one_prompt_a_line_and_sees_no_prompt(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = _piped(folder, "show a.py\n\n/state\nreplace 1 with 2 in a.py\n", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(line.startswith(">") for line in done.stdout.splitlines())
    assert done.stdout.count("done (unchecked)") == 3  # once by /state
    assert "\x1b" not in done.stdout
    assert (folder / "a.py").read_text() == "x = 2\n"
    assert len(_objects(capsys, "sessions", "list")) == 1
    failed = _piped(folder, "paint it\nshow a.py\n")
    assert failed.returncode == 1
    assert "done (unchecked): showed a.py" in failed.stdout
    waiting = _piped(folder, "replace 2 with 3 in a.py\nshow a.py\n")
    assert waiting.returncode == 2
    assert re.search(r"detent release \w+ yes --hold confirm:", waiting.stdout)
    assert "waits for an answer" in waiting.stderr
    assert "done (" not in waiting.stdout
    assert (
        "2 lines of the input not taken, from this one on: show a.py"
        in _piped(folder, "replace 2 with 3 in a.py\nshow a.py\nlist files\n").stderr
    )
    objects = [
        json.loads(line) for line in _piped(folder, "/state\n/nonsense\n", "--json").stdout.splitlines()
    ]
    assert [item["command"] for item in objects] == ["/state", "/nonsense"]
    assert any("workspace" in line for line in objects[0]["lines"])
    lines = _piped(folder, "show a.py\n", "--json").stdout.splitlines()
    assert json.loads(lines[-1])["outcome"] == "completed"
