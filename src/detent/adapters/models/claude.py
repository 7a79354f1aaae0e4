"""Claude: the preset of a provider, and an executor that needs only a key in the environment."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detent.adapters.hosts import on_this_machine
from detent.adapters.http_body import limiting_hooks
from detent.adapters.models import http_common
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.prices import PriceTable
from detent.adapters.models.pydantic_ai import LARGEST_ANSWER, MISSING, Made, PydanticAIModel
from detent.adapters.tls import tls_context
from detent.dispatch.executor import Availability
from detent.kernel.errors import ConfigurationError

MODEL_ID = "claude-sonnet-5-5"
"""The model used when none is named."""

API_KEY_ENV = "ANTHROPIC_API_KEY"

OPTIONS: Mapping[str, type | tuple[type, ...]] = {
    "model_id": str,
    "api_key_env": str,
    "base_url": str,
    "timeout": (int, float),
    "answer_timeout": (int, float),
    "max_answer_bytes": int,
    "context_tokens": int,
}


def connect(
    options: Mapping[str, Any],
    *,
    kind: str = "claude",
    folder: Path | None = None,
    prices: PriceTable | None = None,
) -> PydanticAIModel:
    """The model described by a provider's settings; `ConfigurationError` when they cannot be used."""
    http_common.checked_options(kind, options, OPTIONS)
    return claude(**{name: value for name, value in options.items() if value is not None}, prices=prices)


def claude(
    *,
    model_id: str = MODEL_ID,
    api_key_env: str = API_KEY_ENV,
    base_url: str | None = None,
    timeout: float = http_common.CONNECT_TIMEOUT,
    answer_timeout: float = http_common.ANSWER_TIMEOUT,
    max_answer_bytes: int = LARGEST_ANSWER,
    context_tokens: int | None = None,
    prices: PriceTable | None = None,
) -> PydanticAIModel:
    """A Claude model. The SDK is imported and the key read on the first request."""
    if base_url is not None and (problem := http_common.wrong_address(base_url)):
        raise ConfigurationError(f"Provider of kind 'claude': {problem}.")
    limits = {
        "timeout": timeout, "answer_timeout": answer_timeout, "max_answer_bytes": max_answer_bytes,
        "context_tokens": context_tokens,
    }  # fmt: skip
    http_common.check_limits("claude", limits)

    def make(name: str) -> Made:
        key = os.environ.get(api_key_env)
        if not key:
            raise ConfigurationError(f"{api_key_env} is not set")
        import httpx2
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        # No time limit between two pieces of the answer and no retries: both are the caller's business.
        trust_env = base_url is None or not on_this_machine(base_url)
        http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=timeout),
            trust_env=trust_env,
            verify=tls_context(trust_env),
            event_hooks=limiting_hooks(httpx2, max_answer_bytes),
        )
        client = AsyncAnthropic(api_key=key, base_url=base_url, http_client=http, max_retries=0)
        served = AnthropicModel(
            name.removeprefix("anthropic:"), provider=AnthropicProvider(anthropic_client=client)
        )
        return Made(served, http.aclose)

    def ready() -> Availability:
        if importlib.util.find_spec("pydantic_ai") is None or importlib.util.find_spec("anthropic") is None:
            return Availability(False, MISSING)
        if not os.environ.get(api_key_env):
            return Availability(False, f"{api_key_env} is not set")
        return Availability(True)

    return PydanticAIModel(
        make,
        default_id=model_id,
        ready=ready,
        prices=prices,
        secrets=lambda: (os.environ.get(api_key_env, ""),),
        answer_timeout=answer_timeout,
        context_tokens=context_tokens,
    )


class ClaudeStepExecutor(ModelStepExecutor):
    """Performs steps on Claude: `ClaudeStepExecutor()` is enough where the key is in the environment."""

    def __init__(
        self,
        *,
        model_id: str = MODEL_ID,
        api_key_env: str = API_KEY_ENV,
        base_url: str | None = None,
        prices: PriceTable | None = None,
        max_turns: int = 12,
        clock: Callable[[], float] = time.time,
    ) -> None:
        model = claude(model_id=model_id, api_key_env=api_key_env, base_url=base_url, prices=prices)
        super().__init__(model, max_turns=max_turns, clock=clock)
