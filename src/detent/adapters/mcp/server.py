"""An MCP server whose declared tools a flow can use: as queries, or as effects where declared so.

Only declared tools exist for Detent, whatever else the server offers. They exist before a connection is made;
`open` connects and learns their arguments. The session itself is in `connection`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.adapters.mcp.answers import Listed, Unreadable, answer_of, text_of
from detent.adapters.mcp.declaration import EffectRules, problems, rules_of
from detent.adapters.mcp.faults import CallFault, McpInDoubt, McpToolError
from detent.engine import logger
from detent.engine.calls import over
from detent.engine.schemas import misfits
from detent.engine.tools import EffectCall, Tool, ToolError
from detent.kernel.errors import ConfigurationError, IntegrationMissing, nearest
from detent.kernel.policy import USUAL, RetryPolicy

if TYPE_CHECKING:
    from detent.adapters.mcp.connection import Connection

__all__ = ["EffectRules", "McpServer"]

IDEMPOTENCY_KEY = "detent/idempotency-key"
"""The key in a request's `_meta` under which the server finds the same text at every attempt at an effect."""
STILL_THERE = 5.0
"""Seconds a server gets to show that it answers at all, after a call it did not answer."""


class McpServer:
    """A server and its declared tools.

    It is started with `command`, or reached at `url`. `env` gives a started server its environment variables
    and `headers_env` every request its headers, each by the name of the variable **of this process** that
    holds the value. `before` is called before each connection and may refuse it by raising.
    """

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        headers_env: Mapping[str, str] | None = None,
        queries: Sequence[str] = (),
        effects: Mapping[str, EffectRules | Mapping[str, Any] | None] | Sequence[str] = (),
        timeout: float = 30.0,
        retry: RetryPolicy = USUAL,
        cwd: Path | str | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        declaration = {
            "command": command, "url": url, "env": env, "headers": headers_env, "queries": queries,
            "effects": effects, "timeout": timeout,
        }  # fmt: skip
        if found_problems := problems(name, declaration):
            lines = [f"'{'.'.join(keys)}' {message}" if keys else message for keys, message in found_problems]
            raise ConfigurationError(f"MCP server '{name}': {' '.join(lines)}")
        self.name = name
        self._command = tuple(command or ())
        self._url = url or ""
        self._env = dict(env or {})
        self._headers_env = dict(headers_env or {})
        self._timeout = float(timeout)
        self._cwd = Path(cwd) if cwd is not None else None
        self._before = before
        self._effects = rules_of(effects)
        self._tools = {
            **{tool: self._query(tool) for tool in dict.fromkeys(queries)},
            **{tool: self._effect(tool, rules, retry) for tool, rules in self._effects.items()},
        }
        self._connection: Connection | None = None
        self._all: set[Connection] = set()
        """Connections that may not have ended yet."""
        self._connecting: asyncio.Task[Connection] | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, tools={len(self._tools)})"

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The declared tools, named `<server>.<tool>`. Their arguments are known once the server was open."""
        return tuple(self._tools.values())

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables its secrets come from."""
        return tuple(dict.fromkeys([*self._env.values(), *self._headers_env.values()]))

    # -- life -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and learn the arguments of the tools.

        Raises:
            ConfigurationError: a variable is not set, or the server lacks a declared tool.
            IntegrationMissing: the server cannot be reached, or the SDK is not installed.
        """
        self._closed = False
        try:
            connection = await self._connected()
            if lacking := [problem for tool in self._tools if (problem := self._problem(connection, tool))]:
                raise ConfigurationError("\n".join(lacking))
        except CallFault as fault:
            await self.close()
            raise IntegrationMissing(str(fault)) from fault
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session, and the process if one was started. Never waits for ever."""
        self._closed = True
        tasks: list[asyncio.Task[Any]] = [*self._checks]
        if self._connecting is not None:
            tasks.append(self._connecting)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._connection = None
        ending = [asyncio.ensure_future(connection.close()) for connection in self._all]
        if ending:
            await asyncio.wait(ending)
        self._all.clear()

    async def _connected(self) -> Connection:
        """The session, made anew when there is none or it broke. All callers share one attempt."""
        connection = self._connection
        if connection is not None and connection.alive:
            return connection
        if self._closed:
            raise CallFault("mcp_closed", f"MCP server '{self.name}' was closed.", sent=False)
        if self._connecting is None:
            self._connecting = asyncio.create_task(
                self._connect(), name=f"mcp {self.name} connecting", context=Context()
            )
            self._connecting.add_done_callback(self._settled)
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            if self._closed:  # the attempt was cancelled, not this call
                raise CallFault("mcp_closed", f"MCP server '{self.name}' was closed.", sent=False) from None
            raise

    def _settled(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # retrieved, as no caller may be waiting

    async def _connect(self) -> Connection:
        connection = self._new()
        began = asyncio.get_running_loop().time()
        self._all = {old for old in self._all if old.busy}
        self._all.add(connection)
        await connection.open(self._timeout)
        for tool, listed in connection.tools.items():
            _update(self._tools[tool], listed)
        self._connection = connection
        seconds = asyncio.get_running_loop().time() - began
        logger.info(
            "mcp.connected", server=self.name, tools=len(connection.tools), ms=round(seconds * 1000, 1)
        )
        return connection

    def _new(self) -> Connection:
        if self._before is not None:
            self._before()
        try:
            from detent.adapters.mcp.connection import Connection, Target
        except ImportError as error:
            raise IntegrationMissing(
                f"MCP server '{self.name}' needs the package 'mcp' ({error.name} is not installed). "
                f"Get it with: pip install 'detent[mcp]'"
            ) from error
        patience = max([self._timeout, *(rules.timeout or 0.0 for rules in self._effects.values())])
        target = Target(
            self.name, self._command, self._cwd, self._from_environment("env", self._env), self._url,
            self._from_environment("headers", self._headers_env), patience,
        )  # fmt: skip
        return Connection(target, self._tools)

    def _from_environment(self, setting: str, variables: Mapping[str, str]) -> dict[str, str]:
        missing = [variable for variable in variables.values() if not os.environ.get(variable)]
        if missing:
            raise ConfigurationError(
                f"MCP server '{self.name}': '{setting}' takes values from environment variables that are not "
                f"set: {', '.join(missing)}."
            )
        return {name: os.environ[variable] for name, variable in variables.items()}

    # -- tools ----------------------------------------------------------------------------------------------

    def _query(self, tool: str) -> Tool:
        async def perform(**args: Any) -> Any:
            try:
                return await self._answer(tool, args, None, self._timeout)
            except CallFault as fault:
                raise ToolError(fault.code, fault.message, transient=fault.transient) from fault
            except Unreadable as error:
                raise ToolError("mcp_answer", f"The answer of '{self._full(tool)}': {error}.") from None

        return Tool(
            self._full(tool), perform, "query", description=self._described(tool), arguments=_anything()
        )

    def _effect(self, tool: str, rules: EffectRules, retry: RetryPolicy) -> Tool:
        timeout = rules.timeout or self._timeout

        async def perform(call: EffectCall, /, **args: Any) -> Any:
            try:
                return await self._answer(tool, args, {IDEMPOTENCY_KEY: call.idempotency_key}, timeout)
            except CallFault as fault:
                if fault.sent:
                    raise McpInDoubt(fault.message) from fault
                raise ToolError(fault.code, fault.message, transient=fault.transient) from fault
            except Unreadable as error:  # the effect happened nevertheless
                logger.warning("mcp.receipt_dropped", server=self.name, tool=tool)
                return {"$type": "unreadable", "why": str(error)}

        return Tool(
            self._full(tool), perform, "effect", idempotent=rules.idempotent, wants_call=True, retry=retry,
            description=self._described(tool), arguments=_anything(),
        )  # fmt: skip

    def _full(self, tool: str) -> str:
        return f"{self.name}.{tool}"

    def _described(self, tool: str) -> str:
        return f"The tool '{tool}' of the MCP server '{self.name}'."

    async def _answer(
        self, tool: str, args: Mapping[str, Any], meta: Mapping[str, Any] | None, timeout: float
    ) -> Any:
        """Call a tool and read its answer. A fault says whether the request was sent."""
        try:
            connection = await self._connected()
        except (ConfigurationError, IntegrationMissing) as error:
            raise CallFault("mcp_setup", str(error), sent=False, transient=False) from error
        if problem := self._problem(connection, tool):
            raise CallFault("mcp_no_tool", problem, sent=False, transient=False)
        if problems := await over(args, misfits, dict(args), connection.tools[tool].schema):
            text = f"'{self._full(tool)}' does not take these arguments: {'; '.join(problems)}."
            raise CallFault("mcp_arguments", text, sent=False, transient=False)
        try:
            result = await connection.call(tool, args, meta=meta, timeout=timeout)
        except CallFault as fault:
            if fault.code == "mcp_timeout":
                self._check(connection)
            raise
        if result.is_error:
            message = text_of(result)
            logger.debug("mcp.tool_failed", server=self.name, tool=tool, said=message)
            raise McpToolError(self._full(tool), message)
        return answer_of(result)

    def _problem(self, connection: Connection, tool: str) -> str:
        """The reason a declared tool cannot be called; empty when it can."""
        listed: Listed | None = connection.tools.get(tool)
        if listed is None:
            names = ", ".join(sorted(connection.names)) or "none"
            return (
                f"MCP server '{self.name}' has no tool '{tool}'.{nearest(tool, connection.names)} "
                f"Its tools: {names[:500]}."
            )
        return f"MCP server '{self.name}', tool '{tool}': {listed.problem}" if listed.problem else ""

    def _check(self, connection: Connection) -> None:
        """After a call without an answer, retire the connection unless the server still answers."""

        async def check() -> None:
            if connection.alive and not await connection.answers(STILL_THERE):
                logger.warning("mcp.silent", server=self.name)
                connection.retire()

        task = asyncio.create_task(check(), name=f"mcp {self.name} check", context=Context())
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)


def _anything() -> dict[str, Any]:
    """The schema of a tool's arguments until the server was asked."""
    return {"type": "object"}


def _update(tool: Tool, listed: Listed) -> None:
    """Fill in what a server says about a tool, which was not known when the tool was made.

    The flows hold this very object. Its schema is replaced, not changed: a check against the old one may
    have kept it.
    """
    object.__setattr__(tool, "arguments", listed.schema or _anything())
    if listed.description:
        object.__setattr__(tool, "description", listed.description)
