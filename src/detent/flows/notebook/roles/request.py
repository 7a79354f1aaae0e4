"""What an agent in a role is given: the state, the whole notebook, and what went wrong before.

A long notebook is shortened from its oldest outputs on, then its oldest sources; each says what was left out.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from detent.flows.notebook.cells import Cell
from detent.flows.notebook.roles.role import Role
from detent.flows.notebook.run_view import NotebookRun
from detent.flows.notebook.state.state_json import export_state

LONGEST = 48_000
"""Characters of the notebook in a request."""
RECENT_CELLS, RECENT_TEXT, EARLIER_TEXT = 5, 2000, 200
"""The last cells whose outputs are shown at length, and the characters of theirs and of earlier outputs."""


def request_for(
    run: NotebookRun, role: Role, outputs: Mapping[str, str], messages: Sequence[str] = ()
) -> dict[str, Any]:
    """The request of a role; `outputs` has the text of each cell's outputs, by cell id."""
    plain = export_state(run.document)
    behavior = run.document.behaviors.current
    cells = run.live if behavior is None else run.live_with_attempt
    request: dict[str, Any] = {
        "role": role.name,
        "observation": plain["observation"],
        "state": plain["state"],
        "notebook": notebook_text(cells, outputs),
    }
    if role.kind == "T4" and behavior is not None:
        # What earlier behaviors have printed is for those whose plan asks for it.
        effects = request["state"]["effects"]
        request["state"] = {**request["state"], "effects": {**effects, "history": []}}
        wanted = (behavior.model_extra or {}).get("effects") is True
        if wanted and (printed := previous_output(run, outputs)):
            request["previous_output"] = printed
    if feedback := feedback_of(run):
        request["behavior_feedback"] = feedback
    if messages:
        request["messages"] = list(messages)
    return request


def previous_output(run: NotebookRun, outputs: Mapping[str, str]) -> str:
    """What the cells of the behavior before the current one have printed."""
    current = run.document.behaviors.current
    own = None if current is None else current.behavior_id
    earlier = [cell for cell in run.live if cell.is_code and cell.behavior not in (None, own)]
    last = earlier[-1].behavior if earlier else None
    return "\n".join(text for cell in earlier if cell.behavior == last and (text := outputs.get(cell.id)))


def feedback_of(run: NotebookRun) -> dict[str, Any] | None:
    """What became of the iteration before; None in a first one."""
    behavior = run.document.behaviors.current
    if behavior is None or run.iteration < 2:
        return None
    earlier = [
        cell for cell in run.cells
        if cell.behavior == behavior.behavior_id and cell.iteration == run.iteration - 1
    ]  # fmt: skip
    codes = [cell for cell in earlier if cell.is_code]
    return {
        "behavior_id": behavior.behavior_id,
        "actions_executed": len(earlier),
        "actions_succeeded": sum(cell.status in (None, "ok") for cell in earlier),
        "sections_added": sum(cell.kind == "section" for cell in earlier),
        "last_action_result": (codes[-1].error or codes[-1].status or "") if codes else "",
        "what_failed": (behavior.whathappened or {}).get("if_continuing_behavior", ""),
    }


def notebook_text(cells: Sequence[Cell], outputs: Mapping[str, str]) -> str:
    """All cells in order, the outputs of the last ones at length."""
    codes = [cell.id for cell in cells if cell.is_code]
    recent = set(codes[-RECENT_CELLS:])
    sources = [_source(cell) for cell in cells]
    shown = [_shown(outputs.get(cell.id, ""), cell.id in recent) if cell.is_code else "" for cell in cells]

    def size() -> int:
        return sum(map(len, sources)) + sum(map(len, shown))

    for index, cell in enumerate(cells):
        if size() <= LONGEST:
            break
        if shown[index] and cell.id not in recent:
            shown[index] = "(output left out)\n"
    for index, cell in enumerate(cells):
        if size() <= LONGEST:
            break
        if cell.is_code and cell.id not in recent:
            sources[index] = f"[{cell.id} code] (source left out; it defines {_defined(cell.source)})\n"
    return "".join(text for pair in zip(sources, shown, strict=True) for text in pair)


def _source(cell: Cell) -> str:
    kind = "code" if cell.is_code else "markdown"
    return f"[{cell.id} {kind}]\n{cell.text}\n"


def _shown(text: str, recent: bool) -> str:
    most = RECENT_TEXT if recent else EARLIER_TEXT
    if not text:
        return ""
    cut = text if len(text) <= most else f"{text[:most]} … ({len(text) - most} characters left out)"
    return f"[output]\n{cut}\n"


def _defined(source: str) -> str:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return "nothing that can be told"
    names = dict.fromkeys(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return ", ".join([*functions, *names]) or "nothing"


def rendered(request: Mapping[str, Any]) -> str:
    """A request as the text of a prompt: each part under its name."""
    parts: list[str] = []
    for name, value in request.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        parts.append(f"{name.upper()}\n{text}")
    return "\n\n".join(parts)
