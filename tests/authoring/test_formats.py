"""Every format is read by the one reader, and what YAML 1.1 read differently is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.authoring.document import CHANGED, MOST_BYTES, Document, read_document, read_value
from detent.evals.reading import read_case
from detent.flows.playbook.reading import read_instruction
from detent.kernel.errors import ConfigurationError
from detent.runtime.settings import SettingsError, read_settings

LAUGHS = "\n".join(
    ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
)
"""Ten to the power of thirty values."""


def read(text: str) -> Document:
    return read_document(text, "f.yaml", was_yaml_1_1=True)


def test_no_format_writes_out_aliases_of_aliases(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(LAUGHS)
    (tmp_path / "detent.yaml").write_text(LAUGHS)
    with pytest.raises(ConfigurationError, match="aliases written out"):
        ScriptedStepExecutor(tmp_path / "script.yaml")
    with pytest.raises(ConfigurationError, match="aliases written out"):
        read_settings(folder=tmp_path, environ={})
    with pytest.raises(ConfigurationError, match="aliases written out"):
        read_value(LAUGHS, "data")
    assert "aliases written out" in read_case(LAUGHS)[1][0].message
    step = read_instruction(f"---\n{LAUGHS}\n---\n".encode(), Path("01-a.md"))
    assert [(one.code, "aliases written out" in one.message) for one in step.problems] == [("P03", True)]


def test_a_text_of_any_format_has_a_length_it_may_not_pass() -> None:
    with pytest.raises(ConfigurationError, match=f"{MOST_BYTES:,} bytes at most"):
        read_value("a: " + "x" * MOST_BYTES, "data")


@pytest.mark.parametrize(
    ("written", "value", "says"),
    [
        ("yes", "yes", "yes is the text 'yes' in YAML 1.2, but true in YAML 1.1"),
        ("Off", "Off", "Write false, or 'Off' in quotes if that is meant."),
        ("010", 10, "010 is the number 10 in YAML 1.2, but 8 in YAML 1.1"),
        ("12:30:00", "12:30:00", "Write 45000, or '12:30:00' in quotes if that is meant."),
        ("1_000", "1_000", "Write 1000, or '1_000' in quotes if that is meant."),
        ("0b11", "0b11", "but 3 in YAML 1.1"),
        ("0o17", 15, "0o17 is the number 15 in YAML 1.2, but the text '0o17' in YAML 1.1"),
        ("1e3", 1000.0, "Write '1e3' in quotes, or 1000.0 if that is meant."),
    ],
)
def test_a_scalar_that_yaml_1_1_read_differently_is_reported(written: str, value: object, says: str) -> None:
    document = read(f"a:\n  b: {written}\n")
    (problem,) = document.problems
    assert document.value == {"a": {"b": value}}
    assert (problem.code, problem.severity, problem.place[1:]) == (CHANGED, "warning", (2, 6))
    assert says in problem.message
    assert document.errors == ()
    assert read_document(f"a: {written}", "f.yaml").problems == ()
    assert read(f"a: '{written}'").problems == ()


@pytest.mark.parametrize(
    "written", ["true", "null", "~", "12", "-3", "1.5", "2026-03-01", "no way", "y", "nobody", "0x1F", "+1"]
)
def test_what_both_versions_read_alike_is_not_reported(written: str) -> None:
    assert read(f"a: {written}").problems == ()


@pytest.mark.parametrize("written", [".inf", "9" * 200])
def test_a_number_that_cannot_be_used_is_one_problem(written: str) -> None:
    (problem,) = read(f"a: {written}").problems
    assert problem.severity == "error"


def test_a_long_sexagesimal_number_costs_nothing() -> None:
    assert read("a: " + "1:" * 100_000 + "1").problems == ()


def test_a_setting_that_would_change_its_meaning_is_refused(tmp_path: Path) -> None:
    (tmp_path / "detent.yaml").write_text("telemetry:\n  enabled: yes\nbudget: {steps: 010}\n")
    with pytest.raises(SettingsError) as caught:
        read_settings(folder=tmp_path, environ={})
    first, second, *_ = map(str, caught.value.problems)
    assert first.startswith("detent.yaml:2:12: yes is the text 'yes'")
    assert "Write true" in first
    assert second.startswith("detent.yaml:3:17: 010 is the number 10")


def test_a_step_file_warns_of_a_scalar_that_changed() -> None:
    front = "name: 01-a\ndescription: x\nversion: 1.0.0\nnext: [DONE]\ncall: {f: {n: 010}, into: x}"
    text = f"---\n{front}\n---\nGo."
    read_step = read_instruction(text.encode(), Path("01-a.md"))
    assert [(one.code, str(one.place)) for one in read_step.problems] == [(CHANGED, "01-a.md:6:15")]
    assert read_step.instruction is not None


def test_numbers_may_be_keys_of_data_as_they_are_written() -> None:
    assert read_value("010: a\n7: b\ntrue: c\n", "table.yaml") == {"010": "a", "7": "b", "true": "c"}
