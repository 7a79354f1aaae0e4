"""The scripted executor answers and goes wrong as its script says, and a wrong script is told all at once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor, make
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_tools import AgentTools, declared_tools
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.config import StepConfig
from detent.dispatch.executor import AgentStreamChunk, StepExecutor
from detent.dispatch.executor_errors import ExecutorError, ExecutorTimeoutError, OutputSchemaValidationError
from detent.dispatch.usage import UsageMetadata
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.errors import ConfigurationError, DefinitionError
from detent.kernel.machine import Machine


async def ask(executor: StepExecutor, step: str = "work", prompt: Any = "do it", **more: Any) -> Any:
    return await executor.execute(step_name=step, agent_name="dispatch", prompt=prompt, **more)


def problems(script: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        ScriptedStepExecutor(script)
    return [str(problem) for problem in caught.value.problems]


# -- replies ------------------------------------------------------------------------------------------------


async def test_replies_are_given_in_turn_and_per_step():
    executor = ScriptedStepExecutor(
        {"work": [{"output": {"n": 1}}, {"output": {"n": 2}}], "*": [{"output": "other"}]}
    )
    assert (await ask(executor)).output == {"n": 1}
    assert (await ask(executor, "rest")).output == "other"
    assert (await ask(executor)).output == {"n": 2}


async def test_running_out_names_the_step_and_how_many_replies_there_were():
    executor = ScriptedStepExecutor([{"output": 1}, {"output": 2}])
    await ask(executor)
    await ask(executor, "other")
    with pytest.raises(ExecutorError) as caught:
        await ask(executor, "third")
    assert "2 replies" in str(caught.value)
    assert "'third'" in str(caught.value)
    assert caught.value.step_name == "third"
    assert not caught.value.transient


async def test_the_last_reply_repeats_when_it_says_so():
    executor = ScriptedStepExecutor({"work": [{"output": 1}, {"output": 2, "repeat": True}]})
    assert [(await ask(executor)).output for _ in range(4)] == [1, 2, 2, 2]


async def test_a_step_the_script_does_not_know_is_told_the_nearest():
    executor = ScriptedStepExecutor({"classify": {"output": 1}})
    with pytest.raises(ExecutorError, match="Did you mean 'classify'"):
        await ask(executor, "clasify")


async def test_a_text_is_given_unparsed_however_broken():
    executor = ScriptedStepExecutor([{"text": '{"half'}])
    assert (await ask(executor)).output == '{"half'


async def test_usage_model_and_failure_are_told():
    executor = ScriptedStepExecutor(
        [
            {
                "output": None,
                "usage": {"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5},
                "model_id": "small-1",
                "success": False,
            }
        ]
    )
    result = await ask(executor)
    assert result.usage == UsageMetadata(3, 4, total_cost_usd=0.5)
    assert (result.model_id, result.success, result.output) == ("small-1", False, None)


async def test_an_answer_changed_by_whoever_asked_stays_whole_in_the_script():
    executor = ScriptedStepExecutor([{"output": {"list": [1]}, "repeat": True}])
    (await ask(executor)).output["list"].append(2)
    assert (await ask(executor)).output == {"list": [1]}


async def test_a_reply_with_a_match_waits_for_its_prompt():
    executor = ScriptedStepExecutor(
        [
            {"output": "de", "match": {"contains": "Berlin"}, "repeat": True},
            {"output": "fr", "match": {"contains": "Paris"}},
            {"output": "any"},
        ]
    )
    cities = ["in Rome", "in Berlin", "in Paris", "in Berlin"]
    assert [(await ask(executor, prompt=city)).output for city in cities] == ["any", "de", "fr", "de"]
    with pytest.raises(ExecutorError, match="3 replies"):
        await ask(executor, prompt="in Paris")


async def test_a_prompt_that_is_no_text_is_matched_as_json():
    executor = ScriptedStepExecutor([{"output": 1, "match": {"contains": '"city":"Köln"'}}])
    assert (await ask(executor, prompt={"city": "Köln"})).output == 1


async def test_none_of_the_replies_left_being_for_this_prompt_is_said():
    executor = ScriptedStepExecutor([{"output": 1, "match": {"contains": "x"}}])
    with pytest.raises(ExecutorError, match=r"none of those left \(1\) is for this prompt"):
        await ask(executor, prompt="y")


async def test_streamed_pieces_are_told_as_they_come_after_an_opening_thought():
    told: list[AgentStreamChunk] = []

    async def tell(chunk: AgentStreamChunk) -> None:
        told.append(chunk)

    executor = ScriptedStepExecutor([{"text": "ab", "stream": ["a", "b"]}, {"text": "c"}])
    result = await ask(executor, event_callback=tell)
    assert [(one.text, one.chunk_type) for one in told] == [
        ("", "thinking"),
        ("a", "output"),
        ("b", "output"),
    ]
    assert result.events == tuple(told)
    assert (await ask(executor)).events == ()


async def test_a_delay_lets_others_go_first():
    executor = ScriptedStepExecutor({"slow": {"output": 1, "delay": 0.01}, "quick": {"output": 2}})
    done: list[str] = []

    async def run(step: str) -> None:
        await ask(executor, step)
        done.append(step)

    await asyncio.gather(run("slow"), run("quick"))
    assert done == ["quick", "slow"]


async def test_what_was_asked_is_kept():
    executor = ScriptedStepExecutor([{"output": 1}])
    await ask(executor, prompt={"a": 1}, instructions="be kind", allowed_tools=["look"], output_schema=dict)
    (call,) = executor.calls
    assert (call.step_name, call.agent_name, call.prompt) == ("work", "dispatch", {"a": 1})
    assert (call.instructions, call.allowed_tools, call.output_schema) == ("be kind", ("look",), dict)
    assert (call.config, call.tools) == (None, ())
    with pytest.raises(AttributeError):
        call.prompt = "other"


async def test_calls_go_through_the_toolbox_which_has_effects_carried_out():
    """An executor never performs an effect: D-59."""
    performed: list[str] = []
    seen: dict[str, Any] = {}
    called: list[Effect] = []
    executor = ScriptedStepExecutor(
        [{"output": "done", "calls": [{"tool": "mail.send", "args": {"to": "a"}}, {"tool": "mail.wipe"}]}]
    )

    async def act(effect: Effect) -> Any:
        called.append(effect)

    async def handler(ctx: Any) -> Outcome:
        toolbox = AgentTools(ctx, declared_tools(ctx.step, ctx.tools, None), act)
        result = await ask(executor, ctx.step.name, toolbox=toolbox)
        seen.update(output=result.output, called=called, performed=performed)
        return Outcome("done")

    def send(to: str) -> None:
        performed.append(to)

    def wipe() -> None:
        performed.append("wiped")

    await run_step(handler, Tool("mail.send", send), Tool("mail.wipe", wipe))
    assert seen == {
        "output": "done",
        "called": [Effect("mail.send", {"to": "a"}), Effect("mail.wipe", {})],
        "performed": [],
    }
    assert executor.calls[0].tools == ("mail.send", "mail.wipe")


async def test_a_call_the_step_does_not_allow_breaks_its_contract():
    executor = ScriptedStepExecutor([{"output": 1, "calls": [{"tool": "mail.sent"}]}])
    caught: list[OutputSchemaValidationError] = []

    async def act(effect: Effect) -> Any:
        raise AssertionError("no effect is allowed")

    async def handler(ctx: Any) -> Outcome:
        try:
            await ask(executor, toolbox=AgentTools(ctx, declared_tools(ctx.step, ctx.tools, None), act))
        except OutputSchemaValidationError as error:
            caught.append(error)
        return Outcome("done")

    await run_step(handler, Tool("mail.send", lambda: None))
    assert "Allowed: mail.send" in str(caught[0])


async def test_calls_without_tools_are_an_error():
    with pytest.raises(ExecutorError, match="no tools were given"):
        await ask(ScriptedStepExecutor([{"output": 1, "calls": [{"tool": "x"}]}]))


async def run_step(handler: Any, *tools: Tool) -> None:
    machine: Machine[str] = Machine("one", start="work", moves={"work": ["done"]}, ends=["done"])
    step = Step("work", handler, effects=tuple(tool.name for tool in tools))
    async with Engine(MemoryStore(), [Flow(machine, {"work": step}, tools=list(tools))]) as engine:
        run = await engine.run("one")
    assert run.status.value == "succeeded", run.error


# -- faults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "transient", "retry_after"),
    [
        ("transient", True, None),
        ({"type": "transient", "retry_after": 3}, True, 3.0),
        ("rate_limit", True, 1.0),
        ({"type": "rate_limit", "retry_after": 0}, True, 0.0),
        ("permanent", False, None),
    ],
)
async def test_failures_say_whether_trying_again_may_help(fault, transient, retry_after):
    executor = ScriptedStepExecutor([{"error": fault, "usage": {"input_tokens": 5}}])
    with pytest.raises(ExecutorError) as caught:
        await ask(executor)
    error = caught.value
    assert (error.transient, error.retry_after, error.step_name) == (transient, retry_after, "work")
    assert error.usage == UsageMetadata(5)
    assert error.reason is FallbackReason.EXCEPTION
    assert str(error)


@dataclass
class Form:
    serial: str


@pytest.mark.parametrize(
    ("schema", "name"), [(Form, "Form"), ({"title": "Letter"}, "Letter"), (None, "the contract")]
)
async def test_a_schema_fault_is_a_broken_contract(schema, name):
    executor = ScriptedStepExecutor([{"error": {"type": "schema", "message": "/serial: must be string"}}])
    with pytest.raises(OutputSchemaValidationError) as caught:
        await ask(executor, output_schema=schema)
    assert caught.value.validation_errors == ("/serial: must be string",)
    assert caught.value.schema_type == name
    assert caught.value.reason is FallbackReason.SCHEMA_VIOLATION


async def test_a_crash_is_an_exception_nobody_announced():
    with pytest.raises(RuntimeError, match="kaput"):
        await ask(ScriptedStepExecutor([{"error": {"type": "crash", "message": "kaput"}}]))


async def test_a_timeout_is_reported_at_once_with_the_limit_of_the_step():
    executor = ScriptedStepExecutor([{"error": "timeout"}])
    with pytest.raises(ExecutorTimeoutError) as caught:
        await ask(executor, config=StepConfig(timeout=7))
    assert (caught.value.timeout, caught.value.reason) == (7, FallbackReason.TIMEOUT)
    assert caught.value.transient


async def test_a_hang_lasts_until_the_caller_gives_up():
    executor = ScriptedStepExecutor([{"error": "hang"}])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await ask(executor)


async def test_a_cancel_cancels_the_task_that_asks():
    """D-35: as if somebody stopped the process in the middle."""
    asking = asyncio.ensure_future(ask(ScriptedStepExecutor([{"error": "cancel"}])))
    await asyncio.wait([asking])
    assert asking.cancelled()


async def test_a_fault_may_come_in_the_middle_of_a_stream():
    told: list[str] = []

    async def tell(chunk: AgentStreamChunk) -> None:
        told.append(chunk.text)

    with pytest.raises(ExecutorError):
        await ask(ScriptedStepExecutor([{"error": "transient", "stream": ["The ans"]}]), event_callback=tell)
    assert told == ["", "The ans"]


def test_an_executor_can_be_said_to_be_unavailable():
    """D-31."""
    assert ScriptedStepExecutor([{"output": 1}]).available() == (True, "")
    said = ScriptedStepExecutor({"unavailable": "no key", "work": [{"output": 1}]})
    assert said.available() == (False, "no key")
    assert ScriptedStepExecutor([{"output": 1}], unavailable="offline").available() == (False, "offline")


def test_a_step_may_be_called_unavailable():
    assert ScriptedStepExecutor({"unavailable": [{"output": 1}]}).available().ok


def test_it_is_a_step_executor():
    assert isinstance(ScriptedStepExecutor([{"output": 1}]), StepExecutor)


# -- files --------------------------------------------------------------------------------------------------


async def test_a_script_may_be_a_yaml_file(tmp_path):
    file = tmp_path / "script.yaml"
    file.write_text(
        """
classify:
  - output: {kind: fault, serial: "Ü-1"}
    usage: {input_tokens: 10, output_tokens: 5, cost_usd: 0.001}
  - error: {type: rate_limit, retry_after: 2.5}
"*":
  text: "no idea"
  repeat: true
""",
        encoding="utf-8",
    )
    executor = ScriptedStepExecutor(file)
    result = await ask(executor, "classify")
    assert result.output == {"kind": "fault", "serial": "Ü-1"}
    assert result.usage == UsageMetadata(10, 5, total_cost_usd=0.001)
    with pytest.raises(ExecutorError) as caught:
        await ask(executor, "classify")
    assert caught.value.retry_after == 2.5
    assert [(await ask(executor, step)).output for step in ("a", "b")] == ["no idea", "no idea"]


@pytest.mark.parametrize("indent", [None, 2, "\t"])
async def test_a_script_may_be_a_json_file(tmp_path, indent):
    file = tmp_path / "script.json"
    file.write_text(json.dumps({"work": [{"output": "😀"}]}, indent=indent))
    assert (await ask(ScriptedStepExecutor(str(file)))).output == "😀"


def test_everything_wrong_with_a_script_is_told_at_once_with_lines_and_nearest_names(tmp_path):
    file = tmp_path / "script.yaml"
    file.write_text(
        """\
classify:
  - otput: 1
  - output: 2
    text: both
  - error: {type: time-out, mesage: x}
  - output: 2024-01-31
  - output: 1
    usage: {input_tokens: -1, cost: 2}
    calls: [{tol: x}]
    stream: abc
    delay: soon
    success: "no"
    match: {contain: x}
  - output: 1
    repeat: true
  - just text
  - error: {type: crash, retry_after: 1}
    usage: {input_tokens: 1}
    model_id: m
write: []
send: nothing
write:
  - output: 1
7:
  - output: 1
"""
    )
    with pytest.raises(DefinitionError) as caught:
        ScriptedStepExecutor(file)
    assert str(file) in str(caught.value)
    assert isinstance(caught.value, ConfigurationError)
    told = "\n".join(f"line {one.place.line}: {one.path}: {one.message}" for one in caught.value.problems)
    for expected in (
        "line 2: classify[0].otput: unknown key. Did you mean 'output'?",
        "line 2: classify[0]: says nothing: a reply has exactly one of output, text, error.",
        "line 3: classify[1]: has output and text: a reply has exactly one of output, text, error.",
        "line 5: classify[2].error.mesage: unknown key. Did you mean 'message'?",
        "line 5: classify[2].error.type: is one of timeout, transient",
        "Did you mean 'timeout'?",
        "line 8: classify[4].usage.cost: unknown key. Did you mean 'cost_usd'?",
        "line 8: classify[4].usage.input_tokens: takes a whole number of 0 or more.",
        "line 9: classify[4].calls[0].tol: unknown key. Did you mean 'tool'?",
        "line 9: classify[4].calls[0]: says no tool.",
        "line 10: classify[4].stream: takes a list of texts.",
        "line 11: classify[4].delay: takes a number of 0 or more.",
        "line 12: classify[4].success: takes true or false.",
        "line 13: classify[4].match.contain: unknown key. Did you mean 'contains'?",
        "line 13: classify[4].match: takes a mapping with contains.",
        "line 15: classify[5].repeat: only the last reply",
        "line 16: classify[6]: a reply is a mapping",
        "line 17: classify[7].error.retry_after: belongs to the types transient and rate_limit.",
        "line 18: classify[7].usage: an error of the type crash cannot tell what was used.",
        "line 19: classify[7].model_id: belongs to an answer, not to an error.",
        "line 21: send: takes a reply or a list of replies",
        "The key 'write' is defined twice",
        "The key 7 is not text. Put it in quotes.",
    ):
        assert expected in told


def test_problems_of_a_script_in_python_say_where_without_lines():
    assert problems([{"output": 1, "delays": 1}]) == ["unknown key. Did you mean 'delay'? ([0].delays)"]
    assert problems({"work": []}) == ["has no replies. (work)"]
    assert problems(7) == ["a script holds replies per step name, or a list of replies."]
    assert problems([{"text": 7}, {"error": 7}, {"output": 1, "calls": "x", "match": 3}]) == [
        "takes text. ([0].text)",
        "takes a type, or a mapping with type, message and retry_after. ([1].error)",
        "takes a list of {tool, args}. ([2].calls)",
        "takes a mapping with contains. ([2].match)",
    ]


def test_lines_are_told_for_json_too(tmp_path):
    file = tmp_path / "script.json"
    file.write_text('{\n  "work": [\n    {"ouput": 1}\n  ]\n}\n')
    assert f"{file}:3:6: unknown key. Did you mean 'output'? (work[0].ouput)" in problems(file)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.yaml", b"work: [", "not valid YAML"),
        ("a.yaml", b"\xff\xfe", "UTF-16"),
        ("a.yaml", b"work: &a\n  - output: *a", "contains this alias"),
        ("a.json", b'{"work": }', "not valid JSON"),
    ],
)
def test_a_file_that_cannot_be_understood_is_named(tmp_path, name, content, said):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        ScriptedStepExecutor(file)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        ScriptedStepExecutor(tmp_path / "none.yaml")


# -- where it comes from ------------------------------------------------------------------------------------


async def test_settings_find_it_by_its_entry_point(tmp_path):
    (point,) = entry_points(group="detent.executors", name="scripted")
    (tmp_path / "script.yaml").write_text("work: [{output: 1}]")
    executor = point.load()({"file": "script.yaml", "model_id": "small"}, folder=tmp_path)
    result = await ask(executor)
    assert (result.output, result.model_id) == (1, "small")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the option 'file'"),
        ({"file": 3}, "needs the option 'file'"),
        ({"fil": "x"}, "Did you mean 'file'"),
    ],
)
def test_options_nobody_knows_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        make(options, folder=Path())


async def test_a_source_hands_out_what_it_was_given_and_counts():
    """D-07: that no executor was made can be counted."""
    first, second = ScriptedStepExecutor([{"output": 1}]), ScriptedStepExecutor([{"output": 2}])
    source = ScriptedSource({"a": first, "b": second})
    assert (source.default, source.made) == ("a", 0)
    assert source.make("b") is second
    assert source.made == 1
    with pytest.raises(ConfigurationError, match="There is: a, b"):
        source.make("c")
    assert source.made == 1
    await source.close()
    assert source.closed


def test_a_source_of_one_or_none():
    only = ScriptedStepExecutor([{"output": 1}])
    assert ScriptedSource(only).default == "scripted"
    assert ScriptedSource(only).make("scripted") is only
    assert ScriptedSource({}).default is None
    assert ScriptedSource({"a": only, "b": only}, default="b").default == "b"
