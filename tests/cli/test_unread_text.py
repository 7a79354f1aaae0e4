"""Text for people in a tool's arguments, where the tool declares it and the step does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detent.flows.playbook.step_file_cache import clear_instruction_cache
from tests.cli.acting import serving

PROMISE = "Consider the bill settled, we take care of the rest."
"""A claim in plain words: nothing in it has a form that could be refused."""
OWN = "Your order has left our house."
DONE = {"answer": "NEXT_STEP: DONE"}

CONFIG = """
plugins: [%s]
models:
  house: {kind: vllm, base_url: "%s/v1", model_id: tiny}
steps:
  tell: {mode: agent, max_retries: 0%s}
"""

POST = '''
"""Tells a customer that an order has left."""

from pathlib import Path
from typing import TypedDict

from detent import Flow, Machine, Outcome, Status, Step, tool
from detent.dispatch.agent_side import AgentSide


@tool("post.send", prose=("text",))
def send(to: str, text: str) -> dict:
    """Send a letter."""
    with Path("sent.txt").open("a") as file:
        file.write(f"{to}: {text}\\n")
    return {"to": to}


class Told(TypedDict):
    to: str


class Written(TypedDict):
    words: str


async def tells(ctx):
    return {"to": ctx.propose("post.send", to=ctx.data.who, text="Your order has left our house.").to}


async def performs(ctx):
    return await ctx.perform("post.send", to=ctx.data.who, text="Your order has left our house.")


async def writes(ctx):
    return {"words": "Your order has left our house."}


async def fails(ctx):
    raise AssertionError("nobody but an agent performs this")


def sent(ctx, said):
    ctx.propose("post.send", to=ctx.data.who, text=said["words"])
    return Outcome("done")


def flow(name, handler, schema=Told, **more):
    step = Step("tell", handler, "Tell the customer.", effects=("post.send",), queries=(), inputs=("who",),
                output_schema=schema, **more)
    table = Machine(name, start="tell", moves={"tell": ["done"]}, ends={"done": Status.SUCCEEDED})
    return Flow(table, {"tell": step}, tools=[send])


proposed = flow("proposed", tells)
performed = flow("performed", performs)
validated = flow("validated", tells, validator=lambda inputs, proposal: True)
at_once = flow("at_once", tells, agent=AgentSide(prose=("post.send.text",), rounds=0))
concluded = flow("concluded", writes, Written, conclude=sent, agent=AgentSide(effects=()))
by_code = flow("by_code", writes, Written, conclude=sent, agent=AgentSide(effects=(), prose=()))
'''

FLOWS = ("proposed", "performed", "validated", "at_once")
NOT_FREE = pytest.mark.parametrize("level", [None, "consultant", "approver"], ids=str)


def calls(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


@pytest.fixture
def lines(folder: Path) -> Callable[[], list[str]]:
    """The letters that went out."""
    file = folder / "sent.txt"
    return lambda: file.read_text().splitlines() if file.exists() else []


class TestInAPythonFlow:
    def run(self, folder: Path, detent: Any, flow: str, options: str, *replies: Any) -> Any:
        (folder / "post.py").write_text(POST)
        with serving(*replies) as model:
            (folder / "detent.yaml").write_text(CONFIG % ("post.py", model.url, options))
            return detent("run", flow, "--id", "r1", "--set", "who=ada@reader.example")

    @NOT_FREE
    @pytest.mark.parametrize("flow", FLOWS)
    def test_what_nobody_has_read_is_not_sent(self, folder, detent, lines, flow, level):
        options = f", autonomy: {level}" if level else ""
        letter = calls("post.send", to="ada@reader.example", text=PROMISE)
        ran = self.run(folder, detent, flow, options, letter, {"answer": {"to": "ada@reader.example"}})
        assert ran.code == 0, ran
        assert lines() == [f"ada@reader.example: {OWN}"]

    @NOT_FREE
    def test_nor_is_it_through_the_steps_own_code(self, folder, detent, lines, level):
        options = f", autonomy: {level}" if level else ""
        ran = self.run(folder, detent, "concluded", options, {"words": PROMISE})
        assert (ran.code, lines()) == (0, [f"ada@reader.example: {OWN}"])

    @pytest.mark.parametrize("flow", FLOWS)
    def test_the_handlers_text_is_sent_by_the_agent(self, folder, detent, lines, flow):
        letter = calls("post.send", to="ada@reader.example", text=OWN)
        ran = self.run(folder, detent, flow, ", autonomy: consultant", letter,
                       {"answer": {"to": "ada@reader.example"}})  # fmt: skip
        assert (ran.code, lines()) == (0, [f"ada@reader.example: {OWN}"])
        assert "handler, not the agent" not in ran.out

    def test_a_fallback_says_why_and_costs_no_trust(self, folder, detent):
        letter = calls("post.send", to="ada@reader.example", text=PROMISE)
        ran = self.run(folder, detent, "proposed", ", autonomy: consultant", letter)
        assert "handler, not the agent: " in ran.out
        assert "differs from the handler" not in ran.out
        assert "prose unreviewed" in detent("why", "r1").out

    @pytest.mark.parametrize("flow", FLOWS)
    def test_free_prose_goes_out(self, folder, detent, lines, flow):
        letter = calls("post.send", to="ada@reader.example", text=PROMISE)
        answer = {"answer": {"to": "ada@reader.example"}}
        ran = self.run(folder, detent, flow, ", autonomy: approver, prose: free", letter, answer)
        assert (ran.code, lines()) == (0, [f"ada@reader.example: {PROMISE}"])

    def test_a_step_may_say_that_its_code_writes_the_text(self, folder, detent, lines):
        ran = self.run(folder, detent, "by_code", ", autonomy: consultant", {"words": "Ready."})
        assert (ran.code, lines()) == (0, ["ada@reader.example: Ready."])

    @pytest.mark.parametrize("flow", FLOWS)
    @pytest.mark.parametrize("answer", ["yes", "no"])
    def test_a_person_is_shown_it_first(self, folder, detent, token, lines, flow, answer):
        letter = calls("post.send", to="ada@reader.example", text=PROMISE)
        done = {"answer": {"to": "ada@reader.example"}}
        (folder / "post.py").write_text(POST)
        with serving(letter, done) as model:
            options = ", autonomy: consultant, review: person"
            (folder / "detent.yaml").write_text(CONFIG % ("post.py", model.url, options))
            ran = detent("run", flow, "--id", "r1", "--set", "who=ada@reader.example")
            assert (ran.code, lines()) == (0, [])
            assert PROMISE in ran.out
            detent("release", "r1", answer, "--hold", token("r1"), "--by", "Ada")
        assert lines() == ([f"ada@reader.example: {PROMISE}"] if answer == "yes" else lines())
        assert answer == "yes" or PROMISE not in "".join(lines())


class TestInAPlaybook:
    STEP = """---
name: tell
description: Tell the reader that the book is overdue.
version: 1.0.0
available_functions: [send_email]
needs: [who]
%snext: [DONE]
---
Tell the reader that the book is overdue.
"""
    EFFECT = 'effects: {send_email: {to: "{{who}}", subject: "Your book", body: "Your book is overdue."}}\n'

    @pytest.fixture(autouse=True)
    def nothing_read_yet(self):
        clear_instruction_cache()
        yield
        clear_instruction_cache()

    def run(self, folder: Path, detent: Any, options: str, front: str, *replies: Any) -> tuple[Any, str]:
        (folder / "loans" / "steps").mkdir(parents=True)
        (folder / "loans" / "steps" / "tell.md").write_text(self.STEP % front)
        (folder / "loans" / "playbook.yaml").write_text("start: tell\n")
        with serving(*replies) as model:
            text = (CONFIG % ("X", model.url, options)).replace("plugins: [X]\n", "")
            (folder / "detent.yaml").write_text(text)
            ran = detent("run", "playbook", "loans", "--id", "r1", "--set", "who=ada@reader.example")
        return ran, "".join(mail.read_text() for mail in (folder / "mail").glob("outbox/*.eml"))

    @NOT_FREE
    @pytest.mark.parametrize("place", ["body", "subject"])
    def test_what_nobody_has_read_is_not_sent(self, folder, detent, level, place):
        options = f", autonomy: {level}" if level else ""
        arguments = {"to": "ada@reader.example", "subject": "Your book", "body": "Your book is overdue."}
        letter = calls("send_email", **{**arguments, place: PROMISE})
        ran, mails = self.run(folder, detent, options, self.EFFECT, letter, DONE)
        assert ran.code == 0, ran
        assert "Consider the bill" not in mails
        assert mails.count("Your book is overdue.") == 1

    def test_without_a_handler_it_waits_for_a_person(self, folder, detent):
        letter = calls("send_email", to="ada@reader.example", subject="Your book", body=PROMISE)
        ran, mails = self.run(folder, detent, ", autonomy: consultant", "mode: agent\n", letter, DONE)
        assert (ran.code, mails) == (0, ""), detent("why", "r1").out
        assert "tell" in detent("review", "list").out

    def test_a_step_that_says_it_writes_none_is_believed(self, folder, detent):
        letter = calls("send_email", to="ada@reader.example", subject="Your book", body=PROMISE)
        front = self.EFFECT + "prose: []\n"
        ran, mails = self.run(folder, detent, ", autonomy: consultant", front, letter, DONE)
        assert ran.code == 0
        assert "Consider the bill" in mails


class TestInAWorkflow:
    FILE = """version: "1.0"
name: parcels
steps:
  - name: tell
    type: python
    action: notify
    kwargs: {message: "Your order has left our house.", title: "Order"}
"""

    def run(self, folder: Path, detent: Any, options: str, *replies: Any) -> tuple[Any, list[dict[str, Any]]]:
        (folder / "parcels.yaml").write_text(self.FILE)
        with serving(*replies) as model:
            text = (CONFIG % ("X", model.url, options)).replace("plugins: [X]\n", "")
            (folder / "detent.yaml").write_text(text + "notify: {folder: notices}\n")
            ran = detent("workflow", "run", "parcels.yaml")
        return ran, [json.loads(file.read_text()) for file in (folder / "notices").glob("*.json")]

    @NOT_FREE
    @pytest.mark.parametrize("place", ["message", "title"])
    def test_a_notice_says_what_the_workflow_says(self, folder, detent, level, place):
        options = f", autonomy: {level}" if level else ""
        notice = calls("notify.send", **{"message": OWN, "title": "Order", "channel": "file", place: PROMISE})
        ran, notices = self.run(folder, detent, options, notice)
        assert ran.code == 0, ran
        assert [(each["message"], each["title"]) for each in notices] == [(OWN, "Order")]

    def test_an_agent_that_says_it_in_these_words_is_used(self, folder, detent):
        notice = calls("notify.send", message=OWN, title="Order", channel="file")
        ran, notices = self.run(folder, detent, ", autonomy: consultant", notice)
        assert ran.code == 0, ran
        assert [each["message"] for each in notices] == [OWN]
        assert "handler, not the agent" not in ran.out
