"""What the evidence about a step's agent means for one visit: a lower level, and whether it is audited."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AgentRole, AutonomyLevel
from detent.dispatch.evidence import DEMOTIONS, Demotion
from detent.dispatch.evidence_log import held_as
from detent.dispatch.plan import work_fingerprint
from detent.dispatch.standing import OTHER
from detent.dispatch.visit_level import Lowered
from detent.dispatch.watch import WATCHES, Watch, drawn, keyed
from detent.engine import logger
from detent.kernel.plain import canonical, to_plain
from detent.kernel.run_config import PATH

if TYPE_CHECKING:
    from detent.dispatch.evidence_log import EvidenceLog
    from detent.dispatch.plan import Plan
    from detent.engine.work import Work

LONGEST_KIND = 64


class VisitTrust:
    """The trust in the agent of a step, in one visit."""

    def __init__(self, plan: Plan, driver: Work, evidence: EvidenceLog) -> None:
        self.plan = plan
        self.driver = driver
        self.evidence = evidence
        self.watch = Watch()
        self.inputs: dict[str, Any] | None = None
        """The step's inputs, once they are known."""

    async def demotion(self, level: AutonomyLevel) -> Demotion | None:
        """The demotion that holds the step below a level."""
        if level is AutonomyLevel.OPERATOR:
            return None
        store, name, evidence = self.driver.engine.store, self.plan.qualified, self.evidence
        if name not in evidence.own_names:
            await held_as(store, name, work_fingerprint(self.plan.step))
            evidence.own_names.add(name)
        mark, _ = await store.mark(f"{DEMOTIONS}{name}")
        try:
            demotion = Demotion.from_plain(mark)
        except ValueError:  # written by a newer version: an unreadable demotion allows no trust
            demotion = Demotion(AutonomyLevel.OPERATOR, why="the mark cannot be read")
        if demotion is None:
            return None
        if demotion.by == "engine" and not agent_side(self.plan.step).handled:
            demotion = replace(demotion, level=max(demotion.level, AutonomyLevel.COLLABORATOR))
        return demotion if demotion.level < level else None

    async def load_watch(self) -> None:
        """Read what is being watched; the inputs must be known."""
        mark, _ = await self.driver.engine.store.mark(f"{WATCHES}{self.plan.qualified}")
        self.watch = Watch.from_plain(mark)

    def lowered(self, level: AutonomyLevel, agent: str) -> Lowered | None:
        """How the watch lowers a level at which answers are used unchecked; `agent` is its fingerprint."""
        kind = self.kind
        if left := self.watch.of(kind).recheck:
            return Lowered(AutonomyLevel.COLLABORATOR, level, f"recheck: {left} clean answers to go")
        if not kind:
            return None
        why = f"kind '{kind}' has not earned {level.value}"
        for earned in (level, AutonomyLevel.CONSULTANT):
            if self.watch.has_earned(kind, earned, agent):
                return Lowered(earned, level, why)
        return Lowered(AutonomyLevel.COLLABORATOR, level, why)

    @property
    def kind(self) -> str:
        """The kind of the inputs, if the step declares kinds and the inputs are known."""
        kind_of = agent_side(self.plan.step).kind
        if kind_of is None or self.inputs is None:
            return ""
        try:
            kind = kind_of(self.inputs)
        except Exception as error:
            logger.warning(
                "dispatch.kind_failed", run_id=self.driver.run.id, step_name=self.plan.step.name,
                error=type(error).__name__,
            )  # fmt: skip
            return OTHER
        return kind if isinstance(kind, str) and 0 < len(kind) <= LONGEST_KIND else OTHER

    async def inputs_digest(self) -> str:
        """Digest of the canonical inputs, which tells nothing about them to those without the store."""
        if self.inputs is None:
            return ""
        key = await self.evidence.draw_key(self.driver.engine.store)
        try:
            text = canonical(to_plain(self.inputs))
        except (TypeError, ValueError):
            return ""
        return keyed(key, text).hex()[:16]

    def audited_share(self, level: AutonomyLevel) -> float:
        """The share of this step's visits at a level that is judged."""
        side, shadow = agent_side(self.plan.step), self.plan.config.shadow or 0.0
        compared = side.handled and side.role is AgentRole.OPTIONAL and not side.by_contract
        if level < AutonomyLevel.CONSULTANT or not compared:
            return shadow
        return max(self.evidence.rules.audited_share(level, None), shadow)

    async def is_audited(self, share: float) -> bool:
        """Whether this visit, whose answer is used unchecked, is judged afterwards."""
        short = share > 0 and self.watch.short_of_audits(self.driver.clock.now(), self.evidence.rules)
        return short or await self.is_drawn(share)

    async def is_drawn(self, share: float) -> bool:
        """Whether this visit is in a share of all visits; the same after a resume."""
        if share >= 1.0 or share <= 0.0:
            return share > 0.0
        key, run = await self.evidence.draw_key(self.driver.engine.store), self.driver.run
        path = f"{run.config.get(PATH) or ''}/{self.plan.step.name}"
        return drawn(key, f"{run.id}\n{path}\n{run.visits.get(run.state, 0)}") < share
