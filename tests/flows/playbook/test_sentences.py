"""Banks of approved sentences: what is refused when they are checked, and what is composed of them."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from detent.cli.main import run as detent
from detent.dispatch.agent_side import agent_side
from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.dispatch.sentence_bank import NewSentence
from detent.flows.playbook.checks import check_playbook
from detent.flows.playbook.flow import playbook_flow
from detent.flows.playbook.playbook import read_playbook
from detent.kernel.entries import Entry, Moved, Noted
from detent.kernel.status import Status
from tests.flows.playbook.bench import World, drive, executor_of, script, step_file, write

STEP = "02-tell"
FILES = {
    "playbook.yaml": "name: returns\narguments:\n  send_email: {to: \"{{sender}}\"}\n",
    "01-look": step_file("01-look", "outputs: [row]\nneeds: [number]\navailable_functions: [lookup]\n"
        "call: {lookup: {table: t, key: k, value: \"{{number}}\"}, into: row}\nnext: [02-tell]", next=""),
    STEP: step_file(
        STEP,
        """
        available_functions: [send_email]
        needs: [number, row, free, sender]
        outputs: [message_id]
        effects: {send_email: {template: "02", into: {message_id: message_id}}}
        text_fields: {BODY: send_email.body}
        facts: {number: identifier, row.day: day, days: working_days, name: name}
        form:
          body: {description: The letter., type: string, minLength: 10, fills: send_email.body}
        """,
    ),
    "templates/02-tell.en.txt": "Hello,\n\nyour parcel {{number}} is here.\n",
}  # fmt: skip
BANK = """
greeting: {formal: "Dear Sir or Madam,", by_name: "Dear {{name}},", plain: "Hello,"}
closing: "Kind regards"
sentences:
  - {id: here, group: decision, required: true, text: "your parcel {{number}} is here since {{row.day}}.",
     approved_by: Ada, approved_at: "2026-03-10"}
  - {id: here-too, group: decision, text: "the parcel {{number}} has been with us since {{row.day}}.",
     approved_by: Ada, approved_at: "2026-03-10"}
  - {id: free, group: cost, when: {free: true}, text: "You pay nothing for the return.",
     approved_by: Ada, approved_at: "2026-03-10"}
  - {id: paid, group: cost, when: {free: false}, text: "You pay for the return yourself.",
     approved_by: Ada, approved_at: "2026-03-10"}
  - {id: soon, group: cost, when: {free: true}, text: "The return has been paid for by us.",
     approved_by: Ada, approved_at: "2026-03-10"}
  - {id: answer, group: next, required: true, paragraph: true,
     text: "We answer within {{days}} working days.", approved_by: Ada, approved_at: "2026-03-10"}
"""
DATA = {"number": "A-1", "free": True, "days": 2, "name": "Ines Vega", "sender": "ines@vega.example"}


def folder(path, bank: str = BANK, language: str = "en", **files: str):
    return write(path / "returns", {**FILES, f"sentences/{STEP}.{language}.yaml": bank, **files})


def detail_of(entries: list[Entry]) -> Any:
    """What the journal keeps about the visit of the agent's step."""
    (detail,) = [
        entry.body.detail for entry in entries if isinstance(entry.body, Moved) and entry.body.frm == STEP
    ]
    return detail


async def sent(path, world, answer: Any, data=DATA, again: Any = None, level="consultant", **options: Any):
    """The letter that goes out, and who wrote it, for what an agent answers."""
    replies = [answer if isinstance(answer, str) else json.dumps(answer), again and json.dumps(again)]
    settings = script({STEP: [text for text in replies if text]}, autonomy=level, prose=None, **options)
    flow = playbook_flow(folder(path), tools=world.tools())
    run, entries = await drive(flow, dict(data), dispatch=settings)
    assert run.status is Status.SUCCEEDED, entries
    detail = detail_of(entries)
    return world.sent[-1]["body"], detail


class TestChecking:
    def problems(self, path, bank: str, language: str = "en") -> list[str]:
        found = check_playbook(
            folder(path, bank, language), tools={tool.name: tool for tool in World().tools()}
        )
        return [f"{problem.code} {problem}" for problem in found]

    def test_a_right_bank_has_no_problems(self, tmp_path):
        assert self.problems(tmp_path, BANK) == []

    @pytest.mark.parametrize(
        ("change", "code", "says"),
        [
            (("{{number}} is", "{{nunber}} is"), "P22", "Did you mean 'number'"),
            (("id: free,", "id: here,"), "P22", "defined twice"),
            (("{free: true}, text: \"You", "{fre: true}, text: \"You"), "P22", "no step reads or sets 'fre'"),
            (("You pay nothing", "You pay 5 EUR"), "P22", "money"),
            (("{{days}} working days", "{{days}} years"), "P22", "digits"),
            (("Kind regards", "Mit freundlichen Grüßen und vielen Dank für alles"), "P22", "language"),
            (("the parcel {{number}} has", "the parcel has"), "P22", "does not name {{number}}"),
            (("group: next, required", "grup: next, required"), "P05", "'grup' is not a key"),
            (("approved_by: Ada, ", ""), "P04", "needs 'approved_by'"),
            (("when: {free: true}, text: \"You", "when: [], text: \"You"), "P19", "a condition is a mapping"),
            (("formal:", "fromal:"), "P05", "Did you mean"),
        ],
    )  # fmt: skip
    def test_a_wrong_one_is_refused_with_its_place(self, tmp_path, change, code, says):
        assert change[0] in BANK
        found = self.problems(tmp_path, BANK.replace(*change, 1))
        assert any(line.startswith(code) and says in line and ".en.yaml:" in line for line in found), found

    def test_all_problems_are_reported_at_once(self, tmp_path):
        bank = BANK.replace("{{number}} is", "{{nunber}} is").replace("You pay nothing", "You get 5 EUR")
        bank = bank.replace("group: next", "grup: next")
        found = self.problems(tmp_path, bank)
        assert {line[:3] for line in found} == {"P22", "P05"}
        assert all(any(words in line for line in found) for words in ("nunber", "money", "grup"))

    def test_a_language_that_cannot_be_checked_is_refused(self, tmp_path):
        assert "cannot be checked" in str(self.problems(tmp_path, BANK, "fr"))

    def test_the_schema_knows_the_format(self, capsys):
        assert detent(["schema", "playbook"]) == 0
        schema = json.loads(capsys.readouterr().out)["$defs"]["sentences"]
        assert "approved_by" in schema["properties"]["sentences"]["items"]["properties"]

    def test_sentences_for_a_step_that_an_overlay_replaces_are_left_out(self, tmp_path):
        """They were approved for another step."""
        base = folder(tmp_path)
        over = write(tmp_path / "over", {STEP: FILES[STEP].replace("number: identifier, ", "")})
        assert check_playbook(base, overlays=[over], tools=("lookup", "send_email")) == []
        assert read_playbook(base, overlays=[over])[0].banks == {}


class TestComposing:
    async def test_values_are_filled_in_by_code_and_required_sentences_are_said(self, tmp_path, world):
        text, detail = await sent(tmp_path, world, {"sentences": ["free"], "greeting": "by_name"})
        assert text.split("\n\n") == [
            "Dear Ines Vega,",
            "your parcel A-1 is here since 2 April 2026. You pay nothing for the return.",
            "We answer within 2 working days.",
            "Kind regards",
        ]
        assert (detail["mode_used"], detail["composed"]) == ("agent", ["free"])

    async def test_another_of_a_group_stands_for_the_required_one_in_its_place(self, tmp_path, world):
        answer = {"sentences": ["answer", "here-too", "free"], "greeting": "plain"}
        text, _ = await sent(tmp_path, world, answer)
        assert (
            text.splitlines()[2]
            == "the parcel A-1 has been with us since 2 April 2026. You pay nothing for the return."
        )
        assert "is here since" not in text
        assert text.count("We answer within 2 working days.") == 1

    @pytest.mark.parametrize(
        "answer",
        [
            {"sentences": ["paid"], "greeting": "plain"},
            {"sentences": ["free", "soon"], "greeting": "plain"},
            {"sentences": ["free", "free"], "greeting": "plain"},
            {"sentences": ["refund"], "greeting": "plain"},
            {"sentences": ["You pay nothing for the return."], "greeting": "plain"},
            {"sentences": ["free"], "greeting": "Dear thief,"},
            {"sentences": ["free"], "greeting": "plain", "body": "We refund everything to you."},
            {"body": "Hello, your parcel A-1 is here and we pay everything for you."},
            "BODY:\nHello, your parcel A-1 is here and we pay everything.\nNEXT_STEP: DONE",
        ],
        ids=[
            "another state",
            "two of a group",
            "twice",
            "unknown",
            "text",
            "greeting",
            "more",
            "body",
            "lines",
        ],
    )
    async def test_anything_else_is_told_once_and_then_replaced(self, tmp_path, world, answer):
        text, detail = await sent(tmp_path, world, answer, again=answer if isinstance(answer, dict) else None)
        assert text == "Hello,\n\nyour parcel A-1 is here."
        assert detail["mode_used"] == "deterministic"
        reason = "prose_unreviewed" if isinstance(answer, str) else "schema_violation"
        assert detail["fallback_reason"] == reason

    async def test_told_once_an_agent_may_choose_anew(self, tmp_path, world):
        wrong, right = ({"sentences": [name], "greeting": "plain"} for name in ("paid", "free"))
        text, detail = await sent(tmp_path, world, wrong, again=right)
        assert "You pay nothing" in text
        assert detail["attempts"] == 2

    async def test_the_same_sentence_is_refused_in_another_state(self, tmp_path, world):
        answer = {"sentences": ["free"], "greeting": "plain"}
        assert "You pay nothing" in (await sent(tmp_path, world, answer))[0]
        text, detail = await sent(tmp_path, world, answer, {**DATA, "free": False}, again=answer)
        assert "You pay nothing" not in text
        assert detail["fallback_reason"] == "schema_violation"

    async def test_a_bank_is_for_its_language_alone(self, tmp_path, world):
        answer = {"sentences": ["free"], "greeting": "plain"}
        _, detail = await sent(tmp_path, world, answer, {**DATA, "language": "pl"}, again=answer)
        assert detail["mode_used"] == "deterministic"

    async def test_a_name_that_is_none_is_no_greeting(self, tmp_path, world):
        answer = {"sentences": [], "greeting": "by_name"}
        data = {**DATA, "name": "Refund 500 EUR at www.evil.example"}
        text, _ = await sent(tmp_path, world, answer, data, again=answer)
        assert "evil" not in text

    @pytest.mark.parametrize(
        ("level", "shown"), [("collaborator", "body_draft"), ("approver", "- free (group cost)")]
    )
    async def test_the_form_is_that_of_the_level(self, tmp_path, world, level, shown):
        settings = script({STEP: ["{}", "{}"]}, autonomy=level, prose=None)
        flow = playbook_flow(folder(tmp_path), tools=world.tools())
        await drive(flow, dict(DATA), dispatch=settings)
        assert shown in executor_of(settings).calls[0].prompt

    async def test_an_audit_compares_its_facts_and_not_its_text(self, tmp_path, world):
        settings = script(
            {STEP: [json.dumps({"sentences": ["free"], "greeting": "plain"})]},
            autonomy="consultant",
            prose=None,
        )
        settings = replace(settings, evidence=EvidenceRules(audit=ByLevel(1.0, 1.0)))
        flow = playbook_flow(folder(tmp_path), tools=world.tools())
        _, entries = await drive(flow, dict(DATA), dispatch=settings)
        assert "You pay nothing" in world.sent[-1]["body"]
        notes = [entry.body for entry in entries if isinstance(entry.body, Noted)]
        (note,) = [note.body for note in notes if note.topic == "shadow"]
        assert (note["outcome"], note.get("pointers")) == ("agreed", None)


class TestTheContractOfAnyPlaybook:
    """Without a bank: the facts of the step file explain what a text may say, at every level."""

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    @pytest.mark.parametrize(
        ("text", "passes"),
        [
            ("Hello, your parcel A-1 came on 2 April 2026; we write within 2 working days.", True),
            ("Hello, your parcel A-1 came and we refund you 500 EUR for it.", False),
            ("Hello, your parcel A-1 is covered for 2 years from now on.", False),
            ("Hello, your parcel A-12 is here and waits for you.", False),
            ("Hello, your parcel A-1 is here, see www.parcels.example for it.", False),
            ("Dear Bernard, your parcel A-1 is here and waits for you.", False),
            ("Hello, your parcel A-1 is he\u200bre and waits for you.", False),
            ("Hallo, Ihr Paket ist bei uns und wartet auf Sie.", False),
        ],
    )
    async def test_what_no_fact_explains_is_refused(self, tmp_path, world, level, text, passes):
        flow = playbook_flow(write(tmp_path / "plain", FILES), tools=world.tools())
        free = {"prose": "free"} if level == "approver" else {"prose": None}
        reply = json.dumps({"body": text})
        _, entries = await drive(
            flow, dict(DATA), dispatch=script({STEP: [reply, reply]}, autonomy=level, **free)
        )
        detail = detail_of(entries)
        assert (detail.get("fallback_reason") != "schema_violation") == passes
        assert (world.sent[-1]["body"] == text) == (passes and level == "approver")

    async def test_what_a_run_was_started_with_explains_nothing_undeclared(self, tmp_path, world):
        """`sender` is a need and was given by whoever started the run."""
        files = {**FILES, STEP: FILES[STEP].replace("facts: {number: identifier, ", "facts: {")}
        flow = playbook_flow(write(tmp_path / "plain", files), tools=world.tools())
        reply = json.dumps({"body": "Hello, your parcel A-1 is here and waits for you."})
        _, entries = await drive(flow, dict(DATA), dispatch=script({STEP: [reply, reply]}))
        detail = detail_of(entries)
        assert detail["fallback_reason"] == "schema_violation"

    @pytest.mark.parametrize(
        ("kind", "hint"), [("identifer", "Did you mean 'identifier'"), ("5", "a fact is")]
    )
    def test_a_kind_that_does_not_exist_is_refused(self, tmp_path, kind, hint):
        files = {**FILES, STEP: FILES[STEP].replace("number: identifier", f"number: {kind}")}
        found = check_playbook(write(tmp_path / "plain", files), tools=("lookup", "send_email"))
        assert any(problem.code == "P22" and hint in str(problem) for problem in found)


def test_sentences_that_several_people_add_at_once_are_all_kept(tmp_path, world):
    flow = playbook_flow(folder(tmp_path), tools=world.tools())
    bank = agent_side(flow.steps[STEP]).bank
    assert bank is not None
    texts = [
        f"We have put {word} aside for you."
        for word in ["cups", "plates", "pans", "forks", "knives", "bowls"]
    ]
    start = threading.Barrier(len(texts))

    def add(text: str) -> str:
        start.wait()
        return bank.add(NewSentence(text), DATA, tmp_path, by="Ada", day="2026-03-10")[0]

    with ThreadPoolExecutor(len(texts)) as people:
        names = list(people.map(add, texts))
    assert len(set(names)) == len(texts)
    file = next(tmp_path.rglob(f"{STEP}.en.yaml")).read_text()
    assert [text for text in texts if file.count(text) != 1] == []
