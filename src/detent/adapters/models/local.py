"""A model inside the process: llama.cpp on a local file, without key or network.

Everything that touches a loaded model happens in one dedicated thread, one task after another: loading on
first use, answering, unloading. The event loop only waits. Cancelling a call stops the work at the next
piece of text, or between two pieces of the prompt.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

from detent.adapters.models.http_common import check_limits, checked_options, fit_to_tell, too_late
from detent.adapters.models.local_schema import decodable
from detent.adapters.models.model import Model, ModelRequest, OnText
from detent.adapters.models.model_files import DEFAULT, ModelFileMissing, locate, path
from detent.dispatch.conversation import Message, ModelAnswer
from detent.dispatch.executor import Availability
from detent.dispatch.executor_errors import ExecutorError, MisconfiguredError, RequestTooLongError
from detent.dispatch.usage import UsageMetadata
from detent.engine import logger
from detent.kernel.errors import ConfigurationError, DetentError

CONTEXT = 8192
"""Default number of tokens for prompt and answer together."""
LEAST_CONTEXT = 256
ANSWER_TIMEOUT = 3600.0
"""Seconds from the first piece of the prompt to the end of the answer; processors differ a lot."""
SEED = 20
"""Fixed, so that the same question is sampled the same way each time."""
PROMPT_PIECE = 128
"""Tokens of the prompt processed at a time; a call can be stopped between two pieces."""
REMEMBERED_MB = 256
"""Memory for processed beginnings of earlier prompts, which then need no second processing."""

OPTIONS: Mapping[str, type | tuple[type, ...]] = {
    "model_id": str,
    "threads": int,
    "context": int,
    "context_tokens": int,
    "answer_timeout": (int, float),
}

Piece: TypeAlias = tuple[str, Literal["output", "thinking"]]
OnPiece: TypeAlias = Callable[[Piece], None]

_FINISHES: dict[str | None, Literal["stop", "length"]] = {"stop": "stop", "length": "length"}


class LocalModel(Model):
    """Answers with a model file, in this process. Loaded on first use; one answer at a time."""

    native_tools = False

    def __init__(
        self,
        model_id: str = DEFAULT,
        *,
        folder: Path | None = None,
        threads: int | None = None,
        context: int = CONTEXT,
        context_tokens: int | None = None,
        answer_timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self.model_id = model_id
        """A known name, or the path of a GGUF file."""
        self.folder = folder
        """The folder relative paths start at; None for the working folder."""
        self.threads = threads or max(1, _cores() - 1)
        """The default leaves one core free: with all cores busy, the model is slower."""
        self.context = context
        """Tokens of prompt and answer together."""
        self.context_tokens = min(context, context_tokens or context)
        """Tokens of a conversation beyond which its oldest parts are left out."""
        self.answer_timeout = answer_timeout
        """Seconds an answer may take, not counting the wait for its turn."""
        self._thread: _ModelThread | None = None
        self._guard = threading.Lock()

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """One answer, under the schema if there is one."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        stop = threading.Event()

        def enqueue(piece: Piece) -> None:
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop is closed, so nothing waits for the text any more
                stop.set()

        work = self._submit(stop, request, enqueue if on_text else None)
        answer = asyncio.wrap_future(work)
        try:
            if on_text is not None:
                answer.add_done_callback(lambda _: pieces.put_nowait(None))
                while (piece := await pieces.get()) is not None:
                    await on_text(*piece)
            return await answer
        finally:
            stop.set()
            answer.cancel()

    def available(self) -> Availability:
        """Whether llama.cpp is installed and the file exists."""
        if find_spec("xllamacpp") is None:
            return Availability(False, "xllamacpp is not installed: pip install 'detent[local]'")
        try:
            path(self.model_id, base=self.folder)
        except DetentError as error:
            return Availability(False, str(error))
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        """The cost is always known: none."""
        return True

    async def close(self) -> None:
        """Stop the work under way and free the memory. The next request loads the model again."""
        with self._guard:
            thread, self._thread = self._thread, None
            unloaded = None if thread is None else thread.leave()
        if unloaded is not None:
            await asyncio.wrap_future(unloaded)

    def _submit(
        self, stop: threading.Event, request: ModelRequest, on_piece: OnPiece | None
    ) -> Future[ModelAnswer]:
        with self._guard:
            if self._thread is None:
                self._thread = _ModelThread(self.threads, self.context)
            return self._thread.submit(stop, lambda models: self._answer(models, request, on_piece, stop))

    def _answer(
        self, models: _Loaded, request: ModelRequest, on_piece: OnPiece | None, stop: threading.Event
    ) -> ModelAnswer:
        """Ask the model and collect its answer. Runs in the models' thread."""
        model_id = request.model_id or self.model_id
        schema = None if request.schema is None else decodable(request.schema)
        server = models.get(self._file(model_id))
        partial = _PartialAnswer(on_piece, stop, time.monotonic() + self.answer_timeout)
        if not stop.is_set():
            try:
                server.handle_chat_completions(self._body(request, schema), partial.take)
            except Exception as error:
                raise _refused(model_id, str(error), request) from None
        if partial.error is not None:
            raise self._failed(model_id, partial.error, request)
        if partial.finish is None and partial.late:
            raise too_late(f"Model '{model_id}'", self.answer_timeout)
        if partial.finish is None:
            raise ExecutorError(f"Model '{model_id}' was stopped before it had answered.", transient=True)
        return ModelAnswer(
            text="".join(partial.text),
            usage=partial.usage,
            model_id=model_id,
            finish=_FINISHES.get(partial.finish, "other"),
        )

    def _file(self, model_id: str) -> Path:
        try:
            return path(model_id, base=self.folder)
        except (ModelFileMissing, ConfigurationError) as error:
            raise MisconfiguredError(str(error)) from error

    def _body(self, request: ModelRequest, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": _chat_messages(request.messages),
            "temperature": request.temperature,
            "max_tokens": min(request.max_tokens, self.context),
            "seed": SEED,
            # Always streamed: it can be stopped only between two pieces.
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }
        if schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"schema": schema, "strict": True},
            }
        return body

    def _failed(self, model_id: str, error: Mapping[str, Any], request: ModelRequest) -> ExecutorError:
        if error.get("type") == "exceed_context_size_error":
            return RequestTooLongError(
                f"The prompt for model '{model_id}' is {error.get('n_prompt_tokens')} tokens long, "
                f"its context holds {error.get('n_ctx')}. "
                f"Give it less, or a larger `context` (now {self.context})."
            )
        return _refused(model_id, str(error.get("message", "")), request)


def connect(
    options: Mapping[str, Any], *, kind: str = "local", folder: Path | None = None, prices: Any = None
) -> Model:
    """The local model described by a provider's settings."""
    checked_options(kind, options, OPTIONS)
    check_limits(kind, options)
    model_id = options.get("model_id") or DEFAULT
    threads, context = options.get("threads"), options.get("context")
    if threads is not None and threads < 1:
        raise ConfigurationError(
            f"'threads' of a provider of kind '{kind}' must be at least 1, not {threads}."
        )
    if context is not None and context < LEAST_CONTEXT:
        raise ConfigurationError(
            f"'context' of a provider of kind '{kind}' must be at least {LEAST_CONTEXT}, not {context}."
        )
    locate(model_id, base=folder)  # an unknown name is an error now; a missing file only when it is needed
    return LocalModel(
        model_id, folder=folder, threads=threads, context=context or CONTEXT,
        context_tokens=options.get("context_tokens"),
        answer_timeout=options.get("answer_timeout") or ANSWER_TIMEOUT,
    )  # fmt: skip


# -- the models' thread -------------------------------------------------------------------------------------


class _ModelThread:
    """A thread, and the models loaded in it."""

    def __init__(self, threads: int, context: int) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="detent-local-model")
        self._models = _Loaded(threads, context)
        self._stops: set[threading.Event] = set()

    def submit(self, stop: threading.Event, work: Callable[[_Loaded], ModelAnswer]) -> Future[ModelAnswer]:
        """Run a task on the models after all tasks submitted before."""
        self._stops.add(stop)
        future = self._thread.submit(work, self._models)
        future.add_done_callback(lambda _: self._stops.discard(stop))
        return future

    def leave(self) -> Future[None]:
        """Stop all tasks, free the memory and end the thread."""
        for stop in list(self._stops):
            stop.set()
        unloaded = self._thread.submit(self._models.clear)
        self._thread.shutdown(wait=False)
        return unloaded


class _Loaded:
    """The models in memory, by file. Used by one thread only."""

    def __init__(self, threads: int, context: int) -> None:
        self._threads = threads
        self._context = context
        self._servers: dict[Path, Any] = {}

    def get(self, file: Path) -> Any:
        """The model of a file, loaded on first use."""
        if file not in self._servers:
            began = time.monotonic()
            self._servers[file] = self._load(file)
            logger.info("model.loaded", model=file.name, ms=round((time.monotonic() - began) * 1000))
        return self._servers[file]

    def clear(self) -> None:
        """Free the memory."""
        self._servers.clear()

    def _load(self, file: Path) -> Any:
        try:
            import xllamacpp
        except ImportError:
            raise MisconfiguredError("xllamacpp is not installed: pip install 'detent[local]'.") from None
        _check_magic(file)
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx = self._context
        params.n_parallel = 1
        params.n_batch = PROMPT_PIECE
        params.cpuparams.n_threads = self._threads
        params.cpuparams_batch.n_threads = self._threads
        params.cache_ram_mib = REMEMBERED_MB
        params.no_extra_bufts = (
            True  # a third less memory, and the file's pages stay shared between processes
        )
        params.warmup = False
        params.verbosity = -1
        # The library insists on listening on a local port: a random key keeps everyone else out.
        params.api_keys = [secrets.token_urlsafe(32)]
        params.ui = False
        params.endpoint_slots = False
        params.offline = True
        try:
            return xllamacpp.Server(params)
        except Exception:
            raise MisconfiguredError(
                f"Model file {file.name} could not be loaded with a context of {self._context} tokens: it is "
                f"damaged, of a kind this version of llama.cpp does not know, or too large for the memory."
            ) from None


def _check_magic(file: Path) -> None:
    """Refuse a file that is no model before a library that trusts its input reads it."""
    try:
        with file.open("rb") as content:
            magic = content.read(4)
    except OSError as error:
        raise MisconfiguredError(f"Model file {file} cannot be read: {error.strerror}.") from None
    if magic != b"GGUF":
        raise MisconfiguredError(
            f"Model file {file} is no GGUF file: it does not begin with the four letters GGUF."
        )


class _PartialAnswer:
    """An answer, as much of it as the model has given."""

    def __init__(self, on_piece: OnPiece | None, stop: threading.Event, deadline: float) -> None:
        self._on_piece = on_piece
        self._stop = stop
        self._deadline = deadline
        """By the monotonic clock."""
        self.late = False
        self.text: list[str] = []
        self.finish: str | None = None
        self.usage = UsageMetadata(total_cost_usd=0.0)
        self.error: Mapping[str, Any] | None = None

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Add one chunk; True stops the model. Must not raise: the library would swallow the exception."""
        if "error" in chunk:
            self.error = chunk["error"]
        if usage := chunk.get("usage"):
            self.usage = UsageMetadata(
                input_tokens=usage.get("prompt_tokens", 0),
                output_tokens=usage.get("completion_tokens", 0),
                cache_read_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
                total_cost_usd=0.0,
            )
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            if thought := delta.get("reasoning_content"):
                self._emit((thought, "thinking"))
            if text := delta.get("content"):
                self.text.append(text)
                self._emit((text, "output"))
            self.finish = choice.get("finish_reason") or self.finish
        self.late = time.monotonic() > self._deadline
        return self._stop.is_set() or self.late

    def _emit(self, piece: Piece) -> None:
        if self._on_piece is not None:
            self._on_piece(piece)


# -- messages -----------------------------------------------------------------------------------------------


def _chat_messages(messages: tuple[Message, ...]) -> list[dict[str, str]]:
    """Messages in the three roles every chat template knows; neighbours of the same role are joined."""
    merged: list[dict[str, str]] = []
    for role, text in _role_texts(messages):
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += f"\n\n{text}"
        else:
            merged.append({"role": role, "content": text})
    return merged


def _role_texts(messages: tuple[Message, ...]) -> Iterator[tuple[str, str]]:
    for message in messages:
        text = message.content
        for call in message.calls:
            arguments = dict(call.arguments) if isinstance(call.arguments, Mapping) else {}
            call_text = json.dumps({"tool": call.name, "arguments": arguments}, ensure_ascii=False)
            text = f"{text}\n{call_text}" if text else call_text
        yield "user" if message.role == "tool" else message.role, text


def _refused(model_id: str, message: str, request: ModelRequest) -> ExecutorError:
    """An error of llama.cpp without anything from the prompt or the answer."""
    if "JSON schema" in message:
        why = f"its output schema cannot be decoded under: {message[message.index('JSON schema') :]}"
    elif "grammar" in message:
        why = "its output schema is too much for a grammar: fewer or smaller repetitions would do"
    elif "expected peg" in message:
        why = "its answer did not keep to the chat format of the file"
    else:
        why = "llama.cpp refused the request"
    return ExecutorError(f"Model '{model_id}' gave no answer: {fit_to_tell(why, request)}.")


def _cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # missing on this system
        return os.cpu_count() or 1
