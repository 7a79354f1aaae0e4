"""A real llama.cpp server on a loopback port, with a real small model behind it.

The model knows next to nothing: what is tested is that both sides speak the same language.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.models import openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.model import ModelRequest
from detent.dispatch.config import StepConfig
from detent.dispatch.conversation import Message
from detent.dispatch.executor_errors import ExecutorError, OutputSchemaValidationError
from tests.adapters.models.test_executor import Run

FORM = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["colour", "count"],
}
SHORT = StepConfig(max_tokens=200)


@pytest.fixture(scope="module")
def llama(smollm: Path) -> Iterator[tuple[str, str]]:
    """Address and key of a server."""
    import xllamacpp

    key = secrets.token_urlsafe(16)
    params = xllamacpp.CommonParams()
    params.model.path = str(smollm)
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.verbosity = -1
    params.api_keys = [key]
    params.ui = False
    params.offline = True
    served = xllamacpp.Server(params)
    yield served.listening_address, key
    del served


@pytest.fixture
async def model(llama: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    address, key = llama
    monkeypatch.setenv("LLAMA_KEY", key)
    made = openai.connect({"base_url": f"{address}/v1", "api_key_env": "LLAMA_KEY"}, kind="llamacpp")
    yield made
    await made.close()


async def ask(model: Any, **options: Any) -> Any:
    return await ModelStepExecutor(model, max_turns=6).execute(
        **{"step_name": "s", "agent_name": "dispatch", "prompt": "Name a colour.", "config": SHORT, **options}
    )


async def test_an_answer_fits_its_schema(model):
    result = await ask(model, output_schema=FORM, instructions="Answer in JSON.")
    assert result.output["colour"] in ("red", "green", "blue")
    assert 0 <= result.output["count"] <= 9
    assert result.usage.input_tokens > 0
    assert result.usage.output_tokens > 0
    assert result.usage.total_cost_usd == 0.0
    assert result.model_id


async def test_a_stream_tells_the_same_text(model):
    heard = []

    async def hear(chunk):
        heard.append(chunk.text)

    result = await ask(
        model, output_schema={"type": "string"}, event_callback=hear, config=StepConfig(max_tokens=1500)
    )
    assert "".join(heard).strip() == result.output.strip()
    assert len(heard) > 2
    assert result.usage.output_tokens > 0


@pytest.mark.exhaustive
async def test_a_tool_in_words_is_called_or_not_but_never_wrongly(model):
    run, prompt = Run(), "Find the device with serial A1, then answer."
    broken = ""
    try:
        await run(lambda tools: ask(model, toolbox=tools, output_schema=FORM, prompt=prompt))
    except ExecutorError as error:  # so small a model may run out of tokens or turns; more may not go wrong
        broken = str(error)
    assert not broken or "cut" in broken or "turns" in broken
    assert all(set(one) == {"serial"} for one in run.looked)


async def test_an_answer_that_was_cut_says_so(model):
    with pytest.raises(OutputSchemaValidationError, match="cut at 2 tokens"):
        await ask(model, output_schema=FORM, config=StepConfig(max_tokens=2))


async def test_cancelling_frees_the_server(model):
    started = asyncio.Event()

    async def hear(text, kind):
        started.set()

    endless = ModelRequest((Message("user", "Count to a million."),), max_tokens=2000, temperature=1.0)
    asked = asyncio.ensure_future(model.complete(endless, hear))
    await started.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await ask(model, output_schema=FORM)).output["colour"]  # its only place is free again


async def test_a_wrong_key_is_refused_for_good(model, monkeypatch):
    monkeypatch.setenv("LLAMA_KEY", "not-the-key")
    with pytest.raises(ExecutorError, match="401") as caught:
        await ask(model)
    assert not caught.value.transient


async def test_a_question_that_is_too_long_is_refused_for_good(model):
    with pytest.raises(ExecutorError) as caught:
        await ask(model, prompt="word " * 5000)
    assert not caught.value.transient
    assert "word word" not in str(caught.value)
