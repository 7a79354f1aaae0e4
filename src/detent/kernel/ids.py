"""Ids of runs: which texts a person may choose, and how the ids of child runs follow from their keys.

A child's id is its parent's, a dot and its key. Dots inside a key are escaped, so that the last dot of a
child's id always ends its parent's. A person may choose an id with dots, `release-1.2`: should the child `2`
of `release-1` find that id taken, it gets `release-1..2`, which nobody can choose. Which run belongs to which
is therefore never read from an id: a row names its parent.
"""

from __future__ import annotations

import unicodedata

from detent.kernel.errors import ConfigurationError

LONGEST_ID = 200
"""Characters of an id that a person chooses, and of a child's key."""
LONGEST_CHILD_ID = 2000
"""Bytes of a child's id, those of all above it included: what every database can put into an index."""
ROOT = "root_run"
"""Key of the configuration of a run and all below it: the run at the top, where its id has a dot."""

_REFUSED = {
    "Cc": "a control character",
    "Cs": "half a surrogate pair",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


def check_run_id(run_id: str) -> str:
    """The id, if a new run may have it; `ConfigurationError` says what is wrong with it."""
    problem = _problem(run_id)
    if problem is None and run_id != run_id.strip():
        problem = "begins or ends with a space"
    elif problem is None and run_id.startswith("-"):
        problem = "begins with '-', like an option"
    elif problem is None and (run_id.startswith(".") or run_id.endswith(".") or ".." in run_id):
        problem = "begins or ends with a dot, or has two in a row"
    if problem is not None:
        raise ConfigurationError(
            f"{_shown(run_id)} cannot be the id of a run: it {problem}. "
            f"An id has 1 to {LONGEST_ID} characters, such as 'release-1.2' or 'order/17'."
        )
    return run_id


def check_key(key: str) -> str:
    """The key, if a child run may have it; `ConfigurationError` says what is wrong with it."""
    problem = _problem(key)
    if problem is not None:
        raise ConfigurationError(
            f"{_shown(key)} cannot be the key of a child: it {problem}. A key has 1 to {LONGEST_ID} "
            f"characters."
        )
    return key


def child_ids(parent: str, key: str) -> tuple[str, ...]:
    """The ids that the child of a key may have, the usual one first.

    The second is for a child that finds the first one taken by a run a person named so. A third one is there
    where earlier versions wrote the key as it was.
    """
    escaped = key.replace("%", "%25").replace(".", "%2E")
    ids: tuple[str, ...] = (f"{parent}.{escaped}", f"{parent}..{escaped}")
    if escaped != key:
        ids += (f"{parent}.{key}",)
    if len(ids[1].encode("utf-8", "surrogatepass")) > LONGEST_CHILD_ID:
        raise ConfigurationError(
            f"The child '{key[:40]}' of run {parent[:40]}… would have an id of more than "
            f"{LONGEST_CHILD_ID:,} bytes. Use shorter keys, or nest less deeply."
        )
    return ids


def guessed_root(run_id: str) -> str:
    """The root of a run that does not name it: what stands before the first dot of its id.

    True of every run whose root has no dot in its id; the others name their root in their configuration.
    """
    return run_id.partition(".")[0]


def _problem(text: object) -> str | None:
    if not isinstance(text, str):
        return f"must be text, not {type(text).__name__}"
    if not text.strip():
        return "is empty"
    if len(text) > LONGEST_ID:
        return f"has {len(text):,} characters"
    for character in "" if text.isprintable() else text:
        if (kind := _REFUSED.get(unicodedata.category(character))) is not None:
            return f"has {kind} in it ({ascii(character)[1:-1]})"
    return None


def _shown(text: object) -> str:
    shown = ascii(text) if isinstance(text, str) and not text.isprintable() else f"'{text}'"
    return shown if len(shown) <= 60 else f"{shown[:57]}…'"
