"""The mail that answers a mail, as bytes: the same arguments give the same bytes.

The headers are written here line by line, because the library's own writer encodes long message ids as if
they were prose, and then no mail program can thread by them. Nothing from outside can start a header: texts
lose their control characters, and addresses and ids are refused or left out unless they are valid.
"""

from __future__ import annotations

import hashlib
import quopri
import re
from collections.abc import Iterable
from datetime import datetime
from email.header import Header
from email.utils import format_datetime, formataddr, parseaddr

from detent.adapters.mail.automatic_mail import OWN_HEADER
from detent.adapters.mail.headers import addresses, usable_address
from detent.adapters.mail.text import cleaned

LONGEST_SUBJECT = 200
"""Characters, `Re: ` included."""
MOST_REFERENCES = 20
"""Ids of earlier mails that are listed; the last ones."""
WIDTH = 76
"""Characters of the longest line, except for ids and addresses, which cannot be split."""

_NO_SUBJECT = {"en": "Re: your message", "pl": "Re: Państwa wiadomość"}
_REPLY_PREFIX = re.compile(r"(?:(?:re|odp|aw|sv|antw)\s*(?:\[\d+\])?\s*:\s*)+", re.IGNORECASE)
_ID = re.compile(r"<[!-;=?-~]{1,900}>")
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{24,}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def reply_subject(original: str, language: str = "en") -> str:
    """`Re: ` (only once) and the subject that is answered, on one line."""
    subject = " ".join(_CONTROL.sub(" ", cleaned(_without_surrogates(original))).split())
    subject = _REPLY_PREFIX.sub("", subject, count=1) if _REPLY_PREFIX.match(subject) else subject
    if not subject:
        return _NO_SUBJECT.get(language, _NO_SUBJECT["en"])
    return f"Re: {subject}"[:LONGEST_SUBJECT].rstrip()


def message_id_for(key: str, domain: str) -> str:
    """The id of the mail with this key: always the same id for the same mail."""
    if not _DOMAIN.fullmatch(domain):
        raise ValueError(
            "The domain of a message id has letters, digits, dots and hyphens, like 'firm.example'."
        )
    digits = key if _HEX.fullmatch(key) else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    return f"<det-{digits[:24]}@{domain.lower()}>"


def reply(
    *,
    sender: str,
    to: str,
    subject: str,
    body: str,
    key: str,
    date: datetime,
    app: str,
    domain: str | None = None,
    in_reply_to: str | None = None,
    references: Iterable[str] = (),
    language: str | None = None,
) -> bytes:
    """A plain-text mail to one address, marked as written by a machine.

    `sender` may have a name: `Service <service@firm.example>`. `domain` is that of the sender unless given.
    `references` are those of the mail that is answered; `in_reply_to`, its id, is added to them. Ids that
    cannot stand in a header are left out. Raises ValueError for an address that cannot be used and for a
    date without time zone.
    """
    name, from_address = _sender(sender)
    to_address = usable_address(to.strip())
    if to_address is None:
        raise ValueError(
            "The mail has no usable address to go to: one of the form 'name@domain.example' is needed."
        )
    if date.utcoffset() is None:
        raise ValueError("The date of a mail needs a time zone.")
    earlier = [reference for reference in references if _ID.fullmatch(reference)]
    answered_id = in_reply_to if in_reply_to is not None and _ID.fullmatch(in_reply_to) else None
    if answered_id is not None:
        earlier = [*(reference for reference in earlier if reference != answered_id), answered_id]
    encoding, content = _encoded(body)
    fields = [
        ("From", _mailbox(name, from_address)),
        ("To", to_address),
        ("Subject", _text("Subject", " ".join(_CONTROL.sub(" ", _without_surrogates(subject)).split()))),
        ("Date", format_datetime(date)),
        ("Message-ID", message_id_for(key, domain or from_address.rpartition("@")[2])),
    ]
    if answered_id is not None:
        fields.append(("In-Reply-To", answered_id))
    if earlier:
        fields.append(("References", "\n ".join(earlier[-MOST_REFERENCES:])))
    fields += [
        ("Auto-Submitted", "auto-replied"),
        ("X-Auto-Response-Suppress", "All"),
        (OWN_HEADER, re.sub(r"[^A-Za-z0-9._-]", "-", app)[:60] or "detent"),
        ("MIME-Version", "1.0"),
        ("Content-Type", 'text/plain; charset="utf-8"'),
        ("Content-Transfer-Encoding", encoding),
    ]
    if language is not None and re.fullmatch(r"[A-Za-z-]{2,20}", language):
        fields.append(("Content-Language", language))
    head = "".join(f"{name}: {value}\n" for name, value in fields)
    return (head + "\n" + content).replace("\n", "\r\n").encode("ascii")


def rendered(body: str) -> str:
    """The text of the mail's part, as it is sent, before it is encoded for transfer."""
    text = re.sub(r"\r\n?", "\n", _without_surrogates(body))
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "", text).rstrip("\n") + "\n"


def _without_surrogates(text: str) -> str:
    """Without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _sender(sender: str) -> tuple[str, str]:
    usable = [address for address in addresses(_CONTROL.sub(" ", sender)) if address]
    if len(usable) != 1:
        raise ValueError("The sender of a mail is one address, like 'Service <service@firm.example>'.")
    name, _ = parseaddr(_CONTROL.sub(" ", _without_surrogates(sender)))
    return ("" if "@" in name else name), usable[0]


def _mailbox(name: str, address: str) -> str:
    if not name or name.isascii():
        return formataddr((name, address))
    return f"{_text('From', name)}\n <{address}>"


def _text(header: str, text: str) -> str:
    """A text as a header's value, in lines of `WIDTH`, with encoded words if needed."""
    if not text.isascii() or "=?" in text or max(map(len, text.split(" "))) > WIDTH - len(header) - 2:
        return Header(text, "utf-8", maxlinelen=WIDTH, header_name=header).encode()
    lines = [""]
    room = WIDTH - len(header) - 2
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append(word)
            room = WIDTH - 1
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n ".join(lines)


def _encoded(body: str) -> tuple[str, str]:
    """A transfer encoding and the encoded text; plain where that is safe for every server."""
    text = rendered(body)
    safe = text.isascii() and not re.search(rf"[^\n]{{{WIDTH + 1}}}|[ \t]$|^From |^\.", text, re.MULTILINE)
    if safe:
        return "7bit", text
    encoded = quopri.encodestring(text.encode("utf-8")).decode("ascii")
    # Old mailboxes put a mark before lines that begin so, and servers may double a leading dot.
    encoded = re.sub(r"^From ", "=46rom ", encoded, flags=re.MULTILINE)
    return "quoted-printable", re.sub(r"^\.", "=2E", encoded, flags=re.MULTILINE)
