"""The heading `mail` of a project's settings, and the source and sink it describes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from email.utils import parseaddr
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from detent.adapters.mail.server import MailServer
from detent.adapters.mail.sink import MailSink
from detent.adapters.mail.source import MailSource
from detent.kernel.errors import ConfigurationError

LIST_ID = re.compile(r"[^\s<>@()]+\.[^\s<>@()]+")
Environment = Mapping[str, str]
Resolve = Callable[[str], Path]
"""Resolves a path of the settings."""


class Part(BaseModel):
    """A heading, or something below one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Server(Part):
    """A mail server."""

    host: str | None = None
    port: int = Field(ge=1, le=65535)
    tls: Literal["implicit", "starttls", "none"] = "implicit"
    """`none` only for a server on this machine."""
    user_env: str
    password_env: str
    timeout_s: float = Field(10.0, gt=0)


class Imap(Server):
    """The mailbox on a server."""

    port: int = Field(993, ge=1, le=65535)
    user_env: str = "MAIL_IMAP_USER"
    password_env: str = "MAIL_IMAP_PASSWORD"
    folder: str = "INBOX"
    sent_folder: str | None = None

    def server(self, environ: Environment) -> MailServer:
        """The server with user and password from the environment.

        Raises:
            ConfigurationError: one of them is missing.
        """
        user, password = environ.get(self.user_env), environ.get(self.password_env)
        if not user or not password:
            raise ConfigurationError(
                f"The mailbox on {self.host} needs a user and a password in the environment: "
                f"{self.user_env} and {self.password_env}."
            )
        return MailServer(
            protocol="IMAP", host=self.host or "", port=self.port, tls=self.tls, user=user, password=password,
            timeout=self.timeout_s,
        )  # fmt: skip


class Smtp(Server):
    """The server that sends."""

    port: int = Field(465, ge=1, le=65535)
    user_env: str = "MAIL_SMTP_USER"
    password_env: str = "MAIL_SMTP_PASSWORD"
    envelope_from: str | None = None

    def server(self, environ: Environment) -> MailServer:
        """The server with user and password from the environment, if they are set."""
        return MailServer(
            protocol="SMTP", host=self.host or "", port=self.port, tls=self.tls,
            user=environ.get(self.user_env) or "", password=environ.get(self.password_env) or "",
            timeout=self.timeout_s,
        )  # fmt: skip


class MailSettings(Part):
    """Source and sink of mail. Applications set other defaults for sender and environment."""

    source: Literal["eml", "maildir", "imap"] = "eml"
    inbox: str = "mail/inbox"
    sink: Literal["outbox", "smtp"] = "outbox"
    outbox: str = "mail/outbox"
    from_: str = Field("Detent <detent@detent.example>", alias="from")
    own_addresses: list[str] = Field(default_factory=list)
    own_lists: list[str] = Field(default_factory=list)
    """Ids of mailing lists this mailbox is on, as in their `List-Id`: what people write there is
    answered."""
    max_replies_per_sender_per_day: int = Field(5, ge=1)
    max_runs_per_message: int = Field(3, ge=1)
    retry_after_minutes: float = Field(15.0, gt=0)
    max_size_mb: float = Field(25.0, gt=0)
    imap: Imap = Imap()
    smtp: Smtp = Smtp()

    @field_validator("from_")
    @classmethod
    def _is_an_address(cls, sender: str) -> str:
        name, _, domain = parseaddr(sender)[1].partition("@")
        if not name or not domain:
            raise ValueError('mails need a sender, such as "Service <service@firm.example>"')
        return sender

    @field_validator("own_lists")
    @classmethod
    def _are_ids(cls, ids: list[str]) -> list[str]:
        for list_id in ids:
            if not LIST_ID.fullmatch(list_id):
                raise ValueError(
                    "a list's id looks like 'service.lists.firm.example', as the List-Id header of its mails"
                    " has it between < and >; it is no address"
                )
        return ids

    @model_validator(mode="after")
    def _has_hosts(self) -> MailSettings:
        if self.source == "imap" and not self.imap.host:
            raise ValueError("source imap needs imap.host")
        if self.sink == "smtp" and not self.smtp.host:
            raise ValueError("sink smtp needs smtp.host")
        return self


def source_for(mail: MailSettings, resolve: Resolve, environ: Environment) -> MailSource:
    """The source that mail comes from."""
    size = int(mail.max_size_mb * 1024 * 1024)
    if mail.source == "eml":
        from detent.adapters.mail.eml_folder import EmlFolder

        return EmlFolder(resolve(mail.inbox), max_size=size)
    if mail.source == "maildir":
        from detent.adapters.mail.maildir import Maildir

        return Maildir(resolve(mail.inbox), max_size=size)
    from detent.adapters.mail.imap import ImapMailbox

    return ImapMailbox(mail.imap.server(environ), folder=mail.imap.folder, max_size=size)


def sink_for(mail: MailSettings, resolve: Resolve, environ: Environment, *, sent: bool = True) -> MailSink:
    """The sink that mail goes to. With `sent`, mail sent by SMTP is also kept in `imap.sent_folder`."""
    if mail.sink == "outbox":
        from detent.adapters.mail.outbox import Outbox

        return Outbox(resolve(mail.outbox))
    from detent.adapters.mail.smtp import SmtpSender

    if sent and mail.imap.sent_folder is not None and mail.imap.host:
        from detent.adapters.mail.imap import ImapSent

        sent_folder = ImapSent(mail.imap.server(environ), mail.imap.sent_folder)
        return SmtpSender(mail.smtp.server(environ), sent=sent_folder)
    return SmtpSender(mail.smtp.server(environ))
