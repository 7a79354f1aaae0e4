"""Drafts planted among those that people review: from the command line, over HTTP, with a store on disk.

The agent knows only the prompt. The reviewers know only what `review show` prints: one reads every sentence,
one approves everything.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from detent.apps.warranty.domain.coverage import device_of
from detent.apps.warranty.tools.registry import Registry
from tests.apps.warranty.mailroom import mail
from tests.apps.warranty.test_drafts import STEP, Desk
from tests.cli.acting import serving

SORRY = "We are sorry for the trouble this gives you."
WELCOME = "You are always welcome to ask us about it."
REPORT = ("autonomy", "report", STEP)


def polite(request: Any) -> dict[str, str]:
    """The usual text with a friendly sentence in it, and no further claim."""
    prompt = request["messages"][-1]["content"]
    usual = re.search(r"body_draft\n<<<[^\n]*\n(.*?)\n[^\n]*>>>", prompt, re.S)
    assert usual is not None
    return {"body": usual[1].replace("thank you for your message.", f"thank you for your message. {SORRY}")}


class ReviewedDesk(Desk):
    """A mailbox whose drafts people review."""

    def __init__(self, folder: Any, url: str, capsys: Any, step: dict[str, Any]) -> None:
        super().__init__(folder, url, capsys, {"review": "person", **step})
        self.mails = 0
        self.disclosed: list[dict[str, Any]] = []

    async def add_devices(self) -> None:
        registry = Registry(self.folder / "warranty.db")
        await registry.add(
            [
                device_of(
                    {
                        "serial": serial(number),
                        "device_name": "Merlin PX2",
                        "manufacturer_end": "2024-09-30",
                    }
                )
                for number in range(80)
            ]
        )
        await registry.close()

    def receive(self, count: int) -> None:
        """Let so many customers write, and the mailbox draft its answers."""
        for number in range(self.mails, self.mails + count):
            file = self.folder / f"mail/inbox/{number:03}.eml"
            body = f"Hello, our label printer, S/N {serial(number)}, does not switch on any more."
            file.write_bytes(mail(number, body))
            os.utime(file, (time.time() - 600,) * 2)
        self.mails += count
        self("run", "warranty", "--once")

    def work_off(self, reviewer: Callable[[dict[str, Any]], bool], by: str) -> None:
        """Have a person decide on every draft in the queue."""
        for draft in self.waiting():
            verdict = "approve" if reviewer(self("review", "show", draft, "--json")) else "handler"
            answer = self("review", verdict, draft, "--by", by, "--json")
            if isinstance(answer, dict) and "planted" in answer:
                self.disclosed.append(answer["planted"])

    def report(self, *words: str) -> dict[str, Any]:
        (row,) = self(*REPORT, "--json", *words)["steps"]
        assert isinstance(row, dict)
        return row


def serial(number: int) -> str:
    return f"PX2-{55000 + number * 37}"


def reads(shown: dict[str, Any]) -> bool:
    """A person who reads: new sentences may be friendly, and nothing else."""
    new = [item["text"] for items in shown["sentences"].values() for item in items if item["mark"] != "known"]
    return set(new) <= {SORRY, WELCOME}


def approves(shown: dict[str, Any]) -> bool:
    """A person who approves everything."""
    return True


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made: list[Any] = []

    def make(**step: Any) -> ReviewedDesk:
        serving_model = serving(polite)
        model = serving_model.__enter__()
        made.append(serving_model)
        desk = ReviewedDesk(tmp_path, model.url, capsys, step)
        asyncio.run(desk.add_devices())
        return desk

    yield make
    for serving_model in made:
        serving_model.__exit__(None, None, None)


def test_forty_drafts_carry_a_promotion_at_the_tolerance_the_operator_has_set(desk):
    at = desk(trust={"tolerate": 0.12, "min_days": 1})
    at.receive(8)
    before = at(*REPORT)
    at.work_off(reads, "anna")
    assert "none planted" in at(*REPORT)
    assert at.report()["why_not"] == "stay: no power measured"
    for _ in range(8):
        at.receive(4)
        at.work_off(reads, "anna")

    assert len(at.disclosed) == 40
    assert all(plant["caught"] for plant in at.disclosed)
    assert len({plant["sort"] for plant in at.disclosed}) >= 6
    assert at.mails == 40
    assert len(at.sent()) == 40
    wrong = [plant["after"] for plant in at.disclosed]
    assert not any(claim in text for claim in wrong for text in at.sent())
    assert all(SORRY in text for text in at.sent())
    row = at.report()
    (kind,) = row["kinds"]
    assert (kind["n"], kind["wrong"], row["power"]["planted"], row["power"]["caught"]) == (40, 0, 40, 40)
    assert kind["at_most"] == pytest.approx(0.104, abs=0.001)
    assert row["could_be"] == "consultant"
    after = at(*REPORT)
    assert re.search(r"person \(anna\) +40 +0 +1\.00 \(40 of 40\) +at most 10\.4%", after)

    settings = json.loads((at.folder / "detent.yaml").read_text())
    settings["autonomy"] = {"min_days": 1}
    (at.folder / "shipped.yaml").write_text(json.dumps(settings))
    refused = at.report("--config", "shipped.yaml")
    assert (refused["could_be"], refused["why_not"]) == (None, "stay: at most 10.4%, 2.0% wanted")
    if folder := os.environ.get("DETENT_TEST_WALKTHROUGH"):  # the output that the documentation shows
        shown = at(*REPORT, "--config", "shipped.yaml")
        for name, text in (("before", before), ("after", after), ("shipped", shown)):
            with open(f"{folder}/{name}.txt", "w") as file:
                file.write(text)


def test_a_reviewer_who_approves_everything_has_no_power_and_raises_nothing(desk):
    at = desk(trust={"tolerate": 0.5, "min_days": 1})
    at.receive(2)
    at.work_off(approves, "leo")
    for _ in range(3):
        at.receive(2)
        at.work_off(approves, "leo")
    planted = len(at.disclosed)
    assert planted >= 6
    row = at.report()
    assert (row["power"]["planted"], row["power"]["caught"], row["could_be"]) == (planted, 0, None)
    assert row["why_not"] == f"stay: leo noticed none of {planted} planted drafts"
    assert re.search(rf"person \(leo\) +8 +0 +0\.00 \(0 of {planted}\) +not known", at(*REPORT))
    assert len(at.sent()) == len(at.runs()) == 8


def test_nothing_tells_a_planted_draft_before_the_verdict(desk):
    at = desk(review_within="4h")
    at.receive(3)
    at.work_off(reads, "anna")
    at.receive(3)
    entries = at("review", "list", "--json")["drafts"]
    assert len(entries) == 6
    assert len(at.runs()) == 6  # three of them sent: no run is behind a planted draft
    assert len({(*entry, entry["step"], len(entry["id"])) for entry in entries}) == 1
    assert all(re.fullmatch("[0-9a-f]{10}", entry["id"]) and entry["until"] for entry in entries)
    assert [entry["since"] for entry in entries] == sorted(entry["since"] for entry in entries)
    shown = [at("review", "show", entry["id"], "--json") for entry in entries]
    assert len({tuple(screen) for screen in shown}) == 1
    assert len({tuple(screen["facts"]) for screen in shown}) == 1
    assert all(screen["answers"].startswith("Label printer") for screen in shown)
    # A name from the queue leads to no run, whether there is one or not.
    assert {at("show", entry["id"], code=2) for entry in entries} == {""}
    at.work_off(reads, "anna")
    assert len(at.disclosed) == 3
    assert len(at.sent()) == 6


def test_a_planted_draft_is_answered_once_and_is_no_judged_visit(desk):
    at = desk()
    at.receive(1)
    at.work_off(reads, "anna")
    at.receive(1)
    judged = at.report()["kinds"][0]["n"]
    real, planted = sorted(at.waiting(), key=lambda draft: not reads(at("review", "show", draft, "--json")))
    at("review", "handler", planted, "--by", "bo", "--because", "claim")
    at("review", "approve", planted, "--by", "anna", code=2)
    assert at.waiting() == [real]
    assert at.report()["kinds"][0]["n"] == judged
    assert "1 of 1" not in at(*REPORT)  # what bo noticed says nothing about anna, who judged


def test_an_edit_notices_the_claim_only_if_it_takes_it_out(desk):
    at = desk()
    at.receive(2)
    at.work_off(reads, "anna")
    at.receive(2)
    wrong = [draft for draft in at.waiting() if not reads(at("review", "show", draft, "--json"))]
    texts = [at("review", "show", draft, "--json") for draft in wrong]
    kept = texts[0]["draft"]["send_email.body"].replace("Hello", "Good day")
    (at.folder / "kept.txt").write_text(kept)
    (at.folder / "out.txt").write_text(texts[1]["handler"]["send_email.body"])
    missed = at("review", "edit", wrong[0], "--file", "kept.txt", "--by", "anna", "--json")
    caught = at("review", "edit", wrong[1], "--file", "out.txt", "--by", "anna", "--json")
    assert (missed["planted"]["caught"], caught["planted"]["caught"]) == (False, True)
    assert len(at.sent()) == 2


def test_an_edit_of_a_planted_draft_keeps_the_same_rules_and_discloses_nothing_before(desk):
    """Otherwise a blank text on every draft would tell which ones are planted, and count as noticed."""
    at = desk()
    at.receive(2)
    at.work_off(reads, "anna")
    at.receive(1)
    (wrong,) = [draft for draft in at.waiting() if not reads(at("review", "show", draft, "--json"))][:1]
    (real,) = [draft for draft in at.waiting() if reads(at("review", "show", draft, "--json"))][:1]
    before = at("review", "list", "--json")
    for text in (
        "",
        "tra la la la la la la la la la la la la la",
        "Write to boss@elsewhere.example, please.",
    ):
        (at.folder / "text.txt").write_text(text)
        told = []
        for draft in (wrong, real):
            at("review", "edit", draft, "--file", "text.txt", "--by", "anna", code=2)
            told.append(at.errors.replace(draft, "DRAFT"))
        assert told[0].splitlines()[0] == told[1].splitlines()[0]
        assert "planted" not in told[0]
    assert at("review", "list", "--json") == before
    assert at.report()["power"] is None


def test_neither_a_run_nor_the_list_of_matters_leads_to_a_draft(desk):
    at = desk()
    at.receive(2)
    at.work_off(reads, "anna")
    at.receive(2)
    waiting = len(at.waiting())
    for run in at.runs():
        at("review", "show", run, code=2)
    shown = at("warranty", "attention")
    assert f"{waiting} drafts to review: detent review" in shown
    assert not any(run in shown for run in at.runs())
    assert at("warranty", "attention", "--json") == []


def test_a_claim_that_two_persons_call_right_counts_for_nobody(desk):
    at = desk()
    at.receive(1)
    at.work_off(reads, "anna")
    at.receive(1)
    (planted,) = [draft for draft in at.waiting() if not reads(at("review", "show", draft, "--json"))]
    at("review", "approve", planted, "--by", "anna")
    power = at.report()["power"]
    assert (power["planted"], power["caught"]) == (1, 0)
    at("review", "withdraw", planted, "--by", "anna", code=2)
    at("review", "withdraw", planted, "--by", " ANNA ", code=2)
    at("review", "withdraw", planted, "--by", "bo")
    assert at.report()["power"] is None
    at("review", "withdraw", planted, "--by", "bo", code=2)


def test_drafts_are_reviewed_one_after_another_with_the_time_on_the_screen(desk, monkeypatch):
    at = desk(trust={"plant": 0, "plant_first": 0})
    at.receive(3)
    monkeypatch.setattr("sys.stdin", io.StringIO("x\na\nh tone\ns\nq\n"))
    output = at("review", "--by", "anna")
    assert SORRY in output
    assert (
        output.index("MESSAGE") < output.index("FACTS") < output.index("DRAFT send") < output.index("HANDLER")
    )
    assert f"+ {SORRY}" in output
    assert len(at.waiting()) == 1
    done = [row["id"] for row in at("runs", "--json")["runs"] if row["status"] == "succeeded"]
    kept = [at.record(run)["draft"] for run in done]
    decided = sorted((each["verdict"], each["by"], each["seconds"] >= 0) for each in kept)
    assert decided == [("approved", "anna", True), ("handler", "anna", True)]
