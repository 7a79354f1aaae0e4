"""A real project to run actions in: files, git, programs, a web server; by code, or by scripted agents."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import inspect
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.project import project_tools
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.result import DispatchResult
from detent.engine.calls import call
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Hold, Outcome
from detent.engine.schemas import misfits
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.flows.workflow.actions import SHIPPED
from detent.flows.workflow.registry import Action, Registry
from detent.flows.workflow.steps.python import action_step, defaults, notifying
from detent.flows.workflow.validation_tools import validation_tools
from detent.kernel.entries import EffectDone, Ended, Moved
from detent.kernel.errors import StoreUnavailable
from detent.kernel.machine import Machine
from detent.kernel.plain import to_plain
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.kernel.run_config import ORIGIN
from detent.kernel.status import Status
from detent.testing.crash import CrashPoints
from tests.dispatch.samples import UNAUDITED

REGISTRY = Registry(*SHIPPED)
WHEN = "2030-01-31T08:00:00+00:00"


@dataclass
class Done:
    """How the run of one action went."""

    run: Run
    output: Any
    entries: list[Any]

    @property
    def ok(self) -> bool:
        return self.run.status is Status.SUCCEEDED

    @property
    def error(self) -> str:
        last = [one for one in self.entries if isinstance(one, Ended | Moved)][-1]
        return (last.error if isinstance(last, Ended) else last.detail.get("error")) or ""

    @property
    def dispatch(self) -> DispatchResult:
        (move,) = [one for one in self.entries if isinstance(one, Moved) and one.frm == "work"]
        return DispatchResult.from_plain(move.detail)

    @property
    def performed(self) -> list[tuple[str, str]]:
        """Tool and way of each effect."""
        return [(one.tool, one.how) for one in self.entries if isinstance(one, EffectDone)]

    @property
    def receipts(self) -> list[Any]:
        """What each performed effect gave back, in order."""
        return [one.receipt for one in self.entries if isinstance(one, EffectDone)]


def belonging(run_id: str | None) -> dict[str, Any]:
    """The configuration by which a run `r.a` keeps its files with `r.b`, as children of one run do."""
    return {ORIGIN: run_id.partition(".")[0]} if run_id and "." in run_id else {}


@dataclass
class Workshop:
    """One project, the tools on it, and a store that lasts over several runs."""

    folder: Path
    stages: list[dict[str, Any]] = field(default_factory=list)
    webhook: str | None = None
    allow_private: bool | list[str] = field(default_factory=lambda: ["127.0.0.1"])
    """Sites of these tests are at this address, which nobody could fetch from otherwise."""
    environ: dict[str, str] = field(default_factory=dict)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Any = None
    around: Callable[[Tool], Tool] = field(default=lambda tool: tool)
    engines: list[Engine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.folder / "project"
        self.root.mkdir(parents=True, exist_ok=True)
        self.state = self.root / ".detent"
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        self.environ = {
            **{name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
            "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": str(home / "gitconfig"),
            "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": WHEN,
            "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_COMMITTER_DATE": WHEN,
            **self.environ,
        }  # fmt: skip

    # -- the project ----------------------------------------------------------------------------------------

    def write(self, path: str, text: str | bytes = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    def read(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def git(self, *args: str, cwd: Path | None = None) -> str:
        ran = subprocess.run(
            ["git", *args], cwd=cwd or self.root, env=self.environ, capture_output=True, check=True
        )
        return ran.stdout.decode("utf-8", "replace").strip()

    def repository(self, *files: str) -> None:
        """A repository whose first commit holds these files."""
        self.git("init", "-q", "-b", "main")
        for name in files or ("README.md",):
            self.write(name, f"{name}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")

    def remote(self) -> Path:
        """A bare repository, known as origin."""
        bare = self.folder / "origin.git"
        self.git("init", "-q", "--bare", str(bare), cwd=self.folder)
        self.git("remote", "add", "origin", str(bare))
        return bare

    # -- running --------------------------------------------------------------------------------------------

    def tools(self) -> list[Tool]:
        def stages(names: list[str]) -> list[dict[str, Any]]:
            """The project's checks."""
            return [one for name in names for one in self.stages if one["name"] == name]

        made = project_tools(
            self.root, self.state, environ=self.environ, blobs=self.store.blob, webhook=self.webhook,
            protected=[self.root / ".detent" / "detent.db"], allow_private=self.allow_private,
        )  # fmt: skip
        shell = next(tool for tool in made if tool.name == "shell.run")
        return [self.around(tool) for tool in (*made, *validation_tools(stages, shell))]

    def flow(self, name: str) -> Flow:
        """The flow whose only step is an action on the run's data."""
        said = REGISTRY.actions.get(name)
        machine: Machine[str] = Machine(
            "actions", start="work", moves={"work": ["done"]}, ends={"done": Status.SUCCEEDED}
        )
        return Flow(machine, {"work": step_of(said)}, tools=self.tools())

    async def run(
        self, action_name: str, run_id: str | None = None, agent: Any = None, autonomy: str = "collaborator",
        **kwargs: Any,
    ) -> Done:  # fmt: skip
        """Run an action once, by its handler or by an agent: an executor, or one reply that it repeats."""
        dispatch = self.dispatch(action_name, agent, autonomy)
        options = {"clock": self.clock} if self.clock is not None else {}
        engine = Engine(self.store, [self.flow(action_name)], dispatch=dispatch, **options)
        self.engines.append(engine)
        await engine.open()
        data = {**kwargs, "__action": action_name}
        run = await engine.run("actions", data, run_id=run_id, config=belonging(run_id))
        return await self.done(run)

    def dispatch(self, action_name: str, agent: Any, autonomy: str) -> DispatchSettings:
        """Who performs the action."""
        if agent is None:
            return DispatchSettings()
        if isinstance(agent, Mapping):
            agent = ScriptedStepExecutor({action_name: [{**agent, "repeat": True}]})
        config = StepConfig(
            mode=StepMode.AGENT, autonomy=AutonomyLevel(autonomy), retry_policy=RetryPolicy(1, 0, 0)
        )
        return DispatchSettings(
            steps={action_name: config}, executors=ScriptedSource(agent), evidence=UNAUDITED
        )

    async def interrupted(
        self, action_name: str, points: CrashPoints, run_id: str, agent: Any, autonomy: str, **kwargs: Any
    ) -> Done | None:
        """Run an action by an agent in a process that dies at a point, and have another take it up.

        None: the process died before there was a run.
        """
        dispatch = self.dispatch(action_name, agent, autonomy)
        self.around = points.tool
        data = {**kwargs, "__action": action_name}
        with contextlib.suppress(StoreUnavailable):
            async with Engine(points.store(self.store), [self.flow(action_name)], dispatch=dispatch) as first:
                await first.run("actions", data, run_id=run_id, config=belonging(run_id))
        self.around = lambda tool: tool
        if not await self.store.find(run_id, 1):
            return None
        async with Engine(self.store, [self.flow(action_name)], dispatch=dispatch) as second:
            if not (await self.store.row(run_id)).now.status.is_end:
                await second.resume(run_id)
            return await self.done(await second.finish(run_id))

    async def crashed(
        self, action_name: str, tool_name: str, after: bool, run_id: str, **kwargs: Any
    ) -> Done:
        """Run an action whose worker dies before or after one tool acts, and have another take it up."""
        reached = asyncio.Event()

        def around(tool: Tool) -> Tool:
            if tool.name != tool_name:
                return tool

            async def perform(*args: Any, **said: Any) -> Any:
                if reached.is_set():
                    return await call(tool.perform, tool.blocking, *args, **said)
                if after:
                    await call(tool.perform, tool.blocking, *args, **said)
                reached.set()
                await asyncio.Event().wait()

            perform.__signature__ = inspect.signature(tool.perform)  # type: ignore[attr-defined]
            return replace(tool, perform=perform, arguments=tool.schema)

        self.around = around
        first = Engine(self.store, [self.flow(action_name)])
        await first.open()
        data = {**kwargs, "__action": action_name}
        await first.start("actions", data, run_id=run_id, config=belonging(run_id))
        await reached.wait()
        await first.stop(grace=0)
        second = Engine(self.store, [self.flow(action_name)])
        self.engines.append(second)
        await second.open()
        await second.resume(run_id)
        return await self.done(await second.finish(run_id))

    async def done(self, run: Run) -> Done:
        entries = [entry.body for entry in await self.store.entries(run.id, 0, 100_000)]
        return Done(run, run.data.get("output"), entries)

    async def close(self) -> None:
        for engine in self.engines:
            await engine.stop(grace=0)

    def lie(self, done: Done) -> dict[str, Any]:
        """A reply of the right shape that says something else and does nothing."""
        return {"output": {name: _other(value) for name, value in done.output.items()}}


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, dict):
        return {name: _other(one) for name, one in value.items()}
    if isinstance(value, list):
        return value[:-1]
    return f"{value}?" if isinstance(value, str) and value not in ("file", "webhook") else value


def _lands(said: Action) -> dict[str, Any]:
    """Where an action's output goes; one that tells something concludes."""
    if said.tells is None:
        return {"into": "output"}

    async def conclude(ctx: Any, output: Any) -> Outcome:
        return Outcome(set={"output": output})

    return {"conclude": notifying(said, conclude)}


def step_of(said: Action) -> Step:
    """An action as the step of a flow: its inputs are the run's data, its output goes to `output`."""

    async def inputs(ctx: Any) -> dict[str, Any]:
        data = to_plain(ctx.data)
        return {**defaults(said), **{name: data[name] for name in said.parameters if name in data}}

    step = action_step(said, inputs, name=said.name, output_schema=said.output_schema, **_lands(said))
    inner = step.handler

    async def handler(ctx: Any) -> Any:
        value = await inner(ctx)
        return Outcome(hold=value) if isinstance(value, Hold) else value

    return replace(step, handler=handler, intent=said.intent) if said.holds else step


def fits(name: str, output: Any) -> list[str]:
    """What is wrong with an output under its action's schema."""
    return misfits(output, REGISTRY.actions.get(name).output_schema)


__all__ = ["REGISTRY", "Done", "Site", "Workshop", "fits", "step_of"]


# -- the web ------------------------------------------------------------------------------------------------


class Site:
    """A web server on this machine. Pages are `(status, headers, body)` by path, or functions giving it."""

    def __init__(self, pages: Mapping[str, Any]) -> None:
        self.pages = dict(pages)
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer()

            def do_POST(self) -> None:
                self.answer()

            def answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                headers = {name.lower(): value for name, value in self.headers.items()}
                site.seen.append((self.command, self.path, headers, body))
                page = site.pages.get(self.path, (404, {}, b"none"))
                status, extra, raw = page() if callable(page) else page
                try:
                    self.send_response(status)
                    for name, value in extra.items():
                        self.send_header(name, value)
                    if not isinstance(raw, bytes):
                        self.end_headers()
                        for piece in raw:
                            self.wfile.write(piece)
                        return
                    self.send_header("content-length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
