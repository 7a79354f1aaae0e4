"""How a step is configured: one layer's values, and what four layers add up to."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.dispatch.autonomy import AutonomyLevel, ProsePolicy, StepMode, TextReview
from detent.dispatch.config import (
    AGENT_ONLY,
    EVERYWHERE,
    FIELDS,
    StepConfig,
    StepConfigError,
    resolve,
)
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError
from detent.kernel.policy import RetryPolicy

WHERE = "detent.yaml, line 7: steps.commit"


def problems(said: Any, **options: Any) -> list[str]:
    with pytest.raises(StepConfigError) as caught:
        StepConfig.read(said, where=WHERE, **options)
    return [problem.removeprefix(f"{WHERE}: ") for problem in caught.value.problems]


# -- one layer ----------------------------------------------------------------------------------------------


def test_a_layer_that_says_nothing_holds_nothing():
    assert StepConfig.read({}) == StepConfig()
    assert StepConfig.read(dict.fromkeys(FIELDS)) == StepConfig()
    assert StepConfig().said == ()
    assert StepConfig().to_plain() == {}


def test_every_field_is_read_into_its_own_type():
    read = StepConfig.read(
        {
            "mode": "agent",
            "autonomy": "consultant",
            "provider": "big",
            "model_id": "m-1",
            "temperature": 1,
            "max_tokens": 5,
            "timeout": 3,
            "max_retries": 0,
            "allowed_tools": [],
            "prompt_suffix": "Be brief.",
            "budget": {"tokens": 10, "cost_usd": 0.5, "seconds": 2},
            "shadow": True,
        }
    )
    assert read == StepConfig(
        mode=StepMode.AGENT,
        autonomy=AutonomyLevel.CONSULTANT,
        provider="big",
        model_id="m-1",
        temperature=1.0,
        max_tokens=5,
        timeout=3.0,
        max_retries=0,
        allowed_tools=(),
        prompt_suffix="Be brief.",
        budget=Budget(tokens=10, cost_usd=0.5, seconds=2),
        shadow=1.0,
    )
    assert StepConfig.read(read.to_plain()) == read


def test_a_layer_made_in_code_may_use_plain_values_too():
    made = StepConfig(mode="agent", shadow=False, prompt_file="a.md", allowed_tools=["x"])  # type: ignore[arg-type]
    assert (made.mode, made.shadow, made.prompt_file) == (StepMode.AGENT, 0.0, Path("a.md"))
    assert made.allowed_tools == ("x",)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"mode": "agnt"}, "mode is 'agnt'; it takes deterministic or agent. Did you mean 'agent'?"),
        ({"mode": ["agent"]}, "mode is a list; it takes deterministic or agent."),
        (
            {"autonomy": "boss"},
            "autonomy is 'boss'; it takes operator, collaborator, consultant or approver.",
        ),
        ({"provider": ""}, "provider is ''; it takes a name."),
        ({"model_id": 4}, "model_id is 4; it takes a name."),
        ({"temperature": 1.5}, "temperature is 1.5; it takes a number from 0.0 to 1.0."),
        ({"temperature": -0.1}, "temperature is -0.1; it takes a number from 0.0 to 1.0."),
        ({"temperature": True}, "temperature is True; it takes a number from 0.0 to 1.0."),
        ({"temperature": float("nan")}, "temperature is nan; it takes a number from 0.0 to 1.0."),
        ({"max_tokens": 0}, "max_tokens is 0; it takes a whole number from 1 to 200000."),
        ({"max_tokens": 200_001}, "max_tokens is 200001; it takes a whole number from 1 to 200000."),
        ({"max_tokens": 5.0}, "max_tokens is 5.0; it takes a whole number from 1 to 200000."),
        ({"timeout": 0}, "timeout is 0; it takes a number of seconds above 0."),
        ({"timeout": "5m"}, "timeout is '5m'; it takes a number of seconds above 0."),
        ({"max_retries": -1}, "max_retries is -1; it takes a whole number of 0 or more."),
        ({"max_retries": True}, "max_retries is True; it takes a whole number of 0 or more."),
        ({"allowed_tools": "git"}, "allowed_tools is 'git'; it takes a list of tool names, [] for none."),
        (
            {"allowed_tools": [1]},
            "allowed_tools has an item that is no tool name; it takes a list of names, [] for none.",
        ),
        ({"prompt_suffix": 3}, "prompt_suffix is 3; it takes a text."),
        ({"prompt_file": ""}, "prompt_file is ''; it takes the path of a text file."),
        ({"budget": {}}, "budget is a mapping; it takes tokens, cost_usd or seconds."),
        ({"budget": {"tokens": 0}}, "budget.tokens is 0; it takes a whole number above 0."),
        ({"budget": {"cost_usd": -1}}, "budget.cost_usd is -1; it takes a number above 0."),
        (
            {"budget": {"steps": 3}},
            "budget.steps is no limit of a step; it takes tokens, cost_usd or seconds.",
        ),
        ({"shadow": 1.1}, "shadow is 1.1; it takes true, false or a share from 0 to 1."),
        ({"shadow": "often"}, "shadow is 'often'; it takes true, false or a share from 0 to 1."),
        (
            {"retry_policy": {"attempts": 2}},
            "retry_policy.attempts is not known; it takes max_attempts, wait_min or wait_max. "
            "Did you mean 'max_attempts'?",
        ),
        (
            {"prompt_suffix": "a", "prompt_file": "b"},
            "prompt_suffix and prompt_file are two ways of saying the same; say one of them.",
        ),
        (
            {"max_retries": 1, "retry_policy": {}},
            "max_retries and retry_policy are two ways of saying the same; say one of them.",
        ),
        ({"model": "a", "model_id": "b"}, "model is the old name of model_id; say one of them."),
        (
            {"mode": "deterministic", "autonomy": "collaborator"},
            "autonomy above operator is for agents, but the same place says mode: deterministic.",
        ),
        (
            {"mode": "deterministic", "allowed_tools": []},
            "allowed_tools is for agents, but the same place says mode: deterministic.",
        ),
        (
            {"mode": "deterministic", "prompt_suffix": "x", "shadow": True},
            "prompt_suffix is for agents, but the same place says mode: deterministic.",
        ),
        (
            {"mode": "deterministic", "prompt_file": "x"},
            "prompt_file is for agents, but the same place says mode: deterministic.",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_field_and_place(said, told):
    """D-52"""
    found = problems(said)
    assert told in "\n".join(found)
    assert len(found) == 1


def test_a_hint_names_the_nearest_limit_of_a_budget():
    assert "Did you mean 'tokens'?" in problems({"budget": {"tokns": 3}})[0]


def test_a_deterministic_layer_may_say_operator():
    assert StepConfig.read({"mode": "deterministic", "autonomy": "operator"}).said == ("mode", "autonomy")


def test_all_problems_of_a_layer_are_told_at_once():
    """D-52"""
    found = problems(
        {"mode": "x", "temprature": 1, "max_tokens": 0, "budget": {"tokens": -1, "sconds": 1}, "shadow": 2}
    )
    assert [problem.split()[0] for problem in found] == [
        "temprature",
        "mode",
        "max_tokens",
        "budget.tokens",
        "budget.sconds",
        "shadow",
    ]
    with pytest.raises(StepConfigError) as caught:
        StepConfig(temperature=2, max_tokens=0)
    assert len(caught.value.problems) == 2
    assert isinstance(caught.value, ConfigurationError)
    assert str(caught.value).startswith("The step configuration has 2 problems:\n  temperature is 2")


def test_an_unknown_key_names_the_nearest_or_all_of_them():
    """D-54"""
    assert problems({"temprature": 0}) == [
        "temprature is not a key of a step's configuration. Did you mean 'temperature'?"
    ]
    assert ", ".join(FIELDS) in problems({"zzz": 0})[0]


def test_what_is_no_mapping_is_no_configuration():
    assert problems("agent") == ["a step is configured by named values, such as `mode: agent`."]


def test_each_field_may_have_a_place_of_its_own():
    lines = {"mode": 3, "timeout": 4}
    with pytest.raises(StepConfigError) as caught:
        StepConfig.read({"mode": "x", "timeout": 0}, where=lambda field: f"line {lines[field]}")
    assert [problem[:7] for problem in caught.value.problems] == ["line 3:", "line 4:"]


def test_a_long_text_is_not_repeated_in_the_message():
    assert problems({"mode": "secret " * 40})[0].startswith("mode is a long text;")


def test_a_suffix_may_have_16_kib_and_no_more():
    """D-52"""
    assert StepConfig(prompt_suffix="ä" * 8192).prompt_suffix
    assert "has 16386 bytes; it may have 16384 at most" in problems({"prompt_suffix": "ä" * 8193})[0]


def test_the_old_name_of_model_id_is_read_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "detent"), pytest.warns(DeprecationWarning, match="say 'model_id'"):
        assert StepConfig.read({"model": "m"}, where=WHERE).model_id == "m"
    assert "config.deprecated" in caplog.text


def test_a_retry_policy_is_read_with_a_warning_and_counts_all_attempts():
    with pytest.warns(DeprecationWarning, match="say 'max_retries'"):
        read = StepConfig.read({"retry_policy": {"max_attempts": 4, "wait_min": 0}})
    assert read.retry_policy == RetryPolicy(4, 0, 10.0)
    assert read.to_plain() == {"retry_policy": {"max_attempts": 4, "wait_min": 0, "wait_max": 10.0}}
    assert resolve("a", flow="f", inline=read).retry == RetryPolicy(4, 0, 10.0)


def test_a_prompt_file_is_found_beside_whoever_names_it_and_read():
    """D-42"""
    asked: list[Path] = []

    def text(path: Path) -> str:
        asked.append(path)
        return "Write like a poet."

    read = StepConfig.read({"prompt_file": "prompts/a.md"}, folder=Path("/project"), read_text=text)
    assert asked == [Path("/project/prompts/a.md")]
    assert read.prompt_file == Path("/project/prompts/a.md")
    assert read.prompt_text == read.prompt_extra == "Write like a poet."
    assert read.to_plain() == {"prompt_file": "prompts/a.md"}


def test_a_prompt_file_that_cannot_be_used_says_why(tmp_path):
    """D-42, D-52"""

    def text(path: Path) -> str:
        return path.read_text(encoding="utf-8")

    options = {"folder": tmp_path, "read_text": text}
    assert "cannot be read: No such file" in problems({"prompt_file": "gone.md"}, **options)[0]
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    assert "is not UTF-8 text (byte 3)" in problems({"prompt_file": "latin.md"}, **options)[0]
    (tmp_path / "long.md").write_text("x" * (64 * 1024 + 1))
    assert "has 65537 bytes; it may have 65536 at most" in problems({"prompt_file": "long.md"}, **options)[0]


# -- layers together ----------------------------------------------------------------------------------------

SAMPLES: dict[str, tuple[Any, Any]] = {
    "mode": (StepMode.AGENT, StepMode.DETERMINISTIC),
    "autonomy": (AutonomyLevel.CONSULTANT, AutonomyLevel.COLLABORATOR),
    "provider": ("a", "b"),
    "model_id": ("m1", "m2"),
    "temperature": (0.1, 0.9),
    "max_tokens": (1, 2),
    "timeout": (1.5, 2.5),
    "max_retries": (4, 5),
    "retry_policy": (RetryPolicy(7), RetryPolicy(8)),
    "allowed_tools": (("look",), ()),
    "prompt_suffix": ("x", "y"),
    "prompt_file": (Path("x.md"), Path("y.md")),
    "budget": (Budget(tokens=3), Budget(seconds=4)),
    "shadow": (0.25, 0.5),
    "review": (TextReview.PERSON, TextReview.PERSON),
    "review_within": (60.0, 14_400.0),
    "prose": (ProsePolicy.FREE, ProsePolicy.FREE),
}
LAYERS = ("inline", "steps.flow/step", "steps.step", "agents.dispatch", "model")


def laid(layers: dict[str, StepConfig], **options: Any):
    """Resolve the step `flow/step` with the layers given by name."""
    return resolve(
        "step",
        flow="flow",
        inline=layers.get("inline", StepConfig()),
        steps={name.removeprefix("steps."): layer for name, layer in layers.items() if "steps." in name},
        agent=layers.get("agents.dispatch"),
        model=layers.get("model", StepConfig()),
        **{"tools": ["look", "send"], **options},
    )


def suppliers(field: str) -> tuple[str, ...]:
    return LAYERS if field in EVERYWHERE else LAYERS[:3]


@pytest.mark.parametrize("field", FIELDS)
def test_the_higher_of_two_layers_wins_and_is_named(field):
    """D-53"""
    layers = suppliers(field)
    higher, lower = SAMPLES[field]
    # Agent-only fields need an agent; the mode is said above, so that nothing is dropped.
    base = {} if field == "mode" else {"mode": StepMode.AGENT}
    for index, high in enumerate(layers):
        for low in layers[index + 1 :]:
            said = {high: StepConfig(**{field: higher}), low: StepConfig(**{field: lower})}
            if base:
                top = {**base, field: higher} if high == "inline" else base
                said["inline"] = StepConfig(**top)
            found = laid(said)
            assert getattr(found.config, field) == higher, (high, low)
            assert found.sources[field] == high


@given(st.data())
def test_each_field_comes_from_the_first_layer_that_says_it(data):
    """D-53, for any mixture of layers that say anything"""
    fields = [name for name in FIELDS if name not in ("mode", "retry_policy", "prompt_file", "prose")]
    layers: dict[str, dict[str, Any]] = {name: {} for name in LAYERS}
    layers["inline"]["mode"] = StepMode.AGENT
    for field in fields:
        for layer in suppliers(field):
            if data.draw(st.booleans()):
                layers[layer][field] = data.draw(st.sampled_from(SAMPLES[field]))
    found = laid({name: StepConfig(**said) for name, said in layers.items()})
    for field in fields:
        first = next((name for name in LAYERS if field in layers[name]), None)
        assert found.sources[field] == (first or "default")
        if first is not None:
            assert getattr(found.config, field) == layers[first][field]
    assert set(found.sources) == set(FIELDS)


def test_nothing_said_is_deterministic_and_operator():
    """D-06"""
    found = laid({})
    assert found.config == StepConfig(
        mode=StepMode.DETERMINISTIC,
        autonomy=AutonomyLevel.OPERATOR,
        temperature=0.0,
        max_tokens=8192,
        max_retries=0,
        shadow=0.0,
    )
    assert found.config.timeout is None
    assert found.retry.max_attempts == 1
    assert set(found.sources.values()) == {"default"}
    assert (found.dropped, found.warnings, found.forced) == ((), (), False)


def test_agent_mode_alone_is_collaborator():
    """D-06"""
    found = laid({"steps.step": StepConfig(mode=StepMode.AGENT)})
    assert found.config.autonomy is AutonomyLevel.COLLABORATOR
    assert found.config.timeout == 300.0
    assert found.retry.max_attempts == 3
    assert found.sources["mode"] == "steps.step"
    assert found.sources["autonomy"] == "default"


def test_two_ways_of_saying_one_thing_hide_each_other_across_layers():
    found = laid(
        {
            "inline": StepConfig(mode=StepMode.AGENT, max_retries=1, prompt_suffix="here"),
            "steps.step": StepConfig(retry_policy=RetryPolicy(9), prompt_file=Path("there.md")),
        }
    )
    assert found.retry.max_attempts == 2
    assert (found.config.prompt_suffix, found.config.prompt_file) == ("here", None)


def test_the_text_of_a_prompt_file_comes_with_it():
    read = StepConfig.read({"prompt_file": "a.md"}, folder=Path("/p"), read_text=lambda path: "text")
    found = laid({"inline": StepConfig(mode=StepMode.AGENT), "steps.step": read})
    assert found.config.prompt_extra == "text"
    assert found.to_plain()["config"]["prompt_file"] == "a.md"


@pytest.mark.parametrize("high", ["inline", "steps.flow/step"])
def test_agent_only_fields_below_a_deterministic_layer_are_dropped_and_listed(high):
    below = StepConfig(
        mode=StepMode.AGENT,
        autonomy=AutonomyLevel.APPROVER,
        allowed_tools=("look",),
        prompt_suffix="x",
        timeout=9.0,
    )
    found = laid({high: StepConfig(mode=StepMode.DETERMINISTIC), "steps.step": below})
    assert found.dropped == ("autonomy", "allowed_tools", "prompt_suffix")
    assert found.config.autonomy is AutonomyLevel.OPERATOR
    assert found.config.prompt_suffix is None
    assert found.config.timeout == 9.0  # a handler has time limits too
    assert found.sources["prompt_suffix"] == "default"


def test_an_agent_only_field_that_no_agent_will_see_is_an_error():
    """D-52"""
    with pytest.raises(StepConfigError) as caught:
        laid({"steps.step": StepConfig(prompt_suffix="x", autonomy=AutonomyLevel.APPROVER)})
    why = "is for agents, but no layer says mode: agent (and shadow is off)."
    assert caught.value.problems == [
        f"steps.step: autonomy above operator {why}",
        f"steps.step: prompt_suffix {why}",
    ]
    with pytest.raises(StepConfigError, match="inline: prompt_suffix is for agents, but steps.step says"):
        laid({"inline": StepConfig(prompt_suffix="x"), "steps.step": StepConfig(mode=StepMode.DETERMINISTIC)})


def test_a_shadowing_agent_may_be_configured_without_a_mode():
    found = laid({"steps.step": StepConfig(prompt_suffix="x", shadow=0.5, allowed_tools=("look",))})
    assert found.config.mode is StepMode.DETERMINISTIC
    assert (found.config.prompt_suffix, found.config.allowed_tools) == ("x", ("look",))


def test_an_agent_layer_says_nothing_about_the_step():
    """D-52"""
    with pytest.raises(StepConfigError) as caught:
        laid({"agents.dispatch": StepConfig(timeout=3.0), "model": StepConfig(mode=StepMode.AGENT)})
    assert [problem.split(" in its own")[0] for problem in caught.value.problems] == [
        "agents.dispatch: timeout belongs to a step,",
        "model: mode belongs to a step,",
    ]


def test_a_tool_the_step_does_not_declare_cannot_be_allowed():
    """D-54"""
    layer = StepConfig(mode=StepMode.AGENT, allowed_tools=("look", "snd"))
    with pytest.raises(StepConfigError) as caught:
        laid({"inline": layer})
    assert caught.value.problems == [
        "inline: allowed_tools names 'snd', which the step does not declare. "
        "Did you mean 'send'? It declares: look, send."
    ]
    assert caught.value.found[0][:2] == ("inline", "allowed_tools")


def test_forcing_drops_everything_an_agent_would_need():
    """D-60"""
    layer = StepConfig(
        mode=StepMode.AGENT,
        autonomy=AutonomyLevel.APPROVER,
        prompt_suffix="x",
        allowed_tools=("no such tool",),
        shadow=1.0,
        max_retries=4,
    )
    found = laid({"inline": layer}, forced=True)
    assert found.forced
    assert found.config.mode is StepMode.DETERMINISTIC
    assert found.config.autonomy is AutonomyLevel.OPERATOR
    assert found.config.shadow == 0.0
    assert found.config.max_retries == 4
    assert found.sources["mode"] == found.sources["shadow"] == "forced"
    assert found.dropped == ("autonomy", "allowed_tools", "prompt_suffix")
    assert found.to_plain()["forced"] is True


def test_an_agent_that_is_never_asked_is_warned_about():
    """D-15"""
    found = laid({"inline": StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.OPERATOR)})
    assert [code for code, _ in found.warnings] == ["W002"]
    assert "operator requires mode deterministic" in found.warnings[0][1]


def test_more_trust_than_the_step_advises_is_warned_about():
    layer = StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER)
    found = laid({"inline": layer}, max_autonomy=AutonomyLevel.CONSULTANT)
    assert [code for code, _ in found.warnings] == ["W006"]
    assert not laid({"inline": layer}, max_autonomy=AutonomyLevel.APPROVER).warnings


@given(
    mode=st.sampled_from([None, *StepMode]),
    other=st.sampled_from([None, *StepMode]),
    agent_only=st.lists(st.sampled_from(AGENT_ONLY[1:3]), unique=True),
    shadow=st.sampled_from([None, 0.5]),
    forced=st.booleans(),
)
def test_whatever_resolves_is_a_valid_configuration_again(mode, other, agent_only, shadow, forced):
    values = {"allowed_tools": ("look",), "prompt_suffix": "x"}
    try:
        inline = StepConfig(mode=mode, shadow=shadow)
        below = StepConfig(mode=other, **{name: values[name] for name in agent_only})
        found = laid({"inline": inline, "steps.step": below}, forced=forced)
    except StepConfigError:
        return
    again = StepConfig(**{name: getattr(found.config, name) for name in FIELDS})
    assert again == found.config
    if found.config.mode is StepMode.DETERMINISTIC and not found.config.shadow:
        assert not any(getattr(found.config, name) for name in agent_only)


def test_time_and_attempts_may_be_said_as_applications_say_them():
    said = StepConfig.read({"mode": "agent", "timeout_s": 20, "max_attempts": 3})
    assert (said.timeout, said.max_retries) == (20.0, 2)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"timeout_s": 5, "timeout": 5}, "timeout_s and timeout are two ways of saying the same"),
        ({"timeout_s": 0}, "timeout is 0; it takes a number of seconds above 0"),
        ({"max_attempts": 0}, "max_attempts takes a whole number of 1 or more"),
        ({"max_attempts": "three"}, "max_attempts takes a whole number of 1 or more"),
        ({"max_attempts": 2, "max_retries": 1}, "max_attempts counts the first try"),
    ],
)
def test_synonyms_are_checked_like_what_they_stand_for(said, told):
    with pytest.raises(StepConfigError, match=told):
        StepConfig.read(said)
