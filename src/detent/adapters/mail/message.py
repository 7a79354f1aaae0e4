"""A mail as a value: sender, text, time, thread.

`read_message` takes any bytes and raises only `Unreadable`. The tree of parts is split here and not by
`email.parser`, whose time grows with the product of lines and nesting, and its memory with the lines: here it
is one search per level of nesting. Attachments are listed, never opened; an attached message is read one
level deep.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parseaddr, parsedate_to_datetime
from functools import cached_property
from typing import Literal, NamedTuple

from detent.adapters.mail import html, parts
from detent.adapters.mail.headers import (
    LONGEST_BLOCK,
    Headers,
    Structured,
    addresses,
    content_type,
    decoded,
    disposition,
    message_ids,
    posting_addresses,
    read_headers,
)
from detent.adapters.mail.parts import Part
from detent.adapters.mail.source import LARGEST_MAIL
from detent.adapters.mail.text import cleaned, cut, decode, unflowed, untransferred
from detent.kernel.errors import DetentError

Why = Literal["not_a_message", "too_large", "encrypted"]

DEEPEST_PART = 50
"""Levels of nested parts that are read."""
MOST_PARTS = 1000
"""Parts of one mail that are read."""
MOST_ATTACHED = 10
"""Attached messages that are read."""
LONGEST_NAME = 200
"""Characters of an attachment's name."""

_TELLING = (
    *("From", "Sender", "Reply-To", "To", "Cc", "Subject", "Date", "Message-ID"),
    *("Received", "Return-Path", "Delivered-To", "MIME-Version", "Content-Type"),
)
"""Headers of which every mail has at least one."""
_SHOWN = frozenset({"text/plain", "text/html", "text/markdown", "application/xhtml+xml"})
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_SEALED = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime", "application/pgp-encrypted"})

_WHAT = {
    "not_a_message": "The bytes are no e-mail: no header was found at their beginning.",
    "too_large": "The mail is larger than mails may be here.",
    "encrypted": "The mail is encrypted; nobody but its reader can open it.",
}


class Unreadable(DetentError):
    """A mail that cannot be read at all and needs a person."""

    def __init__(self, reason: Why, size: int) -> None:
        self.reason: Why = reason
        """`not_a_message`, `too_large` or `encrypted`, which includes text inside a signature's envelope."""
        self.size = size
        super().__init__(f"{_WHAT[reason]} ({reason}, {size} bytes)")


class Attachment(NamedTuple):
    """A part of a mail that is not read."""

    name: str
    """The sender's name for it, without folders; empty when it has none."""
    type: str
    size: int
    """Bytes, decoded."""

    def __repr__(self) -> str:
        return f"Attachment({self.type}, {self.size} bytes)"


@dataclass(frozen=True, repr=False)
class EmailMessage:
    """One mail. Its `repr` contains none of its text."""

    message_id: str | None
    """In angle brackets; None if it has none."""
    from_address: str | None
    """The first usable address in `From`."""
    reply_address: str | None
    """The address for a reply: the only `Reply-To`, else `from_address`; None when neither is usable."""
    subject: str
    body: str
    """All of its text, quotes included; without attached messages."""
    parts: tuple[Part, ...]
    """Newest first; the first is the newest part, which may be empty."""
    received_at: datetime | None
    """When it was delivered, in UTC; None when neither the deliverer nor its headers say so."""
    headers: Headers
    attachments: tuple[Attachment, ...]
    sha256: str
    """Of the bytes as they came."""
    size: int
    """Bytes as they came."""
    flags: tuple[str, ...] = ()
    """Flaws met while reading: `charset_guessed`, `encoding_unknown`, `headers_cut`, `structure_broken`,
    `text_cut`."""
    references: tuple[str, ...] = ()
    """Ids of the mails before it in its thread, oldest first."""
    thread_root: str = ""
    """Id of the first mail of its thread; its own id when it starts one."""

    @property
    def from_name(self) -> str:
        """The name before the address in `From`; empty without one."""
        value = next(iter(self.headers.raw("From")), "")
        name = parseaddr(value)[0] if "<" in value else ""
        return "" if "@" in name else decoded(name).strip()

    @cached_property
    def key(self) -> str:
        """12 hex digits that identify the mail and may be shown anywhere."""
        if self.message_id is None:
            return self.sha256[:12]
        return hashlib.sha256(self.message_id.encode()).hexdigest()[:12]

    @property
    def newest(self) -> str:
        """What the sender wrote in this mail."""
        return self.parts[0].text

    def __repr__(self) -> str:
        return (
            f"EmailMessage({self.key}, {self.size} bytes, {len(self.body)} characters, "
            f"{len(self.attachments)} attachments)"
        )


def read_message(
    raw: bytes,
    *,
    received: datetime | None = None,
    fallback: datetime | None = None,
    limit: int = LARGEST_MAIL,
) -> EmailMessage:
    """Read a mail. `received` is the time given by its deliverer; else the topmost `Received` header
    counts, and last `fallback`. The sender's `Date` is never used.

    Raises:
        Unreadable: the bytes are no mail, too many, or encrypted.
    """
    for moment in (received, fallback):
        if moment is not None and moment.utcoffset() is None:
            raise ValueError("The time a mail was received needs a time zone.")
    if len(raw) > limit:
        raise Unreadable("too_large", len(raw))
    mail = _entity(raw, *_without_wrapping(raw))
    headers = mail.headers
    if not any(name in headers for name in _TELLING):
        raise Unreadable("not_a_message", len(raw))
    reader = _Reader()
    if mail.block > LONGEST_BLOCK:
        reader.flags.add("headers_cut")
    body = reader.text_of(mail)
    if reader.sealed and (not body.strip() or mail.type.value in (*_SEALED, "multipart/encrypted")):
        raise Unreadable("encrypted", len(raw))
    if body.lstrip().startswith("-----BEGIN PGP MESSAGE-----"):
        raise Unreadable("encrypted", len(raw))
    subject = " ".join(headers.get("Subject", "").split())
    own_parts = parts.split(body, forwarded=parts.says_forwarded(subject))
    attached = tuple(
        _passed_on(part)
        for attached_text in reader.attached
        for part in parts.split(attached_text)
        if part.text
    )

    sha256 = hashlib.sha256(raw).hexdigest()
    own_id = next(iter(message_ids(headers.get("Message-ID", ""))), None)
    parents = message_ids(headers.get("In-Reply-To", ""))
    references = message_ids(headers.get("References", "")) or (parents if len(parents) == 1 else ())
    from_address = _from(headers)
    return EmailMessage(
        message_id=own_id,
        from_address=from_address,
        reply_address=_reply_to(headers) or from_address,
        subject=subject,
        body=body,
        parts=own_parts + attached,
        received_at=_utc(received) or _received(headers) or _utc(fallback),
        headers=headers,
        attachments=tuple(reader.attachments),
        sha256=sha256,
        size=len(raw),
        flags=tuple(sorted(reader.flags)),
        references=references,
        thread_root=(*references[:1], *parents[:1], own_id or f"sha256:{sha256}")[0],
    )


def _passed_on(part: Part) -> Part:
    return Part("forwarded", part.text, part.depth + 1)


# -- who and when -------------------------------------------------------------------------------------------


def _from(headers: Headers) -> str | None:
    return next((address for value in headers.raw("From") for address in addresses(value) if address), None)


def _reply_to(headers: Headers) -> str | None:
    """The one address that replies are requested to; None for several, or for one that cannot be used.

    The address of a mailing list that directs replies to itself is ignored.
    """
    lists = posting_addresses(headers)
    requested = {
        address
        for value in headers.raw("Reply-To")
        for address in addresses(value)
        if address is None or address.casefold() not in lists
    }
    return requested.pop() if len(requested) == 1 else None


def _received(headers: Headers) -> datetime | None:
    """The time our own server added; headers further down can be forged."""
    values = headers.raw("Received")
    if not values or ";" not in values[0]:
        return None
    try:
        when = parsedate_to_datetime(values[0].rpartition(";")[2].strip()[:100])
        return _utc(when if when.utcoffset() is not None else when.replace(tzinfo=UTC))
    except (ValueError, TypeError, OverflowError, IndexError, AttributeError):
        return None


def _utc(when: datetime | None) -> datetime | None:
    return when.astimezone(UTC) if when is not None else None


# -- the tree of parts --------------------------------------------------------------------------------------

_EOL = rb"(?:\r\n|\n|\r)"
_WRAPPING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+(?:>?From (?![ \t]*:)[^\r\n]*+" + _EOL + rb")?")
_BLOCK = re.compile(
    rb"(?:[!-9;-~]++[ \t]*+:[^\r\n]*+(?:" + _EOL + rb"[ \t][^\r\n]*+)*+(?:" + _EOL + rb"|\Z))*+"
)
_ONE_EOL = re.compile(_EOL)
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)


class _Entity(NamedTuple):
    """A mail or a part of one: its headers, and where its content is."""

    data: bytes
    headers: Headers
    type: Structured
    block: int
    """Bytes of its headers."""
    start: int
    end: int

    def content(self) -> tuple[bytes, bool]:
        """Its bytes without their transfer encoding, and whether that encoding is known."""
        data = self.data[self.start : self.end]
        decoded = untransferred(data, self.headers.get("Content-Transfer-Encoding", "").partition(";")[0])
        return (data, False) if decoded is None else (decoded, True)


def _without_wrapping(raw: bytes) -> tuple[int, int]:
    """Where the mail begins and ends: without empty lines, a byte order mark or a mailbox's `From ` line."""
    match = _WRAPPING.match(raw)
    return (match.end() if match else 0), len(raw)


def _entity(data: bytes, start: int, end: int, otherwise: str = "text/plain") -> _Entity:
    match = _BLOCK.match(data, start, end)
    body = match.end() if match else start
    headers = read_headers(data[start : min(body, start + LONGEST_BLOCK)])
    block = body - start
    if blank := _ONE_EOL.match(data, body, end):
        body = blank.end()
    return _Entity(data, headers, content_type(headers, otherwise), block, body, end)


def _children(entity: _Entity, boundary: str) -> Iterator[tuple[int, int] | None]:
    """Where the parts of a multipart are; None at the end when its closing line is missing."""
    line = re.escape(b"--" + boundary.encode("utf-8", "replace"))
    # The literal comes first, so that the search is fast; the characters before it are checked afterwards.
    pattern = re.compile(line + rb"(?<![^\r\n]" + line + rb")(--)?[ \t]*+(?=[\r\n]|\Z)")
    data, begun = entity.data, -1
    for match in pattern.finditer(data, entity.start, entity.end):
        if begun >= 0:
            yield begun, max(_before_eol(data, begun, match.start()), begun)
        if match[1]:
            return
        following = _ONE_EOL.match(data, match.end(), entity.end)
        begun = following.end() if following else match.end()
    if begun >= 0:
        yield begun, entity.end
    yield None


def _before_eol(data: bytes, start: int, end: int) -> int:
    """The line end before a boundary belongs to the boundary."""
    if end - 2 >= start and data[end - 2 : end] == b"\r\n":
        return end - 2
    return end - 1 if end - 1 >= start else end


class _Reader:
    """Walks through the parts of one mail and collects their content."""

    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.attachments: list[Attachment] = []
        self.attached: list[str] = []
        """Texts of attached messages."""
        self.sealed = False
        """Whether a part of the mail is encrypted."""
        self._seen = 0
        self._within = False
        """Whether it is in an attached message, whose attachments are not listed."""
        self._texts: dict[int, str] = {}

    def text_of(self, entity: _Entity) -> str:
        """The text of a mail or an attached message."""
        texts = (self._text(leaf) for leaf in self._leaves(entity, 0, root=True))
        text, was_cut = cut("\n\n".join(piece.strip("\n") for piece in texts if piece.strip()))
        if was_cut:
            self.flags.add("text_cut")
        return text

    # -- choosing -------------------------------------------------------------------------------------------

    def _leaves(self, entity: _Entity, depth: int, *, root: bool = False) -> list[_Entity]:
        """The parts whose texts form the mail's text, in order."""
        kind, parameters = entity.type
        self._seen += 1
        if self._seen > MOST_PARTS or depth > DEEPEST_PART:
            self.flags.add("structure_broken")
            return []
        if kind.startswith("multipart/"):
            return self._of_multipart(entity, kind, parameters.get("boundary", ""), depth)
        if kind == "message/rfc822" and not root:
            self._attach_message(entity)
            return []
        if kind in _SEALED:
            self.sealed = self.sealed or not self._within
        placement = disposition(entity.headers)
        name = placement.parameters.get("filename") or parameters.get("name") or ""
        if kind in _SHOWN and placement.value != "attachment" and (root or not name):
            return [entity]
        self._list(entity, name)
        return []

    def _of_multipart(self, entity: _Entity, kind: str, boundary: str, depth: int) -> list[_Entity]:
        if kind == "multipart/encrypted":
            self.sealed = self.sealed or not self._within
        otherwise = "message/rfc822" if kind == "multipart/digest" else "text/plain"
        branches: list[list[_Entity]] = []
        for span in _children(entity, boundary) if boundary else iter([None]):
            if span is None or self._seen > MOST_PARTS:
                self.flags.add("structure_broken")
                break
            branches.append(self._leaves(_entity(entity.data, *span, otherwise), depth + 1))
        if not branches and entity.end > entity.start:
            # No boundary is where it should be: the whole content is taken as text.
            return [entity._replace(type=Structured("text/plain", {}))]
        if kind == "multipart/alternative":
            return self._best(branches)
        return [leaf for branch in branches for leaf in branch]

    def _best(self, branches: list[list[_Entity]]) -> list[_Entity]:
        """The plain one of several forms of a text, unless it is empty."""
        for branch in sorted(branches, key=lambda branch: all(leaf.type.value in _HTML for leaf in branch)):
            if any(self._text(leaf).strip() for leaf in branch):
                return branch
        return []

    # -- reading --------------------------------------------------------------------------------------------

    def _text(self, leaf: _Entity) -> str:
        if leaf.start not in self._texts:
            self._texts[leaf.start] = self._read(leaf)
        return self._texts[leaf.start]

    def _read(self, leaf: _Entity) -> str:
        data, known = leaf.content()
        if not known:
            self.flags.add("encoding_unknown")
        kind, parameters = leaf.type
        charset = parameters.get("charset")
        if kind in _HTML and not charset and (meta := _META_CHARSET.search(data, 0, 4096)):
            charset = meta[1].decode("ascii", "replace")
        text, guessed = decode(data, charset)
        if guessed:
            self.flags.add("charset_guessed")
        if kind in _HTML:
            text, was_cut = html.text_of(text)
            if was_cut:
                self.flags.add("text_cut")
            return text
        text = cleaned(text)
        if parameters.get("format", "").lower() == "flowed":
            text = unflowed(text, delete_space=parameters.get("delsp", "").lower() == "yes")
        return text

    def _attach_message(self, entity: _Entity) -> None:
        self._list(entity, disposition(entity.headers).parameters.get("filename", ""))
        if self._within or len(self.attached) >= MOST_ATTACHED:
            return
        if entity.headers.get("Content-Transfer-Encoding", "").strip().lower() in (
            "base64",
            "quoted-printable",
        ):
            data, _ = entity.content()
            inner = _entity(data, *_without_wrapping(data))
        else:
            inner = _entity(entity.data, entity.start, entity.end)
        texts, self._texts = self._texts, {}
        self._within = True
        subject = inner.headers.get("Subject", "")
        text = self.text_of(inner)
        self.attached.append(f"{subject}\n\n{text}" if subject else text)
        self._within, self._texts = False, texts

    def _list(self, entity: _Entity, name: str) -> None:
        if not self._within:
            name = re.split(r"[/\\]", name)[-1].strip()[:LONGEST_NAME]
            self.attachments.append(Attachment(name, entity.type.value, _size(entity)))


def _size(entity: _Entity) -> int:
    """Bytes of an attachment, decoded only where necessary."""
    encoding = entity.headers.get("Content-Transfer-Encoding", "").strip().lower()
    if encoding == "base64":
        data = entity.data[entity.start : entity.end].translate(None, b" \t\r\n").rstrip(b"=")
        return len(data) * 3 // 4
    if encoding == "quoted-printable":
        return len(entity.content()[0])
    return entity.end - entity.start
