"""Trying steps that act in rounds: called again from their top after every effect, as after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from detent.engine.context import FROM_THE_TOP


@contextmanager
def from_the_top() -> Iterator[None]:
    """Have runs started in this block call a step again from its top after every effect it performs.

    A step that does not come to the same effects again, because the time or a random number is part of their
    arguments, fails here as it would after a crash.
    """
    token = FROM_THE_TOP.set(True)
    try:
        yield
    finally:
        FROM_THE_TOP.reset(token)
