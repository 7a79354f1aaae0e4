"""Actions that run programs, and those that fetch, wait and tell."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from detent.dispatch.autonomy import StepMode
from detent.kernel.entries import Held, Noted
from detent.kernel.status import Status
from detent.testing.clock import HandClock
from tests.engine import answers
from tests.engine.conftest import until
from tests.flows.workflow.actions.agents import SENSIBLE, PromptedAgent
from tests.flows.workflow.actions.workshop import fits


class TestCommands:
    async def test_there_is_no_shell(self, shop):
        done = await shop.run("run_command", argv=["echo", "$HOME; rm -rf *", "`x`"])
        assert done.output["stdout"] == "$HOME; rm -rf * `x`\n"
        assert not (await shop.run("run_command", argv="echo hi")).ok

    async def test_a_failure_fails_the_step_and_says_where_its_words_are(self, shop):
        shop.write("x.sh", "echo secret words >&2; exit 3")
        done = await shop.run("run_command", argv=["sh", "x.sh"])
        assert "failed" in done.error
        assert "exit code 3" in str(done.entries)
        assert "secret" not in str(done.entries)
        (log,) = (shop.state / "commands").rglob("*.log")
        assert "secret words" in log.read_text()

    async def test_without_check_it_is_an_answer(self, shop):
        done = await shop.run("run_command", argv=["sh", "-c", "exit 3"], check=False)
        assert done.output["exit_code"] == 3
        done = await shop.run("run_command", argv=["sh", "-c", "kill -9 $$"], check=False)
        assert done.output["exit_code"] == -9

    async def test_a_failing_one_is_run_once_by_agents_too(self, shop):
        """D-59: the handler asks for it again when the agent's effect failed; it did run."""
        argv = ["sh", "-c", "echo x >> ran; exit 1"]
        for level in ("collaborator", "consultant", "approver"):
            agent = PromptedAgent(SENSIBLE["run_command"])
            done = await shop.run("run_command", agent=agent, autonomy=level, argv=argv)
            assert not done.ok
            assert "exit code 1" in done.error
            assert shop.read("ran") == "x\n"
            (shop.root / "ran").unlink()

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_what_an_agent_says_of_a_command_does_not_count(self, shop, level):
        """The exit code and the output are the receipt's, whatever is claimed before or after."""
        claim = {"exit_code": 0, "stdout": "12 passed", "stderr": "", "duration_ms": 1.0}

        def behaviour(asked):
            return claim if asked.results else [("shell.run", asked.some("argv", "check"))]

        argv = ["sh", "-c", "echo 3 failed; exit 1"]
        done = await shop.run(
            "run_command", agent=PromptedAgent(behaviour), autonomy=level, argv=argv, check=False
        )
        assert done.dispatch.mode_used is StepMode.AGENT
        assert (done.output["exit_code"], done.output["stdout"]) == (1, "3 failed\n")
        assert done.output == done.receipts[0]

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_an_executor_of_its_own_loop_claims_in_vain_too(self, shop, level):
        """It acts in the middle of its own work, and answers afterwards."""
        argv = ["sh", "-c", "echo 3 failed; exit 1"]
        reply = {
            "calls": [{"tool": "shell.run", "args": {"argv": argv, "check": False}}],
            "output": {"exit_code": 0, "stdout": "12 passed", "stderr": "", "duration_ms": 1.0},
        }
        done = await shop.run("run_command", agent=reply, autonomy=level, argv=argv, check=False)
        assert done.dispatch.mode_used is StepMode.AGENT
        assert (done.output["exit_code"], done.output["stdout"]) == (1, "3 failed\n")

    async def test_reading_only_is_a_query(self, shop):
        shop.write("a.txt", "a")
        done = await shop.run("run_command", argv=["cat", "a.txt"], read_only=True)
        assert (done.output["stdout"], done.performed) == ("a", [])
        assert not (await shop.run("run_command", argv=["false"], read_only=True)).ok

    async def test_time_out_ends_the_whole_group(self, shop):
        shop.write("slow.sh", "sleep 600 &\necho $! > pid\nsleep 600\n")
        done = await shop.run("run_command", argv=["sh", "slow.sh"], timeout=0.5)
        assert "timeout" in done.error
        await until(lambda: _gone(int(shop.read("pid"))))

    async def test_one_that_will_not_listen_is_killed(self, shop):
        shop.write("deaf.sh", "trap '' TERM\necho $$ > pid\nwhile :; do sleep 0.05; done\n")
        assert "timeout" in (await shop.run("run_command", argv=["sh", "deaf.sh"], timeout=0.5)).error
        await until(lambda: _gone(int(shop.read("pid"))))

    async def test_what_it_leaves_behind_is_ended_and_not_waited_for(self, shop):
        done = await shop.run("run_command", argv=["sh", "-c", "sleep 600 & echo $! > pid"])
        assert done.ok
        await until(lambda: _gone(int(shop.read("pid"))))

    async def test_much_output_is_cut_in_the_middle(self, shop):
        code = "import sys; sys.stdout.write('a' * 3_000_000 + 'END')"
        said = (await shop.run("run_command", argv=[sys.executable, "-c", code])).output["stdout"]
        assert len(said) < 210_000
        assert said.startswith("aaa")
        assert said.endswith("END")
        assert "[cut " in said

    async def test_folder_and_variables(self, shop):
        shop.write("d/x")
        done = await shop.run("run_command", argv=["sh", "-c", "pwd; echo $A"], cwd="d", env={"A": "1 2"})
        assert done.output["stdout"] == f"{shop.root / 'd'}\n1 2\n"

    async def test_secret_inputs_are_not_handed_on(self, workshops):
        shop = workshops(environ={"DETENT_INPUT_TOKEN": "hunter2"})
        assert "hunter2" not in (await shop.run("run_command", argv=["env"])).output["stdout"]

    @pytest.mark.parametrize(
        "said", [{"argv": []}, {"argv": [""]}, {"argv": ["a\0b"]}, {"argv": ["no-such-program"]},
                 {"argv": ["true"], "timeout": 0}, {"argv": ["true"], "env": {"A=B": "x"}}, {"argv": ["."]}]
    )  # fmt: skip
    async def test_what_cannot_be_run(self, shop, said):
        assert not (await shop.run("run_command", **said)).ok

    async def test_one_in_doubt_is_a_persons_to_settle(self, shop):
        """Nobody can tell afterwards whether a program has run."""
        done = await shop.crashed("run_command", "shell.run", True, "r.a", argv=["sh", "-c", "echo x >> ran"])
        assert done.run.status is Status.WAITING
        assert any(isinstance(one, Held) and one.why == "attention" for one in done.entries)
        assert shop.read("ran") == "x\n"


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Ended, but nobody here is its parent.
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split(") ")[1].startswith("Z")


def stage(name, command, fix=None):
    return {"name": name, "command": command, "fix_command": fix}


class TestChecks:
    STAGES = (
        stage("format", ["sh", "-c", "echo ok"], ["sh", "-c", "echo b > a.txt; echo n > new.txt"]),
        stage("lint", ["sh", "-c", "echo bad; test -e fixed"], ["touch", "fixed"]),
        stage("none", None),
        stage("test", ["true"]),
    )

    async def test_all_pass(self, workshops):
        shop = workshops(stages=list(self.STAGES))
        done = await shop.run("run_validation", stages=["format", "none", "test"])
        assert done.ok, done.error
        assert fits("run_validation", done.output) == []
        assert [one["status"] for one in done.output["stage_results"]] == ["passed", "skipped", "passed"]
        assert done.output["stage_results"][0]["output"] == "ok"

    async def test_after_a_failure_the_rest_are_not_run_and_the_step_fails(self, workshops):
        """D-36."""
        shop = workshops(stages=list(self.STAGES))
        done = await shop.run("run_validation", stages=["lint", "test"])
        assert not done.ok
        assert "failed: lint" in done.error

    @pytest.mark.parametrize("name", ["run_validation", "apply_fixes"])
    async def test_a_check_that_does_not_exist_fails_the_step(self, workshops, name):
        done = await workshops(stages=list(self.STAGES)).run(name, stages=["no-such"])
        assert "unknown_stage" in done.error

    async def test_nothing_run_is_no_success(self, workshops):
        shop = workshops(stages=list(self.STAGES))
        assert "nothing was validated" in (await shop.run("run_validation", stages=["none"])).error

    @pytest.mark.parametrize("under_git", [False, True])
    async def test_fixes_tell_what_they_changed_and_can_be_undone(self, workshops, under_git):
        shop = workshops(stages=list(self.STAGES))
        if under_git:
            shop.repository("a.txt", "clean.txt")
            shop.write("dirty.txt", "d")
        else:
            shop.write("a.txt", "a.txt\n")
        done = await shop.run("apply_fixes", "r.a", stages=["format", "lint", "test"])
        assert done.ok, done.error
        assert fits("apply_fixes", done.output) == []
        assert done.output == {"changed_files": ["a.txt", "fixed", "new.txt"], "applied": ["format", "lint"]}
        undone = await shop.run("restore_file", "r.b", changed_files=done.output["changed_files"])
        assert undone.output["restored"]
        assert shop.read("a.txt") == "a.txt\n"
        assert not (shop.root / "new.txt").exists()
        assert not (shop.root / "fixed").exists()

    async def test_a_file_changed_before_comes_back_as_changed(self, workshops):
        shop = workshops(stages=list(self.STAGES))
        shop.repository("a.txt")
        shop.write("a.txt", "edited by hand\n")
        done = await shop.run("apply_fixes", "r.a", stages=["format"])
        assert done.output["changed_files"] == ["a.txt", "new.txt"]
        await shop.run("restore_file", "r.b", changed_files=done.output["changed_files"])
        assert shop.read("a.txt") == "edited by hand\n"

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    @pytest.mark.parametrize("name", ["run_validation", "apply_fixes"])
    async def test_an_agent_that_goes_through_them_makes_the_same_run(self, workshops, name, level):
        plain, shop = (workshops(stages=list(self.STAGES)) for _ in range(2))
        for one in (plain, shop):
            one.write("a.txt", "a.txt\n")
        stages = ["format", "none", "test"]
        told = await plain.run(name, stages=stages)
        done = await shop.run(name, agent=PromptedAgent(SENSIBLE[name]), autonomy=level, stages=stages)
        assert done.ok, done.error
        assert done.dispatch.mode_used is StepMode.AGENT, done.dispatch
        for result in (*told.output.get("stage_results", ()), *done.output.get("stage_results", ())):
            result.pop("duration_ms")
        assert done.output == told.output
        assert done.performed == told.performed

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    async def test_an_agent_cannot_say_that_a_failed_check_passed(self, workshops, level):
        shop = workshops(stages=list(self.STAGES))
        passed = {"name": "lint", "status": "passed", "exit_code": 0, "duration_ms": 1.0, "output": ""}

        def behaviour(asked):
            if not asked.results:
                return [("validation.run", {"stage": "lint"})]
            return {"success": True, "stage_results": [passed]}

        done = await shop.run(
            "run_validation", agent=PromptedAgent(behaviour), autonomy=level, stages=["lint", "test"]
        )
        assert not done.ok
        assert "failed: lint" in done.error
        assert len(done.performed) == 1

    @pytest.mark.parametrize("level", ["consultant", "approver"])
    async def test_an_agent_may_mend_by_writing_where_it_is_trusted(self, workshops, level):
        """What it wrote is told and can be undone, whatever it says of it."""
        shop = workshops(stages=list(self.STAGES))
        shop.write("a.txt", "a.txt\n")

        def behaviour(asked):
            if not asked.results:
                return [("files.write", {"path": "a.txt", "text": "mended\n"})]
            return {"changed_files": [], "applied": ["lint"]}

        agent = PromptedAgent(behaviour)
        done = await shop.run("apply_fixes", "r.a", agent=agent, autonomy=level, stages=["lint"])
        assert done.dispatch.mode_used is StepMode.AGENT
        assert done.output == {"changed_files": ["a.txt"], "applied": []}
        assert (await shop.run("restore_file", "r.b", changed_files=["a.txt"])).output["restored"]
        assert shop.read("a.txt") == "a.txt\n"

    @pytest.mark.parametrize("name", ["run_validation", "apply_fixes"])
    async def test_an_agent_that_only_claims_is_not_believed(self, workshops, name):
        shop = workshops(stages=list(self.STAGES))
        lie = (
            {"success": True, "stage_results": []}
            if name == "run_validation"
            else {"changed_files": [], "applied": []}
        )
        done = await shop.run(name, agent={"output": lie}, stages=["format"])
        assert done.ok, done.error
        assert done.dispatch.fallback_used
        assert done.output != lie
        tool = {"run_validation": "validation.run", "apply_fixes": "validation.fix"}[name]
        assert done.performed == [(tool, "performed")]

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("name", ["run_validation", "apply_fixes"])
    async def test_one_in_doubt_is_run_again(self, workshops, name, when):
        """Nobody need be asked: a check and a fix may run twice."""
        shop = workshops(stages=list(self.STAGES))
        tool = {"run_validation": "validation.run", "apply_fixes": "validation.fix"}[name]
        done = await shop.crashed(name, tool, when == "after", "r.a", stages=["format", "test"])
        assert done.ok, done.error
        assert fits(name, done.output) == []


class TestWaiting:
    @pytest.mark.parametrize("agent", [None, {"output": {"woke_at": "now"}}])
    async def test_sleep_waits_and_says_when_it_woke(self, workshops, agent):
        """An agent cannot wait in the clock's place."""
        clock = HandClock(1_000_000.0)
        shop = workshops(clock=clock)
        running = asyncio.ensure_future(shop.run("sleep", "r", agent, seconds=60))
        await until(lambda: shop.engines)
        await _waiting(shop, "r", clock)
        await clock.turn(59)
        assert (await shop.engines[0].get("r")).status is Status.WAITING
        await clock.turn(2)
        if not running.done():
            await _end(shop, clock, running)
        done = await running
        run = await shop.engines[0].finish("r") if not done.run.status.is_end else done.run
        assert run.status is Status.SUCCEEDED
        if agent is None:
            assert run.data["output"]["woke_at"] >= "1970-01-12T13:47:40"

    async def test_a_time_that_is_past_is_not_waited_for(self, shop):
        done = await shop.run("sleep", until="2001-01-01T00:00:00Z")
        assert fits("sleep", done.output) == []
        assert (await shop.run("sleep", seconds=0)).ok

    @pytest.mark.parametrize("said", [{}, {"seconds": 1, "until": 2}, {"seconds": -1}, {"until": "soon"}])
    async def test_what_cannot_be_waited_for(self, shop, said):
        assert not (await shop.run("sleep", **said)).ok

    async def test_a_persons_answer_is_the_output(self, shop):
        done = await shop.run("ask_person", "r", question="Go?", choices=["yes", "no"])
        assert done.run.status is Status.WAITING
        (held,) = [one for one in done.entries if isinstance(one, Held)]
        assert (held.question, held.choices) == ("Go?", ["yes", "no"])
        engine = shop.engines[-1]
        await answers.release(engine, "r", "yes", by="anna")
        done = await shop.done(await engine.finish("r"))
        assert fits("ask_person", done.output) == []
        assert (done.output["answer"], done.output["by"]) == ("yes", "anna")

    async def test_an_agent_does_not_answer_for_them(self, shop):
        """At collaborator the handler asks all the same."""
        lie = {"output": {"answer": "yes", "by": "me", "at": "now"}}
        done = await shop.run("ask_person", "r", lie, question="Go?")
        assert done.run.status is Status.WAITING
        engine = shop.engines[-1]
        await answers.release(engine, "r", "no", by="anna")
        done = await shop.done(await engine.finish("r"))
        assert (done.output["answer"], done.output["by"]) == ("no", "anna")

    async def test_one_that_repeats_the_answer_given_is_accepted(self, shop):
        truth = {"output": {"answer": "no", "by": "anna", "at": "whenever"}}
        await shop.run("ask_person", "r", truth, question="Go?")
        engine = shop.engines[-1]
        await answers.release(engine, "r", "no", by="anna")
        done = await shop.done(await engine.finish("r"))
        assert done.dispatch.agent_result_accepted

    async def test_after_its_time_the_default_is_the_answer(self, workshops):
        clock = HandClock(1_000_000.0)
        shop = workshops(clock=clock)
        running = asyncio.ensure_future(shop.run("ask_person", "r", question="Go?", expires=60, default="no"))
        await until(lambda: shop.engines)
        await _waiting(shop, "r", clock)
        await clock.turn(61)
        await _end(shop, clock, running)
        run = await shop.engines[0].finish("r")
        assert run.data["output"]["answer"] == "no"

    async def test_a_default_that_is_no_choice(self, shop):
        assert not (await shop.run("ask_person", question="Go?", choices=["a"], default="b")).ok


async def _waiting(shop, run_id, clock):
    async def there():
        await clock.settle()
        try:
            return (await shop.engines[0].get(run_id)).status is Status.WAITING
        except Exception:
            return False

    await until(there)


async def _end(shop, clock, running):
    async def over():
        await clock.turn(1)
        return running.done() and (await shop.engines[0].get("r")).status.is_end

    await until(over)


class TestTelling:
    async def test_a_message_is_in_the_record(self, shop):
        done = await shop.run("log_message", message="imported 3", level="warning")
        (note,) = [one for one in done.entries if isinstance(one, Noted)]
        assert (note.body["message"], note.body["level"]) == ("imported 3", "warning")
        assert "Did you mean 'warning'?" in (await shop.run("log_message", message="x", level="warnin")).error

    @pytest.mark.parametrize("level", ["collaborator", "consultant", "approver"])
    async def test_a_message_is_in_the_record_whoever_performs_the_step(self, shop, level):
        done = await shop.run(
            "log_message", message="imported 3", agent={"output": {"logged": True}}, autonomy=level
        )
        (note,) = [one for one in done.entries if isinstance(one, Noted) and one.topic == "output"]
        assert note.body["message"] == "imported 3"

    async def test_a_web_hook_is_told_once_under_a_name_that_stays(self, workshops, sites):
        site = sites({"/hook": (204, {}, b"")})
        shop = workshops(webhook=f"{site.url}/hook")
        done = await shop.run("notify", "r", message="done", title="t", channel="webhook")
        assert done.ok, done.error
        ((method, _, headers, body),) = site.seen
        assert method == "POST"
        assert b'"message":"done"' in body
        assert headers["idempotency-key"]
        done = await shop.run("notify", "r2", message="done", title="t", channel="webhook")
        assert site.seen[1][2]["idempotency-key"] != headers["idempotency-key"]

    async def test_a_web_hook_in_doubt_is_a_persons_to_settle(self, workshops, sites):
        site = sites({"/hook": (204, {}, b"")})
        shop = workshops(webhook=f"{site.url}/hook")
        done = await shop.crashed("notify", "notify.send", True, "r", message="x", channel="webhook")
        assert done.run.status is Status.WAITING
        assert len(site.seen) == 1

    @pytest.mark.parametrize("after", [False, True])
    async def test_a_file_in_doubt_is_there_once(self, shop, after):
        done = await shop.crashed("notify", "notify.send", after, "r", message="x")
        assert done.ok, done.error
        assert len(list((shop.state / "notices").iterdir())) == 1

    async def test_one_that_refuses_and_one_that_is_not_there(self, workshops, sites):
        site = sites({"/hook": (400, {}, b"secret")})
        assert (
            "refused"
            in (
                await workshops(webhook=f"{site.url}/hook").run("notify", message="x", channel="webhook")
            ).error
        )
        assert "not_configured" in (await workshops().run("notify", message="x", channel="webhook")).error


class TestFetching:
    async def test_any_status_is_an_answer_but_a_download_wants_success(self, shop, sites):
        site = sites({})
        assert (await shop.run("http_get", url=f"{site.url}/none")).output["status"] == 404
        done = await shop.run("http_download", url=f"{site.url}/none", path="x.dat")
        assert "404" in done.error
        assert not (shop.root / "x.dat").exists()
        assert list((shop.state / "spools").iterdir()) == []

    async def test_the_size_is_bounded_while_it_comes(self, shop, sites):
        sent = []

        def endless():
            for _ in range(10_000):
                sent.append(1)
                yield b"x" * 100_000

        site = sites({"/big": lambda: (200, {}, endless())})
        done = await shop.run("http_get", url=f"{site.url}/big", max_bytes=1000)
        assert "too_large" in done.error
        assert len(sent) < 5000

    async def test_redirects_are_followed_a_few_times_and_only_on_the_web(self, shop, sites):
        site = sites({"/loop": (302, {"location": "/loop"}, b""),
                      "/file": (302, {"location": "file:///etc/passwd"}, b""),
                      "/ok": (302, {"location": "/end"}, b""), "/end": (200, {}, b"end")})  # fmt: skip
        assert "redirect" in (await shop.run("http_get", url=f"{site.url}/loop")).error
        assert "http://" in (await shop.run("http_get", url=f"{site.url}/file")).error
        assert (await shop.run("http_get", url=f"{site.url}/ok")).output["text"] == "end"

    async def test_headers_do_not_go_along_to_another_host(self, shop, sites):
        other = sites({"/end": (200, {"set-cookie": "a=b"}, b"end")})
        site = sites({"/ok": (302, {"location": f"{other.url}/end"}, b"")})
        headers = {"X-Api-Key": "hunter2", "Authorization": "Bearer x", "Accept": "text/plain"}
        done = await shop.run("http_get", url=f"{site.url}/ok", headers=headers)
        assert site.seen[0][2]["x-api-key"] == "hunter2"
        assert "x-api-key" not in other.seen[0][2]
        assert "authorization" not in other.seen[0][2]
        assert other.seen[0][2]["accept"] == "text/plain"
        assert "set-cookie" not in done.output["headers"]

    async def test_a_server_that_is_busy_is_a_passing_failure_with_its_wait(self, shop, sites):
        from detent.kernel.entries import AttemptFailed

        site = sites({"/busy": (429, {"retry-after": "7"}, b"")})
        done = await shop.run("http_get", url=f"{site.url}/busy")
        (failed,) = [one for one in done.entries if isinstance(one, AttemptFailed)]
        assert failed.transient

    async def test_nobody_there_and_nothing_in_time(self, shop, sites):
        hold = asyncio.Event()
        site = sites({"/slow": lambda: (200, {}, _never(hold))})
        done = await shop.run("http_get", url=f"{site.url}/slow?token=hunter2", timeout=0.3)
        assert "hunter2" not in done.error
        done = await shop.run("http_get", url="http://user:hunter2@127.0.0.1:9/x")
        assert "cannot be reached" in done.error
        assert "hunter2" not in done.error
        hold.set()

    @pytest.mark.parametrize(
        "url", ["ftp://x/y", "file:///etc/passwd", "//x", "http://", "x", "http://[", "http://a:99999/"]
    )
    async def test_addresses_that_are_none(self, shop, url):
        assert not (await shop.run("http_get", url=url)).ok

    async def test_json_only_where_it_says_so_and_is(self, shop, sites):
        kind = {"content-type": "application/json; charset=utf-8"}
        site = sites(
            {
                "/nan": (200, kind, b"[NaN]"),
                "/text": (200, {}, b"[1]"),
                "/latin": (200, {"content-type": "text/plain; charset=latin-1"}, b"\xe4"),
            }
        )
        assert (await shop.run("http_get", url=f"{site.url}/nan")).output["json"] is None
        assert (await shop.run("http_get", url=f"{site.url}/text")).output["json"] is None
        assert (await shop.run("http_get", url=f"{site.url}/latin")).output["text"] == "ä"

    async def test_a_download_goes_on_after_a_crash_without_being_fetched_again(self, shop, sites):
        site = sites({"/a": (200, {}, b"abc")})
        done = await shop.crashed("http_download", "files.write", False, "r", url=f"{site.url}/a", path="d/a")
        assert done.ok, done.error
        assert shop.read("d/a") == "abc"
        assert len(site.seen) == 1


def _never(hold):
    import time

    while not hold.is_set():
        time.sleep(0.02)
        yield b""
