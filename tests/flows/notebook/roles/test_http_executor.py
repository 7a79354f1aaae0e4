"""Roles behind HTTP (N-112, N-97): real requests to a service on a loopback port."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from detent.dispatch.conversation import Message
from detent.dispatch.executor import ReplyRequest, converses
from detent.dispatch.executor_errors import ExecutorError, MisconfiguredError
from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.kinds import KINDS
from detent.flows.notebook.payloads.plain import to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from detent.flows.notebook.roles.http_executor import PATHS, HttpRoleExecutor, make, request_of
from detent.flows.notebook.roles.request import rendered
from detent.kernel.errors import ConfigurationError
from tests.adapters.models.server import Server, answer, drop, raw, stall, stream
from tests.flows.notebook.payloads.test_json_actions import ACTIONS, ITEMS, JSON_LINES, XML

STATE = {"variables": {"user_problem": "RMSE < 25000"}, "FSM": {"state": "BEHAVIOR_RUNNING"}}
OBSERVATION = {"location": {"current": {"stage_id": "a", "step_id": "b"}}}
NOTEBOOK = "[ab12cd34 code]\nx = 1\n\nSTATE\n{}\n\nMESSAGES\nnot this\n"
REQUEST = {
    "role": "action_generator",
    "observation": OBSERVATION,
    "state": STATE,
    "notebook": NOTEBOOK,
    "behavior_feedback": {"actions_executed": 2},
    "messages": ["from pcs"],
}
PROMPT = rendered(REQUEST)
"""As the roles of the flow show it."""


def request(step: str = "notebook/action_generator", *messages: Message, on_event=None) -> ReplyRequest:
    given = messages or (Message("system", "Write actions."), Message("user", PROMPT))
    return ReplyRequest(step, "dispatch", given, event_callback=on_event)


async def text_of(
    server: Server, step: str = "notebook/action_generator", *, on_event=None, **options
) -> str:
    executor = HttpRoleExecutor(server.url, **options)
    try:
        return (await executor.reply(request(step, on_event=on_event))).text
    finally:
        await executor.close()


@pytest.mark.parametrize(("role", "path"), PATHS.items())
async def test_each_role_is_asked_at_its_path_and_its_payload_comes_back(role, path):
    kind = KINDS[list(PATHS).index(role)]
    async with Server(raw(sample(kind).encode())) as server:
        text = await text_of(server, f"notebook/{role}")
    assert canonical(read_payload(text, expected=kind).value) == sample(kind)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", path)


async def test_the_body_has_the_state_the_notebook_and_what_went_wrong_before():
    async with Server(raw(XML.encode())) as server:
        await text_of(server)
    body = server.asked[0].body
    assert body == {**REQUEST, "instructions": "Write actions.", "options": {"stream": False}}
    assert server.asked[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "reply",
    [
        raw(XML.encode(), headers={"content-type": "application/xml"}),
        raw(f"Here:\n```xml\n{XML}\n```".encode()),
        answer({"actions": ITEMS}),
        answer([{"action": item} for item in ITEMS]),
        answer(to_plain(ACTIONS)),
        raw(JSON_LINES.encode()),
        stream([f"{line}\n".encode() for line in JSON_LINES.split("\n")]),
        stream([f'{{"action": {line}}}\n'.encode() for line in JSON_LINES.split("\n")]),
        stream([f"data: {line}\n\n".encode() for line in JSON_LINES.split("\n")]),
        stream([XML.encode()[at : at + 7] for at in range(0, len(XML.encode()), 7)]),
    ],
    ids=["xml", "fenced", "object", "array", "plain", "lines", "streamed", "wrapped", "events", "pieces"],
)
async def test_every_form_of_an_answer_reads_into_the_same_actions(reply):
    """N-112."""
    async with Server(reply) as server:
        assert read_payload(await text_of(server), expected="T4").value == ACTIONS


async def test_whole_lines_are_streamed_as_they_come():
    gate = asyncio.Event()
    lines = [f"{line}\n".encode() for line in JSON_LINES.split("\n")]
    chunks: list[str] = []

    async def on_event(chunk):
        chunks.append(chunk.text)
        gate.set()  # the service writes its second line only when the first one was seen

    async with Server(stream([lines[0], b"".join(lines[1:])], gates={1: gate})) as server:
        text = await text_of(server, on_event=on_event)
    assert "".join(chunks) == text
    assert chunks[0] == lines[0].decode()
    assert server.asked[0].body["options"] == {"stream": True}


async def test_turns_of_the_visit_follow_the_request():
    async with Server(raw(XML.encode())) as server:
        executor = HttpRoleExecutor(server.url)
        messages = (
            Message("user", PROMPT),
            Message("assistant", XML),
            Message("user", "effects.current\n(2930, 82)"),
        )
        await executor.reply(request("notebook/action_generator", *messages))
        await executor.close()
    body = server.asked[0].body
    assert [turn["role"] for turn in body["turns"]] == ["assistant", "user"]
    assert body["turns"][1]["content"] == "effects.current\n(2930, 82)"


async def test_a_caller_with_only_a_prompt():
    async with Server(raw(sample("T1").encode()), raw(sample("T1").encode())) as server:
        executor = HttpRoleExecutor(server.url)
        for prompt in ({"observation": {}}, "Plan this."):
            result = await executor.execute(step_name="notebook/stage_planner", agent_name="a", prompt=prompt)
            assert result.success
            assert result.output == sample("T1")
        await executor.close()
    assert server.asked[0].body["observation"] == {}
    assert server.asked[1].body["prompt"] == "Plan this."
    assert converses(executor)


class TestFailures:
    @pytest.mark.parametrize(
        ("reply", "transient"),
        [
            (answer({"error": "busy"}, 503, {"retry-after": "7"}), True),
            (answer({"error": "slow down"}, 429, {"retry-after": "7"}), True),
            (answer({"detail": "no"}, 400), False),
            (raw(b"<html>", 500), True),
            (drop, True),
            (raw(XML.encode()[:40], missing=900), True),
            (stream([XML.encode()[:40]], ending="dies"), True),
            (raw(b"\xff\xfe\x00"), False),
            (raw(b"x" * 5_000_000), False),
        ],
        ids=["503", "429", "400", "500", "dropped", "short", "dies", "bytes", "large"],
    )
    async def test_a_service_that_fails_raises_and_says_whether_to_try_again(self, reply, transient):
        async with Server(reply) as server:
            with pytest.raises(ExecutorError) as caught:
                await text_of(server)
        assert caught.value.transient is transient
        assert caught.value.retry_after in (None, 7.0)

    @pytest.mark.parametrize("status", [401, 403, 404])
    async def test_a_setting_that_a_person_must_mend(self, status):
        async with Server(answer({"error": "no"}, status)) as server:
            with pytest.raises(MisconfiguredError):
                await text_of(server)

    async def test_an_answer_that_never_comes(self):
        async with Server(stall) as server:
            with pytest.raises(ExecutorError) as caught:
                await text_of(server, answer_timeout=0.2)
        assert caught.value.transient

    async def test_nobody_listens(self):
        async with Server() as server:
            pass
        with pytest.raises(ExecutorError) as caught:
            await text_of(server)
        assert caught.value.transient

    async def test_a_step_that_is_no_role_is_never_sent(self):
        async with Server() as server:
            with pytest.raises(MisconfiguredError):
                await text_of(server, "workflow/release/notes")
        assert server.asked == []

    async def test_the_question_and_the_key_are_not_repeated_in_messages(self, monkeypatch):
        monkeypatch.setenv("NOTEBOOK_KEY", "s3cret-key")
        async with Server(answer({"error": "s3cret-key: user_problem RMSE < 25000 refused"}, 400)) as server:
            with pytest.raises(ExecutorError) as caught:
                await text_of(server, api_key_env="NOTEBOOK_KEY")
        assert server.asked[0].headers["authorization"] == "Bearer s3cret-key"
        assert "s3cret" not in str(caught.value)
        assert "25000" not in str(caught.value)


class TestSettings:
    def test_options(self, monkeypatch):
        executor = make({"base_url": "http://127.0.0.1:9/v1/", "timeout": 3}, folder=Path())
        assert executor.base_url == "http://127.0.0.1:9/v1"
        assert executor.available().ok
        monkeypatch.delenv("NOTEBOOK_KEY", raising=False)
        keyed = make({"base_url": "http://127.0.0.1:9", "api_key_env": "NOTEBOOK_KEY"}, folder=Path())
        assert not keyed.available().ok

    @pytest.mark.parametrize(
        "options",
        [{}, {"base_url": "ftp://x"}, {"base_url": 3}, {"base_url": "http://x", "timeout": 0},
         {"base_url": "http://x", "adress": "y"}],
    )  # fmt: skip
    def test_wrong_ones_are_refused(self, options):
        with pytest.raises(ConfigurationError):
            make(options, folder=Path())


def test_requests_of_other_forms():
    assert request_of('{"observation": 1}') == {"observation": 1}
    assert request_of("[1]") == {"prompt": "[1]"}
    assert request_of("ROLE\nx\n\nNOTEBOOK\n") == {"prompt": "ROLE\nx\n\nNOTEBOOK\n"}
    for kept in (4, 5, 6):
        request = dict(list(REQUEST.items())[:kept])
        assert request_of(rendered(request)) == request
