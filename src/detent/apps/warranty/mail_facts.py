"""The facts of a run that a mail to its customer may state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from detent.apps.warranty.handlers import Handlers
from detent.apps.warranty.mail_data import customer_name, mail_of
from detent.dispatch.prose.fact_kinds import day_of
from detent.dispatch.prose.facts import Count, Facts, Unit

_COUNTS: tuple[tuple[str, Unit], ...] = (
    ("response_days", "working_days"),
    ("repair_warranty_months", "months"),
)
_SHORTEST_NAME = 3
"""Letters of the shortest word of an address that is taken for a name."""


def mail_facts(handlers: Handlers, step: str, data: Mapping[str, Any]) -> Facts:
    """The facts of a run in one of its steps.

    Nothing in the customer's own text is a fact; of the mail, only the sender's name and addresses are.
    """
    mail, settings = mail_of(data), handlers.settings.warranty
    covered = data.get("warranty_data") or {}
    expires = day_of(covered.get("expires"))
    file = handlers.playbook.steps.get(step) if handlers.playbook is not None else None
    needs = set(file.needs) if file is not None else set()
    addresses = tuple(dict.fromkeys(filter(None, (mail.reply_address, mail.from_address))))
    local = [
        word
        for address in addresses
        for word in re.findall(r"[^\W\d_]+", address.rpartition("@")[0])
        if len(word) >= _SHORTEST_NAME
    ]
    return Facts(
        handlers.language(data),
        identifiers=_texts(data.get("serial_number"), data.get("ticket_id"), covered.get("serial_number")),
        devices=_texts(covered.get("device_name")),
        days=(expires,) if expires else (),
        counts=tuple(Count(getattr(settings, name), unit) for name, unit in _COUNTS if name in needs),
        names=(*_texts(customer_name(mail)), *local),
        addresses=addresses,
        contacts=tuple(contact.text for contact in settings.contacts),
        sentences=_texts(handlers.own_text(step, data)),
        inner=tuple(handlers.playbook.steps) if handlers.playbook is not None else (),
    )


def _texts(*values: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(value) for value in values if value))
