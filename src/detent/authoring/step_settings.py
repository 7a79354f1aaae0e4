"""Problems of settings that configure a step or an agent which does not exist.

Files of definitions and the settings of a project are checked in different rooms; the sentences are written
once, here.
"""

from __future__ import annotations

from detent.authoring.problem import Place, Problem

UNKNOWN = "E025"
"""Code of an entry under `steps` or `agents` that names nothing."""


def unknown_step(
    key: str, place: Place, path: str, suggestions: tuple[str, ...] = (), reason: str = ""
) -> Problem:
    """The problem of an entry under `steps`; `reason` says why there is no such step, if more is known."""
    message = f"there is no step '{_cut(key)}'{f': {reason}' if reason else ''}."
    if not suggestions and not reason:
        message += " See `detent steps list`; if its flow is in a file, list that file under `plugins`."
    return Problem(UNKNOWN, message, place, path, suggestions)


def unknown_agent(
    key: str, place: Place, path: str, suggestions: tuple[str, ...], known: list[str]
) -> Problem:
    """The problem of an entry under `agents`."""
    listed = "" if suggestions else f" Agents: {', '.join(known)}."
    return Problem(UNKNOWN, f"there is no agent '{_cut(key)}'.{listed}", place, path, suggestions)


def _cut(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:59]}…"
