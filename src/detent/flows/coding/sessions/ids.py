"""Ids of sessions: `2026-03-02_09-15-00_fix-parser_9f2c11`, and the forms that older programs have given."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from random import Random, SystemRandom

from detent.kernel.errors import ConfigurationError

LONGEST_SLUG = 20
NO_SLUG = "session"
"""In place of a slug, for prompts without a letter or digit of a–z and 0–9."""
RANDOM_BITS = 24

_MOMENT = "%Y-%m-%d_%H-%M-%S"
_MOMENT_LENGTH = 19
_ID = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_[a-z0-9_-]{1,20}_([0-9a-f]{6}|[0-9a-f]{8})"
    r"|[0-9a-f][0-9a-f-]{7,63}"
)


def new_session_id(prompt: str, now: float, random: Random | None = None) -> str:
    """The id of a session that begins with this prompt, in UTC.

    The prompt's first words become part of it, so secrets must have been taken out of them before.
    """
    moment = datetime.fromtimestamp(now, UTC).strftime(_MOMENT)
    number = (random or SystemRandom()).getrandbits(RANDOM_BITS)
    return f"{moment}_{slug_of(prompt)}_{number:06x}"


def slug_of(prompt: str) -> str:
    """The beginning of a prompt as part of an id."""
    plain = unicodedata.normalize("NFKD", prompt[:500]).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return slug[:LONGEST_SLUG].strip("-") or NO_SLUG


def is_session_id(text: object) -> bool:
    """Whether a text is the id of a session, of whatever age."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_beginning(text: str) -> bool:
    """Whether a text may be the beginning of a session's id."""
    return re.fullmatch(r"[0-9a-f][0-9a-z_-]{0,47}", text) is not None


def check_session_id(text: str) -> str:
    """The id; it is also the name of a file, so nothing else is let through.

    Raises:
        ConfigurationError: it is no id of a session.
    """
    if not is_session_id(text):
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        raise ConfigurationError(
            f"{shown!r} is no session id. One looks like 2026-03-02_09-15-00_fix-parser_9f2c11. "
            f"List them with: detent sessions list"
        )
    return text


def moment_of(session_id: str) -> str | None:
    """The time that an id begins with, as ISO text in UTC; None for ids without one."""
    try:
        moment = datetime.strptime(session_id[:_MOMENT_LENGTH], _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment.isoformat().replace("+00:00", "Z")
