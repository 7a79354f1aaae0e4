"""What the mailbox logs, event by event: level, fields and text, in the log of real runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from detent.adapters.mail.message import read_message
from detent.apps.warranty.tools.registry import Registry
from detent.engine.tools import ToolError
from detent.runtime import logging as log_settings
from detent.runtime.settings import Settings
from tests.apps.warranty.mailroom import COVERED, NO_SERIAL, Room, mail

ALWAYS = {"event", "level", "timestamp"}
ABOUT_RUN = {"run_id", "mail_key", "orchestrator"}
EVENTS: dict[str, tuple[str, set[str], bool]] = {
    "step.transition": ("info", {"from_step", "to_step", "reason", "mode"}, True),
    "step.completed": ("info", {"step", "ms", "mode", "attempts", "tokens"}, True),
    "step.output": ("info", {"next_step"}, True),
    "mail.completed": ("info", {"steps", "path", "status", "end", "ms", "flags"}, True),
    "function.called": ("info", {"function", "kind", "step", "ms", "attempts"}, True),
    "function.failed": ("error", {"function", "kind", "step", "attempts", "code"}, True),
    "router.decided": ("info", {"mail_key", "step", "method", "confidence"}, False),
    "mail.ignored": ("info", {"mail_key", "decision", "reason"}, False),
    "mail.duplicate": ("info", {"mail_key", "decision", "reason"}, False),
    "mail.held": ("warning", {"mail_key", "decision", "reason"}, False),
    "mail.unreadable": ("warning", {"mail_key", "decision", "reason"}, False),
    "intake.polled": ("info", {"listed", "under_way", "paused"}, False),
}
"""Level, fields, and whether the event is one of a run."""


def listen(folder: Path, level: str = "info") -> None:
    said = {"level": level, "format": "json", "file": "log.jsonl"}
    log_settings.configure(Settings(folder, values={"logging": said}))


def lines_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class AwayRegistry(Registry):
    """A registry that does not answer."""

    async def find(self, *_: Any, **__: Any) -> Any:
        raise ToolError("timeout", "no answer", transient=True)


async def test_every_event_has_its_level_its_fields_and_its_run(tmp_path):
    """W-34: each event of the table, in two looks at a mailbox."""
    listen(tmp_path)
    room = Room(tmp_path, mail={"max_replies_per_sender_per_day": 2})
    room.put(mail(1), "covered.eml")
    room.put(mail(1), "copy.eml")
    room.put(mail(3, NO_SERIAL, Auto_Submitted="auto-replied"), "automatic.eml")
    room.put(b"", "empty.eml")
    for number in range(4, 8):
        room.put(mail(number, NO_SERIAL, From="One <one@sender.example>"), f"{number}.eml")
    await room.once()
    room.put(mail(9), "unchecked.eml")
    await room.once(registry=AwayRegistry(tmp_path / "warranty.db"))
    lines = lines_in(tmp_path)
    assert {line["event"] for line in lines} >= set(EVENTS)
    for line in lines:
        if line["event"] not in EVENTS:
            continue
        level, fields, of_run = EVENTS[line["event"]]
        assert line["level"] == level, line
        assert set(line) >= ALWAYS | fields | (ABOUT_RUN | {"message"} if of_run else set()), line
        assert line["timestamp"].endswith("Z")


async def test_the_library_logs_the_whole_history_of_a_mail_at_the_end(tmp_path, caplog):
    """AC8: as the service does, for whoever calls the processor or the orchestrator."""
    room = Room(tmp_path)
    message = read_message(mail(1, COVERED))
    texts = [
        "Step transition: 01-extract-serial → 02-check-warranty (reason: serial found)",
        "Step output: NEXT_STEP=02-check-warranty, SERIAL=found",
        "Email processing complete: 4 steps executed: [01, 02, 03a, 05]",
    ]
    async with room.open():
        for process in (room.box.processor.process_email, room.box.processor.orchestrator.orchestrate):
            caplog.clear()
            with caplog.at_level(logging.INFO, "detent"):
                await process(message)
            said = [record.detent for record in caplog.records]
            for text in texts:
                assert sum(line.get("message") == text for line in said) == 1, text
            assert {line["mail_key"] for line in said} == {message.key}
            assert caplog.records[-1].message.startswith("mail.completed ")
