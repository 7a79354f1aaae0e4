"""Checks before mails are taken in: the CRM, and the models that perform steps.

Mail servers are checked when they are opened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from detent.dispatch.autonomy import AutonomyLevel
from detent.dispatch.dispatcher import dispatcher_of
from detent.engine.tools import ToolError
from detent.kernel.errors import IntegrationMissing

if TYPE_CHECKING:
    from detent.apps.warranty.settings import WarrantySettings
    from detent.apps.warranty.wiring import Components
    from detent.dispatch.plan import Plan
    from detent.engine.engine import Engine

NOBODY = "SN00000"
"""A serial number for a test query; there need be no such device."""
PATIENCE = 10.0
"""Seconds a model's server has to accept a connection."""


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


async def check_models(components: Components, engine: Engine, *, legacy: bool) -> None:
    """Check that the models of agent steps can be used.

    An agent step without any configured model is allowed: its handler performs it.

    Raises:
        IntegrationMissing: names the model that cannot be used.
    """
    source = dispatcher_of(engine).settings.executors
    if source is None or dispatcher_of(engine).settings.force_deterministic:
        return
    providers = dict.fromkeys(
        provider or source.default for provider in _providers(components, engine, legacy)
    )
    for provider in providers:
        if provider is not None:
            await _check_model(engine, provider)


def _providers(components: Components, engine: Engine, legacy: bool) -> Iterator[str | None]:
    """The providers in use; None stands for the default one."""
    flow = components.flow
    for own in ({}, *_arms(components.settings)):
        for step in flow.steps.values():
            plan: Plan = dispatcher_of(engine).plan_for(flow, step, own=own or None)
            if plan.alone or (plan.agent and plan.config.autonomy is not AutonomyLevel.OPERATOR):
                yield plan.config.provider
    router = components.settings.orchestration.router
    arms = router.experiment.arms.values() if router.experiment is not None else ()
    if legacy or "llm" in (router.strategy, *(arm.strategy for arm in arms)):
        yield None


def _arms(settings: WarrantySettings) -> Iterator[dict[str, dict[str, Any]]]:
    """The step configuration of each arm of an experiment."""
    experiment = settings.orchestration.router.experiment
    if experiment is not None:
        yield from (arm.steps for arm in experiment.arms.values() if arm.steps and arm.share)


async def _check_model(engine: Engine, provider: str) -> None:
    executor = dispatcher_of(engine).executor(provider, {})
    if isinstance(executor, str):
        raise IntegrationMissing(f"The model '{provider}' cannot be used: {executor}")
    available = executor.available()
    if not available.ok:
        why = available.why_not or "it says it is not available"
        raise IntegrationMissing(f"The model '{provider}' cannot be used: {why.rstrip('.')}.")
    address = getattr(getattr(executor, "model", None), "base_url", None)
    if isinstance(address, str):
        await _reach(provider, address)


async def _reach(provider: str, address: str) -> None:
    """Connect to a model's server and disconnect. Skipped behind a proxy, where only a request would tell."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if getproxies() and not _here(host):
        return
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except OSError as error:  # a time-out is one
        raise IntegrationMissing(
            f"The model '{provider}' cannot be used: there is no answer at {host}:{port} "
            f"({type(error).__name__}). Start its server, correct its base_url, or give its steps back to "
            f"their handlers (mode: deterministic)."
        ) from error
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _here(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", "::1")
