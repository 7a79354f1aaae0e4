"""What a project says about its mailbox: everything wrong is told at once, in plain words."""

from __future__ import annotations

import pytest

from detent.apps.warranty.settings import read, wrong_values
from detent.authoring.problem import NOWHERE
from detent.kernel.errors import ConfigurationError


def problems(tmp_path, **values) -> list[str]:
    """What is wrong with these headings, line by line."""
    with pytest.raises(ConfigurationError) as told:
        read(values, tmp_path)
    lines = str(told.value).splitlines()
    return [line.strip() for line in (lines[1:] if len(lines) > 1 else lines)]


def test_unknown_keys_in_lists_and_mappings_are_told_with_the_nearest(tmp_path):
    arms = {"a": {"shre": 50}, "b": {"share": 50}}
    found = problems(
        tmp_path,
        warranty={"contacts": [{"topic": "default", "txt": "x"}]},
        orchestration={"router": {"experiment": {"name": "x", "arms": arms}}},
    )
    assert found == [
        "'warranty.contacts.0.text' is missing.",
        "unknown key 'warranty.contacts.0.txt'. Did you mean 'text'?",
        "'orchestration.router.experiment.arms.a.share' is missing.",
        "unknown key 'orchestration.router.experiment.arms.a.shre'. Did you mean 'share'?",
    ]


@pytest.mark.parametrize("sender", ["", "Service", "Service <>", "@firm.example", "service@"])
def test_a_sender_that_is_no_address_is_refused(tmp_path, sender):
    assert problems(tmp_path, mail={"from": sender}) == [
        "'mail.from': mails need a sender, such as \"Service <service@firm.example>\"."
    ]


@pytest.mark.parametrize("key", ["steps_dir", "templates_dir", "scenarios_dir"])
def test_a_folder_that_is_named_and_not_there_is_not_replaced_by_what_ships(tmp_path, key):
    (found,) = problems(tmp_path, playbook={key: "nope"})
    assert found.startswith(f"'playbook.{key}': there is no folder 'nope'. Leave the key out")
    (tmp_path / "nope").mkdir()
    assert getattr(read({"playbook": {key: "nope"}}, tmp_path).playbook, key) == "nope"


def test_the_scenarios_may_be_gone_once_legacy_mode_is_retired(tmp_path):
    values = {"playbook": {"scenarios_dir": "nope"}, "orchestration": {"legacy_available": False}}
    assert read(values, tmp_path).playbook.scenarios_dir == "nope"


def test_numbers_and_choices_say_what_they_should_be(tmp_path):
    found = problems(tmp_path, agent={"polling_interval_seconds": 2}, mail={"sink": "pigeon"})
    assert found == [
        "'agent.polling_interval_seconds' should be greater than or equal to 10.",
        "'mail.sink' should be 'outbox' or 'smtp'.",
    ]


def test_unknown_keys_are_left_to_whoever_told_them_already(tmp_path):
    values = {"mail": {"inbx": "x", "sink": "pigeon"}}
    (problem,) = wrong_values(values, tmp_path, lambda keys: NOWHERE)
    assert (problem.path, problem.message) == ("mail.sink", "'mail.sink' should be 'outbox' or 'smtp'.")
