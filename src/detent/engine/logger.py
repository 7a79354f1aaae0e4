"""Logs events: a name of the form `noun.verb` and its facts.

Events go to structlog if the program has configured it, otherwise to the standard logger `detent`, which is
silent until the program gives it a handler. Formats, files and levels are the program's choice.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

NAME = "detent"

_standard = logging.getLogger(NAME)
# A library logs nothing unless the program asks for it, warnings included.
_standard.addHandler(logging.NullHandler())


_about: ContextVar[Mapping[str, Any]] = ContextVar("detent_log_about", default={})  # noqa: B039  never changed


@contextmanager
def about(**facts: Any) -> Iterator[None]:
    """Add these facts to every event logged in this block and by tasks started in it."""
    token = _about.set({**_about.get(), **facts})
    try:
        yield
    finally:
        _about.reset(token)


_quiet: ContextVar[bool] = ContextVar("detent_log_quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing in this block: what happens in it is made up, and would be taken for an event."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def wants(level: int) -> bool:
    """Whether events of this level are logged. Cheap: ask before gathering facts."""
    if _quiet.get():
        return False
    structlog = _configured_structlog()
    if structlog is None:
        return _standard.isEnabledFor(level)
    logger = structlog.get_logger(NAME).bind()
    if isinstance(logger, structlog.stdlib.BoundLogger):
        return True  # it hands every event to its processors, and they decide
    # Looked up on the class: some structlog loggers take any attribute of an instance for a level's name.
    enabled = getattr(type(logger), "is_enabled_for", None)
    return enabled is None or bool(enabled(logger, level))


def debug(event: str, **facts: Any) -> None:
    """Log a detail for developers. Text from outside is logged at this level only."""
    _log(DEBUG, "debug", event, facts)


def info(event: str, **facts: Any) -> None:
    """Log an expected event."""
    _log(INFO, "info", event, facts)


def warning(event: str, **facts: Any) -> None:
    """Log a refusal or a deviation."""
    _log(WARNING, "warning", event, facts)


def error(event: str, **facts: Any) -> None:
    """Log a failure."""
    _log(ERROR, "error", event, facts)


def _configured_structlog() -> ModuleType | None:
    """structlog, if the program has both loaded and configured it. It is never loaded from here."""
    structlog = sys.modules.get("structlog")
    if structlog is None:
        return None
    # Another thread may be half-way through importing it.
    is_configured = getattr(structlog, "is_configured", None)
    return structlog if is_configured is not None and is_configured() else None


def _log(level: int, method: str, event: str, facts: dict[str, Any]) -> None:
    if _quiet.get():
        return
    facts = {**_about.get(), **facts}
    structlog = _configured_structlog()
    if structlog is not None:
        # A fresh logger each time, so that a later configuration takes effect.
        getattr(structlog.get_logger(NAME), method)(event, **facts)
    elif _standard.isEnabledFor(level):
        # Level 3 is the caller of info(), warning() and so on.
        _standard.log(level, _line(event, facts), extra={NAME: facts}, stacklevel=3)


def _line(event: str, facts: dict[str, Any]) -> str:
    return " ".join([event, *(f"{key}={_word(value)}" for key, value in facts.items())])


def _word(value: Any) -> str:
    """The value as one word: text that is none is quoted, so a line break in it cannot forge a line."""
    text = str(value)
    if text.isprintable() and text and " " not in text and '"' not in text and "=" not in text:
        return text
    return repr(text)
