"""The mailbox recorded, replayed and kept from agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detent.apps.warranty.project import demo_registry, make_demo
from tests.apps.warranty.mailroom import NO_SERIAL, mail

CONFIG = """
warranty:
  mail: {inbox: mail/inbox, outbox: mail/outbox}
  orchestration: {retry: {min_s: 0.001, max_s: 0.001}}
"""
MODEL = """
model: {provider: played}
models: {played: {kind: scripted, file: script.yaml}}
"""
AGENT = CONFIG + MODEL + "steps: {01-extract-serial: {mode: agent, autonomy: approver}}\n"
ROUTED = CONFIG.replace("retry:", "router: {strategy: llm}, retry:") + MODEL
LEGACY = CONFIG.replace("retry:", "use_step_orchestrator: false, retry:") + MODEL
ANSWER = {"text": "SERIAL: SN30517\nNEXT_STEP: 02-check-warranty"}
BODY = "Hello, our printer SN30517 stopped working and feeds two labels at once."


@pytest.fixture
def desk(folder, detent) -> Path:
    """A project with a mailbox and the sample devices, and one mail beside it."""
    (folder / "config.yaml").write_text(CONFIG)
    make_demo(folder)
    assert detent("warranty", "registry", "import", str(demo_registry())).code == 0
    (folder / "one.eml").write_bytes(mail(1, BODY))
    (folder / "two.eml").write_bytes(mail(2, NO_SERIAL))
    return folder


def script(desk: Path, config: str, **replies: list[object]) -> None:
    (desk / "config.yaml").write_text(config)
    (desk / "script.yaml").write_text(json.dumps(replies))


def traces(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix != ".jsonl" and file.suffix not in (".db-wal", ".db-shm")
    }


def paths(said) -> list[list[str]]:
    return sorted(line["path"] for line in map(json.loads, said.lines) if "path" in line)


NAMED = ("run", "warranty", "--mail", "one.eml", "--mail", "two.eml")


@pytest.mark.parametrize(
    ("config", "replies"),
    [
        (CONFIG, {}),
        (AGENT, {"01-extract-serial": [ANSWER] * 3}),
        (ROUTED, {"router": [ANSWER] * 3}),
        (LEGACY, {"detect-scenario": [{"output": {"scenario": "missing-info"}}] * 2}),
    ],
    ids=["code", "an agent", "a routing model", "legacy mode"],
)
def test_mails_are_replayed_as_they_were_recorded_and_nothing_is_touched(desk, detent, config, replies):
    """Every model that was asked is on the tape: the one that routes, and that of legacy mode, too."""
    script(desk, config, **replies)
    recorded = detent(*NAMED, "--record", "tape.jsonl", "--json")
    assert recorded.code == 0, recorded.err
    (desk / "script.yaml").write_text("{}")
    before = traces(desk)
    played = detent(*NAMED, "--replay", "tape.jsonl", "--json")
    assert (played.code, "recorded" in played.err) == (0, False)
    assert paths(played) == paths(recorded)
    assert len(paths(played)) == 2
    assert traces(desk) == before


def test_a_replay_says_that_it_is_one(desk, detent):
    assert "Recorded 3 answers in tape.jsonl" in detent(*NAMED[:4], "--record", "tape.jsonl").out
    played = detent(*NAMED[:4], "--replay", "tape.jsonl")
    assert played.lines[0].endswith("replayed")
    assert played.lines[-1] == "Replayed 3 answers: nothing was performed, and no run is kept."


def test_another_mail_than_the_recorded_one_is_named_by_its_first_difference(desk, detent):
    script(desk, AGENT, **{"01-extract-serial": [ANSWER] * 3})
    detent(*NAMED[:4], "--record", "tape.jsonl")
    (desk / "one.eml").write_bytes(mail(1, BODY.replace("printer", "scanner")))
    before = traces(desk)
    played = detent(*NAMED[:4], "--replay", "tape.jsonl")
    assert played.code == 1
    assert "step '01-extract-serial': asked for something other than what was recorded" in played.err
    as_json = detent(*NAMED[:4], "--replay", "tape.jsonl", "--json")
    assert as_json.code == 1
    assert "asked for something other than what was recorded" in as_json.err
    assert traces(desk) == before


def test_a_run_of_the_mailbox_is_repeated_from_its_recording(desk, detent):
    """Its mail is kept outside the journal and is there again."""
    run = json.loads(detent(*NAMED[:4], "--record", "tape.jsonl", "--json").lines[0])["run"]
    played = detent("replay", run, "tape.jsonl")
    assert (played.code, played.err) == (0, "")
    assert "took the same path again" in played.out
    assert detent("warranty", "purge", "--older", "0d").code == 0
    purged = detent("replay", run, "tape.jsonl")
    assert purged.code != 0
    assert "its 'email' was purged" in purged.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "warranty", "--record", "x.jsonl"), "--record needs an end"),
        (("run", "warranty", "--replay", "x.jsonl"), "--replay repeats the mails that are named"),
        (("run", "warranty", "--once", "--replay", "x.jsonl"), "--replay repeats the mails that are named"),
        ((*NAMED, "--record", "x.jsonl", "--replay", "y.jsonl"), "exclude each other"),
        ((*NAMED, "--dry-run", "--record", "x.jsonl"), "--dry-run performs nothing"),
        ((*NAMED, "--dry-run", "--replay", "x.jsonl"), "--dry-run performs nothing"),
        ((*NAMED, "--replay", "x.jsonl"), "x.jsonl cannot be read: No such file"),
        ((*NAMED, "--replay", "other.jsonl"), "other.jsonl is a recording of 'letters', not of 'warranty'"),
        ((*NAMED, "--replay", "one.eml"), "one.eml, line 1: this is no cassette"),
        ((*NAMED, "--record", "mail"), "mail is a folder"),
        ((*NAMED, "--record", "one.eml"), "one.eml already exists"),
        (("run", "warranty", "--mail", "none.eml", "--record", "x.jsonl"), "There is no file"),
        (("warranty", "retry", "w-1", "--record", "x.jsonl"), "add --whole"),
        (("warranty", "retry", "nobody", "--whole", "--record", "x.jsonl"), "No mail 'nobody'"),
    ],
)
def test_a_tape_that_cannot_be_ends_with_2_and_leaves_nothing(desk, detent, args, words):
    (desk / "other.jsonl").write_text('{"cassette":1,"detent":"0.1.0","flows":["letters"]}\n')
    outbox = list((desk / "mail/outbox").glob("*"))
    said = detent(*args)
    assert (said.code, words in said.err) == (2, True), said.err
    assert not (desk / "x.jsonl").exists()
    assert list((desk / "mail/outbox").glob("*")) == outbox


@pytest.mark.parametrize(
    ("config", "step"), [(AGENT, "01-extract-serial"), (ROUTED, "router"), (LEGACY, "detect-scenario")]
)
def test_deterministic_asks_no_agent_and_needs_no_model(desk, detent, config, step):
    """The model's key is missing, which would end with 3; and the run says so for good."""
    key = "model: {provider: hosted}\nmodels: {hosted: {kind: openai, base_url: 'http://127.0.0.1:9/v1', "
    key += "model_id: m, api_key_env: NO_SUCH_KEY}}\n"
    (desk / "config.yaml").write_text(config.replace(MODEL, "\n" + key) + "require_model: true\n")
    assert detent(*NAMED, "-q").code == 3
    said = detent(*NAMED, "--deterministic", "--json")
    assert (said.code, said.err) == (0, "")
    run = json.loads(said.lines[0])["run"]
    journal = [json.loads(line) for line in detent("export", run).lines]
    assert json.dumps(journal).count('"force_deterministic": true') >= 1
    assert '"by": "agent"' not in json.dumps(journal)


def test_a_mail_run_again_may_be_kept_from_agents_and_recorded(desk, detent):
    (desk / "config.yaml").write_text("orchestration: {max_steps: 2}")
    failed = json.loads(detent(*NAMED[:4], "--json").lines[0])
    assert failed["what"] == "failed"
    (desk / "config.yaml").write_text(CONFIG)
    again = detent(
        "warranty", "retry", failed["mail"], "--whole", "--deterministic", "--record", "tape.jsonl", "--json"
    )
    assert again.code == 0, again.err
    played = detent(*NAMED[:4], "--replay", "tape.jsonl", "--json")
    assert (played.code, played.err) == (0, "")
    assert paths(played) == [again.json["path"]]


def test_the_command_that_plays_back_what_was_recorded_in_one_look_works(desk, detent):
    """--once takes mails in; the recording is played back mail by mail."""
    (desk / "mail/inbox").mkdir(parents=True, exist_ok=True)
    (desk / "mail/inbox/one.eml").write_bytes((desk / "one.eml").read_bytes())
    recorded = detent("run", "warranty", "--once", "--record", "tape.jsonl")
    assert recorded.code == 0, recorded.err
    hint = "Play them back with detent run warranty --mail FILE --replay tape.jsonl"
    assert hint in recorded.out
    played = detent("run", "warranty", "--mail", "one.eml", "--replay", "tape.jsonl")
    assert played.code == 0
    assert "other than what was recorded" not in played.err


def test_a_deterministic_run_counts_no_step_as_an_agents(desk, detent):
    script(desk, AGENT, **{"01-extract-serial": [ANSWER] * 3})
    assert "1 by an agent" in detent(*NAMED[:4]).lines[0]
    assert "all deterministic" in detent(*NAMED[:4], "--deterministic").lines[0]
