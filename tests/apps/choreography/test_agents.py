"""Agents over HTTP that know the prompt alone: which of their answers are kept, at each level."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detent.apps.choreography.orchestrator import AgentOrchestrator
from detent.runtime.settings import Settings
from tests.apps.choreography import agents
from tests.apps.choreography.agents import Agent, ModelServer, serving

LEVELS = ("collaborator", "consultant", "approver")
GOOD: list[tuple[str, Agent]] = [
    ("plan", agents.planner),
    ("implement", agents.implementer),
    ("judge", agents.scored(95)),
    ("validate", agents.finds_nothing),
]
BAD: list[tuple[str, Agent]] = [
    ("plan", agents.fourteen_strobes),
    ("plan", agents.against_the_music),
    ("plan", agents.one_template),
    ("plan", agents.all_strobed),
    ("implement", agents.all_on_all),
    ("implement", agents.of_nothing),
    ("implement", agents.all_held),
    ("implement", agents.two_heads),
    ("judge", agents.scored(40)),
]


def values(server: ModelServer, step: str, level: str, **more: Any) -> dict[str, Any]:
    """Settings in which an agent behind the server performs a step, never lowered by what it has done."""
    return {
        "model": {"provider": "house"},
        "models": {"house": {"kind": "vllm", "base_url": server.url, "model_id": "m-1"}},
        "steps": {f"choreography/{step}": {"mode": "agent", "autonomy": level}},
        "autonomy": {"demote": {"enabled": False}, "recheck": 0},
        **more,
    }


def made(studio: Path, server: ModelServer, step: str, level: str, **more: Any) -> Any:
    orchestrator = AgentOrchestrator(settings=Settings(studio, values=values(server, step, level, **more)))
    result = orchestrator.run("song.wav", analyser="builtin", picture=False)
    assert orchestrator.token_budget_manager.total_used == result.tokens_used == 120 * len(server.prompts)
    return result


def performers(result: Any, step: str) -> list[str | None]:
    return [attempt.executors.get(step) for attempt in result.attempts]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("step", "agent"), GOOD, ids=[step for step, _ in GOOD])
def test_a_good_answer_is_kept(studio, step, agent, level):
    """R-58, R-60: written from the prompt alone, it passes at every level."""
    with serving(agent) as server:
        result = made(studio, server, step, level)
    assert (result.status, performers(result, step), len(server.prompts)) == ("success", ["agent"], 1)


@pytest.mark.parametrize(("step", "agent"), BAD)
def test_a_plausible_bad_answer_is_replaced_at_collaborator(studio, step, agent):
    """R-58: it breaks no rule of the validation; only the judge's score gives it away."""
    with serving(agent) as server:
        result = made(studio, server, step, "collaborator")
    assert (result.status, performers(result, step), len(server.prompts)) == ("success", ["code"], 1)
    assert result.evaluation.overall_score > 85


@pytest.mark.parametrize("level", LEVELS)
def test_an_answer_that_breaks_its_schema_is_no_plan(studio, level):
    """R-60: it is asked for once more, then the handler plans."""
    with serving(agents.no_plan) as server:
        result = made(studio, server, "plan", level)
    assert (result.status, performers(result, "plan"), len(server.prompts)) == ("success", ["code"], 2)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("step", "agent"), [("plan", agents.half_a_character), ("implement", agents.halves_of_bars)]
)
def test_an_answer_that_the_other_parts_cannot_read_is_not_used(studio, step, agent, level):
    """R-59: no schema says so, and a run that went on with it failed."""
    with serving(agent) as server:
        result = made(studio, server, step, level)
    assert (result.status, performers(result, step), len(server.prompts)) == ("success", ["code"], 2)


@pytest.mark.parametrize("level", LEVELS)
def test_a_text_of_an_agent_that_no_file_can_hold_is_spelled_out(studio, level):
    """R-59: the files are written, and say what the agent has said."""
    with serving(agents.finds_half_a_character) as server:
        result = made(studio, server, "validate", level)
    assert (result.status, performers(result, "validate")) == ("success", ["agent"])
    written = Path(result.files[0]).parent / "result.json"
    issues = json.loads(written.read_text(encoding="utf-8"))["attempts"][0]["validation"]["issues"]
    assert issues[-1]["message"] == "\ud83d"


def test_parts_of_no_section_of_the_plan_are_left_out_of_the_sequence(studio):
    """R-58, at the level where the agent has the last word: the run ends, and says what is missing."""
    with serving(agents.of_nothing) as server:
        result = made(studio, server, "implement", "approver")
    assert (result.status, performers(result, "implement")) == ("incomplete", ["agent"] * 3)
    assert any("of no section of the plan: left out" in line for line in result.warnings)
    assert Path(result.files[0]).parent.joinpath("song_detent_mh.xsq").exists()


@pytest.mark.parametrize(
    ("level", "status", "planned"),
    [
        ("collaborator", "success", ["code"]),
        ("consultant", "success", ["agent", "agent", "code"]),
        ("approver", "incomplete", ["agent", "agent", "agent"]),
    ],
)
def test_a_planner_that_always_errs_never_has_the_last_attempt_below_approver(studio, level, status, planned):
    """R-59: the handler's show in the end, or the best of its own."""
    with serving(agents.fourteen_strobes) as server:
        result = made(studio, server, "plan", level)
    assert (result.status, performers(result, "plan")) == (status, planned)
    assert Path(result.files[0]).parent.joinpath("song_detent_mh.xsq").exists()
    if len(server.prompts) > 1:
        assert "judged too weak, to be planned anew" in server.prompts[1]
        assert "strobe_over_60_percent" in server.prompts[1]


def test_the_prompt_asks_for_the_plan_alone(studio):
    """R-60: no state, no effect, no verdict, no milliseconds or channel values; the rules are in words."""
    with serving(agents.planner) as server:
        made(studio, server, "plan", "collaborator")
    (prompt,) = server.prompts
    for word in ("next_state", "NEXT_STEP", "budget_exhausted", "effects", "pass_threshold", "DMX", "_ms"):
        assert word not in prompt
    shown = json.JSONDecoder().raw_decode(prompt, prompt.rindex("INPUTS\n") + 7)[0]
    assert len(json.dumps(shown, ensure_ascii=False).encode()) <= 12 * 1024
    assert "audio" not in shown
    assert len(shown["templates"]) >= 18
    assert "There is no gap" in prompt


def test_why_names_an_answer_that_was_replaced(studio, detent):
    """R-58: with the reason, on the command line."""
    with serving(agents.fourteen_strobes) as server:
        settings = values(server, "plan", "collaborator")
        (studio / "detent.yaml").write_text(json.dumps(settings))
        ran = detent("run", "choreography", "song.wav", "--analyser", "builtin", "--no-picture", "--id", "r1")
    assert ran.code == 0, ran.err
    assert "120 tokens" in ran.out
    why = detent("why", "r1").out
    assert "fell back to the handler: refused by the validator" in why
    assert "code's own" in why


def test_a_budget_that_is_used_up_is_reopened_with_a_larger_one(studio, detent):
    """R-66: nothing that is made is made again, and what was spent still counts."""
    with serving(agents.planner) as server:
        (studio / "detent.yaml").write_text(json.dumps(values(server, "plan", "consultant")))
        arguments = ("--analyser", "builtin", "--token-budget", "100", "--id", "r1")
        ran = detent("run", "choreography", "song.wav", *arguments)
        assert (ran.code, len(server.prompts)) == (1, 1)
        assert "Token budget exhausted" in ran.out
        assert "there is no implementation to write" in ran.out
        assert not list(studio.rglob("*.xsq"))
        reopened = detent("reopen", "r1", "--budget-tokens", "1000")
        assert reopened.code == 0, reopened.err
        assert len(server.prompts) == 1
    assert "song_detent_mh.xsq" in reopened.out
    result = json.loads((studio / "song" / "result.json").read_text())
    assert (result["status"], result["tokens_used"], result["iterations"]) == ("success", 120, 1)
