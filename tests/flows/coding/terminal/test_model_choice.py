"""What `--model NAME` means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.flows.coding.settings import coding_settings
from detent.flows.coding.terminal.model_choice import own_steps, with_model
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import Settings

HOUSE = {"kind": "vllm", "base_url": "http://127.0.0.1:1/v1", "model_id": "served"}


def _chosen(values: dict[str, Any], name: str) -> dict[str, Any] | None:
    return coding_settings(with_model(Settings(Path(), values=values), name)).steps.assistant


@pytest.mark.parametrize(
    ("values", "name", "chosen"),
    [
        ({"models": {"house": HOUSE}}, "house", {"mode": "agent", "provider": "house"}),
        ({"models": {"house": HOUSE, "other": HOUSE}}, "other", {"mode": "agent", "provider": "other"}),
        ({"models": {"house": HOUSE}}, "big", {"mode": "agent", "provider": "house", "model_id": "big"}),
        (
            {"models": {"a": HOUSE, "b": HOUSE}, "model": {"provider": "b"}}, "big",
            {"mode": "agent", "provider": "b", "model_id": "big"},
        ),
        ({}, "claude", {"mode": "agent", "provider": "claude"}),
        ({}, "qwen2.5-coder-1.5b", {"mode": "agent", "provider": "local", "model_id": "qwen2.5-coder-1.5b"}),
        (
            {
                "models": {"house": HOUSE},
                "coding": {"steps": {"assistant": {"mode": "agent", "model_id": "old", "max_tokens": 9}}},
            },
            "house", {"mode": "agent", "provider": "house", "model_id": None, "max_tokens": 9},
        ),
    ],
)  # fmt: skip
def test_a_name_means_an_entry_or_a_model_of_the_default_provider(
    values: dict[str, Any], name: str, chosen: dict[str, Any]
) -> None:
    assert _chosen(values, name) == chosen


@pytest.mark.parametrize(
    ("assistant", "name", "kept"),
    [
        ({}, "house", {"mode": "agent", "provider": "house", "model_id": "served"}),
        ({"mode": "agent", "provider": "x", "model_id": "old"}, "house",
         {"mode": "agent", "provider": "house", "model_id": "served"}),
        ({}, "big", {"mode": "agent", "provider": "house", "model_id": "big"}),
        ({"model_id": "old"}, "claude", {"mode": "agent", "provider": "claude"}),
    ],
)  # fmt: skip
def test_a_request_keeps_the_model_and_none_of_another_one(
    assistant: dict[str, Any], name: str, kept: dict[str, Any]
) -> None:
    models = {} if name == "claude" else {"house": HOUSE}
    values = {"models": models, "coding": {"steps": {"assistant": assistant}}}
    assert own_steps(with_model(Settings(Path(), values=values), name)) == {"assistant": kept}


def test_without_a_model_in_the_settings_it_is_said_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"detent models pull .*docs/models\.md"):
        _chosen({}, "gpt-9")


def test_a_name_that_could_be_of_several_providers_is_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="none of these is the default one: a, b"):
        _chosen({"models": {"a": HOUSE, "b": HOUSE}}, "big")
    with pytest.raises(ConfigurationError, match="name of a model"):
        _chosen({"models": {"a": HOUSE}}, " ")
