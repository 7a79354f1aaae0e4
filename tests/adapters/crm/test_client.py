"""The client of a CRM, against a real server on a loopback port."""

from __future__ import annotations

import asyncio
import ssl
import tracemalloc
import zlib
from typing import Any

import pytest
import trustme

from detent.adapters.crm.client import CrmClient
from detent.adapters.crm.faults import CrmFault
from detent.adapters.crm.settings import CrmSettings
from detent.kernel.errors import DefinitionError
from tests.adapters.models.server import REDIRECTS, Server, elsewhere

from .server import PASSWORD, USER, Crm, act_and_drop, drop, redirect, stall

TICKET = {
    "serial_number": "SN48213",
    "customer_email": "maren@holt-bakery.example",
    "subject": "Kestrel: SN48213",
}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch):
    monkeypatch.setenv("CRM_USER", USER)
    monkeypatch.setenv("CRM_PASSWORD", PASSWORD)


@pytest.fixture
async def crm():
    async with Crm(
        devices={"SN48213": {"serial_number": "SN48213", "manufacturer_end": "2027-05-31"}}
    ) as crm:
        yield crm


def client_of(crm: Crm, clock=None, **more: Any) -> CrmClient:
    said = {"base_url": crm.url, "auth": crm.auth, **more}
    return CrmClient(CrmSettings(**said), **({} if clock is None else {"clock": clock}))


async def fault_of(work) -> CrmFault:
    with pytest.raises(CrmFault) as caught:
        await work
    text = f"{caught.value} {caught.value.__dict__}"
    assert PASSWORD not in text
    assert "token-" not in text
    assert "SN48213" not in text
    return caught.value


class TestRedirects:
    @pytest.mark.parametrize("status", REDIRECTS)
    @pytest.mark.parametrize("auth", ["token", "basic"])
    async def test_none_is_followed_and_neither_password_nor_token_goes_along(self, status, auth):
        async with (
            Server(host="127.0.0.2") as other,
            Server(*(elsewhere(other, status, "/api") for _ in range(4))) as server,
        ):
            client = CrmClient(CrmSettings(base_url=server.url, auth=auth))
            assert (await fault_of(client.device("SN48213"))).code in ("bad_response", "auth")
            assert (await fault_of(client.open_ticket(TICKET, "k1"))).code in ("bad_response", "auth")
            assert server.asked
            assert other.asked == []


class TestDevices:
    async def test_a_device_is_found(self, crm):
        assert await client_of(crm).device("SN48213") == crm.devices["SN48213"]

    async def test_an_unknown_device_is_none(self, crm):
        assert await client_of(crm).device("QQ-0") is None

    async def test_a_serial_cannot_lead_to_another_address(self, crm):
        await client_of(crm).device("../tickets?x=1#y")
        assert crm.of("/devices/")[0].path == "/devices/..%2Ftickets%3Fx%3D1%23y"

    async def test_fields_are_read_by_the_crms_own_names(self, crm):
        crm.devices["K1"] = {"sn": "K1", "dates": {"maker": "2027-05-31"}, "device_name": "Kestrel"}
        client = client_of(crm, fields={"serial_number": "sn", "manufacturer_end": "dates.maker"})
        found = await client.device("K1")
        assert (found["serial_number"], found["manufacturer_end"]) == ("K1", "2027-05-31")
        assert found["device_name"] == "Kestrel"


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "code", "transient"),
        [(500, "server", True), (502, "server", True), (503, "server", True), (429, "server", True),
         (400, "server", False), (422, "server", False), (403, "auth", False),
         (drop, "connection", True), (redirect, "bad_response", False),
         (b"<html>", "bad_response", False), (b"[1]", "bad_response", False), (b"", "bad_response", False),
         (b"[" * 500_000, "bad_response", False), (b'"' + b"x" * 2_000_000, "bad_response", False),
         (b"\xff\xfe", "bad_response", False)],
    )  # fmt: skip
    async def test_each_has_its_code(self, crm, fault, code, transient):
        crm.faults = [fault]
        found = await fault_of(client_of(crm).device("SN48213"))
        assert (found.code, found.transient, found.sent) == (code, transient, False)

    async def test_no_answer_is_a_timeout(self, crm):
        crm.faults = [stall]
        found = await fault_of(client_of(crm, timeout_s=0.2).device("SN48213"))
        assert (found.code, found.transient) == ("timeout", True)

    async def test_nobody_there_is_a_connection_fault(self):
        async with Crm(auth="none") as crm:
            client = client_of(crm)
        found = await fault_of(client.device("SN48213"))
        assert (found.code, found.transient) == ("connection", True)

    async def test_a_certificate_nobody_vouches_for_is_refused(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
        async with Crm(context=context) as crm:
            assert (await fault_of(client_of(crm).device("SN48213"))).code == "connection"
            assert crm.asked == []


class TestWhoAsks:
    """W-45"""

    async def test_nobody(self):
        async with Crm(auth="none", devices={"A1234": {}}) as crm:
            assert await client_of(crm).device("A1234") == {}

    async def test_user_and_password(self):
        async with Crm(auth="basic", devices={"A1234": {}}) as crm:
            assert await client_of(crm).device("A1234") == {}

    async def test_a_token_is_fetched_once_by_a_form(self, crm):
        client = client_of(crm)
        await client.device("SN48213")
        await client.device("SN48213")
        (token,) = crm.of("/token")
        assert token.headers["content-type"] == "application/x-www-form-urlencoded"
        assert b"grant_type=password" in token.body

    async def test_many_at_once_fetch_one_token(self, crm):
        client = client_of(crm)
        await asyncio.gather(*(client.device("SN48213") for _ in range(8)))
        assert len(crm.tokens) == 1

    @pytest.mark.parametrize(
        ("lifetime", "kept", "renewed"),
        [(3600, 3299, 3301), (None, 3299, 3301), ("7200", 6899, 6901), (1000, 699, 701), (100, 49, 51)],
    )
    async def test_a_token_is_renewed_five_minutes_early(self, crm, lifetime, kept, renewed):
        crm.lifetime = lifetime
        now = [0.0]
        client = client_of(crm, clock=lambda: now[0])
        await client.device("SN48213")
        now[0] = kept
        await client.device("SN48213")
        assert len(crm.tokens) == 1
        now[0] = renewed
        await client.device("SN48213")
        assert len(crm.tokens) == 2

    async def test_a_401_renews_the_token_and_asks_once_more(self, crm):
        client = client_of(crm)
        await client.device("SN48213")
        crm.tokens.append("somebody else's")
        assert await client.device("SN48213") is not None
        assert len(crm.of("/token")) == 2

    async def test_a_second_401_is_final(self, crm):
        crm.faults = [401, 401]
        found = await fault_of(client_of(crm).device("SN48213"))
        assert (found.code, found.transient) == ("auth", False)
        assert len(crm.of("/devices")) == 2

    async def test_a_401_to_user_and_password_is_final(self):
        async with Crm(auth="basic", faults=[401]) as crm:
            assert (await fault_of(client_of(crm).device("A1234"))).code == "auth"
            assert len(crm.asked) == 1

    @pytest.mark.parametrize(
        ("fault", "code", "transient"),
        [(400, "auth", False), (401, "auth", False), (500, "server", True), (drop, "connection", True),
         (b"{}", "bad_response", False), (b"nope", "bad_response", False),
         (b'{"access_token": "a\\nb"}', "bad_response", False), (404, "auth", False)],
    )  # fmt: skip
    async def test_no_token_is_a_fault_and_nothing_was_sent(self, crm, fault, code, transient):
        crm.token_faults = [fault]
        found = await fault_of(client_of(crm).open_ticket(TICKET, "k"))
        assert (found.code, found.transient, found.sent) == (code, transient, False)
        assert crm.of("/tickets") == []

    async def test_a_missing_secret_is_named_by_its_variable(self, crm, monkeypatch):
        monkeypatch.delenv("CRM_PASSWORD")
        found = await fault_of(client_of(crm).device("SN48213"))
        assert found.code == "auth"
        assert "CRM_PASSWORD is not set" in found.message


class TestTickets:
    async def test_a_ticket_is_opened_with_its_key(self, crm):
        answer = await client_of(crm).open_ticket(TICKET, "k1")
        assert (answer["ticket_id"], answer["new"]) == ("TKT-10001", True)
        (asked,) = crm.of("/tickets")
        assert asked.headers["idempotency-key"] == "k1"
        assert asked.json == TICKET

    async def test_the_crms_own_names_are_sent_and_read(self, crm):
        crm.receipt = {"case": {"no": 77}}
        client = client_of(
            crm,
            fields={
                "ticket.serial_number": "device.sn",
                "ticket.subject": "title",
                "receipt.ticket_id": "case.no",
            },
        )
        answer = await client.open_ticket(TICKET, "k1")
        assert answer["ticket_id"] == "77"
        assert crm.of("/tickets")[0].json["device"] == {"sn": "SN48213"}
        assert crm.of("/tickets")[0].json["title"] == TICKET["subject"]

    @pytest.mark.parametrize(
        ("fault", "code", "sent"),
        [(400, "server", False), (404, "server", False), (403, "auth", False), (503, "server", False),
         (429, "server", False), (500, "server", True), (502, "server", True), (409, "server", True),
         (drop, "connection", True), (act_and_drop, "connection", True), (b"ok", "bad_response", True),
         (b"{}", "bad_response", True), (b'{"ticket_id": true}', "bad_response", True),
         (redirect, "bad_response", True)],
    )  # fmt: skip
    async def test_a_fault_says_whether_it_may_have_happened(self, crm, fault, code, sent):
        crm.faults = [fault]
        found = await fault_of(client_of(crm).open_ticket(TICKET, "k1"))
        assert (found.code, found.sent) == (code, sent)

    async def test_no_answer_leaves_it_open(self, crm):
        crm.faults = [stall]
        found = await fault_of(client_of(crm, timeout_s=0.2).open_ticket(TICKET, "k1"))
        assert (found.code, found.sent) == ("timeout", True)

    async def test_a_401_to_a_ticket_is_asked_again_with_the_same_key(self, crm):
        crm.faults = [401]
        assert (await client_of(crm).open_ticket(TICKET, "k1"))["new"]
        assert [one.headers["idempotency-key"] for one in crm.of("/tickets")] == ["k1", "k1"]
        assert len(crm.tickets) == 1

    async def test_a_ticket_is_found_by_its_key(self, crm):
        client = client_of(crm, ticket_by_key_path="/tickets/by-key/{key}")
        assert await client.ticket_by_key("k/1") is None
        await client.open_ticket(TICKET, "k/1")
        assert (await client.ticket_by_key("k/1"))["ticket_id"] == "TKT-10001"

    async def test_a_closed_client_may_be_used_again(self, crm):
        client = client_of(crm)
        await client.device("SN48213")
        await client.close()
        assert await client.device("SN48213") is not None


class TestSettings:
    def test_every_problem_is_named_at_once(self):
        with pytest.raises(DefinitionError) as caught:
            CrmSettings.read(
                {"base_url": "ftp://x", "auth": "magic", "device_path": "/d", "ticket_by_key_path": "t/{key}",
                 "user_env": "my pass", "timeout_s": 0, "fields": {"expirs": "x", "status": 3},
                 "idempotent": "yes"}
            )  # fmt: skip
        text = str(caught.value)
        assert len(caught.value.problems) == 9
        assert "Did you mean 'expires'?" in text
        assert "not the secret itself" in text

    def test_an_unknown_key_names_the_nearest(self):
        with pytest.raises(DefinitionError, match="Did you mean 'device_path'"):
            CrmSettings.read({"base_url": "https://crm.example", "devise_path": "/x"})

    @pytest.mark.parametrize(
        "url",
        [None, "", "crm.example", "https://", "https://me:secret@crm.example", "http://crm.example",
         "https://crm.example?x=1", "https://crm.example:port"],
    )  # fmt: skip
    def test_an_address_that_will_not_do_is_refused_without_repeating_it(self, url):
        with pytest.raises(DefinitionError) as caught:
            CrmSettings.read({"base_url": url})
        assert "secret" not in str(caught.value).replace("the secret itself", "")

    def test_plain_http_will_do_without_a_password_or_on_this_machine(self):
        assert CrmSettings("http://crm.example", auth="none").host == "crm.example"
        assert CrmSettings("http://127.0.0.1:8080", auth="basic").host == "127.0.0.1:8080"
        assert CrmSettings("http://localhost").auth == "token"


def packed_spaces(count: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return packer.compress(b" " * count) + packer.flush()


async def test_a_small_bomb_stays_small(crm):
    body = packed_spaces(200_000_000)

    async def bomb(crm: Crm, asked: Any, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 X\r\ncontent-encoding: gzip\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    crm.faults.append(bomb)
    tracemalloc.start()
    fault = await fault_of(client_of(crm, auth="none").device("SN48213"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (fault.code, "gave more than 1,000,000 bytes" in str(fault)) == ("bad_response", True)
    assert peak < 40_000_000
