"""Real plans, not scripted verdicts, take both ways back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.apps.choreography import parts
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
from detent.apps.choreography.domain.planted import exchanged, late
from detent.apps.choreography.job import Job
from detent.apps.choreography.request import song_of, stage_of
from detent.flows.refine.run import refine
from detent.runtime.settings import Settings


class Faulty:
    """The choreographer's parts, whose first plan or implementation has a fault."""

    def __init__(self, fault: Any, where: str) -> None:
        self.fault = fault
        self.where = where
        self.plans = self.implementations = 0

    def _planted(self, request: Any, plan: Any, implementation: Any) -> Any:
        return self.fault(
            song_of(request), AgentPlan.model_validate(plan),
            AgentImplementation.model_validate(implementation), stage_of(request),
        )  # fmt: skip

    def plan(self, request, feedback, previous):
        """Plan, at first for another song."""
        self.plans += 1
        plan = parts.plan(request, feedback, previous)
        if self.where != "plan" or self.plans > 1:
            return plan
        return self._planted(request, plan, parts.expand(request, plan, (), None))[0].to_plain()

    def implement(self, request, plan, feedback, previous):
        """Expand, at first beside the borders."""
        self.implementations += 1
        implementation = parts.expand(request, plan, feedback, previous)
        if self.where != "implementation" or self.implementations > 1:
            return implementation
        return self._planted(request, plan, implementation)[1].to_plain()

    async def made(self) -> Any:
        job = Job.of(Settings(Path.cwd()), Path("song.wav"), analyser="builtin")
        return await refine(
            job.data["request"], preparer=parts.PREPARER, planner=self.plan, validator=parts.check,
            implementer=self.implement, judge=parts.evaluate, rubric=parts.rubric_of,
        )  # fmt: skip


@pytest.mark.usefixtures("studio")
class TestBothWays:
    """R-61"""

    async def test_borders_two_bars_off_are_refined_with_the_same_plan(self):
        faulty = Faulty(late(2), "implementation")
        result = await faulty.made()
        first, second = result.attempts
        assert first.evaluation.lowest.category == "Musical Alignment"
        assert (result.status, result.iterations, faulty.plans, second.refined) == ("success", 2, 1, True)
        assert second.plan == first.plan
        assert second.implementation != first.implementation

    async def test_loud_templates_on_quiet_sections_are_planned_anew(self):
        faulty = Faulty(exchanged(), "plan")
        result = await faulty.made()
        first, second = result.attempts
        assert first.evaluation.lowest.category == "Energy Matching"
        assert (result.status, result.iterations, faulty.plans, second.refined) == ("success", 2, 2, False)
        assert second.plan != first.plan
