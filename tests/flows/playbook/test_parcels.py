"""A stranger's playbook of three files, without a line of Python."""

from __future__ import annotations

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.flows.playbook.checks import check_playbook
from detent.flows.playbook.flow import playbook_flow
from detent.flows.playbook.history import response_text, step_history
from detent.insight.visits import function_calls, visits
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from tests.flows.playbook.bench import PARCELS, drive, path_of, refused


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")


def test_it_has_no_problems(world):
    """W-64: checked."""
    assert check_playbook(PARCELS, tools={tool.name: tool for tool in world.tools()}) == []
    assert check_playbook(PARCELS, tools=["lookup", "send_email"]) == []


@pytest.mark.parametrize(
    ("order", "second", "reason", "words"),
    [
        ("A-1", "02-tell-delay", "delayed", "is late. We expect it on 2026-04-02"),
        ("A-2", "03-tell-arrival", "on its way", "arrives on 2026-03-12"),
        ("A-3", "02-tell-delay", "delayed", "was lost on its way"),
    ],
)
async def test_it_runs(world, store, order, second, reason, words):
    """W-01, W-64: from the first file along the edges whose conditions hold, until DONE."""
    flow = playbook_flow(PARCELS, tools=world.tools())
    run, entries = await drive(flow, {"order": order, "customer": "a@b.example"}, store=store)
    assert run.status is Status.SUCCEEDED
    assert path_of(entries) == ["01-find-parcel", second, "DONE"]
    assert visits(entries)[0].reason == reason
    (letter,) = world.sent
    assert letter["to"] == "a@b.example"
    assert letter["subject"] == f"Your order {order}"
    assert words in letter["body"]
    assert run.data["message_id"] == "m1"


async def test_its_history_says_what_each_step_was_given_and_gave(world):
    """W-03, W-05, W-06: exactly the needs, the changes, the calls."""
    flow = playbook_flow(PARCELS, tools=world.tools())
    _, entries = await drive(flow, {"order": "A-1", "customer": "a@b.example"})
    first, second = step_history(entries, playbook=flow.playbook, hashed=("customer",))
    parcel = {"state": "late", "day": "2026-04-02"}
    asked = {"table": "parcels.csv", "key": "order", "value": "A-1"}
    assert first == (
        "01-find-parcel",
        {"order": "A-1"},
        {
            "parcel": parcel,
            "function_calls": [
                {"function_name": "lookup", "arguments": asked, "success": True, "result": parcel}
            ],
        },
        "02-tell-delay",
    )
    assert second[0] == "02-tell-delay"
    assert set(second[1]) == {"order", "customer", "parcel"}
    assert set(second[1]["customer"]) == {"$hash"}
    assert second[2]["message_id"] == "m1"
    assert second[3] == "DONE"
    look, send = function_calls(entries)
    assert (look.kind, look.step_name, look.attempts) == ("query", "01-find-parcel", 1)
    assert (send.kind, send.result["message_id"]) == ("effect", "m1")
    assert send.execution_time_ms is not None
    assert send.arguments["subject"] == "Your order A-1"


async def test_its_steps_can_be_told_in_the_lines_of_the_protocol(world):
    flow = playbook_flow(PARCELS, tools=world.tools())
    _, entries = await drive(flow, {"order": "A-2", "customer": "a@b.example"})
    first, second = (response_text(visit, flow.playbook) for visit in visits(entries))
    assert first.split("\n") == [
        "REASON: on its way",
        'CALL: lookup {"key": "order", "table": "parcels.csv", "value": "A-2"}',
        'RESULT: {"day": "2026-03-12", "state": "moving"}',
        "NEXT_STEP: 03-tell-arrival",
    ]
    assert "BODY: Good morning,\n\nyour order A-2 arrives" in second
    assert second.endswith("NEXT_STEP: DONE")


async def test_an_order_nobody_knows_ends_degraded(world):
    """No edge holds, so nothing is chosen: the run ends where a person sees it."""
    flow = playbook_flow(PARCELS, tools=world.tools())
    run, entries = await drive(flow, {"order": "A-9", "customer": "a@b.example"})
    assert (run.status, run.reason) == (Status.DEGRADED, "no_edge")
    assert path_of(entries) == ["01-find-parcel", "graceful-degradation"]
    assert not world.sent


async def test_a_query_that_fails_for_good_is_an_answer(world):
    world.faults["lookup"] = [refused("server")]
    flow = playbook_flow(PARCELS, tools=world.tools())
    run, _ = await drive(flow, {"order": "A-1", "customer": "a@b.example"})
    assert run.data["parcel"] == {"error": {"code": "server", "message": "server", "transient": False}}
    assert (run.status, run.reason) == (Status.DEGRADED, "no_edge")


async def test_input_that_does_not_fit_the_manifest_is_refused(world):
    flow = playbook_flow(PARCELS, tools=world.tools())
    with pytest.raises(ConfigurationError, match="missing: customer"):
        await drive(flow, {"order": "A-1"})
