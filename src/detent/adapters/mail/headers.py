"""Headers of a mail: kept as they came, read as text, addresses and message ids.

Structured values (content types and their parameters) are read by the standard library, guarded. Addresses
are read here, in one pass and without decoding: whatever an encoded word spells, it is no address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from email.policy import default as _policy
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from detent.adapters.mail.text import cleaned, decode, from_base64

LONGEST_BLOCK = 256 * 1024
"""Bytes of headers that are read; real mails have a tenth of it."""

LONGEST_STRUCTURED = 4096
"""Characters of a content type that are read: the library's reader takes quadratic time."""

LONGEST_ID = 900
"""Characters of a message id; a longer one cannot stand on a line of a mail."""

_FIELD = re.compile(rb"(?<![!-9;-~])([!-9;-~]++)[ \t]*+:([^\r\n]*+(?:(?:\r\n|\n|\r)[ \t][^\r\n]*+)*+)")
_FOLD = re.compile(r"\r\n|\r|\n")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAILTO = re.compile(r"<\s*mailto:([^<>?]*)", re.IGNORECASE)
_WORD = re.compile(r"=\?([^?\s]{1,60})\?([bBqQ])\?([^?]*)\?=")


class Headers(Mapping[str, str]):
    """The headers of one mail, by name in any case; of several with one name the first counts, `all` has all.

    Values are decoded (RFC 2047) and without line breaks.
    """

    __slots__ = ("_fields", "_values")

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        self._fields = tuple(fields)
        self._values: dict[str, list[str]] = {}
        for name, value in self._fields:
            self._values.setdefault(name.lower(), []).append(value)

    def __getitem__(self, name: str) -> str:
        return decoded(self._values[name.lower()][0])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        """Every name once, in the order and the spelling in which it first came."""
        seen = set()
        for name, _ in self._fields:
            if name.lower() not in seen:
                seen.add(name.lower())
                yield name

    def __len__(self) -> int:
        return len(self._values)

    def all(self, name: str) -> tuple[str, ...]:
        """Every value under a name, topmost first."""
        return tuple(decoded(value) for value in self._values.get(name.lower(), ()))

    def raw(self, name: str) -> tuple[str, ...]:
        """Every value under a name, with encoded words as they came."""
        return tuple(self._values.get(name.lower(), ()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)

    def __repr__(self) -> str:
        return f"Headers({len(self._fields)} fields)"


def read_headers(block: bytes) -> Headers:
    """The headers in a block of bytes that holds nothing else."""
    return Headers(
        (match[1].decode("ascii"), _unfolded(match[2])) for match in _FIELD.finditer(block[:LONGEST_BLOCK])
    )


def _unfolded(value: bytes) -> str:
    text = value.decode("ascii") if value.isascii() else decode(value).text
    if "\r" in text or "\n" in text:
        text = _FOLD.sub("", text)
    return _on_one_line(text)


def _on_one_line(text: str) -> str:
    if not text.isprintable():
        text = cleaned(_CONTROL.sub(" ", text)).replace("\n", " ")
    return text.strip()


# -- encoded words ------------------------------------------------------------------------------------------


def decoded(value: str) -> str:
    """A header's value with its encoded words read; what cannot be read stays as it is."""
    if "=?" not in value:
        return value
    pieces: list[str] = []
    pending: tuple[str, bytes] | None = None  # charset and bytes of words that have nothing between them
    at = 0
    for match in _WORD.finditer(value):
        between = value[at : match.start()]
        if pending is None or between.strip(" \t"):
            pieces.append(_flushed(pending) + between)
            pending = None
        charset, kind, content = match[1].split("*")[0].lower(), match[2].lower(), match[3]
        data = from_base64(_octets(content)) if kind == "b" else _unquoted(content)
        if pending is not None and pending[0] == charset:
            data = pending[1] + data  # a character may be cut in two by the end of a word
        elif pending is not None:
            pieces.append(_flushed(pending))
        pending = charset, data
        at = match.end()
    pieces.append(_flushed(pending) + value[at:])
    return _on_one_line("".join(pieces))


def _flushed(pending: tuple[str, bytes] | None) -> str:
    return decode(pending[1], pending[0]).text if pending is not None else ""


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _unquoted(text: str) -> bytes:
    data = _octets(text).replace(b"_", b" ")
    return re.sub(rb"=([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), data)


# -- content types ------------------------------------------------------------------------------------------


class Structured(NamedTuple):
    """A content type or disposition."""

    value: str
    """Lower case, without parameters; empty when there is none."""
    parameters: Mapping[str, str]


def content_type(headers: Headers, otherwise: str = "text/plain") -> Structured:
    """What a part says it holds; `otherwise` when it says nothing that can be read."""
    given = headers.raw("Content-Type")
    if not given or not given[0]:
        return Structured(otherwise, {})
    return _content_type(given[0][:LONGEST_STRUCTURED])


@lru_cache(maxsize=256)
def _content_type(value: str) -> Structured:
    try:
        header = _policy.header_factory("Content-Type", value)
        kind, parameters = header.content_type, dict(header.params)
    except Exception:
        # The library has raised nearly everything on broken values; RecursionError is one of them.
        match = re.match(r"\s*([\w.+-]{1,60}/[\w.+-]{1,100})", value)
        kind, parameters = (match[1] if match else "text/plain"), {}
    return Structured(_plain(kind).lower(), _spelled(value, parameters))


def disposition(headers: Headers) -> Structured:
    """Whether a part is to be shown or kept apart, and under which name."""
    given = headers.raw("Content-Disposition")
    if not given or not given[0]:
        return Structured("", {})
    value = given[0][:LONGEST_STRUCTURED]
    try:
        header = _policy.header_factory("Content-Disposition", value)
        kind, parameters = header.content_disposition or "", dict(header.params)
    except Exception:
        match = re.match(r"\s*([\w-]{1,60})", value)
        kind, parameters = (match[1] if match else ""), {}
    return Structured(_plain(kind).lower(), _spelled(value, parameters))


def _spelled(value: str, parameters: Mapping[str, object]) -> dict[str, str]:
    """The parameters as texts; those the library overlooked in a broken value are looked for by name."""
    found = {name.lower(): _plain(decoded(str(text))) for name, text in parameters.items()}
    for name in ("boundary", "charset", "filename", "name"):
        if name not in found and name in value.lower():
            match = re.search(rf"""(?<![\w*]){name}\s*=\s*(?:"([^"]*)"|([^\s;"]+))""", value, re.IGNORECASE)
            if match:
                found[name] = _plain(decoded(match[1] if match[1] is not None else match[2]))
    return found


def _plain(text: str) -> str:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = _octets(text)
    return _on_one_line(decode(data).text)


# -- addresses ----------------------------------------------------------------------------------------------

_LEXEME = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*+"?)|(?P<blank>[ \t]+)|(?P<special>[()<>,:;])|(?P<literal>\[[^\]]*+\]?)"""
    r"""|(?P<text>[^\s()<>,:;"\[]++)|(?P<other>.)""",
    re.DOTALL,
)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")
_SPACED_LOCAL = re.compile(r'"([A-Za-z0-9!#$%&\'*+/=?^_`{|}~. -]+)"')
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+{_LABEL}")
LONGEST_ADDRESS = 254
MOST_ADDRESSES = 100
"""In one header; nobody answers to more."""


def usable_address(text: str) -> str | None:
    """An address mail can be sent to, with its domain in lower case ASCII; None for anything else.

    Refused are also forms that are legal and trouble: domain literals, one-word domains, encoded words,
    quoted local parts with more than spaces and dots in them, local parts beyond ASCII.
    """
    local, at, domain = text.rpartition("@")
    if not at or len(text) > LONGEST_ADDRESS:
        return None
    if not domain.isascii():
        try:
            domain = domain.encode("idna").decode("ascii")
        except (UnicodeError, ValueError, IndexError):
            return None
    domain = domain.lower()
    if not _DOMAIN.fullmatch(domain) or "=?" in local or len(local) > 64:
        return None
    if not _LOCAL.fullmatch(local):
        quoted = _SPACED_LOCAL.fullmatch(local)
        if quoted is None:
            return None
        local = quoted[1] if _LOCAL.fullmatch(quoted[1]) else local
    address = f"{local}@{domain}"
    return address if len(address) <= LONGEST_ADDRESS else None


def posting_addresses(headers: Headers) -> set[str]:
    """Where mail for the list goes that passed a mail on, in lower case (`List-Post`, RFC 2369)."""
    said = (unquote(one).strip() for value in headers.raw("List-Post") for one in _MAILTO.findall(value))
    return {found.casefold() for one in said if (found := usable_address(one)) is not None}


def addresses(value: str) -> tuple[str | None, ...]:
    """The addresses in a header's raw value, in order; None stands for one that cannot be used.

    Names, comments and group names are passed over, also names that were not quoted as they should be.
    """
    found: list[str | None] = []
    bare: list[str] = []
    angle: list[str] | None = None
    closed = False  # an address in angle brackets is complete
    depth = 0

    def finish() -> None:
        nonlocal angle, closed
        candidate = "".join(angle).strip() if angle is not None else "".join(bare).strip()
        if "@" in candidate:
            found.append(usable_address(candidate))
        bare.clear()
        angle, closed = None, False

    for match in _LEXEME.finditer(value):
        token = match[0]
        if match["special"]:
            if token == "(":
                depth += 1
            elif token == ")":
                depth = max(depth - 1, 0)
            elif depth:
                pass
            elif token == "<":
                angle, closed = [], False
            elif token == ">":
                closed = angle is not None
            elif angle is not None and not closed:
                angle.append(token)  # a route; refused as an address
            elif token == ":":
                bare.clear()  # that was the name of a group
            else:
                finish()
                if len(found) >= MOST_ADDRESSES:
                    return tuple(found)
        elif depth or closed:
            continue
        else:
            (bare if angle is None else angle).append(token)
    finish()
    return tuple(found)


# -- message ids --------------------------------------------------------------------------------------------

_ID = re.compile(r"<\s*([^<>\s]+)\s*>")


def message_ids(value: str) -> tuple[str, ...]:
    """The ids in a Message-ID, In-Reply-To or References header, each in angle brackets."""
    found = tuple(f"<{one}>" for one in _ID.findall(value) if len(one) <= LONGEST_ID)
    if found:
        return found
    lone = value.strip().strip("<>").strip()
    return (f"<{lone}>",) if lone and len(lone) <= LONGEST_ID and not re.search(r"[\s<>]", lone) else ()
