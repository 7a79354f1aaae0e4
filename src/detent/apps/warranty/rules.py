"""What an agent's answer must keep at every level, and what passes the collaborator's check.

An agent may find better words. It may not choose another customer, another ticket, another serial number, or
a branch the registry's answer does not demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from detent.adapters.mail.headers import usable_address
from detent.apps.warranty.craft.language import language_of
from detent.apps.warranty.craft.scope import scope_of
from detent.apps.warranty.craft.serials import extract, serial_key, serial_shaped
from detent.apps.warranty.handlers import ASK, CHECK, REDIRECT, Desk
from detent.apps.warranty.mail_data import MailView, TextPart, mail_of
from detent.engine.context import StepContext
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Proposal, Verdict
from detent.flows.playbook.protocol import Reply
from detent.kernel.equivalence import CompareRules

SHORTEST_BODY, LONGEST_BODY = 40, 4000
_TICKET = re.compile(r"\bTKT-\d+\b")
_URL = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PHONE = re.compile(r"(?<![\w-])\+?\d[\d ()/-]{7,}\d(?![\w-])")
_PROTOCOL = re.compile(r"^\s*(?:NEXT_STEP|SERIAL|REASON|DESCRIPTION|BODY)\s*:", re.IGNORECASE | re.MULTILINE)

Contract = Callable[[StepContext, Outcome, Reply], Iterable[str]]


class Rules:
    """The rules of one mailbox."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def contracts(self) -> dict[str, Contract]:
        """By step: what holds at every level."""
        mails = ("03b-device-not-found", "03c-expired-warranty", ASK, REDIRECT, "05-send-confirmation")
        return {
            "01-extract-serial": self.serial_contract,
            CHECK: self.lookup_contract,
            "03a-valid-warranty": self.ticket_contract,
            **dict.fromkeys(mails, self.mail_contract),
        }

    def validators(self) -> dict[str, Callable[[Mapping[str, Any], Proposal], Verdict]]:
        """By the names step files use: the collaborator's check."""
        return {"serial_agrees": self.serial_agrees, "mail_contract": lambda inputs, proposal: Verdict(True)}

    # -- 01 -------------------------------------------------------------------------------------------------

    def serial_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """SERIAL is there with 02 and not with 03d, has a serial's shape and stands in the mail."""
        serial = outcome.set.get("serial_number") if "SERIAL" in reply.outputs else None
        if reply.next_step == CHECK and not serial:
            yield "SERIAL is missing; it is needed to go on to 02-check-warranty."
        if reply.next_step == ASK and serial:
            yield "SERIAL is given, so the customer need not be asked for it."
        if serial and not self._stands_in(mail_of(ctx.data), str(serial)):
            yield "SERIAL does not stand in the mail as a serial number. Copy it exactly, or leave it out."

    @staticmethod
    def _stands_in(mail: MailView, serial: str) -> bool:
        if not 5 <= len(serial) <= 20 or not any(one.isdigit() for one in serial):
            return False
        return serial.casefold() in mail.text.casefold()

    def serial_agrees(self, inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
        """The serial is the one code finds, unless the mail holds several; a fault is not sent away."""
        mail = mail_of({"email": inputs.get("email")})
        found = extract(mail.parts, mail.subject)
        said = proposal.output.get("serial_number") if isinstance(proposal.output, Mapping) else None
        reasons: list[str] = []
        if not found.ambiguous and serial_key(said or "") != serial_key(found.serial_number or ""):
            reasons.append("/serial_number is not the one the mail names")
        hits = scope_of(mail.subject, mail.parts, self.desk.words).hits
        wanted = hits.get("fault") or hits.get("safety") or hits.get("warranty")
        if proposal.next == REDIRECT and found.serial_number and wanted:
            reasons.append("/next_state sends a device in need of service away")
        return Verdict(not reasons, reasons)

    # -- 02, 03a --------------------------------------------------------------------------------------------

    def lookup_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """The registry was asked once, about the run's serial number."""
        serial = ctx.data.get("serial_number")
        asked = [line for line in ctx.looked if line["tool"] == "check_warranty"]
        if serial and len(asked) != 1:
            yield "check_warranty is to be called once, with the serial number you were given."
        if any(
            serial_key(str(line["args"].get("serial_number"))) != serial_key(serial or "") for line in asked
        ):
            yield "check_warranty was called with another serial number than the one you were given."

    def ticket_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """One ticket, for this device and this customer; no mail."""
        tickets = [Effect.of(one) for one in outcome.effects]
        if [one.tool for one in tickets] != ["create_ticket"]:
            yield "create_ticket is to be called exactly once, and nothing else."
            return
        args = tickets[0].args
        if serial_key(str(args.get("serial_number"))) != serial_key(ctx.data.get("serial_number") or ""):
            yield "create_ticket: serial_number is not the one you were given."
        if str(args.get("customer_email", "")).casefold() != mail_of(ctx.data).reply_address.casefold():
            yield "create_ticket: customer_email is not the customer's address."

    # -- the mails ------------------------------------------------------------------------------------------

    def mail_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """One mail, to the customer, in the customer's language, saying what it must and nothing foreign."""
        mails = [Effect.of(one) for one in outcome.effects]
        if not mails and outcome.next is not None and not self.desk.settings.warranty.reply_to_spam:
            return
        if [one.tool for one in mails] != ["send_email"]:
            yield "send_email is to be called exactly once, and nothing else."
            return
        mail, args, data = mail_of(ctx.data), mails[0].args, ctx.data
        if str(args.get("to", "")).casefold() != mail.reply_address.casefold():
            yield "send_email: `to` is not the customer's address."
        if args.get("subject") != self.desk.subject(data, mail):
            yield "send_email: `subject` is not the subject of an answer to this mail."
        body = str(args.get("body", ""))
        yield from self._words(body, data, mail)
        yield from self._needed(ctx.step.name, body, data)

    def _words(self, body: str, data: Mapping[str, Any], mail: MailView) -> Iterable[str]:
        if not SHORTEST_BODY <= len(body.strip()) <= LONGEST_BODY:
            yield f"The body has to have {SHORTEST_BODY} to {LONGEST_BODY} characters."
        wanted = data.get("language") or self.desk.settings.warranty.default_language
        if language_of([TextPart("newest", body)], "", wanted) != wanted:
            yield f"The body has to be in the customer's language ({wanted})."
        if _PROTOCOL.search(body):
            yield "The body may not hold a protocol line."
        contacts = " ".join(contact.text for contact in self.desk.settings.warranty.contacts)
        own = {mail.reply_address.casefold(), (mail.from_address or "").casefold()}
        for found in _ADDRESS.findall(body):
            if found.casefold() not in own and found not in contacts and usable_address(found):
                yield "The body names an address that is neither the customer's nor a contact of ours."
                break
        allowed = (
            contacts + " " + " ".join(str(data.get(key) or "") for key in ("serial_number", "ticket_id"))
        )
        if any(one not in contacts for one in _URL.findall(body)):
            yield "The body may not hold a link that is not a contact of ours."
        if any(one.strip() not in allowed for one in _PHONE.findall(body) if not _is_date(one)):
            yield "The body may not hold a telephone number that is not a contact of ours."

    def _needed(self, step: str, body: str, data: Mapping[str, Any]) -> Iterable[str]:
        serial, expires = data.get("serial_number"), (data.get("warranty_data") or {}).get("expires")
        if step in ("03b-device-not-found", "03c-expired-warranty") and serial and serial not in body:
            yield "The body has to name the serial number."
        if step in ("03c-expired-warranty", "05-send-confirmation") and expires and expires not in body:
            yield "The body has to name the day on which the warranty ends or ended, as it was given."
        if step == ASK and serial_shaped(body):
            yield "The body may not show anything that looks like a serial number."
        if step == REDIRECT:
            contacts = [contact.text for contact in self.desk.settings.warranty.contacts]
            if not any(contact in body for contact in contacts):
                yield "The body has to name the contact."
        if step == "05-send-confirmation":
            tickets = set(_TICKET.findall(body))
            if tickets != {data.get("ticket_id")}:
                yield "The body has to name the ticket's number, and no other."


def _is_date(text: str) -> bool:
    return re.fullmatch(r"\s*\d{4}-\d{2}-\d{2}\s*", text) is not None


TICKET_RULES = CompareRules(ignore=("/issue_description", "/effects/*/args/issue_description"))
"""Between two tickets for the same device only the words may differ."""
