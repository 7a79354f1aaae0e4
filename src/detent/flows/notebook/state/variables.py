"""Variables of the state: what a transition sets, and which names may leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.flows.notebook.payloads.values import BehaviorReflection, Payload, StageReflection
from detent.flows.notebook.state.document import StateDocument
from detent.flows.notebook.state.facts import Facts

USER_INPUTS = ("user_problem", "user_submit_files")


def after_transition(
    before: StateDocument, after: StateDocument, facts: Facts, payloads: Sequence[Payload]
) -> dict[str, Any]:
    """The variables after a transition. The user's inputs, and what is still required, never leave."""
    variables = {**before.variables, **facts.variables}
    for name in facts.dropped_variables:
        if name not in USER_INPUTS:
            variables.pop(name, None)
    for payload in payloads:
        if isinstance(payload, BehaviorReflection):
            for name in payload.new_variables:
                variables[name] = "".join(before.state.effects.current)
        if isinstance(payload, StageReflection):
            required = required_names(after)
            for deprecated in payload.variables.deprecate:
                if deprecated.name not in required:
                    variables.pop(deprecated.name, None)
    return variables


def required_names(document: StateDocument) -> frozenset[str]:
    """Names that must stay: the user's inputs, and what the current or a later step or stage requires."""
    names = set(USER_INPUTS)
    for item in (
        document.steps.current, document.stages.current, *document.steps.remaining, *document.stages.remaining
    ):  # fmt: skip
        if item is not None and item.required_variables:
            names.update(item.required_variables)
    return frozenset(names)
