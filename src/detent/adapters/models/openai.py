"""Models behind servers that speak OpenAI's chat completions: its own, Ollama, vLLM, llama.cpp and others.

Servers differ in the parameters they accept. A parameter that a server refuses is remembered for the lifetime
of the model object and not sent again.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from detent.adapters.hosts import host_of, on_this_machine
from detent.adapters.http_body import IDENTITY, BodyEncoded, BodyTooLarge, pieces, whole
from detent.adapters.models import http_common
from detent.adapters.models.chat_completion import KEPT, ChatCompletion, NoChoice
from detent.adapters.models.model import ModelRequest, OnText, with_system_text
from detent.adapters.models.prices import PriceTable
from detent.dispatch.conversation import Message, ModelAnswer, Opaque, ToolCall
from detent.dispatch.executor import Availability
from detent.dispatch.executor_errors import ExecutorError, MisconfiguredError
from detent.dispatch.usage import UsageMetadata
from detent.engine import logger
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.identity_memo import IdentityMemo
from detent.kernel.plain import digest, encode, to_plain

if TYPE_CHECKING:
    from detent.adapters.http_client import HttpClient, HttpResponse

SMALLEST_LIMIT = 4 * 1024 * 1024
BYTES_PER_TOKEN = 1024
"""Limit on the bytes of an answer: this many for each token asked for, but at least SMALLEST_LIMIT.

A streamed token arrives in an event of its own, of a few hundred bytes.
"""
LARGEST_REFUSAL = 256 * 1024
"""Bytes read of an error response."""


class Preset(NamedTuple):
    """Defaults for a kind of server."""

    base_url: str
    api_key_env: str | None = None
    local: bool = False
    """The user's own server: its answers cost nothing."""
    needs_model: bool = True
    limit: str = "max_tokens"
    """The server's name for the parameter that limits the tokens of an answer."""


PRESETS = {
    "openai": Preset("https://api.openai.com/v1", "OPENAI_API_KEY", limit="max_completion_tokens"),
    "ollama": Preset("http://127.0.0.1:11434/v1", local=True),
    "vllm": Preset("http://127.0.0.1:8000/v1", local=True),
    "llamacpp": Preset("http://127.0.0.1:8080/v1", local=True, needs_model=False),
}

OPTIONS: Mapping[str, type | tuple[type, ...]] = {
    "base_url": str,
    "model_id": str,
    "api_key_env": str,
    "native_tools": bool,
    "timeout": (int, float),
    "answer_timeout": (int, float),
    "max_answer_bytes": int,
    "context_tokens": int,
}

UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Gemini takes in place of its signature, for a call that it has not made itself."""


def connect(
    options: Mapping[str, Any],
    *,
    kind: str = "openai",
    folder: Path | None = None,
    prices: PriceTable | None = None,
) -> OpenAIModel:
    """The model described by a provider's settings; `ConfigurationError` when they cannot be used."""
    if kind not in PRESETS:
        raise ConfigurationError(
            f"There is no kind '{kind}' of model server.{nearest(kind, PRESETS)} Known: {', '.join(PRESETS)}."
        )
    http_common.checked_options(kind, options, OPTIONS)
    given = {name: value for name, value in options.items() if value is not None}
    preset = PRESETS[kind]
    base_url = given.get("base_url", preset.base_url)
    if problem := http_common.wrong_address(base_url):
        raise ConfigurationError(f"Provider of kind '{kind}': {problem}.")
    http_common.check_limits(kind, given)
    return OpenAIModel(
        base_url,
        kind=kind,
        model_id=given.get("model_id"),
        api_key_env=given.get("api_key_env", preset.api_key_env),
        native_tools=given.get("native_tools", False),
        connect_timeout=given.get("timeout", http_common.CONNECT_TIMEOUT),
        answer_timeout=given.get("answer_timeout", http_common.ANSWER_TIMEOUT),
        max_answer_bytes=given.get("max_answer_bytes"),
        context_tokens=given.get("context_tokens"),
        prices=prices,
    )


@dataclass
class _Accepted:
    """The parameters one model of a server is known to accept."""

    limit: str | None
    """Its name for the limit on the tokens of an answer; None when it accepts no limit."""
    most: int | None = None
    """The largest limit it accepts, if it has said so."""
    renamed: bool = False
    form: Literal["json_schema", "json_object", "words"] = "json_schema"
    proven: bool = False
    """It has accepted a schema before, so a refusal is about the schema at hand."""
    refused_schemas: dict[str, Literal["json_object", "words"]] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)
    """Parameters and fields of messages to leave out."""
    signs: bool = False
    """It refuses calls without a signature."""


class _Refused(Exception):
    """The server refused the request as it stands."""

    def __init__(self, error: ExecutorError, message: str) -> None:
        self.error = error
        self.said = message


class OpenAIModel:
    """A model behind `/chat/completions`."""

    def __init__(
        self,
        base_url: str,
        *,
        kind: str = "openai",
        model_id: str | None = None,
        api_key_env: str | None = None,
        native_tools: bool = False,
        connect_timeout: float = http_common.CONNECT_TIMEOUT,
        answer_timeout: float = http_common.ANSWER_TIMEOUT,
        max_answer_bytes: int | None = None,
        context_tokens: int | None = None,
        prices: PriceTable | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.model_id = model_id
        self.native_tools = native_tools
        self.context_tokens = context_tokens
        """Tokens of prompt and answer together; None where that is not known."""
        self._kind = kind
        self._preset = PRESETS[kind]
        self._api_key_env = api_key_env
        self._connect_timeout = connect_timeout
        self._answer_timeout = answer_timeout
        self._max_answer_bytes = max_answer_bytes
        self._prices = prices or PriceTable()
        self._clock = clock
        self._client: HttpClient | None = None
        self._problem = http_common.wrong_address(self.base_url)
        self._accepted: dict[str | None, _Accepted] = {}
        self._answer_formats = IdentityMemo(_answer_format)
        self._arguments = IdentityMemo(to_plain)
        self._server = f"The {kind} server at {host_of(self.base_url)}"
        self._provider = f"chat completions of {host_of(self.base_url)}"
        """Who is sent opaque parts back."""

    def available(self) -> Availability:
        """Whether the server could be asked now; nothing is sent."""
        if importlib.util.find_spec("httpx2") is None:
            return Availability(False, "httpx2 is not installed: pip install 'detent[models]'")
        if self._api_key_env and not os.environ.get(self._api_key_env):
            return Availability(False, f"{self._api_key_env} is not set")
        return Availability(not self._problem, self._problem)

    @property
    def needs_model_id(self) -> bool:
        """Whether each request has to name a model."""
        return self.model_id is None and self._preset.needs_model

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost of asking is known; the user's own server costs nothing."""
        return self._preset.local or self._prices.known(model_id or self.model_id)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """One answer. Cancelling closes the connection, which stops the server."""
        model_id = request.model_id or self.model_id
        if model_id is None and self.needs_model_id:
            raise MisconfiguredError(f"{self._server} serves several models: say which with `model_id`.")
        accepted = self._accepted.setdefault(model_id, _Accepted(self._preset.limit))
        names = http_common.WireNames(request)
        while True:
            body = self._body(request, model_id, accepted, names, streaming=on_text is not None)
            try:
                answer = await self._ask(body, request, names, on_text)
            except _Refused as refused:
                if not _adapt(accepted, body, request, refused.said):
                    raise refused.error from None
                continue
            accepted.proven = accepted.proven or _form_of(body) == "json_schema"
            return answer

    # -- asking ---------------------------------------------------------------------------------------------

    def _connected(self) -> HttpClient:
        """The client, made at the first request.

        Raises:
            MisconfiguredError: httpx2 is missing, or the address is none.
        """
        if self._client is None:
            if self._problem:
                raise MisconfiguredError(f"{self._server} cannot be reached: {self._problem}.")
            try:
                from detent.adapters.http_client import HttpClient
            except ImportError as error:
                raise MisconfiguredError("httpx2 is not installed: pip install 'detent[models]'.") from error
            self._client = HttpClient(
                f"{self.base_url}/chat/completions",
                headers={"content-type": "application/json", "user-agent": "detent", **IDENTITY},
                connect_timeout=self._connect_timeout,
                trust_env=not on_this_machine(self.base_url),
            )
        return self._client

    def _key(self) -> str:
        return os.environ.get(self._api_key_env, "") if self._api_key_env else ""

    async def _ask(
        self,
        body: dict[str, Any],
        request: ModelRequest,
        names: http_common.WireNames,
        on_text: OnText | None,
    ) -> ModelAnswer:
        client = self._connected()
        from detent.adapters.http_client import HttpFailure

        headers = {"authorization": f"Bearer {key}"} if (key := self._key()) else {}
        content = encode(body).encode()
        most = self._max_answer_bytes or max(SMALLEST_LIMIT, BYTES_PER_TOKEN * request.max_tokens)
        try:
            async with asyncio.timeout(self._answer_timeout), client.post(content, headers) as response:
                if response.status_code != 200:
                    raise self._refusal(
                        response.status_code, await _refused_with(response), response.headers, request
                    )
                streamed = response.headers.get("content-type", "").startswith("text/event-stream")
                if on_text is None or not streamed:
                    return self._whole(await whole(response, most), request, names)
                return await self._followed(pieces(response, most), request, names, on_text)
        except TimeoutError:
            raise http_common.too_late(self._server, self._answer_timeout) from None
        except BodyTooLarge as error:
            raise ExecutorError(
                f"{self._server} sent {error}, which is no answer of {request.max_tokens} tokens."
            ) from None
        except BodyEncoded:
            raise ExecutorError(f"{self._server} sent an answer that cannot be decoded.") from None
        except HttpFailure as error:
            raise ExecutorError(
                f"{self._server} could not be reached, or broke off ({error}).", transient=True
            ) from error

    def _body(
        self,
        request: ModelRequest,
        model_id: str | None,
        accepted: _Accepted,
        names: http_common.WireNames,
        *,
        streaming: bool,
    ) -> dict[str, Any]:
        """The body of a request: a plain value."""
        messages = request.messages
        body: dict[str, Any] = {"model": model_id} if model_id else {}
        if request.schema is not None:
            form = _form(accepted, request.schema)
            if form == "json_schema":
                body["response_format"] = self._answer_formats(request.schema)
            else:
                messages = with_system_text(messages, http_common.in_words(request.schema))
                if form == "json_object":
                    body["response_format"] = {"type": form}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": names.wire(tool.name),
                        "description": tool.description,
                        "parameters": self._arguments(tool.arguments),
                    },
                }
                for tool in request.tools
            ]
        body["messages"] = [
            _message(
                message, names, http_common.opaque_data(message, self._provider, model_id or ""), accepted
            )
            for message in _in_order(messages)
        ]
        if "temperature" not in accepted.without:
            body["temperature"] = request.temperature
        if accepted.limit is not None:
            body[accepted.limit] = min(request.max_tokens, accepted.most or request.max_tokens)
        if streaming:
            body["stream"] = True
            if "stream_options" not in accepted.without:
                body["stream_options"] = {"include_usage": True}
        return body

    # -- reading --------------------------------------------------------------------------------------------

    def _refusal(
        self, status: int, raw: bytes, headers: Mapping[str, str], request: ModelRequest
    ) -> ExecutorError | _Refused:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        message, code = http_common.told(body)
        error = http_common.status_failure(
            self._server,
            status,
            http_common.fit_to_tell(message, request, [self._key()]),
            code=code,
            retry_after=http_common.retry_after(headers, self._clock()),
            too_long=http_common.too_long(status, message, code),
        )
        return _Refused(error, f"{code} {message}".lower()) if status in (400, 422) else error

    def _failure_inside(self, body: Mapping[str, Any], request: ModelRequest) -> ExecutorError:
        """An error reported in a body with status 200, or in the middle of a stream."""
        message, code = http_common.told(body)
        error = body["error"]
        status = error.get("code") if isinstance(error, Mapping) else None
        if not isinstance(status, int) or not 400 <= status < 600:
            status = 503 if any(word in code for word in ("overloaded", "unavailable")) else None
            status = status or (429 if "rate_limit" in code else 500 if "server" in code else 400)
        return http_common.status_failure(
            self._server, status, http_common.fit_to_tell(message, request, [self._key()]), code=code,
            too_long=http_common.too_long(status, message, code),
        )  # fmt: skip

    def _whole(self, raw: bytes, request: ModelRequest, names: http_common.WireNames) -> ModelAnswer:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            cut = http_common.cut_short(raw.decode("utf-8", "replace"))
            what = "an answer that stops in the middle" if cut else "something that is no answer"
            raise ExecutorError(f"{self._server} sent {what} ({len(raw)} bytes).", transient=cut) from None
        if isinstance(body, Mapping) and body.get("error"):
            raise self._failure_inside(body, request)
        try:
            return self._answer(ChatCompletion.whole(body, names.knows), request, names)
        except NoChoice:
            raise self._silence() from None
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._garbage(len(raw)) from error

    async def _followed(
        self,
        pieces: AsyncIterator[bytes],
        request: ModelRequest,
        names: http_common.WireNames,
        on_text: OnText,
    ) -> ModelAnswer:
        partial, size = ChatCompletion(names.knows), 0
        async for data in _events(pieces):
            size += len(data)
            if data.strip() == b"[DONE]":
                partial.done = True
                break
            try:
                body = json.loads(data)
                if body.get("error"):
                    raise self._failure_inside(body, request)
                texts = partial.add(body)
            except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError) as error:
                raise self._garbage(size) from error
            for text, kind in texts:
                await on_text(text, kind)
        if not partial.done and partial.reason is None:
            raise self._broken_off()
        if not partial.chosen:
            raise self._silence()
        return self._answer(partial, request, names)

    def _garbage(self, size: int) -> ExecutorError:
        return ExecutorError(f"{self._server} sent something that is no chat completion ({size} bytes).")

    def _broken_off(self) -> ExecutorError:
        return ExecutorError(f"{self._server} broke off in the middle of its answer.", transient=True)

    def _silence(self) -> ExecutorError:
        return ExecutorError(f"{self._server} sent a chat completion without an answer.", transient=True)

    def _answer(
        self, partial: ChatCompletion, request: ModelRequest, names: http_common.WireNames
    ) -> ModelAnswer:
        if partial.broke_off:
            raise self._broken_off()
        model_id = partial.model_id if isinstance(partial.model_id, str) else None
        usage = self._usage(partial.usage, request.model_id or self.model_id, model_id)
        calls = tuple(
            ToolCall(call.id or f"call_{index}", names.own(call.name), call.read())
            for index, call in enumerate(partial.calls)
        )
        opaque = None
        if calls and (kept := partial.kept()):
            opaque = Opaque(self._provider, request.model_id or self.model_id or "", encode(kept))
        return ModelAnswer(partial.text, usage, model_id, partial.finish, calls, opaque)

    def _usage(self, reported: Any, asked_id: str | None, answered_id: str | None) -> UsageMetadata:
        reported = reported if isinstance(reported, Mapping) else {}
        details = reported.get("prompt_tokens_details")
        usage = UsageMetadata(
            input_tokens=_count(reported.get("prompt_tokens")),
            output_tokens=_count(reported.get("completion_tokens")),
            cache_read_tokens=_count(details.get("cached_tokens") if isinstance(details, Mapping) else 0),
        )
        cost = self._cost(usage, asked_id, answered_id) if reported or self._preset.local else None
        return UsageMetadata(
            usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, total_cost_usd=cost
        )

    def _cost(self, usage: UsageMetadata, asked_id: str | None, answered_id: str | None) -> float | None:
        for model_id in (asked_id, answered_id):
            if self._prices.given(model_id):
                return self._prices.cost(model_id, usage)
        if self._preset.local:
            return 0.0
        cost = self._prices.cost(asked_id, usage)
        return cost if cost is not None else self._prices.cost(answered_id, usage)


async def _refused_with(response: HttpResponse) -> bytes:
    """The body of a refusal; empty when it is too long or packed."""
    try:
        return await whole(response, LARGEST_REFUSAL)
    except (BodyTooLarge, BodyEncoded):
        return b""


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events. Only line feeds end a line: other line breaks may occur within JSON."""
    rest, data = bytearray(), list[bytes]()
    async for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(bytes(rest[5:]))
    if data and data[-1].strip() == b"[DONE]":  # the last event may lack its blank line; any other is cut off
        yield data[-1]


def _in_order(messages: Sequence[Message]) -> list[Message]:
    """The messages in an order that every server accepts.

    Mistral refuses a `user` message directly after `tool` messages, so its text is appended to the last of
    them, after a blank line.
    """
    ordered: list[Message] = []
    for message in messages:
        if message.role == "user" and ordered and ordered[-1].role in ("tool", "user"):
            before = ordered[-1]
            ordered[-1] = before._replace(content=f"{before.content}\n\n{message.content}")
        else:
            ordered.append(message)
    return ordered


def _message(
    message: Message, names: http_common.WireNames, opaque: Mapping[str, Any] | None, accepted: _Accepted
) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    fields = {name: opaque[name] for name in KEPT if name in opaque} if opaque else {}
    if message.calls:
        plain["tool_calls"] = [
            {
                "id": http_common.wire_id(call.id),
                "type": "function",
                "function": {"name": names.wire(call.name), "arguments": encode(to_plain(call.arguments))},
            }
            for call in message.calls
        ]
        signatures = dict(opaque.get("calls", {})) if opaque else {}
        if accepted.signs and not signatures:
            signatures["0"] = UNSIGNED
        if "extra_content" not in accepted.without:
            for index, signature in signatures.items():
                plain["tool_calls"][int(index)]["extra_content"] = signature
    if message.answers is not None:
        plain["tool_call_id"] = http_common.wire_id(message.answers)
    return {**plain, **{name: value for name, value in fields.items() if name not in accepted.without}}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# -- what a server accepts ---------------------------------------------------------------------------------


def _answer_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """How a server is told that an answer must fit a schema."""
    closed = http_common.closed(schema)
    strict = http_common.is_object(closed) and http_common.wholly_closed(closed)
    json_schema = {"name": "answer", "schema": to_plain(closed), "strict": strict}
    return {"type": "json_schema", "json_schema": json_schema}


def _form(accepted: _Accepted, schema: Mapping[str, Any]) -> str:
    form: str = accepted.form
    if accepted.refused_schemas:
        form = accepted.refused_schemas.get(digest(to_plain(schema), 24), accepted.form)
    # A server told to give an object gives one, whatever the schema in the prompt says.
    return "words" if form == "json_object" and not http_common.is_object(schema) else form


def _form_of(body: Mapping[str, Any]) -> str:
    response_format = body.get("response_format")
    return str(response_format["type"]) if response_format else "words"


_ABOUT_FORM = (
    "response_format",
    "response format",
    "json_schema",
    "json_object",
    "schema",
    "grammar",
    "structured",
)


def _adapt(accepted: _Accepted, body: Mapping[str, Any], request: ModelRequest, refusal: str) -> bool:
    """Change what is sent after a refusal; False when the refusal names nothing that could be changed."""
    unwanted = [name for name in KEPT if name in refusal and name not in accepted.without]
    unwanted = [name for name in unwanted if f'"{name}":' in encode(to_plain(body["messages"]))]
    if "missing" in refusal and "thought_signature" in refusal and not accepted.signs:
        accepted.signs = True
    elif unwanted and not any(word in refusal for word in ("missing", "must be passed")):
        accepted.without.update(unwanted)
    elif "stream_options" in body and "stream_options" in refusal:
        accepted.without.add("stream_options")
    elif "temperature" in body and "temperature" in refusal:
        accepted.without.add("temperature")
    elif accepted.limit is not None and ("max_tokens" in refusal or "max_completion_tokens" in refusal):
        most = http_common.accepted_tokens(refusal, body[accepted.limit])
        if most is not None and accepted.most is None:
            accepted.most = most
            logger.warning(
                "model.limit_lowered", model=body.get("model"), asked=request.max_tokens, sent=most
            )
            return True
        other = "max_completion_tokens" if accepted.limit == "max_tokens" else "max_tokens"
        too_many = any(word in refusal for word in ("too large", "at most", "maximum", "exceed", "less than"))
        accepted.limit = other if other in refusal and not too_many and not accepted.renamed else None
        accepted.renamed = True
    elif "response_format" in body and request.schema is not None and any(w in refusal for w in _ABOUT_FORM):
        looser: Literal["json_object", "words"] = (
            "json_object"
            if _form_of(body) == "json_schema" and http_common.is_object(request.schema)
            else "words"
        )
        if accepted.proven:
            accepted.refused_schemas[digest(to_plain(request.schema), 24)] = looser
        else:
            accepted.form = looser
    else:
        return False
    return True
