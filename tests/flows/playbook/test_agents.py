"""Steps performed by an agent: the same ways, the same effects, and never worse than the handler."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import agent_side
from detent.dispatch.proposal import Verdict
from detent.engine.engine import Engine
from detent.engine.offloaded import kept_beside
from detent.flows.playbook.flow import playbook_flow
from detent.flows.playbook.history import response_text
from detent.insight.visits import blobs_of, visits
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from detent.testing.clock import HandClock
from tests.flows.playbook.bench import drive, executor_of, path_of, refused, script, step_file, write
from tests.flows.playbook.repairs import FILES, HANDLERS, mail, repairs

WHOLE = ["01-read", "02-look", "04-ticket", "06-confirm", "DONE"]
LOOK = [{"tool": "lookup", "args": {"table": "t", "key": "k", "value": "A-1"}}]
TICKET = [{"tool": "create_ticket", "args": {"serial": "A-1", "text": "code says"}}]
LETTER = [{"tool": "send_email", "args": {"to": "a@b.example", "body": "It is T1."}}]


def alone(front: str = "", **keys: str) -> dict[str, str]:
    """A playbook whose first step only an agent can perform."""
    return {
        "playbook.yaml": 'redirect: {send_email: {template: sorry, to: "{{who}}"}}\n',
        "01-a": step_file("01-a", front, mode="agent", next="[02-b, DONE]", **keys),
        "02-b": step_file("02-b", call="[]"),
        "templates/sorry.en.txt": "Sorry.",
    }


class TestTheWay:
    async def test_an_alias_in_any_case_is_the_step(self, tmp_path, world):
        """W-04: `next_step: Look` leads to 02-look, and text becomes data."""
        settings = script({"01-read": ["number: a-1.\nnext_step: Look"]})
        run, entries = await drive(repairs(tmp_path, world), mail("A-9"), dispatch=settings)
        first = visits(entries)[0]
        assert (first.mode, first.next_step) == ("agent", "02-look")
        assert run.data["number"] == "a-1"

    async def test_code_finds_what_an_agent_need_not_say(self, tmp_path, world):
        """4.4: a line left out is nothing, or what the handler finds, as the protocol declares."""
        settings = script({"01-read": ["NEXT_STEP: ask"]})
        run, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks now"), dispatch=settings)
        assert path_of(entries) == ["01-read", "03-ask", "DONE"]
        assert run.data["number"] is None
        assert (run.data["fault"], run.data["words"]) == ("code says", 3)
        settings = script({"01-read": ["FAULT: it leaks\nNUMBER: A-1\nNEXT_STEP: look"]})
        run, _ = await drive(repairs(tmp_path, world), mail("A-1 leaks now"), dispatch=settings)
        assert run.data["fault"] == "it leaks"

    async def test_the_prompt_holds_the_needs_and_nothing_else(self, tmp_path, world):
        """W-03, W-11: exactly the needs, exactly the declared functions, in the words of the file."""
        settings = script({"06-confirm": ["BODY: Ready.\nNEXT_STEP: DONE"]})
        await drive(repairs(tmp_path, world), mail("A-1 leaks"), dispatch=settings)
        (call,) = executor_of(settings).calls
        assert call.tools == ("send_email",)
        assert "ticket_id\n<<<" in call.prompt
        assert "mail.sender\n<<<" in call.prompt
        assert "leaks" not in call.prompt
        assert call.instructions.startswith("Do it.\n\nHOW TO ANSWER")
        assert "NEXT_STEP: <exactly one of: DONE>" in call.instructions

    async def test_a_value_kept_beside_the_journal_is_shown(self, tmp_path, world):
        body = b"The A-1 leaks."
        settings = script({"01-read": ["NEXT_STEP: 05-refuse"]})
        flow = repairs(tmp_path, world, handlers={**HANDLERS, "read_mail": lambda ctx: "05-refuse"})
        async with Engine(MemoryStore(), [flow], dispatch=settings) as engine:
            data = {"mail": {"text": kept_beside(body), "sender": "a@b.example"}}
            run = await engine.run(flow.name, data, beside=[body])
        assert run.status is Status.SUCCEEDED
        assert "text: The A-1 leaks." in executor_of(settings).calls[0].prompt


FUNCTIONS = {
    "01-read": ["NUMBER: A-1\nNEXT_STEP: 02-look"],
    "02-look": [{"calls": LOOK, "text": "NEXT_STEP: 04-ticket"}],
    "04-ticket": [{"calls": [*TICKET, *TICKET], "text": "NEXT_STEP: 06-confirm"}],
    "06-confirm": [{"calls": LETTER, "text": "NEXT_STEP: DONE"}],
}
TEXT = {
    "01-read": ["NUMBER: A-1\nNEXT_STEP: 02-look"],
    "02-look": ["NEXT_STEP: 04-ticket"],
    "04-ticket": ["NEXT_STEP: 06-confirm"],
    "06-confirm": ["BODY: It is T1.\nNEXT_STEP: DONE"],
}


class TestTwoModes:
    @pytest.mark.parametrize(
        ("level", "words"), [("approver", "It is T1."), ("consultant", "Your ticket is T1.")]
    )
    async def test_functions_and_text_come_to_the_same(self, tmp_path, world, level, words):
        """W-17, W-06: the same path, data and effects; equal proposals are one."""
        outcomes = []
        for replies, options in ((FUNCTIONS, {}), (TEXT, {"allowed_tools": ()}), (TEXT, {})):
            world.__init__()
            settings = script(replies, autonomy=level, **options)
            run, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks"), dispatch=settings)
            read = "agent" if level == "approver" else "handler"  # nobody has read the consultant's words
            assert [visit.by for visit in visits(entries)] == [*["agent"] * 3, read]
            outcomes.append((path_of(entries), run.data, world.sent, world.tickets, world.asked))
        assert outcomes[0] == outcomes[1] == outcomes[2]
        assert outcomes[0][0] == WHOLE
        assert outcomes[0][1]["ticket_id"] == "T1"
        assert outcomes[0][2] == [{"to": "a@b.example", "subject": "", "body": words}]
        assert outcomes[0][4] == ["A-1"]

    async def test_without_functions_the_declared_call_is_asked_first_and_shown(self, tmp_path, world):
        settings = script({"02-look": ["NEXT_STEP: 04-ticket"]}, allowed_tools=())
        await drive(repairs(tmp_path, world), mail("A-1"), dispatch=settings)
        (call,) = executor_of(settings).calls
        assert call.tools == ()
        assert "row\n<<<" in call.prompt
        assert "state: late" in call.prompt

    async def test_what_an_agent_did_is_told_in_the_lines_of_the_protocol(self, tmp_path, world):
        settings = script(FUNCTIONS)
        flow = repairs(tmp_path, world)
        _, entries = await drive(flow, mail("A-1 leaks"), dispatch=settings)
        told = [response_text(visit, flow.playbook) for visit in visits(entries)]
        assert told[0] == (
            "NUMBER: A-1\nFAULT: code says\nREASON: number found\nNEXT_STEP: 02-look\n\n"
            "NUMBER: A-1\nNEXT_STEP: 02-look"
        )
        assert "BODY: It is T1." in told[3]

    async def test_collaborators_are_compared_with_the_handler(self, tmp_path, world):
        """4.8: the same facts and effects pass; other words are not sent."""
        same = {**TEXT, "06-confirm": ["BODY: Your ticket is T1.\nNEXT_STEP: DONE"]}
        settings = script(same, autonomy="collaborator")
        _, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks"), dispatch=settings)
        assert [visit.by for visit in visits(entries)] == ["agent"] * 4
        other = {**TEXT, "06-confirm": ["BODY: It is T2.\nNEXT_STEP: DONE"]}
        settings = script(other, autonomy="collaborator")
        _, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks"), dispatch=settings)
        assert [visit.fallback for visit in visits(entries)] == [None] * 4
        assert world.sent[-1]["body"] == "Your ticket is T2."

    async def test_a_validator_stands_in_for_the_comparison(self, tmp_path, world):
        def careful(inputs, proposal):
            assert set(inputs) == {"mail"}
            return Verdict(proposal.output["number"] == "A-2", ["/number: another one"])

        read = FILES["01-read"].replace("handler:", "validator: careful\nhandler:")
        flow = repairs(tmp_path, world, {"01-read": read}, validators={"careful": careful})
        for number, fallback in (("A-2", None), ("A-3", "validation_failure")):
            settings = script({"01-read": [f"NUMBER: {number}\nNEXT_STEP: look"]}, autonomy="collaborator")
            _, entries = await drive(flow, mail("A-1 leaks"), dispatch=settings)
            assert visits(entries)[0].fallback == fallback


async def test_what_lies_beside_the_journal_is_part_of_the_history_while_it_is_kept(tmp_path, world):
    """Private steps and tools: the journal has hashes, and the history has what they stand for."""
    tools = [replace(tool, private=tool.kind == "effect") for tool in world.tools()]
    flow = repairs(tmp_path, world, tools=tools)
    for name, step in list(flow.steps.items()):
        flow.replace(name, replace(step, agent=replace(agent_side(step), private=True)))
    store = MemoryStore()
    _, entries = await drive(flow, mail("A-1 leaks"), store=store, dispatch=script(TEXT))
    bare = visits(entries)[-1]
    assert bare.reply is None
    assert set(bare.calls[0].arguments) == {"$blob", "size"}
    whole = visits(entries, blobs=await blobs_of(store, entries))[-1]
    assert whole.reply == "BODY: It is T1.\nNEXT_STEP: DONE"
    assert whole.calls[0].arguments == {"to": "a@b.example", "body": "It is T1."}


class TestWrongReplies:
    async def test_a_reply_without_a_step_is_asked_for_again(self, tmp_path, world, heard):
        """W-36: an error is logged, and the second prompt lists what is allowed."""
        settings = script({"01-read": ["I found A-1.", "NUMBER: A-1\nNEXT_STEP: look"]})
        _, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks"), dispatch=settings)
        assert path_of(entries) == WHOLE
        first, second = executor_of(settings).calls
        assert "PROBLEMS" not in first.prompt
        assert "NEXT_STEP is missing" in second.prompt
        assert "Allowed for NEXT_STEP: 02-look, 03-ask, 05-refuse" in second.prompt
        said = heard.one("step.invalid_route")
        assert (said["step"], said["allowed"]) == ("01-read", ["02-look", "03-ask", "05-refuse"])

    @pytest.mark.parametrize(
        "wrong",
        [
            "no line",
            "NEXT_STEP: 99-nowhere",
            "NEXT_STEP: 04-ticket",
            "NEXT_STEP: graceful-degradation",
            "NEXT_STEP: FAILED",
            "NEXT_STEP: DONE",
            "NEXT_STEP: ask\nNEXT_STEP: look",
            "NEXT_STEP: look",  # without a number: the condition on the edge does not hold
            "NUMBER: A-1\nNEXT_STEP: ask",
            {"output": {"NEXT_STEP": "look"}},
        ],
    )
    async def test_wrong_twice_and_the_handler_decides(self, tmp_path, world, heard, wrong):
        """W-36, W-53: whatever the level, conditions hold; never a silent DONE."""
        settings = script({"01-read": [wrong, wrong]})
        run, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks"), dispatch=settings)
        assert run.status is Status.SUCCEEDED
        assert path_of(entries) == WHOLE
        first = visits(entries)[0]
        assert (first.fallback, first.by) == ("schema_violation", "handler")
        assert len(executor_of(settings).calls) == 2
        assert len(heard.named("step.invalid_route")) == 2
        assert not any("99-nowhere" in one.line for one in heard.events if one.level >= 20)

    async def test_a_function_that_is_not_declared_cannot_be_called(self, tmp_path, world):
        """W-11."""
        reply = {"calls": LETTER, "text": "NUMBER: A-1\nNEXT_STEP: look"}
        settings = script({"01-read": [reply, reply]})
        _, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks"), dispatch=settings)
        assert visits(entries)[0].fallback == "schema_violation"
        assert len(world.sent) == 1

    async def test_arguments_are_held_to_what_the_file_says_about_them(self, tmp_path, world):
        """W-11: the parameters of a function written out."""
        reply = {
            "calls": [{"tool": "send_email", "args": {"to": "x", "body": "a"}}],
            "text": "NEXT_STEP: DONE",
        }
        settings = script({"06-confirm": [reply, reply]})
        _, entries = await drive(repairs(tmp_path, world), mail("A-1"), dispatch=settings)
        assert visits(entries)[-1].fallback == "schema_violation"

    async def test_two_different_proposals_of_one_function_are_refused(self, tmp_path, world):
        other = [{"tool": "create_ticket", "args": {"serial": "B-2"}}]
        reply = {"calls": [*TICKET, *other], "text": "NEXT_STEP: confirm"}
        settings = script({"04-ticket": [reply, reply]})
        _, entries = await drive(repairs(tmp_path, world), mail("A-1"), dispatch=settings)
        assert visits(entries)[2].fallback == "schema_violation"
        assert [one["serial"] for one in world.tickets] == ["A-1"]

    async def test_a_text_that_is_missing_is_asked_for(self, tmp_path, world):
        settings = script({"03-ask": ["NEXT_STEP: DONE", "BODY: Which one?\nNEXT_STEP: DONE"]})
        _, entries = await drive(repairs(tmp_path, world), mail("it leaks"), dispatch=settings)
        assert visits(entries)[-1].by == "agent"
        assert [one["body"] for one in world.sent] == ["Which one?"]
        assert "BODY is missing" in executor_of(settings).calls[1].prompt

    async def test_a_contract_of_the_application_holds_at_every_level(self, tmp_path, world):
        """W-53: what is proposed is looked at whole, whichever mode it came from."""

        def to_the_sender(ctx, outcome, reply):
            (letter,) = outcome.effects
            return [] if letter.args["to"] == ctx.data.mail.sender else ["to must be the sender"]

        astray = {"calls": [{"tool": "send_email", "args": {"to": "x@y.example", "body": "Hello"}}]}
        settings = script({"06-confirm": [{**astray, "text": "NEXT_STEP: DONE"}] * 2})
        flow = repairs(tmp_path, world, contracts={"06-confirm": to_the_sender})
        _, entries = await drive(flow, mail("A-1"), dispatch=settings)
        assert visits(entries)[-1].fallback == "schema_violation"
        assert [one["to"] for one in world.sent] == ["a@b.example"]
        settings = script({"06-confirm": ["BODY: Hello there.\nNEXT_STEP: DONE"]})
        _, entries = await drive(flow, mail("A-1"), dispatch=settings)
        assert visits(entries)[-1].by == "agent"


class TestTrouble:
    async def test_a_model_that_times_out_is_tried_three_times_then_the_handler_decides(
        self, tmp_path, world
    ):
        """W-38: with growing waits."""
        clock = HandClock()
        settings = script({"01-read": [{"error": "transient"}] * 3})
        flow = repairs(tmp_path, world)
        async with Engine(MemoryStore(), [flow], dispatch=settings, clock=clock) as engine:
            await engine.start(flow.name, mail("A-1"), run_id="r1")
            for waited, calls in ((0.7, 1), (0.6, 2), (1.4, 2), (1.2, 3)):  # a quarter more or less
                await clock.turn(waited)
                assert len(executor_of(settings).calls) == calls
            run = await engine.finish("r1")
            entries = await engine.store.entries("r1", 0, 1000)
        assert run.status is Status.SUCCEEDED
        assert len(executor_of(settings).calls) == 3
        assert visits(entries)[0].fallback == "exception"
        assert path_of(entries) == WHOLE

    async def test_with_no_handler_a_model_that_fails_fails_the_run(self, tmp_path, world):
        """W-38: reason step_failed, no letter."""
        flow = playbook_flow(
            write(tmp_path / "p", alone()), tools=world.tools(), retry=RetryPolicy(3, 0, 0), timeout=0.01
        )
        settings = script({"01-a": [{"error": "timeout"}] * 3})
        run, entries = await drive(flow, {"who": "me"}, dispatch=settings)
        assert (run.status, run.state, run.reason) == (Status.FAILED, "FAILED", "step_failed")
        assert len(executor_of(settings).calls) == 3
        assert visits(entries)[0].fallback == "timeout"
        assert not world.sent

    async def test_with_no_handler_and_no_executor_the_run_waits_for_a_person(self, tmp_path, world):
        flow = playbook_flow(write(tmp_path / "p", alone()), tools=world.tools())
        run, _ = await drive(flow, {"who": "me"})
        assert run.status is Status.WAITING
        assert [hold.choices for hold in run.holds.values()] == [["retry", "fail"]]

    async def test_with_no_handler_a_wrong_route_ends_degraded_with_one_letter(self, tmp_path, world):
        """W-37: never DONE."""
        flow = playbook_flow(write(tmp_path / "p", alone()), tools=world.tools())
        settings = script({"01-a": ["NEXT_STEP: 07", "NEXT_STEP: 07"]})
        run, entries = await drive(flow, {"who": "me"}, dispatch=settings)
        assert (run.status, run.reason) == (Status.DEGRADED, "invalid_route")
        assert path_of(entries) == ["01-a", "graceful-degradation"]
        assert world.sent == [{"to": "me", "subject": "", "body": "Sorry."}]
        assert executor_of(settings).calls[0].tools == ()  # the redirect is nobody's to call

    async def test_that_letter_refused_the_run_is_degraded_all_the_same(self, tmp_path, world):
        world.faults["send_email"] = [refused()]
        flow = playbook_flow(write(tmp_path / "p", alone()), tools=world.tools())
        settings = script({"01-a": ["?", "?"]})
        run, _ = await drive(flow, {"who": "me"}, dispatch=settings)
        assert (run.status, run.reason) == (Status.DEGRADED, "invalid_route")

    async def test_an_agent_alone_is_believed_as_far_as_the_contract_goes(self, tmp_path, world):
        """A hint of `mode: agent` alone is collaborator, and there is nothing to compare with."""
        front = """
        available_functions:
          - {name: create_ticket, description: Open one., into: {ticket: ticket_id}, parameters: {}}
          - {name: lookup, description: Find., into: row}
        """
        files = alone(front, outputs="[row, ticket]")
        flow = playbook_flow(write(tmp_path / "p", files), tools=world.tools())
        settings = script({"01-a": [{"calls": [*LOOK, *TICKET], "text": "NEXT_STEP: b"}]}, autonomy=None)
        run, entries = await drive(flow, {"who": "me"}, dispatch=settings)
        assert run.status is Status.SUCCEEDED
        assert path_of(entries) == ["01-a", "02-b", "DONE"]
        assert visits(entries)[0].by == "agent"
        assert run.data["row"]["state"] == "late"
        assert run.data["ticket"] == "T1"

    async def test_an_agents_effect_refused_with_no_handler_fails_the_run(self, tmp_path, world):
        world.faults["create_ticket"] = [refused()]
        files = alone(available_functions="[create_ticket]")
        flow = playbook_flow(write(tmp_path / "p", files), tools=world.tools())
        settings = script({"01-a": [{"calls": TICKET, "text": "NEXT_STEP: DONE"}]})
        run, _ = await drive(flow, {"who": "me"}, dispatch=settings)
        assert (run.status, run.reason) == (Status.FAILED, "effect_failed")

    async def test_an_explicit_operator_runs_by_code(self, tmp_path, world):
        """3.2: it warns and runs deterministically."""
        text = FILES["03-ask"].replace("version: 1.0.0", "version: 1.0.0\nmode: agent\nautonomy: operator")
        run, entries = await drive(repairs(tmp_path, world, {"03-ask": text}), mail("it leaks"))
        assert run.status is Status.SUCCEEDED
        assert visits(entries)[-1].fallback == "operator"

    async def test_an_agent_that_hangs_is_given_up_after_the_steps_own_time(self, tmp_path, world):
        text = FILES["03-ask"].replace("version: 1.0.0", "version: 1.0.0\ntimeout_s: 0.5\nmax_attempts: 1")
        settings = script({"03-ask": [{"error": "hang"}]})
        async with asyncio.timeout(20):
            _, entries = await drive(
                repairs(tmp_path, world, {"03-ask": text}), mail("it leaks"), dispatch=settings
            )
        assert visits(entries)[-1].fallback == "timeout"
        assert len(world.sent) == 1
