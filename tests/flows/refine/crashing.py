"""A refinement whose process is killed at one exact place; every call of a part costs, by its number."""

from __future__ import annotations

from typing import Any

from detent.engine.outcome import Effect
from detent.flows.refine.flow import refine_flow
from detent.testing.crash import CrashPoints
from detent.testing.workload import Planned, Workload
from detent.testing.world import World
from tests.flows.refine.samples import RUBRIC, WORDS, judged


def refinement(world: World, crash: CrashPoints) -> Workload:
    """A plan that is not valid, one that is refined, and two files at the end."""
    from detent.flows.refine.evaluation import Issue, ValidationReport

    def preparer(request: Any) -> Any:
        return [word.lower() for word in request]

    def planner(request: Any, feedback: Any, previous: Any) -> Any:
        return {"words": request if feedback else ["noise"]}

    def validator(request: Any, plan: Any) -> ValidationReport:
        unknown = [word for word in plan["words"] if word not in request]
        return ValidationReport(tuple(Issue("error", "word", f"unknown '{word}'") for word in unknown))

    def implementer(request: Any, plan: Any, feedback: Any, previous: Any) -> Any:
        return {"text": " ".join(plan["words"] * (1 if feedback else 2))}

    def finisher(result: Any) -> Any:
        for name in ("show", "result"):
            text = f"{name} {result.status} {result.best_iteration} {result.tokens_used}"
            yield Effect("world.probed", {"run": f"{result.run_id}-{text}"})

    flow = refine_flow(
        "words", planner=planner, validator=validator, implementer=implementer, judge=judged,
        preparer=preparer, rubric=RUBRIC, finisher=finisher,
        tools=[crash.tool(tool) for tool in world.tools()],
    )  # fmt: skip
    return Workload([flow], lambda number: Planned("words", {"request": [word.upper() for word in WORDS]}))
