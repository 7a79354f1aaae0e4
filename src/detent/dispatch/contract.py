"""The contract of a step's answer, and reading an agent's answer under it.

The hard contract (declared output schema, allowed effects and their arguments, allowed next states) is
enforced here: an answer that breaks it is rejected. Departures from the soft contract, the handler's return
annotation, are only listed; the gate weighs them.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from detent.dispatch.agent_side import agent_side, is_straight
from detent.dispatch.equivalence import Discrepancy
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.proposal import Proposal
from detent.engine import schemas
from detent.engine.outcome import Effect, Hold, Outcome
from detent.engine.step import Step
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.engine.tools import Tool

ENVELOPE = ("output", "next_state", "reason")
LONGEST_REASON = 200
NOTHING_KNOWN: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Contract:
    """The shape of a step's answer."""

    step: str
    hard: Any
    """Class or JSON Schema of the output; None when the step declares none."""
    soft: Any
    """The handler's return annotation; None when it is missing or too general."""
    next: tuple[str, ...]
    """States the answer may name."""
    names_next: bool
    """The answer must name the next state, because no condition in the table chooses one."""
    effects: Mapping[str, Tool]
    queries: Mapping[str, Tool]
    spreads: bool
    """The output is merged into the run's data, so it must be a mapping."""

    @classmethod
    def of(cls, step: Step, flow: Flow, tools: Mapping[str, Tool]) -> Contract:
        """The contract of a step in its flow, with the tools it may use."""
        machine = flow.machine
        own_state = machine.state(flow.state_of(step))
        reachable = tuple(machine.named(state) for state in machine.allowed(own_state))
        side = agent_side(step)
        chosen = step.next if step.next is not None else reachable
        moves = [move for move in machine.moves.get(own_state, ()) if machine.named(move.to) in chosen]
        decided = all(move.when is not None for move in moves[:-1])
        return cls(
            step.name,
            step.output_schema,
            _soft_contract(step),
            chosen,
            side.names_next
            if side.names_next is not None
            else len(chosen) > 1 and not decided and step.conclude is None,
            {name: tool for name, tool in tools.items() if tool.kind == "effect"},
            {name: tool for name, tool in tools.items() if tool.kind == "query"},
            step.conclude is None and step.into is None,
        )

    @property
    def envelope(self) -> bool:
        """Whether the answer is an envelope: an object that holds the output and the next state."""
        return self.names_next

    @property
    def text(self) -> bool:
        """Whether plain text is a valid answer."""
        return not self.envelope and (self.hard if self.hard is not None else self.soft) is str

    @cached_property
    def output(self) -> Mapping[str, Any] | None:
        """JSON Schema of the output, from the hard contract or else the soft one; None without either."""
        declared = self.hard if self.hard is not None else self.soft
        return None if declared is None else schemas.schema_of(declared)

    @cached_property
    def schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the whole answer, for models with constrained decoding."""
        return self.enveloped(self.output or {}) if self.envelope else self.output

    def enveloped(self, output: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """JSON Schema of an envelope that holds this output; None: only the next state."""
        definitions: dict[str, Any] = {}
        properties: dict[str, Any] = {
            "next_state": {"type": "string", "enum": list(self.next)},
            "reason": {"type": "string", "maxLength": LONGEST_REASON},
        }
        required = ["next_state"]
        if output is not None:
            properties = {"output": _lifted(output, definitions), **properties}
            required = ["output", *required]
        whole: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        return {**whole, "$defs": definitions} if definitions else whole

    @cached_property
    def _closed(self) -> Mapping[str, Any]:
        """Schema of the soft contract, with no additional keys allowed."""
        return schemas.strictly(schemas.schema_of(self.soft))

    def read(
        self, answer: Any, effects: Iterable[Effect] = (), known: Mapping[str, Any] = NOTHING_KNOWN
    ) -> Proposal:
        """A parsed answer as a proposal.

        `effects` are carried out once it is accepted. `known` are parts of the output that receipts hold,
        whatever the answer says of them.

        Raises:
            OutputSchemaValidationError: the answer breaks the hard contract.
        """
        problems: list[str] = []
        envelope: Mapping[str, Any] = {"output": answer}
        if self.envelope:
            if not isinstance(answer, Mapping):
                raise self.broken([f"/: must be an object with the keys {', '.join(self._envelope_keys())}"])
            envelope = answer
            if not set(answer) <= set(ENVELOPE):
                problems.append(f"/: has unexpected keys (expected: {', '.join(self._envelope_keys())})")
            if "output" not in answer and not known and (self.hard is not None or self.soft is not None):
                problems.append("/: missing: output")
        raw_output = envelope.get("output")
        if known and isinstance(raw_output, Mapping | None):
            raw_output = {**(raw_output or {}), **known}
        output, plain = self._output(raw_output, problems)
        following = self._next(envelope.get("next_state"), problems)
        reason = envelope.get("reason")
        if problems:
            raise self.broken(problems)
        return Proposal(output, following, tuple(effects), str(reason) if reason else None, plain, raw_output)

    def soft_misfits(self, output: Any) -> tuple[tuple[Discrepancy, ...], int]:
        """Where an output departs from the soft contract."""
        if self.soft is None:
            return (), 0
        wrong = schemas.misfits(to_plain(output), self._closed)
        discrepancies = tuple(
            Discrepancy(place if place != "/" else "", _kind(message))
            for place, _, message in (line.partition(": ") for line in wrong)
        )
        return discrepancies[:50], max(0, len(discrepancies) - 50)

    def broken(self, problems: Iterable[str]) -> OutputSchemaValidationError:
        """The error for an answer that breaks this contract."""
        return OutputSchemaValidationError(self.step, "its contract", list(problems)[:20])

    # -- parts ----------------------------------------------------------------------------------------------

    def _envelope_keys(self) -> list[str]:
        return ["output", "next_state"]

    def _output(self, value: Any, problems: list[str]) -> tuple[Any, Any]:
        if isinstance(value, Mapping) and value.get("success") is False:
            return value, value  # reported as failed; the dispatcher fails the step
        output = value
        if self.hard is not None:
            output, wrong = schemas.read(value, self.hard)
            prefix = "/output" if self.envelope else ""
            problems += [f"{prefix}{line}" for line in wrong]
            if wrong:
                return None, None
        elif self.soft is not None:
            decoded, wrong = schemas.read(value, self.soft)
            output = value if wrong else decoded
        plain = to_plain(output)
        if self.spreads and plain is not None and not isinstance(plain, dict):
            problems.append("/output: must be an object" if self.envelope else "/: must be an object")
        return output, plain

    def _next(self, name: Any, problems: list[str]) -> str | None:
        if name is None:
            if self.names_next:
                problems.append(f"/next_state: must be one of {', '.join(self.next)}")
            return None
        if name not in self.next:
            problems.append(f"/next_state: must be one of {', '.join(self.next)}")
            return None
        return str(name)


def _soft_contract(step: Step) -> Any:
    """The declared type of the handler's output; None when it cannot be described to an agent."""
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
    except ConfigurationError:  # a class without a JSON Schema
        return None
    return hint


def _lifted(schema: Mapping[str, Any], definitions: dict[str, Any]) -> Any:
    """A schema to embed in another one; its definitions move to `definitions`."""

    def walk(node: Any) -> Any:
        if isinstance(node, Mapping):
            definitions.update({name: walk(inner) for name, inner in node.get("$defs", {}).items()})
            return {key: walk(value) for key, value in node.items() if key != "$defs"}
        return [walk(item) for item in node] if isinstance(node, list) else node

    return walk(schema)


def _kind(message: str) -> typing.Literal["type", "value", "missing", "extra", "length"]:
    if message.startswith("missing: "):
        return "missing"
    if message.startswith("has unexpected keys"):
        return "extra"
    return "type" if message.startswith("must be ") and "one of" not in message else "value"
