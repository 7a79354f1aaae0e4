"""A lending desk: a real flow nobody else wrote, and the player that runs it for the harness.

01 reads the request, 02 looks for a copy, then one of 03a lend, 03b ask for the title, 03c wait list, or 04
when the shelf cannot be asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.journal_reader import read
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.evals.artifacts import Artifacts
from detent.evals.case import EvalTestCase
from detent.evals.contracts import Contracts, StepContract, StepEdge
from detent.evals.played import Intake, Played, PlayedStep, PlayFailed, PlayOptions
from detent.evals.suite import EvalSuite
from detent.insight.visits import FunctionCall
from detent.insight.why import fallback_of
from detent.kernel.budget import Budget
from detent.kernel.entries import EffectDone, EffectFailed, Ended, Moved, Proposed
from detent.kernel.guards import when
from detent.kernel.machine import Machine, Move
from detent.kernel.plain import canonical, copied
from detent.kernel.run import Run
from detent.kernel.status import Status

READ, CHECK, LEND, ASK, WAIT, SORRY = (
    "01-read-request", "02-check-shelf", "03a-lend", "03b-ask-title", "03c-wait-list", "04-sorry",
)  # fmt: skip
SHELF = {"dune": {"status": "free", "copy": "C-7"}, "emma": {"status": "lent", "copy": "C-9"}}

EDGES: dict[str, list[StepEdge]] = {
    READ: [
        StepEdge(CHECK, {"title": "present"}, "title found"),
        StepEdge(ASK, {"title": "absent"}, "no title"),
    ],
    CHECK: [
        StepEdge(LEND, {"shelf.status": "free"}, "on the shelf"),
        StepEdge(WAIT, {"shelf.status": "lent"}, "lent out"),
        StepEdge(SORRY, {"shelf.error": "present"}, "shelf unknown"),
    ],
    LEND: [StepEdge("DONE", reason="lent")],
    ASK: [StepEdge("DONE", reason="asked")],
    WAIT: [StepEdge("DONE", reason="on the list")],
    SORRY: [StepEdge("DONE", reason="told")],
}
FUNCTIONS = {READ: (), CHECK: ("find_copy",), LEND: ("print_slip", "send_letter")}
NEEDS = {CHECK: ("title",), LEND: ("shelf.copy", "member"), WAIT: ("title",)}


async def read_request(ctx: Any) -> Outcome:
    """Find the title that is asked for; answer nobody."""
    found = re.search(r'"([^"]+)"', ctx.data.request)
    return Outcome(set={"title": found.group(1) if found else None})


async def check_shelf(ctx: Any) -> Outcome:
    """Look for a copy and take the branch the shelf demands."""
    try:
        shelf = await ctx.query("find_copy", title=ctx.data.title)
    except ToolError as error:
        shelf = {"error": error.code}
    return Outcome(set={"shelf": shelf})


async def lend(ctx: Any) -> Outcome:
    """Print a slip and tell the member."""
    letter = {"to": ctx.data.member, "body": f"Your copy of {ctx.data.title} is ready."}
    slip = {"copy": ctx.data.shelf["copy"], "member": ctx.data.member}
    return Outcome(
        "DONE", effects=[Effect("print_slip", slip), Effect("send_letter", letter)], set={"lent": True}
    )


def letter(text: str) -> Any:
    async def write(ctx: Any) -> Outcome:
        """Write to the member."""
        body = text.format(title=ctx.data.get("title"))
        return Outcome("DONE", effects=[Effect("send_letter", {"to": ctx.data.member, "body": body})])

    return write


HANDLERS = {
    READ: read_request,
    CHECK: check_shelf,
    LEND: lend,
    ASK: letter("Which book do you mean?"),
    WAIT: letter("{title} is lent out; you are on the list."),
    SORRY: letter("We cannot see our shelf just now."),
}


class LendingPlayer:
    """Plays cases on a fresh engine each."""

    input_keys = ("data", "failures", "mock_function_responses", "start_step", "steps")
    orchestrators = ("step", "legacy")
    arms = ("plain", "agent")
    model = None
    artifacts = (
        Artifacts(
            "letters", "letter", exists="email_sent", contains="response_body_contains",
            excludes="response_body_excludes",
        ),
        Artifacts("slips", "slip", exists="ticket_created", fields="ticket_fields"),
    )  # fmt: skip

    def __init__(
        self, folder: Path | None = None, *, redirect: Mapping[tuple[str, str], str] | None = None
    ) -> None:
        self.folder = folder
        self.edges = {
            step: [
                StepEdge((redirect or {}).get((step, edge.to), edge.to), edge.when, edge.reason)
                for edge in edges
            ]
            for step, edges in EDGES.items()
        }
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def contracts(self, case: EvalTestCase) -> Contracts:
        return Contracts(
            {
                step: StepContract(
                    step, tuple(edges), NEEDS.get(step, ()), FUNCTIONS.get(step, ("send_letter",)),
                    (step.partition("-")[2],),
                )
                for step, edges in self.edges.items()
            },
            frozenset({"DONE", "FAILED"}),
            frozenset({"FAILED"}),
        )  # fmt: skip

    async def play(self, case: EvalTestCase, *, orchestrator: str, options: PlayOptions) -> Played:
        request = case.input.get("data", {})
        if request.get("explode"):
            raise RuntimeError("the desk collapsed")
        if request.get("unplayable"):
            raise PlayFailed("no recorded answer", step_name=CHECK, hint="first difference: prompt")
        if request.get("spam"):
            return Played(intake=Intake("ignored", "spam"), ms=1.0)
        tools, asked = _tools(case)
        if orchestrator == "legacy":
            return await _all_at_once(request, tools, asked)
        steps = dict(case.input.get("steps", {}))
        if options.arm == "agent":
            steps[READ] = {"mode": "agent"}
        config = {name: StepConfig.read(said, where=name) for name, said in steps.items()}
        start = case.input.get("start_step") or READ
        flow = self._flow(start, tools)
        data = {"member": "ada@desk.example", **request}
        async with Engine(MemoryStore(), [flow], dispatch=DispatchSettings(steps=config)) as engine:
            run = await engine.run("lending", data, budget=Budget(steps=12))
            entries = [entry async for entry in read(engine.store, run.id)]
        return _played(entries, run, data)

    def _flow(self, start: str, tools: list[Tool]) -> Flow:
        reached, left = {start}, [start]
        while left:
            for edge in self.edges.get(left.pop(), ()):
                if edge.to in self.edges and edge.to not in reached:
                    reached.add(edge.to)
                    left.append(edge.to)
        machine: Machine[str] = Machine(
            "lending",
            start=start,
            moves={
                step: [
                    Move(
                        edge.to,
                        when=when(edge.when) if isinstance(edge.when, Mapping) else None,
                        reason=edge.reason,
                    )
                    for edge in self.edges[step]
                ]
                for step in self.edges
                if step in reached
            },
            ends={"DONE": Status.SUCCEEDED},
        )
        steps = {name: Step(name, HANDLERS[name], intent="Work at the desk.") for name in reached}
        return Flow(machine, steps, tools=tools)


def _tools(case: EvalTestCase) -> tuple[list[Tool], list[FunctionCall]]:
    """The desk's tools, failing where the case plans it, and the queries that were asked."""
    planned = {name: list(words) for name, words in case.input.get("failures", {}).items()}
    mocks = case.input.get("mock_function_responses", {})
    asked: list[FunctionCall] = []
    slips: list[str] = []

    def fails(name: str) -> None:
        word = planned[name].pop(0) if planned.get(name) else "ok"
        if word != "ok":
            raise ToolError(word, f"{name} came to {word}")

    async def find_copy(title: str) -> Any:
        try:
            fails("find_copy")
        except ToolError as error:
            asked.append(
                FunctionCall("find_copy", {"title": title}, None, False, error.code, step_name=CHECK)
            )
            raise
        found = mocks.get("find_copy") or SHELF.get(title.lower(), {"status": "lent"})
        asked.append(FunctionCall("find_copy", {"title": title}, found, step_name=CHECK))
        return found

    async def print_slip(copy: str, member: str) -> Any:
        fails("print_slip")
        slips.append(copy)
        return {"slip_id": f"S-{len(slips)}", "copy": copy, "member": member}

    async def send_letter(to: str, body: str) -> Any:
        fails("send_letter")
        return {"sent": True}

    tools = [Tool("find_copy", find_copy, "query"), Tool("print_slip", print_slip)]
    return [*tools, Tool("send_letter", send_letter)], asked


def _played(entries: list[Any], run: Run, data: Mapping[str, Any]) -> Played:
    """What a journal says happened."""
    fold = Run(run.id)
    steps: list[PlayedStep] = []
    effects: dict[str, Mapping[str, Any]] = {}
    visit: list[FunctionCall] = []
    for entry in entries:
        before = copied(fold.data)
        fold.apply(entry)
        body = entry.body
        if isinstance(body, Proposed):
            effects = {effect["key"]: effect for effect in body.effects}
        elif isinstance(body, EffectDone):
            visit.append(FunctionCall(body.tool, effects[body.key]["args"], body.receipt, kind="effect"))
        elif isinstance(body, EffectFailed) and body.retry_at is None:
            visit.append(
                FunctionCall(body.tool, effects[body.key]["args"], None, False, body.code, kind="effect")
            )
        elif isinstance(body, (Moved, Ended)):
            frm = body.frm if isinstance(body, Moved) else fold.state
            looks = [
                FunctionCall(
                    look["tool"], look["args"], look["answer"], "$error" not in str(look["answer"]),
                    step_name=frm,
                )
                for look in body.looked
            ]  # fmt: skip
            calls = tuple(replace(one, step_name=frm) for one in [*looks, *visit])
            visit = []
            fallback = fallback_of(body.detail)
            text = [f"{key.upper()}: {value}" for key, value in body.set.items() if isinstance(value, str)]
            text += [f"CALL: {call.function_name} {canonical(dict(call.arguments))}" for call in calls]
            to = body.to if isinstance(body, Moved) else None
            steps.append(
                PlayedStep(
                    frm, before, "\n".join([*text, f"NEXT_STEP: {to}"]), copied(fold.data), to, body.reason,
                    "agent" if fallback else body.detail.get("mode_used", "deterministic"),
                    fallback.get("fallback_reason") if fallback else None, calls,
                )
            )  # fmt: skip
    every = tuple(call for step in steps for call in step.calls)
    done = [call for call in every if call.success]
    return Played(
        tuple(steps), every, run.status.value, "DONE" if run.state == "DONE" else "FAILED", run.reason,
        ("shelf_unknown",) if SORRY in [step.step_name for step in steps] else (),
        copied(run.data), dict(data), Intake("run"),
        {
            "letters": tuple(call.arguments for call in done if call.function_name == "send_letter"),
            "slips": tuple(call.result for call in done if call.function_name == "print_slip"),
        },
        f"steps:{steps[-1].step_name}" if steps else None, None, run.total_spend, run.id,
    )  # fmt: skip


async def _all_at_once(request: Mapping[str, Any], tools: list[Tool], asked: list[FunctionCall]) -> Played:
    """The desk as it worked before there were steps."""
    by_name = {tool.name: tool.perform for tool in tools}
    found = re.search(r'"([^"]+)"', request["request"])
    mails: list[Mapping[str, Any]] = []
    tickets: list[Mapping[str, Any]] = []
    calls: list[FunctionCall] = []
    if found is None:
        body = "Which book do you mean?"
    else:
        shelf = await by_name["find_copy"](title=found.group(1))
        calls += asked
        if shelf["status"] == "free":
            slip = {"copy": shelf["copy"], "member": "ada@desk.example"}
            tickets.append(await by_name["print_slip"](**slip))
            calls.append(FunctionCall("print_slip", slip, tickets[-1], kind="effect"))
        body = "Your copy is ready." if shelf["status"] == "free" else "It is lent out."
    mails.append({"to": "ada@desk.example", "body": body})
    calls.append(FunctionCall("send_letter", mails[-1], {"sent": True}, kind="effect"))
    return Played(
        calls=tuple(calls), status="succeeded", end="DONE", intake=Intake("run"),
        artifacts={"letters": tuple(mails), "slips": tuple(tickets)}, scenario_used="lend-book",
    )  # fmt: skip


CASES: dict[str, str] = {
    "lend_001": """
# path: 01 -> 02 -> 03a
scenario_id: lend_001
description: A book that is there
category: lending
created: 2026-03-02
tags: [en]
required: true
input:
  data: {request: 'Please lend me "Dune"'}
expected_output:
  expected_steps:
    - step_name: 01-read-request
      output_contains: ["NEXT_STEP: 02-check-shelf", "title:  dune"]
      data: {title: Dune}
      function_call: null
    - {step_name: check-shelf, function_call: find_copy, function_args: {title: Dune}, next_step: "03a"}
    - "03a"
  expected_function_calls:
    - {function_name: find_copy, result_contains: {status: free}}
    - {function_name: print_slip, arguments: {copy: C-7}}
    - {function_name: send_letter, body_contains: [ready], arguments_contain: {to: desk.example}}
  scenario_instruction_used: multi-step
  processing_time_ms: 60000
  email_sent: true
  ticket_created: true
  ticket_fields: {copy: C-7}
  status: succeeded
  end: DONE
  intake: {decision: run}
  legacy: {scenario_instruction_used: lend-book}
""",
    "lent_out_001": """
# path: 01 -> 02 -> 03c
scenario_id: lent_out_001
description: A book that is lent out
category: waiting
input: {data: {request: 'I want "Emma"'}}
expected_output:
  expected_steps: ["01", "02", "03c"]
  ticket_created: false
""",
    "no_title_001": """
# path: 01 -> 03b
scenario_id: no_title_001
description: Nobody knows which book
category: waiting
input: {data: {request: A good book please}}
expected_output:
  expected_steps: ["01", ask-title]
  response_body_contains: [which book]
""",
    "shelf_timeout_001": """
# path: 01 -> 02 -> 04
scenario_id: shelf_timeout_001
description: The shelf cannot be asked
category: trouble
tags: [faults]
orchestrators: [step]
input:
  data: {request: 'Please lend me "Dune"'}
  failures: {find_copy: [timeout]}
expected_output:
  expected_steps: ["01", "02", "04"]
  flags: [shelf_unknown]
""",
}


def write_cases(folder: Path, **more: str) -> Path:
    """The shipped-style cases of the desk, and further ones, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**CASES, **more}.items():
        (folder / f"{name}.yaml").write_text(text.lstrip(), encoding="utf-8")
    return folder


def make_suite(folder: Path | None = None) -> EvalSuite:
    """The desk's suite."""
    return EvalSuite("lending", lambda settings, folder: LendingPlayer(folder), folder)
