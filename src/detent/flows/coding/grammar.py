"""The requests that are understood without a model: a text becomes a list of steps, or None.

Pure: it knows no tool and no file. The whole text has to fit; a sentence that fits in part is not understood.
A word that may be left out counts as a keyword if the request then fits, else as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

MAX_STEPS: Final = 5
LONGEST_MISFIT: Final = 200
"""Characters of a step that are told of."""


@dataclass(frozen=True, slots=True)
class Show:
    """Show a file, or some of its lines."""

    path: str
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ListFolder:
    """List a folder."""

    path: str = "."


@dataclass(frozen=True, slots=True)
class Find:
    """Find files by name."""

    name: str
    path: str = "."


@dataclass(frozen=True, slots=True)
class Search:
    """Search files for a text, literally."""

    text: str
    path: str = "."


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace a text in a file."""

    target: str
    replacement: str
    path: str
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class RunTests:
    """Run the project's tests."""


@dataclass(frozen=True, slots=True)
class Help:
    """Say what is understood."""


Step: TypeAlias = Show | ListFolder | Find | Search | Replace | RunTests | Help

FORMS: Final = (
    "show FILE, show FILE lines 3-10",
    "list, list FOLDER",
    "find NAME, find NAME in FOLDER",
    "grep TEXT, grep TEXT in PATH",
    "replace TEXT with TEXT in FILE, replace TEXT with TEXT in FILE everywhere",
    "run tests",
    "help",
)
"""The forms as people are shown them."""


def parse_request(text: str) -> list[Step] | None:
    """The steps of a request, or None if any part of it is not understood. Never raises; linear in time."""
    tokens = _tokens(text)
    if tokens is None:
        return None
    for reading in _without_final_mark(tokens):
        start = next((end for end, _ in _POLITE(reading, 0)), 0)
        steps = _steps(reading, start, MAX_STEPS)
        if steps is not None:
            return steps
    return None


def misfit(text: str) -> str | None:
    """Why a request is not understood, where some of its steps are; None if there is nothing to say."""
    readings = [_steps_apart(tokens) for tokens in _without_final_mark(_tokens(text) or [])]
    problems = [_misfit_of(steps) for steps in readings]
    return next((problem for problem in problems if problem is not None), None)


def _steps_apart(tokens: list[_Token]) -> list[list[_Token]]:
    """What stands between separators, without a polite beginning."""
    start = next((end for end, _ in _POLITE(tokens, 0)), 0)
    parts: list[list[_Token]] = [[]]
    for token in tokens[start:]:
        if token.kind in ("semicolon", "newline") or token.is_word("then"):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _misfit_of(parts: list[list[_Token]]) -> str | None:
    fits = [_steps(part, 0, 1) is not None for part in parts]
    if all(fits) and len(parts) > MAX_STEPS:
        return f"A request has at most {MAX_STEPS} steps; this one has {len(parts)}."
    if any(fits) and not all(fits):
        words = " ".join(
            token.text if token.kind == "word" else f"'{token.text}'" for token in parts[fits.index(False)]
        )
        return f"Not understood: {words[:LONGEST_MISFIT]}"
    return None


# -- tokens -------------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    text: str
    kind: str
    """`word`, `quoted`, `semicolon` or `newline`."""

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


_TOKEN: Final = re.compile(
    r"""
      (?P<blank>[^\S\n]+) | (?P<newline>\n) | (?P<semicolon>;)
    | (?: "(?P<double>[^"]*)" | '(?P<single>[^']*)' | `(?P<tick>[^`]*)` | “(?P<curly>[^”]*)” )
      (?= [\s;] | [.?!]?\Z )
    | (?P<word>[^\s;"'`“][^\s;]*)
    """,
    re.VERBOSE,
)
_MOST_TOKENS: Final = 80
"""More than five steps of the longest form have."""


def _tokens(text: str) -> list[_Token] | None:
    """The tokens of a request; None if a quotation is not closed, or there are more than fit any request."""
    tokens: list[_Token] = []
    text = text.strip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > _MOST_TOKENS:
            return None
        position = match.end()
        kind = str(match.lastgroup)
        if kind == "blank" or (kind == "newline" and tokens and tokens[-1].kind == "newline"):
            continue
        if kind in ("newline", "semicolon", "word"):
            tokens.append(_Token(match[kind], kind))
        else:
            tokens.append(_Token(match[kind], "quoted"))
    return tokens


def _without_final_mark(tokens: list[_Token]) -> Iterator[list[_Token]]:
    """The tokens without a final `.`, `?` or `!`, and as they are, the likelier reading first."""
    last = tokens[-1] if tokens else None
    if last is None or last.kind != "word" or last.text[-1] not in ".?!":
        yield tokens
    elif last.text == ".":  # a folder, more likely than a full stop
        yield tokens
        yield tokens[:-1]
    elif len(last.text) == 1:
        yield tokens[:-1]
        yield tokens
    else:
        if last.text[-2:] not in ("..", "/.", "\\."):
            yield [*tokens[:-1], _Token(last.text[:-1], "word")]
        yield tokens


# -- patterns -----------------------------------------------------------------------------------------------

_Matches: TypeAlias = Iterator[tuple[int, dict[str, Any]]]
"""Ends of the ways to read tokens from a position, and what they capture, the likeliest first."""
_Pattern: TypeAlias = Callable[[list[_Token], int], _Matches]


def _keyword(word: str) -> _Pattern:
    def match(tokens: list[_Token], at: int) -> _Matches:
        if at < len(tokens) and tokens[at].is_word(word):
            yield at + 1, {}

    return match


def _capture(name: str) -> _Pattern:
    def match(tokens: list[_Token], at: int) -> _Matches:
        if at < len(tokens) and tokens[at].kind in ("word", "quoted"):
            text = tokens[at].text
            if text or name == "REPLACEMENT":
                yield at + 1, {name: text}

    return match


_RANGE: Final = re.compile(r"([0-9]{1,9}) ?(?:-| to ) ?([0-9]{1,9})", re.IGNORECASE)


def _range(tokens: list[_Token], at: int) -> _Matches:
    """Two line numbers, written in one to three words."""
    for end in (at + 1, at + 2, at + 3):
        words = tokens[at:end]
        if len(words) < end - at or any(token.kind != "word" for token in words):
            return
        numbers = _RANGE.fullmatch(" ".join(token.text for token in words))
        if numbers is not None and 1 <= int(numbers[1]) <= int(numbers[2]):
            yield end, {"FIRST": int(numbers[1]), "LAST": int(numbers[2])}


def _sequence(parts: list[_Pattern]) -> _Pattern:
    def match(tokens: list[_Token], at: int) -> _Matches:
        if not parts:
            yield at, {}
            return
        for middle, captured in parts[0](tokens, at):
            for end, more in rest(tokens, middle):
                yield end, {**captured, **more}

    rest = _sequence(parts[1:]) if parts else match
    return match


def _either(choices: list[_Pattern]) -> _Pattern:
    def match(tokens: list[_Token], at: int) -> _Matches:
        for choice in choices:
            yield from choice(tokens, at)

    return match


def _pattern(source: str) -> _Pattern:
    """A pattern as it is written: `keyword`, `CAPTURE`, `[optional]`, `(one | other)`."""
    words = iter(re.findall(r"[\[\]()|]|[A-Za-z]+", source))

    def choices(closing: str) -> _Pattern:
        found: list[_Pattern] = []
        parts: list[_Pattern] = []
        for word in words:
            if word == closing:
                break
            if word == "|":
                found.append(_sequence(parts))
                parts = []
            elif word == "[":
                parts.append(_either([choices("]"), _sequence([])]))
            elif word == "(":
                parts.append(choices(")"))
            elif word == "RANGE":
                parts.append(_range)
            else:
                parts.append(_capture(word) if word.isupper() else _keyword(word))
        return _either([*found, _sequence(parts)])

    return choices("")


_POLITE: Final = _pattern("please | can you | could you")

_STEPS: Final[Mapping[str, Callable[[Mapping[str, Any]], Step]]] = {
    "(show | read | cat | open | print) [me] [the] [file] PATH [lines RANGE]": lambda said: Show(
        said["PATH"], said.get("FIRST"), said.get("LAST")
    ),
    "(list | ls) [[the] files] [[in] PATH]": lambda said: ListFolder(said.get("PATH", ".")),
    # Two lines, so that `find files in src` has the folder `src`, and not the name `in`.
    "find [files [named]] NAME in PATH": lambda said: Find(said["NAME"], said["PATH"]),
    "find [files [named]] NAME [PATH]": lambda said: Find(said["NAME"], said.get("PATH", ".")),
    "(grep | search [for] | where is) TEXT [in PATH]": lambda said: Search(
        said["TEXT"], said.get("PATH", ".")
    ),
    "(replace | change) TARGET (with | to | by) REPLACEMENT in PATH everywhere": lambda said: Replace(
        said["TARGET"], said["REPLACEMENT"], said["PATH"], everywhere=True
    ),
    "(replace | change) TARGET (with | to | by) REPLACEMENT in PATH": lambda said: Replace(
        said["TARGET"], said["REPLACEMENT"], said["PATH"]
    ),
    "run [the] tests": lambda _: RunTests(),
    "help | what can you do": lambda _: Help(),
}
_PATTERNS: Final = [(_pattern(source), make) for source, make in _STEPS.items()]


def _steps(tokens: list[_Token], at: int, allowed: int) -> list[Step] | None:
    """The steps from a position to the end of the request."""
    if allowed == 0:
        return None
    for pattern, make in _PATTERNS:
        for end, captured in pattern(tokens, at):
            if end == len(tokens):
                return [make(captured)]
            following = _after_separator(tokens, end)
            rest = None if following is None else _steps(tokens, following, allowed - 1)
            if rest is not None:
                return [make(captured), *rest]
    return None


def _after_separator(tokens: list[_Token], at: int) -> int | None:
    """The position after a separator. Line ends beside `then` or `;` belong to it."""
    end = at
    while end < len(tokens) and tokens[end].kind == "newline":
        end += 1
    if end < len(tokens) and (tokens[end].kind == "semicolon" or tokens[end].is_word("then")):
        end += 1
        while end < len(tokens) and tokens[end].kind == "newline":
            end += 1
    return end if end > at else None
