"""Plans: what an agent's visits of one step have in common."""

from __future__ import annotations

import json

from detent.dispatch.dispatcher import Dispatcher
from detent.dispatch.plan import Plan
from detent.kernel.plain import digest, text_digest
from tests.dispatch.samples import forms


def _plan() -> Plan:
    flow = forms()
    return Dispatcher().plan_for(flow, flow.step_for("work"))


def test_a_reply_is_kept_under_the_digest_of_conversation_and_frame() -> None:
    """The text of a frame is kept, so that only the head of the conversation is hashed anew."""
    plan = _plan()
    for schema in (None, plan.schema_hint, {"type": "string"}):
        kept = text_digest(f'["abc",{plan.frames(schema)}]', 24)
        assert kept == digest(["abc", plan.frame(schema)], 24)


def test_every_visit_has_the_same_schema_object() -> None:
    """What is computed from a schema is remembered by its identity."""
    plan = _plan()
    assert plan.dialect.schema(plan) is plan.dialect.schema(plan)


def test_the_inputs_come_before_the_blocks_that_never_change() -> None:
    """A plan builds its fixed blocks once; the prompts of two visits differ in their inputs only."""
    plan = _plan()
    first, second = (
        plan.dialect.build(plan, {"text": text}, secrets=frozenset()).text for text in ("one", "two")
    )
    assert first.startswith("INPUTS\n" + json.dumps({"text": "one"}, indent=2) + "\n\nCONTRACT\n")
    assert first.replace('"one"', '"two"') == second
