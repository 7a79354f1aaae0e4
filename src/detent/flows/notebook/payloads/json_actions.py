"""T4 in its JSON forms: actions of `add` and `exec`, of titles, sections, thinking and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from detent.flows.notebook.payloads.code_text import python_of, tidied
from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.payload_error import MISSING, VALUE, quoted
from detent.flows.notebook.payloads.values import Action, ActionKind, Actions
from detent.flows.notebook.payloads.vocabulary import ACTION_TAGS
from detent.flows.notebook.payloads.xml_text import SPACE
from detent.kernel.errors import nearest

LAST_CELL = "lastAddedCellId"
"""Names the code cell that was added last."""

_KINDS: Mapping[str, ActionKind] = {
    "update_title": "update_title",
    "new_chapter": "update_section_title",
    "new_step": "update_step_title",
    "new_section": "add_section",
    "comment_result": "add_text",
    "update_last_text": "add_text",
    **{tag.replace("-", "_"): kind for tag, kind in ACTION_TAGS.items()},
}
_JOURNALED = frozenset({
    "is_thinking", "finish_thinking", "set_effect_as_thinking", "mark_step_complete", "mark_stage_complete",
    "complete_reflection",
})  # fmt: skip
_SHOTS: Mapping[str, ActionKind] = {
    "dialogue": "add_text",
    "observation": "add_text",
    "markdown": "add_text",
    "action": "add_code",
    "code": "add_code",
}
_TEXTS = ("content", "text", "code", "source", "title", "message", "thinking_text", "custom_text")
_CELL_IDS = ("codecell_id", "cell_id", "store_id", "id")


def is_action(item: Any) -> bool:
    """Whether a JSON value is an action, or holds some, in one of these forms."""
    if isinstance(item, list):
        return bool(item) and all(is_action(inner) for inner in item)
    if not isinstance(item, Mapping):
        return False
    if isinstance(item.get("actions"), list):
        return all(is_action(inner) for inner in item["actions"])
    named = item.get("action", item.get("type"))
    return isinstance(named, str) or is_action(named)


def actions_of(values: Sequence[Any], findings: Findings) -> Actions:
    """The actions of a sequence of JSON values: objects, arrays, bare or under `action` or `actions`.

    Adding a code cell and executing it runs the code once.
    """
    cells = _Cells()
    made: list[Action] = []
    for path, item in _flat(values, ""):
        action = _action(item, path, cells, findings)
        if action is not None:
            findings.places[f"actions[{len(made)}]"] = (path, 0)
            made.append(action)
    return Actions(tuple(made))


class _Cells:
    """The code cells that the payload has added so far."""

    def __init__(self) -> None:
        self._by_id: dict[str, str] = {}
        self._last: str | None = None

    def add(self, code: str, names: Sequence[str]) -> None:
        self._last = code
        self._by_id.update(dict.fromkeys(names, code))

    def code(self, name: str | None) -> str | None:
        """The code of a cell of this payload; None for any other cell."""
        return self._last if name in (None, LAST_CELL) else self._by_id.get(str(name))


def _flat(values: Sequence[Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for index, item in enumerate(values):
        here = f"{path}/{index}"
        if isinstance(item, list):
            yield from _flat(item, here)
            continue
        inner = item.get("actions", item.get("action"))
        if isinstance(inner, list):
            yield from _flat(inner, here)
        elif isinstance(inner, Mapping):
            yield from _flat([inner], here)
        else:
            yield here, item


def _action(item: Mapping[str, Any], path: str, cells: _Cells, findings: Findings) -> Action | None:
    named = str(item.get("action", item.get("type")))
    kind = named.strip().lower().replace("-", "_")
    text = _text(item, path, findings)
    if kind in _JOURNALED:
        return Action("note", (text or "").strip(SPACE), name=kind)
    if kind == "exec":
        return _executed(item, text, path, cells, findings)
    made = _shot(item, path, findings) if kind == "add" else _KINDS.get(kind)
    if made is None:
        if kind != "add":
            findings.flag(f"unused: {path}, an action {quoted(named)}.{nearest(kind, _KINDS)}")
        return None
    if text is None:
        findings.refuse(MISSING, f"the action {quoted(named)} has no content", path)
        return None
    if made == "add_code":
        code = _code(text, findings)
        cells.add(code, _ids(item))
        return Action("add_code", code)
    text = text.strip(SPACE)
    if made == "communicate":
        return Action(made, text, to=str(item.get("to", "")).strip().lower())
    return Action(made, text, name=str(item.get("name", "")) if made == "note" else "")


def _executed(
    item: Mapping[str, Any], text: str | None, path: str, cells: _Cells, findings: Findings
) -> Action | None:
    """What an `exec` adds: its own code, unless that is the cell's; nothing for a cell of this payload."""
    names = [*_ids(item), *([LAST_CELL] if item.get(LAST_CELL) is not None else [])]
    if isinstance(item.get(LAST_CELL), str):
        names.insert(0, item[LAST_CELL])
    known = next((code for name in names if (code := cells.code(name)) is not None), None)
    if not names:
        known = cells.code(None)
    if text is not None and text.strip():
        code = _code(text, findings)
        if code == known:
            return None
        cells.add(code, [name for name in names if name != LAST_CELL])
        return Action("add_code", code)
    if known is not None:
        return None
    if not names:
        findings.refuse(MISSING, "the action 'exec' has neither code nor a cell", path)
        return None
    return Action("note", names[0], name="exec")


def _shot(item: Mapping[str, Any], path: str, findings: Findings) -> ActionKind | None:
    shot = item.get("shot_type", "dialogue")
    made = _SHOTS.get(shot.strip().lower()) if isinstance(shot, str) else None
    if made is None:
        listed = ", ".join(_SHOTS)
        findings.refuse(VALUE, f"shot_type {quoted(str(shot))} is none of: {listed}", f"{path}/shot_type")
    return made


def _text(item: Mapping[str, Any], path: str, findings: Findings) -> str | None:
    for key in _TEXTS:
        value = item.get(key)
        if isinstance(value, str):
            return value
        if value is not None:
            findings.refuse(VALUE, "must be a text", f"{path}/{key}")
            return ""
    return None


def _code(text: str, findings: Findings) -> str:
    code, rule = python_of(tidied(text))
    if rule is not None:
        findings.rules.add(rule)
    return code


def _ids(item: Mapping[str, Any]) -> list[str]:
    return [str(item[key]) for key in _CELL_IDS if isinstance(item.get(key), str | int)]
