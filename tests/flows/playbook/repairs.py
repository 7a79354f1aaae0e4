"""A playbook with everything in it: a handler in Python, a query, a ticket, letters, a redirect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from detent.engine.outcome import Outcome
from detent.flows.playbook.flow import PlaybookFlow, playbook_flow
from tests.flows.playbook.bench import World, step_file, write

MANIFEST = """
name: repairs
redirect: {send_email: {template: sorry, to: "{{mail.sender}}"}}
arguments:
  send_email: {to: "{{mail.sender}}"}
protocol:
  NUMBER: {sets: number, takes: token}
  FAULT: {sets: fault, absent: handler}
"""
FILES = {
    "playbook.yaml": MANIFEST,
    "01-read": step_file(
        "01-read",
        """
        next:
          - {to: 02-look, when: {number: present}, reason: number found}
          - {to: 03-ask, when: {number: absent}, reason: no number}
          - {to: 05-refuse, reason: not ours}
        needs: [mail]
        outputs: [number, fault, words]
        handler: read_mail
        """,
        body="Find the number.",
        next="",
    ),
    "02-look": step_file(
        "02-look",
        """
        next:
          - {to: 04-ticket, when: {row.state: [late, lost]}, reason: known}
          - {to: 05-refuse, when: {row.error: present}, reason: look-up failed}
          - {to: 03-ask, reason: not known}
        available_functions: [lookup]
        needs: [number]
        outputs: [row]
        call: {lookup: {table: t, key: k, value: "{{number}}"}, into: row, when: {number: present}, else: {}}
        """,
        next="",
    ),
    "03-ask": step_file(
        "03-ask",
        """
        available_functions: [send_email]
        needs: [mail.sender]
        outputs: [message_id]
        effects: {send_email: {body: "Which number is it?", into: {message_id: message_id}}}
        text_fields: {BODY: send_email.body}
        """,
    ),
    "04-ticket": step_file(
        "04-ticket",
        """
        next: [{to: 06-confirm, reason: ticket opened}]
        available_functions: [create_ticket]
        needs: [number, fault]
        outputs: [ticket_id]
        handler: open_ticket
        """,
        next="",
    ),
    "05-refuse": step_file("05-refuse", effects="{}", body="Nothing to do."),
    "06-confirm": step_file(
        "06-confirm",
        """
        available_functions:
          - name: send_email
            description: Write to the customer, once.
            parameters:
              type: object
              properties: {to: {type: string}, body: {type: string, minLength: 3}}
              required: [to, body]
        needs: [mail.sender, ticket_id]
        outputs: [message_id]
        effects: {send_email: {template: "06", into: {message_id: message_id}}}
        text_fields: {BODY: send_email.body}
        """,
    ),
    "templates/06-confirm.en.txt": "Your ticket is {{ticket_id}}.\n",
    "templates/sorry.en.txt": "Somebody will look at it.\n",
}


async def read_mail(ctx: Any) -> Outcome:
    """Find a number in the mail; count its words."""
    found = re.search(r"[A-Z]-\d", ctx.data.mail.text)
    number = found.group() if found else None
    changes = {"number": number, "fault": "code says", "words": len(ctx.data.mail.text.split())}
    return Outcome("02-look" if number else "03-ask", set=changes)


async def open_ticket(ctx: Any) -> Outcome:
    """Open a ticket; when that is refused, leave it to a person."""
    if ctx.failure is not None:
        return Outcome("graceful-degradation", reason="ticket_failed")
    ticket = ctx.propose("create_ticket", serial=ctx.data.number, text=ctx.data.fault)
    return Outcome("06-confirm", set={"ticket_id": ticket.ticket_id})


HANDLERS = {"read_mail": read_mail, "open_ticket": open_ticket}


def repairs(folder: Path, world: World, files: dict[str, str] | None = None, **options: Any) -> PlaybookFlow:
    """The flow, with some of its files written otherwise (None leaves one out)."""
    wanted = {name: text for name, text in {**FILES, **(files or {})}.items() if text is not None}
    options = {"handlers": HANDLERS, "tools": world.tools(), **options}
    return playbook_flow(write(folder / "repairs", wanted), **options)


def mail(text: str) -> dict[str, Any]:
    """A mail to start from."""
    return {"mail": {"text": text, "sender": "a@b.example"}}
