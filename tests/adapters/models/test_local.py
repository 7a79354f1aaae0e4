"""The model inside the process, with a real (and very small) one."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Literal
from uuid import UUID

import pydantic
import pytest

from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.local import LocalModel, connect
from detent.adapters.models.local_schema import decodable
from detent.adapters.models.model import ModelRequest
from detent.adapters.models.model_files import DEFAULT
from detent.dispatch.config import StepConfig
from detent.dispatch.conversation import Message, ToolCall
from detent.dispatch.executor_errors import ExecutorError, RequestTooLongError
from detent.engine.schemas import misfits, schema_of
from detent.kernel.errors import ConfigurationError
from tests.adapters.models.talk import ASKED, Heard, request
from tests.examples import one_in

pytestmark = pytest.mark.slow

STORY = "Tell me a long story about a dog and a lighthouse."


@pytest.fixture(scope="module")
def model(smollm: Path) -> Iterator[LocalModel]:
    """One loaded model for all tests here."""
    model = LocalModel(str(smollm), context=2048)
    yield model
    asyncio.run(model.close())


def ask(text: str, **more) -> ModelRequest:
    return ModelRequest((Message("system", "You answer briefly."), Message("user", text)), **more)


# -- answering ----------------------------------------------------------------------------------------------


async def test_it_answers_and_counts_what_it_used(model, smollm):
    """D-56: usage is known, and costs nothing."""
    answer = await model.complete(ask("What colour is the sky?", max_tokens=16))
    assert answer.text.strip()
    assert answer.model_id == str(smollm)
    assert answer.usage.input_tokens > 10
    assert 0 < answer.usage.output_tokens <= 16
    assert answer.usage.total_cost_usd == 0.0
    assert model.priced(None)
    assert not model.native_tools


async def test_the_answer_is_no_longer_than_asked_for(model):
    answer = await model.complete(ask(STORY, max_tokens=7))
    assert answer.finish == "length"
    assert answer.usage.output_tokens == 7


async def test_an_answer_that_takes_too_long_is_given_up_and_the_next_one_comes(smollm):
    model = LocalModel(str(smollm), context=2048, answer_timeout=0.0001)
    with pytest.raises(ExecutorError, match=r"did not finish its answer within 0\.0001 seconds"):
        await model.complete(ask(STORY, max_tokens=1000))
    model.answer_timeout = 3600
    assert (await model.complete(ask(STORY, max_tokens=3))).text
    await model.close()


async def test_more_tokens_than_the_context_holds_may_be_asked_for(smollm):
    model = LocalModel(str(smollm), context=256)
    try:
        answer = await model.complete(ask(STORY, max_tokens=64_000))
        assert answer.finish in ("stop", "length")
        assert answer.usage.input_tokens + answer.usage.output_tokens <= 256
    finally:
        await model.close()


async def test_the_same_question_is_answered_the_same(model):
    request = ask("Name a fruit.", temperature=0.8, max_tokens=12)
    await model.complete(request)  # from here on the prompt is remembered
    assert (await model.complete(request)).text == (await model.complete(request)).text


async def test_the_beginning_of_a_prompt_is_not_read_twice(model):
    await model.complete(ask("Name a river.", max_tokens=2))
    answer = await model.complete(ask("Name a mountain.", max_tokens=2))
    assert answer.usage.cache_read_tokens > 5


async def test_text_is_told_as_it_comes(model):
    """What was told piece by piece is what is given at the end."""
    heard: list[tuple[str, str]] = []

    async def on_text(text, kind):
        heard.append((text, kind))

    answer = await model.complete(ask(STORY, max_tokens=12), on_text)
    assert "".join(text for text, _ in heard) == answer.text
    assert len(heard) > 3
    assert {kind for _, kind in heard} == {"output"}


async def test_messages_of_tools_and_calls_are_put_in_words(model):
    call = ToolCall("c1", "weather", {"city": "Bern"})
    request = ModelRequest(
        (
            Message("user", "What is the weather in Bern?"),
            Message("assistant", "", calls=(call,)),
            Message("tool", '{"sky": "clear"}', answers="c1"),
            Message("user", "Say it in a word."),
        ),
        max_tokens=8,
    )
    assert (await model.complete(request)).usage.input_tokens > 30


async def test_a_conversation_with_calls_goes_on_in_prose_that_is_heard_as_it_is_written(model):
    """Nothing holds the model to a form; its calls, were there any, would be no text."""
    heard = Heard()
    messages = [
        *ASKED,
        Message("assistant", "I look.", (ToolCall("t2c1", "read_file", {"filepath": "a.py"}),)),
        Message("tool", "print(1)", answers="t2c1"),
        Message("assistant", ""),
        Message("user", "What does it print? Answer in one sentence."),
    ]
    asked = replace(request(messages, heard), config=StepConfig(max_tokens=24))
    answer = await ModelStepExecutor(model).reply(asked)
    assert answer.text.strip()
    assert (heard.text.split(), answer.calls) == (answer.text.split(), ())
    assert len(heard.chunks) > 3


# -- schemas ------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Part(pydantic.BaseModel):
    serial: str = pydantic.Field(pattern=r"^[A-Z]{2}-\d{4}$")
    count: int = pydantic.Field(ge=1, le=12)


class Form(pydantic.BaseModel):
    kind: Literal["fault", "question", "other"]
    colour: Colour
    parts: list[Part] = pydantic.Field(min_length=1, max_length=2)
    bought: date
    key: UUID
    note: str | None = pydantic.Field(max_length=20)
    sure: bool


@dataclass
class Point:
    x: int
    y: int | None


class Nested(pydantic.BaseModel):
    left: Point
    right: Point
    span: tuple[int, bool]
    share: Literal[1, 2] | None


class Tree(pydantic.BaseModel):
    leaf: bool
    branches: list["Tree"] = pydantic.Field(max_length=1)


TOOL_OR_ANSWER = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "tool": {"const": "lookup"},
                "arguments": {
                    "type": "object",
                    "properties": {"serial": {"type": "string", "maxLength": 12}},
                    "required": ["serial"],
                    "additionalProperties": False,
                },
            },
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"answer": {"type": "string", "maxLength": 30}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    ]
}

SCHEMAS = {
    "enum": {"enum": ["yes", "no", "cannot say"]},
    "form": schema_of(Form),
    "nested": schema_of(Nested),
    "list": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 4},
    "tool or answer": TOOL_OR_ANSWER,
    "only the tool": TOOL_OR_ANSWER["anyOf"][0],
    "no arguments": {"type": "object", "properties": {}, "additionalProperties": False},
    "one of two types": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    "closed tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "x"}], "items": False,
                     "minItems": 2},
    "properties and alternatives": {
        "type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"],
        "anyOf": [{"required": ["k"]}],
    },
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    "a name with a slash": {
        "type": "object", "$defs": {"a/b": {"type": "boolean"}},
        "properties": {"c": {"$ref": "#/$defs/a~1b"}}, "required": ["c"],
    },
}  # fmt: skip


@pytest.mark.parametrize("temperature", one_in(2, [1.0, 0.0]))
@pytest.mark.parametrize("name", one_in(3, SCHEMAS))
async def test_an_answer_under_a_schema_fits_it(model, name, temperature):
    """Decoding is constrained, so even a model that understands nothing keeps to the form."""
    schema = SCHEMAS[name]
    question = ask(
        "My drill AB-1234 does not start. Fill in the form.", schema=schema, temperature=temperature
    )
    answer = await model.complete(question)
    if name == "tree" and answer.finish == "length":
        return  # a tree may grow for ever; what was written so far cannot be read
    assert answer.finish == "stop"
    assert misfits(json.loads(answer.text), schema) == []


@pytest.mark.parametrize(
    "schema",
    [
        schema_of(Tree),
        {
            "type": "object", "required": ["leaf", "next"], "additionalProperties": False,
            "properties": {"leaf": {"type": "boolean"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        },
    ],
)  # fmt: skip
async def test_a_schema_that_holds_itself_is_decoded_under(model, schema):
    answer = await model.complete(ask("Draw a tree.", schema=schema, max_tokens=60))
    assert re.match(r'\{\s*"leaf"\s*:\s*(true|false)\s*,', answer.text)
    if answer.finish == "stop":  # a tree may as well grow for ever
        assert misfits(json.loads(answer.text), schema) == []


def test_a_key_that_is_required_but_not_described_is_asked_for():
    shaped = decodable({"type": "object", "required": ["a"], "additionalProperties": {"type": "boolean"}})
    assert shaped["properties"] == {"a": {"type": "boolean"}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {"$ref": "https://example.com/form.json"},
            "refers to 'https://example.com/form.json'. Only places in",
        ),
        ({"$ref": "#/$defs/gone"}, "refers to '#/$defs/gone', which it does not have"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "refers to nothing but itself"),
        ({"type": "thing"}, "names a type 'thing'. There is: array, boolean"),
        ({"enum": []}, "allows no value at all"),
        ({"type": "object", "properties": {"a": 3}}, "is no JSON Schema"),
    ],
)
async def test_a_schema_that_cannot_be_decoded_under_is_told(model, schema, why):
    with pytest.raises(ExecutorError) as failed:
        await model.complete(ask("Hello", schema=schema))
    assert why in str(failed.value)
    assert not failed.value.transient


async def test_a_schema_that_never_comes_to_an_end_is_told(model):
    endless = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"}
    with pytest.raises(ExecutorError, match="gave no answer"):
        await model.complete(ask("Hello", schema=endless))
    assert (await model.complete(ask("Hello", max_tokens=2))).text


def test_patterns_a_grammar_cannot_keep_are_left_to_the_check_afterwards():
    def pattern(text):
        return decodable({"type": "string", "pattern": text}).get("pattern")

    assert pattern(r"^\d{3}-[\dA-F]+$") == "^[0-9]{3}-[0-9A-F]+$"
    assert pattern(r"^(?:a|b)\.c$") == r"^(?:a|b)\.c$"
    for other in ("abc", "^a.b$", "^[^a]$", "^(?=a)a$", r"^\bx$", "^a{2000}$", "^(a$", "^é$"):
        assert pattern(other) is None


def test_bounds_too_large_to_count_are_left_to_the_check_afterwards():
    assert decodable({"type": "string", "minLength": 1, "maxLength": 10**6}) == {
        "type": "string",
        "minLength": 1,
    }
    assert decodable({"type": "integer", "exclusiveMinimum": 0, "maximum": 2.5}) == {
        "type": "integer", "minimum": 1, "maximum": 2,
    }  # fmt: skip


# -- side by side, and stopping -----------------------------------------------------------------------------


async def test_two_at_once_both_answer_and_it_is_loaded_once(smollm, caplog):
    model = LocalModel(str(smollm), context=512)
    try:
        with caplog.at_level(logging.INFO, "detent"):
            answers = await asyncio.gather(
                *[model.complete(ask(f"Count to {number}.", max_tokens=6)) for number in (3, 4, 5)]
            )
        assert all(answer.text for answer in answers)
        assert sum("model.loaded" in record.getMessage() for record in caplog.records) == 1
    finally:
        await model.close()


async def test_the_event_loop_stays_free(model):
    answering = asyncio.create_task(model.complete(ask(STORY, max_tokens=20)))
    turns = 0
    while not answering.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20
    assert (await answering).text


async def test_a_cancelled_answer_stops_and_the_next_one_comes(model):
    begun = asyncio.Event()

    async def on_text(text, kind):
        begun.set()

    answering = asyncio.create_task(model.complete(ask(STORY, max_tokens=1500), on_text))
    await begun.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert (await model.complete(ask("Name a fruit.", max_tokens=3))).text


async def test_a_cancelled_answer_stops_while_its_prompt_is_still_read(smollm):
    model = LocalModel(str(smollm), context=8192)
    try:
        await model.complete(ask("Hello", max_tokens=1))
        answering = asyncio.create_task(model.complete(ask("lighthouse " * 6000, max_tokens=1500)))
        await asyncio.sleep(0)  # it has been handed over
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        # Reading all of that takes longer than a test may; this one does not have to wait for it.
        assert (await asyncio.wait_for(model.complete(ask("Name a fruit.", max_tokens=3)), 30)).text
    finally:
        await model.close()


async def test_one_that_waits_its_turn_can_be_cancelled(model):
    first = asyncio.create_task(model.complete(ask(STORY, max_tokens=30)))
    second = asyncio.create_task(model.complete(ask(STORY, max_tokens=30)))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first).usage.output_tokens == 30


async def test_a_listener_that_fails_ends_the_call(model):
    async def on_text(text, kind):
        raise ValueError("nobody home")

    with pytest.raises(ValueError, match="nobody home"):
        await model.complete(ask(STORY, max_tokens=500), on_text)
    assert (await model.complete(ask("Name a fruit.", max_tokens=3))).text


async def test_closed_it_lets_go_and_asked_again_it_loads_again(smollm):
    model = LocalModel(str(smollm), context=512)
    first = await model.complete(ask("Name a fruit.", max_tokens=4))
    await model.close()
    await model.close()
    assert (await model.complete(ask("Name a fruit.", max_tokens=4))).text == first.text
    await model.close()


async def test_closing_ends_what_is_under_way(smollm):
    model = LocalModel(str(smollm), context=2048)
    begun = asyncio.Event()

    async def on_text(text, kind):
        begun.set()

    answering = asyncio.create_task(model.complete(ask(STORY, max_tokens=1800), on_text))
    waiting = asyncio.create_task(model.complete(ask(STORY, max_tokens=1800)))
    await begun.wait()
    await model.close()
    for task in (answering, waiting):
        with pytest.raises(ExecutorError, match="was stopped before it had answered") as stopped:
            await task
        assert stopped.value.transient


# -- what can be wrong --------------------------------------------------------------------------------------


async def test_a_prompt_longer_than_the_context_says_both_sizes(model):
    """D-51: sizes are told, never the text."""
    with pytest.raises(RequestTooLongError) as failed:
        await model.complete(ask("secret-word " * 3000))
    said = str(failed.value)
    assert re.search(
        r"is \d{4,} tokens long, its context holds 2048\. Give it less, or a larger `context`", said
    )
    assert "secret-word" not in said
    assert not failed.value.transient


async def test_a_file_that_is_not_there_is_told_before_and_when_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("DETENT_MODELS", str(tmp_path))
    model = LocalModel("smollm2-135m")
    assert model.available() == (
        False,
        "model file SmolLM2-135M-Instruct.Q4_1.gguf is not here: detent models pull smollm2-135m",
    )
    with pytest.raises(ExecutorError, match="detent models pull smollm2-135m"):
        await model.complete(ask("Hello"))
    await model.close()
    assert not LocalModel("no/such.gguf").available().ok


@pytest.mark.parametrize("damage", ["other", "empty", "header only", "cut"])
async def test_a_damaged_file_is_an_error_and_not_a_crash(smollm, tmp_path, damage):
    file = tmp_path / "bad.gguf"
    start = smollm.read_bytes()[:3_000_000]
    file.write_bytes({"other": b"<html>", "empty": b"", "header only": start[:40], "cut": start}[damage])
    model = LocalModel("bad.gguf", folder=tmp_path)
    assert model.available().ok
    try:
        with pytest.raises(ExecutorError) as failed:
            await model.complete(ask("Hello"))
        known_by_its_start = damage in ("other", "empty")
        assert ("is no GGUF file" if known_by_its_start else "could not be loaded") in str(failed.value)
        assert not failed.value.transient
    finally:
        await model.close()


async def test_a_step_may_name_another_file(model, smollm, tmp_path):
    other = tmp_path / "other.gguf"
    other.symlink_to(smollm)
    answer = await model.complete(ask("Name a fruit.", model_id=str(other), max_tokens=3))
    assert answer.model_id == str(other)
    with pytest.raises(ExecutorError, match="There is no model 'smollm2'. Did you mean 'smollm2-135m'?"):
        await model.complete(ask("Name a fruit.", model_id="smollm2"))


# -- options ------------------------------------------------------------------------------------------------


def test_it_is_connected_from_options(smollm):
    model = connect(
        {"model_id": smollm.name, "threads": 2, "context": 1024}, kind="local", folder=smollm.parent
    )
    assert isinstance(model, LocalModel)
    assert model.available().ok
    assert (model.threads, model.context) == (2, 1024)


def test_nothing_said_is_the_default(tmp_path):
    model = connect({}, kind="local", folder=tmp_path, prices=None)
    assert isinstance(model, LocalModel)
    assert model.model_id == DEFAULT
    assert model.threads >= 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"thread": 2}, "'thread' is no option of a provider of kind 'local'. Did you mean 'threads'?"),
        ({"threads": 0}, "must be at least 1, not 0"),
        ({"threads": "two"}, "'threads' of a provider of kind 'local' must be int"),
        ({"context": 10}, "must be at least 256, not 10"),
        ({"model_id": "qwen-coder-1.5b"}, "Did you mean 'qwen2.5-coder-1.5b'?"),
    ],
)
def test_a_wrong_option_is_told_when_it_is_read(options, why):
    """D-54: with the nearest that would have been right."""
    with pytest.raises(ConfigurationError) as wrong:
        connect(options, kind="local", folder=None, prices=None)
    assert why in str(wrong.value)
