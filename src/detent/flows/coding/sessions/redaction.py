"""What a session file must not hold: values of keys that name a secret, and known secrets anywhere."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from detent.flows.coding.sessions.file_schema import field_names, words
from detent.flows.coding.sessions.ids import is_session_id

REMOVED = "[removed]"
HIDDEN = f"A secret of the environment is not shown: {REMOVED} stands in its place."

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""A word of a key: separators and small letters before capitals end one, so `x-api-key` and `apiKey` are two
words longer than `key`."""
_SECRET_WORDS = frozenset({
    "token", "password", "passwords", "passwd", "passphrase", "secret", "secrets", "auth", "authorization",
    "credential", "credentials", "apikey", "apikeys", "privatekey", "accesskey",
})  # fmt: skip
"""`tokens` is none of them: it counts (`max_tokens`)."""
_SECRET_PAIRS = frozenset({
    ("api", "key"), ("api", "keys"), ("private", "key"), ("private", "keys"), ("access", "key"),
    ("access", "keys"), ("pass", "word"), ("pass", "phrase"),
})  # fmt: skip
_CLOSED = {
    "": frozenset({"schema", "state", "outcome", "checked"}),
    "completion": frozenset({"source"}),
    "todos": frozenset({"status", "priority"}),
    "messages": frozenset({"role"}),
    "migration": frozenset({"vocabulary", "reason"}),
}
"""Fields with a closed set of values, by the field they stand in: a secret that is equal to one of the values
(`response`, say) would make the file unreadable and hide nothing."""


@lru_cache(maxsize=4096)
def names_secret(key: str) -> bool:
    """Whether a key says that its value is a secret: one of its words is `token`, `password`, `auth`…"""
    words = [word.lower() for word in _WORD.findall(unicodedata.normalize("NFKC", key))]
    return not (_SECRET_WORDS.isdisjoint(words) and _SECRET_PAIRS.isdisjoint(pairwise(words)))


class Redaction:
    """Takes secrets out of texts and sessions."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for secret in secrets if secret for form in _forms(secret)}
        longest_first = sorted(known, key=lambda text: (-len(text), text))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if known else None

    @property
    def knows_any(self) -> bool:
        """Whether there are secrets to take out."""
        return self._known is not None

    def text(self, text: str) -> str:
        """A text without the known secrets."""
        return text if self._known is None else self._known.sub(REMOVED, text)

    def value(self, value: Any) -> Any:
        """A plain value without secrets, at any depth."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value, frozenset())
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value

    def session(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """The content of a session file without secrets; the words that make it a session file stay."""
        cleared = self._mapping(plain, _CLOSED[""], top=True)
        if is_session_id(plain.get("session_id")):
            cleared["session_id"] = plain["session_id"]
        return cleared

    def _mapping(self, plain: Mapping[str, Any], closed: frozenset[str], top: bool = False) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in plain.items():
            if key in closed and (value in words() if isinstance(value, str) else value is None):
                cleared = value
            elif names_secret(key):
                cleared = REMOVED
            elif top and key in _CLOSED:
                cleared = self._part(value, _CLOSED[key])
            else:
                cleared = self.value(value)
            result[self._key(key, plain, result)] = cleared
        return result

    def _part(self, value: Any, closed: frozenset[str]) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value, closed)
        if isinstance(value, list):
            return [
                self._mapping(item, closed) if isinstance(item, Mapping) else self.value(item)
                for item in value
            ]
        return value

    def _key(self, key: str, *taken: Mapping[str, Any]) -> str:
        """A key without the known secrets, unlike any other key beside it."""
        cleared = key if key in _KEPT_KEYS else self.text(key)
        if cleared == key:
            return key
        number, name = 1, cleared
        while any(name in mapping for mapping in taken):
            number += 1
            name = f"{cleared} {number}"
        return name


def _forms(secret: str) -> set[str]:
    """A secret as texts may spell it: as it is, inside JSON text, inside an address."""
    return {
        secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe="", errors="surrogatepass"),
    }  # fmt: skip


LEGACY_FLAGS = (
    "completed", "processing", "task_completed", "has_user_response", "awaiting_user_guidance",
    "has_final_synthesis",
)  # fmt: skip
"""The booleans of older programs, in the order in which files have them."""
_KEPT_KEYS = field_names() | frozenset(LEGACY_FLAGS)
