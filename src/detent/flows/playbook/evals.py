"""Playbooks for the eval player: real queries, real steps, and no effect outside the machine.

Files are written to a folder that is thrown away, mail goes to an outbox in it, and any other effect is noted
and not performed. The cases of a playbook stand in `evals/` beside its files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from detent.adapters.mail.outbox import Outbox
from detent.engine.engine import Engine
from detent.engine.tools import NOT_DONE, EffectCall, Tool
from detent.evals.artifacts import Artifacts
from detent.evals.case import EvalTestCase
from detent.evals.contracts import Contracts
from detent.evals.played import Played
from detent.evals.player import Session, Setup
from detent.evals.suite import GROUP, EvalSuite
from detent.flows.playbook.flow import PlaybookFlow
from detent.flows.playbook.folder import PlaybookFolder, read_manifest
from detent.flows.playbook.history import own_calls, response_text
from detent.flows.playbook.instruction import DEGRADED, ENDS, FAILED
from detent.flows.playbook.library import home_of, is_playbook, playbook_of
from detent.flows.playbook.playbook import Playbook, read_playbook
from detent.insight.visits import FunctionCall, StepVisit
from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import RetryPolicy
from detent.kernel.run import Run
from detent.runtime.mcp import mcp_servers
from detent.runtime.settings import Settings

SUITE = "playbook"
CASES = "evals"
"""The folder beside a playbook's files that holds its cases."""
AT_ONCE = RetryPolicy(3, 0.0, 0.0)
"""The usual attempts, without the waits between them."""
SAFE = ("send_email", "write_file")
"""General effects that are performed, in a folder of their own."""


class PlaybookSubject:
    """One playbook."""

    input_keys: Mapping[str, type] = {"overlays": tuple}
    artifacts = (
        Artifacts(
            "emails", "mail", exists="email_sent", contains="response_body_contains",
            excludes="response_body_excludes",
        ),
    )  # fmt: skip

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self._playbooks: dict[tuple[str, ...], Playbook] = {}
        self._flow(Path(), ())  # problems of the files are reported before any case is read

    @property
    def flow(self) -> str:
        """The playbook's name."""
        return self._playbook(()).manifest.name

    def contracts(self, case: EvalTestCase) -> Contracts:
        """The steps and functions that the files declare."""
        playbook = self._playbook(self._overlays(case))
        return Contracts.declared(
            playbook.steps, playbook.edges, ends=ENDS, always={DEGRADED, FAILED},
            max_steps=playbook.manifest.max_steps,
        )  # fmt: skip

    def session(self, case: EvalTestCase, setup: Setup) -> PlaybookSession:
        """Set up a case."""
        flow = self._flow(
            setup.folder, self._overlays(case), lambda tool: setup.wrap(_harmless(tool)), setup.agents
        )
        if case.input.get("start_step") is not None:  # any data will do for a tail
            flow.playbook = replace(flow.playbook, manifest=replace(flow.playbook.manifest, input=None))
        return PlaybookSession(flow, case)

    def _overlays(self, case: EvalTestCase) -> tuple[str, ...]:
        """The overlays that a case applies to the playbook: folders beside its files."""
        names = case.input.get("overlays") or ()
        home = home_of(self.folder)
        for name in names:
            if not isinstance(name, str) or not (home / name).is_dir():
                raise ConfigurationError(f"there is no overlay folder '{name}' beside the playbook.")
        return tuple(str(home / name) for name in names)

    def _playbook(self, overlays: tuple[str, ...]) -> Playbook:
        playbook = self._playbooks.get(overlays)
        if playbook is None:
            playbook = self._playbooks[overlays] = read_playbook(self.folder, overlays=overlays)[0]
        return playbook

    def _flow(
        self,
        write: Path,
        overlays: Sequence[str],
        wrap: Callable[[Tool], Tool] | None = None,
        agents: Sequence[str] = (),
    ) -> PlaybookFlow:
        # A new one for each case: cases are played concurrently, and each closes what it opened.
        servers = mcp_servers(self.settings) if self.settings.get("mcp") is not None else {}
        flow = playbook_of(
            self.settings, self.folder, wrap=wrap, overlays=overlays, agents=agents, write=write,
            sink=Outbox(write / "outbox"), retry=AT_ONCE,
            tools=[tool for server in servers.values() for tool in server.tools],
        )  # fmt: skip
        used = {name for step in flow.steps.values() for name in step.queries or ()}
        flow.needs += [
            server for server in servers.values() if any(tool.name in used for tool in server.tools)
        ]
        return flow


class PlaybookSession(Session):
    """One case of a playbook."""

    flow: PlaybookFlow

    def text(self, visit: StepVisit) -> str:
        """A step's outcome in the lines of the protocol."""
        return response_text(visit, self.flow.playbook)

    def own_calls(self, visit: StepVisit) -> list[FunctionCall]:
        """The calls of a step without the redirect of a degraded run."""
        return own_calls(visit, self.flow.playbook)

    async def finished(self, played: Played, engine: Engine, run: Run | None) -> Played:
        """With the mails that were sent."""
        sent = tuple(
            call.arguments for call in played.calls if call.function_name == "send_email" and call.success
        )
        return replace(played, artifacts={"emails": sent})


# -- functions ----------------------------------------------------------------------------------------------


def _harmless(tool: Tool) -> Tool:
    """A function without side effects: an effect outside the machine is recorded, not performed."""
    if tool.kind == "effect" and not _is_safe(tool):
        tool = replace(tool, perform=_noting(tool), probe=tool.probe and _not_done)
    return replace(tool, retry=AT_ONCE, breaker=None)


def _is_safe(tool: Tool) -> bool:
    """Whether a tool is a general effect, which stays in its folder."""
    module = str(getattr(tool.perform, "__module__", ""))
    return tool.name in SAFE and module.startswith("detent.adapters.")


def _noting(tool: Tool) -> Callable[..., Any]:
    """Stands in for an effect: answers that it was recorded."""

    @wraps(tool.perform)
    async def perform(*first: Any, **args: Any) -> Any:
        key = first[0].idempotency_key if first and isinstance(first[0], EffectCall) else None
        return {"status": "noted"} if key is None else {"status": "noted", "key": key}

    return perform


async def _not_done(**_: Any) -> Any:
    return NOT_DONE


# -- the suite ----------------------------------------------------------------------------------------------


def claim(folder: Path) -> EvalSuite | None:
    """The suite of a playbook's folder: its cases are in `evals/` beside its files.

    A playbook that an installed suite of its own name judges is left to that.
    """
    if not folder.is_dir() or not is_playbook(folder):
        return None
    from detent.runtime.entry_points import offered
    from detent.runtime.plugs import plugs

    name = read_manifest(PlaybookFolder.at(folder))[0].name
    judged = {*(plug.name for plug in plugs()), *(point.name for point in offered(GROUP))}
    if name != SUITE and name in judged:
        return None
    return EvalSuite(
        name,
        folder=(home_of(folder) / CASES).resolve(),
        subject=lambda settings, cases: PlaybookSubject(settings, folder),
    )


def _needs_a_folder(settings: Any, cases: Path) -> Any:
    raise ConfigurationError("Name the playbook whose cases are meant: detent eval DIR")


suite = EvalSuite(SUITE, subject=_needs_a_folder, claim=claim)
