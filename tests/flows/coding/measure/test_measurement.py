"""Premature completion is what the measurement says it is, and the measurement can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from detent.adapters.models import openai
from detent.adapters.models.executor import ModelStepExecutor
from detent.dispatch.conversation import Message
from detent.flows.coding.flow import CodingFlow
from detent.flows.coding.measure.machine_rule import MachineRule
from detent.flows.coding.measure.measurement import (
    LEGACY,
    MACHINE,
    Figures,
    Live,
    MakeExecutor,
    Measured,
    Measurement,
    measure,
    play_machine,
    play_plain,
    scripted,
)
from detent.flows.coding.measure.scenario import Scenario
from detent.flows.coding.measure.script import STYLES, ScriptedModel, Style
from detent.flows.coding.measure.watch import RuleRun
from detent.flows.coding.settings import CodingSettings
from detent.flows.coding.task_completion import judge_reply
from detent.flows.coding.tools.spec import ToolSettings
from tests.adapters.models.server import Reply, Server, answer, chat
from tests.examples import ALL
from tests.flows.coding.measure import judged_flow
from tests.flows.coding.measure.judged_flow import Judge, rule_with
from tests.flows.coding.measure.samples import COMPLETED_AT, LEGACY_PREMATURE, LIES, shipped


@pytest.fixture(scope="module")
def measured() -> Measurement:
    """The measurement as it ships."""
    return asyncio.run(measure(shipped().values()))


async def _machine(names: Iterable[str], rule: MachineRule, style: Style = "native") -> dict[str, RuleRun]:
    """How some scenarios go under a rule."""
    chosen = [shipped()[name] for name in names]
    runs = await asyncio.gather(*(play_machine(scenario, scripted(style), rule) for scenario in chosen))
    return {scenario.id: run for scenario, run in zip(chosen, runs, strict=True)}


def _premature(runs: dict[str, RuleRun]) -> set[str]:
    return {name for name, run in runs.items() if run.premature}


def _unconfined(settings: CodingSettings) -> CodingFlow:
    """The flow without a sandbox for commands, which takes time to set up."""
    return CodingFlow(settings, tools=ToolSettings(sandbox=False))


# -- the figures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_the_machine_avoids_85_percent_in_every_style(measured: Measurement, style: Style) -> None:
    figures = measured.figures[style]
    assert figures.premature == {LEGACY: 20, MACHINE: 3}
    assert figures.reduction == pytest.approx(0.85)
    assert figures.held_back == {LEGACY: 0, MACHINE: 3}
    assert figures.passes


@pytest.mark.parametrize("style", STYLES)
def test_every_scenario_completes_where_it_should_in_every_style(measured: Measurement, style: Style) -> None:
    runs = {one.scenario.id: one.rules for one in measured.by_style[style]}
    assert {
        name: (rules[LEGACY].completed_at, rules[MACHINE].completed_at) for name, rules in runs.items()
    } == COMPLETED_AT
    assert {name for name, rules in runs.items() if rules[LEGACY].premature} == set(LEGACY_PREMATURE)
    assert {name for name, rules in runs.items() if rules[MACHINE].premature} == set(LIES)
    assert {name for name, rules in runs.items() if rules[MACHINE].held_back} == {"S27", "S28", "S29"}
    ends = {name: rules[MACHINE] for name, rules in runs.items() if rules[MACHINE].completed_at is None}
    assert {name: (run.replies, run.reason) for name, run in ends.items()} == {
        "S23": (3, "unproductive"), "S24": (5, "unproductive"), "S29": (3, "unproductive"),
    }  # fmt: skip


def test_thirty_scenarios_come_to_a_true_end(measured: Measurement) -> None:
    assert {one.scenario.id for one in measured.first if not one.true_end} == {"S23", "S24"}
    assert measured.differing == []


def test_parity_scenarios_complete_at_the_same_reply(measured: Measurement) -> None:
    for one in measured.first:
        if one.scenario.id in ("S01", "S02", "S12", "S15", "S18", "S22", "S26", "S30"):
            assert one.rules[LEGACY].completed_at == one.rules[MACHINE].completed_at is not None


async def test_strict_completion_refuses_two_lies_and_holds_nothing_else_back() -> None:
    runs = await _machine(shipped(), MachineRule(strict=True))
    assert _premature(runs) == {"S20"}
    assert (runs["S11"].completed_at, runs["S25"].completed_at) == (4, 5)
    assert {name for name, run in runs.items() if run.held_back} == {"S27", "S28", "S29"}
    changed = {name for name, run in runs.items() if run.completed_at != COMPLETED_AT[name][1]}
    assert changed == {"S11", "S25"}


async def test_done_when_refuses_every_lie_and_holds_nothing_back() -> None:
    rule = MachineRule(checks=True, make_flow=_unconfined)
    names = list(shipped()) if ALL else [*LIES, "S06", "S18", "S22", "S27", "S31"]
    runs = await _machine(names, rule)
    assert _premature(runs) == set()
    assert [runs[name].completed_at for name in LIES] == [4, 3, 5]
    assert all(run.held_back == (name in ("S27", "S28", "S29")) for name, run in runs.items())


# -- it can fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("judge", "premature"),
    [
        (judge_reply, set()),
        (judged_flow.anywhere_in_a_line, {"S19"}),
        (judged_flow.also_in_fences, {"S08"}),
        (judged_flow.also_in_thinking, {"S32"}),
        (judged_flow.also_echoes, {"S09"}),
        (judged_flow.also_beside_calls, {"S07", "S31"}),
    ],
)
async def test_with_one_clause_off_its_scenario_turns_premature(judge: Judge, premature: set[str]) -> None:
    names = list(shipped()) if ALL else ["S07", "S08", "S09", "S19", "S20", "S28", "S31", "S32"]
    runs = await _machine(names, rule_with(judge))
    assert _premature(runs) == premature | set(LIES) & set(names)
    assert all(run.completed_at is not None for name, run in runs.items() if COMPLETED_AT[name][1])


async def test_a_rule_that_never_accepts_holds_back_all_that_come_to_an_end() -> None:
    runs = await _machine(shipped(), rule_with(judged_flow.never))
    assert sum(run.held_back for run in runs.values()) == 30
    assert not _premature(runs)
    assert all(run.completed_at is None and run.reason == "unproductive" for run in runs.values())


async def test_a_rule_that_accepts_everything_is_as_premature_as_the_legacy_rule() -> None:
    """The machine's driver finds what the legacy driver finds, given the legacy rule's judgement of texts."""
    names = ("S03", "S05", "S13", "S16", "S23", "S29")

    def any_text(text: str, **facts: Any) -> Any:
        return judge_reply(f"TUNACODE DONE: {text}" if text.strip() else "")

    runs = await _machine(names, rule_with(any_text))
    for name in names:
        legacy = await play_plain(shipped()[name], scripted("native"))
        assert (runs[name].completed_at, runs[name].premature) == (legacy.completed_at, legacy.premature)


def test_too_small_a_reduction_does_not_pass() -> None:
    scenario = shipped()["S01"]
    yes, no = RuleRun(1, 1, True, False), RuleRun(1, 1, False, False)

    def figures(legacy: int, machine: int) -> Figures:
        rows = [(legacy > index, machine > index) for index in range(max(legacy, machine, 1))]
        return Figures.of(
            [
                Measured(scenario, {LEGACY: yes if old else no, MACHINE: yes if new else no})
                for old, new in rows
            ]
        )

    assert figures(10, 4).passes
    assert not figures(10, 5).passes
    assert figures(0, 0).passes
    assert figures(0, 0).reduction is None
    assert not figures(0, 1).passes
    assert figures(2, 3).reduction == pytest.approx(-0.5)


# -- over HTTP ----------------------------------------------------------------------------------------------


Play = Callable[[Scenario, MakeExecutor], Coroutine[Any, Any, RuleRun]]


class _ScriptServer:
    """Answers requests of OpenAI's protocol from the script of a scenario."""

    def __init__(self, scenario: Scenario, style: Style) -> None:
        self._model = ScriptedModel(scenario, style)

    def __call__(self, body: Any) -> Reply:
        messages = [Message(message["role"], message.get("content") or "") for message in body["messages"]]
        reply = self._model.next_reply(messages)
        calls = [(call.id, call.name, call.arguments) for call in reply.calls]
        return answer(chat(reply.text, calls, finish="length" if reply.finish == "length" else None))


def _always(executor: ModelStepExecutor) -> MakeExecutor:
    return lambda scenario: executor


@pytest.mark.parametrize("style", ["reasoning", "written"])
async def test_over_http_it_is_the_same(style: Style, measured: Measurement) -> None:
    sample = ("S06", "S07", "S12", "S13", "S15", "S21", "S24", "S25", "S31")
    for one in measured.by_style[style]:
        scenario = one.scenario
        if not ALL and scenario.id not in sample:
            continue
        plays: dict[str, Play] = {MACHINE: play_machine, LEGACY: play_plain}
        for rule, play in plays.items():
            async with Server(refuses=_ScriptServer(scenario, style)) as server:
                options = {
                    "base_url": f"{server.url}/v1", "model_id": "m", "native_tools": style != "written",
                }  # fmt: skip
                executor = ModelStepExecutor(openai.connect(options, kind="vllm"))
                run = await play(scenario, _always(executor))
                await executor.close()
            assert run == one.rules[rule], (scenario.id, rule)


# -- with a model of the user's -----------------------------------------------------------------------------


async def test_a_model_of_the_users_is_counted_apart() -> None:
    """A model that answers at once with the marker does nothing: every goal about files is missed."""

    def claims(body: Any) -> Reply:
        assert body["model"] == "m-2"
        return answer(chat("TUNACODE DONE: did it"))

    async with Server(refuses=claims) as server:
        options = {"base_url": f"{server.url}/v1", "model_id": "m-1", "native_tools": True}
        executor = ModelStepExecutor(openai.connect(options, kind="vllm"))
        scenarios = [shipped()["S02"], shipped()["S03"]]
        live = Live(executor, "m-2", executor.close)
        measured = await measure(scenarios, styles=("native",), live=live)
        await live.close()
    plain = measured.to_plain()
    assert plain["premature"] == {LEGACY: 1, MACHINE: 0}
    assert plain["live"]["premature"] == {LEGACY: 2, MACHINE: 2}
    assert [one["id"] for one in plain["live"]["scenarios"]] == ["S02", "S03"]
    assert measured.passes


async def test_a_model_that_refuses_every_request_completes_nothing() -> None:
    async with Server(refuses=lambda body: answer({"error": {"message": "no"}}, 403)) as server:
        options = {"base_url": f"{server.url}/v1", "model_id": "m-1", "native_tools": True}
        executor = ModelStepExecutor(openai.connect(options, kind="vllm"))
        runs = [
            await play_plain(shipped()["S02"], _always(executor)),
            await play_machine(shipped()["S02"], _always(executor), MachineRule(confined=True)),
        ]
        await executor.close()
    assert [run.completed_at for run in runs] == [None, None]
    assert all("model_failed" in str(run.reason) for run in runs)
