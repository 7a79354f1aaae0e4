"""`--record`, `--replay` and `--deterministic`: the same for flows of code, playbooks and workflows.

The mailbox is in `test_warranty_record.py`.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

FORM = '{"name": "Ada", "amount": 1}'

STAMP = """
version: "1.0"
name: stamp
inputs:
  word: {type: string, default: hello}
  token: {type: string, secret: true, required: true}
steps:
  - {name: say, type: python, action: run_command, kwargs: {argv: [sh, -c, "echo ${{ inputs.word }} ${{ inputs.token }} >> said.txt; echo $0", "${{ inputs.token }}"]}}
  - {name: keep, type: python, action: write_file, kwargs: {path: kept.txt, text: "${{ steps.say.output.stdout }}"}}
outputs: {said: "${{ steps.say.output.stdout }}"}
"""  # noqa: E501

ASKING = """
version: "1.0"
name: asking
steps:
  - {name: ask, type: python, action: ask_person, kwargs: {question: Go on}}
  - {name: keep, type: python, action: write_file, kwargs: {path: kept.txt, text: kept}}
"""


@pytest.fixture
def workflows(folder, monkeypatch) -> Path:
    """A project with a workflow that leaves traces, one of whose inputs is secret."""
    place = folder / ".detent/workflows"
    place.mkdir(parents=True)
    (place / "stamp.yaml").write_text(STAMP)
    monkeypatch.setenv("DETENT_INPUT_TOKEN", "hunter2-hunter2")
    return folder


@pytest.fixture
def playbook(folder, detent) -> Path:
    """The starter playbook, which appends a row to a table."""
    assert detent("new", "playbook", "book").code == 0
    return folder / "book"


def ids(detent) -> list[str]:
    said = detent("runs", "--json")
    return [row["id"] for row in said.json["runs"]] if said.code == 0 else []


def traces(folder: Path) -> dict[str, bytes]:
    """Every file that is not part of a store."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith("detent.db") and file.suffix != ".jsonl"
    }


# -- every kind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("run", "flow.py", "--data", FORM),
        ("run", "playbook", "book", "--input", "book/input.json"),
        ("run", "book", "--input", "book/input.json"),
        ("run", "workflow", "stamp"),
        ("run", "stamp"),
        ("workflow", "run", "stamp", "-i", "word=bye"),
        ("workflow", "run", "stamp", "--step", "say"),
    ],
)
def test_every_kind_records_and_replays_alike(playbook, workflows, folder, detent, command):
    recorded = detent(*command, "--id", "r1", "--record", "tape.jsonl")
    assert recorded.code == 0, recorded.err
    assert "Play them back with --replay tape.jsonl" in recorded.out
    before, runs = traces(folder), ids(detent)
    played = detent(*command, "--id", "r1", "--replay", "tape.jsonl")
    assert (played.code, played.err) == (0, "")
    assert "nothing was performed, and no run is kept" in played.out
    assert (traces(folder), ids(detent)) == (before, runs)
    assert detent(*command, "--id", "r9", "--deterministic", "-q").code == 0
    assert (folder / "tape.jsonl").stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) == 0


def test_a_replay_needs_no_store_and_makes_none(workflows, folder, detent):
    detent("run", "stamp", "--record", "tape.jsonl", "--store", "elsewhere.db")
    played = detent("run", "stamp", "--replay", "tape.jsonl")
    assert played.code == 0, played.err
    assert not (folder / ".detent/detent.db").exists()


# -- what cannot be -----------------------------------------------------------------------------------------


CODE = ("run", "flow.py", "--data", FORM)
KINDS = (
    ("run", "playbook", "book", "--input", "book/input.json"),
    ("run", "workflow", "stamp"),
    ("workflow", "run", "stamp", "--step", "say"),
)
REFUSED = [
    (("--record", "a.jsonl", "--replay", "b.jsonl"), "exclude each other"),
    (("--record", "new.jsonl", "--detach"), "--detach leaves the run to another process"),
    (("--record", "taken.txt"), "taken.txt already exists"),
    (("--replay", "foreign.jsonl"), "foreign.jsonl is a recording of 'another', not of"),
    (("--record", "sub"), "sub is a folder"),
    (("--record", "no/where.jsonl"), "no/where.jsonl cannot be written: No such file or directory"),
    (("--replay", "none.jsonl"), "none.jsonl cannot be read: No such file or directory"),
    (("--replay", "sub"), "sub cannot be read: Is a directory"),
    (("--replay", "taken.txt"), "taken.txt, line 1: this is no cassette"),
]


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [(CODE, *case) for case in REFUSED] + [(kind, *case) for kind in KINDS for case in REFUSED[:4]],
)
def test_a_tape_that_cannot_be_is_refused_by_every_kind(
    playbook, workflows, folder, detent, command, options, words
):
    (folder / "taken.txt").write_text("letters\n")
    (folder / "sub").mkdir()
    (folder / "foreign.jsonl").write_text('{"cassette":1,"detent":"0.1.0","flows":["another"]}\n')
    before = traces(folder)
    said = detent(*command, *options)
    assert said.code == 2
    assert words in said.err
    assert "Traceback" not in said.err
    assert traces(folder) == before
    assert ids(detent) == []
    assert not (folder / "new.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("workflow", "run", "stamp", "--dry-run", "--record", "x.jsonl"), "--dry-run performs nothing"),
        (("workflow", "run", "stamp", "--dry-run", "--replay", "x.jsonl"), "--dry-run performs nothing"),
        (("workflow", "run", "stamp", "--from", "a", "--record", "x.jsonl"), "--from begins in the middle"),
        (
            ("workflow", "run", "stamp", "--step", "keep", "--from-run", "r", "--replay", "x.jsonl"),
            "--from-run begins in the middle",
        ),
    ],
)
def test_what_is_no_whole_run_is_neither_recorded_nor_replayed(workflows, folder, detent, command, words):
    said = detent(*command)
    assert said.code == 2
    assert words in said.err
    assert not (folder / "x.jsonl").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("run", "flow.py", "--id", "bad\x07id"),
        ("run", "workflow", "stamp", "-i", "nothing=1"),
        ("run", "stamp", "--data", '{"nothing": 1}'),
        ("workflow", "run", "stamp", "--step", "nowhere"),
    ],
)
def test_a_command_that_fails_before_its_run_leaves_no_recording(workflows, folder, detent, command):
    said = detent(*command, "--record", "tape.jsonl")
    assert said.code == 2
    assert "Recorded" not in said.out
    assert not (folder / "tape.jsonl").exists()


def test_a_recording_of_another_flow_is_refused_for_a_run_too(workflows, detent):
    detent("run", "flow.py", "--data", FORM, "--id", "r1")
    detent("run", "stamp", "--record", "stamp.jsonl")
    said = detent("replay", "r1", "stamp.jsonl")
    assert said.code == 2
    assert "stamp.jsonl is a recording of 'stamp', not of 'onboarding'" in said.err


def test_a_run_that_is_under_way_is_not_recorded_from_its_middle(workflows, folder, detent):
    """`workflow run` goes on with an unfinished run; such a recording could not be played."""
    (folder / ".detent/workflows/asking.yaml").write_text(ASKING)
    detent("workflow", "run", "asking", "--id", "r1")
    said = detent("workflow", "run", "asking", "--record", "tape.jsonl")
    assert said.code == 2
    assert "Run r1 of the same workflow and inputs has not ended (waiting)" in said.err
    assert not (folder / "tape.jsonl").exists()
    begun = detent("workflow", "run", "asking", "--restart", "--id", "r2", "--record", "tape.jsonl")
    assert (folder / "tape.jsonl").exists(), begun.err
    assert ids(detent) == ["r2", "r1"]


def test_a_replay_neither_goes_on_with_a_run_nor_leaves_one_to_go_on_with(workflows, folder, detent):
    """A replayed run has performed nothing: the next command of these inputs begins for real."""
    detent("workflow", "run", "stamp", "--record", "tape.jsonl")
    (folder / "said.txt").unlink()
    tape = folder / "tape.jsonl"
    tape.write_text("".join(tape.read_text().splitlines(keepends=True)[:2]))  # broken off after the first
    played = detent("workflow", "run", "stamp", "--replay", "tape.jsonl")
    assert played.code == 1
    assert "effect 'files.write' of step 'keep': not recorded" in played.err
    assert played.err.count("not recorded") == 1
    assert not (folder / "said.txt").exists()
    assert detent("workflow", "run", "stamp").code == 0
    assert (folder / "said.txt").read_text() == "hello hunter2-hunter2\n"


def test_a_replay_that_waits_prints_no_command_that_could_not_work(folder, detent):
    detent("run", "flow.py", "--data", '{"amount": 500}', "--id", "r1", "--record", "tape.jsonl")
    played = detent("run", "flow.py", "--data", '{"amount": 500}', "--id", "r1", "--replay", "tape.jsonl")
    assert "waiting" in played.out
    assert "detent release" not in played.out


# -- secrets ------------------------------------------------------------------------------------------------


def test_a_recording_holds_no_secret_input_and_plays_with_any(workflows, folder, detent, monkeypatch):
    assert detent("run", "stamp", "--record", "tape.jsonl").code == 0
    assert (folder / "kept.txt").read_text() == "hunter2-hunter2\n"
    assert "hunter2" not in (folder / "tape.jsonl").read_text()
    monkeypatch.setenv("DETENT_INPUT_TOKEN", "another-value")
    for number in (1, 2):  # each run has marks of its own
        played = detent("run", "stamp", "--id", f"again{number}", "--replay", "tape.jsonl")
        assert (played.code, played.err) == (0, "")
    assert (folder / "kept.txt").read_text() == "hunter2-hunter2\n"


def test_a_recording_holds_no_key_of_the_environment(workflows, folder, detent, monkeypatch):
    """Not even where a program prints it."""
    monkeypatch.setenv("SHOP_API_KEY", "sk-4711-4711-4711")
    (folder / ".detent/workflows/leak.yaml").write_text(
        STAMP.replace("name: stamp", "name: leak").replace("echo $0", "cat key.txt")
    )
    (folder / "key.txt").write_text("sk-4711-4711-4711")
    recorded = detent("run", "leak", "--record", "tape.jsonl")
    assert recorded.code == 0, recorded.err
    assert (folder / "kept.txt").read_text() == "sk-4711-4711-4711"
    assert "sk-4711" not in (folder / "tape.jsonl").read_text()
    assert detent("run", "leak", "--replay", "tape.jsonl").code == 0


def test_the_recording_of_an_eval_holds_no_key_either(folder, detent, monkeypatch):
    case = ("eval", "warranty", "-s", "valid_warranty_001")
    assert detent(*case, "--record", "open").code == 0
    text = "".join(file.read_text() for file in (folder / "open").glob("*.jsonl"))
    assert "Kestrel K200" in text
    monkeypatch.setenv("SHOP_PASSWORD", "Kestrel K200")
    assert detent(*case, "--record", "closed").code == 0
    text = "".join(file.read_text() for file in (folder / "closed").glob("*.jsonl"))
    assert text
    assert "Kestrel K200" not in text


# -- processes ----------------------------------------------------------------------------------------------


def test_a_recording_that_was_killed_plays_as_far_as_it_came(folder, detent, spawn):
    """Killed in a step, before anything was asked: the file is a recording with nothing in it."""
    (folder / "wait").touch()
    process = spawn("run", "flow.py", "--data", FORM, "--id", "r1", "--record", "tape.jsonl")
    process.until_in_step()
    second = spawn("run", "flow.py", "--data", FORM, "--id", "r2", "--record", "tape.jsonl")
    said = second.result()
    assert (said.code, "already exists" in said.err) == (2, True)  # and the first one's file is untouched
    process.kill()
    (folder / "wait").unlink()
    (header,) = (folder / "tape.jsonl").read_text().splitlines()
    assert json.loads(header)["flows"] == ["onboarding"]
    played = detent("run", "flow.py", "--data", FORM, "--replay", "tape.jsonl")
    assert played.code == 1
    assert "effect 'desk.send' of step 'welcome': not recorded" in played.err
    assert not (folder / "sent.txt").exists()
    assert detent("resume", "r1", "-q").code == 0
    assert (folder / "sent.txt").read_text() == "Ada: hello\n"
