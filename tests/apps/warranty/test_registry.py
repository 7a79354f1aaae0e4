"""`check_warranty`: one suite on SQLite and on a CRM, then what is each one's own."""

from __future__ import annotations

import sqlite3
from datetime import date

import pytest

from detent import Engine, Flow, Machine, Outcome, Status
from detent.apps.warranty.domain.coverage import Device
from detent.apps.warranty.tools.crm import CrmRegistry
from detent.apps.warranty.tools.database import DatabaseError
from detent.apps.warranty.tools.registry import Imported, Registry, check_warranty_tool
from detent.engine.tools import ToolError
from detent.kernel.errors import ConfigurationError, DefinitionError
from detent.stores import MemoryStore
from tests.adapters.crm.server import drop

DAY = date(2026, 3, 10)
DEVICES = [
    Device("SN48213", "Kestrel K200", "c-7", manufacturer_end=date(2027, 5, 31)),
    Device("LM-77-0412", "Skaner", manufacturer_end=date(2026, 11, 15)),
    Device("PX2-55910", manufacturer_end=date(2024, 9, 30), extension_until=date(2026, 4, 1)),
    Device("12345", manufacturer_end=date(2027, 1, 1)),
    Device("NODATES1", "Kestrel"),
    Device("X900", manufacturer_end=date(2027, 1, 1)),
    Device("SNSNX900", manufacturer_end=date(2027, 1, 1)),
    Device("LASTDAY1", manufacturer_end=DAY),
    Device("4096-BRK-18", service_contract_end=date(2027, 1, 31), manufacturer_end=date(2024, 1, 1)),
]


class TestEverySource:
    """W-43, W-45"""

    @pytest.mark.parametrize(
        ("asked", "status", "serial", "expires"),
        [
            ("SN48213", "valid", "SN48213", "2027-05-31"),
            ("sn-48213", "valid", "SN48213", "2027-05-31"),
            ("48213", "valid", "SN48213", "2027-05-31"),
            ("SN12345", "valid", "12345", "2027-01-01"),
            ("lm 77 0412", "valid", "LM-77-0412", "2026-11-15"),
            ("4096-BRK-18", "valid", "4096-BRK-18", "2027-01-31"),
            ("PX2-55910", "expired", "PX2-55910", "2024-09-30"),
            ("LASTDAY1", "valid", "LASTDAY1", "2026-03-10"),
            ("NODATES1", "not_found", "NODATES1", None),
            ("QQ-00000-Z9", "not_found", "QQ-00000-Z9", None),
            ("SNX900", "not_found", "SNX900", None),  # X900 and SNSNX900 would both do
            ("--", "not_found", "--", None),
            ("'; DROP TABLE devices", "not_found", "'; DROP TABLE devices", None),
        ],
    )
    async def test_the_answer_for_a_serial(self, place, asked, status, serial, expires):
        tool = check_warranty_tool(await place.source(DEVICES), today=lambda: DAY)
        answer = await tool.perform(serial_number=asked)
        assert (answer["status"], answer["serial_number"], answer["expires"]) == (status, serial, expires)
        assert set(answer) == {
            "status", "serial_number", "device_name", "warranty_type", "expires", "customer_ref",
            "extension_available",
        }  # fmt: skip

    async def test_everything_known_is_told(self, place):
        source = await place.source(DEVICES)
        assert await source.find("SN48213", DAY) == {
            "status": "valid", "serial_number": "SN48213", "device_name": "Kestrel K200",
            "warranty_type": "manufacturer", "expires": "2027-05-31", "customer_ref": "c-7",
            "extension_available": False,
        }  # fmt: skip
        assert (await source.find("PX2-55910", DAY))["extension_available"] is True

    async def test_the_day_the_mail_was_received_decides(self, place):
        tool = check_warranty_tool(await place.source(DEVICES), today=lambda: date(2030, 1, 1))
        assert (await tool.perform("LASTDAY1"))["status"] == "expired"
        assert (await tool.perform("LASTDAY1", received="2026-03-10"))["status"] == "valid"
        assert (await tool.perform("LASTDAY1", received="2026-03-11"))["status"] == "expired"
        assert (await tool.perform("LASTDAY1", received="2026-03-10T23:59:00+01:00"))["status"] == "valid"
        with pytest.raises(ConfigurationError, match="received"):
            await tool.perform("LASTDAY1", received="yesterday")

    async def test_an_agent_gives_the_serial_and_nothing_else(self, place):
        tool = check_warranty_tool(await place.source([]))
        assert list(tool.schema["properties"]) == ["serial_number"]
        assert tool.misfits({"serial_number": "SN48213"}) == []
        assert tool.misfits({"serial_number": "SN48213", "received": "2020-01-01"})
        assert tool.misfits({})
        tool.check({"serial_number": "SN48213", "received": "2026-03-10"})

    async def test_a_step_asks_it_through_the_engine(self, place):
        tool = check_warranty_tool(await place.source(DEVICES), today=lambda: DAY)

        async def check(ctx):
            return Outcome(set={"warranty_data": await ctx.query("check_warranty", serial_number="sn48213")})

        flow = Flow(
            Machine("f", start="check", moves={"check": ["end"]}, ends=["end"]),
            {"check": check},
            tools=[tool],
        )
        async with Engine(MemoryStore(), [flow]) as engine:
            run = await engine.run("f")
        assert (run.status, run.data["warranty_data"]["status"]) == (Status.SUCCEEDED, "valid")

    async def test_the_run_gives_the_day_and_nobody_else_can(self, place):
        tool = check_warranty_tool(
            await place.source(DEVICES), given=lambda ctx: {"received": ctx.data["email"]["received"]}
        )

        async def check(ctx):
            answer = await ctx.query("check_warranty", serial_number="LASTDAY1", received="2030-01-01")
            return Outcome(set={"status": answer["status"]})

        flow = Flow(
            Machine("f", start="check", moves={"check": ["end"]}, ends=["end"]),
            {"check": check},
            tools=[tool],
        )
        async with Engine(MemoryStore(), [flow]) as engine:
            for received, status in (("2026-03-10", "valid"), ("2026-03-11", "expired")):
                run = await engine.run("f", {"email": {"received": received}})
                assert run.data["status"] == status


class TestTheFile:
    async def test_a_csv_is_imported_and_imported_again(self, tmp_path):
        file = tmp_path / "devices.csv"
        file.write_text(
            "serial,device_name,manufacturer_end\nSN-1-A,Kestrel,2027-05-31\n\nSN2,,\n", encoding="utf-8-sig"
        )
        registry = Registry(tmp_path / "w.db")
        assert await registry.import_csv(file) == Imported(added=2)
        file.write_text('serial;device_name;manufacturer_end\nSN1A;"Kes;trel";2027-05-31\nSN2;;\n')
        assert await registry.import_csv(file) == Imported(changed=1, unchanged=1)
        assert await registry.show("sn-1-a") == Device("SN1A", "Kes;trel", manufacturer_end=date(2027, 5, 31))
        assert await registry.show("nothing") is None
        assert await registry.count() == 2

    async def test_every_problem_of_a_csv_is_named_at_once_and_nothing_is_imported(self, tmp_path):
        file = tmp_path / "devices.csv"
        file.write_text(
            "serial,device_name,service_contract_end,manufacturer_end\n"
            "SN-1,a,2027-02-30,31.05.2027\n"
            ',"no\nserial",,\n'
            "AB12345,a,,\n"
            "ab-12345,b,,\n"
            "X1,a,,,too,many\n"
            "GOOD1,a,,\n"
        )
        registry = Registry(tmp_path / "w.db")
        with pytest.raises(DefinitionError) as caught:
            await registry.import_csv(file)
        assert [problem.removeprefix(f"{file}:") for problem in caught.value.problems] == [
            "2: service_contract_end is no date. Write it as YYYY-MM-DD.",
            "2: manufacturer_end is no date. Write it as YYYY-MM-DD.",
            "3: the serial is missing, or has neither letters nor digits.",
            "7: has 6 cells, the first line has 4.",
            "6: the serial 'ab-12345' names the same device as 'AB12345' in line 5.",
        ]
        assert await registry.count() == 0

    @pytest.mark.parametrize(
        ("raw", "said"),
        [
            (b"serail,device_name\n", r"Did you mean 'serial'"),
            (b"device_name\n", "the column 'serial' is missing"),
            (b"", "the column 'serial' is missing"),
            (b"serial,serial\n", "appears 2 times"),
            (b"serial\nA\xff\n", r":2: is not UTF-8"),
            (b'serial\n"open\n', "is not CSV"),
        ],
    )
    async def test_a_file_that_is_none_is_refused(self, tmp_path, raw, said):
        (tmp_path / "devices.csv").write_bytes(raw)
        with pytest.raises(ConfigurationError, match=said):
            await Registry(tmp_path / "w.db").import_csv(tmp_path / "devices.csv")

    async def test_a_file_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            await Registry(tmp_path / "w.db").import_csv(tmp_path / "no.csv")

    async def test_another_programs_file_is_left_alone(self, tmp_path):
        with sqlite3.connect(tmp_path / "other.db") as other:
            other.execute("PRAGMA application_id = 7")
        with pytest.raises(DatabaseError, match="another program's file"):
            await Registry(tmp_path / "other.db").count()

    async def test_a_newer_file_is_refused(self, tmp_path):
        registry = Registry(tmp_path / "w.db")
        await registry.count()
        await registry.close()
        with sqlite3.connect(tmp_path / "w.db") as connection:
            connection.execute("UPDATE schema_versions SET version = 99")
        with pytest.raises(DatabaseError, match="newer Detent"):
            await Registry(tmp_path / "w.db").count()

    async def test_a_file_that_is_no_database_is_a_tool_error(self, tmp_path):
        (tmp_path / "w.db").write_bytes(b"not a database at all" * 100)
        with pytest.raises(ToolError) as caught:
            await Registry(tmp_path / "w.db").find("SN48213", DAY)
        assert (caught.value.code, caught.value.transient) == ("server", False)

    async def test_a_file_in_no_folder_is_a_tool_error(self, tmp_path):
        with pytest.raises(ToolError, match="cannot be opened"):
            await Registry(tmp_path / "none" / "w.db").find("SN48213", DAY)


class TestTheCrm:
    """W-43, W-45"""

    async def test_a_failure_has_the_code_of_its_kind(self, crm_place):
        source = await crm_place.source(DEVICES)
        for fault, code, transient in (
            (500, "server", True),
            (drop, "connection", True),
            (403, "auth", False),
        ):
            crm_place.crm.faults = [fault]
            with pytest.raises(ToolError) as caught:
                await source.find("SN48213", DAY)
            assert (caught.value.code, caught.value.transient) == (code, transient)

    async def test_a_crm_that_judges_for_itself_is_believed(self, crm_place):
        source = await crm_place.source([])
        crm_place.crm.devices["AB12345"] = {
            "serial": "AB-12345",
            "status": "valid",
            "expiration_date": "2027-01-01",
        }
        answer = await source.find("ab12345", DAY)
        assert (answer["status"], answer["serial_number"], answer["expires"]) == (
            "valid",
            "AB-12345",
            "2027-01-01",
        )

    async def test_a_crm_that_says_not_found_in_words_is_understood(self, crm_place):
        source = await crm_place.source([])
        crm_place.crm.devices["AB12345"] = {"error": "Device not found"}
        assert (await source.find("AB12345", DAY))["status"] == "not_found"

    async def test_a_crm_that_knows_the_printed_form_only_is_asked_for_it(self, crm_place):
        source = await crm_place.source([])
        crm_place.crm.devices["AB-12345"] = {"manufacturer_end": "2027-01-01"}
        answer = await source.find("AB-12345", DAY)
        assert (answer["status"], answer["serial_number"]) == ("valid", "AB-12345")

    @pytest.mark.parametrize(
        "record",
        [
            {"serial_number": "OTHER-1", "manufacturer_end": "2027-01-01"},
            {"serial_number": "AB12345", "manufacturer_end": "soon"},
            {"serial_number": "AB12345", "status": "in use"},
            {"serial_number": "AB12345"},
        ],
    )
    async def test_an_answer_that_cannot_be_right_is_a_bad_response(self, crm_place, record):
        source = await crm_place.source([])
        crm_place.crm.devices["AB12345"] = record
        with pytest.raises(ToolError) as caught:
            await source.find("AB12345", DAY)
        assert caught.value.code == "bad_response"
        assert "AB12345" not in str(caught.value)

    async def test_what_a_crm_says_of_its_failure_is_not_repeated(self, crm_place):
        source = await crm_place.source([])
        crm_place.crm.devices["AB12345"] = {"error": "user desk may not see AB12345"}
        with pytest.raises(ToolError) as caught:
            await source.find("AB12345", DAY)
        assert (caught.value.code, caught.value.transient) == ("server", True)
        assert "AB12345" not in str(caught.value)

    async def test_the_token_is_renewed_on_the_way(self, crm_place):
        source = await crm_place.source(DEVICES)
        await source.find("SN48213", DAY)
        crm_place.crm.tokens.append("another")
        assert (await source.find("SN48213", DAY))["status"] == "valid"

    async def test_fields_of_its_own_are_mapped(self, crm_place):
        client = crm_place.client(fields={"serial_number": "id", "manufacturer_end": "cover.maker"})
        crm_place.crm.devices["AB12345"] = {"id": "AB-12345", "cover": {"maker": "2026-03-10"}}
        answer = await CrmRegistry(client).find("AB12345", DAY)
        assert (answer["status"], answer["serial_number"]) == ("valid", "AB-12345")
