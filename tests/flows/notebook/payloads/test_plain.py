"""Plain JSON of payloads: for the journal, and for executors with structured output (N-112)."""

from __future__ import annotations

import json

import jsonschema
import pytest

from detent.flows.notebook.payloads.kinds import KINDS
from detent.flows.notebook.payloads.payload_error import NO_PAYLOAD, PayloadError
from detent.flows.notebook.payloads.plain import json_schema, kind_of_plain, to_plain
from detent.flows.notebook.payloads.reading import read_payload
from detent.flows.notebook.payloads.shape import sample


def spaced(data):
    """The same with white space around every text."""
    if isinstance(data, str):
        return f"\n{data}\n  "
    if isinstance(data, dict):
        return {key: spaced(item) for key, item in data.items()}
    return [spaced(item) for item in data] if isinstance(data, list) else data


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_an_answer_in_json_reads_into_the_value_of_the_xml(self, kind):
        value = read_payload(sample(kind)).value
        data = to_plain(value)
        for text in (
            json.dumps(data),
            json.dumps(data, indent=2, ensure_ascii=False),
            f"Here you are:\n```json\n{json.dumps(data, indent=1)}\n```\n",
        ):
            read = read_payload(text, expected=kind)
            assert read.value == value
            assert read.details["format"] == "json"
            assert read_payload(text).value == value
        assert kind_of_plain(data) == kind

    def test_outer_space_of_an_answer_is_trimmed_as_in_xml(self, kind):
        value = read_payload(sample(kind)).value
        assert read_payload(json.dumps(spaced(to_plain(value))), expected=kind).value == value

    def test_the_schema_takes_the_sample_and_refuses_what_the_checks_refuse(self, kind):
        schema = json_schema(kind)
        validator = jsonschema.Draft202012Validator(schema)
        validator.check_schema(schema)
        data = to_plain(read_payload(sample(kind)).value)
        assert list(validator.iter_errors(data)) == []
        for key in schema["required"]:
            assert list(validator.iter_errors({name: item for name, item in data.items() if name != key}))
        assert list(validator.iter_errors({}))

    def test_the_schema_is_made_anew_for_each_caller(self, kind):
        json_schema(kind)["properties"].clear()
        assert json_schema(kind)["properties"]

    def test_an_unused_key_is_flagged(self, kind):
        data = {**to_plain(read_payload(sample(kind)).value), "mood": "good"}
        assert "unused: /mood" in read_payload(json.dumps(data), expected=kind).flags

    def test_a_part_that_is_missing_is_refused(self, kind):
        data = to_plain(read_payload(sample(kind)).value)
        key = json_schema(kind)["required"][0]
        del data[key]
        with pytest.raises(PayloadError):
            read_payload(json.dumps(data), expected=kind)


def test_the_schemas_limit_counts_and_ids():
    data = to_plain(read_payload(sample("T1")).value)
    for spoilt in (
        {**data, "stages": []},
        {**data, "stages": data["stages"] * 3},
        {**data, "stages": [{**data["stages"][0], "id": "Data Check"}]},
        {**data, "stages": [{**data["stages"][0], "verified_artifacts": []}]},
    ):
        assert list(jsonschema.Draft202012Validator(json_schema("T1")).iter_errors(spoilt))


def test_json_that_is_no_payload():
    for text in (
        '{"answer": 42}',
        '{"targetAchieved": true}',
        '{"stages": []}\n{"stages": []}',
        '[{"a": 1}]',
    ):
        with pytest.raises(PayloadError) as caught:
            read_payload(text)
        assert caught.value.problems[0].code == NO_PAYLOAD


def test_json_of_another_kind_than_expected_names_what_is_missing():
    with pytest.raises(PayloadError) as caught:
        read_payload(json.dumps(to_plain(read_payload(sample("T5")).value)), expected="T6")
    assert caught.value.problems
