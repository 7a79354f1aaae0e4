"""Single-step runs of a playbook: one step performed on given data, no effect performed, nothing stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from detent.adapters.mail.send_email import EmailSender
from detent.adapters.stores.memory import MemoryStore
from detent.authoring.names import unique_match
from detent.dispatch.dispatcher import DispatchSettings
from detent.flows.playbook.flow import PlaybookFlow
from detent.flows.playbook.history import response_text
from detent.flows.playbook.instruction import folded
from detent.insight.visits import FunctionCall, StepVisit, blobs_of, visits
from detent.kernel.entries import Entry, Moved, Proposed
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.guards import dig
from detent.kernel.placeholders import LITERAL, STAND_IN
from detent.kernel.plain import copied, decode
from detent.kernel.run import Run
from detent.runtime.trial import Rehearsal, shown_value


@dataclass(frozen=True, slots=True)
class StepTrial:
    """The result of a single-step run."""

    step_name: str
    next_step: str | None
    """The step it leads to; None if it waits, failed, or the next step depends on a receipt."""
    reason: str | None
    data: dict[str, Any]
    """The data after it; values that depend on a receipt are shown as such."""
    changes: dict[str, Any]
    effects: tuple[FunctionCall, ...]
    """The effects it proposes. None of them was performed."""
    queries: tuple[FunctionCall, ...]
    """The queries it made."""
    text: str
    """The outcome in the lines of the protocol."""
    mode: str = "deterministic"
    fallback: str | None = None
    missing: tuple[str, ...] = ()
    """Keys in `needs` that the data does not have."""
    question: str | None = None
    """What it waits for, if it waits."""
    error: str | None = None

    @property
    def title(self) -> str:
        """The step and who performed it."""
        unused = f", the agent's answer was not used: {self.fallback}" if self.fallback else ""
        return f"{self.step_name}   {self.mode}{unused}"

    def fields(self) -> list[tuple[str, str]]:
        """The result as names and values for people."""
        reason = f"   ({self.reason})" if self.reason else ""
        following = self.next_step or ("waits" if self.question else "not known before the effects are done")
        if self.error is not None and self.next_step is None:
            following = "none"
        return [
            ("next", f"{following}{reason}"),
            ("error", self.error or ""),
            ("question", self.question or ""),
            ("missing", ", ".join(self.missing)),
            *((f"set {key}", shown_value(value)) for key, value in self.changes.items()),
            *((f"asked {call.function_name}", _query_line(call)) for call in self.queries),
            *(
                (f"proposed {call.function_name}", f"{shown_value(call.arguments)}   (not performed)")
                for call in self.effects
            ),
        ]

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "step": self.step_name,
            "next": self.next_step,
            "reason": self.reason,
            "mode": self.mode,
            "fallback": self.fallback,
            "missing": list(self.missing),
            "changes": self.changes,
            "data": self.data,
            "queries": [query.outline() for query in self.queries],
            "effects": [
                {"function_name": effect.function_name, "arguments": effect.arguments}
                for effect in self.effects
            ],
            "question": self.question,
            "error": self.error,
            "text": self.text,
        }


def _query_line(call: FunctionCall) -> str:
    answer = shown_value(call.result) if call.success else f"failed: {call.error_message}"
    return f"{shown_value(call.arguments)} → {answer}"


async def step_alone(
    flow: PlaybookFlow,
    step: str,
    data: Mapping[str, Any],
    *,
    dispatch: DispatchSettings | None = None,
) -> StepTrial:
    """Ask one step, by its id or an alias, on the data given.

    Queries are asked; effects are noted and not performed. Who performs the step is for `dispatch` to say:
    without it, its handler does.
    """
    name = step_named(flow, step)
    trial = _Trial(flow, name)
    store = MemoryStore()
    entries = await trial.entries(store, name, data, dispatch)
    return trial.result(entries, await blobs_of(store, entries))


def step_named(flow: PlaybookFlow, reference: str) -> str:
    """A step by its id, an alias, or the beginning of its id.

    Raises:
        ConfigurationError: there is no such step, or it cannot be reached.
    """
    name = flow.playbook.aliases.get(folded(reference))
    if name in flow.playbook.steps:
        if name not in flow.steps:
            raise ConfigurationError(f"Step '{name}' cannot be reached from the start, so it is never done.")
        return str(name)
    known = list(flow.playbook.steps)
    if (match := unique_match(reference, known)) is not None:
        return match
    raise ConfigurationError(
        f"Playbook '{flow.name}' has no step '{reference}'.{nearest(reference, known)} "
        f"Steps: {', '.join(known)}."
    )


class _Trial(Rehearsal):
    """A single-step run of a playbook."""

    flow: PlaybookFlow

    def __init__(self, flow: PlaybookFlow, step: str) -> None:
        super().__init__(flow)
        self.step = step
        self.playbook = flow.playbook
        # No mail is sent, so no sender is opened. Data of a step in the middle need not fit the input schema.
        self.flow.needs = [need for need in flow.needs if not isinstance(need, EmailSender)]
        self.flow.playbook = replace(flow.playbook, manifest=replace(flow.playbook.manifest, input=None))

    def result(self, entries: list[Entry], blobs: Mapping[str, bytes]) -> StepTrial:
        """The result, read from the journal."""
        run = Run("")
        start: dict[str, Any] = {}
        for number, entry in enumerate(entries):
            if isinstance(entry.body, Moved) and entry.body.frm != self.step:
                break  # the step after it
            run.apply(entry)
            if not number:
                start = copied(run.data)
        missing = tuple(key for key in self._needs() if dig(start, key) is None)
        proposal = next((entry.body for entry in entries if isinstance(entry.body, Proposed)), None)
        done = visits(entries, needs=self.playbook.needs, blobs=blobs)
        if proposal is not None:
            visit = self._proposed(proposal, start, blobs)
        elif done:
            visit = done[0]
        else:
            question = next((hold.question or name for name, hold in run.holds.items()), None)
            return StepTrial(
                self.step, None, run.reason, start, {}, (), (), "", missing=missing, question=question,
                error=run.error,
            )  # fmt: skip
        effects = tuple(call for call in visit.calls if call.kind == "effect")
        return StepTrial(
            self.step,
            visit.next_step or None,
            visit.reason,
            visit.data,
            visit.changes,
            effects,
            tuple(call for call in visit.calls if call.kind == "query"),
            response_text(visit, self.playbook),
            visit.mode,
            visit.fallback,
            missing,
            error=visit.error,
        )

    def _needs(self) -> tuple[str, ...]:
        return self.playbook.steps[self.step].needs

    def _proposed(self, body: Proposed, start: dict[str, Any], blobs: Mapping[str, bytes]) -> StepVisit:
        """The visit a proposal would have become."""
        tools = {item["key"]: item["tool"] for item in body.effects}
        outcome = body.outcome
        to = outcome.get("next") or ""
        changes = {key: _with_stand_ins(value, tools) for key, value in outcome.get("set", {}).items()}
        data = {**start, **changes}
        for key, items in outcome.get("append", {}).items():
            data[key] = changes[key] = [
                *(data.get(key) or []),
                *(_with_stand_ins(item, tools) for item in items),
            ]
        labels = (edge.reason for edge in self.playbook.edges[self.step] if edge.to == to)
        calls: list[FunctionCall] = []
        for line in body.looked:
            answer, args = _loaded(line.get("answer"), blobs), _loaded(line["args"], blobs)
            error = answer.get("$error") if isinstance(answer, Mapping) else None
            calls.append(
                FunctionCall(
                    line["tool"], args, None if error else answer, error is None, error, step_name=self.step
                )
            )
        for item in body.effects:
            args = _with_stand_ins(_loaded(item["args"], blobs), tools)
            calls.append(FunctionCall(item["tool"], args, step_name=self.step, kind="effect"))
        return StepVisit(
            self.step, to, {key: copied(dig(start, key)) for key in self._needs()}, changes, data,
            outcome.get("reason") or next((label for label in labels if label), None), body.by,
            attempts=body.attempt, fallback=body.detail.get("fallback_reason"), calls=tuple(calls),
        )  # fmt: skip


def _loaded(value: Any, blobs: Mapping[str, bytes]) -> Any:
    if isinstance(value, Mapping) and value.get("$blob") in blobs:
        return decode(blobs[value["$blob"]])
    return copied(value)


def _with_stand_ins(value: Any, tools: Mapping[str, str]) -> Any:
    """A value with stand-ins in words: their values are known once the effect is performed."""
    if isinstance(value, Mapping):
        if LITERAL in value:
            return {name: _with_stand_ins(item, tools) for name, item in value[LITERAL].items()}
        if STAND_IN in value:
            key, _, path = str(value[STAND_IN]).partition(".")
            return f"({'.'.join(part for part in (tools.get(key, 'effect'), path) if part)})"
        return {name: _with_stand_ins(item, tools) for name, item in value.items()}
    return [_with_stand_ins(item, tools) for item in value] if isinstance(value, list) else value
