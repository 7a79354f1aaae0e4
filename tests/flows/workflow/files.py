"""A small registry, and a way to ask for everything wrong with a file."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, Literal

from detent.authoring.names import Named
from detent.authoring.problem import Problem
from detent.dispatch.autonomy import AutonomyLevel
from detent.flows.workflow.checks import check_read
from detent.flows.workflow.reading import Read, read_workflow
from detent.flows.workflow.registry import (
    Action,
    Agent,
    ContextBuilder,
    Generator,
    Prerequisite,
    Registry,
    ValidationStage,
)
from detent.flows.workflow.spec import WorkflowSpec
from detent.flows.workflow.step_modes import CheckSettings

FILE = "flow.yaml"
INTENT = "Do the one thing this action is there for."


def ship(
    ctx: Any,
    order: str,
    count: int = 1,
    *,
    speed: Literal["slow", "fast"] = "slow",
    weight: float | None = None,
    labels: list[str] | None = None,
    gift: bool = False,
    extra: dict[str, int] | None = None,
    anything: Any = None,
) -> dict[str, Any]:
    """Send an order."""
    return {"order": order, "count": count}


def give_back(order: str) -> dict[str, Any]:
    return {"order": order}


def gather(*parts: str, **named: Any) -> dict[str, Any]:
    return {"parts": parts, **named}


def first_only(first: str, /, second: str = "") -> dict[str, Any]:
    return {"first": first, "second": second}


def registry(*more: Named) -> Registry:
    return Registry(
        Action("ship", handler=ship, intent=INTENT, effects=("post.send",), queries=("post.rates",),
               max_autonomy=AutonomyLevel.CONSULTANT),
        Action("ship_back", handler=give_back, intent=INTENT),
        Action("gather", handler=gather, intent=INTENT),
        Action("first_only", handler=first_only, intent=INTENT),
        Action("log", handler=lambda message="": {"logged": True}, intent=INTENT),
        Agent("reviewer", instructions="Review.", tools=("post.rates",)),
        Generator("summary", handler=lambda **given: "text", intent=INTENT),
        Generator("essay", intent=INTENT),
        ContextBuilder("changed_files"),
        Prerequisite("git"),
        Prerequisite("env", takes_argument=True),
        ValidationStage("docs", command=("true",)),
        *more,
    )  # fmt: skip


def text_of(steps: str, head: str = "") -> str:
    """A whole file around some steps."""
    return f'version: "1.0"\nname: flow\n{textwrap.dedent(head)}steps:\n{textwrap.dedent(steps)}'


def read(text: str, file: str = FILE) -> Read:
    return read_workflow(text.encode(), file)


def spec_of(text: str, file: str = FILE) -> WorkflowSpec:
    found = read(text, file)
    assert found.spec is not None, found.problems
    return found.spec


def problems_of(
    text: str, *, children: Mapping[str, str] | None = None, registered: Registry | None = None, **said: Any
) -> list[Problem]:
    """Everything wrong with a file; `children` are files by name."""
    specs = {name: spec_of(child, f"{name}.yaml") for name, child in (children or {}).items()}
    settings = CheckSettings(**said, workflows=("commit", "flow", *specs))
    return check_read(read(text), registered or registry(), specs.get, settings)
