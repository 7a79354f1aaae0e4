"""The lines of an agent's reply, and how they are read.

    NEXT_STEP: 02-look-it-up
    REASON: an order number was found
    BODY:
    Good morning, …

Only lines of the reply itself count: not those in code fences, not quoted ones (`>`, `|`, quotation marks),
and never anything that was shown to the agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detent.flows.playbook.folder import OutputLine
from detent.flows.playbook.instruction import folded
from detent.kernel.plain import to_plain

NEXT_STEP, REASON, BODY = "NEXT_STEP", "REASON", "BODY"

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_EMPHASIS = r"[*_`]*"
_INLINE = re.compile(r"NEXT_STEP:\s*(\S+)", re.IGNORECASE)
_PAIRS = {'"': '"', "“": "”", "„": "”", "«": "»", "‘": "’", "'": "'", "`": "`"}
_WRAPPING = "\"'`“”„‘’«»()[]{}<>*_"
_TRAILING = ".,;"
_NOTHING_SAID = frozenset({"", "-", "—", "none", "null", "n/a", "na", "absent", "missing"})


@dataclass(frozen=True, slots=True)
class Reply:
    """An agent's reply, read."""

    next_step: str | None = None
    """The canonical name of the chosen step; None if it chose none that may follow."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Further output lines by key, cleaned."""
    reason: str | None = None
    body: str | None = None
    problems: tuple[str, ...] = ()
    """Its problems. Each says what would have been right and repeats no words of the reply."""
    form: Mapping[str, Any] | None = None
    """The facts of a form filled in, in place of lines; then no step is named."""


def read_reply(
    text: str,
    *,
    allowed: Sequence[str],
    aliases: Mapping[str, str] | None = None,
    lines: Iterable[OutputLine] = (),
) -> Reply:
    """Read a reply.

    `allowed` are the steps that may follow, `aliases` all names of steps (compared without case), `lines` the
    output lines beyond NEXT_STEP, REASON and BODY.
    """
    known = {folded(name): step for name, step in (aliases or {}).items()}
    known |= {folded(step): step for step in allowed}
    output_lines = {line.key: line for line in lines}
    blocks, loose = _blocks(text, (NEXT_STEP, REASON, BODY, *output_lines))
    problems: list[str] = []
    names = ", ".join(allowed) or "none"
    routes = [_route(value) for value in blocks.get(NEXT_STEP, ())]
    if not routes:
        routes = [_cleaned(match) for line in loose for match in _unquoted(line)]
    routes = [route for route in routes if route]
    chosen = {known.get(folded(route), folded(route)) for route in routes}
    next_step: str | None = None
    if not chosen:
        problems.append(f"NEXT_STEP is missing. Add one line 'NEXT_STEP: <name>'. Allowed: {names}")
    elif len(chosen) > 1:
        problems.append(f"NEXT_STEP is said with different values. Say one. Allowed: {names}")
    elif (only := next(iter(chosen))) in allowed:
        next_step = only
    elif only in known.values():
        problems.append(f"NEXT_STEP names a step that may not follow this one. Allowed: {names}")
    else:
        problems.append(f"NEXT_STEP names no step. Allowed: {names}")
    outputs: dict[str, str] = {}
    for key, line in output_lines.items():
        values = [_value_of(value, line.takes) for value in blocks.get(key, ())]
        values = [value for value in values if value.casefold() not in _NOTHING_SAID]
        if len(set(values)) > 1:
            problems.append(f"{key} is said with different values. Say one.")
        elif values:
            outputs[key] = values[0]
    bodies = list(dict.fromkeys(body for body in map(_body, blocks.get(BODY, ())) if body))
    if len(bodies) > 1:
        problems.append("BODY is said with different texts. Say one.")
    reasons = [reason for reason in map(_unwrapped, blocks.get(REASON, ())) if reason]
    return Reply(
        next_step, outputs, reasons[-1] if reasons else None, bodies[0] if bodies else None, tuple(problems)
    )


def _blocks(text: str, keys: Collection[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The texts after each key, and the remaining lines that are neither quoted nor part of a text."""
    names = "|".join(re.escape(key) for key in sorted(keys, key=len, reverse=True))
    output = re.compile(rf"\s*+(?:[*_`]++\s*+)?({names}){_EMPHASIS}\s*:{_EMPHASIS}(.*)", re.IGNORECASE)
    blocks: dict[str, list[str]] = {}
    loose: list[str] = []
    here: str | None = None
    waiting = False
    """Whether the value of a NEXT_STEP is still to come, on a later line."""
    fence: str | None = None
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        edge = _FENCE.match(line)
        inside = fence is not None
        if edge is not None:
            if fence is None:
                fence, inside = edge.group(1), True
            elif edge.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
        quoted = line.lstrip().startswith((">", "|"))
        match = None if inside or quoted else output.fullmatch(line)
        if match is not None:
            here = match.group(1).upper()
            blocks.setdefault(here, []).append(match.group(2).strip())
            waiting = here == NEXT_STEP and not _cleaned(match.group(2))
            continue
        if here == BODY:
            blocks[BODY][-1] += f"\n{line}"
            continue
        if inside or quoted or not line.strip():
            continue
        if waiting:
            blocks[NEXT_STEP][-1] = line
            waiting = False
            continue
        loose.append(line)
    return blocks, loose


def _unquoted(line: str) -> list[str]:
    """The NEXT_STEP values inside a line that do not stand in quotation marks."""
    return [match.group(1) for match in _INLINE.finditer(line) if not _in_quotes(line, match.start())]


def _in_quotes(line: str, position: int) -> bool:
    """Whether a place in a line lies between quotation marks, closed or not."""
    closing: str | None = None
    for index, char in enumerate(line[:position]):
        if closing is not None:
            closing = None if char == closing else closing
        elif char in _PAIRS and not (char == "'" and index and line[index - 1].isalnum()):  # no apostrophe
            closing = _PAIRS[char]
    return closing is not None


def _route(value: str) -> str:
    """The step a NEXT_STEP line names."""
    words = value.split()
    return _cleaned(words[0]) if words else ""


def _cleaned(value: str) -> str:
    """A value without what surrounds it: quotes, brackets, emphasis, `.,;` at its end, `.md`."""
    before = None
    while value != before:
        before = value
        value = value.strip().strip(_WRAPPING).rstrip(_TRAILING)
        if value.lower().endswith(".md"):
            value = value[:-3]
    return value


def _value_of(value: str, takes: str) -> str:
    if takes == "token":
        words = _unwrapped(value).split()
        return _cleaned(words[0]) if words else ""
    return _unwrapped(value)


def _unwrapped(value: str) -> str:
    """A line without emphasis and without the pair of marks around the whole of it."""
    value = value.strip().strip("*").strip()
    while len(value) > 1 and (
        _PAIRS.get(value[0]) == value[-1] or value[0] + value[-1] in ("<>", "[]", "()")
    ):
        value = value[1:-1].strip()
    return value


def _body(value: str) -> str:
    """A text without a fence around the whole of it."""
    value = value.strip()
    lines = value.split("\n")
    edge = _FENCE.match(lines[0])
    if edge is not None and len(lines) > 2 and lines[-1].strip() == edge.group(1):
        value = "\n".join(lines[1:-1]).strip()
    return value


def render(
    *,
    next_step: str | None,
    outputs: Mapping[str, Any] | None = None,
    reason: str | None = None,
    calls: Iterable[tuple[str, Any, Any]] = (),
    body: str | None = None,
) -> str:
    """A step's outcome in the lines of the protocol; only those that apply.

    `calls` are function, arguments and result.
    """
    lines = [f"{key}: {_plain(value)}" for key, value in (outputs or {}).items() if value not in (None, "")]
    if reason:
        lines.append(f"{REASON}: {reason}")
    for function, args, result in calls:
        lines.append(f"CALL: {function} {_json(args)}")
        if result is not None:
            lines.append(f"RESULT: {_json(result)}")
    if body:
        lines.append(f"{BODY}: {body}")
    if next_step:
        lines.append(f"{NEXT_STEP}: {next_step}")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(to_plain(value), ensure_ascii=False, sort_keys=True)
