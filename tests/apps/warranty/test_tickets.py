"""`create_ticket`: one suite on SQLite and on a CRM, then doubt, crowds and what is each one's own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from detent import Effect, Engine, Flow, Machine, Outcome, Status
from detent.adapters.crm.faults import CrmFault
from detent.apps.warranty.tools.crm import CrmTickets
from detent.apps.warranty.tools.database import Database, DatabaseError
from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.tools.tickets import Tickets, create_ticket_tool, ticket_key
from detent.engine.tools import NOT_DONE, Tool, ToolError
from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import RetryPolicy
from detent.stores import MemoryStore
from tests.adapters.crm.server import act_and_drop, drop
from tests.apps.warranty.conftest import NOW

ARGS = {
    "serial_number": "SN48213",
    "customer_email": "maren@holt-bakery.example",
    "issue_description": "It feeds two labels at once.",
    "priority": "normal",
    "category": "warranty-repair",
    "warranty_status": "valid",
    "subject": "Kestrel K200: SN48213",
    "source_message_id": "<m1@holt-bakery.example>",
}
NO_WAIT = RetryPolicy(3, 0, 0)
WORKER = Path(__file__).with_name("ticket_worker.py")


def tool_of(place: Any, **crm: Any) -> Tool:
    return create_ticket_tool(place.handlers(**crm), retry=NO_WAIT)


async def run_of(tool: Tool, **args: Any) -> Any:
    """The run of a flow whose one step wants a ticket."""
    flow = Flow(
        Machine("f", start="open", moves={"open": ["end"]}, ends=["end"]),
        {"open": lambda ctx: Outcome(effects=[Effect("create_ticket", {**ARGS, **args})])},
        tools=[tool],
    )
    async with Engine(MemoryStore(), [flow]) as engine:
        return await engine.run("f")


class TestEveryDesk:
    """W-45"""

    async def test_a_ticket_is_opened_and_has_a_receipt(self, place):
        receipt = await tool_of(place).perform(**ARGS)
        assert receipt == {
            "ticket_id": "TKT-10001",
            "status": "created",
            "created_at": "2026-03-10T08:15:00Z",
        }

    async def test_the_next_thread_gets_the_next_ticket(self, place):
        tool = tool_of(place)
        await tool.perform(**ARGS)
        other = await tool.perform(**{**ARGS, "source_message_id": "<m2@holt-bakery.example>"})
        assert (other["ticket_id"], other["status"]) == ("TKT-10002", "created")

    async def test_a_follow_up_in_the_thread_gets_the_same_ticket(self, place):
        tool = tool_of(place)
        first = await tool.perform(**ARGS)
        more = {"source_message_id": "<m2@x.example>", "thread_root": "<m1@holt-bakery.example>"}
        again = {"serial_number": "sn-48213", "customer_email": "Maren@Holt-Bakery.example"}
        second = await tool.perform(**{**ARGS, **more, **again})
        assert second == {**first, "status": "existing"}
        assert await place.count() == 1

    async def test_another_device_or_customer_in_the_thread_gets_another(self, place):
        tool = tool_of(place)
        for change in ({}, {"serial_number": "SN48214"}, {"customer_email": "jo@holt-bakery.example"}):
            await tool.perform(**{**ARGS, **change})
        assert await place.count() == 3

    async def test_what_happened_can_be_found_out(self, place):
        """5.5"""
        tool = tool_of(place)
        assert tool.probe is not None
        assert await tool.probe(**ARGS) is NOT_DONE
        receipt = await tool.perform(**ARGS)
        assert await tool.probe(**ARGS) == receipt
        more = {"source_message_id": "<m2@x.example>", "thread_root": "<m1@holt-bakery.example>"}
        assert (await tool.probe(**{**ARGS, **more}))["status"] == "existing"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"serial_number": "--"}, "serial_number"),
            ({"customer_email": "nobody"}, "customer_email"),
            ({"customer_email": "a b@c.example"}, "customer_email"),
            ({"priority": "asap"}, "low, normal, high, urgent"),
            ({"source_message_id": None}, "thread_root"),
        ],
    )
    async def test_arguments_that_will_not_do_are_refused_and_not_repeated(self, place, change, said):
        with pytest.raises(ToolError) as caught:
            await tool_of(place).perform(**{**ARGS, **change})
        assert (caught.value.code, caught.value.transient) == ("invalid", False)
        assert said in caught.value.message
        assert "nobody" not in caught.value.message
        assert await place.count() == 0

    def test_unknown_arguments_are_errors(self, place):
        tool = tool_of(place)
        with pytest.raises(ConfigurationError, match="urgency"):
            tool.check({**ARGS, "urgency": 1})
        assert tool.misfits({**ARGS, "urgency": 1})
        assert tool.misfits(ARGS) == []

    def test_an_agent_cannot_choose_the_thread(self, place):
        assert tool_of(place).misfits({**ARGS, "thread_root": "<other@x.example>"})
        tool_of(place).check({**ARGS, "thread_root": "<other@x.example>", "language": "pl"})

    async def test_the_engine_performs_it_and_keeps_its_arguments_out_of_the_journal(self, place):
        tool = tool_of(place)
        assert tool.private
        run = await run_of(tool)
        assert run.status is Status.SUCCEEDED
        assert await place.count() == 1

    async def test_the_run_gives_the_thread(self, place):
        tool = create_ticket_tool(place.handlers(), given=lambda ctx: {"thread_root": "<root@holt.example>"})
        for number in range(2):
            run = await run_of(tool, source_message_id=f"<{number}@holt.example>")
            assert run.status is Status.SUCCEEDED
        assert await place.count() == 1


class TestTheFile:
    async def test_everything_asked_for_is_kept(self, tmp_path):
        tickets = Tickets(tmp_path / "w.db", now=lambda: NOW)
        await create_ticket_tool(tickets).perform(**ARGS)
        ticket = await tickets.show("tkt-10001")
        assert ticket is not None
        for name, value in ARGS.items():
            assert getattr(ticket, name) == value
        assert (ticket.status, ticket.created_at) == ("open", "2026-03-10T08:15:00Z")
        assert ticket.idempotency_key == ticket_key(
            "<m1@holt-bakery.example>", "maren@holt-bakery.example", "sn48213"
        )
        assert await tickets.show("TKT-99999") is None
        assert await tickets.by_key("none") is None

    async def test_descriptions_are_clean_short_and_never_empty(self, tmp_path):
        tickets = Tickets(tmp_path / "w.db")
        tool = create_ticket_tool(tickets)
        for number, (text, language, kept) in enumerate(
            [
                ("a\x00b\x1b", "en", "ab"),
                ("  ", "en", "No description given."),
                ("", "pl", "Brak opisu."),
                ("x" * 3000, "en", "x" * 1999 + "…"),
            ]
        ):
            args = {**ARGS, "issue_description": text, "source_message_id": f"<{number}@x.example>"}
            receipt = await tool.perform(**args, language=language)
            assert (await tickets.show(receipt["ticket_id"])).issue_description == kept

    async def test_a_subject_is_one_short_line(self, tmp_path):
        tickets = Tickets(tmp_path / "w.db")
        await create_ticket_tool(tickets).perform(**{**ARGS, "subject": "a\r\nb " + "x" * 500})
        (ticket,) = await tickets.list()
        assert ticket.subject.startswith("a b xxx")
        assert len(ticket.subject) == 200

    async def test_tickets_are_listed_latest_first(self, tmp_path):
        tickets = Tickets(tmp_path / "w.db")
        tool = create_ticket_tool(tickets)
        for number in range(3):
            await tool.perform(**{**ARGS, "source_message_id": f"<{number}@x.example>"})
        assert [one.ticket_id for one in await tickets.list()] == ["TKT-10003", "TKT-10002", "TKT-10001"]
        assert len(await tickets.list(limit=1)) == 1

    async def test_a_number_is_never_given_twice(self, tmp_path):
        tickets = Tickets(tmp_path / "w.db")
        tool = create_ticket_tool(tickets)
        await tool.perform(**ARGS)
        with sqlite3.connect(tmp_path / "w.db") as connection:
            connection.execute("DELETE FROM tickets")
        assert (await tool.perform(**ARGS))["ticket_id"] == "TKT-10002"

    async def test_many_at_once_give_each_its_own(self, tmp_path):
        tool = create_ticket_tool(Tickets(tmp_path / "w.db"))
        receipts = await asyncio.gather(
            *(
                tool.perform(**{**ARGS, "source_message_id": f"<{number % 10}@x.example>"})
                for number in range(40)
            )
        )
        assert len({one["ticket_id"] for one in receipts}) == 10
        assert sum(one["status"] == "created" for one in receipts) == 10

    async def test_several_processes_share_one_file(self, tmp_path):
        path = tmp_path / "w.db"
        workers = [
            await asyncio.create_subprocess_exec(
                sys.executable, str(WORKER), str(path), name, "15", stdout=asyncio.subprocess.PIPE
            )
            for name in "abc"
        ]
        receipts = [one for worker in workers for one in json.loads((await worker.communicate())[0])]
        assert len(receipts) == 90
        assert sum(one["status"] == "created" for one in receipts) == 15 + 3 * 15
        there = await Tickets(path).list()
        assert sorted(one.ticket_id for one in there) == [f"TKT-{10001 + number}" for number in range(60)]

    async def test_a_file_in_use_for_too_long_is_a_failure_that_may_pass(self, tmp_path):
        path = tmp_path / "w.db"
        tickets = Tickets(path, busy_timeout=0.05)
        await tickets.list()
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(ToolError) as caught:
            await create_ticket_tool(tickets).perform(**ARGS)
        assert (caught.value.code, caught.value.transient) == ("timeout", True)
        holder.close()
        assert (await create_ticket_tool(tickets).perform(**ARGS))["status"] == "created"

    async def test_a_commit_that_fails_is_not_said_to_have_failed_for_sure(self, tmp_path):
        database = Database(tmp_path / "w.db", "tickets")

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
            connection.execute("CREATE TABLE b (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
            connection.execute("INSERT INTO b VALUES (7)")

        await database.read(lambda connection: None)
        with pytest.raises(DatabaseError) as caught:
            await database.write(lambda connection: (_with_foreign_keys(connection), work(connection)))
        assert not caught.value.sure
        await database.read(lambda connection: connection.execute("SELECT * FROM tickets"))

    async def test_devices_and_tickets_live_in_one_file(self, tmp_path):
        registry, tickets = Registry(tmp_path / "w.db"), Tickets(tmp_path / "w.db")
        assert (await registry.count(), await tickets.list()) == (0, [])
        await registry.close()
        await tickets.close()
        assert await registry.count() == 0


def _with_foreign_keys(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("BEGIN IMMEDIATE")


class TestDoubt:
    """W-45, 5.5"""

    async def test_a_ticket_opened_unheard_is_found_by_its_key(self, crm_place):
        crm_place.crm.faults = [act_and_drop]
        run = await run_of(tool_of(crm_place))
        assert (run.status, len(crm_place.crm.tickets)) == (Status.SUCCEEDED, 1)
        assert (
            len([one for one in crm_place.crm.asked if one.method == "POST" and one.path == "/tickets"]) == 1
        )

    async def test_a_ticket_that_was_not_opened_is_asked_for_again(self, crm_place):
        crm_place.crm.faults = [drop]
        run = await run_of(tool_of(crm_place))
        assert (run.status, len(crm_place.crm.tickets)) == (Status.SUCCEEDED, 1)

    async def test_where_nothing_can_be_found_out_a_person_is_asked(self, crm_place):
        crm_place.crm.honours_keys = False
        crm_place.crm.faults = [act_and_drop]
        tool = tool_of(crm_place, ticket_by_key_path=None)
        assert (tool.probe, tool.idempotent) == (None, False)
        run = await run_of(tool)
        assert run.status is Status.WAITING
        assert len(crm_place.crm.of("/tickets")) == 1

    async def test_a_crm_that_honours_keys_is_asked_again(self, crm_place):
        crm_place.crm.faults = [act_and_drop]
        run = await run_of(tool_of(crm_place, ticket_by_key_path=None, idempotent=True))
        assert (run.status, len(crm_place.crm.tickets)) == (Status.SUCCEEDED, 1)
        keys = {one.headers["idempotency-key"] for one in crm_place.crm.of("/tickets")}
        assert len(keys) == 1

    async def test_a_refusal_is_known_not_to_have_happened(self, crm_place):
        crm_place.crm.faults = [422]
        with pytest.raises(ToolError) as caught:
            await tool_of(crm_place).perform(**ARGS)
        assert (caught.value.code, caught.value.transient) == ("server", False)

    async def test_an_answer_nobody_can_read_leaves_it_in_doubt(self, crm_place):
        crm_place.crm.faults = [b"ok"]
        with pytest.raises(CrmFault) as caught:
            await tool_of(crm_place).perform(**ARGS)
        assert caught.value.sent
        assert not isinstance(caught.value, ToolError)


class TestTheCrm:
    @pytest.mark.parametrize(
        ("answer", "status", "created_at"),
        [
            ({"ticket_id": 5}, "created", "2026-03-10T08:15:00Z"),
            ({"ticket_id": 5, "created_at": "soon"}, "created", "2026-03-10T08:15:00Z"),
            ({"ticket_id": 5, "created_at": "2026-03-01T10:00:00"}, "created", "2026-03-01T10:00:00Z"),
            ({"ticket_id": 5, "created_at": "2026-03-01T10:00:00+01:00"}, "created", "2026-03-01T09:00:00Z"),
            ({"ticket_id": 5, "status": "existing"}, "existing", "2026-03-10T08:15:00Z"),
            ({"ticket_id": 5, "status": "open"}, "created", "2026-03-10T08:15:00Z"),
        ],
    )
    async def test_receipts_have_our_shape_whatever_it_answers(self, crm_place, answer, status, created_at):
        crm_place.crm.receipt = answer
        handlers = CrmTickets(crm_place.client(), now=lambda: NOW)
        receipt = await create_ticket_tool(handlers).perform(**ARGS)
        assert receipt == {"ticket_id": "5", "status": status, "created_at": created_at}
