"""Whatever stands in tags, ids, data, reasons, errors and mails: a terminal is told, and never commanded."""

from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from detent.kernel.control_characters import is_control

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x1b]52;c;YQ==\x07\u202egnp.exe\r[red]x[/red]"
FLOW = '''
from detent import Effect, Flow, Hold, Machine, Outcome, Status, ToolError

H = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\u202egnp.exe\\r[red]x"

odd = Flow(
    Machine("odd", start="read", moves={"read": ["wait"], "wait": ["done"]}, ends={"done": Status.SUCCEEDED}),
    description="Odd " + H,
)


@odd.step("read")
async def read(ctx):
    """Read."""
    if ctx.data.get("fail"):
        raise RuntimeError("it broke " + H)
    await ctx.note("seen", what=H)
    return Outcome(next="wait", reason="because " + H, set={"answer": H})


@odd.step("wait")
def wait(ctx):
    """Wait."""
    return Hold("person", "Is " + H + " fine?") if ctx.data.get("hold") else Outcome(next="done", reason=H)
'''


def no_controls(text: str) -> None:
    found = {hex(ord(char)) for char in text if is_control(char)}
    assert not found, text


@pytest.fixture
def odd(folder: Path) -> Path:
    (folder / "odd.py").write_text(FLOW)
    return folder


def test_no_command_hands_a_control_character_on(detent, odd):
    commands = [
        ["run", "odd.py", "--id", "one", "--data", json.dumps({"name": HOSTILE})],
        ["run", "odd.py", "--tag", HOSTILE],
        ["run", "odd.py", "--id", "two", "--data", '{"fail": true}'],
        ["run", "odd.py", "--id", HOSTILE],
        ["run", f"odd{HOSTILE}.py"],
        ["run", "odd.py", "--store", f"memory{HOSTILE}:"],
        ["flows", "--plugin", "odd.py"],
        ["runs"],
        ["runs", "--tag", HOSTILE],
        ["show", "one"],
        ["show", "two"],
        ["show", HOSTILE],
        ["why", "one"],
        ["why", "two"],
        ["timeline", "one"],
        ["metrics", "one"],
        ["log", "one"],
        [HOSTILE],
    ]
    for command in commands:
        said = detent(*command)
        no_controls(said.out + said.err)


def test_json_stays_exact_and_says_it_in_escapes(detent, odd):
    detent("run", "odd.py", "--id", "one", "--data", json.dumps({"name": HOSTILE}))
    said = detent("show", "one", "--json")
    no_controls(said.out)
    assert said.json["data"]["name"] == HOSTILE


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines_show_them_too(detent, odd, form):
    (odd / "detent.yaml").write_text(f"logging: {{level: debug, format: {form}, file: log.txt}}\n")
    detent("run", "odd.py", "--id", "one", "--data", '{"fail": true}')
    text = (odd / "log.txt").read_text()
    assert "one" in text
    no_controls(text)


def test_a_terminal_gets_our_colours_and_nobody_elses(odd):
    """The program on a terminal of its own, with what it wrote to it."""
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    environ.pop("NO_COLOR", None)
    written = b""
    for args in (
        ["run", "odd.py", "--id", "one", "--data", json.dumps({"name": HOSTILE})],
        ["show", "one"],
        ["runs"],
    ):
        ours, theirs = pty.openpty()
        program = subprocess.Popen(
            [sys.executable, "-m", "detent", *args],
            cwd=odd,
            env=environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            written += piece
        program.wait()
        os.close(ours)
    text = written.decode()
    assert "\x1b[32m" in text or "\x1b[1m" in text
    for sequence in ("\x1b]0;", "\x1b]52", "\x1b[2J", "\x9b", "\u202e", "\x07"):
        assert sequence not in text
    assert "[red]x" in text


# -- mails --------------------------------------------------------------------------------------------------

MAILBOX = """
mail: {inbox: mail/inbox, outbox: mail/outbox}
orchestration: {retry: {min_s: 0.001, max_s: 0.001}}
"""


def encoded(text: str) -> str:
    """A header's value that mail programs turn back into the text, whatever is in it."""
    return f"=?utf-8?b?{base64.b64encode(text.encode()).decode()}?="


def hostile_mails() -> dict[str, bytes]:
    """Mails with control characters wherever a mail has texts, as they are and encoded."""
    body = f"My printer SN30517 is broken {HOSTILE} and feeds two labels at once."
    plain = {
        "From": f"{encoded('Eve ' + HOSTILE)} <eve@strangers.example>",
        "Subject": encoded(f"Broken {HOSTILE}"),
        "Message-ID": "<a{}@strangers.example>".format("\x1b[2J\x9b"),
        "Date": "Tue, 29 Jan 2030 10:00:00 +0000",
        "Content-Type": "text/plain; charset=utf-8",
    }
    raw = {
        **plain,
        "From": "Eve \x1b[2J <eve\x1b]0;x\x07@strangers.example>",
        "Subject": "Bro\x1b[2Jken \u202e",
    }
    page = {**plain, "Content-Type": "text/html; charset=utf-8"}
    odd = {**plain, "Date": "\x1b[2J", "Content-Type": "text/\x1b[2J; charset=\x1b]0;x\x07"}
    attached = {**plain, "Content-Type": 'multipart/mixed; boundary="b"'}
    parts = (
        f"--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{body}\r\n"
        "--b\r\nContent-Type: application/pdf\r\n"
        'Content-Disposition: attachment; filename="a\x1b[2J.pdf"\r\n'
        "\r\nx\r\n--b--\r\n"
    )
    mails = {
        "plain": (plain, body),
        "raw": (raw, body),
        "page": (page, f"<p title='{HOSTILE}'>{body}&#27;[2J&#x202e;</p>"),
        "odd": (odd, body),
        "attached": (attached, parts),
        "empty": (plain, HOSTILE),
    }
    written: dict[str, bytes] = {}
    for number, (name, (headers, text)) in enumerate(mails.items()):
        headers = {**headers, "Message-ID": f"<{number}{headers['Message-ID'][1:]}"}
        head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        written[f"{name}\x1b[2J.eml"] = f"{head}\r\n{text}".encode()
    written["unreadable\x1b]0;x\x07.eml"] = b"\x1b[2J" * 10
    return written


@pytest.fixture
def mailbox(folder: Path, detent) -> Path:
    """A mailbox full of such mails."""
    (folder / "config.yaml").write_text(MAILBOX)
    inbox = folder / "mail/inbox"
    inbox.mkdir(parents=True)
    for name, raw in hostile_mails().items():
        (inbox / name).write_bytes(raw)
        os.utime(inbox / name, (1, 1))
    devices = "serial,device_name,customer_ref,service_contract_end,manufacturer_end,extension_until\n"
    (folder / "devices.csv").write_text(f"{devices}SN30517,A printer,C-1,,2999-12-31,\n")
    assert detent("warranty", "registry", "import", "devices.csv").code == 0
    return folder


@pytest.mark.parametrize("orchestrator", ["step", "legacy"])
@pytest.mark.parametrize("verbose", [(), ("-vv",)])
def test_no_mail_hands_a_control_character_on(detent, mailbox, orchestrator, verbose):
    commands = [
        ["run", "warranty", "--dry-run", "--once", "--orchestrator", orchestrator],
        ["run", "warranty", "--once", "--orchestrator", orchestrator, *verbose],
        ["run", "warranty", "--once", "--json"],
        ["warranty", "attention"],
        ["warranty", "stats"],
        ["warranty", "tickets", "list"],
        ["runs"],
    ]
    said = ""
    for command in commands:
        result = detent(*command)
        said += result.out
        no_controls(result.out + result.err)
    assert "mail sent" in said
    tickets = [one["ticket_id"] for one in detent("warranty", "tickets", "list", "--json").json]
    runs = [one["id"] for one in detent("runs", "--json").json["runs"]]
    files = [str(file) for file in (mailbox / "mail").rglob("*.eml")]
    assert tickets
    assert runs
    assert files
    for command in (
        *(["warranty", "tickets", "show", ticket] for ticket in tickets),
        *([verb, run] for run in runs for verb in ("show", "why", "log", "timeline")),
        *(["show", run, "--all"] for run in runs),
        *(
            ["warranty", verb, str(file)]
            for file in (mailbox / "mail").rglob("*.eml")
            for verb in ("serial", "route")
        ),
    ):
        result = detent(*command)
        no_controls(result.out + result.err)
