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
from detent.kernel.errors import nearest
from detent.runtime.settings import Settings, SettingsError

if TYPE_CHECKING:
    from detent.engine.flow import Flow

HEADING = "mcp"


def mcp_servers(settings: Settings) -> dict[str, McpServer]:
    """The declared servers by name.

    Raises:
        SettingsError: some declarations are wrong; it lists every problem with its place.
    """
    messages: list[str] = []
    servers: dict[str, McpServer] = {}
    for name, entry in settings.section(HEADING).items():
        name = str(name)
        if not isinstance(entry, Mapping):
            messages.append(
                _message(settings, (name,), "takes named values: a command or a url, and its tools.")
            )
            continue
        wrong = problems(name, entry)
        messages += [_message(settings, (name, *path), problem) for path, problem in wrong]
        if not wrong:
            servers[name] = _server(settings, name, entry)
    if messages:
        raise SettingsError("The settings", messages)
    return servers


def attach(servers: Mapping[str, McpServer], flows: Iterable[Flow]) -> list[McpServer]:
    """Give every flow the MCP tools its steps name, and return the servers that these tools need.

    A flow that names no MCP tool gets none, so its runs never connect to a server.

    Raises:
        SettingsError: steps name undeclared tools of declared servers; it lists every problem.
    """
    tools = {tool.name: (server, tool) for server in servers.values() for tool in server.tools}
    needed: dict[str, McpServer] = {}
    problems: list[str] = []
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


def _message(settings: Settings, path: Way, problem: str) -> str:
    """A problem, with the place of the nearest key above it."""
    whole = (HEADING, *path)
    known_path = next(
        (whole[:end] for end in range(len(whole), 0, -1) if whole[:end] in settings.places), whole
    )
    return f"{settings.place(*known_path)}: '{'.'.join(whole)}' {problem}"


def _undeclared(flow: str, step: str, name: str, tools: Mapping[str, Any]) -> str:
    server, _, tool = name.partition(".")
    return (
        f"flow '{flow}', step '{step}': the MCP server '{server}' declares no tool '{tool}'."
        f"{nearest(name, tools)} Name it under {HEADING}.{server}.queries or {HEADING}.{server}.effects."
    )
