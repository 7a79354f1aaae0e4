"""Agents that act: the engine performs what they ask for, and receipts, not claims, make the output."""

from __future__ import annotations

import contextlib
from typing import Any, TypedDict

import pytest

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.agreement import agreement
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.executor import Availability
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, ToolError
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from detent.testing.rounds import from_the_top
from tests.dispatch.samples import INTENT, LEVELS, agent, result_of, scripted, settings, single
from tests.engine.conftest import flow_of, journal, kinds


class Ran(TypedDict):
    """What the sample command gives back."""

    exit_code: int
    stdout: str


class World:
    """Commands that were really run, and a text that queries read and effects write."""

    def __init__(self, *, fails: tuple[str, ...] = ()) -> None:
        self.ran: list[str] = []
        self.text = "old"
        self.fails = fails

    def tools(self) -> list[Tool]:
        def run(command: str, cwd: str = ".") -> dict[str, Any]:
            if command in self.fails:
                raise ToolError("refused", f"will not run {command}")
            self.ran.append(command)
            return {"exit_code": len(self.ran), "stdout": f"{command} in {cwd}"}

        def write(text: str) -> dict[str, Any]:
            self.ran.append(f"write {text}")
            self.text = text
            return {"written": len(text)}

        def read() -> str:
            return self.text

        return [Tool("run", run), Tool("write", write), Tool("read", read, "query")]


def calls(*items: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A reply that calls tools, as an agent without native calls writes it."""
    return {"output": {"calls": [{"tool": tool, "args": args} for tool, args in items]}}


def running(world: World, handler=None, *, command="make test", schema=Ran, side=None, **options):
    """A flow of one step that runs a command; its agent may act once, unless `side` says otherwise."""

    async def work(ctx):
        done = ctx.propose("run", command=command)
        return {"exit_code": done.exit_code, "stdout": done.stdout}

    step = Step(
        "work", handler or work, INTENT, effects=("run", "write"), queries=("read",), output_schema=schema,
        inputs=(), agent=side or AgentSide(rounds=1), **options,
    )  # fmt: skip
    return single(step, tools=world.tools())


@pytest.mark.parametrize("level", LEVELS)
class TestReceiptsWin:
    async def test_the_output_is_the_receipt_and_no_second_reply_is_paid(self, bench, level):
        """An agent that acts need not say what came of it."""
        world = World()
        executor = scripted(calls(("run", {"command": "make test"})))
        engine = await bench.engine(running(world), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert run.data == {"exit_code": 1, "stdout": "make test in ."}
        assert (world.ran, len(executor.calls)) == (["make test"], 1)
        result = await result_of(engine, run.id)
        assert (result.mode_used.value, result.agent_result_accepted) == ("agent", True)

    async def test_what_an_agent_claims_beside_a_receipt_is_not_taken(self, bench, level):
        """Asked for a fact no receipt holds, it says more than it was asked; the receipt wins."""

        class Judged(Ran):
            verdict: str

        async def work(ctx):
            done = ctx.propose("run", command="make test")
            return {"exit_code": done.exit_code, "stdout": done.stdout, "verdict": "red"}

        world = World()
        executor = scripted(
            calls(("run", {"command": "make test"})),
            {"text": '{"verdict": "red", "exit_code": 0, "stdout": "12 passed"}'},
        )
        flow = running(world, work, schema=Judged)
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert run.data == {"exit_code": 1, "stdout": "make test in .", "verdict": "red"}
        assert world.ran == ["make test"]
        assert (await result_of(engine, run.id)).mode_used.value == "agent"
        asked = executor.calls[1].prompt
        assert "RESULTS" in asked
        assert '"verdict"' in asked.split("MISSING")[1]
        assert '"exit_code"' not in asked.split("MISSING")[1]

    async def test_defaults_of_a_tool_are_no_difference(self, bench, level):
        """An agent that leaves out or spells out a default asks for the same effect."""
        for args in ({"command": "make test"}, {"command": "make test", "cwd": "."}):
            world = World()
            executor = scripted(calls(("run", args)))
            engine = await bench.engine(running(world), dispatch=settings(executor, agent(level)))
            run = await engine.run("flow")
            assert (await result_of(engine, run.id)).mode_used.value == "agent"
            assert run.data["stdout"] == "make test in ."

    async def test_no_notation_of_ours_is_asked_of_an_agent(self, quick, level):
        executor = scripted(calls(("run", {"command": "make test"})))
        engine = await quick.engine(running(World()), dispatch=settings(executor, agent(level)))
        await engine.run("flow")
        told = f"{executor.calls[0].instructions}{executor.calls[0].prompt}{executor.calls[0].output_schema}"
        assert "$receipt" not in told
        assert "proposed" not in told


class TestGate:
    async def test_another_effect_than_the_handlers_is_not_performed_at_collaborator(self, bench):
        world = World()
        executor = scripted(calls(("run", {"command": "rm -rf build"})))
        engine = await bench.engine(running(world), dispatch=settings(executor, agent()))
        run = await engine.run("flow")
        assert (world.ran, run.data["stdout"]) == (["make test"], "make test in .")
        result = await result_of(engine, run.id)
        assert result.fallback_reason is FallbackReason.VALIDATION_FAILURE
        assert result.validation_details[0].pointer == "/effects/0/args/command"

    async def test_the_verdict_is_never_told_to_the_agent(self, bench):
        """Told of a rejected comparison, an agent would guess until it agrees."""
        world = World()
        executor = scripted(calls(("run", {"command": "rm"})), calls(("run", {"command": "make test"})))
        engine = await bench.engine(running(world), dispatch=settings(executor, agent()))
        await engine.run("flow")
        assert len(executor.calls) == 1

    async def test_too_little_done_is_completed_by_code(self, bench):
        """The agent does the first of two effects; the handler does the second and repeats nothing."""

        async def work(ctx):
            ctx.propose("run", command="first")
            done = ctx.propose("run", command="second")
            return {"exit_code": done.exit_code, "stdout": done.stdout}

        for level in ("collaborator",):
            world = World()
            executor = scripted(calls(("run", {"command": "first"})))
            engine = await bench.engine(running(world, work), dispatch=settings(executor, agent(level)))
            run = await engine.run("flow")
            assert world.ran == ["first", "second"]
            assert run.data == {"exit_code": 2, "stdout": "second in ."}
            result = await result_of(engine, run.id)
            assert result.fallback_reason is FallbackReason.VALIDATION_FAILURE

    @pytest.mark.parametrize("level", LEVELS)
    async def test_an_unknown_tool_is_a_result_and_its_neighbours_run(self, bench, level):
        world = World()
        executor = scripted(calls(("deploy", {}), ("read", {})), calls(("run", {"command": "make test"})))
        engine = await bench.engine(running(world), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (await result_of(engine, run.id)).mode_used.value == "agent"
        asked = executor.calls[1].prompt
        assert '"status": "refused"' in asked
        assert "old" in asked

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_second_refused_call_in_a_row_falls_back(self, bench, level):
        world = World()
        wrong = calls(("deploy", {}))
        executor = scripted(wrong, wrong, calls(("run", {"command": "make test"})))
        engine = await bench.engine(running(world), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        result = await result_of(engine, run.id)
        assert result.fallback_reason is FallbackReason.SCHEMA_VIOLATION
        assert (world.ran, len(executor.calls), run.status) == (["make test"], 2, Status.SUCCEEDED)


class TestDoingNothing:
    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_claim_to_have_acted_is_not_believed(self, bench, level):
        """An agent that says "12 passed" without running anything: told once, then code does the step."""
        world = World()
        executor = scripted({"output": {"exit_code": 0, "stdout": "12 passed"}, "repeat": True})
        engine = await bench.engine(running(world), dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (world.ran, run.data["exit_code"]) == (["make test"], 1)
        reason = (await result_of(engine, run.id)).fallback_reason
        if level == "collaborator":
            assert reason is FallbackReason.VALIDATION_FAILURE
        else:
            assert reason is FallbackReason.SCHEMA_VIOLATION
            assert "nothing was done" in executor.calls[1].prompt

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_code_says_from_what_was_looked_up_whether_nothing_is_to_be_done(self, bench, level):
        def nothing(inputs, lookups):
            return {"exit_code": 0, "stdout": "up to date"} if ("read", {}, "old") in lookups else None

        claim = {"output": {"exit_code": 7, "stdout": "I looked"}}
        for replies, ran in (([calls(("read", {})), claim], []), ([claim, claim], ["make test"])):
            world = World()
            flow = running(world, side=AgentSide(rounds=1, may_abstain=nothing))
            engine = await bench.engine(flow, dispatch=settings(scripted(*replies), agent(level)))
            run = await engine.run("flow")
            assert world.ran == ran
            assert run.data["stdout"] == ("make test in ." if ran else "up to date")


class TestValidators:
    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("always", [False, True])
    async def test_a_validator_may_be_part_of_the_contract(self, bench, level, always):
        """Asked at every level, round by round; else only where the agent is least trusted."""
        asked = []

        def harmless(inputs, proposal):
            asked.append((proposal.round, proposal.final, len(proposal.effects), len(proposal.acts)))
            return all(effect.args["command"] != "rm" for effect in proposal.effects)

        side = AgentSide(rounds=1, validated=always)
        for command in ("make test", "rm"):
            asked.clear()
            world = World()
            flow = running(world, side=side, validator=harmless)
            executor = scripted(calls(("run", {"command": command})))
            engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
            await engine.run("flow")
            judged = always or level == "collaborator"
            assert world.ran == (["make test"] if judged else [command])
            if judged and command == "make test":
                assert asked == [(1, False, 1, 0), (1, True, 0, 1)]
            assert bool(asked) is judged


class TestRounds:
    async def test_it_acts_looks_at_what_came_of_it_and_acts_again(self, bench):
        world = World()
        executor = scripted(
            calls(("read", {})), calls(("write", {"text": "new"})), calls(("read", {})),
            calls(("run", {"command": "make"})), {"output": {"exit_code": 77, "stdout": "all is well"}},
        )  # fmt: skip
        flow = running(world, side=AgentSide(rounds=5))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert world.ran == ["write new", "make"]
        assert run.data == {"exit_code": 2, "stdout": "make in ."}
        assert executor.calls[3].prompt.count("\nnew") == 1

    async def test_reading_after_writing_in_one_reply_shows_the_new_text(self, bench):
        world = World()
        executor = scripted(
            calls(("read", {}), ("write", {"text": "fresh"}), ("read", {})),
            calls(("run", {"command": "make"})), {"output": {}},
        )  # fmt: skip
        flow = running(world, side=AgentSide(rounds=3))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        await engine.run("flow")
        results = executor.calls[1].prompt.split("RESULTS")[1]
        assert results.index("old") < results.index("fresh")
        assert results.count("fresh") == 2

    async def test_the_same_command_in_two_rounds_and_twice_in_a_reply_runs_each_time(self, bench):
        world = World()
        test = ("run", {"command": "make test"})
        executor = scripted(calls(test), calls(test, test), {"output": {}})
        flow = running(world, side=AgentSide(rounds=5))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert world.ran == ["make test"] * 3
        assert run.data["exit_code"] == 3

    async def test_a_step_visited_again_runs_its_command_again(self, bench):
        """A later visit is another action."""
        world = World()
        flow = flow_of(
            {"work": ["check"], "check": ["work", "done"]},
            {
                "work": Step(
                    "work", _runs, INTENT, effects=("run",), output_schema=Ran, inputs=(), into="last"
                ),
                "check": Step("check", lambda ctx: "work" if len(world.ran) < 3 else "done"),
            },
            tools=world.tools(),
        )
        executor = scripted({**calls(("run", {"command": "make test"})), "repeat": True})
        engine = await bench.engine(flow, dispatch=settings(executor, agent("consultant")))
        run = await engine.run("flow")
        assert world.ran == ["make test"] * 3
        assert run.data["last"]["exit_code"] == 3

    async def test_an_effect_that_fails_is_told_while_it_may_act_again(self, bench):
        world = World(fails=("bad",))
        executor = scripted(
            calls(("run", {"command": "bad"}), ("run", {"command": "worse"})),
            calls(("run", {"command": "good"})), {"output": {}},
        )  # fmt: skip
        flow = running(world, side=AgentSide(rounds=3))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert (world.ran, run.data["stdout"]) == (["good"], "good in .")
        assert '"status": "failed"' in executor.calls[1].prompt
        assert '"status": "skipped"' in executor.calls[1].prompt

    async def test_more_rounds_than_allowed_are_refused(self, bench):
        world = World()
        executor = scripted(
            calls(("write", {"text": "a"})), calls(("write", {"text": "b"})),
            {"output": {"exit_code": 0, "stdout": ""}},
        )  # fmt: skip
        engine = await bench.engine(running(world), dispatch=settings(executor, agent("approver")))
        await engine.run("flow")
        assert world.ran == ["write a"]
        assert "too_many_rounds" in executor.calls[2].prompt


class TestFallback:
    async def test_after_effects_that_code_makes_too_code_does_the_rest(self, bench):
        """World, output and end are those of the run without an agent, in either style of handler."""

        async def proposing(ctx):
            ctx.propose("run", command="one")
            ctx.propose("run", command="two")
            done = ctx.propose("run", command="three")
            return {"exit_code": done.exit_code, "stdout": done.stdout}

        async def performing(ctx):
            await ctx.perform("run", command="one")
            await ctx.perform("run", command="two")
            done = await ctx.perform("run", command="three")
            return {"exit_code": done["exit_code"], "stdout": done["stdout"]}

        for handler in (proposing, performing):
            for level in LEVELS:
                world = World()
                executor = scripted(
                    calls(("run", {"command": "one"})), calls(("run", {"command": "two"})),
                    {"error": "permanent"},
                )  # fmt: skip
                flow = running(world, handler, side=AgentSide(rounds=5))
                engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
                run = await engine.run("flow")
                assert world.ran == ["one", "two", "three"], (handler.__name__, level)
                assert run.data == {"exit_code": 3, "stdout": "three in ."}
                assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.EXCEPTION

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    @pytest.mark.parametrize("answer", ["code", "fail"])
    async def test_after_an_effect_that_code_would_not_make_a_person_decides(self, bench, level, answer):
        world = World()
        executor = scripted(calls(("run", {"command": "rm"})), {"error": "permanent"}, model_id="sloppy")
        flow = running(world, side=AgentSide(rounds=5))
        engine = await bench.engine(flow, dispatch=settings(executor, agent(level)))
        run = await engine.run("flow")
        assert (run.status, world.ran) == (Status.WAITING, ["rm"])
        assert run.holds["diverged"].question.endswith(" Accept it, go on by code from here or fail?")
        assert run.holds["diverged"].about["done"] == [{"tool": "run", "args": {"command": "rm", "cwd": "."}}]
        await engine.release(run.id, answer, hold=run.token("diverged"))
        run = await engine.finish(run.id)
        (figures,) = agreement([(run.id, await journal(engine, run.id))])
        assert (figures.series.model_id, figures.unusable) == ("sloppy", {"outage": 1})
        if answer == "code":
            assert (run.status, world.ran) == (Status.SUCCEEDED, ["rm", "make test"])
            assert run.data["stdout"] == "make test in ."
        else:
            assert (run.status, world.ran) == (Status.FAILED, ["rm"])
        assert len(executor.calls) == 2

    async def test_an_effect_that_failed_is_tried_afresh_by_the_handler(self, bench):
        """An agent's try at what nobody can have is no reason for the handler to give up early."""
        world = World(fails=("make test",))
        executor = scripted(calls(("run", {"command": "make test"})))
        engine = await bench.engine(running(world), dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        plain = await (await bench.engine(running(world))).run("flow")
        assert (run.status, run.data) == (plain.status, plain.data)

    @pytest.mark.parametrize("top", [False, True])
    async def test_the_handlers_own_failed_effect_stays_failed(self, bench, top):
        """Called again from its top, it is told of it again, and does not come to it afresh."""
        world = World(fails=("bad",))

        async def work(ctx):
            with contextlib.suppress(ToolError):
                await ctx.perform("run", command="bad")
            return await ctx.perform("run", command="good")

        executor = scripted({"output": {"nonsense": 1}, "repeat": True})
        with from_the_top() if top else contextlib.nullcontext():
            engine = await bench.engine(
                running(world, work), dispatch=settings(executor, agent("consultant"))
            )
            run = await engine.run("flow")
        assert (run.status, world.ran) == (Status.SUCCEEDED, ["good"])

    async def test_once_the_handler_has_acted_no_agent_is_asked_in_its_place(self, bench):
        """The decision to fall back is journaled with the handler's first effect."""
        world, tries = World(), []

        async def work(ctx):
            await ctx.perform("run", command="one")
            tries.append(1)
            if len(tries) == 1:
                raise Transient("not now")
            return await ctx.perform("run", command="two")

        class Waking(ScriptedStepExecutor):
            def available(self) -> Availability:
                return Availability(bool(tries), "it is asleep")

        executor = Waking([{**calls(("run", {"command": "other"})), "repeat": True}])
        flow = running(world, work, retry=RetryPolicy(3, 0, 0))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("approver")))
        run = await engine.run("flow")
        assert (run.status, world.ran, executor.calls) == (Status.SUCCEEDED, ["one", "two"], [])
        assert (await result_of(engine, run.id)).fallback_reason is FallbackReason.NO_EXECUTOR


async def _runs(ctx):
    done = ctx.propose("run", command="make test")
    return {"exit_code": done.exit_code, "stdout": done.stdout}


class TestCommits:
    @pytest.mark.parametrize("level", LEVELS)
    async def test_one_query_and_one_effect_take_three_commits(self, bench, level):
        world = World()
        executor = scripted(calls(("read", {})), calls(("run", {"command": "make test"})))
        engine = await bench.engine(running(world), dispatch=settings(executor, agent(level)))
        commits = []
        append = engine.store.append

        async def counting(commit):
            commits.append([entry.kind for entry in commit.entries])
            return await append(commit)

        engine.store.append = counting
        run = await engine.run("flow")
        visit = [kinds for kinds in commits if "started" not in kinds]
        assert len(visit) <= 3, visit
        assert (await kinds(engine, run.id)).count("moved") == 1

    @pytest.mark.parametrize("agrees", [True, False])
    async def test_a_handler_run_in_advance_is_not_run_again_for_the_comparison(self, bench, agrees):
        """It pays for an answer, once, and what it says holds whether the agent agrees or not."""
        paid: list[int] = []

        async def work(ctx):
            command = await ctx.once("which", lambda: paid.append(1) or "make test")
            done = ctx.propose("run", command=command)
            return {"exit_code": done.exit_code, "stdout": done.stdout}

        world = World()
        command = "make test" if agrees else "rm"
        executor = scripted(calls(("read", {})), calls(("run", {"command": command})))
        engine = await bench.engine(running(world, work), dispatch=settings(executor, agent()))
        run = await engine.run("flow")
        assert (world.ran, run.data["stdout"], paid) == (["make test"], "make test in .", [1])

    async def test_an_answer_without_effects_takes_one_commit(self, bench):
        world = World()
        executor = scripted({"output": {"exit_code": 0, "stdout": "nothing to do"}})
        flow = running(world, side=AgentSide(rounds=1, may_abstain=True))
        engine = await bench.engine(flow, dispatch=settings(executor, agent("consultant")))
        run = await engine.run("flow")
        entries = await journal(engine, run.id)
        assert [entry.kind for entry in entries] == ["started", "recorded", "moved"]
        assert run.data["stdout"] == "nothing to do"


class TestQueriesThatFail:
    @pytest.mark.parametrize(
        "failure", [ToolError("timeout", "no answer", transient=True), Transient("no answer")]
    )
    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_failed_query_may_be_asked_again(self, bench, level, failure):
        """It is no result to be used: the register may answer a moment later."""
        answers = [failure, {"status": "valid"}]

        def look() -> Any:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        async def work(ctx):
            return {"kind": (await ctx.query("look"))["status"]}

        step = Step(
            "work", work, INTENT, queries=("look",), effects=(), inputs=(), retry=RetryPolicy(3, 0, 0)
        )
        ask = calls(("look", {}))
        executor = scripted(ask, ask, {"output": {"kind": "valid"}})
        engine = await bench.engine(
            single(step, tools=[Tool("look", look, "query")]), dispatch=settings(executor, agent(level))
        )
        run = await engine.run("flow")
        assert run.data == {"kind": "valid"}
        assert "already" not in executor.calls[2].prompt
        assert (await result_of(engine, run.id)).mode_used.value == "agent"
