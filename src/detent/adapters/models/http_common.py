"""What models behind HTTP share: the meaning of a status, which part of a message to show, names, schemas.

Nothing here sends anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from detent.adapters.models.model import ModelRequest
from detent.dispatch.conversation import Message
from detent.dispatch.executor_errors import (
    ExecutorError,
    MisconfiguredError,
    RequestTooLongError,
)
from detent.kernel.errors import ConfigurationError, nearest

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a connection."""
ANSWER_TIMEOUT = 600.0
"""Seconds from asking to the end of the answer, even while it streams; a step's `timeout` is usually less."""

FEWEST_TOKENS = 256
"""A smaller number in the refusal of a limit is no limit on the tokens of an answer."""
LONGEST_TOLD = 200
"""Characters of a server's message that are shown."""

REPEATED = 12
"""A run of this many characters that also occurs in the question counts as a repetition of it."""

WAITING_HELPS = frozenset({408, 425, 429})
SETTINGS_WRONG = frozenset({401, 403, 404})
"""Statuses that last until a person mends the key, the model or the address."""
PAID_OUT = ("insufficient_quota", "billing", "credit", "quota_exceeded")
"""Codes of an empty account: waiting does not help, whatever the status."""

_TOO_LONG_CODES = (
    "context_length_exceeded",
    "exceed_context_size",
    "context_window_exceeded",
    "request_too_large",
)
_TOO_LONG = re.compile(
    r"(prompt|input|request|messages?)( is| are)? too long|too many (input )?tokens|model token limit"
    r"|input token count .*exceeds|range of input length|inputs` tokens \+"
    r"|(exceed|maximum|too l|than|only|limit).*context.?(length|window|size|limit)"
    r"|context.?(length|window|size|limit).*(exceed|maximum|too l|only|limit)"
)
"""What servers say of a request that is longer than the model's context, in lower case."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")

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


def too_long(status: int, message: str, code: str = "") -> bool:
    """Whether a server has refused a request because it is longer than the model's context."""
    if status not in (400, 413, 422, 500):
        return False
    by_code = any(known in code.lower() for known in _TOO_LONG_CODES)
    return by_code or status == 413 or _TOO_LONG.search(message.lower()) is not None


def status_failure(
    who: str,
    status: int,
    message: str = "",
    *,
    code: str = "",
    retry_after: float | None = None,
    too_long: bool = False,
) -> ExecutorError:
    """The error for an HTTP status."""
    empty = any(word in code.lower() for word in PAID_OUT)
    transient = (status in WAITING_HELPS or status >= 500) and not empty
    meaning = _MEANINGS.get(status, "the server failed" if status >= 500 else "the request was refused")
    text = f"{who} answered {status}: {'the account has nothing left' if empty else meaning}."
    if too_long:
        return RequestTooLongError(f"{text} It says: {message}" if message else text)
    kind = MisconfiguredError if status in SETTINGS_WRONG else ExecutorError
    return kind(
        f"{text} It says: {message}" if message else text,
        transient=transient,
        retry_after=retry_after if transient else None,
    )


def too_late(who: str, seconds: float) -> ExecutorError:
    """The error for an answer that was not complete in time."""
    return ExecutorError(f"{who} did not finish its answer within {seconds:g} seconds.", transient=True)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds a server asks to wait, from `Retry-After` (seconds or a date) or `Retry-After-Ms`."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None and re.fullmatch(r"\d+(\.\d+)?", milliseconds.strip()):
        return float(milliseconds) / 1000
    header = (headers.get("retry-after") or "").strip()
    if not header:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", header):
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def told(body: Any) -> tuple[str, str]:
    """Message and code from the body of an error, in any of the shapes servers use; empty where missing."""
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


def accepted_tokens(refusal: str, asked: int) -> int | None:
    """The most tokens of an answer that a model accepts, from its refusal of a limit; None if it names none.

    A refusal because question and answer together exceed the context names other numbers.
    """
    text = refusal.lower()
    if "max_tokens" not in text and "max_completion_tokens" not in text:
        return None
    if "context length" in text or "input tokens" in text:
        return None
    numbers = [int(number.replace(",", "")) for number in re.findall(r"(?<![\w.-])\d[\d,]*\b", text)]
    return max((number for number in numbers if FEWEST_TOKENS <= number < asked), default=None)


def fit_to_tell(message: str, request: ModelRequest, secrets: Iterable[str] = ()) -> str:
    """A server's message as one short line, without keys and without text repeated from the question."""
    line = " ".join(message.split())
    for secret in secrets:
        if secret:
            line = line.replace(secret, "***")
    line = line if len(line) <= LONGEST_TOLD else f"{line[:LONGEST_TOLD]}…"
    questions = [" ".join(question.content.split()) for question in request.messages]
    questions += [message.opaque.data for message in request.messages if message.opaque is not None]
    repeats = any(
        line[at : at + REPEATED] in text for text in questions for at in range(len(line) - REPEATED + 1)
    )
    if repeats or any(3 < len(text) < REPEATED and text in line for text in questions):
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
    """The problem with an address; empty when there is none."""
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
    """Raise `ConfigurationError` unless every option is known and of the right type; all problems at once."""
    problems = []
    for name, value in options.items():
        if name not in known:
            hint = nearest(str(name), known) or f" Known: {', '.join(known)}."
            problems.append(f"'{name}' is no option of a provider of kind '{kind}'.{hint}")
            continue
        types = known[name]
        accepted: Collection[type] = types if isinstance(types, tuple) else (types,)
        if value is not None and (
            not isinstance(value, tuple(accepted)) or (isinstance(value, bool) and bool not in accepted)
        ):
            names = " or ".join("text" if type_ is str else type_.__name__ for type_ in accepted)
            problems.append(f"'{name}' of a provider of kind '{kind}' must be {names}.")
    if problems:
        raise ConfigurationError(" ".join(problems))


def check_limits(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse limits that cannot be kept.

    Raises:
        ConfigurationError: a limit is not above 0.
    """
    for name in ("timeout", "answer_timeout", "max_answer_bytes", "context_tokens"):
        value = options.get(name)
        if value is not None and value <= 0:
            unit = " seconds" if name.endswith("timeout") else ""
            raise ConfigurationError(f"Provider of kind '{kind}': {name} must be more than 0{unit}.")


# -- names --------------------------------------------------------------------------------------------------


class WireNames:
    """Tool names in the characters providers accept (letters, digits, `_` and `-`), and back."""

    def __init__(self, request: ModelRequest) -> None:
        self._wire: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for tool in request.tools:
            self.wire(tool.name)

    def wire(self, name: str) -> str:
        """The name a provider is given."""
        if name not in self._wire:
            start = _NOT_IN_NAMES.sub("_", name)[:60] or "tool"
            wire_name, number = start, 2
            while wire_name in self._own:
                wire_name, number = f"{start}_{number}", number + 1
            self._wire[name], self._own[wire_name] = wire_name, name
        return self._wire[name]

    def knows(self, wire_name: str) -> bool:
        """Whether a provider was given this name."""
        return wire_name in self._own

    def own(self, wire_name: str) -> str:
        """The tool's own name; an unknown name stays as it is."""
        return self._own.get(wire_name, wire_name)


def wire_id(call_id: str) -> str:
    """An id of ours as providers are given it: Mistral wants nine letters and digits."""
    return call_id.zfill(9) if re.fullmatch(r"t\d+c\d+", call_id) else call_id


def opaque_data(message: Message, provider: str, model: str) -> Any:
    """What a provider wants back with a message; None where it comes from another provider or model."""
    opaque = message.opaque
    if opaque is None or (opaque.provider, opaque.model) != (provider, model):
        return None
    return json.loads(opaque.data)


# -- schemas ------------------------------------------------------------------------------------------------


def closed(schema: Any) -> Any:
    """The schema with every object that lists its keys closed to other keys, as servers want it."""
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
    """Whether every object in it lists all its keys and requires them: the wire's meaning of "strict"."""
    return all(
        node.get("additionalProperties") is False
        and set(node.get("required", ())) == set(node.get("properties", ()))
        for node in _objects(schema)
    )


def open_ended(schema: Any) -> bool:
    """Whether the value, or an object in it, may have keys the schema does not list."""
    return not schema or any(
        node.get("additionalProperties", "properties" not in node) is not False for node in _objects(schema)
    )


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether only objects fit it."""
    return schema.get("type") == "object"


def _objects(schema: Any) -> list[Mapping[str, Any]]:
    """Every object schema in a schema; an empty schema counts as one."""
    objects: list[Mapping[str, Any]] = []
    if isinstance(schema, list):
        return [node for item in schema for node in _objects(item)]
    if not isinstance(schema, Mapping):
        return []
    type_ = schema.get("type")
    if type_ == "object" or (isinstance(type_, list) and "object" in type_) or not schema:
        objects.append(schema)
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            objects += [node for item in value.values() for node in _objects(item)]
        elif key not in ("enum", "const", "default", "examples", "additionalProperties"):
            objects += _objects(value)
    return objects


def in_words(schema: Mapping[str, Any]) -> str:
    """A schema as an instruction, for a model that cannot be constrained by it."""
    text = json.dumps(schema, ensure_ascii=False)
    return f"Answer with one JSON value that fits this JSON Schema, and with nothing else:\n{text}"
