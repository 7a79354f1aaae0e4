"""Playbooks written on the spot, tools that remember, and engines that drive them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.kernel.entries import Entry, Moved

SAMPLES = Path(__file__).parent / "samples"
PARCELS = SAMPLES / "parcels"

TABLE = {
    "A-1": {"state": "late", "day": "2026-04-02"},
    "A-2": {"state": "moving", "day": "2026-03-12"},
    "A-3": {"state": "lost", "day": "2026-04-09"},
}


class World:
    """The outside: a table to look into and a box of letters. Faults are used up in turn."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.tickets: list[dict[str, Any]] = []
        self.done: dict[str, dict[str, str]] = {}
        self.faults: dict[str, list[Exception]] = {}

    def _fault(self, name: str) -> None:
        if waiting := self.faults.get(name):
            raise waiting.pop(0)

    def tools(self) -> list[Tool]:
        def lookup(table: str, key: str, value: str) -> dict[str, str] | None:
            """A row of a table."""
            self.asked.append(value)
            self._fault("lookup")
            return TABLE.get(value)

        def send_email(call: EffectCall, to: str, body: str, subject: str = "") -> dict[str, str]:
            """Send a letter, once whatever happens."""
            self._fault("send_email")
            if call.idempotency_key not in self.done:
                self.sent.append({"to": to, "subject": subject, "body": body})
                self.done[call.idempotency_key] = {"message_id": f"m{len(self.sent)}", "status": "sent"}
            return self.done[call.idempotency_key]

        def create_ticket(call: EffectCall, serial: str, text: str = "") -> dict[str, str]:
            """Open a ticket, once whatever happens."""
            self._fault("create_ticket")
            if call.idempotency_key not in self.done:
                self.tickets.append({"serial": serial, "text": text})
                self.done[call.idempotency_key] = {"ticket_id": f"T{len(self.tickets)}"}
            return self.done[call.idempotency_key]

        return [
            Tool("lookup", lookup, "query", description="A row of a table."),
            Tool("send_email", send_email, idempotent=True, wants_call=True, description="Send a letter."),
            Tool("create_ticket", create_ticket, idempotent=True, wants_call=True, description="Open one."),
        ]


def refused(code: str = "refused", *, transient: bool = False) -> ToolError:
    """A tool's word that nothing happened."""
    return ToolError(code, transient=transient)


def step_file(name: str, front: str = "", body: str = "Do it.", **keys: str) -> str:
    """A step file: the required keys, and what else is said."""
    lines = {"name": name, "description": f"What {name} does.", "version": "1.0.0", "next": "[DONE]", **keys}
    head = "\n".join(f"{key}: {value}" for key, value in lines.items() if value)
    more = textwrap.dedent(front).strip("\n")
    return f"---\n{head}\n{more}{chr(10) if more else ''}---\n{body}\n"


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder; names without a folder or suffix are steps."""
    for name, text in files.items():
        path = folder / (name if "/" in name or "." in name else f"steps/{name}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text, encoding="utf-8")
    return folder


def script(replies: Mapping[str, Any], **steps: Any) -> DispatchSettings:
    """Settings in which the named steps are an agent's, who answers from a script.

    A reply is a text, or what a script knows; `steps` say more about a step, by its first characters.
    """
    told = {
        step: [one if isinstance(one, Mapping) else {"text": one} for one in said]
        for step, said in replies.items()
    }
    executor = ScriptedStepExecutor(told)
    layers = {
        step: StepConfig(**{"mode": "agent", "autonomy": "approver", "prose": "free", **steps})
        for step in replies
    }
    return DispatchSettings(steps=layers, executors=ScriptedSource(executor))


def executor_of(settings: DispatchSettings) -> ScriptedStepExecutor:
    """The scripted executor behind settings."""
    assert settings.executors is not None
    made = settings.executors.make("scripted")
    assert isinstance(made, ScriptedStepExecutor)
    return made


async def drive(flow: Flow, data: Any, *, store: Any = None, **options: Any) -> tuple[Any, list[Entry]]:
    """Run a flow to its end: the run and its journal."""
    async with Engine(store or MemoryStore(), [flow], **options) as engine:
        run = await engine.run(flow.name, data)
        return run, await engine.store.entries(run.id, 0, 100_000)


def path_of(entries: list[Entry]) -> list[str]:
    """The states a run went through, the end included."""
    moves = [entry.body for entry in entries if isinstance(entry.body, Moved)]
    return [*(move.frm for move in moves), moves[-1].to] if moves else []
