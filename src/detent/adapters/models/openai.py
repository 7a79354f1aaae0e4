"""Models behind servers that speak OpenAI's chat completions: its own, Ollama, vLLM, llama.cpp and others.

Servers differ in what they take. What one refuses is remembered as long as the model object lives, and not
asked of it again.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from detent.adapters.hosts import host_of, on_this_machine
from detent.adapters.http_body import IDENTITY, BodyEncoded, BodyTooLarge, pieces, whole
from detent.adapters.models import http_common
from detent.adapters.models.model import Message, ModelAnswer, ModelRequest, OnText, ToolCall
from detent.adapters.models.prices import PriceTable
from detent.dispatch.executor import Availability
from detent.dispatch.executor_errors import ExecutorError, OutputSchemaValidationError
from detent.dispatch.usage import UsageMetadata
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import digest, encode, to_plain

if TYPE_CHECKING:
    import httpx2

Finish = Literal["stop", "length", "tool", "filter", "other"]

SMALLEST_LIMIT = 4 * 1024 * 1024
BYTES_PER_TOKEN = 1024
"""Bytes that an answer may have: this many for each token asked for, and never less than the smallest limit.

A streamed token comes in an event of its own, of a few hundred bytes.
"""
LARGEST_REFUSAL = 256 * 1024
"""Bytes read of an answer that is a refusal."""


class Preset(NamedTuple):
    """What is usual for a kind of server."""

    base_url: str
    api_key_env: str | None = None
    local: bool = False
    """A server of one's own: its answers cost nothing."""
    needs_model: bool = True
    limit: str = "max_tokens"
    """What the server calls the most tokens of an answer."""


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
}


def connect(
    options: Mapping[str, Any],
    *,
    kind: str = "openai",
    folder: Path | None = None,
    prices: PriceTable | None = None,
) -> OpenAIModel:
    """The model a provider's settings describe; `ConfigurationError` when they cannot be used."""
    if kind not in PRESETS:
        raise ConfigurationError(
            f"There is no kind '{kind}' of model server.{nearest(kind, PRESETS)} Known: {', '.join(PRESETS)}."
        )
    http_common.checked_options(kind, options, OPTIONS)
    said = {name: value for name, value in options.items() if value is not None}
    preset = PRESETS[kind]
    base_url = said.get("base_url", preset.base_url)
    if wrong := http_common.wrong_address(base_url):
        raise ConfigurationError(f"Provider of kind '{kind}': {wrong}.")
    http_common.check_limits(kind, said)
    return OpenAIModel(
        base_url,
        kind=kind,
        model_id=said.get("model_id"),
        api_key_env=said.get("api_key_env", preset.api_key_env),
        native_tools=said.get("native_tools", False),
        connect_timeout=said.get("timeout", http_common.CONNECT_TIMEOUT),
        answer_timeout=said.get("answer_timeout", http_common.ANSWER_TIMEOUT),
        max_answer_bytes=said.get("max_answer_bytes"),
        prices=prices,
    )


@dataclass
class _Taken:
    """What one model of a server takes, as far as is known."""

    limit: str | None
    """What it calls the most tokens of an answer; None when it wants to hear none."""
    renamed: bool = False
    form: Literal["json_schema", "json_object", "words"] = "json_schema"
    proven: bool = False
    """It has taken a schema before, so a refusal is about the schema at hand."""
    refused_schemas: dict[str, Literal["json_object", "words"]] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)
    """Parameters it wants left out."""


class _Refused(Exception):
    """The server refused the request as it stands."""

    def __init__(self, error: ExecutorError, said: str) -> None:
        self.error = error
        self.said = said


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
        prices: PriceTable | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.model_id = model_id
        self.native_tools = native_tools
        self._kind = kind
        self._preset = PRESETS[kind]
        self._api_key_env = api_key_env
        self._connect_timeout = connect_timeout
        self._answer_timeout = answer_timeout
        self._max_answer_bytes = max_answer_bytes
        self._prices = prices or PriceTable()
        self._clock = clock
        self._client: httpx2.AsyncClient | None = None
        self._taken: dict[str | None, _Taken] = {}
        self._who = f"The {kind} server at {host_of(self.base_url)}"

    def available(self) -> Availability:
        """Whether it could be asked now; nothing is sent."""
        if importlib.util.find_spec("httpx2") is None:
            return Availability(False, "httpx2 is not installed: pip install 'detent[models]'")
        if self._api_key_env and not os.environ.get(self._api_key_env):
            return Availability(False, f"{self._api_key_env} is not set")
        wrong = http_common.wrong_address(self.base_url)
        return Availability(not wrong, wrong)

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost of asking is known: a server of one's own costs nothing."""
        return self._preset.local or self._prices.known(model_id or self.model_id)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """One answer. Cancelling closes the connection, which stops the server."""
        model_id = request.model_id or self.model_id
        if model_id is None and self._preset.needs_model:
            raise ExecutorError(f"{self._who} serves several models: say which with `model_id`.")
        taken = self._taken.setdefault(model_id, _Taken(self._preset.limit))
        names = http_common.WireNames(request)
        while True:
            body = self._body(request, model_id, taken, names, streaming=on_text is not None)
            try:
                answer = await self._ask(body, request, names, on_text)
            except _Refused as refused:
                if not _adapted(taken, body, request, refused.said):
                    raise refused.error from None
                continue
            taken.proven = taken.proven or _form_of(body) == "json_schema"
            return answer

    # -- asking ---------------------------------------------------------------------------------------------

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(None, connect=self._connect_timeout),
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
        try:
            client = self._connected()
            import httpx2
        except ImportError as error:
            raise ExecutorError("httpx2 is not installed: pip install 'detent[models]'.") from error
        headers = {"content-type": "application/json", **IDENTITY}
        if key := self._key():
            headers["authorization"] = f"Bearer {key}"
        url, content = f"{self.base_url}/chat/completions", encode(to_plain(body)).encode()
        most = self._max_answer_bytes or max(SMALLEST_LIMIT, BYTES_PER_TOKEN * request.max_tokens)
        try:
            async with (
                asyncio.timeout(self._answer_timeout),
                client.stream("POST", url, content=content, headers=headers) as response,
            ):
                if response.status_code != 200:
                    raise self._refusal(
                        response.status_code, await _refused_with(response), response.headers, request
                    )
                streamed = response.headers.get("content-type", "").startswith("text/event-stream")
                if on_text is None or not streamed:
                    return self._whole(await whole(response, most), request, names)
                return await self._followed(pieces(response, most), request, names, on_text)
        except TimeoutError:
            raise http_common.too_late(self._who, self._answer_timeout) from None
        except BodyTooLarge as error:
            raise ExecutorError(
                f"{self._who} sent {error}, which is no answer of {request.max_tokens} tokens."
            ) from None
        except BodyEncoded:
            raise ExecutorError(f"{self._who} sent an answer that cannot be decoded.") from None
        except httpx2.UnsupportedProtocol:
            raise ExecutorError(
                f"{self._who} cannot be reached: {http_common.wrong_address(self.base_url)}."
            ) from None
        except httpx2.TransportError as error:
            raise ExecutorError(
                f"{self._who} could not be reached, or broke off ({type(error).__name__}).", transient=True
            ) from error

    def _body(
        self,
        request: ModelRequest,
        model_id: str | None,
        taken: _Taken,
        names: http_common.WireNames,
        *,
        streaming: bool,
    ) -> dict[str, Any]:
        messages = list(request.messages)
        body: dict[str, Any] = {"model": model_id} if model_id else {}
        if request.schema is not None:
            form = _form(taken, request.schema)
            if form == "json_schema":
                schema = http_common.closed(request.schema)
                strict = http_common.is_object(schema) and http_common.wholly_closed(schema)
                body["response_format"] = {
                    "type": form,
                    "json_schema": {"name": "answer", "schema": schema, "strict": strict},
                }
            else:
                messages = _with_words(messages, http_common.in_words(request.schema))
                if form == "json_object":
                    body["response_format"] = {"type": form}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": names.wire(tool.name),
                        "description": tool.description,
                        "parameters": tool.arguments,
                    },
                }
                for tool in request.tools
            ]
        body["messages"] = [_message(message, names) for message in messages]
        if "temperature" not in taken.without:
            body["temperature"] = request.temperature
        if taken.limit is not None:
            body[taken.limit] = request.max_tokens
        if streaming:
            body["stream"] = True
            if "stream_options" not in taken.without:
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
            self._who,
            status,
            http_common.fit_to_tell(message, request, [self._key()]),
            code=code,
            retry_after=http_common.retry_after(headers, self._clock()),
        )
        return _Refused(error, f"{code} {message}".lower()) if status in (400, 422) else error

    def _failure_inside(self, body: Mapping[str, Any], request: ModelRequest) -> ExecutorError:
        """An error told in a body that came with status 200, or in the middle of a stream."""
        message, code = http_common.told(body)
        error = body["error"]
        status = error.get("code") if isinstance(error, Mapping) else None
        if not isinstance(status, int) or not 400 <= status < 600:
            status = 503 if any(word in code for word in ("overloaded", "unavailable")) else None
            status = status or (429 if "rate_limit" in code else 500 if "server" in code else 400)
        return http_common.status_failure(
            self._who, status, http_common.fit_to_tell(message, request, [self._key()]), code=code
        )

    def _whole(self, raw: bytes, request: ModelRequest, names: http_common.WireNames) -> ModelAnswer:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            cut = http_common.cut_short(raw.decode("utf-8", "replace"))
            how = "an answer that stops in the middle" if cut else "something that is no answer"
            raise ExecutorError(f"{self._who} sent {how} ({len(raw)} bytes).", transient=cut) from None
        if isinstance(body, Mapping) and body.get("error"):
            raise self._failure_inside(body, request)
        try:
            choice = body["choices"][0]
            message = choice["message"]
            heard = _Heard(
                text=[message.get("content") or ""],
                finish=choice.get("finish_reason") or "stop",
                model_id=body.get("model"),
                usage=body.get("usage"),
                refused=bool(message.get("refusal")),
            )
            for place, call in enumerate(message.get("tool_calls") or ()):
                heard.hear_call({**call, "index": place})
            return self._answer(heard, request, names)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._garbage(len(raw)) from error

    async def _followed(
        self,
        pieces: AsyncIterator[bytes],
        request: ModelRequest,
        names: http_common.WireNames,
        on_text: OnText,
    ) -> ModelAnswer:
        heard, size = _Heard(), 0
        async for data in _events(pieces):
            size += len(data)
            if data.strip() == b"[DONE]":
                heard.done = True
                break
            try:
                body = json.loads(data)
                if body.get("error"):
                    raise self._failure_inside(body, request)
                news = heard.hear(body)
            except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError) as error:
                raise self._garbage(size) from error
            for text, kind in news:
                await on_text(text, kind)
        if not heard.done and heard.finish is None:
            raise ExecutorError(f"{self._who} broke off in the middle of its answer.", transient=True)
        return self._answer(heard, request, names)

    def _garbage(self, size: int) -> ExecutorError:
        return ExecutorError(f"{self._who} sent something that is no chat completion ({size} bytes).")

    def _answer(self, heard: _Heard, request: ModelRequest, names: http_common.WireNames) -> ModelAnswer:
        model_id = heard.model_id if isinstance(heard.model_id, str) else None
        usage = self._usage(heard.usage, request.model_id or self.model_id, model_id)
        finish = _finish(heard)
        calls = []
        for place, call in enumerate(heard.calls.values()):
            try:
                arguments = json.loads("".join(call.arguments) or "{}")
            except (ValueError, RecursionError):
                arguments = None
            if not isinstance(arguments, Mapping):
                why = "the answer was cut" if finish == "length" else "they are no JSON object"
                raise OutputSchemaValidationError(
                    "", "a tool's arguments", [f"/{place}/arguments: {why}"], usage=usage
                )
            calls.append(ToolCall(call.id or f"call_{place}", names.own(call.name), arguments))
        return ModelAnswer("".join(heard.text), usage, model_id, finish, tuple(calls))

    def _usage(self, said: Any, asked: str | None, answered: str | None) -> UsageMetadata:
        said = said if isinstance(said, Mapping) else {}
        details = said.get("prompt_tokens_details")
        usage = UsageMetadata(
            input_tokens=_count(said.get("prompt_tokens")),
            output_tokens=_count(said.get("completion_tokens")),
            cache_read_tokens=_count(details.get("cached_tokens") if isinstance(details, Mapping) else 0),
        )
        cost = self._cost(usage, asked, answered) if said or self._preset.local else None
        return UsageMetadata(
            usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, total_cost_usd=cost
        )

    def _cost(self, usage: UsageMetadata, asked: str | None, answered: str | None) -> float | None:
        for model_id in (asked, answered):
            if self._prices.given(model_id):
                return self._prices.cost(model_id, usage)
        if self._preset.local:
            return 0.0
        cost = self._prices.cost(asked, usage)
        return cost if cost is not None else self._prices.cost(answered, usage)


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass
class _Heard:
    """An answer as far as it has come."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    finish: str | None = None
    model_id: Any = None
    usage: Any = None
    refused: bool = False
    done: bool = False

    def hear(self, body: Mapping[str, Any]) -> list[tuple[str, Literal["output", "thinking"]]]:
        """Take in one piece of a stream; gives the text to tell."""
        self.model_id = body.get("model") or self.model_id
        self.usage = body.get("usage") or self.usage
        told: list[tuple[str, Literal["output", "thinking"]]] = []
        for choice in body.get("choices") or ():
            delta = choice.get("delta") or {}
            if thought := delta.get("reasoning_content") or delta.get("reasoning"):
                told.append((str(thought), "thinking"))
            if text := delta.get("content"):
                self.text.append(text)
                told.append((text, "output"))
            self.refused = self.refused or bool(delta.get("refusal"))
            for call in delta.get("tool_calls") or ():
                self.hear_call(call)
            self.finish = choice.get("finish_reason") or self.finish
        return told

    def hear_call(self, piece: Mapping[str, Any]) -> None:
        """Take in a tool call, or a piece of one."""
        call = self.calls.setdefault(piece.get("index", 0), _Call())
        function = piece.get("function") or {}
        call.id = piece.get("id") or call.id
        call.name = function.get("name") or call.name
        arguments = function.get("arguments") or ""
        # Some servers give the arguments as an object instead of as its text.
        call.arguments.append(arguments if isinstance(arguments, str) else json.dumps(arguments))


async def _refused_with(response: httpx2.Response) -> bytes:
    """The body of a refusal, or nothing where it is too long or packed to be words for people."""
    try:
        return await whole(response, LARGEST_REFUSAL)
    except (BodyTooLarge, BodyEncoded):
        return b""


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events. Only line feeds end a line: others may stand in JSON as they are."""
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
    if data and data[-1].strip() == b"[DONE]":  # a last event lacking its blank line; another one is cut off
        yield data[-1]


def _message(message: Message, names: http_common.WireNames) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": names.wire(call.name), "arguments": encode(to_plain(call.arguments))},
            }
            for call in message.calls
        ]
    if message.answers is not None:
        plain["tool_call_id"] = message.answers
    return plain


def _with_words(messages: list[Message], words: str) -> list[Message]:
    if messages and messages[0].role == "system":
        return [messages[0]._replace(content=f"{messages[0].content}\n\n{words}"), *messages[1:]]
    return [Message("system", words), *messages]


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _finish(heard: _Heard) -> Finish:
    if heard.refused:
        return "filter"
    names: dict[str, Finish] = {
        "stop": "stop", "length": "length", "tool_calls": "tool", "function_call": "tool",
        "content_filter": "filter",
    }  # fmt: skip
    return names.get(heard.finish or "stop", "other")


# -- what a server takes ------------------------------------------------------------------------------------


def _form(taken: _Taken, schema: Mapping[str, Any]) -> str:
    form = taken.refused_schemas.get(digest(to_plain(schema), 24), taken.form)
    # A server told to give an object gives one, whatever the schema in words says.
    return "words" if form == "json_object" and not http_common.is_object(schema) else form


def _form_of(body: Mapping[str, Any]) -> str:
    said = body.get("response_format")
    return str(said["type"]) if said else "words"


_ABOUT_FORM = (
    "response_format",
    "response format",
    "json_schema",
    "json_object",
    "schema",
    "grammar",
    "structured",
)


def _adapted(taken: _Taken, body: Mapping[str, Any], request: ModelRequest, said: str) -> bool:
    """Whether the request can be put another way, after what the server said against it."""
    if "stream_options" in body and "stream_options" in said:
        taken.without.add("stream_options")
    elif "temperature" in body and "temperature" in said:
        taken.without.add("temperature")
    elif taken.limit is not None and ("max_tokens" in said or "max_completion_tokens" in said):
        other = "max_completion_tokens" if taken.limit == "max_tokens" else "max_tokens"
        too_many = any(word in said for word in ("too large", "at most", "maximum", "exceed", "less than"))
        taken.limit = other if other in said and not too_many and not taken.renamed else None
        taken.renamed = True
    elif "response_format" in body and request.schema is not None and any(w in said for w in _ABOUT_FORM):
        looser: Literal["json_object", "words"] = (
            "json_object"
            if _form_of(body) == "json_schema" and http_common.is_object(request.schema)
            else "words"
        )
        if taken.proven:
            taken.refused_schemas[digest(to_plain(request.schema), 24)] = looser
        else:
            taken.form = looser
    else:
        return False
    return True
