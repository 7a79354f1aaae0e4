"""`detent playbook …`, `detent run playbook` and `detent eval` on anybody's folder."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from detent.flows.playbook.starter import NEW
from detent.flows.playbook.step_file_cache import clear_instruction_cache

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "playbook"


@pytest.fixture(autouse=True)
def nothing_read_yet():
    clear_instruction_cache()
    yield
    clear_instruction_cache()


@pytest.fixture
def overdue(folder: Path) -> Path:
    """A stranger's playbook in the working folder."""
    return Path(shutil.copytree(EXAMPLE, folder / "overdue"))


def spoil(overdue: Path, before: str, after: str, step: str = "01-find-loan") -> None:
    file = overdue / "steps" / f"{step}.md"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    clear_instruction_cache()


# -- the whole way ------------------------------------------------------------------------------------------


def test_a_strangers_playbook_is_checked_drawn_tried_run_and_evaluated(detent, folder, overdue):
    """W-64."""
    check = detent("playbook", "check", "overdue", "--strict")
    assert (check.code, check.out) == (0, "overdue: ok, 3 steps\n")
    drawn = detent("playbook", "diagram", "overdue")
    assert (drawn.code, drawn.err) == (0, "")
    assert "s0 --> s1 : [loan.state = overdue, member.email present]" in drawn.out
    assert "graceful-degradation" not in drawn.out
    ran = detent("run", "playbook", "overdue", "--input", "overdue/input.json")
    assert (ran.code, ran.err) == (0, "")
    assert "01-find-loan         → 02-remind-reader" in ran.out
    (mail,) = (folder / "mail" / "outbox").glob("*.eml")
    assert "To: ines@reader.example" in mail.read_text()
    judged = detent("eval", "overdue")
    assert (judged.code, judged.err) == (0, "")
    assert judged.lines[0] == "eval overdue   6 cases   step mode   no model"
    assert judged.lines[-1] == "  6 / 6 passed (100.0 %)   threshold 99.0 %"
    assert len(list((folder / "mail" / "outbox").glob("*.eml"))) == 1  # cases leave nothing behind


def test_a_new_playbook_passes_its_check_runs_and_is_judged_at_once(detent, folder):
    """W-64: every command it names works as it stands."""
    made = detent("playbook", "new", "my desk")
    assert (made.code, made.err) == (0, "")
    commands = [line.strip() for line in made.lines[1:]]
    assert len(commands) == 3
    import shlex

    for command in commands:
        name, *words = shlex.split(command)
        assert name == "detent"
        result = detent(*words)
        assert (result.code, result.err) == (0, ""), (command, result)
    assert (folder / "out" / "R-1-now.txt").read_text().startswith("Dear Ada,")
    assert len(list((folder / "my desk" / "steps").iterdir())) == 3


@pytest.mark.parametrize("there", ["file", "full"])
def test_nothing_that_is_there_is_written_over(detent, folder, there):
    if there == "file":
        (folder / "desk").write_text("mine")
    else:
        (folder / "desk").mkdir()
        (folder / "desk" / "mine.txt").write_text("mine")
    result = detent("playbook", "new", "desk")
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("name a folder that is new or empty.\n")
    assert len(result.err.splitlines()) == 1


def test_an_empty_folder_may_be_filled(detent, folder):
    (folder / "desk").mkdir()
    assert detent("playbook", "new", "desk").code == 0


# -- check --------------------------------------------------------------------------------------------------


def test_every_problem_is_a_line_with_path_line_and_code(detent, overdue):
    spoil(overdue, "03-note-for-desk, reason", "03-note-desk, reason")
    spoil(overdue, "version: 1.0.0", "version: one", "02-remind-reader")
    result = detent("playbook", "check", "overdue")
    assert result.code == 2
    assert result.lines[2:] == ["overdue: 2 errors"]
    assert result.lines[0].startswith(
        "overdue/steps/01-find-loan.md:8:6: P10 next names '03-note-desk', which is no step here. "
        "Did you mean '03-note-for-desk'?"
    )
    assert result.lines[1].startswith("overdue/steps/02-remind-reader.md:4:1: P08")
    as_json = detent("playbook", "check", "overdue", "--json")
    assert (as_json.code, [one["ok"] for one in as_json.json]) == (2, [False])
    assert [(one["line"], one["code"]) for one in as_json.json[0]["problems"]] == [(8, "P10"), (4, "P08")]


def test_a_warning_is_an_error_only_when_strict(detent, overdue):
    (overdue / "templates" / "09-unused.en.txt").write_text("nobody asks for this")
    loose = detent("playbook", "check", "overdue")
    assert loose.code == 0
    assert loose.lines[0].startswith("overdue/templates/09-unused.en.txt:1:1: W02")
    assert loose.lines[1] == "overdue: ok, 3 steps, 1 warning"
    strict = detent("playbook", "check", "overdue", "--strict")
    assert (strict.code, strict.lines[1:]) == (2, ["overdue: 1 warning"])


def test_the_general_check_and_diagram_take_the_folder_too(detent, overdue):
    assert detent("check", "overdue/").lines == ["overdue: ok, 3 steps"]
    assert detent("check", "overdue").lines == ["overdue: ok, 3 steps"]
    drawn = detent("diagram", "./overdue")
    assert (drawn.code, drawn.out) == (0, detent("playbook", "diagram", "overdue").out)
    shown = detent("show", "overdue")
    assert (shown.code, shown.err, shown.lines[0]) == (0, "", "overdue")
    assert "overdue/02-remind-reader" in shown.out
    by_step = detent("step", "overdue", "03", "--data", "overdue/input.json")
    assert by_step.out == detent("playbook", "step", "overdue", "03", "--data", "overdue/input.json").out
    spoil(overdue, "03-note-for-desk, reason", "03-note-desk, reason")
    result = detent("check", "overdue/")
    assert result.code == 2
    assert "overdue/steps/01-find-loan.md:8:6: P10 next names" in result.out


# -- diagram ------------------------------------------------------------------------------------------------


def test_the_drawing_is_written_where_it_is_asked_for(detent, folder, overdue):
    assert detent("playbook", "diagram", "overdue", "--output", "x.mmd").code == 0
    assert (folder / "x.mmd").read_text().startswith('---\ntitle: "overdue v1"')
    written = detent("playbook", "diagram", "overdue", "--write")
    assert (written.code, written.err) == (0, "Written to overdue/WORKFLOW.md.\n")
    page = (overdue / "WORKFLOW.md").read_text()
    assert "```mermaid\n---\ntitle:" in page
    assert "| `03-note-for-desk` | Leave a note at the desk" in page
    assert detent("playbook", "check", "overdue").code == 0  # the page is no step
    assert detent("playbook", "diagram", "overdue", "--write", "-o", "y.md").code == 2
    assert detent("playbook", "diagram", "overdue", "-o", "no/such/folder.md").code == 2


# -- step ---------------------------------------------------------------------------------------------------


def test_one_step_is_tried_alone_and_nothing_is_performed(detent, folder, overdue):
    """W-65."""
    result = detent("playbook", "step", "overdue", "03", "--data", "overdue/input.json")
    assert (result.code, result.err) == (0, "")
    assert result.lines[0] == "03-note-for-desk   deterministic"
    assert re.search(r"^next +DONE$", result.out, re.MULTILINE)
    assert re.search(
        r"^proposed write_file +\{\"path\": \"desk/L-100.txt\".*\(not performed\)$", result.out, re.M
    )
    assert result.lines[-1] == "NEXT_STEP: DONE"
    assert not (folder / "desk").exists()
    assert not (folder / ".detent").exists()


def test_a_step_tells_programs_the_same(detent, folder, overdue):
    """W-65."""
    told = detent(
        "playbook", "step", "overdue", "find-loan", "--data", '{"loan_number": "L-100"}', "--json"
    ).json
    assert (told["next"], told["reason"], told["effects"]) == ("02-remind-reader", "overdue", [])
    assert [one["function_name"] for one in told["queries"]] == ["lookup", "lookup"]
    (folder / "all.yaml").write_text(json.dumps(told["data"]))
    second = detent("playbook", "step", "overdue", "02", "--data", "all.yaml", "--json").json
    assert second["effects"][0]["arguments"]["to"] == "ines@reader.example"
    assert not (folder / "mail").exists()


def test_a_step_that_fails_ends_with_1_and_says_what_was_missing(detent, overdue):
    result = detent("playbook", "step", "overdue", "02")
    assert result.code == 1
    assert re.search(r"^missing +loan_number, loan, member$", result.out, re.MULTILINE)
    assert "there is no value for {{member.email}}" in result.out


# -- run ----------------------------------------------------------------------------------------------------


def test_the_ordinary_options_of_run_hold(detent, folder, overdue):
    result = detent(
        "run", "playbook", "overdue", "--data", '{"loan_number": "L-1"}', "--set", "loan_number=L-102",
        "--id", "mine", "--tag", "t", "--json",
    )  # fmt: skip
    assert (result.code, result.json["id"], result.json["state"]) == (0, "mine", "DONE")
    (folder / "batch.json").write_text('[{"loan_number": "L-102"}, {"loan_number": "L-103"}]')
    assert "2 succeeded" in detent("run", "playbook", "overdue", "--batch", "batch.json").out
    (folder / "input.yaml").write_text("loan_number: L-102\n")
    assert detent("run", "playbook", "overdue", "--input", "input.yaml").code == 0


def test_a_run_of_a_folder_is_found_again_by_resume(detent, overdue):
    begun = detent("run", "playbook", "overdue", "--input", "overdue/input.json", "--detach")
    run_id = begun.lines[0]
    result = detent("resume", run_id)
    assert (result.code, result.err) == (0, "")
    assert "02-remind-reader     → DONE" in result.out
    assert "overdue" in detent("show", run_id).out
    assert "flow" not in detent("why", run_id).err


def test_a_playbook_under_its_name_and_right_here_are_found_again_too(detent, folder, monkeypatch):
    shutil.copytree(EXAMPLE, folder / "playbooks" / "letters")
    begun = detent("run", "playbook", "letters", "--data", '{"loan_number": "L-102"}', "--detach")
    assert detent("resume", begun.lines[0]).code == 0
    monkeypatch.chdir(folder / "playbooks" / "letters")
    begun = detent("run", "playbook", ".", "--data", '{"loan_number": "L-102"}', "--detach")
    assert detent("resume", "--all").code == 0
    assert "succeeded" in detent("runs").out


def test_a_process_killed_in_the_middle_goes_on_with_one_letter(detent, spawn, folder, overdue):
    """W-64: killed while its first query waits for a locked table; the letter is sent once."""
    (folder / "detent.yaml").write_text("plugins: [overdue/]\n")
    (overdue / "playbook.yaml").write_text((overdue / "playbook.yaml").read_text() + "tools: [slow_tables]\n")
    (overdue / "slow_tables.py").write_text(
        "import time\nfrom pathlib import Path\nfrom detent import query\n\n\n"
        "@query('lookup', blocking=True)\n"
        "def lookup(table, value, key=None):\n"
        "    while Path('wait').exists():\n        Path('asked').touch()\n        time.sleep(0.01)\n"
        "    return {'state': 'overdue', 'card': '1', 'title': 'T', 'due': 'd', 'reminders': '1',\n"
        "            'email': 'ines@reader.example', 'name': 'Ines'}\n"
    )
    (folder / "wait").touch()
    process = spawn("run", "playbook", "overdue", "--input", "overdue/input.json", "--id", "killed")
    process.until("overdue killed")
    process.kill()
    (folder / "wait").unlink()
    result = spawn("resume", "killed").result()
    assert (result.code, result.err) == (0, "")
    assert len(list((folder / "mail" / "outbox").glob("*.eml"))) == 1


def test_a_playbook_can_be_a_plugin_and_then_goes_by_its_name(detent, folder, overdue):
    (folder / "detent.yaml").write_text("plugins: [overdue/]\nsteps: {02-remind-reader: {timeout: 20}}\n")
    assert "overdue" in detent("flows").out
    assert detent("run", "overdue", "--data", '{"loan_number": "L-102"}').code == 0
    assert "overdue/02-remind-reader" in detent("steps", "list").out


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["playbook", "check", "nosuch"], "There is no playbook 'nosuch'"),
        (["playbook", "check", "overdue/loans.csv"], "is a file; a playbook is a folder"),
        (["playbook", "diagram", "empty"], "empty/ holds no playbook."),
        (["playbook", "step", "overdue", "nosuch"], "has no step 'nosuch'"),
        (["playbook", "step", "overdue", "0"], "has no step '0'"),
        (["playbook", "step", "overdue", "01", "--data", "[1]"], "a JSON object"),
        (["playbook", "step", "overdue", "01", "--data", "{x"], "not valid JSON"),
        (["playbook", "step", "overdue", "01", "--data", "no.json"], "cannot be read"),
        (["run", "playbook"], "Say which playbook to run"),
        (["run", "playbook", "nosuch"], "There is no playbook 'nosuch'"),
        (["run", "playbook", "overdue"], "missing: loan_number"),
        (["run", "playbook", "overdue", "--input", "no.json"], "--input: no.json cannot be read"),
        (["run", "playbook", "overdue", "--input", "bad.yaml"], "bad.yaml:1:5: This is not valid YAML"),
        (["run", "playbook", "overdue", "--input", "bin.json"], "is not UTF-8 text"),
        (["run", "playbook", "overdue", "--input", "a", "--data", "{}"], "use one of them"),
        (["run", "flow.py", "overdue"], "Only a kind of flow takes a path after it"),
        (["run", "flow.py", "--input", "a"], "--input: a cannot be read"),
        (["run", "empty/"], "is an empty folder"),
        (["eval", "empty"], "No suite knows how to judge"),
        (["playbook", "check", "a:b"], "The path of a playbook has no colon: a:b"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_ends_with_2(detent, folder, overdue, args, said):
    (folder / "empty").mkdir()
    (folder / "bad.yaml").write_text("a: [}\n")
    (folder / "bin.json").write_bytes(b"\xff\xfe{}")
    result = detent(*args)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert len(result.err.splitlines()) == 1
    assert "Traceback" not in result.err


def test_a_broken_playbook_is_not_run_and_not_judged(detent, folder, overdue):
    spoil(overdue, "03-note-for-desk, reason", "03-note-desk, reason")
    for args in (["run", "playbook", "overdue", "--input", "overdue/input.json"], ["eval", "overdue"]):
        result = detent(*args)
        assert result.code == 2
        assert "overdue/steps/01-find-loan.md:8:6: P10" in result.err
    assert not (folder / "mail").exists()


def test_a_server_that_cannot_be_reached_ends_with_3(detent, folder, overdue):
    smtp = "{host: 127.0.0.1, port: 9, tls: none}"
    (folder / "detent.yaml").write_text(f"mail: {{sink: smtp, from: a@b.example, smtp: {smtp}}}\n")
    result = detent("run", "playbook", "overdue", "--input", "overdue/input.json")
    assert result.code == 3
    assert result.err.startswith("SMTP server 127.0.0.1:9:")
    assert detent("playbook", "step", "overdue", "01", "--data", "overdue/input.json").code == 0


def test_a_playbook_without_cases_ends_with_4(detent, overdue):
    """W-57."""
    shutil.rmtree(overdue / "evals")
    result = detent("eval", "overdue")
    assert (result.code, result.err) == (4, "Suite 'overdue' has no case in overdue/evals.\n")


def test_a_case_that_fails_names_the_step(detent, overdue):
    """W-28, W-57: an edge that leads elsewhere is noticed."""
    spoil(
        overdue,
        "{to: DONE, when: {loan.state: returned}",
        "{to: 03-note-for-desk, when: {loan.state: returned}",
    )
    result = detent("eval", "overdue")
    assert result.code == 4
    assert "✗ returned_001" in result.out
    assert "03-note-for-desk" in result.out


# -- the page -----------------------------------------------------------------------------------------------


def test_the_tutorial_shows_what_new_makes_and_every_command(detent):
    page = (ROOT / "docs" / "playbooks.md").read_text(encoding="utf-8")
    tutorial = page.split("## Your own playbook in three files")[1].split("\n## ")[0]
    shown = re.findall(r"```markdown\n(.*?)```", tutorial, re.DOTALL)
    assert shown
    assert set(shown) <= set(NEW.values())
    assert NEW["input.json"].strip() in tutorial
    for command in ("new", "check", "diagram", "step"):
        assert f"detent playbook {command}" in page
    assert "detent run playbook" in page


def test_the_page_about_functions_of_your_own_shows_a_playbook_that_works(detent, folder):
    page = (ROOT / "docs" / "playbooks.md").read_text(encoding="utf-8")
    section = page.split("## Functions and decisions of your own")[1]
    files = re.findall(r"^This is `([\w./-]+)`:\n\n```\w+\n(.*?)```$", section, re.DOTALL | re.MULTILINE)
    assert len(files) == 5
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert detent("playbook", "check", "refunds").out == "refunds: ok, 3 steps\n"
    assert detent("run", "playbook", "refunds", "--data", '{"order": "A-1"}').code == 0
    waits = detent("run", "playbook", "refunds", "--data", '{"order": "A-2"}')
    assert waits.lines[-1].endswith("   (or: no)")
    _, _, run, answer, option, token, *_ = waits.lines[-1].split()
    assert detent("release", run, answer, option, token).code == 0
    assert '{"order":"A-2","amount":900}' in detent("why", run).out


def test_the_readme_of_the_example_names_commands_that_work(detent, folder, monkeypatch):
    shutil.copytree(EXAMPLE, folder / "examples" / "playbook")
    block = re.search(r"```\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        result = detent(*line.split()[1:])
        assert (result.code, result.err) == (0, ""), line


def test_a_form_is_checked_like_everything_else(detent, overdue):
    """P21 and its kin: file and line, and the nearest right word."""
    spoil(overdue, "---\n", "---\nform: {mood: {description: How it sounds, type: strin}}\n")
    result = detent("playbook", "check", "overdue")
    assert result.code == 2
    line, summary = result.lines
    assert line.startswith("overdue/steps/01-find-loan.md:2:43: P21 ")
    assert line.endswith(" Did you mean 'string'? (form.mood.type)")
    assert summary == "overdue: 1 error"
