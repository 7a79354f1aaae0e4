"""What an agent's answer must keep at every level, and what passes the collaborator's check.

An agent may find better words. It may not choose another customer, another ticket, another serial number, or
a branch the registry's answer does not demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from detent.apps.warranty.domain import tokens
from detent.apps.warranty.domain.language import language_of
from detent.apps.warranty.domain.serials import extract, serial_key, serial_shaped
from detent.apps.warranty.handlers import AMBIGUOUS, ASK, CHECK, CONFIRM, DEVICE, REDIRECT, SERIAL, Handlers
from detent.apps.warranty.mail_data import MailView, TextPart, mail_of
from detent.apps.warranty.settings import FIRST_STEP
from detent.dispatch.equivalence import CompareRules
from detent.dispatch.proposal import Proposal, Verdict
from detent.engine.context import StepContext
from detent.engine.outcome import Effect, Outcome
from detent.flows.playbook.protocol import Reply

TICKET, NOT_FOUND, EXPIRED = "03a-valid-warranty", "03b-device-not-found", "03c-expired-warranty"
MAILS = (NOT_FOUND, EXPIRED, ASK, REDIRECT, CONFIRM)

SHORTEST_BODY, LONGEST_BODY = 40, 4000
FEWEST_DIGITS = 7
"""Digits of the shortest telephone number."""
_TICKET_ID = re.compile(r"\bTKT[-\u2010-\u2015]?\d+\b", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<![^\s<>()\[\]\",;:])@*+[^\s<>()\[\]\",;:@]++@[^\s<>()\[\]\",;:]++")
_URL = re.compile(
    r"""(?ix)
      \b [a-z][a-z0-9+.-]{1,20}://\S+
    | \b www\.\S+
    | (?<![\w@.-]) (?:[\w-]{2,63}\.)+ (?:
        com|net|org|info|biz|eu|pl|de|uk|fr|it|es|cz|sk|ru|cn|us|io|co|me|ly|gg|tk|xyz|app|dev|shop|site|online|top
        |link|click|live|store|tech|cloud|page|example|test|invalid
      ) (?![\w.-]*@) \b (?:/\S*)?
    """
)
_PHONE = re.compile(r"(?<![\w.-])\(?\+?\(?\d(?:[ \t\u00a0()./\u2010-\u2015-]{0,3}\d){6,}(?![\w-])")
_DATE = re.compile(r"(?<!\d)(?:\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{4})(?!\d)")
_PROTOCOL = re.compile(
    r"^(?:[^\S\n]|[>|*_`])*+(?:NEXT_STEP|SERIAL|REASON|DESCRIPTION|BODY)[*_`]*\s*:|NEXT_STEP\s*:",
    re.IGNORECASE | re.MULTILINE,
)

_PLACEHOLDER = re.compile(r"\[[^\W\d_][^\]\n]{0,40}\]|\{\{|<[^\W\d_][\w ]{1,30}>")

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
        """What holds at every level, of whichever step; steps of other people's have the customer's part."""
        return self._by_step.get(ctx.step.name, self.any_contract)(ctx, outcome, reply)

    def any_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """Whatever a step is for: mails go to the customer, tickets are for the customer's device."""
        for effect in map(Effect.of, outcome.effects):
            if effect.tool == "send_email":
                yield from self._mail(ctx, effect)
            elif effect.tool == "create_ticket":
                yield from self._ticket(ctx, effect)

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
        if outcome.effects:
            yield "This step writes to nobody and opens nothing."
        if serial and not stands_in(mail_of(ctx.data), str(serial)):
            yield "SERIAL does not stand in the mail as a serial number. Copy it exactly, or leave it out."

    def serial_agrees(self, inputs: Mapping[str, Any], proposal: Proposal) -> Verdict:
        """The serial is the one code finds, unless the mail holds several; a fault is not sent away."""
        mail = mail_of({"email": inputs.get("email")})
        found, scope = self.handlers.read(mail)
        output = proposal.output if isinstance(proposal.output, Mapping) else {}
        form = isinstance(output.get("numbers"), Mapping)
        said = next(iter(output["numbers"].get(SERIAL) or ()), None) if form else output.get("serial_number")
        away = output.get("about") != DEVICE if form else proposal.next == REDIRECT
        reasons: list[str] = []
        if not found.ambiguous and serial_key(said or "") != serial_key(found.serial_number or ""):
            reasons.append("/serial_number is not the one the mail names")
        hits = scope.hits
        wanted = hits.get("fault") or hits.get("safety") or hits.get("warranty")
        if away and found.serial_number and wanted:
            reasons.append("/next_state sends a device in need of service away")
        return Verdict(not reasons, reasons)

    # -- 02, 03a --------------------------------------------------------------------------------------------

    def lookup_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """The registry was asked about the run's serial number and no other, and its answer understood.

        An agent that does not ask it has only guessed: the step file makes it a function that must be called.
        """
        serial = ctx.data.get("serial_number")
        asked = [line["args"].get("serial_number") for line in ctx.looked if line["tool"] == "check_warranty"]
        if any(serial_key(str(one)) != serial_key(serial or "") for one in asked):
            yield "check_warranty was called with another serial number than the one you were given."
        if reply.form is not None and reply.form.get("status") != _answered(outcome.set.get("warranty_data")):
            yield "status is not what check_warranty answered."
        if outcome.effects:
            yield "This step writes to nobody and opens nothing."

    def ticket_contract(self, ctx: StepContext, outcome: Outcome, reply: Reply) -> Iterable[str]:
        """One ticket, for this device and this customer; no mail."""
        tickets = [Effect.of(one) for one in outcome.effects]
        if [one.tool for one in tickets] != ["create_ticket"]:
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
        """One mail, to the customer, in the customer's language, saying what it must and nothing foreign."""
        mails = [Effect.of(one) for one in outcome.effects]
        if self.handlers.keeps_silent(ctx.step.name, ctx.data):
            if mails:
                yield "This mail gets no answer. Call no function."
            return
        if [one.tool for one in mails] != ["send_email"]:
            yield "send_email is to be called exactly once, and nothing else."
            return
        yield from self._mail(ctx, mails[0])
        yield from self._needed(ctx.step.name, str(mails[0].args.get("body", "")), ctx.data)

    def _mail(self, ctx: StepContext, effect: Effect) -> Iterable[str]:
        mail, args, data = mail_of(ctx.data), effect.args, ctx.data
        if str(args.get("to", "")).casefold() != mail.reply_address.casefold():
            yield "send_email: `to` is not the customer's address."
        if args.get("subject") != self.handlers.subject(data, mail):
            yield "send_email: `subject` is not the subject of an answer to this mail."
        yield from self._words(str(args.get("body", "")), data, mail)

    def _words(self, body: str, data: Mapping[str, Any], mail: MailView) -> Iterable[str]:
        if not SHORTEST_BODY <= len(body.strip()) <= LONGEST_BODY:
            yield f"The body has to have {SHORTEST_BODY} to {LONGEST_BODY} characters."
        wanted = data.get("language") or self.handlers.settings.warranty.default_language
        if language_of([TextPart("newest", body)], "", wanted) != wanted:
            yield f"The body has to be in the customer's language ({wanted})."
        if _PLACEHOLDER.search(body):
            yield "The body may hold nothing in brackets that is still to be filled in."
        if _PROTOCOL.search(body):
            yield "The body may not hold a protocol line."
        ours = "\n".join(contact.text for contact in self.handlers.settings.warranty.contacts)
        own = {mail.reply_address.casefold(), (mail.from_address or "").casefold()}
        if _foreign(_ADDRESS, body, ours, own):
            yield "The body names an address that is neither the customer's nor a contact of ours."
        if _foreign(_URL, _ADDRESS.sub(" ", body), ours):
            yield "The body may not hold a link that is not a contact of ours."
        if self._foreign_phone(body, ours, data):
            yield "The body may not hold a telephone number that is not a contact of ours."
        serial = serial_key(data.get("serial_number") or "")
        if any(serial_key(one) != serial for one in extract([TextPart("newest", body)]).all_detected_serials):
            yield "The body may not show a serial number other than the customer's."

    @staticmethod
    def _foreign_phone(body: str, ours: str, data: Mapping[str, Any]) -> bool:
        """A telephone number that is none of ours; the serial number, the ticket's and days are none."""
        for known in (*ours.split("\n"), data.get("serial_number"), data.get("ticket_id")):
            if known:
                body = body.replace(str(known), "\n")
        allowed = {_digits(one) for one in _PHONE.findall(_DATE.sub("\n", ours))}
        found = (_digits(one) for one in _PHONE.findall(_DATE.sub("\n", body)))
        return any(len(one) >= FEWEST_DIGITS and one not in allowed for one in found)

    def _needed(self, step: str, body: str, data: Mapping[str, Any]) -> Iterable[str]:
        serial, expires = data.get("serial_number"), (data.get("warranty_data") or {}).get("expires")
        used = step == CONFIRM or (step == REDIRECT and data.get("warranty_data"))
        named = step in (NOT_FOUND, EXPIRED) or (used and AMBIGUOUS in (data.get("flags") or ()))
        if named and serial and serial not in body:
            yield "The body has to name the serial number."
        if step in (EXPIRED, CONFIRM) and expires and expires not in body:
            yield "The body has to name the day on which the warranty ends or ended, as it was given."
        if step == ASK and serial_shaped(body):
            yield "The body may not show anything that looks like a serial number."
        if step == REDIRECT:
            contacts = [contact.text for contact in self.handlers.settings.warranty.contacts]
            if not any(contact in body for contact in contacts):
                yield "The body has to name the contact."
        ticket = str(data.get("ticket_id") or "")
        if step == CONFIRM and not (ticket and re.search(rf"(?<!\w){re.escape(ticket)}(?!\w)", body)):
            yield "The body has to name the ticket's number."
        if any(one.casefold() != ticket.casefold() for one in _TICKET_ID.findall(body)):
            yield "The body may name no ticket's number but the one that was given."


def _answered(data: Any) -> str:
    """What the registry said, in the words of the form."""
    found = data if isinstance(data, Mapping) else {}
    return "error" if found.get("error") else str(found.get("status"))


def stands_in(mail: MailView, serial: str) -> bool:
    """Whether a mail holds this very token, and it can be a serial number at all."""
    key = serial_key(serial)
    if not tokens.fits(serial) or not key:
        return False
    for line in tokens.readable(mail.text).split("\n"):
        words = tokens.words_of(line)
        for place, word in enumerate(words):
            # "SN 48213" may be given back as SN48213, and the other way round.
            pair = (
                words[place - 1].text + word.text if place and words[place - 1].tight == "sn" else word.text
            )
            if key in (serial_key(word.text), serial_key(pair)) and not tokens.never(word):
                return True
    return False


def _foreign(kind: re.Pattern[str], body: str, ours: str, own: Iterable[str] = ()) -> bool:
    """Whether a text holds something of a kind that is neither in our contacts nor the customer's own."""
    allowed = {_bare(one) for one in (*own, *kind.findall(ours))}
    return any(_bare(one) not in allowed for one in kind.findall(body))


def _bare(text: str) -> str:
    return text.strip(" .,;:!?'\"<>()[]*_`").casefold()


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


TICKET_RULES = CompareRules(ignore=("/ticket_id", "/effects/*/args/issue_description"))
"""Between two tickets for the same device only the words may differ; which ticket it is follows from them."""
