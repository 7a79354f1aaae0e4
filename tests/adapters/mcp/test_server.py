"""Real MCP servers used by real runs: asked, told to do things, killed in the middle, and put away."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from detent.adapters.mcp.faults import McpInDoubt, McpToolError
from detent.adapters.mcp.server import McpServer
from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.agent_tools import AgentTools
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import EffectCall, ToolError
from detent.kernel.entries import to_plain
from detent.kernel.errors import ConfigurationError, IntegrationMissing
from detent.kernel.machine import Machine
from detent.kernel.plain import encode
from detent.kernel.policy import RetryPolicy
from detent.kernel.status import Status
from tests.adapters.mcp.conftest import NO_WAIT, alive, kill
from tests.adapters.models.server import REDIRECTS, Endless, elsewhere
from tests.adapters.models.server import Server as WebServer
from tests.engine import answers
from tests.engine.conftest import until

pytestmark = pytest.mark.slow

CALL = EffectCall("r1", "k1", 1)


def flow_of(server: McpServer, handler, **options) -> Flow:
    machine: Machine[str] = Machine(
        "pages",
        start="work",
        moves={"work": ["done", "refused"]},
        ends={"done": Status.SUCCEEDED, "refused": Status.FAILED},
    )
    return Flow(machine, {"work": Step("work", handler, **options)}, tools=server.tools)


def tool(server: McpServer, name: str):
    return next(tool for tool in server.tools if tool.name == f"{server.name}.{name}").perform


def silent(file: Path) -> str:
    """A program that writes down its process and says nothing."""
    return f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"


async def another(server: McpServer, first: str) -> bool:
    """True when another process than the first answers; a failure meanwhile is one that passes."""
    try:
        return (await tool(server, "who")())["result"] != first
    except ToolError as error:
        if not error.transient:
            raise
        return False


async def run(flow: Flow, data=None, store=None):
    async with Engine(store or MemoryStore(), [flow]) as engine:
        run = await engine.run("pages", data)
        journal = [to_plain(entry) for entry in await engine.store.entries(run.id, 0, 10_000)]
        return run, journal


class TestInARun:
    async def test_a_handler_asks_and_the_journal_keeps_what_it_heard(self, pages):
        async def work(ctx):
            found = await ctx.query("pages.search", words="lamp", most=2)
            return Outcome("done", set={"found": found["pages"]})

        ended, journal = await run(flow_of(pages(), work))
        assert ended.data == {"found": ["lamp 0", "lamp 1"]}
        assert "pages.search" in encode(journal)

    async def test_an_effect_is_performed_once_through_the_ledger(self, pages, book, tmp_path):
        """The server is told the same key on every attempt, and a revisit does not ask it again."""

        def work(ctx):
            page = ctx.propose("pages.add", title="lamps")
            return Outcome("done", set={"page": page["id"]})

        store = SQLiteStore(tmp_path / "detent.db", sync="normal")
        async with Engine(store, [flow_of(pages(effects=["add"]), work)]) as engine:
            ended = await engine.run("pages", run_id="r1")
            (line,) = await store.effects("r1")
        assert ended.data == {"page": "page-lamps"}
        assert (line.tool, line.state) == ("pages.add", "done")
        assert book.lines == [["added", "lamps", f"r1:{line.key}"]]

    async def test_a_tool_that_says_it_failed_did_not_happen_and_the_step_thinks_again(self, pages):
        def work(ctx):
            if ctx.failure is not None:
                return Outcome("refused", set={"code": ctx.failure.code, "said": ctx.failure.message})
            return Outcome("done", effects=[Effect("pages.remove", {"title": "lamps"})])

        ended, _ = await run(flow_of(pages(effects=["remove"]), work))
        assert ended.state == "refused"
        assert ended.data["code"] == "mcp_error"
        assert "there is no page lamps" in ended.data["said"]

    async def test_a_killed_server_leaves_an_effect_in_doubt_and_the_run_holds(self, child, book):
        server = child(effects=["die"])
        flow = flow_of(server, lambda ctx: Outcome("done", effects=[Effect("pages.die", {"title": "a"})]))
        async with Engine(MemoryStore(), [flow]) as engine:
            held = await engine.run("pages")
            assert held.status is Status.WAITING
            (hold,) = held.holds.values()
            assert hold.why == "attention"
            assert "The connection was lost" in hold.about["error"]
            await answers.resolve(engine, held.id, "happened", receipt={"id": 1})
            assert (await engine.finish(held.id)).state == "done"
        assert len(book.lines) == 1

    async def test_an_idempotent_effect_is_repeated_after_its_server_was_killed(self, child, book):
        server = child(effects={"die": {"idempotent": True}})

        def work(ctx):
            if ctx.failure is not None:
                return "refused"
            return Outcome("done", effects=[Effect("pages.die", {"title": "a"})])

        ended, _ = await run(flow_of(server, work))
        assert book.has("died", 3)
        assert ended.status is Status.WAITING  # it killed every server it got

    async def test_a_query_is_asked_again_when_its_server_was_killed(self, child, book):
        server = child(queries=["die", "search"])

        async def work(ctx):
            if ctx.attempt == 1:
                await ctx.query("pages.die", title="a")
            return Outcome("done", set=await ctx.query("pages.search", words="b", most=1))

        ended, journal = await run(flow_of(server, work, retry=NO_WAIT))
        assert ended.data == {"words": "b", "pages": ["b 0"]}
        (failed,) = [entry for entry in journal if entry["kind"] == "attempt_failed"]
        assert failed["transient"]
        assert len(book.lines) == 1

    async def test_a_tool_that_hangs_is_given_up_after_its_time(self, pages, book):
        server = pages(queries=["who"], effects={"hang": {"timeout": 1.0}})
        flow = flow_of(server, lambda ctx: Outcome("done", effects=[Effect("pages.hang", {"title": "a"})]))
        held, _ = await run(flow)
        assert held.status is Status.WAITING
        assert "did not answer 'hang' within 1 seconds" in next(iter(held.holds.values())).about["error"]
        assert book.has("hanging")

    async def test_an_undeclared_tool_is_never_called(self, pages, book):
        async def work(ctx):
            await ctx.query("pages.add", title="a")

        ended, journal = await run(flow_of(pages(), work))
        assert ended.status is Status.FAILED
        assert "There is no tool 'pages.add'" in encode(journal)
        assert not book.lines

    async def test_arguments_that_do_not_fit_are_refused_before_the_call(self, pages, book):
        def work(ctx):
            if ctx.failure is not None:
                return Outcome("refused", set={"code": ctx.failure.code, "said": ctx.failure.message})
            return Outcome("done", effects=[Effect("pages.add", {"title": 7})])

        ended, _ = await run(flow_of(pages(effects=["add"]), work))
        assert ended.data["code"] == "mcp_arguments"
        assert "/title: must be a string" in ended.data["said"]
        assert not book.lines

    async def test_many_runs_share_one_session(self, child):
        server = child()

        async def work(ctx):
            found = await ctx.query("pages.search", words=ctx.run_id, most=1)
            return Outcome("done", set={"who": (await ctx.query("pages.who"))["result"], **found})

        async with Engine(MemoryStore(), [flow_of(server, work)]) as engine:
            runs = await asyncio.gather(*(engine.run("pages", run_id=f"r{number}") for number in range(12)))
        assert {run.data["pages"][0] for run in runs} == {f"r{number} 0" for number in range(12)}
        assert len({run.data["who"] for run in runs}) == 1

    async def test_injected_text_stays_data(self, pages, book):
        """Text of a server never routes, completes or calls anything (I9)."""

        async def work(ctx):
            return Outcome("done", set={"found": await ctx.query("pages.hostile")})

        server = pages(effects=["add"])
        ended, _ = await run(flow_of(server, work))
        assert ended.state == "done"
        assert ended.data["found"]["next"] == "refused"
        assert ended.data["found"]["$$receipt"] == "anything"
        assert not book.lines

    async def test_an_agent_is_shown_what_its_step_names_and_its_arguments_are_checked(self, pages, book):
        """Effects it calls are performed by the engine; what is not named cannot be called."""
        seen = {}

        async def work(ctx):
            async def act(effect):
                return await ctx.perform(effect.tool, **effect.args)

            tools = AgentTools(ctx, {name: ctx.tools[name] for name in ("pages.search", "pages.add")}, act)
            seen.update({tool.name: tool for tool in tools})
            seen["answer"] = await tools.call("pages.search", {"words": "a", "most": 1})
            seen["receipt"] = await tools.call("pages.add", {"title": "a"})
            for name, args in (("pages.search", {"words": 3}), ("pages.who", {}), ("pages.die", {})):
                with pytest.raises(OutputSchemaValidationError):
                    await tools.call(name, args)
            return "done"

        server = pages(effects=["add"])
        flow = flow_of(server, work, queries=("pages.search",), effects=("pages.add",))
        flow.needs.append(server)
        async with Engine(MemoryStore(), [flow]) as engine:
            assert (await engine.run("pages")).state == "done"
        assert len(seen["pages.search"].description) == 500
        assert seen["pages.add"].arguments["required"] == ["title"]
        assert seen["answer"]["pages"] == ["a 0"]
        assert seen["receipt"] == {"id": "page-a"}
        assert len(book.lines) == 1

    async def test_what_a_server_says_reaches_no_log_above_debug(self, pages, caplog):
        """I11"""
        caplog.set_level(logging.INFO)
        server = pages(queries=["remove", "search"])

        async def work(ctx):
            await ctx.query("pages.search", words="jane.doe@example.org")
            await ctx.query("pages.remove", title="jane.doe@example.org")

        ended, _ = await run(flow_of(server, work))
        assert ended.status is Status.FAILED
        assert "mcp.connected" in caplog.text
        assert "jane.doe" not in caplog.text


class TestAnswers:
    async def test_answers_are_read_as_what_they_are(self, pages):
        server = pages()
        assert await tool(server, "as_json")() == {"found": [1, 2]}
        assert await tool(server, "as_number")() == "42"
        assert await tool(server, "not_a_number")() == '{"n": NaN}'
        assert await tool(server, "nothing")() is None
        assert await tool(server, "picture")() == ["a pixel", {"$type": "image/png", "size": 28}]

    async def test_too_large_an_answer_fails_a_query_but_not_an_effect_that_happened(self, pages, book):
        asked, told = pages(queries=["enormous"]), pages(effects=["enormous"])
        with pytest.raises(ToolError, match="mcp_answer.*1100002 characters"):
            await tool(asked, "enormous")(title="a")
        receipt = await tool(told, "enormous")(CALL, title="b")
        assert receipt["$type"] == "unreadable"
        assert len(book.lines) == 2

    async def test_the_error_of_a_tool_has_its_text_beside_it(self, pages):
        with pytest.raises(McpToolError) as caught:
            await tool(pages(queries=["remove"]), "remove")(title="lamps")
        assert "there is no page lamps" in caught.value.message
        assert "lamps" not in str(caught.value)
        assert not caught.value.transient


class TestOpening:
    async def test_open_learns_what_the_tools_take(self, pages):
        server = pages()
        search = server.tools[0]
        assert not search.misfits({"wrong": 1})
        await server.open()
        assert search is server.tools[0]
        assert len(search.description) == 500
        assert search.description.startswith("Find pages.")
        assert search.misfits({"words": "a", "most": "b"}) == ["/most: must be an integer"]

    async def test_a_tool_the_server_does_not_have_is_refused_with_the_nearest_names(self, pages, book):
        server = pages(queries=["serch", "who"], effects=["ad"])
        with pytest.raises(ConfigurationError) as caught:
            await server.open()
        assert "has no tool 'serch'. Did you mean 'search'?" in str(caught.value)
        assert "has no tool 'ad'. Did you mean 'add'?" in str(caught.value)

    async def test_a_tool_that_went_missing_fails_its_call_for_good(self, pages):
        with pytest.raises(ToolError, match="mcp_no_tool.*Did you mean 'search'") as caught:
            await tool(pages(queries=["serch"]), "serch")()
        assert not caught.value.transient

    async def test_a_variable_that_is_not_set_is_named(self, child, monkeypatch):
        monkeypatch.delenv("NOT_THERE", raising=False)
        server = child(env={"TOKEN": "NOT_THERE"}, effects=["add"])
        assert server.variables == ("TEST_BOOK", "NOT_THERE")
        with pytest.raises(ToolError, match="mcp_setup"):  # before anything was sent: it did not happen
            await tool(server, "add")(CALL, title="a")
        with pytest.raises(ConfigurationError, match="'env' .* that are not set: NOT_THERE"):
            await server.open()

    async def test_a_started_server_gets_the_variables_it_is_given_and_no_secrets_of_ours(
        self, child, monkeypatch
    ):
        monkeypatch.setenv("OUR_TOKEN", "s3cret-value")
        found = await tool(child(env={"TOKEN": "OUR_TOKEN"}), "token")()
        assert found["size"] == len("s3cret-value")
        assert "TOKEN" in found["others"]
        assert "OUR_TOKEN" not in found["others"]

    async def test_headers_come_from_the_environment(self, web, monkeypatch):
        monkeypatch.setenv("OUR_KEY", "s3cret-value")
        url = web(WANTED_HEADER="s3cret-value").url
        server = McpServer("pages", url=url, headers_env={"X-Key": "OUR_KEY"}, queries=["search"])
        await server.open()
        await server.close()
        with pytest.raises(IntegrationMissing, match="HTTP 401") as caught:
            await McpServer("pages", url=url, queries=["search"]).open()
        assert "s3cret" not in str(caught.value)

    async def test_a_program_that_is_not_there_is_named(self):
        with pytest.raises(IntegrationMissing, match="there is no program '/nowhere/server'") as caught:
            await McpServer("docs", command=["/nowhere/server"], queries=["a"]).open()
        assert caught.value.exit_code == 3

    async def test_a_program_that_ends_at_once_has_its_last_words_told_without_secrets(self, monkeypatch):
        monkeypatch.setenv("OUR_TOKEN", "s3cret-value")
        code = "import os, sys; sys.exit('no good: ' + os.environ['TOKEN'])"
        server = McpServer("docs", command=["python", "-c", code], env={"TOKEN": "OUR_TOKEN"}, queries=["a"])
        with pytest.raises(IntegrationMissing, match="its last words: no good: \\*\\*\\*"):
            await server.open()

    async def test_a_program_that_says_nothing_is_given_up_and_ended(self, tmp_path):
        code = silent(tmp_path / "pid")
        server = McpServer("docs", command=["python", "-c", code], queries=["a"], timeout=3)
        with pytest.raises(IntegrationMissing, match="did not answer within 3 seconds"):
            await server.open()
        pid = int((tmp_path / "pid").read_text())
        assert not alive(pid)

    async def test_a_program_that_speaks_something_else_is_given_up(self):
        server = McpServer("docs", command=["sh", "-c", "echo hello; exec cat"], queries=["a"], timeout=2)
        with pytest.raises(IntegrationMissing):
            await server.open()

    @pytest.mark.parametrize("streaming", [True, False])
    async def test_a_web_server_whose_answer_never_ends_is_given_up(self, streaming):
        endless = [Endless(b"x" * 65536, streaming=streaming) for _ in range(4)]
        async with WebServer(*endless) as web:
            server = McpServer("pages", url=f"{web.url}/mcp", queries=("search",), timeout=10)
            with pytest.raises(IntegrationMissing):
                await server.open()
            await server.close()
        assert 0 < sum(one.sent for one in endless) < 64 * 1024 * 1024

    @pytest.mark.parametrize("status", REDIRECTS)
    async def test_a_redirect_is_not_followed_and_no_header_goes_along(self, monkeypatch, status):
        monkeypatch.setenv("OUR_KEY", "s3cret-value")
        async with WebServer(host="127.0.0.2") as other:
            leading = [elsewhere(other, status, "/mcp") for _ in range(6)]
            async with WebServer(*leading) as web:
                server = McpServer(
                    "pages", url=f"{web.url}/mcp", headers_env={"X-Key": "OUR_KEY"}, queries=["search"]
                )
                with pytest.raises(IntegrationMissing):
                    await server.open()
                assert web.asked[0].headers["x-key"] == "s3cret-value"
            assert other.asked == []

    async def test_nobody_at_the_address_means_nothing_was_sent(self, web):
        there = web()
        there.kill()
        server = McpServer("pages", url=there.url, effects=["add"])
        with pytest.raises(ToolError, match="mcp_unreachable.*no connection") as caught:
            await tool(server, "add")(CALL, title="a")
        assert caught.value.transient
        with pytest.raises(IntegrationMissing):
            await server.open()

    def test_without_the_sdk_it_says_what_to_install(self):
        """Exit code 3: a component needed at start-up is not there."""
        code = """
            import asyncio, sys
            for name in ("mcp", "mcp_types", "httpx2", "anyio"):
                sys.modules[name] = None
            from detent.adapters.mcp.server import McpServer
            from detent.kernel.errors import DetentError
            server = McpServer("docs", command=["x"], queries=["a"])
            assert server.tools[0].name == "docs.a"
            try:
                asyncio.run(server.open())
            except DetentError as error:
                print(error)
                sys.exit(error.exit_code)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 3, done.stderr
        assert "pip install 'detent[mcp]'" in done.stdout


class TestBreaking:
    async def test_a_server_killed_between_calls_is_started_again(self, child):
        server = child()
        first = (await tool(server, "who")())["result"]
        kill(int(first))
        await until(lambda: another(server, first))

    async def test_a_web_server_that_starts_anew_is_found_again(self, web, book):
        there = web()
        server = McpServer("pages", url=there.url, queries=["who"], effects=["add"])
        first = (await tool(server, "who")())["result"]
        there.kill()
        with pytest.raises(ToolError) as caught:
            await tool(server, "who")()
        assert caught.value.transient
        with pytest.raises(ToolError) as caught:  # no connection, so it certainly did not happen
            await tool(server, "add")(CALL, title="a")
        assert caught.value.transient
        web(port=there.port)
        await until(lambda: another(server, first))
        await server.close()
        assert not book.lines

    @pytest.mark.parametrize("options", [(), ("--stateless",)], ids=["sessions", "stateless"])
    async def test_a_web_server_killed_in_the_middle_leaves_it_in_doubt(self, web, book, options):
        there = web(*options)
        server = McpServer("pages", url=there.url, effects=["hang"])
        flow = flow_of(server, lambda ctx: Outcome("done", effects=[Effect("pages.hang", {"title": "a"})]))
        async with Engine(MemoryStore(), [flow]) as engine:
            run_id = await engine.start("pages")
            await until(lambda: book.has("hanging"))
            there.kill()
            held = await engine.finish(run_id)
        assert held.status is Status.WAITING
        assert "lost" in next(iter(held.holds.values())).about["error"]
        await server.close()

    async def test_one_call_that_is_given_up_leaves_the_others_alone(self, pages, book):
        server = pages(queries=["who", "search"], effects={"hang": {"timeout": 1.0}})
        first = await tool(server, "who")()
        hanging = asyncio.create_task(tool(server, "hang")(CALL, title="a"))
        await until(lambda: book.has("hanging"))
        assert (await tool(server, "search")(words="b", most=1))["pages"] == ["b 0"]
        with pytest.raises(McpInDoubt, match="did not answer"):
            await hanging
        assert await tool(server, "who")() == first

    async def test_a_frozen_server_is_replaced_and_ended(self, child, book, caplog):
        server = child(queries=["who"], effects={"freeze": {"timeout": 1}})
        await tool(server, "who")()
        with pytest.raises(McpInDoubt, match="within 1 seconds"):
            await tool(server, "freeze")(CALL, title="a")
        await until(lambda: "mcp.silent" in caplog.text)
        frozen = book.pid("frozen")
        assert int((await tool(server, "who")())["result"]) != frozen
        await until(lambda: not alive(frozen))

    async def test_many_calls_at_once_share_one_attempt_to_connect(self, tmp_path):
        code = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')"
        server = McpServer("docs", command=["python", "-c", code], queries=["a"])
        failed = await asyncio.gather(*(tool(server, "a")() for _ in range(20)), return_exceptions=True)
        assert all(isinstance(error, ToolError) and error.transient for error in failed)
        assert (tmp_path / "starts").read_text() == "x"


OLD = ["python", str(Path(__file__).parent / "old.py")]
TEXT = {"type": "text", "text": "jane.doe@example.org"}


class TestWhatAServerSays:
    """The older revisions of the protocol, spoken without the SDK; and answers no good server gives."""

    async def test_an_older_server_is_understood(self):
        server = McpServer("old", command=OLD, queries=["reply"])
        await server.open()
        assert await tool(server, "reply")(body={"result": {"content": [TEXT]}}) == TEXT["text"]
        await server.close()

    @pytest.mark.parametrize("code", [-32601, -32602])
    async def test_an_error_that_says_it_did_not_begin_means_it_did_not_happen(self, code):
        server = McpServer("old", command=OLD, effects=["reply"])
        with pytest.raises(ToolError, match=f"mcp_refused.*{code}") as caught:
            await tool(server, "reply")(CALL, body={"error": {"code": code, "message": TEXT["text"]}})
        assert not caught.value.transient
        assert "jane.doe" not in str(caught.value)
        await server.close()

    @pytest.mark.parametrize(
        "body",
        [
            {"error": {"code": -32603, "message": TEXT["text"]}},
            {"error": {"code": -32000, "message": TEXT["text"]}},
            {"error": {"code": 0, "message": TEXT["text"]}},
            {"result": {"unexpected": TEXT["text"]}},
        ],
        ids=["internal error", "as if closed", "no code", "no answer"],
    )
    async def test_any_other_error_leaves_an_effect_in_doubt_and_fails_a_query(self, body, caplog):
        server = McpServer("old", command=OLD, effects=["reply"])
        with pytest.raises(McpInDoubt) as caught:
            await tool(server, "reply")(CALL, body=body)
        assert "jane.doe" not in str(caught.value)
        await server.close()
        asked = McpServer("old", command=OLD, queries=["reply"])
        with pytest.raises(ToolError):
            await tool(asked, "reply")(body=body)
        await asked.close()
        assert "jane.doe" not in caplog.text

    async def test_a_tool_whose_schema_reaches_out_is_refused_when_opened(self):
        server = McpServer("old", command=OLD, queries=["reply", "far"])
        with pytest.raises(ConfigurationError, match="tool .far.: Its JSON Schema refers to"):
            await server.open()

    @pytest.mark.parametrize(
        ("status", "in_doubt", "again"),
        [(401, False, False), (404, False, True), (429, False, True), (500, True, True), (503, True, True)],
    )
    async def test_an_http_status_says_whether_it_may_have_happened(
        self, listening, monkeypatch, status, in_doubt, again
    ):
        monkeypatch.setenv("STATUS", str(status))
        server = McpServer(
            "pages", url=listening[0].url, headers_env={"X-Answer": "STATUS"}, queries=["search"],
            effects=["add"],
        )  # fmt: skip
        with pytest.raises(McpInDoubt if in_doubt else ToolError, match=f"HTTP {status}"):
            await tool(server, "add")(CALL, title="a")
        with pytest.raises(ToolError) as caught:
            await tool(server, "search")(words="a")
        assert caught.value.transient is again
        await server.close()


FLOOD = ["python", str(Path(__file__).parent / "flood.py")]


class TestFloods:
    """A server started as a child that sends without end is cut off, and what it sent is not kept."""

    async def test_an_endless_line_ends_the_session_while_connecting(self, tmp_path):
        server = McpServer("flood", command=[*FLOOD, "start", str(tmp_path / "n")], queries=["ask"])
        with pytest.raises(IntegrationMissing, match="more than 8,388,608 bytes in one message"):
            await server.open()
        assert (tmp_path / "n").stat().st_size < 64 * 1024 * 1024

    @pytest.mark.parametrize(
        ("how", "why"),
        [
            ("line", "more than 8,388,608 bytes in one message"),
            ("answer", "more than 8,388,608 bytes in one message"),
            ("lines", "more than 10,000 messages nobody asked for"),
            ("requests", "more than 16 requests at a time"),
        ],
    )
    async def test_a_call_that_is_answered_with_a_flood_is_given_up(self, tmp_path, how, why):
        server = McpServer("flood", command=[*FLOOD, how, str(tmp_path / "n")], queries=["ask"])
        with pytest.raises(ToolError, match=f"mcp_lost.*{why}") as caught:
            await tool(server, "ask")()
        assert caught.value.transient
        await server.close()
        assert (tmp_path / "n").stat().st_size < 64 * 1024 * 1024

    async def test_an_effect_that_is_answered_with_a_flood_is_in_doubt(self, tmp_path):
        server = McpServer("flood", command=[*FLOOD, "line", str(tmp_path / "n")], effects=["ask"])
        with pytest.raises(McpInDoubt, match="more than 8,388,608 bytes in one message"):
            await tool(server, "ask")(CALL)
        await server.close()

    async def test_a_list_of_tools_that_never_ends_is_given_up(self, tmp_path):
        server = McpServer("flood", command=[*FLOOD, "pages", str(tmp_path / "n")], queries=["ask"])
        with pytest.raises(IntegrationMissing, match="lists more than 10,000 tools"):
            await server.open()


class TestClosing:
    async def test_no_child_is_left_after_close(self, child, book):
        server = child("--stubborn")
        await server.open()
        pid = book.pid("started")
        assert alive(pid)
        await server.close()
        assert not alive(pid)
        await server.close()

    async def test_a_call_under_way_ends_when_its_server_is_closed(self, child, book):
        server = child(queries=["hang"])
        hanging = asyncio.create_task(tool(server, "hang")(title="a"))
        await until(lambda: book.has("hanging"))
        await server.close()
        with pytest.raises(ToolError) as caught:
            await hanging
        assert caught.value.transient
        assert not alive(book.pid("hanging"))

    async def test_a_closed_server_is_not_started_by_a_late_call_but_by_open(self, child):
        server = child()
        await server.open()
        await server.close()
        with pytest.raises(ToolError, match="mcp_closed"):
            await tool(server, "who")()
        await server.open()
        assert await tool(server, "who")()

    async def test_closing_while_connecting_ends_both(self, tmp_path):
        code = silent(tmp_path / "pid")
        server = McpServer("docs", command=["python", "-c", code], queries=["a"], retry=RetryPolicy())
        calling = asyncio.create_task(tool(server, "a")())
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        await server.close()
        with pytest.raises(ToolError, match="mcp_closed"):
            await calling
        assert not alive(int((tmp_path / "pid").read_text()))

    def test_a_program_that_forgets_to_close_leaves_no_child_either(self, book, tmp_path):
        script = Path(__file__).parent / "pages.py"
        code = f"""
            import asyncio
            from detent.adapters.mcp.server import McpServer
            async def main():
                command = ["python", {str(script)!r}]
                server = McpServer("pages", command=command, env={{"BOOK": "BOOK"}}, queries=["who"])
                print((await server.tools[0].perform())["result"])
            asyncio.run(main())
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, "BOOK": str(book.path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert not alive(int(done.stdout))
