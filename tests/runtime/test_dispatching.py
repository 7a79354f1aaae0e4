"""From settings to who performs which step."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from detent import Flow, Machine, Outcome, Status, query, tool
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import UNSAID, StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.evidence import ByLevel, EvidenceRules
from detent.engine.step import Step
from detent.runtime.dispatch_settings import dispatch_settings, shown_place
from detent.runtime.settings import SettingsError, read_settings
from detent.runtime.wiring import engine_for


@query("desk.look")
async def look(name: str) -> str:
    """Look somebody up."""
    return name


@tool("desk.send")
async def send(to: str) -> str:
    """Send a mail."""
    return to


async def handler(ctx: Any) -> Outcome:
    """Do what the step is for, in ordinary code."""
    return Outcome(set={"by": "handler"})


def flow(name: str = "mail", *steps: str, **options: Any) -> Flow:
    """A straight flow through these steps."""
    names = steps or ("read", "answer")
    moves = {one: [other] for one, other in zip(names, (*names[1:], "done"), strict=True)}
    return Flow(
        Machine(name, start=names[0], moves=moves, ends={"done": Status.SUCCEEDED}),
        {
            one: Step(
                one, handler, "Bring the step to its end.", effects=("desk.send",), queries=("desk.look",)
            )
            for one in names
        },
        tools=[look, send],
        **options,
    )


def dispatch(folder: Path, text: str, *flows: Flow, environ: dict[str, str] | None = None, **options: Any):
    (folder / "detent.yaml").write_text(text)
    settings = read_settings(folder=folder, environ=environ or {})
    return dispatch_settings(settings, flows or [flow()], environ=environ or {}, **options)


def problems(folder: Path, text: str, *flows: Flow, **options: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        dispatch(folder, text, *flows, **options)
    return [str(problem) for problem in caught.value.problems]


def test_nothing_configured_is_nothing_said(tmp_path):
    found = dispatch(tmp_path, "")
    assert (found.steps, found.agents, found.model) == ({}, {}, UNSAID)
    assert not found.force_deterministic
    assert found.evidence == EvidenceRules()
    assert found.executors is not None
    assert found.executors.default is None
    assert found.cwd == tmp_path


def test_each_layer_is_read(tmp_path):
    found = dispatch(
        tmp_path,
        "models: {big: {kind: openai}}\n"
        "steps: {mail/read: {mode: agent}, answer: {timeout: 3}}\n"
        "agents: {dispatch: {temperature: 0.5}}\n"
        "model: {provider: big, id: m-1, max_tokens: 100, base_url: 'http://127.0.0.1:1'}\n",
    )
    assert found.steps == {"mail/read": StepConfig(mode=StepMode.AGENT), "answer": StepConfig(timeout=3.0)}
    assert found.agents == {"dispatch": StepConfig(temperature=0.5)}
    assert found.model == StepConfig(provider="big", model_id="m-1", max_tokens=100)
    assert found.executors is not None
    assert found.executors.default == "big"


def test_a_model_of_nobody_names_no_provider(tmp_path):
    found = dispatch(tmp_path, "model: {provider: none, temperature: 0}")
    assert found.model == StepConfig(temperature=0.0)
    assert found.executors is not None
    assert found.executors.default is None


def test_a_key_that_names_no_step_names_the_nearest(tmp_path):
    """D-54"""
    found = problems(tmp_path, "steps:\n  mail/anwser: {mode: agent}\n  raed: {}\n  zzz: {}\n")
    assert found == [
        "detent.yaml:2:3: E025 there is no step 'mail/anwser'. Did you mean 'mail/answer' or 'mail/read'? "
        "(steps['mail/anwser'])",
        "detent.yaml:3:3: E025 there is no step 'raed'. Did you mean 'read'? (steps.raed)",
        "detent.yaml:4:3: E025 there is no step 'zzz'. See `detent steps list`; "
        "if its flow is in a file, list that file under `plugins`. (steps.zzz)",
    ]


def test_a_step_of_a_flow_not_yet_known_may_be_configured_in_advance(tmp_path):
    found = dispatch(tmp_path, "steps: {later: {mode: agent}}", complete=False)
    assert found.steps == {"later": StepConfig(mode=StepMode.AGENT)}


def test_an_unknown_agent_and_what_agents_cannot_say_are_told(tmp_path):
    """D-54, D-52"""
    found = problems(tmp_path, "agents:\n  dispach: {}\n  dispatch: {timeout: 3}\n")
    assert found == [
        "detent.yaml:2:3: E025 there is no agent 'dispach'. Did you mean 'dispatch'? (agents.dispach)",
        "detent.yaml:3:14: agents.dispatch: timeout belongs to a step, in its own configuration or under "
        "`steps`; here stand provider, model_id, temperature, max_tokens.",
    ]


def test_all_problems_of_all_layers_are_told_at_once_with_their_lines(tmp_path):
    """D-52, D-54"""
    found = problems(
        tmp_path,
        "models: {big: {kind: opnai}}\n"
        "steps:\n"
        "  read:\n"
        "    mode: agnt\n"
        "    budget:\n"
        "      tokens: 0\n"
        "  answer:\n"
        "    mode: agent\n"
        "    allowed_tools: [desk.lok]\n"
        "    provider: bigg\n"
        "model: {id: a, model_id: b, temperature: 4}\n"
        "autonomy: {tolerate: 0}\n",
    )
    assert [one.split(" is ")[0].split(";")[0] for one in found] == [
        "detent.yaml:4:5: steps.read: mode",
        "detent.yaml:6:7: steps.read: budget.tokens",
        "detent.yaml:11:9: model: id and model_id mean the same",
        "detent.yaml:11:29: model: temperature",
        "detent.yaml:12:1: autonomy: Rules of evidence: tolerate lies between 0 and 1, both excluded: no "
        "evidence shows that none",
        "detent.yaml:1:16: 'models.big.kind'",
        "detent.yaml:10:5: steps.answer: there",
        "detent.yaml:9:5: step 'mail/answer', steps.answer: allowed_tools names 'desk.lok', "
        "which the step does not declare. Did you mean 'desk.look'? It declares: desk.look, desk.send.",
    ]


def test_layers_that_do_not_add_up_are_told_with_the_line_of_the_field(tmp_path):
    found = problems(tmp_path, "steps:\n  read:\n    timeout: 3\n    prompt_suffix: Be brief.\n")
    assert found == [
        "detent.yaml:4:5: step 'mail/read', steps.read: prompt_suffix is for agents, "
        "but no layer says mode: agent (and shadow is off)."
    ]


def test_options_no_model_can_be_made_of_are_told_before_a_run_begins(tmp_path):
    text = "models: {big: {kind: ollama, base_ulr: x}}\nsteps: {read: {mode: %s}}\n"
    assert "detent.yaml:1:10: models.big: " in problems(tmp_path, text % "agent")[0]
    # Nobody asks it, so nobody needs it to be right.
    assert dispatch(tmp_path, text % "deterministic").steps


def test_a_prompt_file_is_read_from_beside_the_file_that_names_it(tmp_path):
    """D-42"""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "read.md").write_text("Read between the lines.")
    text = "steps: {read: {mode: agent, prompt_file: %s}}"
    assert dispatch(tmp_path, text % "prompts/read.md").steps["read"].prompt_text == "Read between the lines."
    assert problems(tmp_path, text % "gone.md") == [
        f"detent.yaml:1:29: steps.read: prompt_file {tmp_path / 'gone.md'} cannot be read: "
        f"No such file or directory."
    ]


def test_an_entry_without_fields_says_nothing(tmp_path):
    assert dispatch(tmp_path, "steps:\n  read:\n").steps == {}


def test_a_variable_can_switch_a_step(tmp_path):
    """D-05"""
    environ = {"DETENT__STEPS__MAIL_READ__MODE": "agent"}
    found = dispatch(tmp_path, "", environ=environ)
    assert found.steps == {"mail/read": StepConfig(mode=StepMode.AGENT)}
    settings = read_settings(folder=tmp_path, environ=environ)
    assert shown_place(settings, "steps.mail/read", "mode") == "DETENT__STEPS__MAIL_READ__MODE"


def test_places_are_known_for_what_files_say_and_for_nothing_else(tmp_path):
    (tmp_path / "detent.yaml").write_text("model: {id: m}\nsteps: {read: {timeout: 3}}\n")
    settings = read_settings(folder=tmp_path, environ={})
    assert shown_place(settings, "model", "model_id") == "detent.yaml:1:9"
    assert shown_place(settings, "steps.read", "timeout") == "detent.yaml:2:16"
    assert shown_place(settings, "inline", "timeout") is None
    assert shown_place(settings, "default", "mode") is None


def test_secrets_are_taken_from_the_environment(tmp_path):
    environ = {"MY_VARIABLE": "key-0123456789", "PLAIN": "plain-0123456789", "X_TOKEN": "tok-0123456789"}
    found = dispatch(tmp_path, "models: {big: {kind: openai, api_key_env: MY_VARIABLE}}", environ=environ)
    assert found.secrets == {"key-0123456789", "tok-0123456789"}


def test_rules_of_evidence_are_read(tmp_path):
    found = dispatch(
        tmp_path,
        "autonomy:\n  tolerate: {consultant: 0.1}\n  audit: 0.5\n  risk: 0.01\n  recheck: 5\n  harm: 20\n"
        "  patience: 500\n  min_days: 1\n  max_unusable: 0.2\n  min_power: 0.8\n  audit_per_day: 2\n"
        "  demote: {enabled: false, floor: collaborator}\n",
    )
    assert found.evidence == EvidenceRules(
        tolerate=ByLevel(0.1, 0.01),
        audit=ByLevel(0.5, 0.5),
        risk=0.01,
        recheck=5,
        harm=20,
        patience=500,
        min_days=1,
        max_unusable=0.2,
        min_power=0.8,
        audit_per_day=2,
        demote=False,
        floor=AutonomyLevel.COLLABORATOR,
    )


def test_the_settings_of_the_version_before_are_read_and_warned_about(tmp_path, caplog):
    found = dispatch(
        tmp_path,
        "agreement: {min_n: 10, min_lower95: 0.9, window: 5}\n"
        "autonomy: {demote: {hard: 1, agreement: 0.5, window: 7}}\n",
    )
    assert found.evidence == EvidenceRules()
    (record,) = [record for record in caplog.records if "W008" in record.getMessage()]
    assert "agreement.min_n" in record.getMessage()
    assert "autonomy.demote.hard" in record.getMessage()


def test_agents_can_be_switched_off_by_argument_and_environment(tmp_path):
    """D-60"""
    assert dispatch(tmp_path, "", deterministic=True).force_deterministic
    assert dispatch(tmp_path, "", environ={"DETENT_FORCE_DETERMINISTIC": "yes"}).force_deterministic


def test_an_agent_that_is_never_asked_is_warned_about_when_settings_are_read(tmp_path, caplog):
    """D-15"""
    with caplog.at_level(logging.WARNING, "detent"):
        dispatch(tmp_path, "steps: {read: {mode: agent, autonomy: operator}}")
    assert "W002" in caplog.text


def test_two_flows_may_have_a_step_of_one_name_and_a_qualified_key_tells_them_apart(tmp_path):
    flows = flow("one", "a"), flow("two", "a")
    found = dispatch(tmp_path, "steps: {a: {timeout: 1}, two/a: {timeout: 2}}", *flows)
    assert {key: config.timeout for key, config in found.steps.items()} == {"a": 1.0, "two/a": 2.0}


async def test_one_line_of_settings_switches_a_step_of_an_unchanged_flow(tmp_path):
    """D-05, D-01"""
    (tmp_path / "answers.yaml").write_text("answer: [{output: {by: agent}}]\n")
    text = "store: 'memory:'\nmodels: {script: {kind: scripted, file: answers.yaml}}\n"
    ends = []
    for said in ("", "steps: {answer: {mode: agent, autonomy: approver}}\n"):
        (tmp_path / "detent.yaml").write_text(text + said)
        settings = read_settings(folder=tmp_path, environ={})
        made = Flow(
            Machine("mail", start="answer", moves={"answer": ["done"]}, ends={"done": Status.SUCCEEDED}),
            {"answer": Step("answer", handler, "Say who answered, in one word.")},
        )
        async with engine_for(settings, [made]) as engine:
            ends.append((await engine.run("mail")).data["by"])
    assert ends == ["handler", "agent"]


async def test_a_forced_engine_asks_no_agent(tmp_path):
    """D-60"""
    (tmp_path / "answers.yaml").write_text("answer: [{output: {by: agent}}]\n")
    (tmp_path / "detent.yaml").write_text(
        "store: 'memory:'\nmodels: {script: {kind: scripted, file: answers.yaml}}\n"
        "steps: {answer: {mode: agent, autonomy: approver}}\n"
    )
    settings = read_settings(folder=tmp_path, environ={})
    async with engine_for(settings, [flow()], deterministic=True) as engine:
        assert (await engine.run("mail")).data["by"] == "handler"


def test_what_is_read_is_what_engines_take(tmp_path):
    assert isinstance(dispatch(tmp_path, ""), DispatchSettings)
