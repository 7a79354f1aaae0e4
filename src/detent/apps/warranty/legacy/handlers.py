"""The handlers of legacy mode: look up, open a ticket and answer, all in one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.apps.warranty.domain.words import STARTING
from detent.apps.warranty.flow import shipped
from detent.apps.warranty.handlers import Handlers
from detent.apps.warranty.legacy.detect_scenario import (
    CERTAIN,
    DEGRADED,
    INVALID,
    MISSING,
    OUT,
    VALID,
    Answer,
    Ask,
    by_rules,
    from_answer,
    scenario_in,
    without_asking,
)
from detent.apps.warranty.mail_data import MailView, mail_of, with_flags
from detent.apps.warranty.settings import WarrantySettings
from detent.authoring.templates import Values
from detent.engine import logger
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome, Receipt, Text
from detent.engine.ports import TapeError
from detent.flows.playbook import instruction
from detent.flows.playbook.functions import look_up
from detent.flows.playbook.instruction import DONE, FAILED, Variant
from detent.flows.playbook.templates import TemplateSet
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.plain import encode
from detent.kernel.run_config import FORCE

DETECT, PROCESS = "detect-scenario", "process-scenario"
REDIRECTED = instruction.DEGRADED
"""The end of a run whose mail is passed to a person."""

TEMPLATES = {"expired": "03c-expired-warranty", "not_found": "03b-device-not-found"}
_BOTH = (Variant("both", {"description_missing": True}),)
_TICKET = "\x00ticket\x00"
"""Placeholder of the ticket's number until the ticket is open."""


class LegacyHandlers:
    """The two steps of legacy mode."""

    def __init__(self, settings: WarrantySettings, handlers: Handlers, ask: Ask | None = None) -> None:
        self.settings = settings
        # Legacy mode is frozen: its words are the starting lists and those of the settings.
        self.handlers = Handlers(settings, STARTING.extended(settings.warranty.words))
        self.handlers.playbook = handlers.playbook
        self.ask = ask
        """Decides mails the rules are unsure about; None: no model is asked."""
        own = settings.path(settings.playbook.templates_dir)
        self.templates = TemplateSet([shipped() / "templates", own], settings.warranty.default_language)
        """The templates of the steps. The shipped ones are always included: legacy mode has to work even if
        the project's own files are the problem."""

    # -- detect-scenario ------------------------------------------------------------------------------------

    async def detect(self, ctx: StepContext) -> Outcome:
        """Find out which scenario the mail is."""
        await ctx.unfold()
        mail = mail_of(ctx.data)
        found, facts = self.handlers.facts(mail)
        facts["issue_description"] = ctx.keep(encode(facts["issue_description"]))
        detected = by_rules(mail, self.handlers.words)
        if detected.confidence < CERTAIN:
            answer = None
            if self.ask is not None and not ctx.config.get(FORCE):
                answer = await self._answer(ctx, mail, self.ask)
            if answer is None:
                detected = without_asking(mail, detected)
            else:
                detected = from_answer(detected, answer["scenario"])
        flags = ["ambiguous_serial"] if found.ambiguous else []
        return Outcome(
            PROCESS,
            set={**facts, "detected": detected.to_plain(), "scenario": detected.scenario_name},
            append=with_flags(ctx, flags),
            reason=detected.scenario_name,
        )

    async def _answer(self, ctx: StepContext, mail: MailView, ask: Ask) -> dict[str, Any] | None:
        """The model's answer, paid for once; None without a model."""

        async def work() -> dict[str, Any] | None:
            try:
                answer = await ask(mail)
            except TapeError:
                raise
            except Exception as error:
                logger.warning("scenario.unanswered", run_id=ctx.run_id, error=type(error).__name__)
                answer = Answer(None)
            if answer is None:
                return None
            # The model's own text is not stored, only a valid scenario.
            scenario = scenario_in(answer.scenario)
            return {"scenario": scenario, "spend": answer.spend.to_plain()}

        answer: dict[str, Any] | None = await ctx.once("scenario", work, spend=_spend)
        return answer

    # -- process-scenario -----------------------------------------------------------------------------------

    async def process(self, ctx: StepContext) -> Outcome:
        """Handle the whole scenario."""
        await ctx.unfold()
        failure = ctx.failure
        if failure is not None:
            if failure["function"] == "create_ticket":
                return self._redirected(ctx, "ticket_failed")
            return Outcome(FAILED, reason="send_failed")
        scenario = ctx.data.get("scenario")
        if scenario in (VALID, INVALID) and ctx.data.get("serial_number"):
            return await self._looked_up(ctx)
        if scenario == OUT:
            return self._out_of_scope(ctx)
        if scenario in (VALID, INVALID, MISSING):
            return self._answered(ctx, MISSING, ctx.data)
        return self._redirected(ctx, "not_understood")

    async def _looked_up(self, ctx: StepContext) -> Outcome:
        """Query the registry first, unless its answer is given; the answer decides the scenario."""
        answer = ctx.data.get("warranty_data")
        if answer is None:
            answer = await look_up(ctx, "check_warranty", serial_number=ctx.data["serial_number"])
        data = {**ctx.data, "warranty_data": answer}
        if "error" in answer:
            return self._redirected(ctx, "check_failed", data, ["warranty_check_failed"])
        if answer.get("status") != "valid":
            return self._answered(ctx, INVALID, data)
        return self._covered(ctx, data)

    def _covered(self, ctx: StepContext, data: Mapping[str, Any]) -> Outcome:
        mail, serial, covered = mail_of(data), data["serial_number"], data["warranty_data"]
        device = covered.get("device_name")
        ticket = ctx.propose(
            "create_ticket",
            serial_number=serial,
            customer_email=mail.reply_address,
            issue_description=data.get("issue_description") or "",
            priority="high" if "safety" in self.handlers.read(mail)[1].hits else "normal",
            category="warranty-repair",
            warranty_status=covered.get("status"),
            subject=f"{device}: {serial}" if device else serial,
            source_message_id=mail.message_id,
        )
        return self._answered(ctx, VALID, data, ticket["ticket_id"])

    def _out_of_scope(self, ctx: StepContext) -> Outcome:
        spam = (ctx.data.get("detected") or {}).get("detected_intent") == "spam"
        if spam and not self.settings.warranty.reply_to_spam:
            return Outcome(DONE, reason="spam, not answered")
        return self._answered(ctx, OUT, ctx.data)

    def _answered(
        self, ctx: StepContext, scenario: str, data: Mapping[str, Any], ticket: Receipt | None = None
    ) -> Outcome:
        """One mail to the customer, and the end."""
        mail = mail_of(data)
        body = self.body(scenario, data, _TICKET if ticket is not None else None)
        text: Any = body if ticket is None else with_receipt(body, _TICKET, ticket)
        sent = ctx.propose(
            "send_email", to=mail.reply_address, subject=self.handlers.subject(data, mail), body=text
        )
        changes: dict[str, Any] = {"scenario": scenario, "reply_message_id": sent["message_id"]}
        if data.get("warranty_data") is not None:
            changes["warranty_data"] = data["warranty_data"]
        if ticket is not None:
            changes["ticket_id"] = ticket
        return Outcome(DONE, set=changes, reason="mail sent")

    def _redirected(
        self,
        ctx: StepContext,
        reason: str,
        data: Mapping[str, Any] | None = None,
        flags: list[str] | None = None,
    ) -> Outcome:
        """One safe mail that promises a reply by a person, and an end that needs attention."""
        data = ctx.data if data is None else data
        mail = mail_of(data)
        sent = ctx.propose(
            "send_email",
            to=mail.reply_address,
            subject=self.handlers.subject(data, mail),
            body=self.body(DEGRADED, data),
            kind="redirect",
        )
        changes: dict[str, Any] = {"scenario": DEGRADED, "reply_message_id": sent["message_id"]}
        if data.get("warranty_data") is not None:
            changes["warranty_data"] = data["warranty_data"]
        return Outcome(REDIRECTED, set=changes, append=with_flags(ctx, flags or []), reason=reason)

    # -- words ----------------------------------------------------------------------------------------------

    def body(self, scenario: str, data: Mapping[str, Any], ticket: str | None = None) -> str:
        """The answer to a mail of a scenario."""
        values = self.handlers.values(data)
        if ticket is not None:
            values = _with(values, "ticket_id", ticket)
        name, variants = self._template(scenario, data)
        return self.templates.render(name, variants, data, values)

    def _template(self, scenario: str, data: Mapping[str, Any]) -> tuple[str, tuple[Variant, ...]]:
        if scenario == VALID:
            return "05-send-confirmation", ()
        if scenario == INVALID:
            return TEMPLATES[(data.get("warranty_data") or {}).get("status", "not_found")], ()
        if scenario == MISSING:
            return "03d-request-serial", _BOTH
        if scenario == OUT:
            spam = (data.get("detected") or {}).get("detected_intent") == "spam"
            return "04-out-of-scope", (Variant("spam", {}),) if spam else ()
        return "redirect", ()


def with_receipt(text: str, mark: str, receipt: Receipt) -> Text:
    """A text in which the receipt replaces every mark."""
    parts: list[str | Receipt] = []
    for number, piece in enumerate(text.split(mark)):
        parts += [receipt, piece] if number else [piece]
    return Text(tuple(parts))


def _spend(answer: dict[str, Any] | None) -> Spend:
    return NOTHING if answer is None else Spend.from_plain(answer["spend"])


def _with(values: Values, key: str, value: Any) -> Values:
    return lambda name: value if name == key else values(name)
