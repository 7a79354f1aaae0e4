"""Bytes of a mail as text: transfer encodings, charsets, flowed lines, control characters.

Nothing here raises on any bytes; the result says whether something had to be guessed.
"""

from __future__ import annotations

import binascii
import codecs
import re
from functools import lru_cache
from typing import NamedTuple

LONGEST_TEXT = 200_000
"""Characters of text that are read; the rest is cut."""

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_NOT_BASE64 = bytes(byte for byte in range(256) if byte not in _BASE64)

_UNFIT = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"})
"""Python codecs that are no charsets of mails; some of them take quadratic time."""

_WIDER = {"iso8859-1": "cp1252", "iso8859-2": "cp1250", "ascii": None}
"""The charset meant by a text that claims the left one but uses bytes 0x80-0x9f, its control characters."""

_HIGH = re.compile(rb"[\x80-\x9f]")
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

# Polish letters with different codes in windows-1250 and ISO-8859-2, next to another letter.
_LETTER = rb"A-Za-z\xa3\xaf\xb3\xbf-\xff"
_ONLY_ISO = re.compile(rb"[" + _LETTER + rb"][\xa1\xa6\xac\xb1\xb6\xbc]|[\xa1\xa6\xac\xb1\xb6\xbc][a-z]")
_ONLY_WINDOWS = re.compile(rb"[\x80-\x9f\xa5\xb9]")

_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_SPACES = re.compile(r"[\xa0\u2000-\u200a\u202f\u3000]")
_LONE = re.compile(r"[\ud800-\udfff]")


class Decoded(NamedTuple):
    """A text, and how it was decoded."""

    text: str
    guessed: bool = False
    """Whether its charset was missing or wrong."""


# -- transfer encodings -------------------------------------------------------------------------------------


def untransferred(data: bytes, encoding: str) -> bytes | None:
    """The decoded bytes under a Content-Transfer-Encoding; None for an unknown encoding."""
    encoding = encoding.strip().strip('"').lower()
    if encoding == "base64":
        return from_base64(data)
    if encoding == "quoted-printable":
        return binascii.a2b_qp(data)
    if encoding in ("", "7bit", "8bit", "binary", "7-bit", "8-bit"):
        return data
    return None


def from_base64(data: bytes) -> bytes:
    """The bytes that base64 decodes to, ignoring any other characters and wrong padding."""
    data = data.translate(None, _NOT_BASE64)
    if b"=" in data.rstrip(b"="):  # several encoded pieces one after the other
        return b"".join(_from_base64(piece) for piece in data.split(b"=") if piece)
    return _from_base64(data.rstrip(b"="))


def _from_base64(data: bytes) -> bytes:
    if len(data) % 4 == 1:  # six bits are no byte
        data = data[:-1]
    return binascii.a2b_base64(data + b"=" * (-len(data) % 4))


# -- charsets -----------------------------------------------------------------------------------------------


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """Bytes as text: by the declared charset, else UTF-8, windows-1250, ISO-8859-2, Latin-1."""
    for mark, charset in _BOMS:
        if data.startswith(mark):
            return Decoded(_without_surrogates(data[len(mark) :].decode(charset, "replace")))
    codec = _codec(declared) if declared else None
    if codec is not None:
        wider = _WIDER.get(codec, codec)
        if wider == codec or not _HIGH.search(data):
            text = _tried(data, codec)
            if text is not None:
                return Decoded(text)
        elif wider is not None:
            text = _tried(data, wider)
            if text is not None:
                return Decoded(text, guessed=True)
    if data.isascii():
        # Nothing to guess, unless the declared charset is unknown.
        return Decoded(data.decode("ascii"), guessed=bool(declared) and codec is None)
    return Decoded(_guess(data), guessed=True)


def _guess(data: bytes) -> str:
    text = _tried(data, "utf-8")
    if text is not None:
        return text
    if _ONLY_ISO.search(data) and not _ONLY_WINDOWS.search(data):
        order = ("iso8859-2", "cp1250")
    else:
        order = ("cp1250", "iso8859-2")
    for charset in order:
        text = _tried(data, charset)
        if text is not None:
            return text
    return data.decode("latin-1", "replace")


def _tried(data: bytes, codec: str) -> str | None:
    try:
        return _without_surrogates(data.decode(codec))
    except (UnicodeError, LookupError, ValueError, OverflowError):
        return None


def _without_surrogates(text: str) -> str:
    """Without lone surrogates, which some codecs let through and nothing can encode."""
    return _LONE.sub("\ufffd", text) if not text.isascii() and _LONE.search(text) else text


@lru_cache(maxsize=256)
def _codec(name: str) -> str | None:
    """Python's name of a charset; None for one that is unknown or not meant for mails."""
    name = name.split("*")[0].strip().strip("\"'").lower()
    for spelling in (name, re.sub(r"^(?:win|windows|cp)[-_ ]?(125\d)$", r"cp\1", name)):
        try:
            codec = codecs.lookup(spelling)
        except (LookupError, ValueError, UnicodeError):
            continue
        # A charset turns bytes into text; `rot13`, `zlib` and the like do something else.
        if getattr(codec, "_is_text_encoding", True) and codec.name.replace("-", "_") not in _UNFIT:
            return codec.name
    return None


# -- lines --------------------------------------------------------------------------------------------------


def cleaned(text: str) -> str:
    """The text with `\\n` as line end, ordinary spaces, and without invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_ENDS.sub("\n", text)
    text = _UNSEEN.sub("", text)
    return text if text.isascii() else _SPACES.sub(" ", text)


def unflowed(text: str, *, delete_space: bool = False) -> str:
    """The paragraphs of `format=flowed` lines: a line that ends in a space continues in the next one."""
    lines: list[str] = []
    open_depth: int | None = None  # quote depth of the paragraph that still goes on
    pieces: list[str] = []

    def finish() -> None:
        if pieces:
            lines.append("".join(pieces))
            pieces.clear()

    for line in text.split("\n"):
        content = line.lstrip(">")
        depth = len(line) - len(content)
        content = content.removeprefix(" ")  # stuffing, which keeps it from looking like a quote
        flows = content.endswith(" ") and content != "-- "
        if open_depth != depth or content == "-- ":
            finish()
            pieces.append("> " * depth if content else ">" * depth)
        pieces.append(content[:-1] if flows and delete_space else content)
        open_depth = depth if flows else None
        if not flows:
            finish()
            if content == "" and depth == 0 and (not lines or lines[-1] != ""):
                lines.append("")
    finish()
    return "\n".join(lines)


def cut(text: str, limit: int = LONGEST_TEXT) -> tuple[str, bool]:
    """At most `limit` characters, cut between words, and whether anything was cut."""
    if len(text) <= limit:
        return text, False
    end = limit
    if not text[limit].isspace():
        # Half a number would be another number.
        while end > limit - 1000 and end > 0 and not text[end - 1].isspace():
            end -= 1
        if end <= limit - 1000:
            end = limit
    return text[: max(end, 0)].rstrip(), True
