"""`--record` and `--replay`: the tape of one command, and the report on it at the end.

A replayed run is kept in memory: its effects were not performed, so nobody may go on with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from detent.kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detent.adapters.cassette import Player, Recorder
    from detent.cli.options import Options
    from detent.runtime.settings import Settings


def check_options(options: Options, *, dry_run: bool = False) -> None:
    """Raise `ConfigurationError` if the command line asks for a tape that cannot be."""
    if options.record is None and options.replay is None:
        return
    if options.record is not None and options.replay is not None:
        raise ConfigurationError("--record and --replay exclude each other.")
    option = "--record" if options.record is not None else "--replay"
    if options.detach:
        raise ConfigurationError(f"--detach leaves the run to another process; leave out {option}.")
    if dry_run:
        raise ConfigurationError(f"--dry-run performs nothing; leave out {option}.")


@contextmanager
def tape(
    options: Options, settings: Settings, flows: Iterable[str], *, json: bool = False, again: str = ""
) -> Iterator[Recorder | Player | None]:
    """The tape that the command line requests for runs of these flows, or None.

    `again` are the words that play the recording back, if the same command with --replay does not. A
    recording with nothing in it is deleted when the command fails.

    Raises:
        ConfigurationError: the file cannot be recorded to, is no recording, or is one of other flows.
    """
    check_options(options)
    if options.record is not None:
        with _recorder(options.record, settings, flows, json=json, again=again) as recorder:
            yield recorder
    elif options.replay is not None:
        with player(options.replay, settings, flows, json=json) as cassette:
            yield cassette
    else:
        yield None


def exit_code(tape: object, code: int) -> int:
    """The exit code of a command: at least 1 if the run asked for something that was not recorded."""
    return max(code, 1) if getattr(tape, "mismatches", ()) else code


@contextmanager
def _recorder(
    path: str, settings: Settings, flows: Iterable[str], *, json: bool, again: str
) -> Iterator[Recorder]:
    from detent.adapters.cassette import Recorder
    from detent.cli.output import say
    from detent.insight.formatting import count
    from detent.runtime.settings import secrets_of

    recorder = Recorder(path, flows=list(flows), secrets=secrets_of(settings))
    try:
        yield recorder
    except BaseException:
        if not recorder.recorded:
            recorder.discard()  # nothing was asked, so the name is free for the next attempt
        raise
    finally:
        recorder.close()
        if recorder.path.exists() and not json:
            answers = count(recorder.recorded, "answer")
            replay = f"{again} --replay {recorder.path}".lstrip()
            say(f"Recorded {answers} in {recorder.path}. Play them back with {replay}")


@contextmanager
def player(path: str, settings: Settings, flows: Iterable[str], *, json: bool) -> Iterator[Player]:
    """A tape that plays a recording of one of these flows, and reports what was not played."""
    from detent.adapters.cassette import Player
    from detent.runtime.settings import secrets_of

    cassette = Player(path, secrets=secrets_of(settings))
    wanted = list(flows)
    if cassette.flows and not set(cassette.flows) & set(wanted):
        raise ConfigurationError(
            f"{path} is a recording of {_listed(cassette.flows)}, not of {_listed(wanted)}. "
            f"Name another file, or record one with --record."
        )
    yield cassette
    _report(cassette, json=json)


def _listed(flows: Iterable[str]) -> str:
    return " and ".join(f"'{flow}'" for flow in flows)


def _report(cassette: Player, *, json: bool) -> None:
    from detent.cli.output import say, warn
    from detent.insight.formatting import count

    for mismatch in cassette.mismatches[:1]:
        warn(str(mismatch))
    if json:
        return
    left = cassette.unplayed()
    if left and not cassette.mismatches:
        first = left[0]
        step = f" for step '{first.step}'" if first.step else ""
        which = f"is of {first.kind} '{first.subject}'{step}."
        warn(
            f"1 recorded answer was never asked for; it {which}"
            if len(left) == 1
            else f"{len(left):,} recorded answers were never asked for; the first {which}"
        )
    say(f"Replayed {count(cassette.played, 'answer')}: nothing was performed, and no run is kept.")
