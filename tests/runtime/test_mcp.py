"""MCP servers in the settings, and their tools in the flows that name them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from detent.adapters.stores.memory import MemoryStore
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool
from detent.kernel.errors import ConfigurationError, DefinitionError
from detent.kernel.machine import Machine
from detent.kernel.status import Status
from detent.runtime.mcp import attach, mcp_for, mcp_servers
from detent.runtime.settings import SettingsError, read_settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "mcp"

WHOLE = """
mcp:
  docs:
    command: [python, server.py]
    env: {TOKEN: DOCS_TOKEN}
    queries: [search]
    effects:
      create_page: {idempotent: true, timeout: 60}
      delete_page:
    timeout: 20
  other:
    url: https://example.org/mcp
    headers: {Authorization: OTHER_AUTH}
    queries: [ask]
"""


def read(folder: Path, text: str, **options):
    (folder / "detent.yaml").write_text(text)
    options.setdefault("environ", {})
    return read_settings(folder=folder, **options)


def flow_of(handler=lambda ctx: "done", tools=(), **options) -> Flow:
    machine: Machine[str] = Machine(
        "flow", start="work", moves={"work": ["done"]}, ends={"done": Status.SUCCEEDED}
    )
    return Flow(machine, {"work": Step("work", handler, **options)}, tools=tools)


class TestDeclaring:
    def test_servers_are_made_of_what_the_settings_say(self, tmp_path):
        """The name of the variable that holds a secret is no secret."""
        servers = mcp_servers(read(tmp_path, WHOLE))
        assert [*servers] == ["docs", "other"]
        found = {tool.name: (tool.kind, tool.idempotent) for tool in servers["docs"].tools}
        assert found == {
            "docs.search": ("query", False),
            "docs.create_page": ("effect", True),
            "docs.delete_page": ("effect", False),
        }
        assert servers["docs"].variables == ("DOCS_TOKEN",)
        assert servers["other"].variables == ("OTHER_AUTH",)

    def test_without_the_heading_there_are_none(self, tmp_path):
        settings = read(tmp_path, "budget: {steps: 3}")
        assert mcp_servers(settings) == {}
        assert mcp_for(settings, [flow_of(queries=("docs.search",))]) == []

    def test_all_problems_are_told_at_once_with_their_places(self, tmp_path):
        text = """
mcp:
  docs:
    command: python server.py
    querys: [search]
    effects:
      add: {idempotent: maybe}
  other:
    url: nowhere
    queries: [ask]
    headers: {Authorization: Bearer abcdef}
  third: 3
"""
        with pytest.raises(SettingsError) as caught:
            mcp_servers(read(tmp_path, text))
        assert [str(problem).partition(": ")[::2] for problem in caught.value.problems] == [
            ("detent.yaml:5:5", "'mcp.docs.querys' is unknown. Did you mean 'queries'?"),
            ("detent.yaml:4:5", "'mcp.docs.command' takes a list: the program, then its arguments."),
            ("detent.yaml:7:13", "'mcp.docs.effects.add.idempotent' takes true or false."),
            ("detent.yaml:9:5", "'mcp.other.url' takes an http or https address."),
            (
                "detent.yaml:11:15",
                "'mcp.other.headers.Authorization' takes the name of an environment variable, in capital "
                "letters, never the value itself.",
            ),
            ("detent.yaml:12:3", "'mcp.third' takes named values: a command or a url, and its tools."),
        ]

    def test_a_secret_elsewhere_under_the_heading_is_still_refused(self, tmp_path):
        with pytest.raises(SettingsError, match="secrets come from the environment"):
            read(tmp_path, "mcp: {docs: {token: abcdef}}")

    def test_the_environment_is_heard(self, tmp_path):
        environ = {"DETENT__MCP__DOCS__TIMEOUT": "-1"}
        with pytest.raises(SettingsError, match="DETENT__MCP__DOCS__TIMEOUT: 'mcp.docs.timeout' takes"):
            mcp_servers(read(tmp_path, WHOLE, environ=environ))


class TestAttaching:
    def test_a_flow_gets_what_its_steps_name_and_nothing_else(self, tmp_path):
        with_tools = flow_of(queries=("docs.search",), effects=("docs.create_page",))
        without = flow_of()
        needed = mcp_for(read(tmp_path, WHOLE), [with_tools, without])
        assert [server.name for server in needed] == ["docs"]
        assert {tool.name for tool in with_tools.tools} == {"docs.search", "docs.create_page"}
        assert not list(without.tools)
        with_tools.check()

    def test_attaching_twice_is_attaching_once(self, tmp_path):
        servers, flow = mcp_servers(read(tmp_path, WHOLE)), flow_of(queries=("docs.search",))
        attach(servers, [flow])
        attach(servers, [flow])
        assert len(list(flow.tools)) == 1

    def test_a_tool_that_is_not_declared_is_refused_with_the_nearest(self, tmp_path):
        flow = flow_of(queries=("docs.serch",), effects=("docs.add",))
        with pytest.raises(SettingsError) as caught:
            mcp_for(read(tmp_path, WHOLE), [flow])
        first, second = map(str, caught.value.problems)
        assert "flow 'flow', step 'work': the MCP server 'docs' declares no tool 'serch'" in first
        assert "Did you mean 'docs.search'?" in first
        assert "mcp.docs.queries or mcp.docs.effects" in second

    def test_an_effect_used_as_a_query_is_found_when_the_flow_is_checked(self, tmp_path):
        flow = flow_of(queries=("docs.create_page",))
        mcp_for(read(tmp_path, WHOLE), [flow])
        with pytest.raises(DefinitionError, match="is an effect, not a query"):
            flow.check()

    def test_a_tool_of_the_flows_own_is_not_replaced(self, tmp_path):
        own = Tool("docs.own", lambda: 1, "query")
        flow = flow_of(queries=("docs.own",), tools=[own])
        assert mcp_for(read(tmp_path, WHOLE), [flow]) == []
        clash = flow_of(queries=("docs.search",), tools=[Tool("docs.search", lambda: 1, "query")])
        with pytest.raises(ConfigurationError, match="Two tools are named 'docs.search'"):
            mcp_for(read(tmp_path, WHOLE), [clash])


class TestRunning:
    async def test_a_run_uses_a_server_of_the_settings_started_in_the_folder_of_its_file(self, tmp_path):
        (tmp_path / "server.py").write_text((EXAMPLE / "server.py").read_text())
        settings = read(tmp_path, (EXAMPLE / "detent.yaml").read_text())

        async def work(ctx):
            return Outcome("done", set=await ctx.query("handbook.search", words="lamps"))

        flow = flow_of(work, queries=("handbook.search",))
        mcp_for(settings, [flow])
        async with Engine(MemoryStore(), [flow]) as engine:
            run = await engine.run("flow")
        assert run.data == {"pages": ["Lamps are covered for two years."]}

    def test_the_example_runs(self, tmp_path):
        for file in EXAMPLE.iterdir():
            if file.is_file():
                (tmp_path / file.name).write_bytes(file.read_bytes())
        command = [sys.executable, "flow.py", "kettles"]
        for said in ("written", "answered"):
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(said)
        assert (tmp_path / "handbook.txt").read_text().count("\n") == 1

    def test_nothing_heavy_is_loaded_before_a_server_is_used(self):
        code = (
            "import sys, detent.runtime.mcp; "
            "print([n for n in ('mcp', 'httpx2', 'anyio', 'pydantic') if n in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == "[]", done.stderr
