"""Files that look as if they held secrets, told by their names alone."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePath

PATTERNS = (".env*", "*.pem", "id_*", "*credentials*")
"""Patterns of the last part of a path, in any case."""


def is_secret(path: str) -> bool:
    """Whether a file has a name that people give to files with secrets."""
    name = PurePath(path).name.casefold()
    return any(fnmatchcase(name, pattern) for pattern in PATTERNS)
