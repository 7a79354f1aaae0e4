"""Steps performed on a model: real runs of the engine, a real model object, a server on a loopback port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from detent.adapters.models import prompted_tools
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.openai import OpenAIModel
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent import ALREADY
from detent.dispatch.agent_tools import AgentTool, AgentTools, declared_tools
from detent.dispatch.config import StepConfig
from detent.dispatch.executor import ExecutorResult, SchemaHint, StepExecutor
from detent.dispatch.executor_errors import ExecutorError, OutputSchemaValidationError
from detent.dispatch.usage import UsageMetadata
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.schemas import check_schema, misfits
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.kernel.entries import EffectDone
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from tests.adapters.models import server as of
from tests.adapters.models.server import USAGE, Server, answer, chat, delta, pieces, said, stream


@dataclass
class Report:
    fault: bool
    serial: str


USED = UsageMetadata(input_tokens=100, output_tokens=20, total_cost_usd=0.0)


def executor(server: Server, *, native: bool = False, **options: Any) -> ModelStepExecutor:
    model = OpenAIModel(f"{server.url}/v1", kind="vllm", model_id="m-1", native_tools=native)
    return ModelStepExecutor(model, **options)


async def ask(made: ModelStepExecutor, **options: Any) -> ExecutorResult:
    return await made.execute(
        **{"step_name": "read-mail", "agent_name": "dispatch", "prompt": "?", **options}
    )


def calling(tool: str, **arguments: Any) -> of.Reply:
    """A turn that calls a tool in words."""
    return said(json.dumps({"tool": tool, "arguments": arguments}))


def answering(value: Any) -> of.Reply:
    """The answer in words."""
    return said(json.dumps({"answer": value}))


class Run:
    """One step of one run, in which a test may do what it likes with the step's tools.

    An effect that is called is performed by the engine.
    """

    def __init__(self) -> None:
        self.looked: list[dict[str, Any]] = []
        self.opened: list[str] = []
        """Serial numbers for which a ticket was really opened."""
        self.trouble: Exception | None = None

        async def find(serial: str) -> Any:
            """Find a device."""
            self.looked.append({"serial": serial})
            if self.trouble is not None:
                raise self.trouble
            return {"serial": serial, "covered": True, "tickets": len(self.opened)}

        async def open_ticket(serial: str, *, note: str = "") -> Any:
            """Open a ticket."""
            self.opened.append(serial)
            return {"ticket": f"T-{len(self.opened)}"}

        self.tools = [
            Tool("crm.find", find, "query", description="Find a device."),
            Tool("crm.open_ticket", open_ticket, "effect", description="Open a ticket.", idempotent=True),
        ]

    async def __call__(self, work: Callable[[AgentTools], Any]) -> Any:
        """Do `work` inside the run's step; gives what it gave, and raises what it raised."""
        kept: dict[str, Any] = {}

        async def handler(ctx: Any) -> Outcome:
            async def act(effect: Effect) -> Any:
                return await ctx.perform(effect.tool, **effect.args)

            try:
                kept["result"] = await work(AgentTools(ctx, declared_tools(ctx.step, ctx.tools, None), act))
            except Exception as error:
                kept["error"] = error
            return Outcome(next="done", reason="tried")

        machine = Machine("flow", start="work", moves={"work": ["done"]}, ends={"done": Status.SUCCEEDED})
        step = Step("read-mail", handler, queries=("crm.find",), effects=("crm.open_ticket",))
        async with Engine(MemoryStore(), [Flow(machine, {"work": step}, tools=self.tools)]) as engine:
            await engine.run("flow", {}, run_id="r1")
            self.entries = await engine.store.entries("r1")
        if "error" in kept:
            raise kept["error"]
        return kept.get("result")


class TestOneAnswer:
    async def test_it_is_a_step_executor(self):
        async with Server() as server:
            assert isinstance(executor(server), StepExecutor)
            assert executor(server).available().ok
            assert executor(server).priced(None)

    async def test_instructions_and_prompt_become_messages(self):
        """D-02, D-40."""
        async with Server(said("{}"), said("{}")) as server:
            made = executor(server)
            await ask(made, instructions="Do it.", prompt="as it stands")
            await ask(made, prompt={"b": 1, "a": "é"})
        assert [m["role"] for m in server.asked[0].body["messages"]] == ["system", "user"]
        assert server.asked[0].body["messages"][1]["content"] == "as it stands"
        assert server.asked[1].body["messages"] == [
            {"role": "user", "content": '{\n  "b": 1,\n  "a": "é"\n}'}
        ]

    async def test_the_configuration_chooses_model_temperature_and_length(self):
        async with Server(said("1"), said("1"), said("1")) as server:
            await ask(executor(server), config=StepConfig(model_id="m-2", temperature=0.7, max_tokens=9))
            await ask(executor(server, default_model_id="m-3"))
            await ask(executor(server), config=StepConfig())
        told = [(a.body["model"], a.body["temperature"], a.body["max_tokens"]) for a in server.asked]
        assert told == [("m-2", 0.7, 9), ("m-3", 0.0, 4096), ("m-1", 0.0, 4096)]

    @pytest.mark.parametrize("schema", [Report, {"type": "object", "required": ["fault"]}])
    async def test_a_structured_answer_is_read_and_checked(self, schema):
        """D-03."""
        async with Server(said('{"fault": true, "serial": "A1"}')) as server:
            result = await ask(executor(server), output_schema=schema)
        assert result.output == {"fault": True, "serial": "A1"}
        assert result.usage == USED
        assert (result.success, result.model_id, result.events) == (True, "served-1", ())
        assert server.asked[0].body["response_format"]["type"] == "json_schema"

    async def test_a_broken_schema_names_places_and_no_values(self):
        """D-28."""
        async with Server(said('{"fault": "Erika says yes", "serial": "A1"}')) as server:
            with pytest.raises(OutputSchemaValidationError) as caught:
                await ask(executor(server), output_schema=Report)
        assert caught.value.schema_type == "Report"
        assert caught.value.usage == USED
        assert "/fault" in str(caught.value)
        assert "Erika" not in str(caught.value)

    async def test_a_hint_holds_the_model_to_a_form_and_refuses_nothing(self):
        hint = SchemaHint({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
        async with Server(said('{"n": "seven"}')) as server:
            assert (await ask(executor(server), output_schema=hint)).output == {"n": "seven"}
        assert server.asked[0].body["response_format"]["type"] == "json_schema"

    @pytest.mark.parametrize("text", ["No idea.", "", "{", "NaN"])
    async def test_what_is_no_json_is_told(self, text):
        async with Server(said(text)) as server:
            with pytest.raises(OutputSchemaValidationError) as caught:
                await ask(executor(server), output_schema=Report)
        assert caught.value.schema_type == "JSON"
        assert caught.value.usage == USED

    @pytest.mark.parametrize("schema", [Report, None, str])
    async def test_an_answer_that_was_cut_says_so(self, schema):
        async with Server(said('{"fault": tr', finish="length")) as server:
            with pytest.raises(OutputSchemaValidationError) as caught:
                await ask(executor(server), output_schema=schema, config=StepConfig(max_tokens=12))
        assert "cut at 12 tokens" in str(caught.value)

    @pytest.mark.parametrize(
        ("schema", "text", "output"),
        [
            (None, "Just words.", "Just words."),
            (None, "[1, 2]", [1, 2]),
            (None, "Here:\n```json\n7\n```", 7),
            (str, "Just words.", "Just words."),
            (str, '"quoted"', "quoted"),
            (str, "42", "42"),
            ({"type": "string"}, "Just words.", "Just words."),
        ],
    )
    async def test_where_a_text_will_do_it_is_taken(self, schema, text, output):
        async with Server(said(text)) as server:
            assert (await ask(executor(server), output_schema=schema)).output == output
        assert "response_format" not in server.asked[0].body

    @pytest.mark.parametrize("schema", [None, str])
    async def test_an_empty_answer_is_none(self, schema):
        async with Server(said(" \n")) as server:
            with pytest.raises(OutputSchemaValidationError, match="empty"):
                await ask(executor(server), output_schema=schema)

    async def test_a_filtered_answer_is_an_error_with_its_usage(self):
        async with Server(said("", finish="content_filter")) as server:
            with pytest.raises(ExecutorError, match="withheld") as caught:
                await ask(executor(server))
        assert caught.value.usage == USED
        assert not caught.value.transient


class TestFailures:
    async def test_a_failure_names_the_step_and_is_not_tried_again(self):
        async with Server(answer({}, 503, {"retry-after": "2"})) as server:
            with pytest.raises(ExecutorError) as caught:
                await ask(executor(server))
        assert (caught.value.step_name, caught.value.transient, caught.value.retry_after) == (
            "read-mail",
            True,
            2.0,
        )
        assert len(server.asked) == 1

    async def test_whatever_else_goes_wrong_leaves_as_an_executor_error(self):
        async def deaf(chunk):
            raise RuntimeError("do not tell this")

        async with Server(said("1")) as server:
            with pytest.raises(ExecutorError) as caught:
                await ask(executor(server), event_callback=deaf)
        assert "do not tell" not in str(caught.value)
        assert not caught.value.transient

    async def test_cancelling_closes_the_connection(self):
        """D-35."""
        async with Server(of.stall) as server:
            asked = asyncio.ensure_future(ask(executor(server)))
            await server.asking.wait()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await server.hung_up.wait()

    async def test_cancelling_in_the_middle_of_a_tool_loop_closes_the_connection_too(self):
        second = asyncio.Event()

        async def stall(line):
            second.set()
            await of.stall(line)

        async with Server(calling("crm.find", serial="A1"), stall) as server:

            async def work(tools):
                asked = asyncio.ensure_future(ask(executor(server), toolbox=tools))
                await second.wait()
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
                await server.hung_up.wait()

            await Run()(work)


class TestStreams:
    async def test_text_is_told_once_while_it_comes(self):
        heard, first, gate = [], asyncio.Event(), asyncio.Event()

        async def hear(chunk):
            heard.append((chunk.agent_name, chunk.text, chunk.chunk_type, chunk.timestamp))
            if chunk.text:
                first.set()

        async with Server(stream(pieces("[1,", " 2]"), gates={1: gate})) as server:
            asked = asyncio.ensure_future(
                ask(executor(server, clock=lambda: 5.0), event_callback=hear, output_schema={"type": "array"})
            )
            await first.wait()
            assert not asked.done()
            gate.set()
            result = await asked
        assert heard == [
            ("dispatch", "", "thinking", 5.0),
            ("dispatch", "[1,", "output", 5.0),
            ("dispatch", " 2]", "output", 5.0),
        ]
        assert [chunk.text for chunk in result.events] == ["", "[1,", " 2]"]
        assert result.output == [1, 2]

    async def test_a_server_that_does_not_stream_is_heard_at_the_end(self):
        heard = []

        async def hear(chunk):
            heard.append((chunk.text, chunk.chunk_type))

        async with Server(said("words")) as server:
            await ask(executor(server), event_callback=hear)
        assert heard == [("", "thinking"), ("words", "output")]

    async def test_calls_of_tools_are_told_as_thoughts(self):
        heard = []

        async def hear(chunk):
            heard.append((chunk.text, chunk.chunk_type))

        replies = [
            stream(pieces('{"to', 'ol": "crm.find", ', '"arguments": {"serial": "A1"}}')),
            stream(pieces('{"answer"', ": true}")),
        ]
        async with Server(*replies) as server:
            result = await Run()(lambda tools: ask(executor(server), toolbox=tools, event_callback=hear))
        assert heard == [
            ("", "thinking"),
            ('{"tool": "crm.find", ', "thinking"),
            ('"arguments": {"serial": "A1"}}', "thinking"),
            ('{"answer"', "output"),
            (": true}", "output"),
        ]
        assert result.output is True

    async def test_a_server_killed_in_the_middle_of_its_answer(self):
        async with Server(stream([delta(content="half")], ending="dies")) as server:

            async def hear(chunk):
                pass

            with pytest.raises(ExecutorError) as caught:
                await ask(executor(server), event_callback=hear)
        assert caught.value.transient


@pytest.mark.parametrize("native", [False, True])
class TestTools:
    """The same in both ways: tools on the wire, and tools in words."""

    def turn(self, native: bool, tool: str, id_: str = "x", **arguments: Any) -> of.Reply:
        if native:
            return answer(chat(None, [(id_, tool.replace(".", "_"), arguments)]))
        return calling(tool, **arguments)

    def end(self, native: bool, value: Any) -> of.Reply:
        return said(json.dumps(value)) if native else answering(value)

    async def test_a_query_is_asked_and_its_answer_goes_back(self, native):
        replies = [
            self.turn(native, "crm.find", serial="A1"),
            self.end(native, {"fault": True, "serial": "A1"}),
        ]
        run = Run()
        async with Server(*replies) as server:
            made = executor(server, native=native)
            result = await run(
                lambda tools: ask(made, toolbox=tools, output_schema=Report, instructions="Go.")
            )
        assert result.output == {"fault": True, "serial": "A1"}
        assert run.looked == [{"serial": "A1"}]
        last = server.asked[1].body["messages"][-1]
        assert '"covered": true' in last["content"]
        assert last["role"] == ("tool" if native else "user")

    async def test_an_effect_is_performed_by_the_engine_and_its_receipt_goes_back(self, native):
        """D-50, D-59."""
        replies = [self.turn(native, "crm.open_ticket", serial="A1"), self.end(native, 1)]
        run = Run()
        async with Server(*replies) as server:
            await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert run.opened == ["A1"]
        assert '"ticket": "T-1"' in server.asked[1].body["messages"][-1]["content"]
        (receipt,) = [entry.body.receipt for entry in run.entries if isinstance(entry.body, EffectDone)]
        assert receipt == {"ticket": "T-1"}

    async def test_usage_is_the_sum_of_all_turns(self, native):
        replies = [self.turn(native, "crm.find", serial="A1"), self.end(native, 7)]
        async with Server(*replies) as server:
            result = await Run()(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert result.usage == USED + USED

    async def test_a_failure_tells_what_the_turns_before_it_cost(self, native):
        async with Server(self.turn(native, "crm.find", serial="A1"), of.drop) as server:
            with pytest.raises(ExecutorError) as caught:
                await Run()(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert caught.value.transient
        assert caught.value.usage == USED

    async def test_it_remembers_nothing_between_two_executions(self, native):
        """What an execution asked and paid is the caller's to keep."""
        turns = [self.turn(native, "crm.find", serial="A1"), self.end(native, 7)]
        async with Server(*turns, *turns) as server:
            made = executor(server, native=native)

            async def work(tools: AgentTools) -> list[ExecutorResult]:
                return [await ask(made, toolbox=tools) for _ in range(2)]

            first, second = await Run()(work)
        assert (first.output, first.usage) == (second.output, second.usage)
        assert [asked.body for asked in server.asked[:2]] == [asked.body for asked in server.asked[2:]]

    async def test_a_failed_query_is_told_to_the_model(self, native):
        run = Run()
        run.trouble = ToolError("away", "the register is closed")
        replies = [self.turn(native, "crm.find", serial="A1"), self.end(native, 1)]
        async with Server(*replies) as server:
            await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert "ERROR: away: the register is closed" in server.asked[1].body["messages"][-1]["content"]

    async def test_of_an_unforeseen_failure_only_the_kind_is_told(self, native):
        run = Run()
        run.trouble = RuntimeError("password=hunter2")
        replies = [self.turn(native, "crm.find", serial="A1"), self.end(native, 1)]
        async with Server(*replies) as server:
            await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert "hunter2" not in json.dumps(server.asked[1].body)
        assert "RuntimeError" in server.asked[1].body["messages"][-1]["content"]

    @pytest.mark.parametrize(
        ("tool", "arguments"),
        [("rm.everything", {}), ("crm.find", {"serial": 7}), ("crm.find", {"serial": "A", "x": 1})],
    )
    async def test_a_refused_call_breaks_the_contract(self, native, tool, arguments):
        """1.4: an undeclared tool or bad arguments."""
        run = Run()
        async with Server(self.turn(native, tool, **arguments)) as server:
            with pytest.raises(OutputSchemaValidationError) as caught:
                await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert run.looked == []
        assert caught.value.step_name == "read-mail"
        assert "everything" not in str(caught.value)
        assert caught.value.usage == USED

    async def test_allowed_tools_narrow_what_there_is(self, native):
        run = Run()
        async with Server(self.turn(native, "crm.open_ticket", serial="A1")) as server:
            with pytest.raises(OutputSchemaValidationError):
                await run(
                    lambda tools: ask(
                        executor(server, native=native), toolbox=tools, allowed_tools=["crm.find"]
                    )
                )
        assert run.opened == []
        assert "open_ticket" not in json.dumps(server.asked[0].body)

    async def test_a_repeated_query_is_remarked_on_and_then_its_tool_is_withdrawn(self, native):
        run = Run()
        again = [self.turn(native, "crm.find", f"x{n}", serial="A1") for n in range(3)]
        async with Server(*again, self.end(native, 1)) as server:
            result = await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert result.output == 1
        assert run.looked == [{"serial": "A1"}]
        for asked in server.asked[2:]:
            assert asked.body["messages"][-1]["content"].endswith(ALREADY)
        offered = [json.dumps(a.body["tools"] if native else a.body["response_format"]) for a in server.asked]
        name = "crm_find" if native else "crm.find"
        assert [name in tools for tools in offered] == [True, True, True, False]

    async def test_a_query_repeated_after_an_effect_shows_what_came_of_it(self, native):
        run = Run()
        turns = [
            self.turn(native, "crm.find", serial="A1"),
            self.turn(native, "crm.open_ticket", serial="A1"),
            self.turn(native, "crm.find", serial="A1"),
        ]
        async with Server(*turns, self.end(native, 1)) as server:
            await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert '"tickets": 1' in server.asked[3].body["messages"][-1]["content"]

    async def test_the_same_effect_called_twice_is_performed_twice(self, native):
        again = [self.turn(native, "crm.open_ticket", serial="A1") for _ in range(2)]
        run = Run()
        async with Server(*again, self.end(native, 1)) as server:
            await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert run.opened == ["A1", "A1"]
        assert '"ticket": "T-2"' in server.asked[2].body["messages"][-1]["content"]

    async def test_a_model_that_never_answers_is_stopped(self, native):
        turns = [self.turn(native, "crm.find", f"x{n}", serial=f"A{n}") for n in range(3)]
        run = Run()
        async with Server(*turns) as server:
            with pytest.raises(ExecutorError, match="within 3 turns") as caught:
                await run(lambda tools: ask(executor(server, native=native, max_turns=3), toolbox=tools))
        assert not caught.value.transient
        assert caught.value.usage == USED + USED + USED

    async def test_a_long_result_is_cut(self, native):
        run = Run()
        replies = [self.turn(native, "crm.find", serial="A" * 40_000), self.end(native, 1)]
        async with Server(*replies) as server:
            await run(lambda tools: ask(executor(server, native=native), toolbox=tools))
        assert "…[cut " in server.asked[1].body["messages"][-1]["content"]

    async def test_a_broken_answer_after_a_tool_tells_what_both_turns_cost(self, native):
        run = Run()
        async with Server(
            self.turn(native, "crm.find", serial="A1"), self.end(native, {"fault": 1})
        ) as server:
            with pytest.raises(OutputSchemaValidationError) as caught:
                await run(
                    lambda tools: ask(executor(server, native=native), toolbox=tools, output_schema=Report)
                )
        assert caught.value.usage == USED + USED


class TestToolsInWords:
    async def test_the_model_is_told_of_its_tools_and_held_to_them(self):
        async with Server(answering({"fault": True, "serial": "A1"})) as server:
            await Run()(
                lambda tools: ask(executor(server), toolbox=tools, output_schema=Report, instructions="Go.")
            )
        body = server.asked[0].body
        system = body["messages"][0]["content"]
        assert system.startswith("Go.")
        assert "crm.find: Find a device." in system
        assert "proposed" not in system
        assert "tools" not in body
        schema = body["response_format"]["json_schema"]["schema"]
        check_schema(schema)
        for fits in (
            {"tool": "crm.find", "arguments": {"serial": "A"}},
            {"answer": {"fault": True, "serial": "A"}},
        ):
            assert not misfits(fits, schema)
        for wrong in (
            {"tool": "other", "arguments": {}},
            {"tool": "crm.find", "arguments": {"x": 1}},
            {"answer": {"fault": 1}},
            {},
        ):
            assert misfits(wrong, schema)

    async def test_a_bare_answer_is_taken_too(self):
        async with Server(said('{"fault": true, "serial": "A1"}')) as server:
            result = await Run()(lambda tools: ask(executor(server), toolbox=tools, output_schema=Report))
        assert result.output == {"fault": True, "serial": "A1"}

    async def test_a_step_whose_output_is_called_answer_is_not_confused(self):
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
        async with Server(said('{"answer": "yes"}'), answering({"answer": "no"})) as server:
            made = executor(server)
            bare = await Run()(lambda tools: ask(made, toolbox=tools, output_schema=schema))
            wrapped = await Run()(lambda tools: ask(made, toolbox=tools, output_schema=schema))
        assert bare.output == {"answer": "yes"}
        assert wrapped.output == {"answer": "no"}

    def test_schemas_that_refer_to_themselves_still_find_what_they_mean(self):
        tree = {
            "$ref": "#/$defs/Tree",
            "$defs": {
                "Tree": {
                    "type": "object",
                    "properties": {"under": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
                    "required": ["under"],
                }
            },
        }
        tools = [AgentTool("grow", "query", "", tree), AgentTool("cut", "query", "", {"type": "object"})]
        schema = prompted_tools.alternatives(tools, tree)
        check_schema(schema)
        assert not misfits({"answer": {"under": [{"under": []}]}}, schema)
        assert not misfits({"tool": "grow", "arguments": {"under": [{"under": []}]}}, schema)
        assert misfits({"answer": {"under": [{"over": []}]}}, schema)
        assert misfits({"tool": "grow", "arguments": {"under": [1]}}, schema)

    @pytest.mark.parametrize(
        ("head", "is_call"),
        [
            ('{"tool"', True),
            (' { "tool" :', True),
            ('{"an', False),
            ("", None),
            ('{"to', None),
            ("Hello", False),
        ],
    )
    def test_a_call_is_recognised_as_early_as_can_be(self, head, is_call):
        assert prompted_tools.calls(head) is is_call


class TestNativeTools:
    async def test_two_calls_in_one_turn_are_both_answered(self):
        calls = [("x", "crm_find", {"serial": "A1"}), ("y", "crm_find", {"serial": "B2"})]
        run = Run()
        async with Server(answer(chat(None, calls)), said("1")) as server:
            await run(lambda tools: ask(executor(server, native=True), toolbox=tools))
        assert run.looked == [{"serial": "A1"}, {"serial": "B2"}]
        *_, asked, first, second = server.asked[1].body["messages"]
        ids = [call["id"] for call in asked["tool_calls"]]
        assert [first["tool_call_id"], second["tool_call_id"]] == ids
        assert ('"A1"' in first["content"], '"B2"' in second["content"]) == (True, True)

    async def test_a_call_where_no_tool_is_given_breaks_the_contract(self):
        async with Server(answer(chat(None, [("x", "crm_find", {})]))) as server:
            with pytest.raises(OutputSchemaValidationError) as caught:
                await ask(executor(server, native=True))
        assert caught.value.usage == USED

    async def test_arguments_that_cannot_be_read_name_the_step(self):
        async with Server(answer(chat(None, [("x", "crm_find", "{")]))) as server:
            with pytest.raises(OutputSchemaValidationError) as caught:
                await Run()(lambda tools: ask(executor(server, native=True), toolbox=tools))
        assert caught.value.step_name == "read-mail"
        assert "'read-mail'" in str(caught.value)
        assert caught.value.usage == USED


def test_the_usage_these_tests_speak_of():
    assert (USAGE["prompt_tokens"], USAGE["completion_tokens"]) == (USED.input_tokens, USED.output_tokens)
