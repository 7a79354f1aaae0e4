"""The output of an agent's step, concluded from what its effects gave back.

An agent that has acted says only what no receipt holds. A field of the output takes its value from the
receipt that has a field of this name, the last one first, else from an argument of this name; only what is
still missing is asked of the agent. A step may bring a rule of its own (`AgentSide.from_receipts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side
from detent.engine.acts import Act
from detent.engine.schemas import misfits
from detent.kernel.plain import copied, to_plain

if TYPE_CHECKING:
    from detent.engine.step import Step


def known_fields(
    step: Step, schema: Mapping[str, Any] | None, acts: Sequence[Act], *, arguments: bool = True
) -> dict[str, Any]:
    """The fields of the output that the performed effects settle, by receipts and, if wanted, arguments."""
    performed = [act for act in acts if act.happened]
    if not performed:
        return {}
    own = agent_side(step).from_receipts
    if own is not None:
        return dict(to_plain(own(performed)))
    known: dict[str, Any] = {}
    for name, part in fields_of(schema).items():
        held = _held(name, [act.receipt for act in performed])
        if held:  # also one that breaks the contract: it is not replaced by an agent's word
            known[name] = copied(held[-1])
            continue
        fitting = [
            value
            for value in _held(name, [act.effect.args for act in performed] if arguments else ())
            if not misfits(value, _alone(part, schema))
        ]
        if fitting:
            known[name] = copied(fitting[-1])
    return known


def _held(name: str, sources: Sequence[Any]) -> list[Any]:
    return [source[name] for source in sources if isinstance(source, Mapping) and name in source]


def held_by_receipts(output: Any, acts: Sequence[Act]) -> dict[str, Any]:
    """The parts of an undeclared output that a receipt holds, which are never taken from an agent."""
    if not isinstance(output, Mapping):
        return {}
    held: dict[str, Any] = {}
    for act in acts:
        if act.happened and isinstance(act.receipt, Mapping):
            held |= {name: act.receipt[name] for name in output if name in act.receipt}
    return held


def claimed_places(output: Any, names: Collection[str]) -> Iterator[tuple[str, str, Any]]:
    """The places of an output, at any depth, whose key is one of these names: pointer, name, value."""
    pending: list[tuple[str, Any]] = [("", output)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, list):
            pending += [(f"{place}/{index}", item) for index, item in enumerate(value)]
        elif isinstance(value, Mapping):
            yield from ((f"{place}/{key}", key, item) for key, item in value.items() if key in names)
            pending += [(f"{place}/{key}", item) for key, item in value.items()]


def told_names(acts: Sequence[Act]) -> set[str]:
    """The names of all that the receipts of performed effects hold, at any depth."""
    names: set[str] = set()
    pending: list[Any] = [act.receipt for act in acts if act.happened]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            names.update(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return names


def missing_fields(schema: Mapping[str, Any] | None, known: Mapping[str, Any]) -> list[str] | None:
    """The required fields that are not known; None if that cannot be said, so that the agent must answer."""
    if schema is None or schema.get("type") != "object" or not fields_of(schema):
        return None
    return [name for name in schema.get("required", ()) if name not in known]


def fields_of(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The declared fields of an object's schema."""
    properties = (schema or {}).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def asked_fields(schema: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The schema of an object with only these fields."""
    properties = {name: part for name, part in fields_of(schema).items() if name in names}
    return _alone({"type": "object", "properties": properties, "required": list(names)}, schema)


def _alone(part: Any, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """A part of a schema with the definitions it may refer to."""
    definitions = (schema or {}).get("$defs")
    own = dict(part) if isinstance(part, Mapping) else {}
    return {**own, "$defs": definitions} if definitions else own
