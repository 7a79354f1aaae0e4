"""Steps performed by code: routing, context, functions that fail, the limit, changed files."""

from __future__ import annotations

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.config import StepConfig
from detent.engine.engine import Engine
from detent.engine.outcome import Outcome
from detent.engine.step_failures import Transient
from detent.flows.playbook.flow import playbook_flow
from detent.flows.playbook.functions import look_up
from detent.flows.playbook.history import step_history
from detent.insight.visits import function_calls, visits
from detent.kernel.errors import DefinitionChanged, StoreUnavailable
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.flows.playbook.bench import drive, path_of, refused, script, step_file, write
from tests.flows.playbook.repairs import FILES, HANDLERS, mail, repairs

QUICK = RetryPolicy(3, 0, 0)


class TestPaths:
    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ("A-1 leaks", ["01-read", "02-look", "04-ticket", "06-confirm", "DONE"]),
            ("A-2 leaks", ["01-read", "02-look", "03-ask", "DONE"]),
            ("it leaks", ["01-read", "03-ask", "DONE"]),
        ],
    )
    async def test_data_chooses_the_way(self, tmp_path, world, text, path):
        """W-01, W-06: numbers, rows and receipts reach the steps that need them."""
        run, entries = await drive(repairs(tmp_path, world), mail(text))
        assert run.status is Status.SUCCEEDED
        assert path_of(entries) == path
        if "06-confirm" in path:
            assert run.data["ticket_id"] == "T1"
            assert world.sent == [{"to": "a@b.example", "subject": "", "body": "Your ticket is T1."}]

    async def test_reasons_are_the_labels_of_the_edges(self, tmp_path, world):
        _, entries = await drive(repairs(tmp_path, world), mail("A-1 leaks"))
        assert [visit.reason for visit in visits(entries)] == ["number found", "known", "ticket opened", None]

    async def test_values_are_put_into_a_reason(self, tmp_path, world):
        look = step_file(
            "02-look", call="[]", needs="[number]", next='[{to: DONE, reason: "{{number}} seen"}]'
        )
        unused = dict.fromkeys(
            ("03-ask", "04-ticket", "05-refuse", "06-confirm", "templates/06-confirm.en.txt")
        )
        read = step_file("01-read", needs="[mail]", handler="read_mail", next="[02-look]")
        flow = repairs(tmp_path, world, {**unused, "01-read": read, "02-look": look})
        _, entries = await drive(flow, mail("A-1"))
        assert visits(entries)[-1].reason == "A-1 seen"

    async def test_an_overlay_adds_a_step_and_an_edge(self, tmp_path, world):
        """4.12: the result is checked as a whole and has its own fingerprint."""
        more = write(
            tmp_path / "more",
            {
                "02-look": FILES["02-look"].replace(
                    "next:", "next:\n  - {to: 07-lost, when: {row.state: lost}, reason: lost}"
                ),
                "07-lost": step_file("07-lost", effects="{}"),
            },
        )
        plain, extended = repairs(tmp_path, world), repairs(tmp_path, world, overlays=[more])
        assert plain.fingerprint != extended.fingerprint
        assert path_of((await drive(plain, mail("A-3")))[1])[2] == "04-ticket"
        assert path_of((await drive(extended, mail("A-3")))[1])[2:] == ["07-lost", "DONE"]

    async def test_templates_follow_the_language_of_the_data(self, tmp_path, world):
        files = {
            "templates/06-confirm.pl.txt": "Zgłoszenie {{ticket_id}}.",
            "templates/sorry.pl.txt": "Ktoś się tym zajmie.",
        }
        flow = repairs(tmp_path, world, files)
        for language in ("pl", "de", None):
            await drive(flow, {**mail("A-1"), **({"language": language} if language else {})})
        assert [one["body"] for one in world.sent] == [
            "Zgłoszenie T1.", "Your ticket is T2.", "Your ticket is T3.",
        ]  # fmt: skip

    async def test_a_missing_value_fails_the_step_and_names_the_template(self, tmp_path, world):
        ask = (
            FILES["03-ask"]
            .replace('body: "Which number is it?"', "template: ask")
            .replace("needs: [mail.sender]", "needs: [mail.sender, mail.subject]")
        )
        flow = repairs(tmp_path, world, {"03-ask": ask, "templates/ask.en.txt": "About\n{{mail.subject}}"})
        run, entries = await drive(flow, mail("it leaks"))
        assert run.status is Status.FAILED
        error = visits(entries)[-1].error
        assert "template ask.en.txt, line 2: there is no value for {{mail.subject}}" in error
        assert not world.sent

    async def test_a_receipt_is_an_argument_of_a_later_effect(self, tmp_path, world):
        both = step_file(
            "01-both",
            """
            available_functions: [create_ticket, send_email]
            needs: [who]
            effects:
              create_ticket: {serial: x}
              send_email: {to: "{{who}}", body: "{{create_ticket.ticket_id}}"}
            """,
        )
        flow = playbook_flow(write(tmp_path, {"01-both": both}), tools=world.tools())
        run, entries = await drive(flow, {"who": "me"})
        assert run.status is Status.SUCCEEDED
        assert world.sent[0]["body"] == "T1"
        assert function_calls(entries)[1].arguments["body"] == "T1"


class TestWhatIsWrong:
    async def test_a_missing_need_is_said_and_the_step_runs(self, tmp_path, world, heard):
        """W-42."""
        from_there = {"playbook.yaml": FILES["playbook.yaml"] + "start: 02-look\n"}
        flow = repairs(tmp_path, world, from_there, check=False)
        run, entries = await drive(flow, mail("-"))
        assert path_of(entries) == ["02-look", "03-ask", "DONE"]
        (said,) = heard.named("step.context_missing")
        assert (said["step"], said["key"]) == ("02-look", "number")
        assert not world.asked
        assert run.data["row"] == {}

    async def test_a_handler_that_names_an_undeclared_step_fails_the_run(self, tmp_path, world):
        """4.6: a programming error names the handler and what may follow."""

        async def astray(ctx):
            return Outcome("04-ticket")

        flow = repairs(tmp_path, world, handlers={**HANDLERS, "read_mail": astray})
        run, entries = await drive(flow, mail("A-1"))
        assert run.status is Status.FAILED
        error = visits(entries)[-1].error
        assert "Handler 'read_mail' of step '01-read' named it" in error
        assert "['02-look', '03-ask', '05-refuse', 'graceful-degradation', 'FAILED']" in error

    async def test_a_condition_binds_handlers(self, tmp_path, world):
        async def astray(ctx):
            return Outcome("02-look", set={"number": None})

        flow = repairs(tmp_path, world, handlers={**HANDLERS, "read_mail": astray})
        run, entries = await drive(flow, mail("A-1"))
        assert run.status is Status.FAILED
        assert "No condition holds: 02-look needs" in visits(entries)[-1].error

    async def test_a_handler_may_leave_the_choice_to_the_conditions(self, tmp_path, world):
        async def facts(ctx):
            return {"number": None}

        flow = repairs(tmp_path, world, handlers={**HANDLERS, "read_mail": facts})
        assert path_of((await drive(flow, mail("A-1")))[1]) == ["01-read", "03-ask", "DONE"]

    async def test_a_handler_may_end_a_run_as_failed(self, tmp_path, world):
        async def enough(ctx):
            return Outcome("FAILED", reason="send_failed")

        flow = repairs(tmp_path, world, handlers={**HANDLERS, "read_mail": enough})
        run, _ = await drive(flow, mail("A-1"))
        assert (run.status, run.state, run.reason) == (Status.FAILED, "FAILED", "send_failed")
        assert not world.sent

    async def test_a_step_whose_file_is_missing_ends_the_run_degraded(self, tmp_path, world, heard):
        """W-39: library use without the check."""
        flow = repairs(tmp_path, world, {"04-ticket": None}, check=False)
        run, entries = await drive(flow, mail("A-1"))
        assert (run.status, run.reason) == (Status.DEGRADED, "step_not_found")
        assert path_of(entries) == ["01-read", "02-look", "04-ticket", "graceful-degradation"]
        (said,) = heard.named("step.missing_file")
        assert said["path"] == "repairs/steps/04-ticket.md"


class TestFunctionsThatFail:
    async def test_a_query_is_tried_as_often_as_its_step_and_then_an_answer(self, tmp_path, world):
        """4.7: the step decides; here it takes its edge for it."""
        world.faults["lookup"] = [refused("timeout", transient=True) for _ in range(3)]
        run, entries = await drive(repairs(tmp_path, world, retry=QUICK), mail("A-1"))
        assert world.asked == ["A-1"] * 3
        assert path_of(entries) == ["01-read", "02-look", "05-refuse", "DONE"]
        assert run.data["row"]["error"]["code"] == "timeout"
        assert run.data["row"]["error"]["transient"] is True
        (call,) = function_calls(entries)
        assert (call.success, call.attempts) == (False, 3)

    async def test_a_query_that_recovers_is_asked_no_more(self, tmp_path, world):
        world.faults["lookup"] = [ConnectionError(), TimeoutError()]
        run, entries = await drive(repairs(tmp_path, world, retry=QUICK), mail("A-1"))
        assert run.status is Status.SUCCEEDED
        assert len(world.asked) == 3
        assert visits(entries)[1].attempts == 3

    async def test_what_a_query_answered_is_kept_for_the_whole_step(self, tmp_path, world):
        """4.2: another attempt does not ask again."""
        tries = []

        async def twice(ctx):
            row = await look_up(ctx, "lookup", table="t", key="k", value="A-1")
            tries.append(row)
            if len(tries) == 1:
                raise Transient("not yet")
            return Outcome("DONE", set={"row": row})

        text = step_file("01-a", handler="twice", available_functions="[lookup]")
        flow = playbook_flow(
            write(tmp_path, {"01-a": text}), tools=world.tools(), handlers={"twice": twice}, retry=QUICK
        )
        _, entries = await drive(flow, {})
        assert (len(tries), world.asked) == (2, ["A-1"])
        (call,) = function_calls(entries)
        assert call.result == {"state": "late", "day": "2026-04-02"}

    async def test_an_effect_that_fails_for_good_is_for_the_step_to_answer(self, tmp_path, world):
        """4.7: 04 leaves it to a person, and one redirect goes out."""
        world.faults["create_ticket"] = [refused()]
        run, entries = await drive(repairs(tmp_path, world), mail("A-1"))
        assert (run.status, run.reason) == (Status.DEGRADED, "ticket_failed")
        assert path_of(entries)[-2:] == ["04-ticket", "graceful-degradation"]
        assert [one["body"] for one in world.sent] == ["Somebody will look at it."]
        assert [(one.function_name, one.success) for one in visits(entries)[-1].calls] == [
            ("create_ticket", False), ("send_email", True),
        ]  # fmt: skip

    async def test_a_redirect_that_fails_too_still_leaves_the_run_degraded(self, tmp_path, world):
        world.faults = {"create_ticket": [refused()], "send_email": [refused()]}
        run, _ = await drive(repairs(tmp_path, world), mail("A-1"))
        assert (run.status, run.reason) == (Status.DEGRADED, "ticket_failed")
        assert not world.sent

    async def test_a_redirect_that_cannot_be_written_is_left_out(self, tmp_path, world, heard):
        world.faults["create_ticket"] = [refused()]
        run, _ = await drive(repairs(tmp_path, world), {"mail": {"text": "A-1"}})
        assert run.status is Status.DEGRADED
        assert len(heard.named("redirect.skipped")) == 1

    async def test_a_step_that_does_not_look_at_the_failure_fails_the_run(self, tmp_path, world):
        """4.7: reason effect_failed, and never DONE."""
        world.faults["send_email"] = [refused()]
        run, entries = await drive(repairs(tmp_path, world), mail("it leaks"))
        assert (run.status, run.state, run.reason) == (Status.FAILED, "FAILED", "effect_failed")
        assert path_of(entries) == ["01-read", "03-ask", "FAILED"]
        assert not world.sent


LOOP = {
    "01-a": step_file("01-a", call="[]", next="[{to: DONE, when: {stop: true}}, 02-b]"),
    "02-b": step_file("02-b", handler="wait", next="[01-a]"),
}


class TestTheLimit:
    async def test_the_tenth_step_runs_and_the_eleventh_does_not(self, tmp_path, world):
        """W-07."""

        async def on(ctx):
            return Outcome("01-a")

        flow = playbook_flow(write(tmp_path, LOOP), handlers={"wait": on})
        run, entries = await drive(flow, {})
        assert (run.status, run.state, run.reason) == (Status.FAILED, "FAILED", "max_steps")
        assert [step for step, *_ in step_history(entries)] == ["01-a", "02-b"] * 5
        short = playbook_flow(tmp_path, handlers={"wait": on}, max_steps=3, name="short")
        _, entries = await drive(short, {})
        assert len(visits(entries)) == 3

    @pytest.mark.parametrize("kind", ["memory", "sqlite"])
    async def test_the_count_survives_a_resume(self, tmp_path, kind):
        """W-07: put down in the sixth step and taken up by another engine."""
        store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "runs.db")
        points = CrashPoints([CrashPoint(6, "after")], strike=_gone)

        async def on(ctx):
            return Outcome("01-a")

        flow = playbook_flow(write(tmp_path / "p", LOOP), handlers={"wait": on})
        with pytest.raises(StoreUnavailable):
            async with Engine(points.store(store), [flow]) as engine:
                await engine.run(flow.name, {}, run_id="r1")
        async with Engine(store, [flow]) as engine:
            run = await engine.finish("r1")
            entries = await engine.store.entries("r1", 0, 1000)
        assert run.reason == "max_steps"
        assert len(visits(entries)) == 10


def _gone(point: CrashPoint) -> None:
    raise StoreUnavailable("the process is gone")


class TestResuming:
    @pytest.mark.parametrize("mode", ["code", "agent"])
    async def test_history_is_the_same_wherever_the_run_was_interrupted(self, tmp_path, world, mode):
        """W-05: at every commit, before it and after it."""
        flow = repairs(tmp_path, world)
        settings = lambda: None if mode == "code" else _agents()  # noqa: E731
        counted = CrashPoints()
        run, entries = await drive(flow, mail("A-1"), store=counted.store(MemoryStore()), dispatch=settings())
        assert run.status is Status.SUCCEEDED
        quiet = step_history(entries, playbook=flow.playbook)
        if mode == "agent":
            assert [visit.mode for visit in visits(entries)] == ["agent"] * 4
        asked = len(world.asked)
        for number in range(2, counted.commits + 1):
            for when in ("before", "after"):
                world.__init__()
                flow = repairs(tmp_path, world)
                store, dispatch = MemoryStore(), settings()
                points = CrashPoints([CrashPoint(number, when)], strike=_gone)
                with pytest.raises(StoreUnavailable):
                    async with Engine(points.store(store), [flow], dispatch=dispatch) as engine:
                        await engine.run(flow.name, mail("A-1"), run_id="r1")
                async with Engine(store, [flow], dispatch=dispatch) as engine:
                    run = await engine.finish("r1")
                    entries = await engine.store.entries("r1", 0, 1000)
                assert run.status is Status.SUCCEEDED, (number, when)
                assert step_history(entries, playbook=flow.playbook) == quiet, (number, when)
                assert len(world.asked) <= asked + 1

    async def test_a_changed_file_refuses_to_go_on_and_is_named(self, tmp_path, world):
        """W-02: a run goes on under the files it was started with, or not at all."""
        from detent.flows.playbook.step_file_cache import clear_instruction_cache

        store = MemoryStore()
        flow = repairs(tmp_path, world)
        async with Engine(store, [flow]) as engine:
            await engine.start(flow.name, mail("A-1"), run_id="r1", drive=False)
        clear_instruction_cache()
        changed = repairs(tmp_path, world, {"03-ask": FILES["03-ask"].replace("Do it.", "Do it well.")})
        async with Engine(store, [changed]) as engine:
            with pytest.raises(DefinitionChanged) as caught:
                await engine.resume("r1")
        assert caught.value.difference == ["steps/03-ask.md has changed"]
        clear_instruction_cache()
        same = repairs(tmp_path, world, {"03-ask": "\ufeff" + FILES["03-ask"].replace("\n", "\r\n")})
        async with Engine(store, [same]) as engine:
            assert (await engine.finish("r1")).status is Status.SUCCEEDED

    async def test_a_hundred_runs_open_each_file_once(self, tmp_path, world, monkeypatch):
        """W-12."""
        opened = []
        real_open = type(tmp_path).open

        def counting(path, *args, **options):
            opened.extend([path.name] if args == ("rb",) else [])
            return real_open(path, *args, **options)

        monkeypatch.setattr(type(tmp_path), "open", counting)
        flow = repairs(tmp_path, world)
        async with Engine(MemoryStore(), [flow]) as engine:
            for _ in range(100):
                assert (await engine.run(flow.name, mail("A-1"))).status is Status.SUCCEEDED
        steps = [name for name in opened if name.endswith(".md")]
        assert sorted(steps) == sorted(f"{name}.md" for name in FILES if name[:2].isdigit())
        assert opened.count("06-confirm.en.txt") == 1


def _agents():
    """Every step by an agent, who says the same however often it is asked."""
    asking = [{"tool": "lookup", "args": {"table": "t", "key": "k", "value": "A-1"}}]
    replies = {
        "01-read": {"text": "NUMBER: A-1\nNEXT_STEP: look"},
        "02-look": {"calls": asking, "text": "NEXT_STEP: 04-ticket"},
        "04-ticket": {"text": "NEXT_STEP: confirm"},
        "06-confirm": {"text": "BODY: It is done.\nNEXT_STEP: DONE"},
    }
    return script({step: [{**reply, "repeat": True}] for step, reply in replies.items()})


class TestHints:
    async def test_hints_are_weaker_than_settings(self, tmp_path, world):
        """3.2: mode, autonomy, timeout_s, max_attempts."""
        from detent.dispatch.dispatcher import Dispatcher, DispatchSettings

        hinted = FILES["03-ask"].replace(
            "version: 1.0.0",
            "version: 1.0.0\nmode: agent\nautonomy: consultant\ntimeout_s: 7\nmax_attempts: 5",
        )
        flow = repairs(tmp_path, world, {"03-ask": hinted})
        step = flow.step_for("03-ask")
        plan = Dispatcher().plan_for(flow, step)
        assert plan.agent
        assert (plan.config.autonomy.value, plan.config.timeout) == ("consultant", 7)
        assert plan.resolved.retry.max_attempts == 5
        assert plan.resolved.sources["mode"] == "hint"
        back = DispatchSettings(steps={"repairs/03-ask": StepConfig(mode="deterministic", timeout=1)})
        plan = Dispatcher(back).plan_for(flow, step)
        assert not plan.agent
        assert (plan.timeout, plan.retry.max_attempts, plan.resolved.dropped) == (1, 5, ("autonomy",))

    async def test_a_level_waits_until_somebody_gives_the_step_to_an_agent(self, tmp_path, world):
        from detent.dispatch.dispatcher import Dispatcher, DispatchSettings

        hinted = FILES["03-ask"].replace("version: 1.0.0", "version: 1.0.0\nautonomy: approver")
        flow = repairs(tmp_path, world, {"03-ask": hinted})
        step = flow.step_for("03-ask")
        assert not Dispatcher().plan_for(flow, step).agent
        given = Dispatcher(DispatchSettings(steps={"03-ask": StepConfig(mode="agent")}))
        assert given.plan_for(flow, step).config.autonomy.value == "approver"
