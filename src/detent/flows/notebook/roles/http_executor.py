"""Roles behind HTTP: an executor that posts a role's request to `/planning`, `/generating` or `/reflecting`.

The answer is the payload's text, XML or JSON, whole or streamed line by line. Retries, waits between them and
what is done in place of an agent that fails are dispatch's business.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.adapters.hosts import host_of, on_this_machine
from detent.adapters.http_body import IDENTITY, BodyEncoded, BodyTooLarge, pieces, whole
from detent.adapters.models import http_common
from detent.adapters.models.model import ModelRequest
from detent.dispatch.conversation import Message, ModelAnswer
from detent.dispatch.executor import (
    AgentStreamChunk,
    Availability,
    EventCallback,
    ExecutorResult,
    ReplyRequest,
    Schema,
)
from detent.dispatch.executor_errors import ExecutorError, MisconfiguredError
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import encode

if TYPE_CHECKING:
    from detent.adapters.http_client import HttpClient, HttpResponse
    from detent.dispatch.agent_tools import AgentTools
    from detent.dispatch.config import StepConfig

KIND = "notebook-http"
"""The kind of provider that settings name."""
PATHS: Mapping[str, str] = {
    "stage_planner": "/planning",
    "step_planner": "/planning",
    "behavior_arranger": "/planning",
    "action_generator": "/generating",
    "behavior_reflector": "/reflecting",
    "stage_reflector": "/reflecting",
}
"""Where each role is asked."""
LARGEST_ANSWER = 4 * 1024 * 1024
"""Bytes read of an answer; a payload has at most a quarter of that, prose around it may be longer."""
LARGEST_REFUSAL = 256 * 1024
OPTIONS: Mapping[str, type | tuple[type, ...]] = {
    "base_url": str,
    "api_key_env": str,
    "timeout": (int, float),
    "answer_timeout": (int, float),
}


def make(options: Mapping[str, Any], *, folder: Path) -> HttpRoleExecutor:
    """The executor that settings describe; `folder` is not used, since nothing is read from disk.

    Raises:
        ConfigurationError: an option is unknown or wrong, or there is no address.
    """
    http_common.checked_options(KIND, options, OPTIONS)
    given = {name: value for name, value in options.items() if value is not None}
    if "base_url" not in given:
        raise ConfigurationError(f"A provider of kind '{KIND}' needs base_url, the address of its service.")
    if problem := http_common.wrong_address(given["base_url"]):
        raise ConfigurationError(f"Provider of kind '{KIND}': {problem}.")
    http_common.check_limits(KIND, given)
    return HttpRoleExecutor(
        given["base_url"],
        api_key_env=given.get("api_key_env"),
        connect_timeout=given.get("timeout", http_common.CONNECT_TIMEOUT),
        answer_timeout=given.get("answer_timeout", http_common.ANSWER_TIMEOUT),
    )


class HttpRoleExecutor:
    """Asks a service for the payloads of the six roles."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key_env: str | None = None,
        connect_timeout: float = http_common.CONNECT_TIMEOUT,
        answer_timeout: float = http_common.ANSWER_TIMEOUT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._api_key_env = api_key_env
        self._connect_timeout = connect_timeout
        self._answer_timeout = answer_timeout
        self._clock = clock
        self._clients: dict[str, HttpClient] = {}
        self._service = f"The notebook service at {host_of(self.base_url)}"

    # -- the port -------------------------------------------------------------------------------------------

    async def reply(self, request: ReplyRequest) -> ModelAnswer:
        """The payload of a role, as the service wrote it."""
        body = body_of(request.messages, request.step_name, stream=request.event_callback is not None)
        text = await self._asked(request.step_name, request.agent_name, body, request.event_callback)
        return ModelAnswer(text)

    async def execute(
        self,
        *,
        step_name: str,
        agent_name: str,
        prompt: Any,
        instructions: str | None = None,
        allowed_tools: list[str] | None = None,
        cwd: Path | None = None,
        output_schema: Schema | None = None,
        config: StepConfig | None = None,
        event_callback: EventCallback | None = None,
        toolbox: AgentTools | None = None,
    ) -> ExecutorResult:
        """One attempt, for a caller that has only a prompt."""
        text = prompt if isinstance(prompt, str) else encode(prompt)
        system = (Message("system", instructions),) if instructions else ()
        body = body_of((*system, Message("user", text)), step_name, stream=event_callback is not None)
        return ExecutorResult(await self._asked(step_name, agent_name, body, event_callback))

    def available(self) -> Availability:
        """Whether the service could be asked now; nothing is sent."""
        if importlib.util.find_spec("httpx2") is None:
            return Availability(False, "httpx2 is not installed: pip install 'detent[models]'")
        if self._api_key_env and not os.environ.get(self._api_key_env):
            return Availability(False, f"{self._api_key_env} is not set")
        return Availability(True)

    def priced(self, model_id: str | None) -> bool:
        """False: a service says nothing of its costs."""
        return False

    async def close(self) -> None:
        """Close the connections."""
        while self._clients:
            _, client = self._clients.popitem()
            await client.aclose()

    # -- asking ---------------------------------------------------------------------------------------------

    def _client(self, step_name: str) -> HttpClient:
        """The client of a role's path.

        Raises:
            MisconfiguredError: the step is none of the six roles, or httpx2 is missing.
        """
        path = PATHS.get(_role(step_name))
        if path is None:
            raise MisconfiguredError(f"{self._service} serves the roles of notebooks, not '{step_name}'.")
        if path not in self._clients:
            try:
                from detent.adapters.http_client import HttpClient
            except ImportError as error:
                raise MisconfiguredError("httpx2 is not installed: pip install 'detent[models]'.") from error
            self._clients[path] = HttpClient(
                self.base_url + path,
                headers={"content-type": "application/json", "user-agent": "detent", **IDENTITY},
                connect_timeout=self._connect_timeout,
                trust_env=not on_this_machine(self.base_url),
            )
        return self._clients[path]

    async def _asked(
        self, step_name: str, agent_name: str, body: Mapping[str, Any], on_event: EventCallback | None
    ) -> str:
        client = self._client(step_name)
        from detent.adapters.http_client import HttpFailure

        headers = {"authorization": f"Bearer {key}"} if (key := self._key()) else {}
        try:
            async with (
                asyncio.timeout(self._answer_timeout),
                client.post(encode(body).encode(), headers) as response,
            ):
                if response.status_code != 200:
                    raise await self._refusal(response, body)
                return await self._text(pieces(response, LARGEST_ANSWER), agent_name, on_event)
        except TimeoutError:
            raise http_common.too_late(self._service, self._answer_timeout) from None
        except (BodyTooLarge, BodyEncoded, UnicodeDecodeError) as error:
            what = f"sent {error}" if isinstance(error, BodyTooLarge) else "sent text that cannot be decoded"
            raise ExecutorError(f"{self._service} {what}, which is no payload.") from None
        except HttpFailure as error:
            raise ExecutorError(
                f"{self._service} could not be reached, or broke off ({error}).", transient=True
            ) from error

    async def _text(self, body: AsyncIterator[bytes], agent_name: str, on_event: EventCallback | None) -> str:
        """The whole text; whole lines of it are streamed as they come."""
        received, streamed = bytearray(), 0
        async for piece in body:
            received += piece
            end = received.rfind(b"\n") + 1
            if on_event is not None and end > streamed:
                await on_event(self._chunk(agent_name, bytes(received[streamed:end])))
                streamed = end
        if on_event is not None and len(received) > streamed:
            await on_event(self._chunk(agent_name, bytes(received[streamed:])))
        return received.decode("utf-8")

    def _chunk(self, agent_name: str, raw: bytes) -> AgentStreamChunk:
        return AgentStreamChunk(agent_name, raw.decode("utf-8", "replace"), "output", self._clock())

    async def _refusal(self, response: HttpResponse, body: Mapping[str, Any]) -> ExecutorError:
        try:
            said = json.loads(await whole(response, LARGEST_REFUSAL))
        except (BodyTooLarge, BodyEncoded, ValueError, RecursionError):
            said = None
        message, code = http_common.told(said)
        asked = ModelRequest((Message("user", encode(body)),))
        return http_common.status_failure(
            self._service,
            response.status_code,
            http_common.fit_to_tell(message, asked, [self._key()]),
            code=code,
            retry_after=http_common.retry_after(response.headers, self._clock()),
        )

    def _key(self) -> str:
        return os.environ.get(self._api_key_env, "") if self._api_key_env else ""


# -- the body -----------------------------------------------------------------------------------------------


def body_of(messages: Sequence[Message], step_name: str, *, stream: bool) -> dict[str, Any]:
    """What a service is posted: the request's parts, the instructions, and the turns since then."""
    instructions = "\n\n".join(message.content for message in messages if message.role == "system")
    said = [message for message in messages if message.role != "system"]
    body = request_of(said[0].content) if said else {}
    turns = [{"role": message.role, "content": message.content} for message in said[1:]]
    return {
        **body,
        "role": _role(step_name),
        "instructions": instructions,
        **({"turns": turns} if turns else {}),
        "options": {"stream": stream},
    }


def request_of(text: str) -> dict[str, Any]:
    """The parts of a role's request from its prompt; a text of another form is the part `prompt`.

    A prompt is JSON, or shows each part under its name in capitals. The notebook is text that may hold
    anything: the parts before it are read from the start, those behind it from the end.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _parts_of(text) or {"prompt": text}
    return value if isinstance(value, dict) else {"prompt": text}


def _parts_of(text: str) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    rest = text
    for name in ("role", "observation", "state"):
        heading = f"{name.upper()}\n"
        if not rest.startswith(heading):
            return {}
        body, _, rest = rest.removeprefix(heading).partition("\n\n")
        parts[name] = _value(body)
    if not rest.startswith("NOTEBOOK\n"):
        return {}
    for name in ("messages", "behavior_feedback"):
        before, heading, after = rest.rpartition(f"\n\n{name.upper()}\n")
        if heading and isinstance(value := _value(after), dict | list):
            parts[name], rest = value, before
    return {**parts, "notebook": rest.removeprefix("NOTEBOOK\n")}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _role(step_name: str) -> str:
    return step_name.rsplit("/", 1)[-1]
