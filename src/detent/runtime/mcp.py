"""MCP servers declared in the settings, and their tools, added to the flows whose steps name them.

```yaml
mcp:
  docs:
    command: [python, server.py]
    env: {TOKEN: DOCS_TOKEN}
    queries: [search]
    effects: {create_page: {idempotent: true}}
    timeout: 20
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from detent.adapters.mcp.declaration import Way, problems
from detent.adapters.mcp.server import McpServer
from detent.authoring.names import Nearest
from detent.authoring.problem import Problem
from detent.runtime.settings import Settings, SettingsError

if TYPE_CHECKING:
    from detent.engine.flow import Flow

HEADING = "mcp"


def mcp_servers(settings: Settings) -> dict[str, McpServer]:
    """The declared servers by name.

    Raises:
        SettingsError: some declarations are wrong; it lists every problem with its place.
    """
    wrong: list[Problem] = []
    servers: dict[str, McpServer] = {}
    for name, entry in settings.section(HEADING).items():
        name = str(name)
        if not isinstance(entry, Mapping):
            text = "takes named values: a command or a url, and its tools."
            wrong.append(_problem(settings, (name,), text))
            continue
        found = problems(name, entry)
        wrong += [_problem(settings, (name, *path), text) for path, text in found]
        if not found:
            servers[name] = _server(settings, name, entry)
    if wrong:
        raise SettingsError("The settings", wrong)
    return servers


def attach(servers: Mapping[str, McpServer], flows: Iterable[Flow]) -> list[McpServer]:
    """Give every flow the MCP tools its steps name, and return the servers that these tools need.

    A flow that names no MCP tool gets none, so its runs never connect to a server.

    Raises:
        SettingsError: steps name undeclared tools of declared servers; it lists every problem.
    """
    tools = {tool.name: (server, tool) for server in servers.values() for tool in server.tools}
    needed: dict[str, McpServer] = {}
    problems: list[Problem] = []
    for flow in flows:
        for step in flow.every_step():
            for name in dict.fromkeys([*(step.queries or ()), *(step.effects or ())]):
                if name in tools:
                    server, tool = tools[name]
                    flow.tools.add(tool)
                    if server not in flow.needs:
                        flow.needs.append(server)
                    needed[server.name] = server
                elif name not in flow.tools and name.partition(".")[0] in servers:
                    problems.append(_undeclared(flow.name, step.name, name, tools))
    if problems:
        raise SettingsError("The steps", problems)
    return list(needed.values())


def mcp_for(settings: Settings, flows: Iterable[Flow]) -> list[McpServer]:
    """The servers these flows need, attached to them and not yet open."""
    return attach(mcp_servers(settings), flows) if settings.get(HEADING) is not None else []


def _server(settings: Settings, name: str, entry: Mapping[str, Any]) -> McpServer:
    return McpServer(
        name,
        command=entry.get("command"),
        url=entry.get("url"),
        env=entry.get("env"),
        headers_env=entry.get("headers"),
        queries=entry.get("queries") or (),
        effects=entry.get("effects") or (),
        timeout=entry.get("timeout") or 30.0,
        cwd=settings.base(HEADING, name, "command"),
        before=lambda: _check_keys(settings, name),
    )


def _check_keys(settings: Settings, name: str) -> None:
    """Raise `KeyRefused` if a header of the server would send a key to a host that is not allowed."""
    from detent.runtime.key_hosts import KeyHosts
    from detent.runtime.key_uses import key_uses

    for use in key_uses(settings):
        if use.where == f"{HEADING}.{name}":
            KeyHosts(settings).check(use)


def _problem(settings: Settings, path: Way, text: str) -> Problem:
    keys = (HEADING, *path)
    return settings.problem(keys, f"'{'.'.join(keys)}' {text}")


def _undeclared(flow: str, step: str, name: str, tools: Mapping[str, Any]) -> Problem:
    server, _, tool = name.partition(".")
    message = (
        f"flow '{flow}', step '{step}': the MCP server '{server}' declares no tool '{tool}'. "
        f"Name it under {HEADING}.{server}.queries or {HEADING}.{server}.effects."
    )
    return Problem("", message, suggestions=Nearest().of(name, tools))
