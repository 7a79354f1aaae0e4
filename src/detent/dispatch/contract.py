"""What an agent's answer for a step must look like, and reading one that claims to.

The hard contract (declared output schema, allowed effects and their arguments, allowed next states) is kept
here: an answer that breaks it is no answer. The soft contract, the handler's return annotation, is only
measured; what it is worth is for the gate to say.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side, is_straight
from detent.dispatch.equivalence import Discrepancy
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.proposal import Proposal
from detent.engine import schemas
from detent.engine.outcome import Effect, Hold, Outcome, Receipt
from detent.engine.step import Step
from detent.kernel.errors import ConfigurationError
from detent.kernel.placeholders import STAND_IN
from detent.kernel.plain import pointer_to, to_plain

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.engine.tools import Tool

ENVELOPE = ("output", "effects", "next_state", "reason")
LONGEST_REASON = 200
MOST_EFFECTS = 50
"""In one answer."""


@dataclass(frozen=True)
class Contract:
    """The shape of a step's answer."""

    step: str
    hard: Any
    """Class or JSON Schema the output must fit; None when the step declares none."""
    soft: Any
    """The handler's return annotation; None when it says nothing useful."""
    next: tuple[str, ...]
    """States the answer may name."""
    names_next: bool
    """The answer must name one: no condition of the table chooses."""
    effects: Mapping[str, Tool]
    spreads: bool
    """The output is laid over the run's data, so it must be a mapping."""

    @classmethod
    def of(cls, step: Step, flow: Flow, tools: Mapping[str, Tool]) -> Contract:
        """The contract of a step in its flow, with the tools it may use."""
        machine = flow.machine
        here = machine.state(flow.state_of(step))
        there = tuple(machine.named(state) for state in machine.allowed(here))
        side = agent_side(step)
        chosen = step.next if step.next is not None else there
        moves = [move for move in machine.moves.get(here, ()) if machine.named(move.to) in chosen]
        decided = all(move.when is not None for move in moves[:-1])
        return cls(
            step.name,
            step.output_schema,
            _told(step),
            chosen,
            side.names_next
            if side.names_next is not None
            else len(chosen) > 1 and not decided and step.conclude is None,
            {name: tool for name, tool in tools.items() if tool.kind == "effect"},
            step.conclude is None and step.into is None,
        )

    @property
    def envelope(self) -> bool:
        """The answer is more than the bare output."""
        return self.names_next or bool(self.effects)

    @property
    def text(self) -> bool:
        """A bare text is an answer."""
        return not self.envelope and (self.hard if self.hard is not None else self.soft) is str

    @cached_property
    def output(self) -> Mapping[str, Any] | None:
        """JSON Schema of the output: the hard contract, else the soft one; None when nothing is known."""
        said = self.hard if self.hard is not None else self.soft
        return None if said is None else schemas.schema_of(said)

    @cached_property
    def schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the whole answer, for models that can decode under one."""
        if not self.envelope:
            return self.output
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {"output": _lifted(self.output or {}, definitions)}
        required = ["output"]
        if self.effects:
            properties["effects"] = {
                "type": "array",
                "items": {"anyOf": [_lifted(_effect(tool), definitions) for tool in self.effects.values()]},
            }
            required.append("effects")
        if self.names_next:
            properties["next_state"] = {"type": "string", "enum": list(self.next)}
            required.append("next_state")
        properties["reason"] = {"type": "string", "maxLength": LONGEST_REASON}
        whole: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        return {**whole, "$defs": definitions} if definitions else whole

    @cached_property
    def _closed(self) -> Mapping[str, Any]:
        """The soft contract, with no room for keys it does not name."""
        return schemas.strictly(schemas.schema_of(self.soft))

    def read(self, answer: Any, proposed: Iterable[Effect] = ()) -> Proposal:
        """A parsed answer as a proposal; `OutputSchemaValidationError` when it breaks the hard contract.

        `proposed` are the effects asked for through the toolbox; they come first.
        """
        problems: list[str] = []
        said: Mapping[str, Any] = {"output": answer}
        if self.envelope:
            if not isinstance(answer, Mapping):
                raise self.broken([f"/: must be an object with the keys {', '.join(self._asked())}"])
            said = answer
            if not set(answer) <= set(ENVELOPE):
                problems.append(f"/: has keys nobody asked for (asked for: {', '.join(self._asked())})")
            if "output" not in answer and (self.hard is not None or self.soft is not None):
                problems.append("/: lacks output")
        effects, names = self._effects(said.get("effects"), list(proposed), problems)
        given = _renamed(said.get("output"), names)
        output, plain = self._output(given, problems)
        following = self._next(said.get("next_state"), problems)
        reason = said.get("reason")
        if problems:
            raise self.broken(problems)
        return Proposal(output, following, tuple(effects), str(reason) if reason else None, plain, given)

    def soft_misfits(self, output: Any) -> tuple[tuple[Discrepancy, ...], int]:
        """Where an output departs from the soft contract."""
        if self.soft is None:
            return (), 0
        wrong = schemas.misfits(to_plain(output), self._closed)
        found = tuple(
            Discrepancy(place if place != "/" else "", _kind(what))
            for place, _, what in (line.partition(": ") for line in _without_receipts(wrong, output))
        )
        return found[:50], max(0, len(found) - 50)

    def broken(self, problems: Iterable[str]) -> OutputSchemaValidationError:
        """The error for an answer that breaks this contract."""
        return OutputSchemaValidationError(self.step, "its contract", list(problems)[:20])

    # -- parts ----------------------------------------------------------------------------------------------

    def _asked(self) -> list[str]:
        return [
            "output",
            *(["effects"] if self.effects else []),
            *(["next_state"] if self.names_next else []),
        ]

    def _output(self, value: Any, problems: list[str]) -> tuple[Any, Any]:
        if isinstance(value, Mapping) and value.get("success") is False:
            return value, value  # a failed step, whoever says so; the dispatcher makes it one
        output = value
        if self.hard is not None:
            output, wrong = _read_with_receipts(value, self.hard)
            where = "/output" if self.envelope else ""
            problems += [f"{where}{line}" for line in wrong]
            if wrong:
                return None, None
        elif self.soft is not None and not _receipt_places(value):
            decoded, wrong = schemas.read(value, self.soft)
            output = value if wrong else decoded
        plain = to_plain(output)
        if self.spreads and plain is not None and not isinstance(plain, dict):
            problems.append("/output: must be an object" if self.envelope else "/: must be an object")
        return output, plain

    def _effects(
        self, said: Any, proposed: list[Effect], problems: list[str]
    ) -> tuple[list[Effect], dict[str, str]]:
        """All effects wanted, and what their names in the answer stand for."""
        # What the toolbox was asked for goes by the reference it gave.
        names = {key: key for key in (one.identity(self.step) for one in proposed)}
        if said is None:
            return proposed, names
        if not isinstance(said, list) or len(said) > MOST_EFFECTS:
            problems.append(f"/effects: must be a list of at most {MOST_EFFECTS}")
            return proposed, names
        for index, item in enumerate(said):
            where = f"/effects/{index}"
            if not isinstance(item, Mapping) or not isinstance(item.get("tool"), str):
                problems.append(f"{where}: must be an object with tool and args")
                continue
            name, args, key = item["tool"], item.get("args", {}), item.get("key")
            tool = self.effects.get(name)
            if tool is None:
                there = ", ".join(self.effects) or "none"
                problems.append(f"{where}/tool: is not allowed here. Allowed: {there}")
                continue
            if not isinstance(args, Mapping) or not isinstance(key, str | None):
                problems.append(f"{where}: args must be an object and key a text")
                continue
            filled = _renamed(dict(args), names)
            wrong = _without_receipts(tool.misfits(to_plain(filled)), filled)
            problems += [f"{where}/args{line}" for line in wrong]
            if not wrong:
                effect = Effect(name, filled, key)
                proposed.append(effect)
                if key is not None:
                    names[key] = effect.identity(self.step)
        return proposed, names

    def _next(self, said: Any, problems: list[str]) -> str | None:
        if said is None:
            if self.names_next:
                problems.append(f"/next_state: must be one of {', '.join(self.next)}")
            return None
        if said not in self.next:
            problems.append(f"/next_state: must be one of {', '.join(self.next)}")
            return None
        return str(said)


def _told(step: Step) -> Any:
    """What is said of the handler's output, where that says something an agent could be told."""
    hint = returns if (returns := agent_side(step).returns) is not None else schemas.returns_of(step.handler)
    if isinstance(hint, Mapping):
        return hint
    if hint is None or (not isinstance(hint, type) and typing.get_origin(hint) is None):
        return None
    parts = typing.get_args(hint) or (hint,)
    if any(part in (Outcome, Hold) for part in (hint, *parts)) or (hint is str and is_straight(step)):
        return None
    try:
        schemas.schema_of(hint)
    except ConfigurationError:  # a class of one's own: nothing an agent could be told
        return None
    return hint


def _effect(tool: Tool) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"tool": {"const": tool.name}, "args": tool.schema, "key": {"type": "string"}},
        "required": ["tool", "args"],
        "additionalProperties": False,
    }


def _lifted(schema: Mapping[str, Any], definitions: dict[str, Any]) -> Any:
    """A schema fit to stand inside another: its definitions go to the top of the whole."""

    def walk(node: Any) -> Any:
        if isinstance(node, Mapping):
            definitions.update({name: walk(inner) for name, inner in node.get("$defs", {}).items()})
            return {key: walk(value) for key, value in node.items() if key != "$defs"}
        return [walk(item) for item in node] if isinstance(node, list) else node

    return walk(schema)


def _kind(message: str) -> typing.Literal["type", "value", "missing", "extra", "length"]:
    if message.startswith("lacks"):
        return "missing"
    if message.startswith("has keys"):
        return "extra"
    return "type" if message.startswith("must be ") and "one of" not in message else "value"


# -- receipts in answers ------------------------------------------------------------------------------------


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Stand-ins that name an effect by the key the answer gave it, as stand-ins for that effect."""
    if isinstance(value, Mapping):
        if isinstance(value.get(STAND_IN), str) and len(value) == 1:
            key, _, path = value[STAND_IN].partition(".")
            return Receipt(names[key], path) if key in names else value
        return {key: _renamed(item, names) for key, item in value.items()}
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value


def _receipt_places(value: Any, place: str = "") -> set[str]:
    if isinstance(value, Receipt):
        return {place or "/"}
    if isinstance(value, Mapping):
        return set().union(
            *(_receipt_places(item, f"{place}{pointer_to([str(key)])}") for key, item in value.items())
        )
    if isinstance(value, list):
        return set().union(*(_receipt_places(item, f"{place}/{index}") for index, item in enumerate(value)))
    return set()


def _without_receipts(problems: list[str], value: Any) -> list[str]:
    """Problems that are not about a value which is only known later."""
    places = _receipt_places(value)
    # A whole place, not the beginning of another one's name.
    about = tuple(start for place in places for start in (f"{place}:", f"{place}/" if place != "/" else "/"))
    return [line for line in problems if not line.startswith(about)]


def _read_with_receipts(value: Any, what: Any) -> tuple[Any, list[str]]:
    output, wrong = schemas.read(to_plain(value), what)
    if not _receipt_places(value):
        return output, wrong
    return value, _without_receipts(wrong, value)  # checked once more when the receipts are there
