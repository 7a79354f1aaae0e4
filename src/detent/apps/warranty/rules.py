"""Rules for an agent's answer at every autonomy level, and the collaborator's check.

An agent may find better words. It may not choose another customer, another ticket, another serial number, or
a branch that the registry's answer does not require.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from detent.adapters.mail.reply import rendered
from detent.apps.warranty.domain import tokens
from detent.apps.warranty.domain.serials import serial_key, serial_shaped
from detent.apps.warranty.handlers import (
    AMBIGUOUS,
    ASK,
    CHECK,
    CONFIRM,
    DEVICE,
    IN_SCOPE,
    REDIRECT,
    SERIAL,
    Handlers,
    registry_status,
)
from detent.apps.warranty.mail_data import MailView, mail_of
from detent.apps.warranty.settings import FIRST_STEP
from detent.dispatch.equivalence import CompareRules
from detent.dispatch.proposal import Proposal, Verdict
from detent.dispatch.prose.contract import missing
from detent.dispatch.prose.fact_kinds import day_of
from detent.dispatch.prose.facts import Required
from detent.dispatch.prose.finding import Finding
from detent.engine.context import StepContext
from detent.engine.outcome import Effect, Outcome
from detent.flows.playbook.protocol import Reply

TICKET, NOT_FOUND, EXPIRED = "03a-valid-warranty", "03b-device-not-found", "03c-expired-warranty"
MAILS = (NOT_FOUND, EXPIRED, ASK, REDIRECT, CONFIRM)

SHORTEST_BODY, LONGEST_BODY = 40, 4000
_PROTOCOL = re.compile(
    r"^(?:[^\S\n]|[>|*_`])*+(?:SERIAL|REASON|DESCRIPTION|BODY)[*_`]*\s*:|(?i:NEXT_STEP)[*_`]*\s*:",
    re.MULTILINE,
)

Contract = Callable[[StepContext, Outcome, Reply], Iterable[str]]


class Rules:
    """The rules of one mailbox."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers

        self._by_step: dict[str, Contract] = {
            FIRST_STEP: self.serial_contract,
            CHECK: self.lookup_contract,
            TICKET: self.ticket_contract,
            **dict.fromkeys(MAILS, self.mail_contract),
        }

    def contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """The rules of a step at every autonomy level; other steps have those about the customer only."""
        return self._by_step.get(ctx.step.name, self.any_contract)(ctx, outcome, reply)

    def any_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """The rules of any step: mails go to the customer, tickets are for the customer's device."""
        for effect in map(Effect.of, outcome.effects):
            if effect.tool == "send_email":
                yield from self._mail(ctx, effect)
            elif effect.tool == "create_ticket":
                yield from self._ticket(ctx, effect)

    def validators(self) -> dict[str, Callable[[Mapping[str, Any], Proposal], Verdict]]:
        """The collaborator's checks, by the names used in step files."""
        return {"serial_agrees": self.serial_agrees}

    # -- 01 -------------------------------------------------------------------------------------------------

    def serial_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """SERIAL is given with 02 and not with 03d, has the form of a serial number and is in the mail."""
        serial = outcome.set.get("serial_number") if "SERIAL" in reply.outputs else None
        if reply.next_step == CHECK and not serial:
            yield "SERIAL is missing; it is needed to go on to 02-check-warranty."
        if reply.next_step == ASK and serial:
            yield "SERIAL is given, so the customer need not be asked for it."
        if outcome.effects:
            yield "This step writes to nobody and opens nothing."
        if serial and not stands_in(mail_of(ctx.data), str(serial)):
            yield "SERIAL does not stand in the mail as a serial number. Copy it exactly, or leave it out."

    def serial_agrees(self, inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
        """The serial is the one code finds, unless the mail has several; it goes where code sends it."""
        mail = mail_of({"email": inputs.get("email")})
        extraction, scope = self.handlers.read(mail)
        output = proposal.output if isinstance(proposal.output, Mapping) else {}
        form = isinstance(output.get("numbers"), Mapping)
        serial = (
            next(iter(output["numbers"].get(SERIAL) or ()), None) if form else output.get("serial_number")
        )
        away = output.get("about") != DEVICE if form else proposal.next == REDIRECT
        reasons: list[str] = []
        if not extraction.ambiguous and serial_key(serial or "") != serial_key(
            extraction.serial_number or ""
        ):
            reasons.append("/serial_number is not the one the mail names")
        if away != (scope.kind != IN_SCOPE):
            where = "sends a mail away that is for us" if away else "keeps a mail that is for others"
            reasons.append(f"/next_state {where}")
        return Verdict(not reasons, reasons)

    # -- 02, 03a --------------------------------------------------------------------------------------------

    def lookup_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """The registry was queried for the run's serial number only, and its answer was understood.

        The step file requires the call, because an agent that does not query the registry guesses.
        """
        serial = ctx.data.get("serial_number")
        serials = [
            line["args"].get("serial_number") for line in ctx.looked if line["tool"] == "check_warranty"
        ]
        if any(serial_key(str(asked_serial)) != serial_key(serial or "") for asked_serial in serials):
            yield "check_warranty was called with another serial number than the one you were given."
        if reply.form is not None and reply.form.get("status") != registry_status(
            outcome.set.get("warranty_data")
        ):
            yield "status is not what check_warranty answered."
        if outcome.effects:
            yield "This step writes to nobody and opens nothing."

    def ticket_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """One ticket, for this device and this customer; no mail."""
        tickets = [Effect.of(effect) for effect in outcome.effects]
        if [effect.tool for effect in tickets] != ["create_ticket"]:
            yield "create_ticket is to be called exactly once, and nothing else."
            return
        yield from self._ticket(ctx, tickets[0])

    def _ticket(self, ctx: StepContext, effect: Effect) -> Iterable[str]:
        args = effect.args
        if serial_key(str(args.get("serial_number"))) != serial_key(ctx.data.get("serial_number") or ""):
            yield "create_ticket: serial_number is not the one you were given."
        if str(args.get("customer_email", "")).casefold() != mail_of(ctx.data).reply_address.casefold():
            yield "create_ticket: customer_email is not the customer's address."

    # -- the mails ------------------------------------------------------------------------------------------

    def mail_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """One mail to the customer, in the customer's language, with the required facts and no others."""
        mails = [Effect.of(effect) for effect in outcome.effects]
        if self.handlers.keeps_silent(ctx.step.name, ctx.data):
            if mails:
                yield "This mail gets no answer. Call no function."
            return
        if [effect.tool for effect in mails] != ["send_email"]:
            yield "send_email is to be called exactly once, and nothing else."
            return
        yield from self._mail(ctx, mails[0])

    def _mail(self, ctx: StepContext, effect: Effect) -> Iterable[str]:
        mail, args, data = mail_of(ctx.data), effect.args, ctx.data
        if str(args.get("to", "")).casefold() != mail.reply_address.casefold():
            yield "send_email: `to` is not the customer's address."
        if args.get("subject") != self.handlers.subject(data, mail):
            yield "send_email: `subject` is not the subject of an answer to this mail."
        body = str(args.get("body", ""))
        if not SHORTEST_BODY <= len(body.strip()) <= LONGEST_BODY:
            yield f"The body has to have {SHORTEST_BODY} to {LONGEST_BODY} characters."
        yield from map(str, self.findings(ctx.step.name, data, body))

    def findings(self, step: str, data: Mapping[str, Any], body: str) -> tuple[Finding, ...]:
        """The rules of this mailbox that a body breaks in a step, checked on the text that is sent.

        The playbook checks before that every form in it is explained by `mail_facts`. The subject is not the
        writer's: it is that of the mail answered.
        """
        text = rendered(body)
        broken = missing(text, self._required(step, data), self.handlers.language(data))
        if match := _PROTOCOL.search(text):
            broken += (Finding("inner_words", f"body, line {text.count(chr(10), 0, match.start()) + 1}"),)
        if step == ASK and serial_shaped(text):
            broken += (Finding("digits", "body: anything that looks like a serial number"),)
        return broken

    def _required(self, step: str, data: Mapping[str, Any]) -> Iterable[Required]:
        """The facts that the mail of a step has to name."""
        serial, expires = data.get("serial_number"), day_of((data.get("warranty_data") or {}).get("expires"))
        used = step == CONFIRM or (step == REDIRECT and data.get("warranty_data"))
        named = step in (NOT_FOUND, EXPIRED) or (used and AMBIGUOUS in (data.get("flags") or ()))
        if named and serial:
            yield Required("the serial number", identifier=serial)
        if step in (EXPIRED, CONFIRM) and expires:
            yield Required("the day on which the warranty ends or ended, with its year", day=expires)
        if step == REDIRECT:
            contacts = tuple(contact.text for contact in self.handlers.settings.warranty.contacts)
            yield Required("a contact", contacts=contacts)
        if step == CONFIRM:
            yield Required("the ticket's number", identifier=str(data.get("ticket_id") or ""))


def stands_in(mail: MailView, serial: str) -> bool:
    """Whether a mail contains exactly this token, and the token can be a serial number."""
    key = serial_key(serial)
    if not tokens.fits(serial) or not key:
        return False
    for line in tokens.readable(mail.text).split("\n"):
        words = tokens.words_of(line)
        for place, word in enumerate(words):
            # "SN 48213" may be returned as SN48213, and vice versa.
            pair = (
                words[place - 1].text + word.text if place and words[place - 1].tight == "sn" else word.text
            )
            if key in (serial_key(word.text), serial_key(pair)) and not tokens.never(word):
                return True
    return False


MAIL_RULES = CompareRules(harmless=("/numbers/order", "/numbers/phone", "/numbers/model", "/numbers/other"))
"""What a number is that is no serial number decides nothing."""
TICKET_RULES = CompareRules(ignore=("/ticket_id", "/effects/*/args/issue_description"))
"""Two tickets for the same device may differ in their description only; the id depends on the ticket."""
