"""The JSON Schema of workflow files says what reading says. D-61."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from detent.authoring.document import read_document
from detent.authoring.model import keys_of
from detent.dispatch.config import FIELDS
from detent.engine.schemas import check_schema
from detent.flows.workflow.reading import OLD_CONFIG
from detent.flows.workflow.schema import json_schema
from detent.flows.workflow.search_path import SHIPPED
from detent.flows.workflow.spec import STEPS, WorkflowSpec
from detent.flows.workflow.step_type import StepType
from tests.flows.workflow import test_checking, test_reading
from tests.flows.workflow.files import read, text_of

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def fits(text: str) -> bool:
    return bool(VALIDATOR.is_valid(read_document(text.encode(), "f").value))


def parameters(test: Any) -> list[Any]:
    return [values for mark in test.pytestmark if mark.name == "parametrize" for values in mark.args[1]]


def test_it_is_a_schema_of_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_it_knows_every_key() -> None:
    assert set(SCHEMA["properties"]) == set(keys_of(WorkflowSpec))
    for kind in StepType:
        known = set(SCHEMA["$defs"][kind.value]["properties"])
        assert known == {*keys_of(STEPS[kind]), "type", "config", OLD_CONFIG}
    assert set(SCHEMA["$defs"]["config"]["properties"]) == {*FIELDS, "model", "timeout_s", "max_attempts"}


def test_everything_in_it_is_described() -> None:
    """Editors show what a key is for."""
    for name, part in {"file": SCHEMA, **SCHEMA["$defs"]}.items():
        for key, said in part.get("properties", {}).items():
            there = SCHEMA["$defs"][said["$ref"].rpartition("/")[2]] if "$ref" in said else {}
            assert said.get("description") or there.get("description"), f"{name}.{key}"


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_workflow_fits(path: Any) -> None:
    assert list(VALIDATOR.iter_errors(read_document(path.read_bytes(), path.name).value)) == []


def test_a_file_that_says_everything_fits() -> None:
    assert list(VALIDATOR.iter_errors(read_document(test_reading.WHOLE.encode(), "f").value)) == []


@pytest.mark.parametrize("text", parameters(test_checking.test_a_right_file_has_no_problem))
def test_every_accepted_case_fits(text: str) -> None:
    assert fits(text_of(text))


@pytest.mark.parametrize(
    "text",
    [
        values[0]
        for values in parameters(test_reading.test_a_file_without_its_bones_is_refused)
        if "\\n"
        not in values[0]  # to Python `$` matches before a last line end as well, to editors it does not
    ],
)
def test_a_file_without_its_bones_does_not_fit(text: str) -> None:
    assert not fits(text)


@pytest.mark.parametrize(
    "step",
    [
        values[0]
        for values in parameters(test_reading.test_a_key_of_a_step_of_the_wrong_kind_is_refused)
        if "{type: 5}" not in values[0]  # a schema in a schema
    ],
)
def test_a_step_of_the_wrong_shape_does_not_fit(step: str) -> None:
    assert not fits(text_of(f"- {step}\n"))


@pytest.mark.parametrize(
    "head",
    [
        values[0]
        for values in parameters(test_reading.test_a_key_of_the_file_of_the_wrong_kind_is_refused)
        if "secret: true" not in values[0]
    ],
)
def test_a_file_of_the_wrong_shape_does_not_fit(head: str) -> None:
    assert not fits(text_of("- {name: a, type: checkpoint}\n", head))


def test_what_has_no_problem_of_shape_fits() -> None:
    """No broken file that reading lets through is refused by the schema."""
    for case in test_checking.CASES:
        if read(case.text).spec is not None:
            assert fits(case.text), case.text


@pytest.mark.parametrize(
    "config", ["{mode: agnt}", "{modes: agent}", "{temperature: 2}", "{budget: {tokens: -1}}", "{timeout: 0}"]
)
def test_a_bad_configuration_does_not_fit(config: str) -> None:
    assert not fits(text_of(f"- {{name: a, type: checkpoint, config: {config}}}\n"))


def test_it_is_made_anew_each_time() -> None:
    json_schema()["properties"].clear()
    assert json_schema()["properties"]
