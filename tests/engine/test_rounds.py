"""Rounds: a step acts, looks at what came of it, and acts again, in one visit."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import nullcontext

import pytest

from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import NOT_DONE, Tool, ToolError
from detent.kernel.entries import Entry, Noted, Proposed, Started
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.kernel.status import Status
from detent.testing.rounds import from_the_top
from tests.engine import answers
from tests.engine.conftest import flow_of, journal, kinds, one_step

NO_WAIT = RetryPolicy(3, 0, 0)


class Repo:
    """A small world: files and tags, and every act on them in order."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.tags: list[str] = []
        self.acts: list[str] = []

    def tools(self) -> list[Tool]:
        async def write(path: str, text: str) -> dict:
            self.acts.append(f"write {path}")
            self.files[path] = text
            return {"bytes": len(text)}

        async def read(path: str) -> str:
            return self.files.get(path, "")

        async def tag(name: str) -> dict:
            self.acts.append(f"tag {name}")
            self.tags.append(name)
            return {"tag": name, "number": len(self.tags)}

        async def exists(name: str) -> bool:
            return name in self.tags

        async def push(name: str) -> dict:
            self.acts.append(f"push {name}")
            return {"pushed": name}

        async def command(line: str) -> dict:
            self.acts.append(line)
            return {"line": line, "run": self.acts.count(line)}

        return [
            Tool("write", write), Tool("tag", tag), Tool("push", push), Tool("command", command),
            Tool("read", read, kind="query"), Tool("exists", exists, kind="query"),
        ]  # fmt: skip


@pytest.fixture
def repo() -> Repo:
    return Repo()


@pytest.fixture(autouse=True, params=["kept", "from the top"])
def passes(request):
    """Each test with the step kept in memory, and with one called again from its top after every effect."""
    with from_the_top() if request.param == "from the top" else nullcontext():
        yield request.param


async def test_a_receipt_comes_back_and_the_step_goes_on_with_it(bench, repo):
    async def work(ctx):
        first = await ctx.perform("command", line="make build")
        second = await ctx.perform("command", line=f"make test {first['run']}")
        return {"first": first, "second": second}

    engine = await bench.engine(one_step(work, tools=repo.tools()))
    run = await engine.run("flow")
    assert run.status is Status.SUCCEEDED
    assert repo.acts == ["make build", "make test 1"]
    assert run.data["second"] == {"line": "make test 1", "run": 1}
    assert await kinds(engine, run.id) == [
        "started", *["proposed", "effect_begun", "effect_done"] * 2, "moved",
    ]  # fmt: skip
    proposals = [entry.body for entry in await journal(engine, run.id) if isinstance(entry.body, Proposed)]
    assert [(body.round, body.final) for body in proposals] == [(1, False), (2, False)]


async def test_each_round_with_one_effect_is_two_commits_and_the_move_one(bench, repo):
    async def work(ctx):
        for number in range(3):
            await ctx.perform("command", line=str(number))

    engine = await bench.engine(one_step(work, tools=repo.tools()))
    commits = 0
    append = engine.store.append

    async def counted(*args, **options):
        nonlocal commits
        commits += 1
        return await append(*args, **options)

    engine.store.append = counted
    await engine.run("flow")
    assert commits == 2 * 3 + 1


async def test_the_same_command_asked_for_again_runs_again(bench, repo):
    """In one visit, and in a later one."""

    async def work(ctx):
        receipts = [await ctx.perform("command", line="make test") for _ in range(2)]
        return Outcome(
            next="work" if ctx.visit < 3 else "done", append={"runs": [r["run"] for r in receipts]}
        )

    engine = await bench.engine(flow_of({"work": ["work", "done"]}, {"work": work}, tools=repo.tools()))
    run = await engine.run("flow")
    assert repo.acts == ["make test"] * 6
    assert run.data["runs"] == [1, 2, 3, 4, 5, 6]


async def test_an_effect_proposed_in_three_visits_is_performed_three_times(bench, repo):
    def work(ctx):
        receipt = ctx.propose("command", line="make test")
        return Outcome(next="work" if ctx.visit < 3 else "done", append={"runs": [receipt.run]})

    engine = await bench.engine(flow_of({"work": ["work", "done"]}, {"work": work}, tools=repo.tools()))
    run = await engine.run("flow")
    assert repo.acts == ["make test"] * 3
    assert run.data["runs"] == [1, 2, 3]


async def test_rounds_may_end_in_an_outcome_with_effects(bench, repo):
    async def work(ctx):
        await ctx.perform("command", line="make test")
        again = ctx.propose("command", line="make test")
        return Outcome(effects=[Effect("tag", {"name": "v1"})], set={"run": again.run})

    engine = await bench.engine(one_step(work, tools=repo.tools()))
    run = await engine.run("flow")
    assert repo.acts == ["make test", "make test", "tag v1"]
    assert run.data["run"] == 2


async def test_a_read_after_a_write_shows_the_new_text(bench, repo):
    seen = []

    async def work(ctx):
        before = await ctx.query("read", path="a")
        await ctx.perform("write", path="a", text="new")
        after = await ctx.query("read", path="a")
        await ctx.perform("write", path="a", text="newer")
        seen.append((before, after, await ctx.query("read", path="a")))

    await (await bench.engine(one_step(work, tools=repo.tools()))).run("flow")
    assert seen == [("", "new", "newer")]


async def test_a_step_that_looks_before_it_acts_and_acts_twice_does_both(bench, repo):
    async def work(ctx):
        if not await ctx.query("exists", name="v1"):
            await ctx.perform("tag", name="v1")
            await ctx.perform("push", name="v1")

    await (await bench.engine(one_step(work, tools=repo.tools()))).run("flow")
    assert repo.acts == ["tag v1", "push v1"]


async def test_an_answer_that_is_long_or_private_survives_a_round(bench, repo):
    calls = Counter()

    async def long() -> str:
        calls["long"] += 1
        return "x" * 50_000 + str(calls["long"])

    async def private() -> dict:
        calls["private"] += 1
        return {"name": "Ada", "n": calls["private"]}

    tools = [
        *repo.tools(),
        Tool("long", long, kind="query"),
        Tool("private", private, kind="query", private=True),
    ]
    seen = []

    async def work(ctx):
        found = (await ctx.query("long"))[-1], await ctx.query("private")
        await ctx.perform("tag", name="v1")
        seen.append(found)

    engine = await bench.engine(one_step(work, tools=tools))
    run = await engine.run("flow")
    assert seen == [("1", {"name": "Ada", "n": 1})]
    assert "Ada" not in str(await journal(engine, run.id))


async def test_a_query_that_failed_fails_again_in_the_same_way(bench, repo):
    calls = Counter()

    async def flaky() -> str:
        calls["flaky"] += 1
        if calls["flaky"] == 1:
            raise ToolError("gone", "no such page")
        return "there"

    async def work(ctx):
        try:
            await ctx.query("flaky")
        except ToolError as error:
            await ctx.perform("command", line=f"without {error.code}")
            await ctx.perform("command", line="and on")

    tools = [*repo.tools(), Tool("flaky", flaky, kind="query")]
    run = await (await bench.engine(one_step(work, tools=tools))).run("flow")
    assert run.status is Status.SUCCEEDED
    assert repo.acts == ["without gone", "and on"]


async def test_an_effect_that_fails_for_good_is_raised_in_the_step(bench, repo):
    async def refuse(name: str) -> None:
        repo.acts.append("refused")
        raise ToolError("denied", f"{name} is protected")

    async def work(ctx):
        try:
            await ctx.perform("refuse", name="main")
        except ToolError as error:
            done = await ctx.perform("command", line="ask for a review")
            return {"why": error.code, "message": error.message, "done": done["run"]}

    engine = await bench.engine(one_step(work, tools=[*repo.tools(), Tool("refuse", refuse)]))
    run = await engine.run("flow")
    assert run.data == {"why": "denied", "message": "main is protected", "done": 1}
    assert repo.acts == ["refused", "ask for a review"]


async def test_a_transient_failure_is_tried_again_and_the_step_goes_on(bench, repo):
    left = [ToolError("busy", transient=True), ToolError("busy", transient=True)]

    async def slow() -> str:
        if left:
            raise left.pop()
        return "done"

    async def work(ctx):
        return {"got": await ctx.perform("slow"), "then": (await ctx.perform("command", line="x"))["run"]}

    engine = await bench.engine(one_step(work, tools=[*repo.tools(), Tool("slow", slow, retry=NO_WAIT)]))
    assert (await engine.run("flow")).data == {"got": "done", "then": 1}


async def test_effects_asked_for_side_by_side_are_performed_one_at_a_time(bench, repo):
    async def work(ctx):
        both = await asyncio.gather(ctx.perform("command", line="a"), ctx.perform("command", line="b"))
        return {"lines": [receipt["line"] for receipt in both]}

    engine = await bench.engine(one_step(work, tools=repo.tools()))
    run = await engine.run("flow")
    assert run.data == {"lines": ["a", "b"]}
    proposals = [entry.body for entry in await journal(engine, run.id) if isinstance(entry.body, Proposed)]
    assert [[item["args"]["line"] for item in body.effects] for body in proposals] == [["a"], ["b"]]


async def test_a_task_group_works_as_well(bench, repo):
    async def work(ctx):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.perform("command", line=line)) for line in "ab"]
        return {"lines": [task.result()["line"] for task in tasks]}

    run = await (await bench.engine(one_step(work, tools=repo.tools()))).run("flow")
    assert run.data == {"lines": ["a", "b"]}
    assert sorted(repo.acts) == ["a", "b"]


async def test_a_step_that_swallows_everything_still_acts_before_it_goes_on(bench, repo):
    async def work(ctx):
        try:
            receipt = await ctx.perform("command", line="a")
        except BaseException:
            receipt = {"run": "swallowed"}
        return {"run": receipt["run"]}

    run = await (await bench.engine(one_step(work, tools=repo.tools()))).run("flow")
    assert run.data == {"run": 1}
    assert repo.acts == ["a"]


async def test_a_step_that_takes_another_way_the_second_time_is_stopped(bench, repo):
    """It would repeat its effects for ever: the time is part of the arguments."""
    numbers = itertools.count()

    async def work(ctx):
        await ctx.perform("command", line=f"at {next(numbers)}")
        await ctx.perform("command", line="then")

    with from_the_top():
        run = await (await bench.engine(one_step(work, also=("failed",), tools=repo.tools()))).run("flow")
    assert run.status is Status.FAILED
    assert repo.acts == ["at 0"]
    assert "ctx.once" in run.error


async def test_a_step_that_ends_before_it_comes_to_what_it_did_is_stopped(bench, repo):
    numbers = itertools.count()

    async def work(ctx):
        if next(numbers) == 0:
            await ctx.perform("command", line="a")
        return {"ended": True}

    with from_the_top():
        run = await (await bench.engine(one_step(work, also=("failed",), tools=repo.tools()))).run("flow")
    assert run.status is Status.FAILED
    assert "ended" not in run.data


async def test_messages_are_sent_once_whatever_the_number_of_rounds(bench, repo):
    async def work(ctx):
        ctx.emit("one")
        await ctx.perform("command", line="a")
        ctx.emit("two")
        await ctx.perform("command", line="b")
        ctx.emit("three")

    engine = await bench.engine(one_step(work, tools=repo.tools()))
    run = await engine.run("flow")
    messages = [entry.body for entry in await journal(engine, run.id) if isinstance(entry.body, Noted)]
    assert [body.body["message"] for body in messages] == ["one", "two", "three"]


async def test_a_step_may_not_perform_what_it_does_not_declare(bench, repo):
    async def work(ctx):
        await ctx.perform("push", name="main")

    flow = one_step(Step("work", work, effects=("tag",)), also=("failed",), tools=repo.tools())
    run = await (await bench.engine(flow)).run("flow")
    assert run.status is Status.FAILED
    assert "may not perform 'push'" in run.error
    assert repo.acts == []


async def test_a_failed_attempt_is_tried_again_with_the_receipts_there_are(bench, repo):
    tries = itertools.count()

    async def work(ctx):
        receipt = await ctx.perform("command", line="a")
        if next(tries) == 0:
            raise ConnectionError("lost")
        return {"run": receipt["run"]}

    flow = one_step(Step("work", work, retry=NO_WAIT), tools=repo.tools())
    assert (await (await bench.engine(flow)).run("flow")).data == {"run": 1}
    assert repo.acts == ["a"]


async def test_a_reopened_run_performs_nothing_twice(bench, repo):
    broken = [True]

    async def work(ctx):
        receipt = await ctx.perform("command", line="a")
        if broken:
            raise ValueError("not today")
        return {"run": receipt["run"], "then": (await ctx.perform("command", line="b"))["run"]}

    engine = await bench.engine(one_step(work, also=("failed",), tools=repo.tools()))
    run_id = (await engine.run("flow")).id
    broken.clear()
    await engine.reopen(run_id)
    assert (await engine.finish(run_id)).data == {"run": 1, "then": 1}
    assert repo.acts == ["a", "b"]


async def test_an_effect_in_doubt_waits_for_a_person_and_the_step_goes_on_with_what_they_say(bench, repo):
    async def lost() -> None:
        raise ConnectionError("no answer")

    async def work(ctx):
        return {"got": await ctx.perform("lost"), "then": (await ctx.perform("command", line="x"))["run"]}

    engine = await bench.engine(one_step(work, tools=[*repo.tools(), Tool("lost", lost)]))
    run = await engine.finish(await engine.start("flow"))
    assert run.status is Status.WAITING
    await answers.resolve(engine, run.id, "happened", receipt={"id": 7})
    assert (await engine.finish(run.id)).data == {"got": {"id": 7}, "then": 1}


async def test_a_saved_fold_holds_everything_of_a_visit_of_rounds(bench, repo):
    async def work(ctx):
        await ctx.perform("command", line="a")
        with pytest.raises(ToolError):
            await ctx.perform("refuse")
        await ctx.query("exists", name="v1")
        await ctx.perform("command", line="a")

    async def refuse() -> None:
        raise ToolError("denied")

    engine = await bench.engine(one_step(work, tools=[*repo.tools(), Tool("refuse", refuse)]))
    run_id = (await engine.run("flow")).id
    entries = await journal(engine, run_id)
    for cut in range(1, len(entries)):
        whole = Run.fold(run_id, entries[:cut])
        saved = Run.from_plain(whole.to_plain())
        for entry in entries[cut:]:
            whole.apply(entry)
            saved.apply(entry)
        assert saved.to_plain() == whole.to_plain()


def test_a_round_that_does_not_follow_the_last_one_is_refused():
    run = Run("r")
    run.apply(Entry(1, 0.0, 1, Started("flow", "work", "flow", 1, "x")))
    with pytest.raises(ValueError, match="round 2"):
        run.apply(
            Entry(
                2, 0.0, 1, Proposed("work", {}, [{"key": "k", "tool": "t", "args": {}}], round=2, final=False)
            )
        )


class TestProbes:
    """The second of two equal effects is never taken for the first."""

    @staticmethod
    def flow(acts: list[str], **options):
        async def act(call, line: str) -> dict:
            acts.append(call.idempotency_key)
            if len(acts) == 2:
                raise ConnectionError("no answer")
            return {"n": len(acts)}

        async def work(ctx):
            return {"runs": [(await ctx.perform("act", line="a"))["n"] for _ in range(2)]}

        return one_step(work, tools=[Tool("act", act, wants_call=True, retry=NO_WAIT, **options)])

    async def test_a_probe_by_arguments_is_not_asked_about_it(self, bench):
        acts, probed = [], []

        async def probe(line: str) -> dict:
            probed.append(line)
            return {"n": 1}

        engine = await bench.engine(self.flow(acts, probe=probe))
        run = await engine.finish(await engine.start("flow"))
        assert run.status is Status.WAITING
        assert probed == []

    async def test_a_probe_by_key_is(self, bench):
        acts = []

        async def probe(call, line: str):
            return {"n": 7} if call.idempotency_key in acts else NOT_DONE

        engine = await bench.engine(self.flow(acts, probe=probe, probe_wants_call=True))
        assert (await engine.run("flow")).data == {"runs": [1, 7]}
        assert len(set(acts)) == 2


class TestNaturalCode:
    """What people write around an effect: clean-up, retries, broad excepts, tasks."""

    async def run(self, bench, repo, work, **options):
        engine = await bench.engine(one_step(work, also=("failed",), tools=repo.tools(), **options))
        return await engine.run("flow")

    async def test_clean_up_comes_after_the_work(self, bench, repo):
        async def work(ctx):
            try:
                await ctx.perform("command", line="a")
                await ctx.perform("command", line="b")
            finally:
                await ctx.perform("command", line="clean")

        assert (await self.run(bench, repo, work)).status is Status.SUCCEEDED
        assert repo.acts == ["a", "b", "clean"]

    async def test_a_rollback_in_a_broad_except_is_for_failures(self, bench, repo):
        async def work(ctx):
            try:
                await ctx.perform("command", line="a")
                await ctx.perform("command", line="b")
            except BaseException:
                await ctx.perform("command", line="roll back")
                return {"how": "rolled back"}
            return {"how": "done"}

        assert (await self.run(bench, repo, work)).data == {"how": "done"}
        assert repo.acts == ["a", "b"]

    async def test_a_flag_set_behind_an_effect_is_set(self, bench, repo):
        async def work(ctx):
            done = False
            try:
                await ctx.perform("command", line="a")
                done = True
            finally:
                if not done:
                    await ctx.perform("command", line="undo")

        assert (await self.run(bench, repo, work)).status is Status.SUCCEEDED
        assert repo.acts == ["a"]

    async def test_a_retry_loop_that_catches_everything_performs_it_once(self, bench, repo):
        async def work(ctx):
            for _ in range(3):
                try:
                    return {"run": (await ctx.perform("command", line="a"))["run"]}
                except BaseException:
                    continue

        assert (await self.run(bench, repo, work)).data == {"run": 1}
        assert repo.acts == ["a"]

    @pytest.mark.parametrize("pause", [0, 0.005])
    @pytest.mark.parametrize("how", ["gather", "group"])
    async def test_chains_of_effects_side_by_side(self, bench, repo, how, pause):
        async def chain(ctx, letter):
            lines = []
            for number in range(3):
                await asyncio.sleep(pause if letter == "q" else 0)
                lines.append((await ctx.perform("command", line=f"{letter}{number}"))["line"])
            return lines

        async def work(ctx):
            if how == "gather":
                return {"chains": await asyncio.gather(chain(ctx, "p"), chain(ctx, "q"))}
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(chain(ctx, letter)) for letter in "pq"]
            return {"chains": [task.result() for task in tasks]}

        run = await self.run(bench, repo, work)
        assert run.data == {"chains": [["p0", "p1", "p2"], ["q0", "q1", "q2"]]}
        assert sorted(repo.acts) == ["p0", "p1", "p2", "q0", "q1", "q2"]

    async def test_a_task_left_behind_performs_nothing_after_its_step(self, bench, repo):
        late = []

        async def work(ctx):
            async def linger():
                await asyncio.sleep(0.02)
                await ctx.perform("command", line="late")

            late.append(asyncio.ensure_future(linger()))
            await ctx.perform("command", line="a")

        assert (await self.run(bench, repo, work)).status is Status.SUCCEEDED
        await asyncio.gather(*late, return_exceptions=True)
        assert repo.acts == ["a"]

    async def test_an_effect_that_nobody_waits_for_is_settled_before_the_step_ends(self, bench, repo):
        async def work(ctx):
            task = asyncio.ensure_future(ctx.perform("command", line="a"))
            await asyncio.sleep(0)
            return {"left": not task.done()}

        assert (await self.run(bench, repo, work)).status is Status.SUCCEEDED
        assert repo.acts == ["a"]

    async def test_a_step_that_does_not_wait_for_an_effect_in_doubt_goes_no_further(self, bench, repo):
        tasks = []

        async def lost() -> None:
            raise ConnectionError("no answer")

        async def work(ctx):
            tasks.append(asyncio.ensure_future(ctx.perform("lost")))
            await asyncio.sleep(0)
            return {"ended": True}

        engine = await bench.engine(one_step(work, tools=[Tool("lost", lost)]))
        run = await engine.finish(await engine.start("flow"))
        assert run.status is Status.WAITING
        assert "ended" not in run.data

    async def test_a_receipt_that_is_not_known_yet_is_refused(self, bench, repo):
        async def work(ctx):
            later = ctx.propose("tag", name="v1")
            await ctx.perform("command", line=later.tag)

        run = await self.run(bench, repo, work)
        assert run.status is Status.FAILED
        assert "only proposed" in run.error
        assert repo.acts == []

    async def test_the_time_of_an_effect_does_not_count_against_the_step(self, bench, repo):
        async def slow() -> str:
            await asyncio.sleep(0.3)
            return "done"

        async def work(ctx):
            return {"got": await ctx.perform("slow")}

        flow = one_step(Step("work", work, timeout=0.2), tools=[Tool("slow", slow)])
        assert (await (await bench.engine(flow)).run("flow")).data == {"got": "done"}

    async def test_a_step_that_runs_out_of_time_beside_an_effect_leaves_it_settled(self, bench, repo):
        tries, tasks = itertools.count(), []

        async def slow() -> str:
            repo.acts.append("slow")
            await asyncio.sleep(0.05)
            return "done"

        async def work(ctx):
            if next(tries) == 0:
                tasks.append(asyncio.ensure_future(ctx.perform("slow")))
                await asyncio.sleep(0.01)
                raise TimeoutError("too slow")
            return {"got": await ctx.perform("slow")}

        flow = one_step(Step("work", work, retry=NO_WAIT), tools=[Tool("slow", slow)])
        assert (await (await bench.engine(flow)).run("flow")).data == {"got": "done"}
        assert repo.acts == ["slow"]

    async def test_a_run_with_a_refusal_that_was_handled_can_be_reopened(self, bench, repo):
        broken = [True]

        async def api() -> None:
            repo.acts.append("api")
            raise ToolError("down", "not today")

        async def work(ctx):
            try:
                await ctx.perform("api")
            except ToolError:
                await ctx.perform("command", line="fallback")
            if broken:
                raise ValueError("a bug")
            return {"ok": True}

        flow = one_step(work, also=("failed",), tools=[*repo.tools(), Tool("api", api)])
        engine = await bench.engine(flow)
        run_id = (await engine.run("flow")).id
        broken.clear()
        await engine.reopen(run_id)
        assert (await engine.finish(run_id)).data == {"ok": True}
        assert repo.acts == ["api", "fallback"]

    async def test_an_effect_that_failed_last_is_tried_again_when_the_run_is_reopened(self, bench, repo):
        down = [True]

        async def api() -> str:
            repo.acts.append("api")
            if down:
                raise ToolError("down")
            return "up"

        async def work(ctx):
            await ctx.perform("command", line="a")
            return {"got": await ctx.perform("api")}

        flow = one_step(work, also=("failed",), tools=[*repo.tools(), Tool("api", api)])
        engine = await bench.engine(flow)
        run_id = (await engine.run("flow")).id
        down.clear()
        await engine.reopen(run_id)
        assert (await engine.finish(run_id)).data == {"got": "up"}
        assert repo.acts == ["a", "api", "api"]

    async def test_cancelled_between_rounds_it_stops_there(self, bench, repo):
        entered = asyncio.Event()

        async def slow() -> str:
            entered.set()
            await asyncio.sleep(0.05)
            repo.acts.append("slow")
            return "done"

        async def work(ctx):
            await ctx.perform("slow")
            await ctx.perform("command", line="never")

        machine = {"work": ["done", "back"], "back": ["failed"]}
        flow = flow_of(machine, {"work": work, "back": lambda ctx: "failed"}, undoing="back",
                       tools=[*repo.tools(), Tool("slow", slow)])  # fmt: skip
        engine = await bench.engine(flow)
        run_id = await engine.start("flow")
        await entered.wait()
        await engine.cancel(run_id, reason="enough", by="ada", undo=True)
        await engine.finish(run_id)
        assert repo.acts == ["slow"]


async def test_each_round_carries_the_queries_it_rests_on_and_the_move_the_rest(bench, repo):
    async def work(ctx):
        await ctx.query("exists", name="before")
        await ctx.perform("tag", name="v1")
        await ctx.query("exists", name="after")

    engine = await bench.engine(one_step(work, tools=repo.tools()))
    run = await engine.run("flow")
    looked = [
        [line["args"]["name"] for line in entry.body.looked]
        for entry in await journal(engine, run.id)
        if entry.kind in ("proposed", "moved")
    ]
    assert looked == [["before"], ["after"]]
