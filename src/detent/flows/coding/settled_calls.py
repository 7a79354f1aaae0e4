"""What a call's result says where a person had a say in it: changed it, said it happened, or skipped it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detent.engine.tools import Toolbox
from detent.flows.coding.reply import CodingCall, ToolResult
from detent.flows.coding.tools.spec import SUPPLIED
from detent.kernel.plain import canonical, to_plain

BY_CODE = SUPPLIED | {"timeout"}
"""Arguments that code adds to a call, or lowers."""
SKIPPED = (
    "It was interrupted, and a person decided to go on without it. It is not known whether it was done, or "
    "in part."
)
HAPPENED = "It was interrupted. A person said that it happened; what it gave back is not known."
TOLD = "It was interrupted. A person said that it happened, and this is what it gave back:"
LONGEST_CHANGE = 2000
"""Characters of a changed argument that are shown; of a command all are."""


def told_result(call: CodingCall, how: Mapping[str, Any]) -> ToolResult | None:
    """The result of an effect in doubt that a person has settled; None if none did.

    `how` is how the effect was settled, as the run keeps it.
    """
    receipt = how.get("receipt")
    if how.get("skipped"):
        return ToolResult(call.id, call.tool, False, SKIPPED, "interrupted")
    if not how.get("told"):
        return None
    if receipt is None:
        return ToolResult(call.id, call.tool, True, HAPPENED)
    content = receipt.get("content") if isinstance(receipt, Mapping) else receipt
    text = content if isinstance(content, str) else canonical(to_plain(receipt))
    ok = bool(receipt.get("ok", True)) if isinstance(receipt, Mapping) else True
    return ToolResult(call.id, call.tool, ok, f"{TOLD}\n{text}", None if ok else "failed")


def changed_arguments(tools: Toolbox, call: CodingCall, how: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a person has changed before the effect was performed."""
    performed = how.get("args")
    if "key" not in how or call.tool not in tools or not isinstance(performed, Mapping):
        return {}
    asked = tools.get(call.tool, "effect").normal(call.args)
    return {
        name: value
        for name, value in to_plain(performed).items()
        if name not in BY_CODE and value != asked.get(name)
    }


def with_changes(result: ToolResult, changed: Mapping[str, Any]) -> ToolResult:
    """A result that says what a person has changed in its call."""
    if not changed:
        return result
    told = "\n".join(f"{name}: {_shown(name, value)}" for name, value in changed.items())
    head = f"A person changed this call before it was carried out. What was carried out has:\n{told}\n"
    return replace(result, content=f"{head}Its result:\n{result.content}", changed=dict(changed))


def _shown(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else canonical(value)
    if name == "command" or len(text) <= LONGEST_CHANGE:
        return text
    return f"{text[:LONGEST_CHANGE]}… ({len(text):,} characters)"
