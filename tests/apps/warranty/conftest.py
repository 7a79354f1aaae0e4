"""The two places the tools may keep things in: a SQLite file, and a CRM behind real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.adapters.crm.client import CrmClient
from detent.adapters.crm.settings import CrmSettings
from detent.apps.warranty.domain.coverage import Device
from detent.apps.warranty.domain.serials import serial_key
from detent.apps.warranty.tools.crm import CrmRegistry, CrmTickets
from detent.apps.warranty.tools.registry import Registry, WarrantySource
from detent.apps.warranty.tools.tickets import TicketDesk, Tickets
from detent.kernel.plain import to_plain
from tests.adapters.crm.server import PASSWORD, USER, Crm

NOW = datetime(2026, 3, 10, 8, 15, tzinfo=UTC)


class Place:
    """Where devices are registered and tickets are opened."""

    def __init__(self, kind: str, folder: Any) -> None:
        self.kind = kind
        self.path = folder / "warranty.db"
        self.crm: Crm | None = None

    async def source(self, devices: Sequence[Device]) -> WarrantySource:
        """A registry with these devices."""
        if self.crm is None:
            registry = Registry(self.path)
            await registry.add(devices)
            return registry
        for device in devices:
            record = {**to_plain(asdict(device)), "serial_number": device.serial}
            self.crm.devices[serial_key(device.serial)] = record
        return CrmRegistry(self.client())

    def handlers(self, **crm: Any) -> TicketDesk:
        """A desk that can be asked what became of a ticket."""
        if self.crm is None:
            return Tickets(self.path, now=lambda: NOW)
        said = {"ticket_by_key_path": "/tickets/by-key/{key}", **crm}
        return CrmTickets(self.client(**said), now=lambda: NOW)

    def client(self, **more: Any) -> CrmClient:
        assert self.crm is not None
        return CrmClient(CrmSettings(self.crm.url, auth="token", **more))

    async def count(self) -> int:
        """Tickets there."""
        return len(await Tickets(self.path).list() if self.crm is None else self.crm.tickets)


@asynccontextmanager
async def place_of(kind: str, folder: Any) -> AsyncIterator[Place]:
    place = Place(kind, folder)
    if kind == "sqlite":
        yield place
        return
    async with Crm() as place.crm:
        yield place


@pytest.fixture(params=["sqlite", "crm"])
async def place(request, tmp_path, monkeypatch):
    monkeypatch.setenv("CRM_USER", USER)
    monkeypatch.setenv("CRM_PASSWORD", PASSWORD)
    async with place_of(request.param, tmp_path) as place:
        yield place


@pytest.fixture
async def crm_place(tmp_path, monkeypatch):
    monkeypatch.setenv("CRM_USER", USER)
    monkeypatch.setenv("CRM_PASSWORD", PASSWORD)
    async with place_of("crm", tmp_path) as place:
        yield place
