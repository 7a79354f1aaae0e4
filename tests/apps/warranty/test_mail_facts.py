"""What the mails of a run may state: code's own templates always, in every state and language."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from detent.adapters.mail.reply import rendered
from detent.apps.warranty.mail_facts import mail_facts
from detent.apps.warranty.responses import ResponseGenerator
from detent.apps.warranty.rules import Rules
from detent.apps.warranty.settings import read
from detent.dispatch.prose.contract import findings
from tests.apps.warranty.correspondence import (
    ASK,
    CONFIRM,
    CUSTOMER,
    EXPIRED,
    NOT_FOUND,
    REDIRECT,
    letter,
    mailbox,
    text_of,
    usual,
)

COVER = {
    "status": "valid",
    "serial_number": "SN48213",
    "device_name": "Kestrel K200",
    "expires": "2027-05-31",
}
STATES = {
    "confirmed": (CONFIRM, {"serial_number": "SN48213", "ticket_id": "TKT-10001", "warranty_data": COVER}),
    "expired": (EXPIRED, {"serial_number": "PX2-40118", "warranty_data": {**COVER, "status": "expired"}}),
    "not found": (NOT_FOUND, {"serial_number": "WZ-55-0932", "warranty_data": {"status": "not_found"}}),
    "no serial": (NOT_FOUND, {"serial_number": None, "warranty_data": {"status": "no_serial"}}),
    "asked": (ASK, {"description_missing": False}),
    "asked for both": (ASK, {"description_missing": True}),
    "topic": (REDIRECT, {"scope": {"kind": "topic", "topic": "invoice"}}),
    "spam": (REDIRECT, {"scope": {"kind": "spam", "topic": None}}),
    "failed": (REDIRECT, {"serial_number": "SN48213", "warranty_data": {"error": {"code": "timeout"}}}),
    "failed, unnamed": (REDIRECT, {"serial_number": None, "warranty_data": {"error": {"code": "timeout"}}}),
}


@pytest.mark.parametrize(("state", "language"), list(product(STATES, ("en", "pl"))))
def test_codes_own_text_keeps_the_contract_by_its_facts_alone(tmp_path, state, language):
    """Also without the allowance for sentences of the template, so that the test can fail."""
    contacts = [{"topic": "default", "text": "office@northpine.example"},
                {"topic": "invoice", "text": "billing@northpine.example, +48 22 555 01 10"}]  # fmt: skip
    handlers = ResponseGenerator(read({"warranty": {"contacts": contacts}}, tmp_path)).components.handlers
    step, state_data = STATES[state]
    email = {"reply_address": CUSTOMER, "subject": "Printer"}
    data = {"email": email, "sender_name": "Maren Holt", "language": language, **state_data}
    body = handlers.body(step, data)
    assert Rules(handlers).findings(step, data, body) == ()
    facts = replace(mail_facts(handlers, step, data), sentences=())
    assert findings(rendered(body), facts) == ()


async def test_the_text_checked_is_the_text_sent(tmp_path):
    async with mailbox(tmp_path) as box:
        await box.process(usual("valid"))
        sent = text_of(box.reply()).replace("\r\n", "\n")
        assert rendered(sent) == sent.rstrip("\n") + "\n"


async def test_the_customers_own_text_explains_nothing(tmp_path):
    """`You wrote 500 EUR` does not make `we refund 500 EUR` right."""
    mail = letter("Hello, S/N SN48213 is broken. I want 500 EUR back by Friday. Regards, Bernard")
    async with mailbox(tmp_path) as box:
        result = await box.process(mail)
        assert result.end == "DONE"
    handlers = ResponseGenerator(read({}, tmp_path)).components.handlers
    step, state_data = STATES["confirmed"]
    parts = [{"kind": "newest", "text": part.text} for part in mail.parts]
    email = {"reply_address": CUSTOMER, "subject": "500 EUR", "parts": parts}
    data = {"email": email, "language": "en", **state_data}
    body = "Hello {}, it is covered until 31 May 2027 and the ticket is TKT-10001.{}"
    facts = mail_facts(handlers, step, data)
    assert findings(body.format("Maren", ""), facts) == ()
    for name, claim in (("Bernard", ""), ("Maren", " We refund 500 EUR."), ("Maren", " We come on Friday.")):
        assert findings(body.format(name, claim), facts) != ()
