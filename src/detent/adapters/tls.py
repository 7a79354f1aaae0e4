"""The TLS context that the HTTP clients of this process share.

A client that is given none makes its own, which reads every certificate authority of the machine: 16 ms, also
for a client that never speaks TLS.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

NAMES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that name other certificate authorities than the machine's."""


def tls_context(trust_env: bool = True) -> ssl.SSLContext:
    """The context that httpx2 would make, once for each value of the variables it heeds."""
    return _made(trust_env, tuple(os.environ.get(name) for name in NAMES if trust_env))


@cache
def _made(trust_env: bool, named: tuple[str | None, ...]) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context(trust_env=trust_env)
