"""Processing mails: `run warranty`, and what `warranty demo` and `warranty retry` share with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.apps.warranty.app import APP
from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from detent.apps.warranty.commands.lines import MailLines
    from detent.apps.warranty.mailbox import Mailbox
    from detent.apps.warranty.service import MailResult, Service
    from detent.cli.signals import Stop
    from detent.cli.workspace import Workspace
    from detent.engine.ports import Tape
    from detent.runtime.settings import Settings

BAD = ("failed", "degraded", "budget_exhausted")
"""Ends that give a command the exit code 1."""
AGAIN = "detent run warranty --mail FILE"
"""Plays a recording back, of which each mail is named."""


@takes("deterministic", "record", "replay", "quiet", "project", "log")
async def run(
    options: Options,
    once: Annotated[bool, typer.Option("--once", help="Look at the mailbox once, then end.")] = False,
    mail: Annotated[
        list[Path] | None, typer.Option("--mail", metavar="FILE", help="Just this mail. May be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide, show what would be done, and do nothing.")
    ] = False,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", metavar="STEP=MODE", help="agent or deterministic. May be repeated."),
    ] = None,
    autonomy: Annotated[
        list[str] | None,
        typer.Option("--autonomy", metavar="STEP=LEVEL", help="How far an agent is trusted."),
    ] = None,
    orchestrator: Annotated[
        str | None, typer.Option("--orchestrator", metavar="MODE", help="step or legacy.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a line of JSON a mail.")] = False,
) -> int:
    """Watch the mailbox: answer what comes in, until stopped.

    Ctrl-C or SIGTERM finishes the steps under way; a second one stops at once. Whatever was not finished
    goes on with the next start.
    """
    from detent.apps.warranty.own_heading import at_the_top
    from detent.cli.output import warn
    from detent.cli.record import exit_code, tape

    check_tape(options, once=once, named=mail is not None, dry_run=dry_run)
    workspace = mailbox_workspace(options)
    settings = overridden(workspace.settings, mode, autonomy, orchestrator)
    names = at_the_top(workspace.settings)
    if names and not (options.quiet or json):
        place, listed = workspace.settings.place(names[0]), ", ".join(names)
        warn(f"Hint ({place}): settings of the mailbox belong under 'warranty:'; move these there: {listed}.")
    served = not (once or mail is not None or dry_run or options.quiet)
    # Nobody watches the output of a service: its log says what happened to every mail.
    usual = "info" if served and not sys.stdout.isatty() else "warning"
    configure_log(settings, options.verbose, options.log_level, json=json, usual=usual)
    job = _Job(workspace, settings, once=once, files=mail, dry=dry_run, json=json, quiet=options.quiet)
    job.log = (options.verbose, options.log_level, usual)
    job.deterministic = options.deterministic
    silent = options.quiet or json
    again = "" if mail else AGAIN
    with tape(options, workspace.settings, APP.flows, json=silent, again=again) as job.tape:
        return exit_code(job.tape, await job.run())


def check_tape(options: Options, *, once: bool, named: bool, dry_run: bool) -> None:
    """Raise `ConfigurationError` if the command line asks for a tape that cannot be."""
    from detent.cli.record import check_options
    from detent.kernel.errors import ConfigurationError

    check_options(options, dry_run=dry_run)
    if options.replay is not None and (once or not named):
        raise ConfigurationError("--replay repeats the mails that are named: --mail FILE --replay FILE.")
    if options.record is not None and not (once or named):
        raise ConfigurationError("--record needs an end: add --mail FILE or --once.")


def mailbox_workspace(options: Options, *, looks: bool = False) -> Workspace:
    """The workspace of a project; its runs are stored in the project, wherever the command is called."""
    from detent.runtime.settings import SettingsError
    from detent.runtime.store_url import DEFAULT_STORE

    try:
        workspace = options.workspace(looks=looks)
        settings = workspace.settings
    except SettingsError as error:
        from detent.apps.warranty.mailbox import all_told

        raise all_told(error) from error
    elsewhere = settings.file is not None and settings.file.parent.resolve() != settings.folder.resolve()
    if elsewhere and settings.get("store") is None:
        assert settings.file is not None
        workspace.keep_runs_in(str(settings.file.parent / DEFAULT_STORE))
    return workspace


def overridden(
    settings: Settings,
    modes: list[str] | None = None,
    levels: list[str] | None = None,
    orchestrator: str | None = None,
) -> Settings:
    """The settings with the options of this command line."""
    from detent.apps.warranty.own_heading import lifted
    from detent.cli.values import read_step_settings
    from detent.kernel.errors import ConfigurationError

    changes = read_step_settings(modes, levels, example="01-extract-serial")
    if orchestrator is not None:
        if orchestrator not in ("step", "legacy"):
            raise ConfigurationError(f"--orchestrator takes step or legacy, not '{orchestrator}'.")
        changes["orchestration", "use_step_orchestrator"] = orchestrator == "step"
    return lifted(settings).over(changes) if changes else settings


def configure_log(
    settings: Settings, verbose: int, level: str | None, *, json: bool = False, usual: str = "warning"
) -> None:
    """Log to standard output, problems to standard error; with JSON, everything to standard error.

    `usual` is the level if neither the command line nor the settings say anything about the log.
    """
    from detent.runtime import logging

    if verbose:
        level = level or ("debug" if verbose > 1 else "info")
    if not level and not logging.wanted(settings):
        level = usual
    logging.configure(settings, level, split=not json)


class _Job:
    """One call of `run warranty`."""

    def __init__(
        self,
        workspace: Workspace,
        settings: Settings,
        *,
        once: bool,
        files: list[Path] | None,
        dry: bool,
        json: bool,
        quiet: bool,
    ) -> None:
        self.workspace = workspace
        self.settings = settings
        self.once = once or files is not None or dry
        self.files = files
        self.dry = dry
        self.json = json
        self.shown = not (json or quiet)
        self.log: tuple[int, str | None, str] = (0, None, "warning")
        self.deterministic = False
        self.tape: Tape | None = None

    @property
    def replays(self) -> bool:
        """Whether the answers come from a recording, and nothing is taken in."""
        return self.tape is not None and self.tape.plays

    async def run(self) -> int:
        """Open everything, then work."""
        from contextlib import nullcontext

        from detent.apps.warranty.commands.lines import MailLines, header
        from detent.apps.warranty.dry_run import Rehearsal
        from detent.apps.warranty.mailbox import opened, warranty_settings
        from detent.cli.output import say, warn

        rehearsal = Rehearsal() if self.dry else None
        lines = MailLines(effects=rehearsal.shown if rehearsal is not None else None)
        source = None
        if self.files is not None:
            from detent.apps.warranty.files_source import NamedFiles

            own = warranty_settings(self.settings)
            source = NamedFiles(self.files, max_size=int(own.mail.max_size_mb * 1024 * 1024))
        others = [definition.flow for definition in self.workspace.catalog.all().values()]
        async with opened(
            self.settings, others=others, observers=[lines] if self.shown else [], source=source,
            rehearsal=rehearsal, deterministic=self.deterministic, tape=self.tape,
            notice=warn if self.shown else None,
        ) as box:  # fmt: skip
            learn(lines, box)
            with self._reopen_log():  # in effect before the first output
                if self.shown:
                    where = source_shown(box, self.files)
                    mode = await mode_of(box)
                    say(await header(box.components, box.engine, where, mode, replayed=self.replays))
                    if (line := await box.rollback.line()) is not None:
                        say(f"  {line}")
                with lines if self.shown else nullcontext():
                    if rehearsal is not None or self.replays:
                        return await self._rehearse(box, lines)
                    return await self._work(box, lines)

    async def _rehearse(self, box: Mailbox, lines: MailLines) -> int:
        from collections import Counter

        from detent.apps.warranty.dry_run import rehearse

        results = await rehearse(
            box.source, box.intake, box.processor, lambda result: self._print_result(lines, result)
        )
        counts = Counter(result.what for result in results)
        self._print_summary(counts)
        return 1 if any(counts[name] for name in BAD) else 0

    async def _work(self, box: Mailbox, lines: MailLines) -> int:
        import signal

        from detent.cli.output import say, warn
        from detent.cli.signals import INTERRUPTED, graceful

        service = box.service(lambda result: self._print_result(lines, result))
        with graceful(lambda: "What was under way goes on with the next start.") as stop:
            if self.once:
                if not await self._once(service, stop):
                    warn("Stopped. What was under way goes on with the next start.")
                    return INTERRUPTED
            else:
                await service.serve(stop.asked)
                if self.shown:
                    say("Draining: the steps under way are finished first.")
                await service.stop()
                self._print_summary(service.counts)
                return 0 if stop.signal == signal.SIGTERM else INTERRUPTED
        self._print_summary(service.counts)
        return 1 if any(service.counts[name] for name in BAD) else 0

    async def _once(self, service: Service, stop: Stop) -> bool:
        """Process the mailbox once; False when a signal came first."""
        import asyncio

        from detent.cli.signals import done_first

        working = asyncio.ensure_future(service.once())
        if await done_first(working, stop):
            working.result()
            return True
        await service.stop()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return False

    def _print_result(self, lines: MailLines, result: MailResult) -> None:
        if self.json:
            import json

            from detent.apps.warranty.commands.lines import told_plain
            from detent.cli.output import say

            say(json.dumps(told_plain(result), ensure_ascii=False))
        elif self.shown:
            lines.told(result)

    def _print_summary(self, counts: Any) -> None:
        from detent.apps.warranty.commands.lines import summary
        from detent.cli.output import say

        if self.json:
            import json

            say(json.dumps({"counts": dict(sorted(counts.items()))}))
        elif self.shown:
            say(summary(counts))

    def _reopen_log(self) -> Any:
        """A context in which SIGHUP reopens the log file."""
        import asyncio
        import signal
        from contextlib import ExitStack

        stack = ExitStack()
        if hasattr(signal, "SIGHUP") and not self.dry:
            loop = asyncio.get_running_loop()
            verbose, level, usual = self.log
            loop.add_signal_handler(
                signal.SIGHUP,
                lambda: configure_log(self.settings, verbose, level, json=self.json, usual=usual),
            )
            stack.callback(loop.remove_signal_handler, signal.SIGHUP)
        return stack


def learn(lines: MailLines, box: Mailbox) -> None:
    """Give the lines the names of the steps and the reasons of the edges."""
    from detent.apps.warranty.events import labels_of
    from detent.cli.output import width

    flow = box.components.flow
    lines.labels = labels_of(flow)
    lines.widest = max(width(flow.machine.named(state)) for state in flow.machine.states)


async def mode_of(box: Mailbox) -> str:
    """The mode of the next mail, in a word."""
    return "paused, step" if await box.rollback.paused() else await box.processor.choose()


def source_shown(box: Mailbox, files: list[Path] | None) -> str:
    """Where mails come from, in short."""
    mail = box.settings.mail
    if files is not None:
        return box.source.describe()
    return mail.inbox if mail.source != "imap" else f"{mail.imap.host}/{mail.imap.folder}"
