"""Servers that refuse what others accept: the order and ids of messages, open calls, long requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.adapters.models import claude, local, openai, pydantic_ai
from detent.adapters.models.executor import ModelStepExecutor
from detent.adapters.models.http_common import too_long
from detent.adapters.models.model import ModelRequest
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.conversation import Message
from detent.engine.engine import Engine
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.entries import Moved
from detent.kernel.errors import ConfigurationError, StoreUnavailable
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.adapters.models import strict
from tests.adapters.models.server import Server, said, stream
from tests.adapters.models.test_acting_over_http import (
    BOTH,
    DONE,
    Silence,
    Visit,
    calling,
    committing,
    conclusion,
    decision,
    finished,
    model,
    started_and_stopped,
)
from tests.adapters.models.test_claude import block, closing, event, opening, refusal, text
from tests.dispatch.samples import INTENT, agent, settings, single
from tests.dispatch.test_acting import World, running
from tests.dispatch.test_acting_crashes import Mill, gone, milling


class TestNotes:
    """A question behind results stands where every server accepts it."""

    async def test_what_is_missing_is_asked_for_behind_the_results(self):
        commits: list[str] = []
        replies = [calling(("git_commit", {"message": "Fix it"})), said('{"summary": "It is fixed."}')]
        async with Server(*replies, refuses=strict.mistral) as server:
            run, _ = await finished(committing(commits), model(server))
        assert (run.data, server.refused) == ({"sha": "real", "summary": "It is fixed."}, 0)
        last = server.asked[1].body["messages"][-1]
        assert last["role"] == "tool"
        result, blank, question = last["content"].partition("\n\nMISSING\n")
        assert (json.loads(result), bool(blank)) == ({"sha": "real", "branch": "main"}, True)
        assert '"summary"' in question

    async def test_problems_of_an_answer_are_told_in_a_message_of_their_own(self):
        replies = [
            calling(("read", {})),
            said('{"exit_code": "none"}'),
            said('{"exit_code": 0, "stdout": ""}'),
        ]
        flow = running(World(), side=AgentSide(rounds=1, may_abstain=True))
        async with Server(*replies, refuses=strict.mistral) as server:
            run, _ = await finished(flow, model(server))
        assert (run.data, server.refused) == ({"exit_code": 0, "stdout": ""}, 0)
        assert server.asked[2].body["messages"][-1]["role"] == "user"

    async def test_two_questions_in_a_row_are_one(self):
        async with Server(said("yes"), refuses=strict.mistral) as server:
            made = openai.connect({"base_url": f"{server.url}/v1", "model_id": "m"}, kind="vllm")
            await made.complete(_request(Message("user", "One."), Message("user", "Two.")))
        assert server.asked[0].body["messages"] == [{"role": "user", "content": "One.\n\nTwo."}]


def _request(*messages: Message) -> Any:
    return ModelRequest(messages)


# -- interrupted --------------------------------------------------------------------------------------------


RYE: tuple[str, Any] = ("grind", {"what": "rye"})
OATS: tuple[str, Any] = ("grind", {"what": "oats"})
LOOK: tuple[str, Any] = ("look", {})


def turns() -> list[Any]:
    """Queries, effects and refused calls, alone and mixed, and a conclusion."""
    return [
        calling(LOOK, RYE, ("deploy", {})),
        calling(OATS),
        calling(LOOK),
        calling(RYE, RYE),
        said('{"number": 99, "remark": "fine"}'),
    ]


class TestInterrupted:
    """After an interruption in any gap, a strict server accepts what it is sent next."""

    async def test_killed_at_every_commit(self):
        counted = CrashPoints()
        store = counted.store(MemoryStore())
        async with Server(*turns(), refuses=strict.mistral) as server:
            dispatch = settings(model(server), agent("approver"))
            async with Engine(store, [milling(Mill("probed"))], dispatch=dispatch) as engine:
                quiet = await engine.run("flow", {}, run_id="r1")
        bodies = [asked.body for asked in server.asked]
        assert (quiet.status, server.refused, len(bodies)) == (Status.SUCCEEDED, 0, 5)
        for number in range(2, counted.commits + 1):
            for when in ("before", "after"):
                await self._killed(CrashPoint(number, when), bodies)  # type: ignore[arg-type]

    async def _killed(self, point: CrashPoint, bodies: list[Any]) -> None:
        mill, store = Mill("probed"), MemoryStore()
        replies = {json.dumps(body): reply for body, reply in zip(bodies, turns(), strict=True)}
        # The same request is given the same reply, however often it is made.
        async with Server(
            refuses=lambda body: strict.mistral(body) or replies.get(json.dumps(body))
        ) as server:
            points = CrashPoints([point], strike=gone)
            with pytest.raises(StoreUnavailable):
                dispatch = settings(model(server), agent("approver"))
                async with Engine(points.store(store), [milling(mill)], dispatch=dispatch) as engine:
                    await engine.run("flow", {}, run_id="r1")
            before = len(server.asked)
            run, _ = await finished(milling(mill), model(server), store=store)
            assert (run.status, mill.ground) == (Status.SUCCEEDED, ["rye", "oats", "rye", "rye"]), point
            assert all(asked.body in bodies for asked in server.asked), point
            assert len(server.asked) - before <= len(bodies), point

    @pytest.mark.parametrize("number", range(5))
    async def test_stopped_while_the_model_is_silent(self, number):
        mill, store, silence = Mill("probed"), MemoryStore(), Silence()
        replies = turns()
        replies.insert(number, silence)
        async with Server(*replies, refuses=strict.mistral) as server:
            await started_and_stopped(milling(mill), model(server), store, silence)
            run, _ = await finished(milling(mill), model(server), store=store)
        assert (run.status, server.refused) == (Status.SUCCEEDED, 0)
        assert mill.ground == ["rye", "oats", "rye", "rye"]
        assert server.asked[number].body == server.asked[number + 1].body

    @pytest.mark.parametrize("answer_", ["no", "yes"])
    async def test_a_person_decides_in_the_middle(self, answer_):
        """Each call has its result, also one that a person has denied."""
        world, store = World(), MemoryStore()
        flow = running(world, side=AgentSide(rounds=5, confirm=lambda effect: "Really?"))
        replies = [
            calling(("read", {}), ("write", {"text": "a"})),
            calling(("read", {})),
            said(json.dumps(DONE)),
        ]
        async with Server(*replies, refuses=strict.mistral) as server:
            dispatch = settings(model(server), agent("approver"))
            async with Engine(store, [flow], dispatch=dispatch) as engine:
                run = await engine.run("flow", {}, run_id="r1")
                assert run.status is Status.WAITING
                (name,) = run.holds
                hold = run.token(name)
            async with Engine(store, [flow], dispatch=dispatch) as engine:
                await engine.release("r1", answer_, hold=hold)
                run = await engine.finish("r1")
        assert (server.refused, "write a" in world.ran) == (0, answer_ == "yes")
        assert len(server.asked) >= 3
        assert strict.calls_answered(server.asked[-1].body) is None


# -- too long -----------------------------------------------------------------------------------------------

TOO_LONG = [
    (400, "context_length_exceeded", "This model's maximum context length is 8192 tokens. However, you "
     "requested 9000 tokens (8000 in the messages, 1000 in the completion)."),
    (400, "BadRequestError 400", "This model's maximum context length is 8192 tokens. However, your request "
     "has 9000 input tokens. Please reduce the length of the input messages."),
    (400, "", "The prompt (total length 25938) is too long to fit into the model (context length 4096)."),
    (400, "exceed_context_size_error", "the request exceeds the available context size, try increasing it"),
    (500, "exceed_context_size_error", "the request exceeds the available context size."),
    (400, "invalid_request_error", "Prompt contains 300000 tokens, too large for model with 131072 maximum "
     "context length"),
    (400, "invalid_request_error", "prompt is too long: 208732 tokens > 200000 maximum"),
    (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 150000 + 64000 > "
     "200000, decrease input length or `max_tokens` and try again"),
    (400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens."),
    (413, "request_too_large", "Request exceeds the maximum size"),
    (422, "", "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens"),
]  # fmt: skip
NOT_TOO_LONG = [
    (400, "invalid_request_error", "Unsupported value: 'temperature' does not support 0 with this model."),
    (400, "", "max_tokens is too large: 40000. This model supports at most 16384 completion tokens"),
    (429, "rate_limit_exceeded", "Request too large: limit of tokens per minute"),
    (401, "", "context length"),
    (400, "", "Unexpected role 'user' after role 'tool'"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "code", "message"), TOO_LONG)
def test_servers_say_in_many_ways_that_a_request_is_too_long(status, code, message):
    assert too_long(status, message, code)


@pytest.mark.parametrize(("status", "code", "message"), NOT_TOO_LONG)
def test_other_refusals_are_about_something_else(status, code, message):
    assert not too_long(status, message, code)


def paging() -> Any:
    """A flow of one step that reads long pages."""

    def read(page: int) -> str:
        return f"page {page} " + "x" * 3000

    step = Step("work", lambda ctx: {"pages": 0}, INTENT, queries=("read",), inputs=())
    return single(step, tools=[Tool("read", read, "query")])


PAGES = 8


class TestTooLong:
    @BOTH
    @pytest.mark.parametrize(("status", "code", "message"), [TOO_LONG[0], TOO_LONG[4]])
    async def test_half_is_sent_and_no_attempt_is_used_up(self, native, status, code, message):
        replies = [decision(native, "read", page=page) for page in range(PAGES)]
        ending = conclusion(native, {"pages": PAGES})
        refuses = strict.too_long(20_000, message, status, code=code)
        async with Server(*replies, ending, refuses=refuses) as server:
            done = Visit(server, *await finished(paging(), model(server, native=native)))
        assert done.run.data == {"pages": PAGES}
        assert (done.result.attempts, server.refused) == (1, len(server.asked) - PAGES - 1)
        assert server.refused > 0
        (moved,) = [entry.body for entry in done.entries if isinstance(entry.body, Moved)]
        assert moved.detail["left_out"]["results"] > 0

    async def test_a_second_refusal_falls_back(self):
        replies = [calling(("read", {"page": page})) for page in range(PAGES)]
        long = strict.too_long(20_000, "prompt is too long: 208732 tokens > 200000 maximum")
        refused: list[Any] = []

        def refuses(body: Any) -> Any:
            refusal = long(body) or (refused[0] if refused else None)
            refused.extend([refusal] if refusal else [])
            return refusal

        async with Server(*replies, refuses=refuses) as server:
            done = Visit(server, *await finished(paging(), model(server)))
        assert done.run.data == {"pages": 0}
        assert (done.result.fallback_reason, server.refused) == (FallbackReason.EXCEPTION, 2)
        assert "RequestTooLongError" in repr(done.result)

    async def test_with_a_limit_nothing_is_refused(self):
        replies = [calling(("read", {"page": page})) for page in range(PAGES)]
        refuses = strict.too_long(20_000, "prompt is too long")
        async with Server(*replies, said(json.dumps({"pages": PAGES})), refuses=refuses) as server:
            options = {"base_url": f"{server.url}/v1", "model_id": "m-1", "native_tools": True}
            executor = ModelStepExecutor(openai.connect({**options, "context_tokens": 9000}, kind="vllm"))
            done = Visit(server, *await finished(paging(), executor))
        assert (done.run.data, server.refused) == ({"pages": PAGES}, 0)
        assert strict.calls_answered(server.asked[-1].body) is None

    async def test_claude_is_sent_half(self, monkeypatch):
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-fake")

        def using(page: int) -> Any:
            start = {"type": "tool_use", "id": "toolu_0", "name": "read", "input": {}}
            arguments = {"type": "input_json_delta", "partial_json": json.dumps({"page": page})}
            return stream([opening(), *block(0, start, arguments), *_ending("tool_use")])

        final = [opening(), *block(0, text(""), {"type": "text_delta", "text": '{"pages": 8}'}), *closing()]

        def refuses(body: Any) -> Any:
            if len(json.dumps(body["messages"])) <= 20_000:
                return None
            return refusal(400, "invalid_request_error", "prompt is too long: 208732 tokens > 200000 maximum")

        async with Server(*map(using, range(PAGES)), stream(final), refuses=refuses) as server:
            executor = ModelStepExecutor(claude.connect({"base_url": server.url}))
            done = Visit(server, *await finished(paging(), executor))
        assert (done.run.data, done.result.attempts) == ({"pages": PAGES}, 1)
        assert server.refused > 0

    async def test_a_caller_that_has_only_a_prompt_is_served_as_well(self):
        """`execute` runs the whole conversation itself."""
        replies = [calling(("read", {"page": page})) for page in range(PAGES)]
        refuses = strict.too_long(20_000, "prompt is too long")
        async with Server(*replies, said(json.dumps({"pages": PAGES})), refuses=refuses) as server:
            executor = model(server)

            class Alone:
                async def execute(self, **options: Any) -> Any:
                    return await executor.execute(**options)

                def available(self) -> Any:
                    return executor.available()

            run, _ = await finished(paging(), Alone())
        assert run.data == {"pages": PAGES}
        assert server.refused > 0


def _ending(stop: str) -> list[bytes]:
    return [
        event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 20}),
        event("message_stop"),
    ]


# -- settings -----------------------------------------------------------------------------------------------


class TestContextTokens:
    @pytest.mark.parametrize(
        ("connect", "options", "kind"),
        [
            (openai.connect, {"model_id": "m"}, "openai"),
            (openai.connect, {"model_id": "m"}, "ollama"),
            (openai.connect, {}, "llamacpp"),
            (claude.connect, {}, "claude"),
            (pydantic_ai.connect, {"model": "anthropic:claude-haiku-5-5"}, "pydantic-ai"),
        ],
    )
    def test_every_kind_knows_it(self, connect, options, kind):
        executor = ModelStepExecutor(connect({**options, "context_tokens": 5000}, kind=kind))
        assert executor.context_tokens == 5000
        assert ModelStepExecutor(connect(options, kind=kind)).context_tokens is None
        for wrong in (0, -1, "many", True):
            with pytest.raises(ConfigurationError, match="context_tokens"):
                connect({**options, "context_tokens": wrong}, kind=kind)

    def test_a_local_model_knows_its_own(self):
        assert ModelStepExecutor(local.connect({})).context_tokens == local.CONTEXT
        assert ModelStepExecutor(local.connect({"context": 2048})).context_tokens == 2048
        assert ModelStepExecutor(local.connect({"context_tokens": 1000})).context_tokens == 1000
        assert ModelStepExecutor(local.connect({"context_tokens": 99_000})).context_tokens == local.CONTEXT
