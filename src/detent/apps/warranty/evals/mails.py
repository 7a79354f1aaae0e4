"""The mail of a case as bytes: composed from its fields, or read unchanged from a file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from email import message_from_string, policy
from email.message import EmailMessage as Mime
from pathlib import Path
from typing import Any, NamedTuple

from detent.evals.case import EvalTestCase
from detent.evals.played import PlayFailed
from detent.kernel.errors import nearest

FIELDS = (
    "from", "subject", "body", "html", "to", "reply_to", "received", "message_id", "references", "headers",
    "charset", "attachments", "pasted", "deliver", "raw",
)  # fmt: skip
"""Keys of a mail in a case."""
_ATTACHMENT = ("name", "type", "text", "base64")
_PASTED = ("line", "times")
MAILBOX = "service@northpine.example"
RECEIVED = datetime(2026, 3, 10, 8, 0, tzinfo=UTC)
"""The default time at which a mail was received."""


class CaseMail(NamedTuple):
    """A mail as it is delivered."""

    raw: bytes
    received: datetime
    deliver: int
    """How often it is delivered."""


def mail_of(case: EvalTestCase, fields: Any, key: str = "email") -> CaseMail:
    """The mail a case describes.

    Raises:
        PlayFailed: something is wrong with it; the message names the key and the line.
    """
    where = _Where(case, key)
    if not isinstance(fields, Mapping):
        raise where.wrong("", "a mail takes from, subject, body, …, or `raw`: the path of an .eml file")
    where.known(fields, FIELDS)
    received = _moment(fields.get("received"), where)
    deliver = fields.get("deliver", 1)
    if type(deliver) is not int or deliver < 1:
        raise where.wrong("deliver", "takes a number of 1 or more")
    if fields.get("raw") is not None:
        beside = sorted(set(fields) - {"raw", "received", "deliver"})
        if beside:
            raise where.wrong(beside[0], "has no effect beside `raw`: the file is the whole mail")
        return CaseMail(_file(case, fields["raw"], where), received, deliver)
    return CaseMail(_composed(case, fields, where), received, deliver)


class _Where:
    """Makes errors that name the place in the case's file."""

    def __init__(self, case: EvalTestCase, key: str) -> None:
        self.case = case
        self.path = f"input.{key}"

    def wrong(self, key: str, message: str) -> PlayFailed:
        path = f"{self.path}.{key}" if key else self.path
        at = f"line {self.case.place(path).line}: " if self.case.places else ""
        return PlayFailed(f"{at}{path}: {message}{'' if message[-1] in '.?' else '.'}")

    def known(self, mapping: Mapping[str, Any], names: tuple[str, ...], key: str = "") -> None:
        for name in mapping:
            if name not in names:
                hint = nearest(str(name), names) or f" Known here: {', '.join(names)}."
                raise self.wrong(f"{key}.{name}" if key else str(name), f"there is no such key.{hint}")


def _moment(value: Any, where: _Where) -> datetime:
    if value is None:
        return RECEIVED
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise where.wrong("received", "takes a time, such as 2026-03-10T08:15:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _file(case: EvalTestCase, name: Any, where: _Where) -> bytes:
    base = case.source.parent if case.source is not None else Path()
    try:
        return (base / str(name)).read_bytes()
    except OSError as error:
        raise where.wrong("raw", f"{name} cannot be read ({error.strerror})") from None


def _composed(case: EvalTestCase, fields: Mapping[str, Any], where: _Where) -> bytes:
    mail = Mime(policy=policy.SMTP)
    if fields.get("from") is not None:
        mail["From"] = str(fields["from"])
    mail["To"] = str(fields.get("to") or MAILBOX)
    if fields.get("subject") is not None:
        mail["Subject"] = str(fields["subject"])
    own = fields.get("message_id", f"<{case.scenario_id}@cases.example>")
    for name, value in (("Message-ID", own), ("Reply-To", fields.get("reply_to"))):
        if value is not None:
            mail[name] = str(value)
    references = fields.get("references")
    if references is not None:
        ids = [str(reference) for reference in (references if isinstance(references, list) else [references])]
        mail["References"], mail["In-Reply-To"] = " ".join(ids), ids[-1]
    for name, value in (fields.get("headers") or {}).items():
        mail[str(name)] = str(value)
    _fill(mail, fields, where)
    return mail.as_bytes()


def _fill(mail: Mime, fields: Mapping[str, Any], where: _Where) -> None:
    """Add the text and the attachments."""
    charset = str(fields.get("charset") or "utf-8")
    encoding: dict[str, Any] = {
        "charset": charset,
        "cte": "quoted-printable" if charset.lower() != "utf-8" else "8bit",
    }
    body, html = fields.get("body"), fields.get("html")
    if fields.get("pasted") is not None:
        body = f"{body or ''}\n\n{_pasted(fields['pasted'], where)}"
    try:
        if body is not None or html is None:
            mail.set_content(str(body or ""), **encoding)
            if html is not None:
                mail.add_alternative(str(html), subtype="html", **encoding)
        else:
            mail.set_content(str(html), subtype="html", **encoding)
    except (LookupError, UnicodeEncodeError):
        raise where.wrong("charset", f"the text cannot be written in {charset}") from None
    for index, attachment in enumerate(fields.get("attachments") or ()):
        _attach(mail, attachment, f"attachments.{index}", where)


def _pasted(paste: Any, where: _Where) -> str:
    if not isinstance(paste, Mapping) or type(paste.get("times")) is not int:
        raise where.wrong("pasted", "takes a line and how many times it is pasted below the body")
    where.known(paste, _PASTED, "pasted")
    return "\n".join([str(paste.get("line", ""))] * paste["times"])


def _attach(mail: Mime, attachment: Any, key: str, where: _Where) -> None:
    if not isinstance(attachment, Mapping):
        raise where.wrong(key, "takes name, type, and text or base64")
    where.known(attachment, _ATTACHMENT, key)
    kind, _, subtype = str(attachment.get("type") or "application/octet-stream").partition("/")
    if kind == "message":
        mail.add_attachment(message_from_string(str(attachment.get("text") or ""), policy=policy.SMTP))
        return
    try:
        content = base64.b64decode(attachment.get("base64") or "", validate=True)
    except (binascii.Error, ValueError):
        raise where.wrong(f"{key}.base64", "is not base64") from None
    content = content or str(attachment.get("text") or "").encode()
    mail.add_attachment(content, maintype=kind, subtype=subtype, filename=str(attachment.get("name") or ""))
