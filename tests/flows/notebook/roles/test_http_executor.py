"""Roles behind HTTP (N-112, N-97): real requests to a service on a loopback port."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from detent.adapters.models.scripted import ScriptedSource
from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.conversation import Message
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.dispatch.executor import ReplyRequest, converses
from detent.dispatch.executor_errors import ExecutorError, MisconfiguredError
from detent.engine.engine import Engine
from detent.flows.notebook.flow import NotebookFlow
from detent.flows.notebook.history import transitions
from detent.flows.notebook.payloads.canonical import canonical
from detent.flows.notebook.payloads.kinds import KINDS
from detent.flows.notebook.payloads.plain import to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample
from detent.flows.notebook.roles.http_executor import PATHS, HttpRoleExecutor, make, request_of
from detent.flows.notebook.roles.request import rendered
from detent.flows.notebook.run_view import RunOptions
from detent.flows.notebook.settings import NotebookSettings
from detent.flows.notebook.start import Beginning, start_notebook
from detent.flows.notebook.state.machine import NotebookState
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


STAGES = """<stages><remaining>
<stage id="mean_model" title="A mean as the model">
  <goal>Predict by the mean. Artifacts: final_model, test_performance. Acceptance: final_model > 0</goal>
  <verified_artifacts><variable name="final_model"/><variable name="test_performance"/></verified_artifacts>
</stage></remaining></stages>"""
"""A plan of one stage. Its comparison is not escaped, as models write it."""
STEPS = """<steps><step id="take_mean" title="Take and score the mean">
  <goal>Take it. Artifacts: final_model, test_performance. Acceptance: final_model > 1</goal>
  <verified_artifacts><variable name="final_model"/><variable name="test_performance"/></verified_artifacts>
  <pcs_considerations><predictability>none</predictability><computability>one line</computability>
    <stability>it is constant</stability></pcs_considerations>
</step></steps>"""
BEHAVIOR = """<behavior id="take_mean_b1" step_id="take_mean">
  <agent>Model</agent><task>Take the mean.</task>
  <outputs><artifact name="final_model"/></outputs>
  <acceptance><criterion>final_model == 2.0</criterion></acceptance>
</behavior>"""


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


@pytest.mark.slow
async def test_a_run_takes_its_plan_and_its_cells_from_a_service(tmp_path):
    """N-91, N-112: the same visit as with a model, here until the first cells have run."""
    table = tmp_path / "houses.csv"
    rows = "".join(f"{n % 17 + 0.5},{n % 5},{900 * (n % 17) + n % 7}\n" for n in range(60))
    table.write_text(f"area,rooms,price\n{rows}")
    config = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER)
    lines = [
        {"action": "add", "content": "Take a mean."},
        {"action": "add", "shot_type": "action", "content": "final_model = 2.0\nprint('mean', final_model)"},
        {"action": "exec", "codecell_id": "lastAddedCellId"},
    ]
    replies = [
        raw(STAGES.encode()),
        raw(STEPS.encode()),
        raw(BEHAVIOR.encode()),
        stream([f"{json.dumps(line)}\n".encode() for line in lines]),
        answer({"actions": [{"action": "add", "content": "The mean was taken."}]}),
    ]
    async with Server(*replies) as server:
        executor = HttpRoleExecutor(server.url)
        roles = ("stage_planner", "step_planner", "behavior_arranger", "action_generator")
        dispatch = DispatchSettings(
            steps={f"notebook/{role}": config for role in roles},
            executors=ScriptedSource(executor),
            evidence=EvidenceRules(audit=ByLevel(0.0, 0.0), recheck=0),
        )
        store = SQLiteStore(tmp_path / "runs.db")
        async with Engine(store, [NotebookFlow(NotebookSettings())], dispatch=dispatch) as engine:
            started = Beginning("Predict price", [table], tmp_path / "work", options=RunOptions(verify=False))
            run_id = await start_notebook(engine, started, drive=False)
            await engine.finish(run_id, stop_at=NotebookState.BEHAVIOR_COMPLETED)
            moves = [move async for move in transitions(engine.store, run_id)]
            await engine.cancel(run_id)
        await executor.close()
    assert [asked.path for asked in server.asked] == [*["/planning"] * 3, *["/generating"] * 2]
    assert "mean 2.0" in json.dumps(server.asked[-1].body)
    assert moves[-1].to == "BEHAVIOR_COMPLETED"
    assert moves[-1].state["state"]["variables"]["final_model"] == 2.0
