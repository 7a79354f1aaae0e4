"""What can be wrong with a song that was handed in, and with the libraries that read it."""

from __future__ import annotations

import importlib
from typing import Any

from detent.kernel.errors import DetentError, IntegrationMissing


class AudioProblem(DetentError):
    """A song, or a wish about its analysis, is refused.

    `code` is one of `missing`, `unreadable`, `format`, `empty`, `too_long`, `too_large` for songs, and
    `analyser`, `bpm`, `beats_per_bar` for wishes.
    """

    exit_code = 2

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def library(name: str, extra: str = "choreography") -> Any:
    """Import a library of an extra.

    Raises:
        IntegrationMissing: it is not installed; the message has the line that installs it.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # soundfile without its shared library is an OSError
        raise IntegrationMissing(
            f"Analysing songs needs {name.partition('.')[0]}, which cannot be imported ({error}). "
            f"Get it with: pip install 'detent[{extra}]'"
        ) from error
