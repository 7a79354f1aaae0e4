"""The parts that people bring: planner, validator, implementer, judge, preparer.

Belongs here: what a part is made of, how it is called, and what its answer must be. Does not belong here:
what follows from an answer (`decisions`), and the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from detent.engine.calls import TimeLimit, call
from detent.engine.step import Step
from detent.flows.refine.attempt import Attempt
from detent.flows.refine.evaluation import Evaluation, Rubric, ValidationReport, joined
from detent.flows.refine.feedback import Feedback
from detent.kernel.budget import NOTHING, Spend
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import copied, to_plain
from detent.kernel.policy import ONCE, RetryPolicy


class Rejected(Exception):
    """A request that cannot be worked on; `code` is short and holds nothing personal."""

    def __init__(self, code: str, message: str = "") -> None:
        self.code = str(code)
        self.message = message or self.code
        super().__init__(self.message)


class WrongType(TypeError):
    """A part has given something else than it must."""

    def __init__(self, part: str, value: Any, expected: str) -> None:
        self.part = part
        super().__init__(f"The part '{part}' gave {_kind(value)}; it must give {expected}.")


@dataclass(frozen=True, slots=True)
class Part:
    """One part, and what an agent needs to do its work in its place."""

    call: Callable[..., Any]
    """Sync or async; it may block, and is then called in a thread."""
    intent: str = ""
    """What it is for, as an agent is told; by default the first sentence of the docstring."""
    output_schema: Any = None
    """JSON Schema of its output, or a function from the prepared request to one. Validator and judge have one
    already."""
    parse: Callable[[Any], Any] | None = None
    """Reads an agent's output as the other parts will, and raises `ValueError` if they could not: what the
    schema cannot say."""
    brief: Callable[..., Mapping[str, Any]] | None = None
    """From the arguments of the part to what an agent is shown in their place, at most 12 KiB."""
    examples: Sequence[tuple[Any, ...]] = ()
    validator: Callable[[Mapping[str, Any], Any], Any] | None = None
    """Checks an agent's proposal in place of the usual check by rehearsal."""
    note: Callable[[Any], str] | None = None
    """From its output to a few words for the display of a run."""
    timeout: float | None = None
    """Seconds for one call."""
    retry: RetryPolicy = ONCE
    blocking: bool | None = None
    """As for a step: True for a plain function that always blocks, False for one that never does."""
    config: Any = None
    """Its own layer of configuration, such as `{"mode": "agent"}`."""

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise ConfigurationError(f"A part must be a function, not {_kind(self.call)}.")

    @classmethod
    def of(cls, name: str, value: Any) -> Part:
        """A part from a part, a step whose handler takes the arguments of the part, or a function."""
        if isinstance(value, Part):
            return value
        if isinstance(value, Step):
            return cls(
                value.handler, value.intent, value.output_schema, examples=value.examples,
                validator=value.validator, timeout=value.timeout, retry=value.retry, blocking=value.blocking,
                config=value.config,
            )  # fmt: skip
        if not callable(value):
            raise ConfigurationError(
                f"The part '{name}' is {_kind(value)}. Give a function, or a Part around one."
            )
        return cls(value)

    @property
    def purpose(self) -> str:
        """The intent, or the first sentence of the docstring."""
        return self.intent or first_sentence(self.call.__doc__)


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    head, stop, _ = paragraph.partition(". ")
    return f"{head}." if stop else head


@dataclass
class Calling:
    """One call of a part: what it spends, and where its progress is shown."""

    show: Callable[..., None] | None = None
    spend: Spend = field(default=NOTHING)


_CALLING: ContextVar[Calling | None] = ContextVar("detent_refine_calling", default=None)


def show_progress(done: float | None = None, of: float | None = None, text: str = "") -> None:
    """Show how far the part under way has come; outside a run nothing happens."""
    calling = _CALLING.get()
    if calling is not None and calling.show is not None:
        calling.show(done, of, text)


def record_spend(input_tokens: int = 0, output_tokens: int = 0, cost_usd: float = 0.0) -> None:
    """Count what the part under way has used, if its own code asks a model."""
    calling = _CALLING.get()
    if calling is not None:
        calling.spend += Spend(input_tokens, output_tokens, cost_usd)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one flow, called with plain values and held to what they must give."""

    planner: Part
    validator: Part
    implementer: Part
    judge: Part
    preparer: Part | None = None
    rubric: Rubric | Callable[[Any], Rubric] | None = None

    def rubric_for(self, request: Any) -> Rubric:
        """The rubric of a prepared request."""
        rubric = self.rubric
        if rubric is None or isinstance(rubric, Rubric):
            return rubric or Rubric()
        rubric = rubric(request)
        if not isinstance(rubric, Rubric):
            raise WrongType("rubric", rubric, "a Rubric")
        return rubric

    async def prepared(self, calling: Calling, request: Any) -> Any:
        """The request as the preparer makes it, as plain values."""
        if self.preparer is None:
            return request
        return _some("preparer", await _call(self.preparer, calling, copied(request)))

    async def planned(
        self, calling: Calling, request: Any, feedback: Sequence[Feedback], previous: Attempt | None
    ) -> Any:
        """A plan, as plain values."""
        return _some("planner", await _call(self.planner, calling, copied(request), list(feedback), previous))

    async def validated(self, calling: Calling, request: Any, plan: Any) -> ValidationReport:
        """The report on a plan."""
        return report_of(await _call(self.validator, calling, copied(request), copied(plan)))

    async def implemented(
        self,
        calling: Calling,
        request: Any,
        plan: Any,
        feedback: Sequence[Feedback],
        previous: Attempt | None,
    ) -> Any:
        """An implementation, as plain values."""
        value = await _call(
            self.implementer, calling, copied(request), copied(plan), list(feedback), previous
        )
        return _some("implementer", value)

    async def judged(self, calling: Calling, request: Any, plan: Any, implementation: Any) -> Evaluation:
        """An evaluation, with the automatic failures that code finds."""
        values = (copied(value) for value in (request, plan, implementation))
        evaluation = await _call(self.judge, calling, *values)
        if not isinstance(evaluation, Evaluation):
            raise WrongType("judge", evaluation, "an Evaluation")
        return await self.completed(evaluation, request, plan, implementation)

    async def completed(
        self, evaluation: Evaluation, request: Any, plan: Any, implementation: Any
    ) -> Evaluation:
        """An evaluation checked against the rubric, with the automatic failures that code finds.

        Raises:
            ValueError: it does not score the categories of the rubric.
        """
        rubric = self.rubric_for(request)
        rubric.check_names(evaluation)
        faults = await call(rubric.faults_of, None, *map(copied, (request, plan, implementation)))
        failures = tuple(dict.fromkeys((*faults, *evaluation.automatic_failures)))
        texts = [f"{code}: {fault}" for code, fault in faults.items() if fault != code]
        feedback = tuple(dict.fromkeys((*texts, *evaluation.actionable_feedback)))
        return replace(evaluation, automatic_failures=failures, actionable_feedback=feedback)


async def _call(part: Part, calling: Calling, *arguments: Any) -> Any:
    """What a part gives."""
    token = _CALLING.set(calling)
    try:
        async with TimeLimit(part.timeout):
            return await call(part.call, part.blocking, *arguments)
    finally:
        _CALLING.reset(token)


def report_of(value: Any) -> ValidationReport:
    """A validator's answer as one report.

    Raises:
        WrongType: it is neither a report nor a list of reports.
    """
    if isinstance(value, ValidationReport):
        return value
    if isinstance(value, list | tuple) and all(isinstance(report, ValidationReport) for report in value):
        return joined(value)
    raise WrongType("validator", value, "a ValidationReport, or a list of them")


def _some(part: str, value: Any) -> Any:
    if value is None:
        raise WrongType(part, value, "a value")
    try:
        return to_plain(value)
    except (TypeError, ValueError) as error:
        raise WrongType(part, value, f"a JSON value ({error})") from error


def _kind(value: Any) -> str:
    return "nothing (None)" if value is None else f"a {type(value).__name__}"
