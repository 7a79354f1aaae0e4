"""The time a request may take: what is left of it bounds model calls, commands, checks and sub-runs.

Time on hold or stopped is not counted, because the engine counts the time of steps and effects only.
"""

from __future__ import annotations

import math

from detent.engine.context import StepContext
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.settings import CodingSettings

REQUEST_TIMEOUT = "request_timeout"


def seconds_left(ctx: StepContext, settings: CodingSettings) -> float:
    """What is left now."""
    return _limit(ctx, settings) - ctx.used["seconds"]


def seconds_left_at_visit(ctx: StepContext, settings: CodingSettings) -> float:
    """What was left when the step was entered: the same whenever it is called again in the same visit, so
    that it may become an argument of an effect.

    Rounded up to a tenth of a second.
    """
    return math.ceil((_limit(ctx, settings) - ctx.run.seconds) * 10) / 10


def _limit(ctx: StepContext, settings: CodingSettings) -> float:
    own = RequestData(ctx.values).options.timeout_s
    return settings.request_timeout_s if own is None else own
