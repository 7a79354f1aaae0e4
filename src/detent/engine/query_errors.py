"""Errors of queries as the journal keeps them, for steps that come to the same queries again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from detent.engine.user_errors import message_of

_BUILT_IN = (ConnectionError, FileNotFoundError, KeyError, LookupError, OSError, PermissionError,
             TimeoutError, Transient, TypeError, ValueError)  # fmt: skip


def error_facts(error: Exception) -> dict[str, Any]:
    """A query's error as the journal keeps it."""
    if isinstance(error, ToolError):
        return {"code": error.code, "message": error.message, "transient": error.transient}
    return {"type": type(error).__name__, "message": message_of(error)[:2000]}


def error_again(facts: Mapping[str, Any]) -> Exception:
    """The error that a query raised when it was first made."""
    if "code" in facts:
        error = ToolError(facts["code"], facts["message"], transient=facts["transient"])
        if not error.transient:
            return error
        transient = Transient(str(error))
        transient.__cause__ = error
        return transient
    kind = next((kind for kind in _BUILT_IN if kind.__name__ == facts["type"]), RuntimeError)
    return kind(facts["message"])


def place_of(name: str, records: Mapping[str, Any], failures: int | None) -> str:
    """The name under which the answer of a query is kept, or will be.

    For an agent, after so many `failures` of the same query in its visit, each kept under a name of its own.
    For a handler (None) behind all those failures: what failed for an agent is asked again.
    """
    place = failures or 0
    while failures is None and records.get(_at(name, place), {}).get("by") == "agent":
        place += 1
    return _at(name, place)


def _at(name: str, place: int) -> str:
    return f"{name}~{place}" if place else name
