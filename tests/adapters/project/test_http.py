"""Fetching and posting over real sockets, from and to servers that send more than anybody wants."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.project.http import Web, post
from detent.adapters.project.sandbox import Sandbox
from detent.engine.step_failures import Transient
from detent.engine.tools import ToolError
from tests.adapters.models.server import Endless, Server, raw

MEGABYTE = 1024 * 1024


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def web(tmp_path: Path, state: Path) -> Web:
    (tmp_path / "root").mkdir()
    return Web(Sandbox(tmp_path / "root", state), largest=2 * MEGABYTE)


def bomb(size: int, encoding: str) -> bytes:
    zeros = b"\0" * MEGABYTE
    if encoding == "gzip":
        return gzip.compress(zeros * (size // MEGABYTE))
    packed = zlib.compressobj()
    return b"".join(packed.compress(zeros) for _ in range(size // MEGABYTE)) + packed.flush()


@pytest.mark.parametrize("spool", [False, True])
class TestFetching:
    async def test_an_endless_body_is_cut_off(self, web, state, spool):
        endless = Endless(b"x" * 65536, streaming=False)
        async with Server(endless) as server:
            with pytest.raises(ToolError, match="too_large.*gives more than"):
                await web.fetch(server.url, spool=spool, max_bytes=MEGABYTE)
        assert endless.sent < 32 * MEGABYTE
        assert not spool or list((state / "spools").iterdir()) == []

    async def test_a_body_that_drips_is_given_up_when_its_time_is_over(self, web, state, spool):
        async with Server(Endless(b"x", streaming=False, pause=0.01)) as server:
            with pytest.raises(Transient, match=r"did not answer within 0\.3 seconds"):
                await web.fetch(server.url, spool=spool, timeout=0.3)
        assert not spool or list((state / "spools").iterdir()) == []

    async def test_headers_that_never_end_are_not_taken_for_an_answer(self, web, spool):
        endless = Endless(b"x-a: " + b"y" * 1000 + b"\r\n", streaming=False, headers_only=True)
        async with Server(endless) as server:
            with pytest.raises(Transient, match="broke off"):
                await web.fetch(server.url, spool=spool)
        assert endless.sent < 32 * MEGABYTE

    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_a_small_body_that_unpacks_to_a_large_one_is_refused(self, web, spool, encoding):
        packed = bomb(64 * MEGABYTE, encoding)
        assert len(packed) < MEGABYTE
        async with Server(raw(packed, headers={"content-encoding": encoding})) as server:
            with pytest.raises(ToolError, match="too_large"):
                await web.fetch(server.url, spool=spool, max_bytes=MEGABYTE)

    async def test_a_body_packed_several_times_is_refused(self, web, spool):
        packed = gzip.compress(gzip.compress(b"\0" * MEGABYTE))
        async with Server(raw(packed, headers={"content-encoding": "gzip, gzip"})) as server:
            with pytest.raises(ToolError, match="bad_answer"):
                await web.fetch(server.url, spool=spool)

    async def test_a_length_nobody_has_room_for_is_not_waited_for(self, web, spool):
        async with Server(raw(b"x", missing=10**15)) as server:
            with pytest.raises(ToolError, match="too_large"):
                await web.fetch(server.url, spool=spool, max_bytes=MEGABYTE)

    async def test_a_redirect_with_an_endless_body_is_followed_without_reading_it(self, web, spool):
        async def leads_on(line: Any) -> None:
            await line.head(302, {"location": "/end", "transfer-encoding": "chunked"})
            while True:
                await line.chunk(b"x" * 65536)

        async with Server(leads_on, raw(b"end")) as server:
            assert (await web.fetch(server.url, spool=spool))["bytes"] == 3


class TestText:
    @pytest.mark.parametrize("charset", ["punycode", "idna", "zlib", "rot13", "undefined", "no-such"])
    async def test_a_charset_that_is_none_for_texts_is_passed_over(self, web, charset):
        """Some of them are no charsets, and some would take hours over a few megabytes."""
        body = b"a-" + b"b9" * MEGABYTE
        headers = {"content-type": f"text/plain; charset={charset}"}
        async with Server(raw(body, headers=headers)) as server:
            assert (await web.fetch(server.url))["text"] == body.decode()

    async def test_json_of_a_depth_nobody_reads_is_text_alone(self, web):
        body = b"[" * MEGABYTE
        async with Server(raw(body, headers={"content-type": "application/json"})) as server:
            fetched = await web.fetch(server.url)
        assert fetched["json"] is None
        assert fetched["bytes"] == MEGABYTE


class TestPosting:
    async def test_an_endless_answer_is_not_read(self):
        endless = Endless(b"x" * 65536, streaming=False)
        async with Server(endless) as server:
            assert await post(server.url, {"a": 1}, {}, 30) == 200
        assert endless.sent < 32 * MEGABYTE

    @pytest.mark.parametrize("headers", [{"content-encoding": "gzip"}, {}])
    async def test_a_bomb_and_a_length_nobody_has_room_for_do_not_matter(self, headers):
        async with Server(raw(bomb(64 * MEGABYTE, "gzip"), headers=headers, missing=10**15)) as server:
            assert await post(server.url, {"a": 1}, {}, 30) == 200

    async def test_an_answer_that_never_begins_is_given_up(self):
        """Nobody knows whether it arrived."""
        async with Server(Endless(b"x-a: b\r\n", streaming=False, headers_only=True, pause=0.01)) as server:
            with pytest.raises(ConnectionError, match=r"did not answer within 0\.3 seconds"):
                await post(server.url, {"a": 1}, {}, 0.3)

    async def test_a_redirect_is_an_answer_and_not_followed(self):
        async with Server(raw(b"")) as other:
            leads_on = raw(b"", 307, {"location": other.url.replace("127.0.0.1", "127.0.0.2")})
            async with Server(leads_on) as server:
                assert await post(server.url, {"a": 1}, {"authorization": "Bearer hunter2"}, 30) == 307
            assert other.asked == []
