"""The service around the processor: mails are run, marked, run again, and nothing is done twice."""

import asyncio
import json
import shutil
from collections import Counter
from datetime import timedelta

import pytest

from detent.adapters.mail.eml_folder import EmlFolder
from detent.apps.warranty.attention import attention
from detent.apps.warranty.events import LEGACY
from detent.apps.warranty.files_source import NamedFiles
from detent.apps.warranty.purge import purge_texts
from detent.apps.warranty.service import TooManyErrors
from detent.apps.warranty.tools.registry import Registry
from detent.apps.warranty.tools.tickets import Tickets
from detent.engine.journal_reader import read as entries_of
from detent.engine.tools import ToolError
from detent.kernel.errors import ConfigurationError, RunStateError
from detent.kernel.status import Status
from tests.adapters.mail.servers import PASSWORD, USER, imap_server, smtp_server
from tests.adapters.models.server import Server, said
from tests.apps.warranty.mailroom import COVERED, NO_SERIAL, QUICKLY, Room, mail, whats

LATER = timedelta(minutes=16)
EXPIRED = "Our kiosk, serial number PX2-55910, restarts by itself all the time."
POLISH = "Dzień dobry, skaner nie łączy się z kasą, nr seryjny LM-77-0412. Proszę o pomoc."
BATCH = {1: COVERED, 2: NO_SERIAL, 3: EXPIRED, 4: POLISH, 5: "What are your opening hours?"}
PATHS = {
    ("01", "02", "03a", "05"),
    ("01", "03d"),
    ("01", "02", "03c"),
    ("01", "04"),
}


class OutOfOrder:
    """Makes the outbox of a room refuse everything while it is entered."""

    def __init__(self, room: Room) -> None:
        self.room = room

    def __enter__(self) -> None:
        self.room.outbox.mkdir(parents=True, exist_ok=True)
        self.room.outbox.rename(self.room.outbox.with_name("aside"))
        self.room.outbox.write_text("in the way")

    def __exit__(self, *_) -> None:
        self.room.outbox.unlink()
        self.room.outbox.with_name("aside").rename(self.room.outbox)


async def failed_once(room: Room):
    """One look during which nothing can be sent."""
    room.told = []
    async with room.open() as service:
        with OutOfOrder(room):
            await service.once()
    return room.told


class CountedRegistry(Registry):
    """Counts what it is asked."""

    asked = 0

    async def find(self, serial, on):
        type(self).asked += 1
        return await super().find(serial, on)


class RefusingDesk(Tickets):
    """Opens no ticket."""

    async def create(self, ticket):
        raise ToolError("refused", "the desk is closed")


def paths(told) -> set[tuple[str, ...]]:
    return {tuple(step.partition("-")[0] for step in one.result.step_sequence) for one in told if one.result}


# -- the same through every door ----------------------------------------------------------------------------


async def test_a_folder_of_mails_is_processed_and_marked(tmp_path):
    """W-46"""
    room = Room(tmp_path)
    for number, body in BATCH.items():
        room.put(mail(number, body), f"{number}.eml")
    told = await room.once()
    assert {one.what for one in told} == {"succeeded"}
    assert paths(told) == PATHS
    assert room.waiting() == set()
    assert len(room.processed()) == len(room.replies()) == 5
    assert await room.once() == []


async def test_a_maildir_carries_the_same_mails_with_the_same_results(tmp_path):
    """W-46"""
    room = Room(tmp_path, mail={"source": "maildir", "inbox": "box"})
    for name in ("cur", "new", "tmp"):
        (tmp_path / "box" / name).mkdir(parents=True)
    for number, body in BATCH.items():
        (tmp_path / "box/new" / f"{number}.host").write_bytes(mail(number, body))
    told = await room.once()
    assert paths(told) == PATHS
    assert sorted(file.name for file in (tmp_path / "box/cur").iterdir()) == [
        f"{number}.host:2,S" for number in BATCH
    ]
    assert len(room.replies()) == 5
    assert await room.once() == []


async def test_imap_and_smtp_carry_them_and_only_what_is_done_is_seen(tmp_path):
    """W-46"""
    async with imap_server() as imap, smtp_server(login=True) as smtp:
        environ = {
            "WARRANTY_IMAP_USER": USER, "WARRANTY_IMAP_PASSWORD": PASSWORD,
            "WARRANTY_SMTP_USER": USER, "WARRANTY_SMTP_PASSWORD": PASSWORD,
        }  # fmt: skip
        there = {"host": "127.0.0.1", "tls": "none"}
        room = Room(
            tmp_path,
            mail={
                "source": "imap", "sink": "smtp", "imap": {**there, "port": imap.port},
                "smtp": {**there, "port": smtp.port},
            },
        )  # fmt: skip
        uids = {number: await imap.deliver(mail(number, body)) for number, body in BATCH.items()}
        told = await room.once(environ=environ)
        assert paths(told) == PATHS
        assert {one.what for one in told} == {"succeeded"}
        assert sorted(envelope.rcpt_tos[0] for envelope in smtp.taken) == [
            f"maren{number}@holt-bakery.example" for number in BATCH
        ]
        for uid in uids.values():
            assert b"\\Seen" in await imap.flags(uid)
        smtp.answers["RCPT"] = "550 no such user"
        late = await imap.deliver(mail(6))
        assert whats(await room.once(environ=environ)) == [("failed", "send_failed")]
        assert b"\\Seen" not in await imap.flags(late)
        del smtp.answers["RCPT"]
        room.later += LATER
        assert whats(await room.once(environ=environ)) == [("succeeded", "mail sent")]
        assert b"\\Seen" in await imap.flags(late)
        assert len(smtp.taken) == 6


async def test_four_at_once_give_what_one_at_a_time_gives(tmp_path):
    found = []
    for at_once in (1, 4):
        folder = tmp_path / str(at_once)
        folder.mkdir()
        room = Room(folder, agent={"max_concurrent_runs": at_once})
        for number in range(12):
            room.put(mail(number, BATCH[number % 5 + 1]), f"{number:02}.eml")
        told = await room.once()
        outcome = {
            (one.mail_key, tuple(one.result.step_sequence), bool(one.result.ticket_id)) for one in told
        }
        found.append((outcome, len(room.replies()), len(await room.tickets())))
    assert found[0] == found[1]


# -- again --------------------------------------------------------------------------------------------------


async def test_a_failed_mail_is_run_three_times_and_then_stands(tmp_path):
    """W-50"""
    room = Room(tmp_path, tools={"breaker": {"failures": 100}})
    room.put(mail())
    assert whats(await failed_once(room)) == [("failed", "send_failed")]
    assert await room.once() == []  # not yet
    for number in (2, 3):
        room.later += LATER
        (told,) = await failed_once(room)
        assert told.run_id.endswith(f"-{number}")
    room.later += LATER
    assert await room.once() == []
    (matter,) = await room.attention()
    assert (matter.what, matter.reason, matter.runs, matter.again_at) == ("failed", "send_failed", 3, None)
    assert matter.command == ("warranty", "retry", matter.mail_key)
    assert room.waiting() == {"000.eml"}
    async with room.open() as service:
        (record,) = await room.box.records.by_key(matter.mail_key)
        assert (await service.retry(record)).what == "succeeded"
    assert await room.attention() == []
    assert room.waiting() == set()
    assert len(room.replies()) == len(await room.tickets()) == 1


async def test_a_failed_mail_says_when_it_is_run_again_by_itself(tmp_path):
    room = Room(tmp_path)
    room.put(mail())
    await failed_once(room)
    (matter,) = await room.attention()
    assert matter.again_at == pytest.approx(matter.since + 900)


async def test_a_rerun_repeats_nothing_but_the_step_that_failed(tmp_path):
    """W-61"""
    CountedRegistry.asked = 0
    room = Room(tmp_path)
    room.put(mail())
    registry = CountedRegistry(tmp_path / "warranty.db")
    async with room.open(registry=registry) as service:
        with OutOfOrder(room):
            await service.once()
    room.later += LATER
    (told,) = await room.once(registry=registry)
    assert told.what == "succeeded"
    assert CountedRegistry.asked == 1
    assert [ticket.ticket_id for ticket in await room.tickets()] == ["TKT-10001"]
    assert [step.partition("-")[0] for step in told.result.step_sequence] == ["01", "02", "03a", "05"]
    async with room.open():
        store = room.box.engine.store
        run = await room.box.engine.get(told.run_id)
        own = [entry async for entry in entries_of(store, told.run_id) if entry.seq > run.forked_from["seq"]]
    assert run.forked_from["run"].endswith("-1")
    assert [entry.body.frm for entry in own if entry.kind == "moved"] == ["05-send-confirmation"]


async def test_a_rerun_of_a_run_that_went_in_circles_begins_at_the_first_step(tmp_path):
    room = Room(tmp_path, orchestration={"max_steps": 2})
    room.put(mail())
    assert whats(await room.once()) == [("failed", "max_steps")]
    room.later += LATER
    room.values["orchestration"]["max_steps"] = 10
    (told,) = await room.once()
    assert told.what == "succeeded"
    async with room.open():
        assert (await room.box.engine.get(told.run_id)).forked_from is None
    assert len(told.result.step_sequence) == 4


async def test_whole_begins_at_the_first_step(tmp_path):
    room = Room(tmp_path)
    room.put(mail())
    (told,) = await failed_once(room)
    async with room.open() as service:
        (record,) = await room.box.records.by_key(told.mail_key)
        again = await service.retry(record, whole=True)
        run = await room.box.engine.get(again.run_id)
    assert again.what == "succeeded"
    assert run.forked_from is None
    assert len(await room.tickets()) == 1  # the thread has its ticket


async def test_a_degraded_mail_is_never_run_again_by_itself(tmp_path):
    """W-50, W-41"""
    room = Room(tmp_path)
    room.put(mail())
    handlers = RefusingDesk(tmp_path / "warranty.db")
    assert whats(await room.once(tickets=handlers)) == [("degraded", "ticket_failed")]
    (redirect,) = room.replies()
    assert "TKT-" not in redirect.body
    room.later += timedelta(days=3)
    assert await room.once() == []
    assert room.waiting() == {"000.eml"}
    (matter,) = await room.attention()
    assert (matter.what, matter.reason, matter.again_at) == ("degraded", "ticket_failed", None)
    async with room.open() as service:
        (record,) = await room.box.records.by_key(matter.mail_key)
        told = await service.retry(record)
    assert (told.what, told.result.ticket_id) == ("succeeded", "TKT-10001")
    assert await room.attention() == []


async def test_changed_step_files_make_a_rerun_begin_anew(tmp_path):
    room = Room(tmp_path)
    room.put(mail())
    await failed_once(room)
    from detent.apps.warranty.flow import shipped

    shutil.copytree(shipped(), tmp_path / "instructions")
    step = tmp_path / "instructions/steps/01-extract-serial.md"
    step.write_text(step.read_text() + "\nAnswer with care.\n")
    room.later += LATER
    (told,) = await room.once()
    assert told.what == "succeeded"
    assert len(await room.tickets()) == 1


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (mail(), "is processed"),
        (mail(**{"Auto-Submitted": "auto-generated"}), "is processed"),
        (b"\x00", "cannot be read"),
    ],
)
async def test_what_needs_no_second_run_gets_none(tmp_path, made, said):
    room = Room(tmp_path)
    room.put(made)
    (told,) = await room.once()
    async with room.open() as service:
        (record,) = await room.box.records.by_key(told.mail_key)
        with pytest.raises(RunStateError, match=said):
            await service.retry(record)


# -- dying in between ---------------------------------------------------------------------------------------


async def test_a_mail_whose_end_is_committed_is_only_marked(tmp_path):
    room = Room(tmp_path)
    room.put(mail(), "a.eml")
    async with room.open() as service:
        processed = room.inbox / "processed"
        processed.rmdir()
        processed.write_text("in the way")
        with pytest.raises(OSError):
            await service.once()
        processed.unlink()
    assert room.waiting() == {"a.eml"}
    assert room.told == []
    (told,) = await room.once()
    assert (told.what, told.run_id[-2:]) == ("succeeded", "-1")
    assert room.processed() == {"a.eml"}
    assert len(room.replies()) == 1
    room.put((room.inbox / "processed/a.eml").read_bytes(), "again.eml")
    assert whats(await room.once()) == [("duplicate", None)]


async def test_a_mail_written_down_and_never_begun_is_begun(tmp_path):
    room = Room(tmp_path)
    room.put(mail(), "a.eml")
    async with room.open() as service:
        (ref,) = await room.box.source.list()
        arrival = await room.box.source.fetch(ref)
        admitted = await room.box.intake.admit(arrival, service.source_id)
        assert admitted.decision == "run"
    assert whats(await room.once()) == [("succeeded", "mail sent")]


async def test_a_run_somebody_left_is_finished_and_its_mail_marked(tmp_path):
    """W-44, as far as the service goes"""
    room = Room(tmp_path)
    room.put(mail(), "a.eml")
    async with room.open() as service:
        (ref,) = await room.box.source.list()
        admitted = await room.box.intake.admit(await room.box.source.fetch(ref), service.source_id)
        packed = await service._packed(admitted.record)
        engine = room.box.engine
        stopped = asyncio.Event()

        class After:
            def on_entry(self, run_id, flow, entry):
                if entry.kind == "effect_done":
                    engine.active.stopping = True
                    stopped.set()

        engine.add_observer(After())
        await service.starter.begin(admitted.record, packed)
        await stopped.wait()
    assert len(await room.tickets()) == 1
    assert whats(await room.once()) == [("succeeded", "mail sent")]
    assert len(await room.tickets()) == len(room.replies()) == 1
    assert room.processed() == {"a.eml"}


@pytest.mark.parametrize("again", range(5))
async def test_two_services_on_one_mailbox_answer_each_mail_once_and_one_of_them_tells(tmp_path, again):
    room, other = Room(tmp_path), Room(tmp_path)
    for number in range(10):
        room.put(mail(number, BATCH[number % 5 + 1]), f"{number}.eml")
    room.put(mail("machine", **{"Auto-Submitted": "auto-generated"}), "m.eml")
    room.put(b"\x00", "x.eml")
    room.put(mail(3, BATCH[4]), "copy.eml")
    async with room.open() as one, other.open() as two:
        await asyncio.gather(one.once(), two.once())
        told = [*room.told, *other.told]
    assert Counter(one.what for one in told) == {
        "succeeded": 10,
        "ignored": 1,
        "unreadable": 1,
        "duplicate": 1,
    }
    assert await room.once() == []
    assert len(room.replies()) == 10
    assert room.waiting() == {"x.eml"}


async def test_a_run_left_under_other_step_files_stops_nobody_and_is_on_the_list(tmp_path):
    from detent.apps.warranty.flow import shipped

    room = Room(tmp_path)
    room.put(mail(1), "a.eml")
    async with room.open() as service:
        (ref,) = await room.box.source.list()
        admitted = await room.box.intake.admit(await room.box.source.fetch(ref), service.source_id)
        packed = await service._packed(admitted.record)
        await room.box.engine.start(
            room.box.components.flow,
            packed.data,
            run_id=admitted.record.run_id,
            beside=packed.beside,
            drive=False,
        )
    shutil.copytree(shipped(), tmp_path / "instructions")
    step = tmp_path / "instructions/steps/01-extract-serial.md"
    step.write_text(step.read_text() + "\nAnswer with care.\n")
    room.put(mail(2), "b.eml")
    assert whats(await room.once()) == [("succeeded", "mail sent")]
    assert room.waiting() == {"a.eml"}
    async with room.open() as service:
        box = room.box
        at_hand = {flow.name: flow.fingerprint for flow in box.engine.flows.values()}
        (matter,) = await attention(box.records, box.engine.store, box.settings, at_hand)
        assert (matter.what, matter.reason) == ("stuck", "definition_changed")
        assert matter.command == ("cancel", matter.run_id)
        await box.engine.cancel(matter.run_id)
        (record,) = await box.records.by_key(matter.mail_key)
        assert (await service.retry(record)).what == "succeeded"
    assert len(room.replies()) == 2


async def test_a_mail_in_doubt_waits_for_a_person_and_goes_on_when_settled(tmp_path):
    """W-44"""
    async with smtp_server() as smtp:
        room = Room(
            tmp_path,
            mail={"sink": "smtp", "smtp": {"host": "127.0.0.1", "port": smtp.port, "tls": "none"}},
        )
        room.put(mail(body=NO_SERIAL), "a.eml")
        smtp.vanish_after_taking = True
        (told,) = await room.once()
        assert told.what == "waiting"
        assert await room.once() == []
        (matter,) = await room.attention()
        assert (matter.what, matter.command[:4]) == (
            "waiting",
            ("resolve", told.run_id, "happened", "--hold"),
        )
        async with room.open() as service:
            await room.box.engine.resolve(
                told.run_id, "happened", hold=matter.command[4], receipt={"message_id": "<x>"}
            )
            await room.box.engine.finish(told.run_id)
            await service.once()
        assert room.processed() == {"a.eml"}
        assert len(smtp.taken) == 1


# -- watching -----------------------------------------------------------------------------------------------


class Hasty(EmlFolder):
    """A folder that never has one wait long."""

    async def wait(self, seconds):
        await asyncio.sleep(0)


async def test_the_service_takes_in_what_comes_until_told_to_stop(tmp_path):
    room = Room(tmp_path)
    stop = asyncio.Event()
    came = asyncio.Event()
    async with room.open(source=Hasty(room.inbox)) as service:
        service._tell = lambda told: came.set()
        serving = asyncio.create_task(service.serve(stop))
        for number in range(3):
            came.clear()
            room.put(mail(number), f"{number}.eml")
            await asyncio.wait_for(came.wait(), 20)
        stop.set()
        await serving
        await service.stop()
    assert len(room.replies()) == 3


async def test_a_mailbox_that_cannot_be_looked_at_for_too_long_ends_the_service(tmp_path):
    room = Room(tmp_path, agent={"max_consecutive_errors": 3})
    async with room.open(source=Hasty(room.inbox)) as service:
        shutil.rmtree(room.inbox)
        with pytest.raises(TooManyErrors, match="3 times in a row"):
            await service.serve(asyncio.Event())


async def test_a_mailbox_that_comes_back_is_forgiven(tmp_path):
    room = Room(tmp_path, agent={"max_consecutive_errors": 3})
    looks = []

    class Flickering(Hasty):
        async def list(self):
            looks.append(1)
            if len(looks) > 11:
                stop.set()
            if len(looks) % 3:
                raise OSError("away")
            return await super().list()

    stop = asyncio.Event()
    async with room.open(source=Flickering(room.inbox)) as service:
        await service.serve(stop)
    assert len(looks) > 11


async def test_a_paused_intake_takes_in_nothing(tmp_path):
    room = Room(tmp_path)
    room.put(mail())

    async def paused():
        return "rollback"

    async with room.open() as service:
        service._paused = paused
        await service.once()
    assert room.waiting() == {"000.eml"}


async def test_every_end_is_told_to_whoever_watches(tmp_path):
    room = Room(tmp_path)
    room.put(mail(1))
    room.put(mail(2, NO_SERIAL))
    heard = []

    async def settled(result):
        heard.append(result.status)

    async with room.open() as service:
        service._settled = settled
        await service.once()
    assert heard == [Status.SUCCEEDED, Status.SUCCEEDED]


# -- named files --------------------------------------------------------------------------------------------


async def test_named_files_are_run_and_stay_where_they_are(tmp_path):
    room = Room(tmp_path)
    file = tmp_path / "one.eml"
    file.write_bytes(mail())
    source = NamedFiles([file], max_size=1_000_000)
    assert whats(await room.once(source=source)) == [("succeeded", "mail sent")]
    assert file.exists()
    assert whats(await room.once(source=source)) == [("marked", None)]
    assert len(room.replies()) == 1


async def test_a_named_file_that_failed_goes_on_in_the_mailbox_it_lies_in(tmp_path):
    room = Room(tmp_path)
    file = room.put(mail(), "a.eml")
    async with room.open(source=NamedFiles([file], max_size=1_000_000)) as service:
        with OutOfOrder(room):
            await service.once()
    room.later += LATER
    assert whats(await room.once()) == [("succeeded", "mail sent")]
    assert room.processed() == {"a.eml"}


async def test_a_file_that_is_not_there_is_said_at_once(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no file .*gone.eml"):
        await Room(tmp_path).once(source=NamedFiles([tmp_path / "gone.eml"], max_size=10))


# -- texts --------------------------------------------------------------------------------------------------


async def texts(room: Room, run_id: str) -> bytes | None:
    run = await room.box.engine.get(run_id)
    return await room.box.engine.store.blob(run.data["email"]["$blob"])


async def test_texts_are_dropped_after_their_time_and_paths_stay(tmp_path):
    room = Room(tmp_path)
    room.put(mail())
    (told,) = await room.once()
    async with room.open():
        store, now = room.box.engine.store, room.box.engine.clock.now()
        assert await purge_texts(store, ("warranty", LEGACY), now - 86400) == 0
        assert await texts(room, told.run_id) is not None
        assert await purge_texts(store, ("warranty", LEGACY), now + 1) > 0
        assert await texts(room, told.run_id) is None
        result = await room.box.processor.result("step", await room.box.engine.get(told.run_id))
    assert len(result.step_sequence) == 4


async def test_texts_may_be_dropped_at_the_end(tmp_path):
    room = Room(tmp_path, privacy={"keep_bodies_days": 0})
    room.put(mail(1))
    (told,) = await failed_once(room)
    async with room.open():
        assert await texts(room, told.run_id) is not None  # it will be run again
    room.later += LATER
    (told,) = await room.once()
    assert told.what == "succeeded"
    async with room.open():
        assert await texts(room, told.run_id) is None


async def test_texts_of_a_mail_that_failed_for_the_last_time_are_dropped_as_well(tmp_path):
    room = Room(tmp_path, privacy={"keep_bodies_days": 0}, tools={"breaker": {"failures": 100}})
    room.put(mail(1))
    kept = []
    for _ in range(3):
        (told,) = await failed_once(room)
        async with room.open():
            kept.append(await texts(room, told.run_id) is not None)
        room.later += LATER
    assert kept == [True, True, False]


async def test_a_mail_whose_text_is_dropped_is_run_again_from_the_mailbox(tmp_path):
    room = Room(tmp_path)
    room.put(mail())
    (told,) = await failed_once(room)
    async with room.open() as service:
        store = room.box.engine.store
        await purge_texts(store, ("warranty",), room.box.engine.clock.now() + 1)
        (record,) = await room.box.records.by_key(told.mail_key)
        assert (await service.retry(record)).what == "succeeded"
    assert len(await room.tickets()) == 1


# -- what is said -------------------------------------------------------------------------------------------


async def test_every_transition_can_be_listed_from_the_log_and_from_the_journal(tmp_path):
    """W-56, W-34"""
    from detent.runtime import logging
    from detent.runtime.settings import Settings

    said = {"level": "info", "format": "json", "file": "log.jsonl"}
    logging.configure(Settings(tmp_path, values={"logging": said}))
    room = Room(tmp_path)
    for number, body in BATCH.items():
        room.put(mail(number, body), f"{number}.eml")
    told = await room.once()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    async with room.open():
        for one in told:
            own = [line for line in lines if line.get("run_id") == one.run_id]
            moves = [
                entry.body
                async for entry in entries_of(room.box.engine.store, one.run_id)
                if entry.kind == "moved"
            ]
            seen = [line for line in own if line["event"] == "step.transition"]
            assert [(line["from_step"], line["to_step"], line["reason"]) for line in seen] == [
                (move.frm, move.to, move.reason) for move in moves
            ]
            assert [line["message"] for line in seen] == [
                f"Step transition: {move.frm} → {move.to} (reason: {move.reason})" for move in moves
            ]
            completed = [line for line in own if line["event"] == "step.completed"]
            assert [line["message"] for line in completed] == [
                f"Step completed: {line['step']} ({line['ms']}ms)" for line in completed
            ]
            assert [line["step"] for line in completed] == one.result.step_sequence
            assert {"mode", "attempts", "tokens"} <= completed[0].keys()
            (end,) = [line for line in own if line["event"] == "mail.completed"]
            short = ", ".join(step.partition("-")[0] for step in one.result.step_sequence)
            steps = len(one.result.step_sequence)
            assert end["message"] == f"Email processing complete: {steps} steps executed: [{short}]"
            assert (end["status"], end["end"], end["steps"]) == ("succeeded", "DONE", steps)
            assert all(line["mail_key"] == one.mail_key for line in own)
            assert all(line["orchestrator"] == "step" for line in own)
    outputs = {line["message"] for line in lines if line["event"] == "step.output"}
    assert "Step output: NEXT_STEP=02-check-warranty, SERIAL=found" in outputs
    assert "Step output: NEXT_STEP=03d-request-serial, SERIAL=none" in outputs
    called = [line for line in lines if line["event"] == "function.called"]
    assert {(line["function"], line["kind"], line["step"]) for line in called} >= {
        ("check_warranty", "query", "02-check-warranty"),
        ("create_ticket", "effect", "03a-valid-warranty"),
        ("send_email", "effect", "05-send-confirmation"),
    }
    assert called[0]["message"] == f"Function called: {called[0]['function']} ({called[0]['ms']}ms)"


async def test_failures_are_said_with_their_step(tmp_path):
    import structlog

    room = Room(tmp_path)
    room.put(mail())
    with structlog.testing.capture_logs() as lines:
        await failed_once(room)
    (failed,) = [line for line in lines if line["event"] == "run.failed"]
    assert (failed["step"], failed["reason"]) == ("05-send-confirmation", "send_failed")
    assert failed["log_level"] == "error"
    (function,) = [line for line in lines if line["event"] == "function.failed"]
    assert (function["function"], function["code"], function["attempts"]) == ("send_email", "outbox", 3)


@pytest.mark.parametrize("turns", [1, 3])
async def test_a_model_that_only_calls_functions_is_asked_as_often_as_the_settings_say(tmp_path, turns):
    call = said('{"tool": "check_warranty", "arguments": {"serial_number": "SN48213"}}')
    async with Server(*[call] * 20) as server:
        room = Room(
            tmp_path,
            orchestration={"max_attempts": 1, "retry": {**QUICKLY["retry"], "function_turns": turns}},
            models={"near": {"kind": "vllm", "base_url": f"{server.url}/v1", "model_id": "m"}},
            model={"provider": "near"},
            steps={"02-check-warranty": {"mode": "agent", "autonomy": "approver", "max_retries": 0}},
        )
        room.put(mail())
        assert paths(await room.once()) == {("01", "02", "03a", "05")}
    asked = [request for request in server.asked if request.path.endswith("/chat/completions")]
    assert len(asked) == turns
