"""Experiments: who gets which arm, what that changes for a run, and how the arms compare."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.apps.warranty.experiment import Trial, report, trial_for
from detent.apps.warranty.processor import EmailProcessor, StepOrchestrator
from detent.apps.warranty.settings import Experiment
from detent.dispatch.dispatcher import DispatchSettings
from detent.evals.compare import newcombe
from detent.kernel.entries import Moved
from detent.kernel.errors import ConfigurationError
from tests.apps.warranty.correspondence import ASK, CHECK, COVERED, FIRST, Mailbox, letter, mailbox, usual

AGENT = {FIRST: {"mode": "agent", "autonomy": "consultant"}}
FIRST_STEP = {
    "name": "first-step",
    "arms": {"heuristic": {"share": 50}, "llm": {"share": 50, "steps": AGENT}},
}


def trial(said: dict[str, Any] = FIRST_STEP) -> Trial:
    return Trial(Experiment.model_validate(said))


def thread_in(arm: str, number: int = 0) -> str:
    """The id of a mail whose thread is in an arm."""
    idents = (f"<t{one}@holt-bakery.example>" for one in range(1000))
    return [ident for ident in idents if trial().arm_of(ident) == arm][number]


@asynccontextmanager
async def experimenting(
    folder: Path, said: dict[str, Any] = FIRST_STEP, **more: Any
) -> AsyncIterator[Mailbox]:
    """A mailbox whose mails take part in an experiment."""
    async with mailbox(folder, {"orchestration": {"router": {"experiment": said}}}, **more) as box:
        router = box.orchestrator.router
        box.orchestrator = StepOrchestrator(box.components, box.engine, router, trial_for(box.settings))
        box.processor = EmailProcessor(box.orchestrator)
        yield box


class TestArms:
    @pytest.mark.parametrize("shares", [(50, 50), (90, 10), (1, 99), (34, 33, 33), (100, 0)])
    def test_arms_come_near_their_shares_over_a_thousand_threads(self, shares):
        """W-63."""
        said = {"name": "shares", "arms": {f"arm{n}": {"share": share} for n, share in enumerate(shares)}}
        here = trial(said)
        arms = [here.arm_of(f"<{number}@holt-bakery.example>") for number in range(1000)]
        for number, share in enumerate(shares):
            assert abs(arms.count(f"arm{number}") - 10 * share) <= 50

    def test_a_thread_stays_in_its_arm(self):
        """W-63."""
        assert len({trial().arm_of("<root@holt-bakery.example>") for _ in range(20)}) == 1

    def test_another_experiment_draws_anew(self):
        other = trial({**FIRST_STEP, "name": "second"})
        threads = [f"<{number}@holt-bakery.example>" for number in range(400)]
        same = sum(trial().arm_of(thread) == other.arm_of(thread) for thread in threads)
        assert 140 < same < 260

    @pytest.mark.parametrize(
        "arms",
        [
            {"a": {"share": 50}, "b": {"share": 49}},
            {"a": {"share": 100}},
            {"a": {"share": 50}, "b": {"share": 50, "steps": {CHECK: {"mode": "agent"}}}},
            {"a": {"share": 50}, "b": {"share": 50, "colour": "red"}},
        ],
    )
    def test_what_is_no_experiment_is_refused(self, arms):
        with pytest.raises(ValueError):
            trial({"name": "x", "arms": arms})


class TestRuns:
    async def test_an_answer_in_the_thread_is_in_the_same_arm(self, tmp_path):
        """W-63."""
        ident = thread_in("llm")
        async with experimenting(tmp_path) as box:
            first = await box.orchestrate(usual("valid", ident=ident))
            second = await box.orchestrate(
                letter(f"Still broken, S/N {COVERED}.", "Re: Printer", References=ident, In_Reply_To=ident)
            )
        assert first.context["experiment"] == {"name": "first-step", "arm": "llm"}
        assert second.context["experiment"] == {"name": "first-step", "arm": "llm"}

    async def test_the_arm_says_who_performs_the_first_step_and_nothing_else(self, tmp_path):
        """W-63."""
        executor = ScriptedStepExecutor(
            {FIRST: [{"text": f"SERIAL: {COVERED}\nNEXT_STEP: 02-check-warranty", "repeat": True}]}
        )
        dispatch = DispatchSettings(executors=ScriptedSource(executor))
        async with experimenting(tmp_path, dispatch=dispatch) as box:
            by = {}
            for arm in ("heuristic", "llm"):
                result = await box.orchestrate(usual("valid", ident=thread_in(arm)))
                assert result.completed
                entries = await box.entries(result.run_id)
                by[arm] = [entry.body.by for entry in entries if isinstance(entry.body, Moved)]
        assert by == {"heuristic": ["handler"] * 4, "llm": ["agent", "handler", "handler", "handler"]}
        assert len(executor.calls) == 1

    async def test_an_arm_may_have_a_strategy_of_its_own(self, tmp_path):
        said = {"name": "first-step", "arms": {"heuristic": {"share": 50, "strategy": "heuristic"},
                                               "llm": {"share": 50}}}  # fmt: skip
        async with experimenting(tmp_path, said) as box:
            quick = await box.orchestrate(usual("valid", ident=thread_in("heuristic")))
            usually = await box.orchestrate(usual("valid", ident=thread_in("llm")))
        assert (quick.path[0], usually.path[0]) == (CHECK, FIRST)

    async def test_the_log_names_the_arm(self, tmp_path):
        with structlog.testing.capture_logs() as logs:
            async with experimenting(tmp_path) as box:
                await box.orchestrate(usual("valid", ident=thread_in("llm")))
        (decided,) = [one for one in logs if one["event"] == "router.decided"]
        assert decided["arm"] == "llm"

    async def test_without_an_experiment_nothing_is_said_of_one(self, tmp_path):
        async with mailbox(tmp_path) as box:
            result = await box.orchestrate(usual("valid"))
        assert trial_for(box.settings) is None
        assert "experiment" not in result.context


class TestTheReport:
    async def test_the_arms_are_held_against_the_first(self, tmp_path):
        """W-63."""
        async with experimenting(tmp_path) as box:
            kinds = {"heuristic": ["valid", "valid", "no serial"], "llm": ["expired", "no serial"]}
            for arm, mails in kinds.items():
                for number, kind in enumerate(mails):
                    await box.orchestrate(usual(kind, ident=thread_in(arm, number)))
            found = await report(box.engine.store, "first-step", box.settings.orchestration.router.experiment)
        first, second = found.arms
        assert (first.name, first.runs, first.done, first.asked) == ("heuristic", 3, 3, 1)
        assert (second.name, second.runs, second.done, second.asked) == ("llm", 2, 2, 1)
        assert first.paths == {"01 → 02 → 03a → 05": 2, "01 → 03d": 1}
        assert second.ends == {"DONE": 2}
        assert (first.done_gap, first.asked_gap) == (None, None)
        assert second.asked_gap == newcombe(1, 2, 1, 3)
        assert second.too_small
        assert first.fallbacks == {}

    async def test_runs_with_nobody_to_ask_are_counted(self, tmp_path):
        """W-63."""
        async with experimenting(tmp_path) as box:
            for number in range(3):
                result = await box.orchestrate(usual("valid", ident=thread_in("llm", number)))
                assert result.completed
            await box.orchestrate(usual("valid", ident=thread_in("heuristic")))
            found = await report(box.engine.store, "first-step")
        assert [arm.name for arm in found.arms] == ["heuristic", "llm"]
        assert (found.arms[1].without_executor, found.arms[1].fallbacks) == (3, {"no_executor": 3})
        lines = "\n".join(found.lines())
        assert "llm: 3 of 3 runs had no model to ask (no_executor)" in lines
        assert "llm: too small (3 of 30 runs)" in lines

    async def test_tokens_and_money_are_those_of_the_arm(self, tmp_path):
        reply = {
            "text": f"SERIAL: {COVERED}\nNEXT_STEP: 02-check-warranty",
            "usage": {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.02},
            "repeat": True,
        }
        executor = ScriptedStepExecutor({FIRST: [reply]})
        dispatch = DispatchSettings(executors=ScriptedSource(executor))
        async with experimenting(tmp_path, dispatch=dispatch) as box:
            for number in range(2):
                await box.orchestrate(usual("valid", ident=thread_in("llm", number)))
            await box.orchestrate(usual("valid", ident=thread_in("heuristic")))
            found = await report(box.engine.store, "first-step")
        assert [(arm.tokens, arm.cost_usd) for arm in found.arms] == [(0, 0.0), (240, 0.04)]

    async def test_an_experiment_nobody_knows_is_an_error_that_names_the_one_there_is(self, tmp_path):
        async with experimenting(tmp_path) as box:
            experiment = box.settings.orchestration.router.experiment
            with pytest.raises(ConfigurationError, match="first-step"):
                await report(box.engine.store, "frist-step", experiment)
            empty = await report(box.engine.store, "first-step", experiment)
        assert [arm.runs for arm in empty.arms] == [0, 0]
        assert empty.to_plain()["arms"][0]["p50_ms"] is None

    async def test_thirty_runs_are_enough(self, tmp_path):
        async with experimenting(tmp_path) as box:
            for number in range(30):
                await box.orchestrate(usual("no serial", ident=thread_in("llm", number)))
            found = await report(box.engine.store, "first-step")
        (arm,) = found.arms
        assert (arm.runs, arm.too_small, arm.asked) == (30, False, 30)
        assert arm.paths == {"01 → 03d": 30}
        assert ASK.startswith("03d")
