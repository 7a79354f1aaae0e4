"""The mail of a case as bytes: written from its fields, or taken from a file as it is."""

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
"""What a case may say about a mail."""
_ATTACHMENT = ("name", "type", "text", "base64")
_PASTED = ("line", "times")
MAILBOX = "service@northpine.example"
RECEIVED = datetime(2026, 3, 10, 8, 0, tzinfo=UTC)
"""When a mail was received whose case does not say."""


class CaseMail(NamedTuple):
    """A mail as it is delivered."""

    raw: bytes
    received: datetime
    deliver: int
    """How often it is delivered."""


def mail_of(case: EvalTestCase, said: Any, way: str = "email") -> CaseMail:
    """The mail a case describes; `PlayFailed` names what is wrong with it and the line."""
    where = _Where(case, way)
    if not isinstance(said, Mapping):
        raise where.wrong("", "a mail takes from, subject, body, …, or `raw`: the path of an .eml file")
    where.known(said, FIELDS)
    received = _moment(said.get("received"), where)
    deliver = said.get("deliver", 1)
    if type(deliver) is not int or deliver < 1:
        raise where.wrong("deliver", "takes a number of 1 or more")
    if said.get("raw") is not None:
        beside = sorted(set(said) - {"raw", "received", "deliver"})
        if beside:
            raise where.wrong(beside[0], "means nothing beside `raw`: the file has it all")
        return CaseMail(_file(case, said["raw"], where), received, deliver)
    return CaseMail(_written(case, said, where), received, deliver)


class _Where:
    """Tells where in the case's file something is wrong."""

    def __init__(self, case: EvalTestCase, way: str) -> None:
        self.case = case
        self.way = f"input.{way}"

    def wrong(self, key: str, message: str) -> PlayFailed:
        way = f"{self.way}.{key}" if key else self.way
        at = f"line {self.case.place(way).line}: " if self.case.places else ""
        return PlayFailed(f"{at}{way}: {message}{'' if message[-1] in '.?' else '.'}")

    def known(self, said: Mapping[str, Any], names: tuple[str, ...], key: str = "") -> None:
        for name in said:
            if name not in names:
                hint = nearest(str(name), names) or f" Known here: {', '.join(names)}."
                raise self.wrong(f"{key}.{name}" if key else str(name), f"there is no such key.{hint}")


def _moment(said: Any, where: _Where) -> datetime:
    if said is None:
        return RECEIVED
    try:
        moment = datetime.fromisoformat(str(said))
    except ValueError:
        raise where.wrong("received", "takes a time, such as 2026-03-10T08:15:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _file(case: EvalTestCase, said: Any, where: _Where) -> bytes:
    base = case.source.parent if case.source is not None else Path()
    try:
        return (base / str(said)).read_bytes()
    except OSError as error:
        raise where.wrong("raw", f"{said} cannot be read ({error.strerror})") from None


def _written(case: EvalTestCase, said: Mapping[str, Any], where: _Where) -> bytes:
    mail = Mime(policy=policy.SMTP)
    if said.get("from") is not None:
        mail["From"] = str(said["from"])
    mail["To"] = str(said.get("to") or MAILBOX)
    if said.get("subject") is not None:
        mail["Subject"] = str(said["subject"])
    own = said.get("message_id", f"<{case.scenario_id}@cases.example>")
    for name, value in (("Message-ID", own), ("Reply-To", said.get("reply_to"))):
        if value is not None:
            mail[name] = str(value)
    references = said.get("references")
    if references is not None:
        ids = [str(one) for one in (references if isinstance(references, list) else [references])]
        mail["References"], mail["In-Reply-To"] = " ".join(ids), ids[-1]
    for name, value in (said.get("headers") or {}).items():
        mail[str(name)] = str(value)
    _fill(mail, said, where)
    return mail.as_bytes()


def _fill(mail: Mime, said: Mapping[str, Any], where: _Where) -> None:
    """Put the text and the attachments in."""
    charset = str(said.get("charset") or "utf-8")
    way: dict[str, Any] = {
        "charset": charset,
        "cte": "quoted-printable" if charset.lower() != "utf-8" else "8bit",
    }
    body, html = said.get("body"), said.get("html")
    if said.get("pasted") is not None:
        body = f"{body or ''}\n\n{_pasted(said['pasted'], where)}"
    try:
        if body is not None or html is None:
            mail.set_content(str(body or ""), **way)
            if html is not None:
                mail.add_alternative(str(html), subtype="html", **way)
        else:
            mail.set_content(str(html), subtype="html", **way)
    except (LookupError, UnicodeEncodeError):
        raise where.wrong("charset", f"the text cannot be written in {charset}") from None
    for index, one in enumerate(said.get("attachments") or ()):
        _attach(mail, one, f"attachments.{index}", where)


def _pasted(said: Any, where: _Where) -> str:
    if not isinstance(said, Mapping) or type(said.get("times")) is not int:
        raise where.wrong("pasted", "takes a line and how many times it is pasted below the body")
    where.known(said, _PASTED, "pasted")
    return "\n".join([str(said.get("line", ""))] * said["times"])


def _attach(mail: Mime, said: Any, key: str, where: _Where) -> None:
    if not isinstance(said, Mapping):
        raise where.wrong(key, "takes name, type, and text or base64")
    where.known(said, _ATTACHMENT, key)
    kind, _, subtype = str(said.get("type") or "application/octet-stream").partition("/")
    if kind == "message":
        mail.add_attachment(message_from_string(str(said.get("text") or ""), policy=policy.SMTP))
        return
    try:
        content = base64.b64decode(said.get("base64") or "", validate=True)
    except (binascii.Error, ValueError):
        raise where.wrong(f"{key}.base64", "is no base64") from None
    content = content or str(said.get("text") or "").encode()
    mail.add_attachment(content, maintype=kind, subtype=subtype, filename=str(said.get("name") or ""))
