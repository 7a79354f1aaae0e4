"""`--record` and `--replay`: the tape of one command, and the report on it at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from detent.adapters.cassette import Player, Recorder


@contextmanager
def tape(record: str | None, replay: str | None, *, json: bool = False) -> Iterator[Recorder | Player | None]:
    """The tape that the command line requests, or None."""
    if record is not None and replay is not None:
        raise ConfigurationError("--record and --replay exclude each other.")
    if record is None and replay is None:
        yield None
        return
    from detent.adapters.cassette import Player, Recorder

    cassette = Recorder(record) if record is not None else Player(str(replay))
    try:
        yield cassette
    finally:
        cassette.close()
        if not json:
            _report(cassette)


def _report(cassette: Recorder | Player) -> None:
    from detent.adapters.cassette import Recorder
    from detent.cli.output import say, warn
    from detent.insight.formatting import count

    if isinstance(cassette, Recorder):
        path = cassette.path
        answers = count(cassette.recorded, "answer")
        say(f"Recorded {answers} in {path}. Play them back with --replay {path}")
        return
    for mismatch in cassette.mismatches[:1]:
        warn(str(mismatch))
    left = cassette.unplayed()
    if left and not cassette.mismatches:
        first = left[0]
        step = f" for step '{first.step}'" if first.step else ""
        warn(
            f"{len(left):,} recorded answers were never asked for; the first is of {first.kind} "
            f"'{first.subject}'{step}."
        )
