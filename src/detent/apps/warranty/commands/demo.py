"""Plays the demo: processes sample mails in a temporary folder and shows each step."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.cli.output import clean, paint, say, table
from detent.insight.formatting import count

if TYPE_CHECKING:
    from detent.apps.warranty.mailbox import Mailbox
    from detent.apps.warranty.service import MailResult
    from detent.runtime.settings import Settings

FACTS = {
    "agent": {"max_concurrent_runs": 1},  # one after the other, so that steps can be followed
    "store": ".detent/detent.db",
}


async def play(folder: Path | None) -> int:
    """Create the project, process the mails and show the results."""
    from detent.apps.warranty.commands.lines import MailLines, header, summary
    from detent.apps.warranty.commands.run import BAD, learn, mode_of
    from detent.apps.warranty.mailbox import opened
    from detent.apps.warranty.project import demo_registry, make_demo
    from detent.apps.warranty.tools.registry import Registry

    folder = _folder(folder)
    mails = make_demo(folder)
    registry = Registry(folder / "warranty.db")
    await registry.import_csv(demo_registry())
    await registry.close()
    lines = MailLines(steps=True)
    async with opened(settings_for(folder), observers=[lines], environ={}) as box:
        learn(lines, box)
        say(await header(box.components, box.engine, "mail/inbox", await mode_of(box)))
        wait = f"{count(len(mails), 'mail')} {'waits' if len(mails) == 1 else 'wait'}"
        say(f"{wait} in {folder / 'mail/inbox'}. No model, key or network is used.")
        say()
        results: list[MailResult] = []
        service = box.service(lambda result: _print_result(lines, result, results))
        with lines:
            await service.once()
        say(summary(service.counts))
        await _print_outcome(box, folder, next(result.run_id for result in results if result.run_id))
        return 1 if any(service.counts[name] for name in BAD) else 0


def settings_for(folder: Path) -> Settings:
    """Settings of the demo: none of the user's own, and no path outside its folder."""
    from detent.runtime.settings import Settings

    return Settings(folder, values=FACTS)


def _folder(folder: Path | None) -> Path:
    from detent.kernel.errors import ConfigurationError

    if folder is None:
        return Path(tempfile.mkdtemp(prefix="detent-warranty-"))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not empty. Name a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _print_result(lines: Any, result: MailResult, results: list[MailResult]) -> None:
    results.append(result)
    lines.told(result)
    say()


def _program() -> str:
    """The program as it can be typed in any folder: by name where the shell finds this one, else by path."""
    beside = Path(sys.executable).with_name("detent")
    if (found := shutil.which("detent")) is not None and Path(found).resolve() == beside.resolve():
        return "detent"
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m detent"


async def _print_outcome(box: Mailbox, folder: Path, run_id: str) -> None:
    """Show where replies and tickets are, the metrics, and commands to go on with."""
    from detent.adapters.mail.message import read_message
    from detent.apps.warranty.tools.tickets import Tickets
    from detent.insight.metrics import flow_metrics

    outbox = folder / "mail/outbox"
    replies = sorted(outbox.glob("*.eml"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    say()
    say(paint(f"Replies: {len(replies)} in {outbox}", bold=True))
    if replies:
        first = read_message(replies[0].read_bytes())
        say(f"  The first, to {clean(first.headers.get('To', ''))}: {clean(first.subject)}")
        for line in first.body.strip().splitlines():
            say(paint(f"    {clean(line)}".rstrip(), dim=True))
    say()
    tickets = box.components.tickets
    assert isinstance(tickets, Tickets)
    listed = await tickets.list()
    say(paint(f"Tickets: {len(listed)} in {folder / 'warranty.db'}", bold=True))
    table(
        ("TICKET", "PRIORITY", "SUBJECT"),
        [(ticket.ticket_id, ticket.priority, ticket.subject) for ticket in reversed(listed)],
    )
    say()
    say(flow_metrics(await box.engine.store.edges(box.components.flow.name)).report)
    say()
    say("Look further:")
    say(f"  cd {shlex.quote(str(folder))}")
    for command in ("runs", f"why {run_id}", "warranty tickets list", "warranty attention"):
        say(f"  {_program()} {command}")
