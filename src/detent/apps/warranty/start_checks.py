"""Checks before mails are taken in: the CRM, and what models are needed for.

Mail servers are checked when they are opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from detent.engine.tools import ToolError
from detent.kernel.errors import IntegrationMissing
from detent.runtime.model_check import ModelUse, uses_of

if TYPE_CHECKING:
    from detent.apps.warranty.settings import WarrantySettings
    from detent.apps.warranty.wiring import Components
    from detent.dispatch.planner import Planner

NOBODY = "SN00000"
"""A serial number for a test query; there need be no such device."""


async def check_crm(components: Components) -> None:
    """Query the CRM, so that problems are noticed at the start.

    Raises:
        IntegrationMissing: the CRM cannot be used.
    """
    tools = components.settings.tools
    try:
        if tools.registry == "crm":
            await components.registry.find(NOBODY, datetime.now(UTC).date())
        elif tools.tickets == "crm" and components.crm is not None:
            await _check_tickets(components.crm)
    except ToolError as error:
        raise IntegrationMissing(
            f"The CRM cannot be used: {error.message.rstrip('.')}. See that it runs, and that "
            "tools.crm.base_url, auth and the paths under it are right."
        ) from error


async def _check_tickets(client: Any) -> None:
    """Check a CRM for tickets only: it need not know devices, but must be reachable and accept our login."""
    from detent.adapters.crm.faults import CrmFault

    try:
        if client.settings.ticket_by_key_path is not None:
            await client.ticket_by_key(NOBODY)
        else:
            await client.device(NOBODY)
    except CrmFault as fault:
        if fault.transient or fault.code == "auth":
            raise ToolError(fault.code, fault.message) from fault


def model_uses(components: Components, planner: Planner, *, legacy: bool) -> list[ModelUse]:
    """What models are asked for: steps, in each arm of an experiment too, and how to begin."""
    flow, router = components.flow, components.settings.orchestration.router
    uses = uses_of(planner, [flow])
    for own in _arms(components.settings):
        uses += uses_of(planner, [flow], own)
    arms = router.experiment.arms.values() if router.experiment is not None else ()
    asks = legacy or "llm" in (router.strategy, *(arm.strategy for arm in arms))
    executors = None if planner.settings.force_deterministic else planner.settings.executors
    if asks and executors is not None and executors.default is not None:  # without any, rules decide
        uses.append(ModelUse("the choice of the scenario" if legacy else "the choice of the first step"))
    return uses


def _arms(settings: WarrantySettings) -> Iterator[dict[str, dict[str, Any]]]:
    """The step configuration of each arm of an experiment."""
    experiment = settings.orchestration.router.experiment
    if experiment is not None:
        yield from (arm.steps for arm in experiment.arms.values() if arm.steps and arm.share)
