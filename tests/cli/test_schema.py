"""`detent schema`: what editors complete and check with."""

from __future__ import annotations

import jsonschema
import pytest


def test_the_schema_of_settings_knows_the_headings_of_kinds_and_applications(detent):
    schema = detent("schema", "settings").json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"store": "x.db", "budget": {"steps": 3}, "workflow": {"max_parallel": 2}}, schema)
    jsonschema.validate({"prices": {"some-model": {"input": 1, "output": 2}}}, schema)
    for wrong in (
        {"bugdet": {}}, {"budget": {"stpes": 3}}, {"prices": {"m": {"in": 1}}}, {"budget": [1]},
        {"budget": {"steps": 0}}, {"telemetry": {"enabled": "yes"}}, {"agreement": {"min_lower95": 2}},
        {"autonomy": {"demote": {"floor": "boss"}}}, {"plugins": [1]},
    ):  # fmt: skip
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_the_schema_of_a_playbook_knows_every_key_of_its_manifest(detent):
    schema = detent("schema", "playbook").json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"name": "x", "tools": "shop.tools", "max_steps": 3, "redirect": None}, schema)
    for wrong in ({"nmae": "x"}, {"max_steps": 0}, {"tools": [1]}, {"arguments": []}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_the_schema_of_a_playbook_holds_that_of_its_steps(detent):
    """One model for the reader and for editors."""
    schema = detent("schema", "playbook").json["$defs"]["step"]
    jsonschema.Draft202012Validator.check_schema(schema)
    step = {"name": "01-a", "description": "d", "version": "1.0.0", "next": ["DONE", {"to": 3}]}
    jsonschema.validate(step, schema)
    jsonschema.validate(
        {**step, "form": {"a": {"description": "d", "enum": ["x", "y"]}}, "mode": "agent"}, schema
    )
    for wrong in (
        {"nexte": []},
        {"version": "1.0"},
        {"mode": "agnet"},
        {"next": [{"when": {}}]},
        {"needs": ["a..b"]},
        {"form": {"a": {"type": "text", "description": "d"}}},
        {"max_attempts": 0},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**step, **wrong}, schema)


def test_a_kind_that_is_none_is_refused(detent):
    refused = detent("schema", "wrkflow")
    assert (refused.code, refused.out) == (2, "")
