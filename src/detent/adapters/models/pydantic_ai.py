"""Models through pydantic-ai's model layer, which knows many providers. Its agent loop is not used."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from detent.adapters.hosts import host_of
from detent.adapters.http_body import limiting_hooks, too_large
from detent.adapters.models import http_common
from detent.adapters.models.call_arguments import read_arguments
from detent.adapters.models.model import ModelRequest, OnText
from detent.adapters.models.prices import PriceTable
from detent.adapters.tls import tls_context
from detent.dispatch.conversation import Message, ModelAnswer, Opaque, ToolCall
from detent.dispatch.executor import Availability
from detent.dispatch.executor_errors import ExecutorError, MisconfiguredError, RequestTooLongError
from detent.dispatch.usage import UsageMetadata
from detent.engine import logger
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model as Served
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

LONGEST_ANSWER = 16 * 1024 * 1024
"""Characters of a streamed answer."""
ANSWER_TOOL = "give_answer"
"""The tool through which a model answers that can be constrained to a schema in no other way."""

PATIENCE = 24 * 3600.0
"""Seconds a provider's client waits for more of an answer; its own default is a few minutes."""

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of an answer; about twice what the longest answer takes, streamed token by token."""

OPTIONS: Mapping[str, type | tuple[type, ...]] = {
    "model": str,
    "answer_timeout": (int, float),
    "max_answer_bytes": int,
    "context_tokens": int,
}

MISSING = "pydantic-ai is not installed: pip install 'detent[providers]'"


class Made(NamedTuple):
    """A model of the library, and how to close it."""

    model: Served
    close: Callable[[], Awaitable[None]] | None = None
    """None lets the library close what it opened."""
    patience: float | None = None
    """Seconds to wait for more of an answer; None where the client has a limit of its own."""
    counted: bool = True
    """Whether its client counts the bytes of an answer; without that, answers are always streamed."""


def connect(
    options: Mapping[str, Any],
    *,
    kind: str = "pydantic-ai",
    folder: Path | None = None,
    prices: PriceTable | None = None,
) -> PydanticAIModel:
    """The model described by a provider's settings; `ConfigurationError` when they cannot be used."""
    http_common.checked_options(kind, options, OPTIONS)
    http_common.check_limits(kind, options)
    name = options.get("model") or ""
    largest = options.get("max_answer_bytes") or LARGEST_ANSWER
    provider, colon, _ = name.partition(":")
    if not colon or not provider:
        raise ConfigurationError(
            f"A provider of kind '{kind}' needs the option `model`, such as 'anthropic:claude-haiku-5-5'."
        )

    def make(model_id: str) -> Made:
        from pydantic_ai.models import infer_model

        full_name = model_id if ":" in model_id else f"{provider}:{model_id}"
        clients: list[Any] = []

        def make_provider(provider_name: str) -> Any:
            try:
                client_provider, http = _provider(provider_name, largest)
            except ValueError:
                raise ConfigurationError(f"Unknown model: {full_name}") from None
            clients.extend(http)
            return client_provider

        served = infer_model(full_name, make_provider)
        close = clients[0].aclose if clients else None
        return Made(served, close, patience=PATIENCE, counted=bool(clients))

    return PydanticAIModel(
        make,
        default_id=name,
        prices=prices,
        answer_timeout=options.get("answer_timeout") or http_common.ANSWER_TIMEOUT,
        context_tokens=options.get("context_tokens"),
    )


def _provider(name: str, largest: int) -> tuple[Any, tuple[Any, ...]]:
    """A provider of the library, and the HTTP client made for it if it accepts one.

    The client counts bytes and follows no redirects, which would send a key to another host.
    """
    from pydantic_ai.providers import infer_provider, infer_provider_class

    if name.startswith("gateway/"):
        return infer_provider(name), ()
    provider_class: Callable[..., Any] = infer_provider_class(name)
    parameter = inspect.signature(provider_class).parameters.get("http_client")
    if parameter is None:
        return provider_class(), ()
    library = importlib.import_module("httpx" if "httpx.Async" in str(parameter.annotation) else "httpx2")
    client = library.AsyncClient(
        timeout=library.Timeout(PATIENCE, connect=http_common.CONNECT_TIMEOUT),
        verify=tls_context(),
        event_hooks=limiting_hooks(library, largest),
    )
    return provider_class(http_client=client), (client,)


class _LimitRefused(Exception):
    """The model accepts fewer tokens of an answer than were asked for."""

    def __init__(self, error: ExecutorError, most: int) -> None:
        self.error = error
        self.most = most


def _accepted_tokens(error: Exception, asked: int) -> int | None:
    """The largest limit that a refusal names; None for any other error."""
    from pydantic_ai.exceptions import ModelHTTPError

    if not isinstance(error, ModelHTTPError) or error.status_code != 400:
        return None
    return http_common.accepted_tokens(http_common.told(error.body)[0], asked)


class PydanticAIModel:
    """A model of pydantic-ai, created on the first request."""

    native_tools = True

    def __init__(
        self,
        make: Callable[[str], Made],
        *,
        default_id: str,
        ready: Callable[[], Availability] | None = None,
        prices: PriceTable | None = None,
        secrets: Callable[[], tuple[str, ...]] = tuple,
        answer_timeout: float = http_common.ANSWER_TIMEOUT,
        context_tokens: int | None = None,
    ) -> None:
        self.context_tokens = context_tokens
        """Tokens of prompt and answer together; None where that is not known."""
        self._make = make
        self._default_id = default_id
        self._ready = ready
        self._prices = prices or PriceTable()
        self._secrets = secrets
        self._answer_timeout = answer_timeout
        self._made: dict[str, Made] = {}
        self._making = asyncio.Lock()
        self._most: dict[str, int] = {}
        """The largest `max_tokens` that a model accepts, by its id, where it has said so."""

    def available(self) -> Availability:
        """Whether the model could be asked now; nothing is sent."""
        if self._ready is not None:
            return self._ready()
        if importlib.util.find_spec("pydantic_ai") is None:
            return Availability(False, MISSING)
        try:  # only the library knows which key each of its providers needs
            self._made.setdefault(self._default_id, self._make(self._default_id))
        except Exception as error:
            return Availability(False, _first_sentence(error))
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost of asking is known beforehand."""
        return self._prices.known(model_id or self._default_id)

    async def close(self) -> None:
        """Close the connections of every model."""
        made, self._made = self._made, {}
        for model in made.values():
            if model.close is not None:
                await model.close()
            elif model.model.provider is not None:
                # The provider closes its client when the last context that entered it exits.
                async with model.model:
                    pass

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """One answer. Cancelling closes the connection."""
        model_id = request.model_id or self._default_id
        most = self._most.get(model_id, request.max_tokens)
        try:
            return await self._complete(replace(request, max_tokens=min(request.max_tokens, most)), on_text)
        except _LimitRefused as refused:
            most = self._most[model_id] = refused.most
            logger.warning("model.limit_lowered", model=model_id, asked=request.max_tokens, sent=most)
        try:
            return await self._complete(replace(request, max_tokens=most), on_text)
        except _LimitRefused as refused:
            raise refused.error from None

    async def _complete(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        model_id = request.model_id or self._default_id
        made = await self._library_model(model_id)
        names = http_common.WireNames(request)
        deadline = asyncio.timeout(self._answer_timeout)
        try:
            async with deadline:
                response = await _ask(made, request, model_id, names, on_text)
        except ExecutorError:
            raise
        except Exception as error:
            if deadline.expired():
                raise http_common.too_late(_subject(model_id), self._answer_timeout) from None
            failure = self._failure(error, model_id, request)
            too_long = isinstance(failure, RequestTooLongError)
            if not too_long and (most := _accepted_tokens(error, request.max_tokens)) is not None:
                raise _LimitRefused(failure, most) from error
            raise failure from error
        if on_text is not None and (refusal := _refusal(response)):
            await on_text(refusal, "output")
        return self._answer(response, model_id, names, made.model)

    async def _library_model(self, model_id: str) -> Made:
        async with self._making:
            if model_id not in self._made:
                try:  # the import takes a good part of a second
                    self._made[model_id] = await asyncio.to_thread(self._make, model_id)
                except ImportError as error:
                    raise ExecutorError(f"{_first_sentence(error)}.") from error
                except Exception as error:
                    raise ExecutorError(
                        f"Model '{model_id}' cannot be set up: {_first_sentence(error)}."
                    ) from error
        return self._made[model_id]

    # -- reading --------------------------------------------------------------------------------------------

    def _answer(
        self, response: ModelResponse, model_id: str, names: http_common.WireNames, served: Served
    ) -> ModelAnswer:
        from pydantic_ai.messages import TextPart, ToolCallPart

        if response.state != "complete" or _unfinished(response, served):
            raise ExecutorError(
                f"{_subject(model_id)} broke off in the middle of its answer.", transient=True
            )
        usage = self._usage(response, model_id)
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        calls = []
        for part in (part for part in response.parts if isinstance(part, ToolCallPart)):
            arguments = read_arguments(part.args)
            if part.tool_name == ANSWER_TOOL:
                text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            else:
                calls.append(ToolCall(part.tool_call_id or "", names.own(part.tool_name or ""), arguments))
        finish = _finish(response)
        if refusal := _refusal(response):
            finish, text = "filter", f"{text}\n\n{refusal}" if text.strip() else refusal
        opaque = _opaque(response, served, model_id) if calls else None
        return ModelAnswer(text, usage, response.model_name or model_id, finish, tuple(calls), opaque)

    def _usage(self, response: ModelResponse, model_id: str) -> UsageMetadata:
        """The usage; `input_tokens` includes tokens read from and written to the cache."""
        reported = response.usage
        usage = UsageMetadata(
            reported.input_tokens,
            reported.output_tokens,
            reported.cache_read_tokens,
            reported.cache_write_tokens,
        )
        return replace(
            usage,
            total_cost_usd=None if reported.unmeasured_requests else self._cost(usage, response, model_id),
        )

    def _cost(self, usage: UsageMetadata, response: ModelResponse, model_id: str) -> float | None:
        bare_id = model_id.partition(":")[2] or model_id
        answered_id = response.model_name
        for name in (model_id, bare_id, answered_id):
            if self._prices.given(name):
                return self._prices.cost(name, usage)
        if response.usage.cost is not None:  # from the same price list, but with the provider known
            return float(response.usage.cost)
        for name in (model_id, bare_id, answered_id):
            if (cost := self._prices.cost(name, usage)) is not None:
                return cost
        return None

    def _failure(self, error: Exception, model_id: str, request: ModelRequest) -> ExecutorError:
        """The error for a failure of the library, whose messages hold whole bodies and are not shown."""
        from pydantic_ai import exceptions as of

        who = _subject(model_id)
        if (limit := too_large(error)) is not None:
            return ExecutorError(f"{who} sent {limit}, which is no answer.")
        if isinstance(error, of.ModelHTTPError):
            message, code = http_common.told(error.body)
            account_code = "billing" if isinstance(error, of.ModelQuotaExceededError) else code
            return http_common.status_failure(
                who, error.status_code, http_common.fit_to_tell(message, request, self._secrets()),
                code=account_code,
                retry_after=error.retry_after,
                too_long=isinstance(error, of.ModelContextWindowExceededError)
                or http_common.too_long(error.status_code, message, code),
            )  # fmt: skip
        if isinstance(error, of.ModelContextWindowExceededError):
            return RequestTooLongError(f"{who} refused the request: it is too long.")
        if isinstance(error, of.ModelConnectionError):
            return ExecutorError(
                f"{who} could not be reached, or broke off ({type(error.__cause__ or error).__name__}).",
                transient=True,
            )
        if isinstance(error, of.ModelUnavailableError | of.ModelServerError | of.ModelRateLimitError):
            return ExecutorError(
                f"{who} cannot answer now ({type(error).__name__}).",
                transient=True,
                retry_after=error.retry_after,
            )
        if isinstance(error, of.UserError):
            return MisconfiguredError(f"{who} cannot be asked ({type(error).__name__}).")
        if isinstance(error, of.ModelRequestRejectedError | of.ModelQuotaExceededError):
            return ExecutorError(f"{who} refused the request ({type(error).__name__}).")
        if isinstance(error, of.ModelAPIError) and isinstance(error.__cause__, json.JSONDecodeError):
            cut = http_common.cut_short(error.__cause__.doc)
            description = "an answer that stops in the middle" if cut else "something that is no answer"
            return ExecutorError(f"{who} sent {description}.", transient=cut)
        if isinstance(error, of.UnexpectedModelBehavior) and "ended without content" in error.message:
            return ExecutorError(f"{who} broke off before its answer began.", transient=True)
        return ExecutorError(f"{who} sent an answer that cannot be read ({type(error).__name__}).")


# -- asking -------------------------------------------------------------------------------------------------


async def _ask(
    made: Made, request: ModelRequest, model_id: str, names: http_common.WireNames, on_text: OnText | None
) -> ModelResponse:
    settings = _settings(made, request)
    parameters = _parameters(made.model, request, names, settings)
    messages = _messages(request, names, made.model, model_id)
    if on_text is None and made.counted:
        from pydantic_ai.direct import model_request

        return await model_request(
            made.model, messages, model_settings=settings, model_request_parameters=parameters,
            instrument=False,
        )  # fmt: skip
    return await _streamed(made.model, messages, settings, parameters, on_text or _ignore)


async def _ignore(text: str, kind: str) -> None:
    """Ignore the text of an answer that is streamed without a callback."""


def _settings(made: Made, request: ModelRequest) -> ModelSettings:
    from pydantic_ai.settings import ModelSettings

    profile: Mapping[str, Any] = made.model.profile
    settings = ModelSettings(max_tokens=request.max_tokens)
    # The client must neither retry nor time out. One that can do neither warns about the setting.
    ignored = made.model.unsupported_settings
    if "max_retries" not in ignored:
        settings["max_retries"] = 0
    if made.patience is not None and "timeout" not in ignored:
        settings["timeout"] = made.patience
    # Reasoning models choose their own temperature and refuse the setting.
    if not profile.get("anthropic_disallows_sampling_settings") and not profile.get(
        "openai_supports_reasoning"
    ):
        settings["temperature"] = request.temperature
    return settings


def _parameters(
    served: Served, request: ModelRequest, names: http_common.WireNames, settings: ModelSettings
) -> ModelRequestParameters:
    """Tools, and the strictest constraint to the answer's schema that the model supports."""
    from pydantic_ai.exceptions import ModelRequestRejectedError, UserError
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    tools = [
        ToolDefinition(
            name=names.wire(tool.name),
            description=tool.description or None,
            parameters_json_schema=to_plain(tool.arguments),
        )
        for tool in request.tools
    ]
    if request.schema is None:
        return ModelRequestParameters(function_tools=tools)
    schema = to_plain(request.schema)
    object_ = OutputObjectDefinition(json_schema=schema, name="answer")
    answer = ToolDefinition(
        name=ANSWER_TOOL,
        description="Give the final answer.",
        parameters_json_schema=schema,
        kind="output",
    )
    candidates = []
    if http_common.is_object(schema):
        if not http_common.open_ended(schema):  # closing an open object would forbid keys that belong in it
            candidates.append(
                ModelRequestParameters(function_tools=tools, output_mode="native", output_object=object_)
            )
        candidates.append(
            ModelRequestParameters(
                function_tools=tools, output_mode="tool", output_tools=[answer], allow_text_output=False
            )
        )
    for candidate in candidates:
        try:
            served.prepare_request(settings, candidate)
        except (
            UserError,
            ModelRequestRejectedError,
        ):  # the model does not support it, or not for this schema
            continue
        return candidate
    return ModelRequestParameters(function_tools=tools, output_mode="prompted", output_object=object_)


def _messages(
    request: ModelRequest, names: http_common.WireNames, served: Served, model_id: str
) -> list[ModelMessage]:
    from pydantic_ai import messages as of

    called = {call.id: call.name for message in request.messages for call in message.calls}
    messages: list[ModelMessage] = []

    def add_part(part: Any) -> None:
        if messages and isinstance(messages[-1], of.ModelRequest):
            messages[-1].parts = [*messages[-1].parts, part]
        else:
            messages.append(of.ModelRequest(parts=[part]))

    for message in request.messages:
        if message.role == "system":
            add_part(of.SystemPromptPart(message.content))
        elif message.role == "user":
            add_part(of.UserPromptPart(message.content))
        elif message.role == "tool":
            add_part(_tool_return(message, called, names))
        else:
            calls = [
                of.ToolCallPart(
                    names.wire(call.name),
                    to_plain(call.arguments),
                    tool_call_id=http_common.wire_id(call.id),
                )
                for call in message.calls
            ]
            kept = http_common.opaque_data(message, _provider_of(served), model_id)
            texts = [of.TextPart(message.content)] if message.content else []
            messages.append(_with_opaque(kept, message, calls) or of.ModelResponse(parts=[*texts, *calls]))
    return messages


def _provider_of(served: Served) -> str:
    """Who is sent opaque parts back: the system behind a model of the library, and its address."""
    url = served.base_url
    return f"{served.system} at {host_of(url)}" if url else served.system


def _opaque(response: ModelResponse, served: Served, model_id: str) -> Opaque | None:
    """What the provider wants back of a reply with calls: its parts in order, but without the arguments."""
    from pydantic_ai import messages as of

    parts: list[Any] = []
    wanted = False
    for part in response.parts:
        if isinstance(part, of.ToolCallPart) and part.tool_name != ANSWER_TOOL:
            wanted = wanted or bool(part.provider_details or part.id)
            parts.append(replace(part, args=None))
        elif isinstance(part, of.TextPart):
            wanted = wanted or bool(part.provider_details or part.id)
            parts.append(part)
        elif isinstance(part, of.ThinkingPart) and (part.signature or part.provider_details or part.id):
            # Without one of these the library would send the thoughts as text.
            wanted = True
            parts.append(part)
    if not wanted:
        return None
    kept = of.ModelResponse(
        parts=parts, model_name=response.model_name, provider_name=response.provider_name,
        provider_url=response.provider_url, canonical_system=response.canonical_system,
    )  # fmt: skip
    data = of.ModelMessagesTypeAdapter.dump_json([kept]).decode()
    return Opaque(_provider_of(served), model_id, data)


def _with_opaque(kept: Any, message: Message, calls: Sequence[Any]) -> ModelResponse | None:
    """A reply as its provider gave it, with our ids, arguments and text; None where the calls are others."""
    from pydantic_ai import messages as of

    if kept is None:
        return None
    (response,) = of.ModelMessagesTypeAdapter.validate_python(kept)
    called = [part for part in response.parts if isinstance(part, of.ToolCallPart)]
    if not isinstance(response, of.ModelResponse) or len(called) != len(calls):
        return None
    text = "".join(part.content for part in response.parts if isinstance(part, of.TextPart))
    changed = text != message.content
    parts: list[Any] = []
    ours = iter(calls)
    for part in response.parts:
        if isinstance(part, of.ToolCallPart):
            call = next(ours)
            part = replace(part, tool_name=call.tool_name, args=call.args, tool_call_id=call.tool_call_id)
        elif isinstance(part, of.TextPart) and changed:
            continue
        parts.append(part)
    if changed and message.content:
        first = next(index for index, part in enumerate(parts) if isinstance(part, of.ToolCallPart))
        parts.insert(first, of.TextPart(message.content))
    return replace(response, parts=parts)


def _tool_return(message: Message, called: Mapping[str, str], names: http_common.WireNames) -> Any:
    from pydantic_ai.messages import ToolReturnPart

    call = message.answers or ""
    name = names.wire(called.get(call, call))
    return ToolReturnPart(name, message.content, tool_call_id=http_common.wire_id(call))


async def _streamed(
    served: Served,
    messages: list[ModelMessage],
    settings: ModelSettings,
    parameters: ModelRequestParameters,
    on_text: OnText,
) -> ModelResponse:
    from pydantic_ai import messages as of
    from pydantic_ai.direct import model_request_stream

    answering: set[int] = set()
    remaining = LONGEST_ANSWER
    async with model_request_stream(
        served, messages, model_settings=settings, model_request_parameters=parameters, instrument=False
    ) as stream:
        async for event in stream:
            text: Any = ""
            kind: Literal["output", "thinking"] = "output"
            shown = True
            if isinstance(event, of.PartStartEvent):
                if isinstance(event.part, of.TextPart):
                    text = event.part.content
                elif isinstance(event.part, of.ThinkingPart):
                    text, kind = event.part.content, "thinking"
                elif isinstance(event.part, of.ToolCallPart):
                    text = event.part.args
                    shown = event.part.tool_name == ANSWER_TOOL
                    if shown:
                        answering.add(event.index)
            elif isinstance(event, of.PartDeltaEvent):
                if isinstance(event.delta, of.TextPartDelta):
                    text = event.delta.content_delta
                elif isinstance(event.delta, of.ThinkingPartDelta):
                    text, kind = event.delta.content_delta, "thinking"
                elif isinstance(event.delta, of.ToolCallPartDelta):
                    text = event.delta.args_delta
                    shown = event.index in answering
            if text and isinstance(text, str):
                remaining -= len(text)
                if remaining < 0:
                    raise ExecutorError(f"The model wrote more than {LONGEST_ANSWER:,} characters.")
                if shown:
                    await on_text(text, kind)
        return stream.get()


# -- small things -------------------------------------------------------------------------------------------


def _subject(model_id: str) -> str:
    return f"Model '{model_id}'"


def _finish(response: ModelResponse) -> Literal["stop", "length", "tool", "filter", "other"]:
    reason = response.finish_reason
    if reason in ("stop", "length"):
        return reason
    if reason == "content_filter":
        return "filter"
    if reason == "tool_call":
        return "tool"
    return "stop" if reason is None else "other"


def _refusal(response: ModelResponse) -> str:
    """The words in which a model refuses, where they are no part of its text."""
    words = (response.provider_details or {}).get("refusal")
    return words if isinstance(words, str) else ""


def _unfinished(response: ModelResponse, served: Served) -> bool:
    """Whether a provider's answer lacks its end: each says why it stopped, unless it was cut off."""
    if response.finish_reason == "error":
        return True
    if served.provider is None or response.finish_reason is not None:
        return False
    return not (response.provider_details or {}).get("finish_reason")


def _first_sentence(error: Exception) -> str:
    return str(error).split(". ")[0].strip().rstrip(".") or type(error).__name__
