"""The cover of a device, and the formats in which other systems report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

STATUSES = ("valid", "expired", "not_found")
CODES = ("timeout", "connection", "auth", "server", "bad_response", "breaker_open")
"""Error codes of a lookup."""

RENAMED = {"expiration_date": "expires", "serial": "serial_number", "coverage": "warranty_type"}
"""Field names of other systems, with ours."""

_DATES = ("service_contract_end", "manufacturer_end", "extension_until")


@dataclass(frozen=True, slots=True)
class Device:
    """A device in the registry."""

    serial: str
    device_name: str | None = None
    customer_ref: str | None = None
    service_contract_end: date | None = None
    """The contract's last day."""
    manufacturer_end: date | None = None
    """The last day of the manufacturer's warranty."""
    extension_until: date | None = None
    """The last day on which an extension may still be bought."""


def coverage(device: Device | None, on: date, serial: str | None = None) -> dict[str, Any]:
    """The answer of `check_warranty` about a device on a day; `serial` is the number looked up, if unknown.

    A running service contract takes precedence over a running manufacturer's warranty; the last day is
    covered. A device without dates counts as unknown.
    """
    if device is None:
        return _result("not_found", serial_number=serial)
    terms = [("service_contract", device.service_contract_end), ("manufacturer", device.manufacturer_end)]
    known = [(kind, end) for kind, end in terms if end is not None]
    running = [(kind, end) for kind, end in known if end >= on]
    status, (kind, end) = "not_found", (None, None)
    if running:
        status, (kind, end) = "valid", running[0]
    elif known:
        status, (kind, end) = "expired", max(known, key=lambda term: term[1])
    return _result(
        status,
        serial_number=device.serial,
        device_name=device.device_name,
        warranty_type=kind,
        expires=end.isoformat() if end is not None else None,
        customer_ref=device.customer_ref,
        extension_available=device.extension_until is not None and device.extension_until >= on,
    )


def normalised(answer: Any) -> dict[str, Any]:
    """An answer of another system, or of a recorded case, in our format; `{"error": …}` for a failure."""
    if not isinstance(answer, Mapping):
        return failure("bad_response", f"the answer is a {type(answer).__name__}, not an object")
    fields = dict(answer)
    for theirs, ours in RENAMED.items():
        if theirs in fields and fields.get(ours) is None:
            fields[ours] = fields[theirs]
    error = fields.get("error")
    if error:
        return _failed(error, fields)
    status = fields.get("status")
    status = (
        "_".join(status.lower().replace("-", " ").replace("_", " ").split())
        if isinstance(status, str)
        else None
    )
    if status not in STATUSES:
        return failure("bad_response", f"its status is none of {', '.join(STATUSES)}")
    try:
        expires = read_date(fields.get("expires"))
    except ValueError:
        return failure("bad_response", "its date of expiry is no date")
    kind = fields.get("warranty_type")
    kind = "_".join(kind.lower().replace("-", " ").split()) if isinstance(kind, str) else None
    return _result(
        status,
        serial_number=_text(fields.get("serial_number")),
        device_name=_text(fields.get("device_name")),
        warranty_type=kind if kind in ("service_contract", "manufacturer") else None,
        expires=expires.isoformat() if expires is not None else None,
        customer_ref=_text(fields.get("customer_ref")),
        extension_available=fields.get("extension_available") is True,
    )


def device_of(record: Mapping[str, Any]) -> Device:
    """A device from a record with our names.

    Raises:
        ValueError: names the field that is wrong.
    """
    dates = {}
    for name in _DATES:
        try:
            dates[name] = read_date(record.get(name))
        except ValueError:
            raise ValueError(f"{name} is no date (YYYY-MM-DD)") from None
    serial = _text(record.get("serial_number")) or _text(record.get("serial"))
    if serial is None:
        raise ValueError("serial_number is missing")
    return Device(serial, _text(record.get("device_name")), _text(record.get("customer_ref")), **dates)


def describes_device(record: Mapping[str, Any]) -> bool:
    """Whether a record has a device's own dates, rather than the cover that follows from them."""
    return any(name in record for name in _DATES)


def failure(code: str, message: str, transient: bool = False) -> dict[str, Any]:
    """A failed lookup, in our format."""
    return {"error": {"code": code, "message": message, "transient": transient}}


def read_date(value: Any) -> date | None:
    """A date from ISO text, with or without a time; None for an empty value.

    Raises:
        ValueError: the value is not a date.
    """
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    if not isinstance(value, str):
        raise ValueError("no date")
    text = value.strip()
    if len(text) == 10:
        if text[4:5] != "-":
            raise ValueError("no date")
        return date.fromisoformat(text)
    if len(text) > 10 and text[10] in "T " and text[4] == "-":
        datetime.fromisoformat(text)
        return date.fromisoformat(text[:10])
    raise ValueError("no date")


def _failed(error: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(error, Mapping):
        code = error.get("code")
        known = code if code in CODES else "server"
        message = _text(error.get("message")) or "no reason given"
        transient = error.get("transient")
        usual = known not in ("auth", "bad_response")
        return failure(known, message, transient if isinstance(transient, bool) else usual)
    text = error if isinstance(error, str) else "no reason given"
    if " ".join(text.lower().split()).rstrip(".!") == "device not found":
        return _result("not_found", serial_number=_text(fields.get("serial_number")))
    return failure("server", text, transient=True)


def _result(status: str, **facts: Any) -> dict[str, Any]:
    return {
        "status": status,
        "serial_number": facts.get("serial_number"),
        "device_name": facts.get("device_name"),
        "warranty_type": facts.get("warranty_type"),
        "expires": facts.get("expires"),
        "customer_ref": facts.get("customer_ref"),
        "extension_available": facts.get("extension_available", False),
    }


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value).strip() or None
