"""The tools a request may call, as an assistant sees them: the flow's, those of MCP servers, skills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from detent.dispatch.agent_tools import AgentTool
from detent.engine.schemas import misfits
from detent.engine.tools import Tool
from detent.flows.coding.audit_tool import NAME as AUDIT
from detent.flows.coding.audit_tool import SPEC as AUDIT_SPEC
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.tools.spec import SPECS, ToolSpec, problems
from detent.kernel.errors import nearest

ANALYZER, AUDITOR, WORKER = "analyzer", "migration-auditor", "worker"
PROFILES: Mapping[str, str] = {
    ANALYZER: ANALYZER, "codebase-analyzer": ANALYZER, AUDITOR: AUDITOR, WORKER: WORKER,
}  # fmt: skip
"""The profiles of sub-runs, by every name they have."""
OWN: Mapping[str, ToolSpec] = {**SPECS, AUDIT: AUDIT_SPEC}
"""The tools of the flow itself."""


class ToolRegistry:
    """The tools of a flow."""

    def __init__(self, further: Iterable[Tool], tool: Callable[[str], Tool]) -> None:
        self.further = {tool.name: tool.kind for tool in further}
        """Tools of servers, of the project and of skills: they know no workspace."""
        self._tool = tool
        """Gives a tool of the flow; what one of a server takes is known once the server was opened."""

    @property
    def names(self) -> frozenset[str]:
        """Every tool there is."""
        return frozenset((*OWN, *self.further))

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """The names of queries, or of effects."""
        own = [spec.name for spec in OWN.values() if spec.kind == kind]
        return (*own, *(name for name, other in self.further.items() if other == kind))

    def spec(self, name: str) -> ToolSpec | None:
        """A tool as an assistant sees it; None if there is none."""
        if name in self.further:
            tool = self._tool(name)
            return ToolSpec(name, tool.kind, tool.description, tool.schema)
        return OWN.get(name)

    def _specs(self) -> Iterator[ToolSpec]:
        yield from OWN.values()
        for name in self.further:
            tool = self._tool(name)
            yield ToolSpec(name, tool.kind, tool.description, tool.schema)

    def offered(self, options: RequestOptions) -> Sequence[AgentTool]:
        """The tools shown to the assistant of a request."""
        return tuple(
            AgentTool(
                spec.name, "query" if spec.kind == "query" else "effect", spec.description, spec.parameters
            )
            for spec in self._specs()
            if is_for(spec, options)
        )

    def refusal(self, name: str, args: Any, options: RequestOptions) -> tuple[str, str] | None:
        """Why a call cannot be made, as a code and a text for the assistant; None if it can."""
        spec = self.spec(name)
        if spec is None or not is_for(spec, options):
            known = [offered.name for offered in self.offered(options)]
            reason = "is not available in this request" if spec is not None else "does not exist"
            hint, listed = nearest(name, known), ", ".join(known)
            return "unknown_tool", f"The tool '{name[:80]}' {reason}.{hint} Tools: {listed}."
        if not isinstance(args, Mapping):
            return "invalid_arguments", f"The arguments of '{name}' are no JSON object: {str(args)[:200]!r}."
        found = misfits(args, spec.parameters) if name in self.further else problems(spec, args)
        if found:
            return "invalid_arguments", f"'{name}' cannot be called like this: {'; '.join(found[:10])}."
        return None


def is_for(spec: ToolSpec, options: RequestOptions) -> bool:
    """Whether a tool is offered to the assistant of a request."""
    if spec.name == AUDIT:
        return options.profile == AUDITOR
    if options.profile in (ANALYZER, AUDITOR):
        return spec.kind == "query"
    return not (options.read_only and spec.kind == "effect")
