"""The engine's step for each step file: its handler, its agent side, and the outcome of either's answer."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from detent.authoring.templates import filled, placeholders, values_of
from detent.dispatch.agent_side import AgentSide
from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.config import StepConfig
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.dispatch.proposal import Proposal, Validator
from detent.dispatch.sentence_bank import SentenceBank
from detent.engine import logger
from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.outcome import Effect, Outcome, Receipt, additions
from detent.engine.step import Handler, Step
from detent.engine.tools import Tool
from detent.engine.trial_context import TrialContext
from detent.flows.playbook.composition import Composer
from detent.flows.playbook.declared_handler import (
    NO_EDGE,
    DeclaredHandler,
    EffectWriter,
    first_edge,
    received,
)
from detent.flows.playbook.folder import OutputLine
from detent.flows.playbook.form_prompting import Filling, FormDialect
from detent.flows.playbook.forms import Finder, free_text, is_prose
from detent.flows.playbook.instruction import (
    DEGRADED,
    FAILED,
    Edge,
    EffectDeclaration,
    InstructionFile,
    folded,
)
from detent.flows.playbook.prompting import LineDialect, Said, Show
from detent.flows.playbook.protocol import BODY, Reply
from detent.flows.playbook.text_contract import TextContract
from detent.kernel.errors import DetentError, InvalidTransitionError, name_of
from detent.kernel.guards import dig, when
from detent.kernel.plain import copied, decode
from detent.kernel.policy import RetryPolicy

INVALID_ROUTE = "invalid_route"
STEP_FAILED = "step_failed"
EFFECT_FAILED = "effect_failed"
STEP_NOT_FOUND = "step_not_found"

Contract = Callable[[StepContext, Outcome, Reply], Iterable[str] | Awaitable[Iterable[str]]]
"""A further rule for an agent's answer at every level: takes the outcome it would have, returns problems.

Each problem says what would have been right, and repeats no words of the agent.
"""

Conclude = Callable[[StepContext, Said], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Turns an agent's statement into data: the fields of a form, or the values of a reply's lines."""

_ABSENT = object()
_INVALID = (FallbackReason.SCHEMA_VIOLATION, FallbackReason.VALIDATION_FAILURE)


class StepWork:
    """The work of one step file: inputs, handler, and the outcome of an agent's answer."""

    def __init__(
        self,
        step: InstructionFile,
        edges: Sequence[Edge],
        *,
        inner: Handler | None,
        aliases: Mapping[str, str],
        lines: Sequence[OutputLine],
        tools: Mapping[str, Tool],
        writer: EffectWriter,
        redirect: EffectDeclaration | None = None,
        contracts: Sequence[Contract] = (),
        concluding: Conclude | None = None,
        filling: Filling | None = None,
        finders: Mapping[str, Finder] | None = None,
        show: Show | None = None,
        texts: TextContract | None = None,
        composer: Composer | None = None,
        bank: SentenceBank | None = None,
    ) -> None:
        self.step = step
        self.edges = tuple(edges)
        self.inner = inner
        """The handler that decides; None if only an agent can."""
        self.aliases = aliases
        self.lines = tuple(lines)
        self.tools = tools
        self.writer = writer
        self.redirect = redirect
        self.contracts = tuple(contracts)
        self.concluding = concluding
        self.filling = filling
        self.finders = finders or {}
        self.show = show or {}
        self.texts = texts
        """The hard contract of its text for people; None if it writes none."""
        self.composer = composer
        """Composes the text of approved sentences; None if it has no bank."""
        self.bank = bank
        self.allowed = tuple(dict.fromkeys(edge.to for edge in edges))

    # -- inputs ---------------------------------------------------------------------------------------------

    async def inputs(self, ctx: StepContext) -> dict[str, Any]:
        """Exactly the keys in `needs`; a missing key is left out and logged.

        A need may also be one of the further values that texts may insert besides the data.
        """
        await ctx.unfold()
        return {
            key: copied(value.__plain__() if hasattr(value, "__plain__") else value)
            for key, value in self._needed(ctx)
        }

    def _needed(self, ctx: StepContext) -> list[tuple[str, Any]]:
        """The needs with a value; logs each missing one."""
        values = []
        for key in self.step.needs:
            value = dig(ctx.data, key, _ABSENT)
            if (value is _ABSENT or value is None) and key in self.writer.further:
                value = self.writer.further[key](ctx.data)
            if value is _ABSENT or value is None:
                _missing(ctx, self.step.id, key)
            else:
                values.append((key, value))
        return values

    # -- the handler ----------------------------------------------------------------------------------------

    def handler(self) -> Handler:
        """The function the engine calls."""
        inner = self.inner if self.inner is not None else undecided

        async def perform(ctx: StepContext) -> Outcome:
            await ctx.unfold()
            if ctx.fallback is None and ctx.attempt == 1 and not isinstance(ctx, TrialContext):
                self._needed(ctx)  # logs missing needs
            return self.settled(ctx, Outcome.of(await call(inner, None, ctx)))

        perform.__wrapped__ = inner  # type: ignore[attr-defined]
        perform.__name__ = getattr(inner, "__name__", self.step.id)
        return perform

    def settled(self, ctx: StepContext, outcome: Outcome) -> Outcome:
        """A handler's outcome with its next step and reason filled in, and the redirect if it is degraded."""
        if outcome.hold is not None or outcome.end is not None or outcome.event is not None:
            return outcome
        effects = [Effect.of(effect) for effect in (*ctx.proposed, *outcome.effects)]
        failure = ctx.failure
        if failure is not None and any(
            effect.identity(self.step.id) in failure["failed"] for effect in effects
        ):
            ctx.proposed = ()  # it proposes again an effect that failed for good: it has no alternative
            return Outcome(FAILED, reason=EFFECT_FAILED)
        data = self._after(ctx, outcome)
        to = self._named(outcome)
        reason = outcome.reason
        if to is None:
            edge = first_edge(self.edges, data)
            if edge is None and _waits(outcome):
                return outcome  # conditions on receipts are judged once the receipts exist
            to = edge.to if edge is not None else DEGRADED
            if edge is None and reason is None:
                reason = NO_EDGE
        outcome = outcome._replace(next=to, reason=reason if reason is not None else self._label(to, data))
        if to == DEGRADED:
            redirect(ctx, self.step.id, self.redirect, self.writer, self.tools, data)
        return outcome

    def _named(self, outcome: Outcome) -> str | None:
        """The step a handler names; `InvalidTransitionError` if it may not follow."""
        if outcome.next is None:
            return None
        name = name_of(outcome.next)
        name = self.aliases.get(folded(name), name)
        may = (*self.allowed, DEGRADED, FAILED)
        if name not in may:
            who = self.step.handler or "its declarations"
            raise InvalidTransitionError(
                self.step.id, name, tuple(dict.fromkeys(may)),
                f"Handler '{who}' of step '{self.step.id}' named it; the step's `next` does not.",
            )  # fmt: skip
        return name

    def _label(self, to: str, data: Mapping[str, Any]) -> str | None:
        """The label of the taken edge if it holds placeholders; otherwise the table has it."""
        for edge in self.edges:
            if edge.to == to and (edge.when is None or when(edge.when)(data)):
                if edge.reason is None or not any(placeholders(edge.reason)):
                    return None
                return str(filled(edge.reason, values_of(data), f"step {self.step.id}, next"))
        return None

    def _after(self, ctx: StepContext, outcome: Outcome) -> Mapping[str, Any]:
        """The data after an outcome."""
        changes = dict(outcome.set)
        for key, items in additions(outcome.append).items() if outcome.append else ():
            items_so_far = changes.get(key, ctx.data.get(key)) or []
            changes[key] = [*items_so_far, *items]
        return ChainMap(changes, ctx.data)  # type: ignore[arg-type]

    # -- an agent's answer ----------------------------------------------------------------------------------

    async def conclude(self, ctx: StepContext, statement: Any) -> Outcome:
        """The outcome of a reply: its data over the handler's, its words in the handler's effects."""
        await ctx.unfold()
        if not isinstance(statement, Said):
            return Outcome.of(statement)
        if wrong := statement.problems or self._unasked(ctx):
            raise self._refused(ctx, wrong)
        own, proposals = await self._own(ctx)
        changes = dict(own.set)
        problems: list[str] = []
        if statement.effects:
            effects: tuple[Effect, ...] = statement.effects
            keys = self._same_function(proposals, effects)
            outcome_effects: tuple[Effect, ...] = ()
        else:
            effects = (
                self._in_their_words(proposals, statement.reply, problems)
                if statement.reply.form is None
                else self._filled_in(proposals, self._filled_form(ctx, statement, problems))
            )
            pairs = zip(proposals, effects, strict=True)
            keys = {old.identity(self.step.id): new.identity(self.step.id) for old, new in pairs}
            outcome_effects = effects
        changes = _repointed(changes, keys)
        changes |= await self._answered(ctx, effects)
        changes |= statement if self.concluding is None else await call(self.concluding, None, ctx, statement)
        outcome = Outcome(statement.next_step, set=changes, append=own.append, effects=outcome_effects)
        data = self._after(ctx, outcome)
        if statement.reply.form is None:
            problems += self._condition(statement.next_step, data)
        elif (edge := first_edge(self.edges, data)) is not None:
            outcome = outcome._replace(next=edge.to)
        elif not _waits(outcome):  # conditions on receipts are judged once the receipts exist
            problems.append("The facts lead nowhere: no condition of a next step holds on them.")
        if not problems:
            whole = outcome._replace(effects=effects)
            problems += [] if self.texts is None else self.texts.problems(ctx.data, effects, proposals)
            for contract in self.contracts:
                problems += [
                    str(problem) for problem in await call(contract, None, ctx, whole, statement.reply)
                ]
        if problems:
            raise self._refused(ctx, problems)
        return outcome._replace(reason=self._label(name_of(outcome.next) if outcome.next else "", data))

    async def text_problems(self, ctx: StepContext, outcome: Outcome) -> list[str]:
        """What the contracts have against an outcome whose text a person has edited."""
        await ctx.unfold()
        problems: list[str] = []
        if self.texts is not None:
            effects = [Effect.of(effect) for effect in outcome.effects]
            problems += self.texts.problems(ctx.data, effects, await self.proposals(ctx))
        for contract in self.contracts:
            problems += [str(problem) for problem in await call(contract, None, ctx, outcome, Reply(form={}))]
        return problems

    def _unasked(self, ctx: StepContext) -> list[str]:
        """Problems for required functions that were not called; those called by code count."""
        called = {line["tool"] for line in ctx.looked}
        idle = {query.function for query in self.step.call if query.when and not when(query.when)(ctx.data)}
        return [
            f"{function.name} was not called. Call it before you answer."
            for function in self.step.available_functions
            if function.required and function.name not in called and function.name not in idle
        ]

    def _filled_form(self, ctx: StepContext, statement: Said, problems: list[str]) -> Mapping[str, Any]:
        """The fields of a form, with the text that its choice of approved sentences comes to."""
        form = statement.reply.form or {}
        field = free_text(self.step.form)
        if statement.choice is None or self.composer is None or field is None:
            return form
        text, wrong = self.composer.composed(ctx.data, statement.choice)
        problems += wrong
        return {**form, field.name: text}

    def _filled_in(self, proposals: Sequence[Effect], form: Mapping[str, Any]) -> tuple[Effect, ...]:
        """The handler's effects, with arguments filled from fields of the form."""
        effects = list(proposals)
        for field in self.step.form:
            function, _, argument = (field.fills or "").rpartition(".")
            if field.fills is None or form.get(field.name) is None:
                continue
            effects = [
                replace(effect, args={**effect.args, argument: form[field.name]})
                if effect.tool == function
                else effect
                for effect in effects
            ]
        return tuple(effects)

    async def _own(self, ctx: StepContext) -> tuple[Outcome, tuple[Effect, ...]]:
        """The outcome of the step's own code on the same data, and the effects it would propose."""
        if self.inner is None:
            return Outcome(), ()
        outcome = Outcome.of(await call(self.inner, None, ctx))
        proposals = tuple(Effect.of(effect) for effect in (*ctx.proposed, *outcome.effects))
        ctx.proposed = ()
        if outcome.hold is not None or self._named(outcome) in (DEGRADED, FAILED):
            proposals = ()
        return outcome, proposals

    async def proposals(self, ctx: StepContext) -> tuple[Effect, ...]:
        """The effects that the step's own code would propose on the same data."""
        await ctx.unfold()
        return (await self._own(ctx))[1]

    def _in_their_words(
        self, proposals: Sequence[Effect], reply: Reply, problems: list[str]
    ) -> tuple[Effect, ...]:
        """The handler's effects, with the arguments named in `text_fields` taken from the reply."""
        effects = list(proposals)
        for key, target in self.step.text_fields.items():
            function, _, argument = target.rpartition(".")
            words = reply.body if key == BODY else reply.outputs.get(key)
            places = [index for index, effect in enumerate(effects) if effect.tool == function]
            if words is None and (places or self.inner is None):
                problems.append(f"{key} is missing. Say it, or call {function}.")
            elif words is not None and not places and self.inner is None:
                problems.append(f"{key} cannot be used here. Call {function}.")
            elif words is not None:
                for index in places:
                    effect = effects[index]
                    effects[index] = replace(effect, args={**effect.args, argument: words})
        return tuple(effects)

    def _same_function(self, proposals: Sequence[Effect], effects: Sequence[Effect]) -> dict[str, str]:
        """For each effect of the handler, the key of the agent's effect whose receipt replaces its own."""
        keys_by_tool = {effect.tool: effect.identity(self.step.id) for effect in effects}
        return {
            effect.identity(self.step.id): keys_by_tool[effect.tool]
            for effect in proposals
            if effect.tool in keys_by_tool
        }

    async def _answered(self, ctx: StepContext, effects: Sequence[Effect]) -> dict[str, Any]:
        """The data that declared functions set, by their `into`."""
        values: dict[str, Any] = {}
        for declared in self.step.available_functions:
            if not declared.into:
                continue
            for line in ctx.looked:
                if line["tool"] == declared.name:
                    answer = await _stored_answer(ctx, line["answer"])
                    values |= {
                        key: dig(answer, path) if path else answer for key, path in declared.into.items()
                    }
            for effect in effects:
                if effect.tool == declared.name:
                    values |= received(declared.into, Receipt(effect.identity(self.step.id)))
        return values

    def _condition(self, to: str | None, data: Mapping[str, Any]) -> list[str]:
        """A problem if the condition of the chosen edge does not hold on the data."""
        open_to = [edge.to for edge in self.edges if edge.when is None or when(edge.when)(data)]
        if to in open_to:
            return []
        names = ", ".join(dict.fromkeys(open_to)) or "none"
        return [f"NEXT_STEP names a step whose condition does not hold on the data. Allowed now: {names}"]

    def _refused(self, ctx: StepContext, problems: Iterable[str]) -> OutputSchemaValidationError:
        logger.error("step.invalid_route", run_id=ctx.run_id, step=self.step.id, allowed=list(self.allowed))
        return OutputSchemaValidationError(self.step.id, "the protocol", list(problems)[:20])


def engine_step(
    work: StepWork,
    *,
    validator: Validator | None,
    retry: RetryPolicy,
    timeout: float | None,
    shown: str,
) -> Step:
    """The engine's step of a step file."""
    step = work.step
    functions = [function for function in step.available_functions if function.name in work.tools]
    offers = {
        function.name: replace(
            work.tools[function.name],
            description=function.description or work.tools[function.name].description,
            arguments=(
                function.parameters if function.parameters is not None else work.tools[function.name].schema
            ),
        )
        for function in functions
        if function.description is not None
    }
    declared = work.inner if isinstance(work.inner, DeclaredHandler) else None
    attempts = replace(retry, max_attempts=step.max_attempts or retry.max_attempts)
    limit = step.timeout_s if step.timeout_s is not None else timeout
    hints = StepConfig(mode=step.mode, autonomy=step.autonomy, timeout=limit, retry_policy=attempts)
    if validator is None and work.inner is None:
        validator = _kept_the_contract
    # Effects that fields of a form fill are proposed by the step's own code only.
    filled_in = {field.fills.rpartition(".")[0] for field in step.form if field.fills is not None}
    effects = [function.name for function in functions if work.tools[function.name].kind == "effect"]
    held = [name for name in effects if name in filled_in and work.inner is not None]
    reserve = [*held, *([work.redirect.function] if work.redirect is not None else [])]
    asking = (step, work.allowed, work.aliases, work.lines, declared, work.show)
    return Step(
        step.id,
        work.handler(),
        step.description,
        timeout=limit,
        retry=attempts,
        effects=tuple(dict.fromkeys([*effects, *reserve])),
        queries=tuple(function.name for function in functions if work.tools[function.name].kind == "query"),
        metadata={"file": shown, "version": step.version},
        inputs=work.inputs,
        conclude=work.conclude,
        next=work.allowed,
        validator=validator,
        agent=AgentSide(
            names_next=True,
            dialect=FormDialect(
                *asking,
                finders=work.finders,
                own=work.proposals,
                filling=work.filling,
                composer=work.composer,
            )
            if step.form
            else LineDialect(*asking),
            hints=hints,
            effects=tuple(name for name in effects if name not in held),
            offers=offers,
            handled=work.inner is not None,
            prose=prose_of(step, work.tools),
            text_contract=work.text_problems,
            bank=work.bank,
            rounds=0,  # route, words and calls are one decision, judged before anything of it is done
        ),
    )


def prose_of(step: InstructionFile, tools: Mapping[str, Tool]) -> tuple[str, ...]:
    """The arguments of effects that are text for people: those the step declares, or else those of free texts
    and those that its functions declare.
    """
    if step.prose is not None:
        return step.prose
    filled = [field.fills for field in step.form if field.fills is not None and is_prose(field)]
    names = [function.name for function in step.available_functions if function.name in tools]
    inherited = [f"{name}.{argument}" for name in names for argument in tools[name].prose]
    return tuple(dict.fromkeys((*step.text_fields.values(), *filled, *inherited)))


def redirect(
    ctx: StepContext,
    step: str,
    declared: EffectDeclaration | None,
    writer: EffectWriter,
    tools: Mapping[str, Tool],
    data: Mapping[str, Any],
) -> None:
    """Propose the redirect of a degraded run, unless that effect has failed already."""
    if declared is None:
        return
    tool = declared.function
    try:
        args = writer.args(ctx, declared, (), data, {}, "redirect")
        tools[tool].check(args)
    except (DetentError, KeyError, TypeError, ValueError) as error:
        logger.warning(
            "redirect.skipped", run_id=ctx.run_id, step=step, function=tool, error=type(error).__name__
        )
        return
    failed = ctx.failure["failed"] if ctx.failure is not None else ()
    if Effect(tool, args).identity(step) not in failed:
        ctx.propose(tool, **args)


def missing_step(
    name: str,
    shown: str,
    declared: EffectDeclaration | None,
    writer: EffectWriter,
    tools: Mapping[str, Tool],
) -> Step:
    """The step for a missing step file: it ends the run as degraded."""

    async def not_found(ctx: StepContext) -> Outcome:
        logger.error("step.missing_file", run_id=ctx.run_id, step=name, path=shown)
        await ctx.unfold()
        redirect(ctx, name, declared, writer, tools, ctx.data)
        return Outcome(DEGRADED, reason=STEP_NOT_FOUND)

    effects = (declared.function,) if declared is not None and declared.function in tools else ()
    agent = AgentSide(effects=())
    return Step(name, not_found, effects=effects, queries=(), metadata={"file": shown}, agent=agent)


async def undecided(ctx: StepContext) -> Outcome:
    """The handler of a step that has none: an agent should have decided, and did not."""
    if ctx.forgiven:
        return Outcome(FAILED, reason=EFFECT_FAILED)
    if ctx.fallback in _INVALID or ctx.failure is not None:  # it proposes nothing but a redirect
        return Outcome(DEGRADED, reason=INVALID_ROUTE)
    return Outcome(FAILED, reason=STEP_FAILED)


def _kept_the_contract(inputs: Mapping[str, Any], proposal: Proposal) -> bool:
    """Accept every answer that keeps the contract: no handler's outcome exists to compare it with."""
    return True


def _missing(ctx: StepContext, step: str, key: str) -> None:
    logger.warning("step.context_missing", run_id=ctx.run_id, step=step, key=key)


def _waits(outcome: Outcome) -> bool:
    """Whether some data the outcome sets is known only after its effects are performed."""
    return any(_receipts(value) for value in outcome.set.values())


def _receipts(value: Any) -> bool:
    if isinstance(value, Receipt):
        return True
    if isinstance(value, Mapping):
        return any(_receipts(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_receipts(item) for item in value)


def _repointed(changes: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Data with receipts replaced by those of other effects; keys that refer to none of them are left out."""
    repointed: dict[str, Any] = {}
    for key, value in changes.items():
        try:
            repointed[key] = _moved(value, keys)
        except KeyError:
            continue
    return repointed


def _moved(value: Any, keys: Mapping[str, str]) -> Any:
    if isinstance(value, Receipt):
        return Receipt(keys[value.key], value.path)
    if isinstance(value, Mapping):
        return {key: _moved(item, keys) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_moved(item, keys) for item in value]
    return value


async def _stored_answer(ctx: StepContext, answer: Any) -> Any:
    """A query's answer, loaded if it is stored beside the journal."""
    if isinstance(answer, Mapping) and isinstance(answer.get("$blob"), str):
        raw = await ctx.kept(answer)
        return None if raw is None else decode(raw)
    return answer
