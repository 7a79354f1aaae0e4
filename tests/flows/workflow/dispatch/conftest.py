"""What every test here gets: a project on disk with some actions of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.flows.workflow.dispatch.project import Project

ACTS = '''
"""Actions of a small hotel; `CALLS` counts what their handlers were called with."""

from dataclasses import dataclass, field
from datetime import date

from detent import StepContext, query, tool
from detent.workflow import action
from pathlib import Path

CALLS = []
POSTED = []


@dataclass
class Greeting:
    text: str
    length: int
    until: date = date(2030, 1, 31)
    tags: list[str] = field(default_factory=list)


@query("rooms.find")
def find(guest: str) -> dict:
    CALLS.append(("rooms.find", guest))
    return {"room": len(guest)}


@tool("ledger.post")
def post(what: str) -> dict:
    POSTED.append(what)
    return {"number": len(POSTED)}


@tool("ledger.burn")
def burn() -> dict:
    POSTED.append("burnt")
    return {}


@action("greet", intent="Welcome one guest of the house by name, in one line.")
def greet(name: str, loud: bool = False) -> Greeting:
    CALLS.append(("greet", name))
    text = f"Good day, {name}" + ("!" if loud else ".")
    return Greeting(text, len(text), tags=["guest"])


@action("strict_greet", intent="Welcome one guest of the house by name, in one line.", output_schema=Greeting)
def strict_greet(name: str, loud: bool = False) -> Greeting:
    return greet(name, loud)


@action("lodge", intent="Find the room in which the named guest will sleep.", queries=["rooms.find"])
async def lodge(ctx: StepContext, guest: str) -> dict:
    CALLS.append(("lodge", guest))
    return {"guest": guest, **await ctx.query("rooms.find", guest=guest)}


@action("charge", intent="Put what the guest owes into the ledger, once.", effects=["ledger.post"])
async def charge(ctx: StepContext, what: str) -> dict:
    CALLS.append(("charge", what))
    receipt = ctx.propose("ledger.post", what=what)
    return {"what": what, "number": receipt.number}


@action("echo", intent="Give back what was given to it, just as it is.")
def echo(value=None) -> dict:
    CALLS.append(("echo", value))
    return {"value": value}


@action("break_down", intent="Fail at the desk, whatever the guest may say.")
def break_down(say: str = "the bell is broken") -> dict:
    CALLS.append(("break_down", say))
    raise ValueError(say)


@action("refuse", intent="Say of the guest's wish that it cannot be met.")
def refuse() -> dict:
    CALLS.append(("refuse", None))
    return {"success": False, "error": "the house is full"}
'''


@pytest.fixture
async def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Project]:
    """A fresh project with the hotel's actions."""
    for name in list(os.environ):
        if name.startswith("DETENT"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DETENT_TRUST", "all")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    folder = tmp_path / "project"
    folder.mkdir()
    made = Project(folder)
    made.plugin(ACTS)
    made.settings()
    yield made
    await made.close()
