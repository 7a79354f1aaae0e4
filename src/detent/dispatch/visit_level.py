"""The level in force for one visit, which a flow may lower and never raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch.agent_side import agent_side
from detent.dispatch.autonomy import AutonomyLevel
from detent.engine import logger
from detent.engine.calls import call
from detent.kernel.errors import Fenced, StoreUnavailable

if TYPE_CHECKING:
    from detent.engine.context import StepContext


class Lowered(NamedTuple):
    """A level that holds for one visit, below the one the step has."""

    level: AutonomyLevel
    was: AutonomyLevel
    why: str

    def to_plain(self) -> dict[str, Any]:
        """As the dispatch record keeps it, which has the level itself elsewhere."""
        return {"was": self.was.value, "why": self.why}


async def lowered(ctx: StepContext, level: AutonomyLevel) -> Lowered | None:
    """How the step's `level_for` lowers the level for this visit; None if it does not.

    A function that raises, or gives anything but a level, lowers it to the lowest.
    """
    level_for = agent_side(ctx.step).level_for
    if level_for is None or level is AutonomyLevel.OPERATOR:
        return None
    try:
        answer = await call(level_for, False, ctx)
        answer = answer(level) if callable(answer) else answer
        ceiling, why = answer if isinstance(answer, tuple) else (answer, "")
        ceiling = level if ceiling is None else AutonomyLevel(ceiling)
    except (Fenced, StoreUnavailable):
        raise
    except Exception as error:
        ceiling, why = AutonomyLevel.OPERATOR, f"level_for failed: {type(error).__name__}"
        logger.warning(
            "dispatch.level_failed", run_id=ctx.run_id, step_name=ctx.step.name, error=type(error).__name__
        )
    if ceiling >= level:
        return None
    return Lowered(ceiling, level, str(why)[:200] or "the flow asks for it")
