"""The ordinary code of the steps: read the mail, open the ticket, answer from a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from detent.adapters.mail.reply import reply_subject
from detent.apps.warranty.domain.language import language_of
from detent.apps.warranty.domain.numbers import numbers_in
from detent.apps.warranty.domain.scope import (
    NO_DESCRIPTION,
    Scope,
    description_missing,
    issue_description,
    scope_of,
)
from detent.apps.warranty.domain.serials import SerialExtraction, extract, serial_key
from detent.apps.warranty.domain.words import Words
from detent.apps.warranty.mail_data import MailView, TextPart, customer_name, mail_of, with_flags
from detent.apps.warranty.settings import WarrantySettings
from detent.authoring.templates import ABSENT, TemplateError, Values, values_of
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.flows.playbook.forms import Candidate
from detent.flows.playbook.instruction import DEGRADED, DONE, FAILED
from detent.flows.playbook.playbook import Playbook
from detent.flows.playbook.prompting import Said
from detent.kernel.plain import encode

CHECK, ASK, REDIRECT = "02-check-warranty", "03d-request-serial", "04-out-of-scope"
CONFIRM = "05-send-confirmation"

AMBIGUOUS = "ambiguous_serial"
"""Flag of a run whose mail names several serial numbers."""
CHECK_FAILED = "warranty_check_failed"
"""Flag of a run in which the registry could not be queried."""

IN_SCOPE = "in_scope"
DEVICE, SERIAL = "device", "serial"
"""Values in the form of the first step: the topic of mails for this mailbox, the label of serial numbers."""
_ABOUT = {IN_SCOPE: DEVICE, "spam": "advertising"}
"""By scope of a mail, what the form of the first step says that it is about."""
LANGUAGES = {"en": "English", "pl": "Polish"}
READ_AT_ONCE = 16
"""Number of mails whose reading is cached: about as many as are under way."""
LONGEST_SHOWN, LONGEST_BELOW = 4000, 1500
"""Characters of a mail, and of each quoted or forwarded text below it, that an agent is shown."""


class Handlers:
    """The handlers of one mailbox, by the names the step files use."""

    def __init__(self, settings: WarrantySettings, words: Words) -> None:
        self.settings = settings
        self.words = words
        self.playbook: Playbook | None = None
        """Set once the step files are read; the templates are in it."""
        self._reading = lru_cache(maxsize=READ_AT_ONCE)(self._read)

    def by_name(self) -> dict[str, Callable[..., Any]]:
        """The handlers by name, with the functions that find candidates and conclude from forms."""
        return {
            "extract_serial": self.extract_serial,
            "open_ticket": self.open_ticket,
            "answer_by_mail": self.answer_by_mail,
            "numbers_in_mail": self.numbers_in_mail,
            "stated_about_mail": self.stated_about_mail,
            "stated_about_warranty": self.stated_about_warranty,
            "form_of_mail": self.form_of_mail,
            "form_of_warranty": self.form_of_warranty,
        }

    def read(self, mail: MailView) -> tuple[SerialExtraction, Scope]:
        """The serial numbers and the scope of a mail; cached."""
        return self._reading(mail.subject, mail.parts)

    def _read(self, subject: str, parts: tuple[TextPart, ...]) -> tuple[SerialExtraction, Scope]:
        return extract(parts, subject), scope_of(subject, parts, self.words)

    # -- 01 -------------------------------------------------------------------------------------------------

    async def extract_serial(self, ctx: StepContext) -> Outcome:
        """State what the mail is about and which serial number it names.

        The conditions on the shipped edges say the same; step files of a project may be older than they.
        """
        found, facts = self.facts(mail_of(ctx.data))
        description = facts.pop("issue_description")
        facts["issue_description"] = ctx.keep(encode(description))
        if facts["scope"]["kind"] != IN_SCOPE:
            to = REDIRECT
        else:
            to = CHECK if facts["serial_number"] else ASK
        flags = [AMBIGUOUS] if found.ambiguous else []
        return Outcome(to, set=facts, append=with_flags(ctx, flags))

    def numbers_in_mail(self, ctx: StepContext) -> list[Candidate]:
        """The numbers of the mail that could be serial numbers, for an agent to say which are."""
        mail = mail_of(ctx.data)
        return [Candidate(*number) for number in numbers_in(mail.parts, mail.subject)]

    def stated_about_mail(self, ctx: StepContext, said: Said) -> dict[str, Any]:
        """What an agent stated about the mail, in a form or in lines, as data."""
        if said.reply.form is not None:
            serials = said["numbers"].get(SERIAL) or [None]
            changes: dict[str, Any] = {"serial_number": serials[0]}
            away = said["about"] != DEVICE
        else:
            changes, away = dict(said), said.next_step == REDIRECT
        return self._scoped(ctx, changes, away, self.read(mail_of(ctx.data))[1])

    def stated_about_warranty(self, ctx: StepContext, said: Said) -> dict[str, Any]:
        """Nothing: what the registry answered is the data, whatever an agent makes of it."""
        return {}

    def form_of_mail(self, ctx: StepContext, outcome: Outcome) -> dict[str, Any]:
        """The form of the first step as an agent fills it in that reads the mail as code does."""
        scope, serial = outcome.set["scope"]["kind"], outcome.set.get("serial_number")
        serials = {serial_key(serial)} if serial else set()
        numbers = {number.text: number for number in self.numbers_in_mail(ctx)}
        return {
            "about": _ABOUT.get(scope, "administration"),
            "numbers": {text: SERIAL if serial_key(text) in serials else "other" for text in numbers},
        }

    def form_of_warranty(self, ctx: StepContext, outcome: Outcome) -> dict[str, Any]:
        """The form of the second step: what the registry answered."""
        return {"status": registry_status(outcome.set.get("warranty_data"))}

    def decided(self, ctx: StepContext, outcome: Outcome) -> Outcome:
        """An outcome that names only the next step, with the scope that follows from it."""
        _, scope = self.read(mail_of(ctx.data))
        return outcome._replace(set=self._scoped(ctx, outcome.set, outcome.next == REDIRECT, scope))

    def _scoped(
        self, ctx: StepContext, changes: Mapping[str, Any], away: bool, scope: Scope
    ) -> dict[str, Any]:
        """Changes with the scope that follows from them; the description is kept outside the journal.

        A redirected mail is about another topic; any other mail is in scope.
        """
        merged = {**changes, "scope": {"kind": scope.kind, "topic": scope.topic}}
        if away and scope.kind == IN_SCOPE:
            merged["scope"] = {"kind": "topic", "topic": None}
        elif not away and scope.kind != IN_SCOPE:
            merged["scope"] = {"kind": IN_SCOPE, "topic": None}
        description = merged.get("issue_description")
        if isinstance(description, str):
            language = self.language(ctx.data)
            merged["issue_description"] = ctx.keep(encode(issue_description(description, language)))
        return merged

    def language(self, data: Mapping[str, Any]) -> str:
        """The language in which a mail is answered."""
        if data.get("language"):
            return str(data["language"])
        mail = mail_of(data)
        return language_of(mail.parts, mail.subject, self.settings.warranty.default_language)

    def facts(self, mail: MailView) -> tuple[SerialExtraction, dict[str, Any]]:
        """The facts that code finds in a mail."""
        extraction, scope = self.read(mail)
        language = language_of(mail.parts, mail.subject, self.settings.warranty.default_language)
        missing = description_missing(mail.subject, mail.parts, self.words, scope)
        return extraction, {
            "serial_number": extraction.serial_number,
            "serials": list(extraction.all_detected_serials),
            "issue_description": NO_DESCRIPTION[language]
            if missing
            else issue_description(mail.newest, language),
            "description_missing": missing,
            "scope": {"kind": scope.kind, "topic": scope.topic},
            "language": language,
        }

    # -- 03a ------------------------------------------------------------------------------------------------

    async def open_ticket(self, ctx: StepContext) -> Outcome:
        """Ask for one ticket; when it is refused for good, the run is degraded and confirms nothing."""
        if ctx.failure is not None:
            return Outcome(DEGRADED, reason="ticket_failed")
        data, mail = ctx.data, mail_of(ctx.data)
        serial = data.get("serial_number") or ""
        covered = data.get("warranty_data") or {}
        device = covered.get("device_name")
        ticket = ctx.propose(
            "create_ticket",
            serial_number=serial,
            customer_email=mail.reply_address,
            issue_description=data.get("issue_description") or "",
            priority="high" if "safety" in self.read(mail)[1].hits else "normal",
            category="warranty-repair",
            warranty_status=covered.get("status"),
            subject=f"{device}: {serial}" if device else serial,
        )
        return Outcome(CONFIRM, set={"ticket_id": ticket["ticket_id"]})

    # -- the mails ------------------------------------------------------------------------------------------

    async def answer_by_mail(self, ctx: StepContext) -> Outcome:
        """Answer from the step's template; a mail that is refused for good fails the run."""
        if ctx.failure is not None:
            return Outcome(FAILED, reason="send_failed")
        step, mail = ctx.step.name, mail_of(ctx.data)
        if self.keeps_silent(step, ctx.data):
            return Outcome(DONE, reason="spam, not answered")
        flags = [CHECK_FAILED] if step == REDIRECT and _check_failed(ctx.data) else []
        sent = ctx.propose(
            "send_email",
            to=mail.reply_address,
            subject=self.subject(ctx.data, mail),
            body=self.body(step, ctx.data),
        )
        return Outcome(DONE, set={"reply_message_id": sent["message_id"]}, append=with_flags(ctx, flags))

    def keeps_silent(self, step: str, data: Mapping[str, Any]) -> bool:
        """Whether a mail gets no answer: spam, if the settings say so."""
        spam = (data.get("scope") or {}).get("kind") == "spam" and not _check_failed(data)
        return step == REDIRECT and spam and not self.settings.warranty.reply_to_spam

    def usual_arguments(self, ctx: StepContext) -> dict[str, Any]:
        """The arguments that every mail of a run has, for any step."""
        mail = mail_of(ctx.data)
        return {"to": mail.reply_address, "subject": self.subject(ctx.data, mail)}

    def subject(self, data: Mapping[str, Any], mail: MailView) -> str:
        """The subject of every answer to a mail."""
        return reply_subject(mail.subject, data.get("language") or self.settings.warranty.default_language)

    def body(self, step: str, data: Mapping[str, Any]) -> str:
        """A step's template, filled."""
        assert self.playbook is not None
        variants = self.playbook.steps[step].variant
        return self.playbook.templates.render(step, variants, data, self.values(data))

    def own_text(self, step: str, data: Mapping[str, Any]) -> str | None:
        """The text that code would send in a step, from the template of its name or of its effects."""
        file = self.playbook.steps.get(step) if self.playbook is not None else None
        if file is None or self.playbook is None:
            return None
        templates = self.playbook.templates
        named = [name for effect in file.effects for name in effect.templates.values()] or [step]
        try:
            return "\n\n".join(
                templates.render(name, file.variant, data, self.values(data))
                for name in named
                if templates.base(name) is not None
            )
        except TemplateError:  # code could not write it either
            return None

    def values(self, data: Mapping[str, Any]) -> Values:
        """The values templates may insert: the run's data, then the settings."""
        own, from_settings = values_of(data), self.said()

        def value(key: str) -> Any:
            own_value = own(key)
            return (
                from_settings[key](data)
                if (own_value is ABSENT or own_value is None) and key in from_settings
                else own_value
            )

        return value

    def said(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """The values every template gets from the settings."""
        words = self.settings.warranty
        return {
            "language": self.language,
            "customer_name": lambda data: customer_name(mail_of(data)),
            "contact": lambda data: words.contact((data.get("scope") or {}).get("topic")),
            "response_days": lambda data: words.response_days,
            "repair_warranty_months": lambda data: words.repair_warranty_months,
        }


def shown() -> dict[str, Callable[[Any], Any]]:
    """How the data of a step is shown to agents."""
    return {"email": letter, "language": lambda code: LANGUAGES.get(code, code)}


def letter(email: Any) -> str:
    """A mail as text, the newest part first, without addresses and headers."""
    if not isinstance(email, Mapping):
        return str(email)
    lines = [f"Subject: {email.get('subject') or '(none)'}", ""]
    titles = {"quoted": "Quoted below:", "forwarded": "Passed on:"}
    for part in email.get("parts") or ():
        title = titles.get(part["kind"])
        longest = LONGEST_SHOWN if title is None else LONGEST_BELOW
        text = part["text"].strip()
        lines += [*(["", title] if title else []), text if len(text) <= longest else f"{text[:longest]} …"]
    if names := [
        attachment.get("name") or attachment.get("type") for attachment in email.get("attachments") or ()
    ]:
        lines += ["", f"Attached: {', '.join(map(str, names))}"]
    return "\n".join(lines).rstrip()


def _check_failed(data: Mapping[str, Any]) -> bool:
    return bool((data.get("warranty_data") or {}).get("error"))


def registry_status(data: Any) -> str:
    """The status in the registry's answer, as a value of the form."""
    answer = data if isinstance(data, Mapping) else {}
    return "error" if answer.get("error") else str(answer.get("status"))
