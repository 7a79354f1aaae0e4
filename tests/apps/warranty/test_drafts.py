"""What an agent writes to customers: who reads it, what is sent, and what it is evidence of.

The model answers over HTTP and knows only the prompt. It writes plausible mails with a promise in words that
have no form, so that the hard contract passes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.stores.sqlite import SQLiteStore
from detent.apps.warranty.domain.coverage import device_of
from detent.apps.warranty.tools.registry import Registry
from detent.cli import review
from detent.cli.main import run as detent
from detent.cli.workspace import Workspace
from detent.dispatch.draft import Draft
from detent.dispatch.draft_queue import queue
from detent.dispatch.evidence import Verdict, verdict_of
from detent.engine.journal_reader import read
from tests.apps.warranty.correspondence import text_of
from tests.apps.warranty.mailroom import DEVICES, mail
from tests.cli.acting import Model, serving

EXPIRED = "Hello, our label printer, S/N PX2-55910, does not switch on any more."
STEP = "03c-expired-warranty"
PROMISE = "Please consider the bill settled, we give you your money back."
FORM = "Please consider 500 EUR refunded, see www.refunds.example for it."


def promising(request: Any, promise: str = PROMISE) -> dict[str, str]:
    """The usual text with a promise in it; where sentences are to be chosen, their text with the promise."""
    prompt = "\n".join(str(message["content"]) for message in request["messages"])
    usual = re.search(r"body_draft\n<<<[^\n]*\n(.*?)\n[^\n]*>>>", prompt, re.S)
    said = usual[1] if usual else " ".join(re.findall(r"^- [a-z-]+ \(required[^)]*\): (.*)$", prompt, re.M))
    assert said
    return {"body": f"{said}\n\n{promise}"}


class Desk:
    """A project with a mailbox, worked on from the command line."""

    model: Model
    errors: str
    """What the latest command wrote on standard error."""

    def __init__(self, folder: Path, url: str, capsys: Any, step: dict[str, Any]) -> None:
        self.folder, self.capsys = folder, capsys
        settings = {
            "models": {"house": {"kind": "vllm", "base_url": f"{url}/v1", "model_id": "tiny"}},
            "model": {"provider": "house"},
            "autonomy": step.pop("trust", {}),
            "steps": {STEP: {"mode": "agent", **step}},
        }
        (folder / "detent.yaml").write_text(json.dumps(settings))
        (folder / "mail/inbox").mkdir(parents=True)

    async def add_devices(self) -> None:
        registry = Registry(self.folder / "warranty.db")
        await registry.add([device_of(device) for device in DEVICES])
        await registry.close()

    def put(self, count: int = 1) -> None:
        for number in range(count):
            file = self.folder / f"mail/inbox/{number:03}.eml"
            file.write_bytes(mail(number, EXPIRED))
            os.utime(file, (time.time() - 600,) * 2)

    def __call__(self, *words: str, code: int = 0) -> Any:
        self.capsys.readouterr()
        assert detent(list(words)) == code, self.capsys.readouterr()
        output, self.errors = self.capsys.readouterr()
        return json.loads(output) if "--json" in words and words[0] != "run" else output

    def sent(self) -> list[str]:
        """The text of each mail in the outbox."""
        files = sorted((self.folder / "mail/outbox").glob("*.eml"))
        return [
            " ".join(text_of(message_from_bytes(file.read_bytes(), policy=default)).split()) for file in files
        ]

    def waiting(self) -> list[str]:
        return [item["id"] for item in self("review", "list", "--json")["drafts"]]

    def runs(self) -> list[str]:
        return [row["id"] for row in self("runs", "--json")["runs"]]

    def record(self, run: str) -> dict[str, Any]:
        """What the journal keeps about the visit of the agent's step."""
        (record,) = [body.detail for body in self.journal(run) if getattr(body, "frm", None) == STEP]
        assert isinstance(record, dict)
        return record

    def journal(self, run: str) -> list[Any]:
        """Everything that the run's journal holds."""
        return asyncio.run(self._journal(run))

    async def _journal(self, run: str) -> list[Any]:
        store = SQLiteStore(self.folder / ".detent/detent.db")
        await store.open()
        try:
            return [entry.body async for entry in read(store, run)]
        finally:
            await store.close()


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made: list[Any] = []

    def make(answer: Any = promising, **step: Any) -> Desk:
        serving_model = serving(answer)
        model = serving_model.__enter__()
        made.append(serving_model)
        desk = Desk(tmp_path, model.url, capsys, step)
        desk.model = model
        asyncio.run(desk.add_devices())
        desk.put()
        return desk

    yield make
    for serving_model in made:
        serving_model.__exit__(None, None, None)


class TestNobodyReadsIt:
    @pytest.mark.parametrize("level", [None, "collaborator", "consultant", "approver"])
    def test_a_promise_does_not_reach_the_customer(self, desk, level):
        """Fault 1: eighty customers were promised a refund."""
        at = desk(**({} if level is None else {"autonomy": level}))
        at("run", "warranty", "--once")
        (text,) = at.sent()
        assert "ended on 2024-09-30" in text
        assert "settled" not in text

    def test_free_prose_is_sent_as_it_is(self, desk):
        """The operator has said so; and the agent of these tests does keep the hard contract."""
        at = desk(autonomy="approver", prose="free")
        at("run", "warranty", "--once")
        assert "consider the bill settled" in at.sent()[0]

    def test_free_prose_is_named_where_steps_are_listed(self, desk):
        at = desk(autonomy="approver", prose="free")
        assert "approver, free prose" in at("steps", "list", "--flow", "warranty")

    def test_free_prose_means_nothing_below_approver(self, desk):
        at = desk(autonomy="consultant", prose="free")
        at("run", "warranty", "--once")
        assert "settled" not in at.sent()[0]

    def test_facts_that_agree_are_no_evidence_about_the_text(self, desk):
        at = desk()
        at("run", "warranty", "--once")
        (run,) = at.runs()
        record = at.record(run)
        assert (record["mode_used"], record["draft"]["verdict"]) == ("agent", "unjudged")
        assert "money back" not in str(at.journal(run))
        assert verdict_of(record) is Verdict.UNCHECKED

    def test_above_it_is_replaced_and_the_reason_recorded(self, desk):
        at = desk(autonomy="consultant")
        at("run", "warranty", "--once")
        record = at.record(*at.runs())
        assert (record["mode_used"], record["fallback_reason"]) == ("deterministic", "schema_violation")
        assert record["attempts"] == 2


# Written without a look at the lists of the checks: claims with a form, and claims with a meaning alone.
CLAIMS = [
    "As a gesture, we take 20% off.",
    "It will set you back about €85.",
    "Repairs like this take three to four days.",
    "Your colleague's PX2-55901 is still covered, by the way.",
    "Call Robert on 555 0147 to book it.",
    "Pay at www.northpine-pay.example first.",
    "The offer holds until Friday.",
    "Our shop on 12 Mill Lane can take it in.",
    "It was last serviced in March 2025.",
    "You can get ninety dollars back for the old one.",
    "Mr Adam Nowak will be your contact.",
    "Prosimy o kontakt telefoniczny w tej sprawie.",
    "Payment is due in \u0430dvance.",
    "We answer within 24h.",
    "Write to repairs@northpine.example for a quote.",
    "Go to northpine dot example slash pay.",
    "Use the code SAVE25 for supplies.",
    "It takes a fortnight.",
]
MEANINGS = [
    "Nothing of this will appear on a bill of yours.",
    "That sounds like the paper sensor; such a unit tends to catch fire.",
    "A new printer is on its way to you.",
    "The maker is at fault, and you may hold us to that.",
]
RIGHT = [
    "The warranty of your Merlin PX2 (serial number PX2-55910) lapsed on September 30, 2024. We can still "
    "repair it, at your expense. If you want, we will prepare a quote first; just answer this mail.",
    "We are sorry to hear that. The cover for PX2-55910 expired on 30.09.2024. A repair is possible and is "
    "paid for by you. Shall we send a quote?",
    "Thanks for your patience. According to our records, the warranty on your Merlin PX2 with serial "
    'PX2-55910 ran out on the 30th of September 2024. For a repair, simply reply with "yes, please".',
    "The device PX2-55910 is no longer under warranty (it ended 2024-09-30). You have two options: a paid "
    "repair, or no repair. Please tell us which one you prefer.",
    "I looked up PX2-55910 for you. Its warranty ended on 30/09/2024. I know that is not the news you hoped "
    "for. If you'd like a quote for the repair, reply to this e-mail and we'll get one to you.",
    "Unfortunately the cover of your label printer PX2-55910 ended on 30 September 2024. We would be glad to "
    "repair it against payment. Every repair has a warranty of six months.",
]


class Writer:
    """Writes each draft to one customer, and the same again when it was refused."""

    def __init__(self, drafts: list[str]) -> None:
        self.drafts = iter(drafts)

    def __call__(self, request: Any) -> dict[str, str]:
        before = [message for message in request["messages"] if message["role"] == "assistant"]
        return json.loads(before[0]["content"]) if before else {"body": next(self.drafts)}

    @classmethod
    def of(cls, texts: list[str]) -> Writer:
        return cls([f"Dear Ms Holt,\n\n{text}\n\nKind regards\nService desk" for text in texts])


class TestManyDrafts:
    """An agent at work whose drafts nobody has seen before."""

    def write(self, desk: Any, texts: list[str], **step: Any) -> list[str]:
        at = desk(Writer.of(texts), **step)
        at.put(len(texts))
        at("run", "warranty", "--once")
        sent: list[str] = at.sent()
        assert len(sent) == len(texts)
        assert all("2024" in text for text in sent)
        return sent

    def test_free_prose_with_an_unexplained_form_is_never_sent(self, desk):
        texts = [f"{RIGHT[0]} {claim}" for claim in CLAIMS]
        sent = self.write(desk, texts, autonomy="approver", prose="free")
        assert [claim for claim in CLAIMS if any(claim in text for text in sent)] == []

    def test_right_free_prose_is_sent_as_it_was_written(self, desk):
        sent = self.write(desk, RIGHT, autonomy="approver", prose="free")
        assert [text for text in RIGHT if not any(text in mail for mail in sent)] == []

    @pytest.mark.parametrize("level", ["collaborator", "consultant"])
    def test_no_claim_is_sent_unread(self, desk, level):
        claims = [*CLAIMS[::3], *MEANINGS]
        sent = self.write(desk, [f"{RIGHT[0]} {claim}" for claim in claims], autonomy=level)
        assert [claim for claim in claims if any(claim in text for text in sent)] == []


class TestAPersonReadsIt:
    def test_a_draft_waits_and_the_command_ends(self, desk):
        at = desk(review="person")
        at("run", "warranty", "--once")
        assert at.sent() == []
        assert len(at.waiting()) == 1

    def test_it_is_shown_by_sentence_beside_the_handlers_text(self, desk):
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        shown = at("review", "show", draft, "--json")
        (sentences,) = shown["sentences"].values()
        assert {"text": PROMISE, "mark": "new", "phrases": ["settled", "money back"]} in sentences
        assert any(item["mark"] == "known" for item in sentences)
        assert shown["facts"]["serial_number"] == "PX2-55910"
        assert "settled" not in shown["handler"]["send_email.body"]
        assert PROMISE in at("review", "show", draft)

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    def test_approved_it_is_sent_and_agrees(self, desk, level):
        at = desk(review="person", autonomy=level)
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        at("review", "approve", draft, "--by", "Ada", "--seconds", "31")
        assert PROMISE in at.sent()[0]
        record = at.record(*at.runs())
        kept = record["draft"]
        assert (kept["verdict"], kept["by"], kept["seconds"]) == ("approved", "Ada", 31)
        assert verdict_of(record) is Verdict.AGREED

    def test_the_handlers_text_is_sent_in_its_place_and_differs(self, desk):
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        at("review", "handler", draft, "--because", "claim")
        assert "settled" not in at.sent()[0]
        record = at.record(*at.runs())
        assert (record["draft"]["verdict"], record["draft"]["because"]) == ("handler", "claim")
        assert verdict_of(record) is Verdict.DIFFERED

    @pytest.mark.parametrize(
        ("change", "verdict", "counts"),
        [
            (lambda text: text.replace(PROMISE, ""), "edited", Verdict.DIFFERED),
            (lambda text: text.replace("Hello", "Good day"), "wording", Verdict.UNCHECKED),
            (lambda text: text, "approved", Verdict.AGREED),
        ],
    )
    def test_an_edit_differs_if_a_claim_changed(self, desk, change, verdict, counts):
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        text = change(at("review", "show", draft, "--json")["draft"]["send_email.body"])
        Path("edited.txt").write_text(text)
        at("review", "edit", draft, "--file", "edited.txt")
        assert (PROMISE in at.sent()[0]) == (PROMISE in text)
        record = at.record(*at.runs())
        assert (record["draft"]["verdict"], verdict_of(record)) == (verdict, counts)
        assert "Good day" not in str(at.journal(*at.runs()))

    @pytest.mark.parametrize(
        ("text", "rule"),
        [
            ("Hello, write to www.refunds.example about it, they will know you.", "links"),
            (" \n", "empty"),
            ("la la la la la la la la la la la la la la", "language"),
        ],
    )
    def test_an_edit_that_breaks_the_contract_is_refused_and_the_draft_waits_as_before(
        self, desk, text, rule
    ):
        """A tired person is no way around the hard contract."""
        at = desk(review="person", review_within="4h")
        at("run", "warranty", "--once")
        before = at("review", "list", "--json")
        (draft,) = at.waiting()
        Path("edited.txt").write_text(text)
        at("review", "edit", draft, "--file", "edited.txt", code=2)
        assert rule in at.errors
        assert at.sent() == []
        assert at("review", "list", "--json") == before
        assert "problems" not in at("review", "show", draft, "--json")
        at("review", "handler", draft)
        assert "refunds" not in at.sent()[0]

    def test_a_draft_that_breaks_the_contract_never_waits(self, desk):
        at = desk(lambda request: promising(request, FORM), review="person")
        at("run", "warranty", "--once")
        assert at.waiting() == []
        assert "500 EUR" not in at.sent()[0]

    def test_it_is_answered_once(self, desk):
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        at("review", "approve", draft)
        at("review", "handler", draft, code=2)
        assert len(at.sent()) == 1

    def test_nobody_in_time_sends_the_handlers_text_unjudged(self, desk):
        at = desk(review="person", review_within="0.01s")
        at("run", "warranty", "--once")
        at("resume", "--all")
        assert "settled" not in at.sent()[0]
        record = at.record(*at.runs())
        assert (record["draft"]["verdict"], verdict_of(record)) == ("unjudged", Verdict.UNCHECKED)


class TestWrongWays:
    """Plausible implementations that would send what nobody has read."""

    def test_an_approval_holds_for_one_draft_with_its_facts(self):
        drafts = [
            Draft({"send_email.body": "It ended."}, {"send_email.body": "Over."}, {"serial_number": serial})
            for serial in ("PX2-55910", "PX2-55911")
        ]
        assert drafts[0].written == drafts[1].written
        assert drafts[0].hold != drafts[1].hold

    def test_facts_that_changed_since_the_draft_are_checked_when_it_is_sent(self, desk):
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        assert "warranty of 6 months" in at("review", "show", draft, "--json")["draft"]["send_email.body"]
        settings = json.loads((at.folder / "detent.yaml").read_text())
        settings["warranty"] = {"repair_warranty_months": 3}
        (at.folder / "detent.yaml").write_text(json.dumps(settings))
        at("review", "approve", draft)
        assert at.sent() == []
        (anew,) = at.waiting()
        assert anew != draft
        assert "warranty of 3 months" in at("review", "show", anew, "--json")["draft"]["send_email.body"]
        at("review", "approve", anew)
        assert "warranty of 3 months" in at.sent()[0]

    def test_a_draft_cannot_be_answered_unread(self, desk):
        """`release` shows no text, and took any answer: `yes` sent the handler's, `approve` the agent's."""
        at = desk(review="person")
        at("run", "warranty", "--once")
        (run,) = at.runs()
        (held,) = at("show", run, "--json")["holds"]
        for answer in ("yes", "approve", "rubbish"):
            at("release", run, answer, code=2)
            at("release", run, answer, "--hold", held["token"], code=2)
        assert at.sent() == []
        assert at("warranty", "attention").splitlines()[-1] == "1 draft to review: detent review"
        assert "detent release" not in at("show", run)

    def test_equal_drafts_of_two_runs_have_names_of_their_own(self, desk):
        at = desk(review="person")
        at.put(2)
        at("run", "warranty", "--once")
        first, second = at.waiting()
        assert first != second
        at("review", "approve", first)
        assert at.waiting() == [second]

    def test_an_edit_after_a_refused_one_is_compared_with_the_agents_text(self, desk):
        """A reviewer's typo is not the agent's mistake."""
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        text = at("review", "show", draft, "--json")["draft"]["send_email.body"]
        (at.folder / "typo.txt").write_text(text.replace("PX2-55910", "PX2-55901"))
        at("review", "edit", draft, "--file", "typo.txt", code=2)
        (at.folder / "text.txt").write_text(text.replace("Kind regards", "Best wishes"))
        at("review", "edit", draft, "--file", "text.txt", "--by", "Ada")
        (run,) = at.runs()
        assert at.record(run)["draft"]["verdict"] == "wording"
        assert "draft reworded by Ada" in at("why", run)

    @pytest.mark.parametrize("by", ["", "  ", "A\x1b[2Jda", "A\nda"])
    def test_a_person_has_a_name_on_one_line(self, desk, by):
        at = desk(review="person")
        at("run", "warranty", "--once")
        at("review", "approve", *at.waiting(), "--by", by, code=2)
        at("review", "approve", *at.waiting(), "--seconds", "inf", code=2)
        assert "Traceback" not in at.errors
        assert ".py" not in at.errors
        assert at.sent() == []

    def test_an_edit_refused_when_it_is_used_does_not_prolong_the_wait(self, desk):
        """One that another program has released, past the check of the command."""
        at = desk(review="person", review_within="4h")
        at("run", "warranty", "--once")
        (before,) = at("review", "list", "--json")["drafts"]

        async def release() -> None:
            workspace = Workspace(None, None)
            async with workspace.engine() as engine:
                (queued,) = await queue(engine.store, time.time())
                await workspace.know(engine, "warranty")
                answer = {"verdict": "edit", "texts": {"send_email.body": "See www.refunds.example, please."}}
                await engine.release(queued.run, answer, hold=queued.hold, by="Bo", drive=False)

        asyncio.run(release())
        at("resume", "--all")
        (after,) = at("review", "list", "--json")["drafts"]
        assert after["id"] != before["id"]
        assert after["until"] == before["until"]

    def test_the_loser_of_a_race_is_told_that_the_draft_waits_no_more(self, desk, monkeypatch):
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        read = review._found

        async def overtaken(workspace: Any, name: str) -> Any:
            found = await read(workspace, name)
            monkeypatch.setattr(review, "_found", read)
            async with workspace.engine() as engine:
                await workspace.know(engine, "warranty")
                answer = {"verdict": "handler"}
                await engine.release(found[0].run, answer, hold=found[0].hold, by="Bo", drive=False)
            return found

        monkeypatch.setattr(review, "_found", overtaken)
        at("review", "handler", draft, "--by", "Ada", code=2)
        assert f"No draft '{draft}' waits" in at.errors
        assert "$blob" not in at.errors

    def test_of_two_reviewers_one_decides(self, desk):
        at = desk(review="person")
        at("run", "warranty", "--once")
        (draft,) = at.waiting()
        program = [str(Path(sys.executable).parent / "detent"), "review"]
        both = [
            subprocess.Popen([*program, verdict, draft, "--by", verdict], stderr=subprocess.DEVNULL)
            for verdict in ("approve", "handler")
        ]
        codes = sorted(each.wait() for each in both)
        at("resume", "--all")
        assert codes[0] == 0
        assert len(at.sent()) == 1
        record = at.record(*at.runs())
        assert (PROMISE in at.sent()[0]) == (record["draft"]["verdict"] == "approved")

    def test_a_refused_agent_is_told_the_rule_once_and_not_the_words(self, desk):
        requests: list[list[str]] = []

        def insisting(request: Any) -> dict[str, str]:
            messages = [message for message in request["messages"] if message["role"] != "assistant"]
            requests.append([str(message["content"]) for message in messages])
            return promising(request, FORM)

        at = desk(insisting, review="person")
        at("run", "warranty", "--once")
        assert at.waiting() == []
        told = {text for request in requests[1:] for text in request} - set(requests[0])
        assert len(told) == 1, told
        (rule,) = told
        assert "money" in rule
        assert not any(word in rule for word in ("EUR", "zł", "refunds.example", "dollar"))
