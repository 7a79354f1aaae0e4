"""What dispatch says while it works: names, levels and fields, and never what customers or agents wrote."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import AgentRole
from detent.dispatch.config import StepConfig
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.kernel.budget import Budget
from detent.kernel.policy import RetryPolicy
from tests.dispatch.samples import (
    FAULT,
    INTENT,
    KIND_ONLY,
    LEVELS,
    MAIL,
    QUESTION,
    Form,
    again,
    agent,
    capture,
    forms,
    scripted,
    settings,
    single,
)
from tests.examples import covering

COMMON = {"run_id", "flow", "definition", "step_name", "step_path", "action", "timestamp"}
FIELDS = {
    "dispatch.mode_selected": (logging.INFO, {"mode", "autonomy", "forced", "source", "shadow"}),
    "dispatch.deterministic_completed": (logging.INFO, {"duration_ms", "fallback"}),
    "dispatch.agent_completed": (
        logging.INFO,
        {
            "autonomy", "duration_ms", "accepted", "attempts", "input_tokens", "output_tokens", "cost_usd",
            "model_id",
        },
    ),
    "dispatch.autonomy_validation": (
        None,  # WARNING when rejected or odd, else INFO; see below
        {"autonomy", "check", "outcome", "discrepancies", "pointers"},
    ),
    "dispatch.fallback": (
        logging.WARNING,
        {
            "autonomy", "reason", "error_type", "error", "attempts", "agent_duration_ms",
            "handler_duration_ms", "fallback_succeeded",
        },
    ),
    "dispatch.operator_fallback": (logging.WARNING, {"autonomy", "hint"}),
    "dispatch.no_intent": (logging.WARNING, {"autonomy", "hint", "step_type"}),
    "dispatch.no_executor": (logging.WARNING, {"autonomy", "hint", "provider", "why_not"}),
    "dispatch.budget_exhausted": (logging.WARNING, {"limit", "spent", "unit"}),
    "dispatch.mode_ignored": (logging.DEBUG, {"step_type"}),
    "dispatch.failed": (logging.ERROR, {"reason", "agent_error_type", "handler_error_type"}),
    "dispatch.shadow_completed": (
        logging.INFO, {"side", "outcome", "pointers", "duration_ms", "cost_usd"}
    ),
    "executor.step_start": (logging.INFO, {"agent_name", "config"}),
    "executor.step_complete": (logging.INFO, {"agent_name", "duration_ms", "usage", "success"}),
    "executor.step_error": (
        logging.WARNING,
        # `error` says place and expectation of a violation, which no other field does.
        {"agent_name", "error_type", "error", "attempt_number", "will_retry"},
    ),
}  # fmt: skip
"""The table of the specification: level and further fields."""


def broken(ctx: Any) -> Any:
    raise LookupError("no such device")


USED = {"usage": {"input_tokens": 11, "output_tokens": 3, "cost_usd": 0.25}, "model_id": "sample-1"}
MATRIX: dict[str, tuple[Flow, Any, Any]] = {
    "plain": (forms(), None, None),
    "accepted": (forms(), scripted(again(FAULT, **USED)), agent()),
    "rejected": (forms(), scripted(again(QUESTION, **USED)), agent()),
    "odd": (forms(), scripted(again({"kind": 1})), agent("consultant")),
    "approved": (forms(), scripted(again(QUESTION)), agent("approver")),
    "violated": (forms(output_schema=KIND_ONLY), scripted(again({"kind": 1})), agent()),
    "operator": (forms(), scripted(again(FAULT)), agent("operator")),
    "no intent": (forms(intent=""), scripted(again(FAULT)), agent()),
    "control": (forms(agent=AgentSide(AgentRole.NONE)), scripted(again(FAULT)), agent()),
    "no executor": (forms(), None, agent()),
    "broke": (
        forms(),
        scripted({"error": "transient", "usage": {"input_tokens": 20}, "repeat": True}),
        agent(budget=Budget(tokens=10)),
    ),
    "both failed": (forms(broken), scripted({"error": "crash", "repeat": True}), agent("approver")),
    "agent alone": (
        forms(broken, agent=AgentSide(AgentRole.REQUIRED)),
        scripted({"error": "crash", "repeat": True}),
        agent(),
    ),
    "shadowed": (forms(), scripted(again(QUESTION, **USED)), agent("approver", shadow=1.0)),
}


async def matrix(quick, heard):
    """Every run of the matrix, with what was said in it."""
    for name, (flow, executor, config) in MATRIX.items():
        engine = await quick.engine(flow, dispatch=settings(executor, config))
        heard.events.clear()
        run = await engine.run("flow", MAIL)
        yield name, engine, run, list(heard.events)


async def test_every_event_has_the_fields_and_the_level_of_the_table(quick, heard):
    """D-48: field by field, over runs that together say all of them."""
    met = set()
    async for name, _, run, events in matrix(quick, heard):
        for said in events:
            if said.name not in FIELDS:
                assert not said.name.startswith(("dispatch.", "executor.")), said.name
                continue
            met.add(said.name)
            level, fields = FIELDS[said.name]
            where = f"{said.name} in '{name}'"
            assert set(said.facts) == COMMON | fields, where
            assert (said["run_id"], said["flow"], said["step_name"]) == (run.id, "flow", "work"), where
            assert isinstance(said["timestamp"], float), where
            assert all(said.facts[key] is not None for key in COMMON), where
            if said.name == "dispatch.autonomy_validation":
                odd = said["outcome"] == "rejected" or said["discrepancies"] > 0
                level = logging.WARNING if odd else logging.INFO
            assert said.level == level, where
    assert met == set(FIELDS)


async def test_every_dispatch_decision_says_something(quick, heard):
    """D-48."""
    async for name, _, _, events in matrix(quick, heard):
        assert [said for said in events if said.name.startswith("dispatch.")], name


async def test_an_accepted_step_says_level_time_and_use(quick, heard):
    """D-45."""
    engine = await quick.engine(forms(), dispatch=settings(scripted(again(FAULT, **USED)), agent()))
    await engine.run("flow", MAIL)
    said = heard.one("dispatch.agent_completed")
    assert (said["step_name"], said["autonomy"], said["accepted"], said["attempts"]) == (
        "work", "collaborator", True, 1,
    )  # fmt: skip
    assert (said["input_tokens"], said["output_tokens"], said["cost_usd"]) == (11, 3, 0.25)
    assert said["model_id"] == "sample-1"
    assert said["duration_ms"] >= 0
    complete = heard.one("executor.step_complete")
    assert complete["usage"] == {"input_tokens": 11, "output_tokens": 3, "total_cost_usd": 0.25}
    assert complete["success"] is True


async def test_a_start_says_how_the_step_is_configured_but_not_the_prompt(quick, heard):
    """1.16: names and sizes; a suffix may hold anything."""
    said = agent("approver", prompt_suffix="SENTINEL", temperature=0.5)
    engine = await quick.engine(forms(), dispatch=settings(scripted(again(FAULT)), said))
    await engine.run("flow", MAIL)
    config = heard.one("executor.step_start")["config"]
    assert (config["mode"], config["autonomy"], config["temperature"]) == ("agent", "approver", 0.5)
    assert "SENTINEL" not in heard.one("executor.step_start").line


async def test_each_failed_attempt_is_numbered_and_says_whether_another_follows(quick, heard):
    """1.16."""
    config = agent(retry_policy=RetryPolicy(3, 0, 0))
    engine = await quick.engine(forms(), dispatch=settings(scripted(*[{"error": "transient"}] * 3), config))
    await engine.run("flow", MAIL)
    errors = heard.named("executor.step_error")
    assert [(one["attempt_number"], one["will_retry"]) for one in errors] == [
        (1, True),
        (2, True),
        (3, False),
    ]


async def test_a_budget_event_names_the_limit_in_numbers(quick, heard):
    """1.16."""
    flow, executor, config = MATRIX["broke"]
    engine = await quick.engine(flow, dispatch=settings(executor, config))
    await engine.run("flow", MAIL)
    said = heard.one("dispatch.budget_exhausted")
    assert (said["limit"], said["spent"], said["unit"]) == (10, 20, "tokens")


async def test_at_most_ten_pointers_are_told(quick, heard):
    """1.16: the journal keeps up to fifty."""
    many = {f"k{n:02}": n for n in range(60)}

    def work(ctx: Any) -> dict[str, int]:
        return many

    executor = scripted({"output": {key: value + 1 for key, value in many.items()}})
    engine = await quick.engine(forms(work), dispatch=settings(executor, agent()))
    await engine.run("flow")
    said = heard.one("dispatch.autonomy_validation")
    assert (said["discrepancies"], len(said["pointers"])) == (60, 10)


async def test_a_flow_may_say_where_a_step_stands(quick, heard):
    """1.16: definition, step_path and action come from the step's metadata where it has them."""
    flow = forms(metadata={"definition": "commit", "path": "loop[2].work", "action": "git_commit"})
    engine = await quick.engine(flow, dispatch=settings(scripted(again(FAULT)), agent()))
    await engine.run("flow", MAIL)
    for name in ("dispatch.mode_selected", "executor.step_start", "dispatch.agent_completed"):
        said = heard.one(name)
        assert (said["definition"], said["step_path"], said["action"]) == (
            "commit", "loop[2].work", "git_commit",
        )  # fmt: skip


# -- nothing that was written by customers or agents --------------------------------------------------------

S = "SENTINEL-9f3a"


def quiet_tools() -> list[Tool]:
    def find(text: str) -> dict[str, Any]:
        if "fails" in text:
            raise ToolError("not_found", f"no {S} here")
        return {"found": S}

    def post(what: str) -> dict[str, Any]:
        if "bad" in what:
            raise ToolError("refused", f"will not post {S}")
        if "doubt" in what:
            raise OSError(f"lost {S} on the way")
        return {"receipt": S}

    return [Tool("find", find, "query"), Tool("post", post)]


async def handling(ctx: Any) -> Outcome:
    await ctx.query("find", text=ctx.data["text"])
    return Outcome(set={"kind": S}, reason=f"because {S}", effects=[Effect("post", {"what": f"good {S}"})])


async def failing(ctx: Any) -> Outcome:
    raise LookupError(f"no {S} there")


async def declining(ctx: Any) -> dict[str, Any]:
    return {"success": False, "error": S}


def quiet(handler: Any = handling, **options: Any) -> Flow:
    side = options.pop("agent", AgentSide())
    options["agent"] = replace(side, returns=Form)
    step = Step("work", handler, INTENT, queries=("find",), effects=("post",), **options)
    return single(step, tools=quiet_tools())


def posts(what: str) -> dict[str, Any]:
    return {"output": {"calls": [{"tool": "post", "args": {"what": what}}]}}


ANSWER = {"output": {"kind": S}}


LOUD: dict[str, tuple[Flow, list[dict[str, Any]]]] = {
    "agrees": (
        quiet(),
        [{**posts(f"good {S}"), "calls": [{"tool": "find", "args": {"text": f"it is {S}"}}]}, ANSWER],
    ),
    "differs": (quiet(), [posts(f"other {S}"), ANSWER]),
    "differs in the end": (quiet(), [posts(f"good {S}"), {"output": {"kind": f"{S} {S}"}}]),
    "fails": (quiet(), [{"error": {"type": "permanent", "message": f"cannot {S}"}}]),
    "crashes": (quiet(), [{"error": {"type": "crash", "message": f"cannot {S}"}}]),
    "schema by the executor": (quiet(), [{"error": "schema"}] * 2),
    "violates": (
        quiet(output_schema={"type": "object", "properties": {"kind": {"type": "integer"}}}),
        [ANSWER] * 2,
    ),
    "garbage": (quiet(), [{"text": f"Well, {S}."}] * 2),
    "odd answer": (quiet(), [{"output": {"kind": S, "next_state": S, S: S}}] * 2),
    "undeclared effect": (quiet(), [{"output": {"calls": [{"tool": S, "args": {S: S}}]}}] * 2),
    "undeclared tool": (quiet(), [{"output": {}, "calls": [{"tool": S, "args": {S: S}}]}] * 2),
    "wrong arguments": (quiet(), [{"output": {}, "calls": [{"tool": "find", "args": {"text": [S]}}]}] * 2),
    "effect fails": (quiet(), [posts(f"bad {S}")]),
    "effect in doubt": (quiet(), [posts(f"doubt {S}")]),
    "query fails": (
        quiet(),
        [{"output": {}, "calls": [{"tool": "find", "args": {"text": f"fails {S}"}}]}] * 2,
    ),
    "both fail": (quiet(failing), [{"error": {"type": "permanent", "message": S}}]),
    "says it failed": (
        quiet(declining),
        [{"output": {"success": False, "error": S}}],
    ),
    "validator": (quiet(validator=lambda inputs, proposal: (False, [f"/kind {S}", S])), [posts("x")]),
    "validator fails": (quiet(validator=lambda inputs, proposal: inputs[S]), [posts("x")]),
    "agent alone": (
        quiet(failing, agent=AgentSide(AgentRole.REQUIRED)),
        [{"error": {"type": "permanent", "message": S}}],
    ),
}


@pytest.mark.parametrize(
    ("name", "level", "shadow"), covering(LOUD, ["none", *LEVELS], [0.0, 1.0], together=1)
)
async def test_no_value_reaches_the_log_above_debug(quick, name, level, shadow):
    """D-51: inputs, outputs, error messages, tool arguments, customer text."""
    flow, replies = LOUD[name]
    executor = ScriptedStepExecutor([*replies, {"error": "permanent", "repeat": True}])
    config = None
    if level != "none":
        config = agent(level, shadow=shadow, prompt_suffix=S)
    elif shadow:
        config = StepConfig(shadow=shadow)
    engine = await quick.engine(flow, dispatch=settings(ScriptedSource({"s": executor}), config))
    with capture() as heard:
        await engine.run("flow", {"text": f"it is {S}"})
    assert heard.sequence()
    for said in heard.above_debug():
        assert S not in said.line, said.name
