"""Headers of a mail: kept as they came; read as text, addresses and message ids.

Structured values (content types and their parameters) are read by the standard library, guarded. Addresses
are read here, in one pass and without decoding: an encoded word never becomes an address.
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
"""Bytes of headers that are read; real mails have a tenth of that."""

LONGEST_STRUCTURED = 4096
"""Characters of a content type that are read: the library's reader takes quadratic time."""

LONGEST_ID = 900
"""Characters of a message id; a longer one does not fit on a line of a mail."""

_FIELD = re.compile(rb"(?<![!-9;-~])([!-9;-~]++)[ \t]*+:([^\r\n]*+(?:(?:\r\n|\n|\r)[ \t][^\r\n]*+)*+)")
_FOLD = re.compile(r"\r\n|\r|\n")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MAILTO = re.compile(r"<\s*mailto:([^<>?]*)", re.IGNORECASE)
_WORD = re.compile(r"=\?([^?\s]{1,60})\?([bBqQ])\?([^?]*)\?=")


class Headers(Mapping[str, str]):
    """The headers of one mail, by name in any case; the first of several with the same name, `all` has all.

    Values are decoded (RFC 2047) and have no line breaks.
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
        """Every name once, in the order and spelling of its first occurrence."""
        yielded = set()
        for name, _ in self._fields:
            if name.lower() not in yielded:
                yielded.add(name.lower())
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
    """The headers in a block of bytes that contains only headers."""
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
    """A header's value with its encoded words decoded; those that cannot be decoded stay as they are."""
    if "=?" not in value:
        return value
    pieces: list[str] = []
    pending: tuple[str, bytes] | None = None  # charset and bytes of adjacent encoded words
    at = 0
    for match in _WORD.finditer(value):
        between = value[at : match.start()]
        if pending is None or between.strip(" \t"):
            pieces.append(_decoded_words(pending) + between)
            pending = None
        charset, kind, content = match[1].split("*")[0].lower(), match[2].lower(), match[3]
        data = from_base64(_octets(content)) if kind == "b" else _from_q(content)
        if pending is not None and pending[0] == charset:
            data = pending[1] + data  # a character may be split between two words
        elif pending is not None:
            pieces.append(_decoded_words(pending))
        pending = charset, data
        at = match.end()
    pieces.append(_decoded_words(pending) + value[at:])
    return _on_one_line("".join(pieces))


def _decoded_words(pending: tuple[str, bytes] | None) -> str:
    return decode(pending[1], pending[0]).text if pending is not None else ""


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _from_q(text: str) -> bytes:
    data = _octets(text).replace(b"_", b" ")
    return re.sub(rb"=([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), data)


# -- content types ------------------------------------------------------------------------------------------


class Structured(NamedTuple):
    """A content type or disposition."""

    value: str
    """Lower case, without parameters; empty when there is none."""
    parameters: Mapping[str, str]


def content_type(headers: Headers, otherwise: str = "text/plain") -> Structured:
    """The declared type of a part; `otherwise` when none can be read."""
    values = headers.raw("Content-Type")
    if not values or not values[0]:
        return Structured(otherwise, {})
    return _content_type(values[0][:LONGEST_STRUCTURED])


@lru_cache(maxsize=256)
def _content_type(value: str) -> Structured:
    try:
        header = _policy.header_factory("Content-Type", value)
        kind, parameters = header.content_type, dict(header.params)
    except Exception:
        # The library has raised nearly everything on broken values, RecursionError included.
        match = re.match(r"\s*([\w.+-]{1,60}/[\w.+-]{1,100})", value)
        kind, parameters = (match[1] if match else "text/plain"), {}
    return Structured(_plain(kind).lower(), _parameter_texts(value, parameters))


def disposition(headers: Headers) -> Structured:
    """Whether a part is shown inline or as an attachment, and under which name."""
    values = headers.raw("Content-Disposition")
    if not values or not values[0]:
        return Structured("", {})
    value = values[0][:LONGEST_STRUCTURED]
    try:
        header = _policy.header_factory("Content-Disposition", value)
        kind, parameters = header.content_disposition or "", dict(header.params)
    except Exception:
        match = re.match(r"\s*([\w-]{1,60})", value)
        kind, parameters = (match[1] if match else ""), {}
    return Structured(_plain(kind).lower(), _parameter_texts(value, parameters))


def _parameter_texts(value: str, parameters: Mapping[str, object]) -> dict[str, str]:
    """The parameters as texts; those the library missed in a broken value are searched for by name."""
    texts = {name.lower(): _plain(decoded(str(text))) for name, text in parameters.items()}
    for name in ("boundary", "charset", "filename", "name"):
        if name not in texts and name in value.lower():
            match = re.search(rf"""(?<![\w*]){name}\s*=\s*(?:"([^"]*)"|([^\s;"]+))""", value, re.IGNORECASE)
            if match:
                texts[name] = _plain(decoded(match[1] if match[1] is not None else match[2]))
    return texts


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
"""Per header; no mail is answered to more."""


def usable_address(text: str) -> str | None:
    """An address mail can be sent to, with its domain in lower-case ASCII; None for anything else.

    Some legal forms are refused as well, because they cause trouble: domain literals, one-word domains,
    encoded words, quoted local parts with more than spaces and dots in them, non-ASCII local parts.
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
    """Addresses of the mailing list that passed a mail on, in lower case (`List-Post`, RFC 2369)."""
    links = (unquote(link).strip() for value in headers.raw("List-Post") for link in _MAILTO.findall(value))
    return {address.casefold() for link in links if (address := usable_address(link)) is not None}


def addresses(value: str) -> tuple[str | None, ...]:
    """The addresses in a header's raw value, in order; None stands for one that cannot be used.

    Names, comments and group names are skipped, even names that lack the quotes they should have.
    """
    usable: list[str | None] = []
    bare: list[str] = []
    angle: list[str] | None = None
    closed = False  # an address in angle brackets is complete
    depth = 0

    def finish() -> None:
        nonlocal angle, closed
        candidate = "".join(angle).strip() if angle is not None else "".join(bare).strip()
        if "@" in candidate:
            usable.append(usable_address(candidate))
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
                angle.append(token)  # a route, which is refused as an address
            elif token == ":":
                bare.clear()  # that was a group name
            else:
                finish()
                if len(usable) >= MOST_ADDRESSES:
                    return tuple(usable)
        elif depth or closed:
            continue
        else:
            (bare if angle is None else angle).append(token)
    finish()
    return tuple(usable)


# -- message ids --------------------------------------------------------------------------------------------

_ID = re.compile(r"<\s*([^<>\s]+)\s*>")


def message_ids(value: str) -> tuple[str, ...]:
    """The ids in a Message-ID, In-Reply-To or References header, each in angle brackets."""
    ids = tuple(f"<{id_}>" for id_ in _ID.findall(value) if len(id_) <= LONGEST_ID)
    if ids:
        return ids
    lone = value.strip().strip("<>").strip()
    return (f"<{lone}>",) if lone and len(lone) <= LONGEST_ID and not re.search(r"[\s<>]", lone) else ()
