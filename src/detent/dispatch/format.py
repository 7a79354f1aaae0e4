"""The format of prompts and answers: how an agent is asked, and how its answer is read.

The usual dialect asks for one JSON value and reads it under the step's contract. A flow whose steps are
written differently (in prose, say, with answers in lines) has its own; the result is the same `Proposal`,
held to the same contract, gate and table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.dispatch import prompt
from detent.dispatch.conclusion import (
    asked_fields,
    fields_of,
    held_by_receipts,
    known_fields,
    missing_fields,
)
from detent.dispatch.equivalence import canonical_value
from detent.dispatch.executor import SchemaHint
from detent.dispatch.plan import Dialect
from detent.dispatch.planted import PlainAnswer, PlainEffect
from detent.kernel.plain import digest, to_plain

if TYPE_CHECKING:
    from detent.dispatch.gate import Side
    from detent.dispatch.plan import Plan
    from detent.dispatch.prompt import Prompt
    from detent.dispatch.proposal import Proposal
    from detent.engine.acts import Act
    from detent.engine.context import StepContext
    from detent.engine.outcome import Effect


class JsonDialect(Dialect):
    """One JSON value, under the step's contract."""

    def fingerprint(self, plan: Plan) -> str:
        """Instructions, contract and allowed moves and tools."""
        allowed = prompt.allowed_block(plan.contract)
        return digest([plan.instructions, prompt.contract_block(plan.contract), allowed], 12)

    def build(self, plan: Plan, inputs: Mapping[str, Any], *, secrets: frozenset[str]) -> Prompt:
        """Fixed instructions, then labelled blocks."""
        return prompt.build(plan.instructions, inputs, plan.prompt_blocks, secrets=secrets)

    def refused(self, plan: Plan, problems: Sequence[str]) -> str:
        """The block PROBLEMS."""
        return prompt.problems_block(problems)

    def schema(self, plan: Plan) -> Mapping[str, Any] | None:
        """The schema to check the answer by if the step declares one, else only to decode under."""
        contract = plan.contract
        declared = contract.hard is not None and not contract.envelope and not contract.effects
        if contract.schema is None or declared:
            return contract.schema
        return plan.schema_hint

    def read(
        self,
        plan: Plan,
        answer: Any,
        effects: Iterable[Effect],
        inputs: Mapping[str, Any],
        acts: Sequence[Act] = (),
    ) -> Proposal:
        """Parse the text of an answer, and check it, with what the acts settle, against the contract."""
        from detent.dispatch.answer_text import parse_answer

        contract = plan.contract
        if isinstance(answer, str):
            try:
                parsed = parse_answer(answer, text_allowed=contract.text)
            except ValueError:
                raise contract.broken(["/: is not JSON"]) from None
            answer = answer if contract.text and not isinstance(parsed, str) else parsed
        if fields_of(contract.output):
            known = known_fields(plan.step, contract.output, acts)
        else:
            inner = answer.get("output") if contract.envelope and isinstance(answer, Mapping) else answer
            known = held_by_receipts(inner, acts)
        return contract.read(answer, effects, known)

    async def answer_for(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], side: Side
    ) -> PlainAnswer:
        """The handler's output, move and effects."""
        return PlainAnswer(
            canonical_value(side.output),
            side.to if plan.contract.envelope else None,
            tuple(
                PlainEffect(effect.tool, canonical_value(to_plain(effect.args))) for effect in side.effects
            ),
        )

    def written(self, plan: Plan, answer: PlainAnswer) -> Any:
        """The output, in an envelope if the answer names the next state."""
        if not plan.contract.envelope:
            return answer.output
        return {"output": answer.output, "next_state": answer.next_state}

    def settled(self, plan: Plan, acts: Sequence[Act]) -> bool:
        """Whether the acts settle the whole answer, so that the agent need not be asked for any of it."""
        return not plan.contract.names_next and self._missing(plan, acts) == []

    def missing(self, plan: Plan, acts: Sequence[Act]) -> tuple[str, Mapping[str, Any] | None]:
        """How an agent is asked for what its acts do not settle, and the schema of the answer."""
        contract = plan.contract
        schema = contract.schema
        names = self._missing(plan, acts)
        if names is not None and contract.output is not None:
            asked = asked_fields(contract.output, names)
            schema = contract.enveloped(asked if names else None) if contract.envelope else asked
        return prompt.missing_block(schema), None if schema is None else SchemaHint(schema)

    def _missing(self, plan: Plan, acts: Sequence[Act]) -> list[str] | None:
        output = plan.contract.output
        return missing_fields(output, known_fields(plan.step, output, acts))


JSON = JsonDialect()
