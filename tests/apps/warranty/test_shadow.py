"""A shadow in the mailbox sees what the step saw and is judged by the step's check; models over HTTP."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from detent.apps.warranty.project import demo_registry, make_demo
from tests.apps.warranty.reading_model import Careless, Clerk, reading
from tests.cli.conftest import detent, folder

__all__ = ["detent", "folder"]

FACTS = ("01-extract-serial", "02-check-warranty", "03a-valid-warranty")
MAILS = ("03b-device-not-found", "03c-expired-warranty", "03d-request-serial", "05-send-confirmation")
PROJECT = """
warranty:
  mail: {{inbox: mail/inbox, outbox: mail/outbox}}
  orchestration: {{retry: {{min_s: 0.001, max_s: 0.001}}}}
  privacy: {{keep_bodies_days: 90}}
model: {{provider: vllm, id: tiny, base_url: "{url}/v1"}}
steps:
{steps}
"""


@pytest.fixture
def desk(folder: Path, detent: Any) -> Path:
    """A project with the sample mails and devices."""
    make_demo(folder)
    return folder


def configure(desk: Path, url: str, config: str, steps: tuple[str, ...] = (*FACTS, *MAILS)) -> None:
    lines = "\n".join(f"  {step}: {{{config}}}" for step in steps)
    (desk / "detent.yaml").write_text(PROJECT.format(url=url, steps=lines))


def run(desk: Path, detent: Any) -> None:
    assert detent("warranty", "registry", "import", str(demo_registry())).code == 0
    done = detent("run", "warranty", "--once")
    assert done.code == 0, done


def outcomes(detent: Any) -> dict[str, Counter[str]]:
    """How the shadows of each step ended, over all runs."""
    found: dict[str, Counter[str]] = {}
    for row in json.loads(detent("runs", "--json").out)["runs"]:
        for line in detent("export", row["id"]).out.splitlines():
            entry = json.loads(line)
            if entry["kind"] == "noted" and entry["topic"] == "shadow":
                note = entry["body"]
                found.setdefault(note["step"].rpartition("/")[2], Counter())[note["outcome"]] += 1
    return found


def test_right_answers_agree_in_shadow_on_every_step(desk, detent):
    with reading(Clerk()) as model:
        configure(desk, model.url, "shadow: true")
        run(desk, detent)
    found = outcomes(detent)
    assert {step: dict(counts) for step, counts in found.items()} == {
        "01-extract-serial": {"agreed": 6},
        "02-check-warranty": {"agreed": 4},
        "03a-valid-warranty": {"agreed": 2},
        # Where the words are not the handler's, the facts agree, and nobody has read the words.
        "03b-device-not-found": {"agreed": 1},
        "03c-expired-warranty": {"unjudged": 1},
        "03d-request-serial": {"unjudged": 1},
        "05-send-confirmation": {"agreed": 1, "unjudged": 1},
    }


def test_wrong_answers_differ_in_shadow(desk, detent):
    with reading(Careless()) as model:
        configure(desk, model.url, "shadow: true", FACTS)
        run(desk, detent)
    found = outcomes(detent)
    assert found["01-extract-serial"]["differed"] == 4  # those with a number in them
    assert found["03a-valid-warranty"] == {"differed": 2}
    assert found["02-check-warranty"]["agreed"] == 0


# -- replay of past runs ------------------------------------------------------------------------------------


def replayed(detent: Any) -> dict[str, Counter[str]]:
    """How `shadow replay` compares the steps of every run."""
    found: dict[str, Counter[str]] = {}
    for row in json.loads(detent("runs", "--json").out)["runs"]:
        told = detent("shadow", "replay", row["id"], "--json")
        assert told.code == 0, told
        for note in json.loads(told.out):
            found.setdefault(note["step"].rpartition("/")[2], Counter())[note["outcome"]] += 1
    return found


@pytest.mark.parametrize("clerk", [Clerk, Careless])
def test_replay_compares_every_step_as_the_shadow_did(desk, detent, clerk):
    with reading(clerk()) as model:
        configure(desk, model.url, "shadow: true")
        run(desk, detent)
        shadows = outcomes(detent)
        # Another prompt makes another series: nothing was compared in it before.
        configure(desk, model.url, "shadow: true, prompt_suffix: Take care.")
        found = replayed(detent)
    assert found.pop("04-out-of-scope") == {"unjudged": 1}  # it was not shadowed
    assert found == shadows


def test_replay_says_which_rule_of_privacy_forbids_it(desk, detent):
    with reading(Clerk()) as model:
        configure(desk, model.url, "shadow: true")
        settings = (desk / "detent.yaml").read_text()
        (desk / "detent.yaml").write_text(settings.replace("keep_bodies_days: 90", "keep_bodies_days: 0"))
        run(desk, detent)
        configure(desk, model.url, "shadow: true, prompt_suffix: Take care.")
        before = len(model.asked)
        found = replayed(detent)
        told = detent("shadow", "replay", json.loads(detent("runs", "--json").out)["runs"][0]["id"])
    assert {outcome for counts in found.values() for outcome in counts} == {"impossible"}
    assert "purged by the rule that says how long values are kept" in told.out
    assert len(model.asked) == before, "nobody is asked about a mail that is gone"


# -- evidence -----------------------------------------------------------------------------------------------

STEP = "01-extract-serial"


def figures(detent: Any) -> dict[str, Any]:
    """The figures of the first step's newest series in the report."""
    steps = detent("autonomy", "report", "--json").json["steps"]
    (found,) = [row for row in steps if row["step"].endswith(STEP) and row["newest"]]
    (kind,) = found["kinds"]
    return {**found, **kind}


def mails(desk: Path, number: int) -> None:
    """So many letters in place of the sample ones, no two alike."""
    inbox = desk / "mail/inbox"
    for old in inbox.glob("*.eml"):
        old.unlink()
    for each in range(number):
        (inbox / f"{each:02}.eml").write_text(
            f"From: c{each}@customer.example\nTo: service@firm.example\nSubject: Pump {each}\n"
            f"Message-ID: <{each}@customer.example>\nDate: Mon, 02 Mar 2026 08:{each:02}:00 +0000\n\n"
            f"Our kiosk in hall {each} (serial number PX2-40118) restarts several times an evening.\n"
        )


@pytest.mark.parametrize("clerk", [Clerk, Careless])
def test_the_same_answers_score_alike_at_collaborator_in_shadow_and_in_replay(desk, detent, clerk):
    """Twenty-five mails: right answers demote nothing in any of them, and wrong ones count alike."""
    scores = []
    with reading(clerk()) as model:
        for number, config in enumerate(["mode: agent, autonomy: collaborator", "shadow: true"]):
            mails(desk, 25)
            for mail in (desk / "mail/inbox").glob("*.eml"):
                mail.write_text(mail.read_text().replace("@customer", f"@{number}.customer"))
            configure(desk, model.url, f"{config}, prompt_suffix: Take {number}.", (STEP,))
            run(desk, detent)
            scores.append(figures(detent))
        configure(desk, model.url, "shadow: true, prompt_suffix: Anew.", (STEP,))
        ids = [row["id"] for row in json.loads(detent("runs", "--json", "--limit", "25").out)["runs"]]
        for run_id in ids:
            assert detent("shadow", "replay", run_id, "--step", STEP).code == 0
        asked = len(model.asked)
        once = figures(detent)
        for run_id in ids:
            said = detent("shadow", "replay", run_id, "--step", STEP)
            assert "has been compared before" in said.out
        assert len(model.asked) == asked, "what was compared is not asked for again"
    scores.append(once)
    wrong = 25 if clerk is Careless else 0
    assert [(score["n"], score["wrong"], score["demotion"]) for score in scores] == [(25, wrong, None)] * 3
    assert [score["replayed"] for score in scores] == [0, 0, 25]
    assert [score["unusable"] for score in scores] == [{}] * 3
    assert ", 25 replayed" in detent("autonomy", "report", STEP).out
