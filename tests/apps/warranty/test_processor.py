"""One mail, from its bytes to its result."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from detent.apps.warranty.mail_data import Packed, pack
from detent.apps.warranty.processor import EmailProcessor, view_of
from detent.apps.warranty.results import ProcessingResult
from detent.engine.tools import ToolError
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.apps.warranty.correspondence import (
    CHECK,
    CONFIRM,
    COVERED,
    CUSTOMER,
    PATHS,
    STEPS,
    TEXTS,
    Slot,
    mailbox,
    usual,
)


async def test_a_result_says_what_became_of_the_mail(tmp_path):
    """4.1."""
    async with mailbox(tmp_path) as box:
        mail = usual("valid")
        result = await box.process(mail, run_id="w-123456789abc-1")
        assert isinstance(result, ProcessingResult)
        assert (result.success, result.status) == (True, Status.SUCCEEDED)
        assert (result.email_id, result.run_id, result.orchestrator) == (mail.key, "w-123456789abc-1", "step")
        assert (result.serial_number, result.warranty_status) == (COVERED, "valid")
        assert (result.ticket_created, result.ticket_id) == (True, "TKT-10001")
        assert (result.error_message, result.failed_step, result.flags) == (None, None, [])
        assert result.processing_time_ms > 0
        assert [(one.function_name, one.kind, one.step_name) for one in result.function_calls] == [
            ("check_warranty", "query", CHECK),
            ("create_ticket", "effect", "03a-valid-warranty"),
            ("send_email", "effect", CONFIRM),
        ]
        assert all(one.success for one in result.function_calls)
        assert result.function_calls[0].arguments["serial_number"] == COVERED
        assert result.function_calls[2].arguments["to"] == CUSTOMER


async def test_a_result_outlives_the_words_of_its_mail(tmp_path):
    """Part 10: a purged run still shows its path."""
    async with mailbox(tmp_path) as box:
        done = await box.process(usual("valid"))
        run = await box.engine.get(done.run_id)
        assert await box.engine.store.purge(done.run_id) > 0
        result = await box.orchestrator.result(run)
        assert result.path == list(PATHS["valid"])
        assert result.completed


async def test_a_run_that_waits_is_neither_success_nor_failure(tmp_path):
    slot = Slot(tmp_path / "slot")
    slot.errors = [ConnectionError("gone")]
    async with mailbox(tmp_path, sink=slot) as box:
        result = await box.process(usual("expired"))
        assert (result.status, result.success) == (Status.WAITING, False)
        assert not result.requires_retry()
        assert (result.failed_step, result.error_message) == (None, None)


async def test_a_failed_run_says_which_step_failed(tmp_path):
    async with mailbox(tmp_path, faults={"send_email": [ToolError("no", "no")]}) as box:
        result = await box.process(usual("valid"))
        assert (result.failed_step, result.error_message) == (CONFIRM, "send_failed")
        (call,) = [one for one in result.function_calls if one.function_name == "send_email"]
        assert (call.success, call.error_message) == (False, "no: no")


class TestTheChoice:
    """4.9: step or legacy, per mail."""

    class Legacy:
        def __init__(self) -> None:
            self.started: list[Packed] = []

        async def start(self, packed: Packed, **options: object) -> str:
            self.started.append(packed)
            raise LookupError("legacy")

        async def result(self, run: Run) -> ProcessingResult:
            raise AssertionError

    @pytest.mark.parametrize(("flag", "how"), [(True, "step"), (False, "legacy")])
    async def test_the_flag_decides(self, tmp_path, flag, how):
        said = {"orchestration": {"use_step_orchestrator": flag}}
        async with mailbox(tmp_path, said) as box:
            processor = EmailProcessor(box.orchestrator, legacy=self.Legacy())
            assert await processor.choose() == how
            if how == "legacy":
                with pytest.raises(LookupError):
                    await processor.process_email(usual("valid"))
            else:
                assert (await processor.process_email(usual("valid"))).orchestrator == "step"

    async def test_without_legacy_steps_are_taken(self, tmp_path):
        async with mailbox(tmp_path, {"orchestration": {"use_step_orchestrator": False}}) as box:
            assert (await box.process(usual("valid"))).orchestrator == "step"

    async def test_whoever_watches_over_it_has_the_last_word(self, tmp_path):
        async def legacy():
            return "legacy"

        async with mailbox(tmp_path) as box:
            processor = EmailProcessor(box.orchestrator, legacy=self.Legacy(), choose=legacy)
            with pytest.raises(LookupError):
                await processor.process_email(usual("valid"))
            assert (await processor.process_email(usual("valid"), how="step")).success


async def test_nothing_of_a_mail_is_said_at_info_and_above(tmp_path, caplog):
    """Part 10, W-35."""
    mails = [usual(*one, ident=f"<secret-{n}@holt-bakery.example>") for n, one in enumerate(TEXTS)]
    with caplog.at_level(logging.INFO, "detent"):
        async with mailbox(tmp_path, faults={"send_email": [None, ToolError("no", "no")]}) as box:
            for mail in mails:
                await box.process(mail)
    assert any("router.decided" in line for line in caplog.messages)
    said = "\n".join(caplog.messages)
    for word in ("holt-bakery", "Maren", COVERED, "Label printer", "stopped", "secret-", "Wygra", "lottery"):
        assert word not in said
    for mail in mails:
        assert mail.key in said


READ_ONCE = """
import asyncio, collections, pathlib, sys, tempfile
opened = collections.Counter()
sys.addaudithook(lambda event, args: event == "open" and str(args[0]).endswith(".md")
                 and opened.update([pathlib.PurePath(str(args[0])).name]))
from tests.apps.warranty.correspondence import letter, mailbox

async def main():
    async with mailbox(pathlib.Path(tempfile.mkdtemp())) as box:
        for _ in range(100):
            await box.process(letter("Hello, our printer is broken."))

asyncio.run(main())
print(sorted(opened.items()))
"""


def test_each_step_file_is_read_once_for_many_mails():
    """W-12: however many mails. In a process of its own, since such a hook stays as long as the process."""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", READ_ONCE], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(sorted((f"{step}.md", 1) for step in STEPS))


def test_a_packed_mail_can_be_looked_at(tmp_path):
    mail = usual("valid")
    assert view_of(pack(mail, "UTC")).reply_address == CUSTOMER
