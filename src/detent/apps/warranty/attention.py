"""What needs attention, with reason and next command: mails that failed, wait, are stuck or held, …"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from detent.apps.warranty.files_source import NamedFiles
from detent.apps.warranty.intake import source_id
from detent.apps.warranty.intake_records import Record, Records
from detent.apps.warranty.settings import WarrantySettings
from detent.engine.journal_reader import load
from detent.engine.ports import RunRow, Store
from detent.insight.effect_text import REVIEW
from detent.kernel.entries import Started
from detent.kernel.errors import RunNotFound
from detent.kernel.placeholders import uses_receipt
from detent.kernel.run import Run
from detent.kernel.status import Status


@dataclass(frozen=True, slots=True)
class Matter:
    """One mail that needs attention, or something about the whole desk."""

    mail_key: str | None
    """None if it is about the whole desk."""
    what: str
    """Of a mail: failed, degraded, cancelled, waiting, stuck, held, unreadable; of the desk: rolled back,
    paused, left alone."""
    reason: str | None
    since: float
    run_id: str | None = None
    runs: int = 0
    again_at: float | None = None
    """When it is run again automatically; None if it is not."""
    command: tuple[str, ...] = ()
    """The next command for a person to type; empty when the mail must be handled in the mailbox itself."""
    place: str | None = None
    """Where the mail is, in words; None when it is in another mailbox than the settings name now."""

    def to_plain(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "mail": self.mail_key, "what": self.what, "reason": self.reason, "since": self.since,
            "run": self.run_id, "runs": self.runs, "again_at": self.again_at,
            "command": ["detent", *self.command] if self.command else None, "place": self.place,
        }  # fmt: skip


async def attention(
    records: Records, store: Store, settings: WarrantySettings, fingerprints: Mapping[str, str] | None = None
) -> list[Matter]:
    """Every mail that needs attention, the oldest first, without those whose drafts wait for a review.

    `fingerprints` are those of the current flows: runs started with others cannot be resumed.
    """
    matters: list[Matter] = []
    places = places_of(settings)
    for record in await records.open():
        where = places.get(record.source)
        place = where(record.ref) if where is not None else None
        if record.decision in ("held", "unreadable"):
            command = ("warranty", "retry", record.mail_key) if record.decision == "held" else ()
            matters.append(
                Matter(
                    record.mail_key, record.decision, record.reason, record.seen_at, command=command,
                    place=place,
                )
            )  # fmt: skip
        elif record.decision == "run":
            try:
                row = await store.row(record.run_id)
            except RunNotFound:
                continue  # about to be started
            # The run, not its row: rows of version 0.1 do not have the tokens of what they wait for.
            run = await load(store, row.id) if row.now.status is Status.WAITING else None
            matter = _matter(record, row, run, settings) or await _stuck(
                record, row, store, fingerprints or {}
            )
            if matter is not None:
                matters.append(replace(matter, place=place))
    return matters


def places_of(settings: WarrantySettings) -> dict[str, Callable[[str], str]]:
    """Functions that describe where a mail is, by the id of its mailbox in records. No mailbox is opened."""
    from detent.adapters.mail import imap
    from detent.adapters.mail.eml_folder import EmlFolder
    from detent.adapters.mail.maildir import Maildir
    from detent.adapters.mail.server import MailServer

    mail = settings.mail
    inbox = settings.path(mail.inbox)
    places: dict[str, Callable[[str], str]] = {source_id(NamedFiles.name): lambda ref: ref}
    for folder in (EmlFolder(inbox), Maildir(inbox)):
        places[source_id(folder.describe())] = folder.where
    if mail.imap.host:
        server = MailServer(protocol="IMAP", host=mail.imap.host, port=mail.imap.port, tls=mail.imap.tls)
        name = source_id(imap.described(server, mail.imap.folder))
        places[name] = lambda ref: imap.where(server, mail.imap.folder, ref)
    return places


async def _stuck(record: Record, row: RunRow, store: Store, fingerprints: Mapping[str, str]) -> Matter | None:
    """A run that cannot be resumed because its step files have changed since it started."""
    at_hand = fingerprints.get(row.flow)
    if row.now.status is not Status.RUNNING or at_hand is None:
        return None
    (begun,) = await store.entries(row.id, limit=1)
    if not isinstance(begun.body, Started) or begun.body.fingerprint == at_hand:
        return None
    return Matter(
        record.mail_key, "stuck", "definition_changed", row.now.updated_at, row.id, record.runs,
        command=("cancel", row.id),
    )  # fmt: skip


def _matter(record: Record, row: RunRow, run: Run | None, settings: WarrantySettings) -> Matter | None:
    now, mail = row.now, settings.mail
    if now.status in (Status.RUNNING, Status.SUCCEEDED):
        return None
    again_at = None
    command: tuple[str, ...] = ("warranty", "retry", record.mail_key)
    reason = now.reason
    if now.status is Status.FAILED and record.runs < mail.max_runs_per_message:
        again_at = now.updated_at + mail.retry_after_minutes * 60
    if run is not None:
        holds = [hold for hold in run.holds.values() if hold.why not in ("timer", "breaker", "children")]
        if not holds:
            return None  # resumes automatically
        hold = holds[0]
        reason = f"{hold.why}: {hold.name.partition(':')[0]}"
        verb = "resolve" if hold.name.startswith("effect:") else "release"
        answer = hold.choices[0] if hold.choices else "ANSWER"
        command = (verb, row.id, answer, "--hold", run.token(hold.name))
        if hold.why == REVIEW:
            return None  # a list of drafts by run would tell real drafts from planted ones
        if verb == "resolve" and uses_receipt(run.proposal, hold.about["effect"]):
            command += ("--receipt", "null")  # no step of a mailbox needs more than that it was sent
    return Matter(
        record.mail_key, now.status.value, reason, now.updated_at, row.id, record.runs, again_at, command
    )
