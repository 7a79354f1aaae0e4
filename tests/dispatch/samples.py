"""Flows, settings and ears for the tests of dispatch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.dispatch.result import DispatchResult
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.step import Step
from detent.kernel.entries import Ended, Moved, Noted
from detent.kernel.policy import RetryPolicy
from tests.engine.conftest import Bench, flow_of, journal

INTENT = "Say of what kind the message is and whether it is urgent."
LEVELS = ("collaborator", "consultant", "approver")
"""Levels at which an agent is asked."""


@dataclass
class Form:
    """What the sample steps give."""

    kind: str
    urgent: bool = False


KIND_ONLY = {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}}}
"""A hard contract that leaves room for a soft one."""

FAULT = {"kind": "fault", "urgent": True}
QUESTION = {"kind": "question", "urgent": False}


async def triage(ctx: Any) -> Form:
    """Say of what kind the message is and whether it is urgent."""
    text = ctx.data["text"]
    return Form("fault" if "broken" in text else "question", "!" in text)


MAIL = {"text": "it is broken!"}
"""Input on which `triage` gives FAULT."""


# -- what is said -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """One event."""

    name: str
    level: int
    facts: Mapping[str, Any]
    line: str

    def __getitem__(self, key: str) -> Any:
        return self.facts[key]


LETTERS = {
    "dispatch.mode_selected": "M",
    "executor.step_start": "S",
    "executor.step_complete": "C",
    "executor.step_error": "R",
    "dispatch.autonomy_validation": "V",
    "dispatch.agent_completed": "A",
    "dispatch.fallback": "F",
    "dispatch.deterministic_completed": "D",
    "dispatch.operator_fallback": "operator_fallback",
    "dispatch.no_intent": "no_intent",
    "dispatch.no_executor": "no_executor",
    "dispatch.budget_exhausted": "budget_exhausted",
    "dispatch.failed": "failed",
    "dispatch.mode_ignored": "mode_ignored",
    "dispatch.shadow_completed": "shadow_completed",
}


@dataclass
class Heard:
    """Events in the order in which they were said."""

    events: list[Said] = field(default_factory=list)

    def named(self, name: str, step: str | None = None) -> list[Said]:
        """All events of a name, of one step if it says so."""
        return [one for one in self.events if one.name == name and _is_of(one, step)]

    def one(self, name: str, step: str | None = None) -> Said:
        """The only event of a name."""
        (found,) = self.named(name, step)
        return found

    def sequence(self, step: str = "work") -> str:
        """The dispatch of one step in the letters of the truth table, run by run."""
        told = [one for one in self.events if one.name in LETTERS and _is_of(one, step)]
        told.sort(key=lambda one: str(one.facts.get("run_id")))  # runs side by side tell in any order
        return " ".join(LETTERS[one.name] for one in told)

    def above_debug(self) -> list[Said]:
        """What an operator gets to see."""
        return [one for one in self.events if one.level >= logging.INFO]


def _is_of(said: Said, step: str | None) -> bool:
    return step is None or said.facts.get("step_name") == step


class _Ear(logging.Handler):
    def __init__(self, heard: Heard) -> None:
        super().__init__(logging.DEBUG)
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        facts = getattr(record, "detent", {})
        self.heard.events.append(Said(line.split(" ", 1)[0], record.levelno, facts, line))


@contextmanager
def capture() -> Iterator[Heard]:
    """Listen to everything that is said."""
    heard = Heard()
    ear, logger = _Ear(heard), logging.getLogger("detent")
    before = logger.level
    logger.addHandler(ear)
    logger.setLevel(logging.DEBUG)
    try:
        yield heard
    finally:
        logger.removeHandler(ear)
        logger.setLevel(before)


# -- flows and settings -------------------------------------------------------------------------------------


def single(step: Step, **options: Any) -> Flow:
    """A flow of one working state, `work`."""
    return flow_of({"work": ["done"]}, {"work": step}, **options)


def forms(handler: Any = triage, **options: Any) -> Flow:
    """A flow whose only step fills in a form, under a soft contract unless said otherwise."""
    options.setdefault("intent", INTENT)
    return single(Step("work", handler, **options))


def agent(level: str | None = None, **said: Any) -> StepConfig:
    """Agent mode, tried twice at most and without waits unless said otherwise."""
    if "max_retries" not in said:
        said.setdefault("retry_policy", RetryPolicy(2, 0, 0))
    return StepConfig(mode=StepMode.AGENT, autonomy=None if level is None else AutonomyLevel(level), **said)


def scripted(*replies: Mapping[str, Any], step: str = "work", **options: Any) -> ScriptedStepExecutor:
    """An executor with these replies for the step."""
    return ScriptedStepExecutor({step: list(replies)} if replies else {step: [{"error": "crash"}]}, **options)


def again(output: Any, **more: Any) -> dict[str, Any]:
    """A reply that is never used up."""
    return {"output": output, "repeat": True, **more}


UNAUDITED = EvidenceRules(audit=ByLevel(0.0, 0.0), recheck=0)
"""The rules as shipped, but without audits and rechecks, which would call handlers in some visits."""


def settings(
    executor: Any = None,
    config: StepConfig | None = None,
    *,
    step: str = "work",
    steps: Mapping[str, StepConfig] | None = None,
    evidence: EvidenceRules | None = None,
    **more: Any,
) -> DispatchSettings:
    """Settings of a project with one executor (or none) and one configured step."""
    said = dict(steps or {})
    if config is not None:
        said[step] = config
    source = executor if executor is None or hasattr(executor, "make") else ScriptedSource(executor)
    rules = evidence or UNAUDITED
    return DispatchSettings(steps=said, executors=source, evidence=rules, **more)


async def moves(engine: Engine, run_id: str, state: str = "work") -> list[Moved]:
    """The moves out of a state."""
    return [
        entry.body
        for entry in await journal(engine, run_id)
        if isinstance(entry.body, Moved) and entry.body.frm == state
    ]


async def result_of(engine: Engine, run_id: str, state: str = "work") -> DispatchResult:
    """What the journal says became of the dispatch of a state's step."""
    (move,) = await moves(engine, run_id, state)
    return DispatchResult.from_plain(move.detail)


async def error_of(engine: Engine, run_id: str) -> str:
    """The words a failed run ended with."""
    last = [entry.body for entry in await journal(engine, run_id) if isinstance(entry.body, Ended | Moved)][
        -1
    ]
    return (last.error if isinstance(last, Ended) else last.detail.get("error")) or ""


async def notes(engine: Engine, run_id: str, topic: str) -> list[Noted]:
    """The remarks of a topic."""
    return [
        entry.body
        for entry in await journal(engine, run_id)
        if isinstance(entry.body, Noted) and entry.body.topic == topic
    ]


async def deterministic(bench: Bench, flow: Flow, data: Any = None) -> Any:
    """The run that the flow makes by its handlers alone, on an engine that knows of no agent."""
    engine = await bench.engine(flow)
    return await engine.run(flow.name, data)
