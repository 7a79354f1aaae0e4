"""The example with an agent in it, from the command line: recorded, replayed, compared, judged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/agents"
LETTER = {"text": "The lamp LX-1041 is dead.", "sender": "ann@example.org", "today": "2026-11-15"}
GOOD = {"about": "fault", "serial": "LX-1041"}

SETTINGS = """\
plugins: [flow.py]
steps:
  read: {mode: agent}
model: {provider: played}
models:
  played: {kind: scripted, file: script.yaml}
"""


@pytest.fixture
def letters(folder):
    """The example's flow in the working folder, with answers from a script."""
    shutil.copy(EXAMPLE / "flow.py", folder / "flow.py")
    (folder / "detent.yaml").write_text(SETTINGS)

    def script(*replies, settings=SETTINGS):
        (folder / "script.yaml").write_text(json.dumps({"read": list(replies)}))
        (folder / "detent.yaml").write_text(settings)

    script({"output": GOOD, "usage": {"input_tokens": 80, "output_tokens": 9}})
    return script


def start(detent, run_id, *more):
    return detent("run", "letters", "--data", json.dumps(LETTER), "--id", run_id, *more)


def entries(detent, run_id):
    """A journal without times and without what tells one run from another."""
    lines = [json.loads(line) for line in detent("export", run_id).out.splitlines()]
    kept = []
    for line in lines:
        entry = line.get("entry", line)
        plain = json.loads(json.dumps(entry))
        for key in ("at", "epoch", "duration", "run", "config", "worker"):
            plain.pop(key, None)
        for part in ("detail", "value"):
            if isinstance(plain.get(part), dict):
                for key in [key for key in plain[part] if key.endswith("ms")]:
                    plain[part].pop(key)
        kept.append(plain)
    return kept


def test_the_line_of_a_step_says_who_performed_it(letters, detent):
    said = start(detent, "r1").out
    assert "agent (collaborator, 89 tokens)" in said
    assert "89 tokens" in said.splitlines()[-1]


def test_a_fallback_is_shown_where_it_happens_and_explained_afterwards(letters, detent):
    letters({"output": {"about": "other", "serial": None}})
    said = start(detent, "r1")
    assert said.code == 0
    assert "handler, not the agent: differs from the handler" in said.out
    why = detent("why", "r1").out
    assert "fell back to the handler: differs from the handler" in why
    assert "differed at  /next_state, /output/about, /output/serial" in why


def test_a_recorded_run_plays_back_offline_and_is_not_kept(letters, detent, folder):
    """What was recorded is all that is needed: no script, no tool, nothing performed twice."""
    recorded = start(detent, "r1", "--record", "tape.jsonl")
    assert "Recorded 3 answers in tape.jsonl" in recorded.out
    (folder / "script.yaml").unlink()
    played = start(detent, "r2", "--replay", "tape.jsonl")
    assert played.code == 0, played.err
    assert "Replayed 3 answers: nothing was performed, and no run is kept." in played.out
    again = start(detent, "r2", "--replay", "tape.jsonl", "--json").json
    first = detent("show", "r1", "--json").json
    assert (again["state"], again["data"], again["tokens"]) == (
        first["state"], first["data"], first["tokens"]
    )  # fmt: skip
    assert [row["id"] for row in detent("runs", "--json").json["runs"]] == ["r1"]
    assert (folder / "outbox.txt").read_text().count("LX-1041") == 1


def test_a_run_is_replayed_from_its_recording_and_leaves_no_trace(letters, detent, folder):
    start(detent, "r1", "--record", "tape.jsonl")
    (folder / "script.yaml").unlink()
    before = entries(detent, "r1")
    played = detent("replay", "r1", "tape.jsonl")
    assert played.code == 0, played.err
    assert "r1 took the same path again" in played.out
    assert detent("replay", "r1", "tape.jsonl", "--json").json["equal"] is True
    assert entries(detent, "r1") == before
    assert [row["id"] for row in detent("runs", "--json").json["runs"]] == ["r1"]
    assert (folder / "outbox.txt").read_text().count("LX-1041") == 1


def test_a_replay_that_goes_another_way_says_where(letters, detent, folder):
    start(detent, "r1", "--record", "tape.jsonl")
    flow = folder / "flow.py"
    flow.write_text(flow.read_text().replace("which device it names", "which devices it names"))
    played = detent("replay", "r1", "tape.jsonl")
    assert played.code == 1
    assert "First difference at /messages/0/content, line 3" in played.err
    assert detent("replay", "r1", "nowhere.jsonl").code == 2


def test_a_changed_prompt_is_named_at_the_first_difference(letters, detent, folder):
    start(detent, "r1", "--record", "tape.jsonl")
    flow = folder / "flow.py"
    flow.write_text(flow.read_text().replace("which device it names", "which devices it names"))
    played = start(detent, "r2", "--replay", "tape.jsonl")
    assert played.code == 1
    assert "First difference at /messages/0/content, line 3" in played.err
    assert "which device it names" in played.err
    assert "which devices it names" in played.err


def test_a_changed_input_is_named_too_and_a_tape_is_not_overwritten(letters, detent):
    start(detent, "r1", "--record", "tape.jsonl")
    other = json.dumps({**LETTER, "text": "The lamp LX-1041 is broken."})
    played = detent("run", "letters", "--data", other, "--replay", "tape.jsonl")
    assert played.code == 1
    assert "First difference at /messages/1/content" in played.err
    again = start(detent, "r3", "--record", "tape.jsonl")
    assert again.code == 2
    assert "already exists" in again.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--record", "a", "--replay", "b"), "exclude each other"),
        (("--replay", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--record", "no/such/folder/x"), "cannot be written"),
        (("--detach", "--record", "x"), "--detach"),
    ],
)
def test_a_tape_that_cannot_be_is_refused_before_anything_runs(letters, detent, options, words):
    said = start(detent, "r1", *options)
    assert said.code == 2
    assert words in said.err
    assert "r1" not in detent("runs").out


def test_replayed_runs_are_no_evidence(letters, detent):
    start(detent, "r1", "--record", "tape.jsonl")
    for number in range(3):
        start(detent, f"again{number}", "--replay", "tape.jsonl")
    (row,) = json.loads(detent("autonomy", "report", "--format", "json").out)["steps"]
    assert (row["step"], row["n"]) == ("letters/read", 1)


def test_past_runs_by_code_are_put_to_the_agent_later(letters, detent, folder):
    """`shadow replay`: on the recorded inputs and answers, once, kept as evidence."""
    letters({"output": GOOD}, settings=SETTINGS.replace("  read: {mode: agent}\n", "  read: {shadow: 0}\n"))
    start(detent, "r1")
    before = (folder / "outbox.txt").read_text()
    said = detent("shadow", "replay", "r1", "--step", "read")
    assert said.code == 0, said.err
    assert "letters/read" in said.out
    assert "agreed" in said.out
    assert "compared before" in detent("shadow", "replay", "r1", "--step", "read").out
    assert (folder / "outbox.txt").read_text() == before
    (row,) = json.loads(detent("autonomy", "report", "--format", "json").out)["steps"]
    assert (row["n"], row["agreed"]) == (1, 1)


def test_past_runs_by_agents_are_put_to_the_code_later(letters, detent):
    letters(
        {"output": {"about": "fault", "serial": "LX-2230"}},
        settings=SETTINGS.replace("{mode: agent}", "{mode: agent, autonomy: approver}")
        + "autonomy: {audit: 0, audit_per_day: 0}\n",
    )
    start(detent, "r1")
    said = detent("shadow", "replay", "r1", "--step", "read", "--json")
    (note,) = json.loads(said.out)
    assert (note["side"], note["outcome"], note["pointers"]) == ("handler", "differed", ["/output/serial"])


def test_an_unknown_step_or_run_is_refused(letters, detent):
    start(detent, "r1")
    assert "Did you mean 'read'" in detent("shadow", "replay", "r1", "--step", "raed").err
    assert detent("shadow", "replay", "nobody").code == 2


@pytest.mark.skipif(os.name == "nt", reason="a pseudo-terminal")
def test_on_a_terminal_an_agents_words_are_shown_while_it_writes_them(letters, folder):
    """The text comes piece by piece beside the step under way, and is gone when the step is done."""
    letters({"output": GOOD, "stream": ["thinking about ", "the lamp LX-1041"], "delay": 0.5})
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "detent", "run", "letters", "--data", json.dumps(LETTER)]
    environment = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "thinking about the lamp LX-1041" in text
    assert "read" in text
    assert "succeeded" in text
