"""The outbox: whole files or none, one for each mail, found again by the Message-ID."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from detent.adapters.mail.outbox import Outbox, file_name
from detent.engine.tools import NOT_DONE, ToolError
from detent.kernel.errors import ConfigurationError
from tests.adapters.mail.servers import mail

OURS = "<det-0123456789abcdef01234567@northpine.example>"
FROM, TO = "service@northpine.example", ["maren@holt-bakery.example"]


def reply(message_id=OURS, body="It is covered."):
    return mail("re", body, Message_ID=message_id)


@pytest.fixture
async def outbox(tmp_path):
    box = Outbox(tmp_path / "mail" / "outbox")
    await box.open()
    return box


def files(box):
    return {path.name: path.read_bytes() for path in box.folder.iterdir() if path.is_file()}


async def test_a_mail_is_a_file_named_after_its_key(outbox):
    receipt = await outbox.send(reply(), FROM, TO)
    assert receipt == {"message_id": OURS, "status": "queued"}
    assert files(outbox) == {"det-0123456789abcdef01234567.eml": reply()}


async def test_probing_is_looking_for_the_file(outbox):
    """W-44, transport: after a crash the file says whether the mail went out."""
    assert await outbox.probe(OURS) is NOT_DONE
    receipt = await outbox.send(reply(), FROM, TO)
    assert await outbox.probe(OURS) == receipt
    assert await Outbox(outbox.folder).probe(OURS) == receipt


async def test_a_mail_that_was_delivered_and_put_away_is_still_found(outbox):
    receipt = await outbox.send(reply(), FROM, TO)
    (outbox.folder / "sent").mkdir()
    path = outbox.folder / file_name(OURS)
    path.rename(outbox.folder / "sent" / path.name)
    assert await outbox.probe(OURS) == receipt
    await outbox.send(reply(), FROM, TO)
    assert files(outbox) == {}


async def test_the_same_mail_is_there_once_and_the_first_one_stays(outbox):
    await outbox.send(reply(), FROM, TO)
    await outbox.send(reply(body="other words"), FROM, TO)
    assert list(files(outbox).values()) == [reply()]


async def test_many_at_once_leave_one_whole_file_and_nothing_half_written(outbox):
    body = "x" * 200_000
    await asyncio.gather(*(outbox.send(reply(body=body), FROM, TO) for _ in range(20)))
    assert list(files(outbox).values()) == [reply(body=body)]


@pytest.mark.parametrize(
    "message_id",
    ["<../../etc/passwd@x.example>", "<det-../../a@x.example>", "<a b@x.example>", "<é@x.example>"],
)
async def test_no_message_id_leads_out_of_the_folder(outbox, message_id):
    name = file_name(message_id)
    assert name.startswith("mail-")
    assert os.sep not in name
    assert file_name(message_id + " ") != name


@pytest.mark.parametrize("headers", [{"Message_ID": ""}, {"Message_ID": "no brackets"}])
async def test_a_mail_that_could_not_be_found_again_is_not_taken(outbox, headers):
    with pytest.raises(ToolError) as caught:
        await outbox.send(mail(1, **headers), FROM, TO)
    assert (caught.value.code, caught.value.transient) == ("no_message_id", False)
    assert files(outbox) == {}


async def test_a_folder_that_is_gone_means_not_sent_and_probing_gives_no_answer(outbox):
    outbox.folder.rmdir()
    with pytest.raises(ToolError) as caught:
        await outbox.send(reply(), FROM, TO)
    assert (caught.value.code, caught.value.transient) == ("outbox", True)
    with pytest.raises(FileNotFoundError):
        await outbox.probe(OURS)


async def test_a_place_that_cannot_be_a_folder_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError) as caught:
        await Outbox(tmp_path / "file").open()
    assert str(tmp_path / "file") in str(caught.value)


WRITER = """
import asyncio, sys
from pathlib import Path
from detent.adapters.mail.outbox import Outbox

async def main():
    box = Outbox(Path(sys.argv[1]))
    await box.open()
    body = b"x" * 100_000
    for number in range(100_000):
        message_id = f"<det-{number:024x}@northpine.example>"
        raw = f"Message-ID: {message_id}\\r\\n\\r\\n".encode() + body + b"end"
        await box.send(raw, "a@b.example", ["c@d.example"])
        print(message_id, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 7, 20])
async def test_a_killed_writer_leaves_every_announced_mail_and_no_half_one(tmp_path, after):
    """W-44, transport."""
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(tmp_path / "out"), stdout=asyncio.subprocess.PIPE
    )
    announced = [(await writer.stdout.readline()).decode().strip() for _ in range(after)]
    os.kill(writer.pid, signal.SIGKILL)
    announced += (await writer.stdout.read()).decode().split()
    await writer.wait()
    box = Outbox(tmp_path / "out")
    for message_id in announced:
        assert (await box.probe(message_id))["message_id"] == message_id
    whole = [content for name, content in files(box).items() if name.endswith(".eml")]
    assert all(content.endswith(b"end") for content in whole)
    assert len(announced) <= len(whole) <= len(announced) + 1
