"""Comparison of two runs: where they first diverge, what differs there, and how each ended.

Aspects that always differ between two runs (times, epochs, ids, takeovers, retries) are left out by default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, get_args

from detent.insight.formatting import columns, money, short, span, value
from detent.insight.timeline import timeline
from detent.insight.visits import FALLBACK
from detent.kernel.entries import (
    AttemptFailed,
    Body,
    CalledOff,
    ChildEnded,
    Claimed,
    EffectBegun,
    EffectDone,
    EffectFailed,
    EffectSkipped,
    Ended,
    Entry,
    Forked,
    Held,
    Migrated,
    Moved,
    Noted,
    Proposed,
    Recorded,
    Released,
    Reopened,
    Started,
    Tagged,
)
from detent.kernel.ids import ROOT
from detent.kernel.plain import encode, to_plain
from detent.kernel.run import Run
from detent.kernel.run_config import ORIGIN

Also = Literal["times", "epochs", "run_ids", "takeovers", "retries", "notes"]
"""Aspects a comparison leaves out by default."""

Aspect = Literal[
    "what", "state", "who", "reason", "event", "data", "looked", "effects", "hold", "child", "other"
]

MOST = 50
"""Most differences listed at the divergence; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differed at the point of divergence."""

    aspect: Aspect
    path: str
    """Path within the entry: `to`, `data.device.serial`, `effects[0].args.to`."""
    a: Any
    """None when the entry has no such value."""
    b: Any


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first point at which two journals differ."""

    seq_a: int | None
    """Number of the entry; None when the journal had already ended."""
    seq_b: int | None
    what_a: str
    """The entry in words."""
    what_b: str
    differences: tuple[Difference, ...]
    left_out: int = 0
    """Differences beyond those listed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of one run."""

    flow: str
    status: str
    state: str
    """State the run is in or ended in."""
    reason: str | None
    path: tuple[str, ...]
    """States in the order they were entered."""
    entries: int
    elapsed_seconds: float
    """From the first entry to the last."""
    work_seconds: float
    """Durations of its steps."""
    tokens: int
    cost_usd: float
    effects: tuple[str, ...]
    """Tools of the effects that happened, in order."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side."""

    same: int
    """Number of compared entries before the first difference."""
    divergence: Divergence | None
    """None when the runs do not differ."""
    a: Summary
    b: Summary

    @property
    def equal(self) -> bool:
        """True when nothing that was compared differs."""
        return self.divergence is None

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"equal": self.equal, **to_plain(self)}


def compare(
    entries_a: Iterable[Entry], entries_b: Iterable[Entry], *, also: Collection[Also] = ()
) -> Comparison:
    """Compare two whole journals; `also` names what is otherwise left out."""
    unknown = sorted(set(also) - set(get_args(Also)))
    if unknown:
        raise ValueError(f"Cannot compare {', '.join(unknown)}. Choose from: {', '.join(get_args(Also))}.")
    journal_a, journal_b = list(entries_a), list(entries_b)
    points_a, points_b = _points(journal_a, also), _points(journal_b, also)
    same = 0
    for point_a, point_b in zip(points_a, points_b, strict=False):
        if next(_differences(point_a, point_b), None) is not None:
            break
        same += 1
    divergence = None
    if same < len(points_a) or same < len(points_b):
        divergence = _divergence(
            points_a[same] if same < len(points_a) else None,
            points_b[same] if same < len(points_b) else None,
            {line.seq: line.what for line in timeline(journal_a)},
            {line.seq: line.what for line in timeline(journal_b)},
        )
    return Comparison(same, divergence, _summary(journal_a), _summary(journal_b))


# -- compared facts ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Point:
    """The compared content of one entry: aspect to value."""

    seq: int
    kind: str
    facts: Mapping[tuple[Aspect, str], Any]


def _points(journal: list[Entry], also: Collection[Also]) -> list[_Point]:
    points: list[_Point] = []
    ids = _Ids(journal, "run_ids" in also)
    children: list[_Point] = []
    for entry in journal:
        body = entry.body
        if _left_out(body, also):
            continue
        facts = dict(_facts(body, ids, also))
        if "times" in also:
            facts["other", "at"] = entry.at
            facts["other", "duration"] = getattr(body, "duration", None)
        if "epochs" in also:
            facts["other", "epoch"] = entry.epoch
        point = _Point(entry.seq, entry.kind, facts)
        if isinstance(body, ChildEnded):  # children side by side end in any order
            children.append(point)
            continue
        points += sorted(children, key=lambda child: str(child.facts["child", "run"]))
        children = []
        points.append(point)
    return points + sorted(children, key=lambda child: str(child.facts["child", "run"]))


def _left_out(body: Body, also: Collection[Also]) -> bool:
    """True for entries that only record times, take-overs, retries or notes."""
    if isinstance(body, Claimed):
        return "takeovers" not in also
    if isinstance(body, Held | Released) and body.name == "takeovers":
        return "takeovers" not in also
    if isinstance(body, AttemptFailed | EffectBegun):
        return "retries" not in also
    if isinstance(body, EffectFailed):
        return body.retry_at is not None and "retries" not in also
    if isinstance(body, Held):
        waits = body.why in ("breaker", "children", "attention") or body.name == "retry"
        return waits and "retries" not in also
    if isinstance(body, Released):
        waits = body.name in ("retry", "breaker", "children") or body.name.startswith("effect:")
        return waits and "retries" not in also
    if isinstance(body, Noted):
        return "notes" not in also
    if isinstance(body, Forked):  # a fork without changes is the same run
        return not (body.set or body.config or body.budget) and "run_ids" not in also
    return False


_Facts = Iterator[tuple[tuple[Aspect, str], Any]]


def _facts(body: Body, ids: _Ids, also: Collection[Also]) -> _Facts:
    """Aspect and path of every compared field in a body."""
    if isinstance(body, Started):
        yield ("state", "state"), body.state
        yield ("other", "flow"), body.flow
        yield ("other", "definition"), [body.machine, body.version, body.fingerprint]
        ours = () if "run_ids" in also else (ORIGIN, ROOT)
        kept = {key: value for key, value in body.config.items() if key not in ours}
        yield ("other", "config"), kept
        yield ("other", "budget"), body.budget
        yield ("data", "data"), body.data
        if "run_ids" in also:
            yield ("other", "parent"), body.parent
    elif isinstance(body, Moved):
        yield from _moved(body)
        if "retries" in also:
            yield ("other", "attempt"), body.attempt
    elif isinstance(body, Ended):
        yield ("state", "status"), body.status.value
        yield ("who", "by"), body.by
        yield ("reason", "reason"), body.reason
        yield ("other", "error"), body.error
        yield from _data(body.set, body.append)
    elif isinstance(body, Proposed):
        yield ("who", "by"), body.by
        yield (
            ("effects", "effects"),
            [{"tool": effect.get("tool"), "args": effect.get("args")} for effect in body.effects],
        )
    elif isinstance(body, EffectDone):
        yield ("effects", "tool"), body.tool
        yield ("effects", "receipt"), body.receipt
        if "retries" in also:
            yield ("effects", "how"), body.how
    elif isinstance(body, EffectFailed):
        yield ("effects", "tool"), body.tool
        yield ("effects", "code"), body.code
    elif isinstance(body, EffectSkipped | EffectBegun):
        yield ("effects", "tool"), body.tool
    elif isinstance(body, Held):
        yield ("hold", "name"), body.name
        yield ("hold", "why"), body.why
        yield ("hold", "question"), body.question
        yield ("hold", "choices"), body.choices
        yield ("hold", "default"), body.default
        yield ("hold", "about"), ids.in_value(body.about)
    elif isinstance(body, Released):
        yield ("hold", "name"), body.name
        yield ("hold", "answer"), body.answer
        yield ("who", "by"), body.by
    elif isinstance(body, ChildEnded):
        yield ("child", "run"), ids.of_child(body.run)
        yield ("child", "status"), body.status.value
        yield ("child", "steps"), body.steps
    else:
        yield from _rare(body)


def _moved(body: Moved) -> _Facts:
    yield ("state", "frm"), body.frm
    yield ("state", "to"), body.to
    yield ("state", "status"), body.status.value if body.status is not None else None
    yield ("who", "by"), body.by
    yield ("reason", "reason"), body.reason
    yield ("event", "event"), body.event
    yield from _data(body.set, body.append)
    yield ("looked", "looked"), list(body.looked)


def _data(changes: Mapping[str, Any], additions: Mapping[str, Any]) -> _Facts:
    if changes:
        yield ("data", "data"), dict(changes)
    if additions:
        yield ("data", "added"), dict(additions)


def _rare(body: Body) -> _Facts:
    """The kinds that compare field by field."""
    if isinstance(body, AttemptFailed):
        yield ("other", "error"), [body.step, body.attempt, body.error]
    elif isinstance(body, Recorded):
        value = body.value
        if body.key == FALLBACK and isinstance(value, Mapping):  # its times differ in every run
            value = {name: part for name, part in value.items() if not name.endswith("_ms")}
        yield ("data", "answer"), {body.key: value}
    elif isinstance(body, Migrated):
        yield ("state", "state"), body.state
        yield ("other", "definition"), [body.machine, body.version, body.fingerprint]
        yield from _data(body.set, {})
    elif isinstance(body, Forked):
        yield from _data(body.set, {})
        yield ("other", "config"), body.config
        yield ("other", "budget"), body.budget
    elif isinstance(body, CalledOff):
        yield ("who", "by"), body.by
        yield ("reason", "reason"), body.reason
    elif isinstance(body, Reopened):
        yield ("state", "state"), body.state
        yield ("who", "by"), body.by
        yield ("reason", "reason"), body.reason
    elif isinstance(body, Tagged):
        yield ("other", "tags"), {"add": body.add, "remove": body.remove}
    elif isinstance(body, Noted):
        yield ("other", "topic"), body.topic
        yield ("other", "note"), body.body
    elif isinstance(body, Claimed):
        yield ("other", "lost"), body.lost


class _Ids:
    """Removes the run's own id from its children's ids, which are `<run>.<key>`."""

    def __init__(self, journal: list[Entry], keep: bool) -> None:
        first = journal[0].body if journal else None
        self._parent = first.parent if isinstance(first, Started) else None
        self._keep = keep

    def of_child(self, run: str) -> str:
        """A child's id without its parent's."""
        if self._keep:
            return run
        rest = run.removeprefix(f"{self._parent}.") if self._parent else run
        own, dot, key = rest.partition(".")
        return key if dot else own

    def in_value(self, about: Any) -> Any:
        """The subject of a hold, with children's ids shortened."""
        if isinstance(about, dict) and isinstance(about.get("runs"), list):
            return {**about, "runs": [self.of_child(str(run)) for run in about["runs"]]}
        return about


# -- the point of divergence --------------------------------------------------------------------------------


def _divergence(
    a: _Point | None, b: _Point | None, words_a: Mapping[int, str], words_b: Mapping[int, str]
) -> Divergence:
    what_a = words_a[a.seq] if a is not None else "(nothing more)"
    what_b = words_b[b.seq] if b is not None else "(nothing more)"
    differences = list(_differences(a, b))
    return Divergence(
        a.seq if a else None,
        b.seq if b else None,
        what_a,
        what_b,
        tuple(differences[:MOST]),
        max(0, len(differences) - MOST),
    )


def _differences(a: _Point | None, b: _Point | None) -> Iterator[Difference]:
    if a is None or b is None or a.kind != b.kind:
        yield Difference("what", "kind", a.kind if a else None, b.kind if b else None)
    if a is None or b is None:
        return
    for key in dict.fromkeys([*a.facts, *b.facts]):
        if a.kind != b.kind and not (key in a.facts and key in b.facts):
            continue  # of entries of different kinds, only shared aspects can differ
        aspect, path = key
        for where, pair in _differing(a.facts.get(key), b.facts.get(key), path):
            yield Difference(aspect, where, *pair)


def _differing(a: Any, b: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The key paths at which two plain values differ."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in dict.fromkeys([*a, *b]):
            if key in a and key in b:
                yield from _differing(a[key], b[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}", (a.get(key), b.get(key))
    elif isinstance(a, list) and isinstance(b, list):
        for index in range(max(len(a), len(b))):
            yield from _differing(
                a[index] if index < len(a) else None, b[index] if index < len(b) else None, f"{path}[{index}]"
            )
    elif a != b or isinstance(a, bool) != isinstance(b, bool):
        yield path, (a, b)


# -- both as a whole ----------------------------------------------------------------------------------------


def _summary(journal: list[Entry]) -> Summary:
    run = Run.fold("", journal)
    path: list[str] = []
    effects: list[str] = []
    for entry in journal:
        body = entry.body
        if isinstance(body, Moved):
            path.append(body.to)
        elif isinstance(body, Started) or (
            isinstance(body, Reopened | Migrated) and path and path[-1] != body.state
        ):
            path.append(body.state)
        elif isinstance(body, EffectDone) and body.how != "reused":
            effects.append(body.tool)
    used = run.used()
    return Summary(
        run.flow,
        run.status.value,
        run.state,
        run.reason,
        tuple(path),
        len(journal),
        max(0.0, journal[-1].at - journal[0].at) if journal else 0.0,
        used["seconds"],
        int(used["tokens"]),
        used["cost_usd"],
        tuple(effects),
    )


def render(comparison: Comparison, a: str = "a", b: str = "b") -> str:
    """The comparison as text; `a` and `b` are the names of the runs."""
    divergence = comparison.divergence
    if divergence is None:
        lines = [f"{a} and {b} do not differ; entries compared: {comparison.same}."]
    else:
        seqs = f"{_entry(divergence.seq_a, a)} and {_entry(divergence.seq_b, b)}"
        lines = [f"{a} and {b} differ first at {seqs}."]
        if divergence.what_a == divergence.what_b:
            lines.append(f"  both  {divergence.what_a}")
        else:
            lines += [f"  {line}" for line in columns([(a, divergence.what_a), (b, divergence.what_b)])]
        rows = [
            (item.path, *_formatted(item.a, item.b))
            for item in divergence.differences
            if item.aspect != "what"
        ]
        if rows:
            lines += ["", *(f"  {line}" for line in columns([("", a, "|", b), *rows]))]
        if divergence.left_out:
            lines.append(f"  … and {divergence.left_out} more")
    lines += ["", *columns([("", a, b), *_summary_rows(comparison.a, comparison.b)])]
    return "\n".join(lines)


def _entry(seq: int | None, name: str) -> str:
    return f"the end of {name}" if seq is None else f"entry {seq} of {name}"


def _formatted(a: Any, b: Any) -> tuple[str, str, str]:
    """Two differing values; as JSON, from shortly before the difference, if they would read the same."""
    texts = [_format(a), _format(b)]
    if texts[0] == texts[1]:
        whole = [encode(a), encode(b)]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*whole, strict=False)))
        start = max(0, same - 10)
        texts = [f"{'…' if start else ''}{short(text[start:], 50)}" for text in whole]
    return texts[0], "|", texts[1]


def _format(item: Any) -> str:
    return "(none)" if item is None else value(item, 50)


def _summary_rows(a: Summary, b: Summary) -> Iterator[tuple[str, str, str]]:
    yield "flow", a.flow, b.flow
    yield "status", a.status, b.status
    yield "state", a.state, b.state
    yield "reason", short(a.reason or "", 60), short(b.reason or "", 60)
    yield "path", short(" → ".join(a.path), 100), short(" → ".join(b.path), 100)
    yield "effects", short(", ".join(a.effects), 80), short(", ".join(b.effects), 80)
    yield "entries", f"{a.entries:,}", f"{b.entries:,}"
    yield "elapsed", span(a.elapsed_seconds), span(b.elapsed_seconds)
    yield "at work", span(a.work_seconds), span(b.work_seconds)
    yield "tokens", f"{a.tokens:,}", f"{b.tokens:,}"
    yield "cost", money(a.cost_usd), money(b.cost_usd)
