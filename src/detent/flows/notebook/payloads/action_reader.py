"""T4 from elements: actions in document order."""

from __future__ import annotations

from detent.flows.notebook.payloads.code_text import code_of
from detent.flows.notebook.payloads.part import Part
from detent.flows.notebook.payloads.values import Action, Actions
from detent.flows.notebook.payloads.vocabulary import ACTION_TAGS, CODE


def actions(root: Part) -> Actions:
    """T4."""
    root.is_at("actions")
    parts = root.many(*ACTION_TAGS)
    return Actions(tuple(_action(part, f"actions[{index}]") for index, part in enumerate(parts)))


def _action(part: Part, place: str) -> Action:
    part.is_at(place)
    tag = part.element.tag
    kind = ACTION_TAGS[tag]
    if tag == CODE:
        code, rule = code_of(part.element.raw)
        if rule is not None:
            part.findings.rules.add(rule)
        return Action(kind, code)
    if f"<{CODE}" in part.body:
        part.findings.flag(f"text: {part.path} holds <{CODE}> as text")
    if kind == "communicate":
        return Action(kind, part.body, to=_agent(part))
    if kind == "note":
        return Action(kind, part.body, name=part.attribute("name") or "")
    return Action(kind, part.body)


def _agent(part: Part) -> str:
    """The agent a communication is for, in lower case."""
    name = (part.attribute("to") or "").strip()
    if name != name.lower():
        part.findings.rules.add("R10")
    return name.lower()
