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
        said = str(error) if isinstance(error, DetentError) else type(error).__name__
        super().__init__(f"The mailbox could not be looked at {times} times in a row. The last time: {said}")


@dataclass(frozen=True, slots=True)
class MailResult:
    """What was done about one mail."""

    mail_key: str
    what: str
    """succeeded, failed, degraded, cancelled, waiting; ignored, duplicate, held, unreadable; marked."""
    reason: str | None = None
    result: ProcessingResult | None = None
    run_id: str | None = None


Tell = Callable[[MailResult], None]


class Service:
    """One mailbox at work."""

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
        """Mails by what was done about them."""
        self.stopping = False
        self._tell = tell or (lambda told: None)
        self._settled = settled
        """Told about every run that has ended."""
        self._paused = paused
        """Gives why no mail is taken in just now, if none is."""
        self._busy: dict[str, asyncio.Task[None]] = {}
        """By ref: mails being worked on."""
        self._slots = asyncio.Semaphore(components.settings.agent.max_concurrent_runs)
        self._trouble: Exception | None = None
        """What went wrong with a mail since the last look, apart from its run."""
        self._listed: frozenset[str] = frozenset()

    @property
    def engine(self) -> Engine:
        """Where the runs are."""
        return self.processor.orchestrator.engine

    # -- watching -------------------------------------------------------------------------------------------

    async def once(self) -> None:
        """Look at the mailbox once and wait for all its mails."""
        await self.poll()
        await self.finish()
        if self._trouble is not None:
            raise self._trouble

    async def serve(self, stop: asyncio.Event) -> None:
        """Watch the mailbox until told to stop; `TooManyErrors` when it cannot be looked at for too long."""
        agent = self.components.settings.agent
        errors = 0
        keeping_up = asyncio.create_task(self._keep_up())
        try:
            while not stop.is_set():
                error = await self._tried()
                errors = 0 if error is None else errors + 1
                if error is not None:
                    logger.warning("intake.failed", error=type(error).__name__, in_a_row=errors)
                    if errors >= agent.max_consecutive_errors:
                        raise TooManyErrors(errors, error)
                await self._until(stop, agent.polling_interval_seconds)
        finally:
            keeping_up.cancel()
            await asyncio.gather(keeping_up, return_exceptions=True)

    async def _tried(self) -> Exception | None:
        """Look once; gives what went wrong, with the look or with a mail since the one before."""
        try:
            await self.poll()
        except (DetentError, OSError, TimeoutError) as error:
            return error
        trouble, self._trouble = self._trouble, None
        return trouble

    async def _until(self, stop: asyncio.Event, seconds: float) -> None:
        """Wait for mail, for the time to look again, or for the word to stop."""
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self.source.wait(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            heard = await asyncio.gather(*waits, return_exceptions=True)
        for one in heard:
            if isinstance(one, DetentError | OSError):  # the next look says what is wrong
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await stop.wait()

    async def _keep_up(self) -> None:
        """Between looks: resume interrupted runs, and purge old texts."""
        purged = 0.0
        while True:
            try:
                await self._take_up()
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
            return 0  # done at the end of each
        return await purge_texts(self.engine.store, self.flows, self.engine.clock.now() - days * 86400)

    @property
    def flows(self) -> tuple[str, ...]:
        """The flows whose runs are this mailbox's."""
        return tuple(name for name in self.engine.flows if name.partition("-")[0] == "warranty")

    async def _take_up(self) -> None:
        await self.engine.resume_all(flows=self.flows)

    async def poll(self) -> int:
        """Look at the mailbox and set to work what can be worked on; gives how many mails lie there."""
        await self._take_up()
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
        """Wait for everything that is being worked on."""
        while tasks := list(self._busy.values()):
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Take in nothing more; let the steps under way finish, for a while, and put the runs down."""
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
        """Work on a mail in a slot; what goes wrong with it stops no other."""
        try:
            async with self._slots:
                if not self.stopping:
                    self._say(await self._one(ref))
        except MailGone:
            return
        except Exception as error:
            if not self.stopping:
                self._trouble = error
                logger.error("intake.mail_failed", error=type(error).__name__)
        finally:
            self._busy.pop(ref, None)

    def _say(self, told: MailResult | None) -> None:
        if told is not None:
            self.counts[told.what] += 1
            self._tell(told)

    async def _one(self, ref: str) -> MailResult | None:
        """Do what is due about the mail of a ref; None when nothing is."""
        record = await self.records.by_ref(self.source_id, ref)
        packed = None
        if record is None:
            arrival = await self.source.fetch(ref)
            admitted = await self.intake.admit(arrival, self.source_id)
            if admitted.decision == "duplicate":
                adopted = await self._same_mail_elsewhere(admitted, ref)
                if adopted is None:
                    return await self._again_a_copy(admitted, ref)
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

    async def _same_mail_elsewhere(self, admitted: Admitted, ref: str) -> Record | None:
        """The record of a mail that is not done and only lies elsewhere now; None for a copy."""
        known = admitted.record
        if known.marked or self._files:
            return None
        if known.source == self.source_id:
            elsewhere = known.ref not in self._listed
        else:  # named on a command line once; or taken out of another mailbox
            elsewhere = known.gone or known.source == source_id(NamedFiles.name)
        return await self.records.moved(known, self.source_id, ref) if elsewhere else None

    async def _again_a_copy(self, admitted: Admitted, ref: str) -> MailResult | None:
        if not await self.source.mark_processed(ref):
            return None  # another process was first
        tell(admitted)
        await self.records.came_again(admitted.record)
        return MailResult(admitted.record.mail_key, "duplicate", admitted.reason)

    async def _marked(self, record: Record, ref: str) -> MailResult | None:
        """The mail is done and only its mark is missing: a process died in between, or marks it just now."""
        first = await self.source.mark_processed(ref)
        if not record.marked:
            first = await self.records.mark(record) is not None
        if not first:
            return None
        if record.decision == "ignored" and not record.marked:  # which nobody has told so far
            tell(Admitted("ignored", record, record.reason))
            return MailResult(record.mail_key, "ignored", record.reason)
        return MailResult(record.mail_key, "marked", run_id=record.run_id if record.runs else None)

    async def _work(self, record: Record, packed: Packed | None = None) -> MailResult | None:
        """See the latest run of a mail through, begin it, or begin the next."""
        with logger.about(mail_key=record.mail_key, orchestrator=record.orchestrator):
            row = await self._row(record)
            if row is None and not await self.starter.begin(record, packed):
                row = await self._row(record)  # another process was first
            if row is not None and not row.now.status.is_end and not await self._ours(row):
                row = await self._row(record)  # it may have come to its end meanwhile
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

    async def _ours(self, row: RunRow) -> bool:
        """Whether an open run is under way here now.

        One that waits, is under way elsewhere, or began under other step files is not: the first and the last
        are on the attention list, and none of them keeps the other mails waiting.
        """
        if self.engine.active.under_way(row.id) is not None or row.id in self.engine.active.taking:
            return True
        try:
            await self.engine.resume(row.id)
        except (RunBusy, RunStateError, DefinitionChanged):
            return False
        return True

    def _due(self, record: Record, row: RunRow) -> bool:
        """Whether a mail whose run failed is to be run again by itself."""
        mail = self.components.settings.mail
        return (
            row.now.status is Status.FAILED
            and record.runs < mail.max_runs_per_message
            and self.components.now().timestamp() >= row.now.updated_at + mail.retry_after_minutes * 60
        )

    async def _plan(self, record: Record, whole: bool) -> Record | None:
        """Write down that a mail gets one more run, in the mode of the last unless it begins anew."""
        how = await self.processor.choose() if whole or not record.runs else record.orchestrator
        return await self.records.again(record, whole=whole or not record.runs, orchestrator=how)

    async def _settle(self, record: Record, run: Run, *, asked: bool = False) -> MailResult | None:
        """Report the end of a run; mark its mail once it has succeeded.

        Of several processes that see its end, one reports it; one that was `asked` by a person always does.
        """
        if run.status is Status.RUNNING:
            return None  # put down, for this process stops
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
            for number in range(1, record.runs + 1):  # a run that goes on from another shares its texts
                await purge_run(self.engine.store, run_id_of(record.mail_key, number))
        return (
            MailResult(record.mail_key, run.status.value, run.reason, result, run.id)
            if first or asked
            else None
        )

    def _will_run_again(self, record: Record, run: Run) -> bool:
        return (
            run.status is Status.FAILED and record.runs < self.components.settings.mail.max_runs_per_message
        )

    async def _look_for_missing(self, began: float) -> None:
        """Notice mails that are not in the mailbox any more: marked by a process that died, or taken away."""
        for record in await self.records.open(self.source_id):
            if record.ref in self._listed or record.changed_at >= began or record.ref in self._busy:
                continue
            row = await self._row(record) if record.decision == "run" else None
            if record.decision == "ignored" or (row is not None and row.now.status is Status.SUCCEEDED):
                await self.records.mark(record)
            elif row is None or row.now.status.is_end:
                await self.records.gone(record)

    async def _packed(self, record: Record) -> Packed | None:
        """A mail from where it lies."""
        try:
            arrival = await self.source.fetch(record.ref)
        except (MailGone, ValueError):
            return None
        mail = self.intake.read(arrival)
        return pack(mail, self.components.settings.warranty.timezone, self.components.now())

    # -- on a person's word ---------------------------------------------------------------------------------

    async def retry(self, record: Record, *, whole: bool = False) -> MailResult | None:
        """Run a mail again on request.

        Raises:
            RunStateError: there is nothing to run again, or another process runs it.
        """
        refuse = await self._why_not(record)
        if refuse is not None:
            raise RunStateError(f"Mail {record.mail_key} {refuse}")
        again = await self._plan(record, whole)
        if again is None:
            raise RunStateError(f"Mail {record.mail_key} was just taken up by another process.")
        with logger.about(mail_key=again.mail_key, orchestrator=again.orchestrator):
            await self.starter.begin(again)
            run = await self.engine.finish(again.run_id, patience=PATIENCE)
            told = await self._settle(again, run, asked=True)
        self._say(told)
        return told

    async def _why_not(self, record: Record) -> str | None:
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
    """What was done, as plain numbers."""
    return {"mails": sum(counts.values()), **dict(sorted(counts.items()))}
