"""What models behind HTTP have in common: what a status means, what may be told of a message, names, schemas.

Nothing here speaks HTTP itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from detent.adapters.models.model import ModelRequest
from detent.dispatch.executor_errors import ExecutorError
from detent.kernel.errors import ConfigurationError, nearest

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a connection."""
ANSWER_TIMEOUT = 600.0
"""Seconds from asking to the end of the answer, however it drips; a step's `timeout` is usually shorter."""

LONGEST_TOLD = 200
"""Characters of a server's message that are passed on."""

REPEATED = 12
"""So many characters in a row that stand in the question too count as a repetition of it."""

WAITING_HELPS = frozenset({408, 425, 429})
PAID_OUT = ("insufficient_quota", "billing", "credit", "quota_exceeded")
"""Codes that say the account is empty: waiting does not help, whatever the status."""

_MEANINGS = {
    400: "the request was refused",
    401: "the key was not accepted",
    402: "the account has nothing left",
    403: "the key may not do this",
    404: "no such model or address",
    408: "the server gave up waiting",
    413: "the request is too large",
    422: "the request was refused",
    429: "too many requests",
    503: "the server is not available",
    529: "the server is overloaded",
}


# -- failures -----------------------------------------------------------------------------------------------


def status_failure(
    who: str, status: int, message: str = "", *, code: str = "", retry_after: float | None = None
) -> ExecutorError:
    """The error an HTTP status stands for."""
    empty = any(word in code.lower() for word in PAID_OUT)
    transient = (status in WAITING_HELPS or status >= 500) and not empty
    meaning = _MEANINGS.get(status, "the server failed" if status >= 500 else "the request was refused")
    text = f"{who} answered {status}: {'the account has nothing left' if empty else meaning}."
    return ExecutorError(
        f"{text} It says: {message}" if message else text,
        transient=transient,
        retry_after=retry_after if transient else None,
    )


def too_late(who: str, seconds: float) -> ExecutorError:
    """The error for an answer that was not whole in time."""
    return ExecutorError(f"{who} did not finish its answer within {seconds:g} seconds.", transient=True)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds a server asks to wait, from `Retry-After` (seconds or a date) or its finer relative."""
    fine = headers.get("retry-after-ms")
    if fine is not None and re.fullmatch(r"\d+(\.\d+)?", fine.strip()):
        return float(fine) / 1000
    said = (headers.get("retry-after") or "").strip()
    if not said:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", said):
        return float(said)
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def told(body: Any) -> tuple[str, str]:
    """The message and the code in an error's body, in the shapes servers give them; empty without."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return "", ""
    error = body.get("error", body)
    if isinstance(error, str):
        return error, ""
    if not isinstance(error, Mapping):
        return "", ""
    message = next(
        (error[key] for key in ("message", "detail", "msg") if isinstance(error.get(key), str)), ""
    )
    code = " ".join(str(error[key]) for key in ("code", "type", "param") if error.get(key))
    return message, code


def fit_to_tell(message: str, request: ModelRequest, secrets: Iterable[str] = ()) -> str:
    """A server's message in one short line, without keys, and without what it repeats of the question."""
    line = " ".join(message.split())
    for secret in secrets:
        if secret:
            line = line.replace(secret, "***")
    line = line if len(line) <= LONGEST_TOLD else f"{line[:LONGEST_TOLD]}…"
    asked = [" ".join(one.content.split()) for one in request.messages]
    repeats = any(
        line[at : at + REPEATED] in text for text in asked for at in range(len(line) - REPEATED + 1)
    )
    if repeats or any(3 < len(text) < REPEATED and text in line for text in asked):
        return "(its message repeats the question and is left out)"
    return line


def cut_short(text: str) -> bool:
    """Whether this is JSON that stops in the middle, as when a server dies: trying again may help."""
    bare = text.strip()
    if not bare:
        return True
    if bare[0] not in '{["':
        return False
    try:
        json.loads(bare)
    except json.JSONDecodeError as error:
        return error.pos >= len(bare) - 1 or error.msg.startswith("Unterminated string")
    except RecursionError:
        return False
    return False


# -- addresses and options ----------------------------------------------------------------------------------


def wrong_address(url: str) -> str:
    """What is wrong with an address; empty when it will do."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "base_url is no address"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "base_url must be an http or https address, such as http://127.0.0.1:8080/v1"
    return ""


def checked_options(
    kind: str, options: Mapping[str, Any], known: Mapping[str, type | tuple[type, ...]]
) -> None:
    """Raise `ConfigurationError` unless every option is known and of its kind; all problems at once."""
    problems = []
    for name, value in options.items():
        if name not in known:
            hint = nearest(str(name), known) or f" Known: {', '.join(known)}."
            problems.append(f"'{name}' is no option of a provider of kind '{kind}'.{hint}")
            continue
        kinds = known[name]
        wanted: Collection[type] = kinds if isinstance(kinds, tuple) else (kinds,)
        if value is not None and (
            not isinstance(value, tuple(wanted)) or (isinstance(value, bool) and bool not in wanted)
        ):
            names = " or ".join("text" if one is str else one.__name__ for one in wanted)
            problems.append(f"'{name}' of a provider of kind '{kind}' must be {names}.")
    if problems:
        raise ConfigurationError(" ".join(problems))


def check_limits(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse limits that nothing could keep.

    Raises:
        ConfigurationError: one of them is not above 0.
    """
    for name in ("timeout", "answer_timeout", "max_answer_bytes"):
        value = options.get(name)
        if value is not None and value <= 0:
            unit = "" if name == "max_answer_bytes" else " seconds"
            raise ConfigurationError(f"Provider of kind '{kind}': {name} must be more than 0{unit}.")


# -- names --------------------------------------------------------------------------------------------------


class WireNames:
    """Tool names as providers take them (letters, digits, `_` and `-`), and back."""

    def __init__(self, request: ModelRequest) -> None:
        self._wire: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for tool in request.tools:
            self.wire(tool.name)

    def wire(self, name: str) -> str:
        """The name a provider is given."""
        if name not in self._wire:
            start = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:60] or "tool"
            given, number = start, 2
            while given in self._own:
                given, number = f"{start}_{number}", number + 1
            self._wire[name], self._own[given] = given, name
        return self._wire[name]

    def own(self, given: str) -> str:
        """The tool's own name; a name nobody was given stays as it is."""
        return self._own.get(given, given)


# -- schemas ------------------------------------------------------------------------------------------------


def closed(schema: Any) -> Any:
    """The schema with every object that lists its keys closed to others, as servers want it."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    narrowed = {
        key: {name: closed(item) for name, item in value.items()}
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping)
        else value
        if key in ("enum", "const", "default", "examples")
        else closed(value)
        for key, value in schema.items()
    }
    if "properties" in narrowed and not {"anyOf", "oneOf", "allOf"} & narrowed.keys():
        narrowed.setdefault("additionalProperties", False)
    return narrowed


def wholly_closed(schema: Any) -> bool:
    """Whether every object in it names all its keys and requires them: what "strict" means on the wire."""
    return all(
        node.get("additionalProperties") is False
        and set(node.get("required", ())) == set(node.get("properties", ()))
        for node in _objects(schema)
    )


def open_ended(schema: Any) -> bool:
    """Whether some object in it, or the value itself, may hold keys nobody has named."""
    return not schema or any(
        node.get("additionalProperties", "properties" not in node) is not False for node in _objects(schema)
    )


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether only objects fit it."""
    return schema.get("type") == "object"


def _objects(schema: Any) -> list[Mapping[str, Any]]:
    """Every object schema in a schema; one that says nothing at all counts as one too."""
    found: list[Mapping[str, Any]] = []
    if isinstance(schema, list):
        return [node for item in schema for node in _objects(item)]
    if not isinstance(schema, Mapping):
        return []
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or not schema:
        found.append(schema)
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            found += [node for item in value.values() for node in _objects(item)]
        elif key not in ("enum", "const", "default", "examples", "additionalProperties"):
            found += _objects(value)
    return found


def in_words(schema: Mapping[str, Any]) -> str:
    """A schema put to a model that cannot be held to it otherwise."""
    text = json.dumps(schema, ensure_ascii=False)
    return f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{text}"
