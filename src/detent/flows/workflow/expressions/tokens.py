"""The tokens of an expression, with their positions: names, numbers, quoted texts and signs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, NoReturn, cast

from detent.flows.workflow.expressions.errors import ExpressionError

Kind = Literal["name", "number", "text", "sign", "end"]

_WORD = re.compile(
    r"""
      (?P<space> [ \t\r\n]+ )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<number> -?[0-9]+(?:\.[0-9]+)? )
    | (?P<text> '(?:[^'\\]|\\.)*+' | "(?:[^"\\]|\\.)*+" )
    | (?P<sign> == | != | <= | >= | [<>()\[\],.] )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME_GOES_ON = re.compile(r"[A-Za-z_]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t"}
_CLOSING = re.compile(r"""\}\}|'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|['"]""", re.DOTALL)
_INSTEAD = {
    "&": "Write 'and'.",
    "|": "Write 'or'.",
    "!": "Write 'not', or '!=' to compare.",
    "=": "Write '==' to compare; nothing can be assigned.",
    "{": "An expression holds no mapping and no other '${{'.",
    "}": "An expression ends with '}}'.",
    "$": "An expression holds no other '${{'.",
    ":": "There are no slices, and functions cannot be defined.",
    "`": "Texts stand in ' or \".",
    **dict.fromkeys("+-*/%^~@", "There is no arithmetic."),
}


class Token(NamedTuple):
    """One token of an expression."""

    kind: Kind
    text: str
    """As written; for `end` empty."""
    position: int
    value: Any = None
    """Value of a number or a quoted text."""

    def __str__(self) -> str:
        return f"'{self.text}'" if self.kind != "end" else "the end"


def tokens(text: str, start: int, end: int) -> Iterator[Token]:
    """Yield the tokens of `text[start:end]`, and last one of kind `end`; positions are offsets in `text`."""
    at = start
    while at < end:
        match = _WORD.match(text, at, end)
        if match is None:
            _refuse(text, at)
        kind, word, after = cast(Kind, match.lastgroup), match.group(), match.end()
        if kind == "name" or kind == "sign":
            yield Token(kind, word, at)
        elif kind == "number":
            if after < end and _NAME_GOES_ON.match(text, after):
                raise ExpressionError("A number ends where a letter begins.", after, text)
            yield Token("number", word, at, _number(word, at, text))
        elif kind == "text":
            yield Token("text", word, at, _unquoted(word, at, text))
        at = after
    yield Token("end", "", end)


def closing(text: str, start: int) -> int | None:
    """Return the offset of the `}}` that ends an expression begun at `start`; those in quotes are skipped."""
    for match in _CLOSING.finditer(text, start):
        word = match.group()
        if word == "}}":
            return match.start()
        if len(word) == 1:
            raise ExpressionError(f"A text that begins with {word} is not closed.", match.start(), text)
    return None


def _number(word: str, position: int, text: str) -> int | float:
    if "." not in word:
        return int(word)  # at most as many digits as an expression has characters
    value = float(word)
    if not math.isfinite(value):
        raise ExpressionError("The number is too large.", position, text)
    return value


def _unquoted(word: str, position: int, text: str) -> str:
    inner = word[1:-1]
    if "\\" not in inner:
        return inner

    def plain(match: re.Match[str]) -> str:
        character = _ESCAPES.get(match.group(1))
        if character is None:
            raise ExpressionError(
                f"There is no escape '{match.group()}'. Known: \\\\ \\' \\\" \\n \\t.",
                position + 1 + match.start(),
                text,
            )
        return character

    return _ESCAPE.sub(plain, inner)


def _refuse(text: str, position: int) -> NoReturn:
    char = text[position]
    if char in "'\"":
        raise ExpressionError(f"A text that begins with {char} is not closed.", position, text)
    shown = f"'{char}'" if char.isprintable() else f"The character U+{ord(char):04X}"
    instead = _INSTEAD.get(char, "")
    if not instead and not char.isascii():
        instead = "Names are made of the letters a to z, digits and _; read others as ['name']."
    raise ExpressionError(f"{shown} has no meaning in an expression. {instead}".rstrip(), position, text)
