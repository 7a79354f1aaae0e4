"""The format of prompts and answers: how an agent is asked, and how its answer is read.

The usual dialect asks for one JSON value and reads it under the step's contract. A flow whose steps are
written differently (in prose, say, with answers in lines) has its own; the result is the same `Proposal`,
held to the same contract, gate and table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.dispatch import prompt
from detent.dispatch.executor import SchemaHint
from detent.kernel.plain import digest

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.dispatch.prompt import Prompt
    from detent.dispatch.proposal import Proposal
    from detent.engine.outcome import Effect


class JsonDialect:
    """One JSON value, under the step's contract."""

    def fingerprint(self, plan: Plan) -> str:
        """Instructions, contract and allowed moves and tools."""
        allowed = prompt.allowed_block(plan.contract)
        return digest([plan.instructions, prompt.contract_block(plan.contract), allowed], 12)

    def build(
        self, plan: Plan, inputs: Mapping[str, Any], *, secrets: frozenset[str], problems: Sequence[str]
    ) -> Prompt:
        """Fixed instructions, then labelled blocks."""
        return prompt.build(plan.instructions, inputs, plan.contract, secrets=secrets, problems=problems)

    def schema(self, plan: Plan) -> Mapping[str, Any] | None:
        """The schema to check the answer by if the step declares one, else only to decode under."""
        contract = plan.contract
        if contract.schema is None or (contract.hard is not None and not contract.envelope):
            return contract.schema
        return SchemaHint(contract.schema)

    def read(
        self, plan: Plan, answer: Any, proposed: Iterable[Effect], inputs: Mapping[str, Any]
    ) -> Proposal:
        """Parse the text of an answer, and check it against the contract."""
        from detent.dispatch.answer_text import parse_answer

        contract = plan.contract
        if isinstance(answer, str):
            try:
                parsed = parse_answer(answer, text_allowed=contract.text)
            except ValueError:
                raise contract.broken(["/: is not JSON"]) from None
            answer = answer if contract.text and not isinstance(parsed, str) else parsed
        return contract.read(answer, proposed)


JSON = JsonDialect()


def answer_schema(plan: Plan, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """JSON Schema of the answer to these inputs; None for an answer in prose."""
    fitted = getattr(plan.dialect, "schema_for", None)
    return plan.dialect.schema(plan) if fitted is None else fitted(plan, inputs)
