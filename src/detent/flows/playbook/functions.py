"""Calling functions from a step: queries whose failure is an answer, too."""

from __future__ import annotations

from typing import Any

from detent.engine.context import StepContext
from detent.engine.step_failures import TRANSIENT, Transient
from detent.engine.tools import ToolError
from detent.engine.trial_context import TrialContext
from detent.kernel.errors import DetentError


async def look_up(ctx: StepContext, function: str, /, **args: Any) -> Any:
    """Ask a query; what failed for good is handed on as `{"error": {"code", "message", "transient"}}`.

    A transient failure is raised while the step has attempts left, so that it is tried again. An answer is
    kept for the whole visit of the step: other attempts do not ask anew.
    """
    durable = not isinstance(ctx, TrialContext)
    try:
        return await ctx.look(function, args, durable=durable)
    except TRANSIENT as error:
        if not ctx.last_attempt:
            raise
        return failure_of(error)
    except ToolError as error:
        return failure_of(error)
    except DetentError:  # the run was taken over, the function may not be asked here, and the like
        raise
    except Exception as error:
        return failure_of(error)


def failure_of(error: BaseException) -> dict[str, Any]:
    """A failed query as an answer."""
    cause = error.__cause__ if isinstance(error, Transient) and error.__cause__ is not None else error
    transient = isinstance(error, TRANSIENT)
    if isinstance(cause, ToolError):
        code, message, transient = cause.code, cause.message, cause.transient
    elif isinstance(cause, TimeoutError):
        code, message = "timeout", str(cause) or "it took too long"
    elif isinstance(cause, ConnectionError):
        code, message = "connection", str(cause) or "the connection was lost"
    else:
        code, message = type(cause).__name__, str(cause)
    return {"error": {"code": code, "message": message[:500], "transient": transient}}
