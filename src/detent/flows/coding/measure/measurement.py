"""The measurement: every scenario under both rules, and the figures that come of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from detent.adapters.models.executor import ModelStepExecutor
from detent.dispatch.executor import ConversationExecutor
from detent.dispatch.executor_errors import ExecutorError
from detent.flows.coding.measure.legacy_rule import Complete, PlainLoop, legacy_complete
from detent.flows.coding.measure.machine_rule import MachineRule
from detent.flows.coding.measure.scenario import Scenario
from detent.flows.coding.measure.script import STYLES, ScriptedModel, Style
from detent.flows.coding.measure.watch import RuleRun, Watch, WatchedExecutor
from detent.flows.coding.tools.spec import ToolSettings

LEGACY: Final = "legacy"
MACHINE: Final = "machine"
BOUND: Final = 0.6
"""The least reduction that passes."""
LEGACY_LIMIT: Final = 40
"""Replies after which the plain loop stops: the flow's own limit."""

AT_ONCE: Final = 4
"""Scenarios that are played side by side."""

MakeExecutor = Callable[[Scenario], Any]
"""Gives the executor of one play of a scenario."""


class Live(NamedTuple):
    """A model of the user's."""

    executor: ConversationExecutor
    model_id: str | None
    close: Callable[[], Awaitable[None]]


def scripted(style: Style) -> MakeExecutor:
    """Executors that give a scenario's own replies in a style."""
    return lambda scenario: ModelStepExecutor(ScriptedModel(scenario, style))


async def play_machine(
    scenario: Scenario, make_executor: MakeExecutor, rule: MachineRule | None = None
) -> RuleRun:
    """Play a scenario through the flow, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="detent-measure-") as folder:
        watch = _watch(scenario, folder)
        return await (rule or MachineRule()).run(watch, make_executor(scenario))


async def play_plain(
    scenario: Scenario,
    make_executor: MakeExecutor,
    complete: Complete = legacy_complete,
    limit: int = LEGACY_LIMIT,
    model_id: str | None = None,
    confined: bool = False,
) -> RuleRun:
    """Play a scenario in a plain loop, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="detent-measure-") as folder:
        watch = _watch(scenario, folder)
        executor = WatchedExecutor(make_executor(scenario), watch)
        tools = ToolSettings(sandbox=True if confined else None)
        loop = PlainLoop(executor, watch.workspace, complete, scenario.deny, model_id, tools)
        try:
            completed, _ = await loop.run(scenario.prompt, limit)
        except ExecutorError as error:
            return watch.result(False, f"model_failed: {error}")
        return watch.result(completed, None if completed else "max_iterations")


def _watch(scenario: Scenario, folder: str) -> Watch:
    workspace = Path(folder).resolve()
    scenario.furnish(workspace)
    return Watch(scenario, workspace)


async def comes_to_true_end(scenario: Scenario) -> bool:
    """Whether the replies, given to their end, reach the goal at one that is text alone."""
    run = await play_plain(scenario, scripted("native"), lambda reply: False, len(scenario.replies))
    return run.held_back


@dataclass(frozen=True, slots=True)
class Measured:
    """One scenario under both rules."""

    scenario: Scenario
    rules: Mapping[str, RuleRun]
    true_end: bool | None = None
    """Whether its replies come to a true end; None: not known."""

    def to_plain(self) -> dict[str, Any]:
        """For `--json`."""
        scenario = self.scenario
        plain: dict[str, Any] = {
            "id": scenario.id, "category": scenario.category, "description": scenario.description,
        }  # fmt: skip
        if self.true_end is not None:
            plain["true_end"] = self.true_end
        return plain | {rule: run._asdict() for rule, run in self.rules.items()}


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of some scenarios."""

    scenarios: int
    premature: Mapping[str, int]
    held_back: Mapping[str, int]

    @classmethod
    def of(cls, measured: Sequence[Measured]) -> Figures:
        """Count."""
        rules = (LEGACY, MACHINE)
        return cls(
            len(measured),
            {rule: sum(one.rules[rule].premature for one in measured) for rule in rules},
            {rule: sum(one.rules[rule].held_back for one in measured) for rule in rules},
        )

    @property
    def reduction(self) -> float | None:
        """The share of premature completions that the machine avoids; None where the legacy rule has none."""
        legacy = self.premature[LEGACY]
        return None if not legacy else 1 - self.premature[MACHINE] / legacy

    @property
    def passes(self) -> bool:
        """Whether the reduction is large enough."""
        return self.premature[MACHINE] == 0 if self.reduction is None else self.reduction >= BOUND

    def to_plain(self) -> dict[str, Any]:
        """For `--json`."""
        reduction = self.reduction
        return {
            "reduction": None if reduction is None else round(reduction, 4),
            "premature": dict(self.premature),
            "held_back": dict(self.held_back),
        }


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured, by the style of replies."""

    by_style: Mapping[str, Sequence[Measured]]
    strict: bool = False
    checks: bool = False
    live: Sequence[Measured] = field(default=())
    """The same prompts with a model of the user's; counted apart."""

    @property
    def figures(self) -> Mapping[str, Figures]:
        """The figures of each style."""
        return {style: Figures.of(measured) for style, measured in self.by_style.items()}

    @property
    def first(self) -> Sequence[Measured]:
        """The scenarios in the first style."""
        return next(iter(self.by_style.values()))

    @property
    def worst(self) -> Figures:
        """The figures of the style in which the machine does worst."""
        return max(self.figures.values(), key=lambda figures: figures.premature[MACHINE])

    @property
    def differing(self) -> list[tuple[str, str]]:
        """Style and scenario where another style than the first comes to something else."""
        return [
            (style, one.scenario.id)
            for style, measured in self.by_style.items()
            for one, first in zip(measured, self.first, strict=True)
            if one.rules != first.rules
        ]

    @property
    def passes(self) -> bool:
        """Whether the reduction is large enough in every style."""
        return all(figures.passes for figures in self.figures.values())

    def to_plain(self) -> dict[str, Any]:
        """For `--json`."""
        plain: dict[str, Any] = {
            **self.worst.to_plain(),
            "true_ends": sum(bool(one.true_end) for one in self.first),
            "strict": self.strict,
            "done_when": self.checks,
            "styles": {style: figures.to_plain() for style, figures in self.figures.items()},
            "differing": [{"style": style, "id": name} for style, name in self.differing],
            "scenarios": [one.to_plain() for one in self.first],
        }
        if self.live:
            live = Figures.of(self.live)
            plain["live"] = {**live.to_plain(), "scenarios": [one.to_plain() for one in self.live]}
        return plain


async def measure(
    scenarios: Iterable[Scenario],
    *,
    strict: bool = False,
    checks: bool = False,
    styles: Sequence[Style] = STYLES,
    live: Live | None = None,
) -> Measurement:
    """Play every scenario in every style under both rules; with `live`, also with a model of the user's."""
    scenarios = list(scenarios)
    rule = MachineRule(strict, checks)
    by_style: dict[str, list[Measured]] = {}
    for style in styles:
        plays = [_measured(scenario, scripted(style), rule, style == styles[0]) for scenario in scenarios]
        by_style[style] = await _side_by_side(plays)
    with_model: list[Measured] = []
    if live is not None:
        rule = replace(rule, model_id=live.model_id, confined=True)
        with_model = [await _measured(scenario, lambda _: live.executor, rule) for scenario in scenarios]
    return Measurement(by_style, strict, checks, with_model)


async def _side_by_side(plays: Sequence[Coroutine[Any, Any, Measured]]) -> list[Measured]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def play(one: Coroutine[Any, Any, Measured]) -> Measured:
        async with gate:
            return await one

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(one)) for one in plays]
    return [task.result() for task in tasks]


async def _measured(
    scenario: Scenario, make_executor: MakeExecutor, rule: MachineRule, first: bool = False
) -> Measured:
    return Measured(
        scenario,
        {
            LEGACY: await play_plain(scenario, make_executor, model_id=rule.model_id, confined=rule.confined),
            MACHINE: await play_machine(scenario, make_executor, rule),
        },
        await comes_to_true_end(scenario) if first else None,
    )
