"""The context of a trial: a handler run only to see what it would do, or a proposal being checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.engine.acts import Act
from detent.engine.context import StepContext
from detent.engine.notes import noted, tagged
from detent.engine.outcome import Effect
from detent.engine.tools import Tool
from detent.engine.user_errors import Acting
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.entries import Body, Noted
from detent.kernel.errors import DetentError
from detent.kernel.plain import to_plain

if TYPE_CHECKING:
    from detent.engine.child import Child


class TrialPaused(Acting):
    """A trial has come to an effect that is not performed yet; nothing for a handler to catch."""


class CannotCheck(DetentError):
    """A handler run only for comparison requested something that has side effects."""


class TrialContext(StepContext):
    """The context of a trial: a handler run for comparison, or a proposal being checked.

    Queries already made are not repeated, and effects already performed in the visit give their receipts.
    Proposals, notes and tags stay in this context until the caller adopts them; child runs cannot be started.
    """

    def __init__(self, home: StepContext) -> None:
        super().__init__(home._driver, home.step, home.attempt, home._run, home._retry)
        home._memo = home._memo if home._memo is not None else {}
        self._memo = home._memo
        self._home = home
        self._unfolded = home._unfolded
        self.scope, self.base = home.scope, home.base
        if self.scope:  # it begins after what the visit has performed
            self._settled = home._settled
        self.looked = home.looked
        self.said: list[Body] = []
        """Notes and tags, which a caller that adopts the trial commits."""
        self.came_to: Sequence[tuple[str, Effect]] = ()
        """The effects that the handler performs and goes on, with their keys, as far as the trial went."""
        self.questions: Mapping[str, str] = {}
        """What a person is to be asked before effects of `came_to`, by key."""
        self.paused = False
        """The trial ended at an effect that is not performed yet: the last of `came_to`."""

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """As the step's own context shows it."""
        return self._home.failure

    async def look(
        self, tool: str, args: Mapping[str, Any], *, durable: bool = False, agent: bool = False
    ) -> Any:
        """The answer to a query; one already given in the visit is looked up in this trial all the same."""
        answer = await self._answer_to(tool, args, durable=durable, agent=agent)
        resolved = self.tools.get(tool, "query")
        line = self._line(resolved, to_plain(resolved.whole(self, args)), answer)
        if line not in self.looked:
            self.looked = [*self.looked, line]
        return answer

    async def _answer_to(self, tool: str, args: Mapping[str, Any], *, durable: bool, agent: bool) -> Any:
        return await super().look(tool, args, durable=durable, agent=agent)

    def _looked(self, line: dict[str, Any]) -> None:
        self._home._looked(line)

    def _remember(self, name: str | None, tool: Tool, **outcome: Any) -> None:
        self._home._remember(name, tool, **outcome)

    def _check_world(self, tool: str) -> None:
        if self._settled < sum("receipt" in settled for settled in self._run.settled.values()):
            raise CannotCheck(f"'{tool}' was not asked before the effects of this visit were performed.")

    async def acts(self, by: str | None = None) -> list[Act]:
        """As the step's own context has them."""
        return await self._home.acts(by)

    def progress(self, done: float | None = None, of: float | None = None, text: str = "") -> None:
        """Nothing: a trial is not the step."""

    async def inputs(self) -> dict[str, Any]:
        """As the step's own context has computed them."""
        return await self._home.inputs()

    def _emit(self, note: Noted) -> None:
        """Record a message or a verdict, sent if the trial is adopted."""
        super()._emit(note)
        self.said.append(note)

    async def perform(
        self, tool: str, /, *, effect_key: str | None = None, confirm: str | None = None, **args: Any
    ) -> Any:
        """The receipt of an effect that was performed in this visit; the trial ends at any other effect."""
        if self.paused:
            raise TrialPaused
        declared = self.tools.get(tool, "effect")
        effect = Effect(tool, declared.normal(args), effect_key)
        confirm = declared.question(effect.args) if confirm is None else confirm
        key = self.next_key(effect)
        self.came_to = [*self.came_to, (key, effect)]
        if confirm is not None:
            self.questions = {**self.questions, key: confirm}
        if key not in self._run.settled:
            self.paused = True
            raise TrialPaused
        return self._given_back(key)

    async def perform_round(
        self, effects: Sequence[tuple[str, Effect]], *, withhold: bool = False, confirm: Any = None
    ) -> None:
        """End the trial unless all of the effects were performed in this visit."""
        if any(key not in self._run.settled for key, _ in effects):
            self.paused = True
            raise TrialPaused

    async def children(self, items: Iterable[Any], **options: Any) -> list[Child]:
        """Refused."""
        raise CannotCheck(f"The handler of step '{self.step.name}' starts child runs.")

    async def note(self, topic: str, spend: Spend = NOTHING, **body: Any) -> None:
        """Record a note, committed if the trial is adopted."""
        self.said.append(noted(topic, spend, body))

    async def tag(self, *add: str, remove: Sequence[str] = ()) -> None:
        """Record a change of tags, committed if the trial is adopted."""
        self.said.append(tagged(add, remove))
