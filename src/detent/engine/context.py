"""What a step gets to see and may ask for while it decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.engine.calls import TimeLimit, call
from detent.engine.offloaded import blob_of, kept_beside
from detent.engine.outcome import Effect, Receipt
from detent.engine.ports import Clock, TapeCall, TapeError
from detent.engine.step import Step
from detent.engine.step_failures import Transient
from detent.engine.tools import Tool, Toolbox, ToolError
from detent.engine.user_errors import located
from detent.kernel import checks
from detent.kernel.budget import NOTHING, Budget, Spend
from detent.kernel.caller import line_of
from detent.kernel.entries import Body, Noted, Recorded, Tagged
from detent.kernel.errors import ConfigurationError, DetentError, InvalidValue
from detent.kernel.guards import dig
from detent.kernel.plain import LONGEST_KEPT, brief, canonical, copied, decode, digest, encode, to_plain
from detent.kernel.run_config import PATH
from detent.kernel.view import View, view

if TYPE_CHECKING:
    from detent.engine.child import Child
    from detent.engine.flow import Past
    from detent.engine.work import Work
    from detent.kernel.policy import RetryPolicy
    from detent.kernel.run import Run

OUTPUT = "output"
"""Topic of the remarks that `emit` leaves."""


class StepContext:
    """A step's view of its run, and its way to queries, children, durable answers and remarks."""

    # Most steps never touch these; as defaults of the class they cost nothing to make.
    _memo: dict[str, Any] | None = None
    _unfolded: dict[str, Any] | None = None
    _given: dict[str, Any] | None = None
    emitted: Sequence[Body] = ()
    """Messages to be journaled with the outcome."""
    looked: Sequence[dict[str, Any]] = ()
    """Queries asked so far, as the journal keeps them."""
    proposed: Sequence[Effect] = ()
    fallback: str | None = None
    """Why the handler is asked although the step is an agent's, when it is."""
    forgiven = False
    """The effect that failed was an agent's; the handler decides as if it had not been tried."""

    cap: Budget | None = None
    """What the visit may spend, inside the run's budget."""

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
        """The same visit on the run as it was, with the answers its queries got."""
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
        """The run's data itself, for those who read much of it and change nothing."""
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
        """The effect of this step that failed for good, when the step is asked once more because of it."""
        failure = self._run.failure
        return None if failure is None or self.forgiven else View(failure)

    def answered(self, name: str = "hold") -> bool:
        """True when the hold of this name has been answered in this visit."""
        return name in self._run.answers

    def answer(self, name: str = "hold", default: Any = None) -> Any:
        """The answer to a hold asked in this visit, or `default` while there is none."""
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
        return self._driver.spending.used()

    @property
    def budget(self) -> Budget | None:
        """The run's budget."""
        return self._run.budget

    @property
    def tools(self) -> Toolbox:
        """Every tool of the flow."""
        return self._driver.flow.tools

    async def inputs(self) -> dict[str, Any]:
        """What the step works on, as it declares it: worked out once, the same for handler and agent."""
        if self._given is None:
            self._given = await self._work_out()
        return dict(self._given)

    async def _work_out(self) -> dict[str, Any]:
        said = self.step.inputs
        if said is None:
            return dict(copied(self._run.data))
        if callable(said):
            return dict(await call(said, None, self))
        return {key: copied(self._run.data.get(key)) for key in said}

    @property
    def step_path(self) -> str:
        """Where the step stands in its workflow, such as `load/[0]/upsert`."""
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
        """Who answered a hold asked in this visit, and when."""
        said = self._run.answered_by.get(name)
        return None if said is None else (said[0], said[1])

    # -- asking ---------------------------------------------------------------------------------------------

    async def query(self, tool: str, /, **args: Any) -> Any:
        """Ask a read-only tool. The same question in the same attempt is asked once."""
        return await self.look(tool, args)

    async def look(self, tool: str, args: Mapping[str, Any], *, durable: bool = False) -> Any:
        """As `query`; a durable answer is kept in the journal, so that a crash does not change it."""
        step = self.step
        if step.queries is not None and tool not in step.queries:
            allowed = ", ".join(step.queries) or "none"
            raise ConfigurationError(f"Step '{step.name}' may not query '{tool}'. Allowed: {allowed}.")
        found = self._driver.flow.tools.get(tool, "query")
        plain = to_plain(found.whole(self, args))
        key = canonical([tool, plain])
        memo = self._memo = self._memo if self._memo is not None else {}
        if key not in memo:
            name = f"look/{digest([tool, plain], 24)}"
            if name in self._run.records:
                answer = self._run.records[name]
                line = self._line(found, plain, answer)
                if name not in memo and line not in self.looked:
                    self._looked(line)  # asked before a crash; this attempt decides on it all the same
                memo[name] = True
                return copied(answer)
            if durable and not found.private:
                memo[name] = True
                return await self.once(name, lambda: self._ask(found, plain))
            memo[key] = asyncio.ensure_future(self._ask(found, plain))
        try:
            answer = await memo[key]
        except Exception:
            memo.pop(key, None)
            raise
        return copied(answer)

    async def _ask(self, tool: Tool, args: dict[str, Any]) -> Any:
        breakers, name = self._driver.engine.breakers, f"tool/{tool.name}"
        if tool.breaker is not None and await breakers.open_until(name, tool.breaker) is not None:
            raise ToolError(
                "breaker_open", f"'{tool.name}' failed too often and is left alone", transient=True
            )

        async def ask() -> Any:
            async with TimeLimit(tool.timeout):
                return kept_answer(await call(tool.perform, tool.blocking, **args), tool.perform)

        try:
            tape = self._driver.engine.tape
            if tape is None:
                answer = await ask()
            else:
                asked = TapeCall("query", self._driver.where, self.step.name, tool.name, args)
                answer = await tape.through(asked, ask)
        except TapeError:
            raise
        except Exception as error:
            if tool.breaker is not None and not (isinstance(error, ToolError) and not error.transient):
                await breakers.failed(name, tool.breaker)
            self._looked(self._line(tool, args, {"$error": type(error).__name__}))
            if isinstance(error, ToolError) and error.transient:
                raise Transient(str(error)) from error
            raise
        if tool.breaker is not None:
            await breakers.succeeded(name)
        self._looked(self._line(tool, args, answer))
        return answer

    def _looked(self, line: dict[str, Any]) -> None:
        self.looked = [*self.looked, line]

    def _line(self, tool: Tool, args: dict[str, Any], answer: Any) -> dict[str, Any]:
        """What the journal keeps of a query: long values lie beside it, private ones are hashes."""
        return {"tool": tool.name, "args": self._brief(tool, args), "answer": self._brief(tool, answer)}

    def _brief(self, tool: Tool, value: Any) -> Any:
        if tool.private or len(text := encode(value)) <= LONGEST_KEPT:
            return brief(value, tool.private)
        return self.keep(text)

    async def once(
        self, key: str, work: Callable[[], Any], *, spend: Callable[[Any], Spend] | None = None
    ) -> Any:
        """An answer that must not be paid for twice: asked once per visit of the state, kept in the journal.

        After a crash the kept answer is given back without calling `work`.
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
        # A worker that slept through a take-over must not pay for what another has paid for meanwhile.
        await self._driver.confirm()
        value = kept_answer(await call(work, None), work)
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

    def propose(self, tool: str, /, *, effect_key: str | None = None, **args: Any) -> Receipt:
        """Ask for an effect, performed once the outcome is accepted; gives a stand-in for its receipt."""
        effect = Effect(tool, args, effect_key)
        self.proposed = [*self.proposed, effect]
        return Receipt(effect.identity(self.step.name))

    async def act(self, tool: str, /, **args: Any) -> Any:
        """Perform a declared tool at once: an opaque step's way to the world, refused to all others."""
        if not self.step.opaque:
            raise ConfigurationError(
                f"Step '{self.step.name}' is not opaque: it proposes '{tool}' and the engine performs it."
            )
        found = self._driver.flow.tools.get(tool, "effect")
        if self.step.effects is not None and tool not in self.step.effects:
            allowed = ", ".join(self.step.effects) or "none"
            raise ConfigurationError(f"Step '{self.step.name}' may not use '{tool}'. Allowed: {allowed}.")
        whole = found.whole(self, args)
        found.check(whole)
        first: tuple[Any, ...] = ()
        if found.wants_call:
            key = Effect(tool, to_plain(whole)).identity(self.step.name)
            first = (self._driver.effect_call(key, self.attempt),)
        async with TimeLimit(found.timeout):
            return kept_answer(await call(found.perform, found.off_loop, *first, **whole), found.perform)

    async def child(self, flow: str, data: Any = None, *, key: str, **options: Any) -> Child:
        """Run a child run with id `<this run>.<key>` (dots in the key escaped) to its end; give its result.

        Asked again for the same key (after a crash, or a wait), it gives the same child's result.
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

        An item is a key and data, and a flow where that is not `flow`. `beside` are long values that belong
        to the data of all of them and are kept once. With `stop_on_failure`, once one has
        failed none is begun, and those under way end after their current step.
        """
        driver = self._driver
        return await driver.engine.run_children(driver, flow, list(items), limit, stop_on_failure, **options)

    async def whole(self, past: Past) -> Mapping[str, Any]:
        """The data of a run below this one, with what lies beside its journal; not kept at hand."""
        from detent.engine.offloaded import looked_beside

        found = await looked_beside(past.flow.beside, past.run, self._driver.engine.store.blob)
        return {**past.run.data, **found}

    async def lineage(self) -> list[Past]:
        """This run and everything below it, with the moves each has made."""
        from detent.engine.family import family_of

        return [
            past async for past in family_of(self._driver.engine.store, self._driver.engine.flow, self.run_id)
        ]

    async def wind_up(self, runs: Sequence[str], reason: str) -> None:
        """Cancel runs below this one that are still open, wherever they are under way.

        What their steps have begun is settled first; the run waits where only a person can do that.
        """
        from detent.engine.family import ancestors

        for run_id in runs:
            if self.run_id not in await ancestors(self._driver.engine.store, run_id):
                raise ConfigurationError(f"Run {run_id} is not below {self.run_id}.")
        await self._driver.engine.wind_up(self._driver, runs, reason)

    # -- saying ---------------------------------------------------------------------------------------------

    def emit(self, message: str, level: str = "info", **metadata: Any) -> None:
        """Tell those who follow the run something; journaled with the step's outcome."""
        said = {"message": str(message), "level": checks.text("level", level), "source": self.step_path}
        if metadata:
            said["metadata"] = to_plain(metadata)
        self.emitted = [*self.emitted, Noted(OUTPUT, said)]

    async def note(self, topic: str, spend: Spend = NOTHING, **body: Any) -> None:
        """Leave a remark in the journal."""
        await self._driver.commit_whole(noted(topic, spend, body))

    async def tag(self, *add: str, remove: Sequence[str] = ()) -> None:
        """Put tags on the run, or take them off."""
        await self._driver.commit_whole(tagged(add, remove))

    def keep(self, body: bytes | str) -> dict[str, Any]:
        """Keep a large or private value beside the journal; gives the reference to put into data."""
        if not isinstance(body, bytes | str):
            raise checks.refuse("What is kept beside the journal", body, "bytes or a text")
        blob = blob_of(body)
        self._driver.keep(blob)
        return kept_beside(blob.body)

    async def unfold(self) -> None:
        """From here on, show JSON that data keeps beside the journal as if it stood in it.

        What was purged is shown as null.
        """
        if self._unfolded is not None:
            return
        data = dict(self._run.data)
        for key, value in data.items():
            if isinstance(value, Mapping) and set(value) == {"$blob", "size"}:
                raw = await self.kept(value)
                try:
                    data[key] = None if raw is None else decode(raw)
                except ValueError:
                    continue  # kept for something else than to be read here
        self._unfolded = data

    async def dig(self, dotted: str, default: Any = None) -> Any:
        """A value of the run's data by its dotted key, also inside JSON kept beside the journal.

        `default` where the way ends early, or where what was kept has been purged.
        """
        here: Any = self._run.data
        parts = dotted.split(".") if dotted else []
        while True:
            if isinstance(here, Mapping) and set(here) == {"$blob", "size"}:
                raw = await self.kept(here)
                if raw is None:
                    return default
                here = decode(raw)
                continue
            if not parts:
                return copied(here)
            here = dig(here, parts.pop(0), _ABSENT)
            if here is _ABSENT:
                return default

    async def kept(self, reference: Mapping[str, Any]) -> bytes | None:
        """The kept value, or None when it was purged."""
        return await self._driver.log.blob(reference["$blob"])


def noted(topic: Any, spend: Any, body: Mapping[str, Any]) -> Noted:
    """A remark, its values checked."""
    if type(spend) is not Spend:
        right = 'a Spend; what a note says is given by name, as in ctx.note("weighed", kg=4)'
        raise checks.refuse("The spend of a note", spend, right)
    return Noted(checks.name("The topic of a note", topic), to_plain(body), spend)


def tagged(add: Iterable[Any], remove: Any) -> Tagged:
    """A change of tags, its values checked."""
    return Tagged(checks.names("tags", add), checks.names("remove", remove))


def kept_answer(value: Any, function: Callable[..., Any]) -> Any:
    """What a function gave back, as the journal keeps it; an error names the function's place."""
    try:
        return to_plain(value)
    except InvalidValue as error:
        raise located(error, function) from None


def step_path(step: Step, run: Run) -> str:
    """Where a step of a run stands in its workflow."""
    own: str = step.metadata.get("path", step.name)
    above = run.config.get(PATH) if run.config else None
    return f"{above}/{own}" if above else own


class CannotCheck(DetentError):
    """A handler that is run for comparison only wants something that cannot be had without consequences."""


class TrialContext(StepContext):
    """For work that may come to nothing: a handler run to be compared with, facts being concluded from.

    Questions already asked are not asked again. What it proposes, notes and tags is its own until somebody
    takes it over; child runs cannot be started.
    """

    def __init__(self, home: StepContext) -> None:
        super().__init__(home._driver, home.step, home.attempt, home._run, home._retry)
        home._memo = home._memo if home._memo is not None else {}
        self._memo = home._memo
        self._home = home
        self._unfolded = home._unfolded
        self.looked = home.looked
        self.said: list[Body] = []
        """Remarks and tags, for whoever takes this over to commit."""

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """As the step's own context shows it."""
        return self._home.failure

    def _looked(self, line: dict[str, Any]) -> None:
        self._home._looked(line)

    async def inputs(self) -> dict[str, Any]:
        """As the step's own context has worked them out."""
        return await self._home.inputs()

    def emit(self, message: str, level: str = "info", **metadata: Any) -> None:
        """Tell something, should this be taken over."""
        super().emit(message, level, **metadata)
        self.said.append(self.emitted[-1])

    async def children(self, items: Iterable[Any], **options: Any) -> list[Child]:
        """Refused."""
        raise CannotCheck(f"The handler of step '{self.step.name}' starts child runs.")

    async def note(self, topic: str, spend: Spend = NOTHING, **body: Any) -> None:
        """Leave a remark, should this be taken over."""
        self.said.append(noted(topic, spend, body))

    async def tag(self, *add: str, remove: Sequence[str] = ()) -> None:
        """Put tags on the run or take them off, should this be taken over."""
        self.said.append(tagged(add, remove))


_ABSENT = object()
