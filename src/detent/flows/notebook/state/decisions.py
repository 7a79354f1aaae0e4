"""Which row of the table a run takes out of a completed state: the guards, tried from top to bottom.

The facts are measured before they come here; no claim is looked at. The same facts give the same row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from detent.flows.notebook.state.document import CompletionStatus
from detent.flows.notebook.state.facts import Facts, GapFact, Verdict
from detent.flows.notebook.state.ledger import Failure, RunState
from detent.flows.notebook.state.machine import ROWS, NotebookEvent, NotebookState, events
from detent.kernel.errors import InvalidTransitionError

FailReason = Literal["acceptance_not_met", "missing_variable", "not_reproducible"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that guards compare with."""

    max_retries: int = 3
    """Iterations of a behavior."""
    max_behaviors: int = 6
    """Behaviors of a step, from one entry to the next."""
    max_backtracks: int = 2
    """Backtracks of a run."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A row of the table, and what the move needs to know."""

    row: str
    event: NotebookEvent
    to: NotebookState
    reason: FailReason | None = None
    """Why the run fails."""
    closes_as: CompletionStatus = "success"
    """How the stage is closed."""
    gap: GapFact | None = None
    """The gap for which a backtrack is made."""

    @classmethod
    def of(
        cls,
        row: str,
        state: NotebookState,
        *,
        to: NotebookState | None = None,
        reason: FailReason | None = None,
        closes_as: CompletionStatus = "success",
        gap: GapFact | None = None,
    ) -> Decision:
        """The decision for a row out of `state`; `to` tells the two moves of row 6d apart."""
        for listed in ROWS:
            if listed.number == row and listed.state is state and to in (None, listed.to):
                return cls(row, listed.event, listed.to, reason, closes_as, gap)
        raise InvalidTransitionError(state, f"row {row}", events(state))

    @property
    def completes_step(self) -> bool:
        """What T5 says on the wire: the step is complete."""
        return self.row in ("5a", "5d")

    @property
    def completes_stage(self) -> bool:
        """What T6 says on the wire: the stage is complete."""
        return self.row in ("6b", "6c")


def decide(run: RunState, facts: Facts, limits: Limits = Limits()) -> Decision:  # noqa: B008 - frozen
    """The row that the facts choose out of BEHAVIOR_COMPLETED or STEP_COMPLETED.

    With `facts.reexecuted` None a decision for 6c stands under the reservation that the clean re-execution
    passes, or is switched off.

    Raises:
        InvalidTransitionError: no choice is to be made in the run's state.
    """
    state = run.document.fsm.state
    if state is NotebookState.BEHAVIOR_COMPLETED:
        return Decision.of(_after_behavior(run, facts, limits), state)
    if state is NotebookState.STEP_COMPLETED:
        return _after_step(run, facts, limits)
    raise InvalidTransitionError(state, "(by facts)", events(state), "Nothing is decided by facts here.")


# -- out of BEHAVIOR_COMPLETED ------------------------------------------------------------------------------


def behavior_is_complete(facts: Facts) -> bool:
    """The last iteration raised nothing, all outputs are complete, and at least one criterion passed."""
    return not facts.raised and facts.behavior.complete and bool(facts.behavior.criteria)


def step_is_complete(facts: Facts) -> bool:
    """A complete behavior, all artifacts of the step complete, all its criteria passed."""
    return behavior_is_complete(facts) and facts.step.complete


def _after_behavior(run: RunState, facts: Facts, limits: Limits) -> str:
    if step_is_complete(facts):
        return "5a"
    if behavior_is_complete(facts):
        # An artifact on which a criterion failed is there: producing it is not what is left to do.
        something_left = not facts.step.all_there
        return "5b" if something_left and run.ledger.behaviors_since_entry < limits.max_behaviors else "5d"
    return "5c" if _may_retry(run, facts, limits) else "5d"


def _may_retry(run: RunState, facts: Facts, limits: Limits) -> bool:
    if (run.document.location.behavior_iteration or 1) >= limits.max_retries:
        return False
    if facts.died and run.ledger.kernel_deaths > 0:
        return False
    if not facts.raised and _is_final(facts.behavior):
        return False
    return not Failure.of(facts.behavior).is_consistent_with(run.ledger.last_failure)


def _is_final(verdict: Verdict) -> bool:
    """Whether everything is there, and no iteration of this behavior can change what failed."""
    return verdict.all_there and bool(verdict.failed) and all(failed.final for failed in verdict.failed)


# -- out of STEP_COMPLETED ----------------------------------------------------------------------------------


def stage_is_complete(run: RunState, facts: Facts) -> bool:
    """No steps remain, all artifacts of the stage are complete, all its criteria passed."""
    return not run.document.steps.remaining and facts.stage.complete


def _after_step(run: RunState, facts: Facts, limits: Limits) -> Decision:
    here = NotebookState.STEP_COMPLETED
    document, ledger = run.document, run.ledger.judged(facts)
    critical = [gap for gap in facts.gaps if gap.critical]
    stage = document.stages.current
    revised = stage is not None and stage.stage_id in ledger.revised_stages
    gap = None if ledger.escalated and revised else _gap_to_go_back_for(run, critical, limits)
    # A model too weak for a threshold holds nothing up once nobody can go back for it.
    blocked = gap is not None or any(not known.weak for known in critical)
    goes_on = _the_work_is_done(run, facts)
    # A step that was given up on what its own goal asks for is no success of its stage.
    short = goes_on and ledger.escalated and any(miss.bearable for miss in facts.step.failed)
    complete = stage_is_complete(run, facts) and not short
    last = not document.stages.remaining
    all_met = ledger.all_met
    reproducible = facts.reexecuted is not False
    if not ledger.escalated and document.steps.remaining and not blocked:
        return Decision.of("6a", here)
    if complete and not last and not blocked:
        return Decision.of("6b", here)
    if complete and last and all_met and reproducible:
        return Decision.of("6c", here)
    if gap is not None:
        in_stage = stage is not None and gap.producer_stage == stage.stage_id
        to = NotebookState.STEP_RUNNING if in_stage else NotebookState.STAGE_RUNNING
        return Decision.of("6d", here, to=to, gap=gap)
    stuck = ledger.escalated or (not complete and not document.steps.remaining)
    if stuck and not revised and facts.revision_offered:
        return Decision.of("6e", here)
    optional = stage is not None and bool(stage.optional)
    if goes_on and document.steps.remaining and not blocked:
        return Decision.of("6a", here)
    if not last and (optional or goes_on):
        return Decision.of("6b", here, closes_as="partial")
    if last and optional and all_met and reproducible:
        return Decision.of("6c", here, closes_as="partial")
    return Decision.of("6f", here, reason=_fail_reason(run, facts, complete and last and all_met))


def _gap_to_go_back_for(run: RunState, critical: list[GapFact], limits: Limits) -> GapFact | None:
    """The first critical gap whose producer is behind the run and was not gone back to for it.

    The step just closed is not behind: it is still the current one.
    """
    if len(run.ledger.backtracked) >= limits.max_backtracks:
        return None
    document = run.document
    stage = document.stages.current
    behind = {completed.stage_id for completed in document.stages.completed}
    for gap in critical:
        if gap.spent or gap.producer_step is None or gap.name in run.ledger.backtracked:
            continue
        if gap.producer_stage in behind:
            return gap
        in_stage = stage is not None and gap.producer_stage == stage.stage_id
        if in_stage and any(step.step_id == gap.producer_step for step in document.steps.completed):
            return gap
    return None


def _the_work_is_done(run: RunState, facts: Facts) -> bool:
    """Whether honest misses are all that failed: everything that was due is there, a model among it.

    A miss is a threshold of the user's, or a criterion that was measured where a model is there.
    """
    failed = [*facts.behavior.failed, *facts.step.failed, *facts.stage.failed]
    counted = all(criterion.locked or criterion.bearable for criterion in failed)
    if not (failed or run.ledger.given_up) or not counted or facts.raised:
        return False
    due = facts.behavior.all_there and facts.step.all_there
    return due and (bool(run.document.steps.remaining) or facts.stage.all_there)


def _fail_reason(run: RunState, facts: Facts, only_reproduction_left: bool) -> FailReason:
    if only_reproduction_left and facts.reexecuted is False:
        return "not_reproducible"
    missing = any(gap.critical and not gap.weak for gap in facts.gaps)
    return "missing_variable" if missing and not run.ledger.escalated else "acceptance_not_met"
