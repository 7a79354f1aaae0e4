"""Mails composed of approved sentences, over HTTP with models that know only the prompt."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from detent.apps.warranty.flow import shipped
from detent.apps.warranty.mail_facts import mail_facts
from detent.apps.warranty.responses import ResponseGenerator
from detent.apps.warranty.rules import Rules
from detent.apps.warranty.settings import read
from detent.dispatch.agent_side import agent_side
from detent.dispatch.prose.contract import findings
from detent.flows.playbook.composition import Choice
from detent.flows.playbook.sentences import bank_files
from tests.apps.warranty.correspondence import CUSTOMER
from tests.apps.warranty.mailroom import mail
from tests.apps.warranty.test_drafts import PROMISE, STEP, desk  # noqa: F401
from tests.apps.warranty.test_mail_facts import STATES

NEW = "Please keep the device with the serial number PX2-55910 until you have our quote."
MONTHS = "As always, the repair has a warranty of six months."
PLACES = "There are two places where you find our address."


def prompt_of(request: Any) -> str:
    return "\n".join(str(message["content"]) for message in request["messages"])


def chosen(request: Any, *more: str) -> dict[str, Any]:
    """The last sentence of each group that the prompt lists, and those named."""
    groups: dict[str, str] = {}
    for name, group in re.findall(
        r"^- ([a-z0-9-]+) \((?:required, )?group ([a-z-]+)\): ", prompt_of(request), re.M
    ):
        groups[group] = name
    assert groups, prompt_of(request)
    names = [
        name for name in groups.values() if name not in more and (not more or groups.get("added") != name)
    ]
    return {"sentences": [*names, *more], "greeting": "by_name"}


def drafting(request: Any) -> dict[str, str]:
    usual = re.search(r"body_draft\n<<<[^\n]*\n(.*?)\n[^\n]*>>>", prompt_of(request), re.S)
    assert usual is not None
    return {"body": usual[1].replace("\n\nKind regards", f" {NEW} {MONTHS} {PLACES}\n\nKind regards")}


class TestTheShippedBanks:
    @pytest.mark.parametrize("language", ["en", "pl"])
    @pytest.mark.parametrize("state", STATES)
    def test_every_state_can_be_composed_and_keeps_the_contract(self, tmp_path, state, language):
        """All that may be said, in every choice of one per group at a time; the required facts are in it."""
        contacts = [{"topic": "default", "text": "office@northpine.example"}]
        generator = ResponseGenerator(read({"warranty": {"contacts": contacts}}, tmp_path))
        handlers, flow = generator.components.handlers, generator.components.flow
        step, state_data = STATES[state]
        scope = {"kind": "in_scope", "topic": None}
        email = {"reply_address": CUSTOMER, "subject": "Printer"}
        data = {
            "email": email,
            "sender_name": "Maren Holt",
            "language": language,
            "scope": scope,
            **state_data,
        }
        bank = agent_side(flow.steps[step]).bank
        assert bank is not None
        offer = bank.composer.sayable(data)  # type: ignore[attr-defined]
        assert offer is not None
        assert set(offer.greetings) == {"formal", "by_name", "plain"}
        for names in ((), *((name,) for name in offer.sentences)):
            for greeting in offer.greetings:
                text = offer.text(Choice(names, greeting))
                assert findings(text, mail_facts(handlers, step, data)) == (), text
                assert Rules(handlers).findings(step, data, text) == (), text

    def test_each_step_that_writes_has_a_bank_in_both_languages(self):
        files = bank_files([shipped() / "sentences"])
        assert len(files) == 10
        assert {file.language for file in files} == {"en", "pl"}


class TestTheMail:
    @pytest.mark.parametrize("level", ["consultant", "approver"])
    def test_a_form_filled_in_is_sent_without_a_person(self, desk, level):  # noqa: F811
        at = desk(chosen, autonomy=level)
        at("run", "warranty", "--once")
        (text,) = at.sent()
        assert text.startswith("Dear Maren Holt, thank you for your message.")
        assert "ended on 30 September 2024; a repair is no longer free of charge." in text
        assert text.endswith("Kind regards Service desk")
        record = at.record(*at.runs())
        assert (record["mode_used"], record.get("fallback_reason")) == ("agent", None)
        assert "lapsed-unfortunately" in record["composed"]

    @pytest.mark.parametrize("review", [None, "person"])
    @pytest.mark.parametrize("level", [None, "consultant"])
    def test_plausible_prose_alone_never_reaches_the_customer(self, desk, level, review):  # noqa: F811
        said = {"autonomy": level, "review": review}
        at = desk(**{key: value for key, value in said.items() if value})
        at("run", "warranty", "--once")
        assert all("settled" not in text and PROMISE not in text for text in at.sent())
        assert len(at.sent()) == (0 if review else 1)

    def test_killed_while_the_model_answers_it_is_sent_once(self, desk):  # noqa: F811
        started: list[subprocess.Popen[bytes]] = []
        asked: list[Any] = []

        def answer(request: Any) -> dict[str, Any]:
            asked.append(request)
            if len(asked) == 1:
                started[0].send_signal(signal.SIGKILL)
                started[0].wait()
            return chosen(request)

        at = desk(answer, autonomy="consultant")
        started.append(subprocess.Popen([sys.executable, "-m", "detent", "run", "warranty", "--once"]))
        assert started[0].wait() == -signal.SIGKILL
        assert at.sent() == []
        while not at.sent():
            at("resume", "--all")
        (text,) = at.sent()
        assert text.startswith("Dear Maren Holt,")
        assert len(asked) == 2


class TestAnApprovedDraft:
    @pytest.fixture
    def reviewed(self, desk, tmp_path):  # noqa: F811
        """A project with files of its own, and a draft approved in it."""
        at = desk(lambda request: drafting(request), review="person")
        shutil.copytree(shipped(), tmp_path / "instructions")
        at("run", "warranty", "--once")
        (draft,), (run,) = at.waiting(), at.runs()
        return at, draft, run

    def test_its_new_sentences_are_offered_with_slots(self, reviewed):
        at, draft, run = reviewed
        at("review", "sentences", run, code=2)  # nobody has approved it
        at("review", "approve", draft, "--by", "Ada")
        offered = at("review", "sentences", run, "--json")["sentences"]
        texts = [item["text"] for item in offered]
        assert texts == [
            NEW.replace("PX2-55910", "{{serial_number}}"),
            MONTHS.replace("six", "{{repair_warranty_months}}"),
            PLACES,
        ]
        assert "QX-70431" in offered[0]["readings"][0]
        assert [item["problem"] for item in offered] == [None] * 3

    def test_what_is_added_may_be_said_in_this_state_and_no_other(self, reviewed, tmp_path):
        at, draft, run = reviewed
        at("review", "approve", draft, "--by", "Ada")
        (added,) = [
            item["added"]
            for item in at("review", "sentences", run, "--add", "1", "--by", "Ada", "--json")["sentences"]
            if item["added"]
        ]
        file = tmp_path / f"instructions/sentences/{STEP}.en.yaml"
        block = file.read_text().split("  - id: ")[-1]
        assert 'approved_by: "Ada"' in block
        assert '"warranty_data.status":"expired"' in block.replace(" ", "")
        assert at("check", "warranty").startswith("warranty: ok")
        settings = json.loads((tmp_path / "detent.yaml").read_text())
        settings["steps"][STEP] = {"mode": "agent", "autonomy": "consultant"}
        (tmp_path / "detent.yaml").write_text(json.dumps(settings))
        at.model.replies[:] = [lambda request: chosen(request, added)]
        inbox = tmp_path / "mail/inbox/900.eml"
        inbox.write_bytes(mail(900, "Hello, our label printer, S/N PX2-55910, is dead."))
        os.utime(inbox, (time.time() - 600,) * 2)
        at("run", "warranty", "--once")
        assert sum(NEW in text for text in at.sent()) == 2

    def test_approval_may_add_all_of_them_at_once(self, reviewed, tmp_path):
        at, draft, _ = reviewed
        at("review", "approve", draft, "--by", "Ada", "--bank")
        text = (tmp_path / f"instructions/sentences/{STEP}.en.yaml").read_text()
        assert text.count('approved_by: "Ada"') == 3
        assert at("check", "warranty").startswith("warranty: ok")

    def test_files_of_the_application_are_not_changed(self, desk):  # noqa: F811
        at = desk(lambda request: drafting(request), review="person")
        at("run", "warranty", "--once")
        (draft,), (run,) = at.waiting(), at.runs()
        at("review", "approve", draft)
        at("review", "sentences", run, "--add", "1", code=2)
        assert "until you have our quote" not in (shipped() / f"sentences/{STEP}.en.yaml").read_text()
