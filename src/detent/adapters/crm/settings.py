"""The settings of a CRM: how to reach it and its names for things. Secrets are named here, not held."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from detent.adapters.hosts import host_of, on_this_machine
from detent.kernel.errors import DefinitionError, nearest

Auth = Literal["none", "basic", "token"]

DEVICE = (
    "serial_number", "device_name", "customer_ref", "service_contract_end", "manufacturer_end",
    "extension_until", "status", "warranty_type", "expires", "extension_available", "error",
)  # fmt: skip
"""The fields read of a device."""

TICKET = (
    "serial_number", "customer_email", "issue_description", "priority", "category", "warranty_status",
    "subject", "source_message_id",
)  # fmt: skip
"""The fields sent of a ticket."""

RECEIPT = ("ticket_id", "status", "created_at", "source_message_id")
"""The fields read of a ticket."""


@dataclass(frozen=True, slots=True)
class CrmSettings:
    """A CRM's address, paths and field names."""

    base_url: str
    auth: Auth = "token"
    token_path: str = "/token"
    device_path: str = "/devices/{serial}"
    ticket_path: str = "/tickets"
    ticket_by_key_path: str | None = None
    """The path of a ticket by its key, as `/tickets/by-key/{key}`; None where there is none."""
    idempotent: bool = False
    """Whether the CRM honours `Idempotency-Key`: asking again opens no second ticket."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Our names and the CRM's (dots lead inside): `expires` of a device, `ticket.subject` as sent,
    `receipt.ticket_id` as answered."""
    user_env: str = "CRM_USER"
    """Name of the environment variable that holds the user."""
    password_env: str = "CRM_PASSWORD"
    timeout_s: float = 10.0
    """Seconds for a whole request."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise DefinitionError("The settings of the CRM", problems)

    @classmethod
    def read(cls, said: Mapping[str, Any], where: str = "tools.crm") -> CrmSettings:
        """Settings from a mapping; unknown keys are errors, all problems at once."""
        names = [item.name for item in fields(cls)]
        unknown = [
            f"{where}.{name}: there is no such key.{nearest(str(name), names)}"
            for name in said
            if name not in names
        ]
        if unknown:
            raise DefinitionError("The settings of the CRM", unknown)
        return cls(**{"base_url": "", **said})

    def _problems(self) -> Any:
        yield from self._wrong_address()
        if self.auth not in get_args(Auth):
            yield f"auth must be one of {', '.join(get_args(Auth))}."
        paths: list[tuple[str, Any, str | None]] = [
            ("token_path", self.token_path, None),
            ("device_path", self.device_path, "serial"),
            ("ticket_path", self.ticket_path, None),
        ]
        if self.ticket_by_key_path is not None:
            paths.append(("ticket_by_key_path", self.ticket_by_key_path, "key"))
        for name, path, hole in paths:
            if not isinstance(path, str) or not path.startswith("/"):
                yield f"{name} must be a path that begins with '/'."
            elif set(re.findall(r"\{(.*?)\}", path)) != ({hole} if hole else set()):
                yield f"{name} must have {'{' + hole + '}' if hole else 'nothing'} to be filled in."
        for name in ("user_env", "password_env"):
            if not isinstance(value := getattr(self, name), str) or not re.fullmatch(r"[A-Za-z_]\w*", value):
                yield f"{name} must be the name of an environment variable, not the secret itself."
        if (
            isinstance(self.timeout_s, bool)
            or not isinstance(self.timeout_s, int | float)
            or self.timeout_s <= 0
        ):
            yield "timeout_s must be more than 0 seconds."
        if not isinstance(self.idempotent, bool):
            yield "idempotent must be true or false."
        yield from self._wrong_fields()

    def _wrong_address(self) -> Any:
        try:
            parts = urlsplit(self.base_url) if isinstance(self.base_url, str) else urlsplit("")
            _ = parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield "base_url must be an https address, such as https://crm.example/api."
        elif parts.username or parts.password:
            yield "base_url must hold no user and no password. Name their variables: user_env, password_env."
        elif parts.query or parts.fragment:
            yield "base_url must end with its path."
        elif parts.scheme == "http" and self.auth != "none" and not on_this_machine(self.base_url):
            yield "base_url must be https: over http the password could be read on the way."

    def _wrong_fields(self) -> Any:
        known = [*DEVICE, *(f"ticket.{name}" for name in TICKET), *(f"receipt.{name}" for name in RECEIPT)]
        if not isinstance(self.fields, Mapping):
            yield "fields must map our names to theirs."
            return
        for name, theirs in self.fields.items():
            if name not in known:
                yield f"fields.{name}: there is no such field.{nearest(str(name), known)}"
            elif not isinstance(theirs, str) or not theirs:
                yield f"fields.{name}: must be the CRM's name for it."

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        return host_of(self.base_url)
