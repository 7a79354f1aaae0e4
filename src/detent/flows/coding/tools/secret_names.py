"""Files that look as if they held secrets, told by their names alone."""

from __future__ import annotations

import re
from fnmatch import translate

PATTERNS = (".env*", "*.pem", "id_*", "*credentials*")
"""Patterns of the last part of a path, in any case."""
_NAMES = re.compile("|".join(map(translate, PATTERNS)), re.IGNORECASE)


def is_secret(path: str) -> bool:
    """Whether a file has a name that people give to files with secrets."""
    return _NAMES.match(path.rstrip("/").rpartition("/")[2]) is not None
