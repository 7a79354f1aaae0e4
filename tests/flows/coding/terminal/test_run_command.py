"""`detent run coding`: exit codes, what is printed, questions without a terminal."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detent.cli.main import run
from tests.flows.coding.terminal.model_server import Asked, ModelServer, Written, says

SETTINGS = "coding: {sandbox: false, max_retries: 0}\n"
CLOSING = re.compile(r"done \((.+?)\)(?:: (.*?))?  (\d+ turns?) · (\d+ tools?) · ([\d,]+ tokens?)")


@dataclass
class Ran:
    """How a command has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What was printed, without the time of calls that took long."""
        return [re.sub(r" · [\d.]+ m?s$", "", line) for line in self.out.splitlines()]

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Its lines as JSON."""
        return [json.loads(line) for line in self.lines]


@dataclass
class Project:
    """A folder in which commands are called."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Ran:
        self.capsys.readouterr()
        code = run(words)
        out = self.capsys.readouterr()
        return Ran(code, out.out, out.err)

    def coding(self, *words: str) -> Ran:
        """`detent run coding …`."""
        return self("run", "coding", *words)

    @property
    def waiting(self) -> tuple[str, str]:
        """Run and token of the open question."""
        (row,) = json.loads(self("runs", "--status", "waiting", "--json").out)["runs"]
        (hold,) = json.loads(self("show", row["id"], "--json").out)["holds"]
        return row["id"], hold["token"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "detent.yaml").write_text(SETTINGS)
    (tmp_path / "a.py").write_text("x = 1\nprint(x)\n")
    return Project(tmp_path, capsys)


@pytest.fixture
def served(project: Project) -> Iterator[ModelServer]:
    """A model that is `house` in the settings; tests give its rule."""
    with ModelServer(lambda asked: says("TUNACODE DONE: yes")) as server:
        (project.folder / "detent.yaml").write_text(SETTINGS + server.settings)
        yield server


def test_help_has_a_line_for_each_form(project: Project) -> None:
    ran = project.coding("help")
    assert "  show FILE, show FILE lines 3-10" in ran.lines
    assert "  run tests" in ran.lines
    assert "done (unchecked): I can: the above; up to 5 of them with then in between" in ran.out


def test_a_misspelt_application_is_recognised(project: Project) -> None:
    assert "Did you mean 'coding'?" in project("run", "codin", "hello").err


def test_a_held_call_says_how_its_text_is_changed(project: Project, served: ModelServer) -> None:
    served.rule = lambda asked: says("", ("bash", {"command": "ls", "cwd": "."}))
    assert """'{"edit": {"command": …}}'""" in project.coding("--model", "house", "go on").out
    assert re.search(r"waiting +1   \(detent runs --status waiting\)", project("doctor").out)


# -- ends ---------------------------------------------------------------------------------------------------


def test_a_request_that_is_done_ends_with_its_closing_line(project: Project) -> None:
    ran = project.coding("show a.py")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [
        "coding  show a.py",
        "  user_input → assistant  turn 1/40",
        "  ✓ read_file a.py  2 lines",
        "  → tool_execution → response → assistant  turn 2/40",
        "  → response",
        "x = 1",
        "print(x)",
        "done (unchecked): showed a.py  2 turns · 1 tool · 0 tokens",
    ]


@pytest.mark.parametrize("pattern", ["../x", "/etc", "~/x", ""])
def test_a_path_that_cannot_be_protected_is_refused_before_anything_is_done(
    project: Project, pattern: str
) -> None:
    """Not at the first change, or never where it would protect nothing."""
    (project.folder / "detent.yaml").write_text(f"coding:\n  protect: ['tests/**', '{pattern}']\n")
    ran = project.coding("show a.py")
    assert (ran.code, ran.out) == (2, "")
    assert re.search(r"detent\.yaml:2:\d+: ", ran.err)
    assert f"'{pattern}' cannot be protected" in ran.err


def test_the_closing_line_says_whether_a_check_confirmed_it(project: Project, served: ModelServer) -> None:
    def rule(asked: Asked) -> Written:
        edit = ("update_file", {"filepath": "tests/a.py", "target": "1", "patch": "2"})
        return [says("", edit), says("TUNACODE DONE: a.py changed, 12 passed")][min(asked.turn, 1)]

    served.rule = rule
    tests = project.folder / "tests"
    tests.mkdir()
    closing = []
    for check in ((), ("--done-when", "true"), ("--done-when", "exit 7")):
        (tests / "a.py").write_text("x = 1\n")
        ran = project.coding("--model", "house", "--yes", *check, "change it")
        closing.append(
            (ran.code, [line for line in ran.lines if line.startswith(("done", "not ", "  The check"))])
        )
    assert closing == [
        (0, ["done (unchecked): a.py changed, 12 passed  2 turns · 1 tool · 240 tokens"]),
        (
            0,
            [
                "done (checked): a.py changed, 12 passed  2 turns · 1 tool · 240 tokens",
                "  The check passed, but what it runs was changed: tests/a.py",
            ],
        ),
        (
            1,
            [
                "not finished: the check that tells whether it is done keeps failing  "
                "4 turns · 1 tool · 480 tokens"
            ],
        ),
    ]


def test_an_incomplete_end_is_told_with_what_was_done_and_ways_on(
    project: Project, served: ModelServer
) -> None:
    served.rule = lambda asked: [says("", ("bash", {"command": "false"})), says("All done!")][
        min(asked.turn, 1)
    ]
    ran = project.coding("--model", "house", "--yes", "fix it")
    assert ran.code == 1
    end = ran.lines[ran.lines.index("  → response") + 1 :]
    assert end[0].startswith("not finished: reply after reply made no new call and had no marker that counts")
    assert end[0].endswith("4 turns · 1 tool · 480 tokens")
    assert "  Commands: false. They may have changed more files." in end
    assert end[-2].startswith("  Ways on: ")
    assert "done (" not in ran.out
    shown = project("sessions", "list", "--json").out
    assert json.loads(shown)[0]["outcome"] == "incomplete"


def test_every_outcome_has_its_exit_code(project: Project, served: ModelServer) -> None:
    served.rule = lambda asked: says("", ("list_dir", {"max_entries": asked.turn + 1}))
    endless = ("--model", "house", "go on")
    codes = {
        "done": project.coding("show a.py").code,
        "needs a model": project.coding("paint it").code,
        "limit": project.coding("--max-iterations", "2", *endless).code,
        "budget": project.coding("--budget-tokens", "200", *endless).code,
        "waiting": project.coding("replace 1 with 2 in a.py").code,
        "denied": project.coding("--on-confirm", "deny", "replace 1 with 2 in a.py").code,
        "no such model": project.coding("--model", "other", "--config", "none.yaml", "x").code,
        "no such folder": project.coding("--workspace", "nowhere", "x").code,
        "no such rule": project.coding("--allow", "foo:x", "x").code,
        "empty prompt": project.coding(" ").code,
        "no such session": project.coding("--session", "2026-01-01_00-00-00_x_000000", "x").code,
        "no prompt": project.coding().code,
    }
    assert codes == {
        "done": 0, "needs a model": 1, "limit": 1, "budget": 1, "waiting": 0, "denied": 1,
        "no such model": 2, "no such folder": 2, "no such rule": 2, "empty prompt": 2, "no such session": 2,
        "no prompt": 2,
    }  # fmt: skip


def test_a_budget_that_is_used_up_is_told_with_the_command_that_goes_on(
    project: Project, served: ModelServer
) -> None:
    served.rule = lambda asked: says("", ("list_dir", {"max_entries": asked.turn + 1}))
    ran = project.coding("--model", "house", "--budget-tokens", "200", "go on")
    assert any(line.startswith("not finished: the budget is used up (tokens)  ") for line in ran.lines)
    assert re.search(r"detent reopen \w+ --budget-tokens MORE", ran.out)


def test_a_model_that_cannot_be_reached_ends_the_command_before_anything_is_begun(project: Project) -> None:
    with ModelServer(lambda asked: says()) as server:
        (project.folder / "detent.yaml").write_text(SETTINGS + server.settings)
    for settings in ((), ("steps",)):
        if settings:
            text = (project.folder / "detent.yaml").read_text()
            agent = "coding: {steps: {assistant: {mode: agent}}}\n"
            (project.folder / "detent.yaml").write_text(text.replace(SETTINGS, agent))
        ran = project.coding(*(() if settings else ("--model", "house")), "fix it")
        assert (ran.code, ran.out) == (3, "")
        assert "cannot be asked: there is no answer at 127.0.0.1" in ran.err
    assert json.loads(project("runs", "--json").out)["runs"] == []
    assert project.coding("--deterministic", "show a.py").code == 0


def test_without_a_model_in_the_settings_it_is_said_what_to_do(project: Project) -> None:
    ran = project.coding("--model", "gpt-9", "x")
    assert ran.code == 2
    assert "detent models pull" in ran.err
    assert "docs/models.md" in ran.err


# -- ways to print ------------------------------------------------------------------------------------------


def test_json_is_an_object_for_each_transition_and_the_result(project: Project) -> None:
    *transitions, result = project.coding("--json", "show a.py").objects
    assert [(item["from_state"], item["to_state"], item["turn"]) for item in transitions] == [
        ("user_input", "assistant", 0), ("assistant", "tool_execution", 1), ("tool_execution", "response", 1),
        ("response", "assistant", 1), ("assistant", "response", 2),
    ]  # fmt: skip
    assert {item["event"] for item in transitions} == {"transition"}
    assert result["event"] == "result"
    assert (result["outcome"], result["iterations"], result["files_changed"]) == ("completed", 2, [])
    assert "x = 1" in result["text"]
    waiting = project.coding("--json", "replace 1 with 2 in a.py").objects[-1]
    run_id, token = project.waiting
    assert waiting["outcome"] == "waiting"
    assert [(hold["run_id"], hold["token"]) for hold in waiting["holds"]] == [(run_id, token)]


def test_quiet_prints_the_result_alone(project: Project, served: ModelServer) -> None:
    assert project.coding("-q", "show a.py").lines[:-1] == ["x = 1", "print(x)"]
    served.rule = lambda asked: says("Four.\nTUNACODE DONE: 4")
    ran = project.coding("-q", "--model", "house", "2 + 2?")
    assert ran.lines[0] == "Four."
    assert CLOSING.fullmatch(ran.lines[-1])


def test_the_debug_log_has_every_transition_however_results_are_printed(project: Project) -> None:
    for way in ((), ("--json",), ("-q",)):
        ran = project.coding(*way, "--log-level", "debug", "show a.py")
        moves = re.findall(r"request\.moved.*?frm=(\w+).*?to=(\w+)", ran.err)
        assert moves == [
            ("user_input", "assistant"), ("assistant", "tool_execution"), ("tool_execution", "response"),
            ("response", "assistant"), ("assistant", "response"),
        ]  # fmt: skip


def test_a_prompt_is_read_from_standard_input(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"show a.py\n")))
    assert "print(x)" in project.coding("-").lines


def test_a_recording_is_played_back_without_touching_anything(project: Project, served: ModelServer) -> None:
    edit = ("update_file", {"filepath": "a.py", "target": "1", "patch": "2"})
    served.rule = lambda asked: [says("I edit.\n", edit), says("TUNACODE DONE: edited")][min(asked.turn, 1)]
    given = ("--model", "house", "--yes", "edit it")
    first = project.coding("--record", "tape.jsonl", *given)
    (project.folder / "a.py").write_text("x = 1\nprint(x)\n")
    asked, files = len(served.asked), sorted(project.folder.rglob("sessions/*"))
    again = project.coding("--replay", "tape.jsonl", *given)
    assert (first.code, again.code) == (0, 0)
    assert again.lines[:-1] == [line for line in first.lines if not line.startswith("Recorded")]
    assert len(served.asked) == asked
    assert (project.folder / "a.py").read_text() == "x = 1\nprint(x)\n"
    assert sorted(project.folder.rglob("sessions/*")) == files


@pytest.mark.parametrize(
    "prompts", [("list files", "please list files"), ("list files", "list then show a.py")]
)
def test_a_recording_is_not_played_back_for_another_prompt(
    project: Project, prompts: tuple[str, str]
) -> None:
    recorded, another = prompts
    assert project.coding("--record", "tape.jsonl", recorded).code == 0
    ran = project.coding("--replay", "tape.jsonl", another)
    assert ran.code == 1
    assert f'"{recorded}"' in ran.err
    assert f'"{another}"' in ran.err
    assert "done" not in ran.out
    assert project.coding("--replay", "tape.jsonl", recorded).code == 0


def test_a_recording_of_a_model_is_not_played_back_for_another_prompt(
    project: Project, served: ModelServer
) -> None:
    given = ("--model", "house")
    assert project.coding("--record", "tape.jsonl", *given, "say yes").code == 0
    ran = project.coding("--replay", "tape.jsonl", *given, "say no")
    assert (ran.code, "done" in ran.out) == (1, False)
    assert '"say no"' in ran.err


def test_a_budget_that_the_last_reply_has_passed_is_told_of(project: Project, served: ModelServer) -> None:
    ran = project.coding("--model", "house", "--budget-tokens", "100", "say yes")
    assert ran.lines[-1] == (
        "done (unchecked): yes  1 turn · 0 tools · 120 tokens · over its budget of 100 tokens"
    )
    within = project.coding("--model", "house", "--budget-tokens", "1000", "say yes")
    assert within.lines[-1].endswith("120 tokens")


# -- questions without a terminal ---------------------------------------------------------------------------


def test_a_question_waits_for_release_and_an_old_token_is_refused(project: Project) -> None:
    asked = project.coding("replace 1 with 2 in a.py")
    assert asked.code == 0
    run_id, token = project.waiting
    assert [line for line in asked.lines if line.startswith(("  -x", "  +x"))] == ["  -x = 1", "  +x = 2"]
    assert f"detent release {run_id} yes --hold {token}" in asked.out
    (project.folder / "a.py").write_text("x = 1\nprint(x)\n# later\n")
    again = project("release", run_id, "yes", "--hold", token)
    assert "What is shown has changed" in again.out
    assert (project.folder / "a.py").read_text() == "x = 1\nprint(x)\n# later\n"
    old = project("release", run_id, "yes", "--hold", token)
    assert old.code == 2
    assert "was answered" in old.err
    run_id, token = project.waiting
    done = project("release", run_id, "yes", "--hold", token)
    assert done.code == 0
    assert CLOSING.fullmatch(done.lines[-1])
    assert (project.folder / "a.py").read_text() == "x = 2\nprint(x)\n# later\n"


def test_a_prompt_is_refused_while_a_question_is_open(project: Project) -> None:
    project.coding("replace 1 with 2 in a.py")
    run_id, token = project.waiting
    ran = project.coding("--session", "last", "show a.py")
    assert ran.code == 2
    assert "waits for an answer" in ran.err
    assert f"detent release {run_id} yes --hold {token}" in ran.out
    assert project.coding("show a.py").code == 0  # another session is free


def test_the_assistants_question_is_answered_in_own_words(project: Project, served: ModelServer) -> None:
    ask = ("ask", {"question": "Which colour?", "choices": ["red", "blue"]})
    served.rule = lambda asked: (
        says("", ask) if not asked.turn else says(f"TUNACODE DONE: {asked.results[-1]}")
    )
    assert "? Which colour?" in project.coding("--model", "house", "paint it").lines
    run_id, token = project.waiting
    agent = "coding: {sandbox: false, steps: {assistant: {mode: agent}}}\n"
    text = (project.folder / "detent.yaml").read_text()
    (project.folder / "detent.yaml").write_text(text.replace(SETTINGS, agent))
    done = project("release", run_id, "a warm green", "--hold", token)
    assert done.lines[-1].startswith("done (unchecked): a warm green  ")


def test_a_secret_looking_file_is_read_only_after_a_yes(project: Project, served: ModelServer) -> None:
    (project.folder / ".env").write_text("COLOUR=teal\n")
    read = ("read_file", {"filepath": ".env"})
    served.rule = lambda asked: (
        says("", read) if not asked.turn else says(f"TUNACODE DONE: {asked.results[-1].strip()}")
    )
    agent = "coding: {sandbox: false, steps: {assistant: {mode: agent}}}\n"
    text = (project.folder / "detent.yaml").read_text()
    (project.folder / "detent.yaml").write_text(text.replace(SETTINGS, agent))
    for answer, told in (("yes", "COLOUR=teal"), ('{"no": "not that"}', "not that")):
        asked = project.coding("look")
        assert "? Read '.env', which may hold secrets?" in asked.lines
        run_id, token = project.waiting
        done = project("release", run_id, answer, "--hold", token)
        assert done.code == 0
        assert told in done.lines[-1]


def test_a_model_that_fails_is_told_of_once_with_its_cause_and_the_way_on(
    project: Project, served: ModelServer
) -> None:
    served.rule = lambda asked: says("I beg", ending="dies")
    ran = project.coding("--model", "house", "fix it")
    assert ran.code == 1
    assert ran.out.count("not finished") == 1
    assert ran.out.count("Nothing was changed.") == 1
    (cause,) = (line for line in ran.lines if line.startswith("  Cause: "))
    assert served.url.removeprefix("http://") in cause
    assert "handler" not in ran.out
    assert "once the model answers" in ran.out
    assert ran.lines[-1] == "  Continue with: detent run coding continue --session last"


def test_a_request_that_needs_a_model_is_not_told_to_continue(project: Project) -> None:
    ran = project.coding("fix it")
    assert "ontinue" not in ran.out
    assert "set a model" in ran.lines[-1]


def test_who_answers_a_question_has_the_request_done_by_the_model_it_was_begun_with(
    project: Project, served: ModelServer
) -> None:
    """The settings name no model for the assistant; `--model` was the first command's. So with tasks."""
    edit = ("update_file", {"filepath": "a.py", "target": "x = 1", "patch": "x = 2"})
    task = ("task", {"description": "look", "prompt": "look around"})

    def rule(asked: Asked) -> Written:
        if asked.prompt == "look around":
            return says("TUNACODE DONE: looked")
        return [says("", edit), says("", task), says("TUNACODE DONE: changed and looked")][asked.turn]

    served.rule = rule
    assert project.coding("--model", "house", "change it").code == 0
    run_id, token = project.waiting
    again = project.coding("--model", "big", "--session", "last", "continue")
    assert "the model it was begun with: house served-1" in again.err
    done = project("release", run_id, "yes", "--hold", token)
    assert done.code == 0, done.out
    assert "✓ task look" in done.out
    assert "done (unchecked): changed and looked" in done.lines[-1]


# -- sessions -----------------------------------------------------------------------------------------------


def test_a_session_is_gone_on_with_by_id_beginning_and_last(project: Project) -> None:
    session = project.coding("--json", "show a.py").objects[-1]["session_id"]
    project.coding("list files")  # another one
    known = [
        project.coding("--json", "--session", word, "list files").objects[-1]
        for word in (session, session[:-1])
    ]
    assert [result["session_id"] for result in known] == [session, session]
    last = project.coding("--json", "--session", "last", "show a.py").objects[-1]
    assert last["session_id"] == session
    elsewhere = project.folder / "other"
    elsewhere.mkdir()
    ran = project.coding("--workspace", "other", "--session", session, "list files")
    assert ran.code == 2
    assert "belongs to the workspace" in ran.err
    assert project.coding("--workspace", "other", "--session", "last", "list files").code == 2


def test_the_commands_are_found_where_people_look_for_them(project: Project) -> None:
    listed = project("--help").out
    for name in ("chat", "coding", "sessions"):
        assert re.search(rf"^  {name}\s", listed, re.MULTILINE), name
    assert "--on-confirm" in project("run", "coding", "--help").out
    assert "--resume" in project("chat", "--help").out
    assert "measure" in project("coding", "--help").out
