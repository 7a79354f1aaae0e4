"""Record and replay: the answers of agents, queries and effects, kept in a file and given back from it.

A cassette is JSON lines: a header, then one line per interaction, written as soon as it is over. Playing one
asks nobody: an interaction is found by its request, not by its time, so that concurrent ones may come in
another order. A request that was not recorded is a `CassetteMismatch`, never a guess.

Secrets are not written: known values are masked, and a mark that stands for a secret in one run matches the
mark of the same secret in another.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Self, cast, get_args

from detent.adapters.disk import open_private
from detent.engine import logger
from detent.engine.ports import TapeCall, TapeError
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from detent.kernel.errors import ConfigurationError, DetentError, InvalidValue, nearest
from detent.kernel.plain import DEEPEST, canonical, copied, decode, digest, encode, to_plain

VERSION = 1
"""Written in the header; a cassette of a later version is refused."""

TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"

LARGEST = 256 * 1024 * 1024
"""Bytes of the largest cassette that is played; in memory it takes several times as much."""

LONGEST_SHOWN = 200
"""Characters shown of each side of a difference."""

MASKED = "***"
"""Written in place of a secret."""
_MARK = re.compile(r"\*\*\*([^*:\s]+):[0-9a-f]{12}\*\*\*")
"""A mark in place of a secret input: its name, and a number that differs in every run."""

NOT_THERE = "(nothing)"
"""Shown in a difference for a side that has no value there."""

Kind = Literal["agent", "query", "effect"]

_inside: ContextVar[bool] = ContextVar("detent_cassette_inside_agent", default=False)


class Interaction(NamedTuple):
    """One line of a cassette."""

    line: int
    """Its number in the file; the header is line 1."""
    kind: Kind
    where: str
    step: str
    subject: str
    request: Any
    answer: Any = None
    error: Mapping[str, Any] | None = None
    """The exception raised instead of an answer."""
    inside: bool = False
    """Asked by an agent while it was answering, so not asked again when the agent's answer is played."""

    @property
    def channel(self) -> Channel:
        """The part that interactions with different requests share."""
        return (self.kind, self.where, self.step, self.subject)

    def __str__(self) -> str:
        return f"{_describe(*self.channel)} (line {self.line})"


Channel = tuple[str, str, str, str]


class CassetteMismatch(TapeError):
    """A request that was not recorded. Its message shows values: it is meant for people who run the test."""

    def __init__(
        self,
        path: Path,
        call: TapeCall,
        what: str,
        *,
        line: int | None = None,
        difference: Difference | None = None,
    ) -> None:
        self.path = path
        self.kind = call.kind
        self.where = call.where
        self.step = call.step
        self.subject = call.subject
        self.line = line
        """Line of the interaction it was compared with."""
        self.difference = difference
        """The first difference."""
        self.what = what
        """The problem, without its place."""
        location = f"{path}, line {line}" if line is not None else str(path)
        super().__init__(f"{location}: {_describe(*call[:4])}: {what}")


class RecordedError(DetentError):
    """An exception of an unknown type, as it was recorded. Its class has the recorded name."""


# -- recording ----------------------------------------------------------------------------------------------


class Recorder:
    """A tape that writes a cassette. The file is opened at once, so that a bad path fails before the run."""

    def __init__(
        self,
        path: str | Path,
        overwrite: bool = False,
        *,
        flows: Iterable[str] = (),
        secrets: Iterable[str] = (),
    ) -> None:
        """Open a new file for the runs of these flows; the values of `secrets` are masked in it.

        Raises:
            ConfigurationError: it exists, is a folder, or cannot be written.
        """
        self.path = Path(path)
        self.recorded = 0
        """Interactions written so far."""
        self._failed: OSError | None = None
        self._secrets = _longest_first(secrets)
        try:
            self._file: IO[bytes] = open_private(self.path, "wb" if overwrite else "xb", buffering=0)
        except FileExistsError:
            if self.path.is_dir():
                raise ConfigurationError(f"{self.path} is a folder; name a new file in it.") from None
            raise ConfigurationError(
                f"{self.path} already exists and is not overwritten. Record to another file, or delete it."
            ) from None
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be written: {error.strerror or error}.") from error
        # Looked up and not imported: `detent` itself imports rooms above this one.
        header: dict[str, Any] = {"cassette": VERSION, "detent": import_module("detent").__version__}
        self._write({**header, "flows": list(flows)} if flows else header)
        if self._failed is not None:
            self._file.close()
            raise ConfigurationError(f"{self.path} cannot be written: {self._failed.strerror}.")

    plays = False

    async def through(self, call: TapeCall, work: Callable[[], Awaitable[Any]]) -> Any:
        """Ask, and record the answer or the error. A cancelled attempt records nothing."""
        line: dict[str, Any] = {
            "kind": call.kind,
            "where": call.where,
            "step": call.step,
            "subject": call.subject,
            "request": _masked(to_plain(call.request, "request"), self._secrets),
        }
        if _inside.get():
            line["inside"] = True
        outer = _inside.set(_inside.get() or call.kind == "agent")
        try:
            answer = to_plain(await work(), "answer")
        except (asyncio.CancelledError, TapeError):
            raise
        except Exception as error:
            self._write({**line, "error": _masked(_error_to_plain(error), self._secrets)})
            raise
        finally:
            _inside.reset(outer)
        self._write({**line, "answer": _masked(answer, self._secrets)})
        return answer

    def discard(self) -> None:
        """Close the file and delete it."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Finish the file; raises if something could not be written."""
        self._file.close()
        if self._failed is not None:
            raise DetentError(
                f"{self.path} is incomplete after {self.recorded} interactions: "
                f"{self._failed.strerror or self._failed}. The run itself was not touched by this."
            ) from self._failed

    def _write(self, line: Mapping[str, Any]) -> None:
        """Write one line at once. A full disk spoils the recording, not the run."""
        if self._failed is not None:
            return
        rest = memoryview((encode(line) + "\n").encode())
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._failed = error
            logger.error("cassette.write_failed", path=str(self.path), error=error.strerror or str(error))
            return
        self.recorded += "kind" in line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_KNOWN: Mapping[str, type[Exception]] = {
    "ToolError": ToolError,
    "Transient": Transient,
    "TimeoutError": TimeoutError,
    "ConnectionError": ConnectionError,
}
"""Exceptions the engine treats in different ways; a subclass stays one when it is played."""


def _error_to_plain(error: Exception) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": type(error).__name__}
    known = next((name for name, cls in _KNOWN.items() if isinstance(error, cls)), None)
    if known is not None and known != plain["type"]:
        plain["is"] = known
    if isinstance(error, ToolError):
        message = "" if str(error) == error.code else error.message
        return {**plain, "code": error.code, "message": message, "transient": error.transient}
    plain["message"] = str(error)
    if isinstance(error, Transient) and error.retry_after is not None:
        plain["retry_after"] = error.retry_after
    return plain


def _error_from_plain(plain: Mapping[str, Any]) -> Exception:
    name, message = str(plain["type"]), str(plain.get("message", ""))
    known = plain.get("is", name)
    if known == "ToolError":
        return ToolError(str(plain["code"]), message, transient=bool(plain.get("transient")))
    if known == "Transient":
        return Transient(message, plain.get("retry_after"))
    base = _KNOWN.get(known, RecordedError)
    cls = (
        base
        if base.__name__ == name
        else cast("type[Exception]", type(name, (base,), {"__module__": __name__}))
    )
    return cls(message)


# -- reading ------------------------------------------------------------------------------------------------


class Cassette(NamedTuple):
    """The content of a cassette file."""

    interactions: tuple[Interaction, ...]
    detent: str
    """The version that recorded it."""
    flows: tuple[str, ...] = ()
    """The flows whose runs were recorded; empty if the file does not say."""
    cut: int | None = None
    """Number of the last line, if the recording broke off in the middle of it."""


def read_cassette(path: str | Path) -> Cassette:
    """Read a cassette. A last line that broke off is left out with a warning.

    Raises:
        ConfigurationError: it cannot be read, is too large, or is no cassette.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(raw) > LARGEST:
        raise ConfigurationError(
            f"{path} has more than {LARGEST:,} bytes, which is no cassette that can be played. "
            f"Record fewer runs in one file."
        )
    lines = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rest = lines.pop()  # after the last line end: nothing, or a line that broke off
    header = _header(path, lines[0] if lines else rest)
    interactions = [
        _interaction(path, number, text) for number, text in enumerate(lines[1:], 2) if text.strip()
    ]
    cut = None
    if lines and rest.strip():
        number = len(lines) + 1
        try:
            interactions.append(_interaction(path, number, rest))  # complete but for its line end
        except ConfigurationError:
            cut = number
            logger.warning("cassette.cut_off", path=str(path), line=number)
    flows = header.get("flows")
    named = tuple(map(str, flows)) if isinstance(flows, list) else ()
    return Cassette(tuple(interactions), str(header.get("detent", "")), named, cut)


def _header(path: Path, line: bytes) -> Mapping[str, Any]:
    try:
        header = decode(line.decode())
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or type(header.get("cassette")) is not int:
        raise ConfigurationError(
            f'{path}, line 1: this is no cassette; one begins with {{"cassette": {VERSION}, …}}. '
            f"Record one with `--record`."
        )
    if header["cassette"] > VERSION:
        raise ConfigurationError(
            f"{path}, line 1: a cassette of version {header['cassette']}, "
            f"recorded by detent {header.get('detent', '?')}; this one reads up to {VERSION}."
        )
    return header


def _interaction(path: Path, number: int, text: bytes) -> Interaction:
    """One line; `ConfigurationError` says what is wrong with it."""
    try:
        plain = to_plain(decode(text.decode()), depth=-1)  # the values of a line are one level down
    except InvalidValue as error:
        raise ConfigurationError(f"{path}, line {number}: {error}") from error
    except RecursionError:
        raise ConfigurationError(f"{path}, line {number}: {TOO_DEEP}.") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}, line {number}: not valid JSON: {error}.") from error
    problem = _misfit(plain)
    if problem is not None:
        raise ConfigurationError(f"{path}, line {number}: {problem}. Record the cassette again.")
    return Interaction(number, **plain)


def _misfit(plain: Any) -> str | None:
    """The problem with a line's value."""
    if not isinstance(plain, dict):
        return "an interaction is a mapping"
    known = Interaction._fields[1:]
    for key in plain:
        if key not in known:
            return f"unknown key '{key}'.{nearest(key, known)}".rstrip(".?")
    for key in ("kind", "where", "step", "subject"):
        if not isinstance(plain.get(key), str):
            return f"'{key}' is missing or no text"
    if plain["kind"] not in get_args(Kind):
        return f"'kind' is {', '.join(get_args(Kind))}"
    if "request" not in plain:
        return "'request' is missing"
    if ("answer" in plain) == ("error" in plain):
        return "an interaction has either an answer or an error"
    error = plain.get("error")
    if "error" in plain and (not isinstance(error, dict) or not isinstance(error.get("type"), str)):
        return "'error' is a mapping with a type"
    if error is not None and error.get("is", error["type"]) == "ToolError" and "code" not in error:
        return "a ToolError has a code"
    return None


# -- playing ------------------------------------------------------------------------------------------------


class Player:
    """A tape that gives back the answers of a cassette and calls nothing."""

    plays = True

    def __init__(self, path: str | Path, *, secrets: Iterable[str] = ()) -> None:
        """Read a cassette; the values of `secrets` are masked in requests, as they were when recorded.

        Raises:
            ConfigurationError: it cannot be read, is too large, or is no cassette.
        """
        self.path = Path(path)
        self._secrets = _longest_first(secrets)
        self._cassette = read_cassette(self.path)
        self.played = 0
        """Interactions played so far."""
        self._channels: dict[Channel, _Channel] = {}
        for interaction in self._cassette.interactions:
            self._channels.setdefault(interaction.channel, _Channel()).add(interaction)
        self.mismatches: list[CassetteMismatch] = []
        """Every mismatch so far, even those that a caller ignored."""

    @property
    def cut(self) -> int | None:
        """The line in the middle of which the recording broke off, if it did."""
        return self._cassette.cut

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows whose runs were recorded; empty if the file does not say."""
        return self._cassette.flows

    async def through(self, call: TapeCall, work: Callable[[], Awaitable[Any]]) -> Any:
        """The answer recorded for this request; `work` is not called."""
        request = _masked(to_plain(call.request, "request"), self._secrets)
        channel = self._channels.get((call.kind, call.where, call.step, call.subject))
        interaction = channel.take(_identity(request)) if channel is not None else None
        if interaction is None:
            mismatch = self._mismatch(call, request, channel)
            self.mismatches.append(mismatch)
            raise mismatch
        self.played += 1
        await asyncio.sleep(0)  # as in the recorded run, other tasks get their turn
        marks = _marks_between(interaction.request, request)
        if interaction.error is not None:
            raise _error_from_plain(_replaced(interaction.error, marks))
        return _replaced(interaction.answer, marks) if marks else copied(interaction.answer)

    def unplayed(self) -> list[Interaction]:
        """The interactions that were recorded and never asked for, in the file's order.

        Requests an agent made while it was answering are left out: its answer is played as a whole.
        """
        remaining = (interaction for channel in self._channels.values() for interaction in channel.left())
        return sorted(
            (interaction for interaction in remaining if not interaction.inside),
            key=lambda interaction: interaction.line,
        )

    def close(self) -> None:
        """Nothing to close."""

    def _mismatch(self, call: TapeCall, request: Any, channel: _Channel | None) -> CassetteMismatch:
        if channel is None:
            return CassetteMismatch(self.path, call, self._nothing_recorded(call))
        recorded = next(channel.left(), None)
        if recorded is None:
            times = "once" if channel.count == 1 else f"{channel.count} times"
            return CassetteMismatch(
                self.path,
                call,
                f"asked more often than recorded ({times}). Record it again if this is right.",
            )
        difference = first_difference(_unmarked(recorded.request), _unmarked(request))
        return CassetteMismatch(
            self.path, call, f"asked for something other than what was recorded.\n{difference}",
            line=recorded.line, difference=difference,
        )  # fmt: skip

    def _nothing_recorded(self, call: TapeCall) -> str:
        """The message for a request without any recording, with the nearest ones that have one."""
        subjects = sorted({c[3] for c in self._channels if c[:3] == (call.kind, call.where, call.step)})
        if subjects:
            return f"not recorded. For this step the cassette has: {', '.join(subjects)}."
        steps = sorted({c[2] for c in self._channels if c[:2] == (call.kind, call.where)})
        if steps:
            return f"not recorded.{nearest(call.step, steps)} It is recorded for: {', '.join(steps)}."
        return "not recorded, nor anything like it."

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class _Channel:
    """Interactions that differ only in their requests. Taking one takes the same time for any number."""

    count: int = 0
    _by_request: dict[tuple[bool, str], deque[Interaction]] = field(default_factory=dict)
    """By whether an agent asked while it was answering, and by the request."""
    _order: deque[Interaction] = field(default_factory=deque)
    _taken: set[int] = field(default_factory=set)

    def add(self, interaction: Interaction) -> None:
        self.count += 1
        self._order.append(interaction)
        identity = _identity(interaction.request)
        self._by_request.setdefault((interaction.inside, identity), deque()).append(interaction)

    def take(self, request: str) -> Interaction | None:
        """The next interaction with this request that is not taken; one an agent asked for comes last."""
        waiting = self._by_request.get((False, request)) or self._by_request.get((True, request))
        if not waiting:
            return None
        interaction = waiting.popleft()
        self._taken.add(interaction.line)
        return interaction

    def left(self) -> Iterator[Interaction]:
        """The interactions not taken yet, in order."""
        while self._order and self._order[0].line in self._taken:
            self._order.popleft()
        return (interaction for interaction in self._order if interaction.line not in self._taken)


# -- secrets ------------------------------------------------------------------------------------------------


def _longest_first(secrets: Iterable[str]) -> dict[str, str]:
    """What is written in place of each secret, the longest first, because one may contain another."""
    return dict.fromkeys(sorted(filter(None, secrets), key=len, reverse=True), MASKED)


def _masked(value: Any, secrets: Mapping[str, str]) -> Any:
    return _replaced(value, secrets) if secrets else value


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """A plain value with texts replaced inside its texts, keys included."""

    def change(text: str) -> str:
        for old, new in texts.items():
            text = text.replace(old, new)
        return text

    return _changed(value, change)


def _unmarked(value: Any) -> Any:
    """A plain value in which the marks of secrets are the same in every run."""
    return _changed(value, lambda text: _MARK.sub(r"***\1***", text) if MASKED in text else text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _changed(item, change) for key, item in value.items()}
    return [_changed(item, change) for item in value] if isinstance(value, list) else value


def _identity(request: Any) -> str:
    """What a request is found by."""
    return digest(_unmarked(request))


def _marks_between(recorded: Any, asked: Any) -> dict[str, str]:
    """The marks of a recorded request, each with the mark that the same secret has in this run."""
    text = canonical(asked)
    if MASKED not in text:
        return {}
    pairs = zip(_MARK.finditer(canonical(recorded)), _MARK.finditer(text), strict=False)
    return {old.group(): new.group() for old, new in pairs}


# -- differences --------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """The first difference between two plain values."""

    pointer: str
    """JSON pointer; empty for the whole value."""
    recorded: str
    """The recorded value, cut to a readable length; for texts, the first line that differs."""
    asked: str
    line: int | None = None
    """The number of the line, in texts of several lines."""

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line is not None else ""
        return (
            f"First difference at {self.pointer or 'the top'}{line}:\n"
            f"  recorded: {self.recorded}\n"
            f"  asked:    {self.asked}"
        )


def first_difference(recorded: Any, asked: Any, pointer: str = "") -> Difference | None:
    """The first difference between two plain values; None when they are equal."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        keys: Iterable[Any] = dict.fromkeys((*recorded, *asked))
    elif isinstance(recorded, list) and isinstance(asked, list):
        keys = range(max(len(recorded), len(asked)))
    elif isinstance(recorded, str) and isinstance(asked, str):
        return None if recorded == asked else _text_difference(recorded, asked, pointer)
    else:
        same = canonical(recorded) == canonical(asked)
        return None if same else Difference(pointer, _value(recorded), _value(asked))
    for key in keys:
        key_pointer = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if not _has(recorded, key):
            return Difference(key_pointer, NOT_THERE, _value(asked[key]))
        if not _has(asked, key):
            return Difference(key_pointer, _value(recorded[key]), NOT_THERE)
        if (difference := first_difference(recorded[key], asked[key], key_pointer)) is not None:
            return difference
    return None


def _has(value: Any, key: Any) -> bool:
    return key in value if isinstance(value, dict) else key < len(value)


def _text_difference(recorded: str, asked: str, pointer: str) -> Difference:
    recorded_lines, asked_lines = recorded.split("\n"), asked.split("\n")
    multiline = max(len(recorded_lines), len(asked_lines)) > 1
    first = _first_mismatch(recorded_lines, asked_lines)
    shorter = min(len(recorded_lines), len(asked_lines)) - first
    same_end = min(_first_mismatch(recorded_lines[::-1], asked_lines[::-1]), shorter)
    places = [_telling_line(lines, first, len(lines) - same_end) for lines in (recorded_lines, asked_lines)]
    if places == [None, None]:  # blank lines alone
        places = [first if first < len(lines) else None for lines in (recorded_lines, asked_lines)]
    sides = [
        None if at is None else lines[at]
        for lines, at in zip((recorded_lines, asked_lines), places, strict=True)
    ]
    recorded_line, asked_line = (side or "" for side in sides)
    # A long line is shown from shortly before the difference.
    start = (
        max(0, _first_mismatch(recorded_line, asked_line) - LONGEST_SHOWN // 4)
        if max(len(recorded_line), len(asked_line)) > LONGEST_SHOWN
        else 0
    )
    shown = [
        NOT_THERE if side is None else _line(side, start) if multiline else _value(side, start)
        for side in sides
    ]
    number = next(at for at in places[::-1] if at is not None) + 1
    return Difference(pointer, shown[0], shown[1], number if multiline else None)


def _telling_line(lines: Sequence[str], first: int, end: int) -> int | None:
    """The first line that is not blank between two places; None if there is none."""
    return next((at for at in range(first, end) if lines[at].strip()), None)


def _first_mismatch(first: Sequence[str], second: Sequence[str]) -> int:
    """The first position at which two sequences differ."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _line(text: str, start: int) -> str:
    """A line of a text, between bars that show blanks at its ends."""
    return f"|{_visible('…' * bool(start) + text[start:], LONGEST_SHOWN - 2)}|"


def _value(value: Any, start: int = 0) -> str:
    """A value as JSON; a text from `start` on."""
    return _visible(canonical("…" + value[start:] if start else value), LONGEST_SHOWN)


def _visible(text: str, most: int) -> str:
    """A text of limited length without control characters."""
    text = text[: most + 1]
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _describe(kind: str, where: str, step: str, subject: str) -> str:
    """An interaction for messages: `query 'crm.find' of step 'check' in child '.a'`."""
    parts = [f"{kind} '{subject}'"]
    if step:
        parts.append(f"of step '{step}'")
    if where:
        parts.append(f"in child '{where}'")
    return " ".join(parts)
