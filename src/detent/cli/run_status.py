"""A run's status in words and as JSON, and the commands a person can use on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, iso, local, say, status, warn
from detent.insight.effect_text import REVIEW, is_confirmation
from detent.insight.formatting import count, money, span
from detent.kernel.control_characters import shown
from detent.kernel.plain import encode
from detent.kernel.status import REOPENABLE, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from detent.cli.workspace import Workspace
    from detent.engine.ports import RunRow, Store
    from detent.kernel.entries import Held
    from detent.kernel.run import Run

MOST_NAMED = 10
"""Number of steps that a warning lists."""


def exit_code(ended: Status) -> int:
    """Exit code of a command that drove a run; a waiting run counts as success."""
    return 0 if ended in (Status.SUCCEEDED, Status.WAITING, Status.RUNNING) else 1


def failed_at_end(run: Run) -> list[str]:
    """The holds of a run that is over but for an effect which has failed and can be tried again."""
    return [
        name
        for name, hold in run.holds.items()
        if name.startswith("effect:") and "happened" not in hold.choices
    ]


def summary(run: Run) -> str:
    """A run's status in one line."""
    total = run.total_spend
    where = "" if run.state == run.status.value else f" in {clean(run.state)}"
    parts = [
        f"{status(run.status.value, run.status.value.replace('_', ' '))}{where}",
        count(run.steps, "step"),
        f"{span(run.seconds)} at work",
        count(total.tokens, "token") if total.tokens else "",
        money(total.cost_usd) if total.cost_usd else "",
    ]
    return " · ".join(part for part in parts if part)


def next_commands(workspace: Workspace, run: Run, *, reopen: bool = True) -> list[str]:
    """The commands that move an open or reopenable run on; none for a run that is not kept."""
    from detent.kernel.placeholders import uses_receipt

    commands: list[str] = []
    if workspace.forgets:
        return commands
    for name, hold in run.holds.items():
        if name in failed_at_end(run):
            commands.append(workspace.command("resume", run.id))
            settle = workspace.command("resolve", run.id, "again", "--hold", run.token(name))
            commands.append(f"{settle}   (or: skip to go on without it)")
        elif name.startswith("effect:"):
            settle = workspace.command("resolve", run.id, "happened", "--hold", run.token(name))
            receipt = " --receipt JSON" if uses_receipt(run.proposal, hold.about["effect"]) else ""
            commands.append(f"{settle}{receipt}   (or: again to perform it, skip to go on without it)")
        elif hold.why == "children":
            commands += [workspace.command("show", child) for child in hold.about.get("runs", [])[:5]]
        elif hold.why in ("timer", "breaker") and hold.wake_at is not None:
            commands.append(workspace.command("resume", run.id) + f"   (from {local(hold.wake_at)} on)")
        elif hold.why == REVIEW:
            commands.append(workspace.command("review", "list"))
        elif is_confirmation(hold):
            yes = workspace.command("release", run.id, "yes", "--hold", run.token(name))
            commands.append(f"{yes}   (or: {_other_answers(hold)})")
        else:
            answer = hold.choices[0] if hold.choices else "ANSWER"
            others = f"   (or: {', '.join(hold.choices[1:])})" if len(hold.choices) > 1 else ""
            commands.append(workspace.command("release", run.id, answer, "--hold", run.token(name)) + others)
    if run.status is Status.RUNNING:
        commands.append(workspace.command("resume", run.id))
    elif run.status in REOPENABLE and run.status is not Status.CANCELLED:
        commands.append(workspace.command("why", run.id))
        if not reopen:
            return commands
        limit = run.budget.exceeded(run.used()) if run.budget is not None else None
        more = {"tokens": "--budget-tokens", "cost_usd": "--budget-usd"}.get(limit or "", f"--budget-{limit}")
        commands.append(workspace.command("reopen", run.id) + (f" {more} MORE" if limit else ""))
    return commands


SET_BY_CODE = frozenset({"workspace", "seen", "denied", "secrets", "timeout"})
"""Arguments that no person changes."""
PLACES = frozenset({"cwd", "filepath", "path", "directory", "to"})


def _other_answers(hold: Held) -> str:
    """The answers to a confirmation besides yes, as they are typed in a shell."""
    args = hold.about.get("args") or {}
    names = [name for name in args if not name.startswith("$") and name not in SET_BY_CODE]
    # Texts are what people change: a command, the content of a file, the body of a letter.
    texts = [name for name in names if isinstance(args[name], str) and name not in PLACES]
    first = next(iter(texts or names), "ARGUMENT")
    return f"""no, '{{"no": "why"}}', '{{"edit": {{"{clean(first)}": …}}}}'"""


def effect_lines(hold: Held) -> list[str]:
    """The effect that a hold is about, a line each: tool, exact arguments, why it failed, preview."""
    if "tool" not in hold.about:
        return []
    args, preview = hold.about.get("args") or {}, hold.about.get("shown")
    lines = [clean(hold.about["tool"])]
    if "$hash" in args:
        lines.append(f"  arguments of {args.get('size', 0):,} characters, kept outside the journal")
    else:
        for name, value in args.items():
            lines += _value_lines(f"  {clean(name)}: ", value)
    if error := hold.about.get("error"):
        lines += _value_lines("error: ", error)
    if preview:
        lines += [f"  | {shown(line)}" for line in str(preview).splitlines()]
    return lines


def _value_lines(label: str, value: Any) -> list[str]:
    """A value behind its name; a text of several lines below it."""
    text = value if isinstance(value, str) else encode(value)
    first, *rest = text.splitlines() or [""]
    if not rest:
        return [label + shown(first)]
    return [label.rstrip(), *(f"    | {shown(line)}" for line in (first, *rest))]


async def undriven(store: Store, rows: Iterable[RunRow]) -> set[str]:
    """Of these runs, the ids of the running ones that no worker drives, because it has stopped or died."""
    from detent.engine.clock import SystemClock
    from detent.engine.leases import Leases

    running = [row for row in rows if row.now.status is Status.RUNNING]
    if not running:
        return set()
    workers = {worker.id for worker in await store.workers()}
    workers -= {worker.id for worker in await Leases(store, SystemClock()).dead()}
    return {row.id for row in running if row.owner not in workers}


def tell(workspace: Workspace, run: Run, *, told: str | None = None, asked: Collection[str] = ()) -> None:
    """Print a run's status and its next commands.

    An error already `told` and questions already `asked` are not repeated.
    """
    say(summary(run))
    why = run.error or run.reason
    if run.status.is_end and run.status is not Status.SUCCEEDED and why and why != told:
        say(f"  {clean(why)}")
    for hold in run.holds.values():
        if hold.question and hold.question not in asked:
            say(f"  {clean(hold.question)}")
        for line in effect_lines(hold):
            say(f"  {line}")
    for command in next_commands(workspace, run):
        say(f"  {command}")


def holds_plain(run: Run) -> list[dict[str, Any]]:
    """Open holds as JSON values."""
    return [
        {
            "name": hold.name,
            "token": run.token(hold.name),
            "why": hold.why,
            "question": hold.question,
            "choices": hold.choices,
            "wake_at": iso(hold.wake_at),
            "about": hold.about,
        }
        for hold in run.holds.values()
    ]


def run_plain(run: Run) -> dict[str, Any]:
    """A run's status as JSON values."""
    total = run.total_spend
    return {
        "id": run.id,
        "flow": run.flow,
        "version": run.version,
        "fingerprint": run.fingerprint,
        "status": run.status.value,
        "state": run.state,
        "reason": run.reason,
        "error": run.error,
        "data": run.data,
        "tags": run.tags,
        "parent": run.parent,
        "forked_from": run.forked_from,
        "created_at": iso(run.created_at),
        "updated_at": iso(run.updated_at),
        "entries": run.seq,
        "steps": run.steps,
        "seconds": run.seconds,
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "tokens": total.tokens,
        "cost_usd": total.cost_usd,
        "budget": run.budget.to_plain() if run.budget else None,
        "holds": holds_plain(run),
        "children": run.children,
    }


def row_plain(row: RunRow) -> dict[str, Any]:
    """A line of a listing as JSON values."""
    now = row.now
    return {
        "id": row.id,
        "flow": row.flow,
        "status": now.status.value,
        "state": now.state,
        "reason": now.reason,
        "error": now.error,
        "tags": list(row.tags),
        "parent": row.parent,
        "created_at": iso(row.created_at),
        "updated_at": iso(now.updated_at),
        "wake_at": iso(now.wake_at),
        "entries": row.seq,
        "steps": now.steps,
        "tokens": now.tokens,
        "cost_usd": now.cost_usd,
        "waits": now.waits,
    }


def warn_of_undone(run_id: str, steps: Sequence[str], partly: Iterable[str] = ()) -> None:
    """Warn about steps that a fork counts as done although the original run has rolled them back.

    Of the steps in `partly`, it has rolled back some effects and not others.
    """
    if steps:
        warn(
            f"Run {run_id} has since undone what these steps did, which count as done here: {_named(steps)}."
        )
    if half := sorted(partly):
        warn(
            f"Run {run_id} has undone only a part of what these steps did, which count as done here: "
            f"{_named(half)}. Look at the rest before you go on: detent why {run_id}"
        )


def _named(steps: Sequence[str]) -> str:
    named = [*steps[:MOST_NAMED], *(["…"] if len(steps) > MOST_NAMED else [])]
    return clean(", ".join(named))
