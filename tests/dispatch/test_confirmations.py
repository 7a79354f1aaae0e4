"""A person inside a round: shown the exact arguments, answering once, for these alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import pytest

from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agreement import agreement
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.kernel.errors import ConfigurationError, HoldNotOpen
from detent.kernel.status import Status
from tests.dispatch.samples import INTENT, agent, result_of, scripted, settings, single
from tests.dispatch.test_acting import Ran, World, calls, running
from tests.engine.conftest import journal


def asked_about(*tools: str):
    return lambda effect: f"May {effect.tool} be done?" if effect.tool in tools else None


def confirmed(world: World, **options):
    return running(world, side=AgentSide(rounds=4, confirm=asked_about("run")), **options)


TEST = ("run", {"command": "make test"})


class Booked(TypedDict):
    """What booking a room gives back."""

    number: str


async def answered(engine, run, answer):
    (name,) = run.holds
    await engine.release(run.id, answer, hold=run.token(name))
    return await engine.finish(run.id)


class TestAgents:
    async def test_yes_performs_exactly_what_was_shown_whatever_the_model_would_say_now(self, bench):
        """After a restart, with a model that has changed its mind: it is not even asked."""
        world = World()
        first = await bench.engine(
            confirmed(world), dispatch=settings(scripted(calls(TEST)), agent("approver"))
        )
        run = await first.run("flow")
        assert (run.status, world.ran) == (Status.WAITING, [])
        (hold,) = run.holds.values()
        assert hold.question == "May run be done?"
        assert hold.about == {"tool": "run", "args": {"command": "make test", "cwd": "."}}
        await first.stop()
        executor = scripted({"output": {"exit_code": 0, "stdout": ""}})
        second = await bench.engine(confirmed(world), dispatch=settings(executor, agent("approver")))
        token = run.token(hold.name)
        run = await answered(second, run, "yes")
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make test"])
        assert run.data == {"exit_code": 1, "stdout": "make test in ."}
        with pytest.raises(HoldNotOpen):
            await second.release(run.id, "yes", hold=token)
        assert world.ran == ["make test"]

    async def test_no_reaches_the_agent_with_its_reason(self, bench):
        world = World()
        executor = scripted(
            calls(TEST), calls(("write", {"text": "a note"})), {"output": {"exit_code": 0, "stdout": ""}}
        )
        engine = await bench.engine(confirmed(world), dispatch=settings(executor, agent("approver")))
        run = await answered(engine, await engine.run("flow"), {"no": "not on a Friday"})
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["write a note"])
        assert '"status": "denied"' in executor.calls[1].prompt
        assert "not on a Friday" in executor.calls[1].prompt

    async def test_an_edited_effect_is_performed_and_the_agent_is_told_what_was_done(self, bench):
        world = World()
        executor = scripted(calls(TEST), {"output": {"exit_code": 0, "stdout": "as I said"}})
        engine = await bench.engine(confirmed(world), dispatch=settings(executor, agent("approver")))
        run = await answered(engine, await engine.run("flow"), {"edit": {"command": "make check"}})
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make check"])
        assert run.data == {"exit_code": 1, "stdout": "make check in ."}
        assert '"status": "edited"' in executor.calls[1].prompt
        assert "make check" in executor.calls[1].prompt

    async def test_what_was_edited_may_be_asked_for_again_in_its_own_right(self, bench):
        world = World()
        check = ("run", {"command": "make check"})
        executor = scripted(calls(TEST), calls(check), {"output": {}})
        engine = await bench.engine(confirmed(world), dispatch=settings(executor, agent("approver")))
        run = await answered(engine, await engine.run("flow"), {"edit": {"command": "make check"}})
        assert (run.status, world.ran) == (Status.WAITING, ["make check"])
        run = await answered(engine, run, "yes")
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make check", "make check"])

    async def test_neighbours_that_need_no_word_are_performed(self, bench):
        world = World()
        executor = scripted(calls(("write", {"text": "a"}), TEST, ("write", {"text": "b"})), {"output": {}})
        engine = await bench.engine(confirmed(world), dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert (run.status, world.ran) == (Status.WAITING, ["write a"])
        run = await answered(engine, run, "yes")
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["write a", "make test", "write b"])

    async def test_it_is_asked_again_when_what_was_shown_no_longer_holds(self, bench):
        """A diff that was confirmed is performed as it was confirmed, or not at all."""
        world = World()
        flow = running(
            world, side=AgentSide(rounds=4, confirm=asked_about("write")), command="x"
        )  # fmt: skip
        write = replace(flow.tools["write"], preview=lambda text: f"-{world.text}\n+{text}")
        flow.tools._tools["write"] = write
        executor = scripted(calls(("write", {"text": "new"})), {"output": {"exit_code": 0, "stdout": ""}})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        (hold,) = run.holds.values()
        assert hold.about["shown"] == "-old\n+new"
        world.text = "changed by somebody"
        run = await answered(engine, run, "yes")
        (hold,) = run.holds.values()
        assert (world.ran, hold.about["shown"]) == ([], "-changed by somebody\n+new")
        run = await answered(engine, run, "yes")
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["write new"])

    @pytest.mark.parametrize("answer", ["maybe", {"edit": {"comand": "x"}}, {"edit": 3}, {"yes": 1}, None, 7])
    async def test_an_answer_it_does_not_take_is_refused_and_changes_nothing(self, quick, answer):
        world = World()
        engine = await quick.engine(
            confirmed(world), dispatch=settings(scripted(calls(TEST)), agent("approver"))
        )
        run = await engine.run("flow")
        (name,) = run.holds
        with pytest.raises(ConfigurationError):
            await engine.release(run.id, answer, hold=run.token(name))
        assert (await engine.get(run.id)).status is Status.WAITING
        assert world.ran == []

    async def test_a_run_waiting_for_a_word_can_be_cancelled(self, quick):
        world = World()
        engine = await quick.engine(
            confirmed(world), dispatch=settings(scripted(calls(TEST)), agent("approver"))
        )
        run = await engine.run("flow")
        await engine.cancel(run.id)
        assert ((await engine.get(run.id)).status, world.ran) == (Status.CANCELLED, [])

    async def test_at_collaborator_what_a_person_edited_counts_as_what_was_asked_for(self, bench):
        """The agent asked for what the handler does; the person's change is no difference of its own."""
        world = World()
        flow = running(world, side=AgentSide(rounds=1, confirm=asked_about("run")))
        engine = await bench.engine(flow, dispatch=settings(scripted(calls(TEST)), agent()))
        run = await answered(engine, await engine.run("flow"), {"edit": {"command": "make check"}})
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make check"])
        assert run.data["stdout"] == "make check in ."


class TestHandlers:
    @staticmethod
    def flow(world: World, seen: list):
        async def work(ctx):
            try:
                done = await ctx.perform("run", command="make test", confirm="Run the tests?")
            except ToolError as error:
                seen.append(str(error))
                return {"exit_code": -1, "stdout": ""}
            return {"exit_code": done["exit_code"], "stdout": done["stdout"]}

        step = Step("work", work, INTENT, effects=("run",), output_schema=Ran, inputs=())
        return single(step, tools=world.tools())

    @pytest.mark.parametrize(
        ("answer", "ran"),
        [("yes", ["make test"]), ("no", []), ({"edit": {"command": "make check"}}, ["make check"])],
    )
    async def test_a_handler_asks_in_the_same_way(self, bench, answer, ran):
        world, seen = World(), []
        engine = await bench.engine(self.flow(world, seen))
        run = await engine.run("flow")
        assert (run.status, world.ran) == (Status.WAITING, [])
        run = await answered(engine, run, answer)
        assert (run.status, world.ran) == (Status.SUCCEEDED, ran)
        assert seen == (["denied"] if answer == "no" else [])


class TestAFallbackAfterAWord:
    """What a person has said holds for whoever performs the step."""

    @staticmethod
    def flow(world: World, style: str):
        async def performs(ctx):
            return await ctx.perform("run", command="make test")

        side = AgentSide(rounds=3, confirm=asked_about("run"))
        return running(world, performs if style == "performs" else None, side=side)

    @pytest.mark.parametrize("style", ["proposes", "performs"])
    @pytest.mark.parametrize("level", ["collaborator", "consultant"])
    async def test_a_no_is_not_overridden(self, bench, style, level):
        world = World()
        executor = scripted(calls(TEST), {"error": "permanent"})
        engine = await bench.engine(self.flow(world, style), dispatch=settings(executor, agent(level)))
        run = await answered(engine, await engine.run("flow"), {"no": "not today"})
        assert (run.status, world.ran) == (Status.FAILED, [])

    @pytest.mark.parametrize("style", ["proposes", "performs"])
    @pytest.mark.parametrize("level", ["collaborator", "consultant"])
    async def test_an_edited_effect_stands_for_the_one_that_was_asked_for(self, bench, style, level):
        world = World()
        executor = scripted(calls(TEST), {"error": "permanent"})
        engine = await bench.engine(self.flow(world, style), dispatch=settings(executor, agent(level)))
        run = await answered(engine, await engine.run("flow"), {"edit": {"command": "make check"}})
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make check"])
        assert run.data["stdout"] == "make check in ."


class TestEdits:
    """An edit names the arguments that are to change."""

    SHELL = ("run", {"command": "make test", "cwd": "src"})

    async def waiting(self, bench, world: World):
        executor = scripted(calls(self.SHELL), {"output": {}})
        engine = await bench.engine(confirmed(world), dispatch=settings(executor, agent("approver")))
        return engine, await engine.run("flow")

    async def test_arguments_that_an_edit_leaves_out_stay_as_they_were(self, bench):
        world = World()
        engine, run = await self.waiting(bench, world)
        run = await answered(engine, run, {"edit": {"command": "make check"}})
        assert run.data["stdout"] == "make check in src"

    @pytest.mark.parametrize("same", [{}, {"command": "make test"}, dict(SHELL[1])])
    async def test_an_edit_that_changes_nothing_is_a_yes(self, bench, same):
        world = World()
        engine, run = await self.waiting(bench, world)
        run = await answered(engine, run, {"edit": same})
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["make test"])

    @pytest.mark.parametrize(
        ("edit", "told"),
        [
            ({"comand": "x"}, "no argument 'comand'. Did you mean 'command'? Arguments: command, cwd"),
            ({"command": "x", "shell": True}, "no argument 'shell'. Arguments: command, cwd"),
            ({"cwd": 3}, "cwd: must be a string"),
        ],
    )
    async def test_an_argument_it_does_not_take_is_named(self, quick, edit, told):
        engine, run = await self.waiting(quick, World())
        (name,) = run.holds
        with pytest.raises(ConfigurationError, match="'run' cannot be changed") as refused:
            await engine.release(run.id, {"edit": edit}, hold=run.token(name))
        assert told in str(refused.value)

    async def test_arguments_of_several_thousand_characters_are_shown_whole(self, quick):
        long = {"command": "x" * 5000, "cwd": "."}
        executor = scripted(calls(("run", long)))
        engine = await quick.engine(confirmed(World()), dispatch=settings(executor, agent("approver")))
        (hold,) = (await engine.run("flow")).holds.values()
        assert hold.about["args"] == long


class TestAPersonsNo:
    @pytest.mark.parametrize("caught", [True, False])
    async def test_it_is_not_held_against_the_agent(self, bench, caught):
        """The handler asks too: by code the step would end in the same way."""
        world = World()

        async def work(ctx):
            try:
                done = await ctx.perform("run", confirm="Really?", command="make test")
            except ToolError:
                if not caught:
                    raise
                return {"exit_code": -1, "stdout": "not allowed"}
            return {"exit_code": done["exit_code"], "stdout": done["stdout"]}

        executor = scripted(calls(TEST), {"output": {"exit_code": -1, "stdout": "not allowed"}})
        flow = running(world, work, side=AgentSide(rounds=2))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("collaborator")))
        run = await answered(engine, await engine.run("flow"), {"no": "not today"})
        assert world.ran == []
        assert run.status is (Status.SUCCEEDED if caught else Status.FAILED)
        figures = agreement([(run.id, await journal(engine, run.id))])
        assert [(each.n, each.unusable) for each in figures] == ([(0, {})] if caught else [])
        if caught:
            assert (await result_of(engine, run.id)).mode_used.value == "agent"

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_a_trusted_agent_may_end_the_step_and_claim_nothing(self, bench, level):
        """It says honestly that nothing was done; then it claims a number that nobody gave."""
        for number, by in (("", "agent"), ("B-77", "handler")):
            booked: list[str] = []

            def book(room: str) -> Booked:
                booked.append(room)  # noqa: B023
                return {"number": f"B-{room}"}

            async def work(ctx):
                try:
                    return await ctx.perform("book", room="7")
                except ToolError:
                    return {"number": "", "by": "code"}

            step = Step("work", work, INTENT, effects=("book",), output_schema=Booked, inputs=())
            claim = {"output": {"number": number}, "repeat": True}
            executor = scripted(calls(("book", {"room": "7"})), claim)
            flow = single(step, tools=[Tool("book", book, confirm="Book it?")])
            engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
            run = await answered(engine, await engine.run("flow"), "no")
            assert (run.status, booked, run.data["number"]) == (Status.SUCCEEDED, [], "")
            assert (await result_of(engine, run.id)).mode_used.value == (
                "agent" if by == "agent" else "deterministic"
            )

    @pytest.mark.parametrize("answer", ["yes", "no"])
    async def test_a_no_holds_and_a_yes_is_asked_for_again_when_the_preview_has_changed(self, bench, answer):
        shown = iter(range(100))
        ran: list[str] = []

        async def work(ctx):
            try:
                return await ctx.perform("run", confirm="Really?", command="make")
            except ToolError:
                return {"refused": True}

        def run_it(command: str) -> dict[str, str]:
            ran.append(command)
            return {"ran": command}

        tool = Tool("run", run_it, preview=lambda command: f"version {next(shown)}")
        engine = await bench.engine(single(Step("work", work), tools=[tool]))
        run = await answered(engine, await engine.run("flow"), answer)
        if answer == "no":
            assert (run.status, run.data, ran) == (Status.SUCCEEDED, {"refused": True}, [])
        else:
            (hold,) = run.holds.values()
            assert "has changed since the answer" in hold.question
            assert ran == []

    async def test_what_the_preview_says_cannot_be_done_fails_at_once_and_nobody_is_asked(self, bench):
        ran: list[str] = []

        async def work(ctx):
            try:
                return await ctx.perform("run", confirm="Really?", command="make")
            except ToolError as error:
                return {"refused": error.code, "why": error.message}

        def impossible(command: str) -> str:
            raise ToolError("not_found", f"there is no {command}")

        def run_it(command: str) -> None:
            ran.append(command)

        tool = Tool("run", run_it, preview=impossible)
        engine = await bench.engine(single(Step("work", work), tools=[tool]))
        run = await engine.run("flow")
        assert (run.status, ran) == (Status.SUCCEEDED, [])
        assert run.data == {"refused": "not_found", "why": "there is no make"}
