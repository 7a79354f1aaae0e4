"""Live output of the mailbox: one line per mail and, if requested, its steps in between."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from detent.cli.live import LiveLines
from detent.cli.output import clean, paint, status, width
from detent.cli.progress import step_line, under_way
from detent.dispatch.dispatcher import dispatcher_of
from detent.insight.formatting import count as counted

if TYPE_CHECKING:
    from detent.apps.warranty.service import MailResult
    from detent.apps.warranty.wiring import Components
    from detent.engine.engine import Engine
    from detent.kernel.entries import Entry

PATH = 20
"""Columns of a path."""
WORDS = 52
"""Columns of a mail's result."""
ANSWERED = {
    "03b-device-not-found": "asked",
    "03d-request-serial": "asked",
    "04-out-of-scope": "redirected",
}
"""Words for the result of an answering step, where it is more specific than a sent reply."""
COLOURS = {
    "ignored": "bright_black", "duplicate": "bright_black", "marked": "bright_black",
    "held": "yellow", "unreadable": "yellow",
}  # fmt: skip


class MailLines(LiveLines):
    """Prints the results of mails. On a terminal it also shows the steps under way."""

    def __init__(self, *, steps: bool = False, effects: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.labels: dict[tuple[str, str], str] = {}
        """Reasons of edges, from the step files."""
        self.widest = 12
        self._steps = steps
        self._effects = effects
        """Effects that were shown but not performed, by run."""
        self._at: dict[str, str] = {}

    def on_entry(self, run_id: str, flow: str, entry: Entry) -> None:
        """Follow a run."""
        from detent.apps.warranty.events import short

        if self._steps and (line := step_line(entry, self.widest)) is not None:
            self.print(f"  {line}")
        doing = under_way(entry)
        if doing is None:
            return
        if doing:
            self._at[run_id] = short(doing)
        else:
            self._at.pop(run_id, None)
        if self.is_live:
            self.show_under_way(
                "   ".join(f"{key.split('-')[1]} {at}" for key, at in list(self._at.items())[:4])
            )

    def told(self, mail: MailResult) -> None:
        """Print the result of a mail."""
        from detent.apps.warranty.events import path_of

        result = mail.result
        if result is None:
            painted = paint(mail.what, COLOURS.get(mail.what)) if mail.what in COLOURS else status(mail.what)
            gap = " " * max(1, PATH - len(mail.what))
            reason = mail.reason or ""
            if mail.what == "waiting" and reason.startswith("effect:"):
                reason = "for a person: it is unknown whether an effect happened"
            self.print(f"  {mail.mail_key}  {painted}{gap} {clean(reason)}".rstrip())
            return
        path = path_of([step.removesuffix("-scenario") for step in result.step_sequence])
        words = self.words(mail)
        line = f"  {mail.mail_key}  {path}{' ' * max(1, PATH - width(path))} "
        took = f"{round(result.processing_time_ms):>6} ms"
        words = words + " " * max(0, WORDS - width(words))
        self.print(f"{line}{status(result.status.value, words)} {took}")
        for tool, args in (self._effects or {}).get(mail.run_id or "", ()):
            self._print_effect(tool, args)

    def words(self, mail: MailResult) -> str:
        """The result of a mail, in a few words."""
        result = mail.result
        assert result is not None
        steps = result.step_sequence
        effects = [call for call in result.function_calls if call.kind == "effect" and call.success]
        parts: list[str] = []
        acting = {call.step_name for call in effects}
        for frm, to in pairwise(steps):
            if frm not in acting and (label := self.labels.get((frm, to))):
                parts = [label]
        if result.orchestrator == "legacy":
            parts = [result.scenario_used]
        if result.ticket_id:
            parts.append(f"ticket {result.ticket_id}")
        sent = [call for call in effects if call.function_name == "send_email"]
        if result.success and sent:
            state = (sent[-1].result or {}).get("status", "sent")
            parts.append(ANSWERED.get(steps[-1], f"reply {state}"))
        elif not result.success:
            parts.append(f"{mail.what.replace('_', ' ')}: {result.reason or 'unknown'}")
            if mail.what == "degraded" and sent:
                parts.append("redirected")
        return clean(", ".join(parts))

    def _print_effect(self, tool: str, args: Mapping[str, Any]) -> None:
        if tool == "send_email":
            self.print(f"      would send to {clean(args['to'])}: {clean(args['subject'])}")
            for line in str(args["body"]).splitlines():
                self.print(paint(f"        {clean(line)}".rstrip(), dim=True))
        else:
            arguments = ", ".join(
                f"{name}: {clean(value)}" for name, value in args.items() if value is not None
            )
            self.print(f"      would {tool.replace('_', ' a ')}: {arguments}")


def told_plain(mail: MailResult) -> dict[str, Any]:
    """The result of a mail as JSON values, without any text of the mail."""
    plain: dict[str, Any] = {"mail": mail.mail_key, "what": mail.what, "reason": mail.reason}
    if mail.run_id is not None:
        plain["run"] = mail.run_id
    result = mail.result
    if result is not None:
        plain |= {
            "orchestrator": result.orchestrator, "path": result.step_sequence, "end": result.end,
            "ticket_id": result.ticket_id, "response_sent": result.response_sent, "flags": result.flags,
            "warranty_status": result.warranty_status, "ms": round(result.processing_time_ms, 3),
        }  # fmt: skip
    return plain


async def header(
    components: Components, engine: Engine, where: str, mode: str, *, replayed: bool = False
) -> str:
    """One line about the mailbox, its mode, its steps and its registry."""
    flow = components.flow
    dispatcher = dispatcher_of(engine)
    forced = dispatcher.settings.force_deterministic
    agents = [name for name, step in flow.steps.items() if dispatcher.plan_for(flow, step, forced).agent]
    steps = "all deterministic" if not agents else f"{len(agents)} by an agent"
    count = getattr(components.registry, "count", None)
    registry = f"registry {counted(await count(), 'device')}" if count is not None else "registry: CRM"
    registry = "replayed" if replayed else registry
    name = paint("warranty", bold=True)
    work = "2 steps" if mode == "legacy" else f"{len(flow.steps)} steps, {steps}"
    return f"{name}   {where}   {mode} mode   {work}   {registry}"


def summary(counts: Mapping[str, int]) -> str:
    """One line of totals."""
    total = sum(counts.values())
    shown = [name for name in ("succeeded", "degraded", "failed") if counts.get(name) or name != "degraded"]
    others = [name for name in counts if name not in ("succeeded", "degraded", "failed") and counts[name]]
    words = [f"{counts.get(name, 0)} {name}" for name in [*shown[:1], *others, *shown[1:]]]
    return f"  {counted(total, 'mail')}: {', '.join(words)}"
