"""The step context: what a step can read and request while it decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from detent.engine.acts import Act, acts_of
from detent.engine.calls import TimeLimit, call
from detent.engine.confirmation import DENIED
from detent.engine.notes import noted, tagged
from detent.engine.offloaded import blob_of, dug, kept_beside, unfolded
from detent.engine.outcome import Effect, Outcome, Receipt
from detent.engine.placeholders import written
from detent.engine.plain_answer import plain_answer
from detent.engine.ports import Clock, TapeCall, TapeError
from detent.engine.query_errors import error_again, error_facts, place_of
from detent.engine.run_resources import resource_of
from detent.engine.step import Step
from detent.engine.step_failures import StepChanged, Transient
from detent.engine.tools import Tool, Toolbox, ToolError
from detent.engine.user_errors import Acting
from detent.engine.verdicts import verdict_note
from detent.kernel import checks
from detent.kernel.budget import NOTHING, Budget, Spend
from detent.kernel.caller import line_of
from detent.kernel.effect_key import action_of
from detent.kernel.effect_key import effect_key as keyed
from detent.kernel.entries import Body, EffectDone, Noted, Recorded
from detent.kernel.errors import ConfigurationError, InvalidValue
from detent.kernel.placeholders import receipts_in
from detent.kernel.plain import LONGEST_KEPT, brief, canonical, copied, decode, digest, encode, to_plain
from detent.kernel.run import SEEN
from detent.kernel.run_config import PATH
from detent.kernel.view import View, view

if TYPE_CHECKING:
    from detent.engine.child import Child
    from detent.engine.flow import Past
    from detent.engine.work import Work
    from detent.kernel.policy import RetryPolicy
    from detent.kernel.run import Run

FROM_THE_TOP: ContextVar[bool] = ContextVar("detent_rounds_from_the_top", default=False)
"""Call a step again after every effect it performs, as after a crash; for tests of steps."""

OUTPUT = "output"
"""Topic of the notes that `emit` writes."""


class StepContext:
    """A step's view of its run, with access to queries, children, durable answers and notes."""

    # Most steps never use these; as class attributes they cost nothing per context.
    _memo: dict[str, Any] | None = None
    _unfolded: dict[str, Any] | None = None
    _given: dict[str, Any] | None = None
    emitted: Sequence[Body] = ()
    """Messages to be journaled with the outcome."""
    looked: Sequence[dict[str, Any]] = ()
    """Queries made so far, as the journal keeps them."""
    proposed: Sequence[Effect] = ()
    fallback: str | None = None
    """Reason the handler performs a step assigned to an agent; None otherwise."""
    fallback_error: tuple[str, str] | None = None
    """Type and message of the agent's error then, if it failed with one."""
    forgiven = False
    """The effect that failed was an agent's; the handler decides as if it had not been attempted."""
    cap: Budget | None = None
    """The visit's own budget, within the run's."""
    occurrences: Mapping[str, int] = MappingProxyType({})
    """How often each action was performed so far in this pass through the step, by the action's digest."""
    last_settled: Mapping[str, Any] = MappingProxyType({})
    """How the last effect it asked for was settled, as `Run.settled` keeps it."""
    settled_now = True
    """Whether that one was settled since the run was last taken up, not before an interruption."""
    suspended = False
    """An effect it asked for is not settled yet: the step is called again once it is."""
    limit: TimeLimit | None = None
    """Limit of the time the step may take; performing its effects is not counted."""
    scope = ""
    """Beginning of the keys under which a further step of a visit keeps its records."""
    base: Outcome | None = None
    """What the steps before a further one have decided in the same visit."""
    with_round: Sequence[Body] = ()
    """Entries to be committed with the next round, if there is one."""
    since: float | None = None
    """When the last effect it asked for was settled, on the clock that measures durations."""
    _closed = False
    """The call of the step is over; what is left of its tasks may not act."""
    _acting: asyncio.Lock | None = None
    """Effects of a run are performed one at a time."""
    _settled = 0
    """Settled effects that this pass has come to; also the version of the world that queries see."""
    _ordered = 0
    """Those of them that it came to one after another."""
    _kept_now: AbstractSet[str] = frozenset()
    """Durable queries of this pass that were journaled."""
    _failures: Mapping[str, int] = MappingProxyType({})
    """How often each query of an agent has failed in this pass."""
    _seen: Mapping[str, dict[str, Any]] = MappingProxyType({})
    """Query answers of this pass that are not in the journal yet, as records."""

    def __init__(
        self, driver: Work, step: Step, attempt: int, run: Run | None = None, retry: RetryPolicy | None = None
    ) -> None:
        self._driver = driver
        self._run = driver.run if run is None else run
        self.step = step
        self.attempt = attempt
        """1 for the first try of this visit."""
        self._retry = retry

    def then(self, run: Run) -> StepContext:
        """The same visit on an earlier state of the run, with the same query answers."""
        ctx = StepContext(self._driver, self.step, self.attempt, run, self._retry)
        ctx._memo = self._memo
        return ctx

    # -- looking --------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The run as the step sees it; not to be changed."""
        return self._run

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._run.id

    @property
    def flow(self) -> str:
        """Name of the flow."""
        return self._driver.flow.name

    @property
    def state(self) -> str:
        """Name of the state whose step this is."""
        return self._run.state

    @property
    def data(self) -> View:
        """The run's data, read-only; by key or by attribute."""
        return View(self._run.whole if self._unfolded is None else self._unfolded)

    @property
    def values(self) -> Mapping[str, Any]:
        """The run's data itself, for callers that read much of it; not to be changed."""
        return self._run.whole if self._unfolded is None else self._unfolded

    @property
    def parent(self) -> str | None:
        """Id of the run that started this one."""
        return self._run.parent

    @property
    def config(self) -> View:
        """Settings the run was started with."""
        return View(self._run.config)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the run."""
        return tuple(self._run.tags)

    @property
    def visit(self) -> int:
        """1 when the run is in this state for the first time."""
        return self._run.visits.get(self.state, 0) + 1

    @property
    def iterations(self) -> int:
        """Iterations begun so far, as the flow counts them."""
        return self._run.iterations

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The effect of this step that failed for good, when the step has to decide again because of it."""
        failure = self._run.failure
        return None if failure is None or self.forgiven else View(failure)

    def answered(self, name: str = "hold") -> bool:
        """True when the hold of this name has been answered in this visit."""
        return name in self._run.answers

    def answer(self, name: str = "hold", default: Any = None) -> Any:
        """The answer to a hold of this visit, or `default` while there is none."""
        return view(self._run.answers.get(name, default))

    @property
    def last_attempt(self) -> bool:
        """True when a transient failure of this attempt would not be followed by another."""
        return self.attempt >= (self._retry or self.step.retry).max_attempts

    def now(self) -> float:
        """Seconds since the epoch, on the engine's clock."""
        return self._driver.clock.now()

    @property
    def used(self) -> dict[str, float]:
        """What the run and its children have used so far: tokens, cost_usd, steps, seconds."""
        return self._driver.used()

    @property
    def budget(self) -> Budget | None:
        """The run's budget."""
        return self._run.budget

    @property
    def tools(self) -> Toolbox:
        """Every tool of the flow."""
        return self._driver.flow.tools

    async def inputs(self) -> dict[str, Any]:
        """The inputs that the step declares: computed once, the same for handler and agent."""
        if self._given is None:
            self._given = await self._work_out()
        return dict(self._given)

    async def _work_out(self) -> dict[str, Any]:
        declared = self.step.inputs
        if declared is None:
            return dict(copied(self._run.data))
        if callable(declared):
            return dict(await call(declared, None, self))
        return {key: copied(self._run.data.get(key)) for key in declared}

    @property
    def step_path(self) -> str:
        """Path of the step in its flow, such as `load/[0]/upsert`."""
        return step_path(self.step, self._run)

    @property
    def cwd(self) -> Path:
        """The folder of the project the step works in."""
        return Path(self.step.metadata.get("cwd", "."))

    @property
    def clock(self) -> Clock:
        """The engine's clock."""
        return self._driver.clock

    def answer_by(self, name: str = "hold") -> tuple[str, float] | None:
        """Who answered a hold of this visit, and when."""
        author = self._run.answered_by.get(name)
        return None if author is None else (author[0], author[1])

    # -- asking ---------------------------------------------------------------------------------------------

    async def query(self, tool: str, /, **args: Any) -> Any:
        """Call a read-only tool. The same query is made only once per attempt."""
        return await self.look(tool, args)

    async def look(
        self, tool: str, args: Mapping[str, Any], *, durable: bool = False, agent: bool = False
    ) -> Any:
        """Like `query`; a durable answer is journaled at once, so that later attempts have it too.

        What failed for an `agent` is asked again when it asks again, and when the handler asks.
        """
        if self.suspended:
            raise self._unwound(asyncio.current_task() is not self._driver.task)
        step = self.step
        if step.queries is not None and tool not in step.queries:
            allowed = ", ".join(step.queries) or "none"
            raise ConfigurationError(f"Step '{step.name}' may not query '{tool}'. Allowed: {allowed}.")
        resolved = self._driver.flow.tools.get(tool, "query")
        plain = to_plain(resolved.whole(self, args))
        world = self._settled
        key = canonical([tool, plain, world] if world else [tool, plain])
        memo = self._memo = self._memo if self._memo is not None else {}
        if key not in memo:
            seen = f"{SEEN}look/{digest([tool, plain, world] if world else [tool, plain], 24)}"
            seen = place_of(seen, self._run.records, self._failures.get(key, 0) if agent else None)
            if seen in self._run.records:
                memo[key] = asyncio.ensure_future(self._seen_before(resolved, plain, self._run.records[seen]))
            else:
                self._check_world(tool)
                memo[key] = asyncio.ensure_future(self._ask(resolved, plain, seen, agent))
        try:
            answer = await memo[key]
        except Exception:
            memo.pop(key, None)
            self._failures = {**self._failures, key: self._failures.get(key, 0) + agent}
            raise
        if durable and key not in self._kept_now and not resolved.private:
            self._kept_now = {*self._kept_now, key}
            await self._keep_seen()
        return copied(answer)

    async def _keep_seen(self) -> None:
        """Journal the query answers of this pass that are not journaled yet, without errors."""
        answers = [body for body in self.seen() if "error" not in body.value]
        self._seen = {name: outcome for name, outcome in self._seen.items() if "error" in outcome}
        if answers:
            await self._driver.commit_whole(*answers)

    async def _seen_before(self, tool: Tool, args: dict[str, Any], record: Mapping[str, Any]) -> Any:
        """The answer on which an earlier round rests."""
        if "error" in record:
            self._looked(self._line(tool, args, {"$error": record["error"].get("type", "ToolError")}))
            raise error_again(record["error"])
        answer = record.get("answer")
        if "kept" in record:
            raw = await self.kept(record["kept"])
            if raw is None:  # purged since
                return await self._ask(tool, args)
            answer = decode(raw)
        self._looked(self._line(tool, args, answer))
        return answer

    def _check_world(self, tool: str) -> None:
        """Raise unless a query made now would see the world as the step sees it."""

    def _remember(self, name: str | None, tool: Tool, **outcome: Any) -> None:
        """Note a query's answer or error; the journal keeps it if the step performs effects and goes on."""
        if name is not None:
            if "answer" in outcome and (
                tool.private or len(text := encode(outcome["answer"])) > LONGEST_KEPT
            ):
                outcome = {"text": encode(outcome["answer"]) if tool.private else text}
            self._seen = {**self._seen, name: outcome}

    def seen(self) -> list[Recorded]:
        """Query answers on which the next round rests, as entries; long and private ones are kept outside."""
        return [
            Recorded(name, {"kept": self.keep(outcome["text"])} if "text" in outcome else outcome)
            for name, outcome in self._seen.items()
        ]

    def take_seen(self) -> list[Recorded]:
        """Like `seen`, for a caller that sees to it that they are committed."""
        seen = self.seen()
        self._seen = {}
        return seen

    async def _ask(
        self, tool: Tool, args: dict[str, Any], record: str | None = None, agent: bool = False
    ) -> Any:
        breakers, name = self._driver.engine.breakers, f"tool/{tool.name}"
        if tool.breaker is not None and await breakers.open_until(name, tool.breaker) is not None:
            raise ToolError(
                "breaker_open", f"'{tool.name}' failed too often and is not called for now", transient=True
            )

        async def ask() -> Any:
            resource = await resource_of(self._driver, tool)
            async with TimeLimit(tool.timeout):
                return plain_answer(await call(tool.perform, tool.blocking, *resource, **args), tool.perform)

        try:
            tape = self._driver.engine.tape
            if tape is None:
                answer = await ask()
            else:
                taped_call = TapeCall("query", self._driver.where, self.step.name, tool.name, args)
                answer = await tape.through(taped_call, ask)
        except TapeError:
            raise
        except Exception as error:
            await breakers.raised(name, tool.breaker, error)
            self._looked(self._line(tool, args, {"$error": type(error).__name__}))
            self._remember(record, tool, error=error_facts(error), **({"by": "agent"} if agent else {}))
            if isinstance(error, ToolError) and error.transient:
                raise Transient(str(error)) from error
            raise
        if tool.breaker is not None:
            await breakers.succeeded(name)
        self._looked(self._line(tool, args, answer))
        self._remember(record, tool, answer=answer)
        return answer

    def _looked(self, line: dict[str, Any]) -> None:
        self.looked = [*self.looked, line]

    def _line(self, tool: Tool, args: dict[str, Any], answer: Any) -> dict[str, Any]:
        """A query as the journal keeps it: long values are offloaded, private ones hashed."""
        return {"tool": tool.name, "args": self._brief(tool, args), "answer": self._brief(tool, answer)}

    def _brief(self, tool: Tool, value: Any) -> Any:
        if tool.private:
            return brief(value, private=True)
        text = encode(value)
        return value if len(text) <= LONGEST_KEPT else self.keep(text)

    async def once(
        self, key: str, work: Callable[[], Any], *, spend: Callable[[Any], Spend] | None = None
    ) -> Any:
        """An answer that must not be paid for twice: computed once per visit, kept in the journal.

        After a crash the kept answer is returned without calling `work`.
        """
        memo = self._memo = self._memo if self._memo is not None else {}
        if spend is not None and key not in self._run.records:
            self._driver.afford(self.cap)
        while key not in self._driver.run.records:
            asking = memo.get(f"once {key}")  # no mix-up with queries, whose keys are JSON lists
            if asking is None:
                asking = memo[f"once {key}"] = asyncio.ensure_future(self._record(key, work, spend))
            try:
                await asking
            finally:
                memo.pop(f"once {key}", None)
        return copied(self._driver.run.records[key])

    async def _record(self, key: str, work: Callable[[], Any], spend: Callable[[Any], Spend] | None) -> None:
        # A worker that missed a takeover must not pay for an answer the new worker has paid for.
        await self._driver.confirm()
        value = plain_answer(await call(work, None), work)
        used = NOTHING
        if spend is not None:
            try:
                used = spend(value)
                if type(used) is not Spend:
                    text = f"The spend is {checks.shown(used)}; it takes a Spend."
                    raise InvalidValue(text, line_of(spend))
            except Exception:
                # The answer is paid for: it is kept, so that another attempt does not pay again.
                await self._driver.commit_whole(Recorded(key, value))
                raise
        await self._driver.commit_whole(Recorded(key, value, used))

    async def perform(
        self, tool: str, /, *, effect_key: str | None = None, confirm: str | None = None, **args: Any
    ) -> Any:
        """Have an effect performed and return its receipt; the step then goes on.

        With the question `confirm`, its own or the tool's, a person is shown the arguments first and says
        yes, no, or others.

        The step is called again from its top with the receipts of all rounds so far and the answers its
        queries had, so it must come to the same calls again: the time and chance belong into `once`.

        Raises:
            ToolError: the effect failed for good; `denied` if a person has said no.
            ConfigurationError: the step may not use the tool, or its arguments do not fit.
            StepChanged: the step did not come to the effects it has performed before.
        """
        step, run = self.step, self._run
        side = asyncio.current_task() is not self._driver.task
        if self._closed:
            raise self._unwound(side)
        if step.effects is not None and tool not in step.effects:
            allowed = ", ".join(step.effects) or "none"
            raise ConfigurationError(f"Step '{step.name}' may not perform '{tool}'. Allowed: {allowed}.")
        if receipts_in(written(args)):
            raise ConfigurationError(
                f"'{tool}' is to be performed now, but an argument is the receipt of an effect that is only "
                f"proposed. Perform that one with ctx.perform as well."
            )
        declared = self.tools.get(tool, "effect")
        effect = Effect(tool, declared.normal(args), effect_key)
        key = self.next_key(effect)
        if key not in run.settled:
            confirm = declared.question(effect.args) if confirm is None else confirm
            if not side and self._ordered < run.ordered:
                self._closed = True
                raise StepChanged(step.name, tool)
            await self._act([(key, effect)], side=side, confirm=confirm)
        self._ordered += not side
        return self._given_back(key)

    def _given_back(self, key: str) -> Any:
        """The receipt of a settled effect; raises how it failed, or that a person has denied it."""
        settled = self.last_settled = self.come_to(key)
        self.settled_now = settled.get("epoch") == self._driver.log.lease.epoch
        if "code" in settled:
            raise ToolError(settled["code"], settled["message"])
        if (why := str(settled.get("why") or "")).startswith(DENIED):
            raise ToolError(DENIED, why.partition(": ")[2])
        return copied(settled["receipt"])

    def begin_again(self, occurrences: Mapping[str, int]) -> None:
        """Begin a new pass through the step from its top, by somebody else than the one before.

        `occurrences` are counted as if this pass had already come to them.
        """
        self._settled = self._ordered = 0
        self.occurrences, self.proposed = occurrences, ()

    def next_key(self, effect: Effect) -> str:
        """The key of an effect that this pass through the step comes to now."""
        action = effect.identity(self.step.name)
        occurrence = self.occurrences.get(action, 0)
        self.occurrences = {**self.occurrences, action: occurrence + 1}
        return keyed(action, self._run.visit, occurrence)

    def come_to(self, key: str) -> dict[str, Any]:
        """How an effect was settled: `receipt`, or `code` and `message`; queries then see the world after it.

        What was emitted and looked up before it is written with its round.
        """
        self._settled += 1
        self.emitted, self.looked = (), ()
        for body in self._driver.log.withheld:
            if isinstance(body, EffectDone) and body.key == key:
                return {"receipt": body.receipt}
        settled = self._run.settled[key]
        if (instead := settled.get("instead")) is None:
            return settled
        action = action_of(instead)
        self.occurrences = {**self.occurrences, action: self.occurrences.get(action, 0) + 1}
        return {**self._run.settled[instead], "key": instead}

    async def acts(self, by: str | None = None) -> list[Act]:
        """The settled effects of the visit, in order, those not committed yet included."""
        run, log = self._run, self._driver.log
        return await acts_of(run, log.withheld if run is self._driver.run else (), log.blob, by)

    async def perform_round(
        self,
        effects: Sequence[tuple[str, Effect]],
        *,
        withhold: bool = False,
        confirm: Callable[[str, Effect], str | None] | None = None,
    ) -> None:
        """Have an agent's effects performed, with their keys; afterwards `come_to` gives their receipts.

        With `withhold`, the last receipt is left for the next commit, which must follow at once. `confirm`
        gives the question a person answers first, for each effect that needs it.
        """
        pending: list[tuple[str, Effect]] = []
        for key, effect in effects:
            if key in self._run.settled:
                continue
            question = None if confirm is None else confirm(key, effect)
            if question is None:
                pending.append((key, effect))
                continue
            if pending:
                await self._act(pending, by="agent", side=True)
                pending = []
            await self._act([(key, effect)], by="agent", side=True, confirm=question)
        if pending:
            await self._act(pending, by="agent", side=True, withhold=withhold)

    async def _act(self, effects: Sequence[tuple[str, Effect]], *, side: bool, **options: Any) -> None:
        """Have effects performed; unless all are settled then, the step is unwound, to be called again."""
        driver = self._driver
        own_task = options.get("by") != "agent" and side
        self._acting = self._acting or asyncio.Lock()
        async with self._acting:
            if self._closed:
                raise self._unwound(own_task)
            with nullcontext() if self.limit is None else self.limit.paused():
                await driver.act(self, effects, side=side, **options)
            self._seen, self.emitted, self.looked, self.with_round = {}, (), (), ()
            halted = driver.cancellation or driver.run.called_off or driver.engine.halts(driver.run)
            settled = driver.run.settled
            unsettled = driver.run.proposal is not None or any(key not in settled for key, _ in effects)
            if (unsettled and not driver.log.withheld) or halted or FROM_THE_TOP.get():
                await driver.log.flush()
                self.suspended = self._closed = True
                raise self._unwound(own_task)

    def _unwound(self, side: bool) -> BaseException:
        """What is raised in a step that is to be called again; a task of its own is simply cancelled."""
        return asyncio.CancelledError() if side else Acting()

    def close(self) -> None:
        """The call of the step is over: tasks it may have left behind can perform nothing any more."""
        self._closed = True

    def check_complete(self) -> None:
        """Raise `StepChanged` if the step ended without coming to all effects it has performed in order."""
        if self._ordered < self._run.ordered:
            raise StepChanged(self.step.name)

    def propose(self, tool: str, /, *, effect_key: str | None = None, **args: Any) -> Receipt:
        """Propose an effect, performed once the outcome is accepted; returns its receipt's placeholder."""
        effect = Effect(tool, args, effect_key)
        self.proposed = [*self.proposed, effect]
        return Receipt(effect.identity(self.step.name))

    async def act(self, tool: str, /, **args: Any) -> Any:
        """Perform a declared tool at once; only for opaque steps.

        Raises:
            ConfigurationError: the step is not opaque or may not use the tool.
        """
        if not self.step.opaque:
            raise ConfigurationError(
                f"Step '{self.step.name}' is not opaque: it proposes '{tool}' and the engine performs it."
            )
        resolved = self._driver.flow.tools.get(tool, "effect")
        if self.step.effects is not None and tool not in self.step.effects:
            allowed = ", ".join(self.step.effects) or "none"
            raise ConfigurationError(f"Step '{self.step.name}' may not use '{tool}'. Allowed: {allowed}.")
        whole = resolved.whole(self, args)
        resolved.check(whole)
        first: tuple[Any, ...] = ()
        if resolved.wants_call:
            key = Effect(tool, to_plain(whole)).identity(self.step.name)
            first = (self._driver.effect_call(key, self.attempt),)
        first += await resource_of(self._driver, resolved)
        async with TimeLimit(resolved.timeout):
            answer = await call(resolved.perform, resolved.off_loop, *first, **whole)
        return plain_answer(answer, resolved.perform)

    async def child(self, flow: str, data: Any = None, *, key: str, **options: Any) -> Child:
        """Run a child run with id `<this run>.<key>` (dots in the key escaped) to its end; give its result.

        Called again with the same key (after a crash or a wait), it returns the same child's result.
        """
        (result,) = await self.children([(key, data)], flow=flow, **options)
        return result

    async def children(
        self,
        items: Iterable[tuple[str, Any] | tuple[str, Any, str]],
        *,
        flow: str = "",
        limit: int | None = None,
        stop_on_failure: bool = False,
        **options: Any,
    ) -> list[Child]:
        """Run many children, at most `limit` side by side; results in the order of `items`.

        An item is a key and data, and a flow if it is not `flow`. `beside` are long values shared by the data
        of all children and kept once. With `stop_on_failure`, no child is started after one has failed, and
        those under way end after their current step.
        """
        driver = self._driver
        return await driver.engine.run_children(driver, flow, list(items), limit, stop_on_failure, **options)

    async def other(self, run_id: str) -> Run:
        """Another run of the store, not to be changed; `RunNotFound` if there is none."""
        from detent.engine.journal_reader import load

        return await load(self._driver.engine.store, run_id)

    async def whole(self, past: Past) -> Mapping[str, Any]:
        """The data of a descendant run, including its offloaded values; not cached."""
        from detent.engine.offloaded import looked_beside

        offloaded = await looked_beside(past.flow.beside, past.run, self._driver.engine.store.blob)
        return {**past.run.data, **offloaded}

    async def lineage(self) -> list[Past]:
        """This run and its descendants, with the moves each has made."""
        from detent.engine.family import family_of

        return [
            past async for past in family_of(self._driver.engine.store, self._driver.engine.flow, self.run_id)
        ]

    async def cancel_descendants(self, runs: Sequence[str], reason: str) -> None:
        """Cancel descendant runs that are still open, in whichever process they are under way.

        Effects their steps have begun are settled first; the run waits where only a person can do that.
        """
        from detent.engine.family import ancestors

        for run_id in runs:
            if self.run_id not in await ancestors(self._driver.engine.store, run_id):
                raise ConfigurationError(f"Run {run_id} is not below {self.run_id}.")
        await self._driver.engine.cancel_descendants(self._driver, runs, reason)

    # -- saying ---------------------------------------------------------------------------------------------

    def emit(self, message: str, level: str = "info", **metadata: Any) -> None:
        """Send a message to the run's followers; journaled with the step's outcome."""
        body = {"message": str(message), "level": checks.text("level", level), "source": self.step_path}
        if metadata:
            body["metadata"] = to_plain(metadata)
        self._emit(Noted(OUTPUT, body))

    def progress(self, done: float | None = None, of: float | None = None, text: str = "") -> None:
        """Show those who watch how far the step has come; in no journal, and from any thread."""
        self._driver.show_progress(self.step.name, done, of, text)

    async def verdict(self, state: Any, right: bool, why: str = "", *, visit: int | None = None) -> None:
        """Say whether an earlier visit of a state was right, by what is known now; the last one unless said.

        Journaled with the step's outcome. If an agent performed that visit, it is evidence about the agent;
        the first verdict on a visit counts.

        Raises:
            ConfigurationError: the run has not made that visit.
        """
        store, run = self._driver.engine.store, self._driver.run
        author, waiting = self.step.name, self.emitted
        self._emit(
            await verdict_note(store, run, state, right, visit=visit, why=why, by=author, waiting=waiting)
        )

    def _emit(self, note: Noted) -> None:
        self.emitted = [*self.emitted, note]

    async def note(self, topic: str, spend: Spend = NOTHING, **body: Any) -> None:
        """Write a note to the journal."""
        await self._driver.commit_whole(noted(topic, spend, body))

    async def tag(self, *add: str, remove: Sequence[str] = ()) -> None:
        """Put tags on the run, or take them off."""
        await self._driver.commit_whole(tagged(add, remove))

    def keep(self, body: bytes | str) -> dict[str, Any]:
        """Keep a large or private value outside the journal; returns the reference to put into data."""
        if not isinstance(body, bytes | str):
            raise checks.refuse("What is kept beside the journal", body, "bytes or text")
        blob = blob_of(body)
        self._driver.keep(blob)
        return kept_beside(blob.body)

    async def unfold(self) -> None:
        """From here on, show offloaded JSON values of the data as if they were part of it.

        Purged values are shown as null.
        """
        if self._unfolded is None:
            self._unfolded = await unfolded(self._run.data, self.kept)

    async def dig(self, dotted: str, default: Any = None) -> Any:
        """A value of the run's data by its dotted key, also inside offloaded JSON.

        `default` where the path ends early or leads through a purged value.
        """
        return await dug(self._run.data, dotted, default, self.kept)

    async def kept(self, reference: Mapping[str, Any]) -> bytes | None:
        """The kept value, or None when it was purged."""
        return await self._driver.log.blob(reference["$blob"])


def step_path(step: Step, run: Run) -> str:
    """Path of a run's step in its flow."""
    own: str = step.metadata.get("path", step.name)
    above = run.config.get(PATH) if run.config else None
    return f"{above}/{own}" if above else own
