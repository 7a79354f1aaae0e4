"""A session added up from the journals of its runs, which are the truth; its file is a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine.journal_reader import load
from detent.flows.coding.sessions.record import (
    COUNTERS,
    RESPONSE,
    SessionRecord,
    figures,
    iso,
)
from detent.flows.coding.sessions.redaction import Redaction
from detent.kernel.errors import RunNotFound
from detent.kernel.plain import copied
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.ports import Store
    from detent.kernel.run import Run

LONGEST_RESULT = 20_000
"""Bytes of a tool result that a session file keeps."""
PURGED = "(purged)"
"""In place of a text that the store does not keep any more."""
CHECKED = ("passed", "skipped")

_COMPARED = (
    "session_id", "workspace", "state", "is_complete", "completion", "outcome", "outcome_reason", "checked",
    "counters", "run_ids", "todos", "files_changed", "usage",
)  # fmt: skip


async def fold_session(
    store: Store, run_ids: Sequence[str], *, earlier: SessionRecord | None = None
) -> SessionRecord:
    """The session that these runs add up to, in their order, on top of what was known of it before.

    Runs that `earlier` holds already are read anew, and those before them need not be given. What else is in
    `earlier` stays: unknown fields at every level, messages and runs of other stores.

    Raises:
        RunNotFound: a run is neither in the store nor in `earlier`.
    """
    runs: list[Run] = []
    for run_id in run_ids:
        try:
            runs.append(await load(store, run_id))
        except RunNotFound:
            if earlier is None or run_id not in earlier.run_ids:
                raise
    return await fold_runs(store, runs, earlier=earlier)


async def fold_runs(
    store: Store, runs: Sequence[Run], *, earlier: SessionRecord | None = None
) -> SessionRecord:
    """The same of runs that have been read already."""
    fold = _Fold(store, earlier)
    for run in runs:
        await fold.add(run)
    return fold.record()


def difference(record: SessionRecord, folded: SessionRecord, redaction: Redaction | None = None) -> list[str]:
    """Where a file's session is not what its journals say, one sentence each. The journals are right.

    Secrets that stand in a journal and are removed from the file make no difference.
    """
    hide = redaction or Redaction()
    file, journal = hide.session(record.to_plain()), hide.session(folded.to_plain())
    told = [
        f"{name}: the file has {_shown(file.get(name))}, the journal {_shown(journal.get(name))}."
        for name in _COMPARED
        if _known_part(name, file.get(name)) != _known_part(name, journal.get(name))
    ]
    ours, theirs = file["messages"], journal["messages"]
    place = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if _differ(*pair)), None)
    if place is not None:
        told.append(f"messages: number {place + 1:,} is not the one in the journal.")
    if len(ours) != len(theirs):
        told.append(f"messages: the file has {len(ours):,}, the journal {len(theirs):,}.")
    return told


# -- runs ---------------------------------------------------------------------------------------------------


class _Fold:
    """A session to which runs are added."""

    def __init__(self, store: Store, earlier: SessionRecord | None) -> None:
        self._store = store
        self._record = earlier
        self._run_ids = [] if earlier is None else earlier.run_ids
        self._messages = _by_run(self._run_ids, [] if earlier is None else earlier.messages)
        self._usage = figures(None) if earlier is None else earlier.usage
        self._before_last = figures(None) if earlier is None else earlier.usage_before_last
        self._files = [] if earlier is None else earlier.files_changed
        self._last: dict[str, Any] = {}
        """What the last run says of where the session is."""

    async def add(self, run: Run) -> None:
        """One more run, or the present standing of one that is known."""
        data = run.data
        if self._record is None:
            self._record = SessionRecord.new(str(data["session"]), run.created_at, workspace=None)
        self._messages[run.id] = await _messages(self._store, run, self._messages.get(run.id, []))
        if run.id in self._run_ids[:-1]:
            return  # the runs after it say where the session is
        if self._run_ids[-1:] != [run.id]:
            self._run_ids.append(run.id)
            self._before_last = self._usage
        used = run.total_spend
        self._usage = {name: figure + getattr(used, name) for name, figure in self._before_last.items()}
        self._files = list(dict.fromkeys([*self._files, *(data.get("files_changed") or ())]))
        self._last = await self._place(run)

    async def _place(self, run: Run) -> dict[str, Any]:
        data = run.data
        completion = data.get("completion")
        complete = run.state == RESPONSE and completion is not None
        outcome, reason = _outcome(run, complete)
        checked = data.get("checked")
        summary = await _text(self._store, data.get("summary")) if outcome == "incomplete" else None
        return {
            "updated_at": iso(run.updated_at),
            "workspace": data.get("workspace"),
            **({"model": data["model"]} if data.get("model") else {}),
            "state": run.state,
            "is_complete": complete,
            "completion": copied(completion) if complete else None,
            "outcome": outcome,
            "outcome_reason": reason,
            "summary": summary,
            "checked": checked if checked in CHECKED else "none",
            "hold": _hold(run),
            "counters": {name: int((data.get("counters") or {}).get(name) or 0) for name in COUNTERS},
            "todos": data.get("todos") or [],
        }

    def record(self) -> SessionRecord:
        """The session."""
        record = self._record
        if record is None:
            raise ValueError("A session has at least one run.")
        fields = dict(self._last)
        if fields:
            fields["todos"] = _todos(record.todos, fields["todos"])
            if fields["summary"] is None and "summary" not in record.plain:
                del fields["summary"]
        return record.changed(
            run_ids=self._run_ids,
            messages=[message for messages in self._messages.values() for message in messages],
            files_changed=self._files,
            usage={**self._usage, "before_last": self._before_last},
            **fields,
        )


def _outcome(run: Run, complete: bool) -> tuple[str | None, str | None]:
    """How a request has ended, and why; None while it is under way or interrupted."""
    if complete:
        return "completed", None
    match run.status:
        case Status.RUNNING:
            return None, None
        case Status.WAITING:
            hold = next(iter(run.holds.values()), None)
            return "waiting", None if hold is None else hold.why
        case Status.BUDGET_EXHAUSTED | Status.CANCELLED as status:
            return status.value, run.reason
    if run.data.get("outcome") == "incomplete":
        return "incomplete", run.data.get("outcome_reason")
    return "failed", run.error or run.reason


def _hold(run: Run) -> dict[str, Any] | None:
    """The question that a run waits for."""
    if run.status is not Status.WAITING or not run.holds:
        return None
    name, hold = next(iter(run.holds.items()))
    return {
        "run_id": run.id, "name": name, "entry": run.held_at.get(name, 0), "why": hold.why,
        "question": hold.question, "choices": list(hold.choices),
    }  # fmt: skip


def _todos(before: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The list of things to do, with what else is known of the same items."""
    known = {item["id"]: item for item in before}
    return [{**known.get(item["id"], {}), **copied(dict(item))} for item in items]


# -- messages -----------------------------------------------------------------------------------------------


def _by_run(run_ids: Sequence[str], messages: Sequence[Any]) -> dict[str, list[Any]]:
    """The messages of each run, in their order; those before the first run under no name."""
    parts: dict[str, list[Any]] = {"": []}
    known, part = frozenset(run_ids), parts[""]
    for message in messages:
        run_id = message.get("run_id") if isinstance(message, Mapping) else None
        if isinstance(run_id, str) and run_id in known and run_id not in parts:
            part = parts[run_id] = []
        part.append(message)
    return parts


async def _messages(store: Store, run: Run, before: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages of a run as its journal has them, each with what else the file knew of it."""
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(run.data.get("turns") or ()):
        known = _same_message(before[number], turn) if number < len(before) else {}
        message: dict[str, Any] = {**known, **copied(dict(turn))}
        if number == 0:
            message["run_id"] = run.id  # the place where the run begins
        if isinstance(message.get("at"), int | float):
            message["at"] = iso(message["at"])
        text = await _text(store, turn.get("content"))
        purged = text is None
        if text is None:
            text = str(known.get("content", PURGED))
        message["content"] = text
        if message["role"] == "tool":
            message |= _cut(text, bool(turn.get("truncated")) or purged)
        messages.append(message)
    return messages


def _same_message(known: Any, turn: Mapping[str, Any]) -> Mapping[str, Any]:
    """A file's message if it is that of the journal; else an empty one."""
    if not isinstance(known, Mapping) or not isinstance(known.get("content"), str):
        return {}
    return known if all(known.get(name) == turn.get(name) for name in ("role", "tool_call_id")) else {}


async def _text(store: Store, content: Any) -> str | None:
    """A text of the data, also where it is kept outside the journal; None if it was purged."""
    if isinstance(content, Mapping) and "$blob" in content:
        raw = await store.blob(content["$blob"])
        return None if raw is None else raw.decode("utf-8", "surrogatepass")
    return "" if content is None else str(content)


def _cut(text: str, truncated: bool) -> dict[str, Any]:
    """A tool result as a file keeps it."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= LONGEST_RESULT:
        return {"content": text, "truncated": truncated}
    note = f"\n[cut: {len(raw):,} bytes]"
    head = raw[: LONGEST_RESULT - len(note)].decode("utf-8", "ignore")
    return {"content": head + note, "truncated": True}


# -- differences --------------------------------------------------------------------------------------------


def _known_part(name: str, value: Any) -> Any:
    """What of a field the journals know."""
    if name == "counters":
        return {key: int((value or {}).get(key, 0)) for key in COUNTERS}
    if name == "usage":
        return {key: round(figure, 9) for key, figure in figures(value).items()}
    if name == "todos":
        return [
            {key: item.get(key) for key in ("id", "content", "status", "priority")} for item in value or ()
        ]
    if name == "completion" and value is not None:
        return {key: value.get(key) for key in ("line_no", "marker_line", "summary", "source")}
    return value


def _differ(one: Any, other: Any) -> bool:
    """Whether two messages do not say the same."""
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return bool(one != other)
    names = ("role", "content", "tool_calls", "tool_call_id", "ok")
    return any(one.get(name) != other.get(name) for name in names)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
