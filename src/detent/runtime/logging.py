"""Configures structlog: text or JSON lines, to standard error or a file, from a level upwards."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TextIO

from detent.adapters.disk import open_private
from detent.kernel.control_characters import json_shown, shown
from detent.kernel.errors import ConfigurationError, nearest
from detent.runtime.settings import LOG_LEVELS, Settings


def wanted(settings: Settings) -> bool:
    """Whether the settings configure a log."""
    return bool(settings.section("logging"))


def configure(settings: Settings, level: str | None = None, *, split: bool = False) -> None:
    """Configure the log from the settings; `level` comes from the command line and takes precedence.

    With `split`, information goes to standard output, warnings and errors to standard error.
    """
    name = str(level or settings.get("logging", "level", default="info")).lower()
    if name not in LOG_LEVELS:
        raise ConfigurationError(
            f"There is no log level '{name}'.{nearest(name, LOG_LEVELS)} Levels: {', '.join(LOG_LEVELS)}."
        )
    form = str(settings.get("logging", "format", default="text")).lower()
    if form == "console":
        form = "text"
    where = settings.get("logging", "file")
    stream = _open(settings.base("logging") / str(where)) if where else sys.stderr
    _configure(LOG_LEVELS[name], form, stream, split=split and not where)


def _open(path: Path) -> TextIO:
    try:
        stream: TextIO = open_private(path, "a", encoding="utf-8", buffering=1)
        return stream
    except OSError as error:
        raise ConfigurationError(f"The log file {path} cannot be written: {error.strerror}.") from error


def _configure(level: int, form: str, stream: TextIO, split: bool = False) -> None:
    import structlog

    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=form == "json"),
    ]
    if form == "json":
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_json),
        ]
    else:
        processors += [
            _show_controls,
            structlog.dev.ConsoleRenderer(
                colors=_coloured(stream), pad_event_to=16, exception_formatter=_traceback
            ),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_TwoStreams if split else structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )


def _json(event: Any, **options: Any) -> str:
    return json_shown(json.dumps(event, ensure_ascii=False, **options))


def _show_controls(_: Any, __: str, event: Any) -> Any:
    """Make control characters visible: facts may hold text from outside."""
    return {name: shown(value) if isinstance(value, str) else value for name, value in event.items()}


def _traceback(stream: TextIO, info: Any) -> None:
    from io import StringIO

    from structlog.dev import plain_traceback

    text = StringIO()
    plain_traceback(text, info)
    stream.write(shown(text.getvalue()))


class _TwoStreams:
    """Writes information to standard output, warnings and errors to standard error."""

    def __init__(self, *_: Any) -> None:
        pass

    def debug(self, line: str) -> None:
        """Write information."""
        print(line, file=sys.stdout, flush=True)

    def warning(self, line: str) -> None:
        """Write a warning or an error."""
        print(line, file=sys.stderr, flush=True)

    info = msg = debug
    error = critical = fatal = exception = warning


def _coloured(stream: TextIO) -> bool:
    import os

    return stream.isatty() and not os.environ.get("NO_COLOR")
