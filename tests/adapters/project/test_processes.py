"""A program is in the intent before it does anything; whoever takes its run over can end it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from detent.adapters.project.processes import (
    _members_by_ps,
    end_process,
    members_of,
    name_process,
    still_runs,
)
from detent.adapters.project.programs import run_program
from detent.adapters.project.sandbox import Sandbox
from detent.adapters.project.shell import Shell, shell_tools
from detent.engine.outcome import Effect, Outcome
from detent.engine.tools import EffectCall, Tool
from detent.kernel.entries import EffectBegun
from detent.kernel.status import Status
from tests.engine.conftest import Bench, journal, one_step, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX")
SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def sleeper() -> subprocess.Popen[bytes]:
    """A program that was left behind, in a group of its own."""
    process = subprocess.Popen(SLEEPS, start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


class TestStartedPrograms:
    async def test_a_program_does_nothing_before_its_process_is_written_down(self, tmp_path):
        """Its process is there already, and is the one that becomes the program."""
        seen = []

        async def started(pid):
            seen.append((pid, still_runs(name_process(pid)), (tmp_path / "made").exists()))

        ran = await run_program(
            ["sh", "-c", "echo $$; touch made"], cwd=tmp_path, env=os.environ, timeout=20, started=started
        )
        assert seen == [(int(ran.out), True, False)]
        assert (tmp_path / "made").exists()

    async def test_one_that_cannot_be_written_down_never_begins(self, tmp_path):
        """The store is away, say, or the run has been taken over."""

        async def started(pid):
            raise ConnectionError("no store")

        with pytest.raises(ConnectionError):
            await run_program(["touch", "made"], cwd=tmp_path, env=os.environ, timeout=20, started=started)
        assert not (tmp_path / "made").exists()


class TestEndingAProcess:
    async def test_the_named_process_is_ended(self):
        """Once; a second time there is none."""
        process = sleeper()
        name = name_process(process.pid)
        assert still_runs(name)
        ending = asyncio.create_task(end_process(name))
        await asyncio.to_thread(process.wait)
        assert await ending
        assert still_runs(name) is False
        assert await end_process(name)

    async def test_another_process_of_the_same_id_is_left_alone(self):
        """Nor is one of another machine, about which nothing is known here."""
        process = sleeper()
        try:
            name = name_process(process.pid)
            assert await end_process({**name, "born": name["born"] + 1})
            assert not await end_process({**name, "host": "elsewhere"})
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


class TestMembersOfASession:
    @pytest.mark.parametrize("count", [members_of, _members_by_ps])
    async def test_those_that_have_ended_do_not_count(self, count):
        """Not even while their parent has not asked how they ended."""
        script = "sleep 600 & sleep 600 & echo up; exec sleep 600"
        process = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        assert len(count(process.pid)) == 3
        os.killpg(process.pid, signal.SIGKILL)
        await until(lambda: not count(process.pid))
        assert os.getpgid(process.pid) == process.pid, "it is still there, ended"
        process.wait()


class TestTheIntentOfAProgram:
    def flow(self, *tools):
        """A flow that runs a program."""

        async def work(ctx):
            return Outcome("done", effects=[Effect("shell.run", {"argv": ["sh", "-c", "echo $$"]})])

        return one_step(work, tools=tools)

    async def test_the_journal_names_the_process_before_it_has_run(self, tmp_path):
        """And the receipt is that of the same process."""
        bench = Bench("memory", tmp_path)
        shell = Shell(Sandbox(tmp_path, tmp_path / "state"), os.environ)
        engine = await bench.engine(self.flow(*shell_tools(shell)))
        run = await engine.run("flow")
        bodies = [entry.body for entry in await journal(engine, run.id)]
        begun = [body for body in bodies if isinstance(body, EffectBegun)]
        assert [sorted(body.facts) for body in begun] == [[], ["process"]]
        receipt = next(body.receipt for body in bodies if hasattr(body, "receipt"))
        assert begun[1].facts["process"]["pid"] == int(receipt["stdout"])
        assert (begun[0].worker, begun[0].seconds) == (begun[1].worker, begun[1].seconds)
        await bench.close()

    async def test_what_a_dead_worker_left_is_ended_before_a_person_is_asked(self, tmp_path):
        """A program is never repeated; nobody is asked about one that goes on meanwhile."""
        process = sleeper()
        reaped = asyncio.create_task(asyncio.to_thread(process.wait))
        begun = asyncio.Event()

        async def left(call, **args):
            await call.begun(process=name_process(process.pid))
            begun.set()
            await asyncio.Event().wait()

        bench = Bench("memory", tmp_path)
        engine = await bench.engine(self.flow(Tool("shell.run", left, wants_call=True, stop=Shell.stop)))
        run_id = await engine.start("flow")
        await begun.wait()
        await engine.interrupt(run_id, grace=0)
        run = await engine.finish(run_id)
        assert run.status is Status.WAITING
        assert "It is not known whether 'shell.run' happened" in next(iter(run.holds.values())).question
        await reaped
        await bench.close()

    async def test_a_process_of_another_machine_is_left_to_a_person(self):
        """Nothing is known about it here."""
        process = {"pid": os.getpid(), "born": 1.0, "host": "elsewhere"}
        await Shell.stop(EffectCall("r", "k", 1, intent={"process": process}))
