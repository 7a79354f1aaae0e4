"""The effect that performs a round: its cells are executed, and what they have made is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from detent.engine.tools import EffectCall, Tool
from detent.flows.notebook.kernel.rounds import RoundSpec
from detent.flows.notebook.kernel.session import ACTIONS, KernelSession

KERNEL = "kernel"
"""The resource of a run that cells are executed on."""
RESULT = "result"
"""Name of the probe that gives the text about a round's results."""

ARGUMENTS: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["actions"],
    "properties": {
        "actions": {"type": "array", "items": {"type": "object"}},
        "result": {"type": "string", "default": ""},
        "repairs": {"type": "array", "items": {"type": "string"}, "default": []},
        "raw": {"type": "string", "default": ""},
    },
}
"""What a round asks for; where the run stands is supplied by the run."""

Given = Callable[[Any], Mapping[str, Any]]
Refuses = Callable[[Mapping[str, Any]], Iterable[str]]


async def _run_actions(
    call: EffectCall,
    session: KernelSession,
    actions: Sequence[Mapping[str, Any]],
    result: str = "",
    repairs: Sequence[str] = (),
    raw: str = "",
    *,
    behavior: str,
    iteration: int,
    round: int,
    base: Sequence[str],
    names: Sequence[str],
    criteria: Sequence[str],
    probes: Mapping[str, str],
) -> dict[str, Any]:
    """Write cells and execute their code."""
    session.watch(call.progress)
    asked = {**probes, RESULT: result} if result else dict(probes)
    spec = RoundSpec(actions, behavior, iteration, round, base, names, criteria, asked)
    receipt = await session.run(spec)
    told = (receipt["measured"].get("probes") or {}).pop(RESULT, None)
    return {**receipt, "result": "" if told is None else _text(told)}


def _text(told: Mapping[str, Any]) -> str:
    """The text about the results; where it cannot be made, the reason, so that nobody takes it for one."""
    if told["error"]:
        return f"The results could not be put into words: {told['error']}"
    return str(told["text"] or "")


def _rebuilt(call: EffectCall, session: KernelSession) -> None:
    """A kernel that was opened anew holds what the journal says, so the round can be performed on it."""


def cell_tool(given: Given, refuses: Refuses, timeout: float | None = None) -> Tool:
    """The effect; `given` says where the run stands, `refuses` what agents may not ask for."""
    return Tool(
        ACTIONS, _run_actions, wants_call=True, resource=KERNEL, rebuild=_rebuilt, given=given,
        refuses=refuses, timeout=timeout, arguments=ARGUMENTS,
        description="Write text and code cells into the notebook, and execute the code.",
    )  # fmt: skip
