"""The service around the processor: watches a mailbox, runs its mails, marks those that are done.

A mail is marked after the end of its run is committed; a service that finds it unmarked later only marks it.
Several services may watch one mailbox: records and runs are created once, each run is driven by one service,
and the result of a mail is reported by one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from detent.adapters.mail.source import MailGone, MailSource
from detent.apps.warranty.events import mail_completed
from detent.apps.warranty.files_source import NamedFiles
from detent.apps.warranty.intake import Admitted, Intake, source_id, tell
from detent.apps.warranty.intake_records import Record, run_id_of
from detent.apps.warranty.mail_data import Packed, pack
from detent.apps.warranty.processor import EmailProcessor
from detent.apps.warranty.purge import purge_run, purge_texts
from detent.apps.warranty.reruns import Starter
from detent.apps.warranty.results import ProcessingResult
from detent.apps.warranty.wiring import Components
from detent.engine import logger
from detent.engine.engine import Engine
from detent.engine.ports import RunRow
from detent.kernel.errors import DefinitionChanged, DetentError, RunBusy, RunNotFound, RunStateError
from detent.kernel.run import Run
from detent.kernel.status import Status

PATIENCE = 60.0
"""Seconds a mail's run may wait for the clock before the service turns to the next mail."""
TAKE_UP_EVERY = 5.0
"""Seconds between looks for runs that are interrupted or due."""
PURGE_EVERY = 3600.0


class TooManyErrors(DetentError):
    """Looking at the mailbox failed too many times in a row."""

    def __init__(self, times: int, error: BaseException) -> None:
        self.times = times
        last_error = str(error) if isinstance(error, DetentError) else type(error).__name__
        super().__init__(
            f"The mailbox could not be looked at {times} times in a row. The last time: {last_error}"
        )


@dataclass(frozen=True, slots=True)
class MailResult:
    """The result of one mail."""

    mail_key: str
    what: str
    """succeeded, failed, degraded, cancelled, waiting; ignored, duplicate, held, unreadable; marked."""
    reason: str | None = None
    result: ProcessingResult | None = None
    run_id: str | None = None


Tell = Callable[[MailResult], None]


class Service:
    """Processes the mails of one mailbox."""

    def __init__(
        self,
        components: Components,
        processor: EmailProcessor,
        source: MailSource,
        intake: Intake,
        *,
        tell: Tell | None = None,
        settled: Callable[[ProcessingResult], Awaitable[None]] | None = None,
        paused: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        self.components = components
        self.processor = processor
        self.source = source
        self.intake = intake
        self.records = intake.records
        self._files = isinstance(source, NamedFiles)
        self.source_id = source_id(NamedFiles.name if self._files else source.describe())
        self.starter = Starter(processor, self._packed)
        self.counts: Counter[str] = Counter()
        """Mails by result."""
        self.stopping = False
        self._tell = tell or (lambda result: None)
        self._settled = settled
        """Called with the result of every run that has ended."""
        self._paused = paused
        """Returns the reason why no mail is taken in now; None if mails are."""
        self._busy: dict[str, asyncio.Task[None]] = {}
        """Mails in progress, by ref."""
        self._slots = asyncio.Semaphore(components.settings.agent.max_concurrent_runs)
        self._trouble: Exception | None = None
        """The last error outside a run since the last poll."""
        self._listed: frozenset[str] = frozenset()

    @property
    def engine(self) -> Engine:
        """The engine of the runs."""
        return self.processor.orchestrator.engine

    # -- watching -------------------------------------------------------------------------------------------

    async def once(self) -> None:
        """Look at the mailbox once and wait for all its mails."""
        await self.poll()
        await self.finish()
        if self._trouble is not None:
            raise self._trouble

    async def serve(self, stop: asyncio.Event) -> None:
        """Watch the mailbox until stopped.

        Raises:
            TooManyErrors: the mailbox could not be read too many times in a row.
        """
        agent = self.components.settings.agent
        errors = 0
        maintenance = asyncio.create_task(self._maintain())
        try:
            while not stop.is_set():
                error = await self._poll_safely()
                errors = 0 if error is None else errors + 1
                if error is not None:
                    logger.warning("intake.failed", error=type(error).__name__, in_a_row=errors)
                    if errors >= agent.max_consecutive_errors:
                        raise TooManyErrors(errors, error)
                await self._wait(stop, agent.polling_interval_seconds)
        finally:
            maintenance.cancel()
            await asyncio.gather(maintenance, return_exceptions=True)

    async def _poll_safely(self) -> Exception | None:
        """Poll once; returns the error of this poll, or of a mail since the last one."""
        try:
            await self.poll()
        except (DetentError, OSError, TimeoutError) as error:
            return error
        trouble, self._trouble = self._trouble, None
        return trouble

    async def _wait(self, stop: asyncio.Event, seconds: float) -> None:
        """Wait for mail, for the next poll, or for the signal to stop."""
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self.source.wait(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            heard = await asyncio.gather(*waits, return_exceptions=True)
        for outcome in heard:
            if isinstance(outcome, DetentError | OSError):  # the next poll reports it
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await stop.wait()

    async def _maintain(self) -> None:
        """Between polls: resume interrupted runs, and purge old texts."""
        purged = 0.0
        while True:
            try:
                await self._resume_runs()
                if self.engine.clock.now() - purged > PURGE_EVERY:
                    purged = self.engine.clock.now()
                    await self.purge()
            except (DetentError, OSError) as error:
                logger.warning("service.not_kept_up", error=type(error).__name__)
            await asyncio.sleep(TAKE_UP_EVERY)

    async def purge(self) -> int:
        """Purge the texts of runs that ended long enough ago."""
        days = self.components.settings.privacy.keep_bodies_days
        if days == 0:
            return 0  # purged at the end of each run
        return await purge_texts(self.engine.store, self.flows, self.engine.clock.now() - days * 86400)

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows of this mailbox."""
        return tuple(name for name in self.engine.flows if name.partition("-")[0] == "warranty")

    async def _resume_runs(self) -> None:
        await self.engine.resume_all(flows=self.flows)

    async def poll(self) -> int:
        """Read the mailbox and start work on its mails; returns how many mails are in it."""
        await self._resume_runs()
        paused = await self._paused() if self._paused is not None else None
        began = self.components.now().timestamp()
        refs = await self.source.list()
        self._listed = frozenset(refs)
        if not self._files:
            await self._look_for_missing(began)
        logger.info("intake.polled", listed=len(refs), under_way=len(self._busy), paused=paused)
        if paused is not None:
            return len(refs)
        for ref in refs:
            if ref not in self._busy and not self.stopping:
                self._busy[ref] = asyncio.create_task(self._guarded(ref))
        return len(refs)

    async def finish(self) -> None:
        """Wait for all mails in progress."""
        while tasks := list(self._busy.values()):
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Take in no more mail, give the steps under way time to finish, and release the runs."""
        self.stopping = True
        self.engine.active.stopping = True
        self.engine.active.slots.wake_sleepers()
        grace = self.components.settings.agent.shutdown_timeout_seconds
        if tasks := list(self._busy.values()):
            await asyncio.wait(tasks, timeout=grace)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self.engine.stop(grace)

    # -- one mail -------------------------------------------------------------------------------------------

    async def _guarded(self, ref: str) -> None:
        """Process a mail in a slot; its errors do not affect other mails."""
        try:
            async with self._slots:
                if not self.stopping:
                    self._report(await self._process(ref))
        except MailGone:
            return
        except Exception as error:
            if not self.stopping:
                self._trouble = error
                logger.error("intake.mail_failed", error=type(error).__name__)
        finally:
            self._busy.pop(ref, None)

    def _report(self, result: MailResult | None) -> None:
        if result is not None:
            self.counts[result.what] += 1
            self._tell(result)

    async def _process(self, ref: str) -> MailResult | None:
        """Process the mail of a ref as far as it is due; None when nothing is due."""
        record = await self.records.by_ref(self.source_id, ref)
        packed = None
        if record is None:
            arrival = await self.source.fetch(ref)
            admitted = await self.intake.admit(arrival, self.source_id)
            if admitted.decision == "duplicate":
                adopted = await self._adopt_moved_mail(admitted, ref)
                if adopted is None:
                    return await self._discard_copy(admitted, ref)
                record = adopted
            elif admitted.decision != "run":
                return await self._not_run(admitted, ref)
            else:
                record = admitted.record
            if admitted.mail is not None and record.runs <= 1:
                packed = pack(
                    admitted.mail, self.components.settings.warranty.timezone, self.components.now()
                )
        elif record.gone:
            record = await self.records.gone(record, False) or record
        if record.marked or record.decision == "ignored":
            return await self._marked(record, ref)
        if record.decision != "run":
            return None
        return await self._work(record, packed)

    async def _not_run(self, admitted: Admitted, ref: str) -> MailResult | None:
        record, first = admitted.record, admitted.new
        if admitted.decision == "ignored":
            first = await self.source.mark_processed(ref)
            if (record.decision, record.source, record.ref) == ("ignored", self.source_id, ref):
                first = await self.records.mark(record) is not None
        if not first:
            return None  # another process was first
        tell(admitted)
        return MailResult(admitted.record.mail_key, admitted.decision, admitted.reason)

    async def _adopt_moved_mail(self, admitted: Admitted, ref: str) -> Record | None:
        """The record of an unfinished mail that has been moved; None for a copy."""
        known = admitted.record
        if known.marked or self._files:
            return None
        if known.source == self.source_id:
            elsewhere = known.ref not in self._listed
        else:  # named on a command line once; or taken out of another mailbox
            elsewhere = known.gone or known.source == source_id(NamedFiles.name)
        return await self.records.moved(known, self.source_id, ref) if elsewhere else None

    async def _discard_copy(self, admitted: Admitted, ref: str) -> MailResult | None:
        if not await self.source.mark_processed(ref):
            return None  # another process was first
        tell(admitted)
        await self.records.came_again(admitted.record)
        return MailResult(admitted.record.mail_key, "duplicate", admitted.reason)

    async def _marked(self, record: Record, ref: str) -> MailResult | None:
        """Mark a finished mail whose mark is missing: a process died in between, or is marking it now."""
        first = await self.source.mark_processed(ref)
        if not record.marked:
            first = await self.records.mark(record) is not None
        if not first:
            return None
        if record.decision == "ignored" and not record.marked:  # not reported so far
            tell(Admitted("ignored", record, record.reason))
            return MailResult(record.mail_key, "ignored", record.reason)
        return MailResult(record.mail_key, "marked", run_id=record.run_id if record.runs else None)

    async def _work(self, record: Record, packed: Packed | None = None) -> MailResult | None:
        """Finish the latest run of a mail, start it, or start the next."""
        with logger.about(mail_key=record.mail_key, orchestrator=record.orchestrator):
            row = await self._row(record)
            if row is None and not await self.starter.begin(record, packed):
                row = await self._row(record)  # another process was first
            if row is not None and not row.now.status.is_end and not await self._resume_here(row):
                row = await self._row(record)  # it may have ended in the meantime
                if row is not None and not row.now.status.is_end:
                    return None
            if row is not None and row.now.status.is_end:
                if record.over and row.now.status is Status.SUCCEEDED:
                    return await self._marked(record, record.ref)
                if not record.over:
                    return await self._settle(record, await self.engine.get(row.id))
                if not self._due(record, row):
                    return None
                again = await self._plan(record, whole=False)
                if again is None:
                    return None
                record = again
                if not await self.starter.begin(record):
                    return None
            run = await self.engine.finish(record.run_id, patience=PATIENCE)
            return await self._settle(record, run)

    async def _row(self, record: Record) -> RunRow | None:
        try:
            return await self.engine.store.row(record.run_id)
        except RunNotFound:
            return None

    async def _resume_here(self, row: RunRow) -> bool:
        """Resume an open run here; False if that is not possible.

        A run that waits, is driven elsewhere, or was started with other step files cannot be resumed: the
        first and the last are on the attention list, and none of them blocks other mails.
        """
        if self.engine.active.under_way(row.id) is not None or row.id in self.engine.active.taking:
            return True
        try:
            await self.engine.resume(row.id)
        except (RunBusy, RunStateError, DefinitionChanged):
            return False
        return True

    def _due(self, record: Record, row: RunRow) -> bool:
        """Whether a mail whose run failed is due to be run again automatically."""
        mail = self.components.settings.mail
        return (
            row.now.status is Status.FAILED
            and record.runs < mail.max_runs_per_message
            and self.components.now().timestamp() >= row.now.updated_at + mail.retry_after_minutes * 60
        )

    async def _plan(self, record: Record, whole: bool) -> Record | None:
        """Record one more run of a mail, in the mode of the last run unless it starts over."""
        how = await self.processor.choose() if whole or not record.runs else record.orchestrator
        return await self.records.again(record, whole=whole or not record.runs, orchestrator=how)

    async def _settle(self, record: Record, run: Run, *, requested: bool = False) -> MailResult | None:
        """Report the end of a run; mark its mail once it has succeeded.

        Of several processes that see its end, one reports it; a `requested` run is always reported.
        """
        if run.status is Status.RUNNING:
            return None  # released, because this process is stopping
        if run.status is Status.WAITING:
            question = next((hold.name for hold in run.holds.values()), None)
            return MailResult(record.mail_key, "waiting", question, run_id=run.id)
        result = await self.processor.result(record.orchestrator, run)
        if not record.over and self._settled is not None:
            await self._settled(result)
        if run.status is Status.SUCCEEDED:
            await self.source.mark_processed(record.ref)
            first = await self.records.mark(record) is not None
        else:
            first = await self.records.over(record) is not None
        if first:
            mail_completed(result)
        if self.components.settings.privacy.keep_bodies_days == 0 and not self._will_run_again(record, run):
            for number in range(1, record.runs + 1):  # a fork shares the texts of its origin
                await purge_run(self.engine.store, run_id_of(record.mail_key, number))
        return (
            MailResult(record.mail_key, run.status.value, run.reason, result, run.id)
            if first or requested
            else None
        )

    def _will_run_again(self, record: Record, run: Run) -> bool:
        return (
            run.status is Status.FAILED and record.runs < self.components.settings.mail.max_runs_per_message
        )

    async def _look_for_missing(self, began: float) -> None:
        """Record mails that are no longer in the mailbox: marked by a process that died, or removed."""
        for record in await self.records.open(self.source_id):
            if record.ref in self._listed or record.changed_at >= began or record.ref in self._busy:
                continue
            row = await self._row(record) if record.decision == "run" else None
            if record.decision == "ignored" or (row is not None and row.now.status is Status.SUCCEEDED):
                await self.records.mark(record)
            elif row is None or row.now.status.is_end:
                await self.records.gone(record)

    async def _packed(self, record: Record) -> Packed | None:
        """Read a mail from its source."""
        try:
            arrival = await self.source.fetch(record.ref)
        except (MailGone, ValueError):
            return None
        mail = self.intake.read(arrival)
        return pack(mail, self.components.settings.warranty.timezone, self.components.now())

    # -- retries on request --------------------------------------------------------------------------------

    async def retry(self, record: Record, *, whole: bool = False) -> MailResult | None:
        """Run a mail again on request.

        Raises:
            RunStateError: there is nothing to run again, or another process runs it.
        """
        refuse = await self._refusal(record)
        if refuse is not None:
            raise RunStateError(f"Mail {record.mail_key} {refuse}")
        again = await self._plan(record, whole)
        if again is None:
            raise RunStateError(f"Mail {record.mail_key} was just taken up by another process.")
        with logger.about(mail_key=again.mail_key, orchestrator=again.orchestrator):
            await self.starter.begin(again)
            run = await self.engine.finish(again.run_id, patience=PATIENCE)
            result = await self._settle(again, run, requested=True)
        self._report(result)
        return result

    async def _refusal(self, record: Record) -> str | None:
        if record.marked:
            return "is processed; there is nothing to run again."
        if record.decision == "unreadable":
            return f"cannot be read ({record.reason}); a person has to look at it in the mailbox."
        if record.decision == "ignored":
            return f"is ignored ({record.reason}) and never answered."
        row = await self._row(record) if record.runs else None
        if row is not None and row.now.status is Status.SUCCEEDED:
            return "has been answered; the next look at the mailbox marks it."
        if row is not None and row.now.status is Status.WAITING:
            return f"waits for an answer in run {row.id}. See: detent show {row.id}"
        if row is not None and not row.now.status.is_end:
            return f"is being worked on in run {row.id}."
        return None


def counted(counts: Counter[str]) -> dict[str, Any]:
    """The counts as plain values."""
    return {"mails": sum(counts.values()), **dict(sorted(counts.items()))}
