"""`read_payload`: an answer's text, in XML or JSON, as a checked value.

Strict first. If that fails, one repair pass, whose rules are named in the result, and strict again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from detent.flows.notebook.payloads import json_text
from detent.flows.notebook.payloads.action_reader import actions
from detent.flows.notebook.payloads.checks import NOTHING_KNOWN, Known, checked
from detent.flows.notebook.payloads.code_text import ends_in_comment, python_of, tidied
from detent.flows.notebook.payloads.element import MOST_BYTES, NotXml, parse
from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.json_actions import actions_of, is_action
from detent.flows.notebook.payloads.kinds import PayloadKind
from detent.flows.notebook.payloads.part import Part
from detent.flows.notebook.payloads.payload_error import (
    CHARACTER,
    CUT,
    LIMIT,
    NO_PAYLOAD,
    PayloadError,
    problem,
)
from detent.flows.notebook.payloads.plain import kind_of_plain, value_of
from detent.flows.notebook.payloads.plan_reader import behavior_plan, stage_plan, step_plan
from detent.flows.notebook.payloads.reflection_reader import behavior_reflection
from detent.flows.notebook.payloads.repair import repaired
from detent.flows.notebook.payloads.stage_reflection_reader import stage_reflection
from detent.flows.notebook.payloads.values import Actions, Payload, ReadPayload
from detent.flows.notebook.payloads.vocabulary import ROOTS
from detent.flows.notebook.payloads.xml_text import FORBIDDEN

_READERS: Mapping[PayloadKind, Callable[[Part], Payload]] = {
    "T1": stage_plan,
    "T2": step_plan,
    "T3": behavior_plan,
    "T4": actions,
    "T5": behavior_reflection,
    "T6": stage_reflection,
}
_ANY_ROOT = re.compile(rf"<(?:{'|'.join([*ROOTS, 'behaviour'])})[\s/>]")


def read_payload(
    text: str | bytes,
    *,
    expected: PayloadKind | None = None,
    known: Known = NOTHING_KNOWN,
    cut: bool = False,
) -> ReadPayload:
    """The payload that an answer holds.

    `expected`: the kind it must be; otherwise the root element says. `known`: facts of the run it must fit.
    `cut`: whether its author was cut off, as at the limit of tokens.

    Raises:
        PayloadError: there is no payload, it breaks its schema, or a part of it could be missing.
    """
    subject = f"{expected} payload" if expected else "payload"
    content = _content(text, subject)
    json_start = json_text.START.search(content)
    root = _ANY_ROOT.search(content)
    if json_start is not None and (root is None or json_start.start() < root.start()):
        read = _from_json(content, expected, known, cut, subject)
    else:
        read = _from_xml(content, expected, known, subject)
    if cut and _may_go_on(read.value):
        why = "the text is cut off after a comment, in which the end of the code may only be quoted"
        raise PayloadError(subject, [problem(CUT, why)])
    return read


def _content(text: str | bytes, subject: str) -> str:
    """The text with line ends as XML has them, within the limits."""
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        raise PayloadError(subject, [problem(LIMIT, f"the text has {size} bytes, allowed are {MOST_BYTES}")])
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise PayloadError(subject, [problem(CHARACTER, "the text is not UTF-8", "", line)]) from None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if found := FORBIDDEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        why = f"the text holds the character U+{ord(found[0]):04X}"
        raise PayloadError(subject, [problem(CHARACTER, why, "", line)])
    return text


def _may_go_on(value: Payload) -> bool:
    """Whether the last cell of a payload ends in a comment: what seems to close it may be part of that."""
    if not isinstance(value, Actions):
        return False
    last = value.actions[-1]
    return last.kind == "add_code" and ends_in_comment(last.text)


# -- XML ----------------------------------------------------------------------------------------------------


def _from_xml(text: str, expected: PayloadKind | None, known: Known, subject: str) -> ReadPayload:
    try:
        return _strictly(text, expected, known, subject)
    except NotXml as error:
        if error.final:
            raise PayloadError(subject, [error.problem]) from None
    except PayloadError as error:
        if any(one.code == NO_PAYLOAD for one in error.problems):
            raise
    try:
        mended = repaired(text, expected)
        return _strictly(mended.text, expected, known, subject, mended.rules)
    except NotXml as error:
        raise PayloadError(subject, [error.problem]) from None


def _strictly(
    text: str,
    expected: PayloadKind | None,
    known: Known,
    subject: str,
    rules: frozenset[str] = frozenset(),
) -> ReadPayload:
    document = parse(text)
    kind = document.vocabulary.kind
    findings = Findings(rules=set(rules), details={"format": "xml"})
    if expected not in (None, kind):
        why = f"the text holds <{document.root.tag}>, a {kind} payload"
        raise PayloadError(subject, [problem(NO_PAYLOAD, why, "", document.root.line)])
    if document.renamed:
        findings.rules.add("R8")
    root = Part(document.root, document.root.tag, findings)
    value = _READERS[kind](root)
    root.finish()
    return _result(value, findings, known, subject)


# -- JSON ---------------------------------------------------------------------------------------------------


def _from_json(text: str, expected: PayloadKind | None, known: Known, cut: bool, subject: str) -> ReadPayload:
    findings = Findings(details={"format": "json"})
    values = json_text.values_in(text, findings)
    if findings.problems:
        raise PayloadError(subject, findings.problems)
    values = json_text.normalised(values, findings)
    if expected in (None, "T4") and values and all(is_action(value) for value in values):
        value: Payload | None = actions_of(values, findings)
        if cut:
            _take_cut(value, findings)
    else:
        value = _plain_value(values, expected, findings)
    if value is None:
        raise PayloadError(subject, findings.problems)
    return _result(value, findings, known, subject)


def _take_cut(value: Payload | None, findings: Findings) -> None:
    """Note that actions may be missing at the end (R7). Without code, what was to come is not known."""
    if isinstance(value, Actions) and not value.has_code:
        findings.refuse(CUT, "the text is cut off before any code", "")
    findings.rules.add("R7")


def _plain_value(values: list[Any], expected: PayloadKind | None, findings: Findings) -> Payload | None:
    kind = kind_of_plain(values[0]) if len(values) == 1 else None
    kind = kind if expected is None or kind is None else expected
    if kind is None:
        why = (
            "the text holds no JSON of a payload" if len(values) < 2 else "the text holds several JSON values"
        )
        findings.refuse(NO_PAYLOAD, why, "")
        return None
    data = values[0]
    listed = data.get("actions")
    bodies = listed if kind == "T4" and isinstance(listed, list) else []
    codes = {
        index: python_of(tidied(item["text"]))
        for index, item in enumerate(bodies)
        if isinstance(item, dict) and item.get("kind") == "add_code" and isinstance(item.get("text"), str)
    }
    data = json_text.trimmed(data)
    for index, (code, rule) in codes.items():
        data["actions"][index]["text"] = code
        if rule is not None:
            findings.rules.add(rule)
    return value_of(kind, data, findings)


# -- both ---------------------------------------------------------------------------------------------------


def _result(value: Payload, findings: Findings, known: Known, subject: str) -> ReadPayload:
    value = checked(value, findings, known)
    if findings.problems:
        raise PayloadError(subject, findings.problems)
    if "R7" in findings.rules:
        findings.flag("recovered: the text was cut off")
    rules = tuple(sorted(findings.rules, key=lambda rule: int(rule[1:])))
    return ReadPayload(value, rules, tuple(findings.flags), findings.details)
