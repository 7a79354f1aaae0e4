"""The visits of a run, folded from its journal: the same whether or not the run was resumed.

Values kept outside the journal (private arguments, long answers, replies of agents) are inserted if they are
passed as `blobs`; otherwise a reference takes their place.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from detent.insight.effect_text import skipped_text
from detent.kernel.entries import (
    AttemptFailed,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Migrated,
    Moved,
    Proposed,
    Recorded,
    Reopened,
)
from detent.kernel.guards import dig
from detent.kernel.placeholders import fill
from detent.kernel.plain import copied, decode, digest
from detent.kernel.run import Run

StepTuple: TypeAlias = tuple[str, dict[str, Any], dict[str, Any], str]
"""`(step_name, input_data, output_data, next_step)`."""

CALLS = "function_calls"
"""Key of `output_data` that holds the function calls with arguments and results."""

AGENT = "agent/"
"""Prefix of the keys under which agents' answers are kept."""
FALLBACK = "fallback"
"""Key under which it is kept that the handler goes on in an agent's place."""

Blobs: TypeAlias = Mapping[str, bytes]

Needs: TypeAlias = Mapping[str, Sequence[str]]
"""The dotted keys of the data that each step receives; an unlisted step receives everything."""

_ABSENT = object()


class BlobStore(Protocol):
    """Source of values kept outside the journal; every store is one."""

    async def blob(self, hash: str, /) -> bytes | None:
        """The value with this hash; None when it was purged."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A query asked or an effect performed in a step."""

    function_name: str
    arguments: Any
    result: Any = None
    success: bool = True
    error_message: str | None = None
    execution_time_ms: float | None = None
    """None for queries, whose time the journal does not record."""
    attempts: int = 1
    step_name: str = ""
    kind: Literal["query", "effect"] = "query"

    def outline(self) -> dict[str, Any]:
        """The call without its times: equal for equal runs."""
        plain: dict[str, Any] = {"function_name": self.function_name, "arguments": self.arguments}
        plain["success"] = self.success
        if self.result is not None:
            plain["result"] = self.result
        if self.error_message is not None:
            plain["error_message"] = self.error_message
        return plain


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What became of an agent's answer for one visit, attempts and further questions included."""

    step_name: str
    asked: bool = True
    """False when the agent was to perform the step and was not asked."""
    kept: bool = False
    """True when the agent's answer is what the step did."""
    fallback: str | None = None
    """Why the handler performed the step instead; None without a fallback, also when the step failed."""


@dataclass(frozen=True, slots=True)
class StepVisit:
    """One step that was done."""

    step_name: str
    next_step: str
    input_data: dict[str, Any]
    """The step's `needs` at the time of the visit."""
    changes: dict[str, Any]
    """Values the step set in the run's data."""
    data: dict[str, Any]
    """The run's data after the step."""
    reason: str | None = None
    by: str = "handler"
    """handler, agent, engine or person."""
    attempts: int = 1
    fallback: str | None = None
    """Reason for the fallback to the handler, if there was one."""
    duration_ms: float = 0.0
    error: str | None = None
    calls: tuple[FunctionCall, ...] = ()
    reply: str | None = None
    """The agent's last answer."""
    answers: tuple[AgentAnswer, ...] = ()
    """Of the agents that were to perform the step, and the further steps of the visit."""

    @property
    def mode(self) -> str:
        """Who performed the step."""
        return "agent" if self.by == "agent" else "deterministic"

    @property
    def output_data(self) -> dict[str, Any]:
        """Values the step set, and the results of its functions."""
        if not self.calls:
            return dict(self.changes)
        return {**self.changes, CALLS: [call.outline() for call in self.calls]}

    def as_tuple(self) -> StepTuple:
        """The visit as a line of a step history."""
        return self.step_name, self.input_data, self.output_data, self.next_step


def function_calls(entries: Iterable[Entry], *, blobs: Blobs | None = None) -> list[FunctionCall]:
    """Every function called in a run, in order."""
    return [call for visit in visits(entries, blobs=blobs) for call in visit.calls]


async def blobs_of(store: BlobStore, entries: Iterable[Entry]) -> dict[str, bytes]:
    """Blobs of a journal's functions and agents, by hash, without purged ones."""
    hashes: set[str] = set()
    for entry in entries:
        body = entry.body
        if isinstance(body, Moved | Ended):
            hashes |= _references(list(body.looked))
        elif isinstance(body, Proposed):
            hashes |= _references(body.effects) | _references(list(body.looked))
        elif isinstance(body, Recorded) and body.key.startswith(AGENT):
            hashes |= _references(body.value)
    blobs = {hash: await store.blob(hash) for hash in sorted(hashes)}
    return {hash: raw for hash, raw in blobs.items() if raw is not None}


def visits(
    entries: Iterable[Entry],
    *,
    needs: Needs | None = None,
    hashed: Collection[str] = (),
    blobs: Blobs | None = None,
) -> list[StepVisit]:
    """Every finished step, in order. A step that had not begun is left out.

    `input_data` of a step in `needs` holds those keys, of any other step all data. Keys in `hashed` are
    represented by their hash alone.
    """
    finished: list[StepVisit] = []
    run = Run("")
    visit = _Visit(blobs or {})
    for entry in entries:
        body, state = entry.body, run.state
        if isinstance(body, Moved) or (isinstance(body, Ended) and visit.begun):
            begun = visit.begun or body.by not in ("engine", "person")
            inputs = _inputs(run.data, (needs or {}).get(state), hashed) if begun else {}
            run.apply(entry)
            if begun:
                finished.append(visit.finished(body, state, inputs, copied(run.data)))
            visit = _Visit(blobs or {})
            continue
        if isinstance(body, Reopened | Migrated) and body.state != state:
            visit = _Visit(blobs or {})
        visit.take(body)
        run.apply(entry)
    return finished


@dataclass(slots=True)
class _Visit:
    """A step in progress."""

    blobs: Blobs
    calls: list[FunctionCall] = field(default_factory=list)
    effects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Proposed effects by key."""
    receipts: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    """Failed attempts at each effect so far."""
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    """Queries behind every proposal, including proposals whose effects failed."""
    step: str = ""
    reply: str | None = None
    begun: bool = False
    error: str | None = None

    def take(self, body: Any) -> None:
        """Apply an entry of the visit."""
        if isinstance(body, Proposed):
            self.begun = True
            self.step = body.step
            self.asked += [line for line in body.looked if line not in self.asked]
            self.effects |= {item["key"]: item for item in body.effects}
        elif isinstance(body, AttemptFailed):
            self.begun = True
            self.error = f"{body.error}: {body.message}"
        elif isinstance(body, Recorded):
            if body.key.startswith(AGENT) and isinstance(body.value, Mapping):
                record = {**body.value, **(_opened(body.value.get("kept") or {}, self.blobs))}
                output = record.get("output")
                self.reply = _reply_text(output) or self.reply
        elif isinstance(body, EffectDone):
            self.receipts[body.key] = body.receipt
            if body.how != "reused":
                self._done(body)
        elif isinstance(body, EffectFailed):
            if body.retry_at is None:
                self._call(
                    body.key, body.tool, success=False, error_message=f"{body.code}: {body.message}",
                    attempts=body.attempts,
                )  # fmt: skip
                self.failed.pop(body.key, None)
            else:
                self.failed[body.key] = body.attempts
        elif isinstance(body, EffectSkipped):
            self._call(body.key, body.tool, success=False, error_message=skipped_text(body))

    def _done(self, body: EffectDone) -> None:
        attempts = self.failed.pop(body.key, 0) + 1
        milliseconds = round(body.duration * 1000, 3)
        self._call(
            body.key, body.tool, result=body.receipt, attempts=attempts, execution_time_ms=milliseconds
        )

    def _call(self, key: str, tool: str, **facts: Any) -> None:
        args = _opened(self.effects.get(key, {}).get("args", {}), self.blobs)
        try:
            args = fill(args, self.receipts)
        except KeyError:  # it refers to an effect that did not happen
            args = copied(args)
        self.calls.append(FunctionCall(tool, args, step_name=self.step, kind="effect", **facts))

    def _all(self, looked: Sequence[Mapping[str, Any]], step: str, attempt: int) -> tuple[FunctionCall, ...]:
        """All calls in the order they happened: queries, then effects."""
        queries = []
        for line in (*(query for query in self.asked if query not in looked), *looked):
            answer, args = _opened(line.get("answer"), self.blobs), _opened(line["args"], self.blobs)
            error = answer.get("$error") if isinstance(answer, Mapping) else None
            result = None if error else copied(answer)
            queries.append(
                FunctionCall(line["tool"], copied(args), result, error is None, error, None, attempt, step)
            )
        return (*queries, *self.calls)

    def finished(
        self, body: Moved | Ended, state: str, inputs: dict[str, Any], data: dict[str, Any]
    ) -> StepVisit:
        """The visit, finished by a move or by the end of the run."""
        changes = copied(dict(body.set))
        facts: dict[str, Any] = {
            "attempts": body.attempt, "calls": self._all(body.looked, state, body.attempt),
            "reply": self.reply, "answers": tuple(_answers(state, body)),
        }  # fmt: skip
        if isinstance(body, Ended):
            end = f"({body.status.value})"
            facts["error"] = body.error or self.error
        else:
            end = body.to
            changes |= {key: copied(data.get(key)) for key in body.append}
            facts["fallback"] = body.detail.get("fallback_reason")
            facts["duration_ms"] = round(body.duration * 1000, 3)
            facts["error"] = body.detail.get("error") if body.by == "engine" else None
        return StepVisit(state, end, inputs, changes, data, body.reason, body.by, **facts)


def _answers(state: str, body: Moved | Ended) -> Iterator[AgentAnswer]:
    """What the dispatch records of a visit say about agents."""
    for record in (body.detail, *body.detail.get("then", ())):
        step = str(record.get("step") or state).rpartition("/")[2]
        kept = record.get("mode_used") == "agent"
        if kept or record.get("agent_called") or record.get("fallback_reason") is not None:
            yield AgentAnswer(
                step, kept or bool(record.get("agent_called")), kept, record.get("fallback_reason")
            )


def _reply_text(output: Any) -> str | None:
    """An agent's answer as text; a form as JSON."""
    if output is None or isinstance(output, str):
        return output
    return json.dumps(output, ensure_ascii=False)


def _opened(value: Any, blobs: Blobs) -> Any:
    """A value that may be kept beside the journal."""
    if isinstance(value, Mapping) and value.get("$blob") in blobs:
        return decode(blobs[value["$blob"]])
    return value


def _references(value: Any) -> set[str]:
    """Hashes of the blobs that a value refers to."""
    if isinstance(value, Mapping):
        if isinstance(value.get("$blob"), str):
            return {value["$blob"]}
        return set().union(*(_references(item) for item in value.values()))
    return set().union(*(_references(item) for item in value)) if isinstance(value, list) else set()


def _inputs(data: Mapping[str, Any], needs: Sequence[str] | None, hashed: Collection[str]) -> dict[str, Any]:
    keys = list(data) if needs is None else needs
    inputs: dict[str, Any] = {}
    for key in keys:
        value = dig(data, key, _ABSENT)
        if value is _ABSENT or value is None:
            continue
        inputs[key] = {"$hash": digest(value, 16)} if key in hashed else copied(value)
    return inputs
