"""How to reach a mail server, over IMAP and SMTP alike: host, TLS, account.

TLS is always verified. A connection without TLS is possible only within this machine, and only when asked
for explicitly.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from detent.adapters.hosts import is_loopback
from detent.kernel.errors import ConfigurationError, IntegrationMissing

Tls = Literal["implicit", "starttls", "none"]
Trouble = Literal["unreachable", "tls", "login", "folder", "lost", "refused"]

MOST_WORDS = 200
"""Characters of a server's message that are shown."""
_BYTES = re.compile(r"b(['\"])(.*)\1", re.DOTALL)
"""A server's message as shown by a library that did not decode it."""


class MailUnavailable(IntegrationMissing):
    """A mail server cannot be used: not reached, not trusted, or refusing."""

    def __init__(self, server: MailServer, kind: Trouble, what: str, check: str = "") -> None:
        self.host = server.host
        self.port = server.port
        self.kind = kind
        self.what = what
        super().__init__(f"{server.shown()}: {what}.{f' {check}' if check else ''}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """A mail server's address and account."""

    protocol: Literal["IMAP", "SMTP"]
    host: str
    port: int
    tls: Tls = "implicit"
    """From the first byte, after a STARTTLS command, or not at all (this machine only)."""
    user: str = ""
    password: str = field(default="", repr=False)
    timeout: float = 10.0
    """Seconds within which the server must answer each command."""
    ca_file: Path | None = None
    """Certificates to trust instead of the system's."""

    def __post_init__(self) -> None:
        problems = []
        if not self.host:
            problems.append("it has no host")
        if not 0 < self.port < 65536:
            problems.append(f"{self.port} is no port")
        if self.tls not in get_args(Tls):
            problems.append(f"tls is one of {', '.join(get_args(Tls))}, not '{self.tls}'")
        if self.tls == "none" and not is_loopback(self.host):
            problems.append(f"tls 'none' is only for this machine itself, not for {self.host}")
        if self.timeout <= 0:
            problems.append("its timeout must be more than 0 seconds")
        if problems:
            raise ConfigurationError(f"The {self.protocol} server cannot be used: {'; '.join(problems)}.")

    def shown(self) -> str:
        """The server's name in messages."""
        return f"{self.protocol} server {self.host}:{self.port}"

    def trust(self) -> ssl.SSLContext:
        """The TLS context that verifies the server."""
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"The certificates in {self.ca_file} cannot be read ({type(error).__name__})."
            ) from error

    def quoted(self, words: object) -> str:
        """A server's message: short, on one line and without our password."""
        if isinstance(words, bytes):
            words = words.decode("utf-8", "replace")
        text = "".join(c if c.isprintable() else " " for c in _BYTES.sub(r"\2", str(words)))
        if self.password:
            text = text.replace(self.password, "***")
        text = " ".join(text.split())
        return text if len(text) <= MOST_WORDS else f"{text[: MOST_WORDS - 1]}…"

    def not_connected(self, error: Exception) -> MailUnavailable:
        """The error for a failed connection, with what to check."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return MailUnavailable(
                self, "tls", f"its certificate is not trusted ({self.quoted(error.verify_message)})",
                "Check the host name; a certificate of your own is trusted when it is named as ca_file.",
            )  # fmt: skip
        if isinstance(error, ssl.SSLError):
            return MailUnavailable(
                self, "tls", f"no TLS connection came about ({self.quoted(error.reason or 'broken')})",
                f"Check that port and tls fit together; tls is '{self.tls}'.",
            )  # fmt: skip
        if isinstance(error, TimeoutError):
            message = f"it did not answer within {self.timeout:g} seconds"
        else:
            message = f"it cannot be reached ({self.quoted(getattr(error, 'strerror', None) or error)})"
        return MailUnavailable(
            self, "unreachable", message, f"Check host and port, and that tls '{self.tls}' fits the port."
        )
