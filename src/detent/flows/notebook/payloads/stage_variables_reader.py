"""The four lists of variables in T6, in both of its shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from detent.flows.notebook.payloads.part import TRUE_FALSE, Part
from detent.flows.notebook.payloads.payload_error import MISSING
from detent.flows.notebook.payloads.values import Deprecated, Extracted, Gap, Retained, VariableManagement

QUALITY = ("complete", "partial", "needs_validation")
URGENCY = ("critical", "important")
NO_REPLACEMENT = frozenset({"", "none", "null", "n/a", "-"})
_GAPS = ("missing", "missing_variable", "gap", "variable")


def variable_management(root: Part) -> VariableManagement:
    """The four lists; each may be absent, all of them together may not."""
    holder = root.one("variable_management")
    extracted, long_extracted = _list(root, "extracted_from_notebook", "variables_extracted_from_notebook")
    retain, long_retain = _list(root, "retain", "variables_to_retain")
    deprecate, long_deprecate = _list(root, "deprecate", "variables_to_deprecate")
    gaps, long_gaps = _list(root, "gaps", "variable_gap_analysis")
    if not any((holder, extracted, retain, deprecate, gaps)):
        root.findings.refuse(MISSING, "<variable_management> is missing", root.path, root.line)
    retained = tuple(_retained(part) for part in retain.many("variable"))
    if long_retain or not retain:
        retained = _with_next_uses(retained, root)
    return VariableManagement(
        extracted=tuple(_extracted(part, long_extracted) for part in extracted.many("variable")),
        retain=retained,
        deprecate=tuple(_deprecated(part, long_deprecate) for part in deprecate.many("variable")),
        gaps=tuple(_gap(part, long_gaps) for part in gaps.many(*(_GAPS if long_gaps else ("missing",)))),
    )


def _list(root: Part, short: str, long: str) -> tuple[Part, bool]:
    """A list, and whether it is the long shape's."""
    part = root.first(f"variable_management/{short}", required=False)
    if part:
        return part, False
    other = root.at(f"//{long}")
    return (other, True) if other else (part, False)


def _name(part: Part) -> str:
    return (part.attribute("name", required=True) or "").strip()


def _said(part: Part, attribute: str, *tags: str) -> str:
    """What an attribute says, or else an element."""
    value = part.attribute(attribute)
    if value is not None:
        return value.strip()
    return part.first(*(tags or (attribute,)), required=False).body


def _extracted(part: Part, long: bool) -> Extracted:
    kind = _said(part, "type") if long else (part.attribute("type") or "").strip()
    summary = part.first("summary", *(("value_summary", "description") if long else ()), required=False).body
    said = part.one("quality")
    quality: Any = _choice(said, QUALITY) if said and said.body else None
    source = (part.attribute("source") or "").strip()
    return Extracted(_name(part), type=kind, source=source, summary=summary, quality=quality)


def _choice(part: Part, allowed: tuple[str, ...]) -> str:
    """The body of a part, one of the allowed words."""
    return part.findings.choice(part.body, allowed, part.path, part.line)


def _retained(part: Part) -> Retained:
    return Retained(_name(part), next_use=(part.attribute("next_use") or "").strip())


def _with_next_uses(retained: tuple[Retained, ...], root: Part) -> tuple[Retained, ...]:
    """Retained variables of the long shape, which says elsewhere what needs them."""
    uses: dict[str, str] = {}
    for listed in root.everywhere("variables_required_for_next"):
        for part in listed.everywhere("variable"):
            uses.setdefault(_name(part), _said(part, "required_by", "required_by", "next_use") or part.body)
    known = {item.name for item in retained}
    changed = tuple(replace(item, next_use=item.next_use or uses.get(item.name, "")) for item in retained)
    return changed + tuple(Retained(name, use) for name, use in uses.items() if name not in known)


def _deprecated(part: Part, long: bool) -> Deprecated:
    replacement = _said(part, "replacement") if long else (part.attribute("replacement") or "").strip()
    safe = part.chosen_attribute("safe", TRUE_FALSE, required=False)
    if safe is None and long and (said := part.one("safe_to_delete")):
        safe = _choice(said, TRUE_FALSE)
    return Deprecated(
        _name(part),
        replacement=None if replacement.lower() in NO_REPLACEMENT else replacement,
        safe=None if safe is None else safe == "true",
    )


def _gap(part: Part, long: bool) -> Gap:
    if long:
        needed = _said(part, "needed_for") or _said(part, "required_by")
        how = part.first("how_to_obtain", "resolution", "resolution_strategy", required=False).body
    else:
        needed = (part.attribute("needed_for") or "").strip()
        how = part.one("how_to_obtain").body
    urgency: Any = part.chosen_attribute("urgency", URGENCY)
    return Gap(_name(part), needed, urgency, how)
