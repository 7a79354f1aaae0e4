"""A refinement that has nothing to do with music: words are chosen, then written out, then judged.

A request is a list of words. A plan chooses some of them; an implementation writes each a number of times.
The judge counts: `choice` is the plan's, `writing` the implementation's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.engine.engine import Engine
from detent.flows.refine.attempt import Attempt
from detent.flows.refine.evaluation import (
    AutomaticFailure,
    Category,
    CategoryScore,
    Evaluation,
    Issue,
    Rubric,
    ValidationReport,
    Weakness,
)
from detent.flows.refine.feedback import Feedback
from detent.flows.refine.flow import RefineFlow, refine_flow
from detent.flows.refine.part import Part
from detent.flows.refine.result import OrchestratorResult, result_of
from detent.kernel.entries import Moved
from tests.engine.conftest import journal

WORDS = ["calm", "loud", "bright", "dark"]
PLAN_SCHEMA = {
    "type": "object",
    "required": ["words"],
    "properties": {"words": {"type": "array", "items": {"type": "string"}}},
}


def shouted(request: Any, plan: Any, implementation: Any) -> str | None:
    return "there is shouting" if "LOUD" in implementation["text"] else None


def empty(request: Any, plan: Any, implementation: Any) -> str | None:
    return None if plan["words"] else "there is no word"


RUBRIC = Rubric(
    (Category("choice", "plan"), Category("writing", "implementation")),
    (AutomaticFailure("no_words", "plan", empty), AutomaticFailure("shouting", "implementation", shouted)),
)


@dataclass
class Writer:
    """The four parts by code. `plans` and `times` are what it gives in turn, the last one again and again."""

    plans: Sequence[Sequence[str]] = (tuple(WORDS),)
    times: Sequence[int] = (1,)
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def planner(self, request: Any, feedback: list[Feedback], previous: Attempt | None) -> Any:
        """Choose the words. All of them are best."""
        self.asked.append(("plan", (request, feedback, previous)))
        number = sum(name == "plan" for name, _ in self.asked)
        return {"words": list(self.plans[min(number, len(self.plans)) - 1])}

    def validator(self, request: Any, plan: Any) -> ValidationReport:
        """Every word must be one of the request."""
        self.asked.append(("validate", (request, plan)))
        return ValidationReport(
            tuple(
                Issue("error", "word", f"unknown word '{word}'", word)
                for word in plan["words"]
                if word.lower() not in request
            )
        )

    async def implementer(
        self, request: Any, plan: Any, feedback: list[Feedback], previous: Attempt | None
    ) -> Any:
        """Write the words out."""
        self.asked.append(("implement", (request, plan, feedback, previous)))
        number = sum(name == "implement" for name, _ in self.asked)
        times = self.times[min(number, len(self.times)) - 1]
        return {"text": " ".join(word for word in plan["words"] for _ in range(times))}

    def judge(self, request: Any, plan: Any, implementation: Any) -> Evaluation:
        """Each missing word and each repetition costs points."""
        self.asked.append(("judge", (request, plan, implementation)))
        return judged(request, plan, implementation)

    def parts(self) -> dict[str, Any]:
        """As `refine` takes them."""
        return {
            "planner": Part(
                self.planner, output_schema=PLAN_SCHEMA, note=lambda plan: " ".join(plan["words"])
            ),
            "validator": self.validator,
            "implementer": self.implementer,
            "judge": self.judge,
        }

    def flow(self, **options: Any) -> RefineFlow:
        """The flow `words`."""
        return refine_flow("words", **{**self.parts(), "rubric": RUBRIC, **options})

    def count(self, part: str) -> int:
        """How often a part was called."""
        return sum(name == part for name, _ in self.asked)


def judged(request: Any, plan: Any, implementation: Any) -> Evaluation:
    words = implementation["text"].lower().split()
    choice = 100.0 * len({word.lower() for word in plan["words"]}) / len(request)
    extra = len(words) - len(set(words))
    writing = max(0.0, 100.0 - 12.0 * extra)
    weak = (Weakness("words are repeated", section=words[0]),) if extra else ()
    return Evaluation(
        category_scores=(CategoryScore("choice", choice), CategoryScore("writing", writing, weaknesses=weak))
    )


async def states(engine: Engine, run_id: str) -> list[str]:
    """The states a run went through."""
    moves = [entry.body for entry in await journal(engine, run_id) if isinstance(entry.body, Moved)]
    return [moves[0].frm, *(move.to for move in moves)]


async def reasons(engine: Engine, run_id: str) -> list[str | None]:
    """The reasons of its moves."""
    return [entry.body.reason for entry in await journal(engine, run_id) if isinstance(entry.body, Moved)]


async def refined(engine: Engine, request: Any = None, **options: Any) -> OrchestratorResult:
    """Run the flow `words` to its end."""
    run_id = await engine.start("words", {"request": WORDS if request is None else request}, **options)
    await engine.finish(run_id)
    return await result_of(engine, run_id)
