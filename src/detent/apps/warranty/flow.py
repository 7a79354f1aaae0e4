"""The warranty mailbox as a flow: the step files, their handlers and rules, and the tools they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from detent.adapters.mail.reply import rendered
from detent.apps.warranty.domain.words import WORDS
from detent.apps.warranty.handlers import Handlers, shown
from detent.apps.warranty.mail_data import mail_of, received_day
from detent.apps.warranty.mail_facts import mail_facts
from detent.apps.warranty.rules import MAIL_RULES, TICKET, TICKET_RULES, Rules
from detent.apps.warranty.settings import FIRST_STEP, WarrantySettings
from detent.apps.warranty.tools.registry import WarrantySource, check_warranty_tool
from detent.apps.warranty.tools.replies import Replies, send_email_tool
from detent.apps.warranty.tools.tickets import TicketDesk, create_ticket_tool
from detent.dispatch.agent_side import agent_side
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.outcome import Outcome
from detent.engine.tools import Tool
from detent.flows.playbook.flow import EVERY, PlaybookFlow, playbook_flow
from detent.flows.playbook.folder import PlaybookFolder
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.policy import BreakerPolicy, RetryPolicy

SHIPPED = "instructions"
OVERLAYS = "overlays"


def shipped() -> Path:
    """The folder of step files that comes with the application."""
    return Path(str(resources.files("detent.apps.warranty") / SHIPPED))


def shipped_overlays() -> dict[str, Path]:
    """The overlays that come with the application, by name."""
    folder = Path(str(resources.files("detent.apps.warranty") / OVERLAYS))
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()} if folder.is_dir() else {}


def instructions(settings: WarrantySettings) -> Path | PlaybookFolder:
    """The project's own step files if it has any, otherwise the shipped ones."""
    own = settings.path(settings.playbook.steps_dir)
    if not own.is_dir():
        return shipped()
    templates = settings.path(settings.playbook.templates_dir)
    return PlaybookFolder(own.parent, own, templates)


def overlays(settings: WarrantySettings, more: Sequence[str] = ()) -> list[Path]:
    """The overlays named in the settings: folders of the project, or shipped ones.

    Raises:
        ConfigurationError: there is no such overlay.
    """
    known = shipped_overlays()
    folders: list[Path] = []
    for name in (*settings.playbook.overlays, *more):
        own = settings.path(name)
        path = own if own.is_dir() else known.get(name)
        if path is None:
            names = ", ".join(known) or "none"
            raise ConfigurationError(
                f"There is no overlay '{name}': neither a folder of the project nor a shipped one."
                f"{nearest(name, known)} Shipped: {names}."
            )
        folders.append(path)
    return folders


def run_gives(default_language: str) -> Callable[[StepContext], Mapping[str, Any]]:
    """Reads from the run the arguments it adds to every mail it sends."""

    def given(ctx: StepContext) -> Mapping[str, Any]:
        mail = mail_of(ctx.data)
        return {
            "source": mail.message_id or (ctx.data.get("mail") or {}).get("key") or ctx.run_id,
            "in_reply_to": mail.message_id,
            "references": list(mail.references),
            "language": ctx.data.get("language") or default_language,
            "customer": mail.reply_address,
            "step": ctx.step.name,
        }

    return given


def ticket_gives(default_language: str) -> Callable[[StepContext], Mapping[str, Any]]:
    """Reads from the run the arguments it adds to every ticket it opens."""

    def given(ctx: StepContext) -> Mapping[str, Any]:
        mail = mail_of(ctx.data)
        return {
            "source_message_id": mail.message_id,
            "thread_root": mail.thread_root or (ctx.data.get("mail") or {}).get("key"),
            "language": ctx.data.get("language") or default_language,
        }

    return given


def tools(
    settings: WarrantySettings, registry: WarrantySource, tickets: TicketDesk, replies: Replies
) -> list[Tool]:
    """The three tools of the mailbox."""
    limits = settings.orchestration
    retry = RetryPolicy(limits.max_attempts, limits.retry.min_s, limits.retry.max_s)
    breaker = BreakerPolicy(settings.tools.breaker.failures, settings.tools.breaker.probe_after_s)
    language = settings.warranty.default_language
    return [
        check_warranty_tool(registry, given=received_day, retry=retry, breaker=breaker),
        create_ticket_tool(tickets, given=ticket_gives(language), retry=retry, breaker=breaker),
        send_email_tool(replies, given=run_gives(language), retry=retry, breaker=breaker),
    ]


def warranty_flow(
    settings: WarrantySettings,
    tools: Iterable[Tool],
    *,
    handlers: Handlers | None = None,
    agents: Iterable[str] = (),
    overlay: Sequence[str] = (),
    folder: str | Path | None = None,
    check: bool = True,
) -> PlaybookFlow:
    """The flow of the mailbox.

    `agents` are the steps performed by agents; `overlay` names overlays beyond those of the settings;
    `folder` is another folder of step files.

    Raises:
        DocumentError: lists everything wrong with the step files.
    """
    handlers = handlers or Handlers(settings, WORDS.extended(settings.warranty.words))
    rules = Rules(handlers)
    limits = settings.orchestration
    flow = playbook_flow(
        folder if folder is not None else instructions(settings),
        tools=tools,
        handlers=handlers.by_name(),
        validators=rules.validators(),
        contracts={EVERY: rules.contract if folder is None else rules.any_contract},
        arguments={"send_email": handlers.usual_arguments},
        values=handlers.said(),
        show=shown(),
        facts=lambda step, data: mail_facts(handlers, step, data),
        rendered={"send_email.body": rendered},
        overlays=overlays(settings, overlay),
        agents=agents,
        max_steps=limits.max_steps,
        retry=RetryPolicy(limits.max_attempts, limits.retry.min_s, limits.retry.max_s),
        timeout=limits.retry.attempt_timeout_s,
        name="warranty",
        language=settings.warranty.default_language,
        strict=settings.playbook.strict,
        check=check,
    )
    handlers.playbook = flow.playbook
    for name, step in list(flow.steps.items()):
        rule = {FIRST_STEP: MAIL_RULES, TICKET: TICKET_RULES}.get(name, step.compare)
        side = replace(agent_side(step), private=True, answers=lambda ctx: mail_of(ctx.data).text)
        flow.replace(name, replace(step, agent=side, compare=rule))
    first, file = flow.steps.get(FIRST_STEP), flow.playbook.steps.get(FIRST_STEP)
    named = file is not None and file.conclude is None  # a project's own file without a form
    if folder is None and named and first is not None and first.conclude is not None:
        flow.replace(FIRST_STEP, replace(first, conclude=_with_scope(handlers, first.conclude)))
    return flow


def _with_scope(
    handlers: Handlers, conclude: Callable[[StepContext, Any], Any]
) -> Callable[[StepContext, Any], Any]:
    """Conclude the first step and add the scope that follows from its outcome."""

    async def concluded(ctx: StepContext, answer: Any) -> Outcome:
        return handlers.decided(ctx, Outcome.of(await call(conclude, None, ctx, answer)))

    return concluded
