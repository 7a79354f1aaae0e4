"""How agents answer: JSON Schemas of reports and evaluations, and schemas that depend on the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.dispatch.format import JsonDialect
from detent.engine.calls import call
from detent.flows.refine.evaluation import SEVERITIES, CategoryScore, Evaluation, Rubric, Weakness
from detent.kernel.plain import encode, to_plain

if TYPE_CHECKING:
    from detent.dispatch.plan import Plan
    from detent.dispatch.prompt import Prompt
    from detent.dispatch.proposal import Proposal
    from detent.engine.acts import Act
    from detent.engine.context import StepContext
    from detent.engine.outcome import Effect

SCHEMA = "$schema"
"""Key under which the schema of one visit travels with its inputs; no agent sees it there."""

_TEXT = {"type": "string", "maxLength": 2000}
_TEXTS = {"type": "array", "items": _TEXT, "maxItems": 50}
_NAME = {"type": ["string", "null"]}

REPORT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["issues"],
    "properties": {
        "issues": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["severity", "rule", "message"],
                "properties": {
                    "severity": {"enum": list(SEVERITIES)},
                    "rule": {"type": "string", "minLength": 1, "maxLength": 100},
                    "section_name": _NAME,
                    "message": _TEXT,
                },
            },
        }
    },
}


def evaluation_schema(rubric: Rubric) -> dict[str, Any]:
    """The schema of an evaluation under a rubric: every category once, and no verdict."""
    names = [category.name for category in rubric.categories]
    codes = [failure.code for failure in rubric.automatic]
    score = {"type": "number", "minimum": 0, "maximum": 100}
    weakness = {
        "type": "object",
        "required": ["text"],
        "properties": {"text": _TEXT, "section": _NAME, "template": _NAME},
    }
    row = {
        "type": "object",
        "required": ["category", "score", "reasoning"],
        "properties": {
            "category": {"enum": names} if names else {"type": "string", "minLength": 1},
            "score": score,
            "reasoning": _TEXT,
            "strengths": _TEXTS,
            "weaknesses": {"type": "array", "items": weakness},
        },
    }
    rows: dict[str, Any] = {"type": "array", "items": row}
    if names:
        rows |= {"minItems": len(names), "maxItems": len(names)}
    properties: dict[str, Any] = {
        "story_overview": _TEXT,
        "category_scores": rows,
        "summary": _TEXT,
        "actionable_feedback": _TEXTS,
    }
    if codes:
        properties["automatic_failures"] = {"type": "array", "items": {"enum": codes}}
    if not names:
        properties["overall_score"] = score
    required = ["category_scores"] if names else ["overall_score"]
    return {"type": "object", "required": required, "properties": properties}


def evaluation_of(answer: Mapping[str, Any]) -> Evaluation:
    """An agent's answer as an evaluation; what it claims about score and verdict is kept as a claim."""
    plain = to_plain(dict(answer))
    rows = plain.get("category_scores") or ()
    scores = tuple(
        CategoryScore(
            row["category"],
            row["score"],
            row.get("reasoning") or "",
            tuple(row.get("strengths") or ()),
            tuple(Weakness.of(weakness) for weakness in row.get("weaknesses") or ()),
        )
        for row in rows
    )
    claimed, verdict = plain.get("overall_score"), plain.get("pass_threshold")
    number = isinstance(claimed, int | float) and not isinstance(claimed, bool)
    return Evaluation(
        claimed if number and not scores else 0.0,
        scores,
        tuple(plain.get("automatic_failures") or ()),
        plain.get("summary") or "",
        plain.get("story_overview") or "",
        tuple(plain.get("actionable_feedback") or ()),
        plain.get("channel_scoring"),
        float(claimed) if number else None,
        verdict if isinstance(verdict, bool) else None,
    )


class PartDialect(JsonDialect):
    """JSON under a schema that may depend on the request of the run, and read by the part's own `parse`."""

    def __init__(
        self, schema_of: Callable[[StepContext], Any] | None, parse: Callable[[Any], Any] | None = None
    ) -> None:
        self._schema_of = schema_of
        self._parse = parse

    async def prepare(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], *, composes: bool = False
    ) -> Mapping[str, Any]:
        """The inputs, with the schema of this visit."""
        if self._schema_of is None:
            return inputs
        return {**inputs, SCHEMA: to_plain(await call(self._schema_of, False, ctx))}

    def build(self, plan: Plan, inputs: Mapping[str, Any], *, secrets: frozenset[str]) -> Prompt:
        """The usual prompt under the schema of this visit."""
        shown = {name: value for name, value in inputs.items() if name != SCHEMA}
        return super().build(self._placed(plan, inputs), shown, secrets=secrets)

    def schema_for(self, plan: Plan, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The schema of this visit."""
        return self.schema(self._placed(plan, inputs))

    def answer_schema(self, plan: Plan, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The schema of this visit."""
        return self._placed(plan, inputs).contract.output

    def read(
        self,
        plan: Plan,
        answer: Any,
        effects: Iterable[Effect],
        inputs: Mapping[str, Any],
        acts: Sequence[Act] = (),
    ) -> Proposal:
        """The answer, checked against the schema of this visit and by the part."""
        proposal = super().read(self._placed(plan, inputs), answer, effects, inputs, acts)
        if self._parse is not None:
            try:
                self._parse(to_plain(proposal.output))
            except (TypeError, ValueError) as error:
                raise plan.contract.broken([f"/: {line}" for line in str(error).splitlines()]) from error
        return proposal

    def _placed(self, plan: Plan, inputs: Mapping[str, Any]) -> Plan:
        """The plan with the schema of one visit in its contract."""
        schema = inputs.get(SCHEMA)
        if schema is None:
            return plan
        placed = replace(plan)
        placed.__dict__["contract"] = replace(plan.contract, hard=schema)  # where a cached property lies
        return placed


def size_of(value: Any) -> int:
    """Bytes of a value as JSON."""
    return len(encode(to_plain(value)).encode("utf-8", "surrogatepass"))
